package checks

import (
	"context"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestGoalDistance checks the distance between the mean of a fit that stops at a Goal and the
// optimum, as documented at Solver.Goal. It uses few rows and a wide prior, because the ELBO is
// least quadratic there.
func TestGoalDistance(t *testing.T) {
	const goal, prior = 0.01, 10.0
	ctx, ends, beyond := context.Background(), 0, 0
	for seed := range testkit.Seeds(testkit.Shorter(300, 60)) {
		rng := testkit.Rand(seed)
		n, d := 1+rng.IntN(10), 1+rng.IntN(3)
		x := testkit.NormalMatrix(rng, n, d)
		x.Scale(3, x)
		count, label, duration := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			duration[i] = math.Exp(rng.NormFloat64())
			count[i], label[i] = math.Floor(duration[i]), testkit.PlusMinus(rng.IntN(2) == 0)
			duration[i] *= label[i]
		}
		for _, c := range []struct {
			lik Likelihood
			y   []float64
		}{{Poisson{}, count}, {BernoulliLogit{}, label}, {Weibull{}, duration}} {
			g, err := NewGLM(x, c.y, c.lik, &GLMOptions{PriorSD: prior})
			if err != nil {
				t.Fatal(err)
			}
			early, short, err := g.Fit(ctx, &Solver{Goal: goal})
			if err != nil {
				t.Fatal(err)
			}
			best, _, err := g.Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			off := mat.NewVecDense(d, early.Mean(nil))
			off.SubVec(off, mat.NewVecDense(d, best.Mean(nil)))
			var chol mat.Cholesky
			if !chol.Factorize(best.Cov()) {
				t.Fatalf("seed %d, %T: no Cholesky factor", seed, c.lik)
			}
			var w mat.VecDense
			if err := chol.SolveVecTo(&w, off); err != nil {
				t.Fatal(err)
			}
			within := math.Sqrt(2 * short.GapBound)
			if far := math.Sqrt(mat.Dot(off, &w)); far > within {
				beyond++
				if far > 3*math.Sqrt(2*goal) {
					t.Errorf("seed %d, %T: %v standard deviations off", seed, c.lik, far)
				}
			}
			if far := mat.Norm(off, 2) / prior; !(far <= within*(1+1e-9)) {
				t.Errorf("seed %d, %T: %v prior standard deviations off, bound %v", seed, c.lik,
					far,
					within)
			}
			ends++
		}
	}
	if beyond == 0 || beyond > ends/2 {
		t.Errorf("%d of %d fits are beyond what a quadratic ELBO has", beyond, ends)
	}
	t.Logf("%d of %d fits are beyond what a quadratic ELBO has", beyond, ends)
}

// TestDefaultGoal checks that the default goal grows with the number of rows up to 1e-4 nats, and
// that a smaller Goal adds digits.
func TestDefaultGoal(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		rows int
		goal float64
	}{{20, 1e-10}, {500, 1e-4 / 64}, {2000, 1e-4}, {6000, 1e-4}} {
		rng := testkit.Rand(3)
		x := testkit.NormalMatrix(rng, c.rows, 4)
		y := make([]float64, c.rows)
		for i := range y {
			y[i] = testkit.PlusMinus(x.At(i, 0)+rng.NormFloat64() > 0)
		}
		g := testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))
		post, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		best, fine, err := g.Fit(ctx, &Solver{Goal: 1e-10})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(res.Goal/c.goal-1) > 1e-9 || !(res.GapBound <= c.goal) {
			t.Errorf("%d rows: proved %v of the goal %v, want %v", c.rows, res.GapBound, res.Goal,
				c.goal)
		}
		if !(fine.Gap <= 1e-10) || c.rows > 1000 && !(fine.Passes > res.Passes) {
			t.Errorf("%d rows: gap %v after %v passes, by default %v after %v", c.rows, fine.Gap,
				fine.Passes, res.Gap, res.Passes)
		}
		for j, m := range post.Mean(nil) {
			if off := math.Abs(m-best.Mean(nil)[j]) / best.SD(nil)[j]; off > math.Sqrt(2*c.goal) {
				t.Errorf("%d rows: mean %d is %v standard deviations off", c.rows, j, off)
			}
		}
	}
}
