package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file proves gap bounds for a q that is kept over the weights; see gap.go of package term for
// the bound. WeightAlgebra.Evaluate calls Prove.

// loosePrecisions is the largest observed ratio of the bound on the precisions by the sites alone
// to the exact value. If the exact value may be below the goal, a product XᵀΓX and its factor
// compute it.
const loosePrecisions = 10

// worthStepping is the estimated gap, in nats per weight, below which a step of the mean pays if
// there are many rows. It takes their expectations but no XᵀΓX, and the targets at the new mean
// are as good as after one more pass.
const worthStepping = 1

// nearGoal is the estimated gap, as a part of the goal, below which a proof by rows is tried
// before a step of the mean. If |ℓ‴| ≤ |ℓ″|, it takes no expectations.
const nearGoal = 0.2

// worthProving is the estimated gap, in nats, below which the gap of a WeightAlgebra is proved. A
// proof takes the expectations of all rows and the product XᵀΓX once more.
const worthProving = 1

// weightGap is the workspace of the gap bound of a WeightAlgebra.
type weightGap struct {
	target gauss.Gaussian // Λ0 + XᵀΓ̂X
	c, z   []float64      // the gradient and Λ0⁻¹c
	Buf    design.Work

	// Promise and boundHere use the results of inspect.
	known  bool      // the next fields belong to the current state of all rows
	up     []float64 // gradient of the ELBO in the mean
	mean   float64   // predicted gain of a step of the mean, in nats
	change term.SiteChange
}

// Prove takes the step of the mean of the problem of all rows, V held, unless the ELBO would
// fall. Near the goal it first tries a proof without the step. It returns a gap bound of the new
// state, except for the error of log|P|. The error comes from the crew, and the proof can then be
// continued.
func (s *WeightAlgebra) Prove(goal float64, near bool) (float64, error) {
	if !s.Terms.Concave() || !s.Batch.Cur.Certain {
		return math.Inf(1), nil
	}
	if near && !s.Proof.stepped {
		if bound, err := s.boundHere(goal); err != nil || bound <= goal {
			return bound, err
		}
	}
	if err := s.stepMean(); err != nil {
		return 0, err
	}
	return s.boundHere(goal)
}

// boundHere is Prove without a step.
func (s *WeightAlgebra) boundHere(goal float64) (float64, error) {
	p, m := &s.Batch, &s.Mover
	c := &p.Cur
	if !c.Certain {
		return math.Inf(1), nil
	}
	s.inspect()
	g, d := &s.Gap, s.Lin.X.Cols
	g.z = dense.Resize(g.z, d)
	s.Lin.Prior.Solve(g.z, g.up)
	rounding := s.Unsolved()
	mean, rows := 0.5*floats.Dot(g.up, g.z), math.Inf(1)
	change := &g.change
	precision := change.Gap()
	byRows := func() { // if the bound by rows may be lower
		if math.IsInf(rows, 1) && mean+precision > goal && mean > precision {
			rows = s.Terms.RowGap(&c.Marginals, -c.Value, p.Base.V, nil, goal-2*precision,
				s.Workers.Halt)
		}
	}
	byRows()
	if total := mean + precision; min(total, rows+2*precision) > goal &&
		precision <= loosePrecisions*goal && g.target.Add(s.Prior, s.Lin.X, c.Tg, nil, &g.Buf) {
		off := dense.Epsilon * (math.Abs(g.target.LogDet) + math.Abs(m.Cur.LogDet) + change.Nuclear)
		exact := max(0, change.Trace+m.Cur.LogDet-g.target.LogDet) + off
		precision = min(precision, exact)
		byRows()
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return 0, err
	}
	s.Proof.rounding = rounding
	// The bound by rows holds the covariance fixed. The gain of the mean by the move of V is at
	// most the gain of V itself, so that counts twice.
	return min(mean+precision, rows+2*precision) + rounding, nil
}

// Unsolved bounds the gain that rounding of the mean w leaves. The mean solves Λ0w = Xᵀa up to a
// residual r. The exact solution is at P⁻¹r, where the ELBO changes by about ½rᵀP⁻¹r. The bound
// is twice that.
func (s *WeightAlgebra) Unsolved() float64 {
	t, m := &s.Pg, &s.Mover
	t.h.Resize(s.Lin.X.Cols)
	off := s.ResidualError()
	if plain := off <= term.ElboSlack*math.Abs(s.Batch.Cur.Value); plain {
		for j, l := range s.Lin.Prior.Prec {
			t.h.Hi[j] = -l * m.Cur.Mean[j]
		}
		s.Lin.X.AddMulTOn(t.h.Hi, s.Batch.Cur.A, nil, &s.Gap.Buf)
	} else {
		m.Base.Residual(t.h, &m.Cur, s.Lin.X, s.Batch.Cur.A, &s.Gap.Buf)
		off = 0
	}
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(m.Cur.L, s.Lin.X.Cols), dense.Vector(t.h.Hi))
	r := floats.Dot(t.h.Hi, t.h.Hi)
	return r + 2*math.Sqrt(r*off) + off
}

// ResidualError returns a bound on eᵀP⁻¹e for the rounding e of a residual r in float64, or +Inf
// if it has no bound. A sum of N products has an error of at most Nε‖a‖‖x_j‖ for column j.
// Because P ⪰ Λ0, the bound is (Nε‖a‖)² Σ_j ‖x_j‖²/λ_j, and its sum is the sum of the variances
// of the rows under the prior.
func (s *WeightAlgebra) ResidualError() float64 {
	c, prec := &s.Batch.Cur, s.Lin.Prior.Prec
	if prec == nil || s.Mover.Cur.Double || slices.Min(c.Gamma) < 0 {
		return math.Inf(1)
	}
	sums := float64(s.N+2) * floats.Norm(c.A, 2) * math.Sqrt(floats.Sum(s.Batch.Base.V))
	var own float64
	for j, w := range s.Mover.Cur.Mean {
		own += prec[j] * w * w
	}
	e := dense.Epsilon * (sums + math.Sqrt(own))
	return e * e
}

// stepMean takes the step of the mean once, before a proof of the gap. The error comes from the
// crew.
func (s *WeightAlgebra) stepMean() error {
	if c := &s.Batch.Cur; s.Proof.stepped || s.Terms.Noise() > 0 && slices.Equal(c.Gamma, c.Tg) {
		return nil // done, or there is no gain
	}
	if !s.MeanStep() {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
	}
	s.Proof.stepped = true
	return nil
}

// MeanStep moves the mean of the problem of all rows to m⁺ = m − Vc, V held, or to the result of
// the best mean of the inner steps, if its value does not rise. It reports whether it did.
func (s *WeightAlgebra) MeanStep() bool {
	p := &s.Batch
	x := &p.Cur.Marginals
	if p.Outer > 0 && !x.Wild {
		p.Inner(innerLeast, innerPart)
		x = p.In.At
	}
	if s.Workers.Halt.Stopped() || !p.again(x) {
		return false
	}
	s.BaseAlgebra.follow(&p.Cur)
	return true
}
