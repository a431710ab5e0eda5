package pgsvi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// toyGP returns a small model with labels that suit the likelihood.
func toyGP(t testing.TB, n int, k Kernel, lik Likelihood, seed uint64) *GP {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := 2*rng.NormFloat64(), 2*rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		f := 2 * math.Sin(a) * math.Cos(b)
		switch lik.(type) {
		case Poisson:
			y[i] = math.Floor(math.Exp(f) + 2*rng.Float64())
		case BernoulliLogit, BernoulliProbit, logProbOnly:
			y[i] = 1
			if rng.Float64() > 1/(1+math.Exp(-f)) {
				y[i] = -1
			}
		default:
			y[i] = f + 0.2*rng.NormFloat64()
			if i%9 == 4 {
				y[i] += 6 // an outlier
			}
		}
	}
	gp, err := NewGP(x, y, k, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// logProbOnly is a user's likelihood: the logit, without anything optional.
type logProbOnly struct{}

func (logProbOnly) LogProb(y, eta float64) float64 {
	if x := y * eta; x < 0 {
		return x - math.Log1p(math.Exp(x))
	}
	return -math.Log1p(math.Exp(-y * eta))
}

var gpLikelihoods = []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Poisson{}, Poisson{Exposure: 3}, GaussianNoise{Var: 0.04}, StudentT{DF: 4, Scale: 0.3}, Laplace{Scale: 0.3}, logProbOnly{}}

func mustFit(t testing.TB, gp *GP, s *Solver) (*GPPosterior, *Result) {
	t.Helper()
	post, res, err := gp.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return post, res
}

// TestGPInvariants runs block and batch steps over a corpus of models: they
// converge, never lower the ELBO, agree where the problem has one solution,
// and keep a state that agrees with one computed anew from the sites.
func TestGPInvariants(t *testing.T) {
	t.Parallel()
	kernels := []Kernel{
		SquaredExp{Scale: 1, Length: 1}, SquaredExp{Scale: 10, Length: 0.01}, SquaredExp{Scale: 0.1, Length: 100},
		SquaredExp{Scale: 300, Length: 3}, Matern32{Scale: 3, Length: 2}, Sum{Linear{Scale: 1}, Constant{Scale: 2}},
	}
	sizes := []int{1, 2, 70}
	if testing.Short() {
		sizes = []int{1, 25}
	}
	for _, lik := range gpLikelihoods {
		_, heavy := lik.(StudentT) // not log-concave: several optima
		for ik, k := range kernels {
			for _, n := range sizes {
				t.Run(fmt.Sprintf("%T/%d/%d", lik, ik, n), func(t *testing.T) {
					gp := toyGP(t, n, k, lik, 7)
					_, block := mustFit(t, gp, nil)
					_, batch := mustFit(t, gp, &Solver{BatchSize: n})
					for name, res := range map[string]*Result{"block": block, "batch": batch} {
						if res.Status != Converged && !(res.Status == Stalled && res.Gap < 1e-8) {
							t.Errorf("%s: %v after %v passes, ELBO %v, gap %.2g", name, res.Status, res.Passes, res.ELBO, res.Gap)
						}
						prev := math.Inf(-1)
						for _, it := range res.Trace {
							if it.ELBO < prev-1e-13*math.Abs(prev) {
								t.Errorf("%s: iteration %d: the ELBO fell from %v to %v", name, it.K, prev, it.ELBO)
							}
							prev = it.ELBO
						}
						g := algOf[*denseAlgebra](res.Stepper)
						var kept siteState
						kept.copyFrom(&g.cur)
						logDet := g.logDet
						g.fresh, g.dense = false, false
						elbo, err := elboOf(res.Stepper, nil)
						if err != nil {
							t.Fatal(err)
						}
						if math.Abs(elbo-res.ELBO) > 1e-8*math.Max(1, math.Abs(elbo)) || math.Abs(logDet-g.logDet) > 1e-8*math.Max(1, logDet) {
							t.Errorf("%s: kept ELBO %v and log det %v, anew %v and %v", name, res.ELBO, logDet, elbo, g.logDet)
						}
						if e := maxRel(kept.v, g.cur.v); e > 1e-7 {
							t.Errorf("%s: kept variances off by %.2g", name, e)
						}
					}
					if d := math.Abs(block.ELBO - batch.ELBO); !heavy && d > 1e-8*math.Max(1, math.Abs(batch.ELBO)) {
						t.Errorf("block reaches %.12g, batch %.12g", block.ELBO, batch.ELBO)
					}
				})
			}
		}
	}
}

// TestGPUserLikelihood: LogProb alone gives what the built-in likelihood gives.
func TestGPUserLikelihood(t *testing.T) {
	gp := toyGP(t, 40, SquaredExp{Scale: 2, Length: 1}, logProbOnly{}, 3)
	_, user := mustFit(t, gp, nil)
	gp.terms.lik = BernoulliLogit{}
	_, own := mustFit(t, gp, nil)
	if math.Abs(user.ELBO-own.ELBO) > 1e-8 {
		t.Errorf("LogProb alone reaches %v, BernoulliLogit %v", user.ELBO, own.ELBO)
	}
}

