package site

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// weightMover is the Mover of linear functions η = Xw of D weights whose
// Gaussian is at hand: a move costs Σ nnz² + D³/3 operations.
type weightMover struct {
	X     *design.Matrix
	Index []int
	Base  *gauss.State // not owned
	prior *gauss.Prior // that the base is, or nil
	// after the move accepted last and the last move; their means are moves from that of the base
	Cur, try gauss.State
	kept     gauss.State // cur when it was marked, if it was valid
	held     bool        // it was
	moved    bool        // cur is valid
	Buf      design.Work
	w        dense.Double
	s        []float64 // covariance of the rows
}

func (a *weightMover) Cover(v, delta []float64) (logDet float64, ok bool) {
	t := &a.try
	if !t.Add(a.Base, a.X, delta, a.Index, &a.Buf) {
		return 0, false
	}
	t.Variances(v, a.X, a.Index, &a.Buf)
	limit := 1 + 1e-6 // which a site of positive Δ does not exceed, but for rounding,
	if len(delta) > 0 && slices.Min(delta) < 0 {
		limit = math.Inf(1) // unless there are negative ones
	}
	for i, vi := range v {
		if !(vi >= 0) || math.IsInf(vi, 0) || delta[i]*vi > limit {
			return 0, false
		}
	}
	return t.LogDet - a.Base.LogDet, true
}

func (a *weightMover) Move(d, delta, u []float64) (square float64) {
	t := &a.try
	t.Solve(a.X, u, a.Index, &a.Buf)
	t.Predict(d, a.X, a.Index)
	for i, di := range d {
		u[i] -= delta[i] * di
	}
	return a.Base.Square(t, &a.w)
}

// A covariance of N rows takes N²D operations where a move takes ND²: it is worth them for
// so many rows a weight, or so few rows in all that their expectations take longer.
const (
	covarianceRows = 8
	covarianceFew  = 256
)

func (a *weightMover) Covariance() []float64 {
	if !a.coversRows() {
		return nil // before there is room for N² numbers
	}
	a.s = dense.Resize(a.s, a.X.Rows*a.X.Rows)
	if !a.rowsUnder(a.known(), a.s) {
		return nil
	}
	return a.s
}

func (a *weightMover) before(dst []float64) bool {
	if !a.coversRows() || !a.rowsUnder(a.Base, dst) {
		return false
	}
	dense.FillUpper(dst, a.X.Rows)
	return true
}

// coversRows reports whether the covariance of the rows costs not far more than a move.
func (a *weightMover) coversRows() bool {
	return a.Index == nil && a.X.Rows <= max(covarianceFew, covarianceRows*a.X.Cols)
}

// rowsUnder stores the covariance of the rows under at in dst, unless it is halted.
func (a *weightMover) rowsUnder(at *gauss.State, dst []float64) bool {
	n, d := a.X.Rows, a.X.Cols
	a.w.Resize(d)
	for i := range n {
		if a.Buf.Halt.Stopped() {
			return false
		}
		a.X.Dense1(a.w.Hi, i)
		dense.Potrs(at.L, a.w.Hi)
		a.X.Mul(dst[i*n:(i+1)*n], a.w.Hi, nil)
	}
	return true
}

func (a *weightMover) mark() {
	if a.held = a.moved; a.held {
		a.kept.CopyFrom(&a.Cur)
	}
}

func (a *weightMover) back() {
	if a.moved = a.held; a.held {
		a.Cur.CopyFrom(&a.kept)
	}
}

// start makes the base the current state.
func (a *weightMover) start() {
	a.Cur.CopyFrom(a.Base)
	clear(a.Cur.Mean)
	clear(a.Cur.MeanLow)
	a.moved = true
}

func (a *weightMover) hold(d, delta, u []float64) (square float64) {
	a.try.CopyFrom(&a.Cur)
	return a.Move(d, delta, u)
}

// known is the state whose covariance is at hand.
func (a *weightMover) known() *gauss.State {
	if a.moved {
		return &a.Cur
	}
	return a.Base
}

func (a *weightMover) weights() int { return a.X.Cols }

func (a *weightMover) gather(u, r []float64) bool {
	if a.known().Double {
		return false
	}
	clear(u)
	a.X.AddMulTOn(u, r, a.Index, &a.Buf)
	return true
}

func (a *weightMover) spread(w, u []float64) bool {
	if at := a.known(); at == a.Base && a.prior != nil {
		a.prior.Solve(w, u)
	} else {
		copy(w, u)
		dense.Potrs(at.L, w)
	}
	return true
}

func (a *weightMover) curve(eta, u, w, h []float64) {
	clear(u)
	a.X.MulGram(u, eta, w, h, a.Index, &a.Buf)
}

// shift computes try alone: P + XᵀΔX, and the move of the weights (P + XᵀΔX)⁻¹Xᵀu.
func (a *weightMover) shift(delta, u []float64) bool {
	t := &a.try
	if !t.Add(a.Base, a.X, delta, a.Index, &a.Buf) {
		return false
	}
	t.Solve(a.X, u, a.Index, &a.Buf)
	_, ok := dense.AllFinite(t.Mean)
	return ok
}

// use makes moves end when h stops.
func (a *weightMover) use(h *parallel.Halt) { a.Buf.Halt, a.Cur.Halt, a.try.Halt = h, h, h }

func (a *weightMover) Accept() {
	a.Cur, a.try = a.try, a.Cur
	a.moved = true
}

// WeightBlock solves the problem of a block of rows, with everything else held
// fixed as the Gaussian over the weights that it is given:
//
//	argmin KL(q‖cavity) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)].
//
// Where the rows of the block have no sites yet the cavity is the given Gaussian itself.
type WeightBlock struct {
	Mover weightMover
	prob  Problem
	Base  term.State
	g, h  []float64
	up    []float64 // gradient of the ELBO in the mean, computed by Promise
	Pace  Pace
	Fine  bool          // check every step, and solve to WeightBlockFine
	rough bool          // solve blocks of many rows to weightBlockRough: they are visited again
	Near  *WeightBlock  // of few rows, over their span
	rows  design.Matrix // those of the block, gathered
}

// Use lets the crew solve.
func (b *WeightBlock) Use(c term.Crew) {
	b.prob.Workers = c
	b.Mover.use(c.Halt)
}

// Pace is what blocks before tell of whether the next step needs a check.
type Pace struct {
	After    Remainder // of the last first step that was checked
	Age      int       // blocks since then
	Measured bool      // there was one
}

// unchecked reports whether a first step that promises so much may go unchecked, as it leaves less
// than so many nats, and all since the last check together, if each left as much, less than
// weightBlockTogether times that.
func (p *Pace) unchecked(promise, left float64) bool {
	leaves := p.After.of(promise)
	return p.Measured && leaves < left && float64(p.Age+1)*leaves <= weightBlockTogether*left &&
		p.Age < weightBlockUnchecked
}

