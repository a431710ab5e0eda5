package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
)

var _ = builtin{
	"pgsvi.BernoulliLogit":  BernoulliLogit{},
	"pgsvi.BernoulliProbit": BernoulliProbit{},
	"pgsvi.Ordinal":         Ordinal{},
}.register()

// BernoulliLogit is the likelihood of logistic regression and binary classification, p(y|η) =
// 1/(1+e^{−yη}), y ∈ {−1, +1}. It has no parameters.
//
// Its expectations are the sum of the expectation of max(0, −yη), in closed form, and the
// expectation of log(1+e^{−|η|}), by a quadrature rule that depends on the variance.
type BernoulliLogit struct{}

// LogProb returns −log(1+e^{−yη}), or −Inf if y is not −1 or +1.
func (BernoulliLogit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	f, _, _ := expect.SoftplusAt(y * eta)
	return -f
}

// Derivs returns yσ(−yη) and −σ(η)σ(−η).
func (BernoulliLogit) Derivs(y, eta float64) (d1, d2 float64) {
	_, f1, f2 := expect.SoftplusAt(y * eta)
	return y * f1, -f2
}

// ExpectLogProb returns E[log σ(yη)], D1 = yE[σ(−yη)] and D2 = −E[σ(η)σ(−η)] ≤ 0.
//
// The relative errors are below 2e−13, even in the tails, and Err reports them. Compared with
// 32-digit arithmetic they were at most 3e−14, 3e−14 and 7e−14 for |m| ≤ 1e3 and 1e−4 ≤ √v ≤ 1e3.
// If y is not −1 or +1, Value is −Inf.
func (BernoulliLogit) ExpectLogProb(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return offSupport(m, v)
	}
	f0, f1, f2, scale := expect.SoftplusExpect(math.Abs(m), v)
	if scale != 0 {
		c := math.Exp(scale)
		f0, f1, f2 = c*f0, c*f1, c*f2
	}
	return logitOf(y, m, f0, f1, f2)
}

// logitOf returns the expectations of y ∈ {−1, +1} from the expectations of log(1+e^−η) under
// N(|m|, v).
func logitOf(y, m, f0, f1, f2 float64) Expectation {
	// log(1+e^{−x}) = log(1+e^x) − x, computed without a branch because the processor could not
	// predict it
	other := 0
	if y*m < 0 {
		other = 1
	}
	c := float64(other)
	f0, f1 = f0+float64(c*math.Abs(m)), c+float64((1-2*c)*f1)
	return Expectation{Value: -f0, D1: y * f1, D2: -f2, Err: logitErr * f0}
}

// expectLogits is the Expect of fast.many for BernoulliLogit.
func expectLogits(value, d1, d2, bound []float64) {
	const chunk = 256
	var m, v, f0, f1, f2 [chunk]float64
	for len(value) > 0 {
		n := min(chunk, len(value))
		for i := range n {
			if m[i], v[i] = math.Abs(d1[i]), d2[i]; !expect.Valid(m[i], v[i]) {
				m[i], v[i] = 0, 0
			}
		}
		expect.SoftplusExpects(f0[:n], f1[:n], f2[:n], m[:n], v[:n])
		for i, y := range value[:n] {
			var e Expectation
			if expect.Valid(d1[i], d2[i]) && math.Abs(y) == 1 {
				e = logitOf(y, d1[i], f0[i], f1[i], f2[i])
			} else {
				e = BernoulliLogit{}.ExpectLogProb(y, d1[i], d2[i])
			}
			value[i], d1[i], d2[i], bound[i] = e.Value, e.D1, e.D2, e.Err
		}
		value, d1, d2, bound = value[n:], d1[n:], d2[n:], bound[n:]
	}
}

// Moments returns tanh(η/2) and 4σ(η)σ(−η).
func (BernoulliLogit) Moments(eta float64) (mean, variance float64) {
	_, _, f2 := expect.SoftplusAt(eta)
	return math.Tanh(eta / 2), 4 * f2
}

// CDF returns P(Y ≤ y|η), which is σ(−η) for −1 ≤ y < 1.
func (BernoulliLogit) CDF(y, eta float64) float64 {
	_, q, _ := expect.SoftplusAt(eta)
	return signCDF(y, q)
}

// Facts implements Factual.
func (BernoulliLogit) Facts() Facts {
	return Facts{Support: SignLabels, LogConcave: true, selfBounded: true, bounded: true}
}

// BernoulliProbit is the likelihood of probit regression, p(y|η) = Φ(yη), y ∈ {−1, +1}. It has no
// parameters.
type BernoulliProbit struct{}

