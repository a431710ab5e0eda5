package fma

import (
	"math/rand/v2"
	"testing"
)

// TestPanels: products with what was packed have the bits of those that pack it each time.
func TestPanels(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		var p Panels
		for trial := range 120 {
			k, n, m := rng.IntN(70), rng.IntN(60), rng.IntN(9)
			if trial%30 == 0 {
				k += 500
			}
			b := layouts(rng, k, n, rng.NormFloat64)[rng.IntN(5)]
			p.Set(b)
			a := layouts(rng, m, k, rng.NormFloat64)[rng.IntN(5)]
			result := func(m int) Matrix {
				x := make([]float64, p.Len(m))
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				return Of(x, m, n, max(1, p.Stride()))
			}
			c := result(m)
			want := clone(c)
			Gemm(Run{}, 1, a, b, want)
			p.Mul(a, c.Data)
			for i := range m {
				same(t, "Mul", c.row(i, 0, n), want.row(i, 0, n))
			}

			w := make([]float64, k)
			for i := range w {
				w[i] = rng.NormFloat64()
			}
			c = result(n)
			want = clone(c)
			columns := b.T().all()
			for i, x := range columns {
				weighed := make([]float64, k)
				for v := range x {
					weighed[v] = w[v] * x[v]
				}
				for j := range i + 1 {
					*want.at(i, j) = sum(1, *want.at(i, j), weighed, columns[j])
				}
			}
			p.Gram(w, c.Data)
			for i := range n {
				same(t, "Gram", c.row(i, 0, i+1), want.row(i, 0, i+1))
			}
		}
	})
}
