package pgsvi

import (
	"cmp"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
)

var _ = builtin{
	"pgsvi.Weibull":   Weibull{},
	"pgsvi.LogNormal": LogNormal{},
}.register()

var (
	_ Differentiable = Weibull{}
	_ Expecter       = Weibull{}
	_ Responder      = Weibull{}
	_ Parametric     = Weibull{}
	_ Differentiable = LogNormal{}
	_ Expecter       = LogNormal{}
	_ Responder      = LogNormal{}
	_ Parametric     = LogNormal{}
)

// Survival returns the responses of right-censored durations (survival or time-to-event data), for
// the likelihoods Weibull and LogNormal. A response is time_i if event_i = 1, which means that the
// event was observed. It is −time_i if event_i = 0, which means that the event had not happened by
// then.
//
// The sign replaces a second column, so a response remains one number in rows and streams, in
// cross-validation and LOO, in scores of new rows, and in files. Facts.Censored reports whether a
// likelihood supports such responses. Predictions are of durations, and positive.
//
// The error wraps ErrShape if the lengths differ. It wraps ErrLabel and names the row if an event
// is neither 0 nor 1 or a time is not positive and finite.
func Survival(time, event []float64) ([]float64, error) {
	if len(time) != len(event) {
		return nil, fmt.Errorf("pgsvi: %d times but %d events: %w", len(time), len(event), ErrShape)
	}
	y := make([]float64, len(time))
	for i, t := range time {
		switch e := event[i]; {
		case e != 0 && e != 1:
			return nil, fmt.Errorf("pgsvi: row %d: the event is %v; it must be 1 if it was "+
				"observed or 0 if the time is censored: %w", i, e, ErrLabel)
		case !Positive.contains(t, 0):
			return nil, fmt.Errorf("pgsvi: row %d: the time is %v; it must be a positive number: "+
				"%w", i,
				t, ErrLabel)
		case e == 1:
			y[i] = t
		default:
			y[i] = -t
		}
	}
	return y, nil
}

// duration returns the time of a response of Survival, and whether its event was observed. It
// returns false for any other y.
func duration(y float64) (t float64, observed, ok bool) {
	t = math.Abs(y)
	return t, y > 0, Positive.contains(t, 0)
}

// Weibull is the likelihood of durations with a hazard that is a power of time (Weibull regression;
// Kalbfleisch and Prentice 2002, section 2.2.2) and scale e^η. It is an accelerated failure time
// model. With k = Shape
//
//	p(y|η) = (k/y) z e^{−z},   P(Y > y|η) = e^{−z},   z = (ye^{−η})^k,   y > 0.
//
// The median is e^η (log 2)^{1/k}, and the mean is e^η Γ(1+1/k). An effect that adds a to η
// multiplies every duration by e^a, and the hazard by e^{−ka}. Shape 1 is Exponential.
//
// Durations may be right-censored: the response −y means that the duration is above y, with log p =
// −z. Survival converts times and events to such responses. log p is concave in η for both.
type Weibull struct {
	// k. The hazard rises with time if k is above 1, and falls if k is below 1. Zero means 1.
	Shape float64
}

// power returns log z = k(log t − η).
func (w Weibull) power(t, eta float64) (k, l, logz float64) {
	k, l = positiveOr(w.Shape, 1), math.Log(t)
	return k, l, k * (l - eta)
}

// LogProb returns log k − log y + log z − z with z = (ye^{−η})^k, or −z with z = (−ye^{−η})^k for a
// censored y < 0. It returns −Inf if y is 0 or not finite.
func (w Weibull) LogProb(y, eta float64) float64 {
	t, observed, ok := duration(y)
	k, l, x := w.power(t, eta)
	z := math.Exp(x)
	switch {
	case math.IsNaN(k):
		return k
	case !ok || math.IsInf(z, 1):
		return math.Inf(-1)
	case !observed:
		return -z
	}
	return math.Log(k) - l + x - z
}

