package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

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

// ScoreFunction estimates ∇_λ E_q[l] = E_q[l(z) ∇_λ log q(z|λ)] from draws of q
// (Glynn, 1990; Williams, 1992; Ranganath et al., 2014). It needs LogProb alone
// and applies to every family. The draws are shared by all terms of a batch.
type ScoreFunction struct {
	// Samples is the number of draws. Zero means 100; one is enough only with NoBaseline.
	Samples int
	// Baseline reduces the variance.
	Baseline Baseline
}

func (s ScoreFunction) samples() int {
	if s.Samples == 0 {
		return 100
	}
	return s.Samples
}

// Accepts returns an error wrapping ErrParam if there are too few samples, or
// ErrNoEstimator if q is a Point, which has no score.
func (s ScoreFunction) Accepts(q Dist, _ Integrand) error {
	if _, ok := q.(*Point); ok {
		return fmt.Errorf("pgsvi: %w: ScoreFunction needs a density, and a Point has none; write f as a Smooth", ErrNoEstimator)
	}
	return s.Validate()
}

// Validate returns an error wrapping ErrParam if there are too few samples or
// Baseline is unknown.
func (s ScoreFunction) Validate() error {
	least := 1
	if s.Baseline != NoBaseline {
		least = 2
	}
	if s.samples() < least || s.Baseline < Quadratic || s.Baseline > NoBaseline {
		return fmt.Errorf("pgsvi: %w: %+v needs Samples >= %d and a known Baseline", ErrParam, s, least)
	}
	return nil
}

// center turns values of the integrand into the weights of the score, such
// that their mean with the scores is the estimate, and returns the mean of the values.
func (s ScoreFunction) center(values []float64) (mean float64) {
	mean = floats.Sum(values) / float64(len(values))
	if s.Baseline != NoBaseline {
		// v_s − mean of the others = S/(S−1)·(v_s − mean).
		c := float64(len(values)) / float64(len(values)-1)
		for i, v := range values {
			values[i] = c * (v - mean)
		}
	}
	return mean
}

// Grad implements Estimator.
func (s ScoreFunction) Grad(dst []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return s.grad(dst, nil, q, l, rng)
}

// GradVar implements VarianceEstimator. With the baseline Quadratic it takes the
// fitted coefficients as given, which errs by little where draws are many.
func (s ScoreFunction) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return s.grad(dst, variance, q, l, rng)
}

func (s ScoreFunction) grad(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	if err := s.Accepts(q, l); err != nil {
		return math.NaN(), err
	}
	draws := drawSamples(q, s.samples(), rng)
	values := make([]float64, len(draws.z))
	logProbs(values, l, draws.z)
	n, isNormal := q.(normal)
	var fit quadraticFit
	var mean float64
	fitted := false
	if s.Baseline == Quadratic && isNormal {
		_, diagonal := q.(*MeanField)
		fitted = fit.fit(values, draws.eps, !diagonal)
	}
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.coef[0]
	} else {
		mean = s.center(values)
	}
	if variance != nil || !isNormal {
		acc := newMoments(dst, variance)
		g := make([]float64, len(dst))
		for i, z := range draws.z {
			q.Score(g, z)
			floats.Scale(values[i], g)
			acc.add(g)
		}
		acc.finish()
		if fitted {
			gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
			fit.addGrad(gm, gv, n)
			floats.Add(dst, n.fromMomentGrad(nil, gm, gv))
		}
		return mean, nil
	}
	// In (m, V) the score is u = V⁻¹(z − m) and ½(uuᵀ − V⁻¹).
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.numGradV()), make([]float64, n.Dim())
	var sum float64
	for i, eps := range draws.eps {
		w := values[i] / float64(len(values))
		sum += w
		n.standardize(u, eps)
		floats.AddScaled(gm, w, u)
		n.addOuter(gv, 0.5*w, u, u)
	}
	n.addPrecision(gv, -0.5*sum)
	if fitted {
		fit.addGrad(gm, gv, n)
	}
	n.fromMomentGrad(dst, gm, gv)
	return mean, nil
}

// EstimateSites implements SiteEstimator.
func (s ScoreFunction) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	eps := getDraws(s.samples(), rng)
	defer putDraws(eps)
	n := len(eps.x)
	values, fit := eps.values, &eps.fit
	quadratic := s.Baseline == Quadratic && n >= 12
	if quadratic {
		fit.init(n, 3)
		for j, x := range eps.x {
			row := fit.row(j)
			row[0], row[1], row[2] = 1, x, x*x-1
		}
	}
	for i := range y {
		sd := math.Sqrt(v[i])
		for j, x := range eps.x {
			values[j] = lik.LogProb(y[i], m[i]+sd*x)
		}
		// E[c1 ε + c2 (ε² − 1)] has the derivatives c1/sd and 2c2/v.
		var c1, c2 float64
		if quadratic && fit.residuals(values) {
			e[i] = floats.Sum(values)/float64(n) + fit.coef[0]
			c1, c2 = fit.coef[1], 2*fit.coef[2]
		} else {
			e[i] = s.center(values)
		}
		var a, b float64
		for j, x := range eps.x {
			a += values[j] * x
			b += values[j] * (x*x - 1)
		}
		d1[i], d2[i] = (a/float64(n)+c1)/sd, (b/float64(n)+c2)/v[i]
	}
	return nil
}

