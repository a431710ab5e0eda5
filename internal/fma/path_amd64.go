//go:build amd64 && !purego

package fma

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectors reports whether the inner loops use AVX2, and vectors512 whether some of them use
// AVX-512. Loops that are limited by memory, or like Dot by their sixteen sums, are not faster
// with AVX-512. Tests switch the variables off. For a program, set GODEBUG=cpu.avx512f=off or
// GODEBUG=cpu.avx2=off.
var (
	vectors    = cpu.X86.HasAVX2 && cpu.X86.HasFMA
	vectors512 = vectors && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL
)

func pathGemm(k int, a, b, c []float64, at, ldc int, alpha float64) {
	if !vectors {
		gemmTile(k, a, b, c, at, ldc, alpha)
		return
	}
	gemmAVX2(k, unsafe.SliceData(a), unsafe.SliceData(b), &c[at], ldc, alpha)
}

func pathGemmPairs(k int, a, b, c []float64, at, ldc int, alpha float64) {
	if !vectors512 {
		gemmPairs(k, a, b, c, at, ldc, alpha)
		return
	}
	gemmAVX512(k, &a[0], &a[rows*k], &b[0], &b[columns*k], &c[at], &c[at+columns], ldc, alpha)
}

func pathGemmPanels(panels, k int, a, b []float64, apart int, c []float64, at, next, ldc int,
	alpha float64) {
	p := 0
	for ; vectors512 && p+2 <= panels; p += 2 {
		gemmPairAVX512(k, &a[0], &b[p*apart], &b[(p+1)*apart], &c[at+p*next], &c[at+(p+1)*next],
			ldc, alpha)
	}
	if p < panels {
		gemmPanels(panels-p, k, a, b[p*apart:], apart, c, at+p*next, next, ldc, alpha)
	}
}

func pathTrsm(k int, a, b, x, t []float64) {
	if !vectors {
		trsmTile(k, a, b, x, t)
		return
	}
	trsmAVX2(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(x), unsafe.SliceData(t))
}

func pathTrsmPanels(panels, apart, k int, a, b, x, t []float64) {
	p := 0
	for ; vectors512 && p+2 <= panels; p += 2 {
		trsmAVX512(k, unsafe.SliceData(a), &b[p*apart], &b[(p+1)*apart], &x[p*apart],
			&x[(p+1)*apart], unsafe.SliceData(t))
	}
	if p < panels {
		trsmPanels(panels-p, apart, k, a, b[p*apart:], x[p*apart:], t)
	}
}

func pathDot(x, y []float64) float64 {
	if !vectors {
		return dot(x, y)
	}
	return dotAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
}

func pathAxpy(a float64, x, y []float64) {
	if !vectors {
		axpy(a, x, y)
		return
	}
	axpyAVX2(len(x), a, unsafe.SliceData(x), unsafe.SliceData(y))
}

func pathDotSquares(x, y []float64) float64 {
	if !vectors {
		return dotSquares(x, y)
	}
	return dotSquaresAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
}

func pathDotRows(dst, x []float64, ld int, y []float64) {
	if !vectors {
		dotRows(dst, x, ld, y)
		return
	}
	_ = x[:(len(dst)-1)*ld+len(y)]
	dotRowsAVX2(len(dst), len(y), unsafe.SliceData(x), ld, unsafe.SliceData(y),
		unsafe.SliceData(dst))
}

func pathDotSquaresRows(dst, x []float64, ld int, y []float64) {
	if !vectors {
		dotSquaresRows(dst, x, ld, y)
		return
	}
	_ = x[:(len(dst)-1)*ld+len(y)]
	dotSquaresRowsAVX2(len(dst), len(y), unsafe.SliceData(x), ld, unsafe.SliceData(y),
		unsafe.SliceData(dst))
}

func pathAxpySquares(a float64, x, y []float64) {
	if !vectors {
		axpySquares(a, x, y)
		return
	}
	axpySquaresAVX2(len(x), a, unsafe.SliceData(x), unsafe.SliceData(y))
}

func pathAxpy4(a *[4]float64, x []float64, ld int, y []float64) {
	if !vectors {
		axpy4(a, x, ld, y)
		return
	}
	_ = x[:3*ld+len(y)]
	axpy4AVX2(len(y), a, unsafe.SliceData(x), ld, unsafe.SliceData(y))
}

func pathAxpy8(a *[8]float64, x []float64, ld int, y []float64) {
	if !vectors {
		axpy8(a, x, ld, y)
		return
	}
	_ = x[:7*ld+len(y)]
	axpy8AVX2(len(y), a, unsafe.SliceData(x), ld, unsafe.SliceData(y))
}

func pathCopyRows(k int, dst []float64, ldd int, src []float64, ld int) {
	if !vectors {
		copyRows(k, dst, ldd, src, ld)
		return
	}
	_, _ = dst[:(k-1)*ldd+columns], src[:(k-1)*ld+columns]
	copyAVX2(k, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), ld)
}

