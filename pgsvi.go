package pgsvi

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Model describes data and prior, and makes the Stepper that fits them. GP, SparseGP, GLM, CTM,
// LDA, Mixture and Objective are Models, and so is a type of yours with this method. A Model is
// immutable once a Solver has it, and safe for concurrent use: each run gets a Stepper of its
// own.
type Model interface {
	// NewStepper returns the initial state λ_0 and the update λ_k → λ_{k+1} under the divergence
	// d. A nil d means KL. The error wraps ErrNoProx if no proximal step is known for d with the
	// convex term of the model. Random initial values come from env.
	NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error)
}

// State is a view of the current λ_k, for a Recorder and for the Posterior of a model. Reading a
// State does not change the run.
type State interface {
	// Len returns N, the number of terms of f.
	Len() int
}

// Stepper holds the state λ_k of a run and updates it. A Solver uses no other method than these.
// It is not safe for concurrent use.
//
// A run can be saved (Result.Save, Solver.Checkpoint) if the Stepper also implements
// encoding.BinaryMarshaler and encoding.BinaryUnmarshaler. These must write and restore its whole
// state, to the bit, into a new Stepper of the same model or into one that has made steps. All
// Steppers of this package implement them.
type Stepper interface {
	State
	// Plan returns the defaults for Solver options that are not set. It is constant during a run.
	Plan() Plan
	// Step replaces λ_k by
	//
	//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β
	//
	// with the gradient estimated from the terms in batch, scaled by N/len(batch). A nil batch
	// means all terms. With beta = +Inf the Stepper chooses the step length itself; it must then
	// need no tuning. On error λ_k is unchanged. Step keeps neither batch nor env. Its result
	// does not depend on env.Workers.
	Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error)
	// Evaluate returns the ELBO and the gap of λ_k. It may replace λ_k by a better earlier state,
	// for example after steps that lowered the ELBO; the Evaluation is then of that state. The
	// same randomness in env gives the same draws at every call.
	Evaluate(ctx context.Context, env *Env) (Evaluation, error)
}

