package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
)

// tailOracle is an independent P(Y ≤ y) and P(Y > y) for η ~ N(m, v): the conditional tails by
// power series and continued fractions, against φ by Gauss–Legendre on panels that are short where
// the tails change.
type tailOracle struct{ x, w []float64 }

func newTailOracle() *tailOracle {
	o := &tailOracle{make([]float64, 12), make([]float64, 12)}
	quad.Legendre{}.FixedLocations(o.x, o.w, -1, 1)
	return o
}

// lentz returns 1/(b0 + a1/(b1 + a2/(b2 + …))) by the modified method of Lentz.
func lentz(next func(i int) (a, b float64)) float64 {
	const tiny = 1e-300
	_, b := next(0)
	f := b
	c, d := f, 0.0
	for i := 1; i < 20000; i++ {
		a, b := next(i)
		if d = b + a*d; d == 0 {
			d = tiny
		}
		if c = b + a/c; c == 0 {
			c = tiny
		}
		d = 1 / d
		f *= c * d
		if math.Abs(c*d-1) < 1e-16 {
			break
		}
	}
	return 1 / f
}

// other returns log(1 − e^l).
func other(l float64) float64 {
	if l > -0.7 {
		return math.Log(-math.Expm1(l))
	}
	return math.Log1p(-math.Exp(l))
}

// gammaTails returns log P(G ≤ x) and log P(G > x) of a gamma variable of shape k, given log x.
func gammaTails(k, lx float64) (lower, upper float64) {
	x := math.Exp(lx)
	if math.IsInf(x, 1) {
		return 0, math.Inf(-1)
	}
	g, _ := math.Lgamma(k)
	front := k*lx - x - g
	if x < k+1 {
		sum, term := 1/k, 1/k
		for i := 1.0; term > 1e-17*sum; i++ {
			term *= x / (k + i)
			sum += term
		}
		lower = math.Min(0, front+math.Log(sum))
		return lower, other(lower)
	}
	upper = front + math.Log(lentz(func(i int) (float64, float64) {
		n := float64(i)
		return -n * (n - k), x + 2*n + 1 - k
	}))
	return other(upper), upper
}

// betaTails returns log P(B ≤ x) and log P(B > x) for B ~ Beta(a, b), given the log odds of x.
func betaTails(a, b, odds float64) (lower, upper float64) {
	if odds > math.Log(a/b) {
		upper, lower = betaTails(b, a, -odds)
		return lower, upper
	}
	lx, ly := -math.Log1p(math.Exp(-odds)), -math.Log1p(math.Exp(odds))
	if odds < -700 {
		lx = odds
	}
	x := math.Exp(lx)
	p, _ := math.Lgamma(a)
	q, _ := math.Lgamma(b)
	r, _ := math.Lgamma(a + b)
	lower = r - p - q + a*lx + b*ly - math.Log(a) + math.Log(lentz(func(i int) (float64, float64) {
		m := float64(i / 2)
		switch {
		case i == 0:
			return 1, 1
		case i%2 == 0:
			return m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)), 1
		}
		return -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)), 1
	}))
	lower = math.Min(0, lower)
	return lower, other(lower)
}

