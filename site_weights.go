package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// weightMover is the siteMover of linear functions η = Xw of D weights whose
// Gaussian is at hand: a move costs Σ nnz² + D³/3 operations.
type weightMover struct {
	x        *design
	index    []int
	base     *weightState // not owned
	prior    *weightPrior // that the base is, or nil
	cur, try weightState  // after the move accepted last and the last move; their means are moves from that of the base
	kept     weightState  // cur when it was marked, if it was valid
	held     bool         // it was
	moved    bool         // cur is valid
	buf      designWork
	w        dense.Double
	s        []float64 // covariance of the rows
}

func (a *weightMover) cover(v, delta []float64) (logDet float64, ok bool) {
	t := &a.try
	if !t.add(a.base, a.x, delta, a.index, &a.buf) {
		return 0, false
	}
	t.variances(v, a.x, a.index, &a.buf)
	limit := 1 + 1e-6 // which a site of positive Δ does not exceed, but for rounding,
	if len(delta) > 0 && slices.Min(delta) < 0 {
		limit = math.Inf(1) // unless there are negative ones
	}
	for i, vi := range v {
		if !(vi >= 0) || math.IsInf(vi, 0) || delta[i]*vi > limit {
			return 0, false
		}
	}
	return t.logDet - a.base.logDet, true
}

func (a *weightMover) move(d, delta, u []float64) (square float64) {
	t := &a.try
	t.solve(a.x, u, a.index, &a.buf)
	t.predict(d, a.x, a.index)
	for i, di := range d {
		u[i] -= delta[i] * di
	}
	return a.base.square(t, &a.w)
}

// A covariance of N rows takes N²D operations where a move takes ND²: it is worth them for
// so many rows a weight, or so few rows in all that their expectations take longer.
const (
	covarianceRows = 8
	covarianceFew  = 256
)

func (a *weightMover) covariance() []float64 {
	at := a.known()
	a.s = dense.Resize(a.s, a.x.rows*a.x.rows)
	if !a.rowsUnder(at, a.s) {
		return nil
	}
	return a.s
}

func (a *weightMover) before(dst []float64) bool {
	if !a.rowsUnder(a.base, dst) {
		return false
	}
	dense.FillUpper(dst, a.x.rows)
	return true
}

// rowsUnder stores the covariance of the rows under at in dst, unless that would cost far more than a move.
func (a *weightMover) rowsUnder(at *weightState, dst []float64) bool {
	n, d := a.x.rows, a.x.cols
	if a.index != nil || n > max(covarianceFew, covarianceRows*d) {
		return false
	}
	a.w.Resize(d)
	for i := range n {
		if a.buf.halt.Stopped() {
			return false
		}
		a.x.dense1(a.w.Hi, i)
		dense.Potrs(at.l, a.w.Hi)
		a.x.mul(dst[i*n:(i+1)*n], a.w.Hi, nil)
	}
	return true
}

func (a *weightMover) mark() {
	if a.held = a.moved; a.held {
		a.kept.copyFrom(&a.cur)
	}
}

func (a *weightMover) back() {
	if a.moved = a.held; a.held {
		a.cur.copyFrom(&a.kept)
	}
}

// start makes the base the current state.
func (a *weightMover) start() {
	a.cur.copyFrom(a.base)
	clear(a.cur.mean)
	clear(a.cur.meanLow)
	a.moved = true
}

func (a *weightMover) hold(d, delta, u []float64) (square float64) {
	a.try.copyFrom(&a.cur)
	return a.move(d, delta, u)
}

// known is the state whose covariance is at hand.
func (a *weightMover) known() *weightState {
	if a.moved {
		return &a.cur
	}
	return a.base
}

func (a *weightMover) weights() int { return a.x.cols }

func (a *weightMover) gather(u, r []float64) bool {
	if a.known().double {
		return false
	}
	clear(u)
	a.x.addMulTOn(u, r, a.index, &a.buf)
	return true
}

func (a *weightMover) spread(w, u []float64) bool {
	if at := a.known(); at == a.base && a.prior != nil {
		a.prior.solve(w, u)
	} else {
		copy(w, u)
		dense.Potrs(at.l, w)
	}
	return true
}

func (a *weightMover) curve(eta, u, w, h []float64) {
	clear(u)
	a.x.mulGram(u, eta, w, h, a.index, &a.buf)
}

// shift computes try alone: P + XᵀΔX, and the move of the weights (P + XᵀΔX)⁻¹Xᵀu.
func (a *weightMover) shift(delta, u []float64) bool {
	t := &a.try
	if !t.add(a.base, a.x, delta, a.index, &a.buf) {
		return false
	}
	t.solve(a.x, u, a.index, &a.buf)
	_, ok := dense.AllFinite(t.mean)
	return ok
}

// use makes moves end when h stops.
func (a *weightMover) use(h *parallel.Halt) { a.buf.halt, a.cur.halt, a.try.halt = h, h, h }

func (a *weightMover) accept() {
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
	mover weightMover
	prob  siteProblem
	base  siteState
	g, h  []float64
	pace  pace
	fine  bool         // check every step, and solve to weightBlockFine
	rough bool         // solve blocks of many rows to weightBlockRough: they are visited again
	near  *weightBlock // of few rows, over their span
	rows  design       // those of the block, gathered
}

// use lets the crew solve.
func (b *weightBlock) use(c crew) {
	b.prob.workers = c
	b.mover.use(c.halt)
}

// pace is what blocks before tell of whether the next step needs a check.
type pace struct {
	after    remainder // of the last first step that was checked
	age      int       // blocks since then
	measured bool      // there was one
}

