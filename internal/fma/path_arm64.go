//go:build !purego

package fma

import "unsafe"

// vectors reports whether the inner loops use NEON, which every arm64 processor has. Tests switch
// it off.
var vectors = true

func pathGemm(k int, a, b, c []float64, at, ldc int, alpha float64) {
	if !vectors {
		gemmTile(k, a, b, c, at, ldc, alpha)
		return
	}
	gemmNEON(k, unsafe.SliceData(a), unsafe.SliceData(b), &c[at], ldc, alpha)
}

func pathTrsm(k int, a, b, x, t []float64) {
	var sum [rows * columns]float64
	pathGemm(k, a, b, sum[:], 0, columns, 1)
	solveTile(&sum, x, t)
}

func pathDot(x, y []float64) float64 {
	if !vectors {
		return dot(x, y)
	}
	var sum [4][4]float64
	n := len(x) &^ 3
	dotNEON(n, unsafe.SliceData(x), unsafe.SliceData(y), (*[16]float64)(unsafe.Pointer(&sum)))
	return dotTail(&sum, x[n:], y[n:])
}

func pathAxpy(a float64, x, y []float64) {
	done := 0
	if vectors {
		done = len(x) &^ 1
		axpyNEON(done, a, unsafe.SliceData(x), unsafe.SliceData(y))
	}
	axpy(a, x[done:], y[done:])
}

func pathAxpy4(a *[4]float64, x []float64, ld int, y []float64) {
	done := 0
	if vectors {
		_ = x[:3*ld+len(y)]
		done = len(y) &^ 1
		axpy4NEON(done, a, unsafe.SliceData(x), ld, unsafe.SliceData(y))
	}
	if done < len(y) {
		axpy4(a, x[done:], ld, y[done:])
	}
}
