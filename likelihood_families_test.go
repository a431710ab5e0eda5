package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// Values by arithmetic with 50 digits or more.
func TestLogChoose(t *testing.T) {
	for _, c := range []struct{ a, b, want float64 }{
		{0, 1e300, 0},
		{1, 1, 0.69314718055994530942},
		{3, 7.5, 4.9509737500381886077},
		{15, 15.5, 19.194171968901068137},
		{15.5, 17, 20.519597537772349998},
		{2, 1e6, 26.937876935366102902},
		{0.25, 40, 1.0243736631336220934},
		{16, 16, 20.214239243953691571},
		{500, 500, 689.46726156785118008},
		{1e6, 3e6, 2249332.8956223671625},
		{7, 1e15, 233.24627340330941052},
		{1e9, 4e15, 16201805032.80358298},
		{1e-8, 1e5, 1.2090146121638807906e-7},
		{1e-12, 3, 1.8333333333326527409e-12},
	} {
		for _, got := range []float64{special.LogChoose(c.a, c.b), special.LogChoose(c.b, c.a)} {
			if e := math.Abs(got - c.want); e > 4*special.Eps*(c.want+40) {
				t.Errorf("log C(%v+%v, %v) = %.17g, want %.17g", c.a, c.b, c.a, got, c.want)
			}
		}
	}
	for _, c := range []struct{ y, r, want float64 }{
		{1, 1e-20, -46.051701859880913735},
		{5, 0.3, -2.2436536685334356935},
		{200, 1e-6, -19.113822051482182666},
		{3, 1e12, 81.101303878560589624},
		{1000, 25, 111.29897686377444598},
		{1e15, 2.5, 51.523481721893110606},
		{40, 1e300, 27520.700476213790815},
		{1e300, 1e-3, -696.9919312556993452},
	} {
		if got, err := (NegativeBinomial{}).logCoefficient(c.y, c.r); !(math.Abs(got-c.want) <= err) || err > 1e-12*(1+math.Abs(c.want)) {
			t.Errorf("coefficient at y = %v, r = %v: %.17g ± %.1g, want %.17g", c.y, c.r, got, err, c.want)
		}
	}
}

// TestFamilyDigits: E[log p] by quadrature with 30 digits.
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
		t.Logf("%#v: off by %.2g (relative %.2g), Err = %.2g", c.l, off, off/math.Abs(c.want), e.Err)
		if !(off <= e.Err) {
			t.Errorf("%#v y=%v m=%v sd=%v: %.17g ± %.2g, want %.17g", c.l, c.y, c.m, c.s, e.Value, e.Err, c.want)
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
		n = shorter(150, 50)
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
			d  float64 // and how wide it may be
		}{
			{Binomial{Trials: trials}, math.Floor((trials + 1) * rng.Float64()), 0, 1},
			{NegativeBinomial{Shape: shape}, math.Floor(math.Exp(6*rng.Float64()) - 1), math.Log(shape), 1},
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
			d1 := o.mean(func(x float64) float64 { d, _ := der.Derivs(c.y, x); return d }, m, s, c.at, c.d, reach)
			d2 := o.mean(func(x float64) float64 { _, d := der.Derivs(c.y, x); return d }, m, s, c.at, c.d, reach)
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

// TestFamilyRelations: special cases and limits.
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
					mean, variance, err := predictiveMoments(l, m, v)
					bm, bv, _ := predictiveMoments(BernoulliLogit{}, m, v)
					if err != nil || math.Abs(mean-(1+bm)/2) > 1e-14 || math.Abs(variance-bv/4) > 1e-13*bv {
						t.Errorf("%T: moments %v, %v, want %v, %v", l, mean, variance, (1+bm)/2, bv/4)
					}
				}
			}
			if v > 10 {
				continue
			}
			near("gamma of shape one", ExpectLogProb(Gamma{}, 2.3, m, v), ExpectLogProb(Exponential{}, 2.3, m, v), 0, 2e-14)
			if m+v < 10 {
				near("Poisson limit", ExpectLogProb(NegativeBinomial{Shape: 1e14}, 6, m, v), ExpectLogProb(Poisson{}, 6, m, v), 0, 1e-7)
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
		if a, b, n := r.CDF(-1, c.eta), r.CDF(math.Inf(1), c.eta), r.CDF(math.NaN(), c.eta); a != 0 || b != 1 || !math.IsNaN(n) {
			t.Errorf("%#v: CDF %v, %v, %v at −1, ∞, NaN", c.l, a, b, n)
		}
	}
}

// TestOrdinalNarrow: classes of width 1e−9, tails at 600, and probabilities that add up.
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
	if mean, variance := o.Moments(1300); math.Abs(mean-5) > 1e-15 || math.Abs(variance/want-1) > 1e-12 {
		t.Errorf("moments far up: %v, %v", mean, variance)
	}
	if e := o.ExpectLogProb(1, 20, 4); !(math.Abs(e.Err) < 1e-11) || math.Abs(e.D1+1) > 1e-6 || e.D2 > 0 {
		t.Errorf("expectation of a narrow class: %v", e)
	}
}

