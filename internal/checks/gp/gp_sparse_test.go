package gp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/site"
)

// polish takes steps beyond the tolerance of a Solver, to the optimum.
func polish(t testing.TB, st Stepper) (elbo float64) {
	t.Helper()
	for range 40 {
		if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	elbo, err := kit.ElboOf(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return elbo
}

// TestSparseGPFullRank checks that the model is the dense GP if all rows are inducing inputs.
// They are chosen among the rows or given, with and without a common optimum.
func TestSparseGPFullRank(t *testing.T) {
	t.Parallel()
	xnew := mat.NewDense(5, 2, []float64{0, 0, 1, -1, 3, 2, -2, 0.5, 40, -40})
	for il, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.04},
		StudentT{DF: 4, Scale: 0.3}} {
		for ik, k := range []Kernel{SquaredExp{Scale: 2, Length: 1.5},
			Matern32{Scale: 1.5, Length: 2}, Sum{Linear{}, Constant{}}} {
			if testing.Short() && (il+ik)%2 > 0 {
				continue
			}
			gp := kit.ToyGP(t, 60, k, lik, 5)
			data, labels := kit.ToyRows(60, lik, 5)
			_, dres := kit.MustFit(t, gp, nil)
			elbo := polish(t, dres.Stepper)
			dense, err := gp.Posterior(dres.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			a, err := NewSparseGP(data, labels, k, lik, &SparseGPOptions{Rank: gp.Len()})
			a = kit.MustSparse(t, a, err)
			b, err := NewSparseGP(data, labels, k, lik, &SparseGPOptions{Inducing: data})
			b = kit.MustSparse(t, b, err)
			for i, g := range []*SparseGP{a, b} {
				if g.Residual() > 1e-10 {
					t.Errorf("%T, %T: residual %g at rank %d", k, lik, g.Residual(), g.Rank())
				}
				_, res := kit.FitSparse(t, g, nil)
				got := polish(t, res.Stepper)
				if d := math.Abs(got - elbo); !(d < 1e-7) {
					t.Errorf("%T, %T, %d: ELBO %v, want %v: %g", k, lik, i, got, elbo, d)
				}
				post, err := g.Posterior(res.Stepper)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range []*mat.Dense{data, xnew} {
					m, v := post.At(x).Latent(nil, nil)
					wm, wv := dense.At(x).Latent(nil, nil)
					for n := range m {
						if !(math.Abs(m[n]-wm[n]) < 1e-6*(1+math.Abs(wm[n])) &&
							math.Abs(v[n]-wv[n]) < 1e-6*(1+wv[n])) {
							t.Errorf("%T, %T, %d: row %d is %g ± %g, want %g ± %g", k, lik, i, n,
								m[n], v[n], wm[n], wv[n])
						}
					}
				}
			}
		}
	}
}

// TestSparseGPRegression checks that the optimum under Gaussian noise is the bound of Titsias
// (2009), log N(y|0, Q + σ²I) − ½ tr(K − Q)/σ², computed here with dense matrices.
func TestSparseGPRegression(t *testing.T) {
	k, noise := SquaredExp{Scale: 1.3, Length: 0.8}, 0.04
	gp := kit.ToyGP(t, 80, k, GaussianNoise{Var: noise}, 8)
	data, labels := kit.ToyRows(80, GaussianNoise{Var: noise}, 8)
	z := mat.NewDense(9, 2, nil)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 9 {
		z.SetRow(i, []float64{2 * rng.NormFloat64(), 2 * rng.NormFloat64()})
	}
	given, err := NewSparseGP(data, labels, k, GaussianNoise{Var: noise},
		&SparseGPOptions{Inducing: z})
	given = kit.MustSparse(t, given, err)
	chosen, err := NewSparseGP(data, labels, k, GaussianNoise{Var: noise},
		&SparseGPOptions{Rank: 25})
	chosen = kit.MustSparse(t, chosen, err)
	for _, g := range []*SparseGP{given, chosen} {
		n := gp.Len()
		z := g.Inducing()
		var c mat.Cholesky
		if !c.Factorize(Gram(nil, k, z)) {
			t.Fatal("K(Z, Z) is singular")
		}
		kzx := CrossCov(nil, k, z, data)
		var s, q mat.Dense
		if err := c.SolveTo(&s, kzx); err != nil {
			t.Fatal(err)
		}
		q.Mul(kzx.T(), &s)
		cov := mat.NewSymDense(n, nil)
		var trace float64
		for i := range n {
			for j := range i + 1 {
				cov.SetSym(i, j, q.At(i, j))
			}
			cov.SetSym(i, i, q.At(i, i)+noise)
			trace += k.Cov(data.RawRowView(i), data.RawRowView(i)) - q.At(i, i)
		}
		if !c.Factorize(cov) {
			t.Fatal("Q + σ²I is singular")
		}
		var u mat.VecDense
		y := mat.NewVecDense(n, labels)
		if err := c.SolveVecTo(&u, y); err != nil {
			t.Fatal(err)
		}
		want := -0.5*(mat.Dot(y, &u)+c.LogDet()+float64(n)*math.Log(2*math.Pi)) - 0.5*trace/noise
		_, res := kit.FitSparse(t, g, nil)
		if d := math.Abs(res.ELBO - want); !(d < 1e-8*math.Abs(want)) {
			t.Errorf("rank %d: ELBO %v, want %v: %g", g.Rank(), res.ELBO, want, d)
		}
		if d := math.Abs(g.Residual() - trace); !(d < 1e-9*trace) {
			t.Errorf("rank %d: residual %v, want %v", g.Rank(), g.Residual(), trace)
		}
	}
}

// TestSparseGPNested checks that additional inducing inputs raise the ELBO toward the ELBO of the
// dense GP, never above it, and leave less variance.
func TestSparseGPNested(t *testing.T) {
	k := Matern52{Scale: 2, Length: 1.5}
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.04},
		StudentT{DF: 4, Scale: 0.3}} {
		gp := kit.ToyGP(t, 90, k, lik, 11)
		data, labels := kit.ToyRows(90, lik, 11)
		_, dense := kit.MustFit(t, gp, nil)
		elbo, residual := math.Inf(-1), math.Inf(1)
		var z *mat.Dense
		for _, rank := range []int{1, 2, 5, 10, 20, 40, 80} {
			g, err := NewSparseGP(data, labels, k, lik, &SparseGPOptions{Rank: rank})
			g = kit.MustSparse(t, g, err)
			if g.Rank() != rank || g.Len() != 90 {
				t.Fatalf("rank %d, len %d, want %d, 90", g.Rank(), g.Len(), rank)
			}
			if z != nil && !mat.Equal(z, g.Inducing().Slice(0, z.RawMatrix().Rows, 0, 2)) {
				t.Errorf("inducing inputs of rank %d are not nested", rank)
			}
			z = g.Inducing()
			_, res := kit.FitSparse(t, g, nil)
			if res.ELBO < elbo-1e-7 || res.ELBO > dense.ELBO+1e-7 {
				t.Errorf("%T, rank %d: ELBO %v after %v, dense %v", lik, rank, res.ELBO, elbo,
					dense.ELBO)
			}
			if !(g.Residual() < residual) {
				t.Errorf("rank %d: residual %v after %v", rank, g.Residual(), residual)
			}
			elbo, residual = res.ELBO, g.Residual()
		}
		if dense.ELBO-elbo > 0.01*math.Abs(dense.ELBO) {
			t.Errorf("%T: ELBO %v at rank 80 of 90, dense %v", lik, elbo, dense.ELBO)
		}
	}
}

