package fma

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestGeometric checks sums with weights that are exponentials, and that all paths have the same
// bits.
func TestGeometric(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for n := range 24 {
		wide := 4*n + rng.IntN(20)
		table := make([]float64, 3*wide)
		for i := range table {
			table[i] = rng.NormFloat64()
		}
		up, down := rng.IntN(wide-4*n+1), rng.IntN(wide-4*n+1)
		// the weight at ±i is e^(∓bi − ci²), for i from 0 on
		b, c := rng.NormFloat64(), 0.1*rng.Float64()
		weight := func(i, side int) float64 {
			x := float64(i)
			return math.Exp(-float64(side)*b*x - c*x*x)
		}
		var w, r [8]float64
		for i := range 8 {
			k, side := i%4, 1-2*(i/4)
			w[i], r[i] = weight(k, side), weight(k+4, side)/weight(k, side)
		}
		q := math.Exp(-32 * c)
		sums := func(path string) [3]float64 {
			defer force(path)()
			return Geometric(n, &w, &r, q, table, up, down)
		}
		got := sums("Go")
		for _, path := range available() {
			y := sums(path)
			same(t, "geometric by "+path, y[:], got[:])
		}
		for k, g := range got {
			var sum, size float64
			for i := range 4 * n {
				a, b := weight(i, 1)*table[k*wide+up+i], weight(i, -1)*table[k*wide+down+i]
				if k == 1 {
					b = -b
				}
				sum += a + b
				size += math.Abs(a) + math.Abs(b)
			}
			if !(math.Abs(g-sum) <= 1e-12*size) {
				t.Errorf("sum %d of %d: %v, want %v", k, 4*n, g, sum)
			}
		}
		for _, bad := range [][2]int{{wide - 4*n + 1, 0}, {0, wide - 4*n + 1}, {-1, 0}, {0, -1}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("from %v on, of %d, are taken for %d", bad, wide, 4*n)
					}
				}()
				Geometric(n, &w, &r, q, table, bad[0], bad[1])
			}()
		}
	}
}
