package pgsvi

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// denseAlgebra is the approximation q(z) = N(m, V) of N variables with prior N(0, K) in site form,
//
//	V⁻¹ = K⁻¹ + diag(γ),   V⁻¹m = b,
//
// two numbers a term. It needs no K⁻¹ and no jitter. A block step puts the sites of the block
// back by corrections of rank M, and never lowers the ELBO.
type denseAlgebra struct {
	terms *siteTerms
	n     int
	k     []float64 // K, full

	cur    siteState
	logDet float64 // log|K|/|V|
	cov    []float64
	dense  bool // cov holds V (lower triangle)
	fresh  bool // m, v and the expectations of cur are those of its sites

	unresolved bool // rounding hides some of v
	free       bool // the last step was one with a given β

	features *weightAlgebra // takes the steps of all terms where K is of few features and float64 does not hold it; else nil
	linked   bool           // features is at the state, unless that is not fresh

	gap      denseGap
	proof    proof
	progress progress
	blocks   blockStep
	batch    siteProblem
	mover    covMover  // of batch
	base     siteState // the prior, once batch needs it
	batched  bool      // batch is at the current sites
	pg       densePaper
	workers  crew
	later    dense.Delayed // what blocks changed in V that is yet to be done in cov
	distance float64       // that the last step went
	rounding []float64     // estimated relative error of the diagonal of cov
}

// denseMatrices is the number of N×N matrices that a model with this algebra has at its most, measured: K, V, a factor and what
// solves with it, what is made of them before the next is, and those of a posterior.
const denseMatrices = 8

// newDenseAlgebra returns the prior of t, with covariances k. The error says which term has no
// expectation there.
func newDenseAlgebra(t *siteTerms, k []float64, workers crew) (*denseAlgebra, error) {
	n := t.len()
	s := &denseAlgebra{terms: t, n: n, k: k, cov: make([]float64, n*n), rounding: make([]float64, n)}
	dense.Copy(workers.halt, s.cov, k)
	s.use(workers)
	s.cur = s.prior()
	s.dense, s.fresh, s.free = true, true, true
	if err := t.expect(&s.cur, nil, workers); err != nil {
		return nil, fmt.Errorf("pgsvi: under the prior, %w", err)
	}
	return s, nil
}

// denseBlock is the number of terms in a block step, about: the product that puts a block back costs
// O(denseBlock N²), and smaller ones take more passes. From so many terms on V does not fit into a cache of the second level, and
// products of that rank wait for it to come from memory: blocks are then larger, four columns of tiles.
const (
	denseBlock = 32
	largeBlock = 48
	largeTerms = 512
)

// plan is block steps of the terms that promise most.
func (s *denseAlgebra) plan() Plan {
	if s.features != nil {
		return Plan{}
	}
	size := denseBlock
	if s.n >= largeTerms {
		size = largeBlock
	}
	blocks := (s.n + size - 1) / size
	return Plan{Batch: (s.n + blocks - 1) / blocks, Sampler: promising{s}}
}

// promising is blocks of the terms whose sites promise most, each on its own, at the state that the block meets: with δ the distance of a
// site from its target δ_a²v + ½δ_γ²v². Every promiseSweep-th pass visits each term once, so that none is
// forgotten whose promise says too little of what it does with others. As the promises are those of the state, and
// the pass that of its progress, a run that is resumed goes on as it would have.
type promising struct{ s *denseAlgebra }

const (
	promiseSweep = 6
	promiseCap   = 10 // nats; so far from the optimum a promise tells little, and more counts as the same
)

// Batches implements Sampler.
func (g promising) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		sweep := rng.Perm(n)
		order, promise := make([]int, 0, min(size, n)), make([]float64, n)
		for { // the caller ends it
			s := g.s
			lo, c := s.progress.seen, &s.cur
			hi := min(lo+size, n)
			if !s.fresh || s.progress.passes%promiseSweep == promiseSweep-1 {
				if !yield(sweep[lo:hi]) {
					return
				}
				continue
			}
			for i, v := range c.v {
				da, dg := c.d1[i]-c.a[i], c.tg[i]-c.gamma[i]
				if promise[i] = da*da*v + 0.5*dg*dg*v*v; !(promise[i] < promiseCap) {
					promise[i] = promiseCap
				}
			}
			if order = firstOf(order[:0], sweep, promise, hi-lo); !yield(order) {
				return
			}
		}
	}
}

// firstOf appends to dst, which is empty, the m of the terms that promise most, in that order and where they promise the same in their own.
func firstOf(dst, terms []int, promise []float64, m int) []int {
	for _, i := range terms {
		if len(dst) == m {
			if promise[i] <= promise[dst[m-1]] {
				continue
			}
			dst = dst[:m-1]
		}
		k, _ := slices.BinarySearchFunc(dst, promise[i], func(j int, p float64) int {
			if promise[j] >= p {
				return -1
			}
			return 1
		})
		dst = slices.Insert(dst, k, i)
	}
	return dst
}

func (s *denseAlgebra) closedForm() bool { return true }

func (s *denseAlgebra) scope() Scope { return OverQ }

func (s *denseAlgebra) moved() float64 { return s.distance }

