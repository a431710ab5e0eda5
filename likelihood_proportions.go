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
// A response of 0 or 1 is an error: it is impossible. Proportions of a count are BetaBinomial or
// Binomial. log p is not concave in η where y and μ are far from each other, so that no GapBound is
// proved.
type Beta struct {
	// φ; the larger it is, the smaller the variance. Zero means 2, of which η = 0 is the uniform
	// distribution.
	Precision float64
}

// precisionDefault is φ where it is not given.
const precisionDefault = 2

// betaStrip is how far from the real line functions of log Γ(φσ(η)) are taken to be analytic: a
// little less than π, where σ has its poles and φσ the integers ≤ 0.
const betaStrip = 2.8

// betaSide is what is known of a = φσ(η) or, at −η, of b = φσ(−η).
type betaSide struct {
	log  float64 // log σ
	part float64 // σ
	a    float64
	tiny bool // a² is nothing next to 1
}

const euler = 0.57721566490153286 // −ψ(1)

func newBetaSide(phi, eta float64) betaSide {
	f, _, _ := expect.SoftplusAt(eta)
	_, p, _ := expect.SoftplusAt(-eta)
	return betaSide{-f, p, phi * p, phi*p < 1e-9}
}

// binet returns ½ log σ less Binet's function of a, log Γ(a) − (a−½) log a + a − log √2π.
func (s *betaSide) binet(phi float64) float64 {
	if s.a >= 1 {
		return s.log/2 - special.Binet(s.a)
	}
	g := -euler * s.a // log Γ(1+a)
	if !s.tiny {
		g, _ = math.Lgamma(1 + s.a)
	}
	l := math.Log(phi) + s.log
	return (s.a+0.5)*l - s.a - g + special.LogSqrt2Pi + s.log/2
}

// gaps returns a(log a − ψ(a)) and a²(ψ′(a) − 1/a), which are 1 where a is 0.
func (s *betaSide) gaps(phi float64) (g, h float64) {
	if s.tiny {
		return 1 + special.Times(s.a, math.Log(phi)+s.log+euler), 1 - s.a
	}
	return s.a * special.DigammaGap(s.a), s.a * s.a * special.TrigammaGap(s.a)
}

// klPart returns y − σ − σ log(y/σ), not negative, given the logarithms.
func (s *betaSide) klPart(y, logy float64) float64 {
	if r := y / s.part; r > 0.5 && r < 2 {
		return s.part * special.LogGap(r)
	}
	return y - s.part - special.Times(s.part, logy-s.log)
}

// at returns log p(y|η) and its derivatives. With Binet's function β, log odds λ of y, w = φσ(η)σ(−η),
// g(a) = a(log a − ψ(a)) and h(a) = a²(ψ′(a) − 1/a)
//
//	log p = ½ log φ/2π + β(φ) + [½ log σ(η) − β(a)] + [½ log σ(−η) − β(b)]
//	        − log y(1−y) − φ KL(σ(η)‖y)
//	∂   = w(λ−η) + σ(−η)g(a) − σ(η)g(b)
//	∂²  = w((σ(−η)−σ(η))(λ−η) − 1) − σ(η)σ(−η)(g(a)+g(b)) + σ(−η)²(g(a)−h(a)) + σ(η)²(g(b)−h(b))
//
// so that what is of the size of φ has no cancellation.
func (p betaPoint) at(eta float64) (l, d1, d2 float64) {
	s, t := newBetaSide(p.phi, eta), newBetaSide(p.phi, -eta)
	l = p.norm + s.binet(p.phi) + t.binet(p.phi) -
		p.phi*(s.klPart(p.y, p.logy)+t.klPart(1-p.y, p.logRest))
	ga, ha := s.gaps(p.phi)
	gb, hb := t.gaps(p.phi)
	w, pq := p.phi*s.part*t.part, s.part*t.part
	off := p.logy - p.logRest - eta
	d1 = special.Times(w, off) + t.part*ga - s.part*gb
	d2 = special.Times(w*(t.part-s.part), off) - w - pq*(ga+gb) + t.part*t.part*(ga-ha) + s.part*s.part*(gb-hb)
	return l, d1, d2
}

