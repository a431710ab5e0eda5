package pgsvi

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// waves returns n rows in one dimension whose labels follow a smooth function.
func waves(n int) (x *mat.Dense, y []float64) {
	rng := testRand(2)
	x, y = mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = plusMinus(rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))))
	}
	return x, y
}

// TestSparseGPNotKept checks that a SparseGP whose features take more memory than they may goes through its rows, with
// the answers of one that keeps them, and that all its methods answer.
func TestSparseGPNotKept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := waves(30_000)
	k := SquaredExp{Scale: 3, Length: 1.5}
	kept, err := NewSparseGP(x, y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 50})
	kept = mustSparse(t, kept, err)
	g, err := NewSparseGP(x, y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 50, MaxMemory: 15e6})
	g = mustSparse(t, g, err)
	if kept.rows != nil || g.rows == nil || g.lin.x != nil {
		t.Fatal("the wrong one goes through its rows")
	}
	if g.Len() != 30_000 || g.Rank() > 50 || math.Abs(g.Residual()-kept.Residual()) > 1e-3 {
		t.Errorf("%d rows, rank %d, residual %g, kept %g", g.Len(), g.Rank(), g.Residual(), kept.Residual())
	}
	want, a := fitSparse(t, kept, nil)
	post, b := fitSparse(t, g, nil)
	if d := a.ELBO - b.ELBO; math.Abs(d) > a.GapBound+b.GapBound+1e-3 {
		t.Errorf("ELBO %v, kept %v: bounds %g and %g", b.ELBO, a.ELBO, b.GapBound, a.GapBound)
	}
	at := mat.NewDense(5, 1, []float64{0, 2, 5, 9.9, 30})
	m, v := post.At(at).Latent(nil, nil)
	wm, wv := want.At(at).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]-wm[i]) > 0.02*math.Sqrt(wv[i]) || math.Abs(math.Log(v[i]/wv[i])) > 0.02 {
			t.Errorf("row %d is %g ± %g, kept %g ± %g", i, m[i], v[i], wm[i], wv[i])
		}
	}
	if loo, err := g.LOO(ctx, post); err != nil || len(loo.Pointwise) != 30_000 {
		t.Errorf("LOO: %v", err)
	}
	for _, s := range []*Solver{{StepSize: ConstantStep(0.1), BatchSize: 100, MaxPasses: 1}, {Divergence: ReverseKL{}}} {
		if _, _, err := g.Fit(ctx, s); err == nil || !strings.Contains(err.Error(), "MaxMemory") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if testing.Short() {
		return
	}
	learned, _, l, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if learned.rows == nil || learned.x == nil || !(l.Fit.ELBO > b.ELBO) {
		t.Errorf("learned ELBO %v after %v", l.Fit.ELBO, b.ELBO)
	}
	if moved, err := g.MoveInducing(ctx, 3); err != nil || moved.x == nil {
		t.Errorf("moved: %v", err)
	}
}

// TestSparseGPNotKeptLOO checks that rows that are not kept as features are left out as those that are.
func TestSparseGPNotKeptLOO(t *testing.T) {
	gp := toyGP(t, 60, SquaredExp{}, BernoulliLogit{}, 3)
	z := gp.x.Slice(0, 10, 0, 2)
	kept, err := NewSparseGP(gp.x, gp.terms.y, gp.kernel, BernoulliLogit{}, &SparseGPOptions{Inducing: z})
	kept = mustSparse(t, kept, err)
	g := &SparseGP{lik: kept.lik, opt: kept.opt, x: kept.x, terms: kept.terms, rows: rowSourceOf(kept.x, kept.terms)}
	if err := g.pass(nil, gp.kernel); err != nil {
		t.Fatal(err)
	}
	post, _ := fitSparse(t, kept, nil)
	a, err := kept.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Pointwise, b.Pointwise) {
		t.Errorf("log-probabilities %v, kept %v", b.Pointwise, a.Pointwise)
	}
	if _, err := streamed(t, gp, z).LOO(context.Background(), post); !errors.Is(err, ErrParam) {
		t.Errorf("LOO of rows that are gone: %v", err)
	}
}

// TestSparseGPManyRows checks that a SparseGP of many rows takes little memory without being told to, and is the same
// on any number of cores.
func TestSparseGPManyRows(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("slow")
	}
	x, y := waves(80_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var elbo [2]float64
	for i, procs := range []int{1, 2} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			g, err := NewSparseGP(x, y, SquaredExp{Scale: 3, Length: 1.5}, BernoulliLogit{}, nil)
			g = mustSparse(t, g, err)
			_, res := fitSparse(t, g, nil)
			elbo[i] = res.ELBO
			if g.rows == nil || !(g.Residual() < 1e-2) {
				t.Errorf("rank %d, residual %g, kept: %v", g.Rank(), g.Residual(), g.rows == nil)
			}
		}()
	}
	runtime.ReadMemStats(&after)
	if elbo[0] != elbo[1] {
		t.Errorf("ELBO %v on one core, %v on two", elbo[0], elbo[1])
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 400e6 {
		t.Errorf("%d bytes for two fits", took)
	}
}
