package pgsvi

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/table"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// A PredictiveCheck compares statistics of the responses with statistics of responses that are
// drawn from the posterior for the same rows (posterior predictive check; Gelman, Meng and Stern
// 1996). It prints as a table.
type PredictiveCheck struct {
	Draws int
	// Names holds the names of the statistics, and Observed their values for the responses.
	Names    []string
	Observed []float64
	// Mean, Lo and Hi are the mean and the 95% interval of each statistic over the draws.
	Mean, Lo, Hi []float64
	// P is the share of draws whose statistic is above Observed, plus half of the share of draws
	// with the same value. If P is near 0 or 1, the model does not generate such data. P is not the
	// p-value of a test: it is nearer to ½ because the model was fitted to the same data (Bayarri
	// and Berger 2000).
	P []float64
}

// statistic is a number that describes responses, such as the largest response.
type statistic struct {
	name string
	of   func(y []float64) float64
}

// String returns the table. It has one line per statistic, with a star if P is below 0.025 or above
// 0.975.
func (c *PredictiveCheck) String() string {
	lines := [][]string{{"", "observed", "predicted", "2.5%", "97.5%", "p"}}
	for i, name := range c.Names {
		line := []string{name}
		for _, v := range []float64{c.Observed[i], c.Mean[i], c.Lo[i], c.Hi[i]} {
			line = append(line, table.Minus(fmt.Sprintf("%.3g", v)))
		}
		lines = append(lines, append(line, fmt.Sprintf("%.3f", c.P[i])))
	}
	table.Align(lines)
	var b strings.Builder
	for i, line := range lines {
		text := strings.Join(line, "  ")
		if i > 0 && (c.P[i-1] < 0.025 || c.P[i-1] > 0.975) {
			text += " *"
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	return b.String()
}

// PredictiveCheck draws responses for the rows of g from its posterior q, and compares their
// statistics with the statistics of the responses of g. All rows of a draw share the same random
// weights. The statistics are
//   - for labels, the "share of +1";
//   - for a Softmax, the share of each class, such as "share of class=0";
//   - for all other responses, the "mean", the "sd" and the "max", the "share of 0" if 0 is a
//     possible response, and the "min" if the responses are not counts;
//   - the given stats, which map a name to a function of the responses, such as the largest
//     response. They follow in the order of their names. Nil adds none.
//
// A function in stats must not keep or change y. Zero draws mean 1000. The same randomness in env
// gives the same draws. A row of weight w counts as w responses. If GLMOptions.Learn is set, the
// responses are drawn under the likelihood that q has learned. If q comes from GLM.Learn, call
// PredictiveCheck of the GLM that Learn returned.
//
// The error wraps ErrParam if q is nil or over other weights than g, if draws is negative, if a
// weight is not a whole number, if a response is censored, or if a statistic has no function. It
// wraps ErrEmpty if g has no rows, ErrNotFinite if a statistic or a response is not finite,
// ErrNotPosDef if RandWeights cannot draw from q, and the cause of ctx if ctx is canceled.
func (g *GLM) PredictiveCheck(ctx context.Context, env *Env, q *GLMPosterior, draws int,
	stats map[string]func(y []float64) float64) (*PredictiveCheck, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	l := g.linearAt(q)
	if cov, ok := q.cov.(*gauss.Contrasts); ok {
		return newPredictiveCheck(ctx, env, l.Terms, draws,
			append(classShares(latentsOf(q.lik), q.className), named(stats)...),
			drawScores(l, q.ownMean(), cov))
	}
	mean := floats.SubTo(make([]float64, g.dim()), q.ownMean(), l.Prior.Mean)
	return newPredictiveCheck(ctx, env, l.Terms, draws, named(stats), drawRows(l, mean, q.cov))
}

// PredictiveCheck is like GLM.PredictiveCheck, but draws the latent values of all rows jointly. It
// needs N³ operations, and memory for two N×N matrices and all draws. A Softmax needs this for each
// class. The error is one of GLM.PredictiveCheck or GPPosterior.Joint. It also wraps ErrParam if q
// has other inputs, another kernel or likelihood, or another number of classes than g. If q comes
// from Learn, call PredictiveCheck of the GP that Learn returned.
func (g *GP) PredictiveCheck(ctx context.Context, env *Env, q *GPPosterior, draws int,
	stats map[string]func(y []float64) float64) (*PredictiveCheck, error) {
	k := g.terms.Latents()
	switch {
	case q == nil:
		return nil, fmt.Errorf("pgsvi: the posterior is nil: %w", ErrParam)
	case q.x != g.x && !mat.Equal(q.x, g.x):
		return nil, fmt.Errorf("pgsvi: the posterior has other inputs than the model: %w",
			ErrParam)
	case latentsOf(q.lik) != k:
		return nil, fmt.Errorf("pgsvi: the posterior has %d classes, but the model has %d: %w",
			latentsOf(q.lik), k, ErrParam)
	}
	if err := sameParams(q.kernel, g.kernel, q.lik, likOf(g.terms)); err != nil {
		return nil, prefixed(err)
	}
	of, all := []*GPPosterior{q}, named(stats)
	if k > 1 { // scores of classes are independent
		of, all = q.classes, append(classShares(k, classNumber), all...)
	}
	drawn := make([]*mat.Dense, k)
	next := 0
	draw := func(eta []float64, left int, rng *rand.Rand) error {
		for c, class := range of {
			if next == 0 {
				drawn[c] = mat.NewDense(left, len(eta)/k, nil)
				if err := class.rand(drawn[c], g.x, rng); err != nil {
					return err
				}
			}
			for i, x := range drawn[c].RawRowView(next) {
				eta[i*k+c] = x
			}
		}
		next++
		return nil
	}
	return newPredictiveCheck(ctx, env, g.terms, draws, all, draw)
}

// PredictiveCheck is like GLM.PredictiveCheck, but draws the values at the inducing inputs jointly,
// and their remaining uncertainty independently for each row. The error also wraps ErrParam if q
// has another kernel, another likelihood or another number of inducing inputs than g, or if g is from
// NewSparseGPRows, which does not keep its rows. It wraps ErrMemory as for LOO.
func (g *SparseGP) PredictiveCheck(ctx context.Context, env *Env, q *SparseGPPosterior, draws int,
	stats map[string]func(y []float64) float64) (*PredictiveCheck, error) {
	k := latentsOf(g.lik)
	if err := g.fits(q); err != nil {
		return nil, err
	}
	lin, err := g.linear(ctx)
	if err != nil {
		return nil, err
	}
	if k > 1 {
		return newPredictiveCheck(ctx, env, lin.Terms, draws,
			append(classShares(k, classNumber), named(stats)...),
			drawScores(lin, q.mean, q.contrasts()))
	}
	draw := drawRows(lin, q.mean, &gauss.Full{S: q.q})
	return newPredictiveCheck(ctx, env, lin.Terms, draws, named(stats), draw)
}

// named returns stats in the order of their names.
func named(stats map[string]func(y []float64) float64) (all []statistic) {
	for _, name := range slices.Sorted(maps.Keys(stats)) {
		all = append(all, statistic{name, stats[name]})
	}
	return all
}

// drawLatent stores a joint draw of the latent values in eta, without the offsets of the terms.
// left is the number of draws still to come, including this one.
type drawLatent func(eta []float64, left int, rng *rand.Rand) error

// drawRows draws the linear predictors of l. mean is the mean of the weights minus the prior mean.
func drawRows(l *site.LinearModel, mean []float64, cov gauss.Cov) drawLatent {
	return drawFrom(mean, cov, func(eta, w []float64) { l.X.Mul(eta, w, nil) })
}

// drawScores draws the scores of all classes for the rows of l.
func drawScores(l *site.LinearModel, mean []float64, cov *gauss.Contrasts) drawLatent {
	return drawFrom(mean, cov, func(eta, w []float64) { cov.Means(eta, w, l.X, nil) })
}

// drawFrom draws weights w, and calls latent to store their latent values in eta.
func drawFrom(mean []float64, cov gauss.Cov, latent func(eta, w []float64)) drawLatent {
	w := make([]float64, len(mean))
	return func(eta []float64, _ int, rng *rand.Rand) error {
		copy(w, mean)
		if err := cov.Draw(w, rng); err != nil {
			return err
		}
		latent(eta, w)
		return nil
	}
}

// classShares returns the share of each of k classes as a statistic, named by name.
func classShares(k int, name func(c int) string) []statistic {
	all := make([]statistic, k)
	for c := range all {
		all[c] = statistic{"share of " + name(c), func(y []float64) (share float64) {
			for _, v := range y {
				share += score.Indicator(v == float64(c)) / float64(len(y))
			}
			return share
		}}
	}
	return all
}

// drawClass draws the class of term n of t from its scores (Gumbel's trick).
func drawClass(t *term.Terms, n int, scores []float64, rng *rand.Rand) (class float64) {
	most := math.Inf(-1)
	for c, s := range scores {
		if t.Offset != nil {
			s += t.Offset[n*len(scores)+c]
		}
		if t.Extra != nil {
			s += math.Sqrt(t.Extra[n]) * rng.NormFloat64()
		}
		if s -= math.Log(rng.ExpFloat64()); s > most {
			most, class = s, float64(c)
		}
	}
	return class
}

// newPredictiveCheck compares the responses of t with drawn responses.
func newPredictiveCheck(ctx context.Context, env *Env, t *term.Terms, draws int,
	stats []statistic, draw drawLatent) (*PredictiveCheck, error) {
	const normal = 1000
	switch {
	case draws < 0:
		return nil, fmt.Errorf("pgsvi: %d draws; set 1 or more, or 0 for 1000: %w", draws, ErrParam)
	case t.Len() == 0:
		return nil, fmt.Errorf("pgsvi: a predictive check needs at least one row: %w", ErrEmpty)
	case draws == 0:
		draws = normal
	}
	lik := likOf(t)
	all := append(statisticsOf(lik), stats...)
	y, err := repeated(t)
	if err != nil {
		return nil, err
	}
	c := &PredictiveCheck{Draws: draws}
	for _, s := range all {
		if s.of == nil {
			return nil, fmt.Errorf("pgsvi: statistic %q has no function: %w", s.name, ErrParam)
		}
		v := s.of(y)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("pgsvi: statistic %s of the responses is %v: %w",
				s.name, v, ErrNotFinite)
		}
		c.Names, c.Observed = append(c.Names, s.name), append(c.Observed, v)
	}
	rng, eta := env.rng(), make([]float64, t.Elements())
	values := make([][]float64, len(all))
	for d := range draws {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pgsvi: canceled while the responses were drawn: %w",
				context.Cause(ctx))
		}
		if err := draw(eta, draws-d, rng); err != nil {
			return nil, prefixed(err)
		}
		if y, err = drawResponses(y[:0], lik, t, eta, rng); err != nil {
			return nil, err
		}
		for i, s := range all {
			v := s.of(y)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("pgsvi: statistic %s of drawn responses is %v: %w", s.name,
					v, ErrNotFinite)
			}
			values[i] = append(values[i], v)
		}
	}
	for i := range values {
		c.compare(c.Observed[i], values[i])
	}
	return c, nil
}

