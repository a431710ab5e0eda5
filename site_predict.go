package pgsvi

import (
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mat"
)

// Prediction is what a posterior says of the responses at some rows. It holds the
// mean m and the variance v of the latent value of each row. Everything else
// follows from these and the Likelihood, row by row:
//
//	p(y|x) = ∫ p(y|η) N(η|m, v) dη.
//
// It is made by the method At of a posterior, or by NewPrediction. It is immutable
// and safe for concurrent use. Its methods store their results in the slices that
// they are given, where nil allocates, and panic if the length is not Len.
//
// A nil matrix, or a nil pointer, has no rows, and Err says so.
//
// A row without a latent mean or variance, such as one with a NaN under a GLM, has
// no prediction: its results are NaN, and Err names it.
type Prediction struct {
	lik  Likelihood
	m, v []float64
	err  error // of the parameters of lik, or of a matrix that is nil
}

// NewPrediction returns the prediction under lik for latent values N(mean_i,
// variance_i). Nil lik means GaussianNoise{}. Both slices are copied. It panics if
// their lengths differ. What is wrong with a row, or with a parameter of lik, is
// reported by Err.
func NewPrediction(lik Likelihood, mean, variance []float64) *Prediction {
	if len(mean) != len(variance) {
		panic(fmt.Sprintf("pgsvi: %d latent means and %d variances", len(mean), len(variance)))
	}
	if lik == nil {
		lik = GaussianNoise{}
	}
	m, v := latentSlices(len(mean))
	copy(m, mean)
	copy(v, variance)
	return &Prediction{lik, m, v, checkLikelihood(lik)}
}

const (
	predictBlock    = 128     // rows whose latent moments are taken at a time
	mixTol          = 1e-13   // error of an integral over η, where y|η is known
	mixTolNumeric   = 1e-10   // the same where y|η is integrated itself
	normalisedTol   = 1e-6    // by how much a sum of exp(LogProb) may differ from 1
	mostCounts      = 1 << 20 // counts that are summed up
	countsRemainder = 1e-17   // part of the sum that may be left out
)

// latents is a posterior of latent values.
type latents interface {
	// Cols returns the number of columns that new points must have.
	Cols() int
	likelihood() Likelihood
	// latent stores mean and variance of the latent value at each row of x. Neither
	// the blocks of rows that it works in nor the number of its workers change a bit.
	latent(m, v []float64, x mat.Matrix)
}

// predictAt is the method At of every posterior. It returns no pointer so that At
// is inlined, and post.At(x).Prob(…) needs no Prediction on the heap.
func predictAt(post latents, x mat.Matrix) Prediction {
	if err := checkMatrix("x", x); err != nil {
		return Prediction{lik: post.likelihood(), err: err}
	}
	rows := checkColumns(x, post.Cols())
	m, v := latentSlices(rows)
	post.latent(m, v, x)
	return Prediction{lik: post.likelihood(), m: m, v: v}
}

// checkColumns returns the number of rows of x. It panics if there are any and they
// have not so many columns.
func checkColumns(x mat.Matrix, cols int) (rows int) {
	rows, c := x.Dims()
	if rows > 0 && c != cols {
		panic(fmt.Sprintf("pgsvi: x has %d columns, the model has %d", c, cols))
	}
	return rows
}

// latentSlices returns two slices of length n.
func latentSlices(n int) (m, v []float64) {
	both := make([]float64, 2*n)
	return both[:n:n], both[n:]
}

// Len returns the number of rows.
func (p *Prediction) Len() int { return len(p.m) }

