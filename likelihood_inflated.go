package pgsvi

import (
	"cmp"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/special"
)

var _ = builtin{
	"pgsvi.ZeroInflated": ZeroInflated{},
	"pgsvi.Hurdle":       Hurdle{},
}.register()

var (
	_ Differentiable = ZeroInflated{}
	_ Expecter       = ZeroInflated{}
	_ Responder      = ZeroInflated{}
	_ Parametric     = ZeroInflated{}
	_ Differentiable = Hurdle{}
	_ Expecter       = Hurdle{}
	_ Responder      = Hurdle{}
	_ Parametric     = Hurdle{}
)

// ZeroInflated is the likelihood of counts with more zeros than Poisson or NegativeBinomial predict
// (ZIP and ZINB; Lambert 1992). A count is 0 with probability π = Zero, for any η. Otherwise it has
// the distribution b with mean μ = e^η, which is NegativeBinomial with this Shape, or Poisson if
// Shape is zero:
//
//	p(0|η) = π + (1−π) b(0|η),   p(y|η) = (1−π) b(y|η),  y = 1, 2, …
//
// The mean of y is (1−π)μ. Use the logarithm of an exposure as an offset. Learn fits Zero and,
// unless it is zero, Shape. ZeroInflated{Shape: 1} is a start for counts with more variance than
// Poisson.
//
// log p(0|η) is not concave, because it falls to log π and then stays there, so no GapBound is
// proved. Hurdle has a concave log p, and is an alternative if all zeros have the same cause.
type ZeroInflated struct {
	Zero  float64 // π, the probability of an additional zero, between 0 and 1; zero means ½
	Shape float64 // Shape of NegativeBinomial; zero means Poisson
}

// Hurdle is the likelihood of counts whose zeros have their own cause (Mullahy 1986). A count is 0
// with probability π = Zero. Otherwise it has a zero-truncated distribution, which is
// NegativeBinomial with this Shape, or Poisson if Shape is zero. e^η is its mean before truncation:
//
//	p(0|η) = π,   p(y|η) = (1−π) b(y|η)/(1 − b(0|η)),  y = 1, 2, …
//
// Rows with y = 0 inform about Zero but not about η. If the probability of a zero depends on
// features, fit two models: BernoulliLogit for whether y > 0, and Hurdle for the rows with y > 0.
// Together they are one model. Without zeros this is regression on zero-truncated counts.
//
// log p is concave in η for Poisson, which is an exponential family in η, and for Shape ≥ 1,
// because then (u^r − 1)/(u − 1) = r∫_0^1 (1 + te^ξ)^{r−1} dt, u = 1 + e^ξ, is a sum of log-convex
// functions. For Shape < 1 it is not concave, and no GapBound is proved.
type Hurdle struct {
	Zero  float64 // π, the probability of a zero, between 0 and 1; zero means ½
	Shape float64 // Shape of NegativeBinomial; zero means Poisson
}

// zeroDefault is the default of π.
const zeroDefault = 0.5

// partOr returns x, or zeroDefault if x is zero, or NaN if x is not between 0 and 1.
func partOr(x float64) float64 {
	switch {
	case x == 0:
		return zeroDefault
	case x > 0 && x < 1:
		return x
	}
	return math.NaN()
}

// countBase is the distribution b of counts: Poisson if the shape is zero, and NegativeBinomial
// otherwise. With ξ = η − log r, b(0|η) = e^{−R}, where R is e^η or r log(1+e^ξ).
type countBase struct{ shape float64 }

// known reports whether the shape is valid.
func (b countBase) known() bool { return b.shape == 0 || b.shape > 0 && b.shape <= math.MaxFloat64 }

func (b countBase) logProb(y, eta float64) float64 {
	if b.shape == 0 {
		return Poisson{}.LogProb(y, eta)
	}
	return NegativeBinomial{Shape: b.shape}.LogProb(y, eta)
}

func (b countBase) derivs(y, eta float64) (d1, d2 float64) {
	if b.shape == 0 {
		return Poisson{}.Derivs(y, eta)
	}
	return NegativeBinomial{Shape: b.shape}.Derivs(y, eta)
}

func (b countBase) expect(y, m, v float64) Expectation {
	if b.shape == 0 {
		return Poisson{}.ExpectLogProb(y, m, v)
	}
	return NegativeBinomial{Shape: b.shape}.ExpectLogProb(y, m, v)
}

func (b countBase) moments(eta float64) (mean, variance float64) {
	if b.shape == 0 {
		return Poisson{}.Moments(eta)
	}
	return NegativeBinomial{Shape: b.shape}.Moments(eta)
}

