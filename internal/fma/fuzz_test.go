package fma

import (
	"math/rand/v2"
	"testing"
)

// FuzzProducts compares products and solutions of any shape and layout with plain loops, on every
// path. The numbers may have any size.
func FuzzProducts(f *testing.F) {
	f.Add(uint64(1), uint16(5), uint16(13), uint16(260), 1.0)
	f.Add(uint64(2), uint16(70), uint16(3), uint16(0), 1e300)
	check := func(t *testing.T, seed uint64, m, n, k uint16, scale float64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		draw := func() float64 {
			if rng.IntN(50) == 0 {
				return scale
			}
			return rng.NormFloat64()
		}
		rows, cols, inner := int(m)%140, int(n)%140, int(k)%600
		one := func(m, n int) Matrix { return layouts(rng, m, n, draw)[rng.IntN(5)] }
		a, b, c := one(rows, inner), one(inner, cols), one(rows, cols)
		want := clone(c)
		naiveGemm(scale, a, b, want)
		Gemm(Run{Workers: 1 + rng.IntN(2)}, scale, a, b, c)
		same(t, "gemm", c.Data, want.Data)
		square := layouts(rng, rows, rows, draw)[2*rng.IntN(2)]
		want = clone(square)
		naiveGram(scale, nil, a, want)
		Syrk(Run{}, scale, a, square)
		same(t, "syrk", square.Data, want.Data)
		l := one(rows, rows)
		want = clone(c)
		naiveSolve(l, want, whole)
		Trsm(Run{}, l, c, false)
		same(t, "trsm", c.Data, want.Data)
		spd := triangular(rng, rows)
		want = clone(spd)
		if ok := naiveCholesky(want); Cholesky(Run{}, spd) != ok {
			t.Errorf("cholesky reports %v", !ok)
		} else if ok {
			same(t, "cholesky", spd.Data, want.Data)
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k uint16, scale float64) {
		for _, path := range available() {
			func() {
				defer force(path)()
				check(t, seed, m, n, k, scale)
			}()
		}
	})
}
