package site

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Steps with noise, from a mini-batch or an estimator that draws.
const (
	// noisyPivot is the part of the precision of a variable that such a step must leave to a site
	// with a negative γ: a tenth, so that its variance grows at most tenfold. Otherwise noise
	// alone drives V towards losing positive definiteness, and the mean diverges with V.
	noisyPivot = 0.1
	// noisyHalvings is how often a step is halved for that reason. Then it is taken anyway.
	noisyHalvings = 20
	// mostHalvings is how often a step is halved until V is positive definite: to 1e-30 of its
	// length.
	mostHalvings = 100
)

// Algebra is q in natural parameters with its updates: a site for every term, or their sum over
// the weights. It hides how a covariance is stored.
type Algebra interface {
	// Plan returns the defaults for Solver options.
	Plan() sitePlan
	// ClosedForm reports whether its steps are in closed form.
	ClosedForm() bool
	// Use sets the crew for the following calls. Once it is halted each method returns its error
	// and leaves q unchanged; called again, the method does the same work again.
	Use(c term.Crew)

	// Marginals makes room in x for the terms in batch and stores their means and variances under
	// q.
	Marginals(x *term.Estimates, batch []int) error
	// aim computes the target of the step of m from the estimates x of the terms in batch.
	aim(x *term.Estimates, batch []int, m PaperMove) error
	// try reports whether the target is a valid q, and whether noise may have driven it too near
	// the edge of the valid ones, by noisyPivot, where q itself is not.
	try(noisy bool) (valid, edge bool)
	// halve moves the target half of the way back to q.
	halve()
	// take makes the valid target the current q.
	take() error

	// Ascend takes one accepted step of all terms: the ELBO does not fall. It returns how many
	// passes over the terms that took.
	Ascend() (passes int, err error)
	// Block takes the step
	//
	//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)],
	//
	// with the sites of the terms not in batch held fixed.
	Block(batch []int) error
	// Slow reports whether blocks gain so little that steps of all terms should follow.
	Slow() bool
	// Moved returns the distance that the last step went.
	Moved() float64
	// Evaluate returns the ELBO and the gap of q, with a GapBound without numerical error. A
	// costly proof is tried only if the gap may be at most within nats. A proof may take a step
	// of the mean, which is kept unless the last step had a given β or mixed earlier states.
	Evaluate(within float64) (siteEvaluation, error)
	// Wider reports whether a GapBound holds for any covariance, not only for those of the
	// family.
	Wider() bool

	// State writes or reads everything that later steps depend on.
	State(c *save.State)
	// Constant reports whether Evaluate would leave all of that unchanged.
	Constant() bool
}

// PaperMove is a step with a given β: with r = 1/(1+β) and the estimates scaled by N/M.
type PaperMove struct {
	R, Scale float64
	Appendix bool // the update of the mean
}

// Step takes the step of m from the estimates x of the terms in batch, nil for all. It halves the
// step until V is positive definite and, for noisy estimates, not too near the edge of that; it
// returns how often. The error wraps sentinel.ErrNotPosDef if no length will do.
func Step(a Algebra, x *term.Estimates, batch []int, m PaperMove, noisy bool,
	h *parallel.Halt) (halved int, err error) {
	if err := a.aim(x, batch, m); err != nil {
		return 0, err
	}
	for ; halved < mostHalvings; halved++ {
		valid, edge := a.try(noisy)
		if err := h.Err(); err != nil {
			return 0, err
		}
		if valid && (!edge || halved >= noisyHalvings) {
			return halved, a.take()
		}
		a.halve()
	}
	return 0, fmt.Errorf("posterior covariance at every step size: %w", sentinel.ErrNotPosDef)
}

// siteEvaluation says how good a q is: see Evaluation of the Stepper.
type siteEvaluation struct{ ELBO, ELBOErr, Gap, GapBound, Goal float64 }

// sitePlan is how the steps of all terms are to be taken: a nil Sampler means every term in every
// batch.
type sitePlan struct {
	Batch   int
	Sampler siteSampler
}

// siteSampler draws mini-batches.
type siteSampler interface {
	Batches(n, size int, rng *rand.Rand) iter.Seq[[]int]
}

// Proof is the state of a proof of the gap.
type Proof struct {
	made     bool    // nothing more will be
	stepped  bool    // the step of the mean has been taken
	bound    float64 // 0 if there is none
	rounding float64 // of the ELBO
}

func (p *Proof) state(c *save.State) {
	c.Bool(&p.made, &p.stepped)
	c.Float(&p.bound, &p.rounding)
}

// A site stands for one likelihood term: it multiplies the density of η_n by
// exp(b_n η_n − ½ γ_n η_n²). γ_n may be negative where the likelihood is not
// log-concave.

// Problem minimises KL(q‖cavity) + f(q) over q = cavity × sites, where the
// base N(m0, C) is the cavity with sites (γ0, a0) already in: a proximal step
// with r = 0 on a block of sites, the others held fixed. Each iteration is
// accepted only if the value does not rise.
//
// Within a problem a site is written about the base mean, exp(c(η − m0) −
// ½γ(η − m0)²), so that large numbers do not cancel where γ is large.
type Problem struct {
	N           int
	Base        term.State // its expectations are not used
	Mover       Mover
	terms       *term.Terms
	index       []int // of the terms; nil means all
	Workers     term.Crew
	plain       bool // no Anderson steps
	Cur, Try    problemState
	t           float64 // length of the next step along the segment
	delta, U, D []float64
	tg, tc      []float64 // target of the segment
	aimed       bool      // tg, and these, are what an aimer says of the current state:
	ta, step    []float64 // a after the step of the means, and the step
	straight    bool      // the segment to the target is that of an aimer's means
	mix         siteMix
	newton      siteNewton
	rates       siteRates
	In          innerMean
	modes       siteMode
	Outer       int // of how many dimensions outer steps are; 0: there are none
	Evaluations int
	tol, loose  float64 // of the expectations of several latent values, and the most from here on
}