// unchecked reports whether a first step that promises so much may go unchecked, as it leaves less than so many nats, and all since the last check
// together, if each left as much, less than weightBlockTogether times that.
func (p *pace) unchecked(promise, left float64) bool {
	leaves := p.after.of(promise)
	return p.measured && leaves < left && float64(p.age+1)*leaves <= weightBlockTogether*left && p.age < weightBlockUnchecked
}

// remainder is what a step to the target left to gain, in nats: in the mean as
// a multiple of the square of what was promised before, for that is how Newton
// steps converge, and in the precision as a multiple of it.
type remainder struct{ mean, precision float64 }

func (r remainder) of(promise float64) float64 { return promise * (promise*r.mean + r.precision) }

// A block is solved until what is left to gain is this small in nats, as a
// part of what it promised and in any case, or after so many evaluations.
// Steps that promise to leave less than the former are taken unchecked, until together they leave weightBlockTogether times as much, and no more than
// weightBlockUnchecked of them. Of 300,000 rows of 50 columns the late blocks leave 1e-8 nats: one in nine checked took 6% of the time more than one in 65.
const (
	weightBlockTol       = 1e-4
	weightBlockGoal      = 1e-2
	weightBlockFine      = 1e-7 // where it is the last one
	weightBlockRough     = 0.03 // of what it promised, where rows are visited again: what other blocks are yet to tell is more
	weightBlockEvals     = 1000
	weightBlockTogether  = 8
	weightBlockUnchecked = 64
	weightBlockLeft      = 1    // nats that may be left after weightBlockEvals,
	weightBlockLast      = 5e-4 // or where it is the last one and rounding allows no step: 4% of a variance
)

// promise returns what the linearised problem promises in nats: in the mean
// ½gᵀP⁻¹g, g = Xᵀ(d1 − a) the gradient of the ELBO, and in the precision, of which
// it only sees the trace, ¼ tr(VΔP)²/D ≤ ¼ tr((VΔP)²).
func (b *weightBlock) promise(s *siteState, at *weightState) (mean, precision float64) {
	d := b.mover.x.cols
	b.g = dense.Resize(b.g, d)
	b.h = dense.Resize(b.h, len(s.d1))
	floats.SubTo(b.h, s.d1, s.a)
	clear(b.g)
	b.mover.x.addMulTOn(b.g, b.h, b.mover.index, &b.mover.buf)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(at.l, d), dense.Vector(b.g))
	var trace float64
	for i, v := range s.v {
		trace += math.Abs(s.tg[i]-s.gamma[i]) * v
	}
	return 0.5 * floats.Dot(b.g, b.g), 0.25 * trace * trace / float64(d)
}

// solve moves w to the solution, for the rows of x that index names, with
// whose terms are t, with the sites of b.base (γ, and a about its m),
// which it replaces by those of the solution. The sites that b.base has say how many rows there are.
func (b *weightBlock) solve(w *weightState, x *design, index []int, t *siteTerms) error {
	at := index
	if x.sparse == nil && index != nil && len(index)*x.cols <= mostGathered {
		x, at = b.gather(x, index), nil
	}
	b.mover.x, b.mover.index, b.mover.base, b.mover.moved = x, at, w, false
	before := b.pace
	if err := b.moveOn(w, x, at, t, index); err != nil {
		b.pace = before
		return err
	}
	return nil
}

// mostGathered is the number of values, 64 MB, up to which the rows of a block are gathered: each of a handful of products with them then finds them together.
const mostGathered = 1 << 23

// gather returns copies of the dense rows of x at index, valid until the next call.
func (b *weightBlock) gather(x *design, index []int) *design {
	d := x.cols
	b.rows = design{rows: len(index), cols: d, dense: dense.Resize(b.rows.dense, len(index)*d)}
	if !x.shared(b.mover.buf.halt, len(b.rows.dense)) {
		x.gather(b.rows.dense, index)
		return &b.rows
	}
	parallel.For(len(index), copiedRows, b.mover.buf.halt.Workers(), func(_, lo, hi int) { x.gather(b.rows.dense[lo*d:hi*d], index[lo:hi]) })
	return &b.rows
}

