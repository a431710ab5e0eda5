package pgsvi

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestObjectiveMixed: exact steps arrive where steps to the targets alone take hundreds or thousands of passes: under wide priors with
// few rows and nearly equal columns. The GLM, which has steps of its own, says where.
func TestObjectiveMixed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 2))
	for _, lik := range []Likelihood{Poisson{}, BernoulliProbit{}, BernoulliLogit{}, Exponential{}} {
		for n := 1; n <= 4; n++ {
			const d = 3
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i := range n {
				for j := range d {
					x.Set(i, j, rng.NormFloat64())
				}
				x.Set(i, 2, x.At(i, 1)*(1+1e-6*rng.NormFloat64()))
				y[i] = float64(1 + i)
				if factsOf(lik).Support == SignLabels {
					y[i] = float64(1 - 2*(i%2))
				}
			}
			g := mustGLM(t, x, y, lik, GLMOptions{PriorSD: 30})
			_, want, err := g.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			o, err := g.Objective()
			if err != nil {
				t.Fatal(err)
			}
			_, res, err := o.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%T, %d rows: %v after %v passes", lik, n, res.Status, res.Passes)
			if res.Status != Converged || res.Passes > 60 || math.Abs(res.ELBO-want.ELBO) > 1e-8*(1+math.Abs(want.ELBO)) {
				t.Errorf("%T, %d rows: %v after %v passes at ELBO %v, gap %v; the GLM has %v", lik, n, res.Status, res.Passes, res.ELBO, res.Gap, want.ELBO)
			}
		}
	}
}
