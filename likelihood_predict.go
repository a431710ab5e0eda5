package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

// The closed forms of this package's likelihoods. They are not exported because
// quadrature reproduces them; they only save time.
type (
	predictLogProber interface {
		predictLogProb(y, m, v float64) (logp, bound float64)
	}
	predictMomenter interface {
		predictMoments(m, v float64) (mean, variance float64)
	}
	predictCDFer interface {
		predictCDF(y, m, v float64) float64
	}
	predictQuantiler interface {
		predictQuantile(p, m, v float64) float64
	}
)

// PredictLogProb returns log ∫ p(y|η) N(η|m,v) dη, the log predictive
// probability (or density) of y, and a bound on its absolute error, which is
// the relative error of the probability itself.
//
// It is meant for far tails too: the probability need not be representable.
// Closed forms are used for BernoulliProbit, GaussianNoise and Laplace, and the
// sums of Expect for BernoulliLogit. Otherwise the integrand's mode is found in
// the logarithm, which has to be unimodal or have its other modes near m or y,
// and the bound is an estimate by adaptive quadrature. Both results are NaN
// unless m is finite and v finite and not negative.
func PredictLogProb(l Likelihood, y, m, v float64) (logp, bound float64) {
	if !expect.Valid(m, v) {
		return math.NaN(), math.NaN()
	}
	if v == 0 {
		logp = l.LogProb(y, m)
		return logp, 4 * special.Eps * math.Abs(logp)
	}
	if p, ok := l.(predictLogProber); ok {
		return p.predictLogProb(y, m, v)
	}
	s := math.Sqrt(v)
	var k expect.Mode
	// N(m, v) has its mode at u = 0; p(y|η) may have its own near η = 0 or η = y.
	marks := [2]float64{-m / s, (y - m) / s}
	logp, bound = k.Integrate(func(u float64) float64 { return l.LogProb(y, m+s*u) - u*u/2 }, marks, 1/s)
	// η = m + su is rounded, which moves log p by its slope over the peak.
	at := func(u float64) float64 { return l.LogProb(y, m+s*u) }
	top := at(k.Mode)
	rise := math.Max(math.Abs(at(k.Mode+k.Width)-top), math.Abs(at(k.Mode-k.Width)-top))
	rise = math.Min(rise, 2)
	if round := special.Eps * (math.Abs(m/s) + math.Abs(k.Mode)) * 2 * rise / k.Width; round > 0 {
		bound += round
	}
	return logp - special.LogSqrt2Pi, bound
}

// PredictMoments returns E[y] and Var[y] for η ~ N(m, v), by the law of total
// variance: Var[y] = E[Var[y|η]] + Var[E[y|η]].
//
// Closed forms are used where they exist: for every likelihood of this package.
// For others E[y|η] and Var[y|η] come from Responder, or from LogProb by
// integration over the Support of y, which costs an integral at each node.
//
// It returns an error that wraps
//   - ErrParam if v is negative or not finite, m is not finite, a parameter of l is
//     out of range, or LogProb does not integrate to 1 within 1e−6 over the support;
//   - ErrNotFinite if the moments do not exist. A variance may be +Inf.
func PredictMoments(l Likelihood, m, v float64) (mean, variance float64, err error) {
	if err := predictCheck(l, m, v); err != nil {
		return math.NaN(), math.NaN(), err
	}
	if p, ok := l.(predictMomenter); ok {
		mean, variance = p.predictMoments(m, v)
	} else {
		r, n := predictResponder(l)
		mean, variance = predictMix(r, m, v)
		if n != nil && n.err != nil {
			return math.NaN(), math.NaN(), n.err
		}
	}
	if math.IsNaN(mean) || math.IsNaN(variance) {
		return mean, variance, fmt.Errorf("pgsvi: %w: the moments of %T do not exist at m = %v, v = %v", ErrNotFinite, l, m, v)
	}
	return mean, variance, nil
}

func predictCheck(l Likelihood, m, v float64) error {
	if !expect.Valid(m, v) {
		return fmt.Errorf("pgsvi: %w: latent N(%v, %v), want a finite mean and a finite variance ≥ 0", ErrParam, m, v)
	}
	return checkLikelihood(l)
}

// predictMix integrates r.Moments over N(m, v).
func predictMix(r Responder, m, v float64) (mean, variance float64) {
	mu, sigma2 := r.Moments(m)
	if v == 0 || math.IsNaN(mu) {
		return mu, sigma2
	}
	s := math.Sqrt(v)
	f := func(u float64) [3]float64 {
		a, b := r.Moments(m + s*u)
		a -= mu
		p := special.NormalPDF(u)
		if p == 0 {
			return [3]float64{}
		}
		return [3]float64{p * a, p * a * a, p * b}
	}
	grow := func(u float64) float64 {
		a, b := r.Moments(m + s*u)
		return (a-mu)*(a-mu) + b
	}
	var buf [64]float64
	t := expect.Adaptive(f, expect.Reach(buf[:0], grow, sigma2+grow(1)+grow(-1), 0, m, s), predictTol(r))
	d := t.Sum[0]
	return mu + d, t.Sum[2] + math.Max(0, t.Sum[1]-d*d)
}

