package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// inducing is a set of M inputs and the factor of their covariance, K(Z, Z) = LLᵀ.
type inducing struct {
	kernel Kernel
	x      *mat.Dense
	l      []float64
}

func (u *inducing) rank() int { return u.x.RawMatrix().Rows }

const (
	negligible    = 1e-13 // part of the variance of a row that is rounding
	notPosDef     = 1e-6  // part of a variance that is more than rounding
	mostInducing  = 500   // inducing inputs, where their number is ours to choose
	leaveInducing = 1e-8  // part of the total variance that these may leave
	leaveNats     = 1e-3  // what they may cost, too little to see in an ELBO

	streamRank   = 200    // inducing inputs of rows that are gone through again and again, where their number is ours to choose
	chooseRows   = 10_000 // rows of the sample that they are chosen from
	chooseLength = 0.3    // at so much of the lengths of the kernel: spread over all of the rows, they suit longer and shorter ones

	siteSteps   = 50   // most steps to the curvature of a site
	siteSettled = 1e-2 // relative change of a curvature that is near enough
	siteStride  = 2    // standard deviations that a step may move, for exponentials
	siteWidest  = 10   // prior variance above which a datum alone would escape to where log p is flat
)

// inducingCosts returns γ_n/2, the nats that a datum loses for each unit of variance of its latent
// value that the inducing inputs leave: γ_n = −E[∂² log p(y_n|η)] under the q of datum n alone,
//
//	argmax_{m,v} E[log p(y_n|η)] − KL(N(m, v)‖N(0, min(k_nn, 10))).
func inducingCosts(h *parallel.Halt, gp *GP) []float64 {
	prior, t := PriorVar(nil, gp.kernel, gp.x), gp.terms
	cost := make([]float64, len(prior))
	inBlocksUntil(h, len(cost), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			if n > lo && t.y[n] == t.y[n-1] && prior[n] == prior[n-1] {
				cost[n] = cost[n-1]
				continue
			}
			cost[n] = siteCurvature(t.lik, t.y[n], prior[n]) / 2
		}
	})
	return cost
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

// newInducing chooses rows of x, the one with the largest variance given those
// before it first, until there are rank or what they leave of every variance is
// rounding. With a cost in nats of the variance of each row, it is also enough
// that they leave little of the variance of all, and that this costs little. It
// returns the features of all rows, too: the first columns of the pivoted
// Cholesky factor of K(x, x), N×M. The error is that of h where that has stopped.
func newInducing(h *parallel.Halt, k Kernel, x *mat.Dense, rank int, cost []float64) (u *inducing, f []float64, err error) {
	n, d := x.Dims()
	rank = min(rank, n)
	prior := PriorVar(nil, k, x)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return nil, nil, err
		}
	}
	pivots := dense.Pivots{
		Halt: h, Rank: rank, Negligible: negligible, NotPosDef: notPosDef,
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
	u = &inducing{kernel: k, x: mat.NewDense(m, d, nil), l: make([]float64, m*m)}
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
	CrossCov(w.k, u.kernel, u.x, w.x)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.l, m), w.k.RawMatrix())
}

// inducingInputs returns a copy of z, as which errors know it, which must have rows of so many columns.
func inducingInputs(name string, z mat.Matrix, cols int) (*mat.Dense, error) {
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

// featuresAt returns the features of the rows of x, N×M row by row, which are of no use where h has stopped.
func featuresAt(h *parallel.Halt, u *inducing, x *mat.Dense) []float64 {
	n, m := x.RawMatrix().Rows, u.rank()
	f := make([]float64, n*m)
	inBlocksUntil(h, n, func(lo, hi int) {
		w := new(predictWork)
		u.features(w, x, lo, hi-lo)
		for i := lo; i < hi; i++ {
			mat.Col(f[i*m:(i+1)*m], i-lo, w.k)
		}
	})
	return f
}

// linear returns the model of terms at the rows of x in the features f, N×M, of these, which it keeps, what the inducing inputs leave of the prior
// variances, and the largest of these.
func (u *inducing) linear(x *mat.Dense, terms *siteTerms, f []float64) (lin *linearModel, residual, most float64, err error) {
	n, m := terms.len(), u.rank()
	if i, ok := dense.AllFinite(f); !ok {
		return nil, 0, 0, fmt.Errorf("pgsvi: covariance of row %d and inducing input %d: %w", i/m, i%m, ErrNotFinite)
	}
	c := PriorVar(nil, u.kernel, x)
	for i, v := range c {
		if err := checkPriorVar(i, v); err != nil {
			return nil, 0, 0, err
		}
		most = math.Max(most, v)
		row := f[i*m : (i+1)*m]
		if c[i] -= floats.Dot(row, row); c[i] < -notPosDef*v {
			return nil, 0, 0, fmt.Errorf("pgsvi: variance of row %d is %v given the inducing inputs: %w", i, c[i], ErrNotPosDef)
		}
		c[i] = math.Max(0, c[i])
		if _, noisy := u.kernel.(Noisy); noisy {
			c[i] += kernelSelf(u.kernel, x.RawRowView(i)) - v
		}
		residual += c[i]
	}
	t := *terms
	t.extra = c
	lin = &linearModel{
		x:     &design{rows: n, cols: m, dense: f},
		terms: &t,
		prior: unitPrior(m),
		names: make([]string, m),
	}
	for j := range m {
		lin.names[j] = fmt.Sprintf("feature %d", j)
	}
	return lin, residual, most, nil
}

// chooseInducing returns up to so many of the rows of x, those with the largest variance given those before, at shorter lengths.
func chooseInducing(h *parallel.Halt, k Kernel, x *mat.Dense, rank int) (*mat.Dense, error) {
	u, _, err := newInducing(h, shortened(k, chooseLength), x, rank, nil)
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

// sparseJitter is the part of a variance that is added to it in K(Z, Z), so that inducing inputs may be equal: the bound stays one, that of
// inducing values seen with so much noise, and costs less than 1e-3 nats.
const sparseJitter = 1e-10

// newFactored returns the inducing inputs z with the factor of their covariance under k, or nil if there is none. z is kept.
func newFactored(h *parallel.Halt, k Kernel, z *mat.Dense) *inducing {
	m, _ := z.Dims()
	u := &inducing{kernel: k, x: z, l: make([]float64, m*m)}
	crossCovUntil(h, mat.NewDense(m, m, u.l), k, z, z)
	most := 0.0
	for i := range m {
		most = math.Max(most, u.l[i*m+i])
	}
	for i := range m {
		u.l[i*m+i] += sparseJitter * most
	}
	if !(most > 0) || !dense.CholeskyUntil(h, u.l, m) {
		return nil
	}
	for i := range m {
		clear(u.l[i*m+i+1 : (i+1)*m])
	}
	return u
}
