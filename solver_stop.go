package pgsvi

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/exp/stats"
)

// DefaultConverger returns what a nil Solver.Converger means: stop when the
// estimated gap to the optimum is below 1e-10 nats, below what rounding lets
// one resolve, 1e-13 of the ELBO, or below the Evaluation.Goal of the Stepper, where it knows the gap; or, with
// status Stalled, when the ELBO has stayed the same to rounding over ten
// evaluations; and where the gap is not known when the relative change of the
// ELBO has a rolling median below 1e-7.
func DefaultConverger() Converger {
	return AnyOf(goalReached{}, &GapBelow{Nats: 1e-10, Relative: 1e-13}, &ELBOChange{Tol: 1e-7, unlessGap: true}, &stall{})
}

// stall stops when ten evaluations in a row leave the ELBO where it was.
type stall struct {
	last  float64
	times int
}

func (c *stall) Init() { c.last, c.times = math.NaN(), 0 }

func (c *stall) Converged(it Iteration) Status {
	if math.IsNaN(it.ELBO) {
		return NotTerminated
	}
	if it.ELBO == c.last || math.Abs(it.ELBO-c.last) <= 1e-14*math.Abs(it.ELBO) {
		c.times++
	} else {
		c.times = 0
	}
	c.last = it.ELBO
	if c.times < 10 {
		return NotTerminated
	}
	return Stalled
}

// GapBelow stops when Iteration.Gap, the estimated distance to the optimum, is
// at most max(Nats, Relative·|ELBO|). It never stops a Stepper that has no estimate.
type GapBelow struct {
	Nats, Relative float64
}

// Init implements Converger.
func (c *GapBelow) Init() {}

// Converged implements Converger.
func (c *GapBelow) Converged(it Iteration) Status {
	if it.Gap <= max(c.Nats, c.Relative*math.Abs(it.ELBO)) && !math.IsInf(it.ELBO, 0) {
		return Converged
	}
	return NotTerminated
}

// goalReached stops when the gap is at most the Stepper's own goal.
type goalReached struct{}

func (goalReached) Init() {}

func (goalReached) Converged(it Iteration) Status {
	if it.Gap <= it.Goal {
		return Converged
	}
	return NotTerminated
}

// ELBOChange stops when the median over the last Window evaluations of
//
//	|ELBO_j − ELBO_{j−1}| / max(1, |ELBO_j|)
//
// is below Tol. A median, unlike a mean, forgets the large first steps and
// tolerates a noisy evaluation (Kucukelbir et al., 2017, use the same rule).
// Zero fields mean Tol 1e-4 and Window 10.
type ELBOChange struct {
	Tol    float64
	Window int

	unlessGap bool // leave the decision to GapBelow where the gap is known
	last      float64
	changes   []float64
}

// Init implements Converger.
func (c *ELBOChange) Init() {
	c.last, c.changes = math.NaN(), c.changes[:0]
}

// Converged implements Converger.
func (c *ELBOChange) Converged(it Iteration) Status {
	if math.IsNaN(it.ELBO) || c.unlessGap && !math.IsNaN(it.Gap) {
		return NotTerminated
	}
	tol, window := c.Tol, c.Window
	if tol == 0 {
		tol = 1e-4
	}
	if window == 0 {
		window = 10
	}
	change := math.Abs(it.ELBO-c.last) / math.Max(1, math.Abs(it.ELBO))
	c.last = it.ELBO
	if math.IsNaN(change) {
		return NotTerminated
	}
	if len(c.changes) == window {
		copy(c.changes, c.changes[1:])
		c.changes = c.changes[:window-1]
	}
	c.changes = append(c.changes, change)
	if len(c.changes) < window {
		return NotTerminated
	}
	if stats.Median(c.changes) < tol {
		return Converged
	}
	return NotTerminated
}

// Validate returns an error wrapping ErrParam if a field is negative.
func (c *ELBOChange) Validate() error {
	if !(c.Tol >= 0) || c.Window < 0 {
		return fmt.Errorf("pgsvi: ELBOChange{Tol: %v, Window: %d} must not be negative: %w", c.Tol, c.Window, ErrParam)
	}
	return nil
}

// GradientMap stops when the norm of the gradient map, ‖λ_k − λ_{k+1}‖/β_k, is
// at most Tol. It is the measure in which the convergence rates of the method
// are stated (Khan et al., 2016, Propositions 1 to 3). It sees one step at a time, so it is
// for steps of the whole data set: the step of a mini-batch or block may be short
// far from the optimum. It never stops a Stepper that does not report the norm.
type GradientMap struct{ Tol float64 }

// Init implements Converger.
func (c *GradientMap) Init() {}

// Converged implements Converger.
func (c *GradientMap) Converged(it Iteration) Status {
	if it.GradMap <= c.Tol {
		return Converged
	}
	return NotTerminated
}

// Deadline stops with status TimeLimit after the duration d, counted from the
// start of the run. Unlike a deadline of the context it is not an error.
type Deadline time.Duration

// Init implements Converger.
func (d Deadline) Init() {}

// Converged implements Converger.
func (d Deadline) Converged(it Iteration) Status {
	if it.Elapsed >= time.Duration(d) {
		return TimeLimit
	}
	return NotTerminated
}

// Never does not stop: the run goes on to the limits of the Solver.
type Never struct{}

// Init implements Converger.
func (Never) Init() {}

// Converged implements Converger.
func (Never) Converged(Iteration) Status { return NotTerminated }

// AnyOf stops as soon as one of the given rules does.
func AnyOf(rules ...Converger) Converger { return anyOf(slices.Clone(rules)) }

type anyOf []Converger

func (a anyOf) Init() {
	for _, c := range a {
		c.Init()
	}
}

// Validate reports what every rule says of itself.
func (a anyOf) Validate() error {
	options := make([]any, len(a))
	for i, c := range a {
		options[i] = c
	}
	return validate(options...)
}

func (a anyOf) Converged(it Iteration) Status {
	status := NotTerminated
	for _, c := range a { // every rule sees every iteration
		if s := c.Converged(it); status == NotTerminated {
			status = s
		}
	}
	return status
}
