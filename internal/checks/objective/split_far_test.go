package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// drawnSites returns n rows of d normal numbers times scale, and responses from lik. The weights
// are such that the linear predictors have standard deviation sd.
func drawnSites(rng *rand.Rand, n, d int, scale, sd float64, lik Likelihood) Sites {
	s := Sites{Lik: lik}
	w := make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64() * sd / (scale * math.Sqrt(float64(d)))
	}
	for range n {
		x, eta := make([]float64, d), 0.0
		for j := range x {
			x[j] = scale * rng.NormFloat64()
			eta += x[j] * w[j]
		}
		y := eta
		switch l := lik.(type) {
		case Poisson:
			p, limit := 1.0, math.Exp(-math.Exp(math.Min(eta, 5)))
			for y = -1; p > limit || y < 0; y++ {
				p *= rng.Float64()
			}
		case BernoulliLogit:
			y = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-eta)))
		case GaussianNoise:
			y += math.Sqrt(l.Var) * rng.NormFloat64()
		case StudentT:
			y += l.Scale * rng.NormFloat64() / (0.2 + rng.Float64())
		}
		s.X, s.Y = append(s.X, x), append(s.Y, y)
	}
	return s
}

// estimatorsOf returns the ways to run a problem of sites, from exact to mostly sampled.
func estimatorsOf(s Sites) map[string]Smooth {
	return map[string]Smooth{
		"Sites, exact":           Expect(s, nil),
		"Sites, score function":  Expect(s, ScoreFunction(0)),
		"Sites, pathwise":        Expect(s, Pathwise(0)),
		"LogLik, score function": Expect(kit.AsLogLik(s, false), nil),
		"LogLik, leave one out": Expect(kit.AsLogLik(s, false),
			ScoreFunctionLeaveOneOut(0)),
		"LogLik, pathwise": Expect(kit.AsLogLik(s, true), Pathwise(0)),
	}
}

// checkReached reports a run that ends further below best than its gap, or with a NaN. If
// converged is true, the run must also have converged.
func checkReached(t *testing.T, what string, res *Result, err error, elbo, best float64,
	converged bool) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	// the distance applies to the exact ELBO at the final q
	said := 5*res.Gap + 1e-9*math.Max(1, math.Abs(best))
	if res.Random {
		said += 3 * res.ELBOErr
	}
	if res.Status == Converged && !(best-elbo <= said) || math.IsNaN(res.ELBO) ||
		math.IsNaN(elbo) ||
		res.Random && !(math.Abs(res.ELBO-elbo) <= 5*res.ELBOErr+1e-9*math.Max(1, math.Abs(best))) {
		t.Errorf("%s: %v after %d steps at ELBO %v ± %.2g (exactly %v), %.3g below %v, and "+
			"reports a gap of %.3g", what, res.Status, res.K, res.ELBO, res.ELBOErr, elbo,
			best-elbo, best, res.Gap)
	}
	if converged && res.Status != Converged {
		t.Errorf("%s: %v after %d steps, gap %.3g, goal %.3g, %.3g below the best", what,
			res.Status, res.K, res.Gap, res.Goal, best-elbo)
	}
}

// TestPoissonFromThePrior checks an exponential likelihood under wide priors, where expectations
// overflow. Every estimator must find the optimum.
func TestPoissonFromThePrior(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	s := drawnSites(testkit.Rand(201), 100, 4, 1, 1, Poisson{})
	for _, variance := range testkit.Shorter([]float64{16, 1e3, 1e6}, []float64{16, 1e6}) {
		prior := NewIsotropic(4, variance)
		p := toyProblem{s: s, prior: prior, init: prior}
		best := math.NaN()
		names := estimatorsOf(s)
		for _, name := range slices.Sorted(keysOf(names)) {
			res, err := (&Solver{MaxPasses: 300}).Run(context.Background(),
				Objective[*Gaussian]{F: names[name], H: KLTo(prior), Init: prior})
			what := fmt.Sprintf("prior variance %v, %s", variance, name)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			elbo := exactELBO(p, qOf[*Gaussian](res))
			if name == "Sites, exact" || math.IsNaN(best) {
				best = kit.Solve(t, Solver{},
					Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior}).ELBO
			}
			checkReached(t, what, res, err, elbo, best,
				name != "LogLik, leave one out" && name != "LogLik, pathwise")
			if !(best-elbo < 0.2) {
				t.Errorf("%s: %v nats below the optimum after %d steps: %v", what, best-elbo, res.K,
					res.Status)
			}
		}
	}
}

