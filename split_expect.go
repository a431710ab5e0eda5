package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Expect returns f(λ) = −E_q[Σ_n log p(y_n|z)], with the gradient estimated by e. A nil e means
// Exact for Sites and ScoreFunction otherwise. The values of f are exact for Sites with any e, so
// the ELBO curves of different estimators are comparable. Otherwise values are Monte Carlo
// estimates with the same draws in each evaluation. Setup returns errors of shapes and labels.
func Expect(l LogLikelihood, e Estimator) Smooth {
	f := &expectedTerms{ll: l, est: e}
	if e == nil {
		f.est = ScoreFunction(0)
		if l != nil && l.Len() > 0 {
			if _, ok := l.Batch(nil).(*siteBatch); ok {
				f.est = Exact()
			}
		}
	}
	return f
}

// expectedTerms is the Smooth that Expect returns.
type expectedTerms struct {
	ll  LogLikelihood
	est Estimator
}

// Setup returns an error if the data, the estimator and q do not fit each other.
func (f *expectedTerms) Setup(q Dist) (n int, exact bool, err error) {
	if f.ll == nil {
		return 0, false, fmt.Errorf("pgsvi: the log-likelihood of Expect is nil: %w", ErrEmpty)
	}
	if err := f.ll.Validate(); err != nil {
		return 0, false, err
	}
	l := f.ll.Batch(nil)
	if l.Dim() != q.Dim() {
		return 0, false,
			fmt.Errorf("pgsvi: the log-likelihood has dimension %d, but q has %d: %w", l.Dim(),
				q.Dim(), ErrShape)
	}
	exact, err = f.est.Setup(q, l)
	return f.ll.Len(), exact, err
}

// Grad implements Smooth.
func (f *expectedTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	v, err := f.est.Grad(ctx, env, dst, nil, q, f.batch(ctx, batch))
	if err != nil {
		return math.NaN(), err
	}
	floats.Scale(-1, dst)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(),
			fmt.Errorf("pgsvi: element %d of the gradient estimate is %v; the log-likelihood "+
				"may overflow under q: %w", i, dst[i], ErrNotFinite)
	}
	return -v, nil
}

// batch returns the terms in batch, whose evaluation ends when ctx is done.
func (f *expectedTerms) batch(ctx context.Context, batch []int) Integrand {
	l := f.ll.Batch(batch)
	if w, ok := l.(estimate.Watcher); ok {
		w.WatchContext(ctx)
	}
	return l
}

// guide implements guided.
func (f *expectedTerms) guide(dst []float64, q Dist, halt *parallel.Halt) (bool, error) {
	s, ok := f.ll.(Sites)
	if !ok || formOf(q) == nil {
		return false, nil
	}
	return (&siteSmooth{terms: &term.Terms{Lik: viewOf(s.Lik), Y: s.Y}, x: s.X}).guide(dst, q, halt)
}

// exactCost is the cost of an expectation of a term without draws, in evaluations of the
// log-likelihood by the quadrature.
const exactCost = 64

// costs implements costly.
func (f *expectedTerms) costs(q Dist) (grad, value float64) {
	_, sites := f.ll.Batch(nil).(*siteBatch)
	grad, value = exactCost, exactCost
	draws := 0
	if n, ok := estimatorDraws(f.est, q, sites); ok {
		draws, grad = n, float64(n)
	}
	if formOf(q) == nil || !sites {
		value = float64(estimate.ValueDraws(q.Dim(), max(leastDraws, draws)))
	}
	return grad, value
}

// estimatorDraws returns the number of draws from q that e takes, and false if e does not draw or is
// a custom type. The flag sites is set for terms that depend on z through one number each.
func estimatorDraws(e Estimator, q Dist, sites bool) (draws int, ok bool) {
	switch e := e.(type) {
	case scoreFunction:
		return e.drawsOf(q), true
	case pathwise:
		return e.drawsOf(q, sites), true
	}
	return 0, false
}

// Value returns f over all terms and its standard error. It is exact for Sites under a Gaussian q,
// and if a quadrature over q is accurate, and stderr then bounds the numerical error. Otherwise
// Value uses antithetic draws.
func (f *expectedTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	l := f.batch(ctx, nil)
	if s, ok := l.(*siteBatch); ok {
		if n := formOf(q); n != nil {
			value, stderr, err = sitesOf(s).Value(ctx, n, expectOf(s.Likelihood()))
			return -value, stderr, err
		}
	}
	if e, ok := q.(*Exp); ok && estimate.HasQuadrature(e.at.F) {
		if value, stderr, err = integral(env, q, l).Quadrature(make([]float64,
			e.NumParams())); err == nil && stderr <= estimate.LineWorst*(1+math.Abs(value)) {
			return -value, stderr, nil
		}
	}
	samples := leastDraws
	if n, ok := estimatorDraws(f.est, q, false); ok {
		samples = max(samples, n)
	}
	value, stderr, err = integral(env, q, l).Value(ctx, samples, env.rng())
	return -value, stderr, err
}

