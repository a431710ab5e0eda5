package pgsvi

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
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func mustSparse(t testing.TB, g *SparseGP, err error) *SparseGP {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func fitSparse(t testing.TB, g *SparseGP, s *Solver) (*SparseGPPosterior, *Result) {
	t.Helper()
	post, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged {
		t.Errorf("%v after %d iterations, gap %g", res.Status, res.K, res.Gap)
	}
	return post, res
}

// polish takes steps beyond the tolerance of a Solver, to the optimum itself.
func polish(t testing.TB, st Stepper) (elbo float64) {
	t.Helper()
	for range 40 {
		if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	elbo, err := elboOf(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return elbo
}

// TestSparseGPFullRank: with all the rows as inducing inputs the model is the
// dense GP, chosen among the rows or given, with and without an optimum in common.
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
			gp := toyGP(t, 60, k, lik, 5)
			_, dres := mustFit(t, gp, nil)
			elbo := polish(t, dres.Stepper)
			dense, err := gp.Posterior(dres.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			a, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, &SparseGPOptions{Rank: gp.Len()})
			a = mustSparse(t, a, err)
			b, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, &SparseGPOptions{Inducing: gp.x})
			b = mustSparse(t, b, err)
			for i, g := range []*SparseGP{a, b} {
				if g.Residual() > 1e-10 {
					t.Errorf("%T, %T: residual %g at rank %d", k, lik, g.Residual(), g.Rank())
				}
				_, res := fitSparse(t, g, nil)
				got := polish(t, res.Stepper)
				if d := math.Abs(got - elbo); !(d < 1e-7) {
					t.Errorf("%T, %T, %d: ELBO %v, want %v: %g", k, lik, i, got, elbo, d)
				}
				post, err := g.Posterior(res.Stepper)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range []*mat.Dense{gp.x, xnew} {
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

// TestSparseGPRegression: under Gaussian noise the optimum is the bound of
// Titsias (2009), log N(y|0, Q + σ²I) − ½ tr(K − Q)/σ², computed here densely.
func TestSparseGPRegression(t *testing.T) {
	k, noise := SquaredExp{Scale: 1.3, Length: 0.8}, 0.04
	gp := toyGP(t, 80, k, GaussianNoise{Var: noise}, 8)
	z := mat.NewDense(9, 2, nil)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 9 {
		z.SetRow(i, []float64{2 * rng.NormFloat64(), 2 * rng.NormFloat64()})
	}
	given, err := NewSparseGP(gp.x, gp.terms.Y, k, likOf(gp.terms), &SparseGPOptions{Inducing: z})
	given = mustSparse(t, given, err)
	chosen, err := NewSparseGP(gp.x, gp.terms.Y, k, likOf(gp.terms), &SparseGPOptions{Rank: 25})
	chosen = mustSparse(t, chosen, err)
	for _, g := range []*SparseGP{given, chosen} {
		n := gp.Len()
		z := g.Inducing()
		var c mat.Cholesky
		if !c.Factorize(Gram(nil, k, z)) {
			t.Fatal("K(Z, Z) is singular")
		}
		kzx := CrossCov(nil, k, z, gp.x)
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
			trace += k.Cov(gp.x.RawRowView(i), gp.x.RawRowView(i)) - q.At(i, i)
		}
		if !c.Factorize(cov) {
			t.Fatal("Q + σ²I is singular")
		}
		var u mat.VecDense
		y := mat.NewVecDense(n, gp.terms.Y)
		if err := c.SolveVecTo(&u, y); err != nil {
			t.Fatal(err)
		}
		want := -0.5*(mat.Dot(y, &u)+c.LogDet()+float64(n)*math.Log(2*math.Pi)) - 0.5*trace/noise
		_, res := fitSparse(t, g, nil)
		if d := math.Abs(res.ELBO - want); !(d < 1e-8*math.Abs(want)) {
			t.Errorf("rank %d: ELBO %v, want %v: %g", g.Rank(), res.ELBO, want, d)
		}
		if d := math.Abs(g.Residual() - trace); !(d < 1e-9*trace) {
			t.Errorf("rank %d: residual %v, want %v", g.Rank(), g.Residual(), trace)
		}
	}
}

// TestSparseGPNested: more of the same inducing inputs raise the ELBO towards
// that of the dense GP, never past it, and leave less variance.
func TestSparseGPNested(t *testing.T) {
	k := Matern52{Scale: 2, Length: 1.5}
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.04},
		StudentT{DF: 4, Scale: 0.3}} {
		gp := toyGP(t, 90, k, lik, 11)
		_, dense := mustFit(t, gp, nil)
		elbo, residual := math.Inf(-1), math.Inf(1)
		var z *mat.Dense
		for _, rank := range []int{1, 2, 5, 10, 20, 40, 80} {
			g, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, &SparseGPOptions{Rank: rank})
			g = mustSparse(t, g, err)
			if g.Rank() != rank || g.Len() != 90 {
				t.Fatalf("rank %d, len %d, want %d, 90", g.Rank(), g.Len(), rank)
			}
			if z != nil && !mat.Equal(z, g.Inducing().Slice(0, z.RawMatrix().Rows, 0, 2)) {
				t.Errorf("inducing inputs of rank %d are not nested", rank)
			}
			z = g.Inducing()
			_, res := fitSparse(t, g, nil)
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

// TestSparseGPGivenStep: steps with a given β, and the Objective of another
// divergence, have the residual variances in them, too.
func TestSparseGPGivenStep(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	gp := toyGP(t, 40, k, Poisson{}, 3)
	g, err := NewSparseGP(gp.x, gp.terms.Y, k, Poisson{}, &SparseGPOptions{Rank: 8})
	g = mustSparse(t, g, err)
	_, want := fitSparse(t, g, nil)
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
	first, err := elboOf(st, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := g.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := elboOf(plain, nil)
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
	m, v := post.At(gp.x).Latent(nil, nil)
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

// TestSparseGPPrior: far from the data the predictions are those of the prior.
func TestSparseGPPrior(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	gp := toyGP(t, 50, k, BernoulliLogit{}, 4)
	g, err := NewSparseGP(gp.x, gp.terms.Y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 10})
	g = mustSparse(t, g, err)
	post, _ := fitSparse(t, g, nil)
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
	if post.Len() != 50 || post.Cols() != 2 || post.z.Rank() != 10 {
		t.Errorf("posterior of %d rows, %d columns, rank %d", post.Len(), post.Cols(),
			post.z.Rank())
	}
	if m, v := post.At(&mat.Dense{}).Latent(nil, nil); len(m)+len(v) != 0 {
		t.Errorf("no rows give %v, %v", m, v)
	}
	mustPanic(t, "bad shape", func() { post.At(mat.NewDense(1, 3, nil)).Latent(nil, nil) })
	mustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).Latent(make([]float64, 2), nil) })
	mustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).LogProb(nil, []float64{1, 1}) })
}

