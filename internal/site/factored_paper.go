package site

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file takes the steps of a given size of a FactoredAlgebra (Khan et al., 2016).

// factoredPaper is the workspace of a step with a given β.
type factoredPaper struct {
	// h is the move of the mean before the metric of the main text, to is the target of V⁻¹, and
	// prior is the diagonal of Λ0.
	h, to, prior []float64
	mean         []float64
	appendix     bool
}

// Marginals implements Algebra. The error wraps sentinel.ErrNoProx if V is not diagonal.
func (s *FactoredAlgebra) Marginals(x *term.Estimates, batch []int) error {
	f, ok := s.Fam.(*DiagFamily)
	if !ok {
		return fmt.Errorf(
			"a step size with LowRankCovariance; leave Solver.StepSize nil, or choose "+
				"DiagonalCovariance or FullCovariance: %w", sentinel.ErrNoProx)
	}
	m := len(batch)
	if batch == nil {
		m = s.N
	}
	x.Resize(m)
	s.Lin.X.MulOn(s.workers.Halt, x.M, s.Cur.Mean, batch)
	v := dense.Resize(s.pg.h, s.Lin.X.Cols)
	for j, p := range f.Cur {
		v[j] = 1 / p
	}
	s.Lin.X.QuadDiagOn(s.workers.Halt, x.V, v, batch)
	s.pg.h = v
	return nil
}

// aim implements Algebra. It is the step of the paper with a diagonal V (PG-SVI-MF),
//
//	V₊⁻¹ = rV⁻¹ + (1−r)(Λ0 + diag XᵀΓ̂X),   m₊ = m − (1−r) B⁻¹(Λ0(m − μ0) − Xᵀα̂).
//
// V₊⁻¹ and B use only the diagonal of Λ0. B is V₊⁻¹ or, in the appendix, (1−r)Λ0 + rV⁻¹.
func (s *FactoredAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	t, f, d := &s.pg, s.Fam.(*DiagFamily), s.Lin.X.Cols
	for k := range x.M {
		x.D1[k] *= m.Scale
		x.D2[k] *= -m.Scale
	}
	s.Lin.Prior.Mul(t.h, s.Cur.Mean, 1)
	floats.Scale(m.R-1, t.h)
	s.Lin.X.AddMulTOn(t.h, x.D1, batch, s.hess.scratch())
	t.to, t.prior = dense.Resize(t.to, d), dense.Resize(t.prior, d)
	s.Lin.Prior.DiagTo(t.prior)
	t.appendix = m.Appendix
	for j, p := range f.Cur {
		t.to[j] = m.R*p + (1-m.R)*t.prior[j]
		if t.appendix {
			t.h[j] /= t.to[j]
		}
	}
	s.Lin.X.AddSquares(t.to, x.D2, batch, s.hess.scratch())
	return nil
}

// try implements Algebra.
func (s *FactoredAlgebra) try(noisy bool) (valid, edge bool) {
	t, f := &s.pg, s.Fam.(*DiagFamily)
	for j, p := range f.Cur {
		if !(t.to[j] > 0) {
			return false, false
		}
		edge = edge || noisy && t.to[j] < min(noisyPivot*t.prior[j], p)
	}
	return true, edge
}

// halve implements Algebra.
func (s *FactoredAlgebra) halve() {
	t := &s.pg
	for j, p := range s.Fam.(*DiagFamily).Cur {
		t.to[j] = p + 0.5*(t.to[j]-p)
	}
	floats.Scale(0.5, t.h)
}

// take implements Algebra.
func (s *FactoredAlgebra) take() error {
	t, f := &s.pg, s.Fam.(*DiagFamily)
	t.mean = dense.Resize(t.mean, len(t.to))
	for j, p := range t.to {
		h := t.h[j]
		if !t.appendix {
			h /= p
		}
		t.mean[j] = s.Cur.Mean[j] + h
		if math.IsNaN(t.mean[j]+p) || math.IsInf(t.mean[j]+p, 0) {
			return fmt.Errorf("weight %d (%s) would move to N(%v, %v): %w", j, s.Lin.Names[j],
				t.mean[j], 1/p, sentinel.ErrNotFinite)
		}
	}
	s.Distance = floats.Distance(t.mean, s.Cur.Mean, 2)
	s.Cur.Mean, t.mean = t.mean, s.Cur.Mean
	copy(f.try, t.to)
	f.Accept()
	s.History.Reset()
	s.Fresh, s.Aimed, s.Started, s.free, s.proof = false, false, true, true, Proof{}
	return nil
}
