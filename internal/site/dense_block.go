package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
)

// This file steps blocks of the sites of a DenseAlgebra. A block changes V by a matrix of low rank,
// which is applied later together with others.

// The inner problem of a block is solved until its predicted decrease is at most blockTol times the
// first one and at most blockGoal nats, or for blockEvals evaluations.
const (
	blockTol   = 1e-3
	blockGoal  = 1e-2
	blockEvals = 40
)

// blockStep is the workspace of the block step.
type blockStep struct {
	promise float64        // predicted decrease of the block at the start
	in      []bool         // membership of the block
	B       []int          // its members, increasing
	Cov     []float64      // V_BB, full
	Base    term.Marginals // the sites of B before the step
	rows    []float64      // V[B, :], one row per site
	prob    Problem
	mover   CovMover
	fac     dense.SiteFactor
	exp     dense.Expansion
	inner   dense.Expansion // expansion of the block itself
	v       []float64       // V_BB after a step
	strong  bool            // v replaces V_BB, because the block has strong sites
	next    term.Marginals
	delta   []float64
	u       []float64
}

// block implements blocker.
func (b denseBase) block(batch []int) error {
	b.s.linked = false
	return b.s.Blocks.step(b.s, batch)
}

// step takes the block step: it solves the problem of the block and puts its sites back.
func (t *blockStep) step(s *DenseAlgebra, batch []int) error {
	if !(s.Fresh && s.Dense) || s.overdue() {
		if err := s.Refresh(true); err != nil {
			return err
		}
	}
	s.Batched = false
	t.Distinct(batch, s.N)
	t.Gather(s)
	p := &t.prob
	t.mover.Reset(t.Cov, len(t.B))
	t.mover.again = true
	if err := p.Init(s.Terms, t.B, &t.mover, &t.Base); err != nil {
		return err
	}
	t.promise = p.Decrement()
	s.Progress.Add(t.promise, len(t.B), s.N)
	if t.promise < 1e-15 { // rounding would hide it
		s.Distance = 0
		return nil
	}
	for goal := math.Min(blockGoal, blockTol*t.promise); p.Decrement() > goal &&
		p.Evaluations < blockEvals; {
		if !p.Iterate() {
			break
		}
	}
	// The problem of the block treats the other terms as their sites. If the ELBO itself falls,
	// the step is shortened. If that does not help either, all sites step together: short of the
	// optimum, only rounding can keep such a step from raising the ELBO.
	for fraction := 1.0; fraction > 0.2; fraction /= 2 {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
		if t.putBack(s, fraction) {
			return nil
		}
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return err
	}
	if t.promise < 1e-9 { // rounding
		s.Distance = 0
		return nil
	}
	_, err := s.Ascend()
	return err
}

// putBack moves the sites of the block the given fraction of the way to the solution of its
// problem, with rank-m corrections of m, v and V. It returns true if the ELBO does not fall.
// Otherwise nothing changes.
func (t *blockStep) putBack(s *DenseAlgebra, fraction float64) bool {
	p, n, m := &t.prob, s.N, len(t.B)
	t.delta, t.u = dense.Resize(t.delta, m), dense.Resize(t.u, m)
	for a := range t.B {
		t.delta[a] = fraction * (p.Cur.Gamma[a] - t.Base.Gamma[a])
		t.u[a] = fraction * (p.Cur.C[a] - t.Base.A[a])
	}
	if !t.fac.Factor(t.Cov, m, t.delta) || t.fac.Strongest() > dense.StrongestSite {
		return false
	}
	next := &t.next
	next.Resize(n)
	copy(next.V, s.Cur.V)
	t.fac.ExpandVar(&t.exp, t.rows, n, next.V)
	t.fac.Solve(t.u)
	clear(next.M)
	dense.Gemv(blas.Trans, 1, dense.General(t.rows, m, n), dense.Vector(t.u), 0,
		dense.Vector(next.M))
	for i, d := range next.M {
		next.Gamma[i] = s.Cur.Gamma[i]
		next.A[i] = s.Cur.A[i] - s.Cur.Gamma[i]*d
		next.M[i] += s.Cur.M[i]
	}
	for a, i := range t.B {
		next.Gamma[i] += t.delta[a]
		next.A[i] += t.u[a]
	}
	strong := t.fac.Strong()
	if strong {
		// Within the block other formulas keep the digits.
		t.fac.Expand(&t.inner, t.Cov, m)
		t.v = dense.Resize(t.v, m*m)
		if !t.fac.Variances(t.v[:m], &t.inner) {
			return false
		}
		for a, i := range t.B {
			next.V[i] = t.v[a]
		}
	}
	for i, v := range next.V {
		if !(v >= dense.LeastShrink*s.Cur.V[i]) && !(strong && t.in[i]) {
			return false
		}
	}
	if s.Terms.Expect(next, nil, s.Workers) != nil {
		return false
	}
	logDet := s.LogDet + t.fac.LogDet
	before, after := s.Elbo(&s.Cur, s.LogDet), s.Elbo(next, logDet)
	if !(after >= before-ElboRounding*math.Abs(before)) {
		return false
	}
	if strong {
		t.fac.Covariance(t.v, &t.inner)
	}
	if s.Workers.Halt.Stopped() {
		return false
	}
	s.Distance = Distance(next, &s.Cur)
	s.Cur, t.next = t.next, s.Cur
	s.LogDet, s.Unresolved, s.Pg.Current = logDet, false, false
	t.strong = strong
	s.Later.Add(&t.exp)
	if s.overdue() {
		// If the crew halts catchUp, the step is complete nevertheless, and the next user of V
		// catches up.
		_ = s.catchUp()
	}
	s.drifted(&t.next)
	return true
}

