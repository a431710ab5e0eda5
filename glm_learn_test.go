package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// glmLearnCase is a small GLM with hyper-parameters of every kind.
type glmLearnCase struct {
	name string
	lik  Likelihood
	wide bool // more weights than rows
	opt  GLMOptions
	y    func(f, u float64) float64
}

func glmLearnCases() []glmLearnCase {
	y := map[string]func(f, u float64) float64{}
	for _, c := range learnCases() {
		y[c.name] = c.y
	}
	blocks := GLMOptions{Intercept: true, Blocks: []int{0, 1, 1, 0, 2}}
	each := GLMOptions{Blocks: []int{0, 1, 2, 3, 4}, Autoscale: true}
	var wide GLMOptions
	for j := range 60 {
		wide.Blocks = append(wide.Blocks, j%2)
	}
	diagonal := blocks
	diagonal.Covariance = DiagonalCovariance
	weights := make([]float64, 40)
	for i := range weights {
		weights[i] = float64(i%3) * 0.7
	}
	return []glmLearnCase{
		{name: "logit", lik: BernoulliLogit{}, opt: GLMOptions{Intercept: true}, y: y["logit"]},
		{name: "logit, blocks", lik: BernoulliLogit{}, opt: blocks, y: y["logit"]},
		{name: "probit, ARD", lik: BernoulliProbit{}, opt: each, y: y["logit"]},
		{name: "Poisson, weights and offset", lik: Poisson{}, opt: GLMOptions{Weights: weights, Offset: weights, Blocks: blocks.Blocks}, y: y["Poisson, sum"]},
		{name: "Gaussian", lik: GaussianNoise{Var: 0.2}, opt: blocks, y: y["Laplace"]},
		{name: "Student", lik: StudentT{DF: 4, Scale: 0.3}, opt: blocks, y: y["Laplace"]},
		{name: "negative binomial", lik: NegativeBinomial{Shape: 2}, opt: blocks, y: y["negative binomial"]},
		{name: "ordinal", lik: Ordinal{Cuts: []float64{-0.7, 0.2, 1.1}}, opt: GLMOptions{Autoscale: true}, y: y["ordinal"]},
		{name: "logit, wide", lik: BernoulliLogit{}, wide: true, opt: wide, y: y["logit"]},
		{name: "Gaussian, wide", lik: GaussianNoise{Var: 0.2}, wide: true, opt: GLMOptions{Intercept: true}, y: y["Laplace"]},
		{name: "Student, wide", lik: StudentT{DF: 4, Scale: 0.3}, wide: true, opt: wide, y: y["Laplace"]},
		{name: "logit, diagonal", lik: BernoulliLogit{}, opt: diagonal, y: y["logit"]},
		{name: "gamma, diagonal", lik: Gamma{Shape: 2}, opt: diagonal, y: y["gamma"]},
		{name: "Student, diagonal", lik: StudentT{DF: 4, Scale: 0.3}, opt: diagonal, y: y["Laplace"]},
	}
}

