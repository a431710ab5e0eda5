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

// Model describes data and a prior, and makes the Stepper that fits them. GP, SparseGP, GLM, CTM,
// LDA, Mixture and Objective are Models, and any type with this method can be one. A Model must not
// change once a Solver has it. It is safe for concurrent use, because each run gets its own
// Stepper.
type Model interface {
	// NewStepper returns a Stepper with the initial state λ_0 and the update λ_k → λ_{k+1} under
	// the divergence d. A nil d means KL. Random initial values come from env. The error wraps
	// ErrNoProx if no proximal step is known for d and the convex term of the model.
	NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error)
}

// Stepper holds the state λ_k of a run and updates it. A Solver calls only the methods below. A
// Stepper is not safe for concurrent use.
//
// A run can be saved (Result.Save, Solver.Checkpoint) if the Stepper also implements
// encoding.BinaryMarshaler and encoding.BinaryUnmarshaler. UnmarshalBinary must restore the whole
// state bit for bit, both into a new Stepper of the same model and into a Stepper that has already
// made steps. All Steppers of this package implement both.
type Stepper interface {
	// Len returns N, the number of terms of f.
	Len() int
	// Plan returns defaults for Solver options that are not set. They must not change during a run.
	Plan() Plan
	// Step replaces λ_k by
	//
	//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β
	//
	// with the gradient estimated from the terms in batch, scaled by N/len(batch). A nil batch
	// means all terms. If beta is +Inf the Stepper chooses the step length itself, and must need no
	// tuning. On error λ_k is unchanged. Step keeps neither batch nor env, and its result does not
	// depend on env.Workers.
	Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error)
	// Evaluate returns the ELBO and the gap of λ_k. It may first replace λ_k by a better earlier
	// state, for example after steps that lowered the ELBO. The same randomness in env gives the
	// same draws in every call.
	Evaluate(ctx context.Context, env *Env) (Evaluation, error)
}

