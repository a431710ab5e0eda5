package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/parallel"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// GLMPosterior is the approximation q(w) = N(m, V) of the weights of a GLM that
// a run reached, ready for predictions. It is immutable and safe for concurrent use.
//
// Methods that predict take new points as the rows of x, dense or sparse, with
// the columns of the training data (the intercept is added inside); they panic
// if the number of columns differs, or if dst has the wrong length. They know of no offset:
// add it to the means of Latent and use PredictLogProb and its like. A row
// with a NaN or an infinity has no linear predictor; what is computed from it is NaN.
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

// Latent stores mean and variance of the linear predictor at each row of x, without
// offset, in mean and variance; nil allocates.
func (p *GLMPosterior) Latent(mean, variance []float64, x mat.Matrix) (m, v []float64) {
	rows, cols := x.Dims()
	if rows > 0 && cols != p.Cols() {
		panic(fmt.Sprintf("pgsvi: x has %d columns, the model has %d", cols, p.Cols()))
	}
	m, v = dense.Dest(mean, rows), dense.Dest(variance, rows)
	const block = 4 * predictBlock
	s, sparse := x.(*Sparse)
	var all *design
	if sparse {
		all = newDesign(s, p.opt.Intercept)
	}
	parallel.For(rows, block, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
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
	return m, v
}

// Prob stores P(y|x) at each row of x in dst; nil allocates: the predictive
// probability of a label, or density of a real y.
func (p *GLMPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	m, v := p.Latent(dst, nil, x)
	return predictProbs(p.lik, y, m, v)
}

// LogProb stores the predictive log density log P(y_i|x_i) in nats at each row
// of x in dst; nil allocates. It panics if y has another length than x.
func (p *GLMPosterior) LogProb(dst, y []float64, x mat.Matrix) []float64 {
	m, v := p.Latent(nil, nil, x) // dst may be y
	return predictLogProbs(dst, p.lik, y, m, v)
}

// Predict stores the predictive mean and variance of y at each row of x in
// mean and variance; nil allocates. The error is that of PredictMoments, with
// the row.
func (p *GLMPosterior) Predict(mean, variance []float64, x mat.Matrix) (m, v []float64, err error) {
	m, v = p.Latent(mean, variance, x)
	return m, v, predictAllMoments(p.lik, m, v)
}

// Quantile stores the quantile at level prob, in (0, 1), of the predictive
// distribution of y at each row of x in dst; nil allocates. The error is that
// of PredictQuantile, with the row.
func (p *GLMPosterior) Quantile(dst []float64, prob float64, x mat.Matrix) ([]float64, error) {
	m, v := p.Latent(dst, nil, x)
	return m, predictQuantiles(p.lik, prob, m, v)
}
