package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// Model says how to begin. A Model is immutable once handed to a Solver and
// may be shared between goroutines; every run gets a Stepper of its own.
//
// Objective, GP and any user type with this method are Models.
type Model interface {
	// NewStepper returns λ_0 together with the rule λ_k → λ_{k+1} under the
	// divergence d; nil means KL. A pair of convex term and divergence for
	// which no proximal step is known is an error here, wrapping ErrNoProx,
	// and not in the middle of a run.
	NewStepper(d Divergence) (Stepper, error)
}

// Stepper holds λ_k and takes steps. It is not safe for concurrent use.
//
// A Stepper may also have any of the following methods, which Solver finds by
// type assertion:
//
//	BatchSize() int     the mini-batch to use when Solver.BatchSize is 0 (otherwise all N terms)
//	Sampler() Sampler   how to draw the mini-batches when Solver.Sampler and Solver.StepSize are nil
//	Gap() float64       an estimate of the nats between λ_k and the optimum (see Result.Gap)
//	Goal() float64      the gap at which a nil Converger is content, if it is above that of DefaultConverger
//	ELBOErr() float64   the standard error, or a bound on the numerical error, of the last ELBO
//	GradMap() float64   the norm of the gradient map at the last step (see Iteration.GradMap)
//	ClosedForm() bool   whether the last step was in closed form
//	SetWorkers(n int)   how many goroutines may share the work of a step; results must not depend on it
//	Dist() Dist         q(z|λ_k), for Result.Q
type Stepper interface {
	// Len returns N, the number of terms of f.
	Len() int
	// Step replaces λ_k by
	//
	//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β
	//
	// with the gradient estimated from the terms in batch, scaled by N/len(batch).
	// A nil batch means all terms. beta = +Inf leaves the length of the step to
	// the Stepper, which must then need no tuning. On error λ_k is kept.
	// Step does not keep batch.
	Step(batch []int, beta float64, rng *rand.Rand) error
	// ELBO returns the evidence lower bound at λ_k in nats. Those of this package
	// take a nil rng for one of a fixed seed.
	ELBO(rng *rand.Rand) (float64, error)
}

// Solver runs the proximal-gradient iteration on a Model. It owns the loop:
// mini-batches, step sizes, stopping, recording, cancellation and resuming.
// The zero value is ready to use and needs no tuning. A Solver may be reused
// but not shared between goroutines.
type Solver struct {
	// Divergence is D. Nil means KL.
	Divergence Divergence
	// StepSize is β_k. Nil means Auto: the Stepper chooses.
	StepSize Schedule
	// BatchSize is the number of terms in a mini-batch. Zero means the
	// Stepper's own choice, or all N terms where it has none. A value above N means N.
	BatchSize int
	// Sampler draws the mini-batches. Nil means the Stepper's own choice where
	// StepSize is nil too, and otherwise Reshuffle, which visits every term once
	// a pass in a new random order.
	Sampler Sampler
	// MaxPasses bounds the passes over the data. Zero means 1000.
	MaxPasses float64
	// MaxIter bounds the number of steps. Zero means no bound.
	MaxIter int
	// EvalEvery is the number of steps between evaluations of the ELBO. Zero
	// means once a pass; a negative value means only at the end.
	EvalEvery int
	// Workers is the number of goroutines that share the evaluations of
	// log-likelihoods and their expectations within a step; above 1 those
	// that the user wrote are called concurrently. Zero means 1, which is best
	// where a term is cheap. The result does not depend on it.
	Workers int
	// Converger decides when to stop. Nil means DefaultConverger.
	Converger Converger
	// Recorder is shown every iteration. Nil records nothing beyond Result.Trace.
	Recorder Recorder
	// Src is the source of all randomness of a run. Nil means a fixed seed, so
	// that two runs agree to the last bit.
	Src rand.Source
}

// Iteration describes one step of the loop.
type Iteration struct {
	K       int           // number of steps taken, from 1
	Passes  float64       // number of terms visited, divided by N
	Beta    float64       // β_k as scheduled; +Inf if the Stepper chose the length of the step
	ELBO    float64       // in nats; NaN if it was not evaluated
	Gap     float64       // estimate of the nats to the optimum; NaN if it was not evaluated or is not known
	GradMap float64       // ‖λ_k − λ_{k+1}‖/β_k of this step alone (β_k = 1 where Beta is +Inf); NaN if not known
	Elapsed time.Duration // since the start of the run
	Stepper Stepper       // the state reached; valid until the next step
}

