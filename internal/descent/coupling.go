package descent

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// couplingSteps is the number of gradients that Coupling takes. couplingMove is the length of a
// difference in standard deviations of q, where both rounding and curvature leave four digits.
const (
	couplingSteps = 8
	couplingMove  = 1e-3
	// mostDiagonal is the largest number of parameters for which Coupling computes the diagonal of
	// the Fisher information, which takes a product for each.
	mostDiagonal = 1000
)

// Coupling estimates how strongly the blocks of coordinate ascent depend on each other at q, whose
// gradient is g. A block step goes to the target η*(η) = η_p − ∇_μ f, and its Jacobian J = ∂η*/∂η
// is symmetric in the metric of the Fisher information F: F(J − I) is the Hessian of the ELBO in
// η where η* = η. The extreme eigenvalues of J tell three things about f.
//
//	least < 0   f is not concave in μ: statistics of q multiply each other
//	most < 1    the optimum is about KL(q‖q*)/(1 − most) nats away, at most: BlockGain is only
//	            what the next step of one block gains
//	most > 1    the ELBO curves upward along some direction: a fixed point is a saddle
//
// The estimates are Ritz values of a few Lanczos steps, from the step η* − η and a fixed random
// direction that breaks the symmetry of equal parts. They lie between the true extremes. grad
// stores the gradient of f at a distribution, and fisher returns Fv. Both values are infinite if
// no neighbor of q has a gradient.
func (s *Stepper[Q]) Coupling(q Q, g []float64, grad func(dst []float64, q Q) error,
	fisher func(v []float64) []float64) (least, most float64) {
	c := coupling[Q]{s: s, grad: grad, eta: family(q).Natural(nil)}
	c.to = c.target(q, g)
	v := c.direction(fisher)
	var basis, images, turned [][]float64 // v, Fv and Jv
	for range min(couplingSteps, len(v)) {
		fv := fisher(v)
		norm := math.Sqrt(floats.Dot(v, fv))
		if !(norm > couplingMove) || math.IsInf(norm, 1) {
			break // the directions so far are all that J turns into each other
		}
		floats.Scale(1/norm, v)
		floats.Scale(1/norm, fv)
		jv := c.jacobian(v)
		if jv == nil {
			return math.Inf(-1), math.Inf(1)
		}
		basis, images, turned = append(basis, v), append(images, fv), append(turned, jv)
		v = append([]float64(nil), jv...)
		for range 2 { // the second time removes what rounding left
			for i, u := range basis {
				floats.AddScaled(v, -floats.Dot(images[i], v), u)
			}
		}
	}
	return ritz(images, turned)
}

// coupling is what Coupling holds fixed: natural parameters η, the target η* and a gradient.
type coupling[Q Dist] struct {
	s       *Stepper[Q]
	grad    func(dst []float64, q Q) error
	eta, to []float64
}

// target returns η_p − ∇_μ f for the gradient g at q.
func (c *coupling[Q]) target(q Q, g []float64) []float64 {
	to := append([]float64(nil), c.s.o.Prior...)
	floats.Sub(to, family(q).MeanGrad(nil, g))
	return to
}

// direction returns the step to the target, of length 1 in the metric F, plus a random vector in
// which each parameter has the variance 1/F_ii.
func (c *coupling[Q]) direction(fisher func(v []float64) []float64) []float64 {
	n := len(c.eta)
	v := floats.SubTo(make([]float64, n), c.to, c.eta)
	if norm := math.Sqrt(floats.Dot(v, fisher(v))); norm > 0 && !math.IsInf(norm, 1) {
		floats.Scale(1/norm, v)
	} else {
		clear(v)
	}
	rng := rand.New(rand.NewPCG(0x636f75706c65, 8))
	unit := make([]float64, n)
	for i := range v {
		scale := math.Abs(c.eta[i]) / math.Sqrt(float64(n))
		if n <= mostDiagonal {
			unit[i] = 1
			scale = 1 / math.Sqrt(fisher(unit)[i]*float64(n))
			unit[i] = 0
		}
		if x := scale * rng.NormFloat64(); !math.IsNaN(x) && !math.IsInf(x, 0) {
			v[i] += x
		}
	}
	return v
}

// jacobian returns Jv by a difference of targets, for a v of length 1 in the metric F, or nil.
func (c *coupling[Q]) jacobian(v []float64) []float64 {
	near, g := c.s.probe, make([]float64, len(v))
	for h := couplingMove; math.Abs(h) > couplingMove/1e3; h /= -4 { // to both sides
		at := floats.AddScaledTo(make([]float64, len(v)), c.eta, h, v)
		if family(near).SetNatural(at) != nil || c.grad(g, near) != nil {
			continue
		}
		jv := c.target(near, g)
		floats.Sub(jv, c.to)
		floats.Scale(1/h, jv)
		return jv
	}
	return nil
}

// ritz returns the extreme eigenvalues of the symmetric part of (Fu)ᵀJv over the directions.
func ritz(images, turned [][]float64) (least, most float64) {
	n := len(images)
	if n == 0 {
		return 0, 0
	}
	h := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			h.SetSym(i, j, (floats.Dot(images[i], turned[j])+floats.Dot(images[j], turned[i]))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(h, false) {
		return math.Inf(-1), math.Inf(1)
	}
	values := eigen.Values(nil)
	return values[0], values[n-1]
}
