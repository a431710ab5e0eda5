package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// factoredAlgebra is that of a GLM whose q(w) = N(m, V) has its V in a
// family of few coordinates φ. With the expectations of all rows at (m, V) and
//
//	A = Λ0 + Xᵀ diag(γ̂) X,   γ̂_n = −∂²E_n/∂m_n²,   α̂_n = ∂E_n/∂m_n,
//
// the gradient of the negative ELBO is Λ0(m − μ0) − Xᵀα̂ in m and that of
// ½(tr(AV) + log|V⁻¹|), with A held fixed, in φ. A step without history solves
//
//	argmin_δ  gᵀδ + ½(δ_mᵀAδ_m + δ_φᵀFδ_φ),   F near the Fisher information of V,
//
// a Newton step in m (by conjugate gradients) and one of natural gradients in V,
// which is the proximal step with r = 0 to first order. What these know nothing of,
// above all how α̂ and γ̂ change with V, is learnt from the steps (L-BFGS; Nocedal, 1980).
// A is used in products only, of O(nnz) for each column. A step along δ is halved until
// the exact ELBO rises.
type factoredAlgebra struct {
	lin   *linearModel
	n     int
	terms *siteTerms

	fam       covFamily
	cur, next factoredState
	fresh     bool // the expectations of cur hold
	aimed     bool // so do grad and delta
	started   bool // cur is no longer the prior
	free      bool // the last step was one with a given β

	hess     weightHessian
	convex   []float64 // the weights of A with those below 0 replaced by 0; scratch
	target   []float64 // the weights of A in aside, and
	rhs      []float64 // the gradient in the mean with it
	cg       conjugateGradients
	history  secants
	progress progress
	newton   diagNewton
	grad     []float64 // in (m, φ)
	delta    []float64
	kept     []float64 // delta and grad before a step
	promise  float64   // nats that the step δ promises
	unseen   float64   // nats that it may have left out, as its linear equations are solved to that alone
	beyond   float64   // nats that the last step brought, if it promised much less
	renewal  float64   // nats that V brought when it was renewed last; +Inf at first
	within   float64   // Solver.Goal of the last evaluation
	t        float64   // length of the next step along δ
	buf      []float64

	proof    proof
	proved   bool      // the determinant of a proof has been taken
	most     float64   // multiplications that it may take
	held     []float64 // scratch of prove
	rows     factoredRows
	pg       factoredPaper
	workers  crew
	distance float64 // that the last step went
}

// factoredState is a mean, about μ0, with the expectations under it and a V
// that its family keeps. Of its siteState the sites are not used.
type factoredState struct {
	siteState
	mean []float64
	elbo float64
}

// newFactoredAlgebra returns the prior of l with a low-rank covariance, or a diagonal one for rank 0.
func newFactoredAlgebra(l *linearModel, rank int) *factoredAlgebra {
	n, d := l.x.rows, len(l.names)
	s := &factoredAlgebra{lin: l, n: n, terms: l.terms, t: 1, most: mostProof, renewal: math.Inf(1)}
	for _, c := range []*factoredState{&s.cur, &s.next} {
		c.m, c.v, c.e, c.tg, c.d1 = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
		c.mean = make([]float64, d)
	}
	prec := make([]float64, d)
	l.prior.diagTo(prec)
	if rank > 0 {
		s.fam = newLowRankFamily(prec, min(rank, d))
	} else {
		s.fam = newDiagFamily(prec)
	}
	k := d + s.fam.size()
	s.grad, s.delta, s.buf = make([]float64, k), make([]float64, k), make([]float64, d)
	s.hess = weightHessian{x: l.x, prior: &l.prior}
	return s
}

// plan is all rows in every step.
func (s *factoredAlgebra) plan() Plan { return Plan{} }

// closedForm reports whether V̂ has a closed form.
func (s *factoredAlgebra) closedForm() bool {
	_, ok := s.fam.(*diagFamily)
	return ok
}

func (s *factoredAlgebra) use(c crew) { s.workers, s.hess.halt = c, c.halt }

// scope implements algebra: of a low-rank V it is known how far from the best of all V it is.
func (s *factoredAlgebra) scope() Scope {
	if s.closedForm() {
		return OverQ
	}
	return OverLargerFamily
}

func (s *factoredAlgebra) moved() float64 { return s.distance }

// block implements algebra: there is none.
func (s *factoredAlgebra) block(batch []int) error {
	return fmt.Errorf("a batch of %d of %d rows without a step size: blocks need FullCovariance; leave Solver.BatchSize at 0, or give Solver.StepSize: %w", len(batch), s.n, ErrParam)
}

// ascend implements algebra.
func (s *factoredAlgebra) ascend() (passes int, err error) {
	if err := s.renewed(); err != nil {
		return 0, err
	}
	if err := s.directed(); err != nil {
		return 0, err
	}
	s.kept = append(append(s.kept[:0], s.delta...), s.grad...)
	promise, unseen, t, renewal, free, pairs := s.promise, s.unseen, s.t, s.renewal, s.free, s.history.pairs
	slow := s.progress
	diagonal, _ := s.fam.(*diagFamily)
	straight := diagonal != nil && diagonal.straight
	s.progress.add(s.promise, s.n, s.n)
	if s.climb() {
		return 1, nil
	}
	if err = s.workers.halt.Err(); err != nil { // back to before the step
		copy(s.grad, s.kept[copy(s.delta, s.kept):])
		s.promise, s.unseen, s.t, s.renewal, s.free, s.history.pairs, s.aimed = promise, unseen, t, renewal, free, pairs, true
		s.progress = slow
		if diagonal != nil {
			diagonal.straight = straight
		}
	}
	return 1, err
}

