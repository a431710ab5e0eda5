package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// The gradient at the best q is that of the ELBO at the best q, by differences, whatever kernel and likelihood are.
func TestSparseLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range learnCases() {
		gp := c.model(t, shorter(60, 20))
		g := streamed(t, gp, gp.x.Slice(0, 6, 0, 2))
		l, err := g.Learner(nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := &sparseLearning{rows: l.rows, space: l.space, fixed: g.z.x, stages: []int{l.rows.n}, rate: naturalRate}
		m.use(crew{1, nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64, slopes bool) learnPoint {
			x, err := m.evaluate(theta, 1e-12, math.Inf(1), slopes)
			if err != nil || math.IsInf(x.f, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.f, err)
			}
			return x
		}
		x := at(theta, true)
		m.keep(false)
		for i := range theta {
			const h = 1e-4
			diff := func(h float64) float64 {
				v := theta[i]
				defer func() { theta[i] = v }()
				theta[i] = v + h
				up := at(theta, false).f
				theta[i] = v - h
				return (up - at(theta, false).f) / (2 * h)
			}
			want := (4*diff(h) - diff(2*h)) / 3
			if math.Abs(x.grad[i]-want) > 1e-5*(1+floats.Norm(x.grad, 2)) {
				t.Errorf("%s: derivative in %s is %v, by differences %v", c.name, l.space.coords[l.space.free[i]].Name, x.grad[i], want)
			}
		}
		var e mat.EigenSym
		if !e.Factorize(x.info, false) || e.Values(nil)[0] < -1e-6*e.Values(nil)[len(theta)-1] {
			t.Errorf("%s: the average information is not positive semidefinite", c.name)
		}
	}
}

// sparseTruth returns the rows, inducing inputs and the reference of the regression of truth/sparse_reg.json.
func sparseTruth(t testing.TB) (x *mat.Dense, y []float64, z *mat.Dense, ref struct {
	Theta     []float64 `json:"log_params"`
	ELBO      float64   `json:"elbo"`
	Objective float64   `json:"objective"`
	Fixed     struct {
		Theta []float64 `json:"log_params"`
		ELBO  float64   `json:"elbo"`
	} `json:"fixed"`
}) {
	t.Helper()
	readTruthJSON(t, "sparse_reg.json", &ref)
	table := func(name string, cols int) (*mat.Dense, []float64) {
		columns := readTruth(t, name)
		x := mat.NewDense(len(columns[0]), cols, nil)
		for j := range cols {
			x.SetCol(j, columns[j])
		}
		return x, columns[len(columns)-1]
	}
	x, y = table("sparse_reg_data.csv", 8)
	rest, _ := table("sparse_reg_z.csv", 8) // which has no header: its first line, the first of the rows, is taken for one
	z = new(mat.Dense)
	z.Stack(x.Slice(0, 1, 0, 8), rest)
	return x, y, z, ref
}

