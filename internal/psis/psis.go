// Package psis implements Pareto-smoothed importance sampling. It weights draws of an
// approximation q of p by p/q, and replaces the largest weights by the quantiles of a generalized
// Pareto distribution fitted to them (Vehtari et al. 2024). The shape k̂ of that distribution
// measures how reliable the weights are. PSIS and LOO of the root package call Run and Smooth;
// sample.go draws and weights, and this file smooths.
package psis

import (
	"cmp"
	"math"
	"slices"
)

const (
	leastTail = 5    // least number of weights for a fit of two parameters
	flat      = 1e-9 // weights whose logarithms have a smaller range differ only by rounding
	// largest range of logarithms for which float64 can store the weights themselves
	widest = 600

	// A tail matters if the weights above its cut exceed it by more than 0.1/√n of all weights in
	// sum, a tenth of the standard error of a mean. The sum includes expected draws up to the
	// largest of 10,000 n.
	matters = 0.1
	unseen  = 1e4

	// Constants of Zhang and Stephens (2009): the width of their prior, and the number of grid
	// points in addition to the square root of the number of data.
	priorWidth = 3
	gridPoints = 30

	// The weak prior of k of Vehtari et al. (2024) counts as ten observations of k = ½.
	priorK     = 0.5
	priorCount = 10

	// A tail that no generalized Pareto distribution fits is halved, because some of its weights
	// do not belong to the tail. If q is near p, the largest weights may come from a local
	// maximum of p/q, and k̂ would be 5 when the tail beyond has 0.3. The fit is rejected if the
	// Kolmogorov distance times the square root of the number of weights exceeds misfit. At most
	// one in a hundred samples of a generalized Pareto distribution exceeds it, measured for k
	// from 0.2 to 1.2 and 20 to 1000 weights. Halves have at least 20 weights.
	misfit      = 1.1
	leastHalved = 20
)

// tailLen returns how many of n weights are smoothed: min(n/5, 3√n) (Vehtari et al. 2024,
// appendix H), or 0 if that is less than 5.
func tailLen(n int) int {
	m := int(math.Ceil(math.Min(0.2*float64(n), 3*math.Sqrt(float64(n)))))
	if m < leastTail {
		return 0
	}
	return m
}

// Limit returns the largest k̂ for which n weights suffice: min(1 − 1/log₁₀ n, 0.7) (Vehtari et
// al. 2024, section 3.2.4, equation 13).
func Limit(n int) float64 {
	if n <= 1 {
		return math.Inf(-1)
	}
	return math.Min(1-1/math.Log10(float64(n)), 0.7)
}

// Smooth replaces the largest of the weights exp(w_s) by the expected order statistics of a
// generalized Pareto distribution fitted to them. No weight becomes larger than the largest
// weight. It returns the shape k̂: weights have fewer than 1/k̂ finite moments (Vehtari et al.
// 2024). The elements of w must not be NaN or +Inf. An element −Inf is a weight of 0, and does
// not change.
//
// Fewer weights are smoothed if no distribution fits. The shape does not depend on the scale of
// the tail, so weights that differ in the fourth digit can have any k̂. If the fitted tail is too
// small a part of all weights to matter, the weights do not change and k̂ is at most 0. If fewer
// than 25 weights are positive, k̂ is +Inf because the tail is unknown. Order is scratch and as
// long as w.
func Smooth(w []float64, order []int) (k float64) {
	k, _ = smooth(w, order, len(w))
	return k
}

// smooth is Smooth. It also reports whether k̂ is settled. It is settled if the tail would not
// matter among the given number of weights either, at least len(w), even if its shape were two
// standard errors larger. More weights then leave k̂ at most 0.
func smooth(w []float64, order []int, of int) (k float64, settled bool) {
	for s := range order {
		order[s] = s
	}
	slices.SortFunc(order,
		func(a, b int) int { return cmp.Or(cmp.Compare(w[a], w[b]), cmp.Compare(a, b)) })
	zero := 0
	for zero < len(w) && math.IsInf(w[order[zero]], -1) {
		zero++
	}
	m := tailLen(len(w) - zero)
	if m == 0 {
		return math.Inf(1), false
	}
	top := w[order[len(w)-1]]
	if top-w[order[len(w)-m]] < flat {
		return 0, true
	}
	// the logarithms of the excess of the weights over the cut, in units of the largest weight
	x := make([]float64, m)
	for { // m halves when no distribution fits
		tail, cut := order[len(w)-m:], w[order[len(w)-m-1]]
		for i, s := range tail {
			x[i] = w[s] - top + math.Log(-math.Expm1(cut-w[s]))
		}
		if quartile(x) < -widest { // Hill (1975): the limit of large k
			for _, s := range tail {
				k += (w[s] - cut) / float64(m)
			}
			for i, s := range tail {
				w[s] = math.Min(top, cut-k*math.Log1p(-(float64(i)+0.5)/float64(m)))
			}
			return k, false
		}
		k, scale := fit(x)
		if m/2 >= leastHalved && distance(x, k, scale)*math.Sqrt(float64(m)) > misfit {
			m /= 2
			x = x[:m]
			continue
		}
		n := float64(m)
		k = (k*n + priorK*priorCount) / (n + priorCount)
		if sum := matters * sumOf(w, top); n*excess(k, scale, n) < sum/math.Sqrt(float64(len(w))) {
			largest := k + 2*(1+math.Max(0, k))/math.Sqrt(n) // Smith (1987)
			return math.Min(0, k), n*excess(largest, scale, n) < sum/math.Sqrt(float64(of))
		}
		shift := math.Exp(cut - top)
		for i, s := range tail {
			w[s] = top + math.Min(0, math.Log(shift+quantile((float64(i)+0.5)/n, k, scale)))
		}
		return k, false
	}
}

