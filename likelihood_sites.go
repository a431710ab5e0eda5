package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// siteView adapts a Likelihood for the sites.
type siteView struct {
	lik   Likelihood
	fast  fast
	facts Facts
}

var _ sparse.Likelihood = (*siteView)(nil)

// viewOf returns the view of l that the sites use.
func viewOf(l Likelihood) *siteView {
	return &siteView{lik: l, fast: fastOf(l), facts: factsOf(l)}
}

// likOf returns the Likelihood of t.
func likOf(t *term.Terms) Likelihood { return t.Lik.(*siteView).lik }

func (l *siteView) LogProb(y, eta float64) float64 { return l.lik.LogProb(y, eta) }

func (l *siteView) Expect(y, m, v float64) term.Expectation {
	return term.Expectation(ExpectLogProb(l.lik, y, m, v))
}

func (l *siteView) Concave() bool { return l.facts.LogConcave }

func (l *siteView) Real() bool { return l.facts.Support == RealLine }

func (l *siteView) Each() *term.Many {
	if l.fast.many.Expect == nil {
		return nil
	}
	return &l.fast.many
}

func (l *siteView) Rated() func(y float64) (sign, origin, slope float64) { return l.fast.rate }

// Noise implements term.Noisy.
func (l *siteView) Noise() float64 {
	if noise, ok := l.lik.(GaussianNoise); ok {
		return positiveOr(noise.Var, 1)
	}
	return 0
}

// SelfBounded implements term.Likelihood.
func (l *siteView) SelfBounded() bool { return l.facts.selfBounded }

// Bounded implements term.Likelihood.
func (l *siteView) Bounded() bool { return l.facts.bounded }

// Rule implements sparse.Likelihood.
func (l *siteView) Rule(t *term.Terms) { ruled(t) }

// LogProbs implements term.Rowwise. It returns nil if the likelihood has no fast path, or if a
// response or a parameter is not valid.
func (l *siteView) LogProbs(y []float64) logprob.Rows {
	for i, yn := range y {
		if !l.facts.contain(yn) || i == 0 && math.IsNaN(l.lik.LogProb(yn, 0)) {
			return nil
		}
	}
	if l.fast.logProbs == nil {
		return nil
	}
	return l.fast.logProbs(y)
}

// LogProbSum implements term.Rowwise.
func (l *siteView) LogProbSum(y []float64) logprob.Sum {
	if l.fast.logProbSum == nil || l.LogProbs(y) == nil {
		return nil
	}
	return l.fast.logProbSum(y)
}

func (l *siteView) Identify(d *save.Digest) { digestValue(d, l.lik) }

// newSiteTerms returns the terms of the responses y under lik. It keeps y. A nil lik means
// GaussianNoise{}. The error names a parameter or response that is not valid.
func newSiteTerms(lik Likelihood, y []float64) (*term.Terms, error) {
	if lik == nil {
		lik = GaussianNoise{}
	}
	if s, ok := lik.(Softmax); ok {
		s, err := s.seen(y)
		if err != nil {
			return nil, err
		}
		lik = s
	}
	if err := checkLabels(lik, y); err != nil {
		return nil, err
	}
	return &term.Terms{Lik: viewOf(lik), Y: y, K: latentsOf(lik)}, nil
}

// under returns the terms with the same responses under lik.
func under(t *term.Terms, lik Likelihood) *term.Terms {
	u := *t
	u.Lik, u.Rule, u.Missed = viewOf(lik), nil, nil
	u.SetOwn()
	return &u
}

// runOf returns the terms of t for a run of its own, with a nestedRule if that saves time.
func runOf(t *term.Terms) (*term.Terms, *nestedRule) {
	own, r := *t, newNestedRule(likOf(t), t.Len())
	own.Model = t
	own.SetOwn()
	if r != nil {
		own.Rule = r.expect
	}
	return &own, r
}

// ruled gives t, the terms of a block of rows or of an evaluation of Learn, its own nestedRule if
// there are enough terms to check the rule; see term.Terms.Sure.
func ruled(t *term.Terms) *term.Terms {
	if t.Len() < nestedAlone {
		return t
	}
	if r := newNestedRule(likOf(t), t.Len()); r != nil {
		t.Rule, t.Missed = r.expect, r.failed
	}
	return t
}

