package mixture

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// rounds limits the rounds of k-means. The steps of the mixture continue from there.
const rounds = 15

// look is the number of rows between two checks of a context.
const look = 1 << 12

// KMeans returns the cluster, of k, of each row of z. A row has d numbers. The initial centers
// are drawn by k-means++ (Arthur and Vassilvitskii, 2007). The result is undefined if ctx is
// done.
func KMeans(ctx context.Context, z []float64, d, k int, rng *rand.Rand) []int {
	rows := len(z) / d
	row := func(n int) []float64 { return z[n*d : (n+1)*d] }
	square := func(x, y []float64) (s float64) {
		for i, v := range x {
			s += (v - y[i]) * (v - y[i])
		}
		return s
	}
	far, centres := make([]float64, rows), dense.NewRows(k, d)
	floats.AddConst(1, far)
	for j, c := range centres {
		copy(c, row(batches.Pick(far, rng)))
		for n := range far {
			if n%look == 0 && ctx.Err() != nil {
				return nil
			}
			s := square(row(n), c)
			if j > 0 {
				s = min(s, far[n])
			}
			far[n] = s
		}
	}
	cluster, size := make([]int, rows), make([]float64, k)
	for range rounds {
		changed := false
		for n := range cluster {
			if n%look == 0 && ctx.Err() != nil {
				return nil
			}
			best, least := 0, math.Inf(1)
			for k, c := range centres {
				if s := square(row(n), c); s < least {
					best, least = k, s
				}
			}
			changed = changed || cluster[n] != best
			cluster[n] = best
		}
		if !changed {
			break
		}
		clear(size)
		for n, k := range cluster { // running means; an empty cluster keeps its center
			size[k]++
			for i, x := range row(n) {
				if size[k] == 1 {
					centres[k][i] = x
				} else {
					centres[k][i] += (x - centres[k][i]) / size[k]
				}
			}
		}
	}
	return cluster
}
