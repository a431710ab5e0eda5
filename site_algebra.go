package pgsvi

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// Steps with noise, from a mini-batch or an estimator that draws.
const (
	// noisyPivot is how much such a step must leave, of the precision of a
	// variable, to a site with a negative γ: a tenth, so that the variance grows
	// tenfold. Noise alone drives sites to the edge of what is positive definite, where
	// each step could go half of the way that is left, and the mean runs away with V.
	noisyPivot = 0.1
	// noisyHalvings is how often a step is halved for that reason; then it is taken all the same.
	noisyHalvings = 20
	// mostHalvings is how often a step is halved until V is positive definite: to 1e-30 of its length.
	mostHalvings = 100
)

// algebra is q in natural parameters, kept as it likes: a site for every term, or
// their sum over the weights. Whatever knows how a covariance is stored is behind it.
type algebra interface {
	// plan says how a Solver without options runs the algebra.
	plan() Plan
	// closedForm reports whether its steps are in closed form.
	closedForm() bool
	// use lets the crew do what follows. Once that is halted each method returns its error, q being as it was, and done
	// again does what it would have done.
	use(c crew)

	// marginals makes room in x for the terms in batch and stores their means and variances under q.
	marginals(x *siteEstimates, batch []int) error
	// aim makes the target of the step of m from what x says of the terms in batch.
	aim(x *siteEstimates, batch []int, m paperMove) error
	// try reports whether the target is a valid q, and whether it is nearer to the edge of these than noise may
	// drive it, by noisyPivot, where q itself is not.
	try(noisy bool) (valid, edge bool)
	// halve moves the target half of the way back to q.
	halve()
	// take makes the target, which is valid, the current q.
	take() error

	// ascend takes one accepted step of all terms: the ELBO does not fall. It returns how many passes over the terms that took.
	ascend() (passes int, err error)
	// block takes the step
	//
	//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)],
	//
	// with the sites of the terms not in batch held fixed.
	block(batch []int) error
	// slow reports whether blocks bring so little that steps of all terms are due.
	slow() bool
	// moved returns the distance that the last step went.
	moved() float64
	// evaluate says how good q is, its GapBound without numerical error. A proof that costs much is tried where the gap may be
	// within so many nats. The step of the mean that comes with a proof is kept, unless the last step was one with a given β or mixes the states before.
	evaluate(within float64) (Evaluation, error)
	// scope says over which q a GapBound holds.
	scope() Scope

	// state writes or reads all that later steps depend on.
	state(c *save.State)
	// constant reports whether evaluate would change nothing of that.
	constant() bool
}

// paperMove is a step with a given β: with r = 1/(1+β) and the estimates scaled by N/M.
type paperMove struct {
	r, scale float64
	appendix bool // the update of the mean
}

// siteMover moves the base N(m0, C) of the variables η to the Gaussian whose
// sites have changed. There is one for variables whose covariance is at hand,
// and one for linear functions of fewer weights.
type siteMover interface {
	// cover takes the changes Δ of γ and stores the variances in v. It returns log|C|/|V|, and reports
	// whether V is positive definite and resolved.
	cover(v, delta []float64) (logDet float64, ok bool)
	// move takes, after cover, the changes u of the linear coefficients about the base mean. It stores the moves of
	// the means, d, and replaces u by C⁻¹d = u − Δd. It returns dᵀC⁻¹d.
	move(d, delta, u []float64) (square float64)
	// accept makes what the last move computed the current state.
	accept()
	// hold is move with the covariance of the current state, which the next accept leaves as it is.
	hold(d, delta, u []float64) (square float64)
	spreader
	// before stores the covariance of the base in dst, both triangles, and reports whether it could at no more cost than that.
	before(dst []float64) bool
	// mark keeps the current state, and back returns to it.
	mark()
	back()
	// covariance returns that of the variables in the current state, of which the lower triangle counts, or nil where it
	// would cost far more than a move. It is valid until the next call.
	covariance() []float64
}

// A site stands for one likelihood term: it multiplies the density of η_n by
// exp(b_n η_n − ½ γ_n η_n²). γ_n may be negative where the likelihood is not
// log-concave.

