package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file accelerates the steps of a Problem: siteMix mixes the sites of earlier steps (Anderson,
// 1965). Problem.toMixture and Problem.outerStep call it.

// siteMix accelerates the map from sites to targets by Anderson acceleration. The coordinates are
// (log γ, c) if every γ is positive, (γ, c) otherwise, and log γ alone for outer steps, which
// find the mean for each γ. Residuals are weighted by the Fisher information of the marginals.
type siteMix struct {
	accel.Anderson
	log   bool
	outer bool // the coordinates are log γ alone
	again bool // repeat the last iterate, because the step after it was halted
	w, z  []float64
}

// mostMix is the largest distance of a mixture of log γ from the last state.
const mostMix = 5

// room returns the memory for the next iterate and its residual, both of n numbers.
func (a *siteMix) room(n int) (x, r []float64) {
	x, r = a.Next(n, a.again)
	a.again, a.w, a.z = false, dense.Resize(a.w, n), dense.Resize(a.z, n)
	return x, r
}

// allPositive reports whether all precisions and their targets are positive.
func allPositive(gamma, tg []float64) bool {
	for i, g := range gamma {
		if !(g > 0 && tg[i] > 0) {
			return false
		}
	}
	return true
}

// propose stores the mixture of the state s and its predecessors in dst. It returns false if
// there is no mixture.
func (a *siteMix) propose(dst, s *problemState, m0 []float64) bool {
	n := len(s.M)
	if positive := allPositive(s.Gamma, s.Tg); positive != a.log || a.outer {
		a.log, a.outer = positive, false
		a.Reset()
	}
	x, r := a.room(2 * n)
	for i, m := range s.M {
		g, tg, v := s.Gamma[i], s.Tg[i], s.V[i]
		d := m - m0[i]
		x[n+i], r[n+i] = s.C[i], s.D1[i]+tg*d-s.C[i]
		a.w[n+i] = math.Sqrt(v)
		a.w[i] = math.Sqrt(v*d*d + 0.5*v*v)
		if a.log {
			x[i], r[i] = math.Log(g), math.Log(tg/g)
			a.w[i] *= g
		} else {
			x[i], r[i] = g, tg-g
		}
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	copy(dst.C, a.z[n:])
	for i, z := range a.z[:n] {
		switch {
		case !a.log:
			dst.Gamma[i] = z
		case math.Abs(z-x[i]) > mostMix:
			return false
		default:
			dst.Gamma[i] = math.Exp(z)
		}
	}
	return true
}

// means is propose for an aimer. It mixes log γ, the means and a. The aim gives the step of the
// means, a after it and the target tg of γ. The norm ignores a, so a follows the means. A mixture
// of b would mix γ with the means: it would change large means if γ changes by large factors.
func (a *siteMix) means(dst, s *problemState, ta, step, tg, m0 []float64) bool {
	n := len(s.M)
	if !allPositive(s.Gamma, tg) {
		a.Reset()
		return false
	}
	x, r := a.room(3 * n)
	for i, g := range s.Gamma {
		x[i], r[i] = math.Log(g), math.Log(tg[i]/g)
		x[n+i], r[n+i] = s.M[i], step[i]
		x[2*n+i], r[2*n+i] = s.A[i], ta[i]-s.A[i]
		a.w[i], a.w[n+i], a.w[2*n+i] = math.Sqrt2/2*g*s.V[i], 1/math.Sqrt(s.V[i]), 0
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	for i, z := range a.z[:n] {
		if math.Abs(z-x[i]) > mostMix {
			return false
		}
		dst.Gamma[i] = math.Exp(z)
		dst.C[i] = a.z[2*n+i] + dst.Gamma[i]*(a.z[n+i]-m0[i])
	}
	return true
}

// precisions stores the mixture of γ in a.z. The mean of s is the best mean for its V. It returns
// false if there is no mixture.
func (a *siteMix) precisions(s *term.Marginals) bool {
	n := len(s.M)
	if !a.outer {
		a.outer = true
		a.Reset()
	}
	if !allPositive(s.Gamma, s.Tg) {
		a.Reset()
		return false
	}
	x, r := a.room(n)
	for i, g := range s.Gamma {
		x[i], r[i] = math.Log(g), math.Log(s.Tg[i]/g)
		a.w[i] = g * s.V[i]
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	for i, z := range a.z {
		if math.Abs(z-x[i]) > mostMix {
			return false
		}
		a.z[i] = math.Exp(z)
	}
	return true
}

// state writes or reads a, for n sites of a problem with or without an aimer.
func (a *siteMix) state(c *save.Coder, n int, aims bool) {
	c.Bool(&a.log, &a.outer, &a.again)
	switch {
	case aims:
		n *= 3
	case !a.outer:
		n *= 2
	}
	a.Anderson.State(c, n)
}
