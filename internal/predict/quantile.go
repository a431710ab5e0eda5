package predict

import (
	"cmp"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mathext"
)

// Quantile returns the p-quantile of y for η ~ N(m, v), 0 < p < 1: the smallest y of s with P(Y ≤
// y) ≥ p. It is ±Inf if the quantile exceeds the largest float64, and NaN if r or an integral is
// NaN.
func Quantile(r Response, s Support, p, m, v float64) float64 {
	return CDFQuantile(func(y float64) float64 { return CDF(r, y, m, v) }, s, p, m, v)
}

// CDF returns P(Y ≤ y) for η ~ N(m, v).
func CDF(r Response, y, m, v float64) float64 {
	cdf := func(eta float64) float64 { return r.CDF(y, eta) }
	return passage.PredictiveCDF(cdf, y, m, v, tol(r), passage.LeastTail)
}

// CDFQuantile is Quantile for a function cdf that returns P(Y ≤ y).
func CDFQuantile(cdf func(y float64) float64, s Support, p, m, v float64) float64 {
	return search(func(y float64) float64 { return cdf(y) - p }, s, false, m, v)
}

// TailQuantile is like Quantile for a function tail that returns log P(Y ≤ y), or log P(Y > y) if
// above is true. If s is Counts, it also calls tail between two counts. Both tails keep the
// relative accuracy of tail.
func TailQuantile(tail func(y float64, above bool) float64, s Support, p, m, v float64) float64 {
	above := p > 0.5
	goal := math.Log(p)
	if above {
		goal = math.Log(1 - p) // exact, because p ≥ ½
	}
	return search(func(y float64) float64 {
		t := tail(y, above)
		if above {
			return goal - t
		}
		return t - goal
	}, s, true, m, v)
}

const (
	farU  = 39    // standard deviations beyond which a Gaussian has no mass in float64
	tinyU = 1e-15 // negligible number of standard deviations
)

// Interval returns the quantiles of p(y|η) at tail and 1 − tail for η ~ N(m, s²). For each level,
// p(y|η) must exceed the level exactly between some a and b, in standard deviations from m.
func Interval(l Density, y, tail, m, s float64) (lo, hi float64) {
	g := func(u float64) float64 {
		p := l.LogProb(y, math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m+s*u)))
		if math.IsNaN(p) {
			return math.Inf(-1)
		}
		return p
	}
	z := normalQuantile(tail)
	left, right := g(z), g(-z)
	// level returns g(a) = g(b(a)) for an a up to last. It returns rising if g(a) is always the
	// smaller value, and falling if it is always the larger one.
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
	lo = level(func(a float64) float64 {
		return -normalQuantile(tail - special.NormalTail(-a))
	}, z, left, right)
	// Φ(b) − Φ(a) = tail
	hi = level(func(a float64) float64 {
		if a < 0 {
			return normalQuantile(tail + special.NormalTail(-a))
		}
		return -normalQuantile(special.NormalTail(a) - tail)
	}, -z, right, left)
	return math.Exp(lo), math.Exp(hi)
}

// normalQuantile returns the p-quantile of N(0, 1), limited to ±farU.
func normalQuantile(p float64) float64 {
	switch {
	case p <= 0:
		return -farU
	case p >= 1:
		return farU
	}
	return mathext.NormalQuantile(p)
}

// search returns the smallest response at which the nondecreasing function excess is not
// negative. It is ±Inf if that exceeds the largest float64, and NaN if excess is NaN on the way.
// smooth reports that excess is a function of real numbers, also for Counts.
func search(excess func(y float64) float64, in Support, smooth bool, m, v float64) float64 {
	unknown := false
	below := func(y float64) bool {
		e := excess(y)
		unknown = unknown || math.IsNaN(e)
		return e < 0
	}
	const least, most = passage.LogLeast, passage.LogMost
	step := math.Sqrt(v) + 1
	var y float64
	switch in.Kind {
	case SignLabels:
		if y = -1; below(y) {
			y = 1
		}
	case Counts:
		y = searchCount(excess, below, cmp.Or(in.Most, math.MaxFloat64), smooth, m, step)
	case Positive, NonNegative:
		y = max(0, searchReal(excess, below, line{expAll, m, step, least, most, special.Eps}))
	case UnitInterval:
		l := line{in.Kind.fromLine, 0, step, least, -least, special.Eps}
		y = max(0, searchReal(excess, below, l))
	default:
		floor := special.Eps*math.Abs(m) + tinyU*math.Sqrt(v)
		l := line{in.Kind.fromLine, m, step, -math.MaxFloat64, math.MaxFloat64, floor}
		y = searchReal(excess, below, l)
	}
	if unknown {
		return math.NaN()
	}
	return y
}

// expAll returns e^t up to the largest float64. math.Exp overflows slightly earlier.
func expAll(t float64) float64 {
	if t > passage.LogMost-1 {
		return math.Exp(t-1) * math.E
	}
	return math.Exp(t)
}

// line describes a search over t: the map y(t), the start, the first step, the limits least and
// most, and the accuracy floor.
type line struct {
	y                               func(t float64) float64
	start, step, least, most, floor float64
}

// searchReal returns y(t) for the t between least and most where excess is 0, or ∓Inf if the zero
// is not between them.
func searchReal(excess func(y float64) float64, below func(y float64) bool, l line) float64 {
	y, step, least, most := l.y, l.step, l.least, l.most
	start := math.Max(least, math.Min(most, l.start))
	lo, hi := start, start // steps double, so that they reach least or most
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
	// Search relative to start, so that the accuracy of t becomes an accuracy of y.
	d := accel.Root(func(d float64) float64 { return excess(y(start + d)) }, lo-start, hi-start,
		l.floor)
	return y(start + d)
}

const (
	fewCounts  = 16     // ranges of counts that are bisected at once
	mostExact  = 0x1p53 // counts above which every float64 is an integer
	leastCount = 1e-9   // smaller than any count, as log(1 + y)
)

// searchCount is search for counts up to most.
func searchCount(excess func(y float64) float64, below func(y float64) bool, most float64,
	smooth bool,
	m, step float64) float64 {
	if !below(0) {
		return 0
	}
	lo, hi := 0.0, 1.0
	if smooth && most > fewCounts {
		if most < math.MaxFloat64 { // m is the log odds of the most
			m = math.Log1p(most / (1 + math.Exp(-m)))
		}
		last := math.Min(passage.LogMost, math.Log1p(most))
		y := searchReal(excess, below, line{math.Expm1, m, step, leastCount, last, special.Eps})
		switch {
		case y > mostExact: // or infinite
			return y
		case y < 0:
			return 1
		}
		y = math.Ceil(y)
		for width := 1.0; ; width *= fewCounts { // ends at 0 and most at the latest
			lo, hi = math.Max(0, y-width), math.Min(most, y+width)
			if (lo == 0 || below(lo)) && (hi == most || !below(hi)) {
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
