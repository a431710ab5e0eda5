// Package bench holds the benchmarks of pgsvi:
//
//	go test -bench . ./bench
//
// Each time is reported beside a floor that is measured in the same run: one Cholesky
// factorisation of the same size, one triangular solve, one XᵀX, or the arithmetic of one E-step.
// On a noisy machine their ratio is more reliable than either. compare.sh compares two commits.
// Data sets that are not in the repository are read from the folder of PGSVI_DATA; their
// benchmarks are skipped without it.
package bench
