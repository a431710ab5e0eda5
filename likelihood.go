package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Likelihood is the probability of a response y given its latent value η. It is
// the only thing that a user has to write. The interfaces below are optional;
// they are found by type assertion and make the same things faster, more
// accurate, or possible.
//
// Every implementation must be safe for concurrent use. Those of this package
// are structs of parameters: the zero value is usable, a parameter that is zero
// takes its default, and one outside its range (see Validate) makes every result
// NaN.
type Likelihood interface {
	// LogProb returns log p(y|η), natural logarithm. It need not be normalised
	// over y to fit, but must be to predict. It is −Inf where p = 0; a NaN counts
	// as −Inf.
	LogProb(y, eta float64) float64
}

// Differentiable is a Likelihood that is twice continuously differentiable in η.
// One with a kink must not implement it: the mass that the kink contributes to
// E[∂² log p] would be lost.
type Differentiable interface {
	// Derivs returns ∂ log p(y|η)/∂η and ∂² log p(y|η)/∂η².
	Derivs(y, eta float64) (d1, d2 float64)
}

// Expecter is a Likelihood that computes its Gaussian expectations itself.
type Expecter interface {
	// Expect returns E[log p(y|η)] for η ~ N(m, v), as ExpectLogProb does.
	Expect(y, m, v float64) Expectation
}

// LabelChecker is a Likelihood that not every y is a response of.
type LabelChecker interface {
	// CheckLabel returns an error that wraps ErrLabel if p(y|η) is zero or
	// undefined for every η. Constructors call it for each datum.
	CheckLabel(y float64) error
}

// Responder is a Likelihood that knows the distribution of y given η.
type Responder interface {
	// Moments returns E[y|η] and Var[y|η], NaN where they do not exist.
	Moments(eta float64) (mean, variance float64)
	// CDF returns P(Y ≤ y|η).
	CDF(y, eta float64) float64
}

// Validator is a Likelihood with parameters.
type Validator interface {
	// Validate returns an error that wraps ErrParam and names every parameter
	// outside its range.
	Validate() error
}

// likeDefault returns x, or d if x is zero, or NaN if x is not a positive
// finite number.
func likeDefault(x, d float64) float64 {
	switch {
	case x == 0:
		return d
	case x > 0 && x <= math.MaxFloat64:
		return x
	}
	return math.NaN()
}

// likePositive is the error for a parameter that likeDefault refuses.
func likePositive(name string, x float64) error {
	if math.IsNaN(likeDefault(x, 1)) {
		return fmt.Errorf("pgsvi: %w: %s = %v, want a positive number, or zero for the default", ErrParam, name, x)
	}
	return nil
}

func likeSign(name string, y float64) error {
	if y != 1 && y != -1 {
		return fmt.Errorf("pgsvi: %w: %s: y = %v, want −1 or +1", ErrLabel, name, y)
	}
	return nil
}

func likeReal(name string, y float64) error {
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return fmt.Errorf("pgsvi: %w: %s: y = %v, want a finite number", ErrLabel, name, y)
	}
	return nil
}

// likeNone is the expectation for a y outside the support.
func likeNone(m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	return Expectation{Value: math.Inf(-1)}
}

// likeBounded sets Err to 0 where Value overflowed.
func likeBounded(e Expectation) Expectation {
	if math.IsInf(e.Value, 0) {
		e.Err = 0
	}
	return e
}

// likeSignCDF is P(Y ≤ y) for Y in {−1, +1} with P(Y = −1) = q.
func likeSignCDF(y, q float64) float64 {
	switch {
	case y < -1:
		return 0
	case y < 1:
		return q
	case y >= 1:
		return 1
	}
	return math.NaN()
}

// BernoulliLogit is p(y|η) = 1/(1+e^{−yη}), y ∈ {−1, +1}. It has no parameters.
//
// Its expectations are E[max(0, −yη)], in closed form, plus the expectation of a
// bump, by the rule that suits the variance (see Expect).
type BernoulliLogit struct{}

// LogProb returns −log(1+e^{−yη}), or −Inf if y is not −1 or +1.
func (BernoulliLogit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	f, _, _ := softplusAt(y * eta)
	return -f
}

// Derivs returns yσ(−yη) and −σ(η)σ(−η).
func (BernoulliLogit) Derivs(y, eta float64) (d1, d2 float64) {
	_, f1, f2 := softplusAt(y * eta)
	return y * f1, -f2
}

