package special

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
)

// expZero is large enough that exp(−expZero) is 0.
const expZero = 800

// PolyExp replaces each r² ≥ 0 in r2 by p(a) exp(−a) with a = √(c r²) and the polynomial p(a) =
// Σ_k p[k] aᵏ. The result for r² = +Inf is 0.
func PolyExp(r2 []float64, c float64, p []float64) {
	var a [64]float64
	var low [3]float64
	tail := p[copy(low[:], p):]
	for len(r2) > 0 {
		r := r2[:min(len(a), len(r2))]
		r2 = r2[len(r):]
		for i, v := range r {
			a[i] = min(math.Sqrt(c*v), expZero) // avoids 0·∞
		}
		copy(r, a[:])
		ExpRate(r, -1)
		if len(tail) == 0 {
			for i, e := range r {
				r[i] = (low[0] + low[1]*a[i] + low[2]*(a[i]*a[i])) * e
			}
			continue
		}
		for i, e := range r {
			x, high := a[i], 0.0
			for k := len(tail) - 1; k >= 0; k-- {
				high = high*x + tail[k]
			}
			r[i] = (low[0] + low[1]*x + (x*x)*(low[2]+x*high)) * e
		}
	}
}

// ExpRate replaces each v by exp(rate·v), with an error of at most one unit in the last place
// given the rounded product rate·v.
func ExpRate(v []float64, rate float64) {
	fma.Scale(rate, v)
	fma.Exp(v)
}

// expm1Series is the largest |x| for which Expm1 sums a series.
const expm1Series = 0.35

// Expm1 returns e^x − 1, given e = e^x, with an error of at most four units in the last place.
// Near 0 it sums the first 12 terms of the series.
func Expm1(x, e float64) float64 {
	if !(math.Abs(x) < expm1Series) {
		return e - 1
	}
	p := 1.0 / 6227020800
	for _, c := range expm1Terms {
		p = math.FMA(p, x, c)
	}
	return math.FMA(x*x, p, x)
}

// expm1Terms holds 1/12!, …, 1/2!.
var expm1Terms = [...]float64{1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
	1.0 / 40320, 1.0 / 5040, 1.0 / 720,
	1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2}
