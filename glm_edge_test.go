package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// Rows whose gradients in the mean cancel still have precision.
func TestGLMBalancedRows(t *testing.T) {
	s := newStream(t, 1, GaussianNoise{}, nil)
	for range 5000 {
		if err := s.Add(Row{Val: []float64{1}}); err != nil {
			t.Fatal(err)
		}
	}
	if sd, want := streamPosterior(t, s).SD(nil)[0], 1/math.Sqrt(5001); math.Abs(sd-want) > 1e-9 {
		t.Errorf("sd %v, want %v", sd, want)
	}
	n := 400
	x, y := make([]float64, n), make([]float64, n)
	for i := range n {
		x[i], y[i] = 1, float64(1-2*(i%2))
	}
	g, err := NewGLM(mat.NewDense(n, 1, x), y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, full := fitGLM(t, g, nil)
	if _, r := fitGLM(t, g, &Solver{BatchSize: 20, Sampler: InOrder{}}); full.ELBO-r.ELBO > 1e-6 {
		t.Errorf("in blocks %v at ELBO %v, want %v", r.Status, r.ELBO, full.ELBO)
	}
}

// A stream of one block, however hard, is the fit; and of several, near it.
func TestStreamHardBlocks(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{Exponential{}, Poisson{}} {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 5))
			x := normalMatrix(rng, 1000, 3)
			y := responses(rng, lik, predictors(x, []float64{1, -1, 0.5}))
			o := &GLMOptions{PriorSD: 10, Intercept: true}
			g, err := NewGLM(x, y, lik, o)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := fitGLM(t, g, nil)
			s := newStream(t, 3, lik, o)
			if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
				t.Fatal(err)
			}
			checkApart(t, "one block", streamPosterior(t, s), p, 0.01)
		}
	}
}

// Taking nothing out leaves the posterior, taking out what was put in gives the prior, and what
// was not put in is an error.
func TestStreamRemoveAll(t *testing.T) {
	ctx := context.Background()
	c := toyGLM("", 3000, 3, BernoulliLogit{}, 3, nil)
	s := newStream(t, 3, c.lik, nil)
	if err := s.AddAll(ctx, Rows(c.x, c.y)); err != nil {
		t.Fatal(err)
	}
	p := streamPosterior(t, s)
	if err := s.RemoveAll(ctx, func(func(Row, error) bool) {}); err != nil {
		t.Fatal(err)
	}
	checkApart(t, "nothing removed", streamPosterior(t, s), p, 0.02)

	for seed := range uint64(30) {
		c := toyGLM("", 50, 3, BernoulliLogit{}, seed, nil)
		s := newStream(t, 3, c.lik, &GLMOptions{Intercept: true})
		prior := streamPosterior(t, s)
		if err := s.AddAll(ctx, Rows(c.x, c.y)); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveAll(ctx, Rows(c.x, c.y)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		checkApart(t, "all removed", streamPosterior(t, s), prior, 0.05)
		if s.Len() != 0 {
			t.Errorf("%d rows", s.Len())
		}
	}
	empty := streamPosterior(t, newStream(t, 1, GaussianNoise{}, nil))
	if q, err := empty.Remove(ctx, Rows(mat.NewDense(1, 1, []float64{0.1}), []float64{1})); !errors.Is(err, ErrNotPosDef) {
		t.Errorf("a row that was never added: %v, %v", q, err)
	}
}

// One row without expectations does not take its block along.
func TestStreamSalvage(t *testing.T) {
	s := newStream(t, 1, Poisson{}, nil)
	err := s.AddAll(context.Background(), func(yield func(Row, error) bool) {
		for i := range 1024 {
			r := Row{Val: []float64{1}, Y: 2}
			if i == 1000 {
				r.Offset = 1e5 // too far for all else to make up for
			}
			if !yield(r, nil) {
				return
			}
		}
	})
	if !errors.Is(err, ErrNotFinite) || s.Len() != 1023 {
		t.Errorf("%v, %d rows", err, s.Len())
	}
	if p := streamPosterior(t, s); math.Abs(p.Mean(nil)[0]-math.Log(2)) > 0.05 {
		t.Errorf("mean %v, want log 2", p.Mean(nil))
	}
}

// Sparse rows are as accurate as dense ones where V has entries that cancel.
func TestGLMSparseCancellation(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	n := 1000
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
		_, r1 := fitGLM(t, a, nil)
		q, r2 := fitGLM(t, b, nil)
		_, v1 := q.At(x).Latent(nil, nil)
		_, v2 := q.At(SparseOf(x)).Latent(nil, nil)
		// The columns add up to the intercept, and P has no digits of what the priors say.
		if math.Abs(r1.ELBO-r2.ELBO) > 1e-6 || math.Abs(v2[0]/v1[0]-1) > 1e-6 {
			t.Errorf("prior sd %g: ELBO %v and %v (%v); variance %v and %v", sd, r1.ELBO, r2.ELBO, r2.Status, v1[0], v2[0])
		}
	}
}

