package gauss

import (
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Mixture is the covariance of a mixture of Gaussians Σ_k p_k N(m_k, V_k), such as the posterior of
// weights over a grid of hyperparameters. By the law of total variance it is
//
//	Σ_k p_k (V_k + d_kd_kᵀ),   d_k = m_k − m̄,   m̄ = Σ_k p_k m_k.
//
// Cov is the covariance of q at the best hyperparameters, and State returns it alone.
type Mixture struct {
	Cov
	Prob  []float64   // p_k
	Of    []Cov       // V_k
	Shift [][]float64 // d_k
}

// NewMixture returns the mixture, and its mean m̄, for components with the given probabilities,
// means and covariances.
func NewMixture(cov Cov, prob []float64, means [][]float64, of []Cov) (m *Mixture, mean []float64) {
	m = &Mixture{Cov: cov, Prob: prob, Of: of}
	mean = make([]float64, len(means[0]))
	for k, x := range means {
		floats.AddScaled(mean, prob[k], x)
	}
	for _, x := range means {
		m.Shift = append(m.Shift, floats.SubTo(make([]float64, len(mean)), x, mean))
	}
	return m, mean
}

// Variances implements Cov.
func (c *Mixture) Variances(dst []float64, x *design.Matrix, index []int) {
	s := spreadScratch.Get().(*[]float64)
	defer spreadScratch.Put(s)
	*s = dense.Resize(*s, len(dst))
	clear(dst)
	for k, p := range c.Prob {
		c.Of[k].Variances(*s, x, index)
		floats.AddScaled(dst, p, *s)
		x.Mul(*s, c.Shift[k], index)
		for i, v := range *s {
			dst[i] += p * v * v
		}
	}
}

// Diag implements Cov.
func (c *Mixture) Diag(dst []float64) {
	v := make([]float64, len(dst))
	clear(dst)
	for k, p := range c.Prob {
		c.Of[k].Diag(v)
		for j, d := range c.Shift[k] {
			dst[j] += p * (v[j] + d*d)
		}
	}
}

// Mul implements Cov.
func (c *Mixture) Mul(dst, x []float64) {
	y := make([]float64, len(dst))
	clear(dst)
	for k, p := range c.Prob {
		c.Of[k].Mul(y, x)
		floats.AddScaled(dst, p, y)
		floats.AddScaled(dst, p*floats.Dot(c.Shift[k], x), c.Shift[k])
	}
}

// Sym implements Cov.
func (c *Mixture) Sym() *mat.SymDense {
	d := len(c.Shift[0])
	s, y := mat.NewSymDense(d, nil), mat.NewSymDense(d, nil)
	for k, p := range c.Prob {
		y.CopySym(c.Of[k].Sym())
		y.SymRankOne(y, 1, mat.NewVecDense(d, c.Shift[k]))
		y.ScaleSym(p, y)
		s.AddSym(s, y)
	}
	return s
}

// Draw implements Cov. The draw comes from one component, so it is not Gaussian.
func (c *Mixture) Draw(dst []float64, rng *rand.Rand) error {
	k, u := 0, rng.Float64()
	for ; k < len(c.Prob)-1 && u >= c.Prob[k]; k++ {
		u -= c.Prob[k]
	}
	floats.Add(dst, c.Shift[k])
	return c.Of[k].Draw(dst, rng)
}

var _ Cov = (*Mixture)(nil)
