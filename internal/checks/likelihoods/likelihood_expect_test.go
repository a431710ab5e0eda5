package likelihoods

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/passage"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/integrate/quad"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// bareLikelihood hides everything but LogProb; smoothLikelihood leaves Derivs.
type (
	bareLikelihood   struct{ Likelihood }
	smoothLikelihood struct{ Differentiable }
)

// panelOracle integrates f against N(m, s²) over m ± 11s, and over what is
// beyond if tilt moves the mass, by 40 Gauss–Legendre nodes on panels that grow
// away from c and are at most s wide. It shares no code with the package.
type panelOracle struct{ x, w [40]float64 }

func newPanelOracle() *panelOracle {
	o := new(panelOracle)
	quad.Legendre{}.FixedLocations(o.x[:], o.w[:], -1, 1)
	return o
}

func (o *panelOracle) mean(f func(x float64) float64, m, s, c, d, reach float64) float64 {
	if s == 0 {
		return f(m)
	}
	var sum, comp float64
	add := func(a, b float64) {
		for i, x := range o.x {
			u := (a+b)/2 + (b-a)/2*x
			y := o.w[i]*(b-a)/2*math.Exp(-u*u/2)*f(m+s*u) - comp
			next := sum + y
			comp = (next - sum) - y
			sum = next
		}
	}
	lo, hi := -reach, reach
	c, d = (c-m)/s, d/s
	for a := math.Max(lo, c); a < hi; {
		b := math.Min(hi, a+math.Min(math.Max(d, a-c), 1))
		add(a, b)
		a = b
	}
	for b := math.Min(hi, c); b > lo; {
		a := math.Max(lo, b-math.Min(math.Max(d, c-b), 1))
		add(a, b)
		b = a
	}
	return sum / math.Sqrt(2*math.Pi)
}

var (
	gridMeans = []float64{0, 1e-3, -1e-3, 0.5, -0.5, 1.5, 3, -3, 20, -20, 1e3, -1e3}
	gridSDs   = []float64{1e-4, 1e-2, 0.17, 0.19, 0.41, 0.43, 0.75, 1, 1.45, 1.55, 2.6, 5, 9.9,
		10.1, 30, 200, 1e3}
)

// forGrid calls f on every likelihood, label, mean and standard deviation.
func forGrid(t *testing.T, f func(c likeCase, y, m, v float64)) {
	t.Helper()
	for k, c := range likeCases {
		for _, y := range c.good {
			for i, m := range gridMeans {
				for j, s := range gridSDs {
					if !testkit.IsLong() && (k+i+j)%testkit.Shorter(6, 36) != 0 {
						continue
					}
					f(c, y, m, s*s)
				}
			}
		}
	}
}

func expectNear(t *testing.T, what string, c likeCase, y, m, v, got, want, tol float64) {
	t.Helper()
	if got == want || math.Abs(got-want) <= tol {
		return
	}
	t.Errorf("%#v y=%v m=%v sd=%v: %s = %.17g, want %.17g (off by %.2g, allowed %.2g)",
		c.l, y, m, math.Sqrt(v), what, got, want, got-want, tol)
}

func TestExpectAgainstPanels(t *testing.T) {
	t.Parallel()
	o := newPanelOracle()
	forGrid(t, func(c likeCase, y, m, v float64) {
		e, s := ExpectLogProb(c.l, y, m, v), math.Sqrt(v)
		reach := 11.0
		if g := likeGrowth(c.l); g != 0 {
			if g*m+g*g*v/2 > 700 {
				return // TestExpectOverflow
			}
			reach += math.Abs(g) * s
			if math.Abs(g)*s > 5 {
				return // e^η overflows inside the oracle
			}
		}
		at, d := c.at(y), c.scale/2
		want := o.mean(func(x float64) float64 { return c.l.LogProb(y, x) }, m, s, at, d, reach)
		expectNear(t, "Value", c, y, m, v, e.Value, want, e.Err+2e-13*math.Max(1, math.Abs(want)))
		size := 1 + math.Abs(e.Value) + math.Abs(y*m)
		switch b := c.l.(type) {
		case Binomial:
			size += b.Trials // size of log C(n, y), which cancels
		case BetaBinomial:
			size += b.Trials
		}
		if e.Err > 1.01e-12*size {
			t.Errorf("%#v y=%v m=%v sd=%v: Err = %v for Value = %v", c.l, y, m, s, e.Err, e.Value)
		}
		if l, ok := c.l.(Laplace); ok {
			b := cmp.Or(l.Scale, 1)
			want = o.mean(func(x float64) float64 { return math.Copysign(1, y-x) / b }, m, s, at, d,
				reach)
			expectNear(t, "D1", c, y, m, v, e.D1, want, 1e-12/b)
			h := 1e-4 * s
			want = (c.l.(Expecter).ExpectLogProb(y, m+h, v).D1 - c.l.(Expecter).ExpectLogProb(y,
				m-h, v).D1) / (2 * h)
			expectNear(t, "D2", c, y, m, v, e.D2, want,
				1e-6*(math.Abs(e.D2)+1/b)+1e-16*(1+math.Abs(m))/(h*s*b))
			return
		}
		der := c.l.(Differentiable)
		d1 := o.mean(func(x float64) float64 { d, _ := der.Derivs(y, x); return d }, m, s, at, d,
			reach)
		d2 := o.mean(func(x float64) float64 { _, d := der.Derivs(y, x); return d }, m, s, at, d,
			reach)
		expectNear(t, "D1", c, y, m, v, e.D1, d1,
			3e-13*math.Max(c.scale, math.Max(1/c.scale, math.Abs(d1))))
		expectNear(t, "D2", c, y, m, v, e.D2, d2, 3e-13*math.Max(1/c.scale/c.scale, math.Abs(d2)))
	})
}

