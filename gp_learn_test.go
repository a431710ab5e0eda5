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
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// learnCase is a small model with hyper-parameters of every kind.
type learnCase struct {
	name string
	k    Kernel
	lik  Likelihood
	y    func(f, u float64) float64 // of a latent value and a uniform number
}

func learnCases() []learnCase {
	sign := func(f, u float64) float64 { return plusMinus(u < 1/(1+math.Exp(-2*f))) }
	count := func(f, u float64) float64 { return math.Floor(math.Exp(f) + 2*u) }
	plain := func(f, u float64) float64 { return f + u - 0.5 }
	return []learnCase{
		{"logit", SquaredExp{Scale: 1.5, Length: 0.8}, BernoulliLogit{}, sign},
		{"probit ARD", Matern52{Scale: 1.5, Lengths: []float64{0.8, 1.4}}, BernoulliProbit{}, sign},
		{"Poisson, sum", Sum{SquaredExp{Scale: 1, Length: 0.8}, Constant{Scale: 0.5}, White{Scale: 0.3}}, Poisson{}, count},
		{"Gaussian, product", Sum{Product{SquaredExp{Scale: 1, Length: 2}, Periodic{Period: 1.7}}, Linear{Scales: []float64{0.4, 0.2}}}, GaussianNoise{Var: 0.2}, plain},
		{"Gaussian, rational", RationalQuadratic{Length: 1.2, Profile: Rational{Alpha: 0.7}}, GaussianNoise{Var: 0.2}, plain},
		{"negative binomial", Matern32{Scale: 1, Length: 1}, NegativeBinomial{Shape: 2}, count},
		{"gamma", Matern52{Scale: 1, Length: 1}, Gamma{Shape: 2}, func(f, u float64) float64 { return math.Exp(f) * (0.5 + u) }},
		{"Laplace", SquaredExp{Scale: 1, Length: 1}, Laplace{Scale: 0.3}, plain},
		{"Student", SquaredExp{Scale: 1, Length: 1}, StudentT{DF: 4, Scale: 0.3}, plain},
		{"ordinal", SquaredExp{Scale: 1, Length: 1}, Ordinal{Cuts: []float64{-0.7, 0.2, 1.1}}, func(f, u float64) float64 { return math.Min(3, math.Max(0, math.Floor(f+u+1))) }},
		{"no derivatives", underived{SquaredExp{Scale: 1.5, Length: 0.8}}, BernoulliLogit{}, sign},
	}
}

// model returns the model of n rows, some of them equal.
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

// The gradient at the best q is that of the ELBO at the best q, by differences.
func TestLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range learnCases() {
		gp := c.model(t, shorter(30, 12))
		l, err := gp.Learner(nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := l.learning()
		m.use(crew{1, nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64) learnPoint {
			x, err := m.evaluate(theta, 1e-13, math.Inf(1), true)
			if err != nil || math.IsInf(x.f, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.f, err)
			}
			return x
		}
		x := at(theta)
		m.keep(false)
		for i := range theta {
			const h = 1e-4
			diff := func(h float64) float64 {
				v := theta[i]
				defer func() { theta[i] = v }()
				theta[i] = v + h
				up := at(theta).f
				theta[i] = v - h
				return (up - at(theta).f) / (2 * h)
			}
			want := (4*diff(h) - diff(2*h)) / 3
			if math.Abs(x.grad[i]-want) > 3e-6*(1+floats.Norm(x.grad, 2)) {
				t.Errorf("%s: derivative in %s is %v, by differences %v", c.name, l.space.coords[l.space.free[i]].Name, x.grad[i], want)
			}
		}
		var e mat.EigenSym
		if !e.Factorize(x.info, false) || e.Values(nil)[0] < -1e-9 {
			t.Errorf("%s: the average information is not positive semidefinite", c.name)
		}
	}
}

