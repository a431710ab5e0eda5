//go:build (!amd64 && !arm64) || purego

package fma

// vectors is false because there are no inner loops in assembly.
const vectors = false

func pathGemm(k int, a, b, c []float64, at, ldc int, alpha float64) {
	gemmTile(k, a, b, c, at, ldc, alpha)
}

func pathTrsm(k int, a, b, x, t []float64) { trsmTile(k, a, b, x, t) }

func pathDot(x, y []float64) float64 { return dot(x, y) }

func pathAxpy(a float64, x, y []float64) { axpy(a, x, y) }

func pathAxpy4(a *[4]float64, x []float64, ld int, y []float64) { axpy4(a, x, ld, y) }
