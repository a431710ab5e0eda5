package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

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

// Converger decides when a run ends. A Converger holds the history of one run
// and must not be shared between runs that overlap.
type Converger interface {
	// Init prepares for a new run.
	Init()
	// Converged is called after every iteration and returns NotTerminated to go on.
	Converged(it Iteration) Status
}

// Recorder is shown every iteration of a run, from the first step on; the state
// before it is that of Model.NewStepper. What a Recorder learns from
// Iteration.Stepper it must copy, and an error that it meets it must keep until
// the run is over.
type Recorder interface{ Record(it Iteration) }

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
