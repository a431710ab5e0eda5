package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// A GP with a linear kernel is the GLM.
func TestGLMLinearKernel(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{}} {
		c := kit.ToyGLM("", 40, 5, lik, 51, &GLMOptions{PriorSD: 0.7})
		p, res := kit.FitGLM(t, c.Glm(t, c.X), nil)
		gp, err := NewGP(c.X, c.Y, Linear{Scale: 0.7}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, rq, err := gp.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(res.ELBO - rq.ELBO); d > 1e-8 {
			t.Errorf("%T: ELBO %.2e apart", lik, d)
		}
		x := testkit.NormalMatrix(rand.New(rand.NewPCG(2, 2)), 7, 5)
		m, v := p.At(x).Latent(nil, nil)
		m2, v2 := q.At(x).Latent(nil, nil)
		for i := range m {
			if math.Abs(m[i]-m2[i]) > 1e-4*math.Sqrt(v[i]) || math.Abs(v[i]-v2[i]) > 1e-4*v[i] {
				t.Errorf("%T, point %d: N(%v, %v) and N(%v, %v)", lik, i, m[i], v[i], m2[i], v2[i])
			}
		}
	}
}

func TestGLMErrors(t *testing.T) {
	x := mat.NewDense(2, 2, []float64{1, 2, 3, 4})
	y := []float64{1, -1}
	bad := mat.NewDense(2, 2, []float64{1, 2, math.NaN(), 4})
	mean, _ := NewMeanField([]float64{0}, []float64{1})
	for _, c := range []struct {
		x    mat.Matrix
		y    []float64
		lik  Likelihood
		opt  *GLMOptions
		want error
		text string
	}{
		{nil, y, BernoulliLogit{}, nil, ErrEmpty, "nil matrix"},
		{x, y[:1], BernoulliLogit{}, nil, ErrShape, "2 rows"},
		{bad, y, BernoulliLogit{}, nil, ErrNotFinite, "row 1, column 0"},
		{bad, y, BernoulliLogit{}, &GLMOptions{Intercept: true}, ErrNotFinite, "row 1, column 0"},
		{x, []float64{1, 0}, BernoulliLogit{}, nil, ErrLabel, "1"},
		{x, []float64{1, math.Inf(1)}, nil, nil, ErrNotFinite, "1"},
		{x, y, GaussianNoise{Var: -1}, nil, ErrParam, "Var"},
		{x, y, nil, &GLMOptions{PriorSD: -1}, ErrParam, "PriorSD"},
		{x, y, nil, &GLMOptions{PriorSD: 1e200}, ErrNotPosDef, "weight 0"},
		{x, y, nil, &GLMOptions{InterceptSD: math.NaN()}, ErrParam, "InterceptSD"},
		{x, y, nil, &GLMOptions{Rank: -1}, ErrParam, "Rank"},
		{x, y, nil, &GLMOptions{Covariance: 9}, ErrParam, "Covariance"},
		{x, y, nil, &GLMOptions{Coordinates: 9}, ErrParam, "Coordinates"},
		{x, y, nil, &GLMOptions{Prior: mean}, ErrShape, "1 dimensions"},
		{x, y, nil, &GLMOptions{Offset: []float64{1}}, ErrShape, "Offset"},
		{x, y, nil, &GLMOptions{Offset: []float64{1, math.NaN()}}, ErrNotFinite, "Offset[1]"},
		{x, y, nil, &GLMOptions{Weights: []float64{1, -1}}, ErrParam, "Weights[1]"},
		{x, y, nil, &GLMOptions{Names: []string{"a"}}, ErrShape, "Names"},
		{NewSparse(0), nil, nil, nil, ErrEmpty, "column"},
	} {
		_, err := NewGLM(c.x, c.y, c.lik, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%+v: error %v, want %v with %q", c.opt, err, c.want, c.text)
		}
	}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Estimator: Pathwise{Samples: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Fit(context.Background(), nil); !errors.Is(err, ErrParam) {
		t.Errorf("estimator: %v", err)
	}
}

// Predictions: the closed forms from Latent, the intercept, sparse and dense points.
func TestGLMPredict(t *testing.T) {
	c := kit.ToyGLM("", 200, 3, BernoulliLogit{}, 95, &GLMOptions{Intercept: true})
	p, _ := kit.FitGLM(t, c.Glm(t, c.X), nil)
	m, v := p.At(c.X).Latent(nil, nil)
	cov, w := p.Cov(), p.Mean(nil)
	for i := range m {
		row := mat.NewVecDense(4, append(append([]float64(nil), c.X.RawRowView(i)...), 1))
		if e := math.Abs(m[i] - mat.Dot(row, mat.NewVecDense(4, w))); e > 1e-12 {
			t.Errorf("mean %d off by %v", i, e)
		}
		if e := math.Abs(v[i] - mat.Inner(row, cov, row)); e > 1e-12 {
			t.Errorf("variance %d off by %v", i, e)
		}
	}
	m2, v2 := p.At(SparseOf(c.X)).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]-m2[i]) > 1e-12 || math.Abs(v[i]-v2[i]) > 1e-12 {
			t.Errorf("row %d: sparse and dense differ", i)
		}
	}
	prob, lp := p.At(c.X).Prob(nil, 1), p.At(c.X).LogProb(nil, c.Y)
	mean, _, err := p.At(c.X).Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range prob {
		want := prob[i]
		if c.Y[i] < 0 {
			want = 1 - want
		}
		if math.Abs(math.Exp(lp[i])-want) > 1e-12 || math.Abs(mean[i]-(2*prob[i]-1)) > 1e-10 {
			t.Errorf("row %d: P(+1) = %v, P(y) = %v, mean %v", i, prob[i], math.Exp(lp[i]), mean[i])
		}
	}
	lo, hi := p.WeightQuantile(nil, 0.025), p.WeightQuantile(nil, 0.975)
	for j, s := range p.SD(nil) {
		if math.Abs(hi[j]-lo[j]-2*1.959963984540054*s) > 1e-12 {
			t.Errorf("interval of weight %d", j)
		}
	}
	corr := p.Corr()
	if math.Abs(corr.At(0, 1)-cov.At(0, 1)/math.Sqrt(cov.At(0, 0)*cov.At(1, 1))) > 1e-14 ||
		corr.At(2, 2) != 1 {
		t.Error("correlations")
	}
	nan := mat.NewDense(2, 3, []float64{1, math.NaN(), 0, 0, 0, 0})
	if m, v := p.At(nan).Latent(nil, nil); !math.IsNaN(m[0]) || !math.IsNaN(v[0]) || m[1] != w[3] {
		t.Errorf("a NaN among the features: %v, %v", m, v)
	}
}