// moveOn is solve for the rows of x at the given numbers, whose terms index names; its halt may leave it with another pace.
func (b *weightBlock) moveOn(w *weightState, x *design, at []int, t *siteTerms, index []int) error {
	p, base := &b.prob, &b.base
	w.variances(base.v, x, at, &b.mover.buf)
	p.plain = len(base.m) > 4*x.cols
	if err := p.init(t, index, &b.mover, base); err != nil {
		return err
	}
	promise, precision := b.promise(&p.cur.siteState, w)
	d := float64(x.cols)
	left := promise + d*precision // nats: ¼ tr(VΔP)² is a bound where one row tells most
	if promise += precision; promise < 1e-15 {
		return t.overflow(&p.cur.siteState, index)
	}
	if b.spans(w, x) {
		return b.inSpan(w, x, at, t, index)
	}
	goal, unchecked := math.Min(weightBlockGoal, weightBlockTol*promise), weightBlockTol
	switch {
	case b.fine:
		goal, unchecked = weightBlockFine, 0
	case b.rough && p.plain:
		goal = weightBlockRough * promise
		unchecked = goal
	}
	if p.plain && b.pace.unchecked(promise, unchecked) {
		p.target()
		for i := range p.delta {
			p.delta[i] = p.tg[i] - base.gamma[i]
			p.u[i] = p.tc[i] - base.a[i]
		}
		moved := b.mover.shift(p.delta, p.u)
		if err := p.workers.halt.Err(); err != nil {
			return err
		}
		if moved {
			b.pace.age++
			b.mover.accept()
			b.mover.cur.predict(p.d, x, at)
			for i, g := range p.tg {
				base.gamma[i], base.a[i] = g, p.tc[i]-g*p.d[i]
				base.m[i] += p.d[i]
			}
			w.moveTo(&b.mover.cur)
			return nil
		}
	}
	var slow progress
	for first := true; p.evaluations < weightBlockEvals; first = false {
		if _, ok := p.stride(&slow); !ok {
			break
		}
		slow.add(p.decrement(), p.n, p.n)
		mean, precision := b.promise(&p.cur.siteState, &b.mover.cur)
		if first {
			b.pace = pace{after: remainder{mean / promise / promise, precision / promise}, measured: true}
		}
		left = mean + d*precision
		if mean+precision < goal && !p.cur.wild {
			break
		}
	}
	if err := p.workers.halt.Err(); err != nil {
		return err
	}
	if err := t.overflow(&p.cur.siteState, index); err != nil {
		return err
	}
	if b.fine && !(left <= weightBlockLast) || p.evaluations >= weightBlockEvals && left > weightBlockLeft {
		return fmt.Errorf("pgsvi: a block of %d rows, from %s on, is %.2g nats from its solution after %d steps; a prior nearer to the scale of the data helps: %w", len(base.m), t.name(dense.Index(index, 0)), left, p.evaluations, ErrDiverged)
	}
	if b.mover.moved {
		copy(base.gamma, p.cur.gamma)
		copy(base.a, p.cur.a)
		copy(base.m, p.cur.m)
		w.moveTo(&b.mover.cur)
	}
	return nil
}

// The span of the rows. Under a Gaussian N(m, P⁻¹), P = RRᵀ, the rows of X see of Rᵀ(w − m) no more than its part in the span of those of
// Z = XR⁻ᵀ: with Z = LQ, that is u = QRᵀ(w − m) ~ N(0, I) of as many dimensions as there are independent rows, and X(w − m) = Lu. Of few rows and many weights
// in units for which float64 has too few digits it is what can be afforded in twice as many.

// The span is worth its factor from so many weights on, and so many for each row. Fewer are as well fitted in their own units.
const (
	spanWeights = 100
	spanRows    = 2
)

// spanPays reports whether so many rows are few for so many weights.
func spanPays(rows, weights int) bool { return weights >= spanWeights && spanRows*rows <= weights }

// span returns L for the rows of x at index, whose sites have about these precisions; rows replaces one of them by its row of Z. L begins with what the strongest rows
// tell: what is left of the precisions of u is then no small part of them.
func span(x *design, index []int, gamma []float64, rows func(z dense.Double), h *parallel.Halt) *design {
	var z dense.Double
	n, d := len(gamma), x.cols
	weight := make([]float64, n)
	for a, g := range gamma {
		weight[a] = math.Sqrt(math.Abs(g))
	}
	z.Resize(n * d)
	z.Clear()
	for a := range n {
		x.dense1(z.Hi[a*d:(a+1)*d], dense.Index(index, a))
		if h.Stopped() {
			break
		}
		rows(z.Slice(a*d, (a+1)*d))
	}
	l, rank := z.LowerRows(h, weight)
	return &design{rows: n, cols: rank, dense: l}
}

// spans reports whether the problem of the block, whose targets at w are known, is worth solving over the span of its rows: where w with these takes
// twice the digits. Λ + Σ Δγ_n x_nx_nᵀ is at most 1 + Σ Δγ_n v_n times the precision Λ of w, and so less of a diagonal element may be left.
func (b *weightBlock) spans(w *weightState, x *design) bool {
	if !spanPays(len(b.base.m), x.cols) {
		return false
	}
	told := 1.0
	for i, v := range b.base.v {
		told += math.Abs(b.prob.cur.tg[i]-b.base.gamma[i]) * v
	}
	return w.double || !(w.pivot(w) >= leastPivot*told)
}

// inSpan solves the problem of the block over the span of its rows, and moves w to the solution, as moveOn does.
func (b *weightBlock) inSpan(w *weightState, x *design, at []int, t *siteTerms, index []int) error {
	base, h := &b.base, b.prob.workers.halt
	l := span(x, at, b.prob.cur.tg, w.whiten, h)
	if err := h.Err(); err != nil {
		return err
	}
	if b.near == nil {
		b.near = &weightBlock{}
	}
	s, near := b.near, &weightState{halt: h}
	s.use(b.prob.workers)
	s.fine, s.pace = b.fine, pace{}
	s.base.copyFrom(base)
	near.resize(l.cols)
	for j := range l.cols {
		near.p[j*l.cols+j] = 1
	}
	near.factor()
	if err := s.solve(near, l, nil, t.sub(index)); err != nil {
		return err
	}
	p := &b.prob
	for i, g := range s.base.gamma {
		p.delta[i] = g - base.gamma[i]
		p.u[i] = s.base.a[i] + g*(s.base.m[i]-base.m[i]) - base.a[i]
	}
	moved := b.mover.shift(p.delta, p.u)
	if err := h.Err(); err != nil {
		return err
	}
	if !moved {
		return fmt.Errorf("pgsvi: the precision with a block of %d rows, from %s on: %w", len(base.m), t.name(dense.Index(index, 0)), ErrDiverged)
	}
	copy(base.gamma, s.base.gamma)
	copy(base.a, s.base.a)
	copy(base.m, s.base.m)
	b.mover.accept()
	w.moveTo(&b.mover.cur)
	return nil
}

// weightMatrices is the number of D×D matrices that a model with a weightAlgebra has at its most: 13 measured, for three weightStates, the
// prior, and those of a step and a posterior, and two more for each of these where they need twice the digits.
const weightMatrices = 22

