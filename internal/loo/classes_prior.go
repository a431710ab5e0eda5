package loo

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// classPrior is the prior N(0, Λ_c⁻¹) of the weights of K classes, for ClassSamplers. Without
// blocks, each class has its own diagonal Λ_c. With blocks, all classes have the same Λ.
type classPrior struct {
	of     *gauss.Prior
	k      int
	blocks bool
	prec   []float64 // Λ_c of all classes, without blocks
	total  []float64 // ΣΛ_c, without blocks
}

// newClassPrior returns the prior of k classes, and Σ log|Λ_c| − log|ΣΛ_c|.
func newClassPrior(p *gauss.Prior, k int) (c *classPrior, logDet float64) {
	d := len(p.Mean)
	c = &classPrior{of: p, k: k, blocks: p.Blocks() != nil}
	if c.blocks {
		return c, float64(k-1)*p.LogDet() - float64(d)*math.Log(float64(k))
	}
	c.prec, c.total = p.Classes(k), make([]float64, d)
	for i, l := range c.prec {
		c.total[i%d] += l
		logDet += math.Log(l)
	}
	for _, t := range c.total {
		logDet -= math.Log(t)
	}
	return c, logDet
}

// add adds Λ_cw to sum and returns wᵀΛ_cw.
func (c *classPrior) add(sum, w []float64, class int) (square float64) {
	if c.blocks {
		product := make([]float64, len(w))
		c.of.Mul(product, w, 1)
		floats.Add(sum, product)
		return floats.Dot(w, product)
	}
	prec := c.prec[class*len(w) : (class+1)*len(w)]
	for j, x := range w {
		square += prec[j] * x * x
		sum[j] += prec[j] * x
	}
	return square
}

// common returns sᵀ(ΣΛ_c)⁻¹s for s = ΣΛ_cw_c.
func (c *classPrior) common(s []float64) (square float64) {
	if c.blocks {
		solved := make([]float64, len(s))
		c.of.Solve(solved, s)
		return floats.Dot(s, solved) / float64(c.k)
	}
	for j, x := range s {
		square += x * x / c.total[j]
	}
	return square
}
