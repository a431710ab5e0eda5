// Package goals computes the default tolerance of a fit: the gap in nats at which a run ends.
package goals

import (
	"math"
)

// The goal of a Solver that has none: in nats, in nats a term, and relative to the ELBO, for
// rounding. An ELBO of which more than goalError is numerical error is not known, and its error no
// reason to end. Of one above 1e13 nats, 1e-13 of it is more than a nat, and may be more than its
// error: it is no goal (see UnknownNats).
const (
	leastGoal    = 1e-10
	goalTerm     = 1e-13
	goalRounding = 1e-13
	goalError    = 1e-4
)

// With is Of an ELBO that is known to within so much: no less than that, unless it is not known.
func With(asked float64, n int, elbo, bound float64) float64 {
	goal := Of(asked, n, elbo)
	if e := 2 * bound; asked == 0 && e <= goalError*(1+math.Abs(elbo)) {
		goal = max(goal, e)
	}
	return goal
}

// Of returns the gap that is asked for or, for 0, what n terms and this ELBO are worth.
func Of(asked float64, n int, elbo float64) float64 {
	if asked > 0 {
		return asked
	}
	return max(leastGoal, goalTerm*float64(n), min(goalRounding*math.Abs(elbo), UnknownNats))
}

// NeverZero returns x, or the smallest number above 0 for 0. A zero in a Step or an Evaluation
// would mean that the number is not known.
func NeverZero(x float64) float64 {
	if x == 0 {
		return math.SmallestNonzeroFloat64
	}
	return x
}

// Bound returns a computed bound as an Evaluation wants it. It is never 0, which would mean that
// there is none, and never below 0, which rounding may give. It is +Inf where the computation says
// nothing.
func Bound(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return NeverZero(max(x, 0))
}

// UnknownNats is the gap, in nats, beyond which a run that ends there for an ELBO that is known no
// better has not converged. It is also the most that an ELBO may be worth of a goal by its size
// alone.
const UnknownNats = 1
