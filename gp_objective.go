package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// marginalTerms is f = −Σ_n E_q[log p(y_n|z_n)] over a Gaussian q, whose terms
// see one marginal of q each: expectations are taken of one number at a time,
// whatever the estimator is.
type marginalTerms struct {
	y   []float64
	lik Likelihood
	est SiteEstimator
	// exact reports that est ignores randomness.
	exact bool
}

// Setup implements Smooth. The error wraps ErrShape unless q is Gaussian with a dimension a term.
func (f *marginalTerms) Setup(q Dist) (Terms, error) {
	if _, ok := q.(normal); !ok || q.Dim() != len(f.y) {
		return Terms{}, fmt.Errorf("pgsvi: a GP of %d terms needs a Gaussian or MeanField q of that dimension, not a %T of dimension %d: %w", len(f.y), q, q.Dim(), ErrShape)
	}
	return Terms{len(f.y), f.exact}, nil
}

// Grad implements Smooth: with e_i = E_q[log p(y_i|z_i)], −∂e_i/∂m_i and
// −∂e_i/∂V_ii = −½∂²e_i/∂m_i².
func (f *marginalTerms) Grad(_ context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	n := q.(normal)
	t := newTerms(batch, len(f.y))
	x := dense.NewRows(6, t.n)
	y, m, v, e, d1, d2 := x[0], x[1], x[2], x[3], x[4], x[5]
	for i := range t.n {
		j := t.index(i)
		y[i], m[i], v[i] = f.y[j], n.meanAt(j), n.covAt(j, j)
	}
	if err := f.est.EstimateSites(e, d1, d2, f.lik, y, m, v, env.rng()); err != nil {
		return math.NaN(), err
	}
	var value float64
	for i := range t.n {
		if sum := e[i] + d1[i] + d2[i]; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return math.NaN(), fmt.Errorf("pgsvi: %w: term %d, with label %v under N(%.4g, %.4g), has expectation %v and derivatives %v, %v", ErrNotFinite, t.index(i), y[i], m[i], v[i], e[i], d1[i], d2[i])
		}
		value -= t.scale * e[i]
		d1[i] *= -t.scale
		d2[i] *= -t.scale
	}
	if g, ok := q.(*Gaussian); ok && g.hasFactor() {
		// V_ii = Σ_j L_ij²: the gradient of term i has row i of L alone.
		clear(dst)
		for i := range t.n {
			j := t.index(i)
			dst[j] += d1[i]
			k := g.d + j*(j+1)/2
			for a, l := range g.l[j*g.d : j*g.d+j+1] {
				w := d2[i] * l
				if a == j && g.coords == LogCholesky {
					w *= l
				}
				dst[k+a] += w
			}
		}
		return value, nil
	}
	gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
	stride := n.Dim() + 1 // from one element of the diagonal to the next
	if len(gv) == len(gm) {
		stride = 1
	}
	for i := range t.n {
		j := t.index(i)
		gm[j] += d1[i]
		gv[j*stride] += 0.5 * d2[i]
	}
	n.fromMomentGrad(dst, gm, gv)
	return value, nil
}

// Value returns f over all terms, and a bound on its error.
func (f *marginalTerms) Value(_ context.Context, _ *Env, q Dist) (value, bound float64, err error) {
	n := q.(normal)
	for i, y := range f.y {
		e := ExpectLogProb(f.lik, y, n.meanAt(i), n.covAt(i, i))
		value -= e.Value
		bound += e.Err
	}
	return value, bound, nil
}

// Objective returns the model as an Objective over a dense Gaussian q, for use
// with any proximal step whatever: f = −E_q[Σ_n log p(y_n|z_n)], with gradients
// by Estimator and exact values, and h = KL(q‖N(0, K)). A step has a dense N²
// parameters and costs some products of N×N matrices, of which a gradient step of
// Linearized in the coordinates Cholesky or LogCholesky needs a third of one; Fit
// is for all but the smallest N. The error wraps ErrNoEstimator if the Estimator
// does not apply, and ErrNotPosDef if K is singular without Jitter.
func (g *GP) Objective() (Objective, error) {
	se, exact, err := siteEstimator(g.Estimator, g.lik)
	if err != nil {
		return Objective{}, err
	}
	k, err := g.gram()
	if err != nil {
		return Objective{}, err
	}
	n := g.Len()
	prior, err := NewGaussian(nil, mat.NewSymDense(n, k))
	if err != nil {
		return Objective{}, fmt.Errorf("pgsvi: covariance of the prior; set Jitter: %w", err)
	}
	return Objective{F: &marginalTerms{g.y, g.lik, se, exact}, H: KLTo(prior), Init: prior}, nil
}
