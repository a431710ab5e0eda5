package fma

import (
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/cputime"
)

// BenchmarkPaths compares the paths of this processor, which take turns on one thread. For each
// path it reports the processor time of the fastest call, and it also reports the time of the
// last path relative to the previous path.
//
//	go test -run '^$' -bench Paths ./internal/fma
func BenchmarkPaths(b *testing.B) {
	rng := rand.New(rand.NewPCG(17, 18))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.Float64()
		}
		return x
	}
	const n, k = 600, 256
	x, y, l := Of(draw(n*n), n, n, n), Of(draw(n*k), n, k, k), Of(draw(n*n), n, n, n)
	for i := range n {
		*l.at(i, i) = n
	}
	spd, c := clone(l), Of(make([]float64, n*n), n, n, n)
	right := clone(y)
	var panels Panels
	panels.Set(y.T())
	four := draw(panels.Len(4))
	v, w, f0, f1, f2 := draw(1024), draw(1024), draw(1024), draw(1024), draw(1024)
	nodes := [][2]float64{{0.5, 0.3}, {1, 0.2}, {1.5, 0.1}, {2, 0.05}}
	rule := []Node{{0.5, 0.3}, {1, 0.2}, {1.5, 0.1}, {2, 0.05}}
	for _, f := range []struct {
		name string
		do   func()
	}{
		{"gemm", func() { Gemm(Run{}, 1, x, y, Of(c.Data, n, k, k)) }},
		{"four rows", func() { panels.Mul(y.Slice(0, 0, 4, k), four) }},
		{"syrk", func() { Syrk(Run{}, 1, y, c) }},
		{"trsm", func() { copy(right.Data, y.Data); Trsm(Run{}, l, right, false) }},
		{"cholesky", func() { copy(c.Data, spd.Data); Cholesky(Run{}, c) }},
		{"exp", func() { copy(v, w); Exp(v) }},
		{"log1p", func() { copy(v, w); Log1p(v) }},
		{"gumbel", func() { Gumbel(nodes, w, f0, f1, f2) }},
		{"softplus", func() { Softplus(rule, f0, f1, f2, w, w) }},
	} {
		b.Run(f.name, func(b *testing.B) {
			paths := available()[1:] // without Go, which is slow
			best := map[string]float64{}
			calls := 1
			// find the number of calls that take a millisecond, because the clock resolves a
			// hundredth of this
			for start := cputime.Seconds(); cputime.Seconds() < start+1e-3; calls++ {
				f.do()
			}
			for b.Loop() {
				for range 20 {
					for _, path := range paths {
						undo := force(path)
						start := cputime.Seconds()
						for range calls {
							f.do()
						}
						if t := (cputime.Seconds() - start) / float64(calls); best[path] == 0 ||
							t < best[path] {
							best[path] = t
						}
						undo()
					}
				}
			}
			for _, path := range paths {
				b.ReportMetric(1e6*best[path], "µs-"+path)
			}
			if last := len(paths) - 1; last > 0 {
				b.ReportMetric(best[paths[last]]/best[paths[last-1]], "of-"+paths[last-1])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
