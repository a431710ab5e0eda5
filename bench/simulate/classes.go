package simulate

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
)

// This file draws data sets of a Softmax. Class c has the score w_0c + w_1c x + u_gc, or + v_gc x with a
// slope. The effects of all classes have the same standard deviations and correlation. Only differences
// between classes count, so intervals are about probabilities of the classes, and about weights minus
// their mean over the classes.

// newEffects is the number of new levels by which coverClasses estimates the share of an interval. All
// classes of a level count.
const newEffects = 40

// classes returns the number of classes of a Softmax, and 0 for other likelihoods.
func (d Design) classes() int {
	if s, ok := d.Lik.(pgsvi.Softmax); ok {
		return s.Classes
	}
	return 0
}

// classSet holds the classes of a DataSet.
type classSet struct {
	w [][2]float64   // intercept and weight of x of each class
	u [][][2]float64 // effects of each class and level
}

// newClassSet draws the weights and effects for s, whose standard deviations are drawn.
func (d Design) newClassSet(s *DataSet, rng *rand.Rand) *classSet {
	c := &classSet{}
	for range d.classes() {
		c.w = append(c.w, [2]float64{rng.NormFloat64(), rng.NormFloat64()})
		var u [][2]float64
		for range d.Levels {
			u = append(u, s.effect(rng))
		}
		c.u = append(c.u, u)
	}
	return c
}

// probs stores the probabilities of the classes at x in p. The effects of class c are u(c).
func (c *classSet) probs(p []float64, x float64, u func(c int) [2]float64) {
	for k, w := range c.w {
		e := u(k)
		p[k] = w[0] + w[1]*x + e[0] + e[1]*x
	}
	floats.AddConst(-floats.LogSumExp(p), p)
	for k, log := range p {
		p[k] = math.Exp(log)
	}
}

// response returns a random class for the given x and level g.
func (c *classSet) response(x float64, g int, rng *rand.Rand) float64 {
	p := make([]float64, len(c.w))
	c.probs(p, x, func(k int) [2]float64 { return c.u[k][g] })
	u := rng.Float64()
	for k := range p[1:] {
		if u -= p[k]; u < 0 {
			return float64(k)
		}
	}
	return float64(len(p) - 1)
}

// coverClasses sets the shares of c for predictions and weights of a Softmax. The rows have one level
// each, and the last level is new. Their column x is xs.
func (d Design) coverClasses(c *Coverage, s *DataSet, p *pgsvi.GLMPosterior, rows *pgsvi.Sparse,
	xs []float64, rng *rand.Rand) error {
	k := d.classes()
	lo, hi := make([][]float64, k), make([][]float64, k)
	pred := p.At(rows)
	for class := range k {
		var err error
		if lo[class], hi[class], err = pred.ProbInterval(nil, nil, float64(class), 0.9); err != nil {
			return err
		}
	}
	probs := make([]float64, k)
	share := func(g int, u func(c int) [2]float64) (in float64) {
		s.of.probs(probs, xs[g], u)
		for class, at := range probs {
			if lo[class][g] <= at && at <= hi[class][g] {
				in += 1 / float64(k)
			}
		}
		return in
	}
	for g := range d.Levels {
		c.Known += share(g, func(class int) [2]float64 { return s.of.u[class][g] }) / float64(d.Levels)
	}
	for range newEffects {
		c.New += share(d.Levels, func(int) [2]float64 { return s.effect(rng) }) / newEffects
	}
	low, high := p.WeightQuantile(nil, 0.05), p.WeightQuantile(nil, 0.95)
	each := p.Dim() / k
	for j, at := range []int{each - 1, 0} {
		mean := 0.0
		for _, w := range s.of.w {
			mean += w[j] / float64(k)
		}
		for class, w := range s.of.w {
			if i := class*each + at; low[i] <= w[j]-mean && w[j]-mean <= high[i] {
				c.Weights += 0.5 / float64(k)
			}
		}
	}
	return nil
}