func (b countBase) cdf(y, eta float64) float64 {
	if b.shape == 0 {
		return Poisson{}.CDF(y, eta)
	}
	return NegativeBinomial{Shape: b.shape}.CDF(y, eta)
}

// likelihood returns b as a Likelihood.
func (b countBase) likelihood() Likelihood {
	if b.shape == 0 {
		return Poisson{}
	}
	return NegativeBinomial{Shape: b.shape}
}

// above returns P(Y > y|η) for a count y, and a smooth interpolation between counts. The result has
// a small relative error even if it is small.
func (b countBase) above(y, eta float64) float64 {
	mu, k := math.Exp(eta), y+1
	if b.shape == 0 || mu < poissonLimit*b.shape {
		return special.Gamma(k, mu)
	}
	x := eta - math.Log(b.shape)
	_, p, _ := expect.SoftplusAt(-x)
	_, q, _ := expect.SoftplusAt(x)
	return special.Beta(k, b.shape, p, q)
}

// rate returns R, and ∂R/∂η and ∂²R/∂η² as multiples of R.
func (b countBase) rate(eta float64) (r, d1, d2 float64) {
	if b.shape == 0 {
		return math.Exp(eta), 1, 1
	}
	x := eta - math.Log(b.shape)
	f, p, _ := expect.SoftplusAt(-x) // log(1+e^ξ), σ(ξ)
	_, q, _ := expect.SoftplusAt(x)
	if f == 0 {
		return 0, 1, 1
	}
	d1 = p / f
	if x < 0 {
		d1 = q * (1 + special.ExpRest(f)/f)
	}
	return b.shape * f, d1, d1 * q
}

// deepRate is the R from which e^{−R} is negligible.
const deepRate = 745

// inflated returns log(π + (1−π)e^{−R}) and its derivatives in η.
func (b countBase) inflated(pi, eta float64) (g, d1, d2 float64) {
	r, r1, r2 := b.rate(eta)
	if r > deepRate {
		return math.Log(pi), 0, 0
	}
	if less := (pi - 1) * math.Expm1(-r); less < 0.5 {
		g = math.Log1p(-less)
	} else {
		g = math.Log(pi + (1-pi)*math.Exp(-r))
	}
	w := 1 / (1 + pi/(1-pi)*math.Exp(r)) // the probability that a zero is one of b
	rest := 1 / (1 + (1-pi)/pi*math.Exp(-r))
	r1, r2 = r*r1, r*r2
	return g, -w * r1, w * (rest*r1*r1 - r2)
}

// inflatedStrip returns the distance from the real line within which log(π + (1−π)e^{−R}) is
// analytic. Its first zeros have R = log((1−π)/π) ± iπ. The other zeros, and the zeros of 1 + e^ξ,
// have a distance of at least π/2.
func (b countBase) inflatedStrip(pi float64) float64 {
	u, t := math.Log1p(-pi)-math.Log(pi), math.Pi
	if b.shape != 0 {
		if t /= b.shape; t >= math.Pi {
			return stripLog
		}
		u /= b.shape
		// log(e^{u+it} − 1)
		u, t = math.Expm1(u)*math.Cos(t)-2*math.Pow(math.Sin(t/2), 2), (math.Expm1(u)+1)*math.Sin(t)
		if math.IsInf(t, 1) {
			return 0
		}
	}
	return math.Min(stripLog, stripPart*math.Atan2(t, u))
}

const (
	// stripLog is less than π/2, the distance of the zeros of 1 − e^{−R} and similar functions.
	stripLog = 1.45
	// stripPart keeps a rule away from the zero that limits it.
	stripPart = 0.95
)

// untruncated returns −log(1 − e^{−R}) and its derivatives in η. With q = R/(e^R − 1)
//
//	g′ = −qR′/R   g″ = q((R + q)(R′/R)² − R″/R)
func (b countBase) untruncated(eta float64) (g, d1, d2 float64) {
	r, r1, _ := b.rate(eta)
	if r > deepRate {
		return 0, 0, 0
	}
	less := bernoulliRest(r) // q − 1
	q := 1 + less
	x := eta - math.Log(b.shape) // ξ, or +Inf
	switch {
	case r < 1e-5 && (b.shape == 0 || x < -40): // R underflows or is small, and log R = η
		g = r/2 - r*r/24 - eta
	case r < 1e-5:
		g = r/2 - r*r/24 - math.Log(r)
	case r < math.Ln2:
		g = -math.Log(-math.Expm1(-r))
	default:
		g = -math.Log1p(-math.Exp(-r))
	}
	// R″/R is (R′/R)(1−σ(ξ)). rest is R′/R − (1−σ(ξ)), because 1 and R′/R are nearly equal.
	rest := 0.0
	if b.shape != 0 {
		f := r / b.shape
		_, s, _ := expect.SoftplusAt(x)
		if rest = r1 - s; x < 0 && f > 0 {
			rest = s * special.ExpRest(f) / f
		}
	}
	return g, -q * r1, q * r1 * ((r+less)*r1 + rest)
}