// LogProb returns log Φ(yη), or −Inf if y is not −1 or +1.
func (BernoulliProbit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	g, _, _ := special.NormalLogCDF(y * eta)
	return g
}

// Derivs returns yλ and −λ(λ+yη), where λ = φ(yη)/Φ(yη) is the inverse Mills ratio.
func (BernoulliProbit) Derivs(y, eta float64) (d1, d2 float64) {
	_, d1, d2 = special.NormalLogCDF(y * eta)
	return y * d1, d2
}

// ExpectLogProb returns E[log Φ(yη)] and its derivatives, D2 < 0. It uses Gauss–Hermite
// quadrature if the Gaussian is narrow. Otherwise it uses Gauss–Legendre quadrature on panels
// that are shorter near the zeros of Φ at 1.916 ± 2.816i. The relative error is below 1e−12, and
// Err reports it. If y is not −1 or +1, Value is −Inf.
func (BernoulliProbit) ExpectLogProb(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return offSupport(m, v)
	}
	m *= y
	if v == 0 {
		g, d1, d2 := special.NormalLogCDF(m)
		return dropInfErr(Expectation{g, y * d1, d2, 1e-14 * math.Abs(g)})
	}
	if m > 39*math.Sqrt(1+v) {
		return Expectation{} // about exp(−m²/2(1+v)), which underflows
	}
	s := math.Sqrt(v)
	w, lo, hi := s, m-9*s, m+9*s
	if m*s > 0.4*(1+v) {
		// Right of zero Φ(−x) is like e^{−x²/2}, and its product with N(m, v) has the mode m/(1+v).
		// Left of zero N(m, v) is like e^{xm/v}, and the mode is near zero.
		w = s / math.Sqrt(1+v)
		lo = math.Min(m/(1+v)-9*w, -80*v/(m+math.Sqrt(m*m+80*v)))
		hi = math.Min(m/(1+v)+9*w+3, hi)
	} else {
		hi = math.Min(hi, 9.5)
	}
	e, _ := expect.Centred(special.NormalLogCDF, m, s, lo, hi, w, probitZeroRe, probitZeroIm)
	return dropInfErr(Expectation{e[0], y * e[1], e[2], probitErr * math.Abs(e[0])})
}

// Moments returns 2Φ(η)−1 and 4Φ(η)Φ(−η).
func (BernoulliProbit) Moments(eta float64) (mean, variance float64) {
	q := special.NormalTail(math.Abs(eta))
	return math.Erf(eta / math.Sqrt2), 4 * q * (1 - q)
}

// CDF returns P(Y ≤ y|η), which is Φ(−η) for −1 ≤ y < 1.
func (BernoulliProbit) CDF(y, eta float64) float64 { return signCDF(y, special.NormalTail(eta)) }

// Facts implements Factual.
func (BernoulliProbit) Facts() Facts {
	return Facts{Support: SignLabels, LogConcave: true, bounded: true}
}

func (BernoulliLogit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	q, scale := predictLogit(m, v)
	if y*m < 0 {
		logp = math.Log(q) + scale
	} else {
		less := [1]float64{-q * math.Exp(scale)}
		fma.Log1p(less[:])
		logp = less[0]
	}
	return logp, 1e-13*math.Min(1, math.Abs(logp)) + 4*special.Eps*math.Abs(logp)
}

// predictLogits is fast.predictEach for BernoulliLogit.
func predictLogits(logp, m, v []float64) {
	var size, sized, q, less, rest [predictBlock]float64
	n := len(logp)
	for i, y := range logp {
		if math.Abs(y) == 1 && expect.Valid(m[i], v[i]) {
			size[i], sized[i] = math.Abs(m[i]), v[i]
		}
	}
	expect.SoftplusExpects(rest[:n], q[:n], less[:n], size[:n], sized[:n])
	for i, q := range q[:n] {
		less[i] = -q
	}
	fma.Log1p(less[:n])
	for i, y := range logp {
		switch {
		case math.Abs(y) != 1:
			logp[i] = math.NaN()
		case sized[i] == 0 || q[i] < leastTogether:
			logp[i], _ = predictiveLogProb(BernoulliLogit{}, y, m[i], v[i])
		case y*m[i] < 0:
			logp[i] = math.Log(q[i])
		default:
			logp[i] = less[i]
		}
	}
}

// leastTogether is the probability below which expect.SoftplusExpect may return a multiple with a
// separate scale.
const leastTogether = 1e-100

// predictLogit returns the smaller of P(y = −1) and P(y = +1) as q e^scale.
func predictLogit(m, v float64) (q, scale float64) {
	_, q, _, scale = expect.SoftplusExpect(math.Abs(m), v)
	return q, scale
}

