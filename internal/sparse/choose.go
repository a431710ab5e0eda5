package sparse

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// lostNats estimates the nats that the given number of rows lose if the given part of each variance
// is lost. variance and cost describe a sample of the rows; cost holds the nats per unit of
// variance.
func lostNats(rows int, part float64, variance, cost []float64) float64 {
	sum := 0.0
	for i, c := range cost {
		if lost := part * c * variance[i]; lost > 0 {
			sum += lost
		}
	}
	return math.Min(math.MaxFloat64, sum*float64(rows)/float64(len(cost)))
}

const (
	negligible    = 1e-13 // part of the variance of a row that is rounding
	leastRounding = 4e-15 // the same if more would cost too many nats
	// multiple of the rounding error of a variance that a residual variance may be off by; see blur
	rounded       = 8
	notPosDef     = 1e-6 // part of a variance that is more than rounding
	mostInducing  = 500  // default limit on the number of inducing inputs
	leastInducing = 100  // the same for many classes
	leaveInducing = 1e-8 // part of the total variance that inducing inputs may leave
	leaveNats     = 1e-3 // nats that the inducing inputs may lose, which an ELBO does not show
	hiddenNats    = 1e-8 // the cost that negligible variances may leave
	// rows that estimate the cost of a variance if the cost of each row is not needed
	worthRows = 1000

	// StreamRank is the default number of inducing inputs if the rows are read several times.
	// ChooseRows is the number of rows of the sample that they are chosen from.
	StreamRank = 200
	ChooseRows = 10_000
	// factor on the length scales: the inputs then spread over all rows, and suit other lengths too
	chooseLength = 0.3

	siteSteps   = 50   // steps to the curvature of a site, at most
	siteSettled = 1e-2 // relative change of a curvature that ends the steps
	siteStride  = 2    // units and standard deviations that a step may move, for exponentials
	// prior variance above which a single observation would move to where log p is flat
	siteWidest = 10
)

// costs returns γ_n/2 for each row: the nats lost per unit of variance of its latent value that
// the inducing inputs leave. γ_n is −E[∂² log p(y_n|η_n)] under the q of observation n alone,
//
//	argmax_{m,v} E[log p(y_n|η)] − KL(N(m, v)‖N(0, min(k_nn, 10))).
//
// The limit of 10 is left out if latent values have the unit of the responses. With K classes γ_n
// is the largest sum over the classes, Σ_c π_c(1 − π_c) ≤ 1 − 1/K.
func costs(h *parallel.Halt, prior []float64, t *term.Terms) []float64 {
	cost := make([]float64, len(prior))
	if k := t.Latents(); k > 1 {
		floats.AddConst((1-1/float64(k))/2, cost)
		return cost
	}
	inBlocks(h, len(cost), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			if n > lo && t.Y[n] == t.Y[n-1] && prior[n] == prior[n-1] {
				cost[n] = cost[n-1]
				continue
			}
			cost[n] = Curvature(t.Lik, t.Y[n], prior[n]) / 2
		}
	})
	return cost
}

// Most returns the largest default number of inducing inputs for the given number of classes.
// Each class has a precision matrix of its own.
func Most(classes int) int {
	if classes == 1 {
		return mostInducing
	}
	return max(leastInducing, int(mostInducing*math.Sqrt(2/float64(classes))))
}

// Curvature approximates the γ ≥ 0 of a single observation under the prior N(0, prior); see costs.
func Curvature(lik term.Likelihood, y, prior float64) (gamma float64) {
	if !(prior > 0) || math.IsInf(prior, 1) {
		return 0
	}
	m, v, unit := y, prior, math.Sqrt(prior) // in the unit of the responses
	if !lik.Real() {
		prior = math.Min(prior, siteWidest)
		m, v, unit = 0, math.Min(1, prior), 1
	}
	for range siteSteps {
		e := lik.Expect(y, m, v)
		if math.IsNaN(e.D1) || math.IsNaN(e.D2) {
			return gamma
		}
		before := gamma
		gamma = math.Max(0, math.Min(math.MaxFloat64, -e.D2))
		v = 1 / (1/prior + gamma)
		step := v * (e.D1 - m/prior)
		if reach := siteStride * (unit + math.Sqrt(v)); math.Abs(step) > reach {
			step = math.Copysign(reach, step)
		} else if math.Abs(gamma-before) <= siteSettled*gamma {
			break
		}
		m += step
	}
	return gamma
}

// worth limits the cost of a choice of inducing inputs.
type worth struct {
	// nats per unit of the variance of each row; nil means that only rank limits the choice
	cost       []float64
	part, nats float64 // fraction of all variance that may be left, and its largest cost
	negligible float64 // part of a variance that counts as zero
}

// sampleWorth returns the variances under k of some rows of x with the terms t, and the cost per
// unit of each. A nil k has no variances.
func sampleWorth(h *parallel.Halt, k Kernel, x *mat.Dense, t *term.Terms) (
	variance, cost []float64) {
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
	variance = variances(nil, k, some)
	return variance, costs(h, variance, t.Sub(at))
}

