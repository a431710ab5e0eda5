package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file holds Problem, the minimization of KL(q‖cavity) − ΣE[ℓ] over the sites of some terms: its
// states and their values. problem_stride.go chooses the steps. Read base.go first.

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
	tFailed     float64 // t after the segment to the target failed
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
	if p.Outer > 0 { // no state is computed while the inner steps need their vectors
		p.In.room(n)
		p.delta, p.U, p.D = p.In.ap, p.In.step, p.In.whole
	} else {
		dense.ResizeAll(n, &p.delta, &p.U, &p.D)
	}
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

// toTargets stores in p.Try the given γ, and the coefficients that move the means to the targets at x
// with them.
func (p *Problem) toTargets(x *term.Marginals, gamma []float64) {
	for i, g := range gamma {
		p.Try.Gamma[i], p.Try.C[i] = g, x.D1[i]+g*(x.M[i]-p.Base.M[i])
	}
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
