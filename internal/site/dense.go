package site

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits GPs with a stored covariance K. DenseAlgebra takes three kinds of steps: block
// steps (dense_block.go), steps of all terms by BaseAlgebra, and steps with a given β
// (dense_paper.go). It proves gap bounds (dense_gap.go) and tracks the rounding of V. GP of the root
// package and DualAlgebra (dual.go) use it.

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

// A sample of the terms estimates how many dimensions all terms determine. It has one in
// sampledPart terms, but at least sampledLeast terms. If the terms of the sample determine at least
// the fraction mostDetermined of their own dimensions, almost all information about a variable
// comes from its own term. Blocks then find its mean and precision together. Outer steps took up to
// ten times as many passes on such data as on other data, and more time than blocks.
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

// denseBlock is about the number of terms in a block step. The product that replaces the sites of a
// block costs O(denseBlock N²), and smaller blocks take more passes. If there are largeTerms terms
// or more, V does not fit into a second-level cache, and products of that rank wait for memory.
// Blocks then have largeBlock terms, four columns of tiles.
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
