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
// Exact for Sites and ScoreFunction otherwise. Values of f are exact for Sites with any e, so
// that the ELBO curves of estimators can be compared. Otherwise values are Monte Carlo estimates
// with the same draws at each evaluation. Errors of shape and labels are reported at set-up.
func Expect(l LogLikelihood, e Estimator) Smooth {
	f := &expectedTerms{ll: l, est: e}
	if e == nil {
		f.est = ScoreFunction{}
		if l != nil && l.Len() > 0 {
			if _, ok := l.Batch(nil).(SiteIntegrand); ok {
				f.est = Exact{}
			}
		}
	}
	return f
}

// expectedTerms is the Smooth made by Expect.
type expectedTerms struct {
	ll  LogLikelihood
	est Estimator
}

// Setup reports every misfit between the data, the estimator and q.
func (f *expectedTerms) Setup(q Dist) (SmoothTerms, error) {
	if f.ll == nil {
		return SmoothTerms{}, fmt.Errorf("pgsvi: Expect needs a log-likelihood: %w", ErrEmpty)
	}
	if err := f.ll.Validate(); err != nil {
		return SmoothTerms{}, err
	}
	l := f.ll.Batch(nil)
	if l.Dim() != q.Dim() {
		return SmoothTerms{},
			fmt.Errorf("pgsvi: the log-likelihood is over %d dimensions, q over %d: %w", l.Dim(),
				q.Dim(), ErrShape)
	}
	exact, err := f.est.Setup(q, l)
	return SmoothTerms{f.ll.Len(), exact}, err
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

// batch returns the terms in batch, until ctx is done.
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

// exactCost is the work of an expectation of a term without draws, in values of its log-likelihood:
// that of the quadrature.
const exactCost = 64

// costs implements costly.
func (f *expectedTerms) costs(q Dist) (grad, value float64) {
	_, sites := f.ll.Batch(nil).(SiteIntegrand)
	grad, value = exactCost, exactCost
	draws := 0
	if s, ok := f.est.(drawing); ok {
		draws = s.drawsOf(q, sites)
		grad = float64(draws)
	}
	if formOf(q) == nil || !sites {
		value = float64(estimate.ValueDraws(q.Dim(), max(leastDraws, draws)))
	}
	return grad, value
}

// drawing is an Estimator that says how many draws of q it takes.
type drawing interface {
	// drawsOf returns their number for q, and for terms that see z through one number each.
	drawsOf(q Dist, sites bool) int
}

// Value returns f over all terms and its standard error: exactly for Sites under a Gaussian q, and
// where there is a quadrature over q that holds, with a bound on the numerical error, and otherwise
// by antithetic draws.
func (f *expectedTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	l := f.batch(ctx, nil)
	if s, ok := l.(SiteIntegrand); ok {
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
	if s, ok := f.est.(drawing); ok {
		samples = max(samples, s.drawsOf(q, false))
	}
	value, stderr, err = integral(env, q, l).Value(ctx, samples, env.rng())
	return -value, stderr, err
}

// leastDraws is the number of draws for a value of f, where it has no closed form: enough for the
// quadratic control variate of some twenty dimensions.
const leastDraws = 512

// ProximalPoint returns the same negative ELBO with f moved into h, which steps keep exact: h ← f
// + h, f ← 0. A step is then that of the proximal point method (Rockafellar, 1976; with KL the
// trust-region method of Theis and Hoffman, 2015),
//
//	λ_{k+1} = argmin_λ f(λ) + h(λ) + D(λ‖λ_k)/β_k.
//
// It is numeric, needs no small β, and counts a pass for every evaluation of f. Linearized is the
// other extreme. Inner is in between, and allows batches.
//
// f must be convex and without noise. The terms of Sites, a GP or a GLM are convex in the
// coordinates Cholesky of a Gaussian q under a log-concave likelihood (Facts; Challis and Barber,
// 2013). For other f, such as a SmoothFunc, convexity is assumed. The error at set-up wraps
// ErrParam.
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
	l, ok := f.ll.Batch(nil).(SiteIntegrand)
	if !ok || l.Likelihood() == nil {
		return nil, false
	}
	return l.Likelihood(), factsOf(l.Likelihood()).LogConcave
}

// LogLikelihood is a sum of N log-likelihood terms over z ∈ R^Dim: a LogLik,
// a Sites, or a user type.
type LogLikelihood interface {
	// Len returns N.
	Len() int
	// Batch returns Σ_n log p(y_n|z) over the terms in batch, scaled by
	// N/len(batch); a nil batch means all terms. It may keep batch.
	Batch(batch []int) Integrand
	// Validate is called at set-up.
	Validate() error
}

// LogLik is a log-likelihood of your own, of N terms over z ∈ R^Dim. LogProb alone is enough;
// Expect then needs an estimator that samples.
type LogLik struct {
	// N is the number of terms and Dim the dimension of z.
	N, Dim int
	// LogProb returns log p(y_n|z) in nats. It must not keep or change z, and is called
	// concurrently if Solver.Workers is above 1.
	LogProb func(n int, z []float64) float64
	// Grad, if not nil, adds ∇_z log p(y_n|z) to dst. Pathwise needs it.
	Grad func(dst []float64, n int, z []float64)
}

// Len implements LogLikelihood.
func (l LogLik) Len() int { return l.N }

// Batch implements LogLikelihood.
func (l LogLik) Batch(batch []int) Integrand {
	return &estimate.TermBatch{Batch: estimate.NewBatch(batch, l.N), D: l.Dim, Log: l.LogProb,
		Grad: l.Grad}
}

// Validate returns an error wrapping ErrParam if LogProb is nil, or ErrEmpty if
// N or Dim is not positive.
func (l LogLik) Validate() error {
	switch {
	case l.LogProb == nil:
		return fmt.Errorf("pgsvi: LogLik.LogProb is nil: %w", ErrParam)
	case l.N < 1 || l.Dim < 1:
		return fmt.Errorf("pgsvi: LogLik has N = %d and Dim = %d: %w", l.N, l.Dim, ErrEmpty)
	}
	return nil
}

// Sites is a log-likelihood whose terms depend on z through one number each, log p(y_n|η_n) with
// η_n = x_nᵀz, as in a generalised linear model. Expectations under a Gaussian q are then
// one-dimensional, and Exact applies. The data are not copied and must not change.
type Sites struct {
	X   [][]float64 // x_n, one row a term
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

// Validate returns an error wrapping ErrEmpty, ErrShape, ErrParam, ErrLabel or
// ErrNotFinite, with the index of the datum.
func (s Sites) Validate() error {
	if len(s.Y) == 0 || len(s.X) == 0 || len(s.X[0]) == 0 {
		return fmt.Errorf("pgsvi: Sites needs at least one row and one column: %w", ErrEmpty)
	}
	if len(s.X) != len(s.Y) {
		return fmt.Errorf("pgsvi: %d rows, %d labels: %w", len(s.X), len(s.Y), ErrShape)
	}
	for n, x := range s.X {
		if len(x) != len(s.X[0]) {
			return fmt.Errorf("pgsvi: row %d has %d columns, row 0 has %d: %w", n, len(x),
				len(s.X[0]), ErrShape)
		}
		if j, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: row %d, column %d is %v: %w", n, j, x[j], ErrNotFinite)
		}
	}
	return checkLabels(s.Lik, s.Y)
}

// siteBatch is a SiteIntegrand of Sites.
type siteBatch struct {
	estimate.SiteBatch
	lik Likelihood
}

var _ SiteIntegrand = &siteBatch{}

func (b *siteBatch) Likelihood() Likelihood { return b.lik }

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

// Noise returns the expected square of the error of an estimate of ∇_μ E_q[l] by e, in the metric
// of the Fisher information,
//
//	E[(ĝ − g)ᵀF(ĝ − g)],
//
// with the number of draws of q that an estimate takes: their product is the noise of a draw, by
// which estimators compare. It is independent of the coordinates of q, and of what z is measured
// in. A step of length ρ towards the target of a noisy gradient is off by ½ρ² of it, in nats. The
// number of draws is 0 for an estimator that has none, or of which it is not known. The expectation
// is estimated from repeats of the estimate, at least two; 0 means 64. The error is that of Setup
// or Grad, or wraps ErrParam if there is one repeat or q is no ExpFamily.
func Noise(ctx context.Context, env *Env, e Estimator, q ExpFamily, l Integrand,
	repeats int) (noise float64, draws int, err error) {
	if repeats == 0 {
		repeats = noiseRepeats
	}
	if repeats < 2 || e == nil || q == nil || l == nil {
		return math.NaN(), 0,
			fmt.Errorf("pgsvi: Noise needs an estimator, q, an integrand and at least two "+
				"repeats, not %d: %w", repeats, ErrParam)
	}
	if _, err := e.Setup(q, l); err != nil {
		return math.NaN(), 0, err
	}
	if d, ok := e.(drawing); ok {
		_, sites := l.(SiteIntegrand)
		draws = d.drawsOf(q, sites)
	}
	once := Env{}
	if env != nil {
		once = *env
	}
	once.Rng = env.rng() // one generator for all repeats
	at, ok := q.Clone().(ExpFamily)
	if !ok {
		return math.NaN(), 0, fmt.Errorf("pgsvi: Noise needs an ExpFamily: %w", ErrParam)
	}
	n := q.NumParams()
	grads, mean := dense.NewRows(repeats, n), make([]float64, n)
	for _, g := range grads {
		if _, err := e.Grad(ctx, &once, g, nil, at, l); err != nil {
			return math.NaN(), draws, err
		}
		floats.AddScaled(mean, 1/float64(repeats), g)
	}
	// With δ in λ, δ_μ and δ_η = Fδ_μ are its gradients with respect to μ and η.
	mu := make([]float64, n)
	for _, g := range grads {
		floats.Sub(g, mean)
		at.MeanGrad(mu, g)
		noise += floats.Dot(mu, naturalGrad(at, mu)) / float64(repeats-1)
	}
	return noise, draws, nil
}

// noiseRepeats is the number of repeats that gives the noise to a fifth, as a χ² of so many degrees
// of freedom in each direction.
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
