package pgsvi

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// siteSmooth is f = −Σ_n w_n E_q[log p(y_n|η_n)], η_n = x_nᵀz, over a Gaussian q. Its terms
// see one marginal of q each: expectations are taken of one number at a time,
// whatever the estimator is. Values are exact.
type siteSmooth struct {
	terms *terms
	x     [][]float64 // x_n; nil means the unit vectors
	est   SiteEstimator
	exact bool // est ignores randomness
}

// dim returns the dimension of z.
func (f *siteSmooth) dim() int {
	if f.x == nil {
		return f.terms.len()
	}
	return len(f.x[0])
}

// marginal returns the mean and the variance of η_n under q.
func (f *siteSmooth) marginal(q normal, n int) (m, v float64) {
	if f.x == nil {
		return q.meanAt(n), q.covAt(n, n)
	}
	return q.marginal(f.x[n])
}

// Setup implements Smooth. The error wraps ErrShape unless q is Gaussian of the dimension of z.
func (f *siteSmooth) Setup(q Dist) (Terms, error) {
	if _, ok := q.(normal); !ok || q.Dim() != f.dim() {
		return Terms{}, fmt.Errorf("pgsvi: terms of %d latent values need a Gaussian q of that dimension, not a %T of dimension %d: %w", f.dim(), q, q.Dim(), ErrShape)
	}
	return Terms{f.terms.len(), f.exact}, nil
}

// Grad implements Smooth: with e_n = w_n E_q[log p(y_n|η_n)] and its derivatives α, −γ with respect to the
// mean of η_n, −∂e_n/∂m = −αx_n and −∂e_n/∂V = ½γ x_n x_nᵀ.
func (f *siteSmooth) Grad(_ context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	n := q.(normal)
	b := newBatch(batch, f.terms.len())
	var x estimates
	x.resize(b.n)
	for i := range b.n {
		x.m[i], x.v[i] = f.marginal(n, b.index(i))
	}
	if err := f.terms.estimate(&x, batch, f.est, env.rng()); err != nil {
		return math.NaN(), err
	}
	var value float64
	for i := range b.n {
		if e := x.e[i]; math.IsNaN(e) || math.IsInf(e, 0) {
			return math.NaN(), fmt.Errorf("%s under N(%.4g, %.4g) has expectation %v: %w", f.terms.describe(b.index(i)), x.m[i], x.v[i], e, ErrNotFinite)
		}
		value -= b.scale * x.e[i]
		x.d1[i] *= -b.scale
		x.d2[i] *= -b.scale
	}
	if g := factorOf(q); g != nil && f.x == nil {
		// V_nn = Σ_j L_nj²: the gradient of term n has row n of L alone.
		clear(dst)
		for i := range b.n {
			j := b.index(i)
			dst[j] += x.d1[i]
			k := g.d + j*(j+1)/2
			for a, l := range g.l[j*g.d : j*g.d+j+1] {
				w := x.d2[i] * l
				if a == j && g.coords == LogCholesky {
					w *= l
				}
				dst[k+a] += w
			}
		}
		return value, nil
	}
	gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
	if f.x != nil {
		for i := range b.n {
			row := f.x[b.index(i)]
			floats.AddScaled(gm, x.d1[i], row)
			n.addOuter(gv, 0.5*x.d2[i], row, row)
		}
		n.fromMomentGrad(dst, gm, gv)
		return value, nil
	}
	stride := n.Dim() + 1 // from one element of the diagonal to the next
	if len(gv) == len(gm) {
		stride = 1
	}
	for i := range b.n {
		j := b.index(i)
		gm[j] += x.d1[i]
		gv[j*stride] += 0.5 * x.d2[i]
	}
	n.fromMomentGrad(dst, gm, gv)
	return value, nil
}

// Value returns f over all terms, and a bound on its error.
func (f *siteSmooth) Value(_ context.Context, _ *Env, q Dist) (value, bound float64, err error) {
	g := q.(normal)
	for n := range f.terms.len() {
		m, v := f.marginal(g, n)
		e := f.terms.expectation(n, m, v)
		value -= e.Value
		bound += e.Err
	}
	return value, bound, nil
}
