package gp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

var gpLikelihoods = []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Poisson{},
	Poisson{Exposure: 3}, GaussianNoise{Var: 0.04}, StudentT{DF: 4, Scale: 0.3},
	Laplace{Scale: 0.3}, kit.LogProbOnly{}}

// TestGPInvariants runs block and batch steps over a corpus of models. They must converge and
// never lower the ELBO. They must agree if the problem has one solution, and their state must
// agree with a state that is computed from the sites.
func TestGPInvariants(t *testing.T) {
	t.Parallel()
	kernels := []Kernel{
		SquaredExp{Scale: 1, Length: 1}, SquaredExp{Scale: 10, Length: 0.01},
		SquaredExp{Scale: 0.1, Length: 100},
		SquaredExp{Scale: 300, Length: 3}, Matern32{Scale: 3, Length: 2},
		Sum{Linear{Scale: 1}, Constant{Scale: 2}},
	}
	sizes := []int{1, 2, 70}
	if !testkit.IsLong() {
		sizes = []int{1, 25}
	}
	for il, lik := range gpLikelihoods {
		_, heavy := lik.(StudentT) // not log-concave, so there are several optima
		for ik, k := range kernels {
			if testing.Short() && (il+ik)%3 > 0 {
				continue
			}
			for _, n := range sizes {
				t.Run(fmt.Sprintf("%T/%d/%d", lik, ik, n), func(t *testing.T) {
					gp := kit.ToyGP(t, n, k, lik, 7)
					_, block := kit.MustFit(t, gp, nil)
					_, batch := kit.MustFit(t, gp, &Solver{BatchSize: n})
					for name, res := range map[string]*Result{"block": block, "batch": batch} {
						if res.Status != Converged && !(res.Status == Stalled && res.Gap < 1e-8) {
							t.Errorf("%s: %v after %v passes, ELBO %v, gap %.2g", name, res.Status,
								res.Passes, res.ELBO, res.Gap)
						}
						prev := math.Inf(-1)
						for _, it := range res.Trace {
							if it.ELBO < prev-1e-13*math.Abs(prev) {
								t.Errorf("%s: iteration %d: the ELBO fell from %v to %v", name,
									it.K, prev, it.ELBO)
							}
							prev = it.ELBO
						}
						g := kit.AlgOf[*site.DenseAlgebra](res.Stepper)
						var kept term.Marginals
						kept.CopyFrom(&g.Cur)
						logDet := g.LogDet
						g.Fresh, g.Dense = false, false
						elbo, err := kit.ElboOf(res.Stepper, nil)
						if err != nil {
							t.Fatal(err)
						}
						if math.Abs(elbo-res.ELBO) > 1e-8*math.Max(1, math.Abs(elbo)) ||
							math.Abs(logDet-g.LogDet) > 1e-8*math.Max(1, logDet) {
							t.Errorf("%s: kept ELBO %v and log det %v, anew %v and %v", name,
								res.ELBO, logDet, elbo, g.LogDet)
						}
						if e := testkit.MaxRel(kept.V, g.Cur.V); e > 1e-7 {
							t.Errorf("%s: kept variances off by %.2g", name, e)
						}
					}
					if d := math.Abs(block.ELBO - batch.ELBO); !heavy && d > 1e-8*math.Max(1,
						math.Abs(batch.ELBO)) {
						t.Errorf("block reaches %.12g, batch %.12g", block.ELBO, batch.ELBO)
					}
				})
			}
		}
	}
}

// TestGPUserLikelihood checks that LogProb alone gives the results of the built-in likelihood.
func TestGPUserLikelihood(t *testing.T) {
	gp := kit.ToyGP(t, 40, SquaredExp{Scale: 2, Length: 1}, kit.LogProbOnly{}, 3)
	_, user := kit.MustFit(t, gp, nil)
	data, labels := kit.ToyRows(40, kit.LogProbOnly{}, 3)
	own := kit.Solve(t, Solver{}, testkit.Must(NewGP(data, labels, SquaredExp{Scale: 2, Length: 1},
		BernoulliLogit{}, nil)))
	if math.Abs(user.ELBO-own.ELBO) > 1e-8 {
		t.Errorf("LogProb alone reaches %v, BernoulliLogit %v", user.ELBO, own.ELBO)
	}
}