func (s *denseAlgebra) use(c crew) {
	s.workers, s.blocks.prob.workers, s.batch.workers = c, c, c
	for _, f := range [...]*dense.Sites{&s.pg.fac, &s.pg.next, &s.mover.fac, &s.blocks.fac, &s.blocks.mover.fac, &s.gap.fac} {
		f.Halt = c.halt
	}
	if s.features != nil {
		s.features.use(c)
	}
}

// link makes features stand where s does.
func (s *denseAlgebra) link() {
	w := s.features
	if s.linked && s.fresh {
		return
	}
	for i, g := range s.cur.gamma {
		w.gamma[i], w.a[i], w.eta[i] = g, s.cur.a[i], s.cur.m[i]
	}
	w.ahead, w.free, w.started, w.proof = true, false, false, proof{}
}

// follow makes s stand where features does.
func (s *denseAlgebra) follow() {
	p := &s.features.batch.cur
	s.distance = siteDistance(&p.siteState, &s.cur)
	s.cur.copyFrom(&p.siteState)
	s.logDet = p.logDet
	s.fresh, s.linked = true, true
	s.dense, s.free, s.unresolved, s.batched, s.pg.current, s.proof = false, false, false, false, false, proof{}
}

// evaluate implements algebra. The gap is what the problem linearised at the current state
// promises, ½δᵀFδ, with δ the distance of the sites from
// their targets and F the Fisher information of q: with c = δ_b − δ_γ m,
//
//	½cᵀVc + ¼ Σ_ij δ_γi V_ij² δ_γj.
func (s *denseAlgebra) evaluate(within float64) (Evaluation, error) {
	if s.features != nil && !s.free {
		s.link()
		e, err := s.features.evaluate(within)
		if err == nil {
			s.follow()
		}
		return e, err
	}
	if err := s.refresh(false); err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: s.elbo(&s.cur, s.logDet), ELBOErr: neverZero(s.cur.err), Gap: math.Inf(1)}
	err := s.refresh(true)
	if halted := s.workers.halt.Err(); halted != nil {
		return Evaluation{}, halted
	}
	if err != nil {
		e.Gap = 0
	} else if !s.unresolved && !s.cur.wild && !math.IsInf(e.ELBO, 0) {
		if !s.proof.made {
			rounding, moved, err := s.settle(within)
			if err != nil {
				return Evaluation{}, err
			}
			bound, err := s.prove(!s.free && !s.batched, goalOf(within, s.n, s.elbo(&s.cur, s.logDet)))
			if err != nil {
				if moved {
					s.cur, s.gap.before = s.gap.before, s.cur
				}
				return Evaluation{}, err
			}
			s.proof = proof{made: true, bound: boundOf(bound), rounding: rounding + s.gap.apart}
		}
		e.GapBound = s.proof.bound
		e.ELBO, e.ELBOErr = s.elbo(&s.cur, s.logDet), neverZero(s.cur.err+s.proof.rounding)
		e.Gap = neverZero(s.decrement())
	}
	return e, nil
}

// Rounding is looked into where it may come to these fractions of the goal, and of the gap.
const (
	roundingGoal = 0.1
	roundingGap  = 0.01
)

// settle makes m again what it is to be, Ka, as reconcile does, and estimates what rounding then makes of the ELBO. Corrections of low rank add up
// the rounding of the largest numbers that they went through, and where K is nearly singular, so that a is large, the ELBO
// shows what is between m and Ka, by (d1 − ½a)ᵀ(m − Ka), as it shows the rounding of K itself, by half of
// Σ_ij (aaᵀ − Γ + ΓVΓ)_ij δK_ij. Both stay after a step with a given β, where a gap of that size does not matter, and where the mean has more
// digits than a and these are not to be had, as under a prior that is far wider than the noise: there what is between them shows in ½aᵀm alone.
// Where they move, the state before is kept in s.gap.before.
func (s *denseAlgebra) settle(within float64) (rounding float64, moved bool, err error) {
	n, c, g := s.n, &s.cur, &s.gap
	var size, slope float64
	for i, a := range c.a {
		k, d := s.k[i*n+i], math.Abs(a)+math.Abs(c.d1[i]-0.5*a)
		size += a * a * k
		slope += d * d * k
	}
	rounding = dense.Epsilon * (math.Sqrt(float64(n)*size*slope) + siteSize(s.k, c.gamma))
	goal := goalOf(within, n, s.elbo(c, s.logDet))
	g.rounds = rounding > roundingGoal*goal && rounding > roundingGap*s.decrement()
	if !g.rounds {
		return rounding, false, nil
	}
	g.h = dense.Resize(g.h, n)
	if !dense.Residual(s.workers.halt, g.h, c.m, s.k, c.a) {
		return 0, false, s.workers.halt.Err()
	}
	var square float64
	for i, a := range c.a {
		r := c.gamma[i]
		for j, v := range s.cov[i*n : i*n+i] {
			x := (a*c.a[j] + r*v*c.gamma[j]) * s.k[i*n+j]
			square += 4 * x * x // as K is symmetric, so is δK
		}
		x := (a*a - r*(1-float64(r*s.cov[i*n+i]))) * s.k[i*n+i] // converted, as the difference would otherwise show the rounding of V where products are fused
		square += x * x
	}
	rounding = dense.Epsilon * math.Sqrt(square)
	drift, rise := c.between(g.h)
	if !(rise < drift) {
		drift = 0.5 * math.Abs(floats.Dot(g.h, c.a))
	}
	if s.free || s.batched {
		return rounding + drift, false, nil
	}
	next := &g.before
	next.copyFrom(c)
	if !s.reconcile(next) {
		return 0, false, s.workers.halt.Err()
	}
	if s.terms.expect(next, nil, s.workers) != nil {
		return rounding + drift, false, s.workers.halt.Err()
	}
	left := s.drift(next)
	if err := s.workers.halt.Err(); err != nil || !(left < drift) {
		return rounding + drift, false, err
	}
	s.cur, *next = *next, s.cur
	return rounding + left, true, nil
}

