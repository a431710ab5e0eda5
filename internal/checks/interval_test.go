package checks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestMeanInterval checks the interval of the mean against g⁻¹(m ± z√v), and against quantiles of
// draws of η for all likelihoods.
func TestMeanInterval(t *testing.T) {
	m, v := []float64{-1, 0.3, 2}, []float64{0.5, 0, 1.5}
	z := mathext.NormalQuantile(0.95)
	for name, c := range map[string]struct {
		lik Likelihood
		inv func(eta float64) float64
	}{
		"logit": {BernoulliLogit{}, func(e float64) float64 { return 2/(1+math.Exp(-e)) - 1 }},
		"probit": {BernoulliProbit{},
			func(e float64) float64 { return math.Erf(e / math.Sqrt2) }},
		"binomial": {Binomial{Trials: 7},
			func(e float64) float64 { return 7 / (1 + math.Exp(-e)) }},
		"poisson": {Poisson{Exposure: 3}, func(e float64) float64 { return 3 * math.Exp(e) }},
		"gamma":   {Gamma{Shape: 2}, math.Exp},
		"normal":  {GaussianNoise{Var: 4}, func(e float64) float64 { return e }},
		"student": {StudentT{}, func(e float64) float64 { return e }},
		"own":     {responderOnly{Poisson{}}, math.Exp},
	} {
		lo, hi, err := NewPrediction(c.lik, m, v).MeanInterval(nil, nil, 0.9)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range m {
			sd := math.Sqrt(v[i])
			wantLo, wantHi := c.inv(m[i]-z*sd), c.inv(m[i]+z*sd)
			if math.Abs(lo[i]-wantLo) > 1e-9*(1+math.Abs(wantLo)) ||
				math.Abs(hi[i]-wantHi) > 1e-9*(1+math.Abs(wantHi)) {
				t.Errorf("%s, row %d: %v to %v, want %v to %v", name, i, lo[i], hi[i], wantLo,
					wantHi)
			}
		}
	}
	// In draws, 5% of the means must lie on either side.
	rng := testkit.Rand(1)
	for _, lik := range []Likelihood{Ordinal{Cuts: []float64{-1, 1}}, NegativeBinomial{}, Laplace{},
		Exponential{}} {
		lo, hi, err := NewPrediction(lik, m[:1], v[:1]).MeanInterval(nil, nil, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		const draws = 20000
		below, above := 0, 0
		for range draws {
			mean, _ := lik.(Responder).Moments(m[0] + math.Sqrt(v[0])*rng.NormFloat64())
			if mean < lo[0] {
				below++
			}
			if mean > hi[0] {
				above++
			}
		}
		for _, n := range []int{below, above} {
			if math.Abs(float64(n)/draws-0.05) > 0.006 {
				t.Errorf("%T: %d below and %d above of %d, want 5%% each", lik, below, above, draws)
			}
		}
	}
}

// squaredMean is Gaussian noise about η², a mean that is not monotonic.
type squaredMean struct{ GaussianNoise }

func (squaredMean) LogProb(y, eta float64) float64 { return GaussianNoise{}.LogProb(y, eta*eta) }

func (squaredMean) Moments(eta float64) (mean, variance float64) { return eta * eta, 1 }

// TestIntervals checks levels, rows that fail, and predictions without rows.
func TestIntervals(t *testing.T) {
	nan := math.NaN()
	p := NewPrediction(Poisson{}, []float64{0, nan, 1, 800}, []float64{1, 1, -1, 1})
	type interval = func(lo, hi []float64, level float64) (l, h []float64, err error)
	for name, of := range map[string]interval{"mean": p.MeanInterval, "response": p.Interval} {
		for _, level := range []float64{0, 1, -1, nan} {
			if _, _, err := of(nil, nil, level); !errors.Is(err, ErrParam) ||
				!testkit.PrefixedOnce(err) {
				t.Errorf("%s, level %v: %v", name, level, err)
			}
		}
		lo, hi, err := of(make([]float64, 4), nil, 0.9)
		if !errors.Is(err, ErrNotFinite) ||
			!strings.Contains(err.Error(), "3 of the rows failed; the first: row 1") {
			t.Errorf("%s: %v", name, err)
		}
		for i := range lo {
			if bad := i > 0; math.IsNaN(lo[i]) != bad || math.IsNaN(hi[i]) != bad {
				t.Errorf("%s, row %d: %v to %v", name, i, lo[i], hi[i])
			}
		}
	}
	none := NewPrediction(nil, nil, nil)
	if lo, hi, err := none.Interval(nil, nil, 0.9); len(lo)+len(hi) > 0 || err != nil {
		t.Errorf("no rows: %v %v %v", lo, hi, err)
	}
	if _, _, err := NewPrediction(responderOnly{squaredMean{}}, []float64{0},
		[]float64{1}).MeanInterval(nil, nil, 0.9); !errors.Is(err, ErrParam) {
		t.Errorf("a mean that falls and rises: %v", err)
	}
	if _, _, err := NewPrediction(StudentT{DF: 1}, []float64{0}, []float64{1}).MeanInterval(nil,
		nil, 0.9); !errors.Is(err, ErrNotFinite) {
		t.Errorf("a mean that does not exist: %v", err)
	}
	// The interval must contain the response with at least the given probability, and must be the
	// shortest interval of whole numbers.
	counts := NewPrediction(Poisson{}, []float64{2}, []float64{0.3})
	lo, hi, err := counts.Interval(nil, nil, 0.8)
	if err != nil {
		t.Fatal(err)
	}
	var in float64
	for y := lo[0]; y <= hi[0]; y++ {
		in += counts.Prob(nil, y)[0]
	}
	ends := min(counts.Prob(nil, lo[0])[0], counts.Prob(nil, hi[0])[0])
	if in < 0.8 || in-ends > 0.8+0.1 {
		t.Errorf("%v to %v holds %v", lo, hi, in)
	}
}

// TestProbIntervalClasses compares two classes with the logit of their difference. It also checks
// rows without a prediction and classes that do not exist. The tests of predict.ClassInterval
// cover more classes.
func TestProbIntervalClasses(t *testing.T) {
	p := NewPrediction(Softmax{Classes: 2}, []float64{1, -0.5, 30, 0}, []float64{1, 3, 0.1, 0.2})
	logit := NewPrediction(BernoulliLogit{}, []float64{-1.5, -30}, []float64{4, 0.1 + 0.2})
	lo, hi, err := p.ProbInterval(nil, nil, 1, 0.9)
	wantLo, wantHi, wantErr := logit.ProbInterval(nil, nil, 1, 0.9)
	if err != nil || wantErr != nil {
		t.Fatal(err, wantErr)
	}
	for i := range lo {
		if !(math.Abs(lo[i]/wantLo[i]-1) < 1e-9) || !(math.Abs(hi[i]/wantHi[i]-1) < 1e-9) {
			t.Errorf("row %d: %v to %v, want %v to %v", i, lo[i], hi[i], wantLo[i], wantHi[i])
		}
	}
	p = NewPrediction(Softmax{Classes: 3}, []float64{1, 0, 2, 0, math.NaN(), 1},
		[]float64{1, 1, 1, 1, 1, 1})
	lo, hi, err = p.ProbInterval(nil, nil, 2, 0.9)
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 1") ||
		!math.IsNaN(lo[1]) || !math.IsNaN(hi[1]) || !(lo[0] < hi[0]) {
		t.Errorf("%v to %v: %v", lo, hi, err)
	}
	if mean := p.Prob(nil, 2)[0]; !(lo[0] < mean && mean < hi[0]) {
		t.Errorf("%v to %v about a mean of %v", lo[0], hi[0], mean)
	}
	for _, y := range []float64{-1, 3, 0.5} {
		if _, _, err = p.ProbInterval(nil, nil, y, 0.9); !errors.Is(err, ErrLabel) {
			t.Errorf("class %v: %v", y, err)
		}
	}
}

// TestTrials compares a prediction with trials with the prediction of a separate Binomial for
// each row.
func TestTrials(t *testing.T) {
	m, v := []float64{-1, 0.3, 2}, []float64{0.5, 0.1, 1.5}
	trials, y := []float64{1, 4, 9}, []float64{1, 2, 9}
	for _, lik := range []Likelihood{BernoulliLogit{}, Binomial{Trials: 3}} {
		p := NewPrediction(lik, m, v).Trials(trials).Offset([]float64{0, 0, 0})
		logp, probs := p.LogProb(nil, y), p.Probs()
		mean, variance, err := p.Moments(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Quantile(nil, 0.7)
		if err != nil {
			t.Fatal(err)
		}
		lo, hi, err := p.ProbInterval(nil, nil, 1, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m {
			one := NewPrediction(Binomial{Trials: trials[i]}, m[i:i+1], v[i:i+1])
			wantMean, wantVar, _ := one.Moments(nil, nil)
			wantQ, _ := one.Quantile(nil, 0.7)
			wantLo, wantHi, _ := one.ProbInterval(nil, nil, 1, 0.9)
			got := []float64{logp[i], mean[i], variance[i], q[i], lo[i], hi[i]}
			want := []float64{one.LogProb(nil, y[i:i+1])[0], wantMean[0], wantVar[0], wantQ[0],
				wantLo[0], wantHi[0]}
			if !slices.Equal(got, want) {
				t.Errorf("%T, row %d: %v, want %v", lik, i, got, want)
			}
			if s := mat.Sum(probs.Slice(i, i+1, 0, 10)); math.Abs(s-1) > 1e-9 {
				t.Errorf("%T, row %d: probabilities sum to %v", lik, i, s)
			}
			if p.Row(i).String() != one.String() {
				t.Errorf("%T, row %d: %q, want %q", lik, i, p.Row(i), one)
			}
		}
		if prob := p.Prob(nil, 5); !math.IsNaN(prob[0]) || !math.IsNaN(prob[1]) || !(prob[2] > 0) {
			t.Errorf("%T: 5 successes have %v", lik, prob)
		}
		if _, _, err := p.ProbInterval(nil, nil, 5, 0.9); !errors.Is(err, ErrLabel) {
			t.Errorf("%T: 5 successes in 1: %v", lik, err)
		}
	}
	for _, c := range []struct {
		lik Likelihood
		n   float64
	}{{Poisson{}, 1}, {BernoulliProbit{}, 1}, {BernoulliLogit{}, 0}, {BernoulliLogit{}, 1.5},
		{BernoulliLogit{}, math.NaN()}} {
		p := NewPrediction(c.lik, []float64{0}, []float64{1}).Trials([]float64{c.n})
		if err := p.Err(); !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) {
			t.Errorf("%v trials of %T: %v", c.n, c.lik, err)
		}
		if prob := p.Prob(nil, 1); !math.IsNaN(prob[0]) {
			t.Errorf("%v trials of %T: %v", c.n, c.lik, prob)
		}
	}
	testkit.MustPanic(t, "two trials for three rows", func() {
		NewPrediction(nil, m,
			v).Trials(trials[:2])
	})
	testkit.MustPanic(t, "row 3 of 3", func() { NewPrediction(nil, m, v).Row(3) })
}

// TestPredictionString checks the printed sentences for labels, counts, numbers and failures, and
// that long predictions are cut.
func TestPredictionString(t *testing.T) {
	for want, p := range map[string]*Prediction{
		"0.43 (0.37 to 0.49)": NewPrediction(
			BernoulliLogit{}, []float64{-0.28}, []float64{0.0155}),
		"0.0012 (0.0001 to 0.0048)": NewPrediction(
			BernoulliLogit{}, []float64{-7.2}, []float64{0.9}),
		"7.4 (6.1 to 9.0), a new response 3 to 13": NewPrediction(
			Poisson{}, []float64{2}, []float64{0.01}),
		"120.3 (118.3 to 122.2), a new response 92 to 148": NewPrediction(
			GaussianNoise{Var: 200}, []float64{120.26}, []float64{1}),
		"2 (2 to 2), a new response 0.0 to 4.0": NewPrediction(
			nil, []float64{2}, []float64{0}),
		"no prediction: the latent mean is NaN and the latent variance is 1: not finite": NewPrediction(
			nil, []float64{math.NaN()}, []float64{1}),
		"no rows": NewPrediction(nil, nil, nil),
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	many := NewPrediction(BernoulliLogit{}, make([]float64, 1000), make([]float64, 1000)).String()
	if n := strings.Count(many, "\n"); n != 20 || !strings.HasSuffix(many, "… and 980 more rows") {
		t.Errorf("%d lines: %s", n, many)
	}
	var none *mat.Dense
	g, err := NewGLM(mat.NewDense(1, 1, []float64{1}), []float64{1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := post.At(none).String(); !strings.HasPrefix(got, "no rows: pgsvi: ") {
		t.Errorf("a nil matrix: %q", got)
	}
}

// TestIntervalCoverage checks that 90% intervals of fits to simulated data contain 90% ± 2 of the
// means and of new responses. The weights come from the prior, because a Bayesian interval has
// its probability on average over the prior.
func TestIntervalCoverage(t *testing.T) {
	testkit.NotShort(t)
	const rows, cols, fresh = 60, 3, 4
	fits := testkit.Longer(1000, 300)
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{},
		GaussianNoise{}}[:testkit.Longer(3, 2)] {
		rng := testkit.Rand(7)
		var means, responses, all float64
		for range fits {
			w := []float64{rng.NormFloat64(), 0.6 * rng.NormFloat64(), 0.6 * rng.NormFloat64(),
				0.6 * rng.NormFloat64()}
			draw := func(n int) (x *mat.Dense, mean, y []float64) {
				x = mat.NewDense(n, cols, nil)
				for i := range n {
					eta := w[0]
					for j := range cols {
						x.Set(i, j, rng.NormFloat64())
						eta += w[j+1] * x.At(i, j)
					}
					mu, _ := lik.(Responder).Moments(eta)
					response := quantile(t, lik, rng.Float64(), eta, 0)
					mean, y = append(mean, mu), append(y, response)
				}
				return x, mean, y
			}
			x, _, y := draw(rows)
			g, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true, InterceptSD: 1, PriorSD: 0.6})
			if err != nil {
				t.Fatal(err)
			}
			post, _, err := g.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			x, mean, y := draw(fresh)
			p := post.At(x)
			lo, hi, err := p.MeanInterval(nil, nil, 0.9)
			if err != nil {
				t.Fatal(err)
			}
			least, most, err := p.Interval(nil, nil, 0.9)
			if err != nil {
				t.Fatal(err)
			}
			for i := range fresh {
				all++
				if lo[i] <= mean[i] && mean[i] <= hi[i] {
					means++
				}
				if least[i] <= y[i] && y[i] <= most[i] {
					responses++
				}
			}
		}
		t.Logf("%T: %d fits, means %.3f, responses %.3f", lik, fits, means/all, responses/all)
		// The data sets differ, so the standard error of 300 fits is 1%.
		within := testkit.Longer(0.02, 0.03)
		if got := means / all; math.Abs(got-0.9) > within {
			t.Errorf("%T: 90%% intervals hold %.3f of the means", lik, got)
		}
		// Intervals of whole numbers may contain more.
		got := responses / all
		if got < 0.9-within || kit.FactsOf(lik).Support == RealLine && got > 0.9+within {
			t.Errorf("%T: 90%% intervals hold %.3f of the responses", lik, got)
		}
	}
}

// latentCase returns a posterior and rows to predict.
func latentCase(t testing.TB, cols, rows int, sparse bool, opt GLMOptions) (*GLMPosterior,
	mat.Matrix) {
	t.Helper()
	rng := testkit.Rand(uint64(cols))
	x, y := mat.NewDense(rows, cols, nil), make([]float64, rows)
	for i := range rows {
		for j := range cols {
			if !sparse || rng.IntN(3) == 0 {
				x.Set(i, j, rng.NormFloat64())
			}
		}
		y[i] = testkit.PlusMinus(rng.Float64() < 0.5)
	}
	var m mat.Matrix = x
	if sparse {
		m = SparseOf(x)
	}
	g, err := NewGLM(m, y, BernoulliLogit{}, &opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return post, m
}

// TestLatentFew checks that Latent of a few rows has the same bits as At of many rows, and
// allocates nothing.
func TestLatentFew(t *testing.T) {
	for _, c := range []struct {
		name   string
		cols   int
		sparse bool
		opt    GLMOptions
	}{
		{"full", 5, false, GLMOptions{Intercept: true}},
		{"one weight", 1, false, GLMOptions{}},
		{"full, more columns", 40, false, GLMOptions{Intercept: true}},
		{"full, sparse", 40, true, GLMOptions{Intercept: true}},
		{"diagonal", 20, false, GLMOptions{Covariance: DiagonalCovariance}},
		{"diagonal, sparse", 20, true, GLMOptions{Intercept: true, Covariance: DiagonalCovariance}},
		{"low rank", 30, false, GLMOptions{Covariance: LowRankCovariance, Rank: 3}},
		{"low rank, sparse", 30, true, GLMOptions{Covariance: LowRankCovariance, Rank: 3}},
	} {
		const rows = 60
		post, x := latentCase(t, c.cols, rows, c.sparse, c.opt)
		m, v := post.At(x).Latent(nil, nil)
		one, two := make([]float64, 1), make([]float64, 1)
		for i := range rows {
			row := mat.NewDense(1, c.cols, mat.Row(nil, i, x))
			var few mat.Matrix = row
			if c.sparse {
				few = SparseOf(row)
			}
			post.Latent(one, two, few)
			if one[0] != m[i] || two[0] != v[i] {
				t.Errorf("%s, row %d: %v %v, want %v %v", c.name, i, one[0], two[0], m[i], v[i])
			}
			if i == 0 && !testkit.Race {
				if n := testing.AllocsPerRun(50, func() { post.Latent(one, two, few) }); n > 0 {
					t.Errorf("%s: %v allocations", c.name, n)
				}
			}
			row.Set(0, 0, math.NaN())
			if post.Latent(one, two, row); !math.IsNaN(one[0]) || !math.IsNaN(two[0]) {
				t.Errorf("%s: a NaN predicts %v %v", c.name, one[0], two[0])
			}
		}
		if m, v := post.Latent(nil, nil, nil); len(m)+len(v) != 0 {
			t.Errorf("%s: rows of no matrix", c.name)
		}
		testkit.MustPanic(t, "a column too many", func() {
			post.Latent(nil, nil, mat.NewDense(1,
				c.cols+1, nil))
		})
	}
}

func BenchmarkLatent(b *testing.B) {
	for _, cols := range []int{5, 20, 100} {
		post, x := latentCase(b, cols, 500, false, GLMOptions{Intercept: true})
		one := x.(*mat.Dense).Slice(3, 4, 0, cols)
		m, v := make([]float64, 1), make([]float64, 1)
		b.Run(fmt.Sprint(cols), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				post.Latent(m, v, one)
			}
		})
	}
}

// TestPrecision checks that Precision divides the noise of each row, also in a mixture, and the errors.
func TestPrecision(t *testing.T) {
	m, v, w := []float64{1, -2}, []float64{0.5, 0.25}, []float64{4, 0.5}
	p := NewPrediction(GaussianNoise{Var: 3}, m, v).Precision(w)
	_, variance, err := p.Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	lo, hi, err := p.Interval(nil, nil, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	z := mathext.NormalQuantile(0.95)
	for i := range m {
		want := v[i] + 3/w[i]
		sd := math.Sqrt(want)
		row := NewPrediction(GaussianNoise{Var: 3 / w[i]}, m[i:i+1], v[i:i+1])
		if math.Abs(variance[i]-want) > 1e-12 || math.Abs(lo[i]-(m[i]-z*sd)) > 1e-9 ||
			math.Abs(hi[i]-(m[i]+z*sd)) > 1e-9 ||
			p.LogProb(nil, []float64{0, 0})[i] != row.LogProb(nil, []float64{0})[0] {
			t.Errorf("row %d: variance %v from %v to %v, want variance %v", i, variance[i], lo[i],
				hi[i], want)
		}
	}
	twice := p.Precision([]float64{0.25, 2})
	if _, got, _ := twice.Moments(nil, nil); math.Abs(got[0]-3.5) > 1e-12 {
		t.Errorf("precisions do not multiply: %v", got)
	}
	for _, bad := range []*Prediction{
		NewPrediction(Poisson{}, m, v).Precision(w),
		NewPrediction(GaussianNoise{}, m, v).Precision([]float64{1, 0}),
		NewPrediction(GaussianNoise{}, m, v).Precision([]float64{1, math.NaN()}),
		NewPrediction(GaussianNoise{}, m, v).Precision([]float64{1, math.Inf(1)}),
	} {
		if err := bad.Err(); !errors.Is(err, ErrParam) {
			t.Error(err)
		}
	}
}