// TestGPExactRegression: with Gaussian noise one step with r = 0 is the exact
// posterior, and the ELBO the log evidence.
func TestGPExactRegression(t *testing.T) {
	const n, noise = 60, 0.04
	gp := toyGP(t, n, Matern52{Scale: 1.5, Length: 1}, GaussianNoise{Var: noise}, 5)
	// K (K + σ²I)⁻¹ y and K − K (K + σ²I)⁻¹ K.
	k := Gram(nil, gp.kernel, gp.x)
	ky := mat.NewSymDense(n, nil)
	ky.CopySym(k)
	for i := range n {
		ky.SetSym(i, i, ky.At(i, i)+noise)
	}
	var chol mat.Cholesky
	if !chol.Factorize(ky) {
		t.Fatal("not positive definite")
	}
	y := mat.NewVecDense(n, gp.terms.y)
	var w, m mat.VecDense
	var kk, v mat.Dense
	if err := chol.SolveVecTo(&w, y); err != nil {
		t.Fatal(err)
	}
	m.MulVec(k, &w)
	if err := chol.SolveTo(&kk, k); err != nil {
		t.Fatal(err)
	}
	v.Mul(k, &kk)
	v.Sub(k, &v)
	evidence := -0.5 * (mat.Dot(y, &w) + chol.LogDet() + n*log2Pi)
	for name, s := range map[string]*Solver{"batch": {BatchSize: n, MaxIter: 1}, "blocks": {MaxPasses: 1}} {
		post, res := mustFit(t, gp, s)
		if math.Abs(res.ELBO-evidence) > 1e-9 {
			t.Errorf("%s: ELBO %v, log evidence %v", name, res.ELBO, evidence)
		}
		gm, gv := post.Train(nil, nil)
		for i := range n {
			if math.Abs(gm[i]-m.AtVec(i)) > 1e-9 || math.Abs(gv[i]-v.At(i, i)) > 1e-9 {
				t.Fatalf("%s: site %d: N(%v, %v), want N(%v, %v)", name, i, gm[i], gv[i], m.AtVec(i), v.At(i, i))
			}
		}
		// Joint at the training points is the same posterior.
		jm, jc, err := post.Joint(gp.x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			for j := range n {
				if math.Abs(jc.At(i, j)-v.At(i, j)) > 1e-9 || math.Abs(jm[i]-m.AtVec(i)) > 1e-9 {
					t.Fatalf("%s: Joint (%d, %d) is %v, want %v", name, i, j, jc.At(i, j), v.At(i, j))
				}
			}
		}
	}
}

// TestGPFixedPoint: at the optimum no step of any kind changes the ELBO.
func TestGPFixedPoint(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}} {
		for _, update := range []MeanUpdate{MainText, Appendix} {
			gp := toyGP(t, 50, SquaredExp{Scale: 2, Length: 1}, lik, 2)
			gp.opt.MeanUpdate = update
			_, res := mustFit(t, gp, &Solver{Converger: &GapBelow{Nats: 1e-13}})
			st := res.Stepper
			rng := rand.New(rand.NewPCG(1, 1))
			for name, step := range map[string]struct {
				batch []int
				beta  float64
			}{
				"block": {[]int{3, 9, 20, 41}, math.Inf(1)},
				"batch": {nil, math.Inf(1)},
				"PG":    {nil, 0.7},
			} {
				if _, err := st.Step(context.Background(), &Env{Rng: rng}, step.batch, step.beta); err != nil {
					t.Fatal(err)
				}
				elbo, err := elboOf(st, nil)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(elbo-res.ELBO) > 1e-9 {
					t.Errorf("%T, update %d: a %s step changed the ELBO by %.2g", lik, update, name, elbo-res.ELBO)
				}
			}
		}
	}
}

// TestGPSiteFormIsDenseForm: the site recursion takes the steps of the generic
// Objective over a dense Gaussian, the main text in mean parameters and the
// appendix in moments.
func TestGPSiteFormIsDenseForm(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}} {
		for update, coords := range map[MeanUpdate]Coordinates{MainText: MeanParams, Appendix: MeanCov} {
			gp := toyGP(t, 9, Matern12{Scale: 1, Length: 1}, lik, 4)
			gp.opt.MeanUpdate = update
			o, err := gp.Objective()
			if err != nil {
				t.Fatal(err)
			}
			o.Init = o.Init.In(coords)
			dense, err := o.NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			sites, err := gp.NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			for k, batch := range [][]int{{0, 1, 2}, {4}, {2, 8}, {5, 6, 7, 3}, {0, 8}} {
				for _, st := range []Stepper{dense, sites} {
					if _, err := st.Step(context.Background(), &Env{Rng: rng}, batch, 0.2); err != nil {
						t.Fatal(err)
					}
				}
				a, err := elboOf(dense, rng)
				if err != nil {
					t.Fatal(err)
				}
				b, err := elboOf(sites, rng)
				if err != nil {
					t.Fatal(err)
				}
				q, s := dense.(*objectiveStepper).q.(*Gaussian), algOf[*denseAlgebra](sites)
				if math.Abs(a-b) > 1e-10*math.Max(1, math.Abs(a)) || maxRel(s.cur.m, q.Mean(nil)) > 1e-10 || maxRel(s.cur.v, q.Var(nil)) > 1e-10 {
					t.Fatalf("%T, %v, step %d: ELBO %.14g in sites, %.14g dense", lik, coords, k, b, a)
				}
			}
		}
	}
}

