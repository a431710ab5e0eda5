package checks

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestLOOCostly checks LOO of likelihoods with expensive expectations, where only a part of the rows
// has responses of the other sites. Every prediction must be within its error of a fit without its
// row, and the errors must not be vacuous.
func TestLOOCostly(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(5)
	const n = 300
	x := mat.NewDense(n, 2, nil)
	shares, counts := make([]float64, n), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		p := 1 / (1 + math.Exp(-0.5*x.At(i, 0)))
		shares[i] = min(0.99, max(0.01, p+0.2*rng.NormFloat64()))
		if rng.Float64() < 0.7 {
			counts[i] = math.Floor(4 * p * rng.ExpFloat64())
		}
	}
	for _, c := range []struct {
		lik Likelihood
		y   []float64
	}{{Beta{Precision: 6}, shares}, {ZeroInflated{Zero: 0.3, Shape: 1}, counts}} {
		g, post := fittedGLM(t, x, c.y, c.lik, &GLMOptions{Intercept: true})
		l, err := g.LOO(ctx, post)
		mustLOO(t, l, err)
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			return int(math.Copysign(1, l.Influence[b]-l.Influence[a]))
		})
		for k := 0; k < n; k += 1 + k { // the most influential rows, and some of the others
			i := order[k]
			rest, yRest := testkit.LeaveOut(x, c.y, i)
			_, p := fittedGLM(t, rest, yRest, c.lik, &GLMOptions{Intercept: true})
			want := p.At(testkit.RowOf(x, i)).LogProb(nil, c.y[i:i+1])[0]
			if !(math.Abs(l.Pointwise[i]-want) <= l.PointErr[i]+1e-9) {
				t.Errorf("%T, row %d of influence rank %d: %v ± %v, refitted %v", c.lik, i, k,
					l.Pointwise[i], l.PointErr[i], want)
			}
		}
		if !(l.Err < 0.01*l.SE) {
			t.Errorf("%T: error %v, standard error %v", c.lik, l.Err, l.SE)
		}
	}
}
