package pgsvi

import (
	"context"
	"fmt"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/parallel"
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

// LOO leaves out one datum after the other, by the cavities of q. The error wraps ErrParam if q is nil or
// a posterior of other inputs or another kernel than those of g, ErrNotPosDef if a row has more precision than there is,
// as q is not that of these labels or not fitted to the end, or none leaves any, and ErrNotFinite if a row that is left out has no log-probability.
func (g *GP) LOO(ctx context.Context, q *GPPosterior) (*LOO, error) {
	d, err := g.denseSites(ctx, q)
	if err != nil {
		return nil, err
	}
	return d.cavities().loo(ctx)
}

// LOO leaves out one datum after the other, by the cavities of q, as GLM.LOO does. The error wraps ErrParam if q is nil or has
// another number of inducing inputs than g, or g by NewSparseGPRows, which does not keep its rows, and ErrMemory where their features are too many
// for SparseGPOptions.MaxMemory.
func (g *SparseGP) LOO(ctx context.Context, q *SparseGPPosterior) (*LOO, error) {
	if q == nil || len(q.mean) != g.Rank() {
		return nil, fmt.Errorf("pgsvi: the posterior is none of %d inducing inputs: %w", g.Rank(), ErrParam)
	}
	lin, err := g.linear(ctx)
	if err != nil {
		return nil, err
	}
	c, err := lin.looCavities(ctx, q.mean, &fullCov{s: q.q})
	if err != nil {
		return nil, err
	}
	return c.loo(ctx)
}

// linear returns the model of the features of g, which are made where they are not kept.
func (g *SparseGP) linear(ctx context.Context) (*linearModel, error) {
	switch {
	case g.rows == nil:
		return &g.lin, nil
	case g.x == nil:
		return nil, fmt.Errorf("pgsvi: a SparseGP by NewSparseGPRows does not keep its rows; LOO needs those of NewSparseGP: %w", ErrParam)
	}
	n, m := g.Len(), g.Rank()
	if err := checkMemory(g.opt.MaxMemory, bytesOf(featureMatrices, n, m), fmt.Sprintf("leaving out the %d rows of a SparseGP of %d inducing inputs", n, m), "raise SparseGPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	f := featuresAt(&h, g.z, g.x)
	if err := h.Err(); err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while features were made: %w", err)
	}
	lin, _, _, err := g.z.linear(g.x, g.terms.under(g.lik), f)
	return lin, err
}
