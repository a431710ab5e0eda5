package learn

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file compares periods by the evidence of a periodic function. The strongest sine of such a
// function is often a harmonic, with a half or a third of the period. Period calls series.best to
// tell them apart.
//
// Under a Periodic kernel of length scale l, f(x) = a₀ + Σ_h (a_h cos hωx + b_h sin hωx), where
// a_h and b_h have the variances v_h of the Fourier series of exp((cos t − 1)/l²). With few
// harmonics, f is a linear regression in Φ with a polynomial trend. The log evidence is that of y
// ~ N(0, s²(ΦΦᵀ + rI)), with the best s² and the best of a few noise ratios r.

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
	// length scales of the smooth functions next to a periodic function and times it, in parts of
	// the span of the rows, and the number of their cosines
	besideLength   = 0.25
	besideCosines  = 10
	timesLength    = 0.35
	timesCosines   = 5
	timesHarmonics = 4
	otherHarmonics = 6    // features of another season, halved
	trendSD        = 1    // prior sd of the coefficients of the trend
	samePeriod     = 0.05 // log of the ratio of two periods that count as one,
	sameCycles     = 0.25 // or by how many cycles they differ over the rows
)

var (
	harmonicLengths = [...]float64{0.35, 0.7, 1.4}
	noiseRatios     = [...]float64{1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 0.3, 1}
)

// harmonics returns harmonicVariances of each of harmonicLengths.
var harmonics = sync.OnceValue(func() (all [][]float64) {
	for _, l := range harmonicLengths {
		all = append(all, harmonicVariances(l))
	}
	return all
})

// harmonicVariances returns the variances v_h of a Periodic kernel with scale 1, from h = 0 until
// they are small.
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

// A shape is a class of functions in which periods are compared: a periodic function next to a
// cubic trend, also next to a smooth function, or times a smooth function.
type shape int

const (
	plainShape shape = iota
	besideSmooth
	timesSmooth
	shapes
)

// smoothSDs returns the prior standard deviations of the cosines cos πju, j = 0, 1, …, of a smooth
// function of u from 0 to 1 with the given length scale and variance 1, by the spectral density of
// a SquaredExp (Solin and Särkkä 2020).
func smoothSDs(length float64, orders int) (sd []float64) {
	var total float64
	for j := range orders + 1 {
		w := math.Pi * float64(j) * length
		v := math.Exp(-0.5 * w * w)
		if j == 0 {
			v /= 2
		}
		sd, total = append(sd, v), total+v
	}
	for j, v := range sd {
		sd[j] = math.Sqrt(v / total)
	}
	return sd
}

// smooth returns the smooth functions of a shape, and the number of harmonics that still pay.
func (f shape) smooth() (sd []float64, orders int) {
	switch f {
	case besideSmooth:
		return smoothSDs(besideLength, besideCosines), mostHarmonics
	case timesSmooth:
		return smoothSDs(timesLength, timesCosines), timesHarmonics
	}
	return nil, mostHarmonics
}

// appendFeatures appends the features of the point t to row. u is its place among the rows, 0 to 1.
func (f shape) appendFeatures(row []float64, t, u float64, period float64, v []float64) []float64 {
	smooth, orders := f.smooth()
	from := len(row)
	row = append(row, math.Sqrt(v[0]))
	s1, c1 := math.Sincos(2 * math.Pi * t / period)
	s, c := s1, c1
	for h := 1; h < len(v) && h <= orders; h++ {
		sd := math.Sqrt(v[h])
		row = append(row, sd*c, sd*s)
		c, s = c*c1-s*s1, s*c1+c*s1
	}
	harmonics := row[from:]
	for j := 1; j < len(smooth); j++ {
		cosine := smooth[j] * math.Cos(math.Pi*float64(j)*u)
		if f == besideSmooth {
			row = append(row, cosine)
			continue
		}
		for _, h := range harmonics {
			row = append(row, cosine/smooth[0]*h)
		}
	}
	for k, p := 0, 2*u-1; k < periodTrend; k, p = k+1, p*(2*u-1) {
		row = append(row, trendSD*p)
	}
	return row
}

