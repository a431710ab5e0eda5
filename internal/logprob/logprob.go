// Package logprob evaluates log p(y|η) of many rows at once, for the likelihoods of the root
// package. Importance sampling (internal/loo) evaluates every row at thousands of draws, so it
// spends nearly all of its time here.
//
// A constructor takes the responses, computes what depends on them alone, and returns Rows. These
// work in three passes over a block: a loop prepares arguments, the kernels of internal/fma take
// exponentials and logarithms, and a loop combines the results. The kernels have the same bits on
// every processor, and products are rounded before they are added, so Rows have them as well.
//
// All results agree with LogProb of the Likelihood to a few roundings of the summands: they are −Inf
// where p underflows and NaN only if η is NaN. Responses must be in the support and parameters in
// their range.
package logprob

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/special"
)

// Block is the largest number of rows that Rows takes together. The buffers fit into the nearest
// cache.
const Block = 256

// Rows replaces the latent values η of rows first, first + 1, … by log p(y|η). There are at most
// Block of them. It is safe for concurrent use.
type Rows func(eta []float64, first int)

// A Sum returns the sum of Rows, and overwrites η. It is NaN only if an η is NaN, which stays so.
type Sum func(eta []float64, first int) float64

// buffer holds a value for each row of a block.
type buffer [Block]float64

// tails stores log(1 + e^−|x|) in l. Then log(1 + e^x) is l + max(0, x).
func tails(l, x []float64) {
	for i, v := range x {
		l[i] = -math.Abs(v)
	}
	fma.Exp(l)
	fma.Log1p(l)
}

// Parts of the bits of a number 2ᵏm, 1 ≤ m < 2.
const (
	mantissa = 1<<52 - 1
	bias     = 1023
	normal   = 0x1p-1022 // the least number with all its digits
)

// logs replaces every x > 0 by log x, with an error of one rounding of 1 or of the result. It is
// −Inf at 0, and +Inf at +Inf.
func logs(x []float64) {
	var k buffer
	for i, v := range x {
		if !(v >= normal && v <= math.MaxFloat64) {
			k[i], x[i] = math.Log(v), 0
			continue
		}
		bits := math.Float64bits(v)
		k[i] = float64(int(bits>>52)-bias) * math.Ln2
		x[i] = math.Float64frombits(bits&mantissa|bias<<52) - 1
	}
	fma.Log1p(x)
	for i := range x {
		x[i] += k[i]
	}
}

// logNormals replaces every x by log Φ(x). With h(t) = φ(t)/Φ(−t), t = |x|, it is log(1 − φ(t)/h)
// for x ≥ 0 and −½t² − log √2π h for x < 0 (see special.GaussGap).
func logNormals(x []float64) {
	const reach = 39 // φ is 0 beyond it
	var e, l buffer
	for i, v := range x {
		t := math.Min(math.Abs(v), reach)
		e[i] = -0.5 * float64(t*t)
	}
	fma.Exp(e[:len(x)])
	for i, v := range x {
		t := math.Abs(v)
		h := t + special.GaussGap(t)
		if v < 0 {
			l[i] = float64(h/special.GaussInvSqrt2Pi) - 1
			continue
		}
		t = math.Min(t, reach)
		l[i] = -special.NormalPDFOf(t, float64(t*t), e[i]) / h
	}
	fma.Log1p(l[:len(x)])
	for i, v := range x {
		if v < 0 {
			x[i] = -0.5*float64(v*v) - l[i]
		} else if v >= 0 {
			x[i] = l[i]
		}
	}
}

// Logit returns log σ(yη) of labels −1 and +1.
func Logit(y []float64) Rows {
	return func(eta []float64, first int) {
		var tail buffer
		l := tail[:len(eta)]
		tails(l, eta)
		for i, label := range y[first : first+len(eta)] {
			// −max(0, −yη)
			eta[i] = -(l[i] + max(-label*eta[i], 0))
		}
	}
}

