package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
)

// A GP with a linear kernel is the GLM.
func TestGLMLinearKernel(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, StudentT{}} {
		c := kit.ToyGLM("", 40, 5, lik, 51, &GLMOptions{PriorSD: 0.7})
		p, res := kit.FitGLM(t, c.Glm(t, c.X), nil)
		gp, err := NewGP(c.X, c.Y, Linear{Scale: 0.7}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, rq, err := gp.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(res.ELBO - rq.ELBO); d > 1e-8 {
			t.Errorf("%T: ELBO %.2e apart", lik, d)
		}
		x := testkit.NormalMatrix(rand.New(rand.NewPCG(2, 2)), 7, 5)
		m, v := p.At(x).Latent(nil, nil)
		m2, v2 := q.At(x).Latent(nil, nil)
		for i := range m {
			if math.Abs(m[i]-m2[i]) > 1e-4*math.Sqrt(v[i]) || math.Abs(v[i]-v2[i]) > 1e-4*v[i] {
				t.Errorf("%T, point %d: N(%v, %v) and N(%v, %v)", lik, i, m[i], v[i], m2[i], v2[i])
			}
		}
	}
}

func TestGLMErrors(t *testing.T) {
	x := mat.NewDense(2, 2, []float64{1, 2, 3, 4})
	y := []float64{1, -1}
	bad := mat.NewDense(2, 2, []float64{1, 2, math.NaN(), 4})
	mean, _ := NewMeanField([]float64{0}, []float64{1})
	for _, c := range []struct {
		x    mat.Matrix
		y    []float64
		lik  Likelihood
		opt  *GLMOptions
		want error
		text string
	}{
		{nil, y, BernoulliLogit{}, nil, ErrEmpty, "nil matrix"},
		{x, y[:1], BernoulliLogit{}, nil, ErrShape, "2 rows"},
		{bad, y, BernoulliLogit{}, nil, ErrNotFinite, "row 1, column 0"},
		{bad, y, BernoulliLogit{}, &GLMOptions{Intercept: true}, ErrNotFinite, "row 1, column 0"},
		{x, []float64{1, 0}, BernoulliLogit{}, nil, ErrLabel, "1"},
		{x, []float64{1, math.Inf(1)}, nil, nil, ErrNotFinite, "1"},
		{x, y, GaussianNoise{Var: -1}, nil, ErrParam, "Var"},
		{x, y, nil, &GLMOptions{PriorSD: -1}, ErrParam, "PriorSD"},
		{x, y, nil, &GLMOptions{PriorSD: 1e200}, ErrNotPosDef, "weight 0"},
		{x, y, nil, &GLMOptions{InterceptSD: math.NaN()}, ErrParam, "InterceptSD"},
		{x, y, nil, &GLMOptions{Rank: -1}, ErrParam, "Rank"},
		{x, y, nil, &GLMOptions{Covariance: 9}, ErrParam, "Covariance"},
		{x, y, nil, &GLMOptions{Coordinates: 9}, ErrParam, "Coordinates"},
		{x, y, nil, &GLMOptions{Prior: mean}, ErrShape, "1 dimensions"},
		{x, y, nil, &GLMOptions{Offset: []float64{1}}, ErrShape, "Offset"},
		{x, y, nil, &GLMOptions{Offset: []float64{1, math.NaN()}}, ErrNotFinite, "Offset[1]"},
		{x, y, nil, &GLMOptions{Weights: []float64{1, -1}}, ErrParam, "Weights[1]"},
		{x, y, nil, &GLMOptions{Names: []string{"a"}}, ErrShape, "Names"},
		{NewSparse(0), nil, nil, nil, ErrEmpty, "column"},
	} {
		_, err := NewGLM(c.x, c.y, c.lik, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%+v: error %v, want %v with %q", c.opt, err, c.want, c.text)
		}
	}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Estimator: Pathwise(-1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Fit(context.Background(), nil); !errors.Is(err, ErrParam) {
		t.Errorf("estimator: %v", err)
	}
}

// Predictions: the closed forms from Latent, the intercept, sparse and dense points.
func TestGLMPredict(t *testing.T) {
	c := kit.ToyGLM("", 200, 3, BernoulliLogit{}, 95, &GLMOptions{Intercept: true})
	p, _ := kit.FitGLM(t, c.Glm(t, c.X), nil)
	m, v := p.At(c.X).Latent(nil, nil)
	cov, w := p.Cov(), p.Mean(nil)
	for i := range m {
		row := mat.NewVecDense(4, append(append([]float64(nil), c.X.RawRowView(i)...), 1))
		if e := math.Abs(m[i] - mat.Dot(row, mat.NewVecDense(4, w))); e > 1e-12 {
			t.Errorf("mean %d off by %v", i, e)
		}
		if e := math.Abs(v[i] - mat.Inner(row, cov, row)); e > 1e-12 {
			t.Errorf("variance %d off by %v", i, e)
		}
	}
	m2, v2 := p.At(SparseOf(c.X)).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]-m2[i]) > 1e-12 || math.Abs(v[i]-v2[i]) > 1e-12 {
			t.Errorf("row %d: sparse and dense differ", i)
		}
	}
	prob, lp := p.At(c.X).Prob(nil, 1), p.At(c.X).LogProb(nil, c.Y)
	mean, _, err := p.At(c.X).Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range prob {
		want := prob[i]
		if c.Y[i] < 0 {
			want = 1 - want
		}
		if math.Abs(math.Exp(lp[i])-want) > 1e-12 || math.Abs(mean[i]-(2*prob[i]-1)) > 1e-10 {
			t.Errorf("row %d: P(+1) = %v, P(y) = %v, mean %v", i, prob[i], math.Exp(lp[i]), mean[i])
		}
	}
	lo, hi := p.WeightQuantile(nil, 0.025), p.WeightQuantile(nil, 0.975)
	for j, s := range p.SD(nil) {
		if math.Abs(hi[j]-lo[j]-2*1.959963984540054*s) > 1e-12 {
			t.Errorf("interval of weight %d", j)
		}
	}
	corr := p.Corr()
	if math.Abs(corr.At(0, 1)-cov.At(0, 1)/math.Sqrt(cov.At(0, 0)*cov.At(1, 1))) > 1e-14 ||
		corr.At(2, 2) != 1 {
		t.Error("correlations")
	}
	nan := mat.NewDense(2, 3, []float64{1, math.NaN(), 0, 0, 0, 0})
	if m, v := p.At(nan).Latent(nil, nil); !math.IsNaN(m[0]) || !math.IsNaN(v[0]) || m[1] != w[3] {
		t.Errorf("a NaN among the features: %v, %v", m, v)
	}
}

