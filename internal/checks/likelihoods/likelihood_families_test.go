package likelihoods

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestFamilyDigits compares E[log p] with quadrature with 30 digits.
func TestFamilyDigits(t *testing.T) {
	for _, c := range []struct {
		l             Likelihood
		y, m, s, want float64
	}{
		{Binomial{Trials: 1e6}, 371234, -0.5, 0.5, -28755.836424460225343},
		{Binomial{Trials: 1000}, 0, -40, 1, -7.0043520261686451539e-15},
		{Binomial{Trials: 1000}, 0, -40, 3, -3.8242466280912100277e-13},
		{NegativeBinomial{Shape: 1e9}, 7, 2, 1.5, -17.285054135530327011},
		{NegativeBinomial{Shape: 1e-5}, 12, 1, 2, -13.998253005519583802},
		{NegativeBinomial{Shape: 2.5}, 1e6, 13, 1, -19.087226582785446649},
		{Gamma{Shape: 1e6}, 3.5, 1.25, 0.01, -49.224054533317454884},
		{Gamma{Shape: 1e-3}, 2, 1, 1, -7.6087537353616464298},
		{Gamma{Shape: 40}, 1e-5, -11, 0.3, 6.8673166411872423059},
		{Ordinal{Cuts: []float64{1, 1.0000001}}, 1, 0.5, 2, -18.291263133460769946},
		{Ordinal{Cuts: []float64{-700, 700}}, 1, 3, 2, -1.4669329158860646496e-302},
	} {
		e := ExpectLogProb(c.l, c.y, c.m, c.s*c.s)
		off := math.Abs(e.Value - c.want)
		t.Logf("%#v: off by %.2g (relative %.2g), Err = %.2g", c.l, off, off/math.Abs(c.want),
			e.Err)
		if !(off <= e.Err) {
			t.Errorf("%#v y=%v m=%v sd=%v: %.17g ± %.2g, want %.17g", c.l, c.y, c.m, c.s, e.Value,
				e.Err, c.want)
		}
	}
}

// TestFamilyRandom draws parameters and labels: Err bounds the error against the
// panel oracle, and the derivatives are right.
func TestFamilyRandom(t *testing.T) {
	t.Parallel()
	o, rng := newPanelOracle(), rand.New(rand.NewPCG(5, 6))
	n := 1000
	if !testkit.IsLong() {
		n = testkit.Shorter(150, 50)
	}
	worst := map[string]float64{}
	for range n {
		s := math.Exp(-7 + 9*rng.Float64())
		m, v := 4*rng.NormFloat64(), s*s
		s = math.Sqrt(v)
		shape := math.Exp(-3 + 8*rng.Float64())
		trials := math.Ceil(math.Exp(7 * rng.Float64()))
		cuts := []float64{rng.NormFloat64()}
		for range 3 {
			cuts = append(cuts, cuts[len(cuts)-1]+math.Exp(-12+14*rng.Float64()))
		}
		for _, c := range []struct {
			l  Likelihood
			y  float64
			at float64 // where p(y|η) has its mode
			d  float64 // largest width
		}{
			{Binomial{Trials: trials}, math.Floor((trials + 1) * rng.Float64()), 0, 1},
			{NegativeBinomial{Shape: shape}, math.Floor(math.Exp(6*rng.Float64()) - 1),
				math.Log(shape), 1},
			{Gamma{Shape: shape}, math.Exp(2 * rng.NormFloat64()), math.NaN(), 1},
			{Exponential{}, math.Exp(2 * rng.NormFloat64()), math.NaN(), 1},
			{Ordinal{Cuts: cuts}, math.Floor(5 * rng.Float64()), cuts[1], 0.5},
		} {
			reach, der := 11.0, c.l.(Differentiable)
			if likeGrowth(c.l) != 0 {
				c.at = math.Log(c.y)
				if reach += s; s > 5 {
					continue
				}
			}
			e := ExpectLogProb(c.l, c.y, m, v)
			// The constant of log p in the class of η = m is kept out of the sum.
			g0 := c.l.LogProb(c.y, m)
			var abs float64
			want := o.mean(func(x float64) float64 {
				abs = math.Max(abs, math.Abs(c.l.LogProb(c.y, x)-g0)*math.Exp(-(x-m)*(x-m)/(2*v)))
				return c.l.LogProb(c.y, x) - g0
			}, m, s, c.at, c.d, reach)
			d1 := o.mean(func(x float64) float64 { d, _ := der.Derivs(c.y, x); return d }, m, s,
				c.at, c.d, reach)
			d2 := o.mean(func(x float64) float64 { _, d := der.Derivs(c.y, x); return d }, m, s,
				c.at, c.d, reach)
			k := likeCase{l: c.l}
			expectNear(t, "Value", k, c.y, m, v, e.Value, g0+want, e.Err+4*special.Eps*abs)
			size := math.Abs(d1) + math.Sqrt(math.Abs(d2)) + math.Abs(d2)
			switch l := c.l.(type) {
			case Binomial:
				size += l.Trials
			case NegativeBinomial:
				size += c.y + l.Shape
			case Ordinal, Exponential:
				size++
			case Gamma:
				size += l.Shape * (1 + math.Abs(d2))
			}
			expectNear(t, "D1", k, c.y, m, v, e.D1, d1, 1e-12*size)
			expectNear(t, "D2", k, c.y, m, v, e.D2, d2, 1e-12*size)
			if e.D2 > 0 || math.Abs(want) > 0 && e.Err > 1e-11*size*(1+math.Abs(m)+s) {
				t.Errorf("%#v y=%v m=%v sd=%v: %v", c.l, c.y, m, s, e)
			}
			name := fmt.Sprintf("%T", c.l)
			worst[name] = math.Max(worst[name], math.Abs(e.Value-g0-want)/e.Err)
		}
	}
	t.Logf("largest error/Err: %v", worst)
}