// CovMover is the Mover of variables with covariance C.
type CovMover struct {
	N       int
	Cov     []float64 // C, both triangles; not owned
	again   bool      // further moves will start from V, which must not lose C
	Fac     dense.Sites
	exp     dense.Expansion
	inverts bool // variances are by the inverse of the factor where these keep their digits
	inverse dense.Inverse

	Last, cur []float64 // Δ of the last move and of the current state,
	kept      []float64 // and of that which was marked
	Current   bool      // fac is that of the current state,
	expanded  bool      // and exp that of fac
	v         []float64 // V
}

// Reset makes the base, n variables with covariance c, the current state.
func (a *CovMover) Reset(c []float64, n int) {
	a.N, a.Cov = n, c
	a.Last, a.cur = dense.Resize(a.Last, n), dense.Resize(a.cur, n)
	clear(a.cur)
	a.Current = false
}

// leastInverse is the least ΔV_ii for which the inverse of the factor gives the variances, which
// takes a third of the operations: of (1 − (B⁻¹)_ii)/Δ_i as many digits cancel as ΔV_ii is below 1.
const leastInverse = 1e-6

func (a *CovMover) Cover(v, delta []float64) (logDet float64, ok bool) {
	copy(a.Last, delta)
	a.Current, a.expanded = false, false
	if !a.Fac.Factor(a.Cov, a.N, delta) || a.again && a.Fac.Strongest() > dense.StrongestSite {
		return 0, false
	}
	if a.inverts && a.byInverse(v, delta) {
		return a.Fac.LogDet, true
	}
	a.Fac.Expand(&a.exp, a.Cov, a.N)
	a.expanded = true
	return a.Fac.LogDet, a.Fac.Variances(v, &a.exp)
}

// byInverse is Cover after the factor by its inverse, and reports whether that leaves all variances
// their digits.
func (a *CovMover) byInverse(v, delta []float64) bool {
	if len(a.Fac.Pos) < a.N || a.Fac.Weakest() < leastInverse || !a.inverse.Variances(&a.Fac, v) {
		return false
	}
	for i, d := range delta {
		if !(d*v[i] >= leastInverse) {
			return false
		}
	}
	return true
}

func (a *CovMover) Move(d, _, u []float64) (square float64) {
	a.Fac.Solve(u)
	a.Fac.MulC(u)
	copy(d, a.Fac.T)
	return floats.Dot(u, d)
}

func (a *CovMover) Accept() {
	a.Last, a.cur = a.cur, a.Last
	a.Current = true
}

func (a *CovMover) before(dst []float64) bool {
	copy(dst, a.Cov)
	return true
}

func (a *CovMover) mark() { a.kept = append(a.kept[:0], a.cur...) }

func (a *CovMover) back() {
	copy(a.cur, a.kept)
	a.Current = false
}

func (a *CovMover) hold(d, delta, u []float64) (square float64) {
	a.factor()
	copy(a.Last, a.cur)
	return a.Move(d, delta, u)
}

func (a *CovMover) weights() int { return a.N }

func (a *CovMover) gather(u, r []float64) bool {
	copy(u, r)
	return true
}

func (a *CovMover) curve(eta, u, w, h []float64) {
	copy(eta, w)
	floats.MulTo(u, h, w)
}

func (a *CovMover) spread(w, u []float64) bool {
	if !a.factor() {
		return false
	}
	copy(w, u)
	a.Fac.Solve(w)
	a.Fac.MulC(w)
	copy(w, a.Fac.T)
	return true
}

// factor makes fac that of the current state, and reports whether it has one.
func (a *CovMover) factor() bool {
	if !a.Current {
		a.Current, a.expanded = a.Fac.Factor(a.Cov, a.N, a.cur), false
	}
	return a.Current
}

func (a *CovMover) Covariance() []float64 {
	a.Current = false
	if !a.factor() {
		return nil
	}
	a.v = dense.Resize(a.v, a.N*a.N)
	a.Fac.Expand(&a.exp, a.Cov, a.N)
	a.Fac.Covariance(a.v, &a.exp)
	return a.v
}

// problemState is a state with its sites about the base mean and its value.
type problemState struct {
	term.State
	C      []float64
	Value  float64 // KL(q‖cavity) − Σe, up to a constant of the problem
	LogDet float64 // log|C|/|V|
}

func (s *problemState) resize(n int) {
	s.Resize(n)
	s.C = dense.Resize(s.C, n)
}

// Init starts from a base with marginals m0, v0 and sites γ0, a0 of the terms in index, and moves
// them by mover. The base may change once the problem is solved.
func (p *Problem) Init(t *term.Terms, index []int, mover Mover, base *term.State) error {
	p.Prepare(t, index, mover, base)
	return p.Start()
}