// The sparse bound is that of the reference at fixed hyper-parameters, of features that are kept or not, and the objective that is learned is the reference's.
func TestSparseTruth(t *testing.T) {
	t.Parallel()
	x, y, z, ref := sparseTruth(t)
	ctx := context.Background()
	model := func(theta []float64) (Kernel, Likelihood) {
		v := make([]float64, len(theta))
		for i, u := range theta {
			v[i] = math.Exp(u)
		}
		return SquaredExp{Scale: v[0], Lengths: v[1:9]}, GaussianNoise{Var: v[9] * v[9]}
	}
	opt := &SparseGPOptions{Inducing: z}
	for _, c := range []struct {
		theta []float64
		elbo  float64
	}{{ref.Fixed.Theta, ref.Fixed.ELBO}, {ref.Theta, ref.ELBO}} {
		k, lik := model(c.theta)
		kept, err := NewSparseGP(x, y, k, lik, opt)
		kept = mustSparse(t, kept, err)
		rows, err := NewSparseGPRows(ctx, Rows(x, y), 8, k, lik, opt)
		rows = mustSparse(t, rows, err)
		for i, g := range []*SparseGP{kept, rows} {
			_, res, err := g.Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := res.ELBO - c.elbo; math.Abs(d) > []float64{1e-8, 1e-4}[i] {
				t.Errorf("ELBO %.9f, reference %.9f: %.3g", res.ELBO, c.elbo, d)
			}
		}
	}
	if testing.Short() {
		return
	}
	prior := &LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {0, 1.5, 0}, "SquaredExp.Length": {0.5, 0.7, 1}, "GaussianNoise.Var": {0, 3, 0}}}
	k := SquaredExp{Lengths: make([]float64, 8)}
	kept, err := NewSparseGP(x, y, k, GaussianNoise{}, opt)
	kept = mustSparse(t, kept, err)
	rows, err := NewSparseGPRows(ctx, Rows(x, y), 8, k, GaussianNoise{}, opt)
	rows = mustSparse(t, rows, err)
	for _, g := range []*SparseGP{kept, rows} {
		got, post, learned, err := g.Learn(ctx, nil, prior)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("objective %.6f, %.3g above the reference, in %d evaluations, %.1f passes; %v", learned.Objective, learned.Objective+ref.Objective, learned.Evaluations, learned.Passes, learned.Warnings)
		if !(learned.Objective <= -ref.Objective+1e-3) {
			t.Errorf("objective %.6f, reference %.6f", learned.Objective, -ref.Objective)
		}
		if d := learned.Fit.ELBO + learned.LogPrior + learned.Objective; math.Abs(d) > 2e-3 || post.Len() != 2000 || got.Rank() != 50 {
			t.Errorf("ELBO %v and log prior %v, objective %v; rank %d", learned.Fit.ELBO, learned.LogPrior, learned.Objective, got.Rank())
		}
	}
}

// A search in stages that is canceled, saved and loaded ends with the same bits as one that is not, on any number of workers.
func TestSparseLearnResume(t *testing.T) {
	t.Parallel()
	n := shorter(2*firstStage+100, 300)
	x, y := longRows(n)
	ctx := context.Background()
	opt := &LearnOptions{Restarts: 1, Tol: 0.01}
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 8})
	g = mustSparse(t, g, err)
	_, want, all, err := g.Learn(ctx, nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Learner(opt)
	if err != nil {
		t.Fatal(err)
	}
	now, stop := context.WithCancel(ctx)
	s := &Solver{Recorder: RecorderFunc(func(it Iteration) {
		if it.K == 4 {
			stop()
		}
	})}
	// It has a posterior where that takes less than lastMoment, which on a busy machine it may not.
	if _, early, so, err := g.Learn(now, s, opt); !errors.Is(err, context.Canceled) || so.Fit != nil {
		t.Errorf("canceled after 4: %v, posterior %v, fit %v", err, early != nil, so.Fit)
	}
	if len(all.Starts) != 2 || all.Evaluations < 8 || all.Fit.Status != Converged || all.Fit.Scope != OverQ {
		t.Fatalf("starts %v, %d evaluations, %v, %v", all.Starts, all.Evaluations, all.Fit.Status, all.Fit.Scope)
	}
	for _, at := range []int{2, all.Search.K - 1} {
		sub, cancel := context.WithCancel(ctx)
		s := &Solver{Workers: 3, Recorder: RecorderFunc(func(it Iteration) {
			if it.K == at {
				cancel()
			}
		})}
		res, err := s.Run(sub, l)
		if !errors.Is(err, context.Canceled) || res.K != at {
			t.Fatalf("canceled after %d: %v", at, err)
		}
		cancel()
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatal(err)
		}
		s = &Solver{}
		if res, err = s.LoadResult(ctx, &file, l); err != nil {
			t.Fatal(err)
		}
		if res, err = s.Resume(ctx, res); err != nil {
			t.Fatal(err)
		}
		_, post, got, err := l.Learned(ctx, s, res)
		if err != nil {
			t.Fatal(err)
		}
		if got.Objective != all.Objective || got.Evaluations != all.Evaluations || got.Passes != all.Passes || !slices.Equal(post.mean, want.mean) {
			t.Errorf("resumed after %d: objective %v in %d evaluations, want %v in %d", at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
		}
	}
}

