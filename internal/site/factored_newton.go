package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// This file takes Newton's steps of the precisions of a diagonal q, inside a FactoredAlgebra.

// diagNewton is Newton's step in (m, φ) for a diagonal V,
//
//	[ A                      −½Xᵀdiag(∂γ̂/∂m)X²V                 ]
//	[ −½VX²ᵀdiag(∂γ̂/∂m)X    ½diag(AV) + ½VX²ᵀdiag(∂γ̂/∂v)X²V ],
//
// where X² holds the squares of the elements. Conjugate gradients solve it in the metric of the
// diagonal, or of A and the diagonal. The curvature of V counts only log|V|, which gives ½, in
// addition to the terms. The step is straight in V, because exponentials are functions of m +
// v/2. FactoredAlgebra takes it when steps are slow.
type diagNewton struct {
	siteNewton
	v, scale []float64
	a, b     []float64 // vectors over the rows
}

// leastShrink is the least part of a variance that a Newton step leaves.
const leastShrink = 0.5

// diagNewtonMost bounds the iterations. Each takes four products with X. A pass also takes tens
// of products.
const diagNewtonMost = 100

// aim stores the step in s.delta and its predicted gain in s. It returns false if the Hessian is
// not positive definite.
func (t *diagNewton) aim(s *FactoredAlgebra, f *DiagFamily) bool {
	if s.Cur.Wild || !t.slopes(s.terms, &s.Cur.Marginals, nil, s.workers) {
		return false
	}
	d := s.Lin.X.Cols
	dense.ResizeAll(2*d, &t.r, &t.z, &t.p, &t.q, &t.scale)
	t.v, t.a, t.b = dense.Resize(t.v, d), dense.Resize(t.a, s.N), dense.Resize(t.b, s.N)
	for j, p := range f.Cur {
		t.v[j] = 1 / p
		t.scale[j] = s.hess.diag[j]
		t.scale[d+j] = 0.5 * math.Max(s.hess.diag[j]/p, 1)
	}
	clear(s.delta)
	floats.ScaleTo(t.r, -1, s.grad)
	floats.DivTo(t.z, t.r, t.scale)
	copy(t.p, t.z)
	rho := floats.Dot(t.r, t.z)
	enough, nothing := newtonTol*newtonTol*rho, newtonNothing*rho
	gain, total := math.Inf(1), 0.0 // twice the gain of the last iteration, and of all iterations
	direct := false
	for k := 0; k < diagNewtonMost && (rho > enough || rho > nothing && gain > newtonTol*total) &&
		!s.workers.Halt.Stopped(); k++ {
		t.mul(s)
		curvature := floats.Dot(t.p, t.q)
		if !(curvature > 0) || math.IsInf(curvature, 0) {
			if k == 0 {
				return false
			}
			break
		}
		gain = rho * rho / curvature
		total += gain
		floats.AddScaled(s.delta, rho/curvature, t.p)
		floats.AddScaled(t.r, -rho/curvature, t.q)
		floats.DivTo(t.z, t.r, t.scale)
		was := direct
		// Two products with X make one product with A, so k+1 iterations took 2(k+1) products
		// with A. If that is more work than a factor, A becomes the metric of the mean.
		if direct = s.hess.due(2*(k+1)) && s.hess.Direct(); direct {
			s.hess.Solve(t.z[:d], t.r[:d])
		}
		next := floats.Dot(t.r, t.z)
		if direct != was {
			copy(t.p, t.z)
		} else {
			floats.AddScaledTo(t.p, t.z, next/rho, t.p)
		}
		rho = next
	}
	if least := 1 - floats.Max(s.delta[d:]); least < leastShrink { // the least factor of a variance
		floats.Scale((1-leastShrink)/(1-least), s.delta)
	}
	s.Promise = -0.5 * floats.Dot(s.delta, s.grad)
	f.straight = s.Promise > 0 && !s.workers.Halt.Stopped()
	return f.straight
}

