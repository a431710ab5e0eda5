package pgsvi

import (
	"fmt"
	"math"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/predict"
)

// This file predicts one response: closed forms of the likelihoods of this package, and quadrature
// for all others. Likelihoods that consist of others call it, and so does Prediction.

// predictBlock is the number of rows per block when latent moments are computed.
const predictBlock = 128

// The interfaces below are closed forms of the likelihoods of this package, for η ~ N(m, v). They
// save time, but are not exported because quadrature gives the same results. Use formsOf for an
// assertion to them.
type (
	logProbPredictor interface {
		predictLogProb(y, m, v float64) (logp, bound float64)
	}
	momentPredictor interface {
		predictMoments(m, v float64) (mean, variance float64)
	}
	// tailPredictor computes the tails of y for η ~ N(m, v).
	tailPredictor interface {
		// predictTail returns log P(Y ≤ y), or log P(Y > y) if above is true, for a y in the
		// Support. For Counts y may also lie between two responses.
		predictTail(y, m, v float64, above bool) float64
	}
)

// formsOf returns l if it is a likelihood of this package, or a pointer to one, and nil otherwise.
// A custom type that embeds such a likelihood inherits its closed forms, but may have another
// meaning.
func formsOf(l Likelihood) Likelihood {
	t := reflect.TypeOf(l)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if builtinTypes[t] {
		return l
	}
	return nil
}

// predictiveLogProb returns log ∫ p(y|η) N(η|m, v) dη and a bound on its absolute error, which is
// the relative error of the probability, for a y in the support. Both are NaN unless m is finite
// and v is finite and not negative.
func predictiveLogProb(l Likelihood, y, m, v float64) (logp, bound float64) {
	if p, ok := formsOf(l).(logProbPredictor); ok && v != 0 && expect.Valid(m, v) {
		return p.predictLogProb(y, m, v)
	}
	return predict.LogProb(l, y, m, v)
}

// predictiveMoments returns E[y] and Var[y] for η ~ N(m, v).
func predictiveMoments(l Likelihood, m, v float64) (mean, variance float64, err error) {
	if err := checkLatent(m, v); err != nil {
		return math.NaN(), math.NaN(), err
	}
	if p, ok := formsOf(l).(momentPredictor); ok {
		mean, variance = p.predictMoments(m, v)
	} else {
		r := responseOf(l)
		mean, variance = predict.Moments(r, m, v)
		if err := checkNormalized(l, r); err != nil {
			return math.NaN(), math.NaN(), err
		}
	}
	if math.IsNaN(mean) || math.IsInf(mean, 0) || math.IsNaN(variance) {
		return math.NaN(), math.NaN(),
			fmt.Errorf("the moments of the response of %s are not finite at latent mean %v and "+
				"variance %v: %w", typeName(l), m, v, ErrNotFinite)
	}
	return mean, variance, nil
}

// supportOf returns the support of l. The values of predict.Support are in the order of the
// constants of Support.
func supportOf(l Likelihood) predict.Support {
	f := factsOf(l)
	return predict.Support{Kind: predict.Kind(f.Support), Most: f.Most}
}

// responseOf returns l itself if it is a Responder, and otherwise integrals of its LogProb over y.
func responseOf(l Likelihood) predict.Response {
	if r, ok := l.(Responder); ok {
		return r
	}
	return predict.NewNumeric(l, supportOf(l))
}

// checkNormalized returns an error if r, made from l, found that LogProb is not normalized.
func checkNormalized(l Likelihood, r predict.Response) error {
	n, ok := r.(*predict.Numeric)
	if !ok {
		return nil
	}
	eta, total, failed := n.Unnormalized()
	if !failed {
		return nil
	}
	return fmt.Errorf("LogProb of %T is not normalized: exp(LogProb(y, %v)) sums to %v over y in "+
		"%v; normalize it, set its Support in Facts, or implement Responder: %w",
		l, eta, total, factsOf(l).Support, ErrParam)
}

// checkLatent returns an error if N(m, v) is not a distribution.
func checkLatent(m, v float64) error {
	switch {
	case expect.Valid(m, v):
		return nil
	case v < 0:
		return fmt.Errorf("the latent variance is %v; it must not be negative: %w", v, ErrParam)
	}
	return fmt.Errorf("the latent mean is %v and the latent variance is %v: %w", m, v, ErrNotFinite)
}