// snapshotter is a Stepper whose run can be saved.
type snapshotter interface {
	Stepper
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Plan holds a Stepper's defaults for Solver options that are not set. The zero Plan means all
// terms in every batch, Reshuffle, at most 1000 passes and one evaluation a pass. Batch and
// Sampler apply only if the Stepper chooses the step length (a nil Solver.StepSize).
type Plan struct {
	Batch     int     // terms in a mini-batch; 0 means all
	Sampler   Sampler // nil means Reshuffle
	MaxPasses float64 // 0 means 1000
	// EvalEvery is the number of steps between evaluations. 0 means once a pass. A negative value
	// means only at the end, except that an LDA or CTM is also evaluated after each step of all
	// terms. With a Solver.Converger a negative value means 0, as a Converger needs evaluations.
	EvalEvery int

	evalAll bool // evaluate after each step of all terms, too, where EvalEvery is negative
}

// Step describes what one step did. A zero Beta or GradMap means that it is unknown; in an
// Iteration it is then NaN. A step of length zero reports a small positive GradMap.
type Step struct {
	// Beta is the step size taken: the size asked for, a reduced one if that went too far, or the
	// Stepper's own. It is +Inf if the divergence had no weight.
	Beta float64
	// GradMap is ‖λ_k − λ_{k+1}‖/β of this step alone, with β = 1 for a Beta of +Inf.
	GradMap float64
	// ClosedForm reports whether the minimiser was found in closed form.
	ClosedForm bool

	more int // terms that it visited beyond those of the batch
}

// Evaluation describes how good a state λ is. A zero ELBOErr, Gap or GapBound of a Stepper means
// that it is unknown. In an Iteration, and so in a Result, an unknown ELBOErr is NaN, and an
// unknown Gap or GapBound is +Inf, so that res.GapBound > tol also holds if nothing is known. If
// the state was not evaluated, then ELBO and ELBOErr are NaN, and Gap and GapBound are +Inf. A
// Stepper at its optimum reports its rounding error as the gap, never 0.
type Evaluation struct {
	// ELBO is the evidence lower bound, in nats.
	ELBO float64
	// ELBOErr is the standard error of ELBO if Random is true. Otherwise it bounds the numerical
	// error of the expectations in ELBO.
	ELBOErr float64
	// Random reports whether ELBO is a Monte Carlo estimate.
	Random bool
	// Gap estimates how many nats the ELBO is below its maximum. It is an estimate, not a proof:
	// see GapBound.
	//
	// The Steppers of this package compute it from λ alone. It is the decrease that the local
	// model of the objective still promises (f linearised, h exact): ½δᵀFδ to second order, with
	// δ the distance to the minimiser of that model in natural parameters and F the Fisher
	// information. It bounds the true gap to second order if f is convex in the mean parameters.
	// In an Iteration it is at least the limit of the geometric series through the last two
	// changes of the ELBO. In the Result of a run that Stalled it is at least ELBOErr. It is never
	// above a GapBound, unless the Scope of that is OverBlock. A CTM estimates it from changes of
	// the ELBO alone, and an LDA from topics and documents together: see CTM.Fit and LDA.Fit. It is
	// never NaN: +Inf means that there is no estimate.
	Gap float64
	// GapBound is a proved bound on the gap, in nats: no q of the family named by Scope has an
	// ELBO above ELBO + GapBound, for this prior, these hyper-parameters and these inducing
	// inputs.
	//
	// It is the best bound of the run so far, and includes ELBOErr and rounding. It is +Inf, never
	// NaN, if nothing is proved, or not yet, or if a proof would cost too much. It bounds what
	// optimization can still gain, not the distance to the log evidence. GPs and GLMs have one if
	// the likelihood is log-concave (Facts.LogConcave). A Mixture, and an Objective of Conjugate
	// terms over a q of one part, have one of Scope OverBlock.
	GapBound float64
	// Scope is the set of q for which GapBound holds.
	Scope Scope
	// Goal is the gap in nats at which the run ends. A Stepper sets it if smaller gaps are not
	// worth the work, and otherwise leaves it at 0. In an Iteration it is the Solver.Goal, or its
	// default.
	Goal float64

	gapless bool // Gap is +Inf because there is no estimate, not because the state is far off
	whole   bool // Gap estimates the gain of all later steps, not only of a local model of one step
}

// Scope is the set of distributions q for which a GapBound holds.
type Scope int

const (
	Unproved Scope = iota // there is no proof
	OverQ                 // all q of the fitted family
	// all q of the fitted family, at any scale of the prior within an interval
	OverQAndScale
	// q with any covariance: the bound includes the loss by the restricted family of the fit
	OverLargerFamily
	// one factor of q with the others fixed; all factors together may gain more
	OverBlock
)

var scopeNames = [...]string{"unproved", "over q", "over q and scale", "over a larger family",
	"over a block"}

// String returns the scope in words.
func (s Scope) String() string {
	if s < 0 || int(s) >= len(scopeNames) {
		return fmt.Sprintf("Scope(%d)", int(s))
	}
	return scopeNames[s]
}

// notEvaluated is the Evaluation of an Iteration that was not evaluated.
func notEvaluated() Evaluation {
	e := Evaluation{ELBO: math.NaN()}
	e.settle()
	return e
}

// settle gives e the values that an Iteration holds: NaN for an unknown ELBOErr, +Inf for an
// unknown Gap or GapBound, and a Gap of at most what is proved.
func (e *Evaluation) settle() {
	orNaN(&e.ELBOErr)
	if e.Gap == 0 || math.IsNaN(e.Gap) {
		e.Gap, e.gapless = math.Inf(1), true
	}
	if e.GapBound == 0 || math.IsNaN(e.GapBound) {
		e.GapBound = math.Inf(1)
	}
	switch e.Scope {
	case OverQ, OverQAndScale, OverLargerFamily:
		if e.GapBound < e.Gap {
			e.Gap, e.gapless = e.GapBound, false
		}
	}
}

// orNaN replaces zeros by NaN, because a zero means that a Stepper left the number unknown.
func orNaN(numbers ...*float64) {
	for _, x := range numbers {
		if *x == 0 {
			*x = math.NaN()
		}
	}
}

// Iteration describes one step of a run and, if it was evaluated, its evaluation.
type Iteration struct {
	K          int     // number of steps taken, from 1
	Passes     float64 // number of terms visited, divided by N
	Step               // what the step did
	Evaluation         // of the state reached; its ELBO is NaN if it was not evaluated
	// Elapsed is the time since the start of the run, without that of Model.NewStepper.
	Elapsed time.Duration
	// State is the λ reached, valid until the next step.
	State State
}

// Status is the reason why a run ended.
type Status int

// The ways in which a run ends.
const (
	NotTerminated Status = iota // still running
	// Converged means that the Converger was satisfied: by its estimate, the remaining gap is at
	// most the goal. GapBound tells how much of that is proved.
	Converged
	// Stalled means that rounding stops the run before its goal. Gap says how far from the
	// optimum it may be, and ELBOErr how accurately the ELBO is known.
	Stalled
	PassLimit      // MaxPasses was reached
	IterationLimit // MaxIter was reached
	TimeLimit      // a Deadline was reached
	Exhausted      // the Sampler had no further batch
	Canceled       // the context was canceled
	Failed         // a step or an evaluation returned an error
)

var statusNames = [...]string{"not terminated", "converged", "stalled", "pass limit",
	"iteration limit", "time limit", "sampler exhausted", "canceled", "failed"}

// String returns the status in words.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return statusNames[s]
}

