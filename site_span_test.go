package pgsvi

import (
	"bytes"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// spanProblem is a GLM of few rows in raw units, with a Unix time stamp and features of 1e-6, and its Stepper over the weights.
func spanProblem(t *testing.T, lik Likelihood) (*GLM, func() *siteStepper) {
	t.Helper()
	rng := testRand(3)
	const n, d = 6, 120
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		x.Set(i, 0, 1.7e9+1e5*rng.NormFloat64())
		x.Set(i, 1, 1e-6*rng.NormFloat64())
		y[i] = plusMinus(rng.IntN(2) == 0)
	}
	g := mustGLM(t, x, y, lik, GLMOptions{PriorSD: 2})
	return g, func() *siteStepper {
		s := mustStepper(t, g)
		if _, ok := s.alg.(*spanAlgebra); !ok {
			t.Fatalf("a %T", s.alg)
		}
		w, err := newWeightAlgebra(&g.linearModel, crew{workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.alg = w
		return s
	}
}

// TestSpan: few rows are fitted over their span as they are over the weights, by accepted steps and by those of the paper, which go on over the weights, and
// runs saved in either are gone on with to the same bits.
func TestSpan(t *testing.T) {
	t.Parallel()
	g, direct := spanProblem(t, BernoulliLogit{})
	for _, s := range []*Solver{{}, {StepSize: ConstantStep(0.5), MaxIter: 12, Converger: Never{}}} {
		res, err := s.Run(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		if wide := algOf[*spanAlgebra](res.Stepper).wide; wide != (s.StepSize != nil) {
			t.Errorf("over the weights: %v", wide)
		}
		want, err := s.Resume(t.Context(), &Result{Stepper: direct()})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(res.ELBO-want.ELBO) > 1e-9*math.Abs(want.ELBO)+res.ELBOErr+want.ELBOErr {
			t.Errorf("ELBO %.14g, over the weights %.14g", res.ELBO, want.ELBO)
		}
		m, cov, err := algOf[weighted](res.Stepper).weights()
		if err != nil {
			t.Fatal(err)
		}
		wm, wcov, err := algOf[weighted](want.Stepper).weights()
		if err != nil {
			t.Fatal(err)
		}
		v, wv := make([]float64, len(m)), make([]float64, len(m))
		cov.diag(v)
		wcov.diag(wv)
		for j := range m {
			if math.Abs(m[j]-wm[j]) > 1e-5*math.Sqrt(wv[j]) || math.Abs(v[j]-wv[j]) > 1e-6*wv[j] {
				t.Errorf("weight %d: N(%g, %g), over the weights N(%g, %g)", j, m[j], v[j], wm[j], wv[j])
			}
		}

		part := *s
		part.MaxIter = 4
		half, err := part.Run(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := half.Save(&b); err != nil {
			t.Fatal(err)
		}
		if half, err = s.LoadResult(t.Context(), &b, g); err == nil {
			half, err = s.Resume(t.Context(), half)
		}
		if err != nil || half.ELBO != res.ELBO || half.K != res.K {
			t.Errorf("ELBO %v after %d steps, resumed %v after %d: %v", res.ELBO, res.K, half.ELBO, half.K, err)
		}
	}
}

// TestStreamSpan: a stream of few rows and many weights in raw units has the posterior of a fit.
func TestStreamSpan(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{GaussianNoise{}, BernoulliProbit{}} {
		g, _ := spanProblem(t, lik)
		n, d := g.x.rows, g.x.cols
		s, err := NewGLMStream(d, lik, &GLMOptions{PriorSD: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			_, row := g.x.row(i)
			if err := s.Add(Row{Val: row, Y: g.terms.y[i]}); err != nil {
				t.Fatal(err)
			}
		}
		post, err := s.Posterior()
		if err != nil {
			t.Fatal(err)
		}
		if s.engine.(*glmStream).block.near == nil {
			t.Error("its block was not solved over the span")
		}
		want, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, sd, wm, wsd := post.Mean(nil), post.SD(nil), want.Mean(nil), want.SD(nil)
		for j := range m {
			if math.Abs(m[j]-wm[j]) > 1e-2*wsd[j] || math.Abs(math.Log(sd[j]/wsd[j])) > 1e-2 {
				t.Errorf("%T, weight %d: N(%g, %g²) in a stream, N(%g, %g²) in a fit", lik, j, m[j], sd[j], wm[j], wsd[j])
			}
		}
	}
}
