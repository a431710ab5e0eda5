// Package special implements the special functions that likelihoods, kernels and exponential
// families need, accurately over their whole range. The root package and most engines call it.
//
//	gamma.go	gamma and beta functions, binomial coefficients, factorials
//	digamma.go	digamma and trigamma functions, their differences and inverses
//	gauss.go	Gaussian densities and tails
//	student.go	the distribution function of Student's t
//	exp.go	exponentials of slices
package special

import (
	"math"
	"sync/atomic"

	"gonum.org/v1/gonum/mathext"
)

// Stirling returns log Γ(x) − (x−½) log x + x − log √(2π) for x ≥ 16 (Abramowitz and Stegun 1964,
// 6.1.41).
func Stirling(x float64) float64 {
	z := 1 / (x * x)
	return (1.0/12 - z*(1.0/360-z*(1.0/1260-z*(1.0/1680-z/1188)))) / x
}

// stirlingLeast is the smallest argument of Stirling.
const stirlingLeast = 16

// LogChoose returns log Γ(a+b+1)/(Γ(a+1)Γ(b+1)) for a, b ≥ 0. It does not subtract large values
// of log Γ, so its error is a few units of 1e−16 (|result| + 40).
func LogChoose(a, b float64) float64 {
	if a > b {
		a, b = b, a
	}
	switch {
	case a == 0:
		return 0
	case b < stirlingLeast:
		n, _ := math.Lgamma(a + b + 1)
		x, _ := math.Lgamma(a + 1)
		y, _ := math.Lgamma(b + 1)
		return n - x - y
	case a < stirlingLeast:
		x := b + 1
		g, _ := math.Lgamma(a + 1)
		return a*math.Log(x+a) - a + (x-0.5)*math.Log1p(a/x) + Stirling(x+a) - Stirling(x) - g
	}
	// Only entropies and Stirling's corrections remain (Loader 2000).
	return a*math.Log1p(b/a) + b*math.Log1p(a/b) + math.Log(1/a+1/b)/2 - LogSqrt2Pi +
		Stirling(a+b) - Stirling(a) - Stirling(b)
}

// These constants select the methods of Beta and Gamma.
const (
	wiseLeast     = 1e6  // smallest b for Wise's approximation
	wiseErr       = 1e-9 // largest error of Wise's approximation
	regIncReach   = 1e5  // RegIncBeta converges for min(a, b) up to this
	regIncReachLo = 1e6  // it also converges up to this if a + b < regIncReachHi
	regIncReachHi = 1e7
	gammaReach    = 1e15 // shapes from which a gamma variable is Gaussian to double precision
)

// Beta returns the regularized incomplete beta function I_x(a, b) for a, b > 0, given x and rest
// = 1 − x. The smaller of x and rest must be accurate. The result is NaN if x is NaN.
func Beta(a, b, x, rest float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x <= 0:
		return 0
	case rest <= 0:
		return 1
	case x > 0.5:
		return 1 - Beta(b, a, rest, x)
	}
	var p float64
	switch low := math.Min(a, b); {
	case b > wiseLeast && a < b && a*a*math.Sqrt(a)/24 < wiseErr*b*b:
		// Rare events are nearly Poisson (Wise 1950). The error is about a^2.5/24b².
		p = Gamma(a, -(b+(a-1)/2)*math.Log1p(-x))
	case low < regIncReach || low < regIncReachLo && a+b < regIncReachHi:
		p = mathext.RegIncBeta(a, b, x)
	default:
		// RegIncBeta does not converge here, so this is the approximation of Peizer and Pratt
		// (1968), written without cancellation. The error is about 2e−2/min(a, b).
		n := a + b - 1
		delta := b - 0.5 - n*rest
		d := delta + 1.0/6 - rest/3 + 0.02*(x/b-rest/a+(x-0.5)/(a+b))
		r := 2 * (likeEntropy(delta/(n*rest))/rest + likeEntropy(-delta/(n*x))/x)
		p = NormalTail(-d / math.Sqrt(n) * math.Sqrt(r))
	}
	if math.IsNaN(p) { // a or b is close to the largest float64
		p = 0
		if x > 1/(1+b/a) {
			p = 1
		}
	}
	return math.Max(0, math.Min(1, p))
}

// likeEntropy returns ((1+e) log(1+e) − e)/e² for e ≥ −1, without cancellation.
func likeEntropy(e float64) float64 {
	if math.Abs(e) > 0.1 {
		return (Times(1+e, math.Log1p(e)) - e) / e / e
	}
	sum := 0.0
	for k := 16.0; k >= 0; k-- {
		sum = 1/((k+1)*(k+2)) - e*sum
	}
	return sum
}

// Gamma returns the regularized lower incomplete gamma function P(k, x) for k > 0 and x ≥ 0. The
// result is NaN if x is NaN.
func Gamma(k, x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case math.IsInf(x, 1):
		return 1
	case x == 0:
		return 0
	}
	p := mathext.GammaIncReg(k, x)
	if math.IsNaN(p) || k > gammaReach {
		p = NormalTail((k - x) / math.Sqrt(k))
	}
	return math.Max(0, math.Min(1, p))
}

// Times returns xy, or 0 if x is 0 and y is infinite.
func Times(x, y float64) float64 {
	if x == 0 && !math.IsNaN(y) {
		return 0
	}
	return x * y
}

// LogNormal returns E[e^η], E[e^{2η}] and Var[e^η] for η ~ N(m, v).
func LogNormal(m, v float64) (mean, square, spread float64) {
	square = math.Exp(2 * (m + v))
	return math.Exp(m + v/2), square, Times(-math.Expm1(-v), square)
}

// factorials holds log n!, as math.Lgamma returns it. The first call of LogFactorial sets it.
var factorials atomic.Pointer[[1024]float64]

// setFactorials makes the table. If two goroutines make it at once, both tables are the same.
func setFactorials() *[1024]float64 {
	var t [1024]float64
	for n := range t {
		t[n], _ = math.Lgamma(float64(n + 1))
	}
	factorials.Store(&t)
	return &t
}

// LogFactorial returns log y! for an integer y ≥ 0.
func LogFactorial(y float64) float64 {
	t := factorials.Load()
	if t == nil {
		t = setFactorials()
	}
	if y < float64(len(t)) {
		return t[int(y)]
	}
	g, _ := math.Lgamma(y + 1)
	return g
}
