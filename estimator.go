package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Estimator estimates E_q[l(z)] and its gradient. All four of this package are also
// SiteEstimators.
type Estimator interface {
	// Setup is called at the start of a run. It reports whether Grad is exact, that is, ignores
	// the randomness of env. The error says why the estimator does not apply to l and the family
	// of q.
	Setup(q Dist, l Integrand) (exact bool, err error)
	// Grad stores an unbiased estimate of ∇_λ E_q[l(z)] in dst, of length q.NumParams, and
	// returns an estimate of E_q[l(z)] in nats. If variance is not nil, of the same length, it
	// receives the estimated variance of each element of dst over repetitions: zeros if nothing
	// is random, NaN from a single draw.
	Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist, l Integrand) (value float64, err error)
}

// SiteEstimator is an Estimator for one-dimensional terms, as GP and GLM have them.
type SiteEstimator interface {
	Estimator
	// SetupSites is Setup for terms of lik.
	SetupSites(lik Likelihood) (exact bool, err error)
	// EstimateSites stores, for each site i, estimates of E[log p(y_i|η)] and
	// its first and second derivative with respect to m_i, under η ~ N(m_i, v_i),
	// in e, d1 and d2; the second derivative is twice that with respect to v_i.
	EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error
}

// Exact computes expectations to the certified error of ExpectLogProb. It applies to a
// SiteIntegrand under a Gaussian q. It also applies to any integrand under a Gamma, InverseGamma,
// Beta, Bernoulli, Categorical or Poisson q, by a sum or by adaptive quadrature with some hundred
// values.
type Exact struct{}

// Setup implements Estimator. The error wraps ErrNoEstimator.
func (Exact) Setup(q Dist, l Integrand) (bool, error) {
	if e, ok := q.(*Exp); ok {
		if !estimate.HasQuadrature(e.at.F) {
			return true, fmt.Errorf("pgsvi: Exact has no quadrature over %s; use ScoreFunction or Pathwise: %w", distName(q), ErrNoEstimator)
		}
		return true, nil
	}
	return true, forSites("Exact", q, l)
}

// SetupSites implements SiteEstimator. It accepts every likelihood.
func (Exact) SetupSites(Likelihood) (bool, error) { return true, nil }

// Grad implements Estimator.
func (Exact) Grad(ctx context.Context, _ *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	clear(variance)
	if e, ok := q.(*Exp); ok && estimate.HasQuadrature(e.at.F) {
		value, _, err := integral(nil, q, l).Quadrature(dst)
		if err != nil {
			return math.NaN(), err
		}
		e.FromMeanGrad(dst, dst)
		return value, nil
	}
	return siteGrad(ctx, dst, q, l, expectOf)
}

// EstimateSites implements SiteEstimator.
func (Exact) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, _ *rand.Rand) error {
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		x := ExpectLogProb(lik, y[i], m[i], v[i])
		e[i], d1[i], d2[i] = x.Value, x.D1, x.D2
	}
	return nil
}

// GaussHermite computes expectations by Gauss–Hermite quadrature with the given number of nodes;
// zero means 20. It applies where Exact does and needs only LogProb. It is meant for comparison:
// it is inaccurate if the standard deviation of η is large against the scale of the likelihood.
// For a logit at standard deviation 8 the error of 20 nodes is 1.8e-2 nats a term.
type GaussHermite struct{ Nodes int }

// Setup implements Estimator. The error wraps ErrNoEstimator or ErrParam.
func (g GaussHermite) Setup(q Dist, l Integrand) (bool, error) {
	if err := g.validate(); err != nil {
		return true, err
	}
	return true, forSites("GaussHermite", q, l)
}

// SetupSites implements SiteEstimator. The error is that of the parameters.
func (g GaussHermite) SetupSites(Likelihood) (bool, error) { return true, g.validate() }

