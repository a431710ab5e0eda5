package pgsvi

import (
	"cmp"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mathext"
)

var _ = builtin{
	"pgsvi.GaussianNoise": GaussianNoise{},
	"pgsvi.StudentT":      StudentT{},
	"pgsvi.Laplace":       Laplace{},
	"pgsvi.Gamma":         Gamma{},
	"pgsvi.Exponential":   Exponential{},
}.register()

// GaussianNoise is the likelihood of linear and Gaussian process regression, p(y|η) = N(y|η, Var).
type GaussianNoise struct {
	Var float64 // noise variance; zero means 1
}

// LogProb returns −½ log(2πVar) − (y−η)²/(2Var).
func (g GaussianNoise) LogProb(y, eta float64) float64 {
	v := positiveOr(g.Var, 1)
	r := (y - eta) / math.Sqrt(v)
	return -special.LogSqrt2Pi - math.Log(v)/2 - r*r/2
}

// Derivs returns (y−η)/Var and −1/Var.
func (g GaussianNoise) Derivs(y, eta float64) (d1, d2 float64) {
	v := positiveOr(g.Var, 1)
	return (y - eta) / v, -1 / v
}

// ExpectLogProb returns −½ log(2πVar) − ((y−m)²+v)/(2Var), (y−m)/Var and −1/Var.
func (g GaussianNoise) ExpectLogProb(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	n := positiveOr(g.Var, 1)
	return g.expectation(y, m, v, n, math.Sqrt(n), special.LogSqrt2Pi+math.Log(n)/2)
}

// expectation is ExpectLogProb under noise with variance n and standard deviation sd. k is ½
// log(2πn).
func (GaussianNoise) expectation(y, m, v, n, sd, k float64) Expectation {
	r := (y - m) / sd
	q := (r*r + v/n) / 2
	e := Expectation{Value: -k - q, D1: (y - m) / n, D2: -1 / n,
		Err: 8 * special.Eps * (q + math.Abs(k) + 1)}
	if math.IsInf(q, 1) {
		e.Err = 0
	}
	return e
}

// Moments returns η and Var.
func (g GaussianNoise) Moments(eta float64) (mean, variance float64) {
	return eta, positiveOr(g.Var, 1)
}

// CDF returns Φ((y−η)/√Var).
func (g GaussianNoise) CDF(y, eta float64) float64 {
	return special.NormalTail((eta - y) / math.Sqrt(positiveOr(g.Var, 1)))
}

// Facts implements Factual.
func (GaussianNoise) Facts() Facts {
	return Facts{Support: RealLine, LogConcave: true, selfBounded: true}
}

