package paper

import (
	"context"
	"iter"

	"github.com/pgsvi/pgsvi"
)

// Passes runs n passes of s from run. It yields the iteration at the end of each pass, with Passes
// as a whole number. It does not evaluate the ELBO, so the caller must. It ends on an error.
func Passes(ctx context.Context, s pgsvi.Solver, run *pgsvi.Result,
	n int) iter.Seq2[pgsvi.Iteration, error] {
	s.EvalEvery, s.MaxPasses = -1, float64(n+1)
	return func(yield func(pgsvi.Iteration, error) bool) {
		pass := 0
		for it, err := range s.Steps(ctx, run) {
			if err != nil {
				yield(it, err)
				return
			}
			const slack = 1e-9 // rounding of a sum of fractions
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

// ELBO evaluates a state.
func ELBO(st pgsvi.Stepper) (float64, error) {
	e, err := st.Evaluate(context.Background(), nil)
	return e.ELBO, err
}

// PGSVI returns the Solver of PG-SVI as published, for n observations: the constant step size β =
// betaN/n and reshuffled mini-batches of the given size, for 10 passes. The published settings for
// sonar, ionosphere and USPS (Khan et al., 2016, the experiments) are betaN 0.2, 2 and 2.5, batches
// of 5, 5 and 20, and GPOptions.Estimator = ScoreFunctionPlain(n) for n = 2000, 500 and 2000
// draws.
func PGSVI(n int, betaN float64, batch int) *pgsvi.Solver {
	return &pgsvi.Solver{StepSize: pgsvi.ConstantStep(betaN / float64(n)), BatchSize: batch,
		MaxPasses: 10}
}
