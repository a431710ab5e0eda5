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

// This file declares Algebra, the interface between the Solver and an approximation q. It also
// holds Problem, which solves the problem of some or all terms over their sites and is shared by
// all algebras of sites, and CovMover, the Mover of a stored covariance. BaseAlgebra, DenseAlgebra and
// WeightBlock use Problem. The table of steps in doc.go names the methods of Problem.

// Steps with noise come from a mini-batch or from an estimator that draws.
const (
	// noisyPivot is the part of the precision of a variable that such a step must leave to a site
	// with a negative γ: a tenth, so its variance grows at most tenfold. Otherwise noise alone
	// drives V toward losing positive definiteness, and the mean diverges with V.
	noisyPivot = 0.1
	// noisyHalvings is how often a step is halved for that reason before it is taken anyway.
	noisyHalvings = 20
	// mostHalvings is how often a step is halved until V is positive definite, to 1e-30 of its
	// length.
	mostHalvings = 100
)

// Algebra is q in natural parameters with its updates: a site for every term, or the sum of the
// sites over the weights. It hides how a covariance is stored. The Solver of the root package
// drives it.
type Algebra interface {
	// Plan returns the defaults for Solver options.
	Plan() sitePlan
	// ClosedForm reports whether its steps are in closed form.
	ClosedForm() bool
	// Use sets the crew for the following calls. When the crew is halted, each method returns the
	// error of the crew and leaves q unchanged. A repeated call does the same work again.
	Use(c term.Crew)

	// Marginals resizes x for the terms in batch and stores their means and variances under q.
	Marginals(x *term.Estimates, batch []int) error
	// aim computes the target of the step m, the q that a whole step would reach, from the
	// estimates x of the terms in batch.
	aim(x *term.Estimates, batch []int, m PaperMove) error
	// try reports whether the target is a valid q. It also reports whether noise may have driven
	// the target too near the edge of the valid ones (noisyPivot), if q itself is not near it.
	try(noisy bool) (valid, edge bool)
	// halve moves the target half of the way back to q.
	halve()
	// take makes the valid target the current q.
	take() error

	// Ascend takes one accepted step of all terms, so the ELBO does not fall. It returns how many
	// passes over the terms the step took.
	Ascend() (passes int, err error)
	// Block takes the step
	//
	//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)],
	//
	// with the sites of the terms not in batch held fixed.
	Block(batch []int) error
	// Slow reports whether blocks gain so little that steps of all terms should follow.
	Slow() bool
	// Moved returns the length of the last step.
	Moved() float64
	// Evaluate returns the ELBO and the gap of q, with a GapBound without numerical error. It
	// tries a costly proof only if the gap may be at most within nats. A proof may take a step of
	// the mean, which is kept unless the last step had a given β or mixed earlier states.
	Evaluate(within float64) (siteEvaluation, error)
	// Wider reports whether a GapBound holds for any covariance, and not only for covariances of
	// the family.
	Wider() bool

	// State writes or reads everything that later steps depend on.
	State(c *save.Coder)
	// Constant reports whether Evaluate would leave that state unchanged.
	Constant() bool
}

// PaperMove is a step with a given β, where r = 1/(1+β) and the estimates are scaled by N/M.
type PaperMove struct {
	R, Scale float64
	Appendix bool // use the update of the mean from the appendix
}

// Step takes the step m from the estimates x of the terms in batch, or of all terms if batch is
// nil. It halves the step until V is positive definite and, for noisy estimates, not too near the
// edge of that. It returns how often. The error wraps sentinel.ErrNotPosDef if no length works.
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

// siteEvaluation holds the quality of a q; see Evaluation of the Stepper.
type siteEvaluation struct{ ELBO, ELBOErr, Gap, GapBound, Goal float64 }

// sitePlan holds the batch size and the Sampler of an algebra. A nil Sampler means every term in
// every batch.
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
	made     bool    // the proof is finished
	stepped  bool    // the step of the mean has been taken
	bound    float64 // the gap bound; 0 if there is no proof
	rounding float64 // rounding of the ELBO
}

// state writes or reads p.
func (p *Proof) state(c *save.Coder) {
	c.Bool(&p.made, &p.stepped)
	c.Float(&p.bound, &p.rounding)
}

// A site stands for one likelihood term. It multiplies the density of η_n by exp(b_n η_n − ½ γ_n
// η_n²). γ_n may be negative if the likelihood is not log-concave.