// Expect returns E[log σ(yη)] and its derivatives, D1 = yE[σ(−yη)] and
// D2 = −E[σ(η)σ(−η)] ≤ 0. Their relative errors are below 2e−13, in the tails
// too (measured against 32-digit arithmetic: 3e−14, 3e−14, 7e−14 for |m| ≤ 1e3
// and 1e−4 ≤ √v ≤ 1e3), and Err is that. If y is not −1 or +1 Value is −Inf.
func (BernoulliLogit) Expect(y, m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return likeNone(m, v)
	}
	f0, f1, f2, scale := softplusExpect(math.Abs(m), v)
	if scale != 0 {
		c := math.Exp(scale)
		f0, f1, f2 = c*f0, c*f1, c*f2
	}
	if y*m < 0 {
		// log(1+e^{−x}) = log(1+e^x) − x
		f0, f1 = f0+math.Abs(m), 1-f1
	}
	return Expectation{Value: -f0, D1: y * f1, D2: -f2, Err: logitErr * f0}
}

const logitErr = 2e-13

// CheckLabel accepts −1 and +1.
func (BernoulliLogit) CheckLabel(y float64) error { return likeSign("BernoulliLogit", y) }

// Moments returns tanh(η/2) and 4σ(η)σ(−η).
func (BernoulliLogit) Moments(eta float64) (mean, variance float64) {
	_, _, f2 := softplusAt(eta)
	return math.Tanh(eta / 2), 4 * f2
}

// CDF returns P(Y ≤ y|η): σ(−η) for −1 ≤ y < 1.
func (BernoulliLogit) CDF(y, eta float64) float64 {
	_, q, _ := softplusAt(eta)
	return likeSignCDF(y, q)
}

// Support returns SignLabels.
func (BernoulliLogit) Support() Support { return SignLabels }

// BernoulliProbit is p(y|η) = Φ(yη), y ∈ {−1, +1}. It has no parameters.
type BernoulliProbit struct{}

// LogProb returns log Φ(yη), or −Inf if y is not −1 or +1.
func (BernoulliProbit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	g, _, _ := gaussLogCDF(y * eta)
	return g
}

// Derivs returns yλ and −λ(λ+yη), where λ = φ(yη)/Φ(yη) is the inverse Mills ratio.
func (BernoulliProbit) Derivs(y, eta float64) (d1, d2 float64) {
	_, d1, d2 = gaussLogCDF(y * eta)
	return y * d1, d2
}

// Expect returns E[log Φ(yη)] and its derivatives, by Gauss–Hermite where the
// Gaussian is narrow and by Gauss–Legendre on graded panels where it is not:
// the zeros of Φ nearest the real line are 1.916 ± 2.816i. D2 < 0. The relative
// error is below 1e−12, and Err is that. If y is not −1 or +1 Value is −Inf.
func (BernoulliProbit) Expect(y, m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return likeNone(m, v)
	}
	m *= y
	if v == 0 {
		g, d1, d2 := gaussLogCDF(m)
		return likeBounded(Expectation{g, y * d1, d2, 1e-14 * math.Abs(g)})
	}
	if m > 39*math.Sqrt(1+v) {
		return Expectation{} // of the order exp(−m²/2(1+v))
	}
	s := math.Sqrt(v)
	w, lo, hi := s, m-9*s, m+9*s
	if m*s > 0.4*(1+v) {
		// Right of zero Φ(−x) is like e^{−x²/2} and has its mode against N(m, v) at
		// m/(1+v); left of zero, where N(m, v) is like e^{xm/v}, it is near zero.
		w = s / math.Sqrt(1+v)
		lo = math.Min(m/(1+v)-9*w, -80*v/(m+math.Sqrt(m*m+80*v)))
		hi = math.Min(m/(1+v)+9*w+3, hi)
	} else {
		hi = math.Min(hi, 9.5)
	}
	e, _ := quadCentred(gaussLogCDF, m, s, lo, hi, w, 1.916, 2.816)
	return likeBounded(Expectation{e[0], y * e[1], e[2], 1e-12 * math.Abs(e[0])})
}

// CheckLabel accepts −1 and +1.
func (BernoulliProbit) CheckLabel(y float64) error { return likeSign("BernoulliProbit", y) }

// Moments returns 2Φ(η)−1 and 4Φ(η)Φ(−η).
func (BernoulliProbit) Moments(eta float64) (mean, variance float64) {
	q := gaussTail(math.Abs(eta))
	return math.Erf(eta / math.Sqrt2), 4 * q * (1 - q)
}

// CDF returns P(Y ≤ y|η): Φ(−η) for −1 ≤ y < 1.
func (BernoulliProbit) CDF(y, eta float64) float64 { return likeSignCDF(y, gaussTail(eta)) }

