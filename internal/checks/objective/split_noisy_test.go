package objective

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestNoisyDivergences fits a logistic regression with noisy gradients, divergences other than KL
// and h = 0, without a step size. A run that converges must be as close to the optimum as it
// reports. The objective at the draws of a gradient need not fall along that gradient, so steps
// that had to lower it shrank to nothing, and a run 11 nats from its optimum counted as converged.
func TestNoisyDivergences(t *testing.T) {
	const n, dim = 30, 3
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := make([][]float64, n), make([]float64, n)
	for i := range x {
		x[i], y[i] = make([]float64, dim), -1
		var eta float64
		for j := range x[i] {
			x[i][j] = rng.NormFloat64()
			eta += x[i][j] * float64(j+1) / dim
		}
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			y[i] = 1
		}
	}
	prior := NewIsotropic(dim, 4)
	logit := BernoulliLogit{}
	eta := func(i int, z []float64) float64 {
		return x[i][0]*z[0] + x[i][1]*z[1] + x[i][2]*z[2]
	}
	draws := LogLik{N: n, Dim: dim, LogProb: func(i int, z []float64) float64 {
		return logit.LogProb(y[i], eta(i, z))
	}}
	slopes := draws
	slopes.Grad = func(dst []float64, i int, z []float64) {
		d, _ := logit.Derivs(y[i], eta(i, z))
		for j := range dst {
			dst[j] += d * x[i][j]
		}
	}
	model := func(f Smooth) Objective[*Gaussian] {
		return Objective[*Gaussian]{F: f, H: KLTo(prior), Init: prior}
	}
	exact := model(Expect(Sites{X: x, Y: y, Lik: logit}, nil))
	_, best, err := exact.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	loss := func(q *Gaussian) float64 {
		f, _, err := exact.F.Value(context.Background(), NewEnv(nil, 1), q)
		if err != nil {
			t.Fatal(err)
		}
		return best.ELBO + f + exact.H.Value(q)
	}
	score, pathwise := Expect(draws, nil), Expect(slopes, Pathwise(0))
	sites := Expect(Sites{X: x, Y: y, Lik: logit}, Pathwise(5))
	for _, c := range []struct {
		name   string
		f      Smooth
		linear bool
		d      Divergence
		coords Coordinates
		batch  int
		passes float64 // the run must converge within this number; 0 means that it need not
	}{
		{"KL of h = 0", score, true, KL(), MeanParams, 0, 50},
		{"KL of h = 0, pathwise", pathwise, true, KL(), MeanParams, 0, 100},
		{"KL of h = 0, sites", sites, true, KL(), MeanParams, 0, 1000},
		{"SymKL", score, false, SymKL(), MeanParams, 0, 100},
		{"ReverseKL of h = 0", pathwise, true, ReverseKL(), MeanParams, 0, 100},
		{"SymKL, batches", score, false, SymKL(), MeanParams, 5, 300},
		{"Euclidean", score, false, Euclidean(), MeanParams, 0, 100},
		{"Euclidean of h = 0", score, true, Euclidean(), MeanParams, 0, 0},
		{"Euclidean of h = 0, factor", score, true, Euclidean(), Cholesky, 0, 100},
		{"Adam", pathwise, false, Adam(0, 0, 0), MeanParams, 0, 100},
		{"Adam of h = 0", score, true, Adam(0, 0, 0), MeanParams, 0, 0},
		{"RMSprop of h = 0", pathwise, true, RMSprop(0, 0), MeanParams, 0, 0},
		{"AdaGrad of h = 0", score, true, AdaGrad(0), MeanParams, 0, 0},
		{"Adadelta of h = 0", pathwise, true, Adadelta(0, 0), MeanParams, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := inCoords(model(c.f), c.coords)
			if c.linear {
				m = m.Linearized()
			}
			most := testkit.Shorter(1000., 400.)
			q, res, err := m.Fit(context.Background(),
				&Solver{Divergence: c.d, BatchSize: c.batch, MaxPasses: most})
			if err != nil {
				t.Fatal(err)
			}
			lost := loss(q)
			report := fmt.Sprintf("%v after %.0f passes; the loss is %.2g nats and Gap %.2g",
				res.Status, res.Passes, lost, res.Gap)
			t.Log(report)
			if res.Status == Converged && !(lost <= 3*res.Goal && res.Gap <= res.Goal) {
				t.Error(report)
			}
			if c.passes > 0 && c.passes <= most && !(res.Status == Converged &&
				res.Passes <= c.passes) {
				t.Errorf("want at most %g passes: %s", c.passes, report)
			}
		})
	}
}
