package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// division says how a sparse GP sees the terms of its kernel. A term of few features, such as
// Linear, can be seen whole: by one value for each of its weights, which are its values at inputs
// where one feature alone is not zero. Nothing of it is left to a residual variance, whatever the
// units of the columns. The rest is seen at inducing inputs.
type division struct {
	kernel Kernel
	whole  []wholeTerm // terms that are seen whole
	rest   Kernel      // what is left of the kernel; nil means nothing
	open   bool        // the rest has latent values, and is not noise alone
}

// wholeTerm is a term of a kernel that is seen whole.
type wholeTerm struct {
	kernel Kernel
	term   int // the number of the term of the kernel that it is, or is in
	param  int // the first of its parameters among those of the kernel
	basis  *mat.Dense
}

// undivided returns the division that sees all of k at inducing inputs.
func undivided(k Kernel) division { return division{kernel: k, rest: k, open: true} }

// divided returns the division of k, of inputs of d columns, that sees whole what can be.
func divided(k Kernel, d int) division {
	v, param := division{kernel: k}, 0
	var walk func(k Kernel, term int) (rest Kernel, some bool)
	walk = func(k Kernel, term int) (Kernel, bool) {
		if parts, ok := kernelParts(k); ok && isType[Sum](k) {
			rest, some := make(Sum, len(parts)), false
			for i, part := range parts {
				at := term
				if at < 0 {
					at = i
				}
				r, left := walk(part, at)
				rest[i], some = r, some || left
			}
			return rest, some
		}
		from := param
		param += numParams(k)
		if basis := basisOf(k, d); basis != nil {
			v.whole = append(v.whole, wholeTerm{k, max(0, term), from, basis})
			return silent{k}, false
		}
		v.open = v.open || !isType[White](k)
		return k, true
	}
	if rest, some := walk(k, -1); some {
		v.rest = rest
	}
	return v
}

// again returns the division of k, which is the kernel of v with other parameters, that v is.
func (v *division) again(k Kernel) division {
	if len(v.whole) == 0 {
		return undivided(k)
	}
	_, d := v.whole[0].basis.Dims()
	return divided(k, d)
}

// wholes returns the number of values by which terms are seen whole.
func (v *division) wholes() (n int) {
	for _, t := range v.whole {
		r, _ := t.basis.Dims()
		n += r
	}
	return n
}

// restVar returns the prior variances of the rest at the rows of x.
func (v *division) restVar(x *mat.Dense) []float64 {
	if v.rest == nil {
		n, _ := x.Dims()
		return make([]float64, n)
	}
	return PriorVar(nil, v.rest, x)
}

// noise returns the noise of a row, whose variance under the rest is self.
func (v *division) noise(row []float64, self float64) float64 {
	if n, ok := v.rest.(Noisy); ok {
		return n.SelfCov(row) - self
	}
	return 0
}

// basisOf returns inputs of d columns at which one feature of k alone is not zero, one for each
// feature. It is nil where k is not known to have such.
func basisOf(k Kernel, d int) *mat.Dense {
	own, _ := asNative(k)
	if isType[Product](k) {
		parts, _ := kernelParts(k)
		product := mat.NewDense(1, d, nil) // that of constants
		for _, factor := range parts {
			switch basis := basisOf(factor, d); {
			case basis == nil:
				return nil
			case mat.Norm(basis, 1) == 0: // a constant
			case mat.Norm(product, 1) > 0:
				return nil // products of features
			default:
				product = basis
			}
		}
		return product
	}
	f, ok := own.(featured)
	if !ok {
		return nil
	}
	at := f.basis(d)
	return mat.NewDense(len(at)/d, d, at)
}

// silent stands for a term of a Sum that is seen elsewhere: it has the parameters of the term, and
// no covariance.
type silent struct{ of Kernel }

// Cov implements Kernel.
func (silent) Cov(x, y []float64) float64 { return 0 }

// Params implements Kernel.
func (k silent) Params() []Param { return k.of.Params() }

// WithParams implements Kernel.
func (k silent) WithParams(values []float64) Kernel { return silent{k.of.WithParams(values)} }

// Grad implements Kernel.
func (k silent) Grad(dst, x, y []float64) float64 {
	clear(dst)
	return 0
}

func (silent) is(k Kernel) bool { return isType[silent](k) }

func (k silent) numParams() int { return numParams(k.of) }

func (silent) fill(dst []float64, _ *kernelTile) { clear(dst) }

func (silent) pull(_, _ []float64, _ *kernelTile) {}

