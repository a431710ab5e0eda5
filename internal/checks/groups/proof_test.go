package groups

import (
	"context"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
)

// TestGroupsProofUnderWidePriors checks the gap bound under priors whose standard deviations are far
// above the scale of the data. They magnify the rounding of gradients. At every pass the bound must
// hold, and at the end it must be small.
func TestGroupsProofUnderWidePriors(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"one":     {rows: 400, common: 2, levels: []int{21}, sd: [][]float64{{0.8, 0.4}}, rho: 0.5},
		"crossed": {rows: 400, common: 2, levels: []int{21, 9}, sd: [][]float64{{0.8, 0.4}, {0.5}}},
		"zero":    {rows: 400, common: 2, levels: []int{21, 9}, sd: [][]float64{{0.8, 0}, {0}}},
	} {
		for _, lik := range []Likelihood{GaussianNoise{Var: 0.7}, BernoulliLogit{}, Poisson{}} {
			c := newMixedCase(t, lik, o, 5)
			for _, sd := range []float64{1, 1e5, 1e10, 1e14} {
				g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Groups: c.groups,
					PriorSD: sd})
				if err != nil {
					t.Fatal(err)
				}
				_, best, err := g.Fit(context.Background(), &Solver{Goal: 1e-9, MaxPasses: 300})
				if err != nil {
					t.Fatal(err)
				}
				small := math.Inf(1)
				for _, goal := range []float64{1, 1e-2, 1e-4, 1e-6} {
					_, res, err := g.Fit(context.Background(), &Solver{Goal: goal})
					if err != nil {
						t.Fatal(err)
					}
					for _, it := range res.Trace {
						if short := best.ELBO - it.ELBO; short > it.GapBound+1e-9 {
							t.Errorf("%s, %T, prior sd %g, pass %v: short by %v nats, proved %v", name,
								lik, sd, it.Passes, short, it.GapBound)
						}
					}
					small = min(small, res.GapBound)
				}
				if !(small <= 2e-6) {
					t.Errorf("%s, %T, prior sd %g: the gap bound is %v", name, lik, sd, small)
				}
			}
		}
	}
}