// TestExpectRandom asserts that Err bounds the error between the points of the
// grid, and the relative accuracy of the derivatives of the log-concave ones.
func TestExpectRandom(t *testing.T) {
	t.Parallel()
	o, rng := newPanelOracle(), rand.New(rand.NewPCG(3, 4))
	n := 800
	if !testkit.IsLong() {
		n = 100
	}
	for range n {
		s := math.Exp(-6 + 12*rng.Float64())
		m, v := rng.NormFloat64()*math.Exp(4*rng.Float64()-1), s*s
		s = math.Sqrt(v)
		for _, l := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, StudentT{},
			StudentT{DF: 0.3}, StudentT{DF: 30}} {
			// By how many s the mass of E[log p] may be away from m.
			tilt, at, d, relative := 0.0, 1.0, 0.3, false
			switch l.(type) {
			case BernoulliLogit:
				tilt, at, d, relative = s, 0, 1, true
			case BernoulliProbit:
				tilt, at, d, relative = math.Max(0, m)*s/(1+v), 0, 1, true
			}
			if tilt > 25 {
				continue
			}
			e, der := ExpectLogProb(l, 1, m, v), l.(Differentiable)
			want := o.mean(func(x float64) float64 { return l.LogProb(1, x) }, m, s, at, d, 11+tilt)
			d1 := o.mean(func(x float64) float64 { d, _ := der.Derivs(1, x); return d }, m, s, at,
				d, 11+tilt)
			d2 := o.mean(func(x float64) float64 { _, d := der.Derivs(1, x); return d }, m, s, at,
				d, 11+tilt)
			c := likeCase{l: l, scale: 1}
			tol1, tol2 := 5e-13*math.Abs(d1), 5e-13*math.Abs(d2)
			if !relative {
				tol1, tol2 = math.Max(tol1, 5e-13), math.Max(tol2, 5e-13)
			}
			expectNear(t, "Value", c, 1, m, v, e.Value, want, e.Err)
			expectNear(t, "D1", c, 1, m, v, e.D1, d1, tol1)
			expectNear(t, "D2", c, 1, m, v, e.D2, d2, tol2)
		}
	}
}

// TestExpectTails asserts relative accuracy where log p is tiny, against 30 digits.
func TestExpectTails(t *testing.T) {
	for _, r := range tailRefs {
		l := Expecter(BernoulliLogit{})
		tol := 2e-13
		if r.probit {
			l, tol = BernoulliProbit{}, 1e-12
		}
		e := l.ExpectLogProb(1, r.m, r.v)
		for i, p := range [3][2]float64{{e.Value, r.value}, {e.D1, r.d1}, {e.D2, r.d2}} {
			if rel := math.Abs(p[0]/p[1] - 1); !(rel <= tol) {
				t.Errorf("%T m=%v v=%v: derivative %d = %v, want %v, relative %.1e", l, r.m, r.v, i,
					p[0], p[1], rel)
			}
		}
		if math.Abs(e.Value-r.value) > e.Err {
			t.Errorf("%T m=%v v=%v: Err = %v, error %v", l, r.m, r.v, e.Err, e.Value-r.value)
		}
	}
}

