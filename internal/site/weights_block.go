package site

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file takes steps of a block of rows and holds the other rows. q is a distribution of weights. The
// rows outside the block are a Remainder, and a Pace measures how well blocks work.
// WeightAlgebra, survey.go and the streams of the root package call it.

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