func keysOf[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestNarrowPosteriorFarAway checks posteriors with a standard deviation of at most 1e-3, far
// from the center of the prior.
func TestNarrowPosteriorFarAway(t *testing.T) {
	t.Parallel()
	for _, sd := range testkit.Few([]float64{1e-3, 1e-1, 1e-6}, 1) {
		s := Sites{X: [][]float64{{1}}, Y: []float64{100}, Lik: GaussianNoise{Var: sd * sd}}
		prior := NewIsotropic(1, 1e4)
		best := kit.Solve(t, Solver{},
			Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior}).ELBO
		names := estimatorsOf(s)
		for _, name := range slices.Sorted(keysOf(names)) {
			res, err := new(Solver).Run(context.Background(),
				Objective[*Gaussian]{F: names[name], H: KLTo(prior), Init: prior})
			elbo := exactELBO(toyProblem{s: s, prior: prior}, qOf[*Gaussian](res))
			checkReached(t, fmt.Sprintf("sd %v, %s", sd, name), res, err, elbo, best,
				name != "LogLik, leave one out" || sd == 0.1)
		}
	}
}

// TestObjectiveSeeds fits random objectives from the prior with the zero Solver. A run that has
// converged must be within a few of its gaps of the optimum, and nothing may be NaN.
func TestObjectiveSeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if !testkit.IsLong() {
		seeds = testkit.Shorter[uint64](8, 4)
	}
	converged, runs := 0, 0
	for seed := range seeds {
		rng := testkit.Rand(1000 + seed)
		d, n := 1+rng.IntN(5), 5+rng.IntN(60)
		lik := []Likelihood{Poisson{}, BernoulliLogit{},
			GaussianNoise{Var: math.Pow(10, 10*rng.Float64()-6)},
			StudentT{DF: 3 + 5*rng.Float64(), Scale: math.Pow(10, 4*rng.Float64()-2)}}[rng.IntN(
			4)]
		scale, sd := math.Pow(10, 4*rng.Float64()-2), math.Pow(10, 1.5*rng.Float64()-1)
		s := drawnSites(rng, n, d, scale, sd, lik)
		priorSD := math.Pow(10, 6*rng.Float64()-3)
		prior := NewIsotropic(d, priorSD*priorSD)
		if rng.IntN(2) == 0 {
			prior = NewIsotropicMeanField(d, priorSD*priorSD)
		}
		p := toyProblem{s: s, prior: prior}
		names := estimatorsOf(s)
		ref := kit.Solve(t, Solver{},
			Objective[*Gaussian]{F: names["Sites, exact"], H: KLTo(prior), Init: prior})
		for _, name := range slices.Sorted(keysOf(names)) {
			if pick := rng.IntN(3); pick > 0 && name != "Sites, exact" {
				continue
			}
			what := fmt.Sprintf("seed %d: %d × %d, %+v, scale %.3g, prior sd %.3g, diagonal %v, %s",
				seed, n, d, lik, scale, priorSD, isDiagonal(prior), name)
			res, err := (&Solver{MaxPasses: 200}).Run(context.Background(),
				Objective[*Gaussian]{F: names[name], H: KLTo(prior), Init: prior})
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			runs++
			if res.Status == Converged {
				converged++
			}
			q := qOf[*Gaussian](res)
			best := ref.ELBO
			if _, convex := lik.(StudentT); convex {
				// There may be several optima, so the reference is the optimum near this q.
				best = kit.Solve(t, Solver{},
					Objective[*Gaussian]{F: names["Sites, exact"], H: KLTo(prior), Init: q}).ELBO
			}
			checkReached(t, what, res, nil, exactELBO(p, q), best, false)
		}
	}
	t.Logf("%d of %d runs converged", converged, runs)
	if 10*converged < 7*runs {
		t.Errorf("%d of %d runs converged", converged, runs)
	}
}