// TestFamilyRelations checks special cases and limits.
func TestFamilyRelations(t *testing.T) {
	near := func(what string, a, b Expectation, shift, tol float64) {
		t.Helper()
		for i, p := range [3][2]float64{{a.Value, b.Value + shift}, {a.D1, b.D1}, {a.D2, b.D2}} {
			if math.Abs(p[0]-p[1]) > tol*(1+math.Abs(p[1])) {
				t.Errorf("%s: derivative %d: %v, want %v", what, i, p[0], p[1])
			}
		}
	}
	for _, m := range []float64{-30, -2, 0, 0.7, 9} {
		for _, v := range []float64{0, 1e-3, 0.6, 7, 900} {
			for _, y := range []float64{0, 1} {
				b := ExpectLogProb(BernoulliLogit{}, 2*y-1, m, v)
				near("one trial", ExpectLogProb(Binomial{}, y, m, v), b, 0, 1e-14)
				near("two classes", ExpectLogProb(Ordinal{}, y, m, v), b, 0, 1e-14)
				for _, l := range []Likelihood{Binomial{}, Ordinal{}} {
					mean, variance, err := kit.PredictedMoments(l, m, v)
					bm, bv, _ := kit.PredictedMoments(BernoulliLogit{}, m, v)
					if err != nil || math.Abs(mean-(1+bm)/2) > 1e-14 ||
						math.Abs(variance-bv/4) > 1e-13*bv {
						t.Errorf("%T: moments %v, %v, want %v, %v", l, mean, variance, (1+bm)/2,
							bv/4)
					}
				}
			}
			if v > 10 {
				continue
			}
			near("gamma of shape one", ExpectLogProb(Gamma{}, 2.3, m, v),
				ExpectLogProb(Exponential{}, 2.3, m, v), 0, 2e-14)
			if m+v < 10 {
				near("Poisson limit", ExpectLogProb(NegativeBinomial{Shape: 1e14}, 6, m, v),
					ExpectLogProb(Poisson{}, 6, m, v), 0, 1e-7)
			}
		}
	}
	// A geometric distribution: shape 1.
	for y := range 30 {
		mu := math.Exp(0.4)
		want := float64(y)*math.Log(mu/(1+mu)) - math.Log1p(mu)
		if got := (NegativeBinomial{}).LogProb(float64(y), 0.4); math.Abs(got-want) > 1e-13 {
			t.Errorf("geometric: log p(%d) = %v, want %v", y, got, want)
		}
	}
}