// Remainder is what a step to the target left to gain, in nats: in the mean as
// a multiple of the square of what was promised before, for that is how Newton
// steps converge, and in the precision as a multiple of it.
type Remainder struct{ Mean, Precision float64 }

func (r Remainder) of(promise float64) float64 { return promise * (promise*r.Mean + r.Precision) }

// A block is solved until what is left to gain is this small in nats, as a part of what it promised
// and in any case, or after so many evaluations. Steps that promise to leave less than the former
// are taken unchecked, until together they leave weightBlockTogether times as much, and no more
// than weightBlockUnchecked of them. Of 300,000 rows of 50 columns the late blocks leave 1e-8 nats:
// one in nine checked took 6% of the time more than one in 65.
const (
	weightBlockTol  = 1e-4
	weightBlockGoal = 1e-2
	WeightBlockFine = 1e-7 // where it is the last one
	// of what it promised, where rows are visited again: what other blocks are yet to tell is more
	weightBlockRough     = 0.03
	weightBlockEvals     = 1000
	weightBlockTogether  = 8
	weightBlockUnchecked = 64
	weightBlockLeft      = 1 // nats that may be left after weightBlockEvals,
	// or where it is the last one and rounding allows no step: 4% of a variance
	weightBlockLast = 5e-4
)

// Promise returns what the linearised problem promises in nats: in the mean
// ½gᵀP⁻¹g, g = Xᵀ(d1 − a) the gradient of the ELBO, and in the precision, of which
// it only sees the trace, ¼ tr(VΔP)²/D ≤ ¼ tr((VΔP)²).
func (b *WeightBlock) Promise(s *term.State, at *gauss.State) (mean, precision float64) {
	d := b.Mover.X.Cols
	b.g, b.up = dense.Resize(b.g, d), dense.Resize(b.up, d)
	b.h = dense.Resize(b.h, len(s.D1))
	floats.SubTo(b.h, s.D1, s.A)
	clear(b.up)
	b.Mover.X.AddMulTOn(b.up, b.h, b.Mover.Index, &b.Mover.Buf)
	copy(b.g, b.up)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(at.L, d), dense.Vector(b.g))
	var trace float64
	for i, v := range s.V {
		trace += math.Abs(s.Tg[i]-s.Gamma[i]) * v
	}
	return 0.5 * floats.Dot(b.g, b.g), 0.25 * trace * trace / float64(d)
}

// Solve moves w to the solution, for the rows of x that index names, with whose terms are t, with
// the sites of b.base (γ, and a about its m), which it replaces by those of the solution. The sites
// that b.base has say how many rows there are.
func (b *WeightBlock) Solve(w *gauss.State, x *design.Matrix, index []int, t *term.Terms) error {
	x, at := b.near(x, index)
	return b.solve(w, x, at, t, index)
}

// near returns the rows of x at index, in memory one after the other if that pays, and their
// numbers there. They are valid until the next call.
func (b *WeightBlock) near(x *design.Matrix, index []int) (rows *design.Matrix, at []int) {
	if x.Sparse == nil && index != nil && len(index)*x.Cols <= mostGathered {
		return b.gather(x, index), nil
	}
	return x, index
}

// solve is Solve for the rows of x at the given numbers, whose terms index names.
func (b *WeightBlock) solve(w *gauss.State, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	b.Mover.X, b.Mover.Index, b.Mover.Base, b.Mover.moved = x, at, w, false
	before := b.Pace
	if err := b.moveOn(w, x, at, t, index); err != nil {
		b.Pace = before
		return err
	}
	return nil
}

// mostGathered is the number of values, 64 MB, up to which the rows of a block are gathered: each
// of a handful of products with them then finds them together.
const mostGathered = 1 << 23

// gather returns copies of the dense rows of x at index, valid until the next call.
func (b *WeightBlock) gather(x *design.Matrix, index []int) *design.Matrix {
	d := x.Cols
	b.rows = design.Matrix{Rows: len(index), Cols: d,
		Dense: dense.Resize(b.rows.Dense, len(index)*d)}
	if !x.Shared(b.Mover.Buf.Halt, len(b.rows.Dense)) {
		x.Gather(b.rows.Dense, index)
		return &b.rows
	}
	parallel.For(len(index), design.CopiedRows, b.Mover.Buf.Halt.Workers(),
		func(_, lo, hi int) { x.Gather(b.rows.Dense[lo*d:hi*d], index[lo:hi]) })
	return &b.rows
}

// moveOn is solve for the rows of x at the given numbers, whose terms index names; its halt may
// leave it with another pace.
func (b *WeightBlock) moveOn(w *gauss.State, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	p, base := &b.prob, &b.Base
	w.Variances(base.V, x, at, &b.Mover.Buf)
	p.plain = len(base.M) > 4*x.Cols
	if err := p.Init(t, index, &b.Mover, base); err != nil {
		return err
	}
	promise, precision := b.Promise(&p.Cur.State, w)
	d := float64(x.Cols)
	left := promise + d*precision // nats: ¼ tr(VΔP)² is a bound where one row tells most
	if promise += precision; promise < 1e-15 {
		return t.Overflow(&p.Cur.State, index)
	}
	if b.spans(w, x) {
		return b.inSpan(w, x, at, t, index)
	}
	goal, unchecked := math.Min(weightBlockGoal, weightBlockTol*promise), weightBlockTol
	switch {
	case b.Fine:
		goal, unchecked = WeightBlockFine, 0
	case b.rough && p.plain:
		goal = weightBlockRough * promise
		unchecked = goal
	}
	known := !b.Fine && t.Noise() > 0 // the target is the solution
	if known || p.plain && b.Pace.unchecked(promise, unchecked) {
		p.target()
		for i := range p.delta {
			p.delta[i] = p.tg[i] - base.Gamma[i]
			p.U[i] = p.tc[i] - base.A[i]
		}
		moved := b.Mover.shift(p.delta, p.U)
		if err := p.Workers.Halt.Err(); err != nil {
			return err
		}
		if moved {
			b.Pace.Age++
			b.Mover.Accept()
			b.Mover.Cur.Predict(p.D, x, at)
			for i, g := range p.tg {
				base.Gamma[i], base.A[i] = g, p.tc[i]-g*p.D[i]
				base.M[i] += p.D[i]
			}
			w.MoveTo(&b.Mover.Cur)
			return nil
		}
	}
	var slow Progress
	for first := true; p.Evaluations < weightBlockEvals; first = false {
		if _, ok := p.Stride(&slow); !ok {
			break
		}
		slow.Add(p.Decrement(), p.N, p.N)
		mean, precision := b.Promise(&p.Cur.State, &b.Mover.Cur)
		if first {
			b.Pace = Pace{After: Remainder{mean / promise / promise, precision / promise},
				Measured: true}
		}
		left = mean + d*precision
		if mean+precision < goal && !p.Cur.Wild {
			break
		}
	}
	if err := p.Workers.Halt.Err(); err != nil {
		return err
	}
	if err := t.Overflow(&p.Cur.State, index); err != nil {
		return err
	}
	if b.Fine && !(left <= weightBlockLast) || p.Evaluations >= weightBlockEvals &&
		left > weightBlockLeft {
		return fmt.Errorf(
			"pgsvi: a block of %d rows, from %s on, is %.2g nats from its solution after %d "+
				"steps; a prior nearer to the scale of the data helps: %w", len(base.M),
			t.Name(dense.Index(index, 0)), left, p.Evaluations, sentinel.ErrDiverged)
	}
	if b.Mover.moved {
		copy(base.Gamma, p.Cur.Gamma)
		copy(base.A, p.Cur.A)
		copy(base.M, p.Cur.M)
		w.MoveTo(&b.Mover.Cur)
	}
	return nil
}

