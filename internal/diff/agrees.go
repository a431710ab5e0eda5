package diff

import "math"

// Agrees returns the derivative of f at 0 by differences, and reports whether it agrees with the stated
// derivative. It also returns true if f is not finite near 0.
func Agrees(f func(t float64) float64, stated float64) (found float64, ok bool) {
	v := f(0)
	found, err := slope(f)
	if off := math.Abs(stated - found); math.IsNaN(off) || math.IsInf(off, 0) ||
		off <= 1e-4*(math.Abs(stated)+math.Abs(found))+2*err+1e-8*(1+math.Abs(v)) {
		return found, true
	}
	// At a kink, any slope between the slopes on both sides is a subgradient.
	const h = 1e-4
	left, right := (v-f(-h))/h, (f(h)-v)/h
	margin := 1e-3 * (math.Abs(left) + math.Abs(right))
	return found, stated >= left-margin && stated <= right+margin
}

// slope returns the derivative of f at 0 by central differences of fourth order, and an estimate of
// its error from two step sizes.
func slope(f func(t float64) float64) (d, err float64) {
	central := func(h float64) float64 {
		return (8*(f(h)-f(-h)) - (f(2*h) - f(-2*h))) / (12 * h)
	}
	d = central(1e-4)
	return d, math.Abs(d - central(1e-3))
}