// bernoulliRest returns r/(e^r − 1) − 1, using Bernoulli numbers if r is small (Abramowitz and
// Stegun 1964, 23.1.1).
func bernoulliRest(r float64) float64 {
	if r < 0.25 {
		z := r * r
		return -r/2 + z*(1./12-z*(1./720-z*(1./30240-z*(1./1209600-z/47900160))))
	}
	return r/math.Expm1(r) - 1
}

// inflation returns π and the base distribution. It returns false if a parameter is out of range.
func inflation(zero, shape float64) (pi float64, b countBase, ok bool) {
	pi, b = partOr(zero), countBase{shape}
	return pi, b, pi > 0 && b.known()
}

// inflationParams returns the Params of ZeroInflated and Hurdle.
func inflationParams(zero, shape float64) []Param {
	p := []Param{{Name: "Zero", Value: cmp.Or(zero, zeroDefault), Max: 1}}
	if shape != 0 {
		p = append(p, Param{Name: "Shape", Value: shape, Max: math.Inf(1)})
	}
	return p
}

// LogProb returns log(π + (1−π)b(0|η)) for y = 0, log(1−π) + log b(y|η) for other counts, and −Inf
// if y is not a count.
func (z ZeroInflated) LogProb(y, eta float64) float64 {
	pi, b, ok := inflation(z.Zero, z.Shape)
	switch {
	case !ok:
		return math.NaN()
	case y == 0:
		g, _, _ := b.inflated(pi, eta)
		return g
	}
	return math.Log1p(-pi) + b.logProb(y, eta)
}

// Derivs returns the derivatives of log b(y|η) for y > 0. For y = 0, with b(0|η) = e^{−R} and w =
// (1−π)e^{−R}/p(0|η), it returns −wR′ and w((1−w)R′² − R″).
func (z ZeroInflated) Derivs(y, eta float64) (d1, d2 float64) {
	pi, b, ok := inflation(z.Zero, z.Shape)
	switch {
	case !ok:
		return math.NaN(), math.NaN()
	case y == 0:
		_, d1, d2 = b.inflated(pi, eta)
		return d1, d2
	}
	return b.derivs(y, eta)
}

// ExpectLogProb returns log(1−π) plus the expectation of Poisson or NegativeBinomial for y > 0. For
// y = 0 it uses Gauss–Hermite quadrature or the trapezoidal rule, whose errors decrease
// geometrically because log p(0|η) is analytic near the real line, and adaptive quadrature for wide
// Gaussians. If y is not a count, Value is −Inf.
func (z ZeroInflated) ExpectLogProb(y, m, v float64) Expectation {
	pi, b, ok := inflation(z.Zero, z.Shape)
	switch {
	case !expect.Valid(m, v) || !ok:
		return quadNaN()
	case !isCount(y):
		return offSupport(m, v)
	case y == 0:
		at := func(x float64) (g, d1, d2 float64) { return b.inflated(pi, x) }
		lo, hi := b.bend(pi)
		e, err := expect.Bend{At: at, Strip: b.inflatedStrip(pi), Lo: lo, Hi: hi,
			Flat: true}.Expect(m, math.Sqrt(v))
		return Expectation{e[0], e[1], e[2], err}
	}
	e, c := b.expect(y, m, v), math.Log1p(-pi)
	e.Value += c
	e.Err += special.Eps * math.Abs(c)
	return dropInfErr(e)
}

// bend returns the interval in which log p(0|η) bends: R is at least e^{−40} at lo, and (1−π)e^{−R}
// is at most πe^{−40} at hi.
func (b countBase) bend(pi float64) (lo, hi float64) {
	const deep = 40
	r := deep + math.Max(0, math.Log1p(-pi)-math.Log(pi))
	if b.shape == 0 {
		return -deep, math.Log(r)
	}
	l := math.Log(b.shape)
	if r /= b.shape; r < deep {
		return math.Min(0, l) - deep, math.Log(math.Expm1(r)) + l
	}
	return math.Min(0, l) - deep, r + l
}

// Moments returns (1−π)μ and (1−π)(Var_b + πμ²), where Var_b is the variance of b.
func (z ZeroInflated) Moments(eta float64) (mean, variance float64) {
	pi, b, ok := inflation(z.Zero, z.Shape)
	if !ok {
		return math.NaN(), math.NaN()
	}
	mean, variance = b.moments(eta)
	return inflateMoments(pi, mean, variance)
}