// siteProblem minimises KL(q‖cavity) + f(q) over q = cavity × sites, where the
// base N(m0, C) is the cavity with sites (γ0, a0) already in: a proximal step
// with r = 0 on a block of sites, the others held fixed. Each iteration is
// accepted only if the value does not rise.
//
// Within a problem a site is written about the base mean, exp(c(η − m0) −
// ½γ(η − m0)²), so that large numbers do not cancel where γ is large.
type siteProblem struct {
	n           int
	base        siteState // its expectations are not used
	mover       siteMover
	terms       *siteTerms
	index       []int // of the terms; nil means all
	workers     crew
	plain       bool // no Anderson steps
	cur, try    problemState
	t           float64 // length of the next step along the segment
	delta, u, d []float64
	tg, tc      []float64 // target of the segment
	mix         siteMix
	newton      siteNewton
	rates       siteRates
	in          innerMean
	modes       siteMode
	outer       int // of how many dimensions outer steps are; 0: there are none
	evaluations int
}

// covMover is the siteMover of variables with covariance C.
type covMover struct {
	n     int
	cov   []float64 // C, both triangles; not owned
	again bool      // further moves will start from V, which must not lose C
	fac   dense.Sites
	exp   dense.Expansion

	last, cur []float64 // Δ of the last move and of the current state,
	kept      []float64 // and of that which was marked
	current   bool      // fac is that of the current state
	v         []float64 // V
}

// reset makes the base, n variables with covariance c, the current state.
func (a *covMover) reset(c []float64, n int) {
	a.n, a.cov = n, c
	a.last, a.cur = dense.Resize(a.last, n), dense.Resize(a.cur, n)
	clear(a.cur)
	a.current = false
}

func (a *covMover) cover(v, delta []float64) (logDet float64, ok bool) {
	copy(a.last, delta)
	a.current = false
	if !a.fac.Factor(a.cov, a.n, delta) || a.again && a.fac.Strongest() > dense.StrongestSite {
		return 0, false
	}
	a.fac.Expand(&a.exp, a.cov, a.n)
	return a.fac.LogDet, a.fac.Variances(v, &a.exp)
}

func (a *covMover) move(d, _, u []float64) (square float64) {
	a.fac.Solve(u)
	a.fac.MulC(u)
	copy(d, a.fac.T)
	return floats.Dot(u, d)
}

func (a *covMover) accept() {
	a.last, a.cur = a.cur, a.last
	a.current = true
}

func (a *covMover) before(dst []float64) bool {
	copy(dst, a.cov)
	return true
}

func (a *covMover) mark() { a.kept = append(a.kept[:0], a.cur...) }

func (a *covMover) back() {
	copy(a.cur, a.kept)
	a.current = false
}

func (a *covMover) hold(d, delta, u []float64) (square float64) {
	if !a.current {
		a.current = a.fac.Factor(a.cov, a.n, a.cur)
	}
	copy(a.last, a.cur)
	return a.move(d, delta, u)
}

func (a *covMover) weights() int { return a.n }

func (a *covMover) gather(u, r []float64) bool {
	copy(u, r)
	return true
}

func (a *covMover) curve(eta, u, w, h []float64) {
	copy(eta, w)
	floats.MulTo(u, h, w)
}

func (a *covMover) spread(w, u []float64) bool {
	if !a.current {
		a.current = a.fac.Factor(a.cov, a.n, a.cur)
	}
	if !a.current {
		return false
	}
	copy(w, u)
	a.fac.Solve(w)
	a.fac.MulC(w)
	copy(w, a.fac.T)
	return true
}

func (a *covMover) covariance() []float64 {
	a.current = a.fac.Factor(a.cov, a.n, a.cur)
	if !a.current {
		return nil
	}
	a.v = dense.Resize(a.v, a.n*a.n)
	a.fac.Expand(&a.exp, a.cov, a.n)
	a.fac.Covariance(a.v, &a.exp)
	return a.v
}

// problemState is a state with its sites about the base mean and its value.
type problemState struct {
	siteState
	c      []float64
	value  float64 // KL(q‖cavity) − Σe, up to a constant of the problem
	logDet float64 // log|C|/|V|
}

// init starts from a base with marginals m0, v0 and sites γ0, a0 of the terms in index, which mover moves.
func (p *siteProblem) init(t *siteTerms, index []int, mover siteMover, base *siteState) error {
	p.prepare(t, index, mover, base)
	return p.start()
}

// prepare is init without the expectations at the base.
func (p *siteProblem) prepare(t *siteTerms, index []int, mover siteMover, base *siteState) {
	n := len(base.m)
	p.n, p.terms, p.index, p.mover = n, t, index, mover
	p.base.copyFrom(base)
	for _, s := range []*problemState{&p.cur, &p.try} {
		s.resize(n)
		s.c = dense.Resize(s.c, n)
	}
	p.delta, p.u, p.d = dense.Resize(p.delta, n), dense.Resize(p.u, n), dense.Resize(p.d, n)
	p.tg, p.tc = dense.Resize(p.tg, n), dense.Resize(p.tc, n)
	p.t = 1
	p.mix.Reset()
	p.evaluations = 0
}

