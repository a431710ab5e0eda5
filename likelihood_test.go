package pgsvi

import (
	"context"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// TestLogChoose compares with values from arithmetic with at least 50 digits.
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
		if got, err := (NegativeBinomial{}).logCoefficient(c.y,
			c.r); !(math.Abs(got-c.want) <= err) || err > 1e-12*(1+math.Abs(c.want)) {
			t.Errorf("coefficient at y = %v, r = %v: %.17g ± %.1g, want %.17g", c.y, c.r, got, err,
				c.want)
		}
	}
}

// TestExpectEach checks that expectations computed together have the same bits as single
// expectations, including invalid ones.
func TestExpectEach(t *testing.T) {
	t.Parallel()
	counts := func(rng *rand.Rand,
		_ float64) float64 {
		return math.Floor(math.Pow(10, 4*rng.Float64()) - 1)
	}
	times := func(rng *rand.Rand,
		_ float64) float64 {
		return rng.ExpFloat64() * math.Pow(10, 6*rng.Float64()-3)
	}
	for _, c := range []struct {
		lik      Likelihood
		response func(rng *rand.Rand, sign float64) float64
	}{
		{BernoulliLogit{}, func(_ *rand.Rand, sign float64) float64 { return sign }},
		{GaussianNoise{}, times},
		{GaussianNoise{Var: 0.03}, times},
		{Poisson{}, counts},
		{Poisson{Exposure: 3}, counts},
		{Poisson{Exposure: -1}, counts},
		{NegativeBinomial{}, counts},
		{NegativeBinomial{Shape: 0.3}, counts},
		{NegativeBinomial{Shape: 1e8}, counts},
		{Binomial{}, func(rng *rand.Rand, _ float64) float64 { return float64(rng.IntN(2)) }},
		{Binomial{Trials: 300},
			func(rng *rand.Rand, _ float64) float64 { return float64(rng.IntN(301)) }},
		{Gamma{}, times},
		{Gamma{Shape: 50}, times},
		{Gamma{Shape: math.NaN()}, times},
		{Exponential{}, times},
	} {
		rng := rand.New(rand.NewPCG(11, 12))
		for _, n := range []int{0, 1, 3, 127, 128, 129, 1000} {
			y, m, v := testkit.SignRows(rng, n)
			for i, sign := range y {
				if y[i] = c.response(rng, sign); rng.IntN(20) == 0 {
					y[i] = -0.5
				}
			}
			many := fastOf(c.lik).many
			bound := make([]float64, n)
			value, d1, d2 := slices.Clone(y), slices.Clone(m), slices.Clone(v)
			if many.Own != nil {
				for i, y := range y {
					bound[i] = many.Own(y)
				}
			}
			many.Expect(value, d1, d2, bound)
			for i := range y {
				want := ExpectLogProb(c.lik, y[i], m[i], v[i])
				for k, x := range [...][2]float64{{value[i], want.Value}, {d1[i], want.D1},
					{d2[i], want.D2}, {bound[i], want.Err}} {
					if math.Float64bits(x[0]) != math.Float64bits(x[1]) &&
						!(x[0] != x[0] && x[1] != x[1]) {
						t.Fatalf("%T%+v, y = %v, m = %v, v = %v: number %d is %v, want %v", c.lik,
							c.lik, y[i], m[i], v[i], k, x[0], x[1])
					}
				}
			}
		}
	}
	// A type that embeds the likelihood may have another meaning.
	type other struct{ BernoulliLogit }
	if viewOf(other{}).Each() != nil || viewOf(&BernoulliLogit{}).Each() != nil {
		t.Error("expectations of another type are taken together")
	}
}

// derived embeds a Poisson and has the meaning of NegativeBinomial{Shape: 1}.
type derived struct{ Poisson }

func (derived) base() NegativeBinomial                 { return NegativeBinomial{Shape: 1} }
func (d derived) LogProb(y, eta float64) float64       { return d.base().LogProb(y, eta) }
func (d derived) Derivs(y, eta float64) (a, b float64) { return d.base().Derivs(y, eta) }
func (d derived) Moments(eta float64) (m, v float64)   { return d.base().Moments(eta) }
func (d derived) CDF(y, eta float64) float64           { return d.base().CDF(y, eta) }
func (d derived) ExpectLogProb(y, m, v float64) Expectation {
	return d.base().ExpectLogProb(y, m, v)
}

