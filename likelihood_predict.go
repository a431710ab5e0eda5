package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// Support is the set that responses live in.
type Support int

// The supports. A likelihood that does not implement Supporter has RealLine.
const (
	RealLine     Support = iota // a density on (−∞, ∞)
	Counts                      // probabilities of 0, 1, 2, …
	SignLabels                  // probabilities of −1 and +1
	UnitInterval                // a density on (0, 1)
	Positive                    // a density on (0, ∞)
)

// String returns the name of the constant.
func (s Support) String() string {
	names := [...]string{"RealLine", "Counts", "SignLabels", "UnitInterval", "Positive"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Support(%d)", int(s))
}

// Supporter is a Likelihood whose responses are not real numbers at large. With
// it, and a normalised LogProb, predictions need nothing else.
type Supporter interface{ Support() Support }

// The closed forms of this package's likelihoods. They are not exported because
// quadrature reproduces them; they only save time.
type (
	predictLogProber interface {
		predictLogProb(y, m, v float64) (logp, bound float64)
	}
	predictMomenter interface {
		predictMoments(m, v float64) (mean, variance float64)
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
	if !quadValid(m, v) {
		return math.NaN(), math.NaN()
	}
	if v == 0 {
		logp = l.LogProb(y, m)
		return logp, 4 * quadEps * math.Abs(logp)
	}
	if p, ok := l.(predictLogProber); ok {
		return p.predictLogProb(y, m, v)
	}
	s := math.Sqrt(v)
	var k quadMode
	// N(m, v) has its mode at u = 0; p(y|η) may have its own near η = 0 or η = y.
	marks := [2]float64{-m / s, (y - m) / s}
	logp, bound = k.integrate(func(u float64) float64 { return l.LogProb(y, m+s*u) - u*u/2 }, marks, 1/s)
	// η = m + su is rounded, which moves log p by its slope over the peak.
	at := func(u float64) float64 { return l.LogProb(y, m+s*u) }
	top := at(k.mode)
	rise := math.Max(math.Abs(at(k.mode+k.width)-top), math.Abs(at(k.mode-k.width)-top))
	rise = math.Min(rise, 2)
	if round := quadEps * (math.Abs(m/s) + math.Abs(k.mode)) * 2 * rise / k.width; round > 0 {
		bound += round
	}
	return logp - gaussLogSqrt2Pi, bound
}

func (BernoulliLogit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	q, scale := predictLogit(m, v)
	if y*m < 0 {
		logp = math.Log(q) + scale
	} else {
		logp = math.Log1p(-q * math.Exp(scale))
	}
	return logp, 1e-13*math.Min(1, math.Abs(logp)) + 4*quadEps*math.Abs(logp)
}

// predictLogit returns the smaller of P(y = −1) and P(y = +1) as q e^scale.
func predictLogit(m, v float64) (q, scale float64) {
	_, q, _, scale = softplusExpect(math.Abs(m), v)
	return q, scale
}

func (BernoulliProbit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	logp, _, _ = gaussLogCDF(y * m / math.Sqrt(1+v))
	return logp, 8 * quadEps * (1 + math.Abs(logp))
}

func (g GaussianNoise) predictLogProb(y, m, v float64) (logp, bound float64) {
	n := likeDefault(g.Var, 1) + v
	r := (y - m) / math.Sqrt(n)
	k := gaussLogSqrt2Pi + math.Log(n)/2
	return -k - r*r/2, 4 * quadEps * (1 + math.Abs(k) + r*r)
}

// The convolution of a Laplace density and a Gaussian: with t = |y−m|/s and
// k = s/b, φ(t) (R(k−t) + R(k+t))/(2b) where R is Mills' ratio.
func (l Laplace) predictLogProb(y, m, v float64) (logp, bound float64) {
	b, s := likeDefault(l.Scale, 1), math.Sqrt(v)
	t, k := math.Abs(y-m)/s, s/b
	if t-k > 8 {
		logp = -k*(t-k/2) + gaussLogTail(k-t)
		bound = k * (t + k)
	} else {
		logp = math.Log(gaussMills(k-t)+gaussMills(k+t)) - t*t/2 - gaussLogSqrt2Pi
		bound = t * t
	}
	return logp - math.Log(2*b), 4 * quadEps * (2 + bound + math.Abs(math.Log(2*b)))
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
	if !quadValid(m, v) {
		return fmt.Errorf("pgsvi: %w: latent N(%v, %v), want a finite mean and a finite variance ≥ 0", ErrParam, m, v)
	}
	if c, ok := l.(Validator); ok {
		return c.Validate()
	}
	return nil
}

func (BernoulliLogit) predictMoments(m, v float64) (mean, variance float64) {
	q, scale := predictLogit(m, v)
	q *= math.Exp(scale)
	return math.Copysign(1-2*q, m), 4 * q * (1 - q)
}

func (b BernoulliProbit) predictMoments(m, v float64) (mean, variance float64) {
	return b.Moments(m / math.Sqrt(1+v))
}

// The moments of a log-normal mixture: Var[y] = r + r²(e^v − 1).
func (p Poisson) predictMoments(m, v float64) (mean, variance float64) {
	r := likeDefault(p.Exposure, 1) * math.Exp(m+v/2)
	if v == 0 || r == 0 {
		return r, r
	}
	return r, r + r*(r*math.Expm1(v))
}

func (g GaussianNoise) predictMoments(m, v float64) (mean, variance float64) {
	return m, likeDefault(g.Var, 1) + v
}

func (t StudentT) predictMoments(m, v float64) (mean, variance float64) {
	mean, variance = t.Moments(m)
	return mean, variance + v
}

func (l Laplace) predictMoments(m, v float64) (mean, variance float64) {
	mean, variance = l.Moments(m)
	return mean, variance + v
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
		p := gaussPDF(u)
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
	t := quadAdaptive(f, quadReach(buf[:0], grow, sigma2+grow(1)+grow(-1), 0, m, s), predictTol(r))
	d := t.sum[0]
	return mu + d, t.sum[2] + math.Max(0, t.sum[1]-d*d)
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
// counts has to be a Supporter as well to get integers.
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
	if g, ok := l.(GaussianNoise); ok {
		return m + math.Sqrt(likeDefault(g.Var, 1)+v)*mathext.NormalQuantile(p), nil
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
	return predictRoot(excess, lo, hi), true
}

// predictRoot returns a zero of f between lo and hi, where its signs differ, by
// the method of Chandrupatla (1997): inverse quadratic interpolation when it is
// safe, else bisection.
func predictRoot(f func(x float64) float64, lo, hi float64) float64 {
	a, b := hi, lo
	fa, fb := f(a), f(b)
	c, fc, t := a, fa, 0.5
	for {
		x := a + t*(b-a)
		fx := f(x)
		if (fx < 0) == (fa < 0) {
			c, fc = a, fa
		} else {
			c, b, fc, fb = b, a, fb, fa
		}
		a, fa = x, fx
		best := a
		if math.Abs(fb) < math.Abs(fa) {
			best = b
		}
		edge := (1e-13*math.Abs(best) + 1e-300) / math.Abs(b-a)
		if !(edge < 0.5) || fa == 0 {
			return best
		}
		xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
		t = 0.5
		if phi*phi < xi && (1-phi)*(1-phi) < 1-xi {
			t = fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
		}
		t = math.Max(edge, math.Min(1-edge, t))
	}
}

// predictCDF returns P(Y ≤ y) for η ~ N(m, v).
func predictCDF(l Likelihood, r Responder, y, m, v float64) float64 {
	if v == 0 {
		return r.CDF(y, m)
	}
	switch l.(type) {
	case BernoulliLogit:
		if y >= -1 && y < 1 {
			q, scale := predictLogit(m, v)
			q *= math.Exp(scale)
			if m < 0 {
				return 1 - q
			}
			return q
		}
	case BernoulliProbit:
		return r.CDF(y, m/math.Sqrt(1+v))
	}
	s := math.Sqrt(v)
	f := func(u float64) [3]float64 { return [3]float64{gaussPDF(u) * r.CDF(y, m+s*u)} }
	flat := func(float64) float64 { return 0 }
	var buf [64]float64
	return quadAdaptive(f, quadReach(buf[:0], flat, 1, y, m, s), predictTol(r)).sum[0]
}

// predictSupport returns the support that l declares.
func predictSupport(l Likelihood) Support {
	if s, ok := l.(Supporter); ok {
		return s.Support()
	}
	return RealLine
}

// fromLine maps the real line to the support; Counts and SignLabels stay.
func (s Support) fromLine(t float64) float64 {
	switch s {
	case UnitInterval:
		return 1 / (1 + math.Exp(-t))
	case Positive:
		return math.Exp(t)
	}
	return t
}

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
			"normalise it, or implement Supporter if y lives elsewhere, or Responder", ErrParam, p.l, eta, total, p.support)
	}
}

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
	var k quadMode
	f := p.density(eta)
	k.find(f, [2]float64{0, eta}, 0)
	c := p.support.fromLine(k.mode)
	t := k.moments(f, func(t float64) float64 { return p.support.fromLine(t) - c })
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
	case Positive:
		at = math.Log(y)
	case UnitInterval:
		at = math.Log(y) - math.Log1p(-y)
	}
	if math.IsNaN(at) || math.IsInf(at, -1) {
		return 0
	}
	var k quadMode
	f := p.density(eta)
	k.find(f, [2]float64{0, eta}, 0)
	total := k.moments(f, func(float64) float64 { return 0 })[0]
	p.check(eta, total)
	k.clip(at)
	return math.Min(1, k.moments(f, func(float64) float64 { return 0 })[0])
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
	case Positive:
		return func(t float64) float64 { return p.l.LogProb(math.Exp(t), eta) + t }
	case UnitInterval:
		return func(t float64) float64 {
			a, _, _ := softplusAt(t)
			b, _, _ := softplusAt(-t)
			return p.l.LogProb(1/(1+math.Exp(-t)), eta) - a - b
		}
	}
	return func(t float64) float64 { return p.l.LogProb(t, eta) }
}

