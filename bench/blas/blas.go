// Package blas decides what the benchmarks compute with: gonum's pure-Go BLAS, or
// OpenBLAS (Debian: libopenblas-dev) where they are built with a tag,
//
//	go test -tags openblas -bench . ./bench
//
// It is imported for that effect. A library must not choose for its callers, so the
// package pgsvi does not; an application may, with the one line that openblas.go has.
package blas
