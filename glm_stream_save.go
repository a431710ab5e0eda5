package pgsvi

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// glmStreamFile is the file type of a stream of rows.
var glmStreamFile = save.Kind{Name: "GLMStream", Version: 1}

// savedGLMStream is the JSON form of a glmStream.
type savedGLMStream struct {
	Likelihood save.Value         `json:"likelihood"`
	Names      save.List[string]  `json:"names"` // names of the weights
	Intercept  bool               `json:"intercept"`
	Prior      gauss.SavedPrior   `json:"prior"`
	Given      int                `json:"given"`
	Rows       int                `json:"rows"`
	Mean       save.List[float64] `json:"mean"`
	Precision  save.List[float64] `json:"precision"` // lower triangle, row by row
	// PrecisionLow is the second half of the digits of Precision, if it has twice the digits.
	PrecisionLow save.List[float64] `json:"precisionLow,omitempty"`
	Past         *term.SavedBuffer  `json:"past,omitempty"` // rows of w; nil if unknown
	Buffer       term.SavedBuffer   `json:"buffer"`
	Kept         savedKept          `json:"kept"`
	Pace         *savedPace         `json:"pace,omitempty"` // nil if no pace was measured
	Groups       *savedGroupStream  `json:"groups,omitempty"`
}

// savedKept is the JSON form of keptRows.
type savedKept struct {
	term.SavedBuffer
	Gamma save.List[float64] `json:"gamma"`
	A     save.List[float64] `json:"a"`
	M     save.List[float64] `json:"m"`
	Least float64            `json:"least"`
}

// savedPace is the JSON form of a pace.
type savedPace struct {
	Mean      float64 `json:"mean"`
	Precision float64 `json:"precision"`
	Age       int     `json:"age"`
}

// saveStream returns the part of the saved form that all streams of g have, after the given numbers of
// rows: all rows, and those in the posterior.
func saveStream(g *GLM, given, rows int) (*savedGLMStream, error) {
	if err := checkText("the name of weight", g.lin.Names); err != nil {
		return nil, err
	}
	lik, err := saveValue(likOf(g.lin.Terms))
	if err != nil {
		return nil, err
	}
	return &savedGLMStream{Likelihood: lik, Names: g.lin.Names, Intercept: g.opt.Intercept,
		Prior: g.lin.Prior.Save(), Given: given, Rows: rows}, nil
}

func (s *glmStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	if err := s.begun(nil); err != nil {
		return prefixed(err)
	}
	saved, err := saveStream(s.g, s.seen, s.rows)
	if err != nil {
		return err
	}
	k, p := &s.kept, &s.block.Pace
	saved.Mean, saved.Precision = s.w.Mean, dense.PackLower(s.w.P, s.dim())
	saved.PrecisionLow = s.w.PackLow()
	saved.Buffer, saved.Kept = s.buf.Save(), savedKept{k.Save(), k.gamma, k.a, k.m, k.least}
	if s.past != nil {
		past := s.past.Save()
		saved.Past = &past
	}
	after := []float64{p.After.Mean, p.After.Precision}
	// If they are not finite, every step is checked, as without a measurement.
	if _, finite := dense.AllFinite(after); p.Measured && finite {
		saved.Pace = &savedPace{after[0], after[1], p.Age}
	}
	return saveTo(w, glmStreamFile, saved)
}

// loadStream reads a stream of rows from r.
func (*GLMPosterior) loadStream(r io.Reader) (*Stream[Row, *GLMPosterior], error) {
	return loadFrom(r, glmStreamFile, (*savedGLMStream).load)
}