// Pathwise estimates, by the identities of Bonnet (1964) and Price (1958),
//
//	∇_m E_q[l] = E_q[∇l(z)],   ∇_V E_q[l] = ½ E_q[∇²l(z)]
//
// from draws of a Gaussian or MeanField q. The Hessian is used for a
// SiteIntegrand whose likelihood is Differentiable; for a Gradienter it is
// replaced by ∇l(z)(V⁻¹(z − m))ᵀ, which has the same expectation. It needs far
// fewer draws than ScoreFunction.
type Pathwise struct {
	// Samples is the number of draws. Zero means 20.
	Samples int
}

func (p Pathwise) samples() int {
	if p.Samples == 0 {
		return 20
	}
	return p.Samples
}

// Accepts returns an error wrapping ErrNoEstimator or ErrParam.
func (p Pathwise) Accepts(q Dist, l Integrand) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if _, ok := q.(normal); !ok {
		return fmt.Errorf("pgsvi: %w: Pathwise needs a Gaussian or MeanField q, not %T; use ScoreFunction", ErrNoEstimator, q)
	}
	if s, ok := l.(SiteIntegrand); ok {
		return p.AcceptsLikelihood(s.Likelihood())
	}
	if g, ok := l.(Gradienter); ok && g.GradLogProb(make([]float64, l.Dim()), q.Rand(nil, rand.New(rand.NewPCG(1, 1)))) {
		return nil
	}
	return fmt.Errorf("pgsvi: %w: Pathwise needs the gradient of the log-likelihood: set LogLik.Grad, or use ScoreFunction", ErrNoEstimator)
}

// AcceptsLikelihood returns an error wrapping ErrNoEstimator unless lik is Differentiable.
func (p Pathwise) AcceptsLikelihood(lik Likelihood) error {
	if _, ok := lik.(Differentiable); !ok {
		return fmt.Errorf("pgsvi: %w: Pathwise needs the derivatives of %T: implement Differentiable, or use Exact or ScoreFunction", ErrNoEstimator, lik)
	}
	return nil
}

// Validate returns an error wrapping ErrParam if Samples is negative.
func (p Pathwise) Validate() error {
	if p.Samples < 0 {
		return fmt.Errorf("pgsvi: %w: Pathwise.Samples is %d", ErrParam, p.Samples)
	}
	return nil
}

// Grad implements Estimator.
func (p Pathwise) Grad(dst []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return p.grad(dst, nil, q, l, rng)
}

// GradVar implements VarianceEstimator.
func (p Pathwise) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return p.grad(dst, variance, q, l, rng)
}

func (p Pathwise) grad(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	if err := p.Accepts(q, l); err != nil {
		return math.NaN(), err
	}
	n := q.(normal)
	draws := drawSamples(q, p.samples(), rng)
	values := make([]float64, len(draws.z))
	logProbs(values, l, draws.z)
	sites, _ := l.(SiteIntegrand)
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.numGradV()), make([]float64, n.Dim())
	var acc *runningMoments
	g := dst
	if variance != nil {
		acc, g = newMoments(dst, variance), make([]float64, len(dst))
	}
	w := 1 / float64(len(draws.z))
	for i, z := range draws.z {
		if acc != nil {
			clear(gm)
			clear(gv)
			w = 1
		}
		if sites != nil {
			addSiteDerivs(n, gm, gv, w, sites, z)
		} else {
			n.standardize(u, draws.eps[i])
			dl := draws.scratch
			l.(Gradienter).GradLogProb(dl, z)
			floats.AddScaled(gm, w, dl)
			n.addOuter(gv, 0.25*w, dl, u)
			n.addOuter(gv, 0.25*w, u, dl)
		}
		if acc != nil {
			acc.add(n.fromMomentGrad(g, gm, gv))
		}
	}
	if acc != nil {
		acc.finish()
	} else {
		n.fromMomentGrad(dst, gm, gv)
	}
	return floats.Sum(values) / float64(len(values)), nil
}

// addSiteDerivs adds w times the gradient and half the Hessian of the sites at z.
func addSiteDerivs(n normal, gm, gv []float64, w float64, s SiteIntegrand, z []float64) {
	lik := s.Likelihood().(Differentiable)
	for i := range s.Len() {
		x, y, weight := s.Site(i)
		d1, d2 := lik.Derivs(y, floats.Dot(x, z))
		floats.AddScaled(gm, w*weight*d1, x)
		n.addOuter(gv, 0.5*w*weight*d2, x, x)
	}
}