// TestEmbedded checks that a custom type that embeds a likelihood of this package and replaces its
// methods is predicted by its own methods, and not by the closed forms of that likelihood.
func TestEmbedded(t *testing.T) {
	const m, v = 1, 0.5
	d, base := derived{}, derived{}.base()
	logp, _ := predictiveLogProb(d, 3, m, v)
	want, _ := predictiveLogProb(base, 3, m, v)
	testkit.CheckNear(t, "log p(y)", logp, want, 1e-9)
	mean, variance, err := predictiveMoments(d, m, v)
	wantMean, wantVariance, _ := predictiveMoments(base, m, v)
	testkit.CheckNear(t, "E[y]", mean, wantMean, 1e-9*wantMean)
	testkit.CheckNear(t, "Var[y]", variance, wantVariance, 1e-9*wantVariance)
	for _, p := range []float64{0.05, 0.5, 0.9, 0.999} {
		q, e := predictiveQuantile(d, p, m, v)
		if wantQ, _ := predictiveQuantile(base, p, m, v); q != wantQ || e != nil || err != nil {
			t.Errorf("the %v-quantile is %v, want %v (%v, %v)", p, q, wantQ, e, err)
		}
	}
	if viewOf(d).Rated() != nil || viewOf(d).Each() != nil || viewOf(Poisson{}).Rated() == nil {
		t.Error("a type that embeds Poisson has its rate, or Poisson has none")
	}
}

// TestLogProbs compares log probabilities that are computed together with LogProb, for every
// likelihood with one latent value and linear predictors of any size.
func TestLogProbs(t *testing.T) {
	t.Parallel()
	signs, counts := []float64{-1, 1}, []float64{0, 1, 2, 7, 60, 5000, 1e9}
	reals := []float64{0, 1, -1, 0.3, -700, 1e5, 1e100}
	times := []float64{1, 0.2, 3e-7, 40, 1e6, 1e-300, 1e100}
	censored := append([]float64{-1, -0.2, -3e5, -1e-300}, times...)
	parts := []float64{0.5, 0.1, 1e-9, 0.999999, 1e-300}
	paired, err := Successes([]float64{0, 1, 3, 500, 40}, []float64{1, 1, 7, 1000, 40})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		y    []float64
		liks []Likelihood
	}{
		{signs, []Likelihood{BernoulliLogit{}, BernoulliProbit{}}},
		{reals, []Likelihood{GaussianNoise{}, GaussianNoise{Var: 1e-6}, StudentT{},
			StudentT{DF: 0.3, Scale: 10}, StudentT{DF: 1e6}, Laplace{}, Laplace{Scale: 0.01}}},
		{counts, []Likelihood{Poisson{}, Poisson{Exposure: 30}, NegativeBinomial{},
			NegativeBinomial{Shape: 0.01}, NegativeBinomial{Shape: 1e8}, ZeroInflated{},
			ZeroInflated{Zero: 1e-9}, ZeroInflated{Zero: 0.99, Shape: 2}, Hurdle{},
			Hurdle{Zero: 0.01, Shape: 0.1}, Hurdle{Shape: 1e5}}},
		{counts[:3], []Likelihood{Ordinal{Cuts: []float64{-1, 0.5}},
			Ordinal{Cuts: []float64{-700, 1e5}}, Binomial{Trials: 2}}},
		{counts[:5], []Likelihood{Binomial{Trials: 60}, Binomial{Trials: 1e9},
			BetaBinomial{Trials: 60}, BetaBinomial{Trials: 5000, Precision: 1e4}}},
		{paired, []Likelihood{BetaBinomial{}, BetaBinomial{Precision: 0.01}}},
		{parts, []Likelihood{Beta{}, Beta{Precision: 0.01}, Beta{Precision: 9}, Beta{Precision: 500},
			Beta{Precision: 1e3}, Beta{Precision: 1e6}}},
		{times, []Likelihood{Gamma{}, Gamma{Shape: 0.05}, Gamma{Shape: 1e4}, Exponential{}}},
		{append([]float64{0}, times...), []Likelihood{Exponential{}}},
		{censored, []Likelihood{Weibull{}, Weibull{Shape: 0.2}, Weibull{Shape: 9}, LogNormal{},
			LogNormal{Scale: 0.05}}},
	} {
		for _, lik := range c.liks {
			checkLogProbs(t, lik, c.y)
		}
	}
	// A type that embeds the likelihood may have another meaning.
	type other struct{ BernoulliLogit }
	if viewOf(other{}).LogProbs(signs) != nil || viewOf(&BernoulliLogit{}).LogProbs(signs) != nil {
		t.Error("log-probabilities of another type are taken together")
	}
	if viewOf(Poisson{}).LogProbs([]float64{1, -2}) != nil {
		t.Error("a response outside the support is taken together")
	}
}

