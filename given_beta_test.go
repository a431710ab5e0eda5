package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// Runs of GLMs with a given step size have a Gap and a GapBound at every evaluation, which hold against a run without one,
// whatever the covariance is, with all rows in a step or some.
func TestGivenStepSizeHasGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	x, y := mat.NewDense(120, 4, nil), make([]float64, 120)
	for i := range y {
		for j := range 4 {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i] = float64(2*rng.IntN(2) - 1)
	}
	for _, covariance := range []Covariance{FullCovariance, DiagonalCovariance} {
		g := must(NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: covariance, PriorSD: 2}))
		_, best, err := g.Fit(context.Background(), nil)
		if err != nil || best.GapBound > 1e-6 {
			t.Fatal(best, err)
		}
		for _, size := range []int{0, 30} {
			var last Iteration
			_, r, err := g.Fit(context.Background(), &Solver{StepSize: ConstantStep(0.05), BatchSize: size, MaxPasses: 300, EvalEvery: 1, Recorder: RecorderFunc(func(it Iteration) {
				if math.IsNaN(it.ELBO) {
					return
				}
				last = it
				left := best.ELBO - it.ELBO
				if math.IsNaN(it.Gap) || !(it.GapBound >= left-1e-9) || math.IsInf(it.GapBound, 1) || it.Scope != OverQ {
					t.Errorf("%v, batches of %d, iteration %d: gap %v, bound %v of %v, %v nats below the best", covariance, size, it.K, it.Gap, it.GapBound, it.Scope, left)
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 && !(r.Status == Converged && last.GapBound < 0.01) {
				t.Errorf("%v: %v, bound %v", covariance, r, last.GapBound)
			}
		}
	}
}

// Steps with a given size reach the optimum where exponentials under the prior are beyond use.
func TestGivenStepSizeUnderWidePriors(t *testing.T) {
	for _, lik := range []Likelihood{Poisson{}, Exponential{}} {
		for _, covariance := range []Covariance{FullCovariance, DiagonalCovariance} {
			for _, rows := range []int{4, 30} { // fewer rows than weights, and more
				rng := rand.New(rand.NewPCG(3, 1))
				x, y := mat.NewDense(rows, 5, nil), make([]float64, rows)
				for i := range y {
					for j := range 5 {
						x.Set(i, j, rng.NormFloat64())
					}
					y[i] = float64(1 + rng.IntN(4))
				}
				g := must(NewGLM(x, y, lik, &GLMOptions{PriorSD: 6, Covariance: covariance}))
				_, best, err := g.Fit(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				_, r, err := g.Fit(context.Background(), &Solver{StepSize: ConstantStep(0.1), MaxPasses: 2000})
				if err != nil || !(best.ELBO-r.ELBO <= 0.01) {
					t.Errorf("%v, %v, %d rows: ELBO %v, want %v; %v", typeName(lik), covariance, rows, r.ELBO, best.ELBO, err)
				}
			}
		}
	}
}