// Prepare is init without the expectations at the base.
func (p *Problem) Prepare(t *term.Terms, index []int, mover Mover, base *term.State) {
	p.prepareTry(t, index, mover, base)
	p.Cur.resize(p.N)
}

// prepareTry is Prepare for a problem whose first state comes from p.Try. The memory of a second
// state waits until a step needs it; see makeRoom.
func (p *Problem) prepareTry(t *term.Terms, index []int, mover Mover, base *term.State) {
	n := len(base.M)
	p.N, p.terms, p.index, p.Mover = n, t, index, mover
	p.Base = term.State{Gamma: base.Gamma, A: base.A, M: base.M, V: base.V} // not owned
	p.Try.resize(n)
	p.delta, p.U, p.D = dense.Resize(p.delta, n), dense.Resize(p.U, n), dense.Resize(p.D, n)
	p.t = 1
	p.aimed = false
	p.mix.Reset()
	p.Evaluations = 0
	p.tol, p.loose = 0, coarseTols[0]
}

// makeRoom makes room for p.Try. A step calls it before it stores a state there.
func (p *Problem) makeRoom() {
	if len(p.Try.C) < p.N {
		p.Try.resize(p.N)
	}
}

// Start makes the base the current state.
func (p *Problem) Start() error {
	p.Cur.CopySites(&p.Base)
	copy(p.Cur.C, p.Base.A)
	p.Cur.LogDet = 0
	p.Cur.Tol = p.tol
	if err := p.terms.Expect(&p.Cur.State, p.index, p.Workers); err != nil {
		return err
	}
	p.Cur.Value = -floats.Sum(p.Cur.E)
	return nil
}

// startFrom is Start where the base is s, which has expectations.
func (p *Problem) startFrom(s *term.State) {
	p.Cur.CopyFrom(s)
	copy(p.Cur.C, p.Base.A)
	p.Cur.LogDet, p.Cur.Value = 0, -floats.Sum(p.Cur.E)
}

// Eval computes p.try at its sites (gamma, c) and reports whether it is a valid
// state with a value.
func (p *Problem) Eval() bool { return p.cover() && p.settle() }

// cover computes the variances of p.try at its γ, and reports whether there are any.
func (p *Problem) cover() (ok bool) {
	if p.Workers.Halt.Stopped() {
		return false
	}
	p.Evaluations++
	s := &p.Try
	floats.SubTo(p.delta, s.Gamma, p.Base.Gamma)
	s.LogDet, ok = p.Mover.Cover(s.V, p.delta)
	return ok
}

// settle computes, after cover, the rest of p.try at its sites: with u = C⁻¹(m − m0) and d = m −
// m0, relative to the base,
//
//	KL(q‖cavity) = ½(log|C|/|V| − ΣΔv + uᵀd) + Σ a0 d − ½γ0(v − v0 + d²).
func (p *Problem) settle() bool {
	floats.SubTo(p.U, p.Try.C, p.Base.A)
	return p.finish(p.Mover.Move(p.D, p.delta, p.U))
}

// finish is settle after the move, whose dᵀC⁻¹d is square.
func (p *Problem) finish(square float64) bool {
	kl, ok := p.divergence(square)
	p.Try.Tol = p.tol
	if !ok || p.terms.Expect(&p.Try.State, p.index, p.Workers) != nil {
		return false
	}
	p.Try.Value = 0.5*kl - floats.Sum(p.Try.E)
	return !math.IsNaN(p.Try.Value)
}

// place computes, after cover, the means of p.try and a, and reports whether there are any.
func (p *Problem) place() bool {
	floats.SubTo(p.U, p.Try.C, p.Base.A)
	_, ok := p.divergence(p.Mover.Move(p.D, p.delta, p.U))
	return ok
}

// divergence computes the means of p.try and a after the move, whose dᵀC⁻¹d is square, and twice
// KL(q‖cavity). It reports whether these are finite.
func (p *Problem) divergence(square float64) (kl float64, ok bool) {
	s, o, n := &p.Try, &p.Base, p.N
	d := p.D
	kl = s.LogDet + square // twice KL(q‖base), which is not negative but for rounding
	size := 1 + s.LogDet + square
	for i, v := range s.V {
		kl -= p.delta[i] * v
		size += math.Abs(p.delta[i]) * v
	}
	if !(kl > -1e-9*size && square > -1e-9*size) {
		return kl, false
	}
	for i, u := range p.U[:n] {
		kl += 2*o.A[i]*d[i] - o.Gamma[i]*(s.V[i]-o.V[i]+d[i]*d[i])
		m := o.M[i] + d[i]
		s.M[i], s.A[i] = m, o.A[i]-o.Gamma[i]*d[i]+u
		if m-m != 0 { // infinite or NaN
			return kl, false
		}
	}
	return kl, true
}

// Accept makes p.try the current state if its value is finite and no higher.
func (p *Problem) Accept() bool {
	if math.IsInf(p.Try.Value, 1) || !(p.Try.Value <= p.Cur.Value+1e-14*math.Abs(p.Cur.Value)) {
		return false
	}
	p.Cur, p.Try = p.Try, p.Cur
	p.aimed = false
	p.Mover.Accept()
	return true
}

