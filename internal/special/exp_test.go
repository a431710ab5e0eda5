package special_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
)

// ulps returns the error of got in units in the last place of want.
func ulps(got float64, want float64, rel float64) float64 {
	_, e := math.Frexp(want)
	return rel * math.Abs(want) / math.Ldexp(1, e-53)
}

func TestExpRate(t *testing.T) {
	t.Parallel()
	xs := []float64{0, math.Copysign(0, -1), -5e-324, -1e-300, -1e-17, -math.Ln2, -math.Ln2 / 256,
		-699.9999, -1, -math.Ln2 / 128 * 129}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 700 {
		xs = append(xs, -700*rng.Float64(), -math.Exp(30*rng.Float64()-24))
	}
	worst := 0.0
	for _, x := range xs {
		if x <= -700 {
			continue
		}
		v := []float64{-x}
		special.ExpRate(v, -1)
		want := bigExp(num(x))
		worst = max(worst,
			ulps(v[0], float(want), math.Abs(float(quo(sub(num(v[0]), want), want)))))
	}
	if !(worst < 0.8) {
		t.Errorf("exp is within %.3f units in the last place", worst)
	}
	v := []float64{0, 2, 2800, math.Inf(1), math.NaN(), 1e300, 2980}
	special.ExpRate(v, -0.25)
	if v[0] != 1 || v[1] != math.Exp(-0.5) || v[3] != 0 || !math.IsNaN(v[4]) || v[5] != 0 {
		t.Errorf("edges: %v", v)
	}
	if e := apart(v[2], bigExp(num(-700))); !(e < 1e-13) { // package math computes this value
		t.Errorf("exp(−700) is off by %.2g", e)
	}
	if want := math.Exp(-745); v[6] != want || v[6] == 0 {
		t.Errorf("exp(−745) = %v, want %v", v[6], want)
	}
}

func TestPolyExp(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, p := range [][]float64{nil, {2}, {1, 1}, {1, 1, 1. / 3}, {1, 1, 0.4, 1. / 15},
		{1, 1, 3. / 7, 2. / 21, 1. / 105, 0.001}} {
		for _, n := range []int{0, 1, 63, 64, 65, 130} {
			c := math.Exp(4*rng.Float64() - 2)
			r2 := make([]float64, n)
			for i := range r2 {
				r2[i] = math.Exp(12*rng.Float64() - 8)
			}
			if n > 2 {
				r2[0], r2[1] = 0, math.Inf(1)
			}
			got := append([]float64(nil), r2...)
			special.PolyExp(got, c, p)
			for i, y := range got {
				if math.IsInf(r2[i], 1) {
					if y != 0 {
						t.Errorf("p = %v at infinity: %v", p, y)
					}
					continue
				}
				a := num(math.Sqrt(c * r2[i]))
				sum := num(0)
				for k := len(p) - 1; k >= 0; k-- {
					sum = add(mul(sum, a), num(p[k]))
				}
				if e := apart(y, mul(sum, bigExp(mul(num(-1), a)))); !(e < 8*special.Eps) {
					t.Errorf("p = %v, a = %v: off by %.2g", p, float(a), e)
				}
			}
		}
	}
	low := []float64{math.NaN()}
	special.PolyExp(low, 1, []float64{1, 1})
	if !math.IsNaN(low[0]) {
		t.Errorf("NaN becomes %v", low[0])
	}
}

// TestExpm1 compares Expm1 with package math from 1e-300 to both ends of its range.
func TestExpm1(t *testing.T) {
	for x := -40.0; x < 700; x += 0.0137 {
		for _, x := range []float64{x, x * 1e-3, x * 1e-9, x * 1e-300} {
			if got, want := special.Expm1(x, math.Exp(x)),
				math.Expm1(x); !(math.Abs(got-want) <= 4*special.Eps*math.Abs(want)) {
				t.Fatalf("Expm1(%v) is %v, want %v", x, got, want)
			}
		}
	}
	if x := special.Expm1(math.Inf(1), math.Inf(1)); !math.IsInf(x, 1) {
		t.Errorf("Expm1(+Inf) is %v", x)
	}
}

// TestLogFactorial checks that values inside and outside of the table agree with math.Lgamma.
func TestLogFactorial(t *testing.T) {
	for _, y := range []float64{0, 1, 2, 170, 1022, 1023, 1024, 1025, 1e9, 1e300} {
		if got, want := special.LogFactorial(y), lgamma(y+1); got != want {
			t.Errorf("log %v! is %v, want %v", y, got, want)
		}
	}
}

func lgamma(x float64) float64 {
	g, _ := math.Lgamma(x)
	return g
}

// BenchmarkKernelExp compares exponentials of a vector with calls of math.Exp.
func BenchmarkKernelExp(b *testing.B) {
	src := make([]float64, 4096)
	for i := range src {
		src[i] = -20 * float64(i) / 4096
	}
	dst := make([]float64, len(src))
	b.Run("math", func(b *testing.B) {
		for b.Loop() {
			for i, v := range src {
				dst[i] = math.Exp(v)
			}
		}
	})
	b.Run("vectors", func(b *testing.B) {
		for b.Loop() {
			copy(dst, src)
			special.ExpRate(dst, 1)
		}
	})
}
