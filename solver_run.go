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
