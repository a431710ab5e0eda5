package dense

import (
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Delayed holds changes of low rank to a covariance C, the lower triangle of an n×n matrix, that
// have not been applied yet:
//
//	V = C − X_pᵀX_p + X_nᵀX_n.
//
// X_p and X_n are the rows of several expansions, one after the other. Subtracting a product of
// low rank from a large C takes as long as reading C from memory, so several changes together
// take as long as one. Until then, Rows computes rows of V from C and X. Package site uses it for
// its blocks of sites. A Delayed reuses its memory.
type Delayed struct {
	x  Expansion
	at [2][]float64 // columns of X_p and X_n that Rows needs, transposed
	// row is the row of C from which on the changes have not been applied. Add requires that it
	// is 0.
	row int
}

// Reset drops all changes.
func (d *Delayed) Reset() {
	d.x.xp, d.x.xn, d.row = d.x.xp[:0], d.x.xn[:0], 0
}

// Add adds the expansion x of C to the changes. It keeps no reference to x.
func (d *Delayed) Add(x *Expansion) {
	d.x.cols, d.x.halt = x.cols, x.halt
	d.x.xp, d.x.xn = append(d.x.xp, x.xp...), append(d.x.xn, x.xn...)
}

// Rank returns the number of rows of X_p and X_n.
func (d *Delayed) Rank() int { return (len(d.x.xp) + len(d.x.xn)) / max(1, d.x.cols) }

// Begun reports whether Apply was halted midway.
func (d *Delayed) Begun() bool { return d.row > 0 }

// Apply applies the changes to c, and reports whether it finished. If h halts it, the next call
// continues, with the same bits.
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

// Parts returns pointers to X_p and X_n, which have n columns, so that they can be saved and
// restored.
func (d *Delayed) Parts(n int) [2]*[]float64 {
	d.x.cols = n
	return [2]*[]float64{&d.x.xp, &d.x.xn}
}

// From delayedShared numbers on, goroutines share the columns of Rows in parts of delayedColumns.
const (
	delayedColumns = 192
	delayedShared  = 1 << 14
)

// Rows stores the rows of V with the increasing indices at in dst, a len(at)×n matrix. C has n
// rows. Rows does not apply the changes.
func (d *Delayed) Rows(h *parallel.Halt, dst, c []float64, n int, at []int) {
	d.at[0], d.at[1] = columnsAt(d.at[0], d.x.xp, n, at), columnsAt(d.at[1], d.x.xn, n, at)
	if workers := h.Workers(); workers > 1 && len(at)*n >= delayedShared {
		parallel.For(n, delayedColumns, workers,
			func(_, lo, hi int) { d.rows(dst, c, n, at, lo, hi) })
		return
	}
	d.rows(dst, c, n, at, 0, n)
}

// columnsAt stores X[:, at]ᵀ in dst and returns it.
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

// rows computes columns lo … hi−1 of Rows.
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

// gathered is the number of rows of C that below reads at a time, such that their elements in a
// column fill a cache line.
const gathered = 8

// below stores the elements left of the diagonal of rows from … to−1 of C, in the columns at, in
// dst. There are at most gathered rows.
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