// directed is direct, whose error is that of the crew.
func (s *factoredAlgebra) directed() error {
	promise := s.promise
	s.direct()
	if err := s.workers.halt.Err(); err != nil {
		s.promise, s.aimed = promise, false
		return err
	}
	return nil
}

// climb takes the step of ascend, and reports whether there was one.
func (s *factoredAlgebra) climb() bool {
	s.free, s.proof = false, proof{}
	s.distance = 0
	if (s.cur.wild || s.cur.absurd()) && s.alone(true) {
		s.history.reset()
		return true
	}
	if s.promise < max(nearOptimum, s.enough()) && !s.settled() && s.renew() {
		return true
	}
	if s.search(6, 1, 1) {
		return true
	}
	s.progress, s.aimed = progress{}, s.aimed && !s.progress.slow
	if s.history.len() > 0 {
		s.history.reset()
		s.direct()
		if s.search(6, 1, 1) {
			return true
		}
	}
	// Far from the optimum: towards the V of the curvature here.
	s.history.reset()
	s.fam.begin(s.delta[s.lin.x.cols:], &s.hess)
	if s.search(6, 1, 1) {
		return true
	}
	s.aimed = false
	s.direct()
	return s.search(50, 1, 1) || s.search(50, 1, 0) || s.search(50, 0, 1)
}

func (s *factoredAlgebra) slow() bool { return false }

// renewed makes the expectations of the current state valid.
func (s *factoredAlgebra) renewed() error {
	if !s.fresh {
		if err := s.look(0, 0); err != nil {
			return err
		}
		s.accept()
	}
	if !s.started {
		s.begin()
		if err := s.workers.halt.Err(); err != nil {
			return err
		}
		s.started = true
	}
	return nil
}

// begin goes from the prior to the V of the curvature at its mean, if that is
// better: the prior may be so wide that the curvature under it means little.
func (s *factoredAlgebra) begin() {
	if s.cur.wild && s.alone(false) {
		return
	}
	c, d := &s.next, s.lin.x.cols
	copy(c.m, s.cur.m)
	clear(c.v)
	if s.terms.expect(&c.siteState, nil, s.workers) != nil {
		return
	}
	for i, w := range c.tg {
		c.tg[i] = math.Max(0, w)
	}
	s.hess.set(c.tg)
	s.fam.begin(s.delta[d:], &s.hess)
	if s.look(0, 1) == nil && s.next.elbo > s.cur.elbo {
		s.accept()
	}
}

// alone goes from a state under which expectations overflow to the least squares through what each term would have if it were the only one, and
// reports whether that is better: what is known of an exponential there says no more than which way to go. With far it goes on from there, step by
// step to the targets, until a state is at most half as bad.
func (s *factoredAlgebra) alone(far bool) bool {
	d := s.lin.x.cols
	for k := range 1 + mostAstray {
		c := &s.cur
		if k > 0 {
			c = &s.next
		}
		s.aside(c, k == 0)
		if s.workers.halt.Stopped() {
			return false
		}
		s.cg.solve(s.delta[:d], &s.hess, s.rhs, s.fam, nearOptimum, false)
		for j, m := range c.mean {
			s.delta[j] += m - s.cur.mean[j]
		}
		s.fam.begin(s.delta[d:], &s.hess)
		if s.look(1, 1) != nil {
			return false
		}
		if s.next.elbo > 0.5*s.cur.elbo && (far || !s.next.wild) {
			s.accept()
			return true
		}
		if !far {
			return false
		}
	}
	return false
}

// leastPromise returns what a step of the mean alone promises at least, V held: ½gᵀA⁻¹g ≥ ½ Σ_j g_j²/(D A_jj), as A ≼ D diag(A). Where derivatives are
// absurd the step that is taken may promise less, by an A that is made positive definite, and where terms curve the other way, by what steps have
// told of curvature elsewhere. There A is that of |γ̂|.
func (s *factoredAlgebra) leastPromise() (sum float64) {
	d := s.lin.x.cols
	diag := make([]float64, d)
	s.lin.prior.diagTo(diag)
	weight := make([]float64, s.n)
	for i, w := range s.cur.tg {
		weight[i] = math.Abs(w)
	}
	s.lin.x.addSquares(diag, weight, nil, s.hess.scratch())
	for j, g := range s.grad[:d] {
		if diag[j] > 0 {
			sum += 0.5 * g / diag[j] * g / float64(d)
		}
	}
	return sum
}