// leastDraws is the number of draws for a value of f without a closed form. It suffices for the
// quadratic control variate of about twenty dimensions.
const leastDraws = 512

// ProximalPoint returns the same negative ELBO with f moved into h, so that steps keep both exact:
// h ← f + h, f ← 0. A step is then the step of the proximal point method (Rockafellar, 1976; with
// KL the trust-region method of Theis and Hoffman, 2015),
//
//	λ_{k+1} = argmin_λ f(λ) + h(λ) + D(λ‖λ_k)/β_k.
//
// It is numeric, needs no small β, and counts one pass for every evaluation of f. Linearized is the
// other extreme. Inner is in between, and supports batches.
//
// f must be convex and without noise. The terms of Sites, a GP or a GLM are convex in the
// coordinates Cholesky of a Gaussian q under a log-concave likelihood (Facts; Challis and Barber,
// 2013). For any other f, such as a SmoothFunc, convexity is assumed. If f does not fit, the set-up
// returns an error that wraps ErrParam.
func (o Objective[Q]) ProximalPoint() Objective[Q] {
	if o.F == nil {
		return o
	}
	if o.H == nil {
		o.H = noTerm{}
	}
	o.F, o.H = nil, whole{o.F, o.H}
	return o
}

func (f *expectedTerms) siteConcave() (lik any, concave bool) {
	l, ok := f.ll.Batch(nil).(*siteBatch)
	if !ok || l.Likelihood() == nil {
		return nil, false
	}
	return l.Likelihood(), factsOf(l.Likelihood()).LogConcave
}

// LogLikelihood is a sum of N log-likelihood terms over z ∈ R^Dim. LogLik, Sites and custom types
// implement it.
type LogLikelihood interface {
	// Len returns N.
	Len() int
	// Batch returns Σ_n log p(y_n|z) over the terms in batch, scaled by N/len(batch). A nil batch
	// means all terms. It may keep batch.
	Batch(batch []int) Integrand
	// Validate is called in the set-up of a run.
	Validate() error
}

// LogLik is a custom log-likelihood of N terms over z ∈ R^Dim. LogProb is enough if Expect has an
// estimator that samples.
type LogLik struct {
	// N is the number of terms and Dim the dimension of z.
	N, Dim int
	// LogProb returns log p(y_n|z) in nats. It must neither keep nor change z, and is called
	// concurrently if Solver.Workers is above 1.
	LogProb func(n int, z []float64) float64
	// Grad, if not nil, adds ∇_z log p(y_n|z) to dst. Pathwise needs it, and the set-up of a run
	// returns an error if it contradicts LogProb.
	Grad func(dst []float64, n int, z []float64)
}

// Len implements LogLikelihood.
func (l LogLik) Len() int { return l.N }

// Batch implements LogLikelihood.
func (l LogLik) Batch(batch []int) Integrand {
	return &estimate.TermBatch{Batch: estimate.NewBatch(batch, l.N), D: l.Dim, Log: l.LogProb,
		Grad: l.Grad}
}

// Validate returns an error wrapping ErrParam if LogProb is nil, or ErrEmpty if N or Dim is not
// positive.
func (l LogLik) Validate() error {
	switch {
	case l.LogProb == nil:
		return fmt.Errorf("pgsvi: LogLik.LogProb is nil: %w", ErrParam)
	case l.N < 1 || l.Dim < 1:
		return fmt.Errorf("pgsvi: LogLik has N = %d and Dim = %d; both must be positive: %w", l.N,
			l.Dim, ErrEmpty)
	}
	return nil
}

// Sites is a log-likelihood whose terms depend on z through one number each, log p(y_n|η_n) with
// η_n = x_nᵀz, as in a generalized linear model. Expectations under a Gaussian q are then
// one-dimensional, and Exact applies. Sites shares the data with the caller, who must not change
// them.
type Sites struct {
	X   [][]float64 // x_n, one row per term
	Y   []float64   // y_n
	Lik Likelihood
}

// Len implements LogLikelihood.
func (s Sites) Len() int { return len(s.Y) }