// Result is the outcome of a run, including the state needed to resume it (Solver.Resume). It is
// complete even if Run returns an error. A Result with nothing but a Stepper is a run about to
// begin. Print shows one line with the status, passes, time, ELBO and gap, and one line for each
// warning.
type Result struct {
	Status    Status
	Iteration             // the last one; evaluated unless that failed or was canceled
	Trace     []Iteration // the evaluated iterations, without their State
	Stepper   Stepper     // the state reached
	// Warnings name properties of the data or options that may make the posterior bad although
	// the fit is good, and say what to do: responses far from 0 under a stationary kernel, or
	// columns of very different units without Autoscale. The warnings of Learned.Fit are in
	// Learned.Warnings.
	Warnings []string

	begun   bool
	src     rand.Source
	env     *Env      // of the steps, whose generator is src
	eval    *Env      // of the evaluations
	evalPCG *rand.PCG // its source, seeded anew for each
	seeds   [4]uint64 // two of the Sampler and two of the evaluations
	batches int       // drawn so far
	visited int       // terms visited so far
	forced  bool      // the last evaluation was not due but made because the run ended
	// the Stepper before an evaluation that was not due, if that may have changed it
	before []byte
	owed   bool   // the evaluation of the last step was canceled,
	due    bool   // which was due
	mark   []byte // scratch of rewind
}

// String returns the status, passes, time, ELBO and gap in one line, then the warnings, a line
// each.
func (r *Result) String() string {
	return strings.Join(append([]string{r.line()}, r.Warnings...), "\nwarning: ")
}

// line is String without the warnings.
func (r *Result) line() string {
	passes := "passes"
	if r.Passes == 1 {
		passes = "pass"
	}
	s := fmt.Sprintf("%v, %.4g %s, %v", r.Status, r.Passes, passes,
		r.Elapsed.Round(time.Millisecond))
	if math.IsNaN(r.ELBO) || r.K == 0 && r.Status == NotTerminated { // nothing was evaluated
		return s
	}
	s += fmt.Sprintf(", ELBO %.10g", r.ELBO)
	if r.ELBOErr > 0 {
		s += " ± " + rough(r.ELBOErr)
	}
	switch {
	case r.GapBound < math.Inf(1):
		s += fmt.Sprintf(", proved to be within %s nats of its maximum %v",
			rough(r.GapBound), r.Scope)
	case r.Gap < math.Inf(1):
		s += fmt.Sprintf(", estimated to be within %s nats of its maximum", rough(r.Gap))
	}
	return s
}

// rough formats x to one digit, in full from 0.0001 to 900,000.
func rough(x float64) string {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 1, 64), 64)
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Sampler draws mini-batches. A Sampler, Schedule or Converger may also have a method Validate()
// error, called before a run begins. It should report all invalid parameters at once, in an error
// that wraps ErrParam.
type Sampler interface {
	// Batches returns a sequence of mini-batches, each of at most size of the terms 0 … n−1. The
	// sequence may be endless. A batch must not be empty and is valid until the next one. If n or
	// size is not positive the sequence is empty. All randomness must come from rng, which no one
	// else uses: a resumed run draws the sequence again.
	Batches(n, size int, rng *rand.Rand) iter.Seq[[]int]
}

// everyRow is a Sampler of all rows, for a Stepper that does not need to be told their numbers: the
// first stands for all.
type everyRow struct{}

// Batches implements Sampler.
func (everyRow) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	if size >= n {
		size = 1
	}
	batch := make([]int, max(0, size))
	for i := range batch {
		batch[i] = i
	}
	return func(yield func([]int) bool) {
		for n > 0 && size > 0 && yield(batch) {
		}
	}
}

// Schedule gives the step sizes β_0, β_1, …, all positive. A large β is a long step. β = +Inf
// lets the Stepper choose the step length.
type Schedule interface{ StepSize(k int) float64 }

// Converger decides when a run ends (convergence, early stopping).
type Converger interface {
	// Init is called at the start of a run. A resumed run then passes its Trace so far to
	// Converged.
	Init()
	// Converged returns NotTerminated to continue, or the reason to end.
	Converged(it Iteration) Status
}

