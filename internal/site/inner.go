package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Outer and inner steps. A new covariance V takes a product XᵀΓX and its factor, or a factor of as
// many variables as there are; a product of the one at hand with a vector takes less by as many
// times as there are weights, or variables. Inner steps move the mean alone, by Newton's method
// with V held, and an outer step then makes V that of the sites that the mean wants.

// innerMean takes the inner steps. In the means of the variables, of covariance V, a step is
//
//	argmin_δ ½δᵀ(V⁻¹ + diag(γ̂ − γ))δ − δᵀ(α̂ − a) = (V⁻¹ + diag(γ̂ − γ))⁻¹(α̂ − a)
//
// by conjugate gradients preconditioned with V = XCXᵀ. As V⁻¹ times the direction of a residual is
// the residual itself, each iteration takes one product with V and no other; and as directions are
// Xw and residuals count as Xᵀr, each reads X once.
type innerMean struct {
	At, next    term.State // the state found, and the next one to look at
	Value       float64    // of at: KL − Σe, up to a constant
	r, h        []float64  // the residual, and γ̂ − γ
	p, q, ap    []float64  // the search direction, V⁻¹ times it and the Hessian times it
	step, whole []float64  // the step, and V⁻¹ times it
	ur, s       []float64  // Xᵀr, and C times it
	w, uq, uh   []float64  // the weights of p, Xᵀq and Xᵀ(h∘p)
	products    int        // with V that may yet be taken

	terms   *term.Terms
	index   []int // of the terms; nil means all
	cov     spreader
	workers term.Crew
}

// The mean is found by so many steps of Newton's at most, each with so many iterations and to so
// small a part of the residual: a V that follows from a mean that is not the best is of no use.
const (
	InnerNewtons   = 8
	innerHalves    = 5
	innerSolves    = 8
	innerReduction = 1e-2
	// of what it is under V: flatter ways are long, and lose a where the covariance of the base is
	// singular
	innerCurve    = 0.1
	innerProducts = InnerNewtons * (innerSolves + 1)
)

// begin makes s, with that value, the state to start from, whose terms have the indices, nil for
// all, and the covariance cov.
func (t *innerMean) begin(s *term.State, value float64, terms *term.Terms, index []int,
	cov spreader, c term.Crew) {
	t.At.CopyFrom(s)
	t.Value, t.terms, t.index, t.cov, t.workers = value, terms, index, cov, c
	n := len(s.M)
	t.next.Resize(n)
	for _, v := range []*[]float64{&t.r, &t.h, &t.p, &t.q, &t.ap, &t.step, &t.whole} {
		*v = dense.Resize(*v, n)
	}
	d := cov.weights()
	for _, v := range []*[]float64{&t.ur, &t.s, &t.w, &t.uq, &t.uh} {
		*v = dense.Resize(*v, d)
	}
}

// find moves the mean until its steps promise no more than so many nats, or no more than the given
// part of what the precisions of the sites do. It reports whether it moved.
func (t *innerMean) find(slack, part float64) (moved bool) {
	t.products = innerProducts
	for range InnerNewtons {
		enough := slack
		if part > 0 {
			enough = max(enough, part*t.At.PrecisionPromise())
		}
		if t.At.Wild || !t.aim(enough) || !t.move() {
			break
		}
		moved = true
	}
	return moved
}

// aim finds the step, and reports whether there is one worth more than so many nats.
func (t *innerMean) aim(slack float64) bool {
	x := &t.At
	floats.SubTo(t.r, x.D1, x.A)
	if t.workers.Halt.Stopped() || !t.cov.gather(t.ur, t.r) || !t.spread() {
		return false
	}
	rho := floats.Dot(t.ur, t.s)
	if !(0.5*rho > slack) || math.IsInf(rho, 0) {
		return false
	}
	floats.SubTo(t.h, x.Tg, x.Gamma)
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
	return !t.workers.Halt.Stopped()
}

// spread makes s C times Xᵀr, and reports whether it could.
func (t *innerMean) spread() bool {
	if t.products--; t.products < 0 || t.workers.Halt.Stopped() {
		return false
	}
	return t.cov.spread(t.s, t.ur)
}

// move takes the step, or a half of it, if that lowers the value.
func (t *innerMean) move() bool {
	x, y := &t.At, &t.next
	copy(y.V, x.V)
	copy(y.Gamma, x.Gamma)
	h := 1.0
	for range innerHalves {
		value := t.Value + floats.Sum(x.E)
		for i, d := range t.step {
			y.M[i] = x.M[i] + h*d
			y.A[i] = x.A[i] + h*(t.whole[i]-x.Gamma[i]*d)
			value += 0.5 * h * d * (x.A[i] + y.A[i])
		}
		if t.terms.Expect(y, t.index, t.workers) == nil {
			if value -= floats.Sum(y.E); value <= t.Value {
				t.At, t.next, t.Value = t.next, t.At, value
				return true
			}
		}
		h /= 2
	}
	return false
}

// A base, as a prior is, may be far wider than V is to be: expectations under its variances say
// little. They are scaled so that the sites would determine all dimensions, Σ γ̂v = D, in turn with
// steps of the mean that take so many products with the covariance of the base each: so many of
// both.
const (
	// of four a fit of 256 columns needs a matrix XᵀΓX more to 0.01 nats, and eight bring no more
	departRounds   = 5
	departProducts = 4
)

// depart finds a mean from which to leave a base of the variances v, where the state begins, and
// the variances of so many dimensions there. It reports whether there is one.
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
	return !t.workers.Halt.Stopped() && t.rescale(v, scale, dims) > 0
}

// rescale replaces the variances, v times scale, by others, of which it returns the scale, or 0 if
// there are no expectations under these.
func (t *innerMean) rescale(v []float64, scale float64, dims int) float64 {
	x := &t.At
	var determined float64
	for i, g := range x.Tg {
		determined += math.Max(0, g) * x.V[i]
	}
	if scale *= float64(dims) / determined; !(scale < 1) {
		scale = 1
	}
	floats.ScaleTo(x.V, scale, v)
	if t.terms.Expect(x, t.index, t.workers) != nil || x.Wild {
		return 0
	}
	t.Value = -floats.Sum(x.E)
	return scale
}