// model returns the model of n rows, some of them equal.
func (c glmLearnCase) model(t testing.TB, n int) *GLM {
	t.Helper()
	rng, d := testRand(23), 5
	if c.wide {
		d = 60
	}
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64()/(1+float64(j%3)))
		}
		if i%7 == 6 {
			x.SetRow(i, x.RawRowView(i-1))
		}
		y[i] = c.y(x.At(i, 0)-0.5*x.At(i, 2), rng.Float64())
	}
	if c.opt.Weights != nil {
		c.opt.Weights, c.opt.Offset = c.opt.Weights[:n], c.opt.Offset[:n]
	}
	g, err := NewGLM(x, y, c.lik, &c.opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The gradient at the best q is that of the ELBO at the best q, by differences, and that ELBO is what a fit finds.
func TestGLMLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range glmLearnCases() {
		g := c.model(t, shorter(40, 12))
		l, err := g.Learner(nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m, err := l.learning(crew{1, nil})
		if err != nil {
			t.Fatal(err)
		}
		if _, dual := m.(*siteLearning); dual != (c.wide) {
			t.Errorf("%s: %T", c.name, m)
		}
		m.use(crew{1, nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64) learnPoint {
			x, err := m.evaluate(theta, 1e-12, math.Inf(1), true)
			if err != nil || math.IsInf(x.f, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.f, err)
			}
			return x
		}
		x := at(theta)
		m.keep(false)
		lin, err := l.scale.at(theta)
		if err != nil {
			t.Fatal(err)
		}
		fitted := &GLM{linearModel: *lin, opt: g.opt}
		if _, res, err := fitted.Fit(context.Background(), nil); err != nil || math.Abs(res.ELBO+x.f) > 1e-6 {
			t.Errorf("%s: −ELBO %v, of a fit %v, %v", c.name, x.f, -res.ELBO, err)
		}
		for i := range theta {
			const h = 1e-3
			diff := func(h float64) float64 {
				v := theta[i]
				defer func() { theta[i] = v }()
				theta[i] = v + h
				up := at(theta).f
				theta[i] = v - h
				return (up - at(theta).f) / (2 * h)
			}
			want := (4*diff(h) - diff(2*h)) / 3
			if math.Abs(x.grad[i]-want) > 1e-5*(1+floats.Norm(x.grad, 2)) {
				t.Errorf("%s: derivative in %s is %v, by differences %v", c.name, l.space.coords[l.space.free[i]].Name, x.grad[i], want)
			}
		}
		var e mat.EigenSym
		if !e.Factorize(x.info, false) || e.Values(nil)[0] < -1e-9 {
			t.Errorf("%s: the average information is not positive semidefinite", c.name)
		}
	}
}

// Learning by GLMOptions.Learn is that by GLM.Learn; the parameters learned are no worse than any near them.
func TestGLMLearn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for i, c := range glmLearnCases() {
		if i%shorter(1, 3) > 0 {
			continue
		}
		g := c.model(t, shorter(40, 12))
		best, post, l, err := g.Learn(ctx, nil, nil)
		if err != nil || l.Fit == nil {
			t.Errorf("%s: %v, %+v", c.name, err, l)
			continue
		}
		if math.Abs(-l.Fit.ELBO-l.LogPrior-l.Objective) > 1e-4 {
			t.Errorf("%s: ELBO %v and log prior %v, objective %v", c.name, l.Fit.ELBO, l.LogPrior, l.Objective)
		}
		learner, err := g.Learner(nil)
		if err != nil {
			t.Fatal(err)
		}
		theta := make([]float64, len(learner.space.free))
		for i, at := range learner.space.free {
			theta[i] = learner.space.coords[at].theta(l.Params[at].Value)
		}
		m, err := learner.learning(crew{1, nil})
		if err != nil {
			t.Fatal(err)
		}
		m.use(crew{1, nil})
		for i := range theta {
			for _, h := range []float64{-0.1, 0.1} {
				at := slices.Clone(theta)
				at[i] += h
				x, err := m.evaluate(at, 1e-6, math.Inf(1), false)
				if f := x.f + learner.space.penalty(at, nil); err != nil || f < l.Objective-1e-4 {
					t.Errorf("%s: objective %v, %+v further in %s %v, %v", c.name, l.Objective, h, l.Params[learner.space.free[i]].Name, f, err)
				}
			}
		}
		opt := c.opt
		opt.Learn = &LearnOptions{}
		c.opt = opt
		again, res, err := c.model(t, shorter(40, 12)).Fit(ctx, nil)
		if err != nil || res.ELBO != l.Fit.ELBO || !slices.Equal(again.Mean(nil), post.Mean(nil)) {
			t.Errorf("%s: by Fit: %v, %v", c.name, res.ELBO-l.Fit.ELBO, err)
		}
		if p, res, err := best.Fit(ctx, nil); err != nil || p == nil || math.Abs(res.ELBO-l.Fit.ELBO) > 1e-4 {
			t.Errorf("%s: fitted anew %v, want %v, %v", c.name, res.ELBO, l.Fit.ELBO, err)
		}
		if c.opt.Covariance != DiagonalCovariance {
			if _, err := best.LOO(ctx, post); err != nil {
				t.Errorf("%s: LOO: %v", c.name, err)
			}
		}
	}
}

