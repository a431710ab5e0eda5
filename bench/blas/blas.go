// Package blas decides what gonum's part of the benchmarks computes with: its pure-Go BLAS, or
// OpenBLAS (Debian: libopenblas-dev), beside which the kernels of the library can then be measured,
// where they are built with a tag,
//
//	go test -tags openblas -bench Kernels ./bench/blas
//
// It is imported for that effect. A library must not choose for its callers, so the
// package pgsvi does not; an application may, with the one line that openblas.go has.
package blas
