package site

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// This file holds CovMover, the Mover of a stored covariance. DenseAlgebra and the blocks of other
// algebras use it.

// CovMover is the Mover of variables with a stored covariance C.
type CovMover struct {
	N       int
	Cov     []float64 // C, both triangles; not owned
	again   bool      // later moves will start from V, which must not lose digits of C
	Fac     dense.SiteFactor
	exp     dense.Expansion
	inverts bool // compute variances by the inverse of the factor if that keeps their digits
	inverse dense.Inverse

	Last, cur []float64 // Δ of the last move, and of the current state
	kept      []float64 // Δ of the marked state
	Current   bool      // Fac belongs to the current state
	expanded  bool      // exp belongs to Fac
	v         []float64 // V
}

// Reset makes the base the current state. It has n variables with covariance c.
func (a *CovMover) Reset(c []float64, n int) {
	a.N, a.Cov = n, c
	a.Last, a.cur = dense.Resize(a.Last, n), dense.Resize(a.cur, n)
	clear(a.cur)
	a.Current = false
}

// leastInverse is the least ΔV_ii for which the inverse of the factor computes the variances,
// with a third of the operations. If ΔV_ii is smaller, (1 − (B⁻¹)_ii)/Δ_i loses too many digits
// by cancellation.
const leastInverse = 1e-6

// Cover implements Mover.
func (a *CovMover) Cover(v, delta []float64) (logDet float64, ok bool) {
	copy(a.Last, delta)
	a.Current, a.expanded = false, false
	if !a.Fac.Factor(a.Cov, a.N, delta) || a.again && a.Fac.Strongest() > dense.StrongestSite {
		return 0, false
	}
	if a.inverts && a.byInverse(v, delta) {
		return a.Fac.LogDet, true
	}
	a.Fac.Expand(&a.exp, a.Cov, a.N)
	a.expanded = true
	return a.Fac.LogDet, a.Fac.Variances(v, &a.exp)
}

// byInverse is Cover by the inverse of the factor. It returns false if a variance loses its
// digits.
func (a *CovMover) byInverse(v, delta []float64) bool {
	if len(a.Fac.Pos) < a.N || a.Fac.Weakest() < leastInverse || !a.inverse.Variances(&a.Fac, v) {
		return false
	}
	for i, d := range delta {
		if !(d*v[i] >= leastInverse) {
			return false
		}
	}
	return true
}

// Move implements Mover.
func (a *CovMover) Move(d, _, u []float64) (square float64) {
	a.Fac.Solve(u)
	a.Fac.MulC(u)
	copy(d, a.Fac.T)
	return floats.Dot(u, d)
}

// Accept implements Mover.
func (a *CovMover) Accept() {
	a.Last, a.cur = a.cur, a.Last
	a.Current = true
}

// before implements coverer.
func (a *CovMover) before(dst []float64) bool {
	copy(dst, a.Cov)
	return true
}

// mark implements coverer.
func (a *CovMover) mark() { a.kept = append(a.kept[:0], a.cur...) }

// back implements coverer.
func (a *CovMover) back() {
	copy(a.cur, a.kept)
	a.Current = false
}

// hold implements holder.
func (a *CovMover) hold(d, delta, u []float64) (square float64) {
	a.factor()
	copy(a.Last, a.cur)
	return a.Move(d, delta, u)
}

// weights implements spreader.
func (a *CovMover) weights() int { return a.N }

// gather implements spreader.
func (a *CovMover) gather(u, r []float64) bool {
	copy(u, r)
	return true
}

// curve implements spreader.
func (a *CovMover) curve(eta, u, w, h []float64) {
	copy(eta, w)
	floats.MulTo(u, h, w)
}

// spread implements spreader.
func (a *CovMover) spread(w, u []float64) bool {
	if !a.factor() {
		return false
	}
	copy(w, u)
	a.Fac.Solve(w)
	a.Fac.MulC(w)
	copy(w, a.Fac.T)
	return true
}

// factor computes Fac for the current state. It returns false if the state has no factor.
func (a *CovMover) factor() bool {
	if !a.Current {
		a.Current, a.expanded = a.Fac.Factor(a.Cov, a.N, a.cur), false
	}
	return a.Current
}

// Covariance implements coverer.
func (a *CovMover) Covariance() []float64 {
	a.Current = false
	if !a.factor() {
		return nil
	}
	a.v = dense.Resize(a.v, a.N*a.N)
	a.Fac.Expand(&a.exp, a.Cov, a.N)
	a.Fac.Covariance(a.v, &a.exp)
	return a.v
}