// Params implements Parametric.
func (g GaussianNoise) Params() []Param {
	return []Param{{Name: "Var", Value: cmp.Or(g.Var, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (g GaussianNoise) WithParams(
	values []float64) Likelihood {
	return GaussianNoise{Var: values[0]}
}

// StudentT is the likelihood of robust regression, for data with outliers. y = η + Scale·t, where t
// has Student's t distribution with DF degrees of freedom. log p is not concave in η, because its
// second derivative is positive if |y−η| exceeds Scale √DF.
type StudentT struct {
	DF    float64 // degrees of freedom ν; zero means 4
	Scale float64 // zero means 1; the standard deviation is Scale √(ν/(ν−2))
}

// dfScale returns the parameters, or NaN for parameters out of range.
func (t StudentT) dfScale() (df, scale float64) {
	return positiveOr(t.DF, 4), positiveOr(t.Scale, 1)
}

const (
	studentSeries = 200   // degrees of freedom from which the asymptotic series is used
	studentErr    = 1e-13 // relative error of the quadrature
)

// logNorm returns log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν) − log Scale.
func (t StudentT) logNorm() float64 {
	nu, c := t.dfScale()
	var r float64
	if nu > studentSeries {
		// The difference of two log Γ would lose digits. This is the asymptotic series of
		// Γ(x+½)/(Γ(x)√x), x = ν/2 (Abramowitz and Stegun 1964, 6.1.47).
		x := 2 / nu
		r = -x/8 + x*x*x/192 - x*x*x*x*x/640 + 17*math.Pow(x, 7)/14336
		r -= math.Ln2 / 2
		return r - math.Log(math.Pi)/2 - math.Log(c)
	}
	a, _ := math.Lgamma((nu + 1) / 2)
	b, _ := math.Lgamma(nu / 2)
	return a - b - math.Log(math.Pi*nu)/2 - math.Log(c)
}

// studentKernel returns −(ν+1)/2 log(1+z²) at z = (x−y)/w and its derivatives in x.
func studentKernel(nu, w, z float64) (g, d1, d2 float64) {
	if a := math.Abs(z); a > 1e9 {
		return -(nu + 1) * math.Log(a), -(nu + 1) / (w * z), (nu + 1) / (w * z) / (w * z)
	}
	q := z * z
	r := 1 / (1 + q)
	k := (nu + 1) * r / w
	return -(nu + 1) / 2 * math.Log1p(q), -k * z, k * r / w * (q - 1)
}

// LogProb returns log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν) − log Scale − (ν+1)/2 log(1 + (y−η)²/(ν
// Scale²)).
func (t StudentT) LogProb(y, eta float64) float64 {
	nu, c := t.dfScale()
	w := c * math.Sqrt(nu)
	g, _, _ := studentKernel(nu, w, (eta-y)/w)
	return t.logNorm() + g
}

// Derivs returns (ν+1)r/(νScale²+r²) and (ν+1)(r²−νScale²)/(νScale²+r²)², r = y−η.
func (t StudentT) Derivs(y, eta float64) (d1, d2 float64) {
	nu, c := t.dfScale()
	w := c * math.Sqrt(nu)
	_, d1, d2 = studentKernel(nu, w, (eta-y)/w)
	return d1, d2
}

// ExpectLogProb uses Gauss–Hermite quadrature if the Gaussian is narrow or far from y. Otherwise it
// uses Gauss–Legendre quadrature on panels that are shorter near y, because the log density is
// singular at y ± i Scale √ν. Err is 1e−13 times the expected distance of log p from its largest
// value, plus the rounding error of that value.
func (t StudentT) ExpectLogProb(y, m, v float64) Expectation {
	nu, c := t.dfScale()
	if !expect.Valid(m, v) || math.IsNaN(nu+c) {
		return quadNaN()
	}
	w, k := c*math.Sqrt(nu), t.logNorm()
	// In units of w, with y at zero.
	z, s := (m-y)/w, math.Min(math.Sqrt(v)/w, 1e300)
	z = math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, z))
	f := func(x float64) (g, d1, d2 float64) { return studentKernel(nu, 1, x) }
	var e [3]float64
	var abs float64
	if s > 0 {
		e, abs = expect.Centred(f, z, s, z-9*s, z+9*s, s, 0, 1)
	} else {
		e[0], e[1], e[2] = f(z)
		abs = -e[0]
	}
	return Expectation{k + e[0], e[1] / w, e[2] / w / w,
		studentErr*abs + 16*special.Eps*(1+math.Abs(k))}
}

// Moments returns η and Scale² ν/(ν−2). The variance is +Inf if 1 < ν ≤ 2, and both are NaN if ν ≤
// 1.
func (t StudentT) Moments(eta float64) (mean, variance float64) {
	nu, c := t.dfScale()
	switch {
	case nu > 2:
		return eta, c * c * (nu / (nu - 2))
	case nu > 1:
		return eta, math.Inf(1)
	}
	return math.NaN(), math.NaN()
}

// CDF returns P(Y ≤ y|η), computed by the regularized incomplete beta function.
func (t StudentT) CDF(y, eta float64) float64 {
	nu, c := t.dfScale()
	return special.StudentCDF(nu, (y-eta)/c)
}

// Facts implements Factual.
func (StudentT) Facts() Facts { return Facts{Support: RealLine} }

// Params implements Parametric.
func (t StudentT) Params() []Param {
	return []Param{
		{Name: "DF", Value: cmp.Or(t.DF, 4), Max: math.Inf(1)},
		{Name: "Scale", Value: cmp.Or(t.Scale, 1), Max: math.Inf(1)},
	}
}

// WithParams implements Parametric.
func (t StudentT) WithParams(values []float64) Likelihood {
	return StudentT{DF: values[0], Scale: values[1]}
}

// Laplace is the likelihood of robust (median) regression, p(y|η) = exp(−|y−η|/Scale)/(2Scale). log
// p has a kink at η = y.
type Laplace struct {
	Scale float64 // mean absolute deviation b; zero means 1
}

// LogProb returns −log(2b) − |y−η|/b.
func (l Laplace) LogProb(y, eta float64) float64 {
	b := positiveOr(l.Scale, 1)
	return -math.Log(2*b) - math.Abs(y-eta)/b
}

// ExpectLogProb returns, with t = (m−y)/s and s = √v,
//
//	Value = −log(2b) − (|m−y| + 2s(φ(t) − |t|Φ(−|t|)))/b
//	D1 = (1 − 2Φ(t))/b   D2 = −2φ(t)/(bs)
//
// At v = 0, D1 is 0 and D2 is −Inf at the kink itself, and D2 is 0 elsewhere.
func (l Laplace) ExpectLogProb(y, m, v float64) Expectation {
	b := positiveOr(l.Scale, 1)
	if !expect.Valid(m, v) || math.IsNaN(b) {
		return quadNaN()
	}
	d, s := m-y, math.Sqrt(v)
	a := math.Abs(d)
	k := -math.Log(2 * b)
	e := Expectation{Value: k - a/b}
	switch {
	case s > 0:
		t := a / s
		e.Value -= 2 * s * special.NormalLoss(t) / b
		e.D1 = -math.Copysign(math.Erf(t/math.Sqrt2), d) / b
		e.D2 = -2 * special.NormalPDF(t) / s / b
	case d == 0:
		e.D2 = math.Inf(-1)
	default:
		e.D1 = -math.Copysign(1, d) / b
	}
	if !math.IsInf(e.Value, 0) {
		e.Err = 8 * special.Eps * (1 + math.Abs(k) + math.Abs(e.Value-k))
	}
	return e
}

// Moments returns η and 2b².
func (l Laplace) Moments(eta float64) (mean, variance float64) {
	b := positiveOr(l.Scale, 1)
	return eta, 2 * b * b
}

// CDF returns P(Y ≤ y|η), which is ½e^{−|y−η|/b} for y ≤ η and 1 − ½e^{−|y−η|/b} for y > η.
func (l Laplace) CDF(y, eta float64) float64 {
	b := positiveOr(l.Scale, 1)
	p := math.Exp(-math.Abs(y-eta)/b) / 2
	if y > eta {
		return 1 - p
	}
	return p
}

// Facts implements Factual.
func (Laplace) Facts() Facts { return Facts{Support: RealLine, LogConcave: true} }

// Params implements Parametric.
func (l Laplace) Params() []Param {
	return []Param{{Name: "Scale", Value: cmp.Or(l.Scale, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (l Laplace) WithParams(values []float64) Likelihood { return Laplace{Scale: values[0]} }

func (g GaussianNoise) predictLogProb(y, m, v float64) (logp, bound float64) {
	n := positiveOr(g.Var, 1) + v
	r := (y - m) / math.Sqrt(n)
	k := special.LogSqrt2Pi + math.Log(n)/2
	return -k - r*r/2, 4 * special.Eps * (1 + math.Abs(k) + r*r)
}

// predictLogProb returns the log of the convolution of a Laplace density and a Gaussian, φ(t)
// (R(k−t) + R(k+t))/(2b) with t = |y−m|/s, k = s/b and Mills' ratio R.
func (l Laplace) predictLogProb(y, m, v float64) (logp, bound float64) {
	b, s := positiveOr(l.Scale, 1), math.Sqrt(v)
	t, k := math.Abs(y-m)/s, s/b
	if t-k > 8 {
		logp = -k*(t-k/2) + special.NormalLogTail(k-t)
		bound = k * (t + k)
	} else {
		logp = math.Log(special.Mills(k-t)+special.Mills(k+t)) - t*t/2 - special.LogSqrt2Pi
		bound = t * t
	}
	return logp - math.Log(2*b), 4 * special.Eps * (2 + bound + math.Abs(math.Log(2*b)))
}

// predictTail implements tailPredictor. The tails of Student's t are too heavy for a passage, so it
// integrates them against the Gaussian of η.
func (t StudentT) predictTail(y, m, v float64, above bool) float64 {
	nu, c := t.dfScale()
	sign := 1.0
	if above {
		sign = -1
	}
	return math.Log(passage.PredictiveCDF(func(eta float64) float64 {
		return special.StudentCDF(nu,
			sign*(y-eta)/c)
	}, y, m, v, passage.Tol, 0))
}

// predictTail implements tailPredictor.
func (l Laplace) predictTail(y, m, v float64, above bool) float64 {
	b := positiveOr(l.Scale, 1)
	norm := -math.Log(2 * b)
	return passage.Passage{Centre: y, Width: b,
		Log: func(d float64) float64 { return norm - math.Abs(d)/b }}.Tail(m, v, above)
}

func (g GaussianNoise) predictMoments(m, v float64) (mean, variance float64) {
	return m, positiveOr(g.Var, 1) + v
}

func (t StudentT) predictMoments(m, v float64) (mean, variance float64) {
	mean, variance = t.Moments(m)
	return mean, variance + v
}

func (l Laplace) predictMoments(m, v float64) (mean, variance float64) {
	mean, variance = l.Moments(m)
	return mean, variance + v
}

// predictQuantile returns the quantile of y for η ~ N(m, v).
func (g GaussianNoise) predictQuantile(p, m, v float64) float64 {
	return m + math.Sqrt(positiveOr(g.Var, 1)+v)*mathext.NormalQuantile(p)
}

// Gamma is the likelihood of positive responses with mean μ = e^η (log link) and variance μ²/Shape
// (gamma regression; McCullagh and Nelder 1989, chapter 8). With k = Shape,
//
//	p(y|η) = (k/μ)^k y^{k−1} e^{−ky/μ}/Γ(k),  y > 0.
//
// log p is concave in η for every shape.
type Gamma struct {
	Shape float64 // k, where 1/k is the squared coefficient of variation; zero means 1
}

// LogProb returns k log k − log Γ(k) + (k−1) log y − kη − kye^{−η}, or −Inf if y is not positive
// and finite.
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
	return passage.GammaLogNorm(k) - l - k*(z+e)
}

// rate implements fast.rate.
func (g Gamma) rate(y float64) (sign, origin, slope float64) {
	k := positiveOr(g.Shape, 1)
	return -1, math.Log(k) + math.Log(y), -k
}

// Derivs returns kye^{−η} − k and −kye^{−η}.
func (g Gamma) Derivs(y, eta float64) (d1, d2 float64) {
	k := positiveOr(g.Shape, 1)
	z := eta - math.Log(y)
	return k * math.Expm1(-z), -k * math.Exp(-z)
}

// ExpectLogProb returns, with r = ky exp(v/2 − m),
//
//	Value = k log k − log Γ(k) + (k−1) log y − km − r   D1 = r − k   D2 = −r
//
// If r overflows, they are −Inf, +Inf and −Inf. If y is not positive and finite, Value is −Inf and
// the derivatives are 0.
func (g Gamma) ExpectLogProb(y, m, v float64) Expectation {
	k := positiveOr(g.Shape, 1)
	if !expect.Valid(m, v) || math.IsNaN(k) {
		return quadNaN()
	}
	if !Positive.contains(y, 0) {
		return offSupport(m, v)
	}
	l := math.Log(y)
	return g.expectation(m, v, l, k, passage.GammaLogNorm(k), exp1(v/2-(m-l)))
}

// expectation is ExpectLogProb of a y with logarithm l. k is the shape, c is its
// passage.GammaLogNorm, and e is exp(v/2 − m + log y).
func (g Gamma) expectation(m, v, l, k, c, e float64) Expectation {
	z := m - l
	x, r := special.Expm1(v/2-z, e), k*e
	if math.IsInf(r, 1) {
		return Expectation{math.Inf(-1), k * x, -r, 0}
	}
	w := Expectation{Value: c - l - k*(z+x), D1: k * x, D2: -r}
	// The rounding of z affects z + e^{−z}, but the rounding of a affects only the exponential.
	w.Err = 4 * special.Eps * (math.Abs(c) + k + math.Abs(l) + math.Abs(k*x)*(1+math.Abs(l)) +
		k*math.Abs(z) + r*(math.Abs(m)+math.Abs(l)+v))
	if k < passage.GammaStirling {
		w.Err += 4 * special.Eps * 40
	}
	if math.IsInf(w.Value, 0) || math.IsNaN(w.Err) {
		w.Err = 0
	}
	return w
}

// Moments returns μ and μ²/k.
func (g Gamma) Moments(eta float64) (mean, variance float64) {
	k, mu := positiveOr(g.Shape, 1), math.Exp(eta)
	if math.IsNaN(k) {
		return k, k
	}
	return mu, mu * (mu / k)
}

// CDF returns P(Y ≤ y|η) = P(k, ky/μ), the regularized lower incomplete gamma function.
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

// predictTail implements tailPredictor. P(Y ≤ y|η) is the probability that e^η is at most ky
// divided by a gamma variable of shape k.
func (g Gamma) predictTail(y, m, v float64, above bool) float64 {
	return passage.GammaPassage(math.Log(y), positiveOr(g.Shape, 1), -1).Tail(m, v, above)
}

// Exponential is the likelihood of waiting times with mean e^η (log link) and constant hazard
// e^{−η} (Cox and Oakes 1984, section 2.3), p(y|η) = e^{−η} exp(−ye^{−η}), y ≥ 0. It is Gamma with
// Shape 1 and has no parameters.
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

// ExpectLogProb returns, with r = y exp(v/2 − m),
//
//	Value = −m − r   D1 = r − 1   D2 = −r
//
// If r overflows, they are −Inf, +Inf and −Inf. If y is negative or not finite, Value is −Inf and
// the derivatives are 0.
func (x Exponential) ExpectLogProb(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if !NonNegative.contains(y, 0) {
		return offSupport(m, v)
	}
	return x.expectation(y, m, v, exp1(v/2-m))
}

// expectation is ExpectLogProb of a waiting time y. e is exp(v/2 − m).
func (Exponential) expectation(y, m, v, e float64) Expectation {
	r := special.Times(y, e)
	if math.IsInf(r, 1) {
		return Expectation{-r, r, -r, 0}
	}
	w := Expectation{Value: -m - r, D1: r - 1, D2: -r}
	w.Err = 4 * special.Eps * (math.Abs(m) + special.Times(r, 1+math.Abs(m)+v))
	return dropInfErr(w)
}

// rate implements fast.rate.
func (Exponential) rate(y float64) (sign, origin, slope float64) { return -1, math.Log(y), -1 }

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

// predictTail implements tailPredictor.
func (Exponential) predictTail(y, m, v float64, above bool) float64 {
	return Gamma{}.predictTail(y, m, v, above)
}
