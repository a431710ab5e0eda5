package site

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file fits GPs with a stored covariance K. DenseAlgebra takes three kinds of steps: block
// steps, steps of all terms by BaseAlgebra, and steps with a given β. It proves gap bounds and tracks
// the rounding of V. GP of the root package and DualAlgebra, at the end of this file, use it.

// DenseAlgebra is the approximation q(z) = N(m, V) of N variables with prior N(0, K) in site
// form,
//
//	V⁻¹ = K⁻¹ + diag(γ),   V⁻¹m = b,
//
// two numbers per term. It needs neither K⁻¹ nor jitter. A block step replaces the sites of its
// block by corrections of rank M, and never lowers the ELBO.
type DenseAlgebra struct {
	BaseAlgebra
	K     []float64 // K, full
	Cov   []float64
	Dense bool // Cov holds V (lower triangle)

	// Features takes the steps of all terms if K comes from few features and needs more digits
	// than float64 has. Otherwise it is nil.
	Features *WeightAlgebra
	linked   bool // Features is at the current state, if the state is fresh

	gap      DenseGap
	Blocks   blockStep
	mover    CovMover // mover of the problem of all terms
	Pg       densePaper
	Later    dense.Delayed // changes of V by blocks that Cov does not have yet
	rounding []float64     // estimated relative error of the diagonal of cov
	inverse  dense.Inverse // inverse for direct
}

// denseBase is the Base of a DenseAlgebra. It gives BaseAlgebra the fast methods of base.go.
type denseBase struct {
	*CovMover
	s *DenseAlgebra
}

var _ interface {
	Base
	holder
	spreader
	coverer
	factored
	blocker
	prover
	keeper
} = denseBase{}

// DenseMatrices is the largest number of N×N matrices of a model with this algebra, measured: K,
// V, a factor and its expansion, new versions of these before they replace the old ones, and the
// matrices of a posterior.
const DenseMatrices = 8

// NewDenseAlgebra returns the prior of t with covariance k, both triangles. The error names a
// term whose expectation fails under the prior.
func NewDenseAlgebra(t *term.Terms, k []float64, workers term.Crew) (*DenseAlgebra, error) {
	n := t.Len()
	s := &DenseAlgebra{K: k, rounding: make([]float64, n)}
	outer := t.Noise() == 0 && t.K <= 1 && t.Concave() && t.Lik.Bounded()
	if t.Noise() == 0 && !outer { // otherwise V is rarely needed
		s.holdPrior(workers.Halt)
	}
	if err := s.begin(t, denseBase{&s.mover, s}, workers); err != nil {
		return s, err
	}
	if outer {
		if s.Batch.Outer = s.determined(); s.Batch.Outer == 0 {
			s.holdPrior(workers.Halt)
		}
		s.mover.inverts = s.Batch.Outer > 0
	}
	return s, nil
}

// holdPrior sets V to the prior covariance.
func (s *DenseAlgebra) holdPrior(h *parallel.Halt) {
	n := len(s.rounding)
	s.Cov, s.Dense = make([]float64, n*n), true
	dense.Copy(h, s.Cov, s.K)
}

// A sample of the terms estimates how many dimensions all terms determine. It has one of
// sampledPart terms, but at least sampledLeast. If the terms of the sample determine
// mostDetermined of their own dimensions or more, a variable has almost no information apart from
// its own term. Blocks then find its mean and precision together, and outer steps took up to ten
// times as many passes as elsewhere, and more time than blocks.
const (
	sampledPart    = 8
	sampledLeast   = 64
	mostDetermined = 0.75
)

// determined estimates how many dimensions the sites determine, Σγv, by a sample of the terms
// under the prior. It returns 0 if that number is too large for outer steps.
func (s *DenseAlgebra) determined() int {
	m := min(s.N, max(sampledLeast, s.N/sampledPart))
	k, gamma, v := make([]float64, m*m), make([]float64, m), make([]float64, m)
	for a := range m {
		i := a * s.N / m
		gamma[a] = max(0, s.Cur.Tg[i]) * float64(s.N) / float64(m)
		for b := range a + 1 {
			k[a*m+b] = s.K[i*s.N+b*s.N/m]
		}
	}
	f, inverse := dense.SiteFactor{Halt: s.Workers.Halt}, dense.Inverse{}
	if !f.Factor(k, m, gamma) {
		return 0
	}
	inverse.Variances(&f, v)
	dims := floats.Dot(gamma, v)
	if !(dims < mostDetermined*float64(m)) {
		return 0
	}
	return max(1, int(dims))
}

// denseBlock is about the number of terms in a block step. The product that replaces the sites of
// a block costs O(denseBlock N²), and smaller blocks take more passes. From largeTerms terms V
// does not fit into a second-level cache, and products of that rank wait for memory. Blocks then
// have largeBlock terms, four columns of tiles.
const (
	denseBlock = 32
	largeBlock = 48
	largeTerms = 512
)