// glmObjectiveRun runs the Objective of a GLM with the nil Solver.
func glmObjectiveRun(t *testing.T, x *mat.Dense, y []float64, lik Likelihood,
	opt *GLMOptions) (*Gaussian, *Result) {
	t.Helper()
	g, err := NewGLM(x, y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	o, err := g.Objective()
	if err != nil {
		t.Fatal(err)
	}
	q, res, err := o.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return q, res
}

// TestObjectiveFarStart checks that exact steps reach the optimum of the GLM by sites, although
// exponentials are astronomical or overflow under the prior.
func TestObjectiveFarStart(t *testing.T) {
	rng := testkit.Rand(7)
	x := mat.NewDense(25, 4, nil)
	y, o, w := make([]float64, 25), make([]float64, 25), make([]float64, 25)
	for i := range y {
		for j := range 4 {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i], o[i], w[i] = math.Floor(4*rng.Float64()), 50*rng.NormFloat64(),
			math.Pow(10, 12*rng.Float64()-6)
	}
	plus := make([]float64, 25)
	for i, v := range y {
		plus[i] = v + 0.5
	}
	for _, c := range []struct {
		name string
		lik  Likelihood
		y    []float64
		opt  GLMOptions
	}{
		{"offsets of 50", Poisson{}, y, GLMOptions{PriorSD: 0.3, Offset: o}},
		{"prior sd 9, weights 1e-6…1e6", Exponential{}, plus, GLMOptions{PriorSD: 9, Weights: w}},
	} {
		g, err := NewGLM(x, c.y, c.lik, &c.opt)
		if err != nil {
			t.Fatal(err)
		}
		_, best, err := g.Fit(context.Background(), nil)
		if err != nil || best.Status != Converged {
			t.Fatalf("%s: by sites %v, %v", c.name, best.Status, err)
		}
		_, res := glmObjectiveRun(t, x, c.y, c.lik, &c.opt)
		known := res.Status == Converged || res.Status == Stalled && res.ELBOErr > goals.UnknownNats
		if off := math.Abs(res.ELBO - best.ELBO); !known || !(off <= 1e-6*math.Abs(best.ELBO)) {
			t.Errorf("%s: %v after %d steps at ELBO %v, by sites %v", c.name, res.Status, res.K,
				res.ELBO, best.ELBO)
		}
	}
}

// TestObjectiveUnresolved checks that a run reports no small gap if the precision has too few
// digits. Two equal columns of 5e7 under prior standard deviations of 1e-3 and 500 would need 27
// digits, but a float64 has 16.
func TestObjectiveUnresolved(t *testing.T) {
	n := 12
	x := mat.NewDense(n, 2, nil)
	y := make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{4.5e7, 4.5e7})
		y[i] = 983000 + 300*float64(i)
	}
	prior, err := NewMeanField([]float64{0, 0}, []float64{2e5, 4.7e-6})
	if err != nil {
		t.Fatal(err)
	}
	if _, res := glmObjectiveRun(t, x, y, Poisson{},
		&GLMOptions{Prior: prior}); res.Status == Converged || res.Gap < 1 {
		t.Errorf("%v at a gap of %v", res.Status, res.Gap)
	}
}

// TestObjectiveSought checks an Objective whose own steps cannot leave an ELBO of −1e100, or
// creep under priors that are far wider than the data. It must reach the ELBO of the GLM, with a
// gap that covers the rest.
func TestObjectiveSought(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lik     Likelihood
		sd, far float64
	}{{Gamma{Shape: 2}, 0.3, 60}, {Poisson{}, 0.3, 50}, {Poisson{}, 1e5, 0},
		{Exponential{}, 1e4, 1}} {
		rng := rand.New(rand.NewPCG(5, 8))
		const n, d = 10, 4
		x, y, o := mat.NewDense(n, d, nil), make([]float64, n), make([]float64, n)
		for i := range n {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i], o[i] = float64(rng.IntN(2)), c.far*rng.NormFloat64()
			if _, ok := c.lik.(Gamma); ok {
				y[i]++
			}
		}
		g := kit.MustGLM(t, x, y, c.lik, GLMOptions{PriorSD: c.sd, Offset: o})
		_, want, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		obj, err := g.Objective()
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := obj.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if off := math.Abs(got.ELBO - want.ELBO); got.Status != Converged ||
			off > got.Gap+got.ELBOErr+1e-6 || got.Gap > 1e-2*(1+1e-6*math.Abs(want.ELBO)) {
			t.Errorf("%T, prior sd %g, offsets of %g: %v after %g passes at %.10g, gap %.3g; "+
				"the GLM has %.10g", c.lik, c.sd, c.far, got.Status, got.Passes, got.ELBO, got.Gap,
				want.ELBO)
		}
	}
}

