package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// A proved gap. Let the terms be f_n(m, σ) = −w_n E[log p(y_n|o_n + m + σε)], P the precision of the prior, c the gradient
// of the negative ELBO F in the mean, and Γ = diag(γ), γ_n = 2∂f_n/∂v_n. Where log p is concave, each f_n is convex in
// (m, σ) and grows with σ. All Gaussians are N(m', LB²Lᵀ) with V = LLᵀ and B symmetric and positive definite, and a term
// has σ_n' = ‖BLᵀx_n‖ ≥ x_nᵀLBLᵀx_n/σ_n. So F has a lower bound that is quadratic in m' and, but for −log|B|, linear and
// quadratic in B, of which the minimum is known:
//
//	F(m, V) − min F ≤ ½cᵀP⁻¹c + tr Δ − log|I + Δ|,   Δ = Lᵀ(P + XᵀΓX)L − I.
//
// The first part is small only where the mean is nearly stationary, more so than V is: a Newton step of the mean with V
// held, m⁺ = m − Vc, comes first, and what it brings counts.

// concave reports whether every term is concave in its latent value, which is what a proof of the gap needs.
func (t *siteTerms) concave() bool { return factsOf(t.lik).LogConcave }

// precisionGap returns a bound on tr Δ − log|I + Δ|, Δ = Lᵀdiag(δ)L for the changes δ = γ̂ − γ of the sites, from ‖Δ‖²_F and the same of
// the negative δ alone. No eigenvalue of I + Δ is below 1 less the root of the latter, nor, for P + Γ̂ ⪰ r(P + Γ), below
// r, the least of 1 and all γ̂_n/γ_n; and (x − log(1 + x))/x² falls with x.
func precisionGap(square, negative float64, gamma, target []float64) float64 {
	least := 1.0
	for i, g := range gamma {
		if g > 0 {
			least = min(least, target[i]/g)
		}
	}
	return square * curvature(max(least, 1-math.Sqrt(negative))-1)
}

// curvature returns (x − log(1 + x))/x², for x > −1.
func curvature(x float64) float64 {
	if math.Abs(x) < 1e-3 {
		return 0.5 - x*(1./3-x*(0.25-x*(0.2-x/6)))
	}
	return (x - math.Log1p(x)) / (x * x)
}

// proof is what is proved of the gap of a state.
type proof struct {
	made    bool    // nothing more will be
	stepped bool    // the step of the mean has been taken
	bound   float64 // 0 if there is none
}

func (p *proof) state(c *save.State) {
	c.Bool(&p.made, &p.stepped)
	c.Float(&p.bound)
}

// denseGap is the workspace of the proved gap of a denseAlgebra.
type denseGap struct {
	c, h, dg []float64
	next     siteState
	fac      dense.Sites
}

// mean returns ½cᵀKc at s, and leaves c = K⁻¹m − ∂E/∂m in g.c.
func (g *denseGap) mean(k []float64, s *siteState) float64 {
	n := len(s.m)
	g.c, g.h = dense.Resize(g.c, n), dense.Resize(g.h, n)
	floats.SubTo(g.c, s.a, s.d1)
	blas64.Symv(1, dense.Symmetric(k, n), dense.Vector(g.c), 0, dense.Vector(g.h))
	return 0.5 * floats.Dot(g.c, g.h)
}

// A bound on tr Δ − log|I + Δ| that is more than loosePrecision times ½‖Δ‖²_F, which it tends to, is loose; where ‖Δ‖²_F is
// between the other two, which it is for a pass or two of a run, that is worth a factor of P + Γ̂.
const (
	loosePrecision = 1.02
	leastLoose     = 1e-3
	mostLoose      = 2
)

// precision returns a bound on tr Δ − log|I + Δ| at s, with ‖Δ‖²_F = Σ_ij δ_i V_ij² δ_j for δ = γ̂ − γ, and reports whether
// it is worth while to compute what it bounds.
func (g *denseGap) precision(cov []float64, s *siteState) (bound float64, loose bool) {
	n := len(s.m)
	g.dg = dense.Resize(g.dg, n)
	floats.SubTo(g.dg, s.tg, s.gamma)
	square, negative := weightedSquares(cov, g.dg)
	bound = precisionGap(square, negative, s.gamma, s.tg)
	return bound, bound > loosePrecision*0.5*square && square > leastLoose && square < mostLoose
}

// exact returns tr Δ − log|I + Δ| at the s of the last call of precision, with logDet = log|K|/|V|, and what rounding may hide of it.
func (g *denseGap) exact(k []float64, s *siteState, logDet float64) float64 {
	if !g.fac.Factor(k, len(s.m), s.tg) {
		return math.Inf(1)
	}
	return max(0, floats.Dot(g.dg, s.v)+logDet-g.fac.LogDet) + epsilon*siteSize(k, s.tg)
}

