package checks

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// TestPredictiveCheck checks that correct models pass and that a Poisson fails for counts with a
// larger variance.
func TestPredictiveCheck(t *testing.T) {
	const n = 120
	rng := testkit.Rand(41)
	x := mat.NewDense(n, 2, nil)
	data := func(lik Likelihood) []float64 {
		y := make([]float64, n)
		for i := range y {
			x.SetRow(i, []float64{1, rng.NormFloat64()})
			y[i] = quantile(t, lik, rng.Float64(), 1+0.5*x.At(i, 1), 0)
		}
		return y
	}
	type statistics = map[string]func([]float64) float64
	check := func(y []float64, lik Likelihood, opt *GLMOptions,
		stats statistics) *PredictiveCheck {
		t.Helper()
		g, err := NewGLM(x, y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.PredictiveCheck(t.Context(), nil, post, 400, stats)
		if err != nil {
			t.Fatal(err)
		}
		again, err := g.PredictiveCheck(t.Context(), nil, post, 400, stats)
		if err != nil || len(stats) == 0 && !reflect.DeepEqual(c, again) {
			t.Errorf("%T: the same seed gives %v, %v", lik, again, err)
		}
		return c
	}
	for _, lik := range []Likelihood{Poisson{}, GaussianNoise{}, BernoulliLogit{}, Exponential{}} {
		c := check(data(lik), lik, nil, nil)
		for i, p := range c.P {
			if p < 0.005 || p > 0.995 || !(c.Lo[i] <= c.Mean[i] && c.Mean[i] <= c.Hi[i]) {
				t.Errorf("%T, statistic %d:\n%v", lik, i, c)
			}
		}
	}
	many := data(NegativeBinomial{Shape: 0.7})
	c := check(many, Poisson{}, nil,
		statistics{"range": func(y []float64) float64 { return 7 }})
	p, observed := map[string]float64{}, map[string]float64{}
	for i, name := range c.Names {
		p[name], observed[name] = c.P[i], c.Observed[i]
	}
	if len(p) < 4 || p["sd"] > 0.01 || p["share of 0"] > 0.01 || p["max"] > 0.01 ||
		p["range"] != 0.5 {
		t.Errorf("a Poisson of such counts: %v", c)
	}
	if observed["sd"] != math.Sqrt(stat.PopVariance(many, nil)) ||
		!strings.Contains(c.String(), "*") {
		t.Errorf("%v", c)
	}
	// A row of weight w counts as w rows. All rows share the latent values of a draw, so the sd
	// of their mean combines weight and noise: √(1/(n+1) + 1/n).
	y := []float64{1, 2}
	g, err := NewGLM(mat.NewDense(2, 1, []float64{1, 1}), y, nil,
		&GLMOptions{Weights: []float64{30, 10}, Offset: []float64{1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = g.PredictiveCheck(t.Context(), nil, post, 4000, nil); err != nil {
		t.Fatal(err)
	}
	sd := math.Sqrt(1.0/41 + 1.0/40)
	mean := post.Mean(nil)[0] + 1
	if c.Observed[0] != 1.25 || math.Abs(c.Mean[0]-mean) > 0.02 ||
		math.Abs((c.Hi[0]-c.Lo[0])/(2*1.96*sd)-1) > 0.08 {
		t.Errorf("%v, want a mean of %v and a deviation of %v", c, mean, sd)
	}
}

// TestPredictiveCheckGP checks GPs and sparse GPs. They must agree if all inputs are inducing.
func TestPredictiveCheckGP(t *testing.T) {
	const n = 30
	rng := testkit.Rand(42)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i)/5)
		y[i] = math.Sin(x.At(i, 0)) + 0.3*rng.NormFloat64()
	}
	lik := GaussianNoise{Var: 0.09}
	gp, err := NewGP(x, y, SquaredExp{}, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := gp.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := gp.PredictiveCheck(t.Context(), nil, q, 2000, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := NewSparseGP(x, y, SquaredExp{}, lik, &SparseGPOptions{Inducing: x})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := sparse.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sparse.PredictiveCheck(t.Context(), nil, s, 2000, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range a.P {
		if a.Observed[i] != b.Observed[i] || math.Abs(p-b.P[i]) > 0.06 ||
			math.Abs(a.Mean[i]-b.Mean[i]) > 0.1*(a.Hi[i]-a.Lo[i]) || p < 0.005 || p > 0.995 {
			t.Errorf("%v of a GP, %v of a sparse one", a, b)
		}
	}
	if _, err := gp.PredictiveCheck(t.Context(), nil, nil, 10, nil); !errors.Is(err, ErrParam) {
		t.Errorf("no posterior: %v", err)
	}
	if _, err := sparse.PredictiveCheck(t.Context(), nil, nil, 10, nil); !errors.Is(err, ErrParam) {
		t.Errorf("no posterior: %v", err)
	}
	other, err := NewGP(mat.NewDense(1, 1, nil), y[:1], SquaredExp{}, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.PredictiveCheck(t.Context(), nil, q, 10, nil); !errors.Is(err, ErrParam) {
		t.Errorf("a posterior of other inputs: %v", err)
	}
}

// TestPredictiveCheckLearned checks that a model whose Fit learns the noise draws responses with
// the learned noise, which is a hundred times the default.
func TestPredictiveCheckLearned(t *testing.T) {
	const n = 200
	rng := testkit.Rand(43)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range y {
		x.Set(i, 0, rng.NormFloat64())
		y[i] = x.At(i, 0) + 10*rng.NormFloat64()
	}
	g, err := NewGLM(x, y, nil, &GLMOptions{Intercept: true, Learn: &LearnOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.PredictiveCheck(t.Context(), nil, post, 400, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sd := slices.Index(c.Names, "sd"); sd < 0 || !(c.P[sd] > 0.1 && c.P[sd] < 0.9) {
		t.Errorf("the model does not generate the standard deviation of its responses:\n%v", c)
	}
}

// TestPredictiveCheckErrors checks errors.
func TestPredictiveCheckErrors(t *testing.T) {
	x, y := mat.NewDense(3, 1, []float64{1, 2, 3}), []float64{1, 0, 2}
	fit := func(x mat.Matrix, y []float64, opt *GLMOptions) (*GLM, *GLMPosterior) {
		g, err := NewGLM(x, y, Poisson{}, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, post
	}
	g, q := fit(x, y, nil)
	none, _ := fit(NewSparse(1), nil, nil)
	half, _ := fit(x, y, &GLMOptions{Weights: []float64{1, 0.5, 1}})
	heavy, _ := fit(x, y, &GLMOptions{Weights: []float64{1, 1e12, 1}})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	type statistics = map[string]func([]float64) float64
	nan := statistics{"ratio": func(y []float64) float64 { return math.NaN() }}
	for name, c := range map[string]struct {
		ctx   context.Context
		g     *GLM
		q     *GLMPosterior
		draws int
		stats statistics
		want  error
	}{
		"nil":         {t.Context(), g, nil, 10, nil, ErrParam},
		"draws":       {t.Context(), g, q, -1, nil, ErrParam},
		"no rows":     {t.Context(), none, q, 10, nil, ErrEmpty},
		"half a row":  {t.Context(), half, q, 10, nil, ErrParam},
		"many rows":   {t.Context(), heavy, q, 10, nil, ErrParam},
		"no function": {t.Context(), g, q, 10, statistics{"a": nil}, ErrParam},
		"NaN":         {t.Context(), g, q, 10, nan, ErrNotFinite},
		"canceled":    {canceled, g, q, 10, nil, context.Canceled},
	} {
		if _, err := c.g.PredictiveCheck(c.ctx, nil, c.q, c.draws, c.stats); !errors.Is(err,
			c.want) || !testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