// Steps do not allocate after the first few.
func TestGLMAllocs(t *testing.T) {
	c := kit.ToyGLM("", 400, 6, BernoulliLogit{}, 97, nil)
	for _, x := range []mat.Matrix{c.X, SparseOf(c.X)} {
		for _, batch := range [][]int{nil, {1, 5, 9, 100, 200, 301, 302, 303}} {
			st, err := c.Glm(t, x).NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			step := func() {
				if _, err := st.Step(context.Background(), nil, batch, math.Inf(1)); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 {
				step()
			}
			if n := testing.AllocsPerRun(20, step); n > 0 && !testkit.Race {
				t.Errorf("%T, batch of %d: %v allocations a step", x, len(batch), n)
			}
		}
	}
}

// A likelihood that is not log-concave, under a prior without information, with hardly more rows
// than weights.
func TestGLMNotLogConcave(t *testing.T) {
	t.Parallel()
	for seed := range testkit.Shorter[uint64](60, 20) {
		c := kit.ToyGLM("", 12+int(seed%14), 3+int(seed%9), StudentT{}, seed,
			&GLMOptions{PriorSD: 1000, Intercept: seed%2 == 0})
		if _, res := kit.FitGLM(t, c.Glm(t, c.X), nil); res.Status != Converged {
			t.Errorf("seed %d: %v, gap %v", seed, res.Status, res.Gap)
		}
	}
}

// TestGLMWeightless checks that rows of weight 0 have no effect, whatever their counts are.
func TestGLMWeightless(t *testing.T) {
	x := mat.NewDense(6, 2, []float64{1, 0.3, 1, -1.2, 1, 0.7, 1, 2, 1, -0.4, 1, 0.1})
	y, w := []float64{40, 2, 900, 5, 0, 7}, []float64{0, 1, 0, 2, 1, 1}
	kept := mat.NewDense(4, 2, []float64{1, -1.2, 1, 2, 1, -0.4, 1, 0.1})
	for _, lik := range []Likelihood{Poisson{}, NegativeBinomial{Shape: 2},
		Binomial{Trials: 1000}} {
		var elbo [2]float64
		for i, c := range []struct {
			x    *mat.Dense
			y, w []float64
		}{{x, y, w}, {kept, []float64{2, 5, 0, 7}, []float64{1, 2, 1, 1}}} {
			g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Weights: c.w})
			if err != nil {
				t.Fatal(err)
			}
			_, res := kit.FitGLM(t, g, nil)
			elbo[i] = res.ELBO
		}
		if !(math.Abs(elbo[0]-elbo[1]) <= 1e-9) {
			t.Errorf("%T: ELBO %v, without the rows %v", lik, elbo[0], elbo[1])
		}
	}
}

// Sparse rows are as accurate as dense ones where V has entries that cancel.
func TestGLMSparseCancellation(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	n := testkit.Shorter(1000, 300)
	x, y := mat.NewDense(n, 5, nil), make([]float64, n)
	for i := range n {
		x.Set(i, rng.IntN(5), 1)
		y[i] = 1
		if rng.Float64() < 0.4 {
			y[i] = -1
		}
	}
	for _, sd := range []float64{1, 1e3, 1e5, 1e6} {
		o := &GLMOptions{Intercept: true, PriorSD: sd, InterceptSD: sd}
		a, err := NewGLM(x, y, BernoulliLogit{}, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewGLM(SparseOf(x), y, BernoulliLogit{}, o)
		if err != nil {
			t.Fatal(err)
		}
		_, r1 := kit.FitGLM(t, a, nil)
		q, r2 := kit.FitGLM(t, b, nil)
		_, v1 := q.At(x).Latent(nil, nil)
		_, v2 := q.At(SparseOf(x)).Latent(nil, nil)
		// The columns add up to the intercept, and P has lost the digits of the priors.
		if math.Abs(r1.ELBO-r2.ELBO) > 1e-6 || math.Abs(v2[0]/v1[0]-1) > 1e-6 {
			t.Errorf("prior sd %g: ELBO %v and %v (%v); variance %v and %v", sd, r1.ELBO, r2.ELBO,
				r2.Status, v1[0], v2[0])
		}
	}
}
