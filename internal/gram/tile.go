package gram

import (
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// A tile has at most Rows × Cols pairs, so that all its intermediate results stay in the cache. No
// entry depends on the tile it is in.
const (
	Rows = 64
	Cols = 128
)

// Tile holds the pairs of some rows of X and some rows of Y, with scratch memory that works like
// a stack.
type Tile struct {
	X, Y blas64.General
	// Centre is the origin of coordinates when a product of matrices computes distances. Nil
	// means that differences compute them, which is exact for close rows.
	Centre []float64

	r2   blas64.General // the squared distances of the pairs, or empty
	bufs [][]float64
	top  int
	box  any // the memory of ShapeOf
}

var tiles = sync.Pool{New: func() any { return new(Tile) }}

// Take returns a tile without rows. Free returns it to the pool.
func Take() *Tile { return tiles.Get().(*Tile) }

// Free returns a tile of Take to the pool.
func (t *Tile) Free() {
	t.X, t.Y, t.Centre, t.r2, t.top = blas64.General{}, blas64.General{}, nil, blas64.General{}, 0
	tiles.Put(t)
}

// Len returns the number of pairs.
func (t *Tile) Len() int { return t.X.Rows * t.Y.Rows }

// Get returns scratch of length n with unspecified contents. It is valid until Release of an
// earlier Mark.
func (t *Tile) Get(n int) []float64 {
	if t.top == len(t.bufs) {
		t.bufs = append(t.bufs, nil)
	}
	t.bufs[t.top] = dense.Resize(t.bufs[t.top], n)
	t.top++
	return t.bufs[t.top-1]
}

// Mark returns the present top of the scratch, for Release.
func (t *Tile) Mark() int { return t.top }

// Release frees the scratch above mark.
func (t *Tile) Release(mark int) { t.top = mark }

// known gives the tile the squared distances of its pairs. They are a part of r2, whose rows have
// the given number of columns, and the first pair of the tile is (i, j) in it. A nil r2 means
// that they are unknown.
func (t *Tile) known(r2 []float64, cols, i, j int) {
	if t.r2 = (blas64.General{}); r2 != nil {
		t.r2 = blas64.General{Rows: t.X.Rows, Cols: t.Y.Rows, Stride: cols, Data: r2[i*cols+j:]}
	}
}

// EachRow calls f with the tile reduced to each of its rows of X, and frees the scratch of f
// after each call.
func (t *Tile) EachRow(f func(i int)) {
	x, r2, mark := t.X, t.r2, t.top
	for i := range x.Rows {
		t.X = Slice(x, i, i+1)
		if r2.Data != nil {
			t.r2 = Slice(r2, i, i+1)
		}
		f(i)
		t.top = mark
	}
	t.X, t.r2 = x, r2
}

// Row returns row i of x.
func Row(x blas64.General, i int) []float64 { return x.Data[i*x.Stride : i*x.Stride+x.Cols] }

// Slice returns the rows lo … hi−1 of x.
func Slice(x blas64.General, lo, hi int) blas64.General {
	x.Data = x.Data[lo*x.Stride : (hi-1)*x.Stride+x.Cols]
	x.Rows = hi - lo
	return x
}

// Metric is a squared distance r².
type Metric interface {
	// Dist2 returns r² by differences. It is free of cancellation, and exactly zero for equal
	// arguments.
	Dist2(x, y []float64) float64
	// Features returns the number of coordinates in which r² is a plain squared distance, or 0 if
	// Dist2 is faster than computing them.
	Features(d int) int
	// Embed stores the coordinates of x, which may be relative to centre, in every inc-th element
	// of dst.
	Embed(dst []float64, inc int, x, centre []float64)
	// Columns stores the Dist2 of x to len(dst) points in dst, with the same bits. The d-th part
	// of yt holds the d-th coordinates of the points. It returns false and does nothing if single
	// pairs are faster.
	Columns(dst, x, yt []float64) bool
}

// FillDist2 stores r² of every pair of the tile in dst.
//
// A matrix product computes r² as |a|² + |b|² − 2aᵀb in coordinates a, b relative to the mean of
// X. If cancellation or large coordinates would be visible in k, differences compute it again.
// With u = 2⁻⁵³ the rounding error ε of the product stays below (2√D + 8) u (|a|² + |b|²) unless
// errors conspire. The relative error of k stays below 0.6 ε max(1, 1/r) for every profile.
func FillDist2[M Metric](k M, dst []float64, t *Tile) {
	n, m := t.X.Rows, t.Y.Rows
	dim := k.Features(t.X.Cols)
	if (dim == 0 || t.Centre == nil) && fillColumns(k, dst, t) {
		return
	}
	if dim == 0 {
		for i := range n {
			for j := range m {
				dst[i*m+j] = k.Dist2(Row(t.X, i), Row(t.Y, j))
			}
		}
		return
	}
	mark := t.top
	na, nb := fillProducts(k, dst, t, dim)
	const tol = 1.5e-12
	c := (2*math.Sqrt(float64(dim)) + 8) * 0x1p-53 / tol
	for i := range n {
		row := dst[i*m : (i+1)*m]
		for j, ab := range row {
			norms := na[i] + nb[j]
			r2 := norms + ab
			// The condition means ε ≤ tol and ε ≤ tol·r, with ε = tol·c·norms. NaN fails.
			if c*norms <= 1 && r2 > norms*(1e-6+c*c*norms) {
				row[j] = r2
			} else {
				row[j] = k.Dist2(Row(t.X, i), Row(t.Y, j))
			}
		}
	}
	t.top = mark
}

// fillColumns is FillDist2 by Columns. It returns false if Columns is slower.
func fillColumns[M Metric](k M, dst []float64, t *Tile) bool {
	m := t.Y.Rows
	mark := t.top
	yt := t.Get(t.X.Cols * m)
	for j := range m {
		for d, v := range Row(t.Y, j) {
			yt[d*m+j] = v
		}
	}
	ok := true
	for i := 0; i < t.X.Rows && ok; i++ {
		ok = k.Columns(dst[i*m:(i+1)*m], Row(t.X, i), yt)
	}
	t.top = mark
	return ok
}

// fillProducts stores −2aᵀb of every pair of the tile in dst, in dim coordinates. It returns all
// |a|² and all |b|² in scratch of the tile.
func fillProducts[M Metric](k M, dst []float64, t *Tile, dim int) (na, nb []float64) {
	n, m := t.X.Rows, t.Y.Rows
	a, bt, na, nb := t.Get(n*dim), t.Get(dim*m), t.Get(n), t.Get(m)
	for i := range n {
		row := a[i*dim : (i+1)*dim]
		k.Embed(row, 1, Row(t.X, i), t.Centre)
		na[i] = 0
		for _, v := range row {
			na[i] += v * v
		}
	}
	for j := range m {
		k.Embed(bt[j:], m, Row(t.Y, j), t.Centre)
	}
	clear(nb)
	for d := range dim {
		for j, v := range bt[d*m : (d+1)*m] {
			nb[j] += v * v
		}
	}
	// The order of the sum over the features does not depend on n and m, so an entry has the same
	// bits in every tile.
	dense.Gemm(blas.NoTrans, blas.NoTrans, -2, dense.General(a, n, dim),
		dense.General(bt, dim, m), 0, dense.General(dst, n, m))
	return na, nb
}

// Products stores Σ_d scale(d)² x_d y_d of every pair of the tile in dst. Gonum sums over the
// columns in order for any size of a tile, and rounds each product as a loop over them does. An
// entry therefore has the bits of that loop in every tile. Gemm is serial at the size of a tile.
func Products(dst []float64, t *Tile, scale func(d int) float64) {
	n, m, dim := t.X.Rows, t.Y.Rows, t.X.Cols
	mark := t.top
	a, bt := t.Get(n*dim), t.Get(dim*m)
	for i := range n {
		for d, v := range Row(t.X, i) {
			a[i*dim+d] = scale(d) * v
		}
	}
	for j := range m {
		for d, v := range Row(t.Y, j) {
			bt[d*m+j] = scale(d) * v
		}
	}
	blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(a, n, dim),
		dense.General(bt, dim, m), 0, dense.General(dst, n, m))
	t.top = mark
}
