package pgsvi

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/predict"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

// Trials returns the prediction of the number of successes in trials_i trials of row i, each with
// the same log odds η. The responses are then 0, 1, …, trials_i. Trials supports BernoulliLogit,
// Binomial and BetaBinomial, and replaces their own number of trials. Prob and LogProb of a row are
// NaN for a response above its trials. Probs has one column more than the largest number of trials,
// and is 0 beyond the trials of a row.
//
// Trials panics if there are not Len trials. For any other Likelihood, or if trials_i is not a
// positive integer up to 2^53 (2^20 for BetaBinomial), all results are NaN and Err returns an error
// that wraps ErrParam.
func (p *Prediction) Trials(trials []float64) *Prediction {
	if len(trials) != p.Len() {
		panic(fmt.Sprintf("pgsvi: %d trials for %d rows", len(trials), p.Len()))
	}
	q := &Prediction{lik: p.lik, m: p.m, v: p.v, err: p.err, spread: p.spread,
		mix: p.mix.each(func(part *Prediction) *Prediction { return part.Trials(trials) })}
	with := func(n float64) Likelihood { return Binomial{Trials: n} }
	switch b := p.lik.(type) {
	case BernoulliLogit, Binomial:
	case BetaBinomial:
		with = func(n float64) Likelihood { return b.with(n) }
	default:
		q.fail(fmt.Errorf(
			"pgsvi: %s has no trials; use BernoulliLogit, Binomial or BetaBinomial: %w",
			typeName(p.lik), ErrParam))
		return q
	}
	q.each = make([]Likelihood, p.Len())
	most := 0.0
	for i, n := range trials {
		b := with(n)
		if n == 0 || validateOption(b) != nil {
			q.fail(fmt.Errorf("pgsvi: row %d: %v trials; the number must be a positive integer: %w",
				i, n,
				ErrParam))
			return q
		}
		q.each[i] = b
		most = max(most, n)
	}
	q.lik = with(most)
	return q
}

// Precision returns the prediction of responses with their own noise: the variance of response i is
// GaussianNoise.Var/precision_i (the weights of lm and lmer in R). It panics if there are not Len
// precisions. For any other Likelihood, or if a precision is not positive and finite, all results are
// NaN and Err returns an error that wraps ErrParam.
func (p *Prediction) Precision(precision []float64) *Prediction {
	if len(precision) != p.Len() {
		panic(fmt.Sprintf("pgsvi: %d precisions for %d rows", len(precision), p.Len()))
	}
	q := &Prediction{lik: p.lik, m: p.m, v: p.v, err: p.err, spread: p.spread,
		mix: p.mix.each(func(part *Prediction) *Prediction { return part.Precision(precision) })}
	if _, ok := p.lik.(GaussianNoise); !ok {
		q.fail(fmt.Errorf("pgsvi: %s has no precision; use GaussianNoise: %w", typeName(p.lik),
			ErrParam))
		return q
	}
	q.each = make([]Likelihood, p.Len())
	for i, w := range precision {
		noise, ok := p.likOf(i).(GaussianNoise)
		if noise.Var = positiveOr(noise.Var, 1) / w; !ok || !(w > 0) || !(noise.Var > 0) ||
			math.IsInf(noise.Var, 0) {
			q.fail(fmt.Errorf("pgsvi: row %d: the precision is %v; it must be positive and finite: %w",
				i, w, ErrParam))
			return q
		}
		q.each[i] = noise
	}
	return q
}

// fail makes err the reason why no row has a prediction, unless there is a reason already.
func (p *Prediction) fail(err error) {
	n := len(p.m)
	if p.err == nil {
		p.err = err
	}
	p.each, p.spread, p.mix = nil, nil, nil
	p.m, p.v = latentSlices(n)
	fillNaN(p.m)
	fillNaN(p.v)
}

// printedRows is the number of rows that String prints.
const printedRows = 20