// TestSparseGPGivenStep checks that steps with a given β, and the Objective of another
// divergence, contain the residual variances.
func TestSparseGPGivenStep(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	data, labels := kit.ToyRows(40, Poisson{}, 3)
	g, err := NewSparseGP(data, labels, k, Poisson{}, &SparseGPOptions{Rank: 8})
	g = kit.MustSparse(t, g, err)
	_, want := kit.FitSparse(t, g, nil)
	_, res, err := g.Fit(context.Background(),
		&Solver{StepSize: ConstantStep(0.02), MaxPasses: 3000, EvalEvery: 100})
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(want.ELBO - res.ELBO); !(d < 1e-6) {
		t.Errorf("ELBO %v by given steps, want %v", res.ELBO, want.ELBO)
	}
	st, err := g.NewStepper(context.Background(), nil, ReverseKL())
	if err != nil {
		t.Fatal(err)
	}
	first, err := kit.ElboOf(st, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := g.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := kit.ElboOf(plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(first - second); !(d < 1e-9*math.Abs(second)) {
		t.Errorf("ELBO at the prior is %v as an Objective, %v as a GLM", first, second)
	}
	post, err := g.Posterior(st)
	if err != nil {
		t.Fatal(err)
	}
	m, v := post.At(data).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]) > 1e-12 || math.Abs(v[i]-2.25) > 1e-9 {
			t.Fatalf("row %d is %g ± %g under the prior", i, m[i], v[i])
		}
	}
	if _, err := g.Posterior(badStepper{}); !errors.Is(err, ErrParam) {
		t.Errorf("posterior of another Stepper: %v", err)
	}
}

