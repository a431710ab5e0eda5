package pgsvi

import (
	"cmp"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

var _ = builtin{
	"pgsvi.Beta":         Beta{},
	"pgsvi.BetaBinomial": BetaBinomial{},
}.register()

var (
	_ Differentiable = Beta{}
	_ Expecter       = Beta{}
	_ Responder      = Beta{}
	_ Parametric     = Beta{}
	_ Differentiable = BetaBinomial{}
	_ Expecter       = BetaBinomial{}
	_ Responder      = BetaBinomial{}
	_ Parametric     = BetaBinomial{}
)

// Beta is the likelihood of proportions strictly between 0 and 1 (beta regression; Ferrari and
// Cribari-Neto 2004) with mean μ = σ(η) = 1/(1+e^{−η}) (logit link) and variance μ(1−μ)/(1+φ). With
// φ = Precision, a = φμ and b = φ(1−μ)
//
//	p(y|η) = y^{a−1} (1−y)^{b−1} Γ(φ)/(Γ(a)Γ(b)),  0 < y < 1.
//
// A response of 0 or 1 is impossible, so models return an error. Use BetaBinomial or Binomial for
// proportions of a count. log p is not concave in η if y and μ are far from each other, so no
// GapBound is proved.
type Beta struct {
	// φ; a larger φ means a smaller variance. Zero means 2, which is the uniform distribution at η
	// = 0.
	Precision float64
}

// precisionDefault is the default of φ.
const precisionDefault = 2

func (b Beta) phi() float64 { return positiveOr(b.Precision, precisionDefault) }

// LogProb returns log Γ(φ) − log Γ(a) − log Γ(b) + (a−1) log y + (b−1) log(1−y), or −Inf if y is
// not between 0 and 1.
func (b Beta) LogProb(y, eta float64) float64 {
	p := expect.NewBetaPoint(b.phi(), y)
	switch {
	case math.IsNaN(p.Phi):
		return p.Phi
	case !UnitInterval.contains(y, 0):
		return math.Inf(-1)
	}
	return p.LogProb(eta)
}

// Derivs returns w(log(y/(1−y)) − ψ(a) + ψ(b)), w = φμ(1−μ), and its derivative.
func (b Beta) Derivs(y, eta float64) (d1, d2 float64) {
	p := expect.NewBetaPoint(b.phi(), y)
	if math.IsNaN(p.Phi) {
		return p.Phi, p.Phi
	}
	_, d1, d2 = p.At(eta)
	return d1, d2
}

// ExpectLogProb uses Gauss–Hermite quadrature or the trapezoidal rule up to a standard deviation of
// 2.5, and adaptive quadrature beyond. The errors of these rules decrease geometrically because log
// p is analytic for |Im η| < π. If y is not between 0 and 1, Value is −Inf.
func (b Beta) ExpectLogProb(y, m, v float64) Expectation {
	p := expect.NewBetaPoint(b.phi(), y)
	if !expect.Valid(m, v) || math.IsNaN(p.Phi) {
		return quadNaN()
	}
	if !UnitInterval.contains(y, 0) {
		return offSupport(m, v)
	}
	e, err := p.Expect(m, math.Sqrt(v))
	return dropInfErr(Expectation{e[0], e[1], e[2], err})
}

// Moments returns μ and μ(1−μ)/(1+φ).
func (b Beta) Moments(eta float64) (mean, variance float64) {
	_, q, f2 := expect.SoftplusAt(-eta)
	phi := b.phi()
	if math.IsNaN(phi) {
		return phi, phi
	}
	return q, f2 / (1 + phi)
}

// CDF returns P(Y ≤ y|η) = I_y(a, b), the regularized incomplete beta function.
func (b Beta) CDF(y, eta float64) float64 {
	phi := b.phi()
	shape, rest := expect.BetaParts(phi, eta)
	switch {
	case math.IsNaN(y) || math.IsNaN(phi):
		return math.NaN()
	case y <= 0:
		return 0
	case y >= 1:
		return 1
	case rest == 0: // all of the mass is next to 1
		return 0
	case shape == 0:
		return 1
	}
	return special.Beta(shape, rest, y, 1-y)
}

// Facts implements Factual.
func (Beta) Facts() Facts { return Facts{Support: UnitInterval} }

// Params implements Parametric.
func (b Beta) Params() []Param {
	return []Param{{Name: "Precision", Value: cmp.Or(b.Precision, precisionDefault),
		Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (Beta) WithParams(values []float64) Likelihood { return Beta{Precision: values[0]} }

// predictMoments returns E[μ] and E[μ(1−μ)]/(1+φ) + Var[μ].
func (b Beta) predictMoments(m, v float64) (mean, variance float64) {
	phi := b.phi()
	_, _, p, q, f2 := softplusBoth(m, v)
	if v == 0 {
		return q, f2 / (1 + phi)
	}
	return q, f2/(1+phi) + math.Max(0, p*q-f2)
}

// BetaBinomial is the likelihood of y successes in n trials whose probability varies between rows
// beyond η (overdispersed binomial counts; Williams 1982). The probability has a beta distribution
// with mean μ = σ(η) (logit link) and precision φ. With a = φμ, b = φ(1−μ) and the beta function B
//
//	p(y|η) = C(n, y) B(y+a, n−y+b)/B(a, b),  y = 0, 1, …, n.
//
// The mean is nμ, and the variance is nμ(1−μ)(n+φ)/(1+φ). For large φ it tends to Binomial.
//
// If rows have different numbers of trials, make the responses with Successes, which includes the
// trials, and predict for any number of trials with Prediction.Trials. log p is not concave in η,
// so no GapBound is proved.
type BetaBinomial struct {
	Trials    float64 // n for plain counts, an integer up to 2^20; zero means 1
	Precision float64 // φ, where a larger φ means a smaller variance; zero means 2
}

// Successes returns the responses of successes_i in trials_i trials, for BetaBinomial. Such a
// response is successes_i + trials_i/2^27. Its integer part is the number of successes and its
// fraction holds the number of trials, so a response remains one number. Binomial and
// BernoulliLogit do not need Successes: use GLMOptions.Weights with them.
//
// The error wraps ErrShape if the lengths differ. It wraps ErrLabel and names the row unless
// trials_i is a positive integer up to 2^20 and successes_i is an integer from 0 to trials_i.
func Successes(successes, trials []float64) ([]float64, error) {
	if len(successes) != len(trials) {
		return nil, fmt.Errorf("pgsvi: %d numbers of successes but %d of trials: %w",
			len(successes), len(trials), ErrShape)
	}
	y := make([]float64, len(trials))
	for i, n := range trials {
		switch k := successes[i]; {
		case !isCount(n) || n == 0 || n > mostPaired:
			return nil, fmt.Errorf(
				"pgsvi: row %d: %v trials; the number must be a positive integer up to 2^20: %w",
				i, n, ErrLabel)
		case !isCount(k) || k > n:
			return nil, fmt.Errorf("pgsvi: row %d: %v successes in %v trials; use an integer "+
				"from 0 to the trials: %w", i, k, n,
				ErrLabel)
		default:
			y[i] = k + n*pairedUnit
		}
	}
	return y, nil
}

// seen returns the likelihood and the response that y represents. A response of Successes returns
// its number of successes, and the likelihood with its number of trials.
func seen(l Likelihood, y float64) (Likelihood, float64) {
	if b, ok := l.(BetaBinomial); ok {
		if k, n, ok := unpair(y); ok {
			b.Trials = n
			return b, k
		}
	}
	return l, y
}

// trials returns the n of plain counts, or NaN if it is out of range.
func (b BetaBinomial) trials() float64 {
	n := positiveOr(b.Trials, 1)
	if n != math.Floor(n) || n > mostPaired {
		return math.NaN()
	}
	return n
}

// point returns b at y. It returns false if y is not a response.
func (b BetaBinomial) point(y float64) (p expect.BetaBinomialPoint, ok bool) {
	k, n, ok := unpair(y)
	if own := b.trials(); !ok {
		k, n, ok = y, own, isCount(y) && !(y > own)
	}
	p.Phi = positiveOr(b.Precision, precisionDefault) + 0*b.trials() // NaN for invalid Trials
	if p.K, p.Rest = k, n-k; ok {
		p.Norm = special.LogChoose(k, n-k) - special.LogGammaRise(p.Phi, n)
	}
	return p, ok
}

// LogProb returns log C(n, y) + log B(y+a, n−y+b) − log B(a, b), or −Inf if y is neither an integer
// from 0 to n nor a response of Successes.
func (b BetaBinomial) LogProb(y, eta float64) float64 {
	p, ok := b.point(y)
	switch {
	case math.IsNaN(p.Phi):
		return p.Phi
	case !ok:
		return math.Inf(-1)
	}
	return p.LogProb(eta)
}

// Derivs returns w(ψ(y+a) − ψ(a) − ψ(n−y+b) + ψ(b)), w = φμ(1−μ), and its derivative.
func (b BetaBinomial) Derivs(y, eta float64) (d1, d2 float64) {
	p, _ := b.point(y)
	if math.IsNaN(p.Phi) {
		return p.Phi, p.Phi
	}
	_, d1, d2 = p.At(eta)
	return d1, d2
}

// ExpectLogProb uses the quadrature of Beta. If y is neither an integer from 0 to n nor a response
// of Successes, Value is −Inf.
func (b BetaBinomial) ExpectLogProb(y, m, v float64) Expectation {
	p, ok := b.point(y)
	if !expect.Valid(m, v) || math.IsNaN(p.Phi) {
		return quadNaN()
	}
	if !ok {
		return offSupport(m, v)
	}
	e, err := p.Expect(m, math.Sqrt(v))
	return dropInfErr(Expectation{e[0], e[1], e[2], err})
}

// Moments returns nμ and nμ(1−μ)(n+φ)/(1+φ), with n = Trials.
func (b BetaBinomial) Moments(eta float64) (mean, variance float64) {
	n, phi := b.trials(), positiveOr(b.Precision, precisionDefault)
	if math.IsNaN(n + phi) {
		return math.NaN(), math.NaN()
	}
	_, q, f2 := expect.SoftplusAt(-eta)
	return n * q, n * f2 * b.spread(n)
}

// spread returns (n+φ)/(1+φ).
func (b BetaBinomial) spread(n float64) float64 {
	return 1 + (n-1)/(1+positiveOr(b.Precision, precisionDefault))
}

// CDF returns P(Y ≤ y|η), with n = Trials, as a sum of probabilities from the nearer end.
func (b BetaBinomial) CDF(y, eta float64) float64 {
	n, phi := b.trials(), positiveOr(b.Precision, precisionDefault)
	switch {
	case math.IsNaN(y) || math.IsNaN(n+phi):
		return math.NaN()
	case y < 0:
		return 0
	case y >= n:
		return 1
	}
	y = math.Floor(y)
	shape, rest := expect.BetaParts(phi, eta)
	if _, part, _ := expect.SoftplusAt(-eta); y > part*n {
		return 1 - b.below(n-y-1, n, -eta, rest, shape)
	}
	return b.below(y, n, eta, shape, rest)
}

// sumLeast is a negligible share of a sum of probabilities.
const sumLeast = 1e-17

// below returns P(Y ≤ y|η) by summing from the probability of y downwards, using the ratios
// p(k−1)/p(k) = k(n−k+b)/((n−k+1)(k−1+a)).
func (b BetaBinomial) below(y, n, eta, a, rest float64) (sum float64) {
	p := math.Exp(b.with(n).LogProb(y, eta))
	for k := y; ; k-- {
		sum += p
		if k == 0 {
			return math.Min(1, sum)
		}
		next := p * (k / (n - k + 1)) * ((n - k + rest) / (k - 1 + a))
		if p == 0 || next < p && next*k < sumLeast*sum {
			return math.Min(1, sum)
		}
		p = next
	}
}

// with returns b for n trials.
func (b BetaBinomial) with(n float64) BetaBinomial {
	b.Trials = n
	return b
}

// Facts implements Factual.
func (b BetaBinomial) Facts() Facts {
	return Facts{Support: Counts, Most: b.trials(), paired: true}
}

// Validate returns an error that wraps ErrParam unless Trials is zero or a positive integer up to
// 2^20. Trials belongs to the data and is not a Param.
func (b BetaBinomial) Validate() error {
	if math.IsNaN(b.trials()) {
		return fmt.Errorf(
			"pgsvi: BetaBinomial.Trials is %v; it must be a positive integer up to 2^20, or 0 "+
				"for the default: %w", b.Trials, ErrParam)
	}
	return nil
}

// Params implements Parametric.
func (b BetaBinomial) Params() []Param {
	return []Param{{Name: "Precision", Value: cmp.Or(b.Precision, precisionDefault),
		Max: math.Inf(1)}}
}

// WithParams implements Parametric. It keeps Trials.
func (b BetaBinomial) WithParams(values []float64) Likelihood {
	return BetaBinomial{Trials: b.Trials, Precision: values[0]}
}

// predictMoments is like Binomial.predictMoments, with the variance of y given η of BetaBinomial.
func (b BetaBinomial) predictMoments(m, v float64) (mean, variance float64) {
	n := b.trials()
	mean, variance = Binomial{Trials: n}.predictMoments(m, v)
	if v == 0 {
		return b.Moments(m)
	}
	_, _, _, _, f2 := softplusBoth(m, v)
	return mean, variance + n*f2*(b.spread(n)-1)
}
