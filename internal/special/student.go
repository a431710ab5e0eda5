package special

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// StudentCDF returns the distribution function of Student's t with nu degrees of freedom.
func StudentCDF(nu, t float64) float64 {
	if math.IsNaN(t) || math.IsNaN(nu) {
		return math.NaN()
	}
	var tail float64
	if q := t * t / nu; q < 1 {
		tail = 0.5 - mathext.RegIncBeta(0.5, nu/2, q/(1+q))/2
	} else {
		tail = mathext.RegIncBeta(nu/2, 0.5, 1/(1+q)) / 2
	}
	if t > 0 {
		return 1 - tail
	}
	return tail
}