// Decrement is the decrease that the linearised problem promises, ½δᵀFδ, with
// the Fisher information F of the marginals alone.
func (p *Problem) Decrement() float64 {
	var s float64
	for i, v := range p.Cur.V {
		g, c := p.Cur.Tg[i]-p.Cur.Gamma[i], p.Cur.D1[i]-p.Cur.A[i]
		s += c*c*v + 0.5*g*g*v*v
	}
	return 0.5 * s
}

// Stride is an outer step, where there are such, or iterate, but for where steps to the targets are
// slow: it then takes one of Newton's, if there is one. It returns how many passes over the terms
// that cost, one for each length of a step that was tried, and whether a step was accepted.
func (p *Problem) Stride(f *Progress) (passes int, ok bool) {
	p.makeRoom()
	before, t, was := p.Evaluations, p.t, *f
	lost := f.lost(&p.Cur.State)
	if lost && (p.narrow() || p.walk()) || (lost || f.Slow && p.Decrement() > farPromise) &&
		p.alone() || f.Slow && p.leap() {
		return p.Evaluations - before, true
	}
	if f.Slow && p.terms.K > 1 {
		if p.stretch() { // and again, in the next pass
			return p.Evaluations - before, true
		}
		f.Slow, f.rest = false, slowRest
	}
	// None is good here: something else, and the like of it for some passes.
	if f.Slow && p.terms.K <= 1 {
		f.Slow, f.rest = false, slowRest
		p.targetAlone()
		p.t = 1
		if p.halve(3) {
			return p.Evaluations - before, true
		}
	}
	if p.Outer > 0 && !p.Workers.Halt.Stopped() && p.outerStep() {
		return p.Evaluations - before, true
	}
	passes = 1 + p.Evaluations - before
	if !p.Workers.Halt.Stopped() && p.Iterate() {
		return passes, true
	}
	if p.Workers.Halt.Stopped() {
		p.t, *f = t, was
	}
	return passes, false
}

// The mean need be no better than this part of what the precisions promise, and this in nats.
const (
	innerPart  = 1e-2
	innerLeast = 1e-12
)

// Inner moves the mean of the current state in p.in.at, V held, and reports whether it did; see
// innerMean.find.
func (p *Problem) Inner(slack, part float64) bool {
	p.In.begin(&p.Cur.State, p.Cur.Value, p.terms, p.index, p.Mover.(spreader), p.Workers)
	return p.In.find(slack, part)
}

// outerStep takes an accepted step to the sites that the best mean for the V at hand wants, their
// log γ mixed with those of the outer steps before, and reports whether there is one. Where it was
// halted it can be done again.
func (p *Problem) outerStep() bool {
	x := &p.In.At
	switch {
	case p.Cur.Wild:
		return false
	case slices.Equal(p.Cur.Gamma, p.Base.Gamma):
		p.In.begin(&p.Cur.State, p.Cur.Value, p.terms, p.index, p.Mover.(spreader), p.Workers)
		return p.In.depart(p.Base.V, p.Outer) && p.outward(x.Tg)
	}
	p.Inner(innerLeast, innerPart)
	if p.Workers.Halt.Stopped() {
		return false
	}
	if !p.plain && p.mix.precisions(x) && p.outward(p.mix.z) || !p.Workers.Halt.Stopped() &&
		p.outward(x.Tg) {
		return true
	}
	p.mix.again = p.Workers.Halt.Stopped()
	return false
}

// outward goes to the given γ and the mean to which that in p.in.at leads with them, if the value
// does not rise.
func (p *Problem) outward(gamma []float64) bool {
	x := &p.In.At
	for i, g := range gamma {
		p.Try.Gamma[i], p.Try.C[i] = g, x.D1[i]+g*(x.M[i]-p.Base.M[i])
	}
	return p.Eval() && p.Accept()
}

// again makes the mean that to which the targets at x lead, V held, if the value does not rise.
func (p *Problem) again(x *term.State) bool {
	p.makeRoom()
	t := &p.Try
	for i, g := range p.Cur.Gamma {
		t.Gamma[i], t.C[i] = g, x.D1[i]+g*(x.M[i]-p.Base.M[i])
		p.delta[i], p.U[i] = g-p.Base.Gamma[i], t.C[i]-p.Base.A[i]
	}
	copy(t.V, p.Cur.V)
	t.LogDet = p.Cur.LogDet
	h, ok := p.Mover.(holder)
	return ok && p.finish(h.hold(p.D, p.delta, p.U)) && p.Accept()
}

// Iterate takes one accepted step: an Anderson step if that lowers the value, else along the
// segment to the target in natural parameters, halved until it does. Where the target lies so far
// off that two halvings do not help, as from the prior of a Poisson model, the targets of the sites
// alone are tried before the segment is halved further. It reports false if no step was accepted;
// where it was halted it can be done again.
func (p *Problem) Iterate() bool {
	t := p.t
	if p.advance() {
		return true
	}
	if p.Workers.Halt.Stopped() {
		p.t, p.mix.again = t, !p.plain
	}
	return false
}

// bentLeast is the length below which the segment to the sites of an aimer does not lead down: the
// means then go straight.
const bentLeast = 1.0 / 1024