// Status says why a run ended.
type Status int

// The ways in which a run ends.
const (
	NotTerminated  Status = iota // still running
	Converged                    // the Converger was satisfied
	Stalled                      // rounding allows no further progress; the Gap says how far from the optimum
	PassLimit                    // MaxPasses was reached
	IterationLimit               // MaxIter was reached
	TimeLimit                    // a Deadline was reached
	Exhausted                    // the Sampler had no further batch
	Canceled                     // the context was canceled
	Failed                       // a step or an evaluation returned an error
)

var statusNames = [...]string{"not terminated", "converged", "stalled", "pass limit", "iteration limit", "time limit", "sampler exhausted", "canceled", "failed"}

// String returns the status in words.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return statusNames[s]
}

// Result is what a run reached. It is complete even when Run returns an error.
type Result struct {
	Status     Status
	Iterations int
	Passes     float64
	// ELBO at the state reached, in nats; NaN if it could not be evaluated.
	ELBO float64
	// ELBOErr is the standard error of ELBO where it is a Monte Carlo estimate,
	// and a bound on the error of its expectations where they are certified;
	// NaN if not known.
	ELBOErr float64
	// Gap estimates how many nats the ELBO is below its maximum. It starts from
	// the decrease that the model of the objective (f linearised, h exact) still
	// promises, ½δᵀFδ to second order, δ the distance to its minimiser in natural
	// parameters and F the Fisher information, which bounds the true gap to
	// second order where f is convex in the mean parameters. NaN if not known.
	Gap float64
	// GradMap is that of the last iteration.
	GradMap float64
	// ClosedForm reports whether the last step had a closed form.
	ClosedForm bool
	// Elapsed is the time of the loop, without that of Model.NewStepper, in which
	// a GP computes its covariances.
	Elapsed time.Duration
	// Trace holds the iterations at which the ELBO was evaluated, without their Stepper.
	Trace []Iteration
	// Q is q(z|λ) at the state reached, owned by the caller; nil for models
	// whose posterior has a type of its own.
	Q Dist
	// Stepper is the state reached; Resume continues from it.
	Stepper Stepper
}

// Run fits m from its initial λ until the Converger is satisfied, a limit is
// reached or ctx is canceled.
//
// It returns an error if an option is invalid (all violations at once, wrapping
// ErrParam), if m cannot provide a Stepper, if a step or an evaluation fails
// (wrapped with the iteration and β), if the ELBO reached is infinite (wrapping
// ErrDiverged), or if ctx is canceled (wrapping its cause). After a valid set-up the result is never nil and holds the state
// reached. A limit is not an error but a Status.
func (s *Solver) Run(ctx context.Context, m Model) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: %w: nil Model", ErrParam)
	}
	st, err := m.NewStepper(s.Divergence)
	if err != nil {
		return nil, err
	}
	return s.Resume(ctx, st)
}