// Autoscale leaves columns alone that do not vary, and does not see rows of weight 0.
func TestGLMAutoscale(t *testing.T) {
	n := 100
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, 0.1)
	}
	fit := func(x mat.Matrix, y []float64, o GLMOptions) *GLMPosterior {
		o.Autoscale = true
		g, err := NewGLM(x, y, nil, &o)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := fitGLM(t, g, nil)
		return p
	}
	if sd := fit(x, y, GLMOptions{Intercept: true}).SD(nil)[0]; sd > 1.0001 {
		t.Errorf("a column of 0.1: sd %v, above the prior's 1", sd)
	}
	x, y = mat.NewDense(5, 1, []float64{1, 2, 3, 4, 1000}), []float64{1, 2, 3, 4, 5}
	q, r := fit(x, y, GLMOptions{Weights: []float64{1, 1, 1, 1, 0}}), fit(x.Slice(0, 4, 0, 1), y[:4], GLMOptions{})
	if q.Mean(nil)[0] != r.Mean(nil)[0] {
		t.Errorf("with a row of weight 0 %v, without it %v", q.Mean(nil), r.Mean(nil))
	}
	half := mat.NewDense(4, 1, []float64{1, 0, 1, 0})
	if a, b := fit(half, y[:4], GLMOptions{}).SD(nil)[0], fit(SparseOf(half), y[:4], GLMOptions{}).SD(nil)[0]; a != b {
		t.Errorf("dense %v, sparse %v", a, b)
	}
}

// A row that a block has twice is one site.
func TestGLMRepeatedRow(t *testing.T) {
	c := toyGLM("", 500, 5, BernoulliLogit{}, 3, nil)
	g := c.glm(t, c.x)
	st, err := g.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := algOf[*weightAlgebra](st)
	if _, err := st.Step(context.Background(), nil, []int{0, 0, 0, 0, 1, 1, 1, 2, 2}, math.Inf(1)); err != nil {
		t.Fatal(err)
	}
	var w weightState
	w.copyFrom(s.prior)
	g.x.addGram(w.p, s.gamma, nil, new(designWork))
	if math.Abs(w.p[0]-s.run.p[0]) > 1e-9 {
		t.Errorf("precision %v, that of the sites %v", s.run.p[0], w.p[0])
	}
	_, full := fitGLM(t, g, nil)
	if _, r := fitGLM(t, g, &Solver{BatchSize: 50, Sampler: WithReplacement{}, EvalEvery: -1, MaxPasses: 200}); full.ELBO-r.ELBO > 1e-5 {
		t.Errorf("with replacement, after 200 passes %v nats below", full.ELBO-r.ELBO)
	}
}

func TestGLMOddities(t *testing.T) {
	ctx := context.Background()
	p := streamPosterior(t, newStream(t, 1, nil, nil))
	for level, want := range map[float64]float64{1e-15: -7.941345326170997, 0.5: 0, 0.975: 1.959963984540054} {
		if q := p.WeightQuantile(nil, level)[0]; math.Abs(q-want) > 1e-9 {
			t.Errorf("quantile at %v is %v, want %v", level, q, want)
		}
	}
	if q := p.WeightQuantile(nil, 1e-17)[0]; math.IsInf(q, 0) {
		t.Error("an infinite quantile")
	}
	prior, err := NewGaussian([]float64{0, 0}, mat.NewSymDense(2, []float64{1, 0.9, 0.9, 1}))
	if err != nil {
		t.Fatal(err)
	}
	x := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 1, 1})
	for _, o := range []*GLMOptions{{Prior: prior, Covariance: DiagonalCovariance}, {Covariance: LowRankCovariance}} {
		g, err := NewGLM(x, []float64{1, -1, 1}, BernoulliLogit{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.Fit(ctx, &Solver{Divergence: SymKL{}}); !errors.Is(err, ErrNoProx) {
			t.Errorf("%v: %v", o.Covariance, err)
		}
	}
	a, b := toyGLM("", 30, 2, BernoulliLogit{}, 1, nil), toyGLM("", 30, 2, BernoulliLogit{}, 2, nil)
	st, err := a.glm(t, a.x).NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.glm(t, b.x).Posterior(st); !errors.Is(err, ErrParam) {
		t.Errorf("a Stepper of another GLM: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	g, err := NewGLM(NewSparse(2), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Fit(canceled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Looking at the posterior in the middle of a run does not change where it ends.
func TestGLMLook(t *testing.T) {
	c := toyGLM("", 2000, 4, BernoulliLogit{}, 5, nil)
	g := c.glm(t, c.x)
	_, want := fitGLM(t, g, nil)
	looked := 0
	_, res := fitGLM(t, g, &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if p, err := g.Posterior(it.State); err == nil && p.Dim() == 4 {
			looked++
		}
	})})
	if res.ELBO != want.ELBO || looked != res.K {
		t.Errorf("ELBO %v, %v without a look; %d looks", res.ELBO, want.ELBO, looked)
	}
	var buf bytes.Buffer
	p, err := g.Posterior(res.Stepper)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Save(&buf); err != nil {
		t.Fatal(err)
	}
}
