//go:build !amd64 || purego

package fma

// vectors512 is false because each tile uses a single panel.
const vectors512 = false

// Only amd64 has these loops in assembly.

func pathGemmPairs(k int, a, b, c []float64, at, ldc int, alpha float64) {
	gemmPairs(k, a, b, c, at, ldc, alpha)
}

func pathGemmPanels(panels, k int, a, b []float64, apart int, c []float64, at, next, ldc int,
	alpha float64) {
	gemmPanels(panels, k, a, b, apart, c, at, next, ldc, alpha)
}

func pathTrsmPanels(panels, apart, k int, a, b, x, t []float64) {
	trsmPanels(panels, apart, k, a, b, x, t)
}

func pathCopyRows(k int, dst []float64, ldd int, src []float64, ld int) {
	copyRows(k, dst, ldd, src, ld)
}

func pathCopyNarrow(k int, dst, src []float64, ld int) { copyNarrow(k, dst, src, ld) }

func pathWeigh(k int, panel, w []float64) { weigh(k, panel, w) }

func pathWeighRows(k int, dst, src, w []float64) { weighRows(k, dst, src, w) }

func pathTranspose(k int, dst []float64, ldd int, src []float64, ld int) {
	transpose(k, dst, ldd, src, ld)
}

func pathUntranspose(k int, dst []float64, ldd int, src []float64, ld int) {
	untranspose(k, dst, ldd, src, ld)
}

func pathExp(x []float64) { exp(x) }

func pathLog1p(x []float64) { log1p(x) }

func pathRatios(t, u, y, s []float64, w, least float64) { ratios(t, u, y, s, w, least) }

func pathSquares(k int, panel, dst []float64) { squares(k, panel, dst) }

func pathScale(a float64, x []float64) { scale(a, x) }

func pathDivide(x []float64, a float64) { divide(x, a) }

func pathAddSquares(dst []float64, a float64, y []float64) { addSquares(dst, a, y) }

func pathAddSquaresOver(dst []float64, a float64, y []float64, s float64) {
	addSquaresOver(dst, a, y, s)
}

func pathSoftplus(rule []Node, f0, f1, f2, m, s []float64) { softplus(rule, f0, f1, f2, m, s) }

func pathGeometric(n int, w, r *[8]float64, q float64, table []float64, wide, up, down int,
	sums *[3]float64) {
	geometric(n, w, r, q, table, wide, up, down, sums)
}

func pathGumbel(rule [][2]float64, e, f0, f1, f2 []float64) { gumbel(rule, e, f0, f1, f2) }

func pathBell(table [][3]float64, w, r *[8]float64, q float64, f0, f1, f2 *[8]float64) {
	bell(table, w, r, q, f0, f1, f2)
}

func pathAddNormal(f, x []float64) { addNormal(f, x) }

func pathQuotients(p, f0, f1, f2 []float64) { quotients(p, f0, f1, f2) }

func pathAxpy8(a *[8]float64, x []float64, ld int, y []float64) { axpy8(a, x, ld, y) }

func pathDotRows(dst, x []float64, ld int, y []float64) { dotRows(dst, x, ld, y) }

func pathDotSquaresRows(dst, x []float64, ld int, y []float64) { dotSquaresRows(dst, x, ld, y) }

func pathDotSquares(x, y []float64) float64 { return dotSquares(x, y) }

func pathAxpySquares(a float64, x, y []float64) { axpySquares(a, x, y) }

func pathSparseMul(x *Sparse, ptr []int, dst, w []float64) { sparseMul(x, ptr, dst, w) }

func pathSparseMulT(x *Sparse, ptr []int, dst, u []float64) { sparseMulT(x, ptr, dst, u) }

func pathSparseQuad(x *Sparse, lo, hi int, a []float64) (v, diag float64) {
	return sparseQuad(x, lo, hi, a)
}

func pathSparseOuter(x *Sparse, lo, hi int, p []float64, w float64) { sparseOuter(x, lo, hi, p, w) }