// negligibleOf returns the fraction of a variance that counts as zero: its rounding error, or
// less if that would cost too many nats over the given number of rows. variance and cost describe
// a sample of these rows.
func negligibleOf(rows int, variance, cost []float64) float64 {
	most := lostNats(rows, 1, variance, cost)
	return math.Max(leastRounding, math.Min(negligible, hiddenNats/most))
}

// pick chooses rows of x one at a time, always the row with the largest variance given the rows
// before it. It stops after rank rows, or if every remaining variance is negligible. If cost
// holds the cost in nats of the variance of each row, it also stops if the total remaining
// variance is small and costs little. It also returns the features of all rows, which are the
// first columns of the pivoted Cholesky factor of K(x, x), N×M. The error is the error of h if
// that has stopped.
func pick(h *parallel.Halt, k Kernel, x *mat.Dense, rank int, w worth) (
	u *Inducing, f []float64, err error) {
	n, d := x.Dims()
	rank = min(rank, n)
	cost := w.cost
	prior := variances(nil, k, x)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return nil, nil, err
		}
	}
	pivots := dense.Pivots{
		Halt: h, Rank: rank, Negligible: w.negligible, NotPosDef: notPosDef,
		Columns: func(dst []float64, pivots, rows []int) {
			columns(k, dst, x.RawMatrix(), pivots, rows)
		},
	}
	if cost != nil {
		total := floats.Sum(prior)
		pivots.Enough = func(left []float64) bool {
			return floats.Sum(left) <= w.part*total && floats.Dot(left, cost) <= w.nats
		}
	}
	chosen, f, err := pivots.Factor(prior)
	var at *dense.PivotError
	switch {
	case err == nil:
	case !errors.As(err, &at):
		return nil, nil, err
	case math.IsNaN(at.Cov) || math.IsInf(at.Cov, 0):
		return nil, nil, fmt.Errorf("covariance of rows %d and %d is %v: %w",
			at.Pivot, at.Row, at.Cov, sentinel.ErrNotFinite)
	default:
		return nil, nil, fmt.Errorf("covariance %v of rows %d and %d, with variances %v and %v, "+
			"leaves the variance %v after %d inducing inputs; check the Kernel, or use fewer: %w",
			at.Cov, at.Pivot, at.Row, prior[at.Pivot], prior[at.Row],
			at.Left, at.Rank, sentinel.ErrNotPosDef)
	}
	m := max(1, len(chosen))
	u = &Inducing{Division: Undivided(k), X: mat.NewDense(m, d, nil), L: make([]float64, m*m)}
	if len(chosen) == 0 { // no row has any variance: one feature, which is zero
		u.X.SetRow(0, x.RawRowView(0))
		u.L[0] = 1
	}
	for j, p := range chosen {
		u.X.SetRow(j, x.RawRowView(p))
		copy(u.L[j*m:j*m+j+1], f[p*m:p*m+j+1])
	}
	return u, f, nil
}

// choose returns the inducing values of v, up to rank of them, with inducing inputs among the rows
// of x as pick chooses them, and the features of these rows.
func (v Division) choose(h *parallel.Halt, x *mat.Dense, rank int, w worth) (
	u *Inducing, f []float64, err error) {
	var rest *Inducing
	if v.Open {
		rest, f, err = pick(h, v.Rest, x, max(1, rank-v.Wholes()), w)
		if err != nil || len(v.Whole) == 0 {
			return rest, f, err
		}
	}
	if u, err = v.with(rest); err != nil {
		return nil, nil, err
	}
	return u, u.withWholes(h, x, f), h.Err()
}

// among chooses inducing inputs among the rows of z: up to rank, in addition to the weights of
// whole terms. It returns no features.
func (v Division) among(h *parallel.Halt, z *mat.Dense, rank int, w worth) (u *Inducing,
	err error) {
	var rest *Inducing
	if v.Open {
		if rest, _, err = pick(h, v.Rest, z, rank, w); err != nil {
			return nil, fmt.Errorf("inducing inputs: %w", err)
		}
		if len(v.Whole) == 0 {
			return rest, nil
		}
	}
	return v.with(rest)
}

// Choose returns the inducing values of v, up to rank of them, with inducing inputs among the rows
// of x, whose terms are t, and the features of these rows. Rank 0 means as many as are worth it, up
// to most.
func (v Division) Choose(h *parallel.Halt, x *mat.Dense, t *term.Terms, rank, most int) (
	u *Inducing, f []float64, err error) {
	n, _ := x.Dims()
	var w worth
	if rank == 0 {
		rank = most
		prior := v.RestVar(x)
		w.cost, w.part, w.nats = costs(h, prior, t), leaveInducing, leaveNats
		w.negligible = negligibleOf(n, prior, w.cost)
	} else {
		variance, cost := sampleWorth(h, v.Rest, x, t)
		w.negligible = negligibleOf(n, variance, cost)
	}
	return v.choose(h, x, rank, w)
}