// plan implements blocker: outer steps of all terms if these pay, one step of all terms under
// Gaussian noise, and otherwise block steps of the terms with the largest predicted gain.
func (b denseBase) plan() sitePlan {
	s := b.s
	if s.Features != nil || s.Terms.Noise() > 0 || s.Batch.Outer > 0 {
		return sitePlan{}
	}
	size := denseBlock
	if s.N >= largeTerms {
		size = largeBlock
	}
	blocks := (s.N + size - 1) / size
	return sitePlan{Batch: (s.N + blocks - 1) / blocks, Sampler: promising{&s.BaseAlgebra}}
}

// use implements keeper.
func (b denseBase) use(c term.Crew) {
	s := b.s
	s.Blocks.prob.Workers = c
	for _, f := range [...]*dense.SiteFactor{&s.Pg.fac, &s.Pg.next, &s.mover.Fac, &s.Blocks.fac,
		&s.Blocks.mover.Fac, &s.gap.fac} {
		f.Halt = c.Halt
	}
	if s.Features != nil {
		s.Features.Use(c)
	}
}

// restart implements keeper.
func (b denseBase) restart() {
	b.s.mover.Reset(b.s.K, b.s.N)
	b.s.dropFactor()
}

// dropFactor frees the factor of the current sites and its expansion if outer steps follow, because
// these have a factor of their own.
func (s *DenseAlgebra) dropFactor() {
	if p := &s.Pg; s.Batch.Outer > 0 && !s.free {
		p.fac, p.exp, p.Current = dense.SiteFactor{Halt: p.fac.Halt}, dense.Expansion{}, false
	}
}

// start implements keeper.
func (b denseBase) start() {}

// follow implements keeper.
func (b denseBase) follow() float64 { return math.NaN() }

// stale implements keeper.
func (b denseBase) stale() {
	b.s.Dense, b.s.Pg.Current = false, false
	b.s.dropFactor()
}

// settled implements keeper.
func (b denseBase) settled() bool {
	s := b.s
	return s.Dense && s.Later.Rank() == 0 || !s.Dense && (s.atTargets() || s.outside())
}

// link moves Features to the state of s.
func (s *DenseAlgebra) link() {
	w := s.Features
	if s.linked && s.Fresh {
		return
	}
	for i, g := range s.Cur.Gamma {
		w.Gamma[i], w.A[i], w.Eta[i] = g, s.Cur.A[i], s.Cur.M[i]
	}
	w.Fresh, w.Batched, w.Free, w.Started, w.Proof = false, false, false, false, Proof{}
}

// lead moves s to the state of Features.
func (s *DenseAlgebra) lead() {
	s.follow(&s.Features.Batch.Cur)
	s.linked = true
	s.free, s.Batched, s.Proof = false, false, Proof{}
}

// Evaluate implements Algebra. The gap is the predicted gain of the problem linearized at the
// current state, ½δᵀFδ, where δ is the distance of the sites from their targets and F the Fisher
// information of q. With c = δ_b − δ_γ m it is
//
//	½cᵀVc + ¼ Σ_ij δ_γi V_ij² δ_γj.
func (s *DenseAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	if s.Features == nil || s.free {
		return s.BaseAlgebra.Evaluate(within)
	}
	s.link()
	e, err := s.Features.Evaluate(within)
	if err == nil {
		s.lead()
	}
	return e, err
}

// ready implements prover.
func (b denseBase) ready() (bool, error) {
	if b.s.atTargets() || b.s.outside() { // V is not needed yet
		return true, nil
	}
	err := b.s.Refresh(true)
	return err == nil, b.s.Workers.Halt.Err()
}

// decrement implements prover.
func (b denseBase) decrement() float64 {
	if b.s.outside() {
		return (*moveProof)(&b.s.BaseAlgebra).decrement()
	}
	return b.s.decrement()
}

// outside reports whether the current state comes from an outer step, which does not compute V.
func (s *DenseAlgebra) outside() bool {
	return !s.Dense && s.Batch.Outer > 0 && s.Fresh && s.Batched && !s.free
}

// proveMoved is prove after an outer step, without V. It returns false if that is not enough,
// because rounding of K matters, or because almost no gain is left and K is too wide to show it.
func (s *DenseAlgebra) proveMoved(within float64) (p Proof, ok bool, err error) {
	m, g := (*moveProof)(&s.BaseAlgebra), &s.gap
	if m.meanStep(); s.Workers.Halt.Stopped() {
		return p, false, s.Workers.Halt.Err()
	}
	c, left := &s.Cur, m.decrement()
	goal := goals.Of(within, s.N, s.Elbo(c, s.LogDet))
	p = Proof{made: true, rounding: s.roundingDirect()}
	if !c.Certain || p.rounding > max(roundingGoal*goal, roundingGap*left) {
		return p, false, s.Workers.Halt.Err()
	}
	p.bound = m.bound(g.Mean(s.K, c), goal, func() float64 {
		g.dg = dense.Resize(g.dg, s.N)
		floats.SubTo(g.dg, c.Tg, c.Gamma)
		return g.Exact(s.K, c, s.LogDet)
	})
	return p, p.bound <= goal || left > goal, s.Workers.Halt.Err()
}