type badStepper struct{ Stepper }

// TestSparseGPRawRows checks that the default rank does not depend on the scale of rows and
// columns. The ELBO must be the ELBO of the dense GP.
func TestSparseGPRawRows(t *testing.T) {
	const n, d = 60, 4
	rng := testkit.Rand(17)
	draw := func() (x *mat.Dense, y []float64) {
		x, y = mat.NewDense(n, d, nil), make([]float64, n)
		for i := range n {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = testkit.PlusMinus(x.At(i, 0)-x.At(i, 1)+rng.NormFloat64() > 0)
		}
		return x, y
	}
	for _, c := range []struct {
		name string
		k    Kernel
		raw  func(x *mat.Dense)
	}{
		{"one row", Linear{}, func(x *mat.Dense) { x.Set(7, 2, 1e6) }},
		{"one row, scaled", Linear{}, func(x *mat.Dense) { floats.Scale(1e6, x.RawRowView(7)) }},
		{"one row twice", Linear{},
			func(x *mat.Dense) { x.Set(7, 2, 1e6); x.SetRow(9, x.RawRowView(7)) }},
		{"one column", Linear{}, func(x *mat.Dense) {
			for i := range n {
				x.Set(i, 3, 1e6*x.At(i, 3))
			}
		}},
		{"duplicates", SquaredExp{Scale: 3, Length: 2}, func(x *mat.Dense) {
			for i := range n / 2 {
				x.SetRow(n/2+i, x.RawRowView(i))
			}
		}},
		{"an outlier", SquaredExp{Scale: 3, Length: 2}, func(x *mat.Dense) { x.Set(0, 0, 1e6) }},
		{"all but one row tiny", Linear{}, func(x *mat.Dense) {
			for i := 1; i < n; i++ {
				floats.Scale(1e-6, x.RawRowView(i))
			}
		}},
	} {
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.1}, StudentT{}} {
			x, y := draw()
			c.raw(x)
			gp, err := NewGP(x, y, c.k, lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, want := kit.MustFit(t, gp, nil)
			g, err := NewSparseGP(x, y, c.k, lik, nil)
			g = kit.MustSparse(t, g, err)
			_, res := kit.FitSparse(t, g, nil)
			tol := 0.01
			for i := range n { // rounding of the residual variances costs 1/2σ² each
				row := x.RawRowView(i)
				tol += 4 * dense.Epsilon * c.k.Cov(row, row) / 0.2
			}
			if !(math.Abs(res.ELBO-want.ELBO) < tol) {
				t.Errorf("%s, %T: rank %d, ELBO %v, want %v", c.name, lik, g.Rank(), res.ELBO,
					want.ELBO)
			}
		}
	}
}

// TestSparseGPNoise checks that the noise of a kernel stays a residual variance. The ELBO is then
// the ELBO of the likelihood averaged over the noise.
func TestSparseGPNoise(t *testing.T) {
	data, labels := kit.ToyRows(30, GaussianNoise{Var: 0.5}, 6)
	plain, err := NewSparseGP(data, labels, SquaredExp{}, GaussianNoise{Var: 0.5},
		&SparseGPOptions{Rank: 12})
	plain = kit.MustSparse(t, plain, err)
	noisy, err := NewSparseGP(data, labels, Sum{SquaredExp{}, White{Scale: 0.5}},
		GaussianNoise{Var: 0.5}, &SparseGPOptions{Rank: 12})
	noisy = kit.MustSparse(t, noisy, err)
	if d := noisy.Residual() - plain.Residual(); math.Abs(d-30*0.25) > 1e-9 {
		t.Errorf("noise adds %v to the residual, want 7.5", d)
	}
	_, a := kit.FitSparse(t, plain, nil)
	_, b := kit.FitSparse(t, noisy, nil)
	if d := a.ELBO - b.ELBO; math.Abs(d-30*0.25/(2*0.5)) > 1e-7 {
		t.Errorf("noise costs %v nats, want 7.5", d)
	}
}