// String returns one line per row, for up to 20 rows. For labels −1 and +1 the line has the
// probability of +1 with its 95% credible interval (ProbInterval), such as
//
//	0.43 (0.37 to 0.49)
//
// For other likelihoods it has the mean of y, the 95% credible interval of the mean (MeanInterval)
// and the 95% prediction interval of a new response (Interval):
//
//	12.3 (10.1 to 14.5), a new response 4 to 22
//
// For a Softmax it has the three most probable classes, each with its ProbSD, such as
//
//	class 2: 0.81 ± 0.06, class 0: 0.17 ± 0.05, class 1: 0.02 ± 0.01
//
// For a row without a prediction it has the reason. Use Row for a single line.
func (p *Prediction) String() string {
	var b strings.Builder
	if p.Len() == 0 {
		b.WriteString("no rows")
		if p.err != nil {
			fmt.Fprintf(&b, ": %v", p.err)
		}
		return b.String()
	}
	for i := range min(p.Len(), printedRows) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Row(i).sentence())
	}
	if more := p.Len() - printedRows; more > 0 {
		fmt.Fprintf(&b, "\n… and %d more rows", more)
	}
	return b.String()
}

// printedLevel is the level of the printed intervals.
const printedLevel = 0.95

// sentence returns a description of a prediction with one row.
func (p *Prediction) sentence() string {
	err := p.Err()
	var mean, lo, hi, least, most []float64
	if err == nil && latentsOf(p.lik) > 1 {
		return p.classSentence()
	}
	labels := factsOf(p.lik).Support == SignLabels
	if err == nil && labels {
		mean = p.Prob(nil, 1)
		lo, hi, err = p.ProbInterval(nil, nil, 1, printedLevel)
	} else if err == nil {
		if mean, _, err = p.Moments(nil, nil); err == nil {
			lo, hi, err = p.MeanInterval(nil, nil, printedLevel)
		}
		if err == nil {
			least, most, err = p.Interval(nil, nil, printedLevel)
		}
	}
	if err != nil {
		return fmt.Sprintf("no prediction: %s", strings.TrimPrefix(err.Error(), "pgsvi: row 0: "))
	}
	n := numberFormat(lo[0], hi[0])
	text := fmt.Sprintf("%s (%s to %s)", n(mean[0]), n(lo[0]), n(hi[0]))
	if labels {
		return text
	}
	if factsOf(p.lik).Support != Counts {
		n = numberFormat(least[0], most[0])
	} else {
		n = func(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }
	}
	return fmt.Sprintf("%s, a new response %s to %s", text, n(least[0]), n(most[0]))
}

// numberFormat returns a function that formats the numbers of an interval with two significant
// digits of its width.
func numberFormat(lo, hi float64) func(x float64) string {
	width := hi - lo
	decimals := 9
	if width > 0 {
		decimals = 1 - int(math.Floor(math.Log10(width)))
	}
	if decimals > 6 || math.Max(math.Abs(lo), math.Abs(hi)) >= 1e9 {
		return func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	}
	return func(x float64) string { return strconv.FormatFloat(x, 'f', max(0, decimals), 64) }
}

// intervalOf returns the ends of an interval for row i of p, with probability tail beyond each end.
type intervalOf func(p *Prediction, i int, tail float64) (lo, hi float64, err error)