// Responses are far from 0 if the mean exceeds farResponse standard deviations of the responses
// and, if the prior is given, farPrior standard deviations of the prior. A smooth latent function
// may have any mean if there are fewer than farRows rows.
const (
	farResponse = 5
	farPrior    = 3
	farRows     = 10
)

// farFrom0 warns if the responses are far from 0, in units of the latent values, and the prior
// returns to 0 away from the rows. prior is the standard deviation of the prior. It is learned if
// learned is true.
func farFrom0(t *term.Terms, prior float64, learned bool) []string {
	mean, sd := meanResponse(t)
	far := math.Abs(mean)
	near := math.IsInf(prior, 1) || !learned && far <= farPrior*prior
	if near || t.Len() < farRows || !(far > farResponse*sd) {
		return nil
	}
	return []string{fmt.Sprintf(
		"the responses have mean %.4g and standard deviation %.3g, but a GP with this kernel k "+
			"returns to 0 away from the rows; use pgsvi.Sum{pgsvi.Constant{Scale: %.2g}, k}, or "+
			"subtract the mean", mean, sd, far)}
}

// meanResponse returns the mean and the standard deviation of the responses minus their offsets if
// they have the unit of the latent values, and 0 otherwise.
func meanResponse(t *term.Terms) (mean, sd float64) {
	switch likOf(t).(type) {
	case GaussianNoise, StudentT, Laplace:
	default:
		return 0, 0
	}
	y := slices.Clone(t.Y)
	for i, o := range t.Offset {
		y[i] -= o
	}
	return stat.MeanStdDev(y, nil)
}

// checkRow returns an error, without the name of the package, unless row, with number n, is valid
// for the given number of columns under lik.
func checkRow(row *Row, cols int, lik Likelihood, n int) error {
	switch {
	case row.Ind == nil && len(row.Val) != cols:
		return fmt.Errorf("row %d has %d values, but the model has %d columns: %w",
			n, len(row.Val), cols,
			ErrShape)
	case row.Ind != nil && len(row.Ind) != len(row.Val):
		return fmt.Errorf("row %d has %d columns but %d values: %w", n, len(row.Ind), len(row.Val),
			ErrShape)
	case row.Weight < 0:
		return fmt.Errorf("row %d has weight %v; weights must not be negative: %w",
			n, row.Weight, ErrParam)
	}
	for k, j := range row.Ind {
		if j < 0 || j >= cols || k > 0 && j <= row.Ind[k-1] {
			return fmt.Errorf("row %d has column %d; columns must increase and be below %d: %w", n,
				j, cols, ErrShape)
		}
	}
	if k, ok := dense.AllFinite(row.Val); !ok {
		return fmt.Errorf("row %d, column %d is %v: %w", n, dense.Index(row.Ind, k), row.Val[k],
			ErrNotFinite)
	}
	for _, v := range [...]float64{row.Y, row.Offset, row.Weight} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("row %d has response %v, offset %v and weight %v; all must be "+
				"finite: %w", n, row.Y,
				row.Offset, row.Weight, ErrNotFinite)
		}
	}
	if err := checkLabel(lik, row.Y); err != nil {
		return fmt.Errorf("row %d: %w", n, err)
	}
	return nil
}

