package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// waveRows returns n rows with two columns, a third one that is 1, and five that indicate a level.
func waveRows(n int) *mat.Dense {
	rng := rand.New(rand.NewPCG(1, 9))
	x := mat.NewDense(n, 8, nil)
	for i := range n {
		x.Set(i, 0, rng.NormFloat64())
		x.Set(i, 1, rng.NormFloat64())
		x.Set(i, 2+i%5, 1)
	}
	return x
}

// TestIntegrateParts checks that the prediction of every integrated model is the mean of the
// predictions of its parts.
func TestIntegrateParts(t *testing.T) {
	ctx, n := context.Background(), shorter(25, 10)
	all := waveRows(2 * n)
	real, labels, counts, classes := make([]float64, 2*n), make([]float64, 2*n),
		make([]float64, 2*n), make([]float64, 2*n)
	for i := range real {
		real[i] = 0.5*all.At(i, 0) + math.Sin(float64(i))
		labels[i] = plusMinus(real[i] > 0)
		counts[i] = float64(i*i%4) + float64(i%2)
		classes[i] = float64(i * i % 3)
	}
	few := all.Slice(0, n, 0, 2)
	opt := &LearnOptions{Integrate: true}
	posts := map[string]func() (latents, error){}
	for name, c := range map[string]struct {
		lik Likelihood
		y   []float64
	}{
		"GaussianNoise":    {GaussianNoise{}, real},
		"BernoulliLogit":   {BernoulliLogit{}, labels},
		"Poisson":          {Poisson{}, counts},
		"NegativeBinomial": {NegativeBinomial{}, counts},
		"Softmax":          {Softmax{Classes: 3}, classes},
	} {
		posts["GLM "+name] = func() (latents, error) {
			_, p, _, err := must(NewGLM(few, c.y[:n], c.lik, &GLMOptions{Intercept: true})).Learn(ctx,
				nil, opt)
			return p, err
		}
		if name != "NegativeBinomial" {
			posts["GP "+name] = func() (latents, error) {
				_, p, _, err := must(NewGP(few, c.y[:n], SquaredExp{}, c.lik, nil)).Learn(ctx, nil, opt)
				return p, err
			}
		}
	}
	posts["SparseGP"] = func() (latents, error) {
		_, p, _, err := must(NewSparseGP(all.Slice(0, 2*n, 0, 2), real, SquaredExp{}, GaussianNoise{},
			&SparseGPOptions{Rank: n})).Learn(ctx, nil, opt)
		return p, err
	}
	posts["groups"] = func() (latents, error) {
		_, p, _, err := must(NewGLM(all, real, GaussianNoise{}, &GLMOptions{Intercept: true,
			Groups: []Group{{First: 2, Levels: 6}}})).Learn(ctx, nil, opt)
		return p, err
	}
	for name, fit := range posts {
		post, err := fit()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		prob, parts := post.components()
		if len(parts) < 5 {
			t.Errorf("%s: %d parts", name, len(parts))
		}
		at := mat.NewDense(1, post.Cols(), nil)
		own, total := predictAt(post, at), 0.0
		for k, part := range parts {
			q := predictAt(part, at)
			total += prob[k] * q.Prob(nil, 1)[0]
		}
		if got := own.Prob(nil, 1)[0]; !(math.Abs(got-total) <= 1e-12*total) {
			t.Errorf("%s: P(1) is %v, and %v by parts", name, got, total)
		}
	}
}

// TestIntegrateCanceled checks that a canceled run still has a posterior, without integration over
// the covariances of groups.
func TestIntegrateCanceled(t *testing.T) {
	x := waveRows(60)
	y := make([]float64, 60)
	for i := range y {
		y[i] = plusMinus(x.At(i, 0)+float64(i%5)-2 > math.Sin(float64(i)))
	}
	g := must(NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: true,
		Groups: []Group{{First: 2, Levels: 6}}}))
	whole, res, err := g.Fit(context.Background(), nil)
	if err != nil || whole.mixture == nil {
		t.Fatalf("a fit gives the error %v and the mixture %v", err, whole.mixture)
	}
	st := res.Stepper.(*siteStepper)
	p := g.posterior(make([]float64, g.dim()), nil, g.Len())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	defer st.begin(ctx, nil).Forget()
	if err := p.integrateGroups(st); err != nil || p.mixture != nil {
		t.Errorf("a halted integration gives the error %v and the mixture %v", err, p.mixture)
	}
}