// conditional returns log P(Y ≤ y|η) and log P(Y > y|η), and the η about which they change, and
// over what distance.
func (o *tailOracle) conditional(l Likelihood, y float64) (tails func(eta float64) (below, above float64), centre, width float64) {
	swap := func(a, b float64) (float64, float64) { return b, a }
	switch l := l.(type) {
	case Poisson:
		c := math.Log(positiveOr(l.Exposure, 1))
		return func(eta float64) (float64, float64) { return swap(gammaTails(y+1, eta+c)) }, math.Log(y+1) - c, 1 / math.Sqrt(y+1)
	case Gamma:
		k := positiveOr(l.Shape, 1)
		return func(eta float64) (float64, float64) { return gammaTails(k, math.Log(k*y)-eta) }, math.Log(y), 1 / math.Sqrt(k)
	case Exponential:
		return func(eta float64) (float64, float64) {
			r := math.Exp(math.Log(y) - eta)
			return math.Log(-math.Expm1(-r)), -r
		}, math.Log(y), 1
	case Binomial:
		n := l.trials()
		return func(eta float64) (float64, float64) { return swap(betaTails(y+1, n-y, eta)) }, math.Log((y + 1) / (n - y)), math.Sqrt(1/(y+1) + 1/(n-y))
	case NegativeBinomial:
		r := positiveOr(l.Shape, 1)
		return func(eta float64) (float64, float64) { return swap(betaTails(y+1, r, eta-math.Log(r))) }, math.Log(y + 1), math.Sqrt(1/(y+1) + 1/r)
	case BernoulliLogit:
		return func(eta float64) (float64, float64) { return -math.Log1p(math.Exp(eta)), -math.Log1p(math.Exp(-eta)) }, 0, 1
	case BernoulliProbit:
		return func(eta float64) (float64, float64) {
			return math.Log(math.Erfc(eta/math.Sqrt2) / 2), math.Log(math.Erfc(-eta/math.Sqrt2) / 2)
		}, 0, 1
	case Ordinal:
		c := l.cutPoints()[int(y)]
		return func(eta float64) (float64, float64) {
			return -math.Log1p(math.Exp(eta - c)), -math.Log1p(math.Exp(c - eta))
		}, c, 1
	case GaussianNoise:
		s := math.Sqrt(2 * positiveOr(l.Var, 1))
		return func(eta float64) (float64, float64) {
			return math.Log(math.Erfc((eta-y)/s) / 2), math.Log(math.Erfc((y-eta)/s) / 2)
		}, y, s
	case Laplace:
		b := positiveOr(l.Scale, 1)
		return func(eta float64) (float64, float64) {
			p := -math.Abs(y-eta)/b - math.Ln2
			if y > eta {
				return other(p), p
			}
			return p, other(p)
		}, y, b
	case StudentT:
		nu, c := l.dfScale()
		return func(eta float64) (float64, float64) { // T²/(ν+T²) ~ Beta(½, ν/2)
			_, upper := betaTails(0.5, nu/2, 2*math.Log(math.Abs(y-eta)/c)-math.Log(nu))
			p := upper - math.Ln2
			if y > eta {
				return other(p), p
			}
			return p, other(p)
		}, y, c
	}
	panic(fmt.Sprintf("%T", l))
}

func (o *tailOracle) tails(l Likelihood, y, m, v float64) (below, above float64) {
	tails, centre, width := o.conditional(l, y)
	if v == 0 {
		return tails(m)
	}
	s := math.Sqrt(v)
	cuts := make([]float64, 0, 300)
	for u := -12.0; u <= 12; u += 1 {
		cuts = append(cuts, u)
	}
	for d := width / s / 8; d < 24; d *= 2 {
		if d > 1e-13 {
			cuts = append(cuts, (centre-m)/s-d, (centre-m)/s+d)
		}
	}
	cuts = append(cuts, (centre-m)/s)
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		a, b := math.Max(-12, math.Min(12, cuts[i-1])), math.Max(-12, math.Min(12, cuts[i]))
		if a == b {
			continue
		}
		for j, x := range o.x {
			u := (a + b + (b-a)*x) / 2
			w := o.w[j] * (b - a) / 2 * math.Exp(-u*u/2) / math.Sqrt(2*math.Pi)
			if w == 0 {
				continue
			}
			p, q := tails(m + s*u)
			below += w * math.Exp(p)
			above += w * math.Exp(q)
		}
	}
	return math.Log(below), math.Log(above)
}

// quantileCases are likelihoods with the tails of a tailOracle.
var quantileCases = []Likelihood{
	GaussianNoise{Var: 0.3}, Laplace{Scale: 0.7}, StudentT{}, StudentT{DF: 1.5, Scale: 3}, Gamma{Shape: 0.3}, Gamma{Shape: 40}, Exponential{},
	Poisson{}, Poisson{Exposure: 1e-3}, NegativeBinomial{Shape: 0.05}, NegativeBinomial{Shape: 12}, Binomial{Trials: 7}, Binomial{Trials: 5000},
	BernoulliLogit{}, BernoulliProbit{}, Ordinal{Cuts: []float64{-3, -1, 0.5, 9}},
}

