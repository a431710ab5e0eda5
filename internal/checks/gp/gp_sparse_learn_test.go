package gp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"

	"github.com/pgsvi/pgsvi/internal/sparse"
	"gonum.org/v1/gonum/mat"
)

// sparseTruth returns the rows, the inducing inputs and the reference values of the regression in
// truth/sparse_reg.json.
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
	testkit.ReadTruthJSON(t, "sparse_reg.json", &ref)
	table := func(name string, cols int) (*mat.Dense, []float64) {
		columns := testkit.ReadTruth(t, name)
		x := mat.NewDense(len(columns[0]), cols, nil)
		for j := range cols {
			x.SetCol(j, columns[j])
		}
		return x, columns[len(columns)-1]
	}
	x, y = table("sparse_reg_data.csv", 8)
	// The file has no header, so its first row is read as the header.
	rest, _ := table("sparse_reg_z.csv", 8)
	z = new(mat.Dense)
	z.Stack(x.Slice(0, 1, 0, 8), rest)
	return x, y, z, ref
}

// TestSparseTruth compares the sparse bound at fixed hyperparameters, and the learned objective,
// with the reference, for features that are kept and for features that are not.
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
		kept = kit.MustSparse(t, kept, err)
		rows, err := NewSparseGPRows(ctx, Rows(x, y), 8, k, lik, opt)
		rows = kit.MustSparse(t, rows, err)
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
	prior := &LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {Mean: 0, SD: 1.5},
		"SquaredExp.Length": {Mean: 0.5, SD: 0.7, Shared: 1}, "GaussianNoise.Var": {Mean: 0,
			SD: 3}}}
	k := SquaredExp{Lengths: make([]float64, 8)}
	kept, err := NewSparseGP(x, y, k, GaussianNoise{}, opt)
	kept = kit.MustSparse(t, kept, err)
	rows, err := NewSparseGPRows(ctx, Rows(x, y), 8, k, GaussianNoise{}, opt)
	rows = kit.MustSparse(t, rows, err)
	for _, g := range []*SparseGP{kept, rows} {
		got, post, learned, err := g.Learn(ctx, nil, prior)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("objective %.6f, %.3g above the reference, in %d evaluations, %.1f passes; %v",
			learned.Objective, learned.Objective+ref.Objective, learned.Evaluations, learned.Passes,
			learned.Warnings)
		if !(learned.Objective <= -ref.Objective+1e-3) {
			t.Errorf("objective %.6f, reference %.6f", learned.Objective, -ref.Objective)
		}
		if d := learned.Fit.ELBO + learned.LogPrior + learned.Objective; math.Abs(d) > 2e-3 ||
			post.Len() != 2000 || got.Rank() != 50 {
			t.Errorf("ELBO %v and log prior %v, objective %v; rank %d", learned.Fit.ELBO,
				learned.LogPrior, learned.Objective, got.Rank())
		}
	}
}

// TestSparseLearnTooFew checks that too few inducing inputs for a rough function get a warning with
// a remedy, and that enough inputs get no warning.
func TestSparseLearnTooFew(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range []struct {
		span    float64 // of 500 rows with a function of length scale 5
		rank    int
		inputs  bool // the inducing inputs are given
		start   float64
		remedy  string
		lengths [2]float64 // range of the learned length scale
	}{
		{1000, 150, false, 0, "raise SparseGPOptions.Rank", [2]float64{6, 30}},
		{2500, 250, true, 0, "add to SparseGPOptions.Inducing", [2]float64{6, 30}},
		{2500, 500, false, 0, "start from a shorter length scale", [2]float64{6, 30}},
		{2500, 500, false, 5, "", [2]float64{4, 6}},
		{1000, 0, false, 0, "", [2]float64{4, 6}},
		{100, 50, false, 0, "", [2]float64{4, 6}},
		{500, 0, false, 0, "", [2]float64{4, 6}},
	} {
		rng := testkit.Rand(48)
		x := mat.NewDense(500, 1, nil)
		for i := range 500 {
			x.Set(i, 0, c.span*rng.Float64())
		}
		y := drawGP(rng, SquaredExp{Length: 5}, x, 0.1)
		opt := &SparseGPOptions{Rank: c.rank}
		if c.inputs {
			opt = &SparseGPOptions{Inducing: mat.DenseCopyOf(x.Slice(0, c.rank, 0, 1))}
		}
		g, err := NewSparseGP(x, y, SquaredExp{Length: c.start}, GaussianNoise{}, opt)
		_, _, l, err := kit.MustSparse(t, g, err).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(l.Warnings, "; ")
		if strings.Contains(said, "too few") != (c.remedy != "") || !strings.Contains(said,
			c.remedy) {
			t.Errorf("%+v: warnings %q", c, said)
		}
		if p := l.Params[1]; !(p.Value > c.lengths[0] && p.Value < c.lengths[1]) {
			t.Errorf("%+v: %s is %v", c, p.Name, p.Value)
		}
	}
}

