package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
)

// Estimator estimates E_q[l(z)] and its gradient.
//
// The four estimators of the package also implement VarianceEstimator and
// SiteEstimator. One that does not apply to every pair of family and integrand
// has a method Accepts(q Dist, l Integrand) error, asked at set-up.
type Estimator interface {
	// Grad stores an unbiased estimate of ∇_λ E_q[l(z)] in dst, of length
	// q.NumParams, and returns an estimate of E_q[l(z)] in nats.
	Grad(dst []float64, q Dist, l Integrand, rng *rand.Rand) (value float64, err error)
}

// VarianceEstimator is an Estimator that can report how noisy it is.
type VarianceEstimator interface {
	Estimator
	// GradVar is as Grad and also stores the estimated variance of each element
	// of dst, over repetitions of the whole estimate, in variance, which must
	// have the same length. Deterministic estimators store zeros, and an
	// estimator with a single draw NaN.
	GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (value float64, err error)
}

// SiteEstimator is an Estimator for one-dimensional terms, the form in which a
// GP asks.
type SiteEstimator interface {
	// EstimateSites stores, for each site i, estimates of E[log p(y_i|η)] and
	// its first and second derivative with respect to m_i, under η ~ N(m_i, v_i),
	// in e, d1 and d2; the second derivative is twice that with respect to v_i.
	EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error
}

// Exact takes expectations exactly, to the certified error of ExpectLogProb.
// It applies to a SiteIntegrand under a Gaussian or MeanField q.
type Exact struct{}

// Accepts returns an error wrapping ErrNoEstimator unless Exact applies.
func (Exact) Accepts(q Dist, l Integrand) error { return acceptsSites("Exact", q, l) }

// Deterministic returns true.
func (Exact) Deterministic() bool { return true }

// Grad implements Estimator.
func (Exact) Grad(dst []float64, q Dist, l Integrand, _ *rand.Rand) (float64, error) {
	return siteGrad(dst, q, l, func(lik Likelihood, y, m, v float64) Expectation {
		return ExpectLogProb(lik, y, m, v)
	})
}

// GradVar implements VarianceEstimator.
func (e Exact) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	clear(variance)
	return e.Grad(dst, q, l, rng)
}

// EstimateSites implements SiteEstimator.
func (Exact) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, _ *rand.Rand) error {
	for i := range y {
		x := ExpectLogProb(lik, y[i], m[i], v[i])
		e[i], d1[i], d2[i] = x.Value, x.D1, x.D2
	}
	return nil
}

// GaussHermite takes expectations by Gauss–Hermite quadrature with the given
// number of nodes; zero means 20. It applies where Exact does, needs LogProb
// alone, and is there for comparison: where the standard deviation of η is
// large against the scale of the likelihood it is far off, by 1.8e-2 nats a
// term for a logit at standard deviation 8 and 20 nodes.
type GaussHermite struct{ Nodes int }

// Accepts returns an error wrapping ErrNoEstimator or ErrParam.
func (g GaussHermite) Accepts(q Dist, l Integrand) error {
	if err := g.Validate(); err != nil {
		return err
	}
	return acceptsSites("GaussHermite", q, l)
}

// Validate returns an error wrapping ErrParam if Nodes is negative.
func (g GaussHermite) Validate() error {
	if g.Nodes < 0 {
		return fmt.Errorf("pgsvi: %w: GaussHermite.Nodes is %d", ErrParam, g.Nodes)
	}
	return nil
}

// Deterministic returns true.
func (GaussHermite) Deterministic() bool { return true }

// hermiteRules caches the rules by number of nodes.
var hermiteRules sync.Map

type hermiteRule struct{ x, w []float64 }

// rule returns nodes and weights for the expectation under N(0, 1).
func (g GaussHermite) rule() hermiteRule {
	n := g.Nodes
	if n == 0 {
		n = 20
	}
	if r, ok := hermiteRules.Load(n); ok {
		return r.(hermiteRule)
	}
	r := hermiteRule{make([]float64, n), make([]float64, n)}
	quad.Hermite{}.FixedLocations(r.x, r.w, math.Inf(-1), math.Inf(1))
	for i := range r.x {
		// The rule is for ∫ e^{−x²} f(x) dx.
		r.w[i] /= math.Sqrt(math.Pi)
		r.x[i] *= math.Sqrt2
	}
	hermiteRules.Store(n, r)
	return r
}