// predictTol is looser for a responder that integrates over y at every node.
func predictTol(r Responder) float64 {
	if _, ok := r.(*predictNumeric); ok {
		return 1e-10
	}
	return 1e-13
}

// PredictQuantile returns the p-quantile of the predictive distribution of y for
// η ~ N(m, v): the smallest y with P(Y ≤ y) ≥ p.
//
// It is exact for Counts (an integer) and SignLabels, and otherwise found by
// root-finding in E[P(Y ≤ y|η)] to a relative accuracy of about 1e−12. P(Y ≤ y|η)
// comes from Responder, or from LogProb by integration over y. A Responder for
// counts has to be Factual as well to get integers.
//
// It returns an error that wraps ErrParam if p is not in (0, 1) or as
// PredictMoments does, and ErrNotFinite if no y was found.
func PredictQuantile(l Likelihood, p, m, v float64) (float64, error) {
	if !(p > 0 && p < 1) {
		return math.NaN(), fmt.Errorf("pgsvi: %w: quantile of p = %v, want 0 < p < 1", ErrParam, p)
	}
	if err := predictCheck(l, m, v); err != nil {
		return math.NaN(), err
	}
	if q, ok := l.(predictQuantiler); ok {
		return q.predictQuantile(p, m, v), nil
	}
	r, n := predictResponder(l)
	support := predictSupport(l)
	t, ok := predictSearch(func(t float64) float64 {
		return predictCDF(l, r, support.fromLine(t), m, v) - p
	}, support, m, v)
	if n != nil && n.err != nil {
		return math.NaN(), n.err
	}
	if !ok {
		return math.NaN(), fmt.Errorf("pgsvi: %w: no %v-quantile of %T at m = %v, v = %v", ErrNotFinite, p, l, m, v)
	}
	return support.fromLine(t), nil
}

// predictSearch returns the smallest t at which excess is not negative, in the
// coordinate of Support.fromLine.
func predictSearch(excess func(t float64) float64, support Support, m, v float64) (float64, bool) {
	below := func(t float64) bool { return excess(t) < 0 }
	switch support {
	case SignLabels:
		if below(-1) {
			return 1, true
		}
		return -1, true
	case Counts:
		if !below(0) {
			return 0, true
		}
		lo, hi := 0.0, 1.0
		for below(hi) {
			if lo, hi = hi, 2*hi; hi > 0x1p53 {
				return 0, false
			}
		}
		for hi-lo > 1 {
			if mid := math.Floor(lo + (hi-lo)/2); below(mid) {
				lo = mid
			} else {
				hi = mid
			}
		}
		return hi, true
	}
	at := m
	if support != RealLine {
		at = 0
	}
	step := math.Sqrt(v) + 1
	lo, hi := at, at
	for below(hi) {
		lo, hi = hi, hi+step
		if step *= 2; math.IsInf(hi, 1) {
			return 0, false
		}
	}
	if lo == hi {
		step = math.Sqrt(v) + 1
		for lo -= step; !below(lo); lo -= step {
			hi = lo
			if step *= 2; math.IsInf(lo, -1) {
				return 0, false
			}
		}
	}
	return accel.Root(excess, lo, hi), true
}

// predictCDF returns P(Y ≤ y) for η ~ N(m, v).
func predictCDF(l Likelihood, r Responder, y, m, v float64) float64 {
	if v == 0 {
		return r.CDF(y, m)
	}
	if p, ok := l.(predictCDFer); ok {
		return p.predictCDF(y, m, v)
	}
	s := math.Sqrt(v)
	f := func(u float64) [3]float64 { return [3]float64{special.NormalPDF(u) * r.CDF(y, m+s*u)} }
	flat := func(float64) float64 { return 0 }
	var buf [64]float64
	return expect.Adaptive(f, expect.Reach(buf[:0], flat, 1, y, m, s), predictTol(r)).Sum[0]
}

// predictSupport returns the support that l declares.
func predictSupport(l Likelihood) Support { return factsOf(l).Support }

// predictResponder returns l itself, or the responder made of its LogProb.
func predictResponder(l Likelihood) (Responder, *predictNumeric) {
	if r, ok := l.(Responder); ok {
		return r, nil
	}
	n := &predictNumeric{l: l, support: predictSupport(l)}
	return n, n
}

// predictNumeric is a Responder by integration of exp(LogProb) over y. The first
// η at which that does not give 1 is reported in err.
type predictNumeric struct {
	l       Likelihood
	support Support
	err     error
}

const predictCounts = 1 << 20 // the largest count that is summed up to

func (p *predictNumeric) check(eta, total float64) {
	if p.err == nil && !(math.Abs(total-1) <= 1e-6) {
		p.err = fmt.Errorf("pgsvi: %w: LogProb of %T is not normalised: exp(LogProb(y, %v)) sums to %v over y in %v; "+
			"normalise it, or give its Support in Facts if y lives elsewhere, or Responder", ErrParam, p.l, eta, total, p.support)
	}
}