// The objective learned is that of the reference values, in at most so many evaluations and factorisations to 0.01 nats.
func TestLearnTruth(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("seconds")
	}
	iso := func(load func(t testing.TB) split) func(t *testing.T) *GP {
		return func(t *testing.T) *GP {
			d := load(t)
			return mustGP(t, d.x, d.y, SquaredExp{}, BernoulliLogit{})
		}
	}
	student := func(t *testing.T) *GP {
		ref := readTruth(t, "studentt_data.csv")
		return mustGP(t, mat.NewDense(len(ref[0]), 1, ref[0]), ref[1], SquaredExp{}, StudentT{DF: 4})
	}
	fixed := []string{"StudentT.DF"}
	for _, c := range []struct {
		name string
		gp   func(t *testing.T) *GP
		opt  *LearnOptions
		f    float64
		most [2]float64
	}{
		{"ionosphere", iso(gpCases[0].load), nil, 84.80843258805, [2]float64{10, 60}},
		{"sonar", iso(gpCases[1].load), nil, 60.50124586620, [2]float64{10, 60}},
		{"usps35", iso(gpCases[2].load), nil, 110.68124021581, [2]float64{10, 60}},
		{"ionosphere, ELBO", iso(gpCases[0].load), &LearnOptions{NoPrior: true}, 84.64786060760864, [2]float64{12, 60}},
		{"sonar, ELBO", iso(gpCases[1].load), &LearnOptions{NoPrior: true}, 59.98269523919856, [2]float64{14, 72}},
		{"Student", student, &LearnOptions{Fixed: fixed}, 152.385441607631, [2]float64{10, 60}},
		{"Student, ELBO", student, &LearnOptions{Fixed: fixed, NoPrior: true}, 152.23760941560684, [2]float64{10, 60}},
		{"ionosphere, ARD", func(t *testing.T) *GP {
			d := gpCases[0].load(t)
			return mustGP(t, d.x, d.y, SquaredExp{Lengths: make([]float64, 34)}, BernoulliLogit{})
		}, &LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {1, 1.5, 0}, "SquaredExp.Length": {1.4, 0.5, 1}}}, 78.08536699428831, [2]float64{12, 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLearned(t, c.gp(t), c.opt, c.f, c.most)
		})
	}
	t.Run("CO2", func(t *testing.T) {
		t.Parallel()
		gp, opt, f := co2(t)
		l := checkLearned(t, gp, opt, f, [2]float64{16, 60})
		for _, p := range l.Params {
			held := p.Name == "Sum[1].Product[1].Periodic.Scale" || p.Name == "Sum[1].Product[1].Periodic.Period"
			if p.Fixed != held || held && p.Value != 1 {
				t.Errorf("%s: fixed %v, %v", p.Name, p.Fixed, p.Value)
			}
		}
	})
}

// co2 returns the components of the CO₂ on Mauna Loa of before 1988, their priors and the best objective.
func co2(t testing.TB) (*GP, *LearnOptions, float64) {
	t.Helper()
	var truth struct {
		Objective float64   `json:"objective"`
		Mean      float64   `json:"y_mean"`
		Centre    []float64 `json:"prior_centre"`
	}
	readTruthJSON(t, "hyper_co2_map.json", &truth)
	ref := readTruth(t, "co2.csv")
	var x, y []float64
	for i, v := range ref[0] {
		if v < 1988 {
			x, y = append(x, v-1959), append(y, ref[1][i]-truth.Mean)
		}
	}
	e := func(i int) float64 { return math.Exp(truth.Centre[i]) }
	gp := mustGP(t, mat.NewDense(len(x), 1, x), y, Sum{
		SquaredExp{Scale: e(0), Length: e(1)},
		Product{SquaredExp{Scale: e(2), Length: e(3)}, Periodic{Length: e(4), Period: 1}},
		RationalQuadratic{Scale: e(5), Length: e(6), Profile: Rational{e(7)}},
		SquaredExp{Scale: e(8), Length: e(9)},
	}, GaussianNoise{Var: math.Exp(2 * truth.Centre[10])})
	c := truth.Centre
	return gp, &LearnOptions{Fixed: []string{"Sum[1].Product[1].Periodic.Period"}, Prior: map[string]Prior{
		"Sum[1].Product[1].Periodic.Length": {c[4], 2, 0}, "Sum[2].RationalQuadratic.Alpha": {c[7], 2, 0}, "GaussianNoise.Var": {2 * c[10], 4, 0},
	}}, -truth.Objective
}

