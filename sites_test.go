package pgsvi

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// TestSolveSite checks that the minimizer of a one-dimensional problem satisfies its fixed point as
// accurately as a target must, from starts at which the expectation overflows.
func TestSolveSite(t *testing.T) {
	for _, c := range []struct {
		lik          Likelihood
		y, mc, vc, m float64
	}{
		{Poisson{}, 10000, 0, 0.01, 0}, {Poisson{}, 3, 100, 1e4, 100}, {Poisson{}, 0, 0, 100, 0},
		{Poisson{}, 1e6, -50, 100, 3},
		{BernoulliLogit{}, 1, -1000, 1e6, -1000}, {BernoulliProbit{}, -1, 1000, 1e6, 1000},
		{StudentT{DF: 4, Scale: 0.1}, 5, 0, 100, 0}, {Laplace{Scale: 0.1}, 5, 0, 100, 0},
	} {
		one := &term.Terms{Lik: viewOf(c.lik), Y: []float64{c.y}}
		gamma, d1, m := one.Solve(0, c.mc, c.vc, c.m, c.vc)
		v := 1 / (1/c.vc + gamma)
		if r := (m-c.mc)/c.vc - d1; math.Abs(r) > 0.05/math.Sqrt(v) || !(v > 0) {
			t.Errorf("%T y = %v: m = %v, v = %v, residual %v of %v", c.lik, c.y, m, v, r,
				1/math.Sqrt(v))
		}
		e := ExpectLogProb(c.lik, c.y, m, v)
		if math.Abs(gamma+e.D2) > 0.05*math.Abs(gamma) {
			t.Errorf("%T y = %v: γ = %v, want %v", c.lik, c.y, gamma, -e.D2)
		}
	}
}

// TestSiteProblem starts from a base with existing sites. It checks that every iteration lowers the
// value by the difference of two evaluations, and that both forms of a site agree: b − γm from
// K⁻¹m, and from c about the base mean.
func TestSiteProblem(t *testing.T) {
	gp := toyGP(t, 12, SquaredExp{Scale: 3, Length: 1}, Poisson{}, 18)
	st, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := algOf[*site.DenseAlgebra](st)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, batch := range [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}} {
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, batch, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	b := &s.Blocks
	b.Distinct([]int{1, 3, 5, 7, 9, 11}, s.N)
	b.Gather(s)
	var p site.Problem
	if err := p.Init(gp.terms, b.B, &site.CovMover{N: len(b.B), Cov: b.Cov}, &b.Base); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		before := p.Cur.Value
		if !p.Iterate() {
			break
		}
		if p.Cur.Value > before+1e-12 {
			t.Errorf("value rose from %v to %v", before, p.Cur.Value)
		}
		for i, a := range p.Cur.A {
			if want := p.Cur.C[i] - p.Cur.Gamma[i]*(p.Cur.M[i]-p.Base.M[i]); math.Abs(
				a-want) > 1e-9*(1+math.Abs(want)) {
				t.Errorf("site %d: a = %v, from c %v", i, a, want)
			}
		}
	}
	if d := p.Decrement(); d > 1e-3 {
		t.Errorf("after 25 iterations the predicted gain is still %v nats", d)
	}
}

// TestRated checks that the rates of a likelihood match its expectations.
func TestRated(t *testing.T) {
	for _, l := range []Likelihood{Poisson{}, Poisson{Exposure: 3}, Gamma{}, Gamma{Shape: 40},
		Exponential{}} {
		for _, y := range []float64{1, 7} {
			for _, at := range [][2]float64{{0, 0}, {-3, 2}, {1.5, 0.3}} {
				sign, origin, slope := fastOf(l).rate(y)
				gamma := math.Exp(origin + sign*at[0] + 0.5*at[1])
				e := ExpectLogProb(l, y, at[0], at[1])
				if math.Abs(e.D2+gamma) > 1e-12*gamma ||
					math.Abs(e.D1-slope+sign*gamma) > 1e-12*(math.Abs(slope)+gamma) {
					t.Errorf("%#v of %g under N(%g, %g): %v, not slope %g and curvature %g", l, y,
						at[0], at[1], e, slope-sign*gamma, -gamma)
				}
			}
		}
	}
}

// spanProblem returns a GLM with few rows in raw units, with a Unix time stamp and features of
// 1e-6, and its Stepper over the weights.
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
		s := mustStepper(t, g).(*siteStepper)
		if _, ok := s.alg.(*site.SpanAlgebra); !ok {
			t.Fatalf("a %T", s.alg)
		}
		w, err := site.NewWeightAlgebra(&g.lin, term.Crew{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.alg = w
		return s
	}
}

