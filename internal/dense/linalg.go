// Package dense is linear algebra on row-major slices, over gonum's BLAS and LAPACK: Cholesky
// factors, packed triangles, and the algebra of Gaussian sites.
package dense

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	lapack "gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// Dense symmetric and triangular matrices are n×n, row-major, and only their lower triangle
// is read.

// panel is the number of columns that a call of BLAS or LAPACK gets at a time: few enough for
// gonum to keep it on this goroutine.
const panel = 64

// Symmetric returns a as a symmetric matrix for BLAS. It does not copy.
func Symmetric(a []float64, n int) blas64.Symmetric {
	return blas64.Symmetric{Uplo: blas.Lower, N: n, Data: a, Stride: max(1, n)}
}

// LowerTriangle returns the lower triangle of a as a matrix for BLAS. It does not copy.
func LowerTriangle(a []float64, n int) blas64.Triangular {
	return blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: a, Stride: max(1, n)}
}

// General returns a as a matrix for BLAS. It does not copy.
func General(a []float64, rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Data: a, Stride: max(1, cols)}
}

// Vector returns a as a vector for BLAS. It does not copy.
func Vector(a []float64) blas64.Vector { return blas64.Vector{N: len(a), Data: a, Inc: 1} }

// Cholesky replaces the lower triangle of a by L with a = LLᵀ and reports
// whether a is positive definite and finite.
//
// It factorises a panel at a time, so that every call into LAPACK and BLAS is
// of a size that stays on this goroutine: the same bits on any number of cores
// and nothing allocated.
func Cholesky(a []float64, n int) bool { return CholeskyUntil(nil, a, n) }

// CholeskyUntil is Cholesky, which also reports false where h has stopped.
func CholeskyUntil(h *parallel.Halt, a []float64, n int) bool {
	for k := 0; k < n; k += panel {
		p := min(panel, n-k)
		diag := blas64.Symmetric{Uplo: blas.Lower, N: p, Data: a[k*n+k:], Stride: n}
		l, ok := lapack64.Potrf(diag)
		if !ok || h.Stopped() {
			return false
		}
		if k+p < n {
			below := blas64.General{Rows: n - k - p, Cols: p, Data: a[(k+p)*n+k:], Stride: n}
			blas64.Trsm(blas.Right, blas.Trans, 1, l, below)
			rest := blas64.General{Rows: n - k - p, Cols: n - k - p, Data: a[(k+p)*n+k+p:], Stride: n}
			if !addSquare(h, rest, -1, below, blas.NoTrans) {
				return false
			}
		}
	}
	for i := range n {
		if math.IsInf(a[i*n+i], 0) {
			return false
		}
	}
	return true
}

// wide is the number of columns that a call of BLAS gets at most where the other dimension is a panel.
const wide = 3 * panel

// addSquare adds sign·xxᵀ, or for Trans sign·xᵀx, to the lower triangle of c, which is square: to a panel of rows at a
// time, between which it reports false where h has stopped. The bits are those of Syrk.
func addSquare(h *parallel.Halt, c blas64.General, sign float64, x blas64.General, t blas.Transpose) bool {
	for i := 0; i < c.Rows; i += panel {
		if h.Stopped() {
			return false
		}
		addPanel(c, i, sign, x, t)
	}
	return true
}

// addPanel is addSquare for the panel of rows from i on.
func addPanel(c blas64.General, i int, sign float64, x blas64.General, t blas.Transpose) {
	at, u := func(i, n int) blas64.General { return slice(x, i, 0, n, x.Cols) }, blas.Trans
	if t == blas.Trans {
		at, u = func(i, n int) blas64.General { return slice(x, 0, i, x.Rows, n) }, blas.NoTrans
	}
	p := min(panel, c.Rows-i)
	rows := at(i, p)
	for j := 0; j < i; j += wide {
		q := min(wide, i-j)
		blas64.Gemm(t, u, sign, rows, at(j, q), 1, slice(c, i, j, p, q))
	}
	blas64.Syrk(t, sign, rows, 1, blas64.Symmetric{Uplo: blas.Lower, N: p, Data: c.Data[i*c.Stride+i:], Stride: c.Stride})
}