// Of more rows than a sample keeps the stages come near the objective of a search that is exact, in a few passes.
func TestSparseLearnRows(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("seconds")
	}
	n := sampleRows + 10_000
	x, y := longRows(n)
	ctx := context.Background()
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, Matern52{}, BernoulliLogit{}, &SparseGPOptions{Rank: 15})
	g = mustSparse(t, g, err)
	_, post, learned, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("objective %.3f in %d evaluations, %.2f passes; %v", learned.Objective, learned.Evaluations, learned.Passes, learned.Fit.Evaluation)
	if learned.Passes > 15 || post.Len() != n || learned.Cholesky != 0 {
		t.Errorf("%v passes", learned.Passes)
	}
	exact, err := NewSparseGPRows(ctx, Rows(x, y), 1, Matern52{}, BernoulliLogit{}, &SparseGPOptions{Inducing: post.z.x})
	exact = mustSparse(t, exact, err)
	_, _, best, err := exact.Learn(ctx, nil, &LearnOptions{Tol: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range best.Params {
		t.Logf("%s %v ± %v, exact %v", p.Name, learned.Params[i].Value, learned.Params[i].SD, p.Value)
	}
	t.Logf("exact: objective %.3f in %d evaluations, %.2f passes", best.Objective, best.Evaluations, best.Passes)
	if d := learned.Objective - best.Objective; d > 5e-5*float64(n) {
		t.Errorf("objective %v, %v nats above the best", learned.Objective, d)
	}
}

// Stages of a part of the rows are in the sample, which of wide rows has fewer than the first.
func TestSparseLearnStages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, sample int
		want         []int
	}{
		{1_000_000, sampleRows, []int{firstStage, sampleRows, 1_000_000}},
		{100_000, sampleRows, []int{firstStage, 25_000, 100_000}},
		{6010, sampleOf(8000), []int{1000, 6010}},
		{200_000, sampleOf(2700), []int{2961, 200_000}},
		{1500, sampleOf(8000), []int{1500}},
		{500, 500, []int{500}},
	} {
		if got := sparseStages(c.rows, c.sample); !slices.Equal(got, c.want) {
			t.Errorf("%d rows, of which %d are kept: stages %v, want %v", c.rows, c.sample, got, c.want)
		}
	}
}