// TestGPCurve: under a divergence without closed form the steps agree with the
// closed form where there is one, and the run reaches the same optimum.
func TestGPCurve(t *testing.T) {
	gp := toyGP(t, 12, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 6)
	kl := DivergenceFunc(func(q, q0 Dist) float64 { return q.(ExpFamily).KL(q0) })
	a, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gp.NewStepper(context.Background(), nil, kl)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for k := range 4 {
		for _, st := range []Stepper{a, b} {
			if _, err := st.Step(context.Background(), &Env{Rng: rng}, []int{k, k + 1, k + 5}, 0.3); err != nil {
				t.Fatal(err)
			}
			if _, err := elboOf(st, rng); err != nil { // brings the marginals up to date
				t.Fatal(err)
			}
		}
		if ea, eb := maxRel(algOf[*denseAlgebra](b).cur.m, algOf[*denseAlgebra](a).cur.m), maxRel(algOf[*denseAlgebra](b).cur.v, algOf[*denseAlgebra](a).cur.v); ea > 1e-7 || eb > 1e-7 {
			t.Errorf("step %d: numeric KL off by %.2g in m and %.2g in v", k, ea, eb)
		}
	}
	_, want := mustFit(t, gp, nil)
	hellinger := DivergenceFunc(func(q, q0 Dist) float64 {
		// The squared Hellinger distance, from the log-partition function at the midpoint.
		e, e0 := q.(*Gaussian), q0.(*Gaussian)
		mid := e.Clone().(*Gaussian)
		n1, n2 := e.Natural(nil), e0.Natural(nil)
		for i := range n1 {
			n1[i] = 0.5 * (n1[i] + n2[i])
		}
		if mid.SetNatural(n1) != nil {
			return math.Inf(1)
		}
		return 1 - math.Exp(mid.LogPartition()-0.5*(e.LogPartition()+e0.LogPartition()))
	})
	for _, d := range []Divergence{ReverseKL{}, SymKL{}, Euclidean{}, hellinger} {
		_, res := mustFit(t, gp, &Solver{Divergence: d})
		if res.ClosedForm {
			t.Errorf("%T claims a closed form", d)
		}
		if math.Abs(res.ELBO-want.ELBO) > 1e-6 || res.Status != Converged {
			t.Errorf("%T: %v at %.10g after %d steps, want %.10g", d, res.Status, res.ELBO, res.K, want.ELBO)
		}
	}
	// At set-up: a divergence that needs an inverse on a singular prior.
	same, err := NewGP(mat.NewDense(3, 1, []float64{1, 1, 2}), []float64{1, 1, -1}, SquaredExp{}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := same.NewStepper(context.Background(), nil, SymKL{}); !errors.Is(err, ErrNotPosDef) || !strings.Contains(err.Error(), "Jitter") {
		t.Errorf("singular prior under SymKL: %v", err)
	}
	if _, err := gp.NewStepper(context.Background(), nil, Bregman{}); !errors.Is(err, ErrParam) {
		t.Errorf("Bregman without potential: %v", err)
	}
}

// TestGPEvidence: the ELBO stays below the log evidence, and close to it.
func TestGPEvidence(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.5}, Laplace{Scale: 0.5}} {
		y := []float64{1, -1}
		if _, ok := lik.(Poisson); ok {
			y = []float64{3, 0}
		}
		const rho, scale2 = 0.6, 4.0 // k(x0, x1) = scale² exp(−½d²)
		d := math.Sqrt(-2 * math.Log(rho))
		gp, err := NewGP(mat.NewDense(2, 1, []float64{0, d}), y, SquaredExp{Scale: 2, Length: 1}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res := mustFit(t, gp, nil)
		// ∫∫ by the trapezoidal rule on a fine grid of the whitened variables.
		const h = 0.02
		var sum float64
		for a := -8.0; a <= 8; a += h {
			for b := -8.0; b <= 8; b += h {
				z0 := math.Sqrt(scale2) * a
				z1 := math.Sqrt(scale2) * (rho*a + math.Sqrt(1-rho*rho)*b)
				sum += math.Exp(-0.5*(a*a+b*b)-log2Pi+lik.LogProb(y[0], z0)+lik.LogProb(y[1], z1)) * h * h
			}
		}
		if gap := math.Log(sum) - res.ELBO; gap < 0 || gap > 0.3 {
			t.Errorf("%T: log evidence %v, ELBO %v", lik, math.Log(sum), res.ELBO)
		}
	}
}

// TestGPIllPosed: each either works or says what is wrong.
func TestGPIllPosed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	one := mat.NewDense(2, 1, []float64{0, 1})
	ok := []float64{1, -1}
	for _, c := range []struct {
		name string
		x    mat.Matrix
		y    []float64
		k    Kernel
		lik  Likelihood
		want error
		text string
	}{
		{"nil x", nil, ok, SquaredExp{}, BernoulliLogit{}, ErrEmpty, "nil matrix"},
		{"no rows", &mat.Dense{}, nil, SquaredExp{}, BernoulliLogit{}, ErrEmpty, ""},
		{"lengths", one, ok[:1], SquaredExp{}, BernoulliLogit{}, ErrShape, "2 rows, y has 1"},
		{"nil kernel", one, ok, nil, BernoulliLogit{}, ErrParam, "Kernel"},
		{"bad kernel", one, ok, SquaredExp{Scale: -1}, BernoulliLogit{}, ErrParam, "Scale"},
		{"kernel lengths", one, ok, SquaredExp{Lengths: []float64{1, 2}}, BernoulliLogit{}, ErrShape, ""},
		{"label", one, []float64{1, 0}, SquaredExp{}, BernoulliLogit{}, ErrLabel, "row 1"},
		{"count", one, []float64{1, 1.5}, SquaredExp{}, Poisson{}, ErrLabel, "row 1"},
		{"negative count", one, []float64{-1, 1}, SquaredExp{}, Poisson{}, ErrLabel, "row 0"},
		{"NaN label", one, []float64{1, nan}, SquaredExp{}, GaussianNoise{}, ErrNotFinite, "row 1"},
		{"Inf label", one, []float64{1, inf}, SquaredExp{}, StudentT{}, ErrNotFinite, "row 1"},
		{"NaN x", mat.NewDense(2, 1, []float64{0, nan}), ok, SquaredExp{}, BernoulliLogit{}, ErrNotFinite, "row 1, column 0"},
		{"Inf x", mat.NewDense(2, 1, []float64{inf, 0}), ok, SquaredExp{}, BernoulliLogit{}, ErrNotFinite, "row 0, column 0"},
		{"bad likelihood", one, ok, SquaredExp{}, GaussianNoise{Var: -1}, ErrParam, ""},
	} {
		gp, err := NewGP(c.x, c.y, c.k, c.lik, nil)
		if gp != nil || !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.text)
		}
	}

	options := func(o GPOptions) error {
		gp, err := NewGP(one, ok, SquaredExp{}, logProbOnly{}, &o)
		if gp != nil {
			t.Error("a model with invalid options")
		}
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"jitter":     {options(GPOptions{Jitter: -1}), ErrParam},
		"NaN jitter": {options(GPOptions{Jitter: nan}), ErrParam},
		"update":     {options(GPOptions{MeanUpdate: 7}), ErrParam},
		"samples":    {options(GPOptions{Estimator: ScoreFunction{Samples: 1}}), ErrParam},
		"nodes":      {options(GPOptions{Estimator: GaussHermite{Nodes: -1}}), ErrParam},
		"pathwise":   {options(GPOptions{Estimator: Pathwise{}}), ErrNoEstimator},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}

	fits := map[string]struct {
		x *mat.Dense
		y []float64
		k Kernel
	}{
		"N = 1":             {mat.NewDense(1, 1, []float64{3}), []float64{1}, SquaredExp{}},
		"duplicated rows":   {mat.NewDense(4, 1, []float64{3, 3, 3, 3}), []float64{1, 1, -1, 1}, SquaredExp{Scale: 5}},
		"constant feature":  {mat.NewDense(3, 2, []float64{1, 7, 2, 7, 3, 7}), []float64{1, 1, -1}, SquaredExp{}},
		"one class":         {mat.NewDense(3, 1, []float64{1, 2, 3}), []float64{1, 1, 1}, SquaredExp{Scale: 100}},
		"huge features":     {mat.NewDense(3, 1, []float64{1e200, 2e200, -3e200}), []float64{1, 1, -1}, SquaredExp{}},
		"tiny features":     {mat.NewDense(3, 1, []float64{1e-200, 2e-200, -3e-200}), []float64{1, 1, -1}, SquaredExp{}},
		"zero prior":        {mat.NewDense(2, 1, []float64{0, 0}), []float64{1, -1}, Linear{Scale: 1}},
		"linear, collinear": {mat.NewDense(4, 2, []float64{1, 2, 2, 4, 3, 6, 4, 8}), []float64{1, 1, -1, -1}, Linear{Scale: 1000}},
	}
	for name, c := range fits {
		gp, err := NewGP(c.x, c.y, c.k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		post, res, err := gp.Fit(context.Background(), nil)
		if err != nil || res.Status != Converged {
			t.Errorf("%s: %v, %v", name, res.Status, err)
			continue
		}
		m, v := post.Train(nil, nil)
		p := post.At(c.x).Prob(nil, 1)
		for i := range m {
			if !(v[i] >= 0) || math.IsNaN(m[i]) || !(p[i] > 0 && p[i] < 1) {
				t.Errorf("%s: N(%v, %v), p = %v", name, m[i], v[i], p[i])
			}
		}
	}

	// A covariance that overflows is an error, not a NaN.
	gp, err := NewGP(mat.NewDense(2, 1, []float64{1e200, 2}), ok, Linear{}, BernoulliLogit{}, nil)
	if err == nil {
		_, _, err = gp.Fit(context.Background(), nil)
	}
	if !errors.Is(err, ErrNotFinite) {
		t.Errorf("covariance of 1e400: %v", err)
	}
}

