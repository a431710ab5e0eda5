// Package predict computes predictive distributions of a response y whose latent value η is
// Gaussian,
//
//	p(y) = ∫ p(y|η) N(η|m, v) dη:
//
// predict.go has log densities, means and variances, quantile.go has quantiles and intervals of
// p(y|η), and classes.go has intervals of class probabilities. pgsvi.Prediction calls them.
package predict

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

// Density is a log-likelihood, for a density or for probabilities.
type Density interface {
	// LogProb returns log p(y|η) in nats.
	LogProb(y, eta float64) float64
}

// Response is the distribution of y given η.
type Response interface {
	// Moments returns E[y|η] and Var[y|η].
	Moments(eta float64) (mean, variance float64)
	// CDF returns P(Y ≤ y|η).
	CDF(y, eta float64) float64
}

// Kind is the set of possible responses.
type Kind int

const (
	RealLine     Kind = iota // a density on (−∞, ∞)
	Counts                   // 0, 1, 2, …
	SignLabels               // −1 and +1
	UnitInterval             // a density on (0, 1)
	Positive                 // a density on (0, ∞)
	NonNegative              // a density on [0, ∞)
)

// Support is a Kind with the largest count. A Most of 0 means that counts have no limit.
type Support struct {
	Kind Kind
	Most float64
}

// discrete reports whether the responses of k have probabilities rather than densities.
func (k Kind) discrete() bool { return k == Counts || k == SignLabels }

// fromLine maps the real line to the support of a density.
func (k Kind) fromLine(t float64) float64 {
	switch k {
	case UnitInterval:
		return 1 / (1 + math.Exp(-t))
	case Positive, NonNegative:
		return math.Exp(t)
	}
	return t
}

const (
	knownTol        = 1e-13   // error of an integral over η if y|η is known
	numericTol      = 1e-10   // error of an integral over η if y|η is integrated numerically
	normalizedTol   = 1e-6    // largest difference of the sum of exp(LogProb) from 1
	mostCounts      = 1 << 20 // largest number of counts in a sum
	countsRemainder = 1e-17   // part of the sum that may be missing
)

// LogProb returns log ∫ p(y|η) N(η|m, v) dη for a y in the support, by quadrature around the mode
// of the integrand. bound limits its absolute error, which is the relative error of the
// probability. Both are NaN unless m is finite and v is finite and not negative.
func LogProb(l Density, y, m, v float64) (logp, bound float64) {
	if !expect.Valid(m, v) {
		return math.NaN(), math.NaN()
	}
	if v == 0 {
		logp = l.LogProb(y, m)
		return logp, 4 * special.Eps * math.Abs(logp)
	}
	s := math.Sqrt(v)
	var k expect.Mode
	// N(m, v) has its mode at u = 0, and p(y|η) may have another one near η = 0 or η = y.
	marks := [2]float64{-m / s, (y - m) / s}
	logp, bound = k.Integrate(func(u float64) float64 { return l.LogProb(y, m+s*u) - u*u/2 }, marks,
		1/s)
	// Rounding of η = m + su moves log p by its slope over the peak.
	at := func(u float64) float64 { return l.LogProb(y, m+s*u) }
	top := at(k.Mode)
	rise := math.Max(math.Abs(at(k.Mode+k.Width)-top), math.Abs(at(k.Mode-k.Width)-top))
	rise = math.Min(rise, 2)
	if round := special.Eps * (math.Abs(m/s) + math.Abs(k.Mode)) * 2 * rise / k.Width; round > 0 {
		bound += round
	}
	return logp - special.LogSqrt2Pi, bound
}

// Moments returns E[y] and Var[y], by the law of total variance, for η ~ N(m, v).
func Moments(r Response, m, v float64) (mean, variance float64) {
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
	t := expect.Adaptive(f, expect.Reach(buf[:0], grow, sigma2+grow(1)+grow(-1), 0, m, s), tol(r))
	d := t.Sum[0]
	return mu + d, t.Sum[2] + math.Max(0, t.Sum[1]-d*d)
}

