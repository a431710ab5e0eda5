package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file holds the fast paths of the likelihoods of this package: functions that process many
// rows at once, to the same bits or within the same error bounds as the methods for one row. fastOf
// is the table of all of them. Fits call it through siteView, and predictions through predictRows.

// fast holds the fast paths of a Likelihood. Every function is optional; nil means that nothing is
// faster than the methods of the Likelihood.
type fast struct {
	// many computes expectations of many rows. Its results are exactly the results of ExpectLogProb.
	many term.Many
	// predictEach replaces the responses in logp by exactly the results of predictiveLogProb for
	// each row, or by NaN if they are outside the support. It gets at most predictBlock rows.
	predictEach func(logp, m, v []float64)
	// logProbs returns a function that computes log p of rows of y, as in term.Rowwise. The
	// responses and the parameters are valid.
	logProbs func(y []float64) logprob.Rows
	// logProbSum returns a function that computes sums of log p of rows of y, as in term.Rowwise.
	logProbSum func(y []float64) logprob.Sum
	// rate returns the exponential rate of a response y: log p(y|η) is slope·η − exp(origin +
	// sign·η) plus a constant.
	rate func(y float64) (sign, origin, slope float64)
}

// fastOf returns the fast paths of l. It compares types exactly, because a custom type that embeds
// a likelihood of this package inherits its methods, but may have another meaning. The table is a
// function and not a variable, because methods of likelihoods call functions that read it.
func fastOf(l Likelihood) fast {
	switch l := l.(type) {
	case BernoulliLogit:
		return fast{many: term.Many{Expect: expectLogits}, predictEach: predictLogits,
			logProbs: logprob.Logit, logProbSum: logprob.LogitSum}
	case BernoulliProbit:
		return fast{logProbs: logprob.Probit}
	case Ordinal:
		return fast{logProbs: l.logProbs}
	case GaussianNoise:
		return fast{many: term.Many{Expect: l.expectEach}, logProbs: l.logProbs}
	case StudentT:
		return fast{logProbs: l.logProbs}
	case Laplace:
		return fast{logProbs: l.logProbs, logProbSum: l.logProbSum}
	case Poisson:
		return fast{many: term.Many{Own: l.own, Expect: l.expectEach}, logProbs: l.logProbs,
			rate: l.rate}
	case Binomial:
		return fast{many: term.Many{Own: l.own, Expect: l.expectEach}, logProbs: l.logProbs}
	case NegativeBinomial:
		return fast{many: term.Many{Own: l.own, Expect: l.expectEach}, logProbs: l.logProbs}
	case ZeroInflated:
		return fast{logProbs: l.logProbs}
	case Hurdle:
		return fast{logProbs: l.logProbs}
	case Gamma:
		return fast{many: term.Many{Own: l.own, Expect: l.expectEach}, logProbs: l.logProbs,
			rate: l.rate}
	case Exponential:
		return fast{many: term.Many{Expect: l.expectEach}, logProbs: logprob.Exponential,
			rate: l.rate}
	case Weibull:
		return fast{logProbs: l.logProbs}
	case LogNormal:
		return fast{logProbs: l.logProbs}
	case Beta:
		return fast{logProbs: l.logProbs}
	case BetaBinomial:
		return fast{logProbs: l.logProbs}
	}
	return fast{}
}

// mapOf returns f of each response.
func mapOf(y []float64, f func(y float64) float64) []float64 {
	c := make([]float64, len(y))
	for i, y := range y {
		c[i] = f(y)
	}
	return c
}

// logsOf returns log |y| of each response.
func logsOf(y []float64) []float64 {
	return mapOf(y, func(y float64) float64 { return math.Log(math.Abs(y)) })
}

// logProbs implements fast.logProbs.
func (g GaussianNoise) logProbs(y []float64) logprob.Rows {
	n := positiveOr(g.Var, 1)
	return logprob.Gaussian(y, math.Sqrt(n), -special.LogSqrt2Pi-math.Log(n)/2)
}

// logProbs implements fast.logProbs.
func (t StudentT) logProbs(y []float64) logprob.Rows {
	nu, c := t.dfScale()
	return logprob.Student(y, nu, c*math.Sqrt(nu), t.logNorm())
}

// logProbs implements fast.logProbs.
func (l Laplace) logProbs(y []float64) logprob.Rows {
	b := positiveOr(l.Scale, 1)
	return logprob.Laplace(y, b, -math.Log(2*b))
}

// logProbSum implements fast.logProbSum.
func (l Laplace) logProbSum(y []float64) logprob.Sum {
	b := positiveOr(l.Scale, 1)
	return logprob.LaplaceSum(y, b, -math.Log(2*b))
}

// logProbs implements fast.logProbs.
func (p Poisson) logProbs(y []float64) logprob.Rows {
	return logprob.Poisson(y, mapOf(y, p.own), positiveOr(p.Exposure, 1))
}

// logProbs implements fast.logProbs.
func (g Gamma) logProbs(y []float64) logprob.Rows {
	return logprob.Gamma(logsOf(y), positiveOr(g.Shape, 1))
}

// logProbs implements fast.logProbs.
func (w Weibull) logProbs(y []float64) logprob.Rows {
	return logprob.Weibull(y, logsOf(y), positiveOr(w.Shape, 1))
}

// logProbs implements fast.logProbs.
func (g LogNormal) logProbs(y []float64) logprob.Rows {
	s := positiveOr(g.Scale, 1)
	return logprob.LogNormal(y, logsOf(y), s, -special.LogSqrt2Pi-math.Log(s))
}