func TestSparseGPErrors(t *testing.T) {
	x := mat.NewDense(3, 1, []float64{0, 1, 2})
	y := []float64{1, -1, 1}
	bad := mat.NewDense(3, 1, []float64{0, math.NaN(), 2})
	k, lik := SquaredExp{}, BernoulliLogit{}
	low := func(x mat.Matrix, y []float64, k Kernel, rank int) error {
		_, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Rank: rank})
		return err
	}
	with := func(x, z mat.Matrix) error {
		_, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Inducing: z})
		return err
	}
	for i, c := range []struct {
		err  error
		want error
		text string
	}{
		{low(nil, nil, k, 0), ErrEmpty, "nil matrix"},
		{low(x, y[:2], k, 0), ErrShape, "3 rows"},
		{low(bad, y, k, 0), ErrNotFinite, "row 1, column 0 of x"},
		{low(x, []float64{1, 0, 1}, k, 0), ErrLabel, "1"},
		{low(x, y, nil, 0), ErrParam, "the Kernel is nil"},
		{low(x, y, SquaredExp{Scale: -1}, 0), ErrParam, "Scale"},
		{low(x, y, k, -1), ErrParam, "Rank is -1"},
		{low(x, y, SquaredExp{Scale: 1e200}, 0), ErrNotFinite, "rows 0 and 0"},
		{low(x, y, indefinite{}, 0), ErrNotPosDef, "rows 0 and 1"},
		{with(bad, x), ErrNotFinite, "of x"},
		{with(x, bad), ErrNotFinite, "row 1, column 0 of SparseGPOptions.Inducing"},
		{with(x, &mat.Dense{}), ErrEmpty, "no rows"},
		{with(x, mat.NewDense(1, 2, nil)), ErrShape, "Inducing has 2"},
	} {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.text) ||
			!strings.HasPrefix(c.err.Error(), "pgsvi: ") {
			t.Errorf("%d: %v, want %v with %q", i, c.err, c.want, c.text)
		}
	}
	if _, err := NewSparseGP(x, y, indefinite{}, lik,
		&SparseGPOptions{Inducing: mat.NewDense(1, 1, nil)}); !errors.Is(err, ErrNotPosDef) ||
		!strings.Contains(err.Error(), "row 1") {
		t.Errorf("indefinite kernel against inducing inputs: %v", err)
	}
	g, err := NewSparseGP(x, y, k, lik, nil)
	g = kit.MustSparse(t, g, err)
	if post, res, err := g.Fit(context.Background(), &Solver{BatchSize: -1}); post != nil ||
		res != nil || !errors.Is(err, ErrParam) {
		t.Errorf("bad Solver: %v", err)
	}
	g, err = NewSparseGP(x, y, k, lik,
		&SparseGPOptions{Rank: 2, Inducing: mat.NewDense(4, 1, []float64{7, 7, 8, 9})})
	if g = kit.MustSparse(t, g, err); g.Rank() != 2 || g.Inducing().At(0, 0) != 7 ||
		g.Inducing().At(1, 0) != 9 {
		t.Errorf("two of four inducing inputs are %v", mat.Formatted(g.Inducing().T()))
	}
	if g, err = NewSparseGP(x, y, k, lik, nil); err != nil {
		t.Fatal(err)
	}
	x.Set(0, 0, 50) // the model has its own copy
	if z := g.Inducing(); z.At(0, 0) != 0 {
		t.Errorf("inducing input moved to %v", z.At(0, 0))
	}
}

// indefinite has covariances larger than its variances.
type indefinite struct{ SquaredExp }

