package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// PSIS returns what draws of q say of the posterior of g: z are the latent values at the training points. See NewPSIS, for draws and
// env. With the sites of q, of parameters γ_n and a_n about its mean m, the prior cancels in the weights,
//
//	log p(y, z) − log q(z) = Σ_n [log p(y_n|z_n) − a_n(z_n − m_n) + ½γ_n(z_n − m_n)²] − ½aᵀm − ½log|I + ΓK|.
//
// It takes about as much memory as a fit, N³ operations, and N² for each draw. The error is one of NewPSIS, or wraps
// ErrParam if q is nil or a posterior of other inputs or another kernel than those of g, and ErrNotPosDef.
func (g *GP) PSIS(ctx context.Context, env *Env, q *GPPosterior, draws int) (*PSIS, error) {
	d, err := g.denseSites(ctx, q)
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, g.Len(), draws, d.samplers())
}

// denseSites returns q as what sites make of the prior of g.
func (g *GP) denseSites(ctx context.Context, q *GPPosterior) (*denseSites, error) {
	switch {
	case q == nil:
		return nil, fmt.Errorf("pgsvi: nil posterior: %w", ErrParam)
	case q.x != g.x && !mat.Equal(q.x, g.x):
		return nil, fmt.Errorf("pgsvi: the posterior is of other inputs than the model: %w", ErrParam)
	case q.x != g.x && !reflect.DeepEqual(q.kernel, g.kernel) || q.jitter != g.opt.Jitter:
		return nil, fmt.Errorf("pgsvi: the posterior has the kernel %+v and jitter %v, the model %+v and %v: %w", q.kernel, q.jitter, g.kernel, g.opt.Jitter, ErrParam)
	}
	if err := g.checkMemory("raise GPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	var d *denseSites
	k, err := g.gramUntil(&h)
	if err == nil {
		d, err = newDenseSites(&h, g.terms, k, q.m, q.gamma, q.a)
	}
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the posterior covariance was computed: %w", cause)
	}
	return d, err
}

// denseSites is a Gaussian over N latent values of prior N(0, K), in site form.
type denseSites struct {
	terms       *siteTerms
	m, gamma, a []float64
	logDet      float64   // log|I + ΓK|
	v           []float64 // V, full
	left        []float64 // 1 − γ_n V_nn, what is left of the precision of z_n without its site
}

// newDenseSites returns the Gaussian of sites γ and a about its mean m, under the prior covariance k, which it keeps.
func newDenseSites(h *parallel.Halt, t *siteTerms, k, m, gamma, a []float64) (*denseSites, error) {
	n := len(m)
	d := &denseSites{terms: t, m: m, gamma: gamma, a: a, v: make([]float64, n*n), left: make([]float64, n)}
	f := dense.Sites{Halt: h}
	var x dense.Expansion
	ok := f.Factor(k, n, gamma)
	if ok {
		d.logDet = f.LogDet
		f.Expand(&x, k, n)
		f.Covariance(d.v, &x)
		f.Left(d.left, d.v)
		dense.FillUpper(d.v, n)
	}
	if _, finite := dense.AllFinite(d.v); !ok || !finite {
		return nil, fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	return d, nil
}

// root returns L with V = LLᵀ, N×rank and row by row, and the rank: that to rounding of the matrix of correlations.
func (d *denseSites) root() (l []float64, rank int) {
	n := len(d.m)
	corr, sd := mat.NewSymDense(n, nil), make([]float64, n)
	for i := range sd {
		sd[i] = math.Sqrt(math.Max(0, d.v[i*n+i]))
	}
	for i, si := range sd {
		for j, sj := range sd[:i+1] {
			if si > 0 && sj > 0 {
				corr.SetSym(i, j, d.v[i*n+j]/(si*sj))
			}
		}
	}
	var chol mat.PivotedCholesky
	chol.Factorize(corr, -1)
	var u mat.TriDense
	chol.UTo(&u)
	rank = chol.Rank()
	l = make([]float64, n*rank)
	for j, i := range chol.ColumnPivots(nil) { // PᵀCP = UᵀU
		for k := range min(j+1, rank) {
			l[i*rank+k] = sd[i] * u.At(k, j)
		}
	}
	return l, rank
}

// samplers returns the samplers of d for the joint density of the terms and the prior.
func (d *denseSites) samplers() func() sampler {
	n := len(d.m)
	l, rank := d.root()
	at := -0.5 * (floats.Dot(d.a, d.m) + d.logDet)
	return func() sampler {
		eps := make([]float64, psisChunk*rank)
		return func(z, r []float64, rng *rand.Rand) error {
			draws := len(z) / n
			e := eps[:draws*rank]
			for i := range e {
				e[i] = rng.NormFloat64()
			}
			clear(z)
			if rank > 0 {
				blas64.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(e, draws, rank), dense.General(l, n, rank), 0, dense.General(z, draws, n))
			}
			for s := range draws {
				zs := z[s*n : (s+1)*n]
				if r != nil {
					x, err := d.terms.excess(zs, d.m, d.gamma, d.a)
					if err != nil {
						return err
					}
					r[s] = at + x
				}
				floats.Add(zs, d.m)
			}
			return nil
		}
	}
}