// spoiltLik is a logit whose log-likelihood is value if the label is 1 and eta is in a range.
type spoiltLik struct{ value, from, to float64 }

func (l spoiltLik) LogProb(y, eta float64) float64 {
	if y == 1 && eta > l.from && eta < l.to {
		return l.value
	}
	return BernoulliLogit{}.LogProb(y, eta)
}

// spoiltSlope is a logit whose derivatives are not finite in that range.
type spoiltSlope struct{ spoiltLik }

func (l spoiltSlope) LogProb(y, eta float64) float64 { return BernoulliLogit{}.LogProb(y, eta) }

func (l spoiltSlope) Derivs(y, eta float64) (d1, d2 float64) {
	d1, d2 = BernoulliLogit{}.Derivs(y, eta)
	if y == 1 && eta > l.from && eta < l.to {
		d1 = l.value
	}
	return d1, d2
}

// TestNotFiniteNamesTheTerm checks that a user's log-likelihood or gradient that is not finite
// ends the run with an error. The error must name the term, the point and the value, and suggest
// a remedy.
func TestNotFiniteNamesTheTerm(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	ctx := context.Background()
	s := kit.LogisticData(93, 20, 8)
	for i := range s.Y {
		s.Y[i] = -1
	}
	s.Y[17] = 1
	x := mat.NewDense(20, 8, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	prior := NewIsotropic(8, 4)
	logLik := func(lik Likelihood) LogLik {
		eta := func(n int, z []float64) (e float64) {
			for j, zj := range z {
				e += s.X[n][j] * zj
			}
			return e
		}
		return LogLik{N: 20, Dim: 8,
			LogProb: func(n int, z []float64) float64 { return lik.LogProb(s.Y[n], eta(n, z)) },
			Grad: func(dst []float64, n int, z []float64) {
				d1, _ := lik.(Differentiable).Derivs(s.Y[n], eta(n, z))
				for j, xj := range s.X[n] {
					dst[j] += d1 * xj
				}
			}}
	}
	for _, value := range []float64{math.NaN(), math.Inf(-1), math.Inf(1)} {
		for where, span := range map[string][2]float64{"everywhere": {math.Inf(-1), math.Inf(1)},
			"below zero": {math.Inf(-1), 0}, "in a gap": {-0.1, 0.1}} {
			if where == "below zero" && (!testkit.IsLong() || value != math.Inf(-1)) {
				continue // no q of a GP helps, but the search takes seconds
			}
			if !testkit.IsLong() && (where == "everywhere") != math.IsInf(value, -1) {
				continue
			}
			lik := spoiltLik{value, span[0], span[1]}
			sites := s
			sites.Lik = lik
			slope := spoiltSlope{lik}
			steep := s
			steep.Lik = slope
			objective := func(l LogLikelihood, e Estimator) Model {
				return Objective[*Gaussian]{F: Expect(l, e), H: KLTo(prior), Init: prior}
			}
			names := map[float64]string{math.Inf(-1): "-Inf", math.Inf(1): "+Inf"}
			bad := names[value]
			if bad == "" {
				bad = "NaN"
			}
			for name, c := range map[string]struct {
				m    Model
				want []string
			}{
				"LogLik, score function": {objective(logLik(lik), ScoreFunction(0)),
					[]string{"term 17", "log-likelihood " + bad, "at z = [", "… 2 more]"}},
				"LogLik, pathwise": {objective(logLik(slope), Pathwise(0)),
					[]string{"term 17", strings.TrimLeft(bad, "+-"), "gradient", "at z = [",
						"… 2 more]"}},
				"Sites, exact": {objective(sites, nil),
					[]string{"term 17, with label 1", "log-likelihood " + bad, "η = "}},
				"Sites, score function": {objective(sites, ScoreFunction(0)),
					[]string{"term 17, with label 1", "log-likelihood " + bad, "η = "}},
				"Sites, pathwise": {objective(steep, Pathwise(0)),
					[]string{"term 17, with label 1", "derivatives " + bad, "η = ", "(z = ["}},
				"GP": {testkit.Must(NewGP(x, s.Y, SquaredExp{}, lik, nil)),
					[]string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
				"GLM": {testkit.Must(NewGLM(x, s.Y, lik, nil)),
					[]string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
				"GLM, score function": {testkit.Must(
					NewGLM(x, s.Y, lik, &GLMOptions{Estimator: ScoreFunction(0)})),
					[]string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
			} {
				what := name + ", " + bad + " " + where
				sol := Solver{MaxPasses: 100, Src: rand.NewPCG(1, 2)}
				if name == "GLM, score function" {
					sol.StepSize = ConstantStep(0.2)
				}
				res, err := sol.Run(ctx, c.m)
				if err == nil || res != nil && res.Status != Failed {
					t.Errorf("%s: error %v, result %v", what, err, res)
					continue
				}
				if !errors.Is(err, ErrNotFinite) && !errors.Is(err, ErrDiverged) ||
					!testkit.PrefixedOnce(err) {
					t.Errorf("%s: error %v", what, err)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%s: no %q in %q", what, w, err)
					}
				}
				if value < 0 && !strings.Contains(name, "pathwise") &&
					!strings.Contains(err.Error(), "support") {
					t.Errorf("%s: %q suggests no remedy", what, err)
				}
			}
		}
	}
}

// stepOf takes one step of o with step size beta over all terms.
func stepOf(t *testing.T, o Model, d Divergence, beta float64) (q Dist, step Iteration) {
	t.Helper()
	s := Solver{Divergence: d, StepSize: ConstantStep(beta), MaxIter: 1, EvalEvery: -1,
		Converger: Never(), Src: rand.NewPCG(1, 1)}
	s.Record = func(it Iteration) { step = it }
	return qOf[Dist](kit.Solve(t, s, o)), step
}

// TestInnerIsExactStep checks that many linearizations converge to the exact step. The exact step
// is the step of ProximalPoint, or the numeric minimum of f + h + D/β in coordinates in which f
// may not be convex.
func TestInnerIsExactStep(t *testing.T) {
	t.Parallel()
	p := corpus()[0]
	full := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}
	diagonal := theoryProblem()
	for _, c := range []struct {
		name string
		o    Objective[*Gaussian]
		d    Divergence
		in   Coordinates
	}{
		{"full, Euclidean", full, Euclidean(), Cholesky},
		{"full, gradient", full.Linearized(), Euclidean(), Cholesky},
		{"full, KL", full, KL(), MeanParams},
		{"diagonal, KL", diagonal, KL(), MeanParams},
		{"diagonal, KL in (m, V)", diagonal, KL(), MeanCov},
		{"diagonal, KL in (m, L)", diagonal, KL(), Cholesky},
		{"diagonal, SymKL", diagonal, SymKL(), MeanParams},
	} {
		for _, beta := range []float64{0.1, 3} {
			if testing.Short() && (beta < 1 || c.o.Init.NumParams() > 4) {
				continue
			}
			o := inCoords(c.o, c.in)
			last := math.Inf(1)
			var q Dist
			var step Iteration
			for _, inner := range []int{1, 2, 4, 3000} {
				o.Inner = inner
				q, step = stepOf(t, o, c.d, beta)
				value := -exactELBOOf(t, o, q) + c.d.Value(q, o.Init)/step.Beta
				// a single linearization may go too far
				if inner > 1 && !(value <= last+1e-9) && !(inner == 2) {
					t.Errorf("%s, beta %v: %v after %d linearizations, %v after fewer", c.name,
						beta, value, inner, last)
				}
				if more := step.Passes - 1; inner > 1 &&
					!(more >= 1 && more <= float64(2*inner+20)) {
					t.Errorf("%s, beta %v: %v more passes for %d linearizations", c.name, beta,
						more, inner)
				}
				last = value
			}
			want := o.Init.Clone()
			h := negELBO{o.F, orZero(o.H)}
			if err := (&Prox{Grad: make([]float64, want.NumParams()), H: h, D: c.d, From: o.Init,
				Beta: step.Beta}).Numeric(want); err != nil {
				t.Fatal(err)
			}
			testkit.CheckClose(t, fmt.Sprintf("%s, beta %v", c.name, beta), q.Params(nil),
				want.Params(nil), 1e-5)
			if c.in != Cholesky {
				continue
			}
			exact, _ := stepOf(t, inCoords(c.o, c.in).ProximalPoint(), c.d, step.Beta)
			testkit.CheckClose(t, fmt.Sprintf("%s, beta %v, proximal point", c.name, beta),
				exact.Params(nil), want.Params(nil), 2e-6)
		}
	}
}

func orZero(h Convex) Convex {
	if h == nil {
		return Zero()
	}
	return h
}

// exactELBOOf returns the ELBO of o at q for an f without noise.
func exactELBOOf[Q Dist](t *testing.T, o Objective[Q], q Dist) float64 {
	t.Helper()
	f, _, err := o.F.Value(context.Background(), nil, q)
	if err != nil {
		t.Fatal(err)
	}
	return -f - orZero(o.H).Value(q)
}

// TestInnerFamilies also checks an Exp whose expectations are computed by quadrature.
func TestInnerFamilies(t *testing.T) {
	shape := testkit.Must(NewGamma(1, 0.5))
	l := LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
		lg, _ := math.Lgamma(z[0])
		return 12.2*(z[0]-1) - 20*lg
	}}
	o := Objective[*Exp]{F: Expect(l, Exact()), H: KLTo(shape), Init: shape, Inner: 300}
	want := shape.Clone()
	if err := (&Prox{Grad: make([]float64, 2), H: negELBO{o.F, o.H}, D: KL(), From: shape,
		Beta: 0.5}).Numeric(want); err != nil {
		t.Fatal(err)
	}
	q, _ := stepOf(t, o, nil, 0.5)
	testkit.CheckClose(t, "η", q.(*Exp).Natural(nil), want.(*Exp).Natural(nil), 1e-5)
	rising(t, o, Solver{StepSize: ConstantStep(20), MaxIter: 6})
}

