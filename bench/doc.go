// Package bench holds the benchmarks of pgsvi:
//
//	go test -bench . ./bench
//
// Each benchmark also measures a floor in the same run: one Cholesky factorization of the same
// size, one triangular solve, one XᵀX, or the arithmetic of one E-step. On a noisy machine, the
// ratio of time and floor is more reliable than the time. compare.sh compares two commits. Data
// sets that are not in the repository are read from the folder PGSVI_DATA, and their benchmarks are
// skipped without it.
package bench