// AddProduct adds sign·xxᵀ to the lower triangle of c, n×n, x having n rows. It returns early where h has stopped. The
// bits are those of Syrk.
func AddProduct(h *parallel.Halt, c []float64, n int, sign float64, x blas64.General) {
	addSquare(h, General(c, n, n), sign, x, blas.NoTrans)
}

// slice returns the n×m part of x from row i and column j on.
func slice(x blas64.General, i, j, n, m int) blas64.General {
	return blas64.General{Rows: n, Cols: m, Data: x.Data[i*x.Stride+j:], Stride: x.Stride}
}

// solveLower replaces b, n×cols, by L⁻¹b, and returns early where h has stopped. The bits are those of Trsm.
func solveLower(h *parallel.Halt, l []float64, n int, b blas64.General) {
	for j := 0; j < b.Cols; j += wide {
		q := min(wide, b.Cols-j)
		for i := 0; i < n; i += panel {
			if h.Stopped() {
				return
			}
			p := min(panel, n-i)
			rows := slice(b, i, j, p, q)
			if i > 0 {
				blas64.Gemm(blas.NoTrans, blas.NoTrans, -1, slice(General(l, n, n), i, 0, p, i), slice(b, 0, j, i, q), 1, rows)
			}
			blas64.Trsm(blas.Left, blas.NoTrans, 1, blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: p, Data: l[i*n+i:], Stride: n}, rows)
		}
	}
}

// InvertLower replaces L by L⁻¹, and returns early where h has stopped. The bits are those of Trtri.
func InvertLower(h *parallel.Halt, l []float64, n int) {
	lower := func(i, n2 int) blas64.Triangular {
		return blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n2, Data: l[i*n+i:], Stride: n}
	}
	for j := (n - 1) / panel * panel; j >= 0; j -= panel {
		p := min(panel, n-j)
		if rest := n - j - p; rest > 0 {
			for c := 0; c < p; c += panel / 4 {
				if h.Stopped() {
					return
				}
				blas64.Trmm(blas.Left, blas.NoTrans, 1, lower(j+p, rest), slice(General(l, n, n), j+p, j+c, rest, min(panel/4, p-c)))
			}
			blas64.Trsm(blas.Right, blas.NoTrans, -1, lower(j, p), slice(General(l, n, n), j+p, j, rest, p))
		}
		lapack64.Trtri(lower(j, p))
	}
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

// InvertUntil replaces L by the lower triangle of (LLᵀ)⁻¹, and returns early where h has stopped. The bits are those of Potri.
func InvertUntil(h *parallel.Halt, l []float64, n int) {
	InvertLower(h, l, n)
	SquareLower(h, l, n)
}

// SquareLower replaces L by the lower triangle of LᵀL, and returns early where h has stopped.
func SquareLower(h *parallel.Halt, l []float64, n int) {
	var own lapack.Implementation
	for i := 0; i < n; i += panel { // L⁻ᵀL⁻¹
		if h.Stopped() {
			return
		}
		p, rest := min(panel, n-i), max(0, n-i-panel)
		blas64.Trmm(blas.Left, blas.Trans, 1, blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: p, Data: l[i*n+i:], Stride: n}, slice(General(l, n, n), i, 0, p, i))
		own.Dlauum(blas.Lower, p, l[i*n+i:], n)
		if rest > 0 {
			below := slice(General(l, n, n), i+p, i, rest, p)
			if i > 0 {
				blas64.Gemm(blas.Trans, blas.NoTrans, 1, below, slice(General(l, n, n), i+p, 0, rest, i), 1, slice(General(l, n, n), i, 0, p, i))
			}
			blas64.Syrk(blas.Trans, 1, below, 1, blas64.Symmetric{Uplo: blas.Lower, N: p, Data: l[i*n+i:], Stride: n})
		}
	}
}