// Among chooses inducing inputs among the rows of z for n rows: up to rank, in addition to the
// weights of whole terms. x, with the terms t, is a sample of the n rows or all of them.
func (v Division) Among(h *parallel.Halt, z *mat.Dense, rank int, x *mat.Dense, t *term.Terms,
	n int) (*Inducing, error) {
	variance, cost := sampleWorth(h, v.Rest, x, t)
	return v.among(h, z, rank, worth{negligible: negligibleOf(n, variance, cost)})
}

// AmongSample is Among for the rows of r, under lik.
func (v Division) AmongSample(h *parallel.Halt, z *mat.Dense, rank int, r *Rows, lik Likelihood) (
	*Inducing, error) {
	n := min(len(r.Y), worthRows)
	return v.Among(h, z, rank, r.Sample(n), r.Terms(lik, n), r.N)
}

// AmongAll is Among for rows that are not known yet.
func (v Division) AmongAll(z *mat.Dense, rank int) (*Inducing, error) {
	return v.among(nil, z, rank, worth{negligible: negligible})
}

// Sample returns rows of the sample of r as inducing inputs of v: up to rank, including the
// weights of whole terms. If enough is set, it stops when further inputs are not worth their
// cost.
func (v Division) Sample(h *parallel.Halt, r *Rows, lik Likelihood, rank int, enough bool) (
	*mat.Dense, error) {
	n := min(len(r.Y), ChooseRows)
	x := r.Sample(n)
	prior := v.RestVar(x)
	cost := costs(h, prior, r.Terms(lik, n))
	w := worth{negligible: negligibleOf(r.N, prior, cost)}
	if enough {
		w.cost, w.part, w.nats = cost, leaveInducing, leaveNats
		floats.Scale(float64(r.N)/float64(n), w.cost)
	}
	u, _, err := pick(h, v.Rest, x, max(1, rank-v.Wholes()), w)
	if err != nil {
		return nil, err
	}
	return u.X, nil
}

// SampleSpread is Sample with inducing inputs that are spread over all rows, whatever they gain.
func (v Division) SampleSpread(h *parallel.Halt, r *Rows, rank int) (*mat.Dense, error) {
	return spread(h, v.Rest, r.Sample(min(len(r.Y), ChooseRows)), max(1, rank-v.Wholes()))
}

// worthWhole is the fraction of leaveNats that rounding may hide in the rest of a kernel because
// of terms that could be represented whole.
const worthWhole = 1e-2

// Divide returns the Division of k for n rows. x holds the rows of a sample, and t their likelihood
// terms. A kernel that is a sum of few features is kept as those features. A part of a kernel with
// few features is kept in the same way if its rounding would hide the other parts. most bounds the
// number of features.
func Divide(h *parallel.Halt, k Kernel, x *mat.Dense, t *term.Terms, n, most int) Division {
	_, d := x.Dims()
	v := k.Whole(d)
	f := v.Wholes()
	if f == 0 || f > most {
		return Undivided(k)
	}
	if v.Open {
		if 2*f > most {
			return Undivided(k)
		}
		variance, cost := sampleWorth(h, k, x, t)
		if lostNats(n, negligible, variance, cost) <= worthWhole*leaveNats {
			return Undivided(k)
		}
	}
	return v
}

// Divide returns the division of k for r, under lik.
func (r *Rows) Divide(h *parallel.Halt, k Kernel, lik Likelihood, most int) Division {
	n := min(len(r.Y), ChooseRows)
	return Divide(h, k, r.Sample(n), r.Terms(lik, n), r.N, most)
}

// checkPriorVar returns an error if v is no prior variance of row i.
func checkPriorVar(i int, v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("covariance of rows %d and %d is %v: %w", i, i, v, sentinel.ErrNotFinite)
	case v < 0:
		return fmt.Errorf("variance of row %d is %v: %w", i, v, sentinel.ErrNotPosDef)
	}
	return nil
}

// spread returns up to rank rows of x, always the row with the largest variance given the rows
// before it, under shorter length scales.
func spread(h *parallel.Halt, k Kernel, x *mat.Dense, rank int) (*mat.Dense, error) {
	u, _, err := pick(h, k.Shorter(chooseLength), x, rank, worth{negligible: negligible})
	if err != nil {
		return nil, err
	}
	return u.X, nil
}

// gathered holds rows and copies of other rows.
type gathered struct {
	at, others []float64
	t          gram.Tile
}

var gatherings = sync.Pool{New: func() any { return new(gathered) }}

// columns stores the covariances of the rows of x at the indices at with the rows at others in dst,
// row by row. It uses differences of rows, which are exact if rows are close.
func columns(k Kernel, dst []float64, x blas64.General, at, others []int) {
	defer parallel.At(nil, func(i int) string {
		return fmt.Sprintf("covariances of row %d",
			at[i])
	})
	g := gatherings.Get().(*gathered)
	gather := func(buf *[]float64, index []int) blas64.General {
		*buf = dense.Resize(*buf, len(index)*x.Cols)
		rows := dense.General(*buf, len(index), x.Cols)
		for a, i := range index {
			copy(gram.Row(rows, a), gram.Row(x, i))
		}
		return rows
	}
	g.t.X, g.t.Y = gather(&g.at, at), gather(&g.others, others)
	k.Fill(dst, &g.t)
	gatherings.Put(g)
}
