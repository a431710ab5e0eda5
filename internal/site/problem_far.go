package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file holds the steps of a Problem from starts that are far from the optimum, where
// exponentials overflow or the prior is wide. problem_mode.go has one more.

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
	x := &p.In.own
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
	p.toTargets(x, x.Tg)
	return p.Eval() && p.Accept()
}

// narrow keeps the means and sets variances below 1, for starts with expectations that overflow
// because of large variances. It reports whether the value fell enough. Few problems use it, but
// one of 20,000 random ones has no finite ELBO without it.
func (p *Problem) narrow() bool {
	s := &p.Cur
	p.aimed, p.straight = false, false
	p.tg, p.tc = dense.Resize(p.tg, p.N), dense.Resize(p.tc, p.N)
	for i, g := range s.Gamma {
		p.tg[i] = g + 1
		p.tc[i] = s.A[i] + p.tg[i]*(s.M[i]-p.Base.M[i])
	}
	return p.halveValue(narrowHalvings)
}

// alone moves each site toward its own optimum, for starts with large exponentials of the means.
// A step to the target, or a Newton step, would change these only by a factor of e. It reports
// whether the value fell enough.
func (p *Problem) alone() bool {
	p.targetAlone()
	return p.halveValue(aloneHalvings)
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
