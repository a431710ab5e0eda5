package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"
)

// ---- Shared by the likelihoods of this file --------------------------------

// likeSoftplus returns, for η ~ N(m, v) of any sign,
//
//	f0 = E[log(1+e^{−η})]   g0 = E[log(1+e^η)]
//	p = E[σ(−η)]            q = E[σ(η)]          f2 = E[σ(η)σ(−η)]
//
// each with the relative error of softplusExpect.
func likeSoftplus(m, v float64) (f0, g0, p, q, f2 float64) {
	x := math.Abs(m)
	f0, p, f2, scale := softplusExpect(x, v)
	if scale != 0 {
		c := math.Exp(scale)
		f0, p, f2 = c*f0, c*p, c*f2
	}
	g0, q = f0+x, 1-p
	if m < 0 {
		return g0, f0, q, p, f2
	}
	return f0, g0, p, q, f2
}

// likeStirling returns log Γ(x) − (x−½) log x + x − log √(2π) for x ≥ 16
// (Abramowitz and Stegun 1964, 6.1.41).
func likeStirling(x float64) float64 {
	z := 1 / (x * x)
	return (1.0/12 - z*(1.0/360-z*(1.0/1260-z*(1.0/1680-z/1188)))) / x
}

// likeLogChoose returns log Γ(a+b+1)/(Γ(a+1)Γ(b+1)) for a, b ≥ 0. Differences of
// large log Γ are avoided: the error is a few units of 1e−16 (|result| + 40).
func likeLogChoose(a, b float64) float64 {
	if a > b {
		a, b = b, a
	}
	switch {
	case a == 0:
		return 0
	case b < 16:
		n, _ := math.Lgamma(a + b + 1)
		x, _ := math.Lgamma(a + 1)
		y, _ := math.Lgamma(b + 1)
		return n - x - y
	case a < 16:
		x := b + 1
		g, _ := math.Lgamma(a + 1)
		return a*math.Log(x+a) - a + (x-0.5)*math.Log1p(a/x) + likeStirling(x+a) - likeStirling(x) - g
	}
	// Loader (2000): nothing but entropies and Stirling's corrections.
	return a*math.Log1p(b/a) + b*math.Log1p(a/b) + math.Log(1/a+1/b)/2 - gaussLogSqrt2Pi +
		likeStirling(a+b) - likeStirling(a) - likeStirling(b)
}

// likeCount reports whether y is a non-negative integer.
func likeCount(y float64) bool {
	return y >= 0 && y == math.Floor(y) && y <= math.MaxFloat64
}

// likeBeta returns the regularised incomplete beta function I_x(a, b), given x
// and 1−x of which the smaller is accurate.
func likeBeta(a, b, x, rest float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x <= 0:
		return 0
	case rest <= 0:
		return 1
	case x > 0.5:
		return 1 - likeBeta(b, a, rest, x)
	}
	var p float64
	switch low := math.Min(a, b); {
	case b > 1e6 && a < b && a*a*math.Sqrt(a)/24 < 1e-9*b*b:
		// Rare events: nearly Poisson (Wise 1950), with an error of about a^2.5/24b².
		p = likeGamma(a, -(b+(a-1)/2)*math.Log1p(-x))
	case low < 1e5 || low < 1e6 && a+b < 1e7:
		p = mathext.RegIncBeta(a, b, x)
	default:
		// Beyond the reach of that algorithm. Peizer and Pratt (1968), written
		// without cancellation: the error is about 2e−2/min(a, b).
		n := a + b - 1
		delta := b - 0.5 - n*rest
		d := delta + 1.0/6 - rest/3 + 0.02*(x/b-rest/a+(x-0.5)/(a+b))
		r := 2 * (likeEntropy(delta/(n*rest))/rest + likeEntropy(-delta/(n*x))/x)
		p = gaussTail(-d / math.Sqrt(n) * math.Sqrt(r))
	}
	if math.IsNaN(p) { // numbers near the largest there are
		p = 0
		if x > 1/(1+b/a) {
			p = 1
		}
	}
	return math.Max(0, math.Min(1, p))
}