// estimateTerms stores in x the estimates of est for the terms in batch, under the marginals x.m
// and x.v. If standIn is true, unusable derivatives are replaced by derivatives under narrower
// marginals, as in expectSite. The error is an error of est, or wraps ErrNotFinite and names the
// first term with unusable derivatives.
func estimateTerms(t *term.Terms, x *term.Estimates, batch []int, est SiteEstimator, standIn bool,
	rng *rand.Rand) error {
	if t.K > 1 {
		return estimateMany(t, x, batch)
	}
	for i := range x.M {
		y, o, _, c := t.Term(dense.Index(batch, i))
		x.Y[i], x.At[i], x.Wide[i] = y, x.M[i]+o, x.V[i]+c
	}
	defer parallel.At(nil, func(i int) string { return t.Name(dense.Index(batch, i)) })
	if _, ok := est.(exactEstimator); ok && t.Rule != nil {
		for i, y := range x.Y {
			e := t.Rule(y, x.At[i], x.Wide[i], true)
			x.E[i], x.D1[i], x.D2[i] = e.Value, e.D1, e.D2
		}
	} else if err := est.EstimateSites(x.E, x.D1, x.D2, likOf(t), x.Y, x.At, x.Wide,
		rng); err != nil {
		return err
	}
	for i := range x.M {
		n := dense.Index(batch, i)
		if t.Weight != nil {
			w := t.Weight[n]
			x.E[i], x.D1[i], x.D2[i] = w*x.E[i], w*x.D1[i], w*x.D2[i]
		}
		if e := (term.Expectation{Value: x.E[i], D1: x.D1[i], D2: x.D2[i]}); standIn &&
			!term.Usable(e, x.V[i]) {
			if e, at, u := t.StandIn(n, x.M[i], x.V[i], e, term.MostNats); term.Usable(e, u) {
				x.D1[i], x.D2[i] = e.D1-e.D2*(at-x.M[i]), e.D2
			}
		}
		if d := x.D1[i] + x.D2[i]; math.IsNaN(d) || math.IsInf(d, 0) {
			if _, _, ok := term.HoleOf(t.Lik, x.Y[i], x.At[i], x.Wide[i]); ok {
				return fmt.Errorf("%s: %w", t.Explain(n, x.M[i], x.V[i]), ErrNotFinite)
			}
			return fmt.Errorf(
				"%s under N(%.4g, %.4g) has derivatives %v, %v; use Exact(), no step size, or a "+
					"narrower prior: %w", t.Describe(n), x.M[i], x.V[i], x.D1[i], x.D2[i],
				ErrNotFinite)
		}
	}
	return nil
}

// siteSmooth is f = −Σ_n w_n E_q[log p(y_n|η_n)], η_n = x_nᵀz, over a Gaussian q. Each term depends
// on one marginal of q, so every estimator takes expectations of one number at a time. Values are
// exact.
type siteSmooth struct {
	terms *term.Terms
	x     [][]float64 // x_n; nil means the unit vectors
	est   SiteEstimator
	exact bool // est ignores randomness
	// best finds the best full Gaussian under prior. It is nil if that Gaussian is not known.
	best  func(c term.Crew) (term.Sought, *mat.SymDense, error)
	prior *Gaussian
}

// siteConcave implements sited.
func (f *siteSmooth) siteConcave() (lik any, concave bool) {
	return likOf(f.terms), factsOf(likOf(f.terms)).LogConcave
}

// dim returns the dimension of z.
func (f *siteSmooth) dim() int {
	if f.x == nil {
		return f.terms.Len()
	}
	return len(f.x[0])
}

// value returns η_n at z.
func (f *siteSmooth) value(z []float64, n int) float64 {
	if f.x == nil {
		return z[n]
	}
	return floats.Dot(f.x[n], z)
}

// marginal returns the mean and the variance of η_n under q.
func (f *siteSmooth) marginal(q normal.Form, n int) (m, v float64) {
	if f.x == nil {
		return q.MeanAt(n), q.CovAt(n, n)
	}
	return q.Marginal(f.x[n])
}

// Setup implements Smooth. The error wraps ErrShape unless q is a Gaussian with the dimension of z.
func (f *siteSmooth) Setup(q Dist) (n int, exact bool, err error) {
	if formOf(q) == nil || q.Dim() != f.dim() {
		return 0, f.exact,
			fmt.Errorf("pgsvi: terms of %d latent values need a Gaussian q of that dimension, "+
				"but q is a %T of dimension %d: %w", f.dim(), q, q.Dim(), ErrShape)
	}
	return f.terms.Len(), f.exact, nil
}

