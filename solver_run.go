package pgsvi

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Solver runs the proximal-gradient iteration on a Model: mini-batches, step sizes, early
// stopping, recording, cancellation and resuming. The zero value is ready to use and needs no
// tuning. A Solver may be reused but is not safe for concurrent use.
type Solver struct {
	// Divergence is D, the distance that keeps a step short. Nil means KL.
	Divergence Divergence
	// StepSize gives the step sizes β_k (learning rates). Nil means that the Stepper chooses
	// them.
	StepSize Schedule
	// BatchSize is the number of terms in a mini-batch. Zero means all N terms if StepSize is
	// set, and otherwise the Plan of the Stepper decides. A value above N means N.
	BatchSize int
	// Sampler draws the mini-batches. Nil means Reshuffle if StepSize is set, and otherwise the
	// Plan of the Stepper decides. Reshuffle visits every term once a pass in a new random order.
	Sampler Sampler
	// MaxPasses is the largest number of passes over the data (epochs). Zero means that of the
	// Plan, or 1000 if the Plan has none.
	MaxPasses float64
	// MaxIter is the largest number of steps. Zero means no limit.
	MaxIter int
	// EvalEvery is the number of steps between evaluations of the ELBO. Zero means that of the
	// Plan, or once a pass if the Plan has none. An Objective with noisy gradients then evaluates
	// less often, so that evaluations take at most a fifth of the work. If the Plan evaluates
	// only at the end but there is a Converger, zero means once a pass. A negative value means
	// only at the end.
	EvalEvery int
	// Workers is the number of goroutines for set-up, steps and evaluations. Zero means
	// GOMAXPROCS where the work is large enough. The result is the same to the last bit for any
	// value.
	//
	// With zero, only code that is safe for concurrent use runs concurrently: linear algebra, a
	// Likelihood and its expectations, a Kernel, the documents of a topic model. Other functions
	// of the user, such as LogLik.LogProb, are called one at a time. Above 1 they are called
	// concurrently, too.
	Workers int
	// Goal is the gap in nats at which the run ends (tolerance). The gap is proved where possible
	// (Evaluation.GapBound) and otherwise estimated.
	//
	// A mean is then within about √(2·Goal) posterior standard deviations of its optimum, 0.14 for
	// a Goal of 0.01, if the data determine it. It can be farther where the posterior is skewed,
	// because the covariance then moves with the mean: for labels that are all equal or counts
	// that are all 0, twice as far under a prior standard deviation of 10, and six times as far
	// under one of 100. If the likelihood is log-concave it is always within √(2·Goal) prior
	// standard deviations, because the negative ELBO is convex in the mean and a Cholesky factor
	// of the covariance, and at least as curved as the prior (Challis and Barber, 2013).
	//
	// Zero means the Stepper's own goal, if it has one. Otherwise it means 1e-4 nats for N ≥ 2,000
	// terms, 1e-4·(N/2,000)³ nats for fewer, and in any case at least 1e-10 nats and the accuracy
	// of the ELBO. A mean is then within about 0.014 posterior standard deviations of its optimum.
	//
	// Set 1e-10 for means and an ELBO with most of the digits that float64 has, which usually
	// takes one or two passes more. For predictions 0.01 is enough.
	Goal float64
	// Converger decides when to stop. Nil means DefaultConverger, which uses Goal.
	Converger Converger
	// Recover turns a panic in a function that a run calls into an error: LogLik.LogProb, a
	// Likelihood, a Kernel. The error wraps ErrPanic and a *PanicError, and names the datum if it
	// is known. The state λ_k is kept, as on any error. Without Recover the panic reaches the
	// caller, possibly on another goroutine.
	Recover bool
	// Recorder receives every iteration. Nil records only Result.Trace.
	Recorder Recorder
	// Checkpoint saves the run to a file at intervals. The zero value saves nothing.
	Checkpoint Checkpoint
	// Src is the source of all randomness of a run. Nil means a fixed seed, so that two runs
	// agree to the last bit.
	Src rand.Source
}

// poster is a Model that makes a posterior of a state.
type poster[P any] interface {
	Model
	Posterior(st State) (P, error)
}

// haltable is a Stepper whose posterior may take long to compute.
type haltable interface {
	// begin makes what is asked of it next end when ctx is done.
	begin(ctx context.Context, env *Env) *parallel.Halt
}