// start makes the base the current state.
func (p *siteProblem) start() error {
	p.cur.copyFrom(&p.base)
	copy(p.cur.c, p.base.a)
	p.cur.logDet = 0
	if err := p.terms.expect(&p.cur.siteState, p.index, p.workers); err != nil {
		return err
	}
	p.cur.value = -floats.Sum(p.cur.e)
	return nil
}

// eval computes p.try at its sites (gamma, c) and reports whether it is a valid
// state with a value.
func (p *siteProblem) eval() bool { return p.cover() && p.settle() }

// cover computes the variances of p.try at its γ, and reports whether there are any.
func (p *siteProblem) cover() (ok bool) {
	if p.workers.halt.Stopped() {
		return false
	}
	p.evaluations++
	s := &p.try
	floats.SubTo(p.delta, s.gamma, p.base.gamma)
	s.logDet, ok = p.mover.cover(s.v, p.delta)
	return ok
}

// settle computes, after cover, the rest of p.try at its sites: with u = C⁻¹(m − m0) and d = m − m0, relative to the base,
//
//	KL(q‖cavity) = ½(log|C|/|V| − ΣΔv + uᵀd) + Σ a0 d − ½γ0(v − v0 + d²).
func (p *siteProblem) settle() bool {
	floats.SubTo(p.u, p.try.c, p.base.a)
	return p.finish(p.mover.move(p.d, p.delta, p.u))
}

// finish is settle after the move, whose dᵀC⁻¹d is square.
func (p *siteProblem) finish(square float64) bool {
	kl, ok := p.divergence(square)
	if !ok || p.terms.expect(&p.try.siteState, p.index, p.workers) != nil {
		return false
	}
	p.try.value = 0.5*kl - floats.Sum(p.try.e)
	return !math.IsNaN(p.try.value)
}

// place computes, after cover, the means of p.try and a, and reports whether there are any.
func (p *siteProblem) place() bool {
	floats.SubTo(p.u, p.try.c, p.base.a)
	_, ok := p.divergence(p.mover.move(p.d, p.delta, p.u))
	return ok
}

// divergence computes the means of p.try and a after the move, whose dᵀC⁻¹d is square, and twice KL(q‖cavity). It reports whether these are finite.
func (p *siteProblem) divergence(square float64) (kl float64, ok bool) {
	s, o, n := &p.try, &p.base, p.n
	d := p.d
	kl = s.logDet + square // twice KL(q‖base), which is not negative but for rounding
	size := 1 + s.logDet + square
	for i, v := range s.v {
		kl -= p.delta[i] * v
		size += math.Abs(p.delta[i]) * v
	}
	if !(kl > -1e-9*size) {
		return kl, false
	}
	for i := range n {
		kl += 2*o.a[i]*d[i] - o.gamma[i]*(s.v[i]-o.v[i]+d[i]*d[i])
		s.m[i] = o.m[i] + d[i]
		s.a[i] = o.a[i] - o.gamma[i]*d[i] + p.u[i]
		if math.IsNaN(s.m[i]) || math.IsInf(s.m[i], 0) {
			return kl, false
		}
	}
	return kl, true
}

// accept makes p.try the current state if its value is finite and no higher.
func (p *siteProblem) accept() bool {
	if math.IsInf(p.try.value, 1) || !(p.try.value <= p.cur.value+1e-14*math.Abs(p.cur.value)) {
		return false
	}
	p.cur, p.try = p.try, p.cur
	p.mover.accept()
	return true
}

// decrement is the decrease that the linearised problem promises, ½δᵀFδ, with
// the Fisher information F of the marginals alone.
func (p *siteProblem) decrement() float64 {
	var s float64
	for i, v := range p.cur.v {
		g, c := p.cur.tg[i]-p.cur.gamma[i], p.cur.d1[i]-p.cur.a[i]
		s += c*c*v + 0.5*g*g*v*v
	}
	return 0.5 * s
}

// stride is an outer step, where there are such, or iterate, but for where steps to the targets are slow: it then takes one of Newton's,
// if there is one. It returns how many passes over the terms that cost, one for each length of a step that was tried, and whether a step was accepted.
func (p *siteProblem) stride(f *progress) (passes int, ok bool) {
	before, t, was := p.evaluations, p.t, *f
	lost := f.lost(&p.cur.siteState)
	if lost && (p.narrow() || p.walk()) || (lost || f.slow && p.decrement() > farPromise) && p.alone() || f.slow && p.leap() {
		return p.evaluations - before, true
	}
	if f.slow { // None is good here: something else, and the like of it for some passes.
		f.slow, f.rest = false, slowRest
		p.targetAlone()
		p.t = 1
		if p.halve(3) {
			return p.evaluations - before, true
		}
	}
	if p.outer > 0 && !p.workers.halt.Stopped() && p.outerStep() {
		return p.evaluations - before, true
	}
	passes = 1 + p.evaluations - before
	if !p.workers.halt.Stopped() && p.iterate() {
		return passes, true
	}
	if p.workers.halt.Stopped() {
		p.t, *f = t, was
	}
	return passes, false
}

