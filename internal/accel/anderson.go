// Package accel accelerates and minimizes functions: Anderson mixing of fixed-point iterations
// (anderson.go), L-BFGS (lbfgs.go), minimization in one dimension (brent.go) and roots (root.go).
package accel

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// Anderson mixes the last five iterates of a fixed-point map (Anderson, 1965; Walker and
// Ni, 2011). The zero value has no iterates.
type Anderson struct {
	x, r [][]float64 // last iterates and residuals, oldest first
	d    []float64   // scratch
}

const (
	andersonDepth = 4     // differences of iterates that are mixed
	andersonRidge = 1e-12 // relative addition to the diagonal of the normal equations
	andersonPivot = 1e-14 // relative pivot below which the differences count as dependent
)

// Reset removes the iterates and keeps their memory.
func (a *Anderson) Reset() { a.x, a.r = a.x[:0], a.r[:0] }

// Mix stores the mixture Σ_j α_j (x_j + r_j) of the iterates x_j and their residuals r_j in dst.
// The weights are α = argmin ‖diag(w) Σ_j α_j r_j‖ subject to Σ_j α_j = 1. Iterates whose
// differences of residuals depend on later ones are left out. Mix reports false if fewer than two
// iterates are left.
func (a *Anderson) Mix(dst, w []float64) bool {
	k := len(a.x) - 1
	if k < 1 {
		return false
	}
	r := a.r[k]
	r0, r1, r2, r3 := lastFour(a.r)
	dst, w = dst[:len(r)], w[:len(r)]
	r0, r1, r2, r3 = r0[:len(r)], r1[:len(r)], r2[:len(r)], r3[:len(r)]
	// Compute all inner products in one pass.
	var g [andersonDepth][andersonDepth + 1]float64
	var g00, g10, g11, g20, g21, g22, g30, g31, g32, g33, b0, b1, b2, b3 float64
	for i, x := range r {
		w2 := w[i] * w[i]
		d0, d1, d2, d3 := x-r0[i], x-r1[i], x-r2[i], x-r3[i]
		m0, m1, m2, m3 := w2*d0, w2*d1, w2*d2, w2*d3
		g00 += m0 * d0
		g10 += m1 * d0
		g11 += m1 * d1
		g20 += m2 * d0
		g21 += m2 * d1
		g22 += m2 * d2
		g30 += m3 * d0
		g31 += m3 * d1
		g32 += m3 * d2
		g33 += m3 * d3
		b0 += m0 * x
		b1 += m1 * x
		b2 += m2 * x
		b3 += m3 * x
	}
	g[0] = [andersonDepth + 1]float64{g00, 0, 0, 0, b0}
	g[1] = [andersonDepth + 1]float64{g10, g11, 0, 0, b1}
	g[2] = [andersonDepth + 1]float64{g20, g21, g22, 0, b2}
	g[3] = [andersonDepth + 1]float64{g30, g31, g32, g33, b3}
	return a.mixture(dst, &g)
}

// lastFour returns all elements of s but the last, and repeats the last so that there are four. A
// repeated element has a difference of 0.
func lastFour(s [][]float64) (s0, s1, s2, s3 []float64) {
	k := len(s) - 1
	at := func(j int) []float64 { return s[min(j, k)] }
	return at(0), at(1), at(2), at(3)
}

// MixIn is like Mix in another norm: mul stores the product of its metric with d in dst. MixIn
// also reports false if mul does.
func (a *Anderson) MixIn(dst []float64, mul func(dst, d []float64) bool) bool {
	k := len(a.x) - 1
	if k < 1 {
		return false
	}
	r := a.r[k]
	a.d = dense.Resize(a.d, len(r))
	// Minimize ‖r − Σ_j θ_j (r − r_j)‖ over the mixtures of the last k differences.
	var g [andersonDepth][andersonDepth + 1]float64
	for j := range k {
		floats.SubTo(a.d, r, a.r[j])
		if !mul(dst, a.d) {
			return false
		}
		for i, md := range dst {
			for l := range j + 1 {
				g[j][l] += md * (r[i] - a.r[l][i])
			}
			g[j][andersonDepth] += md * r[i]
		}
	}
	return a.mixture(dst, &g)
}

// mixture computes the mixture for the normal equations g.
func (a *Anderson) mixture(dst []float64, g *[andersonDepth][andersonDepth + 1]float64) bool {
	k := len(a.x) - 1
	x, r := a.x[k], a.r[k]
	first := 0
	theta, ok := solveSmall(g, k)
	for ; !ok && first < k-1; theta, ok = solveSmall(g, k-first) { // leave out the oldest
		first++
		for j := range k - first {
			copy(g[j][:], g[j+1][1:andersonDepth])
			g[j][andersonDepth] = g[j+1][andersonDepth]
		}
	}
	if !ok {
		return false
	}
	for i := range x {
		z := x[i] + r[i]
		for j := range k - first {
			z -= theta[j] * (x[i] + r[i] - a.x[first+j][i] - a.r[first+j][i])
		}
		dst[i] = z
	}
	return true
}

// Next returns the slices in which the caller stores a new iterate of length n and its residual.
// From the sixth iterate on they replace the oldest, or the last one if again is true.
func (a *Anderson) Next(n int, again bool) (x, r []float64) {
	if last := len(a.x) - 1; again && last >= 0 {
		return a.x[last], a.r[last]
	}
	grow := func(s [][]float64) [][]float64 {
		if len(s) == andersonDepth+1 {
			first := s[0]
			copy(s, s[1:])
			s[len(s)-1] = first
			return s
		}
		if len(s) < cap(s) {
			s = s[:len(s)+1]
			s[len(s)-1] = dense.Resize(s[len(s)-1], n)
			return s
		}
		return append(s, make([]float64, n))
	}
	a.x, a.r = grow(a.x), grow(a.r)
	last := len(a.x) - 1
	return a.x[last], a.r[last]
}

// solveSmall solves the k×k positive semidefinite system whose lower triangle and right-hand side
// are in g, with a small ridge.
func solveSmall(g *[andersonDepth][andersonDepth + 1]float64, k int) (x [andersonDepth]float64,
	ok bool) {
	var l [andersonDepth][andersonDepth]float64
	for i := range k {
		for j := range i + 1 {
			s := g[i][j]
			if i == j {
				s *= 1 + andersonRidge
			}
			for a := range j {
				s -= l[i][a] * l[j][a]
			}
			if i == j {
				if !(s > andersonPivot*g[i][i]) {
					return x, false
				}
				l[i][i] = math.Sqrt(s)
			} else {
				l[i][j] = s / l[j][j]
			}
		}
	}
	for i := range k {
		x[i] = g[i][andersonDepth]
		for a := range i {
			x[i] -= l[i][a] * x[a]
		}
		x[i] /= l[i][i]
	}
	for i := k - 1; i >= 0; i-- {
		for a := i + 1; a < k; a++ {
			x[i] -= l[a][i] * x[a]
		}
		x[i] /= l[i][i]
	}
	return x, true
}

// State writes or reads a for iterates of length n.
func (a *Anderson) State(c *save.Coder, n int) {
	k := len(a.x)
	c.Int(&k)
	c.Check(k <= andersonDepth+1, "%d iterates, of at most %d", k, andersonDepth+1)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		a.x, a.r = make([][]float64, k), make([][]float64, k)
	}
	for i := range k {
		c.Floats(n, &a.x[i], &a.r[i])
	}
}