func (silent) pullInputs(_, _ []float64, _ *kernelTile, _ []float64) {}

// lostNats estimates how many nats are lost at n rows if the given part of each of these
// variances is lost, where costs are the nats for each unit of variance.
func lostNats(rows int, part float64, variance, cost []float64) float64 {
	sum := 0.0
	for i, c := range cost {
		if lost := part * c * variance[i]; lost > 0 {
			sum += lost
		}
	}
	return math.Min(math.MaxFloat64, sum*float64(rows)/float64(len(cost)))
}

// inducing is what a sparse GP sees the prior through: M values, each of the latent function or of
// one term of it, at the rows of x, and the factor of their covariance, LLᵀ. The terms that are
// seen whole come first, each with its own block of L, and then the inducing inputs, at which the
// rest of the kernel is seen.
type inducing struct {
	division
	x      *mat.Dense
	l      []float64
	jitter float64 // what was added to the diagonal of the covariance of the inducing inputs
}

func (u *inducing) rank() int { return u.x.RawMatrix().Rows }

// inputs returns the inducing inputs, those of the whole kernel where its terms are all seen whole.
func (u *inducing) inputs() *mat.Dense {
	m, d := u.x.Dims()
	if n := u.wholes(); n < m {
		return u.x.Slice(n, m, 0, d).(*mat.Dense)
	}
	return u.x
}

// inducingPart is a part of the inducing values: those at rows lo … hi−1 of x are values of a term,
// which has a covariance with no others. The first of its parameters is number param of the kernel.
type inducingPart struct {
	kernel                Kernel
	number, lo, hi, param int
}

// parts calls f for the parts of u.
func (u *inducing) parts(f func(p inducingPart)) {
	lo := 0
	for i, t := range u.whole {
		n, _ := t.basis.Dims()
		f(inducingPart{t.kernel, i, lo, lo + n, t.param})
		lo += n
	}
	if m := u.rank(); lo < m {
		f(inducingPart{u.rest, len(u.whole), lo, m, 0})
	}
}

// term returns u for predictions of term i of its kernel, a Sum: the covariances of its values with
// those of the function that the term is.
func (u *inducing) term(i int) *inducing {
	k := sumTerm(u.kernel, i)
	if len(u.whole) == 0 {
		v := undivided(k)
		return &inducing{division: v, x: u.x, l: u.l}
	}
	v := division{kernel: k}
	if u.rest != nil {
		v.rest, v.open = sumTerm(u.rest, i), true
	}
	for _, t := range u.whole {
		if t.term != i {
			t.kernel = silent{t.kernel}
		}
		v.whole = append(v.whole, t)
	}
	return &inducing{division: v, x: u.x, l: u.l}
}

const (
	negligible    = 1e-13 // part of the variance of a row that is rounding
	leastRounding = 4e-15 // the same, where that much more counts in nats
	// roundings of a variance, and one for the root of the number of features, that what these
	// leave of it may be off by
	rounded       = 8
	notPosDef     = 1e-6 // part of a variance that is more than rounding
	mostInducing  = 500  // inducing inputs, where their number is ours to choose
	leastInducing = 100  // the same of many classes
	leaveInducing = 1e-8 // part of the total variance that these may leave
	leaveNats     = 1e-3 // what they may cost, too little to see in an ELBO
	hiddenNats    = 1e-8 // what variances that count as none may
	// rows by which the cost of a variance is guessed, where that of each row is not asked for
	worthRows = 1000

	// inducing inputs of rows that are gone through again and again, where their number is ours to
	// choose
	streamRank = 200
	chooseRows = 10_000 // rows of the sample that they are chosen from
	// at so much of the lengths of the kernel: spread over all of the rows, they suit longer and
	// shorter ones
	chooseLength = 0.3

	siteSteps   = 50   // most steps to the curvature of a site
	siteSettled = 1e-2 // relative change of a curvature that is near enough
	siteStride  = 2    // standard deviations that a step may move, for exponentials
	// prior variance above which a datum alone would escape to where log p is flat
	siteWidest = 10
)