// betaPoint is a Beta at a response.
type betaPoint struct{ phi, y, logy, logRest, norm float64 }

func (b Beta) point(y float64) betaPoint {
	p := betaPoint{phi: positiveOr(b.Precision, precisionDefault), y: y, logy: math.Log(y), logRest: math.Log1p(-y)}
	p.norm = math.Log(p.phi)/2 - special.LogSqrt2Pi + special.Binet(p.phi) - p.logy - p.logRest
	return p
}

// LogProb returns log Γ(φ) − log Γ(a) − log Γ(b) + (a−1) log y + (b−1) log(1−y), or −Inf if y is not
// between 0 and 1.
func (b Beta) LogProb(y, eta float64) float64 {
	p := b.point(y)
	switch {
	case math.IsNaN(p.phi):
		return p.phi
	case !UnitInterval.contains(y, 0):
		return math.Inf(-1)
	}
	l, _, _ := p.at(eta)
	return l
}

// Derivs returns w(log(y/(1−y)) − ψ(a) + ψ(b)), w = φμ(1−μ), and its derivative.
func (b Beta) Derivs(y, eta float64) (d1, d2 float64) {
	p := b.point(y)
	if math.IsNaN(p.phi) {
		return p.phi, p.phi
	}
	_, d1, d2 = p.at(eta)
	return d1, d2
}

// ExpectLogProb uses Gauss–Hermite quadrature or the trapezoidal rule up to a standard deviation of
// 2.5, whose errors fall geometrically as log p is analytic for |Im η| < π, and adaptive quadrature
// beyond. If y is not between 0 and 1, Value is −Inf.
func (b Beta) ExpectLogProb(y, m, v float64) Expectation {
	p := b.point(y)
	if !expect.Valid(m, v) || math.IsNaN(p.phi) {
		return quadNaN()
	}
	if !UnitInterval.contains(y, 0) {
		return offSupport(m, v)
	}
	e, err := expect.Bend{At: p.at, Strip: betaStrip, Lo: -bendReach(p.phi), Hi: bendReach(p.phi), Slope: 1}.Expect(m, math.Sqrt(v))
	err += 4 * special.Eps * (math.Abs(p.norm) + math.Abs(p.logy) + math.Abs(p.logRest) + 40)
	return dropInfErr(Expectation{e[0], e[1], e[2], err})
}

// bendReach is how far from 0 functions of log Γ(φσ(η)) bend: φσ(−η) is below e^{−40} beyond.
func bendReach(phi float64) float64 { return 40 + math.Max(0, math.Log(phi)) }

// Moments returns μ and μ(1−μ)/(1+φ).
func (b Beta) Moments(eta float64) (mean, variance float64) {
	_, q, f2 := expect.SoftplusAt(-eta)
	phi := positiveOr(b.Precision, precisionDefault)
	if math.IsNaN(phi) {
		return phi, phi
	}
	return q, f2 / (1 + phi)
}

// CDF returns P(Y ≤ y|η) = I_y(a, b), the regularised incomplete beta function.
func (b Beta) CDF(y, eta float64) float64 {
	phi := positiveOr(b.Precision, precisionDefault)
	s, t := newBetaSide(phi, eta), newBetaSide(phi, -eta)
	switch {
	case math.IsNaN(y) || math.IsNaN(phi):
		return math.NaN()
	case y <= 0:
		return 0
	case y >= 1:
		return 1
	case t.a == 0: // all of the mass is next to 1
		return 0
	case s.a == 0:
		return 1
	}
	return special.Beta(s.a, t.a, y, 1-y)
}

// Facts implements Factual.
func (Beta) Facts() Facts { return Facts{Support: UnitInterval} }