// The span of the rows. Under a Gaussian N(m, P⁻¹), P = RRᵀ, the rows of X see of Rᵀ(w − m) no more
// than its part in the span of those of Z = XR⁻ᵀ: with Z = LQ, that is u = QRᵀ(w − m) ~ N(0, I) of
// as many dimensions as there are independent rows, and X(w − m) = Lu. Of few rows and many weights
// in units for which float64 has too few digits it is what can be afforded in twice as many.

// The span is worth its factor from so many weights on, and so many for each row. Fewer are as well
// fitted in their own units.
const (
	spanWeights = 100
	spanRows    = 2
)

// spanPays reports whether so many rows are few for so many weights.
func spanPays(rows, weights int) bool { return weights >= spanWeights && spanRows*rows <= weights }

// span returns L for the rows of x at index, whose sites have about these precisions; rows replaces
// one of them by its row of Z. L begins with what the strongest rows tell: what is left of the
// precisions of u is then no small part of them. It also returns the rows of Q.
func span(x *design.Matrix, index []int, gamma []float64, rows func(z dense.Double),
	h *parallel.Halt) (l *design.Matrix, q []dense.Double) {
	var z dense.Double
	n, d := len(gamma), x.Cols
	weight := make([]float64, n)
	for a, g := range gamma {
		weight[a] = math.Sqrt(math.Abs(g))
	}
	z.Resize(n * d)
	z.Clear()
	for a := range n {
		x.Dense1(z.Hi[a*d:(a+1)*d], dense.Index(index, a))
		if h.Stopped() {
			break
		}
		rows(z.Slice(a*d, (a+1)*d))
	}
	of, q := z.LowerRows(h, weight)
	return &design.Matrix{Rows: n, Cols: len(q), Dense: of}, q
}

// spans reports whether the problem of the block, whose targets at w are known, is worth solving
// over the span of its rows: where w with these takes twice the digits. Λ + Σ Δγ_n x_nx_nᵀ is at
// most 1 + Σ Δγ_n v_n times the precision Λ of w, and so less of a diagonal element may be left.
func (b *WeightBlock) spans(w *gauss.State, x *design.Matrix) bool {
	if !spanPays(len(b.Base.M), x.Cols) {
		return false
	}
	told := 1.0
	for i, v := range b.Base.V {
		told += math.Abs(b.prob.Cur.Tg[i]-b.Base.Gamma[i]) * v
	}
	return w.Double || !(w.Pivot(w) >= gauss.LeastPivot*told)
}

// inSpan solves the problem of the block over the span of its rows, and moves w to the solution, as
// moveOn does.
func (b *WeightBlock) inSpan(w *gauss.State, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	base, h := &b.Base, b.prob.Workers.Halt
	l, _ := span(x, at, b.prob.Cur.Tg, w.Whiten, h)
	if err := h.Err(); err != nil {
		return err
	}
	if b.Near == nil {
		b.Near = &WeightBlock{}
	}
	s, near := b.Near, &gauss.State{Halt: h}
	s.Use(b.prob.Workers)
	s.Fine, s.Pace = b.Fine, Pace{}
	s.Base.CopyFrom(base)
	near.Resize(l.Cols)
	for j := range l.Cols {
		near.P[j*l.Cols+j] = 1
	}
	near.Factor()
	if err := s.Solve(near, l, nil, t.Sub(index)); err != nil {
		return err
	}
	p := &b.prob
	for i, g := range s.Base.Gamma {
		p.delta[i] = g - base.Gamma[i]
		p.U[i] = s.Base.A[i] + g*(s.Base.M[i]-base.M[i]) - base.A[i]
	}
	moved := b.Mover.shift(p.delta, p.U)
	if err := h.Err(); err != nil {
		return err
	}
	if !moved {
		return fmt.Errorf("pgsvi: the precision with a block of %d rows, from %s on: %w",
			len(base.M), t.Name(dense.Index(index, 0)), sentinel.ErrDiverged)
	}
	copy(base.Gamma, s.Base.Gamma)
	copy(base.A, s.Base.A)
	copy(base.M, s.Base.M)
	b.Mover.Accept()
	w.MoveTo(&b.Mover.Cur)
	return nil
}

// WeightMatrices is the number of D×D matrices that a model with a WeightAlgebra has at its most:
// 13 measured, for three weightStates, the prior, and those of a step and a posterior, and two more
// for each of these where they need twice the digits.
const WeightMatrices = 22

// WeightAlgebra is the Gaussian over the weights of a GLM with a full covariance, whose sites are
// those of the rows,
//
//	V⁻¹ = Λ0 + Xᵀ diag(γ) X,   V⁻¹(m − μ0) = Xᵀb,
//
// unless a step with a given β has left them.
type WeightAlgebra struct {
	Sites
	Lin   *LinearModel
	Prior *gauss.State

	Mover weightMover // of the problem of all rows

	Run           gauss.State // the current state, its mean about μ0
	Gamma, A, Eta []float64   // its sites, those of Cur: γ, and the linear coefficient about η
	Free          bool        // run has no sites

	Blocks WeightBlock
	Gap    weightGap
	Pg     weightPaper
	enough int       // rows whose blocks come before the rest; 0: all of them
	before []float64 // the mean before a step
	in     []bool    // scratch of distinct
	unique []int
}

// weightBase is what Sites asks a WeightAlgebra for.
type weightBase struct {
	*weightMover
	s *WeightAlgebra
}

var _ interface {
	Base
	holder
	spreader
	coverer
	blocker
	keeper
} = weightBase{}

func NewWeightAlgebra(l *LinearModel, c term.Crew) (*WeightAlgebra, error) {
	return NewWeightAlgebraIn(nil, l, c)
}

