package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// outerRows returns rows whose linear predictors vary by about spread.
func outerRows(seed uint64, n, d int, spread float64) (*mat.Dense, []float64) {
	rng := testRand(seed)
	x, eta := mat.NewDense(n, d, nil), make([]float64, n)
	w := make([]float64, d)
	for j := range w {
		w[j] = spread / math.Sqrt(float64(d)) * rng.NormFloat64()
	}
	for i := range eta {
		for j := range w {
			x.Set(i, j, rng.NormFloat64())
			eta[i] += x.At(i, j) * w[j]
		}
	}
	return x, eta
}

func outerLabels(seed uint64, eta []float64) []float64 {
	rng, y := testRand(seed), make([]float64, len(eta))
	for i, e := range eta {
		y[i] = plusMinus(rng.Float64() < 1/(1+math.Exp(-e)))
	}
	return y
}

// grams returns the number of matrices XᵀΓX that s has taken, parts of them for blocks.
func (s *weightAlgebra) grams() float64 {
	return float64(s.mover.buf.rows+s.gap.buf.rows+s.blocks.mover.buf.rows+s.pg.buf.rows) / float64(s.n)
}

// TestOuterSteps: with many columns a fit takes three matrices XᵀΓX to 0.01 nats, and few more to the end, which is that of
// the steps without inner ones.
func TestOuterSteps(t *testing.T) {
	t.Parallel()
	type problem struct {
		name string
		x    *mat.Dense
		y    []float64
		end  float64 // matrices of the whole fit, at most
	}
	x, eta := outerRows(1, 150, 70, 3)
	problems := []problem{{"150 rows of 70 columns", x, outerLabels(2, eta), 10}}
	if !testing.Short() {
		x, eta := outerRows(3, 900, 100, 3)
		problems = append(problems, problem{"900 rows of 100 columns", x, outerLabels(4, eta), 8})
	}
	t.Run("USPS", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes a moment")
		}
		s := loadUSPS(t, 3, 5)
		problems = append(problems, problem{"USPS 3 v 5", s.x, s.y, 9})
		var all mat.Dense
		s = loadUSPS(t, 2, 4)
		all.Stack(s.x, s.xtest)
		problems = append(problems, problem{"USPS 2 v 4, all", &all, append(append([]float64{}, s.y...), s.ytest...), 9})
	})
	for _, p := range problems {
		g := mustGLM(t, p.x, p.y, BernoulliLogit{}, GLMOptions{})
		ctx := context.Background()
		plain := mustStepper(t, g)
		plain.alg.(*weightAlgebra).batch.outer = 0
		want, err := (&Solver{}).Resume(ctx, &Result{Stepper: plain})
		if err != nil {
			t.Fatal(err)
		}
		near := math.Inf(1)
		res := solve(t, Solver{Recorder: RecorderFunc(func(it Iteration) {
			if a := algOf[*weightAlgebra](it.State); it.ELBO > want.ELBO-0.01 {
				near = min(near, a.grams())
			}
		})}, g)
		all := algOf[*weightAlgebra](res.Stepper).grams()
		t.Logf("%s: %v matrices to 0.01 nats, %v in all in %v passes; %v without inner steps in %v", p.name, near, all, res.Passes, plain.alg.(*weightAlgebra).grams(), want.Passes)
		if near > 3 || all > p.end || res.Passes > p.end {
			t.Errorf("%s: %v matrices to 0.01 nats, %v in all in %v passes, at most 3 and %v", p.name, near, all, res.Passes, p.end)
		}
		if res.Status != Converged || !(math.Abs(res.ELBO-want.ELBO) <= 1e-9) {
			t.Errorf("%s: %v at %v, want %v", p.name, res.Status, res.ELBO, want.ELBO)
		}
		// A proof takes one matrix more, at most.
		if res = solve(t, Solver{Goal: 0.01}, g); algOf[*weightAlgebra](res.Stepper).grams() > 4 || res.Passes > 3 || !(res.GapBound >= want.ELBO-res.ELBO) {
			t.Errorf("%s: %v matrices and %v passes to a proved gap of %v", p.name, algOf[*weightAlgebra](res.Stepper).grams(), res.Passes, res.GapBound)
		}
	}
}

