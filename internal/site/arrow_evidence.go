package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file computes the log evidence of a mixed model with Gaussian noise from sums over its rows.
// Package learn searches the noise and the prior scales with it, and reads the rows only once.

// Evidence is the log evidence of a linear model with blocks and Gaussian noise of variance s, plus
// the log prior of the L of the blocks,
//
//	½(hᵀm − log|C|/|V|) − ½Σ w_n (y_n − o_n)²/s − ½Σ w_n log 2πs + log p(L),
//
// where XᵀΓX and h = Xᵀb are proportional to 1/s.
type Evidence struct {
	a              *arrow
	unit           gauss.Sums // for s = 1
	hb, hg         []float64
	square, weight float64 // Σ w(y − o)² and Σ w
	t              arrowState

	// constant and residual are −½Σ w(y − o)²/s − ½Σ w log 2πs and Σ w(y − o)²/s at the present s.
	constant, residual float64
}

// NewEvidence returns the evidence of l, whose terms have Gaussian noise. It reads all rows.
func NewEvidence(l *LinearModel, c term.Crew) (*Evidence, error) {
	a, err := newArrow(l)
	if err != nil {
		return nil, err
	}
	a.use(c)
	e := &Evidence{a: a}
	n := l.X.Rows
	w, b := make([]float64, n), make([]float64, n)
	for i := range n {
		y, o, weight, _ := l.Terms.Term(i)
		w[i], b[i] = weight, weight*(y-o)
		e.square += b[i] * (y - o)
		e.weight += weight
	}
	e.t.by.ArrowShape = a.shape
	e.t.by.L = gauss.CloneLists(a.cur.by.L)
	a.sum(&e.t, w, b)
	e.unit, e.t.by.Sums = e.t.by.Sums, gauss.Sums{}
	e.hb, e.hg = append(e.hb, a.hb...), append(e.hg, a.hg...)
	return e, c.Halt.Err()
}

// Use sets the crew.
func (e *Evidence) Use(c term.Crew) { e.a.use(c) }

// L returns the present L of each factor, which the caller may change.
func (e *Evidence) L() [][]float64 { return e.t.by.L }

// set prepares the sums for the given noise and the prior precisions of all weights.
func (e *Evidence) set(noise float64, prec []float64) {
	t, u := &e.t.by.Sums, &e.unit
	for _, x := range [][2]*[]float64{{&t.A, &u.A}, {&t.B, &u.B}, {&t.D, &u.D}, {&e.a.hb, &e.hb},
		{&e.a.hg, &e.hg}} {
		*x[0] = dense.Resize(*x[0], len(*x[1]))
		floats.ScaleTo(*x[0], 1/noise, *x[1])
	}
	for i, j := range e.a.shape.Border[:e.a.shape.Common] {
		e.a.shape.Prec[i] = prec[j]
	}
	e.residual = e.square / noise
	e.constant = -0.5 * (e.residual + e.weight*math.Log(2*math.Pi*noise))
}
