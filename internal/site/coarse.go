package site

import (
	"gonum.org/v1/gonum/floats"
)

// This file chooses the accuracy of the expectations of softmax models, which cost more when they
// are more accurate. Far from the optimum a step gains far more than the error of the
// expectations. The tolerance of a step therefore follows from the gap before it. If the bound on
// the error of a state is not a small part of its gap, its expectations are computed again. The
// accuracy never decreases during a run, so errors do not keep a run going, and no run ends for
// lack of accuracy. BaseAlgebra.Ascend and BaseAlgebra.Evaluate are the callers.

// coarseTols are the tolerances of expectations, per latent value.
var coarseTols = [...]float64{1e-4, 1e-6, 1e-8, 0}

// The errors of all expectations may add up to these parts of the gap: coarseBefore by the
// tolerance, before the expectations are computed, and coarseAfter by their error bounds
// afterward.
const (
	coarseBefore = 0.03
	coarseAfter  = 0.1
)

// coarsePrior is the tolerance of expectations under the prior, because a first step gains far
// more than their errors.
const coarsePrior = 1e-4

// coarsen chooses the tolerance of the expectations of the next step, if the model is a softmax
// model and the gap is known.
func (s *BaseAlgebra) coarsen() error {
	a, ok := s.on.(prover)
	if _, aims := s.on.(aimer); !ok || !aims || s.Cur.Wild {
		return nil
	}
	if err := s.refine(); err != nil {
		return err
	}
	gap := a.decrement()
	p := &s.Batch
	for _, p.tol = range coarseTols {
		if p.tol <= p.loose && p.tol*float64(s.N) <= coarseBefore*gap {
			break
		}
	}
	p.loose = p.tol
	return s.Workers.Halt.Err()
}

// refine computes the expectations of the current state of the problem again, more accurately,
// until their errors are small compared with its gap.
func (s *BaseAlgebra) refine() error {
	p := &s.Batch
	a, again := s.on.(prover), false
	for p.Cur.Tol > 0 {
		gap, finer := a.decrement(), 0.0
		if p.Cur.Err <= coarseAfter*gap {
			break
		}
		for _, finer = range coarseTols {
			if finer < p.Cur.Tol && finer*float64(s.N) <= coarseBefore*gap {
				break
			}
		}
		if err := p.expectAgain(finer); err != nil {
			return err
		}
		again = true
	}
	if again {
		s.Cur.CopyFrom(&p.Cur.Marginals)
	}
	return s.Workers.Halt.Err()
}

// expectAgain computes the expectations of the current state to the given tolerance, which is the
// coarsest from then on. After an error the state is unchanged.
func (p *Problem) expectAgain(tol float64) error {
	x := &p.Try
	x.CopyFrom(&p.Cur.Marginals)
	copy(x.C, p.Cur.C)
	x.LogDet, x.Tol = p.Cur.LogDet, tol
	if err := p.terms.Expect(&x.Marginals, p.index, p.Workers); err != nil {
		return err
	}
	x.Value = p.Cur.Value + floats.Sum(p.Cur.E) - floats.Sum(x.E)
	p.Cur, p.Try = p.Try, p.Cur
	p.tol, p.loose, p.aimed = tol, tol, false
	return nil
}
