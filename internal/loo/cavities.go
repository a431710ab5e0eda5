package loo

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// while says what is going on when a context is done.
const while = "data were left out"

const (
	mostAnswers = 2048    // data whose sites answer to the absence of another, at the most
	budget      = 1 << 27 // products by which they do, a fraction of a second's worth
	leastKnown  = 16      // data to whose absence they answer, at the least

	remainder = 1e-12 // part of a precision that is left without a site below which it is rounding
	// by how much less than nothing that may be, by rounding, of a q of these rows
	beyond = 1e-6
	// a variance is off by a part of so many √goal where the ELBO is off by the goal
	fitted = 4.0
	// goals of the precision left where the mean of a cavity is off by 0.1 deviations
	short = 200.0
)

// cavities are terms under a Gaussian whose site for each of them can be taken out.
type cavities struct {
	terms    *term.Terms
	m, v     []float64 // of η_n, without offset
	gamma, a []float64 // its site, about m
	// vary is the variance by which the mean of η_n moves: v, but where the mean moves by another
	// matrix than V; left is 1 − γ_n times that.
	vary, left []float64
	// known is the least part of a precision that may be left and is more than errors of γ and v.
	known float64
	// without returns the variance of η_n where a part of its site is taken out; nil means
	// v/(1 − part + part·left).
	without func(n int, part float64) float64
	// cov returns a function that stores the covariances of the η_i at index with η_n in dst, for
	// one worker.
	cov func(index []int) func(dst []float64, n int)
}

// oneDatum returns the part of the site of term n that is one datum.
func oneDatum(t *term.Terms, n int) float64 {
	_, _, w, _ := t.Term(n)
	return math.Min(1, 1/w)
}

// leave returns mean and variance of η_n where a part of its site is taken out. The variance is
// NaN where only rounding is left of its precision, and negative where less is.
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

// withoutSite returns the variance, as leave does, of what no more than errors are left of.
func (c *cavities) withoutSite(left float64) float64 {
	if left >= -max(beyond, c.known) {
		return math.NaN()
	}
	return -1
}