// weightAlgebra is the Gaussian over the weights of a GLM with a full covariance, whose sites are those of the rows,
//
//	V⁻¹ = Λ0 + Xᵀ diag(γ) X,   V⁻¹(m − μ0) = Xᵀb,
//
// unless a step with a given β has left them.
type weightAlgebra struct {
	lin   *linearModel
	n     int
	terms *siteTerms
	prior *weightState

	batch   siteProblem // of all rows; its state is the best that was evaluated
	mover   weightMover // of batch
	started bool        // batch has a state

	progress progress

	run           weightState // the current state, its mean about μ0
	gamma, a, eta []float64   // its sites: γ, and the linear coefficient about η
	ahead         bool        // run has left the state of batch
	free          bool        // run has no sites

	blocks   weightBlock
	gap      weightGap
	proof    proof
	pg       weightPaper
	workers  crew
	distance float64   // that the last step went
	before   []float64 // the mean before a step
	in       []bool    // scratch of distinct
	unique   []int
}

func newWeightAlgebra(l *linearModel, c crew) (*weightAlgebra, error) {
	prior, err := l.prior.stateUntil(c.halt)
	if err != nil {
		return nil, err
	}
	s := &weightAlgebra{lin: l, n: l.x.rows, terms: l.terms, prior: prior}
	s.gamma, s.a, s.eta = make([]float64, s.n), make([]float64, s.n), make([]float64, s.n)
	s.run.copyFrom(s.prior)
	s.ahead = true
	if l.outerPays() {
		s.batch.outer = min(l.x.rows, l.x.cols)
	}
	s.blocks.rough = s.n >= ampleRows*l.x.cols
	s.use(c)
	return s, nil
}

// ampleRows is the number of rows a weight from which on the log-likelihoods of half of them add up to so nearly a parabola that one step of
// Newton's to all of them leaves little: blocks need not be solved for long.
const ampleRows = 64

// outerWork is the number of multiplications for each row that a new V must take for outer steps to be worth while: those of 64 dense
// columns, where the expectations of the inner steps take as long as what they save.
const outerWork = 64 * 64

// outerPays reports whether a full covariance of the weights costs enough for outer steps.
func (l *linearModel) outerPays() bool {
	n, d := float64(l.x.rows), float64(l.x.cols)
	work := d * d * d
	if l.x.sparse == nil {
		work += n * d * d
	} else {
		for i := range l.x.rows {
			ind, _ := l.x.sparse.Row(i)
			work += float64(len(ind) * len(ind))
		}
	}
	return work > outerWork*n
}

// plan is outer steps of all rows where these pay, and otherwise one pass of blocks that grow, to come near, and then all rows at a time.
func (s *weightAlgebra) plan() Plan {
	if s.batch.outer > 0 {
		return Plan{}
	}
	first := min(max(32, 2*s.lin.x.cols), (s.n+3)/4)
	return Plan{Batch: first, Sampler: approach{first}}
}

func (s *weightAlgebra) closedForm() bool { return true }

func (s *weightAlgebra) scope() Scope { return OverQ }

func (s *weightAlgebra) moved() float64 { return s.distance }

func (s *weightAlgebra) use(c crew) {
	s.workers, s.batch.workers = c, c
	s.pg.buf.halt, s.pg.next.halt, s.pg.metric.halt, s.run.halt = c.halt, c.halt, c.halt, c.halt
	s.prior.halt, s.gap.target.halt, s.gap.buf.halt = c.halt, c.halt, c.halt
	s.mover.use(c.halt)
	s.blocks.use(c)
}

// begin prepares the problem of all rows.
func (s *weightAlgebra) begin() {
	if s.mover.x != nil {
		return
	}
	s.mover.base, s.mover.prior = s.prior, &s.lin.prior
	var base siteState
	base.resize(s.n)
	clear(base.gamma)
	clear(base.a)
	clear(base.m)
	if prec := s.lin.prior.prec; prec != nil {
		v := make([]float64, len(prec))
		for j, l := range prec {
			v[j] = 1 / l
		}
		s.lin.x.quadDiagOn(s.workers.halt, base.v, v, nil)
	} else {
		s.prior.variances(base.v, s.lin.x, nil, &s.mover.buf)
	}
	s.batch.plain = s.n > 100000
	s.batch.prepare(s.terms, nil, &s.mover, &base)
	if !s.workers.halt.Stopped() {
		s.mover.x = s.lin.x
	}
}

// settle evaluates the current state and makes it that of batch, if it is no
// worse than that; otherwise it steps from there on all rows together.
func (s *weightAlgebra) settle() error {
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
	ok := false
	if s.started || s.hasSites() {
		for i, g := range s.gamma {
			p.try.gamma[i], p.try.c[i] = g, s.a[i]+g*s.eta[i]
		}
		ok = p.eval() && !math.IsInf(p.try.value, 0)
		if err := s.workers.halt.Err(); err != nil {
			return err
		}
	}
	switch {
	case s.started && ok && p.accept():
	case s.started:
		if !p.iterate() { // the blocks were no good
			if err := s.workers.halt.Err(); err != nil {
				return err
			}
		}
	case ok:
		p.cur, p.try = p.try, p.cur
		s.mover.accept()
	default:
		if err := p.start(); err != nil {
			return err
		}
		s.mover.start()
	}
	s.started, s.ahead, s.free = true, false, false
	s.sync()
	return nil
}

// hasSites reports whether the running state is not the prior.
func (s *weightAlgebra) hasSites() bool {
	for i, g := range s.gamma {
		if g != 0 || s.a[i] != 0 {
			return true
		}
	}
	return false
}