// likeEntropy returns ((1+e) log(1+e) − e)/e² for e ≥ −1.
func likeEntropy(e float64) float64 {
	if math.Abs(e) > 0.1 {
		return (likeTimes(1+e, math.Log1p(e)) - e) / e / e
	}
	sum := 0.0
	for k := 16.0; k >= 0; k-- {
		sum = 1/((k+1)*(k+2)) - e*sum
	}
	return sum
}

// likeGamma returns the regularised lower incomplete gamma function P(k, x), x ≥ 0.
func likeGamma(k, x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case math.IsInf(x, 1):
		return 1
	case x == 0:
		return 0
	}
	p := mathext.GammaIncReg(k, x)
	if math.IsNaN(p) || k > 1e15 { // Gaussian
		p = gaussTail((k - x) / math.Sqrt(k))
	}
	return math.Max(0, math.Min(1, p))
}

// ---- Binomial --------------------------------------------------------------

// Binomial is p(y|η) = C(n, y) σ(η)^y σ(−η)^{n−y}, y = 0, 1, …, n, with
// n = Trials and σ(η) = 1/(1+e^{−η}): y successes in n trials whose log odds are η
// (logit link; McCullagh and Nelder 1989, chapter 4).
//
// Its expectations are those of BernoulliLogit, weighted by y and n−y.
type Binomial struct {
	Trials float64 // number of trials, an integer ≤ 2^53; zero means 1
}

func (b Binomial) trials() float64 {
	n := likeDefault(b.Trials, 1)
	if n != math.Floor(n) || n > 1<<53 {
		return math.NaN()
	}
	return n
}

// LogProb returns log C(n, y) − y log(1+e^{−η}) − (n−y) log(1+e^η), or −Inf if y
// is not an integer from 0 to n.
func (b Binomial) LogProb(y, eta float64) float64 {
	n := b.trials()
	if math.IsNaN(n) {
		return n
	}
	if !likeCount(y) || y > n {
		return math.Inf(-1)
	}
	f0, _, _ := softplusAt(eta)
	g0, _, _ := softplusAt(-eta)
	return likeLogChoose(y, n-y) - likeTimes(y, f0) - likeTimes(n-y, g0)
}

// Derivs returns yσ(−η) − (n−y)σ(η) and −nσ(η)σ(−η).
func (b Binomial) Derivs(y, eta float64) (d1, d2 float64) {
	n := b.trials()
	_, p, f2 := softplusAt(eta)
	_, q, _ := softplusAt(-eta)
	return y*p - (n-y)*q, -n * f2
}

// Expect returns log C(n, y) + yE[log σ(η)] + (n−y)E[log σ(−η)] and its
// derivatives, D1 = yE[σ(−η)] − (n−y)E[σ(η)] and D2 = −nE[σ(η)σ(−η)] ≤ 0, each
// term to the relative accuracy of BernoulliLogit. Err is that of both terms and
// the rounding of log C. If y is not an integer from 0 to n Value is −Inf.
func (b Binomial) Expect(y, m, v float64) Expectation {
	n := b.trials()
	if !quadValid(m, v) || math.IsNaN(n) {
		return quadNaN()
	}
	if !likeCount(y) || y > n {
		return likeNone(m, v)
	}
	f0, g0, p, q, f2 := likeSoftplus(m, v)
	k := likeLogChoose(y, n-y)
	t := likeTimes(y, f0) + likeTimes(n-y, g0)
	return likeBounded(Expectation{k - t, y*p - (n-y)*q, -n * f2, logitErr*t + 4*quadEps*(k+likeSlack(n-1))})
}

// likeSlack is the part of the error of likeLogChoose that is not proportional to
// the result; there is none if the result is zero.
func likeSlack(n float64) float64 {
	if n == 0 {
		return 0
	}
	return 40
}

// CheckLabel accepts 0, 1, …, n.
func (b Binomial) CheckLabel(y float64) error {
	if n := b.trials(); !likeCount(y) || y > n {
		return fmt.Errorf("pgsvi: %w: Binomial: y = %v, want an integer from 0 to %v", ErrLabel, y, n)
	}
	return nil
}

// Moments returns nσ(η) and nσ(η)σ(−η).
func (b Binomial) Moments(eta float64) (mean, variance float64) {
	n := b.trials()
	_, q, f2 := softplusAt(-eta)
	return n * q, n * f2
}

