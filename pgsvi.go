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
	"slices"
	"time"

	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Solver runs the proximal-gradient iteration on a Model, with mini-batches, step sizes, early
// stopping, recording, cancellation and resuming. The zero value is ready to use and needs no
// tuning. A Solver may be reused, but it is not safe for concurrent use.
type Solver struct {
	// Divergence is D, the distance that keeps a step short. Nil means KL.
	Divergence Divergence
	// StepSize gives the step sizes β_k (learning rates). If it is nil, the Stepper chooses them.
	StepSize Schedule
	// BatchSize is the number of terms in a mini-batch. Zero means all N terms if StepSize is set.
	// Otherwise the Plan of the Stepper decides. A value above N means N.
	BatchSize int
	// Sampler draws the mini-batches. Nil means Reshuffle if StepSize is set. Otherwise the Plan of
	// the Stepper decides. Reshuffle visits every term once per pass in a new random order.
	Sampler Sampler
	// MaxPasses is the largest number of passes over the data (epochs). Zero means Plan.MaxPasses.
	MaxPasses float64
	// MaxIter is the largest number of steps. Zero means no limit.
	MaxIter int
	// EvalEvery is the number of steps between evaluations of the ELBO. Zero means Plan.EvalEvery.
	// If that is also zero, or if it is negative and Converger is set, each pass has one
	// evaluation. An Objective with noisy gradients then evaluates less often, so that evaluations
	// take at most a fifth of the work. A negative value means one evaluation at the end.
	EvalEvery int
	// Workers is the number of goroutines for set-up, steps and evaluations. The result has the
	// same bits for any value.
	//
	// Zero means GOMAXPROCS if the work is large enough. Then only code that is safe for concurrent
	// use runs concurrently: linear algebra, a Likelihood and its expectations, a Kernel, and the
	// documents of a topic model. Other functions of the caller, such as LogLik.LogProb, are called
	// one at a time. They are called concurrently if Workers is above 1.
	Workers int
	// Goal is the gap, in nats, at which the run ends (tolerance). The gap is proved if possible
	// (Evaluation.GapBound) and otherwise estimated.
	//
	// Zero means the Stepper's own goal, if it has one. Otherwise it means 1e-4 nats for N ≥ 2,000
	// terms and 1e-4·(N/2,000)³ nats for fewer, but at least 1e-10 nats and the accuracy of the
	// ELBO. For an Objective with exact gradients whose steps do not estimate the gap (with a
	// StepSize, or with another divergence than KL or another h than KLTo), it is also at least 1e-9
	// of the ELBO. For an Objective with noisy gradients (draws or mini-batches) and no StepSize, it
	// is 0.002 nats per dimension of z, or up to twice that if the standard error of the ELBO is
	// larger. Set Goal to 1e-10 to get means and an ELBO with most of the digits of a float64, which
	// usually takes one or two more passes with exact gradients. A Goal of 0.01 is enough for
	// predictions.
	//
	// At the end of the run, a mean is within about √(2·Goal) posterior standard deviations of its
	// optimum if the data determine it: 0.14 for a Goal of 0.01, and 0.014 for 1e-4. It can be
	// farther away if the posterior is skewed, because the covariance then moves with the mean. If
	// all labels are equal or all counts are 0, the distance is twice as large under a prior
	// standard deviation of 10, and six times as large under 100. If the likelihood is log-concave,
	// the mean is always within √(2·Goal) prior standard deviations, because the negative ELBO is
	// convex in the mean and a Cholesky factor of the covariance, and at least as curved as the
	// prior (Challis and Barber, 2013).
	Goal float64
	// Converger decides when to stop. Nil means DefaultConverger, which uses Goal.
	Converger Converger
	// Recover turns a panic in a function that a run calls (LogLik.LogProb, a Likelihood, a Kernel)
	// into an error. The error wraps ErrPanic and a *PanicError, and names the term if it is known.
	// The state λ_k is kept, as after any error. Without Recover the panic reaches the caller,
	// possibly on another goroutine.
	Recover bool
	// Record is called with every iteration, beginning with the first step. It must not change the
	// run, and must copy whatever it keeps of Iteration.State. Nil means that only Result.Trace is
	// recorded.
	Record func(it Iteration)
	// Checkpoint saves the run to a file at intervals. The zero value saves nothing.
	Checkpoint Checkpoint
	// Src is the source of all randomness of a run. Nil means a fixed seed, so two runs have the
	// same bits.
	Src rand.Source
}

