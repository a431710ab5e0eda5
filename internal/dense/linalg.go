// Package dense implements linear algebra on row-major slices: Cholesky factors, packed
// triangles, and the algebra of Gaussian sites. It builds on package fma, so its results have the
// same bits on every processor. The root package and almost all engines use it.
//
//	linalg.go	Cholesky factors, inverses, copies and packed triangles
//	blas.go	BLAS with the types of blas64
//	sites.go	Gaussians whose sites change
//	sites_inverse.go	variances and weights from the inverse of a factor
//	delayed.go	changes of a covariance that are applied later
//	double.go	matrices with twice the digits of float64
//	pivots.go	pivoted Cholesky factors of low rank
//	eigen.go	eigenvalues
//	krylov.go	leading eigenvectors
//	median.go	medians
//
// Dense symmetric and triangular matrices are n×n, row by row, and only their lower triangle is
// read. If a function takes a parallel.Halt h, it returns early after h has stopped, and its
// results are then invalid.
package dense

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Cholesky replaces the lower triangle of a by L with a = LLᵀ, and reports whether a is positive
// definite and finite.
func Cholesky(a []float64, n int) bool { return CholeskyUntil(nil, a, n) }

// CholeskyUntil is like Cholesky. It also reports false if h has stopped.
func CholeskyUntil(h *parallel.Halt, a []float64, n int) bool {
	return fma.Cholesky(fma.Run{Halt: h}, square(a, n))
}

// AddProduct adds sign·xxᵀ to the lower triangle of c, where x has n rows. It returns early if h
// has stopped.
func AddProduct(h *parallel.Halt, c []float64, n int, sign float64, x blas64.General) {
	fma.Syrk(fma.Run{Halt: h}, sign, view(blas.NoTrans, x), square(c, n))
}

// AddWeighted adds x diag(w) xᵀ to the lower triangle of c, where x has n rows. It returns early
// if h has stopped.
func AddWeighted(h *parallel.Halt, c []float64, n int, w []float64, x blas64.General) {
	fma.Gram(fma.Run{Halt: h}, w, view(blas.Trans, x), square(c, n))
}

// InvertLower replaces L by L⁻¹. It returns early if h has stopped.
func InvertLower(h *parallel.Halt, l []float64, n int) {
	fma.InvertLower(fma.Run{Halt: h}, square(l, n))
}

// LogDet returns log|LLᵀ| = 2 Σ log L_ii.
func LogDet(l []float64, n int) float64 {
	var s float64
	for i := range n {
		s += math.Log(l[i*n+i])
	}
	return 2 * s
}

// Invert replaces L by the full symmetric (LLᵀ)⁻¹.
func Invert(l []float64, n int) {
	InvertUntil(nil, l, n)
	FillUpper(l, n)
}

// InvertUntil replaces L by the lower triangle of (LLᵀ)⁻¹. It returns early if h has stopped.
func InvertUntil(h *parallel.Halt, l []float64, n int) {
	fma.Invert(fma.Run{Halt: h}, square(l, n))
}

// SquareLower replaces L by the lower triangle of LᵀL. It returns early if h has stopped.
func SquareLower(h *parallel.Halt, l []float64, n int) {
	fma.SquareLower(fma.Run{Halt: h}, square(l, n))
}

// diagonalPart is the largest correlation in a matrix that counts as diagonal.
const diagonalPart = 1e-3

// NearlyDiagonal reports whether all correlations of the n×n matrix k are at most diagonalPart,
// and n > 1.
func NearlyDiagonal(k []float64, n int) bool {
	for i := range n {
		for j := range i {
			if math.Abs(k[i*n+j]) > diagonalPart*math.Sqrt(k[i*n+i]*k[j*n+j]) {
				return false
			}
		}
	}
	return n > 1
}

// FillUpper copies the lower triangle of a to the upper triangle.
func FillUpper(a []float64, n int) {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
}

// From copiedShared numbers on, which take about 100 µs, goroutines share rows that are copied or
// scaled, copiedRows at a time.
const (
	copiedRows   = 48
	copiedShared = 1 << 18
)

// sharedRows returns how many of the goroutines that h lends should process the given amount of
// numbers once.
func sharedRows(h *parallel.Halt, numbers int) int {
	if numbers < copiedShared {
		return 1
	}
	return h.Workers()
}

// Copy copies src to dst like copy, but uses as many goroutines as h lends.
func Copy(h *parallel.Halt, dst, src []float64) {
	n := min(len(dst), len(src))
	if workers := sharedRows(h, n); workers > 1 {
		parallel.For(n, copiedShared/4, workers,
			func(_, lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
		return
	}
	copy(dst[:n], src[:n])
}

// CopyLower copies the lower triangle of src to the lower triangle of dst, both n×n, on the
// goroutines that h lends.
func CopyLower(h *parallel.Halt, dst, src []float64, n int) {
	if workers := sharedRows(h, n*n); workers > 1 {
		parallel.For(n, copiedRows, workers, func(_, lo, hi int) { copyLower(dst, src, n, lo, hi) })
		return
	}
	copyLower(dst, src, n, 0, n)
}

// copyLower is CopyLower for rows lo … hi−1.
func copyLower(dst, src []float64, n, lo, hi int) {
	for i := lo; i < hi; i++ {
		copy(dst[i*n:i*n+i+1], src[i*n:])
	}
}

// squaredColumns is the number of columns whose squares a goroutine adds up at a time.
const squaredColumns = 128

// columnSquares stores the sums of the squares of each column of L, n×n, in dst.
func columnSquares(h *parallel.Halt, dst, l []float64, n int) {
	clear(dst)
	if workers := sharedRows(h, n*n); workers > 1 {
		parallel.For(n, squaredColumns, workers,
			func(_, lo, hi int) { addSquares(dst, l, n, lo, hi) })
		return
	}
	addSquares(dst, l, n, 0, n)
}

// addSquares adds the squares of columns lo … hi−1 of L, n×n, to dst.
func addSquares(dst, l []float64, n, lo, hi int) {
	for i := lo; i < n; i++ {
		to := min(hi, i+1)
		fma.AddSquares(dst[lo:to], 0, l[i*n+lo:i*n+to])
	}
}

// AllFinite reports whether no element is NaN or infinite, and otherwise the
// index of the first that is.
func AllFinite(x []float64) (int, bool) {
	// If the sum of squares is finite, all elements are. The converse fails if the sum overflows.
	if s := fma.Dot(x, x); s-s == 0 {
		return 0, true
	}
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return i, false
		}
	}
	return 0, true
}