// Derivs returns k(z−1) and −k²z, or kz and −k²z for a censored y < 0.
func (w Weibull) Derivs(y, eta float64) (d1, d2 float64) {
	t, observed, _ := duration(y)
	k, _, x := w.power(t, eta)
	d1 = k * math.Exp(x)
	d2 = -k * d1
	if observed {
		d1 = k * math.Expm1(x)
	}
	return d1, d2
}

// ExpectLogProb returns, with r = E[z] = exp(k(log y − m) + k²v/2),
//
//	Value = log k − log y + k(log y − m) − r   D1 = k(r−1)   D2 = −k²r
//
// and −r, kr and −k²r for a censored y < 0, where r contains −y instead of y. If r overflows, they
// are −Inf, +Inf and −Inf. If y is 0 or not finite, Value is −Inf and the derivatives are 0.
func (w Weibull) ExpectLogProb(y, m, v float64) Expectation {
	t, observed, ok := duration(y)
	k, l, x := w.power(t, m)
	if !expect.Valid(m, v) || math.IsNaN(k) {
		return quadNaN()
	}
	if !ok {
		return offSupport(m, v)
	}
	a := k * (l - m + k*(v/2))
	r := math.Exp(a)
	e := Expectation{Value: -r, D1: k * r, D2: -k * (k * r)}
	if math.IsInf(r, 1) {
		e.D1, e.D2 = r, -r
		return e
	}
	e.Err = 4 * special.Eps * special.Times(r, 1+k*(math.Abs(m)+math.Abs(l)+k*v))
	if observed {
		c := math.Log(k)
		e.Value = c - l + x - r
		e.D1 = k * math.Expm1(a)
		e.Err += 4 * special.Eps * (math.Abs(c) + math.Abs(l) + k*(math.Abs(l)+math.Abs(m)))
	}
	if math.IsInf(e.Value, 0) || math.IsNaN(e.Err) {
		e.Err = 0
	}
	return e
}

// weibullSeries is the 1/k below which the variance is computed by a series.
const weibullSeries = 0.02

// unit returns Γ(1+1/k) and Γ(1+2/k) − Γ(1+1/k)², the moments of a duration with scale 1.
func (w Weibull) unit() (mean, variance float64) {
	k := positiveOr(w.Shape, 1)
	x := 1 / k
	mean = math.Gamma(1 + x)
	if x >= weibullSeries {
		if square := math.Gamma(1 + 2*x); !math.IsInf(square, 1) {
			return mean, math.Max(0, square-mean*mean)
		}
		return mean, math.Inf(1)
	}
	// log Γ(1+2x) − 2 log Γ(1+x) = Σ_j ζ(j)(2^j − 2)(−x)^j/j (Abramowitz and Stegun 1964, 6.1.33)
	zeta := [...]float64{1.6449340668482264, 1.2020569031595943, 1.0823232337111382,
		1.0369277551433699, 1.0173430619844491, 1.0083492773819228, 1.0040773561979443}
	sum, p := 0.0, -x
	for i, c := range zeta {
		j := float64(i + 2)
		p *= -x
		sum += c * (math.Exp2(j) - 2) / j * p
	}
	return mean, mean * mean * math.Expm1(sum)
}

// Moments returns e^η Γ(1+1/k) and e^{2η}(Γ(1+2/k) − Γ(1+1/k)²).
func (w Weibull) Moments(eta float64) (mean, variance float64) {
	scale := math.Exp(eta)
	mean, variance = w.unit()
	return scale * mean, scale * scale * variance
}

// CDF returns P(Y ≤ y|η) = 1 − e^{−z} for y > 0.
func (w Weibull) CDF(y, eta float64) float64 {
	k, _, x := w.power(y, eta)
	switch {
	case math.IsNaN(y) || math.IsNaN(k):
		return math.NaN()
	case y <= 0:
		return 0
	}
	return -math.Expm1(-math.Exp(x))
}