// Recorder receives every iteration of a run, from the first step on. It cannot change the run.
// It must copy what it keeps of Iteration.State. It must keep its own errors until the run is
// over.
type Recorder interface{ Record(it Iteration) }

// Stream is a posterior P that is updated online with items R: rows (GLMStream) or documents
// (CTMStream). It sees each item once and uses a fixed amount of memory. NewGLMStream,
// GLMPosterior.Stream and NewCTMStream make one. All randomness has a fixed seed. The posterior
// is the same to the last bit however the items are grouped, whenever it is asked for, and if the
// stream was saved and loaded meanwhile.
//
// The zero Stream is not usable. A Stream is not safe for concurrent use.
type Stream[R, P any] struct {
	engine streamEngine[R, P]
}

// streamEngine is what a model brings to a Stream. Its errors do not have the name of the package.
type streamEngine[R, P any] interface {
	// add copies r, and learns from it at once or later. Where ctx is done while it learns the
	// error is the cause; r is in the stream, which learns of it when it is next used.
	add(ctx context.Context, r R) error
	// removeAll takes items out.
	removeAll(ctx context.Context, items iter.Seq2[R, error]) error
	// posterior leaves the stream as it is.
	posterior(ctx context.Context) (P, error)
	// given is the number of items handed over, and len the number in the posterior.
	given() int
	len() int
	// save writes all that the posterior depends on, now and later.
	save(w io.Writer) error
}

// Len returns the number of items in the posterior: those added, without those that had an error
// or were removed.
func (s *Stream[R, P]) Len() int { return s.engine.len() }

// Add adds a copy of an item. The error names the number of the item, counted from 0, and wraps
//
//	ErrShape      if it does not have the columns of the stream, or has a word outside the
//	              vocabulary, or columns or words that do not increase
//	ErrNotFinite  if a number is NaN or infinite
//	ErrLabel      if the response of a row is outside the support of the likelihood
//	ErrParam      if the weight of a row is negative, or a count of a document is not positive
//
// An item with an error is left out. If the item completes a block, the stream learns from the
// block. An error of that step wraps ErrNotFinite or ErrNotPosDef. It names the first row that
// was left out, or the documents of the block, which are left out together.
func (s *Stream[R, P]) Add(
	item R) error {
	return prefixed(s.engine.add(context.Background(), item))
}

// AddAll adds all items of the sequence. It stops at the first error: of ctx, of items, or of
// Add. Items before that one are in the posterior. If ctx ends while the stream learns from a
// block, the block stays in the stream, counted by Len, and is learnt at the next use.
func (s *Stream[R, P]) AddAll(ctx context.Context, items iter.Seq2[R, error]) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if ctx.Err() == nil {
			err = s.engine.add(ctx, item)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("pgsvi: canceled after %d items of the stream: %w", s.engine.given(),
				context.Cause(ctx))
		}
		if err != nil {
			return prefixed(err)
		}
	}
	return nil
}

// RemoveAll removes rows that the posterior has seen. It takes the contributions of all rows out
// of the current posterior in one step, the inverse of adding them as one block.
//
// The error is that of ctx, of items, or of a row as in Add. It wraps ErrNotPosDef if the
// posterior does not contain the rows. On error the posterior is unchanged, except that rows
// added before now form a block of their own.
//
// Documents cannot be removed: the error of a CTMStream wraps errors.ErrUnsupported.
func (s *Stream[R, P]) RemoveAll(ctx context.Context, items iter.Seq2[R, error]) error {
	return s.engine.removeAll(ctx, items)
}

// Posterior returns the posterior of all items so far, without changing the stream. The error is
// that of the step for the items since the last complete block. For a CTMStream it wraps ErrEmpty
// if no document had a word.
func (s *Stream[R, P]) Posterior() (P, error) {
	p, err := s.engine.posterior(context.Background())
	return p, prefixed(err)
}

// Save writes the stream; Load restores it to the same bits. The format is a line that names the
// kind of file, JSON, and a checksum. The error is that of w, or wraps ErrParam if the name of a
// weight is not UTF-8, if the likelihood's type is not registered (Register), or if encoding/json
// cannot write and read it.
func (s *Stream[R, P]) Save(w io.Writer) error { return s.engine.save(w) }

// streamLoader is a posterior whose streams can be read from a file.
type streamLoader[R, P any] interface {
	loadStream(r io.Reader) (*Stream[R, P], error)
}

func (*Stream[R, P]) load(r io.Reader) (*Stream[R, P], error) {
	var p P
	l, ok := any(p).(streamLoader[R, P])
	if !ok {
		return nil, fmt.Errorf("pgsvi: there is no stream whose posterior is a %T: %w", p, ErrParam)
	}
	return l.loadStream(r)
}
