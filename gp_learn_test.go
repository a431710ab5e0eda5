package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
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

// TestLearnTruth checks that learning reaches the objective of the reference values to 0.01 nats,
// within the given numbers of evaluations and factorizations.
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
	uci := func(name string) func(t *testing.T) *GP {
		return iso(func(t testing.TB) split { return loadUCI(t, name) })
	}
	usps35 := iso(func(t testing.TB) split { return loadUSPS(t, 3, 5) })
	student := func(t *testing.T) *GP {
		ref := readTruth(t, "studentt_data.csv")
		return mustGP(t, mat.NewDense(len(ref[0]), 1, ref[0]), ref[1], SquaredExp{},
			StudentT{DF: 4})
	}
	fixed := []string{"StudentT.DF"}
	for _, c := range []struct {
		name string
		gp   func(t *testing.T) *GP
		opt  *LearnOptions
		f    float64
		most [2]float64
	}{
		{"ionosphere", uci("ionosphere"), nil, 84.80843258805, [2]float64{10, 60}},
		{"sonar", uci("sonar"), nil, 60.50124586620, [2]float64{10, 60}},
		{"usps35", usps35, nil, 110.68124021581, [2]float64{10, 60}},
		{"ionosphere, ELBO", uci("ionosphere"), &LearnOptions{NoPrior: true}, 84.64786060760864,
			[2]float64{12, 60}},
		{"sonar, ELBO", uci("sonar"), &LearnOptions{NoPrior: true}, 59.98269523919856,
			[2]float64{14, 72}},
		{"Student", student, &LearnOptions{Fixed: fixed}, 152.385441607631, [2]float64{10, 60}},
		{"Student, ELBO", student, &LearnOptions{Fixed: fixed, NoPrior: true}, 152.23760941560684,
			[2]float64{10, 60}},
		{"ionosphere, ARD", func(t *testing.T) *GP {
			d := loadUCI(t, "ionosphere")
			return mustGP(t, d.x, d.y, SquaredExp{Lengths: make([]float64, 34)}, BernoulliLogit{})
		}, &LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {1, 1.5, 0},
			"SquaredExp.Length": {1.4, 0.5, 1}}}, 78.08536699428831, [2]float64{12, 80}},
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
			held := p.Name == "Sum[1].Product[1].Periodic.Scale" ||
				p.Name == "Sum[1].Product[1].Periodic.Period"
			if p.Fixed != held || held && p.Value != 1 {
				t.Errorf("%s: fixed %v, %v", p.Name, p.Fixed, p.Value)
			}
		}
	})
}

