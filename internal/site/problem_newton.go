package site

import "math"

// This file holds the steps of a Problem that know how expectations change with the variances:
// Newton's step (siteNewton) and the solution by rates (siteRates), both of newton.go.

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
// whether it did. Few problems use it, but three of 20,000 random ones have no finite ELBO without
// it.
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