// inflateMoments returns the moments of a count that is 0 with probability π and has the given
// moments otherwise.
func inflateMoments(pi, mean, variance float64) (m, v float64) {
	return (1 - pi) * mean, (1 - pi) * (variance + pi*mean*mean)
}

// CDF returns P(Y ≤ y|η) = π + (1−π)P_b(Y ≤ y|η) for y ≥ 0.
func (z ZeroInflated) CDF(y, eta float64) float64 {
	pi, b, ok := inflation(z.Zero, z.Shape)
	switch {
	case math.IsNaN(y) || !ok:
		return math.NaN()
	case y < 0:
		return 0
	}
	return pi + (1-pi)*b.cdf(y, eta)
}

// Facts implements Factual.
func (ZeroInflated) Facts() Facts { return Facts{Support: Counts} }

// Params implements Parametric. It includes Shape unless Shape is zero.
func (z ZeroInflated) Params() []Param { return inflationParams(z.Zero, z.Shape) }

// WithParams implements Parametric.
func (ZeroInflated) WithParams(values []float64) Likelihood {
	z := ZeroInflated{Zero: values[0]}
	if len(values) > 1 {
		z.Shape = values[1]
	}
	return z
}

// predictLogProb combines the prediction of b with π as in LogProb.
func (z ZeroInflated) predictLogProb(y, m, v float64) (logp, bound float64) {
	pi, b, ok := inflation(z.Zero, z.Shape)
	if !ok {
		return math.NaN(), math.NaN()
	}
	logp, bound = predictiveLogProb(b.likelihood(), y, m, v)
	if y != 0 {
		return math.Log1p(-pi) + logp, bound + 4*special.Eps*(1+math.Abs(logp))
	}
	l := inflateLog(pi, logp)
	return l, bound*(1-pi)*math.Exp(logp-l) + 8*special.Eps
}

// inflateLog returns log(π + (1−π)e^l) for l ≤ 0.
func inflateLog(pi, l float64) float64 {
	if less := (pi - 1) * math.Expm1(l); less < 0.5 {
		return math.Log1p(-less)
	}
	return math.Log(pi + (1-pi)*math.Exp(l))
}

// predictMoments implements momentPredictor.
func (z ZeroInflated) predictMoments(m, v float64) (mean, variance float64) {
	pi, b, ok := inflation(z.Zero, z.Shape)
	if !ok {
		return math.NaN(), math.NaN()
	}
	mean, variance, err := predictiveMoments(b.likelihood(), m, v)
	if err != nil {
		return math.Inf(1), math.Inf(1)
	}
	return inflateMoments(pi, mean, variance)
}

// predictTail implements tailPredictor.
func (z ZeroInflated) predictTail(y, m, v float64, above bool) float64 {
	pi, b, _ := inflation(z.Zero, z.Shape)
	t := b.likelihood().(tailPredictor).predictTail(y, m, v, above)
	if above {
		return math.Log1p(-pi) + t
	}
	return inflateLog(pi, t)
}

// LogProb returns log π for y = 0, log(1−π) + log b(y|η) − log(1 − b(0|η)) for other counts, and
// −Inf if y is not a count.
func (h Hurdle) LogProb(y, eta float64) float64 {
	pi, b, ok := inflation(h.Zero, h.Shape)
	switch {
	case !ok:
		return math.NaN()
	case y == 0:
		return math.Log(pi)
	}
	g, _, _ := b.untruncated(eta)
	return math.Log1p(-pi) + b.logProb(y, eta) + g
}

// Derivs returns 0 and 0 for y = 0. Otherwise it returns the derivatives of log b(y|η) minus the
// derivatives of log(1 − e^{−R}), b(0|η) = e^{−R}. The derivatives of log(1 − e^{−R}) are qR′/R and
// −q((R + q)(R′/R)² − R″/R) with q = R/(e^R − 1).
func (h Hurdle) Derivs(y, eta float64) (d1, d2 float64) {
	_, b, ok := inflation(h.Zero, h.Shape)
	switch {
	case !ok:
		return math.NaN(), math.NaN()
	case y == 0:
		return 0, 0
	}
	d1, d2 = b.derivs(y, eta)
	_, g1, g2 := b.untruncated(eta)
	d1, d2 = d1+g1, d2+g2
	if h.concave() {
		d2 = math.Min(0, d2)
	}
	return d1, d2
}

// concave reports whether log p is concave in η.
func (h Hurdle) concave() bool { return h.Shape == 0 || h.Shape >= 1 }