// A search that is canceled, saved and loaded ends with the same bits as one that is not, on any number of workers.
func TestGLMLearnResume(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range []glmLearnCase{glmLearnCases()[1], glmLearnCases()[5], glmLearnCases()[10], glmLearnCases()[12]}[:shorter(4, 2)] {
		g, opt := c.model(t, shorter(40, 12)), &LearnOptions{Restarts: 1}
		l, err := g.Learner(opt)
		if err != nil {
			t.Fatal(err)
		}
		_, want, all, err := g.Learn(ctx, nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{1, 2, all.Evaluations - 1} {
			stopped, cancel := context.WithCancel(ctx)
			s := &Solver{Workers: 3, Recorder: RecorderFunc(func(it Iteration) {
				if it.K == at {
					cancel()
				}
			})}
			res, err := s.Run(stopped, l)
			if !errors.Is(err, context.Canceled) || res.K != at {
				t.Fatalf("%s: canceled after %d: %v", c.name, at, err)
			}
			var file bytes.Buffer
			if err := res.Save(&file); err != nil {
				t.Fatal(err)
			}
			s = &Solver{}
			if res, err = s.LoadResult(ctx, &file, l); err != nil {
				t.Fatal(err)
			}
			if res, err = s.Resume(ctx, res); err != nil {
				t.Fatal(err)
			}
			_, post, got, err := l.Learned(ctx, s, res)
			if err != nil {
				t.Fatal(err)
			}
			if got.Objective != all.Objective || got.Evaluations != all.Evaluations || !slices.Equal(got.Starts, all.Starts) || !slices.Equal(post.Mean(nil), want.Mean(nil)) {
				t.Errorf("%s: resumed after %d: objective %v in %d evaluations, want %v in %d", c.name, at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
			}
		}
	}
}

func TestGLMLearnErrors(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), glmLearnCases()[1]
	x, y := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 7}), []float64{1, -1, 1}
	prior, err := NewMeanField([]float64{0, 0}, []float64{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		opt  GLMOptions
		is   error
		says string
	}{
		{GLMOptions{Blocks: []int{0}}, ErrShape, "Blocks has 1 elements"},
		{GLMOptions{Blocks: []int{0, 2}}, ErrParam, "Blocks[1] is 2"},
		{GLMOptions{Blocks: []int{1, 1}}, ErrParam, "no column in block 0"},
		{GLMOptions{Prior: prior}, ErrParam, "Prior is set"},
		{GLMOptions{Covariance: LowRankCovariance, Rank: 1}, ErrParam, "low-rank"},
		{GLMOptions{Learn: &LearnOptions{Fixed: []string{"PriorSD"}}}, ErrParam, `name "PriorSD", the parameters are GLM.PriorSD`},
		{GLMOptions{Learn: &LearnOptions{Fixed: []string{"GLM.PriorSD"}}}, ErrParam, "no hyper-parameter is left"},
		{GLMOptions{Blocks: []int{0, 1}, Learn: &LearnOptions{Bounds: map[string][2]float64{"GLM.PriorSD[1]": {-1, 1}}}}, ErrParam, "outside its range"},
	} {
		if e.opt.Learn == nil {
			e.opt.Learn = &LearnOptions{}
		}
		g, err := NewGLM(x, y, BernoulliLogit{}, &e.opt)
		if err == nil {
			_, _, err = g.Fit(ctx, nil)
		}
		if !errors.Is(err, e.is) || !strings.Contains(err.Error(), e.says) || !prefixedOnce(err) {
			t.Errorf("%+v: %v", e.opt, err)
		}
	}
	empty, err := NewGLM(NewSparse(2), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := empty.Learn(ctx, nil, nil); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if _, err := NewGLMStream(2, nil, &GLMOptions{Learn: &LearnOptions{}}); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	g := c.model(t, 12)
	if _, _, _, err := g.Learn(ctx, &Solver{Divergence: Euclidean{}}, nil); !errors.Is(err, ErrNoProx) {
		t.Error(err)
	}
	l, err := g.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Solver{MaxIter: 1}).Run(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := l.Learned(ctx, nil, res); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(ctx)
	best, post, got, err := g.Learn(stopped, &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if it.K == 2 {
			cancel()
		}
	})}, nil)
	if !errors.Is(err, context.Canceled) || best == nil || post == nil || got.Fit != nil || got.Search.Status != Canceled {
		t.Errorf("%v, %v, %v, %+v", best, post, err, got)
	}
}

// Whatever the data, learning ends with a posterior and its objective.
func TestGLMLearnHarness(t *testing.T) {
	t.Parallel()
	rng := testRand(7)
	for trial := range shorter(120, 14) {
		c := glmLearnCases()[trial%len(glmLearnCases())]
		n, d := 1+rng.IntN(40), 1+rng.IntN(6)
		if c.wide {
			d = n + rng.IntN(20)
		}
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		units := make([]float64, d)
		for j := range units {
			units[j] = math.Exp(6 * rng.NormFloat64())
		}
		for i := range n {
			for j := range d {
				if x.Set(i, j, units[j]*rng.NormFloat64()); j > 0 && trial%3 == 2 {
					x.Set(i, j, x.At(i, 0)*float64(j)) // collinear
				}
			}
			if i > 0 && rng.IntN(3) == 0 {
				x.SetRow(i, x.RawRowView(i-1))
			}
			y[i] = c.y(rng.NormFloat64(), rng.Float64())
			if trial%4 == 3 {
				y[i] = y[0]
			}
		}
		opt := GLMOptions{Intercept: trial%2 == 0, Autoscale: trial%5 == 0, Covariance: c.opt.Covariance}
		if trial%3 > 0 {
			for j := range d {
				opt.Blocks = append(opt.Blocks, j%(1+trial%7%d))
			}
		}
		g, err := NewGLM(x, y, c.lik, &opt)
		if err != nil {
			t.Fatal(err)
		}
		_, post, l, err := g.Learn(context.Background(), nil, &LearnOptions{NoPrior: trial%5 == 4})
		if err != nil {
			t.Errorf("trial %d, %s, %d×%d: %v", trial, c.name, n, d, err)
			continue
		}
		if l.Fit == nil {
			t.Errorf("trial %d, %s, %d×%d: the search ended %v after %d evaluations", trial, c.name, n, d, l.Search.Status, l.Evaluations)
			continue
		}
		if _, ok := dense.AllFinite(append(post.Mean(nil), post.SD(nil)...)); !ok || !(math.Abs(l.Objective+l.LogPrior+l.Fit.ELBO) < 1e-3*(1+math.Abs(l.Objective))) {
			t.Errorf("trial %d, %s, %d×%d: objective %v, ELBO %v", trial, c.name, n, d, l.Objective, l.Fit.ELBO)
		}
		for _, p := range l.Params {
			if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || math.IsNaN(p.SD) {
				t.Errorf("trial %d, %s: %+v", trial, c.name, p)
			}
		}
	}
}