func (s *savedGLMStream) load() (*Stream[Row, *GLMPosterior], error) {
	d := len(s.Names)
	if s.Groups != nil && len(s.Mean) == 0 {
		s.Mean = make([]float64, d)
	}
	if d == 0 || len(s.Mean) != d || len(s.Prior.Mean) != d || s.Rows < 0 || s.Given < 0 ||
		max(s.Rows, s.Given) > save.Most {
		return nil, fmt.Errorf(
			"%d weights, %d rows and %d in all do not fit %d means and %d prior means: %w", d,
			s.Rows, s.Given, len(s.Mean), len(s.Prior.Mean), ErrShape)
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	prior, err := s.Prior.Load()
	if err != nil {
		return nil, err
	}
	if s.Groups != nil {
		t, err := s.Groups.load(s, lik, prior)
		if err != nil {
			return nil, err
		}
		return &Stream[Row, *GLMPosterior]{t}, nil
	}
	w, err := gauss.LoadPrecision(s.Precision, s.PrecisionLow, d, "precision")
	if err != nil {
		return nil, err
	}
	g := &GLM{
		lin: site.LinearModel{Terms: &term.Terms{Lik: viewOf(lik)}, Prior: *prior, Names: s.Names},
		opt: GLMOptions{Intercept: s.Intercept, Covariance: FullCovariance},
	}
	t := newGLMStream(g)
	copy(w.Mean, s.Mean)
	t.w, t.made, t.rows, t.seen = *w, true, s.Rows, s.Given
	if err := t.buf.Load(&s.Buffer, func(y float64) error {
		return checkLabel(lik,
			y)
	}); err != nil {
		return nil, fmt.Errorf("the buffer: %w", err)
	}
	if s.Past != nil {
		t.past = term.NewBuffer(d)
		if err := t.past.Load(s.Past, func(y float64) error {
			return checkLabel(lik,
				y)
		}); err != nil {
			return nil, fmt.Errorf("the earlier rows: %w", err)
		}
		if n := t.past.Rows(); n != s.Rows || n > mostKept {
			return nil, fmt.Errorf("there are %d earlier rows instead of %d: %w", n, s.Rows,
				ErrShape)
		}
	}
	k, n := &t.kept, len(s.Kept.Y)
	if err := k.Load(&s.Kept.SavedBuffer, func(y float64) error {
		return checkLabel(lik,
			y)
	}); err != nil {
		return nil, fmt.Errorf("the kept rows: %w", err)
	}
	if len(s.Kept.Gamma) != n || len(s.Kept.A) != n || len(s.Kept.M) != n || !(s.Kept.Least >= 0) {
		return nil, fmt.Errorf("%d kept rows do not fit %d, %d and %d site parameters: %w", n,
			len(s.Kept.Gamma), len(s.Kept.A), len(s.Kept.M), ErrShape)
	}
	k.gamma, k.a, k.m, k.least = s.Kept.Gamma, s.Kept.A, s.Kept.M, s.Kept.Least
	if p := s.Pace; p != nil {
		t.block.Pace = site.Pace{After: site.Remainder{Mean: p.Mean, Precision: p.Precision},
			Age: p.Age, Measured: true}
	}
	return &Stream[Row, *GLMPosterior]{t}, nil
}

// savedGroupStream is the JSON form of a groupStream, without names, prior, likelihood and numbers of
// rows. Rows of the savedGLMStream is the number of frozen rows.
type savedGroupStream struct {
	Groups  save.List[savedRowGroup] `json:"groups"`
	Means   save.List[float64]       `json:"columnMeans,omitempty"`
	Given   bool                     `json:"given"`   // the groups come from options, and have moments
	Started bool                     `json:"started"` // the scales of the priors of the groups are known
	Fresh   int                      `json:"fresh"`
	Start   save.List[float64]       `json:"start,omitempty"` // L of the start of all groups
	Kept    term.SavedBuffer         `json:"kept"`
	Frozen  *savedFrozen             `json:"frozen,omitempty"`
	Noise   *savedNoise              `json:"noise,omitempty"` // set if the noise is learned
}

// savedFrozen is the JSON form of a gauss.Frozen, whose prior is saved with the stream.
type savedFrozen struct {
	savedArrow
	HB    save.List[float64] `json:"borderCoefficients"`
	HG    save.List[float64] `json:"levelCoefficients"`
	Left  save.List[float64] `json:"left,omitempty"` // lower triangle
	LeftH save.List[float64] `json:"leftCoefficients,omitempty"`
}

func (s *groupStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	saved, err := saveStream(s.g, s.seen, s.rows)
	if err != nil {
		return err
	}
	of := &savedGroupStream{Means: s.g.means, Given: s.moments != nil, Fresh: s.fresh,
		Started: len(s.g.lin.Factors) > 0, Kept: s.act.Save(), Noise: s.noise.save(s.g)}
	if s.start != nil {
		for _, b := range s.start.Blocks() {
			of.Start = append(of.Start, b.L...)
		}
	}
	for i := range s.g.opt.Groups {
		r := &s.g.opt.Groups[i]
		if err := checkText("the name of group", append([]string{r.Name}, r.Effects...)); err != nil {
			return err
		}
		x := r.saveRows()
		if s.moments != nil {
			x.Moment = s.moments[i]
		} else {
			x.Moment = s.g.groups[i].moment
		}
		if of.Started {
			x.Scale = s.g.lin.Factors[i].Scale
		}
		of.Groups = append(of.Groups, x)
	}
	if f := s.frozen; f != nil {
		of.Frozen = &savedFrozen{savedArrow: *saveArrow(f.Arrow()), HB: f.HB, HG: f.HG}
		if f.Left != nil {
			of.Frozen.Left, of.Frozen.LeftH = dense.PackLower(f.Left, len(f.HB)), f.LeftH
		}
	}
	saved.Groups = of
	saved.Buffer, saved.Kept.SavedBuffer = term.NewBuffer(0).Save(), term.NewBuffer(0).Save()
	return saveTo(w, glmStreamFile, saved)
}

// load returns the stream with the names and the numbers of rows of of.
func (s *savedGroupStream) load(of *savedGLMStream, lik Likelihood, prior *gauss.Prior) (*groupStream,
	error) {
	d := len(of.Names)
	g := &GLM{lin: site.LinearModel{Terms: &term.Terms{Lik: viewOf(lik)}, Prior: *prior,
		Names: of.Names}, opt: GLMOptions{Intercept: of.Intercept}, means: s.Means}
	cols := d - design.B2i(of.Intercept)
	t := &groupStream{g: g, act: term.NewBuffer(d), rows: of.Rows, seen: of.Given, fresh: s.Fresh}
	if len(s.Groups) == 0 || latentsOf(lik) > 1 || len(s.Means) > 0 && len(s.Means) != cols {
		return nil, fmt.Errorf("%d groups with %d means of %d columns: %w", len(s.Groups),
			len(s.Means), cols, ErrShape)
	}
	for i := range s.Groups {
		x := &s.Groups[i]
		r, err := x.group()
		if err != nil {
			return nil, err
		}
		q := r.effects()
		if len(x.Moment) != q*q || s.Started && len(x.Scale) != q*(1-design.B2i(x.NoPrior)) {
			return nil, fmt.Errorf("group %s has %d moments and %d scales of %d effects: %w", r.Name,
				len(x.Moment), len(x.Scale), q, ErrShape)
		}
		for _, v := range x.Scale {
			if !(v > 0) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("the scale of an effect is %v: %w", v, ErrParam)
			}
		}
		g.opt.Groups = append(g.opt.Groups, r)
		g.groups = append(g.groups, groupInfo{Group: r, moment: x.Moment})
		if s.Given {
			t.learns = t.learns || !r.Fixed
			t.moments = append(t.moments, x.Moment)
		}
		if s.Started {
			g.lin.Factors = append(g.lin.Factors, site.Factor{Learn: !r.Fixed,
				Independent: r.Independent, Scale: x.Scale})
		}
	}
	if s.Given { // the groups of a posterior have learned L, and no SD
		if _, err := checkGroups(g.opt.Groups, cols, AutoCovariance, nil); err != nil {
			return nil, err
		}
	}
	if err := g.opt.checkGroupStream(d, t.learns); err != nil {
		return nil, err
	}
	if s.Noise != nil {
		if g.lin.Terms.Noise() == 0 || !s.Given || s.Frozen != nil && (!s.Started || !(s.Noise.Unit > 0)) {
			return nil, fmt.Errorf("the stream cannot learn noise: %w", ErrParam)
		}
		var err error
		if t.noise, err = s.Noise.load(g); err != nil {
			return nil, err
		}
	}
	if err := t.act.Load(&s.Kept, func(y float64) error { return checkLabel(lik, y) }); err != nil {
		return nil, fmt.Errorf("the kept rows: %w", err)
	}
	if n := t.act.Rows(); n > mostKept || s.Fresh < 0 || s.Fresh > n {
		return nil, fmt.Errorf("there are %d kept rows and %d old rows: %w", n, s.Fresh, ErrShape)
	}
	blocks := prior.Blocks()
	fits := len(blocks) == len(s.Groups)
	for i, b := range blocks {
		r := &g.opt.Groups[min(i, len(s.Groups)-1)]
		fits = fits && b.First == r.First && b.Levels == r.Levels && b.Q == r.effects()
	}
	if (s.Frozen != nil || !s.Given) && !fits || s.Frozen == nil && of.Rows > 0 ||
		t.learns && s.Frozen != nil && !s.Started {
		return nil, fmt.Errorf("the prior of %d groups does not fit %d groups and %d rows: %w",
			len(blocks), len(s.Groups), of.Rows, ErrShape)
	}
	var err error
	if t.frozen, err = s.Frozen.load(prior); err != nil || !t.learns && t.noise == nil ||
		t.frozen == nil {
		return t, err
	}
	start, rest := prior.WithBlocks(), []float64(s.Start)
	for _, b := range blocks {
		n := b.Q * b.Q
		if len(rest) < n {
			return nil, fmt.Errorf("there are %d numbers of the start of %d groups: %w", len(s.Start),
				len(blocks), ErrShape)
		}
		if i, ok := dense.AllFinite(rest[:n]); !ok {
			return nil, fmt.Errorf("number %d of the start of a group is %v: %w", i, rest[i],
				ErrNotFinite)
		}
		b.L, rest = rest[:n], rest[n:]
		start.SetBlock(b)
	}
	t.start = &start
	return t, nil
}