// TestQuantileTails: at levels from 1e−12 to 1 − 1e−12 and latent values from narrow to very wide,
// quantiles are where an independent mixture CDF has the level. None is NaN or infinite without an
// error, and none is an error but above the largest float64.
func TestQuantileTails(t *testing.T) {
	t.Parallel()
	o := newTailOracle()
	levels := []float64{1e-12, 1e-6, 0.025, 0.3, 0.5, 0.75, 0.99, 1 - 1e-6, 1 - 1e-12}
	means, variances := []float64{-1e3, -30, -4, 0, 1.3, 7, 1e3}, []float64{0, 1e-12, 1e-4, 0.2, 5, 400, 1e6}
	if testing.Short() {
		means, variances = []float64{0.7, 30}, []float64{1e-12, 0.2, 1e6}
	}
	for _, l := range quantileCases {
		facts := factsOf(l)
		for _, m := range means {
			for _, v := range variances {
				last := math.Inf(-1)
				for _, p := range levels {
					if testing.Short() && p != 1e-12 && p != 0.3 && p < 1-1e-12 {
						continue
					}
					q, err := predictiveQuantile(l, p, m, v)
					name := fmt.Sprintf("%#v N(%v, %v) at %v: %v, %v", l, m, v, p, q, err)
					// reached reports whether log P(Y ≤ y) is that of p, but for a relative tol of the smaller tail.
					reached := func(y, tol float64) bool {
						below, above := o.tails(l, y, m, v)
						if p <= 0.5 {
							return below >= math.Log(p)+tol
						}
						return above <= math.Log(1-p)-tol
					}
					const tol = 1e-8
					if err != nil {
						if !errors.Is(err, ErrNotFinite) || facts.Support == RealLine || facts.Most > 0 || m+math.Sqrt(v)*8 < 700 ||
							facts.Support != Counts && reached(math.MaxFloat64/1e10, tol) {
							t.Errorf("%s", name)
						}
						continue
					}
					if math.IsNaN(q) || math.IsInf(q, 0) || q < last {
						t.Errorf("%s, after %v", name, last)
						continue
					}
					last = q
					switch facts.Support {
					case SignLabels:
						if reached(-1, tol) && q == 1 || !reached(-1, -tol) && q == -1 {
							t.Errorf("%s", name)
						}
					case Counts:
						if q != math.Trunc(q) || q > 1e4 { // beyond the oracle
							continue
						}
						if (facts.Most == 0 || q < facts.Most) && !reached(q, -tol) || q > 0 && reached(q-1, tol) {
							t.Errorf("%s", name)
						}
					default:
						if math.Abs(q) < 1e-300 {
							if facts.Support != RealLine && !reached(1e-300, -tol) {
								t.Errorf("%s", name)
							}
							continue
						}
						if d := 1e-9 * math.Abs(q); !reached(q+d, -tol) || reached(q-d, tol) {
							t.Errorf("%s", name)
						}
					}
				}
			}
		}
	}
}

// TestQuantileRows: a row without a quantile is NaN and has an error; the rows after it are right.
func TestQuantileRows(t *testing.T) {
	m, v := []float64{1, 1e3, 2, math.NaN(), -1e3, 0.5}, []float64{0.5, 1, 1, 1, 1e6, 2}
	for _, l := range []Likelihood{Poisson{}, Gamma{}, Exponential{}, NegativeBinomial{}} {
		p := NewPrediction(l, m, v)
		q, err := p.Quantile(nil, 0.9)
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), "pgsvi: the first of 2 rows that fail: row 1: ") {
			t.Errorf("%T: %v", l, err)
		}
		mean, variance, err := p.Moments(nil, nil)
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), "pgsvi: the first of 3 rows that fail: row 1: ") {
			t.Errorf("%T: %v", l, err)
		}
		for i := range m {
			want, werr := predictiveQuantile(l, 0.9, m[i], v[i])
			bad := i == 1 || i == 3
			if bad != (werr != nil) || bad != math.IsNaN(q[i]) || !bad && (q[i] != want || q[i] < 0) || math.IsInf(q[i], 0) {
				t.Errorf("%T row %d: %v, want %v, %v", l, i, q[i], want, werr)
			}
			bad = bad || i == 4
			if bad != math.IsNaN(mean[i]) || bad != math.IsNaN(variance[i]) {
				t.Errorf("%T row %d: moments %v, %v", l, i, mean[i], variance[i])
			}
		}
	}
}

// TestQuantileLargeCounts: counts above 2^53 have quantiles, which are those of e^η.
func TestQuantileLargeCounts(t *testing.T) {
	for _, m := range []float64{40, 300, 700} {
		for _, l := range []Likelihood{Poisson{}, NegativeBinomial{Shape: 1e30}} {
			q, err := predictiveQuantile(l, 0.975, m, 0.25)
			if want := math.Exp(m + 0.5*1.959963984540054); err != nil || math.Abs(q/want-1) > 1e-10 {
				t.Errorf("%T at %v: %v, %v, want %v", l, m, q, err, want)
			}
		}
	}
	// Wide counts of few: the gamma passage is far wider than the Gaussian of η, or far narrower.
	q, err := predictiveQuantile(Binomial{Trials: 1 << 53}, 0.5, 0, 1e-30)
	if err != nil || math.Abs(q-0x1p52) > 1 {
		t.Errorf("median of half of 2^53: %v, %v", q, err)
	}
}

