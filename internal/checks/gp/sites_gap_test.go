package gp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// concaveLikelihoods holds the log-concave likelihoods, each with a typical response for the
// linear predictor eta.
func concaveLikelihoods() map[string]struct {
	lik Likelihood
	y   func(eta float64, rng *rand.Rand) float64
} {
	type entry = struct {
		lik Likelihood
		y   func(eta float64, rng *rand.Rand) float64
	}
	sign := func(eta float64,
		rng *rand.Rand) float64 {
		return math.Copysign(1, eta+rng.NormFloat64())
	}
	count := func(eta float64, rng *rand.Rand) float64 {
		return math.Floor(math.Exp(min(eta, 4)) * (0.2 + 1.5*rng.Float64()))
	}
	positive := func(eta float64,
		rng *rand.Rand) float64 {
		return math.Exp(eta) * rng.ExpFloat64()
	}
	return map[string]entry{
		"logit":   {BernoulliLogit{}, sign},
		"probit":  {BernoulliProbit{}, sign},
		"Poisson": {Poisson{}, count},
		"Gaussian": {GaussianNoise{},
			func(eta float64, rng *rand.Rand) float64 { return eta + 0.5*rng.NormFloat64() }},
		"binomial": {Binomial{Trials: 5},
			func(eta float64, rng *rand.Rand) float64 { return math.Floor(6 * rng.Float64()) }},
		"negative binomial": {NegativeBinomial{}, count},
		"Gamma":             {Gamma{}, positive},
		"exponential":       {Exponential{}, positive},
		"ordinal": {Ordinal{Cuts: []float64{-1, 0, 1}},
			func(_ float64, rng *rand.Rand) float64 { return float64(rng.IntN(4)) }},
		"Laplace": {Laplace{},
			func(eta float64, rng *rand.Rand) float64 { return eta + rng.NormFloat64() }},
	}
}

// gapProblem is a GLM with few rows and its optimum.
func gapProblem(t *testing.T, lik Likelihood, y func(float64, *rand.Rand) float64, n, d int,
	cov Covariance, rng *rand.Rand) (*GLM, float64) {
	t.Helper()
	x, resp := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		var eta float64
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
			eta += 0.5 * x.At(i, j)
		}
		resp[i] = y(eta, rng)
	}
	g := kit.MustGLM(t, x, resp, lik,
		GLMOptions{Covariance: cov, PriorSD: math.Exp(rng.NormFloat64())})
	_, res, err := g.Fit(context.Background(), nil)
	if err != nil || res.Status != Converged {
		t.Fatalf("%v, %v", res, err)
	}
	if res.Scope != OverQ || !(res.GapBound <= max(res.Goal, 1e-8)) {
		t.Errorf("proved %v within %v, goal %v", res.Scope, res.GapBound, res.Goal)
	}
	return g, res.ELBO
}

