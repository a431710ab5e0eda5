package loo

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// WeightSamplers returns samplers of q = N(m, V) over the weights of l, for its joint density. With
// δ = w − m and u = m − μ0,
//
//	log p(w)/q(w) = −½uᵀΛ0u − uᵀΛ0δ + ½δᵀ(V⁻¹ − Λ0)δ − ½(log|V⁻¹| − log|Λ0|).
//
// The samplers use a series if there is one (series.go), or else a sample of the rows (sample.go).
// They sum over all rows if there is neither, or if ctx is done.
func WeightSamplers(ctx context.Context, l *site.LinearModel, mean []float64,
	cov gauss.Cov) func() psis.Sampler {
	d, n := len(mean), l.X.Rows
	j := &weightDensity{prior: &l.Prior, cov: cov, mean: mean, u: make([]float64, d),
		slope: make([]float64, d),
		rows:  rowTerms{x: l.X, terms: l.Terms.Density(), at: make([]float64, n)}}
	floats.SubTo(j.u, mean, l.Prior.Mean)
	l.Prior.Mul(j.slope, j.u, 1)
	l.X.Mul(j.rows.at, j.u, nil)
	if j.series = newSeries(ctx, l, j.rows.terms, j.rows.at, cov); j.series == nil {
		j.sample = newSample(ctx, l, &j.rows, cov)
	}
	return func() psis.Sampler {
		w := &excessWork{a: make([]float64, d), b: make([]float64, d)}
		return func(z, r []float64, rng *rand.Rand) error { return j.draw(z, r, rng, w) }
	}
}

// weightDensity is the joint density of the terms and the weights.
type weightDensity struct {
	prior    *gauss.Prior
	cov      gauss.Cov
	mean     []float64 // m
	u, slope []float64 // m − μ0, and Λ0 times it
	rows     rowTerms
	series   *series // or
	sample   *sample // or nil, if all rows must be summed
}

// rowTerms holds the terms of rows.
type rowTerms struct {
	x     *design.Matrix
	terms *term.Density
	at    []float64 // Xu
}

// draw makes the draws of a psis.Sampler.
func (j *weightDensity) draw(z, r []float64, rng *rand.Rand, w *excessWork) error {
	d := len(j.mean)
	clear(z)
	for s := range len(z) / d {
		delta := z[s*d : (s+1)*d]
		if err := j.cov.Draw(delta, rng); err != nil {
			return err
		}
		if r != nil {
			square, logDet := excess(j.prior, j.cov, delta, w)
			r[s] = 0.5*(square-logDet) - 0.5*floats.Dot(j.slope, j.u) - floats.Dot(j.slope, delta)
		}
	}
	if r != nil {
		if err := j.addTerms(z, r, w); err != nil {
			return err
		}
	}
	for s := range len(z) / d {
		floats.Add(z[s*d:(s+1)*d], j.mean)
	}
	return nil
}

// addTerms adds log p(y|m + δ) of the draws δ to r. The draws are the rows of z.
func (j *weightDensity) addTerms(z, r []float64, w *excessWork) error {
	d := len(j.mean)
	switch {
	case j.sample != nil:
		for s := range r {
			r[s] += j.sample.value(z[s*d : (s+1)*d])
		}
		return j.sample.rows.add(z, r, w)
	case j.series == nil:
		return j.rows.add(z, r, w)
	}
	for s := range r {
		delta := z[s*d : (s+1)*d]
		if sum, ok := j.series.value(delta, &w.series); ok {
			r[s] += sum
		} else if err := j.rows.add(delta, r[s:s+1], w); err != nil {
			return err
		}
	}
	return nil
}

// add adds the sums of the terms at the draws δ to r. The draws are the rows of z.
func (t *rowTerms) add(z, r []float64, w *excessWork) error {
	d, n := t.x.Cols, len(t.at)
	for lo := 0; lo < n; lo += samplerRows {
		hi := min(n, lo+samplerRows)
		w.eta = dense.Resize(w.eta, len(r)*(hi-lo))
		t.x.MulRows(w.eta, z, lo, hi, &w.design)
		for s := range r {
			eta := w.eta[s*(hi-lo) : (s+1)*(hi-lo)]
			floats.Add(eta, t.at[lo:hi])
			sum, bad := t.terms.Sum(eta, lo)
			if math.IsNaN(sum) {
				t.x.MulRows(eta[:1], z[s*d:(s+1)*d], bad, bad+1, &w.design)
				return t.terms.Bad(bad, eta[0]+t.at[bad])
			}
			r[s] += sum
		}
	}
	return nil
}

// samplerRows is the number of rows whose linear predictors are computed together.
const samplerRows = 512

// excessWork is scratch: two vectors of weights, linear predictors of some rows, and buffers for
// their products and for a series.
type excessWork struct {
	a, b, eta []float64
	series    seriesWork
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
	case *gauss.Arrow:
		return c.Excess(delta), c.LogDet
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