// TestProbInterval: the interval of p(y|η) has the probability wanted on either side, by draws of η,
// and is that of the quantiles of η where p(y|η) is monotone.
func TestProbInterval(t *testing.T) {
	t.Parallel()
	rng := testRand(3)
	const draws = 40000
	z := 1.959963984540054
	for _, c := range []struct {
		l    Likelihood
		y    float64
		rise float64 // ±1 where p(y|η) rises or falls
	}{
		{BernoulliLogit{}, 1, 1}, {BernoulliLogit{}, -1, -1}, {BernoulliProbit{}, 1, 1}, {BernoulliProbit{}, -1, -1},
		{Binomial{Trials: 5}, 5, 1}, {Binomial{Trials: 5}, 0, -1}, {Binomial{Trials: 5}, 2, 0}, {Poisson{}, 0, -1}, {Poisson{}, 3, 0},
		{NegativeBinomial{Shape: 2}, 1, 0}, {Ordinal{Cuts: []float64{-2, 0, 1}}, 0, -1}, {Ordinal{Cuts: []float64{-2, 0, 1}}, 2, 0},
		{Ordinal{Cuts: []float64{-2, 0, 1}}, 3, 1}, {cauchit{}, 1, 1},
	} {
		for _, m := range []float64{-5, -0.4, 0, 1.5, 40} {
			for _, v := range []float64{0, 0.01, 1, 30, 1e6} {
				lo, hi, err := NewPrediction(c.l, []float64{m}, []float64{v}).ProbInterval(nil, nil, c.y, 0.95)
				name := fmt.Sprintf("%#v, y = %v, N(%v, %v): %v to %v", c.l, c.y, m, v, lo, hi)
				if err != nil || !(lo[0] >= 0 && lo[0] <= hi[0] && hi[0] <= 1) {
					t.Errorf("%s, %v", name, err)
					continue
				}
				s := math.Sqrt(v)
				if c.rise != 0 {
					a, b := math.Exp(c.l.LogProb(c.y, m-c.rise*z*s)), math.Exp(c.l.LogProb(c.y, m+c.rise*z*s))
					if math.Abs(lo[0]-a) > 1e-9*a || math.Abs(hi[0]-b) > 1e-9*b {
						t.Errorf("%s, want %v to %v", name, a, b)
					}
					continue
				}
				var below, above float64
				for range draws {
					p := math.Exp(c.l.LogProb(c.y, m+s*rng.NormFloat64()))
					if p < lo[0]*(1-1e-9) {
						below++
					}
					if p > hi[0]*(1+1e-9) {
						above++
					}
				}
				// Four standard errors; fewer are below where p(y|η) underflows.
				if v > 0 && (below/draws > 0.0285 || below/draws < 0.0215 && lo[0] > 0 || above/draws > 0.0285 || above/draws < 0.0215 && hi[0] > 0) {
					t.Errorf("%s: %v below, %v above", name, below/draws, above/draws)
				}
			}
		}
	}
	good := NewPrediction(BernoulliLogit{}, []float64{0, math.NaN(), 1}, []float64{1, 1, 1})
	lo, hi, err := good.ProbInterval(nil, nil, 1, 0.9)
	if !errors.Is(err, ErrNotFinite) || !math.IsNaN(lo[1]+hi[1]) || math.IsNaN(lo[0]+hi[0]+lo[2]+hi[2]) || !strings.HasPrefix(err.Error(), "pgsvi: row 1: ") {
		t.Errorf("%v to %v, %v", lo, hi, err)
	}
	for _, c := range []struct {
		p        *Prediction
		y, level float64
		want     error
	}{
		{good, 1, 0, ErrParam}, {good, 1, 1, ErrParam}, {good, 1, math.NaN(), ErrParam}, {good, 0, 0.5, ErrLabel},
		{NewPrediction(nil, []float64{0}, []float64{1}), 0, 0.5, ErrParam},
		{NewPrediction(Gamma{}, []float64{0}, []float64{1}), 1, 0.5, ErrParam},
		{NewPrediction(Poisson{-1}, []float64{0}, []float64{1}), 1, 0.5, ErrParam},
		{NewPrediction(Poisson{}, []float64{0}, []float64{1}), 0.5, 0.5, ErrLabel},
	} {
		lo, hi, err := c.p.ProbInterval(nil, nil, c.y, c.level)
		if !errors.Is(err, c.want) || !math.IsNaN(lo[0]) || !math.IsNaN(hi[0]) || !prefixedOnce(err) {
			t.Errorf("y = %v, level %v: %v to %v, %v", c.y, c.level, lo, hi, err)
		}
	}
}