// compare appends the summary of a statistic over the draws.
func (c *PredictiveCheck) compare(observed float64, values []float64) {
	p := 0.0
	for _, v := range values {
		p += score.Indicator(v > observed) + score.Indicator(v == observed)/2
	}
	c.P = append(c.P, p/float64(len(values)))
	slices.Sort(values)
	c.Mean = append(c.Mean, stat.Mean(values, nil))
	c.Lo = append(c.Lo, stat.Quantile(0.025, stat.Empirical, values, nil))
	c.Hi = append(c.Hi, stat.Quantile(0.975, stat.Empirical, values, nil))
}

// statisticsOf returns the statistics that suit the responses of l.
func statisticsOf(l Likelihood) []statistic {
	zeros := func(y []float64) (share float64) {
		for _, v := range y {
			share += score.Indicator(v == 0) / float64(len(y))
		}
		return share
	}
	if latentsOf(l) > 1 {
		return nil // see classShares
	}
	support := factsOf(l).Support
	if support == SignLabels {
		return []statistic{{"share of +1",
			func(y []float64) float64 { return (1 + stat.Mean(y, nil)) / 2 }}}
	}
	all := []statistic{
		{"mean", func(y []float64) float64 { return stat.Mean(y, nil) }},
		{"sd", func(y []float64) float64 { return math.Sqrt(stat.PopVariance(y, nil)) }},
		{"max", floats.Max},
	}
	if support == Counts || support == NonNegative {
		all = append(all, statistic{"share of 0", zeros})
	}
	if support != Counts {
		all = append(all, statistic{"min", floats.Min})
	}
	return all
}