// prove implements prover.
func (b denseBase) prove(within float64) (Proof, error) {
	s := b.s
	if !s.Dense {
		if s.outside() {
			if p, ok, err := s.proveMoved(within); ok || err != nil {
				return p, err
			}
		} else if p, ok := s.proveDirect(within); ok {
			return p, nil
		}
		if err := s.Refresh(true); err != nil {
			return Proof{}, err
		}
	}
	rounding, moved, err := s.settle(within)
	if err != nil {
		return Proof{}, err
	}
	bound, err := s.Prove(!s.free && !s.Batched, goals.Of(within, s.N, s.Elbo(&s.Cur, s.LogDet)))
	if err != nil && moved {
		s.Cur, s.gap.before = s.gap.before, s.Cur
	}
	return Proof{made: true, bound: goals.Bound(bound), rounding: rounding + s.gap.apart}, err
}

// Rounding is examined if it may reach these fractions of the goal, and of the gap.
const (
	roundingGoal = 0.1
	roundingGap  = 0.01
)

// beyondDrift is a factor of ½aᵀh, with h = m − Ka, that stands for the term ½hᵀK⁻¹h if K has no
// digits for it. The term was at most 4% of ½aᵀh.
const beyondDrift = 1.25

// settle restores m = Ka, as reconcile does, and estimates the remaining effect of rounding on
// the ELBO.
//
// Corrections of low rank accumulate the rounding of their largest numbers. If K is nearly
// singular, a is large, and the ELBO then shows the difference between m and Ka, by (d1 − ½a)ᵀ(m
// − Ka). It also shows the rounding of K itself, by half of Σ_ij (aaᵀ − Γ + ΓVΓ)_ij δK_ij.
//
// m and a stay after a step with a given β, because a gap of that size does not matter there.
// They also stay if a cannot have as many digits as the mean, for example under a prior that is
// far wider than the noise. Their difference then only shows in ½aᵀm. If they move, s.gap.before
// keeps the state before.
func (s *DenseAlgebra) settle(within float64) (rounding float64, moved bool, err error) {
	n, c, g := s.N, &s.Cur, &s.gap
	var size, slope float64
	for i, a := range c.A {
		k, d := s.K[i*n+i], math.Abs(a)+math.Abs(c.D1[i]-0.5*a)
		size += a * a * k
		slope += d * d * k
	}
	rounding = dense.Epsilon * (math.Sqrt(float64(n)*size*slope) + term.Size(s.K, c.Gamma))
	goal := goals.Of(within, n, s.Elbo(c, s.LogDet))
	seen := max(rounding, s.roughDrift(c))
	g.rounds = seen > roundingGoal*goal && seen > roundingGap*s.decrement()
	if !g.rounds {
		return rounding, false, nil
	}
	g.h = dense.Resize(g.h, n)
	if !dense.Residual(s.Workers.Halt, g.h, c.M, s.K, c.A) {
		return 0, false, s.Workers.Halt.Err()
	}
	var square float64
	for i, a := range c.A {
		r := c.Gamma[i]
		for j, v := range s.Cov[i*n : i*n+i] {
			x := (a*c.A[j] + r*v*c.Gamma[j]) * s.K[i*n+j]
			square += 4 * x * x // K is symmetric, and so is δK
		}
		// The conversion rounds the product. Otherwise a fused multiply-add would leave the
		// rounding of V in the difference.
		x := (a*a - r*(1-float64(r*s.Cov[i*n+i]))) * s.K[i*n+i]
		square += x * x
	}
	rounding = dense.Epsilon * math.Sqrt(square)
	drift, rise := c.Between(g.h)
	if !(rise < drift) {
		drift = beyondDrift * 0.5 * math.Abs(floats.Dot(g.h, c.A))
	}
	if s.free || s.Batched {
		return rounding + drift, false, nil
	}
	next := &g.before
	next.CopyFrom(c)
	if !s.reconcile(next) {
		return 0, false, s.Workers.Halt.Err()
	}
	if s.Terms.Expect(next, nil, s.Workers) != nil {
		return rounding + drift, false, s.Workers.Halt.Err()
	}
	left := s.drift(next)
	if err := s.Workers.Halt.Err(); err != nil || !(left < drift) {
		return rounding + drift, false, err
	}
	s.Cur, *next = *next, s.Cur
	return rounding + left, true, nil
}

// reconciled is how often m and a are reconciled. Each time leaves a part of their difference
// that was observed to be between 1e-6 and a fifth.
const reconciled = 3

// reconcile moves m and a of x to a common mean, m = Ka, where x has the sites and V of s and its
// m and a differ by r = m − Ka. Off its diagonal V has only the digits of K, and few are left
// next to a strong site. With a + γ∘m fixed, m moves by V(γ∘r) − r, and a by −γ times that. It
// returns false if the crew has stopped.
func (s *DenseAlgebra) reconcile(x *term.Marginals) bool {
	g, n := &s.gap, s.N
	g.r, g.s = dense.Resize(g.r, n), dense.Resize(g.s, n)
	for range reconciled {
		if !dense.Residual(s.Workers.Halt, g.r, x.M, s.K, x.A) {
			return false
		}
		floats.MulTo(g.s, x.Gamma, g.r)
		dense.Symv(-1, dense.Symmetric(s.Cov, n), dense.Vector(g.s), 1, dense.Vector(g.r))
		for i, r := range g.r {
			x.M[i] -= r
			x.A[i] += x.Gamma[i] * r
		}
	}
	return true
}

