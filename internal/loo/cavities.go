package loo

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file computes cavities: the distribution of a latent value η_n without the site of its
// observation. Removing a site from a Gaussian has a closed form. The sites of the other
// observations would also move if the observation were missing, so the predictions with the most
// influence are corrected for that (respond), and the sizes of the corrections estimate the
// errors of all predictions. Rows and Posterior.LeaveOut are the callers.

// while describes the activity in the error of a canceled context.
const while = "data were left out"

const (
	mostAnswers = 2048 // largest number of observations whose sites respond to a removal
	// products for all responses, which take a fraction of a second, and as many for the time of their
	// expectations; see Likelihood.Cost
	budget     = 1 << 27
	leastKnown = 16 // least number of removals with a response

	remainder = 1e-12 // least part of a precision without its site that is not rounding
	// how far below 0 that part may be, by rounding, if q belongs to these rows
	beyond = 1e-6
	// relative error of a variance in units of √goal, if the error of the ELBO is the goal
	fitted = 4.0
	// part of a precision in units of the goal, at which the mean of a cavity is off by 0.1
	// standard deviations
	short = 200.0
)

// cavities holds the terms under a Gaussian with one site per term. A cavity is the Gaussian
// without one of the sites.
type cavities struct {
	terms    *term.Terms
	m, v     []float64 // mean and variance of η_n, without offset
	gamma, a []float64 // the site of η_n, about m
	// vary is the variance by which the mean of η_n moves. It is v, unless the mean moves by
	// another matrix than V. left is 1 − γ_n times vary.
	vary, left []float64
	// known is the least part of a precision that exceeds the errors of γ and v.
	known float64
	// without returns the variance of η_n without the given part of its site. Nil means v/(1 −
	// part + part·left).
	without func(n int, part float64) float64
	// diag is a diagonal q, whose variances respond weight by weight. It is nil for any other q.
	diag *diagonal
	// If q is low-rank, family is the largest difference of log v and log vary among the terms.
	// Otherwise it is 0.
	family float64
	// cov returns a function that stores the covariances of the η_i at index with η_n in dst. One
	// worker calls it.
	cov func(index []int) func(dst []float64, n int)
	// root returns vectors whose products are the covariances of the η_i at index, row by row,
	// and their length. It returns nil if it has no low-rank form.
	root func(index []int) (u []float64, rank int)
}

// oneDatum returns the fraction of the site of term n that belongs to one observation. A term of
// weight w stands for w observations.
func oneDatum(t *term.Terms, n int) float64 {
	_, _, w, _ := t.Term(n)
	return math.Min(1, 1/w)
}

// leave returns the mean and the variance of η_n without the given part of its site. The variance
// is NaN if only rounding is left of the precision, and negative if less is left.
func (c *cavities) leave(n int, part float64) (m, v float64) {
	left := (1 - part) + part*c.left[n]
	if !(left > c.known) {
		return c.m[n], c.withoutSite(left)
	}
	v = c.v[n] / left
	if c.without != nil {
		v = c.without(n, part)
	}
	return c.m[n] - part*c.a[n]*c.vary[n]/left, v
}

// withoutSite returns the variance for leave if the part left of the precision is within its
// errors.
func (c *cavities) withoutSite(left float64) float64 {
	if left >= -max(beyond, c.known) {
		return math.NaN()
	}
	return -1
}

// leaveOut leaves out one observation after the other.
func (c *cavities) leaveOut(ctx context.Context, lik Likelihood) (*Result, error) {
	leave := func(l *Result, i int) (resolved bool, err error) {
		m, v := l.M, l.V
		y, o, _, extra := c.terms.Term(i)
		m[i], v[i] = c.leave(i, oneDatum(c.terms, i))
		l.Leverage[i] = 1 - c.left[i]
		if v[i] < 0 {
			return false, fmt.Errorf(
				"%s has more precision than its whole linear predictor (leverage %v); fit q to "+
					"the same rows until it converges: %w",
				c.terms.Describe(i), l.Leverage[i], sentinel.ErrNotPosDef)
		}
		if math.IsNaN(v[i]) {
			m[i], v[i] = c.m[i]+o, c.v[i]+extra
			return false, nil
		}
		l.Influence[i] = marginalKL(c.m[i], c.v[i], m[i], v[i])
		m[i] += o
		v[i] += extra
		l.Pointwise[i] = lik.LogProb(y, m[i], v[i])
		return true, nil
	}
	return leaveOut(ctx, c.terms, 1, leave, func(l *Result) error {
		if lik.Quadratic && c.family == 0 { // the sites are the same without the observation
			return nil
		}
		return c.respond(ctx, lik, l)
	})
}

