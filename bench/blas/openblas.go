//go:build openblas

package blas

// #cgo LDFLAGS: -lopenblas
// void openblas_set_num_threads(int n);
import "C"

import (
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/netlib/blas/netlib"
)

// Name is that of the BLAS in use.
const Name = "OpenBLAS"

func init() { blas64.Use(netlib.Implementation{}) }

// SetThreads has the BLAS use n threads.
func SetThreads(n int) { C.openblas_set_num_threads(C.int(n)) }
