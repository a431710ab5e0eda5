package pgsvi

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/predict"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// A Prediction holds the predictive distribution of the response in each of several rows. It stores
// the mean m and the variance v of each latent value. Everything else follows from these and the
// Likelihood:
//
//	p(y|x) = ∫ p(y|η) N(η|m, v) dη.
//
// A row of a Softmax has K independent latent values, the scores of its classes.
//
// If the posterior is a mixture over hyperparameters (LearnOptions.Integrate, Group), p(y|x) is the
// mixture of such distributions. Latent then returns the moments of the mixture, and Likelihood the
// likelihood with the best hyperparameters. Moments and intervals of means leave out parts without
// a finite mean.
//
// Make a Prediction with the method At of a posterior, or with NewPrediction. It is immutable and
// safe for concurrent use. Its methods store their results in the given slices. A nil slice
// allocates, and a slice with another length than Len panics.
//
// If a row has no latent mean or variance, such as a GLM row with a NaN, its results are NaN, and
// Err names the row. A nil matrix, or a nil pointer, has no rows, and Err reports it.
type Prediction struct {
	lik  Likelihood
	m, v []float64    // row by row if a row has several
	err  error        // invalid parameters of lik, or a nil matrix
	each []Likelihood // likelihoods of the rows if they differ; nil means lik

	spread *paramSpread // for learned parameters of lik, or nil
	// mix holds the parts of a mixture over hyperparameters, or is nil. If it is set, m and v are the
	// moments of the mixture, and lik has the best hyperparameters.
	mix *predictionMix
}

// likOf returns the likelihood of row i.
func (p *Prediction) likOf(i int) Likelihood {
	if p.each != nil {
		return p.each[i]
	}
	return p.lik
}

// NewPrediction returns the prediction under lik for latent values N(mean_i, variance_i). A nil lik
// means GaussianNoise{}. For a Softmax of K classes, the slices hold the scores of the first row,
// then the scores of the next row, and so on. Both slices are copied. NewPrediction panics if their
// lengths differ or are not a multiple of K. Err reports invalid rows and parameters of lik.
func NewPrediction(lik Likelihood, mean, variance []float64) *Prediction {
	if len(mean) != len(variance) {
		panic(fmt.Sprintf("pgsvi: %d latent means but %d variances", len(mean), len(variance)))
	}
	if lik == nil {
		lik = GaussianNoise{}
	}
	if err := checkNil("the Likelihood", lik); err != nil {
		return &Prediction{lik: GaussianNoise{}, err: err}
	}
	if s, ok := lik.(Softmax); ok && s.Classes < 2 {
		return &Prediction{lik: lik,
			err: fmt.Errorf(
				"pgsvi: Softmax.Classes is %d; a prediction needs the number of classes: %w",
				s.Classes, ErrParam)}
	}
	if k := latentsOf(lik); len(mean)%k != 0 {
		panic(fmt.Sprintf("pgsvi: %d latent means are not a multiple of the %d per row",
			len(mean), k))
	}
	m, v := latentSlices(len(mean))
	copy(m, mean)
	copy(v, variance)
	return &Prediction{lik: lik, m: m, v: v, err: checkLikelihood(lik)}
}

// latents is a posterior of latent values.
type latents interface {
	// Cols returns the number of columns that new points must have.
	Cols() int
	likelihood() Likelihood
	// latent stores the mean and the variance of the latent value for each row of x. The results
	// have the same bits for any number of workers and any blocks of rows.
	latent(m, v []float64, x mat.Matrix)
	// components returns the parts of a mixture over hyperparameters with their probabilities, or
	// nil if the posterior is not a mixture.
	components() (prob []float64, parts []latents)
	// partsAt returns the parts of the prediction at x if the posterior evaluates them together, and
	// stores the moments of the latent values in mean and variance. Otherwise it returns nil.
	partsAt(x mat.Matrix, mean, variance []float64) *predictionMix
}

// predictAt is the method At of every posterior. It returns no pointer, so that At is inlined and
// post.At(x).Prob(…) needs no Prediction on the heap.
func predictAt(post latents, x mat.Matrix) Prediction {
	if err := checkMatrix("x", x); err != nil {
		return Prediction{lik: post.likelihood(), err: err}
	}
	rows := checkColumns(x, post.Cols())
	m, v := latentSlices(rows * latentsOf(post.likelihood()))
	if mix := mixAt(post, x, m, v); mix != nil {
		return Prediction{lik: post.likelihood(), m: m, v: v, mix: mix}
	}
	if s, ok := post.(spreadLatents); ok {
		return Prediction{lik: post.likelihood(), m: m, v: v, spread: s.latentSpread(m, v, x)}
	}
	post.latent(m, v, x)
	return Prediction{lik: post.likelihood(), m: m, v: v}
}

