package logprob

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
)

// A Rate is the R in b(0|η) = e^−R, b being a Poisson or negative binomial distribution of counts:
// R = e^η, or r log(1 + e^η/r) for a negative binomial distribution of shape r > 0.
type Rate struct{ Shape float64 }

// store stores R at every η in dst, and e^−R in e.
func (b Rate) store(dst, e, eta []float64) {
	if b.Shape == 0 {
		copy(dst, eta)
		fma.Exp(dst)
	} else {
		var at buffer
		x, lr := at[:len(eta)], math.Log(b.Shape)
		for i, v := range eta {
			x[i] = v - lr
		}
		tails(dst, x)
		for i, v := range x {
			dst[i] = b.Shape * (dst[i] + max(v, 0))
		}
	}
	for i, r := range dst {
		e[i] = -r
	}
	fma.Exp(e)
}

// ZeroInflated returns log(π + (1−π)b(0|η)) for y = 0, and log(1−π) + log b(y|η) for other counts.
// Base evaluates log b.
func ZeroInflated(y []float64, part float64, b Rate, base Rows) Rows {
	more := math.Log1p(-part)
	return func(eta []float64, first int) {
		var at, rate, exp, l buffer
		x := at[:copy(at[:], eta)]
		base(eta, first)
		r, e, p := rate[:len(x)], exp[:len(x)], l[:len(x)]
		b.store(r, e, x)
		// A logarithm near 0 is log(1 − less), where less is small.
		for i, e := range e {
			p[i] = part + float64((1-part)*e)
			r[i] = float64((1 - part) * special.Expm1(-r[i], e))
		}
		fma.Log1p(r)
		logs(p)
		for i, y := range y[first : first+len(x)] {
			switch {
			case y > 0:
				eta[i] += more
			case r[i] > -math.Ln2:
				eta[i] = r[i]
			default:
				eta[i] = p[i]
			}
		}
	}
}

// Hurdle returns log π for y = 0, and log(1−π) + log b(y|η) − log(1 − b(0|η)) for other counts.
// Base evaluates log b. Both logarithms are large and cancel if R is small, so one computes log p(y|η)
// then.
func Hurdle(y []float64, part float64, b Rate, base Rows, one func(y, eta float64) float64) Rows {
	const small = 1e-5
	zero, more := math.Log(part), math.Log1p(-part)
	return func(eta []float64, first int) {
		var at, rate, exp buffer
		x := at[:copy(at[:], eta)]
		base(eta, first)
		r, e := rate[:len(x)], exp[:len(x)]
		b.store(r, e, x)
		var any bool
		for i, v := range r {
			if e[i] = -special.Expm1(-v, e[i]); v < small {
				any = true
			}
		}
		logs(e)
		for i, y := range y[first : first+len(x)] {
			if eta[i] += more - e[i]; y == 0 {
				eta[i] = zero
			}
		}
		for i := 0; any && i < len(x); i++ {
			if y := y[first+i]; y > 0 && r[i] < small {
				eta[i] = one(y, x[i])
			}
		}
	}
}