// NewWeightAlgebraIn is NewWeightAlgebra in the memory of old, which must not be used any more. A nil
// old is allowed.
func NewWeightAlgebraIn(old *WeightAlgebra, l *LinearModel, c term.Crew) (*WeightAlgebra, error) {
	prior, err := l.Prior.StateUntil(c.Halt)
	if err != nil {
		return nil, err
	}
	s := &WeightAlgebra{Lin: l, Prior: prior}
	s.Mover.X, s.Mover.Base, s.Mover.prior = l.X, prior, &l.Prior
	s.Run.CopyFrom(s.Prior)
	if l.Terms.Noise() == 0 && l.outerPays() {
		s.Batch.Outer = min(l.X.Rows, l.X.Cols)
	}
	s.Batch.plain = l.X.Rows > 100000
	s.Blocks.rough = l.X.Rows >= ampleRows*l.X.Cols
	if l.Terms.Concave() {
		s.enough = enoughOf(l.X.Rows, l.X.Cols)
	}
	if old != nil {
		s.takeMemory(&old.Sites)
	}
	s.lay(l.Terms, weightBase{&s.Mover, s}, c)
	s.Gamma, s.A, s.Eta = s.Cur.Gamma, s.Cur.A, s.Cur.M
	return s, nil
}

// ampleRows is the number of rows a weight from which on the log-likelihoods of half of them add up
// to so nearly a parabola that one step of Newton's to all of them leaves little: blocks need not
// be solved for long.
const ampleRows = 64

// Blocks of 1/enoughPart of all rows are enough, or of enoughRows per weight, from which precisions
// are mostly within 0.01 nats after one pass. A sixteenth of the rows takes a tenth less time, but a
// fit of 17,000 rows from a file with columns that are nearly equal then diverged.
const (
	enoughPart = 8
	enoughRows = 128
)

// enoughOf returns of how many rows blocks come so near to the optimum of a concave model that one
// step of the mean and the targets of all rows leave next to nothing: a third of all, where that is
// less than enoughRows a weight and at least a quarter of them. It returns 0 where rows are too
// few.
func enoughOf(rows, weights int) int {
	enough := max(rows/enoughPart, min(rows/3, enoughRows*weights))
	if 4*enough < enoughRows*weights {
		return 0
	}
	return enough
}

// mostBlock is the number of rows up to which a block grows in any case. What a block needs is then
// in the cache: half of 100,000 rows in one block took a quarter of the time more, and left more.
const mostBlock = 4096

// outerWork is the number of multiplications for each row that a new V must take for outer steps to
// be worth while: those of 64 dense columns, where the expectations of the inner steps take as long
// as what they save.
const outerWork = 64 * 64

// outerPays reports whether a full covariance of the weights costs enough for outer steps.
func (l *LinearModel) outerPays() bool {
	n, d := float64(l.X.Rows), float64(l.X.Cols)
	work := d * d * d
	if l.X.Sparse == nil {
		work += n * d * d
	} else {
		for i := range l.X.Rows {
			ind, _ := l.X.Sparse.Row(i)
			work += float64(len(ind) * len(ind))
		}
	}
	return work > outerWork*n
}

// plan is outer steps of all rows where these pay, one step of all under Gaussian noise, and
// otherwise one pass of blocks that grow, to come near, and then all rows at a time.
func (b weightBase) plan() sitePlan {
	s := b.s
	if s.Batch.Outer > 0 || s.Terms.Noise() > 0 {
		return sitePlan{}
	}
	first := min(max(32, 2*s.Lin.X.Cols), (s.N+3)/4)
	most := max(first, mostBlock, ampleRows*s.Lin.X.Cols)
	return sitePlan{Batch: first,
		Sampler: batches.Approach{First: first, Most: most, Enough: s.enough}}
}

func (b weightBase) use(c term.Crew) {
	s := b.s
	s.Pg.Buf.Halt, s.Pg.next.Halt, s.Pg.metric.Halt, s.Run.Halt = c.Halt, c.Halt, c.Halt, c.Halt
	s.Prior.Halt, s.Gap.target.Halt, s.Gap.Buf.Halt = c.Halt, c.Halt, c.Halt
	s.Mover.use(c.Halt)
	s.Blocks.Use(c)
}

func (b weightBase) Prior() (base term.State) {
	s := b.s
	base, s.spare = s.spare, term.State{}
	dense.ResizeAll(s.N, &base.M, &base.V)
	base.Gamma, base.A = base.M, base.M // zeros, which nothing writes
	if prec := s.Lin.Prior.Prec; prec != nil {
		v := make([]float64, len(prec))
		for j, l := range prec {
			v[j] = 1 / l
		}
		s.Lin.X.QuadDiagOn(s.Workers.Halt, base.V, v, nil)
	} else {
		s.Prior.Variances(base.V, s.Lin.X, nil, &s.Mover.Buf)
	}
	return base
}

func (b weightBase) restart() {}

func (b weightBase) stale() {}

func (b weightBase) settled() bool { return true }

func (b weightBase) follow() (distance float64) {
	b.s.Gap.known = false
	distance = floats.Distance(b.s.Run.Mean, b.Cur.Mean, 2)
	b.s.Run.CopyFrom(&b.Cur)
	return distance
}

// Settle makes the state of the problem of all rows the current one; see Sites.Refresh.
func (s *WeightAlgebra) Settle() error {
	if s.Free {
		if err := s.sitesHere(); err != nil {
			return err
		}
	}
	err := s.Refresh()
	s.Free = s.Free && err != nil
	return err
}

// sitesHere gives a state without sites those that it would move to.
func (s *WeightAlgebra) sitesHere() error {
	var t term.State
	t.Resize(s.N)
	s.Lin.X.Mul(t.M, s.Run.Mean, nil)
	s.Run.Variances(t.V, s.Lin.X, nil, &s.Mover.Buf)
	if err := s.Terms.Expect(&t, nil, s.Workers); err != nil {
		return err
	}
	copy(s.Gamma, t.Tg)
	copy(s.A, t.D1)
	copy(s.Eta, t.M)
	return nil
}

// Ascend implements Algebra.
func (s *WeightAlgebra) Ascend() (passes int, err error) {
	if ok, err := s.direct(); ok || err != nil {
		return 1, err
	}
	if err := s.Settle(); err != nil {
		return 0, err
	}
	return s.Sites.Ascend()
}

func (s *WeightAlgebra) Slow() bool { return s.Progress.Slow }

