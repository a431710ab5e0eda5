package pgsvi

import (
	"context"
	"fmt"
	"math"
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
// points are the same. It returns an error wrapping ErrParam or ErrNotFinite
// if an option or a covariance is invalid, ErrNoEstimator if the Estimator
// does not apply, ErrNotPosDef if d is not KL and K is singular, and ErrNoProx if d
// is Adaptive, which is for Objective.
func (g *GP) NewStepper(_ context.Context, env *Env, d Divergence) (Stepper, error) {
	if _, ok := d.(Adaptive); ok {
		return nil, fmt.Errorf("pgsvi: %w: the sites of a GP have no step with %T, which is in the coordinates of a dense covariance; run it on GP.Objective", ErrNoProx, d)
	}
	se, exact, err := siteEstimator(g.Estimator, g.terms.lik)
	if err != nil {
		return nil, err
	}
	if g.MeanUpdate < MainText || g.MeanUpdate > Appendix {
		return nil, fmt.Errorf("pgsvi: %w: GP.MeanUpdate is %d", ErrParam, g.MeanUpdate)
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	s := newGPStepper(g.terms, k, se, exact, g.MeanUpdate)
	if _, kl := d.(KL); d != nil && !kl {
		s.curve = &curveProx{d: d, beta: 1}
		if err := s.curve.check(s); err != nil {
			return nil, err
		}
	}
	if err := g.terms.expect(&s.cur, nil, env.Workers()); err != nil {
		return nil, fmt.Errorf("pgsvi: under the prior, %w", err)
	}
	return s, nil
}

// Len implements State.
func (s *gpStepper) Len() int { return s.n }

// Plan implements Stepper: sweeps of block steps over blocks that stay the same, which
// converge faster than blocks drawn anew, or steps of all terms along a curve.
func (s *gpStepper) Plan() Plan {
	if s.curve != nil {
		return Plan{}
	}
	blocks := (s.n + gpBlock - 1) / gpBlock
	return Plan{Batch: (s.n + blocks - 1) / blocks, Sampler: ShuffleOnce{}}
}

// gpBlock is the number of terms in a block step, about: the product that puts a block back costs
// O(gpBlock N²), and smaller ones take more passes.
const gpBlock = 32

// use lets the workers of env share the expectations of a step; each term is
// computed by one of them, so that the result does not depend on their number.
func (s *gpStepper) use(env *Env) {
	n := env.Workers()
	s.workers, s.block.prob.workers, s.batch.workers = n, n, n
}

// Step implements Stepper.
func (s *gpStepper) Step(_ context.Context, env *Env, batch []int, beta float64) (Step, error) {
	s.use(env)
	var err error
	switch {
	case s.curve != nil:
		err = s.curve.step(s, batch, beta, env.rng())
	case !math.IsInf(beta, 1):
		err = s.pg.step(s, batch, beta, env.rng())
	case s.checker.all(batch, s.n):
		err = s.batchStep()
	default:
		err = s.block.step(s, batch)
	}
	if err != nil {
		return Step{}, err
	}
	return Step{Beta: beta, GradMap: known(s.gradMap), ClosedForm: s.curve == nil}, nil
}

// Evaluate implements Stepper. The ELBO is exact: the expectations are certified
// whatever the Estimator is. The gap is what the problem linearised at the current state
// promises, ½δᵀFδ, with δ the distance of the sites from
// their targets and F the Fisher information of q: with c = δ_b − δ_γ m,
//
//	½cᵀVc + ¼ Σ_ij δ_γi V_ij² δ_γj.
func (s *gpStepper) Evaluate(_ context.Context, env *Env) (Evaluation, error) {
	s.use(env)
	if err := s.refresh(false); err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: s.elbo(&s.cur, s.logDet), ELBOErr: known(s.cur.err), Gap: math.Inf(1)}
	if s.refresh(true) != nil {
		e.Gap = 0
	} else if !s.unresolved && !math.IsInf(e.ELBO, 0) {
		e.Gap = known(s.decrement())
	}
	return e, nil
}
