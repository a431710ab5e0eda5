// Package goals computes the default tolerance of a fit: the gap in nats at which a run ends.
package goals

import (
	"math"
)

// A Solver without a goal uses mostGoal nats for manyTerms terms or more. A mean is then
// within √(2·mostGoal) = 0.014 standard deviations of its optimum, which is far below what data
// tell. Fewer terms have more digits, because these cost little: the goal falls with the cube of
// their number, as the cost of a pass of a GP does, to leastGoal. It is never below goalRounding
// times the ELBO, because rounding hides smaller gaps. An ELBO above 1e13 nats may be known better
// than that product, so the product counts only up to UnknownNats. A numerical error of the ELBO
// raises the goal only up to goalError of the ELBO; with a larger error the ELBO is not known.
const (
	mostGoal     = 1e-4
	manyTerms    = 2000
	leastGoal    = 1e-10
	goalRounding = 1e-13
	goalError    = 1e-4
)

// fineTerm is the goal of Fine in nats per term.
const fineTerm = 1e-13

// With returns Of, raised to twice the error bound of the ELBO if the goal is the default and the
// ELBO is known.
func With(asked float64, n int, elbo, bound float64) float64 {
	goal := Of(asked, n, elbo)
	if e := 2 * bound; asked == 0 && e <= goalError*(1+math.Abs(elbo)) {
		goal = max(goal, e)
	}
	return goal
}

// Of returns the requested gap. If that is 0 it returns the default for n terms and this
// ELBO.
func Of(asked float64, n int, elbo float64) float64 {
	if asked > 0 {
		return asked
	}
	part := min(1, float64(n)/manyTerms)
	return max(mostGoal*part*part*part, rounding(elbo))
}

// Fine returns the gap at which n terms with this ELBO have all the digits of float64. Computations
// that start from a fit but need more digits than a summary prints use it.
func Fine(n int, elbo float64) float64 { return max(fineTerm*float64(n), rounding(elbo)) }

// rounding returns the gap that rounding hides.
func rounding(elbo float64) float64 {
	return max(leastGoal, min(goalRounding*math.Abs(elbo), UnknownNats))
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