// Resize returns a slice of length n, which reuses s if its capacity is large enough. The
// contents are unspecified.
func Resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// ResizeAll resizes several slices. If any of them is too short, all get memory from a single new
// block.
func ResizeAll(n int, slices ...*[]float64) {
	enough := true
	for _, s := range slices {
		enough = enough && cap(*s) >= n
	}
	var block []float64
	if !enough {
		block = make([]float64, len(slices)*n)
	}
	for i, s := range slices {
		if enough {
			*s = (*s)[:n]
		} else {
			*s = block[i*n : (i+1)*n : (i+1)*n]
		}
	}
}

// room is like Resize, but allocates enough capacity for later sizes up to most.
func room[T any](s []T, n, most int) []T {
	if cap(s) < n || s == nil {
		return make([]T, n, max(n, most))
	}
	return s[:n]
}

// Dest returns dst if it has length n, or a new slice if dst is nil. It panics if dst has another
// length.
func Dest(dst []float64, n int) []float64 {
	if dst == nil {
		return make([]float64, n)
	}
	if len(dst) != n {
		panic("pgsvi: dst has the wrong length")
	}
	return dst
}

// FullSym returns a copy of the d×d matrix whose lower triangle is in a, for d ≥ 1.
func FullSym(a []float64, d int) *mat.SymDense {
	s := mat.NewSymDense(d, nil)
	for i := range d {
		for j := range i + 1 {
			s.SetSym(i, j, a[i*d+j])
		}
	}
	return s
}

// PackLower returns the lower triangle of the n×n matrix a, row by row.
func PackLower(a []float64, n int) []float64 {
	s := make([]float64, 0, n*(n+1)/2)
	for i := range n {
		s = append(s, a[i*n:i*n+i+1]...)
	}
	return s
}

// UnpackLower is the inverse of PackLower. The upper triangle of the result is zero.
func UnpackLower(s []float64, n int) []float64 {
	a := make([]float64, n*n)
	for i := range n {
		copy(a[i*n:], s[i*(i+1)/2:(i+1)*(i+2)/2])
	}
	return a
}

// NewRows returns n slices of d zeros, which lie in a single block of memory.
func NewRows(n, d int) [][]float64 {
	data := make([]float64, n*d)
	r := make([][]float64, n)
	for i := range r {
		r[i] = data[i*d : (i+1)*d : (i+1)*d]
	}
	return r
}

// RowsOf returns the rows of m, which share the memory of m.
func RowsOf(m *mat.Dense) [][]float64 {
	n, _ := m.Dims()
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = m.RawRowView(i)
	}
	return rows
}

// Unpack writes the packed lower triangle p as a full matrix a. It multiplies the diagonal and
// the other elements by the given factors.
func Unpack(a, p []float64, d int, diag, off float64) {
	k := 0
	for i := range d {
		for j := range i {
			a[i*d+j], a[j*d+i] = off*p[k], off*p[k]
			k++
		}
		a[i*d+i] = diag * p[k]
		k++
	}
}

// Pack writes the symmetric part of the full matrix a as a packed lower triangle. It multiplies the
// diagonal and the other elements by the given factors.
func Pack(p, a []float64, d int, diag, off float64) {
	k := 0
	for i := range d {
		for j := range i {
			p[k] = off * 0.5 * (a[i*d+j] + a[j*d+i])
			k++
		}
		p[k] = diag * a[i*d+i]
		k++
	}
}

// DotRow returns the inner product of x and row i of a, which has d columns.
func DotRow(a []float64, d, i int, x []float64) float64 {
	return fma.Dot(a[i*d:(i+1)*d], x)
}

// MulLower stores the lower triangle of al in p, packed, where a is full and l is lower
// triangular, both d×d. It processes a panel of columns at a time, and leaves out the rows above
// the panel, which are not part of the lower triangle. It allocates two panels.
func MulLower(p, a, l []float64, d int) {
	const panel = 96
	w := min(panel, d)
	in, out := make([]float64, d*w), make([]float64, d*w)
	for j := 0; j < d; j += w {
		w, n := min(w, d-j), d-j
		for i := range n {
			row := in[i*w : (i+1)*w]
			clear(row[copy(row, l[(j+i)*d+j:(j+i)*d+j+min(i+1, w)]):])
		}
		Gemm(blas.NoTrans, blas.NoTrans, 1,
			blas64.General{Rows: n, Cols: n, Data: a[j*d+j:], Stride: d}, General(in, n, w), 0,
			General(out, n, w))
		for i := range n {
			r := j + i
			copy(p[r*(r+1)/2+j:], out[i*w:i*w+min(i+1, w)])
		}
	}
}

// MulSquare stores ab in c, where all matrices are d×d and full.
func MulSquare(c, a, b []float64, d int) {
	Gemm(blas.NoTrans, blas.NoTrans, 1, General(a, d, d), General(b, d, d), 0, General(c, d, d))
}
