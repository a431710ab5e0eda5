// Package spline builds the features of a smooth curve, a penalized cubic spline. The weights of
// the features are independent under the prior. Package data calls it for the term s(x) of a
// formula.
//
// A curve f(x) = Σ_k a_k B_k(x) is a sum of K cubic B-splines, as in Eilers and Marx (1996). The
// knots are quantiles of the distinct values of x (Wood 2017), because equidistant knots would
// leave one interval for nearly all rows if x had an outlier or a long tail. The roughness of f
// is
//
//	R(f) = Σ_j c_j ∫ f″(x)² dx over interval j,
//
// the penalty of O'Sullivan (1986) with a factor c_j for each interval. The factor is the cube
// of the local width of the intervals, so R has no unit, and a wiggle costs the same in a dense
// region as in a sparse region if it spans the same number of knots. Straight lines have no
// roughness, so the penalty exp(-R/2τ²) leaves them free.
//
// The second derivative is linear in each interval, so R = γᵀWγ, where γ holds the values of f″
// at the knots and W is tridiagonal. With W = LLᵀ and z = Lᵀγ, R = ‖z‖². Integrating γ twice
// gives f up to a straight line. New chooses this line such that f has mean 0 and no correlation
// with x over the rows. So a = Mz, and the features B(x)ᵀM with weights z ~ N(0, τ²I) are the
// curves of the prior. The caller adds the straight line as another feature.
//
// M is made of sums and of the bidiagonal L, so it is accurate for any K and any knots. An
// eigendecomposition of the penalty matrix would lose its small eigenvalues, because its
// condition grows with K⁴.
//
// Periodic curves have equidistant knots and circular second differences, the P-splines of
// Eilers and Marx. The eigenvectors of the differences are cosines and sines, and there is no
// straight line.
package spline

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// A Curve computes the features of a smooth curve. All its fields are data, so that JSON can
// store it.
type Curve struct {
	// Lo and Hi are the range of x. The period of a periodic curve is Hi - Lo.
	Lo, Hi float64
	// K is the number of B-splines.
	K        int
	Periodic bool `json:",omitempty"`
	// Knots are the K-2 ends of the intervals, from Lo to Hi, or nil if the curve is periodic.
	Knots []float64 `json:",omitempty"`
	// Map holds the K rows and Cols columns of M, scaled, row by row.
	Map []float64
	// Mean is subtracted from the features.
	Mean []float64
}

// MinBasis is the smallest number of B-splines.
const MinBasis = 4

// Period guesses the period of a cyclic feature. If x holds whole numbers, such as months from 1
// to 12, the period is their count from the lowest to the highest. Otherwise it is the range of
// x.
func Period(x []float64) float64 {
	period := slices.Max(x) - slices.Min(x)
	if slices.ContainsFunc(x, func(v float64) bool { return v != math.Trunc(v) }) {
		return period
	}
	return period + 1
}

// New returns the features of a curve over x by k B-splines, or fewer if x has fewer values (modulo
// the period, if there is one). The rows have weights w, and nil means 1. A row of weight w counts
// as w equal rows, and a row of weight 0 is ignored. Period 0 means that the curve is not periodic.
// The features have mean 0 over the rows, and the sum of their variances is 1, so that a curve has
// about the standard deviation of its weights.
//
// The error wraps ErrParam if x has fewer than MinBasis values or a weight is not valid,
// ErrNotFinite if a value is not finite, and ErrShape if x and w differ in length.
func New(x, w []float64, k int, period float64) (*Curve, error) {
	x, w, err := kept(x, w)
	if err != nil {
		return nil, err
	}
	if len(x) == 0 {
		return nil, fmt.Errorf("there are no values, but a smooth curve needs %d: %w", MinBasis,
			sentinel.ErrParam)
	}
	values, c := slices.Clone(x), &Curve{Lo: slices.Min(x), Hi: slices.Max(x)}
	if period != 0 {
		c.Hi, c.Periodic = c.Lo+period, true
		for i, v := range values {
			values[i] = c.wrap(v)
		}
	}
	slices.Sort(values)
	values = slices.Compact(values)
	if k = min(k, len(values)); k < MinBasis {
		return nil, fmt.Errorf("%d different values or functions, but a smooth curve needs %d: %w",
			k, MinBasis, sentinel.ErrParam)
	}
	if c.K = k; math.IsInf(c.Hi-c.Lo, 0) || !(c.Hi > c.Lo) {
		return nil, fmt.Errorf("values from %v to %v: the range of a smooth curve must be "+
			"positive and finite: %w", c.Lo, c.Hi, sentinel.ErrParam)
	}
	if c.Periodic {
		c.Map, c.Mean = circular(k), make([]float64, k-1)
	} else {
		c.Knots = knots(values, k-2)
		c.Map, c.Mean = c.integrals(), make([]float64, k-2)
		c.removeLine(x, w)
	}
	if c.scale(x, w); c.Check() != nil {
		return nil, fmt.Errorf("the distances of the values from %v to %v differ too much for a "+
			"smooth curve; transform the values: %w", c.Lo, c.Hi, sentinel.ErrParam)
	}
	return c, nil
}