// TestFamilyCDF sums probabilities of large counts, in both tails.
func TestFamilyCDF(t *testing.T) {
	for _, c := range []struct {
		l      Likelihood
		lo, hi float64 // between which the mass is
		eta    float64
		tol    float64
	}{
		{Binomial{Trials: 1000}, 0, 1000, -0.5, 1e-12},
		{Binomial{Trials: 1e6}, 370000, 385000, -0.5, 2e-9},
		{Binomial{Trials: 1e7}, 0, 300, -11.5, 1e-8},
		{Binomial{Trials: 1e9}, 9000, 11000, -11.5, 1e-7},
		{Binomial{Trials: 1e12}, 0, 300, -23, 1e-8},
		{Binomial{Trials: 3e6}, 1128000, 1138000, -0.5, 5e-8},
		{NegativeBinomial{Shape: 3.5}, 0, 30000, 5, 1e-11},
		{NegativeBinomial{Shape: 1e6}, 0, 800, 5, 1e-8},
	} {
		r, sum := c.l.(Responder), 0.0
		for y := c.lo; y <= c.hi; y++ {
			sum += math.Exp(c.l.LogProb(y, c.eta))
			if math.Mod(y, 7) == 0 {
				if p := r.CDF(y, c.eta); !(math.Abs(p-sum) <= c.tol) {
					t.Errorf("%#v: P(Y ≤ %v) = %v, sum %v (off by %.2g)", c.l, y, p, sum, p-sum)
					break
				}
			}
		}
		if !(math.Abs(sum-1) < c.tol) {
			t.Errorf("%#v: probabilities sum to 1 %+.2g", c.l, sum-1)
		}
		if a, b, n := r.CDF(-1, c.eta), r.CDF(math.Inf(1), c.eta),
			r.CDF(math.NaN(), c.eta); a != 0 || b != 1 || !math.IsNaN(n) {
			t.Errorf("%#v: CDF %v, %v, %v at −1, ∞, NaN", c.l, a, b, n)
		}
	}
}

// TestOrdinalNarrow checks classes of width 1e−9, tails at 600, and that probabilities add up.
func TestOrdinalNarrow(t *testing.T) {
	cuts := []float64{-3, -3 + 0x1p-30, 0, 600, 601}
	o := Ordinal{Cuts: cuts}
	for _, eta := range []float64{-800, -3, 0.2, 300, 600.5, 1300} {
		sum := 0.0
		for y := range 6 {
			p := math.Exp(o.LogProb(float64(y), eta))
			sum += p
			if c := o.CDF(float64(y), eta); math.Abs(c-sum) > 1e-15 {
				t.Errorf("η=%v: P(Y ≤ %d) = %v, sum %v", eta, y, c, sum)
			}
		}
	}
	// σ'(0) times the width, to second order.
	if p, want := math.Exp(o.LogProb(1, -3+0x1p-31)), 0x1p-32; math.Abs(p/want-1) > 1e-14 {
		t.Errorf("narrow class: %v, want %v", p, want)
	}
	if p := o.LogProb(5, 0); math.Abs(p+601) > 1e-12 {
		t.Errorf("tail: %v, want −601", p)
	}
	want := math.Exp(-699) + 3*math.Exp(-700) // one class down, or two
	if mean, variance := o.Moments(1300); math.Abs(mean-5) > 1e-15 ||
		math.Abs(variance/want-1) > 1e-12 {
		t.Errorf("moments far up: %v, %v", mean, variance)
	}
	if e := o.ExpectLogProb(1, 20, 4); !(math.Abs(e.Err) < 1e-11) || math.Abs(e.D1+1) > 1e-6 ||
		e.D2 > 0 {
		t.Errorf("expectation of a narrow class: %v", e)
	}
}