// fitModel implements every Fit of the package: it runs s on m; a nil s means the zero Solver.
// The posterior is that of the state reached, also with an error after the set-up. A canceled run
// has no posterior if computing it would take more than a moment.
func fitModel[P any](ctx context.Context, s *Solver, m poster[P]) (post P, res *Result, err error) {
	if s == nil {
		s = &Solver{}
	}
	res, err = s.Run(ctx, m)
	if res == nil {
		return post, nil, err
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	if st, ok := res.Stepper.(haltable); ok {
		defer st.begin(last, res.lend(s.Workers)).Forget()
	}
	post, e := m.Posterior(res.Stepper)
	if e != nil && last.Err() != nil {
		e = fmt.Errorf("pgsvi: canceled before the posterior of the run was made: %w",
			context.Cause(ctx))
	}
	if err == nil {
		err = e
	}
	return post, res, err
}

// shortlyAfter returns a context that is done a moment after ctx is.
func shortlyAfter(ctx context.Context) (last context.Context, stop func()) {
	last = context.WithoutCancel(ctx)
	switch {
	case ctx.Done() == nil:
		return last, func() {}
	case ctx.Err() != nil:
		return context.WithTimeoutCause(last, parallel.LastMoment, context.Cause(ctx))
	}
	last, cancel := context.WithCancelCause(last)
	unhook := context.AfterFunc(ctx, func() {
		wait := time.NewTimer(parallel.LastMoment)
		defer wait.Stop()
		select {
		case <-wait.C:
			cancel(context.Cause(ctx))
		case <-last.Done():
		}
	})
	return last, func() {
		unhook()
		cancel(nil)
	}
}

// Run fits m from its initial state until the Converger is satisfied, a limit is reached or ctx
// is canceled.
//
// It returns an error if an option is invalid (all violations at once, wrapping ErrParam), if m
// has no Stepper for the options, if a step or an evaluation fails (with the iteration and β), if
// the ELBO becomes infinite (wrapping ErrDiverged), or if ctx is canceled (wrapping its cause).
// After a valid set-up the result is not nil and holds the state reached, even with an error.
// Reaching a limit is a Status, not an error.
//
// A step that is canceled leaves the state and the randomness as they were before it. A canceled
// run evaluates its last state only if that is quick: its ELBO may be NaN.
func (s *Solver) Run(ctx context.Context, m Model) (*Result, error) {
	res, err := s.Start(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.Resume(ctx, res)
}

// Start returns the run of s on m before its first step, for Steps and Resume. The errors are
// those of the set-up: an invalid option, or an error of the model.
func (s *Solver) Start(ctx context.Context, m Model) (*Result, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: nil Model: %w", ErrParam)
	}
	res := &Result{}
	res.begin(s.Src)
	var err error
	if res.Stepper, err = s.newStepper(ctx, res.lend(s.Workers), m); err != nil {
		return nil, err
	}
	res.Warnings = warningsOf(m)
	return res, nil
}

// warner is a Model that checks its data and options for problems; see Result.Warnings.
type warner interface {
	Model
	warnings() []string
}

// warningsOf returns the warnings of m, none if m does not check.
func warningsOf(m Model) []string {
	if w, ok := m.(warner); ok {
		return w.warnings()
	}
	return nil
}

// newStepper is the set-up of m under the options of s.
func (s *Solver) newStepper(ctx context.Context, env *Env, m Model) (st Stepper, err error) {
	err = s.guard(func() (err error) {
		st, err = m.NewStepper(ctx, env, s.Divergence)
		return err
	})
	if errors.Is(err, ErrPanic) {
		err = fmt.Errorf("pgsvi: set-up: %w", sentinel.Bare(err))
	} else if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("pgsvi: canceled in the set-up: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// guard calls f; with Recover a panic of f is its error.
func (s *Solver) guard(f func() error) (err error) {
	if s.Recover {
		defer func() {
			if r := recover(); r != nil {
				err = recovered{parallel.Caught(r)}
			}
		}()
	}
	return f()
}

// Resume continues a run under the options of s, with its counters, randomness, mini-batches and
// Converger history, as if it had not stopped. It changes and returns from.
//
// Limits count from the beginning of the run. Divergence is not used, as the Stepper has it
// already. Src is used only if the run has not begun: a Result with nothing but a Stepper is such
// a run. The errors are those of Run; one wraps ErrParam if from has no Stepper.
//
// An evaluation that was made only because the run ended is undone first. If the Stepper found a
// better state there, it keeps that one.
func (s *Solver) Resume(ctx context.Context, from *Result) (*Result, error) {
	res := from
	if err := s.validate(); err != nil {
		return res, err
	}
	if res == nil || res.Stepper == nil {
		return res, fmt.Errorf("pgsvi: a Result without a Stepper cannot be resumed: %w", ErrParam)
	}
	res.begin(s.Src)
	if s.Checkpoint.Path != "" {
		if _, err := res.savable(); err != nil {
			return res, err
		}
	}
	conv := s.Converger
	if conv == nil {
		conv = DefaultConverger()
	}
	conv.Init()
	if err := res.forget(); err != nil {
		return res, err
	}
	res.Status = NotTerminated
	for _, it := range res.Trace {
		if status := conv.Converged(it); it.K == res.K {
			res.Status = status
		}
	}
	if res.Status != NotTerminated {
		return res, nil
	}
	file := checkpointWriter{Checkpoint: s.Checkpoint}
	file.start(res)
	var err, unsaved error
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
		if unsaved = file.due(res); unsaved != nil {
			res.Status, err = Failed, unsaved
			break
		}
	}
	if res.Status == NotTerminated {
		switch {
		case ctx.Err() != nil:
			res.Status, err = Canceled, canceledAfter(ctx, res)
		case s.MaxIter > 0 && res.K >= s.MaxIter:
			res.Status = IterationLimit
		case res.Passes >= s.options(res.Stepper).MaxPasses-passSlack:
			res.Status = PassLimit
		default:
			res.Status = Exhausted
		}
	}
	err = s.evaluateLast(ctx, res, err)
	if res.Status == Stalled && res.ELBOErr > res.Gap && !res.Random {
		res.Gap = res.ELBOErr // no step gains what rounding hides
		res.settle()
	}
	if unsaved == nil {
		if e := file.write(res); e != nil && err == nil {
			res.Status, err = Failed, e
		}
	}
	if math.IsInf(res.ELBO, 0) && err == nil {
		res.Status = Failed
		what := "a log-likelihood is -Inf or overflows under every q that was reached"
		if e, ok := res.Stepper.(explainer); ok {
			what = cmp.Or(e.explain(), what)
		}
		err = fmt.Errorf("pgsvi: the ELBO is %v after %d iterations: %s: %w", res.ELBO, res.K, what,
			ErrDiverged)
	}
	return res, err
}

// LoadResult reads a run on m that Result.Save or a Checkpoint has written. Resume continues it
// under the options of s. All of r must be that file. The model must have the same data and
// options as the saved one, and the same Divergence. If Src is not nil it must have the same
// type; it is set to where the run was.
//
// The error is that of m, or wraps ErrFile if r is not such a file, is damaged, of a newer
// release or of another model. It wraps ErrParam if an option is invalid or if the Stepper or
// source cannot be restored. A failure of r is wrapped unchanged.
func (s *Solver) LoadResult(ctx context.Context, r io.Reader, m Model) (*Result, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: nil Model: %w", ErrParam)
	}
	body, err := readBody(r, runFile)
	if err != nil {
		return nil, err
	}
	saved := savedRun{Result: &Result{}}
	if err := save.Unmarshal(body, saved.state); err != nil {
		return nil, &fileError{runFile, err}
	}
	res := saved.Result
	env := NewEnv(nil, s.Workers)
	env.workers = s.Workers
	st, err := s.newStepper(ctx, env, m)
	if err != nil {
		return nil, err
	}
	snap, ok := st.(snapshotter)
	if !ok {
		return nil, fmt.Errorf(
			"pgsvi: a run of a %T cannot be loaded, as it has no MarshalBinary and "+
				"UnmarshalBinary: %w", st, ErrParam)
	}
	if err := snap.UnmarshalBinary(saved.stepper); err != nil {
		return nil, &fileError{runFile, err}
	}
	res.Stepper, res.Warnings = st, warningsOf(m)
	if !res.begun {
		return res, nil
	}
	src := s.Src
	if src == nil {
		src = rand.NewPCG(0, 0)
	}
	u, ok := src.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, fmt.Errorf("pgsvi: Solver.Src is a %T, which has no UnmarshalBinary: %w", src,
			ErrParam)
	}
	if err := u.UnmarshalBinary(saved.src); err != nil && s.Src == nil {
		return nil, &fileError{runFile,
			fmt.Errorf("the source of the run, where Solver.Src is nil: %w", err)}
	} else if err != nil {
		return nil, fmt.Errorf(
			"pgsvi: Solver.Src is a %T, and that of the saved run was another: %w: %w", src, err,
			ErrParam)
	}
	res.use(src)
	return res, nil
}

