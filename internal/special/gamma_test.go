package special_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
)

// logUniform returns a number between 10^lo and 10^hi whose logarithm is uniform.
func logUniform(rng *rand.Rand, lo, hi float64) float64 {
	return math.Pow(10, lo+(hi-lo)*rng.Float64())
}

func TestStirling(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	xs := []float64{16, 16.5, 17, 1e8, 1e150, 1e300}
	for range 50 {
		xs = append(xs, logUniform(rng, 1.21, 5))
	}
	for _, x := range xs {
		var want *big.Float
		if x < 100 {
			b := num(x)
			want = sub(bigLogGamma(b), add(sub(mul(sub(b, num(0.5)), bigLog(b)), b), logSqrt2Pi()))
		} else {
			want = bigStirling(num(x))
		}
		// The first term that the series leaves out is 691/360360 x⁻¹¹.
		if e := math.Abs(float(sub(num(special.Stirling(x)), want))); !(e < 0.0020*math.Pow(x, -11)+
			3*special.Eps/x/12) {
			t.Errorf("Stirling(%v) is off by %.2g", x, e)
		}
	}
}

func TestLogChoose(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	pairs := [][2]float64{{0, 0}, {0, 1e300}, {1, 1}, {5e-324, 3}, {1e-300, 1e10}, {15.99, 16},
		{16, 16}, {16, 1e15}, {15.5, 15.5}, {2, 1e15}, {0.5, 0.5}, {1e12, 1e12}, {3, 47},
		{16, 15.999}}
	for range 150 {
		pairs = append(pairs, [2]float64{logUniform(rng, -6, 12), logUniform(rng, -6, 12)},
			[2]float64{40 * rng.Float64(), 40 * rng.Float64()})
	}
	for _, p := range pairs {
		a, b := num(p[0]), num(p[1])
		one := num(1)
		if p[1] < 1e30 {
			want := sub(bigLogGamma(add(add(a, b), one)),
				add(bigLogGamma(add(a, one)), bigLogGamma(add(b, one))))
			for _, got := range []float64{special.LogChoose(p[0], p[1]),
				special.LogChoose(p[1], p[0])} {
				if e := math.Abs(float(sub(num(got), want))); !(e < 4e-16*(math.Abs(float(want))+40)) {
					t.Errorf("LogChoose(%v, %v) = %v, want %v (%.2g)", p[0], p[1], got, float(want),
						e)
				}
			}
		}
		if p[0] == 0 && special.LogChoose(p[0], p[1]) != 0 {
			t.Errorf("LogChoose(0, %v) is not 0", p[1])
		}
	}
}

// bigBeta returns I_x(a, b) = x^a (1−x)^b / (a B(a,b)) Σ_n (a+b)_n/(a+1)_n xⁿ for x ≤ ½. All
// terms are positive, so float64 is accurate enough for the sum.
func bigBeta(a, b, x float64) float64 {
	sum, term := 0.0, 1.0
	for n := 0.0; term > 1e-18*sum; n++ {
		sum += term
		term *= (a + b + n) / (a + 1 + n) * x
		if sum > 1e280 {
			panic("the series of Beta overflows")
		}
	}
	A, B, X := num(a), num(b), num(x)
	log := add(mul(A, bigLog(X)), mul(B, bigLog(sub(num(1), X))))
	log = add(log, sub(bigLogGamma(add(A, B)), add(bigLogGamma(add(A, num(1))), bigLogGamma(B))))
	return float(mul(bigExp(log), num(sum)))
}

// bigGamma returns P(k, x) = x^k e^{−x}/Γ(k+1) Σ_n xⁿ/(k+1)_n.
func bigGamma(k, x float64) float64 {
	sum, term := num(0), num(1)
	for n := 1.0; term.MantExp(nil) > sum.MantExp(nil)-70; n++ {
		sum = add(sum, term)
		term = quo(mul(term, num(x)), add(num(k), num(n)))
	}
	log := sub(sub(mul(num(k), bigLog(num(x))), num(x)), bigLogGamma(add(num(k), num(1))))
	return float(mul(bigExp(log), sum))
}