// Problem minimizes KL(q‖cavity) + f(q) over q = cavity × sites. The base N(m0, C) is the cavity
// including sites (γ0, a0). That is a proximal step with r = 0 on a block of sites, with the
// others fixed. Each iteration is accepted only if the value does not rise.
//
// Within a problem a site is written about the base mean, exp(c(η − m0) − ½γ(η − m0)²), so large
// numbers do not cancel if γ is large.
type Problem struct {
	N           int
	Base        term.Marginals // its expectations are not used
	Mover       Mover
	terms       *term.Terms
	index       []int // indices of the terms; nil means all
	Workers     term.Crew
	plain       bool // no Anderson steps
	Cur, Try    problemState
	t           float64 // length of the next step along the segment
	delta, U, D []float64
	tg, tc      []float64 // target of the segment
	aimed       bool      // tg, ta and step hold the aim of the current state
	ta, step    []float64 // a after the step of the means, and the step
	straight    bool      // the means move straight along the step of an aimer
	mix         siteMix
	newton      siteNewton
	rates       siteRates
	In          innerMean
	modes       siteMode
	Outer       int // number of dimensions of outer steps; 0 means no outer steps
	Evaluations int
	tol, loose  float64 // tolerance of expectations of softmax models, and its upper limit
}

// CovMover is the Mover of variables with a stored covariance C.
type CovMover struct {
	N       int
	Cov     []float64 // C, both triangles; not owned
	again   bool      // later moves will start from V, which must not lose digits of C
	Fac     dense.SiteFactor
	exp     dense.Expansion
	inverts bool // compute variances by the inverse of the factor if that keeps their digits
	inverse dense.Inverse

	Last, cur []float64 // Δ of the last move, and of the current state
	kept      []float64 // Δ of the marked state
	Current   bool      // Fac belongs to the current state
	expanded  bool      // exp belongs to Fac
	v         []float64 // V
}

// Reset makes the base the current state. It has n variables with covariance c.
func (a *CovMover) Reset(c []float64, n int) {
	a.N, a.Cov = n, c
	a.Last, a.cur = dense.Resize(a.Last, n), dense.Resize(a.cur, n)
	clear(a.cur)
	a.Current = false
}

// leastInverse is the least ΔV_ii for which the inverse of the factor computes the variances,
// with a third of the operations. If ΔV_ii is smaller, (1 − (B⁻¹)_ii)/Δ_i loses too many digits
// by cancellation.
const leastInverse = 1e-6

// Cover implements Mover.
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

// byInverse is Cover by the inverse of the factor. It returns false if a variance loses its
// digits.
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

// Move implements Mover.
func (a *CovMover) Move(d, _, u []float64) (square float64) {
	a.Fac.Solve(u)
	a.Fac.MulC(u)
	copy(d, a.Fac.T)
	return floats.Dot(u, d)
}

// Accept implements Mover.
func (a *CovMover) Accept() {
	a.Last, a.cur = a.cur, a.Last
	a.Current = true
}

// before implements coverer.
func (a *CovMover) before(dst []float64) bool {
	copy(dst, a.Cov)
	return true
}

// mark implements coverer.
func (a *CovMover) mark() { a.kept = append(a.kept[:0], a.cur...) }

// back implements coverer.
func (a *CovMover) back() {
	copy(a.cur, a.kept)
	a.Current = false
}

// hold implements holder.
func (a *CovMover) hold(d, delta, u []float64) (square float64) {
	a.factor()
	copy(a.Last, a.cur)
	return a.Move(d, delta, u)
}

// weights implements spreader.
func (a *CovMover) weights() int { return a.N }

// gather implements spreader.
func (a *CovMover) gather(u, r []float64) bool {
	copy(u, r)
	return true
}

// curve implements spreader.
func (a *CovMover) curve(eta, u, w, h []float64) {
	copy(eta, w)
	floats.MulTo(u, h, w)
}

// spread implements spreader.
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

// factor computes Fac for the current state. It returns false if the state has no factor.
func (a *CovMover) factor() bool {
	if !a.Current {
		a.Current, a.expanded = a.Fac.Factor(a.Cov, a.N, a.cur), false
	}
	return a.Current
}

// Covariance implements coverer.
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

// problemState is a state with its value, and with its sites about the base mean.
type problemState struct {
	term.Marginals
	C      []float64
	Value  float64 // KL(q‖cavity) − Σe, up to a constant of the problem
	LogDet float64 // log|C|/|V|
}