// block implements algebra. What it does to the ELBO is seen when that is evaluated.
func (b_ weightBase) block(batch []int) error {
	s := b_.s
	if s.Free {
		if err := s.Settle(); err != nil {
			return err
		}
	}
	b := &s.Blocks
	batch = s.distinct(batch)
	m := len(batch)
	if s.goesOn(batch) {
		return s.rest(s.N - m)
	}
	b.Base.Resize(m)
	x, at := b.near(s.Lin.X, batch)
	x.MulOn(s.Workers.Halt, b.Base.M, s.Run.Mean, at)
	for k, i := range batch {
		b.Base.Gamma[k] = s.Gamma[i]
		b.Base.A[k] = s.A[i] - s.Gamma[i]*(b.Base.M[k]-s.Eta[i])
	}
	s.before = append(s.before[:0], s.Run.Mean...)
	if err := b.solve(&s.Run, x, at, s.Terms, batch); errors.Is(err, sentinel.ErrNotFinite) ||
		errors.Is(err, sentinel.ErrDiverged) {
		// Where the other rows have led, this block has no expectations, or is not solved: it is
		// left out, and all rows together will tell.
		s.Distance, s.Fresh = 0, false
		return nil
	} else if err != nil {
		return err
	}
	for k, i := range batch {
		s.Gamma[i], s.A[i], s.Eta[i] = b.Base.Gamma[k], b.Base.A[k], b.Base.M[k]
	}
	s.Distance = floats.Distance(s.before, s.Run.Mean, 2)
	s.Fresh = false
	return nil
}

// goesOn reports whether the rows in batch, in no block so far, are all that are left of an
// approach that has seen enough of them.
func (s *WeightAlgebra) goesOn(batch []int) bool {
	seen := s.N - len(batch)
	if s.enough == 0 || s.Started || seen < s.enough || seen > 2*s.enough {
		return false
	}
	gamma, a := s.Gamma, s.A
	for _, i := range batch {
		if gamma[i] != 0 || a[i] != 0 {
			return false
		}
	}
	return true
}

// rest goes on from blocks of some rows, seen of them, to all. Their precision, times N/seen, takes
// a step of the mean up the gradient of all rows. The targets there become the sites of all. If the
// ELBO is lower there, the sites are the targets before the step.
func (s *WeightAlgebra) rest(seen int) error {
	if s.prepareTry(); s.Workers.Halt.Stopped() {
		s.base.M = nil
		return s.Workers.Halt.Err()
	}
	g, d, next := &s.Gap, s.Lin.X.Cols, &s.Batch.Try
	g.c, g.z = dense.Resize(g.c, d), dense.Resize(g.z, d)
	part := float64(seen) / float64(s.N)
	before := s.priorValue(s.Run.Mean)
	q := survey{mean: s.Run.Mean, scale: part, v: next.V, grad: g.c}
	if err := q.run(s); errors.Is(err, sentinel.ErrNotFinite) {
		s.Distance, s.Fresh = 0, false
		return nil // as of a block
	} else if err != nil {
		return err
	}
	before += q.sum
	dense.Potrs(s.Run.L, g.c)
	floats.AddScaledTo(g.z, s.Run.Mean, part, g.c)
	q.mean, q.scale, q.grad, q.gamma, q.c = g.z, 0, nil, next.Gamma, next.C
	if err := q.run(s); err != nil || s.priorValue(g.z)+q.sum < before {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
		q.mean = s.Run.Mean
		if err := q.run(s); err != nil { // it is halted: the mean has expectations
			return err
		}
	}
	return s.settleThere()
}

// priorValue returns the logarithm of the prior density of the given mean, up to a constant, and
// leaves −Λ0 times the mean in s.Gap.c.
func (s *WeightAlgebra) priorValue(mean []float64) float64 {
	g := &s.Gap
	clear(g.c)
	dense.Symv(-1, dense.Symmetric(s.Prior.P, s.Lin.X.Cols), dense.Vector(mean), 0,
		dense.Vector(g.c))
	return 0.5 * floats.Dot(g.c, mean)
}

// settleThere makes the state at the sites of s.Batch.Try the current one. The state after the
// blocks remains if the new one has no value or the crew is halted.
func (s *WeightAlgebra) settleThere() error {
	p := &s.Batch
	ok := p.Eval() && !math.IsInf(p.Try.Value, 0)
	if err := s.Workers.Halt.Err(); err != nil {
		return err
	}
	if !ok {
		s.Distance, s.Fresh = 0, false
		return nil
	}
	p.Cur, p.Try = p.Try, p.Cur
	p.Mover.Accept()
	s.Started, s.Batched = true, true
	s.Sites.follow(&p.Cur)
	return nil
}