// The mean need be no better than this part of what the precisions promise, and this in nats.
const (
	innerPart  = 1e-2
	innerLeast = 1e-12
)

// inner moves the mean of the current state in p.in.at, V held, and reports whether it did; see innerMean.find.
func (p *siteProblem) inner(slack, part float64) bool {
	p.in.begin(&p.cur.siteState, p.cur.value, p.terms, p.index, p.mover, p.workers)
	return p.in.find(slack, part)
}

// outerStep takes an accepted step to the sites that the best mean for the V at hand wants, their log γ mixed with those of the
// outer steps before, and reports whether there is one. Where it was halted it can be done again.
func (p *siteProblem) outerStep() bool {
	x := &p.in.at
	switch {
	case p.cur.wild:
		return false
	case slices.Equal(p.cur.gamma, p.base.gamma):
		p.in.begin(&p.cur.siteState, p.cur.value, p.terms, p.index, p.mover, p.workers)
		return p.in.depart(p.base.v, p.outer) && p.outward(x.tg)
	}
	p.inner(innerLeast, innerPart)
	if p.workers.halt.Stopped() {
		return false
	}
	if !p.plain && p.mix.precisions(x) && p.outward(p.mix.z) || !p.workers.halt.Stopped() && p.outward(x.tg) {
		return true
	}
	p.mix.again = p.workers.halt.Stopped()
	return false
}

// outward goes to the given γ and the mean to which that in p.in.at leads with them, if the value does not rise.
func (p *siteProblem) outward(gamma []float64) bool {
	x := &p.in.at
	for i, g := range gamma {
		p.try.gamma[i], p.try.c[i] = g, x.d1[i]+g*(x.m[i]-p.base.m[i])
	}
	return p.eval() && p.accept()
}

// again makes the mean that to which the targets at x lead, V held, if the value does not rise.
func (p *siteProblem) again(x *siteState) bool {
	t := &p.try
	for i, g := range p.cur.gamma {
		t.gamma[i], t.c[i] = g, x.d1[i]+g*(x.m[i]-p.base.m[i])
		p.delta[i], p.u[i] = g-p.base.gamma[i], t.c[i]-p.base.a[i]
	}
	copy(t.v, p.cur.v)
	t.logDet = p.cur.logDet
	return p.finish(p.mover.hold(p.d, p.delta, p.u)) && p.accept()
}

// iterate takes one accepted step: an Anderson step if that lowers the value,
// else along the segment to the target in natural parameters, halved until it
// does. Where the target lies so far off that two halvings do not help, as from
// the prior of a Poisson model, the targets of the sites alone are tried before
// the segment is halved further. It reports false if no step was accepted; where it was halted it can be done again.
func (p *siteProblem) iterate() bool {
	t := p.t
	if p.advance() {
		return true
	}
	if p.workers.halt.Stopped() {
		p.t, p.mix.again = t, !p.plain
	}
	return false
}

// advance is iterate, for better or worse.
func (p *siteProblem) advance() bool {
	if p.cur.absurd() && p.escape() {
		return true
	}
	if !p.plain && p.mix.propose(&p.try, &p.cur, p.base.m) && p.eval() && p.accept() {
		return true
	}
	p.target()
	if p.halve(3) {
		return true
	}
	t := p.t
	p.targetAlone()
	p.t = 1
	if p.halve(10) {
		return true
	}
	p.target()
	p.t = t
	if p.halve(50) {
		return true
	}
	p.t = 1
	return p.cur.wild && (p.narrow() || p.escape())
}

// target stores where the linearised problem would move the sites.
func (p *siteProblem) target() {
	s := &p.cur
	for i, m := range s.m {
		p.tg[i], p.tc[i] = s.tg[i], s.d1[i]+s.tg[i]*(m-p.base.m[i])
	}
}

