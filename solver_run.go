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
	// StepSize is β_k. Nil means +Inf: the Stepper chooses.
	StepSize Schedule
	// BatchSize is the number of terms in a mini-batch. Zero means that of the Stepper's Plan
	// where StepSize is nil, and otherwise all N terms. A value above N means N.
	BatchSize int
	// Sampler draws the mini-batches. Nil means that of the Plan where StepSize
	// is nil, and otherwise Reshuffle, which visits every term once
	// a pass in a new random order.
	Sampler Sampler
	// MaxPasses bounds the passes over the data. Zero means that of the Plan, 1000 where it has none.
	MaxPasses float64
	// MaxIter bounds the number of steps. Zero means no bound.
	MaxIter int
	// EvalEvery is the number of steps between evaluations of the ELBO. Zero
	// means that of the Plan, or once a pass where it has none, and where it has evaluations
	// at the end alone but there is a Converger; a negative value means only at the end.
	EvalEvery int
	// Workers is the number of goroutines that share the work of a step and of an
	// evaluation, log-likelihoods and their expectations above all; above 1 those
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

// poster is a Model that makes a posterior of a state.
type poster[P any] interface {
	Model
	Posterior(st State) (P, error)
}

// fit is every Fit of the package: it runs s, nil for none of its options, on m. The posterior
// is that of the state reached, also where there is an error after the set-up.
func fit[P any](ctx context.Context, s *Solver, m poster[P]) (post P, res *Result, err error) {
	if s == nil {
		s = &Solver{}
	}
	res, err = s.Run(ctx, m)
	if res == nil {
		return post, nil, err
	}
	post, e := m.Posterior(res.Stepper)
	if err == nil {
		err = e
	}
	return post, res, err
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
	res, err := s.Start(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.Resume(ctx, res)
}

// Start returns the run of s on m before its first step, for Steps and Resume. The
// errors are those of the set-up: an invalid option, or what m says of itself.
func (s *Solver) Start(ctx context.Context, m Model) (*Result, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: nil Model: %w", ErrParam)
	}
	res := &Result{}
	res.begin(s.Src)
	st, err := m.NewStepper(ctx, res.lend(s.Workers), s.Divergence)
	if err != nil {
		return nil, err
	}
	res.Stepper = st
	return res, nil
}

// Resume goes on with the run of from under the options of s: with its counters, its
// randomness, its mini-batches and what its Converger has seen, as if it had not
// stopped. Limits count from its beginning. A Result with nothing but a Stepper is a run about
// to begin; Divergence is not used, for it belongs to the Stepper, and neither is
// Src where the run has begun. The result is from, changed; the errors are
// those of Run, and one wrapping ErrParam if from has no Stepper.
//
// A run whose last evaluation was made only because the run ended goes on as if that had not been asked
// for. A Stepper that has met a better state there keeps that one.
func (s *Solver) Resume(ctx context.Context, from *Result) (*Result, error) {
	res := from
	if err := s.validate(); err != nil {
		return res, err
	}
	if res == nil || res.Stepper == nil {
		return res, fmt.Errorf("pgsvi: a Result without a Stepper cannot be resumed: %w", ErrParam)
	}
	res.begin(s.Src)
	conv := s.Converger
	if conv == nil {
		conv = DefaultConverger()
	}
	conv.Init()
	res.forget()
	for _, it := range res.Trace {
		conv.Converged(it)
	}
	res.Status = NotTerminated
	var err error
	for it, e := range s.Steps(ctx, res) {
		if err = e; err != nil {
			res.Status = Failed
			break
		}
		if s.Recorder != nil {
			s.Recorder.Record(it)
		}
		if res.Status = conv.Converged(it); res.Status != NotTerminated {
			break
		}
	}
	if res.Status == NotTerminated {
		switch {
		case ctx.Err() != nil:
			res.Status = Canceled
			err = fmt.Errorf("pgsvi: canceled after %d iterations: %w", res.K, context.Cause(ctx))
		case s.MaxIter > 0 && res.K >= s.MaxIter:
			res.Status = IterationLimit
		case res.Passes >= s.options(res.Stepper).MaxPasses-passSlack:
			res.Status = PassLimit
		default:
			res.Status = Exhausted
		}
	}
	if math.IsNaN(res.ELBO) {
		// The last step was not evaluated, or there was none.
		res.forced = true
		if e := res.evaluate(context.WithoutCancel(ctx)); e != nil && err == nil {
			res.Status, err = Failed, e
		}
	}
	if math.IsInf(res.ELBO, 0) && err == nil {
		res.Status = Failed
		err = fmt.Errorf("pgsvi: the ELBO is %v after %d iterations, as a log-likelihood is -Inf or overflows under every q that was reached: %w", res.ELBO, res.K, ErrDiverged)
	}
	return res, err
}

// begin gives a run that has not begun its randomness: the Sampler and the evaluations have
// seeds of their own, so that neither changes what the steps draw.
func (r *Result) begin(src rand.Source) {
	if r.begun {
		return
	}
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	r.begun, r.env = true, NewEnv(src, 1)
	for i := range r.seeds {
		r.seeds[i] = src.Uint64()
	}
	r.evalPCG = rand.NewPCG(r.seeds[2], r.seeds[3])
	r.eval = NewEnv(r.evalPCG, 1)
	r.Iteration = Iteration{Step: Step{Beta: math.NaN(), GradMap: math.NaN()}, Evaluation: notEvaluated()}
}

// lend returns the Env of the steps, with so many workers.
func (r *Result) lend(workers int) *Env {
	r.env.workers = max(1, workers)
	r.eval.workers = r.env.workers
	return r.env
}

