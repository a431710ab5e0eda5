package pgsvi

import (
	"context"
	"encoding"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
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

// Snapshotter is a Stepper whose whole state can be written and put back, to the
// bit, into a new Stepper of the same model or into one that has gone on. All Steppers of this package
// are. See Result.Save.
type Snapshotter interface {
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
	// EvalEvery is the number of steps between evaluations: 0 means once a pass, negative
	// only at the end, but for an LDA, which is evaluated after each step of all terms, too. With a Solver.Converger, which lives on evaluations, negative means 0.
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
	// Gap estimates how many nats the ELBO is below its maximum, from this λ alone. The Steppers
	// of this package report the decrease that the model of the objective (f
	// linearised, h exact) still promises, ½δᵀFδ to second order, δ the distance to its minimiser in
	// natural parameters and F the Fisher information, which bounds the true gap
	// to second order where f is convex in the mean parameters. In an Iteration it is at
	// least what the last two changes of the ELBO, taken as a geometric series, add up to.
	Gap float64
	// GapBound is a proved bound: no q of the family that Scope names has an ELBO of more nats than ELBO + GapBound, at this
	// prior, these hyper-parameters and inducing points. It is the best of the run so far, counts ELBOErr and rounding,
	// and is +Inf where nothing is proved, yet or at all as it would cost too much. It bounds what optimisation has left, not the distance to the evidence.
	// GPs and GLMs have one if the likelihood is log-concave (Facts.LogConcave). An Objective of Conjugate terms has one of each state, OverBlock.
	GapBound float64
	// Scope says over which q the GapBound holds.
	Scope Scope
	// Goal is the gap at which the run ends, in nats. A Stepper leaves it at 0, or says below which gap it is
	// not worth going on; in an Iteration it is the Solver.Goal, or what a zero one means.
	Goal float64
}

// Scope is the family of q over which a gap is proved.
type Scope int

const (
	Unproved         Scope = iota // there is no proof
	OverQ                         // every q of the family that is fitted
	OverQAndScale                 // the same at any scale of the prior within an interval, too
	OverLargerFamily              // q with any covariance: the bound includes what the family of the fit loses
	OverBlock                     // any one factor of q, the others held: all of them together may gain more
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

// neverZero returns x, or for 0 the least number above it: a zero of a Step or an Evaluation
// would mean that it is not known.
func neverZero(x float64) float64 {
	if x == 0 {
		return math.SmallestNonzeroFloat64
	}
	return x
}

// boundOf returns a computed bound as one of an Evaluation: never 0, which would mean that there is
// none, not below 0, as rounding may have it, and +Inf where the computation says nothing.
func boundOf(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return neverZero(max(x, 0))
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
	NotTerminated  Status = iota // still running
	Converged                    // the Converger was satisfied: what is left to gain is at most its goal by the estimate, and GapBound says how well that is proved
	Stalled                      // rounding allows no further progress, and it is not known whether that is the optimum: the Gap says how far from the optimum, and ELBOErr how well the ELBO is known
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

// Result is what a run reached, complete even where Run returns an error, and all that
// is needed to go on with it: see Solver.Resume. A Result with nothing but a Stepper is
// a run about to begin. Printed, it is a line that says how the run ended.
type Result struct {
	Status    Status
	Iteration             // the last one, always evaluated unless that failed or was canceled
	Trace     []Iteration // those that were evaluated, without their State
	Stepper   Stepper     // the state reached

	begun   bool
	src     rand.Source
	env     *Env      // of the steps, whose generator is src
	eval    *Env      // of the evaluations
	evalPCG *rand.PCG // its source, seeded anew for each
	seeds   [4]uint64 // two of the Sampler and two of the evaluations
	batches int       // drawn so far
	visited int       // terms visited so far
	forced  bool      // the last evaluation was not due but made because the run ended
	before  []byte    // the Stepper before an evaluation that was not due, if that may have changed it
	owed    bool      // the evaluation of the last step was canceled,
	due     bool      // which was due
	mark    []byte    // scratch of rewind
}

// String says in a line how the run ended and what its q is worth.
func (r *Result) String() string {
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

// Sampler draws mini-batches.
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