// latentBits returns the predictions of p at the rows of x with every digit.
func latentBits(p *SparseGPPosterior, x mat.Matrix) string {
	m, v := p.At(x).Latent(nil, nil)
	return fmt.Sprint(m, v)
}

// TestSparseLearnResume checks that a search in stages that is canceled, saved and loaded has the
// same bits at its end as an uninterrupted search, for any number of workers.
func TestSparseLearnResume(t *testing.T) {
	t.Parallel()
	n := testkit.Shorter(6100, 300)
	x, y := testkit.LongRows(n)
	ctx := context.Background()
	opt := &LearnOptions{Restarts: 1, Tol: 0.01}
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, SquaredExp{}, BernoulliLogit{},
		&SparseGPOptions{Rank: 8})
	g = kit.MustSparse(t, g, err)
	_, want, all, err := g.Learn(ctx, nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Learner(opt)
	if err != nil {
		t.Fatal(err)
	}
	now, stop := context.WithCancel(ctx)
	s := &Solver{Record: func(it Iteration) {
		if it.K == 4 {
			stop()
		}
	}}
	if _, early, so, err := g.Learn(now, s, opt); !errors.Is(err, context.Canceled) ||
		early == nil || so.Fit != nil {
		t.Errorf("canceled after 4: %v, posterior %v, fit %v", err, early != nil, so.Fit)
	}
	if len(all.Starts) != 2 || all.Evaluations < 8 || all.Fit.Status != Converged ||
		all.Fit.Scope != OverQ {
		t.Fatalf("starts %v, %d evaluations, %v, %v", all.Starts, all.Evaluations, all.Fit.Status,
			all.Fit.Scope)
	}
	for _, at := range []int{2, all.Search.K - 1} {
		sub, cancel := context.WithCancel(ctx)
		s := &Solver{Workers: 3, Record: func(it Iteration) {
			if it.K == at {
				cancel()
			}
		}}
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
		if got.Objective != all.Objective || got.Evaluations != all.Evaluations ||
			got.Passes != all.Passes || latentBits(post, x) != latentBits(want, x) {
			t.Errorf("resumed after %d: objective %v in %d evaluations, want %v in %d", at,
				got.Objective, got.Evaluations, all.Objective, all.Evaluations)
		}
	}
}

// TestSparseLearnRows checks that the stages come near the objective of an exact search within a
// few passes, if there are more rows than a sample holds.
func TestSparseLearnRows(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	n := sparse.SampleRows + 10_000
	x, y := testkit.LongRows(n)
	ctx := context.Background()
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, Matern52{}, BernoulliLogit{},
		&SparseGPOptions{Rank: 15})
	g = kit.MustSparse(t, g, err)
	_, post, learned, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("objective %.3f in %d evaluations, %.2f passes; %v", learned.Objective,
		learned.Evaluations, learned.Passes, learned.Fit.Evaluation)
	if learned.Passes > 15 || post.Len() != n || learned.Cholesky != 0 {
		t.Errorf("%v passes", learned.Passes)
	}
	exact, err := NewSparseGPRows(ctx, Rows(x, y), 1, Matern52{}, BernoulliLogit{},
		&SparseGPOptions{Inducing: post.Inducing()})
	exact = kit.MustSparse(t, exact, err)
	_, _, best, err := exact.Learn(ctx, nil, &LearnOptions{Tol: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range best.Params {
		t.Logf("%s %v ± %v, exact %v", p.Name, learned.Params[i].Value, learned.Params[i].SD,
			p.Value)
	}
	t.Logf("exact: objective %.3f in %d evaluations, %.2f passes", best.Objective, best.Evaluations,
		best.Passes)
	if d := learned.Objective - best.Objective; d > 5e-5*float64(n) {
		t.Errorf("objective %v, %v nats above the best", learned.Objective, d)
	}
}

// TestSparseLearnRank checks that the number of inducing inputs suits the learned kernel. It must
// be much larger than for the kernel at the start, and many more inducing inputs must not improve
// the objective by more than their tolerated cost.
func TestSparseLearnRank(t *testing.T) {
	t.Parallel()
	n := testkit.Shorter(8000, 3000)
	x, y := testkit.Wiggly(n, 2, 0.15)
	ctx := context.Background()
	learn := func(rank int) (*SparseGP, *Learned) {
		g, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: rank})
		g, _, l, err := kit.MustSparse(t, g, err).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, l
	}
	few, learned := learn(0)
	most, best := learn(400)
	t.Logf("%d inducing inputs: %v; %d: %v", few.Rank(), learned.Objective, most.Rank(),
		best.Objective)
	if few.Rank() > most.Rank()*3/4 {
		t.Errorf("%d inducing inputs", few.Rank())
	}
	// plus the tolerance of the searches
	const each = 1e-4 + 1e-4 // per row: of the inducing inputs and of the search
	if d, may := learned.Objective-best.Objective, 1+3*each*float64(n); d > may {
		t.Errorf("%d inducing inputs: objective %v nats above that of %d; %v allowed", few.Rank(),
			d,
			most.Rank(), may)
	}
}

