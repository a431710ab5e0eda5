package pgsvi

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Moving inducing inputs, in units of the deviation of each column, from trials in two dimensions
// and eight.
const (
	moveSteps = 50 // evaluations, where their number is ours to choose
	movePairs = 10 // steps that the curvature remembers
	// the longest move of a coordinate by the first step, of whose length nothing is known,
	moveFirst  = 0.05
	moveMost   = 0.5  // and by any other: neighbours do not pass each other
	moveTries  = 6    // lengths of a step
	movePart   = 1e-4 // of what the slope says, that a step must gain
	moveRow    = 3    // steps in a row
	moveGain   = 1e-2 // that together gain fewer nats than these are the last
	moveSlack  = 1e-4 // nats that q may be below its best
	moveDiffer = 1e-5 // steps of differences, of kernels without derivatives in their inputs
)

// MoveInducing returns the SparseGP with the inducing inputs of g moved to raise the ELBO, at its
// kernel and likelihood,
//
//	argmax_Z max_q ELBO(q, Z).
//
// It finds a local maximum near those of g (Titsias 2009) by a quasi-Newton method on the
// gradient in Z (L-BFGS; Liu and Nocedal 1989). It accepts only steps that raise the ELBO, and
// returns g itself if there are none. With more rows than the 50,000 of a sample, the sample
// moves them, and fits of all rows before and after decide.
//
// steps is the largest number of evaluations, each of some passes over these rows; 0 means 50.
// There is no run to save and resume: call MoveInducing again with its result. That loses only
// the memory of the curvature, ten steps. It helps if there are too few inducing inputs, but
// twice as many, chosen by NewSparseGP, cost less and are better. SparseGP.Learn of the result
// keeps them. For a kernel of your own, the derivatives by inputs are differences of Cov.
//
// The error wraps ErrParam if steps is negative. Otherwise it is that of ctx or of Fit.
func (g *SparseGP) MoveInducing(ctx context.Context, steps int) (*SparseGP, error) {
	if steps < 0 {
		return nil, fmt.Errorf("pgsvi: %d steps to move inducing inputs; 0 is the default: %w", steps, ErrParam)
	}
	if steps == 0 {
		steps = moveSteps
	}
	rows := g.rows
	if rows == nil {
		rows = rowSourceOf(g.x, g.terms)
	}
	var h parallel.Halt
	h.Watch(ctx)
	if !g.z.open {
		return g, nil
	}
	m := &inducingMove{kernel: g.z.kernel, whole: g.z.division, pass: sparsePass{rows: rows, lik: g.lik, workers: term.Crew{Workers: runtime.GOMAXPROCS(0), Halt: &h}}}
	if rows.all != nil {
		m.pass.from = len(rows.y)
	}
	z, err := m.run(g.z, steps)
	if err != nil || z == nil {
		return g, prefixed(err)
	}
	moved := &SparseGP{lik: g.lik, opt: g.opt, x: g.x, terms: g.terms, rows: g.rows}
	moved.opt.Inducing, moved.opt.Rank = z, 0
	if g.rows == nil {
		err = moved.keep(&h, g.z.division, g.x, g.terms, z)
	} else {
		err = moved.induce(&h, g.z.division, z)
	}
	if err != nil {
		return nil, g.canceled(&h, err)
	}
	if rows.all == nil {
		return moved, nil
	}
	_, before, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, after, err := moved.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !(after.ELBO-after.ELBOErr > before.ELBO+before.ELBOErr) {
		return g, nil
	}
	return moved, nil
}

// inducingMove is the ELBO at the best q as a function of the inducing inputs.
type inducingMove struct {
	kernel Kernel
	whole  division // that is again that of kernel
	pass   sparsePass
	unit   []float64 // of each column
	slopes *sparseSlopes
}

// inducingPoint is what is known of inducing inputs.
type inducingPoint struct {
	z    *mat.Dense
	elbo float64
	grad []float64 // in the units of the columns
	q    *gauss.State
}