func (BernoulliProbit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	logp, _, _ = special.NormalLogCDF(y * m / math.Sqrt(1+v))
	return logp, 8 * special.Eps * (1 + math.Abs(logp))
}

func (BernoulliLogit) predictMoments(m, v float64) (mean, variance float64) {
	q, scale := predictLogit(m, v)
	q *= math.Exp(scale)
	return math.Copysign(1-2*q, m), 4 * q * (1 - q)
}

func (b BernoulliProbit) predictMoments(m, v float64) (mean, variance float64) {
	return b.Moments(m / math.Sqrt(1+v))
}

// predictTail implements tailPredictor.
func (b BernoulliLogit) predictTail(y, m, v float64, above bool) float64 {
	return signTail(b, y, m, v, above)
}

// predictTail implements tailPredictor.
func (b BernoulliProbit) predictTail(y, m, v float64, above bool) float64 {
	return signTail(b, y, m, v, above)
}

// signTail returns log P(Y ≤ y), or log P(Y > y) if above is true, for a y in {−1, +1}.
func signTail(l Likelihood, y, m, v float64, above bool) float64 {
	switch {
	case y > 0 && above:
		return math.Inf(-1)
	case y > 0:
		return 0
	case above:
		y = 1
	}
	logp, _ := predictiveLogProb(l, y, m, v)
	return logp
}

// Ordinal is the cumulative logit (proportional odds) model of ordered classes y = 0, 1, …, K with
// K = len(Cuts) (ordinal regression; McCullagh 1980). P(Y ≤ j|η) = σ(c_j − η) with cut points c_0 <
// … < c_{K−1}, so
//
//	p(y|η) = (1 − e^{−(c_y − c_{y−1})}) σ(c_y − η) σ(η − c_{y−1}),
//
// where the factors of c_{−1} = −∞ and c_K = +∞ are 1. The product equals σ(c_y − η) − σ(c_{y−1} −
// η) and is accurate for narrow classes and in the tails. A larger η makes higher classes more
// probable.
type Ordinal struct {
	// Cuts holds the cut points, which must be finite and increasing. Empty means {0}, which is
	// logistic regression with the classes 0 and 1. The slice is not copied, and must not change
	// while the likelihood is in use.
	Cuts []float64
}

var ordinalZero = []float64{0}

// cutPoints returns Cuts or their default, or nil if they are out of range.
func (o Ordinal) cutPoints() []float64 {
	if len(o.Cuts) == 0 {
		return ordinalZero
	}
	last := math.Inf(-1)
	for _, c := range o.Cuts {
		if !(c > last && c <= math.MaxFloat64) {
			return nil
		}
		last = c
	}
	return o.Cuts
}

// classBounds returns the cut points around class y, which are infinite at the ends, and log(1 −
// e^{−(hi − lo)}). It returns false if y is not a class.
func (Ordinal) classBounds(cuts []float64, y float64) (lo, hi, gap float64, ok bool) {
	if !isCount(y) || y > float64(len(cuts)) {
		return 0, 0, 0, false
	}
	j := int(y)
	lo, hi = math.Inf(-1), math.Inf(1)
	if j > 0 {
		lo = cuts[j-1]
	}
	if j < len(cuts) {
		hi = cuts[j]
	}
	if d := hi - lo; d < 1 {
		gap = math.Log(-math.Expm1(-d))
	} else {
		gap = math.Log1p(-math.Exp(-d))
	}
	return lo, hi, gap, true
}

// LogProb returns log(1 − e^{−(c_y − c_{y−1})}) + log σ(c_y − η) + log σ(η − c_{y−1}), or −Inf if y
// is not an integer from 0 to K.
func (o Ordinal) LogProb(y, eta float64) float64 {
	cuts := o.cutPoints()
	if cuts == nil {
		return math.NaN()
	}
	lo, hi, g, ok := o.classBounds(cuts, y)
	if !ok {
		return math.Inf(-1)
	}
	a, _, _ := expect.SoftplusAt(eta - lo)
	b, _, _ := expect.SoftplusAt(hi - eta)
	return g - a - b
}

// Derivs returns σ(c_{y−1} − η) − σ(η − c_y), and the sum of −σ(η−c)σ(c−η) over the two cut points.
func (o Ordinal) Derivs(y, eta float64) (d1, d2 float64) {
	lo, hi, _, ok := o.classBounds(o.cutPoints(), y)
	if !ok {
		return math.NaN(), math.NaN()
	}
	_, a1, a2 := expect.SoftplusAt(eta - lo)
	_, b1, b2 := expect.SoftplusAt(hi - eta)
	return a1 - b1, -a2 - b2
}

