package gauss

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// This file computes the normalizing constant of an Arrow with one factor in a single pass over the
// levels, without storing the blocks of its covariance. Integrals over covariances of few levels need
// it at thousands of covariances; package site calls it from arrow_fits.go. The formulas are in
// arrow.go.

// evidenceBorder and evidenceEffects are the largest border and the most effects that TwiceLogZ
// supports.
const (
	evidenceBorder  = 8
	evidenceEffects = 2
)

// TwiceLogZ returns hᵀm − log|C|/|V| for the linear coefficients hb of the border and hg of the levels,
// which is 2 log Z up to a constant. Only the shape, Sums and L of c must be set. TwiceLogZ reports
// false if it does not apply because there are several factors, many columns in the border or more than
// two effects, or if the precision is not positive definite.
func (c *Arrow) TwiceLogZ(hb, hg []float64) (value float64, ok bool) {
	f, d := &c.Blocks[0], len(c.Border)
	if c.Crossed() || d > evidenceBorder || f.Q > evidenceEffects {
		return 0, false
	}
	var s evidenceSums
	copy(s.h[:], hb)
	for i := range d {
		copy(s.s[i][:i+1], c.Sums.A[i*d:i*d+i+1])
		s.s[i][i] += c.Prec[i]
		s.logDet -= math.Log(c.Prec[i])
	}
	if f.Q == 1 {
		s.one(c, hg, d)
	} else {
		s.two(c, hg, d)
	}
	var chol [evidenceBorder * evidenceBorder]float64
	a := chol[:d*d]
	for i := range d {
		copy(a[i*d:i*d+i+1], s.s[i][:])
	}
	if d > 0 && !dense.Cholesky(a, d) {
		return 0, false
	}
	for i := range d { // |L⁻¹h|² = hᵀS⁻¹h
		x := s.h[i]
		for j := range i {
			x -= a[i*d+j] * s.h[j]
		}
		s.h[i] = x / a[i*d+i]
		s.square += s.h[i] * s.h[i]
	}
	value = s.square - s.logDet - dense.LogDet(a, d)
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}

// evidenceSums holds what the levels add up to: S, h_b − Σ E_gᵀh_g, Σ h_gᵀR_gh_g and Σ log|M_g|.
type evidenceSums struct {
	s              [evidenceBorder][evidenceBorder]float64 // lower triangle
	h              [evidenceBorder]float64
	square, logDet float64
}

// one adds the levels of a factor with one effect to s.
func (s *evidenceSums) one(c *Arrow, hg []float64, d int) {
	l2, det := c.L[0][0]*c.L[0][0], 1.0
	for g, h := range hg {
		m := 1 + l2*c.Sums.D[g]
		if !(m > 0) {
			s.logDet = math.NaN()
			return
		}
		if det *= m; !(det < mostDet && det > 1/mostDet) {
			s.logDet, det = s.logDet+math.Log(det), 1
		}
		r, b := l2/m, c.Sums.B[g*d:(g+1)*d]
		s.square += r * h * h
		for i, x := range b {
			u, row := r*x, &s.s[i]
			s.h[i] -= u * h
			for j, y := range b[:i+1] {
				row[j] -= u * y
			}
		}
	}
	s.logDet += math.Log(det)
}

// two adds the levels of a factor with two effects to s.
func (s *evidenceSums) two(c *Arrow, hg []float64, d int) {
	var k, r [4]float64
	det := 1.0
	for g := range c.Blocks[0].Levels {
		m := eliminateTwo(k[:], r[:], c.Sums.D[4*g:4*g+4], c.L[0])
		if !(m > 0) {
			s.logDet = math.NaN()
			return
		}
		if det *= m; !(det < mostDet && det > 1/mostDet) {
			s.logDet, det = s.logDet+math.Log(det), 1
		}
		h0, h1 := hg[2*g], hg[2*g+1]
		b0, b1 := c.Sums.B[2*g*d:(2*g+1)*d], c.Sums.B[(2*g+1)*d:(2*g+2)*d]
		s.square += h0*(r[0]*h0+r[1]*h1) + h1*(r[2]*h0+r[3]*h1)
		for i, x := range b0 {
			y, row := b1[i], &s.s[i]
			u0, u1 := r[0]*x+r[1]*y, r[2]*x+r[3]*y
			s.h[i] -= u0*h0 + u1*h1
			for j := range i + 1 {
				row[j] -= u0*b0[j] + u1*b1[j]
			}
		}
	}
	s.logDet += math.Log(det)
}