// checkColumns returns the number of rows of x. It panics if x has rows with another number of
// columns than cols.
func checkColumns(x mat.Matrix, cols int) (rows int) {
	rows, c := x.Dims()
	if rows > 0 && c != cols {
		panic(fmt.Sprintf("pgsvi: x has %d columns, but the model has %d", c, cols))
	}
	return rows
}

// latentSlices returns two slices of length n.
func latentSlices(n int) (m, v []float64) {
	both := make([]float64, 2*n)
	return both[:n:n], both[n:]
}

// Len returns the number of rows.
func (p *Prediction) Len() int { return len(p.m) / latentsOf(p.lik) }

// Likelihood returns the likelihood of the predictions, in the form that NewPrediction accepts.
func (p *Prediction) Likelihood() Likelihood { return p.lik }

// Err returns the error of the first row without a prediction, or nil if all rows have one. It
// wraps ErrNotFinite if a latent mean or variance is not finite, and ErrParam if a variance is
// negative or a parameter of the Likelihood is out of range.
func (p *Prediction) Err() error {
	if p.err != nil {
		return p.err
	}
	for i := range p.Len() {
		if err := p.rowErr(i); err != nil {
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}

// Latent stores the means and variances of the latent values, without noise. The slices have Len
// elements. For a Softmax they have Len·K elements, the scores of the classes of the first row,
// then the scores of the next row, and so on. Only differences between scores of a row matter.
func (p *Prediction) Latent(mean, variance []float64) (m, v []float64) {
	m, v = dense.Dest(mean, len(p.m)), dense.Dest(variance, len(p.m))
	copy(m, p.m)
	copy(v, p.v)
	return m, v
}

// Offset returns the prediction with offset_i added to the latent mean of row i, like
// GLMOptions.Offset in a fit. It panics if there are not Len offsets, or Len·K for a Softmax.
func (p *Prediction) Offset(offset []float64) *Prediction {
	if len(offset) != len(p.m) {
		panic(fmt.Sprintf("pgsvi: %d offsets for %d rows", len(offset), p.Len()))
	}
	m, v := latentSlices(len(p.m))
	copy(v, p.v)
	for i, o := range offset {
		m[i] = p.m[i] + o
	}
	return &Prediction{p.lik, m, v, p.err, p.each, p.spread,
		p.mix.each(func(part *Prediction) *Prediction { return part.Offset(offset) })}
}

// Prob stores p(y|x) for each row: the probability of y, or its density if y is a real number. It
// is NaN if y is outside the Support of the Likelihood, such as 0 for labels −1 and +1. For a
// censored response −y (see Survival) it is P(Y > y).
func (p *Prediction) Prob(dst []float64, y float64) []float64 {
	dst = dense.Dest(dst, p.Len())
	if p.each == nil && !factsOf(p.lik).contain(y) {
		fillNaN(dst)
		return dst
	}
	if p.mix != nil && latentsOf(p.lik) == 1 {
		p.mix.probOf(dst, y)
		return dst
	}
	if latentsOf(p.lik) > 1 {
		q, of := *p, dst // p and dst themselves would be moved to the heap
		q.classes(func(i int, r *classRow) { of[i] = r.pi[int(y)] })
		return dst
	}
	predictRows{lik: p.lik, liks: p.each, dst: dst, all: y, mean: p.m, vari: p.v}.run()
	return dst
}

// LogProb stores log p(y_i|x_i) for each row, in nats, even if the probability underflows. It is
// NaN if y_i is outside the Support of the Likelihood. It panics unless there are Len responses;
// dst may be y.
//
// BernoulliProbit, GaussianNoise and Laplace use closed forms, and BernoulliLogit uses the sums of
// ExpectLogProb. Other likelihoods use adaptive quadrature around the mode of the integrand. The
// integrand must have no other mode, or only modes near η = m, 0 or y. Tests against other
// quadrature show a relative error below 1e−11 for the likelihoods of this package.
func (p *Prediction) LogProb(dst, y []float64) []float64 {
	if len(y) != p.Len() {
		panic(fmt.Sprintf("pgsvi: %d responses for %d rows", len(y), p.Len()))
	}
	dst = dense.Dest(dst, p.Len())
	if k := latentsOf(p.lik); k > 1 {
		facts, q, of := factsOf(p.lik), *p, dst
		q.classes(func(i int, r *classRow) {
			yi := y[i]
			if of[i] = math.NaN(); facts.contain(yi) {
				of[i] = r.logProb(int(yi), p.m[i*k:(i+1)*k])
			}
		})
		return dst
	}
	if p.mix != nil {
		p.mix.logProb(dst, y)
		return dst
	}
	predictRows{lik: p.lik, liks: p.each, dst: dst, y: y, mean: p.m, vari: p.v}.run()
	return dst
}

// predictShared is the number of rows from which goroutines share the predictions.
const predictShared = 1024

// predictRows computes predictions of responses: log p(y_i|x_i), or p(all|x_i) if y is nil. All
// responses must be in the support. dst may be y.
type predictRows struct {
	lik        Likelihood
	liks       []Likelihood // one per row, or nil
	dst, y     []float64
	all        float64
	mean, vari []float64
	each       func(logp, m, v []float64) // fast.predictEach of lik
}

// run computes the predictions. Each of them is independent of the other rows.
func (r predictRows) run() {
	r.each = fastOf(r.lik).predictEach
	if n := len(r.dst); n >= predictShared {
		shared := r // only this copy is on the heap
		parallel.For(n, predictBlock, runtime.GOMAXPROCS(0),
			func(_, lo, hi int) { shared.part(lo, hi) })
	} else {
		for lo := 0; lo < n; lo += predictBlock {
			r.part(lo, min(lo+predictBlock, n))
		}
	}
}

// part runs rows lo … hi−1, one block.
func (r *predictRows) part(lo, hi int) {
	dst, m, v := r.dst[lo:hi], r.mean[lo:hi], r.vari[lo:hi]
	if r.y == nil {
		for i := range dst {
			dst[i] = r.all
		}
	} else {
		copy(dst, r.y[lo:hi])
	}
	if r.liks != nil {
		for i, l := range r.liks[lo:hi] {
			y := dst[i]
			if dst[i] = math.NaN(); factsOf(l).contain(y) {
				dst[i], _ = predictiveLogProb(l, y, m[i], v[i])
			}
		}
	} else if r.each != nil {
		r.each(dst, m, v)
	} else {
		facts := factsOf(r.lik)
		for i, y := range dst {
			if dst[i] = math.NaN(); facts.contain(y) {
				dst[i], _ = predictiveLogProb(r.lik, y, m[i], v[i])
			}
		}
	}
	if r.y == nil {
		for i, logp := range dst {
			dst[i] = math.Exp(logp)
		}
	}
}

// Probs returns a new matrix of the probabilities of all responses. It has one row per row of data,
// and one column for each of −1 and +1, or of 0, 1, …, Facts.Most. Probs panics if the Likelihood
// has another Support or no largest response.
func (p *Prediction) Probs() *mat.Dense {
	f := factsOf(p.lik)
	first, step, n := 0.0, 1.0, 0
	switch {
	case f.Support == SignLabels:
		first, step, n = -1, 2, 2
	case f.Support == Counts && f.Most > 0:
		n = int(f.Most) + 1
	default:
		panic(fmt.Sprintf(
			"pgsvi: %s has no finite set of responses, which Probs needs; use Prob",
			typeName(p.lik)))
	}
	if p.Len() == 0 {
		return &mat.Dense{}
	}
	if latentsOf(p.lik) > 1 {
		dst, q := mat.NewDense(p.Len(), n, nil), *p
		q.classes(func(i int, r *classRow) { copy(dst.RawRowView(i), r.pi) })
		return dst
	}
	dst, col := mat.NewDense(p.Len(), n, nil), make([]float64, p.Len())
	for j := range n {
		p.Prob(col, first+step*float64(j))
		for i := range p.each { // a row with fewer trials
			if m := factsOf(p.each[i]).Most; m > 0 && float64(j) > m {
				col[i] = 0
			}
		}
		dst.SetCol(j, col)
	}
	return dst
}

// Moments stores the predictive mean and variance of y in each row, by the law of total variance:
//
//	E[y] = E[E[y|η]],   Var[y] = E[Var[y|η]] + Var[E[y|η]],   η ~ N(m, v).
//
// The likelihoods of this package use closed forms. For other likelihoods E[y|η] and Var[y|η] come
// from Responder, or from LogProb by integration over the Support of y, which costs one integral
// per node.
//
// A row that fails is NaN, and the other rows are valid. The error names the first row that fails
// and the number of such rows. It wraps
//   - ErrNotFinite if the row has no latent mean or variance, if y has no moments, or if its mean
//     is above math.MaxFloat64. A variance of +Inf is not an error;
//   - ErrParam if a latent variance is negative, a parameter of the Likelihood is out of range, or
//     exp(LogProb) does not integrate to 1 within 1e−6 over the Support;
//   - ErrParam if the Likelihood is a Softmax, because its classes have no order. Use Probs and
//     ProbSD.
func (p *Prediction) Moments(mean, variance []float64) (m, v []float64, err error) {
	m, v = dense.Dest(mean, p.Len()), dense.Dest(variance, p.Len())
	if err := cmp.Or(p.err, oneLatent(p.lik, "Moments")); err != nil {
		fillNaN(m)
		fillNaN(v)
		return m, v, err
	}
	var bad failedRows
	for i := range m {
		m[i], v[i], err = p.rowMoments(i)
		bad.add(i, err)
	}
	return m, v, bad.err()
}

// Quantile stores the predictive quantile of y at level prob, in (0, 1), for each row. It is the
// smallest y with P(Y ≤ y) ≥ prob. Two quantiles form a prediction interval.
//
// The likelihoods of this package solve log P(Y ≤ y) = log prob, or log P(Y > y) = log(1−prob)
// above the median, so both tails have a relative accuracy of about 1e−10 in the probability. For
// other likelihoods P(Y ≤ y|η) comes from Responder with an absolute accuracy of about 1e−13, or
// from LogProb by integration over y with an accuracy of about 1e−10. Counts and SignLabels are
// exact, but counts above 2^53 have the accuracy of a float64. A quantile too small for a float64
// is 0.
//
// A row that fails is NaN, and the other rows are valid. The error names the first row that fails
// and the number of such rows. It wraps ErrParam if prob is not in (0, 1), and ErrNotFinite if the
// quantile is above math.MaxFloat64 or was not found. Otherwise it is an error of Moments.
func (p *Prediction) Quantile(dst []float64, prob float64) ([]float64, error) {
	dst = dense.Dest(dst, p.Len())
	err := cmp.Or(p.err, oneLatent(p.lik, "Quantile"))
	if err == nil && !(prob > 0 && prob < 1) {
		err = fmt.Errorf("pgsvi: Quantile at level %v; the level must be between 0 and 1: %w", prob,
			ErrParam)
	}
	if err != nil {
		fillNaN(dst)
		return dst, err
	}
	var bad failedRows
	for i := range dst {
		dst[i], err = p.rowQuantile(i, prob)
		bad.add(i, err)
	}
	return dst, bad.err()
}

// ProbInterval stores, for each row, the central credible interval of p(y|η), the probability of
// the response y, under the posterior N(m, v) of the latent value. The probability is below lo with
// posterior probability (1−level)/2, and above hi with the same probability. Prob is its posterior
// mean.
//
// If p(y|η) is monotone in η, the ends are p(y|η) at m ± z√v, where z is the normal quantile. This
// is the case for binary responses, for 0 and the largest of Counts, and for the first and last
// class of Ordinal. Otherwise p(y|η) rises to a maximum and falls, and an end is the level that it
// exceeds with the required probability. p(y|η) of a custom likelihood must not rise again after it
// has fallen. For three or more classes of Softmax an end is a quantile on a lattice of 1021
// points. Its level is off by about 0.005, and a row takes about a millisecond. The same lattice is
// used if parameters of the Likelihood were learned. The interval then includes their uncertainty.
//
// A row that fails is NaN, and the other rows are valid. The error names the first row that fails
// and the number of such rows. It wraps ErrParam if level is not in (0, 1) or if the Likelihood has
// densities instead of probabilities, and ErrLabel if y is outside its Support. Otherwise it is an
// error of Err.
func (p *Prediction) ProbInterval(lo, hi []float64, y, level float64) (l, h []float64, err error) {
	l, h = dense.Dest(lo, p.Len()), dense.Dest(hi, p.Len())
	facts := factsOf(p.lik)
	switch err = p.err; {
	case err != nil:
	case !(level > 0 && level < 1):
		err = fmt.Errorf("pgsvi: ProbInterval at level %v; the level must be between 0 and 1: %w",
			level,
			ErrParam)
	case facts.Support != Counts && facts.Support != SignLabels:
		err = fmt.Errorf(
			"pgsvi: %s has a density on %s, but ProbInterval needs probabilities; use Quantile: %w",
			typeName(p.lik), facts.Support.describe(0), ErrParam)
	default:
		if err = checkLabel(p.lik, y); err != nil {
			err = fmt.Errorf("pgsvi: %w", err)
		}
	}
	if err != nil {
		fillNaN(l)
		fillNaN(h)
		return l, h, err
	}
	var bad failedRows
	if p.mix != nil {
		p.probInterval(l, h, y, (1-level)/2)
	} else if latentsOf(p.lik) > 1 {
		p.classIntervals(l, h, int(y), (1-level)/2)
	}
	if latentsOf(p.lik) > 1 {
		for i := range l {
			bad.add(i, p.rowErr(i))
		}
		return l, h, bad.err()
	}
	if p.spread != nil {
		fillNaN(l)
		fillNaN(h)
		p.probs(y, func(i int, probs []float64) {
			l[i] = predict.LatticeQuantile(probs, (1-level)/2)
			h[i] = predict.LatticeQuantile(probs, (1+level)/2)
		})
	}
	for i := range l {
		lik := p.likOf(i)
		if err = checkLatent(p.m[i], p.v[i]); err == nil && p.each != nil {
			err = checkLabel(lik, y)
		}
		if err != nil {
			l[i], h[i] = math.NaN(), math.NaN()
		} else if p.spread == nil && p.mix == nil {
			l[i], h[i] = predict.Interval(lik, y, (1-level)/2, p.m[i], math.Sqrt(p.v[i]))
		}
		bad.add(i, err)
	}
	return l, h, bad.err()
}

// classIntervals is ProbInterval for a class of a Softmax. Rows without a prediction get NaN.
func (p *Prediction) classIntervals(lo, hi []float64, class int, tail float64) {
	k := latentsOf(p.lik)
	parallel.For(p.Len(), 1, runtime.GOMAXPROCS(0), func(_, first, end int) {
		for i := first; i < end; i++ {
			if lo[i], hi[i] = math.NaN(), math.NaN(); p.rowErr(i) == nil {
				m, v := p.m[i*k:(i+1)*k], p.v[i*k:(i+1)*k]
				lo[i], hi[i] = predict.ClassInterval(m, v, class, tail)
			}
		}
	})
}

// fillNaN fills x with NaN.
func fillNaN(x []float64) {
	for i := range x {
		x[i] = math.NaN()
	}
}

// outcomeName returns the name of the quantity that outcome computes.
func outcomeName(l Likelihood) string {
	if factsOf(l).Support == SignLabels {
		return "P(y = +1)"
	}
	return "E[y]"
}

// outcome returns E[μ(η)] for η ~ N(m, v), where μ is the expected response, or P(+1) for labels.
func outcome(l Likelihood, m, v float64) (float64, error) {
	mean, _, err := predictiveMoments(l, m, v)
	if factsOf(l).Support == SignLabels {
		mean = (1 + mean) / 2
	}
	return mean, err
}

// predictiveQuantile returns the p-quantile of y for η ~ N(m, v), 0 < p < 1.
func predictiveQuantile(l Likelihood, p, m, v float64) (y float64, err error) {
	if err := checkLatent(m, v); err != nil {
		return math.NaN(), err
	}
	switch q := formsOf(l).(type) {
	case GaussianNoise:
		y = q.predictQuantile(p, m, v)
	case tailPredictor:
		tail := func(y float64, above bool) float64 { return q.predictTail(y, m, v, above) }
		y = predict.TailQuantile(tail, supportOf(l), p, m, v)
	default:
		r := responseOf(l)
		y = predict.Quantile(r, supportOf(l), p, m, v)
		if err := checkNormalized(l, r); err != nil {
			return math.NaN(), err
		}
	}
	if err := finiteQuantile(y, l, p, m, v); err != nil {
		return math.NaN(), err
	}
	return y, nil
}

// failedRows counts the rows without a result.
type failedRows struct {
	first error
	count int
}

func (f *failedRows) add(i int, err error) {
	if err == nil {
		return
	}
	if f.count++; f.count == 1 {
		f.first = fmt.Errorf("row %d: %w", i, err)
	}
}

// err returns the error of the first row that failed.
func (f *failedRows) err() error {
	switch f.count {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("pgsvi: %w", f.first)
	}
	return fmt.Errorf("pgsvi: %d of the rows failed; the first: %w", f.count, f.first)
}

// classRow holds the predictions for the classes of a row.
type classRow struct {
	pi, d2 []float64 // E π_c and E π_c(1 − π_c)
	lse    float64   // E log Σ e^η
}

// classes calls f with the predictions for each row of a Softmax, or with NaN if a row has no
// prediction. Goroutines share the rows, so f is called concurrently for different rows.
func (p *Prediction) classes(f func(i int, r *classRow)) {
	k := latentsOf(p.lik)
	chunk := max(1, predictBlock/k)
	parallel.For(p.Len(), chunk, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		r := &classRow{pi: make([]float64, k), d2: make([]float64, k)}
		for i := lo; i < hi; i++ {
			if p.rowErr(i) != nil || p.err != nil {
				fillNaN(r.pi)
				fillNaN(r.d2)
				r.lse = math.NaN()
			} else {
				p.softmaxRow(i, r)
			}
			f(i, r)
		}
	})
}

// logProb returns log E π_c for scores with the means m. If π_c underflows, it returns the bound E
// log π_c.
func (r *classRow) logProb(c int, m []float64) float64 {
	return math.Max(math.Log(r.pi[c]), m[c]-r.lse)
}

// rowErr returns the reason why row i has no prediction, or nil if it has one.
func (p *Prediction) rowErr(i int) error {
	k := latentsOf(p.lik)
	for j := i * k; j < (i+1)*k; j++ {
		if err := checkLatent(p.m[j], p.v[j]); err != nil {
			return err
		}
	}
	return nil
}

// ProbSD stores, for each row, the posterior standard deviation of the probability p(y|η) of the
// response y, whose mean is Prob. It is the uncertainty that more data like the data of the fit
// would remove. It is NaN if Prob is NaN, and accurate to about 1e-7. If parameters of the
// Likelihood were learned, ProbSD includes their uncertainty, and is accurate to about 1% because
// it uses the lattice of ProbInterval. It panics if the Likelihood has densities instead of
// probabilities.
func (p *Prediction) ProbSD(dst []float64, y float64) []float64 {
	facts := factsOf(p.lik)
	if !facts.discrete() {
		panic(fmt.Sprintf(
			"pgsvi: %s has a density on %s, but ProbSD needs probabilities; use Quantile",
			typeName(p.lik), facts.Support.describe(0)))
	}
	dst = dense.Dest(dst, p.Len())
	if latentsOf(p.lik) > 1 {
		if !facts.contain(y) {
			fillNaN(dst)
			return dst
		}
		p.classes(func(i int, r *classRow) {
			q := r.pi[int(y)]
			dst[i] = math.Sqrt(math.Max(0, q*(1-q)-r.d2[int(y)]))
		})
		return dst
	}
	if p.mix != nil {
		p.mix.probSD(dst, y)
		return dst
	}
	if p.spread != nil {
		fillNaN(dst)
		of := dst
		p.probs(y, func(i int, probs []float64) {
			of[i] = stat.StdDev(probs, nil)
		})
		return dst
	}
	for i := range dst {
		lik := p.likOf(i)
		if dst[i] = math.NaN(); !factsOf(lik).contain(y) || p.err != nil {
			continue
		}
		first, _ := predictiveLogProb(lik, y, p.m[i], p.v[i])
		second, _ := predict.LogProb(squared{lik}, y, p.m[i], p.v[i])
		dst[i] = math.Exp(first) * math.Sqrt(math.Max(0, math.Expm1(second-2*first)))
	}
	return dst
}

// squared returns the squares of the probabilities of a Likelihood.
type squared struct{ Likelihood }

func (s squared) LogProb(y, eta float64) float64 { return 2 * s.Likelihood.LogProb(y, eta) }

// Decide returns, for each row, the response with the lowest expected cost. The Likelihood must
// have labels −1 and +1, the classes 0, 1, … of Softmax, or other counts with a largest response.
// With P = Probs the decision is
//
//	argmin_d Σ_y P(y) cost(y, d),
//
// and the first of equal responses. Element (y, d) of cost is the cost of deciding for d if the
// response is y. Rows and columns are in the order of the columns of Probs. Costs may be negative,
// which means a gain, and correct decisions may have costs. A nil cost means a cost of 1 for every
// mistake, so Decide returns the most probable response.
//
// The decision for a row without a prediction is NaN. The error wraps ErrParam if the Likelihood
// has no finite set of responses, ErrShape if cost has another size, and ErrNotFinite if a cost is
// not finite. Otherwise it is an error of Err.
func (p *Prediction) Decide(cost mat.Matrix) ([]float64, error) {
	first, step, n := decisions(p.lik)
	if n == 0 {
		return nil, fmt.Errorf(
			"pgsvi: %s has no finite set of responses, which Decide needs: %w",
			typeName(p.lik), ErrParam)
	}
	if cost != nil {
		if rows, cols := cost.Dims(); rows != n || cols != n {
			return nil, fmt.Errorf("pgsvi: the costs are %d×%d, but %d responses need %d×%d: %w",
				rows,
				cols, n, n, n, ErrShape)
		}
		for y := range n {
			for d := range n {
				if c := cost.At(y, d); math.IsNaN(c) || math.IsInf(c, 0) {
					return nil,
						fmt.Errorf(
							"pgsvi: the cost of deciding for response %d if it is %d is %v: %w",
							d, y, c, ErrNotFinite)
				}
			}
		}
	}
	decided := make([]float64, p.Len())
	if len(decided) == 0 {
		return decided, p.Err()
	}
	probs := p.Probs()
	parallel.For(len(decided), predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			decided[i] = first + step*float64(decide(probs.RawRowView(i), cost))
		}
	})
	for i := range decided {
		if math.IsNaN(probs.At(i, 0)) {
			decided[i] = math.NaN()
		}
	}
	return decided, p.Err()
}

