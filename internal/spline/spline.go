// Package spline has the columns of a smooth curve: a penalised cubic spline (P-spline; Eilers and
// Marx 1996) as features whose weights are independent under the prior.
//
// A curve f(x) = Σ_k a_k B_k(x) of K cubic B-splines on equidistant knots has the penalty
// ‖Da‖²/2τ², where D takes second differences. Every a is a straight line plus M z with M =
// Dᵀ(DDᵀ)⁻¹ and z = Da (Wood 2017, section 5.4), so that features B(x)ᵀM with weights z ~ N(0, τ²I)
// and a linear column make the same curves. Periodic curves have circular differences, whose
// eigenvectors are cosines and sines, and no linear column.
package spline

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Curve has the features of a smooth curve. It is plain data, to be saved as it is.
type Curve struct {
	// Lo and Hi are the range of x. Of a periodic curve Hi - Lo is the period.
	Lo, Hi float64
	// K is the number of B-splines.
	K        int
	Periodic bool `json:",omitempty"`
	// Map is M, scaled, of K rows one after the other and Cols columns.
	Map []float64
	// Mean is subtracted from the features.
	Mean []float64
}

// MinBasis is the least number of B-splines.
const MinBasis = 4

// Period returns the period of whole numbers that count through one, such as the months from 1 to
// 12, and the range of other numbers.
func Period(x []float64) float64 {
	period := slices.Max(x) - slices.Min(x)
	if slices.ContainsFunc(x, func(v float64) bool { return v != math.Trunc(v) }) {
		return period
	}
	return period + 1
}

// New returns the features of a curve over x by k B-splines, fewer where x has fewer values, or
// fewer modulo the period. Period 0 means none. Their mean over x is 0, and the sum of their
// variances 1: a curve whose weights have the standard deviation τ has about that itself. The error
// wraps ErrParam if x has fewer than MinBasis values, and ErrNotFinite if one is not finite.
func New(x []float64, k int, period float64) (*Curve, error) {
	for i, v := range x {
		if math.IsNaN(v - v) {
			return nil, fmt.Errorf("value %d is %v: %w", i, v, sentinel.ErrNotFinite)
		}
	}
	if len(x) == 0 {
		return nil, fmt.Errorf("a smooth curve of no values: %w", sentinel.ErrParam)
	}
	values, c := slices.Clone(x), &Curve{Lo: slices.Min(x), Hi: slices.Max(x)}
	if period != 0 {
		c.Hi, c.Periodic = c.Lo+period, true
		for i, v := range values {
			values[i] = c.wrap(v)
		}
	}
	slices.Sort(values)
	if k = min(k, len(slices.Compact(values))); k < MinBasis {
		return nil, fmt.Errorf("%d different values, and a smooth curve takes %d: %w", k, MinBasis,
			sentinel.ErrParam)
	}
	if c.K = k; math.IsInf(c.Hi-c.Lo, 0) || !(c.width() > 0) {
		return nil, fmt.Errorf("values from %v to %v: %w", c.Lo, c.Hi, sentinel.ErrParam)
	}
	if c.Periodic {
		c.Map = circular(k)
	} else {
		c.Map = differences(k)
	}
	c.Mean = make([]float64, len(c.Map)/k)
	row := make([]float64, c.Cols())
	sum := make([]float64, c.Cols())
	for _, v := range x {
		c.Put(row, v)
		floats.Add(sum, row)
	}
	floats.Scale(1/float64(len(x)), sum)
	copy(c.Mean, sum)
	var variance float64
	for _, v := range x {
		c.Put(row, v)
		variance += floats.Dot(row, row) / float64(len(x))
	}
	floats.Scale(1/math.Sqrt(variance), c.Map)
	floats.Scale(1/math.Sqrt(variance), c.Mean)
	return c, nil
}

