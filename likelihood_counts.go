package pgsvi

import (
	"cmp"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mathext"
)

var _ = builtin{
	"pgsvi.Poisson":          Poisson{},
	"pgsvi.Binomial":         Binomial{},
	"pgsvi.NegativeBinomial": NegativeBinomial{},
}.register()

// Poisson is the likelihood of Poisson regression for counts, p(y|η) = r^y e^{−r}/y!, y = 0, 1, 2,
// …, with rate r = Exposure e^η (log link).
type Poisson struct {
	Exposure float64 // time, area or population of the count; zero means 1
}

// LogProb returns y(η + log Exposure) − Exposure e^η − log y!, or −Inf if y is not a nonnegative
// integer.
func (p Poisson) LogProb(y, eta float64) float64 {
	if !isCount(y) {
		return math.Inf(-1)
	}
	c := positiveOr(p.Exposure, 1)
	r := c * math.Exp(eta)
	if math.IsInf(r, 1) {
		return math.Inf(-1)
	}
	if y >= poissonBig {
		return poissonPeak(y, eta+math.Log(c))
	}
	return special.Times(y, eta+math.Log(c)) - r - special.LogFactorial(y)
}

// poissonBig is the least count y for which log p is taken about its peak. The terms of the plain
// formula are about y log y and cancel, so their rounding errors would exceed the tolerance of
// integrals over η.
const poissonBig = 128

// poissonPeak returns log p(y|r) for a large count y, given log r. With t = log r − log y, it is
// −y(e^t − 1 − t) − ½ log 2πy − S(y), where S is the remainder of Stirling's formula (Loader, 2000).
func poissonPeak(y, logR float64) float64 {
	logY := math.Log(y)
	return -y*special.ExpRest(logR-logY) - 0.5*logY - special.LogSqrt2Pi - special.Stirling(y)
}

// Derivs returns y − r and −r.
func (p Poisson) Derivs(y, eta float64) (d1, d2 float64) {
	r := positiveOr(p.Exposure, 1) * math.Exp(eta)
	return y - r, -r
}

// ExpectLogProb returns, with r = Exposure exp(m + v/2),
//
//	Value = y(m + log Exposure) − r − log y!   D1 = y − r   D2 = −r
//
// All three are −Inf if r overflows. If y is not a nonnegative integer, Value is −Inf and the
// derivatives are 0.
func (p Poisson) ExpectLogProb(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if !isCount(y) {
		return offSupport(m, v)
	}
	c := positiveOr(p.Exposure, 1)
	return p.expectation(y, m, v, special.LogFactorial(y), c, math.Log(c), exp1(m+v/2))
}

// expectation is ExpectLogProb of a count y. g is log y!, c is the exposure, lc is its logarithm,
// and e is exp(m + v/2).
func (Poisson) expectation(y, m, v, g, c, lc, e float64) Expectation {
	r := c * e
	if math.IsInf(r, 1) {
		return Expectation{-r, -r, -r, 0}
	}
	t := special.Times(y, m+lc)
	x := Expectation{Value: t - r - g, D1: y - r, D2: -r}
	// The exponential turns the absolute error of its argument into a relative error.
	x.Err = 4 * special.Eps * (math.Abs(t) + y*math.Abs(lc) + g + r*(1+math.Abs(m)+v))
	if math.IsInf(x.Value, 0) || math.IsNaN(x.Err) {
		x.Err = 0
	}
	return x
}

// rate implements fast.rate.
func (p Poisson) rate(y float64) (sign, origin, slope float64) {
	return 1, math.Log(positiveOr(p.Exposure, 1)), y
}

// Moments returns the rate twice.
func (p Poisson) Moments(eta float64) (mean, variance float64) {
	r := positiveOr(p.Exposure, 1) * math.Exp(eta)
	return r, r
}

// CDF returns P(Y ≤ y|η) = Q(⌊y⌋+1, r), the regularized upper incomplete gamma function.
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

// Facts implements Factual.
func (Poisson) Facts() Facts { return Facts{Support: Counts, LogConcave: true, selfBounded: true} }