// repeated returns the responses, each repeated as often as its weight.
func repeated(t *term.Terms) ([]float64, error) {
	const most = 1e8
	var y []float64
	var sum float64
	facts := factsOf(likOf(t))
	for n := range t.Len() {
		yn, _, w, _ := t.Term(n)
		if facts.Censored && yn < 0 {
			return nil, fmt.Errorf("pgsvi: %s: the response is censored; a predictive check "+
				"needs responses that are fully observed: %w", t.Name(n), ErrParam)
		}
		_, yn = seen(likOf(t), yn)
		if sum += w; w != math.Floor(w) || sum > most {
			return nil, fmt.Errorf(
				"pgsvi: %s: a predictive check needs weights that are whole numbers "+
					"with a sum of at most %.0g: %w", t.Name(n), most, ErrParam)
		}
		for range int(w) {
			y = append(y, yn)
		}
	}
	return y, nil
}

// drawResponses appends a draw of the responses of all terms to y.
func drawResponses(y []float64, lik Likelihood, t *term.Terms, eta []float64, rng *rand.Rand) (
	[]float64, error) {
	if k := t.Latents(); k > 1 {
		for n := range t.Len() {
			_, _, w, _ := t.Term(n)
			for range int(w) {
				y = append(y, drawClass(t, n, eta[n*k:(n+1)*k], rng))
			}
		}
		return y, nil
	}
	for n, e := range eta {
		given, o, w, extra := t.Term(n)
		if e += o; extra > 0 {
			e += math.Sqrt(extra) * rng.NormFloat64()
		}
		lik, _ := seen(lik, given)
		for range int(w) {
			v, err := drawResponse(lik, e, rng)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				if err == nil {
					err = fmt.Errorf("the likelihood drew the response %v at η = %v: %w",
						v, e, ErrNotFinite)
				}
				return nil, fmt.Errorf("pgsvi: %s: %w", t.Name(n), sentinel.Bare(err))
			}
			y = append(y, v)
		}
	}
	return y, nil
}