// sync makes the running state that of batch.
func (s *weightAlgebra) sync() {
	p := &s.batch
	s.run.copyFrom(&s.mover.cur)
	copy(s.gamma, p.cur.gamma)
	copy(s.a, p.cur.a)
	copy(s.eta, p.cur.m)
}

// sitesHere gives a state without sites those that it would move to.
func (s *weightAlgebra) sitesHere() error {
	var t siteState
	t.resize(s.n)
	s.lin.x.mul(t.m, s.run.mean, nil)
	s.run.variances(t.v, s.lin.x, nil, &s.mover.buf)
	if err := s.terms.expect(&t, nil, s.workers); err != nil {
		return err
	}
	copy(s.gamma, t.tg)
	copy(s.a, t.d1)
	copy(s.eta, t.m)
	return nil
}

// ascend implements algebra.
func (s *weightAlgebra) ascend() (passes int, err error) {
	s.proof = proof{}
	if err := s.settle(); err != nil {
		return 0, err
	}
	s.before = append(s.before[:0], s.run.mean...)
	passes, ok := s.batch.stride(&s.progress)
	if !ok {
		if err := s.workers.halt.Err(); err != nil {
			return 0, err
		}
	}
	s.progress.add(s.batch.decrement(), s.n, s.n)
	s.distance = floats.Distance(s.before, s.mover.cur.mean, 2)
	s.sync()
	return passes, nil
}

func (s *weightAlgebra) slow() bool { return s.progress.slow }

// block implements algebra. What it does to the ELBO is seen when that is evaluated.
func (s *weightAlgebra) block(batch []int) error {
	s.proof = proof{}
	if s.free {
		if err := s.settle(); err != nil {
			return err
		}
	}
	b := &s.blocks
	batch = s.distinct(batch)
	m := len(batch)
	b.base.resize(m)
	s.lin.x.mulOn(s.workers.halt, b.base.m, s.run.mean, batch)
	for k, i := range batch {
		b.base.gamma[k] = s.gamma[i]
		b.base.a[k] = s.a[i] - s.gamma[i]*(b.base.m[k]-s.eta[i])
	}
	s.before = append(s.before[:0], s.run.mean...)
	if err := b.solve(&s.run, s.lin.x, batch, s.terms); errors.Is(err, ErrNotFinite) || errors.Is(err, ErrDiverged) {
		// Where the other rows have led, this block has no expectations, or is not solved: it is left
		// out, and all rows together will tell.
		s.distance, s.ahead = 0, true
		return nil
	} else if err != nil {
		return err
	}
	for k, i := range batch {
		s.gamma[i], s.a[i], s.eta[i] = b.base.gamma[k], b.base.a[k], b.base.m[k]
	}
	s.distance = floats.Distance(s.before, s.run.mean, 2)
	s.ahead = true
	return nil
}