// TestSparseGPSingular: duplicated rows, covariances of low rank, no variance at
// all and a single datum.
func TestSparseGPSingular(t *testing.T) {
	gp := toyGP(t, 30, SquaredExp{}, BernoulliLogit{}, 6)
	twice := mat.NewDense(60, 2, nil)
	twice.Stack(gp.x, gp.x)
	y := append(slices.Clone(gp.terms.Y), gp.terms.Y...)
	for _, c := range []struct {
		k    Kernel
		rank int
	}{{Matern32{}, 30}, {Linear{}, 2}, {Sum{Linear{}, Constant{}}, 3}, {Constant{}, 1}} {
		dense, err := NewGP(twice, y, c.k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := mustFit(t, dense, nil)
		chosen, err := NewSparseGP(twice, y, c.k, nil, nil)
		if chosen = mustSparse(t, chosen, err); likOf(chosen.lin.Terms) != (GaussianNoise{}) {
			t.Error("nil likelihood is not GaussianNoise")
		}
		chosen, err = NewSparseGP(twice, y, c.k, BernoulliLogit{}, nil)
		chosen = mustSparse(t, chosen, err)
		given, err := NewSparseGP(twice, y, c.k, BernoulliLogit{},
			&SparseGPOptions{Inducing: twice})
		given = mustSparse(t, given, err)
		for _, g := range []*SparseGP{chosen, given} {
			if g.Rank() != c.rank {
				t.Errorf("%v: rank %d, want %d", c.k, g.Rank(), c.rank)
			}
			if _, res := fitSparse(t, g, nil); !(math.Abs(res.ELBO-want.ELBO) < 1e-7) {
				t.Errorf("%v: ELBO %v, want %v", c.k, res.ELBO, want.ELBO)
			}
		}
	}
	// One datum, with and without prior variance.
	for _, k := range []Kernel{SquaredExp{Scale: 2}, Linear{}} {
		x := mat.NewDense(1, 1, nil)
		gp, err := NewGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		dense, want := mustFit(t, gp, nil)
		g, err := NewSparseGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		post, res := fitSparse(t, mustSparse(t, g, err), nil)
		if !(math.Abs(res.ELBO-want.ELBO) < 1e-9) {
			t.Errorf("%v: ELBO %v of one datum, want %v", k, res.ELBO, want.ELBO)
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

// TestSparseGPRawRows: rows and columns of another size do not decide the default rank. The ELBO is
// that of the dense GP.
func TestSparseGPRawRows(t *testing.T) {
	const n, d = 60, 4
	rng := testRand(17)
	draw := func() (x *mat.Dense, y []float64) {
		x, y = mat.NewDense(n, d, nil), make([]float64, n)
		for i := range n {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = plusMinus(x.At(i, 0)-x.At(i, 1)+rng.NormFloat64() > 0)
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
			_, want := mustFit(t, gp, nil)
			g, err := NewSparseGP(x, y, c.k, lik, nil)
			g = mustSparse(t, g, err)
			_, res := fitSparse(t, g, nil)
			tol := 0.01
			for i := range n { // what the rounding of the residual variances costs, 1/2σ² of each
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

// TestSiteCurvature: the cost of a unit of variance is that of the curvature at a datum alone.
func TestSiteCurvature(t *testing.T) {
	for _, c := range []struct {
		l           Likelihood
		y, v        float64
		least, most float64
	}{
		{GaussianNoise{Var: 1e-6}, 3, 1e6, 1e6, 1e6}, {BernoulliLogit{}, 1, 1, 0.15, 0.25},
		{BernoulliLogit{}, 1, 1e12, 0.05, 0.25}, {Poisson{}, 1e6, 100, 0.9e6, 1.1e6},
		{Poisson{}, 0, 1e4, 0, 1}, {Poisson{}, 7, 1e12, 5, 9}, {Gamma{Shape: 3}, 1e-3, 1e4, 2, 3.1},
		{Laplace{}, 0, 1e6, 0.1, 10},
		{StudentT{}, 1e6, 1, 0, 1.3}, {Poisson{}, 3, 0, 0, 0},
	} {
		if g := sparse.Curvature(viewOf(c.l), c.y, c.v); !(g >= c.least*(1-1e-9) && g <= c.most*(1+
			1e-9)) {
			t.Errorf("%#v at %v, prior %v: %v, want %v to %v", c.l, c.y, c.v, g, c.least, c.most)
		}
	}
}

// TestSparseGPNoise: the noise of a kernel stays a residual variance, so that
// the ELBO is that of the likelihood averaged over it.
func TestSparseGPNoise(t *testing.T) {
	gp := toyGP(t, 30, SquaredExp{}, GaussianNoise{Var: 0.5}, 6)
	plain, err := NewSparseGP(gp.x, gp.terms.Y, SquaredExp{}, likOf(gp.terms),
		&SparseGPOptions{Rank: 12})
	plain = mustSparse(t, plain, err)
	noisy, err := NewSparseGP(gp.x, gp.terms.Y, Sum{SquaredExp{}, White{Scale: 0.5}},
		likOf(gp.terms), &SparseGPOptions{Rank: 12})
	noisy = mustSparse(t, noisy, err)
	if d := noisy.Residual() - plain.Residual(); math.Abs(d-30*0.25) > 1e-9 {
		t.Errorf("noise adds %v to the residual, want 7.5", d)
	}
	_, a := fitSparse(t, plain, nil)
	_, b := fitSparse(t, noisy, nil)
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
		{low(x, y, nil, 0), ErrParam, "nil Kernel"},
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
	g = mustSparse(t, g, err)
	if post, res, err := g.Fit(context.Background(), &Solver{BatchSize: -1}); post != nil ||
		res != nil || !errors.Is(err, ErrParam) {
		t.Errorf("bad Solver: %v", err)
	}
	g, err = NewSparseGP(x, y, k, lik,
		&SparseGPOptions{Rank: 2, Inducing: mat.NewDense(4, 1, []float64{7, 7, 8, 9})})
	if g = mustSparse(t, g, err); g.Rank() != 2 || g.Inducing().At(0, 0) != 7 ||
		g.Inducing().At(1, 0) != 9 {
		t.Errorf("two of four inducing inputs are %v", mat.Formatted(g.Inducing().T()))
	}
	if g, err = NewSparseGP(x, y, k, lik, nil); err != nil {
		t.Fatal(err)
	}
	x.Set(0, 0, 50) // the model has a copy
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

// TestSparseGPSameBits: neither the cores nor the batches of predictions show.
func TestSparseGPSameBits(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	gp := toyGP(t, 700, k, BernoulliLogit{}, 9)
	var want string
	for _, procs := range []int{1, 2, 7} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			g, err := NewSparseGP(gp.x, gp.terms.Y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 40})
			post, res := fitSparse(t, mustSparse(t, g, err), nil)
			m, v := post.At(gp.x).Latent(nil, nil)
			h, err := NewSparseGP(gp.x, gp.terms.Y, k, BernoulliLogit{},
				&SparseGPOptions{Inducing: gp.x.Slice(0, 30, 0, 2)})
			got := fmt.Sprint(res.ELBO, m, v, mustSparse(t, h, err).lin.X.Dense)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("other bits with %d procs", procs)
			}
			for _, lo := range []int{0, 1, 130, 699} {
				pm, pv := slices.Repeat([]float64{7}, 700-lo), slices.Repeat([]float64{7}, 700-lo)
				post.At(gp.x.Slice(lo, 700, 0, 2)).Latent(pm, pv)
				if !slices.Equal(pm, m[lo:]) || !slices.Equal(pv, v[lo:]) {
					t.Errorf("other bits from row %d on", lo)
				}
			}
		}()
	}
}

// TestSparseGPPredict: what is derived from Latent is so.
func TestSparseGPPredict(t *testing.T) {
	lik := Poisson{}
	gp := toyGP(t, 60, SquaredExp{}, lik, 10)
	g, err := NewSparseGP(gp.x, gp.terms.Y, SquaredExp{}, lik, &SparseGPOptions{Rank: 20})
	post, _ := fitSparse(t, mustSparse(t, g, err), nil)
	m, v := post.At(gp.x).Latent(nil, nil)
	mean, variance, err := post.At(gp.x).Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := post.At(gp.x).Quantile(nil, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	p, lp := post.At(gp.x).Prob(nil, 2), post.At(gp.x).LogProb(nil, gp.terms.Y)
	for i := range m {
		wm, wv, _ := predictedMoments(lik, m[i], v[i])
		wq, _ := predictedQuantile(lik, 0.9, m[i], v[i])
		l2 := predictedLogProb(lik, 2, m[i], v[i])
		ly := predictedLogProb(lik, gp.terms.Y[i], m[i], v[i])
		if mean[i] != wm || variance[i] != wv || q[i] != wq || p[i] != math.Exp(l2) || lp[i] != ly {
			t.Fatalf("row %d: %v %v %v %v %v, want %v %v %v %v %v", i, mean[i], variance[i], q[i],
				p[i], lp[i], wm, wv, wq, math.Exp(l2), ly)
		}
	}
}

// TestSaveSparseGP: a loaded posterior gives the same bits, and damage is an error.
func TestSaveSparseGP(t *testing.T) {
	k := Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 2}}, Linear{}}
	gp := toyGP(t, 40, k, StudentT{DF: 4, Scale: 0.3}, 12)
	g, err := NewSparseGP(gp.x, gp.terms.Y, k, likOf(gp.terms), &SparseGPOptions{Rank: 15})
	post, _ := fitSparse(t, mustSparse(t, g, err), nil)
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
	gp.x.Set(0, 0, math.NaN())
	m, v := post.At(gp.x).Latent(nil, nil)
	lm, lv := loaded.At(gp.x).Latent(nil, nil)
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
		s := changed(t, sparseGPFile, file.String(), c.old, c.new)
		if _, err := Load[*SparseGPPosterior](strings.NewReader(s)); !errors.Is(err, c.want) ||
			!errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s for %s: %v, want %v", c.new, c.old, err, c.want)
		}
	}
}

// TestSparseGPUSPS: digits of USPS against the dense GP.
func TestSparseGPUSPS(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short")
	}
	c := gpCases[2]
	s := loadUSPS(t, 3, 5)
	const want = 155.83145279674974 // of the dense posterior, which TestGPOptimum finds
	last := math.Inf(1)
	for _, rank := range []int{50, 100, 300} {
		start := time.Now()
		g, err := NewSparseGP(s.x, s.y,
			SquaredExp{Scale: math.Exp(c.logScale), Length: math.Exp(c.logLength)},
			BernoulliLogit{}, &SparseGPOptions{Rank: rank})
		g = mustSparse(t, g, err)
		setup := time.Since(start)
		post, res := fitSparse(t, g, nil)
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

// TestSparseGPLarge: 20,000 data in one and two dimensions take seconds.
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
		g = mustSparse(t, g, err)
		setup := time.Since(start)
		post, res := fitSparse(t, g, nil)
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

// rawClassifier returns rows with a column of time stamps about t0 beside two of unit size, which
// alone tell of y.
func rawClassifier(n int, t0 float64) (x *mat.Dense, y []float64) {
	rng := testRand(1)
	x, y = mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{t0 + 1e-2*t0*rng.Float64(), rng.NormFloat64(), rng.NormFloat64()})
		y[i] = plusMinus(2*x.At(i, 1)-x.At(i, 2)+0.5*rng.NormFloat64() > 0)
	}
	return x, y
}

