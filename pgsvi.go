package pgsvi

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Model says how to begin. A Model is immutable once handed to a Solver and
// may be shared between goroutines; every run gets a Stepper of its own.
//
// Objective, GP, GLM, CTM and any user type with this method are Models.
type Model interface {
	// NewStepper returns λ_0 together with the rule λ_k → λ_{k+1} under the
	// divergence d; nil means KL. A pair of convex term and divergence for
	// which no proximal step is known is an error here, wrapping ErrNoProx,
	// and not in the middle of a run. What is drawn to begin with comes from env.
	NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error)
}

// State is a λ_k to look at: what a Recorder is shown, and what the Posterior of
// a model reads. Nothing that can be asked of it changes the run.
type State interface {
	// Len returns N, the number of terms of f.
	Len() int
}

// Stepper holds λ_k and takes steps. It is not safe for concurrent use. A Solver
// asks it for nothing but these methods.
//
// A run can be saved (Result.Save, Solver.Checkpoint) if the Stepper is also an
// encoding.BinaryMarshaler and encoding.BinaryUnmarshaler: its whole state is written and put back,
// to the bit, into a new Stepper of the same model or into one that has gone on. All Steppers of
// this package are.
type Stepper interface {
	State
	// Plan says how a Solver without options runs it. It does not change during a run.
	Plan() Plan
	// Step replaces λ_k by
	//
	//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β
	//
	// with the gradient estimated from the terms in batch, scaled by N/len(batch).
	// A nil batch means all terms. beta = +Inf leaves the length of the step to
	// the Stepper, which must then need no tuning. On error λ_k is kept.
	// Step keeps neither batch nor env. Its result does not depend on env.Workers.
	Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error)
	// Evaluate says how good λ_k is. It may replace λ_k by a better one that it meets, such
	// as that before steps which made the ELBO fall, and then speaks of that one.
	// Given the same randomness in env it draws the same whenever it is called.
	Evaluate(ctx context.Context, env *Env) (Evaluation, error)
}

// snapshotter is a Stepper whose run can be saved.
type snapshotter interface {
	Stepper
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Plan is how a Stepper wants to be run where the Solver has no option set. The zero
// Plan is all terms in every batch, Reshuffle, 1000 passes and an evaluation a pass.
// Batch and Sampler are for steps whose length the Stepper chooses: with a
// Solver.StepSize they are not used.
type Plan struct {
	Batch     int     // terms in a mini-batch; 0 means all
	Sampler   Sampler // nil means Reshuffle
	MaxPasses float64 // 0 means 1000
	// EvalEvery is the number of steps between evaluations: 0 means once a pass, negative only at
	// the end, but for an LDA, which is evaluated after each step of all terms, too. With a
	// Solver.Converger, which lives on evaluations, negative means 0.
	EvalEvery int

	evalAll bool // evaluate after each step of all terms, too, where EvalEvery is negative
}

// Step says what a step did. A zero Beta or GradMap means that it is not known; in an
// Iteration it is then NaN. A step of length zero reports a GradMap just above 0.
type Step struct {
	// Beta is the step size taken: that asked for, or what was left of it where it led
	// too far, or the Stepper's own; +Inf where the divergence had no weight.
	Beta float64
	// GradMap is ‖λ_k − λ_{k+1}‖/β of this step alone, with β = 1 for a Beta of +Inf.
	GradMap float64
	// ClosedForm reports whether the minimiser was found in closed form.
	ClosedForm bool

	more int // terms that it visited beyond those of the batch
}

// Evaluation says how good a λ is. A zero ELBOErr, Gap or GapBound means that it is not
// known, and is NaN in an Iteration: a Stepper at its optimum reports how far
// rounding lets it see, never 0.
type Evaluation struct {
	// ELBO is the evidence lower bound, in nats.
	ELBO float64
	// ELBOErr is the standard error of ELBO where that is Random, and otherwise a
	// bound on the numerical error of its expectations.
	ELBOErr float64
	// Random reports that ELBO is a Monte Carlo estimate.
	Random bool
	// Gap estimates how many nats the ELBO is below its maximum, from this λ alone. The Steppers of
	// this package report the decrease that the model of the objective (f linearised, h exact)
	// still promises, ½δᵀFδ to second order, δ the distance to its minimiser in natural parameters
	// and F the Fisher information, which bounds the true gap to second order where f is convex in
	// the mean parameters. In an Iteration it is at least what the last two changes of the ELBO,
	// taken as a geometric series, add up to.
	Gap float64
	// GapBound is a proved bound: no q of the family that Scope names has an ELBO of more nats than
	// ELBO + GapBound, at this prior, these hyper-parameters and inducing points. It is the best of
	// the run so far, counts ELBOErr and rounding, and is +Inf where nothing is proved, yet or at
	// all as it would cost too much. It bounds what optimisation has left, not the distance to the
	// evidence. GPs and GLMs have one if the likelihood is log-concave (Facts.LogConcave). An
	// Objective of Conjugate terms has one of each state, OverBlock.
	GapBound float64
	// Scope says over which q the GapBound holds.
	Scope Scope
	// Goal is the gap at which the run ends, in nats. A Stepper leaves it at 0, or says below which
	// gap it is not worth going on; in an Iteration it is the Solver.Goal, or what a zero one
	// means.
	Goal float64
}

// Scope is the family of q over which a gap is proved.
type Scope int

const (
	Unproved      Scope = iota // there is no proof
	OverQ                      // every q of the family that is fitted
	OverQAndScale              // the same at any scale of the prior within an interval, too
	// q with any covariance: the bound includes what the family of the fit loses
	OverLargerFamily
	// any one factor of q, the others held: all of them together may gain more
	OverBlock
)

var scopeNames = [...]string{"unproved", "over q", "over q and scale", "over a larger family", "over a block"}

// String returns the name in words.
func (s Scope) String() string {
	if s < 0 || int(s) >= len(scopeNames) {
		return fmt.Sprintf("Scope(%d)", int(s))
	}
	return scopeNames[s]
}

// notEvaluated is the Evaluation of an Iteration that was not evaluated.
func notEvaluated() Evaluation {
	nan := math.NaN()
	return Evaluation{ELBO: nan, ELBOErr: nan, Gap: nan, GapBound: nan}
}

// Iteration describes one step of the loop and, where it was due, its evaluation.
type Iteration struct {
	K          int     // number of steps taken, from 1
	Passes     float64 // number of terms visited, divided by N
	Step               // what the step did
	Evaluation         // of the state reached; NaN where it was not evaluated
	// Elapsed is the time since the start of the run, without that of Model.NewStepper.
	Elapsed time.Duration
	// State is the λ reached, valid until the next step.
	State State
}

// Status says why a run ended.
type Status int

// The ways in which a run ends.
const (
	NotTerminated Status = iota // still running
	// the Converger was satisfied: what is left to gain is at most its goal by the estimate, and
	// GapBound says how well that is proved
	Converged
	// rounding allows no further progress, and it is not known whether that is the optimum: the Gap
	// says how far from the optimum, and ELBOErr how well the ELBO is known
	Stalled
	PassLimit      // MaxPasses was reached
	IterationLimit // MaxIter was reached
	TimeLimit      // a Deadline was reached
	Exhausted      // the Sampler had no further batch
	Canceled       // the context was canceled
	Failed         // a step or an evaluation returned an error
)

var statusNames = [...]string{"not terminated", "converged", "stalled", "pass limit", "iteration limit", "time limit", "sampler exhausted", "canceled", "failed"}

// String returns the status in words.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return statusNames[s]
}

