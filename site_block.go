package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// The inner problem of a block is solved until the decrease that it promises
// is this fraction of what it was and this small in nats, in at most so many
// evaluations.
const (
	blockTol   = 1e-3
	blockGoal  = 1e-2
	blockEvals = 40
)

// blockStep is the workspace of the block step.
type blockStep struct {
	promise float64   // decrease that the block promised at the start
	in      []bool    // membership of the block
	b       []int     // its members, increasing
	cov     []float64 // V_BB, full
	base    siteState // of the block
	rows    []float64 // V[B, :], one row a site
	prob    siteProblem
	mover   covMover
	fac     dense.Sites
	exp     dense.Expansion
	inner   dense.Expansion // of the block itself
	v       []float64       // V_BB after a step
	next    siteState
	delta   []float64
	u       []float64
}

// block implements algebra.
func (s *denseAlgebra) block(batch []int) error { return s.blocks.step(s, batch) }

func (t *blockStep) step(s *denseAlgebra, batch []int) error {
	if err := s.refresh(true); err != nil {
		return err
	}
	s.batched = false
	t.distinct(batch, s.n)
	t.gather(s)
	p := &t.prob
	t.mover.n, t.mover.cov = len(t.b), t.cov
	if err := p.init(s.terms, t.b, &t.mover, &t.base); err != nil {
		return err
	}
	t.promise = p.decrement()
	if t.promise < 1e-15 { // nothing that rounding would not hide
		s.distance = 0
		return nil
	}
	for goal := math.Min(blockGoal, blockTol*t.promise); p.decrement() > goal && p.evaluations < blockEvals; {
		if !p.iterate() {
			break
		}
	}
	// The problem of the block treats the other terms as their sites. Should the
	// ELBO itself fall, go less far. If that does not help either, step on all sites together: short of the
	// optimum, only rounding can keep such a step from raising the ELBO.
	for fraction := 1.0; fraction > 0.2; fraction /= 2 {
		if t.putBack(s, fraction) {
			return nil
		}
	}
	if t.promise < 1e-9 { // rounding
		s.distance = 0
		return nil
	}
	return s.ascend()
}

// putBack moves the sites of the block the given fraction of the way to the
// solution of its problem, with rank-m corrections of m, v and V, and reports
// true if the ELBO does not fall; otherwise nothing changes.
func (t *blockStep) putBack(s *denseAlgebra, fraction float64) bool {
	p, n, m := &t.prob, s.n, len(t.b)
	t.delta, t.u = dense.Resize(t.delta, m), dense.Resize(t.u, m)
	for a := range t.b {
		t.delta[a] = fraction * (p.cur.gamma[a] - t.base.gamma[a])
		t.u[a] = fraction * (p.cur.c[a] - t.base.a[a])
	}
	if !t.fac.Factor(t.cov, m, t.delta) {
		return false
	}
	t.fac.Expand(&t.exp, t.rows, n)
	next := &t.next
	next.resize(n)
	copy(next.v, s.cur.v)
	t.exp.SubVar(next.v)
	t.fac.Solve(t.u)
	clear(next.m)
	blas64.Gemv(blas.Trans, 1, dense.General(t.rows, m, n), dense.Vector(t.u), 0, dense.Vector(next.m))
	for i, d := range next.m {
		next.gamma[i] = s.cur.gamma[i]
		next.a[i] = s.cur.a[i] - s.cur.gamma[i]*d
		next.m[i] += s.cur.m[i]
	}
	for a, i := range t.b {
		next.gamma[i] += t.delta[a]
		next.a[i] += t.u[a]
	}
	strong := t.fac.Strong()
	if strong {
		// Within the block there are ways to keep the digits.
		t.fac.Expand(&t.inner, t.cov, m)
		t.v = dense.Resize(t.v, m*m)
		if !t.fac.Variances(t.v[:m], &t.inner) {
			return false
		}
		for a, i := range t.b {
			next.v[i] = t.v[a]
		}
	}
	for i, v := range next.v {
		if !(v >= dense.LeastShrink*s.cur.v[i]) && !(strong && t.in[i]) {
			return false
		}
	}
	if s.terms.expect(next, nil, s.workers) != nil {
		return false
	}
	logDet := s.logDet + t.fac.LogDet
	before, after := s.elbo(&s.cur, s.logDet), s.elbo(next, logDet)
	if !(after >= before-elboRounding*math.Abs(before)) {
		return false
	}
	s.distance = siteDistance(next, &s.cur)
	s.cur, t.next = t.next, s.cur
	s.logDet, s.unresolved = logDet, false
	t.exp.SubCov(s.cov)
	if strong {
		t.fac.Covariance(t.v, &t.inner)
		for a, i := range t.b {
			for c, j := range t.b[:a+1] {
				s.cov[i*n+j] = t.v[a*m+c]
			}
		}
	}
	s.drifted(&t.next)
	return true
}

// drifted keeps account of the rounding of V: whether a variance shrinks or
// grows by some factor, its relative error grows by the same. Where so many
// digits are gone that it pays, V is computed anew from the sites.
func (s *denseAlgebra) drifted(before *siteState) {
	const most = 1e-9
	for i, v := range s.cur.v {
		s.rounding[i] = s.rounding[i]*math.Max(v/before.v[i], before.v[i]/v) + epsilon
		// The mean has lost the digits that it had where it was large.
		lost := epsilon*math.Abs(before.m[i]) > most*math.Sqrt(v) && math.Abs(before.m[i]) > 1e3*math.Abs(s.cur.m[i])
		if lost || s.rounding[i] > most && s.rounding[i] > 1e3*s.roundingAnew(i) {
			s.fresh, s.dense, s.pg.current = false, false, false
		}
	}
}

// distinct stores the distinct terms of batch, in increasing order, in t.b.
func (t *blockStep) distinct(batch []int, n int) {
	if t.in == nil {
		t.in = make([]bool, n)
	}
	clear(t.in)
	for _, i := range batch {
		t.in[i] = true
	}
	t.b = t.b[:0]
	for i, in := range t.in {
		if in {
			t.b = append(t.b, i)
		}
	}
}

// gather copies what concerns the block.
func (t *blockStep) gather(s *denseAlgebra) {
	m, n := len(t.b), s.n
	t.cov, t.rows = dense.Resize(t.cov, m*m), dense.Resize(t.rows, m*n)
	t.base.resize(m)
	for a, i := range t.b {
		t.base.gamma[a], t.base.a[a], t.base.m[a] = s.cur.gamma[i], s.cur.a[i], s.cur.m[i]
		t.base.v[a] = s.cov[i*n+i]
		for c, j := range t.b[:a+1] {
			t.cov[a*m+c] = s.cov[i*n+j]
		}
		row := t.rows[a*n : (a+1)*n]
		copy(row, s.cov[i*n:i*n+i+1])
		for j := i + 1; j < n; j++ {
			row[j] = s.cov[j*n+i]
		}
	}
	dense.FillUpper(t.cov, m)
}