// TestSparseLearnErrors checks that errors name the problem and the remedy.
func TestSparseLearnErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tx, ty := kit.ToyRows(30, BernoulliLogit{}, 3)
	g := kit.StreamRows(t, tx, ty, SquaredExp{}, BernoulliLogit{}, tx.Slice(0, 4, 0, 2))
	_, _, _, err := g.Learn(ctx, nil, &LearnOptions{Fixed: []string{"SquaredExp.Width"}})
	if !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(),
			`"SquaredExp.Width", which is not a parameter; use one of SquaredExp.Scale, SquaredExp.Length`) {
		t.Errorf("an unknown parameter: %v", err)
	}
	if _, _, _, err = g.Learn(ctx, &Solver{Divergence: ReverseKL()}, nil); !errors.Is(err,
		ErrNoProx) {
		t.Errorf("another divergence: %v", err)
	}
	l, err := g.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err = l.Learned(ctx, nil, &Result{Stepper: badStepper{}}); !errors.Is(err,
		ErrParam) {
		t.Errorf("another run: %v", err)
	}
	_, _, fixed, err := g.Learn(ctx, nil, &LearnOptions{Fixed: []string{"SquaredExp.Length"}})
	if err != nil || !fixed.Params[1].Fixed || fixed.Params[1].Value != 1 {
		t.Errorf("%v: %v", err, fixed)
	}
	if testing.Short() {
		return
	}
	x, y := testkit.LongRows(sparse.SampleRows + 10)
	left := 2 // number of times that the rows can still be read
	rows := func(yield func(Row, error) bool) {
		if left--; left >= 0 {
			iter.Seq2[Row, error](Rows(x, y))(yield)
		}
	}
	if g, err = NewSparseGPRows(ctx, rows, 1, SquaredExp{}, BernoulliLogit{},
		&SparseGPOptions{Rank: 3}); err != nil {
		t.Fatal(err)
	}
	left = 0
	if _, _, _, err = g.Learn(ctx, nil, nil); !errors.Is(err, ErrShape) ||
		!strings.Contains(err.Error(), "the iterator must yield the same rows every time") {
		t.Errorf("rows that are read once: %v", err)
	}
}

// TestMoveInducing checks that moved inducing inputs never lower the ELBO, for any start: equal,
// outside of the data, and more inputs than rows.
func TestMoveInducing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	elbo := func(g *SparseGP) float64 {
		_, res, err := g.Fit(ctx, &Solver{Goal: 1e-6})
		if err != nil {
			t.Fatal(err)
		}
		return res.ELBO
	}
	for trial := range testkit.Shorter(12, 3) {
		lik := []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.1}}[trial%3]
		x, y := kit.ToyRows(testkit.Shorter(150, 40), lik, uint64(trial+1))
		k := SquaredExp{Length: 0.7}
		z := mat.DenseCopyOf(x.Slice(0, 6, 0, 2))
		switch trial / 3 {
		case 1:
			z.SetRow(1, z.RawRowView(0))
		case 2:
			z.SetRow(2, []float64{40, -40})
		case 3:
			x, y = kit.ToyRows(4, lik, 3)
			k = SquaredExp{}
		}
		kept, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Inducing: z})
		kept = kit.MustSparse(t, kept, err)
		for _, g := range []*SparseGP{kept, kit.StreamRows(t, x, y, k, lik, z)} {
			moved, err := g.MoveInducing(ctx, testkit.Shorter(20, 6))
			if err != nil {
				t.Fatal(err)
			}
			before, after := elbo(g), elbo(moved)
			t.Logf("trial %d, %T: ELBO %.4f, moved %.4f", trial, lik, before, after)
			if !(after > before-1e-5) || trial < 3 && !(after > before+0.3) {
				t.Errorf("trial %d, %T: ELBO %v, moved %v", trial, lik, before, after)
			}
		}
	}
	if !testing.Short() { // more rows than a sample holds
		x, y := testkit.LongRows(sparse.SampleRows + 100)
		g, err := NewSparseGPRows(ctx, Rows(x, y), 1, SquaredExp{Length: 0.4}, BernoulliLogit{},
			&SparseGPOptions{Rank: 6})
		g = kit.MustSparse(t, g, err)
		moved, err := g.MoveInducing(ctx, 4)
		if err != nil {
			t.Fatal(err)
		}
		if before, after := elbo(g), elbo(moved); !(after > before+10) || moved.Len() != g.Len() ||
			moved.Rank() != 6 {
			t.Errorf("%d rows: ELBO %v, moved %v", g.Len(), before, after)
		}
	}
	x, y := kit.ToyRows(30, BernoulliLogit{}, 3)
	g := kit.StreamRows(t, x, y, SquaredExp{}, BernoulliLogit{},
		mat.NewDense(2, 2, []float64{0, 1, 1, 0}))
	if _, err := g.MoveInducing(ctx, -1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.MoveInducing(stop, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