// Err returns why a row has no prediction, for the first row that has none, and nil
// if all have one. It wraps ErrNotFinite if a latent mean or variance is not a finite
// number, and ErrParam if a variance is negative or a parameter of the Likelihood is
// out of range.
func (p *Prediction) Err() error {
	if p.err != nil {
		return p.err
	}
	for i := range p.m {
		if err := checkLatent(p.m[i], p.v[i]); err != nil {
			return fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	return nil
}

// checkLatent reports an N(m, v) that is no distribution.
func checkLatent(m, v float64) error {
	switch {
	case expect.Valid(m, v):
		return nil
	case v < 0:
		return fmt.Errorf("the latent variance is %v: %w", v, ErrParam)
	}
	return fmt.Errorf("the latent mean is %v, the latent variance %v: %w", m, v, ErrNotFinite)
}

// Latent stores the latent means and variances, without noise.
func (p *Prediction) Latent(mean, variance []float64) (m, v []float64) {
	m, v = dense.Dest(mean, p.Len()), dense.Dest(variance, p.Len())
	copy(m, p.m)
	copy(v, p.v)
	return m, v
}

// Offset returns the prediction with offset_i added to the latent mean of row i, as
// GLMOptions.Offset does in a fit. It panics if there are not Len offsets.
func (p *Prediction) Offset(offset []float64) *Prediction {
	if len(offset) != p.Len() {
		panic(fmt.Sprintf("pgsvi: %d offsets for %d rows", len(offset), p.Len()))
	}
	m, v := latentSlices(p.Len())
	copy(v, p.v)
	for i, o := range offset {
		m[i] = p.m[i] + o
	}
	return &Prediction{p.lik, m, v, p.err}
}

// Prob stores p(y|x) of each row: the probability of y, or its density where y is a
// real number. It is NaN if y is outside the Support of the Likelihood, such as a 0
// for labels −1 and +1.
func (p *Prediction) Prob(dst []float64, y float64) []float64 {
	dst = dense.Dest(dst, p.Len())
	if !factsOf(p.lik).contain(y) {
		fillNaN(dst)
		return dst
	}
	predictRows{p.lik, dst, nil, y, p.m, p.v}.run()
	return dst
}

// LogProb stores log p(y_i|x_i) of each row in nats. It is meant for far tails, too:
// the probability itself need not be representable. It is NaN if y_i is outside the
// Support of the Likelihood. It panics if there are not Len responses; dst may be y.
//
// Closed forms are used for BernoulliProbit, GaussianNoise and Laplace, and the sums
// of ExpectLogProb for BernoulliLogit. For all others the integral is taken by adaptive
// quadrature about the mode of its integrand, which has to be the only one, or to
// have the others near η = m, 0 or y. The relative error of the probability is below
// 1e−11 for the likelihoods of this package, as tests against other quadrature show.
func (p *Prediction) LogProb(dst, y []float64) []float64 {
	if len(y) != p.Len() {
		panic(fmt.Sprintf("pgsvi: %d responses for %d rows", len(y), p.Len()))
	}
	dst = dense.Dest(dst, p.Len())
	predictRows{p.lik, dst, y, 0, p.m, p.v}.run()
	return dst
}

// predictShared is from how many rows on their predictions are shared between goroutines: those of the fastest likelihood take some 50 µs.
const predictShared = 1024

// predictRows are predictions of responses: log p(y_i|x_i) or, where y is nil, p(all|x_i), all being in the support. dst may be y.
type predictRows struct {
	lik        Likelihood
	dst, y     []float64
	all        float64
	mean, vari []float64
}

// run makes them, each for itself whatever the others are.
func (r predictRows) run() {
	if n := len(r.dst); n >= predictShared {
		shared := r // on the heap here alone
		parallel.For(n, predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) { shared.part(lo, hi) })
	} else {
		for lo := 0; lo < n; lo += predictBlock {
			r.part(lo, min(lo+predictBlock, n))
		}
	}
}

// part is run for rows lo … hi−1, a block.
func (r *predictRows) part(lo, hi int) {
	dst, m, v := r.dst[lo:hi], r.mean[lo:hi], r.vari[lo:hi]
	if r.y == nil {
		for i := range dst {
			dst[i] = r.all
		}
	} else {
		copy(dst, r.y[lo:hi])
	}
	if each, ok := r.lik.(eachPredictor); ok && eachOf(r.lik) != nil {
		each.predictEach(dst, m, v)
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

// Probs returns the probabilities of all responses, new: a row for each row, with a
// column for each of −1 and +1, or of 0, 1, …, Facts.Most. It panics if the Support
// of the Likelihood is another, or has no largest response.
func (p *Prediction) Probs() *mat.Dense {
	f := factsOf(p.lik)
	first, step, n := 0.0, 1.0, 0
	switch {
	case f.Support == SignLabels:
		first, step, n = -1, 2, 2
	case f.Support == Counts && f.Most > 0:
		n = int(f.Most) + 1
	default:
		panic(fmt.Sprintf("pgsvi: Probs of %s, whose responses are no finite set; see Prob", typeName(p.lik)))
	}
	if p.Len() == 0 {
		return &mat.Dense{}
	}
	dst, col := mat.NewDense(p.Len(), n, nil), make([]float64, p.Len())
	for j := range n {
		dst.SetCol(j, p.Prob(col, first+step*float64(j)))
	}
	return dst
}

// Moments stores mean and variance of y at each row, by the law of total variance:
//
//	E[y] = E[E[y|η]],   Var[y] = E[Var[y|η]] + Var[E[y|η]],   η ~ N(m, v).
//
// Closed forms are used for the likelihoods of this package. For others E[y|η] and
// Var[y|η] come from Responder, or from LogProb by integration over the Support of
// y, which costs an integral at each node.
//
// A row that fails is NaN, and the others are right. The error names the first that
// fails, and how many do. It wraps
//   - ErrNotFinite if the row has no latent mean or variance, or y no moments, or its
//     mean is above math.MaxFloat64. A variance of +Inf is no error;
//   - ErrParam if a latent variance is negative, a parameter of the Likelihood is out
//     of range, or exp(LogProb) does not integrate to 1 within 1e−6 over the Support.
func (p *Prediction) Moments(mean, variance []float64) (m, v []float64, err error) {
	m, v = dense.Dest(mean, p.Len()), dense.Dest(variance, p.Len())
	if p.err != nil {
		fillNaN(m)
		fillNaN(v)
		return m, v, p.err
	}
	var bad failedRows
	for i := range m {
		m[i], v[i], err = predictiveMoments(p.lik, p.m[i], p.v[i])
		bad.add(i, err)
	}
	return m, v, bad.err()
}

// fillNaN fills x with NaN.
func fillNaN(x []float64) {
	for i := range x {
		x[i] = math.NaN()
	}
}

// Closed forms of the likelihoods of this package, for η ~ N(m, v). They are not
// exported because quadrature gives the same results; they save time.
type (
	logProbPredictor interface {
		predictLogProb(y, m, v float64) (logp, bound float64)
	}
	// eachPredictor is an eachExpecter that predicts rows faster together, too.
	eachPredictor interface {
		// predictEach replaces the responses in logp by what predictiveLogProb says of each row, to the last bit, or NaN
		// where they are outside the support.
		predictEach(logp, m, v []float64)
	}
	momentPredictor interface {
		predictMoments(m, v float64) (mean, variance float64)
	}
)

// predictiveLogProb returns log ∫ p(y|η) N(η|m, v) dη and a bound on its absolute
// error, which is the relative error of the probability, for a y in the support. Both
// are NaN unless m is finite and v finite and not negative.
func predictiveLogProb(l Likelihood, y, m, v float64) (logp, bound float64) {
	if !expect.Valid(m, v) {
		return math.NaN(), math.NaN()
	}
	if v == 0 {
		logp = l.LogProb(y, m)
		return logp, 4 * special.Eps * math.Abs(logp)
	}
	if p, ok := l.(logProbPredictor); ok {
		return p.predictLogProb(y, m, v)
	}
	s := math.Sqrt(v)
	var k expect.Mode
	// N(m, v) has its mode at u = 0; p(y|η) may have its own near η = 0 or η = y.
	marks := [2]float64{-m / s, (y - m) / s}
	logp, bound = k.Integrate(func(u float64) float64 { return l.LogProb(y, m+s*u) - u*u/2 }, marks, 1/s)
	// η = m + su is rounded, which moves log p by its slope over the peak.
	at := func(u float64) float64 { return l.LogProb(y, m+s*u) }
	top := at(k.Mode)
	rise := math.Max(math.Abs(at(k.Mode+k.Width)-top), math.Abs(at(k.Mode-k.Width)-top))
	rise = math.Min(rise, 2)
	if round := special.Eps * (math.Abs(m/s) + math.Abs(k.Mode)) * 2 * rise / k.Width; round > 0 {
		bound += round
	}
	return logp - special.LogSqrt2Pi, bound
}

// predictiveMoments returns E[y] and Var[y] for η ~ N(m, v).
func predictiveMoments(l Likelihood, m, v float64) (mean, variance float64, err error) {
	if err := checkLatent(m, v); err != nil {
		return math.NaN(), math.NaN(), err
	}
	if p, ok := l.(momentPredictor); ok {
		mean, variance = p.predictMoments(m, v)
	} else {
		r, n := predictResponder(l)
		mean, variance = predictMix(r, m, v)
		if n != nil && n.err != nil {
			return math.NaN(), math.NaN(), n.err
		}
	}
	if math.IsNaN(mean) || math.IsInf(mean, 0) || math.IsNaN(variance) {
		n := math.NaN()
		return n, n, fmt.Errorf("the response of %s has no moments that a float64 holds at a latent mean of %v and variance of %v: %w", typeName(l), m, v, ErrNotFinite)
	}
	return mean, variance, nil
}

// predictMix integrates r.Moments over N(m, v).
func predictMix(r Responder, m, v float64) (mean, variance float64) {
	mu, sigma2 := r.Moments(m)
	if v == 0 || math.IsNaN(mu) {
		return mu, sigma2
	}
	s := math.Sqrt(v)
	f := func(u float64) [3]float64 {
		a, b := r.Moments(m + s*u)
		a -= mu
		p := special.NormalPDF(u)
		if p == 0 {
			return [3]float64{}
		}
		return [3]float64{p * a, p * a * a, p * b}
	}
	grow := func(u float64) float64 {
		a, b := r.Moments(m + s*u)
		return (a-mu)*(a-mu) + b
	}
	var buf [64]float64
	t := expect.Adaptive(f, expect.Reach(buf[:0], grow, sigma2+grow(1)+grow(-1), 0, m, s), predictTol(r))
	d := t.Sum[0]
	return mu + d, t.Sum[2] + math.Max(0, t.Sum[1]-d*d)
}

// predictTol is looser for a responder that integrates over y at every node.
func predictTol(r Responder) float64 {
	if _, ok := r.(*predictNumeric); ok {
		return mixTolNumeric
	}
	return mixTol
}

// predictResponder returns l itself, or the responder made of its LogProb.
func predictResponder(l Likelihood) (Responder, *predictNumeric) {
	if r, ok := l.(Responder); ok {
		return r, nil
	}
	n := &predictNumeric{l: l, support: factsOf(l).Support}
	return n, n
}

// predictNumeric is a Responder by integration of exp(LogProb) over y. The first
// η at which that does not give 1 is reported in err.
type predictNumeric struct {
	l       Likelihood
	support Support
	err     error
}

func (p *predictNumeric) check(eta, total float64) {
	if p.err == nil && !(math.Abs(total-1) <= normalisedTol) {
		p.err = fmt.Errorf("pgsvi: LogProb of %T is not normalised: exp(LogProb(y, %v)) sums to %v over y in %v; "+
			"normalise it, or give its Support in Facts if y lives elsewhere, or Responder: %w", p.l, eta, total, p.support, ErrParam)
	}
}

// LogProb implements Likelihood.
func (p *predictNumeric) LogProb(y, eta float64) float64 { return p.l.LogProb(y, eta) }

// Moments implements Responder.
func (p *predictNumeric) Moments(eta float64) (mean, variance float64) {
	if p.err != nil {
		return math.NaN(), math.NaN()
	}
	if p.support == SignLabels || p.support == Counts {
		var total, m2 float64
		p.each(math.Inf(1), eta, func(y, q float64) {
			// West's update of a weighted mean and sum of squares (1979).
			total += q
			if total > 0 {
				d := y - mean
				mean += d * q / total
				m2 += q * d * (y - mean)
			}
		})
		p.check(eta, total)
		return mean, m2 / total
	}
	var k expect.Mode
	f := p.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	c := p.support.fromLine(k.Mode)
	t := k.Moments(f, func(t float64) float64 { return p.support.fromLine(t) - c })
	p.check(eta, t[0])
	d := t[1] / t[0]
	return c + d, t[2]/t[0] - d*d
}

// CDF implements Responder.
func (p *predictNumeric) CDF(y, eta float64) float64 {
	if p.err != nil {
		return math.NaN()
	}
	if p.support == SignLabels || p.support == Counts {
		var total, below float64
		p.each(math.Inf(1), eta, func(x, q float64) {
			total += q
			if x <= y {
				below += q
			}
		})
		p.check(eta, total)
		return math.Min(1, below)
	}
	at := y
	switch p.support {
	case Positive, NonNegative:
		at = math.Log(y)
	case UnitInterval:
		at = math.Log(y) - math.Log1p(-y)
	}
	if math.IsNaN(at) || math.IsInf(at, -1) {
		return 0
	}
	var k expect.Mode
	f := p.density(eta)
	k.Find(f, [2]float64{0, eta}, 0)
	total := k.Moments(f, func(float64) float64 { return 0 })[0]
	p.check(eta, total)
	k.Clip(at)
	return math.Min(1, k.Moments(f, func(float64) float64 { return 0 })[0])
}

// each calls f with every y ≤ last that counts and its probability.
func (p *predictNumeric) each(last, eta float64, f func(y, q float64)) {
	if p.support == SignLabels {
		f(-1, math.Exp(p.l.LogProb(-1, eta)))
		f(1, math.Exp(p.l.LogProb(1, eta)))
		return
	}
	var total, before float64
	for y := 0.0; y <= last && y < mostCounts; y++ {
		q := math.Exp(p.l.LogProb(y, eta))
		f(y, q)
		total += q
		// Past the mode the rest is less than a geometric series. Past a first mode it
		// is not: what is missing from 1 is still to come.
		if q < before && q*q < countsRemainder*total*(before-q) && total > 1-normalisedTol {
			return
		}
		before = q
	}
}

// density returns the log density of y on the real line.
func (p *predictNumeric) density(eta float64) func(t float64) float64 {
	switch p.support {
	case Positive, NonNegative:
		return func(t float64) float64 { return p.l.LogProb(math.Exp(t), eta) + t }
	case UnitInterval:
		return func(t float64) float64 {
			a, _, _ := expect.SoftplusAt(t)
			b, _, _ := expect.SoftplusAt(-t)
			return p.l.LogProb(1/(1+math.Exp(-t)), eta) - a - b
		}
	}
	return func(t float64) float64 { return p.l.LogProb(t, eta) }
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
	return fmt.Errorf("pgsvi: the first of %d rows that fail: %w", f.count, f.first)
}