func (indefinite) Cov(x, y []float64) float64 {
	if x[0] == y[0] {
		return 1
	}
	return 1.5
}

// TestSparseGPPredict checks the predictions that are derived from Latent.
func TestSparseGPPredict(t *testing.T) {
	lik := Poisson{}
	data, labels := kit.ToyRows(60, lik, 10)
	g, err := NewSparseGP(data, labels, SquaredExp{}, lik, &SparseGPOptions{Rank: 20})
	post, _ := kit.FitSparse(t, kit.MustSparse(t, g, err), nil)
	m, v := post.At(data).Latent(nil, nil)
	mean, variance, err := post.At(data).Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := post.At(data).Quantile(nil, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	p, lp := post.At(data).Prob(nil, 2), post.At(data).LogProb(nil, labels)
	for i := range m {
		wm, wv, _ := kit.PredictedMoments(lik, m[i], v[i])
		wq, _ := kit.PredictedQuantile(lik, 0.9, m[i], v[i])
		l2 := kit.PredictedLogProb(lik, 2, m[i], v[i])
		ly := kit.PredictedLogProb(lik, labels[i], m[i], v[i])
		if mean[i] != wm || variance[i] != wv || q[i] != wq || p[i] != math.Exp(l2) || lp[i] != ly {
			t.Fatalf("row %d: %v %v %v %v %v, want %v %v %v %v %v", i, mean[i], variance[i], q[i],
				p[i], lp[i], wm, wv, wq, math.Exp(l2), ly)
		}
	}
}

// TestSparseGPUSPS compares digits of USPS with the dense GP.
func TestSparseGPUSPS(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short")
	}
	c := gpCases[2]
	s := loadUSPS(t, 3, 5)
	const want = 155.83145279674974 // ELBO of the dense posterior, from TestGPOptimum
	last := math.Inf(1)
	for _, rank := range []int{50, 100, 300} {
		start := time.Now()
		g, err := NewSparseGP(s.x, s.y,
			SquaredExp{Scale: math.Exp(c.logScale), Length: math.Exp(c.logLength)},
			BernoulliLogit{}, &SparseGPOptions{Rank: rank})
		g = kit.MustSparse(t, g, err)
		setup := time.Since(start)
		post, res := kit.FitSparse(t, g, nil)
		total := time.Since(start)
		var bits float64
		for _, l := range post.At(s.xtest).LogProb(nil, s.ytest) {
			bits -= l / math.Ln2 / float64(len(s.ytest))
		}
		t.Logf("rank %d: −ELBO %.4f, %.5f bits, residual %.4g, set-up %v, %.1f passes, in all %v",
			rank, -res.ELBO, bits, g.Residual(), setup, res.Passes, total)
		if -res.ELBO < want-0.1 || -res.ELBO > last { // 0.1 for the jitter
			t.Errorf("rank %d: −ELBO %v after %v, dense %v", rank, -res.ELBO, last, want)
		}
		last = -res.ELBO
	}
}

// TestSparseGPLarge checks that 20,000 rows in one and two dimensions take seconds.
func TestSparseGPLarge(t *testing.T) {
	t.Parallel()
	if testing.Short() || testkit.Race {
		t.Skip("slow")
	}
	const n = 12000
	rng := rand.New(rand.NewPCG(1, 1))
	for d := 1; d <= 2; d++ {
		x, y, p := mat.NewDense(n, d, nil), make([]float64, n), make([]float64, n)
		for i := range n {
			f := 0.0
			for j := range d {
				v := 6 * rng.Float64()
				x.Set(i, j, v)
				f += 2 * math.Sin(2*v+float64(j))
			}
			p[i], y[i] = 1/(1+math.Exp(-f)), 1
			if rng.Float64() > p[i] {
				y[i] = -1
			}
		}
		start := time.Now()
		g, err := NewSparseGP(x, y, SquaredExp{Scale: 2}, BernoulliLogit{}, nil)
		g = kit.MustSparse(t, g, err)
		setup := time.Since(start)
		post, res := kit.FitSparse(t, g, nil)
		fit := time.Since(start)
		var worst float64
		for i, q := range post.At(x).Prob(nil, 1) {
			worst = math.Max(worst, math.Abs(q-p[i]))
		}
		t.Logf("%d-D: rank %d, residual %.3g, set-up %v, %.1f passes, fit %v, predictions %v; "+
			"largest error of P %.3f", d, g.Rank(), g.Residual(), setup, res.Passes, fit,
			time.Since(start)-fit, worst)
		if worst > 0.2 {
			t.Errorf("%d-D: P is wrong by %v", d, worst)
		}
	}
}

