package site

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file takes the steps of a given size of a WeightAlgebra (Khan et al., 2016), and evaluates its
// free states.

// weightPaper is the workspace of a step with a given β.
type weightPaper struct {
	w, rest      []float64
	h            dense.Double
	next, metric gauss.Gaussian // the target, about the current mean, and the metric of h
	base         gauss.Gaussian // the target without the batch
	valid, tried bool           // next has a factor; a first try was made, so later ones factor again
	appendix     bool
	negative     bool // some γ̂ is negative
	Buf          design.Work
}

// Marginals implements Algebra.
func (s *WeightAlgebra) Marginals(x *term.Estimates, batch []int) error {
	m := len(batch)
	if batch == nil {
		m = s.N
	}
	x.Resize(m)
	s.Lin.X.MulOn(s.Workers.Halt, x.M, s.Run.Mean, batch)
	s.Run.Variances(x.V, s.Lin.X, batch, &s.Pg.Buf)
	return nil
}

// aim implements Algebra. It computes h = (1−r)(Xᵀα̂ − Λ0 m) and P₊ = rP + (1−r)(Λ0 + XᵀΓ̂X). The
// metric turns h into the move of the mean.
func (s *WeightAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	t, d := &s.Pg, s.Lin.X.Cols
	t.w = dense.Resize(t.w, len(x.M))
	for k := range x.M {
		t.w[k] = -m.Scale * x.D2[k]
		x.D1[k] *= m.Scale
	}
	t.base.Average(m.R, &s.Run, s.Prior)
	if t.appendix = m.Appendix; t.appendix {
		t.metric.CopyPrecision(&t.base)
		if !t.metric.Factor() {
			return fmt.Errorf("metric of the mean update: %w", sentinel.ErrNotPosDef)
		}
	}
	t.valid, t.tried = t.next.Add(&t.base, s.Lin.X, t.w, batch, &t.Buf), false
	t.negative = len(t.w) > 0 && slices.Min(t.w) < 0
	t.h.Resize(d)
	clear(t.h.Lo)
	dense.Symv(m.R-1, dense.Symmetric(s.Prior.P, d), dense.Vector(s.Run.Mean), 0,
		dense.Vector(t.h.Hi))
	if t.next.Double {
		s.Lin.X.AddMulTDouble(t.h, x.D1, batch, &t.Buf)
	} else {
		s.Lin.X.AddMulT(t.h.Hi, x.D1, batch)
	}
	return nil
}

// try implements Algebra.
func (s *WeightAlgebra) try(noisy bool) (valid, edge bool) {
	t := &s.Pg
	if t.tried {
		t.valid = t.next.Factor()
	}
	if t.tried = true; !t.valid {
		return false, false
	}
	return true, noisy && t.negative && !s.above(&t.next) && s.above(&s.Run)
}

// above reports whether P − noisyPivot·Λ0 is positive definite.
func (s *WeightAlgebra) above(w *gauss.Gaussian) bool {
	t := &s.Pg
	t.rest = dense.Resize(t.rest, len(w.P))
	floats.AddScaledTo(t.rest, w.P, -noisyPivot, s.Prior.P)
	return dense.Cholesky(t.rest, len(w.Mean))
}

// halve implements Algebra.
func (s *WeightAlgebra) halve() {
	t := &s.Pg
	t.next.Average(0.5, &t.next, &s.Run)
	floats.Scale(0.5, t.h.Hi)
	floats.Scale(0.5, t.h.Lo)
}

// take implements Algebra.
func (s *WeightAlgebra) take() error {
	t := &s.Pg
	metric := &t.next
	if t.appendix {
		metric = &t.metric
	}
	metric.Apply(t.h)
	if j, ok := dense.AllFinite(t.h.Hi); !ok {
		return fmt.Errorf("mean of weight %d (%s) would move by %v: %w", j, s.Lin.Names[j],
			t.h.Hi[j], sentinel.ErrNotFinite)
	}
	s.Distance = floats.Norm(t.h.Hi, 2)
	floats.AddTo(t.next.Mean, s.Run.Mean, t.h.Hi)
	s.Run, t.next = t.next, s.Run
	s.Free, s.Fresh, s.Batched, s.Started, s.Proof = true, false, false, false, Proof{}
	return nil
}

// freeEvaluation is Evaluate for a state without sites, with
//
//	KL = ½(tr(Λ0V) − D + mᵀΛ0m + log|P| − log|Λ0|).
//
// With c = Λ0m − Xᵀα̂ and A = Λ0 + XᵀΓ̂X the gap is about ½cᵀA⁻¹c + ½(tr(AV) − D + log|P| −
// log|A|). For concave terms, the gap bound has Λ0 in place of A, and twice the second part.
func (s *WeightAlgebra) freeEvaluation() (siteEvaluation, error) {
	t, g := &s.Pg, &s.Gap
	var c term.Marginals
	c.Resize(s.N)
	s.Lin.X.Mul(c.M, s.Run.Mean, nil)
	s.Run.Variances(c.V, s.Lin.X, nil, &t.Buf)
	if err := s.Terms.Expect(&c, nil, s.Workers); err != nil {
		return siteEvaluation{}, err
	}
	s.Run.Invert()
	d := s.Lin.X.Cols
	trace := -float64(d) // tr(Λ0V) − D
	for i := range d {
		for j := range i {
			trace += 2 * s.Prior.P[i*d+j] * s.Run.Inv[i*d+j]
		}
		trace += s.Prior.P[i*d+i] * s.Run.Inv[i*d+i]
	}
	g.c, g.z = dense.Resize(g.c, d), dense.Resize(g.z, d)
	dense.Symv(1, dense.Symmetric(s.Prior.P, d), dense.Vector(s.Run.Mean), 0, dense.Vector(g.c))
	kl := trace + floats.Dot(g.c, s.Run.Mean) + s.Run.LogDet - s.Prior.LogDet
	e := siteEvaluation{ELBO: floats.Sum(c.E) - 0.5*kl, ELBOErr: goals.NeverZero(c.Err),
		Gap: math.Inf(1)}
	if !c.Wild && !math.IsInf(e.ELBO, 0) && g.target.Add(s.Prior, s.Lin.X, c.Tg, nil, &t.Buf) {
		for n, a := range c.D1 {
			c.A[n] = -a
		}
		s.Lin.X.AddMulTOn(g.c, c.A, nil, &t.Buf)
		s.Lin.Prior.Solve(g.z, g.c)
		mean := 0.5 * floats.Dot(g.c, g.z)
		own := floats.Dot(c.Tg, c.V)
		rounding := dense.Epsilon * (float64(d) + math.Abs(own) + math.Abs(s.Run.LogDet) +
			math.Abs(g.target.LogDet))
		precision := max(0, own+trace+s.Run.LogDet-g.target.LogDet) + rounding
		copy(g.z, g.c)
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(g.target.L, d), dense.Vector(g.z))
		e.Gap = goals.NeverZero(0.5*floats.Dot(g.z, g.z) + 0.5*precision)
		if c.Certain {
			e.GapBound = goals.NeverZero(mean + precision)
		}
	}
	return e, s.Workers.Halt.Err()
}