// TestGapBoundRandomStates checks the bound at random states q, from distant ones to ones with a
// bound of a millionth of a nat. No other q may have an ELBO above the ELBO of q plus the bound.
func TestGapBoundRandomStates(t *testing.T) {
	t.Parallel()
	problems, states := 12, 100
	if testing.Short() {
		problems, states = 2, 25
	}
	for name, c := range concaveLikelihoods() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !kit.FactsOf(c.lik).LogConcave {
				t.Fatal("is not log-concave")
			}
			rng := rand.New(rand.NewPCG(7, uint64(len(name))))
			tightest, checked := math.Inf(1), 0
			check := func(what string, elbo, bound, best float64) {
				t.Helper()
				checked++
				if gap := best - elbo; !(gap <= bound+1e-9+1e-12*math.Abs(best)) {
					t.Errorf("%s: %.6g nats below the optimum, proved to be at most %.6g", what,
						gap, bound)
				} else if gap > 1e-6 && !math.IsInf(gap, 1) {
					tightest = min(tightest, bound/gap)
				}
			}
			for range problems {
				// More weights than rows: q is kept over the sites.
				g, best := gapProblem(t, c.lik, c.y, 5, 7, FullCovariance, rng)
				dual := kit.AlgOf[*site.DualAlgebra](kit.MustStepper(t, g))
				fitted := kit.AlgOf[*site.DualAlgebra](fittedStepper(t, g))
				for range states {
					scale := math.Exp(-14 * rng.Float64())
					for i := range dual.N {
						dual.Cur.Gamma[i] = fitted.Cur.Gamma[i] * math.Exp(
							3*scale*rng.NormFloat64())
						dual.Cur.A[i] = fitted.Cur.A[i] + scale*rng.NormFloat64()
					}
					meanOf(dual.DenseAlgebra)
					if dual.Refresh(true) != nil {
						continue // expectations overflow
					}
					check("dual", dual.Elbo(&dual.Cur, dual.LogDet),
						testkit.Must(dual.Prove(false, 0)),
						best)
				}
				// Fewer weights than rows: q is kept over the weights.
				g, best = gapProblem(t, c.lik, c.y, 6, 3, FullCovariance, rng)
				primal := kit.AlgOf[*site.WeightAlgebra](kit.MustStepper(t, g))
				near := kit.AlgOf[*site.WeightAlgebra](fittedStepper(t, g))
				for range states {
					scale := math.Exp(-14 * rng.Float64())
					primal.Started = false
					for i := range primal.N {
						primal.Gamma[i] = near.Gamma[i] * math.Exp(3*scale*rng.NormFloat64())
						primal.A[i], primal.Eta[i] = near.A[i]+scale*rng.NormFloat64(), near.Eta[i]
					}
					primal.Fresh, primal.Batched, primal.Free = false, false, false
					if primal.Settle() != nil {
						continue
					}
					bound := testkit.Must(primal.Prove(1e-6, false))
					check("primal", -primal.Batch.Cur.Value, bound, best)
				}
				// A diagonal covariance.
				g, best = gapProblem(t, c.lik, c.y, 6, 3, DiagonalCovariance, rng)
				diagonal := kit.AlgOf[*site.FactoredAlgebra](kit.MustStepper(t, g))
				at := kit.AlgOf[*site.FactoredAlgebra](fittedStepper(t, g))
				for range states {
					scale := math.Exp(-14 * rng.Float64())
					f, at := diagonal.Fam.(*site.DiagFamily), at
					for j, p := range at.Fam.(*site.DiagFamily).Cur {
						f.Cur[j] = p * math.Exp(3*scale*rng.NormFloat64())
						diagonal.Cur.Mean[j] = at.Cur.Mean[j] + scale*rng.NormFloat64()/math.Sqrt(p)
					}
					diagonal.Fresh, diagonal.Aimed, diagonal.Started = false, false, true
					diagonal.History.Reset()
					if diagonal.Renewed() != nil {
						continue
					}
					diagonal.Direct()
					bound := testkit.Must(diagonal.Prove(1e-9, true))
					check("diagonal", diagonal.Cur.Elbo, bound, best)
				}
			}
			if !(tightest < 3) || checked < 2*problems*states {
				t.Errorf("%d states, the tightest bound %.3g times the gap", checked, tightest)
			}
		})
	}
}

// meanOf sets the mean to Ka.
func meanOf(s *site.DenseAlgebra) {
	for i := range s.N {
		s.Cur.M[i] = 0
		for j, a := range s.Cur.A {
			s.Cur.M[i] += s.K[i*s.N+j] * a
		}
	}
	s.Fresh, s.Dense, s.Pg.Current = false, false, false
}