// advance is iterate, for better or worse.
func (p *Problem) advance() bool {
	if p.Cur.Absurd() && p.escape() {
		return true
	}
	if p.terms.K > 1 && p.Cur.Bare() && p.departMany() {
		return true
	}
	if p.mixture() && p.Eval() && p.Accept() {
		return true
	}
	p.target()
	if !(p.aimed && p.t < bentLeast) && p.halve(3) {
		return true
	}
	if r, ok := p.Mover.(reacher); ok {
		for p.aimed && r.shorten(p) {
			p.aimed = false
			if p.target(); p.halve(3) {
				return true
			}
		}
	}
	t := p.t
	p.targetAlone()
	p.t = 1
	if p.halve(10) {
		return true
	}
	if f, ok := p.Mover.(finer); ok && p.straight && f.fine(p.tg, &p.Cur.State) {
		for i, m := range p.Cur.M {
			p.tc[i] = p.ta[i] + p.tg[i]*(m+p.step[i]-p.Base.M[i])
		}
		if p.t = 1; p.halve(20) {
			return true
		}
		p.aimed = false
	}
	p.target()
	p.t = t
	if p.halve(50) {
		return true
	}
	p.t = 1
	return p.Cur.Wild && (p.narrow() || p.escape())
}

// mixture stores in p.Try what the states so far suggest, and reports whether they do.
func (p *Problem) mixture() bool {
	if p.plain {
		return false
	}
	if _, aims := p.Mover.(aimer); aims {
		return p.aim() && p.mix.means(&p.Try, &p.Cur, p.ta, p.step, p.tg, p.Base.M)
	}
	return p.mix.propose(&p.Try, &p.Cur, p.Base.M)
}

// target computes the sites that minimise the linearised problem, or those that an aimer says.
func (p *Problem) target() {
	s := &p.Cur
	p.tg, p.tc = dense.Resize(p.tg, p.N), dense.Resize(p.tc, p.N)
	p.straight = false
	if p.aim() {
		for i, m := range s.M {
			p.tc[i] = p.ta[i] + p.tg[i]*(m+p.step[i]-p.Base.M[i])
		}
		return
	}
	for i, m := range s.M {
		p.tg[i], p.tc[i] = s.Tg[i], s.D1[i]+s.Tg[i]*(m-p.Base.M[i])
	}
}

// aim asks an aimer, once for a state, and reports whether there is one.
func (p *Problem) aim() bool {
	if a, ok := p.Mover.(aimer); ok && !p.aimed {
		dense.ResizeAll(p.N, &p.ta, &p.step)
		p.tg = append(p.tg[:0], p.Cur.Tg...)
		p.aimed = a.aim(p.ta, p.step, p.tg, &p.Cur.State) && !p.Workers.Halt.Stopped()
	}
	return p.aimed
}

// A stretch is by stretchBy, and tried where a factor of e brings stretchLeast nats or more for
// each dimension that the sites determine, Σγv: 1 where only the volume of q counts, and 0 at the
// optimum.
const (
	stretchBy    = 2
	stretchLeast = 0.25
)

// stretch multiplies the means and standard deviations of all terms, as far as the sites and not
// the base make them, by stretchBy if the value falls, and reports whether it did. Where planes
// part the classes and the prior is wide, the best scores are as large as it lets them be.
// Expectations fall there like exponentials: a step of Newton's moves the means by a part of a
// standard deviation, and precisions that wait for them are far too large.
func (p *Problem) stretch() bool {
	s, x := &p.Cur, &p.Try
	slope, dims := 0.0, 0.0 // of the value, by the logarithm of a standard deviation
	for i, g := range s.Gamma {
		dims += g * s.V[i]
		slope += (s.A[i]-s.D1[i])*(s.M[i]-p.Base.M[i]) + (s.Tg[i]-g)*s.V[i]
		x.Gamma[i] = g / (stretchBy * stretchBy)
		x.C[i] = stretchBy*s.A[i] + x.Gamma[i]*stretchBy*(s.M[i]-p.Base.M[i])
	}
	if !(slope < -stretchLeast*dims) || !p.Eval() || !(x.Value < s.Value) || !p.Accept() {
		return false
	}
	p.t = 1
	p.mix.Reset()
	return true
}

// departMany leaves a base without sites, whose variances may be wide, for the sites at the mode of
// the means, or at its own means where the mover has no way to the mode. It reports whether it did.
func (p *Problem) departMany() bool {
	x := &p.In.At
	x.CopyFrom(&p.Cur.State)
	clear(x.V)
	x.Tol = p.tol
	p.Evaluations++
	expect := func(x *term.State) bool { return p.terms.Expect(x, p.index, p.Workers) == nil }
	if !expect(x) {
		return false
	}
	if math.IsInf(p.Cur.Value, 1) { // not known, and no less than this (Jensen)
		p.Cur.Value = -floats.Sum(x.E)
	}
	if a, ok := p.Mover.(moder); ok {
		a.mode(x, expect)
	}
	for i, g := range x.Tg {
		p.Try.Gamma[i], p.Try.C[i] = g, x.D1[i]+g*(x.M[i]-p.Base.M[i])
	}
	return p.Eval() && p.Accept()
}

// targetAlone computes the optimum of each site alone: the minimiser of its one-dimensional
// problem. Of several sites to a term it is that of all, to which the means go straight.
func (p *Problem) targetAlone() {
	s := &p.Cur
	p.tg, p.tc = dense.Resize(p.tg, p.N), dense.Resize(p.tc, p.N)
	if p.terms.K > 1 {
		p.target()
		p.straight = p.aimed
		return
	}
	for i, m := range s.M {
		if p.Workers.Halt.Stopped() {
			return
		}
		vc := 1 / (1/s.V[i] - s.Gamma[i])
		mc := m - s.A[i]*vc
		g, d1, at := s.Tg[i], s.D1[i], m
		if vc > 0 && !math.IsInf(vc, 0) {
			g, d1, at = p.terms.Solve(dense.Index(p.index, i), mc, vc, m, s.V[i])
		}
		p.tg[i], p.tc[i] = g, d1+g*(at-p.Base.M[i])
	}
}

