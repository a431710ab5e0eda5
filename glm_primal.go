package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// primalAlgebra is the siteAlgebra of linear functions η = Xw of D weights whose
// Gaussian is at hand: a move costs Σ nnz² + D³/3 operations.
type primalAlgebra struct {
	x        *design
	index    []int
	base     *weightState // not owned
	cur, try weightState  // after the move accepted last and the last move; their means are moves from that of the base
	moved    bool         // cur is valid
	buf, w   []float64
}

func (a *primalAlgebra) move(d, v, delta, u []float64) (logDet, square float64, ok bool) {
	if !a.shift(delta, u) {
		return 0, 0, false
	}
	t, n := &a.try, a.x.cols
	a.x.mul(d, t.mean, a.index)
	t.variances(v, a.x, a.index, &a.buf)
	limit := 1 + 1e-6 // which a site of positive Δ does not exceed, but for rounding,
	if len(delta) > 0 && slices.Min(delta) < 0 {
		limit = math.Inf(1) // unless there are negative ones
	}
	for i, di := range d {
		u[i] -= delta[i] * di
		if !(v[i] >= 0) || math.IsInf(v[i], 0) || delta[i]*v[i] > limit {
			return 0, 0, false
		}
	}
	a.w = dense.Resize(a.w, n)
	copy(a.w, t.mean)
	blas64.Trmv(blas.Trans, dense.LowerTriangle(a.base.l, n), dense.Vector(a.w))
	return t.logDet - a.base.logDet, floats.Dot(a.w, a.w), true
}

// shift computes try alone: P + XᵀΔX, and the move of the weights (P + XᵀΔX)⁻¹Xᵀu.
func (a *primalAlgebra) shift(delta, u []float64) bool {
	t, n := &a.try, a.x.cols
	t.resize(n)
	copy(t.p, a.base.p)
	a.x.addGram(t.p, delta, a.index, &a.buf)
	if !t.factor() {
		return false
	}
	clear(t.mean)
	a.x.addMulT(t.mean, u, a.index)
	dense.Potrs(t.l, t.mean)
	_, ok := dense.AllFinite(t.mean)
	return ok
}

func (a *primalAlgebra) accept() {
	a.cur, a.try = a.try, a.cur
	a.moved = true
}

// weightBlock solves the problem of a block of rows, with everything else held
// fixed as the Gaussian over the weights that it is given:
//
//	argmin KL(q‖cavity) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)].
//
// Where the rows of the block have no sites yet the cavity is the given Gaussian itself.
type weightBlock struct {
	alg  primalAlgebra
	prob siteProblem
	base siteState
	g, h []float64
	pace pace
	fine bool // check every step, and solve to weightBlockFine
}

// pace is what blocks before tell of whether the next step needs a check.
type pace struct {
	after    remainder // of the last first step that was checked
	age      int       // blocks since then
	measured bool      // there was one
}

// unchecked reports whether a first step that promises so much may go unchecked.
func (p *pace) unchecked(promise float64) bool {
	return p.measured && p.age < weightBlockUnchecked && p.after.of(promise) < weightBlockTol
}

// remainder is what a step to the target left to gain, in nats: in the mean as
// a multiple of the square of what was promised before, for that is how Newton
// steps converge, and in the precision as a multiple of it.
type remainder struct{ mean, precision float64 }

func (r remainder) of(promise float64) float64 { return promise * (promise*r.mean + r.precision) }

// A block is solved until what is left to gain is this small in nats, as a
// part of what it promised and in any case, or after so many evaluations.
// Steps that promise to leave less than the former are taken unchecked, a number of times.
const (
	weightBlockTol       = 1e-4
	weightBlockGoal      = 1e-2
	weightBlockFine      = 1e-7 // where it is the last one
	weightBlockEvals     = 1000
	weightBlockUnchecked = 8
)