func TestExpectAgainstAdaptive(t *testing.T) {
	t.Parallel()
	forGrid(t, func(c likeCase, y, m, v float64) {
		e, s := ExpectLogProb(c.l, y, m, v), math.Sqrt(v)
		g := math.Abs(c.l.LogProb(y, m))
		if growth := math.Abs(likeGrowth(c.l)); math.IsInf(e.Value, -1) || math.IsInf(g, 1) ||
			growth > 1 && growth*s > 15 {
			return
		}
		a := ExpectLogProb(bareLikelihood{c.l}, y, m, v)
		if math.IsInf(a.Err, 1) {
			if likeGrowth(c.l) == 0 || s < 15 {
				t.Errorf("%#v y=%v m=%v sd=%v: adaptive %v", c.l, y, m, s, a)
			}
			return
		}
		expectNear(t, "adaptive Value", c, y, m, v, a.Value, e.Value, a.Err+e.Err)
		if a.Err > 1e-11*(1+g+math.Abs(e.Value)+1/s/c.scale) && s < 15 {
			t.Errorf("%#v y=%v m=%v sd=%v: adaptive Err = %v", c.l, y, m, s, a.Err)
		}
		w := math.Abs(e.Value) + g + 1
		expectNear(t, "adaptive D1", c, y, m, v, a.D1, e.D1,
			1e-11*(math.Abs(e.D1)+1/c.scale)+3e-15*w/s*(1+s))
		expectNear(t, "adaptive D2", c, y, m, v, a.D2, e.D2,
			1e-11*(math.Abs(e.D2)+1/c.scale/c.scale)+3e-15*w/v*(1+v))
		if d, ok := c.l.(Differentiable); ok {
			a = ExpectLogProb(smoothLikelihood{d}, y, m, v)
			expectNear(t, "smooth Value", c, y, m, v, a.Value, e.Value, a.Err+e.Err)
			expectNear(t, "smooth D1", c, y, m, v, a.D1, e.D1, 1e-12*(math.Abs(e.D1)+1/c.scale))
			expectNear(t, "smooth D2", c, y, m, v, a.D2, e.D2,
				1e-12*(math.Abs(e.D2)+1/c.scale/c.scale))
		}
	})
}

func TestExpectAgainstMonteCarlo(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	n := 200000
	if !testkit.IsLong() {
		n = testkit.Shorter(20000, 4000)
	}
	for _, c := range likeCases {
		for _, y := range c.good {
			for _, p := range [][2]float64{{0.4, 0.3}, {-1, 1.1}, {2, 4}} {
				m, s := p[0], p[1]
				if s*math.Abs(likeGrowth(c.l)) > 2 {
					continue
				}
				e := ExpectLogProb(c.l, y, m, s*s)
				g0 := c.l.LogProb(y, m)
				var sum, sq [3]float64
				for range n {
					u := rng.NormFloat64()
					g := c.l.LogProb(y, m+s*u) - g0
					for k, x := range [3]float64{g, g * u / s, g * (u*u - 1) / s / s} {
						sum[k] += x
						sq[k] += x * x
					}
				}
				for k, want := range [3]float64{e.Value - g0, e.D1, e.D2} {
					mean := sum[k] / float64(n)
					se := math.Sqrt((sq[k]/float64(n) - mean*mean) / float64(n))
					if math.Abs(mean-want) > 4*se+1e-12*(1+math.Abs(want)) {
						t.Errorf("%#v y=%v m=%v sd=%v: Monte Carlo %d: %v ± %v, want %v", c.l, y, m,
							s, k, mean, se, want)
					}
				}
			}
		}
	}
}

// TestExpectDerivatives checks that D1 = ∂Value/∂m and D2 = ∂D1/∂m = 2 ∂Value/∂v.
func TestExpectDerivatives(t *testing.T) {
	for _, c := range likeCases {
		for _, y := range c.good {
			for _, m := range []float64{-4, 0.3, 6} {
				for _, s := range []float64{0.05, 0.3, 0.8, 2, 6, 11, 60} {
					if s*math.Abs(likeGrowth(c.l)) > 3 {
						continue
					}
					f := func(m, v float64) Expectation { return ExpectLogProb(c.l, y, m, v) }
					e, h := f(m, s*s), 1e-4*math.Hypot(s, c.scale)
					a, b := f(m+h, s*s), f(m-h, s*s)
					noise := 1e-15 * (1 + math.Abs(e.Value)) / h
					k := 1e-6
					expectNear(t, "D1 by differences", c, y, m, s*s, (a.Value-b.Value)/(2*h), e.D1,
						k*(math.Abs(e.D1)+1/c.scale)+noise)
					expectNear(t, "D2 by differences", c, y, m, s*s, (a.D1-b.D1)/(2*h), e.D2,
						k*(math.Abs(e.D2)+1/c.scale/c.scale)+noise/c.scale)
					h = 1e-4 * s * s
					a, b = f(m, s*s+h), f(m, s*s-h)
					noise = 1e-15 * (1 + math.Abs(e.Value)) / h
					expectNear(t, "D2 by variance", c, y, m, s*s, (a.Value-b.Value)/h, e.D2,
						k*(math.Abs(e.D2)+1/c.scale/c.scale)+4*noise)
				}
			}
		}
	}
}