// decisions returns the responses first + step·i, i < n, of a likelihood. n is 0 if it has
// infinitely many responses.
func decisions(lik Likelihood) (first, step float64, n int) {
	switch f := factsOf(lik); {
	case f.Support == SignLabels:
		return -1, 2, 2
	case f.Support == Counts && f.Most > 0:
		return 0, 1, int(f.Most) + 1
	}
	return 0, 0, 0
}

// decide returns the response with the lowest expected cost.
func decide(p []float64, cost mat.Matrix) (best int) {
	least := math.Inf(1)
	for d := range p {
		c := -p[d]
		if cost != nil {
			c = 0
			for y, q := range p {
				c += q * cost.At(y, d)
			}
		}
		if c < least {
			best, least = d, c
		}
	}
	return best
}

// paramSpread is the uncertainty of the rows of a Prediction due to learned hyperparameters. Row i
// has η = m + along_i·z + √(v − |along_i|²) ε and a likelihood with parameters θ̂ + Bz.
type paramSpread struct {
	b     [][]float64 // rows of B
	along []float64   // one element per row and z
}

// dims returns the number of elements of z, or 0 for a nil s.
func (s *paramSpread) dims() int {
	if s == nil {
		return 0
	}
	return len(s.b[0])
}

// rows returns s for the rows lo … hi−1.
func (s *paramSpread) rows(lo, hi int) *paramSpread {
	if s == nil {
		return nil
	}
	k := s.dims()
	return &paramSpread{s.b, s.along[lo*k : hi*k : hi*k]}
}