// co2 returns the components of the CO₂ on Mauna Loa before 1988, their priors and the best
// objective.
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
		rationalQuadratic(e(5), e(6), e(7)),
		SquaredExp{Scale: e(8), Length: e(9)},
	}, GaussianNoise{Var: math.Exp(2 * truth.Centre[10])})
	c := truth.Centre
	return gp, &LearnOptions{Fixed: []string{"Sum[1].Product[1].Periodic.Period"},
		Prior: map[string]Prior{
			"Sum[1].Product[1].Periodic.Length": {c[4], 2, 0},
			"Sum[2].RationalQuadratic.Alpha":    {c[7], 2, 0},
			"GaussianNoise.Var":                 {2 * c[10], 4, 0},
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

// checkLearned learns gp and checks that the objective is f.
func checkLearned(t *testing.T, gp *GP, opt *LearnOptions, f float64, most [2]float64) *Learned {
	t.Helper()
	ctx := context.Background()
	l, err := learnerAs[*gpLearner](gp.Learner(opt))
	if err != nil {
		t.Fatal(err)
	}
	evaluations, work := math.Inf(1), math.Inf(1)
	s := &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if st := it.State.(*learnStepper); st.run.Best.F < f+0.01 && math.IsInf(evaluations, 1) {
			evaluations, work = float64(st.run.Count), st.run.Model.Work()
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
	t.Logf("to 0.01 nats %v evaluations, %v factorisations; in all %d, %v; objective %.9f, %.2g "+
		"over; %v; warnings %q", evaluations, work, got.Evaluations, got.Cholesky, got.Objective,
		got.Objective-f, got.Fit.Status, got.Warnings)
	for _, p := range got.Params {
		t.Logf("%s %.6g (θ %.6f ± %.3f) prior %v", p.Name, p.Value, math.Log(p.Value), p.SD,
			p.Prior)
	}
	if !(got.Objective < f+1e-3) {
		t.Errorf("objective %.9f, want %.9f", got.Objective, f)
	}
	if evaluations > most[0] || work > most[1] {
		t.Errorf("%v evaluations and %v factorizations to 0.01 nats, at most %v", evaluations, work,
			most)
	}
	if math.Abs(-got.Fit.ELBO-got.LogPrior-got.Objective) > 1e-4 {
		t.Errorf("ELBO %v and log prior %v, objective %v", got.Fit.ELBO, got.LogPrior,
			got.Objective)
	}
	if post == nil {
		t.Error("no posterior")
	}
	return got
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
			if got.Objective != all.Objective || got.Evaluations != all.Evaluations ||
				got.Fit.ELBO != all.Fit.ELBO || !slices.Equal(got.Starts, all.Starts) ||
				!slices.Equal(post.a, want.a) {
				t.Errorf("%s: resumed after %d: objective %v in %d evaluations, want %v in %d",
					c.name, at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
			}
		}
	}
}

// TestLearnStarts checks that every search from thirty random starts finds the optimum under the
// default priors.
func TestLearnStarts(t *testing.T) {
	t.Parallel()
	for _, name := range few([]string{"ionosphere", "sonar"}, 1) {
		d := loadUCI(t, name)
		_, cols := d.x.Dims()
		n := shorter(100, 30)
		gp := mustGP(t, mat.DenseCopyOf(d.x.Slice(0, n, 0, cols)), d.y[:n], SquaredExp{},
			BernoulliLogit{})
		_, _, l, err := gp.Learn(context.Background(), nil, &LearnOptions{Restarts: shorter(30, 5)})
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range l.Starts {
			if !(f < l.Objective+1e-3) {
				t.Errorf("%s: start %d ended with %v, the best with %v", name, k, f,
					l.Objective)
			}
		}
		if len(l.Warnings) > 0 {
			t.Errorf("%s: %q", name, l.Warnings)
		}
	}
}

// TestLearnCanceled checks that a search that ends early returns the best GP and posterior so far.
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
	if !errors.Is(err, context.Canceled) || best == nil || post == nil || l.Fit != nil ||
		l.Search.Status != Canceled {
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
		{LearnOptions{Fixed: []string{"Length"}},
			`name "Length", which is not a parameter; use one of SquaredExp.Scale, SquaredExp.Length`},
		{LearnOptions{Fixed: []string{"SquaredExp.Length", "SquaredExp.Scale"}},
			"no hyperparameter is left"},
		{LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {}}}, "SD must be positive"},
		{LearnOptions{Prior: map[string]Prior{"x": {SD: 1}}}, `name "x"`},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {2, 1}}},
			"Bounds of SquaredExp.Scale"},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {-2, 1}}},
			"within its range, from 0 to +Inf"},
		{LearnOptions{Restarts: -1}, "Restarts is -1"},
		{LearnOptions{Tol: math.NaN()}, "Tol NaN"},
	} {
		_, _, _, err := gp.Learn(ctx, nil, &e.opt)
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), e.says) ||
			!prefixedOnce(err) {
			t.Errorf("%+v: %v", e.opt, err)
		}
	}
	if _, _, _, err := gp.Learn(ctx, &Solver{Divergence: Euclidean()}, nil); !errors.Is(err,
		ErrNoProx) {
		t.Error(err)
	}
	l, err := learnerAs[*gpLearner](gp.Learner(nil))
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