// sumOf returns the sum of the weights exp(w_s) in units of exp(top).
func sumOf(w []float64, top float64) (sum float64) {
	for _, x := range w {
		sum += math.Exp(x - top)
	}
	return sum
}

// excess returns the part of the mean of a generalized Pareto distribution that lies below its
// quantile at 1 − δ, where δ = 1/(unseen·n):
//
//	∫_δ^1 (scale/k)(u^{−k} − 1) du = (scale/k)((1 − δ^{1−k})/(1 − k) − 1 + δ).
//
// It is also finite for k ≥ 1.
func excess(k, scale, n float64) float64 {
	const near = 1e-6 // distance from 0 and 1 below which the formula uses its limits
	if math.Abs(k) < near {
		k = near
	}
	if math.Abs(1-k) < near {
		k = 1 - near
	}
	log := -math.Log(unseen * n)
	return scale / k * (-math.Expm1((1-k)*log)/(1-k) - 1 + math.Exp(log))
}

// quartile returns the first quartile of increasing data.
func quartile(x []float64) float64 { return x[max(1, int(float64(len(x))/4+0.5))-1] }

// distance returns the Kolmogorov distance between the generalized Pareto distribution and
// increasing data exp(x_i): the largest difference of their distribution functions.
func distance(x []float64, k, scale float64) (d float64) {
	n := float64(len(x))
	for i, xi := range x {
		z := math.Exp(xi) / scale
		q := math.Exp(-z) // probability beyond x
		if math.Abs(k) > 1e-12 {
			q = math.Exp(-math.Log1p(math.Max(-1, k*z)) / k)
		}
		d = math.Max(d, math.Max(float64(i+1)/n-(1-q), 1-q-float64(i)/n))
	}
	return d
}

// quantile returns the quantile at p of the generalized Pareto distribution, (scale/k)((1−p)^{−k}
// − 1).
func quantile(p, k, scale float64) float64 {
	if math.Abs(k) < 1e-12 {
		return -scale * math.Log1p(-p)
	}
	return scale / k * math.Expm1(-k*math.Log1p(-p))
}

// fit returns the shape k and the scale of the generalized Pareto distribution of increasing data
// exp(x_i), whose largest value is about 1. First it computes the posterior mean of θ = −k/scale
// by a sum over a grid, with the data-dependent prior of Zhang and Stephens (2009). Then it
// computes the maximum-likelihood k given θ.
func fit(x []float64) (k, scale float64) {
	n := len(x)
	points := gridPoints + int(math.Sqrt(float64(n)))
	largest, first := math.Exp(x[n-1]), math.Exp(quartile(x))
	theta, l := make([]float64, points), make([]float64, points)
	for j := range theta {
		theta[j] = 1/largest + (1-math.Sqrt(float64(points)/(float64(j)+0.5)))/(priorWidth*first)
		kj := shape(theta[j], x)
		l[j] = float64(n) * (math.Log(-theta[j]/kj) - kj - 1) // profile log-likelihood
	}
	best := slices.Max(l)
	var sum, mean float64
	for j, t := range theta {
		p := math.Exp(l[j] - best)
		sum += p
		mean += p * t
	}
	mean /= sum
	k = shape(mean, x)
	return k, -k / mean
}

// shape returns the maximum-likelihood k given θ, the mean of log(1 − θ exp(x_i)).
func shape(theta float64, x []float64) (k float64) {
	for _, xi := range x {
		k += math.Log1p(-theta * math.Exp(xi))
	}
	return k / float64(len(x))
}