// A beta variable is drawn as a ratio of two gamma variables if its parameters exceed
// leastBetaDrawn.
const leastBetaDrawn = 0.01

// drawResponse draws y given η. It uses the moments if they determine the distribution, and a
// quantile otherwise.
func drawResponse(l Likelihood, eta float64, rng *rand.Rand) (float64, error) {
	var mean, variance float64
	if r, ok := l.(Responder); ok {
		mean, variance = r.Moments(eta)
	}
	poisson := func(rate float64) float64 {
		if !(rate > 0) || math.IsInf(rate, 0) {
			return rate // 0, or no response
		}
		return distuv.Poisson{Lambda: rate, Src: rng}.Rand()
	}
	gamma := func(shape float64) float64 {
		return mean * (distuv.Gamma{Alpha: shape, Beta: shape, Src: rng}).Rand()
	}
	switch l := l.(type) {
	case BernoulliLogit, BernoulliProbit:
		return 2*score.Indicator(rng.Float64() < (1+mean)/2) - 1, nil
	case GaussianNoise:
		return mean + math.Sqrt(variance)*rng.NormFloat64(), nil
	case Poisson:
		return poisson(mean), nil
	case NegativeBinomial:
		return poisson(gamma(positiveOr(l.Shape, 1))), nil
	case Gamma:
		return gamma(positiveOr(l.Shape, 1)), nil
	case Exponential:
		return mean * rng.ExpFloat64(), nil
	case ZeroInflated:
		if rng.Float64() < partOr(l.Zero) {
			return 0, nil
		}
		return drawResponse(countBase{l.Shape}.likelihood(), eta, rng)
	case Weibull:
		return math.Exp(eta + math.Log(rng.ExpFloat64())/positiveOr(l.Shape, 1)), nil
	case LogNormal:
		return math.Exp(eta + positiveOr(l.Scale, 1)*rng.NormFloat64()), nil
	case BetaBinomial:
		p, err := drawResponse(Beta{Precision: l.Precision}, eta, rng)
		return distuv.Binomial{N: l.trials(), P: p, Src: rng}.Rand(), err
	case Beta:
		phi := positiveOr(l.Precision, precisionDefault)
		if a, b := phi*mean, phi*(1-mean); min(a, b) > leastBetaDrawn {
			return distuv.Beta{Alpha: a, Beta: b, Src: rng}.Rand(), nil
		}
	case Laplace:
		side := 2*score.Indicator(rng.Float64() < 0.5) - 1
		return mean + side*positiveOr(l.Scale, 1)*rng.ExpFloat64(), nil
	}
	u := rng.Float64()
	for u == 0 {
		u = rng.Float64()
	}
	return predictiveQuantile(l, u, eta, 0)
}
