package linear

import (
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestGroupsLeaveZero checks that standard deviations leave 0 while other hyperparameters are
// learned. The scale starts so large that the best standard deviation is 0 at first. LogNormal is
// GaussianNoise of log y, which finds its noise in closed form, so both must agree.
func TestGroupsLeaveZero(t *testing.T) {
	const levels, rows, tau, noise = 20, 160, 0.25, 0.6
	left := 0
	for seed := range uint64(6) {
		rng := testkit.Rand(seed)
		effects := make([]float64, levels)
		for g := range effects {
			effects[g] = tau * rng.NormFloat64()
		}
		x, y, log := mat.NewDense(rows, 1+levels, nil), make([]float64, rows), make([]float64, rows)
		for i := range rows {
			g := rng.IntN(levels)
			x.Set(i, 0, rng.NormFloat64())
			x.Set(i, 1+g, 1)
			log[i] = 0.3*x.At(i, 0) + effects[g] + noise*rng.NormFloat64() - 3
			y[i] = math.Exp(log[i])
		}
		learn := func(y []float64, lik Likelihood) (scale, sd, objective float64) {
			g, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true, PriorSD: 100, InterceptSD: 100,
				Groups: []Group{{Name: "g", First: 1, Levels: levels, NoPrior: true}}})
			if err != nil {
				t.Fatal(err)
			}
			_, post, l, err := g.Learn(t.Context(), nil,
				&LearnOptions{NoPrior: true, Fixed: []string{"GLM.PriorSD"}, Tol: 1e-8})
			if err != nil {
				t.Fatal(err)
			}
			params := l.Params
			return params[len(params)-1].Value, post.Groups()[0].Effects[0].SD, l.Objective
		}
		variance, want, best := learn(log, GaussianNoise{})
		scale, sd, objective := learn(y, LogNormal{})
		best += floats.Sum(log) // y = e^log changes the density
		if !(math.Abs(objective-best) < 1e-4) || !(math.Abs(sd-want) < 1e-3*(want+0.1)) ||
			!(math.Abs(scale-math.Sqrt(variance)) < 1e-3*scale) {
			t.Errorf("seed %d: scale %v, sd %v, objective %v; want %v, %v, %v", seed, scale, sd, objective,
				math.Sqrt(variance), want, best)
		}
		if want > 0.05 {
			left++
		}
	}
	if left < 3 {
		t.Errorf("only %d of 6 standard deviations are far from 0", left)
	}
}

// TestGroupsWideStart checks that a search finds its optimum from a wide prior. The first step of a
// fit of Beta from there moves only the standard deviation, because the ELBO is not concave.
func TestGroupsWideStart(t *testing.T) {
	const levels, rows = 21, 81
	for seed := range uint64(4) {
		rng := testkit.Rand(seed)
		x, y := mat.NewDense(rows, 1+levels, nil), make([]float64, rows)
		for i := range rows {
			x.Set(i, 0, rng.NormFloat64())
			x.Set(i, 1+rng.IntN(levels), 1)
			y[i] = 1 / (1 + math.Exp(-0.3*x.At(i, 0)-0.8*rng.NormFloat64()))
		}
		learn := func(priorSD float64) *Learned {
			g, err := NewGLM(x, y, Beta{}, &GLMOptions{Intercept: true, PriorSD: priorSD,
				Groups: []Group{{Name: "g", First: 1, Levels: levels}}})
			if err != nil {
				t.Fatal(err)
			}
			_, _, l, err := g.Learn(t.Context(), nil, &LearnOptions{NoPrior: true,
				Bounds: map[string][2]float64{"GLM.PriorSD": {0.01, 20}}})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		near, wide := learn(0.5), learn(10)
		if !(math.Abs(wide.Objective-near.Objective) < 1e-3) || wide.Evaluations > 30 ||
			len(wide.Warnings) > 0 {
			t.Errorf("seed %d: from a wide prior, the objective is %v after %d evaluations, want %v; "+
				"warnings %q", seed, wide.Objective, wide.Evaluations, near.Objective, wide.Warnings)
		}
	}
}