// TestNarrowLogProb compares predictive log probabilities from a few nodes with adaptive
// quadrature.
func TestNarrowLogProb(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lik Likelihood
		y   []float64
	}{
		{Poisson{}, []float64{0, 3, 200}}, {NegativeBinomial{Shape: 0.5}, []float64{0, 3, 200}},
		{Binomial{Trials: 20}, []float64{0, 7, 20}}, {Gamma{Shape: 3}, []float64{0.01, 1, 40}},
		{Exponential{}, []float64{0, 1, 40}}, {Weibull{Shape: 2}, []float64{0.1, -3, 9}},
		{StudentT{Scale: 0.1}, []float64{0, 0.5, 30}}, {Ordinal{}, []float64{0, 1}},
		{ZeroInflated{}, []float64{0, 5}}, {Hurdle{Shape: 2}, []float64{0, 1, 9}},
		{Beta{Precision: 20}, []float64{0.01, 0.5}}, {BetaBinomial{Trials: 9}, []float64{0, 4}},
	} {
		known := 0
		for _, y := range c.y {
			for _, m := range []float64{-3, 0, 1.7} {
				for _, s := range []float64{1e-4, 0.01, 0.1, 0.4} {
					want, bound := predictiveLogProb(c.lik, y, m, s*s)
					got, ok := narrowLogProb(c.lik, y, m, s*s)
					if !ok {
						continue
					}
					known++
					if !(math.Abs(got-want) <= bound+1e-11*(1+math.Abs(want))) {
						t.Errorf("%T%+v, y = %v under N(%v, %v²): %v, want %v", c.lik, c.lik, y, m, s,
							got, want)
					}
				}
			}
		}
		if known < 6*len(c.y) {
			t.Errorf("%T%+v: %d values of %d", c.lik, c.lik, known, 12*len(c.y))
		}
	}
	if _, ok := narrowLogProb(StudentT{Scale: 1e-3}, 0, 0.1, 0.04); ok {
		t.Error("few nodes resolve a narrow peak")
	}
}

