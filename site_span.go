package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
)

// The span of the rows. Under a Gaussian N(m, P⁻¹), P = RRᵀ, the rows of X see of Rᵀ(w − m) no more than its part in the span of those of
// Z = XR⁻ᵀ: with Z = LQ, that is u = QRᵀ(w − m) ~ N(0, I) of as many dimensions as there are independent rows, and X(w − m) = Lu. Of few rows and many weights
// in units for which float64 has too few digits it is what can be afforded in twice as many.

// spanRows is the number of weights for each row from which on their span is worth its factor.
const spanRows = 2

// span returns L for the rows of x at index, z being scratch for Z as soon as it is what rows makes of them.
func span(x *design, index []int, n int, rows func(z dense.Double), h *parallel.Halt) *design {
	var z dense.Double
	d := x.cols
	z.Resize(n * d)
	z.Clear()
	for a := range n {
		x.dense1(z.Hi[a*d:(a+1)*d], dense.Index(index, a))
		if h.Stopped() {
			break
		}
		rows(z.Slice(a*d, (a+1)*d))
	}
	l, rank := z.LowerRows(h, n)
	return &design{rows: n, cols: rank, dense: l}
}

// spans reports whether the problem of the block, whose targets at w are known, is worth solving over the span of its rows: where w with these takes
// twice the digits. Λ + Σ Δγ_n x_nx_nᵀ is at most 1 + Σ Δγ_n v_n times the precision Λ of w, and so less of a diagonal element may be left.
func (b *weightBlock) spans(w *weightState, x *design) bool {
	if spanRows*len(b.base.m) > x.cols {
		return false
	}
	told := 1.0
	for i, v := range b.base.v {
		told += math.Abs(b.prob.cur.tg[i]-b.base.gamma[i]) * v
	}
	return w.double || !(w.pivot(w) >= leastPivot*told)
}

// inSpan solves the problem of the block over the span of its rows, and moves w to the solution, as moveOn does.
func (b *weightBlock) inSpan(w *weightState, x *design, index []int, t *siteTerms) error {
	base, h := &b.base, b.prob.workers.halt
	l := span(x, index, len(base.m), w.whiten, h)
	if err := h.Err(); err != nil {
		return err
	}
	if b.near == nil {
		b.near = &weightBlock{}
	}
	s, at := b.near, &weightState{halt: h}
	s.use(b.prob.workers)
	s.fine, s.pace = b.fine, pace{}
	s.base.copyFrom(base)
	at.resize(l.cols)
	for j := range l.cols {
		at.p[j*l.cols+j] = 1
	}
	at.factor()
	if err := s.solve(at, l, nil, t.sub(index)); err != nil {
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

// spanAlgebra is the algebra of a linear model with few rows over their span, until a step with a given β takes it to the weights.
type spanAlgebra struct {
	*weightAlgebra // near or, once wide, one over the weights
	near           *weightAlgebra
	whole          *linearModel
	wide           bool
}

// newSpanAlgebra returns the prior of l.
func newSpanAlgebra(l *linearModel, c crew) (*spanAlgebra, error) {
	rows := func(z dense.Double) {
		for j, p := range l.prior.prec {
			z.Hi[j], z.Lo[j] = dense.Product(z.Hi[j], 1/math.Sqrt(p))
		}
	}
	if w := l.prior.full; w != nil {
		rows = w.whiten
	}
	x := span(l.x, nil, l.x.rows, rows, c.halt)
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
