package gp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/testkit"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestSparseRowsFit checks that a fit that reads its rows in every pass equals a fit with kept
// features.
func TestSparseRowsFit(t *testing.T) {
	t.Parallel()
	k := SquaredExp{Scale: 1.3, Length: 0.9}
	for _, lik := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Poisson{},
		GaussianNoise{Var: 0.04}, StudentT{DF: 4, Scale: 0.3}, Laplace{Scale: 0.3}} {
		x, y := kit.ToyRows(testkit.Shorter(900, 120), lik, 5)
		z, sum := x.Slice(0, 14, 0, 2), Sum{k, White{Scale: 0.2}}
		kept, err := NewSparseGP(x, y, sum, lik, &SparseGPOptions{Inducing: z})
		kept = kit.MustSparse(t, kept, err)
		want, wantRes := kit.FitSparse(t, kept, nil)
		g := kit.StreamRows(t, x, y, sum, lik, z)
		if d := math.Abs(g.Residual() - kept.Residual()); !(d < 1e-6*kept.Residual()) {
			t.Errorf("%T: residual %v, want %v", lik, g.Residual(), kept.Residual())
		}
		post, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-6})
		if err != nil || res.Status != Converged {
			t.Fatalf("%T: %v, %v", lik, res.Status, err)
		}
		if d := wantRes.ELBO - res.ELBO; math.Abs(d) > 3e-5 {
			t.Errorf("%T: ELBO %v, want %v: %g", lik, res.ELBO, wantRes.ELBO, d)
		}
		a, b := post.At(x), want.At(x)
		ma, va := a.Latent(nil, nil)
		mb, vb := b.Latent(nil, nil)
		if d := floats.Distance(ma, mb, math.Inf(1)) + floats.Distance(va, vb,
			math.Inf(1)); d > 1e-2 {
			t.Errorf("%T: predictions differ by %g", lik, d)
		}
		if passes := float64(len(res.Trace) + 1); res.Passes != passes {
			t.Errorf("%T: %v passes, with %d evaluations", lik, res.Passes, len(res.Trace))
		}
	}
}

// TestSparseRowsErrors checks that errors about rows and options name the problem and the remedy.
func TestSparseRowsErrors(t *testing.T) {
	t.Parallel()
	x, y := testkit.LongRows(testkit.Shorter(sparse.SampleRows+10, 20))
	once := func(rows iter.Seq2[Row, error]) iter.Seq2[Row, error] {
		read := false
		return func(yield func(Row, error) bool) {
			if !read {
				read = true
				rows(yield)
			}
		}
	}
	ctx, k := context.Background(), SquaredExp{}
	set := func(rows iter.Seq2[Row, error], opt *SparseGPOptions) error {
		_, err := NewSparseGPRows(ctx, rows, 1, k, BernoulliLogit{}, opt)
		return err
	}
	small, few := x.Slice(0, 20, 0, 1), y[:20]
	nan := mat.DenseCopyOf(small)
	nan.Set(7, 0, math.NaN())
	broken := errors.New("broken")
	for _, c := range []struct {
		err  error
		is   error
		want string
	}{
		{set(nil, nil), ErrEmpty, "rows is nil"},
		{set(Rows(new(mat.Dense), nil), nil), ErrEmpty, "no rows"},
		{set(Rows(nan, few), nil), ErrNotFinite, "row 7, column 0 is NaN"},
		{set(Rows(small, make([]float64, 20)), nil), ErrLabel, "row 0: y = 0"},
		{set(Rows(mat.NewDense(3, 2, nil), []float64{1, 1, 1}), nil), ErrShape,
			"row 0 has 2 values, but the model has 1 columns"},
		{set(func(yield func(Row, error) bool) { yield(Row{}, broken) }, nil), broken, ""},
		{set(Rows(small, few), &SparseGPOptions{Rank: -1}), ErrParam, "Rank"},
		{set(Rows(small, few), &SparseGPOptions{MaxMemory: 1000}), ErrMemory,
			"use a smaller SparseGPOptions.Rank"},
		{set(Rows(small, few), &SparseGPOptions{Inducing: mat.NewDense(2, 2, nil)}), ErrShape,
			"Inducing has 2"},
		{set(Rows(small, few), &SparseGPOptions{Inducing: nan}), ErrNotFinite, "Inducing"},
	} {
		if !errors.Is(c.err, c.is) || !strings.Contains(c.err.Error(), c.want) ||
			c.is != broken && !strings.HasPrefix(c.err.Error(), "pgsvi: ") {
			t.Errorf("%v, want %q and %v", c.err, c.want, c.is)
		}
	}
	g, err := NewSparseGPRows(ctx, once(Rows(x, y)), 1, k, BernoulliLogit{},
		&SparseGPOptions{Rank: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = g.Fit(ctx, nil); !testing.Short() && !errors.Is(err, ErrShape) ||
		err != nil && !strings.Contains(fmt.Sprint(err),
			"the iterator must yield the same rows every time") {
		t.Errorf("rows that are read once: %v", err)
	}
	tx, ty := kit.ToyRows(20, Poisson{}, 1)
	g = kit.StreamRows(t, tx, ty, k, Poisson{}, mat.NewDense(2, 2, []float64{1, 1, 1, 1}))
	if _, _, err = g.Fit(ctx, nil); err != nil {
		t.Errorf("equal inducing inputs: %v", err)
	}
	if _, _, err = g.Fit(ctx, &Solver{StepSize: ConstantStep(0.1)}); !errors.Is(err, ErrParam) {
		t.Errorf("given step sizes: %v", err)
	}
	if _, _, err = g.Fit(ctx, &Solver{Divergence: ReverseKL()}); !errors.Is(err, ErrNoProx) {
		t.Errorf("another divergence: %v", err)
	}
	if _, err = g.Posterior(badStepper{}); !errors.Is(err, ErrParam) {
		t.Errorf("another state: %v", err)
	}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if _, err = NewSparseGPRows(stop, Rows(small, few), 1, k, BernoulliLogit{},
		nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
