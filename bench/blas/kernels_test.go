package blas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// BenchmarkKernels compares the linear algebra of the library with the BLAS in use, on one thread
// each, in turn. It reports the median rates in Gflop/s of CPU time and their ratio, which is above
// 1 if the library is faster. With -csv it replaces the lines of a file that have the same vectors.
// With -readme it replaces the table that is made from all lines:
//
//	go test -tags openblas -run '^$' -bench Kernels ./bench/blas -csv kernels.csv -readme ../README.md
func BenchmarkKernels(b *testing.B) {
	SetThreads(1)
	const k, no, yes = 256, blas.NoTrans, blas.Trans
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rand.NormFloat64()
		}
		return x
	}
	for _, n := range []int{200, 800, 2000} {
		x, y, c := draw(n*n), draw(n*n), make([]float64, n*n)
		l, spd := draw(n*n), make([]float64, n*n)
		for i := range l {
			l[i] /= float64(n)
		}
		for i := range n {
			l[i*n+i], spd[i*n+i] = 1, 1
		}
		wide, work := dense.General(draw(n*k), n, k), dense.General(draw(n*k), n, k)
		size := float64(n)
		for _, w := range []struct {
			name  string
			flops float64
			own   func()
			peer  func()
		}{
			{"gemm", 2 * size * size * size,
				func() {
					dense.Gemm(no, no, 1, dense.General(x, n, n), dense.General(y, n, n), 0,
						dense.General(c, n, n))
				},
				func() {
					blas64.Gemm(no, no, 1, dense.General(x, n, n), dense.General(y, n, n), 0,
						dense.General(c, n, n))
				}},
			{"syrk", size * size * k,
				func() { dense.Syrk(no, 1, wide, 0, dense.Symmetric(c, n)) },
				func() { blas64.Syrk(no, 1, wide, 0, dense.Symmetric(c, n)) }},
			{"trsm", size * size * k,
				func() { dense.Trsm(blas.Left, no, 1, dense.LowerTriangle(l, n), work) },
				func() { blas64.Trsm(blas.Left, no, 1, dense.LowerTriangle(l, n), work) }},
			{"cholesky", size * size * size / 3,
				func() { copy(c, spd); dense.Cholesky(c, n) },
				func() { copy(c, spd); Cholesky(c, n) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				var owns, peers []float64
				for b.Loop() {
					for range 8 {
						owns, peers = append(owns, seconds(w.own)), append(peers, seconds(w.peer))
					}
				}
				own, peer := median(owns), median(peers)
				publish(b,
					line{w.name, n, vectors(), Version(), w.flops / own / 1e9,
						w.flops / peer / 1e9})
				b.ReportMetric(w.flops/own/1e9, "Gflop/s")
				b.ReportMetric(w.flops/peer/1e9, Name+"-Gflop/s")
				b.ReportMetric(peer/own, "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// median sorts x.
func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// seconds returns the CPU time of f.
func seconds(f func()) float64 {
	start := cputime.Seconds()
	f()
	return cputime.Seconds() - start
}