// marginalKL returns KL(N(m, v)‖N(m0, v0)) in nats.
func marginalKL(m, v, m0, v0 float64) float64 {
	if v == 0 {
		return 0
	}
	d := (v - v0) / v0
	return 0.5 * (d - math.Log1p(d) + (m-m0)*(m-m0)/v0)
}

// respond moves the sites of the other observations, which a cavity keeps, after one observation
// is removed. It does so for the observations with the most influence, and estimates the error of
// all predictions from these moves.
func (c *cavities) respond(ctx context.Context, lik Likelihood, l *Result) error {
	n := c.terms.Len()
	base, err := expectations(ctx, c.terms, c.m, c.v)
	if err != nil {
		return err
	}
	r, workers := &responder{cavities: c, base: base, scale: 1}, runtime.GOMAXPROCS(0)
	// If there are many observations, every k-th one responds for all.
	size := min(n, mostAnswers)
	r.scale = float64(n) / float64(size)
	r.index = make([]int, size)
	for k := range r.index {
		r.index[k] = k * n / size
	}
	if c.root != nil {
		r.root, r.rank = c.root(r.index)
	}
	work := make([]func(dst []float64, n int), workers)
	row := make([][]float64, workers)
	rowOf := func(worker, i int) []float64 {
		if work[worker] == nil {
			work[worker], row[worker] = c.cov(r.index), make([]float64, size)
		}
		work[worker](row[worker], i)
		return row[worker]
	}
	if r.root == nil {
		r.cov = make([]float64, size*size)
		err := parallel.Each(ctx, size, workers, func(worker, k int) error {
			copy(r.cov[k*size:(k+1)*size], rowOf(worker, r.index[k]))
			return nil
		})
		if err != nil {
			return err
		}
	}
	known, rest := l.split(max(leastKnown, c.affords(r.index, lik)/max(1, lik.Share)))
	spaces := make([]responseWork, workers)
	answers := make([]answer, len(known))
	err = parallel.Each(ctx, len(known), workers, func(worker, k int) error {
		i := known[k]
		defer parallel.At(&i, c.terms.Name)
		answers[k] = r.answer(lik, rowOf(worker, i), i, l, &spaces[worker])
		l.PointErr[i] = answers[k].err
		if !math.IsInf(answers[k].err, 1) {
			l.Pointwise[i], l.M[i], l.V[i] = answers[k].logp, answers[k].m, answers[k].v
		}
		return nil
	})
	if err != nil {
		return err
	}
	var first, second, family float64
	for k, i := range known {
		_, _, w, _ := c.terms.Term(i)
		first += w * answers[k].first
		second += w * answers[k].second
		family = math.Hypot(family, w*answers[k].family)
	}
	signed := max(math.Abs(first), math.Abs(second), math.Abs(first+second))
	l.extend(known, rest, signed+family, c.terms)
	return nil
}

// affords returns the number of removals whose responses take a fraction of a second, if the terms at
// index respond. Products of matrices and expectations have budgets of their own, so the likelihoods
// with a closed form do not pay for expectations.
func (c *cavities) affords(index []int, lik Likelihood) int {
	size := len(index)
	products := size * size
	if c.diag != nil {
		products += 4 * c.diag.stored(index)
	}
	return min(budget/products, budget/max(1, answerRounds*size*lik.Cost))
}

// A responder moves the cavity of an observation as the sites of a sample of all observations
// move without it.
type responder struct {
	*cavities
	base  *term.Marginals // sites at the marginals with all observations
	index []int           // indices of the sample
	scale float64         // observations per member of the sample
	cov   []float64       // covariances of the sample, both triangles; nil if they have a root
	root  []float64       // one row per member of the sample; their products are the covariances
	rank  int             // length of a row of root
}