// Params implements Parametric.
func (b Beta) Params() []Param {
	return []Param{{Name: "Precision", Value: cmp.Or(b.Precision, precisionDefault), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (Beta) WithParams(values []float64) Likelihood { return Beta{Precision: values[0]} }

// predictMoments returns E[μ] and E[μ(1−μ)]/(1+φ) + Var[μ].
func (b Beta) predictMoments(m, v float64) (mean, variance float64) {
	phi := positiveOr(b.Precision, precisionDefault)
	_, _, p, q, f2 := softplusBoth(m, v)
	if v == 0 {
		return q, f2 / (1 + phi)
	}
	return q, f2/(1+phi) + math.Max(0, p*q-f2)
}

// BetaBinomial is the likelihood of y successes in n trials whose probability varies from row to row
// beyond η (overdispersed binomial counts; Williams 1982): it has a beta distribution with mean μ =
// σ(η) (logit link) and precision φ. With a = φμ, b = φ(1−μ) and the beta function B
//
//	p(y|η) = C(n, y) B(y+a, n−y+b)/B(a, b),  y = 0, 1, …, n.
//
// The mean is nμ, the variance nμ(1−μ)(n+φ)/(1+φ). For large φ it tends to Binomial.
//
// Where rows have different numbers of trials, Successes makes the responses, which tell them, and
// Prediction.Trials predicts for any number. log p is not concave in η, so that no GapBound is
// proved.
type BetaBinomial struct {
	Trials    float64 // n of responses that are plain counts, an integer up to 2^20; zero means 1
	Precision float64 // φ; the larger it is, the smaller the variance; zero means 2
}

// Successes returns the responses of successes_i in trials_i trials, for BetaBinomial. Such a
// response is successes_i + trials_i/2^27: its integer part is the number of successes, and its
// fraction tells the trials, so that a response stays one number wherever responses go. Binomial and
// BernoulliLogit need none: they have GLMOptions.Weights for it.
//
// The error wraps ErrShape if the lengths differ, and ErrLabel, and names the row, unless trials_i
// is a positive integer up to 2^20 and successes_i an integer from 0 to trials_i.
func Successes(successes, trials []float64) ([]float64, error) {
	if len(successes) != len(trials) {
		return nil, fmt.Errorf("pgsvi: %d numbers of successes and %d of trials: %w", len(successes), len(trials), ErrShape)
	}
	y := make([]float64, len(trials))
	for i, n := range trials {
		switch k := successes[i]; {
		case !isCount(n) || n == 0 || n > mostPaired:
			return nil, fmt.Errorf("pgsvi: row %d: %v trials, want a positive integer up to 2^20: %w", i, n, ErrLabel)
		case !isCount(k) || k > n:
			return nil, fmt.Errorf("pgsvi: row %d: %v successes in %v trials: %w", i, k, n, ErrLabel)
		default:
			y[i] = k + n*pairedUnit
		}
	}
	return y, nil
}

// seen returns the likelihood and the response that y stands for: of one of Successes those of its
// number of trials.
func seen(l Likelihood, y float64) (Likelihood, float64) {
	if b, ok := l.(BetaBinomial); ok {
		if k, n, ok := unpair(y); ok {
			b.Trials = n
			return b, k
		}
	}
	return l, y
}

// trials returns n where it is not told by a response, NaN where it is out of range.
func (b BetaBinomial) trials() float64 {
	n := positiveOr(b.Trials, 1)
	if n != math.Floor(n) || n > mostPaired {
		return math.NaN()
	}
	return n
}

// binomialPoint is a BetaBinomial at a response.
type binomialPoint struct{ phi, k, rest, norm float64 }

// point returns b at y; ok is false for a y that is no response.
func (b BetaBinomial) point(y float64) (p binomialPoint, ok bool) {
	k, n, ok := unpair(y)
	if own := b.trials(); !ok {
		k, n, ok = y, own, isCount(y) && !(y > own)
	}
	p.phi = positiveOr(b.Precision, precisionDefault) + 0*b.trials() // NaN
	if p.k, p.rest = k, n-k; ok {
		p.norm = special.LogChoose(k, n-k) - special.LogGammaRise(p.phi, n)
	}
	return p, ok
}

// at returns log p(y|η) and its derivatives.
func (p binomialPoint) at(eta float64) (l, d1, d2 float64) {
	l0, a1, a2 := p.rise(p.k, eta)
	r0, b1, b2 := p.rise(p.rest, -eta)
	return p.norm + l0 + r0, a1 - b1, a2 + b2
}

// rise returns log Γ(k+a)/Γ(a), a = φσ(η), and its derivatives in η: 0 for k = 0, and otherwise
// log a + log Γ(k+a)/Γ(1+a), where a may underflow.
func (p binomialPoint) rise(k, eta float64) (r, d1, d2 float64) {
	if k == 0 {
		return 0, 0, 0
	}
	f, rest, pq := expect.SoftplusAt(eta)
	_, part, _ := expect.SoftplusAt(-eta)
	r, d1, d2 = math.Log(p.phi)-f, rest, -pq
	if k > 1 {
		a, w := p.phi*part, p.phi*pq
		g1, g2 := special.DigammaRise(1+a, k-1), special.TrigammaFall(1+a, k-1)
		r += special.LogGammaRise(1+a, k-1)
		d1 += g1 * w
		d2 += w * (g1*(rest-part) - g2*w)
	}
	return r, d1, d2
}

// LogProb returns log C(n, y) + log B(y+a, n−y+b) − log B(a, b), or −Inf if y is not an integer from
// 0 to n or a response of Successes.
func (b BetaBinomial) LogProb(y, eta float64) float64 {
	p, ok := b.point(y)
	switch {
	case math.IsNaN(p.phi):
		return p.phi
	case !ok:
		return math.Inf(-1)
	}
	l, _, _ := p.at(eta)
	return l
}

// Derivs returns w(ψ(y+a) − ψ(a) − ψ(n−y+b) + ψ(b)), w = φμ(1−μ), and its derivative.
func (b BetaBinomial) Derivs(y, eta float64) (d1, d2 float64) {
	p, _ := b.point(y)
	if math.IsNaN(p.phi) {
		return p.phi, p.phi
	}
	_, d1, d2 = p.at(eta)
	return d1, d2
}

// ExpectLogProb uses the quadrature of Beta. If y is not an integer from 0 to n or a response of
// Successes, Value is −Inf.
func (b BetaBinomial) ExpectLogProb(y, m, v float64) Expectation {
	p, ok := b.point(y)
	if !expect.Valid(m, v) || math.IsNaN(p.phi) {
		return quadNaN()
	}
	if !ok {
		return offSupport(m, v)
	}
	n, slope := p.k+p.rest, math.Min(1, p.k)
	reach := bendReach(p.phi)
	e, err := expect.Bend{At: p.at, Strip: betaStrip, Lo: -reach, Hi: reach, Slope: slope}.Expect(m, math.Sqrt(v))
	size := special.LogChoose(p.k, p.rest) + special.LogGammaRise(1+p.phi, n)
	err += 4 * special.Eps * (math.Abs(p.norm) + size + 40)
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
	s, t := newBetaSide(phi, eta), newBetaSide(phi, -eta)
	if y > s.part*n {
		return 1 - b.below(n-y-1, n, -eta, t.a, s.a)
	}
	return b.below(y, n, eta, s.a, t.a)
}

// sumLeast is a part of a sum of probabilities that does not count.
const sumLeast = 1e-17

// below returns P(Y ≤ y|η) from the probability of y downwards, whose ratios are known:
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

// with returns b of so many trials.
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
		return fmt.Errorf("pgsvi: BetaBinomial.Trials is %v, want a positive integer up to 2^20, or zero for the default: %w", b.Trials, ErrParam)
	}
	return nil
}

// Params implements Parametric.
func (b BetaBinomial) Params() []Param {
	return []Param{{Name: "Precision", Value: cmp.Or(b.Precision, precisionDefault), Max: math.Inf(1)}}
}

// WithParams implements Parametric. It keeps Trials.
func (b BetaBinomial) WithParams(values []float64) Likelihood {
	return BetaBinomial{Trials: b.Trials, Precision: values[0]}
}

// predictMoments is that of Binomial, with the variance of y given η of BetaBinomial.
func (b BetaBinomial) predictMoments(m, v float64) (mean, variance float64) {
	n := b.trials()
	mean, variance = Binomial{Trials: n}.predictMoments(m, v)
	if v == 0 {
		return b.Moments(m)
	}
	_, _, _, _, f2 := softplusBoth(m, v)
	return mean, variance + n*f2*(b.spread(n)-1)
}