// distinct returns batch without repetitions.
func (s *WeightAlgebra) distinct(batch []int) []int {
	if increase(batch) {
		return batch
	}
	if s.in == nil {
		s.in = make([]bool, s.N)
	}
	s.unique = slices.Grow(s.unique[:0], len(batch))
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

// increase reports whether each number is larger than the one before.
func increase(x []int) bool {
	for k := 1; k < len(x); k++ {
		if x[k] <= x[k-1] {
			return false
		}
	}
	return true
}

// Evaluate implements algebra. Blocks that have made the ELBO fall are taken
// back. The gap is ½δᵀFδ in natural parameters, with the gradient g of the ELBO in the mean and
// the distance ΔP of the precision from its target,
//
//	½ gᵀVg + ¼ tr(VΔPVΔP),
//
// plus an allowance for rounding if features are collinear to more digits than float64 has. The
// second part is bounded by term.SiteChange. The gap is not known after a step with a given β.
func (s *WeightAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	if s.Free {
		return s.freeEvaluation()
	}
	if err := s.Settle(); err != nil {
		return siteEvaluation{}, err
	}
	gap := s.Promise()
	goal := goals.Of(within, s.N, -s.Batch.Cur.Value)
	near := gap <= nearGoal*goal && s.Terms.Lik.SelfBounded()
	if !s.Proof.made && !near && (s.Batch.Outer > 0 ||
		s.Blocks.rough && gap <= worthStepping*float64(s.Lin.X.Cols)) {
		if err := s.stepMean(); err != nil {
			return siteEvaluation{}, err
		}
		gap = s.Promise()
	}
	if !s.Proof.made && gap <= max(worthProving, within) {
		stepped := s.Proof.stepped
		bound, err := s.Prove(goal, near)
		if err != nil {
			return siteEvaluation{}, err
		}
		if stepped || !s.Proof.stepped { // and so it stays where it is
			gap += s.Proof.rounding
		} else {
			gap = s.Promise()
		}
		s.Proof.bound = goals.Bound(bound)
		gap = min(gap, s.Proof.bound)
	}
	s.Proof.made = true
	c := &s.Batch.Cur
	bound := c.Err + s.Mover.Cur.Rounding() + s.Mover.Cur.Resolution()
	return siteEvaluation{ELBO: -c.Value, ELBOErr: goals.NeverZero(bound),
		Gap: goals.NeverZero(gap), GapBound: s.Proof.bound}, nil
}

// Promise returns the gap of the state of the problem of all rows, as evaluate says.
func (s *WeightAlgebra) Promise() float64 {
	c := &s.Batch.Cur
	if c.Wild {
		return math.Inf(1)
	}
	s.inspect()
	return s.Gap.mean + 0.25*s.Gap.change.Square() + s.Mover.Cur.Rounding() + s.Proof.rounding
}

// inspect computes the gradient and the change of the sites at the state of the problem of all
// rows, once for each state.
func (s *WeightAlgebra) inspect() {
	g, c, b := &s.Gap, &s.Batch.Cur, &s.Blocks
	if g.known {
		return
	}
	b.Mover.X, b.Mover.Index = s.Lin.X, nil
	g.mean, _ = b.Promise(&c.State, &s.Mover.Cur)
	g.up = append(g.up[:0], b.up...)
	g.change = c.Change()
	g.known = !s.Workers.Halt.Stopped()
}

// Weights implements weighted.
func (s *WeightAlgebra) Weights() ([]float64, gauss.Cov, error) {
	w := &gauss.State{}
	w.CopyFrom(&s.Run)
	return append([]float64(nil), w.Mean...), &gauss.Full{S: w}, nil
}

// weightPaper is the workspace of the step with a given β.
type weightPaper struct {
	w, rest      []float64
	h            dense.Double
	next, metric gauss.State // the target, about the current mean, and the metric of h
	base         gauss.State // the target without the batch
	valid, tried bool        // the target is positive definite; that is known no more
	appendix     bool
	negative     bool // some γ̂ is
	Buf          design.Work
}

// Marginals implements algebra.
func (s *WeightAlgebra) Marginals(x *term.Estimates, batch []int) error {
	m := len(batch)
	if batch == nil {
		m = s.N
	}
	x.Resize(m)
	s.Lin.X.MulOn(s.Workers.Halt, x.M, s.Run.Mean, batch)
	s.Run.Variances(x.V, s.Lin.X, batch, &s.Pg.Buf)
	return nil
}

// aim implements algebra: h = (1−r)(Xᵀα̂ − Λ0 m) and P₊ = rP + (1−r)(Λ0 + XᵀΓ̂X), of which h is
// moved by the metric to the move of the mean.
func (s *WeightAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	t, d := &s.Pg, s.Lin.X.Cols
	t.w = dense.Resize(t.w, len(x.M))
	for k := range x.M {
		t.w[k] = -m.Scale * x.D2[k]
		x.D1[k] *= m.Scale
	}
	t.base.Average(m.R, &s.Run, s.Prior)
	if t.appendix = m.Appendix; t.appendix {
		t.metric.CopyPrecision(&t.base)
		if !t.metric.Factor() {
			return fmt.Errorf("metric of the mean update: %w", sentinel.ErrNotPosDef)
		}
	}
	t.valid, t.tried = t.next.Add(&t.base, s.Lin.X, t.w, batch, &t.Buf), false
	t.negative = len(t.w) > 0 && slices.Min(t.w) < 0
	t.h.Resize(d)
	clear(t.h.Lo)
	dense.Symv(m.R-1, dense.Symmetric(s.Prior.P, d), dense.Vector(s.Run.Mean), 0,
		dense.Vector(t.h.Hi))
	if t.next.Double {
		s.Lin.X.AddMulTDouble(t.h, x.D1, batch, &t.Buf)
	} else {
		s.Lin.X.AddMulT(t.h.Hi, x.D1, batch)
	}
	return nil
}

// try implements algebra.
func (s *WeightAlgebra) try(noisy bool) (valid, edge bool) {
	t := &s.Pg
	if t.tried {
		t.valid = t.next.Factor()
	}
	if t.tried = true; !t.valid {
		return false, false
	}
	return true, noisy && t.negative && !s.above(&t.next) && s.above(&s.Run)
}

// above reports whether P − noisyPivot·Λ0 is positive definite.
func (s *WeightAlgebra) above(w *gauss.State) bool {
	t := &s.Pg
	t.rest = dense.Resize(t.rest, len(w.P))
	floats.AddScaledTo(t.rest, w.P, -noisyPivot, s.Prior.P)
	return dense.Cholesky(t.rest, len(w.Mean))
}

// halve implements algebra.
func (s *WeightAlgebra) halve() {
	t := &s.Pg
	t.next.Average(0.5, &t.next, &s.Run)
	floats.Scale(0.5, t.h.Hi)
	floats.Scale(0.5, t.h.Lo)
}

// take implements algebra.
func (s *WeightAlgebra) take() error {
	t := &s.Pg
	metric := &t.next
	if t.appendix {
		metric = &t.metric
	}
	metric.Apply(t.h)
	if j, ok := dense.AllFinite(t.h.Hi); !ok {
		return fmt.Errorf("mean of weight %d (%s) would move by %v: %w", j, s.Lin.Names[j],
			t.h.Hi[j], sentinel.ErrNotFinite)
	}
	s.Distance = floats.Norm(t.h.Hi, 2)
	floats.AddTo(t.next.Mean, s.Run.Mean, t.h.Hi)
	s.Run, t.next = t.next, s.Run
	s.Free, s.Fresh, s.Batched, s.Started, s.Proof = true, false, false, false, Proof{}
	return nil
}

// freeEvaluation is evaluate for a state without sites, with
//
//	KL = ½(tr(Λ0V) − D + mᵀΛ0m + log|P| − log|Λ0|).
//
// With c = Λ0m − Xᵀα̂ and A = Λ0 + XᵀΓ̂X the gap is about ½cᵀA⁻¹c + ½(tr(AV) − D + log|P| −
// log|A|), and of concave terms it is proved to be no more than with Λ0 in place of A⁻¹, and twice
// the second part.
func (s *WeightAlgebra) freeEvaluation() (siteEvaluation, error) {
	t, g := &s.Pg, &s.Gap
	var c term.State
	c.Resize(s.N)
	s.Lin.X.Mul(c.M, s.Run.Mean, nil)
	s.Run.Variances(c.V, s.Lin.X, nil, &t.Buf)
	if err := s.Terms.Expect(&c, nil, s.Workers); err != nil {
		return siteEvaluation{}, err
	}
	s.Run.Invert()
	d := s.Lin.X.Cols
	trace := -float64(d) // tr(Λ0V) − D
	for i := range d {
		for j := range i {
			trace += 2 * s.Prior.P[i*d+j] * s.Run.Inv[i*d+j]
		}
		trace += s.Prior.P[i*d+i] * s.Run.Inv[i*d+i]
	}
	g.c, g.z = dense.Resize(g.c, d), dense.Resize(g.z, d)
	dense.Symv(1, dense.Symmetric(s.Prior.P, d), dense.Vector(s.Run.Mean), 0, dense.Vector(g.c))
	kl := trace + floats.Dot(g.c, s.Run.Mean) + s.Run.LogDet - s.Prior.LogDet
	e := siteEvaluation{ELBO: floats.Sum(c.E) - 0.5*kl, ELBOErr: goals.NeverZero(c.Err),
		Gap: math.Inf(1)}
	if !c.Wild && !math.IsInf(e.ELBO, 0) && g.target.Add(s.Prior, s.Lin.X, c.Tg, nil, &t.Buf) {
		for n, a := range c.D1 {
			c.A[n] = -a
		}
		s.Lin.X.AddMulTOn(g.c, c.A, nil, &t.Buf)
		s.Lin.Prior.Solve(g.z, g.c)
		mean := 0.5 * floats.Dot(g.c, g.z)
		own := floats.Dot(c.Tg, c.V)
		rounding := dense.Epsilon * (float64(d) + math.Abs(own) + math.Abs(s.Run.LogDet) +
			math.Abs(g.target.LogDet))
		precision := max(0, own+trace+s.Run.LogDet-g.target.LogDet) + rounding
		copy(g.z, g.c)
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(g.target.L, d), dense.Vector(g.z))
		e.Gap = goals.NeverZero(0.5*floats.Dot(g.z, g.z) + 0.5*precision)
		if c.Certain {
			e.GapBound = goals.NeverZero(mean + precision)
		}
	}
	return e, s.Workers.Halt.Err()
}