// spreadLatents are latents whose hyperparameters may have been learned.
type spreadLatents interface {
	latents
	// latentSpread is like latent, and also returns the uncertainty due to learned parameters of
	// the likelihood for the rows of x, or nil if no parameter was learned.
	latentSpread(m, v []float64, x mat.Matrix) *paramSpread
}

// spreadRow is a row of a Prediction with a paramSpread.
type spreadRow struct {
	lik   Likelihood
	m, sd float64 // sd is the standard deviation of η at θ̂
	along []float64
	b     [][]float64
}

// spreadRow returns row i of p, with an empty along if p has no paramSpread.
func (p *Prediction) spreadRow(i int) spreadRow {
	if p.spread == nil {
		return spreadRow{lik: p.likOf(i), m: p.m[i], sd: math.Sqrt(p.v[i])}
	}
	along := p.spread.rows(i, i+1).along
	v := p.v[i] - floats.Dot(along, along)
	return spreadRow{p.likOf(i), p.m[i], math.Sqrt(math.Max(0, v)), along, p.spread.b}
}

// moved returns the likelihood and the latent value at ε and z.
func (r *spreadRow) moved(eps float64, z []float64) (lik Likelihood, eta float64) {
	if r.b == nil {
		return r.lik, r.m + r.sd*eps
	}
	return movedParams(r.lik, r.b, z), r.m + r.sd*eps + floats.Dot(r.along, z)
}