// aside makes s.hess and s.rhs those of the targets at c, alone or not, where absurd ones are replaced.
func (s *factoredAlgebra) aside(c *factoredState, alone bool) {
	s.target, s.rhs = dense.Resize(s.target, s.n), dense.Resize(s.rhs, s.lin.x.cols)
	slope := make([]float64, s.n)
	for i, v := range c.v {
		if s.workers.halt.Stopped() {
			return
		}
		g, a := s.terms.sane(&c.siteState, i, i)
		if m := c.m[i]; alone && g == c.tg[i] {
			g, a = 0, 0
			if v > 0 && !math.IsInf(v, 0) {
				var at float64
				g, a, at = s.terms.solve(i, m, v, m, v)
				a += math.Max(0, g) * (at - m)
			}
		}
		s.target[i], slope[i] = math.Max(0, g), a
	}
	s.hess.set(s.target)
	s.lin.prior.mul(s.rhs, c.mean, 1)
	floats.Scale(-1, s.rhs)
	s.lin.x.addMulTOn(s.rhs, slope, nil, s.hess.scratch())
}

// Where a step promises fewer nats than nearOptimum, or than the goal, V is renewed, until that brings
// no more than worthRenewing, or than the goal.
const (
	nearOptimum   = 1e-2
	worthRenewing = 1e-4
)

// settled reports whether V need not be renewed: until then steps may promise little at a stationary
// point of the ELBO that is no maximum.
func (s *factoredAlgebra) settled() bool { return s.renewal <= max(worthRenewing, s.enough()) }

// renew takes the step of the mean with a new V, which leaves such a point, and reports whether the
// ELBO rises.
func (s *factoredAlgebra) renew() bool {
	d, old := s.lin.x.cols, s.cur.elbo
	delta := append([]float64(nil), s.delta[d:]...)
	if s.fam.renew(s.delta[d:], &s.hess) && s.look(1, 1) == nil && s.next.elbo > old {
		s.accept()
		s.history.reset()
		s.beyond = s.cur.elbo - old
		s.renewal = s.beyond
		return true
	}
	copy(s.delta[d:], delta)
	s.renewal = 0
	return false
}

// look evaluates the state at m + tmδ_m and φ + tvδ_φ.
func (s *factoredAlgebra) look(tm, tv float64) error {
	if err := s.workers.halt.Err(); err != nil {
		return err
	}
	c, x, d := &s.next, s.lin.x, s.lin.x.cols
	copy(c.mean, s.cur.mean)
	if tm != 0 {
		floats.AddScaled(c.mean, tm, s.delta[:d])
	}
	s.fam.move(tv, s.delta[d:])
	x.mulOn(s.workers.halt, c.m, c.mean, nil)
	s.fam.variances(c.v, x, s.hess.scratch())
	if err := s.workers.halt.Err(); err != nil {
		return err
	}
	for i, v := range c.v {
		if bad := c.m[i] + v; !(v >= 0) || math.IsInf(bad, 0) || math.IsNaN(bad) {
			return fmt.Errorf("the linear predictor of %s is N(%.4g, %.4g): %w", s.terms.describe(i), c.m[i], v, ErrNotFinite)
		}
	}
	if err := s.terms.expect(&c.siteState, nil, s.workers); err != nil {
		return err
	}
	p := &s.lin.prior
	p.mul(s.buf, c.mean, 1)
	c.elbo = floats.Sum(c.e) - s.fam.divergence(p) - 0.5*floats.Dot(s.buf, c.mean)
	if err := s.workers.halt.Err(); err != nil {
		return err
	}
	if math.IsNaN(c.elbo) {
		return fmt.Errorf("the ELBO is %v: %w", c.elbo, ErrNotFinite)
	}
	return nil
}

// accept makes the state that was looked at the current one, and the other way round.
func (s *factoredAlgebra) accept() {
	s.cur, s.next = s.next, s.cur
	s.fam.accept()
	s.fresh, s.aimed = true, false
}

// search tries the step of length t in m, in V or in both, and its
// halves, until the ELBO is finite and rises, or does not fall where rounding hides a rise.
func (s *factoredAlgebra) search(times int, mean, cov float64) bool {
	t := s.t
	if mean*cov == 0 {
		t = 1
	}
	old := s.cur.elbo
	least := math.Nextafter(old, math.Inf(1))
	if s.promise < 1e-10*math.Max(1, math.Abs(old)) {
		least = old - 1e-14*math.Abs(old)
	}
	for k := range times {
		if s.look(t*mean, t*cov) == nil && !math.IsInf(s.next.elbo, 0) && s.next.elbo >= least {
			s.accept()
			if k == 0 {
				t *= 4
			}
			s.t = math.Max(1e-6, math.Min(1, 1.5*t))
			s.beyond = s.cur.elbo - old
			if s.beyond < 4*s.promise {
				s.beyond = 0
			}
			s.remember(math.IsInf(old, 0))
			if s.cur.elbo <= old { // the promise, small as it is, was rounding: so are the changes that it was made of
				s.history.reset()
			}
			return true
		}
		t /= 2
	}
	if mean*cov != 0 {
		s.t = 1
	}
	return false
}

// remember takes the step from the state that was current before into the history.
func (s *factoredAlgebra) remember(far bool) {
	d := s.lin.x.cols
	if far {
		s.history.reset()
	}
	p := s.history.next(len(s.grad))
	floats.SubTo(p.s[:d], s.cur.mean, s.next.mean)
	s.fam.secant(p.s[d:])
	copy(p.y, s.grad)
	s.distance = floats.Norm(p.s[:d], 2)
}