// TestSparseGPPrior checks that predictions far from the data equal the prior.
func TestSparseGPPrior(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	data, labels := kit.ToyRows(50, BernoulliLogit{}, 4)
	g, err := NewSparseGP(data, labels, k, BernoulliLogit{}, &SparseGPOptions{Rank: 10})
	g = kit.MustSparse(t, g, err)
	post, _ := kit.FitSparse(t, g, nil)
	far := mat.NewDense(4, 2, []float64{1e3, 1e3, -1e6, 0, math.NaN(), 0, 0, math.Inf(1)})
	m, v := post.At(far).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]) > 1e-12 || math.Abs(v[i]-2.25) > 1e-12 {
			t.Errorf("row %d is %g ± %g, want 0 ± 2.25", i, m[i], v[i])
		}
	}
	for i, p := range post.At(far).Prob(nil, 1) {
		if math.Abs(p-0.5) > 1e-12 {
			t.Errorf("row %d: P = %v", i, p)
		}
	}
	if post.Len() != 50 || post.Cols() != 2 || g.Rank() != 10 {
		t.Errorf("posterior of %d rows, %d columns, rank %d", post.Len(), post.Cols(),
			g.Rank())
	}
	if m, v := post.At(&mat.Dense{}).Latent(nil, nil); len(m)+len(v) != 0 {
		t.Errorf("no rows give %v, %v", m, v)
	}
	testkit.MustPanic(t, "bad shape", func() { post.At(mat.NewDense(1, 3, nil)).Latent(nil, nil) })
	testkit.MustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).Latent(make([]float64, 2), nil) })
	testkit.MustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).LogProb(nil, []float64{1, 1}) })
}