// rowProbs returns the probabilities of the response y in row i at the points of a lattice over (ε,
// z), in increasing order.
func (p *Prediction) rowProbs(i int, y float64) []float64 {
	points := predict.LatticeNormals(p.spread.dims() + 1)
	probs, r := make([]float64, len(points)), p.spreadRow(i)
	for j, z := range points {
		lik, eta := r.moved(z[0], z[1:])
		probs[j] = math.Exp(lik.LogProb(y, eta))
	}
	slices.Sort(probs)
	return probs
}

// probs calls use with the probabilities of the response y at the points of a lattice over (ε, z),
// in increasing order, for each row of p that has a prediction. p must have a paramSpread.
func (p *Prediction) probs(y float64, use func(i int, probs []float64)) {
	k := p.spread.dims()
	points := predict.LatticeNormals(k + 1)
	var liks []Likelihood // at the points, if all rows have the same likelihood
	if p.each == nil {
		for _, z := range points {
			liks = append(liks, movedParams(p.lik, p.spread.b, z[1:]))
		}
	}
	parallel.For(p.Len(), 1, runtime.GOMAXPROCS(0), func(_, first, end int) {
		probs := make([]float64, len(points))
		for i := first; i < end; i++ {
			if p.rowErr(i) != nil || !factsOf(p.likOf(i)).contain(y) {
				continue
			}
			r := p.spreadRow(i)
			for j, z := range points {
				var lik Likelihood
				eta := r.m + r.sd*z[0] + floats.Dot(r.along, z[1:])
				if liks != nil {
					lik = liks[j]
				} else {
					lik = movedParams(r.lik, r.b, z[1:])
				}
				probs[j] = math.Exp(lik.LogProb(y, eta))
			}
			slices.Sort(probs)
			use(i, probs)
		}
	})
}