// promise returns what the linearised problem promises in nats: in the mean
// ½gᵀP⁻¹g, g = Xᵀ(d1 − a) the gradient of the ELBO, and in the precision, of which
// it only sees the trace, ¼ tr(VΔP)²/D ≤ ¼ tr((VΔP)²).
func (b *weightBlock) promise(s *siteState, at *weightState) (mean, precision float64) {
	d := b.alg.x.cols
	b.g = dense.Resize(b.g, d)
	b.h = dense.Resize(b.h, len(s.d1))
	floats.SubTo(b.h, s.d1, s.a)
	clear(b.g)
	b.alg.x.addMulT(b.g, b.h, b.alg.index)
	blas64.Trsv(blas.NoTrans, dense.LowerTriangle(at.l, d), dense.Vector(b.g))
	var trace float64
	for i, v := range s.v {
		trace += math.Abs(s.tg[i]-s.gamma[i]) * v
	}
	return 0.5 * floats.Dot(b.g, b.g), 0.25 * trace * trace / float64(d)
}

// solve moves w to the solution, for the rows of x that index names, with
// whose terms are t, with the sites of b.base (γ, and a about its m),
// which it replaces by those of the solution. The sites that b.base has say how many rows there are.
func (b *weightBlock) solve(w *weightState, x *design, index []int, t *terms) error {
	p, base := &b.prob, &b.base
	b.alg.x, b.alg.index, b.alg.base, b.alg.moved = x, index, w, false
	w.variances(base.v, x, index, &b.alg.buf)
	p.plain = len(base.m) > 4*x.cols
	if err := p.init(t, index, &b.alg, base); err != nil {
		return err
	}
	promise, precision := b.promise(&p.cur.siteState, w)
	if promise += precision; promise < 1e-15 {
		return nil
	}
	if p.plain && !b.fine && b.pace.unchecked(promise) {
		p.target()
		for i := range p.delta {
			p.delta[i] = p.tg[i] - base.gamma[i]
			p.u[i] = p.tc[i] - base.a[i]
		}
		if b.alg.shift(p.delta, p.u) {
			b.pace.age++
			b.alg.accept()
			x.mul(p.d, b.alg.cur.mean, index)
			for i, g := range p.tg {
				base.gamma[i], base.a[i] = g, p.tc[i]-g*p.d[i]
				base.m[i] += p.d[i]
			}
			w.moveTo(&b.alg.cur)
			return nil
		}
	}
	goal := math.Min(weightBlockGoal, weightBlockTol*promise)
	if b.fine {
		goal = weightBlockFine
	}
	for first := true; p.evaluations < weightBlockEvals; first = false {
		if !p.iterate() {
			break
		}
		mean, precision := b.promise(&p.cur.siteState, &b.alg.cur)
		if first {
			b.pace = pace{after: remainder{mean / promise / promise, precision / promise}, measured: true}
		}
		if mean+precision < goal {
			break
		}
	}
	if b.alg.moved {
		copy(base.gamma, p.cur.gamma)
		copy(base.a, p.cur.a)
		copy(base.m, p.cur.m)
		w.moveTo(&b.alg.cur)
	}
	return nil
}

// primalStepper is the Stepper of a GLM with a full covariance of its weights.
// Its state is that of the sites of the rows,
//
//	V⁻¹ = Λ0 + Xᵀ diag(γ) X,   V⁻¹(m − μ0) = Xᵀb,
//
// unless a step with a given β has left it.
type primalStepper struct {
	g     *GLM
	est   SiteEstimator
	exact bool // est ignores randomness
	n     int
	terms *terms
	prior *weightState

	batch   siteProblem // of all rows; its state is the best that was evaluated
	alg     primalAlgebra
	started bool // batch has a state

	run           weightState // the current state, its mean about μ0
	gamma, a, eta []float64   // its sites: γ, and the linear coefficient about η
	ahead         bool        // run has left the state of batch
	free          bool        // run has no sites

	block   weightBlock
	pg      weightPG
	checker allTerms
	workers int
	gradMap float64
	before  []float64 // the mean before a step
	in      []bool    // scratch of distinct
	unique  []int
	err     float64
}

func newPrimalStepper(g *GLM, est SiteEstimator, exact bool) (*primalStepper, error) {
	prior, err := g.prior.state()
	if err != nil {
		return nil, err
	}
	s := &primalStepper{g: g, est: est, exact: exact, n: g.x.rows, terms: g.terms, prior: prior}
	s.gamma, s.a, s.eta = make([]float64, s.n), make([]float64, s.n), make([]float64, s.n)
	s.run.copyFrom(s.prior)
	s.ahead = true
	return s, nil
}

