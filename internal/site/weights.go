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

// This file fits GLMs with a full covariance in their weights. WeightAlgebra is their Algebra. It
// approaches the optimum by blocks of rows (WeightBlock), continues with steps of all rows by
// Sites, and proves gap bounds. SpanAlgebra fits few rows of many columns over the span of the
// rows. NewRowAlgebra (linear.go) chooses between them; GLM and SparseGP of the root package use
// WeightAlgebra directly if there are more rows than weights.

// weightMover is the Mover of linear functions η = Xw of D weights. It stores the Gaussian of the
// weights. A move costs Σ nnz² + D³/3 operations.
type weightMover struct {
	X     *design.Matrix
	Index []int
	Base  *gauss.Gaussian // not owned
	prior *gauss.Prior    // the prior if it is the base, else nil
	// Cur is the state after the last accepted move, and try after the last move. Their means are
	// relative to the mean of the base.
	Cur, try gauss.Gaussian
	kept     gauss.Gaussian // Cur when it was marked, if it was valid
	held     bool           // kept is valid
	moved    bool           // Cur is valid
	Buf      design.Work
	w        dense.Double
	s        []float64 // covariance of the rows
}

// Cover implements Mover.
func (a *weightMover) Cover(v, delta []float64) (logDet float64, ok bool) {
	t := &a.try
	if !t.Add(a.Base, a.X, delta, a.Index, &a.Buf) {
		return 0, false
	}
	t.Variances(v, a.X, a.Index, &a.Buf)
	limit := 1 + 1e-6 // a positive Δ exceeds it only by rounding
	if len(delta) > 0 && slices.Min(delta) < 0 {
		limit = math.Inf(1) // negative Δ have no limit
	}
	for i, vi := range v {
		if !(vi >= 0) || math.IsInf(vi, 0) || delta[i]*vi > limit {
			return 0, false
		}
	}
	return t.LogDet - a.Base.LogDet, true
}

// Move implements Mover.
func (a *weightMover) Move(d, delta, u []float64) (square float64) {
	t := &a.try
	t.Solve(a.X, u, a.Index, &a.Buf)
	t.Predict(d, a.X, a.Index)
	for i, di := range d {
		u[i] -= delta[i] * di
	}
	return a.Base.Square(t, &a.w)
}

// A covariance of N rows takes N²D operations, and a move takes ND². It pays for at most
// covarianceRows rows per weight, or for at most covarianceFew rows in all, whose expectations
// take longer.
const (
	covarianceRows = 8
	covarianceFew  = 256
)

// Covariance implements coverer.
func (a *weightMover) Covariance() []float64 {
	if !a.coversRows() {
		return nil // before it allocates N² numbers
	}
	a.s = dense.Resize(a.s, a.X.Rows*a.X.Rows)
	if !a.rowsUnder(a.known(), a.s) {
		return nil
	}
	return a.s
}

// before implements coverer.
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