func canceledAfter(ctx context.Context, r *Result) error {
	return fmt.Errorf("pgsvi: canceled after %d iterations: %w", r.K, context.Cause(ctx))
}

// sparing is a Stepper whose evaluations may be too costly. It is asked once a pass if no
// EvalEvery is set, and is evaluated if it returns true.
type sparing interface{ worthEvaluating() bool }

func worthEvaluating(st Stepper) bool {
	s, ok := st.(sparing)
	return !ok || s.worthEvaluating()
}

// explainer is a Stepper that can say why its ELBO is infinite; "" means unknown.
type explainer interface{ explain() string }

// begin gives a run that has not begun its randomness: the Sampler and the evaluations have
// seeds of their own, so that neither changes what the steps draw.
func (r *Result) begin(src rand.Source) {
	if r.begun {
		return
	}
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	for i := range r.seeds {
		r.seeds[i] = src.Uint64()
	}
	r.begun = true
	r.use(src)
	r.Iteration = Iteration{Step: Step{Beta: math.NaN(), GradMap: math.NaN()},
		Evaluation: notEvaluated()}
}

// use makes src, and the seeds, the randomness of the run.
func (r *Result) use(src rand.Source) {
	r.src, r.env = src, NewEnv(src, 1)
	r.evalPCG = rand.NewPCG(r.seeds[2], r.seeds[3])
	r.eval = NewEnv(r.evalPCG, 1)
}