// TestSmoothLogProb is TestNarrowLogProb for wide Gaussians and narrow peaks.
func TestSmoothLogProb(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lik Likelihood
		y   []float64
	}{
		{Poisson{}, []float64{0, 3, 200, 1e6}}, {NegativeBinomial{Shape: 0.5}, []float64{0, 3, 200}},
		{NegativeBinomial{Shape: 1e6}, []float64{0, 3, 1e5}}, {Binomial{Trials: 20}, []float64{0, 7, 20}},
		{Gamma{Shape: 3}, []float64{0.01, 1, 40}}, {Gamma{Shape: 1e4}, []float64{0.01, 1}},
		{Exponential{}, []float64{0, 1, 40}}, {Weibull{Shape: 2}, []float64{0.1, -3, 9}},
		{LogNormal{Scale: 0.3}, []float64{0.1, -3}}, {Ordinal{}, []float64{0, 1}},
		{ZeroInflated{}, []float64{0, 5}}, {Hurdle{Shape: 2}, []float64{0, 1, 9}},
		{Beta{Precision: 20}, []float64{0.01, 0.5}}, {BetaBinomial{Trials: 9}, []float64{0, 4}},
	} {
		known := 0
		for _, y := range c.y {
			for _, m := range []float64{-3, 0, 1.7, 14} {
				for _, s := range []float64{0.1, 0.45, 0.9, 2, 5} {
					want, bound := predictiveLogProb(c.lik, y, m, s*s)
					got, ok := smoothLogProb(c.lik, y, m, s*s)
					if !ok {
						continue
					}
					known++
					if !(math.Abs(got-want) <= bound+1e-11*(1+math.Abs(want))) {
						t.Errorf("%T%+v, y = %v under N(%v, %v²): %v, want %v ± %v", c.lik, c.lik, y, m,
							s, got, want, bound)
					}
				}
			}
		}
		if !reflect.DeepEqual(c.lik, Gamma{Shape: 1e4}) && known < 9*len(c.y) {
			t.Errorf("%T%+v: %d values of %d", c.lik, c.lik, known, 20*len(c.y))
		}
	}
	if _, ok := smoothLogProb(StudentT{DF: 2, Scale: 1e-3}, 8, 0, 0.81); ok {
		t.Error("equally spaced nodes find a narrow peak in the tail")
	}
}

// TestPoissonBig compares log p of large counts with 200 bits of precision, near the peak and far
// from it, and checks that a few nodes integrate log p over the η of a group. Otherwise LOO of
// large counts takes fifty times as long.
func TestPoissonBig(t *testing.T) {
	t.Parallel()
	const prec = 200
	num := func(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }
	// exact returns y log r − r − log y! with r = e^η. Stirling's series has an error below 1e−20.
	exact := func(y, eta float64) float64 {
		series, z := num(0), num(1)
		for _, c := range []float64{12, -360, 1260, -1680, 1188, -360360. / 691} {
			term := new(big.Float).Quo(num(1), z)
			series.Add(series, term.Quo(term, num(c)).Quo(term, num(y)))
			z.Mul(z, num(y*y))
		}
		// With η = log y + t, log p = yt − ye^t + y − ½log 2πy − series.
		logY := math.Log(y)
		t := num(eta)
		t.Sub(t, num(logY))
		// log y − logY, by one step of Newton in e^{logY}
		t.Sub(t, num((y-math.Exp(logY))/y))
		x, _ := t.Float64()
		rest, power := num(0), num(1)
		for k := 1; k <= 60; k++ { // e^t − 1 − t
			power.Mul(power, t).Quo(power, num(float64(k)))
			if k > 1 {
				rest.Add(rest, power)
			}
		}
		if math.Abs(x) > 3 {
			panic("the series of exp needs a smaller argument")
		}
		rest.Mul(rest, num(-y)).Sub(rest, series).Sub(rest, num(0.5*math.Log(2*math.Pi*y)))
		p, _ := rest.Float64()
		return p
	}
	for _, y := range []float64{128, 131, 999, 1024, 5000, 188_229, 2e9} {
		for _, u := range []float64{-3, -0.1, 0, 0.02, 1, 6} { // sds from the peak
			eta := math.Log(y) + u/math.Sqrt(y)
			want := exact(y, eta)
			// η itself is rounded, so log p may move by its slope.
			tol := 1e-13*(1+math.Abs(want)) + math.Abs(u)*math.Sqrt(y)*4e-16*eta
			for _, c := range []float64{1, 7} {
				got := Poisson{Exposure: c}.LogProb(y, eta-math.Log(c))
				if !(math.Abs(got-want) <= tol) {
					t.Errorf("y = %v, exposure %v, u = %v: %v, want %v", y, c, u, got, want)
				}
			}
		}
		if _, ok := narrowLogProb(Poisson{}, y, math.Log(y)+1/math.Sqrt(y), 0.05/y); !ok && y < 1e6 {
			t.Errorf("y = %v: a few nodes do not suffice", y)
		}
	}
	for _, eta := range []float64{-800, 800, math.Inf(-1), math.Inf(1)} {
		if p := (Poisson{}).LogProb(3000, eta); !(p < -1e5) {
			t.Errorf("η = %v: log p is %v", eta, p)
		}
	}
	if p := (Poisson{}).LogProb(3000.5, 8); !math.IsInf(p, -1) {
		t.Errorf("log p of half a count is %v", p)
	}
}

