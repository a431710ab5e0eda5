package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// noMean is Gaussian noise whose moments do not exist and whose CDF never
// reaches ½ where η > 4.
type noMean struct{ GaussianNoise }

func (noMean) LogProb(y, eta float64) float64 { return GaussianNoise{}.LogProb(y, eta) }

func (noMean) Moments(eta float64) (mean, variance float64) {
	if eta > 4 {
		return math.NaN(), math.NaN()
	}
	return GaussianNoise{}.Moments(eta)
}

func (noMean) CDF(y, eta float64) float64 {
	if eta > 4 {
		return 0.25
	}
	return GaussianNoise{}.CDF(y, eta)
}

// responderOnly hides all but LogProb and Responder.
type responderOnly struct{ Responder }

// TestPredictionFailedRow: an error names the row, which is NaN, and other rows are as they were.
func TestPredictionFailedRow(t *testing.T) {
	lik := responderOnly{noMean{}}
	x := mat.NewDense(4, 1, []float64{0, 0.2, 9, 0.4})
	g, err := NewGLM(mat.NewDense(2, 1, []float64{1, 1}), []float64{1, 1}, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error, outs ...[]float64) {
		t.Helper()
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), "pgsvi: row 2: ") {
			t.Errorf("%s: %v, want ErrNotFinite at row 2", what, err)
		}
		for _, out := range outs {
			for i, v := range out {
				if math.IsNaN(v) != (i == 2) {
					t.Errorf("%s: row %d is %v", what, i, v)
				}
			}
		}
	}
	mean, variance, err := post.At(x).Moments(nil, nil)
	check("Moments", err, mean, variance)
	q, err := post.At(x).Quantile(nil, 0.6)
	check("Quantile", err, q)
	// A row that has no latent value, where other rows are fine.
	x.Set(2, 0, math.NaN())
	p := post.At(x)
	check("Err", p.Err())
	mean, variance, err = p.Moments(nil, nil)
	check("Moments of NaN", err, mean, variance)
	q, err = p.Quantile(nil, 0.6)
	check("Quantile of NaN", err, q)
	for _, out := range [][]float64{p.Prob(nil, 1), p.LogProb(nil, make([]float64, 4))} {
		for i, v := range out {
			if math.IsNaN(v) != (i == 2) {
				t.Errorf("density %d is %v", i, v)
			}
		}
	}
}

// TestPredictionErrors: what is wrong with what NewPrediction is given.
func TestPredictionErrors(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		p    *Prediction
		want error
		text string
	}{
		{"parameter", NewPrediction(Laplace{-1}, []float64{0, 1}, []float64{1, 1}), ErrParam, "pgsvi: Laplace.Scale is -1"},
		{"negative variance", NewPrediction(Laplace{}, []float64{0, 1}, []float64{1, -1}), ErrParam, "pgsvi: row 1: the latent variance is -1"},
		{"NaN", NewPrediction(Poisson{}, []float64{0, nan}, []float64{1, 1}), ErrNotFinite, "pgsvi: row 1: the latent mean is NaN"},
		{"infinity", NewPrediction(nil, []float64{0, 1}, []float64{1, math.Inf(1)}), ErrNotFinite, "pgsvi: row 1: "},
	} {
		mean, variance, merr := c.p.Moments(nil, nil)
		q, qerr := c.p.Quantile(nil, 0.5)
		for _, err := range []error{c.p.Err(), c.p.Offset([]float64{0, 0}).Err(), merr, qerr} {
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), c.text) || !strings.HasSuffix(err.Error(), c.want.Error()) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		for _, out := range [][]float64{mean, variance, q, c.p.Prob(nil, 1)} {
			if !math.IsNaN(out[1]) || math.IsNaN(out[0]) != (c.name == "parameter") {
				t.Errorf("%s: %v", c.name, out)
			}
		}
	}
	good := NewPrediction(nil, []float64{0.5}, []float64{2})
	if err := good.Err(); err != nil {
		t.Error(err)
	}
	for _, p := range []float64{0, 1, -0.1, nan} {
		if q, err := good.Quantile(nil, p); !errors.Is(err, ErrParam) || !math.IsNaN(q[0]) {
			t.Errorf("quantile at %v: %v, %v, want ErrParam", p, q, err)
		}
	}
	mustPanic(t, "lengths", func() { NewPrediction(nil, []float64{1}, nil) })
	mustPanic(t, "offsets", func() { good.Offset(nil) })
	mustPanic(t, "dst", func() { good.Prob(make([]float64, 2), 1) })
	mustPanic(t, "responses", func() { good.LogProb(nil, []float64{1, 2}) })
	mustPanic(t, "real line", func() { good.Probs() })
	mustPanic(t, "counts without end", func() { NewPrediction(Poisson{}, []float64{1}, []float64{1}).Probs() })
}