// diagNewton is Newton's step in (m, φ) for a diagonal V,
//
//	[ A                      −½Xᵀdiag(∂γ̂/∂m)X²V                 ]
//	[ −½VX²ᵀdiag(∂γ̂/∂m)X    ½diag(AV) + ½VX²ᵀdiag(∂γ̂/∂v)X²V ],
//
// X² being that of the squares of the elements, by conjugate gradients with the diagonal, or A and the diagonal, as their metric. Of the curvature of V that of
// log|V| alone is counted, ½, beside that of the terms: the step is straight in V, as m + v/2 is, that exponentials are functions of.
type diagNewton struct {
	siteNewton
	v, scale []float64
	a, b     []float64 // of the rows
}

// leastShrink is the part of a variance that a step of Newton's leaves, at least.
const leastShrink = 0.5

// diagNewtonMost bounds the iterations: each takes four products with X, and a pass takes tens of these, too.
const diagNewtonMost = 100

// aim stores the step in s.delta, and what it promises. It reports false where the Hessian is not positive definite.
func (t *diagNewton) aim(s *factoredAlgebra, f *diagFamily) bool {
	if s.cur.wild || !t.slopes(s.terms, &s.cur.siteState, nil, s.workers) {
		return false
	}
	d := s.lin.x.cols
	for _, x := range []*[]float64{&t.r, &t.z, &t.p, &t.q, &t.scale} {
		*x = dense.Resize(*x, 2*d)
	}
	t.v, t.a, t.b = dense.Resize(t.v, d), dense.Resize(t.a, s.n), dense.Resize(t.b, s.n)
	for j, p := range f.cur {
		t.v[j] = 1 / p
		t.scale[j] = s.hess.diag[j]
		t.scale[d+j] = 0.5 * math.Max(s.hess.diag[j]/p, 1)
	}
	clear(s.delta)
	floats.ScaleTo(t.r, -1, s.grad)
	floats.DivTo(t.z, t.r, t.scale)
	copy(t.p, t.z)
	rho := floats.Dot(t.r, t.z)
	enough, nothing := newtonTol*newtonTol*rho, newtonNothing*rho
	gain, total := math.Inf(1), 0.0 // twice the nats of the last iteration, and of all
	direct := false
	for k := 0; k < diagNewtonMost && (rho > enough || rho > nothing && gain > newtonTol*total) && !s.workers.halt.Stopped(); k++ {
		t.mul(s)
		curvature := floats.Dot(t.p, t.q)
		if !(curvature > 0) || math.IsInf(curvature, 0) {
			if k == 0 {
				return false
			}
			break
		}
		gain = rho * rho / curvature
		total += gain
		floats.AddScaled(s.delta, rho/curvature, t.p)
		floats.AddScaled(t.r, -rho/curvature, t.q)
		floats.DivTo(t.z, t.r, t.scale)
		was := direct
		// Of the four products two are as one with A.
		if direct = s.hess.due(2*(k+1)) && s.hess.direct(); direct { // of the mean in the metric of A itself
			s.hess.solve(t.z[:d], t.r[:d])
		}
		next := floats.Dot(t.r, t.z)
		if direct != was {
			copy(t.p, t.z)
		} else {
			floats.AddScaledTo(t.p, t.z, next/rho, t.p)
		}
		rho = next
	}
	if least := 1 - floats.Max(s.delta[d:]); least < leastShrink { // what is left of a variance
		floats.Scale((1-leastShrink)/(1-least), s.delta)
	}
	s.promise = -0.5 * floats.Dot(s.delta, s.grad)
	f.straight = s.promise > 0 && !s.workers.halt.Stopped()
	return f.straight
}

// mul stores the Hessian times p in q.
func (t *diagNewton) mul(s *factoredAlgebra) {
	x, d := s.lin.x, s.lin.x.cols
	p, q := t.p[d:], t.q[d:]
	x.mulOn(s.workers.halt, t.a, t.p[:d], nil)
	floats.MulTo(q, t.v, p)
	x.quadDiagOn(s.workers.halt, t.b, q, nil) // −δv
	s.lin.prior.mul(t.q[:d], t.p[:d], 1)
	for i, a := range t.a {
		b := -t.b[i]
		t.a[i] = s.cur.tg[i]*a + 0.5*t.tm[i]*b
		t.b[i] = t.tm[i]*a + t.tv[i]*b
	}
	x.addMulTOn(t.q[:d], t.a, nil, s.hess.scratch())
	clear(q)
	x.addSquares(q, t.b, nil, s.hess.scratch())
	for j, v := range t.v {
		q[j] = 0.5 * (p[j] - v*q[j])
	}
}

// farOff is the number of nats beyond which a low-rank V follows the curvature, which
// changes by orders of magnitude there, rather than gradients.
const farOff = 1e4

