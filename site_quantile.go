package pgsvi

import (
	"cmp"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mathext"
)

// Quantile stores the quantile at level prob, in (0, 1), of y at each row: the
// smallest y with P(Y ≤ y) ≥ prob.
//
// For the likelihoods of this package it solves log P(Y ≤ y) = log prob, or above the
// median log P(Y > y) = log(1−prob), so that both tails keep a relative accuracy of
// about 1e−10 in the probability at any level. For others P(Y ≤ y|η) comes from
// Responder, or from LogProb by integration over y, with an absolute accuracy of about
// 1e−13 and 1e−10. Counts and SignLabels are solved for exactly, counts above 2^53 to
// the accuracy of a float64. A quantile too small for a float64 is 0.
//
// A row that fails is NaN, and the others are right. The error names the first that
// fails, and how many do. It wraps ErrParam if prob is not in (0, 1), ErrNotFinite if
// the quantile is above math.MaxFloat64 or none was found, and otherwise what that of
// Moments does.
func (p *Prediction) Quantile(dst []float64, prob float64) ([]float64, error) {
	dst = dense.Dest(dst, p.Len())
	err := p.err
	if err == nil && !(prob > 0 && prob < 1) {
		err = fmt.Errorf("pgsvi: quantile at level %v, want one between 0 and 1: %w", prob, ErrParam)
	}
	if err != nil {
		fillNaN(dst)
		return dst, err
	}
	var bad failedRows
	for i := range dst {
		dst[i], err = predictiveQuantile(p.lik, prob, p.m[i], p.v[i])
		bad.add(i, err)
	}
	return dst, bad.err()
}

// ProbInterval stores, for each row, the central credible interval of p(y|η), the
// probability of the response y itself, under the posterior N(m, v) of the latent
// value: it is below lo with probability (1−level)/2, and above hi with the same. Prob
// is the mean of what it holds.
//
// Where p(y|η) rises or falls with η, as for binary responses, for 0 and the largest of
// Counts, and so for the first and the last class of Ordinal, it has the values of
// p(y|η) at m ± z√v, z being the normal quantile. In between, p(y|η) rises to its largest
// value and falls again, and an end is the level that it exceeds with the probability
// wanted. A likelihood of one's own must not rise again in η after it has fallen.
//
// A row that fails is NaN, and the others are right. The error names the first that
// fails, and how many do. It wraps ErrParam if level is not in (0, 1), or if the
// Likelihood has densities, and not probabilities; ErrLabel if y is outside its
// Support; and otherwise what that of Err does.
func (p *Prediction) ProbInterval(lo, hi []float64, y, level float64) (l, h []float64, err error) {
	l, h = dense.Dest(lo, p.Len()), dense.Dest(hi, p.Len())
	facts := factsOf(p.lik)
	switch err = p.err; {
	case err != nil:
	case !(level > 0 && level < 1):
		err = fmt.Errorf("pgsvi: interval at level %v, want one between 0 and 1: %w", level, ErrParam)
	case facts.Support != Counts && facts.Support != SignLabels:
		err = fmt.Errorf("pgsvi: %s has a density on %s, of which there is no interval; see Quantile: %w", typeName(p.lik), facts.Support.describe(0), ErrParam)
	default:
		if err = checkLabel(p.lik, y); err != nil {
			err = fmt.Errorf("pgsvi: %w", err)
		}
	}
	if err != nil {
		fillNaN(l)
		fillNaN(h)
		return l, h, err
	}
	var bad failedRows
	for i := range l {
		if err = checkLatent(p.m[i], p.v[i]); err != nil {
			l[i], h[i] = math.NaN(), math.NaN()
		} else {
			l[i], h[i] = probInterval(p.lik, y, (1-level)/2, p.m[i], math.Sqrt(p.v[i]))
		}
		bad.add(i, err)
	}
	return l, h, bad.err()
}

const (
	farU  = 39    // standard deviations beyond which a Gaussian has no mass that a float64 holds
	tinyU = 1e-15 // standard deviations that do not count
)

