package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
)

// Fit runs s on the model; a nil s means a Solver without options, which needs
// no tuning. The posterior is that of the state reached and is valid even if
// there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (g *GP) Fit(ctx context.Context, s *Solver) (*GPPosterior, *Result, error) {
	if s == nil {
		s = &Solver{}
	}
	res, err := s.Run(ctx, g)
	if res == nil {
		return nil, nil, err
	}
	post, e := res.Stepper.(*GPStepper).Posterior()
	if err == nil {
		err = e
	}
	return post, res, err
}

// PGSVI returns the Solver of PG-SVI as published, for n data: the constant step
// size β = betaN/n and reshuffled mini-batches of the given size, for 10 passes.
// The published settings (Khan et al., 2016, Section 6) are, for sonar,
// ionosphere and USPS, betaN 0.2, 2 and 2.5, batches of 5, 5 and 20, and
// GP.Estimator = ScoreFunction{Baseline: NoBaseline} with 2000, 500 and 2000
// samples. It exists to be compared with: a nil Solver converges without any
// of these numbers. It panics if n or batch is not positive.
func PGSVI(n int, betaN float64, batch int) *Solver {
	if n < 1 || batch < 1 {
		panic("pgsvi: PGSVI needs positive n and batch")
	}
	return &Solver{StepSize: ConstantStep(betaN / float64(n)), BatchSize: batch, MaxPasses: 10}
}

// NewStepper implements Model; the Stepper is a *GPStepper.
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
func (g *GP) NewStepper(d Divergence) (Stepper, error) {
	if _, ok := d.(Adaptive); ok {
		return nil, fmt.Errorf("pgsvi: %w: the sites of a GP have no step with %T, which is in the coordinates of a dense covariance; run it on GP.Objective", ErrNoProx, d)
	}
	se, err := siteEstimator(g.Estimator, g.lik)
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
	s := newGPStepper(g, k, se)
	if _, kl := d.(KL); d != nil && !kl {
		s.curve = &curveProx{d: d, beta: 1}
		if err := s.curve.check(s); err != nil {
			return nil, err
		}
	}
	if err := s.cur.expect(g.lik, g.y, 1); err != nil {
		return nil, err
	}
	return s, nil
}

// Len implements Stepper.
func (s *GPStepper) Len() int { return s.n }

// BatchSize returns the size of the blocks that a Solver without options sweeps.
func (s *GPStepper) BatchSize() int {
	if s.curve != nil {
		return s.n
	}
	const size = 32
	blocks := (s.n + size - 1) / size
	return (s.n + blocks - 1) / blocks
}

// SetWorkers lets n goroutines share the expectations of a step; each term is
// computed by one of them, so that the result does not depend on n.
func (s *GPStepper) SetWorkers(n int) {
	s.workers, s.block.prob.workers, s.batch.workers = n, n, n
}

// ClosedForm reports whether the steps are in closed form.
func (s *GPStepper) ClosedForm() bool { return s.curve == nil }

// GradMap returns the norm of the change of the sites in the last step, divided by β.
func (s *GPStepper) GradMap() float64 { return s.gradMap }

// ELBOErr returns a bound on the error of the expectations in the ELBO.
func (s *GPStepper) ELBOErr() float64 { return s.cur.err }

// Step implements Stepper.
func (s *GPStepper) Step(batch []int, beta float64, rng *rand.Rand) error {
	switch {
	case s.curve != nil:
		return s.curve.step(s, batch, beta, rng)
	case !math.IsInf(beta, 1):
		return s.pg.step(s, batch, beta, rng)
	case s.checker.all(batch, s.n):
		return s.batchStep()
	}
	return s.block.step(s, batch)
}

// ELBO implements Stepper. It is exact: the expectations are certified
// whatever the Estimator is, and the argument, which may be nil, is not used.
func (s *GPStepper) ELBO(*rand.Rand) (float64, error) {
	if err := s.refresh(false); err != nil {
		return math.NaN(), err
	}
	return s.elbo(&s.cur, s.logDet), nil
}

// Sampler returns what a Solver without options sweeps with: block steps
// converge faster over blocks that stay the same.
func (s *GPStepper) Sampler() Sampler { return ShuffleOnce{} }

// Gap returns an estimate of how far the ELBO is below its maximum: the larger
// of what the problem linearised at the current state promises and what the
// last two changes of the ELBO between calls, taken as a geometric series, add
// up to in the end. The first is ½δᵀFδ, with δ the distance of the sites from
// their targets and F the Fisher information of q: with c = δ_b − δ_γ m,
//
//	½cᵀVc + ¼ Σ_ij δ_γi V_ij² δ_γj.
func (s *GPStepper) Gap() float64 {
	if s.refresh(true) != nil {
		return math.NaN()
	}
	gap := s.decrement()
	elbo := s.elbo(&s.cur, s.logDet)
	if s.unresolved || math.IsInf(elbo, 0) {
		return math.Inf(1)
	}
	now, before := elbo-s.last[1], s.last[1]-s.last[0]
	if rate := now / before; rate > 0 && rate < 1 {
		gap = math.Max(gap, now*rate/(1-rate))
	}
	s.last[0], s.last[1] = s.last[1], elbo
	return gap
}