// inducingCosts returns γ_n/2, the nats that a datum loses for each unit of variance of its latent
// value that the inducing inputs leave: γ_n = −E[∂² log p(y_n|η)] under the q of datum n alone,
//
//	argmax_{m,v} E[log p(y_n|η)] − KL(N(m, v)‖N(0, min(k_nn, 10))).
//
// For K classes γ_n is the most that those of a row have together, Σ_c π_c(1 − π_c) ≤ 1 − 1/K.
func inducingCosts(h *parallel.Halt, prior []float64, t *term.Terms) []float64 {
	cost := make([]float64, len(prior))
	if k := t.Latents(); k > 1 {
		floats.AddConst((1-1/float64(k))/2, cost)
		return cost
	}
	inBlocksUntil(h, len(cost), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			if n > lo && t.Y[n] == t.Y[n-1] && prior[n] == prior[n-1] {
				cost[n] = cost[n-1]
				continue
			}
			cost[n] = siteCurvature(likOf(t), t.Y[n], prior[n]) / 2
		}
	})
	return cost
}

// mostInducingOf returns mostInducing of so many classes, each of which has its own precision.
func mostInducingOf(classes int) int {
	if classes == 1 {
		return mostInducing
	}
	return max(leastInducing, int(mostInducing*math.Sqrt(2/float64(classes))))
}

// siteCurvature returns γ ≥ 0 of a single datum under the prior N(0, prior), roughly.
func siteCurvature(lik Likelihood, y, prior float64) (gamma float64) {
	if !(prior > 0) || math.IsInf(prior, 1) {
		return 0
	}
	prior = math.Min(prior, siteWidest)
	m, v := 0.0, math.Min(1, prior)
	for range siteSteps {
		e := ExpectLogProb(lik, y, m, v)
		if math.IsNaN(e.D1) || math.IsNaN(e.D2) {
			return gamma
		}
		before := gamma
		gamma = math.Max(0, math.Min(math.MaxFloat64, -e.D2))
		v = 1 / (1/prior + gamma)
		step := v * (e.D1 - m/prior)
		if reach := siteStride * (1 + math.Sqrt(v)); math.Abs(step) > reach {
			step = math.Copysign(reach, step)
		} else if math.Abs(gamma-before) <= siteSettled*gamma {
			break
		}
		m += step
	}
	return gamma
}

// worth says what a choice of inducing inputs may cost.
type worth struct {
	// nats of a unit of the variance of each row; nil means not to end before there are rank
	cost       []float64
	negligible float64 // part of a variance that counts as none
}

// sampleWorth returns the variances under k of some of the rows of x, whose terms are t, and what a
// unit of each costs. A nil k has none.
func sampleWorth(h *parallel.Halt, k Kernel, x *mat.Dense, t *term.Terms) (variance, cost []float64) {
	if k == nil {
		return nil, nil
	}
	rows, d := x.Dims()
	n := min(rows, worthRows)
	at, some := make([]int, n), mat.NewDense(n, d, nil)
	for i := range at {
		at[i] = i * rows / n
		some.SetRow(i, x.RawRowView(at[i]))
	}
	variance = PriorVar(nil, k, some)
	return variance, inducingCosts(h, variance, t.Sub(at))
}

// negligibleOf returns the part of a variance that counts as none: rounding, or less where that
// costs too many nats at so many rows, which have these variances and costs.
func negligibleOf(rows int, variance, cost []float64) float64 {
	most := lostNats(rows, 1, variance, cost)
	return math.Max(leastRounding, math.Min(negligible, hiddenNats/most))
}

// newInducing chooses rows of x, the one with the largest variance given those
// before it first, until there are rank or what they leave of every variance
// counts as none. With a cost in nats of the variance of each row, it is also enough
// that they leave little of the variance of all, and that this costs little. It
// returns the features of all rows, too: the first columns of the pivoted
// Cholesky factor of K(x, x), N×M. The error is that of h where that has stopped.
func newInducing(h *parallel.Halt, k Kernel, x *mat.Dense, rank int, w worth) (u *inducing, f []float64, err error) {
	n, d := x.Dims()
	rank = min(rank, n)
	cost := w.cost
	prior := PriorVar(nil, k, x)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return nil, nil, err
		}
	}
	pivots := dense.Pivots{
		Halt: h, Rank: rank, Negligible: w.negligible, NotPosDef: notPosDef,
		Columns: func(dst []float64, pivots, rows []int) {
			covByDifferences(k, dst, x.RawMatrix(), pivots, rows)
		},
	}
	if cost != nil {
		total := floats.Sum(prior)
		pivots.Enough = func(left []float64) bool {
			return floats.Sum(left) <= leaveInducing*total && floats.Dot(left, cost) <= leaveNats
		}
	}
	chosen, f, err := pivots.Factor(prior)
	var at *dense.PivotError
	switch {
	case err == nil:
	case !errors.As(err, &at):
		return nil, nil, err
	case math.IsNaN(at.Cov) || math.IsInf(at.Cov, 0):
		return nil, nil, fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", at.Pivot, at.Row, at.Cov, ErrNotFinite)
	default:
		return nil, nil, fmt.Errorf("pgsvi: covariance %v of rows %d and %d, with variances %v and %v, leaves the variance %v after %d inducing inputs; check the Kernel, or use fewer: %w", at.Cov, at.Pivot, at.Row, prior[at.Pivot], prior[at.Row], at.Left, at.Rank, ErrNotPosDef)
	}
	m := max(1, len(chosen))
	u = &inducing{division: undivided(k), x: mat.NewDense(m, d, nil), l: make([]float64, m*m)}
	if len(chosen) == 0 { // no row has any variance: one feature, which is zero
		u.x.SetRow(0, x.RawRowView(0))
		u.l[0] = 1
	}
	for j, p := range chosen {
		u.x.SetRow(j, x.RawRowView(p))
		copy(u.l[j*m:j*m+j+1], f[p*m:p*m+j+1])
	}
	return u, f, nil
}

