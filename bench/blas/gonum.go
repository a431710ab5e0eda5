//go:build !openblas

package blas

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// Name is that of the BLAS in use.
const Name = "gonum"

// Version is Name.
func Version() string { return Name }

// SetThreads has the BLAS use n threads; gonum's follows GOMAXPROCS.
func SetThreads(n int) {}

// Cholesky replaces the lower triangle of a, n×n, by its factor, as the LAPACK of that library
// does.
func Cholesky(a []float64, n int) { lapack64.Potrf(dense.Symmetric(a, n)) }