// LogitSum is the sum of Logit. It takes one logarithm of the product of 1 + e^−|η| over all rows,
// which is below 2^Block and has a relative error of Block roundings: no more than the sum of as
// many logarithms.
func LogitSum(y []float64) Sum {
	half := make([]float64, len(y))
	for i, label := range y {
		half[i] = -label / 2
	}
	return func(eta []float64, first int) float64 {
		// Four sums and four products run in parallel in the pipeline of the processor.
		var s [4]float64
		x, h := eta, half[first:first+len(eta)]
		for ; len(x) >= 4 && len(h) >= 4; x, h = x[4:], h[4:] {
			s[0] += misfit(&x[0], h[0])
			s[1] += misfit(&x[1], h[1])
			s[2] += misfit(&x[2], h[2])
			s[3] += misfit(&x[3], h[3])
		}
		for i := range x {
			s[0] += misfit(&x[i], h[i])
		}
		fma.Exp(eta)
		a, b, c, d := 1.0, 1.0, 1.0, 1.0
		e := eta
		for ; len(e) >= 4; e = e[4:] {
			a, b, c, d = a*(1+e[0]), b*(1+e[1]), c*(1+e[2]), d*(1+e[3])
		}
		for _, x := range e {
			a *= 1 + x
		}
		return -(s[0] + s[1] + (s[2] + s[3]) + math.Log(a*b*(c*d)))
	}
}

// misfit returns max(0, 2h·η) without a branch, and replaces η by −|η|.
func misfit(eta *float64, h float64) float64 {
	x := float64(h * *eta)
	*eta = -math.Abs(*eta)
	return x + math.Abs(x)
}

// Probit returns log Φ(yη) of labels −1 and +1.
func Probit(y []float64) Rows {
	return func(eta []float64, first int) {
		for i, label := range y[first : first+len(eta)] {
			eta[i] *= label
		}
		logNormals(eta)
	}
}

// Gaussian returns c − ½((y − η)/sd)².
func Gaussian(y []float64, sd, c float64) Rows {
	return func(eta []float64, first int) {
		for i, y := range y[first : first+len(eta)] {
			r := (y - eta[i]) / sd
			eta[i] = c - float64(r*r)/2
		}
	}
}

// Student returns c − ½(df + 1) log(1 + z²), z = (η − y)/width.
func Student(y []float64, df, width, c float64) Rows {
	const far = 1e9 // above it 1 + z² rounds to z²
	return func(eta []float64, first int) {
		var square buffer
		l := square[:len(eta)]
		for i, y := range y[first : first+len(eta)] {
			eta[i] = math.Abs((eta[i] - y) / width)
			l[i] = float64(eta[i] * eta[i])
		}
		fma.Log1p(l)
		for i, z := range eta {
			if z > far {
				l[i] = 2 * math.Log(z)
			}
			eta[i] = c - float64((df+1)/2*l[i])
		}
	}
}

// Laplace returns c − |y − η|/scale.
func Laplace(y []float64, scale, c float64) Rows {
	return func(eta []float64, first int) {
		for i, y := range y[first : first+len(eta)] {
			eta[i] = c - math.Abs(y-eta[i])/scale
		}
	}
}

// LaplaceSum is the sum of Laplace. It divides once.
func LaplaceSum(y []float64, scale, c float64) Sum {
	return func(eta []float64, first int) float64 {
		// Four sums, which do not wait for each other.
		var s [4]float64
		x, own := eta, y[first:first+len(eta)]
		for ; len(x) >= 4 && len(own) >= 4; x, own = x[4:], own[4:] {
			s[0] += math.Abs(own[0] - x[0])
			s[1] += math.Abs(own[1] - x[1])
			s[2] += math.Abs(own[2] - x[2])
			s[3] += math.Abs(own[3] - x[3])
		}
		for i, x := range x {
			s[0] += math.Abs(own[i] - x)
		}
		return float64(c*float64(len(eta))) - (s[0]+s[1]+(s[2]+s[3]))/scale
	}
}

// Poisson returns y(η + log c) − ce^η − log y!, with log y! in g and the exposure c.
func Poisson(y, g []float64, c float64) Rows {
	lc := math.Log(c)
	return func(eta []float64, first int) {
		var exp buffer
		e := exp[:copy(exp[:], eta)]
		fma.Exp(e)
		own := g[first : first+len(eta)]
		for i, y := range y[first : first+len(eta)] {
			r, t := float64(c*e[i]), float64(y*(eta[i]+lc))
			if y == 0 && t != 0 { // 0·∞
				t = 0 * e[i]
			}
			if eta[i] = t - r - own[i]; r > math.MaxFloat64 {
				eta[i] = math.Inf(-1)
			}
		}
	}
}

