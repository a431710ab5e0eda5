package pgsvi

import (
	"context"
	"math"
	"testing"

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
		m := &gpLearning{gp: gp, space: l.space}
		m.use(crew{1, nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64) learnPoint {
			x, err := m.evaluate(theta, 1e-13, true)
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

// learnGolden is a data set and what is known to be its best.
type learnGolden struct {
	name string
	load func(t testing.TB) split
	f    float64
	most [2]float64 // evaluations and factorisations to 0.01 nats
}

// The objective learned is that of the reference values, in so many evaluations.
func TestLearnTruth(t *testing.T) {
	t.Parallel()
	goldens := []learnGolden{
		{"ionosphere", gpCases[0].load, 84.80843258805, [2]float64{10, 60}},
		{"sonar", gpCases[1].load, 60.50124586620, [2]float64{10, 60}},
	}
	if !testing.Short() {
		goldens = append(goldens, learnGolden{"usps35", gpCases[2].load, 110.68124021581, [2]float64{10, 60}})
	} else {
		goldens = goldens[:0]
	}
	for _, c := range goldens {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := c.load(t)
			gp, err := NewGP(d.x, d.y, SquaredExp{}, BernoulliLogit{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkLearned(t, gp, nil, c.f, c.most)
		})
	}
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