// likely returns the log evidence of a period, up to a constant, under harmonics of the variances
// v.
func (s *series) likely(period float64, v []float64, f shape) float64 {
	x, y, lo := s.x, s.y, floats.Min(s.x)
	var features []float64
	for i, t := range x {
		if i == 1 {
			features = slices.Grow(features, (len(x)-1)*len(features))
		}
		features = f.appendFeatures(features, t-lo, (t-lo)/s.span, period, v)
		for _, p := range s.others {
			for h := 1.0; h <= otherHarmonics; h++ {
				sin, cos := math.Sincos(2 * math.Pi * h * (t - lo) / p)
				features = append(features, sin/h, cos/h)
			}
		}
	}
	n, d := len(y), len(features)/len(x)
	phi := dense.General(features, n, d)
	gram, with := make([]float64, d*d), make([]float64, d*d)
	dense.Syrk(blas.Trans, 1, phi, 0, dense.Symmetric(gram, d))
	b, u := make([]float64, d), make([]float64, d)
	dense.Gemv(blas.Trans, 1, phi, dense.Vector(y), 0, dense.Vector(b))
	// With C = ΦᵀΦ + rI = LLᵀ, b = Φᵀy and u = L⁻¹b, yᵀ(ΦΦᵀ + rI)⁻¹y = (yᵀy − uᵀu)/r, and s² is
	// that over n.
	square, best := floats.Dot(y, y), math.Inf(-1)
	for _, r := range noiseRatios {
		copy(with, gram)
		for i := range d {
			with[i*d+i] += r
		}
		if !dense.Cholesky(with, d) {
			continue
		}
		copy(u, b)
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(with, d), dense.Vector(u))
		rest := (square - floats.Dot(u, u)) / r
		det := float64(n-d)*math.Log(r) + dense.LogDet(with, d)
		e := -0.5*float64(n)*math.Log(max(rest, math.SmallestNonzeroFloat64)) - 0.5*det
		best = max(best, e)
	}
	return best
}

// evidence returns the log evidence of a period against a trend alone, in nats, less the cost of a
// multiple: m times the period of the sine cost m/2 nats, so that a pure sine keeps its period.
func (s *series) evidence(period float64) float64 {
	most := math.Inf(-1)
	for f := plainShape; f == plainShape || s.mixed && f < shapes; f++ {
		for _, v := range harmonics() {
			most = max(most, s.likely(period, v, f))
		}
	}
	return most - s.null - multipleCost*min(max(1, math.Round(period/s.sine)), mostMultiple)
}

// around calls f with the frequencies of the periods close to a multiple m of a period.
func (s *series) around(period, m float64, f func(period float64)) {
	for k := -aroundMultiple; k <= aroundMultiple; k++ {
		if frequency := 1/(period*m) + float64(k)/(16*s.span*m); frequency > 0 {
			f(1 / frequency)
		}
	}
}

// near returns the largest evidence of the given period and the periods close to it.
func (s *series) near(period float64) float64 {
	most := s.evidence(period)
	s.around(period, 4, func(p float64) { most = max(most, s.evidence(p)) })
	return most
}

// same reports whether two periods are too close to be told apart.
func (s *series) same(a, b float64) bool {
	return math.Abs(math.Log(a/b)) < samePeriod || math.Abs(1/a-1/b)*s.span < sameCycles
}

// best returns the period with the most evidence and its evidence. Candidates are the multiples of
// the period of the sine, and periods with fewer than two cycles, without the period not (unless it
// is 0) and the periods in others.
func (s *series) best(not float64) (best, most float64) {
	most = math.Inf(-1)
	try := func(period float64) {
		known := func(p float64) bool { return s.same(period, p) }
		if not > 0 && known(not) || slices.ContainsFunc(s.others, known) {
			return
		}
		if e := s.evidence(period); e > most {
			best, most = period, e
		}
	}
	for m := 1.0; m <= mostMultiple && (m == 1 || s.span >= m*s.sine); m++ {
		s.around(s.sine, m, try)
	}
	for k := range slowPeriods {
		part := float64(k) / slowPeriods
		try(s.span / (leastCycles + part*(nearTwoCycles-leastCycles)))
	}
	return best, most
}

// evidenceSample returns the rows on which periods are compared: all of them, or a thousand. They
// are neighbors if they cover each multiple of the sine at least twice, and spread out otherwise.
func evidenceSample(x, y []float64, sine float64) (xs, ys []float64) {
	n := len(x)
	if n <= evidenceRows {
		return x, y
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
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