// checkLogProbs checks the responses y under lik in blocks of many sizes.
func checkLogProbs(t *testing.T, lik Likelihood, y []float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(21, 22))
	var rows, eta []float64
	for _, yn := range y {
		for _, x := range []float64{0, 1e-300, 1e-17, 1e-9, 0.3, 1, 5, 36, 40, 700, 709.9, 745.2,
			1e4, 1e9, 1e100, 1e300, math.MaxFloat64} {
			eta = append(eta, x, -x)
		}
		for k := range 60 {
			eta = append(eta, rng.NormFloat64()*math.Pow(10, float64(k%4-1)))
		}
		for len(rows) < len(eta) {
			rows = append(rows, yn)
		}
	}
	rng.Shuffle(len(eta), func(i, j int) {
		rows[i], rows[j], eta[i], eta[j] = rows[j], rows[i], eta[j], eta[i]
	})
	each := viewOf(lik).LogProbs(rows)
	if each == nil {
		t.Errorf("%T%+v has no log-probabilities together", lik, lik)
		return
	}
	got := slices.Clone(eta)
	for lo, n := 0, 1; lo < len(got); lo, n = lo+n, n%logprob.Block+1 {
		each(got[lo:min(lo+n, len(got))], lo)
	}
	sum := viewOf(lik).LogProbSum(rows)
	for lo := 0; sum != nil && lo < len(eta); lo += logprob.Block {
		hi := min(len(eta), lo+logprob.Block)
		mild, want := slices.Clone(eta[lo:hi]), 0.0
		for i, x := range mild {
			mild[i] = math.Mod(x, 50)
			want += lik.LogProb(rows[lo+i], mild[i])
		}
		got := sum(mild, lo)
		if extreme := sum(slices.Clone(eta[lo:hi]), lo); math.IsNaN(extreme) || extreme > 0 {
			t.Errorf("%T%+v: the sum of rows %d to %d is %v", lik, lik, lo, hi, extreme)
		}
		if got != want && !(math.Abs(got-want) <= 1e-12*math.Abs(want)) {
			t.Errorf("%T%+v: the sum of rows %d to %d is %v, want %v", lik, lik, lo, hi, got, want)
		}
	}
	for i, x := range eta {
		want := lik.LogProb(rows[i], x)
		if math.IsNaN(got[i]) || got[i] != want && !(math.Abs(got[i]-want) <= 1e-12*math.Abs(want)) {
			t.Errorf("%T%+v, y = %v, η = %v: %v, want %v", lik, lik, rows[i], x, got[i], want)
		}
	}
}

// TestClassesTwoTails checks that two classes have the expectations of a logit, with its relative
// accuracy in the tails and one curvature for both. A difference by rounding would favor one of the
// classes.
func TestClassesTwoTails(t *testing.T) {
	l := viewOf(Softmax{Classes: 2})
	var d1, d2 [2]float64
	for _, m := range []float64{-700, -40, 0, 3, 40, 300} {
		for _, v := range []float64{0, 1, 50, 1e6} {
			value, bound := l.ExpectSoftmax(0, 1e-4, []float64{m, 0.5}, []float64{v, v / 3}, d1[:],
				d2[:])
			e := BernoulliLogit{}.ExpectLogProb(1, m-0.5, v+v/3)
			if value != e.Value || bound != e.Err || d1[0] != e.D1 || d1[1] != -e.D1 ||
				d2[0] != e.D2 || d2[1] != e.D2 {
				t.Errorf("mean %v, variance %v: %v, %v, %v, want %+v", m, v, value, d1, d2, e)
			}
			h := make([]float64, 4)
			l.Curvature([]float64{m, 0.5}, []float64{v, v / 3}, h)
			for i, x := range h {
				if want := -e.D2 * testkit.PlusMinus(i%3 == 0); !(math.Abs(x-want) <= 1e-12*math.Abs(want)) {
					t.Errorf("mean %v, variance %v: curvature %v, want ±%v", m, v, h, -e.D2)
				}
			}
		}
	}
}