// rising runs s on o and checks that the ELBO never falls.
func rising[Q Dist](t *testing.T, o Objective[Q], s Solver) *Result {
	t.Helper()
	s.EvalEvery, s.Converger = 1, Never()
	res := kit.Solve(t, s, o)
	last := math.Inf(-1)
	for _, it := range res.Trace {
		if it.ELBO < last-1e-9*(1+math.Abs(last)) {
			t.Errorf("inner %d: the ELBO falls from %v to %v at step %d", o.Inner, last, it.ELBO,
				it.K)
		}
		last = it.ELBO
	}
	return res
}

// TestInnerMonotone checks that the ELBO rises for any β with all terms, even if plain steps with
// this β do not raise it, and that long steps come closer to the optimum than the same number of
// plain steps.
func TestInnerMonotone(t *testing.T) {
	p := corpus()[1] // counts with a bad start
	best := kit.Solve(t, Solver{},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}).ELBO
	for _, beta := range []float64{0.3, 10, 1000} {
		for _, inner := range []int{2, 5, 30} {
			o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init,
				Inner: inner}
			res := rising(t, o, Solver{StepSize: ConstantStep(beta), MaxIter: 12, MaxPasses: 1e6})
			if gap := best - res.ELBO; beta >= 10 && inner == 30 && !(gap < 1e-6) {
				t.Errorf("beta %v, inner %d: %v nats from the optimum", beta, inner, gap)
			}
		}
	}
	logistic := inCoords(Objective[*Gaussian]{F: Expect(corpus()[0].s, nil), H: KLTo(p.prior),
		Init: NewIsotropic(2, 4)}, Cholesky)
	const beta = 2. // beyond 2α/L
	plain := kit.Solve(t,
		Solver{Divergence: Euclidean(), StepSize: ConstantStep(beta), MaxIter: 10}, logistic)
	falls := false
	for i, it := range plain.Trace[1:] {
		falls = falls || it.ELBO < plain.Trace[i].ELBO
	}
	if !falls {
		t.Errorf("plain steps of %v do not oscillate", beta)
	}
	logistic.Inner = 4
	if res := rising(t, logistic,
		Solver{Divergence: Euclidean(), StepSize: ConstantStep(beta), MaxIter: 10,
			MaxPasses: 1e6}); !(res.ELBO > plain.ELBO) {
		t.Errorf("ELBO %v, of plain steps %v", res.ELBO, plain.ELBO)
	}
	point := logistic.ProximalPoint()
	point.Inner = 0
	rising(t, point, Solver{Divergence: Euclidean(), StepSize: ConstantStep(50), MaxIter: 4,
		MaxPasses: 1e6})
}