// rowsUnder stores the covariance of the rows under at in dst. It returns false if it is halted.
func (a *weightMover) rowsUnder(at *gauss.Gaussian, dst []float64) bool {
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

// mark implements coverer.
func (a *weightMover) mark() {
	if a.held = a.moved; a.held {
		a.kept.CopyFrom(&a.Cur)
	}
}

// back implements coverer.
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

// hold implements holder.
func (a *weightMover) hold(d, delta, u []float64) (square float64) {
	a.try.CopyFrom(&a.Cur)
	return a.Move(d, delta, u)
}

// known returns the state whose covariance is stored.
func (a *weightMover) known() *gauss.Gaussian {
	if a.moved {
		return &a.Cur
	}
	return a.Base
}

// weights implements spreader.
func (a *weightMover) weights() int { return a.X.Cols }

// gather implements spreader.
func (a *weightMover) gather(u, r []float64) bool {
	if a.known().Double {
		return false
	}
	clear(u)
	a.X.AddMulTOn(u, r, a.Index, &a.Buf)
	return true
}

// spread implements spreader.
func (a *weightMover) spread(w, u []float64) bool {
	if at := a.known(); at == a.Base && a.prior != nil {
		a.prior.Solve(w, u)
	} else {
		copy(w, u)
		dense.Potrs(at.L, w)
	}
	return true
}

// curve implements spreader.
func (a *weightMover) curve(eta, u, w, h []float64) {
	clear(u)
	a.X.MulGram(u, eta, w, h, a.Index, &a.Buf)
}

// shift computes only try: P + XᵀΔX, and the move of the weights (P + XᵀΔX)⁻¹Xᵀu.
func (a *weightMover) shift(delta, u []float64) bool {
	t := &a.try
	if !t.Add(a.Base, a.X, delta, a.Index, &a.Buf) {
		return false
	}
	t.Solve(a.X, u, a.Index, &a.Buf)
	_, ok := dense.AllFinite(t.Mean)
	return ok
}

// use makes moves stop when h stops.
func (a *weightMover) use(h *parallel.Halt) { a.Buf.Halt, a.Cur.Halt, a.try.Halt = h, h, h }

// Accept implements Mover.
func (a *weightMover) Accept() {
	a.Cur, a.try = a.try, a.Cur
	a.moved = true
}

// WeightBlock solves the problem of a block of rows, with everything else held fixed as the given
// Gaussian over the weights:
//
//	argmin KL(q‖cavity) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)].
//
// If the rows of the block have no sites yet, the cavity is the given Gaussian itself.
// WeightAlgebra uses it for block steps, and streams of GLMs and sparse GPs use it for new rows.
type WeightBlock struct {
	Mover weightMover
	prob  Problem
	Base  term.Marginals
	g, h  []float64
	up    []float64 // gradient of the ELBO in the mean, computed by Promise
	Pace  Pace
	Fine  bool          // check every step, and solve to WeightBlockFine
	rough bool          // solve blocks of many rows to weightBlockRough; rows are read again
	Near  *WeightBlock  // the block over the span of its few rows
	rows  design.Matrix // copies of the rows of the block
}

// Use sets the crew.
func (b *WeightBlock) Use(c term.Crew) {
	b.prob.Workers = c
	b.Mover.use(c.Halt)
}

// Pace stores the accuracy of earlier blocks. It decides whether the next step needs a check.
type Pace struct {
	After    Remainder // remainder of the last first step that was checked
	Age      int       // blocks since that check
	Measured bool      // a step was checked
}

// unchecked reports whether a first step with the given predicted gain needs no check. It must
// leave less than left nats. All steps since the last check together, if each left as much, must
// leave less than weightBlockTogether times that.
func (p *Pace) unchecked(promise, left float64) bool {
	leaves := p.After.of(promise)
	return p.Measured && leaves < left && float64(p.Age+1)*leaves <= weightBlockTogether*left &&
		p.Age < weightBlockUnchecked
}

// Remainder predicts the gain that a step to the target leaves, in nats. For the mean it is a
// multiple of the square of the gain predicted before the step, because Newton steps converge
// quadratically. For the precision it is a multiple of that gain.
type Remainder struct{ Mean, Precision float64 }

// of returns the gain that remains after a step with the given predicted gain.
func (r Remainder) of(promise float64) float64 { return promise * (promise*r.Mean + r.Precision) }

// A block is solved until its remaining gain, in nats, is below weightBlockTol of its first
// predicted gain and below weightBlockGoal, or for weightBlockEvals evaluations. Steps that leave
// less than the first of these limits are taken unchecked, until together they leave
// weightBlockTogether times as much, and at most weightBlockUnchecked of them. In 300,000 rows of
// 50 columns the late blocks leave 1e-8 nats: checking one in nine took 6% more time than
// checking one in 65.
const (
	weightBlockTol  = 1e-4
	weightBlockGoal = 1e-2
	WeightBlockFine = 1e-7 // for the last block
	// relative to the first predicted gain, if rows are visited again, because the other blocks
	// will change more
	weightBlockRough     = 0.03
	weightBlockEvals     = 1000
	weightBlockTogether  = 8
	weightBlockUnchecked = 64
	weightBlockLeft      = 1 // nats that may remain after weightBlockEvals
	// or for the last block, if rounding allows no step: 4% of a variance
	weightBlockLast = 5e-4
)

// Promise returns the predicted gain of the linearized problem in nats. For the mean it is
// ½gᵀP⁻¹g with the gradient g = Xᵀ(d1 − a) of the ELBO. For the precision it is ¼ tr(VΔP)²/D ≤ ¼
// tr((VΔP)²), because only the trace is available.
func (b *WeightBlock) Promise(s *term.Marginals, at *gauss.Gaussian) (mean, precision float64) {
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

// Solve moves w to the solution for the rows of x at index, whose terms in t are also at index.
// b.Base holds their sites (γ, and a about its m), and receives the sites of the solution. Its
// length is the number of rows.
func (b *WeightBlock) Solve(w *gauss.Gaussian, x *design.Matrix, index []int, t *term.Terms) error {
	x, at := b.near(x, index)
	return b.solve(w, x, at, t, index)
}

// near returns the rows of x at index and their numbers there. They are consecutive in memory if
// copying pays. They are valid until the next call.
func (b *WeightBlock) near(x *design.Matrix, index []int) (rows *design.Matrix, at []int) {
	if x.Sparse == nil && index != nil && len(index)*x.Cols <= mostGathered {
		return b.gather(x, index), nil
	}
	return x, index
}

// solve is Solve for the rows of x at the given numbers. Their terms are at index.
func (b *WeightBlock) solve(w *gauss.Gaussian, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	b.Mover.X, b.Mover.Index, b.Mover.Base, b.Mover.moved = x, at, w, false
	before := b.Pace
	if err := b.moveOn(w, x, at, t, index); err != nil {
		b.Pace = before
		return err
	}
	return nil
}

// mostGathered is the largest number of values, 64 MB, for which the rows of a block are copied.
// A few products then read them from consecutive memory.
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

// moveOn is solve without restoring the pace after an error.
func (b *WeightBlock) moveOn(w *gauss.Gaussian, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	p, base := &b.prob, &b.Base
	w.Variances(base.V, x, at, &b.Mover.Buf)
	p.plain = len(base.M) > 4*x.Cols
	if err := p.Init(t, index, &b.Mover, base); err != nil {
		return err
	}
	promise, precision := b.Promise(&p.Cur.Marginals, w)
	d := float64(x.Cols)
	left := promise + d*precision // nats; ¼ tr(VΔP)² is a bound if one row dominates
	if promise += precision; promise < 1e-15 {
		return t.Overflow(&p.Cur.Marginals, index)
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
		mean, precision := b.Promise(&p.Cur.Marginals, &b.Mover.Cur)
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
	if err := t.Overflow(&p.Cur.Marginals, index); err != nil {
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

// The span of the rows. Under a Gaussian N(m, P⁻¹) with P = RRᵀ, the rows of X depend on Rᵀ(w −
// m) only through its part in the span of the rows of Z = XR⁻ᵀ. With Z = LQ that part is u =
// QRᵀ(w − m) ~ N(0, I), with one dimension per independent row, and X(w − m) = Lu. If there are
// few rows and many weights, and float64 has too few digits in their units, twice the digits are
// affordable in u.

// The span pays from spanWeights weights, and spanRows weights per row. Fewer weights are fitted
// equally well in their own units.
const (
	spanWeights = 100
	spanRows    = 2
)

// spanPays reports whether the given number of rows is small for the given number of weights.
func spanPays(rows, weights int) bool { return weights >= spanWeights && spanRows*rows <= weights }

// span returns L for the rows of x at index, whose sites have about the precisions gamma. The
// function rows replaces a row of x by its row of Z. L starts with the strongest rows, so that a
// large part of the precisions of u remains after them. It also returns the rows of Q.
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

// spans reports whether to solve the problem of the block over the span of its rows. That pays if
// w with the targets of the block needs twice the digits. Λ + Σ Δγ_n x_nx_nᵀ is at most 1 + Σ
// Δγ_n v_n times the precision Λ of w, so a diagonal element can lose that factor.
func (b *WeightBlock) spans(w *gauss.Gaussian, x *design.Matrix) bool {
	if !spanPays(len(b.Base.M), x.Cols) {
		return false
	}
	told := 1.0
	for i, v := range b.Base.V {
		told += math.Abs(b.prob.Cur.Tg[i]-b.Base.Gamma[i]) * v
	}
	return w.Double || !(w.Pivot(w) >= gauss.LeastPivot*told)
}

// inSpan solves the problem of the block over the span of its rows, and moves w to the solution,
// as moveOn does.
func (b *WeightBlock) inSpan(w *gauss.Gaussian, x *design.Matrix, at []int, t *term.Terms,
	index []int) error {
	base, h := &b.Base, b.prob.Workers.Halt
	l, _ := span(x, at, b.prob.Cur.Tg, w.Whiten, h)
	if err := h.Err(); err != nil {
		return err
	}
	if b.Near == nil {
		b.Near = &WeightBlock{}
	}
	s, near := b.Near, &gauss.Gaussian{Halt: h}
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

// WeightMatrices is the largest number of D×D matrices of a model with a WeightAlgebra: 13
// measured for three states, the prior, a step and a posterior, and two more for each of these
// that needs twice the digits.
const WeightMatrices = 22

// WeightAlgebra is the Gaussian over the weights of a GLM with a full covariance. Its sites are
// the sites of the rows,
//
//	V⁻¹ = Λ0 + Xᵀ diag(γ) X,   V⁻¹(m − μ0) = Xᵀb,
//
// unless a step with a given β has left them.
type WeightAlgebra struct {
	BaseAlgebra
	Lin   *LinearModel
	Prior *gauss.Gaussian

	Mover weightMover // mover of the problem of all rows

	Run           gauss.Gaussian // the current state, with its mean about μ0
	Gamma, A, Eta []float64      // the sites of Cur: γ, and the linear coefficient about η
	Free          bool           // Run has no sites

	Blocks WeightBlock
	Gap    weightGap
	Pg     weightPaper
	enough int       // rows in blocks before all rows follow; 0 means all
	before []float64 // the mean before a step
	in     []bool    // scratch of distinct
	unique []int
}

// weightBase is the Base of a WeightAlgebra. It gives Sites the fast methods of base.go.
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

// NewWeightAlgebra returns the prior of l.
func NewWeightAlgebra(l *LinearModel, c term.Crew) (*WeightAlgebra, error) {
	return NewWeightAlgebraIn(nil, l, c)
}

// NewWeightAlgebraIn is NewWeightAlgebra in the memory of old, which must not be used afterward.
// A nil old is allowed.
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
		s.takeMemory(&old.BaseAlgebra)
	}
	s.lay(l.Terms, weightBase{&s.Mover, s}, c)
	s.Gamma, s.A, s.Eta = s.Cur.Gamma, s.Cur.A, s.Cur.M
	return s, nil
}

// ampleRows is the number of rows per weight from which the log-likelihoods of half of the rows
// sum to almost a parabola. One Newton step of all rows then leaves little, so blocks need not be
// solved accurately.
const ampleRows = 64

// Blocks of 1/enoughPart of all rows are enough, or of enoughRows rows per weight, because
// precisions are then mostly within 0.01 nats after one pass. A sixteenth of the rows takes a
// tenth less time, but a fit of 17,000 rows from a file with almost equal columns then diverged.
const (
	enoughPart = 8
	enoughRows = 128
)

// enoughOf returns how many rows blocks must read before one step of the mean and the targets of
// all rows leave almost no gain, in a concave model. It is a third of the rows, if that is less
// than enoughRows per weight and at least a quarter of them. It returns 0 if there are too few
// rows.
func enoughOf(rows, weights int) int {
	enough := max(rows/enoughPart, min(rows/3, enoughRows*weights))
	if 4*enough < enoughRows*weights {
		return 0
	}
	return enough
}

// mostBlock is the number of rows up to which every block may grow, because its data then fit
// into the cache. Half of 100,000 rows in one block took a quarter more time, and left more.
const mostBlock = 4096

// outerWork is the number of multiplications per row of a new V from which outer steps pay. It is
// the cost of 64 dense columns, for which the expectations of the inner steps take as long as
// they save.
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

// plan implements blocker: outer steps of all rows if these pay, one step of all rows under
// Gaussian noise, and otherwise one pass of growing blocks, to approach the optimum, and then
// steps of all rows.
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

// use implements keeper.
func (b weightBase) use(c term.Crew) {
	s := b.s
	s.Pg.Buf.Halt, s.Pg.next.Halt, s.Pg.metric.Halt, s.Run.Halt = c.Halt, c.Halt, c.Halt, c.Halt
	s.Prior.Halt, s.Gap.target.Halt, s.Gap.Buf.Halt = c.Halt, c.Halt, c.Halt
	s.Mover.use(c.Halt)
	s.Blocks.Use(c)
}

// Prior implements Base.
func (b weightBase) Prior() (base term.Marginals) {
	s := b.s
	base, s.spare = s.spare, term.Marginals{}
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

// restart implements keeper.
func (b weightBase) restart() {}

// stale implements keeper.
func (b weightBase) stale() {}

// settled implements keeper.
func (b weightBase) settled() bool { return true }

// follow implements keeper.
func (b weightBase) follow() (distance float64) {
	b.s.Gap.known = false
	distance = floats.Distance(b.s.Run.Mean, b.Cur.Mean, 2)
	b.s.Run.CopyFrom(&b.Cur)
	return distance
}

// Settle makes the state of the problem of all rows the current state; see Sites.Refresh.
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

// sitesHere gives a state without sites the targets at that state as sites.
func (s *WeightAlgebra) sitesHere() error {
	var t term.Marginals
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
	return s.BaseAlgebra.Ascend()
}

// Slow implements Algebra.
func (s *WeightAlgebra) Slow() bool { return s.Progress.Slow }

// block implements blocker. It does not check the ELBO; the next evaluation does.
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
		// At the present state this block has no expectations, or it cannot be solved. It is left
		// out, and a step of all rows decides.
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

// goesOn reports whether batch holds all remaining rows, none of them in a block yet, when blocks
// have read enough rows.
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

// rest continues from blocks of some rows, seen of them, to all rows. It takes a step of the mean
// up the gradient of all rows, in the metric of their precision times N/seen. The targets there
// become the sites of all rows. If the ELBO is lower there, the sites are the targets before the
// step.
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
		return nil // as for a block
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
		if err := q.run(s); err != nil { // only a halt fails here, because the mean has expectations
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

// settleThere makes the state at the sites of s.Batch.Try the current state. The state after the
// blocks remains if the new state has no value or the crew is halted.
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
	s.BaseAlgebra.follow(&p.Cur)
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

// Evaluate implements Algebra. Blocks that lowered the ELBO are undone. The gap is ½δᵀFδ in
// natural parameters, with the gradient g of the ELBO in the mean and the distance ΔP of the
// precision from its target,
//
//	½ gᵀVg + ¼ tr(VΔPVΔP),
//
// plus an allowance for rounding if features are collinear to more digits than float64 has.
// term.SiteChange bounds the second part. The gap is unknown after a step with a given β.
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
		if stepped || !s.Proof.stepped { // the state did not move
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

// Promise returns the gap of the state of the problem of all rows; see Evaluate.
func (s *WeightAlgebra) Promise() float64 {
	c := &s.Batch.Cur
	if c.Wild {
		return math.Inf(1)
	}
	s.inspect()
	return s.Gap.mean + 0.25*s.Gap.change.Square() + s.Mover.Cur.Rounding() + s.Proof.rounding
}

// inspect computes the gradient and the change of the sites at the state of the problem of all
// rows, once per state.
func (s *WeightAlgebra) inspect() {
	g, c, b := &s.Gap, &s.Batch.Cur, &s.Blocks
	if g.known {
		return
	}
	b.Mover.X, b.Mover.Index = s.Lin.X, nil
	g.mean, _ = b.Promise(&c.Marginals, &s.Mover.Cur)
	g.up = append(g.up[:0], b.up...)
	g.change = c.Change()
	g.known = !s.Workers.Halt.Stopped()
}

// Weights implements Weighted.
func (s *WeightAlgebra) Weights() ([]float64, gauss.Cov, error) {
	w := &gauss.Gaussian{}
	w.CopyFrom(&s.Run)
	return append([]float64(nil), w.Mean...), &gauss.Full{S: w}, nil
}

// weightPaper is the workspace of a step with a given β.
type weightPaper struct {
	w, rest      []float64
	h            dense.Double
	next, metric gauss.Gaussian // the target, about the current mean, and the metric of h
	base         gauss.Gaussian // the target without the batch
	valid, tried bool           // next has a factor; a first try was made, so later ones factor again
	appendix     bool
	negative     bool // some γ̂ is negative
	Buf          design.Work
}

// Marginals implements Algebra.
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

// aim implements Algebra. It computes h = (1−r)(Xᵀα̂ − Λ0 m) and P₊ = rP + (1−r)(Λ0 + XᵀΓ̂X). The
// metric turns h into the move of the mean.
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

// try implements Algebra.
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
func (s *WeightAlgebra) above(w *gauss.Gaussian) bool {
	t := &s.Pg
	t.rest = dense.Resize(t.rest, len(w.P))
	floats.AddScaledTo(t.rest, w.P, -noisyPivot, s.Prior.P)
	return dense.Cholesky(t.rest, len(w.Mean))
}

// halve implements Algebra.
func (s *WeightAlgebra) halve() {
	t := &s.Pg
	t.next.Average(0.5, &t.next, &s.Run)
	floats.Scale(0.5, t.h.Hi)
	floats.Scale(0.5, t.h.Lo)
}

// take implements Algebra.
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

// freeEvaluation is Evaluate for a state without sites, with
//
//	KL = ½(tr(Λ0V) − D + mᵀΛ0m + log|P| − log|Λ0|).
//
// With c = Λ0m − Xᵀα̂ and A = Λ0 + XᵀΓ̂X the gap is about ½cᵀA⁻¹c + ½(tr(AV) − D + log|P| −
// log|A|). For concave terms, the gap bound has Λ0 in place of A, and twice the second part.
func (s *WeightAlgebra) freeEvaluation() (siteEvaluation, error) {
	t, g := &s.Pg, &s.Gap
	var c term.Marginals
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

// save implements keeper.
func (b weightBase) save(c *save.Coder) {
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

// resume implements keeper.
func (b weightBase) resume([]float64) {}

// Constant implements Algebra.
func (s *WeightAlgebra) Constant() bool { return !s.Free && s.BaseAlgebra.Constant() }

// loosePrecisions is the largest observed ratio of the bound on the precisions by the sites alone
// to the exact value. If the exact value may be below the goal, a product XᵀΓX and its factor
// compute it.
const loosePrecisions = 10

// worthStepping is the estimated gap, in nats per weight, below which a step of the mean pays if
// there are many rows. It takes their expectations but no XᵀΓX, and the targets at the new mean
// are as good as after one more pass.
const worthStepping = 1

// nearGoal is the estimated gap, as a part of the goal, below which a proof by rows is tried
// before a step of the mean. If |ℓ‴| ≤ |ℓ″|, it takes no expectations.
const nearGoal = 0.2

// worthProving is the estimated gap, in nats, below which the gap of a WeightAlgebra is proved. A
// proof takes the expectations of all rows and the product XᵀΓX once more.
const worthProving = 1

// weightGap is the workspace of the gap bound of a WeightAlgebra.
type weightGap struct {
	target gauss.Gaussian // Λ0 + XᵀΓ̂X
	c, z   []float64      // the gradient and Λ0⁻¹c
	Buf    design.Work

	// Promise and boundHere use the results of inspect.
	known  bool      // the next fields belong to the current state of all rows
	up     []float64 // gradient of the ELBO in the mean
	mean   float64   // predicted gain of a step of the mean, in nats
	change term.SiteChange
}

// Prove takes the step of the mean of the problem of all rows, V held, unless the ELBO would
// fall. Near the goal it first tries a proof without the step. It returns a gap bound of the new
// state, except for the error of log|P|. The error comes from the crew, and the proof can then be
// continued.
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

// boundHere is Prove without a step.
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
	byRows := func() { // if the bound by rows may be lower
		if math.IsInf(rows, 1) && mean+precision > goal && mean > precision {
			rows = s.Terms.RowGap(&c.Marginals, -c.Value, p.Base.V, nil, goal-2*precision,
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
	// The bound by rows holds the covariance fixed. The gain of the mean by the move of V is at
	// most the gain of V itself, so that counts twice.
	return min(mean+precision, rows+2*precision) + rounding, nil
}

// Unsolved bounds the gain that rounding of the mean w leaves. The mean solves Λ0w = Xᵀa up to a
// residual r. The exact solution is at P⁻¹r, where the ELBO changes by about ½rᵀP⁻¹r. The bound
// is twice that.
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

// ResidualError returns a bound on eᵀP⁻¹e for the rounding e of a residual r in float64, or +Inf
// if it has no bound. A sum of N products has an error of at most Nε‖a‖‖x_j‖ for column j.
// Because P ⪰ Λ0, the bound is (Nε‖a‖)² Σ_j ‖x_j‖²/λ_j, and its sum is the sum of the variances
// of the rows under the prior.
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

// stepMean takes the step of the mean once, before a proof of the gap. The error comes from the
// crew.
func (s *WeightAlgebra) stepMean() error {
	if c := &s.Batch.Cur; s.Proof.stepped || s.Terms.Noise() > 0 && slices.Equal(c.Gamma, c.Tg) {
		return nil // done, or there is no gain
	}
	if !s.MeanStep() {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
	}
	s.Proof.stepped = true
	return nil
}

// MeanStep moves the mean of the problem of all rows to m⁺ = m − Vc, V held, or to the result of
// the best mean of the inner steps, if its value does not rise. It reports whether it did.
func (s *WeightAlgebra) MeanStep() bool {
	p := &s.Batch
	x := &p.Cur.Marginals
	if p.Outer > 0 && !x.Wild {
		p.Inner(innerLeast, innerPart)
		x = &p.In.At
	}
	if s.Workers.Halt.Stopped() || !p.again(x) {
		return false
	}
	s.BaseAlgebra.follow(&p.Cur)
	return true
}

// SpanAlgebra is the Algebra of a linear model with few rows over their span. The first step with
// a given β switches to the weights.
type SpanAlgebra struct {
	*WeightAlgebra // near or, once Wide, an algebra over the weights
	near           *WeightAlgebra
	whole          *LinearModel
	Wide           bool
}

// newSpanAlgebra returns the prior of l. Its sites may reach the given precisions.
func newSpanAlgebra(l *LinearModel, gamma []float64, c term.Crew) (*SpanAlgebra, error) {
	own, _, err := l.inSpan(gamma, c.Halt)
	if err != nil {
		return nil, err
	}
	near, err := NewWeightAlgebra(own, c)
	return &SpanAlgebra{WeightAlgebra: near, near: near, whole: l}, err
}

// inSpan returns l in the span of its rows, as span does for sites of about the given precisions.
// The weights are u = QRᵀ(w − μ0) ~ N(0, I). It also returns the rows of Q.
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

// Weights implements Weighted.
func (s *SpanAlgebra) Weights() ([]float64, gauss.Cov, error) {
	if s.Wide {
		return s.WeightAlgebra.Weights()
	}
	return s.whole.primal(s.Gamma, s.A, s.Eta, s.Workers.Halt)
}

// aim implements Algebra. A step with a given β uses the weights.
func (s *SpanAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	if err := s.widen(); err != nil {
		return err
	}
	return s.WeightAlgebra.aim(x, batch, m)
}

// widen switches to the weights.
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

// State implements Algebra.
func (s *SpanAlgebra) State(c *save.Coder) {
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

// potentials returns b of the sites γ and a about the linear predictors m − o. V⁻¹ times the mean
// is Xᵀb.
func potentials(gamma, a, m []float64) []float64 {
	b := make([]float64, len(a))
	for i, g := range gamma {
		b[i] = a[i] + g*m[i]
	}
	return b
}

// at returns the Gaussian of the weights at the given sites.
func (l *LinearModel) at(gamma, a, m []float64, h *parallel.Halt) (*gauss.Gaussian, error) {
	cov := &gauss.Dual{X: l.X, Gamma: gamma, Prior: &l.Prior}
	w, err := cov.State(h)
	if err == nil {
		w.Solve(l.X, potentials(gamma, a, m), nil, &design.Work{Halt: h})
	}
	return w, err
}

// primal returns the mean and the covariance of the weights at the given sites.
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

// StartAt sets q to the sites γ and a. The coefficients a are about the linear predictors m.
func (s *WeightAlgebra) StartAt(gamma, a, m []float64) {
	copy(s.Gamma, gamma)
	copy(s.A, a)
	copy(s.Eta, m)
	s.Fresh, s.Batched, s.Free, s.Started, s.Proof = false, false, false, false, Proof{}
}