// CDF returns P(Y ≤ y|η) = I_{σ(−η)}(n−⌊y⌋, ⌊y⌋+1), the incomplete beta ratio, with
// an absolute error below 2e−9 up to 10^6 trials and 1e−6 beyond.
func (b Binomial) CDF(y, eta float64) float64 {
	n := b.trials()
	switch {
	case math.IsNaN(y) || math.IsNaN(n):
		return math.NaN()
	case y < 0:
		return 0
	case y >= n:
		return 1
	}
	_, p, _ := softplusAt(eta)
	_, q, _ := softplusAt(-eta)
	k := math.Floor(y)
	return likeBeta(n-k, k+1, p, q)
}

// Support returns Counts; those above n have probability zero.
func (Binomial) Support() Support { return Counts }

// Validate returns an error that wraps ErrParam unless Trials is zero or a
// positive integer up to 2^53.
func (b Binomial) Validate() error {
	if math.IsNaN(b.trials()) {
		return fmt.Errorf("pgsvi: %w: Binomial.Trials = %v, want a positive integer, or zero for the default", ErrParam, b.Trials)
	}
	return nil
}

// predictMoments: with q = E[σ(η)], Var[σ(η)] = q(1−q) − E[σ(η)σ(−η)]. The
// difference is multiplied by n², so it is only used for few trials.
func (b Binomial) predictMoments(m, v float64) (mean, variance float64) {
	n := b.trials()
	if n > 64 || v == 0 {
		return predictMix(b, m, v)
	}
	_, _, p, q, f2 := likeSoftplus(m, v)
	if n == 1 {
		return q, p * q
	}
	return n * q, n*f2 + n*n*math.Max(0, p*q-f2)
}

// ---- Negative binomial -----------------------------------------------------

// NegativeBinomial is the distribution of counts with mean μ = e^η (log link) and
// variance μ + μ²/Shape: a Poisson count whose rate has a gamma distribution of
// shape r = Shape (Lawless 1987),
//
//	p(y|η) = Γ(y+r)/(Γ(r) y!) (μ/(μ+r))^y (r/(μ+r))^r,  y = 0, 1, 2, …
//
// In ξ = η − log r it is Γ(y+r)/(Γ(r) y!) σ(ξ)^y σ(−ξ)^r, so that its expectations
// are those of BernoulliLogit. Large Shape tends to Poisson.
type NegativeBinomial struct {
	Shape float64 // r; the smaller, the more overdispersed; zero means 1
}

// coef returns log Γ(y+r)/(Γ(r) y!), and the rounding error of it.
func (NegativeBinomial) coef(y, r float64) (k, err float64) {
	if y == 0 {
		return 0, 0
	}
	c := likeLogChoose(y, r)
	var d float64
	if y > r {
		d = math.Log(y+r) - math.Log(r)
		if math.IsInf(y+r, 1) {
			d = math.Log(y) + math.Log1p(r/y) - math.Log(r)
		}
		err = math.Abs(math.Log(r))
	} else {
		d = math.Log1p(y / r)
	}
	return c - d, 4 * quadEps * (c + math.Abs(d) + err + 40)
}

// LogProb returns log Γ(y+r)/(Γ(r) y!) − y log(1+e^{−ξ}) − r log(1+e^ξ) with
// ξ = η − log r, or −Inf if y is not a non-negative integer.
func (b NegativeBinomial) LogProb(y, eta float64) float64 {
	r := likeDefault(b.Shape, 1)
	if math.IsNaN(r) {
		return r
	}
	if !likeCount(y) {
		return math.Inf(-1)
	}
	x := eta - math.Log(r)
	f0, _, _ := softplusAt(x)
	g0, _, _ := softplusAt(-x)
	t := likeTimes(y, f0) + r*g0
	if math.IsInf(t, 1) {
		return math.Inf(-1)
	}
	k, _ := b.coef(y, r)
	return k - t
}

// Derivs returns yσ(−ξ) − rσ(ξ) and −(y+r)σ(ξ)σ(−ξ).
func (b NegativeBinomial) Derivs(y, eta float64) (d1, d2 float64) {
	r := likeDefault(b.Shape, 1)
	x := eta - math.Log(r)
	_, p, f2 := softplusAt(x)
	_, q, _ := softplusAt(-x)
	return y*p - r*q, -(y*f2 + r*f2)
}