// TestGPExactRegression checks that one step with r = 0 gives the exact posterior under Gaussian
// noise, and that the ELBO is the log evidence.
func TestGPExactRegression(t *testing.T) {
	const n, noise = 60, 0.04
	gp := kit.ToyGP(t, n, Matern52{Scale: 1.5, Length: 1}, GaussianNoise{Var: noise}, 5)
	data, labels := kit.ToyRows(n, GaussianNoise{Var: noise}, 5)
	// K (K + σ²I)⁻¹ y and K − K (K + σ²I)⁻¹ K.
	k := Gram(nil, Matern52{Scale: 1.5, Length: 1}, data)
	ky := mat.NewSymDense(n, nil)
	ky.CopySym(k)
	for i := range n {
		ky.SetSym(i, i, ky.At(i, i)+noise)
	}
	var chol mat.Cholesky
	if !chol.Factorize(ky) {
		t.Fatal("not positive definite")
	}
	y := mat.NewVecDense(n, labels)
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
	evidence := -0.5 * (mat.Dot(y, &w) + chol.LogDet() + n*expfam.Log2Pi)
	for name, s := range map[string]*Solver{"batch": {BatchSize: n, MaxIter: 1},
		"blocks": {MaxPasses: 1}} {
		post, res := kit.MustFit(t, gp, s)
		if math.Abs(res.ELBO-evidence) > 1e-9 {
			t.Errorf("%s: ELBO %v, log evidence %v", name, res.ELBO, evidence)
		}
		gm, gv := post.Train(nil, nil)
		for i := range n {
			if math.Abs(gm[i]-m.AtVec(i)) > 1e-9 || math.Abs(gv[i]-v.At(i, i)) > 1e-9 {
				t.Fatalf("%s: site %d: N(%v, %v), want N(%v, %v)", name, i, gm[i], gv[i],
					m.AtVec(i), v.At(i, i))
			}
		}
		// Joint at the training points must be the same posterior.
		jm, jc, err := post.Joint(data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			for j := range n {
				if math.Abs(jc.At(i, j)-v.At(i, j)) > 1e-9 || math.Abs(jm[i]-m.AtVec(i)) > 1e-9 {
					t.Fatalf("%s: Joint (%d, %d) is %v, want %v", name, i, j, jc.At(i, j),
						v.At(i, j))
				}
			}
		}
	}
}

// TestGPFixedPoint checks that no kind of step changes the ELBO at the optimum.
func TestGPFixedPoint(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}} {
		for _, update := range []Coordinates{MeanParams, MeanCov} {
			gp := kit.ToyGPWith(t, 50, SquaredExp{Scale: 2, Length: 1}, lik, 2,
				&GPOptions{Coordinates: update})
			_, res := kit.MustFit(t, gp, &Solver{Converger: GapBelow(1e-13, 0)})
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
				if _, err := st.Step(context.Background(), &Env{Rng: rng}, step.batch,
					step.beta); err != nil {
					t.Fatal(err)
				}
				elbo, err := kit.ElboOf(st, nil)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(elbo-res.ELBO) > 1e-9 {
					t.Errorf("%T, %v: a %s step changed the ELBO by %.2g", lik, update, name,
						elbo-res.ELBO)
				}
			}
		}
	}
}

// TestGPSiteFormIsDenseForm compares the steps of the sites with the steps of the generic
// Objective over a dense Gaussian: the main text in mean parameters, and the appendix in moments.
func TestGPSiteFormIsDenseForm(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.3}} {
		for _, coords := range []Coordinates{MeanParams, MeanCov} {
			gp := kit.ToyGPWith(t, 9, Matern12{Scale: 1, Length: 1}, lik, 4,
				&GPOptions{Coordinates: coords})
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
					if _, err := st.Step(context.Background(), &Env{Rng: rng}, batch,
						0.2); err != nil {
						t.Fatal(err)
					}
				}
				a, err := kit.ElboOf(dense, rng)
				if err != nil {
					t.Fatal(err)
				}
				b, err := kit.ElboOf(sites, rng)
				if err != nil {
					t.Fatal(err)
				}
				q, s := kit.Reached[*Gaussian](dense), kit.AlgOf[*site.DenseAlgebra](sites)
				if math.Abs(a-b) > 1e-10*math.Max(1, math.Abs(a)) ||
					testkit.MaxRel(s.Cur.M, q.Mean(nil)) > 1e-10 ||
					testkit.MaxRel(s.Cur.V, q.Var(nil)) > 1e-10 {
					t.Fatalf("%T, %v, step %d: ELBO %.14g in sites, %.14g dense", lik, coords, k, b,
						a)
				}
			}
		}
	}
}