func TestFamilyParams(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, l := range []Likelihood{
		Binomial{Trials: 2.5}, Binomial{Trials: 1e17}, Binomial{Trials: -3},
		NegativeBinomial{Shape: -1}, Gamma{Shape: inf},
		Ordinal{Cuts: []float64{1, 1}}, Ordinal{Cuts: []float64{2, 1, 3}},
		Ordinal{Cuts: []float64{nan}}, Ordinal{Cuts: []float64{0, inf}},
	} {
		if err := paramError(l); !errors.Is(err, ErrParam) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%#v: %v, want ErrParam", l, err)
		}
		r := l.(Responder)
		a, b := r.Moments(0.1)
		e := ExpectLogProb(l, 1, 0, 1)
		for i, x := range []float64{a, b, r.CDF(0.5, 0.1), l.LogProb(1, 0.1), e.Value, e.D1, e.D2,
			e.Err} {
			if !math.IsNaN(x) {
				t.Errorf("%#v: result %d is %v, want NaN", l, i, x)
			}
		}
		d1, d2 := l.(Differentiable).Derivs(1, 0.1)
		if !math.IsNaN(d1) || !math.IsNaN(d2) {
			t.Errorf("%#v: Derivs %v, %v, want NaN", l, d1, d2)
		}
	}
	err := paramError(Ordinal{Cuts: []float64{1, 0, inf}})
	if err == nil || !strings.Contains(err.Error(), "Ordinal.Cuts[1] is 0") ||
		!strings.Contains(err.Error(), "Ordinal.Cuts[2] is +Inf") {
		t.Errorf("both violations should be named: %v", err)
	}
}

func TestFamilyOverflow(t *testing.T) {
	inf := math.Inf(1)
	for _, l := range []Likelihood{Gamma{}, Gamma{Shape: 70}, Exponential{}} {
		for _, p := range [][2]float64{{-720, 0}, {0, 1500}, {1e308, math.MaxFloat64},
			{-1e308, 1e308}} {
			e := ExpectLogProb(l, 3, p[0], p[1])
			if p[0] != 1e308 && e != (Expectation{Value: -inf, D1: inf, D2: -inf, Err: 0}) {
				t.Errorf("%#v at %v: %v, want −Inf, +Inf, −Inf", l, p, e)
			}
		}
	}
	for _, l := range []Likelihood{
		NegativeBinomial{Shape: math.MaxFloat64}, NegativeBinomial{Shape: 5e-324},
		NegativeBinomial{Shape: 1e-300},
		Gamma{Shape: math.MaxFloat64}, Gamma{Shape: 5e-324}, Binomial{Trials: 1 << 53},
		Ordinal{Cuts: []float64{-math.MaxFloat64, -1, math.MaxFloat64}},
		Ordinal{Cuts: []float64{0, 5e-324}},
		NegativeBinomial{}, Exponential{}, Gamma{},
	} {
		for _, y := range []float64{0, 1, 2, 1e15, 1e305, math.MaxFloat64, 5e-324, 1e-300} {
			if labelError(l, y) != nil {
				continue
			}
			for _, m := range []float64{0, 3, -700, 700, 1e200, -1e200, math.MaxFloat64,
				-math.MaxFloat64} {
				d1, d2 := l.(Differentiable).Derivs(y, m)
				mean, variance := l.(Responder).Moments(m)
				p := l.(Responder).CDF(y, m)
				for i, x := range []float64{d1, d2, mean, variance, p, l.LogProb(y, m)} {
					if math.IsNaN(x) {
						t.Errorf("%#v y=%v η=%v: result %d is NaN", l, y, m, i)
					}
				}
				if p < 0 || p > 1 || d2 > 0 {
					t.Errorf("%#v y=%v η=%v: CDF %v, D2 %v", l, y, m, p, d2)
				}
				for _, v := range []float64{0, 1e-300, 2, 1e4, 1e200, math.MaxFloat64} {
					e := ExpectLogProb(l, y, m, v)
					if math.IsNaN(e.Value) || math.IsNaN(e.D1) || math.IsNaN(e.D2) ||
						math.IsNaN(e.Err) || e.D2 > 0 {
						t.Errorf("%#v y=%v m=%v v=%v: %v", l, y, m, v, e)
					}
				}
			}
		}
	}
}