// Facts implements Factual.
func (Weibull) Facts() Facts { return Facts{Support: Positive, Censored: true, LogConcave: true} }

// Params implements Parametric.
func (w Weibull) Params() []Param {
	return []Param{{Name: "Shape", Value: cmp.Or(w.Shape, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (w Weibull) WithParams(values []float64) Likelihood { return Weibull{Shape: values[0]} }

// predictLogProb returns log P(Y > −y) for a censored y, which is known, and an integral otherwise.
func (w Weibull) predictLogProb(y, m, v float64) (logp, bound float64) {
	if t, observed, ok := duration(y); ok && !observed {
		return w.predictTail(t, m, v, true), 2 * passage.Tol
	}
	return predict.LogProb(w, y, m, v)
}

// predictMoments returns the moments of a random scale e^η times a duration with scale 1.
func (w Weibull) predictMoments(m, v float64) (mean, variance float64) {
	scale, square, spread := special.LogNormal(m, v)
	mean, variance = w.unit()
	return scale * mean, special.Times(variance, square) + mean*mean*spread
}

// predictTail implements tailPredictor. P(Y ≤ y) is the probability that kη is at most k log y
// minus the logarithm of an exponential variable.
func (w Weibull) predictTail(y, m, v float64, above bool) float64 {
	k := positiveOr(w.Shape, 1)
	return passage.GammaPassage(k*math.Log(y), 1, -1).Tail(k*m, k*k*v, above)
}

// LogNormal is the likelihood of durations, incomes or sizes whose logarithm is Gaussian, log y ~
// N(η, Scale²) (log-normal regression; an accelerated failure time model, Kalbfleisch and Prentice
// 2002, section 2.2.4):
//
//	p(y|η) = N(log y|η, Scale²)/y,  y > 0.
//
// The median is e^η, and the mean is e^{η + Scale²/2}. An effect that adds a to η multiplies every
// response by e^a. If all responses are observed, the posterior is exactly the posterior of
// GaussianNoise for log y, but predictions are of y itself.
//
// Responses may be right-censored: −y means that the response is above y, with P(Y > y|η) = Φ((η −
// log y)/Scale). Survival converts times and events to such responses. log p is concave in η for
// both.
type LogNormal struct {
	Scale float64 // σ, the standard deviation of log y given η; zero means 1
}

// LogProb returns −log y − log σ − ½ log 2π − (log y − η)²/(2σ²), or log Φ((η − log(−y))/σ) for a
// censored y < 0. It returns −Inf if y is 0 or not finite.
func (g LogNormal) LogProb(y, eta float64) float64 {
	s := positiveOr(g.Scale, 1)
	t, observed, ok := duration(y)
	l := math.Log(t)
	switch {
	case math.IsNaN(s):
		return s
	case !ok:
		return math.Inf(-1)
	case !observed:
		return special.NormalLogTail((l - eta) / s)
	}
	r := (l - eta) / s
	return -special.LogSqrt2Pi - math.Log(s) - l - r*r/2
}

// Derivs returns (log y − η)/σ² and −1/σ². For a censored y < 0, with t = (η − log(−y))/σ and λ =
// φ(t)/Φ(t), it returns λ/σ and −λ(λ+t)/σ².
func (g LogNormal) Derivs(y, eta float64) (d1, d2 float64) {
	s := positiveOr(g.Scale, 1)
	t, observed, _ := duration(y)
	r := (math.Log(t) - eta) / s
	if observed {
		return r / s, -1 / s / s
	}
	_, d1, d2 = special.NormalLogCDF(-r)
	return d1 / s, d2 / s / s
}

// ExpectLogProb returns the expectation of GaussianNoise at log y, minus log y. For a censored y <
// 0 it returns the expectation of BernoulliProbit for η' ~ N((m − log(−y))/σ, v/σ²), with its
// accuracy and the derivatives D1/σ and D2/σ². If y is 0 or not finite, Value is −Inf.
func (g LogNormal) ExpectLogProb(y, m, v float64) Expectation {
	s := positiveOr(g.Scale, 1)
	if !expect.Valid(m, v) || math.IsNaN(s) {
		return quadNaN()
	}
	t, observed, ok := duration(y)
	if !ok {
		return offSupport(m, v)
	}
	l := math.Log(t)
	r, u := (l-m)/s, v/s/s
	if observed {
		q, k := (r*r+u)/2, special.LogSqrt2Pi+math.Log(s)+l
		e := Expectation{Value: -k - q, D1: r / s, D2: -1 / s / s}
		e.Err = 8 * special.Eps * (q + math.Abs(r)*math.Abs(l)/s + math.Abs(math.Log(s)) +
			math.Abs(l) + 1)
		return dropInfErr(e)
	}
	finite := func(x float64) float64 {
		return math.Max(-math.MaxFloat64,
			math.Min(math.MaxFloat64, x))
	}
	e := BernoulliProbit{}.ExpectLogProb(1, finite(-r), finite(u))
	e.D1, e.D2 = e.D1/s, e.D2/s/s
	e.Err += 2 * special.Eps * (math.Abs(e.D1)*(math.Abs(m)+math.Abs(l)) + math.Abs(e.D2)*v)
	return dropInfErr(e)
}

// Moments returns e^{η+σ²/2} and e^{2η+σ²}(e^{σ²} − 1).
func (g LogNormal) Moments(eta float64) (mean, variance float64) {
	s := positiveOr(g.Scale, 1)
	mean, _, variance = special.LogNormal(eta, s*s)
	return mean, variance
}

// CDF returns P(Y ≤ y|η) = Φ((log y − η)/σ) for y > 0.
func (g LogNormal) CDF(y, eta float64) float64 {
	s := positiveOr(g.Scale, 1)
	switch {
	case math.IsNaN(y) || math.IsNaN(s):
		return math.NaN()
	case y <= 0:
		return 0
	}
	return special.NormalTail((eta - math.Log(y)) / s)
}

// Facts implements Factual.
func (LogNormal) Facts() Facts { return Facts{Support: Positive, Censored: true, LogConcave: true} }

// Params implements Parametric.
func (g LogNormal) Params() []Param {
	return []Param{{Name: "Scale", Value: cmp.Or(g.Scale, 1), Max: math.Inf(1)}}
}

// WithParams implements Parametric.
func (LogNormal) WithParams(values []float64) Likelihood { return LogNormal{Scale: values[0]} }

// predictLogProb uses that log y has mean m and variance v + σ².
func (g LogNormal) predictLogProb(y, m, v float64) (logp, bound float64) {
	whole := LogNormal{Scale: math.Hypot(positiveOr(g.Scale, 1), math.Sqrt(v))}
	logp = whole.LogProb(y, m)
	slope, _ := whole.Derivs(y, m)
	l := math.Abs(math.Log(math.Abs(y)))
	return logp, 8 * special.Eps * (1 + math.Abs(logp) + math.Abs(math.Log(whole.Scale)) +
		math.Abs(slope)*(math.Abs(m)+l))
}

// predictMoments implements momentPredictor.
func (g LogNormal) predictMoments(m, v float64) (mean, variance float64) {
	return LogNormal{Scale: math.Hypot(positiveOr(g.Scale, 1), math.Sqrt(v))}.Moments(m)
}

// predictTail implements tailPredictor.
func (g LogNormal) predictTail(y, m, v float64, above bool) float64 {
	t := (math.Log(y) - m) / math.Hypot(positiveOr(g.Scale, 1), math.Sqrt(v))
	if !above {
		t = -t
	}
	return special.NormalLogTail(t)
}