// kept returns the values x of the rows with positive weights, and their weights, scaled to sum
// to 1.
func kept(x, w []float64) (rows, weights []float64, err error) {
	if w != nil && len(w) != len(x) {
		return nil, nil, fmt.Errorf("%d values and %d weights: the numbers must be equal: %w",
			len(x), len(w), sentinel.ErrShape)
	}
	for i, v := range x {
		weight := 1.
		if w != nil {
			weight = w[i]
		}
		switch {
		case weight == 0:
			continue
		case !(weight > 0) || math.IsInf(weight, 1):
			return nil, nil, fmt.Errorf("weight %d is %v; weights must be finite and not "+
				"negative: %w", i, weight, sentinel.ErrParam)
		case math.IsNaN(v - v):
			return nil, nil, fmt.Errorf("value %d is %v: %w", i, v, sentinel.ErrNotFinite)
		}
		rows, weights = append(rows, v), append(weights, weight)
	}
	if len(rows) > 0 {
		floats.Scale(1/slices.Max(weights), weights) // the sum cannot overflow after this
		floats.Scale(1/floats.Sum(weights), weights)
	}
	return rows, weights, nil
}

// The outer intervals are cut at 1/tail of their ranks, if there are more than tailKnots knots
// and tailValues values per knot. Otherwise a single cubic would have to fit the whole tail of a
// normal distribution.
const tail, tailKnots, tailValues = 5, 8, 5

// knots interpolates distinct sorted values at n ranks. The ranks are equally spaced, except that the
// first and the last interval are cut in two at 1/tail of their ranks.
func knots(values []float64, n int) []float64 {
	if n <= tailKnots || len(values) < tailValues*n {
		all := make([]float64, n)
		for i := range all {
			all[i] = quantile(values, i, n-1)
		}
		return all
	}
	parts := tail * (n - 3) // parts of the range of ranks
	all := []float64{values[0], quantile(values, 1, parts)}
	for i := 1; i < n-3; i++ {
		all = append(all, quantile(values, i, n-3))
	}
	return append(all, quantile(values, parts-1, parts), values[len(values)-1])
}

// quantile interpolates distinct sorted values at the rank i/n of the last value. Callers request
// fewer quantiles than there are values, so rounding cannot make two quantiles equal.
func quantile(values []float64, i, n int) float64 {
	j, r := i*(len(values)-1)/n, i*(len(values)-1)%n // the rank is j + r/n
	q := values[j]
	if r > 0 {
		q += (values[j+1] - values[j]) * float64(r) / float64(n)
	}
	return q
}

// smoothing is the number of intervals on either side whose widths count for a local width. It
// removes the noise from the distances of neighboring quantiles.
const smoothing = 2

// widths returns the widths h of the intervals and the factors c_j of the penalty. The unit of
// both is the geometric mean of the widths, which does not overflow and makes the result
// independent of the unit of x.
func (c *Curve) widths() (h, factor []float64) {
	n := len(c.Knots) - 1
	h, factor = make([]float64, n), make([]float64, n)
	logs := make([]float64, n)
	for j := range n {
		h[j] = c.Knots[j+1] - c.Knots[j]
		logs[j] = math.Log(h[j])
	}
	unit := floats.Sum(logs) / float64(n)
	for j := range n {
		near := logs[max(j-smoothing, 0):min(j+smoothing+1, n)]
		factor[j] = math.Exp(3 * (floats.Sum(near)/float64(len(near)) - unit))
		h[j] /= math.Exp(unit)
	}
	return h, factor
}