// run returns the inducing inputs that so many evaluations lead to from those of u, or nil where
// there are no better ones.
func (m *inducingMove) run(u *inducing, steps int) (*mat.Dense, error) {
	_, d := u.x.Dims()
	x := m.pass.rows.x
	m.unit = make([]float64, d)
	differ := make([]float64, d)
	for j := range d {
		if m.unit[j] = stat.PopStdDev(mat.Col(nil, j, x), nil); !(m.unit[j] > 0) {
			m.unit[j] = 1
		}
		differ[j] = moveDiffer * m.unit[j]
	}
	m.slopes = &sparseSlopes{kernel: m.kernel, p: &m.pass, steps: differ}
	halt := m.pass.workers.Halt
	q, err := coldWeights(halt, u, m.pass.rows, m.pass.lik, m.pass.workers.Workers)
	if err != nil {
		return nil, err
	}
	at, err := m.at(mat.DenseCopyOf(u.inputs()), q)
	if err != nil || at == nil {
		return nil, err
	}
	first := at
	var moves, turns [][]float64
	var gains []float64
	for count := 1; count < steps; {
		dir, most := accel.Ascent(at.grad, moves, turns), moveMost
		if len(moves) == 0 {
			most = moveFirst
		}
		size := floats.Norm(dir, math.Inf(1))
		if !(size > 0) {
			break
		}
		if size > most || len(moves) == 0 {
			floats.Scale(most/size, dir)
		}
		next, length, tried, err := m.along(at, dir, min(moveTries, steps-count))
		count += tried
		if err != nil {
			return nil, err
		}
		if next == nil {
			if len(moves) == 0 {
				break
			}
			moves, turns = nil, nil // once more, straight up
			continue
		}
		turn := slices.Clone(at.grad)
		floats.Scale(length, dir)
		floats.Sub(turn, next.grad)
		if floats.Dot(dir, turn) > 0 {
			if len(moves) == movePairs {
				moves, turns = moves[1:], turns[1:]
			}
			moves, turns = append(moves, dir), append(turns, turn)
		}
		gains = append(gains, next.elbo-at.elbo)
		at = next
		if k := len(gains) - moveRow; k >= 0 && floats.Sum(gains[k:]) < moveGain {
			break
		}
	}
	if at == first {
		return nil, nil
	}
	return at.z, nil
}

// along returns the first of so many points from p along dir, each at a quarter of the length of
// the one before, whose ELBO is larger by what the slope says, or nil, with its length and how many
// there were.
func (m *inducingMove) along(p *inducingPoint, dir []float64, tries int) (next *inducingPoint, length float64, tried int, err error) {
	slope, d := floats.Dot(dir, p.grad), len(m.unit)
	for length = 1; tried < tries; length /= 4 {
		z := mat.DenseCopyOf(p.z)
		for i, v := range dir {
			z.Set(i/d, i%d, z.At(i/d, i%d)+length*v*m.unit[i%d])
		}
		tried++
		next, err = m.at(z, p.q)
		if err != nil || next != nil && next.elbo > p.elbo+moveSlack+movePart*length*slope {
			return next, length, tried, err
		}
	}
	return nil, 0, tried, nil
}

// at returns what there is to know of z, with natural steps from q; nil where there is no ELBO.
func (m *inducingMove) at(z *mat.Dense, q *gauss.State) (*inducingPoint, error) {
	p := &m.pass
	halt := p.workers.Halt
	v := m.whole.again(m.kernel)
	p.z = v.factored(halt, z)
	if err := halt.Err(); err != nil || p.z == nil {
		return nil, err
	}
	start := &gauss.State{}
	start.CopyFrom(q)
	a := sparseAscent{pass: p}
	a.start(start)
	for range mostPasses {
		if err := a.move(); err != nil {
			return nil, halt.Err()
		}
		if a.gap() <= moveSlack || a.stuck() {
			break
		}
	}
	s := m.slopes
	s.at(a.at)
	p.each = s.add
	look, err := p.at(a.at)
	p.each = nil
	if err != nil {
		return nil, halt.Err()
	}
	x := &inducingPoint{z: z, elbo: look.elbo, grad: slices.Clone(s.moved(look)[p.z.wholes()*len(m.unit):]), q: a.at}
	for i := range x.grad {
		x.grad[i] *= m.unit[i%len(m.unit)]
	}
	if _, ok := dense.AllFinite(x.grad); !ok || math.IsNaN(x.elbo) || math.IsInf(x.elbo, 0) {
		return nil, nil
	}
	return x, nil
}
