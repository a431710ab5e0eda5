package site

import (
	"gonum.org/v1/gonum/floats"
)

// Expectations of several latent values cost more the more accurate they are. Far from the optimum
// a step gains far more than their error, so that they need be no better than that: the tolerance
// of a step follows from the gap before it, and a state whose bound on the error is no small part
// of its own gap is looked at again. A run becomes only more accurate, so that steps that errors
// alone make end, and none ends for want of accuracy.

// coarseTols are the tolerances of expectations, of each latent value.
var coarseTols = [...]float64{1e-4, 1e-6, 1e-8, 0}

// Of the gap, how much the errors of all expectations may add up to, by their tolerance before they
// are taken, and by their bounds thereafter.
const (
	coarseBefore = 0.03
	coarseAfter  = 0.1
)

// coarsePrior is the tolerance of expectations under the prior, from where a first step gains far
// more than their errors.
const coarsePrior = 1e-4

// coarsen chooses the tolerance of the expectations of the next step, where the terms have several
// latent values and the gap is known.
func (s *Sites) coarsen() error {
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

// refine takes the expectations of the current state of the problem again, more accurately, until
// their errors are small beside its gap.
func (s *Sites) refine() error {
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
		s.Cur.CopyFrom(&p.Cur.State)
	}
	return s.Workers.Halt.Err()
}

// expectAgain takes the expectations of the current state to that tolerance, from here on the
// coarsest. After an error the state is as it was.
func (p *Problem) expectAgain(tol float64) error {
	x := &p.Try
	x.CopyFrom(&p.Cur.State)
	copy(x.C, p.Cur.C)
	x.LogDet, x.Tol = p.Cur.LogDet, tol
	if err := p.terms.Expect(&x.State, p.index, p.Workers); err != nil {
		return err
	}
	x.Value = p.Cur.Value + floats.Sum(p.Cur.E) - floats.Sum(x.E)
	p.Cur, p.Try = p.Try, p.Cur
	p.tol, p.loose, p.aimed = tol, tol, false
	return nil
}