// choose returns the inducing values of v, up to rank of them, with inducing inputs among the rows
// of x as newInducing chooses them, and the features of these rows.
func (v division) choose(h *parallel.Halt, x *mat.Dense, rank int, w worth) (u *inducing, f []float64, err error) {
	var rest *inducing
	if v.open {
		if rest, f, err = newInducing(h, v.rest, x, max(1, rank-v.wholes()), w); err != nil || len(v.whole) == 0 {
			return rest, f, err
		}
	}
	if u, err = v.with(rest); err != nil {
		return nil, nil, err
	}
	return u, u.beside(h, x, f), h.Err()
}

// at is choose of inducing inputs among the rows of z, up to rank of these beside what is seen
// whole, without the features.
func (v division) at(h *parallel.Halt, z *mat.Dense, rank int, w worth) (u *inducing, err error) {
	var rest *inducing
	if v.open {
		if rest, _, err = newInducing(h, v.rest, z, rank, w); err != nil {
			return nil, fmt.Errorf("pgsvi: inducing inputs: %w", bare{err})
		}
		if len(v.whole) == 0 {
			return rest, nil
		}
	}
	return v.with(rest)
}

// worthWhole is the part of leaveNats that rounding may hide of the rest of a kernel beside terms
// that could be seen whole.
const worthWhole = 1e-2

// divide returns the division of k for rows with the terms t at the rows of x, of n rows in all: a
// kernel of few features is seen whole, and so are terms of few features beside which rounding
// would hide the rest. At most so many features are.
func divide(h *parallel.Halt, k Kernel, x *mat.Dense, t *term.Terms, n, most int) division {
	_, d := x.Dims()
	v := divided(k, d)
	f := v.wholes()
	if f == 0 || f > most {
		return undivided(k)
	}
	if v.open {
		if 2*f > most {
			return undivided(k)
		}
		if variance, cost := sampleWorth(h, k, x, t); lostNats(n, negligible, variance, cost) <= worthWhole*leaveNats {
			return undivided(k)
		}
	}
	return v
}

// with returns the inducing values of v with the inducing inputs of rest, which is nil where there
// are none. The error wraps ErrNotFinite where the variance of a weight is not finite.
func (v division) with(rest *inducing) (*inducing, error) {
	first, m := v.wholes(), v.wholes()
	if rest != nil {
		m += rest.rank()
	}
	_, d := v.whole[0].basis.Dims()
	u := &inducing{division: v, x: mat.NewDense(m, d, nil), l: make([]float64, m*m)}
	if rest != nil {
		u.jitter = rest.jitter
		for i := range rest.rank() {
			u.x.SetRow(first+i, rest.x.RawRowView(i))
			copy(u.l[(first+i)*m+first:], rest.l[i*rest.rank():(i+1)*rest.rank()])
		}
	}
	at := 0
	for _, t := range v.whole {
		n, _ := t.basis.Dims()
		for i := range n {
			row := t.basis.RawRowView(i)
			u.x.SetRow(at, row)
			u.l[at*m+at] = math.Sqrt(t.kernel.Cov(row, row))
			if sd := u.l[at*m+at]; !(sd > 0) || math.IsInf(sd, 1) {
				return nil, fmt.Errorf("pgsvi: standard deviation of weight %d of %s is %v: %w", i, kernelName(t.kernel), sd, ErrNotFinite)
			}
			at++
		}
	}
	return u, nil
}

