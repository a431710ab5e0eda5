package accel

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/optimize"
)

const (
	lbfgsRestarts  = 8     // most runs; each starts without the curvature of the last one
	lbfgsSteps     = 2000  // most steps of a run
	lbfgsMemory    = 20    // pairs of steps and gradients kept
	lbfgsGradient  = 1e-11 // largest element of the gradient at which a run stops
	lbfgsLeastGain = 1e-15 // relative gain of a run below which the next is not tried
)

// LBFGS minimizes a smooth function by L-BFGS (Liu and Nocedal, 1989), and restarts it until a
// restart no longer helps. gradient stores the gradient at x in dst. x0 does not change. It
// returns the best point found, and false if the value at x0 is not finite.
func LBFGS(value func([]float64) float64, gradient func(dst, x []float64), x0 []float64) ([]float64,
	bool) {
	best := value(x0)
	if math.IsNaN(best) || math.IsInf(best, 0) {
		return nil, false
	}
	x := append([]float64(nil), x0...)
	for range lbfgsRestarts {
		// Minimize may return a useful result with an error, usually because rounding stops the
		// line search. The value decides.
		r, _ := optimize.Minimize(optimize.Problem{Func: value, Grad: gradient}, x,
			&optimize.Settings{GradientThreshold: lbfgsGradient,
				Converger: optimize.NeverTerminate{}, MajorIterations: lbfgsSteps},
			&optimize.LBFGS{Store: lbfgsMemory})
		if r == nil || !(r.F < best) {
			break
		}
		gain := best - r.F
		best = r.F
		copy(x, r.X)
		if gain < lbfgsLeastGain*(1+math.Abs(best)) {
			break
		}
	}
	return x, true
}

// Ascent returns the L-BFGS direction H grad in which a function with this gradient rises. The
// inverse Hessian H comes from the last steps, oldest first: their moves, and by how much the
// gradient fell along each. The inner products of the two are positive. Without steps it is the
// gradient.
func Ascent(grad []float64, moves, turns [][]float64) []float64 {
	d := slices.Clone(grad)
	rho := make([]float64, len(moves))
	for i := len(moves) - 1; i >= 0; i-- {
		rho[i] = floats.Dot(moves[i], d) / floats.Dot(moves[i], turns[i])
		floats.AddScaled(d, -rho[i], turns[i])
	}
	if k := len(moves) - 1; k >= 0 {
		floats.Scale(floats.Dot(moves[k], turns[k])/floats.Dot(turns[k], turns[k]), d)
	}
	for i, s := range moves {
		floats.AddScaled(d, rho[i]-floats.Dot(turns[i], d)/floats.Dot(s, turns[i]), s)
	}
	return d
}
