package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
)

// The scales of a GP and of a GLM are certified over [0.05, 50] to 0.1 nats in at most twenty
// steps; the proof holds at scales that were not tried.
func TestCertifyScale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	check := func(name string, c *ScaleCertificate, err error, elbo func(scale float64) float64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: %+v", name, *c)
		if c.Steps > 20 || !(c.Bound <= 0.1) || c.Scope != OverQAndScale {
			t.Errorf("%s: %+v", name, *c)
		}
		if got := elbo(c.Scale); math.Abs(got-c.ELBO) > 0.01 {
			t.Errorf("%s: ELBO %v at %v, %v said", name, got, c.Scale, c.ELBO)
		}
		for _, s := range []float64{0.05, 0.3, 0.9 * c.Scale, 1.2 * c.Scale, 9, 50} {
			if got := elbo(s); got > c.ELBO+c.Bound {
				t.Errorf("%s: ELBO %v at %v, above %v + %v", name, got, s, c.ELBO, c.Bound)
			}
		}
	}
	for i, c := range gpCases[:longer(2, 1)] {
		d := c.load(t)
		x, y := d.x, d.y
		if !testkit.IsLong() {
			x, y = mat.DenseCopyOf(x.Slice(0, 40, 0, 34)), y[:40]
		}
		length := math.Exp([]float64{1, -1}[i])
		gp := mustGP(t, x, y, SquaredExp{Length: length}, BernoulliLogit{})
		cert, err := gp.CertifyScale(ctx, 0.05, 50, 0.1)
		check("GP, "+c.name, cert, err, func(s float64) float64 {
			_, res, err := mustGP(t, x, y, SquaredExp{Scale: s, Length: length}, BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
		glm := func(s float64) *GLM {
			g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: i == 0, Autoscale: i == 1, PriorSD: s})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		cert, err = glm(2).CertifyScale(ctx, 0.05, 50, 0.1)
		check("GLM, "+c.name, cert, err, func(s float64) float64 {
			_, res, err := glm(s).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
	}
}

// The scale that is certified is one that multiplies all covariances: of a Product that of a
// factor, and not of a term of one.
func TestCertifyScaleComposite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(6, 1, []float64{1, 1.5, 2, 4, 4.5, 6}), []float64{1, 1, -1, 1, -1, -1}
	sum := Sum{SquaredExp{Scale: 2}, Matern12{Length: 2}}
	for _, with := range []func(s float64) Kernel{
		func(s float64) Kernel { return Product{sum, Matern52{Scale: s, Length: 3}} },
		func(s float64) Kernel { return Product{Constant{Scale: s}, sum} },
	} {
		c, err := mustGP(t, x, y, with(1), BernoulliLogit{}).CertifyScale(ctx, 0.05, 50, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []float64{c.Scale, 0.1, 10} {
			_, res, err := mustGP(t, x, y, with(s), BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := res.ELBO - c.ELBO; d > c.Bound || s == c.Scale && d < -0.01 {
				t.Errorf("%T: ELBO %v at scale %v, %v and a bound of %v said", with(1), res.ELBO, s, c.ELBO, c.Bound)
			}
		}
	}
	if _, err := mustGP(t, x, y, Product{sum, sum}, BernoulliLogit{}).CertifyScale(ctx, 0.05, 50, 0.1); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "Product{Constant{}, k}") {
		t.Errorf("a Product of Sums: %v", err)
	}
}

func TestCertifyScaleErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(3, 1, []float64{1, 2, 4}), []float64{1, -1, 1}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		k        Kernel
		lik      Likelihood
		jitter   float64
		lo, hi   float64
		ctx      context.Context
		is       error
		says     string
		alsoGLMs bool
	}{
		{SquaredExp{}, BernoulliLogit{}, 0, 1, 0.5, ctx, ErrParam, "the scales from 1 to 0.5", true},
		{SquaredExp{}, BernoulliLogit{}, 0, 0, 1, ctx, ErrParam, "the scales from 0 to 1", true},
		{SquaredExp{}, StudentT{}, 0, 0.1, 1, ctx, ErrParam, "not for StudentT", true},
		{Linear{}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{Sum{SquaredExp{}, White{}}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{SquaredExp{}, BernoulliLogit{}, 0.1, 0.1, 1, ctx, ErrParam, "jitter of 0.1", false},
		{SquaredExp{}, BernoulliLogit{}, 0, 0.1, 1, canceled, context.Canceled, "", true},
	} {
		gp, err := NewGP(x, y, c.k, c.lik, &GPOptions{Jitter: c.jitter})
		if err != nil {
			t.Fatal(err)
		}
		_, err = gp.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !prefixedOnce(err) {
			t.Errorf("GP: %v, want %q", err, c.says)
		}
		if !c.alsoGLMs {
			continue
		}
		g, err := NewGLM(x, y, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !prefixedOnce(err) {
			t.Errorf("GLM: %v, want %q", err, c.says)
		}
	}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: DiagonalCovariance})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.CertifyScale(ctx, 0.1, 1, 0.1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
}

// CertifyScale ends with the error of its context wherever that is done.
func TestCertifyScaleHearsCancel(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := testRand(3)
	x, y := mat.NewDense(n, 2, normals(rng, 2*n)), make([]float64, n)
	for i := range y {
		y[i] = math.Copysign(1, x.At(i, 0)+rng.NormFloat64())
	}
	gp := mustGP(t, x, y, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{})
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(ctx context.Context) (*ScaleCertificate, error){
		"GP":  func(ctx context.Context) (*ScaleCertificate, error) { return gp.CertifyScale(ctx, 0.05, 50, 0.1) },
		"GLM": func(ctx context.Context) (*ScaleCertificate, error) { return glm.CertifyScale(ctx, 0.05, 50, 0.1) },
	} {
		whole := newAsked(math.MaxInt64)
		if _, err := f(whole); err != nil {
			t.Fatal(err)
		}
		total := whole.asked.Load()
		for k := int64(0); k < total; k += 1 + total/20 {
			ctx := newAsked(k)
			_, err := f(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%s, done at ask %d of %d: %v", name, k, total, err)
			}
			if more := ctx.asked.Load() - k; more > 100 {
				t.Errorf("%s, done at ask %d of %d: asked %d times more", name, k, total, more)
			}
		}
	}
}

// A search over hyper-parameters that has converged is at a stationary point: small steps downhill
// from there, by fits of their own, gain nothing. Large counts among zeros, labels that are all the
// same and starts far off have slopes that change by orders of magnitude.
func TestLearnEndsStationary(t *testing.T) {
	t.Parallel()
	at := func(i int, v, rest float64) func(int) float64 {
		return func(j int) float64 {
			if i == j {
				return v
			}
			return rest
		}
	}
	zero := at(-1, 0, 0)
	for _, c := range few([]struct {
		name          string
		y             func(i int) float64
		lik           Likelihood
		scale, length float64 // of the start, 0 for the default
		n             int
		bare          bool // without priors
	}{
		{"zeros, start 1000", zero, Poisson{}, 1000, 3, 30, false},
		{"zeros, one row", zero, Poisson{}, 2112, 0, 1, true},
		{"one 1000, start 1", at(7, 1000, 0), Poisson{}, 1, 3, 30, true},
		{"one 1000, start 1000", at(7, 1000, 0), Poisson{}, 1000, 3, 30, false},
		{"one 10", at(7, 10, 0), Poisson{}, 0, 0, 60, false},
		{"one 100", at(7, 100, 0), Poisson{}, 0, 0, 60, false},
		{"one 1000", at(7, 1000, 0), Poisson{}, 0, 0, 60, false},
		{"all labels +1", at(-1, 0, 1), BernoulliLogit{}, 100, 3, 30, true},
		{"one 1e6 among ones", at(7, 1e6, 1), Exponential{}, 100, 3, 26, true},
	}, 3) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x, y := mat.NewDense(c.n, 1, nil), make([]float64, c.n)
			for i := range y {
				x.Set(i, 0, float64(i))
				y[i] = c.y(i)
			}
			opt := &LearnOptions{NoPrior: c.bare}
			if c.length > 0 {
				opt.Fixed = []string{"SquaredExp.Length"}
			}
			ctx := context.Background()
			_, _, l, err := mustGP(t, x, y, SquaredExp{Scale: c.scale, Length: c.length}, c.lik).Learn(ctx, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			objective := func(theta []float64) float64 {
				_, r, err := mustGP(t, x, y, SquaredExp{Scale: math.Exp(theta[0]), Length: math.Exp(theta[1])}, c.lik).Fit(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				f := -r.ELBO
				for i, p := range l.Params {
					if p.Prior.SD > 0 {
						d := (theta[i] - p.Prior.Mean) / p.Prior.SD
						f += 0.5 * d * d
					}
				}
				return f
			}
			theta := []float64{math.Log(l.Params[0].Value), math.Log(l.Params[1].Value)}
			f := objective(theta)
			if math.Abs(f-l.Objective) > 1e-3 {
				t.Errorf("objective %v, by a fit %v", l.Objective, f)
			}
			least := f
			for i := range l.Params {
				if l.Params[i].Fixed {
					continue
				}
				for _, h := range []float64{-0.2, -0.05, 0.05, 0.2} {
					v := theta[i]
					theta[i] = v + h
					least = min(least, objective(theta))
					theta[i] = v
				}
			}
			if l.Search.Status != Converged || f-least > 0.01 {
				t.Errorf("%v after %d evaluations, at %v ± %.2g with %v, and %.3g nats lower nearby", l.Search.Status, l.Evaluations, l.Params[0].Value, l.Params[0].SD, f, f-least)
			}
		})
	}
}

// A search whose slopes are wrong finds no way down: it has not converged, says how much its slope
// still promises, and warns.
func TestLearnStalls(t *testing.T) {
	t.Parallel()
	s := search.Search{Prec: mat.NewSymDense(1, nil), Goal: learn.DefaultTol, Exact: search.ExactPart, Longest: search.LongestStep, Part0: search.Part}
	s.Lo, s.Hi = []float64{-100}, []float64{100}
	s.Begin([]float64{1})
	for range 200 {
		if s.Done {
			break
		}
		at := s.Next[0]
		s.Tell(search.Point{Theta: []float64{at}, F: at * at, Grad: []float64{-2 * at}, Info: mat.NewSymDense(1, []float64{2})})
	}
	end := s.End()
	if !s.Done || !end.Stuck || !(end.Left > s.Goal) {
		t.Errorf("done %v, %+v", s.Done, end)
	}
	st := &learnStepper{run: &learn.Run{Search: s, Ended: end, Done: true}, space: &learnSpace{}, n: 1}
	st.run.Best.F = 1
	e, err := st.Evaluate(context.Background(), nil)
	if err != nil || !(e.Gap > e.Goal) || len(st.warnings(Stalled)) != 1 {
		t.Errorf("%+v, %v, %q", e, err, st.warnings(Stalled))
	}
	stall := DefaultConverger()
	stall.Init()
	status := NotTerminated
	for k := 0; k < 20 && status == NotTerminated; k++ {
		status = stall.Converged(Iteration{K: k, Evaluation: e})
	}
	if status != Stalled {
		t.Errorf("the run ended %v", fmt.Sprint(status))
	}
}

// learnProblem returns a small GP that is hard to learn: heavy counts, zeros, labels that are all
// the same, outliers, one row, starts far off.
func learnProblem(t testing.TB, seed uint64) (name string, g *GP, opt *LearnOptions) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 16))
	n, d := 2+rng.IntN(40), 1+rng.IntN(3)
	switch rng.IntN(8) {
	case 0:
		n = 1
	case 1:
		n = 100
	}
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	unit := math.Exp(2 * rng.NormFloat64())
	var lik Likelihood
	kind := []string{"counts", "zeros", "one count", "log-normal counts", "waiting times", "one label",
		"labels", "outliers", "noise", "constant"}[rng.IntN(10)]
	odd := rng.IntN(n)
	size := math.Floor(math.Pow(10, 4*rng.Float64()))
	for i := range n {
		for j := range d {
			x.Set(i, j, unit*5*rng.Float64())
		}
		f := math.Sin(2*x.At(i, 0)/unit) + 0.3*rng.NormFloat64()
		switch kind {
		case "counts":
			lik, y[i] = Poisson{}, math.Floor(math.Exp(3*f)+rng.Float64())
		case "zeros":
			lik = Poisson{}
		case "one count":
			if lik = (Poisson{}); i == odd {
				y[i] = size
			}
		case "log-normal counts":
			lik, y[i] = Poisson{}, math.Floor(math.Exp(2.5*rng.NormFloat64()))
		case "waiting times":
			lik, y[i] = Exponential{}, math.Exp(3*rng.NormFloat64())
		case "one label":
			lik, y[i] = BernoulliLogit{}, 1
		case "labels":
			lik, y[i] = BernoulliProbit{}, plusMinus(f > 0)
		case "outliers":
			if lik, y[i] = (StudentT{}), f; rng.IntN(10) == 0 {
				y[i] *= size
			}
		case "noise":
			if lik, y[i] = (GaussianNoise{}), f; i == odd {
				y[i] *= size
			}
		default:
			lik, y[i] = Laplace{}, 1
		}
	}
	start, length := math.Exp(3*rng.NormFloat64()), unit*math.Exp(0.5+rng.NormFloat64())
	var k Kernel
	switch rng.IntN(5) {
	case 0:
		k = SquaredExp{}
	case 1:
		k = SquaredExp{Scale: start, Length: length}
	case 2:
		k = Matern32{Scale: start, Length: length}
	case 3:
		k = SquaredExp{Lengths: make([]float64, d)}
	default:
		k = Sum{Matern52{}, Constant{}}
	}
	opt = &LearnOptions{NoPrior: rng.IntN(4) == 0}
	return fmt.Sprintf("seed %d: %s, %d×%d, %s, without priors %v", seed, kind, n, d, testkit.TypeName(k), opt.NoPrior),
		mustGP(t, x, y, k, lik), opt
}

