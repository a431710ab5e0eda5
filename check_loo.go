package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/psis"
	"gonum.org/v1/gonum/floats"
)

// LOO says how well each datum is predicted from all others, and what it does to the posterior. It has an element for each of
// the data: for each row of a GLM whose weight is positive.
//
// Under a Gaussian q whose terms see one number η_n each, the site of datum n, of precision γ_n = −∂²E/∂m² and slope
// a_n = ∂E/∂m about the mean, is taken out of the marginal N(m_n, v_n) of q. What is left is the cavity,
//
//	v_−n = v_n/(1 − γ_n v_n),   m_−n = m_n − v_−n a_n,
//	log p(y_n|y_−n) ≈ log ∫ p(y_n|η) N(η|m_−n, v_−n) dη
//
// (Opper and Winther 2000; Vehtari, Mononen, Tolvanen, Sivula and Winther 2016). With Gaussian noise it is
// exact. Otherwise it leaves out that the sites of all other data would be others without datum n. For the data of most influence
// these answer by two rounds of their fixed point, to first order: PointErr is how far that moves log p(y_n|y_−n), which is more
// than what is still missing from a fit without datum n, but for data that move q by more than a nat. PointErr of all other data, whose
// cavities stay, is in proportion to their influence. That q is not the posterior itself is no part of it: see PSIS.
//
// A datum of weight w > 1 is w data, of which one is left out; of weight below 1 it is left out as a whole. The mean of a
// diagonal or low-rank q moves by (Λ0 + XᵀΓX)⁻¹, as that of a fit would, and not by V. A fit of low rank may
// find other factors without a datum: that is not in PointErr.
//
// For any other log-likelihood or q draws of q are weighted, by PSIS, towards the posterior without datum n, and KHat
// says whether that can be done (Vehtari, Gelman and Gabry 2017; Magnusson, Andersen, Jonasson and Vehtari 2019). PointErr
// is then the Monte Carlo error.
type LOO struct {
	// ELPD is Σ_n w_n log p(y_n|y_−n), in nats: an estimate of what as many new data would score. SE is its standard
	// error over the data, √(N Var_n), +Inf for a single datum; that of a difference of two models is the SE of the differences of Pointwise.
	ELPD, SE float64
	// Err estimates the error of ELPD for this model and q, in nats; it is 0 where there is none but rounding.
	Err float64
	// Pointwise is log p(y_n|y_−n) and PointErr the estimate of its error.
	Pointwise, PointErr []float64
	// KHat is that of the weights of draws towards the posterior without each datum, and Limit what it should not be above. It is nil
	// where there were no draws.
	KHat  []float64
	Limit float64
	// Leverage is γ_n v_n, the part of the precision of η_n that datum n brings itself: the diagonal of the hat matrix of weighted
	// least squares (Hoaglin and Welsch 1978; Pregibon 1981) with the expected weights γ, where v_n is x_nᵀ(Λ0 + XᵀΓX)⁻¹x_n. At a
	// leverage near 1 nothing else determines η_n; under a likelihood that is not log-concave it may be negative. From draws it is
	// Var[log p(y_n|z)], which is that to first order (Gelman, Hwang and Vehtari 2014).
	Leverage []float64
	// Parameters is Σ_n of Leverage, the effective number of parameters (Spiegelhalter, Best, Carlin and van der Linde 2002).
	Parameters float64
	// Influence is KL(q‖q_−n), how far datum n moves all of the posterior, in nats. As both differ in a factor of η_n alone, it is that of
	// the marginals of η_n. No probability, of whatever event, moves by more than √(Influence/2) (Pinsker).
	Influence []float64
	// Unresolved are the data, in increasing order, without which nothing is left of the precision of η_n but
	// rounding, or what q is short of its optimum, such as the one row of a column under a wide prior: their
	// Leverage is 1 to within that. They are in no sum but Parameters, so that ELPD is that of the others; their PointErr is +Inf, their Pointwise and Influence are 0, and Cavity has the marginals of q for them.
	Unresolved []int
	// Cavity predicts each datum from the others, in the order of the data. It is nil where there were draws.
	Cavity *Prediction
}