// drift estimates, to second order, how far the ELBO of x is from the ELBO of the mean Ka.
func (s *DenseAlgebra) drift(x *term.Marginals) (nats float64) {
	g := &s.gap
	g.r = dense.Resize(g.r, s.N)
	dense.Residual(s.Workers.Halt, g.r, x.M, s.K, x.A)
	first, rise := x.Between(g.r)
	return first + rise
}

// roughDrift returns drift for a residual in float64, so the result includes the rounding of Ka.
// It costs one product with K. It is needed because sites that are far stronger than the prior
// multiply the rounding of m by their strength. The product is part of a, and Ka adds it up.
func (s *DenseAlgebra) roughDrift(x *term.Marginals) (nats float64) {
	g := &s.gap
	g.r = dense.Resize(g.r, s.N)
	copy(g.r, x.M)
	dense.Symv(-1, dense.Symmetric(s.K, s.N), dense.Vector(x.A), 1, dense.Vector(g.r))
	first, rise := x.Between(g.r)
	return first + rise
}

// Prior implements Base.
func (b denseBase) Prior() (p term.Marginals) {
	s := b.s
	p.Resize(s.N)
	clear(p.Gamma)
	clear(p.A)
	clear(p.M)
	for i := range p.V {
		p.V[i] = s.K[i*s.N+i]
	}
	return p
}

// decrement returns ½δᵀFδ; see Evaluate. Without V it returns a bound, because the sites are then
// at their targets.
func (s *DenseAlgebra) decrement() float64 {
	n, g := s.N, &s.gap
	if !s.Dense {
		return g.Mean(s.K, &s.Cur)
	}
	g.c, g.h, g.dg = dense.Resize(g.c, n), dense.Resize(g.h, n), dense.Resize(g.dg, n)
	floats.SubTo(g.c, s.Cur.A, s.Cur.D1)
	floats.SubTo(g.dg, s.Cur.Tg, s.Cur.Gamma)
	dense.Symv(1, dense.Symmetric(s.Cov, n), dense.Vector(g.c), 0, dense.Vector(g.h))
	square, _ := g.weightedSquares(s.Cov, g.dg)
	var mean, precision float64 // bounds on the rounding of the two parts
	for i, r := range s.rounding {
		v := math.Abs(s.Cov[i*n+i])
		mean += math.Abs(g.c[i]) * math.Sqrt(r*v)
		precision += math.Abs(g.dg[i]) * v * math.Sqrt(r)
	}
	return math.Max(0.5*floats.Dot(g.c, g.h)+0.25*square, 0.5*mean*mean+0.25*precision*precision)
}

// Refresh computes the marginals and expectations of the sites. If whole is set, it also computes
// V.
func (s *DenseAlgebra) Refresh(whole bool) error {
	if err := s.BaseAlgebra.Refresh(); err != nil || !whole {
		return err
	}
	if s.Dense {
		return s.catchUp()
	}
	p := &s.Pg
	if err := s.factor(); err != nil {
		return err
	}
	s.Later.Reset()
	s.Blocks.strong = false
	s.Cov = dense.Resize(s.Cov, s.N*s.N)
	p.fac.Covariance(s.Cov, &p.exp)
	if err := s.Workers.Halt.Err(); err != nil {
		p.Current = false
		return err
	}
	s.Dense = true
	for i := range s.rounding {
		s.rounding[i] = s.roundingAnew(i)
	}
	return nil
}

// Peek is Refresh(false) for callers that must not change s. They call back afterward.
func (s *DenseAlgebra) Peek() (back func(), err error) {
	fresh, unresolved, factored := s.Fresh, s.Unresolved, s.Pg.Current
	err = s.Refresh(false)
	return func() { s.Fresh, s.Unresolved, s.Pg.Current = fresh, unresolved, factored }, err
}

// factor computes and expands the factor p.fac of the sites. If the step of all terms that led to
// the sites has a factor, it is reused.
func (s *DenseAlgebra) factor() error {
	p, m := &s.Pg, &s.mover
	if !p.Current && m.Current && slices.Equal(m.cur, s.Cur.Gamma) {
		p.fac, m.Fac, p.exp, m.exp = m.Fac, p.fac, m.exp, p.exp
		p.Current, m.Current = true, false
		if m.expanded {
			return s.Workers.Halt.Err()
		}
	}
	if !p.Current {
		p.Current = p.fac.Factor(s.K, s.N, s.Cur.Gamma)
	}
	if p.Current {
		p.fac.Expand(&p.exp, s.K, s.N)
	}
	if err := s.Workers.Halt.Err(); err != nil {
		p.Current = false
		return err
	}
	if !p.Current {
		return fmt.Errorf("posterior covariance: %w", sentinel.ErrNotPosDef)
	}
	return nil
}

// renew implements factored.
func (b denseBase) renew(c *term.Marginals) (logDet float64, resolved bool, err error) {
	s, p := b.s, &b.s.Pg
	if err := s.factor(); err != nil {
		return 0, false, err
	}
	resolved = p.fac.Variances(c.V, &p.exp)
	for i, v := range c.V {
		c.V[i] = s.boundVariance(i, v)
	}
	return p.fac.LogDet, resolved, s.Workers.Halt.Err()
}