// Expect returns log Γ(y+r)/(Γ(r) y!) + yE[log σ(ξ)] + rE[log σ(−ξ)] and its
// derivatives, D1 = yE[σ(−ξ)] − rE[σ(ξ)] and D2 = −(y+r)E[σ(ξ)σ(−ξ)] ≤ 0, each
// term to the relative accuracy of BernoulliLogit at m − log r. If y is not a
// non-negative integer Value is −Inf.
func (b NegativeBinomial) Expect(y, m, v float64) Expectation {
	r := likeDefault(b.Shape, 1)
	if !quadValid(m, v) || math.IsNaN(r) {
		return quadNaN()
	}
	if !likeCount(y) {
		return likeNone(m, v)
	}
	lr := math.Log(r)
	x := math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m-lr))
	f0, g0, p, q, f2 := likeSoftplus(x, v)
	t := likeTimes(y, f0) + r*g0
	e := Expectation{Value: math.Inf(-1), D1: y*p - r*q, D2: -(y*f2 + r*f2)}
	if math.IsInf(t, 1) {
		return e
	}
	k, err := b.coef(y, r)
	e.Value = k - t
	e.Err = err + logitErr*t + 2*quadEps*(math.Abs(m)+math.Abs(lr))*(y*p+r*q)
	return likeBounded(e)
}

// CheckLabel accepts 0, 1, 2, ….
func (b NegativeBinomial) CheckLabel(y float64) error {
	if !likeCount(y) {
		return fmt.Errorf("pgsvi: %w: NegativeBinomial: y = %v, want a non-negative integer", ErrLabel, y)
	}
	return nil
}

// Moments returns μ and μ + μ²/r.
func (b NegativeBinomial) Moments(eta float64) (mean, variance float64) {
	r := likeDefault(b.Shape, 1)
	mu := math.Exp(eta)
	if math.IsNaN(r) {
		return r, r
	}
	return mu, mu + mu*(mu/r)
}

// CDF returns P(Y ≤ y|η) = I_{σ(−ξ)}(r, ⌊y⌋+1), the incomplete beta ratio, with the
// accuracy of that of Binomial.
func (b NegativeBinomial) CDF(y, eta float64) float64 {
	r := likeDefault(b.Shape, 1)
	switch {
	case math.IsNaN(y) || math.IsNaN(r):
		return math.NaN()
	case y < 0:
		return 0
	case math.IsInf(y, 1):
		return 1
	}
	if mu := math.Exp(eta); mu < 1e-12*r {
		// Poisson but for μ/r, in total variation.
		return 1 - likeGamma(math.Floor(y)+1, mu)
	}
	x := eta - math.Log(r)
	_, p, _ := softplusAt(-x)
	_, q, _ := softplusAt(x)
	return likeBeta(r, math.Floor(y)+1, q, p)
}

// Support returns Counts.
func (NegativeBinomial) Support() Support { return Counts }

// Validate returns an error that wraps ErrParam unless Shape is zero or positive and finite.
func (b NegativeBinomial) Validate() error { return likePositive("NegativeBinomial.Shape", b.Shape) }

func (b NegativeBinomial) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := likeLogNormal(m, v)
	return mean, mean + square/likeDefault(b.Shape, 1) + spread
}

// likeLogNormal returns E[e^η], E[e^{2η}] and Var[e^η] for η ~ N(m, v).
func likeLogNormal(m, v float64) (mean, square, spread float64) {
	square = math.Exp(2 * (m + v))
	return math.Exp(m + v/2), square, likeTimes(-math.Expm1(-v), square)
}

// ---- Gamma and exponential -------------------------------------------------

// Gamma is the gamma density with mean μ = e^η (log link) and variance μ²/Shape
// (McCullagh and Nelder 1989, chapter 8): with k = Shape,
//
//	p(y|η) = (k/μ)^k y^{k−1} e^{−ky/μ}/Γ(k),  y > 0.
//
// It is log-concave in η whatever the shape.
type Gamma struct {
	Shape float64 // k, 1/k being the squared coefficient of variation; zero means 1
}

// logNorm returns k log k − k − log Γ(k): log p(y|η) = logNorm − log y −
// k(z + e^{−z} − 1) with z = η − log y, the last term ≥ 0.
func (Gamma) logNorm(k float64) float64 {
	if k >= 16 {
		return math.Log(k)/2 - gaussLogSqrt2Pi - likeStirling(k)
	}
	g, _ := math.Lgamma(k)
	return k*math.Log(k) - k - g
}