// polishLearned returns the objective of the search st, and that of the stationary point downhill
// of where it ended: by quasi-Newton steps with exact fits at each θ, within the bounds of the
// search.
func polishLearned(t testing.TB, l *gpLearner, st *learnStepper) (f, polished float64) {
	t.Helper()
	m := l.learning()
	m.Use(term.Crew{Workers: 1})
	lo, hi := st.run.Search.Lo, st.run.Search.Hi
	inside := make([]float64, len(lo))
	at := func(theta, grad []float64) float64 {
		for i, v := range theta {
			inside[i] = max(lo[i], min(hi[i], v))
		}
		p, err := m.Evaluate(inside, 1e-9, math.Inf(1), true)
		if err != nil {
			t.Fatal(err)
		}
		if math.IsInf(p.F, 1) {
			return p.F
		}
		m.Keep(false)
		value := p.F + l.space.Penalty(inside, p.Grad)
		for i := range grad {
			if grad[i] = p.Grad[i]; inside[i] != theta[i] {
				grad[i] = 0
			}
		}
		return value
	}
	best := slices.Clone(st.run.Best.Theta)
	f = at(best, nil)
	polished = f
	for range 4 { // a new start forgets curvatures
		r, _ := optimize.Minimize(optimize.Problem{
			Func: func(theta []float64) float64 { return at(theta, nil) },
			Grad: func(grad, theta []float64) { at(theta, grad) },
		}, best, &optimize.Settings{GradientThreshold: 1e-5, MajorIterations: 100, FuncEvaluations: 400}, &optimize.BFGS{})
		if r == nil || !(r.F < polished-1e-7) {
			break
		}
		polished, best = r.F, slices.Clone(r.X)
	}
	return f, polished
}

