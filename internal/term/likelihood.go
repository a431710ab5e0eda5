package term

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/save"
)

// Likelihood is what terms ask of a log-likelihood log p(y|η).
type Likelihood interface {
	// LogProb returns log p(y|η).
	LogProb(y, eta float64) float64
	// Expect returns its expectation under η ~ N(m, v).
	Expect(y, m, v float64) Expectation
	// Concave reports whether it is concave in η for every y, and real whether y is any real
	// number.
	Concave() bool
	Real() bool
	// SelfBounded reports |ℓ‴| ≤ |ℓ″| for ℓ = log p(y|·).
	SelfBounded() bool
	// Bounded reports whether −∂²ℓ/∂η² has a bound for each y.
	Bounded() bool
	// Each returns what takes many expectations at once, nil where nothing does.
	Each() *Many
	// Rated returns, of a log-likelihood that is slope·η − exp(origin + sign·η) and a constant,
	// what these are for a y, and nil of others. Under N(m, v)
	//
	//	γ̂ = exp(origin + sign·m + v/2),   α̂ = slope − sign·γ̂,
	//
	// so that what its sites are to be is known of any m and v, whether or not exponentials
	// overflow there.
	Rated() func(y float64) (sign, origin, slope float64)
	// Identify shows d which it is.
	Identify(d *save.Digest)
}

// Noisy is a Likelihood that may be Gaussian noise.
type Noisy interface {
	Likelihood
	// Noise returns the variance of Gaussian noise, and 0 of any other likelihood.
	Noise() float64
}

// Rowwise is a Likelihood that may evaluate many rows at once.
type Rowwise interface {
	Likelihood
	// LogProbs returns a function that replaces the latent values η of rows first, first + 1, … of
	// the responses y by log p(y|η), at most logprob.Block of them. It is safe for concurrent use.
	// It is nil if nothing is faster than LogProb.
	LogProbs(y []float64) logprob.Rows
	// LogProbSum returns what sums these log-probabilities. It is nil if adding them is as fast.
	LogProbSum(y []float64) logprob.Sum
}

// Many computes the expectations of many terms at once.
type Many struct {
	// Own returns a number that Expect needs and that depends on the response alone, such as
	// log y!. Terms calls it once for each response. Nil means that Expect needs none.
	Own func(y float64) float64
	// Expect computes expectations of several terms at once. On entry value holds the responses,
	// d1 the means, d2 the variances and bound the results of Own. Expect replaces them by the
	// results of Likelihood.Expect, with the same bits, and by the error bounds.
	Expect func(value, d1, d2, bound []float64)
}

// Expectation is an expectation with its derivatives with respect to the mean, and a bound on the
// error of the value.
type Expectation struct{ Value, D1, D2, Err float64 }

// HoleOf looks for the point nearest to m, within the range of a quadrature, at which log p(y|η)
// is not finite. It returns the point and the value.
func HoleOf(l Likelihood, y, m, v float64) (eta, value float64, ok bool) {
	return HoleIn(l.LogProb, y, m, v)
}

// HoleIn looks for the point nearest to m, within the range of a quadrature, at which logProb is
// not finite. It returns the point and the value.
func HoleIn(logProb func(y, eta float64) float64, y, m, v float64) (eta, value float64, ok bool) {
	const reach, step = 9, 1.0 / 16
	s := math.Sqrt(v)
	for u := 0.0; u <= reach; u += step {
		for _, eta := range [2]float64{m + s*u, m - s*u} {
			if value := logProb(y, eta); math.IsNaN(value) || math.IsInf(value, 0) {
				return eta, value, true
			}
		}
	}
	return 0, 0, false
}

// Remedy returns the advice for a log-likelihood that is not finite.
func Remedy(value float64) string {
	switch {
	case math.IsNaN(value):
		return "LogProb must return a number wherever q has mass"
	case value > 0:
		return "LogProb must be finite wherever q has mass"
	}
	return "the ELBO is -Inf where q has mass outside the support: change variables or q so " +
		"that all of its mass is inside, or return a finite penalty"
}