const (
	looSample    = 2048    // data whose sites answer to the absence of another, at the most
	looBudget    = 1 << 27 // products by which they do, a fraction of a second's worth
	looLeast     = 16      // data to whose absence they answer, at the least
	looRemainder = 1e-12   // part of a precision that is left without a site below which it is rounding
	looBeyond    = 1e-6    // by how much less than nothing that may be, by rounding, of a q that is of these rows
	looFitted    = 4.0     // a variance is off by a part of so many √goal where the ELBO is off by the goal
	looShort     = 200.0   // and the mean of a cavity by 0.1 of its deviations where so many goals of the precision are left
)

// String says it in words.
func (l *LOO) String() string {
	left := ""
	if n := len(l.Unresolved); n > 0 {
		left = fmt.Sprintf(", without %d that cannot be left out", n)
	}
	return fmt.Sprintf("elpd %.6g ± %.2g over %d data%s, error %.2g; %.3g effective parameters", l.ELPD, l.SE, len(l.Pointwise)-len(l.Unresolved), left, l.Err, l.Parameters)
}

// add makes the sums of what is known of each datum of the terms.
func (l *LOO) add(weight []float64) {
	var n, mean, squares float64
	for i, x := range l.Pointwise {
		if l.unresolved(i) {
			continue
		}
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		n += w
		l.ELPD += w * x
		d := x - mean // West (1979)
		mean += d * w / n
		squares += w * d * (x - mean)
	}
	if l.SE = math.Inf(1); n > 1 {
		l.SE = math.Sqrt(math.Max(0, n*squares/(n-1)))
	}
	l.Parameters = floats.Sum(l.Leverage)
}

// unresolved reports whether datum i is one of those.
func (l *LOO) unresolved(i int) bool {
	_, found := slices.BinarySearch(l.Unresolved, i)
	return found
}

// cavities are terms under a Gaussian whose site for each of them can be taken out.
type cavities struct {
	terms    *siteTerms
	m, v     []float64 // of η_n, without offset
	gamma, a []float64 // its site, about m
	// vary is the variance by which the mean of η_n moves: v, but where the mean moves by another matrix than V; left is 1 − γ_n times that.
	vary, left []float64
	// known is the least part of a precision that may be left and is more than errors of γ and v.
	known float64
	// without returns the variance of η_n where a part of its site is taken out; nil means v/(1 − part + part·left).
	without func(n int, part float64) float64
	// cov returns a function that stores the covariances of the η_i at index with η_n in dst, for one worker.
	cov func(index []int) func(dst []float64, n int)
}

// part returns the part of the site of term n that is one datum.
func (c *cavities) part(n int) float64 {
	_, _, w, _ := c.terms.term(n)
	return math.Min(1, 1/w)
}

// leave returns mean and variance of η_n where a part of its site is taken out. The variance is NaN where only rounding is left of its precision, and negative where less is.
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
	if left >= -max(looBeyond, c.known) {
		return math.NaN()
	}
	return -1
}