// predictionMix holds the parts of a Prediction that is a mixture.
type predictionMix struct {
	prob  []float64 // probabilities of the parts, or row by row if rows differ
	parts []*Prediction
	// m and v hold the latent moments of all parts, part by part, if the parts have one likelihood.
	// Otherwise they are nil.
	m, v []float64
}

// mixAt returns the parts of the prediction of post at x, and stores the moments of the latent values
// in mean and variance. It returns nil if post is not a mixture.
func mixAt(post latents, x mat.Matrix, mean, variance []float64) *predictionMix {
	if m := post.partsAt(x, mean, variance); m != nil {
		return m
	}
	prob, parts := post.components()
	if prob == nil {
		return nil
	}
	m := &predictionMix{prob: prob}
	for _, part := range parts {
		q := predictAt(part, x)
		m.parts = append(m.parts, &q)
	}
	post.latent(mean, variance, x)
	return m
}

// split makes the parts of m from the moments of n rows per part.
func (m *predictionMix) split(parts []latents, spread *paramSpread, n int) {
	all := make([]Prediction, len(parts))
	m.parts = make([]*Prediction, len(parts))
	for k, part := range parts {
		lo, hi := k*n, (k+1)*n
		all[k] = Prediction{lik: part.likelihood(), m: m.m[lo:hi:hi], v: m.v[lo:hi:hi],
			spread: spread}
		m.parts[k] = &all[k]
	}
}