// FillUpper copies the lower triangle of a to the upper.
func FillUpper(a []float64, n int) {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
}

// AllFinite reports whether no element is NaN or infinite, and otherwise the
// index of the first that is.
func AllFinite(x []float64) (int, bool) {
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return i, false
		}
	}
	return 0, true
}

// Resize returns a slice of length n. It reuses s where its capacity allows. The
// contents are unspecified.
func Resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// room is Resize with room for later sizes up to most.
func room[T any](s []T, n, most int) []T {
	if cap(s) < n || s == nil {
		return make([]T, n, max(n, most))
	}
	return s[:n]
}

// Dest returns dst if it has length n, a new slice if it is nil, and panics otherwise.
func Dest(dst []float64, n int) []float64 {
	if dst == nil {
		return make([]float64, n)
	}
	if len(dst) != n {
		panic("pgsvi: dst has the wrong length")
	}
	return dst
}

// FullSym returns a copy of the d×d matrix whose lower triangle is in a, d ≥ 1.
func FullSym(a []float64, d int) *mat.SymDense {
	s := mat.NewSymDense(d, nil)
	for i := range d {
		for j := range i + 1 {
			s.SetSym(i, j, a[i*d+j])
		}
	}
	return s
}

// PackLower returns the lower triangle of a, n×n, row by row.
func PackLower(a []float64, n int) []float64 {
	s := make([]float64, 0, n*(n+1)/2)
	for i := range n {
		s = append(s, a[i*n:i*n+i+1]...)
	}
	return s
}

// UnpackLower is the inverse of PackLower; the upper triangle is zero.
func UnpackLower(s []float64, n int) []float64 {
	a := make([]float64, n*n)
	for i := range n {
		copy(a[i*n:], s[i*(i+1)/2:(i+1)*(i+2)/2])
	}
	return a
}

// NewRows returns n slices of zeros, of length and capacity d, in one block of memory.
func NewRows(n, d int) [][]float64 {
	data := make([]float64, n*d)
	r := make([][]float64, n)
	for i := range r {
		r[i] = data[i*d : (i+1)*d : (i+1)*d]
	}
	return r
}

// Unpack writes the packed lower triangle p as a full matrix a, with the
// diagonal and the off-diagonal elements multiplied by the given factors.
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

// Pack writes the symmetric part of the full matrix a as a packed lower
// triangle, with the diagonal and the off-diagonal elements multiplied by the given factors.
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

// DotRow returns the inner product of row i of a, which has d columns, and x.
func DotRow(a []float64, d, i int, x []float64) float64 {
	return blas64.Dot(Vector(a[i*d:(i+1)*d]), Vector(x))
}

// MulLower stores the lower triangle of al in p, packed, for a full d×d and l lower
// triangular. It takes a panel of columns at a time and leaves out the rows above it, which
// are not part of the lower triangle. It allocates two panels.
func MulLower(p, a, l []float64, d int) {
	w := min(panel, d)
	in, out := make([]float64, d*w), make([]float64, d*w)
	for j := 0; j < d; j += w {
		w, n := min(w, d-j), d-j
		for i := range n {
			row := in[i*w : (i+1)*w]
			clear(row[copy(row, l[(j+i)*d+j:(j+i)*d+j+min(i+1, w)]):])
		}
		blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, blas64.General{Rows: n, Cols: n, Data: a[j*d+j:], Stride: d}, General(in, n, w), 0, General(out, n, w))
		for i := range n {
			r := j + i
			copy(p[r*(r+1)/2+j:], out[i*w:i*w+min(i+1, w)])
		}
	}
}

// MulSquare stores ab in c, all d×d and full.
func MulSquare(c, a, b []float64, d int) {
	blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, General(a, d, d), General(b, d, d), 0, General(c, d, d))
}