// TestOuterLikelihoods: outer steps end where others do, whatever the likelihood, the prior and the rows are.
func TestOuterLikelihoods(t *testing.T) {
	t.Parallel()
	x, eta := outerRows(5, 120, 66, 1)
	labels, counts := outerLabels(6, eta), make([]float64, len(eta))
	for i, e := range eta {
		counts[i] = math.Round(math.Exp(e))
	}
	ctx := context.Background()
	for _, c := range []struct {
		name string
		lik  Likelihood
		y    []float64
		sd   float64
	}{
		{"probit", BernoulliProbit{}, labels, 1},
		{"Poisson", Poisson{}, counts, 0.3},
		{"Poisson, wide prior", Poisson{}, counts, 30},
		{"Gaussian", GaussianNoise{}, eta, 1},
		{"Student's t", StudentT{}, eta, 1},
		{"logit, separable", BernoulliLogit{}, labels, 100},
	} {
		for _, rows := range []mat.Matrix{x, SparseOf(x)} {
			g := mustGLM(t, rows, c.y, c.lik, GLMOptions{PriorSD: c.sd, Intercept: true})
			st := mustStepper(t, g)
			if st.alg.(*weightAlgebra).batch.outer == 0 {
				t.Fatalf("%s: no outer steps", c.name)
			}
			plain := mustStepper(t, g)
			plain.alg.(*weightAlgebra).batch.outer = 0
			res, err := (&Solver{}).Resume(ctx, &Result{Stepper: st})
			want, errWant := (&Solver{}).Resume(ctx, &Result{Stepper: plain})
			if err != nil || errWant != nil {
				t.Fatal(c.name, err, errWant)
			}
			if tol := 1e-8 + res.ELBOErr + want.ELBOErr; res.Status != Converged || !(math.Abs(res.ELBO-want.ELBO) <= tol) {
				t.Errorf("%s: %v at %v after %v passes, %v at %v after %v without", c.name, res.Status, res.ELBO, res.Passes, want.Status, want.ELBO, want.Passes)
			}
			if testing.Short() {
				break
			}
		}
	}
}

// TestOuterResume: a run by outer steps that is saved or halted anywhere goes on to the same bits.
func TestOuterResume(t *testing.T) {
	t.Parallel()
	x, eta := outerRows(7, 100, 65, 3)
	g := mustGLM(t, x, outerLabels(8, eta), BernoulliLogit{}, GLMOptions{})
	ctx := context.Background()
	whole := newAsked(math.MaxInt64)
	res, err := (&Solver{}).Run(whole, g)
	if err != nil {
		t.Fatal(err)
	}
	want, asked := bitsOf(t, res), whole.asked.Load()
	rng := testRand(9)
	for range shorter(40, 8) {
		s := Solver{Workers: 1 + rng.IntN(3)}
		res, err := s.Run(newAsked(rng.Int64N(asked)), g)
		if err == nil || res == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		k := res.K
		if rng.IntN(2) == 0 {
			var file bytes.Buffer
			if err := res.Save(&file); err != nil {
				t.Fatal(err)
			}
			if res, err = s.LoadResult(ctx, &file, g); err != nil {
				t.Fatal(err)
			}
		}
		if res, err = s.Resume(ctx, res); err != nil {
			t.Fatal(err)
		}
		if bitsOf(t, res) != want {
			t.Errorf("another end, canceled after step %d", k)
		}
	}
}

func TestOuterAllocs(t *testing.T) {
	x, eta := outerRows(7, 100, 65, 3)
	g := mustGLM(t, x, outerLabels(8, eta), BernoulliLogit{}, GLMOptions{})
	st := mustStepper(t, g)
	step := func() {
		if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Evaluate(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(10, step); n > 0 && !raceEnabled {
		t.Errorf("%v allocations a step and evaluation", n)
	}
}