// responseWork holds the buffers of answer, one value per member of the sample.
type responseWork struct {
	c, m, v []float64
	at, of  []float64 // m and v in the cavity, before the sites respond
	da, dg  []float64 // changes of slopes and precisions
	cdg     []float64
	moved   [3][]float64 // C da, C∘C dg and C cdg
	small   []float64    // rank² + 2·rank numbers
	turned  []float64    // US, see byRoot
	terms   term.Marginals
	diag    diagonalWork
}

// answerRounds is the number of rounds without the observation. The first round evaluates the
// sites at the means of the cavity, so only the second is correct to second order in the means.
const answerRounds = 2

// An answer is the prediction of one observation after the other sites have moved.
type answer struct {
	logp, m, v    float64 // m and v are the arguments of Likelihood.LogProb, with offset
	err           float64 // +Inf if logp is not finite, and the fields above are 0
	first, second float64 // change of logp in each round
	family        float64 // change of logp for another choice of factors
}

// answer predicts observation n from the others, after two rounds of the fixed point of their sites
// without it. With C = V_−n, the mean m_c of the cavity, and the precisions γ and slopes a that
// the sites have with all observations, a round is
//
//	r_i = ∂E_i/∂m − a_i + γ_i (m_i − m_i with all observations),   Δγ_i = −∂²E_i/∂m² − γ_i,
//	m ← m_c + C r,   v ← diag(C) − diag(C diag(Δγ) C).
//
// The optimum is a fixed point of the mean. The argument cov holds the covariances of the sample
// with n.
//
// The error adds the move of the second round to the largest move of logp away from the cavity. It
// adds moves by the mean and by the variance, because they may cancel.
func (r *responder) answer(lik Likelihood, cov []float64, n int, l *Result,
	w *responseWork) (to answer) {
	y, o, _, extra := r.terms.Term(n)
	part := oneDatum(r.terms, n)
	left := (1 - part) + part*r.left[n]
	gain := part * r.gamma[n] / left
	cavity, before := l.V[n]-extra, l.Pointwise[n]
	r.start(cov, n, part, left, w)
	to.logp = before
	var moved float64
	for round := range answerRounds {
		r.sites(n, part, w)
		var dm, dv float64
		for k, c := range w.c {
			dm += c / left * w.da[k]
			dv += c / left * c / left * w.dg[k]
		}
		to.m, to.v = r.m[n]-part*r.a[n]*r.vary[n]/left+dm+o, lessPrecise(cavity, dv)+extra
		if r.diag != nil {
			r.diag.update(r.index, n, part*r.gamma[n], w.dg, &w.diag)
			to.v = r.diag.variance(n, &w.diag) + extra
		}
		logp, mean := lik.LogProb(y, to.m, to.v), lik.LogProb(y, to.m, l.V[n])
		to.first, to.second = to.second, logp-to.logp
		to.logp = logp
		moved = max(moved, math.Abs(mean-before)+math.Abs(logp-mean))
		if round+1 < answerRounds {
			r.move(gain, w)
		}
	}
	if r.family > 0 {
		for _, f := range []float64{math.Exp(r.family), math.Exp(-r.family)} {
			v := (to.v-extra)*f + extra
			to.family = max(to.family, math.Abs(lik.LogProb(y, to.m, v)-to.logp))
		}
	}
	to.err = moved + math.Abs(to.second) + to.family
	if math.IsNaN(to.err) || math.IsInf(to.logp, 0) || math.IsInf(to.err, 0) {
		return answer{err: math.Inf(1)}
	}
	return to
}

// start stores the means and variances of the sample in the cavity of n.
func (r *responder) start(cov []float64, n int, part, left float64, w *responseWork) {
	size := len(r.index)
	dense.ResizeAll(size, &w.c, &w.m, &w.v, &w.at, &w.of, &w.da, &w.dg, &w.cdg)
	gain, slope := part*r.gamma[n]/left, part*r.a[n]/left
	for k, i := range r.index {
		ci := cov[k]
		w.c[k], w.m[k], w.v[k] = ci, r.base.M[i]-ci*slope, math.Max(0, r.base.V[i]+ci*ci*gain)
	}
	if r.diag != nil {
		clear(w.dg)
		r.diag.update(r.index, n, part*r.gamma[n], w.dg, &w.diag)
		r.spread(w)
	}
	copy(w.at, w.m)
	copy(w.of, w.v)
}

