package paper

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// A Predictor computes the test log loss of a dense q = N(m, V) over the latent values at the
// training points. Let A = K⁻¹k*. The latent values at the test points have means Aᵀm and variances
// k** − k*ᵀA + diag(AᵀVA).
type Predictor struct {
	p    *Problem
	a    *mat.Dense // N × number of test points
	rest []float64  // k** − k*ᵀA
}

// Predictor returns the Predictor of p.
func (p *Problem) Predictor() (*Predictor, error) {
	k := p.Cov()
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return nil, fmt.Errorf("%s: %w", p.Name, pgsvi.ErrNotPosDef)
	}
	cross := pgsvi.CrossCov(nil, p.Kernel(), p.X, p.XTest)
	d := &Predictor{p: p, a: new(mat.Dense), rest: pgsvi.PriorVar(nil, p.Kernel(), p.XTest)}
	if err := chol.SolveTo(d.a, cross); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	subtractProducts(d.rest, cross, d.a, 1)
	return d, nil
}

// Bits returns the test log loss of st, in bits. The state belongs to model, a *pgsvi.GP or a
// pgsvi.Objective[*pgsvi.Gaussian].
func (d *Predictor) Bits(model pgsvi.Model, st pgsvi.Stepper) (float64, error) {
	if o, ok := model.(pgsvi.Objective[*pgsvi.Gaussian]); ok {
		q, err := o.Posterior(st)
		if err != nil {
			return math.NaN(), err
		}
		return d.gaussian(q), nil
	}
	post, err := model.(*pgsvi.GP).Posterior(st)
	if err != nil {
		return math.NaN(), err
	}
	var sum float64
	for _, logp := range post.At(d.p.XTest).LogProb(nil, d.p.YTest) {
		sum -= logp
	}
	return sum / math.Ln2 / float64(len(d.p.YTest)), nil
}

// gaussian returns the test log loss of q, in bits.
func (d *Predictor) gaussian(q *pgsvi.Gaussian) float64 {
	mean := mat.NewVecDense(len(d.rest), nil)
	mean.MulVec(d.a.T(), mat.NewVecDense(q.Dim(), q.Mean(nil)))
	var va mat.Dense
	va.Mul(mat.DenseCopyOf(q.Cov()), d.a)
	variance := slices.Clone(d.rest)
	subtractProducts(variance, d.a, &va, -1)
	for i, v := range variance {
		variance[i] = math.Max(v, 0)
	}
	var sum float64
	for _, logp := range pgsvi.NewPrediction(pgsvi.BernoulliLogit{}, mean.RawVector().Data,
		variance).LogProb(nil, d.p.YTest) {
		sum -= logp
	}
	return sum / math.Ln2 / float64(len(variance))
}

// subtractProducts subtracts sign times the products of the columns of a and b from dst.
func subtractProducts(dst []float64, a, b *mat.Dense, sign float64) {
	n, _ := a.Dims()
	for i := range n {
		ra, rb := a.RawRowView(i), b.RawRowView(i)
		for j := range dst {
			dst[j] -= sign * ra[j] * rb[j]
		}
	}
}