// distinct returns batch without repetitions.
func (s *weightAlgebra) distinct(batch []int) []int {
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

// evaluate implements algebra. Blocks that have made the ELBO fall are taken
// back. The gap is ½δᵀFδ in natural parameters, with the gradient g of the ELBO in the mean and
// the distance ΔP of the precision from its target,
//
//	½ gᵀVg + ¼ tr(VΔPVΔP),
//
// of which the second is bounded as siteChange says, with what rounding may hide where features are collinear to more digits than there are;
// after a step with a given β it is not known.
func (s *weightAlgebra) evaluate(within float64) (Evaluation, error) {
	if s.free {
		return s.freeEvaluation()
	}
	if err := s.settle(); err != nil {
		return Evaluation{}, err
	}
	gap := s.promise()
	if !s.proof.made && (s.batch.outer > 0 || s.blocks.rough && gap <= worthStepping*float64(s.lin.x.cols)) {
		if err := s.stepMean(); err != nil {
			return Evaluation{}, err
		}
		gap = s.promise()
	}
	if !s.proof.made && gap <= max(worthProving, within) {
		stepped := s.proof.stepped
		bound, err := s.prove(goalOf(within, s.n, -s.batch.cur.value))
		if err != nil {
			return Evaluation{}, err
		}
		if stepped { // and so it stays where it is
			gap += s.proof.rounding
		} else {
			gap = s.promise()
		}
		s.proof.bound = boundOf(bound)
		gap = min(gap, s.proof.bound)
	}
	s.proof.made = true
	c := &s.batch.cur
	bound := c.err + s.mover.cur.rounding() + s.mover.cur.resolution()
	return Evaluation{ELBO: -c.value, ELBOErr: neverZero(bound), Gap: neverZero(gap), GapBound: s.proof.bound}, nil
}

// promise returns the gap of the state of the problem of all rows, as evaluate says.
func (s *weightAlgebra) promise() float64 {
	c := &s.batch.cur
	if c.wild {
		return math.Inf(1)
	}
	s.blocks.mover.x, s.blocks.mover.index = s.lin.x, nil
	gap, _ := s.blocks.promise(&c.siteState, &s.mover.cur)
	change := c.change()
	return gap + 0.25*change.square() + s.mover.cur.rounding() + s.proof.rounding
}

// weights implements weighted.
func (s *weightAlgebra) weights() ([]float64, weightCov, error) {
	w := &weightState{}
	w.copyFrom(&s.run)
	return append([]float64(nil), w.mean...), &fullCov{s: w}, nil
}

// weightPaper is the workspace of the step with a given β.
type weightPaper struct {
	w, rest      []float64
	h            dense.Double
	next, metric weightState // the target, about the current mean, and the metric of h
	base         weightState // the target without the batch
	valid, tried bool        // the target is positive definite; that is known no more
	appendix     bool
	negative     bool // some γ̂ is
	buf          designWork
}

// marginals implements algebra.
func (s *weightAlgebra) marginals(x *siteEstimates, batch []int) error {
	m := len(batch)
	if batch == nil {
		m = s.n
	}
	x.resize(m)
	s.lin.x.mulOn(s.workers.halt, x.m, s.run.mean, batch)
	s.run.variances(x.v, s.lin.x, batch, &s.pg.buf)
	return nil
}

// aim implements algebra: h = (1−r)(Xᵀα̂ − Λ0 m) and P₊ = rP + (1−r)(Λ0 + XᵀΓ̂X), of which h is moved by the
// metric to the move of the mean.
func (s *weightAlgebra) aim(x *siteEstimates, batch []int, m paperMove) error {
	t, d := &s.pg, s.lin.x.cols
	t.w = dense.Resize(t.w, len(x.m))
	for k := range x.m {
		t.w[k] = -m.scale * x.d2[k]
		x.d1[k] *= m.scale
	}
	t.base.average(m.r, &s.run, s.prior)
	if t.appendix = m.appendix; t.appendix {
		t.metric.copyPrecision(&t.base)
		if !t.metric.factor() {
			return fmt.Errorf("metric of the mean update: %w", ErrNotPosDef)
		}
	}
	t.valid, t.tried = t.next.add(&t.base, s.lin.x, t.w, batch, &t.buf), false
	t.negative = len(t.w) > 0 && slices.Min(t.w) < 0
	t.h.Resize(d)
	clear(t.h.Lo)
	dense.Symv(m.r-1, dense.Symmetric(s.prior.p, d), dense.Vector(s.run.mean), 0, dense.Vector(t.h.Hi))
	if t.next.double {
		s.lin.x.addMulTDouble(t.h, x.d1, batch, &t.buf)
	} else {
		s.lin.x.addMulT(t.h.Hi, x.d1, batch)
	}
	return nil
}

// try implements algebra.
func (s *weightAlgebra) try(noisy bool) (valid, edge bool) {
	t := &s.pg
	if t.tried {
		t.valid = t.next.factor()
	}
	if t.tried = true; !t.valid {
		return false, false
	}
	return true, noisy && t.negative && !s.above(&t.next) && s.above(&s.run)
}

// above reports whether P − noisyPivot·Λ0 is positive definite.
func (s *weightAlgebra) above(w *weightState) bool {
	t := &s.pg
	t.rest = dense.Resize(t.rest, len(w.p))
	floats.AddScaledTo(t.rest, w.p, -noisyPivot, s.prior.p)
	return dense.Cholesky(t.rest, len(w.mean))
}

// halve implements algebra.
func (s *weightAlgebra) halve() {
	t := &s.pg
	t.next.average(0.5, &t.next, &s.run)
	floats.Scale(0.5, t.h.Hi)
	floats.Scale(0.5, t.h.Lo)
}

// take implements algebra.
func (s *weightAlgebra) take() error {
	t := &s.pg
	metric := &t.next
	if t.appendix {
		metric = &t.metric
	}
	metric.apply(t.h)
	if j, ok := dense.AllFinite(t.h.Hi); !ok {
		return fmt.Errorf("mean of weight %d (%s) would move by %v: %w", j, s.lin.names[j], t.h.Hi[j], ErrNotFinite)
	}
	s.distance = floats.Norm(t.h.Hi, 2)
	floats.AddTo(t.next.mean, s.run.mean, t.h.Hi)
	s.run, t.next = t.next, s.run
	s.free, s.ahead, s.started, s.proof = true, true, false, proof{}
	return nil
}

// freeEvaluation is evaluate for a state without sites, with
//
//	KL = ½(tr(Λ0V) − D + mᵀΛ0m + log|P| − log|Λ0|).
//
// With c = Λ0m − Xᵀα̂ and A = Λ0 + XᵀΓ̂X the gap is about ½cᵀA⁻¹c + ½(tr(AV) − D + log|P| − log|A|), and of concave terms it is proved to be no
// more than with Λ0 in place of A⁻¹, and twice the second part.
func (s *weightAlgebra) freeEvaluation() (Evaluation, error) {
	t, g := &s.pg, &s.gap
	var c siteState
	c.resize(s.n)
	s.lin.x.mul(c.m, s.run.mean, nil)
	s.run.variances(c.v, s.lin.x, nil, &t.buf)
	if err := s.terms.expect(&c, nil, s.workers); err != nil {
		return notEvaluated(), err
	}
	s.run.invert()
	d := s.lin.x.cols
	trace := -float64(d) // tr(Λ0V) − D
	for i := range d {
		for j := range i {
			trace += 2 * s.prior.p[i*d+j] * s.run.inv[i*d+j]
		}
		trace += s.prior.p[i*d+i] * s.run.inv[i*d+i]
	}
	g.c, g.z = dense.Resize(g.c, d), dense.Resize(g.z, d)
	dense.Symv(1, dense.Symmetric(s.prior.p, d), dense.Vector(s.run.mean), 0, dense.Vector(g.c))
	kl := trace + floats.Dot(g.c, s.run.mean) + s.run.logDet - s.prior.logDet
	e := Evaluation{ELBO: floats.Sum(c.e) - 0.5*kl, ELBOErr: neverZero(c.err), Gap: math.Inf(1)}
	if !c.wild && !math.IsInf(e.ELBO, 0) && g.target.add(s.prior, s.lin.x, c.tg, nil, &t.buf) {
		for n, a := range c.d1 {
			c.a[n] = -a
		}
		s.lin.x.addMulTOn(g.c, c.a, nil, &t.buf)
		s.lin.prior.solve(g.z, g.c)
		mean := 0.5 * floats.Dot(g.c, g.z)
		own := floats.Dot(c.tg, c.v)
		rounding := dense.Epsilon * (float64(d) + math.Abs(own) + math.Abs(s.run.logDet) + math.Abs(g.target.logDet))
		precision := max(0, own+trace+s.run.logDet-g.target.logDet) + rounding
		copy(g.z, g.c)
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(g.target.l, d), dense.Vector(g.z))
		e.Gap = neverZero(0.5*floats.Dot(g.z, g.z) + 0.5*precision)
		if c.certain {
			e.GapBound = neverZero(mean + precision)
		}
	}
	return e, s.workers.halt.Err()
}

