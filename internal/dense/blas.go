package dense

import (
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// This file offers the functions of BLAS with the types of blas64. They compute with package fma,
// which has the same bits on every processor, and serve callers that also use gonum. A result
// must not share memory with its operands. Vectors must have steps of 1, and triangles must be
// lower triangles.

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

func square(a []float64, n int) fma.Matrix { return fma.Of(a, n, n, max(1, n)) }

func view(t blas.Transpose, a blas64.General) fma.Matrix {
	m := fma.Of(a.Data, a.Rows, a.Cols, a.Stride)
	if t == blas.NoTrans {
		return m
	}
	return m.T()
}

func symmetric(a blas64.Symmetric) fma.Matrix {
	lower(a.Uplo == blas.Lower)
	return fma.Of(a.Data, a.N, a.N, a.Stride)
}

func triangle(a blas64.Triangular) fma.Matrix {
	lower(a.Uplo == blas.Lower && a.Diag == blas.NonUnit)
	return fma.Of(a.Data, a.N, a.N, a.Stride)
}

func lower(ok bool) {
	if !ok {
		panic("dense: a triangle that is not a lower one")
	}
}

func vector(x blas64.Vector) []float64 {
	if x.Inc != 1 {
		panic("dense: a vector with steps")
	}
	return x.Data[:x.N]
}

// times multiplies x by beta. If beta is 0, x becomes 0 even if it contained NaN.
func times(x []float64, beta float64) {
	switch beta {
	case 0:
		clear(x)
	case 1:
	default:
		for i := range x {
			x[i] *= beta
		}
	}
}

// Gemm stores αAB + βc in c, where A is a or its transpose, and B is b or its transpose.
func Gemm(tA, tB blas.Transpose, alpha float64, a, b blas64.General, beta float64,
	c blas64.General) {
	for i := range c.Rows {
		times(c.Data[i*c.Stride:][:c.Cols], beta)
	}
	fma.Gemm(fma.Run{}, alpha, view(tA, a), view(tB, b), view(blas.NoTrans, c))
}

// Syrk stores αAAᵀ + βc in the triangle of c, where A is a or its transpose.
func Syrk(t blas.Transpose, alpha float64, a blas64.General, beta float64, c blas64.Symmetric) {
	m := symmetric(c)
	for i := range c.N {
		times(c.Data[i*c.Stride:][:i+1], beta)
	}
	fma.Syrk(fma.Run{}, alpha, view(t, a), m)
}

// Trsm replaces b by αL⁻¹b, or by αbL⁻¹ for the right side, where L is a or its transpose.
func Trsm(side blas.Side, t blas.Transpose, alpha float64, a blas64.Triangular, b blas64.General) {
	TrsmUntil(nil, side, t, alpha, a, b)
}

// TrsmUntil is like Trsm, but uses as many goroutines as h lends. It returns early if h stops.
func TrsmUntil(h *parallel.Halt, side blas.Side, t blas.Transpose, alpha float64,
	a blas64.Triangular, b blas64.General) {
	for i := range b.Rows {
		times(b.Data[i*b.Stride:][:b.Cols], alpha)
	}
	l, x, upper := triangle(a), view(blas.NoTrans, b), t != blas.NoTrans
	if side == blas.Right { // bL⁻¹ = (L⁻ᵀbᵀ)ᵀ
		x, upper = x.T(), !upper
	}
	if upper {
		l = l.T()
	}
	fma.Trsm(fma.Run{Halt: h}, l, x, upper)
}

// Gemv stores αAx + βy in y, where A is a or its transpose.
func Gemv(t blas.Transpose, alpha float64, a blas64.General, x blas64.Vector, beta float64,
	y blas64.Vector) {
	dst := vector(y)
	times(dst, beta)
	fma.Gemv(alpha, view(blas.NoTrans, a), t != blas.NoTrans, vector(x), dst)
}

// Symv stores αAx + βy in y.
func Symv(alpha float64, a blas64.Symmetric, x blas64.Vector, beta float64, y blas64.Vector) {
	dst := vector(y)
	times(dst, beta)
	fma.Symv(fma.Run{}, alpha, symmetric(a), vector(x), dst)
}

// Trsv replaces x by L⁻¹x, where L is a or its transpose.
func Trsv(t blas.Transpose, a blas64.Triangular, x blas64.Vector) {
	fma.Trsv(fma.Run{}, triangle(a), vector(x), t != blas.NoTrans)
}

// Trmv replaces x by Lx, where L is a or its transpose.
func Trmv(t blas.Transpose, a blas64.Triangular, x blas64.Vector) {
	fma.Trmv(triangle(a), vector(x), t != blas.NoTrans)
}

// Dot returns xᵀy.
func Dot(x, y blas64.Vector) float64 { return fma.Dot(vector(x), vector(y)) }

// Axpy adds αx to y.
func Axpy(alpha float64, x, y blas64.Vector) { fma.Axpy(alpha, vector(x), vector(y)) }

// Ger adds αxyᵀ to a.
func Ger(alpha float64, x, y blas64.Vector, a blas64.General) {
	v, w := vector(x), vector(y)
	for i, c := range v[:a.Rows] {
		fma.Axpy(alpha*c, w[:a.Cols], a.Data[i*a.Stride:][:a.Cols])
	}
}

// Syr adds αxxᵀ to the triangle of a.
func Syr(alpha float64, x blas64.Vector, a blas64.Symmetric) {
	v := vector(x)
	lower(a.Uplo == blas.Lower)
	for i, c := range v[:a.N] {
		fma.Axpy(alpha*c, v[:i+1], a.Data[i*a.Stride:][:i+1])
	}
}
