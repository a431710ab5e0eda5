// Package diff has gradients by differences.
package diff

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
)

const (
	// Step is that of differences of fourth order, relative to the size of the element.
	Step = 2e-4
	// Scale is the least size of an element.
	Scale = 5e-3
)

// Gradient stores the gradient of f at x in dst, by central differences of fourth order. f reports
// false where it is not defined: a step that leads there is shortened, and an element without one
// that is short enough is NaN. x is as before afterwards.
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
