package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
)

// MeanUpdate selects one of the two published updates of the mean of a GP or a GLM.
// With r = 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and
// Γ = diag(2 ∂f/∂v), estimated from the batch, both have V₊⁻¹ = K⁻¹ + Γ₊,
// Γ₊ = rΓ_k + (1−r)Γ.
type MeanUpdate int

const (
	// MainText is m₊ = m − (1−r)V₊(K⁻¹m + a): the exact proximal step in the
	// mean parameters (m, V + mmᵀ), which averages natural parameters
	// (Khan et al., 2016, Section 5, with Γ = diag(2 ∂f/∂v)).
	MainText MeanUpdate = iota
	// Appendix is m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a): the exact proximal
	// step in the coordinates (m, V) (Khan et al., 2016, appendix).
	Appendix
)

// Steps with noise, from a mini-batch or an estimator that draws.
const (
	// noisyPivot is how much such a step must leave, of the precision of a
	// variable, to a site with a negative γ: a tenth, so that the variance grows
	// tenfold. Noise alone drives sites to the edge of what is positive definite, where
	// each step could go half of the way that is left, and the mean runs away with V.
	noisyPivot = 0.1
	// noisyHalvings is how often a step is halved for that reason; then it is taken all the same.
	noisyHalvings = 20
	// mostHalvings is how often a step is halved until V is positive definite: to 1e-30 of its length.
	mostHalvings = 100
)

// algebra is q in natural parameters, kept as it likes: a site for every term, or
// their sum over the weights. Whatever knows how a covariance is stored is behind it.
type algebra interface {
	// plan says how a Solver without options runs the algebra.
	plan() Plan
	// closedForm reports whether its steps are in closed form.
	closedForm() bool
	// use lets so many goroutines share the expectations of what follows.
	use(workers int)

	// marginals makes room in x for the terms in batch and stores their means and variances under q.
	marginals(x *estimates, batch []int) error
	// aim makes the target of the step of m from what x says of the terms in batch.
	aim(x *estimates, batch []int, m paperMove) error
	// try reports whether the target is a valid q, and whether it is nearer to the edge of these than noise may
	// drive it, by noisyPivot, where q itself is not.
	try(noisy bool) (valid, edge bool)
	// halve moves the target half of the way back to q.
	halve()
	// take makes the target, which is valid, the current q.
	take() error

	// ascend takes one accepted step of all terms: the ELBO does not fall.
	ascend() error
	// block takes the step
	//
	//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)],
	//
	// with the sites of the terms not in batch held fixed.
	block(batch []int) error
	// moved returns the distance that the last step went.
	moved() float64
	// evaluate says how good q is.
	evaluate() (Evaluation, error)
}

// paperMove is a step with a given β: with r = 1/(1+β) and the estimates scaled by N/M.
type paperMove struct {
	r, scale float64
	appendix bool // the update of the mean
}

// siteStepper is the Stepper of every model by sites. With a given β it takes the step of the paper, from
// the gradient of the batch. With β = +Inf and a batch of all terms it takes one accepted step of
// the whole objective, and with a smaller batch a block step, which has memory, needs no step
// size and has no noise. With a divergence other than KL steps go along a curve.
type siteStepper struct {
	terms   *terms
	alg     algebra
	est     SiteEstimator
	exact   bool // est ignores randomness
	update  MeanUpdate
	curve   *curveProx // nil for KL
	x       estimates
	checker allTerms
}

// newSiteStepper returns a Stepper of t whose algebra is yet to be set. Estimator and update are
// those of steps with a given β. The error says why the estimator does not apply to the terms.
func newSiteStepper(t *terms, e Estimator, update MeanUpdate) (*siteStepper, error) {
	if update < MainText || update > Appendix {
		return nil, fmt.Errorf("pgsvi: MeanUpdate is %d: %w", update, ErrParam)
	}
	est, exact, err := siteEstimator(e, t.lik)
	if err != nil {
		return nil, err
	}
	return &siteStepper{terms: t, est: est, exact: exact, update: update}, nil
}

// Len implements State.
func (s *siteStepper) Len() int { return s.terms.len() }

// Plan implements Stepper.
func (s *siteStepper) Plan() Plan {
	if s.curve != nil {
		return Plan{}
	}
	return s.alg.plan()
}

// Step implements Stepper.
func (s *siteStepper) Step(_ context.Context, env *Env, batch []int, beta float64) (Step, error) {
	s.alg.use(env.Workers())
	step := Step{Beta: beta, ClosedForm: s.alg.closedForm() && s.curve == nil}
	auto := math.IsInf(beta, 1)
	var err error
	switch {
	case s.curve != nil:
		if err = s.curve.aim(s, batch, auto, env.rng()); err == nil {
			step.Beta, err = s.curve.step(beta)
		}
	case !auto:
		step.Beta, err = s.paper(batch, beta, env.rng())
	case s.checker.all(batch, s.Len()):
		err = s.alg.ascend()
	default:
		err = s.alg.block(batch)
	}
	if err != nil {
		return Step{}, err
	}
	step.GradMap = s.alg.moved()
	if !math.IsInf(step.Beta, 1) {
		step.GradMap /= step.Beta
	}
	step.GradMap = known(step.GradMap)
	return step, nil
}

// estimate stores in s.x what the estimator says of the terms in batch.
func (s *siteStepper) estimate(batch []int, rng *rand.Rand) error {
	if err := s.alg.marginals(&s.x, batch); err != nil {
		return err
	}
	return s.terms.estimate(&s.x, batch, s.est, rng)
}

// paper takes the step of the paper with step size β from the gradient of batch; see MeanUpdate. It
// goes less far where V would not be positive definite, and where noise would have it nearly so. It
// returns the step size that is left.
func (s *siteStepper) paper(batch []int, beta float64, rng *rand.Rand) (float64, error) {
	if err := s.estimate(batch, rng); err != nil {
		return 0, err
	}
	r := 1 / (1 + beta)
	m := paperMove{r: r, scale: (1 - r) * float64(s.Len()) / float64(len(s.x.m)), appendix: s.update == Appendix}
	if err := s.alg.aim(&s.x, batch, m); err != nil {
		return 0, err
	}
	for halved := range mostHalvings {
		if valid, edge := s.alg.try(!s.exact); valid && (!edge || halved >= noisyHalvings) {
			if halved > 0 {
				length := math.Ldexp(1-r, -halved)
				beta = length / (1 - length)
			}
			return beta, s.alg.take()
		}
		s.alg.halve()
	}
	return 0, fmt.Errorf("posterior covariance at every step size: %w", ErrNotPosDef)
}

// Evaluate implements Stepper. The ELBO is exact: the expectations are certified
// whatever the Estimator is.
func (s *siteStepper) Evaluate(_ context.Context, env *Env) (Evaluation, error) {
	s.alg.use(env.Workers())
	return s.alg.evaluate()
}
