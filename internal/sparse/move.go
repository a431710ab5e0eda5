package sparse

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// These constants control moves of inducing inputs, in units of the standard deviation of each
// column. They were chosen by trials in two and in eight dimensions.
const (
	movePairs  = 10   // past steps from which the curvature is estimated
	moveFirst  = 0.05 // largest move of a coordinate in the first step, whose length is a guess
	moveMost   = 0.5  // largest move in any other step, so that neighbors do not pass each other
	moveTries  = 6    // lengths of a step
	movePart   = 1e-4 // fraction of the gain predicted by the slope that a step must reach
	moveRow    = 3    // the search ends after this many steps in a row
	moveGain   = 1e-2 // that together gain fewer nats than this
	moveSlack  = 1e-4 // nats by which q may miss its best
	moveDiffer = 1e-5 // step of differences for kernels without derivatives in their inputs
)

// Move is the ELBO at the best q as a function of the inducing inputs.
type Move struct {
	Unit   []float64 // unit of each column
	whole  Division
	pass   Pass
	slopes *slopes
}

// MovePoint holds the results at one set of inducing inputs.
type MovePoint struct {
	Z    *mat.Dense
	ELBO float64
	Grad []float64 // in the units of the columns
	q    *gauss.Gaussian
}

// NewMove returns a Move of the inducing values of whole that uses the rows in memory. It starts
// from a fit by fit.
func NewMove(rows *Rows, lik Likelihood, fit Fit, workers term.Crew, whole Division) *Move {
	m := &Move{whole: whole, Unit: make([]float64, rows.Cols),
		pass: Pass{Rows: rows, Lik: lik, Fit: fit, Workers: workers}}
	if rows.All != nil {
		m.pass.From = len(rows.Y)
	}
	differ := make([]float64, len(m.Unit))
	for j := range m.Unit {
		if m.Unit[j] = stat.PopStdDev(mat.Col(nil, j, rows.X), nil); !(m.Unit[j] > 0) {
			m.Unit[j] = 1
		}
		differ[j] = moveDiffer * m.Unit[j]
	}
	m.slopes = &slopes{kernel: whole.Kernel, p: &m.pass, steps: differ}
	return m
}

// Run returns the inducing inputs after the given number of evaluations. It starts from the
// inducing inputs of u, and returns nil if it found no better inducing inputs.
func (m *Move) Run(u *Inducing, steps int) (*mat.Dense, error) {
	m.pass.Z = u
	q, err := m.pass.Cold()
	if err != nil {
		return nil, err
	}
	at, err := m.At(mat.DenseCopyOf(u.Inputs()), q)
	if err != nil || at == nil {
		return nil, err
	}
	first := at
	var moves, turns [][]float64
	var gains []float64
	for count := 1; count < steps; {
		dir, most := accel.Ascent(at.Grad, moves, turns), moveMost
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
		turn := slices.Clone(at.Grad)
		floats.Scale(length, dir)
		floats.Sub(turn, next.Grad)
		if floats.Dot(dir, turn) > 0 {
			if len(moves) == movePairs {
				moves, turns = moves[1:], turns[1:]
			}
			moves, turns = append(moves, dir), append(turns, turn)
		}
		gains = append(gains, next.ELBO-at.ELBO)
		at = next
		if k := len(gains) - moveRow; k >= 0 && floats.Sum(gains[k:]) < moveGain {
			break
		}
	}
	if at == first {
		return nil, nil
	}
	return at.Z, nil
}

// along returns the first point from p along dir whose ELBO gains enough compared with the slope,
// with its length and the number of tries. Each try has a quarter of the length of the one
// before. It returns nil after tries failures.
func (m *Move) along(p *MovePoint, dir []float64, tries int) (
	next *MovePoint, length float64, tried int, err error) {
	slope, d := floats.Dot(dir, p.Grad), len(m.Unit)
	for length = 1; tried < tries; length /= 4 {
		z := mat.DenseCopyOf(p.Z)
		for i, v := range dir {
			z.Set(i/d, i%d, z.At(i/d, i%d)+length*v*m.Unit[i%d])
		}
		tried++
		next, err = m.At(z, p.q)
		if err != nil || next != nil && next.ELBO > p.ELBO+moveSlack+movePart*length*slope {
			return next, length, tried, err
		}
	}
	return nil, 0, tried, nil
}

// At returns the MovePoint of z after natural steps from q. It is nil if z has no ELBO.
func (m *Move) At(z *mat.Dense, q *gauss.Gaussian) (*MovePoint, error) {
	p := &m.pass
	halt := p.Workers.Halt
	v := m.whole.Again(m.whole.Kernel)
	p.Z = v.Factored(halt, z)
	if err := halt.Err(); err != nil || p.Z == nil {
		return nil, err
	}
	start := &gauss.Gaussian{}
	start.CopyFrom(q)
	a := Ascent{Pass: p}
	a.Start(start)
	for range mostPasses {
		if err := a.Move(); err != nil {
			return nil, halt.Err()
		}
		if a.Gap() <= moveSlack || a.Stuck() {
			break
		}
	}
	s := m.slopes
	s.at(a.At)
	p.each = s.add
	look, err := p.At(a.At)
	p.each = nil
	if err != nil {
		return nil, halt.Err()
	}
	grad := slices.Clone(s.moved(look)[p.Z.Wholes()*len(m.Unit):])
	x := &MovePoint{Z: z, ELBO: look.ELBO, Grad: grad, q: a.At}
	for i := range x.Grad {
		x.Grad[i] *= m.Unit[i%len(m.Unit)]
	}
	if _, ok := dense.AllFinite(x.Grad); !ok || math.IsNaN(x.ELBO) || math.IsInf(x.ELBO, 0) {
		return nil, nil
	}
	return x, nil
}
