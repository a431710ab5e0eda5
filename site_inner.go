package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Outer and inner steps. A new covariance V takes a product XᵀΓX and its factor, or a factor of as many variables as there are; a product
// of the one at hand with a vector takes less by as many times as there are weights, or variables. Inner steps move the mean alone,
// by Newton's method with V held, and an outer step then makes V that of the sites that the mean wants.

// spreader knows the variables of sites, η = Xw, and the covariance C of the weights in the current state: that of the variables is XCXᵀ.
type spreader interface {
	// weights returns how many there are.
	weights() int
	// gather stores Xᵀr in u, and reports whether it could.
	gather(u, r []float64) bool
	// spread stores Cu in w, and reports whether it could.
	spread(w, u []float64) bool
	// curve stores Xw in eta and Xᵀ(h∘Xw) in u, of weights h of the sites.
	curve(eta, u, w, h []float64)
}

// innerMean takes the inner steps. In the means of the variables, of covariance V, a step is
//
//	argmin_δ ½δᵀ(V⁻¹ + diag(γ̂ − γ))δ − δᵀ(α̂ − a) = (V⁻¹ + diag(γ̂ − γ))⁻¹(α̂ − a)
//
// by conjugate gradients preconditioned with V = XCXᵀ. As V⁻¹ times the direction of a residual is the residual itself, each
// iteration takes one product with V and no other; and as directions are Xw and residuals count as Xᵀr, each reads X once.
type innerMean struct {
	at, next    siteState // the state found, and the next one to look at
	value       float64   // of at: KL − Σe, up to a constant
	r, h        []float64 // the residual, and γ̂ − γ
	p, q, ap    []float64 // the search direction, V⁻¹ times it and the Hessian times it
	step, whole []float64 // the step, and V⁻¹ times it
	ur, s       []float64 // Xᵀr, and C times it
	w, uq, uh   []float64 // the weights of p, Xᵀq and Xᵀ(h∘p)
	products    int       // with V that may yet be taken

	terms   *siteTerms
	index   []int // of the terms; nil means all
	cov     spreader
	workers crew
}

// The mean is found by so many steps of Newton's at most, each with so many iterations and to so small a part of the
// residual: a V that follows from a mean that is not the best is of no use.
const (
	innerNewtons   = 8
	innerHalves    = 5
	innerSolves    = 8
	innerReduction = 1e-2
	innerCurve     = 0.1 // of what it is under V: flatter ways are long, and lose a where the covariance of the base is singular
	innerProducts  = innerNewtons * (innerSolves + 1)
)

// begin makes s, with that value, the state to start from, whose terms have the indices, nil for all, and the covariance cov.
func (t *innerMean) begin(s *siteState, value float64, terms *siteTerms, index []int, cov spreader, c crew) {
	t.at.copyFrom(s)
	t.value, t.terms, t.index, t.cov, t.workers = value, terms, index, cov, c
	n := len(s.m)
	t.next.resize(n)
	for _, v := range []*[]float64{&t.r, &t.h, &t.p, &t.q, &t.ap, &t.step, &t.whole} {
		*v = dense.Resize(*v, n)
	}
	d := cov.weights()
	for _, v := range []*[]float64{&t.ur, &t.s, &t.w, &t.uq, &t.uh} {
		*v = dense.Resize(*v, d)
	}
}

// find moves the mean until its steps promise no more than so many nats, or no more than the given part of what the
// precisions of the sites do. It reports whether it moved.
func (t *innerMean) find(slack, part float64) (moved bool) {
	t.products = innerProducts
	for range innerNewtons {
		enough := slack
		if part > 0 {
			enough = max(enough, part*t.at.precisionPromise())
		}
		if t.at.wild || !t.aim(enough) || !t.move() {
			break
		}
		moved = true
	}
	return moved
}

