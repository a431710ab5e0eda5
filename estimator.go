package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/variate"
)

// Estimator estimates E_q[l(z)] and its gradient. The Estimators of this package are also
// SiteEstimators.
type Estimator interface {
	// Setup is called at the start of a run. It reports whether Grad is exact, that is, ignores the
	// randomness of env. The error gives the reason why the estimator does not apply to l and the
	// family of q.
	Setup(q Dist, l Integrand) (exact bool, err error)
	// Grad stores an unbiased estimate of ∇_λ E_q[l(z)] in dst, of length q.NumParams, and returns
	// an estimate of E_q[l(z)] in nats. If variance is not nil, it has the same length and receives
	// the estimated variance of each element of dst over repetitions, which is 0 if nothing is
	// random and NaN for a single draw.
	Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist,
		l Integrand) (value float64, err error)
}

// SiteEstimator is an Estimator for the one-dimensional terms of a GP or GLM.
type SiteEstimator interface {
	Estimator
	// SetupSites is Setup for terms with the likelihood lik.
	SetupSites(lik Likelihood) (exact bool, err error)
	// EstimateSites estimates E[log p(y_i|η)] under η ~ N(m_i, v_i) and its first and second
	// derivatives with respect to m_i, and stores them for each i in e, d1 and d2. The second
	// derivative is twice the derivative with respect to v_i.
	EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error
}

// Exact computes expectations to the certified error of ExpectLogProb. It applies to Sites under a
// Gaussian q. It also applies to any integrand under a Gamma, InverseGamma, Beta, Bernoulli,
// Categorical or Poisson q, by a sum or by adaptive quadrature with a few hundred values.
func Exact() SiteEstimator { return exactEstimator{} }

type exactEstimator struct{}

// Setup implements Estimator. The error wraps ErrNoEstimator.
func (exactEstimator) Setup(q Dist, l Integrand) (bool, error) {
	if e, ok := q.(*Exp); ok {
		if !estimate.HasQuadrature(e.at.F) {
			return true,
				fmt.Errorf(
					"pgsvi: Exact has no quadrature over %s; use ScoreFunction or Pathwise: %w",
					distName(q), ErrNoEstimator)
		}
		return true, nil
	}
	return true, forSites("Exact", q, l)
}

// SetupSites implements SiteEstimator. It accepts every likelihood.
func (exactEstimator) SetupSites(Likelihood) (bool, error) { return true, nil }

// Grad implements Estimator.
func (exactEstimator) Grad(ctx context.Context, _ *Env, dst, variance []float64, q Dist,
	l Integrand) (float64, error) {
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
func (exactEstimator) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64,
	_ *rand.Rand) error {
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		x := ExpectLogProb(lik, y[i], m[i], v[i])
		e[i], d1[i], d2[i] = x.Value, x.D1, x.D2
	}
	return nil
}

// GaussHermite computes expectations by Gauss–Hermite quadrature with the given number of nodes;
// zero means 20. It applies whenever Exact applies, and needs only LogProb. Use it for comparison,
// because it is inaccurate if the standard deviation of η is large compared with the scale of the
// likelihood. For a logit at standard deviation 8, the error of 20 nodes is 1.8e-2 nats per term.
func GaussHermite(nodes int) SiteEstimator { return gaussHermite{nodes} }

type gaussHermite struct{ nodes int }

// Setup implements Estimator. The error wraps ErrNoEstimator or ErrParam.
func (g gaussHermite) Setup(q Dist, l Integrand) (bool, error) {
	if err := g.validate(); err != nil {
		return true, err
	}
	return true, forSites("GaussHermite", q, l)
}

// SetupSites implements SiteEstimator. It returns an error if the number of nodes is invalid.
func (g gaussHermite) SetupSites(Likelihood) (bool, error) { return true, g.validate() }

// validate returns an error that wraps ErrParam if nodes is negative, and ErrMemory if the rule
// exceeds the memory limit.
func (g gaussHermite) validate() error {
	if g.nodes < 0 {
		return fmt.Errorf("pgsvi: GaussHermite with %d nodes; set 1 or more, or 0 for 20: %w",
			g.nodes, ErrParam)
	}
	return checkMemory(0, memory.Bytes(2, 1, g.nodes), fmt.Sprintf("a rule of %d nodes", g.nodes),
		"use fewer nodes, or Exact")
}