// direct finds where the current state would move to.
func (s *factoredAlgebra) direct() {
	if s.aimed {
		return
	}
	c, a, p, d := &s.cur, &s.hess, &s.lin.prior, s.lin.x.cols
	a.set(c.tg)
	p.mul(s.grad[:d], c.mean, 1)
	floats.Scale(-1, s.grad[:d])
	s.lin.x.addMulTOn(s.grad[:d], c.d1, nil, s.hess.scratch())
	floats.Scale(-1, s.grad[:d])
	s.fam.gradient(s.grad[d:], a)
	if s.workers.halt.Stopped() {
		return
	}
	s.history.complete(s.grad)
	if s.promise > farOff && !s.closedForm() {
		s.history.reset()
	}

	// What is far below the rounding of the ELBO need not be sought.
	goal := math.Max(1e-10, 1e-13*math.Abs(c.elbo))
	if math.IsInf(c.elbo, 0) {
		goal = 0
	}
	s.unseen = 0
	if f, ok := s.fam.(*diagFamily); ok {
		f.straight = false
		if s.progress.slow && s.newton.aim(s, f) {
			s.aimed = true
			return
		}
	}
	s.convexify()
	step := func(tol float64, proof bool) {
		s.history.unfold(s.delta, s.grad)
		copy(s.buf, s.delta[:d])
		s.cg.solve(s.delta[:d], a, s.buf, s.fam, tol, proof)
		s.fam.natural(s.delta[d:])
		s.history.fold(s.delta)
		s.promise = 0.5 * floats.Dot(s.delta, s.grad)
	}
	step(1e-5*goal, false)
	if enough := max(goal, s.enough()); s.promise <= enough {
		// About to say that nothing is left: what the residual hides counts.
		if s.unseen = s.cg.unseen(a); s.unseen > enough {
			step(0.1*enough, true)
			s.unseen = s.cg.unseen(a)
		}
	}
	floats.Scale(-1, s.delta)
	if !s.fam.begun() || s.promise > farOff && !s.closedForm() {
		s.fam.begin(s.delta[d:], a)
	}
	s.aimed = true
}

// convexify makes s.hess, that of the current state, the metric, which is positive definite.
func (s *factoredAlgebra) convexify() {
	if slices.Min(s.cur.tg) >= 0 {
		return
	}
	s.convex = dense.Resize(s.convex, s.n)
	for i, w := range s.cur.tg {
		s.convex[i] = math.Max(0, w)
	}
	s.hess.set(s.convex)
}

// enough returns the gap at which a run may end here.
func (s *factoredAlgebra) enough() float64 {
	c := &s.cur
	enough := goalWith(s.within, s.n, c.elbo, c.err)
	if s.within == 0 {
		enough = max(enough, s.goal())
	}
	return enough
}

// The gap at which a low-rank V is good enough, in nats a row and at least: its last digits take many
// passes, and other maxima of its ELBO are further away.
const (
	lowRankGoalRow = 1e-6
	lowRankGoal    = 1e-7
)

// goal returns the Evaluation.Goal of s.
func (s *factoredAlgebra) goal() float64 {
	if s.closedForm() {
		return 0
	}
	return max(lowRankGoal, lowRankGoalRow*float64(s.n))
}

// evaluate implements algebra. The gap is what the next step promises, −½gᵀδ, where the last step kept
// to its promise, and until V is settled no less than what renewing it brought last; after a step with a
// given β it is not known.
func (s *factoredAlgebra) evaluate(within float64) (Evaluation, error) {
	if err := s.renewed(); err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: s.cur.elbo, ELBOErr: neverZero(s.cur.err), Goal: s.goal()}
	if s.cur.wild {
		e.Gap = math.Inf(1)
	}
	if s.cur.wild || math.IsInf(e.ELBO, 0) {
		return e, nil
	}
	s.within = within
	if err := s.directed(); err != nil {
		return Evaluation{}, err
	}
	goal := s.enough()
	if !s.proof.made && s.worthProving(goal) {
		near := s.promise+s.unseen <= worthProvingFactored*goal
		bound, err := s.prove(goal, near && !s.free)
		if err != nil {
			return Evaluation{}, err
		}
		s.proof.bound = boundOf(bound)
		e.ELBO, e.ELBOErr = s.cur.elbo, neverZero(s.cur.err)
	}
	s.proof.made = true
	e.Gap, e.GapBound = neverZero(s.gap()), s.proof.bound
	if s.cur.absurd() || !s.terms.concave() {
		e.Gap = math.Max(e.Gap, s.leastPromise())
	}
	return e, nil
}

// gap returns the estimate of evaluate.
func (s *factoredAlgebra) gap() float64 {
	gap := math.Max(s.promise+s.unseen, s.beyond)
	if !s.closedForm() && !s.settled() {
		gap = math.Max(gap, s.renewal)
	}
	return gap
}

// weights implements weighted.
func (s *factoredAlgebra) weights() ([]float64, weightCov, error) {
	return append([]float64(nil), s.cur.mean...), s.fam.cov(), nil
}

// factoredPaper is the workspace of the step with a given β.
type factoredPaper struct {
	h, to, prior []float64 // move of the mean, yet without the metric of the main text; target of V⁻¹; diagonal of Λ0
	mean         []float64
	appendix     bool
}

