// Package diff computes gradients by finite differences. The root package uses it for functions of
// a distribution q that have no gradient of their own, and package famcheck to check the
// derivatives of exponential families.
package diff

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
)

const (
	// Step is the step of the fourth-order differences, relative to the size of the coordinate.
	Step = 2e-4
	// Scale is the smallest size of a coordinate that Step is relative to.
	Scale = 5e-3
)

// Gradient stores the gradient of f at x in dst and returns dst. It uses central differences of
// fourth order. If f reports false because a point is outside its domain, Gradient shortens the
// step. A component is NaN if no step is short enough. Gradient changes x while it runs and
// restores it.
func Gradient(dst, x []float64, f func(x []float64) (float64, bool)) []float64 {
	dst = dense.Dest(dst, len(x))
	for i, at := range x {
		h := Step * math.Max(math.Abs(at), Scale)
		for range 40 {
			var v [4]float64
			valid := true
			for j, k := range [4]float64{-2, -1, 1, 2} {
				x[i] = at + k*h
				var ok bool
				v[j], ok = f(x)
				valid = valid && ok
			}
			x[i] = at
			if valid {
				dst[i] = (8*(v[2]-v[1]) - (v[3] - v[0])) / (12 * h)
				break
			}
			h /= 4
			dst[i] = math.NaN()
		}
	}
	return dst
}
