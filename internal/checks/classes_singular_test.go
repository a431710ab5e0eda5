package checks

import (
	"context"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestClassesGPSingular compares softmax GPs that have a linear kernel with the equivalent GLM.
// Their covariance is singular and the prior is wide. The family of the GLM contains all q of the
// GP, so no GP may have a greater ELBO. Some columns are far from 0, constant, or copies of
// another column.
func TestClassesGPSingular(t *testing.T) {
	ctx, converged, all := context.Background(), 0, 0
	for seed := range testkit.Seeds(testkit.Longer(60, testkit.Shorter(24, 16))) {
		rng := testkit.Rand(seed)
		n, d, k := 8+rng.IntN(20), 2+rng.IntN(30), 3+rng.IntN(3)
		x, y := testkit.NormalMatrix(rng, n, d), make([]float64, n)
		unit := []float64{1, 5, 30}[rng.IntN(3)]
		for j := range d {
			kind := rng.IntN(6)
			for i := range n {
				switch v := unit * x.At(i, j); {
				case kind == 0:
					x.Set(i, j, unit)
				case kind == 1 && j > 0:
					x.Set(i, j, x.At(i, 0))
				case kind == 2:
					x.Set(i, j, 100*unit+v)
				default:
					x.Set(i, j, v)
				}
			}
		}
		for i := range y {
			y[i] = float64(rng.IntN(k))
		}
		y[0] = float64(k - 1)
		glm, err := NewGLM(x, y, Softmax{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, best, err := glm.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		gp, err := NewGP(x, y, Linear{}, Softmax{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := gp.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !(res.ELBO <= best.ELBO+best.Gap+best.ELBOErr+res.ELBOErr+1e-6) {
			t.Errorf("seed %d: the ELBO of %d rows in %d dimensions, %v, is above that of the "+
				"GLM, %v",
				seed, n, d, res, best)
		}
		if all++; res.Status == Converged {
			converged++
		}
	}
	if converged < all*9/10 {
		t.Errorf("%d of %d have converged", converged, all)
	}
	t.Logf("%d of %d have converged", converged, all)
}
