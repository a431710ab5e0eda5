package gp

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestSiteFactor compares the site algebra with dense inverses, for changes of either sign and a
// singular base.
func TestSiteFactor(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for trial := range 300 {
		n := 1 + rng.IntN(8)
		rank := 1 + rng.IntN(n)
		// C = AAᵀ has the given rank. V = C − CS(I + SCS)⁻¹SC needs no inverse of C, and is C(I +
		// ΔC)⁻¹ for a signed Δ.
		a := mat.NewDense(n, rank, nil)
		for i := range n {
			for j := range rank {
				a.Set(i, j, rng.NormFloat64())
			}
		}
		var c mat.Dense
		c.Mul(a, a.T())
		delta, w, rows := make([]float64, n), make([]float64, n), make([]float64, n*2)
		for i := range delta {
			switch rng.IntN(4) {
			case 0: // no change
			case 1:
				delta[i] = -0.1 * rng.Float64() / c.At(i, i)
			default:
				delta[i] = math.Exp(3 * rng.NormFloat64())
			}
			w[i] = rng.NormFloat64()
			rows[2*i], rows[2*i+1] = rng.NormFloat64(), rng.NormFloat64()
		}
		ic := mat.NewDense(n, n, nil) // I + ΔC
		for i := range n {
			for j := range n {
				ic.Set(i, j, delta[i]*c.At(i, j))
			}
			ic.Set(i, i, 1+ic.At(i, i))
		}
		var inv, v mat.Dense
		if err := inv.Inverse(ic); err != nil {
			t.Fatal(err)
		}
		v.Mul(&c, &inv)

		full := append([]float64(nil), c.RawMatrix().Data...)
		var f dense.SiteFactor
		if !f.Factor(full, n, delta) {
			t.Fatalf("trial %d: not positive definite", trial)
		}
		if want := math.Log(mat.Det(ic)); math.Abs(f.LogDet-want) > 1e-10*math.Max(1,
			math.Abs(want)) {
			t.Errorf("trial %d: log determinant %v, want %v", trial, f.LogDet, want)
		}
		var x dense.Expansion
		f.Expand(&x, full, n)
		variance, cov := make([]float64, n), make([]float64, n*n)
		if !f.Variances(variance, &x) {
			t.Fatalf("trial %d: not resolved", trial)
		}
		f.Covariance(cov, &x)
		for i := range n {
			scale := c.At(i, i)
			if math.Abs(variance[i]-v.At(i, i)) > 1e-10*scale {
				t.Errorf("trial %d: variance %d is %v, want %v", trial, i, variance[i], v.At(i, i))
			}
			for j := range i + 1 {
				if math.Abs(cov[i*n+j]-v.At(i, j)) > 1e-10*(1+scale) {
					t.Errorf("trial %d: covariance (%d, %d) is %v, want %v", trial, i, j,
						cov[i*n+j], v.At(i, j))
				}
			}
		}
		var want mat.VecDense
		want.MulVec(&inv, mat.NewVecDense(n, w))
		f.Solve(w)
		for i := range w {
			if math.Abs(w[i]-want.AtVec(i)) > 1e-9*(1+mat.Norm(&want, 2)) {
				t.Errorf("trial %d: solution %d is %v, want %v", trial, i, w[i], want.AtVec(i))
			}
		}
		// rowsᵀ(I + ΔC)⁻¹Δ rows, the form that predictions need.
		var q, r mat.Dense
		d := mat.NewDense(n, n, nil)
		for i := range n {
			d.Set(i, i, delta[i])
		}
		q.Mul(&inv, d)
		b := mat.NewDense(n, 2, append([]float64(nil), rows...))
		r.Product(b.T(), &q, b)
		f.Expand(&x, rows, 2)
		got := []float64{0, 0}
		x.SubVar(got)
		for j := range got {
			if math.Abs(got[j]+r.At(j, j)) > 1e-9*(1+math.Abs(r.At(j, j))) {
				t.Errorf("trial %d: reduction %v, want %v", trial, -got[j], r.At(j, j))
			}
		}
	}
}

