// Package goals computes the default tolerance of a fit, which is the gap in nats at which a run
// ends. For n terms it is
//
//	goal = 1e-4 min(1, n/2000)³, but at least 1e-10 and 1e-13 |ELBO|.
//
// All engines and pgsvi.Solver call it, so that a fit has the same tolerance everywhere.
package goals

import (
	"math"
)

// If a Solver has no goal, the goal is mostGoal nats for manyTerms terms or more. Each mean is
// then within √(2·mostGoal) = 0.014 standard deviations of its optimum, which is far below its
// own uncertainty. Fewer terms get more digits because these cost little: the goal falls with the
// cube of the number of terms, like the cost of a pass of a GP, down to leastGoal.
//
// The goal is at least goalRounding times the ELBO because rounding hides smaller gaps. This
// product counts only up to UnknownNats, because an ELBO above 1e13 nats may be more accurate
// than the product. A numerical error of the ELBO raises the goal, but only up to goalError of
// the ELBO. If the error is larger, the ELBO is not known.
const (
	mostGoal     = 1e-4
	manyTerms    = 2000
	leastGoal    = 1e-10
	goalRounding = 1e-13
	goalError    = 1e-4
)

// fineTerm is the gap of Fine in nats per term.
const fineTerm = 1e-13

// With is like Of, but raises a default goal to twice the error bound of the ELBO. A bound that
// is too large to know the ELBO raises nothing.
func With(asked float64, n int, elbo, bound float64) float64 {
	goal := Of(asked, n, elbo)
	if e := 2 * bound; asked == 0 && e <= goalError*(1+math.Abs(elbo)) {
		goal = max(goal, e)
	}
	return goal
}

// Of returns the requested gap, or the default for n terms and this ELBO if asked is 0.
func Of(asked float64, n int, elbo float64) float64 {
	if asked > 0 {
		return asked
	}
	part := min(1, float64(n)/manyTerms)
	return max(mostGoal*part*part*part, rounding(elbo))
}

// Fine returns the gap below which n terms with this ELBO have all the digits of float64. It is
// for computations that start from a fit but need more digits than a summary prints.
func Fine(n int, elbo float64) float64 { return max(fineTerm*float64(n), rounding(elbo)) }

// rounding returns the largest gap that rounding of the ELBO can hide.
func rounding(elbo float64) float64 {
	return max(leastGoal, min(goalRounding*math.Abs(elbo), UnknownNats))
}

// NeverZero returns x, or the smallest positive number if x is 0. A zero in a Step or an
// Evaluation would mean that the number is not known.
func NeverZero(x float64) float64 {
	if x == 0 {
		return math.SmallestNonzeroFloat64
	}
	return x
}

// Bound turns a computed bound into the Bound of an Evaluation, which is positive because 0 means
// that there is no bound. Rounding may have made x negative. If x is NaN, the result is +Inf.
func Bound(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return NeverZero(max(x, 0))
}

// UnknownNats is the largest useful gap in nats. A run whose ELBO is known no better than this
// has not converged. It also limits the part of a goal that is proportional to the ELBO.
const UnknownNats = 1
