package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// BenchmarkEstimators times each estimator in the three forms that models need, on 100 logistic
// terms in 10 dimensions. Rows are terms that depend on z through one number each. Vector is a
// log-likelihood of the whole z with its gradient. Marginals are the derivatives with respect to
// the mean and variance of each of the 100 numbers, as for a Gaussian process. Times are also in
// units of one XᵀX of the 100 rows. Estimators that sample use 300 draws, which is enough for the
// control variate. sd is the largest standard deviation of an element of the gradient, in nats.
func BenchmarkEstimators(b *testing.B) {
	const n, d, draws = 100, 10, 300
	rng := rand.New(rand.NewPCG(1, 1))
	x := mat.NewDense(n, d, nil)
	s := pgsvi.Sites{Lik: pgsvi.BernoulliLogit{}}
	for i := range n {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		s.X, s.Y = append(s.X, row), append(s.Y, math.Copysign(1, row[0]+rng.NormFloat64()))
	}
	lik := pgsvi.BernoulliLogit{}
	vector := pgsvi.LogLik{N: n, Dim: d,
		LogProb: func(n int,
			z []float64) float64 {
			return lik.LogProb(s.Y[n], floats.Dot(s.X[n], z))
		},
		Grad: func(dst []float64, n int, z []float64) {
			d1, _ := lik.Derivs(s.Y[n], floats.Dot(s.X[n], z))
			floats.AddScaled(dst, d1, s.X[n])
		},
	}
	xtx := gram(x)
	q := pgsvi.NewIsotropic(d, 0.1)
	mean, variance := make([]float64, n), make([]float64, n)
	for i, row := range s.X {
		variance[i] = 0.1 * floats.Dot(row, row)
	}
	for _, c := range []struct {
		name string
		est  interface {
			pgsvi.Estimator
			pgsvi.SiteEstimator
		}
	}{
		{"Exact", pgsvi.Exact()},
		{"GaussHermite", pgsvi.GaussHermite(0)},
		{"ScoreFunction-Quadratic", pgsvi.ScoreFunction(draws)},
		{"ScoreFunction-LeaveOneOut", pgsvi.ScoreFunctionLeaveOneOut(draws)},
		{"ScoreFunction-NoBaseline", pgsvi.ScoreFunctionPlain(draws)},
		{"Pathwise", pgsvi.Pathwise(draws)},
	} {
		report := func(b *testing.B, f func() error) {
			each, unit := inTurn(b, xtx, func() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(each/unit, "XtX")
		}
		env := &pgsvi.Env{Rng: rng}
		for _, form := range []struct {
			name string
			l    pgsvi.Integrand
		}{{"rows", s.Batch(nil)}, {"vector", vector.Batch(nil)}} {
			if _, err := c.est.Setup(q, form.l); err != nil {
				continue // Exact and GaussHermite do not support a vector
			}
			b.Run(c.name+"/"+form.name, func(b *testing.B) {
				g, v := make([]float64, q.NumParams()), make([]float64, q.NumParams())
				if _, err := c.est.Grad(context.Background(), env, g, v, q, form.l); err != nil {
					b.Fatal(err)
				}
				report(b, func() error {
					_, err := c.est.Grad(context.Background(), env, g, nil, q, form.l)
					return err
				})
				b.ReportMetric(math.Sqrt(slices.Max(v)), "sd")
			})
		}
		b.Run(c.name+"/marginals", func(b *testing.B) {
			e, d1, d2 := make([]float64, n), make([]float64, n), make([]float64, n)
			report(b, func() error {
				return c.est.EstimateSites(e, d1, d2, s.Lik, s.Y, mean, variance, rng)
			})
		})
	}
}