// Steps do not allocate after the first few.
func TestGLMAllocs(t *testing.T) {
	c := kit.ToyGLM("", 400, 6, BernoulliLogit{}, 97, nil)
	for _, x := range []mat.Matrix{c.X, SparseOf(c.X)} {
		for _, batch := range [][]int{nil, {1, 5, 9, 100, 200, 301, 302, 303}} {
			st, err := c.Glm(t, x).NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			step := func() {
				if _, err := st.Step(context.Background(), nil, batch, math.Inf(1)); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 {
				step()
			}
			if n := testing.AllocsPerRun(20, step); n > 0 && !testkit.Race {
				t.Errorf("%T, batch of %d: %v allocations a step", x, len(batch), n)
			}
		}
	}
}

// A likelihood that is not log-concave, under a prior without information, with hardly more rows
// than weights.
func TestGLMNotLogConcave(t *testing.T) {
	t.Parallel()
	for seed := range testkit.Shorter[uint64](60, 20) {
		c := kit.ToyGLM("", 12+int(seed%14), 3+int(seed%9), StudentT{}, seed,
			&GLMOptions{PriorSD: 1000, Intercept: seed%2 == 0})
		if _, res := kit.FitGLM(t, c.Glm(t, c.X), nil); res.Status != Converged {
			t.Errorf("seed %d: %v, gap %v", seed, res.Status, res.Gap)
		}
	}
}

// TestGLMWeightless checks that rows of weight 0 have no effect, whatever their counts are.
func TestGLMWeightless(t *testing.T) {
	x := mat.NewDense(6, 2, []float64{1, 0.3, 1, -1.2, 1, 0.7, 1, 2, 1, -0.4, 1, 0.1})
	y, w := []float64{40, 2, 900, 5, 0, 7}, []float64{0, 1, 0, 2, 1, 1}
	kept := mat.NewDense(4, 2, []float64{1, -1.2, 1, 2, 1, -0.4, 1, 0.1})
	for _, lik := range []Likelihood{Poisson{}, NegativeBinomial{Shape: 2},
		Binomial{Trials: 1000}} {
		var elbo [2]float64
		for i, c := range []struct {
			x    *mat.Dense
			y, w []float64
		}{{x, y, w}, {kept, []float64{2, 5, 0, 7}, []float64{1, 2, 1, 1}}} {
			g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Weights: c.w})
			if err != nil {
				t.Fatal(err)
			}
			_, res := kit.FitGLM(t, g, nil)
			elbo[i] = res.ELBO
		}
		if !(math.Abs(elbo[0]-elbo[1]) <= 1e-9) {
			t.Errorf("%T: ELBO %v, without the rows %v", lik, elbo[0], elbo[1])
		}
	}
}