// beside returns the features of the rows of x, row by row, where f are those of the inducing
// inputs.
func (u *inducing) beside(h *parallel.Halt, x *mat.Dense, f []float64) []float64 {
	n, _ := x.Dims()
	m, first := u.rank(), u.wholes()
	all := make([]float64, n*m)
	inBlocksUntil(h, n, func(lo, hi int) {
		var row []float64
		for i := lo; i < hi; i++ {
			to := all[i*m : (i+1)*m]
			row = u.wholeFeatures(row[:0], x.RawRowView(i))
			copy(to, row)
			copy(to[first:], f[i*(m-first):(i+1)*(m-first)])
		}
	})
	return all
}

// wholeFeatures appends the features of a row under the terms that are seen whole.
func (v *division) wholeFeatures(dst, row []float64) []float64 {
	for _, t := range v.whole {
		n, _ := t.basis.Dims()
		for i := range n {
			at := t.basis.RawRowView(i)
			dst = append(dst, t.kernel.Cov(at, row)/math.Sqrt(t.kernel.Cov(at, at)))
		}
	}
	return dst
}

func checkPriorVar(i int, v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", i, i, v, ErrNotFinite)
	case v < 0:
		return fmt.Errorf("pgsvi: variance of row %d is %v: %w", i, v, ErrNotPosDef)
	}
	return nil
}

// inBlocks calls f(lo, hi) for blocks of rows that make up all n, on all cores.
func inBlocks(n int, f func(lo, hi int)) { inBlocksUntil(nil, n, f) }

// inBlocksUntil is inBlocks, which ends early where h has stopped.
func inBlocksUntil(h *parallel.Halt, n int, f func(lo, hi int)) {
	loop := parallel.Loop{Halt: h}
	loop.Run(n, predictBlock, runtime.GOMAXPROCS(0), parallel.Func(func(_, lo, hi int) { f(lo, hi) }))
}

// features stores rows lo … lo+t−1 of x in w.x and their features L⁻¹k(Z, x) in
// the columns of w.k, M×t. A row that is not finite is marked as not known.
func (u *inducing) features(w *predictWork, x mat.Matrix, lo, t int) {
	m, d := u.x.Dims()
	if w.x == nil || w.x.RawMatrix().Rows != t {
		w.x, w.k = mat.NewDense(t, d, nil), mat.NewDense(m, t, nil)
	}
	w.known = dense.Resize(w.known, t)
	to := w.x.RawMatrix()
	copyRows(to.Data, to.Stride, x, lo, lo+t)
	for i := range t {
		row := w.x.RawRowView(i)
		if _, w.known[i] = dense.AllFinite(row); !w.known[i] {
			clear(row)
		}
	}
	u.cross(w.k, w.x)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.l, m), w.k.RawMatrix())
}

// cross stores the covariances of the values of u and the latent values at the rows of x in dst,
// M×N.
func (u *inducing) cross(dst, x *mat.Dense) {
	_, d := u.x.Dims()
	n, _ := x.Dims()
	u.parts(func(p inducingPart) {
		CrossCov(dst.Slice(p.lo, p.hi, 0, n).(*mat.Dense), p.kernel, u.x.Slice(p.lo, p.hi, 0, d).(*mat.Dense), x)
	})
}

// inducingInputs returns a copy of z, as which errors know it, which must have rows of so many
// columns.
func inducingInputs(name string, z mat.Matrix, cols int) (*mat.Dense, error) {
	if err := checkMatrix(name, z); err != nil {
		return nil, err
	}
	rows, d := z.Dims()
	if rows == 0 {
		return nil, fmt.Errorf("pgsvi: %s has no rows: %w", name, ErrEmpty)
	}
	if d != cols {
		return nil, fmt.Errorf("pgsvi: x has %d columns, %s has %d: %w", cols, name, d, ErrShape)
	}
	zs := mat.DenseCopyOf(z)
	for i := range rows {
		if j, ok := dense.AllFinite(zs.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of %s is %v: %w", i, j, name, zs.At(i, j), ErrNotFinite)
		}
	}
	return zs, nil
}

// featuresAt returns the features of the rows of x, N×M row by row, which are of no use where h has
// stopped.
func featuresAt(h *parallel.Halt, u *inducing, x *mat.Dense) []float64 {
	n, m := x.RawMatrix().Rows, u.rank()
	f := make([]float64, n*m)
	inBlocksUntil(h, n, func(lo, hi int) {
		w := new(predictWork)
		u.features(w, x, lo, hi-lo)
		fma.Transpose(fma.Of(f[lo*m:hi*m], hi-lo, m, m),
			fma.Of(w.k.RawMatrix().Data, m, hi-lo, hi-lo))
	})
	return f
}

