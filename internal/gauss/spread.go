package gauss

import (
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Spread is the covariance V + AAᵀ of weights whose mean depends on uncertain hyperparameters. V
// is the covariance of q at the learned hyperparameters. When the hyperparameters move, the mean
// moves by the columns of A, each times a variable z ~ N(0, 1). To first order this is the law of
// total variance (Kass and Steffey 1989, equation 3.6). Cov is V, and State returns V alone.
type Spread struct {
	Cov
	A [][]float64 // the columns of A, one number per weight
}

var spreadScratch = sync.Pool{New: func() any { return new([]float64) }}

// Along stores the scores Xa of the rows of x at index in dst, for a column a of A. Weights of
// several classes give several scores per row.
func (c *Spread) Along(dst, a []float64, x *design.Matrix, index []int) {
	if classes, ok := c.Cov.(*Contrasts); ok {
		classes.Means(dst, a, x, index)
		return
	}
	x.Mul(dst, a, index)
}

// Variances implements Cov.
func (c *Spread) Variances(dst []float64, x *design.Matrix, index []int) {
	c.Cov.Variances(dst, x, index)
	s := spreadScratch.Get().(*[]float64)
	defer spreadScratch.Put(s)
	*s = dense.Resize(*s, len(dst))
	for _, a := range c.A {
		c.Along(*s, a, x, index)
		for i, v := range *s {
			dst[i] += v * v
		}
	}
}

// Diag implements Cov.
func (c *Spread) Diag(dst []float64) {
	c.Cov.Diag(dst)
	for _, a := range c.A {
		for j, v := range a {
			dst[j] += v * v
		}
	}
}

// Mul implements Cov.
func (c *Spread) Mul(dst, x []float64) {
	c.Cov.Mul(dst, x)
	for _, a := range c.A {
		floats.AddScaled(dst, floats.Dot(a, x), a)
	}
}

// Sym implements Cov.
func (c *Spread) Sym() *mat.SymDense {
	s := c.Cov.Sym()
	for _, a := range c.A {
		s.SymRankOne(s, 1, mat.NewVecDense(len(a), a))
	}
	return s
}

// Draw implements Cov.
func (c *Spread) Draw(dst []float64, rng *rand.Rand) error {
	if err := c.Cov.Draw(dst, rng); err != nil {
		return err
	}
	for _, a := range c.A {
		floats.AddScaled(dst, rng.NormFloat64(), a)
	}
	return nil
}

var _ Cov = (*Spread)(nil)