// load returns the Frozen with the given prior, or nil if s is nil.
func (s *savedFrozen) load(prior *gauss.Prior) (*gauss.Frozen, error) {
	if s == nil {
		return nil, nil
	}
	c, err := s.arrow(prior)
	if err != nil {
		return nil, err
	}
	x := &gauss.Frozen{Prior: prior, Shape: c.ArrowShape, L: c.L, Sums: c.Sums, HB: s.HB, HG: s.HG}
	m, e := len(c.Border), &c.Blocks[0]
	if len(s.HB) != m || len(s.HG) != e.Levels*e.Q || len(s.Left) > 0 &&
		(len(s.Left) != m*(m+1)/2 || len(s.LeftH) != m) {
		return nil, fmt.Errorf("%d and %d coefficients do not fit the sums of %d columns: %w",
			len(s.HB), len(s.HG), m, ErrShape)
	}
	for _, v := range [][]float64{s.A, s.B, s.D, s.HB, s.HG, s.Left, s.LeftH} {
		if i, ok := dense.AllFinite(v); !ok {
			return nil, fmt.Errorf("number %d of the sums over rows is %v: %w", i, v[i], ErrNotFinite)
		}
	}
	if len(s.Left) > 0 {
		x.Left, x.LeftH = make([]float64, m*m), s.LeftH
		for i := range m {
			copy(x.Left[i*m:], s.Left[i*(i+1)/2:(i+1)*(i+2)/2])
		}
		dense.FillUpper(x.Left, m)
	}
	return x, nil
}
