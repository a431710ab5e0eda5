package fma

import (
	"math"
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
			c = layouts(rng, n, n, rng.NormFloat64)[0]
			want = clone(c)
			Syrk(Run{}, -2, b.T(), want)
			cut := rng.IntN(n/4+1) * 4
			p.Syrk(Run{}, -2, c, 0, cut)
			p.Syrk(Run{}, -2, c, cut, n)
			same(t, "Syrk", c.Data, want.Data)
		}
	})
}

// TestRatios: of any length, the quotients with a least divisor, NaN and infinities going their way.
func TestRatios(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(11, 12))
		for n := range 20 {
			y, s, got, square := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
			want, wantSquare := make([]float64, n), make([]float64, n)
			for i := range y {
				y[i], s[i] = float64(rng.IntN(5)), rng.Float64()*1e-3
				switch rng.IntN(8) {
				case 0:
					s[i] = math.NaN()
				case 1:
					s[i] = 0
				case 2:
					y[i] = math.Inf(1)
				}
				r := 1 / max(s[i], 1e-4)
				want[i] = 0.3 * y[i] * r
				wantSquare[i] = want[i] * r
			}
			Ratios(got, square, y, s, 0.3, 1e-4)
			same(t, "w·y/s", got, want)
			same(t, "w·y/s²", square, wantSquare)
		}
	})
}
