// Package blas selects the BLAS that gonum uses in the benchmarks: gonum's own BLAS in Go, or
// OpenBLAS (Debian: libopenblas-dev). With OpenBLAS, the benchmarks compare it with the kernels of
// the library. A build tag selects OpenBLAS:
//
//	go test -tags openblas -bench Kernels ./bench/blas
//
// Programs import this package for that effect. A library must not choose for its callers, so
// package pgsvi does not import it. An application may choose with the one line in openblas.go.
package blas