// targetAlone stores where each site would move if it were the only one to:
// the minimiser of its own one-dimensional problem, however far that is.
func (p *siteProblem) targetAlone() {
	s := &p.cur
	for i, m := range s.m {
		if p.workers.halt.Stopped() {
			return
		}
		vc := 1 / (1/s.v[i] - s.gamma[i])
		mc := m - s.a[i]*vc
		g, d1, at := s.tg[i], s.d1[i], m
		if vc > 0 && !math.IsInf(vc, 0) {
			g, d1, at = p.terms.solve(dense.Index(p.index, i), mc, vc, m, s.v[i])
		}
		p.tg[i], p.tc[i] = g, d1+g*(at-p.base.m[i])
	}
}

// newtonHalvings is how often a step of Newton's is halved until it is accepted: where it does not help by then, it does not help.
const newtonHalvings = 8

// newtonWalks is the number of lengths of a step of Newton's after which a walk is tried: short ones are for many.
const newtonWalks = 2

// leap takes an accepted step of Newton's, or a walk where that is no good, and reports whether there is one.
func (p *siteProblem) leap() bool {
	s, n := &p.cur, &p.newton
	if s.wild {
		return false
	}
	if !n.aim(p.terms, &s.siteState, p.index, p.mover.covariance(), p.workers) {
		return p.walk()
	}
	h := 1.0
	for k := range newtonHalvings {
		if k == newtonWalks && p.walk() || p.newtonStep(h) && p.accept() {
			p.t = 1
			p.mix.Reset()
			return true
		}
		h /= 2
	}
	return false
}

// newtonStep evaluates p.try at the length h of Newton's step.
func (p *siteProblem) newtonStep(h float64) bool {
	s, x, n := &p.cur, &p.try, &p.newton
	for i := range x.gamma {
		x.gamma[i] = s.gamma[i] + n.precision(&s.siteState, i, h)
	}
	if !p.cover() {
		return false
	}
	for i, g := range x.gamma {
		x.c[i] = s.a[i] + n.linear(&s.siteState, i, h) + g*(s.m[i]-p.base.m[i]+n.mean(&s.siteState, i, h, x.v[i]))
	}
	return p.settle()
}

// walk goes to the solution by its rates, if the value is lower there, and reports whether it is.
func (p *siteProblem) walk() bool {
	r, s := &p.rates, &p.try
	if !r.set(p.terms, p.index, &p.base) || !p.mover.before(r.c) {
		return false
	}
	p.mover.mark()
	for i, v := range p.cur.v {
		g := math.Max(p.cur.gamma[i], asleep(v))
		switch {
		case math.IsInf(r.origin[i], -1):
			g = asleep(v) // for good
		case v == 0:
			g = math.Max(p.cur.tg[i], ratesLeast) // a row of zeros, which no V depends on
		}
		s.gamma[i], s.c[i] = g, p.cur.a[i]+g*(p.cur.m[i]-p.base.m[i])
	}
	for k := range ratesMost {
		if !p.cover() || !p.place() {
			break
		}
		p.mover.accept()
		if r.far(&s.siteState) <= ratesNear {
			if k > 0 && p.eval() && p.accept() { // else other steps are to go on from here
				return true
			}
			break
		}
		if !r.aim(&s.siteState, p.mover.covariance(), p.workers) {
			break
		}
		for i, g := range s.gamma {
			s.c[i] = s.a[i] + r.da[i] + g*(s.m[i]+r.dm[i]-p.base.m[i])
		}
	}
	p.mover.back()
	return false
}

// narrow leaves the means where they are, with variances below 1: a start where expectations overflow because the
// variances are large. It reports whether it was worth it.
func (p *siteProblem) narrow() bool {
	s := &p.cur
	for i, g := range s.gamma {
		p.tg[i] = g + 1
		p.tc[i] = s.a[i] + p.tg[i]*(s.m[i]-p.base.m[i])
	}
	return p.halveValue(1)
}

// alone moves the sites towards where each would move alone: a start where exponentials of the means are large,
// of which a step to the target, as one of Newton's, takes but a factor of e. It reports whether it was worth it.
func (p *siteProblem) alone() bool {
	p.targetAlone()
	return p.halveValue(3)
}

// escape is alone and, where the sites contradict each other so much that this leads nowhere, goes on from their mode, or else from
// there, and from the current state.
func (p *siteProblem) escape() bool {
	if p.alone() {
		return true
	}
	if (math.IsInf(p.cur.value, 0) || p.decrement() > modeWorth*math.Abs(p.cur.value)) && p.mode() && (p.halfAsBad() || p.stray(&p.try)) {
		return true
	}
	p.segment(1)
	return p.eval() && p.stray(&p.try) || p.stray(&p.cur)
}

// halfAsBad accepts p.try if it is at most half as bad as the current state.
func (p *siteProblem) halfAsBad() bool {
	if p.try.value < 0.5*p.cur.value && p.accept() {
		p.t = 1
		return true
	}
	return false
}