// MeanInterval stores, for each row, the central credible interval of the mean response E[y|η]
// under the posterior N(m, v) of the latent value, in units of y. E[y|η] is below lo with posterior
// probability (1−level)/2, and above hi with the same probability. The interval covers the mean
// only; use Interval for a new response.
//
// E[y|η] must be monotone in η, so the ends are its values at m ± z√v, where z is the normal
// quantile. They are exact for N(m, v). If parameters of the Likelihood were learned, their
// uncertainty is included to first order: the ends are z standard deviations from the mean of η and
// these parameters, in the direction in which E[y|η] changes most. For labels −1 and +1 it is the
// interval of P(+1) − P(−1); use ProbInterval for a probability.
//
// A nil lo or hi allocates. A row that fails is NaN, and the other rows are valid. The error names
// the first row that fails and the number of such rows. It wraps ErrParam if level is not in (0,
// 1), or if E[y|η] of a custom likelihood both rises and falls. It wraps ErrNotFinite if E[y|η]
// does not exist or is above math.MaxFloat64. Otherwise it is an error of Moments.
func (p *Prediction) MeanInterval(lo, hi []float64, level float64) (l, h []float64, err error) {
	return p.intervals(lo, hi, level, meanInterval)
}

// Interval stores, for each row, the central prediction interval of a new response y: its quantiles
// at (1−level)/2 and (1+level)/2, as from Quantile. The interval, including its ends, contains the
// response with probability level, or a higher probability if responses are whole numbers. It
// includes both the noise of y given η and the uncertainty about η.
//
// A nil lo or hi allocates. A row that fails is NaN, and the other rows are valid. The error names
// the first row that fails and the number of such rows. It wraps ErrParam if level is not in (0,
// 1). Otherwise it is an error of Quantile.
func (p *Prediction) Interval(lo, hi []float64, level float64) (l, h []float64, err error) {
	return p.intervals(lo, hi, level,
		func(p *Prediction, i int, tail float64) (lo, hi float64, err error) {
			return p.rowInterval(i, tail)
		})
}

// rowInterval returns the quantiles of y in row i at tail and 1 − tail.
func (p *Prediction) rowInterval(i int, tail float64) (lo, hi float64, err error) {
	if lo, err = p.rowQuantile(i, tail); err == nil {
		hi, err = p.rowQuantile(i, 1-tail)
	}
	return lo, hi, err
}

// intervals stores the results of the function of for each row.
func (p *Prediction) intervals(lo, hi []float64, level float64, of intervalOf) (
	l, h []float64, err error) {
	l, h = dense.Dest(lo, p.Len()), dense.Dest(hi, p.Len())
	if err = cmp.Or(p.err, oneLatent(p.lik, "an interval")); err == nil &&
		!(level > 0 && level < 1) {
		err = fmt.Errorf("pgsvi: an interval at level %v; the level must be between 0 and 1: %w",
			level,
			ErrParam)
	}
	if err != nil {
		fillNaN(l)
		fillNaN(h)
		return l, h, err
	}
	var bad failedRows
	for i := range l {
		l[i], h[i], err = of(p, i, (1-level)/2)
		if err != nil {
			l[i], h[i] = math.NaN(), math.NaN()
		}
		bad.add(i, err)
	}
	return l, h, bad.err()
}

// meanAlong returns E[y|η] in row i, as a function of the distance from the mean in standard
// deviations, and the Response that computes it. If parameters of the likelihood were learned, the
// function includes their uncertainty to first order.
func meanAlong(p *Prediction, i int) (at func(u float64) float64, r predict.Response) {
	lik, m, sd := p.likOf(i), p.m[i], math.Sqrt(p.v[i])
	r = responseOf(lik)
	if p.spread == nil {
		return func(u float64) float64 {
			mean, _ := r.Moments(m + u*sd)
			return mean
		}, r
	}
	row := p.spreadRow(i)
	return row.steepest(func(lik Likelihood, eta float64) float64 {
		mean, _ := responseOf(lik).Moments(eta)
		if math.IsNaN(mean) || math.IsInf(mean, 0) { // a StudentT with DF below 1 has no mean
			mean, _ = r.Moments(eta)
		}
		return mean
	}), r
}

