package site

import (
	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file starts a linear softmax model at the mode of its means. L-BFGS finds the mode without
// covariances, so the first step costs far less than a step from the prior. Problem.departMany
// calls mode (see moder in base.go).
//
// A search takes at most pointSteps steps and remembers pointMemory of them. A step is halved up
// to pointHalves times, until the log posterior rises by the part pointRise of its first-order
// prediction. The search ends when a step gains less than the part pointEnough of the whole gain,
// because the mode is only a start.
const (
	pointSteps  = 60
	pointMemory = 10
	pointHalves = 10
	pointRise   = 1e-4
	pointEnough = 1e-3
)

// mode implements moder by L-BFGS. It finds the argmin of ½ Σ_c w_cᵀΛw_c − Σ log p(y_n|Xw). Its
// coordinates are u_c = Lᵀw_c with LLᵀ = Λ + ½XᵀX, which is an upper bound on the Hessian of a
// class (Böhning, 1992).
func (a *softmaxBase) mode(s *term.Marginals, expect func(s *term.Marginals) bool) {
	d, k := a.x.Cols, a.k
	l, half, w := make([]float64, d*d), make([]float64, a.x.Rows), make([]float64, k*d)
	for i := range half {
		if half[i] = 0.5; a.of.Terms.Weight != nil {
			half[i] *= a.of.Terms.Weight[i]
		}
	}
	a.x.AddGram(l, half, nil, &design.Work{})
	for j, p := range a.total() {
		l[j*d+j] += p / float64(k)
	}
	if !dense.Cholesky(l, d) {
		return
	}
	// look moves s to u, returns the log posterior there and stores its gradient.
	look := func(grad, u []float64) (value float64, ok bool) {
		copy(w, u)
		dense.Trsm(blas.Right, blas.NoTrans, 1, dense.LowerTriangle(l, d), dense.General(w, k, d))
		a.spread(s.M, w)
		if !expect(s) {
			return 0, false
		}
		a.gather(grad, s.D1)
		value = floats.Sum(s.E)
		for i, x := range w {
			value -= 0.5 * a.prec[i] * x * x
			grad[i] -= a.prec[i] * x
		}
		dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(l, d), dense.General(grad, k, d))
		return value, true
	}
	size := k * d
	u, grad := make([]float64, size), make([]float64, size)
	first, ok := look(grad, u)
	value := first
	var moves, turns [][]float64
	for step := 0; ok && step < pointSteps; step++ {
		dir := accel.Ascent(grad, moves, turns)
		slope, length, at := floats.Dot(dir, grad), 1.0, 0.0
		next, turn := make([]float64, size), make([]float64, size)
		for range pointHalves {
			if a.crew.Halt.Stopped() {
				return
			}
			floats.AddScaledTo(next, u, length, dir)
			at, ok = look(turn, next)
			if ok = ok && at >= value+pointRise*length*slope; ok {
				break
			}
			length /= 2
		}
		if !ok {
			break
		}
		gain := at - value
		floats.AddScaledTo(u, next, -1, u) // the move
		floats.AddScaledTo(grad, grad, -1, turn)
		if floats.Dot(u, grad) > 0 {
			moves, turns = append(moves, u), append(turns, grad)
		}
		if len(moves) > pointMemory {
			moves, turns = moves[1:], turns[1:]
		}
		if u, grad, value = next, turn, at; gain <= pointEnough*(value-first) {
			return
		}
	}
	look(grad, u)
}

var _ moder = (*softmaxBase)(nil)
