package predict

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

const (
	latticePoints = 1021
	latticeStep   = 76
	latticePart   = 8 // number of neighboring points that are merged
)

// latticeQuantiles returns the quantiles of N(0, 1) in the middle of latticePoints equal parts.
var latticeQuantiles = sync.OnceValue(func() []float64 {
	z := make([]float64, latticePoints)
	for i := range z {
		z[i] = mathext.NormalQuantile((float64(i) + 0.5) / latticePoints)
	}
	return z
})

// LatticeNormals returns the points of the lattice of ClassInterval, as quantiles of N(0, I) in
// dims dimensions.
func LatticeNormals(dims int) [][]float64 {
	z := latticeQuantiles()
	points := make([][]float64, latticePoints)
	for i := range points {
		at := i
		points[i] = make([]float64, dims)
		for k := range points[i] {
			points[i][k] = z[at]
			at = at * latticeStep % latticePoints
		}
	}
	return points
}

// LatticeQuantile returns the quantile at level p of values at the points of a lattice, in
// increasing order.
func LatticeQuantile(values []float64, p float64) float64 {
	at := min(max(p*float64(len(values))-0.5, 0), float64(len(values)-1))
	below := min(int(at), len(values)-2)
	return values[below] + (at-float64(below))*(values[below+1]-values[below])
}

// LatticeLevel returns the level at which x is the quantile of values, as LatticeQuantile defines
// it: 0 below all values, and 1 above.
func LatticeLevel(values []float64, x float64) float64 {
	n := len(values)
	at, _ := slices.BinarySearch(values, x)
	switch {
	case at == 0:
		return 0
	case at == n:
		return 1
	}
	part := (x - values[at-1]) / (values[at] - values[at-1])
	return (float64(at-1) + part + 0.5) / float64(n)
}

// ClassInterval returns the quantiles at tail and 1 − tail of π_c = e^{s_c}/Σ_j e^{s_j}, the
// probability of class c, for independent scores s_j ~ N(m_j, v_j), which must be Valid. π_c is
// below p if s_c < logit p + L, where L is the logarithm of the sum of e^{s_j} over the other
// classes:
//
//	P(π_c < p) = E Φ((logit p + L − m_c)/√v_c).
//
// Φ is exact in s_c. The expectation over L is a mean over the points of a lattice (Korobov,
// 1959, with the number and generator of L'Ecuyer and Lemieux, 2000), which makes P wrong by
// about 0.005. Two classes need no lattice. The order of the other classes does not matter.
func ClassInterval(m, v []float64, c int, tail float64) (lo, hi float64) {
	others := make([]int, 0, len(m))
	for j := range m {
		if j != c {
			others = append(others, j)
		}
	}
	sd := math.Sqrt(v[c])
	if len(others) == 1 { // the difference of two Gaussians is Gaussian
		j := others[0]
		d, s := m[c]-m[j], math.Hypot(sd, math.Sqrt(v[j]))
		return sigmoid(d + s*normalQuantile(tail)), sigmoid(d - s*normalQuantile(tail))
	}
	// The first coordinates of a lattice are the best. They go to the largest E e^{s_j}.
	slices.SortFunc(others, func(a, b int) int {
		return cmp.Or(cmp.Compare(m[b]+v[b]/2, m[a]+v[a]/2), cmp.Compare(v[b], v[a]))
	})
	odds := make([]float64, latticePoints) // m_c − L
	terms, z := make([]float64, len(others)), latticeQuantiles()
	for i := range odds {
		at := i
		for k, j := range others {
			terms[k] = m[j] + math.Sqrt(v[j])*z[at]
			at = at * latticeStep % latticePoints
		}
		odds[i] = m[c] - floats.LogSumExp(terms)
	}
	slices.Sort(odds)
	near := odds[:0] // merge neighbors at their mean
	var share []float64
	for part := range slices.Chunk(odds, latticePart) {
		near = append(near, floats.Sum(part)/float64(len(part)))
		share = append(share, float64(len(part))/latticePoints)
	}
	return sigmoid(oddsQuantile(near, share, sd, tail)),
		sigmoid(oddsQuantile(near, share, sd, 1-tail))
}

// oddsQuantile returns the x at which the sum of share·Φ((x − odds)/sd) is p, for increasing odds
// and shares that add up to 1.
func oddsQuantile(odds, share []float64, sd, p float64) float64 {
	n := len(odds)
	if sd == 0 {
		return odds[min(n-1, int(p*float64(n)))]
	}
	below := func(x float64) float64 {
		sum := -p
		for i, o := range odds {
			sum += share[i] * special.NormalTail((o-x)/sd)
		}
		return sum
	}
	// If all odds were equal to the least or the greatest of them, x would be z away.
	z, slack := normalQuantile(p)*sd, sd/16
	return accel.Root(below, odds[0]+z-slack, odds[n-1]+z+slack, sd*1e-5)
}

// sigmoid returns 1/(1 + e^{−x}).
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