// rule returns the quadrature rule for expectations under N(0, 1).
func (g gaussHermite) rule() expect.Rule { return expect.Hermite(cmp.Or(g.nodes, 20)) }

// of returns a function that computes expectations under lik by the rule.
func (g gaussHermite) of(lik Likelihood) estimate.Expect {
	r := g.rule()
	return func(y, m, v float64) term.Expectation { return estimate.Hermite(r, lik, y, m, v) }
}

// Grad implements Estimator.
func (g gaussHermite) Grad(ctx context.Context, _ *Env, dst, variance []float64, q Dist,
	l Integrand) (float64, error) {
	clear(variance)
	return siteGrad(ctx, dst, q, l, g.of)
}

// EstimateSites implements SiteEstimator.
func (g gaussHermite) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64,
	_ *rand.Rand) error {
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
	if _, ok := l.(*siteBatch); !ok {
		return fmt.Errorf("pgsvi: %s needs terms that depend on z through one number each, such "+
			"as Sites, but l is a %T; use ScoreFunction or Pathwise: %w", name, l, ErrNoEstimator)
	}
	if formOf(q) == nil {
		return fmt.Errorf("pgsvi: %s needs a Gaussian q, but q is a %T; use ScoreFunction: %w",
			name, q, ErrNoEstimator)
	}
	return nil
}

// expectOf returns a function that computes the exact expectations under lik.
func expectOf(lik Likelihood) estimate.Expect {
	return func(y, m, v float64) term.Expectation {
		return term.Expectation(ExpectLogProb(lik, y, m,
			v))
	}
}

// siteGrad is Grad computed from the expectations of each site of l.
func siteGrad(ctx context.Context, dst []float64, q Dist, l Integrand,
	of func(lik Likelihood) estimate.Expect) (float64, error) {
	s, ok := l.(*siteBatch)
	n := formOf(q)
	if !ok || n == nil {
		return math.NaN(), forSites("the estimator", q, l)
	}
	return sitesOf(s).Grad(ctx, dst, n, of(s.Likelihood()))
}

// integral returns E_q[l] in the form of the engine.
func integral(env *Env, q Dist, l Integrand) *estimate.Integral {
	e := &estimate.Integral{Q: q, Form: formOf(q), L: l, Workers: env.Workers()}
	if x, ok := q.(*Exp); ok {
		e.Member, e.Coords = x.at, x
	}
	if s, ok := l.(*siteBatch); ok {
		e.Sites = sitesOf(s)
	}
	return e
}

// sitesOf returns the terms of s in the form of the engine.
func sitesOf(s *siteBatch) *estimate.Terms {
	return &estimate.Terms{Rows: s, Lik: s.Likelihood()}
}

// Integrand is a function of z whose expectation an Estimator computes. For an Integrand of
// Sites.Batch, a sum Σ_i w_i log p(y_i|x_iᵀz), the Estimators of this package use one-dimensional
// expectations.
type Integrand interface {
	// Dim returns the dimension of z.
	Dim() int
	// LogProb returns the value at z, in nats. It must neither keep nor change z. It is called
	// concurrently if there are several workers.
	LogProb(z []float64) float64
	// GradLogProb stores the gradient at z in dst. If the gradient is unknown, it returns false and
	// stores nothing.
	GradLogProb(dst, z []float64) bool
}

// siteBatch is a batch of Sites, Σ_i w_i log p(y_i|x_iᵀz).
type siteBatch struct {
	estimate.SiteBatch
	lik Likelihood
}

// Likelihood returns p.
func (b *siteBatch) Likelihood() Likelihood { return b.lik }

// ScoreFunction estimates ∇_λ E_q[l] = E_q[l(z) ∇_λ log q(z|λ)] from draws of q. It is also called
// REINFORCE (Williams, 1992) or the likelihood-ratio method (Glynn, 1990; Ranganath et al., 2014).
// It needs only LogProb and applies to every family. All terms of a batch share the draws. Zero
// samples mean 100 draws for a Gaussian and 400 for an Exp. In many dimensions zero means the
// number that the control variate needs, up to 4096.
//
// The control variate is a quadratic function of the draw, or for an Exp a linear function of the
// statistics T(z). ScoreFunction subtracts it and adds the exact gradient of its expectation. The
// function is fitted by least squares to the other half of the draws, so the estimate is unbiased.
// It removes most of the variance if the posterior is close to Gaussian (Ranganath et al., 2014;
// Salimans and Knowles, 2013, use a similar regression).
//
// It needs 4 draws per coefficient: 1 + d + d(d+1)/2 for a full Gaussian, 1 + 2d for a diagonal
// one, and 1 + NumParams for an Exp. With fewer draws, ScoreFunction is ScoreFunctionLeaveOneOut.
func ScoreFunction(samples int) SiteEstimator {
	return scoreFunction{samples, estimate.Quadratic}
}

