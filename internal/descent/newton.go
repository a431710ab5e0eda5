package descent

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// This file predicts how many nats a run can still gain, whatever f, h, D and the step sizes are.
// Newton's method predicts that the objective falls by
//
//	½ gᵀH⁻¹g
//
// with the gradient g and the Hessian H of f + h at the state. A metric P makes the curvature of
// most directions about 1: the Fisher information F if the parameters are μ, and otherwise the
// identity. Lanczos steps for HP, from g, give the Gauss quadrature of the prediction over the
// eigenvalues of HP (Golub and Meurant, Matrices, Moments and Quadrature with Applications, 2010,
// section 6.2). This is the method of conjugate gradients for Hx = g, preconditioned by P, so a few
// steps suffice. Each step takes one gradient, because a product HPv is a difference of two.
//
// pgsvi.Objective calls Predict when a run is about to end.

// Surface is a smooth function near a point x. Vectors v are gradients, and Pv is the displacement
// of x that belongs to v.
type Surface struct {
	// Gradient stores the gradient at x + hPv in dst, and reports whether that point is valid.
	Gradient func(dst, v []float64, h float64) bool
	// Metric returns Pv in a new slice.
	Metric func(v []float64) []float64
	// Fall moves from x in the direction Pv, over about that distance. It returns the fall of the
	// function on the way, the surface at the end, and the gradient there. The surface is nil at an invalid point. A nil
	// Fall leaves a prediction unchecked.
	Fall func(v []float64) (fall float64, end *Surface, g []float64)
	// Random is a direction without the symmetries of x, for example of two equal parts. Nil means
	// that the function is known to be convex, so that no direction needs a test.
	Random func() []float64
}

const (
	// mostProducts is the largest number of products in a prediction.
	mostProducts = 12
	// settledGain is the relative increase by a product at which the prediction ends.
	settledGain = 0.1
	// randomProducts is the number of products from the random direction. The Hessian in the metric
	// of F is the identity plus a few directions that the data determine, so a few products find a
	// negative one.
	randomProducts = 4
	// newtonMove is the length of a difference in standard deviations of q.
	newtonMove = 1e-4
	// upwardCurve is the curvature below which a direction counts as upward. It allows for the error
	// of a difference over newtonMove. Flat directions, such as the rotations of factors, are not
	// upward.
	upwardCurve = -2e-3
	// turnedCurve is the change of the curvature, per standard deviation of the length of the
	// gradient, that does not count as upward.
	turnedCurve = 0.1
	// quadraticGain is the gain in nats above which steps check the prediction, and checkSteps the
	// number of these steps, each half as long as the one before.
	quadraticGain = 1e-2
	checkSteps    = 3
	// roughGain is the gain in nats above which a prediction need only show that much is left.
	roughGain = 1
	// settledRest is the part of a fall that the gradient at the end may leave without a second
	// prediction.
	settledRest = 0.02
	// leastCurve is the least curvature by which a gain is divided.
	leastCurve = 1e-6
)

// Predict returns the fall of the function that Newton's method predicts at the point, where g is
// the gradient. It is +Inf if the function curves downward along some direction, as at a saddle.
// A prediction of at most goal is checked with the random direction, because the gradient at a
// saddle of equal parts has no component along the direction that makes them different. A large
// prediction is checked by a step, because the function need not be quadratic so far. The result is
// NaN if no neighbor has a gradient.
func (s *Surface) Predict(g []float64, goal float64) float64 {
	at := slices.Clone(g)
	norm2 := floats.Dot(g, s.Metric(g))
	if !(norm2 > 0) {
		norm2 = 0
	}
	l := lanczos{metric: s.Metric, next: slices.Clone(g)}
	l.product = func(v []float64) []float64 { return s.product(v, at) }
	gain, upward := s.solve(&l, norm2)
	switch {
	case upward:
		return math.Inf(1)
	case l.failed:
		return math.NaN()
	case gain > quadraticGain && s.Fall != nil:
		return s.check(&l, norm2, gain)
	case gain > goal || s.Random == nil:
		return gain
	}
	test := lanczos{metric: s.Metric, product: l.product, next: s.Random()}
	for range min(randomProducts, len(g)) {
		if !test.step() {
			break
		}
		if values, _ := ritz(test.images, test.turned); values[0] < s.upward(norm2) {
			return math.Inf(1)
		}
	}
	return gain
}

// solve takes Lanczos steps until the predicted gain settles. It reports whether the function
// curves downward.
func (s *Surface) solve(l *lanczos, norm2 float64) (gain float64, upward bool) {
	before := 0.0
	for range min(mostProducts, len(l.next)) {
		if !l.step() {
			break
		}
		values, weights := ritz(l.images, l.turned)
		if values[0] < s.upward(norm2) {
			return math.Inf(1), true
		}
		gain = 0
		for i, c := range values {
			gain += norm2 * weights[i] / s.curve(c, norm2) / 2
		}
		if gain-before <= settledGain*gain {
			break
		}
		before = gain
	}
	return gain, false
}