// Len implements State.
func (s *primalStepper) Len() int { return s.n }

// Plan implements Stepper: one pass of blocks that grow, to come near, and then all rows at a time.
func (s *primalStepper) Plan() Plan {
	first := min(max(32, 2*s.g.x.cols), (s.n+3)/4)
	return Plan{Batch: first, Sampler: approach{first}}
}

// use lets the workers of env share the expectations of a step.
func (s *primalStepper) use(env *Env) {
	n := env.Workers()
	s.workers, s.batch.workers, s.block.prob.workers = n, n, n
}

// Step implements Stepper.
func (s *primalStepper) Step(_ context.Context, env *Env, batch []int, beta float64) (Step, error) {
	s.use(env)
	var err error
	switch {
	case !math.IsInf(beta, 1):
		err = s.pg.step(s, batch, beta, env.rng())
	case s.checker.all(batch, s.n):
		err = s.batchStep()
	default:
		err = s.blockStep(batch)
	}
	if err != nil {
		return Step{}, err
	}
	return Step{Beta: beta, GradMap: known(s.gradMap), ClosedForm: true}, nil
}

// begin prepares the problem of all rows.
func (s *primalStepper) begin() {
	if s.alg.x != nil {
		return
	}
	s.alg.x, s.alg.base = s.g.x, s.prior
	var base siteState
	base.resize(s.n)
	clear(base.gamma)
	clear(base.a)
	clear(base.m)
	s.prior.variances(base.v, s.g.x, nil, &s.alg.buf)
	s.batch.plain = s.n > 100000
	s.batch.prepare(s.terms, nil, &s.alg, &base)
}

// settle evaluates the current state and makes it that of batch, if it is no
// worse than that; otherwise it steps from there on all rows together.
func (s *primalStepper) settle() error {
	if !s.ahead {
		return nil
	}
	s.begin()
	p := &s.batch
	if s.free {
		if err := s.sitesHere(); err != nil {
			return err
		}
	}
	for i, g := range s.gamma {
		p.try.gamma[i], p.try.c[i] = g, s.a[i]+g*s.eta[i]
	}
	ok := p.eval() && !math.IsInf(p.try.value, 0)
	switch {
	case s.started && ok && p.accept():
	case s.started:
		p.iterate() // the blocks were no good
	case ok:
		p.cur, p.try = p.try, p.cur
		s.alg.accept()
	case !s.started:
		// From the prior.
		if err := p.start(); err != nil {
			return err
		}
		clear(p.try.gamma)
		clear(p.try.c)
		if !p.eval() {
			return fmt.Errorf("pgsvi: expectations under the prior: %w", ErrNotFinite)
		}
		p.cur, p.try = p.try, p.cur
		s.alg.accept()
	}
	s.started, s.ahead, s.free = true, false, false
	s.sync()
	return nil
}

// sync makes the running state that of batch.
func (s *primalStepper) sync() {
	p := &s.batch
	s.run.copyFrom(&s.alg.cur)
	copy(s.gamma, p.cur.gamma)
	copy(s.a, p.cur.a)
	copy(s.eta, p.cur.m)
}

// sitesHere gives a state without sites those that it would move to.
func (s *primalStepper) sitesHere() error {
	var t siteState
	t.resize(s.n)
	s.g.x.mul(t.m, s.run.mean, nil)
	s.run.variances(t.v, s.g.x, nil, &s.alg.buf)
	if err := s.terms.expect(&t, nil, s.workers); err != nil {
		return err
	}
	copy(s.gamma, t.tg)
	copy(s.a, t.d1)
	copy(s.eta, t.m)
	return nil
}

// batchStep takes one accepted step of the whole objective.
func (s *primalStepper) batchStep() error {
	if err := s.settle(); err != nil {
		return err
	}
	s.before = append(s.before[:0], s.run.mean...)
	s.batch.iterate()
	s.gradMap = floats.Distance(s.before, s.alg.cur.mean, 2)
	s.sync()
	return nil
}