func (r hermiteRule) expect(lik Likelihood, y, m, v float64) Expectation {
	var e Expectation
	sd := math.Sqrt(v)
	for i, x := range r.x {
		e.Value += r.w[i] * lik.LogProb(y, m+sd*x)
	}
	for i, x := range r.x {
		l := r.w[i] * (lik.LogProb(y, m+sd*x) - e.Value)
		e.D1 += l * x / sd
		e.D2 += l * (x*x - 1) / v
	}
	return e
}

// Grad implements Estimator.
func (g GaussHermite) Grad(dst []float64, q Dist, l Integrand, _ *rand.Rand) (float64, error) {
	return siteGrad(dst, q, l, g.rule().expect)
}

// GradVar implements VarianceEstimator.
func (g GaussHermite) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	clear(variance)
	return g.Grad(dst, q, l, rng)
}

// EstimateSites implements SiteEstimator.
func (g GaussHermite) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, _ *rand.Rand) error {
	r := g.rule()
	for i := range y {
		x := r.expect(lik, y[i], m[i], v[i])
		e[i], d1[i], d2[i] = x.Value, x.D1, x.D2
	}
	return nil
}

func acceptsSites(name string, q Dist, l Integrand) error {
	if _, ok := l.(SiteIntegrand); !ok {
		return fmt.Errorf("pgsvi: %w: %s needs terms that depend on z through one number each, such as Sites, not %T; use ScoreFunction or Pathwise", ErrNoEstimator, name, l)
	}
	if _, ok := q.(normal); !ok {
		return fmt.Errorf("pgsvi: %w: %s needs a Gaussian or MeanField q, not %T; use ScoreFunction", ErrNoEstimator, name, q)
	}
	return nil
}

// siteGrad adds up the gradients of the sites of l, each from the expectation
// under its marginal: with α and γ the first two derivatives with respect to
// the mean of η = xᵀz, ∇_m = αx and ∇_V = ½γxxᵀ.
func siteGrad(dst []float64, q Dist, l Integrand, expect func(lik Likelihood, y, m, v float64) Expectation) (float64, error) {
	s, ok := l.(SiteIntegrand)
	n, ok2 := q.(normal)
	if !ok || !ok2 {
		return math.NaN(), acceptsSites("the estimator", q, l)
	}
	gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
	var value float64
	lik := s.Likelihood()
	for i := range s.Len() {
		x, y, w := s.Site(i)
		m, v := n.marginal(x)
		e := expect(lik, y, m, v)
		if sum := e.Value + e.D1 + e.D2; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return math.NaN(), fmt.Errorf("pgsvi: %w: term %d, with label %v under N(%.4g, %.4g), has expectation %v and derivatives %v, %v", ErrNotFinite, siteIndex(s, i), y, m, v, e.Value, e.D1, e.D2)
		}
		value += w * e.Value
		floats.AddScaled(gm, w*e.D1, x)
		n.addOuter(gv, 0.5*w*e.D2, x, x)
	}
	n.fromMomentGrad(dst, gm, gv)
	return value, nil
}

// siteIndex returns the term of the data that site i is, where the integrand tells.
func siteIndex(s SiteIntegrand, i int) int {
	if x, ok := s.(interface{ Index(i int) int }); ok {
		return x.Index(i)
	}
	return i
}

// siteValue returns E_q[l] exactly, and a bound on the error of that.
func siteValue(q normal, s SiteIntegrand) (value, bound float64) {
	for i := range s.Len() {
		x, y, w := s.Site(i)
		m, v := q.marginal(x)
		e := ExpectLogProb(s.Likelihood(), y, m, v)
		value += w * e.Value
		bound += math.Abs(w) * e.Err
	}
	return value, bound
}

// deterministic reports whether x, an Estimator or a Smooth, says that it ignores rng.
func deterministic(x any) bool {
	d, ok := x.(interface{ Deterministic() bool })
	return ok && d.Deterministic()
}

// siteEstimator returns e, or Exact for nil, if it applies to lik.
func siteEstimator(e Estimator, lik Likelihood) (SiteEstimator, error) {
	if e == nil {
		e = Exact{}
	}
	se, ok := e.(SiteEstimator)
	if !ok {
		return nil, fmt.Errorf("pgsvi: %w: the Estimator must be a SiteEstimator, %T is not", ErrNoEstimator, e)
	}
	if v, ok := e.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	if a, ok := e.(interface{ AcceptsLikelihood(Likelihood) error }); ok {
		if err := a.AcceptsLikelihood(lik); err != nil {
			return nil, err
		}
	}
	return se, nil
}