// boundVariance returns the variance v of term i, or an upper bound on the variance if rounding
// left no digit of v.
func (s *DenseAlgebra) boundVariance(i int, v float64) float64 {
	if v > 0 {
		return v
	}
	return math.Min(dense.Epsilon*s.K[i*s.N+i], 1/math.Abs(s.Cur.Gamma[i]))
}

// Ascend implements Algebra.
func (s *DenseAlgebra) Ascend() (passes int, err error) {
	if s.Features == nil {
		if ok, err := s.direct(); ok || err != nil {
			s.free, s.Proof = s.free && !ok, Proof{}
			return 1, err
		}
		return s.BaseAlgebra.Ascend()
	}
	s.free, s.Proof = false, Proof{}
	s.link()
	if passes, err = s.Features.Ascend(); err == nil {
		s.lead()
	}
	return passes, err
}

// ElboRounding is the relative change of the ELBO that may be rounding.
const ElboRounding = 1e-13

// roundingAnew estimates the relative error of a variance computed from the sites.
func (s *DenseAlgebra) roundingAnew(i int) float64 {
	k := s.K[i*s.N+i]
	if k == 0 || s.Cur.Gamma[i]*k > dense.StrongSite {
		return dense.Epsilon
	}
	return dense.Epsilon * k / s.Cur.V[i]
}

// The inner problem of a block is solved until its predicted decrease is blockTol of its first
// value or blockGoal nats, whichever is less, in at most blockEvals evaluations.
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
		// If the crew halts it, the step is done anyway, and the next user of V catches up.
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

// drifted tracks the rounding of V. If a variance shrinks or grows by some factor, its relative
// error grows by the same factor. When enough digits are lost, V is marked to be computed again
// from the sites.
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

// densePaper is the workspace of a step with a given β.
type densePaper struct {
	fac, next dense.SiteFactor
	Current   bool // fac belongs to the sites of the state
	exp       dense.Expansion
	rows      []float64
}

// variances implements factored.
func (b denseBase) variances(v []float64, batch []int) bool {
	s, t := b.s, &b.s.Pg
	if !t.Current { // V must be computed again
		return false
	}
	n, m := s.N, len(v)
	t.rows = dense.Resize(t.rows, n*m)
	for a := range m {
		i := dense.Index(batch, a)
		v[a] = s.K[i*n+i]
		for j, kij := range s.K[i*n : (i+1)*n] {
			t.rows[j*m+a] = kij
		}
	}
	t.fac.Expand(&t.exp, t.rows, m)
	t.exp.SubVar(v)
	for a, x := range v {
		v[a] = s.boundVariance(dense.Index(batch, a), x)
	}
	return true
}

// appendix implements factored. It stores a₊ = K⁻¹m₊ and m₊ of the appendix. On entry γ is rΓ,
// and (1−r)K⁻¹ + rV⁻¹ = K⁻¹ + rΓ, so
//
//	a₊ = a − (1−r)(I + rΓK)⁻¹(a + α̂).
func (b denseBase) appendix(x *term.Estimates, batch []int, m PaperMove) error {
	s := b.s
	f, t, n := &s.Pg.next, &s.to, s.N
	if !f.Factor(s.K, n, t.gamma) {
		return fmt.Errorf("metric of the mean update: %w", sentinel.ErrNotPosDef)
	}
	copy(t.a, s.Cur.A)
	for i, a := range t.a {
		t.w[i] = (1 - m.R) * a
	}
	for i := range x.M {
		t.w[dense.Index(batch, i)] -= m.Scale * x.D1[i]
	}
	f.Solve(t.w)
	floats.Sub(t.a, t.w)
	dense.Symv(1, dense.Symmetric(s.K, n), dense.Vector(t.a), 0, dense.Vector(t.mean))
	return nil
}

// try implements factored. A pivot is the part of the precision of a variable that its site
// leaves.
func (b denseBase) try(gamma []float64, noisy bool) (valid, edge bool) {
	s, t := b.s, &b.s.Pg
	if !t.next.Factor(s.K, s.N, gamma) {
		return false, false
	}
	if !noisy {
		return true, false
	}
	if !t.Current {
		t.Current = t.fac.Factor(s.K, s.N, s.Cur.Gamma)
	}
	return true, t.next.LeastPivot() < min(noisyPivot, t.fac.LeastPivot())
}

// solve implements factored.
func (b denseBase) solve(a, mean []float64) {
	b.s.Pg.next.Solve(a)
	dense.Symv(1, dense.Symmetric(b.s.K, b.s.N), dense.Vector(a), 0, dense.Vector(mean))
}

// taken implements factored.
func (b denseBase) taken() (logDet float64) {
	t := &b.s.Pg
	t.fac, t.next, t.Current = t.next, t.fac, true
	return t.fac.LogDet
}

// DualAlgebra is the Algebra of a linear model with at least as many weights as rows. It is a
// Gaussian process of the linear predictors with covariance K = XΛ0⁻¹Xᵀ. Its sites are the sites
// of the rows.
type DualAlgebra struct {
	*DenseAlgebra
	lin *LinearModel
}