// blockStep solves the problem of a block with the other sites held fixed. What
// it does to the ELBO is seen when that is evaluated.
func (s *primalStepper) blockStep(batch []int) error {
	if s.free {
		if err := s.settle(); err != nil {
			return err
		}
	}
	b := &s.block
	batch = s.distinct(batch)
	m := len(batch)
	b.base.resize(m)
	s.g.x.mul(b.base.m, s.run.mean, batch)
	for k, i := range batch {
		b.base.gamma[k] = s.gamma[i]
		b.base.a[k] = s.a[i] - s.gamma[i]*(b.base.m[k]-s.eta[i])
	}
	s.before = append(s.before[:0], s.run.mean...)
	if err := b.solve(&s.run, s.g.x, batch, s.terms); errors.Is(err, ErrNotFinite) {
		// Where the other rows have led, this block has no expectations: it is left
		// out, and all rows together will tell.
		s.gradMap, s.ahead = 0, true
		return nil
	} else if err != nil {
		return err
	}
	for k, i := range batch {
		s.gamma[i], s.a[i], s.eta[i] = b.base.gamma[k], b.base.a[k], b.base.m[k]
	}
	s.gradMap = floats.Distance(s.before, s.run.mean, 2)
	s.ahead = true
	return nil
}

// distinct returns batch without repetitions.
func (s *primalStepper) distinct(batch []int) []int {
	if s.in == nil {
		s.in = make([]bool, s.n)
	}
	s.unique = s.unique[:0]
	for _, i := range batch {
		if !s.in[i] {
			s.in[i] = true
			s.unique = append(s.unique, i)
		}
	}
	for _, i := range s.unique {
		s.in[i] = false
	}
	return s.unique
}

// Evaluate implements Stepper. The ELBO is exact. Blocks that have made it fall are taken
// back. The gap is ½δᵀFδ in natural parameters, with the gradient g of the ELBO in the mean and
// the distance ΔP of the precision from its target,
//
//	½ gᵀVg + ¼ tr(VΔPVΔP) ≤ ½ gᵀVg + ¼ (Σ_n |Δγ_n| v_n)²;
//
// after a step with a given β it is not known.
func (s *primalStepper) Evaluate(_ context.Context, env *Env) (Evaluation, error) {
	s.use(env)
	if s.free {
		elbo, err := s.pg.elbo(s)
		return Evaluation{ELBO: elbo, ELBOErr: known(s.err)}, err
	}
	if err := s.settle(); err != nil {
		return Evaluation{}, err
	}
	c := &s.batch.cur
	s.err = c.err
	s.block.alg.x, s.block.alg.index = s.g.x, nil
	gap, _ := s.block.promise(&c.siteState, &s.alg.cur)
	var precision float64
	for i, v := range c.v {
		precision += math.Abs(c.tg[i]-c.gamma[i]) * v
	}
	gap += 0.25 * precision * precision
	return Evaluation{ELBO: -c.value, ELBOErr: known(c.err), Gap: known(gap)}, nil
}

func (s *primalStepper) model() *GLM { return s.g }

// weights implements glmStepper.
func (s *primalStepper) weights() ([]float64, weightCov, error) {
	w := &weightState{}
	w.copyFrom(&s.run)
	return append([]float64(nil), w.mean...), &fullCov{s: w}, nil
}

// weightPG is the workspace of the step with a given β.
type weightPG struct {
	estimates
	w, h         []float64
	next, metric weightState
	rest         []float64
	buf          []float64
}

