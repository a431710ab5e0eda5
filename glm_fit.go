package pgsvi

import (
	"context"
	"fmt"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// weighted is an algebra of a GLM.
type weighted interface {
	algebra
	// weights returns the mean of w − μ0 and the covariance, both new.
	weights() ([]float64, weightCov, error)
}

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
		return nil, fmt.Errorf("pgsvi: %w: a GLM without rows", ErrEmpty)
	}
	if !isKL(d) {
		if cov := g.Covariance(); cov == LowRankCovariance || cov == DiagonalCovariance && g.prior.full != nil {
			return nil, fmt.Errorf("pgsvi: %w: %T with a %v covariance and this prior", ErrNoProx, d, cov)
		}
		o, err := g.Objective()
		if err != nil {
			return nil, err
		}
		if _, ok := d.(Adaptive); ok {
			o = o.Linearized().In(LogCholesky)
		}
		return o.NewStepper(ctx, env, d)
	}
	s, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate)
	if err != nil {
		return nil, err
	}
	switch {
	case g.Covariance() != FullCovariance:
		s.alg = newFactoredAlgebra(g)
	case g.Len() <= g.Dim():
		s.alg, err = newDualAlgebra(g, env.Workers())
	default:
		s.alg, err = newWeightAlgebra(g)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Objective returns the model as an Objective over w − μ0, for use with any
// proximal step whatever: f = −Σ_n w_n E_q[log p(y_n|η_n)] and h = KL(q‖N(0, Λ0⁻¹)),
// over a *Gaussian that is diagonal if the covariances of q and of the prior are. It holds
// X as dense rows. The error wraps ErrEmpty if there are no rows, and ErrNotPosDef
// if the prior covariance is not positive definite to rounding.
func (g *GLM) Objective() (Objective, error) {
	if g.Len() == 0 {
		return Objective{}, fmt.Errorf("pgsvi: %w: a GLM without rows", ErrEmpty)
	}
	d := g.Dim()
	zero := make([]float64, d)
	var prior *Gaussian
	if g.Covariance() == DiagonalCovariance && g.prior.full == nil {
		v := make([]float64, d)
		for j, l := range g.prior.prec {
			v[j] = 1 / l
		}
		q, err := NewMeanField(zero, v)
		if err != nil {
			return Objective{}, err
		}
		prior = q
	} else {
		s, err := g.prior.state()
		if err != nil {
			return Objective{}, err
		}
		s.invert()
		q, err := NewGaussian(zero, dense.FullSym(s.inv, d))
		if err != nil {
			return Objective{}, err
		}
		prior = q
	}
	x := dense.NewRows(g.Len(), d)
	for i := range x {
		ind, val := g.x.row(i)
		if g.x.sparse == nil {
			copy(x[i], val)
		}
		for k, j := range ind {
			x[i][j] = val[k]
		}
	}
	est, exact, err := siteEstimator(g.opt.Estimator, g.terms.lik)
	if err != nil {
		return Objective{}, err
	}
	return Objective{F: &siteSmooth{g.terms, x, est, exact}, H: KLTo(prior), Init: prior}, nil
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
		if err := s.Validate(); err != nil {
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
	var mean []float64
	var cov weightCov
	var err error
	switch t := st.(type) {
	case *siteStepper:
		alg, ok := t.alg.(weighted)
		if !ok || t.terms != g.terms {
			return nil, fmt.Errorf("pgsvi: a state of another model: %w", ErrParam)
		}
		mean, cov, err = alg.weights()
	case *objectiveStepper:
		mean, cov, err = weightsOf(t.dist())
	default:
		err = fmt.Errorf("pgsvi: a %T is no state of a GLM: %w", st, ErrParam)
	}
	if err == nil && len(mean) != g.Dim() {
		err = fmt.Errorf("pgsvi: %w: the state has %d weights, the model %d", ErrParam, len(mean), g.Dim())
	}
	if err != nil {
		return nil, err
	}
	return g.posterior(mean, cov, g.Len()), nil
}