// quadMode integrates exp(f) over the real line for an f that is −∞ at both
// ends, by finding its mode and the interval where exp(f) is not negligible.
type quadMode struct {
	mode, top float64 // of f
	width     float64 // distance in which f falls by 1
	cuts      [64]float64
	n         int
}

const (
	quadDeep    = 45 // e^−45 is negligible
	quadRatio   = 1.7
	quadScanMin = 0x1p-12
	quadScan    = 60
)

// find scans a geometric grid on both sides of 0 and of the marks, and refines the
// best point by golden sections. The cuts are 0, the marks, the mode, points at
// distances unit, 8 unit, … < 3 from the marks, one scale of the peak on either
// side, and the ends of what counts.
func (k *quadMode) find(f func(x float64) float64, marks [2]float64, unit float64) {
	at := func(x float64) float64 {
		if y := f(x); !math.IsNaN(y) {
			return y
		}
		return math.Inf(-1)
	}
	k.n = 0
	var grid, vals [3 * (2*quadScan + 1)]float64
	n := 0
	for _, c := range [3]float64{0, marks[0], marks[1]} {
		if math.IsNaN(c) || math.IsInf(c, 0) {
			continue
		}
		grid[n] = c
		n++
		d := quadScanMin
		for range quadScan {
			grid[n], grid[n+1] = c-d, c+d
			n += 2
			d *= quadRatio
		}
	}
	g := grid[:n]
	slices.Sort(g)
	g = slices.Compact(g)
	best := 0
	for i, x := range g {
		vals[i] = at(x)
		if vals[i] > vals[best] {
			best = i
		}
	}
	k.mode, k.top = g[best], vals[best]
	if math.IsInf(k.top, 0) {
		return
	}
	// Golden sections around the best grid point.
	a, b := g[max(best-1, 0)], g[min(best+1, len(g)-1)]
	const phi = 0.61803398874989484820
	for range 60 {
		if b-a <= 1e-9*(math.Abs(a)+math.Abs(b))+1e-300 {
			break
		}
		var x float64
		if k.mode-a > b-k.mode {
			x = k.mode - (1-phi)*(k.mode-a)
		} else {
			x = k.mode + (1-phi)*(b-k.mode)
		}
		y := at(x)
		switch {
		case y > k.top:
			if x < k.mode {
				b = k.mode
			} else {
				a = k.mode
			}
			k.mode, k.top = x, y
		case x < k.mode:
			a = x
		default:
			b = x
		}
	}
	// The hull of what counts, on the grid.
	lo, hi := len(g), -1
	for i := range g {
		if vals[i] > k.top-quadDeep {
			lo, hi = min(lo, i), i
		}
	}
	lo, hi = min(lo, best), max(hi, best)
	left, right := g[max(lo-1, 0)], g[min(hi+1, len(g)-1)]
	// The width of the peak on each side, and where it ends.
	c := k.cuts[:0]
	c = append(c, k.mode)
	k.width = right - left
	for _, side := range [2]float64{-1, 1} {
		d := 1e-12 * (math.Abs(k.mode) + 1e-6)
		for at(k.mode+side*d) > k.top-1 && d < right-left {
			d *= 2
		}
		k.width = math.Min(k.width, d)
		c = append(c, k.mode+side*d, k.mode+side*8*d)
		for at(k.mode+side*d) > k.top-quadDeep && d < right-left {
			d *= 2
		}
		if d >= right-left {
			d = right - left
		}
		if side < 0 {
			left = math.Min(left, k.mode-d)
		} else {
			right = math.Max(right, k.mode+d)
		}
	}
	c = append(c, left, right, 0, marks[0], marks[1])
	for d, n := unit, 0; d > 0 && d < 3 && n < 8; d, n = 8*d, n+1 {
		c = append(c, marks[0]-d, marks[0]+d, marks[1]-d, marks[1]+d)
	}
	for i, x := range c {
		c[i] = math.Max(left, math.Min(right, x))
		if math.IsNaN(x) {
			c[i] = k.mode
		}
	}
	slices.Sort(c)
	k.n = len(c)
}

