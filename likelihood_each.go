package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/special"
)

// store stores e in row i.
func (e *Expectation) store(i int, value, d1, d2, bound []float64) {
	value[i], d1[i], d2[i], bound[i] = e.Value, e.D1, e.D2, e.Err
}

// is implements eachExpecter.
func (GaussianNoise) is(l Likelihood) bool { _, ok := l.(GaussianNoise); return ok }

// expectEach implements eachExpecter.
func (g GaussianNoise) expectEach(value, d1, d2, bound []float64) {
	n := positiveOr(g.Var, 1)
	sd, k := math.Sqrt(n), special.LogSqrt2Pi+math.Log(n)/2
	for i, y := range value {
		m, v := d1[i], d2[i]
		x := g.expectation(y, m, v, n, sd, k)
		if !expect.Valid(m, v) {
			x = quadNaN()
		}
		x.store(i, value, d1, d2, bound)
	}
}

// is implements eachExpecter.
func (Poisson) is(l Likelihood) bool { _, ok := l.(Poisson); return ok }

// own implements ownTerm: it returns log y!.
func (Poisson) own(y float64) float64 {
	if !isCount(y) {
		return math.NaN()
	}
	return special.LogFactorial(y)
}

// expectEach implements eachExpecter.
func (p Poisson) expectEach(value, d1, d2, bound []float64) {
	var exp [eachRows]float64
	c := positiveOr(p.Exposure, 1)
	lc := math.Log(c)
	for lo := 0; lo < len(value); lo += eachRows {
		hi := min(lo+eachRows, len(value))
		e := exp[:hi-lo]
		for i, m := range d1[lo:hi] {
			e[i] = m + d2[lo+i]/2
		}
		fma.Exp(e)
		for i, e := range e {
			i += lo
			y, m, v, g := value[i], d1[i], d2[i], bound[i]
			x := p.expectation(y, m, v, g, c, lc, e)
			if !expect.Valid(m, v) || math.IsNaN(g) {
				x = p.ExpectLogProb(y, m, v)
			}
			x.store(i, value, d1, d2, bound)
		}
	}
}

// is implements eachExpecter.
func (Gamma) is(l Likelihood) bool { _, ok := l.(Gamma); return ok }

// own implements ownTerm: it returns log y.
func (Gamma) own(y float64) float64 {
	if !Positive.contains(y, 0) {
		return math.NaN()
	}
	return math.Log(y)
}

// expectEach implements eachExpecter.
func (g Gamma) expectEach(value, d1, d2, bound []float64) {
	var exp [eachRows]float64
	k := positiveOr(g.Shape, 1)
	c := passage.GammaLogNorm(k)
	for lo := 0; lo < len(value); lo += eachRows {
		hi := min(lo+eachRows, len(value))
		e := exp[:hi-lo]
		for i, m := range d1[lo:hi] {
			e[i] = d2[lo+i]/2 - (m - bound[lo+i])
		}
		fma.Exp(e)
		for i, e := range e {
			i += lo
			y, m, v, l := value[i], d1[i], d2[i], bound[i]
			x := g.expectation(m, v, l, k, c, e)
			if !expect.Valid(m, v) || math.IsNaN(l+k) {
				x = g.ExpectLogProb(y, m, v)
			}
			x.store(i, value, d1, d2, bound)
		}
	}
}

// is implements eachExpecter.
func (Exponential) is(l Likelihood) bool { _, ok := l.(Exponential); return ok }

// expectEach implements eachExpecter.
func (x Exponential) expectEach(value, d1, d2, bound []float64) {
	var exp [eachRows]float64
	for lo := 0; lo < len(value); lo += eachRows {
		hi := min(lo+eachRows, len(value))
		e := exp[:hi-lo]
		for i, m := range d1[lo:hi] {
			e[i] = d2[lo+i]/2 - m
		}
		fma.Exp(e)
		for i, e := range e {
			i += lo
			y, m, v := value[i], d1[i], d2[i]
			w := x.expectation(y, m, v, e)
			if !expect.Valid(m, v) || !NonNegative.contains(y, 0) {
				w = x.ExpectLogProb(y, m, v)
			}
			w.store(i, value, d1, d2, bound)
		}
	}
}

// softplusBothEach calls do with each row and what softplusBoth says of its mean m − shift and
// variance v, 0 and 0 where these are no marginal.
func softplusBothEach(m, v []float64, shift float64, do func(i int, f0, g0, p, q, f2 float64)) {
	var at, wide, f0, f1, f2 [eachRows]float64
	for lo := 0; lo < len(m); lo += eachRows {
		n := min(eachRows, len(m)-lo)
		for i := range n {
			x, w := math.Abs(shifted(m[lo+i], shift)), v[lo+i]
			if !expect.Valid(m[lo+i], w) {
				x, w = 0, 0
			}
			at[i], wide[i] = x, w
		}
		expect.SoftplusExpects(f0[:n], f1[:n], f2[:n], at[:n], wide[:n])
		for i := range n {
			a, b, p, q := f0[i], f0[i]+at[i], f1[i], 1-f1[i]
			if m[lo+i] < shift {
				a, b, p, q = b, a, q, p
			}
			do(lo+i, a, b, p, q, f2[i])
		}
	}
}

// is implements eachExpecter.
func (Binomial) is(l Likelihood) bool { _, ok := l.(Binomial); return ok }

// own implements ownTerm: it returns log C(n, y).
func (b Binomial) own(y float64) float64 {
	n := b.trials()
	if !isCount(y) || !(y <= n) {
		return math.NaN()
	}
	return special.LogChoose(y, n-y)
}

// expectEach implements eachExpecter.
func (b Binomial) expectEach(value, d1, d2, bound []float64) {
	n := b.trials()
	softplusBothEach(d1, d2, 0, func(i int, f0, g0, p, q, f2 float64) {
		y, k := value[i], bound[i]
		x := b.expectation(y, n, k, f0, g0, p, q, f2)
		if !expect.Valid(d1[i], d2[i]) || math.IsNaN(k) {
			x = b.ExpectLogProb(y, d1[i], d2[i])
		}
		x.store(i, value, d1, d2, bound)
	})
}

// is implements eachExpecter.
func (NegativeBinomial) is(l Likelihood) bool { _, ok := l.(NegativeBinomial); return ok }

// own implements ownTerm: it returns log Γ(y+r)/(Γ(r) y!).
func (b NegativeBinomial) own(y float64) float64 {
	r := positiveOr(b.Shape, 1)
	if !isCount(y) || math.IsNaN(r) {
		return math.NaN()
	}
	k, _ := b.logCoefficient(y, r)
	return k
}

// expectEach implements eachExpecter.
func (b NegativeBinomial) expectEach(value, d1, d2, bound []float64) {
	r := positiveOr(b.Shape, 1)
	lr := math.Log(r)
	softplusBothEach(d1, d2, lr, func(i int, f0, g0, p, q, f2 float64) {
		y, m, v, k := value[i], d1[i], d2[i], bound[i]
		x := b.expectation(y, m, r, lr, k, f0, g0, p, q, f2)
		if !expect.Valid(m, v) || math.IsNaN(k) {
			x = b.ExpectLogProb(y, m, v)
		}
		x.store(i, value, d1, d2, bound)
	})
}
