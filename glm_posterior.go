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
	mean := make([]float64, g.Dim())
	if g.prior.full == nil {
		v := make(diagCov, g.Dim())
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
	q := predictAt(p, p.lik, p.Cols(), x)
	return &q
}

// Prob is At(x).Prob(dst, y): the probability of y, or its density, at each row of x.
func (p *GLMPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	q := predictAt(p, p.lik, p.Cols(), x)
	return q.Prob(dst, y)
}

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

// Sure reports whether the interval from Lo to Hi does not contain 0, so that the
// sign of the weight is known.
func (r SummaryRow) Sure() bool { return r.Lo > 0 || r.Hi < 0 }

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

// String returns the table as text, all rows of it, as WriteTo writes it.
func (s *Summary) String() string {
	var b strings.Builder
	s.WriteTo(&b) // cannot fail
	return b.String()
}

// WriteTo writes the table as text: a line on the model, the names of the
// columns, a line for each row, with a star at the end where Sure, and what the
// star means. All numbers of a row have the decimals that give its standard
// deviation four significant digits. It implements io.WriterTo; the error is that of w.
func (s *Summary) WriteTo(w io.Writer) (int64, error) {
	lines := [][]string{{"", "mean", "sd", "2.5%", "97.5%"}}
	sure := make([]bool, 1, len(s.Rows)+1)
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range []float64{r.Mean, r.SD, r.Lo, r.Hi} {
			line = append(line, summaryNumber(v, r.SD))
		}
		lines, sure = append(lines, line), append(sure, r.Sure())
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
	n, err := io.WriteString(w, b.String())
	return int64(n), err
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