// TestGPCurve checks steps under a divergence without a closed form. They must agree with the
// closed form if there is one, and the run must reach the same optimum.
func TestGPCurve(t *testing.T) {
	gp := kit.ToyGP(t, 12, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 6)
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
			if _, err := st.Step(context.Background(), &Env{Rng: rng}, []int{k, k + 1, k + 5},
				0.3); err != nil {
				t.Fatal(err)
			}
			if _, err := kit.ElboOf(st, rng); err != nil { // updates the marginals
				t.Fatal(err)
			}
		}
		if ea, eb := testkit.MaxRel(kit.AlgOf[*site.DenseAlgebra](b).Cur.M,
			kit.AlgOf[*site.DenseAlgebra](a).Cur.M),
			testkit.MaxRel(kit.AlgOf[*site.DenseAlgebra](b).Cur.V,
				kit.AlgOf[*site.DenseAlgebra](a).Cur.V); ea > 1e-7 || eb > 1e-7 {
			t.Errorf("step %d: numeric KL off by %.2g in m and %.2g in v", k, ea, eb)
		}
	}
	_, want := kit.MustFit(t, gp, nil)
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
	for _, d := range []Divergence{ReverseKL(), SymKL(), Euclidean(), hellinger} {
		_, res := kit.MustFit(t, gp, &Solver{Divergence: d})
		if res.ClosedForm {
			t.Errorf("%T claims a closed form", d)
		}
		if math.Abs(res.ELBO-want.ELBO) > 1e-6 || res.Status != Converged {
			t.Errorf("%T: %v at %.10g after %d steps, want %.10g", d, res.Status, res.ELBO, res.K,
				want.ELBO)
		}
	}
	// Set-up must reject a divergence that needs an inverse if the prior is singular.
	same, err := NewGP(mat.NewDense(3, 1, []float64{1, 1, 2}), []float64{1, 1, -1}, SquaredExp{},
		BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := same.NewStepper(context.Background(), nil, SymKL()); !errors.Is(err,
		ErrNotPosDef) || !strings.Contains(err.Error(), "Jitter") {
		t.Errorf("singular prior under SymKL: %v", err)
	}
	if _, err := gp.NewStepper(context.Background(), nil, Bregman(nil)); !errors.Is(err, ErrParam) {
		t.Errorf("Bregman without potential: %v", err)
	}
}

// TestGPEvidence checks that the ELBO is below the log evidence and close to it.
func TestGPEvidence(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{DF: 4, Scale: 0.5},
		Laplace{Scale: 0.5}} {
		y := []float64{1, -1}
		if _, ok := lik.(Poisson); ok {
			y = []float64{3, 0}
		}
		const rho, scale2 = 0.6, 4.0 // k(x0, x1) = scale² exp(−½d²)
		d := math.Sqrt(-2 * math.Log(rho))
		gp, err := NewGP(mat.NewDense(2, 1, []float64{0, d}), y, SquaredExp{Scale: 2, Length: 1},
			lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res := kit.MustFit(t, gp, nil)
		// The double integral is a trapezoidal sum over a fine grid of the whitened variables.
		h := testkit.Shorter(0.02, 0.08)
		var sum float64
		for a := -8.0; a <= 8; a += h {
			for b := -8.0; b <= 8; b += h {
				z0 := math.Sqrt(scale2) * a
				z1 := math.Sqrt(scale2) * (rho*a + math.Sqrt(1-rho*rho)*b)
				sum += math.Exp(-0.5*(a*a+b*b)-expfam.Log2Pi+lik.LogProb(y[0], z0)+lik.LogProb(y[1],
					z1)) * h * h
			}
		}
		if gap := math.Log(sum) - res.ELBO; gap < 0 || gap > 0.3 {
			t.Errorf("%T: log evidence %v, ELBO %v", lik, math.Log(sum), res.ELBO)
		}
	}
}