// mul stores the Hessian times p in q.
func (t *diagNewton) mul(s *FactoredAlgebra) {
	x, d := s.Lin.X, s.Lin.X.Cols
	p, q := t.p[d:], t.q[d:]
	x.MulOn(s.workers.Halt, t.a, t.p[:d], nil)
	floats.MulTo(q, t.v, p)
	x.QuadDiagOn(s.workers.Halt, t.b, q, nil) // −δv
	s.Lin.Prior.Mul(t.q[:d], t.p[:d], 1)
	for i, a := range t.a {
		b := -t.b[i]
		t.a[i] = s.Cur.Tg[i]*a + 0.5*t.tm[i]*b
		t.b[i] = t.tm[i]*a + t.tv[i]*b
	}
	x.AddMulTOn(t.q[:d], t.a, nil, s.hess.scratch())
	clear(q)
	x.AddSquares(q, t.b, nil, s.hess.scratch())
	for j, v := range t.v {
		q[j] = 0.5 * (p[j] - v*q[j])
	}
}

// farOff is the predicted gain, in nats, above which a low-rank V follows the curvature instead
// of gradients, because the curvature changes by orders of magnitude.
const farOff = 1e4

// Direct computes the next step from the current state, and its predicted gain.
func (s *FactoredAlgebra) Direct() {
	if s.Aimed {
		return
	}
	c, a, p, d := &s.Cur, &s.hess, &s.Lin.Prior, s.Lin.X.Cols
	a.Set(c.Tg)
	p.Mul(s.grad[:d], c.Mean, 1)
	floats.Scale(-1, s.grad[:d])
	s.Lin.X.AddMulTOn(s.grad[:d], c.D1, nil, s.hess.scratch())
	floats.Scale(-1, s.grad[:d])
	s.Fam.Gradient(s.grad[d:], a)
	if s.workers.Halt.Stopped() {
		return
	}
	s.History.complete(s.grad)
	if s.Promise > farOff && !s.ClosedForm() {
		s.History.Reset()
	}

	// Gains far below the rounding of the ELBO do not matter.
	goal := math.Max(1e-10, 1e-13*math.Abs(c.Elbo))
	if math.IsInf(c.Elbo, 0) {
		goal = 0
	}
	s.Unseen = 0
	if f, ok := s.Fam.(*DiagFamily); ok {
		f.straight = false
		if s.progress.Slow && s.newton.aim(s, f) {
			s.Aimed = true
			return
		}
	}
	s.convexify()
	step := func(tol float64, proof bool) {
		s.History.unfold(s.delta, s.grad)
		copy(s.buf, s.delta[:d])
		s.Cg.solve(s.delta[:d], a, s.buf, s.Fam, tol, proof)
		s.Fam.natural(s.delta[d:])
		s.History.fold(s.delta)
		s.Promise = 0.5 * floats.Dot(s.delta, s.grad)
	}
	step(1e-5*goal, false)
	if enough := max(goal, s.enough()); s.Promise <= enough {
		// The run may end here, so the gain that the residual hides counts.
		if s.Unseen = s.Cg.unseen(a); s.Unseen > enough {
			step(0.1*enough, true)
			s.Unseen = s.Cg.unseen(a)
		}
	}
	floats.Scale(-1, s.delta)
	if !s.Fam.begun() || s.Promise > farOff && !s.ClosedForm() {
		s.Fam.begin(s.delta[d:], a)
	}
	s.Aimed = true
}

// convexify replaces negative weights of s.hess by 0, so that the metric is positive definite.
func (s *FactoredAlgebra) convexify() {
	if slices.Min(s.Cur.Tg) >= 0 {
		return
	}
	s.convex = dense.Resize(s.convex, s.N)
	for i, w := range s.Cur.Tg {
		s.convex[i] = math.Max(0, w)
	}
	s.hess.Set(s.convex)
}
