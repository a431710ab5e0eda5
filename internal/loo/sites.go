package loo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Posterior is a Gaussian over N latent values with the prior N(0, K), in site form. LOO of a GP
// uses it.
type Posterior struct {
	terms       *term.Terms
	m, gamma, a []float64
	logDet      float64   // log|I + ΓK|
	v           []float64 // V, both triangles
	left        []float64 // 1 − γ_n V_nn, the part of the precision of z_n without its site
}

// NewPosterior returns the Gaussian of sites γ and a about its mean m, under the prior covariance k.
// It keeps its arguments.
func NewPosterior(h *parallel.Halt, t *term.Terms, k, m, gamma, a []float64) (*Posterior, error) {
	n := len(m)
	d := &Posterior{terms: t, m: m, gamma: gamma, a: a, v: make([]float64, n*n),
		left: make([]float64, n)}
	f := dense.SiteFactor{Halt: h}
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
		return nil, fmt.Errorf("posterior covariance: %w", sentinel.ErrNotPosDef)
	}
	return d, nil
}

// root returns L with V = LLᵀ, N×rank and row by row, and the rank. It is the rank of the matrix
// of correlations up to rounding.
func (d *Posterior) root() (l []float64, rank int) {
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

// Samplers returns the samplers of d for the joint density of the terms and the prior.
func (d *Posterior) Samplers() func() psis.Sampler {
	n := len(d.m)
	l, rank := d.root()
	at := -0.5 * (floats.Dot(d.a, d.m) + d.logDet)
	terms := d.terms.Density()
	return func() psis.Sampler {
		eps, eta := make([]float64, psis.Chunk*rank), make([]float64, n)
		return func(z, r []float64, rng *rand.Rand) error {
			draws := len(z) / n
			e := eps[:draws*rank]
			for i := range e {
				e[i] = rng.NormFloat64()
			}
			clear(z)
			if rank > 0 {
				dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(e, draws, rank),
					dense.General(l, n, rank),
					0, dense.General(z, draws, n))
			}
			for s := range draws {
				zs := z[s*n : (s+1)*n]
				if r != nil {
					r[s] = at + d.siteExcess(zs)
				}
				floats.Add(zs, d.m)
				if r == nil {
					continue
				}
				copy(eta, zs)
				sum, bad := terms.Sum(eta, 0)
				if math.IsNaN(sum) {
					return terms.Bad(bad, zs[bad])
				}
				r[s] += sum
			}
			return nil
		}
	}
}

// siteExcess returns Σ_n [½γ_nδ_n² − a_nδ_n].
func (d *Posterior) siteExcess(delta []float64) (sum float64) {
	for n, x := range delta {
		sum += (0.5*d.gamma[n]*x - d.a[n]) * x
	}
	return sum
}

// LeaveOut leaves out one term at a time.
func (d *Posterior) LeaveOut(ctx context.Context, lik Likelihood) (*Result, error) {
	return d.cavities().leaveOut(ctx, lik)
}

// cavities returns the cavities of d.
func (d *Posterior) cavities() *cavities {
	n := len(d.m)
	c := &cavities{terms: d.terms, m: d.m, gamma: d.gamma, a: d.a, left: d.left, known: remainder}
	c.v = make([]float64, n)
	for i := range n {
		c.v[i] = d.v[i*n+i]
	}
	c.vary = c.v
	c.cov = d.covariances
	return c
}

// covariances implements cavities.cov.
func (d *Posterior) covariances(index []int) func(dst []float64, n int) {
	return func(dst []float64, n int) {
		for k, i := range index {
			dst[k] = d.v[n*len(d.m)+i]
		}
	}
}
