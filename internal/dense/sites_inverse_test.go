package dense_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// TestInverse checks that variances from the inverse of the factor agree with the expansion, and
// that KWK = K − V.
func TestInverse(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{1, 5, 70, 130} {
		for _, signs := range []string{"+", "+0", "weak", "-"} {
			x, c, delta := make([]float64, n*n), make([]float64, n*n), make([]float64, n)
			for i := range x {
				x[i] = rng.NormFloat64() / math.Sqrt(float64(n))
			}
			for i := range n {
				for j := range n {
					for k := range n {
						c[i*n+j] += x[i*n+k] * x[j*n+k]
					}
				}
				delta[i] = math.Exp(2 * rng.NormFloat64())
				switch {
				case i%3 > 0:
				case signs == "+0":
					delta[i] = 0
				case signs == "weak":
					delta[i] = 1e-9
				case signs == "-":
					delta[i] = -0.1 / c[i*n+i]
				}
			}
			var f dense.SiteFactor
			var e dense.Expansion
			if !f.Factor(c, n, delta) {
				t.Fatalf("%d %s: no factor", n, signs)
			}
			f.Expand(&e, c, n)
			want, v := make([]float64, n), make([]float64, n)
			if !f.Variances(want, &e) {
				t.Fatalf("%d %s: not resolved", n, signs)
			}
			var inv dense.Inverse
			if !inv.Variances(&f, v) {
				t.Fatalf("%d %s: not resolved by the inverse", n, signs)
			}
			for i := range v {
				if math.Abs(v[i]-want[i]) > 1e-9*want[i] {
					t.Errorf("%d %s: variance %d is %v, want %v", n, signs, i, v[i], want[i])
				}
			}
			cov := make([]float64, n*n)
			f.Covariance(cov, &e)
			w := inv.Weights(&f)
			dense.FillUpper(w, n)
			dense.FillUpper(cov, n)
			kw, got := make([]float64, n*n), make([]float64, n*n)
			dense.MulSquare(kw, c, w, n)
			dense.MulSquare(got, kw, c, n)
			for i, g := range got {
				if d := c[i] - cov[i]; math.Abs(g-d) > 1e-11*(1+math.Abs(d)) {
					t.Fatalf("%d %s: KWK is %v, want %v", n, signs, g, d)
				}
			}
		}
	}
}

// TestSitesWorkers checks that the factor, its solutions and the variances of many rows have the
// same bits on any number of goroutines.
func TestSitesWorkers(t *testing.T) {
	const n = 1100
	rng := rand.New(rand.NewPCG(8, 8))
	c, delta, w := make([]float64, n*n), make([]float64, n), make([]float64, n)
	for i := range n {
		for j := range i + 1 {
			c[i*n+j] = math.Exp(-math.Abs(float64(i-j)) / 20)
		}
		w[i], delta[i] = rng.NormFloat64(), math.Exp(rng.NormFloat64())
	}
	result := func(workers int) (all []float64) {
		var h parallel.Halt
		h.Lend(workers)
		f, inv, v, u := dense.SiteFactor{Halt: &h}, dense.Inverse{}, make([]float64, n), slices.Clone(w)
		if !f.Factor(c, n, delta) || !inv.Variances(&f, v) {
			t.Fatalf("%d workers: no factor", workers)
		}
		f.Solve(u)
		f.MulC(u)
		return slices.Concat(u, v, f.T, inv.Weights(&f))
	}
	want := result(1)
	for _, workers := range []int{2, 5} {
		if !slices.Equal(result(workers), want) {
			t.Errorf("%d workers: other bits", workers)
		}
	}
}
