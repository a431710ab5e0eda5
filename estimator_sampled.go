package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/variate"
)

// ScoreFunction estimates ∇_λ E_q[l] = E_q[l(z) ∇_λ log q(z|λ)] from draws of q (also called
// REINFORCE or the likelihood-ratio method; Glynn, 1990; Williams, 1992; Ranganath et al., 2014).
// It needs only LogProb and applies to every family. All terms of a batch share the draws.
type ScoreFunction struct {
	// Samples is the number of draws. Zero means 100 for a Gaussian and 400 for an Exp. In many
	// dimensions it means as many as the baseline Quadratic needs, up to 4096. A single draw
	// requires NoBaseline.
	Samples int
	// Baseline is the control variate that reduces the variance.
	Baseline Baseline
}

func (s ScoreFunction) samples() int {
	if s.Samples == 0 {
		return scoreDraws
	}
	return s.Samples
}

// drawsOf implements drawing.
func (s ScoreFunction) drawsOf(q Dist, _ bool) int {
	if e, ok := q.(*Exp); ok && s.Samples == 0 && s.Baseline == Quadratic {
		return max(expDraws, min(estimate.MostDraws, variate.Draws*(1+e.NumParams())))
	}
	g, ok := q.(*Gaussian)
	if s.Samples != 0 || s.Baseline != Quadratic || !ok {
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
	// expDraws is that for an Exp: with a noise of half a nat a draw, as that of a Beta far from
	// conjugate, a step is off by less than descent.GoalDim.
	expDraws = 400
)

// Setup implements Estimator. The error wraps ErrParam if there are too few samples, and
// ErrNoEstimator if q is a Point, which has no score.
func (s ScoreFunction) Setup(q Dist, _ Integrand) (bool, error) {
	if _, ok := q.(*Point); ok {
		return false, fmt.Errorf("pgsvi: ScoreFunction needs a density, and a Point has none; write f as a Smooth: %w", ErrNoEstimator)
	}
	if err := s.validate(); err != nil {
		return false, err
	}
	return false, checkSamples(s.drawsOf(q, false), q.Dim())
}

// SetupSites implements SiteEstimator. The error is that of the parameters.
func (s ScoreFunction) SetupSites(Likelihood) (bool, error) { return false, s.validate() }

// validate returns an error wrapping ErrParam if there are too few samples or
// Baseline is unknown.
func (s ScoreFunction) validate() error {
	least := 1
	if s.Baseline != NoBaseline {
		least = 2
	}
	if s.samples() < least || s.Baseline < Quadratic || s.Baseline > NoBaseline {
		return fmt.Errorf("pgsvi: %+v needs Samples >= %d and a known Baseline: %w", s, least, ErrParam)
	}
	return checkSamples(s.samples(), 1)
}

// Grad implements Estimator. With the baseline Quadratic the variance treats the fitted
// coefficients as constants, which is accurate for many draws.
func (s ScoreFunction) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	if _, err := s.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	return integral(env, q, l).Score(ctx, dst, variance, s.drawsOf(q, false),
		estimate.Baseline(s.Baseline), env.rng())
}

// EstimateSites implements SiteEstimator.
func (s ScoreFunction) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	estimate.ScoreSites(e, d1, d2, lik, y, m, v, s.samples(), estimate.Baseline(s.Baseline), rng)
	return nil
}

// Pathwise estimates gradients by differentiating along draws of q (reparameterisation trick).
// For a Gaussian q it uses the identities of Bonnet (1964) and Price (1958),
//
//	∇_m E_q[l] = E_q[∇l(z)],   ∇_V E_q[l] = ½ E_q[∇²l(z)].
//
// It needs far fewer draws than ScoreFunction. The Hessian is used for a SiteIntegrand whose
// likelihood is Differentiable. For other integrands ∇l(z)(V⁻¹(z − m))ᵀ replaces it, which has
// the same expectation. The control variate is then a linear function of the draw, if there are
// 4(1+d) draws, and otherwise the mean of the gradients at the other draws.
type Pathwise struct {
	// Samples is the number of draws. Zero means 20 or, without a Hessian, at least 4(1+d), where
	// d is the dimension or, for an Exp, NumParams.
	Samples int
}

func (p Pathwise) samples() int {
	if p.Samples == 0 {
		return 20
	}
	return p.Samples
}