// ScoreFunctionLeaveOneOut is ScoreFunction with the mean of the other values, which it subtracts
// from each value, in place of the control variate (Kool et al., 2019). Zero samples mean 100.
func ScoreFunctionLeaveOneOut(samples int) SiteEstimator {
	return scoreFunction{samples, estimate.LeaveOneOut}
}

// ScoreFunctionPlain is ScoreFunction without a control variate, as in the estimator of Khan et al.
// (2016). Zero samples mean 100.
func ScoreFunctionPlain(samples int) SiteEstimator {
	return scoreFunction{samples, estimate.None}
}

type scoreFunction struct {
	n        int // samples; 0 means the default
	baseline estimate.Baseline
}

func (s scoreFunction) samples() int {
	if s.n == 0 {
		return scoreDraws
	}
	return s.n
}

// drawsOf returns the number of draws from q.
func (s scoreFunction) drawsOf(q Dist) int {
	if e, ok := q.(*Exp); ok && s.n == 0 && s.baseline == estimate.Quadratic {
		return max(expDraws, min(estimate.MostDraws, variate.Draws*(1+e.NumParams())))
	}
	g, ok := q.(*Gaussian)
	if s.n != 0 || s.baseline != estimate.Quadratic || !ok {
		return s.samples()
	}
	if n := variate.Draws * variate.Coefficients(q.Dim(), true); n <= estimate.MostDraws &&
		!g.isDiagonal() {
		return max(scoreDraws, n)
	}
	if n := variate.Draws * variate.Coefficients(q.Dim(), false); n <= estimate.MostDraws {
		return max(scoreDraws, n)
	}
	return scoreDraws
}

const (
	scoreDraws = 100
	// expDraws is the default for an Exp. If the noise is half a nat per draw, as for a Beta far
	// from conjugate, the error of a step is then below descent.GoalDim.
	expDraws = 400
)

// Setup implements Estimator. The error wraps ErrParam if there are too few samples, and
// ErrNoEstimator if q is a Point, which has no score.
func (s scoreFunction) Setup(q Dist, _ Integrand) (bool, error) {
	if _, ok := q.(*Point); ok {
		return false, fmt.Errorf("pgsvi: ScoreFunction needs a density, and a Point has no "+
			"density; write f as a Smooth: %w", ErrNoEstimator)
	}
	if err := s.validate(); err != nil {
		return false, err
	}
	return false, checkSamples(s.drawsOf(q), q.Dim())
}

// SetupSites implements SiteEstimator. It returns an error if there are too few samples.
func (s scoreFunction) SetupSites(Likelihood) (bool, error) { return false, s.validate() }

// validate returns an error that wraps ErrParam if there are too few samples.
func (s scoreFunction) validate() error {
	least := 1
	if s.baseline != estimate.None {
		least = 2
	}
	if s.samples() < least {
		return fmt.Errorf("pgsvi: ScoreFunction with %d samples; set %d or more, or 0 for a "+
			"default: %w", s.n, least, ErrParam)
	}
	return checkSamples(s.samples(), 1)
}

// Grad implements Estimator. With a fitted control variate, the variance treats the fitted
// coefficients as constants, which is accurate for many draws.
func (s scoreFunction) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist,
	l Integrand) (float64, error) {
	if _, err := s.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	return integral(env, q, l).Score(ctx, dst, variance, s.drawsOf(q),
		s.baseline, env.rng())
}

// EstimateSites implements SiteEstimator.
func (s scoreFunction) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64,
	rng *rand.Rand) error {
	estimate.ScoreSites(e, d1, d2, lik, y, m, v, s.samples(), s.baseline, rng)
	return nil
}

