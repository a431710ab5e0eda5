package fma

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestGumbelSame checks that all paths have the same bits, and are close to package math.
func TestGumbelSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{0, 8, 16, 40} {
		for nodes := range 5 {
			rule, e := make([][2]float64, nodes), make([]float64, n)
			for i := range rule {
				rule[i] = [2]float64{math.Exp(4 * rng.NormFloat64()), rng.Float64()}
			}
			for i := range e {
				if e[i] = math.Exp(6 * rng.NormFloat64()); rng.IntN(9) == 0 {
					e[i] = 0
				}
			}
			sums := func(path string) (f [4][]float64) {
				defer force(path)()
				for k := range f {
					f[k] = make([]float64, n)
				}
				Gumbel(rule, e, f[0], f[1], f[2])
				copy(f[3], e)
				Quotients(f[3], f[0], f[1], f[2])
				return f
			}
			got := sums("Go")
			for _, path := range available() {
				for k, y := range sums(path) {
					same(t, "Gumbel by "+path, y, got[k])
				}
			}
			for i, a := range e {
				var y [3]float64
				for _, r := range rule {
					x := a * r[0]
					g := r[1] * math.Exp(-x)
					y[0], y[1], y[2] = y[0]+g, y[1]+g*x, y[2]+g*x*x
				}
				if y[0] < 1e-280 {
					continue
				}
				for k, want := range [4]float64{y[0], y[1] / y[0], y[2] / y[0], a * y[0]} {
					if x := got[k][i]; !(math.Abs(x-want) <= 1e-13*want) {
						t.Errorf("element %d of %d at %v: %v, want %v", i, k, a, x, want)
					}
				}
			}
		}
	}
}

// TestBellSame checks that all paths have the same bits, and that the weights are Gaussian
// densities.
func TestBellSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{0, 2, 4, 32} {
		const step = 0.3
		table := make([][3]float64, n)
		for i := range table {
			table[i] = [3]float64{rng.Float64(), rng.Float64(), rng.Float64()}
		}
		var d, w, r [8]float64
		for i := range d {
			d[i] = 3 * rng.Float64()
			w[i], r[i] = math.Exp(-d[i]*d[i]/2), math.Exp(d[i]*step-step*step/2)
		}
		sums := func(path string) (f [3][8]float64) {
			defer force(path)()
			Bell(table, &w, &r, math.Exp(-step*step), &f[0], &f[1], &f[2])
			return f
		}
		got := sums("Go")
		for _, path := range available() {
			for k, y := range sums(path) {
				same(t, "Bell by "+path, y[:], got[k][:])
			}
		}
		for i, x := range d {
			for k := range 3 {
				want := 0.0
				for j, row := range table {
					z := x - float64(j)*step
					want += row[k] * math.Exp(-z*z/2)
				}
				if !(math.Abs(got[k][i]-want) <= 1e-12*want) {
					t.Errorf("lane %d of %d: %v, want %v", i, k, got[k][i], want)
				}
			}
		}
	}
}

// TestAddNormalSame checks that all paths have the same bits, with only rounding errors.
func TestAddNormalSame(t *testing.T) {
	x := []float64{0, math.Copysign(0, -1), 1e-300, -40, 40, -1e200, 1e200, 37.7}
	for y := -9.5; len(x)%8 != 0 || y < 9.5; y += 0.003 {
		x = append(x, y)
	}
	sums := func(path string) []float64 {
		defer force(path)()
		f := make([]float64, len(x))
		AddNormal(f, x)
		return f
	}
	got := sums("Go")
	for _, path := range available() {
		same(t, "AddNormal by "+path, sums(path), got)
	}
	for i, a := range x {
		if want := 0.5 * math.Erfc(-a/math.Sqrt2); !(math.Abs(got[i]-want) < 6e-15) {
			t.Errorf("at %v: %v, want %v", a, got[i], want)
		}
	}
	f := []float64{-2, -2, -2, -2, -2, -2, -2, -2}
	if AddNormal(f, x[:8]); f[0] != 0 {
		t.Errorf("less than 0: %v", f)
	}
}