// Evaluate implements Algebra. If B = I + Γ^½KΓ^½ leaves the rows too few digits, the gap
// includes the rounding of K. Rounding of the relative size ε in K changes log|B| by at most ε Σ
// γ_n K_nn, because no eigenvalue of B is below 1.
func (s *DualAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.DenseAlgebra.Evaluate(within)
	if err != nil {
		return e, err
	}
	ok := Conditioned(s.Workers.Halt, s.K, s.Cur.Gamma, gauss.LeastPivot)
	if err := s.Workers.Halt.Err(); err != nil {
		return siteEvaluation{}, err
	}
	if !ok {
		rounding := dense.Epsilon * term.Size(s.K, s.Cur.Gamma)
		e.Gap = math.Max(e.Gap, rounding)
		e.ELBOErr += rounding
	}
	return e, nil
}

// DualPivot is the least part of B that may be left if the dual is chosen. The weights do better
// below it, because their units do not matter.
const DualPivot = 1e-6

// Conditioned reports whether every pivot of B = I + Γ^½KΓ^½ is at least the part least of its
// diagonal element. The eigenvalues of B are at least 1. The result is invalid if h has stopped.
func Conditioned(h *parallel.Halt, k, gamma []float64, least float64) bool {
	if term.Size(k, gamma)*least <= 1 {
		return true
	}
	f := dense.SiteFactor{Halt: h}
	return f.Factor(k, len(gamma), gamma) && f.LeastPart() >= least
}

// NewDualAlgebra returns the prior of l, whose rows have the prior covariance k.
func NewDualAlgebra(l *LinearModel, k []float64, workers term.Crew) (*DualAlgebra, error) {
	s, err := NewDenseAlgebra(l.Terms, k, workers)
	if err != nil {
		return nil, err
	}
	return &DualAlgebra{DenseAlgebra: s, lin: l}, nil
}

// Precisions estimates for each row the largest γ that it may reach under the prior covariance k.
// That is the greatest of the γ of the row alone and the curvatures of its likelihood at linear
// predictors near 0, with and without its offset, because other rows may hold it there. For a
// likelihood with real responses the curvature at the response also counts.
func (l *LinearModel) Precisions(h *parallel.Halt, k []float64) []float64 {
	n := l.X.Rows
	gamma := make([]float64, n)
	onLine := l.Terms.Lik.Real()
	for i := range gamma {
		v := k[i*n+i]
		if v == 0 || h.Stopped() {
			continue
		}
		g, _, _ := l.Terms.Solve(i, 0, v, 0, v)
		gamma[i] = math.Abs(g)
		y, o, _, _ := l.Terms.Term(i)
		at := [...]float64{0, -o, 0}
		if onLine {
			at[2] = y - o
		}
		for _, m := range at {
			if d2 := math.Abs(l.Terms.Expectation(i, m, math.Min(v, 1)).D2); !math.IsInf(d2, 0) {
				gamma[i] = max(gamma[i], d2)
			}
		}
	}
	return gamma
}

// PrimalWeights is the largest number of weights for which Weights computes the posterior in the
// weights instead of the dual.
const PrimalWeights = 2000

// Weights implements Weighted.
func (s *DualAlgebra) Weights() ([]float64, gauss.Cov, error) {
	back, err := s.Peek()
	defer back()
	if err != nil {
		return nil, nil, err
	}
	n, d := s.N, len(s.lin.Names)
	if d <= PrimalWeights {
		if mean, cov, err := s.lin.primal(s.Cur.Gamma, s.Cur.A, s.Cur.M,
			s.Workers.Halt); err == nil {
			return mean, cov, nil
		}
	}
	gamma := append([]float64(nil), s.Cur.Gamma...)
	cov := &gauss.Dual{X: s.lin.X, Gamma: gamma, Prior: &s.lin.Prior, Fac: new(dense.SiteFactor)}
	h, mean, b := make([]float64, d), make([]float64, d), potentials(gamma, s.Cur.A, s.Cur.M)
	cov.Fac.Halt = s.Workers.Halt
	ok := cov.Fac.Factor(s.K, n, gamma)
	cov.Fac.Halt = nil
	if err := s.Workers.Halt.Err(); err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("pgsvi: posterior covariance: %w", sentinel.ErrNotPosDef)
	}
	cov.Fac.Solve(b) // K⁻¹ times the linear predictors
	cov.Fac.C = nil  // K is no longer needed
	s.lin.X.AddMulT(h, b, nil)
	s.lin.Prior.Solve(mean, h)
	return mean, cov, nil
}

// Start sets q to the sites γ and the mean m = Ka.
func (s *DenseAlgebra) Start(gamma, a []float64) {
	copy(s.Cur.Gamma, gamma)
	copy(s.Cur.A, a)
	dense.Symv(1, dense.Symmetric(s.K, s.N), dense.Vector(a), 0, dense.Vector(s.Cur.M))
	s.Fresh, s.free, s.Batched, s.Proof = false, false, false, Proof{}
	s.stale()
}