// curve returns the curvature c, or a small positive curvature if c is 0 up to the error of
// differences.
func (s *Surface) curve(c, norm2 float64) float64 {
	if c <= 0 {
		return -s.upward(norm2)
	}
	return max(c, leastCurve)
}

// check returns the fall of a step to the minimum of the quadratic model, or of half a step and so
// on, plus the fall that is predicted at the end. If the gradient at the end of each is large, the
// quadratic model does not reach to the minimum. The result is then the prediction if that is large
// anyway, and +Inf otherwise.
func (s *Surface) check(l *lanczos, norm2, gain float64) float64 {
	values, vectors := ritzVectors(l.images, l.turned)
	step := make([]float64, len(l.next))
	for j, v := range l.basis {
		y := 0.0
		for i, c := range values {
			y += vectors.At(j, i) * vectors.At(0, i) / s.curve(c, norm2)
		}
		floats.AddScaled(step, -y*math.Sqrt(norm2), v)
	}
	for range checkSteps {
		fall, end, g := s.Fall(step)
		floats.Scale(0.5, step)
		if end == nil {
			continue
		}
		rest := floats.Dot(g, end.Metric(g)) / 2
		switch {
		case !(rest <= fall):
			continue
		case rest <= settledRest*fall:
			return fall + rest
		}
		next := lanczos{metric: end.Metric, next: slices.Clone(g)}
		next.product = func(v []float64) []float64 { return end.product(v, g) }
		left, upward := end.solve(&next, 2*rest)
		if upward || next.failed {
			break
		}
		return fall + left
	}
	if gain >= roughGain {
		return gain
	}
	return math.Inf(1)
}

// upward returns the curvature below which a direction is upward, where norm2 is the squared length
// of the step to the minimum in standard deviations. The curvature changes along that step.
func (s *Surface) upward(norm2 float64) float64 { return upwardCurve - turnedCurve*math.Sqrt(norm2) }

// product returns HPv, for a v of length 1 and the gradient g at the point, or nil.
func (s *Surface) product(v, g []float64) []float64 {
	hv := make([]float64, len(v))
	for h := newtonMove; math.Abs(h) > newtonMove/1e3; h /= -4 { // to both sides
		if s.Gradient(hv, v, h) {
			floats.Sub(hv, g)
			floats.Scale(1/h, hv)
			return hv
		}
	}
	return nil
}

// lanczos builds a basis of gradients that is orthonormal in a metric, of a vector and its images
// under an operator that is symmetric in that metric.
type lanczos struct {
	metric  func(v []float64) []float64
	product func(v []float64) []float64 // the image of v, or nil if it is unknown

	basis, images, turned [][]float64 // v, its image under the metric and under the operator
	next                  []float64   // the direction of the next v
	failed                bool        // an image was unknown
}

// step adds a vector to the basis. It reports false if the basis spans an invariant subspace, or if
// an image is unknown.
func (l *lanczos) step() bool {
	v := l.next
	fv := l.metric(v)
	norm, least := math.Sqrt(floats.Dot(v, fv)), 0.0
	if len(l.basis) > 0 { // v is an image of vectors of length 1
		least = couplingMove
	}
	if !(norm > least) || math.IsInf(norm, 1) {
		return false
	}
	floats.Scale(1/norm, v)
	floats.Scale(1/norm, fv)
	jv := l.product(v)
	if jv == nil {
		l.failed = true
		return false
	}
	l.basis, l.images, l.turned = append(l.basis, v), append(l.images, fv), append(l.turned, jv)
	l.next = slices.Clone(jv)
	for range 2 { // the second round removes rounding errors
		for i, u := range l.basis {
			floats.AddScaled(l.next, -floats.Dot(l.images[i], l.next), u)
		}
	}
	return true
}

// LeastCurve returns the direction of the least eigenvalue of an operator that is symmetric in a
// metric, approximated by a few Lanczos steps from v, or nil. product returns the image of a vector, or nil
// if it is unknown. It changes v.
func LeastCurve(v []float64, metric, product func(v []float64) []float64) []float64 {
	l := lanczos{metric: metric, product: product, next: v}
	for range min(couplingSteps, len(v)) {
		if !l.step() {
			break
		}
	}
	if l.failed || len(l.basis) == 0 {
		return nil
	}
	_, vectors := ritzVectors(l.images, l.turned)
	if vectors == nil {
		return nil
	}
	least := make([]float64, len(v))
	for j, u := range l.basis {
		floats.AddScaled(least, vectors.At(j, 0), u)
	}
	return least
}