// resize prepares s for n elements.
func (s *problemState) resize(n int) {
	s.Resize(n)
	s.C = dense.Resize(s.C, n)
}

// Init starts the problem of the terms in index from a base with marginals m0, v0 and sites γ0,
// a0. The mover moves the sites. The base may change after the problem is solved.
func (p *Problem) Init(t *term.Terms, index []int, mover Mover, base *term.Marginals) error {
	p.Prepare(t, index, mover, base)
	return p.Start()
}

// Prepare is Init without the expectations at the base.
func (p *Problem) Prepare(t *term.Terms, index []int, mover Mover, base *term.Marginals) {
	p.prepareTry(t, index, mover, base)
	p.Cur.resize(p.N)
}

// prepareTry is Prepare for a problem whose first state comes from p.Try. The memory of a second
// state is allocated when a step needs it; see makeRoom.
func (p *Problem) prepareTry(t *term.Terms, index []int, mover Mover, base *term.Marginals) {
	n := len(base.M)
	p.N, p.terms, p.index, p.Mover = n, t, index, mover
	p.Base = term.Marginals{Gamma: base.Gamma, A: base.A, M: base.M, V: base.V} // not owned
	p.Try.resize(n)
	p.delta, p.U, p.D = dense.Resize(p.delta, n), dense.Resize(p.U, n), dense.Resize(p.D, n)
	p.t = 1
	p.aimed = false
	p.mix.Reset()
	p.Evaluations = 0
	p.tol, p.loose = 0, coarseTols[0]
}

// makeRoom allocates p.Try. A step calls it before it stores a state there.
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
	if err := p.terms.Expect(&p.Cur.Marginals, p.index, p.Workers); err != nil {
		return err
	}
	p.Cur.Value = -floats.Sum(p.Cur.E)
	return nil
}

// startFrom is Start for a base s that has expectations.
func (p *Problem) startFrom(s *term.Marginals) {
	p.Cur.CopyFrom(s)
	copy(p.Cur.C, p.Base.A)
	p.Cur.LogDet, p.Cur.Value = 0, -floats.Sum(p.Cur.E)
}

// Eval computes p.Try from its sites (Gamma, C), and reports whether it is a valid state with a
// value.
func (p *Problem) Eval() bool { return p.cover() && p.settle() }

// cover computes the variances of p.Try from its γ. It returns false if they do not exist.
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

// settle computes the rest of p.Try after cover. With u = C⁻¹(m − m0) and d = m − m0 relative to
// the base,
//
//	KL(q‖cavity) = ½(log|C|/|V| − ΣΔv + uᵀd) + Σ a0 d − ½γ0(v − v0 + d²).
func (p *Problem) settle() bool {
	floats.SubTo(p.U, p.Try.C, p.Base.A)
	return p.finish(p.Mover.Move(p.D, p.delta, p.U))
}

// finish is settle after the move. The argument square is dᵀC⁻¹d.
func (p *Problem) finish(square float64) bool {
	kl, ok := p.divergence(square)
	p.Try.Tol = p.tol
	if !ok || p.terms.Expect(&p.Try.Marginals, p.index, p.Workers) != nil {
		return false
	}
	p.Try.Value = 0.5*kl - floats.Sum(p.Try.E)
	return !math.IsNaN(p.Try.Value)
}

// place computes the means and a of p.Try after cover. It returns false if they do not exist.
func (p *Problem) place() bool {
	floats.SubTo(p.U, p.Try.C, p.Base.A)
	_, ok := p.divergence(p.Mover.Move(p.D, p.delta, p.U))
	return ok
}