func TestFamilyParams(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, l := range []Likelihood{
		Binomial{2.5}, Binomial{1e17}, Binomial{-3}, NegativeBinomial{-1}, Gamma{inf},
		Ordinal{[]float64{1, 1}}, Ordinal{[]float64{2, 1, 3}}, Ordinal{[]float64{nan}}, Ordinal{[]float64{0, inf}},
	} {
		if err := checkLikelihood(l); !errors.Is(err, ErrParam) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%#v: %v, want ErrParam", l, err)
		}
		r := l.(Responder)
		a, b := r.Moments(0.1)
		e := ExpectLogProb(l, 1, 0, 1)
		for i, x := range []float64{a, b, r.CDF(0.5, 0.1), l.LogProb(1, 0.1), e.Value, e.D1, e.D2, e.Err} {
			if !math.IsNaN(x) {
				t.Errorf("%#v: result %d is %v, want NaN", l, i, x)
			}
		}
		d1, d2 := l.(Differentiable).Derivs(1, 0.1)
		if !math.IsNaN(d1) || !math.IsNaN(d2) {
			t.Errorf("%#v: Derivs %v, %v, want NaN", l, d1, d2)
		}
	}
	err := checkLikelihood(Ordinal{[]float64{1, 0, inf}})
	if err == nil || !strings.Contains(err.Error(), "Ordinal.Cuts[1] is 0") || !strings.Contains(err.Error(), "Ordinal.Cuts[2] is +Inf") {
		t.Errorf("both violations should be named: %v", err)
	}
}

func TestFamilyOverflow(t *testing.T) {
	inf := math.Inf(1)
	for _, l := range []Likelihood{Gamma{}, Gamma{Shape: 70}, Exponential{}} {
		for _, p := range [][2]float64{{-720, 0}, {0, 1500}, {1e308, math.MaxFloat64}, {-1e308, 1e308}} {
			e := ExpectLogProb(l, 3, p[0], p[1])
			if p[0] != 1e308 && e != (Expectation{-inf, inf, -inf, 0}) {
				t.Errorf("%#v at %v: %v, want −Inf, +Inf, −Inf", l, p, e)
			}
		}
	}
	for _, l := range []Likelihood{
		NegativeBinomial{Shape: math.MaxFloat64}, NegativeBinomial{Shape: 5e-324}, NegativeBinomial{Shape: 1e-300},
		Gamma{Shape: math.MaxFloat64}, Gamma{Shape: 5e-324}, Binomial{Trials: 1 << 53},
		Ordinal{Cuts: []float64{-math.MaxFloat64, -1, math.MaxFloat64}}, Ordinal{Cuts: []float64{0, 5e-324}},
		NegativeBinomial{}, Exponential{}, Gamma{},
	} {
		for _, y := range []float64{0, 1, 2, 1e15, 1e305, math.MaxFloat64, 5e-324, 1e-300} {
			if checkLabel(l, y) != nil {
				continue
			}
			for _, m := range []float64{0, 3, -700, 700, 1e200, -1e200, math.MaxFloat64, -math.MaxFloat64} {
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
					if math.IsNaN(e.Value) || math.IsNaN(e.D1) || math.IsNaN(e.D2) || math.IsNaN(e.Err) || e.D2 > 0 {
						t.Errorf("%#v y=%v m=%v v=%v: %v", l, y, m, v, e)
					}
				}
			}
		}
	}
}

// TestFamilyGP: the Solver without options converges without lowering the ELBO,
// and the predictions work.
func TestFamilyGP(t *testing.T) {
	t.Parallel()
	for _, l := range few([]Likelihood{
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
				q, err := predictiveQuantile(l, u, f[i], 0) // inverse transform sampling
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
					t.Errorf("row %d: mean %v, variance %v, quantiles %v, %v, log p %v", i, mean[i], variance[i], lo[i], hi[i], logp[i])
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
			if _, err := NewGP(x, y, SquaredExp{}, l, nil); !errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), "7") {
				t.Errorf("label −2: %v, want ErrLabel at 7", err)
			}
			t.Logf("%v after %v passes", res.Status, res.Passes)
		})
	}
}

func BenchmarkFamilies(b *testing.B) {
	for _, l := range []Likelihood{
		Binomial{Trials: 12}, NegativeBinomial{Shape: 2}, Gamma{Shape: 3}, Exponential{},
		Ordinal{Cuts: []float64{-2, -0.5, 0.5, 1.5}},
	} {
		for _, s := range []float64{0.3, 2} {
			b.Run(fmt.Sprintf("%T/sd=%v", l, s), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ExpectLogProb(l, 2, 0.4, s*s)
				}
			})
		}
	}
}

func ExampleOrdinal() {
	// Answers on a scale from 0 to 4, at a latent value η ~ N(0.3, 0.25).
	l := Ordinal{Cuts: []float64{-2, -0.5, 0.5, 2}}
	p := NewPrediction(l, []float64{0.3}, []float64{0.25})
	for y, prob := range p.Probs().RawRowView(0) {
		fmt.Printf("P(Y = %d) = %.4f\n", y, prob)
	}
	mean, variance, err := p.Moments(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	median, err := p.Quantile(nil, 0.5)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("mean %.3f, variance %.3f, median %.0f\n", mean[0], variance[0], median[0])
	// Output:
	// P(Y = 0) = 0.0996
	// P(Y = 1) = 0.2197
	// P(Y = 2) = 0.2278
	// P(Y = 3) = 0.2876
	// P(Y = 4) = 0.1653
	// mean 2.199, variance 1.527, median 2
}

func ExampleNegativeBinomial() {
	// The same mean, e^1, for Poisson counts and for overdispersed ones.
	l := NegativeBinomial{Shape: 2}
	mean, variance := l.Moments(1)
	fmt.Printf("%.4f %.4f\n", mean, variance)
	e := ExpectLogProb(l, 3, 1, 0.5)
	fmt.Printf("%.6f %.6f %.6f\n", e.Value, e.D1, e.D2)
	// Output:
	// 2.7183 6.4128
	// -2.274316 0.157368 -1.103653
}
