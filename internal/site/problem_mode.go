package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file finds the mode of the means of a Problem, for terms that contradict each other so much
// that float64 has no digits left for the variances. Problem.escape calls mode. Few problems use
// it, but six of 20,000 random ones have no finite ELBO without it.

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
	p.toTargets(&a.at, a.at.Tg)
	return p.Eval()
}

// modeAim stores the means and a after a whole step in p.Try.
func (p *Problem) modeAim() bool {
	s, o, x := &p.modes.at, &p.Base, &p.Try
	p.toTargets(s, s.Tg)
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