// Batch implements LogLikelihood.
func (s Sites) Batch(batch []int) Integrand {
	return &siteBatch{estimate.SiteBatch{Batch: estimate.NewBatch(batch, len(s.Y)), X: s.X, Y: s.Y,
		Lik: s.Lik}, s.Lik}
}

// Validate returns an error wrapping ErrEmpty, ErrShape, ErrParam, ErrLabel or ErrNotFinite, with
// the index of the row.
func (s Sites) Validate() error {
	if len(s.Y) == 0 || len(s.X) == 0 || len(s.X[0]) == 0 {
		return fmt.Errorf("pgsvi: Sites is empty; it needs at least one row and one column: %w",
			ErrEmpty)
	}
	if len(s.X) != len(s.Y) {
		return fmt.Errorf("pgsvi: Sites has %d rows, but %d responses: %w", len(s.X), len(s.Y),
			ErrShape)
	}
	for n, x := range s.X {
		if len(x) != len(s.X[0]) {
			return fmt.Errorf("pgsvi: row %d has %d columns, but row 0 has %d: %w", n, len(x),
				len(s.X[0]), ErrShape)
		}
		if j, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: row %d, column %d is %v: %w", n, j, x[j], ErrNotFinite)
		}
	}
	return checkLabels(s.Lik, s.Y)
}

func (f *expectedTerms) digest(d *save.Digest) {
	digestPart(d, f.ll)
	d.Text(fmt.Sprintf("%T", f.est))
}

func (s Sites) digest(d *save.Digest) {
	digestValue(d, s.Lik)
	for i, x := range s.X {
		d.Float(s.Y[i])
		d.Float(x...)
	}
}

// Noise estimates the expected squared error of an estimate ĝ of g = ∇_μ E_q[l] by e, in the metric
// of the Fisher information:
//
//	E[(ĝ − g)ᵀF(ĝ − g)]
//
// It also returns the number of draws of q per estimate. The product of both is the noise per draw,
// which is the figure to compare between estimators. The noise depends neither on the coordinates
// of q nor on the units of z. A step of length ρ to the target of a noisy gradient is off by ½ρ²
// times the noise, in nats. The number of draws is 0 if the estimator uses no draws or if the
// number is unknown.
//
// The expectation is the mean over repeats of the estimate, at least two; 0 means 64. Noise returns
// errors of Setup and Grad. The error wraps ErrParam if repeats is 1 or negative, or if q is not an
// ExpFamily.
func Noise(ctx context.Context, env *Env, e Estimator, q ExpFamily, l Integrand,
	repeats int) (noise float64, draws int, err error) {
	if repeats == 0 {
		repeats = noiseRepeats
	}
	if repeats < 2 || e == nil || q == nil || l == nil {
		return math.NaN(), 0,
			fmt.Errorf("pgsvi: Noise has %d repeats; it needs at least two, and an estimator, q "+
				"and an integrand that are not nil: %w", repeats, ErrParam)
	}
	if _, err := e.Setup(q, l); err != nil {
		return math.NaN(), 0, err
	}
	_, sites := l.(*siteBatch)
	draws, _ = estimatorDraws(e, q, sites)
	once := Env{}
	if env != nil {
		once = *env
	}
	once.Rng = env.rng() // one generator for all repeats
	at, ok := q.Clone().(ExpFamily)
	if !ok {
		return math.NaN(), 0, fmt.Errorf("pgsvi: Noise needs an ExpFamily, but q is a %T: %w", q,
			ErrParam)
	}
	n := q.NumParams()
	grads, mean := dense.NewRows(repeats, n), make([]float64, n)
	for _, g := range grads {
		if _, err := e.Grad(ctx, &once, g, nil, at, l); err != nil {
			return math.NaN(), draws, err
		}
		floats.AddScaled(mean, 1/float64(repeats), g)
	}
	// With δ in λ, its gradients with respect to μ and η are δ_μ and δ_η = Fδ_μ.
	mu := make([]float64, n)
	for _, g := range grads {
		floats.Sub(g, mean)
		at.MeanGrad(mu, g)
		noise += floats.Dot(mu, naturalGrad(at, mu)) / float64(repeats-1)
	}
	return noise, draws, nil
}

// noiseRepeats is the number of repeats that gives the noise with an error of a fifth, like a χ²
// with as many degrees of freedom in each direction.
const noiseRepeats = 64

// naturalGrad returns Fg.
func naturalGrad(q ExpFamily, g []float64) []float64 {
	if e, ok := q.(*Exp); ok {
		x := append([]float64(nil), g...)
		e.at.FisherMul(x)
		return x
	}
	return q.(*Gaussian).In(Natural).FromMeanGrad(nil, g)
}
