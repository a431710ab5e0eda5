package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// learnCase is a small model with hyperparameters of every type.
type learnCase struct {
	name string
	k    Kernel
	lik  Likelihood
	y    func(f, u float64) float64 // as a function of a latent value and a uniform number
}

func learnCases() []learnCase {
	sign := func(f, u float64) float64 { return plusMinus(u < 1/(1+math.Exp(-2*f))) }
	count := func(f, u float64) float64 { return math.Floor(math.Exp(f) + 2*u) }
	plain := func(f, u float64) float64 { return f + u - 0.5 }
	return []learnCase{
		{"logit", SquaredExp{Scale: 1.5, Length: 0.8}, BernoulliLogit{}, sign},
		{"probit ARD", Matern52{Scale: 1.5, Lengths: []float64{0.8, 1.4}}, BernoulliProbit{}, sign},
		{"Poisson, sum",
			Sum{SquaredExp{Scale: 1, Length: 0.8}, Constant{Scale: 0.5}, White{Scale: 0.3}},
			Poisson{}, count},
		{"Gaussian, product", Sum{Product{SquaredExp{Scale: 1, Length: 2}, Periodic{Period: 1.7}},
			Linear{Scales: []float64{0.4, 0.2}}}, GaussianNoise{Var: 0.2}, plain},
		{"Gaussian, rational", rationalQuadratic(1, 1.2, 0.7), GaussianNoise{Var: 0.2}, plain},
		{"negative binomial", Matern32{Scale: 1, Length: 1}, NegativeBinomial{Shape: 2}, count},
		{"gamma", Matern52{Scale: 1, Length: 1}, Gamma{Shape: 2},
			func(f, u float64) float64 { return math.Exp(f) * (0.5 + u) }},
		{"Laplace", SquaredExp{Scale: 1, Length: 1}, Laplace{Scale: 0.3}, plain},
		{"Student", SquaredExp{Scale: 1, Length: 1}, StudentT{DF: 4, Scale: 0.3}, plain},
		{"ordinal", SquaredExp{Scale: 1, Length: 1}, Ordinal{Cuts: []float64{-0.7, 0.2, 1.1}},
			func(f, u float64) float64 { return math.Min(3, math.Max(0, math.Floor(f+u+1))) }},
		{"no derivatives", underived{SquaredExp{Scale: 1.5, Length: 0.8}}, BernoulliLogit{}, sign},
		{"ranges", ranged{SquaredExp{Scale: 1.5, Length: 0.8}, [2]float64{0.5, 1.7},
			[2]float64{math.Inf(-1), 0.9}, true}, rangedShape{NegativeBinomial{Shape: 2}}, count},
		{"ranges, differences",
			ranged{SquaredExp{Scale: 1.5, Length: 0.8}, [2]float64{-1, 1.7},
				[2]float64{0.3, math.Inf(1)}, false}, BernoulliLogit{}, sign},
	}
}

// classCase returns a case with the given number of classes.
func classCase(k Kernel, classes int) learnCase {
	return learnCase{"softmax", k, Softmax{Classes: classes}, func(f, u float64) float64 {
		return math.Min(float64(classes-1), math.Max(0, math.Floor(2*f+u+1)))
	}}
}

