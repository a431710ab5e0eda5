package predict

import (
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// density is a log-likelihood.
type density func(y, eta float64) float64

func (d density) LogProb(y, eta float64) float64 { return d(y, eta) }

// poisson returns log p(y|η) of a count with rate e^η.
func poisson(y, eta float64) float64 {
	g, _ := math.Lgamma(y + 1)
	return y*eta - math.Exp(eta) - g
}

// normal returns log N(y|η, 1).
func normal(y, eta float64) float64 { return -(y-eta)*(y-eta)/2 - special.LogSqrt2Pi }

// near reports a number that is off by more than a part tol.
func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol*math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestLogProb checks the integral against N(y|m, 1 + v), within its own bound.
func TestLogProb(t *testing.T) {
	for _, m := range []float64{-30, 0, 1.5} {
		for _, v := range []float64{0, 1e-6, 1, 1e6} {
			got, bound := LogProb(density(normal), 2, m, v)
			want := -(2-m)*(2-m)/(2*(1+v)) - math.Log1p(v)/2 - special.LogSqrt2Pi
			if !(math.Abs(got-want) <= bound+1e-14*math.Abs(want)) ||
				!(bound < 1e-11*(1+math.Abs(want))) {
				t.Errorf("N(%v, %v): %v ± %v, want %v", m, v, got, bound, want)
			}
		}
	}
	for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
		if p, bound := LogProb(density(normal), 0, 0, v); !math.IsNaN(p) || !math.IsNaN(bound) {
			t.Errorf("variance %v: %v ± %v", v, p, bound)
		}
	}
}

// TestTwoModes checks that sums over counts go on past a first mode, and what follows from them.
func TestTwoModes(t *testing.T) {
	zeros := density(func(y, eta float64) float64 {
		p := poisson(y, eta)
		if y == 0 {
			return math.Log(0.3 + 0.7*math.Exp(p))
		}
		return math.Log(0.7) + p
	})
	for _, x := range [][2]float64{{5.6, 0.01}, {1, 0.2}} {
		n := NewNumeric(zeros, Support{Kind: Counts})
		mean, _ := Moments(n, x[0], x[1])
		near(t, "mean", mean, 0.7*math.Exp(x[0]+x[1]/2), 1e-9)
		if eta, total, failed := n.Unnormalized(); failed {
			t.Errorf("total %v at %v", total, eta)
		}
	}
	p, _ := LogProb(zeros, 0, 5.6, 0.01)
	near(t, "P(0)", math.Exp(p), 0.3, 1e-9)
}

// TestUnnormalized checks that the first failure is kept, and that nothing is known from then on.
func TestUnnormalized(t *testing.T) {
	for _, kind := range []Kind{RealLine, Counts} {
		n := NewNumeric(density(func(y, eta float64) float64 {
			if kind == Counts {
				return math.Ln2 + poisson(y, eta)
			}
			return math.Ln2 + normal(y, eta)
		}), Support{Kind: kind})
		n.Moments(0.5)
		if mean, variance := n.Moments(0.7); !math.IsNaN(mean + variance + n.CDF(0, 1)) {
			t.Errorf("kind %d: %v, %v", kind, mean, variance)
		}
		eta, total, failed := n.Unnormalized()
		if !failed || eta != 0.5 || math.Abs(total-2) > 1e-6 {
			t.Errorf("kind %d: %v at %v, failed: %t", kind, total, eta, failed)
		}
	}
}

// TestQuantile checks quantiles of every kind of support against closed forms.
func TestQuantile(t *testing.T) {
	const p, m, v = 0.9, 0.3, 0.4
	z := 1.2815515655446004 // the normal quantile at p
	line := m + z*math.Sqrt(1+v)
	logit := density(func(y, eta float64) float64 {
		return normal(math.Log(y/(1-y)), eta) - math.Log(y) - math.Log1p(-y)
	})
	logNormal := density(
		func(y, eta float64) float64 { return normal(math.Log(y), eta) - math.Log(y) })
	signs := density(func(y, eta float64) float64 { return -math.Log1p(math.Exp(-y * eta)) })
	for _, c := range testkit.Few([]struct {
		name string
		l    Density
		s    Support
		want float64
	}{
		{"real", density(normal), Support{Kind: RealLine}, line},
		{"signs", signs, Support{Kind: SignLabels}, 1},
		{"not negative", logNormal, Support{Kind: NonNegative}, math.Exp(line)},
		{"unit", logit, Support{Kind: UnitInterval}, 1 / (1 + math.Exp(-line))},
		{"positive", logNormal, Support{Kind: Positive}, math.Exp(line)},
	}, 2) {
		near(t, c.name, Quantile(NewNumeric(c.l, c.s), c.s, p, m, v), c.want, 1e-8)
	}
	// The tails of a geometric count with P(Y > y) = ½^(y+1) at any η.
	tail := func(y float64, above bool) float64 {
		t := -(math.Floor(y) + 1) * math.Ln2
		if above {
			return t
		}
		return math.Log(-math.Expm1(t))
	}
	for y, p := range map[float64]float64{0: 0.3, 2: 0.8, 29: 1 - 0x1p-30} {
		if got := TailQuantile(tail, Support{Kind: Counts}, p, 0, 1); got != y {
			t.Errorf("quantile of counts at %v is %v, want %v", p, got, y)
		}
	}
	if got := TailQuantile(tail, Support{Kind: Counts, Most: 5}, 0.999, 0, 1); got != 5 {
		t.Errorf("quantile of counts up to 5 is %v", got)
	}
}

// TestInterval checks the interval of a probability that rises with η, and of one with a peak.
func TestInterval(t *testing.T) {
	logit := density(func(y, eta float64) float64 { return -math.Log1p(math.Exp(-y * eta)) })
	lo, hi := Interval(logit, 1, 0.025, 0.5, 2)
	near(t, "lower end", lo, 1/(1+math.Exp(-0.5+2*1.959963984540054)), 1e-9)
	near(t, "upper end", hi, 1/(1+math.Exp(-0.5-2*1.959963984540054)), 1e-9)
	// At its peak, in the middle of q: |u| is above 1.96 with probability 0.05.
	lo, hi = Interval(density(normal), 1, 0.05, 1, 1)
	near(t, "lower end about a peak", lo, math.Exp(normal(1.959963984540054, 0)), 1e-9)
	near(t, "upper end about a peak", hi, math.Exp(normal(0.06270677794321385, 0)), 1e-9)
}