// poster is a Model that computes a posterior from a state.
type poster[P any] interface {
	Model
	Posterior(st Stepper) (P, error)
}

// haltable is a Stepper whose posterior may take long to compute.
type haltable interface {
	// begin prepares the Stepper for computing the posterior, which then ends when ctx is done.
	begin(ctx context.Context, env *Env) *parallel.Halt
}

// fitModel implements every Fit method of the package. It runs s on m and computes the posterior of
// the last state, even after an error of a step. A nil s means the zero Solver. A canceled run has
// no posterior if computing it would take more than a moment.
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
		e = fmt.Errorf("pgsvi: canceled while computing the posterior of the run: %w",
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

// Run fits m from its initial state until the Converger is satisfied, a limit is reached, or ctx is
// canceled. Reaching a limit is a Status, not an error.
//
// It returns an error if options are invalid (all of them at once, wrapping ErrParam), if m has no
// Stepper for the options, if a step or an evaluation fails (with the iteration and β), if the ELBO
// becomes infinite or has no maximum (wrapping ErrDiverged), or if ctx is canceled (wrapping its cause). The result
// is not nil after a valid set-up. It holds the state reached even if the run ends with an error.
//
// A canceled step leaves the state and the randomness unchanged. A canceled run evaluates its last
// state only if that is quick, so its ELBO may be NaN.
func (s *Solver) Run(ctx context.Context, m Model) (*Result, error) {
	res, err := s.Start(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.Resume(ctx, res)
}

// Start returns the run of s on m before its first step, for Steps and Resume. It returns an error
// if an option is invalid or if the set-up of the model fails.
func (s *Solver) Start(ctx context.Context, m Model) (*Result, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: the Model is nil: %w", ErrParam)
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

// warner is a Model that checks its data and options; see Result.Warnings.
type warner interface {
	Model
	warnings() []string
}

// warningsOf returns the warnings of m, or nil if m is not a warner.
func warningsOf(m Model) []string {
	if w, ok := m.(warner); ok {
		return w.warnings()
	}
	return nil
}

// newStepper sets up m with the options of s.
func (s *Solver) newStepper(ctx context.Context, env *Env, m Model) (st Stepper, err error) {
	env.batch = s.BatchSize
	err = s.guard(func() (err error) {
		st, err = m.NewStepper(ctx, env, s.Divergence)
		return err
	})
	if errors.Is(err, ErrPanic) {
		err = fmt.Errorf("pgsvi: in the set-up: %w", sentinel.Bare(err))
	} else if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("pgsvi: canceled in the set-up: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// guard calls f. With Recover it returns a panic of f as an error.
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

// Resume continues a run with the options of s, and with the counters, randomness, mini-batches and
// Converger history of the run, as if it had not stopped. It changes from and returns it.
//
// Limits count from the beginning of the run. Resume ignores Divergence, because the Stepper
// already has one. It uses Src only if the run has not begun, that is, if from has only a Stepper.
// It returns the errors of Run, and an error that wraps ErrParam if from has no Stepper.
//
// Resume first undoes an evaluation that was made only because the run ended. If the Stepper found
// a better state in that evaluation, it keeps the better state.
func (s *Solver) Resume(ctx context.Context, from *Result) (*Result, error) {
	res := from
	if err := s.validate(); err != nil {
		return res, err
	}
	if res == nil || res.Stepper == nil {
		return res, fmt.Errorf("pgsvi: a Result without a Stepper cannot be resumed; load it with "+
			"Solver.LoadResult: %w", ErrParam)
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
	res.Warnings = slices.DeleteFunc(res.Warnings, func(w string) bool {
		return w == saddleWarning || w == jumpWarning || w == limitWarning
	})
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
		return res, s.lastGap(ctx, res)
	}
	file := checkpointWriter{Checkpoint: s.Checkpoint}
	file.start(res)
	var err, unsaved error
	for it, e := range s.Steps(ctx, res) {
		if err = e; err != nil {
			res.Status = Failed
			break
		}
		if s.Record != nil {
			s.Record(it)
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
	if err == nil {
		err = s.endGap(ctx, res)
	}
	if res.Status == Stalled && res.ELBOErr > res.Gap && !res.Random {
		res.Gap = res.ELBOErr // rounding hides what further steps would gain
		res.settle()
	}
	if unsaved == nil {
		if e := file.write(res); e != nil && err == nil {
			res.Status, err = Failed, e
		}
	}
	if what := res.diverged(); what != "" && err == nil {
		res.Status = Failed
		err = fmt.Errorf("pgsvi: the ELBO is %v after %d iterations: %s: %w", res.ELBO, res.K, what,
			ErrDiverged)
	}
	return res, err
}

// diverged returns the reason if the ELBO of a run that ended is infinite, or if it has no maximum.
// Otherwise it returns "".
func (r *Result) diverged() (what string) {
	e, ok := r.Stepper.(explainer)
	switch {
	case math.IsInf(r.ELBO, 0):
		if ok {
			what = e.explain()
		}
		return cmp.Or(what,
			"a log-likelihood is -Inf or overflows under every q that was reached")
	case ok && r.ELBO > endlessELBO && r.Status != Converged:
		return e.endless()
	}
	return ""
}

// endlessELBO is the ELBO, in nats, above which a run that has not converged looks for a likelihood
// that grows without limit.
const endlessELBO = 1e9

// LoadResult reads a run on m that Result.Save or a Checkpoint has written, so that Resume can
// continue it with the options of s. The file must be all of r. The model must have the data and
// options of the saved run, and s the same Divergence. A Src that is not nil must have the type of
// the saved source, and LoadResult sets it to the saved position.
//
// LoadResult returns errors of m, and wraps errors of r unchanged. The error wraps ErrFile if r is
// not such a file, is damaged, or was written by a newer release or for another model. It wraps
// ErrParam if an option is invalid, or if the Stepper or the source cannot be restored.
func (s *Solver) LoadResult(ctx context.Context, r io.Reader, m Model) (*Result, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("pgsvi: the Model is nil: %w", ErrParam)
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
			"pgsvi: a run of a %T cannot be loaded; give it MarshalBinary and UnmarshalBinary: %w",
			st, ErrParam)
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
		return nil, fmt.Errorf("pgsvi: Solver.Src is a %T without UnmarshalBinary; use a source "+
			"of math/rand/v2: %w", src, ErrParam)
	}
	if err := u.UnmarshalBinary(saved.src); err != nil && s.Src == nil {
		return nil, &fileError{runFile,
			fmt.Errorf("the source of randomness does not fit a nil Solver.Src: %w", err)}
	} else if err != nil {
		return nil, fmt.Errorf(
			"pgsvi: Solver.Src is a %T, but the saved run has another type of source: %w: %w", src,
			err, ErrParam)
	}
	res.use(src)
	return res, nil
}

func canceledAfter(ctx context.Context, r *Result) error {
	return fmt.Errorf("pgsvi: canceled after %d iterations: %w", r.K, context.Cause(ctx))
}

// sparing is a Stepper whose evaluations may be too costly. If EvalEvery is not set,
// worthEvaluating decides after each pass whether to evaluate.
type sparing interface{ worthEvaluating() bool }

func worthEvaluating(st Stepper) bool {
	s, ok := st.(sparing)
	return !ok || s.worthEvaluating()
}

// explainer is a Stepper whose explain returns the reason for an infinite ELBO, or "" if it is
// unknown. Its endless returns the reason why the ELBO has no maximum, or "" if it may have one.
type explainer interface {
	explain() string
	endless() string
}

// begin sets the randomness of a new run. The Sampler and the evaluations have their own seeds, so
// they do not change the draws of the steps.
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

// use sets the randomness of the run to src and the seeds.
func (r *Result) use(src rand.Source) {
	r.src, r.env = src, NewEnv(src, 1)
	r.evalPCG = rand.NewPCG(r.seeds[2], r.seeds[3])
	r.eval = NewEnv(r.evalPCG, 1)
}

// rewinder is a source of randomness whose position can be restored.
type rewinder interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// marked stores the position of the source of randomness before a step that may be canceled.
func (r *Result) marked() {
	r.mark = r.mark[:0]
	if src, ok := r.src.(rewinder); ok {
		if b, err := src.AppendBinary(r.mark); err == nil {
			r.mark = b
		}
	}
}

// rewind restores the position that marked stored.
func (r *Result) rewind() {
	if src, ok := r.src.(rewinder); ok && len(r.mark) > 0 {
		src.UnmarshalBinary(r.mark)
	}
}

// lend returns the Env of the steps with the given number of workers.
func (r *Result) lend(workers int) *Env {
	r.env.workers, r.eval.workers = workers, workers
	return r.env
}

// evaluateLast evaluates the last state of a run that ends with err, unless it is evaluated
// already. It returns err, or the error of the evaluation.
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

// force evaluates the state although that is not due, because the run ends.
func (s *Solver) force(ctx context.Context, r *Result) error {
	if err := r.remember(ctx); err != nil {
		return err
	}
	err := s.evaluate(ctx, r)
	r.forced = err == nil
	return err
}

// evaluate evaluates the state. All evaluations of a run use the same draws, so they differ only in
// the states.
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
		// The sum of a geometric series through the last two changes of the ELBO.
		now, before := ev.ELBO-r.Trace[n-1].ELBO, r.Trace[n-1].ELBO-r.Trace[n-2].ELBO
		if now/before > 0 {
			ev.Gap = math.Max(ev.Gap, seriesLeft(now, before))
		}
	}
	r.Evaluation = ev
	if err := s.estimateGap(ctx, r, r.Trace, false); err != nil {
		r.Evaluation = notEvaluated()
		return err
	}
	r.settle()
	it := r.Iteration
	it.State = nil
	r.Trace = append(r.Trace, it)
	return nil
}

// estimateGap lets the Stepper estimate the gap of the last iteration, given the earlier evaluated
// iterations, if it is a gapEstimator.
func (s *Solver) estimateGap(ctx context.Context, r *Result, before []Iteration, last bool) error {
	g, ok := r.Stepper.(gapEstimator)
	if !ok {
		return nil
	}
	err := s.guard(func() error { return g.gap(ctx, r.eval, &r.Iteration, before, last) })
	if err != nil {
		return fmt.Errorf("pgsvi: gap at iteration %d: %w", r.K, sentinel.Bare(err))
	}
	return nil
}

// lastGap estimates the gap of the last state of a run, which may take more work than the gap of
// an earlier state. It also warns of a saddle and of a jump.
func (s *Solver) lastGap(ctx context.Context, r *Result) error {
	n := len(r.Trace)
	if n == 0 || r.Trace[n-1].K != r.K || math.IsNaN(r.ELBO) || math.IsInf(r.ELBO, 0) {
		return nil
	}
	if !r.predicted {
		cheap := r.Evaluation
		err := s.estimateGap(ctx, r, r.Trace[:n-1], true)
		if err != nil || !r.predicted {
			r.Evaluation = cheap
			r.warnOfEnd()
			return err
		}
		r.settle()
		r.cheaply, r.Trace[n-1].Evaluation = &cheap, r.Evaluation
	}
	r.warnOfEnd()
	return nil
}

// warnOfEnd adds a warning if the run ended at a saddle, or where every step makes the ELBO jump
// down.
func (r *Result) warnOfEnd() {
	stalled := r.whole && r.Status == Stalled
	switch least := max(r.Goal, roundingBound); {
	case (r.predicted || stalled) && math.IsInf(r.Gap, 1) && r.cheap <= least:
		r.Warnings = append(slices.Clone(r.Warnings), saddleWarning)
	case stalled && r.cheap > least:
		r.Warnings = append(slices.Clone(r.Warnings), jumpWarning)
	}
}

// endGap is lastGap at the end of a run. A run without a Converger has not Converged if the gap
// turns out to be above its goal.
func (s *Solver) endGap(ctx context.Context, r *Result) error {
	last, stop := shortlyAfter(ctx)
	defer stop()
	if err := s.lastGap(last, r); err != nil {
		if last.Err() != nil {
			return nil // the cheap estimate stays
		}
		r.Status = Failed
		return err
	}
	if r.Status == Converged && s.Converger == nil && r.predicted && r.Scope != OverQ &&
		r.Gap > max(r.Goal, roundingBound) {
		r.Status = Stalled
	}
	if r.Status == PassLimit && math.IsInf(r.Gap, 1) && s.MaxPasses == 0 && s.StepSize == nil &&
		!isKL(s.Divergence) {
		r.Warnings = append(slices.Clone(r.Warnings), limitWarning)
	}
	return nil
}

// limitWarning is the warning of a run without limits and step sizes that neither converges nor
// estimates its gap, because of its divergence. An example is Adam with h = 0 and draws over all
// terms.
const limitWarning = "the run ended at its limit of passes, and its distance from the maximum of the " +
	"ELBO is unknown; use a nil Solver.Divergence (KL), and in an Objective H: KLTo(prior), which " +
	"needs fewer passes, or raise Solver.MaxPasses"

// jumpWarning is the warning of an LDA whose every step lowers the ELBO, however short. The topic
// proportions of a document may have several optima given the topics, for example with and without a
// topic that few words belong to. The E-step begins at equal proportions, so a small change of the
// topics can lead it to a worse optimum. The ELBO then jumps down.
const jumpWarning = "no step raises the ELBO, because the topic proportions of a document jump to " +
	"another optimum; the topics are usable, but use another Solver.Src or LDAOptions.Start to " +
	"reach a maximum"

// saddleWarning is the warning of a run whose steps are tiny although the ELBO curves upward.
const saddleWarning = "the state is a saddle point of the ELBO, so Gap is +Inf: no step makes equal " +
	"parts of q different; start them apart (Objective.Init, Solver.Src), or add noise to the start"

// gapEstimator is a Stepper that estimates the gap from the evaluations of the run.
type gapEstimator interface {
	// gap sets Gap at now, given the earlier evaluated iterations. It sets 0 if these are too few.
	// The flag last reports that the run ends, so that the best estimate is worth its work.
	gap(ctx context.Context, env *Env, now *Iteration, before []Iteration, last bool) error
}

// seriesLeft returns the sum of all later changes of the ELBO if they continue the geometric series
// of the last two changes, which have the same sign.
func seriesLeft(now, before float64) float64 {
	rate := now / before
	if !(rate < 1) {
		rate = fallenRate
	}
	return now * rate / (1 - rate)
}

// fallenRate is the rate at which changes of the ELBO are assumed to fall if they do not fall yet.
// The remaining gain is then several times the last change.
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
		if ev.most > 0 {
			goal = min(goal, ev.most)
		}
	}
	return goal
}

// passSlack absorbs the rounding of Passes, a sum of fractions.
const passSlack = 1e-9

// options returns the Plan of st, overridden by the options of s.
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

// Steps returns an iterator over the steps of the run res, for example a run from Start. The caller
// stops by leaving the loop, after which res is the run so far. The iterator ends at MaxPasses or
// MaxIter, when ctx is canceled, when the Sampler has no further batch, and after an iteration with
// an error. It ignores Converger and Record, which only Run uses.
func (s *Solver) Steps(ctx context.Context, res *Result) iter.Seq2[Iteration, error] {
	return func(yield func(Iteration, error) bool) {
		if err := s.validate(); err != nil {
			yield(res.Iteration, err)
			return
		}
		st := res.Stepper
		n := st.Len()
		if n < 1 {
			yield(res.Iteration, fmt.Errorf("pgsvi: the Stepper has %d terms; it needs at least "+
				"one: %w", n, ErrEmpty))
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
		// shown evaluates the last step if due or at the end, and yields it.
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

// iterate takes one step on the terms of batch, and reports whether it did. If ctx is canceled
// during the step, res is unchanged and the error is nil.
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
		return false, fmt.Errorf("pgsvi: step size %v at iteration %d; it must be positive: %w",
			beta, res.K, ErrParam)
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

// validate returns an error that wraps ErrParam and lists every invalid option, except a
// Divergence, which is checked in the set-up.
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