// ExpectLogProb is exact for y = 0. Otherwise it returns log(1−π) plus the expectation of Poisson
// or NegativeBinomial, minus E[log(1 − b(0|η))]. It computes the last expectation by Gauss–Hermite
// quadrature or the trapezoidal rule, whose errors decrease geometrically because the function is
// analytic near the real line, and by adaptive quadrature for wide Gaussians. If y is not a count,
// Value is −Inf.
func (h Hurdle) ExpectLogProb(y, m, v float64) Expectation {
	pi, b, ok := inflation(h.Zero, h.Shape)
	switch {
	case !expect.Valid(m, v) || !ok:
		return quadNaN()
	case !isCount(y):
		return offSupport(m, v)
	case y == 0:
		l := math.Log(pi)
		return Expectation{Value: l, Err: special.Eps * math.Abs(l)}
	}
	e, c := b.expect(y, m, v), math.Log1p(-pi)
	lo, hi := b.bend(0.5)
	g, err := expect.Bend{At: b.untruncated, Strip: stripLog, Lo: lo, Hi: hi, Slope: -1}.Expect(m,
		math.Sqrt(v))
	if !math.IsInf(e.Value, 0) {
		e.Value += c + g[0]
	}
	e.D1 += g[1]
	if e.D2 += g[2]; h.concave() {
		e.D2 = math.Min(0, e.D2)
	}
	e.Err += err + special.Eps*(math.Abs(c)+math.Abs(g[0]))
	return dropInfErr(e)
}

// Moments returns the mean, (1−π)μ/(1−b(0|η)), and the variance.
func (h Hurdle) Moments(eta float64) (mean, variance float64) {
	pi, b, ok := inflation(h.Zero, h.Shape)
	if !ok {
		return math.NaN(), math.NaN()
	}
	// The truncated count has mean μ/c and variance (Var_b + μ²)/c − (μ/c)², c = 1 − b(0|η). For
	// small μ both are computed as differences from a count of 1.
	mu, variance := b.moments(eta)
	r, _, _ := b.rate(eta)
	c := -math.Expm1(-r)
	switch {
	case c == 0:
		mean, variance = 1, 0
	case c == 1:
		mean = mu
	default:
		mean = mu / c
		variance = math.Max(0, mean*(variance/mu-(1-c)*mean))
	}
	return inflateMoments(pi, mean, variance)
}

// CDF returns P(Y ≤ y|η) = π + (1−π)(1 − P_b(Y > y|η)/(1 − b(0|η))) for y ≥ 0.
func (h Hurdle) CDF(y, eta float64) float64 {
	pi, b, ok := inflation(h.Zero, h.Shape)
	switch {
	case math.IsNaN(y) || !ok:
		return math.NaN()
	case y < 0:
		return 0
	case y < 1:
		return pi
	case math.IsInf(y, 1):
		return 1
	}
	return pi + (1-pi)*(1-b.truncatedAbove(math.Floor(y), eta))
}

// truncatedAbove returns P(Y > y|η) of a count that is not 0.
func (b countBase) truncatedAbove(y, eta float64) float64 {
	r, _, _ := b.rate(eta)
	c := -math.Expm1(-r)
	if c == 0 || y == 0 {
		return score.Indicator(y == 0)
	}
	return math.Min(1, b.above(y, eta)/c)
}

// predictTail implements tailPredictor. It integrates the tails given η against the Gaussian of η.
func (h Hurdle) predictTail(y, m, v float64, above bool) float64 {
	pi, b, _ := inflation(h.Zero, h.Shape)
	tail := func(eta float64) float64 { return b.truncatedAbove(y, eta) }
	if !above {
		tail = func(eta float64) float64 { return 1 - b.truncatedAbove(y, eta) }
	}
	part := 1.0
	if y > 0 {
		part = passage.PredictiveCDF(tail, math.Log(y), m, v, passage.Tol, 0)
	} else if !above {
		part = 0
	}
	if above {
		return math.Log1p(-pi) + math.Log(part)
	}
	return math.Log(pi + (1-pi)*part)
}

// Facts implements Factual.
func (h Hurdle) Facts() Facts { return Facts{Support: Counts, LogConcave: h.concave()} }

// Params implements Parametric. It includes Shape unless Shape is zero.
func (h Hurdle) Params() []Param { return inflationParams(h.Zero, h.Shape) }

// WithParams implements Parametric.
func (Hurdle) WithParams(values []float64) Likelihood {
	h := Hurdle{Zero: values[0]}
	if len(values) > 1 {
		h.Shape = values[1]
	}
	return h
}
