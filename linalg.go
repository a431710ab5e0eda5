package pgsvi

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// Dense symmetric and triangular matrices are n×n, row-major, with the lower
// triangle significant. The functions below do not allocate.

func symmetric(a []float64, n int) blas64.Symmetric {
	return blas64.Symmetric{Uplo: blas.Lower, N: n, Data: a, Stride: max(1, n)}
}

func lowerTriangle(a []float64, n int) blas64.Triangular {
	return blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: a, Stride: max(1, n)}
}

func general(a []float64, rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Data: a, Stride: max(1, cols)}
}

func vector(a []float64) blas64.Vector { return blas64.Vector{N: len(a), Data: a, Inc: 1} }

// cholesky replaces the lower triangle of a by L with a = LLᵀ and reports
// whether a is positive definite and finite.
//
// It factorises a panel at a time, so that every call into LAPACK and BLAS is
// of a size that stays on this goroutine: the same bits on any number of cores
// and nothing allocated.
func cholesky(a []float64, n int) bool {
	const panel = 64
	for k := 0; k < n; k += panel {
		p := min(panel, n-k)
		diag := blas64.Symmetric{Uplo: blas.Lower, N: p, Data: a[k*n+k:], Stride: n}
		l, ok := lapack64.Potrf(diag)
		if !ok {
			return false
		}
		if k+p < n {
			below := blas64.General{Rows: n - k - p, Cols: p, Data: a[(k+p)*n+k:], Stride: n}
			rest := blas64.Symmetric{Uplo: blas.Lower, N: n - k - p, Data: a[(k+p)*n+k+p:], Stride: n}
			blas64.Trsm(blas.Right, blas.Trans, 1, l, below)
			blas64.Syrk(blas.NoTrans, -1, below, 1, rest)
		}
	}
	for i := range n {
		if math.IsInf(a[i*n+i], 0) {
			return false
		}
	}
	return true
}

// logDetChol returns log|LLᵀ|.
func logDetChol(l []float64, n int) float64 {
	var s float64
	for i := range n {
		s += math.Log(l[i*n+i])
	}
	return 2 * s
}

// invertChol replaces L by the full symmetric (LLᵀ)⁻¹.
func invertChol(l []float64, n int) {
	lapack64.Potri(lowerTriangle(l, n))
	fillUpper(l, n)
}

// fillUpper copies the lower triangle of a to the upper.
func fillUpper(a []float64, n int) {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
}

// allFinite reports whether no element is NaN or infinite, and otherwise the
// index of the first that is.
func allFinite(x []float64) (int, bool) {
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return i, false
		}
	}
	return 0, true
}

// resize returns a slice of length n, reusing s where its capacity allows; the
// contents are unspecified.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// room is resize with room for later sizes up to most.
func room[T any](s []T, n, most int) []T {
	if cap(s) < n || s == nil {
		return make([]T, n, max(n, most))
	}
	return s[:n]
}

// dest returns dst if it has length n, a new slice if it is nil, and panics otherwise.
func dest(dst []float64, n int) []float64 {
	if dst == nil {
		return make([]float64, n)
	}
	if len(dst) != n {
		panic("pgsvi: dst has the wrong length")
	}
	return dst
}
