package paper

import (
	"context"
	"iter"

	"github.com/pgsvi/pgsvi"
)

// Passes runs n passes of s from st and yields the iteration with which each ends,
// with Passes a whole number, for the caller to evaluate: the run does not. An error
// ends it.
func Passes(ctx context.Context, s pgsvi.Solver, st pgsvi.Stepper, n int) iter.Seq2[pgsvi.Iteration, error] {
	s.EvalEvery, s.MaxPasses = -1, float64(n+1)
	return func(yield func(pgsvi.Iteration, error) bool) {
		pass := 0
		for it, err := range s.Steps(ctx, st) {
			if err != nil {
				yield(it, err)
				return
			}
			const slack = 1e-9 // a sum of fractions
			if int(it.Passes+slack) == pass {
				continue
			}
			pass++
			it.Passes = float64(pass)
			if !yield(it, nil) || pass == n {
				return
			}
		}
	}
}