// TestSiteFactorInvalid checks that a V⁻¹ that is not positive definite is rejected.
func TestSiteFactorInvalid(t *testing.T) {
	for name, delta := range map[string][]float64{
		"too negative": {-0.6, 0}, "both": {1, -1}, "NaN": {math.NaN(), 0}, "Inf": {math.Inf(1), 0},
	} {
		var f dense.SiteFactor
		if f.Factor([]float64{2, 1, 1, 2}, 2, delta) {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestStrongSites checks that variances keep their digits if sites are far more precise than the
// base. A diagonal problem has V = 1/(1/c + Δ).
func TestStrongSites(t *testing.T) {
	for _, s := range []float64{1e3, 1e6, 1e10, 1e14} {
		c := []float64{1, 0, 0, 4}
		delta := []float64{s, 2 * s}
		var f dense.SiteFactor
		if !f.Factor(c, 2, delta) {
			t.Fatal("not positive definite")
		}
		var x dense.Expansion
		f.Expand(&x, c, 2)
		v, cov := make([]float64, 2), make([]float64, 4)
		if !f.Variances(v, &x) {
			t.Fatalf("Δ = %g is not resolved", s)
		}
		f.Covariance(cov, &x)
		for i := range 2 {
			want := 1 / (1/c[3*i] + delta[i])
			if math.Abs(v[i]/want-1) > 1e-11 || math.Abs(cov[3*i]/want-1) > 1e-11 {
				t.Errorf("Δ = %g: variance %v, covariance %v, want %v", s, v[i], cov[3*i], want)
			}
		}
	}
}

// outerRows returns rows whose linear predictors have a standard deviation of about spread.
func outerRows(seed uint64, n, d int, spread float64) (*mat.Dense, []float64) {
	rng := testkit.Rand(seed)
	x, eta := mat.NewDense(n, d, nil), make([]float64, n)
	w := make([]float64, d)
	for j := range w {
		w[j] = spread / math.Sqrt(float64(d)) * rng.NormFloat64()
	}
	for i := range eta {
		for j := range w {
			x.Set(i, j, rng.NormFloat64())
			eta[i] += x.At(i, j) * w[j]
		}
	}
	return x, eta
}

func outerLabels(seed uint64, eta []float64) []float64 {
	rng, y := testkit.Rand(seed), make([]float64, len(eta))
	for i, e := range eta {
		y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-e)))
	}
	return y
}

// gramsOf returns the number of matrices XᵀΓX that s has computed, where blocks count as
// fractions.
func gramsOf(s *site.WeightAlgebra) float64 {
	return float64(s.Mover.Buf.Rows+s.Gap.Buf.Rows+s.Blocks.Mover.Buf.Rows+s.Pg.Buf.Rows) / float64(
		s.N)
}

// TestOuterSteps checks that a fit with many columns computes three matrices XᵀΓX to reach 0.01
// nats and few more to the end, and that steps without inner ones have the same end.
func TestOuterSteps(t *testing.T) {
	t.Parallel()
	type problem struct {
		name string
		x    *mat.Dense
		y    []float64
		end  float64 // largest number of matrices in the whole fit
	}
	x, eta := outerRows(1, 150, 70, 3)
	problems := []problem{{"150 rows of 70 columns", x, outerLabels(2, eta), 10}}
	if testkit.IsLong() {
		x, eta := outerRows(3, 900, 100, 3)
		problems = append(problems, problem{"900 rows of 100 columns", x, outerLabels(4, eta), 8})
	}
	t.Run("USPS", func(t *testing.T) {
		if !testkit.IsLong() {
			t.Skip("takes a moment")
		}
		s := loadUSPS(t, 3, 5)
		problems = append(problems, problem{"USPS 3 v 5", s.x, s.y, 9})
		var all mat.Dense
		s = loadUSPS(t, 2, 4)
		all.Stack(s.x, s.xtest)
		problems = append(problems,
			problem{"USPS 2 v 4, all", &all, append(append([]float64{}, s.y...), s.ytest...), 9})
	})
	for _, p := range problems {
		g := kit.MustGLM(t, p.x, p.y, BernoulliLogit{}, GLMOptions{})
		ctx := context.Background()
		plain := kit.MustStepper(t, g)
		kit.AlgOf[*site.WeightAlgebra](plain).Batch.Outer = 0
		want, err := (&Solver{Goal: 1e-10}).Resume(ctx, &Result{Stepper: plain})
		if err != nil {
			t.Fatal(err)
		}
		near := math.Inf(1)
		res := kit.Solve(t, Solver{Goal: 1e-10, Record: func(it Iteration) {
			if a := kit.AlgOf[*site.WeightAlgebra](it.State); it.ELBO > want.ELBO-0.01 {
				near = min(near, gramsOf(a))
			}
		}}, g)
		all := gramsOf(kit.AlgOf[*site.WeightAlgebra](res.Stepper))
		t.Logf("%s: %v matrices to 0.01 nats, %v in all in %v passes; %v without inner steps in %v",
			p.name, near, all, res.Passes, gramsOf(kit.AlgOf[*site.WeightAlgebra](plain)),
			want.Passes)
		if near > 3 || all > p.end || res.Passes > p.end {
			t.Errorf("%s: %v matrices to 0.01 nats, %v in all in %v passes, at most 3 and %v",
				p.name, near, all, res.Passes, p.end)
		}
		if res.Status != Converged || !(math.Abs(res.ELBO-want.ELBO) <= 1e-9) {
			t.Errorf("%s: %v at %v, want %v", p.name, res.Status, res.ELBO, want.ELBO)
		}
		// A proof may take one more matrix.
		if res = kit.Solve(t, Solver{Goal: 0.01},
			g); gramsOf(kit.AlgOf[*site.WeightAlgebra](res.Stepper)) > 4 || res.Passes > 3 ||
			!(res.GapBound >= want.ELBO-res.ELBO) {
			t.Errorf("%s: %v matrices and %v passes to a proved gap of %v", p.name,
				gramsOf(kit.AlgOf[*site.WeightAlgebra](res.Stepper)), res.Passes, res.GapBound)
		}
	}
}