// stray goes from one state to the next, s being the first, each at the targets of the one before, even if it has no ELBO. It accepts what is
// at most half as bad as the current state, and reports whether it came to that.
func (p *siteProblem) stray(s *problemState) bool {
	for range mostAstray {
		for i, m := range s.m {
			g, a := p.terms.sane(&s.siteState, i, dense.Index(p.index, i))
			p.try.gamma[i], p.try.c[i] = g, a+g*(m-p.base.m[i])
		}
		if !p.eval() {
			return false
		}
		if p.halfAsBad() {
			return true
		}
		s = &p.try
	}
	return false
}

// mostAstray bounds the steps from one state to the next.
const mostAstray = 10

// siteMode finds the mode of the means where exponentials of many terms stand against each other, of which steps of sites take a factor of
// e each, and the precisions of which leave no digits of anything else. It takes Newton's steps of
//
//	argmin_m ½(m − mc)ᵀK⁻¹(m − mc) − Σ_n l_n(m_n),
//
// where l_n is the log-likelihood up to its edge, where its derivatives promise so many nats, and beyond that the parabola that meets it
// there: curvatures are bounded, and steps long. Edges move out to where the mode is said to be.
type siteMode struct {
	at, next siteState // m, a = K⁻¹(m − mc), and of the l_n the values e and derivatives d1, −tg
	nats     float64
	edge     []float64 // NaN where not known yet
	beyond   []float64 // log of the nats promised, relative to those at the edge
}

const (
	modeWorth    = 0.01 // of the value, that a step must promise: else the start is not what is wrong
	modeStages   = 60   // to where derivatives overflow
	modeNewtons  = 30
	modeHalves   = 20
	modeFall     = 1e-3 // of the value, below which a stage is over
	modeNearest  = 1    // least and greatest move of an edge, in log nats: precisions of different rows leave each other digits
	modeFurthest = 14
	modeEdge     = 1e-10 // resolution of edges, relative
)

// look makes s the values and derivatives of the terms at its means, and returns the sum of the former.
func (a *siteMode) look(t *siteTerms, s *siteState, index []int) float64 {
	var n int
	defer parallel.At(&n, t.name)
	for i, m := range s.m {
		n = dense.Index(index, i)
		x, edge := t.expectation(n, m, 0), a.edge[i]
		a.beyond[i] = math.Log(math.Abs(x.D2) / a.nats)
		if absurd(x, a.nats) {
			if math.IsNaN(edge) {
				edge = t.nearest(n, m, modeEdge*(1+math.Abs(m)), func(x Expectation) bool { return moderate(x) && !absurd(x, a.nats) })
				a.edge[i] = edge
			}
			x = t.expectation(n, edge, 0)
			d := m - edge
			a.beyond[i] = math.Abs(x.D2 / x.D1 * d)
			x.Value += (x.D1 + 0.5*x.D2*d) * d
			x.D1 += x.D2 * d
		}
		s.e[i], s.d1[i], s.tg[i] = x.Value, x.D1, -x.D2
	}
	return floats.Sum(s.e)
}

// further moves the edges out to where the terms that count are, and reports whether any was beyond its edge.
func (a *siteMode) further() bool {
	var sum, weight float64
	far := false
	for i, d := range a.at.d1 {
		if w := math.Abs(d); !math.IsInf(a.beyond[i], -1) {
			sum += w * a.beyond[i]
			weight += w
		}
		far = far || a.beyond[i] > 0
	}
	a.nats *= math.Exp(math.Min(math.Max(modeNearest, sum/weight), modeFurthest))
	return far
}

// mode goes to the mode of the means, and reports whether p.try is a state there, with or without an ELBO.
func (p *siteProblem) mode() bool {
	a, t := &p.modes, p.terms
	if !factsOf(t.lik).LogConcave {
		return false
	}
	a.at.copyFrom(&p.cur.siteState)
	a.next.resize(p.n)
	a.edge, a.beyond = dense.Resize(a.edge, p.n), dense.Resize(a.beyond, p.n)
	a.nats = besideNats
	for range modeStages {
		for i := range a.edge {
			a.edge[i] = math.NaN()
		}
		e := a.look(t, &a.at, p.index)
		for range modeNewtons {
			if !p.modeAim() {
				return false
			}
			fall := p.modeStep(&e)
			if !(fall > modeFall*(1+math.Abs(e))) {
				break
			}
		}
		a.look(t, &a.at, p.index)
		if !a.further() {
			break
		}
	}
	for i, g := range a.at.tg {
		p.try.gamma[i], p.try.c[i] = g, a.at.d1[i]+g*(a.at.m[i]-p.base.m[i])
	}
	return p.eval()
}