// Sparse rows are as accurate as dense ones where V has entries that cancel.
func TestGLMSparseCancellation(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	n := testkit.Shorter(1000, 300)
	x, y := mat.NewDense(n, 5, nil), make([]float64, n)
	for i := range n {
		x.Set(i, rng.IntN(5), 1)
		y[i] = 1
		if rng.Float64() < 0.4 {
			y[i] = -1
		}
	}
	for _, sd := range []float64{1, 1e3, 1e5, 1e6} {
		o := &GLMOptions{Intercept: true, PriorSD: sd, InterceptSD: sd}
		a, err := NewGLM(x, y, BernoulliLogit{}, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewGLM(SparseOf(x), y, BernoulliLogit{}, o)
		if err != nil {
			t.Fatal(err)
		}
		_, r1 := kit.FitGLM(t, a, nil)
		q, r2 := kit.FitGLM(t, b, nil)
		_, v1 := q.At(x).Latent(nil, nil)
		_, v2 := q.At(SparseOf(x)).Latent(nil, nil)
		// The columns add up to the intercept, and P has lost the digits of the priors.
		if math.Abs(r1.ELBO-r2.ELBO) > 1e-6 || math.Abs(v2[0]/v1[0]-1) > 1e-6 {
			t.Errorf("prior sd %g: ELBO %v and %v (%v); variance %v and %v", sd, r1.ELBO, r2.ELBO,
				r2.Status, v1[0], v2[0])
		}
	}
}

// TestGLMNoiseAtTheEdge checks that the score function without a baseline, under a wide prior,
// drives neither V to the edge of the positive definite matrices nor the mean far off. The noise
// has a heavy tail, so the test uses the median over seeds, and no run may end in rounding.
func TestGLMNoiseAtTheEdge(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	data := loadUCI(t, "ionosphere")
	for cov, least := range map[Covariance]float64{FullCovariance: -300, DiagonalCovariance: -5e4} {
		var elbos []float64
		for seed := range uint64(9) {
			g, err := NewGLM(data.x, data.y, BernoulliLogit{}, &GLMOptions{
				PriorSD: 10, Covariance: cov,
				Estimator: ScoreFunctionPlain(100),
			})
			if err != nil {
				t.Fatal(err)
			}
			s := kit.PgSVI(len(data.y), 2, 5)
			s.MaxPasses, s.EvalEvery, s.Src = 10, -1, rand.NewPCG(seed+1, 0)
			_, res, err := g.Fit(context.Background(), s)
			if err != nil || !(res.ELBO > -1e7) || res.ELBO > 0 {
				t.Errorf("covariance %v, seed %d: ELBO %v, %v", cov, seed+1, res.ELBO, err)
			}
			elbos = append(elbos, res.ELBO)
		}
		if slices.Sort(elbos); !(elbos[len(elbos)/2] > least) {
			t.Errorf("covariance %v: ELBOs %v", cov, elbos)
		}
	}
}

// glmCorpus returns data sets that every covariance must handle.
func glmCorpus() []kit.GlmCase {
	cases := []kit.GlmCase{
		kit.ToyGLM("logit", 120, 6, BernoulliLogit{}, 1, &GLMOptions{Intercept: true}),
		kit.ToyGLM("probit", 90, 4, BernoulliProbit{}, 2, nil),
		kit.ToyGLM("poisson", 80, 5, Poisson{}, 3, &GLMOptions{PriorSD: 2}),
		kit.ToyGLM("student", 100, 3, StudentT{DF: 3, Scale: 0.7}, 4, &GLMOptions{Intercept: true}),
		kit.ToyGLM("gaussian", 60, 8, GaussianNoise{Var: 0.5}, 5, nil),
		kit.ToyGLM("negative binomial", 70, 3, NegativeBinomial{Shape: 2}, 6, nil),
		kit.ToyGLM("binomial", 70, 3, Binomial{Trials: 4}, 7, nil),
		kit.ToyGLM("gamma", 70, 3, Gamma{Shape: 2}, 8, nil),
		kit.ToyGLM("exponential", 70, 3, Exponential{}, 9, nil),
		kit.ToyGLM("ordinal", 70, 3, Ordinal{Cuts: []float64{-1, 1}}, 10, nil),
		kit.ToyGLM("laplace", 70, 3, Laplace{}, 11, nil),
		kit.ToyGLM("more weights than rows", 20, 35, BernoulliLogit{}, 12, nil),
		kit.ToyGLM("one row", 1, 3, BernoulliLogit{}, 13, nil),
		kit.ToyGLM("wide prior", 100, 5, Poisson{}, 14, &GLMOptions{PriorSD: 1000,
			Intercept: true}),
		kit.ToyGLM("narrow prior", 100, 5, BernoulliLogit{}, 15, &GLMOptions{PriorSD: 1e-3}),
		kit.ToyGLM("blocks", 1500, 3, BernoulliLogit{}, 16, nil),
	}
	sep := kit.ToyGLM("separable", 60, 2, BernoulliLogit{}, 17, &GLMOptions{PriorSD: 100})
	for i := range sep.Y {
		sep.Y[i] = math.Copysign(1, sep.X.At(i, 0))
	}
	col := kit.ToyGLM("collinear", 80, 4, BernoulliLogit{}, 18, nil)
	zero := kit.ToyGLM("zero rows", 80, 3, Poisson{}, 19, nil)
	big := kit.ToyGLM("counts of 1e6", 50, 2, Poisson{}, 20, &GLMOptions{Intercept: true})
	for i := range 80 {
		col.X.Set(i, 3, 2*col.X.At(i, 0))
		if i%3 == 0 {
			zero.X.SetRow(i, []float64{0, 0, 0})
		}
	}
	for i := range big.Y {
		big.Y[i] = math.Floor(1e6 * math.Exp(0.1*big.X.At(i, 0)))
	}
	weighted := kit.ToyGLM("weights and offsets", 90, 4, Poisson{}, 21,
		&GLMOptions{Intercept: true, Offset: make([]float64, 90), Weights: make([]float64, 90)})
	for i := range 90 {
		weighted.Opt.Offset[i], weighted.Opt.Weights[i] = 0.3*float64(i%5), float64(i%4)/2
	}
	mean, err := NewMeanField([]float64{1, -2, 0.5, 3}, []float64{1, 0.1, 2, 0.5})
	if err != nil {
		panic(err)
	}
	shifted := kit.ToyGLM("prior mean", 70, 4, BernoulliLogit{}, 22, &GLMOptions{Prior: mean})
	return append(cases, sep, col, zero, big, weighted, shifted)
}

// runStepper runs a nil Solver on a Stepper and returns the posterior.
func runStepper(t testing.TB, g *GLM, st Stepper) (*GLMPosterior, *Result) {
	t.Helper()
	res, err := (&Solver{}).Resume(context.Background(), &Result{Stepper: st})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Posterior(st)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// apart returns the largest difference of the means, in standard deviations of q, and of the
// logarithms of the standard deviations.
func apart(p, q *GLMPosterior) (mean, sd float64) {
	m0, s0, m, s := q.Mean(nil), q.SD(nil), p.Mean(nil), p.SD(nil)
	for j := range m {
		mean = math.Max(mean, math.Abs(m[j]-m0[j])/s0[j])
		sd = math.Max(sd, math.Abs(math.Log(s[j]/s0[j])))
	}
	return mean, sd
}

// checkApart fails if p and q are further apart than tol.
func checkApart(t testing.TB, what string, p, q *GLMPosterior, tol float64) {
	t.Helper()
	if m, s := apart(p, q); !(m <= tol && s <= tol) {
		t.Errorf("%s: means %.3g, sds %.3g apart, want %.0e", what, m, s, tol)
	}
}

// TestGLMCorpus checks that a nil Solver converges on the corpus, that the ELBO does not fall, and
// that the gap is honest.
func TestGLMCorpus(t *testing.T) {
	for _, c := range glmCorpus() {
		t.Run(c.Name, func(t *testing.T) {
			g := c.Glm(t, c.X)
			p, res := kit.FitGLM(t, g, nil)
			t.Logf("%v after %v passes, ELBO %.6f, gap %.1e", res.Status, res.Passes, res.ELBO,
				res.Gap)
			if res.Status != Converged {
				t.Errorf("status %v, gap %v", res.Status, res.Gap)
			}
			for k := 1; k < len(res.Trace); k++ {
				if now, before := res.Trace[k].ELBO,
					res.Trace[k-1].ELBO; now < before-1e-11*math.Abs(before) {
					t.Errorf("ELBO fell from %v to %v at pass %v", before, now, res.Trace[k].Passes)
				}
			}
			for j, s := range p.SD(nil) {
				if !(s > 0) || math.IsNaN(p.Mean(nil)[j]) {
					t.Errorf("weight %d: %v ± %v", j, p.Mean(nil)[j], s)
				}
			}
		})
	}
}

// TestGLMPrimalDual checks that the primal, over the weights, and the dual, over the linear
// predictors, agree.
func TestGLMPrimalDual(t *testing.T) {
	for _, c := range glmCorpus() {
		if c.Name == "blocks" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			g := c.Glm(t, c.X)
			p, rp := runStepper(t, g, kit.OverWeights(t, g))
			q, rq := runStepper(t, g, kit.OverRows(t, g))
			tol := 1e-8*(1+1e-3*math.Abs(rp.ELBO)) + rp.ELBOErr + rq.ELBOErr
			if c.Name == "wide prior" {
				tol = 1e-7 + rp.ELBOErr + rq.ELBOErr // K has size 1e7, but only rank 6
			}
			if d := math.Abs(rp.ELBO - rq.ELBO); d > tol {
				t.Errorf("ELBO %v and %v: %.2e apart", rp.ELBO, rq.ELBO, d)
			}
			// Tolerance in standard deviations, because a deviation of δ costs δ² nats.
			apart := 2e-4
			if rq.GapBound < math.Inf(1) { // proved
				apart = max(apart, math.Sqrt(rq.GapBound))
			}
			checkApart(t, "primal and dual", p, q, apart)
			x := testkit.NormalMatrix(rand.New(rand.NewPCG(1, 1)), 9, p.Cols())
			m, v := p.At(x).Latent(nil, nil)
			m2, v2 := q.At(x).Latent(nil, nil)
			for i := range m {
				if math.Abs(m[i]-m2[i]) > 1e-3*math.Sqrt(v[i]) || math.Abs(v[i]-v2[i]) > 1e-3*v[i] {
					t.Errorf("point %d: N(%v, %v) and N(%v, %v)", i, m[i], v[i], m2[i], v2[i])
				}
			}
		})
	}
}

