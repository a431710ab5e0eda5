package pgsvi

import (
	"cmp"
	"context"
	"fmt"
)

// defaultRank is what a zero GLMOptions.Rank means.
const defaultRank = 20

// NewStepper implements Model.
//
// A full covariance with more rows than weights is that of the primal, over the
// weights; otherwise that of the dual, over the linear predictors: that of a Gaussian process
// inside. With a divergence other than KL the step is the numeric one of
// Objective, and with an Adaptive one the gradient step of Objective.Linearized in
// the coordinates LogCholesky. It returns an error wrapping ErrParam if the estimator
// is invalid, ErrNoEstimator if it does not apply, ErrNoProx if d does not, or is not
// KL where the covariance is low-rank, or diagonal with a full prior, and ErrEmpty if there are no rows (Fit
// returns the prior for these).
func (g *GLM) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: a GLM without rows: %w", ErrEmpty)
	}
	return g.newStepper(ctx, env, d, linearOptions{g.covariance(), cmp.Or(g.opt.Rank, defaultRank), g.opt.Estimator, g.opt.MeanUpdate})
}

// Objective returns the model as an Objective over w − μ0, for use with any
// proximal step whatever: f = −Σ_n w_n E_q[log p(y_n|η_n)] and h = KL(q‖N(0, Λ0⁻¹)),
// over a *Gaussian that is diagonal if the covariances of q and of the prior are. It holds
// X as dense rows. The error wraps ErrEmpty if there are no rows, and ErrNotPosDef
// if the prior covariance is not positive definite to rounding.
func (g *GLM) Objective() (Objective[*Gaussian], error) {
	if g.Len() == 0 {
		return Objective[*Gaussian]{}, fmt.Errorf("pgsvi: a GLM without rows: %w", ErrEmpty)
	}
	return g.objective(g.covariance() == DiagonalCovariance, g.opt.Estimator)
}

// Fit runs s on the model; a nil s means a Solver without options, which needs
// no tuning. The posterior is that of the state reached and is valid even if
// there is an error after the set-up; it is nil if the set-up failed. Without
// rows it is the prior, and there is no Result.Stepper. The errors are those of Solver.Run.
func (g *GLM) Fit(ctx context.Context, s *Solver) (*GLMPosterior, *Result, error) {
	if s == nil {
		s = &Solver{}
	}
	if g.Len() == 0 {
		if err := s.validate(); err != nil {
			return nil, nil, err
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("pgsvi: canceled: %w", context.Cause(ctx))
		}
		p, err := g.priorPosterior()
		if err != nil {
			return nil, nil, err
		}
		return p, &Result{Status: Converged, Iteration: Iteration{Step: Step{ClosedForm: true}}}, nil
	}
	return fit[*GLMPosterior](ctx, s, g)
}

// Posterior returns the posterior at st, a state of this model,
// for example that of an Iteration. The error wraps ErrParam if st is none.
func (g *GLM) Posterior(st State) (*GLMPosterior, error) {
	mean, cov, err := g.weightsAt(st)
	if err != nil {
		return nil, err
	}
	return g.posterior(mean, cov, g.Len()), nil
}