// drawOutcomes draws responses at the latent values eta.
func drawOutcomes(t *testing.T, rng *rand.Rand, l Likelihood, eta []float64) []float64 {
	t.Helper()
	y := make([]float64, len(eta))
	for i, e := range eta {
		v, err := drawResponse(l, e, rng)
		if err != nil {
			t.Fatal(err)
		}
		y[i] = v
	}
	return y
}

// outcomeData returns n rows, and responses drawn at 0.8x + 0.5. A large share of the durations is
// censored.
func outcomeData(t *testing.T, l Likelihood, n int) (x *mat.Dense, y []float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 7))
	x = mat.NewDense(n, 1, nil)
	eta := make([]float64, n)
	for i := range n {
		x.Set(i, 0, rng.NormFloat64())
		eta[i] = 0.8*x.At(i, 0) + 0.5
	}
	if b, ok := l.(BetaBinomial); ok {
		k, trials := make([]float64, n), make([]float64, n)
		for i := range n {
			trials[i] = float64(5 + rng.IntN(30))
			k[i] = drawOutcomes(t, rng, b.with(trials[i]), eta[i:i+1])[0]
		}
		y, err := Successes(k, trials)
		if err != nil {
			t.Fatal(err)
		}
		return x, y
	}
	y = drawOutcomes(t, rng, l, eta)
	if testFacts(l).Censored {
		event := make([]float64, n)
		for i := range event {
			c := 4 * rng.ExpFloat64() // time at which the observation ends
			event[i], y[i] = score.Indicator(y[i] <= c), math.Min(y[i], c)
		}
		var err error
		if y, err = Survival(y, event); err != nil {
			t.Fatal(err)
		}
	}
	return x, y
}