// reconciled is how often m and a are reconciled: each time leaves a part of what is between them that has been seen to be anything from 1e-6 to a fifth.
const reconciled = 3

// reconcile makes m and a of x, of the sites and V of s, those of one mean, m = Ka, where V at hand has left them apart by r = m − Ka: off its
// diagonal V has the digits of K, which are few beside a strong site. With a + γ∘m held m moves by V(γ∘r) − r, and a by −γ times that.
// It reports whether it could.
func (s *denseAlgebra) reconcile(x *siteState) bool {
	g, n := &s.gap, s.n
	g.r, g.s = dense.Resize(g.r, n), dense.Resize(g.s, n)
	for range reconciled {
		if !dense.Residual(s.workers.halt, g.r, x.m, s.k, x.a) {
			return false
		}
		floats.MulTo(g.s, x.gamma, g.r)
		dense.Symv(-1, dense.Symmetric(s.cov, n), dense.Vector(g.s), 1, dense.Vector(g.r))
		for i, r := range g.r {
			x.m[i] -= r
			x.a[i] += x.gamma[i] * r
		}
	}
	return true
}

// drift returns by how much the ELBO of x may be another than that of the mean Ka, to second order.
func (s *denseAlgebra) drift(x *siteState) (nats float64) {
	g := &s.gap
	g.r = dense.Resize(g.r, s.n)
	dense.Residual(s.workers.halt, g.r, x.m, s.k, x.a)
	first, rise := x.between(g.r)
	return first + rise
}

// between returns by how much the ELBO of x is another than that of the mean Ka to first order, without its sign, and by how much the expectations
// show that beyond; h is m − Ka.
func (x *siteState) between(h []float64) (first, rise float64) {
	for i, h := range h {
		first += (x.d1[i] - 0.5*x.a[i]) * h
		rise += 0.5 * x.tg[i] * h * h
	}
	return math.Abs(first), rise
}

// prior returns the state without sites.
func (s *denseAlgebra) prior() (p siteState) {
	p.resize(s.n)
	clear(p.gamma)
	clear(p.a)
	clear(p.m)
	for i := range p.v {
		p.v[i] = s.k[i*s.n+i]
	}
	return p
}

// elbo returns the ELBO of c: with a = K⁻¹m,
//
//	Σe − KL,   KL = ½(aᵀm − Σγv + log|K|/|V|).
func (s *denseAlgebra) elbo(c *siteState, logDet float64) float64 {
	kl := logDet
	for i, m := range c.m {
		kl += c.a[i]*m - c.gamma[i]*c.v[i]
	}
	return floats.Sum(c.e) - 0.5*kl
}

// decrement returns ½δᵀFδ; see Evaluate.
func (s *denseAlgebra) decrement() float64 {
	n, g := s.n, &s.gap
	g.c, g.h, g.dg = dense.Resize(g.c, n), dense.Resize(g.h, n), dense.Resize(g.dg, n)
	floats.SubTo(g.c, s.cur.a, s.cur.d1)
	floats.SubTo(g.dg, s.cur.tg, s.cur.gamma)
	dense.Symv(1, dense.Symmetric(s.cov, n), dense.Vector(g.c), 0, dense.Vector(g.h))
	square, _ := g.weightedSquares(s.cov, g.dg)
	var mean, precision float64 // bounds on the rounding of either part
	for i, r := range s.rounding {
		v := math.Abs(s.cov[i*n+i])
		mean += math.Abs(g.c[i]) * math.Sqrt(r*v)
		precision += math.Abs(g.dg[i]) * v * math.Sqrt(r)
	}
	return math.Max(0.5*floats.Dot(g.c, g.h)+0.25*square, 0.5*mean*mean+0.25*precision*precision)
}

// refresh makes the marginals and expectations, and if dense also V, those of
// the sites.
func (s *denseAlgebra) refresh(dense bool) error {
	if dense && s.fresh && s.dense {
		return s.catchUp()
	}
	if s.fresh && !dense {
		return nil
	}
	p, factored := &s.pg, s.pg.current
	err := s.renew(dense)
	if halted := s.workers.halt.Err(); halted != nil {
		p.current = factored
		return halted
	}
	return err
}

// peek is refresh(false) for those who only look; back makes s as if they had not.
func (s *denseAlgebra) peek() (back func(), err error) {
	fresh, unresolved, factored := s.fresh, s.unresolved, s.pg.current
	err = s.refresh(false)
	return func() { s.fresh, s.unresolved, s.pg.current = fresh, unresolved, factored }, err
}

