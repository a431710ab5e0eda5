package accel

import "math"

const (
	rootTol    = 1e-13  // relative accuracy of Root
	leastFloor = 1e-300 // least absolute accuracy of Root, for a zero at 0
	patience   = 5      // the bracket of Root must halve within this many steps
	// smallest move, as a fraction of the bracket, so that rounding cannot stop Root
	leastStep = 0x1p-52
)

// Root returns a zero of f between lo and hi, to a relative 1e-13 plus the absolute floor. It
// uses the method of Chandrupatla (1997): inverse quadratic interpolation if that is safe, and
// bisection otherwise. The signs of f at lo and hi must differ, or one of the values must be
// zero. hi − lo must be finite.
func Root(f func(x float64) float64, lo, hi, floor float64) float64 {
	a, b := hi, lo
	fa, fb := f(a), f(b)
	switch {
	case fa == 0:
		return a
	case fb == 0:
		return b
	}
	c, fc, t := a, fa, 0.5
	floor = math.Max(floor, leastFloor)
	width := math.Abs(b - a)
	for i := 1; ; i++ { // the bracket halves every patience steps at the latest
		x := a + t*(b-a)
		fx := f(x)
		if (fx < 0) == (fa < 0) {
			c, fc = a, fa
		} else {
			c, b, fc, fb = b, a, fb, fa
		}
		a, fa = x, fx
		best := a
		if math.Abs(fb) < math.Abs(fa) {
			best = b
		}
		edge := (rootTol*math.Abs(best) + floor) / math.Abs(b-a)
		if !(edge < 0.5) || fa == 0 {
			return best
		}
		xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
		t = 0.5
		if phi*phi < xi && (1-phi)*(1-phi) < 1-xi {
			t = fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
		}
		if i%patience == 0 { // a huge value at the far end can make all steps tiny
			if math.Abs(b-a) > width/2 {
				t = 0.5
			}
			width = math.Abs(b - a)
		}
		edge = math.Max(edge, leastStep)
		t = math.Max(edge, math.Min(1-edge, t))
	}
}