// Result is what a run reached, complete even where Run returns an error, and all that
// is needed to go on with it: see Solver.Resume. A Result with nothing but a Stepper is
// a run about to begin. Printed, it is a line that says how the run ended, and the warnings, a line
// each.
type Result struct {
	Status    Status
	Iteration             // the last one, always evaluated unless that failed or was canceled
	Trace     []Iteration // those that were evaluated, without their State
	Stepper   Stepper     // the state reached
	// Warnings say what in the data or the options may make a posterior bad that is fitted well,
	// and how to mend it: responses far from 0 under a stationary kernel, and columns of very
	// different units without Autoscale. Those of Learned.Fit are Learned.Warnings.
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

// String says in a line how the run ended and what its q is worth.
func (r *Result) String() string {
	return strings.Join(append([]string{r.line()}, r.Warnings...), "\nwarning: ")
}

// line is String without the warnings.
func (r *Result) line() string {
	passes := "passes"
	if r.Passes == 1 {
		passes = "pass"
	}
	s := fmt.Sprintf("%v, %.4g %s, %v", r.Status, r.Passes, passes, r.Elapsed.Round(time.Millisecond))
	if r.K == 0 || math.IsNaN(r.ELBO) {
		return s
	}
	s += fmt.Sprintf(", ELBO %.10g", r.ELBO)
	if r.ELBOErr > 0 {
		s += fmt.Sprintf(" ± %.1g", r.ELBOErr)
	}
	switch {
	case r.GapBound < math.Inf(1):
		s += fmt.Sprintf(", proved to be within %.1g nats of its maximum %v", r.GapBound, r.Scope)
	case r.Gap >= 0:
		s += fmt.Sprintf(", by its own estimate within %.1g nats of its maximum", r.Gap)
	}
	return s
}

// Sampler draws mini-batches. A Sampler, Schedule or Converger of yours that can be out of range
// has a method Validate() error, too, which reports every violation at once, wrapping ErrParam; a
// run asks it before it begins.
type Sampler interface {
	// Batches returns a sequence of mini-batches of at most size terms out of
	// 0 … n−1. The sequence may be endless. A batch is valid until the next
	// one and must not be empty; where n or size is not positive there is none. All
	// its randomness comes from rng, which is its own: a run that is resumed draws the
	// sequence again.
	Batches(n, size int, rng *rand.Rand) iter.Seq[[]int]
}

// Schedule gives the step sizes β_0, β_1, …; each must be positive. A large β
// is a long step; β = +Inf asks the Stepper for its own, accepted step.
type Schedule interface{ StepSize(k int) float64 }

// Converger decides when a run ends.
type Converger interface {
	// Init is called at the start of a run, also of one that is resumed, which then shows it
	// the Trace so far.
	Init()
	// Converged returns NotTerminated to go on, or why the run ends.
	Converged(it Iteration) Status
}

// Recorder is shown every iteration of a run, from the first step on; the state
// before it is that of Model.NewStepper. What a Recorder learns from
// Iteration.State it must copy, and an error that it meets it must keep until
// the run is over. It cannot change the run.
type Recorder interface{ Record(it Iteration) }

// Stream is the posterior P of items R that arrive one at a time, in any number and each seen
// once, in memory that does not grow with their number. GLMStream is that of rows, and CTMStream
// that of documents; NewGLMStream, GLMPosterior.Stream and NewCTMStream make one. All randomness is
// from a fixed seed. The posterior is the same to the last bit however the items are handed over,
// whenever it is asked for, and if the stream was saved and loaded on the way.
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

// Len returns the number of items in the posterior: those added, but for any left out with an
// error, less those removed.
func (s *Stream[R, P]) Len() int { return s.engine.len() }

// Add adds an item, which it copies. The error names its number, counted from 0 in the order in
// which items were handed over, and wraps
//
//	ErrShape      if it does not have the columns of the stream, or a word outside its
//	              vocabulary, or columns or words that do not increase
//	ErrNotFinite  if a number is NaN or infinite
//	ErrLabel      if the response of a row is outside the support of the likelihood
//	ErrParam      if the weight of a row is negative, or a count of a document is not positive
//
// upon which the item is left out. Adding an item may complete a block, of which the stream then
// learns. An error of its step wraps ErrNotFinite or ErrNotPosDef and names the first row that had
// to be left out, or the documents, which are left out together.
func (s *Stream[R, P]) Add(item R) error { return prefixed(s.engine.add(context.Background(), item)) }

// AddAll adds items until there are no more. It returns the first error, that of ctx, of items or
// of Add; other items before it are in the posterior. A block of which the stream was learning when
// ctx was done is in the stream, and learnt of when that is next used: Len counts its items.
func (s *Stream[R, P]) AddAll(ctx context.Context, items iter.Seq2[R, error]) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if ctx.Err() == nil {
			err = s.engine.add(ctx, item)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("pgsvi: canceled after %d items of the stream: %w", s.engine.given(), context.Cause(ctx))
		}
		if err != nil {
			return prefixed(err)
		}
	}
	return nil
}