// renew is refresh where there is something to do.
func (s *denseAlgebra) renew(dense bool) error {
	p := &s.pg
	if !p.current {
		p.current = p.fac.Factor(s.k, s.n, s.cur.gamma)
	}
	if !p.current {
		return fmt.Errorf("posterior covariance: %w", ErrNotPosDef)
	}
	p.fac.Expand(&p.exp, s.k, s.n)
	if !s.fresh {
		s.logDet = p.fac.LogDet
		s.unresolved = !p.fac.Variances(s.cur.v, &p.exp)
		for i, v := range s.cur.v {
			s.cur.v[i] = s.boundVariance(i, v)
		}
		if err := s.terms.expect(&s.cur, nil, s.workers); err != nil {
			return err
		}
		s.fresh = true
	}
	if dense {
		s.later.Reset()
		s.blocks.strong = false
		p.fac.Covariance(s.cov, &p.exp)
		if err := s.workers.halt.Err(); err != nil {
			return err
		}
		s.dense = true
		for i := range s.rounding {
			s.rounding[i] = s.roundingAnew(i)
		}
	}
	return nil
}

// boundVariance returns the variance v of term i, or a bound on it where
// rounding has left nothing of it.
func (s *denseAlgebra) boundVariance(i int, v float64) float64 {
	if v > 0 {
		return v
	}
	return math.Min(dense.Epsilon*s.k[i*s.n+i], 1/math.Abs(s.cur.gamma[i]))
}

// siteDistance returns the Euclidean distance between two states in the sites (γ, b).
func siteDistance(p, q *siteState) float64 {
	var s float64
	for i := range p.m {
		g := p.gamma[i] - q.gamma[i]
		b := p.a[i] + p.gamma[i]*p.m[i] - q.a[i] - q.gamma[i]*q.m[i]
		s += g*g + b*b
	}
	return math.Sqrt(s)
}

// prepare begins the problem of all terms, about the prior.
func (s *denseAlgebra) prepare() {
	if s.base.m == nil {
		s.base = s.prior()
	}
	s.mover.reset(s.k, s.n)
	s.batch.prepare(s.terms, nil, &s.mover, &s.base)
}

// ascend implements algebra.
func (s *denseAlgebra) ascend() (passes int, err error) {
	s.free, s.proof = false, proof{}
	if s.features != nil {
		s.link()
		if passes, err = s.features.ascend(); err == nil {
			s.follow()
		}
		return passes, err
	}
	if err := s.refresh(false); err != nil {
		return 0, err
	}
	p := &s.batch
	if !s.batched {
		s.prepare()
		if err := p.start(); err != nil {
			return 0, err
		}
		started := false
		for i, g := range s.cur.gamma {
			p.try.gamma[i], p.try.c[i] = g, s.cur.a[i]+g*s.cur.m[i]
			started = started || g != 0 || s.cur.a[i] != 0
		}
		if started && p.eval() {
			p.cur, p.try = p.try, p.cur
			s.mover.accept()
		}
		if err := s.workers.halt.Err(); err != nil {
			return 0, err
		}
		s.batched = true
	}
	before := s.elbo(&s.cur, s.logDet)
	passes, ok := p.stride(&s.progress)
	if !ok {
		if err := s.workers.halt.Err(); err != nil {
			return 0, err
		}
	}
	s.progress.add(p.decrement(), s.n, s.n)
	if s.elbo(&p.cur.siteState, p.cur.logDet) < before-elboRounding*math.Abs(before) {
		// Less accurate here than the state from blocks, which stands.
		s.batched, s.distance = false, 0
		return passes, nil
	}
	s.distance = siteDistance(&p.cur.siteState, &s.cur)
	s.cur.copyFrom(&p.cur.siteState)
	s.logDet = p.cur.logDet
	s.fresh, s.dense, s.unresolved, s.pg.current = true, false, false, false
	return passes, nil
}

func (s *denseAlgebra) slow() bool { return s.fresh && s.progress.due(&s.cur) }

// elboRounding is the relative change of the ELBO that may be rounding.
const elboRounding = 1e-13

// roundingAnew estimates the relative error of a variance computed from the sites.
func (s *denseAlgebra) roundingAnew(i int) float64 {
	k := s.k[i*s.n+i]
	if k == 0 || s.cur.gamma[i]*k > dense.StrongSite {
		return dense.Epsilon
	}
	return dense.Epsilon * k / s.cur.v[i]
}

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
	v       []float64       // V_BB after a step,
	strong  bool            // which is used where there are strong sites
	next    siteState
	delta   []float64
	u       []float64
}

// block implements algebra.
func (s *denseAlgebra) block(batch []int) error {
	s.free, s.proof = false, proof{}
	before := s.progress
	s.linked = false
	err := s.blocks.step(s, batch)
	if err != nil {
		s.progress = before
	}
	return err
}