// mixRows stores the moments of the mixture of parts with the moments m and v, part by part. It
// measures means from the first part, so that equal means leave no rounding error in the variance.
func mixRows(mean, variance, prob, m, v []float64) {
	n := len(mean)
	for i, first := range m[:n] {
		var shift, square float64
		for k, p := range prob {
			d := m[k*n+i] - first
			shift += p * d
			square += p * (v[k*n+i] + d*d)
		}
		mean[i], variance[i] = first+shift, max(square-shift*shift, 0)
	}
	finiteOrNaN(mean, variance)
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
	if m.m != nil {
		all := make([]float64, len(m.m))
		predictRows{lik: m.parts[0].lik, dst: all, all: y, mean: m.m, vari: m.v}.run()
		for k := range m.parts {
			floats.AddScaled(dst, m.prob[k], all[k*len(dst):(k+1)*len(dst)])
		}
		return
	}
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

// Row returns the prediction of row i only. It panics if there is no such row.
func (p *Prediction) Row(i int) *Prediction {
	if i < 0 || i >= p.Len() {
		panic(fmt.Sprintf("pgsvi: Row(%d) of a Prediction with %d rows", i, p.Len()))
	}
	k := latentsOf(p.lik)
	lo, hi := i*k, (i+1)*k
	q := &Prediction{lik: p.lik, m: p.m[lo:hi:hi], v: p.v[lo:hi:hi], err: p.err,
		spread: p.spread.rows(i, i+1), mix: p.mix.row(i)}
	if p.each != nil {
		q.lik = p.each[i]
	}
	return q
}

// mixedPosteriors are the parts of the posterior of a Gaussian process over hyperparameters.
type mixedPosteriors[P latents] struct {
	prob  []float64
	parts []P
}

// savedParts returns the probabilities of m, which may be nil, and its parts in their saved form.
func savedParts[P latents, S any](m *mixedPosteriors[P], save func(P) (S, error)) (prob []float64,
	parts []S, err error) {
	if m == nil {
		return nil, nil, nil
	}
	for _, p := range m.parts {
		part, err := save(p)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, part)
	}
	return m.prob, parts, nil
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

// finiteOrNaN sets mean and variance of a row to NaN if one of them is not finite, and negative
// variances to 0.
func finiteOrNaN(m, v []float64) {
	for i := range m {
		if math.IsNaN(m[i]+v[i]) || math.IsInf(m[i]+v[i], 0) {
			m[i], v[i] = math.NaN(), math.NaN()
		}
		v[i] = math.Max(0, v[i])
	}
}