// laterMost is the number of rows of delayed changes of V at which they are applied: three or
// four blocks together, if V has LaterTerms terms or more and is far larger than a second-level
// cache. With more rows, the rows of the next block take more products than the delay saves. With
// fewer terms, every delay costs more than it saves.
const (
	laterMost  = 3 * largeBlock
	LaterTerms = 1500
)

// laterRank returns the number of delayed rows for n terms.
func laterRank(n int) int {
	if n < LaterTerms {
		return 1
	}
	return laterMost
}

// overdue reports whether the delayed changes of V must be applied before the next block.
func (s *DenseAlgebra) overdue() bool {
	return s.Blocks.strong || s.Later.Begun() || s.Later.Rank() >= laterRank(s.N)
}

// catchUp applies the delayed changes to s.Cov.
func (s *DenseAlgebra) catchUp() error {
	t := &s.Blocks
	if !s.Later.Apply(s.Workers.Halt, s.Cov) {
		return s.Workers.Halt.Err()
	}
	if t.strong {
		for a, i := range t.B {
			for c, j := range t.B[:a+1] {
				s.Cov[i*s.N+j] = t.v[a*len(t.B)+c]
			}
		}
		t.strong = false
	}
	return nil
}

// drifted tracks the rounding error of V. If a variance shrinks or grows by some factor, its
// relative error grows by the same factor. When enough digits are lost, V is marked to be computed
// again from the sites.
func (s *DenseAlgebra) drifted(before *term.Marginals) {
	const most = 1e-9
	for i, v := range s.Cur.V {
		if v == 0 {
			continue // v is 0 in every state
		}
		s.rounding[i] = s.rounding[i]*math.Max(v/before.V[i], before.V[i]/v) + dense.Epsilon
		// A mean that was large has lost its last digits.
		lost := dense.Epsilon*math.Abs(before.M[i]) > most*math.Sqrt(v) &&
			math.Abs(before.M[i]) > 1e3*math.Abs(s.Cur.M[i])
		if lost || s.rounding[i] > most && s.rounding[i] > 1e3*s.roundingAnew(i) {
			s.Fresh, s.Dense, s.Pg.Current = false, false, false
		}
	}
}

// Distinct stores the distinct terms of batch in t.B, in increasing order.
func (t *blockStep) Distinct(batch []int, n int) {
	if t.in == nil {
		t.in = make([]bool, n)
	}
	clear(t.in)
	for _, i := range batch {
		t.in[i] = true
	}
	t.B = t.B[:0]
	for i, in := range t.in {
		if in {
			t.B = append(t.B, i)
		}
	}
}

// Gather copies the part of s that belongs to the block.
func (t *blockStep) Gather(s *DenseAlgebra) {
	m, n := len(t.B), s.N
	t.Cov, t.rows = dense.Resize(t.Cov, m*m), dense.Resize(t.rows, m*n)
	t.Base.Resize(m)
	s.Later.Rows(s.Workers.Halt, t.rows, s.Cov, n, t.B)
	for a, i := range t.B {
		row := t.rows[a*n : (a+1)*n]
		t.Base.Gamma[a], t.Base.A[a], t.Base.M[a], t.Base.V[a] = s.Cur.Gamma[i], s.Cur.A[i],
			s.Cur.M[i], row[i]
		for c, j := range t.B[:a+1] {
			t.Cov[a*m+c] = row[j]
		}
	}
	dense.FillUpper(t.Cov, m)
}