// TestGPIllPosed checks that each ill-posed problem works or returns an error that names the
// fault.
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
		{"lengths", one, ok[:1], SquaredExp{}, BernoulliLogit{}, ErrShape, "2 rows, but y has 1"},
		{"nil kernel", one, ok, nil, BernoulliLogit{}, ErrParam, "Kernel"},
		{"bad kernel", one, ok, SquaredExp{Scale: -1}, BernoulliLogit{}, ErrParam, "Scale"},
		{"kernel lengths", one, ok, SquaredExp{Lengths: []float64{1, 2}}, BernoulliLogit{},
			ErrShape, ""},
		{"label", one, []float64{1, 0}, SquaredExp{}, BernoulliLogit{}, ErrLabel, "row 1"},
		{"count", one, []float64{1, 1.5}, SquaredExp{}, Poisson{}, ErrLabel, "row 1"},
		{"negative count", one, []float64{-1, 1}, SquaredExp{}, Poisson{}, ErrLabel, "row 0"},
		{"NaN label", one, []float64{1, nan}, SquaredExp{}, GaussianNoise{}, ErrNotFinite, "row 1"},
		{"Inf label", one, []float64{1, inf}, SquaredExp{}, StudentT{}, ErrNotFinite, "row 1"},
		{"NaN x", mat.NewDense(2, 1, []float64{0, nan}), ok, SquaredExp{}, BernoulliLogit{},
			ErrNotFinite, "row 1, column 0"},
		{"Inf x", mat.NewDense(2, 1, []float64{inf, 0}), ok, SquaredExp{}, BernoulliLogit{},
			ErrNotFinite, "row 0, column 0"},
		{"bad likelihood", one, ok, SquaredExp{}, GaussianNoise{Var: -1}, ErrParam, ""},
	} {
		gp, err := NewGP(c.x, c.y, c.k, c.lik, nil)
		if gp != nil || !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.text)
		}
	}

	options := func(o GPOptions) error {
		gp, err := NewGP(one, ok, SquaredExp{}, kit.LogProbOnly{}, &o)
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
		"update":     {options(GPOptions{Coordinates: 7}), ErrParam},
		"samples":    {options(GPOptions{Estimator: ScoreFunction(1)}), ErrParam},
		"nodes":      {options(GPOptions{Estimator: GaussHermite(-1)}), ErrParam},
		"pathwise":   {options(GPOptions{Estimator: Pathwise(0)}), ErrNoEstimator},
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
		"N = 1": {mat.NewDense(1, 1, []float64{3}), []float64{1}, SquaredExp{}},
		"duplicated rows": {mat.NewDense(4, 1, []float64{3, 3, 3, 3}), []float64{1, 1, -1, 1},
			SquaredExp{Scale: 5}},
		"constant feature": {mat.NewDense(3, 2, []float64{1, 7, 2, 7, 3, 7}), []float64{1, 1, -1},
			SquaredExp{}},
		"one class": {mat.NewDense(3, 1, []float64{1, 2, 3}), []float64{1, 1, 1},
			SquaredExp{Scale: 100}},
		"huge features": {mat.NewDense(3, 1, []float64{1e200, 2e200, -3e200}),
			[]float64{1, 1, -1}, SquaredExp{}},
		"tiny features": {mat.NewDense(3, 1, []float64{1e-200, 2e-200, -3e-200}),
			[]float64{1, 1, -1}, SquaredExp{}},
		"zero prior": {mat.NewDense(2, 1, []float64{0, 0}), []float64{1, -1},
			Linear{Scale: 1}},
		"linear, collinear": {mat.NewDense(4, 2, []float64{1, 2, 2, 4, 3, 6, 4, 8}),
			[]float64{1, 1, -1, -1}, Linear{Scale: 1000}},
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

	// A covariance that overflows must be an error, not NaN.
	gp, err := NewGP(mat.NewDense(2, 1, []float64{1e200, 2}), ok, Linear{}, BernoulliLogit{}, nil)
	if err == nil {
		_, _, err = gp.Fit(context.Background(), nil)
	}
	if !errors.Is(err, ErrNotFinite) {
		t.Errorf("covariance of 1e400: %v", err)
	}
}