// Resume runs the loop from a Stepper that already holds a λ_k, for example
// Result.Stepper of an earlier run. It is otherwise as Run; Divergence is not
// used, for it belongs to the Stepper.
func (s *Solver) Resume(ctx context.Context, st Stepper) (*Result, error) {
	res := &Result{Stepper: st, ELBO: math.NaN(), ELBOErr: math.NaN(), Gap: math.NaN(), GradMap: math.NaN(), ClosedForm: true}
	conv := s.Converger
	if conv == nil {
		conv = DefaultConverger()
		if g, ok := st.(interface{ Goal() float64 }); ok {
			conv = AnyOf(goalReached{g.Goal}, conv)
		}
	}
	conv.Init()
	start := time.Now()
	var err error
	for it, e := range s.Steps(ctx, st) {
		err = e
		res.Iterations, res.Passes, res.GradMap = it.K, it.Passes, it.GradMap
		res.ELBO, res.Gap = it.ELBO, it.Gap
		if err != nil {
			res.Status = Failed
			break
		}
		if s.Recorder != nil {
			s.Recorder.Record(it)
		}
		if !math.IsNaN(it.ELBO) {
			it.Stepper = nil
			res.Trace = append(res.Trace, it)
		}
		if res.Status = conv.Converged(it); res.Status != NotTerminated {
			break
		}
	}
	res.Elapsed = time.Since(start)
	if res.Status == NotTerminated {
		switch {
		case ctx.Err() != nil:
			res.Status = Canceled
			err = fmt.Errorf("pgsvi: canceled after %d iterations: %w", res.Iterations, context.Cause(ctx))
		case s.MaxIter > 0 && res.Iterations >= s.MaxIter:
			res.Status = IterationLimit
		case res.Passes >= s.maxPasses()-passSlack:
			res.Status = PassLimit
		default:
			res.Status = Exhausted
		}
	}
	if math.IsNaN(res.ELBO) {
		// The last step was not evaluated, or there was none.
		if v, e := st.ELBO(orFixed(nil)); e == nil {
			res.ELBO, res.Gap = v, gapOf(st)
		} else if err == nil {
			res.Status, err = Failed, fmt.Errorf("pgsvi: ELBO after %d iterations: %w", res.Iterations, e)
		}
	}
	if math.IsInf(res.ELBO, 0) && err == nil {
		res.Status = Failed
		err = fmt.Errorf("pgsvi: %w: the ELBO is %v after %d iterations: a log-likelihood is -Inf or overflows under every q that was reached", ErrDiverged, res.ELBO, res.Iterations)
	}
	if c, ok := st.(interface{ ClosedForm() bool }); ok {
		res.ClosedForm = c.ClosedForm()
	}
	if e, ok := st.(interface{ ELBOErr() float64 }); ok {
		res.ELBOErr = e.ELBOErr()
	}
	if d, ok := st.(interface{ Dist() Dist }); ok {
		res.Q = d.Dist().Clone()
	}
	return res, err
}

// passSlack absorbs the rounding of Passes, a sum of fractions.
const passSlack = 1e-9

// The seed of a run whose Src is nil.
const seed1, seed2 = 0x5eed, 0xe1b0

// orFixed returns rng, or where that is nil one of a fixed seed.
func orFixed(rng *rand.Rand) *rand.Rand {
	if rng == nil {
		return rand.New(rand.NewPCG(seed1, seed2))
	}
	return rng
}

func (s *Solver) maxPasses() float64 {
	if s.MaxPasses == 0 {
		return 1000
	}
	return s.MaxPasses
}

func gapOf(st Stepper) float64 {
	if c, ok := st.(interface{ Gap() float64 }); ok {
		return c.Gap()
	}
	return math.NaN()
}

// Steps is the loop itself, as an iterator over the steps of st: the caller
// decides when to stop by breaking out of it. It ends at MaxPasses or MaxIter,
// when ctx is canceled, when the Sampler has no further batch, and after an
// iteration that carries an error. Converger and Recorder are Run's affair.
func (s *Solver) Steps(ctx context.Context, st Stepper) iter.Seq2[Iteration, error] {
	return func(yield func(Iteration, error) bool) {
		nan := math.NaN()
		it := Iteration{ELBO: nan, Gap: nan, GradMap: nan, Stepper: st}
		if err := s.Validate(); err != nil {
			yield(it, err)
			return
		}
		n := st.Len()
		if n < 1 {
			yield(it, fmt.Errorf("pgsvi: %w: the Stepper has %d terms", ErrEmpty, n))
			return
		}
		if w, ok := st.(interface{ SetWorkers(int) }); ok {
			w.SetWorkers(max(1, s.Workers))
		}
		mapper, _ := st.(interface{ GradMap() float64 })
		src := s.Src
		if src == nil {
			src = rand.NewPCG(seed1, seed2)
		}
		rng := rand.New(src)
		evalRng := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		var schedule Schedule = Auto{}
		if s.StepSize != nil {
			schedule = s.StepSize
		}
		start := time.Now()
		var visited int
		limit := s.maxPasses() - passSlack
		for batch := range s.sampler(st).Batches(n, s.batchSize(st), rng) {
			if ctx.Err() != nil {
				return
			}
			if err := checkBatch(batch, n); err != nil {
				yield(it, err)
				return
			}
			beta := schedule.StepSize(it.K)
			if !(beta > 0) {
				yield(it, fmt.Errorf("pgsvi: %w: step size %v at iteration %d must be positive", ErrParam, beta, it.K))
				return
			}
			if err := st.Step(batch, beta, rng); err != nil {
				yield(it, fmt.Errorf("pgsvi: iteration %d, beta %.3g: %w", it.K+1, beta, err))
				return
			}
			before := visited / n
			visited += len(batch)
			it.K++
			it.Passes = float64(visited) / float64(n)
			it.Beta = beta
			it.ELBO, it.Gap, it.GradMap = nan, nan, nan
			if mapper != nil {
				it.GradMap = mapper.GradMap()
			}
			last := it.Passes >= limit || s.MaxIter > 0 && it.K >= s.MaxIter
			due := s.EvalEvery == 0 && visited/n > before || s.EvalEvery > 0 && it.K%s.EvalEvery == 0
			var err error
			if due || last {
				it.ELBO, err = st.ELBO(evalRng)
				if err != nil {
					err = fmt.Errorf("pgsvi: ELBO at iteration %d: %w", it.K, err)
				}
				it.Gap = gapOf(st)
			}
			it.Elapsed = time.Since(start)
			if !yield(it, err) || err != nil || last {
				return
			}
		}
	}
}