func (t *blockStep) step(s *denseAlgebra, batch []int) error {
	if !(s.fresh && s.dense) || s.overdue() {
		if err := s.refresh(true); err != nil {
			return err
		}
	}
	s.batched = false
	t.distinct(batch, s.n)
	t.gather(s)
	p := &t.prob
	t.mover.reset(t.cov, len(t.b))
	t.mover.again = true
	if err := p.init(s.terms, t.b, &t.mover, &t.base); err != nil {
		return err
	}
	t.promise = p.decrement()
	s.progress.add(t.promise, len(t.b), s.n)
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
		if err := s.workers.halt.Err(); err != nil {
			return err
		}
		if t.putBack(s, fraction) {
			return nil
		}
	}
	if err := s.workers.halt.Err(); err != nil {
		return err
	}
	if t.promise < 1e-9 { // rounding
		s.distance = 0
		return nil
	}
	_, err := s.ascend()
	return err
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
	if !t.fac.Factor(t.cov, m, t.delta) || t.fac.Strongest() > dense.StrongestSite {
		return false
	}
	next := &t.next
	next.resize(n)
	copy(next.v, s.cur.v)
	t.fac.ExpandVar(&t.exp, t.rows, n, next.v)
	t.fac.Solve(t.u)
	clear(next.m)
	dense.Gemv(blas.Trans, 1, dense.General(t.rows, m, n), dense.Vector(t.u), 0, dense.Vector(next.m))
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
	if strong {
		t.fac.Covariance(t.v, &t.inner)
	}
	if s.workers.halt.Stopped() {
		return false
	}
	s.distance = siteDistance(next, &s.cur)
	s.cur, t.next = t.next, s.cur
	s.logDet, s.unresolved, s.pg.current = logDet, false, false
	t.strong = strong
	s.later.Add(&t.exp)
	if s.overdue() {
		_ = s.catchUp() // where that is halted the step is done, and whoever needs V asks for the rest
	}
	s.drifted(&t.next)
	return true
}

// laterMost is the number of rows of changes of V from which on they are made: three blocks or four together, where V, of laterTerms terms or more, is far from fitting into
// a cache of the second level. More take more products for the rows of the next block than they save, and so they do of fewer terms.
const (
	laterMost  = 3 * largeBlock
	laterTerms = 1500
)

// laterRank is laterMost for n terms.
func laterRank(n int) int {
	if n < laterTerms {
		return 1
	}
	return laterMost
}

// overdue reports whether the changes of V that are yet to be made are to be made before the next block.
func (s *denseAlgebra) overdue() bool {
	return s.blocks.strong || s.later.Begun() || s.later.Rank() >= laterRank(s.n)
}

// catchUp makes V in s.cov that of the state.
func (s *denseAlgebra) catchUp() error {
	t := &s.blocks
	if !s.later.Apply(s.workers.halt, s.cov) {
		return s.workers.halt.Err()
	}
	if t.strong {
		for a, i := range t.b {
			for c, j := range t.b[:a+1] {
				s.cov[i*s.n+j] = t.v[a*len(t.b)+c]
			}
		}
		t.strong = false
	}
	return nil
}

