package fma

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPanels checks that products with a packed matrix have the same bits as products that pack
// the matrix each time.
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
			var scaled, plain Panels
			for i, v := range w {
				w[i] = math.Abs(v)
			}
			scaled.SetScaled(b, w)
			times := clone(b)
			for i := range k {
				for j := range n {
					*times.at(i, j) *= w[i]
				}
			}
			plain.Set(times)
			same(t, "SetScaled", scaled.data, plain.data)
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

// TestLower checks that solutions with a packed triangle have the same bits as solutions that
// pack the triangle each time, in place or not. It also checks the sums of their squares.
func TestLower(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(13, 14))
		var l Lower
		trials := 60
		if testing.Short() {
			trials = 30
		}
		for trial := range trials {
			n, m := rng.IntN(40), rng.IntN(30)
			if trial%10 == 0 {
				n += []int{Block - 20, 2*Block - 4, 2 * Block}[trial/10%3]
			}
			a := triangular(rng, n)
			l.Set(a)
			b := layouts(rng, n, m, rng.NormFloat64)[rng.IntN(3)]
			want := clone(b)
			Trsm(Run{}, a, want, false)
			squares := make([]float64, m)
			l.Solve(Matrix{}, b, squares)
			x := layouts(rng, n, m, rng.NormFloat64)[rng.IntN(3)]
			l.Solve(x, b, nil)
			l.Solve(b, b, nil)
			for j := range m {
				column := want.T().row(j, 0, n)
				same(t, "Solve", x.T().row(j, 0, n), column)
				same(t, "Solve in place", b.T().row(j, 0, n), column)
				s := 0.0
				for _, v := range column {
					s = math.FMA(v, v, s)
				}
				same(t, "squares", squares[j:j+1], []float64{s})
			}
		}
	})
}

// TestSquaredDifferences checks vectors of any length against the definition, with the same bits.
func TestSquaredDifferences(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(15, 16))
		for n := range 20 {
			x, y := make([]float64, n), make([]float64, n+1)
			for i := range x {
				x[i], y[i] = rng.ExpFloat64(), rng.NormFloat64()
				if rng.IntN(9) == 0 {
					y[i] = math.Inf(1)
				}
			}
			a, s := rng.NormFloat64(), rng.ExpFloat64()
			for name, c := range map[string]struct {
				do   func(x []float64)
				want func(x, y float64) float64
			}{
				"Scale": {func(x []float64) { Scale(a, x) },
					func(x, _ float64) float64 { return a * x }},
				"Divide": {func(x []float64) { Divide(x, s) },
					func(x, _ float64) float64 { return x / s }},
				"AddSquares": {func(x []float64) { AddSquares(x, a, y) },
					func(x, y float64) float64 { return x + float64((a-y)*(a-y)) }},
				"AddSquaresOver": {func(x []float64) { AddSquaresOver(x, a, y, s) },
					func(x, y float64) float64 {
						d := (a - y) / s
						return x + float64(d*d)
					}},
			} {
				got, want := slices.Clone(x), make([]float64, n)
				c.do(got)
				for i, v := range x {
					want[i] = c.want(v, y[i])
				}
				same(t, name, got, want)
			}
		}
	})
}

// TestRatios checks quotients of any length, with a smallest divisor, NaN and infinities.
func TestRatios(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(11, 12))
		for n := range 20 {
			y, s, got, square := make([]float64, n), make([]float64, n), make([]float64, n),
				make([]float64, n)
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