func (s *Solver) sampler(st Stepper) Sampler {
	if s.Sampler != nil {
		return s.Sampler
	}
	if p, ok := st.(interface{ Sampler() Sampler }); ok && s.StepSize == nil {
		return p.Sampler()
	}
	return Reshuffle{}
}

func (s *Solver) batchSize(st Stepper) int {
	m := s.BatchSize
	if m == 0 {
		m = st.Len()
		if b, ok := st.(interface{ BatchSize() int }); ok && s.StepSize == nil {
			m = b.BatchSize()
		}
	}
	return min(m, st.Len())
}

// Validate reports every invalid option at once, wrapping ErrParam.
func (s *Solver) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: %w: "+format, append([]any{ErrParam}, args...)...))
	}
	if s.BatchSize < 0 {
		bad("Solver.BatchSize is %d; it must not be negative", s.BatchSize)
	}
	if math.IsNaN(s.MaxPasses) || s.MaxPasses < 0 {
		bad("Solver.MaxPasses is %v; it must not be negative", s.MaxPasses)
	}
	if s.MaxIter < 0 {
		bad("Solver.MaxIter is %d; it must not be negative", s.MaxIter)
	}
	if s.Workers < 0 {
		bad("Solver.Workers is %d; it must not be negative", s.Workers)
	}
	for _, o := range []any{s.StepSize, s.Sampler, s.Converger, s.Divergence} {
		if v, ok := o.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Schedule gives the step sizes β_0, β_1, …; each must be positive. A large β
// is a long step; β = +Inf asks the Stepper for its own, accepted step.
type Schedule interface{ StepSize(k int) float64 }

// Auto leaves the length of every step to the Stepper. It is what a nil
// Solver.StepSize means.
type Auto struct{}

// StepSize returns +Inf.
func (Auto) StepSize(int) float64 { return math.Inf(1) }

// ConstantStep is the schedule β_k = β. The zero value is invalid.
type ConstantStep float64

// StepSize returns c.
func (c ConstantStep) StepSize(int) float64 { return float64(c) }

// Validate returns an error wrapping ErrParam unless c is positive.
func (c ConstantStep) Validate() error {
	if !(c > 0) {
		return fmt.Errorf("pgsvi: %w: ConstantStep %v must be positive", ErrParam, float64(c))
	}
	return nil
}

// RobbinsMonro is the schedule β_k = Scale·(1 + k/Delay)^−Power (Robbins and
// Monro, 1951), whose sum diverges while the sum of its squares converges for
// ½ < Power ≤ 1. Zero fields mean Scale 1, Delay 1 and Power 0.6.
type RobbinsMonro struct{ Scale, Delay, Power float64 }

// StepSize returns β_k.
func (r RobbinsMonro) StepSize(k int) float64 {
	return orOne(r.Scale) * math.Pow(1+float64(k)/orOne(r.Delay), -r.power())
}

func (r RobbinsMonro) power() float64 {
	if r.Power == 0 {
		return 0.6
	}
	return r.Power
}

// Validate returns an error wrapping ErrParam unless Scale and Delay are
// positive or zero and Power is in [0, 1].
func (r RobbinsMonro) Validate() error {
	if !(r.Scale >= 0) || !(r.Delay >= 0) || !(r.Power >= 0 && r.Power <= 1) || math.IsInf(r.Scale, 0) || math.IsInf(r.Delay, 0) {
		return fmt.Errorf("pgsvi: %w: %+v needs Scale and Delay >= 0 and Power in [0, 1]", ErrParam, r)
	}
	return nil
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}