// marginals implements algebra. The error wraps ErrNoProx where V is not diagonal.
func (s *factoredAlgebra) marginals(x *siteEstimates, batch []int) error {
	f, ok := s.fam.(*diagFamily)
	if !ok {
		return fmt.Errorf("a step size with LowRankCovariance; leave Solver.StepSize nil, or choose DiagonalCovariance or FullCovariance: %w", ErrNoProx)
	}
	m := len(batch)
	if batch == nil {
		m = s.n
	}
	x.resize(m)
	s.lin.x.mulOn(s.workers.halt, x.m, s.cur.mean, batch)
	v := dense.Resize(s.pg.h, s.lin.x.cols)
	for j, p := range f.cur {
		v[j] = 1 / p
	}
	s.lin.x.quadDiagOn(s.workers.halt, x.v, v, batch)
	s.pg.h = v
	return nil
}

// aim implements algebra: the step of the paper with a diagonal V (PG-SVI-MF),
//
//	V₊⁻¹ = rV⁻¹ + (1−r)(Λ0 + diag XᵀΓ̂X),   m₊ = m − (1−r) B⁻¹(Λ0(m − μ0) − Xᵀα̂),
//
// of Λ0 the diagonal alone in V₊⁻¹ and in B, which is V₊⁻¹ or, in the appendix, (1−r)Λ0 + rV⁻¹.
func (s *factoredAlgebra) aim(x *siteEstimates, batch []int, m paperMove) error {
	t, f, d := &s.pg, s.fam.(*diagFamily), s.lin.x.cols
	for k := range x.m {
		x.d1[k] *= m.scale
		x.d2[k] *= -m.scale
	}
	s.lin.prior.mul(t.h, s.cur.mean, 1)
	floats.Scale(m.r-1, t.h)
	s.lin.x.addMulTOn(t.h, x.d1, batch, s.hess.scratch())
	t.to, t.prior = dense.Resize(t.to, d), dense.Resize(t.prior, d)
	s.lin.prior.diagTo(t.prior)
	t.appendix = m.appendix
	for j, p := range f.cur {
		t.to[j] = m.r*p + (1-m.r)*t.prior[j]
		if t.appendix {
			t.h[j] /= t.to[j]
		}
	}
	s.lin.x.addSquares(t.to, x.d2, batch, s.hess.scratch())
	return nil
}

// try implements algebra.
func (s *factoredAlgebra) try(noisy bool) (valid, edge bool) {
	t, f := &s.pg, s.fam.(*diagFamily)
	for j, p := range f.cur {
		if !(t.to[j] > 0) {
			return false, false
		}
		edge = edge || noisy && t.to[j] < min(noisyPivot*t.prior[j], p)
	}
	return true, edge
}

// halve implements algebra.
func (s *factoredAlgebra) halve() {
	t := &s.pg
	for j, p := range s.fam.(*diagFamily).cur {
		t.to[j] = p + 0.5*(t.to[j]-p)
	}
	floats.Scale(0.5, t.h)
}

// take implements algebra.
func (s *factoredAlgebra) take() error {
	t, f := &s.pg, s.fam.(*diagFamily)
	t.mean = dense.Resize(t.mean, len(t.to))
	for j, p := range t.to {
		h := t.h[j]
		if !t.appendix {
			h /= p
		}
		t.mean[j] = s.cur.mean[j] + h
		if math.IsNaN(t.mean[j]+p) || math.IsInf(t.mean[j]+p, 0) {
			return fmt.Errorf("weight %d (%s) would move to N(%v, %v): %w", j, s.lin.names[j], t.mean[j], 1/p, ErrNotFinite)
		}
	}
	s.distance = floats.Distance(t.mean, s.cur.mean, 2)
	s.cur.mean, t.mean = t.mean, s.cur.mean
	copy(f.try, t.to)
	f.accept()
	s.history.reset()
	s.fresh, s.aimed, s.started, s.free, s.proof = false, false, true, true, proof{}
	return nil
}

// diagFamily is the family of diagonal V. Its coordinates are φ_j = −log V_jj.
type diagFamily struct {
	cur, try []float64 // V⁻¹
	metric   []float64 // F⁻¹
	v        []float64 // of try
	straight bool      // moves are those of V, of −δ_j times V_jj, and not of its logarithm
}

func newDiagFamily(prec []float64) *diagFamily {
	d := len(prec)
	return &diagFamily{cur: prec, try: make([]float64, d), metric: make([]float64, d)}
}

func (f *diagFamily) size() int { return len(f.cur) }

// gradient is ½(1 − ρ), ρ_j = A_jj V_jj. The Fisher information is ½; F is ½(ρ − 1)/log ρ,
// with which a step without history goes to V⁻¹ = diag(A), however far that is.
func (f *diagFamily) gradient(g []float64, a *weightHessian) {
	for j, p := range f.cur {
		r := a.diag[j] / p
		g[j] = 0.5 * (1 - r)
		r = math.Max(r, 1./16)
		f.metric[j] = 2
		if e := r - 1; math.Abs(e) > 1e-8 {
			f.metric[j] = 2 * math.Log1p(e) / e
		}
	}
}

func (f *diagFamily) natural(g []float64) { floats.Mul(g, f.metric) }

func (f *diagFamily) begin(dst []float64, a *weightHessian) {
	f.straight = false
	for j, p := range f.cur {
		dst[j] = math.Log(a.diag[j] / p)
	}
}

