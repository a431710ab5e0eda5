package loo

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// WeightSamplers returns samplers of q = N(m, V) over the weights of l, for its joint density. With
// δ = w − m and u = m − μ0,
//
//	log p(w)/q(w) = −½uᵀΛ0u − uᵀΛ0δ + ½δᵀ(V⁻¹ − Λ0)δ − ½(log|V⁻¹| − log|Λ0|).
func WeightSamplers(l *site.LinearModel, mean []float64, cov gauss.Cov) func() psis.Sampler {
	d, n := len(mean), l.X.Rows
	u, slope := make([]float64, d), make([]float64, d)
	floats.SubTo(u, mean, l.Prior.Mean)
	l.Prior.Mul(slope, u, 1)
	at := make([]float64, n)
	l.X.Mul(at, u, nil)
	terms := l.Terms.Density()
	return func() psis.Sampler {
		w := &excessWork{make([]float64, d), make([]float64, d),
			make([]float64, min(samplerRows, n)*psis.Chunk), design.Work{}}
		return func(z, r []float64, rng *rand.Rand) error {
			clear(z)
			for s := range len(z) / d {
				delta := z[s*d : (s+1)*d]
				if err := cov.Draw(delta, rng); err != nil {
					return err
				}
				if r != nil {
					square, logDet := excess(&l.Prior, cov, delta, w)
					r[s] = 0.5*(square-logDet) - 0.5*floats.Dot(slope, u) - floats.Dot(slope, delta)
				}
			}
			for lo := 0; r != nil && lo < n; lo += samplerRows {
				hi := min(n, lo+samplerRows)
				rows := w.eta[:len(r)*(hi-lo)]
				l.X.MulRows(rows, z, lo, hi, &w.design)
				for s := range r {
					eta := rows[s*(hi-lo) : (s+1)*(hi-lo)]
					floats.Add(eta, at[lo:hi])
					sum, bad := terms.Sum(eta, lo)
					if math.IsNaN(sum) {
						l.X.MulRows(eta[:1], z[s*d:(s+1)*d], bad, bad+1, &w.design)
						return terms.Bad(bad, eta[0]+at[bad])
					}
					r[s] += sum
				}
			}
			for s := range len(z) / d {
				floats.Add(z[s*d:(s+1)*d], mean)
			}
			return nil
		}
	}
}

// samplerRows is the number of rows whose linear predictors are taken together.
const samplerRows = 512

// excessWork is scratch: two vectors of the weights, linear predictors of some rows, and what their
// products need.
type excessWork struct {
	a, b, eta []float64
	design    design.Work
}

// excess returns δᵀ(V⁻¹ − Λ0)δ and log|V⁻¹| − log|Λ0| for V of the form c.
func excess(prior *gauss.Prior, c gauss.Cov, delta []float64, w *excessWork) (
	square, logDet float64) {
	d := len(delta)
	switch c := c.(type) {
	case *gauss.Dual:
		eta := make([]float64, c.X.Rows)
		c.X.Mul(eta, delta, nil)
		for n, e := range eta {
			square += c.Gamma[n] * e * e
		}
		return square, c.Fac.LogDet
	case *gauss.Full:
		copy(w.a, delta)
		dense.Trmv(blas.Trans, dense.LowerTriangle(c.S.L, d), dense.Vector(w.a))
		square, logDet = floats.Dot(w.a, w.a), c.S.LogDet
	case *gauss.LowRank:
		t := make([]float64, c.Rank)
		for j, x := range delta {
			square += c.D[j] * x * x
			floats.AddScaled(t, x, c.U[j*c.Rank:(j+1)*c.Rank])
		}
		square, logDet = square+floats.Dot(t, t), c.LogDet
	case gauss.Diagonal:
		for j, v := range c {
			square += delta[j] * delta[j] / v
			logDet -= math.Log(v)
		}
	}
	prior.Mul(w.b, delta, 1)
	return square - floats.Dot(delta, w.b), logDet - prior.LogDet()
}