// probInterval returns the quantiles of p(y|η) at tail and 1 − tail for η ~ N(m, s²), of which
// p(y|η) is above a level between some a and b, in standard deviations from m.
func probInterval(l Likelihood, y, tail, m, s float64) (lo, hi float64) {
	g := func(u float64) float64 {
		p := l.LogProb(y, math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m+s*u)))
		if math.IsNaN(p) {
			return math.Inf(-1)
		}
		return p
	}
	z := normalQuantile(tail)
	left, right := g(z), g(-z)
	// level returns g(a) = g(b(a)) for an a up to last. Rising is the answer if g(a) is the smaller all the
	// way, falling if it is the larger.
	level := func(b func(a float64) float64, last, rising, falling float64) float64 {
		h := func(a float64) float64 {
			if d := g(a) - g(b(a)); !math.IsNaN(d) {
				return d
			}
			return 1 // both are −Inf
		}
		switch first, end := h(-farU), h(last); {
		case first < 0 && end > 0:
			return g(accel.Root(h, -farU, last, tinyU))
		case first >= 0 && end > 0:
			return falling
		case first < 0:
			return rising
		}
		return math.Max(rising, falling) // flat at both ends
	}
	// Φ(a) + Φ(−b) = tail
	lo = level(func(a float64) float64 { return -normalQuantile(tail - special.NormalTail(-a)) }, z, left, right)
	// Φ(b) − Φ(a) = tail
	hi = level(func(a float64) float64 {
		if a < 0 {
			return normalQuantile(tail + special.NormalTail(-a))
		}
		return -normalQuantile(special.NormalTail(a) - tail)
	}, -z, right, left)
	return math.Exp(lo), math.Exp(hi)
}

// normalQuantile is that of N(0, 1), no further than farU from 0 for any p.
func normalQuantile(p float64) float64 {
	switch {
	case p <= 0:
		return -farU
	case p >= 1:
		return farU
	}
	return mathext.NormalQuantile(p)
}

// tailPredictor is a Likelihood of this package that knows the tails of y for η ~ N(m, v).
type tailPredictor interface {
	Likelihood
	// predictTail returns log P(Y ≤ y), or log P(Y > y) if above, for a y in the Support,
	// which for Counts may also lie between two responses.
	predictTail(y, m, v float64, above bool) float64
}

// predictiveQuantile returns the p-quantile of y for η ~ N(m, v), 0 < p < 1.
func predictiveQuantile(l Likelihood, p, m, v float64) (y float64, err error) {
	if err := checkLatent(m, v); err != nil {
		return math.NaN(), err
	}
	switch q := l.(type) {
	case GaussianNoise:
		y = q.predictQuantile(p, m, v)
	case tailPredictor:
		above := p > 0.5
		goal := math.Log(p)
		if above {
			goal = math.Log(1 - p) // which is exact
		}
		y = predictSearch(func(y float64) float64 {
			tail := q.predictTail(y, m, v, above)
			if above {
				return goal - tail
			}
			return tail - goal
		}, factsOf(l), true, m, v)
	default:
		r, n := predictResponder(l)
		y = predictSearch(func(y float64) float64 {
			return predictiveCDF(func(eta float64) float64 { return r.CDF(y, eta) }, y, m, v, predictTol(r), leastTail) - p
		}, factsOf(l), false, m, v)
		if n != nil && n.err != nil {
			return math.NaN(), n.err
		}
	}
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return math.NaN(), fmt.Errorf("%s has no quantile at level %v that a float64 holds, for a latent mean of %v and variance of %v: %w", typeName(l), p, m, v, ErrNotFinite)
	}
	return y, nil
}

