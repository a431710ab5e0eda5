package accel

import "math"

const (
	golden        = 0.3819660112501051 // (3 − √5)/2, the smaller part of a golden section
	minimizeFloor = 1e-12              // absolute accuracy of Minimize1, for a minimum near 0
	minimizeSteps = 100                // most evaluations between the first and the last
)

// Minimize1 returns the argmin of f over [0, 1], to about tol·t. It searches from the guess t by
// golden sections and parabolas (Brent, 1973, chapter 5). A tol below 1e-8 gains nothing, because
// rounding hides the differences of f. It returns exactly 0 if f(0) is lower than what the search
// reaches at the left end. NaN counts as +Inf.
func Minimize1(t, tol float64, f func(float64) float64) float64 {
	at := func(t float64) float64 {
		if y := f(t); !math.IsNaN(y) {
			return y
		}
		return math.Inf(1)
	}
	lo, hi := 0.0, 1.0
	x, w, v := t, t, t
	fx := at(x)
	fw, fv := fx, fx
	var step, last float64
	for range minimizeSteps {
		mid := 0.5 * (lo + hi)
		eps := tol*x + minimizeFloor
		if math.Abs(x-mid) <= 2*eps-0.5*(hi-lo) {
			break
		}
		parabola := false
		if math.Abs(last) > eps {
			r, q := (x-w)*(fx-fv), (x-v)*(fx-fw)
			p := (x-v)*q - (x-w)*r
			q = 2 * (q - r)
			if q > 0 {
				p = -p
			}
			q = math.Abs(q)
			if math.Abs(p) < math.Abs(0.5*q*last) && p > q*(lo-x) && p < q*(hi-x) {
				last, step = step, p/q
				if u := x + step; u-lo < 2*eps || hi-u < 2*eps {
					step = math.Copysign(eps, mid-x)
				}
				parabola = true
			}
		}
		if !parabola {
			last = lo - x
			if x < mid {
				last = hi - x
			}
			step = golden * last
		}
		u := x + step
		if math.Abs(step) < eps {
			u = x + math.Copysign(eps, step)
		}
		fu := at(u)
		if fu <= fx {
			if u < x {
				hi = x
			} else {
				lo = x
			}
			v, fv, w, fw, x, fx = w, fw, x, fx, u, fu
			continue
		}
		if u < x {
			lo = u
		} else {
			hi = u
		}
		if fu <= fw || w == x {
			v, fv, w, fw = w, fw, u, fu
		} else if fu <= fv || v == x || v == w {
			v, fv = u, fu
		}
	}
	if lo == 0 && !(fx <= at(0)) {
		return 0
	}
	return x
}