// leaveOut takes out one datum after the other.
func (c *cavities) leaveOut(ctx context.Context, lik Likelihood) (*Result, error) {
	n := c.terms.Len()
	l := newResult(n, n)
	m, v := l.M, l.V
	workers := runtime.GOMAXPROCS(0)
	err := parallel.Each(ctx, n, workers, func(_, i int) error {
		defer parallel.At(&i, c.terms.Name)
		y, o, _, extra := c.terms.Term(i)
		m[i], v[i] = c.leave(i, oneDatum(c.terms, i))
		l.Leverage[i] = 1 - c.left[i]
		if v[i] < 0 {
			return fmt.Errorf(
				"%s has more precision than all of its linear predictor, and a leverage of %v: "+
					"is q that of these rows, and fitted to the end? %w",
				c.terms.Describe(i), l.Leverage[i], sentinel.ErrNotPosDef)
		}
		if math.IsNaN(v[i]) {
			l.PointErr[i] = math.Inf(1)
			m[i], v[i] = c.m[i]+o, c.v[i]+extra
			return nil
		}
		l.Influence[i] = marginalKL(c.m[i], c.v[i], m[i], v[i])
		m[i] += o
		v[i] += extra
		l.Pointwise[i] = lik.LogProb(y, m[i], v[i])
		if sum := l.Pointwise[i] + l.Influence[i]; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return fmt.Errorf(
				"%s has log-probability %v, and an influence of %v, where it is left out, "+
					"at a latent mean of %v and variance of %v: %w",
				c.terms.Describe(i), l.Pointwise[i], l.Influence[i], m[i], v[i],
				sentinel.ErrNotFinite)
		}
		return nil
	})
	if err == nil {
		err = l.resolve(c.terms)
	}
	if err == nil {
		err = c.respond(ctx, lik, l)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("canceled while %s: %w", while, context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	l.add(c.terms.Weight)
	return l, nil
}

// marginalKL returns KL(N(m, v)‖N(m0, v0)) in nats.
func marginalKL(m, v, m0, v0 float64) float64 {
	if v == 0 {
		return 0
	}
	d := (v - v0) / v0
	return 0.5 * (d - math.Log1p(d) + (m-m0)*(m-m0)/v0)
}

// respond lets the sites of all other data, which the cavities keep, answer to the absence of the
// data of most influence, and says how much that is.
func (c *cavities) respond(ctx context.Context, lik Likelihood, l *Result) error {
	n := c.terms.Len()
	r := &responder{cavities: c, base: term.State{M: c.m, V: c.v}, scale: 1}
	for _, p := range []*[]float64{&r.base.E, &r.base.Tg, &r.base.D1} {
		*p = make([]float64, n)
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	workers := runtime.GOMAXPROCS(0)
	if err := c.terms.Expect(&r.base, nil, term.Crew{Workers: workers, Halt: &halt}); err != nil {
		return err
	}
	// Of many data a regular sample answers for all.
	size := min(n, mostAnswers)
	r.scale = float64(n) / float64(size)
	r.index = make([]int, size)
	for k := range r.index {
		r.index[k] = k * n / size
	}
	r.cov = make([]float64, size*size)
	work := make([]func(dst []float64, n int), workers)
	row := make([][]float64, workers)
	rowOf := func(worker, i int) []float64 {
		if work[worker] == nil {
			work[worker], row[worker] = c.cov(r.index), make([]float64, size)
		}
		work[worker](row[worker], i)
		return row[worker]
	}
	err := parallel.Each(ctx, size, workers, func(worker, k int) error {
		copy(r.cov[k*size:(k+1)*size], rowOf(worker, r.index[k]))
		return nil
	})
	if err != nil {
		return err
	}
	order := l.order()
	known := order[:min(len(order), max(leastKnown, budget/(size*size)))]
	spaces := make([]responseWork, workers)
	move := make([]float64, len(known))
	err = parallel.Each(ctx, len(known), workers, func(worker, k int) error {
		i := known[k]
		defer parallel.At(&i, c.terms.Name)
		y, o, _, extra := c.terms.Term(i)
		m, v := r.answer(rowOf(worker, i), i, l.V[i]-extra, &spaces[worker])
		m, v = m+o, v+extra
		to := lik.LogProb(y, m, v)
		if math.IsNaN(to) || math.IsInf(to, 0) {
			l.PointErr[i] = math.Inf(1)
			return nil
		}
		move[k] = to - l.Pointwise[i]
		l.PointErr[i] = math.Abs(move[k])
		l.Pointwise[i], l.M[i], l.V[i] = to, m, v
		return nil
	})
	if err != nil {
		return err
	}
	var signed float64
	for k, i := range known {
		_, _, w, _ := c.terms.Term(i)
		signed += w * move[k]
	}
	l.extend(known, order[len(known):], math.Abs(signed), c.terms)
	return nil
}

// A responder moves the cavity of a datum as the sites of a sample of all data move without it.
type responder struct {
	*cavities
	base  term.State // sites at the marginals with all data
	index []int      // the sample
	scale float64    // data for each of the sample
	cov   []float64  // covariances of the sample, full
}

// responseWork is scratch of answer, of the length of the sample.
type responseWork struct{ c, m, v, da, dg, cdg []float64 }

// answer returns mean and variance of η_n in the cavity of datum n, of variance cavity, after two
// rounds of the fixed point that the sites have without it: with C = V_−n, of the first order in
// what they move,
//
//	γ_i ← −∂²E_i/∂m²,   a_i ← ∂E_i/∂m,   at   m + CΔa,   diag(C) − diag(C diag(Δγ) C).
//
// In the first the means hardly move: the variances do, and they the means in the second. Cov are
// the covariances of the sample with n.
func (r *responder) answer(cov []float64, n int, cavity float64, w *responseWork) (m, v float64) {
	size := len(r.index)
	for _, p := range []*[]float64{&w.c, &w.m, &w.v, &w.da, &w.dg, &w.cdg} {
		*p = dense.Resize(*p, size)
	}
	part := oneDatum(r.terms, n)
	left := (1 - part) + part*r.left[n]
	gain, slope := part*r.gamma[n]/left, part*r.a[n]/left
	for k, i := range r.index {
		ci := cov[k]
		w.c[k], w.m[k], w.v[k] = ci, r.base.M[i]-ci*slope, math.Max(0, r.base.V[i]+ci*ci*gain)
	}
	// What the sites are more than they were, about the means without n.
	sites := func(m, v []float64) {
		for k, i := range r.index {
			rest := r.scale
			if i == n {
				rest *= 1 - part
			}
			if w.da[k], w.dg[k] = 0, 0; rest == 0 || w.c[k] == 0 {
				continue
			}
			x := r.terms.Expectation(i, m[k], v[k])
			at := r.base.M[i] - w.c[k]*slope
			w.da[k] = rest * (x.D1 - x.D2*(m[k]-at) - r.base.D1[i] + r.base.Tg[i]*(at-r.base.M[i]))
			w.dg[k] = rest * (-x.D2 - r.base.Tg[i])
		}
	}
	sites(w.m, w.v)
	var ca, cg float64
	for k, c := range w.c {
		w.cdg[k] = c * w.dg[k]
		ca += c * w.da[k]
		cg += c * w.cdg[k]
	}
	for k, ck := range w.c {
		dm, dv, cross := gain*ck*ca, gain*gain*ck*ck*cg, 0.0
		for j, s := range r.cov[k*size : (k+1)*size] {
			dm += s * w.da[j]
			dv += s * s * w.dg[j]
			cross += s * w.cdg[j]
		}
		w.m[k] += dm
		w.v[k] = lessPrecise(w.v[k], dv+2*gain*ck*cross)
	}
	sites(w.m, w.v)
	var dm, dv float64
	for k, c := range w.c {
		dm += c / left * w.da[k]
		dv += c / left * c / left * w.dg[k]
	}
	return r.m[n] - slope*r.vary[n] + dm, lessPrecise(cavity, dv)
}

// lessPrecise returns a variance less d to first order, and positive.
func lessPrecise(v, d float64) float64 {
	if d > 0 {
		return v / (1 + d/v)
	}
	return v - d
}