// divergence computes the means and a of p.Try after the move, and twice KL(q‖cavity). The
// argument square is dᵀC⁻¹d. It returns false if they are not finite.
func (p *Problem) divergence(square float64) (kl float64, ok bool) {
	s, o, n := &p.Try, &p.Base, p.N
	d := p.D
	kl = s.LogDet + square // twice KL(q‖base), which is negative only by rounding
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

// Accept makes p.Try the current state if its value is finite and no higher.
func (p *Problem) Accept() bool {
	if math.IsInf(p.Try.Value, 1) || !(p.Try.Value <= p.Cur.Value+1e-14*math.Abs(p.Cur.Value)) {
		return false
	}
	p.Cur, p.Try = p.Try, p.Cur
	p.aimed = false
	p.Mover.Accept()
	return true
}

// Decrement returns the predicted gain of the linearized problem, ½δᵀFδ, with the Fisher
// information F of the marginals alone.
func (p *Problem) Decrement() float64 {
	var s float64
	for i, v := range p.Cur.V {
		g, c := p.Cur.Tg[i]-p.Cur.Gamma[i], p.Cur.D1[i]-p.Cur.A[i]
		s += c*c*v + 0.5*g*g*v*v
	}
	return 0.5 * s
}

// Stride takes one accepted step. If steps to the targets are slow, it tries Newton's steps
// first. Otherwise it is an outer step if these pay, and else Iterate. It returns how many passes
// over the terms the step cost, one per length that was tried, and whether it was accepted. The
// table in doc.go lists all steps.
func (p *Problem) Stride(f *Progress) (passes int, ok bool) {
	p.makeRoom()
	before, t, was := p.Evaluations, p.t, *f
	lost := f.lost(&p.Cur.Marginals)
	if lost && (p.narrow() || p.walk()) || (lost || f.Slow && p.Decrement() > farPromise) &&
		p.alone() || f.Slow && p.leap() {
		return p.Evaluations - before, true
	}
	if f.Slow && p.terms.K > 1 {
		if p.stretch() { // repeat it in the next pass
			return p.Evaluations - before, true
		}
		f.Slow, f.rest = false, slowRest
	}
	// No special step helped, so try the targets of single sites, and ordinary steps for some
	// passes.
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

// An inner mean is good enough when its predicted gain is below this part of the predicted gain
// of the precisions, or below this number of nats.
const (
	innerPart  = 1e-2
	innerLeast = 1e-12
)

// Inner moves the mean of the current state with V held, and stores the result in p.In.At. It
// reports whether the mean moved; see innerMean.find.
func (p *Problem) Inner(slack, part float64) bool {
	p.In.begin(&p.Cur.Marginals, p.Cur.Value, p.terms, p.index, p.Mover.(spreader), p.Workers)
	return p.In.find(slack, part)
}

// outerStep takes an accepted step to the sites of the best mean under the present V, after
// mixing log γ with earlier outer steps. It reports whether it did. If it was halted, it can be
// repeated.
func (p *Problem) outerStep() bool {
	x := &p.In.At
	switch {
	case p.Cur.Wild:
		return false
	case slices.Equal(p.Cur.Gamma, p.Base.Gamma):
		p.In.begin(&p.Cur.Marginals, p.Cur.Value, p.terms, p.index, p.Mover.(spreader), p.Workers)
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

// outward moves to the given γ, and to the mean that follows from the targets at p.In.At with
// them, if the value does not rise.
func (p *Problem) outward(gamma []float64) bool {
	x := &p.In.At
	for i, g := range gamma {
		p.Try.Gamma[i], p.Try.C[i] = g, x.D1[i]+g*(x.M[i]-p.Base.M[i])
	}
	return p.Eval() && p.Accept()
}

// again moves the mean to the targets at x, with V held, if the value does not rise.
func (p *Problem) again(x *term.Marginals) bool {
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

// Iterate takes one accepted step: an Anderson step if that lowers the value, and else a step
// along the segment to the target in natural parameters, halved until it does. If two halvings do
// not help, as from the prior of a Poisson model, the target is too far away, and the targets of
// single sites are tried before the segment is halved further. It returns false if no step was
// accepted. If it was halted, it can be repeated.
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

// bentLeast is the length below which the segment to the sites of an aimer does not lower the
// value. The means then move straight.
const bentLeast = 1.0 / 1024

// advance is Iterate without restoring the step length and the mixture after a halt.
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
	if f, ok := p.Mover.(finer); ok && p.straight && f.fine(p.tg, &p.Cur.Marginals) {
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

// mixture stores the Anderson mixture of the states so far in p.Try. It returns false if there is
// no mixture.
func (p *Problem) mixture() bool {
	if p.plain {
		return false
	}
	if _, aims := p.Mover.(aimer); aims {
		return p.aim() && p.mix.means(&p.Try, &p.Cur, p.ta, p.step, p.tg, p.Base.M)
	}
	return p.mix.propose(&p.Try, &p.Cur, p.Base.M)
}

// target computes the sites that minimize the linearized problem, or the aim of an aimer.
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

// aim calls the aimer, once per state. It returns false if there is no aimer or no aim.
func (p *Problem) aim() bool {
	if a, ok := p.Mover.(aimer); ok && !p.aimed {
		dense.ResizeAll(p.N, &p.ta, &p.step)
		p.tg = append(p.tg[:0], p.Cur.Tg...)
		p.aimed = a.aim(p.ta, p.step, p.tg, &p.Cur.Marginals) && !p.Workers.Halt.Stopped()
	}
	return p.aimed
}

// A stretch multiplies by stretchBy. It is tried if a factor of e would gain stretchLeast nats or
// more for each dimension that the sites determine, Σγv. The gain is 1 nat if only the volume of
// q counts, and 0 at the optimum.
const (
	stretchBy    = 2
	stretchLeast = 0.25
)

// stretch multiplies the means and standard deviations of all terms by stretchBy if the value
// falls, and reports whether it did. Only the part that comes from the sites, and not from the
// base, is multiplied.
//
// If planes separate the classes and the prior is wide, the best scores are as large as the prior
// allows. Expectations fall there like exponentials. A Newton step moves the means only by a part
// of a standard deviation, and the precisions depend on the means, so they stay far too large.
func (p *Problem) stretch() bool {
	s, x := &p.Cur, &p.Try
	slope, dims := 0.0, 0.0 // derivative of the value by the logarithm of a standard deviation
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

// departMany leaves a base without sites, whose variances may be wide. It moves to the sites at
// the mode of the means, or at the means of the base if the mover has no way to the mode. It
// reports whether it did.
func (p *Problem) departMany() bool {
	x := &p.In.At
	x.CopyFrom(&p.Cur.Marginals)
	clear(x.V)
	x.Tol = p.tol
	p.Evaluations++
	expect := func(x *term.Marginals) bool { return p.terms.Expect(x, p.index, p.Workers) == nil }
	if !expect(x) {
		return false
	}
	if math.IsInf(p.Cur.Value, 1) { // unknown, and at least this (Jensen)
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

// targetAlone computes the optimum of each site alone, the minimizer of its one-dimensional
// problem. In a softmax model it computes the joint target, and the means then move straight.
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

// leap takes an accepted Newton step, or a walk if that fails, and reports whether it did.
func (p *Problem) leap() bool {
	s, n := &p.Cur, &p.newton
	if s.Wild {
		return false
	}
	c, ok := p.Mover.(coverer)
	if !ok {
		return false
	}
	if !n.aim(p.terms, &s.Marginals, p.index, c.Covariance(), p.Workers) {
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

// newtonStep evaluates p.Try at the part h of Newton's step.
func (p *Problem) newtonStep(h float64) bool {
	s, x, n := &p.Cur, &p.Try, &p.newton
	for i := range x.Gamma {
		x.Gamma[i] = s.Gamma[i] + n.precision(&s.Marginals, i, h)
	}
	if !p.cover() {
		return false
	}
	for i, g := range x.Gamma {
		x.C[i] = s.A[i] + n.linear(&s.Marginals, i, h) +
			g*(s.M[i]-p.Base.M[i]+n.mean(&s.Marginals, i, h, x.V[i]))
	}
	return p.settle()
}

// walk moves to the solution of the dual (siteRates) if the value is lower there, and reports
// whether it did.
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
			g = asleep(v) // it stays there
		case v == 0:
			g = math.Max(p.Cur.Tg[i], ratesLeast) // a row of zeros, and V does not depend on it
		}
		s.Gamma[i], s.C[i] = g, p.Cur.A[i]+g*(p.Cur.M[i]-p.Base.M[i])
	}
	for k := range ratesMost {
		if !p.cover() || !p.place() {
			break
		}
		p.Mover.Accept()
		if r.far(&s.Marginals) <= ratesNear {
			if k > 0 && p.Eval() && p.Accept() { // otherwise other steps continue from here
				return true
			}
			break
		}
		if !r.aim(&s.Marginals, c.Covariance(), p.Workers) {
			break
		}
		for i, g := range s.Gamma {
			s.C[i] = s.A[i] + r.da[i] + g*(s.M[i]+r.dm[i]-p.Base.M[i])
		}
	}
	c.back()
	return false
}

// narrow keeps the means and sets variances below 1, for starts with expectations that overflow
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

// alone moves each site toward its own optimum, for starts with large exponentials of the means.
// A step to the target, or a Newton step, would change these only by a factor of e. It reports
// whether the value fell enough.
func (p *Problem) alone() bool {
	p.targetAlone()
	return p.halveValue(3)
}

// escape is alone, and also moves to the mode if the sites contradict each other so much that
// this fails.
func (p *Problem) escape() bool {
	if p.alone() {
		return true
	}
	far := math.IsInf(p.Cur.Value, 0) || p.Decrement() > modeWorth*math.Abs(p.Cur.Value)
	return far && p.mode() && p.halfAsBad()
}

// halfAsBad accepts p.Try if it is at most half as bad as the current state.
func (p *Problem) halfAsBad() bool {
	if p.Try.Value < 0.5*p.Cur.Value && p.Accept() {
		p.t = 1
		return true
	}
	return false
}

// siteMode finds the mode of the means if exponentials of many terms compete. Steps of sites
// change them by a factor of e each, and their precisions leave no digits for anything else. It
// takes Newton's steps of
//
//	argmin_m ½(m − mc)ᵀK⁻¹(m − mc) − Σ_n l_n(m_n).
//
// Up to an edge, l_n is the log-likelihood. Beyond the edge it is the parabola that meets the
// log-likelihood there. The edge is the point at which the derivatives predict a gain of the
// given number of nats. So curvatures are bounded, and steps are long. The edges then move out
// toward the mode.
type siteMode struct {
	at, next term.Marginals // m, a = K⁻¹(m − mc), and E, D1 and Tg of the l_n
	nats     float64
	edge     []float64 // NaN if not computed yet
	beyond   []float64 // log of the predicted gain, relative to the edge
}

const (
	// least predicted gain, relative to the value, for which the mode is worth a search
	modeWorth   = 0.01
	modeStages  = 60 // enough to reach the overflow of derivatives
	modeNewtons = 30
	modeHalves  = 20
	modeFall    = 1e-3 // fall of the value, relative to it, that ends a stage
	// least and greatest move of an edge, in log nats, so precisions of different rows leave each
	// other digits
	modeNearest  = 1
	modeFurthest = 14
	modeEdge     = 1e-10 // relative resolution of edges
)

// look stores the values and derivatives of the terms at the means of s in s. It returns the sum
// of the values.
func (a *siteMode) look(t *term.Terms, s *term.Marginals, index []int) float64 {
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

// further moves the edges out toward the terms that count, and reports whether a term was beyond
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

// mode moves to the mode of the means, and reports whether p.Try is a state there, with or
// without an ELBO.
func (p *Problem) mode() bool {
	a, t := &p.modes, p.terms
	if !t.Concave() || t.K > 1 {
		return false
	}
	a.at.CopyFrom(&p.Cur.Marginals)
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

// modeAim stores the means and a after a whole step in p.Try.
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

// modeStep moves toward p.Try as long as that lowers the value, and returns the decrease. It
// updates the sum e of the terms.
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

// halveValue tries the target and the given number of halves of the way there. It accepts a state
// that is at most half as bad.
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

// segment stores the sites at the fraction t of the way to the target in p.Try. If p.straight is
// set, the means move in proportion to γ. A straight line in b = a + γm may miss the means if γ
// and m change by large factors.
func (p *Problem) segment(t float64) {
	if t == 1 { // a difference from very strong sites is only rounding
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

// siteMix accelerates the map from sites to targets by Anderson acceleration. The coordinates are
// (log γ, c) if every γ is positive, (γ, c) otherwise, and log γ alone for outer steps, which
// find the mean for each γ. Residuals are weighted by the Fisher information of the marginals.
type siteMix struct {
	accel.Anderson
	log   bool
	outer bool // the coordinates are log γ alone
	again bool // repeat the last iterate, because the step after it was halted
	w, z  []float64
}

// mostMix is the largest distance of a mixture of log γ from the last state.
const mostMix = 5

// propose stores the mixture of the state s and its predecessors in dst. It returns false if
// there is no mixture.
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

// means is propose for an aimer. It mixes log γ, the means and a. The aim gives the step of the
// means, a after it and the target tg of γ. The norm ignores a, so a follows the means. A mixture
// of b would mix γ with the means: it would change large means if γ changes by large factors.
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

// precisions stores the mixture of γ in a.z. The mean of s is the best mean for its V. It returns
// false if there is no mixture.
func (a *siteMix) precisions(s *term.Marginals) bool {
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

// state writes or reads the step length, the mixture and, if started is set, the current state.
func (p *Problem) state(c *save.Coder, started bool) {
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

// state writes or reads a, for n sites of a problem with or without an aimer.
func (a *siteMix) state(c *save.Coder, n int, aims bool) {
	c.Bool(&a.log, &a.outer, &a.again)
	switch {
	case aims:
		n *= 3
	case !a.outer:
		n *= 2
	}
	a.Anderson.State(c, n)
}
