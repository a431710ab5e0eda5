package gauss

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
)

// TestMixture compares the methods of a mixture of two Gaussians with its moments.
func TestMixture(t *testing.T) {
	prob := []float64{0.3, 0.7}
	means := [][]float64{{1, -1}, {0.5, 2}}
	of := []Cov{Diagonal{0.5, 2}, Diagonal{1, 0.25}}
	c, mean := NewMixture(of[0], prob, means, of)
	want := [2][2]float64{}
	for k, p := range prob {
		v := of[k].(Diagonal)
		for i := range 2 {
			want[i][i] += p * v[i]
			for j := range 2 {
				want[i][j] += p * (means[k][i] - mean[i]) * (means[k][j] - mean[j])
			}
		}
	}
	near := func(what string, x, y float64) {
		t.Helper()
		if math.Abs(x-y) > 1e-14 {
			t.Errorf("%s is %v, want %v", what, x, y)
		}
	}
	near("the mean", mean[0], 0.3+0.35)
	x := []float64{2, -3}
	var diag, mul, quad [2]float64
	c.Diag(diag[:])
	c.Mul(mul[:], x)
	c.Variances(quad[:1], &design.Matrix{Rows: 1, Cols: 2, Dense: x}, nil)
	sym, square := c.Sym(), 0.0
	for i := range 2 {
		near("a variance", diag[i], want[i][i])
		near("a product", mul[i], want[i][0]*x[0]+want[i][1]*x[1])
		near("a covariance", sym.At(i, 1), want[i][1])
		square += x[i] * mul[i]
	}
	near("the variance of a row", quad[0], square)
	rng, draws := rand.New(rand.NewPCG(1, 2)), 200000
	var sum, sq float64
	for range draws {
		d := []float64{0, 0}
		if err := c.Draw(d, rng); err != nil {
			t.Fatal(err)
		}
		sum, sq = sum+d[1], sq+d[0]*d[1]
	}
	if m, s := sum/float64(draws), sq/float64(draws); math.Abs(m) > 0.02 ||
		math.Abs(s-want[0][1]) > 0.02 {
		t.Errorf("draws have mean %v and covariance %v, want 0 and %v", m, s, want[0][1])
	}
}