// newtonHalvings is how often a Newton step is halved until it is accepted.
const newtonHalvings = 8

// newtonWalks is the number of lengths of a Newton step after which a walk is tried.
const newtonWalks = 2

// leap takes an accepted Newton step, or a walk if that fails, and reports whether there is one.
func (p *Problem) leap() bool {
	s, n := &p.Cur, &p.newton
	if s.Wild {
		return false
	}
	c, ok := p.Mover.(coverer)
	if !ok {
		return false
	}
	if !n.aim(p.terms, &s.State, p.index, c.Covariance(), p.Workers) {
		return p.walk()
	}
	h := 1.0
	for k := range newtonHalvings {
		if k == newtonWalks && p.walk() || p.newtonStep(h) && p.Accept() {
			p.t = 1
			p.mix.Reset()
			return true
		}
		h /= 2
	}
	return false
}

// newtonStep evaluates p.try at the length h of Newton's step.
func (p *Problem) newtonStep(h float64) bool {
	s, x, n := &p.Cur, &p.Try, &p.newton
	for i := range x.Gamma {
		x.Gamma[i] = s.Gamma[i] + n.precision(&s.State, i, h)
	}
	if !p.cover() {
		return false
	}
	for i, g := range x.Gamma {
		x.C[i] = s.A[i] + n.linear(&s.State, i, h) +
			g*(s.M[i]-p.Base.M[i]+n.mean(&s.State, i, h, x.V[i]))
	}
	return p.settle()
}

// walk goes to the solution by its rates if the value is lower there, and reports whether it is.
func (p *Problem) walk() bool {
	r, s := &p.rates, &p.Try
	c, ok := p.Mover.(coverer)
	if !ok || !r.set(p.terms, p.index, &p.Base) || !c.before(r.c) {
		return false
	}
	c.mark()
	for i, v := range p.Cur.V {
		g := math.Max(p.Cur.Gamma[i], asleep(v))
		switch {
		case math.IsInf(r.origin[i], -1):
			g = asleep(v) // for good
		case v == 0:
			g = math.Max(p.Cur.Tg[i], ratesLeast) // a row of zeros, which no V depends on
		}
		s.Gamma[i], s.C[i] = g, p.Cur.A[i]+g*(p.Cur.M[i]-p.Base.M[i])
	}
	for k := range ratesMost {
		if !p.cover() || !p.place() {
			break
		}
		p.Mover.Accept()
		if r.far(&s.State) <= ratesNear {
			if k > 0 && p.Eval() && p.Accept() { // else other steps are to go on from here
				return true
			}
			break
		}
		if !r.aim(&s.State, c.Covariance(), p.Workers) {
			break
		}
		for i, g := range s.Gamma {
			s.C[i] = s.A[i] + r.da[i] + g*(s.M[i]+r.dm[i]-p.Base.M[i])
		}
	}
	c.back()
	return false
}

// narrow keeps the means and sets variances below 1, for starts where expectations overflow
// because of large variances. It reports whether the value fell enough.
func (p *Problem) narrow() bool {
	s := &p.Cur
	p.aimed, p.straight = false, false
	p.tg, p.tc = dense.Resize(p.tg, p.N), dense.Resize(p.tc, p.N)
	for i, g := range s.Gamma {
		p.tg[i] = g + 1
		p.tc[i] = s.A[i] + p.tg[i]*(s.M[i]-p.Base.M[i])
	}
	return p.halveValue(1)
}

// alone moves each site towards its own optimum, for starts where exponentials of the means are
// large: a step to the target, or a Newton step, would change them only by a factor of e. It
// reports whether the value fell enough.
func (p *Problem) alone() bool {
	p.targetAlone()
	return p.halveValue(3)
}

// escape is alone. If the sites contradict each other so much that this fails, it goes to their
// mode.
func (p *Problem) escape() bool {
	if p.alone() {
		return true
	}
	far := math.IsInf(p.Cur.Value, 0) || p.Decrement() > modeWorth*math.Abs(p.Cur.Value)
	return far && p.mode() && p.halfAsBad()
}

// halfAsBad accepts p.try if it is at most half as bad as the current state.
func (p *Problem) halfAsBad() bool {
	if p.Try.Value < 0.5*p.Cur.Value && p.Accept() {
		p.t = 1
		return true
	}
	return false
}

// siteMode finds the mode of the means where exponentials of many terms stand against each other,
// of which steps of sites take a factor of e each, and the precisions of which leave no digits of
// anything else. It takes Newton's steps of
//
//	argmin_m ½(m − mc)ᵀK⁻¹(m − mc) − Σ_n l_n(m_n),
//
// where l_n is the log-likelihood up to its edge, where its derivatives promise so many nats, and
// beyond that the parabola that meets it there: curvatures are bounded, and steps long. Edges move
// out to where the mode is said to be.
type siteMode struct {
	at, next term.State // m, a = K⁻¹(m − mc), and of the l_n the values e and derivatives d1, −tg
	nats     float64
	edge     []float64 // NaN where not known yet
	beyond   []float64 // log of the nats promised, relative to those at the edge
}