// TestLearnWarnings checks the warnings for a parameter that ends at its bound and for a parameter
// that is learned by differences.
func TestLearnWarnings(t *testing.T) {
	t.Parallel()
	gp := learnCases()[10].model(t, 16)
	_, _, l, err := gp.Learn(context.Background(), nil,
		&LearnOptions{Bounds: map[string][2]float64{"underived.Scale": {1e-3, 0.2}}})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Params[0].AtBound || !l.Params[0].Differences || math.Abs(l.Params[0].Value-0.2) > 1e-6 ||
		len(l.Warnings) != 1 ||
		!strings.Contains(l.Warnings[0], "underived.Scale ended at its bound 0.2") {
		t.Errorf("%+v", l)
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

// TestLearnNoiseOfBadFit checks that the scale of Laplace noise is learned even if the model fits
// badly, so that most residuals are many standard deviations of their latent value from zero.
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
			t.Errorf("%s: a scale of %v, with objective %v after %d evaluations %v", name, b,
				l.Objective, l.Evaluations, l.Warnings)
		}
		if l.Evaluations > 25 {
			t.Errorf("%s: %d evaluations", name, l.Evaluations)
		}
	}
}

// TestLearnUnit checks that the answer does not depend on the unit of the responses, and that the
// search converges, also if all responses are equal or there is only one.
func TestLearnUnit(t *testing.T) {
	ctx, next := context.Background(), mat.NewDense(1, 1, []float64{1})
	// each function learns from y at x, and returns the mean and the variance of the latent value
	// at 1
	models := map[string]func(x *mat.Dense, y []float64, lik Likelihood) (l *Learned, m, v []float64,
		err error){
		"GP": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64, error) {
			_, p, l, err := mustGP(t, x, y, SquaredExp{}, lik).Learn(ctx, nil, nil)
			m, v := p.At(next).Latent(nil, nil)
			return l, m, v, err
		},
		"SparseGP": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64,
			error) {
			g, err := NewSparseGP(x, y, SquaredExp{}, lik, nil)
			_, p, l, err := mustSparse(t, g, err).Learn(ctx, nil, nil)
			m, v := p.At(next).Latent(nil, nil)
			return l, m, v, err
		},
		"GLM": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64, error) {
			g, err := NewGLM(x, y, lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, p, l, err := g.Learn(ctx, nil, nil)
			m, v := p.Latent(nil, nil, next)
			return l, m, v, err
		},
	}
	for model, learned := range models {
		for _, lik := range []Likelihood{GaussianNoise{}, Laplace{}, StudentT{}} {
			for _, n := range []int{1, 2, 4, 30, 31} { // equal responses except for 31 rows
				var want [2]float64
				for _, unit := range []float64{1, 1e-6, 1e-3, -1, 1e3, 1e6} {
					x, y := mat.NewDense(n, 1, nil), make([]float64, n)
					for i := range y {
						x.Set(i, 0, float64(1+i))
						y[i] = 5 * unit
						if n == 31 {
							y[i] += unit * math.Sin(float64(i)) / 4
						}
					}
					name := fmt.Sprintf("%s, %T, %d rows, unit %v", model, lik, n, unit)
					l, m, v, err := learned(x, y, lik)
					if err != nil || l.Search.Status != Converged {
						t.Errorf("%s: %v, %v, %v", name, l, l.Search.Status, err)
					}
					got := [2]float64{m[0] / unit, math.Sqrt(v[0]) / math.Abs(unit)}
					if unit == 1 {
						want = got
					}
					for k := range got {
						if !(math.Abs(got[k]-want[k]) <= 5e-3*math.Abs(want[k])) {
							t.Errorf("%s: %v, want %v", name, got, want)
						}
					}
				}
				if model != "GLM" && !(math.Abs(want[0]-5) < 0.5) {
					t.Errorf("%s, %T, %d rows of 5: %v", model, lik, n, want)
				}
			}
		}
	}
}

