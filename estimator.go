package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
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
		if !hasQuadrature(e.at.F) {
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
	if e, ok := q.(*Exp); ok && hasQuadrature(e.at.F) {
		return expGrad(dst, e, l)
	}
	return siteGrad(ctx, dst, q, l, ExpectLogProb)
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

// hermiteRule takes expectations under N(0, 1).
type hermiteRule expect.Rule

func (g GaussHermite) rule() hermiteRule { return hermiteRule(expect.Hermite(cmp.Or(g.Nodes, 20))) }

func (r hermiteRule) expect(lik Likelihood, y, m, v float64) Expectation {
	var e Expectation
	sd := math.Sqrt(v)
	for i, x := range r.X {
		e.Value += r.W[i] * lik.LogProb(y, m+sd*x)
	}
	for i, x := range r.X {
		l := r.W[i] * (lik.LogProb(y, m+sd*x) - e.Value)
		e.D1 += l * x / sd
		e.D2 += l * (x*x - 1) / v
	}
	return e
}

// Grad implements Estimator.
func (g GaussHermite) Grad(ctx context.Context, _ *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	clear(variance)
	return siteGrad(ctx, dst, q, l, g.rule().expect)
}

// EstimateSites implements SiteEstimator.
func (g GaussHermite) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, _ *rand.Rand) error {
	r := g.rule()
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		x := r.expect(lik, y[i], m[i], v[i])
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

// siteGrad adds up the gradients of the sites of l, each from the expectation
// under its marginal: with α and γ the first two derivatives with respect to
// the mean of η = xᵀz, ∇_m = αx and ∇_V = ½γxxᵀ.
func siteGrad(ctx context.Context, dst []float64, q Dist, l Integrand, expect func(lik Likelihood, y, m, v float64) Expectation) (float64, error) {
	s, ok := l.(SiteIntegrand)
	n := formOf(q)
	if !ok || n == nil {
		return math.NaN(), forSites("the estimator", q, l)
	}
	gm, gv := make([]float64, n.Dim()), make([]float64, n.NumGradV())
	var value float64
	lik := s.Likelihood()
	var i int
	defer parallel.At(&i, describeSite(s))
	for i = range s.Len() {
		if i%ctxEvery == 0 && ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		term, x, y, w := s.Site(i)
		m, v := n.Marginal(x)
		e := expect(lik, y, m, v)
		if sum := e.Value + e.D1 + e.D2; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return math.NaN(), fmt.Errorf("pgsvi: %s: %w", explainSite(lik, term, y, m, v), ErrNotFinite)
		}
		value += w * e.Value
		floats.AddScaled(gm, w*e.D1, x)
		n.AddOuter(gv, 0.5*w*e.D2, x, x)
	}
	n.FromMomentGrad(dst, gm, gv)
	return value, nil
}

// describeSite returns what names a site of s.
func describeSite(s SiteIntegrand) func(i int) string {
	return func(i int) string {
		term, _, y, _ := s.Site(i)
		return fmt.Sprintf("term %d, with label %v", term, y)
	}
}

// siteValue returns E_q[l] exactly, and a bound on the error of that. Where the expectation of a
// term is not finite it is an error wrapping ErrNotFinite.
func siteValue(ctx context.Context, q normal.Form, s SiteIntegrand) (value, bound float64, err error) {
	var i int
	defer parallel.At(&i, describeSite(s))
	for i = range s.Len() {
		if i%ctxEvery == 0 && ctx.Err() != nil {
			return math.NaN(), math.NaN(), context.Cause(ctx)
		}
		n, x, y, w := s.Site(i)
		m, v := q.Marginal(x)
		e := ExpectLogProb(s.Likelihood(), y, m, v)
		if math.IsNaN(e.Value) || math.IsInf(e.Value, 0) {
			return e.Value, math.NaN(), fmt.Errorf("pgsvi: %s: %w", explainSite(s.Likelihood(), n, y, m, v), ErrNotFinite)
		}
		value += w * e.Value
		bound += math.Abs(w) * e.Err
	}
	return value, bound, nil
}