// save implements keeper.
func (b denseBase) save(c *save.Coder) {
	s := b.s
	c.Bool(&s.Dense, &s.Pg.Current)
	c.Floats(s.N, &s.rounding)
	if s.Dense {
		if !c.Reading() && s.overdue() {
			c.Fail(s.catchUp())
		}
		s.Cov = dense.Resize(s.Cov, s.N*s.N)
		c.Lower(s.N, s.Cov)
		s.stateLater(c)
	} else if c.Reading() {
		s.Later.Reset()
	}
	if c.Bool(&s.linked); s.Features != nil && s.linked {
		s.Features.State(c)
	}
	if c.Reading() && s.Pg.Current {
		c.Check(s.Pg.fac.Factor(s.K, s.N, s.Cur.Gamma),
			"its sites do not leave a positive definite covariance")
	}
}

// resume implements keeper. The changes Δ of the mover are relative to the prior, so they equal γ.
func (b denseBase) resume(gamma []float64) { copy(b.s.mover.cur, gamma) }

// stateLater writes or reads the delayed changes of V. Strong changes are never delayed.
func (s *DenseAlgebra) stateLater(c *save.Coder) {
	if c.Reading() {
		s.Later.Reset()
	}
	for _, x := range s.Later.Parts(s.N) {
		rows := len(*x) / max(1, s.N)
		c.Int(&rows)
		c.Check(0 <= rows && rows < laterRank(s.N), "%d rows of changes of its covariance", rows)
		if c.Err() == nil && rows > 0 {
			c.Floats(rows*s.N, x)
		}
	}
}

// Constant implements Algebra.
func (s *DenseAlgebra) Constant() bool {
	if s.Features != nil && !s.free {
		return s.Fresh && s.linked && s.Features.Constant()
	}
	return s.BaseAlgebra.Constant()
}

// DenseGap is the workspace of the gap bound of a DenseAlgebra.
type DenseGap struct {
	c, h, dg []float64
	r, s     []float64 // for reconcile
	prior    []float64 // the diagonal of K
	next     term.Marginals
	before   term.Marginals // the state before settle
	rounds   bool           // the rounding of m − Ka may matter; see settle
	apart    float64        // drift of the state of Prove
	squares  []float64      // for weightedSquares
	fac      dense.SiteFactor
}

// Mean returns ½cᵀKc at s, and leaves c = K⁻¹m − ∂E/∂m in g.c.
func (g *DenseGap) Mean(k []float64, s *term.Marginals) float64 {
	n := len(s.M)
	g.c, g.h = dense.Resize(g.c, n), dense.Resize(g.h, n)
	floats.SubTo(g.c, s.A, s.D1)
	dense.Symv(1, dense.Symmetric(k, n), dense.Vector(g.c), 0, dense.Vector(g.h))
	return 0.5 * floats.Dot(g.c, g.h)
}

// A bound on tr Δ − log|I + Δ| is loose if it exceeds loosePrecision times ½‖Δ‖²_F, the value
// that it tends to. The exact value needs a factor of P + Γ̂. That pays if ‖Δ‖²_F is between
// leastLoose and mostLoose, which holds for a pass or two of a run.
const (
	loosePrecision = 1.02
	leastLoose     = 1e-3
	mostLoose      = 2
)

// Precision returns a bound on tr Δ − log|I + Δ| at s, with ‖Δ‖²_F = Σ_ij δ_i V_ij² δ_j for δ =
// γ̂ − γ. It reports whether the bound is so loose that Exact pays.
func (g *DenseGap) Precision(cov []float64, s *term.Marginals) (bound float64, loose bool) {
	n := len(s.M)
	g.dg = dense.Resize(g.dg, n)
	floats.SubTo(g.dg, s.Tg, s.Gamma)
	square, negative := g.weightedSquares(cov, g.dg)
	bound = term.PrecisionGap(square, negative, s.Gamma, s.Tg)
	return bound, bound > loosePrecision*0.5*square && square > leastLoose && square < mostLoose
}

// Exact returns tr Δ − log|I + Δ| at the s of the last call of Precision, with logDet =
// log|K|/|V|. The result includes its rounding.
func (g *DenseGap) Exact(k []float64, s *term.Marginals, logDet float64) float64 {
	if !g.fac.Factor(k, len(s.M), s.Tg) {
		return math.Inf(1)
	}
	return max(0, floats.Dot(g.dg, s.V)+logDet-g.fac.LogDet) + dense.Epsilon*term.Size(k, s.Tg)
}

// weightedSquares returns Σ_ij w_i V_ij² w_j, and the same sum over the negative w alone. The
// lower triangle of v is V.
func (g *DenseGap) weightedSquares(v, w []float64) (all, negative float64) {
	n := len(w)
	g.squares = dense.Resize(g.squares, 2*n)
	if workers := g.fac.Halt.Workers(); workers > 1 && n*n >= sharedSquares {
		parallel.For(n, squaredRows, workers, func(_, lo, hi int) { g.rowSquares(v, w, lo, hi) })
	} else {
		g.rowSquares(v, w, 0, n)
	}
	for i := range w {
		all += g.squares[2*i]
		negative += g.squares[2*i+1]
	}
	return math.Max(0, all), math.Max(0, negative)
}

