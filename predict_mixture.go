package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

// This file computes the moments and quantiles of predictions with a mixture Σ_k p_k q_k of
// posteriors over hyperparameters (LearnOptions.Integrate and Group). The methods of predict.go
// call it. The predictive distribution of a row is the mixture of the predictive distributions
// under the q_k. Its quantiles solve Σ_k p_k P_k(Y ≤ y) = p. The latent moments of a Prediction are
// the moments of the mixture, by the law of total variance.

// totalMoments adds up the moments of a mixture of values. It measures means from the first one, so
// that equal means leave no rounding error in the variance.
type totalMoments struct{ mean, variance, first []float64 }

func newTotalMoments(mean, variance []float64) totalMoments {
	clear(mean)
	clear(variance)
	return totalMoments{mean, variance, nil}
}

// add adds a part with the given probability.
func (t *totalMoments) add(prob float64, m, v []float64) {
	if t.first == nil {
		t.first = slices.Clone(m)
	}
	for i, x := range m {
		d := x - t.first[i]
		t.mean[i] += prob * d
		t.variance[i] += prob * (v[i] + d*d)
	}
}

func (t *totalMoments) finish() {
	for i, d := range t.mean {
		t.variance[i] = max(t.variance[i]-d*d, 0)
		t.mean[i] += t.first[i]
	}
}

// logSumExp is floats.LogSumExp, except that it returns −Inf if all elements are −Inf, and NaN if
// an element is NaN.
func logSumExp(x []float64) float64 {
	best := math.Inf(-1)
	for _, v := range x {
		if best = math.Max(best, v); math.IsNaN(v) {
			return v
		}
	}
	if math.IsInf(best, 0) {
		return best
	}
	return floats.LogSumExp(x)
}

// predictiveRow is a part of a mixture: the likelihood and N(m, v) of the latent value.
type predictiveRow struct {
	prob float64
	lik  Likelihood
	m, v float64
}

// logTail returns the tail of y as a function, or nil if lik has no closed form of it.
func (r *predictiveRow) logTail() func(y float64, above bool) float64 {
	l, ok := r.lik.(tailPredictor)
	if !ok {
		return nil
	}
	return func(y float64, above bool) float64 { return l.predictTail(y, r.m, r.v, above) }
}

// mixtureQuantile returns the quantile of y at level prob for a mixture, whose latent value has the
// mean m and the variance v.
func mixtureQuantile(parts []predictiveRow, s predict.Support, prob, m, v float64) (float64, error) {
	var y float64
	tails, logs := make([]func(y float64, above bool) float64, len(parts)), make([]float64, len(parts))
	for k := range parts {
		tails[k] = parts[k].logTail()
	}
	if tails[0] != nil {
		y = predict.TailQuantile(func(y float64, above bool) float64 {
			for k, tail := range tails {
				logs[k] = math.Log(parts[k].prob) + tail(y, above)
			}
			return logSumExp(logs)
		}, s, prob, m, v)
	} else {
		responses := make([]predict.Response, len(parts))
		for k := range parts {
			responses[k] = responseOf(parts[k].lik)
		}
		y = predict.CDFQuantile(func(y float64) (sum float64) {
			for k, r := range responses {
				sum += parts[k].prob * predict.CDF(r, y, parts[k].m, parts[k].v)
			}
			return sum
		}, s, prob, m, v)
		for k, r := range responses {
			if err := checkNormalized(parts[k].lik, r); err != nil {
				return math.NaN(), err
			}
		}
	}
	return y, finiteQuantile(y, parts[0].lik, prob, m, v)
}

// normalMixQuantile returns the quantile at level p of a mixture of normal distributions.
func normalMixQuantile(prob, mean, sd []float64, p float64) float64 {
	z := mathext.NormalQuantile(p)
	lo, hi, size := math.Inf(1), math.Inf(-1), 0.0
	for k, m := range mean {
		lo, hi, size = min(lo, m+z*sd[k]), max(hi, m+z*sd[k]), max(size, sd[k])
	}
	below := func(x float64) float64 {
		sum := -p
		for k, m := range mean {
			switch {
			case sd[k] > 0:
				sum += prob[k] * special.NormalTail((m-x)/sd[k])
			case m <= x:
				sum += prob[k]
			}
		}
		return sum
	}
	if !(below(lo) < 0 && below(hi) > 0) { // one value, or rounding
		return lo
	}
	return accel.Root(below, lo, hi, 1e-9*size)
}

// latticeMix returns the quantile at level p of a mixture with the given probabilities. Each part
// has equally likely values in increasing order, as for predict.LatticeQuantile.
func latticeMix(prob []float64, values [][]float64, p float64) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for k, v := range values {
		if prob[k] > 0 {
			q := predict.LatticeQuantile(v, p)
			lo, hi = min(lo, q), max(hi, q)
		}
	}
	below := func(x float64) (sum float64) {
		for k, v := range values {
			if prob[k] > 0 {
				sum += prob[k] * predict.LatticeLevel(v, x)
			}
		}
		return sum
	}
	const halvings = 60
	for range halvings {
		mid := lo + (hi-lo)/2
		if below(mid) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo + (hi-lo)/2
}

// classProbs returns the probability of class c at the points of a lattice over the scores, in
// increasing order.
func classProbs(m, v []float64, c int) []float64 {
	points := predict.LatticeNormals(len(m))
	probs, eta := make([]float64, len(points)), make([]float64, len(m))
	for i, z := range points {
		for j := range eta {
			eta[j] = m[j] + math.Sqrt(v[j])*z[j]
		}
		probs[i] = math.Exp(eta[c] - floats.LogSumExp(eta))
	}
	slices.Sort(probs)
	return probs
}

// finiteQuantile returns an error unless y, the p-quantile under l for a latent value with the given
// moments, is finite.
func finiteQuantile(y float64, l Likelihood, p, m, v float64) error {
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return fmt.Errorf("%s has no finite quantile at level %v, for latent mean %v "+
			"and variance %v: %w", typeName(l), p, m, v, ErrNotFinite)
	}
	return nil
}
