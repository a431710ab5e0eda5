package pgsvi

import (
	"cmp"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

func init() {
	Register("pgsvi.Gamma", Gamma{})
	Register("pgsvi.Exponential", Exponential{})
}

// Gamma is the gamma density with mean μ = e^η (log link) and variance μ²/Shape
// (McCullagh and Nelder 1989, chapter 8): with k = Shape,
//
//	p(y|η) = (k/μ)^k y^{k−1} e^{−ky/μ}/Γ(k),  y > 0.
//
// It is log-concave in η for every shape.
type Gamma struct {
	Shape float64 // k, where 1/k is the squared coefficient of variation; zero means 1
}

// gammaStirling is the shape from which Stirling's series, which does not cancel, is
// accurate to rounding.
const gammaStirling = 16

// logNorm returns k log k − k − log Γ(k), of which, with z = η − log y,
//
//	log p(y|η) = logNorm − log y − k(z + e^{−z} − 1).
//
// The last term is not negative.
func (Gamma) logNorm(k float64) float64 {
	if k >= gammaStirling {
		return math.Log(k)/2 - special.LogSqrt2Pi - special.Stirling(k)
	}
	g, _ := math.Lgamma(k)
	return k*math.Log(k) - k - g
}

// LogProb returns k log k − log Γ(k) + (k−1) log y − kη − kye^{−η}, or −Inf if y is
// not positive and finite.
func (g Gamma) LogProb(y, eta float64) float64 {
	k := positiveOr(g.Shape, 1)
	if math.IsNaN(k) {
		return k
	}
	if !Positive.contains(y, 0) {
		return math.Inf(-1)
	}
	l := math.Log(y)
	z := eta - l
	e := math.Expm1(-z)
	if math.IsInf(e, 1) {
		return math.Inf(-1)
	}
	return g.logNorm(k) - l - k*(z+e)
}

// Derivs returns kye^{−η} − k and −kye^{−η}.
func (g Gamma) Derivs(y, eta float64) (d1, d2 float64) {
	k := positiveOr(g.Shape, 1)
	z := eta - math.Log(y)
	return k * math.Expm1(-z), -k * math.Exp(-z)
}

// Expect returns, with r = ky exp(v/2 − m),
//
//	Value = k log k − log Γ(k) + (k−1) log y − km − r   D1 = r − k   D2 = −r
//
// If r overflows they are −Inf, +Inf and −Inf. If y is not positive and finite,
// Value is −Inf and the derivatives are 0.
func (g Gamma) Expect(y, m, v float64) Expectation {
	k := positiveOr(g.Shape, 1)
	if !expect.Valid(m, v) || math.IsNaN(k) {
		return quadNaN()
	}
	if !Positive.contains(y, 0) {
		return offSupport(m, v)
	}
	l := math.Log(y)
	z := m - l
	a := v/2 - z
	x, r := math.Expm1(a), k*math.Exp(a)
	if math.IsInf(r, 1) || math.IsInf(x, 1) {
		return Expectation{math.Inf(-1), k * x, -r, 0}
	}
	c := g.logNorm(k)
	e := Expectation{Value: c - l - k*(z+x), D1: k * x, D2: -r}
	// The rounding of z acts on z + e^{−z}, that of a on the exponential alone.
	e.Err = 4 * special.Eps * (math.Abs(c) + k + math.Abs(l) + math.Abs(k*x)*(1+math.Abs(l)) + k*math.Abs(z) + r*(math.Abs(m)+math.Abs(l)+v))
	if k < gammaStirling {
		e.Err += 4 * special.Eps * 40
	}
	if math.IsInf(e.Value, 0) || math.IsNaN(e.Err) {
		e.Err = 0
	}
	return e
}

// Moments returns μ and μ²/k.
func (g Gamma) Moments(eta float64) (mean, variance float64) {
	k, mu := positiveOr(g.Shape, 1), math.Exp(eta)
	if math.IsNaN(k) {
		return k, k
	}
	return mu, mu * (mu / k)
}

// CDF returns P(Y ≤ y|η) = P(k, ky/μ), the regularised lower incomplete gamma function.
func (g Gamma) CDF(y, eta float64) float64 {
	k := positiveOr(g.Shape, 1)
	if math.IsNaN(y) || math.IsNaN(k) {
		return math.NaN()
	}
	if y <= 0 {
		return 0
	}
	return special.Gamma(k, k*math.Exp(math.Log(y)-eta))
}

// Facts implements Factual.
func (Gamma) Facts() Facts { return Facts{Support: Positive, LogConcave: true} }

// Params implements Parametric.
func (g Gamma) Params() []Param {
	return []Param{{Name: "Shape", Value: cmp.Or(g.Shape, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (g Gamma) WithParams(values []float64) Likelihood { return Gamma{Shape: values[0]} }

// predictMoments returns E[μ] and E[μ²]/k + Var[μ] of the log-normal mean μ.
func (g Gamma) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := special.LogNormal(m, v)
	return mean, square/positiveOr(g.Shape, 1) + spread
}

// Exponential is p(y|η) = e^{−η} exp(−ye^{−η}), y ≥ 0: the exponential density with
// mean e^η (log link), which is Gamma with Shape 1 and constant hazard e^{−η}
// (Cox and Oakes 1984, section 2.3). It has no parameters.
type Exponential struct{}

// LogProb returns −η − ye^{−η}, or −Inf if y is negative or not finite.
func (x Exponential) LogProb(y, eta float64) float64 {
	if !NonNegative.contains(y, 0) {
		return math.Inf(-1)
	}
	r := special.Times(y, math.Exp(-eta))
	if math.IsInf(r, 1) {
		return math.Inf(-1)
	}
	return -eta - r
}

// Derivs returns ye^{−η} − 1 and −ye^{−η}.
func (Exponential) Derivs(y, eta float64) (d1, d2 float64) {
	r := special.Times(y, math.Exp(-eta))
	return r - 1, -r
}

// Expect returns, with r = y exp(v/2 − m),
//
//	Value = −m − r   D1 = r − 1   D2 = −r
//
// If r overflows they are −Inf, +Inf and −Inf. If y is negative or not finite, Value
// is −Inf and the derivatives are 0.
func (x Exponential) Expect(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if !NonNegative.contains(y, 0) {
		return offSupport(m, v)
	}
	r := special.Times(y, math.Exp(v/2-m))
	if math.IsInf(r, 1) {
		return Expectation{-r, r, -r, 0}
	}
	e := Expectation{Value: -m - r, D1: r - 1, D2: -r}
	e.Err = 4 * special.Eps * (math.Abs(m) + special.Times(r, 1+math.Abs(m)+v))
	return dropInfErr(e)
}

// Moments returns e^η and e^{2η}.
func (Exponential) Moments(eta float64) (mean, variance float64) {
	mu := math.Exp(eta)
	return mu, mu * mu
}

// CDF returns P(Y ≤ y|η) = 1 − exp(−ye^{−η}).
func (Exponential) CDF(y, eta float64) float64 {
	if y <= 0 {
		return 0
	}
	return -math.Expm1(-math.Exp(math.Log(y) - eta))
}

// Facts implements Factual.
func (Exponential) Facts() Facts { return Facts{Support: NonNegative, LogConcave: true} }

// predictMoments returns E[μ] and E[μ²] + Var[μ] of the log-normal mean μ.
func (Exponential) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := special.LogNormal(m, v)
	return mean, square + spread
}
