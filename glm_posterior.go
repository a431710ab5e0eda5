package pgsvi

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// GLMPosterior is the approximation q(w) = N(m, V) of the weights of a GLM that
// a run reached, ready for predictions. It is immutable and safe for concurrent use.
//
// At takes new points as the rows of x, dense or sparse, with the columns of the
// training data (the intercept is added inside). It panics if the number of columns
// differs. A row with a NaN or an infinity has no linear predictor; what is computed
// from it is NaN.
type GLMPosterior struct {
	names []string
	opt   GLMOptions
	lik   Likelihood
	prior *weightPrior
	mean  []float64 // of w
	cov   weightCov
	rows  int
}

// posterior returns the posterior with mean μ0 + mean, which it changes, and covariance cov.
func (g *GLM) posterior(mean []float64, cov weightCov, rows int) *GLMPosterior {
	floats.Add(mean, g.prior.mean)
	return &GLMPosterior{names: g.names, opt: g.opt, lik: g.terms.lik, prior: &g.prior, mean: mean, cov: cov, rows: rows}
}

// priorPosterior returns the posterior of no data.
func (g *GLM) priorPosterior() (*GLMPosterior, error) {
	mean := make([]float64, g.dim())
	if g.prior.full == nil {
		v := make(diagCov, g.dim())
		for j, l := range g.prior.prec {
			v[j] = 1 / l
		}
		return g.posterior(mean, v, 0), nil
	}
	s, err := g.prior.state()
	if err != nil {
		return nil, err
	}
	return g.posterior(mean, &fullCov{s: s}, 0), nil
}

// Len returns the number of rows that the posterior has seen: those of positive
// weight, less those removed.
func (p *GLMPosterior) Len() int { return p.rows }

// Dim returns D, the number of weights, that of the intercept included.
func (p *GLMPosterior) Dim() int { return len(p.mean) }

// Cols returns the number of columns that new points must have.
func (p *GLMPosterior) Cols() int { return len(p.mean) - b2i(p.opt.Intercept) }

// Names returns the names of the weights, the last "(Intercept)" if there is one.
func (p *GLMPosterior) Names() []string { return slices.Clone(p.names) }

// Mean stores the means of the weights in dst; nil allocates.
func (p *GLMPosterior) Mean(dst []float64) []float64 {
	dst = dense.Dest(dst, p.Dim())
	copy(dst, p.mean)
	return dst
}

// SD stores the standard deviations of the weights in dst; nil allocates.
func (p *GLMPosterior) SD(dst []float64) []float64 {
	dst = dense.Dest(dst, p.Dim())
	p.cov.diag(dst)
	for j, v := range dst {
		dst[j] = math.Sqrt(v)
	}
	return dst
}

// Cov returns V, D×D and new.
func (p *GLMPosterior) Cov() *mat.SymDense { return p.cov.sym() }

// Corr returns the correlations of the weights, D×D and new.
func (p *GLMPosterior) Corr() *mat.SymDense {
	c := p.cov.sym()
	d := p.Dim()
	sd := make([]float64, d)
	for j := range d {
		sd[j] = math.Sqrt(c.At(j, j))
	}
	for i := range d {
		for j := range i {
			c.SetSym(i, j, c.At(i, j)/(sd[i]*sd[j]))
		}
		c.SetSym(i, i, 1)
	}
	return c
}

// WeightQuantile stores the quantile at level prob, in (0, 1), of each weight
// in dst; nil allocates. It panics if prob is outside (0, 1).
func (p *GLMPosterior) WeightQuantile(dst []float64, prob float64) []float64 {
	if !(prob > 0 && prob < 1) {
		panic(fmt.Sprintf("pgsvi: quantile at level %v", prob))
	}
	dst = p.SD(dst)
	z := mathext.NormalQuantile(prob)
	for j, m := range p.mean {
		dst[j] = m + z*dst[j]
	}
	return dst
}

