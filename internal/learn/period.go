package learn

import (
	"math"
	"math/cmplx"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// madPerSD is the standard deviation of a normal variable divided by its median absolute deviation.
const madPerSD = 1.482602218505602

// These constants control the periodogram that finds the start of a Period that is not set.
const (
	periodTrend  = 3 // degree of the polynomial trend of the responses
	periodCycles = 2 // smallest number of periods that the rows cover; slower ones are a trend
	periodFiner  = 4 // frequencies per frequency that equidistant rows can distinguish
	periodRows   = 4 * (periodTrend + 1)
)

// Period returns the period of y after a trend is removed, as a function of one of the given
// columns of x; nil means all of them. If mixed, the periodic function may be next to a smooth
// function or times a smooth function. It finds the sine that explains most of y, by the least
// squares of Lomb (1976) and Scargle (1982), and then the multiple of its period with the most
// evidence, because the sine may be a harmonic. The shortest sine has two rows per period on
// average. The column with the most evidence decides if there are several. Others are the periods
// of other seasons that y is known to have. Period is 0 for too few rows or equal rows.
func Period(x *mat.Dense, y []float64, columns []int, mixed bool, others []float64) float64 {
	best, most := 0.0, math.Inf(-1)
	for _, s := range allSeries(x, y, columns, mixed, others) {
		if p, e := s.best(0); e > most {
			best, most = p, e
		}
	}
	return best
}

// Rival returns the period with the most evidence except the given period and others. Nats is its
// evidence minus the evidence of the given period, or −Inf if no rival exists. The other arguments
// are as in Period. Cycles is the number of periods that the rows span.
func Rival(x *mat.Dense, y []float64, columns []int, mixed bool, period float64,
	others []float64) (rival, nats, cycles float64) {
	nats, most := math.Inf(-1), math.Inf(-1)
	for _, s := range allSeries(x, y, columns, mixed, others) {
		own := s.near(period)
		p, e := s.best(period)
		if max(own, e) > most {
			rival, nats, most, cycles = p, e-own, max(own, e), s.whole/period
		}
	}
	return rival, nats, cycles
}

// series holds responses as a function of one column, in which Period looks for periods.
type series struct {
	x, y   []float64 // all rows, or some of many
	span   float64   // the range of x
	whole  float64   // the range of all rows
	sine   float64   // the period of the strongest sine
	null   float64   // the evidence of a trend alone
	others []float64 // periods of other seasons
	// the periodic function may be next to a smooth function, or times one
	mixed bool
}

// allSeries returns the series of y in the given columns of x, or nil if there are too few rows.
func allSeries(x *mat.Dense, y []float64, columns []int, mixed bool, others []float64) (all []*series) {
	n, cols := x.Dims()
	if columns == nil {
		for j := range cols {
			columns = append(columns, j)
		}
	}
	for _, j := range columns {
		if n < periodRows {
			break
		}
		if s := newSeries(mat.Col(nil, j, x), y, others); s != nil {
			s.mixed = mixed
			all = append(all, s)
		}
	}
	return all
}

// newSeries returns y as a function of at next to seasons of other periods, or nil if it has no
// sine.
func newSeries(at, y, others []float64) *series {
	n := len(at)
	lo, span := floats.Min(at), floats.Max(at)-floats.Min(at)
	if !(span > 0) || math.IsInf(span, 0) {
		return nil
	}
	cols := periodTrend + 1
	if more := 2 * len(others); n >= 4*(cols+more) {
		cols += more // their sines
	}
	trend := mat.NewDense(n, cols, nil)
	scale, _ := RobustScale(y, nil)
	middle := dense.Median(slices.Clone(y))
	rest := mat.NewVecDense(n, nil)
	for i, v := range at {
		u := 1.0
		for j := range periodTrend + 1 {
			trend.Set(i, j, u)
			u *= 2*(v-lo)/span - 1
		}
		for j := periodTrend + 1; j < cols; j += 2 {
			sin, cos := math.Sincos(2 * math.Pi * (v - lo) / others[(j-periodTrend-1)/2])
			trend.Set(i, j, sin)
			trend.Set(i, j+1, cos)
		}
		rest.SetVec(i, (y[i]-middle)/scale)
	}
	var qr mat.QR
	var coef, fitted mat.VecDense
	qr.Factorize(trend)
	if qr.SolveVecTo(&coef, false, rest) != nil {
		return nil
	}
	fitted.MulVec(trend, &coef)
	whole := slices.Clone(rest.RawVector().Data)
	rest.SubVec(rest, &fitted)
	sine := strongestSine(at, rest.RawVector().Data)
	if sine == 0 {
		return nil
	}
	s := &series{sine: sine, whole: span, others: others}
	s.x, s.y = evidenceSample(at, whole, sine)
	s.span = floats.Max(s.x) - floats.Min(s.x)
	s.null = s.likely(sine, []float64{1}, plainShape)
	return s
}

// strongestSine returns the period of the sine that explains most of y at the points at, or 0 if
// no sine does.
func strongestSine(at, y []float64) float64 {
	n := len(at)
	lo, span := floats.Min(at), floats.Max(at)-floats.Min(at)
	// e^(2πi·x·frequency), of one step and of now
	turn, now := make([]complex128, n), make([]complex128, n)
	step := 1 / (periodFiner * span)
	for i, v := range at {
		turn[i] = cmplx.Rect(1, 2*math.Pi*step*(v-lo))
		now[i] = cmplx.Rect(1, 2*math.Pi*periodCycles/span*(v-lo))
	}
	best, most := 0.0, 0.0
	for k := range periodFiner * (n/2 - periodCycles) {
		var cc, cs, ss, yc, ys float64
		for i, z := range now {
			c, s, r := real(z), imag(z), y[i]
			cc += c * c
			cs += c * s
			ss += s * s
			yc += r * c
			ys += r * s
			now[i] = z * turn[i]
		}
		if power := (yc*yc*ss - 2*yc*ys*cs + ys*ys*cc) / (cc*ss - cs*cs); power > most &&
			cc*ss-cs*cs > 1e-6*cc*ss {
			best, most = periodCycles/span+float64(k)*step, power
		}
	}
	if best == 0 {
		return 0
	}
	return 1 / best
}

// equalScale is the scale of equal responses, as a fraction of their size, so that results do not
// depend on their unit.
const equalScale = 0.1

// RobustScale returns the standard deviation of y by the median absolute deviation, or the standard
// deviation itself if that is 0. If y does not vary beyond rounding, varies is false and the scale
// is a tenth of the size of y, or 1 if y is 0. Nil weights are 1.
func RobustScale(y, weights []float64) (scale float64, varies bool) {
	mid := dense.WeightedMedian(slices.Clone(y), weights)
	var square float64
	dev := make([]float64, len(y))
	n := float64(len(y))
	if weights != nil {
		n = floats.Sum(weights)
	}
	for i, v := range y {
		dev[i] = math.Abs(v - mid)
		if weights != nil {
			square += weights[i] * dev[i] * dev[i] / n
			continue
		}
		square += dev[i] * dev[i] / n
	}
	rounding := 4 * dense.Epsilon * math.Abs(mid)
	for _, s := range [2]float64{madPerSD * dense.WeightedMedian(dev, weights),
		math.Sqrt(square)} {
		if s > rounding && !math.IsInf(s, 0) {
			return s, true
		}
	}
	if s := equalScale * math.Abs(mid); s > 0 && !math.IsInf(s, 0) {
		return s, false
	}
	return 1, false
}