// Support returns SignLabels.
func (BernoulliProbit) Support() Support { return SignLabels }

// Poisson is p(y|η) = r^y e^{−r}/y!, y = 0, 1, 2, …, with rate r = Exposure e^η.
type Poisson struct {
	Exposure float64 // time, area or population that y was counted in; zero means 1
}

func (p Poisson) counts(y float64) bool {
	return y >= 0 && y == math.Floor(y) && y <= math.MaxFloat64
}

// LogProb returns y(η + log Exposure) − Exposure e^η − log y!, or −Inf if y is
// not a non-negative integer.
func (p Poisson) LogProb(y, eta float64) float64 {
	if !p.counts(y) {
		return math.Inf(-1)
	}
	c := likeDefault(p.Exposure, 1)
	g, _ := math.Lgamma(y + 1)
	r := c * math.Exp(eta)
	if math.IsInf(r, 1) {
		return math.Inf(-1)
	}
	return likeTimes(y, eta+math.Log(c)) - r - g
}

// likeTimes is xy with 0·∞ = 0.
func likeTimes(x, y float64) float64 {
	if x == 0 && !math.IsNaN(y) {
		return 0
	}
	return x * y
}

// Derivs returns y − r and −r.
func (p Poisson) Derivs(y, eta float64) (d1, d2 float64) {
	r := likeDefault(p.Exposure, 1) * math.Exp(eta)
	return y - r, -r
}

// Expect returns, with r = Exposure exp(m + v/2),
//
//	Value = y(m + log Exposure) − r − log y!   D1 = y − r   D2 = −r
//
// All three are −Inf if r overflows. If y is not a non-negative integer Value
// is −Inf and the derivatives are zero.
func (p Poisson) Expect(y, m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	if !p.counts(y) {
		return likeNone(m, v)
	}
	c := likeDefault(p.Exposure, 1)
	a := m + v/2
	r := c * math.Exp(a)
	if math.IsInf(r, 1) {
		return Expectation{-r, -r, -r, 0}
	}
	g, _ := math.Lgamma(y + 1)
	t := likeTimes(y, m+math.Log(c))
	e := Expectation{Value: t - r - g, D1: y - r, D2: -r}
	// The exponential turns the absolute error of its argument into a relative one.
	e.Err = 4 * quadEps * (math.Abs(t) + y*math.Abs(math.Log(c)) + g + r*(1+math.Abs(m)+v))
	if math.IsInf(e.Value, 0) || math.IsNaN(e.Err) {
		e.Err = 0
	}
	return e
}

// CheckLabel accepts 0, 1, 2, ….
func (p Poisson) CheckLabel(y float64) error {
	if !p.counts(y) {
		return fmt.Errorf("pgsvi: %w: Poisson: y = %v, want a non-negative integer", ErrLabel, y)
	}
	return nil
}

// Moments returns the rate twice.
func (p Poisson) Moments(eta float64) (mean, variance float64) {
	r := likeDefault(p.Exposure, 1) * math.Exp(eta)
	return r, r
}

// CDF returns P(Y ≤ y|η) = Q(⌊y⌋+1, r), the upper incomplete gamma ratio.
func (p Poisson) CDF(y, eta float64) float64 {
	r, _ := p.Moments(eta)
	switch {
	case math.IsNaN(y) || math.IsNaN(r):
		return math.NaN()
	case y < 0:
		return 0
	case math.IsInf(y, 1) || r == 0:
		return 1
	case math.IsInf(r, 1):
		return 0
	}
	return mathext.GammaIncRegComp(math.Floor(y)+1, r)
}

// Support returns Counts.
func (Poisson) Support() Support { return Counts }

// Validate returns an error that wraps ErrParam unless Exposure is zero or positive and finite.
func (p Poisson) Validate() error { return likePositive("Poisson.Exposure", p.Exposure) }

// GaussianNoise is p(y|η) = N(y|η, Var).
type GaussianNoise struct {
	Var float64 // noise variance; zero means 1
}

// LogProb returns −½ log(2πVar) − (y−η)²/(2Var).
func (g GaussianNoise) LogProb(y, eta float64) float64 {
	v := likeDefault(g.Var, 1)
	r := (y - eta) / math.Sqrt(v)
	return -gaussLogSqrt2Pi - math.Log(v)/2 - r*r/2
}

// Derivs returns (y−η)/Var and −1/Var.
func (g GaussianNoise) Derivs(y, eta float64) (d1, d2 float64) {
	v := likeDefault(g.Var, 1)
	return (y - eta) / v, -1 / v
}