// aim finds the step, and reports whether there is one worth more than so many nats.
func (t *innerMean) aim(slack float64) bool {
	x := &t.at
	floats.SubTo(t.r, x.d1, x.a)
	if t.workers.halt.Stopped() || !t.cov.gather(t.ur, t.r) || !t.spread() {
		return false
	}
	rho := floats.Dot(t.ur, t.s)
	if !(0.5*rho > slack) || math.IsInf(rho, 0) {
		return false
	}
	floats.SubTo(t.h, x.tg, x.gamma)
	clear(t.step)
	clear(t.whole)
	copy(t.w, t.s)
	copy(t.q, t.r)
	copy(t.uq, t.ur)
	for first, k := rho, 0; k < innerSolves; k++ {
		t.cov.curve(t.p, t.uh, t.w, t.h)
		var curve float64
		for i, v := range t.p {
			t.ap[i] = t.q[i] + t.h[i]*v
			curve += v * t.ap[i]
		}
		if !(curve > innerCurve*floats.Dot(t.p, t.q)) {
			break
		}
		length := rho / curve
		floats.AddScaled(t.step, length, t.p)
		floats.AddScaled(t.whole, length, t.q)
		floats.AddScaled(t.r, -length, t.ap)
		floats.AddScaled(t.ur, -length, t.uq)
		floats.AddScaled(t.ur, -length, t.uh)
		if !t.spread() {
			break
		}
		next := floats.Dot(t.ur, t.s)
		if !(next > innerReduction*first) {
			break
		}
		for _, v := range [][2][]float64{{t.w, t.s}, {t.q, t.r}, {t.uq, t.ur}} {
			floats.Scale(next/rho, v[0])
			floats.Add(v[0], v[1])
		}
		rho = next
	}
	return !t.workers.halt.Stopped()
}

// spread makes s C times Xᵀr, and reports whether it could.
func (t *innerMean) spread() bool {
	if t.products--; t.products < 0 || t.workers.halt.Stopped() {
		return false
	}
	return t.cov.spread(t.s, t.ur)
}

// move takes the step, or a half of it, if that lowers the value.
func (t *innerMean) move() bool {
	x, y := &t.at, &t.next
	copy(y.v, x.v)
	copy(y.gamma, x.gamma)
	h := 1.0
	for range innerHalves {
		value := t.value + floats.Sum(x.e)
		for i, d := range t.step {
			y.m[i] = x.m[i] + h*d
			y.a[i] = x.a[i] + h*(t.whole[i]-x.gamma[i]*d)
			value += 0.5 * h * d * (x.a[i] + y.a[i])
		}
		if t.terms.expect(y, t.index, t.workers) == nil {
			if value -= floats.Sum(y.e); value <= t.value {
				t.at, t.next, t.value = t.next, t.at, value
				return true
			}
		}
		h /= 2
	}
	return false
}

// precisionPromise returns about how many nats there are in the precisions of the sites, ¼ Σ (γ̂ − γ)²v²: with the variances alone
// of what would be ¼ Σ_ij (γ̂ − γ)_i V_ij² (γ̂ − γ)_j.
func (s *siteState) precisionPromise() float64 {
	var sum float64
	for i, v := range s.v {
		g := (s.tg[i] - s.gamma[i]) * v
		sum += g * g
	}
	return 0.25 * sum
}

// A base, as a prior is, may be far wider than V is to be: expectations under its variances say little. They are scaled so that the sites
// would determine all dimensions, Σ γ̂v = D, in turn with steps of the mean that take so many products with the covariance of the base
// each: so many of both.
const (
	departRounds   = 5 // of four a fit of 256 columns needs a matrix XᵀΓX more to 0.01 nats, and eight bring no more
	departProducts = 4
)

// depart finds a mean from which to leave a base of the variances v, where the state begins, and the variances of so many dimensions
// there. It reports whether there is one.
func (t *innerMean) depart(v []float64, dims int) bool {
	scale := 1.0
	for range departRounds {
		if scale = t.rescale(v, scale, dims); scale == 0 {
			return false
		}
		t.products = departProducts
		if !t.aim(0) || !t.move() {
			break
		}
	}
	return !t.workers.halt.Stopped() && t.rescale(v, scale, dims) > 0
}

// rescale replaces the variances, v times scale, by others, of which it returns the scale, or 0 if there are no
// expectations under these.
func (t *innerMean) rescale(v []float64, scale float64, dims int) float64 {
	x := &t.at
	var determined float64
	for i, g := range x.tg {
		determined += math.Max(0, g) * x.v[i]
	}
	if scale *= float64(dims) / determined; !(scale < 1) {
		scale = 1
	}
	floats.ScaleTo(x.v, scale, v)
	if t.terms.expect(x, t.index, t.workers) != nil || x.wild {
		return 0
	}
	t.value = -floats.Sum(x.e)
	return scale
}