func TestExpectInvariants(t *testing.T) {
	forGrid(t, func(c likeCase, y, m, v float64) {
		e := ExpectLogProb(c.l, y, m, v)
		for _, x := range []float64{e.Value, e.D1, e.D2, e.Err} {
			if math.IsNaN(x) {
				t.Fatalf("%#v y=%v m=%v v=%v: %v", c.l, y, m, v, e)
			}
		}
		if kit.FactsOf(c.l).LogConcave && e.D2 > 0 {
			t.Errorf("%#v y=%v m=%v v=%v: D2 = %v > 0", c.l, y, m, v, e.D2)
		}
		if kit.FactsOf(c.l).LogConcave && e.Value > c.l.LogProb(y, m)+e.Err+1e-13 { // Jensen
			t.Errorf("%#v y=%v m=%v v=%v: Value = %v above log p(m) = %v", c.l, y, m, v, e.Value,
				c.l.LogProb(y, m))
		}
		if w := ExpectLogProb(c.l, y, m, v*1.3+1e-3); kit.FactsOf(c.l).LogConcave &&
			w.Value > e.Value+e.Err+w.Err {
			t.Errorf("%#v y=%v m=%v v=%v: Value rises with v: %v, %v", c.l, y, m, v, e.Value,
				w.Value)
		}
		if _, ok := c.l.(BernoulliLogit); ok && (e.D1*y < 0 || math.Abs(e.D1) > 1 || e.D2 < -0.25) {
			t.Errorf("logit y=%v m=%v v=%v: %v", y, m, v, e)
		}
		if _, ok := c.l.(BernoulliProbit); ok && (e.D1*y < 0 || e.D2 < -1-1e-12) {
			t.Errorf("probit y=%v m=%v v=%v: %v", y, m, v, e)
		}
		switch c.l.(type) {
		case BernoulliLogit, BernoulliProbit, GaussianNoise, StudentT, Laplace:
		default:
			return
		}
		if n := ExpectLogProb(c.l, -y, -m, v); !math.IsInf(e.D2, 0) {
			expectNear(t, "mirrored Value", c, y, m, v, n.Value, e.Value,
				1e-14*(1+math.Abs(e.Value)))
			expectNear(t, "mirrored D1", c, y, m, v, n.D1, -e.D1, 1e-14*(1/c.scale+math.Abs(e.D1)))
			expectNear(t, "mirrored D2", c, y, m, v, n.D2, e.D2,
				1e-14*(1/c.scale/c.scale+math.Abs(e.D2)))
		}
	})
}

func TestExpectPointMass(t *testing.T) {
	for _, c := range likeCases {
		for _, y := range c.good {
			for _, m := range []float64{-700, -3, 0.1, 5, 700} {
				e, p := ExpectLogProb(c.l, y, m, 0), c.l.LogProb(y, m)
				expectNear(t, "Value", c, y, m, 0, e.Value, p, e.Err+1e-14*math.Abs(p))
				a := ExpectLogProb(bareLikelihood{c.l}, y, m, 0)
				if _, kink := c.l.(Laplace); !kink && c.scale >= 1 && math.Abs(p) < 1e6 {
					expectNear(t, "D1", c, y, m, 0, a.D1, e.D1,
						1e-8*(1+math.Abs(e.D1))+1e-12*math.Abs(p))
					expectNear(t, "D2", c, y, m, 0, a.D2, e.D2,
						1e-7*(1+math.Abs(e.D2))+1e-9*math.Abs(p))
				}
			}
		}
	}
	if e := (Laplace{}).ExpectLogProb(2, 2, 0); e.D1 != 0 || !math.IsInf(e.D2, -1) {
		t.Errorf("Laplace on the kink: %v", e)
	}
}