// Whatever the data are there is an answer: wide scales, equal rows, labels that are all one, inducing inputs that are equal or far outside, and
// fewer rows than these.
func TestSparseLearnAnything(t *testing.T) {
	t.Parallel()
	rng := testRand(21)
	ctx := context.Background()
	liks := []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{}, StudentT{DF: 4}}
	for trial := range shorter(60, 8) {
		n, d, m := 3+rng.IntN(40), 1+rng.IntN(3), 1+rng.IntN(12)
		lik := liks[trial%len(liks)]
		x, y, z := mat.NewDense(n, d, nil), make([]float64, n), mat.NewDense(m, d, nil)
		unit := math.Exp(12*rng.Float64() - 6)
		constant := rng.IntN(4) == 0
		for i := range n {
			for j := range d {
				x.Set(i, j, unit*rng.NormFloat64())
			}
			if i > 0 && rng.IntN(3) == 0 {
				x.SetRow(i, x.RawRowView(i-1))
			}
			f := math.Sin(2*x.At(i, 0)/unit) + 0.3*rng.NormFloat64()
			switch lik.(type) {
			case BernoulliLogit:
				y[i] = plusMinus(f > 0 || constant)
			case Poisson:
				y[i] = math.Floor(math.Exp(2*f) + 0.5)
			default:
				y[i] = f * math.Exp(6*rng.Float64()-3)
			}
			if constant {
				y[i] = 1
			}
		}
		for i := range m {
			for j := range d {
				z.Set(i, j, unit*float64(1+9*(trial%2))*rng.NormFloat64())
			}
			if i > 0 && rng.IntN(4) == 0 {
				z.SetRow(i, z.RawRowView(i-1))
			}
		}
		opt := &SparseGPOptions{Inducing: z}
		if trial%3 == 0 {
			opt = &SparseGPOptions{Rank: m}
		}
		var lengths []float64
		if trial%5 == 0 {
			lengths = make([]float64, d)
		}
		k := Matern52{Lengths: lengths}
		kept, err := NewSparseGP(x, y, k, lik, opt)
		kept = mustSparse(t, kept, err)
		rows, err := NewSparseGPRows(ctx, Rows(x, y), d, k, lik, opt)
		rows = mustSparse(t, rows, err)
		for _, g := range []*SparseGP{kept, rows} {
			_, post, learned, err := g.Learn(ctx, nil, nil)
			if err != nil {
				t.Errorf("trial %d, %T, %d×%d, %d inducing inputs, unit %.3g: %v", trial, lik, n, d, m, unit, err)
				continue
			}
			if learned.Fit == nil { // equal rows: the noise falls and falls
				if learned.Search.Status != PassLimit || factsOf(lik).LogConcave {
					t.Errorf("trial %d, %T: search ended as %v after %d evaluations", trial, lik, learned.Search.Status, learned.Evaluations)
				}
				continue
			}
			// Student's t has several optima, of which that of the search is one.
			if diff := learned.Fit.ELBO + learned.LogPrior + learned.Objective; !(diff > -0.01) || diff > 0.2 && factsOf(lik).LogConcave {
				t.Errorf("trial %d, %T: ELBO %v and log prior %v, objective %v: %v", trial, lik, learned.Fit.ELBO, learned.LogPrior, learned.Objective, diff)
			}
			m, v := post.At(x).Latent(nil, nil)
			for i := range m {
				if math.IsNaN(m[i]) || !(v[i] >= 0) {
					t.Fatalf("trial %d: row %d is %v ± %v", trial, i, m[i], v[i])
				}
			}
		}
	}
}

// What is wrong is said, and what to do.
func TestSparseLearnErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	gp := toyGP(t, 30, SquaredExp{}, BernoulliLogit{}, 3)
	g := streamed(t, gp, gp.x.Slice(0, 4, 0, 2))
	_, _, _, err := g.Learn(ctx, nil, &LearnOptions{Fixed: []string{"SquaredExp.Width"}})
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), `"SquaredExp.Width", the parameters are SquaredExp.Scale, SquaredExp.Length`) {
		t.Errorf("a parameter that there is not: %v", err)
	}
	if _, _, _, err = g.Learn(ctx, &Solver{Divergence: ReverseKL{}}, nil); !errors.Is(err, ErrNoProx) {
		t.Errorf("another divergence: %v", err)
	}
	l, err := g.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err = l.Learned(ctx, nil, &Result{Stepper: badStepper{}}); !errors.Is(err, ErrParam) {
		t.Errorf("another run: %v", err)
	}
	_, _, fixed, err := g.Learn(ctx, nil, &LearnOptions{Fixed: []string{"SquaredExp.Length"}})
	if err != nil || !fixed.Params[1].Fixed || fixed.Params[1].Value != 1 {
		t.Errorf("%v: %v", err, fixed)
	}
	if testing.Short() {
		return
	}
	x, y := longRows(sampleRows + 10)
	left := 2 // times that the rows can be read
	rows := func(yield func(Row, error) bool) {
		if left--; left >= 0 {
			iter.Seq2[Row, error](Rows(x, y))(yield)
		}
	}
	if g, err = NewSparseGPRows(ctx, rows, 1, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 3}); err != nil {
		t.Fatal(err)
	}
	left = 0
	if _, _, _, err = g.Learn(ctx, nil, nil); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "an iterator over what is read once is not") {
		t.Errorf("rows that are read once: %v", err)
	}
}