// Grad implements Smooth. Let e_n = w_n E_q[log p(y_n|η_n)], with derivatives α and −γ with respect
// to the mean of η_n. Then −∂e_n/∂m = −αx_n and −∂e_n/∂V = ½γ x_n x_nᵀ.
func (f *siteSmooth) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	n := formOf(q)
	b := estimate.NewBatch(batch, f.terms.Len())
	var x term.Estimates
	x.Resize(b.N)
	for i := range b.N {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		x.M[i], x.V[i] = f.marginal(n, b.Index(i))
	}
	if err := estimateTerms(f.terms, &x, batch, f.est, false, env.rng()); err != nil {
		return math.NaN(), err
	}
	var value float64
	for i := range b.N {
		if e := x.E[i]; math.IsNaN(e) || math.IsInf(e, 0) {
			return math.NaN(), fmt.Errorf("%s: %w", f.terms.Explain(b.Index(i), x.M[i], x.V[i]),
				ErrNotFinite)
		}
		value -= b.Scale * x.E[i]
		x.D1[i] *= -b.Scale
		x.D2[i] *= -b.Scale
	}
	f.collect(dst, q, &x, b)
	return value, nil
}

// collect stores the gradient in dst. The derivatives with respect to the means of the terms of b
// are x.d1, and those with respect to their variances are half of x.d2.
func (f *siteSmooth) collect(dst []float64, q Dist, x *term.Estimates, b estimate.Batch) {
	if g := factorOf(q); g != nil && f.x == nil {
		// V_nn = Σ_j L_nj², so the gradient of term n has only row n of L
		clear(dst)
		for i := range b.N {
			j := b.Index(i)
			dst[j] += x.D1[i]
			d := g.Dim()
			k := d + j*(j+1)/2
			for a, l := range g.Lower()[j*d : j*d+j+1] {
				w := x.D2[i] * l
				if a == j && g.Coords() == normal.LogCholesky {
					w *= l
				}
				dst[k+a] += w
			}
		}
		return
	}
	n := formOf(q)
	gm, gv := make([]float64, n.Dim()), make([]float64, n.NumGradV())
	if f.x != nil {
		for i := range b.N {
			row := f.x[b.Index(i)]
			floats.AddScaled(gm, x.D1[i], row)
			n.AddOuter(gv, 0.5*x.D2[i], row, row)
		}
		n.FromMomentGrad(dst, gm, gv)
		return
	}
	stride := n.Dim() + 1 // from one diagonal element to the next
	if len(gv) == len(gm) {
		stride = 1
	}
	for i := range b.N {
		j := b.Index(i)
		gm[j] += x.D1[i]
		gv[j*stride] += 0.5 * x.D2[i]
	}
	n.FromMomentGrad(dst, gm, gv)
}

// guide implements guided.
func (f *siteSmooth) guide(dst []float64, q Dist, halt *parallel.Halt) (bool, error) {
	n := formOf(q)
	b := estimate.NewBatch(nil, f.terms.Len())
	var x term.Estimates
	x.Resize(b.N)
	astray := false
	var i int
	defer parallel.At(&i, f.terms.Name)
	for ; i < b.N && !halt.Stopped(); i++ {
		m, v := f.marginal(n, i)
		e, at, u := f.terms.Expectation(i, m, v), m, v
		if !term.Usable(e, v) {
			e, at, u = f.terms.StandIn(i, m, v, e, term.MostNats)
			astray = true
		}
		if !term.Usable(e, u) {
			return false, nil
		}
		x.D1[i], x.D2[i] = -e.D1+e.D2*(at-m), -e.D2
	}
	if !astray {
		return false, halt.Err()
	}
	f.collect(dst, q, &x, b)
	return true, halt.Err()
}

// seek implements seeker.
func (f *siteSmooth) seek(q Dist, prior ExpFamily, workers int, halt *parallel.Halt) (term.Sought,
	error) {
	g, ok := q.(*Gaussian)
	if !ok || g.isDiagonal() || f.best == nil ||
		!slices.Equal(prior.Natural(nil), f.prior.Natural(nil)) {
		return term.Sought{}, nil
	}
	found, v, err := f.best(term.Crew{Workers: workers, Halt: halt})
	if err != nil {
		return found, err
	}
	full := g.full()
	mean, cov := full.Next()
	copy(mean, found.Mean)
	for i := range found.Mean {
		for j := range found.Mean {
			cov[i*len(found.Mean)+j] = v.At(i, j)
		}
	}
	return found, full.CommitMoments()
}