// TestGLMPrimalDualCov checks that the same sites give the same Gaussian in both forms.
func TestGLMPrimalDualCov(t *testing.T) {
	for _, c := range []kit.GlmCase{kit.ToyGLM("", 12, 20, BernoulliLogit{}, 31,
		&GLMOptions{Intercept: true}), kit.ToyGLM("", 15, 16, StudentT{DF: 2, Scale: 0.3}, 32,
		nil)} {
		g := c.Glm(t, SparseOf(c.X))
		over := kit.OverRows(t, g)
		runStepper(t, g, over)
		st, lin := kit.AlgOf[*site.DualAlgebra](over), kit.LinearOf(t, g)
		cov := &gauss.Dual{X: lin.X, Gamma: st.Cur.Gamma, Prior: &lin.Prior,
			Fac: new(dense.SiteFactor)}
		if !cov.Fac.Factor(st.K, g.Len(), st.Cur.Gamma) {
			t.Fatal("not positive definite")
		}
		w, err := cov.State(nil)
		if err != nil {
			t.Fatal(err)
		}
		full := &gauss.Full{S: w}
		a, b := cov.Sym(), full.Sym()
		if !mat.EqualApprox(a, b, 1e-12) {
			t.Error("covariances differ")
		}
		d := len(lin.Names)
		va, vb := make([]float64, d), make([]float64, d)
		cov.Diag(va)
		full.Diag(vb)
		for j := range va {
			if math.Abs(va[j]-vb[j]) > 1e-12 || math.Abs(va[j]-a.At(j, j)) > 1e-12 {
				t.Errorf("variance %d: %v, %v, %v", j, va[j], vb[j], a.At(j, j))
			}
		}
		if len(cov.Fac.Neg) > 0 {
			if err := cov.Draw(va, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, ErrNotPosDef) {
				t.Errorf("draw with negative sites: %v", err)
			}
			continue
		}
		for name, cov := range map[string]gauss.Cov{"dual": cov, "full": full} {
			const draws = 40000
			rng := rand.New(rand.NewPCG(3, 3))
			s := mat.NewSymDense(d, nil)
			for range draws {
				z := make([]float64, d)
				if err := cov.Draw(z, rng); err != nil {
					t.Fatal(err)
				}
				s.SymRankOne(s, 1.0/draws, mat.NewVecDense(d, z))
			}
			for i := range d {
				for j := range i + 1 {
					tol := 5 * math.Sqrt((b.At(i, i)*b.At(j, j)+b.At(i, j)*b.At(i, j))/draws)
					if math.Abs(s.At(i, j)-b.At(i, j)) > tol {
						t.Errorf("%s: covariance %d, %d of draws %v, want %v ± %v", name, i, j,
							s.At(i, j), b.At(i, j), tol)
					}
				}
			}
		}
	}
}