// TestGPHarshPrior: Poisson counts from a prior under which the mean count
// overflows, and far from the posterior.
func TestGPHarshPrior(t *testing.T) {
	for _, scale := range []float64{0.1, 10, 40, 1000} {
		x, y := mat.NewDense(60, 1, nil), make([]float64, 60)
		for i := range y {
			x.Set(i, 0, float64(i)/10)
			y[i] = math.Floor(3 + 2*math.Sin(float64(i)/5))
		}
		y[30] = 10000
		gp, err := NewGP(x, y, SquaredExp{Scale: scale, Length: 0.3}, Poisson{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res := mustFit(t, gp, nil)
		if res.Status != Converged || math.IsInf(res.ELBO, 0) {
			t.Errorf("scale %v: %v, ELBO %v, gap %v", scale, res.Status, res.ELBO, res.Gap)
		}
		t.Logf("scale %v: %v passes, ELBO %.6f, gap %.1g", scale, res.Passes, res.ELBO, res.Gap)
	}
}

// TestGPNegativeSites: Student-t regression has γ < 0 at its optimum.
func TestGPNegativeSites(t *testing.T) {
	gp := toyGP(t, 60, SquaredExp{Scale: 2, Length: 1}, StudentT{DF: 3, Scale: 0.2}, 8)
	post, _ := mustFit(t, gp, nil)
	gamma, b := post.Sites(nil, nil)
	m, v := post.Train(nil, nil)
	negative := 0
	for i, g := range gamma {
		e := ExpectLogProb(gp.terms.lik, gp.terms.y[i], m[i], v[i])
		if math.Abs(g+e.D2) > 1e-4*math.Max(1, math.Abs(g)) || math.Abs(b[i]-g*m[i]-e.D1) > 1e-4 {
			t.Errorf("site %d is not at its fixed point: γ = %v, want %v", i, g, -e.D2)
		}
		if g < 0 {
			negative++
		}
	}
	if negative == 0 {
		t.Error("no site has negative γ: the test does not test what it should")
	}
}

// TestGPNoiseAtTheEdge: with the update of the appendix, the score function drove
// the sites of this run to the edge of what is positive definite in its first
// pass, the mean to 1e11 and the ELBO, by rounding, above zero.
func TestGPNoiseAtTheEdge(t *testing.T) {
	t.Parallel()
	gp := gpCases[0].model(t, gpCases[0].load(t))
	gp.opt.Estimator = ScoreFunction{Samples: 500, Baseline: NoBaseline}
	gp.opt.MeanUpdate = Appendix
	s := pgSVI(gp.Len(), 2, 5)
	passes := shorter(10, 3)
	s.EvalEvery, s.MaxPasses, s.Src = -1, float64(passes), rand.NewPCG(5, 0)
	st, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pass := 0
	for it, err := range s.Steps(context.Background(), &Result{Stepper: st}) {
		if err != nil {
			t.Fatal(err)
		}
		if int(it.Passes+1e-9) == pass {
			continue
		}
		pass++
		elbo, err := elboOf(st, nil)
		if err != nil || elbo > 0 || elbo < -1e4 || pass == 10 && elbo < -100 {
			t.Errorf("pass %d: ELBO %v, %v", pass, elbo, err)
		}
	}
	if pass != passes {
		t.Errorf("%d passes", pass)
	}
}

// wideLik is not log-concave: at its optimum under N(0, 1) a site takes most of the
// precision of the prior, γ = −0.957.
type wideLik struct{}

func (wideLik) LogProb(_, eta float64) float64 { return 0.48*eta*eta - 1e-5*eta*eta*eta*eta }

// TestGPWide: steps of exact expectations with a given step size, which are not to
// be guarded against noise, get to an optimum near the edge, and go on from there;
// so do steps with noise.
func TestGPWide(t *testing.T) {
	ctx := context.Background()
	gp, err := NewGP(mat.NewDense(1, 1, []float64{0}), []float64{1}, SquaredExp{}, wideLik{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, best, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if g := algOf[*denseAlgebra](best.Stepper).cur.gamma[0]; g > -0.95 {
		t.Fatalf("γ is %v: the test does not test what it should", g)
	}
	_, res, err := gp.Fit(ctx, &Solver{StepSize: ConstantStep(0.1)})
	if err != nil || math.Abs(res.ELBO-best.ELBO) > 1e-6 {
		t.Errorf("with a step size: ELBO %v, want %v, %v", res.ELBO, best.ELBO, err)
	}
	noisy := *gp
	noisy.opt.Estimator = ScoreFunction{Samples: 2000}
	st, err := noisy.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, nil, math.Inf(1)); err != nil { // exact
			t.Fatal(err)
		}
	}
	for range 200 {
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, nil, 0.1); err != nil {
			t.Fatal(err)
		}
	}
	if elbo, err := elboOf(st, nil); err != nil || elbo < best.ELBO-0.1 {
		t.Errorf("after steps with noise: ELBO %v of %v, %v", elbo, best.ELBO, err)
	}
	for _, y := range []float64{19, 20, 20.2, 20.5} {
		gp, err := NewGP(mat.NewDense(1, 1, []float64{0}), []float64{y}, SquaredExp{}, StudentT{DF: 99, Scale: 0.05}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, beta := range []float64{0.1, 1} {
			if _, res, err := gp.Fit(ctx, &Solver{StepSize: ConstantStep(beta)}); err != nil || res.ELBO < -215 {
				t.Errorf("outlier %v, β = %v: ELBO %v, %v", y, beta, res.ELBO, err)
			}
		}
	}
}

// TestGPStochasticNegativeSites: with the score function γ̃ is negative at
// times; the step keeps the sign and stays among the valid states.
func TestGPStochasticNegativeSites(t *testing.T) {
	gp := toyGP(t, 60, SquaredExp{Scale: 4, Length: 1}, BernoulliLogit{}, 8)
	gp.opt.Estimator = ScoreFunction{Samples: 30, Baseline: NoBaseline}
	st, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	negative := 0
	s := &Solver{StepSize: ConstantStep(0.2), BatchSize: 5, MaxPasses: 20}
	for it, err := range s.Steps(context.Background(), &Result{Stepper: st}) {
		if err != nil {
			t.Fatalf("iteration %d: %v", it.K, err)
		}
		for _, g := range algOf[*denseAlgebra](st).cur.gamma {
			if g < 0 {
				negative++
				break
			}
		}
	}
	if negative == 0 {
		t.Error("γ̃ was never negative: the test does not test what it should")
	}
}

// TestGPNoAllocation: after warm-up a step allocates nothing.
func TestGPNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items under the race detector")
	}
	for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{DF: 4, Scale: 0.3}} {
		for name, c := range map[string]struct {
			est   SiteEstimator
			batch []int
			beta  float64
		}{
			"block":            {nil, []int{1, 5, 17, 80, 81, 90}, math.Inf(1)},
			"batch":            {nil, nil, math.Inf(1)},
			"PG exact":         {nil, []int{1, 5, 17}, 0.01},
			"PG score":         {ScoreFunction{Samples: 50}, []int{1, 5, 17}, 0.01},
			"PG pathwise":      {Pathwise{}, []int{1, 5, 17}, 0.01},
			"PG Gauss–Hermite": {GaussHermite{}, []int{1, 5, 17}, 0.01},
		} {
			gp := toyGP(t, 100, SquaredExp{Scale: 2, Length: 1}, lik, 9)
			gp.opt.Estimator = c.est
			st, err := gp.NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			env := NewEnv(rand.NewPCG(1, 1), 1)
			step := func() {
				if _, err := st.Step(context.Background(), env, c.batch, c.beta); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 {
				step()
			}
			if n := testing.AllocsPerRun(20, step); n > 0 {
				t.Errorf("%T, %s: %v allocations a step", lik, name, n)
			}
		}
	}
}