// drawsOf implements drawing: without a Hessian as many as a linear control variate needs.
func (p Pathwise) drawsOf(q Dist, sites bool) int {
	if p.Samples != 0 || formOf(q) != nil && sites {
		return p.samples()
	}
	features := q.Dim()
	if pathOf(q) != nil {
		features = q.NumParams()
	}
	return max(p.samples(), min(estimate.MostDraws, variate.Draws*(1+features)))
}

// pathOf returns the Family of q if it has paths, or nil.
func pathOf(q Dist) PathFamily {
	if e, ok := q.(*Exp); ok {
		f, _ := e.at.F.(PathFamily)
		return f
	}
	return nil
}

// Setup implements Estimator. The error wraps ErrNoEstimator, ErrParam or ErrMemory.
func (p Pathwise) Setup(q Dist, l Integrand) (bool, error) {
	if err := p.validate(); err != nil {
		return false, err
	}
	if err := checkSamples(p.drawsOf(q, false), q.Dim()); err != nil {
		return false, err
	}
	path := pathOf(q)
	if formOf(q) == nil && path == nil {
		return false, fmt.Errorf("pgsvi: Pathwise needs a Gaussian q or one whose Family is a PathFamily, not %s; use ScoreFunction: %w", distName(q), ErrNoEstimator)
	}
	if s, ok := l.(SiteIntegrand); ok {
		return p.SetupSites(s.Likelihood())
	}
	if l.GradLogProb(make([]float64, l.Dim()), q.Rand(nil, rand.New(rand.NewPCG(1, 1)))) {
		return false, nil
	}
	return false, fmt.Errorf("pgsvi: Pathwise needs the gradient of the log-likelihood: set LogLik.Grad, or use ScoreFunction: %w", ErrNoEstimator)
}

// SetupSites implements SiteEstimator. The error wraps ErrNoEstimator unless lik is Differentiable.
func (p Pathwise) SetupSites(lik Likelihood) (bool, error) {
	if _, ok := lik.(Differentiable); !ok {
		return false, fmt.Errorf("pgsvi: Pathwise needs the derivatives of %T: implement Differentiable, or use Exact or ScoreFunction: %w", lik, ErrNoEstimator)
	}
	return false, p.validate()
}

// validate returns an error wrapping ErrParam if Samples is negative.
func (p Pathwise) validate() error {
	if p.Samples < 0 {
		return fmt.Errorf("pgsvi: Pathwise.Samples is %d: %w", p.Samples, ErrParam)
	}
	return checkSamples(p.samples(), 1)
}

// sampleVectors is the least that a draw takes: it, the standard normal that it came from, and a
// value.
const sampleVectors = 3

// checkSamples returns an error, wrapping ErrMemory, if n draws of d numbers each take more memory
// than they may.
func checkSamples(n, d int) error {
	return checkMemory(0, memory.Bytes(sampleVectors, n, d), fmt.Sprintf("an estimate from %d draws of %d dimensions", n, d), "take fewer Samples, or raise the limit (GOMEMLIMIT)")
}

// Grad implements Estimator.
func (p Pathwise) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	if _, err := p.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	e := integral(env, q, l)
	return e.Path(ctx, dst, variance, p.drawsOf(q, e.Sites != nil), env.rng())
}

// EstimateSites implements SiteEstimator. The value is the mean of LogProb over the draws.
func (p Pathwise) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	d, ok := lik.(Differentiable)
	if !ok {
		_, err := p.SetupSites(lik)
		return err
	}
	estimate.PathSites(e, d1, d2, d, y, m, v, p.samples(), rng)
	return nil
}

// Baseline is what ScoreFunction subtracts from the values of the integrand to reduce the
// variance. The estimate stays unbiased with each of them.
type Baseline int

const (
	// Quadratic subtracts a quadratic function of the draw, or for an Exp a linear function of
	// the statistics T(z), and adds the exact gradient of its expectation. The function is fitted
	// by least squares to the other half of the draws. It removes most of the variance if the
	// posterior is close to Gaussian. It is a control variate (Ranganath et al., 2014; Salimans
	// and Knowles, 2013, use a similar regression).
	//
	// It needs 4 draws for each coefficient: 1 + d + d(d+1)/2 for a full Gaussian, 1 + 2d for a
	// diagonal one, 1 + NumParams for an Exp. With fewer draws it is LeaveOneOut.
	Quadratic Baseline = iota
	// LeaveOneOut subtracts from each value the mean of the others (Kool et al., 2019).
	LeaveOneOut
	// NoBaseline subtracts nothing: the estimator of the paper.
	NoBaseline
)