// TestOuterDepart checks that the first outer step from a wide prior is so near the optimum of
// correlated columns that a second one proves 0.01 nats.
func TestOuterDepart(t *testing.T) {
	t.Parallel()
	x, eta := outerRows(3, 1000, 150, 2)
	for i := range eta {
		row := x.RawRowView(i)
		for j := 1; j < len(row); j++ {
			row[j] = 0.8*row[j-1] + 0.6*row[j]
		}
	}
	g := kit.MustGLM(t, x, outerLabels(4, eta), BernoulliLogit{}, GLMOptions{})
	best := kit.Solve(t, Solver{Goal: 1e-8}, g)
	if first := best.Trace[0]; !(best.ELBO-first.ELBO < 0.06) {
		t.Errorf("the first pass leaves %v nats", best.ELBO-first.ELBO)
	}
	res := kit.Solve(t, Solver{Goal: 0.01}, g)
	grams := gramsOf(kit.AlgOf[*site.WeightAlgebra](res.Stepper))
	if res.Passes > 2 || grams > 3 || !(res.GapBound <= 0.01) {
		t.Errorf("%v passes and %v matrices to a proved gap of %v", res.Passes, grams,
			res.GapBound)
	}
}

// TestOuterLikelihoods checks that outer steps end where other steps do, for every likelihood,
// prior and set of rows.
func TestOuterLikelihoods(t *testing.T) {
	t.Parallel()
	x, eta := outerRows(5, 120, 66, 1)
	labels, counts := outerLabels(6, eta), make([]float64, len(eta))
	for i, e := range eta {
		counts[i] = math.Round(math.Exp(e))
	}
	ctx := context.Background()
	for _, c := range []struct {
		name string
		lik  Likelihood
		y    []float64
		sd   float64
	}{
		{"probit", BernoulliProbit{}, labels, 1},
		{"Poisson", Poisson{}, counts, 0.3},
		{"Poisson, wide prior", Poisson{}, counts, 30},
		{"Student's t", StudentT{}, eta, 1},
		{"logit, separable", BernoulliLogit{}, labels, 100},
	} {
		for _, rows := range []mat.Matrix{x, SparseOf(x)} {
			g := kit.MustGLM(t, rows, c.y, c.lik, GLMOptions{PriorSD: c.sd, Intercept: true})
			st := kit.MustStepper(t, g)
			if kit.AlgOf[*site.WeightAlgebra](st).Batch.Outer == 0 {
				t.Fatalf("%s: no outer steps", c.name)
			}
			plain := kit.MustStepper(t, g)
			kit.AlgOf[*site.WeightAlgebra](plain).Batch.Outer = 0
			res, err := (&Solver{}).Resume(ctx, &Result{Stepper: st})
			want, errWant := (&Solver{}).Resume(ctx, &Result{Stepper: plain})
			if err != nil || errWant != nil {
				t.Fatal(c.name, err, errWant)
			}
			if tol := 1e-8 + res.ELBOErr + want.ELBOErr; res.Status != Converged ||
				!(math.Abs(res.ELBO-want.ELBO) <= tol) {
				t.Errorf("%s: %v at %v after %v passes, %v at %v after %v without", c.name,
					res.Status, res.ELBO, res.Passes, want.Status, want.ELBO, want.Passes)
			}
			if testing.Short() {
				break
			}
		}
	}
}