// step takes the step of the paper with step size β from the gradient of batch;
// see MeanUpdate, with XᵀΓX and Xᵀa in the places of Γ and a.
func (t *weightPG) step(s *primalStepper, batch []int, beta float64, rng *rand.Rand) error {
	x, d := s.g.x, s.g.x.cols
	m := len(batch)
	if batch == nil {
		m = s.n
	}
	t.resize(m)
	t.w = dense.Resize(t.w, m)
	x.mul(t.m, s.run.mean, batch)
	s.run.variances(t.v, x, batch, &t.buf)
	if err := s.terms.estimate(&t.estimates, batch, s.est, rng); err != nil {
		return err
	}
	r := 1 / (1 + beta)
	scale := (1 - r) * float64(s.n) / float64(m)
	for k := range m {
		t.w[k] = -scale * t.d2[k]
		t.d1[k] *= scale
	}
	// h = (1−r)(Xᵀα̂ − Λ0 m), and P₊ = rP + (1−r)(Λ0 + XᵀΓ̂X).
	t.h = dense.Resize(t.h, d)
	blas64.Symv(r-1, dense.Symmetric(s.prior.p, d), dense.Vector(s.run.mean), 0, dense.Vector(t.h))
	x.addMulT(t.h, t.d1, batch)
	next := &t.next
	next.resize(d)
	for j := range next.p {
		next.p[j] = r*s.run.p[j] + (1-r)*s.prior.p[j]
	}
	x.addGram(next.p, t.w, batch, &t.buf)
	metric := next
	if s.g.opt.MeanUpdate == Appendix {
		metric = &t.metric
		metric.resize(d)
		for j := range metric.p {
			metric.p[j] = r*s.run.p[j] + (1-r)*s.prior.p[j]
		}
		if !metric.factor() {
			return fmt.Errorf("pgsvi: metric of the mean update: %w", ErrNotPosDef)
		}
	}
	// Go less far where the precision would not be positive definite, and where noise
	// would have it nearly so: not below a tenth of that of the prior, noisyPivot.
	guarded := !s.exact && m > 0 && slices.Min(t.w) < 0
	for halved := range 100 {
		ok := next.factor()
		if ok && guarded && !t.above(next, s.prior) {
			guarded = halved < noisyHalvings && t.above(&s.run, s.prior)
			ok = !guarded
		}
		if ok {
			dense.Potrs(metric.l, t.h)
			if j, ok := dense.AllFinite(t.h); !ok {
				return fmt.Errorf("pgsvi: %w: mean of weight %d (%s) would move by %v", ErrNotFinite, j, s.g.names[j], t.h[j])
			}
			s.gradMap = floats.Norm(t.h, 2) / beta
			floats.AddTo(next.mean, s.run.mean, t.h)
			s.run, t.next = t.next, s.run
			s.free, s.ahead, s.started = true, true, false
			return nil
		}
		for j, p := range s.run.p {
			next.p[j] = 0.5 * (next.p[j] + p)
		}
		floats.Scale(0.5, t.h)
	}
	return fmt.Errorf("pgsvi: posterior covariance at every step size: %w", ErrNotPosDef)
}

// above reports whether P − noisyPivot·Λ0 is positive definite.
func (t *weightPG) above(s, prior *weightState) bool {
	t.rest = dense.Resize(t.rest, len(s.p))
	floats.AddScaledTo(t.rest, s.p, -noisyPivot, prior.p)
	return dense.Cholesky(t.rest, len(s.mean))
}

// elbo returns the ELBO of a state without sites, with
//
//	KL = ½(tr(Λ0V) − D + mᵀΛ0m + log|P| − log|Λ0|).
func (t *weightPG) elbo(s *primalStepper) (float64, error) {
	var c siteState
	c.resize(s.n)
	s.g.x.mul(c.m, s.run.mean, nil)
	s.run.variances(c.v, s.g.x, nil, &t.buf)
	if err := s.terms.expect(&c, nil, s.workers); err != nil {
		return math.NaN(), err
	}
	s.err = c.err
	s.run.invert()
	d := s.g.x.cols
	kl := s.run.logDet - s.prior.logDet - float64(d)
	t.h = dense.Resize(t.h, d)
	blas64.Symv(1, dense.Symmetric(s.prior.p, d), dense.Vector(s.run.mean), 0, dense.Vector(t.h))
	kl += floats.Dot(t.h, s.run.mean)
	for i := range d {
		for j := range i {
			kl += 2 * s.prior.p[i*d+j] * s.run.inv[i*d+j]
		}
		kl += s.prior.p[i*d+i] * s.run.inv[i*d+i]
	}
	return floats.Sum(c.e) - 0.5*kl, nil
}
