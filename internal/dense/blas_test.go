package dense_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// TestBLAS checks that the functions with the names and types of blas64 have the same results as
// BLAS, for all transposes and factors.
func TestBLAS(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	general := func(t blas.Transpose, rows, cols int) blas64.General {
		if t == blas.Trans {
			rows, cols = cols, rows
		}
		s := max(1, cols+rng.IntN(3))
		return blas64.General{Rows: rows, Cols: cols, Stride: s, Data: draw(rows * s)}
	}
	const no, yes = blas.NoTrans, blas.Trans
	for range 300 {
		m, n, k := 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(40)
		alpha, beta := []float64{1, -1, 0.3}[rng.IntN(3)], []float64{0, 1, -0.7}[rng.IntN(3)]
		tA, tB := []blas.Transpose{no, yes}[rng.IntN(2)], []blas.Transpose{no, yes}[rng.IntN(2)]
		a, b, c := general(tA, m, k), general(tB, k, n), general(no, m, n)
		sym := blas64.Symmetric{Uplo: blas.Lower, N: m, Stride: m + 1, Data: draw(m * (m + 1))}
		tri := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: m, Stride: m + 2,
			Data: draw(m * (m + 2))}
		for i := range m {
			for j := range i {
				tri.Data[i*tri.Stride+j] /= float64(m)
			}
			tri.Data[i*tri.Stride+i] += 4
		}
		xm, xk, ym := dense.Vector(draw(m)), dense.Vector(draw(k)), dense.Vector(draw(m))
		aCols := a
		if tA == yes {
			aCols = general(no, m, k)
		}
		for name, f := range map[string]struct {
			dst       []float64
			ours, ref func()
		}{
			"gemm": {c.Data, func() { dense.Gemm(tA, tB, alpha, a, b, beta, c) },
				func() { blas64.Gemm(tA, tB, alpha, a, b, beta, c) }},
			"syrk": {sym.Data, func() { dense.Syrk(tA, alpha, a, beta, sym) },
				func() { blas64.Syrk(tA, alpha, a, beta, sym) }},
			"left": {c.Data, func() { dense.Trsm(blas.Left, tA, alpha, tri, c) },
				func() { blas64.Trsm(blas.Left, tA, alpha, tri, c) }},
			"right": {b.Data, func() {
				b := blas64.General{Rows: len(b.Data) / m, Cols: m, Stride: m, Data: b.Data}
				dense.Trsm(blas.Right, tA, alpha, tri, b)
			}, func() {
				b := blas64.General{Rows: len(b.Data) / m, Cols: m, Stride: m, Data: b.Data}
				blas64.Trsm(blas.Right, tA, alpha, tri, b)
			}},
			"gemv": {ym.Data, func() { dense.Gemv(no, alpha, aCols, xk, beta, ym) },
				func() { blas64.Gemv(no, alpha, aCols, xk, beta, ym) }},
			"gemvᵀ": {xk.Data, func() { dense.Gemv(yes, alpha, aCols, xm, beta, xk) },
				func() { blas64.Gemv(yes, alpha, aCols, xm, beta, xk) }},
			"symv": {ym.Data, func() { dense.Symv(alpha, sym, xm, beta, ym) },
				func() { blas64.Symv(alpha, sym, xm, beta, ym) }},
			"trsv": {xm.Data, func() { dense.Trsv(tA, tri, xm) },
				func() { blas64.Trsv(tA, tri, xm) }},
			"trmv": {xm.Data, func() { dense.Trmv(tA, tri, xm) },
				func() { blas64.Trmv(tA, tri, xm) }},
			"axpy": {ym.Data, func() { dense.Axpy(alpha, xm, ym) },
				func() { blas64.Axpy(alpha, xm, ym) }},
			"dot": {ym.Data, func() { ym.Data[0] = dense.Dot(xm, dense.Vector(tri.Data[:m])) },
				func() { ym.Data[0] = blas64.Dot(xm, dense.Vector(tri.Data[:m])) }},
			"ger": {aCols.Data, func() { dense.Ger(alpha, xm, xk, aCols) },
				func() { blas64.Ger(alpha, xm, xk, aCols) }},
			"syr": {sym.Data, func() { dense.Syr(alpha, xm, sym) },
				func() { blas64.Syr(alpha, xm, sym) }},
		} {
			before := slices.Clone(f.dst)
			f.ours()
			got := slices.Clone(f.dst)
			copy(f.dst, before)
			f.ref()
			for i, want := range f.dst {
				if !(math.Abs(got[i]-want) <= 1e-12) {
					t.Fatalf("%s, %d, %d, %d, %c, %c: number %d is %v, want %v", name, m, n, k, tA,
						tB, i, got[i], want)
				}
			}
			copy(f.dst, before)
		}
	}
}