// forget takes an evaluation that was made only because the run ended out of its history.
func (r *Result) forget() {
	if r.forced {
		r.Trace, r.forced = r.Trace[:len(r.Trace)-1], false
		r.Evaluation = notEvaluated()
	}
}

// evaluate evaluates the state. Every evaluation of a run has the same draws, so that
// their differences are those of the states.
func (r *Result) evaluate(ctx context.Context) error {
	r.evalPCG.Seed(r.seeds[2], r.seeds[3])
	ev, err := r.Stepper.Evaluate(ctx, r.eval)
	if err != nil {
		r.forced = false
		return fmt.Errorf("pgsvi: ELBO at iteration %d: %w", r.K, bare{err})
	}
	orNaN(&ev.ELBOErr, &ev.Gap, &ev.GapBound)
	if n := len(r.Trace); n >= 2 && !ev.Random && !math.IsNaN(ev.Gap) {
		// What the last two changes of the ELBO, taken as a geometric series, add up to.
		now, before := ev.ELBO-r.Trace[n-1].ELBO, r.Trace[n-1].ELBO-r.Trace[n-2].ELBO
		if rate := now / before; rate > 0 && rate < 1 {
			ev.Gap = math.Max(ev.Gap, now*rate/(1-rate))
		}
	}
	r.Evaluation = ev
	it := r.Iteration
	it.State = nil
	r.Trace = append(r.Trace, it)
	return nil
}

// orNaN replaces zeros, which say that a number is not known, by NaN.
func orNaN(numbers ...*float64) {
	for _, x := range numbers {
		if *x == 0 {
			*x = math.NaN()
		}
	}
}

// passSlack absorbs the rounding of Passes, a sum of fractions.
const passSlack = 1e-9

// options returns how s runs st: the Plan, less what s says otherwise.
func (s *Solver) options(st Stepper) Plan {
	p := st.Plan()
	if s.StepSize != nil {
		p.Batch, p.Sampler = 0, nil
	}
	if s.BatchSize > 0 {
		p.Batch = s.BatchSize
	}
	if p.Batch == 0 || p.Batch > st.Len() {
		p.Batch = st.Len()
	}
	if s.Sampler != nil {
		p.Sampler = s.Sampler
	}
	if p.Sampler == nil {
		p.Sampler = Reshuffle{}
	}
	if s.MaxPasses > 0 {
		p.MaxPasses = s.MaxPasses
	}
	if p.MaxPasses == 0 {
		p.MaxPasses = 1000
	}
	if s.Converger != nil && p.EvalEvery < 0 {
		p.EvalEvery = 0
	}
	if s.EvalEvery != 0 {
		p.EvalEvery = s.EvalEvery
	}
	return p
}

// Steps is the loop itself, as an iterator over the steps of the run res, for example that of Start: the caller
// decides when to stop by breaking out of it, and res is then the run so far. It ends at MaxPasses or MaxIter,
// when ctx is canceled, when the Sampler has no further batch, and after an
// iteration that carries an error. Converger and Recorder are Run's affair.
func (s *Solver) Steps(ctx context.Context, res *Result) iter.Seq2[Iteration, error] {
	return func(yield func(Iteration, error) bool) {
		if err := s.validate(); err != nil {
			yield(res.Iteration, err)
			return
		}
		st := res.Stepper
		n := st.Len()
		if n < 1 {
			yield(res.Iteration, fmt.Errorf("pgsvi: the Stepper has %d terms: %w", n, ErrEmpty))
			return
		}
		res.begin(s.Src)
		res.forget()
		plan := s.options(st)
		schedule := s.StepSize
		if schedule == nil {
			schedule = auto{}
		}
		atEnd := func() bool {
			return res.Passes >= plan.MaxPasses-passSlack || s.MaxIter > 0 && res.K >= s.MaxIter
		}
		if atEnd() {
			return
		}
		env := res.lend(s.Workers)
		start := time.Now().Add(-res.Elapsed)
		drawn := 0
		for batch := range plan.Sampler.Batches(n, plan.Batch, rand.New(rand.NewPCG(res.seeds[0], res.seeds[1]))) {
			if drawn++; drawn <= res.batches {
				continue // taken before the run was resumed
			}
			if ctx.Err() != nil {
				return
			}
			if err := checkBatch(batch, n); err != nil {
				yield(res.Iteration, err)
				return
			}
			beta := schedule.StepSize(res.K)
			if !(beta > 0) {
				yield(res.Iteration, fmt.Errorf("pgsvi: step size %v at iteration %d must be positive: %w", beta, res.K, ErrParam))
				return
			}
			step, err := st.Step(ctx, env, batch, beta)
			if err != nil {
				if ctx.Err() == nil {
					yield(res.Iteration, fmt.Errorf("pgsvi: iteration %d, beta %.3g: %w", res.K+1, beta, bare{err}))
				}
				return
			}
			orNaN(&step.Beta, &step.GradMap)
			before := res.visited / n
			res.batches = drawn
			res.visited += len(batch)
			res.K++
			res.Passes = float64(res.visited) / float64(n)
			res.Step, res.Evaluation, res.State = step, notEvaluated(), st
			last := atEnd()
			due := plan.EvalEvery == 0 && res.visited/n > before || plan.EvalEvery > 0 && res.K%plan.EvalEvery == 0
			if due || last {
				res.forced = !due
				err = res.evaluate(ctx)
			}
			res.Elapsed = time.Since(start)
			if !yield(res.Iteration, err) || err != nil || last {
				return
			}
		}
	}
}

// validate reports every invalid option at once, wrapping ErrParam; a Divergence is asked at
// set-up, by its Check.
func (s *Solver) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: "+format+": %w", append(args, ErrParam)...))
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
	errs = append(errs, validate(s.StepSize, s.Sampler, s.Converger))
	return errors.Join(errs...)
}