// Gamma returns c − log y − k(z + e^−z − 1), z = η − log y, with log y in l and the shape k.
func Gamma(l []float64, k float64) Rows {
	c := passage.GammaLogNorm(k)
	return func(eta []float64, first int) {
		var exp buffer
		e := exp[:len(eta)]
		own := l[first : first+len(eta)]
		for i, l := range own {
			e[i] = l - eta[i]
		}
		fma.Exp(e)
		for i, l := range own {
			z := eta[i] - l
			x := special.Expm1(-z, e[i])
			if eta[i] = c - l - float64(k*(z+x)); x > math.MaxFloat64 {
				eta[i] = math.Inf(-1)
			}
		}
	}
}

// Exponential returns −η − ye^−η.
func Exponential(y []float64) Rows {
	return func(eta []float64, first int) {
		var exp buffer
		e := exp[:len(eta)]
		for i, x := range eta {
			e[i] = -x
		}
		fma.Exp(e)
		for i, y := range y[first : first+len(eta)] {
			r := float64(y * e[i])
			if y == 0 { // 0·∞
				r = 0
			}
			if eta[i] = -eta[i] - r; r > math.MaxFloat64 {
				eta[i] = math.Inf(-1)
			}
		}
	}
}

// Weibull returns log k − log t + x − e^x, x = k(log t − η), with log t in l and the shape k, and
// −e^x for the censored rows, whose y is negative.
func Weibull(y, l []float64, k float64) Rows {
	lk := math.Log(k)
	return func(eta []float64, first int) {
		var exp buffer
		e, own := exp[:len(eta)], l[first:first+len(eta)]
		for i, l := range own {
			eta[i] = k * (l - eta[i])
		}
		copy(e, eta)
		fma.Exp(e)
		for i, y := range y[first : first+len(eta)] {
			switch {
			case y < 0 || e[i] > math.MaxFloat64:
				eta[i] = -e[i]
			default:
				eta[i] = lk - own[i] + eta[i] - e[i]
			}
		}
	}
}

// LogNormal returns c − log t − ½r², r = (log t − η)/scale, with log t in l, and log Φ(−r) for the
// censored rows, whose y is negative.
func LogNormal(y, l []float64, scale, c float64) Rows {
	return func(eta []float64, first int) {
		var above buffer
		n := 0
		y, own := y[first:first+len(eta)], l[first:first+len(eta)]
		for i, l := range own {
			r := (l - eta[i]) / scale
			if y[i] < 0 {
				above[n] = -r
				n++
				continue
			}
			eta[i] = c - l - float64(r*r)/2
		}
		if n == 0 {
			return
		}
		logNormals(above[:n])
		n = 0
		for i, y := range y {
			if y < 0 {
				eta[i] = above[n]
				n++
			}
		}
	}
}

// Binomial returns c − y log(1 + e^−x) − n log(1 + e^x), x = η − shift, with the c of each row, and
// with n − y in place of n if trials is positive.
func Binomial(y, c []float64, trials, n, shift float64) Rows {
	return func(eta []float64, first int) {
		var tail buffer
		l := tail[:len(eta)]
		for i := range eta {
			eta[i] -= shift
		}
		tails(l, eta)
		own := c[first : first+len(eta)]
		for i, y := range y[first : first+len(eta)] {
			rest := n
			if trials > 0 {
				rest = trials - y
			}
			x, tail := eta[i], l[i]
			eta[i] = own[i] - (product(y, tail+max(-x, 0)) + product(rest, tail+max(x, 0)))
		}
	}
}

// product returns xy, rounded. Zero times infinity is 0.
func product(x, y float64) float64 {
	if x == 0 {
		return 0
	}
	return float64(x * y)
}

// Ordinal returns gap − log(1 + e^{lo − η}) − log(1 + e^{η − hi}) with the cut points about the class
// of each row, which may be infinite.
func Ordinal(lo, hi, gap []float64) Rows {
	return func(eta []float64, first int) {
		var x, y, tail buffer
		a, b, l, n := x[:len(eta)], y[:len(eta)], tail[:len(eta)], len(eta)
		for i, lo := range lo[first : first+n] {
			a[i], b[i] = eta[i]-lo, hi[first+i]-eta[i]
		}
		tails(l, a)
		for i, g := range gap[first : first+n] {
			eta[i] = g - (l[i] + max(-a[i], 0))
		}
		tails(l, b)
		for i := range eta {
			eta[i] -= l[i] + max(-b[i], 0)
		}
	}
}

// Each returns the log-probabilities of points, one per response. A point can store what depends
// on the response alone.
func Each[P interface{ LogProb(eta float64) float64 }](points []P) Rows {
	return func(eta []float64, first int) {
		for i, x := range eta {
			eta[i] = points[first+i].LogProb(x)
		}
	}
}
