// Package loo computes leave-one-out predictions from a Gaussian approximation of a posterior, by
// removing the site of a datum, or from draws.
package loo

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Result is what is known of each datum from all others, in nats. See LOO of the root package.
type Result struct {
	ELPD, SE, Err       float64
	Pointwise, PointErr []float64
	KHat                []float64
	Limit               float64
	Leverage            []float64
	Parameters          float64
	Influence           []float64
	Unresolved          []int
	M, V                []float64 // of the latent values of cavities; nil where there were draws
}

// Likelihood is what cavities ask of a likelihood besides the terms.
type Likelihood struct {
	// LogProb returns log ∫ p(y|η) N(η|m, v) dη in nats.
	LogProb func(y, m, v float64) float64
	// Quadratic says that ∂² log p(y|η)/∂η² is the same for any y and η.
	Quadratic bool
}

// add makes the sums over the data.
func (l *Result) add(weight []float64) {
	var n, mean, squares float64
	for i, x := range l.Pointwise {
		if l.unresolved(i) {
			continue
		}
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		n += w
		l.ELPD += w * x
		d := x - mean // West (1979)
		mean += d * w / n
		squares += w * d * (x - mean)
	}
	if l.SE = math.Inf(1); n > 1 {
		l.SE = math.Sqrt(math.Max(0, n*squares/(n-1)))
	}
	l.Parameters = floats.Sum(l.Leverage)
}

// unresolved reports whether datum i is one of those.
func (l *Result) unresolved(i int) bool {
	_, found := slices.BinarySearch(l.Unresolved, i)
	return found
}
