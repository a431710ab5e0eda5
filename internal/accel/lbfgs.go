package accel

import (
	"math"

	"gonum.org/v1/gonum/optimize"
)

// LBFGS minimises a smooth function by L-BFGS, restarted until a restart no
// longer helps. It returns the best point found, and false if the value at x0 is not finite.
func LBFGS(value func([]float64) float64, gradient func(dst, x []float64), x0 []float64) ([]float64, bool) {
	best := value(x0)
	if math.IsNaN(best) || math.IsInf(best, 0) {
		return nil, false
	}
	x := append([]float64(nil), x0...)
	for range 8 {
		// Minimize may return both a useful result and an error, usually because
		// the line search met the limits of rounding: the value decides.
		r, _ := optimize.Minimize(optimize.Problem{Func: value, Grad: gradient}, x,
			&optimize.Settings{GradientThreshold: 1e-11, Converger: optimize.NeverTerminate{}, MajorIterations: 2000},
			&optimize.LBFGS{Store: 20})
		if r == nil || !(r.F < best) {
			break
		}
		gain := best - r.F
		best = r.F
		copy(x, r.X)
		if gain < 1e-15*(1+math.Abs(best)) {
			break
		}
	}
	return x, true
}