const (
	// of the value, that a step must promise: else the start is not what is wrong
	modeWorth   = 0.01
	modeStages  = 60 // to where derivatives overflow
	modeNewtons = 30
	modeHalves  = 20
	modeFall    = 1e-3 // of the value, below which a stage is over
	// least and greatest move of an edge, in log nats: precisions of different rows leave each
	// other digits
	modeNearest  = 1
	modeFurthest = 14
	modeEdge     = 1e-10 // resolution of edges, relative
)

// look makes s the values and derivatives of the terms at its means, and returns the sum of the
// former.
func (a *siteMode) look(t *term.Terms, s *term.State, index []int) float64 {
	var n int
	defer parallel.At(&n, t.Name)
	for i, m := range s.M {
		n = dense.Index(index, i)
		x, edge := t.Expectation(n, m, 0), a.edge[i]
		a.beyond[i] = math.Log(math.Abs(x.D2) / a.nats)
		if term.Absurd(x, a.nats) {
			if math.IsNaN(edge) {
				edge = t.Nearest(n, m, modeEdge*(1+math.Abs(m)), func(x term.Expectation) bool {
					return term.Moderate(x) && !term.Absurd(x, a.nats)
				})
				a.edge[i] = edge
			}
			x = t.Expectation(n, edge, 0)
			d := m - edge
			a.beyond[i] = math.Abs(x.D2 / x.D1 * d)
			x.Value += (x.D1 + 0.5*x.D2*d) * d
			x.D1 += x.D2 * d
		}
		s.E[i], s.D1[i], s.Tg[i] = x.Value, x.D1, -x.D2
	}
	return floats.Sum(s.E)
}

// further moves the edges out to where the terms that count are, and reports whether any was beyond
// its edge.
func (a *siteMode) further() bool {
	var sum, weight float64
	far := false
	for i, d := range a.at.D1 {
		if w := math.Abs(d); !math.IsInf(a.beyond[i], -1) {
			sum += w * a.beyond[i]
			weight += w
		}
		far = far || a.beyond[i] > 0
	}
	a.nats *= math.Exp(math.Min(math.Max(modeNearest, sum/weight), modeFurthest))
	return far
}

// mode goes to the mode of the means, and reports whether p.try is a state there, with or without
// an ELBO.
func (p *Problem) mode() bool {
	a, t := &p.modes, p.terms
	if !t.Concave() || t.K > 1 {
		return false
	}
	a.at.CopyFrom(&p.Cur.State)
	a.next.Resize(p.N)
	a.edge, a.beyond = dense.Resize(a.edge, p.N), dense.Resize(a.beyond, p.N)
	a.nats = term.BesideNats
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
	for i, g := range a.at.Tg {
		p.Try.Gamma[i], p.Try.C[i] = g, a.at.D1[i]+g*(a.at.M[i]-p.Base.M[i])
	}
	return p.Eval()
}

// modeAim makes the means and a of p.try those to which a whole step leads.
func (p *Problem) modeAim() bool {
	s, o, x := &p.modes.at, &p.Base, &p.Try
	for i, g := range s.Tg {
		x.Gamma[i], x.C[i] = g, s.D1[i]+g*(s.M[i]-o.M[i])
	}
	if !p.cover() {
		return false
	}
	floats.SubTo(p.U, x.C, o.A)
	p.Mover.Move(p.D, p.delta, p.U)
	for i, d := range p.D {
		x.M[i], x.A[i] = o.M[i]+d, o.A[i]-o.Gamma[i]*d+p.U[i]
	}
	_, ok := dense.AllFinite(x.M)
	return ok
}