// modeAim makes the means and a of p.try those to which a whole step leads.
func (p *siteProblem) modeAim() bool {
	s, o, x := &p.modes.at, &p.base, &p.try
	for i, g := range s.tg {
		x.gamma[i], x.c[i] = g, s.d1[i]+g*(s.m[i]-o.m[i])
	}
	if !p.cover() {
		return false
	}
	floats.SubTo(p.u, x.c, o.a)
	p.mover.move(p.d, p.delta, p.u)
	for i, d := range p.d {
		x.m[i], x.a[i] = o.m[i]+d, o.a[i]-o.gamma[i]*d+p.u[i]
	}
	_, ok := dense.AllFinite(x.m)
	return ok
}

// modeStep goes towards p.try as far as that lowers the value, and returns by how much. It replaces the sum e of the terms.
func (p *siteProblem) modeStep(e *float64) (fall float64) {
	a, x := &p.modes, &p.try
	h := 1.0
	for k := 0; k < modeHalves && !p.workers.halt.Stopped(); k++ {
		var kl float64
		for i, m := range a.at.m {
			d := h * (x.m[i] - m)
			a.next.m[i] = m + d
			a.next.a[i] = a.at.a[i] + h*(x.a[i]-a.at.a[i])
			kl += 0.5 * d * (a.at.a[i] + a.next.a[i])
		}
		after := a.look(p.terms, &a.next, p.index)
		if fall = after - *e - kl; fall >= 0 {
			a.at, a.next, *e = a.next, a.at, after
			return fall
		}
		h /= 2
	}
	return 0
}

// halveValue tries the target and the given number of halves of the way there. It accepts what is at most half as bad.
func (p *siteProblem) halveValue(times int) bool {
	t := 1.0
	for range times {
		p.segment(t)
		if p.eval() && p.halfAsBad() {
			return true
		}
		t /= 2
	}
	return false
}

// segment makes the sites of p.try those at the fraction t of the way to the target.
func (p *siteProblem) segment(t float64) {
	if t == 1 { // sites may be so strong that a difference from them is all rounding
		copy(p.try.gamma, p.tg)
		copy(p.try.c, p.tc)
		return
	}
	for i := range p.n {
		p.try.gamma[i] = p.cur.gamma[i] + t*(p.tg[i]-p.cur.gamma[i])
		p.try.c[i] = p.cur.c[i] + t*(p.tc[i]-p.cur.c[i])
	}
}

// halve tries p.t and its halves along the segment to the target.
func (p *siteProblem) halve(times int) bool {
	for range times {
		t := p.t
		p.segment(t)
		if p.eval() && p.accept() {
			p.t = math.Min(1, 1.5*t)
			return true
		}
		p.t = t / 2
	}
	return false
}

// siteMix accelerates the map from sites to targets, in (log γ, c) where every γ is
// positive and in (γ, c) otherwise, or in log γ alone where the mean is found for each of them. Residuals
// are weighted by the Fisher information of the marginals.
type siteMix struct {
	accel.Anderson
	log   bool
	outer bool // in log γ alone
	again bool // the last iterate is taken again: what followed was halted
	w, z  []float64
}

// mostMix is how far a mixture of log γ may be from the last: what is further off is not to be believed.
const mostMix = 5

