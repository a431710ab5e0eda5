package accel

import "math"

// Root returns a zero of f between lo and hi, where its signs differ, by
// the method of Chandrupatla (1997): inverse quadratic interpolation when it is
// safe, else bisection.
func Root(f func(x float64) float64, lo, hi float64) float64 {
	a, b := hi, lo
	fa, fb := f(a), f(b)
	c, fc, t := a, fa, 0.5
	for {
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
		edge := (1e-13*math.Abs(best) + 1e-300) / math.Abs(b-a)
		if !(edge < 0.5) || fa == 0 {
			return best
		}
		xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
		t = 0.5
		if phi*phi < xi && (1-phi)*(1-phi) < 1-xi {
			t = fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
		}
		t = math.Max(edge, math.Min(1-edge, t))
	}
}
