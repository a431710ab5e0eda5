// Package passage computes probabilities of responses whose scale is random: Gaussian
// expectations of distribution functions that rise or fall steeply.
package passage

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

// PredictiveCDF returns E[cdf(η)] for η ~ N(m, v), with the relative error tol or the absolute
// error least. The cdf rises or falls near η = y.
func PredictiveCDF(cdf func(eta float64) float64, y, m, v, tol, least float64) float64 {
	if v == 0 {
		return cdf(m)
	}
	s := math.Sqrt(v)
	f := func(u float64) [3]float64 { return [3]float64{special.NormalPDF(u) * cdf(m+s*u)} }
	flat := func(float64) float64 { return 1 }
	var buf [64]float64
	return expect.Adaptive(f, expect.Reach(buf[:0], flat, least*1e18, y, m, s), tol).Sum[0]
}

// Passage is the distribution of the latent value at which P(Y ≤ y|η) passes a uniform random
// number. P(Y ≤ y|η) falls from 1 to 0 as η grows, and the density is −∂P(Y ≤ y|η)/∂η. With it
//
//	P(Y ≤ y) = ∫ P(Y ≤ y|η) N(η|m, v) dη = ∫ −∂P(Y ≤ y|η)/∂η Φ((η−m)/√v) dη,
//
// by parts, and P(Y > y) with Φ((m−η)/√v): integrals of positive numbers, without the
// cumulative distribution of y and accurate in either tail.
type Passage struct {
	Centre float64                 // near the mode
	Width  float64                 // near the standard deviation
	Log    func(d float64) float64 // log density at centre + d
}

const (
	// negligible probability if P(Y ≤ y) is not known by its logarithm
	LeastTail = 1e-18
	// ratio of widths at which the narrower of two smooth distributions acts as a point
	widthRatio  = 1e-8
	passageDeep = 45    // e^−45 of the largest value is negligible
	Tol         = 1e-12 // relative error of a tail
	// Limits the panels on a side. More are needed only if rounding of f hides that it falls, and
	// then nothing is left to integrate.
	passageCuts = 50
)

const (
	LogLeast = -744.44 // log of the smallest float64, 4.9e−324
	LogMost  = 709.78  // log of the largest float64, rounded down
)

// Tail returns log P(Y ≤ y), or log P(Y > y) if above.
func (p Passage) Tail(m, v float64, above bool) float64 {
	s, c, sign := math.Sqrt(v), p.Centre-m, 1.0
	if above {
		sign = -1
	}
	if p.Width <= widthRatio*s {
		return special.NormalLogTail(-sign * c / s)
	}
	// Work in units of the narrower distribution, mirrored so that Φ rises at step.
	unit := math.Min(s, p.Width)
	narrow := s <= widthRatio*p.Width // Φ acts as a step
	if narrow {
		unit = p.Width
	}
	step, least := -sign*c/unit, math.Inf(-1)
	f := func(x float64) float64 {
		return p.Log(sign*unit*x) +
			special.NormalLogTail((step-x)*unit/s)
	}
	var mode float64
	if narrow {
		least, mode = step, math.Max(0, step)
		f = func(x float64) float64 { return p.Log(sign * unit * x) }
	} else {
		mode = riseTo(f)
	}
	top := f(mode)
	if math.IsInf(top, 0) || math.IsNaN(top) {
		return top
	}
	// Panels grow with the distance from the mode and are cut where f is not smooth.
	var buf [64]float64
	cuts := append(buf[:0], mode)
	for _, side := range [2]float64{-1, 1} {
		d := 1.0
		for range passageCuts {
			if !(f(mode+side*d) > top-passageDeep && mode+side*d > least) {
				break
			}
			cuts = append(cuts, mode+side*d)
			d *= 4
		}
		cuts = append(cuts, math.Max(least, mode+side*d))
	}
	lo, hi := slices.Min(cuts), slices.Max(cuts)
	// Beyond 9 standard deviations Φ is flat. A wide panel from 3 on could miss the rest.
	for _, x := range [...]float64{0, step, step - 3*s/unit, step + 3*s/unit, step - 9*s/unit,
		step + 9*s/unit} {
		if lo < x && x < hi {
			cuts = append(cuts, x)
		}
	}
	slices.Sort(cuts)
	sum := expect.Adaptive(func(x float64) [3]float64 { return [3]float64{math.Exp(f(x) - top)} },
		cuts, Tol).Sum[0]
	return math.Min(0, top+math.Log(sum*unit))
}