// TestGLMSparseDense checks that sparse and dense rows give the same posterior.
func TestGLMSparseDense(t *testing.T) {
	for _, c := range glmCorpus() {
		p, rp := kit.FitGLM(t, c.Glm(t, c.X), &Solver{Goal: 1e-10})
		q, rq := kit.FitGLM(t, c.Glm(t, SparseOf(c.X)), &Solver{Goal: 1e-10})
		if d := math.Abs(rp.ELBO - rq.ELBO); d > 1e-12*(1+math.Abs(rp.ELBO))+rp.ELBOErr+rq.ELBOErr {
			t.Errorf("%s: ELBO %v and %v", c.Name, rp.ELBO, rq.ELBO)
		}
		if rp.K == rq.K { // otherwise rounding has decided the last step
			checkApart(t, c.Name, p, q, 1e-6)
		}
	}
	// From the same state, one step is the same to rounding. The rounding differs if the compiler
	// fuses x·y + z, as on arm64.
	for _, c := range glmCorpus() {
		one := &Solver{MaxIter: 1, Sampler: InOrder(), BatchSize: len(c.Y)}
		a, _ := kit.FitGLM(t, c.Glm(t, c.X), one)
		b, _ := kit.FitGLM(t, c.Glm(t, SparseOf(c.X)), one)
		tol := 2e-12
		if c.Name == "wide prior" || c.Name == "separable" || c.Name == "counts of 1e6" {
			tol = 1e-8 // the condition number of P
		}
		checkApart(t, c.Name+", one step", a, b, tol)
	}
}

