package site

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file takes the steps of a given size of a DenseAlgebra (Khan et al., 2016).

// densePaper is the workspace of a step with a given β.
type densePaper struct {
	fac, next dense.SiteFactor
	Current   bool // fac belongs to the sites of the state
	exp       dense.Expansion
	rows      []float64
}

// variances implements factored.
func (b denseBase) variances(v []float64, batch []int) bool {
	s, t := b.s, &b.s.Pg
	if !t.Current { // V must be computed again
		return false
	}
	n, m := s.N, len(v)
	t.rows = dense.Resize(t.rows, n*m)
	for a := range m {
		i := dense.Index(batch, a)
		v[a] = s.K[i*n+i]
		for j, kij := range s.K[i*n : (i+1)*n] {
			t.rows[j*m+a] = kij
		}
	}
	t.fac.Expand(&t.exp, t.rows, m)
	t.exp.SubVar(v)
	for a, x := range v {
		v[a] = s.boundVariance(dense.Index(batch, a), x)
	}
	return true
}

// appendix implements factored. It stores a₊ = K⁻¹m₊ and m₊ of the appendix. On entry γ is rΓ,
// and (1−r)K⁻¹ + rV⁻¹ = K⁻¹ + rΓ, so
//
//	a₊ = a − (1−r)(I + rΓK)⁻¹(a + α̂).
func (b denseBase) appendix(x *term.Estimates, batch []int, m PaperMove) error {
	s := b.s
	f, t, n := &s.Pg.next, &s.to, s.N
	if !f.Factor(s.K, n, t.gamma) {
		return fmt.Errorf("metric of the mean update: %w", sentinel.ErrNotPosDef)
	}
	copy(t.a, s.Cur.A)
	for i, a := range t.a {
		t.w[i] = (1 - m.R) * a
	}
	for i := range x.M {
		t.w[dense.Index(batch, i)] -= m.Scale * x.D1[i]
	}
	f.Solve(t.w)
	floats.Sub(t.a, t.w)
	dense.Symv(1, dense.Symmetric(s.K, n), dense.Vector(t.a), 0, dense.Vector(t.mean))
	return nil
}

// try implements factored. A pivot is the part of the precision of a variable that its site
// leaves.
func (b denseBase) try(gamma []float64, noisy bool) (valid, edge bool) {
	s, t := b.s, &b.s.Pg
	if !t.next.Factor(s.K, s.N, gamma) {
		return false, false
	}
	if !noisy {
		return true, false
	}
	if !t.Current {
		t.Current = t.fac.Factor(s.K, s.N, s.Cur.Gamma)
	}
	return true, t.next.LeastPivot() < min(noisyPivot, t.fac.LeastPivot())
}

// solve implements factored.
func (b denseBase) solve(a, mean []float64) {
	b.s.Pg.next.Solve(a)
	dense.Symv(1, dense.Symmetric(b.s.K, b.s.N), dense.Vector(a), 0, dense.Vector(mean))
}

// taken implements factored.
func (b denseBase) taken() (logDet float64) {
	t := &b.s.Pg
	t.fac, t.next, t.Current = t.next, t.fac, true
	return t.fac.LogDet
}