// TestLearnOn checks that a kernel of some columns is learned as if there were no other columns,
// and that periods are found among several columns.
func TestLearnOn(t *testing.T) {
	ctx, rng := context.Background(), testRand(47)
	n := 120
	x, y := mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range n {
		day, place := 60*rng.Float64(), 4*rng.Float64()
		x.SetRow(i, []float64{1000 * rng.Float64(), day, place})
		u := 2 * math.Pi * day / 5
		y[i] = math.Sin(u) + 0.7*math.Cos(2*u) + 0.5*math.Sin(2*place) + 0.1*rng.NormFloat64()
	}
	learned := func(x *mat.Dense, k Kernel, lik Likelihood) *Learned {
		_, _, l, err := mustGP(t, x, y, k, lik).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	part := func(columns ...int) *mat.Dense { return columnsOf(x, columns) }
	for _, c := range []struct {
		k       Kernel
		columns []int
	}{
		{SquaredExp{}, []int{2}},
		{Matern32{Lengths: make([]float64, 2)}, []int{2, 1}},
		{Sum{Linear{}, Constant{}, SquaredExp{}}, []int{2}},
		{Linear{Scales: make([]float64, 2)}, []int{0, 2}},
		{Periodic{}, []int{1}},
	} {
		want := learned(part(c.columns...), c.k, GaussianNoise{})
		got := learned(x, On{Kernel: c.k, Columns: c.columns}, GaussianNoise{})
		if math.Abs(got.Objective-want.Objective) > 1e-3 {
			t.Errorf("%v of %v: the objective is %v, want %v", c.k, c.columns, got, want)
		}
		for i, p := range got.Params {
			if math.Abs(p.Value-want.Params[i].Value) > 0.02*want.Params[i].Value {
				t.Errorf("%v of %v: %s is %v, want %v", c.k, c.columns, p.Name, p.Value,
					want.Params[i].Value)
			}
		}
	}
	for name, k := range map[string]Kernel{
		"On.Periodic.Period": On{Kernel: Periodic{}, Columns: []int{1}},
		"Sum[0].On.Periodic.Period": Sum{On{Kernel: Periodic{}, Columns: []int{1}},
			On{Kernel: Matern32{}, Columns: []int{2}}},
		"On.Sum[1].On.Periodic.Period": On{Kernel: Sum{On{Kernel: SquaredExp{}, Columns: []int{0}},
			On{Kernel: Periodic{}, Columns: []int{1}}}, Columns: []int{2, 1}},
	} {
		found := false
		for _, p := range learned(x, k, GaussianNoise{}).Params {
			if p.Name == name {
				found = true
				if math.Abs(p.Value-5) > 0.1 {
					t.Errorf("%s is %v, want 5", name, p.Value)
				}
			}
		}
		if !found {
			t.Errorf("no parameter %s", name)
		}
	}
	// both columns have the period of a Periodic without On
	for i := range n {
		a, b := 30*rng.Float64(), 30*rng.Float64()
		x.SetRow(i, []float64{a, b, 0})
		y[i] = math.Sin(2*math.Pi*a/5) + math.Cos(2*math.Pi*b/5) + 0.1*rng.NormFloat64()
	}
	l := learned(part(0, 1), Periodic{}, GaussianNoise{})
	if p := l.Params[2]; math.Abs(p.Value-5) > 0.1 {
		t.Errorf("of two columns %s is %v, want 5", p.Name, p.Value)
	}
}

// TestLearnPeriodWarnings checks that a wrong period gets a warning with a better period, that rows
// with few cycles get a warning, and that right periods get no warning.
func TestLearnPeriodWarnings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	truth := Periodic{Length: 0.8, Period: 5}
	// season returns the value of and the warning for the period that k learns from a draw of the
	// truth. times multiplies the truth and next is added to it unless they are nil.
	season := func(seed uint64, cycles float64, truth, k Kernel, lik Likelihood, sparse bool) (
		period float64, warning string) {
		rng := testRand(seed)
		x := mat.NewDense(150, 1, nil)
		for i := range 150 {
			x.Set(i, 0, 5*cycles*rng.Float64())
		}
		y := drawGP(rng, truth, x, 0.1)
		for i, v := range y {
			if _, ok := lik.(BernoulliLogit); ok {
				y[i] = plusMinus(rng.Float64() < 1/(1+math.Exp(-5*v)))
			}
		}
		var l *Learned
		var err error
		if sparse {
			g, e := NewSparseGP(x, y, k, lik, nil)
			_, _, l, err = mustSparse(t, g, e).Learn(ctx, nil, nil)
		} else {
			_, _, l, err = mustGP(t, x, y, k, lik).Learn(ctx, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range l.Warnings {
			if strings.Contains(w, "Period") {
				warning += w
			}
		}
		for _, p := range l.Params {
			if strings.HasSuffix(p.Name, "Period") {
				period = p.Value
			}
		}
		return period, warning
	}
	better := regexp.MustCompile(`Period is .*, but the responses are more likely to have a period ` +
		`of (4\.9|5|5\.0)[0-9]*, by about .* nats; set it to that value before learning`)
	for _, c := range []struct {
		given  float64
		sparse bool
	}{{2.5, false}, {9, false}, {10, false}, {40, false}, {0.3, true}, {15, true}} {
		p, said := season(51, 8, truth, Periodic{Period: c.given}, GaussianNoise{}, c.sparse)
		if math.Abs(math.Log(p/5)) > 0.05 && !better.MatchString(said) {
			t.Errorf("a period of %v that began at %v: %q", p, c.given, said)
		}
		if math.Abs(math.Log(p/c.given)) > 0.5 {
			t.Errorf("a period of %v that began at %v", p, c.given)
		}
	}
	smooth := SquaredExp{Length: 12}
	for name, c := range map[string]struct {
		truth, k Kernel
		lik      Likelihood
		sparse   bool
	}{
		"season":          {truth, Periodic{}, GaussianNoise{}, false},
		"next to a trend": {Sum{smooth, truth}, Sum{SquaredExp{}, Periodic{}}, GaussianNoise{}, false},
		"that changes": {Product{smooth, truth}, Product{SquaredExp{}, Periodic{}}, GaussianNoise{},
			false},
		"sparse": {truth, Periodic{}, GaussianNoise{}, true},
		"labels": {truth, Periodic{}, BernoulliLogit{}, false},
		"next to a season": {Sum{truth, Periodic{Period: 11}}, Sum{Periodic{Period: 11}, Periodic{}},
			GaussianNoise{}, false},
	} {
		if p, said := season(54, 8, c.truth, c.k, c.lik, c.sparse); math.Abs(p-5) > 0.15 || said != "" {
			t.Errorf("%s: a period of %v, %q", name, p, said)
		}
	}
	if p, said := season(53, 1.4, truth, Periodic{}, GaussianNoise{}, false); !strings.Contains(said,
		"set it if it is known, or add rows") {
		t.Errorf("of 1.4 cycles a period of %v, %q", p, said)
	}
}

// TestLearnSeasons checks that two Periodic kernels with unset periods start at, and learn, the two
// seasons of the responses.
func TestLearnSeasons(t *testing.T) {
	t.Parallel()
	const n, day, week = 150, 1.0, 7.0
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	rng := rand.New(rand.NewPCG(2, 3))
	for i := range y {
		v := 5 * week * rng.Float64()
		x.Set(i, 0, v)
		y[i] = math.Sin(2*math.Pi*v/day) + 0.5*math.Cos(4*math.Pi*v/day) +
			math.Cos(2*math.Pi*v/week) + 0.1*rng.NormFloat64()
	}
	_, _, l, err := mustGP(t, x, y, Sum{Periodic{}, Periodic{}}, GaussianNoise{}).Learn(
		context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, p := range l.Params {
		if strings.HasSuffix(p.Name, ".Period") {
			got = append(got, p.Value)
		}
	}
	slices.Sort(got)
	if len(got) != 2 || math.Abs(got[0]/day-1) > 0.01 || math.Abs(got[1]/week-1) > 0.01 {
		t.Errorf("the periods are %v, want %v and %v; warnings %q", got, day, week, l.Warnings)
	}
}
