package learn

import (
	"math"
	"math/cmplx"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// madPerSD is the SD of a normal variable over its median absolute deviation.
const madPerSD = 1.482602218505602

// The periodogram by which a Period that is not set begins.
const (
	periodTrend  = 3 // the degree of the polynomial about which responses vary
	periodCycles = 2 // least number of periods that the rows go through: slower ones are a trend
	periodFiner  = 4 // frequencies for each one that as many regular rows tell apart
	periodRows   = 4 * (periodTrend + 1)
)

// Period returns the period of y after a trend is removed. It finds the sine that explains most of y,
// by the least squares of Lomb (1976) and Scargle (1982), and then the multiple of its period with the
// most evidence, because the sine may be a harmonic. The shortest sine has two rows per period on
// average. Period is 0 for rows of several columns, and for too few rows or equal rows.
func Period(x *mat.Dense, y []float64) float64 {
	n, cols := x.Dims()
	if cols != 1 || n < periodRows {
		return 0
	}
	at := x.RawMatrix().Data // of one column
	lo, span := floats.Min(at), floats.Max(at)-floats.Min(at)
	if !(span > 0) || math.IsInf(span, 0) {
		return 0
	}
	trend := mat.NewDense(n, periodTrend+1, nil)
	scale, _ := RobustScale(y, nil)
	middle := dense.Median(slices.Clone(y))
	rest := mat.NewVecDense(n, nil)
	for i, v := range at {
		u := 1.0
		for j := range periodTrend + 1 {
			trend.Set(i, j, u)
			u *= 2*(v-lo)/span - 1
		}
		rest.SetVec(i, (y[i]-middle)/scale)
	}
	var qr mat.QR
	var coef, fitted mat.VecDense
	qr.Factorize(trend)
	if qr.SolveVecTo(&coef, false, rest) != nil {
		return 0
	}
	fitted.MulVec(trend, &coef)
	whole := slices.Clone(rest.RawVector().Data)
	rest.SubVec(rest, &fitted)
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
			c, s, r := real(z), imag(z), rest.AtVec(i)
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
	return bestPeriod(at, whole, 1/best)
}

// equalScale is the scale of equal responses in parts of their size, so that an answer does not depend
// on their unit.
const equalScale = 0.1

// RobustScale returns the standard deviation of y by the median absolute deviation, or the standard
// deviation itself if that is 0. If y does not vary beyond rounding, varies is false and the scale is
// a tenth of the size of y, or 1 if y is 0. Nil weights are 1.
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