// LogProb returns k log k − log Γ(k) + (k−1) log y − kη − kye^{−η}, or −Inf if y is
// not positive and finite.
func (g Gamma) LogProb(y, eta float64) float64 {
	k := likeDefault(g.Shape, 1)
	if math.IsNaN(k) {
		return k
	}
	if !(y > 0 && y <= math.MaxFloat64) {
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
	k := likeDefault(g.Shape, 1)
	z := eta - math.Log(y)
	return k * math.Expm1(-z), -k * math.Exp(-z)
}

// Expect returns, with r = ky exp(v/2 − m),
//
//	Value = k log k − log Γ(k) + (k−1) log y − km − r   D1 = r − k   D2 = −r
//
// If r overflows they are −Inf, +Inf and −Inf. If y is not positive and finite
// Value is −Inf and the derivatives are zero.
func (g Gamma) Expect(y, m, v float64) Expectation {
	k := likeDefault(g.Shape, 1)
	if !quadValid(m, v) || math.IsNaN(k) {
		return quadNaN()
	}
	if !(y > 0 && y <= math.MaxFloat64) {
		return likeNone(m, v)
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
	e.Err = 4 * quadEps * (math.Abs(c) + k + math.Abs(l) + math.Abs(k*x)*(1+math.Abs(l)) + k*math.Abs(z) + r*(math.Abs(m)+math.Abs(l)+v))
	if k < 16 {
		e.Err += 4 * quadEps * 40
	}
	if math.IsInf(e.Value, 0) || math.IsNaN(e.Err) {
		e.Err = 0
	}
	return e
}

// CheckLabel accepts positive finite numbers.
func (g Gamma) CheckLabel(y float64) error {
	if !(y > 0 && y <= math.MaxFloat64) {
		return fmt.Errorf("pgsvi: %w: Gamma: y = %v, want a positive number", ErrLabel, y)
	}
	return nil
}

// Moments returns μ and μ²/k.
func (g Gamma) Moments(eta float64) (mean, variance float64) {
	k, mu := likeDefault(g.Shape, 1), math.Exp(eta)
	if math.IsNaN(k) {
		return k, k
	}
	return mu, mu * (mu / k)
}

// CDF returns P(Y ≤ y|η) = P(k, ky/μ), the lower incomplete gamma ratio.
func (g Gamma) CDF(y, eta float64) float64 {
	k := likeDefault(g.Shape, 1)
	if math.IsNaN(y) || math.IsNaN(k) {
		return math.NaN()
	}
	if y <= 0 {
		return 0
	}
	return likeGamma(k, k*math.Exp(math.Log(y)-eta))
}

// Support returns Positive.
func (Gamma) Support() Support { return Positive }

// Validate returns an error that wraps ErrParam unless Shape is zero or positive and finite.
func (g Gamma) Validate() error { return likePositive("Gamma.Shape", g.Shape) }

func (g Gamma) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := likeLogNormal(m, v)
	return mean, square/likeDefault(g.Shape, 1) + spread
}

// Exponential is p(y|η) = e^{−η} exp(−ye^{−η}), y ≥ 0: the exponential density with
// mean e^η (log link), which is Gamma with Shape 1 and constant hazard e^{−η}
// (Cox and Oakes 1984, section 2.3). It has no parameters.
type Exponential struct{}

func (Exponential) times(y float64) bool { return y >= 0 && y <= math.MaxFloat64 }

// LogProb returns −η − ye^{−η}, or −Inf if y is negative or not finite.
func (x Exponential) LogProb(y, eta float64) float64 {
	if !x.times(y) {
		return math.Inf(-1)
	}
	r := likeTimes(y, math.Exp(-eta))
	if math.IsInf(r, 1) {
		return math.Inf(-1)
	}
	return -eta - r
}

// Derivs returns ye^{−η} − 1 and −ye^{−η}.
func (Exponential) Derivs(y, eta float64) (d1, d2 float64) {
	r := likeTimes(y, math.Exp(-eta))
	return r - 1, -r
}

// Expect returns, with r = y exp(v/2 − m), −m − r, r − 1 and −r. If r overflows
// they are −Inf, +Inf and −Inf. If y is negative or not finite Value is −Inf and
// the derivatives are zero.
func (x Exponential) Expect(y, m, v float64) Expectation {
	if !quadValid(m, v) {
		return quadNaN()
	}
	if !x.times(y) {
		return likeNone(m, v)
	}
	r := likeTimes(y, math.Exp(v/2-m))
	if math.IsInf(r, 1) {
		return Expectation{-r, r, -r, 0}
	}
	e := Expectation{Value: -m - r, D1: r - 1, D2: -r}
	e.Err = 4 * quadEps * (math.Abs(m) + likeTimes(r, 1+math.Abs(m)+v))
	return likeBounded(e)
}

// CheckLabel accepts finite numbers that are not negative.
func (x Exponential) CheckLabel(y float64) error {
	if !x.times(y) {
		return fmt.Errorf("pgsvi: %w: Exponential: y = %v, want a finite number ≥ 0", ErrLabel, y)
	}
	return nil
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

// Support returns Positive.
func (Exponential) Support() Support { return Positive }

func (Exponential) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := likeLogNormal(m, v)
	return mean, square + spread
}

// ---- Ordinal ---------------------------------------------------------------

// Ordinal is the cumulative logit (proportional odds) model of ordered classes
// y = 0, 1, …, K with K = len(Cuts) (McCullagh 1980): P(Y ≤ j|η) = σ(c_j − η) with
// cut points c_0 < … < c_{K−1}, so that
//
//	p(y|η) = (1 − e^{−(c_y − c_{y−1})}) σ(c_y − η) σ(η − c_{y−1}),
//
// where c_{−1} = −∞ and c_K = +∞ leave one factor. This product is the difference
// σ(c_y − η) − σ(c_{y−1} − η) without its cancellation, however narrow the class
// or far the tail. A larger η makes higher classes likelier.
type Ordinal struct {
	// Cuts are the cut points, finite and increasing; empty means {0}, which is a
	// logistic classifier of 0 and 1. The slice is not copied: do not change it
	// while the likelihood is in use.
	Cuts []float64
}

var ordinalZero = []float64{0}

// cuts returns nil if Cuts is out of range.
func (o Ordinal) cuts() []float64 {
	if len(o.Cuts) == 0 {
		return ordinalZero
	}
	last := math.Inf(-1)
	for _, c := range o.Cuts {
		if !(c > last && c <= math.MaxFloat64) {
			return nil
		}
		last = c
	}
	return o.Cuts
}

// class returns the cut points around class y, infinite at the ends, and
// log(1 − e^{−(hi − lo)}).
func (Ordinal) class(cuts []float64, y float64) (lo, hi, gap float64, ok bool) {
	if !likeCount(y) || y > float64(len(cuts)) {
		return 0, 0, 0, false
	}
	j := int(y)
	lo, hi = math.Inf(-1), math.Inf(1)
	if j > 0 {
		lo = cuts[j-1]
	}
	if j < len(cuts) {
		hi = cuts[j]
	}
	if d := hi - lo; d < 1 {
		gap = math.Log(-math.Expm1(-d))
	} else {
		gap = math.Log1p(-math.Exp(-d))
	}
	return lo, hi, gap, true
}

// LogProb returns log(1 − e^{−(c_y − c_{y−1})}) + log σ(c_y − η) + log σ(η − c_{y−1}),
// or −Inf if y is not an integer from 0 to K.
func (o Ordinal) LogProb(y, eta float64) float64 {
	cuts := o.cuts()
	if cuts == nil {
		return math.NaN()
	}
	lo, hi, g, ok := o.class(cuts, y)
	if !ok {
		return math.Inf(-1)
	}
	a, _, _ := softplusAt(eta - lo)
	b, _, _ := softplusAt(hi - eta)
	return g - a - b
}

// Derivs returns σ(c_{y−1} − η) − σ(η − c_y) and the sum of −σ(η−c)σ(c−η) over
// the two cut points.
func (o Ordinal) Derivs(y, eta float64) (d1, d2 float64) {
	lo, hi, _, ok := o.class(o.cuts(), y)
	if !ok {
		return math.NaN(), math.NaN()
	}
	_, a1, a2 := softplusAt(eta - lo)
	_, b1, b2 := softplusAt(hi - eta)
	return a1 - b1, -a2 - b2
}

// Expect returns log(1 − e^{−(c_y − c_{y−1})}) + E[log σ(c_y − η)] +
// E[log σ(η − c_{y−1})] and its derivatives, D1 = E[σ(c_{y−1} − η)] − E[σ(η − c_y)]
// and D2 ≤ 0, the sum of −E[σ(η−c)σ(c−η)] over the two cut points: two
// expectations of BernoulliLogit, with their relative accuracy. If y is not an
// integer from 0 to K Value is −Inf.
func (o Ordinal) Expect(y, m, v float64) Expectation {
	cuts := o.cuts()
	if !quadValid(m, v) || cuts == nil {
		return quadNaN()
	}
	lo, hi, g, ok := o.class(cuts, y)
	if !ok {
		return likeNone(m, v)
	}
	e := Expectation{Value: g, Err: 4 * quadEps * math.Abs(g)}
	side := func(d, c, sign float64) {
		if math.IsInf(c, 0) {
			return
		}
		d = math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, d))
		f0, _, p, _, f2 := likeSoftplus(d, v)
		e.Value -= f0
		e.D1 += sign * p
		e.D2 -= f2
		e.Err += logitErr*f0 + quadEps*(math.Abs(m)*p+math.Abs(c)*p)
	}
	side(m-lo, lo, 1)
	side(hi-m, hi, -1)
	return likeBounded(e)
}