// TestFamilyGP checks that a nil Solver converges without lowering the ELBO, and that predictions
// work.
func TestFamilyGP(t *testing.T) {
	t.Parallel()
	for _, l := range testkit.Few([]Likelihood{
		Binomial{Trials: 12}, NegativeBinomial{Shape: 2}, Gamma{Shape: 3}, Exponential{},
		Ordinal{Cuts: []float64{-2, -0.5, 0.5, 1.5}},
	}, 2) {
		t.Run(fmt.Sprintf("%T", l), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, 10))
			const n = 60
			x, y, f := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
			for i := range n {
				x.Set(i, 0, -3+6*float64(i)/(n-1))
				f[i] = 1.5 * math.Sin(1.7*x.At(i, 0))
				u := rng.Float64()
				q, err := kit.PredictedQuantile(l, u, f[i], 0) // inverse transform sampling
				if err != nil {
					t.Fatal(err)
				}
				y[i] = q
			}
			gp, err := NewGP(x, y, SquaredExp{Scale: 2, Length: 1}, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			post, res, err := gp.Fit(context.Background(), nil)
			if err != nil || res.Status != Converged {
				t.Fatalf("%v, %v", res, err)
			}
			prev := math.Inf(-1)
			for _, it := range res.Trace {
				if it.ELBO < prev-1e-13*math.Abs(prev) {
					t.Errorf("iteration %d: the ELBO fell from %v to %v", it.K, prev, it.ELBO)
				}
				prev = it.ELBO
			}
			lm, lv := post.At(x).Latent(nil, nil)
			out := 0
			for i := range lm {
				if math.Abs(lm[i]-f[i]) > 3*math.Sqrt(lv[i]) {
					out++
				}
			}
			if out > 3 {
				t.Errorf("%d of %d true values are outside three standard deviations", out, n)
			}
			mean, variance, err := post.At(x).Moments(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			lo, err := post.At(x).Quantile(nil, 0.05)
			if err != nil {
				t.Fatal(err)
			}
			hi, err := post.At(x).Quantile(nil, 0.95)
			if err != nil {
				t.Fatal(err)
			}
			logp := post.At(x).LogProb(nil, y)
			out = 0
			for i := range mean {
				if !(variance[i] > 0) || !(lo[i] <= hi[i]) || !(logp[i] <= 5) {
					t.Errorf("row %d: mean %v, variance %v, quantiles %v, %v, log p %v", i, mean[i],
						variance[i], lo[i], hi[i], logp[i])
				}
				if y[i] < lo[i] || y[i] > hi[i] {
					out++
				}
			}
			if out > 12 {
				t.Errorf("%d of %d responses are outside the 90%% interval", out, n)
			}
			// A wrong label is refused, with its index.
			y[7] = -2
			if _, err := NewGP(x, y, SquaredExp{}, l, nil); !errors.Is(err, ErrLabel) ||
				!strings.Contains(err.Error(), "7") {
				t.Errorf("label −2: %v, want ErrLabel at 7", err)
			}
			t.Logf("%v after %v passes", res.Status, res.Passes)
		})
	}
}

