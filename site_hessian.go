package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// covFamily is a family of covariances V, with a current one and one that is
// tried. It is to V what siteAlgebra is to sites.
type covFamily interface {
	// size returns the number of coordinates φ.
	size() int
	// gradient stores the gradient of ½(tr(AV) + log|V⁻¹|) in φ in g.
	gradient(g []float64, a *weightHessian)
	// natural replaces g by F⁻¹g, F being near the Fisher information in φ.
	natural(g []float64)
	// begin stores in dst a move towards argmin ½(tr(AV) + log|V⁻¹|), A being positive
	// definite, from however far off.
	begin(dst []float64, a *weightHessian)
	// begun reports whether the gradient tells where to go from the current V.
	begun() bool
	// renew stores in dst a move to a V with the same ½(tr(AV) + log|V⁻¹|) or a lower one
	// that gradients may not lead to, and reports whether the family has such a thing.
	renew(dst []float64, a *weightHessian) bool
	// move makes φ + tδ the one that is tried, or what is nearest to it and valid.
	move(t float64, delta []float64)
	// secant stores the current φ minus the one that is tried, which was current before.
	secant(dst []float64)
	// variances stores x_nᵀVx_n of the V that is tried.
	variances(v []float64, x *design)
	// divergence returns ½(tr(Λ0V) − D + log|V⁻¹| − log|Λ0|) of the V that is tried.
	divergence(p *weightPrior) float64
	// accept makes the V that is tried the current one, and the other way round.
	accept()
	// precondition stores in dst M⁻¹r with an M that is near A.
	precondition(dst, r []float64, a *weightHessian)
	// cov returns the current V, new.
	cov() weightCov
}

// weightHessian is A = Λ0 + Xᵀ diag(w) X, known by its products.
type weightHessian struct {
	x     *design
	prior *weightPrior
	w     []float64
	diag  []float64 // of A
	buf   []float64
}

// set sets the weights, which are kept, and computes the diagonal.
func (a *weightHessian) set(w []float64) {
	a.w, a.diag = w, dense.Resize(a.diag, a.x.cols)
	a.prior.diagTo(a.diag)
	a.x.addSquares(a.diag, w, nil)
}

// mul stores Az in dst, both cols×k.
func (a *weightHessian) mul(dst, z []float64, k int) {
	a.prior.mul(dst, z, k)
	x := a.x
	if k == 1 {
		for i, w := range a.w {
			ind, val := x.row(i)
			if x.sparse == nil {
				floats.AddScaled(dst, w*floats.Dot(val, z), val)
				continue
			}
			var s float64
			for l, j := range ind {
				s += val[l] * z[j]
			}
			s *= w
			for l, j := range ind {
				dst[j] += s * val[l]
			}
		}
		return
	}
	a.buf = dense.Resize(a.buf, k)
	for i, w := range a.w {
		if w == 0 {
			continue
		}
		clear(a.buf)
		ind, val := x.row(i)
		if x.sparse == nil {
			for j, v := range val {
				floats.AddScaled(a.buf, v, z[j*k:(j+1)*k])
			}
			for j, v := range val {
				floats.AddScaled(dst[j*k:(j+1)*k], w*v, a.buf)
			}
			continue
		}
		for l, j := range ind {
			floats.AddScaled(a.buf, val[l], z[int(j)*k:(int(j)+1)*k])
		}
		for l, j := range ind {
			floats.AddScaled(dst[int(j)*k:(int(j)+1)*k], w*val[l], a.buf)
		}
	}
}

// conjugateGradients minimises ½δᵀAδ − gᵀδ (Hestenes and Stiefel, 1952).
type conjugateGradients struct {
	r, z, p, q []float64
	iterations int // of all solutions
}

const maxCG = 1000

// solve stores the minimiser in delta, so accurately that what the residual r leaves, ½rᵀM⁻¹r, is
// below tol, or below its part min(0.01, ρ) of what there was at first, ρ: a
// Newton step to that accuracy keeps the quadratic convergence of an exact one
// (Dembo, Eisenstat and Steihaug, 1982). It returns an estimate of ½gᵀA⁻¹g.
func (c *conjugateGradients) solve(delta []float64, a *weightHessian, g []float64, m covFamily, tol float64) float64 {
	for _, p := range []*[]float64{&c.r, &c.z, &c.p, &c.q} {
		*p = dense.Resize(*p, len(g))
	}
	clear(delta)
	copy(c.r, g)
	m.precondition(c.z, c.r, a)
	copy(c.p, c.z)
	rho := floats.Dot(c.r, c.z)
	enough := math.Max(tol, math.Min(1e-2, 0.5*rho)*0.5*rho)
	for k := 0; k < maxCG && rho > 0 && (k == 0 || 0.5*rho > enough); k++ {
		c.iterations++
		a.mul(c.q, c.p, 1)
		curve := floats.Dot(c.p, c.q)
		if !(curve > 0) || math.IsInf(curve, 0) {
			break
		}
		step := rho / curve
		floats.AddScaled(delta, step, c.p)
		floats.AddScaled(c.r, -step, c.q)
		m.precondition(c.z, c.r, a)
		next := floats.Dot(c.r, c.z)
		floats.AddScaledTo(c.p, c.z, next/rho, c.p)
		rho = next
	}
	return 0.5 * (floats.Dot(g, delta) + math.Max(0, rho))
}

// secants are the last steps of an iteration and the changes of the gradient along
// them, from which L-BFGS makes its inverse Hessian out of another one, H:
// unfold, H and fold applied in turn to a gradient.
type secants struct {
	pairs []*secant // oldest first
	open  bool      // the last pair lacks the new gradient
}

type secant struct {
	s, y    []float64
	sy, alp float64
}

const secantDepth = 8

func (h *secants) len() int { return len(h.pairs) }

func (h *secants) reset() { h.pairs, h.open = h.pairs[:0], false }

// next returns the place for a step and for the gradient before it.
func (h *secants) next(n int) *secant {
	switch {
	case len(h.pairs) == secantDepth || h.open && len(h.pairs) > 0:
		at := 0
		if h.open {
			at = len(h.pairs) - 1
		}
		p := h.pairs[at]
		copy(h.pairs[at:], h.pairs[at+1:])
		h.pairs[len(h.pairs)-1] = p
	case len(h.pairs) < cap(h.pairs):
		h.pairs = h.pairs[:len(h.pairs)+1]
	default:
		h.pairs = append(h.pairs, nil)
	}
	p := &h.pairs[len(h.pairs)-1]
	if *p == nil {
		*p = &secant{s: make([]float64, n), y: make([]float64, n)}
	}
	h.open = true
	return *p
}

// complete ends the last pair with the gradient after the step. A pair without
// positive curvature is dropped.
func (h *secants) complete(g []float64) {
	if !h.open {
		return
	}
	h.open = false
	p := h.pairs[len(h.pairs)-1]
	floats.SubTo(p.y, g, p.y)
	p.sy = floats.Dot(p.s, p.y)
	if !(p.sy > 0) || math.IsInf(1/p.sy, 0) {
		h.pairs = h.pairs[:len(h.pairs)-1]
	}
}

func (h *secants) unfold(dst, g []float64) {
	copy(dst, g)
	for k := len(h.pairs) - 1; k >= 0; k-- {
		p := h.pairs[k]
		p.alp = floats.Dot(p.s, dst) / p.sy
		floats.AddScaled(dst, -p.alp, p.y)
	}
}

func (h *secants) fold(dst []float64) {
	for _, p := range h.pairs {
		floats.AddScaled(dst, p.alp-floats.Dot(p.y, dst)/p.sy, p.s)
	}
}
