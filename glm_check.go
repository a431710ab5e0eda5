package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// PSIS returns what draws of q say of the posterior of g: z are the weights w. See NewPSIS, for draws and env. A q of another fit,
// of a stream or from a file will do, if it is over the weights of g: it is compared with the posterior of the rows and the prior of g.
// Each draw takes a pass over the rows.
//
// The error is one of NewPSIS, or wraps ErrParam if q is nil, over other weights than g, or over more weights
// than rows with another prior than g, and ErrNotPosDef where RandWeights has no draws.
func (g *GLM) PSIS(ctx context.Context, env *Env, q *GLMPosterior, draws int) (*PSIS, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, g.dim(), draws, g.samplers(q))
}

// fits returns an error unless q is over the weights of g.
func (g *GLM) fits(q *GLMPosterior) error {
	switch {
	case q == nil:
		return fmt.Errorf("pgsvi: nil posterior: %w", ErrParam)
	case q.Dim() != g.dim() || q.opt.Intercept != g.opt.Intercept:
		return fmt.Errorf("pgsvi: the posterior has %d weights (intercept: %t), the model %d (%t): %w", q.Dim(), q.opt.Intercept, g.dim(), g.opt.Intercept, ErrParam)
	}
	if c, ok := q.cov.(*dualCov); ok && !c.prior.equal(&g.prior) {
		return fmt.Errorf("pgsvi: the posterior has another prior than the model: %w", ErrParam)
	}
	return nil
}

// equal reports whether p and o are the same to the bit.
func (p *weightPrior) equal(o *weightPrior) bool {
	if p.full == nil || o.full == nil {
		return p.full == o.full && slices.Equal(p.mean, o.mean) && slices.Equal(p.prec, o.prec)
	}
	d := len(p.mean)
	return slices.Equal(p.mean, o.mean) && slices.Equal(dense.PackLower(p.full.p, d), dense.PackLower(o.full.p, d))
}

// samplers returns samplers of q for the joint density of g. With δ = w − m and u = m − μ0,
//
//	log p(w)/q(w) = −½uᵀΛ0u − uᵀΛ0δ + ½δᵀ(V⁻¹ − Λ0)δ − ½(log|V⁻¹| − log|Λ0|).
func (g *GLM) samplers(q *GLMPosterior) func() sampler {
	d := g.dim()
	u, slope := make([]float64, d), make([]float64, d)
	floats.SubTo(u, q.mean, g.prior.mean)
	g.prior.mul(slope, u, 1)
	eta := make([]float64, g.Len())
	g.x.mul(eta, u, nil)
	return func() sampler {
		w := &excessWork{make([]float64, d), make([]float64, d), make([]float64, min(psisRows, g.Len())*psisChunk)}
		return func(z, r []float64, rng *rand.Rand) error {
			clear(z)
			for s := range len(z) / d {
				delta := z[s*d : (s+1)*d]
				if err := q.cov.draw(delta, rng); err != nil {
					return err
				}
				if r != nil {
					square, logDet := g.excess(q.cov, delta, w)
					r[s] = 0.5*(square-logDet) - 0.5*floats.Dot(slope, u) - floats.Dot(slope, delta)
				}
			}
			for lo := 0; r != nil && lo < g.Len(); lo += psisRows {
				hi := min(g.Len(), lo+psisRows)
				rows := w.eta[:len(r)*(hi-lo)]
				g.x.mulRows(rows, z, lo, hi)
				for s := range r {
					l, err := g.terms.excess(lo, rows[s*(hi-lo):(s+1)*(hi-lo)], eta, nil, nil)
					if err != nil {
						return err
					}
					r[s] += l
				}
			}
			for s := range len(z) / d {
				floats.Add(z[s*d:(s+1)*d], q.mean)
			}
			return nil
		}
	}
}

// psisRows is the number of rows whose linear predictors are taken together.
const psisRows = 512

// excessWork is scratch: two vectors of the weights, and linear predictors of some rows.
type excessWork struct{ a, b, eta []float64 }

// excess returns δᵀ(V⁻¹ − Λ0)δ and log|V⁻¹| − log|Λ0| for V of the form c.
func (g *GLM) excess(c weightCov, delta []float64, w *excessWork) (square, logDet float64) {
	d := len(delta)
	switch c := c.(type) {
	case *dualCov:
		eta := make([]float64, c.x.rows)
		c.x.mul(eta, delta, nil)
		for n, e := range eta {
			square += c.gamma[n] * e * e
		}
		return square, c.fac.LogDet
	case *fullCov:
		copy(w.a, delta)
		dense.Trmv(blas.Trans, dense.LowerTriangle(c.s.l, d), dense.Vector(w.a))
		square, logDet = floats.Dot(w.a, w.a), c.s.logDet
	case *lowRankCov:
		t := make([]float64, c.rank)
		for j, x := range delta {
			square += c.d[j] * x * x
			floats.AddScaled(t, x, c.u[j*c.rank:(j+1)*c.rank])
		}
		square, logDet = square+floats.Dot(t, t), c.logDet
	case diagCov:
		for j, v := range c {
			square += delta[j] * delta[j] / v
			logDet -= math.Log(v)
		}
	}
	g.prior.mul(w.b, delta, 1)
	return square - floats.Dot(delta, w.b), logDet - g.prior.logDet()
}

// LOO leaves out one row after the other, by the cavities of q, which has seen all rows of g. A posterior of a stream or from a file will do;
// where its covariance is full, and has not more weights than rows, g may be of some of its rows, of as many as memory holds. The error wraps ErrParam if q is nil or over other
// weights than g, ErrEmpty if g has no rows, ErrNotPosDef if a row has more precision than there is, as q has not seen it or is not
// fitted to the end, or none leaves any, ErrNotFinite if a row that is left out has no log-probability, and ErrMemory.
func (g *GLM) LOO(ctx context.Context, q *GLMPosterior) (*LOO, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: a GLM without rows: %w", ErrEmpty)
	}
	if c, ok := q.cov.(*dualCov); ok && c.x.rows != g.Len() {
		return nil, fmt.Errorf("pgsvi: a posterior of %d rows and more weights, for a model of %d: %w", c.x.rows, g.Len(), ErrParam)
	}
	mean := floats.SubTo(make([]float64, g.dim()), q.mean, g.prior.mean)
	c, err := g.looCavities(ctx, mean, q.cov)
	if err != nil {
		return nil, err
	}
	return c.loo(ctx)
}