// TestSurvival checks the responses of durations and the errors that name a row.
func TestSurvival(t *testing.T) {
	y, err := Survival([]float64{2, 3, 0.5}, []float64{1, 0, 1})
	if err != nil || !slices.Equal(y, []float64{2, -3, 0.5}) {
		t.Errorf("%v, %v", y, err)
	}
	for _, c := range []struct {
		time, event []float64
		want        error
		text        string
	}{
		{[]float64{1}, nil, ErrShape, "1 times but 0 events"},
		{[]float64{1, 2}, []float64{1, 2}, ErrLabel, "row 1: the event is 2"},
		{[]float64{1, 2}, []float64{1, math.NaN()}, ErrLabel, "row 1: the event is NaN"},
		{[]float64{0, 2}, []float64{1, 0}, ErrLabel, "row 0: the time is 0"},
		{[]float64{1, math.Inf(1)}, []float64{1, 0}, ErrLabel, "row 1: the time is +Inf"},
	} {
		if _, err := Survival(c.time, c.event); !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, %v: %v, want %q", c.time, c.event, err, c.text)
		}
	}
}

// TestSuccesses checks the responses of trials, and the errors that name a row.
func TestSuccesses(t *testing.T) {
	k, n := []float64{0, 3, 7, 1 << 20}, []float64{1, 12, 7, 1 << 20}
	y, err := Successes(k, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range y {
		a := math.Floor(y[i])
		if b := (y[i] - a) * (1 << 27); a != k[i] || b != n[i] {
			t.Errorf("%v of %v: %v of %v", k[i], n[i], a, b)
		}
		if err := labelError(BetaBinomial{}, y[i]); err != nil {
			t.Error(err)
		}
		want := BetaBinomial{Trials: n[i], Precision: 3}.LogProb(k[i], 0.4)
		if got := (BetaBinomial{Precision: 3}).LogProb(y[i], 0.4); got != want {
			t.Errorf("%v of %v: %v, want %v", k[i], n[i], got, want)
		}
	}
	for _, c := range []struct {
		k, n []float64
		want error
		text string
	}{
		{[]float64{1}, nil, ErrShape, "1 numbers of successes but 0 of trials"},
		{[]float64{1, 3}, []float64{1, 2}, ErrLabel, "row 1: 3 successes in 2 trials"},
		{[]float64{1, 0.5}, []float64{1, 2}, ErrLabel, "row 1: 0.5 successes"},
		{[]float64{0}, []float64{0}, ErrLabel, "row 0: 0 trials"},
		{[]float64{1}, []float64{1<<20 + 1}, ErrLabel, "row 0: 1.048577e+06 trials"},
	} {
		if _, err := Successes(c.k, c.n); !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, %v: %v, want %q", c.k, c.n, err, c.text)
		}
	}
}

// TestOutcomeRelations checks special cases and limits: Exponential, GaussianNoise, Binomial and
// Poisson.
func TestOutcomeRelations(t *testing.T) {
	near := func(what string, a, b Expectation, shift, tol float64) {
		t.Helper()
		for i, p := range [3][2]float64{{a.Value, b.Value + shift}, {a.D1, b.D1}, {a.D2, b.D2}} {
			if !(math.Abs(p[0]-p[1]) <= tol*(1+math.Abs(p[1]))) {
				t.Errorf("%s: derivative %d: %.17g, want %.17g", what, i, p[0], p[1])
			}
		}
	}
	for _, m := range []float64{-6, -0.5, 0.7, 4} {
		for _, v := range []float64{0, 1e-3, 0.6, 5} {
			at := func(l Likelihood, y float64) Expectation { return ExpectLogProb(l, y, m, v) }
			near("Weibull of shape 1", at(Weibull{}, 2.3), at(Exponential{}, 2.3), 0, 1e-14)
			near("log-normal", at(LogNormal{Scale: 0.7}, 2.3),
				at(GaussianNoise{Var: 0.49}, math.Log(2.3)), -math.Log(2.3), 1e-14)
			near("a row of weight 0", at(Hurdle{Zero: 0.3}, 0), Expectation{}, math.Log(0.3), 0)
			if m < 1 && v < 0.1 {
				near("few zeros", at(ZeroInflated{Zero: 1e-12}, 0), at(Poisson{}, 0), 0, 1e-7)
			}
			near("more counts", at(ZeroInflated{Zero: 0.3, Shape: 2}, 4),
				at(NegativeBinomial{Shape: 2}, 4), math.Log(0.7), 1e-14)
			near("one trial", at(BetaBinomial{Precision: 0.3}, 1), at(Binomial{}, 1), 0, 1e-11)
			if math.Abs(m) < 1 && v < 1 {
				near("trials without more variance", at(BetaBinomial{Trials: 9, Precision: 1e9}, 4),
					at(Binomial{Trials: 9}, 4), 0, 1e-6)
			}
			if v < 3 && m < 3 {
				near("truncated Poisson", at(Hurdle{Shape: 1e11}, 3), at(Hurdle{}, 3), 0, 1e-7)
			}
		}
	}
	// The uniform distribution.
	for _, y := range []float64{1e-9, 0.3, 0.999} {
		if l := (Beta{}).LogProb(y, 0); math.Abs(l) > 1e-13 {
			t.Errorf("uniform: log p(%v) = %v", y, l)
		}
	}
}

