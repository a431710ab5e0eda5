//go:build !openblas

package blas

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// Name is the name of the BLAS in use.
const Name = "gonum"

// Version is equal to Name.
func Version() string { return Name }

// SetThreads does nothing, because gonum uses GOMAXPROCS threads.
func SetThreads(n int) {}

// Cholesky replaces the lower triangle of a, n×n, by its Cholesky factor, with the LAPACK of the
// BLAS in use.
func Cholesky(a []float64, n int) { lapack64.Potrf(dense.Symmetric(a, n)) }
