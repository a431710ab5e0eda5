package gp

import (
	"context"
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"

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
		"SquaredExp.Length": {Mean: 0.5, SD: 0.7, Shared: 1}, "GaussianNoise.Var": {Mean: 0, SD: 3}}}
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
		if strings.Contains(said, "too few") != (c.remedy != "") || !strings.Contains(said, c.remedy) {
			t.Errorf("%+v: warnings %q", c, said)
		}
		if p := l.Params[1]; !(p.Value > c.lengths[0] && p.Value < c.lengths[1]) {
			t.Errorf("%+v: %s is %v", c, p.Name, p.Value)
		}
	}
}