// TestOutcomeMoments compares moments and CDF with sums and differences of the probabilities.
func TestOutcomeMoments(t *testing.T) {
	for _, l := range []Likelihood{
		ZeroInflated{}, ZeroInflated{Zero: 0.2, Shape: 0.7}, Hurdle{},
		Hurdle{Zero: 0.2, Shape: 0.7}, Hurdle{Zero: 0.9, Shape: 9},
		BetaBinomial{Trials: 30}, BetaBinomial{Trials: 30, Precision: 40},
		BetaBinomial{Trials: 7, Precision: 0.2},
	} {
		r := l.(Responder)
		for _, eta := range []float64{-9, -2, 0.3, 2} {
			var total, mean, square float64
			for y := 0.0; y < 3000 && labelError(l, y) == nil; y++ {
				p := math.Exp(l.LogProb(y, eta))
				total, mean, square = total+p, mean+p*y, square+p*y*y
				if c := r.CDF(y, eta); !(math.Abs(c-total) < 1e-11) {
					t.Errorf("%#v at %v: P(Y ≤ %v) = %v, sum %v", l, eta, y, c, total)
					break
				}
			}
			m, v := r.Moments(eta)
			if !(math.Abs(total-1) < 1e-11 && math.Abs(m-mean) < 1e-9*(1+mean) &&
				math.Abs(v-(square-mean*mean)) < 1e-8*(1+square)) {
				t.Errorf("%#v at %v: total %v, moments %v, %v, sums %v, %v", l, eta, total, m, v,
					mean, square-mean*mean)
			}
		}
	}
	for _, l := range []Likelihood{Weibull{Shape: 0.7}, Weibull{Shape: 3}, Weibull{Shape: 70},
		LogNormal{Scale: 0.4}, Beta{}, Beta{Precision: 30}} {
		r := l.(Responder)
		for _, eta := range []float64{-1, 0.4} {
			mean, variance := r.Moments(eta)
			numeric := predict.NewNumeric(l,
				predict.Support{Kind: predict.Kind(kit.FactsOf(l).Support)})
			m, v := numeric.Moments(eta)
			if !(math.Abs(m-mean) < 1e-8*mean && math.Abs(v-variance) < 1e-7*variance) {
				t.Errorf("%#v at %v: moments %v, %v, by integrals %v, %v", l, eta, mean, variance,
					m, v)
			}
			for _, y := range []float64{0.2, 0.5, 0.8} {
				if a, b := r.CDF(y, eta), numeric.CDF(y, eta); !(math.Abs(a-b) < 1e-9) {
					t.Errorf("%#v at %v: P(Y ≤ %v) = %v, by an integral %v", l, eta, y, a, b)
				}
				if kit.FactsOf(l).Censored {
					if p := math.Exp(l.LogProb(-y, eta)); math.Abs(p+r.CDF(y, eta)-1) > 1e-14 {
						t.Errorf("%#v at %v: P(Y > %v) = %v", l, eta, y, p)
					}
				}
			}
		}
	}
}