func fittedStepper(t *testing.T, m Model) Stepper {
	t.Helper()
	res, err := (&Solver{}).Run(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return res.Stepper
}

// TestGapCertificate compares the parts of the bound, at steps of a fixed β, with independent
// computations.
func TestGapCertificate(t *testing.T) {
	var truth struct {
		Data map[string]struct {
			Beta float64
			Best float64 `json:"neg_elbo_optimum"`
			Rows [][4]float64
		}
	}
	testkit.ReadTruthJSON(t, "gap_certificate.json", &truth)
	for _, c := range gpCases {
		want, ok := truth.Data[c.name]
		if !ok {
			continue
		}
		st := kit.MustStepper(t, c.model(t, c.load(t)))
		s, env := kit.AlgOf[*site.DenseAlgebra](st), NewEnv(nil, 1)
		best := math.Inf(1)
		for k, row := range want.Rows {
			if k > 0 {
				if _, err := st.Step(t.Context(), env, nil, want.Beta); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Refresh(true); err != nil {
				t.Fatal(err)
			}
			elbo := s.Elbo(&s.Cur, s.LogDet)
			var g site.DenseGap
			bound, _ := g.Precision(s.Cov, &s.Cur)
			exact := g.Exact(s.K, &s.Cur, s.LogDet)
			for what, x := range map[string][2]float64{"−ELBO": {-elbo, row[0]},
				"mean": {g.Mean(s.K, &s.Cur), row[1]}, "precision": {exact, row[2]}} {
				if math.Abs(x[0]-x[1]) > 1e-8*math.Max(1, math.Abs(x[1])) {
					t.Errorf("%s, step %d: %s %.12g, want %.12g", c.name, k, what, x[0], x[1])
				}
			}
			if bound < exact-1e-9 {
				t.Errorf("%s, step %d: a bound of %.10g on %.10g", c.name, k, bound, exact)
			}
			ev, err := st.Evaluate(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, row[0]-min(row[1]+row[2], math.Inf(1)), row[0])
			if gap := row[0] - want.Best; ev.GapBound < gap-1e-9 || -ev.ELBO != -elbo {
				t.Errorf(
					"%s, step %d: proved %.6g, really %.6g; −ELBO %.12g before and %.12g after",
					c.name, k, ev.GapBound, gap, -elbo, -ev.ELBO)
			}
			// The reported bound must not exceed either part of the reference, except for a bound
			// on the precision part that needs no factorization.
			if most := min(row[1]+max(bound, row[2]), row[3]+bound-exact); k > 0 &&
				ev.GapBound > 2*most {
				t.Errorf("%s, step %d: proved %.6g, the reference %.6g and %.6g", c.name, k,
					ev.GapBound, row[1]+row[2], row[3])
			}
		}
	}
}

// TestGapUnproved checks that nothing is proved if a likelihood is not log-concave.
func TestGapUnproved(t *testing.T) {
	for _, lik := range []Likelihood{StudentT{}, onlyLogProb{}} {
		res, err := (&Solver{}).Run(t.Context(), kit.ToyGP(t, 20, SquaredExp{}, lik, 1))
		if err != nil {
			t.Fatal(err)
		}
		if res.Scope != Unproved || !math.IsInf(res.GapBound, 1) || res.Status != Converged {
			t.Errorf("%T: %v, proved %v, %v", lik, res.Status, res.Scope, res.GapBound)
		}
	}
}

// onlyLogProb is a Likelihood with no other method.
type onlyLogProb struct{}

func (onlyLogProb) LogProb(y, eta float64) float64 { return -0.5 * (y - eta) * (y - eta) }

// TestGoal checks that a run ends soon after its goal is proved, and never before.
func TestGoal(t *testing.T) {
	full, err := (&Solver{}).Run(t.Context(), kit.ToyGP(t, 200, SquaredExp{}, BernoulliLogit{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	passes := 0.0
	for _, goal := range []float64{10, 1e-1, 1e-4, 1e-8} {
		res, err := (&Solver{Goal: goal}).Run(t.Context(),
			kit.ToyGP(t, 200, SquaredExp{}, BernoulliLogit{}, 1))
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != Converged || res.GapBound > goal || res.Goal != goal {
			t.Errorf("goal %v: %v, proved %v, goal %v", goal, res.Status, res.GapBound, res.Goal)
		}
		if gap := full.ELBO - res.ELBO; gap > res.GapBound {
			t.Errorf("goal %v: gap %v, proved %v", goal, gap, res.GapBound)
		}
		if n := len(res.Trace); n > 1 && res.Trace[n-2].GapBound <= goal {
			t.Errorf("goal %v was reached before pass %v", goal, res.Passes)
		}
		if res.Passes < passes {
			t.Errorf("goal %v takes %v passes, a larger one %v", goal, res.Passes, passes)
		}
		passes = res.Passes
	}
	if passes < 3 {
		t.Errorf("%v passes: too easy to tell", passes)
	}
	for _, goal := range []float64{-1, math.NaN()} {
		if _, err := (&Solver{Goal: goal}).Run(t.Context(),
			kit.ToyGP(t, 5, SquaredExp{}, BernoulliLogit{}, 1)); !errors.Is(err, ErrParam) {
			t.Errorf("goal %v: %v", goal, err)
		}
	}
}

// TestGapEvaluateAgain checks that an evaluation which has moved the mean does not move it again.
func TestGapEvaluateAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{8, 40} {
		for _, cov := range []Covariance{FullCovariance, DiagonalCovariance} {
			g, _ := gapProblem(t, BernoulliLogit{}, concaveLikelihoods()["logit"].y, n, 12, cov,
				rng)
			st, env := kit.MustStepper(t, g), NewEnv(nil, 1)
			for range 8 {
				if _, err := st.Step(t.Context(), env, nil, math.Inf(1)); err != nil {
					t.Fatal(err)
				}
				first, err := st.Evaluate(t.Context(), env)
				if err != nil {
					t.Fatal(err)
				}
				again, err := st.Evaluate(t.Context(), env)
				if err != nil {
					t.Fatal(err)
				}
				if first != again {
					t.Errorf("%d rows, %v: %+v, then %+v", n, cov, first, again)
				}
			}
		}
	}
}

// TestGapRounding checks that the bound includes rounding errors. Noise so small that K + σ²I is
// nearly singular costs digits of the ELBO. The reference is the marginal likelihood with twice
// the digits.
func TestGapRounding(t *testing.T) {
	const n = 110
	rng := rand.New(rand.NewPCG(8, 7))
	for range 20 {
		noise, length := math.Exp(-8-6*rng.Float64()), 0.3+rng.Float64()
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range y {
			x.Set(i, 0, 4*rng.Float64())
			y[i] = math.Sin(2*x.At(i, 0)) + math.Sqrt(noise)*rng.NormFloat64()
		}
		k := SquaredExp{Scale: 1.7, Length: length}
		gp, err := NewGP(x, y, k, GaussianNoise{Var: noise}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&Solver{}).Run(t.Context(), gp)
		if err != nil {
			t.Fatal(err)
		}
		cov := Gram(nil, k, x)
		var a, r dense.Double
		a.Resize(n * n)
		a.Clear()
		r.Resize(n)
		r.Clear()
		for i := range n {
			for j := range i + 1 {
				a.Hi[i*n+j] = cov.At(i, j)
			}
			a.AddAt(i*n+i, 1, noise)
			r.Hi[i] = y[i]
		}
		if !(a.Cholesky(n) > 0) {
			t.Fatal("not positive definite in twice the digits")
		}
		var want float64
		for i := range n {
			want -= math.Log(a.Hi[i*n+i]) + 0.5*math.Log(2*math.Pi)
		}
		a.Potrs(r)
		want -= 0.5 * floats.Dot(y, r.Hi)
		if gap := want - res.ELBO; gap > res.GapBound+1e-11 || gap < -res.ELBOErr-1e-11 {
			t.Errorf("noise %.2g, length %.2g: short by %.3g of %v, proved %.3g, error %.3g", noise,
				length, gap, want, res.GapBound, res.ELBOErr)
		}
		if res.Status != Converged || res.GapBound > 1e-5 {
			t.Errorf("noise %.2g, length %.2g: %v after %v passes, proved %.3g", noise, length,
				res.Status, res.Passes, res.GapBound)
		}
	}
}

// TestScaleGap compares the gap of one scale with its definition, and checks its digits near
// zero.
func TestScaleGap(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		a, b := math.Exp(3*rng.NormFloat64()), math.Exp(3*rng.NormFloat64())
		f := func(s float64) float64 { return a*s + 0.5*b*s*s - math.Log(s) }
		least := f(1)
		for s := 1e-4; s < 1e4; s *= 1.01 {
			least = min(least, f(s))
		}
		if got, want := term.ScaleGap(a, b), f(1)-least; got < want-1e-9*(1+want) ||
			got > want+1e-3*(a+b+1) {
			t.Errorf("a = %v, b = %v: %v, want %v", a, b, got, want)
		}
	}
	for _, eps := range []float64{1e-3, 1e-5, 1e-7} {
		// a + b = 1 + ε: ½ε²/(1 + b).
		if got, want := term.ScaleGap(0.6+eps, 0.4),
			0.5*eps*eps/1.4; math.Abs(got/want-1) > 10*eps+1e-8 {
			t.Errorf("ε = %v: %v, want %v", eps, got, want)
		}
	}
}

// TestPrecisionGap checks the bound on tr Δ − log|I + Δ| for diagonal Δ, whose eigenvalues are
// known.
func TestPrecisionGap(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range 1000 {
		n := 1 + rng.IntN(6)
		gamma, target := make([]float64, n), make([]float64, n)
		var square, negative, want float64
		size := math.Exp(-8 * rng.Float64())
		for i := range n {
			gamma[i] = math.Exp(rng.NormFloat64())
			target[i] = gamma[i] * math.Exp(2*size*rng.NormFloat64())
			x := (target[i] - gamma[i]) / (gamma[i] + math.Exp(rng.NormFloat64()))
			square += x * x
			if x < 0 {
				negative += x * x
			}
			want += x - math.Log1p(x)
		}
		got := term.PrecisionGap(square, negative, gamma, target)
		if got < want-1e-15 || got > 20*want+1e-12 && size < 0.5 {
			t.Errorf("γ %v, γ̂ %v: %v, want %v", gamma, target, got, want)
		}
	}
	for _, x := range []float64{-0.5, -1e-3, -1e-5, 1e-12, 0.9e-3, 1e-3, 2} {
		want := 0.0
		for k := 60; k >= 2 && math.Abs(x) < 0.6; k-- { // the series of (x − log(1 + x))/x²
			want = 1/float64(k) - x*want
		}
		if x == 2 {
			want = (2 - math.Log(3)) / 4
		}
		if got := term.Curvature(x); math.Abs(got-want) > 1e-10 {
			t.Errorf("curvature(%v) = %v, want %v", x, got, want)
		}
	}
}

// TestSiteChange checks that the variances bound a change of the sites from above, and closely.
func TestSiteChange(t *testing.T) {
	rng := testkit.Rand(17)
	for range testkit.Shorter(200, 40) {
		n, d := 1+rng.IntN(60), 1+rng.IntN(12)
		x := testkit.NormalMatrix(rng, n, d)
		spread := math.Exp(rng.NormFloat64() - 1)
		var s term.Marginals
		s.Resize(n)
		for i := range n {
			s.Gamma[i] = math.Exp(rng.NormFloat64())
			s.Tg[i] = s.Gamma[i] * math.Exp(spread*rng.NormFloat64())
			switch rng.IntN(10) {
			case 0:
				s.Gamma[i] = 0 // becomes active
			case 1:
				s.Tg[i] = 0 // becomes inactive
			case 2:
				clear(x.RawRowView(i))
			}
		}
		p := mat.NewSymDense(d, nil)
		for j := range d {
			p.SetSym(j, j, math.Exp(rng.NormFloat64()))
		}
		add := func(p *mat.SymDense, w []float64) *mat.SymDense {
			sum := mat.NewSymDense(d, nil)
			sum.CopySym(p)
			for i, wi := range w {
				sum.SymRankOne(sum, wi, x.RowView(i))
			}
			return sum
		}
		var now, then mat.Cholesky
		post, target := add(p, s.Gamma), add(p, s.Tg)
		if !now.Factorize(post) || !then.Factorize(target) {
			t.Fatal("not positive definite")
		}
		for i := range n {
			var z mat.VecDense
			if err := now.SolveVecTo(&z, x.RowView(i)); err != nil {
				t.Fatal(err)
			}
			s.V[i] = mat.Dot(&z, x.RowView(i))
		}
		// VΔP has the trace and, squared, the trace of Δ.
		var diff, inP mat.Dense
		diff.Sub(target, post)
		if err := now.SolveTo(&inP, &diff); err != nil {
			t.Fatal(err)
		}
		var squared mat.Dense
		squared.Mul(&inP, &inP)
		trace, square := mat.Trace(&inP), mat.Trace(&squared)
		gap := trace - (then.LogDet() - now.LogDet())
		c := s.Change()
		if !(math.Abs(c.Trace-trace) <= 1e-9*(1+c.Nuclear)) {
			t.Errorf("%d×%d: the trace is %v, want %v", n, d, c.Trace, trace)
		}
		if got := c.Square(); !(got >= square*(1-1e-9)-1e-12) || got > 50*float64(d)*square+1e-12 {
			t.Errorf("%d×%d: a bound of %v on %v", n, d, got, square)
		}
		if got := c.Gap(); !(got >= gap*(1-1e-9)-1e-12) {
			t.Errorf("%d×%d: a bound of %v on a gap of %v", n, d, got, gap)
		}
		s.Gamma[0] = -0.1
		if c = s.Change(); s.V[0] > 0 && s.Tg[0] != s.Gamma[0] && !c.Mixed {
			t.Error("a negative γ goes unnoticed")
		}
	}
}

// TestResidualError checks that the estimated rounding error of Xᵀa − Λ0w is at least the true
// one.
func TestResidualError(t *testing.T) {
	x, eta := outerRows(11, 300, 80, 3)
	for _, rows := range []mat.Matrix{x, SparseOf(x)} {
		for _, prior := range []float64{1e-2, 1, 1e3} {
			st := kit.MustStepper(t,
				kit.MustGLM(t, rows, outerLabels(12, eta), BernoulliLogit{},
					GLMOptions{PriorSD: prior}))
			for range 3 {
				if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := st.Evaluate(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			s := kit.AlgOf[*site.WeightAlgebra](st)
			d, a, m := s.Lin.X.Cols, s.Batch.Cur.A, &s.Mover
			var exact dense.Double
			exact.Resize(d)
			m.Base.Residual(exact, &m.Cur, s.Lin.X, a, &design.Work{})
			off := make([]float64, d)
			s.Lin.X.AddMulT(off, a, nil)
			for j, l := range s.Lin.Prior.Prec {
				off[j] -= l*m.Cur.Mean[j] + exact.Hi[j]
			}
			dense.Trsv(blas.NoTrans, dense.LowerTriangle(m.Cur.L, d), dense.Vector(off))
			got, want := s.ResidualError(), floats.Dot(off, off)
			if !(got >= want) || got > term.ElboSlack*math.Abs(s.Batch.Cur.Value) {
				t.Errorf("a prior of %v: a bound of %v on %v", prior, got, want)
			}
			plain := s.Unsolved()
			dense.Trsv(blas.NoTrans, dense.LowerTriangle(m.Cur.L, d), dense.Vector(exact.Hi))
			if best := floats.Dot(exact.Hi, exact.Hi); !(plain >= best) {
				t.Errorf("a prior of %v: %v is said to be left, of %v", prior, plain, best)
			}
		}
	}
}

// TestGapBoundLargeCounts checks every bound of runs whose sites are a million times as strong as
// the prior. Rounding then moves the mean m of a pass away from Ka, and the ELBO is several times
// the bound too low.
func TestGapBoundLargeCounts(t *testing.T) {
	const n = 50
	for seed := range uint64(testkit.Shorter(200, 80)) {
		seed += 120
		rng := rand.New(rand.NewPCG(seed, 5))
		lik := []Likelihood{Poisson{}, Binomial{Trials: 1e6}, NegativeBinomial{Shape: 1e6},
			Gamma{Shape: 1e5}}[seed%4]
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range y {
			x.Set(i, 0, 3*rng.NormFloat64())
			eta := 0.3 * math.Sin(x.At(i, 0))
			switch rate := math.Exp(13 + eta); lik.(type) {
			case Poisson, NegativeBinomial:
				y[i] = math.Round(rate + math.Sqrt(rate)*rng.NormFloat64())
			case Binomial:
				y[i] = math.Round(1e6/(1+math.Exp(-eta)) + 500*rng.NormFloat64())
			case Gamma:
				y[i] = math.Exp(eta) * (1 + 0.003*rng.NormFloat64())
			}
		}
		g, err := NewGP(x, y, RationalQuadratic{Scale: 1.3, Length: 2}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range res.Trace {
			short := res.ELBO - res.ELBOErr - it.ELBO
			if !(short <= it.GapBound+it.ELBOErr) {
				t.Errorf("seed %d, %v, pass %v: short by %v, proved to be within %v ± %v", seed,
					lik, it.Passes, short, it.GapBound, it.ELBOErr)
			}
		}
	}
}