// weightedSquares returns Σ_ij w_i V_ij² w_j, and the same of the negative w alone, for the V of which v is the lower triangle.
func weightedSquares(v, w []float64) (all, negative float64) {
	n := len(w)
	for i, wi := range w {
		var s, below float64
		for j, vij := range v[i*n : i*n+i] {
			x := w[j] * vij * vij
			s += x
			below += min(x, 0)
		}
		own := wi * v[i*n+i] * v[i*n+i]
		all += wi * (2*s + own)
		if wi < 0 {
			negative += wi * (2*below + own)
		}
	}
	return math.Max(0, all), math.Max(0, negative)
}

// meanHalvings is how often the step of the mean is halved until F does not rise: within a step or two of where it
// matters no halving is needed, and elsewhere there is no hurry.
const meanHalvings = 4

// prove returns a proved bound on the gap of the current state, whose V is at hand. With keep the current state
// becomes that which the step of the mean leads to. The error is that of the crew, and the state then as it was.
func (s *denseAlgebra) prove(keep bool) (float64, error) {
	if !s.terms.concave() || !s.cur.certain {
		return math.Inf(1), nil
	}
	g := &s.gap
	bound, _ := g.precision(s.cov, &s.cur)
	bound += g.mean(s.k, &s.cur)
	blas64.Symv(1, dense.Symmetric(s.cov, s.n), dense.Vector(g.c), 0, dense.Vector(g.h))
	before, next := s.elbo(&s.cur, s.logDet), &g.next
	next.resize(s.n)
	copy(next.v, s.cur.v)
	copy(next.gamma, s.cur.gamma)
	t := 1.0
	for range meanHalvings {
		for i, h := range g.h {
			next.m[i] = s.cur.m[i] - t*h
			next.a[i] = s.cur.a[i] - t*(g.c[i]-s.cur.gamma[i]*h)
		}
		if s.terms.expect(next, nil, s.workers) == nil {
			if gain := s.elbo(next, s.logDet) - before; gain >= 0 {
				if next.certain {
					precision, loose := g.precision(s.cov, next)
					if loose {
						precision = min(precision, g.exact(s.k, next, s.logDet))
					}
					bound = min(bound, gain+g.mean(s.k, next)+precision)
				}
				if err := s.workers.halt.Err(); err != nil {
					return 0, err
				}
				if keep && gain > 0 {
					s.cur, *next = *next, s.cur
					s.batched = false
					bound -= gain
				}
				break
			}
		}
		if err := s.workers.halt.Err(); err != nil {
			return 0, err
		}
		t /= 2
	}
	return bound, nil
}

// worthProving is the estimated gap, in nats, below which the gap of a weightAlgebra is proved: that takes the expectations of all
// rows and the product XᵀΓX once more.
const worthProving = 1

// weightGap is the workspace of the proved gap of a weightAlgebra.
type weightGap struct {
	target weightState // Λ0 + XᵀΓ̂X
	c, z   []float64   // the gradient and Λ0⁻¹c
	h      []float64
	buf    designWork
}

// prove takes the step of the mean of the state of the problem of all rows, V held, unless the ELBO would fall, and returns a proved bound on
// the gap of the state reached. The error is that of the crew; the proof can then be gone on with.
func (s *weightAlgebra) prove() (float64, error) {
	if !s.terms.concave() || !s.batch.cur.certain {
		return math.Inf(1), nil
	}
	if !s.proof.stepped {
		s.meanStep()
	}
	if err := s.workers.halt.Err(); err != nil {
		return 0, err
	}
	s.proof.stepped = true
	p, m := &s.batch, &s.mover
	c := &p.cur
	if !c.certain {
		return math.Inf(1), nil
	}
	g, d := &s.gap, s.lin.x.cols
	g.c, g.h = dense.Resize(g.c, d), dense.Resize(g.h, s.n)
	floats.SubTo(g.h, c.a, c.d1)
	clear(g.c)
	s.lin.x.addMulT(g.c, g.h, nil)
	g.z = dense.Resize(g.z, d)
	s.lin.prior.solve(g.z, g.c)
	mean := min(0.5*floats.Dot(g.c, g.z), p.rowGap())
	var nuclear, trace float64
	least, most := 1.0, 1.0
	for n, v := range c.v {
		dg := c.tg[n] - c.gamma[n]
		trace += dg * v
		nuclear += math.Abs(dg) * v
		if r := c.tg[n] / c.gamma[n]; c.gamma[n] > 0 {
			least, most = min(least, r), max(most, r)
		} else if dg != 0 {
			most = math.Inf(1)
		}
	}
	precision := nuclear * max(1-least, most-1) * curvature(least-1)
	if g.target.add(s.prior, s.lin.x, c.tg, nil, &g.buf) {
		rounding := epsilon * (math.Abs(g.target.logDet) + math.Abs(m.cur.logDet) + nuclear)
		exact := max(0, trace+m.cur.logDet-g.target.logDet) + rounding
		precision = min(precision, exact)
	}
	return mean + precision + m.cur.rounding(), s.workers.halt.Err()
}

// nearRow is the part of a standard deviation within which the curvature of a term changes by less than a factor of two.
const nearRow = 1e-3