func TestExpectOverflow(t *testing.T) {
	for _, p := range [][2]float64{{710, 0}, {0, 1500}, {1e308, 1e308}, {-1e300, 1e301}} {
		if e := (Poisson{}).ExpectLogProb(3, p[0],
			p[1]); e != (Expectation{Value: math.Inf(-1), D1: math.Inf(-1), D2: math.Inf(-1),
			Err: 0}) {
			t.Errorf("Poisson at %v: %v, want −Inf thrice", p, e)
		}
	}
	if e := (Poisson{}).ExpectLogProb(3, -1e308, 1); e.Value >= -1e308 || e.D1 != 3 || e.D2 != 0 {
		t.Errorf("Poisson at −1e308: %v", e)
	}
	for _, c := range likeCases {
		for _, y := range c.good {
			for _, m := range []float64{0, 1, -1e200, 1e308, -math.MaxFloat64} {
				for _, v := range []float64{0, 5e-324, 1e-300, 1, 1e200, math.MaxFloat64} {
					e := ExpectLogProb(c.l, y, m, v)
					if math.IsNaN(e.Value) || math.IsNaN(e.D1) || math.IsNaN(e.D2) ||
						math.IsNaN(e.Err) {
						t.Errorf("%#v y=%v m=%v v=%v: %v", c.l, y, m, v, e)
					}
				}
			}
			for _, p := range [][2]float64{{math.NaN(), 1}, {0, math.NaN()}, {math.Inf(1), 1},
				{0, math.Inf(1)}, {0, -1}} {
				if e := ExpectLogProb(c.l, y, p[0], p[1]); !math.IsNaN(e.Value) {
					t.Errorf("%#v at N(%v, %v): %v, want NaN", c.l, p[0], p[1], e)
				}
			}
		}
	}
}

// likeFunc is a likelihood made of one function.
type likeFunc func(y, eta float64) float64

func (f likeFunc) LogProb(y, eta float64) float64 { return f(y, eta) }

func TestExpectUser(t *testing.T) {
	wall := likeFunc(func(y, eta float64) float64 {
		if eta < -1 {
			return math.Inf(-1)
		}
		return -eta
	})
	if e := ExpectLogProb(wall, 0, 0, 1); !math.IsInf(e.Value, -1) || !math.IsInf(e.Err, 1) ||
		e.D1 != 0 || e.D2 != 0 {
		t.Errorf("a wall inside the mass: %v", e)
	}
	if e := ExpectLogProb(wall, 0, 20, 1); math.Abs(e.Value+20) > e.Err ||
		math.Abs(e.D1+1) > 1e-13 {
		t.Errorf("a wall 21 standard deviations away: %v", e)
	}
	// A kink that is neither at m nor at y, a step, and an integrable pole.
	kink := likeFunc(func(y, eta float64) float64 { return -math.Abs(eta - 0.77) })
	w := Laplace{}.ExpectLogProb(0.77, 0.2, 1.44)
	if e := ExpectLogProb(kink, 0, 0.2, 1.44); math.Abs(e.Value-w.Value-math.Ln2) > e.Err+w.Err ||
		math.Abs(e.D1-w.D1) > 1e-12 || math.Abs(e.D2-w.D2) > 1e-12 {
		t.Errorf("kink: %v, want %v", e, w)
	}
	step := likeFunc(func(y, eta float64) float64 {
		if eta > 0.3 {
			return -1000
		}
		return 0
	})
	p := -1000 * special.NormalTail(0.1)
	if e := ExpectLogProb(step, 0, 0.2, 1); math.Abs(e.Value-p) > e.Err || e.Err > 1e-9 {
		t.Errorf("step: %v, want %v", e, p)
	}
	pole := likeFunc(func(y, eta float64) float64 { return math.Log(math.Abs(eta)) })
	p = -(math.Ln2 + 0.57721566490153286) / 2
	if e := ExpectLogProb(pole, 0.1, 0, 1); math.Abs(e.Value-p) > e.Err || e.Err > 1e-8 {
		t.Errorf("pole: %v, want %v", e, p)
	}
}

func TestExpectAllocs(t *testing.T) {
	for _, c := range likeCases {
		for _, l := range []Likelihood{c.l, bareLikelihood{c.l}} {
			y := c.good[0]
			if n := testing.AllocsPerRun(10, func() { ExpectLogProb(l, y, 0.3, 4) }); n != 0 {
				t.Errorf("%T %T: %v allocations", l, c.l, n)
			}
		}
	}
}

// TestPredict compares with the oracle, and with quadrature in the logarithm.
func TestPredict(t *testing.T) {
	t.Parallel()
	o := newPanelOracle()
	forGrid(t, func(c likeCase, y, m, v float64) {
		s := math.Sqrt(v)
		logp := kit.PredictedLogProb(c.l, y, m, v)
		if math.IsNaN(logp) {
			t.Errorf("%#v y=%v m=%v sd=%v: log p = %v", c.l, y, m, s, logp)
		}
		bound := 1e-11 * (1 + math.Abs(logp))
		a := kit.PredictedLogProb(bareLikelihood{c.l}, y, m, v)
		expectNear(t, "log predictive", c, y, m, v, a, logp, 2*bound)
		reach := 12.0
		if _, ok := c.l.(Exponential); ok && y == 0 { // E[e^{−η}], whose mass is at m − v
			if reach += s; s > 15 {
				return
			}
		}
		if want := math.Log(o.mean(func(x float64) float64 { return math.Exp(c.l.LogProb(y, x)) },
			m, s, c.at(y), c.scale/4, reach)); want > -15 {
			expectNear(t, "log predictive", c, y, m, v, logp, want, bound+3e-12)
		}
	})
}