// sites stores the changes of slopes and precisions of the sample at m and v, without the removed
// part of the site of n.
func (r *responder) sites(n int, part float64, w *responseWork) {
	w.terms.M, w.terms.V = w.m, w.v
	r.terms.Expectations(&w.terms, r.index)
	for k, i := range r.index {
		rest := r.scale
		if i == n {
			rest *= 1 - part
		}
		if w.da[k], w.dg[k] = 0, 0; rest == 0 || w.c[k] == 0 {
			continue
		}
		w.da[k] = rest * (w.terms.D1[k] - r.base.D1[i] + r.base.Tg[i]*(w.m[k]-r.base.M[i]))
		w.dg[k] = rest * (w.terms.Tg[k] - r.base.Tg[i])
	}
}

// move stores the means and variances of the sample after these changes.
func (r *responder) move(gain float64, w *responseWork) {
	var ca, cg float64
	for k, c := range w.c {
		w.cdg[k] = c * w.dg[k]
		ca += c * w.da[k]
		cg += c * w.cdg[k]
	}
	dense.ResizeAll(len(r.index), &w.moved[0], &w.moved[1], &w.moved[2])
	if r.root != nil {
		r.byRoot(w)
	} else {
		r.byCov(w)
	}
	for k, ck := range w.c {
		dm, dv, cross := gain*ck*ca+w.moved[0][k], gain*gain*ck*ck*cg+w.moved[1][k], w.moved[2][k]
		w.m[k] = w.at[k] + dm
		w.v[k] = lessPrecise(w.of[k], dv+2*gain*ck*cross)
	}
	if r.diag != nil {
		r.spread(w)
	}
}

// byCov stores C da, C∘C dg and C cdg, where C is the covariance of the sample.
func (r *responder) byCov(w *responseWork) {
	size := len(r.index)
	for k := range r.index {
		s := r.cov[k*size : (k+1)*size]
		w.moved[0][k], w.moved[1][k] = fma.Dot(s, w.da), fma.DotSquares(s, w.dg)
		w.moved[2][k] = fma.Dot(s, w.cdg)
	}
}

// byRoot is byCov for C = UUᵀ: U(Uᵀda), the squares u_kᵀSu_k with S = Uᵀdiag(dg)U, and U(Uᵀcdg).
func (r *responder) byRoot(w *responseWork) {
	d, n := r.rank, len(r.index)
	w.small = dense.Resize(w.small, d*(d+2))
	clear(w.small)
	p, q, square := w.small[:d], w.small[d:2*d], w.small[2*d:]
	for k := range n {
		u := r.root[k*d : (k+1)*d]
		fma.Axpy(w.da[k], u, p)
		fma.Axpy(w.cdg[k], u, q)
	}
	u := fma.Of(r.root, n, d, d)
	fma.Gram(fma.Run{}, w.dg, u, fma.Of(square, d, d, d))
	dense.FillUpper(square, d)
	w.turned = dense.Resize(w.turned, n*d)
	clear(w.turned)
	fma.Gemm(fma.Run{}, 1, u, fma.Of(square, d, d, d), fma.Of(w.turned, n, d, d))
	for k := range n {
		u := r.root[k*d : (k+1)*d]
		w.moved[0][k], w.moved[1][k] = fma.Dot(u, p), fma.Dot(u, w.turned[k*d:(k+1)*d])
		w.moved[2][k] = fma.Dot(u, q)
	}
}

// spread stores the variances of the sample under the variances of a diagonal q.
func (r *responder) spread(w *responseWork) {
	for k, i := range r.index {
		w.v[k] = r.diag.variance(i, &w.diag)
	}
}

// lessPrecise returns v − d to first order, and a positive number.
func lessPrecise(v, d float64) float64 {
	if d > 0 {
		return v / (1 + d/v)
	}
	return v - d
}
