// Package bench holds the benchmarks of pgsvi:
//
//	go test -bench . ./bench
//
// Times are given beside a floor measured in the same run, one Cholesky
// factorisation of the same size, one triangular solve, one XᵀX or the arithmetic of
// one E-step, for the ratio of two times taken together says more than either on a
// noisy machine. compare.sh compares two commits. Data sets that
// the repository does not hold are read from the folder named by PGSVI_DATA;
// their benchmarks are skipped without it.
package bench