// rewinder is a source of randomness that can be put back to where it was.
type rewinder interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// marked keeps where the source of randomness is, before a step that may be canceled.
func (r *Result) marked() {
	r.mark = r.mark[:0]
	if src, ok := r.src.(rewinder); ok {
		if b, err := src.AppendBinary(r.mark); err == nil {
			r.mark = b
		}
	}
}

// rewind puts the source back to there.
func (r *Result) rewind() {
	if src, ok := r.src.(rewinder); ok && len(r.mark) > 0 {
		src.UnmarshalBinary(r.mark)
	}
}

// lend returns the Env of the steps, with so many workers.
func (r *Result) lend(workers int) *Env {
	r.env.workers, r.eval.workers = workers, workers
	return r.env
}

// evaluateLast evaluates the last step of a run that ends with err, if it was not evaluated or if
// there was none. It returns err, or why that failed.
func (s *Solver) evaluateLast(ctx context.Context, r *Result, err error) error {
	if !math.IsNaN(r.ELBO) {
		return err
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	e := s.force(last, r)
	switch {
	case e == nil || err != nil:
		return err
	case last.Err() != nil:
		r.Status = Canceled
		return canceledAfter(ctx, r)
	}
	r.Status = Failed
	return e
}

// force evaluates the state only because the run ends.
func (s *Solver) force(ctx context.Context, r *Result) error {
	if err := r.remember(ctx); err != nil {
		return err
	}
	err := s.evaluate(ctx, r)
	r.forced = err == nil
	return err
}

// evaluate evaluates the state. Every evaluation of a run has the same draws, so that
// their differences are those of the states.
func (s *Solver) evaluate(ctx context.Context, r *Result) error {
	r.evalPCG.Seed(r.seeds[2], r.seeds[3])
	r.eval.goal = s.Goal
	var ev Evaluation
	err := s.guard(func() (err error) {
		ev, err = r.Stepper.Evaluate(ctx, r.eval)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgsvi: ELBO at iteration %d: %w", r.K, sentinel.Bare(err))
	}
	ev.Goal = s.goal(&ev, r.Stepper.Len())
	if n := len(r.Trace); n >= 2 && !ev.Random && !ev.whole && ev.Gap != 0 && !math.IsNaN(ev.Gap) {
		// What the last two changes of the ELBO, taken as a geometric series, add up to.
		now, before := ev.ELBO-r.Trace[n-1].ELBO, r.Trace[n-1].ELBO-r.Trace[n-2].ELBO
		if now/before > 0 {
			ev.Gap = math.Max(ev.Gap, seriesLeft(now, before))
		}
	}
	if g, ok := r.Stepper.(gapEstimator); ok {
		now := r.Iteration
		now.Evaluation = ev
		ev.Gap = g.gap(now, r.Trace)
	}
	ev.settle()
	r.Evaluation = ev
	it := r.Iteration
	it.State = nil
	r.Trace = append(r.Trace, it)
	return nil
}

// gapEstimator is a Stepper that estimates the gap from the evaluations of the run.
type gapEstimator interface {
	// gap returns the gap at now, given the iterations that were evaluated before. It returns 0 if
	// these are too few.
	gap(now Iteration, before []Iteration) float64
}

// seriesLeft returns the sum of all later changes of the ELBO if they continue the geometric series
// of the last two, which have the same sign.
func seriesLeft(now, before float64) float64 {
	rate := now / before
	if !(rate < 1) {
		rate = fallenRate
	}
	return now * rate / (1 - rate)
}

// fallenRate is the rate at which changes of the ELBO that do not fall yet are taken to fall from
// there on: what is left is several times the last of them.
const fallenRate = 0.9

// goal returns the gap at which the run of a Stepper with n terms may end.
func (s *Solver) goal(ev *Evaluation, n int) float64 {
	bound := ev.ELBOErr
	if ev.Random {
		bound = 0
	}
	goal := goals.With(s.Goal, n, ev.ELBO, bound)
	if s.Goal == 0 {
		goal = max(goal, ev.Goal)
	}
	return goal
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
		p.Sampler = reshuffle{}
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
		p.EvalEvery, p.evalAll = s.EvalEvery, false
	}
	return p
}

// Steps returns an iterator over the steps of the run res, for example of Start. The caller stops
// by leaving the loop; res is then the run so far. The iterator ends at MaxPasses or MaxIter,
// when ctx is canceled, when the Sampler has no further batch, and after an iteration with an
// error. It does not use Converger and Recorder, which belong to Run.
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
		if err := res.forget(); err != nil {
			yield(res.Iteration, err)
			return
		}
		plan := s.options(st)
		atEnd := func() bool {
			return res.Passes >= plan.MaxPasses-passSlack || s.MaxIter > 0 && res.K >= s.MaxIter
		}
		env := res.lend(s.Workers)
		start := time.Now().Add(-res.Elapsed)
		// shown evaluates the last step where it is time to, and yields it.
		shown := func(due bool) (more bool) {
			last := atEnd()
			var err error
			switch {
			case due:
				err = s.evaluate(ctx, res)
			case last:
				err = s.force(ctx, res)
			}
			res.owed, res.due = err != nil && ctx.Err() != nil, due
			if res.owed {
				return false
			}
			res.Elapsed = time.Since(start)
			return yield(res.Iteration, err) && err == nil && !last
		}
		if res.owed && !shown(res.due) || atEnd() {
			return
		}
		drawn := 0
		rng := rand.New(rand.NewPCG(res.seeds[0], res.seeds[1]))
		for batch := range plan.Sampler.Batches(n, plan.Batch, rng) {
			if drawn++; drawn <= res.batches {
				continue // taken before the run was resumed
			}
			if ctx.Err() != nil {
				return
			}
			passes := res.visited / n
			took, err := s.iterate(ctx, env, res, batch)
			if err != nil {
				yield(res.Iteration, err)
			}
			if !took {
				return
			}
			res.batches = drawn
			due := plan.EvalEvery > 0 && res.K%plan.EvalEvery == 0 ||
				plan.EvalEvery == 0 && res.visited/n > passes && worthEvaluating(st) ||
				plan.EvalEvery < 0 && plan.evalAll && len(batch) >= n
			if !shown(due) {
				return
			}
		}
	}
}

