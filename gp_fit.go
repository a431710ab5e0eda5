package pgsvi

import (
	"context"
	"fmt"
)

// Fit runs s on the model; a nil s means a Solver without options, which needs
// no tuning. The posterior is that of the state reached and is valid even if
// there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (g *GP) Fit(ctx context.Context, s *Solver) (*GPPosterior, *Result, error) {
	return fit[*GPPosterior](ctx, s, g)
}

// NewStepper implements Model.
//
// With d nil or KL every step is in closed form. With any other divergence the
// proximal step is taken along the curve on which natural parameters are
// averaged between λ_k and the minimiser of the linearised objective: its
// length minimises λᵀ∇f + h + D/β on the curve, numerically. For KL the exact
// step lies on the curve; for others it is the best point there, and the fixed
// points are the same. It returns an error wrapping ErrNotFinite if a covariance is
// not finite, ErrNotPosDef if the Kernel is seen not to be positive definite or d is not KL
// and K is singular, and ErrNoProx if d is Adaptive, which is for Objective.
func (g *GP) NewStepper(_ context.Context, env *Env, d Divergence) (Stepper, error) {
	if _, ok := d.(Adaptive); ok {
		return nil, fmt.Errorf("pgsvi: the sites of a GP have no step with %T, which is in the coordinates of a dense covariance; run it on GP.Objective: %w", d, ErrNoProx)
	}
	s, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate)
	if err != nil {
		return nil, err
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	alg, err := newDenseAlgebra(g.terms, k, env.Workers())
	if err != nil {
		return nil, err
	}
	s.alg = alg
	if !isKL(d) {
		if s.curve, err = newCurve(alg, d); err != nil {
			return nil, err
		}
	}
	return s, nil
}