// watchedSmooth records the batches and the first draws of every gradient.
type watchedSmooth struct {
	Smooth
	batches *[][]int
	draws   *[]uint64
}

func (f watchedSmooth) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	*f.batches = append(*f.batches, slices.Clone(batch))
	v, err := f.Smooth.Grad(ctx, env, dst, q, batch)
	*f.draws = append(*f.draws, env.Rng.Uint64()) // equal if the earlier draws are equal
	return v, err
}

// TestInnerBatches checks that all gradients of a step use the same batch and the same draws, and
// that other steps use others. Each gradient counts as a visit of its terms. A single
// linearization must equal a plain step exactly, and a saved run must continue with the same
// bits.
func TestInnerBatches(t *testing.T) {
	p := corpus()[0]
	var batches [][]int
	var draws []uint64
	f := watchedSmooth{Expect(p.s, Pathwise(3)), &batches, &draws}
	o := Objective[*Gaussian]{F: f, H: KLTo(p.prior), Init: p.init, Inner: 3}
	s := Solver{StepSize: ConstantStep(0.2), BatchSize: 8, MaxIter: 6, MaxPasses: 1e6,
		EvalEvery: -1, Converger: Never()}
	var ends []int
	visited := 0.0
	s.Record = func(it Iteration) {
		ends = append(ends, len(batches))
		visited = it.Passes
	}
	res := kit.Solve(t, s, o)
	if want := float64(8*len(batches)) / 40; math.Abs(visited-want) > 1e-12 || len(batches) < 6*3 {
		t.Errorf("%v passes for %d gradients of 8 of 40 terms", visited, len(batches))
	}
	start := 0
	for k, end := range ends {
		for i := start; i < end; i++ {
			if !slices.Equal(batches[i], batches[start]) || draws[i] != draws[start] {
				t.Errorf("step %d, gradient %d: batch %v, %x, not %v, %x", k, i-start, batches[i],
					draws[i], batches[start], draws[start])
			}
		}
		if k > 0 && (slices.Equal(batches[start], batches[start-1]) ||
			draws[start] == draws[start-1]) {
			t.Errorf("step %d has the batch or the draws of the last", k)
		}
		start = end
	}
	half := s
	half.MaxIter = 3
	first := kit.Solve(t, half, o)
	resumed, err := s.Resume(context.Background(), first)
	if err != nil || resumed.ELBO != res.ELBO || resumed.Passes != res.Passes {
		t.Errorf("resumed: ELBO %v, passes %v, want %v, %v (%v)", resumed.ELBO, resumed.Passes,
			res.ELBO, res.Passes, err)
	}
	plain := o
	plain.Inner = 0
	want := kit.Solve(t, s, plain)
	plain.Inner = 1
	if got := kit.Solve(t, s, plain); got.ELBO != want.ELBO || got.Passes != want.Passes ||
		got.Passes != 6*8/40. {
		t.Errorf("one linearization: %v, %v passes; a plain step: %v, %v", got.ELBO, got.Passes,
			want.ELBO, want.Passes)
	}
	// The bits must be the same for any number of workers.
	o.F, s.Record = Expect(p.s, Pathwise(3)), nil
	alone := kit.Solve(t, s, o)
	s.Workers = 3
	if got := kit.Solve(t, s, o); got.ELBO != alone.ELBO {
		t.Errorf("three workers: ELBO %v, one %v", got.ELBO, alone.ELBO)
	}
}