// explainSite says why a term has no finite expectation under N(m, v).
func explainSite(lik Likelihood, n int, y, m, v float64) string {
	if eta, l, ok := term.HoleIn(lik.LogProb, y, m, v); ok {
		return fmt.Sprintf("term %d, with label %v, has log-likelihood %v at η = %.6g; %s", n, y, l, eta, term.Remedy(l))
	}
	return fmt.Sprintf("term %d, with label %v, has an expectation that overflows under N(%.4g, %.4g)", n, y, m, v)
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

// pointwise is an Integrand of several terms that can say which of them an error is about.
type pointwise interface {
	// explain describes the first term whose value, or for grad its gradient, at z is not finite;
	// "" means that there is none.
	explain(z []float64, grad bool) string
}

// notFinite returns the error for an l that has the given value at z, or a gradient that is not
// finite.
func notFinite(l Integrand, z []float64, value float64, grad bool) error {
	what := ""
	if e, ok := l.(pointwise); ok {
		what = e.explain(z, grad)
	}
	if what == "" { // the sum overflows
		what = fmt.Sprintf("the log-likelihood is %v at z = %s", value, abridged(z))
	}
	if grad {
		return fmt.Errorf("pgsvi: %s: %w", what, ErrNotFinite)
	}
	return fmt.Errorf("pgsvi: %s; %s: %w", what, term.Remedy(value), ErrNotFinite)
}

// abridged writes the first elements of z.
func abridged(z []float64) string {
	const most = 6
	if len(z) <= most {
		return fmt.Sprintf("%.6g", z)
	}
	first := fmt.Sprintf("%.6g", z[:most])
	return fmt.Sprintf("%s … %d more]", strings.TrimSuffix(first, "]"), len(z)-most)
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

// lineFamily is a continuous Family of one dimension with a coordinate u ∈ R in which its density
// is log-concave, has its mode at 0, and decays at least exponentially on both sides.
type lineFamily interface {
	Family
	// Line stores T(z) − μ at u in t, and returns z and the log density of u.
	Line(t []float64, u float64, eta []float64) (z, log float64)
	// Width returns a number of the size of the width of the density at its mode.
	Width(eta []float64) float64
}

// sumFamily is a discrete Family of one dimension.
type sumFamily interface {
	Family
	// Each calls add for every z that has a probability p, to rounding.
	Each(eta []float64, add func(z, p float64))
}

const (
	lineFolds = 60 // e-folds below the mode at which a density of one dimension ends
	// doublings of a width on the way there; two times as many panels fit a quadrature
	mostFolds = 60
	lineTol   = 1e-13 // relative accuracy that its integrals are to have
	lineWorst = 1e-6  // that without which they are of no use
)

// hasQuadrature reports whether there is one over members of f.
func hasQuadrature(f expfam.Family) bool {
	switch f.(type) {
	case sumFamily, lineFamily:
		return true
	}
	return false
}

// quadrature returns E_q[l] with a bound on its error, and stores ∇_μ E_q[l] in dst, for a q of one
// dimension that has one. The error wraps ErrNotFinite where l is not finite, and ErrNoEstimator
// where it is too rough.
func quadrature(dst []float64, q *Exp, l Integrand) (value, bound float64, err error) {
	z, n := make([]float64, 1), q.NumParams()
	t := make([]float64, n)
	logProb := func(x float64) float64 {
		z[0] = x
		v := l.LogProb(z)
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = notFinite(l, []float64{x}, v, false)
		}
		return v
	}
	clear(dst)
	if f, ok := q.at.F.(sumFamily); ok {
		var abs float64
		f.Each(q.at.Eta, func(x, p float64) {
			v := logProb(x)
			value += p * v
			abs += p * math.Abs(v)
		})
		f.Each(q.at.Eta, func(x, p float64) { // values are taken less their mean
			v := logProb(x)
			f.Stat(t, z)
			for i, ti := range t {
				dst[i] += p * (v - value) * (ti - q.at.Mu[i])
			}
		})
		q.at.FisherSolve(dst)
		return value, 1e-15 * abs, err
	}
	f := q.at.F.(lineFamily)
	cuts := []float64{0}
	h := math.Min(1, f.Width(q.at.Eta))
	for range mostFolds {
		cuts = append(cuts, h)
		if _, log := f.Line(t, h, q.at.Eta); !(log > -lineFolds) {
			break
		}
		h *= 2
	}
	h = -cuts[1]
	for range mostFolds {
		cuts = slices.Insert(cuts, 0, h)
		if _, log := f.Line(t, h, q.at.Eta); !(log > -lineFolds) {
			break
		}
		h *= 2
	}
	mode, _ := f.Line(t, 0, q.at.Eta)
	first := logProb(mode) // values are taken less that at the mode
	sum := expect.Adaptive(func(u float64) (r [3]float64) {
		x, log := f.Line(t, u, q.at.Eta)
		if log < -2*lineFolds {
			return r
		}
		r[0] = math.Exp(log) * (logProb(x) - first)
		for i, ti := range t {
			r[1+i] = r[0] * ti
		}
		return r
	}, cuts, lineTol)
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	copy(dst, sum.Sum[1:])
	for i, e := range sum.Err[1 : 1+n] {
		if e > lineWorst*math.Sqrt(q.at.FisherAt(i)) {
			return math.NaN(), math.NaN(), fmt.Errorf("pgsvi: the log-likelihood is too rough for quadrature: element %d of its gradient is %.3g ± %.2g; use ScoreFunction: %w", i, dst[i], e, ErrNoEstimator)
		}
	}
	q.at.FisherSolve(dst)
	return first + sum.Sum[0], sum.Err[0] + 1e-15*math.Abs(first), nil
}

// expGrad is Exact.Grad for an exponential family.
func expGrad(dst []float64, q *Exp, l Integrand) (float64, error) {
	value, _, err := quadrature(dst, q, l)
	if err != nil {
		return math.NaN(), err
	}
	q.FromMeanGrad(dst, dst)
	return value, nil
}