// TestGPSameBits: the same seed gives the same bits on any number of cores.
func TestGPSameBits(t *testing.T) {
	var want string
	for _, procs := range []int{1, 2, 7} {
		old := runtime.GOMAXPROCS(procs)
		gp := toyGP(t, 300, SquaredExp{Scale: 3, Length: 1}, BernoulliLogit{}, 10)
		var out bytes.Buffer
		post, res := mustFit(t, gp, &Solver{Workers: procs})
		m, v := post.At(gp.x).Latent(nil, nil)
		fmt.Fprintf(&out, "%x %x %x\n", res.ELBO, m, v)
		gp.opt.Estimator = ScoreFunction{Samples: 40}
		_, res = mustFit(t, gp, &Solver{Workers: procs, StepSize: ConstantStep(0.01), BatchSize: 20, MaxPasses: 1, Src: rand.NewPCG(3, 4)})
		fmt.Fprintf(&out, "%x\n", res.ELBO)
		_, res = mustFit(t, toyGP(t, 60, SquaredExp{Scale: 3, Length: 1}, logProbOnly{}, 10), &Solver{Workers: procs})
		fmt.Fprintf(&out, "%x", res.ELBO)
		runtime.GOMAXPROCS(old)
		if want == "" {
			want = out.String()
		}
		if out.String() != want {
			t.Errorf("GOMAXPROCS = %d gives other bits", procs)
		}
	}
}