// ExpectLogProb returns
//
//	Value = log(1 − e^{−(c_y − c_{y−1})}) + E[log σ(c_y − η)] + E[log σ(η − c_{y−1})]
//	D1 = E[σ(c_{y−1} − η)] − E[σ(η − c_y)]
//
// and D2 ≤ 0 is the sum of −E[σ(η−c)σ(c−η)] over the two cut points. These are two expectations of
// BernoulliLogit, with the same relative accuracy. If y is not an integer from 0 to K, Value is
// −Inf.
func (o Ordinal) ExpectLogProb(y, m, v float64) Expectation {
	cuts := o.cutPoints()
	if !expect.Valid(m, v) || cuts == nil {
		return quadNaN()
	}
	lo, hi, g, ok := o.classBounds(cuts, y)
	if !ok {
		return offSupport(m, v)
	}
	e := Expectation{Value: g, Err: 4 * special.Eps * math.Abs(g)}
	side := func(d, c, sign float64) {
		if math.IsInf(c, 0) {
			return
		}
		d = math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, d))
		f0, _, p, _, f2 := softplusBoth(d, v)
		e.Value -= f0
		e.D1 += sign * p
		e.D2 -= f2
		e.Err += logitErr*f0 + special.Eps*(math.Abs(m)*p+math.Abs(c)*p)
	}
	side(m-lo, lo, 1)
	side(hi-m, hi, -1)
	return dropInfErr(e)
}

// Moments returns the mean and variance of the class number, Σ_j P(Y > j) and Σ_i P(Y ≤ i)P(Y > i)
// + 2 Σ_{i<j} P(Y ≤ i)P(Y > j).
func (o Ordinal) Moments(eta float64) (mean, variance float64) {
	return o.indicatorMoments(func(c float64) (below, above float64) {
		_, above, _ = expect.SoftplusAt(c - eta)
		_, below, _ = expect.SoftplusAt(eta - c)
		return below, above
	})
}

// indicatorMoments returns the moments of Y = Σ_j 1[Y > j]. The covariances of these indicators,
// P(Y > max(i, j)) P(Y ≤ min(i, j)), are not negative, so nothing cancels (Hoeffding 1940).
func (o Ordinal) indicatorMoments(at func(c float64) (below, above float64)) (mean,
	variance float64) {
	cuts := o.cutPoints()
	if cuts == nil {
		return math.NaN(), math.NaN()
	}
	sum := 0.0
	for _, c := range cuts {
		below, above := at(c)
		mean += above
		variance += above * (below + 2*sum)
		sum += below
	}
	return mean, variance
}

// CDF returns P(Y ≤ y|η) = σ(c_⌊y⌋ − η).
func (o Ordinal) CDF(y, eta float64) float64 {
	cuts := o.cutPoints()
	switch {
	case math.IsNaN(y) || cuts == nil:
		return math.NaN()
	case y < 0:
		return 0
	case y >= float64(len(cuts)):
		return 1
	}
	_, p, _ := expect.SoftplusAt(eta - cuts[int(y)])
	return p
}

// Facts implements Factual.
func (o Ordinal) Facts() Facts {
	return Facts{Support: Counts, Most: float64(max(1, len(o.Cuts))), LogConcave: true,
		bounded: true}
}

// Params implements Parametric. Each cut point lies between the one before it and +∞.
func (o Ordinal) Params() []Param {
	cuts := o.Cuts
	if len(cuts) == 0 {
		cuts = ordinalZero
	}
	params, last := make([]Param, len(cuts)), math.Inf(-1)
	for i, c := range cuts {
		params[i] = Param{Name: fmt.Sprintf("Cuts[%d]", i), Value: c, Min: last, Max: math.Inf(1)}
		if c > last && c <= math.MaxFloat64 {
			last = c
		}
	}
	return params
}

// WithParams implements Parametric.
func (o Ordinal) WithParams(values []float64) Likelihood {
	return Ordinal{Cuts: slices.Clone(values)}
}

func (o Ordinal) predictMoments(m, v float64) (mean, variance float64) {
	return o.indicatorMoments(func(c float64) (below, above float64) {
		d := math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m-c))
		_, _, below, above, _ = softplusBoth(d, v)
		return below, above
	})
}

// predictTail implements tailPredictor.
func (o Ordinal) predictTail(y, m, v float64, above bool) float64 {
	cuts := o.cutPoints()
	switch {
	case y < float64(len(cuts)):
		d := math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m-cuts[int(y)]))
		return signTail(BernoulliLogit{}, -1, d, v, above)
	case above:
		return math.Inf(-1)
	}
	return 0
}