// Value returns f over all terms, and a bound on its error.
func (f *siteSmooth) Value(ctx context.Context, _ *Env, q Dist) (value, bound float64, err error) {
	g := formOf(q)
	var n int
	defer parallel.At(&n, f.terms.Name)
	for n = range f.terms.Len() {
		if ctx.Err() != nil {
			return math.NaN(), math.NaN(), context.Cause(ctx)
		}
		m, v := f.marginal(g, n)
		e := f.terms.Expectation(n, m, v)
		value -= e.Value
		bound += e.Err + f.rounding(g, n, e)
	}
	return value, bound, nil
}

// rounding bounds the effect of rounding of xᵀm and xᵀVx on e, the expectation of term n. If the
// features have raw units, xᵀm and xᵀVx are small differences of large numbers.
func (f *siteSmooth) rounding(q normal.Form, n int, e term.Expectation) float64 {
	if f.x == nil {
		return 0
	}
	var mean, sd float64
	for j, x := range f.x[n] {
		mean += math.Abs(x * q.MeanAt(j))
		sd += math.Abs(x) * math.Sqrt(q.CovAt(j, j))
	}
	return dense.Epsilon * (math.Abs(e.D1)*mean + math.Abs(e.D2)*sd*sd)
}

// digest adds the terms and the estimator to d.
func (f *siteSmooth) digest(d *save.Digest) {
	d.Text(fmt.Sprintf("%T %+v", f.est, f.est))
	f.terms.Digest(d)
	d.Int(len(f.x))
	for _, x := range f.x {
		d.Float(x...)
	}
}

// softmaxTol times the number of classes is the accuracy of expectations of Softmax.
const softmaxTol = 1e-11

// ExpectSoftmax implements term.Softmax. It treats two classes as a logit of the difference of the
// scores, which gives small relative errors also in the tails, and one curvature for both classes.
func (l *siteView) ExpectSoftmax(y, tol float64, m, v, d1, d2 []float64) (value, bound float64) {
	if len(m) == 2 {
		c := int(y)
		f, _, p, _, h := softplusBoth(m[c]-m[1-c], v[0]+v[1])
		d1[c], d1[1-c], d2[0], d2[1] = p, -p, -h, -h
		return -f, logitErr * f
	}
	lse, bound := expect.SoftmaxWithin(max(tol, softmaxTol), m, v, d1, d2)
	for c := range d1 {
		d1[c], d2[c] = -d1[c], -d2[c]
	}
	c := int(y)
	d1[c]++
	return m[c] - lse, bound + 8*special.Eps*(math.Abs(m[c])+math.Abs(lse))
}

// Curvature implements term.Softmax.
func (l *siteView) Curvature(m, v, h []float64) {
	k := len(m)
	if k == 2 {
		_, _, _, _, g := softplusBoth(m[1]-m[0], v[0]+v[1])
		h[0], h[1], h[2], h[3] = g, -g, -g, g
		return
	}
	expect.SoftmaxCross(m, v, nil, h)
	for i := range h {
		if i/k != i%k {
			h[i] = -h[i]
		}
	}
}

var _ term.Softmax = (*siteView)(nil)

// estimateMany is the exact estimate for terms with several latent values.
func estimateMany(t *term.Terms, x *term.Estimates, batch []int) error {
	k := t.K
	var scratch []float64
	for i := 0; i < len(x.M)/k; i++ {
		n, lo, hi := dense.Index(batch, i), i*k, (i+1)*k
		clear(x.E[lo:hi])
		x.E[lo], _, scratch = t.ExpectSoftmax(n, 0, x.M[lo:hi], x.V[lo:hi], x.D1[lo:hi],
			x.D2[lo:hi], scratch)
		if math.IsNaN(x.E[lo]) {
			return fmt.Errorf("%s: %w", t.Explain(n, x.M[lo], x.V[lo]), ErrNotFinite)
		}
	}
	return nil
}
