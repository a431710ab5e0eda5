package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

func init() { Register("pgsvi.Ordinal", Ordinal{}) }

// Ordinal is the cumulative logit (proportional odds) model of ordered classes
// y = 0, 1, …, K with K = len(Cuts) (McCullagh 1980): P(Y ≤ j|η) = σ(c_j − η) with
// cut points c_0 < … < c_{K−1}, so that
//
//	p(y|η) = (1 − e^{−(c_y − c_{y−1})}) σ(c_y − η) σ(η − c_{y−1}),
//
// where the factors of c_{−1} = −∞ and c_K = +∞ are 1. The product equals
// σ(c_y − η) − σ(c_{y−1} − η), and does not cancel for narrow classes or in the
// tails. The larger η, the likelier are the higher classes.
type Ordinal struct {
	// Cuts are the cut points, finite and increasing. Empty means {0}, which is
	// logistic regression with the classes 0 and 1. The slice is not copied and must
	// not be changed while the likelihood is in use.
	Cuts []float64
}

var ordinalZero = []float64{0}

// cutPoints returns Cuts or their default, nil if they are out of range.
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

// classBounds returns the cut points around class y, infinite at the ends, and
// log(1 − e^{−(hi − lo)}). It is not ok if y is no class.
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

// LogProb returns log(1 − e^{−(c_y − c_{y−1})}) + log σ(c_y − η) + log σ(η − c_{y−1}),
// or −Inf if y is not an integer from 0 to K.
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

// Derivs returns σ(c_{y−1} − η) − σ(η − c_y) and the sum of −σ(η−c)σ(c−η) over
// the two cut points.
func (o Ordinal) Derivs(y, eta float64) (d1, d2 float64) {
	lo, hi, _, ok := o.classBounds(o.cutPoints(), y)
	if !ok {
		return math.NaN(), math.NaN()
	}
	_, a1, a2 := expect.SoftplusAt(eta - lo)
	_, b1, b2 := expect.SoftplusAt(hi - eta)
	return a1 - b1, -a2 - b2
}

// Expect returns
//
//	Value = log(1 − e^{−(c_y − c_{y−1})}) + E[log σ(c_y − η)] + E[log σ(η − c_{y−1})]
//	D1 = E[σ(c_{y−1} − η)] − E[σ(η − c_y)]
//
// and for D2 ≤ 0 the sum of −E[σ(η−c)σ(c−η)] over the two cut points. These are two
// expectations of BernoulliLogit, with their relative accuracy. If y is not an
// integer from 0 to K, Value is −Inf.
func (o Ordinal) Expect(y, m, v float64) Expectation {
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

// Moments returns the mean and variance of the class number, Σ_j P(Y > j) and
// Σ_i P(Y ≤ i)P(Y > i) + 2 Σ_{i<j} P(Y ≤ i)P(Y > j).
func (o Ordinal) Moments(eta float64) (mean, variance float64) {
	return o.indicatorMoments(func(c float64) (below, above float64) {
		_, above, _ = expect.SoftplusAt(c - eta)
		_, below, _ = expect.SoftplusAt(eta - c)
		return below, above
	})
}

// indicatorMoments returns the moments of Y = Σ_j 1[Y > j]. The covariances of these
// indicators, P(Y > max(i, j)) P(Y ≤ min(i, j)), are not negative, so that nothing
// cancels (Hoeffding 1940).
func (o Ordinal) indicatorMoments(at func(c float64) (below, above float64)) (mean, variance float64) {
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
	return Facts{Support: Counts, Most: float64(max(1, len(o.Cuts))), LogConcave: true}
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