// TestSpan checks that a fit of few rows over their span equals a fit over the weights, for
// accepted steps and for steps of the paper, which continue over the weights. Saved runs of either
// fit must resume with the same bits.
func TestSpan(t *testing.T) {
	t.Parallel()
	g, direct := spanProblem(t, BernoulliLogit{})
	for _, s := range []*Solver{{},
		{StepSize: ConstantStep(0.5), MaxIter: 12, Converger: Never()}} {
		res, err := s.Run(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		if wide := algOf[*site.SpanAlgebra](res.Stepper).Wide; wide != (s.StepSize != nil) {
			t.Errorf("over the weights: %v", wide)
		}
		want, err := s.Resume(t.Context(), &Result{Stepper: direct()})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(res.ELBO-want.ELBO) > 1e-9*math.Abs(want.ELBO)+res.ELBOErr+want.ELBOErr {
			t.Errorf("ELBO %.14g, over the weights %.14g", res.ELBO, want.ELBO)
		}
		m, cov, err := algOf[site.Weighted](res.Stepper).Weights()
		if err != nil {
			t.Fatal(err)
		}
		wm, wcov, err := algOf[site.Weighted](want.Stepper).Weights()
		if err != nil {
			t.Fatal(err)
		}
		v, wv := make([]float64, len(m)), make([]float64, len(m))
		cov.Diag(v)
		wcov.Diag(wv)
		for j := range m {
			if math.Abs(m[j]-wm[j]) > 1e-5*math.Sqrt(wv[j]) || math.Abs(v[j]-wv[j]) > 1e-6*wv[j] {
				t.Errorf("weight %d: N(%g, %g), over the weights N(%g, %g)", j, m[j], v[j], wm[j],
					wv[j])
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
			t.Errorf("ELBO %v after %d steps, resumed %v after %d: %v", res.ELBO, res.K, half.ELBO,
				half.K, err)
		}
	}
}

// TestStreamSpan checks that a stream of few rows with many weights in raw units has the posterior
// of a fit.
func TestStreamSpan(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{GaussianNoise{}, BernoulliProbit{}} {
		g, _ := spanProblem(t, lik)
		n, d := g.lin.X.Rows, g.lin.X.Cols
		s := newStream(t, d, lik, &GLMOptions{PriorSD: 2})
		learnInBlocks(s, 1024)
		for i := range n {
			_, row := g.lin.X.Row(i)
			if err := s.Add(Row{Val: row, Y: g.lin.Terms.Y[i]}); err != nil {
				t.Fatal(err)
			}
		}
		post, err := s.Posterior()
		if err != nil {
			t.Fatal(err)
		}
		if s.engine.(*glmStream).block.Near == nil {
			t.Error("its block was not solved over the span")
		}
		want, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, sd, wm, wsd := post.Mean(nil), post.SD(nil), want.Mean(nil), want.SD(nil)
		for j := range m {
			if math.Abs(m[j]-wm[j]) > 1e-2*wsd[j] || math.Abs(math.Log(sd[j]/wsd[j])) > 1e-2 {
				t.Errorf("%T, weight %d: N(%g, %g²) in a stream, N(%g, %g²) in a fit", lik, j, m[j],
					sd[j], wm[j], wsd[j])
			}
		}
	}
}

// TestNearestEndsBelowTheUlp checks that nearest ends even if no two floats around its answer are
// as close as the tolerance.
func TestNearestEndsBelowTheUlp(t *testing.T) {
	terms := &term.Terms{Lik: viewOf(Gamma{}), Y: []float64{2.29}, Extra: []float64{9e6}}
	calls := 0
	at := terms.Nearest(0, 0, 1e-10, func(x term.Expectation) bool {
		if calls++; calls > 10_000 {
			t.Fatal("nearest takes more than 10,000 expectations")
		}
		return term.Moderate(x)
	})
	if below := terms.Expectation(0, math.Nextafter(at, 0),
		0); !term.Moderate(terms.Expectation(0, at, 0)) || term.Moderate(below) {
		t.Errorf("nearest to 0 is %v, with curvature %v, and one float below %v", at,
			terms.Expectation(0, at, 0).D2, below.D2)
	}
}

func mustStepper(t *testing.T, m Model) Stepper {
	t.Helper()
	st, err := m.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestRowGapLargeSlopes checks that the rounding error of slopes of 1e11 is far below a standard
// deviation of the site, and so is the gap, for any width of the prior. The gap must include the
// possible change of the curvature, so it is never below the square of that change.
func TestRowGapLargeSlopes(t *testing.T) {
	terms := &term.Terms{Lik: viewOf(GaussianNoise{Var: 1. / 37}), Y: []float64{0}}
	for _, c := range []struct{ off, most float64 }{{0, 1e-7}, {1e-3, 1e-6}} {
		s := &term.Marginals{Gamma: []float64{37}, Tg: []float64{37}, A: []float64{4e11 + c.off},
			D1: []float64{4e11}, M: []float64{1e10}, V: []float64{0.02}}
		gap := terms.RowGap(s, 0, []float64{1e14}, nil, 0, nil)
		y := c.off / 37 / math.Sqrt(s.V[0])
		if !(gap <= c.most) || gap < c.off*c.off/(2*37)+y*y*math.Pow(37*s.V[0], 2) {
			t.Errorf("slopes apart by %g: gap %.3g", c.off, gap)
		}
	}
}

// countedProbit counts the expectations of a BernoulliProbit.
type countedProbit struct {
	BernoulliProbit
	times *int
}

func (a countedProbit) ExpectLogProb(y, m, v float64) Expectation {
	*a.times++
	return a.BernoulliProbit.ExpectLogProb(y, m, v)
}

// TestWideHopeless checks that variances far too large for the derivatives at the mean are skipped,
// and that the result is the same as for the search without skipping.
func TestWideHopeless(t *testing.T) {
	for _, sd := range []float64{1e6, 1e9, 1e12} {
		times, m, v := 0, -sd, sd*sd
		terms := &term.Terms{Lik: viewOf(countedProbit{times: &times}), Y: []float64{1}}
		s := term.Marginals{M: []float64{m}, V: []float64{v}}
		s.Resize(1)
		s.M[0], s.V[0] = m, v
		if err := terms.Expect(&s, nil, term.Crew{Workers: 1}); err != nil {
			t.Fatal(err)
		}
		if times > 8 {
			t.Errorf("sd %g: %d expectations", sd, times)
		}
		x := BernoulliProbit{}.ExpectLogProb(1, m, v)
		for !term.Usable(term.Expectation(x), v) {
			v /= 8
			x = BernoulliProbit{}.ExpectLogProb(1, m, v)
		}
		if s.D1[0] != x.D1 || s.Tg[0] != -x.D2 {
			t.Errorf("sd %g: derivatives %v and %v, not %v and %v", sd, s.D1[0], -s.Tg[0], x.D1,
				x.D2)
		}
	}
}

// TestSiteAloneWide checks that the site of a single term is found in tens of steps for any width
// of the prior, and is stationary.
func TestSiteAloneWide(t *testing.T) {
	for _, vc := range []float64{1, 1e4, 1e8, 1e12, 1e16} {
		for _, at := range []float64{0, -1, 3} {
			calls := 0
			mc := at * math.Sqrt(vc)
			terms := &term.Terms{Lik: viewOf(countedProbit{times: &calls}), Y: []float64{1}}
			gamma, d1, m := terms.Solve(0, mc, vc, mc, vc)
			lo, hi := 0.0, vc // range of the v at which v(1/vc + γ̂) = 1, which increases with v
			for range 200 {
				if v := 0.5 * (lo + hi); v*(1/vc-BernoulliProbit{}.ExpectLogProb(1, m, v).D2) < 1 {
					lo = v
				} else {
					hi = v
				}
			}
			x := BernoulliProbit{}.ExpectLogProb(1, m, lo)
			if off := math.Abs((m-mc)/vc-d1) * math.Sqrt(lo); calls > 300 || off > 0.05 ||
				math.Abs(x.D2+gamma)*lo > 0.05 || math.Abs(x.D1-d1)*math.Sqrt(lo) > 0.05 {
				t.Errorf(
					"prior N(%g, %g): site of γ %g, slope %g at %g after %d expectations, where "+
						"the derivatives are %g and %g", mc, vc, gamma, d1, m, calls, -x.D2, x.D1)
			}
		}
	}
}

// TestCavityQuadratic checks which responses have sites that do not depend on q. LOO of other
// responses takes far longer.
func TestCavityQuadratic(t *testing.T) {
	for _, c := range []struct {
		lik  Likelihood
		y    []float64
		want bool
	}{
		{GaussianNoise{Var: 2}, []float64{-1, 0, 3}, true},
		{LogNormal{Scale: 2}, []float64{1, 0.5, 3}, true},
		{LogNormal{Scale: 2}, []float64{1, -0.5, 3}, false}, // a censored duration
		{Poisson{}, []float64{1, 0, 3}, false},
	} {
		terms := &term.Terms{Lik: viewOf(c.lik), Y: c.y}
		if got := cavityLikelihood(terms).Quadratic; got != c.want {
			t.Errorf("%T of %v: quadratic is %v", c.lik, c.y, got)
		}
	}
}