// TestOuterResume checks that a run of outer steps continues with the same bits after it is
// saved, or canceled at any check of its context.
func TestOuterResume(t *testing.T) {
	t.Parallel()
	x, eta := outerRows(7, 100, 65, 3)
	g := kit.MustGLM(t, x, outerLabels(8, eta), BernoulliLogit{}, GLMOptions{})
	ctx := context.Background()
	whole := testkit.NewAsked(math.MaxInt64)
	res, err := (&Solver{}).Run(whole, g)
	if err != nil {
		t.Fatal(err)
	}
	want, asked := bitsOf(t, res), whole.Asked.Load()
	for n := int64(0); n < asked; n += int64(testkit.Shorter(1, 17)) {
		s := Solver{Workers: 1 + int(n%3)}
		res, err := s.Run(testkit.NewAsked(n), g)
		if err == nil || res == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		k := res.K
		if n%2 == 0 {
			var file bytes.Buffer
			if err := res.Save(&file); err != nil {
				t.Fatal(err)
			}
			if res, err = s.LoadResult(ctx, &file, g); err != nil {
				t.Fatal(err)
			}
		}
		if res, err = s.Resume(ctx, res); err != nil {
			t.Fatal(err)
		}
		if bitsOf(t, res) != want {
			t.Errorf("another end, canceled at the %dth of %d looks, after step %d", n, asked, k)
		}
	}
}

