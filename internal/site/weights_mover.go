package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// This file holds weightMover, which turns changes of the sites of rows into means and variances of
// their linear predictors when q is kept over the weights. weights.go embeds it in the base of a
// WeightAlgebra.

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