func mustGP(t testing.TB, x mat.Matrix, y []float64, k Kernel, lik Likelihood) *GP {
	t.Helper()
	gp, err := NewGP(x, y, k, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// checkLearned learns gp to the objective f.
func checkLearned(t *testing.T, gp *GP, opt *LearnOptions, f float64, most [2]float64) *Learned {
	t.Helper()
	ctx := context.Background()
	l, err := gp.Learner(opt)
	if err != nil {
		t.Fatal(err)
	}
	evaluations, work := math.Inf(1), math.Inf(1)
	s := &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if st := it.State.(*learnStepper); st.best.f < f+0.01 && math.IsInf(evaluations, 1) {
			evaluations, work = float64(st.count), st.model.work()
		}
	})}
	res, err := s.Run(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	s.Recorder = nil
	_, post, got, err := l.Learned(ctx, s, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("to 0.01 nats %v evaluations, %v factorisations; in all %d, %v; objective %.9f, %.2g over; %v; warnings %q", evaluations, work, got.Evaluations, got.Cholesky, got.Objective, got.Objective-f, got.Fit.Status, got.Warnings)
	for _, p := range got.Params {
		t.Logf("%s %.6g (θ %.6f ± %.3f) prior %v", p.Name, p.Value, math.Log(p.Value), p.SD, p.Prior)
	}
	if !(got.Objective < f+1e-3) {
		t.Errorf("objective %.9f, want %.9f", got.Objective, f)
	}
	if evaluations > most[0] || work > most[1] {
		t.Errorf("%v evaluations and %v factorisations to 0.01 nats, at most %v", evaluations, work, most)
	}
	if math.Abs(-got.Fit.ELBO-got.LogPrior-got.Objective) > 1e-4 {
		t.Errorf("ELBO %v and log prior %v, objective %v", got.Fit.ELBO, got.LogPrior, got.Objective)
	}
	if post == nil {
		t.Error("no posterior")
	}
	return got
}

// A search that is canceled, saved and loaded ends with the same bits as one that is not, on any number of workers, and
// the restarts that it has yet to make are among what is saved.
func TestLearnResume(t *testing.T) {
	t.Parallel()
	for _, c := range []learnCase{learnCases()[0], learnCases()[8]} {
		gp := c.model(t, shorter(40, 16))
		opt := &LearnOptions{Restarts: 2}
		l, err := gp.Learner(opt)
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
			s := &Solver{Workers: 3, Recorder: RecorderFunc(func(it Iteration) {
				if it.K == at {
					cancel()
				}
			})}
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
			if got.Objective != all.Objective || got.Evaluations != all.Evaluations || !slices.Equal(got.Starts, all.Starts) || !slices.Equal(post.a, want.a) {
				t.Errorf("%s: resumed after %d: objective %v in %d evaluations, want %v in %d", c.name, at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
			}
		}
	}
}

// From thirty random starts every search arrives, with the default priors.
func TestLearnStarts(t *testing.T) {
	t.Parallel()
	for i, c := range gpCases[:shorter(2, 1)] {
		d := c.load(t)
		_, cols := d.x.Dims()
		n := shorter(100, 30)
		gp := mustGP(t, mat.DenseCopyOf(d.x.Slice(0, n, 0, cols)), d.y[:n], SquaredExp{}, BernoulliLogit{})
		_, _, l, err := gp.Learn(context.Background(), nil, &LearnOptions{Restarts: shorter(30, 5)})
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range l.Starts {
			if !(f < l.Objective+1e-3) {
				t.Errorf("%s: start %d ended with %v, the best with %v", gpCases[i].name, k, f, l.Objective)
			}
		}
		if len(l.Warnings) > 0 {
			t.Errorf("%s: %q", gpCases[i].name, l.Warnings)
		}
	}
}

// A search that ends early has the GP and the posterior of the best so far.
func TestLearnCanceled(t *testing.T) {
	t.Parallel()
	gp := learnCases()[0].model(t, 12)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if it.K == 5 {
			cancel()
		}
	})}
	best, post, l, err := gp.Learn(ctx, s, nil)
	if !errors.Is(err, context.Canceled) || best == nil || post == nil || l.Fit != nil || l.Search.Status != Canceled {
		t.Errorf("%v, %v, %v, %+v", best, post, err, l)
	}
	if _, _, _, err := gp.Learn(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestLearnErrors(t *testing.T) {
	t.Parallel()
	c := learnCases()[0]
	gp, ctx := c.model(t, 12), context.Background()
	for _, e := range []struct {
		opt  LearnOptions
		says string
	}{
		{LearnOptions{Fixed: []string{"Length"}}, `name "Length", the parameters are SquaredExp.Scale, SquaredExp.Length`},
		{LearnOptions{Fixed: []string{"SquaredExp.Length", "SquaredExp.Scale"}}, "no hyper-parameter is left"},
		{LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {}}}, "SD must be positive"},
		{LearnOptions{Prior: map[string]Prior{"x": {SD: 1}}}, `name "x"`},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {2, 1}}}, "Bounds of SquaredExp.Scale"},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {-2, 1}}}, "outside its range"},
		{LearnOptions{Restarts: -1}, "Restarts is -1"},
		{LearnOptions{Tol: math.NaN()}, "Tol NaN"},
	} {
		_, _, _, err := gp.Learn(ctx, nil, &e.opt)
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), e.says) || !prefixedOnce(err) {
			t.Errorf("%+v: %v", e.opt, err)
		}
	}
	if _, _, _, err := gp.Learn(ctx, &Solver{Divergence: Euclidean{}}, nil); !errors.Is(err, ErrNoProx) {
		t.Error(err)
	}
	l, err := gp.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Solver{MaxIter: 1}).Run(ctx, gp)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := l.Learned(ctx, nil, res); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, err := (&Solver{StepSize: ConstantStep(1)}).Run(ctx, l); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
}

