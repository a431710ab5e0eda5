package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file holds Problem, the minimization of KL(q‖cavity) − ΣE[ℓ] over the sites of some terms, and
// Stride, its step without a step size. Read base.go first.

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

	// profile moves parameters of the mover to their best at the sites that the next Cover is for,
	// given as changes of γ and coefficients b about the base mean. Nil means no parameters.
	profile func(gamma, b []float64)
	// ahead tries a step of these parameters together with the sites, and reports whether it did.
	ahead func(p *Problem) bool
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
	if p.profile != nil {
		p.profile(p.delta, s.C)
	}
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
	if p.ahead != nil && !p.Workers.Halt.Stopped() && p.ahead(p) {
		return p.Evaluations - before, true
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