// validate returns an error wrapping ErrParam if Nodes is negative.
func (g GaussHermite) validate() error {
	if g.Nodes < 0 {
		return fmt.Errorf("pgsvi: GaussHermite.Nodes is %d: %w", g.Nodes, ErrParam)
	}
	return checkMemory(0, memory.Bytes(2, 1, g.Nodes), fmt.Sprintf("a rule of %d nodes", g.Nodes), "take fewer Nodes, or Exact")
}

// rule takes expectations under N(0, 1).
func (g GaussHermite) rule() expect.Rule { return expect.Hermite(cmp.Or(g.Nodes, 20)) }

// of returns the expectations under lik by the rule.
func (g GaussHermite) of(lik Likelihood) estimate.Expect {
	r := g.rule()
	return func(y, m, v float64) term.Expectation { return estimate.Hermite(r, lik, y, m, v) }
}

// Grad implements Estimator.
func (g GaussHermite) Grad(ctx context.Context, _ *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	clear(variance)
	return siteGrad(ctx, dst, q, l, g.of)
}

// EstimateSites implements SiteEstimator.
func (g GaussHermite) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, _ *rand.Rand) error {
	r := g.rule()
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		x := estimate.Hermite(r, lik, y[i], m[i], v[i])
		e[i], d1[i], d2[i] = x.Value, x.D1, x.D2
	}
	return nil
}

// forSites returns an error unless l has sites and q is Gaussian.
func forSites(name string, q Dist, l Integrand) error {
	if _, ok := l.(SiteIntegrand); !ok {
		return fmt.Errorf("pgsvi: %s needs terms that depend on z through one number each, such as Sites, not %T; use ScoreFunction or Pathwise: %w", name, l, ErrNoEstimator)
	}
	if formOf(q) == nil {
		return fmt.Errorf("pgsvi: %s needs a Gaussian q, not %T; use ScoreFunction: %w", name, q, ErrNoEstimator)
	}
	return nil
}

// expectOf returns the exact expectations under lik.
func expectOf(lik Likelihood) estimate.Expect {
	return func(y, m, v float64) term.Expectation {
		return term.Expectation(ExpectLogProb(lik, y, m,
			v))
	}
}

// siteGrad is Grad by the expectations of each site of l.
func siteGrad(ctx context.Context, dst []float64, q Dist, l Integrand,
	of func(lik Likelihood) estimate.Expect) (float64, error) {
	s, ok := l.(SiteIntegrand)
	n := formOf(q)
	if !ok || n == nil {
		return math.NaN(), forSites("the estimator", q, l)
	}
	return sitesOf(s).Grad(ctx, dst, n, of(s.Likelihood()))
}

// integral returns E_q[l], for the engine.
func integral(env *Env, q Dist, l Integrand) *estimate.Integral {
	e := &estimate.Integral{Q: q, Form: formOf(q), L: l, Workers: env.Workers()}
	if x, ok := q.(*Exp); ok {
		e.Member, e.Coords = x.at, x
	}
	if s, ok := l.(SiteIntegrand); ok {
		e.Sites = sitesOf(s)
	}
	return e
}

// sitesOf returns the terms of s, for the engine.
func sitesOf(s SiteIntegrand) *estimate.Sites {
	return &estimate.Sites{Rows: s, Lik: s.Likelihood()}
}

// Integrand is a function of z whose expectation an Estimator takes. It may also be a
// SiteIntegrand.
type Integrand interface {
	// Dim returns the dimension of z.
	Dim() int
	// LogProb returns the value at z, in nats. It must not keep or change z. With several workers
	// it is called concurrently.
	LogProb(z []float64) float64
	// GradLogProb stores the gradient at z in dst. It returns false, without storing anything, if
	// the gradient is unknown.
	GradLogProb(dst, z []float64) bool
}

// SiteIntegrand is an Integrand of the form Σ_i w_i log p(y_i|x_iᵀz).
type SiteIntegrand interface {
	Integrand
	// Len returns the number of sites.
	Len() int
	// Site returns the term of the data that site i belongs to, for error messages, and x_i, y_i
	// and w_i. The caller must not change x_i.
	Site(i int) (term int, x []float64, y, weight float64)
	// Likelihood returns p.
	Likelihood() Likelihood
}