func (b weightBase) save(c *save.State) {
	s, d := b.s, b.s.Lin.X.Cols
	s.Gap.known = false
	s.Run.State(c, d)
	c.Bool(&s.Free, &s.Blocks.Pace.Measured)
	c.Int(&s.Blocks.Pace.Age)
	c.Float(&s.Blocks.Pace.After.Mean, &s.Blocks.Pace.After.Precision)
	if s.Started && c.Err() == nil {
		s.Mover.Cur.State(c, d)
		s.Mover.moved = true
	}
}

func (b weightBase) resume([]float64) {}

func (s *WeightAlgebra) Constant() bool { return !s.Free && s.Sites.Constant() }

// loosePrecisions bounds by how much more than what it bounds a bound on the precisions by the
// sites alone may be, as seen: where that may be below the goal a product XᵀΓX and its factor say
// what it is.
const loosePrecisions = 10

// worthStepping is the estimated gap, in nats a weight, below which a step of the mean is worth
// while where there are many rows: it takes their expectations, but no XᵀΓX, and targets at the
// mean that it leads to are as good as those of a pass more.
const worthStepping = 1

// nearGoal is the estimated gap, as a part of the goal, below which rows are asked for a proof
// before a step of the mean: where |ℓ‴| ≤ |ℓ″| that takes no expectations.
const nearGoal = 0.2

// worthProving is the estimated gap, in nats, below which the gap of a WeightAlgebra is proved:
// that takes the expectations of all rows and the product XᵀΓX once more.
const worthProving = 1

// weightGap is the workspace of the proved gap of a WeightAlgebra.
type weightGap struct {
	target gauss.State // Λ0 + XᵀΓ̂X
	c, z   []float64   // the gradient and Λ0⁻¹c
	Buf    design.Work

	// computed by inspect for Promise and boundHere
	known  bool      // the following are those of the current state of all rows
	up     []float64 // gradient of the ELBO in the mean
	mean   float64   // predicted gain of a step of the mean, in nats
	change term.SiteChange
}

// Prove takes the step of the mean of the state of the problem of all rows, V held, unless the ELBO
// would fall, or near the goal where that is proved without it. It returns a proved bound on the
// gap of the state reached, but for the error of log|P|. The error is that of the crew; the proof
// can then be gone on with.
func (s *WeightAlgebra) Prove(goal float64, near bool) (float64, error) {
	if !s.Terms.Concave() || !s.Batch.Cur.Certain {
		return math.Inf(1), nil
	}
	if near && !s.Proof.stepped {
		if bound, err := s.boundHere(goal); err != nil || bound <= goal {
			return bound, err
		}
	}
	if err := s.stepMean(); err != nil {
		return 0, err
	}
	return s.boundHere(goal)
}

// boundHere is Prove at the state as it is.
func (s *WeightAlgebra) boundHere(goal float64) (float64, error) {
	p, m := &s.Batch, &s.Mover
	c := &p.Cur
	if !c.Certain {
		return math.Inf(1), nil
	}
	s.inspect()
	g, d := &s.Gap, s.Lin.X.Cols
	g.z = dense.Resize(g.z, d)
	s.Lin.Prior.Solve(g.z, g.up)
	rounding := s.Unsolved()
	mean, rows := 0.5*floats.Dot(g.up, g.z), math.Inf(1)
	change := &g.change
	precision := change.Gap()
	byRows := func() { // where that may be less
		if math.IsInf(rows, 1) && mean+precision > goal && mean > precision {
			rows = s.Terms.RowGap(&c.State, -c.Value, p.Base.V, nil, goal-2*precision,
				s.Workers.Halt)
		}
	}
	byRows()
	if total := mean + precision; min(total, rows+2*precision) > goal &&
		precision <= loosePrecisions*goal && g.target.Add(s.Prior, s.Lin.X, c.Tg, nil, &g.Buf) {
		off := dense.Epsilon * (math.Abs(g.target.LogDet) + math.Abs(m.Cur.LogDet) + change.Nuclear)
		exact := max(0, change.Trace+m.Cur.LogDet-g.target.LogDet) + off
		precision = min(precision, exact)
		byRows()
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return 0, err
	}
	s.Proof.rounding = rounding
	// The rows speak of the mean with V held: what it gains by V's move is allowed for by as much
	// as V gains itself.
	return min(mean+precision, rows+2*precision) + rounding, nil
}

// Unsolved returns a bound on what rounding of the mean w leaves to gain. It solves Λ0w = Xᵀa but
// for a residual r, and the mean that solves it is at P⁻¹r, by which the ELBO changes by about
// ½rᵀP⁻¹r: the bound is twice that.
func (s *WeightAlgebra) Unsolved() float64 {
	t, m := &s.Pg, &s.Mover
	t.h.Resize(s.Lin.X.Cols)
	off := s.ResidualError()
	if plain := off <= term.ElboSlack*math.Abs(s.Batch.Cur.Value); plain {
		for j, l := range s.Lin.Prior.Prec {
			t.h.Hi[j] = -l * m.Cur.Mean[j]
		}
		s.Lin.X.AddMulTOn(t.h.Hi, s.Batch.Cur.A, nil, &s.Gap.Buf)
	} else {
		m.Base.Residual(t.h, &m.Cur, s.Lin.X, s.Batch.Cur.A, &s.Gap.Buf)
		off = 0
	}
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(m.Cur.L, s.Lin.X.Cols), dense.Vector(t.h.Hi))
	r := floats.Dot(t.h.Hi, t.h.Hi)
	return r + 2*math.Sqrt(r*off) + off
}