func TestGPPosterior(t *testing.T) {
	t.Parallel()
	for _, lik := range gpLikelihoods {
		gp := toyGP(t, 50, SquaredExp{Scale: 2, Length: 1}, lik, 11)
		post, _ := mustFit(t, gp, nil)
		m, v := post.Train(nil, nil)
		lm, lv := post.At(gp.x).Latent(nil, nil)
		if em, ev := maxRel(lm, m), maxRel(lv, v); em > 1e-7 || ev > 1e-7 {
			t.Errorf("%T: Latent at the training points off by %.2g and %.2g", lik, em, ev)
		}
		if _, ok := lik.(logProbOnly); ok {
			continue
		}
		y := append([]float64(nil), gp.terms.y...)
		lp := post.At(gp.x).LogProb(nil, y)
		for i := range y {
			if want, _ := predictiveLogProb(lik, y[i], lm[i], lv[i]); lp[i] != want {
				t.Fatalf("%T: LogProb of row %d is %v, want %v", lik, i, lp[i], want)
			}
		}
		few := gp.x.Slice(0, 5, 0, 2)
		mean, variance, err := post.At(few).Moments(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		lo, err := post.At(few).Quantile(nil, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		hi, err := post.At(few).Quantile(nil, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		for i := range mean {
			sd := math.Sqrt(variance[i])
			if !(lo[i] <= hi[i]) || !(lo[i] <= mean[i]+3*sd && hi[i] >= mean[i]-3*sd) {
				t.Errorf("%T: mean %v ± %v, quantiles %v and %v", lik, mean[i], sd, lo[i], hi[i])
			}
		}
	}
	gp := toyGP(t, 50, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 11)
	post, _ := mustFit(t, gp, nil)
	plus, minus := post.At(gp.x).Prob(nil, 1), post.At(gp.x).Prob(nil, -1)
	for i := range plus {
		if math.Abs(plus[i]+minus[i]-1) > 1e-14 {
			t.Errorf("row %d: probabilities add up to %v", i, plus[i]+minus[i])
		}
	}
	// A label outside the support has no probability.
	if p := post.At(gp.x).Prob(nil, 3); !math.IsNaN(p[0]) {
		t.Errorf("P(y = 3) = %v", p[0])
	}
}

// TestGPPredictionBlocks: a row's prediction does not depend on its company.
func TestGPPredictionBlocks(t *testing.T) {
	gp := toyGP(t, 70, Sum{SquaredExp{Scale: 2, Length: 1}, White{Scale: 0.1}}, BernoulliLogit{}, 12)
	post, _ := mustFit(t, gp, nil)
	rng := rand.New(rand.NewPCG(5, 5))
	x := mat.NewDense(3*predictBlock+17, 2, nil)
	for i := range x.RawMatrix().Data {
		x.RawMatrix().Data[i] = 3 * rng.NormFloat64()
	}
	x.Set(200, 1, math.NaN())
	m, v := post.At(x).Latent(nil, nil)
	n, _ := x.Dims()
	for _, i := range []int{0, 1, predictBlock, 200, n - 1} {
		m1, v1 := post.At(x.Slice(i, i+1, 0, 2)).Latent(nil, nil)
		if m1[0] != m[i] || v1[0] != v[i] {
			t.Errorf("row %d: N(%v, %v) alone, N(%v, %v) in company", i, m1[0], v1[0], m[i], v[i])
		}
	}
	if m[200] != 0 || v[200] != 4 {
		t.Errorf("a row with NaN is N(%v, %v), want the prior N(0, 4)", m[200], v[200])
	}
	// Far from the data: the prior, without the white noise.
	fm, fv := post.At(mat.NewDense(1, 2, []float64{1e6, 1e6})).Latent(nil, nil)
	if fm[0] != 0 || fv[0] != 4 {
		t.Errorf("far away N(%v, %v), want N(0, 4)", fm[0], fv[0])
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := post.At(x).Prob(nil, 1); len(got) != n {
				t.Error("lost rows")
			}
		})
	}
	wg.Wait()
	if m, v := post.At(x.Slice(0, 1, 0, 2)).Latent(nil, nil); len(m) != 1 || len(v) != 1 {
		t.Error("one row")
	}
}

// TestGPJointSamples compares the moments of joint draws with Joint.
func TestGPJointSamples(t *testing.T) {
	gp := toyGP(t, 40, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 13)
	post, _ := mustFit(t, gp, nil)
	x := mat.NewDense(4, 2, []float64{0, 0, 0.1, 0, 0.1, 0, 2, 2}) // with a duplicated row: singular
	mean, cov, err := post.Joint(x)
	if err != nil {
		t.Fatal(err)
	}
	lm, lv := post.At(x).Latent(nil, nil)
	const draws = 20000
	z := mat.NewDense(draws, 4, nil)
	if err := post.Rand(z, x, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if math.Abs(mean[i]-lm[i]) > 1e-12 || math.Abs(cov.At(i, i)-lv[i]) > 1e-10 {
			t.Errorf("row %d: Joint N(%v, %v), Latent N(%v, %v)", i, mean[i], cov.At(i, i), lm[i], lv[i])
		}
		for j := range i + 1 {
			var s1, s2, s12 float64
			for k := range draws {
				a, b := z.At(k, i)-mean[i], z.At(k, j)-mean[j]
				s1 += a / draws
				s2 += b / draws
				s12 += a * b / draws
			}
			se := math.Sqrt(2 * cov.At(i, i) * cov.At(j, j) / draws)
			if math.Abs(s1) > 4*math.Sqrt(cov.At(i, i)/draws) || math.Abs(s12-s1*s2-cov.At(i, j)) > 4*se {
				t.Errorf("draws (%d, %d): mean error %v, covariance %v, want %v", i, j, s1, s12, cov.At(i, j))
			}
		}
	}
	for k := range 10 {
		if math.Abs(z.At(k, 1)-z.At(k, 2)) > 1e-6 {
			t.Errorf("draws at equal rows differ: %v, %v", z.At(k, 1), z.At(k, 2))
		}
	}
	if _, _, err := post.Joint(mat.NewDense(1, 2, []float64{0, math.Inf(1)})); !errors.Is(err, ErrNotFinite) {
		t.Errorf("Joint at Inf: %v", err)
	}
}

// TestGPMixedSteps: steps of all kinds may follow each other on one stepper, in
// any order: each starts from the state that the last one reached.
func TestGPMixedSteps(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}} {
		for _, update := range []MeanUpdate{MainText, Appendix} {
			gp := toyGP(t, 40, SquaredExp{Scale: 5, Length: 1}, lik, 16)
			gp.opt.MeanUpdate = update
			st, err := gp.NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := algOf[*denseAlgebra](st)
			rng := rand.New(rand.NewPCG(2, 2))
			for k := range 60 {
				// A stepper made anew at the same sites must take the same step.
				fresh, err := gp.NewStepper(context.Background(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				f := algOf[*denseAlgebra](fresh)
				f.cur.copyFrom(&g.cur)
				f.fresh, f.dense, f.pg.current = false, false, false
				f.progress = g.progress
				slow := g.slow()
				var batch []int
				beta := math.Inf(1)
				switch rng.IntN(4) {
				case 0:
					batch, beta = []int{k % 40, (k + 7) % 40, k % 40}, 0.1 // a term twice
				case 1:
					beta = 0.3
				case 2:
					batch = []int{k % 40, (k + 3) % 40, (k + 19) % 40}
				}
				for _, s := range []Stepper{st, fresh} {
					if _, err := s.Step(context.Background(), &Env{Rng: rng}, batch, beta); err != nil {
						t.Fatal(err)
					}
				}
				a, err := elboOf(st, nil)
				if err != nil {
					t.Fatal(err)
				}
				b, err := elboOf(fresh, nil)
				if err != nil {
					t.Fatal(err)
				}
				// A step of all terms goes on from the history of the last.
				history := (batch == nil || slow) && math.IsInf(beta, 1)
				if d := math.Abs(a - b); !history && d > 1e-7*math.Max(1, math.Abs(a)) {
					t.Fatalf("%T, update %d, step %d with batch %v and beta %v: ELBO %.12g, from a fresh start %.12g", lik, update, k, batch, beta, a, b)
				}
			}
		}
	}
}

// impossible is a user's likelihood that excludes every latent value.
type impossible struct{}

func (impossible) LogProb(_, _ float64) float64 { return math.Inf(-1) }

// badKernel is a user's kernel that is not positive semi-definite.
type badKernel struct{ savedLinear }

func (badKernel) Cov(x, y []float64) float64 {
	if x[0] == y[0] {
		return 1
	}
	return -3
}

// TestGPUserMistakes: what a user's own types can get wrong is said.
func TestGPUserMistakes(t *testing.T) {
	x := mat.NewDense(3, 1, []float64{1, 2, 3})
	gp, err := NewGP(x, []float64{1, 2, 3}, SquaredExp{}, impossible{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := gp.Fit(context.Background(), &Solver{MaxPasses: 20}); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 0, with response 1, has log-likelihood -Inf") {
		t.Errorf("impossible likelihood: %v", err)
	}
	if gp, err = NewGP(x, []float64{1, 2, 3}, badKernel{savedLinear{1}}, GaussianNoise{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gp.Fit(context.Background(), nil); !errors.Is(err, ErrNotPosDef) || !strings.Contains(err.Error(), "rows 1 and 0") {
		t.Errorf("kernel that is no covariance: %v", err)
	}
}

// TestGPAwkwardRows: rows that overflow, no rows, and dst that is y.
func TestGPAwkwardRows(t *testing.T) {
	gp := toyGP(t, 10, Linear{Scale: 2}, GaussianNoise{Var: 0.1}, 17)
	post, _ := mustFit(t, gp, nil)
	m, v := post.At(mat.NewDense(1, 2, []float64{1e300, 1})).Latent(nil, nil)
	if m[0] != 0 || v[0] != post.maxPrior {
		t.Errorf("a row that overflows is N(%v, %v)", m[0], v[0])
	}
	if m, v := post.At(&mat.Dense{}).Latent(nil, nil); len(m)+len(v) != 0 {
		t.Errorf("no rows give %v, %v", m, v)
	}
	y := append([]float64(nil), gp.terms.y...)
	want := post.At(gp.x).LogProb(nil, y)
	for i, got := range post.At(gp.x).LogProb(y, y) {
		if got != want[i] {
			t.Fatalf("row %d: %v into y itself, %v elsewhere", i, got, want[i])
		}
	}
}

// TestGPDrawsAreNotAll: a batch of N draws with repetitions is not the data: a
// term that was not drawn keeps its site.
func TestGPDrawsAreNotAll(t *testing.T) {
	gp := toyGP(t, 4, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 19)
	st, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Step(context.Background(), nil, []int{0, 2, 2, 3}, math.Inf(1)); err != nil {
		t.Fatal(err)
	}
	if g := algOf[*denseAlgebra](st).cur.gamma; g[1] != 0 || g[0] == 0 || g[2] == 0 || g[3] == 0 {
		t.Errorf("after a step on terms 0, 2 and 3 the sites have γ = %v", g)
	}
	if _, err := st.Step(context.Background(), nil, []int{3, 1, 0, 2}, math.Inf(1)); err != nil { // all, in some order
		t.Fatal(err)
	}
	if g := algOf[*denseAlgebra](st); !g.batched || g.cur.gamma[1] == 0 {
		t.Errorf("a step on all terms in another order was not one: γ = %v", g.cur.gamma)
	}
}

// TestGPCancel: cancellation returns the state reached, and it can be resumed.
func TestGPCancel(t *testing.T) {
	gp := toyGP(t, 80, SquaredExp{Scale: 5, Length: 1}, BernoulliLogit{}, 14)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if it.K == 2 {
			cancel()
		}
	})}
	post, res, err := gp.Fit(ctx, s)
	if !errors.Is(err, context.Canceled) || res.Status != Canceled || res.K != 2 || post == nil {
		t.Fatalf("%v after %d iterations: %v", res.Status, res.K, err)
	}
	if math.IsNaN(res.ELBO) {
		t.Error("the ELBO of the state reached is NaN")
	}
	if p := post.At(gp.x).Prob(nil, 1); math.IsNaN(p[0]) {
		t.Error("the posterior reached is not usable")
	}
	again, err := (&Solver{}).Resume(context.Background(), res)
	if err != nil {
		t.Fatal(err)
	}
	_, full := mustFit(t, gp, nil)
	if math.Abs(again.ELBO-full.ELBO) > 1e-9 {
		t.Errorf("resumed to %v, uninterrupted %v", again.ELBO, full.ELBO)
	}
}

// TestGPLinearRaw: a GP with a Linear kernel over raw units, of which K in float64 is one number, is the GLM that it says: at its rows, elsewhere,
// jointly, saved and loaded, and after blocks or steps of a given size.
func TestGPLinearRaw(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 15))
	for _, lik := range []Likelihood{GaussianNoise{Var: 0.01}, BernoulliLogit{}, Poisson{}, Laplace{Scale: 0.3}} {
		const n = 25
		x, y := mat.NewDense(n, 3, nil), make([]float64, n)
		for i := range y {
			year, z := 2000+5*rng.NormFloat64(), rng.NormFloat64()
			x.SetRow(i, []float64{1e4 * year, z, 1e-6 * rng.NormFloat64()})
			y[i] = randomResponse(rng, lik, 0.3*z+0.1*(year-2000))
		}
		scales := []float64{1, 1, 1e5}
		prior, err := NewMeanField(make([]float64, 4), []float64{1, 1, 1e10, 100})
		if err != nil {
			t.Fatal(err)
		}
		m := mustGLM(t, x, y, lik, GLMOptions{Prior: prior, Intercept: true})
		want, fit, err := m.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		g, err := NewGP(x, y, Sum{Linear{Scales: scales}, Constant{Scale: 10}}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != Converged || math.Abs(res.ELBO-fit.ELBO) > res.Gap+fit.Gap+1e-7 || !(res.GapBound < 1e-6) {
			t.Errorf("%T: %v at %.12g after %g passes, proved %.3g; the GLM at %.12g", lik, res.Status, res.ELBO, res.Passes, res.GapBound, fit.ELBO)
		}
		at := mat.NewDense(4, 3, []float64{2e7, 0, 0, 1.995e7, 1, 1e-6, 2.003e7, -2, 0, x.At(0, 0), x.At(0, 1), x.At(0, 2)})
		wm, wv := want.At(at).Latent(nil, nil)
		check := func(name string, p *GPPosterior) {
			t.Helper()
			pm, pv := p.At(at).Latent(nil, nil)
			jm, jv, err := p.Joint(at)
			if err != nil {
				t.Fatal(err)
			}
			tm, tv := p.Train(nil, nil)
			for i := range wm {
				if i == 3 && (math.Abs(tm[0]-wm[3]) > 1e-4*math.Sqrt(wv[3]) || math.Abs(tv[0]/wv[3]-1) > 1e-4) {
					t.Errorf("%T, %s, row 0: N(%v, %v), the GLM N(%v, %v)", lik, name, tm[0], tv[0], wm[3], wv[3])
				}
				for _, z := range []float64{(pm[i] - wm[i]) / math.Sqrt(wv[i]), (jm[i] - wm[i]) / math.Sqrt(wv[i]), pv[i]/wv[i] - 1, jv.At(i, i)/wv[i] - 1} {
					if !(math.Abs(z) < 1e-4) {
						t.Errorf("%T, %s, point %d: N(%v, %v), jointly N(%v, %v), the GLM N(%v, %v)", lik, name, i, pm[i], pv[i], jm[i], jv.At(i, i), wm[i], wv[i])
						break
					}
				}
			}
		}
		check("fitted", post)
		var file bytes.Buffer
		if err := post.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadGPPosterior(&file)
		if err != nil {
			t.Fatal(err)
		}
		check("loaded", loaded)
		begun, err := (&Solver{MaxPasses: 2}).Run(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		file.Reset()
		if err := begun.Save(&file); err != nil {
			t.Fatal(err)
		}
		if begun, err = new(Solver).LoadResult(t.Context(), &file, g); err != nil {
			t.Fatal(err)
		}
		again, err := new(Solver).Resume(t.Context(), begun)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(again.ELBO-res.ELBO) > res.Gap+again.Gap+1e-9 || again.Status != Converged {
			t.Errorf("%T: resumed, %v at %.12g; at once %.12g", lik, again.Status, again.ELBO, res.ELBO)
		}
	}
}

// TestGPPromising: the sites that promise most come first, and still each of them once in so many passes, whatever they promise;
// no fit takes more passes for it than by sweeps, most take fewer.
func TestGPPromising(t *testing.T) {
	t.Parallel()
	var passes, sweeps float64
	for seed, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}, BernoulliProbit{}, Laplace{Scale: 0.3}} {
		gp := toyGP(t, shorter(240, 100), SquaredExp{Scale: 10, Length: 0.5}, lik, uint64(seed))
		_, by := mustFit(t, gp, nil)
		_, in := mustFit(t, gp, &Solver{Sampler: ShuffleOnce{}})
		if math.Abs(by.ELBO-in.ELBO) > 1e-8 || by.Passes > in.Passes {
			t.Errorf("%T: ELBO %v after %v passes, by sweeps %v after %v", lik, by.ELBO, by.Passes, in.ELBO, in.Passes)
		}
		passes, sweeps = passes+by.Passes, sweeps+in.Passes
	}
	if passes > 0.8*sweeps {
		t.Errorf("%v passes in all, by sweeps %v", passes, sweeps)
	}

	res, err := new(Solver).Start(t.Context(), toyGP(t, 90, SquaredExp{Scale: 10, Length: 0.5}, BernoulliLogit{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, 90)
	st := res.Stepper.(*siteStepper)
	env := NewEnv(nil, 1)
	plan := st.Plan()
	steps, most := 0, 0
	for batch := range plan.Sampler.Batches(90, plan.Batch, env.rng()) {
		if steps++; steps > 3*promiseSweep*(promiseSweep+1) {
			break
		}
		s := st.alg.(*denseAlgebra)
		if sweep := s.progress.passes%promiseSweep == promiseSweep-1; !sweep {
			worth := func(i int) float64 {
				c := &s.cur
				da, dg := c.d1[i]-c.a[i], c.tg[i]-c.gamma[i]
				return min(promiseCap, da*da*c.v[i]+0.5*dg*dg*c.v[i]*c.v[i])
			}
			least := math.Inf(1)
			for _, i := range batch {
				least = min(least, worth(i))
			}
			for i := range seen {
				if worth(i) > least && !slices.Contains(batch, i) {
					t.Fatalf("step %d: term %d promises %g, one of the batch %g", steps, i, worth(i), least)
				}
			}
		}
		if _, err := st.Step(t.Context(), env, batch, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if seen[i]++; slices.Contains(batch, i) {
				seen[i] = 0
			}
			most = max(most, seen[i])
		}
	}
	if blocks := (90 + plan.Batch - 1) / plan.Batch; most > blocks*(promiseSweep+1) {
		t.Errorf("a term waited for %d steps, a pass being %d", most, blocks)
	}
}

// TestFirstOf: the terms that promise most are those of a stable sort of all.
func TestFirstOf(t *testing.T) {
	rng := testRand(51)
	for range 200 {
		n := 1 + rng.IntN(60)
		terms, promise := rng.Perm(n), make([]float64, n)
		for i := range promise {
			promise[i] = float64(rng.IntN(8))
		}
		want := slices.Clone(terms)
		slices.SortStableFunc(want, func(i, j int) int { return cmp.Compare(promise[j], promise[i]) })
		m := 1 + rng.IntN(n)
		if got := firstOf(nil, terms, promise, m); !slices.Equal(got, want[:m]) {
			t.Fatalf("%v, want %v", got, want[:m])
		}
	}
}