// TestProximalPointPasses checks that each point at which the proximal point method evaluates f
// counts as a pass, and that ELBOErr is known.
func TestProximalPointPasses(t *testing.T) {
	o := inCoords(theoryProblem(), Cholesky)
	var batches [][]int
	var draws []uint64
	o.F = watchedSmooth{o.F, &batches, &draws}
	grads := 0 // without the gradients of the final Gap, which is an evaluation
	res := kit.Solve(t, Solver{StepSize: ConstantStep(3), MaxIter: 4, MaxPasses: 1e6,
		Record: func(Iteration) { grads = len(batches) }}, o.ProximalPoint())
	if res.Passes != float64(grads) || res.K != 4 || res.ClosedForm || grads == len(batches) {
		t.Errorf("%v passes for %d gradients in %d steps", res.Passes, grads, res.K)
	}
	plain := theoryProblem()
	best := kit.Solve(t, Solver{}, plain)
	free := kit.Solve(t, Solver{}, inCoords(plain, Cholesky).ProximalPoint())
	testkit.CheckNear(t, "ELBO", free.ELBO, best.ELBO, 1e-9)
	if !(free.ELBOErr < 1e-9) || free.Status != Converged {
		t.Errorf("ELBO ± %v, %v", free.ELBOErr, free.Status)
	}
	c := &Certificate{}
	certified(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(5), MaxIter: 5}, c,
		inCoords(plain, Cholesky).ProximalPoint())
	if c.Violations != 0 || c.L != 0 || !(c.MeanGradMap2 <= c.Bound) || c.Steps < 2 {
		t.Errorf("the theory of the proximal point method: %+v", c)
	}
}