// ResidualError returns a bound on eᵀP⁻¹e for the rounding e of a residual r in float64, +Inf where
// that is not known. Sums of N products are off by Nε‖a‖‖x_j‖ at most, for column j, and as P ⪰ Λ0
// that is worth no more than (Nε‖a‖)² Σ_j ‖x_j‖²/λ_j, where the sum is that of the variances of the
// rows under the prior.
func (s *WeightAlgebra) ResidualError() float64 {
	c, prec := &s.Batch.Cur, s.Lin.Prior.Prec
	if prec == nil || s.Mover.Cur.Double || slices.Min(c.Gamma) < 0 {
		return math.Inf(1)
	}
	sums := float64(s.N+2) * floats.Norm(c.A, 2) * math.Sqrt(floats.Sum(s.Batch.Base.V))
	var own float64
	for j, w := range s.Mover.Cur.Mean {
		own += prec[j] * w * w
	}
	e := dense.Epsilon * (sums + math.Sqrt(own))
	return e * e
}

// stepMean takes the step of the mean of a state whose gap is asked for, once. The error is that of
// the crew.
func (s *WeightAlgebra) stepMean() error {
	if c := &s.Batch.Cur; s.Proof.stepped || s.Terms.Noise() > 0 && slices.Equal(c.Gamma, c.Tg) {
		return nil // or there is nothing to gain
	}
	if !s.MeanStep() {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
	}
	s.Proof.stepped = true
	return nil
}

// MeanStep makes m⁺ = m − Vc, V held, the mean of the problem of all rows, or what follows from the
// best mean that inner steps find, if its value does not rise. It reports whether it did.
func (s *WeightAlgebra) MeanStep() bool {
	p := &s.Batch
	x := &p.Cur.State
	if p.Outer > 0 && !x.Wild {
		p.Inner(innerLeast, innerPart)
		x = &p.In.At
	}
	if s.Workers.Halt.Stopped() || !p.again(x) {
		return false
	}
	s.Sites.follow(&p.Cur)
	return true
}

// SpanAlgebra is the algebra of a linear model with few rows over their span, until a step with a
// given β takes it to the weights.
type SpanAlgebra struct {
	*WeightAlgebra // near or, once wide, one over the weights
	near           *WeightAlgebra
	whole          *LinearModel
	Wide           bool
}

// newSpanAlgebra returns the prior of l, whose sites may come to have the given precisions.
func newSpanAlgebra(l *LinearModel, gamma []float64, c term.Crew) (*SpanAlgebra, error) {
	own, _, err := l.inSpan(gamma, c.Halt)
	if err != nil {
		return nil, err
	}
	near, err := NewWeightAlgebra(own, c)
	return &SpanAlgebra{WeightAlgebra: near, near: near, whole: l}, err
}

// inSpan returns l in the span of its rows, as span does for sites of about the given precisions:
// the weights are u = QRᵀ(w − μ0) ~ N(0, I). It also returns the rows of Q.
func (l *LinearModel) inSpan(gamma []float64, h *parallel.Halt) (*LinearModel, []dense.Double,
	error) {
	rows := func(z dense.Double) {
		for j, p := range l.Prior.Prec {
			z.Hi[j], z.Lo[j] = dense.Product(z.Hi[j], 1/math.Sqrt(p))
		}
	}
	if w := l.Prior.Full; w != nil {
		rows = w.Whiten
	}
	x, q := span(l.X, nil, gamma, rows, h)
	if err := h.Err(); err != nil {
		return nil, nil, err
	}
	prior := gauss.Prior{Mean: make([]float64, x.Cols), Prec: make([]float64, x.Cols)}
	names := make([]string, x.Cols)
	for j := range names {
		prior.Prec[j], names[j] = 1, fmt.Sprintf("dimension %d of the rows", j)
	}
	return &LinearModel{Terms: l.Terms, X: x, Prior: prior, Names: names, MaxMemory: l.MaxMemory},
		q, nil
}

// Weights implements weighted.
func (s *SpanAlgebra) Weights() ([]float64, gauss.Cov, error) {
	if s.Wide {
		return s.WeightAlgebra.Weights()
	}
	return s.whole.primal(s.Gamma, s.A, s.Eta, s.Workers.Halt)
}

// aim implements algebra: a step with a given β is one of the weights.
func (s *SpanAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	if err := s.widen(); err != nil {
		return err
	}
	return s.WeightAlgebra.aim(x, batch, m)
}

// widen goes on with the weights.
func (s *SpanAlgebra) widen() error {
	if s.Wide {
		return nil
	}
	w, err := NewWeightAlgebra(s.whole, s.Workers)
	if err != nil {
		return err
	}
	if !s.Cur.Bare() {
		at, err := s.whole.at(s.Gamma, s.A, s.Eta, s.Workers.Halt)
		if err != nil {
			return err
		}
		w.Run.CopyFrom(at)
		copy(w.Gamma, s.Gamma)
		copy(w.A, s.A)
		copy(w.Eta, s.Eta)
	}
	s.WeightAlgebra, s.Wide = w, true
	return nil
}

func (s *SpanAlgebra) State(c *save.State) {
	wide := s.Wide
	c.Bool(&wide)
	switch {
	case c.Err() != nil || wide == s.Wide:
	case wide:
		w, err := NewWeightAlgebra(s.whole, s.Workers)
		if c.Check(err == nil, "its prior: %v", err); err != nil {
			return
		}
		s.WeightAlgebra, s.Wide = w, true
	default:
		s.WeightAlgebra, s.Wide = s.near, false
	}
	s.WeightAlgebra.State(c)
}

// potentials returns b of the sites γ and a about the linear predictors m − o: V⁻¹ times the mean
// is Xᵀb.
func potentials(gamma, a, m []float64) []float64 {
	b := make([]float64, len(a))
	for i, g := range gamma {
		b[i] = a[i] + g*m[i]
	}
	return b
}

// at returns the weights at these sites, new.
func (l *LinearModel) at(gamma, a, m []float64, h *parallel.Halt) (*gauss.State, error) {
	cov := &gauss.Dual{X: l.X, Gamma: gamma, Prior: &l.Prior}
	w, err := cov.State(h)
	if err == nil {
		w.Solve(l.X, potentials(gamma, a, m), nil, &design.Work{Halt: h})
	}
	return w, err
}

// primal returns mean and covariance of the weights at these sites.
func (l *LinearModel) primal(gamma, a, m []float64, h *parallel.Halt) ([]float64, gauss.Cov,
	error) {
	w, err := l.at(gamma, a, m, h)
	if err != nil {
		return nil, nil, err
	}
	mean := append([]float64(nil), w.Mean...)
	clear(w.Mean)
	return mean, &gauss.Full{S: w}, nil
}

// StartAt makes q that of the sites γ and a, which are about the linear predictors m.
func (s *WeightAlgebra) StartAt(gamma, a, m []float64) {
	copy(s.Gamma, gamma)
	copy(s.A, a)
	copy(s.Eta, m)
	s.Fresh, s.Batched, s.Free, s.Started, s.Proof = false, false, false, false, Proof{}
}
