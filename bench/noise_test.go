package bench

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
)

// oneByOne uses new draws for each site of a mini-batch. ScoreFunction and the published scripts
// share draws between the sites.
type oneByOne struct{ pgsvi.SiteEstimator }

func (o oneByOne) EstimateSites(e, d1, d2 []float64, lik pgsvi.Likelihood, y, m, v []float64,
	rng *rand.Rand) error {
	for i := range y {
		if err := o.SiteEstimator.EstimateSites(e[i:i+1], d1[i:i+1], d2[i:i+1], lik, y[i:i+1],
			m[i:i+1], v[i:i+1], rng); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkNoiseFloor reports how far above the optimum PG-SVI stays with a constant step size:
// mean nats over passes 11 to 30 and five seeds on ionosphere, as published and with one change at
// a time.
func BenchmarkNoiseFloor(b *testing.B) {
	p := ionosphere(b)
	_, best, err := p.GP.Fit(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	published := p.ScoreFunction()
	for _, c := range []struct {
		name   string
		est    pgsvi.SiteEstimator
		update pgsvi.Coordinates
		sample pgsvi.Sampler
	}{
		{"published", published, pgsvi.MeanParams, nil},
		{"mean-update-of-the-appendix", published, pgsvi.MeanCov, nil},
		{"batches-with-replacement", published, pgsvi.MeanParams, pgsvi.WithReplacement()},
		{"draws-not-shared", oneByOne{published}, pgsvi.MeanParams, nil},
		{"baseline", pgsvi.ScoreFunction(p.Samples), pgsvi.MeanParams, nil},
		{"pathwise", pgsvi.Pathwise(p.Samples), pgsvi.MeanParams, nil},
		{"exact", pgsvi.Exact(), pgsvi.MeanParams, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			gp, err := p.Model(pgsvi.GPOptions{Estimator: c.est, Coordinates: c.update})
			if err != nil {
				b.Fatal(err)
			}
			const seeds, first, last = 5, 11, 30
			var above float64
			for b.Loop() {
				above = 0
				for seed := range uint64(seeds) {
					s := paper.PGSVI(len(p.Y), p.BetaN, p.Batch)
					s.Sampler, s.Src = c.sample, rand.NewPCG(seed+1, 0)
					run, err := s.Start(context.Background(), gp)
					if err != nil {
						b.Fatal(err)
					}
					for it, err := range paper.Passes(context.Background(), *s, run, last) {
						if err != nil {
							b.Fatal(err)
						}
						if it.Passes < first {
							continue
						}
						elbo, err := paper.ELBO(run.Stepper)
						if err != nil {
							b.Fatal(err)
						}
						above += (best.ELBO - elbo) / seeds / (last - first + 1)
					}
				}
			}
			b.ReportMetric(above, "nats-above")
			b.ReportMetric(0, "ns/op")
		})
	}
}