// linear returns the model of terms at the rows of x in the features f, N×M, of these, which it
// keeps, what the inducing inputs leave of the prior variances, and the largest of these.
func (u *inducing) linear(x *mat.Dense, terms *term.Terms, f []float64) (lin *site.LinearModel, residual, most float64, err error) {
	n, m := terms.Len(), u.rank()
	if i, ok := dense.AllFinite(f); !ok {
		return nil, 0, 0, fmt.Errorf("pgsvi: covariance of row %d and inducing input %d: %w", i/m, i%m, ErrNotFinite)
	}
	for i, v := range PriorVar(nil, u.kernel, x) {
		if err := checkPriorVar(i, v); err != nil {
			return nil, 0, 0, err
		}
		most = math.Max(most, v)
	}
	c, first := u.restVar(x), u.wholes()
	t := *terms
	t.Extra, t.Blur = c, make([]float64, n)
	for i, v := range c {
		row := f[i*m+first : (i+1)*m]
		if c[i] -= floats.Dot(row, row); c[i] < -notPosDef*v {
			return nil, 0, 0, fmt.Errorf("pgsvi: variance of row %d is %v given the inducing inputs: %w", i, c[i], ErrNotPosDef)
		}
		c[i], t.Blur[i] = math.Max(0, c[i])+u.noise(x.RawRowView(i), v), u.blur(v)
		residual += c[i]
	}
	lin = &site.LinearModel{
		X:     &design.Matrix{Rows: n, Cols: m, Dense: f},
		Terms: &t,
		Prior: unitPrior(m),
		Names: make([]string, m),
	}
	for j := range m {
		lin.Names[j] = fmt.Sprintf("feature %d", j)
	}
	return lin, residual, most, nil
}

// blur returns how far rounding may have moved what is left of a variance.
func (u *inducing) blur(variance float64) float64 {
	return dense.Epsilon * (rounded + math.Sqrt(float64(u.rank()))) * variance
}

// chooseInducing returns up to so many of the rows of x, those with the largest variance given
// those before, at shorter lengths.
func chooseInducing(h *parallel.Halt, k Kernel, x *mat.Dense, rank int) (*mat.Dense, error) {
	u, _, err := newInducing(h, shortened(k, chooseLength), x, rank, worth{negligible: negligible})
	if err != nil {
		return nil, err
	}
	return u.x, nil
}

// shortened returns k with its lengths multiplied.
func shortened(k Kernel, by float64) Kernel {
	params, roles := k.Params(), kernelRoles(k)
	values := make([]float64, len(params))
	for i, p := range params {
		if values[i] = p.Value; roles[i].kind == lengthParam {
			values[i] *= by
		}
	}
	return k.WithParams(values)
}

// sparseJitter is the part of the largest variance that is added to each variance in K(Z, Z)
// during a search for inducing inputs or hyper-parameters, so that inputs may be equal.
const sparseJitter = 1e-10

// newFactored returns the inducing inputs z with the factor of their covariance under k, or nil if
// there is none. z is kept.
func newFactored(h *parallel.Halt, k Kernel, z *mat.Dense) *inducing {
	return undivided(k).factored(h, z)
}

// factored returns the inducing values of v with the inducing inputs z, which is kept, with the
// jitter, or nil if their covariance has no factor.
func (v division) factored(h *parallel.Halt, z *mat.Dense) *inducing {
	if len(v.whole) > 0 {
		var rest *inducing
		if v.open {
			if rest = newFactored(h, v.rest, z); rest == nil {
				return nil
			}
		}
		u, err := v.with(rest)
		if err != nil {
			return nil
		}
		return u
	}
	k := v.kernel
	m, _ := z.Dims()
	u := &inducing{division: v, x: z, l: make([]float64, m*m)}
	crossCovUntil(h, mat.NewDense(m, m, u.l), k, z, z)
	most := 0.0
	for i := range m {
		most = math.Max(most, u.l[i*m+i])
	}
	u.jitter = sparseJitter * most
	for i := range m {
		u.l[i*m+i] += u.jitter
	}
	if !(most > 0) || !dense.CholeskyUntil(h, u.l, m) {
		return nil
	}
	for i := range m {
		clear(u.l[i*m+i+1 : (i+1)*m])
	}
	return u
}