// Goroutines share the squares of V in parts of squaredRows rows, if V has at least sharedSquares
// numbers, which take about 200 µs.
const (
	squaredRows   = 48
	sharedSquares = 1 << 18
)

// rowSquares stores the parts of rows lo … hi−1 of weightedSquares in g.squares.
func (g *DenseGap) rowSquares(v, w []float64, lo, hi int) {
	n := len(w)
	for i := lo; i < hi; i++ {
		wi := w[i]
		var s, below float64
		for j, vij := range v[i*n : i*n+i] {
			x := w[j] * vij * vij
			s += x
			below += min(x, 0)
		}
		own := wi * v[i*n+i] * v[i*n+i]
		g.squares[2*i], g.squares[2*i+1] = wi*(2*s+own), 0
		if wi < 0 {
			g.squares[2*i+1] = wi * (2*below + own)
		}
	}
}

// meanHalvings is how often the step of the mean is halved until the ELBO does not fall. No
// halving is needed within a step or two of the optimum, and elsewhere a proof can wait.
const meanHalvings = 4

// Prove returns a gap bound of the current state, whose V must be known. If keep is set, the step
// of the mean becomes the current state. Steps of all terms do not set it, because they mix
// earlier states and would not gain. If the bound exceeds the goal, it is refined by rows. The
// error comes from the crew and leaves the state unchanged.
func (s *DenseAlgebra) Prove(keep bool, goal float64) (float64, error) {
	g := &s.gap
	g.apart = 0
	if !s.Terms.Concave() || !s.Cur.Certain {
		return math.Inf(1), nil
	}
	precision, _ := g.Precision(s.Cov, &s.Cur) // for the present V, at the last state
	bound := precision + g.Mean(s.K, &s.Cur)
	dense.Symv(1, dense.Symmetric(s.Cov, s.N), dense.Vector(g.c), 0, dense.Vector(g.h))
	before, next := s.Elbo(&s.Cur, s.LogDet), &g.next
	next.Resize(s.N)
	copy(next.V, s.Cur.V)
	copy(next.Gamma, s.Cur.Gamma)
	t, moved := 1.0, false
	for range meanHalvings {
		for i, h := range g.h {
			next.M[i] = s.Cur.M[i] - t*h
			next.A[i] = s.Cur.A[i] - t*(g.c[i]-s.Cur.Gamma[i]*h)
		}
		if g.rounds && !s.reconcile(next) {
			return 0, s.Workers.Halt.Err()
		}
		if s.Terms.Expect(next, nil, s.Workers) == nil {
			gain, off, there := s.Elbo(next, s.LogDet)-before, 0.0, math.Inf(1)
			if g.rounds {
				off = s.drift(next)
			} else if x := s.roughDrift(next); x > max(roundingGoal*goal, roundingGap*precision) {
				g.rounds = true // repeat the step
				continue
			}
			if gain >= 0 {
				if next.Certain {
					var loose bool
					there, loose = g.Precision(s.Cov, next)
					exact := there
					if loose {
						exact = min(exact, g.Exact(s.K, next, s.LogDet))
					}
					bound = min(bound, gain+off+g.Mean(s.K, next)+exact)
				}
				if moved = keep && gain > off; moved {
					precision = there
					bound, g.apart = bound-gain+off, off
				}
				break
			}
		}
		if err := s.Workers.Halt.Err(); err != nil {
			return 0, err
		}
		t /= 2
	}
	last := &s.Cur
	if moved {
		last = next
	}
	if bound > max(goal, 2*precision) && last.Certain {
		bound = min(bound, s.rowsGap(last, goal-2*precision)+2*precision)
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return 0, err
	}
	if moved {
		s.Cur, *next = *next, s.Cur
	}
	return bound, nil
}

// rowsGap returns the bound on the gap of c by its rows, V held. It replaces the bound of the
// mean, and doubles the bound of V. It helps if K is large and sites are strong, because the
// bound of the mean is then K times the squared rounding of ∂E/∂m.
func (s *DenseAlgebra) rowsGap(c *term.Marginals, goal float64) float64 {
	g, n := &s.gap, s.N
	g.h, g.prior = dense.Resize(g.h, n), dense.Resize(g.prior, n)
	dense.Residual(s.Workers.Halt, g.h, c.M, s.K, c.A)
	for i := range g.prior {
		g.prior[i] = s.K[i*n+i]
	}
	return s.Terms.RowGap(c, s.Elbo(c, s.LogDet), g.prior, g.h, goal, s.Workers.Halt)
}

// Swap replaces the state by x, whose log determinant is logDet, and stores the previous state in
// x. The caller has computed x, with its expectations, from sites that were reached without a
// step of this algebra. V and the proof then follow from the new sites when they are needed.
func (s *DenseAlgebra) Swap(x *term.Marginals, logDet float64) {
	s.Distance = Distance(x, &s.Cur)
	s.Cur, *x = *x, s.Cur
	s.LogDet = logDet
	s.Fresh, s.Dense, s.Batched, s.Unresolved, s.Pg.Current, s.Proof = true, false, false, false,
		false, Proof{}
}