// A parameter that ends at its bound, and one that is learned by differences, are said to be.
func TestLearnWarnings(t *testing.T) {
	t.Parallel()
	gp := learnCases()[10].model(t, 16)
	_, _, l, err := gp.Learn(context.Background(), nil, &LearnOptions{Bounds: map[string][2]float64{"underived.Scale": {1e-3, 0.2}}})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Params[0].AtBound || !l.Params[0].Differences || math.Abs(l.Params[0].Value-0.2) > 1e-6 || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "underived.Scale ended at its bound 0.2") {
		t.Errorf("%+v", l)
	}
}

// A search that meets a limit says so, and one that goes on from there does not.
func TestLearnLimit(t *testing.T) {
	t.Parallel()
	gp, ctx := learnCases()[0].model(t, 16), context.Background()
	for status, s := range map[Status]*Solver{PassLimit: {MaxPasses: 4}, IterationLimit: {MaxIter: 5}} {
		_, post, l, err := gp.Learn(ctx, s, nil)
		if err != nil || post == nil || l.Fit != nil || l.Search.Status != status || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], fmt.Sprintf("the search ended %v after %d evaluations", status, l.Evaluations)) {
			t.Fatalf("%v: %v, %+v", status, err, l)
		}
	}
	learner, err := gp.Learner(nil)
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
	if _, _, l, err := learner.Learned(ctx, nil, res); err != nil || len(l.Warnings) != 0 || l.Fit == nil {
		t.Errorf("%v, %+v", err, l)
	}
}