// Random searches end, and one that has converged is within 0.01 nats of the best stationary point
// downhill.
//
//	go test -run LearnRandom -seeds 1000 -v .
func TestLearnRandom(t *testing.T) {
	t.Parallel()
	var near, stalled, lies, limits, unknown int
	worst := 0.0
	seeds := testkit.Seeds(longer(200, 24))
	for seed := testkit.FirstSeed(); seed < testkit.FirstSeed()+seeds; seed++ {
		name, g, opt := learnProblem(t, seed)
		l, err := learnerAs[*gpLearner](g.Learner(opt))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		res, err := (&Solver{Workers: 1}).Run(context.Background(), l)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f, polished := polishLearned(t, l, res.Stepper.(*learnStepper))
		short := f - polished
		// the exact fit at the end fails, so that there is nothing to compare with
		if math.IsInf(f, 1) {
			unknown++
			t.Logf("%s: %v, not to be polished", name, res.Status)
			continue
		}
		switch {
		case res.Status == Converged && short <= 0.01:
			near++
			worst = max(worst, short)
		case res.Status == Converged:
			lies++
			worst = max(worst, short)
			t.Errorf("%s: converged %.3g nats above a stationary point", name, short)
		case res.Status == Stalled:
			stalled++
			t.Logf("%s: stalled %.3g nats above a stationary point", name, short)
		default:
			limits++
			t.Logf("%s: %v, %.3g nats above a stationary point", name, res.Status, short)
		}
	}
	t.Logf("of %d searches %d converged within 0.01 nats, %d beyond, the worst %.3g; "+
		"%d stalled, %d met a limit, %d cannot be polished", seeds, near, lies, worst, stalled, limits, unknown)
}