// clip restricts the integral to x ≤ end.
func (k *quadMode) clip(end float64) {
	for i := range k.cuts[:k.n] {
		k.cuts[i] = math.Min(k.cuts[i], end)
	}
}

// integrate returns log ∫ exp(f) and the relative error of the integral.
func (k *quadMode) integrate(f func(x float64) float64, marks [2]float64, unit float64) (logI, bound float64) {
	k.find(f, marks, unit)
	if math.IsInf(k.top, 0) {
		return k.top, 0
	}
	t := quadAdaptive(func(x float64) [3]float64 { return [3]float64{k.exp(f(x))} }, k.cuts[:k.n], 1e-13)
	return k.top + math.Log(t.sum[0]), t.err[0]/t.sum[0] + 1e-15 + 4*quadEps*math.Abs(k.top)
}

// exp returns e^{y − top}, 0 for NaN.
func (k *quadMode) exp(y float64) float64 {
	if e := math.Exp(y - k.top); e <= math.MaxFloat64 {
		return e
	}
	return 0
}

// moments returns the integrals of exp(f), g exp(f) and g² exp(f).
func (k *quadMode) moments(f, g func(x float64) float64) [3]float64 {
	if math.IsInf(k.top, 0) {
		return [3]float64{math.NaN(), math.NaN(), math.NaN()}
	}
	t := quadAdaptive(func(x float64) [3]float64 {
		e, y := k.exp(f(x)), g(x)
		if e == 0 {
			return [3]float64{}
		}
		return [3]float64{e, e * y, e * y * y}
	}, k.cuts[:k.n], 1e-12)
	c := math.Exp(k.top)
	return [3]float64{c * t.sum[0], c * t.sum[1], c * t.sum[2]}
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
	dst = dest(dst, len(m))
	for i := range m {
		dst[i], _ = PredictLogProb(lik, y[i], m[i], v[i])
	}
	return dst
}

// predictAllMoments replaces m and v by mean and variance of y.
func predictAllMoments(lik Likelihood, m, v []float64) (err error) {
	for i := range m {
		if m[i], v[i], err = PredictMoments(lik, m[i], v[i]); err != nil {
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}

// predictQuantiles replaces m by the quantiles of y.
func predictQuantiles(lik Likelihood, prob float64, m, v []float64) (err error) {
	for i := range m {
		if m[i], err = PredictQuantile(lik, prob, m[i], v[i]); err != nil {
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}