// Expect returns −½ log(2πVar) − ((y−m)²+v)/(2Var), (y−m)/Var and −1/Var.
func (g GaussianNoise) Expect(y, m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	n := likeDefault(g.Var, 1)
	r := (y - m) / math.Sqrt(n)
	q, k := (r*r+v/n)/2, gaussLogSqrt2Pi+math.Log(n)/2
	e := Expectation{Value: -k - q, D1: (y - m) / n, D2: -1 / n, Err: 8 * quadEps * (q + math.Abs(k) + 1)}
	if math.IsInf(q, 1) {
		e.Err = 0
	}
	return e
}

// CheckLabel accepts every finite number.
func (g GaussianNoise) CheckLabel(y float64) error { return likeReal("GaussianNoise", y) }

// Moments returns η and Var.
func (g GaussianNoise) Moments(eta float64) (mean, variance float64) {
	return eta, likeDefault(g.Var, 1)
}

// CDF returns Φ((y−η)/√Var).
func (g GaussianNoise) CDF(y, eta float64) float64 {
	return gaussTail((eta - y) / math.Sqrt(likeDefault(g.Var, 1)))
}

// Validate returns an error that wraps ErrParam unless Var is zero or positive and finite.
func (g GaussianNoise) Validate() error { return likePositive("GaussianNoise.Var", g.Var) }

// StudentT is the density of y = η + Scale·t, where t has Student's distribution
// with DF degrees of freedom. It is not log-concave: D2 is positive where |y−η|
// exceeds Scale √DF.
type StudentT struct {
	DF    float64 // degrees of freedom ν; zero means 4
	Scale float64 // not the standard deviation, which is Scale √(ν/(ν−2)); zero means 1
}

func (t StudentT) params() (df, scale float64) {
	return likeDefault(t.DF, 4), likeDefault(t.Scale, 1)
}

// logNorm returns log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν) − log Scale.
func (t StudentT) logNorm() float64 {
	nu, c := t.params()
	var r float64
	if nu > 200 {
		// Γ(x+½)/(Γ(x)√x) by its asymptotic series, x = ν/2: the difference of
		// two log Γ would lose digits (Abramowitz and Stegun 1964, 6.1.47).
		x := 2 / nu
		r = -x/8 + x*x*x/192 - x*x*x*x*x/640 + 17*math.Pow(x, 7)/14336
		r -= math.Ln2 / 2
		return r - math.Log(math.Pi)/2 - math.Log(c)
	}
	a, _ := math.Lgamma((nu + 1) / 2)
	b, _ := math.Lgamma(nu / 2)
	return a - b - math.Log(math.Pi*nu)/2 - math.Log(c)
}

// studentKernel returns −(ν+1)/2 log(1+z²) at z = (x−y)/w and its derivatives
// with respect to x.
func studentKernel(nu, w, z float64) (g, d1, d2 float64) {
	if a := math.Abs(z); a > 1e9 {
		return -(nu + 1) * math.Log(a), -(nu + 1) / (w * z), (nu + 1) / (w * z) / (w * z)
	}
	q := z * z
	r := 1 / (1 + q)
	k := (nu + 1) * r / w
	return -(nu + 1) / 2 * math.Log1p(q), -k * z, k * r / w * (q - 1)
}

// LogProb returns log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν) − log Scale −
// (ν+1)/2 log(1 + (y−η)²/(ν Scale²)).
func (t StudentT) LogProb(y, eta float64) float64 {
	nu, c := t.params()
	w := c * math.Sqrt(nu)
	g, _, _ := studentKernel(nu, w, (eta-y)/w)
	return t.logNorm() + g
}

// Derivs returns (ν+1)r/(νScale²+r²) and (ν+1)(r²−νScale²)/(νScale²+r²)², r = y−η.
func (t StudentT) Derivs(y, eta float64) (d1, d2 float64) {
	nu, c := t.params()
	w := c * math.Sqrt(nu)
	_, d1, d2 = studentKernel(nu, w, (eta-y)/w)
	return d1, d2
}

// Expect returns the expectation by Gauss–Hermite where the Gaussian is narrow
// or far from y, and by Gauss–Legendre on panels graded towards y where it is
// not: the log density is singular at y ± i Scale √ν. Err is 1e−13 times
// |log p| at its mode plus the expected distance below it.
func (t StudentT) Expect(y, m, v float64) Expectation {
	nu, c := t.params()
	if !quadValid(m, v) || math.IsNaN(nu+c) {
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
		e, abs = quadCentred(f, z, s, z-9*s, z+9*s, s, 0, 1)
	} else {
		e[0], e[1], e[2] = f(z)
		abs = -e[0]
	}
	return Expectation{k + e[0], e[1] / w, e[2] / w / w, 1e-13*abs + 16*quadEps*(1+math.Abs(k))}
}

