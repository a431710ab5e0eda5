package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// This file chooses the steps of a Problem, which minimizes KL(q‖cavity) − ΣE[ℓ]. Three tables list
// the moves, each with its condition, in the order in which Stride and Iterate try them. The table
// of doc.go describes what they do. A step is accepted only if it does not raise the value.
// BaseAlgebra.Step calls Stride, and blocks of terms call Iterate.

// A move is a kind of step.
type move struct {
	when func(p *Problem, s situation) bool
	take func(p *Problem) bool // reports whether a step was accepted
}

// situation describes the steps so far.
type situation struct {
	lost bool // expectations still overflow after a pass
	slow bool // steps to the targets converge slowly
}

// specialMoves are the moves of Stride before the targets.
var specialMoves = []move{
	{when: isLost, take: (*Problem).narrow},
	{when: isLost, take: (*Problem).walk},
	{when: isFar, take: (*Problem).alone},
	{when: isSlow, take: (*Problem).leap},
	{when: isSlowSoftmax, take: (*Problem).stretch},
}

// restMoves are the moves of Stride if no special move helped. Iterate follows them.
var restMoves = []move{
	{when: isSlowSingle, take: func(p *Problem) bool { return p.toSingles(slowHalvings) }},
	{when: hasAhead, take: func(p *Problem) bool { return p.ahead(p) }},
	{when: hasOuter, take: (*Problem).outerStep},
}

// targetMoves are the moves of Iterate.
var targetMoves = []move{
	{when: isAbsurd, take: (*Problem).escape},
	{when: isBareSoftmax, take: (*Problem).departMany},
	{when: always, take: (*Problem).toMixture},
	{when: always, take: (*Problem).toTarget},
	{when: always, take: (*Problem).toShortened},
	{when: always, take: func(p *Problem) bool { return p.toSingles(singleHalvings) }},
	{when: always, take: (*Problem).toFine},
	{when: always, take: (*Problem).toTargetAgain},
	{when: isWild, take: (*Problem).narrow},
	{when: isWild, take: (*Problem).escape},
}

func always(*Problem, situation) bool            { return true }
func isLost(_ *Problem, s situation) bool        { return s.lost }
func isSlow(_ *Problem, s situation) bool        { return s.slow }
func isSlowSoftmax(p *Problem, s situation) bool { return s.slow && p.terms.K > 1 }
func isSlowSingle(p *Problem, s situation) bool  { return s.slow && p.terms.K <= 1 }
func isAbsurd(p *Problem, _ situation) bool      { return p.Cur.Absurd() }
func isBareSoftmax(p *Problem, _ situation) bool { return p.terms.K > 1 && p.Cur.Bare() }
func isWild(p *Problem, _ situation) bool        { return p.Cur.Wild }

// isFar reports whether the targets of single sites may be better than the targets.
func isFar(p *Problem, s situation) bool {
	return s.lost || s.slow && p.Decrement() > farPromise
}

// hasAhead reports whether parameters of the mover may move together with the sites.
func hasAhead(p *Problem, _ situation) bool { return p.ahead != nil && !p.Workers.Halt.Stopped() }

// hasOuter reports whether outer steps pay.
func hasOuter(p *Problem, _ situation) bool { return p.Outer > 0 && !p.Workers.Halt.Stopped() }

// How often a step along a segment is halved until it is accepted. A step to the target that fails
// slowHalvings or targetHalvings times, as from the prior of a Poisson model, is far too long, and
// other targets are tried before the segment is halved further.
const (
	targetHalvings = 3
	slowHalvings   = 3
	singleHalvings = 10
	fineHalvings   = 20
	lastHalvings   = 50
	// the same for steps that must halve the value
	narrowHalvings = 1
	aloneHalvings  = 3
)

// first takes the first of the moves that applies and is accepted, and reports whether there is one.
func (p *Problem) first(moves []move, s situation) bool {
	for i := range moves {
		if moves[i].when(p, s) && moves[i].take(p) {
			return true
		}
	}
	return false
}

// Stride takes one accepted step: a special move, an outer step if these pay, or a step of Iterate.
// It returns how many passes over the terms the step cost, one per length that was tried, and
// whether it was accepted. If no special move helps against slow steps, none is tried for some
// passes. If Stride was halted, it can be repeated.
func (p *Problem) Stride(f *Progress) (passes int, ok bool) {
	p.makeRoom()
	before, t, was := p.Evaluations, p.t, *f
	s := situation{lost: f.lost(&p.Cur.Marginals), slow: f.Slow}
	if p.first(specialMoves, s) {
		return p.Evaluations - before, true
	}
	if s.slow {
		f.Slow, f.rest = false, slowRest
	}
	if p.first(restMoves, s) {
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

// Iterate takes one accepted step: an Anderson step if that lowers the value, and otherwise a step
// along the segment to the target in natural parameters, halved until it lowers the value. If two
// halvings do not help, the targets of single sites are tried before the segment is halved further.
// It returns false if no step was accepted. If it was halted, it can be repeated.
func (p *Problem) Iterate() bool {
	t := p.t
	if p.first(targetMoves, situation{}) {
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

// toMixture moves to the Anderson mixture.
func (p *Problem) toMixture() bool { return p.mixture() && p.Eval() && p.Accept() }

// toTarget moves along the segment to the target.
func (p *Problem) toTarget() bool {
	p.target()
	return !(p.aimed && p.t < bentLeast) && p.halve(targetHalvings)
}

// toShortened moves to the aim of a reacher with shorter and shorter steps of the means.
func (p *Problem) toShortened() bool {
	r, ok := p.Mover.(reacher)
	for ok && p.aimed && r.shorten(p) {
		p.aimed = false
		if p.target(); p.halve(targetHalvings) {
			return true
		}
	}
	return false
}

// toSingles moves along the segment to the targets of single sites.
func (p *Problem) toSingles(halvings int) bool {
	p.tFailed = p.t
	p.targetAlone()
	p.t = 1
	return p.halve(halvings)
}

// toFine moves to the second target of a finer, if the means move straight.
func (p *Problem) toFine() bool {
	f, ok := p.Mover.(finer)
	if !ok || !p.straight || !f.fine(p.tg, &p.Cur.Marginals) {
		return false
	}
	for i, m := range p.Cur.M {
		p.tc[i] = p.ta[i] + p.tg[i]*(m+p.step[i]-p.Base.M[i])
	}
	if p.t = 1; p.halve(fineHalvings) {
		return true
	}
	p.aimed = false
	return false
}

// toTargetAgain continues toTarget with shorter steps.
func (p *Problem) toTargetAgain() bool {
	p.target()
	p.t = p.tFailed
	if p.halve(lastHalvings) {
		return true
	}
	p.t = 1
	return false
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