// RemoveAll takes rows out of the posterior that it has seen. What the rows
// contribute is taken from the posterior as it stands, all rows together: the
// inverse of adding them as one block. On error, that of ctx, of items, of a row as in Add, or one
// wrapping ErrNotPosDef because the posterior does not contain the rows, it is
// as it was, but for rows added before that now make up a block of their own.
//
// Documents cannot be removed: the error of a CTMStream wraps errors.ErrUnsupported.
func (s *Stream[R, P]) RemoveAll(ctx context.Context, items iter.Seq2[R, error]) error {
	return s.engine.removeAll(ctx, items)
}

// Posterior returns the posterior of all items so far; the stream goes on as if it had not
// been asked. The error is that of the step for the items since the last complete
// block; of a CTMStream it wraps ErrEmpty if no document had a word.
func (s *Stream[R, P]) Posterior() (P, error) {
	p, err := s.engine.posterior(context.Background())
	return p, prefixed(err)
}

// Save writes the stream, from which Load makes one that goes on to
// the same bits: a line that names the kind of file, JSON, and a checksum. The error is that of w,
// or wraps ErrParam if the name of a weight is not UTF-8, or if the likelihood is of a type that
// Register was not told of, or that encoding/json does not write and read.
func (s *Stream[R, P]) Save(w io.Writer) error { return s.engine.save(w) }

// streamLoader is a posterior whose streams can be read from a file.
type streamLoader[R, P any] interface {
	loadStream(r io.Reader) (*Stream[R, P], error)
}

func (*Stream[R, P]) load(r io.Reader) (*Stream[R, P], error) {
	var p P
	l, ok := any(p).(streamLoader[R, P])
	if !ok {
		return nil, fmt.Errorf("pgsvi: no stream has a posterior that is a %T: %w", p, ErrParam)
	}
	return l.loadStream(r)
}
