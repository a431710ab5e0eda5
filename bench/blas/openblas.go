//go:build openblas

package blas

// #cgo LDFLAGS: -lopenblas
// void openblas_set_num_threads(int n);
// char *openblas_get_config(void);
// char *openblas_get_corename(void);
// void dpotrf_(char *uplo, int *n, double *a, int *lda, int *info);
import "C"

import (
	"strings"
	"unsafe"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/netlib/blas/netlib"
)

// Name is the name of the BLAS in use.
const Name = "OpenBLAS"

func init() { blas64.Use(netlib.Implementation{}) }

// Version is Name with its version and the processor of its kernels.
func Version() string {
	version := strings.Fields(C.GoString(C.openblas_get_config()))[:2]
	return strings.Join(append(version, C.GoString(C.openblas_get_corename())), " ")
}

// SetThreads sets the number of threads of the BLAS.
func SetThreads(n int) { C.openblas_set_num_threads(C.int(n)) }

// Cholesky replaces the lower triangle of a, n×n, by its Cholesky factor, with the LAPACK of the
// BLAS in use.
func Cholesky(a []float64, n int) {
	// LAPACK stores matrices by columns, so the lower triangle is its upper triangle.
	upper, size, info := C.char('U'), C.int(n), C.int(0)
	C.dpotrf_(&upper, &size, (*C.double)(unsafe.Pointer(unsafe.SliceData(a))), &size, &info)
	if info != 0 {
		panic("bench: not positive definite")
	}
}
