package dense

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// eigenPanel is the number of columns that are made tridiagonal before the other columns are
// updated. With 16 it took a quarter more time at 2000 columns, and with 64 it took the same
// time.
const eigenPanel = 32

// Eigenvalues stores the eigenvalues of a symmetric n×n matrix in dst, in increasing order. It
// reads and overwrites the lower triangle of a. It reports false if it does not find them or h
// stops, which it checks for each column. Packages gauss and learn call it.
//
// Householder reflections make the matrix tridiagonal, panel by panel (Dongarra, Sorensen and
// Hammarling 1989). The error of each eigenvalue is at most about the rounding error of the
// largest.
func Eigenvalues(h *parallel.Halt, dst, a []float64, n int) bool {
	off := make([]float64, max(0, n-1))
	v, w := NewRows(eigenPanel, n), NewRows(eigenPanel, n)
	for lo := 0; lo < n; lo += eigenPanel {
		cols := min(eigenPanel, n-lo)
		for j := range cols {
			if h.Stopped() {
				return false
			}
			tridiagonalColumn(dst, off, a, n, lo+j, v[:j+1], w[:j+1])
		}
		for i := lo + cols; i < n; i++ {
			if h.Stopped() {
				return false
			}
			row := a[i*n+lo+cols : i*n+i+1]
			for j := range cols {
				fma.Axpy(-v[j][i], w[j][lo+cols:i+1], row)
				fma.Axpy(-w[j][i], v[j][lo+cols:i+1], row)
			}
		}
	}
	return tridiagonal(h, dst[:n], append(off, 0))
}

// eigenTurns is the largest number of steps for an eigenvalue of a tridiagonal matrix. Two steps
// are usual.
const eigenTurns = 50

// tridiagonal replaces the diagonal d of a tridiagonal matrix by its eigenvalues, in increasing
// order. It uses the implicit QL method (Dubrulle, Martin and Wilkinson 1968). It overwrites off,
// which holds the off-diagonal elements and an additional element for its own use.
func tridiagonal(h *parallel.Halt, d, off []float64) bool {
	n, size := len(d), 0.0
	for i, x := range d {
		size = max(size, math.Abs(x), math.Abs(off[i]))
	}
	for l := range n {
		for turn := 0; ; turn++ {
			m := l // the block from l to m has no negligible off-diagonal element
			for m < n-1 && math.Abs(off[m]) > Epsilon*size {
				m++
			}
			if m == l {
				break
			}
			if turn == eigenTurns || h.Stopped() {
				return false
			}
			turnBlock(d, off, l, m)
		}
	}
	slices.Sort(d)
	_, ok := AllFinite(d)
	return ok
}

// turnBlock takes a step of QL with Wilkinson's shift on the block from l to m.
func turnBlock(d, off []float64, l, m int) {
	g := (d[l+1] - d[l]) / (2 * off[l])
	g = d[m] - d[l] + off[l]/(g+math.Copysign(math.Hypot(g, 1), g))
	sin, cos, moved := 1.0, 1.0, 0.0
	for i := m - 1; i >= l; i-- {
		f, b := sin*off[i], cos*off[i]
		r := math.Hypot(f, g)
		off[i+1] = r
		if r == 0 { // the block splits
			d[i+1] -= moved
			off[m] = 0
			return
		}
		sin, cos = f/r, g/r
		g = d[i+1] - moved
		r = (d[i]-g)*sin + 2*cos*b
		moved = sin * r
		d[i+1] = g + moved
		g = cos*r - b
	}
	d[l] -= moved
	off[l], off[m] = g, 0
}

// tridiagonalColumn computes column k of the tridiagonal matrix, and stores its diagonal element
// and the element below it. The matrix before the step is A − VWᵀ − WVᵀ, where v and w hold the
// rows of Vᵀ and Wᵀ of this panel. Their last rows are for this column.
func tridiagonalColumn(diag, off, a []float64, n, k int, v, w [][]float64) {
	last := len(v) - 1
	x, y := v[last], w[last]
	clear(y)
	for i := k; i < n; i++ {
		x[i] = a[i*n+k]
	}
	for j := range last {
		fma.Axpy(-w[j][k], v[j][k:], x[k:])
		fma.Axpy(-v[j][k], w[j][k:], x[k:])
	}
	diag[k] = x[k]
	clear(x[:k+1])
	if k == n-1 {
		return
	}
	rest, norm := x[k+1:], 0.0
	for _, r := range rest {
		norm = math.Hypot(norm, r)
	}
	off[k] = -math.Copysign(norm, rest[0])
	if norm == 0 {
		clear(rest)
		return
	}
	// The reflection is I − τxxᵀ, where the first element of x is 1.
	head := rest[0] - off[k]
	tau := -head / off[k]
	for i := range rest {
		rest[i] /= head
	}
	rest[0] = 1
	to := y[k+1:]
	fma.Symv(fma.Run{}, 1, fma.Of(a[(k+1)*(n+1):], n-k-1, n-k-1, n), rest, to)
	for j := range last {
		vx, wx := fma.Dot(v[j][k+1:], rest), fma.Dot(w[j][k+1:], rest)
		fma.Axpy(-wx, v[j][k+1:], to)
		fma.Axpy(-vx, w[j][k+1:], to)
	}
	for i := range to {
		to[i] *= tau
	}
	fma.Axpy(-0.5*tau*fma.Dot(to, rest), rest, to)
}