// TestInnerErrors checks the errors of Inner and ProximalPoint for models that they do not
// support.
func TestInnerErrors(t *testing.T) {
	o := theoryProblem()
	inner := func(n int) Objective[*Gaussian] { o := o; o.Inner = n; return o }
	robust := inCoords(o, Cholesky)
	robust.F = Expect(Sites{X: [][]float64{{1, 0}}, Y: []float64{1},
		Lik: StudentT{DF: 3, Scale: 1}}, nil)
	noisy := inCoords(o, Cholesky)
	noisy.F = Expect(theorySites(), Pathwise(0))
	dense := testkit.Must(kit.ToyGP(t, 8, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{},
		3).Objective())
	for name, c := range map[string]struct {
		o    Objective[*Gaussian]
		d    Divergence
		beta float64
		want string
	}{
		"negative":        {inner(-1), nil, 1, "Inner is -1"},
		"endless":         {inner(1 << 30), nil, 1, "from 0 to 10000"},
		"adaptive":        {inner(2).Linearized(), Adam(0, 0, 0), 1, "one gradient per step"},
		"no step size":    {inner(2), nil, math.Inf(1), "StepSize"},
		"not convex in μ": {o.ProximalPoint(), nil, 1, "Cholesky"},
		"a GP in μ":       {dense.ProximalPoint(), nil, 1, "Cholesky"},
		"not log-concave": {robust.ProximalPoint(), nil, 1, "StudentT is not log-concave"},
		"noisy":           {noisy.ProximalPoint(), nil, 1, "without noise"},
		"a theory of one": {inner(2), nil, 1, ""},
		"a user's convex f": {Objective[*Gaussian]{F: parabola(1, 1, 1, 1),
			Init: o.Init}.ProximalPoint(), nil, 1, ""},
		"a GP in (m, L)": {inCoords(dense, Cholesky).ProximalPoint(), nil, 1, ""},
		"nothing to be moved": {Objective[*Gaussian]{H: o.H, Init: o.Init}.ProximalPoint(), nil, 1,
			""},
	} {
		st, err := c.o.NewStepper(context.Background(), nil, c.d)
		if err == nil {
			_, err = st.Step(context.Background(), nil, nil, c.beta)
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cert := &Certificate{}
	kit.Solve(t, Solver{StepSize: ConstantStep(0.5), MaxIter: 2, Record: cert.Record}, inner(2))
	if !errors.Is(cert.Err(), ErrParam) {
		t.Errorf("a certificate of inner steps: %v", cert.Err())
	}
}