// RandWeights stores draws of the weights in the rows of dst, of size draws × D.
// The error wraps ErrNotPosDef where more than 2000 weights outnumber the rows
// under a likelihood that is not log-concave, for which there is no sampler.
func (p *GLMPosterior) RandWeights(dst *mat.Dense, rng *rand.Rand) error {
	draws, d := dst.Dims()
	if d != p.Dim() {
		panic(fmt.Sprintf("pgsvi: dst has %d columns, the model has %d weights", d, p.Dim()))
	}
	for i := range draws {
		row := dst.RawRowView(i)
		copy(row, p.mean)
		if err := p.cov.draw(row, rng); err != nil {
			return err
		}
	}
	return nil
}

// At returns the prediction for each row of x. The latent value is the linear
// predictor, with mean xᵀm and variance xᵀVx. It has no offset; for rows with offsets
// see Prediction.Offset.
func (p *GLMPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Prob stores P(Y = y) for each row of x in dst; nil allocates. It is At(x).Prob(dst, y), whose
// Err says which row could not be predicted and is NaN here.
func (p *GLMPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *GLMPosterior) likelihood() Likelihood { return p.lik }

// latent implements latents.
func (p *GLMPosterior) latent(m, v []float64, x mat.Matrix) {
	const block = 4 * predictBlock
	s, sparse := x.(*Sparse)
	var all *design
	if sparse {
		all = newDesign(s, p.opt.Intercept)
	}
	parallel.For(len(m), block, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		g, index := all, make([]int, hi-lo)
		for i := range index {
			index[i] = lo + i
		}
		if !sparse {
			g, index = denseRows(x, lo, hi, p.opt.Intercept), nil
		}
		g.mul(m[lo:hi], p.mean, index)
		p.cov.variances(v[lo:hi], g, index)
		for i := lo; i < hi; i++ {
			if math.IsNaN(m[i]+v[i]) || math.IsInf(m[i]+v[i], 0) {
				m[i], v[i] = math.NaN(), math.NaN()
			}
			v[i] = math.Max(0, v[i])
		}
	})
}

// Summary is a table of the weights of a GLMPosterior. Its rows may be sorted,
// changed or removed before it is printed.
type Summary struct {
	// Rows has a row for each weight, in the order of the columns of the data,
	// that of the intercept first.
	Rows []SummaryRow
	// Likelihood is the name of the likelihood, with its parameters if it was given any.
	Likelihood string
	// Data is the number of rows of data, GLMPosterior.Len.
	Data int
	// Weights is the number of weights, that of the intercept included.
	Weights int
	// Covariance is the family of the covariance of the weights.
	Covariance Covariance
}

// SummaryRow is what is known of a weight: the marginal N(Mean, SD²) of the
// approximation. A weight is in units of the linear predictor per unit of its feature.
type SummaryRow struct {
	Name     string
	Mean, SD float64
	Lo, Hi   float64 // quantiles at 2.5% and 97.5%: 95% of the probability lie between
}

// sure reports whether the interval from Lo to Hi does not contain 0, so that the
// sign of the weight is known.
func (r SummaryRow) sure() bool { return r.Lo > 0 || r.Hi < 0 }

// Summary returns the table of the weights of p, new.
func (p *GLMPosterior) Summary() *Summary {
	d := p.Dim()
	s := &Summary{Likelihood: likelihoodName(p.lik), Data: p.rows, Weights: d, Covariance: covarianceOf(p.cov)}
	sd := p.SD(nil)
	lo, hi := p.WeightQuantile(nil, 0.025), p.WeightQuantile(nil, 0.975)
	add := func(j int) {
		s.Rows = append(s.Rows, SummaryRow{p.names[j], p.mean[j], sd[j], lo[j], hi[j]})
	}
	if p.opt.Intercept {
		add(d - 1)
	}
	for j := range p.Cols() {
		add(j)
	}
	return s
}

// likelihoodName returns the type of l, with its fields if they are not all zero.
func likelihoodName(l Likelihood) string {
	name := typeName(l)
	if v := reflect.ValueOf(l); v.Kind() == reflect.Struct && !v.IsZero() {
		name += fmt.Sprintf("%+v", l)
	}
	return name
}

