package expect

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
)

// NarrowMost is the largest standard deviation for which LogMean is worth trying.
const NarrowMost = narrow

// logMeanTol is the largest allowed difference of the two rules of LogMean.
const logMeanTol = 1e-12

// LogMean returns log E[exp f(η)] under N(m, s²) for a smooth f. It uses the Gauss-Hermite rules
// with 10 and with 16 nodes. Their errors fall geometrically with the number of nodes, so if they
// agree, the second is far more accurate than the difference. LogMean reports false if they do
// not agree to 1e−12.
func LogMean(f func(eta float64) float64, m, s float64) (value float64, ok bool) {
	few, many := logMean(f, hermite10[:], m, s), logMean(f, hermite16[:], m, s)
	return many, math.Abs(few-many) <= logMeanTol*(1+math.Abs(many))
}

// Constants of LogMeanWide.
const (
	wideReach  = 9  // standard deviations on either side, at least
	wideMost   = 30 // standard deviations on either side, at most
	wideDeep   = 40 // e^−40 is negligible
	wideHalves = 4  // the smallest step is 1/16
)

// LogMeanWide is LogMean for any s. It uses the trapezoidal rule with the steps s, s/2, s/4, … until
// two rules agree to 1e−12. The error for an analytic integrand falls like exp(−2πa/h) with the step
// h, so the second rule is far more accurate than the difference (Trefethen and Weideman 2014). If the
// peak is too narrow for both rules, few nodes have most of the sum, and the rules differ by a factor
// of up to 2. LogMeanWide reports false if no two rules agree, or if the integrand is not negligible
// at a distance of 30s.
func LogMeanWide(f func(eta float64) float64, m, s float64) (value float64, ok bool) {
	const most = 2*wideMost<<wideHalves + 1
	var buf [most]float64
	g, top := buf[:0], math.Inf(-1) // the values of log integrand so far, and the largest of them
	at := func(u float64) float64 {
		x := f(m+s*u) - u*u/2
		g = append(g, x)
		top = math.Max(top, x)
		return x
	}
	at(0)
	lo, hi := 0, 0
	for side := -1; side <= 1; side += 2 {
		n := 1
		for x := at(float64(side)); n < wideReach || !(x < top-wideDeep); x = at(float64(side * n)) {
			if n++; n > wideMost {
				return 0, false
			}
		}
		if side < 0 {
			lo = -n
		} else {
			hi = n
		}
	}
	if math.IsNaN(top) || math.IsInf(top, 0) {
		return 0, false
	}
	sum, done, from := 0.0, 0, top
	before := math.Inf(-1)
	for h := 1.0; ; h /= 2 {
		if top > from { // the sum was relative to a smaller maximum
			sum *= math.Exp(from - top)
			from = top
		}
		for _, x := range g[done:] {
			sum += math.Exp(x - top)
		}
		done = len(g)
		if value = top + math.Log(h*sum) - special.LogSqrt2Pi; math.Abs(value-before) <= logMeanTol*(1+math.Abs(value)) {
			return value, true
		}
		if h <= 1.0/(1<<wideHalves) || math.IsNaN(value) {
			return 0, false
		}
		before = value
		for u := float64(lo) + h/2; u < float64(hi); u += h {
			at(u)
		}
	}
}

// logMean returns log E[exp f(η)] by one rule.
func logMean(f func(eta float64) float64, rule []fma.Node, m, s float64) float64 {
	var x [2 * len(hermite16)]float64
	top := math.Inf(-1)
	for i, n := range rule {
		a, b := f(m-float64(s*n[0])), f(m+float64(s*n[0]))
		x[2*i], x[2*i+1] = a, b
		top = math.Max(top, math.Max(a, b))
	}
	sum := 0.0
	for i, n := range rule {
		sum += float64(n[1] * (math.Exp(x[2*i]-top) + math.Exp(x[2*i+1]-top)))
	}
	return top + math.Log(sum)
}