// TestGLMRidge checks that the first step under a Gaussian likelihood is the exact ridge posterior.
func TestGLMRidge(t *testing.T) {
	for _, opt := range []*GLMOptions{nil, {Intercept: true, PriorSD: 3},
		{Weights: []float64{1, 2, 0, 1, 3, 1, 1, 1, 1, 1, 1, 1},
			Offset: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}} {
		for _, d := range []int{3, 20} {
			c := kit.ToyGLM("", 12, d, GaussianNoise{Var: 0.5}, 41, opt)
			g := c.Glm(t, c.X)
			p, _ := kit.FitGLM(t, g, &Solver{MaxIter: 1, Sampler: InOrder(), BatchSize: 12})
			// P = Λ0 + XᵀWX/σ², P(m − μ0) = XᵀW(y − o)/σ².
			lin := kit.LinearOf(t, g)
			dim := len(lin.Names)
			prec, h := mat.NewSymDense(dim, nil), mat.NewVecDense(dim, nil)
			for j, l := range lin.Prior.Prec {
				prec.SetSym(j, j, l)
			}
			for i, yi := range c.Y {
				row := mat.NewVecDense(dim, nil)
				for j := range d {
					row.SetVec(j, c.X.At(i, j))
				}
				w := 1.0
				if opt != nil {
					if opt.Intercept {
						row.SetVec(d, 1)
					}
					if opt.Weights != nil {
						w, yi = opt.Weights[i], yi-opt.Offset[i]
					}
				}
				prec.SymRankOne(prec, w/0.5, row)
				h.AddScaledVec(h, w*yi/0.5, row)
			}
			var chol mat.Cholesky
			if !chol.Factorize(prec) {
				t.Fatal("precision")
			}
			var m mat.VecDense
			if err := chol.SolveVecTo(&m, h); err != nil {
				t.Fatal(err)
			}
			var v mat.SymDense
			if err := chol.InverseTo(&v); err != nil {
				t.Fatal(err)
			}
			for j := range dim {
				if e := math.Abs(p.Mean(nil)[j] - m.AtVec(j)); e > 1e-10 {
					t.Errorf("d = %d: mean %d is off by %.2e", d, j, e)
				}
			}
			if !mat.EqualApprox(p.Cov(), &v, 1e-10) {
				t.Errorf("d = %d: covariance", d)
			}
			if _, res := kit.FitGLM(t, g, nil); res.K > 3 {
				t.Errorf("d = %d: %d iterations", d, res.K)
			}
		}
	}
}

// TestGLMBlocks checks that blocks with memory also reach the optimum, and never stay below an
// earlier ELBO for long.
func TestGLMBlocks(t *testing.T) {
	for _, c := range glmCorpus() {
		g := c.Glm(t, c.X)
		p, res := kit.FitGLM(t, g, &Solver{Goal: 1e-10})
		st := kit.OverWeights(t, g)
		s := &Solver{BatchSize: max(1, g.Len()/5), MaxPasses: 200, Goal: 1e-10}
		rb, err := s.Resume(context.Background(), &Result{Stepper: st})
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for k := 1; k < len(rb.Trace); k++ {
			if now, before := rb.Trace[k].ELBO,
				rb.Trace[k-1].ELBO; now < before-1e-11*math.Abs(before) {
				t.Errorf("%s: ELBO fell from %v to %v at pass %v", c.Name, before, now,
					rb.Trace[k].Passes)
			}
		}
		if d := res.ELBO - rb.ELBO; d > 1e-7*(1+1e-3*math.Abs(res.ELBO))+2*res.ELBOErr {
			t.Errorf("%s: %v after %v passes of blocks, %.2e below", c.Name, rb.Status, rb.Passes,
				d)
		}
		q, err := g.Posterior(st)
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, c.Name, q, p, 2e-3)
	}
}