// iterate takes one step by the terms of batch, and reports whether it did. Where ctx is canceled
// under way res is as before, and there is no error.
func (s *Solver) iterate(ctx context.Context, env *Env, res *Result, batch []int) (bool, error) {
	st := res.Stepper
	if err := checkBatch(batch, st.Len()); err != nil {
		return false, err
	}
	schedule := s.StepSize
	if schedule == nil {
		schedule = autoStep{}
	}
	beta := schedule.StepSize(res.K)
	if !(beta > 0) {
		return false, fmt.Errorf("pgsvi: step size %v at iteration %d must be positive: %w", beta,
			res.K, ErrParam)
	}
	if ctx.Done() != nil {
		res.marked()
	}
	var step Step
	err := s.guard(func() (err error) {
		step, err = st.Step(ctx, env, batch, beta)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			res.rewind()
			return false, nil
		}
		return false, fmt.Errorf("pgsvi: iteration %d, beta %.3g: %w", res.K+1, beta,
			sentinel.Bare(err))
	}
	orNaN(&step.Beta, &step.GradMap)
	res.visited += len(batch) + step.more
	res.K++
	res.Passes = float64(res.visited) / float64(st.Len())
	res.Step, res.Evaluation, res.State = step, notEvaluated(), st
	return true, nil
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
	if math.IsNaN(s.Goal) || s.Goal < 0 {
		bad("Solver.Goal is %v; it must not be negative", s.Goal)
	}
	if s.MaxIter < 0 {
		bad("Solver.MaxIter is %d; it must not be negative", s.MaxIter)
	}
	if s.Workers < 0 {
		bad("Solver.Workers is %d; it must not be negative", s.Workers)
	}
	errs = append(errs, validateOption(s.StepSize, s.Sampler, s.Converger, s.Checkpoint))
	return errors.Join(errs...)
}
