package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

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
		{[]float64{1}, nil, ErrShape, "1 times and 0 events"},
		{[]float64{1, 2}, []float64{1, 2}, ErrLabel, "row 1: the event is 2"},
		{[]float64{1, 2}, []float64{1, math.NaN()}, ErrLabel, "row 1: the event is NaN"},
		{[]float64{0, 2}, []float64{1, 0}, ErrLabel, "row 0: the time is 0"},
		{[]float64{1, math.Inf(1)}, []float64{1, 0}, ErrLabel, "row 1: the time is +Inf"},
	} {
		if _, err := Survival(c.time, c.event); !errors.Is(err, c.want) || !prefixedOnce(err) || !strings.Contains(err.Error(), c.text) {
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
		a, b, ok := unpair(y[i])
		if !ok || a != k[i] || b != n[i] {
			t.Errorf("%v of %v: %v, %v, %v", k[i], n[i], a, b, ok)
		}
		if err := checkLabel(BetaBinomial{}, y[i]); err != nil {
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
		{[]float64{1}, nil, ErrShape, "1 numbers of successes and 0 of trials"},
		{[]float64{1, 3}, []float64{1, 2}, ErrLabel, "row 1: 3 successes in 2 trials"},
		{[]float64{1, 0.5}, []float64{1, 2}, ErrLabel, "row 1: 0.5 successes"},
		{[]float64{0}, []float64{0}, ErrLabel, "row 0: 0 trials"},
		{[]float64{1}, []float64{1<<20 + 1}, ErrLabel, "row 0: 1.048577e+06 trials"},
	} {
		if _, err := Successes(c.k, c.n); !errors.Is(err, c.want) || !prefixedOnce(err) || !strings.Contains(err.Error(), c.text) {
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
			near("log-normal", at(LogNormal{Scale: 0.7}, 2.3), at(GaussianNoise{Var: 0.49}, math.Log(2.3)), -math.Log(2.3), 1e-14)
			near("a row of weight 0", at(Hurdle{Zero: 0.3}, 0), Expectation{}, math.Log(0.3), 0)
			if m < 1 && v < 0.1 {
				near("few zeros", at(ZeroInflated{Zero: 1e-12}, 0), at(Poisson{}, 0), 0, 1e-7)
			}
			near("more counts", at(ZeroInflated{Zero: 0.3, Shape: 2}, 4), at(NegativeBinomial{Shape: 2}, 4), math.Log(0.7), 1e-14)
			near("one trial", at(BetaBinomial{Precision: 0.3}, 1), at(Binomial{}, 1), 0, 1e-11)
			if math.Abs(m) < 1 && v < 1 {
				near("trials without more variance", at(BetaBinomial{Trials: 9, Precision: 1e9}, 4), at(Binomial{Trials: 9}, 4), 0, 1e-6)
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
		ZeroInflated{}, ZeroInflated{Zero: 0.2, Shape: 0.7}, Hurdle{}, Hurdle{Zero: 0.2, Shape: 0.7}, Hurdle{Zero: 0.9, Shape: 9},
		BetaBinomial{Trials: 30}, BetaBinomial{Trials: 30, Precision: 40}, BetaBinomial{Trials: 7, Precision: 0.2},
	} {
		r := l.(Responder)
		for _, eta := range []float64{-9, -2, 0.3, 2} {
			var total, mean, square float64
			for y := 0.0; y < 3000 && checkLabel(l, y) == nil; y++ {
				p := math.Exp(l.LogProb(y, eta))
				total, mean, square = total+p, mean+p*y, square+p*y*y
				if c := r.CDF(y, eta); !(math.Abs(c-total) < 1e-11) {
					t.Errorf("%#v at %v: P(Y ≤ %v) = %v, sum %v", l, eta, y, c, total)
					break
				}
			}
			m, v := r.Moments(eta)
			if !(math.Abs(total-1) < 1e-11 && math.Abs(m-mean) < 1e-9*(1+mean) && math.Abs(v-(square-mean*mean)) < 1e-8*(1+square)) {
				t.Errorf("%#v at %v: total %v, moments %v, %v, sums %v, %v", l, eta, total, m, v, mean, square-mean*mean)
			}
		}
	}
	for _, l := range []Likelihood{Weibull{Shape: 0.7}, Weibull{Shape: 3}, Weibull{Shape: 70}, LogNormal{Scale: 0.4}, Beta{}, Beta{Precision: 30}} {
		r := l.(Responder)
		for _, eta := range []float64{-1, 0.4} {
			mean, variance := r.Moments(eta)
			numeric := responseOf(supported{bareLikelihood{l}, factsOf(l)})
			m, v := numeric.Moments(eta)
			if !(math.Abs(m-mean) < 1e-8*mean && math.Abs(v-variance) < 1e-7*variance) {
				t.Errorf("%#v at %v: moments %v, %v, by integrals %v, %v", l, eta, mean, variance, m, v)
			}
			for _, y := range []float64{0.2, 0.5, 0.8} {
				if a, b := r.CDF(y, eta), numeric.CDF(y, eta); !(math.Abs(a-b) < 1e-9) {
					t.Errorf("%#v at %v: P(Y ≤ %v) = %v, by an integral %v", l, eta, y, a, b)
				}
				if factsOf(l).Censored {
					if p := math.Exp(l.LogProb(-y, eta)); math.Abs(p+r.CDF(y, eta)-1) > 1e-14 {
						t.Errorf("%#v at %v: P(Y > %v) = %v", l, eta, y, p)
					}
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

// outcomeData returns n rows and responses that are drawn at 0.8x + 0.5. A good part of the
// durations is censored.
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
	if factsOf(l).Censored {
		event := make([]float64, n)
		for i := range event {
			c := 4 * rng.ExpFloat64() // when somebody stops looking
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

// TestOutcomeRecovered learns the parameters that responses were drawn with: weights and parameters
// are within three standard deviations of the truth, of which those of parameters come from the
// intervals of Learn. Censored rows are not taken for events, which would shorten durations.
func TestOutcomeRecovered(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, l := range []Likelihood{
		ZeroInflated{Zero: 0.3}, ZeroInflated{Zero: 0.3, Shape: 2}, Hurdle{Zero: 0.3}, Hurdle{Zero: 0.3, Shape: 2},
		Weibull{Shape: 1.7}, LogNormal{Scale: 0.6}, Beta{Precision: 8}, BetaBinomial{Precision: 8},
	} {
		p := l.(Parametric)
		start := make([]float64, len(p.Params())) // which is not the truth
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
				if q.Name == typeName(l)+"."+p.Name {
					found = true
					if off := math.Abs(q.theta(q.Value) - q.theta(p.Value)); !(off < 3.5*q.SD) || !(q.SD < 1) {
						t.Errorf("%#v: %s is %v, off by %.3g of sd %.3g, want %v", l, q.Name, q.Value, off, q.SD, p.Value)
					}
				}
			}
			if !found {
				t.Errorf("%#v: %s was not learned", l, p.Name)
			}
		}
	}
}

// TestOutcomePosterior compares the posterior of one weight with the exact one, by quadrature over
// the weight: mean and standard deviation within 5% of a standard deviation.
func TestOutcomePosterior(t *testing.T) {
	t.Parallel()
	for _, l := range []Likelihood{ZeroInflated{Zero: 0.3}, Hurdle{Zero: 0.3, Shape: 2}, Weibull{Shape: 1.7}, LogNormal{Scale: 0.6}, Beta{Precision: 8}, BetaBinomial{Precision: 8}} {
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
			t.Errorf("%#v: N(%v, %v²), exact mean off by %.3g sd, sd by a factor of %.3g", l, m, s, mean, sd)
		}
	}
}

// TestOutcomeChecks: predictions, scores, draws and files of the likelihoods, with censored rows and
// rows of their own trials.
func TestOutcomeChecks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, l := range few([]Likelihood{
		ZeroInflated{Zero: 0.3, Shape: 2}, Weibull{Shape: 1.7}, BetaBinomial{Precision: 8},
		Hurdle{Zero: 0.3}, LogNormal{Scale: 0.6}, Beta{Precision: 8},
	}, 2) {
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
			t.Errorf("%#v: a saved posterior predicts otherwise", l)
		}
		check, err := g.PredictiveCheck(ctx, nil, post, shorter(200, 60))
		switch {
		case factsOf(l).Censored:
			if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "censored") {
				t.Errorf("%#v: a check of censored rows: %v", l, err)
			}
		case err != nil:
			t.Errorf("%#v: %v", l, err)
		default:
			for _, r := range check.Rows {
				if r.Name == "mean" && (r.P < 0.001 || r.P > 0.999) {
					t.Errorf("%#v: %v", l, check)
				}
			}
		}
		if loo, err := g.LOO(ctx, post); err != nil || math.IsNaN(loo.ELPD) {
			t.Errorf("%#v: LOO %v, %v", l, loo, err)
		}
	}
	// A row above its trials, and trials of another likelihood.
	p := NewPrediction(BetaBinomial{Precision: 5}, []float64{0.3, 0.3}, []float64{0.1, 0.1}).Trials([]float64{4, 9})
	mean, _, err := p.Moments(nil, nil)
	if err != nil || math.Abs(mean[1]/mean[0]-9./4) > 1e-12 {
		t.Errorf("moments of trials: %v, %v", mean, err)
	}
	if lp := p.LogProb(nil, []float64{5, 5}); !math.IsNaN(lp[0]) || math.IsNaN(lp[1]) {
		t.Errorf("5 of 4 trials: %v", lp)
	}
	if q := NewPrediction(Beta{}, []float64{0}, []float64{1}).Trials([]float64{3}); !errors.Is(q.Err(), ErrParam) {
		t.Errorf("trials of Beta: %v", q.Err())
	}
}

func ExampleSurvival() {
	// Months until a machine fails; the third has not failed yet.
	y, err := Survival([]float64{4, 7, 12}, []float64{1, 1, 0})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := Weibull{Shape: 1.5}
	e := ExpectLogProb(l, y[2], 2, 0.1) // log P(Y > 12|η), η ~ N(2, 0.1)
	fmt.Printf("%v %.4f\n", y, e.Value)
	_, err = Survival([]float64{4, 7}, []float64{1, 2})
	fmt.Println(err)
	// Output:
	// [4 7 -12] -2.3160
	// pgsvi: row 1: the event is 2, want 1 if it was observed or 0 if the time is censored: label outside the support of the likelihood
}

func ExampleSuccesses() {
	y, err := Successes([]float64{3, 10}, []float64{12, 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := BetaBinomial{Precision: 8}
	fmt.Printf("%.4f %.4f\n", math.Exp(l.LogProb(y[0], -1)), math.Exp(l.LogProb(y[1], -1)))
	p := NewPrediction(l, []float64{-1}, []float64{0.04}).Trials([]float64{20})
	mean, variance, err := p.Moments(nil, nil)
	fmt.Printf("%.3f %.3f %v\n", mean[0], variance[0], err)
	// Output:
	// 0.1608 0.0577
	// 5.415 12.806 <nil>
}

func ExampleZeroInflated() {
	// Three counts in ten come from elsewhere; the others are Poisson with mean e.
	l := ZeroInflated{Zero: 0.3}
	for y := range 4 {
		fmt.Printf("P(Y = %d) = %.4f\n", y, math.Exp(l.LogProb(float64(y), 1)))
	}
	mean, variance := l.Moments(1)
	fmt.Printf("mean %.3f, variance %.3f\n", mean, variance)
	// Output:
	// P(Y = 0) = 0.3462
	// P(Y = 1) = 0.1256
	// P(Y = 2) = 0.1707
	// P(Y = 3) = 0.1546
	// mean 1.903, variance 3.454
}

func ExampleHurdle() {
	l := Hurdle{Zero: 0.3} // counts that are not 0 are zero-truncated Poisson
	for y := range 4 {
		fmt.Printf("P(Y = %d) = %.4f\n", y, math.Exp(l.LogProb(float64(y), 1)))
	}
	// Output:
	// P(Y = 0) = 0.3000
	// P(Y = 1) = 0.1344
	// P(Y = 2) = 0.1827
	// P(Y = 3) = 0.1656
}

func ExampleWeibull() {
	p := NewPrediction(Weibull{Shape: 2}, []float64{1}, []float64{0.25})
	median, err := p.Quantile(nil, 0.5)
	fmt.Printf("%.4f %v\n", median[0], err)
	fmt.Printf("P(Y > 5) = %.4f\n", p.Prob(nil, -5)[0])
	// Output:
	// 2.1683 <nil>
	// P(Y > 5) = 0.1214
}

func ExampleLogNormal() {
	p := NewPrediction(LogNormal{Scale: 0.5}, []float64{1}, []float64{0.25})
	median, err := p.Quantile(nil, 0.5)
	fmt.Printf("%.4f %v\n", median[0], err)
	// Output:
	// 2.7183 <nil>
}

func ExampleBeta() {
	p := NewPrediction(Beta{Precision: 12}, []float64{1}, []float64{0.25})
	mean, variance, err := p.Moments(nil, nil)
	fmt.Printf("%.4f %.5f %v\n", mean[0], variance[0], err)
	// Output:
	// 0.7206 0.02417 <nil>
}

func ExampleBetaBinomial() {
	l := BetaBinomial{Trials: 3, Precision: 4}
	for y, p := range NewPrediction(l, []float64{0.5}, []float64{0}).Probs().RawRowView(0) {
		fmt.Printf("P(Y = %d) = %.4f\n", y, p)
	}
	// Output:
	// P(Y = 0) = 0.1109
	// P(Y = 1) = 0.2360
	// P(Y = 2) = 0.3280
	// P(Y = 3) = 0.3251
}

// TestDrawResponse checks mean and variance of drawn responses against those of the likelihood.
func TestDrawResponse(t *testing.T) {
	t.Parallel()
	rng := testRand(40)
	n := shorter(4000, 1500)
	for _, lik := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Binomial{Trials: 5}, Ordinal{Cuts: []float64{-1, 1}},
		Poisson{Exposure: 2}, NegativeBinomial{Shape: 3}, Gamma{Shape: 2}, Exponential{}, GaussianNoise{Var: 4},
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
			t.Errorf("%T: draws have mean %v and variance %v, want %v and %v", lik, m, v, mean, variance)
		}
	}
	if y, err := drawResponse(Poisson{}, -1000, rng); y != 0 || err != nil {
		t.Errorf("a rate of 0 draws %v, %v", y, err)
	}
}
