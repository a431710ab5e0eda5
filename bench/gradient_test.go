package bench

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
)

var gradientPasses = flag.Int("gradient.passes", 10,
	"passes of BenchmarkGradientMethods; the figures use 200")

// BenchmarkGradientMethods runs the methods that Khan et al. (2016) compare with on ionosphere,
// with mini-batches of 5 and 500 draws. Mini-batch gradients are as published and corrected.
// Coordinates are those in the published scripts, LogCholesky, and in the paper, Cholesky. It
// reports −ELBO after 10, 50 and 200 passes, up to -gradient.passes, for the V of the method and
// for the V of the published curves (paper.Problem.Rebuilt).
func BenchmarkGradientMethods(b *testing.B) {
	p := ionosphere(b)
	for _, c := range []struct {
		suffix string
		coords pgsvi.Coordinates
	}{{"", pgsvi.LogCholesky}, {"-plain", pgsvi.Cholesky}} {
		methods, err := p.GradientMethods(p.Noisy, c.coords)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range methods {
			b.Run(m.Variant+c.suffix+"/"+m.Name, func(b *testing.B) {
				for b.Loop() {
					run, err := m.Solver.Start(context.Background(), m.Model)
					if err != nil {
						b.Fatal(err)
					}
					st := run.Stepper
					for it, err := range paper.Passes(context.Background(), m.Solver, run,
						*gradientPasses) {
						if err != nil {
							b.Log(err)
							break
						}
						pass := int(it.Passes)
						if pass != 10 && pass != 50 && pass != 200 {
							continue
						}
						elbo, err := paper.ELBO(st)
						if err != nil {
							b.Fatal(err)
						}
						at, err := m.Model.Posterior(st)
						if err != nil {
							b.Fatal(err)
						}
						q, err := p.Rebuilt(at)
						if err != nil {
							b.Fatal(err)
						}
						model := m.Model
						model.Init = q
						other, err := model.NewStepper(context.Background(), nil, pgsvi.Euclidean())
						if err != nil {
							b.Fatal(err)
						}
						rebuilt, err := paper.ELBO(other)
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(-elbo, fmt.Sprintf("nats/%d-passes", pass))
						b.ReportMetric(-rebuilt, fmt.Sprintf("nats-rebuilt/%d-passes", pass))
					}
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
