package pgsvi

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestLearnConstant checks that responses which are all equal, or a single one, give the same answer
// up to their unit.
func TestLearnConstant(t *testing.T) {
	for _, n := range []int{1, 2, 4, 30} {
		var want [2]float64
		for _, unit := range []float64{1, 1e-6, 1e-3, 1e3, 1e6} {
			x, y := mat.NewDense(n, 1, nil), make([]float64, n)
			for i := range y {
				x.Set(i, 0, float64(i))
				y[i] = 5 * unit
			}
			gp, err := NewGP(x, y, SquaredExp{}, GaussianNoise{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, post, _, err := gp.Learn(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			m, v := post.At(mat.NewDense(1, 1, []float64{0.5})).Latent(nil, nil)
			got := [2]float64{m[0] / unit, math.Sqrt(v[0]) / unit}
			if unit == 1 {
				want = got
				if !(math.Abs(got[0]-5) < 2) {
					t.Errorf("%d rows of 5: %v", n, got)
				}
				continue
			}
			for k := range got {
				if math.Abs(got[k]-want[k]) > 1e-4*math.Abs(want[k]) {
					t.Errorf("%d rows, unit %v: %v, want %v", n, unit, got, want)
				}
			}
		}
	}
}