// CheckLabel accepts every finite number.
func (t StudentT) CheckLabel(y float64) error { return likeReal("StudentT", y) }

// Moments returns η, or NaN if ν ≤ 1, and Scale² ν/(ν−2), or +Inf if ν ≤ 2 (NaN if ν ≤ 1).
func (t StudentT) Moments(eta float64) (mean, variance float64) {
	nu, c := t.params()
	switch {
	case nu > 2:
		return eta, c * c * (nu / (nu - 2))
	case nu > 1:
		return eta, math.Inf(1)
	}
	return math.NaN(), math.NaN()
}

// CDF returns P(Y ≤ y|η), the regularised incomplete beta function.
func (t StudentT) CDF(y, eta float64) float64 {
	nu, c := t.params()
	return likeStudentCDF(nu, (y-eta)/c)
}

// Validate returns an error that wraps ErrParam for each of DF and Scale that is
// neither zero nor positive and finite.
func (t StudentT) Validate() error {
	return errors.Join(likePositive("StudentT.DF", t.DF), likePositive("StudentT.Scale", t.Scale))
}

// Laplace is p(y|η) = exp(−|y−η|/Scale)/(2Scale), whose log has a kink at η = y.
type Laplace struct {
	Scale float64 // mean absolute deviation b; zero means 1
}

// LogProb returns −log(2b) − |y−η|/b.
func (l Laplace) LogProb(y, eta float64) float64 {
	b := likeDefault(l.Scale, 1)
	return -math.Log(2*b) - math.Abs(y-eta)/b
}

// Expect returns, with t = (m−y)/s and s = √v,
//
//	Value = −log(2b) − (|m−y| + 2s(φ(t) − |t|Φ(−|t|)))/b
//	D1 = (1 − 2Φ(t))/b   D2 = −2φ(t)/(bs)
//
// At v = 0 D1 is 0 and D2 is −Inf on the kink itself, and D2 is 0 elsewhere.
func (l Laplace) Expect(y, m, v float64) Expectation {
	b := likeDefault(l.Scale, 1)
	if !quadValid(m, v) || math.IsNaN(b) {
		return quadNaN()
	}
	d, s := m-y, math.Sqrt(v)
	a := math.Abs(d)
	k := -math.Log(2 * b)
	e := Expectation{Value: k - a/b}
	switch {
	case s > 0:
		t := a / s
		e.Value -= 2 * s * gaussLoss(t) / b
		e.D1 = -math.Copysign(math.Erf(t/math.Sqrt2), d) / b
		e.D2 = -2 * gaussPDF(t) / s / b
	case d == 0:
		e.D2 = math.Inf(-1)
	default:
		e.D1 = -math.Copysign(1, d) / b
	}
	if !math.IsInf(e.Value, 0) {
		e.Err = 8 * quadEps * (1 + math.Abs(k) + math.Abs(e.Value-k))
	}
	return e
}

// CheckLabel accepts every finite number.
func (l Laplace) CheckLabel(y float64) error { return likeReal("Laplace", y) }

// Moments returns η and 2b².
func (l Laplace) Moments(eta float64) (mean, variance float64) {
	b := likeDefault(l.Scale, 1)
	return eta, 2 * b * b
}

// CDF returns P(Y ≤ y|η) = ½e^{−|y−η|/b} for y ≤ η, and one minus that for y > η.
func (l Laplace) CDF(y, eta float64) float64 {
	b := likeDefault(l.Scale, 1)
	p := math.Exp(-math.Abs(y-eta)/b) / 2
	if y > eta {
		return 1 - p
	}
	return p
}

// Validate returns an error that wraps ErrParam unless Scale is zero or positive and finite.
func (l Laplace) Validate() error { return likePositive("Laplace.Scale", l.Scale) }

// likeStudentCDF is the distribution function of Student's t.
func likeStudentCDF(nu, t float64) float64 {
	if math.IsNaN(t) || math.IsNaN(nu) {
		return math.NaN()
	}
	var tail float64
	if q := t * t / nu; q < 1 {
		tail = 0.5 - mathext.RegIncBeta(0.5, nu/2, q/(1+q))/2
	} else {
		tail = mathext.RegIncBeta(nu/2, 0.5, 1/(1+q)) / 2
	}
	if t > 0 {
		return 1 - tail
	}
	return tail
}