// loo takes out one datum after the other.
func (c *cavities) loo(ctx context.Context) (*LOO, error) {
	n := c.terms.len()
	l := new(LOO)
	for _, p := range []*[]float64{&l.Pointwise, &l.PointErr, &l.Leverage, &l.Influence} {
		*p = make([]float64, n)
	}
	m, v := latentSlices(n)
	l.Cavity = &Prediction{lik: c.terms.lik, m: m, v: v}
	workers := runtime.GOMAXPROCS(0)
	err := parallel.Each(ctx, n, workers, func(_, i int) error {
		defer parallel.At(&i, c.terms.name)
		y, o, _, extra := c.terms.term(i)
		m[i], v[i] = c.leave(i, c.part(i))
		l.Leverage[i] = 1 - c.left[i]
		if v[i] < 0 {
			return fmt.Errorf("pgsvi: %s has more precision than all of its linear predictor, and a leverage of %v: is q that of these rows, and fitted to the end? %w", c.terms.describe(i), l.Leverage[i], ErrNotPosDef)
		}
		if math.IsNaN(v[i]) {
			l.PointErr[i] = math.Inf(1)
			m[i], v[i] = c.m[i]+o, c.v[i]+extra
			return nil
		}
		l.Influence[i] = marginalKL(c.m[i], c.v[i], m[i], v[i])
		m[i] += o
		v[i] += extra
		l.Pointwise[i], _ = predictiveLogProb(c.terms.lik, y, m[i], v[i])
		if sum := l.Pointwise[i] + l.Influence[i]; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return fmt.Errorf("pgsvi: %s has log-probability %v, and an influence of %v, where it is left out, at a latent mean of %v and variance of %v: %w", c.terms.describe(i), l.Pointwise[i], l.Influence[i], m[i], v[i], ErrNotFinite)
		}
		return nil
	})
	if err == nil {
		for i, e := range l.PointErr {
			if math.IsInf(e, 1) {
				l.Unresolved = append(l.Unresolved, i)
			}
		}
		if len(l.Unresolved) == n {
			return nil, fmt.Errorf("pgsvi: %s as all others, leaves no more than rounding of the precision of its linear predictor when it is left out: give the weights a prior, or fewer columns: %w", c.terms.describe(0), ErrNotPosDef)
		}
		err = c.respond(ctx, l)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgsvi: canceled while data were left out: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	l.add(c.terms.weight)
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

// respond lets the sites of all other data, which the cavities keep, answer to the absence of the data of most influence, and
// says how much that is.
func (c *cavities) respond(ctx context.Context, l *LOO) error {
	n := c.terms.len()
	r := &responder{cavities: c, base: siteState{m: c.m, v: c.v}, scale: 1}
	for _, p := range []*[]float64{&r.base.e, &r.base.tg, &r.base.d1} {
		*p = make([]float64, n)
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	workers := runtime.GOMAXPROCS(0)
	if err := c.terms.expect(&r.base, nil, crew{workers, &halt}); err != nil {
		return prefixed(err)
	}
	// Of many data a regular sample answers for all.
	size := min(n, looSample)
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
	var order []int
	for i := range n {
		if !l.unresolved(i) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.Influence[b], l.Influence[a]), cmp.Compare(a, b))
	})
	known := order[:min(len(order), max(looLeast, looBudget/(size*size)))]
	spaces := make([]responseWork, workers)
	move := make([]float64, len(known))
	err = parallel.Each(ctx, len(known), workers, func(worker, k int) error {
		i := known[k]
		defer parallel.At(&i, c.terms.name)
		y, o, _, extra := c.terms.term(i)
		m, v := r.answer(rowOf(worker, i), i, l.Cavity.v[i]-extra, &spaces[worker])
		m, v = m+o, v+extra
		to, _ := predictiveLogProb(c.terms.lik, y, m, v)
		if math.IsNaN(to) || math.IsInf(to, 0) {
			l.PointErr[i] = math.Inf(1)
			return nil
		}
		move[k] = to - l.Pointwise[i]
		l.PointErr[i] = math.Abs(move[k])
		l.Pointwise[i], l.Cavity.m[i], l.Cavity.v[i] = to, m, v
		return nil
	})
	if err != nil {
		return err
	}
	var signed, size1, influence float64
	for k, i := range known {
		_, _, w, _ := c.terms.term(i)
		signed += w * move[k]
		size1 += l.PointErr[i]
		influence += l.Influence[i]
	}
	l.Err = math.Abs(signed)
	if math.IsInf(size1, 1) {
		l.Err = size1
	}
	for _, i := range order[len(known):] {
		if influence > 0 {
			_, _, w, _ := c.terms.term(i)
			l.PointErr[i] = size1 / influence * l.Influence[i]
			l.Err += w * l.PointErr[i]
		}
	}
	return nil
}