// meanInterval returns the quantiles at tail and 1 − tail of E[y|η] in row i.
func meanInterval(p *Prediction, i int, tail float64) (lo, hi float64, err error) {
	lik, m, v := p.likOf(i), p.m[i], p.v[i]
	if err := checkLatent(m, v); err != nil {
		return 0, 0, err
	}
	if p.mix != nil {
		return mixedMeanInterval(p, i, tail)
	}
	at, r := meanAlong(p, i)
	z := -mathext.NormalQuantile(tail)
	lo, hi = at(-z), at(z)
	if err := checkNormalized(lik, r); err != nil {
		return 0, 0, err
	}
	if math.IsNaN(lo-hi) || math.IsInf(lo-hi, 0) {
		return 0, 0, errMeanRange(lik, m, z*math.Sqrt(v))
	}
	if !risingMean(lik) && !monotone(at) {
		return 0, 0, fmt.Errorf("the mean of %s both rises and falls with η near %v; use "+
			"Interval: %w",
			typeName(lik), m, ErrParam)
	}
	return math.Min(lo, hi), math.Max(lo, hi), nil
}

// errMeanRange returns the error of an E[y|η] that is not finite within reach of m.
func errMeanRange(lik Likelihood, m, reach float64) error {
	return fmt.Errorf("the mean of %s is not finite between η = %v and %v: %w", typeName(lik), m-reach,
		m+reach, ErrNotFinite)
}

// risingMean reports whether E[y|η] of l is known to increase with η.
func risingMean(l Likelihood) bool {
	switch l.(type) {
	case BernoulliLogit, BernoulliProbit, Binomial, Ordinal, Poisson, NegativeBinomial,
		Exponential, Gamma, GaussianNoise, Laplace, StudentT, ZeroInflated, Hurdle, Weibull,
		LogNormal, Beta, BetaBinomial:
		return true
	}
	return false
}

// monotone reports whether f only increases or only decreases between −4 and 4, up to rounding.
func monotone(f func(u float64) float64) bool {
	const steps = 16
	rise, fall := false, false
	last, size := f(-4), 0.0
	for k := 1; k <= steps; k++ {
		next := f(-4 + 8*float64(k)/steps)
		size = math.Max(size, math.Abs(next))
		const rounding = 1e-9 // relative, for means by integration
		rise = rise || next > last+rounding*size
		fall = fall || next < last-rounding*size
		last = next
	}
	return !(rise && fall)
}

// printedClasses is the number of classes that String prints per row.
const printedClasses = 3

// classSentence returns a description of the classes of a prediction with one row.
func (p *Prediction) classSentence() string {
	var parts []string
	p.classes(func(_ int, r *classRow) {
		order := make([]int, len(r.pi))
		for c := range order {
			order[c] = c
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.pi[b], r.pi[a]) })
		for _, c := range order[:min(len(order), printedClasses)] {
			sd := math.Sqrt(math.Max(0, r.pi[c]*(1-r.pi[c])-r.d2[c]))
			parts = append(parts, fmt.Sprintf("class %d: %.2f ± %.2f", c, r.pi[c], sd))
		}
	})
	return strings.Join(parts, ", ")
}

// steepest returns f along the direction of (ε, z) in which it changes most: f(u) is its value u
// standard deviations from the mean. The values at −q and q are the quantiles of f to first order
// (the first-order reliability method; Hasofer and Lind 1974). If f depends only on η, they are the
// values at m ± q√v.
func (r *spreadRow) steepest(f func(lik Likelihood, eta float64) float64) func(u float64) float64 {
	k := len(r.along)
	z, d := make([]float64, k), make([]float64, k+1)
	d[k] = (f(r.moved(1, z)) - f(r.moved(-1, z))) / 2
	for j := range z {
		z[j] = 1
		up := f(r.moved(0, z))
		z[j] = -1
		d[j] = (up - f(r.moved(0, z))) / 2
		z[j] = 0
	}
	if size := floats.Norm(d, 2); size > 0 {
		floats.Scale(1/size, d)
	}
	return func(u float64) float64 {
		for j := range z {
			z[j] = u * d[j]
		}
		return f(r.moved(u*d[k], z))
	}
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