func newOutcomeGLM(t *testing.T, x mat.Matrix, y []float64, l Likelihood) *GLM {
	t.Helper()
	g, err := NewGLM(x, y, l, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestOutcomeRecovered learns from responses that were drawn with known parameters. Weights and
// parameters must be within three standard deviations of the truth; the standard deviations of
// parameters come from the intervals of Learn. Censored rows must not be treated as events, because
// that would shorten the durations.
func TestOutcomeRecovered(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, l := range []Likelihood{
		ZeroInflated{Zero: 0.3}, ZeroInflated{Zero: 0.3, Shape: 2}, Hurdle{Zero: 0.3},
		Hurdle{Zero: 0.3, Shape: 2},
		Weibull{Shape: 1.7}, LogNormal{Scale: 0.6}, Beta{Precision: 8}, BetaBinomial{Precision: 8},
	} {
		p := l.(Parametric)
		start := make([]float64, len(p.Params())) // different from the truth
		for i, q := range p.Params() {
			if start[i] = 1; q.Max == 1 {
				start[i] = 0.5
			}
		}
		x, y := outcomeData(t, l, 1000)
		g := newOutcomeGLM(t, x, y, p.WithParams(start))
		_, post, learned, err := g.Learn(context.Background(), nil, nil)
		if err != nil {
			t.Errorf("%#v: %v", l, err)
			continue
		}
		mean, sd := post.Mean(nil), post.SD(nil)
		for j, want := range []float64{0.8, 0.5} {
			if !(math.Abs(mean[j]-want) < 3.5*sd[j]) {
				t.Errorf("%#v: weight %d is %v ± %v, want %v", l, j, mean[j], sd[j], want)
			}
		}
		for _, p := range l.(Parametric).Params() {
			found := false
			for _, q := range learned.Params {
				if q.Name == testkit.TypeName(l)+"."+p.Name {
					found = true
					if off := math.Abs(q.theta(q.Value) - q.theta(p.Value)); !(off < 3.5*q.SD) ||
						!(q.SD < 1) {
						t.Errorf("%#v: %s is %v, off by %.3g of sd %.3g, want %v", l, q.Name,
							q.Value, off, q.SD, p.Value)
					}
				}
			}
			if !found {
				t.Errorf("%#v: %s was not learned", l, p.Name)
			}
		}
	}
}

// TestOutcomePosterior compares the posterior of one weight with the exact posterior by quadrature.
// The mean and the standard deviation must agree to 5% of a standard deviation.
func TestOutcomePosterior(t *testing.T) {
	t.Parallel()
	for _, l := range []Likelihood{ZeroInflated{Zero: 0.3}, Hurdle{Zero: 0.3, Shape: 2},
		Weibull{Shape: 1.7}, LogNormal{Scale: 0.6}, Beta{Precision: 8},
		BetaBinomial{Precision: 8}} {
		x, y := outcomeData(t, l, 80)
		g, err := NewGLM(x, y, l, &GLMOptions{PriorSD: 2})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		logp := func(w float64) float64 {
			sum := -w * w / 8
			for i, yi := range y {
				sum += l.LogProb(yi, w*x.At(i, 0))
			}
			return sum
		}
		m, s := post.Mean(nil)[0], post.SD(nil)[0]
		top := logp(m)
		var total, mean, square float64
		for u := -8.0; u <= 8; u += 0.05 {
			p := math.Exp(logp(m+s*u) - top)
			total, mean, square = total+p, mean+p*u, square+p*u*u
		}
		mean /= total
		sd := math.Sqrt(square/total - mean*mean)
		if !(math.Abs(mean) < 0.05 && math.Abs(sd-1) < 0.05) {
			t.Errorf("%#v: N(%v, %v²), exact mean off by %.3g sd, sd by a factor of %.3g", l, m, s,
				mean, sd)
		}
	}
}

// TestOutcomeChecks checks predictions, scores, draws and files of the likelihoods, with censored
// rows and rows with different numbers of trials.
func TestOutcomeChecks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, l := range few([]Likelihood{
		ZeroInflated{Zero: 0.3, Shape: 2}, Weibull{Shape: 1.7}, BetaBinomial{Precision: 8},
		Beta{Precision: 8}, LogNormal{Scale: 0.6}, Hurdle{Zero: 0.3},
	}[:longer(6, 4)], 2) {
		x, y := outcomeData(t, l, 60)
		g := newOutcomeGLM(t, x, y, l)
		post, _, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := post.At(x)
		scores, err := p.Scores(y)
		if err != nil {
			t.Fatalf("%#v: %v", l, err)
		}
		if v, ok := scores.Value("coverage 90%"); !ok || v < 0.7 {
			t.Errorf("%#v: coverage %v of\n%v", l, v, scores)
		}
		again := testkit.Reread(t, post, Load)
		if a, b := again.At(x).LogProb(nil, y), p.LogProb(nil, y); !slices.Equal(a, b) {
			t.Errorf("%#v: a saved posterior predicts differently", l)
		}
		check, err := g.PredictiveCheck(ctx, nil, post, longer(200, 60), nil)
		switch {
		case testFacts(l).Censored:
			if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "censored") {
				t.Errorf("%#v: a check of censored rows: %v", l, err)
			}
		case err != nil:
			t.Errorf("%#v: %v", l, err)
		default:
			for i, p := range check.P {
				if check.Names[i] == "mean" && (p < 0.001 || p > 0.999) {
					t.Errorf("%#v: %v", l, check)
				}
			}
		}
		if loo, err := g.LOO(ctx, post); err != nil || math.IsNaN(loo.ELPD) {
			t.Errorf("%#v: LOO %v, %v", l, loo, err)
		}
	}
	// a row above its trials, and trials of another likelihood
	p := NewPrediction(BetaBinomial{Precision: 5}, []float64{0.3, 0.3}, []float64{0.1, 0.1}).Trials(
		[]float64{4, 9})
	mean, _, err := p.Moments(nil, nil)
	if err != nil || math.Abs(mean[1]/mean[0]-9./4) > 1e-12 {
		t.Errorf("moments of trials: %v, %v", mean, err)
	}
	if lp := p.LogProb(nil, []float64{5, 5}); !math.IsNaN(lp[0]) || math.IsNaN(lp[1]) {
		t.Errorf("5 of 4 trials: %v", lp)
	}
	if q := NewPrediction(Beta{}, []float64{0}, []float64{1}).Trials([]float64{3}); !errors.Is(
		q.Err(), ErrParam) {
		t.Errorf("trials of Beta: %v", q.Err())
	}
}

