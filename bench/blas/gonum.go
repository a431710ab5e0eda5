//go:build !openblas

package blas

// Name is that of the BLAS in use.
const Name = "gonum"

// SetThreads has the BLAS use n threads; gonum's follows GOMAXPROCS.
func SetThreads(n int) {}