// TestSparseRawColumns checks that a column of any size takes nothing from the others: the ELBO is
// that of the dense GP, within the proved bound.
func TestSparseRawColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, t0 := range few([]float64{1.7e9, 1e6, 0, 1e3, 1e8}, 2) {
		for _, k := range []Kernel{
			Linear{Scale: 2.5}, Linear{Scales: []float64{1, 2, 3}},
			Sum{Linear{Scale: 2.5}, Constant{Scale: 3}},
			Product{Constant{Scale: 2}, Linear{Scale: 1.5}},
		} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.1}} {
				x, y := rawClassifier(80, t0)
				linear := k
				if isType[Product](k) { // of which the dense GP does not know the features
					linear = Linear{Scale: 3}
				}
				gp, err := NewGP(x, y, linear, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, dense := mustFit(t, gp, nil)
				kept, err := NewSparseGP(x, y, k, lik, nil)
				kept = mustSparse(t, kept, err)
				given, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Inducing: x})
				given = mustSparse(t, given, err)
				rows, err := NewSparseGPRows(ctx, Rows(x, y), 3, k, lik, nil)
				rows = mustSparse(t, rows, err)
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

// TestSparseRawBeside checks that a linear trend in raw units hides nothing of the function beside
// it: the ELBO is that of the same model with its weights in other units, by which float64 knows
// it.
func TestSparseRawBeside(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	gp := toyGP(t, 60, SquaredExp{}, BernoulliLogit{}, 5)
	y := gp.terms.Y
	raw := mat.NewDense(60, 3, nil)
	rng := testRand(3)
	for i := range y {
		raw.SetRow(i, []float64{gp.x.At(i, 0), gp.x.At(i, 1), 1e9 * rng.NormFloat64()})
	}
	tame := mat.DenseCopyOf(raw)
	for i := range y {
		tame.Set(i, 2, 1e-3*raw.At(i, 2))
	}
	model := func(column, length float64) Kernel {
		return Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 1, length}},
			Linear{Scales: []float64{0.5, 0.5, column}}, Constant{Scale: 2}}
	}
	want, err := NewSparseGP(tame, y, model(1e3, 1e10), BernoulliLogit{},
		&SparseGPOptions{Inducing: tame})
	want = mustSparse(t, want, err)
	wide, err := NewSparseGP(raw, y, model(1, 1e13), BernoulliLogit{},
		&SparseGPOptions{Inducing: raw})
	wide = mustSparse(t, wide, err)
	rows, err := NewSparseGPRows(ctx, Rows(raw, y), 3, model(1, 1e13), BernoulliLogit{},
		&SparseGPOptions{Inducing: raw})
	rows = mustSparse(t, rows, err)
	_, best := fitSparse(t, want, &Solver{Goal: 1e-6})
	for i, g := range []*SparseGP{wide, rows} {
		if g.z.Wholes() != 4 {
			t.Fatalf("model %d sees %d weights whole", i, g.z.Wholes())
		}
		_, res := fitSparse(t, g, nil)
		if short := best.ELBO - res.ELBO; math.Abs(short) > res.GapBound+1e-5 {
			t.Errorf("model %d: ELBO %.8f, want %.8f: %.3g nats, bound %.2g", i, res.ELBO,
				best.ELBO, short, res.GapBound)
		}
	}
}