// String returns the table as text: a line on the model, the names of the
// columns, a line for each row, with a star at the end where zero is outside of the
// interval from Lo to Hi, and what the
// star means. All numbers of a row have the decimals that give its standard
// deviation four significant digits.
func (s *Summary) String() string {
	lines := [][]string{{"", "mean", "sd", "2.5%", "97.5%"}}
	sure := make([]bool, 1, len(s.Rows)+1)
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range []float64{r.Mean, r.SD, r.Lo, r.Hi} {
			line = append(line, summaryNumber(v, r.SD))
		}
		lines, sure = append(lines, line), append(sure, r.sure())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d rows, %d weights, %v covariance\n", s.Likelihood, s.Data, s.Weights, s.Covariance)
	alignPoints(lines)
	for i, line := range lines {
		text := strings.Join(line, "  ")
		if sure[i] {
			text += " *"
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("* zero is outside the interval from 2.5% to 97.5%\n")
	return b.String()
}

// summaryNumber formats x to four significant digits of sd.
func summaryNumber(x, sd float64) string {
	if !(sd > 0) || math.IsInf(sd, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	decimals := 3 - int(math.Floor(math.Log10(sd)))
	if decimals > 9 || math.Abs(x) >= 1e9 {
		return strconv.FormatFloat(x, 'e', 4, 64)
	}
	return strconv.FormatFloat(x, 'f', max(0, decimals), 64)
}

// alignPoints pads the cells of each column to the same width: names to the left,
// numbers with their points below each other, and what is above them to the right.
func alignPoints(lines [][]string) {
	for j := range lines[0] {
		whole, part := 0, 0 // widest, before the point and from it on
		for _, line := range lines[1:] {
			w, p := splitPoint(line[j], j > 0)
			whole, part = max(whole, w), max(part, p)
		}
		head := utf8.RuneCountInString(lines[0][j])
		whole = max(whole, head-part)
		for i, line := range lines {
			w, p := splitPoint(line[j], i > 0 && j > 0)
			left, right := whole-w, part-p
			switch {
			case j == 0:
				left, right = 0, left+right
			case i == 0:
				left, right = left+right, 0
			}
			line[j] = strings.Repeat(" ", left) + line[j] + strings.Repeat(" ", right)
		}
	}
}

// splitPoint returns the widths of a cell before its point, if it is a number, and from it on.
func splitPoint(cell string, number bool) (whole, part int) {
	n := utf8.RuneCountInString(cell)
	if at := strings.IndexByte(cell, '.'); number && at >= 0 {
		return at, n - at
	}
	return n, 0
}

// glmFile is the file of a GLMPosterior.
var glmFile = save.Kind{Name: "GLMPosterior", Version: 1}

// savedGLM is a GLMPosterior as JSON: its weights with the prior that they had.
type savedGLM struct {
	Likelihood save.Value `json:"likelihood"`
	Names      []string   `json:"names"` // of the weights
	Intercept  bool       `json:"intercept"`
	Rows       int        `json:"rows"`
	Mean       []float64  `json:"mean"`
	Cov        savedCov   `json:"covariance"`
	Prior      savedPrior `json:"prior"`
}

// savedCov is one of the forms of a weightCov.
type savedCov struct {
	Full     []float64     `json:"precision,omitempty"` // V⁻¹, lower triangle, row by row
	Diagonal []float64     `json:"variances,omitempty"` // a diagonal V
	Dual     *savedDual    `json:"dual,omitempty"`
	LowRank  *savedLowRank `json:"lowrank,omitempty"`
}

// savedLowRank is a lowRankCov.
type savedLowRank struct {
	Rank int       `json:"rank"`
	D    []float64 `json:"d"`
	U    []float64 `json:"u"` // row by row
}

// savedDual is a dualCov: the rows of the data and their sites.
type savedDual struct {
	savedRows
	Gamma []float64 `json:"gamma"`
}

// Save writes p, from which LoadGLMPosterior makes a posterior with the same predictions, to
// the last bit, which can be updated as p can: a line that names the kind of file, JSON, and
// a checksum. A full covariance takes D²/2 numbers; that of more weights than rows, if there
// are more than 2000 weights, takes the data as well. The error is that of w, or wraps ErrParam
// if the name of a weight is not UTF-8, or if the likelihood is of a type that Register was not
// told of, or that encoding/json does not write and read.
func (p *GLMPosterior) Save(w io.Writer) error {
	if err := checkText("the name of weight", p.names); err != nil {
		return err
	}
	s := &savedGLM{Names: p.names, Intercept: p.opt.Intercept, Rows: p.rows, Mean: p.mean, Prior: p.prior.save()}
	switch c := p.cov.(type) {
	case *fullCov:
		s.Cov.Full = dense.PackLower(c.s.p, p.Dim())
	case diagCov:
		s.Cov.Diagonal = c
	case *dualCov:
		s.Cov.Dual = &savedDual{c.x.save(), c.gamma}
	case *lowRankCov:
		s.Cov.LowRank = &savedLowRank{c.rank, c.d, c.u}
	default:
		return fmt.Errorf("pgsvi: a posterior with a %T cannot be saved: %w", c, ErrParam)
	}
	var err error
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, glmFile, s)
}

// LoadGLMPosterior reads what GLMPosterior.Save has written, which must be all of r, and
// factorises its covariance anew, in about D³/3 operations for a full one. The error wraps ErrFile
// if r has no such file, or one that is damaged or of a newer release, or whose numbers make no
// posterior; it wraps ErrParam as well if the likelihood is of a type that Register was not told
// of. A failure of r is wrapped as it is.
func LoadGLMPosterior(r io.Reader) (*GLMPosterior, error) {
	return loadFrom(r, glmFile, (*savedGLM).load)
}

func (s *savedGLM) load() (*GLMPosterior, error) {
	d := len(s.Names)
	if d == 0 || len(s.Mean) != d || len(s.Prior.Mean) != d || s.Rows < 0 {
		return nil, fmt.Errorf("%d weights and %d rows, with means of %d and prior means of %d: %w", d, s.Rows, len(s.Mean), len(s.Prior.Mean), ErrShape)
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	p := &GLMPosterior{names: s.Names, mean: s.Mean, rows: s.Rows, lik: lik, opt: GLMOptions{Intercept: s.Intercept}}
	if p.prior, err = s.Prior.load(); err != nil {
		return nil, err
	}
	if p.cov, err = s.Cov.load(p.prior); err != nil {
		return nil, err
	}
	p.opt.Covariance = covarianceOf(p.cov)
	return p, nil
}

func (s *savedCov) load(prior *weightPrior) (weightCov, error) {
	d := len(prior.mean)
	switch {
	case s.Full != nil:
		w, err := loadPrecision(s.Full, d, "precision")
		return &fullCov{s: w}, err
	case s.Dual != nil:
		return s.Dual.load(prior)
	case s.LowRank != nil:
		return s.LowRank.load(d)
	case s.Diagonal != nil:
		return diagCov(s.Diagonal), checkDiagonal(s.Diagonal, d, "variance")
	}
	return nil, fmt.Errorf("no covariance: %w", ErrShape)
}

func (s *savedDual) load(prior *weightPrior) (weightCov, error) {
	if len(s.Gamma) == 0 {
		return nil, fmt.Errorf("sites of no rows: %w", ErrShape)
	}
	x, err := s.savedRows.load(len(s.Gamma), len(prior.mean))
	if err != nil {
		return nil, err
	}
	l := &linear{x: x, prior: *prior, names: make([]string, x.cols)}
	c := &dualCov{x: x, gamma: s.Gamma, prior: prior, fac: new(dense.Sites)}
	if !c.fac.Factor(l.gram(), x.rows, s.Gamma) {
		return nil, fmt.Errorf("covariance: %w", ErrNotPosDef)
	}
	c.fac.C = nil // K is not needed any more
	return c, nil
}

func (s *savedLowRank) load(d int) (weightCov, error) {
	if err := checkDiagonal(s.D, d, "unique precision"); err != nil {
		return nil, err
	}
	if s.Rank < 1 || s.Rank > d || len(s.U) != d*s.Rank {
		return nil, fmt.Errorf("precision of %d weights and rank %d with %d factors: %w", d, s.Rank, len(s.U), ErrShape)
	}
	c := newLowRankCov(d, s.Rank)
	copy(c.d, s.D)
	copy(c.u, s.U)
	v := make([]float64, d)
	ok := c.factor()
	if c.diag(v); ok {
		_, ok = dense.AllFinite(v)
	}
	for _, x := range v {
		ok = ok && x >= 0
	}
	if !ok {
		return nil, fmt.Errorf("precision of low rank: %w", ErrNotPosDef)
	}
	return c, nil
}