// TestSparseGPSingular checks duplicate rows, covariances of low rank, a kernel without variance,
// and a single row.
func TestSparseGPSingular(t *testing.T) {
	data, labels := kit.ToyRows(30, BernoulliLogit{}, 6)
	twice := mat.NewDense(60, 2, nil)
	twice.Stack(data, data)
	y := append(slices.Clone(labels), labels...)
	for _, c := range []struct {
		k    Kernel
		rank int
	}{{Matern32{}, 30}, {Linear{}, 2}, {Sum{Linear{}, Constant{}}, 3}, {Constant{}, 1}} {
		dense, err := NewGP(twice, y, c.k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := kit.MustFit(t, dense, nil)
		chosen, err := NewSparseGP(twice, y, c.k, nil, nil)
		chosen = kit.MustSparse(t, chosen, err)
		noise, err := NewSparseGP(twice, y, c.k, GaussianNoise{}, nil)
		_, res := kit.FitSparse(t, kit.MustSparse(t, noise, err), nil)
		if _, got := kit.FitSparse(t, chosen, nil); got.ELBO != res.ELBO {
			t.Errorf("nil likelihood is not GaussianNoise: ELBO %v, want %v", got.ELBO, res.ELBO)
		}
		chosen, err = NewSparseGP(twice, y, c.k, BernoulliLogit{}, nil)
		chosen = kit.MustSparse(t, chosen, err)
		given, err := NewSparseGP(twice, y, c.k, BernoulliLogit{},
			&SparseGPOptions{Inducing: twice})
		given = kit.MustSparse(t, given, err)
		for _, g := range []*SparseGP{chosen, given} {
			if g.Rank() != c.rank {
				t.Errorf("%v: rank %d, want %d", c.k, g.Rank(), c.rank)
			}
			if _, res := kit.FitSparse(t, g, nil); !(math.Abs(res.ELBO-want.ELBO) < 1e-7) {
				t.Errorf("%v: ELBO %v, want %v", c.k, res.ELBO, want.ELBO)
			}
		}
	}
	// one row, with and without prior variance
	for _, k := range []Kernel{SquaredExp{Scale: 2}, Linear{}} {
		x := mat.NewDense(1, 1, nil)
		gp, err := NewGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		dense, want := kit.MustFit(t, gp, nil)
		g, err := NewSparseGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		post, res := kit.FitSparse(t, kit.MustSparse(t, g, err), nil)
		if !(math.Abs(res.ELBO-want.ELBO) < 1e-9) {
			t.Errorf("%v: ELBO %v of one row, want %v", k, res.ELBO, want.ELBO)
		}
		at := mat.NewDense(2, 1, []float64{0, 3})
		m, v := post.At(at).Latent(nil, nil)
		wm, wv := dense.At(at).Latent(nil, nil)
		for i := range m {
			if !(math.Abs(m[i]-wm[i])+math.Abs(v[i]-wv[i]) < 1e-5) {
				t.Errorf("%v: %g ± %g, want %g ± %g", k, m[i], v[i], wm[i], wv[i])
			}
		}
	}
}

// TestSparseGPSameBits checks that the number of cores and the batches of predictions change no
// bit.
func TestSparseGPSameBits(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	data, labels := kit.ToyRows(700, BernoulliLogit{}, 9)
	var want string
	for _, procs := range []int{1, 2, 7} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			g, err := NewSparseGP(data, labels, k, BernoulliLogit{}, &SparseGPOptions{Rank: 40})
			post, res := kit.FitSparse(t, kit.MustSparse(t, g, err), nil)
			m, v := post.At(data).Latent(nil, nil)
			h, err := NewSparseGP(data, labels, k, BernoulliLogit{},
				&SparseGPOptions{Inducing: data.Slice(0, 30, 0, 2)})
			_, given := kit.FitSparse(t, kit.MustSparse(t, h, err), nil)
			weights, _, err := kit.AlgOf[site.Weighted](given.Stepper).Weights()
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(res.ELBO, m, v, given.ELBO, weights)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("other bits with %d procs", procs)
			}
			for _, lo := range []int{0, 1, 130, 699} {
				pm, pv := slices.Repeat([]float64{7}, 700-lo), slices.Repeat([]float64{7}, 700-lo)
				post.At(data.Slice(lo, 700, 0, 2)).Latent(pm, pv)
				if !slices.Equal(pm, m[lo:]) || !slices.Equal(pv, v[lo:]) {
					t.Errorf("other bits from row %d on", lo)
				}
			}
		}()
	}
}

// TestSaveSparseGP checks that a loaded posterior has the same bits, and that a damaged file is an
// error.
func TestSaveSparseGP(t *testing.T) {
	k := Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 2}}, Linear{}}
	data, labels := kit.ToyRows(40, StudentT{DF: 4, Scale: 0.3}, 12)
	g, err := NewSparseGP(data, labels, k, StudentT{DF: 4, Scale: 0.3}, &SparseGPOptions{Rank: 15})
	post, _ := kit.FitSparse(t, kit.MustSparse(t, g, err), nil)
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*SparseGPPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := loaded.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Errorf("saved again it differs (%v)", err)
	}
	data.Set(0, 0, math.NaN())
	m, v := post.At(data).Latent(nil, nil)
	lm, lv := loaded.At(data).Latent(nil, nil)
	if fmt.Sprint(m, v, post.Len()) != fmt.Sprint(lm, lv, loaded.Len()) {
		t.Error("loaded posterior predicts differently")
	}
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{`{"rows"`, `"rows"`, ErrFile},
		{`"rank":15`, `"rank":14`, ErrShape},
		{`"l":[`, `"l":[1,`, ErrShape},
		{`"mean":[`, `"mean":[1,`, ErrShape},
		{`"mean":[`, `"mean":[1e999,`, ErrFile},
		{`"maxPrior":`, `"maxPrior":-`, ErrParam},
		{`"l":[`, `"l":[-`, ErrNotPosDef},
		{`"precision":[`, `"precision":[-`, ErrNotPosDef},
		{"pgsvi.Linear", "pgsvi.Linearly", ErrParam},
		{"pgsvi.StudentT", "pgsvi.SquaredExp", ErrParam},
	} {
		s := testkit.Changed(t, testkit.Kind("SparseGPPosterior"), file.String(), c.old, c.new)
		if _, err := Load[*SparseGPPosterior](strings.NewReader(s)); !errors.Is(err, c.want) ||
			!errors.Is(err, ErrFile) || !testkit.PrefixedOnce(err) {
			t.Errorf("%s for %s: %v, want %v", c.new, c.old, err, c.want)
		}
	}
}

