package descent

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// This file leaps to other states of an objective with several optima. Coordinate ascent needs
// hundreds of passes to empty a component of a mixture that is not needed, because each pass moves
// a small part of its rows to another component. Joining both takes one pass.
//
// Leaps begin after settledSteps exact steps, when the state is near an optimum. Objective.Leap
// chooses one, and leapSteps steps to the target follow, without a step size. The state that they
// reach is kept if its objective is less than the objective before the leap. If not, an ordinary
// step follows and the leap is never tried again. The objective therefore never rises.
//
// descend calls leap in every step. Mixture is the only model with leaps. Read descent.go first.

const leapSteps = 3

// leaps holds what was tried.
type leaps struct {
	tried []bool
	done  bool // no leap is left
}

// state writes or reads the state of n leaps.
func (l *leaps) state(c *save.Coder, n int) {
	if n == 0 {
		return
	}
	c.Bool(&l.done)
	l.start(n)
	for i := range l.tried {
		c.Bool(&l.tried[i])
	}
}

func (l *leaps) start(n int) {
	if l.tried == nil {
		l.tried = make([]bool, n)
	}
}

// leap reports whether it has changed the state, whose objective is start.
func (s *Stepper[Q]) leap(ctx context.Context, same func() *rand.Rand, start float64) (bool,
	error) {
	l := &s.leaps
	if s.o.Leaps == 0 || l.done || s.mix.alone < settledSteps || !s.all || !s.o.Exact ||
		!s.o.Infinite {
		return false, nil
	}
	l.start(s.o.Leaps)
	if err := s.o.Set(s.Trial, s.Q); err != nil {
		return false, err
	}
	i := s.o.Leap(s.Trial, l.tried)
	s.More += s.o.N
	if l.done = i < 0; l.done {
		return false, s.Halt.Err()
	}
	l.tried[i] = true
	v, err := s.objective(ctx, same(), s.Trial, nil)
	for range leapSteps {
		if err != nil {
			return false, s.Halt.Err()
		}
		to := slices.Clone(s.o.Prior)
		floats.Sub(to, family(s.Trial).MeanGrad(nil, s.scratch))
		if family(s.Trial).SetNatural(to) != nil {
			return false, s.Halt.Err()
		}
		v, err = s.objective(ctx, same(), s.Trial, nil)
		s.More += s.o.N
	}
	if err != nil || !(v < start) {
		return false, s.Halt.Err()
	}
	s.mix.Reset()
	s.accept(math.Inf(1))
	s.Gap = math.Inf(1)
	return true, nil
}