// snapshotter is a Stepper whose run can be saved.
type snapshotter interface {
	Stepper
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Plan holds a Stepper's defaults for Solver options that are not set. The zero Plan means all
// terms in every batch, Reshuffle, at most 1000 passes, and one evaluation per pass. Batch and
// Sampler apply only if the Stepper chooses the step length (a nil Solver.StepSize).
type Plan struct {
	Batch     int     // terms in a mini-batch; 0 means all
	Sampler   Sampler // nil means Reshuffle
	MaxPasses float64 // 0 means 1000
	// EvalEvery is the number of steps between evaluations. Zero means one evaluation per pass. A
	// negative value means one evaluation at the end, except that LDA and CTM also evaluate after
	// each step on all terms. If Solver.Converger is set, a negative value means zero, because a
	// Converger needs evaluations.
	EvalEvery int

	evalAll bool // with a negative EvalEvery, also evaluate after each step on all terms
}

// Step describes the effect of one step. A zero Beta or GradMap means that the number is unknown,
// and an Iteration then holds NaN. A step of length zero reports a small positive GradMap.
type Step struct {
	// Beta is the step size taken. It is the requested size, a smaller size if the requested one
	// went too far, or the Stepper's own choice. It is +Inf if the divergence had no weight.
	Beta float64
	// GradMap is ‖λ_k − λ_{k+1}‖/β of this step, with β = 1 if Beta is +Inf.
	GradMap float64
	// ClosedForm reports whether the minimizer was found in closed form.
	ClosedForm bool

	more int // terms that the step visited in addition to the batch
}

// Evaluation describes how good a state λ is. A Stepper leaves ELBOErr, Gap or GapBound zero if it
// is unknown. In an Iteration, and so in a Result, an unknown ELBOErr is NaN, and an unknown Gap or
// GapBound is +Inf, so that res.GapBound > tol also holds if nothing is known. If the state was not
// evaluated, ELBO and ELBOErr are NaN, and Gap and GapBound are +Inf. A Stepper at its optimum
// reports its rounding error as the gap, never 0.
type Evaluation struct {
	// ELBO is the evidence lower bound, in nats.
	ELBO float64
	// ELBOErr is the standard error of ELBO, in nats, if Random is true. Otherwise it bounds the
	// numerical error of the expectations in ELBO.
	ELBOErr float64
	// Random reports whether ELBO is a Monte Carlo estimate.
	Random bool
	// Gap estimates how many nats the ELBO is below its maximum. It is never NaN, and +Inf means
	// that no estimate exists. It proves nothing; see GapBound.
	//
	// The Steppers of this package compute Gap from λ alone. During a run, it is the decrease that
	// the local model of the objective (f linearized, h exact) still predicts, to second order
	// ½δᵀFδ, where δ is the distance to the minimizer of that model in natural parameters and F is
	// the Fisher information. It bounds the true gap to second order if f is convex in the mean
	// parameters, but is too small if parts of q depend on each other strongly. It is +Inf for
	// steps that have no such model, until the ELBO has almost stopped changing. A CTM estimates
	// the gap from changes of the ELBO alone, and an LDA from topics and documents together; see
	// CTM.Fit and LDA.Fit.
	//
	// The Gap of an Objective at the end of a run is the gain ½gᵀH⁻¹g that Newton's method predicts,
	// with the gradient g and the Hessian H of f + h. It holds for any h, D and step size. H is the
	// Riemannian Hessian of the Fisher information (Absil, Mahony and Sepulchre, Optimization
	// Algorithms on Matrix Manifolds, 2008, section 5.5), or the Hessian in the chart if q is not
	// an ExpFamily. Conjugate gradients need up to 12 products with H, each a difference of two
	// gradients. A gap above 0.01 nats is checked by Newton's step, and 4 products from a random
	// direction look for a direction in which the ELBO curves upward. If there is one, as at a
	// saddle, Gap is +Inf. It does not distinguish a local maximum from the best one. A run
	// computes it when the estimate above reaches the goal, and continues if it is larger. A gap
	// above 1 nat shows only that the fit is far from the optimum. These gradients do not count in
	// Iteration.Passes. If f or h has a kink at the end, Gap is estimated from the last changes of
	// the ELBO instead.
	//
	// If f is noisy, Newton's method would measure the noise. Without a StepSize and with KL and
	// KLTo, Gap is then the estimate of the noisy steps, and otherwise +Inf. Mini-batches of an f
	// that is deterministic over all terms are not noisy in this sense.
	//
	// Before the last evaluation, Gap is at least the limit of the geometric series through the last
	// two changes of the ELBO. In the Result of a run that Stalled, it is at least ELBOErr. It never
	// exceeds a GapBound, unless the Scope of the bound is OverBlock or OverQAtGroups.
	Gap float64
	// GapBound is a proved bound on the gap, in nats. No q of the family that Scope names has an
	// ELBO above ELBO + GapBound for this prior, these hyperparameters and these inducing inputs.
	//
	// It is the best bound of the run so far, and includes ELBOErr and rounding. It is +Inf, never
	// NaN, if nothing has been proved or if a proof would cost too much. It bounds the gain that
	// optimization can still make, not the distance to the log evidence. GPs and GLMs have a bound
	// if the likelihood is log-concave (Facts.LogConcave). A Mixture, and an Objective of Conjugate
	// terms over a q of one part, have a bound of Scope OverBlock; see Conjugate.
	GapBound float64
	// Scope is the set of q to which GapBound applies.
	Scope Scope
	// Goal is the gap, in nats, at which the run ends. A Stepper sets it if smaller gaps are not
	// worth the work, and otherwise leaves it 0. In an Iteration it is Solver.Goal or its default.
	Goal float64

	gapless bool // Gap is +Inf because there is no estimate, not because the state is far off
	whole   bool // Gap estimates the gain of all later steps, not only of the next local model
	// cheap is the estimate that decides when Newton's method is worth its work, or 0.
	cheap float64
	// most is the largest default Goal, unless it is 0.
	most      float64
	predicted bool // Gap is the estimate by Newton's method
}

// Scope is the set of distributions q to which a GapBound applies.
type Scope int

const (
	Unproved Scope = iota // nothing is proved
	OverQ                 // all q of the fitted family
	// OverQAndScale is all q of the fitted family, with any scale of the prior in an interval.
	OverQAndScale
	// OverLargerFamily is q with any covariance: the bound includes the loss due to the restricted
	// family of the fit.
	OverLargerFamily
	// OverBlock is one factor of q with the others fixed. All factors together may gain more.
	OverBlock
	// OverQAtGroups is all q of the fitted family at the present covariances of the effects of
	// GLMOptions.Groups. Learning these covariances may gain more, which Gap estimates.
	OverQAtGroups
)

var scopeNames = [...]string{"unproved", "over q", "over q and scale", "over a larger family",
	"over a block", "over q at these covariances of the groups"}

// String returns the scope in words, such as "over q".
func (s Scope) String() string {
	if s < 0 || int(s) >= len(scopeNames) {
		return fmt.Sprintf("Scope(%d)", int(s))
	}
	return scopeNames[s]
}

// notEvaluated returns the Evaluation of an Iteration that was not evaluated.
func notEvaluated() Evaluation {
	e := Evaluation{ELBO: math.NaN()}
	e.settle()
	return e
}

// settle replaces the zeros of a Stepper by the values that an Iteration holds: NaN for an unknown
// ELBOErr and +Inf for an unknown Gap or GapBound. It also lowers Gap to GapBound.
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

// orNaN replaces zeros by NaN, because a Stepper leaves unknown numbers zero.
func orNaN(numbers ...*float64) {
	for _, x := range numbers {
		if *x == 0 {
			*x = math.NaN()
		}
	}
}

// Iteration describes one step of a run and, if the state was evaluated, the evaluation.
type Iteration struct {
	K          int     // number of steps taken, from 1
	Passes     float64 // number of terms that steps have visited so far, divided by N
	Step               // the last step
	Evaluation         // the state reached; ELBO is NaN if it was not evaluated
	// Elapsed is the time since the start of the run, excluding Model.NewStepper.
	Elapsed time.Duration
	// State is the Stepper at the λ reached, for the Posterior method of the model. It is valid until
	// the next step. Solver.Record must not call its Step or Evaluate.
	State Stepper
}

// Status is the reason why a run ended.
type Status int

// The reasons why a run ends.
const (
	NotTerminated Status = iota // still running
	// Converged means that the Converger estimates the remaining gap to be at most the goal. Only
	// GapBound is proved.
	Converged
	// Stalled means that the ELBO stopped changing before the run reached its goal, because of
	// rounding or at a saddle. Gap estimates the distance from the optimum, and is +Inf at a saddle.
	// ELBOErr is the accuracy of the ELBO.
	Stalled
	PassLimit      // MaxPasses was reached
	IterationLimit // MaxIter was reached
	TimeLimit      // a Deadline was reached
	Exhausted      // the Sampler ran out of batches
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
// complete even if Run returns an error. A Result with only a Stepper is a run that has not begun.
// Printing a Result shows one line with status, passes, time, ELBO and gap, followed by one line
// per warning.
type Result struct {
	Status    Status
	Iteration             // the last iteration; evaluated unless that failed or was canceled
	Trace     []Iteration // the evaluated iterations, without their State
	Stepper   Stepper     // the state reached
	// Warnings names properties of the data or options that may make the posterior bad although the
	// fit is good, each with a remedy. Examples are responses far from 0 under a stationary kernel,
	// and columns of very different units without Autoscale. A run that ends at a saddle adds one.
	// The warnings of Learned.Fit are in Learned.Warnings.
	Warnings []string

	begun   bool
	src     rand.Source
	env     *Env      // used by steps; its generator is src
	eval    *Env      // used by evaluations
	evalPCG *rand.PCG // source of eval, reset before each evaluation
	seeds   [4]uint64 // two for the Sampler and two for the evaluations
	batches int       // number of batches drawn
	visited int       // number of terms visited
	forced  bool      // the last evaluation was made only because the run ended
	// before is the Stepper before a forced evaluation, if that may have changed it.
	before []byte
	// cheaply is the last evaluation before its gap was estimated because the run ended, or nil.
	cheaply *Evaluation
	owed    bool   // the evaluation of the last step was canceled
	due     bool   // the canceled evaluation was due
	mark    []byte // scratch of rewind
}

// String returns one line with status, passes, time, ELBO and gap, and then one line per warning.
func (r *Result) String() string {
	return strings.Join(append([]string{r.line()}, r.Warnings...), "\nwarning: ")
}

// line returns the first line of String.
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

// rough formats x to one significant digit, without an exponent from 0.0001 to 900,000.
func rough(x float64) string {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 1, 64), 64)
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Sampler draws mini-batches. A Sampler, Schedule or Converger may also have a method Validate()
// error, which a Solver calls before the run. It should report all invalid parameters at once, in
// an error that wraps ErrParam.
type Sampler interface {
	// Batches returns a sequence of mini-batches, which may be endless. Each batch holds at least
	// one and at most size of the terms 0 … n−1, and is valid until the next batch. The sequence is
	// empty if n or size is not positive. All randomness must come from rng, which nothing else
	// uses, because a resumed run draws the sequence again.
	Batches(n, size int, rng *rand.Rand) iter.Seq[[]int]
}

// everyRow is a Sampler for a Stepper that ignores the indices in a batch of all rows. It
// represents that batch by the first row.
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

// Schedule gives the step sizes β_0, β_1, …, which must be positive. A large β is a long step, and
// β = +Inf lets the Stepper choose the step length.
type Schedule interface{ StepSize(k int) float64 }

// Converger decides when a run ends, by convergence or by early stopping.
type Converger interface {
	// Init is called at the start of a run. When a run is resumed, its Trace so far is then passed
	// to Converged.
	Init()
	// Converged returns NotTerminated to continue, or the reason to end the run.
	Converged(it Iteration) Status
}

// Stream is a posterior P that is updated online with items R, which are rows of a GLM or documents
// of a CTM. It reads each item once and uses a fixed amount of memory. Make it with NewGLMStream,
// GLMPosterior.Stream or NewCTMStream. All randomness has a fixed seed. The posterior has the same
// bits however the items are grouped, whenever Posterior is called, and whether or not the stream
// was saved and loaded meanwhile.
//
// The zero Stream is not usable. A Stream is not safe for concurrent use.
type Stream[R, P any] struct {
	engine streamEngine[R, P]
}

// streamEngine is the model-specific part of a Stream. Its errors lack the prefix "pgsvi: ".
type streamEngine[R, P any] interface {
	// add copies r and learns from it, now or later. If ctx ends during learning, the error is its
	// cause, but r stays in the stream, which learns from it at the next use.
	add(ctx context.Context, r R) error
	// removeAll removes items from the posterior.
	removeAll(ctx context.Context, items iter.Seq2[R, error]) error
	// posterior does not change the stream.
	posterior(ctx context.Context) (P, error)
	// given returns the number of items handed over, and len the number in the posterior.
	given() int
	len() int
	// save writes everything on which present and future posteriors depend.
	save(w io.Writer) error
}

// Len returns the number of items in the posterior, excluding items that had an error or were
// removed.
func (s *Stream[R, P]) Len() int { return s.engine.len() }

// Add adds a copy of item. The error names the number of the item, counted from 0, and wraps
//
//	ErrShape      if it does not have the columns of the stream, or has a word outside the
//	              vocabulary, or columns or words that do not increase
//	ErrNotFinite  if a number is NaN or infinite
//	ErrLabel      if the response of a row is outside the support of the likelihood
//	ErrParam      if the weight of a row is negative, or a count of a document is not positive
//
// An item with an error is left out. If the item completes a block, the stream learns from the
// block. An error of that step wraps ErrNotFinite or ErrNotPosDef. It names the first row left out,
// or the documents of the block, which are all left out.
func (s *Stream[R, P]) Add(
	item R) error {
	return prefixed(s.engine.add(context.Background(), item))
}

// AddAll adds all items of the sequence. It stops at the first error of ctx, items or Add, and the
// items before the error are in the posterior. If ctx ends while the stream learns from a block,
// the block stays in the stream, Len counts it, and the stream learns from it at the next use.
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

// RemoveAll removes rows that were added earlier. It takes the contributions of all rows out of the
// current posterior in one step, the inverse of adding them as one block.
//
// It returns the error of ctx or items, or the error that Add would return for a row. The error
// wraps ErrNotPosDef if the posterior does not contain the rows. On error the posterior is
// unchanged, except that the rows added before this call form a complete block.
//
// Documents cannot be removed, so RemoveAll of a CTM returns an error that wraps
// errors.ErrUnsupported.
func (s *Stream[R, P]) RemoveAll(ctx context.Context, items iter.Seq2[R, error]) error {
	return s.engine.removeAll(ctx, items)
}

// Posterior returns the posterior of all items so far without changing the stream. The error comes
// from the step for the items after the last complete block. For a CTM it wraps ErrEmpty if
// no document had a word.
func (s *Stream[R, P]) Posterior() (P, error) {
	p, err := s.engine.posterior(context.Background())
	return p, prefixed(err)
}

// Save writes the stream, and Load restores it bit for bit. The file holds a line that names its
// type, JSON, and a checksum. Save returns any error of w. The error wraps ErrParam if the name of
// a weight is not UTF-8, if the type of the likelihood is not registered (Register), or if
// encoding/json cannot write it and read it back.
func (s *Stream[R, P]) Save(w io.Writer) error { return s.engine.save(w) }

// streamLoader is a posterior whose streams can be loaded.
type streamLoader[R, P any] interface {
	loadStream(r io.Reader) (*Stream[R, P], error)
}

func (*Stream[R, P]) load(r io.Reader) (*Stream[R, P], error) {
	var p P
	l, ok := any(p).(streamLoader[R, P])
	if !ok {
		return nil, fmt.Errorf("pgsvi: no stream has a posterior of type %T: %w", p, ErrParam)
	}
	return l.loadStream(r)
}