func TestBeta(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	check := func(a, b, x, rel, abs float64) {
		t.Helper()
		want := bigBeta(a, b, x)
		got := special.Beta(a, b, x, 1-x)
		if e := math.Abs(got - want); !(e <= rel*math.Min(want, 1-want)+abs) {
			t.Errorf("Beta(%v, %v, %v) = %v, want %v (%.2g)", a, b, x, got, want, e)
		}
		if x < 0.5 { // the other branch reflects
			if e := math.Abs(special.Beta(b, a, 1-x, x) + got - 1); !(e < 1e-15) {
				t.Errorf("Beta(%v, %v, %v) and its reflection are off by %.2g", a, b, x, e)
			}
		}
	}
	many := 150
	if testing.Short() {
		many = 60
	}
	for range many {
		a, b := logUniform(rng, -2, 2.5), logUniform(rng, -2, 2.5)
		check(a, b, 0.5*rng.Float64(), 1e-11, 1e-12)
		check(a, b, logUniform(rng, -12, -0.4), 1e-11, 1e-12)
	}
	for range 30 {
		// Rare events are nearly Poisson.
		a, b := logUniform(rng, -1, 2), logUniform(rng, 6.5, 9)
		x := a / b * math.Exp(2*rng.Float64()-1)
		check(a, b, x, 0, 1e-9+a*a*math.Sqrt(a)/24/b/b)
	}
	for range 20 {
		// RegIncBeta does not converge here, so Beta uses the approximation of Peizer and Pratt.
		a, b := logUniform(rng, 6.3, 7.3), logUniform(rng, 7, 7.3)
		mean := a / (a + b)
		x := mean + 2*(2*rng.Float64()-1)*math.Sqrt(mean*(1-mean)/(a+b))
		if x < 0.5 {
			check(a, b, x, 0, 2e-2/math.Min(a, b))
		}
	}
	// Two cases have closed forms, I_x(1, b) = 1 − (1−x)^b and I_x(a, 1) = x^a.
	for _, b := range []float64{1e-3, 0.5, 1, 7, 300} {
		x := 0.3
		if e := math.Abs(special.Beta(1, b, x, 1-x) + math.Expm1(b*math.Log1p(-x))); !(e < 1e-14) {
			t.Errorf("I_x(1, %v) is off by %.2g", b, e)
		}
		if e := math.Abs(special.Beta(b, 1, x, 1-x) - math.Pow(x, b)); !(e < 1e-14) {
			t.Errorf("I_x(%v, 1) is off by %.2g", b, e)
		}
	}
	if special.Beta(2, 3, 0, 1) != 0 || special.Beta(2, 3, 1, 0) != 1 ||
		!math.IsNaN(special.Beta(2, 3, math.NaN(), math.NaN())) {
		t.Error("Beta at the ends")
	}
	if lo, hi := special.Beta(1e308, 1.5e308, 0.3, 0.7),
		special.Beta(1e308, 1.5e308, 0.45, 0.55); lo != 0 || hi != 1 {
		t.Errorf("Beta of numbers whose sum overflows is %v and %v", lo, hi)
	}
	if lo, hi := special.Beta(1e300, 2e300, 0.2, 0.8),
		special.Beta(1e300, 2e300, 0.4, 0.6); lo != 0 || hi != 1 {
		t.Errorf("Beta of huge numbers is %v and %v", lo, hi)
	}
}

func TestGamma(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	for range 150 {
		k := logUniform(rng, -2, 3)
		for _, x := range []float64{k * math.Exp(rng.NormFloat64()/math.Sqrt(1+k)),
			logUniform(rng, -8, 2)} {
			want := bigGamma(k, x)
			if got := special.Gamma(k,
				x); !(math.Abs(got-want) <= 1e-13+1e-11*math.Min(want, 1-want)) {
				t.Errorf("Gamma(%v, %v) = %v, want %v", k, x, got, want)
			}
		}
	}
	for _, x := range []float64{1e-12, 0.1, 1, 30} { // P(1, x) = 1 − e^{−x}
		if e := math.Abs(special.Gamma(1, x)/-math.Expm1(-x) - 1); !(e < 1e-14) {
			t.Errorf("Gamma(1, %v) is off by %.2g", x, e)
		}
	}
	k := 4e15 // nearly Gaussian, with a skewness of 2/√k
	if e := math.Abs(special.Gamma(k, k+math.Sqrt(k)) - special.NormalTail(-1)); !(e < 1e-7) {
		t.Errorf("Gamma(k, k+√k) is off by %.2g from Φ(1)", e)
	}
	if special.Gamma(3, 0) != 0 || special.Gamma(3, math.Inf(1)) != 1 ||
		!math.IsNaN(special.Gamma(3, math.NaN())) || special.Gamma(3, 1e300) != 1 {
		t.Error("Gamma at the ends")
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, c := range [][3]float64{{0, inf, 0}, {0, -inf, 0}, {2, 3, 6}, {2, inf, inf},
		{-1, inf, -inf}, {1, 0, 0}} {
		if got := special.Times(c[0], c[1]); got != c[2] {
			t.Errorf("Times(%v, %v) = %v", c[0], c[1], got)
		}
	}
	if !math.IsNaN(special.Times(0, math.NaN())) || !math.IsNaN(special.Times(math.NaN(), 0)) {
		t.Error("NaN is lost")
	}
}

func TestLogNormal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 16))
	for range 300 {
		m, v := 40*rng.Float64()-20, logUniform(rng, -18, 2)
		mean, square, spread := special.LogNormal(m, v)
		M, V := num(m), num(v)
		e1 := bigExp(add(M, quo(V, num(2))))
		e2 := bigExp(mul(num(2), add(M, V)))
		// Rounding the exponents causes a relative error of Eps times their size.
		tol := 4 * special.Eps * (2 + 2*math.Abs(m) + 2*v)
		if apart(mean, e1) > tol || apart(square, e2) > tol ||
			apart(spread, sub(e2, mul(e1, e1))) > tol {
			t.Errorf("LogNormal(%v, %v) = %v, %v, %v", m, v, mean, square, spread)
		}
	}
	if mean, square, spread := special.LogNormal(1, 0); mean != math.E || square != math.Exp(2) ||
		spread != 0 {
		t.Errorf("a point mass: %v, %v, %v", mean, square, spread)
	}
	if _, _, spread := special.LogNormal(800, 0); spread != 0 {
		t.Errorf("a point mass far out has variance %v", spread)
	}
}