func (s *weightAlgebra) state(c *save.State) {
	d := s.lin.x.cols
	s.run.state(c, d)
	c.Floats(s.n, &s.gamma, &s.a, &s.eta)
	begun := s.mover.x != nil
	c.Bool(&s.ahead, &s.free, &s.started, &begun, &s.blocks.pace.measured)
	s.proof.state(c)
	c.Check(begun || !s.started, "a problem that has not begun has a state")
	s.progress.state(c)
	c.Int(&s.blocks.pace.age)
	c.Float(&s.blocks.pace.after.mean, &s.blocks.pace.after.precision)
	if !begun || c.Err() != nil {
		s.mover.x = nil
		return
	}
	s.begin()
	s.batch.state(c, s.started)
	if s.started {
		s.mover.cur.state(c, d)
		s.mover.moved = true
	}
}

func (s *weightAlgebra) constant() bool { return !s.free && !s.ahead && s.proof.made }

// loosePrecisions bounds by how much more than what it bounds a bound on the precisions by the sites alone may be, as seen: where that
// may be below the goal a product XᵀΓX and its factor say what it is.
const loosePrecisions = 10

// worthStepping is the estimated gap, in nats a weight, below which a step of the mean is worth while where there are many rows: it takes their
// expectations, but no XᵀΓX, and targets at the mean that it leads to are as good as those of a pass more.
const worthStepping = 1

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
// the gap of the state reached, but for the error of log|P|. The error is that of the crew; the proof can then be gone on with.
func (s *weightAlgebra) prove(goal float64) (float64, error) {
	if !s.terms.concave() || !s.batch.cur.certain {
		return math.Inf(1), nil
	}
	if err := s.stepMean(); err != nil {
		return 0, err
	}
	p, m := &s.batch, &s.mover
	c := &p.cur
	if !c.certain {
		return math.Inf(1), nil
	}
	g, d := &s.gap, s.lin.x.cols
	g.c, g.h = dense.Resize(g.c, d), dense.Resize(g.h, s.n)
	floats.SubTo(g.h, c.a, c.d1)
	clear(g.c)
	s.lin.x.addMulTOn(g.c, g.h, nil, &g.buf)
	g.z = dense.Resize(g.z, d)
	s.lin.prior.solve(g.z, g.c)
	s.proof.rounding = s.unsolved()
	mean, rows := 0.5*floats.Dot(g.c, g.z), math.Inf(1)
	change := c.change()
	precision := change.gap()
	byRows := func() { // where that may be less
		if math.IsInf(rows, 1) && mean+precision > goal && mean > precision {
			rows = s.terms.rowGap(&c.siteState, -c.value, p.base.v, nil, s.workers.halt)
		}
	}
	byRows()
	if total := mean + precision; min(total, rows+2*precision) > goal && precision <= loosePrecisions*goal && g.target.add(s.prior, s.lin.x, c.tg, nil, &g.buf) {
		rounding := dense.Epsilon * (math.Abs(g.target.logDet) + math.Abs(m.cur.logDet) + change.nuclear)
		exact := max(0, change.trace+m.cur.logDet-g.target.logDet) + rounding
		precision = min(precision, exact)
		byRows()
	}
	// The rows speak of the mean with V held: what it gains by V's move is allowed for by as much as V gains itself.
	return min(mean+precision, rows+2*precision) + s.proof.rounding, s.workers.halt.Err()
}

// unsolved returns a bound on what rounding of the mean w leaves to gain. It solves Λ0w = Xᵀa but for a residual r, and the mean
// that solves it is at P⁻¹r, by which the ELBO changes by about ½rᵀP⁻¹r: the bound is twice that.
func (s *weightAlgebra) unsolved() float64 {
	t, m := &s.pg, &s.mover
	t.h.Resize(s.lin.x.cols)
	off := s.residualError()
	if plain := off <= elboSlack*math.Abs(s.batch.cur.value); plain {
		for j, l := range s.lin.prior.prec {
			t.h.Hi[j] = -l * m.cur.mean[j]
		}
		s.lin.x.addMulTOn(t.h.Hi, s.batch.cur.a, nil, &s.gap.buf)
	} else {
		m.base.residual(t.h, &m.cur, s.lin.x, s.batch.cur.a, &s.gap.buf)
		off = 0
	}
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(m.cur.l, s.lin.x.cols), dense.Vector(t.h.Hi))
	r := floats.Dot(t.h.Hi, t.h.Hi)
	return r + 2*math.Sqrt(r*off) + off
}

