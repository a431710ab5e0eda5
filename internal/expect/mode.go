package expect

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/special"
)

// A Mode integrates exp(f) over the real line, for an f that tends to −∞ at both ends. It finds
// the mode of f and the interval where exp(f) is not negligible. NaN counts as −∞. Package
// predict uses it for the predicted density of a response, and for likelihoods without a formula
// for their moments.
type Mode struct {
	Mode, top float64 // argmax and maximum of f
	Width     float64 // distance from the mode at which f has fallen by 1, up to a factor of 2
	cuts      [64]float64
	n         int
}

const (
	quadDeep    = 45      // e^−45 is negligible
	quadRatio   = 1.7     // ratio of neighboring distances of the grid
	quadScanMin = 0x1p-12 // smallest distance of the grid, from 0 and from the marks
	quadScan    = 60      // distances on each side, up to 1.7^59/4096 = 1e10
)

// Find finds the mode of f. It scans a geometric grid on both sides of 0 and of the marks, which
// are guesses or points where f changes fast, and refines the best point by golden-section
// search. A mark that is not finite is ignored.
//
// Find also chooses the cuts of the integral: 0, the marks, the mode, points at distances unit, 8
// unit, … < 3 from the marks, Width and 8 Width on either side of the mode, and the ends of the
// interval where exp(f) is not negligible.
func (k *Mode) Find(f func(x float64) float64, marks [2]float64, unit float64) {
	at := func(x float64) float64 {
		if y := f(x); !math.IsNaN(y) {
			return y
		}
		return math.Inf(-1)
	}
	k.n = 0
	var grid, vals [3 * (2*quadScan + 1)]float64
	n := 0
	for _, c := range [3]float64{0, marks[0], marks[1]} {
		if math.IsNaN(c) || math.IsInf(c, 0) {
			continue
		}
		grid[n] = c
		n++
		d := quadScanMin
		for range quadScan {
			grid[n], grid[n+1] = c-d, c+d
			n += 2
			d *= quadRatio
		}
	}
	g := grid[:n]
	slices.Sort(g)
	g = slices.Compact(g)
	best := 0
	for i, x := range g {
		vals[i] = at(x)
		if vals[i] > vals[best] {
			best = i
		}
	}
	k.Mode, k.top = g[best], vals[best]
	if math.IsInf(k.top, 0) {
		return
	}
	k.refine(at, g[max(best-1, 0)], g[min(best+1, len(g)-1)])
	// These are the ends of the grid points that count.
	lo, hi := len(g), -1
	for i := range g {
		if vals[i] > k.top-quadDeep {
			lo, hi = min(lo, i), i
		}
	}
	lo, hi = min(lo, best), max(hi, best)
	k.cut(at, g[max(lo-1, 0)], g[min(hi+1, len(g)-1)], marks, unit)
}

// refine finds the mode between a and b by golden-section search, starting from the best point.
func (k *Mode) refine(at func(x float64) float64, a, b float64) {
	const phi = 0.61803398874989484820
	for range 60 {
		if b-a <= 1e-9*(math.Abs(a)+math.Abs(b))+1e-300 {
			break
		}
		var x float64
		if k.Mode-a > b-k.Mode {
			x = k.Mode - (1-phi)*(k.Mode-a)
		} else {
			x = k.Mode + (1-phi)*(b-k.Mode)
		}
		y := at(x)
		switch {
		case y > k.top:
			if x < k.Mode {
				b = k.Mode
			} else {
				a = k.Mode
			}
			k.Mode, k.top = x, y
		case x < k.Mode:
			a = x
		default:
			b = x
		}
	}
}

// cut finds the width of the peak and the cuts of the integral. The part that counts is between
// left and right.
func (k *Mode) cut(at func(x float64) float64, left, right float64, marks [2]float64,
	unit float64) {
	// Find the width of the peak on each side, and where it ends.
	c := k.cuts[:0]
	c = append(c, k.Mode)
	k.Width = right - left
	for _, side := range [2]float64{-1, 1} {
		d := 1e-12 * (math.Abs(k.Mode) + 1e-6) // doubles up to the width of the interval
		for at(k.Mode+side*d) > k.top-1 && d < right-left {
			d *= 2
		}
		k.Width = math.Min(k.Width, d)
		c = append(c, k.Mode+side*d, k.Mode+side*8*d)
		for at(k.Mode+side*d) > k.top-quadDeep && d < right-left {
			d *= 2
		}
		if d >= right-left {
			d = right - left
		}
		if side < 0 {
			left = math.Min(left, k.Mode-d)
		} else {
			right = math.Max(right, k.Mode+d)
		}
	}
	c = append(c, left, right, 0, marks[0], marks[1])
	for d, n := unit, 0; d > 0 && d < 3 && n < 8; d, n = 8*d, n+1 {
		c = append(c, marks[0]-d, marks[0]+d, marks[1]-d, marks[1]+d)
	}
	for i, x := range c {
		c[i] = math.Max(left, math.Min(right, x))
		if math.IsNaN(x) {
			c[i] = k.Mode
		}
	}
	slices.Sort(c)
	k.n = len(c)
}

// Clip restricts the integrals of Moments to x ≤ end.
func (k *Mode) Clip(end float64) {
	for i := range k.cuts[:k.n] {
		k.cuts[i] = math.Min(k.cuts[i], end)
	}
}

// Integrate calls Find. It returns log ∫ exp(f) and an estimate of the relative error of the
// integral, which ignores the rounding of x. If f is −∞ on the grid, it returns −∞ and 0.
func (k *Mode) Integrate(f func(x float64) float64, marks [2]float64, unit float64) (logI,
	bound float64) {
	k.Find(f, marks, unit)
	if math.IsInf(k.top, 0) {
		return k.top, 0
	}
	t := Adaptive(func(x float64) [3]float64 { return [3]float64{k.exp(f(x))} }, k.cuts[:k.n],
		1e-13)
	return k.top + math.Log(t.Sum[0]), t.Err[0]/t.Sum[0] + 1e-15 + 4*special.Eps*math.Abs(k.top)
}

// exp returns e^{y − top}, or 0 if y is NaN.
func (k *Mode) exp(y float64) float64 {
	if e := math.Exp(y - k.top); e <= math.MaxFloat64 {
		return e
	}
	return 0
}

// Moments returns the integrals of exp(f), g exp(f) and g² exp(f) for the f of the last call of
// Find or Integrate. They are NaN if f is −∞ on the grid.
func (k *Mode) Moments(f, g func(x float64) float64) [3]float64 {
	if math.IsInf(k.top, 0) {
		return [3]float64{math.NaN(), math.NaN(), math.NaN()}
	}
	t := Adaptive(func(x float64) [3]float64 {
		e, y := k.exp(f(x)), g(x)
		if e == 0 {
			return [3]float64{}
		}
		return [3]float64{e, e * y, e * y * y}
	}, k.cuts[:k.n], 1e-12)
	c := math.Exp(k.top)
	return [3]float64{c * t.Sum[0], c * t.Sum[1], c * t.Sum[2]}
}