func (f *diagFamily) begun() bool { return true }

func (f *diagFamily) renew([]float64, *weightHessian) bool { return false }

func (f *diagFamily) move(t float64, delta []float64) {
	for j, p := range f.cur {
		if f.straight {
			f.try[j] = p / (1 - t*delta[j])
		} else {
			f.try[j] = p * math.Exp(t*delta[j])
		}
	}
}

func (f *diagFamily) secant(dst []float64) {
	for j, p := range f.cur {
		dst[j] = math.Log(p / f.try[j])
	}
}

func (f *diagFamily) variances(v []float64, x *design, s *designWork) {
	f.v = dense.Resize(f.v, len(f.try))
	for j, p := range f.try {
		f.v[j] = 1 / p
	}
	x.quadDiagOn(s.halt, v, f.v, nil)
}

func (f *diagFamily) divergence(p *weightPrior) float64 {
	d := len(f.try)
	var kl float64
	for j, q := range f.try {
		if p.full == nil {
			r := p.prec[j] / q
			kl += r - 1 - math.Log(r)
		} else {
			kl += p.full.p[j*d+j]/q - 1 + math.Log(q)
		}
	}
	if p.full != nil {
		kl -= p.full.logDet
	}
	return 0.5 * kl
}

func (f *diagFamily) accept() { f.cur, f.try = f.try, f.cur }

func (f *diagFamily) precondition(dst, r []float64, a *weightHessian) { floats.DivTo(dst, r, a.diag) }

func (f *diagFamily) cov() weightCov {
	v := make(diagCov, len(f.cur))
	for j, p := range f.cur {
		v[j] = 1 / p
	}
	return v
}

func (s *factoredAlgebra) state(c *save.State) {
	d, k := s.lin.x.cols, len(s.grad)
	c.Bool(&s.fresh, &s.aimed, &s.started, &s.proved, &s.free, &s.cur.wild)
	s.progress.state(c)
	c.Float(&s.promise, &s.unseen, &s.beyond, &s.renewal, &s.within, &s.t, &s.cur.elbo, &s.cur.err)
	c.Bool(&s.cur.certain)
	c.Floats(d, &s.cur.mean)
	c.Floats(s.n, &s.cur.m, &s.cur.v, &s.cur.e, &s.cur.tg, &s.cur.d1)
	s.fam.state(c)
	s.proof.state(c)
	s.history.state(c, k)
	if s.aimed {
		c.Floats(k, &s.grad, &s.delta)
		if c.Reading() {
			s.hess.set(s.cur.tg)
			s.convexify()
		}
	}
}

func (s *factoredAlgebra) constant() bool { return s.fresh && s.aimed && s.proof.made }

func (f *diagFamily) state(c *save.State) {
	c.Floats(len(f.try), &f.cur)
	c.Bool(&f.straight)
}

// worthProvingFactored is the estimated gap, as a multiple of the goal, below which the gap of a factoredAlgebra is proved: that
// takes the work of a pass.
const worthProvingFactored = 10

// mostProof is the number of multiplications that the determinant of a proof may take: some seconds.
const mostProof = 1e11

// worthProving reports whether a proof is worth its cost here. Where the determinant takes longer than
// passes do it is tried once, where the run may end: of what a low-rank V is below the best of all V
// later states leave nearly as much.
func (s *factoredAlgebra) worthProving(goal float64) bool {
	if s.closedForm() {
		return true // it costs little but the step of the mean, which waits
	}
	switch work, _ := s.proofWork(); {
	case work > s.most:
		return false
	case work > directMost:
		return !s.proved && s.gap() <= goal
	}
	return s.promise+s.unseen <= worthProvingFactored*goal
}

// proofWork returns the number of multiplications that the determinant of a proof takes, +Inf where it
// would take more memory than the model may have, and whether it is over the rows.
func (s *factoredAlgebra) proofWork() (work float64, dual bool) {
	l, d := s.lin, s.lin.x.cols
	work, size, dual := s.hess.factorWork()
	rows := bytesOf(1, s.n, l.x.perRow())
	rank := (s.fam.size() - d) / d
	if checkMemory(l.maxMemory, rows+bytesOf(weightVectors, 1, d)+bytesOf(lowRankMatrices, d, rank)+8*proofMatrices*size, "", "") != nil {
		work = math.Inf(1)
	}
	return work, dual
}

// proofMatrices is the number of N×N or D×D matrices that a proof has at its most.
const proofMatrices = 6

// prove takes a Newton step of the mean, V held, unless the ELBO would fall, and returns a proved bound on the gap of the state reached,
// with an error well below the goal, +Inf if there is none. The error is that of the crew; the proof can then be gone on with.
func (s *factoredAlgebra) prove(goal float64, step bool) (float64, error) {
	d := s.lin.x.cols
	diagonal, ok := s.fam.(*diagFamily)
	if !s.terms.concave() || !s.cur.certain {
		return math.Inf(1), nil
	}
	if step && !s.proof.stepped {
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
		var scales float64
		for j, p := range diagonal.cur {
			own := s.lin.prior.at(j)
			scales += scaleGap((s.hess.diag[j]-own)/p, own/p)
		}
		if bound += scales; step && bound > goal && s.promise+s.unseen <= goal { // which may be rounding
			bound = min(bound, s.rowsGap(goal)+2*scales)
		}
		return bound, s.workers.halt.Err()
	}
	loss := s.loss()
	if err := s.workers.halt.Err(); err != nil {
		return 0, err
	}
	s.proved = true
	return bound + loss, nil
}