// TestPrediction: every method agrees with those of one row, and nothing that is
// passed in or given back is shared.
func TestPrediction(t *testing.T) {
	for _, c := range allCases(t) {
		mean, variance := []float64{0.4, -1, 0.7}, []float64{0.3, 0, 2}
		p := NewPrediction(c.l, mean, variance)
		mean[0], variance[0] = 9, 9
		m, v := p.Latent(nil, nil)
		m[0], v[0] = 8, 8
		if m, v = p.Latent(make([]float64, 3), make([]float64, 3)); m[0] != 0.4 || v[0] != 0.3 || p.Len() != 3 {
			t.Fatalf("%#v: latent values %v, %v", c.l, m, v)
		}
		y := []float64{c.good[0], c.good[len(c.good)-1], c.good[0]}
		prob, lp := p.Prob(nil, y[0]), p.LogProb(nil, y)
		em, ev, err := p.Moments(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Quantile(nil, 0.3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m {
			l0, _ := predictiveLogProb(c.l, y[0], m[i], v[i])
			li, _ := predictiveLogProb(c.l, y[i], m[i], v[i])
			wm, wv, _ := predictiveMoments(c.l, m[i], v[i])
			wq, _ := predictiveQuantile(c.l, 0.3, m[i], v[i])
			if prob[i] != math.Exp(l0) || lp[i] != li || em[i] != wm || ev[i] != wv || q[i] != wq {
				t.Errorf("%#v row %d: %v, %v, %v, %v, %v", c.l, i, prob[i], lp[i], em[i], ev[i], q[i])
			}
		}
		if got := p.LogProb(y, y); !slices.Equal(got, lp) {
			t.Errorf("%#v: dst that is y: %v, want %v", c.l, got, lp)
		}
		for i := range m {
			m[i]++
		}
		moved, _ := p.Offset([]float64{1, 1, 1}).Latent(nil, nil)
		if !slices.Equal(moved, m) || p.m[0] != 0.4 {
			t.Errorf("%#v: offset by 1: %v, want %v", c.l, moved, m)
		}
	}
}

// TestPredictionProbs: the probabilities of all responses are those of Prob and add up to 1.
func TestPredictionProbs(t *testing.T) {
	for _, c := range []struct {
		l      Likelihood
		labels []float64
	}{
		{BernoulliLogit{}, []float64{-1, 1}},
		{BernoulliProbit{}, []float64{-1, 1}},
		{Binomial{Trials: 3}, []float64{0, 1, 2, 3}},
		{Ordinal{Cuts: []float64{-1, 0.5}}, []float64{0, 1, 2}},
	} {
		p := NewPrediction(c.l, []float64{0.4, -3}, []float64{0.3, 7})
		all := p.Probs()
		if r, k := all.Dims(); r != 2 || k != len(c.labels) {
			t.Fatalf("%#v: %d×%d probabilities", c.l, r, k)
		}
		for i := range 2 {
			var sum float64
			for j, y := range c.labels {
				if all.At(i, j) != p.Prob(nil, y)[i] {
					t.Errorf("%#v row %d: P(%v) = %v, want %v", c.l, i, y, all.At(i, j), p.Prob(nil, y)[i])
				}
				sum += all.At(i, j)
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Errorf("%#v row %d: probabilities add up to %v", c.l, i, sum)
			}
		}
		if r, _ := NewPrediction(c.l, nil, nil).Probs().Dims(); r != 0 {
			t.Errorf("%#v: %d rows of none", c.l, r)
		}
	}
}

// TestPredictionAllocs: a Prediction takes one slice, and its methods none.
func TestPredictionAllocs(t *testing.T) {
	g, err := NewGLM(mat.NewDense(3, 1, []float64{1, 2, -1}), []float64{1, 1, -1}, BernoulliLogit{}, &GLMOptions{Covariance: DiagonalCovariance})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := mat.NewDense(100, 1, nil)
	dst, v := make([]float64, 100), make([]float64, 100)
	latent := testing.AllocsPerRun(10, func() { post.latent(dst, v, x) })
	if n := testing.AllocsPerRun(10, func() { post.At(x).Prob(dst, 1) }); n > latent+1 {
		t.Errorf("Prob: %v allocations, %v of which for the latent values", n, latent)
	}
	p := post.At(x)
	for name, f := range map[string]func(){
		"Prob":     func() { p.Prob(dst, 1) },
		"LogProb":  func() { p.LogProb(v, dst) },
		"Moments":  func() { p.Moments(dst, v) },
		"Quantile": func() { p.Quantile(dst, 0.3) },
		"Latent":   func() { p.Latent(dst, v) },
		"Err":      func() { p.Err() },
	} {
		for i := range dst {
			dst[i] = 1
		}
		if n := testing.AllocsPerRun(10, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestPredictionWorkers: the same bits on any number of cores, and from many
// goroutines that share a posterior and a Prediction.
func TestPredictionWorkers(t *testing.T) {
	gp := toyGP(t, 40, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 31)
	dense, _ := mustFit(t, gp, nil)
	g, err := NewSparseGP(gp.x, gp.terms.y, gp.kernel, gp.terms.lik, &SparseGPOptions{Rank: 10})
	if err != nil {
		t.Fatal(err)
	}
	lowRank, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(gp.x, gp.terms.y, gp.terms.lik, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	linear, _, err := glm.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := testRand(32)
	x := mat.NewDense(11*predictBlock+5, 2, nil)
	for i := range x.RawMatrix().Data {
		x.RawMatrix().Data[i] = rng.NormFloat64()
	}
	for _, post := range []interface {
		At(mat.Matrix) *Prediction
	}{dense, lowRank, linear} {
		for _, x := range []mat.Matrix{x, SparseOf(x)} {
			before := runtime.GOMAXPROCS(1)
			p := post.At(x)
			m, v := p.Latent(nil, nil)
			prob := p.Prob(nil, 1)
			runtime.GOMAXPROCS(5)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					m5, v5 := post.At(x).Latent(nil, nil)
					if !slices.Equal(m, m5) || !slices.Equal(v, v5) || !slices.Equal(prob, post.At(x).Prob(nil, 1)) || !slices.Equal(prob, p.Prob(nil, 1)) {
						t.Errorf("%T of a %T: other bits on five cores", post, x)
					}
				})
			}
			wg.Wait()
			runtime.GOMAXPROCS(before)
		}
	}
}

func ExamplePrediction() {
	// Waiting times in days at two desks: a gamma GLM without an intercept.
	x := mat.NewDense(6, 2, []float64{1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1})
	g, err := NewGLM(x, []float64{1.2, 0.7, 1.6, 5.1, 7.9, 6.4}, Gamma{Shape: 4}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := post.At(mat.NewDense(2, 2, []float64{1, 0, 0, 1}))
	mean, variance, err := p.Moments(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	longest, err := p.Quantile(nil, 0.95)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range mean {
		fmt.Printf("desk %d: %.2f ± %.2f days, 95%% within %.2f\n", i, mean[i], math.Sqrt(variance[i]), longest[i])
	}
	// Output:
	// desk 0: 1.24 ± 0.73 days, 95% within 2.63
	// desk 1: 6.03 ± 3.51 days, 95% within 12.70
}

// TestPredictionOutsideSupport: what is no response has no probability.
func TestPredictionOutsideSupport(t *testing.T) {
	x, y := mat.NewDense(2, 1, []float64{1, -1}), []float64{1, 2}
	for _, c := range []struct {
		l    Likelihood
		y    []float64
		good float64
	}{
		{BernoulliLogit{}, []float64{0, 2, math.NaN()}, -1},
		{BernoulliProbit{}, []float64{0.5}, 1},
		{Poisson{}, []float64{-1, 0.5, math.Inf(1)}, 3},
		{Binomial{Trials: 4}, []float64{5}, 4},
		{Ordinal{}, []float64{2}, 0},
		{Gamma{}, []float64{0}, 1},
		{Exponential{}, []float64{-1}, 0},
		{GaussianNoise{}, []float64{math.NaN(), math.Inf(-1)}, 0},
	} {
		y[0], y[1] = c.good, c.good
		g, err := NewGLM(x, y, c.l, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := post.At(x).Prob(nil, c.good)[0]; !(p > 0) {
			t.Errorf("%#v: P(%v) = %v", c.l, c.good, p)
		}
		for _, bad := range c.y {
			if p := post.At(x).Prob(nil, bad); !math.IsNaN(p[0]) || !math.IsNaN(p[1]) {
				t.Errorf("%#v: P(%v) = %v, want NaN", c.l, bad, p)
			}
			p := post.At(x).LogProb(nil, []float64{bad, c.good})
			if !math.IsNaN(p[0]) || math.IsNaN(p[1]) {
				t.Errorf("%#v: log P of %v and %v: %v, want NaN for the first", c.l, bad, c.good, p)
			}
		}
	}
}

// twoModes is a likelihood of counts with a mode at 0 and one at the rate e^η.
type twoModes struct{ Poisson }

func (twoModes) LogProb(y, eta float64) float64 {
	p := Poisson{}.LogProb(y, eta)
	if y == 0 {
		return math.Log(0.3 + 0.7*math.Exp(p))
	}
	return math.Log(0.7) + p
}

// Sums over counts go on past a first mode.
func TestPredictTwoModes(t *testing.T) {
	type likelihood struct{ Factual } // without what else a Poisson knows
	p := NewPrediction(likelihood{twoModes{}}, []float64{5.6, 1}, []float64{0.01, 0.2})
	mean, _, err := p.Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkClose(t, "mean", mean, []float64{0.7 * math.Exp(5.605), 0.7 * math.Exp(1.1)}, 1e-9)
	checkClose(t, "P(0)", p.Prob(nil, 0)[:1], []float64{0.3}, 1e-9)
}

// TestPredictEach: rows predicted together, in blocks that goroutines share, are those predicted one at a time, to the last bit, those that are none included.
func TestPredictEach(t *testing.T) {
	t.Parallel()
	rng := testRand(13)
	y, m, v := signRows(rng, predictShared+5)
	type user struct{ BernoulliLogit }
	for _, lik := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, user{}} {
		all := NewPrediction(lik, m, v)
		logp, prob := all.LogProb(nil, y), all.Prob(nil, -1)
		for i := range y {
			one := NewPrediction(lik, m[i:i+1], v[i:i+1])
			for _, x := range [...][2]float64{{logp[i], one.LogProb(nil, y[i:i+1])[0]}, {prob[i], one.Prob(nil, -1)[0]}} {
				if math.Float64bits(x[0]) != math.Float64bits(x[1]) && !(x[0] != x[0] && x[1] != x[1]) {
					t.Errorf("%T of %v at m = %v, v = %v: %v, alone %v", lik, y[i], m[i], v[i], x[0], x[1])
				}
			}
			want, _ := predictiveLogProb(lik, y[i], m[i], v[i])
			if y[i] == 0 {
				want = math.NaN()
			}
			if math.Float64bits(want) != math.Float64bits(logp[i]) && !(want != want && logp[i] != logp[i]) {
				t.Errorf("%T of %v at m = %v, v = %v: %v, want %v", lik, y[i], m[i], v[i], logp[i], want)
			}
		}
		own := slices.Clone(y)
		if got := all.LogProb(own, own); !slices.EqualFunc(got, logp, func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Errorf("%T: others where they go to the responses", lik)
		}
	}
}