// predictSearch returns the smallest response at which excess, which does not fall, is not
// negative: ±Inf if it is beyond the largest float64, NaN if excess is NaN on the way. Smooth
// says that excess is one of a real number, for Counts, too.
func predictSearch(excess func(y float64) float64, facts Facts, smooth bool, m, v float64) float64 {
	unknown := false
	below := func(y float64) bool {
		e := excess(y)
		unknown = unknown || math.IsNaN(e)
		return e < 0
	}
	var y float64
	switch s := facts.Support; s {
	case SignLabels:
		if y = -1; below(y) {
			y = 1
		}
	case Counts:
		y = searchCount(excess, below, cmp.Or(facts.Most, math.MaxFloat64), smooth, m, v)
	case Positive, NonNegative:
		if y = searchReal(excess, below, expAll, m, math.Sqrt(v)+1, logLeast, logMost, special.Eps); y < 0 {
			y = 0
		}
	case UnitInterval:
		if y = searchReal(excess, below, s.fromLine, 0, math.Sqrt(v)+1, logLeast, -logLeast, special.Eps); y < 0 {
			y = 0
		}
	default:
		y = searchReal(excess, below, s.fromLine, m, math.Sqrt(v)+1, -math.MaxFloat64, math.MaxFloat64, special.Eps*math.Abs(m)+tinyU*math.Sqrt(v))
	}
	if unknown {
		return math.NaN()
	}
	return y
}

// expAll returns e^t up to the largest float64, which math.Exp does not do everywhere.
func expAll(t float64) float64 {
	if t > logMost-1 {
		return math.Exp(t-1) * math.E
	}
	return math.Exp(t)
}

// searchReal returns y(t) for the t between least and most where excess is 0, and ∓Inf if
// that is not between them. It begins at start, and stops at an accuracy of floor.
func searchReal(excess func(y float64) float64, below func(y float64) bool, y func(t float64) float64, start, step, least, most, floor float64) float64 {
	start = math.Max(least, math.Min(most, start))
	lo, hi := start, start // the steps from here double, so that they end at least or most
	if below(y(start)) {
		for lo == hi || below(y(hi)) {
			if hi >= most {
				return math.Inf(1)
			}
			lo, hi = hi, math.Min(most, hi+step)
			step *= 2
		}
	} else {
		for lo == hi || !below(y(lo)) {
			if lo <= least {
				return math.Inf(-1)
			}
			lo, hi = math.Max(least, lo-step), lo
			step *= 2
		}
	}
	// About start, so that the accuracy of t is one of y.
	return y(start + accel.Root(func(d float64) float64 { return excess(y(start + d)) }, lo-start, hi-start, floor))
}

const (
	fewCounts  = 16     // counts that are bisected without more ado
	mostExact  = 0x1p53 // counts above which every float64 is an integer
	leastCount = 1e-9   // less than a count, as log(1 + y)
)

// searchCount is predictSearch for the counts up to most.
func searchCount(excess func(y float64) float64, below func(y float64) bool, most float64, smooth bool, m, v float64) float64 {
	if !below(0) {
		return 0
	}
	lo, hi := 0.0, 1.0
	if smooth && most > fewCounts {
		if most < math.MaxFloat64 { // m is the log odds of the most
			m = math.Log1p(most / (1 + math.Exp(-m)))
		}
		y := searchReal(excess, below, math.Expm1, m, math.Sqrt(v)+1, leastCount, math.Min(logMost, math.Log1p(most)), special.Eps)
		switch {
		case y > mostExact: // or infinite
			return y
		case y < 0:
			return 1
		}
		y = math.Ceil(y)
		for width := 1.0; ; width *= fewCounts { // ends at the latest at 0 and most
			if lo, hi = math.Max(0, y-width), math.Min(most, y+width); (lo == 0 || below(lo)) && (hi == most || !below(hi)) {
				break
			}
		}
	} else {
		for hi < most && below(hi) {
			if lo, hi = hi, math.Min(most, 2*hi); hi > mostExact {
				return math.Inf(1)
			}
		}
	}
	for hi-lo > 1 {
		mid := math.Floor(lo + (hi-lo)/2)
		if mid == lo || mid == hi { // no integer between them is a float64
			break
		}
		if below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
