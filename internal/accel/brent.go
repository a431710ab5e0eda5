package accel

import "math"

// Minimize1 minimises a function over [0, 1] from the guess t by golden
// sections and parabolas (Brent, 1973, chapter 5), to about tol·t; below 1e-5
// rounding hides what is lower.
func Minimize1(t, tol float64, f func(float64) float64) float64 {
	const golden = 0.3819660112501051
	lo, hi := 0.0, 1.0
	x, w, v := t, t, t
	fx := f(x)
	fw, fv := fx, fx
	var step, last float64
	for range 100 {
		mid := 0.5 * (lo + hi)
		eps := tol*x + 1e-12
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
		fu := f(u)
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
	if lo == 0 && !(fx <= f(0)) {
		return 0
	}
	return x
}
