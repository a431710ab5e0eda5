package pgsvi

import (
	"fmt"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// step takes the step of the paper with step size β from the gradient of batch.
func (t *pgStep) step(s *gpStepper, batch []int, beta float64, rng *rand.Rand) error {
	s.batched = false
	if !s.fresh && !t.current { // V is to be computed anew
		if err := s.refresh(false); err != nil {
			return err
		}
	}
	if err := t.marginals(s, batch); err != nil {
		return err
	}
	if err := s.terms.estimate(&t.estimates, batch, s.est, rng); err != nil {
		return err
	}
	n := s.n
	r := 1 / (1 + beta)
	scale := (1 - r) * float64(n) / float64(len(t.d1))
	// Γ₊ = rΓ + (1−r)Γ̂ and, in the main text, b₊ = rb + (1−r)(γ̂m − α̂).
	t.gamma, t.b = dense.Resize(t.gamma, n), dense.Resize(t.b, n)
	for i, g := range s.cur.gamma {
		t.gamma[i], t.b[i] = r*g, r*(s.cur.a[i]+g*s.cur.m[i])
	}
	if s.update == Appendix {
		if err := t.appendix(s, batch, r, scale); err != nil {
			return err
		}
	}
	for i := range t.d1 {
		j := dense.Index(batch, i)
		t.gamma[j] -= scale * t.d2[i]
		if s.update == MainText {
			t.b[j] += scale * (t.d1[i] - t.d2[i]*t.m[i])
		}
	}
	if s.update == Appendix {
		for i, a := range t.a {
			t.b[i] = a + t.gamma[i]*t.mean[i]
		}
	}
	// Go less far where V⁻¹ would not be positive definite, and where noise would
	// have it nearly so: not below the pivot of the state, if that is less.
	least := 0.0
	if !s.exact {
		if !t.current {
			t.current = t.fac.Factor(s.k, n, s.cur.gamma)
		}
		least = min(noisyPivot, t.fac.LeastPivot())
	}
	for halved := range 100 {
		if t.next.Factor(s.k, n, t.gamma) && (t.next.LeastPivot() >= least || halved >= noisyHalvings) {
			t.mean = dense.Resize(t.mean, n)
			copy(t.w, t.b)
			t.next.Solve(t.w)
			blas64.Symv(1, dense.Symmetric(s.k, n), dense.Vector(t.w), 0, dense.Vector(t.mean))
			if i, ok := dense.AllFinite(t.mean); !ok {
				return fmt.Errorf("pgsvi: %w: mean of term %d would be %v", ErrNotFinite, i, t.mean[i])
			}
			t.fac, t.next, t.current = t.next, t.fac, true
			s.gradMap = siteDistance(&siteState{gamma: t.gamma, a: t.w, m: t.mean}, &s.cur) / beta
			copy(s.cur.gamma, t.gamma)
			copy(s.cur.a, t.w)
			copy(s.cur.m, t.mean)
			s.logDet = t.fac.LogDet
			s.fresh, s.dense = false, false
			return nil
		}
		for i, g := range s.cur.gamma {
			t.gamma[i] = 0.5 * (t.gamma[i] + g)
			t.b[i] = 0.5 * (t.b[i] + s.cur.a[i] + g*s.cur.m[i])
		}
	}
	return fmt.Errorf("pgsvi: posterior covariance at every step size: %w", ErrNotPosDef)
}

// marginals stores means and variances of the terms of batch. The mean
// of all terms is current in s.cur.m whenever the factor is.
func (t *pgStep) marginals(s *gpStepper, batch []int) error {
	n := s.n
	m := len(batch)
	if batch == nil {
		m = n
	}
	t.resize(m)
	t.w = dense.Resize(t.w, n)
	for a := range m {
		i := dense.Index(batch, a)
		t.m[a], t.v[a] = s.cur.m[i], s.cur.v[i]
	}
	if s.fresh {
		return nil
	}
	t.rows = dense.Resize(t.rows, n*m)
	for a := range m {
		i := dense.Index(batch, a)
		t.v[a] = s.k[i*n+i]
		for j, kij := range s.k[i*n : (i+1)*n] {
			t.rows[j*m+a] = kij
		}
	}
	t.fac.Expand(&t.exp, t.rows, m)
	t.exp.SubVar(t.v)
	for a, v := range t.v {
		t.v[a] = s.boundVariance(dense.Index(batch, a), v)
	}
	return nil
}

// appendix stores a₊ = K⁻¹m₊ and m₊ of the appendix in t.a and t.mean. On entry
// t.gamma = rΓ, and (1−r)K⁻¹ + rV⁻¹ = K⁻¹ + rΓ, so that
//
//	a₊ = a − (1−r)(I + rΓK)⁻¹(a + α̂).
func (t *pgStep) appendix(s *gpStepper, batch []int, r, scale float64) error {
	n := s.n
	if !t.next.Factor(s.k, n, t.gamma) {
		return fmt.Errorf("pgsvi: metric of the mean update: %w", ErrNotPosDef)
	}
	t.a, t.mean = dense.Resize(t.a, n), dense.Resize(t.mean, n)
	copy(t.a, s.cur.a)
	for i, a := range t.a {
		t.w[i] = (1 - r) * a
	}
	for i := range t.d1 {
		t.w[dense.Index(batch, i)] -= scale * t.d1[i]
	}
	t.next.Solve(t.w)
	floats.Sub(t.a, t.w)
	blas64.Symv(1, dense.Symmetric(s.k, n), dense.Vector(t.a), 0, dense.Vector(t.mean))
	return nil
}
