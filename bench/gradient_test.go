package bench

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
)

var gradientPasses = flag.Float64("gradient.passes", 10, "passes of BenchmarkGradientMethods; 200 is that of the figures")

// unscaled is f as the published scripts of Khan et al. (2016) gave it to the
// methods they compare with: the gradient of a mini-batch is not scaled by
// N/len(batch), so that in the mean these descend KL + (M/N)·f. The value, and
// with it the ELBO, is that of f.
type unscaled struct{ pgsvi.Smooth }

func (u unscaled) Grad(dst []float64, q pgsvi.Dist, batch []int, rng *rand.Rand) (float64, error) {
	v, err := u.Smooth.Grad(dst, q, batch, rng)
	if batch != nil {
		scale := float64(len(batch)) / float64(u.Len())
		for i := range dst {
			dst[i] *= scale
		}
		v *= scale
	}
	return v, err
}

func (u unscaled) Value(q pgsvi.Dist, rng *rand.Rand) (value, stderr float64, err error) {
	return u.Smooth.(interface {
		Value(pgsvi.Dist, *rand.Rand) (float64, float64, error)
	}).Value(q, rng)
}

// gradientMethod is a method of the appendix of Khan et al. (2016) at its settings
// for ionosphere.
type gradientMethod struct {
	name string
	d    pgsvi.Divergence
	step pgsvi.Schedule
}

func gradientMethods(n int) []gradientMethod {
	const eps = 1e-8 // in the published scripts
	return []gradientMethod{
		{"SGD", pgsvi.Euclidean{}, pgsvi.RobbinsMonro{Scale: 25 / float64(n), Power: 0.51}},
		{"AdaGrad", pgsvi.AdaGrad{Epsilon: eps}, pgsvi.ConstantStep(4)},
		{"RMSprop", pgsvi.RMSprop{Decay: 0.9999, Epsilon: eps}, pgsvi.ConstantStep(0.04)},
		{"Adadelta", pgsvi.Adadelta{Decay: 1 - 1e-11, Epsilon: eps}, pgsvi.ConstantStep(0.1)},
		{"Adam", pgsvi.Adam{}, pgsvi.ConstantStep(0.25)},
	}
}

// BenchmarkGradientMethods runs the methods that Khan et al. (2016) compare with on
// ionosphere, with mini-batches of 5 and 500 draws: the −ELBO after 10, 50 and 200
// passes, as far as -gradient.passes goes, with mini-batch gradients as published
// and scaled, in the coordinates of the published scripts, LogCholesky, and in those
// of the paper, Cholesky.
func BenchmarkGradientMethods(b *testing.B) {
	p := ionosphere(b)
	for _, c := range []struct {
		name   string
		scaled bool
		coords pgsvi.Coordinates
	}{
		{"published", false, pgsvi.LogCholesky},
		{"scaled", true, pgsvi.LogCholesky},
		{"published-plain", false, pgsvi.Cholesky},
		{"scaled-plain", true, pgsvi.Cholesky},
	} {
		for _, m := range gradientMethods(len(p.y)) {
			b.Run(c.name+"/"+m.name, func(b *testing.B) {
				gp := p.model(b)
				gp.Estimator = pgsvi.ScoreFunction{Samples: 500, Baseline: pgsvi.NoBaseline}
				o, err := gp.Objective()
				if err != nil {
					b.Fatal(err)
				}
				if !c.scaled {
					o.F = unscaled{o.F}
				}
				for b.Loop() {
					s := pgsvi.Solver{Divergence: m.d, StepSize: m.step, BatchSize: 5, MaxPasses: *gradientPasses, Converger: pgsvi.Never{}}
					res, err := s.Run(context.Background(), o.Linearized().In(c.coords))
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