// TestSparseRawColumns checks that a column of any size does not affect the other columns. The ELBO
// must be the ELBO of the dense GP, within the proved bound.
func TestSparseRawColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, t0 := range testkit.Few([]float64{1.7e9, 1e6, 0, 1e3, 1e8}, 2) {
		for _, k := range []Kernel{
			Linear{Scale: 2.5}, Linear{Scales: []float64{1, 2, 3}},
			Sum{Linear{Scale: 2.5}, Constant{Scale: 3}},
			Product{Constant{Scale: 2}, Linear{Scale: 1.5}},
		} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.1}} {
				x, y := testkit.RawClassifier(80, t0)
				linear := k
				if _, ok := k.(Product); ok { // whose features the dense GP does not know
					linear = Linear{Scale: 3}
				}
				gp, err := NewGP(x, y, linear, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, dense := kit.MustFit(t, gp, nil)
				kept, err := NewSparseGP(x, y, k, lik, nil)
				kept = kit.MustSparse(t, kept, err)
				given, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Inducing: x})
				given = kit.MustSparse(t, given, err)
				rows, err := NewSparseGPRows(ctx, Rows(x, y), 3, k, lik, nil)
				rows = kit.MustSparse(t, rows, err)
				for i, g := range []*SparseGP{kept, given, rows} {
					post, res, err := g.Fit(ctx, nil)
					if err != nil {
						t.Fatalf("%v, t0 %g, model %d: %v", k, t0, i, err)
					}
					short := dense.ELBO - res.ELBO
					slack := 1e-6 + dense.ELBOErr + dense.GapBound + res.ELBOErr
					if short > res.GapBound+slack || short < -slack || g.Residual() != 0 {
						t.Errorf(
							"%v, %T, t0 %g, model %d of rank %d: %.3g nats short, bound %.2g, "+
								"residual %g", k, lik, t0, i, g.Rank(), short, res.GapBound,
							g.Residual())
					}
					if m, _ := post.At(x).Latent(nil, nil); t0 == 1.7e9 {
						right := 0
						for n, at := range m {
							if at*y[n] > 0 {
								right++
							}
						}
						if right < 64 {
							t.Errorf("%v, %T, model %d: %d of 80 rows are on the right side", k,
								lik, i, right)
						}
					}
				}
			}
		}
	}
}

// TestSparseRowsUnits checks that a model that reads its rows in every pass has the ELBO of a model
// that keeps its features, at the same inducing inputs, within the proved bound, in any units.
func TestSparseRowsUnits(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1e-3, 1, 1e4, 1e5} {
		for _, k := range []Kernel{Linear{}, SquaredExp{Scale: 3, Length: 3 * scale},
			Matern52{Scale: 1e3, Length: 10 * scale},
			Sum{Linear{Scale: 1 / scale}, SquaredExp{Length: scale}}} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 1e-4}} {
				data, labels := kit.ToyRows(testkit.Shorter(150, 60), lik, 7)
				data.Scale(scale, data)
				s, err := NewSparseGP(data, labels, k, lik, nil)
				s = kit.MustSparse(t, s, err)
				z := s.Inducing()
				kept, err := NewSparseGP(data, labels, k, lik, &SparseGPOptions{Inducing: z})
				kept = kit.MustSparse(t, kept, err)
				_, want := kit.FitSparse(t, kept, nil)
				_, res := kit.FitSparse(t, kit.StreamRows(t, data, labels, k, lik, z), nil)
				short := want.ELBO - res.ELBO
				// plus the rounding of the features
				slack := 1e-9 + 1e-10*math.Abs(want.ELBO) + want.ELBOErr + res.ELBOErr +
					want.GapBound
				if short > res.GapBound+slack {
					t.Errorf("%v, %T, units %g: %.3g nats short, bound %.2g", k, lik, scale, short,
						res.GapBound)
				}
			}
		}
	}
}
