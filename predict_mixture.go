package pgsvi

import (
	"errors"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// This file predicts with a mixture Σ_k p_k q_k of posteriors over hyperparameters
// (LearnOptions.Integrate and Group). The predictive distribution of a row is the mixture of the
// predictive distributions under the q_k. Its quantiles solve Σ_k p_k P_k(Y ≤ y) = p. The latent
// moments of a Prediction are the moments of the mixture, by the law of total variance.

// mixedPosteriors are the parts of the posterior of a Gaussian process over hyperparameters.
type mixedPosteriors[P latents] struct {
	prob  []float64
	parts []P
}

// all returns the parts of m, which may be nil; see latents.
func (m *mixedPosteriors[P]) all() (prob []float64, parts []latents) {
	if m == nil {
		return nil, nil
	}
	for _, p := range m.parts {
		parts = append(parts, p)
	}
	return m.prob, parts
}

// each returns the mixture of the results of f for the parts of m.
func (m *mixedPosteriors[P]) each(f func(p P) P) *mixedPosteriors[P] {
	if m == nil {
		return nil
	}
	to := &mixedPosteriors[P]{prob: m.prob}
	for _, p := range m.parts {
		to.parts = append(to.parts, f(p))
	}
	return to
}

// latent stores the mean and the variance of the latent values of the mixture.
func (m *mixedPosteriors[P]) latent(mean, variance []float64, x mat.Matrix) {
	own, v := latentSlices(len(mean))
	t := newTotalMoments(mean, variance)
	for k, p := range m.parts {
		p.latent(own, v, x)
		t.add(m.prob[k], own, v)
	}
	t.finish()
}

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

// predictionMix holds the parts of a Prediction that is a mixture.
type predictionMix struct {
	prob  []float64 // probabilities of the parts, or row by row if rows differ
	parts []*Prediction
}

// mixAt returns the parts of the prediction of post at x, or nil if post is not a mixture.
func mixAt(post latents, x mat.Matrix) *predictionMix {
	prob, parts := post.components()
	if prob == nil {
		return nil
	}
	m := &predictionMix{prob: prob}
	for _, part := range parts {
		q := predictAt(part, x)
		m.parts = append(m.parts, &q)
	}
	return m
}

// probs returns the probabilities of the parts in row i.
func (m *predictionMix) probs(i int) []float64 {
	k := len(m.parts)
	if len(m.prob) == k {
		return m.prob
	}
	return m.prob[i*k : (i+1)*k]
}

// each returns the mixture of the results of f for the parts of m, which may be nil.
func (m *predictionMix) each(f func(p *Prediction) *Prediction) *predictionMix {
	if m == nil {
		return nil
	}
	to := &predictionMix{prob: m.prob}
	for _, p := range m.parts {
		to.parts = append(to.parts, f(p))
	}
	return to
}

// row returns m for row i alone.
func (m *predictionMix) row(i int) *predictionMix {
	to := m.each(func(p *Prediction) *Prediction { return p.Row(i) })
	if to != nil {
		to.prob = m.probs(i)
	}
	return to
}

// probOf stores P(y) for each row of p.
func (m *predictionMix) probOf(dst []float64, y float64) {
	clear(dst)
	for k, part := range m.parts {
		for i, q := range part.Prob(nil, y) {
			dst[i] += m.probs(i)[k] * q
		}
	}
}

// logProb stores log p(y_i) for each row of p. dst may be y.
func (m *predictionMix) logProb(dst, y []float64) {
	logs := make([][]float64, len(m.parts))
	for k, part := range m.parts {
		logs[k] = part.LogProb(nil, y)
	}
	row := make([]float64, len(logs))
	for i := range dst {
		for k := range row {
			row[k] = logs[k][i] + math.Log(m.probs(i)[k])
		}
		dst[i] = logSumExp(row)
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

// rowMoments returns the predictive moments of row i. The moments of a mixture leave out parts
// without finite moments, such as a StudentT with fewer than one degree of freedom, unless all
// parts lack them.
func (p *Prediction) rowMoments(i int) (mean, variance float64, err error) {
	if p.mix == nil {
		return predictiveMoments(p.likOf(i), p.m[i], p.v[i])
	}
	var total float64
	var first error
	t := newTotalMoments(make([]float64, 1), make([]float64, 1))
	for k, part := range p.mix.parts {
		prob := p.mix.probs(i)[k]
		if prob == 0 {
			continue
		}
		m, v, err := part.rowMoments(i)
		switch {
		case errors.Is(err, ErrNotFinite):
			if first == nil {
				first = err
			}
			continue
		case err != nil:
			return math.NaN(), math.NaN(), err
		}
		total += prob
		t.add(prob, []float64{m}, []float64{v})
	}
	if total == 0 {
		return math.NaN(), math.NaN(), first
	}
	t.mean[0] /= total
	t.variance[0] /= total
	t.finish()
	return t.mean[0], t.variance[0], nil
}

// rowOutcome returns E[y] of row i, or P(+1) for labels.
func (p *Prediction) rowOutcome(i int) (float64, error) {
	if p.mix == nil {
		return outcome(p.likOf(i), p.m[i], p.v[i])
	}
	mean, _, err := p.rowMoments(i)
	if factsOf(p.lik).Support == SignLabels {
		mean = (1 + mean) / 2
	}
	return mean, err
}

// rowQuantile returns the quantile of y in row i at level prob.
func (p *Prediction) rowQuantile(i int, prob float64) (float64, error) {
	if p.mix == nil {
		return predictiveQuantile(p.likOf(i), prob, p.m[i], p.v[i])
	}
	if err := p.rowErr(i); err != nil {
		return math.NaN(), err
	}
	if g, ok := p.likOf(i).(GaussianNoise); ok {
		mean, sd := make([]float64, len(p.mix.parts)), make([]float64, len(p.mix.parts))
		for k, part := range p.mix.parts {
			g = part.likOf(i).(GaussianNoise)
			mean[k], sd[k] = part.m[i], math.Sqrt(part.v[i]+positiveOr(g.Var, 1))
		}
		y := normalMixQuantile(p.mix.probs(i), mean, sd, prob)
		return y, finiteQuantile(y, g, prob, p.m[i], p.v[i])
	}
	var parts []predictiveRow
	for k, part := range p.mix.parts {
		if q := p.mix.probs(i)[k]; q > 0 {
			if err := part.rowErr(i); err != nil {
				return math.NaN(), err
			}
			parts = append(parts, predictiveRow{q, part.likOf(i), part.m[i], part.v[i]})
		}
	}
	return mixtureQuantile(parts, supportOf(p.likOf(i)), prob, p.m[i], p.v[i])
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

// latentQuantile returns the quantile of the latent value in row i of a mixture.
func (p *Prediction) latentQuantile(i int, level float64) float64 {
	mean, sd := make([]float64, len(p.mix.parts)), make([]float64, len(p.mix.parts))
	for k, part := range p.mix.parts {
		mean[k], sd[k] = part.m[i], math.Sqrt(part.v[i])
	}
	return normalMixQuantile(p.mix.probs(i), mean, sd, level)
}

// oneMean reports whether E[y|η] is an increasing function of η alone in all parts of p.
func (p *Prediction) oneMean() bool {
	for _, part := range p.mix.parts {
		if part.spread != nil {
			return false
		}
	}
	switch p.lik.(type) {
	case BernoulliLogit, BernoulliProbit, Binomial, Poisson, NegativeBinomial, Exponential, Gamma,
		GaussianNoise, Laplace, StudentT, Beta, BetaBinomial:
		return true
	}
	return false
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

// probSD stores the standard deviation of the probability of y for each row.
func (m *predictionMix) probSD(dst []float64, y float64) {
	t := newTotalMoments(make([]float64, len(dst)), dst)
	for k, part := range m.parts {
		mean, sd := part.Prob(nil, y), part.ProbSD(nil, y)
		for i, s := range sd {
			sd[i] = s * s
		}
		if len(m.prob) == len(m.parts) {
			t.add(m.prob[k], mean, sd)
			continue
		}
		if t.first == nil {
			t.first = slices.Clone(mean)
		}
		for i := range mean {
			d := mean[i] - t.first[i]
			t.mean[i] += m.probs(i)[k] * d
			dst[i] += m.probs(i)[k] * (sd[i] + d*d)
		}
	}
	t.finish()
	for i, v := range dst {
		dst[i] = math.Sqrt(v)
	}
}

// probInterval stores an interval of the probability of y for each row of p that has a prediction.
func (p *Prediction) probInterval(lo, hi []float64, y, tail float64) {
	k := latentsOf(p.lik)
	parallel.For(p.Len(), 1, runtime.GOMAXPROCS(0), func(_, first, end int) {
		for i := first; i < end; i++ {
			if lo[i], hi[i] = math.NaN(), math.NaN(); p.rowErr(i) != nil {
				continue
			}
			if factsOf(p.lik).Support == SignLabels && p.oneMean() { // monotone in η
				a := p.likOf(i).LogProb(y, p.latentQuantile(i, tail))
				b := p.likOf(i).LogProb(y, p.latentQuantile(i, 1-tail))
				lo[i], hi[i] = math.Exp(min(a, b)), math.Exp(max(a, b))
				continue
			}
			values := make([][]float64, len(p.mix.parts))
			for j, part := range p.mix.parts {
				switch {
				case p.mix.probs(i)[j] == 0:
				case k > 1:
					values[j] = classProbs(part.m[i*k:(i+1)*k], part.v[i*k:(i+1)*k], int(y))
				default:
					values[j] = part.rowProbs(i, y)
				}
			}
			lo[i] = latticeMix(p.mix.probs(i), values, tail)
			hi[i] = latticeMix(p.mix.probs(i), values, 1-tail)
		}
	})
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

// mixedMeanInterval is meanInterval for a mixture. Unlike there, E[y|η] may rise and fall. The
// mixture leaves out parts whose mean is not finite, unless all are.
func mixedMeanInterval(p *Prediction, i int, tail float64) (lo, hi float64, err error) {
	if p.oneMean() {
		r := responseOf(p.likOf(i))
		lo, _ := r.Moments(p.latentQuantile(i, tail))
		hi, _ := r.Moments(p.latentQuantile(i, 1-tail))
		if _, ok := dense.AllFinite([]float64{lo, hi}); ok {
			return lo, hi, nil
		}
	}
	points := predict.LatticeNormals(1)
	prob := slices.Clone(p.mix.probs(i))
	values := make([][]float64, len(prob))
	for k, part := range p.mix.parts {
		if prob[k] == 0 {
			continue
		}
		at, r := meanAlong(part, i)
		for _, z := range points {
			values[k] = append(values[k], at(z[0]))
		}
		if err := checkNormalized(part.likOf(i), r); err != nil {
			return 0, 0, err
		}
		if _, ok := dense.AllFinite(values[k]); !ok {
			prob[k] = 0
		}
		slices.Sort(values[k])
	}
	total := floats.Sum(prob)
	if total == 0 {
		return 0, 0, errMeanRange(p.likOf(i), p.m[i], math.Sqrt(p.v[i]))
	}
	floats.Scale(1/total, prob)
	return latticeMix(prob, values, tail), latticeMix(prob, values, 1-tail), nil
}

// softmaxRow stores the expectations of the classes of row i in r.
func (p *Prediction) softmaxRow(i int, r *classRow) {
	k := latentsOf(p.lik)
	if p.mix == nil {
		r.lse, _ = expect.SoftmaxExpect(p.m[i*k:(i+1)*k], p.v[i*k:(i+1)*k], r.pi, r.d2)
		return
	}
	clear(r.pi)
	clear(r.d2)
	r.lse = 0
	own := &classRow{pi: make([]float64, k), d2: make([]float64, k)}
	for j, part := range p.mix.parts {
		if prob := p.mix.probs(i)[j]; prob > 0 {
			part.softmaxRow(i, own)
			floats.AddScaled(r.pi, prob, own.pi)
			floats.AddScaled(r.d2, prob, own.d2)
			r.lse += prob * own.lse
		}
	}
}