// CheckLabel accepts 0, 1, …, K.
func (o Ordinal) CheckLabel(y float64) error {
	if k := max(len(o.Cuts), 1); !likeCount(y) || y > float64(k) {
		return fmt.Errorf("pgsvi: %w: Ordinal: y = %v, want an integer from 0 to %d", ErrLabel, y, k)
	}
	return nil
}

// Moments returns the mean and variance of the class number, Σ_j P(Y > j) and
// Σ_i P(Y ≤ i)P(Y > i) + 2 Σ_{i<j} P(Y ≤ i)P(Y > j).
func (o Ordinal) Moments(eta float64) (mean, variance float64) {
	return o.moments(func(c float64) (below, above float64) {
		_, above, _ = softplusAt(c - eta)
		_, below, _ = softplusAt(eta - c)
		return below, above
	})
}

// moments adds up Hoeffding's covariances of the indicators of Y > j, which are
// not negative: P(Y > max(i, j)) P(Y ≤ min(i, j)).
func (o Ordinal) moments(at func(c float64) (below, above float64)) (mean, variance float64) {
	cuts := o.cuts()
	if cuts == nil {
		return math.NaN(), math.NaN()
	}
	sum := 0.0
	for _, c := range cuts {
		below, above := at(c)
		mean += above
		variance += above * (below + 2*sum)
		sum += below
	}
	return mean, variance
}