// A responder moves the cavity of a datum as the sites of a sample of all data move without it.
type responder struct {
	*cavities
	base  siteState // sites at the marginals with all data
	index []int     // the sample
	scale float64   // data for each of the sample
	cov   []float64 // covariances of the sample, full
}

// responseWork is scratch of answer, of the length of the sample.
type responseWork struct{ c, m, v, da, dg, cdg []float64 }

// answer returns mean and variance of η_n in the cavity of datum n, of variance cavity, after two rounds of the fixed point that the sites have without it: with C = V_−n, of the first
// order in what they move,
//
//	γ_i ← −∂²E_i/∂m²,   a_i ← ∂E_i/∂m,   at   m + CΔa,   diag(C) − diag(C diag(Δγ) C).
//
// In the first the means hardly move: the variances do, and they the means in the second. Cov are the covariances of the sample with n.
func (r *responder) answer(cov []float64, n int, cavity float64, w *responseWork) (m, v float64) {
	size := len(r.index)
	for _, p := range []*[]float64{&w.c, &w.m, &w.v, &w.da, &w.dg, &w.cdg} {
		*p = dense.Resize(*p, size)
	}
	part := r.part(n)
	left := (1 - part) + part*r.left[n]
	gain, slope := part*r.gamma[n]/left, part*r.a[n]/left
	for k, i := range r.index {
		ci := cov[k]
		w.c[k], w.m[k], w.v[k] = ci, r.base.m[i]-ci*slope, math.Max(0, r.base.v[i]+ci*ci*gain)
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
			x := r.terms.expectation(i, m[k], v[k])
			at := r.base.m[i] - w.c[k]*slope
			w.da[k] = rest * (x.D1 - x.D2*(m[k]-at) - r.base.d1[i] + r.base.tg[i]*(at-r.base.m[i]))
			w.dg[k] = rest * (-x.D2 - r.base.tg[i])
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

// cavities returns what is left of d without each of its sites.
func (d *denseSites) cavities() *cavities {
	n := len(d.m)
	c := &cavities{terms: d.terms, m: d.m, v: make([]float64, n), gamma: d.gamma, a: d.a, left: d.left, known: looRemainder}
	for i := range n {
		c.v[i] = d.v[i*n+i]
	}
	c.vary = c.v
	c.cov = d.covariances
	return c
}

// covariances is the cov of cavities.
func (d *denseSites) covariances(index []int) func(dst []float64, n int) {
	return func(dst []float64, n int) {
		for k, i := range index {
			dst[k] = d.v[n*len(d.m)+i]
		}
	}
}

// looCavities returns the cavities of the rows of l under a Gaussian of the weights less those of the prior, of the given mean
// and covariance.
func (l *linearModel) looCavities(ctx context.Context, mean []float64, cov weightCov) (*cavities, error) {
	n := l.x.rows
	c := &cavities{terms: l.terms, m: make([]float64, n), v: make([]float64, n), left: make([]float64, n), known: looRemainder}
	l.x.mul(c.m, mean, nil)
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	cov.variances(c.v, l.x, nil)
	s := siteState{m: c.m, v: c.v, e: make([]float64, n), tg: make([]float64, n), d1: make([]float64, n)}
	if err := l.terms.expect(&s, nil, crew{runtime.GOMAXPROCS(0), &h}); err != nil {
		return nil, prefixed(err)
	}
	c.gamma, c.a, c.vary = s.tg, s.d1, c.v
	by := cov // what the mean moves by
	switch cov := cov.(type) {
	case *dualCov:
		d, err := l.overRows(&h, c.m, cov.gamma, c.a)
		if err != nil {
			return nil, err
		}
		return d.cavities(), nil
	case diagCov, *lowRankCov:
		if diag, ok := cov.(diagCov); ok {
			c.without = func(n int, part float64) float64 { return diag.without(c, l.x, n, part*c.gamma[n]) }
		}
		if len(mean) > primalWeights {
			d, err := l.overRows(&h, c.m, c.gamma, c.a)
			if err != nil {
				return nil, err
			}
			rows := d.cavities()
			c.vary, c.left, c.cov = rows.v, rows.left, rows.cov
			return c, nil
		}
		full, err := l.newton(&h, c.gamma)
		if err != nil {
			return nil, err
		}
		by, c.vary = full, make([]float64, n)
		full.variances(c.vary, l.x, nil)
	case *fullCov:
		if _, fixed := l.terms.lik.(GaussianNoise); !fixed {
			full, err := l.looFull(&h, c, goalOf(0, n, floats.Sum(s.e)))
			if err != nil {
				return nil, err
			}
			if full != nil {
				by = full
			}
		}
	}
	for i, g := range c.gamma {
		c.left[i] = 1 - g*c.vary[i]
	}
	c.cov = func(index []int) func(dst []float64, n int) {
		u, t := make([]float64, len(mean)), make([]float64, len(mean))
		return func(dst []float64, n int) {
			l.x.dense1(u, n)
			clear(t)
			by.(*fullCov).s.apply(dense.Double{Hi: u, Lo: t})
			l.x.mul(dst, u, index)
		}
	}
	return c, nil
}

// looFull says of c, under a full covariance, what is known of the precisions that are left. V is of the sites
// before the last step and γ of those after it, which agree as far as q is fitted, to the goal. Where that
// is not enough for a row, and the rows are all that q has seen, the covariance of the γ takes the
// place of V, which looFull returns. Only slopes are then off by what q is short of its optimum.
func (l *linearModel) looFull(h *parallel.Halt, c *cavities, goal float64) (*fullCov, error) {
	c.known = looFitted * math.Sqrt(goal)
	resolved := true
	for i, g := range c.gamma {
		resolved = resolved && 1-g*c.v[i] > c.known
	}
	if resolved {
		return nil, nil
	}
	full, err := l.newton(h, c.gamma)
	if errors.Is(err, ErrNotPosDef) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := make([]float64, len(c.v))
	full.variances(v, l.x, nil)
	for i, vi := range v {
		if !(math.Abs(vi-c.v[i]) <= c.known*c.v[i]) {
			return nil, nil
		}
	}
	c.v, c.vary, c.known = v, v, looShort*goal
	return full, nil
}

// overRows returns what sites make of the prior of the rows.
func (l *linearModel) overRows(h *parallel.Halt, m, gamma, a []float64) (*denseSites, error) {
	n := l.x.rows
	if err := checkMemory(l.maxMemory, bytesOf(denseMatrices, n, n), fmt.Sprintf("to leave out each of %d rows of %d weights", n, len(l.names)), "leave out rows of fewer, or raise GLMOptions.MaxMemory"); err != nil {
		return nil, err
	}
	k, err := l.gramUntil(h)
	if err != nil {
		return nil, err
	}
	return newDenseSites(h, l.terms, k, m, gamma, a)
}

// newton returns the covariance (Λ0 + Xᵀdiag(γ)X)⁻¹, by which the mean of any q moves when slopes do.
func (l *linearModel) newton(h *parallel.Halt, gamma []float64) (*fullCov, error) {
	prior, err := l.prior.stateUntil(h)
	if err != nil {
		return nil, err
	}
	full := &weightState{halt: h}
	ok := full.add(prior, l.x, gamma, nil, &designWork{halt: h})
	if err := h.Err(); err != nil {
		return nil, err
	}
	if full.halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: precision of the weights under the sites of q; is it fitted to the end? %w", ErrNotPosDef)
	}
	clear(full.mean)
	return &fullCov{s: full}, nil
}

// without returns the variance of row n where a site of precision gamma is taken out of each weight.
func (c diagCov) without(at *cavities, x *design, n int, gamma float64) (v float64) {
	ind, val := x.row(n)
	for k, z := range val {
		j := k
		if ind != nil {
			j = int(ind[k])
		}
		if z *= z; z > 0 {
			left := 1 - gamma*c[j]*z
			if !(left > at.known) {
				return at.withoutSite(left)
			}
			v += z * c[j] / left
		}
	}
	return v
}

// looDraws leaves out terms of a log-likelihood by weights of draws of q.
func (j *joint) looDraws(ctx context.Context, env *Env, q Dist, draws int) (*LOO, error) {
	if draws == 0 {
		draws = psisDraws
	}
	n, d, workers := j.f.ll.Len(), q.Dim(), env.Workers()
	if draws < psisLeast {
		return nil, fmt.Errorf("pgsvi: LOO from %d draws; it takes %d, and %d to be of use: %w", draws, psisLeast, psisDraws, ErrParam)
	}
	if err := checkMemory(0, bytesOf(1, draws, n)+bytesOf(float64(2*workers), draws, 1), fmt.Sprintf("log-likelihoods of %d terms at %d draws", n, draws), "take fewer draws, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	logp, r := make([]float64, draws*n), make([]float64, draws) // term by term, and log p(y, z) − log q(z)
	seed := env.rng().Uint64()
	type worker struct {
		draw sampler
		at   int // the draw
		z    []float64
	}
	work := make([]*worker, workers)
	each := func(n int, f func(worker, i int) error) error {
		if err := env.Each(ctx, n, f); ctx.Err() == nil {
			return err
		}
		return fmt.Errorf("pgsvi: canceled while data were left out: %w", context.Cause(ctx))
	}
	err := each((draws+psisChunk-1)/psisChunk, func(i, chunk int) error {
		if work[i] == nil {
			w := &worker{z: make([]float64, d)}
			terms := j.eachTerm(ctx)
			w.draw = distSampler(q, j.prior, func() func([]float64) float64 {
				return func(z []float64) (sum float64) {
					var t int
					defer parallel.At(&t, func(i int) string { return fmt.Sprintf("term %d", i) })
					for t = range n {
						l := terms(t, z)
						logp[t*draws+w.at] = l
						sum += l
					}
					return sum
				}
			})()
			work[i] = w
		}
		w, rng := work[i], rand.New(rand.NewPCG(seed, uint64(chunk)))
		for w.at = chunk * psisChunk; w.at < min(draws, (chunk+1)*psisChunk); w.at++ {
			if err := w.draw(w.z, r[w.at:w.at+1], rng); err != nil {
				return err
			}
			if math.IsInf(r[w.at], -1) {
				return fmt.Errorf("pgsvi: p(y, z) is 0 at a draw of q, z = %s: %w", abridged(w.z), ErrNotFinite)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l := &LOO{Limit: psis.Limit(draws)}
	for _, p := range []*[]float64{&l.Pointwise, &l.PointErr, &l.KHat, &l.Leverage, &l.Influence} {
		*p = make([]float64, n)
	}
	w, order := slices.Clone(r), make([]int, draws)
	psis.Smooth(w, order)
	normalize(w)
	type scratch struct {
		w     []float64
		order []int
	}
	spaces := make([]scratch, workers)
	err = each(n, func(worker, t int) error {
		s := &spaces[worker]
		s.w, s.order = dense.Resize(s.w, draws), dense.Resize(s.order, draws)
		lt := logp[t*draws : (t+1)*draws]
		floats.SubTo(s.w, r, lt)
		l.KHat[t] = psis.Smooth(s.w, s.order)
		normalize(s.w)
		top := floats.Max(lt)
		var p, mean float64
		for i, x := range lt {
			p += s.w[i] * math.Exp(x-top)
			mean += w[i] * x
		}
		var errs, variance float64
		for i, x := range lt {
			e := s.w[i] * (math.Exp(x-top)/p - 1)
			errs += e * e
			variance += w[i] * (x - mean) * (x - mean)
		}
		l.Pointwise[t], l.PointErr[t] = top+math.Log(p), math.Sqrt(errs)
		l.Leverage[t], l.Influence[t] = variance, math.Max(0, mean-l.Pointwise[t])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.add(nil)
	l.Err = floats.Norm(l.PointErr, 2)
	return l, nil
}

// normalize replaces logarithms of weights by weights of sum 1.
func normalize(w []float64) {
	top := floats.Max(w)
	for i, x := range w {
		w[i] = math.Exp(x - top)
	}
	floats.Scale(1/floats.Sum(w), w)
}

// eachTerm returns log p(y_n|z) as a function of n and z, for one worker.
func (j *joint) eachTerm(ctx context.Context) func(n int, z []float64) float64 {
	if l, ok := j.f.ll.(LogLik); ok {
		return l.LogProb
	}
	n := float64(j.f.ll.Len())
	terms := make([]Integrand, j.f.ll.Len())
	return func(i int, z []float64) float64 {
		if terms[i] == nil {
			terms[i] = j.f.batch(ctx, []int{i})
		}
		return terms[i].LogProb(z) / n
	}
}

// LOO leaves out one term of the log-likelihood of o after the other; for F and H see PSIS. With a Gaussian q and an F
// of Sites, of GP.Objective or of GLM.Objective it is by cavities, and env and draws do not count. Otherwise it is
// by draws, of which there are 2200 for 0, and it takes memory for as many log-likelihoods of each term.
//
// The error wraps ErrParam if q is nil or a Point, there are fewer than 25 draws, or F or H says nothing of a likelihood or a prior; ErrNotPosDef if a term
// has more precision than there is, as q is not that of these terms or not fitted to the end, or none leaves any; ErrNotFinite if a log-likelihood at a draw, or
// a term that is left out, has none; and ErrMemory.
func (o Objective[Q]) LOO(ctx context.Context, env *Env, q Q, draws int) (*LOO, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	j, err := newJoint(problem{F: o.F, H: o.H, Init: q})
	if err != nil {
		return nil, err
	}
	g, ok := Dist(q).(*Gaussian)
	prior, ok2 := j.prior.(*Gaussian)
	l := &linearModel{}
	if ok && ok2 {
		l, err = j.linear(prior)
	}
	if err != nil {
		return nil, err
	}
	if l.x == nil {
		return j.looDraws(ctx, env, q, draws)
	}
	mean, cov, err := weightsOf(g)
	if err != nil {
		return nil, err
	}
	c, err := l.looCavities(ctx, mean, cov)
	if err != nil {
		return nil, err
	}
	return c.loo(ctx)
}

// linear returns j as a model of rows; there are none if its terms are no sites.
func (j *joint) linear(prior *Gaussian) (*linearModel, error) {
	var rows [][]float64
	l := &linearModel{names: make([]string, prior.Dim())}
	if j.f == nil {
		l.terms, rows = j.sites.terms, j.sites.x
	} else if s, ok := j.f.ll.(Sites); ok {
		t, err := newSiteTerms(s.Lik, s.Y)
		if err != nil {
			return nil, err
		}
		l.terms, rows = t, s.X
	} else {
		return l, nil
	}
	d := prior.Dim()
	l.x = &design{rows: l.terms.len(), cols: d}
	if rows == nil {
		l.x.sparse = identity(d)
	}
	for _, x := range rows {
		l.x.dense = append(l.x.dense, x...)
	}
	_, cov, err := weightsOf(prior)
	if err != nil {
		return nil, err
	}
	l.prior.mean = make([]float64, d)
	if f, ok := cov.(*fullCov); ok {
		l.prior.full = f.s
	} else {
		l.prior.prec = cov.(diagCov)
		for j, v := range l.prior.prec {
			l.prior.prec[j] = 1 / v
		}
	}
	return l, nil
}
