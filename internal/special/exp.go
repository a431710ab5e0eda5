package special

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
)

// expZero is a number whose exp(−x) is 0.
const expZero = 800

// PolyExp replaces every r² ≥ 0 by p(a) exp(−a), a = √(c r²), for the polynomial p(a) = Σ_k
// p[k] aᵏ. At r² = +Inf the result is 0.
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

// ExpRate replaces every v by exp(rate·v), to which rate·v rounded counts, within a unit in the
// last place.
func ExpRate(v []float64, rate float64) {
	fma.Scale(rate, v)
	fma.Exp(v)
}