// CDF returns P(Y ≤ y|η) = σ(c_⌊y⌋ − η).
func (o Ordinal) CDF(y, eta float64) float64 {
	cuts := o.cuts()
	switch {
	case math.IsNaN(y) || cuts == nil:
		return math.NaN()
	case y < 0:
		return 0
	case y >= float64(len(cuts)):
		return 1
	}
	_, p, _ := softplusAt(eta - cuts[int(y)])
	return p
}

// Support returns Counts; those above K have probability zero.
func (Ordinal) Support() Support { return Counts }

// Validate returns an error that wraps ErrParam and names every cut point that is
// not finite or not above the one before it.
func (o Ordinal) Validate() error {
	var errs []error
	for i, c := range o.Cuts {
		switch {
		case math.IsNaN(c) || math.IsInf(c, 0):
			errs = append(errs, fmt.Errorf("pgsvi: %w: Ordinal.Cuts[%d] = %v, want a finite number", ErrParam, i, c))
		case i > 0 && c <= o.Cuts[i-1]:
			errs = append(errs, fmt.Errorf("pgsvi: %w: Ordinal.Cuts[%d] = %v, want more than Cuts[%d] = %v", ErrParam, i, c, i-1, o.Cuts[i-1]))
		}
	}
	return errors.Join(errs...)
}

func (o Ordinal) predictMoments(m, v float64) (mean, variance float64) {
	return o.moments(func(c float64) (below, above float64) {
		d := math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m-c))
		_, _, below, above, _ = likeSoftplus(d, v)
		return below, above
	})
}
