package bench

import (
	"context"
	"flag"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi"
)

var gradientPasses = flag.Float64("gradient.passes", 10, "passes of BenchmarkGradientMethods; 200 is that of the figures")

// BenchmarkGradientMethods runs the methods that Khan et al. (2016) compare with on
// ionosphere, with mini-batches of 5 and 500 draws: the −ELBO after 10, 50 and 200
// passes, as far as -gradient.passes goes, with mini-batch gradients as published
// and corrected, in the coordinates of the published scripts, LogCholesky, and in those
// of the paper, Cholesky.
func BenchmarkGradientMethods(b *testing.B) {
	p := ionosphere(b)
	for _, c := range []struct {
		suffix string
		coords pgsvi.Coordinates
	}{{"", pgsvi.LogCholesky}, {"-plain", pgsvi.Cholesky}} {
		methods, err := p.GradientMethods(p.ScoreFunction(), c.coords)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range methods {
			b.Run(m.Variant+c.suffix+"/"+m.Name, func(b *testing.B) {
				for b.Loop() {
					s := m.Solver
					s.MaxPasses, s.Converger = *gradientPasses, pgsvi.Never{}
					res, err := s.Run(context.Background(), m.Model)
					if err != nil {
						b.Log(err)
					}
					for _, it := range res.Trace {
						switch k := int(math.Round(it.Passes)); k {
						case 10:
							b.ReportMetric(-it.ELBO, "nats/10-passes")
						case 50:
							b.ReportMetric(-it.ELBO, "nats/50-passes")
						case 200:
							b.ReportMetric(-it.ELBO, "nats/200-passes")
						}
					}
					b.ReportMetric(res.Elapsed.Seconds()*1000/float64(res.Iterations), "ms/step")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
