package gram

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

// Periodic is the kernel Scale² exp(−r²/2). It is also its own Metric, r² = (4/Length²) Σ_d
// sin²(π(x_d − x′_d)/Period). Its derivatives are with respect to the logarithms of its fields.
type Periodic struct {
	Scale, Length, Period float64
}

// Cov implements Kernel.
func (k Periodic) Cov(x, y []float64) float64 { return k.value(k.Dist2(x, y)) }

// Grad returns k(x, x′) and stores its derivatives in dst.
func (k Periodic) Grad(dst, x, y []float64) float64 {
	r2 := k.Dist2(x, y)
	val := k.value(r2)
	dst[0], dst[1], dst[2] = 2*val, val*r2, val*k.slopePeriod(x, y)
	return val
}

// value returns k, given r².
func (k Periodic) value(r2 float64) float64 {
	v := [1]float64{r2}
	k.values(v[:])
	return v[0]
}

// values replaces every r² by k.
func (k Periodic) values(r2 []float64) {
	special.ExpRate(r2, -0.5)
	ScaleBy(r2, k.Scale*k.Scale)
}

// slopePeriod returns ∂log k/∂log Period.
func (k Periodic) slopePeriod(x, y []float64) float64 {
	p, l := k.Period, k.Length
	var sum float64
	for d, v := range x {
		s := math.Sin(2 * math.Pi / p * (math.Remainder(v, p) - math.Remainder(y[d], p)))
		sum += s * (v - y[d])
	}
	return 2 * math.Pi / p * sum / (l * l)
}

// Dist2 implements Metric.
func (k Periodic) Dist2(x, y []float64) float64 {
	MustLen(y, len(x))
	p := k.Period
	var sum float64
	for d, v := range x {
		// The remainders are exact, so periods far from 0 lose no accuracy.
		s := math.Sin(math.Pi / p * (math.Remainder(v, p) - math.Remainder(y[d], p)))
		sum += s * s
	}
	return 4 * sum / (k.Length * k.Length)
}

// Features implements Metric, because r² is the squared distance of points on D circles.
func (Periodic) Features(d int) int { return 2 * d }

// Columns implements Metric.
func (Periodic) Columns(_, _, _ []float64) bool { return false }

// Embed implements Metric.
func (k Periodic) Embed(dst []float64, inc int, x, _ []float64) {
	p, l := k.Period, k.Length
	for d, v := range x {
		sin, cos := math.Sincos(2 * math.Pi / p * math.Remainder(v, p))
		dst[2*d*inc], dst[(2*d+1)*inc] = cos/l, sin/l
	}
}

// Fill stores the covariances of the tile in dst, row by row.
func (k Periodic) Fill(dst []float64, t *Tile) {
	FillDist2(k, dst, t)
	k.values(dst)
}

// Pull adds Σ w ∂k/∂θ over the pairs of the tile to dst.
func (k Periodic) Pull(dst, w []float64, t *Tile) {
	r2, val := t.Get(len(w)), t.Get(len(w))
	FillDist2(k, r2, t)
	copy(val, r2)
	k.values(val)
	var dScale, dLength, dPeriod float64
	for i := range t.X.Rows {
		x := Row(t.X, i)
		for j := range t.Y.Rows {
			at := i*t.Y.Rows + j
			if w[at] == 0 {
				continue
			}
			g := w[at] * val[at]
			dScale += g
			dLength += g * r2[at]
			dPeriod += g * k.slopePeriod(x, Row(t.Y, j))
		}
	}
	dst[0] += 2 * dScale
	dst[1] += dLength
	dst[2] += dPeriod
}