// tol is looser for a Response that integrates over y at every node.
func tol(r Response) float64 {
	if _, ok := r.(*Numeric); ok {
		return numericTol
	}
	return knownTol
}

// Numeric is a Response that integrates exp(LogProb) over y.
type Numeric struct {
	l          Density
	kind       Kind
	eta, total float64
	failed     bool
}

// NewNumeric returns the Response with the log density l on s.
func NewNumeric(l Density, s Support) *Numeric { return &Numeric{l: l, kind: s.Kind} }

// Unnormalized returns the first η at which exp(LogProb) did not sum or integrate to 1 within
// 1e-6, and the total there. Later results are NaN.
func (n *Numeric) Unnormalized() (eta, total float64, failed bool) {
	return n.eta, n.total, n.failed
}

func (n *Numeric) check(eta, total float64) {
	if !n.failed && !(math.Abs(total-1) <= normalizedTol) {
		n.eta, n.total, n.failed = eta, total, true
	}
}

// Moments implements Response.
func (n *Numeric) Moments(eta float64) (mean, variance float64) {
	if n.failed {
		return math.NaN(), math.NaN()
	}
	if n.kind.discrete() {
		var total, m2 float64
		n.each(eta, func(y, q float64) {
			// Update the weighted mean and sum of squares (West, 1979).
			total += q
			if total > 0 {
				d := y - mean
				mean += d * q / total
				m2 += q * d * (y - mean)
			}
		})
		n.check(eta, total)
		return mean, m2 / total
	}
	var k expect.Mode
	f := n.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	c := n.kind.fromLine(k.Mode)
	t := k.Moments(f, func(t float64) float64 { return n.kind.fromLine(t) - c })
	n.check(eta, t[0])
	d := t[1] / t[0]
	return c + d, t[2]/t[0] - d*d
}

// CDF implements Response.
func (n *Numeric) CDF(y, eta float64) float64 {
	if n.failed {
		return math.NaN()
	}
	if n.kind.discrete() {
		var total, below float64
		n.each(eta, func(x, q float64) {
			total += q
			if x <= y {
				below += q
			}
		})
		n.check(eta, total)
		return math.Min(1, below)
	}
	at := y
	switch n.kind {
	case Positive, NonNegative:
		at = math.Log(y)
	case UnitInterval:
		at = math.Log(y) - math.Log1p(-y)
	}
	if math.IsNaN(at) || math.IsInf(at, -1) {
		return 0
	}
	var k expect.Mode
	f := n.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	total := k.Moments(f, func(float64) float64 { return 0 })[0]
	n.check(eta, total)
	k.Clip(at)
	return math.Min(1, k.Moments(f, func(float64) float64 { return 0 })[0])
}

// each calls f for every y whose probability matters.
func (n *Numeric) each(eta float64, f func(y, q float64)) {
	if n.kind == SignLabels {
		f(-1, math.Exp(n.l.LogProb(-1, eta)))
		f(1, math.Exp(n.l.LogProb(1, eta)))
		return
	}
	var total, before float64
	for y := 0.0; y < mostCounts; y++ {
		q := math.Exp(n.l.LogProb(y, eta))
		f(y, q)
		total += q
		// After the only mode, the rest is less than a geometric series. After the first of
		// several modes, the probability that is missing from 1 is still to come.
		if q < before && q*q < countsRemainder*total*(before-q) && total > 1-normalizedTol {
			return
		}
		before = q
	}
}

// density returns the log density of y on the real line.
func (n *Numeric) density(eta float64) func(t float64) float64 {
	switch n.kind {
	case Positive, NonNegative:
		return func(t float64) float64 { return n.l.LogProb(math.Exp(t), eta) + t }
	case UnitInterval:
		return func(t float64) float64 {
			a, _, _ := expect.SoftplusAt(t)
			b, _, _ := expect.SoftplusAt(-t)
			return n.l.LogProb(1/(1+math.Exp(-t)), eta) - a - b
		}
	}
	return func(t float64) float64 { return n.l.LogProb(t, eta) }
}