// modeStep goes towards p.try as far as that lowers the value, and returns by how much. It replaces
// the sum e of the terms.
func (p *Problem) modeStep(e *float64) (fall float64) {
	a, x := &p.modes, &p.Try
	h := 1.0
	for k := 0; k < modeHalves && !p.Workers.Halt.Stopped(); k++ {
		var kl float64
		for i, m := range a.at.M {
			d := h * (x.M[i] - m)
			a.next.M[i] = m + d
			a.next.A[i] = a.at.A[i] + h*(x.A[i]-a.at.A[i])
			kl += 0.5 * d * (a.at.A[i] + a.next.A[i])
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

// halveValue tries the target and the given number of halves of the way there. It accepts what is
// at most half as bad.
func (p *Problem) halveValue(times int) bool {
	t := 1.0
	for range times {
		p.segment(t)
		if p.Eval() && p.halfAsBad() {
			return true
		}
		t /= 2
	}
	return false
}

// segment makes the sites of p.try those at the fraction t of the way to the target. Straight, the
// means go there as γ does: of b = a + γm, what both change by factors may lead elsewhere.
func (p *Problem) segment(t float64) {
	if t == 1 { // sites may be so strong that a difference from them is all rounding
		copy(p.Try.Gamma, p.tg)
		copy(p.Try.C, p.tc)
		return
	}
	for i := range p.N {
		g := p.Cur.Gamma[i] + t*(p.tg[i]-p.Cur.Gamma[i])
		p.Try.Gamma[i] = g
		if p.straight {
			a, m := p.Cur.A[i]+t*(p.ta[i]-p.Cur.A[i]), p.Cur.M[i]+t*p.step[i]
			p.Try.C[i] = a + g*(m-p.Base.M[i])
		} else {
			p.Try.C[i] = p.Cur.C[i] + t*(p.tc[i]-p.Cur.C[i])
		}
	}
}

// halve tries p.t and its halves along the segment to the target.
func (p *Problem) halve(times int) bool {
	for range times {
		if p.Workers.Halt.Stopped() {
			return false
		}
		t := p.t
		p.segment(t)
		if p.Eval() && p.Accept() {
			p.t = math.Min(1, 1.5*t)
			return true
		}
		p.t = t / 2
	}
	return false
}

// siteMix accelerates the map from sites to targets, in (log γ, c) where every γ is positive and in
// (γ, c) otherwise, or in log γ alone where the mean is found for each of them. Residuals are
// weighted by the Fisher information of the marginals.
type siteMix struct {
	accel.Anderson
	log   bool
	outer bool // in log γ alone
	again bool // the last iterate is taken again: what followed was halted
	w, z  []float64
}

// mostMix is how far a mixture of log γ may be from the last state; one further away is rejected.
const mostMix = 5

// propose stores in dst the mixture that the state s and its predecessors
// suggest and reports whether there is one.
func (a *siteMix) propose(dst, s *problemState, m0 []float64) bool {
	n := len(s.M)
	positive := true
	for i, g := range s.Gamma {
		positive = positive && g > 0 && s.Tg[i] > 0
	}
	if positive != a.log || a.outer {
		a.log, a.outer = positive, false
		a.Reset()
	}
	x, r := a.Next(2*n, a.again)
	a.again = false
	a.w, a.z = dense.Resize(a.w, 2*n), dense.Resize(a.z, 2*n)
	for i, m := range s.M {
		g, tg, v := s.Gamma[i], s.Tg[i], s.V[i]
		d := m - m0[i]
		x[n+i], r[n+i] = s.C[i], s.D1[i]+tg*d-s.C[i]
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
	copy(dst.C, a.z[n:])
	for i, z := range a.z[:n] {
		switch {
		case !a.log:
			dst.Gamma[i] = z
		case math.Abs(z-x[i]) > mostMix:
			return false
		default:
			dst.Gamma[i] = math.Exp(z)
		}
	}
	return true
}

// means is propose where an aimer says the step of the means, a after it and the γ to aim at: in
// log γ, the means and a. Of a nothing is in the norm, so that it follows the means. Mixtures of b
// would mix γ with the means: where these are large and γ changes by factors, the mixture would
// have other means.
func (a *siteMix) means(dst, s *problemState, ta, step, tg, m0 []float64) bool {
	n := len(s.M)
	for i, g := range s.Gamma {
		if !(g > 0 && tg[i] > 0) {
			a.Reset()
			return false
		}
	}
	x, r := a.Next(3*n, a.again)
	a.again = false
	a.w, a.z = dense.Resize(a.w, 3*n), dense.Resize(a.z, 3*n)
	for i, g := range s.Gamma {
		x[i], r[i] = math.Log(g), math.Log(tg[i]/g)
		x[n+i], r[n+i] = s.M[i], step[i]
		x[2*n+i], r[2*n+i] = s.A[i], ta[i]-s.A[i]
		a.w[i], a.w[n+i], a.w[2*n+i] = math.Sqrt2/2*g*s.V[i], 1/math.Sqrt(s.V[i]), 0
	}
	if !a.Mix(a.z, a.w) {
		return false
	}
	for i, z := range a.z[:n] {
		if math.Abs(z-x[i]) > mostMix {
			return false
		}
		dst.Gamma[i] = math.Exp(z)
		dst.C[i] = a.z[2*n+i] + dst.Gamma[i]*(a.z[n+i]-m0[i])
	}
	return true
}

// precisions stores in a.z the γ that the state s, whose mean is that for its V, and its
// predecessors suggest. It reports whether there are any.
func (a *siteMix) precisions(s *term.State) bool {
	n := len(s.M)
	if !a.outer {
		a.outer = true
		a.Reset()
	}
	for i, g := range s.Gamma {
		if !(g > 0 && s.Tg[i] > 0) {
			a.Reset()
			return false
		}
	}
	x, r := a.Next(n, a.again)
	a.again = false
	a.w, a.z = dense.Resize(a.w, n), dense.Resize(a.z, n)
	for i, g := range s.Gamma {
		x[i], r[i] = math.Log(g), math.Log(s.Tg[i]/g)
		a.w[i] = g * s.V[i]
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

func (p *Problem) state(c *save.State, started bool) {
	c.Float(&p.t)
	_, aims := p.Mover.(aimer)
	p.mix.state(c, p.N, aims)
	if aims {
		c.Float(&p.tol, &p.loose)
	}
	if started {
		p.Cur.Keep(c, p.N)
		c.Floats(p.N, &p.Cur.C)
		c.Float(&p.Cur.Value, &p.Cur.LogDet)
	}
}

// state is that of a, for n sites, of a problem that has an aimer or not.
func (a *siteMix) state(c *save.State, n int, aims bool) {
	c.Bool(&a.log, &a.outer, &a.again)
	switch {
	case aims:
		n *= 3
	case !a.outer:
		n *= 2
	}
	a.Anderson.State(c, n)
}