// residualError returns a bound on eᵀP⁻¹e for the rounding e of a residual r in float64, +Inf where that is not known. Sums of N products are off by
// Nε‖a‖‖x_j‖ at most, for column j, and as P ⪰ Λ0 that is worth no more than (Nε‖a‖)² Σ_j ‖x_j‖²/λ_j, where the sum is that of the variances of the rows under the prior.
func (s *weightAlgebra) residualError() float64 {
	c, prec := &s.batch.cur, s.lin.prior.prec
	if prec == nil || s.mover.cur.double || slices.Min(c.gamma) < 0 {
		return math.Inf(1)
	}
	sums := float64(s.n+2) * floats.Norm(c.a, 2) * math.Sqrt(floats.Sum(s.batch.base.v))
	var own float64
	for j, w := range s.mover.cur.mean {
		own += prec[j] * w * w
	}
	e := dense.Epsilon * (sums + math.Sqrt(own))
	return e * e
}

// stepMean takes the step of the mean of a state whose gap is asked for, once. The error is that of the crew.
func (s *weightAlgebra) stepMean() error {
	if s.proof.stepped {
		return nil
	}
	if !s.meanStep() {
		if err := s.workers.halt.Err(); err != nil {
			return err
		}
	}
	s.proof.stepped = true
	return nil
}

// meanStep makes m⁺ = m − Vc, V held, the mean of the problem of all rows, or what follows from the best mean that inner steps find, if its
// value does not rise. It reports whether it did.
func (s *weightAlgebra) meanStep() bool {
	p := &s.batch
	x := &p.cur.siteState
	if p.outer > 0 && !x.wild {
		p.inner(innerLeast, innerPart)
		x = &p.in.at
	}
	if s.workers.halt.Stopped() || !p.again(x) {
		return false
	}
	s.sync()
	return true
}

// spanAlgebra is the algebra of a linear model with few rows over their span, until a step with a given β takes it to the weights.
type spanAlgebra struct {
	*weightAlgebra // near or, once wide, one over the weights
	near           *weightAlgebra
	whole          *linearModel
	wide           bool
}

// newSpanAlgebra returns the prior of l, whose sites may come to have the given precisions.
func newSpanAlgebra(l *linearModel, gamma []float64, c crew) (*spanAlgebra, error) {
	rows := func(z dense.Double) {
		for j, p := range l.prior.prec {
			z.Hi[j], z.Lo[j] = dense.Product(z.Hi[j], 1/math.Sqrt(p))
		}
	}
	if w := l.prior.full; w != nil {
		rows = w.whiten
	}
	x := span(l.x, nil, gamma, rows, c.halt)
	if err := c.halt.Err(); err != nil {
		return nil, err
	}
	prior := weightPrior{mean: make([]float64, x.cols), prec: make([]float64, x.cols)}
	names := make([]string, x.cols)
	for j := range names {
		prior.prec[j], names[j] = 1, fmt.Sprintf("dimension %d of the rows", j)
	}
	near, err := newWeightAlgebra(&linearModel{terms: l.terms, x: x, prior: prior, names: names, maxMemory: l.maxMemory}, c)
	return &spanAlgebra{weightAlgebra: near, near: near, whole: l}, err
}

// weights implements weighted.
func (s *spanAlgebra) weights() ([]float64, weightCov, error) {
	if s.wide {
		return s.weightAlgebra.weights()
	}
	return s.whole.primal(s.gamma, s.a, s.eta, s.workers.halt)
}

// aim implements algebra: a step with a given β is one of the weights.
func (s *spanAlgebra) aim(x *siteEstimates, batch []int, m paperMove) error {
	if err := s.widen(); err != nil {
		return err
	}
	return s.weightAlgebra.aim(x, batch, m)
}

// widen goes on with the weights.
func (s *spanAlgebra) widen() error {
	if s.wide {
		return nil
	}
	w, err := newWeightAlgebra(s.whole, s.workers)
	if err != nil {
		return err
	}
	if s.hasSites() {
		at, err := s.whole.at(s.gamma, s.a, s.eta, s.workers.halt)
		if err != nil {
			return err
		}
		w.run.copyFrom(at)
		copy(w.gamma, s.gamma)
		copy(w.a, s.a)
		copy(w.eta, s.eta)
	}
	s.weightAlgebra, s.wide = w, true
	return nil
}

func (s *spanAlgebra) state(c *save.State) {
	wide := s.wide
	c.Bool(&wide)
	switch {
	case c.Err() != nil || wide == s.wide:
	case wide:
		w, err := newWeightAlgebra(s.whole, s.workers)
		if c.Check(err == nil, "its prior: %v", err); err != nil {
			return
		}
		s.weightAlgebra, s.wide = w, true
	default:
		s.weightAlgebra, s.wide = s.near, false
	}
	s.weightAlgebra.state(c)
}

// potentials returns b of the sites γ and a about the linear predictors m − o: V⁻¹ times the mean is Xᵀb.
func potentials(gamma, a, m []float64) []float64 {
	b := make([]float64, len(a))
	for i, g := range gamma {
		b[i] = a[i] + g*m[i]
	}
	return b
}

// at returns the weights at these sites, new.
func (l *linearModel) at(gamma, a, m []float64, h *parallel.Halt) (*weightState, error) {
	cov := &dualCov{x: l.x, gamma: gamma, prior: &l.prior}
	w, err := cov.state(h)
	if err == nil {
		w.solve(l.x, potentials(gamma, a, m), nil, &designWork{halt: h})
	}
	return w, err
}

// primal returns mean and covariance of the weights at these sites.
func (l *linearModel) primal(gamma, a, m []float64, h *parallel.Halt) ([]float64, weightCov, error) {
	w, err := l.at(gamma, a, m, h)
	if err != nil {
		return nil, nil, err
	}
	mean := append([]float64(nil), w.mean...)
	clear(w.mean)
	return mean, &fullCov{s: w}, nil
}