// TestGPHarshPrior fits Poisson counts under a prior that is far from the posterior, and whose
// mean count overflows.
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
		_, res := kit.MustFit(t, gp, nil)
		if res.Status != Converged || math.IsInf(res.ELBO, 0) {
			t.Errorf("scale %v: %v, ELBO %v, gap %v", scale, res.Status, res.ELBO, res.Gap)
		}
		t.Logf("scale %v: %v passes, ELBO %.6f, gap %.1g", scale, res.Passes, res.ELBO, res.Gap)
	}
}

// TestGPNegativeSites checks Student-t regression, which has γ < 0 at its optimum.
func TestGPNegativeSites(t *testing.T) {
	gp := kit.ToyGP(t, 60, SquaredExp{Scale: 2, Length: 1}, StudentT{DF: 3, Scale: 0.2}, 8)
	_, labels := kit.ToyRows(60, StudentT{DF: 3, Scale: 0.2}, 8)
	post, _ := kit.MustFit(t, gp, nil)
	gamma, b := post.Sites(nil, nil)
	m, v := post.Train(nil, nil)
	negative := 0
	for i, g := range gamma {
		e := ExpectLogProb(StudentT{DF: 3, Scale: 0.2}, labels[i], m[i], v[i])
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

// TestGPNoiseAtTheEdge checks a run with the update of the appendix. The score function once
// drove its sites to the edge of the positive definite matrices in the first pass. The mean
// reached 1e11, and the rounded ELBO was above zero.
func TestGPNoiseAtTheEdge(t *testing.T) {
	t.Parallel()
	gp := gpCases[0].modelWith(t, gpCases[0].load(t), GPOptions{Coordinates: MeanCov,
		Estimator: ScoreFunctionPlain(500)})
	s := kit.PgSVI(gp.Len(), 2, 5)
	passes := testkit.Longer(10, testkit.Shorter(3, 1))
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
		elbo, err := kit.ElboOf(st, nil)
		if err != nil || elbo > 0 || elbo < -1e4 || pass == 10 && elbo < -100 {
			t.Errorf("pass %d: ELBO %v, %v", pass, elbo, err)
		}
	}
	if pass != passes {
		t.Errorf("%d passes", pass)
	}
}

// wideLik is not log-concave. At its optimum under N(0, 1) the site takes most of the precision
// of the prior, γ = −0.957.
type wideLik struct{}

func (wideLik) LogProb(_, eta float64) float64 { return 0.48*eta*eta - 1e-5*eta*eta*eta*eta }

// TestGPWide checks steps of a given size near the edge of the valid set. Steps with exact
// expectations need no guard against noise, must reach the optimum and continue from there. Noisy
// steps must do the same.
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
	if g := kit.AlgOf[*site.DenseAlgebra](best.Stepper).Cur.Gamma[0]; g > -0.95 {
		t.Fatalf("γ is %v: the test does not test what it should", g)
	}
	_, res, err := gp.Fit(ctx, &Solver{StepSize: ConstantStep(0.1)})
	if err != nil || math.Abs(res.ELBO-best.ELBO) > 1e-6 {
		t.Errorf("with a step size: ELBO %v, want %v, %v", res.ELBO, best.ELBO, err)
	}
	noisy := testkit.Must(NewGP(mat.NewDense(1, 1, []float64{0}), []float64{1}, SquaredExp{},
		wideLik{},
		&GPOptions{Estimator: ScoreFunction(2000)}))
	st, err := noisy.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		// exact
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, nil, 0.1); err != nil {
			t.Fatal(err)
		}
	}
	if elbo, err := kit.ElboOf(st, nil); err != nil || elbo < best.ELBO-0.1 {
		t.Errorf("after steps with noise: ELBO %v of %v, %v", elbo, best.ELBO, err)
	}
	for _, y := range []float64{19, 20, 20.2, 20.5} {
		gp, err := NewGP(mat.NewDense(1, 1, []float64{0}), []float64{y}, SquaredExp{},
			StudentT{DF: 99, Scale: 0.05}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, beta := range []float64{0.1, 1} {
			if _, res, err := gp.Fit(ctx, &Solver{StepSize: ConstantStep(beta)}); err != nil ||
				res.ELBO < -215 {
				t.Errorf("outlier %v, β = %v: ELBO %v, %v", y, beta, res.ELBO, err)
			}
		}
	}
}