// EstimateSites implements SiteEstimator. The value is the mean of LogProb over the draws.
func (p Pathwise) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	d, ok := lik.(Differentiable)
	if !ok {
		return p.AcceptsLikelihood(lik)
	}
	eps := getDraws(p.samples(), rng)
	defer putDraws(eps)
	n := float64(len(eps.x))
	for i := range y {
		sd := math.Sqrt(v[i])
		var l, a, b float64
		for _, x := range eps.x {
			eta := m[i] + sd*x
			g, h := d.Derivs(y[i], eta)
			l += lik.LogProb(y[i], eta)
			a += g
			b += h
		}
		e[i], d1[i], d2[i] = l/n, a/n, b/n
	}
	return nil
}

// runningMoments accumulates mean and variance of the terms of an estimate (Welford, 1962).
type runningMoments struct {
	mean, m2 []float64
	n        float64
}

// newMoments starts with mean and m2 as storage; a nil m2 allocates.
func newMoments(mean, m2 []float64) *runningMoments {
	m2 = dest(m2, len(mean))
	clear(mean)
	clear(m2)
	return &runningMoments{mean: mean, m2: m2}
}

func (a *runningMoments) add(x []float64) {
	a.n++
	for i, xi := range x {
		d := xi - a.mean[i]
		a.mean[i] += d / a.n
		a.m2[i] += d * (xi - a.mean[i])
	}
}

// finish turns the sums of squares into the variance of the mean, which one
// term leaves unknown: NaN.
func (a *runningMoments) finish() {
	for i := range a.m2 {
		a.m2[i] /= a.n * (a.n - 1)
	}
}

// sampleSet holds draws z from q and, for a Gaussian, the standard normal ε they came from.
type sampleSet struct {
	z, eps  [][]float64
	scratch []float64
}

func drawSamples(q Dist, n int, rng *rand.Rand) sampleSet {
	d := q.Dim()
	s := sampleSet{z: newRows(n, d), scratch: make([]float64, d)}
	g, ok := q.(normal)
	if !ok {
		for _, z := range s.z {
			q.Rand(z, rng)
		}
		return s
	}
	s.eps = newRows(n, d)
	for i, eps := range s.eps {
		for j := range eps {
			eps[j] = rng.NormFloat64()
		}
		copy(s.z[i], eps)
		g.transform(s.z[i])
	}
	return s
}

// newRows returns n slices of length d in one block of memory.
func newRows(n, d int) [][]float64 {
	data := make([]float64, n*d)
	r := make([][]float64, n)
	for i := range r {
		r[i] = data[i*d : (i+1)*d : (i+1)*d]
	}
	return r
}

// siteDraws are standard normal draws shared by the sites of a batch.
type siteDraws struct {
	x, values []float64
	fit       regression
}

var siteDrawPool = sync.Pool{New: func() any { return new(siteDraws) }}

func getDraws(n int, rng *rand.Rand) *siteDraws {
	d := siteDrawPool.Get().(*siteDraws)
	d.x, d.values = resize(d.x, n), resize(d.values, n)
	for i := range d.x {
		d.x[i] = rng.NormFloat64()
	}
	return d
}

func putDraws(d *siteDraws) { siteDrawPool.Put(d) }

// parallelIntegrand shares the evaluations of an Integrand between goroutines.
type parallelIntegrand struct {
	Integrand
	workers int
}

// GradLogProb implements Gradienter where the integrand does.
func (p parallelIntegrand) GradLogProb(dst, z []float64) bool {
	g, ok := p.Integrand.(Gradienter)
	return ok && g.GradLogProb(dst, z)
}

// logProbs stores l(z) for each z. Each value is computed by one goroutine
// alone, so that the result does not depend on their number.
func logProbs(dst []float64, l Integrand, zs [][]float64) {
	p, ok := l.(parallelIntegrand)
	if !ok {
		for i, z := range zs {
			dst[i] = l.LogProb(z)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(p.workers, len(zs)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(zs); i = int(next.Add(1)) - 1 {
				dst[i] = p.Integrand.LogProb(zs[i])
			}
		})
	}
	wg.Wait()
}

// monteCarloValue returns an estimate of E_q[l] and its standard error, from at
// least n draws, less a quadratic control variate where q is Gaussian.
func monteCarloValue(q Dist, l Integrand, n int, rng *rand.Rand) (mean, stderr float64) {
	d := q.Dim()
	n = max(n, min(4*(1+2*d+d*(d-1)/2), 4096))
	draws := drawSamples(q, n, rng)
	values := make([]float64, n)
	logProbs(values, l, draws.z)
	var offset float64
	if _, ok := q.(normal); ok {
		var fit quadraticFit
		if fit.fit(values, draws.eps, true) {
			offset = fit.coef[0]
		}
	}
	mean = floats.Sum(values) / float64(n)
	var ss float64
	for _, v := range values {
		ss += (v - mean) * (v - mean)
	}
	return offset + mean, math.Sqrt(ss / float64(n) / float64(n-1))
}
