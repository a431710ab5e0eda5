package pgsvi

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Euclidean is D(q‖q0) = ½‖λ − λ0‖², whose proximal steps are gradient
// descent (h = 0) and ISTA (h = L1).
type Euclidean struct{}

// Check returns nil: it is defined for any q.
func (Euclidean) Check(Dist) error { return nil }

// Value implements Divergence.
func (Euclidean) Value(q, q0 Dist) float64 {
	d := floats.Distance(q.Params(nil), q0.Params(nil), 2)
	return 0.5 * d * d
}

// Grad implements Divergence.
func (Euclidean) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = q.Params(dst)
	floats.Sub(dst, q0.Params(nil))
	return dst
}

// Prox implements Proxer for H = Zero and H = L1.
func (Euclidean) Prox(q Dist, p *Prox) (bool, error) { return diagonalProx(q, p, nil) }

// diagonalProx is the step of Diagonal; a nil scale is that of Euclidean.
func diagonalProx(q Dist, p *Prox, scale []float64) (bool, error) {
	var weight float64
	n := 0
	if h, ok := p.H.(absTerm); ok {
		l1 := h.abs()
		weight, n = l1.Weight, l1.count(q)
	} else if !isZero(p.H) {
		return false, nil
	}
	l := p.From.Params(nil)
	for i, gi := range p.Grad {
		step := p.Beta
		if scale != nil {
			step /= scale[i]
		}
		l[i] -= step * gi
		if i >= n {
			continue
		}
		if a, t := math.Abs(l[i]), step*weight; a > t {
			l[i] = math.Copysign(a-t, l[i])
		} else if a <= t {
			l[i] = 0
		}
	}
	return true, q.SetParams(l)
}
