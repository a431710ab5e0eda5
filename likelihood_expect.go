package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"

	"github.com/pgsvi/pgsvi/internal/expect"
)

// ExpectLogProb returns E[log p(y|η)] for η ~ N(m, v) with its derivatives.
//
// m must be finite and v finite and not negative; v = 0 is the point mass at m.
// Otherwise every field is NaN. A likelihood that implements Expecter answers
// itself. For any other, the Gaussian integral is taken by adaptive
// Gauss–Kronrod quadrature (Piessens et al. 1983) on panels that are cut at m
// and at η = y, and bisected where the estimated error is largest. Err is then
// that estimate, floored by the rounding error; it is an estimate, not a proof.
//
// The derivatives are E[∂ log p] and E[∂² log p] if l implements
// Differentiable, and otherwise the score forms E[g u]/s and E[g (u²−1)]/s²
// with u = (η−m)/s, s = √v and g = log p(y|η) − log p(y|m), which need no
// smoothness. Their rounding errors are about 1e−16 |log p|/s and
// 1e−16 |log p|/s², so below s = 1e−6 (and at v = 0) fourth-order differences
// of log p about m are used.
//
// Mass is looked for out to 9 standard deviations, and further only while the
// growth of log p makes it count. If log p is −Inf or NaN at a point with mass
// the expectation is taken to be −Inf, with zero derivatives and Err = +Inf.
func ExpectLogProb(l Likelihood, y, m, v float64) Expectation {
	if e, ok := l.(Expecter); ok {
		return e.Expect(y, m, v)
	}
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	return quadExpect(l, y, m, v)
}

// quadExpect is ExpectLogProb for a likelihood that knows nothing.
func quadExpect(l Likelihood, y, m, v float64) Expectation {
	s := math.Sqrt(v)
	d, smooth := l.(Differentiable)
	g0 := l.LogProb(y, m)
	if v == 0 {
		return quadPoint(l, y, m, g0)
	}
	if math.IsNaN(g0) || math.IsInf(g0, 0) {
		g0 = 0
	}
	var hole bool
	g := func(u float64) float64 { return l.LogProb(y, m+s*u) - g0 }
	f := func(u float64) [3]float64 {
		x := m + s*u
		p := special.NormalPDF(u)
		q := l.LogProb(y, x) - g0
		if math.IsNaN(q) || math.IsInf(q, 0) {
			hole = hole || p > 0
			return [3]float64{}
		}
		if smooth {
			d1, d2 := d.Derivs(y, x)
			return [3]float64{p * q, p * d1, p * d2}
		}
		return [3]float64{p * q, p * q * u, p * q * (u*u - 1)}
	}
	var buf [64]float64
	scale := math.Abs(g0) + math.Abs(g(1)) + math.Abs(g(-1))
	cuts := expect.Reach(buf[:0], g, scale, y, m, s)
	t := expect.Adaptive(f, cuts, 1e-14)
	if hole {
		return Expectation{Value: math.Inf(-1), Err: math.Inf(1)}
	}
	e := Expectation{Value: g0 + t.Sum[0], D1: t.Sum[1], D2: t.Sum[2],
		Err: t.Err[0] + 2*special.Eps*math.Abs(g0) + 1e-18*(1+scale)}
	if !smooth {
		if s < 1e-6 {
			p := quadPoint(l, y, m, g0)
			e.D1, e.D2 = p.D1, p.D2
		} else {
			e.D1, e.D2 = e.D1/s, e.D2/v
		}
	}
	return e
}

// quadPoint is quadExpect at v = 0, where g0 = log p(y|m).
func quadPoint(l Likelihood, y, m, g0 float64) Expectation {
	e := Expectation{Value: g0, Err: special.Eps * math.Abs(g0)}
	if math.IsNaN(g0) || math.IsInf(g0, 0) {
		return Expectation{Value: math.Inf(-1), Err: math.Inf(1)}
	}
	if d, ok := l.(Differentiable); ok {
		e.D1, e.D2 = d.Derivs(y, m)
	} else {
		h := 0x1p-8
		for m+h == m || (m+h)-m != h && h < 0x1p-27*math.Abs(m) {
			h *= 2
		}
		p1, n1 := l.LogProb(y, m+h)-g0, l.LogProb(y, m-h)-g0
		p2, n2 := l.LogProb(y, m+2*h)-g0, l.LogProb(y, m-2*h)-g0
		e.D1 = (8*(p1-n1) - (p2 - n2)) / (12 * h)
		e.D2 = (16*(p1+n1) - (p2 + n2)) / (12 * h * h)
	}
	if math.IsNaN(e.D1) || math.IsNaN(e.D2) {
		e.D1, e.D2, e.Err = 0, 0, math.Inf(1)
	}
	return e
}
