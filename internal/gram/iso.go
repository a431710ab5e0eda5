package gram

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/fma"
	"gonum.org/v1/gonum/blas/blas64"
)

// This file holds the kernels k = Variance · ρ(r²) of a squared distance r² with length scales.
// The root package chooses the profile ρ, for example exp(−r²/2).

// One returns v, or 1 if v is the zero default.
func One(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// MustLen panics if s is not of length n.
func MustLen(s []float64, n int) {
	if len(s) != n {
		panic(fmt.Sprintf("pgsvi: kernel: slice of length %d, want %d", len(s), n))
	}
}

// Lengths is the Metric r² = Σ_d (x_d − x′_d)²/ℓ_d². If Each is not empty, ℓ_d is Each[d], and
// zero means 1. Otherwise every ℓ_d is One.
type Lengths struct {
	One  float64
	Each []float64
}

// Dist2 implements Metric.
func (l Lengths) Dist2(x, y []float64) float64 {
	MustLen(y, len(x))
	var r2 float64
	if len(l.Each) == 0 {
		for d, v := range x {
			t := v - y[d]
			r2 += float64(t * t) // not fused, so all processors have the same bits
		}
		return r2 / (l.One * l.One)
	}
	MustLen(l.Each, len(x))
	for d, v := range x {
		t := (v - y[d]) / One(l.Each[d])
		r2 += float64(t * t)
	}
	return r2
}

// Fill is FillDist2. With one length scale it divides the stored distances, if there are any.
func (l Lengths) Fill(dst []float64, t *Tile) {
	if len(l.Each) > 0 || t.r2.Data == nil {
		FillDist2(l, dst, t)
		return
	}
	s, m := l.One*l.One, t.Y.Rows
	for i := range t.X.Rows {
		row := dst[i*m : (i+1)*m]
		copy(row, t.r2.Data[i*t.r2.Stride:])
		fma.Divide(row, s)
	}
}

// Columns implements Metric.
func (l Lengths) Columns(dst, x, yt []float64) bool {
	clear(dst)
	if len(l.Each) == 0 {
		for d, v := range x {
			fma.AddSquares(dst, v, yt[d*len(dst):(d+1)*len(dst)])
		}
		fma.Divide(dst, l.One*l.One)
		return true
	}
	MustLen(l.Each, len(x))
	for d, v := range x {
		fma.AddSquaresOver(dst, v, yt[d*len(dst):(d+1)*len(dst)], One(l.Each[d]))
	}
	return true
}

// Up to this number of columns differences are faster than products of matrices: with one length
// scale for all columns, and with one length scale per column, which takes a division per column.
const (
	differencesOfOne  = 12
	differencesOfEach = 4
)

// Features implements Metric.
func (l Lengths) Features(d int) int {
	if d <= differencesOfEach || len(l.Each) == 0 && d <= differencesOfOne {
		return 0
	}
	return d
}

// Embed implements Metric.
func (l Lengths) Embed(dst []float64, inc int, x, centre []float64) {
	centre = centre[:len(x)]
	if len(l.Each) == 0 {
		inverse := 1 / l.One
		for d, v := range x {
			dst[d*inc] = (v - centre[d]) * inverse
		}
		return
	}
	for d, v := range x {
		dst[d*inc] = (v - centre[d]) / One(l.Each[d])
	}
}

// pull adds Σ w ∂(s2 ρ)/∂θ over the pairs of the tile to dst. The parameters θ are log s, with s2
// = s², and the logarithms of the length scales. It overwrites slope.
func (l Lengths) pull(dst, w, r2, rho, slope []float64, s2 float64, t *Tile) {
	var dScale, dLength float64
	for i, wi := range w {
		g := 0.0
		if wi != 0 {
			g = wi * slope[i]
			dScale += wi * rho[i]
			dLength += g * r2[i]
		}
		slope[i] = g
	}
	dst[0] += 2 * s2 * dScale
	if len(l.Each) == 0 {
		dst[1] += s2 * dLength
		return
	}
	sum := t.Get(len(l.Each))
	clear(sum)
	for i := range t.X.Rows {
		addSquaredDiffs(sum, slope[i*t.Y.Rows:(i+1)*t.Y.Rows], Row(t.X, i), t.Y)
	}
	for d, v := range sum {
		l := One(l.Each[d])
		dst[1+d] += s2 * v / (l * l)
	}
}

// addSquaredDiffs adds Σ_j g_j (x_d − y_jd)² to each sum_d.
func addSquaredDiffs(sum, g, x []float64, y blas64.General) {
	for j, gj := range g {
		if gj == 0 {
			continue
		}
		row, sum := Row(y, j)[:len(x)], sum[:len(x)]
		for d, v := range x {
			u := v - row[d]
			sum[d] += gj * (u * u)
		}
	}
}

// Profile is a function ρ(r²) with ρ(0) = 1.
type Profile interface {
	// Values replaces every r² by ρ(r²), and Slopes stores −2ρ′(r²) in dst.
	Values(r2 []float64)
	Slopes(dst, r2, rho []float64)
}

// Shaped is a Profile with a parameter of its own. GradShape stores the derivatives with respect
// to it.
type Shaped interface {
	GradShape(dst, r2, rho []float64)
}

// ShapeOf returns p as Shaped if it implements Shaped. It reuses memory of t between calls.
func ShapeOf[P Profile](p P, t *Tile) (s Shaped, ok bool) {
	if _, ok := any(p).(Shaped); !ok {
		return nil, false
	}
	b, ok := t.box.(*P)
	if !ok {
		b = new(P)
		t.box = b
	}
	*b = p
	if s, ok = any(b).(Shaped); !ok {
		s, ok = any(p).(Shaped) // P is a pointer
	}
	return s, ok
}

// Iso is the kernel Variance · ρ(r²). Its derivatives are with respect to log √Variance, the
// logarithms of the length scales, and the parameter of a Shaped profile.
type Iso[P Profile] struct {
	Lengths  Lengths
	Variance float64
	Profile  P
}

// Values replaces every r² by k.
func (k Iso[P]) Values(r2 []float64) {
	k.Profile.Values(r2)
	ScaleBy(r2, k.Variance)
}

// ScaleBy multiplies v by the given factor.
func ScaleBy(v []float64, by float64) {
	if by != 1 {
		fma.Scale(by, v)
	}
}

// Fill stores the covariances of the tile in dst, row by row.
func (k Iso[P]) Fill(dst []float64, t *Tile) {
	k.Lengths.Fill(dst, t)
	k.Values(dst)
}

// slopes returns r², ρ(r²) and −2ρ′(r²) of the n pairs of the tile, in scratch of the tile.
func (k Iso[P]) slopes(n int, t *Tile) (r2, rho, slope []float64) {
	r2, rho, slope = t.Get(n), t.Get(n), t.Get(n)
	k.Lengths.Fill(r2, t)
	copy(rho, r2)
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	return r2, rho, slope
}

// Pull adds Σ w ∂k/∂θ over the pairs of the tile to dst.
func (k Iso[P]) Pull(dst, w []float64, t *Tile) {
	r2, rho, slope := k.slopes(len(w), t)
	k.Lengths.pull(dst, w, r2, rho, slope, k.Variance, t)
	if s, ok := ShapeOf(k.Profile, t); ok {
		var dShape float64
		for m := t.Y.Rows; len(w) > 0; w, r2, rho, slope = w[m:], r2[m:], rho[m:], slope[m:] {
			lo := 0 // the pairs left of the diagonal have no weight
			for lo < m && w[lo] == 0 {
				lo++
			}
			s.GradShape(slope[lo:m], r2[lo:m], rho[lo:m])
			for i, wi := range w[lo:m] {
				if wi != 0 {
					dShape += wi * slope[lo+i]
				}
			}
		}
		dst[len(dst)-1] += k.Variance * dShape
	}
}

// PullRows is Pull for each row of the tile, into one row of dst each.
func (k Iso[P]) PullRows(dst, w []float64, t *Tile) {
	r2, rho, slope := k.slopes(len(w), t)
	m, np := t.Y.Rows, len(dst)/t.X.Rows
	s, shaped := ShapeOf(k.Profile, t)
	t.EachRow(func(i int) {
		row, lo, hi := dst[i*np:(i+1)*np], i*m, (i+1)*m
		k.Lengths.pull(row, w[lo:hi], r2[lo:hi], rho[lo:hi], slope[lo:hi], k.Variance, t)
		if shaped {
			s.GradShape(slope[lo:hi], r2[lo:hi], rho[lo:hi])
			for j, g := range slope[lo:hi] {
				row[np-1] += k.Variance * w[lo+j] * g
			}
		}
	})
}

// PullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i to row i of dst.
func (k Iso[P]) PullInputs(dst, w []float64, t *Tile) {
	_, _, slope := k.slopes(len(w), t)
	cols, m, l := t.X.Cols, t.Y.Rows, k.Lengths
	for i := range t.X.Rows {
		x, sum := Row(t.X, i), dst[i*cols:(i+1)*cols]
		for j, wij := range w[i*m : (i+1)*m] {
			g := k.Variance * wij * slope[i*m+j]
			for d, v := range Row(t.Y, j) {
				length := l.One
				if len(l.Each) > 0 {
					length = One(l.Each[d])
				}
				sum[d] -= g * (x[d] - v) / (length * length)
			}
		}
	}
}
