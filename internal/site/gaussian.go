package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// This file fits models with Gaussian noise in one step. A term is then a parabola in its latent
// value, and its site γ = w/σ², b = γ(y − o) does not depend on q. One factor of B = I + Γ½KΓ½
// gives q (Rasmussen and Williams 2006, algorithm 2.1), and the inverse of the factor gives its
// variances:
//
//	a = Γ½B⁻¹Γ^−½b,   m = Ka,   V_nn = (1 − (B⁻¹)_nn)/γ_n.
//
// No other step and no V are needed, because the precisions leave no gap if sites are at their
// targets. The Ascend methods of DenseAlgebra and WeightAlgebra call direct.

// weakNoise is the value of γ_nK_nn below which the difference 1 − (B⁻¹)_nn has fewer than 13
// digits.
const weakNoise = 1e-3

// roundedRows is the number of rows of K that a goroutine reads at a time.
const roundedRows = 64

// direct moves to the q of Gaussian noise, and reports whether it did. It does not move if q is
// already there, with marginals, or if rounding would lower the ELBO. The error comes from the
// crew.
func (s *DenseAlgebra) direct() (ok bool, err error) {
	n, p, x := s.N, &s.Pg, &s.gap.next
	x.Resize(n)
	if !s.Terms.KnownSites(x.Gamma, x.A) || s.Fresh && slices.Equal(x.Gamma, s.Cur.Gamma) {
		return false, nil
	}
	p.Current = false
	ok = p.fac.Factor(s.K, n, x.Gamma)
	if ok {
		p.fac.Solve(x.A)
		dense.Symv(1, dense.Symmetric(s.K, n), dense.Vector(x.A), 0, dense.Vector(x.M))
		weak := false
		for i, g := range x.Gamma {
			weak = weak || g*s.K[i*n+i] < weakNoise
		}
		if weak {
			p.fac.Expand(&p.exp, s.K, n)
			ok = p.fac.Variances(x.V, &p.exp)
		} else {
			ok = s.inverse.Variances(&p.fac, x.V)
		}
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return false, err
	}
	if !ok || s.Terms.Expect(x, nil, s.Workers) != nil || !x.Certain {
		return false, s.Workers.Halt.Err()
	}
	if s.Fresh && !(s.Elbo(x, p.fac.LogDet) >= s.Elbo(&s.Cur, s.LogDet)) {
		return false, nil
	}
	s.Distance = Distance(x, &s.Cur)
	s.Cur, *x = *x, s.Cur
	s.LogDet, s.Fresh, s.Unresolved, s.Batched, s.Started = p.fac.LogDet, true, false, false, false
	s.stale()
	p.Current = true
	return true, nil
}

// atTargets reports whether the current sites are the sites of Gaussian noise.
func (s *DenseAlgebra) atTargets() bool {
	return s.Fresh && s.Terms.Noise() > 0 && slices.Equal(s.Cur.Gamma, s.Cur.Tg)
}

// proveDirect is prove without V. The gap of the mean is at most ½cᵀKc. It returns false if that
// or the rounding exceeds the goal.
func (s *DenseAlgebra) proveDirect(within float64) (Proof, bool) {
	goal := goals.Of(within, s.N, s.Elbo(&s.Cur, s.LogDet))
	rounding, bound := s.roundingDirect(), s.gap.Mean(s.K, &s.Cur)
	return Proof{made: true, bound: goals.Bound(bound), rounding: rounding},
		s.Cur.Certain && rounding <= goal && bound <= goal
}

// roundingDirect estimates the effect of the rounding of K and of m = Ka on the ELBO; see settle.
// It uses |W_ij| ≤ (W_iiW_jj)^½ for the positive definite matrix W = Γ − ΓVΓ.
func (s *DenseAlgebra) roundingDirect() float64 {
	n, c := s.N, &s.Cur
	s.gap.r = dense.Resize(s.gap.r, 2*n)
	w, rows := s.gap.r[:n], s.gap.r[n:]
	var means float64
	for i, g := range c.Gamma {
		w[i] = math.Sqrt(max(0, g*(1-g*c.V[i])))
		means += c.A[i] * c.A[i] * c.M[i] * c.M[i]
	}
	if workers := s.Workers.Halt.Workers(); workers > 1 && n >= 4*roundedRows {
		parallel.For(n, roundedRows, workers, func(_, lo, hi int) { s.roundedOf(rows, w, lo, hi) })
	} else {
		s.roundedOf(rows, w, 0, n)
	}
	var square float64
	for _, r := range rows {
		square += r
	}
	return dense.Epsilon * (math.Sqrt(square) + math.Sqrt(float64(n)*means))
}

// roundedOf stores the parts of rows lo … hi−1 of K in the square of roundingDirect.
func (s *DenseAlgebra) roundedOf(rows, w []float64, lo, hi int) {
	n, c := s.N, &s.Cur
	for i := lo; i < hi; i++ {
		var row float64
		a, wi := math.Abs(c.A[i]), w[i]
		for j, k := range s.K[i*n : i*n+i] {
			x := (a*math.Abs(c.A[j]) + wi*w[j]) * k
			row += x * x
		}
		x := (a*a + wi*wi) * s.K[i*n+i]
		rows[i] = 4*row + x*x
	}
}

// LendFactor returns the factor of the current sites, or nil if they have no factor. The run may
// continue: later steps find the same factors as without the call, so their bits do not change.
func (s *DenseAlgebra) LendFactor() *dense.SiteFactor {
	p := &s.Pg
	switch {
	case !s.Fresh:
	case p.Current:
		return p.fac.Lend()
	case s.outside() && s.mover.Current && slices.Equal(s.mover.cur, s.Cur.Gamma):
		return s.mover.Fac.Lend()
	}
	return nil
}

// direct moves from the prior to the q of Gaussian noise by one product XᵀΓX, and reports whether
// it did. The error comes from Settle.
func (s *WeightAlgebra) direct() (ok bool, err error) {
	if !(s.Terms.Noise() > 0 && !s.Free && !s.Started && s.Cur.Bare()) {
		return false, nil
	}
	gamma, b := make([]float64, s.N), make([]float64, s.N)
	s.Terms.KnownSites(gamma, b)
	s.StartAt(gamma, b, make([]float64, s.N))
	if err := s.Settle(); err != nil {
		return false, err
	}
	return !s.Cur.Bare(), nil
}