// logProbs implements fast.logProbs.
func (b Binomial) logProbs(y []float64) logprob.Rows {
	return logprob.Binomial(y, mapOf(y, b.own), b.trials(), 0, 0)
}

// logProbs implements fast.logProbs.
func (b NegativeBinomial) logProbs(y []float64) logprob.Rows {
	r := positiveOr(b.Shape, 1)
	return logprob.Binomial(y, mapOf(y, b.own), 0, r, math.Log(r))
}

// logProbs implements fast.logProbs.
func (o Ordinal) logProbs(y []float64) logprob.Rows {
	lo, hi, gap := make([]float64, len(y)), make([]float64, len(y)), make([]float64, len(y))
	for i, y := range y {
		lo[i], hi[i], gap[i], _ = o.classBounds(o.cutPoints(), y)
	}
	return logprob.Ordinal(lo, hi, gap)
}

// logProbs implements fast.logProbs.
func (b Beta) logProbs(y []float64) logprob.Rows {
	phi, points := b.phi(), make([]expect.BetaPoint, len(y))
	for i, y := range y {
		points[i] = expect.NewBetaPoint(phi, y)
	}
	if phi > logprob.BetaMost {
		return logprob.Each(points)
	}
	own, odds := make([]float64, len(y)), make([]float64, len(y))
	for i := range points {
		own[i], odds[i] = points[i].Own()
	}
	return logprob.Beta(phi, own, odds, func(eta float64) float64 { return expect.BetaLevel(phi, eta) },
		func(row int, eta float64) float64 { return points[row].LogProb(eta) })
}

// logProbs implements fast.logProbs.
func (b BetaBinomial) logProbs(y []float64) logprob.Rows {
	points := make([]expect.BetaBinomialPoint, len(y))
	for i, y := range y {
		points[i], _ = b.point(y)
	}
	return logprob.Each(points)
}

// logProbs implements fast.logProbs.
func (z ZeroInflated) logProbs(y []float64) logprob.Rows {
	pi, b, _ := inflation(z.Zero, z.Shape)
	return logprob.ZeroInflated(y, pi, logprob.Rate{Shape: b.shape}, b.logProbs(y))
}

// logProbs implements fast.logProbs.
func (h Hurdle) logProbs(y []float64) logprob.Rows {
	pi, b, _ := inflation(h.Zero, h.Shape)
	return logprob.Hurdle(y, pi, logprob.Rate{Shape: b.shape}, b.logProbs(y), h.LogProb)
}

// logProbs returns fast.logProbs of b.
func (b countBase) logProbs(y []float64) logprob.Rows {
	if b.shape == 0 {
		return Poisson{}.logProbs(y)
	}
	return NegativeBinomial{Shape: b.shape}.logProbs(y)
}

// store stores e in row i.
func (e *Expectation) store(i int, value, d1, d2, bound []float64) {
	value[i], d1[i], d2[i], bound[i] = e.Value, e.D1, e.D2, e.Err
}

// expectEach is the Expect of fast.many.
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

// own returns log y!, the Own of fast.many.
func (Poisson) own(y float64) float64 {
	if !isCount(y) {
		return math.NaN()
	}
	return special.LogFactorial(y)
}

// expectEach is the Expect of fast.many.
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
		p.store(e, value[lo:hi], d1[lo:hi], d2[lo:hi], bound[lo:hi], c, lc)
	}
}

// store stores the expectations of some rows, where e holds exp(m + v/2). It computes them like
// expectation.
func (p Poisson) store(e, value, d1, d2, bound []float64, c, lc float64) {
	value, d1, d2, bound = value[:len(e)], d1[:len(e)], d2[:len(e)], bound[:len(e)]
	for i, e := range e {
		y, m, v, g := value[i], d1[i], d2[i], bound[i]
		r, t := c*e, y*(m+lc) // t is NaN, and expectation has it, if y is 0 and m infinite
		err := 4 * special.Eps * (math.Abs(t) + y*math.Abs(lc) + g + r*(1+math.Abs(m)+v))
		if v >= 0 && err <= math.MaxFloat64 {
			// The 0 turns a t of −0 into the +0 of expectation.
			value[i], d1[i], d2[i], bound[i] = 0+t-r-g, y-r, -r, err
			continue
		}
		x := p.expectation(y, m, v, g, c, lc, e)
		if !expect.Valid(m, v) || math.IsNaN(g) {
			x = p.ExpectLogProb(y, m, v)
		}
		x.store(i, value, d1, d2, bound)
	}
}

// own returns log y, the Own of fast.many.
func (Gamma) own(y float64) float64 {
	if !Positive.contains(y, 0) {
		return math.NaN()
	}
	return math.Log(y)
}

// expectEach is the Expect of fast.many.
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

// expectEach is the Expect of fast.many.
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

// softplusBothEach calls do with each row and the results of softplusBoth for its mean m − shift
// and variance v. It uses 0 and 0 if they are not valid.
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

// own returns log C(n, y), the Own of fast.many.
func (b Binomial) own(y float64) float64 {
	n := b.trials()
	if !isCount(y) || !(y <= n) {
		return math.NaN()
	}
	return special.LogChoose(y, n-y)
}

// expectEach is the Expect of fast.many.
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

// own returns log Γ(y+r)/(Γ(r) y!), the Own of fast.many.
func (b NegativeBinomial) own(y float64) float64 {
	r := positiveOr(b.Shape, 1)
	if !isCount(y) || math.IsNaN(r) {
		return math.NaN()
	}
	k, _ := b.logCoefficient(y, r)
	return k
}

// expectEach is the Expect of fast.many.
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