func pathCopyNarrow(k int, dst, src []float64, ld int) {
	if !vectors {
		copyNarrow(k, dst, src, ld)
		return
	}
	_, _ = dst[:k*rows], src[:(k-1)*ld+rows]
	copyNarrowAVX2(k, unsafe.SliceData(dst), unsafe.SliceData(src), ld)
}

func pathWeigh(k int, panel, w []float64) {
	if !vectors {
		weigh(k, panel, w)
		return
	}
	_, _ = panel[:k*columns], w[:k]
	weighAVX2(k, unsafe.SliceData(panel), unsafe.SliceData(w))
}

func pathWeighRows(k int, dst, src, w []float64) {
	if !vectors {
		weighRows(k, dst, src, w)
		return
	}
	_, _, _ = dst[:k*rows], src[:(k-1)*columns+rows], w[:k]
	weighRowsAVX2(k, unsafe.SliceData(dst), unsafe.SliceData(src), unsafe.SliceData(w))
}

func pathRatios(t, u, y, s []float64, w, least float64) {
	whole := 0
	if vectors {
		whole = len(t) &^ 3
		ratiosAVX2(whole, unsafe.SliceData(t), unsafe.SliceData(u), unsafe.SliceData(y),
			unsafe.SliceData(s), w, least)
	}
	ratios(t[whole:], u[whole:], y[whole:], s[whole:], w, least)
}

func pathSquares(k int, panel, dst []float64) {
	if !vectors {
		squares(k, panel, dst)
		return
	}
	_, _ = panel[:k*columns], dst[:columns]
	squaresAVX2(k, unsafe.SliceData(panel), unsafe.SliceData(dst))
}

func pathScale(a float64, x []float64) {
	whole := 0
	if vectors {
		whole = len(x) &^ 3
		scaleAVX2(whole, a, unsafe.SliceData(x))
	}
	scale(a, x[whole:])
}

func pathDivide(x []float64, a float64) {
	whole := 0
	if vectors {
		whole = len(x) &^ 3
		divideAVX2(whole, unsafe.SliceData(x), a)
	}
	divide(x[whole:], a)
}

func pathAddSquares(dst []float64, a float64, y []float64) {
	whole := 0
	if vectors {
		whole = len(dst) &^ 3
		addSquaresAVX2(whole, unsafe.SliceData(dst), a, unsafe.SliceData(y))
	}
	addSquares(dst[whole:], a, y[whole:])
}

func pathAddSquaresOver(dst []float64, a float64, y []float64, s float64) {
	whole := 0
	if vectors {
		whole = len(dst) &^ 3
		addSquaresOverAVX2(whole, unsafe.SliceData(dst), a, unsafe.SliceData(y), s)
	}
	addSquaresOver(dst[whole:], a, y[whole:], s)
}

func pathTranspose(k int, dst []float64, ldd int, src []float64, ld int) {
	done := 0
	if vectors {
		if done = k &^ 3; done > 0 {
			_, _ = dst[:(done-1)*ldd+4], src[:3*ld+done]
			transposeAVX2(done, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), ld)
		}
	}
	if done < k {
		transpose(k-done, dst[done*ldd:], ldd, src[done:], ld)
	}
}

func pathUntranspose(k int, dst []float64, ldd int, src []float64, ld int) {
	done := 0
	if vectors {
		if done = k &^ 3; done > 0 {
			_, _ = dst[:3*ldd+done], src[:(done-1)*ld+4]
			untransposeAVX2(done, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), ld)
		}
	}
	if done < k {
		untranspose(k-done, dst[done:], ldd, src[done*ld:], ld)
	}
}

// The elementary functions process whole vectors of four numbers. They copy the remaining numbers
// to a buffer.

func pathExp(x []float64) {
	if !vectors {
		exp(x)
		return
	}
	if vectors512 {
		whole := len(x) &^ 7
		expAVX512(whole, unsafe.SliceData(x))
		x = x[whole:]
	}
	whole := len(x) &^ 3
	expAVX2(whole, unsafe.SliceData(x))
	if rest := x[whole:]; len(rest) > 0 {
		var last [4]float64
		copy(last[:], rest)
		expAVX2(len(last), &last[0])
		copy(rest, last[:])
	}
}

func pathLog1p(x []float64) {
	if !vectors {
		log1p(x)
		return
	}
	if vectors512 {
		whole := len(x) &^ 7
		log1pAVX512(whole, unsafe.SliceData(x))
		x = x[whole:]
	}
	whole := len(x) &^ 3
	log1pAVX2(whole, unsafe.SliceData(x))
	if rest := x[whole:]; len(rest) > 0 {
		var last [4]float64
		copy(last[:], rest)
		log1pAVX2(len(last), &last[0])
		copy(rest, last[:])
	}
}