// loss returns a bound on tr Δ − log|I + Δ| = tr(AV) − D − log|A|/|V⁻¹|, with what rounding may hide of it.
func (s *factoredAlgebra) loss() float64 {
	told, rounding := s.told()
	s.fam.move(0, s.delta[s.lin.x.cols:])
	kl := 2 * s.fam.divergence(&s.lin.prior)
	var trace float64
	for n, v := range s.cur.v {
		trace += s.cur.tg[n] * v
	}
	loss := max(0, kl+trace-told) + rounding + dense.Epsilon*(math.Abs(kl)+trace+math.Abs(told))
	if math.IsNaN(loss) {
		return math.Inf(1)
	}
	return loss
}

// told returns log|A|/|Λ0| and what rounding may make of it, +Inf where it is not known.
func (s *factoredAlgebra) told() (logDet, rounding float64) {
	l, h, none := s.lin, s.workers.halt, math.Inf(1)
	work, dual := s.proofWork()
	if work > s.most {
		return 0, none
	}
	if dual {
		k, err := l.gramUntil(h)
		f := dense.Sites{Halt: h}
		if err != nil || !f.Factor(k, s.n, s.cur.tg) {
			return 0, none
		}
		return f.LogDet, dense.Epsilon * siteSize(k, s.cur.tg)
	}
	prior := l.prior.full
	if prior == nil {
		prior = &weightState{}
		prior.resize(l.x.cols)
		for j, p := range l.prior.prec {
			prior.p[j*l.x.cols+j] = p
		}
	}
	best, buf := weightState{halt: h}, designWork{halt: h}
	best.copyPrecision(prior)
	best.addRows(l.x, s.cur.tg, nil, &buf)
	ok := best.factor()
	if work <= directMost && !(ok && best.pivot(&best) >= leastPivot) {
		ok = best.add(prior, l.x, s.cur.tg, nil, &buf) // in twice the digits
	}
	if !ok {
		return 0, none
	}
	before := l.prior.logDet()
	rounding = best.rounding() + best.resolution() + dense.Epsilon*(math.Abs(best.logDet)+math.Abs(before))
	return best.logDet - before, rounding
}

// factoredRows is the workspace of rowsGap.
type factoredRows struct {
	low         []float64    // of the slopes
	drift, wide []float64    // what the linear predictors are off by, and their variances under the prior
	r           dense.Double // the residual, or the mean
	delta, back []float64
}

// The slopes of rowsGap are refined so often, or until what is left of the residual is this part of the goal.
const (
	rowsRefined = 3
	rowsRest    = 0.1
)

// rowsGap returns a bound on what the mean leaves to gain by the rows: see siteTerms.rowGap. Raw units and wide priors blow up, in
// ½cᵀΛ0⁻¹c, what rounding leaves of c = Λ0m − Xᵀα̂. Slopes a near α̂ for which Λ0m − Xᵀa is next to nothing, in twice the digits, leave
// but the distances a − α̂ to be counted. They come by refinement: where r = Xᵀa − Λ0m and Aδ = r, slopes of a − diag(γ̂)Xδ leave Λ0δ.
func (s *factoredAlgebra) rowsGap(goal float64) float64 {
	c, p, x, g := &s.cur, &s.lin.prior, s.lin.x, &s.rows
	dense.ResizeAll(s.n, &c.a, &c.gamma, &g.low, &g.drift, &g.wide)
	dense.ResizeAll(x.cols, &g.r.Hi, &g.r.Lo, &g.delta, &g.back)
	copy(c.a, c.d1)
	copy(c.gamma, c.tg)
	clear(g.low)
	slopes := dense.Double{Hi: c.a, Lo: g.low}
	rest := math.Inf(1)
	for k := range rowsRefined + 1 {
		p.residual(g.r, c.mean, x, slopes, &designWork{halt: s.workers.halt})
		p.solve(g.back, g.r.Hi)
		if rest = 0.5 * floats.Dot(g.back, g.r.Hi); k == rowsRefined || rest <= rowsRest*goal || s.workers.halt.Stopped() {
			break
		}
		s.cg.solve(g.delta, &s.hess, g.r.Hi, s.fam, rowsRest*goal, true)
		x.mulOn(s.workers.halt, g.drift, g.delta, nil)
		for n, e := range g.drift {
			g.low[n] -= c.tg[n] * e
		}
		slopes.Round()
	}
	copy(g.r.Hi, c.mean)
	clear(g.r.Lo)
	x.mulDouble(g.drift, g.r, nil)
	floats.Sub(g.drift, c.m)
	p.variances(g.wide, x)
	// The residual adds to the c of rows without a tangent before that is squared.
	rows := s.terms.rowGap(&c.siteState, c.elbo, g.wide, g.drift, s.workers.halt)
	return rest + rows + 2*math.Sqrt(rest*rows)
}