// riseTol is the relative width of a bracket at which golden sections stop.
const riseTol = 1e-12

// riseTo returns the maximum of a concave f at or right of 0, to about a quarter of its size.
func riseTo(f func(x float64) float64) float64 {
	lo, mid, hi := 0.0, 0.0, 0.5
	best := f(mid)
	for y := f(hi); y > best; y = f(hi) { // ends, because f no longer rises at +Inf
		lo, mid, hi, best = mid, hi, 2*hi, y
	}
	const phi = 0.61803398874989484820
	for hi-lo > max(0.5, riseTol*hi) {
		x := hi - phi*(hi-mid)
		if mid-lo > hi-mid {
			x = lo + phi*(mid-lo)
		}
		y := f(x)
		if y > best {
			mid, x, best = x, mid, y
		}
		if x < mid {
			lo = x
		} else {
			hi = x
		}
	}
	return mid
}

// GammaPassage is the passage of a gamma variable of shape k or, if sign is −1, of its inverse. Its
// logarithm has the mode centre, where η is:
//
//	log density = k log k − k − log Γ(k) − k(e^z − 1 − z),   z = sign·d.
func GammaPassage(centre, k, sign float64) Passage {
	norm := GammaLogNorm(k)
	return Passage{centre, 1 / math.Sqrt(k), func(d float64) float64 {
		d *= sign
		return norm - k*(math.Expm1(d)-d)
	}}
}

// BetaPassage is the passage of the log odds of a beta variable with parameters a and b,
// moved to have the given mode; with p = a/(a+b)
//
//	log density = log p^a (1−p)^b/B(a, b) + ad − (a+b) log(1 + p(e^d − 1)).
func BetaPassage(centre, a, b float64) Passage {
	if a > b { // avoids cancellation in 1 + p(e^d − 1)
		mirror := BetaPassage(0, b, a)
		return Passage{centre, mirror.Width, func(d float64) float64 { return mirror.Log(-d) }}
	}
	if b > math.Max(a, 1)/special.Eps { // it equals a gamma variable to all digits, and p may underflow
		return GammaPassage(centre, a, 1)
	}
	p := 1 / (1 + b/a)
	var norm float64
	if a >= GammaStirling { // the entropies of a and b would cancel
		norm = (math.Log(a)+math.Log1p(-p))/2 - special.LogSqrt2Pi +
			special.Stirling(a+b) - special.Stirling(a) - special.Stirling(b)
	} else {
		norm = special.LogChoose(a, b) + math.Log(a) + math.Log1p(-p) + a*math.Log(p) +
			b*math.Log1p(-p)
	}
	return Passage{centre, math.Sqrt(1/a + 1/b), func(d float64) float64 {
		if d > LogMost/2 {
			return norm - b*d - (a+b)*math.Log(p)
		}
		return norm + a*d - (a+b)*math.Log1p(p*math.Expm1(d))
	}}
}

// GammaStirling is the shape above which Stirling's series is accurate to rounding. The series
// does not cancel.
const GammaStirling = 16

// GammaLogNorm returns k log k − k − log Γ(k), of which, with z = η − log y,
//
//	log p(y|η) = GammaLogNorm − log y − k(z + e^{−z} − 1).
//
// The last term is not negative.
func GammaLogNorm(k float64) float64 {
	if k >= GammaStirling {
		return math.Log(k)/2 - special.LogSqrt2Pi - special.Stirling(k)
	}
	g, _ := math.Lgamma(k)
	return k*math.Log(k) - k - g
}