// Pathwise estimates gradients by differentiating along draws of q (reparameterization trick). For
// a Gaussian q it uses the identities of Bonnet (1964) and Price (1958),
//
//	∇_m E_q[l] = E_q[∇l(z)],   ∇_V E_q[l] = ½ E_q[∇²l(z)].
//
// It needs far fewer draws than ScoreFunction. For Sites whose likelihood is Differentiable it uses
// the Hessian. For other integrands it replaces the Hessian by ∇l(z)(V⁻¹(z − m))ᵀ, which has the
// same expectation. The control variate is then a linear function of the draw if there are 4(1+d)
// draws, and otherwise the mean of the gradients at the other draws.
//
// Zero samples mean 20 draws or, without a Hessian, at least 4(1+d), where d is the dimension or,
// for an Exp, NumParams.
func Pathwise(samples int) SiteEstimator { return pathwise{samples} }

type pathwise struct{ n int } // samples; 0 means the default

func (p pathwise) samples() int {
	if p.n == 0 {
		return 20
	}
	return p.n
}

// drawsOf returns the number of draws from q. Without a Hessian it is the number that a linear
// control variate needs.
func (p pathwise) drawsOf(q Dist, sites bool) int {
	if p.n != 0 || formOf(q) != nil && sites {
		return p.samples()
	}
	features := q.Dim()
	if pathOf(q) != nil {
		features = q.NumParams()
	}
	return max(p.samples(), min(estimate.MostDraws, variate.Draws*(1+features)))
}

// pathOf returns the Family of q if it has paths, or nil.
func pathOf(q Dist) expfam.PathFamily {
	if e, ok := q.(*Exp); ok {
		f, _ := e.at.F.(expfam.PathFamily)
		return f
	}
	return nil
}

// Setup implements Estimator. The error wraps ErrNoEstimator, ErrParam or ErrMemory.
func (p pathwise) Setup(q Dist, l Integrand) (bool, error) {
	if err := p.validate(); err != nil {
		return false, err
	}
	if err := checkSamples(p.drawsOf(q, false), q.Dim()); err != nil {
		return false, err
	}
	path := pathOf(q)
	if formOf(q) == nil && path == nil {
		return false, fmt.Errorf("pgsvi: Pathwise needs a Gaussian, or a Family with RandPath and "+
			"PathGrad, but q is a %s; use ScoreFunction: %w", distName(q), ErrNoEstimator)
	}
	if s, ok := l.(*siteBatch); ok {
		return p.SetupSites(s.Likelihood())
	}
	if l.GradLogProb(make([]float64, l.Dim()), q.Rand(nil, rand.New(rand.NewPCG(1, 1)))) {
		return false, nil
	}
	return false, fmt.Errorf(
		"pgsvi: Pathwise needs the gradient of the log-likelihood; set LogLik.Grad, or use "+
			"ScoreFunction: %w", ErrNoEstimator)
}

// SetupSites implements SiteEstimator. The error wraps ErrNoEstimator unless lik is Differentiable.
func (p pathwise) SetupSites(lik Likelihood) (bool, error) {
	if _, ok := lik.(Differentiable); !ok {
		return false, fmt.Errorf(
			"pgsvi: Pathwise needs the derivatives of %T; implement Differentiable, or use "+
				"Exact or ScoreFunction: %w", lik, ErrNoEstimator)
	}
	return false, p.validate()
}

// validate returns an error wrapping ErrParam if there are fewer than 0 samples.
func (p pathwise) validate() error {
	if p.n < 0 {
		return fmt.Errorf("pgsvi: Pathwise with %d samples; set 1 or more, or 0 for 20: %w", p.n,
			ErrParam)
	}
	return checkSamples(p.samples(), 1)
}

// sampleVectors is the least number of vectors per draw: the draw, the standard normal from which
// it is computed, and a value.
const sampleVectors = 3

// checkSamples returns an error that wraps ErrMemory if n draws of d numbers exceed the memory
// limit.
func checkSamples(n, d int) error {
	return checkMemory(0, memory.Bytes(sampleVectors, n, d),
		fmt.Sprintf("an estimate from %d draws of %d dimensions", n, d),
		"use fewer samples, or raise the limit (GOMEMLIMIT)")
}

// Grad implements Estimator.
func (p pathwise) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist,
	l Integrand) (float64, error) {
	if _, err := p.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	e := integral(env, q, l)
	return e.Path(ctx, dst, variance, p.drawsOf(q, e.Sites != nil), env.rng())
}

// EstimateSites implements SiteEstimator. The value is the mean of LogProb over the draws.
func (p pathwise) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64,
	rng *rand.Rand) error {
	d, ok := lik.(Differentiable)
	if !ok {
		_, err := p.SetupSites(lik)
		return err
	}
	estimate.PathSites(e, d1, d2, d, y, m, v, p.samples(), rng)
	return nil
}