// Params implements Parametric.
func (p Poisson) Params() []Param {
	return []Param{{Name: "Exposure", Value: cmp.Or(p.Exposure, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (p Poisson) WithParams(values []float64) Likelihood { return Poisson{Exposure: values[0]} }

// predictMoments returns r and r + r²(e^v − 1), where r = E[rate] = Exposure e^{m+v/2}.
func (p Poisson) predictMoments(m, v float64) (mean, variance float64) {
	r := positiveOr(p.Exposure, 1) * math.Exp(m+v/2)
	if v == 0 || r == 0 {
		return r, r
	}
	return r, r + r*(r*math.Expm1(v))
}

// predictTail implements tailPredictor. P(Y ≤ y|η) is the probability that a gamma variable of
// shape y + 1 exceeds the rate.
func (p Poisson) predictTail(y, m, v float64, above bool) float64 {
	return passage.GammaPassage(math.Log1p(y)-math.Log(positiveOr(p.Exposure, 1)), y+1, 1).Tail(m,
		v, above)
}

// Binomial is the likelihood of y successes in n = Trials trials with log odds η (logit link;
// McCullagh and Nelder 1989, chapter 4). It is p(y|η) = C(n, y) σ(η)^y σ(−η)^{n−y}, y = 0, 1, …, n,
// with σ(η) = 1/(1+e^{−η}).
//
// Its expectations are the expectations of BernoulliLogit, weighted by y and n−y.
type Binomial struct {
	Trials float64 // number of trials, an integer ≤ 2^53; zero means 1
}

func (b Binomial) trials() float64 {
	n := positiveOr(b.Trials, 1)
	if n != math.Floor(n) || n > 1<<53 {
		return math.NaN()
	}
	return n
}

// LogProb returns log C(n, y) − y log(1+e^{−η}) − (n−y) log(1+e^η), or −Inf if y is not an integer
// from 0 to n.
func (b Binomial) LogProb(y, eta float64) float64 {
	n := b.trials()
	if math.IsNaN(n) {
		return n
	}
	if !isCount(y) || y > n {
		return math.Inf(-1)
	}
	f0, _, _ := expect.SoftplusAt(eta)
	g0, _, _ := expect.SoftplusAt(-eta)
	return special.LogChoose(y, n-y) - special.Times(y, f0) - special.Times(n-y, g0)
}

// Derivs returns yσ(−η) − (n−y)σ(η) and −nσ(η)σ(−η).
func (b Binomial) Derivs(y, eta float64) (d1, d2 float64) {
	n := b.trials()
	_, p, f2 := expect.SoftplusAt(eta)
	_, q, _ := expect.SoftplusAt(-eta)
	return y*p - (n-y)*q, -n * f2
}

// ExpectLogProb returns
//
//	Value = log C(n, y) + yE[log σ(η)] + (n−y)E[log σ(−η)]
//	D1 = yE[σ(−η)] − (n−y)E[σ(η)]   D2 = −nE[σ(η)σ(−η)] ≤ 0
//
// Each expectation has the relative accuracy of BernoulliLogit. Err is the sum of their errors and
// the rounding error of log C. If y is not an integer from 0 to n, Value is −Inf.
func (b Binomial) ExpectLogProb(y, m, v float64) Expectation {
	n := b.trials()
	if !expect.Valid(m, v) || math.IsNaN(n) {
		return quadNaN()
	}
	if !isCount(y) || y > n {
		return offSupport(m, v)
	}
	f0, g0, p, q, f2 := softplusBoth(m, v)
	return b.expectation(y, n, special.LogChoose(y, n-y), f0, g0, p, q, f2)
}

// expectation is ExpectLogProb of y successes in n trials. k is log C(n, y), and the other
// arguments are the results of softplusBoth.
func (Binomial) expectation(y, n, k, f0, g0, p, q, f2 float64) Expectation {
	t := special.Times(y, f0) + special.Times(n-y, g0)
	return dropInfErr(Expectation{k - t, y*p - (n-y)*q, -n * f2,
		logitErr*t + 4*special.Eps*(k+logChooseSlack(n-1))})
}

// logChooseSlack returns the part of the error of special.LogChoose, in roundings, that is not
// proportional to its result. It is 0 if the result is 0.
func logChooseSlack(n float64) float64 {
	if n == 0 {
		return 0
	}
	return 40
}

// Moments returns nσ(η) and nσ(η)σ(−η).
func (b Binomial) Moments(eta float64) (mean, variance float64) {
	n := b.trials()
	_, q, f2 := expect.SoftplusAt(-eta)
	return n * q, n * f2
}

// CDF returns P(Y ≤ y|η) = I_{σ(−η)}(n−⌊y⌋, ⌊y⌋+1), the regularized incomplete beta function. Its
// absolute error is below 2e−9 for up to 10^6 trials, and 1e−6 for more trials.
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
	_, p, _ := expect.SoftplusAt(eta)
	_, q, _ := expect.SoftplusAt(-eta)
	k := math.Floor(y)
	return special.Beta(n-k, k+1, p, q)
}

// Facts implements Factual.
func (b Binomial) Facts() Facts {
	return Facts{Support: Counts, Most: b.trials(), LogConcave: true, selfBounded: true,
		bounded: true}
}

// Validate returns an error that wraps ErrParam unless Trials is zero or a positive integer up to
// 2^53. Trials belongs to the data and is not a Param.
func (b Binomial) Validate() error {
	if math.IsNaN(b.trials()) {
		return fmt.Errorf(
			"pgsvi: Binomial.Trials is %v; it must be a positive integer, or 0 for the default: %w",
			b.Trials, ErrParam)
	}
	return nil
}

// binomialFewTrials is the largest number of trials at which the rounding of a difference may be
// multiplied by n².
const binomialFewTrials = 64

// predictMoments returns nq and nE[σ(η)σ(−η)] + n² Var[σ(η)], where q = E[σ(η)] and Var[σ(η)] =
// q(1−q) − E[σ(η)σ(−η)]. With many trials that difference is too inaccurate, so predictMoments
// integrates the moments given η.
func (b Binomial) predictMoments(m, v float64) (mean, variance float64) {
	n := b.trials()
	if n > binomialFewTrials || v == 0 {
		return predict.Moments(b, m, v)
	}
	_, _, p, q, f2 := softplusBoth(m, v)
	if n == 1 {
		return q, p * q
	}
	return n * q, n*f2 + n*n*math.Max(0, p*q-f2)
}

// predictTail implements tailPredictor. P(Y ≤ y|η) is the probability that a beta variable with
// parameters y + 1 and n − y exceeds σ(η).
func (b Binomial) predictTail(y, m, v float64, above bool) float64 {
	rest := b.trials() - y
	switch {
	case rest > 0:
		return passage.BetaPassage(math.Log((y+1)/rest), y+1, rest).Tail(m, v, above)
	case above:
		return math.Inf(-1)
	}
	return 0
}

// NegativeBinomial is the likelihood of overdispersed counts with mean μ = e^η (log link) and
// variance μ + μ²/Shape (Lawless 1987). It is a Poisson count whose rate has a gamma distribution
// of shape r = Shape,
//
//	p(y|η) = Γ(y+r)/(Γ(r) y!) (μ/(μ+r))^y (r/(μ+r))^r,  y = 0, 1, 2, …
//
// With ξ = η − log r this equals Γ(y+r)/(Γ(r) y!) σ(ξ)^y σ(−ξ)^r, so its expectations are sums of
// expectations of BernoulliLogit. For large Shape it tends to Poisson.
type NegativeBinomial struct {
	Shape float64 // r, where a smaller r means a larger variance; zero means 1
}

// logCoefficient returns log Γ(y+r)/(Γ(r) y!) and a bound on its rounding error.
func (b NegativeBinomial) logCoefficient(y, r float64) (k, err float64) {
	if y == 0 {
		return 0, 0
	}
	c := special.LogChoose(y, r)
	var d float64
	if y > r {
		d = math.Log(y+r) - math.Log(r)
		if math.IsInf(y+r, 1) {
			d = math.Log(y) + math.Log1p(r/y) - math.Log(r)
		}
	} else {
		d = math.Log1p(y / r)
	}
	return c - d, b.coefficientErr(y, r, math.Log(r), c-d)
}

// coefficientErr returns the error bound of logCoefficient, where lr is log r and k is the log
// coefficient. It adds four roundings of log C, of the d that is subtracted from it, and of log r
// if that is a part of d.
func (NegativeBinomial) coefficientErr(y, r, lr, k float64) float64 {
	if y == 0 {
		return 0
	}
	// an upper bound of d = log(1 + y/r), from its binary exponent
	d := math.Ln2 * float64(math.Float64bits(1+y/r)>>52-1022)
	rest := 40.0
	if y > r {
		rest += math.Abs(lr)
	}
	return 4 * special.Eps * (math.Abs(k) + 2*d + rest)
}

// LogProb returns log Γ(y+r)/(Γ(r) y!) − y log(1+e^{−ξ}) − r log(1+e^ξ) with ξ = η − log r, or −Inf
// if y is not a nonnegative integer.
func (b NegativeBinomial) LogProb(y, eta float64) float64 {
	r := positiveOr(b.Shape, 1)
	if math.IsNaN(r) {
		return r
	}
	if !isCount(y) {
		return math.Inf(-1)
	}
	x := eta - math.Log(r)
	f0, _, _ := expect.SoftplusAt(x)
	g0, _, _ := expect.SoftplusAt(-x)
	t := special.Times(y, f0) + r*g0
	if math.IsInf(t, 1) {
		return math.Inf(-1)
	}
	k, _ := b.logCoefficient(y, r)
	return k - t
}

// Derivs returns yσ(−ξ) − rσ(ξ) and −(y+r)σ(ξ)σ(−ξ).
func (b NegativeBinomial) Derivs(y, eta float64) (d1, d2 float64) {
	r := positiveOr(b.Shape, 1)
	x := eta - math.Log(r)
	_, p, f2 := expect.SoftplusAt(x)
	_, q, _ := expect.SoftplusAt(-x)
	return y*p - r*q, -(y*f2 + r*f2)
}

// ExpectLogProb returns, with ξ = η − log r,
//
//	Value = log Γ(y+r)/(Γ(r) y!) + yE[log σ(ξ)] + rE[log σ(−ξ)]
//	D1 = yE[σ(−ξ)] − rE[σ(ξ)]   D2 = −(y+r)E[σ(ξ)σ(−ξ)] ≤ 0
//
// Each expectation has the relative accuracy of BernoulliLogit at m − log r. If y is not a
// nonnegative integer, Value is −Inf.
func (b NegativeBinomial) ExpectLogProb(y, m, v float64) Expectation {
	r := positiveOr(b.Shape, 1)
	if !expect.Valid(m, v) || math.IsNaN(r) {
		return quadNaN()
	}
	if !isCount(y) {
		return offSupport(m, v)
	}
	lr := math.Log(r)
	f0, g0, p, q, f2 := softplusBoth(shifted(m, lr), v)
	k, _ := b.logCoefficient(y, r)
	return b.expectation(y, m, r, lr, k, f0, g0, p, q, f2)
}

// expectation is ExpectLogProb of a count y. lr is log r, k is the log coefficient, and the other
// arguments are the results of softplusBoth at m − log r.
func (b NegativeBinomial) expectation(y, m, r, lr, k, f0, g0, p, q, f2 float64) Expectation {
	t := special.Times(y, f0) + r*g0
	e := Expectation{Value: math.Inf(-1), D1: y*p - r*q, D2: -(y*f2 + r*f2)}
	if math.IsInf(t, 1) {
		return e
	}
	e.Value = k - t
	e.Err = b.coefficientErr(y, r, lr, k) + logitErr*t + 2*special.Eps*(math.Abs(m)+math.Abs(lr))*(y*p+r*q)
	return dropInfErr(e)
}

// Moments returns μ and μ + μ²/r.
func (b NegativeBinomial) Moments(eta float64) (mean, variance float64) {
	r := positiveOr(b.Shape, 1)
	mu := math.Exp(eta)
	if math.IsNaN(r) {
		return r, r
	}
	return mu, mu + mu*(mu/r)
}

// poissonLimit is the μ/r below which the distribution is treated as Poisson. The two distributions
// differ by less than μ/r in total variation.
const poissonLimit = 1e-12

// CDF returns P(Y ≤ y|η) = I_{σ(−ξ)}(r, ⌊y⌋+1), the regularized incomplete beta function, with the
// accuracy of Binomial.CDF.
func (b NegativeBinomial) CDF(y, eta float64) float64 {
	r := positiveOr(b.Shape, 1)
	switch {
	case math.IsNaN(y) || math.IsNaN(r):
		return math.NaN()
	case y < 0:
		return 0
	case math.IsInf(y, 1):
		return 1
	}
	if mu := math.Exp(eta); mu < poissonLimit*r {
		return 1 - special.Gamma(math.Floor(y)+1, mu)
	}
	x := eta - math.Log(r)
	_, p, _ := expect.SoftplusAt(-x)
	_, q, _ := expect.SoftplusAt(x)
	return special.Beta(r, math.Floor(y)+1, q, p)
}

// Facts implements Factual.
func (NegativeBinomial) Facts() Facts {
	return Facts{Support: Counts, LogConcave: true, selfBounded: true}
}

// Params implements Parametric.
func (b NegativeBinomial) Params() []Param {
	return []Param{{Name: "Shape", Value: cmp.Or(b.Shape, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (b NegativeBinomial) WithParams(values []float64) Likelihood {
	return NegativeBinomial{Shape: values[0]}
}

// predictMoments returns E[μ] and E[μ] + E[μ²]/r + Var[μ] of the log-normal mean μ.
func (b NegativeBinomial) predictMoments(m, v float64) (mean, variance float64) {
	mean, square, spread := special.LogNormal(m, v)
	return mean, mean + square/positiveOr(b.Shape, 1) + spread
}

// predictTail implements tailPredictor. P(Y ≤ y|η) is the probability that a beta variable with
// parameters y + 1 and r exceeds σ(ξ).
func (b NegativeBinomial) predictTail(y, m, v float64, above bool) float64 {
	return passage.BetaPassage(math.Log1p(y), y+1, positiveOr(b.Shape, 1)).Tail(m, v, above)
}