// TestGLMPGStep checks PG-SVI as published, with both updates of the mean, against the formulas.
func TestGLMPGStep(t *testing.T) {
	for _, update := range []Coordinates{MeanParams, MeanCov} {
		c := kit.ToyGLM("", 30, 4, BernoulliLogit{}, 61,
			&GLMOptions{Coordinates: update, Intercept: true})
		g := c.Glm(t, c.X)
		st, err := g.NewStepper(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		lin := kit.LinearOf(t, g)
		d := len(lin.Names)
		m, prec := mat.NewVecDense(d, nil), mat.NewSymDense(d, nil)
		lambda := mat.NewSymDense(d, nil)
		for j, l := range lin.Prior.Prec {
			lambda.SetSym(j, j, l)
		}
		prec.CopySym(lambda)
		rng := rand.New(rand.NewPCG(1, 1))
		for k := range 5 {
			batch, beta := []int{k, 2*k + 3, 29 - k}, 0.1*float64(k+1)
			r := 1 / (1 + beta)
			var v mat.Dense
			if err := v.Inverse(prec); err != nil {
				t.Fatal(err)
			}
			next, grad := mat.NewSymDense(d, nil), mat.NewVecDense(d, nil)
			for i := range d {
				for j := range i + 1 {
					next.SetSym(i, j, r*prec.At(i, j)+(1-r)*lambda.At(i, j))
				}
			}
			metric := mat.DenseCopyOf(next) // without Γ̂
			grad.MulVec(lambda, m)
			for _, i := range batch {
				row := mat.NewVecDense(d, append(append([]float64(nil), c.X.RawRowView(i)...), 1))
				var vx mat.VecDense
				vx.MulVec(&v, row)
				e := ExpectLogProb(c.Lik, c.Y[i], mat.Dot(row, m), mat.Dot(row, &vx))
				next.SymRankOne(next, -(1-r)*10*e.D2, row)
				grad.AddScaledVec(grad, -10*e.D1, row)
			}
			if update == MeanParams {
				metric = mat.DenseCopyOf(next)
			}
			var step mat.VecDense
			if err := step.SolveVec(metric, grad); err != nil {
				t.Fatal(err)
			}
			m.AddScaledVec(m, -(1 - r), &step)
			prec = next
			if _, err := st.Step(context.Background(), &Env{Rng: rng}, batch, beta); err != nil {
				t.Fatal(err)
			}
			p, err := g.Posterior(st)
			if err != nil {
				t.Fatal(err)
			}
			for j, mj := range p.Mean(nil) {
				if math.Abs(mj-m.AtVec(j)) > 1e-12 {
					t.Errorf("update %d, step %d: mean %d is %v, want %v", update, k, j, mj,
						m.AtVec(j))
				}
			}
			if err := v.Inverse(prec); err != nil {
				t.Fatal(err)
			}
			if !mat.EqualApprox(p.Cov(), &v, 1e-11) {
				t.Errorf("update %d, step %d: covariance", update, k)
			}
		}
		// Continue without a step size to the optimum, and check the ELBO of both types of states.
		value, err := kit.ElboOf(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := g.Posterior(st)
		q, err := NewGaussian(w.Mean(nil), w.Cov())
		if err != nil {
			t.Fatal(err)
		}
		o, err := g.Objective()
		if err != nil {
			t.Fatal(err)
		}
		f, err := o.F.Grad(context.Background(), nil, make([]float64, q.NumParams()), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := -f - o.H.Value(q); math.Abs(value-want) > 1e-9 {
			t.Errorf("ELBO %v without sites, want %v", value, want)
		}
		res, err := (&Solver{}).Resume(context.Background(), &Result{Stepper: st})
		if err != nil {
			t.Fatal(err)
		}
		if _, best := kit.FitGLM(t, g, nil); math.Abs(res.ELBO-best.ELBO) > 1e-9 {
			t.Errorf("ELBO %v from there, %v from the prior", res.ELBO, best.ELBO)
		}
	}
}

// TestGLMDivergence checks other divergences, which use Objective.
func TestGLMDivergence(t *testing.T) {
	c := kit.ToyGLM("", 25, 2, BernoulliLogit{}, 71, nil)
	g := c.Glm(t, c.X)
	p, res := kit.FitGLM(t, g, nil)
	q, rq := kit.FitGLM(t, g, &Solver{Divergence: SymKL(), StepSize: ConstantStep(1),
		MaxPasses: 100,
		Converger: ELBOChange(1e-12, 0)})
	if d := res.ELBO - rq.ELBO; d > 1e-6 {
		t.Errorf("%v: %.2e below the optimum", rq.Status, d)
	}
	checkApart(t, "SymKL", q, p, 1e-3)
}

func TestGLMSameBits(t *testing.T) {
	c := kit.ToyGLM("", 3000, 7, BernoulliLogit{}, 81, &GLMOptions{Intercept: true})
	for _, x := range []mat.Matrix{c.X, SparseOf(c.X)} {
		g := c.Glm(t, x)
		p, res := kit.FitGLM(t, g, nil)
		for _, workers := range []int{2, 7} {
			q, rq := kit.FitGLM(t, g, &Solver{Workers: workers})
			if m, s := apart(p, q); rq.ELBO != res.ELBO || m != 0 || s != 0 {
				t.Errorf("%d workers: ELBO %v and %v, weights %v and %v apart", workers, res.ELBO,
					rq.ELBO, m, s)
			}
		}
	}
}

// TestGLMOptions checks options that can express the same model in two ways.
func TestGLMOptions(t *testing.T) {
	c := kit.ToyGLM("", 60, 3, BernoulliLogit{}, 91, nil)
	fit := func(x mat.Matrix, y []float64, opt *GLMOptions) *GLMPosterior {
		g, err := NewGLM(x, y, c.Lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := kit.FitGLM(t, g, nil)
		return p
	}
	ones := mat.NewDense(60, 4, nil)
	for i := range 60 {
		ones.SetRow(i, append(append([]float64(nil), c.X.RawRowView(i)...), 1))
	}
	prior, err := NewMeanField(make([]float64, 4), []float64{1, 1, 1, 100})
	if err != nil {
		t.Fatal(err)
	}
	cov := mat.NewSymDense(4, []float64{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 100})
	full, err := NewGaussian(make([]float64, 4), cov)
	if err != nil {
		t.Fatal(err)
	}
	with := fit(c.X, c.Y, &GLMOptions{Intercept: true})
	checkApart(t, "intercept as a column", fit(ones, c.Y, &GLMOptions{Prior: prior}), with, 1e-7)
	checkApart(t, "a full prior", fit(ones, c.Y, &GLMOptions{Prior: full}), with, 1e-7)

	// A weight of 2 repeats a row, and a weight of 0 removes it.
	w := make([]float64, 60)
	var index []int
	for i := range w {
		w[i] = float64(i % 3)
		for range i % 3 {
			index = append(index, i)
		}
	}
	x2, y2 := testkit.SelectRows(c.X, c.Y, index)
	checkApart(t, "weights", fit(c.X, c.Y, &GLMOptions{Weights: w}), fit(x2, y2, nil), 1e-6)
	if p := fit(c.X, c.Y, &GLMOptions{Weights: w}); p.Len() != 40 {
		t.Errorf("%d rows of positive weight, want 40", p.Len())
	}
	// Scaling a column scales its weight.
	scaled := mat.DenseCopyOf(c.X)
	for i := range 60 {
		scaled.Set(i, 1, 1e4*scaled.At(i, 1)+3)
	}
	a, b := fit(c.X, c.Y, &GLMOptions{Intercept: true, Autoscale: true, InterceptSD: 1e3}),
		fit(scaled, c.Y, &GLMOptions{Intercept: true, Autoscale: true, InterceptSD: 1e3})
	if m, n := a.Mean(nil)[1], 1e4*b.Mean(nil)[1]; math.Abs(m-n) > 1e-3*math.Abs(m) {
		t.Errorf("weight %v, of the scaled column %v", m, n)
	}
	// Without rows the posterior is the prior.
	g, err := NewGLM(NewSparse(3), nil, BernoulliLogit{}, &GLMOptions{PriorSD: 2})
	if err != nil {
		t.Fatal(err)
	}
	p, res := kit.FitGLM(t, g, nil)
	if s := p.SD(nil)[2]; res.ELBO != 0 || res.Status != Converged || s != 2 {
		t.Errorf("no rows: %+v, sd %v", res, s)
	}
	// If all weights are zero, the posterior is also the prior.
	p = fit(c.X, c.Y, &GLMOptions{Weights: make([]float64, 60)})
	if p.SD(nil)[0] != 1 || p.Len() != 0 {
		t.Errorf("all weights zero: sd %v, %d rows", p.SD(nil)[0], p.Len())
	}
}

// TestGLMManyLabels checks that the error for many responses names the first one that is wrong.
func TestGLMManyLabels(t *testing.T) {
	const n = 50_000
	y := make([]float64, n)
	y[40_001], y[47_003] = 0.5, math.NaN()
	_, err := NewGLM(mat.NewDense(n, 1, nil), y, Poisson{}, nil)
	if !errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), "row 40001: y = 0.5") {
		t.Errorf("the error is %v, want ErrLabel and row 40001", err)
	}
	y[40_001] = 1
	if _, err = NewGLM(mat.NewDense(n, 1, nil), y, Poisson{}, nil); !errors.Is(err, ErrNotFinite) {
		t.Errorf("the error is %v, want ErrNotFinite", err)
	}
}