func TestPredictMoments(t *testing.T) {
	for _, c := range likeCases {
		if st, ok := c.l.(StudentT); ok && st.DF == 1.5 {
			if mean, variance, err := kit.PredictedMoments(c.l, 2, 3); mean != 2 ||
				!math.IsInf(variance, 1) || err != nil {
				t.Errorf("%#v: %v, %v, %v", c.l, mean, variance, err)
			}
			continue
		}
		for _, m := range []float64{-2, 0, 1.2} {
			for _, v := range []float64{0, 0.01, 1, 6} {
				mean, variance, err := kit.PredictedMoments(c.l, m, v)
				if err != nil {
					t.Errorf("%#v: %v", c.l, err)
				}
				rm, rv := predict.Moments(c.l.(Responder), m, v)
				if math.Abs(mean-rm) > 1e-11*(1+math.Abs(mean)) ||
					math.Abs(variance-rv) > 1e-10*(1+variance) {
					t.Errorf("%#v N(%v, %v): %v, %v, by total variance %v, %v", c.l, m, v, mean,
						variance, rm, rv)
				}
			}
		}
	}
	if _, _, err := kit.PredictedMoments(StudentT{DF: 1}, 0, 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("Cauchy: %v, want ErrNotFinite", err)
	}
	if _, _, err := kit.PredictedMoments(GaussianNoise{}, 0, -1); !errors.Is(err, ErrParam) {
		t.Errorf("v < 0: %v, want ErrParam", err)
	}
}

// supported gives a bare likelihood Facts.
type supported struct {
	bareLikelihood
	facts Facts
}

func (s supported) Facts() Facts { return s.facts }

func TestPredictUser(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	twice := likeFunc(func(y, eta float64) float64 {
		return GaussianNoise{}.LogProb(y, eta) +
			math.Ln2
	})
	if _, _, err := kit.PredictedMoments(twice, 0, 1); !errors.Is(err, ErrParam) {
		t.Errorf("not normalised: %v, want ErrParam", err)
	}
	if _, err := kit.PredictedQuantile(twice, 0.5, 0, 1); !errors.Is(err, ErrParam) {
		t.Errorf("not normalised: %v, want ErrParam", err)
	}
	p := NewPrediction(twice, []float64{0}, []float64{1})
	if _, _, err := p.Moments(nil, nil); !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) {
		t.Errorf("not normalised: %v, want ErrParam", err)
	}
	logNormal := likeFunc(func(y, eta float64) float64 {
		return GaussianNoise{}.LogProb(math.Log(y), eta) - math.Log(y)
	})
	exp := likeFunc(func(y, eta float64) float64 { return -eta - y*math.Exp(-eta) })
	logitNormal := likeFunc(func(y, eta float64) float64 {
		return GaussianNoise{}.LogProb(math.Log(y/(1-y)), eta) - math.Log(y*(1-y))
	})
	for _, c := range []struct {
		name                string
		l                   Likelihood
		m, v, mean, var_    float64
		p, quantile, relTol float64
	}{
		{"gaussian", bareLikelihood{GaussianNoise{Var: 2}}, 0.5, 1, 0.5, 3, 0.5, 0.5, 1e-9},
		{"laplace", bareLikelihood{Laplace{}}, 0, 1, 0, 3, 0.5, 0, 1e-8},
		{"log-normal", supported{bareLikelihood{logNormal}, Facts{Support: Positive}}, 0.2, 0.5,
			math.Exp(0.95), math.Expm1(1.5) * math.Exp(1.9), 0.5, math.Exp(0.2), 1e-8},
		{"exponential", supported{bareLikelihood{exp}, Facts{Support: Positive}}, 0, 0.25,
			math.Exp(0.125), 2*math.Exp(0.5) - math.Exp(0.25), 0.5, math.NaN(), 1e-8},
		{"logit-normal", supported{bareLikelihood{logitNormal}, Facts{Support: UnitInterval}}, 0, 1,
			0.5, math.NaN(), 0.5, 0.5, 1e-8},
		{"poisson", supported{bareLikelihood{Poisson{}}, Facts{Support: Counts}}, 1, 0.3,
			math.Exp(1.15), math.Exp(1.15) + math.Exp(2.3)*math.Expm1(0.3), 0.5, math.NaN(), 1e-8},
		{"sign", supported{bareLikelihood{BernoulliProbit{}}, Facts{Support: SignLabels}}, 1, 1,
			math.Erf(0.5), 1 - math.Pow(math.Erf(0.5), 2), 0.5, 1, 1e-8},
	} {
		mean, variance, err := kit.PredictedMoments(c.l, c.m, c.v)
		if err != nil || math.Abs(mean-c.mean) > c.relTol*(1+c.mean) ||
			math.Abs(variance-c.var_) > c.relTol*(1+c.var_) {
			t.Errorf("%s: %v, %v, %v, want %v, %v", c.name, mean, variance, err, c.mean, c.var_)
		}
		q, err := kit.PredictedQuantile(c.l, c.p, c.m, c.v)
		if err != nil || math.Abs(q-c.quantile) > c.relTol*(1+c.quantile) {
			t.Errorf("%s: quantile %v, %v, want %v", c.name, q, err, c.quantile)
		}
	}
}

func TestPredictQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range likeCases {
		r := c.l.(Responder)
		for _, m := range []float64{-1, 0.5} {
			for _, v := range []float64{0, 0.5, 9} {
				if testing.Short() && (v == 9 || v > 0 && m < 0) {
					continue
				}
				last := math.Inf(-1)
				for _, p := range []float64{0.01, 0.3, 0.5, 0.95} {
					q, err := kit.PredictedQuantile(c.l, p, m, v)
					if err != nil || q < last {
						t.Errorf("%#v N(%v, %v): quantile(%v) = %v, %v", c.l, m, v, p, q, err)
					}
					last = q
					at := passage.PredictiveCDF(func(eta float64) float64 { return r.CDF(q, eta) },
						q, m, v, 1e-13, passage.LeastTail)
					switch kit.FactsOf(c.l).Support {
					case Counts, SignLabels:
						step := 1.0
						if kit.FactsOf(c.l).Support == SignLabels {
							step = 2
						}
						if below := passage.PredictiveCDF(func(eta float64) float64 {
							return r.CDF(q-step, eta)
						}, q, m, v, 1e-13, passage.LeastTail); at < p-1e-15 || below >= p ||
							q != math.Trunc(q) {
							t.Errorf("%#v N(%v, %v): quantile(%v) = %v, CDF %v and %v", c.l, m, v,
								p, q, below, at)
						}
					case UnitInterval: // not every number in (0, 1) is a float64
						cdf := func(y float64) float64 {
							return passage.PredictiveCDF(func(eta float64) float64 {
								return r.CDF(y, eta)
							}, y, m, v, 1e-13, passage.LeastTail)
						}
						if below, above := cdf(q-1e-15*q),
							cdf(q+1e-15*q); !(below <= p+1e-10 && above >= p-1e-10) && q > 1e-308 {
							t.Errorf("%#v N(%v, %v): quantile(%v) = %v, CDF %v to %v", c.l, m, v, p,
								q, below, above)
						}
					default:
						if math.Abs(at-p) > 1e-10 {
							t.Errorf("%#v N(%v, %v): quantile(%v) = %v, CDF %v", c.l, m, v, p, q,
								at)
						}
					}
				}
			}
		}
	}
}

func FuzzExpectLogProb(f *testing.F) {
	f.Add(1.0, 0.0, 1.0)
	f.Add(-1.0, 1e3, 1e6)
	f.Add(3.0, -700.0, 1e-8)
	f.Add(0.0, 1e308, 1e308)
	f.Add(47.2, 6e307, 2.9e306)
	f.Fuzz(func(t *testing.T, y, m, v float64) {
		if !expect.Valid(m, v) || math.IsNaN(y) || math.IsInf(y, 0) {
			t.Skip()
		}
		for _, c := range likeCases {
			if labelError(c.l, y) != nil {
				continue
			}
			for _, l := range []Likelihood{c.l, bareLikelihood{c.l}} {
				e := ExpectLogProb(l, y, m, v)
				if math.IsNaN(e.Value) || math.IsNaN(e.D1) || math.IsNaN(e.D2) ||
					math.IsNaN(e.Err) {
					t.Fatalf("%T %#v y=%v m=%v v=%v: %v", l, c.l, y, m, v, e)
				}
			}
			if e := ExpectLogProb(c.l, y, m, v); kit.FactsOf(c.l).LogConcave && e.D2 > 0 {
				t.Fatalf("%#v y=%v m=%v v=%v: D2 = %v > 0", c.l, y, m, v, e.D2)
			}
			if p := kit.PredictedLogProb(c.l, y, m, v); math.IsNaN(p) {
				t.Fatalf("%#v y=%v m=%v v=%v: predictive %v", c.l, y, m, v, p)
			}
		}
	})
}