// propose stores in dst the mixture that the state s and its predecessors
// suggest and reports whether there is one.
func (a *siteMix) propose(dst, s *problemState, m0 []float64) bool {
	n := len(s.m)
	positive := true
	for i, g := range s.gamma {
		positive = positive && g > 0 && s.tg[i] > 0
	}
	if positive != a.log || a.outer {
		a.log, a.outer = positive, false
		a.Reset()
	}
	x, r := a.Next(2*n, a.again)
	a.again = false
	a.w, a.z = dense.Resize(a.w, 2*n), dense.Resize(a.z, 2*n)
	for i, m := range s.m {
		g, tg, v := s.gamma[i], s.tg[i], s.v[i]
		d := m - m0[i]
		x[n+i], r[n+i] = s.c[i], s.d1[i]+tg*d-s.c[i]
		a.w[n+i] = math.Sqrt(v)
		a.w[i] = math.Sqrt(v*d*d + 0.5*v*v)
		if a.log {
			x[i], r[i] = math.Log(g), math.Log(tg/g)
			a.w[i] *= g
		} else {
			x[i], r[i] = g, tg-g
		}
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	copy(dst.c, a.z[n:])
	for i, z := range a.z[:n] {
		switch {
		case !a.log:
			dst.gamma[i] = z
		case math.Abs(z-x[i]) > mostMix:
			return false
		default:
			dst.gamma[i] = math.Exp(z)
		}
	}
	return true
}

// precisions stores in a.z the γ that the state s, whose mean is that for its V, and its predecessors suggest. It reports whether there are any.
func (a *siteMix) precisions(s *siteState) bool {
	n := len(s.m)
	if !a.outer {
		a.outer = true
		a.Reset()
	}
	for i, g := range s.gamma {
		if !(g > 0 && s.tg[i] > 0) {
			a.Reset()
			return false
		}
	}
	x, r := a.Next(n, a.again)
	a.again = false
	a.w, a.z = dense.Resize(a.w, n), dense.Resize(a.z, n)
	for i, g := range s.gamma {
		x[i], r[i] = math.Log(g), math.Log(s.tg[i]/g)
		a.w[i] = g * s.v[i]
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	for i, z := range a.z {
		if math.Abs(z-x[i]) > mostMix {
			return false
		}
		a.z[i] = math.Exp(z)
	}
	return true
}

// linearModel is a model of linear predictors η_n = o_n + x_nᵀw under a prior N(μ0, Λ0⁻¹) of the weights: what a
// GLM is, and a sparse GP over its features. The terms are functions of Xᵀ(w − μ0).
type linearModel struct {
	terms *siteTerms
	x     *design
	prior weightPrior
	names []string // of the weights

	maxMemory int64 // bytes; 0 is the limit of ErrMemory
}

// What a linear model has at its most, measured: besides the matrices of its algebra, vectors of D numbers
// (names, prior and all), and matrices D×Rank, most of them of the last steps and of a Krylov space.
const (
	weightVectors   = 38
	lowRankMatrices = 28
)

// triangleRows is the number of rows of K, of a triangle, that a goroutine takes at a time.
const triangleRows = 16

// gram returns K = XΛ0⁻¹Xᵀ, full.
func (l *linearModel) gram() []float64 {
	k, _ := l.gramUntil(nil)
	return k
}

// gramUntil is gram, with the error of h where that has stopped.
func (l *linearModel) gramUntil(h *parallel.Halt) ([]float64, error) {
	n, d := l.x.rows, len(l.names)
	k := make([]float64, n*n)
	if l.x.sparse == nil && l.prior.full == nil {
		w := make([]float64, d)
		for j, p := range l.prior.prec {
			w[j] = 1 / p
		}
		dense.AddWeighted(h, k, n, w, dense.General(l.x.dense, n, d))
		dense.FillUpper(k, n)
		return k, h.Err()
	}
	workers := 1
	if l.x.shared(h, n*n*l.x.perRow()) {
		workers = h.Workers()
	}
	x, z := dense.NewRows(workers, d), dense.NewRows(workers, d)
	parallel.For(n, triangleRows, workers, func(worker, lo, hi int) {
		x, z := x[worker], z[worker]
		for i := lo; i < hi && !h.Stopped(); i++ {
			l.x.dense1(x, i)
			l.prior.solve(z, x)
			l.x.mul(k[i*n:i*n+i], z, nil)
			k[i*n+i] = math.Max(0, floats.Dot(x, z))
		}
	})
	if err := h.Err(); err != nil {
		return nil, err
	}
	for i := range n { // symmetric to the last bit
		for j := range i {
			k[j*n+i] = k[i*n+j]
		}
	}
	return k, nil
}

func (l *linearModel) digest(d *save.Digest) {
	d.Int(l.x.rows, l.x.cols)
	for i := range l.x.rows {
		ind, val := l.x.row(i)
		d.Int(len(ind))
		for _, j := range ind {
			d.Int(int(j))
		}
		d.Float(val...)
	}
	d.Floats(l.prior.mean)
	d.Floats(l.prior.prec)
	if w := l.prior.full; w != nil {
		for i := range len(w.mean) {
			d.Float(w.p[i*len(w.mean) : i*len(w.mean)+i+1]...)
		}
	}
}

func (p *siteProblem) state(c *save.State, started bool) {
	c.Float(&p.t)
	p.mix.state(c, p.n)
	if started {
		p.cur.state(c, p.n)
		c.Floats(p.n, &p.cur.c)
		c.Float(&p.cur.value, &p.cur.logDet)
	}
}

// state is that of a, for n terms.
func (a *siteMix) state(c *save.State, n int) {
	c.Bool(&a.log, &a.outer, &a.again)
	if !a.outer {
		n *= 2
	}
	a.Anderson.State(c, n)
}