// differences returns Dᵀ(DDᵀ)⁻¹ of k rows, D second differences.
func differences(k int) []float64 {
	d := mat.NewDense(k-2, k, nil)
	for r := range k - 2 {
		d.Set(r, r, 1)
		d.Set(r, r+1, -2)
		d.Set(r, r+2, 1)
	}
	var ddt mat.SymDense
	ddt.SymOuterK(1, d)
	var chol mat.Cholesky
	if !chol.Factorize(&ddt) {
		panic("pgsvi: second differences are dependent")
	}
	var m mat.Dense
	if err := chol.SolveTo(&m, d); err != nil {
		panic(err) // of condition 1e10 at k = 500
	}
	return slices.Clone(mat.DenseCopyOf(m.T()).RawMatrix().Data)
}

// circular returns the eigenvectors of circular second differences over their eigenvalues, but for
// the constant, of k rows.
func circular(k int) []float64 {
	m := mat.NewDense(k, k-1, nil)
	for c := range k - 1 {
		f := float64(c/2 + 1) // the frequency
		w := 2 * math.Pi * f / float64(k)
		norm := math.Sqrt(2/float64(k)) / (2 - 2*math.Cos(w))
		for j := range k {
			switch {
			case 2*int(f) == k:
				m.Set(j, c, norm/math.Sqrt2*math.Cos(w*float64(j)))
			case c%2 == 0:
				m.Set(j, c, norm*math.Cos(w*float64(j)))
			default:
				m.Set(j, c, norm*math.Sin(w*float64(j)))
			}
		}
	}
	return m.RawMatrix().Data
}

// Cols returns the number of features.
func (c *Curve) Cols() int { return len(c.Mean) }

// Check returns an error, which wraps ErrFile, if c is none that New can have made.
func (c *Curve) Check() error {
	if c.K < MinBasis || len(c.Mean) == 0 || len(c.Map) != c.K*len(c.Mean) || !(c.width() > 0) ||
		math.IsNaN(floats.Sum(c.Map)+floats.Sum(c.Mean)) {
		return fmt.Errorf("a smooth curve of %d functions and %d columns from %v to %v: %w", c.K,
			len(c.Mean), c.Lo, c.Hi, sentinel.ErrFile)
	}
	return nil
}

// width is the distance of the knots.
func (c *Curve) width() float64 {
	if c.Periodic {
		return (c.Hi - c.Lo) / float64(c.K)
	}
	return (c.Hi - c.Lo) / float64(c.K-3)
}

// Inside says that x is in the range of the data. A periodic curve has no outside.
func (c *Curve) Inside(x float64) bool { return c.Periodic || x >= c.Lo && x <= c.Hi }

// wrap returns x in the first period.
func (c *Curve) wrap(x float64) float64 {
	return x - (c.Hi-c.Lo)*math.Floor((x-c.Lo)/(c.Hi-c.Lo))
}

// Put stores the features of x in dst, of length Cols. Beyond the range of the data the curve goes
// on as a straight line.
func (c *Curve) Put(dst []float64, x float64) {
	if c.Periodic {
		x = c.wrap(x)
	}
	at := min(max(x, c.Lo), c.Hi)
	t := (at - c.Lo) / c.width()
	last := c.K - 4
	if c.Periodic {
		last = c.K - 1
	}
	j := min(int(t), last)
	b, slope := cubic(t - float64(j))
	out := (x - at) / c.width()
	for k, m := range c.Mean {
		dst[k] = -m
	}
	for i, v := range b {
		v += out * slope[i]
		floats.AddScaled(dst, v, c.Map[(j+i)%c.K*len(dst):][:len(dst)])
	}
}

// cubic returns the four B-splines that are not 0 at t in [0, 1], and their derivatives.
func cubic(t float64) (b, slope [4]float64) {
	u := 1 - t
	b = [4]float64{u * u * u / 6, (4 - 6*t*t + 3*t*t*t) / 6, (4 - 6*u*u + 3*u*u*u) / 6,
		t * t * t / 6}
	slope = [4]float64{-u * u / 2, (-4*t + 3*t*t) / 2, (4*u - 3*u*u) / 2, t * t / 2}
	return b, slope
}
