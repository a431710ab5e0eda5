package learn

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file compares periods by the evidence of a periodic function. The strongest sine of such a
// function is often one of its harmonics, with a half or a third of the period; Period calls
// bestPeriod to tell them apart.
//
// Under a Periodic kernel of length l, f(x) = a₀ + Σ_h (a_h cos hωx + b_h sin hωx), where a_h and b_h
// have the variances v_h of the Fourier series of exp((cos t − 1)/l²). With few harmonics f is linear
// regression in Φ, next to a polynomial trend, and the log evidence is that of
// y ~ N(0, s²(ΦΦᵀ + rI)), with the best s² and the best of some noise ratios r.

const (
	mostMultiple   = 6   // multiples of the period of the sine that are tried
	aroundMultiple = 4   // frequencies to either side of a multiple
	slowPeriods    = 14  // frequencies of fewer than two cycles, which the sine leaves out
	leastCycles    = 1.1 // cycles of the slowest of them
	nearTwoCycles  = 2.05
	multipleCost   = 0.5 // nats of prior cost per multiple
	smallHarmonic  = 1e-3
	mostHarmonics  = 20
	evidenceRows   = 1000 // rows that are enough to compare periods
	trendSD        = 1    // prior sd of the coefficients of the trend
)

var (
	harmonicLengths = [...]float64{0.35, 0.7, 1.4}
	noiseRatios     = [...]float64{1e-4, 1e-3, 1e-2, 1e-1, 1}
)

// harmonicVariances returns the variances v_h of a Periodic kernel with scale 1, from h = 0 until they
// are small.
func harmonicVariances(length float64) (v []float64) {
	const points = 256
	z := 1 / (length * length)
	for h := range mostHarmonics + 1 {
		var c float64
		for i := range points {
			t := 2 * math.Pi * float64(i) / points
			c += math.Exp(z*(math.Cos(t)-1)) * math.Cos(float64(h)*t) / points
		}
		if h > 0 {
			c *= 2
		}
		if h > 0 && c < smallHarmonic {
			break
		}
		v = append(v, c)
	}
	return v
}

// periodEvidence returns the log evidence of y at the points x for a period, up to a constant.
func periodEvidence(x, y []float64, period float64, v []float64) float64 {
	lo, span := floats.Min(x), floats.Max(x)-floats.Min(x)
	orders := len(v) - 1
	d := 2*orders + 1 + periodTrend
	phi := mat.NewDense(len(x), d, nil)
	for i, t := range x {
		row := phi.RawRowView(i)
		row[0] = math.Sqrt(v[0])
		s1, c1 := math.Sincos(2 * math.Pi * (t - lo) / period)
		s, c := s1, c1
		for h := 1; h <= orders; h++ {
			sd := math.Sqrt(v[h])
			row[2*h-1], row[2*h] = sd*c, sd*s
			c, s = c*c1-s*s1, s*c1+c*s1
		}
		u := 2*(t-lo)/span - 1
		for k, p := 0, u; k < periodTrend; k, p = k+1, p*u {
			row[2*orders+1+k] = trendSD * p
		}
	}
	var gram mat.SymDense
	gram.SymOuterK(1, phi.T())
	var eig mat.EigenSym
	if !eig.Factorize(&gram, true) {
		return math.Inf(-1)
	}
	var q mat.Dense
	eig.VectorsTo(&q)
	var b, c mat.VecDense
	b.MulVec(phi.T(), mat.NewVecDense(len(y), y))
	c.MulVec(q.T(), &b)
	// yᵀ(ΦΦᵀ + rI)⁻¹y = (yᵀy − Σ c²/(λ + r))/r, and s² is that over n.
	square, n, best := floats.Dot(y, y), float64(len(y)), math.Inf(-1)
	for _, r := range noiseRatios {
		rest, det := square, (n-float64(d))*math.Log(r)
		for i, l := range eig.Values(nil) {
			l = max(l, 0)
			rest -= c.AtVec(i) * c.AtVec(i) / (l + r)
			det += math.Log(l + r)
		}
		if e := -0.5*n*math.Log(max(rest/r, math.SmallestNonzeroFloat64)) - 0.5*det; e > best {
			best = e
		}
	}
	return best
}

// bestPeriod returns the period with the most evidence: a multiple of the period of a sine, or one
// with fewer than two cycles. y has no trend. A multiple m costs m/2 nats, so that a pure sine keeps
// its period.
func bestPeriod(x, y []float64, sine float64) float64 {
	x, y = evidenceSample(x, y, sine)
	span := floats.Max(x) - floats.Min(x)
	variances := make([][]float64, len(harmonicLengths))
	for i, l := range harmonicLengths {
		variances[i] = harmonicVariances(l)
	}
	best, most := sine, math.Inf(-1)
	try := func(period, cost float64) {
		for _, v := range variances {
			if e := periodEvidence(x, y, period, v) - cost; e > most {
				best, most = period, e
			}
		}
	}
	for m := 1.0; m <= mostMultiple && (m == 1 || span >= m*sine); m++ {
		for k := -aroundMultiple; k <= aroundMultiple; k++ {
			if f := 1/(sine*m) + float64(k)/(16*span*m); f > 0 {
				try(1/f, multipleCost*m)
			}
		}
	}
	for k := range slowPeriods {
		part := float64(k) / slowPeriods
		try(span/(leastCycles+part*(nearTwoCycles-leastCycles)), 2*multipleCost)
	}
	return best
}

// evidenceSample returns the rows that periods are compared on: all of them, or a thousand. They are
// neighbors if they cover each multiple of the sine at least twice, and spread out otherwise.
func evidenceSample(x, y []float64, sine float64) (xs, ys []float64) {
	n := len(x)
	if n <= evidenceRows {
		return x, y
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	index := order[n-evidenceRows:]
	if x[index[len(index)-1]]-x[index[0]] < 2*mostMultiple*sine {
		for i := range index {
			index[i] = order[i*(n-1)/(evidenceRows-1)]
		}
	}
	for _, i := range index {
		xs, ys = append(xs, x[i]), append(ys, y[i])
	}
	return xs, ys
}