// TestGPStochasticNegativeSites checks the score function, which sometimes makes γ̃ negative. The
// step must keep the sign and stay in the valid set.
func TestGPStochasticNegativeSites(t *testing.T) {
	gp := kit.ToyGPWith(t, 60, SquaredExp{Scale: 4, Length: 1}, BernoulliLogit{}, 8,
		&GPOptions{Estimator: ScoreFunctionPlain(30)})
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
		for _, g := range kit.AlgOf[*site.DenseAlgebra](st).Cur.Gamma {
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

// TestGPNoAllocation checks that a step allocates nothing after the first steps.
func TestGPNoAllocation(t *testing.T) {
	if testkit.Race {
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
			"PG score":         {ScoreFunction(50), []int{1, 5, 17}, 0.01},
			"PG pathwise":      {Pathwise(0), []int{1, 5, 17}, 0.01},
			"PG Gauss–Hermite": {GaussHermite(0), []int{1, 5, 17}, 0.01},
		} {
			gp := kit.ToyGPWith(t, 100, SquaredExp{Scale: 2, Length: 1}, lik, 9,
				&GPOptions{Estimator: c.est})
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

// TestGPSameBits checks that the same seed gives the same bits on any number of cores.
func TestGPSameBits(t *testing.T) {
	var want string
	for _, procs := range testkit.Few([]int{1, 7, 2}, 2) {
		old := runtime.GOMAXPROCS(procs)
		gp := kit.ToyGP(t, testkit.Shorter(300, 200), SquaredExp{Scale: 3, Length: 1},
			BernoulliLogit{}, 10)
		data, _ := kit.ToyRows(testkit.Shorter(300, 200), BernoulliLogit{}, 10)
		var out bytes.Buffer
		post, res := kit.MustFit(t, gp, &Solver{Workers: procs})
		m, v := post.At(data).Latent(nil, nil)
		fmt.Fprintf(&out, "%x %x %x\n", res.ELBO, m, v)
		gp = kit.ToyGPWith(t, testkit.Shorter(300, 200), SquaredExp{Scale: 3, Length: 1},
			BernoulliLogit{}, 10,
			&GPOptions{Estimator: ScoreFunction(40)})
		_, res = kit.MustFit(t, gp,
			&Solver{Workers: procs, StepSize: ConstantStep(0.01), BatchSize: 20, MaxPasses: 1,
				Src: rand.NewPCG(3, 4)})
		fmt.Fprintf(&out, "%x\n", res.ELBO)
		_, res = kit.MustFit(t, kit.ToyGP(t, 60, SquaredExp{Scale: 3, Length: 1}, kit.LogProbOnly{},
			10), &Solver{Workers: procs})
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

// The coefficients of a trend with a rough function must be those of a linear model whose columns
// are the trend and a square root of the covariance of the function.
func TestPartTrend(t *testing.T) {
	t.Parallel()
	n, rng := testkit.Shorter(60, 30), testkit.Rand(21)
	rough, trend, offset := Matern12{Scale: 0.8, Length: 0.6}, Linear{Scales: []float64{1.5, 0.7}},
		Constant{Scale: 3}
	x := mat.NewDense(n, 2, nil)
	for i := range n {
		x.SetRow(i, []float64{2 + rng.NormFloat64(), rng.NormFloat64()})
	}
	var chol mat.Cholesky
	if !chol.Factorize(Gram(nil, rough, x)) {
		t.Fatal("not positive definite")
	}
	var root mat.TriDense
	chol.LTo(&root)
	columns := mat.NewDense(n, 3+n, nil)
	for i := range n {
		columns.SetRow(i,
			append([]float64{1.5 * x.At(i, 0), 0.7 * x.At(i, 1), 3}, mat.Row(nil, i, &root)...))
	}
	for _, c := range []struct {
		lik Likelihood
		y   func(f float64) float64
	}{
		{BernoulliLogit{}, func(f float64) float64 {
			return testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-f)))
		}},
		{GaussianNoise{Var: 0.1}, func(f float64) float64 { return f + 0.3*rng.NormFloat64() }},
		{StudentT{DF: 4, Scale: 0.3}, func(f float64) float64 { return f + 0.3*rng.NormFloat64() }},
	} {
		y := make([]float64, n)
		for i := range y {
			y[i] = c.y(1.2*x.At(i, 0) - 0.5*x.At(i, 1) - 2 + 0.7*rng.NormFloat64())
		}
		ctx, s := context.Background(), &Solver{Goal: 1e-10}
		p, _, err := kit.MustGP(t, x, y, Sum{rough, trend, offset}, c.lik).Fit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		if p, err = Load[*GPPosterior](&file); err != nil {
			t.Fatal(err)
		}
		g, err := NewGLM(columns, y, c.lik, &GLMOptions{Covariance: FullCovariance})
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := g.Fit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		m, v := p.Part(1, kit.UnitRows(2)).Latent(nil, nil)
		m0, v0 := p.Part(2, mat.NewDense(1, 2, []float64{5, -7})).Latent(nil, nil)
		m, v = append(m, m0...), append(v, v0...)
		mean, sd := want.Mean(nil), want.SD(nil)
		for j, scale := range []float64{1.5, 0.7, 3} {
			if math.Abs(m[j]-scale*mean[j]) > 1e-4*scale*sd[j] ||
				math.Abs(math.Sqrt(v[j])-scale*sd[j]) > 1e-4*scale*sd[j] {
				t.Errorf("%T: coefficient %d is %v ± %v, want %v ± %v", c.lik, j, m[j],
					math.Sqrt(v[j]), scale*mean[j], scale*sd[j])
			}
		}
		at := mat.NewDense(3, 2, []float64{1, 1, 200, -300, x.At(0, 0), x.At(0, 1)})
		all, _ := p.At(at).Latent(nil, nil)
		for i := range 3 {
			part, _ := p.Part(i, at).Latent(nil, nil)
			for j, v := range part {
				all[j] -= v
			}
		}
		for j, rest := range all {
			if math.Abs(rest) > 1e-9 {
				t.Errorf("%T: the parts at row %d leave %v of the whole", c.lik, j, rest)
			}
		}
	}
}

// A kernel without terms must have no parts.
func TestPartPanics(t *testing.T) {
	t.Parallel()
	x, y := kit.UnitRows(2), []float64{1, 2}
	for what, c := range map[string]struct {
		k    Kernel
		term int
	}{
		"no sum": {SquaredExp{}, 0}, "a product": {Product{SquaredExp{}, Linear{}}, 0},
		"no such term":    {Sum{SquaredExp{}, Linear{}}, 2},
		"a negative term": {Sum{SquaredExp{}}, -1},
	} {
		p, _, err := kit.MustGP(t, x, y, c.k, nil).Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustPanic(t, what, func() { p.Part(c.term, x) })
	}
}

// A trend must be learned and extrapolated far outside the data, wherever the origins of the
// columns and responses are.
func TestLearnTrend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ x0, y0 float64 }{{0, 0}, {0, 300}, {1980, 300}, {-1980, -300}} {
		const n = 80
		rng := testkit.Rand(3)
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range n {
			u := 20*float64(i)/float64(n) - 10
			x.Set(i, 0, c.x0+u)
			y[i] = c.y0 + 1.5*u + 2*math.Sin(u) + 0.3*rng.NormFloat64()
		}
		_, p, l, err := kit.MustGP(t, x, y, Sum{SquaredExp{}, Linear{}, Constant{}},
			GaussianNoise{}).Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, v := p.Part(1, kit.UnitRows(1)).Latent(nil, nil)
		if math.Abs(m[0]-1.5) > 0.25 || math.Sqrt(v[0]) > 0.5 || l.Evaluations > 20 {
			t.Errorf("from %v: slope %v ± %v in %d evaluations", c, m[0], math.Sqrt(v[0]),
				l.Evaluations)
		}
		m, v = p.At(mat.NewDense(1, 1, []float64{c.x0 + 60})).Latent(nil, nil)
		if want := c.y0 + 90; math.Abs(m[0]-want) > 15 || math.Sqrt(v[0]) > 30 {
			t.Errorf("from %v: forecast %v ± %v, want %v", c, m[0], math.Sqrt(v[0]), want)
		}
	}
}