func BenchmarkExpect(b *testing.B) {
	for _, c := range likeCases {
		if c.scale != 1 && reflect.TypeOf(c.l).NumField() > 0 {
			continue
		}
		for _, s := range []float64{0.1, 0.3, 1, 2, 5, 12, 100} {
			if s*math.Abs(likeGrowth(c.l)) > 2 {
				continue
			}
			b.Run(fmt.Sprintf("%T/sd=%v", c.l, s), func(b *testing.B) {
				b.ReportAllocs()
				m := 0.4
				for b.Loop() {
					m = -m
					ExpectLogProb(c.l, c.good[0], m, s*s)
				}
			})
		}
	}
	b.Run("adaptive/sd=2", func(b *testing.B) {
		b.ReportAllocs()
		var l Likelihood = bareLikelihood{BernoulliLogit{}}
		for b.Loop() {
			ExpectLogProb(l, 1, 0.4, 4)
		}
	})
	b.Run("adaptive kink/sd=2", func(b *testing.B) {
		b.ReportAllocs()
		var l Likelihood = bareLikelihood{Laplace{}}
		for b.Loop() {
			ExpectLogProb(l, 1, 0.4, 4)
		}
	})
	for _, s := range []float64{0.3, 2, 12} {
		b.Run(fmt.Sprintf("PredictLogProb logit/sd=%v", s), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kit.PredictedLogProb(BernoulliLogit{}, 1, 0.4, s*s)
			}
		})
		b.Run(fmt.Sprintf("PredictLogProb StudentT/sd=%v", s), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kit.PredictedLogProb(StudentT{}, 1, 0.4, s*s)
			}
		})
	}
}

// cauchit is p(y|η) = ½ + arctan(yη)/π for y = ±1: LogProb is all there is to it.
type cauchit struct{}

func (cauchit) LogProb(y, eta float64) float64 { return math.Log(0.5 + math.Atan(y*eta)/math.Pi) }

func (cauchit) Facts() Facts { return Facts{Support: SignLabels} }

// tailRefs: expectations for y = +1 by composite quadrature in 32-digit arithmetic.
var tailRefs = []struct {
	probit              bool
	m, v, value, d1, d2 float64
}{
	{false, 20.0, 0.09, -2.1560241100794024833e-9, 2.1560241075363007525e-9,
		-2.1560241024500972996e-9},
	{false, 37.0, 5.289999999999999, -1.2017470762883732871e-15, 1.2017470762882300637e-15,
		-1.2017470762879436169e-15},
	{false, 45.0, 98.01, -8.2505255517196095763e-6, 3.9711943179285444853e-6,
		-1.8371443653840351745e-6},
	{false, 45.0, 102.00999999999999, -0.000012678316129096124321, 5.8909078349726740544e-6,
		-2.6273291571553487545e-6},
	{false, 100.0, 0.09, -3.8913031118949064428e-44, 3.8913031118949064428e-44,
		-3.8913031118949064428e-44},
	{false, 100.0, 64.0, -2.9374709246657772152e-30, 2.9374646195830408579e-30,
		-2.937454913189939452e-30},
	{false, 100.0, 144.0, -1.4490414670613844177e-16, 1.0007428619991177066e-16,
		-6.8201381182287486349e-17},
	{false, 100.0, 400.0, -1.2004139231307438002e-6, 3.1924921912819222159e-7,
		-8.2110554807521022881e-8},
	{false, 300.0, 196.0, -1.8729002841606976688e-88, 1.8729002841606382784e-88,
		-1.8729002841605478118e-88},
	{false, 300.0, 400.0, -1.5920074990566395758e-50, 1.1876313504421994128e-50,
		-8.8217384812499829895e-51},
	{false, 1000.0, 10000.0, -7.6025885556647858622e-23, 7.7478515802205749548e-24,
		-7.8212874646797725687e-25},
	{true, 8.0, 0.36, -3.4443918662202643693e-12, 2.0675068469291721259e-11,
		-1.2161805599572157979e-10},
	{true, 8.0, 2.2801, -5.1530081086543442876e-6, 0.000013248315828471283965,
		-0.00003259887661582912277},
	{true, 37.0, 0.36, -3.2719199578121820862e-221, 8.9103724878134863036e-220,
		-2.424145456243374974e-218},
	{true, 37.0, 36.0, -1.0959153339529710683e-9, 1.1529316023463406619e-9,
		-1.1852095519835601014e-9},
	{true, 100.0, 98.01, -8.7840447341989745459e-24, 9.0513440765781505005e-24,
		-9.2404749993800558109e-24},
	{true, 100.0, 144.0, -1.532026093523014063e-16, 1.0917166740949145795e-16,
		-7.6780041102360128631e-17},
	{true, 300.0, 400.0, -1.3713100557122481403e-50, 1.036570706350425047e-50,
		-7.8016716650688806484e-51},
	{true, 1000.0, 1600.0, -1.3696957617084454875e-137, 8.589203253849138908e-138,
		-5.3776763234820144575e-138},
}