func TestOuterAllocs(t *testing.T) {
	x, eta := outerRows(7, 100, 65, 3)
	g := kit.MustGLM(t, x, outerLabels(8, eta), BernoulliLogit{}, GLMOptions{})
	st := kit.MustStepper(t, g)
	step := func() {
		if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Evaluate(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(10, step); n > 0 && !testkit.Race {
		t.Errorf("%v allocations a step and evaluation", n)
	}
}

// TestRatesOfZeros checks that counts that are mostly zero are fitted in tens of passes, under
// priors of up to 10⁸ standard deviations of their linear predictors, over the weights and as a
// GP. Such fits once took a thousand passes and ended nats short.
func TestRatesOfZeros(t *testing.T) {
	t.Parallel()
	for _, sd := range []float64{1e2, 1e4, 1e6, 1e8} {
		for _, d := range []int{3, 30} {
			rng := rand.New(rand.NewPCG(uint64(d), 77))
			const n = 20
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i := range n {
				for j := range d {
					x.Set(i, j, rng.NormFloat64())
				}
				if i%5 == 0 {
					y[i] = 1 + float64(rng.IntN(3))
				}
			}
			x.SetRow(3, make([]float64, d))
			_, res, err := kit.MustGLM(t, x, y, Poisson{}, GLMOptions{PriorSD: sd}).Fit(t.Context(),
				nil)
			if err != nil || res.Status != Converged || res.Passes > 120 || !(res.GapBound < 1e-6) {
				t.Errorf(
					"prior sd %g, %d weights: %v after %g passes at %.8g, proved to be within "+
						"%.3g: %v", sd, d, res.Status, res.Passes, res.ELBO, res.GapBound, err)
			}
		}
	}
}

// A fit of a sparse GP must end with a finite ELBO or an error, however wide the prior is.
func TestSparseGPEndsUnderWidePriors(t *testing.T) {
	x := mat.NewDense(2, 1, []float64{0, 100})
	for _, c := range []struct {
		lik Likelihood
		y   []float64
	}{{Poisson{}, []float64{2, 1}}, {Gamma{}, []float64{2.29, 0.736}},
		{Gamma{Shape: 30.48}, []float64{2.29, 0.736}}} {
		for _, scale := range testkit.Few([]float64{3515, 1e4, 1000, 3000}, 2) {
			g, err := NewSparseGP(x, c.y, SquaredExp{Scale: scale}, c.lik,
				&SparseGPOptions{Rank: 1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_, r, err := g.Fit(ctx, nil)
			cancel()
			if err == nil && (math.IsNaN(r.ELBO) || math.IsInf(r.ELBO, 0)) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, scale %v: ELBO %v, %v", c.lik, scale, r.ELBO, err)
			}
		}
	}
}

// sparseLabels returns n sparse rows of about per features of d, and labels of a logit model.
func sparseLabels(n, d, per int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = 2 * rng.NormFloat64()
	}
	for i := range y {
		var ind []int
		var val []float64
		eta := 0.0
		for j := range d {
			if rng.Float64() < float64(per)/float64(d) {
				v := (0.3 + rng.Float64()) / math.Sqrt(float64(per))
				ind, val = append(ind, j), append(val, v)
				eta += v * w[j]
			}
		}
		x.Append(ind, val)
		y[i] = testkit.Label(rng, eta)
	}
	return x, y
}

// TestLowRankBoundHolds checks that no full covariance has an ELBO above ELBO + GapBound.
func TestLowRankBoundHolds(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	for _, c := range []struct{ n, d, per int }{{100, 150, 20}, {150, 1000, 40}, {800, 850, 20}} {
		x, y := sparseLabels(c.n, c.d, c.per)
		_, full := kit.StructuredFit(t,
			kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: FullCovariance}), nil)
		for _, goal := range []float64{0, 0.01} {
			g := kit.MustGLM(t, x, y, BernoulliLogit{},
				GLMOptions{Covariance: LowRankCovariance, Rank: 5})
			_, res := kit.StructuredFit(t, g, &Solver{Goal: goal})
			short := full.ELBO - res.ELBO
			if res.Scope != OverLargerFamily || !(short <= res.GapBound) ||
				!(res.GapBound < 3*short+1e-3) {
				t.Errorf("%v, goal %v: %v nats below a full covariance, proved within %v (%v)", c,
					goal, short, res.GapBound, res.Scope)
			}
		}
	}
}

// TestLowRankPasses checks that a fit ends within 20 passes, near the ELBO of a run with a small
// goal.
func TestLowRankPasses(t *testing.T) {
	t.Parallel()
	type shape struct{ n, d, per int }
	shapes := testkit.Few([]shape{{300, 700, 30}, {500, 200, 25}}, 1)
	if testkit.IsLong() {
		shapes = append(shapes, shape{1000, 3000, 60}, shape{2000, 800, 50})
	}
	for _, c := range shapes {
		x, y := sparseLabels(c.n, c.d, c.per)
		g := kit.MustGLM(t, x, y, BernoulliLogit{},
			GLMOptions{Covariance: LowRankCovariance, Rank: 20})
		_, res := kit.StructuredFit(t, g, nil)
		_, best := kit.StructuredFit(t, g, &Solver{Goal: 1e-4})
		t.Logf("%v: %v; %v", c, res, best)
		if most := 1e-3 * (1 + 1e-3*float64(c.n)); res.Passes > 20 || best.ELBO-res.ELBO > most {
			t.Errorf("%v: %v passes, %v nats below a run of %v passes", c, res.Passes,
				best.ELBO-res.ELBO, best.Passes)
		}
	}
}

// TestLowRankText checks the same for rows that look like texts. It takes seconds.
func TestLowRankText(t *testing.T) {
	testkit.Long(t)
	x, y := kit.TextLabels(20000, 50000)
	g := kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 20})
	_, res := kit.StructuredFit(t, g, nil)
	t.Log(res)
	if res.Passes > 20 || !math.IsInf(res.GapBound, 1) {
		t.Errorf("%v passes, proved within %v", res.Passes, res.GapBound)
	}
}

