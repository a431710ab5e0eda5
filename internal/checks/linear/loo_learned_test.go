package linear

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestLOOLearned checks a GLM whose Fit learns hyperparameters: its LOO agrees with LOO of the GLM that
// Learn returns, and PSIS finds that q is exact.
func TestLOOLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, shape := range [][2]int{{60, 3}, {20, 40}} { // the second keeps a dual covariance
		n, d := shape[0], shape[1]
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		for i := range n {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = 30 + 20*x.At(i, 0) + 10*rng.NormFloat64()
		}
		ctx := context.Background()
		model, err := pgsvi.NewGLM(x, y, pgsvi.GaussianNoise{},
			&pgsvi.GLMOptions{Intercept: true, Learn: &pgsvi.LearnOptions{}})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := model.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		learned, same, _, err := model.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := model.LOO(ctx, post)
		if err != nil {
			t.Fatal(err)
		}
		want, err := learned.LOO(ctx, same)
		if err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(got.ELPD-want.ELPD) <= 1e-6*math.Abs(want.ELPD)) {
			t.Errorf("%d×%d: ELPD %v, the learned model has %v", n, d, got.ELPD, want.ELPD)
		}
		p, err := model.PSIS(ctx, nil, post, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.KHat > 0.7 {
			t.Errorf("%d×%d: k̂ is %v for an exact posterior", n, d, p.KHat)
		}
	}
}