// A column that does not vary is one, whatever its value: 0.1 is not a float64, so that the mean of
// as many is not quite it.
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
			t.Errorf("%s: beside a column of zeros %v, of 0.1 %v", testkit.TypeName(k), priors[0], priors[1])
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

// A search from the default start finds the better of two optima: the season of a trend, though its
// length is far below the median distance, and the noise of data that short lengths would do
// without.
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

// Starts without an ELBO, as those for responses whose squares a float64 does not hold, are an
// error that says what to do.
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

// TestLearnedString: what was learned prints as a table, of intervals in the parameters' own units,
// with what is fixed or at a bound, and the warnings.
func TestLearnedString(t *testing.T) {
	t.Parallel()
	positive := func(name string, v float64) Param { return Param{name, v, 0, math.Inf(1)} }
	l := &Learned{
		Objective: 12.5, Evaluations: 7, Warnings: []string{"of a kind"},
		Params: []LearnedParam{
			{Param: positive("Linear.Scale", 2), SD: math.Log(2) / 1.959963984540054, Prior: Prior{math.Log(3), math.Log(10) / 1.959963984540054, 0}},
			{Param: positive("Matern52.Length", 4), Fixed: true, SD: 1, Prior: Prior{0, 1, 0}},
			{Param: Param{"Ordinal.Cuts[0]", -1, math.Inf(-1), math.Inf(1)}, SD: 0.5 / 1.959963984540054, AtBound: true},
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

// The noise and the scale of a start are where −ELBO − log prior is least at its lengths, and what
// that is said to be is what q has there.
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
		l, err := learnerAs[*gpLearner](gp.Learner(c.learn))
		if err != nil {
			t.Fatal(err)
		}
		checkNoiseProfile(t, c.name, l.learning().(*learn.Latent), l.space, c.scales)
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
	l, err := learnerAs[*glmLearner](g.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.learning(term.Crew{Workers: 1, Halt: nil})
	if err != nil {
		t.Fatal(err)
	}
	checkNoiseProfile(t, "a GLM with weights", m.(*learn.Latent), l.space, 0)
}

func checkNoiseProfile(t *testing.T, name string, m *learn.Latent, space *learnSpace, want int) {
	t.Helper()
	m.Use(term.Crew{Workers: 1, Halt: nil})
	noise, scales := space.Noise, space.Scales
	if !m.Profiles() || len(scales) != want {
		t.Errorf("%s: %d scales move with the noise %d, want %d", name, len(scales), noise, want)
		return
	}
	at := func(theta []float64) float64 {
		x, err := m.Evaluate(theta, 1e-9, math.Inf(1), false)
		if err != nil {
			t.Fatal(err)
		}
		return x.F + space.Penalty(theta, nil)
	}
	start := space.Starts()[0]
	best, err := m.Profile(start)
	if err != nil {
		t.Fatal(err)
	}
	if f := at(best.Theta); !(math.Abs(f-best.F) < 1e-9*(1+math.Abs(f))) || !(f <= at(start)) {
		t.Errorf("%s: −ELBO is %v at the noise found, was to be %v, and is %v at the start", name, f, best.F, at(start))
	}
	for _, step := range []float64{-1e-2, 1e-2} {
		moved := slices.Clone(best.Theta)
		for _, i := range scales {
			moved[i] += step
		}
		if moved[noise] += 2 * step; len(scales) > 0 && space.inside(moved) && at(moved) < best.F {
			t.Errorf("%s: %v more of all scales has %v, and the best was to have %v", name, step, at(moved), best.F)
		}
		moved = slices.Clone(best.Theta)
		if moved[noise] += 140 * step; space.inside(moved) && at(moved) < best.F {
			t.Errorf("%s: %v more of the noise has %v, and the best was to have %v", name, 140*step, at(moved), best.F)
		}
	}
}

// inside reports whether θ is within its bounds.
func (s *learnSpace) inside(theta []float64) bool {
	for i, at := range s.free {
		if theta[i] < s.coords[at].Lo || theta[i] > s.coords[at].Hi {
			return false
		}
	}
	return true
}

// Regression with much noise is learned by one search of few factorisations, wherever the default
// noise is.
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

// The noise of a Student-t is followed down to a thousandth of the responses, where residuals at
// the noise before are outliers all.
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

// A Period that is not set begins at that of the responses, in any unit, beside a trend and among
// rows that are missing.
func TestLearnPeriod(t *testing.T) {
	notShort(t)
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
		if got := learn.Period(x, y); math.Abs(math.Log(got/c.period)) > 0.02 {
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
		if p := learn.Period(x, make([]float64, x.RawMatrix().Rows)); p != 0 {
			t.Errorf("%s: a period of %v", what, p)
		}
	}
}