// TestSparseRowsUnits checks that a model that goes through its rows has the ELBO of one that keeps
// its features, at the same inducing inputs, within the bound that it proves, whatever the units
// are.
func TestSparseRowsUnits(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1e-3, 1, 1e4, 1e5} {
		for _, k := range []Kernel{Linear{}, SquaredExp{Scale: 3, Length: 3 * scale},
			Matern52{Scale: 1e3, Length: 10 * scale},
			Sum{Linear{Scale: 1 / scale}, SquaredExp{Length: scale}}} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 1e-4}} {
				gp := toyGP(t, shorter(150, 60), k, lik, 7)
				gp.x.Scale(scale, gp.x)
				s, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, nil)
				s = mustSparse(t, s, err)
				z := s.Inducing()
				kept, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, &SparseGPOptions{Inducing: z})
				kept = mustSparse(t, kept, err)
				_, want := fitSparse(t, kept, nil)
				_, res := fitSparse(t, streamed(t, gp, z), nil)
				short := want.ELBO - res.ELBO
				// and what features round
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

// TestSparseJitterBound checks that the bound of a model whose inducing inputs have a jitter counts
// what that costs.
func TestSparseJitterBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, noise := range []float64{1e-2, 1e-5, 1e-7} {
		gp := toyGP(t, 60, SquaredExp{Scale: 3, Length: 2}, GaussianNoise{Var: noise}, 7)
		z := gp.x.Slice(0, 40, 0, 2).(*mat.Dense)
		plain := streamed(t, gp, z)
		_, want := fitSparse(t, plain, nil)
		g := streamed(t, gp, z)
		v := sparse.Undivided(kernelOf(gp.kernel))
		if err := g.settle(nil, v.Factored(nil, mat.DenseCopyOf(z))); err != nil {
			t.Fatal(err)
		}
		_, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		short := want.ELBO - res.ELBO
		t.Logf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		if short > res.GapBound+res.ELBOErr+want.ELBOErr+1e-9 ||
			short > 1e-3 && !(res.GapBound < 1e4*short) {
			t.Errorf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		}
	}
}