// penalty returns the diagonal of L and the entries below the diagonal, where W = LLᵀ. In an
// interval of width h, the values a and b of f″ at the ends contribute c h (a² + ab + b²)/3 to
// the roughness.
func penalty(h, factor []float64) (diag, below []float64) {
	n := len(h)
	diag, below = make([]float64, n+1), make([]float64, n)
	for j := range n {
		m := factor[j] * h[j]
		diag[j] += m / 3
		diag[j+1] += m / 3
		below[j] = m / 6
	}
	for j := range diag {
		if j > 0 {
			diag[j] -= below[j-1] * below[j-1]
		}
		diag[j] = math.Sqrt(diag[j])
		if j < n {
			below[j] /= diag[j]
		}
	}
	return diag, below
}

// integrals returns a matrix M with K rows and K-2 columns, whose curves have roughness ‖z‖² and
// start with value 0 and slope 0.
func (c *Curve) integrals() []float64 {
	h, factor := c.widths()
	diag, below := penalty(h, factor)
	cols := c.K - 2
	// span returns the sum of the widths of intervals i to j.
	span := func(i, j int) float64 { return floats.Sum(h[max(i, 0):min(j+1, len(h))]) }
	m := make([]float64, c.K*cols)
	second := make([]float64, cols) // γ = L⁻ᵀz
	for z := range cols {
		clear(second)
		second[z] = 1 / diag[z]
		for j := z - 1; j >= 0; j-- {
			second[j] = -below[j] * second[j+1] / diag[j]
		}
		// The derivative of a spline is a spline of one degree less. Its coefficients are divided
		// differences of the coefficients over the supports of the B-splines.
		var slope, value float64
		for i := range c.K - 1 {
			if i > 0 {
				slope += second[i-1] * span(i-2, i-1) / 2
			}
			value += slope * span(i-2, i) / 3
			m[(i+1)*cols+z] = value
		}
	}
	return m
}

// removeLine subtracts a straight line from each column of Map. Its slope is the slope of a
// regression of the feature on x over the rows.
func (c *Curve) removeLine(x, w []float64) {
	mean := c.Lo
	for i, v := range x {
		mean += w[i] * (v - c.Lo)
	}
	var square float64
	slope := make([]float64, c.K) // slopes of regressions of the B-splines on x
	for i, v := range x {
		d := (v - mean) / (c.Hi - c.Lo)
		square += w[i] * d * d
		at := c.interval(v)
		b, _ := c.local(at, v)
		for r, v := range b {
			slope[at+r] += w[i] * d * v
		}
	}
	floats.Scale(1/square, slope)
	cols := c.Cols()
	var slopes mat.VecDense // slopes of regressions of the features on x
	m := mat.NewDense(c.K, cols, c.Map)
	slopes.MulVec(m.T(), mat.NewVecDense(c.K, slope))
	for i := range c.K {
		// The function x has the means of three neighboring knots as its coefficients.
		d := ((c.knot(i-2)-mean)/3 + (c.knot(i-1)-mean)/3 + (c.knot(i)-mean)/3) / (c.Hi - c.Lo)
		for j := range cols {
			m.Set(i, j, m.At(i, j)-slopes.AtVec(j)*d)
		}
	}
}

// scale sets Mean and divides Map and Mean by the root of the sum of the variances.
func (c *Curve) scale(x, w []float64) {
	row, mean := make([]float64, c.Cols()), make([]float64, c.Cols())
	for i, v := range x {
		c.Put(row, v)
		floats.AddScaled(mean, w[i], row)
	}
	copy(c.Mean, mean)
	var variance float64
	for i, v := range x {
		c.Put(row, v)
		variance += w[i] * floats.Dot(row, row)
	}
	floats.Scale(1/math.Sqrt(variance), c.Map)
	floats.Scale(1/math.Sqrt(variance), c.Mean)
}