// rowGap returns the gap that the current mean leaves where it is all but stationary, +Inf where it is not. Features in raw units
// under wide priors blow up what rounding leaves of c = Xᵀ(a − α̂), with no sense: a tangent of f_n is as good as any other near it,
// and that with the slope a_n is lower by (a_n − α̂_n)²/2γ̂_n, or less than twice that within nearRow. With all slopes a_n, c is zero.
func (p *siteProblem) rowGap() (total float64) {
	c := &p.cur
	for n, g := range c.tg {
		d := c.m[n] - p.base.m[n]
		off := math.Abs(c.a[n]-c.d1[n]) + 4*epsilon*(math.Abs(c.c[n])+math.Abs(c.gamma[n]*d)+math.Abs(c.d1[n]))
		if off > nearRow*g*math.Sqrt(c.v[n]) {
			return math.Inf(1)
		}
		if off > 0 {
			total += off * off / g
		}
	}
	return total
}

// meanStep makes m⁺ = m − Vc, V held, the mean of the problem of all rows, if its value does not rise.
func (s *weightAlgebra) meanStep() {
	p, m := &s.batch, &s.mover
	t := &p.try
	for i, g := range p.cur.gamma {
		t.gamma[i], t.c[i] = g, p.cur.d1[i]+g*(p.cur.m[i]-p.base.m[i])
		p.delta[i], p.u[i] = g-p.base.gamma[i], t.c[i]-p.base.a[i]
	}
	copy(t.v, p.cur.v)
	t.logDet = p.cur.logDet
	m.try.copyFrom(&m.cur)
	m.try.solve(s.lin.x, p.u, nil)
	m.try.predict(p.d, s.lin.x, nil)
	for i, d := range p.d {
		p.u[i] -= p.delta[i] * d
	}
	if p.finish(m.base.square(&m.try, &m.w)) && p.accept() {
		s.sync()
	}
}

// worthProvingFactored is the estimated gap, as a multiple of the goal, below which the gap of a factoredAlgebra is proved: that
// takes the work of a pass.
const worthProvingFactored = 10

// mostProvedFactored is the number of operations, about, that a product XᵀΓX and its factor may take for the sake of a proof.
const mostProvedFactored = 1e9

// prove takes a Newton step of the mean, V held, unless the ELBO would fall, and returns a proved bound on the gap of the state reached,
// with an error well below the goal. The error is that of the crew; the proof can then be gone on with.
func (s *factoredAlgebra) prove(goal float64) (float64, error) {
	x, d := s.lin.x, s.lin.x.cols
	diagonal, ok := s.fam.(*diagFamily)
	if !ok && float64(x.rows+d)*float64(d)*float64(d) > mostProvedFactored {
		return 0, nil
	}
	if !s.terms.concave() || !s.cur.certain {
		return math.Inf(1), nil
	}
	if !s.proof.stepped {
		s.held = append(s.held[:0], s.delta[:d]...)
		s.cg.solve(s.delta[:d], &s.hess, s.grad[:d], s.fam, 0.1*goal, true)
		floats.Scale(-1, s.delta[:d])
		old, err := s.cur.elbo, s.look(1, 0)
		if halted := s.workers.halt.Err(); halted != nil {
			copy(s.delta[:d], s.held)
			return 0, halted
		}
		if s.proof.stepped = true; err == nil && s.next.elbo > old {
			s.accept()
			s.remember(false)
			if err := s.directed(); err != nil {
				return 0, err
			}
		} else {
			copy(s.delta[:d], s.held)
		}
	}
	if !s.cur.certain {
		return math.Inf(1), nil
	}
	s.lin.prior.solve(s.buf, s.grad[:d])
	bound := 0.5 * floats.Dot(s.buf, s.grad[:d])
	if ok {
		for j, p := range diagonal.cur {
			own := s.lin.prior.at(j)
			bound += scaleGap((s.hess.diag[j]-own)/p, own/p)
		}
		return bound, nil
	}
	prior, err := s.lin.prior.stateUntil(s.workers.halt)
	best, work := weightState{halt: s.workers.halt}, designWork{halt: s.workers.halt}
	if err != nil || !best.add(prior, x, s.cur.tg, nil, &work) {
		return math.Inf(1), s.workers.halt.Err()
	}
	s.fam.move(0, s.delta[d:])
	bound += 2*s.fam.divergence(&s.lin.prior) + s.lin.prior.logDet() - best.logDet
	for n, v := range s.cur.v {
		bound += s.cur.tg[n] * v
	}
	return bound, nil
}

// scaleGap returns by how much {as + ½bs² − log s} is above its minimum at s = 1, for a, b ≥ 0: the gap of one standard deviation of a diagonal
// V, relative to what it is, with a = V_jj Σ_n γ_n x_nj² and b = V_jj Λ0_jj.
func scaleGap(a, b float64) float64 {
	z := 2 / (a + math.Sqrt(a*a+4*b)) // the minimiser, where a + bz = 1/z
	y := z - 1
	return max(0, 0.5*b*y*y+math.Log1p(y)-y/z)
}