func pathSoftplus(rule []Node, f0, f1, f2, m, s []float64) {
	if !vectors {
		softplus(rule, f0, f1, f2, m, s)
		return
	}
	nodes := (*float64)(unsafe.Pointer(unsafe.SliceData(rule)))
	whole := 0
	if vectors512 {
		if whole = len(m) &^ 7; whole > 0 {
			softplusAVX512(whole, len(rule), nodes, &f0[0], &f1[0], &f2[0], &m[0], &s[0])
		}
	}
	if rest := len(m) - whole; rest >= 4 && !(vectors512 && rest > 4) {
		rest &^= 3
		softplusAVX2(rest, len(rule), nodes, &f0[whole], &f1[whole], &f2[whole], &m[whole],
			&s[whole])
		whole += rest
	}
	if rest := len(m) - whole; rest > 0 {
		var x, sd, y0, y1, y2 [8]float64
		copy(x[:], m[whole:])
		copy(sd[:], s[whole:])
		if rest > 4 {
			softplusAVX512(8, len(rule), nodes, &y0[0], &y1[0], &y2[0], &x[0], &sd[0])
		} else {
			softplusAVX2(4, len(rule), nodes, &y0[0], &y1[0], &y2[0], &x[0], &sd[0])
		}
		copy(f0[whole:], y0[:rest])
		copy(f1[whole:], y1[:rest])
		copy(f2[whole:], y2[:rest])
	}
}

func pathGeometric(n int, w, r *[8]float64, q float64, table []float64, wide, up, down int,
	sums *[3]float64) {
	if !vectors || n == 0 {
		geometric(n, w, r, q, table, wide, up, down, sums)
		return
	}
	geometricAVX2(n, w, r, q, &table[up], &table[down], wide, sums)
}

func pathGumbel(rule [][2]float64, e, f0, f1, f2 []float64) {
	nodes := (*float64)(unsafe.Pointer(unsafe.SliceData(rule)))
	switch {
	case len(e) == 0:
	case vectors512:
		gumbelAVX512(len(e), len(rule), nodes, &e[0], &f0[0], &f1[0], &f2[0])
	case vectors:
		gumbelAVX2(len(e), len(rule), nodes, &e[0], &f0[0], &f1[0], &f2[0])
	default:
		gumbel(rule, e, f0, f1, f2)
	}
}

func pathBell(table [][3]float64, w, r *[8]float64, q float64, f0, f1, f2 *[8]float64) {
	rows := (*float64)(unsafe.Pointer(unsafe.SliceData(table)))
	switch {
	case vectors512:
		bellAVX512(len(table), rows, w, r, q, f0, f1, f2)
	case vectors:
		bellAVX2(len(table), rows, w, r, q, f0, f1, f2)
	default:
		bell(table, w, r, q, f0, f1, f2)
	}
}

func pathAddNormal(f, x []float64) {
	switch {
	case len(f) == 0:
	case vectors512:
		addNormalAVX512(len(f), &f[0], &x[0])
	case vectors:
		addNormalAVX2(len(f), &f[0], &x[0])
	default:
		addNormal(f, x)
	}
}

func pathQuotients(p, f0, f1, f2 []float64) {
	switch {
	case len(p) == 0:
	case vectors512:
		quotientsAVX512(len(p), &p[0], &f0[0], &f1[0], &f2[0])
	case vectors:
		quotientsAVX2(len(p), &p[0], &f0[0], &f1[0], &f2[0])
	default:
		quotients(p, f0, f1, f2)
	}
}

func pathSparseMul(x *Sparse, ptr []int, dst, w []float64) {
	switch ind, val := unsafe.SliceData(x.Ind), unsafe.SliceData(x.Val); {
	case !vectors:
		sparseMul(x, ptr, dst, w)
	case x.Val == nil:
		sparseMulOnesAVX2(len(dst), &ptr[0], ind, val, unsafe.SliceData(w), &dst[0])
	default:
		sparseMulAVX2(len(dst), &ptr[0], ind, val, unsafe.SliceData(w), &dst[0])
	}
}

func pathSparseMulT(x *Sparse, ptr []int, dst, u []float64) {
	switch ind, val := unsafe.SliceData(x.Ind), unsafe.SliceData(x.Val); {
	case !vectors:
		sparseMulT(x, ptr, dst, u)
	case x.Val == nil:
		sparseMulTOnesAVX2(len(u), &ptr[0], ind, val, &u[0], unsafe.SliceData(dst))
	default:
		sparseMulTAVX2(len(u), &ptr[0], ind, val, &u[0], unsafe.SliceData(dst))
	}
}

func pathSparseQuad(x *Sparse, lo, hi int, a []float64) (v, diag float64) {
	var sums [2]float64
	switch {
	case !vectors:
		return sparseQuad(x, lo, hi, a)
	case x.Val == nil:
		sparseQuadOnesAVX2(hi-lo, &x.Ind[lo], nil, &a[0], x.Cols, &sums)
	default:
		sparseQuadAVX2(hi-lo, &x.Ind[lo], &x.Val[lo], &a[0], x.Cols, &sums)
	}
	return sums[0], sums[1]
}

func pathSparseOuter(x *Sparse, lo, hi int, p []float64, w float64) {
	switch {
	case !vectors:
		sparseOuter(x, lo, hi, p, w)
	case x.Val == nil:
		sparseOuterOnesAVX2(hi-lo, &x.Ind[lo], nil, &p[0], x.Cols, w)
	default:
		sparseOuterAVX2(hi-lo, &x.Ind[lo], &x.Val[lo], &p[0], x.Cols, w)
	}
}
