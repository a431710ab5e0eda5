package dense

import (
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Delayed are changes of low rank of a covariance C, lower triangle of n×n, that are yet to be
// made:
//
//	V = C − X_pᵀX_p + X_nᵀX_n,
//
// where X_p and X_n are the rows of several expansions, one after the other. A product of low rank
// with itself that is subtracted from all of a large C waits for C to come from memory; those of
// several changes together do so once. Rows of V meanwhile take products with the rows of X.
// Storage is reused.
type Delayed struct {
	x  Expansion
	at [2][]float64 // the columns of X_p and X_n that Rows is asked for, transposed
	// of C from which on the changes are yet to be made; others can only be added where it is 0
	row int
}

// Reset forgets all changes.
func (d *Delayed) Reset() {
	d.x.xp, d.x.xn, d.row = d.x.xp[:0], d.x.xn[:0], 0
}

// Add adds the changes of x, of C, to those that are yet to be made. It keeps no reference to x.
func (d *Delayed) Add(x *Expansion) {
	d.x.cols, d.x.halt = x.cols, x.halt
	d.x.xp, d.x.xn = append(d.x.xp, x.xp...), append(d.x.xn, x.xn...)
}

// Rank returns the number of rows of X_p and X_n.
func (d *Delayed) Rank() int { return (len(d.x.xp) + len(d.x.xn)) / max(1, d.x.cols) }

// Begun reports whether Apply was halted on its way.
func (d *Delayed) Begun() bool { return d.row > 0 }

// Apply makes the changes, and reports whether it did so to the end. Where h halts it, the next
// call goes on, to the same bits.
func (d *Delayed) Apply(h *parallel.Halt, c []float64) bool {
	if d.Rank() == 0 {
		return true
	}
	d.x.halt = h
	if d.row = d.x.subCovFrom(c, d.row); d.row < d.x.cols {
		return false
	}
	d.Reset()
	return true
}

// Parts returns X_p and X_n, of n columns, to be saved and set.
func (d *Delayed) Parts(n int) [2]*[]float64 {
	d.x.cols = n
	return [2]*[]float64{&d.x.xp, &d.x.xn}
}

// Rows of V are shared in parts of so many columns, from so many numbers in all on.
const (
	delayedColumns = 192
	delayedShared  = 1 << 14
)

// Rows stores the rows of V at the given numbers, increasing, in dst, len(at)×n, where C has n. The
// changes are still to be made.
func (d *Delayed) Rows(h *parallel.Halt, dst, c []float64, n int, at []int) {
	d.at[0], d.at[1] = columnsAt(d.at[0], d.x.xp, n, at), columnsAt(d.at[1], d.x.xn, n, at)
	if workers := h.Workers(); workers > 1 && len(at)*n >= delayedShared {
		parallel.For(n, delayedColumns, workers,
			func(_, lo, hi int) { d.rows(dst, c, n, at, lo, hi) })
		return
	}
	d.rows(dst, c, n, at, 0, n)
}

// columnsAt returns X[:, at]ᵀ, in dst.
func columnsAt(dst, x []float64, n int, at []int) []float64 {
	rank := len(x) / max(1, n)
	dst = Resize(dst, len(at)*rank)
	for k := range rank {
		row := x[k*n : (k+1)*n]
		for a, i := range at {
			dst[a*rank+k] = row[i]
		}
	}
	return dst
}

// rows is Rows for columns lo … hi−1.
func (d *Delayed) rows(dst, c []float64, n int, at []int, lo, hi int) {
	for a, i := range at {
		if lo <= i {
			copy(dst[a*n+lo:a*n+min(hi, i+1)], c[i*n+lo:])
		}
	}
	for j := lo; j < hi; j += gathered {
		d.below(dst, c, n, at, j, min(j+gathered, hi))
	}
	to, run := rowsOf(dst, n).Slice(0, lo, len(at), hi-lo), fma.Run{Workers: 1}
	for k, part := range [2]struct {
		sign float64
		x    []float64
	}{{-1, d.x.xp}, {1, d.x.xn}} {
		if rank := len(part.x) / max(1, n); rank > 0 {
			fma.Gemm(run, part.sign, rowsOf(d.at[k], rank),
				rowsOf(part.x, n).Slice(0, lo, rank, hi-lo), to)
		}
	}
}

// gathered is how many rows of C are read at a time where columns are asked for: what these store
// then fills a line of the cache.
const gathered = 8

// below stores in dst what rows from … to−1 of C, at most gathered, have left of the diagonal in
// the columns at.
func (d *Delayed) below(dst, c []float64, n int, at []int, from, to int) {
	for a, i := range at {
		if i >= to-1 {
			return
		}
		for j := max(from, i+1); j < to; j++ {
			dst[a*n+j] = c[j*n+i]
		}
	}
}