// LogProb implements Likelihood.
func (p *predictNumeric) LogProb(y, eta float64) float64 { return p.l.LogProb(y, eta) }

// Moments implements Responder.
func (p *predictNumeric) Moments(eta float64) (mean, variance float64) {
	if p.err != nil {
		return math.NaN(), math.NaN()
	}
	if p.support == SignLabels || p.support == Counts {
		var total, m2 float64
		p.each(math.Inf(1), eta, func(y, q float64) {
			// West's update of a weighted mean and sum of squares (1979).
			total += q
			if total > 0 {
				d := y - mean
				mean += d * q / total
				m2 += q * d * (y - mean)
			}
		})
		p.check(eta, total)
		return mean, m2 / total
	}
	var k expect.Mode
	f := p.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	c := p.support.fromLine(k.Mode)
	t := k.Moments(f, func(t float64) float64 { return p.support.fromLine(t) - c })
	p.check(eta, t[0])
	d := t[1] / t[0]
	return c + d, t[2]/t[0] - d*d
}

// CDF implements Responder.
func (p *predictNumeric) CDF(y, eta float64) float64 {
	if p.err != nil {
		return math.NaN()
	}
	if p.support == SignLabels || p.support == Counts {
		var total, below float64
		p.each(math.Inf(1), eta, func(x, q float64) {
			total += q
			if x <= y {
				below += q
			}
		})
		p.check(eta, total)
		return math.Min(1, below)
	}
	at := y
	switch p.support {
	case Positive, NonNegative:
		at = math.Log(y)
	case UnitInterval:
		at = math.Log(y) - math.Log1p(-y)
	}
	if math.IsNaN(at) || math.IsInf(at, -1) {
		return 0
	}
	var k expect.Mode
	f := p.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	total := k.Moments(f, func(float64) float64 { return 0 })[0]
	p.check(eta, total)
	k.Clip(at)
	return math.Min(1, k.Moments(f, func(float64) float64 { return 0 })[0])
}

// each calls f with every y ≤ last that counts and its probability.
func (p *predictNumeric) each(last, eta float64, f func(y, q float64)) {
	if p.support == SignLabels {
		f(-1, math.Exp(p.l.LogProb(-1, eta)))
		f(1, math.Exp(p.l.LogProb(1, eta)))
		return
	}
	var total, before float64
	for y := 0.0; y <= last && y < predictCounts; y++ {
		q := math.Exp(p.l.LogProb(y, eta))
		f(y, q)
		total += q
		// Past the mode the rest is less than a geometric series.
		if q < before && q*q < 1e-17*total*(before-q) {
			return
		}
		before = q
	}
}

// density returns the log density of y on the real line.
func (p *predictNumeric) density(eta float64) func(t float64) float64 {
	switch p.support {
	case Positive, NonNegative:
		return func(t float64) float64 { return p.l.LogProb(math.Exp(t), eta) + t }
	case UnitInterval:
		return func(t float64) float64 {
			a, _, _ := expect.SoftplusAt(t)
			b, _, _ := expect.SoftplusAt(-t)
			return p.l.LogProb(1/(1+math.Exp(-t)), eta) - a - b
		}
	}
	return func(t float64) float64 { return p.l.LogProb(t, eta) }
}

// The predictions of several latent values N(m_i, v_i), the same for every posterior.

// predictProbs replaces m by the probabilities, or densities, of y.
func predictProbs(lik Likelihood, y float64, m, v []float64) []float64 {
	for i := range m {
		l, _ := PredictLogProb(lik, y, m[i], v[i])
		m[i] = math.Exp(l)
	}
	return m
}

// predictLogProbs stores the log densities of y_i in dst; nil allocates.
func predictLogProbs(dst []float64, lik Likelihood, y, m, v []float64) []float64 {
	if len(y) != len(m) {
		panic(fmt.Sprintf("pgsvi: x has %d rows, y has %d", len(m), len(y)))
	}
	dst = dense.Dest(dst, len(m))
	for i := range m {
		dst[i], _ = PredictLogProb(lik, y[i], m[i], v[i])
	}
	return dst
}

// predictAllMoments replaces m and v by mean and variance of y, NaN from a row that fails on.
func predictAllMoments(lik Likelihood, m, v []float64) (err error) {
	for i := range m {
		if m[i], v[i], err = PredictMoments(lik, m[i], v[i]); err != nil {
			fillNaN(m[i:])
			fillNaN(v[i:])
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}

// fillNaN fills x with NaN.
func fillNaN(x []float64) {
	for i := range x {
		x[i] = math.NaN()
	}
}

// predictQuantiles replaces m by the quantiles of y, NaN from a row that fails on.
func predictQuantiles(lik Likelihood, prob float64, m, v []float64) (err error) {
	for i := range m {
		if m[i], err = PredictQuantile(lik, prob, m[i], v[i]); err != nil {
			fillNaN(m[i:])
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}

// predictBlock is the number of rows predicted at a time.
const predictBlock = 128