// model returns the model of n rows with duplicates.
func (c learnCase) model(t testing.TB, n int) *GP {
	t.Helper()
	rng := testRand(17)
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{2 * rng.NormFloat64(), rng.NormFloat64()})
		if i%7 == 6 {
			x.SetRow(i, x.RawRowView(i-1))
		}
		y[i] = c.y(math.Sin(2*x.At(i, 0))+0.5*x.At(i, 1), rng.Float64())
	}
	gp, err := NewGP(x, y, c.k, c.lik, &GPOptions{Jitter: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// ranged is a SquaredExp whose Scale and Length have the given Min and Max, with or without
// derivatives. Its values are NaN outside its ranges.
type ranged struct {
	SquaredExp
	scale, length [2]float64
	derived       bool
}

func (k ranged) Params() []Param {
	p := k.SquaredExp.Params()
	p[0].Min, p[0].Max, p[1].Min, p[1].Max = k.scale[0], k.scale[1], k.length[0], k.length[1]
	return p
}

func (k ranged) WithParams(v []float64) Kernel {
	k.SquaredExp = k.SquaredExp.WithParams(v).(SquaredExp)
	return k
}

func (k ranged) Cov(x, y []float64) float64 {
	for _, p := range k.Params() {
		if !(p.Value >= p.Min && p.Value <= p.Max) {
			return math.NaN()
		}
	}
	return k.SquaredExp.Cov(x, y)
}

func (k ranged) Grad(dst, x, y []float64) float64 {
	v := k.SquaredExp.Grad(dst, x, y)
	for i, p := range k.Params() {
		if !k.derived {
			dst[i] = math.NaN()
		} else if p.Min < 0 {
			dst[i] /= p.Value
		}
	}
	return v
}

// rangedShape is a NegativeBinomial with a Shape from 0 to 3.
type rangedShape struct{ NegativeBinomial }

func (b rangedShape) Params() []Param {
	p := b.NegativeBinomial.Params()
	p[0].Max = 3
	return p
}

func (b rangedShape) WithParams(v []float64) Likelihood {
	return rangedShape{b.NegativeBinomial.WithParams(v).(NegativeBinomial)}
}

// checkSlopes compares the derivatives of x, which is at(theta), with differences of step h, to a
// relative tolerance tol. It also checks that the information is positive semidefinite.
func checkSlopes(t *testing.T, name string, space *learnSpace, at func([]float64) search.Point,
	theta []float64, x search.Point, h, tol float64) {
	t.Helper()
	for i := range theta {
		diff := func(h float64) float64 {
			v := theta[i]
			defer func() { theta[i] = v }()
			theta[i] = v + h
			up := at(theta).F
			theta[i] = v - h
			return (up - at(theta).F) / (2 * h)
		}
		want := (4*diff(h) - diff(2*h)) / 3
		if math.Abs(x.Grad[i]-want) > tol*(1+floats.Norm(x.Grad, 2)) {
			t.Errorf("%s: derivative in %s is %v, by differences %v", name,
				space.coords[space.free[i]].Name, x.Grad[i], want)
		}
	}
	var e mat.EigenSym
	if !e.Factorize(x.Info, false) || e.Values(nil)[0] < -1e-9 {
		t.Errorf("%s: the average information is not positive semidefinite", name)
	}
}

// TestLearnGradient checks the gradient at the best q against differences of the ELBO at the best
// q.
func TestLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range learnCases() {
		gp := c.model(t, shorter(30, 12))
		l, err := learnerAs[*gpLearner](gp.Learner(nil))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := l.learning()
		m.Use(term.Crew{Workers: 1, Halt: nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64) search.Point {
			x, err := m.Evaluate(theta, 1e-13, math.Inf(1), true)
			if err != nil || math.IsInf(x.F, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.F, err)
			}
			return x
		}
		x := at(theta)
		m.Keep(false)
		checkSlopes(t, c.name, l.space, at, theta, x, 1e-4, 3e-6)
	}
}

func mustGP(t testing.TB, x mat.Matrix, y []float64, k Kernel, lik Likelihood) *GP {
	t.Helper()
	gp, err := NewGP(x, y, k, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// TestLearnResume checks that a search that is canceled, saved and loaded has the same bits at its
// end as an uninterrupted search, for any number of workers. The saved state includes the remaining
// restarts.
func TestLearnResume(t *testing.T) {
	t.Parallel()
	classes := classCase(SquaredExp{Scale: 1.5, Length: 0.8}, 3)
	for _, c := range []learnCase{learnCases()[0], learnCases()[8], classes} {
		gp := c.model(t, shorter(40, 16))
		opt := &LearnOptions{Restarts: 2}
		l, err := learnerAs[*gpLearner](gp.Learner(opt))
		if err != nil {
			t.Fatal(err)
		}
		_, want, all, err := gp.Learn(context.Background(), nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		if len(all.Starts) != 3 || all.Evaluations < 6 {
			t.Fatalf("%s: starts %v, %d evaluations", c.name, all.Starts, all.Evaluations)
		}
		for _, at := range []int{1, 3, all.Evaluations - 1} {
			ctx, cancel := context.WithCancel(context.Background())
			s := &Solver{Workers: 3, Record: func(it Iteration) {
				if it.K == at {
					cancel()
				}
			}}
			res, err := s.Run(ctx, l)
			if !errors.Is(err, context.Canceled) || res.K != at {
				t.Fatalf("%s: canceled after %d: %v", c.name, at, err)
			}
			var file bytes.Buffer
			if err := res.Save(&file); err != nil {
				t.Fatal(err)
			}
			s = &Solver{}
			if res, err = s.LoadResult(context.Background(), &file, l); err != nil {
				t.Fatal(err)
			}
			if res, err = s.Resume(context.Background(), res); err != nil {
				t.Fatal(err)
			}
			_, post, got, err := l.Learned(context.Background(), s, res)
			if err != nil {
				t.Fatal(err)
			}
			if got.Objective != all.Objective || got.Evaluations != all.Evaluations ||
				got.Fit.ELBO != all.Fit.ELBO || !slices.Equal(got.Starts, all.Starts) ||
				!slices.Equal(post.a, want.a) {
				t.Errorf("%s: resumed after %d: objective %v in %d evaluations, want %v in %d",
					c.name, at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
			}
		}
	}
}

// inflated is a Poisson likelihood with additional zeros, whose share is Pi.
type inflated struct{ Pi, min, max float64 }

func (z inflated) LogProb(y, eta float64) float64 {
	p := Poisson{}.LogProb(y, eta)
	if y == 0 {
		return math.Log(z.Pi + (1-z.Pi)*math.Exp(p))
	}
	return math.Log1p(-z.Pi) + p
}

func (inflated) Facts() Facts { return Facts{Support: Counts} }

func (z inflated) Params() []Param {
	return []Param{{Name: "Pi", Value: z.Pi, Min: z.min, Max: z.max}}
}

func (z inflated) WithParams(v []float64) Likelihood { return inflated{v[0], z.min, z.max} }

// TestLearnBounded checks that a search for a parameter with a Max ends soon, whether its best
// value is inside its range or at an end, and that its intervals are within the range. There must
// be a warning if the best value is an end and there is no prior.
func TestLearnBounded(t *testing.T) {
	t.Parallel()
	const n = 40
	x := mat.NewDense(n, 1, nil)
	for i := range n {
		x.Set(i, 0, float64(i%5))
	}
	one, none, all := make([]float64, n), make([]float64, n), make([]float64, n)
	one[3] = 2
	for i := range all {
		all[i] = float64(1 + i%3)
	}
	for i, c := range []struct {
		y        []float64
		min, max float64
		bare     bool    // no priors
		lo, hi   float64 // range of the learned value
		warned   bool
	}{
		{one, 0, 1, false, 0.85, 0.97, false},
		{one, 0, 1, true, 0.9, 0.98, false},
		{one, math.Inf(-1), 1, true, 0.9, 0.98, false},
		{one, 0, 0.8, false, 0.5, 0.8, false},
		{one, 0, 0.8, true, 0.799, 0.8, true},
		{none, 0, 1, false, 0.4, 0.9, false},
		{none, 0, 1, true, 0.999, 1, true},
		{all, 0, 1, false, 0.001, 0.1, false},
		{all, 0, 1, true, 0, 1e-4, true},
	} {
		if testing.Short() && i != 4 {
			continue
		}
		g, err := NewGLM(x, c.y, inflated{0.5, c.min, c.max}, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		_, _, l, err := g.Learn(context.Background(), nil, &LearnOptions{NoPrior: c.bare})
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		p := l.Params[1]
		theta := p.theta(p.Value)
		lo, hi := p.value(theta-normal975*p.SD), p.value(theta+normal975*p.SD)
		warned := slices.ContainsFunc(l.Warnings, func(w string) bool {
			return strings.Contains(w, "inflated.Pi ended at")
		})
		switch {
		case l.Search.Status != Converged || l.Evaluations > 30 || warned != c.warned,
			!(lo >= c.min && hi <= c.max), !(p.Value > c.lo && p.Value < c.hi):
			t.Errorf("%+v: %v, %d evaluations, %v from %v to %v, %q", c, l.Search.Status,
				l.Evaluations, p.Value, lo, hi, l.Warnings)
		}
	}
}

// TestWarnFarResponses checks that fits and searches warn of responses far from 0 under a kernel
// that returns to 0, for dense and sparse GPs, and that the kernel in the warning removes it. There
// must be no warning for centered responses, kernels with another mean, priors that reach the
// responses, and labels.
func TestWarnFarResponses(t *testing.T) {
	t.Parallel()
	const n = 60
	ctx, rng := context.Background(), testRand(3)
	x, wave, label := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
	for i := range n {
		x.Set(i, 0, 10*rng.Float64())
		wave[i] = 5*math.Sin(x.At(i, 0)) + 0.3*rng.NormFloat64()
		label[i] = 1
	}
	at := func(mean float64) []float64 {
		y := slices.Clone(wave)
		for i := range y {
			y[i] += mean
		}
		return y
	}
	for i, c := range []struct {
		name         string
		k            Kernel
		lik          Likelihood
		y            []float64
		fit, learned bool // there is a warning
	}{
		{"far", SquaredExp{}, GaussianNoise{Var: 0.1}, at(1000), true, true},
		{"far below", Sum{Matern52{Length: 2}, White{}}, StudentT{}, at(-1000), true, true},
		{"product", Product{Constant{}, Matern32{}}, Laplace{}, at(1000), true, true},
		{"prior reaches", SquaredExp{Scale: 500}, GaussianNoise{Var: 0.1}, at(1000), false, true},
		{"centered", SquaredExp{}, GaussianNoise{Var: 0.1}, at(0), false, false},
		{"off by a deviation", SquaredExp{Scale: 5}, GaussianNoise{Var: 0.1}, at(4), false, false},
		{"Constant", Sum{Constant{Scale: 1000}, SquaredExp{}}, GaussianNoise{Var: 0.1}, at(1000),
			false, false},
		{"Linear", Sum{Linear{}, SquaredExp{}}, GaussianNoise{Var: 0.1}, at(1000), false, false},
		{"own kernel", underived{SquaredExp{}}, GaussianNoise{Var: 0.1}, at(1000), false, false},
		{"labels", SquaredExp{}, BernoulliLogit{}, label, false, false},
	} {
		if testing.Short() && i%5 > 0 {
			continue
		}
		gp := mustGP(t, x, c.y, c.k, c.lik)
		kept, err := NewSparseGP(x, c.y, c.k, c.lik, &SparseGPOptions{Rank: 12})
		if err != nil {
			t.Fatal(c.name, err)
		}
		rows := streamed(t, gp, x.Slice(0, 12, 0, 1))
		s := &Solver{MaxIter: 3}
		got := map[string][]string{"sparse, learned": kept.farFrom0(true),
			"rows, learned": rows.farFrom0(true)}
		_, dense, err1 := gp.Fit(ctx, s)
		_, sparse, err2 := kept.Fit(ctx, s)
		_, passes, err3 := rows.Fit(ctx, s)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(c.name, err)
		}
		got["dense, fit"], got["sparse, fit"], got["rows, fit"] = dense.Warnings, sparse.Warnings,
			passes.Warnings
		_, _, l, err := gp.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(c.name, err)
		}
		got["dense, learned"], got["search, learned"] = l.Warnings, l.Search.Warnings
		if c.name == "far" {
			for name, g := range map[string]*SparseGP{"kept, learned": kept,
				"rows, learned": rows} {
				_, _, l, err := g.Learn(ctx, nil, nil)
				if err != nil {
					t.Fatal(c.name, name, err)
				}
				if got[name] = l.Warnings; l.Fit == nil ||
					!slices.Equal(l.Fit.Warnings, l.Warnings) {
					t.Errorf("%s: %s: the fit has other warnings", c.name, name)
				}
			}
		}
		for what, w := range got {
			want := c.learned
			if strings.HasSuffix(what, "fit") {
				want = c.fit
			}
			if warned := strings.Contains(strings.Join(w, ""),
				"pgsvi.Sum{pgsvi.Constant{Scale: 1e+03}, k}"); warned != want {
				t.Errorf("%s: %s: %q", c.name, what, w)
			}
		}
	}
	var file bytes.Buffer
	gp := mustGP(t, x, at(1000), SquaredExp{}, GaussianNoise{Var: 0.1})
	_, res, err := gp.Fit(ctx, nil)
	if err == nil {
		err = res.Save(&file)
	}
	if err != nil {
		t.Fatal(err)
	}
	if back, err := new(Solver).LoadResult(ctx, &file, gp); err != nil ||
		!slices.Equal(back.Warnings, res.Warnings) {
		t.Errorf("loaded with %q, %v", back.Warnings, err)
	}
	_, post, _, err := mustGP(t, x, at(1000), Sum{Constant{Scale: 1e3}, SquaredExp{}},
		GaussianNoise{}).Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m, _, err := post.At(mat.NewDense(1, 1, []float64{1e3})).Moments(nil, nil); err != nil ||
		!(math.Abs(m[0]-1000) < 10) {
		t.Errorf("far away the mean is %v, %v", m, err)
	}
}

// TestLearnLimit checks that a search that reaches a limit has a warning, and that the warning is
// gone after the search is resumed.
func TestLearnLimit(t *testing.T) {
	t.Parallel()
	gp, ctx := learnCases()[0].model(t, 16), context.Background()
	for status, s := range map[Status]*Solver{PassLimit: {MaxPasses: 4},
		IterationLimit: {MaxIter: 5}} {
		_, post, l, err := gp.Learn(ctx, s, nil)
		if err != nil || post == nil || l.Fit != nil || l.Search.Status != status ||
			len(l.Warnings) != 1 ||
			!strings.Contains(l.Warnings[0],
				fmt.Sprintf("the search ended (%v) after %d evaluations", status,
					l.Evaluations)) {
			t.Fatalf("%v: %v, %+v", status, err, l)
		}
	}
	learner, err := learnerAs[*gpLearner](gp.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Solver{MaxIter: 5}).Run(ctx, learner)
	if err != nil {
		t.Fatal(err)
	}
	if res, err = new(Solver).Resume(ctx, res); err != nil {
		t.Fatal(err)
	}
	if _, _, l, err := learner.Learned(ctx, nil, res); err != nil || len(l.Warnings) != 0 ||
		l.Fit == nil {
		t.Errorf("%v, %+v", err, l)
	}
}

// TestLearnHarness checks that learning ends with a posterior and its objective, or returns an
// error, for any data.
func TestLearnHarness(t *testing.T) {
	t.Parallel()
	rng := testRand(5)
	for trial := range shorter(60, 9) {
		c := learnCases()[trial%len(learnCases())]
		n := 2 + rng.IntN(20)
		scale := math.Exp(6 * rng.NormFloat64())
		x, y := mat.NewDense(n, 2, nil), make([]float64, n)
		for i := range n {
			x.SetRow(i, []float64{scale * rng.NormFloat64(), rng.NormFloat64()})
			if i > 0 && rng.IntN(3) == 0 {
				x.SetRow(i, x.RawRowView(i-1))
			}
			y[i] = c.y(rng.NormFloat64(), rng.Float64())
			if trial%4 == 3 {
				y[i] = y[0]
			}
		}
		gp, err := NewGP(x, y, c.k, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, post, l, err := gp.Learn(context.Background(), nil, &LearnOptions{NoPrior: trial%5 == 4})
		if errors.Is(err, ErrDiverged) && scale > 1e3 {
			continue // rounding leaves nothing of the ELBO at these starting weights
		}
		if err != nil {
			t.Errorf("trial %d, %s: %v", trial, c.name, err)
			continue
		}
		bare := trial%5 == 4 // a search without priors may not end
		if l.Fit == nil && !(bare && l.Search.Status == PassLimit) {
			t.Errorf("trial %d, %s: the search ended %v after %d evaluations", trial, c.name,
				l.Search.Status, l.Evaluations)
			continue
		}
		m, v := post.Train(nil, nil)
		if i, ok := dense.AllFinite(append(m, v...)); !ok || math.IsNaN(l.Objective) {
			t.Errorf("trial %d, %s: element %d, objective %v", trial, c.name, i, l.Objective)
		}
		if l.Fit != nil && math.Abs(l.Objective+l.LogPrior+l.Fit.ELBO) > 1e-3*(1+math.Abs(l.Objective)) {
			t.Errorf("trial %d, %s: objective %v, ELBO %v", trial, c.name, l.Objective, l.Fit.ELBO)
		}
		for _, p := range l.Params {
			if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || math.IsNaN(p.SD) {
				t.Errorf("trial %d, %s: %+v", trial, c.name, p)
			}
		}
	}
}