// TestGapBoundScopes compares every evaluation of runs with the best q of the family of its
// Scope. The shapes lie on both sides of the size thresholds, and the proof is by rows, by
// weights or missing.
func TestGapBoundScopes(t *testing.T) {
	t.Parallel()
	shapes := []struct {
		n, d, per int
		dense     bool
	}{
		{8, 3, 2, true},      // fewer rows than directFew
		{6, 40, 10, false},   // more weights than rows
		{45, 110, 20, false}, // working in the span of the rows pays
		{60, 110, 20, false}, // it does not pay
		{90, 230, 20, false}, // a factor of 1e7 multiplications, over the weights,
		{200, 400, 20, false},
		{300, 60, 60, true}, // outer steps do not pay
		{300, 90, 90, true}, // outer steps pay
	}
	if !testing.Short() {
		shapes = append(shapes, shapes[0], shapes[0])
		shapes[len(shapes)-2].n, shapes[len(shapes)-1].n = term.GapRows, term.GapRows+1
	}
	for _, c := range shapes {
		sparse, y := sparseLabels(c.n, c.d, c.per)
		var x mat.Matrix = sparse
		if c.dense {
			x = mat.DenseCopyOf(sparse)
		}
		run := func(opt GLMOptions, most float64, solver *Solver) *Result {
			st := kit.MustStepper(t, kit.MustGLM(t, x, y, BernoulliLogit{}, opt))
			if s, ok := kit.AlgOf[site.Algebra](st).(*site.FactoredAlgebra); ok && most >= 0 {
				s.Most = most
			}
			res, err := solver.Resume(t.Context(), &Result{Stepper: st})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		full := run(GLMOptions{Covariance: FullCovariance}, -1, &Solver{})
		diagonal := run(GLMOptions{Covariance: DiagonalCovariance}, -1, &Solver{Goal: 1e-8})
		for _, goal := range testkit.Few([]float64{0.01, 0, 1}, 1) {
			solver := &Solver{Goal: goal, EvalEvery: 1}
			check := func(name string, res *Result, best *Result, scope Scope, proved bool) {
				t.Helper()
				if res.Status != Converged || res.Scope != scope ||
					proved != !math.IsInf(res.GapBound, 1) {
					t.Errorf("%v, %s, goal %v: %v, proved within %v (%v)", c, name, goal, res,
						res.GapBound, res.Scope)
				}
				for _, it := range res.Trace {
					if short := best.ELBO - it.ELBO; it.Scope != scope || !(short <= it.GapBound) {
						t.Errorf("%v, %s, goal %v, pass %v: %v nats short, proved within %v (%v)",
							c, name, goal, it.Passes, short, it.GapBound, it.Scope)
					}
				}
			}
			check("full", run(GLMOptions{Covariance: FullCovariance}, -1, solver), full, OverQ,
				true)
			check("diagonal", run(GLMOptions{Covariance: DiagonalCovariance}, -1, solver), diagonal,
				OverQ, true)
			if c.d < 8 { // every V has low rank
				continue
			}
			for _, rank := range []int{1, 4} {
				low := GLMOptions{Covariance: LowRankCovariance, Rank: rank}
				check("low rank", run(low, site.MostProof, solver), full, OverLargerFamily, true)
				check("low rank, no proof", run(low, 0, solver), full, OverLargerFamily, false)
			}
		}
	}
}

// TestLowRankProofs checks that both ways to a determinant agree, and that there is no proof if
// the model may not use the memory.
func TestLowRankProofs(t *testing.T) {
	t.Parallel()
	x, y := sparseLabels(200, 400, 20)
	res := testkit.Must((&Solver{}).Run(t.Context(),
		kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 4})))
	s := kit.AlgOf[*site.FactoredAlgebra](res.Stepper)
	if _, dual := s.ProofWork(); !dual {
		t.Fatal("the proof is not over the rows")
	}
	rows, rounding := s.Told()
	prior := testkit.Must(s.Lin.Prior.State())
	var a gauss.Gaussian
	if !a.Add(prior, s.Lin.X, s.Cur.Tg, nil, &design.Work{}) {
		t.Fatal("A is not positive definite")
	}
	if weights := a.LogDet - prior.LogDet; !(math.Abs(rows-weights) <= 1e-10*weights) ||
		!(rounding < 1e-9) {
		t.Errorf("log|A|/|Λ0| by the rows is %v ± %v, by the weights %v", rows, rounding, weights)
	}
	s.Lin.MaxMemory = 1 << 16
	if work, _ := s.ProofWork(); !math.IsInf(work, 1) {
		t.Errorf("a proof of %v multiplications has no memory", work)
	}
}