// drifted keeps account of the rounding of V: whether a variance shrinks or
// grows by some factor, its relative error grows by the same. Where so many
// digits are gone that it pays, V is computed anew from the sites.
func (s *denseAlgebra) drifted(before *siteState) {
	const most = 1e-9
	for i, v := range s.cur.v {
		if v == 0 {
			continue // and always was
		}
		s.rounding[i] = s.rounding[i]*math.Max(v/before.v[i], before.v[i]/v) + dense.Epsilon
		// The mean has lost the digits that it had where it was large.
		lost := dense.Epsilon*math.Abs(before.m[i]) > most*math.Sqrt(v) && math.Abs(before.m[i]) > 1e3*math.Abs(s.cur.m[i])
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
	s.later.Rows(s.workers.halt, t.rows, s.cov, n, t.b)
	for a, i := range t.b {
		row := t.rows[a*n : (a+1)*n]
		t.base.gamma[a], t.base.a[a], t.base.m[a], t.base.v[a] = s.cur.gamma[i], s.cur.a[i], s.cur.m[i], row[i]
		for c, j := range t.b[:a+1] {
			t.cov[a*m+c] = row[j]
		}
	}
	dense.FillUpper(t.cov, m)
}

// densePaper is the workspace of the step with a given β.
type densePaper struct {
	fac, next dense.Sites
	current   bool // fac is that of the sites of the state
	exp       dense.Expansion
	rows      []float64
	gamma, b  []float64 // the target, γ₊ and b₊
	a, mean   []float64 // of the appendix, K⁻¹m₊ and m₊
	w         []float64
}

// marginals implements algebra. The mean of all terms is current in s.cur.m whenever the factor is.
func (s *denseAlgebra) marginals(x *siteEstimates, batch []int) error {
	t, n := &s.pg, s.n
	s.batched = false
	if !s.fresh && !t.current { // V is to be computed anew
		if err := s.refresh(false); err != nil {
			return err
		}
	}
	m := len(batch)
	if batch == nil {
		m = n
	}
	x.resize(m)
	for a := range m {
		i := dense.Index(batch, a)
		x.m[a], x.v[a] = s.cur.m[i], s.cur.v[i]
	}
	if s.fresh {
		return nil
	}
	t.rows = dense.Resize(t.rows, n*m)
	for a := range m {
		i := dense.Index(batch, a)
		x.v[a] = s.k[i*n+i]
		for j, kij := range s.k[i*n : (i+1)*n] {
			t.rows[j*m+a] = kij
		}
	}
	t.fac.Expand(&t.exp, t.rows, m)
	t.exp.SubVar(x.v)
	for a, v := range x.v {
		x.v[a] = s.boundVariance(dense.Index(batch, a), v)
	}
	return nil
}

// aim implements algebra: Γ₊ = rΓ + (1−r)Γ̂ and, in the main text, b₊ = rb + (1−r)(γ̂m − α̂).
func (s *denseAlgebra) aim(x *siteEstimates, batch []int, m paperMove) error {
	t, n := &s.pg, s.n
	t.gamma, t.b, t.w = dense.Resize(t.gamma, n), dense.Resize(t.b, n), dense.Resize(t.w, n)
	for i, g := range s.cur.gamma {
		t.gamma[i], t.b[i] = m.r*g, m.r*(s.cur.a[i]+g*s.cur.m[i])
	}
	if m.appendix {
		if err := s.appendix(x, batch, m); err != nil {
			return err
		}
	}
	for i := range x.m {
		j := dense.Index(batch, i)
		t.gamma[j] -= m.scale * x.d2[i]
		if !m.appendix {
			t.b[j] += m.scale * (x.d1[i] - x.d2[i]*x.m[i])
		}
	}
	if m.appendix {
		for i, a := range t.a {
			t.b[i] = a + t.gamma[i]*t.mean[i]
		}
	}
	return nil
}

// appendix stores a₊ = K⁻¹m₊ and m₊ of the appendix in t.a and t.mean. On entry
// t.gamma = rΓ, and (1−r)K⁻¹ + rV⁻¹ = K⁻¹ + rΓ, so that
//
//	a₊ = a − (1−r)(I + rΓK)⁻¹(a + α̂).
func (s *denseAlgebra) appendix(x *siteEstimates, batch []int, m paperMove) error {
	t, n := &s.pg, s.n
	if !t.next.Factor(s.k, n, t.gamma) {
		return fmt.Errorf("metric of the mean update: %w", ErrNotPosDef)
	}
	t.a, t.mean = dense.Resize(t.a, n), dense.Resize(t.mean, n)
	copy(t.a, s.cur.a)
	for i, a := range t.a {
		t.w[i] = (1 - m.r) * a
	}
	for i := range x.m {
		t.w[dense.Index(batch, i)] -= m.scale * x.d1[i]
	}
	t.next.Solve(t.w)
	floats.Sub(t.a, t.w)
	dense.Symv(1, dense.Symmetric(s.k, n), dense.Vector(t.a), 0, dense.Vector(t.mean))
	return nil
}

// try implements algebra. A pivot is what a site leaves of the precision of its variable.
func (s *denseAlgebra) try(noisy bool) (valid, edge bool) {
	t := &s.pg
	if !t.next.Factor(s.k, s.n, t.gamma) {
		return false, false
	}
	if !noisy {
		return true, false
	}
	if !t.current {
		t.current = t.fac.Factor(s.k, s.n, s.cur.gamma)
	}
	return true, t.next.LeastPivot() < min(noisyPivot, t.fac.LeastPivot())
}

// halve implements algebra.
func (s *denseAlgebra) halve() {
	t := &s.pg
	for i, g := range s.cur.gamma {
		t.gamma[i] = 0.5 * (t.gamma[i] + g)
		t.b[i] = 0.5 * (t.b[i] + s.cur.a[i] + g*s.cur.m[i])
	}
}

// take implements algebra.
func (s *denseAlgebra) take() error {
	t, n := &s.pg, s.n
	t.mean = dense.Resize(t.mean, n)
	copy(t.w, t.b)
	t.next.Solve(t.w)
	dense.Symv(1, dense.Symmetric(s.k, n), dense.Vector(t.w), 0, dense.Vector(t.mean))
	if i, ok := dense.AllFinite(t.mean); !ok {
		return fmt.Errorf("mean of term %d would be %v: %w", i, t.mean[i], ErrNotFinite)
	}
	t.fac, t.next, t.current = t.next, t.fac, true
	s.distance = siteDistance(&siteState{gamma: t.gamma, a: t.w, m: t.mean}, &s.cur)
	copy(s.cur.gamma, t.gamma)
	copy(s.cur.a, t.w)
	copy(s.cur.m, t.mean)
	s.logDet = t.fac.LogDet
	s.fresh, s.dense, s.free, s.proof = false, false, true, proof{}
	return nil
}

// dualAlgebra is that of a linear model with at least as many weights as rows: a
// Gaussian process of the linear predictors with covariance K = XΛ0⁻¹Xᵀ, whose
// sites are those of the rows.
type dualAlgebra struct {
	*denseAlgebra
	lin *linearModel
}

// evaluate implements algebra. Where B does not leave the rows their digits, the gap says so: rounding of the relative size ε in
// K moves log|B| by up to ε Σ γ_n K_nn, for no eigenvalue of B is below 1.
func (s *dualAlgebra) evaluate(within float64) (Evaluation, error) {
	e, err := s.denseAlgebra.evaluate(within)
	if err != nil {
		return e, err
	}
	ok := conditioned(s.workers.halt, s.k, s.cur.gamma, leastPivot)
	if err := s.workers.halt.Err(); err != nil {
		return Evaluation{}, err
	}
	if !ok {
		rounding := dense.Epsilon * siteSize(s.k, s.cur.gamma)
		e.Gap = math.Max(e.Gap, rounding)
		e.ELBOErr += rounding
	}
	return e, nil
}

// dualPivot is the least part of B that may be left for the dual to be chosen. The weights, whose units do not matter, do better.
const dualPivot = 1e-6

// conditioned reports whether the rows before leave of each diagonal element of B = I + Γ^½KΓ^½, of which no eigenvalue
// is below 1, that part at least; what it reports where h has stopped is of no use.
func conditioned(h *parallel.Halt, k, gamma []float64, least float64) bool {
	if siteSize(k, gamma)*least <= 1 {
		return true
	}
	f := dense.Sites{Halt: h}
	return f.Factor(k, len(gamma), gamma) && f.LeastPart() >= least
}

func newDualAlgebra(l *linearModel, k []float64, workers crew) (*dualAlgebra, error) {
	s, err := newDenseAlgebra(l.terms, k, workers)
	if err != nil {
		return nil, err
	}
	return &dualAlgebra{denseAlgebra: s, lin: l}, nil
}

// precisions returns of each row about the largest γ that it may come to have under the prior covariance k: that which it has alone, and
// that of its likelihood where the linear predictor is near 0 with and without its offset, as other rows may hold it, or at a real response.
func (l *linearModel) precisions(h *parallel.Halt, k []float64) []float64 {
	n := l.x.rows
	gamma := make([]float64, n)
	onLine := factsOf(l.terms.lik).Support == RealLine
	for i := range gamma {
		v := k[i*n+i]
		if v == 0 || h.Stopped() {
			continue
		}
		g, _, _ := l.terms.solve(i, 0, v, 0, v)
		gamma[i] = math.Abs(g)
		y, o, _, _ := l.terms.term(i)
		at := [...]float64{0, -o, 0}
		if onLine {
			at[2] = y - o
		}
		for _, m := range at {
			if d2 := math.Abs(l.terms.expectation(i, m, math.Min(v, 1)).D2); !math.IsInf(d2, 0) {
				gamma[i] = max(gamma[i], d2)
			}
		}
	}
	return gamma
}

// primalWeights is the largest number of weights for which a posterior of the
// dual is turned into one of the primal.
const primalWeights = 2000

func (s *dualAlgebra) weights() ([]float64, weightCov, error) {
	back, err := s.peek()
	defer back()
	if err != nil {
		return nil, nil, err
	}
	n, d := s.n, len(s.lin.names)
	if d <= primalWeights {
		if mean, cov, err := s.lin.primal(s.cur.gamma, s.cur.a, s.cur.m, s.workers.halt); err == nil {
			return mean, cov, nil
		}
	}
	gamma := append([]float64(nil), s.cur.gamma...)
	cov := &dualCov{x: s.lin.x, gamma: gamma, prior: &s.lin.prior, fac: new(dense.Sites)}
	h, mean, b := make([]float64, d), make([]float64, d), potentials(gamma, s.cur.a, s.cur.m)
	cov.fac.Halt = s.workers.halt
	ok := cov.fac.Factor(s.k, n, gamma)
	cov.fac.Halt = nil
	if err := s.workers.halt.Err(); err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	cov.fac.Solve(b) // K⁻¹ times the linear predictors
	cov.fac.C = nil  // K is not needed any more
	s.lin.x.addMulT(h, b, nil)
	s.lin.prior.solve(mean, h)
	return mean, cov, nil
}

// start makes q that of the sites γ and, with a = K⁻¹m, of the mean.
func (s *denseAlgebra) start(gamma, a []float64) {
	copy(s.cur.gamma, gamma)
	copy(s.cur.a, a)
	dense.Symv(1, dense.Symmetric(s.k, s.n), dense.Vector(a), 0, dense.Vector(s.cur.m))
	s.fresh, s.dense, s.free, s.batched, s.pg.current, s.proof = false, false, false, false, false, proof{}
}

func (s *denseAlgebra) state(c *save.State) {
	s.cur.state(c, s.n)
	c.Float(&s.logDet)
	c.Bool(&s.dense, &s.fresh, &s.unresolved, &s.free, &s.batched, &s.pg.current)
	s.proof.state(c)
	c.Floats(s.n, &s.rounding)
	s.progress.state(c)
	if s.dense {
		if !c.Reading() && s.overdue() {
			c.Fail(s.catchUp())
		}
		c.Lower(s.n, s.cov)
		s.stateLater(c)
	} else if c.Reading() {
		s.later.Reset()
	}
	if c.Bool(&s.linked); s.features != nil && s.linked {
		s.features.state(c)
	}
	if c.Reading() && s.pg.current {
		c.Check(s.pg.fac.Factor(s.k, s.n, s.cur.gamma), "its sites do not leave a positive definite covariance")
	}
	if s.batched {
		if c.Reading() {
			s.prepare()
		}
		s.batch.state(c, true)
		if c.Reading() && c.Err() == nil {
			copy(s.mover.cur, s.batch.cur.gamma) // about the prior
		}
	}
}

// stateLater is state for the changes of V that are yet to be made, of which strong ones are not left.
func (s *denseAlgebra) stateLater(c *save.State) {
	if c.Reading() {
		s.later.Reset()
	}
	for _, x := range s.later.Parts(s.n) {
		rows := len(*x) / max(1, s.n)
		c.Int(&rows)
		c.Check(0 <= rows && rows < laterRank(s.n), "%d rows of changes of its covariance", rows)
		if c.Err() == nil && rows > 0 {
			c.Floats(rows*s.n, x)
		}
	}
}

func (s *denseAlgebra) constant() bool {
	if s.features != nil && !s.free {
		return s.fresh && s.linked && s.features.constant()
	}
	return s.fresh && s.dense && s.later.Rank() == 0 && (s.free || s.proof.made)
}

// denseGap is the workspace of the proved gap of a denseAlgebra.
type denseGap struct {
	c, h, dg []float64
	r, s     []float64 // of reconcile
	prior    []float64 // the diagonal of K
	next     siteState
	before   siteState // see settle
	rounds   bool      // rounding of what is between m and Ka may count; see settle
	apart    float64   // see prove
	squares  []float64 // of weightedSquares
	fac      dense.Sites
}

// mean returns ½cᵀKc at s, and leaves c = K⁻¹m − ∂E/∂m in g.c.
func (g *denseGap) mean(k []float64, s *siteState) float64 {
	n := len(s.m)
	g.c, g.h = dense.Resize(g.c, n), dense.Resize(g.h, n)
	floats.SubTo(g.c, s.a, s.d1)
	dense.Symv(1, dense.Symmetric(k, n), dense.Vector(g.c), 0, dense.Vector(g.h))
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
	square, negative := g.weightedSquares(cov, g.dg)
	bound = precisionGap(square, negative, s.gamma, s.tg)
	return bound, bound > loosePrecision*0.5*square && square > leastLoose && square < mostLoose
}

// exact returns tr Δ − log|I + Δ| at the s of the last call of precision, with logDet = log|K|/|V|, and what rounding may hide of it.
func (g *denseGap) exact(k []float64, s *siteState, logDet float64) float64 {
	if !g.fac.Factor(k, len(s.m), s.tg) {
		return math.Inf(1)
	}
	return max(0, floats.Dot(g.dg, s.v)+logDet-g.fac.LogDet) + dense.Epsilon*siteSize(k, s.tg)
}

// weightedSquares returns Σ_ij w_i V_ij² w_j, and the same of the negative w alone, for the V of which v is the lower triangle.
func (g *denseGap) weightedSquares(v, w []float64) (all, negative float64) {
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

// Squares of V are shared in parts of so many rows, from so many numbers in all on: some 200 µs.
const (
	squaredRows   = 48
	sharedSquares = 1 << 18
)

// rowSquares stores what rows lo … hi−1 add to weightedSquares in g.squares.
func (g *denseGap) rowSquares(v, w []float64, lo, hi int) {
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

// meanHalvings is how often the step of the mean is halved until F does not rise: within a step or two of where it
// matters no halving is needed, and elsewhere there is no hurry.
const meanHalvings = 4

// prove returns a proved bound on the gap of the current state, whose V is at hand. With keep the current state
// becomes that which the step of the mean leads to, which steps of all terms, that mix the states before, do not gain by. What is above
// the goal is looked into. The error is that of the crew, and the state then as it was.
func (s *denseAlgebra) prove(keep bool, goal float64) (float64, error) {
	g := &s.gap
	g.apart = 0
	if !s.terms.concave() || !s.cur.certain {
		return math.Inf(1), nil
	}
	precision, _ := g.precision(s.cov, &s.cur) // of V as it is, at the last state
	bound := precision + g.mean(s.k, &s.cur)
	dense.Symv(1, dense.Symmetric(s.cov, s.n), dense.Vector(g.c), 0, dense.Vector(g.h))
	before, next := s.elbo(&s.cur, s.logDet), &g.next
	next.resize(s.n)
	copy(next.v, s.cur.v)
	copy(next.gamma, s.cur.gamma)
	t, moved := 1.0, false
	for range meanHalvings {
		for i, h := range g.h {
			next.m[i] = s.cur.m[i] - t*h
			next.a[i] = s.cur.a[i] - t*(g.c[i]-s.cur.gamma[i]*h)
		}
		if g.rounds && !s.reconcile(next) {
			return 0, s.workers.halt.Err()
		}
		if s.terms.expect(next, nil, s.workers) == nil {
			gain, off, there := s.elbo(next, s.logDet)-before, 0.0, math.Inf(1)
			if g.rounds {
				off = s.drift(next)
			}
			if gain >= 0 {
				if next.certain {
					var loose bool
					there, loose = g.precision(s.cov, next)
					exact := there
					if loose {
						exact = min(exact, g.exact(s.k, next, s.logDet))
					}
					bound = min(bound, gain+off+g.mean(s.k, next)+exact)
				}
				if moved = keep && gain > off; moved {
					precision = there
					bound, g.apart = bound-gain+off, off
				}
				break
			}
		}
		if err := s.workers.halt.Err(); err != nil {
			return 0, err
		}
		t /= 2
	}
	last := &s.cur
	if moved {
		last = next
	}
	if bound > max(goal, 2*precision) && last.certain {
		bound = min(bound, s.rowsGap(last)+2*precision)
	}
	if err := s.workers.halt.Err(); err != nil {
		return 0, err
	}
	if moved {
		s.cur, *next = *next, s.cur
	}
	return bound, nil
}

// rowsGap returns the bound on the gap of c by its rows, V held, beside twice that of V: where K is large and the sites are strong, that of the mean is the
// rounding of ∂E/∂m, squared, times K.
func (s *denseAlgebra) rowsGap(c *siteState) float64 {
	g, n := &s.gap, s.n
	g.h, g.prior = dense.Resize(g.h, n), dense.Resize(g.prior, n)
	dense.Residual(s.workers.halt, g.h, c.m, s.k, c.a)
	for i := range g.prior {
		g.prior[i] = s.k[i*n+i]
	}
	return s.terms.rowGap(c, s.elbo(c, s.logDet), g.prior, g.h, s.workers.halt)
}
