package pgsvi

import (
	"context"
	"fmt"
	"io"

	"github.com/pgsvi/pgsvi/internal/dense"
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

func (s *glmStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	if err := s.begun(nil); err != nil {
		return prefixed(err)
	}
	if err := checkText("the name of weight", s.g.lin.Names); err != nil {
		return err
	}
	lik, err := saveValue(likOf(s.g.lin.Terms))
	if err != nil {
		return err
	}
	k, p := &s.kept, &s.block.Pace
	saved := &savedGLMStream{Likelihood: lik, Names: s.g.lin.Names, Intercept: s.g.opt.Intercept,
		Prior: s.g.lin.Prior.Save(),
		Given: s.seen, Rows: s.rows, Mean: s.w.Mean, Precision: dense.PackLower(s.w.P, s.dim()),
		PrecisionLow: s.w.PackLow(),
		Buffer:       s.buf.Save(), Kept: savedKept{k.Save(), k.gamma, k.a, k.m, k.least}}
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