// TestDrawResponse compares the mean and the variance of drawn responses with the moments of the
// likelihood.
func TestDrawResponse(t *testing.T) {
	t.Parallel()
	rng := testRand(40)
	n := shorter(4000, 1500)
	for _, lik := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Binomial{Trials: 5},
		Ordinal{Cuts: []float64{-1, 1}},
		Poisson{Exposure: 2}, NegativeBinomial{Shape: 3}, Gamma{Shape: 2}, Exponential{},
		GaussianNoise{Var: 4},
		Laplace{Scale: 2}, StudentT{DF: 8}} {
		y := make([]float64, n)
		for i := range y {
			var err error
			if y[i], err = drawResponse(lik, 0.7, rng); err != nil || !factsOf(lik).contain(y[i]) {
				t.Fatalf("%T: drew %v, %v", lik, y[i], err)
			}
		}
		mean, variance := lik.(Responder).Moments(0.7)
		m, v := stat.MeanVariance(y, nil)
		if math.Abs(m-mean) > 4*math.Sqrt(variance/float64(n)) || math.Abs(v/variance-1) > 0.2 {
			t.Errorf("%T: draws have mean %v and variance %v, want %v and %v", lik, m, v, mean,
				variance)
		}
	}
	if y, err := drawResponse(Poisson{}, -1000, rng); y != 0 || err != nil {
		t.Errorf("a rate of 0 draws %v, %v", y, err)
	}
}

// bump is a smooth custom likelihood. log p is N(η, 1), with a narrow part of 0.3.
type bump struct{}

func (bump) LogProb(y, eta float64) float64 {
	r, q := y-eta, (y-eta-1)/0.01
	a, b := math.Log(0.7)-0.5*r*r, math.Log(0.3/0.01)-0.5*q*q
	m := max(a, b)
	return m + math.Log(math.Exp(a-m)+math.Exp(b-m))
}

// TestNestedRuleIsOff checks that the rule with few nodes is off at the end of a fit for which it
// fails, that blocks of rows are repeated, and that the failure is part of a saved run.
func TestNestedRuleIsOff(t *testing.T) {
	notShort(t)
	rng := rand.New(rand.NewPCG(5, 6))
	n := 150
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		y[i] = 0.5*a - 0.3*b + rng.NormFloat64()
	}
	bump := bump{}
	glm := must(NewGLM(x, y, bump, nil))
	_, got, err := glm.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, given, err := glm.Fit(t.Context(), &Solver{StepSize: ConstantStep(3), MaxIter: 40,
		Converger: Never()})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Stepper.(*siteStepper).nested.off || !given.Stepper.(*siteStepper).nested.off {
		t.Error("the nested rule is on at the end")
	}
	// a block of rows is repeated
	s := new(term.Marginals)
	terms := ruled(must(newSiteTerms(bump, slices.Concat(y, y))))
	s.Resize(2 * n)
	for i := range s.M {
		s.M[i], s.V[i] = 0.1*terms.Y[i], 0.1
	}
	if err := terms.Sure(func() error {
		return terms.Expect(s, nil,
			term.Crew{Workers: 1})
	}); err != nil {
		t.Fatal(err)
	}
	for i, e := range s.E {
		if want := ExpectLogProb(bump, terms.Y[i], s.M[i], s.V[i]).Value; e != want {
			t.Fatalf("a block: row %d is %v, want %v", i, e, want)
		}
	}
	// a saved run includes the failure
	state, err := got.Stepper.(*siteStepper).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	st := must(must(NewGLM(x, y, bump, nil)).NewStepper(context.Background(), nil, nil)).(*siteStepper)
	st.nested.off = false
	if err := st.UnmarshalBinary(state); err != nil || !st.nested.off {
		t.Errorf("read from the state of a run: the rule is off: %v, error %v", st.nested.off, err)
	}
}