// Whatever the data, learning ends with a posterior and its objective, or says that it has none.
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
			continue // weights that start where rounding leaves nothing of the ELBO
		}
		if err != nil {
			t.Errorf("trial %d, %s: %v", trial, c.name, err)
			continue
		}
		bare := trial%5 == 4 // without priors a search may go on and on
		if l.Fit == nil && !(bare && l.Search.Status == PassLimit) {
			t.Errorf("trial %d, %s: the search ended %v after %d evaluations", trial, c.name, l.Search.Status, l.Evaluations)
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

func ExampleGP_Learn() {
	x, y := mat.NewDense(40, 1, nil), make([]float64, 40)
	for i := range y {
		x.Set(i, 0, float64(i)/4)
		y[i] = 3*math.Sin(x.At(i, 0)) + 0.1*math.Cos(float64(37*i))
	}
	gp, err := NewGP(x, y, SquaredExp{}, GaussianNoise{}, nil)
	if err != nil {
		panic(err)
	}
	_, post, learned, err := gp.Learn(context.Background(), nil, nil)
	if err != nil {
		panic(err)
	}
	for _, p := range learned.Params {
		fmt.Printf("%s %.1f\n", p.Name, p.Value)
	}
	m, _ := post.At(mat.NewDense(1, 1, []float64{math.Pi / 2})).Latent(nil, nil)
	fmt.Printf("%.1f\n", m[0])
	// Output:
	// SquaredExp.Scale 2.6
	// SquaredExp.Length 1.4
	// GaussianNoise.Var 0.0
	// 3.0
}

// The scale of Laplace noise is learned where the model fits badly, too, so that most residuals are many standard deviations of their latent value from zero.
func TestLearnNoiseOfBadFit(t *testing.T) {
	const n = 60
	rng := testRand(23)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i)/10)
		y[i] = 50*math.Sin(3*x.At(i, 0)) + 5*rng.NormFloat64()
	}
	k := Sum{Linear{}, Constant{}}
	gp, err := NewGP(x, y, k, Laplace{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(x, y, Laplace{}, &GLMOptions{Intercept: true, InterceptSD: 50})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, _, of, err := gp.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, ofGLM, err := glm.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Learned{"GP": of, "GLM": ofGLM} {
		p := l.Params[len(l.Params)-1]
		if b := p.Value; !(b > 25 && b < 45) { // the mean absolute response is 32
			t.Errorf("%s: a scale of %v, with objective %v after %d evaluations %v", name, b, l.Objective, l.Evaluations, l.Warnings)
		}
		if l.Evaluations > 25 {
			t.Errorf("%s: %d evaluations", name, l.Evaluations)
		}
	}
}

// A column that does not vary is one, whatever its value: 0.1 is not a float64, so that the mean of as many is not quite it.
func TestLearnConstantColumn(t *testing.T) {
	const n = 50
	rng := testRand(29)
	y := make([]float64, n)
	x := [2]*mat.Dense{mat.NewDense(n, 2, nil), mat.NewDense(n, 2, nil)}
	for i := range n {
		v := rng.NormFloat64()
		y[i] = v + 0.3*rng.NormFloat64()
		x[0].SetRow(i, []float64{v, 0})
		x[1].SetRow(i, []float64{v, 0.1})
	}
	for _, k := range []Kernel{Sum{Linear{}, Constant{}}, SquaredExp{Lengths: make([]float64, 2)}, Linear{Scales: make([]float64, 2)}} {
		var priors [2][]Prior
		for i, x := range x {
			gp, err := NewGP(x, y, k, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, l, err := gp.Learn(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range l.Params {
				priors[i] = append(priors[i], p.Prior)
			}
		}
		if !slices.Equal(priors[0], priors[1]) {
			t.Errorf("%s: beside a column of zeros %v, of 0.1 %v", kernelName(k), priors[0], priors[1])
		}
	}
	var glms [2]*GLMPosterior
	for i, x := range x {
		for r := range n {
			x.Set(r, 1, 0.3*float64(i)) // three times 0.1 is worse still
		}
		glm, err := NewGLM(x, y, nil, &GLMOptions{Autoscale: true})
		if err != nil {
			t.Fatal(err)
		}
		if glms[i], _, err = glm.Fit(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if sd := glms[1].SD(nil)[1]; !(sd > 0.1 && sd < 1) {
		t.Errorf("the weight of a constant column has a standard deviation of %v under a prior of 1", sd)
	}
}

// A search from the default start finds the better of two optima: the season of a trend, though its length is far below the median distance, and the noise of data
// that short lengths would do without.
func TestLearnBasins(t *testing.T) {
	rng := testRand(31)
	const n = 120
	time, season := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		at := float64(i) / 12
		time.Set(i, 0, at)
		season[i] = 50 + at + 8*math.Sin(2*math.Pi*at) + rng.NormFloat64()
	}
	// Three of four rows of speeds and stopping distances of cars (Ezekiel 1930).
	speed := []float64{4, 4, 7, 8, 9, 10, 10, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 16, 17, 17, 17, 18, 18, 18, 19, 19, 20, 20, 20, 20, 23, 24, 24, 24, 25}
	stop := []float64{2, 10, 4, 16, 10, 18, 34, 17, 28, 20, 24, 28, 34, 34, 46, 36, 60, 80, 26, 54, 32, 32, 40, 50, 56, 76, 84, 46, 68, 32, 52, 56, 64, 54, 70, 92, 120, 85}
	speeds := mat.NewDense(len(speed), 1, speed)
	for _, c := range []struct {
		name  string
		x     *mat.Dense
		y     []float64
		k, at Kernel
		noise float64
	}{
		{"trend and season", time, season, Sum{SquaredExp{}, Linear{}, Constant{}}, Sum{SquaredExp{Scale: 6, Length: 0.4}, Linear{}, Constant{}}, 1},
		{"season far from 0", time, season, SquaredExp{}, SquaredExp{Scale: 50, Length: 0.4}, 1},
		{"two parts alike", time, season, Sum{SquaredExp{}, SquaredExp{}}, Sum{SquaredExp{Scale: 50, Length: 20}, SquaredExp{Scale: 6, Length: 0.4}}, 1},
		{"cars", speeds, stop, SquaredExp{Lengths: []float64{0}}, SquaredExp{Scale: 50, Lengths: []float64{15}}, 250},
		{"cars with an offset", speeds, stop, Sum{SquaredExp{}, Constant{}}, Sum{SquaredExp{Scale: 50, Length: 15}, Constant{}}, 250},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var elbo [2]float64
			for i, k := range []Kernel{c.k, c.at} {
				lik := GaussianNoise{}
				if i == 1 {
					lik.Var = c.noise
				}
				gp, err := NewGP(c.x, c.y, k, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _, l, err := gp.Learn(context.Background(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				elbo[i] = l.Fit.ELBO
			}
			if elbo[0] < elbo[1]-2 { // the priors differ
				t.Errorf("an ELBO of %.2f, where %.2f is to be had from another start", elbo[0], elbo[1])
			}
		})
	}
}

// Starts without an ELBO, as those for responses whose squares a float64 does not hold, are an error that says what to do.
func TestLearnStartsWithoutELBO(t *testing.T) {
	const n = 20
	x, small, large := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i))
		small[i] = 1e-200 * float64(i%7)
		large[i] = 1e200 * float64(i%7)
	}
	for _, c := range []struct {
		name string
		y    []float64
		k    Kernel
		lik  Likelihood
	}{
		{"small, Student", small, SquaredExp{}, StudentT{}},
		{"small, Gaussian", small, SquaredExp{}, GaussianNoise{}},
		{"large, Gaussian", large, SquaredExp{}, GaussianNoise{}},
		{"large, Laplace", large, SquaredExp{}, Laplace{}},
	} {
		gp, err := NewGP(x, c.y, c.k, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, l, err := gp.Learn(context.Background(), nil, nil)
		if err == nil || !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "rescale") {
			t.Errorf("%s: %v %+v", c.name, err, l)
		}
		sparse, err := NewSparseGP(x, c.y, c.k, c.lik, nil)
		if err != nil {
			continue
		}
		if _, _, l, err = sparse.Learn(context.Background(), nil, nil); err == nil || !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "rescale") {
			t.Errorf("%s, sparse: %v %+v", c.name, err, l)
		}
		glm, err := NewGLM(x, c.y, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, l, err = glm.Learn(context.Background(), nil, nil); err == nil {
			t.Errorf("%s, GLM: %+v", c.name, l)
		}
	}
}

// TestLearnedString: what was learned prints as a table, of intervals in the parameters' own units, with what is fixed or at a bound, and the warnings.
func TestLearnedString(t *testing.T) {
	t.Parallel()
	positive := func(name string, v float64) Param { return Param{name, v, 0, math.Inf(1)} }
	l := &Learned{
		Objective: 12.5, Evaluations: 7, Warnings: []string{"of a kind"},
		Params: []LearnedParam{
			{Param: positive("Linear.Scale", 2), SD: math.Log(2) / normal975, Prior: Prior{math.Log(3), math.Log(10) / normal975, 0}},
			{Param: positive("Matern52.Length", 4), Fixed: true, SD: 1, Prior: Prior{0, 1, 0}},
			{Param: Param{"Ordinal.Cuts[0]", -1, math.Inf(-1), math.Inf(1)}, SD: 0.5 / normal975, AtBound: true},
		},
	}
	want := `3 parameters, 7 evaluations, objective 12.5 nats
                 value  2.5%  97.5%  prior 2.5%  97.5%
Linear.Scale     2      1     4      0.3         30
Matern52.Length  4                                      fixed
Ordinal.Cuts[0]  -1     -1.5  -0.5                      at its bound
warning: of a kind
`
	lines := strings.Split(l.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	one := (&Learned{Evaluations: 1, Params: l.Params[:1]}).String()
	if !strings.HasPrefix(one, "1 parameter, 1 evaluation, ") {
		t.Errorf("%q of one", one)
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The noise and the scale of a start are where −ELBO − log prior is least at its lengths, and what that is said to be is what q has there.
func TestLearnNoiseProfile(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := testRand(8)
	x, y, weights, offset := mat.NewDense(n, 2, nil), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = 3 * (math.Sin(x.At(i, 0)) + 0.7*rng.NormFloat64())
	}
	for _, c := range []struct {
		name   string
		k      Kernel
		opt    *GPOptions
		learn  *LearnOptions
		scales int // that move with the noise
	}{
		{"one scale", SquaredExp{}, nil, nil, 1},
		{"a jitter", Matern52{Lengths: make([]float64, 2)}, &GPOptions{Jitter: 1e-10}, nil, 1},
		{"no prior", SquaredExp{Length: 0.3}, nil, &LearnOptions{NoPrior: true}, 1},
		{"a sum", Sum{SquaredExp{}, Linear{Scales: make([]float64, 2)}, Constant{}, White{}}, nil, nil, 5},
		{"a scale that is set", SquaredExp{Scale: 2}, nil, nil, 0},
		{"a scale of two that is set", Sum{SquaredExp{Scale: 2}, Linear{}}, nil, nil, 0},
		{"a scale that is fixed", SquaredExp{}, nil, &LearnOptions{Fixed: []string{"SquaredExp.Scale"}}, 0},
		{"a product", Product{SquaredExp{}, Matern32{}}, nil, nil, 1},
		{"a product of weights", Product{Linear{}, Linear{}}, nil, nil, 0},
		{"bounds", SquaredExp{}, nil, &LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {0.1, 0.5}, "GaussianNoise.Var": {0.1, 0.2}}}, 1},
	} {
		gp, err := NewGP(x, y, c.k, GaussianNoise{}, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		l, err := gp.Learner(c.learn)
		if err != nil {
			t.Fatal(err)
		}
		checkNoiseProfile(t, c.name, l.learning(), l.space, c.scales)
	}
	wide := mat.NewDense(n, 2*n, nil)
	for i := range n {
		for j := range 2 * n {
			wide.Set(i, j, rng.NormFloat64())
		}
		weights[i], offset[i] = float64(i%3), rng.NormFloat64()
	}
	g, err := NewGLM(wide, y, GaussianNoise{}, &GLMOptions{Weights: weights, Offset: offset})
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.learning(crew{1, nil})
	if err != nil {
		t.Fatal(err)
	}
	checkNoiseProfile(t, "a GLM with weights", m.(*siteLearning), l.space, 0)
}

func checkNoiseProfile(t *testing.T, name string, m *siteLearning, space *learnSpace, want int) {
	t.Helper()
	m.use(crew{1, nil})
	noise, scales := space.noiseRay()
	if !m.profiles() || len(scales) != want {
		t.Errorf("%s: %d scales move with the noise %d, want %d", name, len(scales), noise, want)
		return
	}
	at := func(theta []float64) float64 {
		x, err := m.evaluate(theta, 1e-9, math.Inf(1), false)
		if err != nil {
			t.Fatal(err)
		}
		return x.f + space.penalty(theta, nil)
	}
	start := space.starts()[0]
	best, err := m.profile(start)
	if err != nil {
		t.Fatal(err)
	}
	if f := at(best.theta); !(math.Abs(f-best.f) < 1e-9*(1+math.Abs(f))) || !(f <= at(start)) {
		t.Errorf("%s: −ELBO is %v at the noise found, was to be %v, and is %v at the start", name, f, best.f, at(start))
	}
	for _, step := range []float64{-1e-2, 1e-2} {
		moved := slices.Clone(best.theta)
		for _, i := range scales {
			moved[i] += step
		}
		if moved[noise] += 2 * step; len(scales) > 0 && space.inside(moved) && at(moved) < best.f {
			t.Errorf("%s: %v more of all scales has %v, and the best was to have %v", name, step, at(moved), best.f)
		}
		moved = slices.Clone(best.theta)
		if moved[noise] += 140 * step; space.inside(moved) && at(moved) < best.f {
			t.Errorf("%s: %v more of the noise has %v, and the best was to have %v", name, 140*step, at(moved), best.f)
		}
	}
}

// inside reports whether θ is within its bounds.
func (s *learnSpace) inside(theta []float64) bool {
	for i, at := range s.free {
		if theta[i] < s.coords[at].lo || theta[i] > s.coords[at].hi {
			return false
		}
	}
	return true
}

// Regression with much noise is learned by one search of few factorisations, wherever the default noise is.
func TestLearnNoiseFew(t *testing.T) {
	t.Parallel()
	const n = 150
	rng := testRand(4)
	for _, noise := range []float64{0.05, 0.3, 1, 2} {
		x, y := mat.NewDense(n, 6, nil), make([]float64, n)
		for i := range n {
			for j := range 6 {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = math.Sin(x.At(i, 0)+0.5*x.At(i, 1)) + noise*rng.NormFloat64()
		}
		_, _, l, err := mustGP(t, x, y, SquaredExp{}, GaussianNoise{}).Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Starts) > 1 || l.Evaluations > 12 || l.Cholesky > 42 {
			t.Errorf("noise %v: %d searches, %d evaluations, %v factorisations", noise, len(l.Starts), l.Evaluations, l.Cholesky)
		}
	}
}

// The noise of a Student-t is followed down to a thousandth of the responses, where residuals at the noise before are outliers all.
func TestLearnNoiseStudent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		const n = 60
		rng := testRand(40 + seed)
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range n {
			x.Set(i, 0, 2*rng.NormFloat64())
			y[i] = math.Sin(2*x.At(i, 0)) + 1e-3*rng.NormFloat64()
		}
		var l [2]*Learned
		for i, gp := range []*GP{mustGP(t, x, y, SquaredExp{}, StudentT{}), mustGP(t, x, y, SquaredExp{Scale: 2.5, Length: 1.4}, StudentT{DF: 8, Scale: 1e-3})} {
			var err error
			if _, _, l[i], err = gp.Learn(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if l[0].Objective > l[1].Objective+0.01 || l[0].Evaluations > 30 || len(l[0].Warnings) > 0 {
			t.Errorf("%v in %d evaluations, %v from near the optimum: %v", l[0].Objective, l[0].Evaluations, l[1].Objective, l[0].Warnings)
		}
	}
}

// A Period that is not set begins at that of the responses, in any unit, beside a trend and among rows that are missing.
func TestLearnPeriod(t *testing.T) {
	t.Parallel()
	const n = 120
	for i, c := range []struct {
		period, from, noise float64
		k                   Kernel
	}{
		{1, 1960, 0.3, Sum{SquaredExp{}, Periodic{}}},
		{365.25, 0, 0.3, Sum{SquaredExp{}, Product{SquaredExp{}, Periodic{}}}},
		{0.02, -3, 1, Sum{SquaredExp{}, Linear{}, Constant{}, Periodic{}}},
	} {
		rng := testRand(60 + uint64(i))
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		at := 0.0
		for i := range n {
			at += c.period / 12 * float64(1+rng.IntN(2))
			x.Set(i, 0, c.from+at)
			u := at / c.period
			y[i] = 300 + u + 0.02*u*u + 3*math.Sin(2*math.Pi*u) + math.Cos(4*math.Pi*u) + c.noise*rng.NormFloat64()
		}
		if got := learnPeriod(x, y); math.Abs(math.Log(got/c.period)) > 0.02 {
			t.Errorf("a period of %v is taken to be %v", c.period, got)
		}
		gp := mustGP(t, x, y, c.k, GaussianNoise{})
		_, p, l, err := gp.Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Params {
			if strings.HasSuffix(p.Name, "Period") && math.Abs(math.Log(p.Value/c.period)) > 0.02 {
				t.Errorf("%v: %s is %v, want %v", c.k, p.Name, p.Value, c.period)
			}
		}
		next := mat.NewDense(1, 1, []float64{c.from + at + c.period/4})
		u := (at + c.period/4) / c.period
		want := 300 + u + 0.02*u*u + 3*math.Sin(2*math.Pi*u) + math.Cos(4*math.Pi*u)
		if m, v := p.At(next).Latent(nil, nil); math.Abs(m[0]-want) > 4*math.Sqrt(v[0])+c.noise || math.Sqrt(v[0]) > 3*c.noise {
			t.Errorf("%v: a forecast of %v ± %v, want %v", c.k, m[0], math.Sqrt(v[0]), want)
		}
	}
	for what, x := range map[string]*mat.Dense{"two columns": mat.NewDense(20, 2, make([]float64, 40)), "equal rows": mat.NewDense(20, 1, make([]float64, 20)), "two rows": mat.NewDense(2, 1, []float64{0, 1})} {
		if p := learnPeriod(x, make([]float64, x.RawMatrix().Rows)); p != 0 {
			t.Errorf("%s: a period of %v", what, p)
		}
	}
}