// circular returns the eigenvectors of circular second differences of k values, divided by their
// eigenvalues. It leaves out the constant eigenvector.
func circular(k int) []float64 {
	m := mat.NewDense(k, k-1, nil)
	for c := range k - 1 {
		f := float64(c/2 + 1) // frequency
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

// Check returns an error that wraps ErrFile if New cannot have made c, for example because a file
// is damaged.
func (c *Curve) Check() error {
	sum := floats.Sum(c.Map) + floats.Sum(c.Mean) + (c.Hi - c.Lo)
	ok := c.K >= MinBasis && len(c.Mean) > 0 && len(c.Map) == c.K*len(c.Mean) && c.Hi > c.Lo &&
		!math.IsNaN(sum-sum)
	if n := len(c.Knots); c.Periodic {
		ok = ok && n == 0
	} else {
		ok = ok && n == c.K-2 && c.Knots[0] == c.Lo && c.Knots[n-1] == c.Hi
		for i := 1; ok && i < n; i++ {
			ok = c.Knots[i] > c.Knots[i-1]
		}
	}
	if !ok {
		return fmt.Errorf("a smooth curve of %d functions, %d knots and %d columns from %v to %v "+
			"is not valid: %w", c.K, len(c.Knots), len(c.Mean), c.Lo, c.Hi, sentinel.ErrFile)
	}
	return nil
}

// Inside reports whether x is in the range of the data. Every x is inside a periodic curve.
func (c *Curve) Inside(x float64) bool { return c.Periodic || x >= c.Lo && x <= c.Hi }

// wrap moves x into the first period by a multiple of the period.
func (c *Curve) wrap(x float64) float64 {
	return x - (c.Hi-c.Lo)*math.Floor((x-c.Lo)/(c.Hi-c.Lo))
}

// Put stores the features of x in dst, which has length Cols. Beyond the range of the data, the
// curve continues as a straight line.
func (c *Curve) Put(dst []float64, x float64) {
	var first int
	var b [4]float64
	if c.Periodic {
		width := (c.Hi - c.Lo) / float64(c.K)
		t := (min(max(c.wrap(x), c.Lo), c.Hi) - c.Lo) / width
		first = min(int(t), c.K-1)
		b = cubic(t - float64(first))
	} else {
		at := min(max(x, c.Lo), c.Hi)
		first = c.interval(at)
		var slope [4]float64
		b, slope = c.local(first, at)
		for i, s := range slope {
			b[i] += (x - at) * s
		}
	}
	for k, m := range c.Mean {
		dst[k] = -m
	}
	for i, v := range b {
		floats.AddScaled(dst, v, c.Map[(first+i)%c.K*len(dst):][:len(dst)])
	}
}

// knot returns knot i. Indices beyond either end repeat the outer knot.
func (c *Curve) knot(i int) float64 { return c.Knots[min(max(i, 0), len(c.Knots)-1)] }

// interval returns the index of the interval that contains x, which must not be outside the
// range.
func (c *Curve) interval(x float64) int {
	i, found := slices.BinarySearch(c.Knots, x)
	if !found {
		i--
	}
	return min(max(i, 0), len(c.Knots)-2)
}

// local returns the four B-splines that are not 0 in interval j, and their derivatives, at x. It
// raises the degree from 0 to 3 by the recursion of de Boor (1978).
func (c *Curve) local(j int, x float64) (b, slope [4]float64) {
	b[0] = 1
	for degree := 1; degree <= 3; degree++ {
		var carry float64
		for r := range degree {
			lo, hi := c.knot(j+1+r-degree), c.knot(j+1+r)
			v := b[r] / (hi - lo)
			b[r] = carry + (hi-x)*v
			carry = (x - lo) * v
			if degree == 3 {
				slope[r] -= 3 * v
				slope[r+1] += 3 * v
			}
		}
		b[degree] = carry
	}
	return b, slope
}

// cubic returns the four B-splines with equidistant knots that are not 0 at t in [0, 1].
func cubic(t float64) [4]float64 {
	u := 1 - t
	return [4]float64{u * u * u / 6, (4 - 6*t*t + 3*t*t*t) / 6, (4 - 6*u*u + 3*u*u*u) / 6,
		t * t * t / 6}
}
