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

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// blockData returns rows with one feature each.
func blockData(n, d int) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(2, 7))
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		x.Set(i, i%d, rng.NormFloat64())
		y[i] = float64(2*rng.IntN(2) - 1)
	}
	return x, y
}

func TestStructuredDisjointFeatures(t *testing.T) {
	x, y := blockData(60, 6)
	for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{}, GaussianNoise{}} {
		exact := &Solver{Converger: GapBelow(1e-13, 0)}
		full, fr := kit.StructuredFit(t,
			kit.MustGLM(t, x, y, lik, GLMOptions{Covariance: FullCovariance}),
			exact)
		for _, c := range []Covariance{DiagonalCovariance, LowRankCovariance} {
			p, res := kit.StructuredFit(t,
				kit.MustGLM(t, x, y, lik, GLMOptions{Covariance: c, Rank: 2}),
				exact)
			const tol, sd = 1e-10, 1e-6 // the ELBO is flat
			if math.Abs(res.ELBO-fr.ELBO) > tol*math.Abs(fr.ELBO) {
				t.Errorf("%T, %v: ELBO %v, full %v", lik, c, res.ELBO, fr.ELBO)
			}
			if d := floats.Distance(p.Mean(nil), full.Mean(nil), math.Inf(1)); d > sd {
				t.Errorf("%T, %v: means differ by %v", lik, c, d)
			}
			if d := floats.Distance(p.SD(nil), full.SD(nil), math.Inf(1)); d > sd {
				t.Errorf("%T, %v: standard deviations differ by %v", lik, c, d)
			}
		}
	}
}

func TestLowRankBetweenDiagonalAndFull(t *testing.T) {
	t.Parallel()
	x, y := testkit.StructuredData(150, 8, 3)
	for _, lik := range testkit.Few([]Likelihood{BernoulliLogit{}, BernoulliProbit{}}, 1) {
		_, full := kit.StructuredFit(t,
			kit.MustGLM(t, x, y, lik, GLMOptions{Covariance: FullCovariance}),
			nil)
		_, diag := kit.StructuredFit(t,
			kit.MustGLM(t, x, y, lik, GLMOptions{Covariance: DiagonalCovariance}), nil)
		before := diag.ELBO
		for rank := 1; rank <= 8; rank++ {
			g := kit.MustGLM(t, x, y, lik, GLMOptions{Covariance: LowRankCovariance, Rank: rank})
			_, res := kit.StructuredFit(t, g, &Solver{Goal: 1e-7})
			if res.ELBO < before-1e-6 || res.ELBO > full.ELBO+1e-9 {
				t.Errorf("%T, rank %d: ELBO %v, of rank %d %v, diagonal %v, full %v", lik, rank,
					res.ELBO, rank-1, before, diag.ELBO, full.ELBO)
			}
			before = res.ELBO
			if rank == 1 && !(res.ELBO > diag.ELBO+0.1) {
				t.Errorf("%T: rank 1 has ELBO %v, diagonal %v", lik, res.ELBO, diag.ELBO)
			}
			if rank >= 7 && math.Abs(res.ELBO-full.ELBO) > 1e-6 {
				t.Errorf("%T: rank %d has ELBO %v, full %v", lik, rank, res.ELBO, full.ELBO)
			}
		}
	}
}

func TestStructuredCorpus(t *testing.T) {
	t.Parallel()
	x, y := testkit.StructuredData(80, 6, 4)
	rng := rand.New(rand.NewPCG(5, 5))
	n := len(y)
	counts, big, real, weights, offset := make([]float64, n), make([]float64, n),
		make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		counts[i], big[i], real[i] = float64(rng.IntN(8)), float64(rng.IntN(1000000)),
			5*rng.NormFloat64()
		weights[i], offset[i] = float64(rng.IntN(3)), rng.NormFloat64()
	}
	separable := make([]float64, n)
	collinear := mat.DenseCopyOf(x)
	for i := range n {
		separable[i] = math.Copysign(1, x.At(i, 0)+1e-3)
		collinear.Set(i, 1, 2*x.At(i, 0))
		collinear.Set(i, 2, 0)
	}
	zero := mat.NewDense(n, 6, nil)
	wide, wy := testkit.StructuredData(12, 40, 6)
	prior, err := NewMeanField([]float64{1, -1, 2, 0, 0, 5}, []float64{1, 2, .5, 1, 10, 100})
	if err != nil {
		t.Fatal(err)
	}
	sigma := mat.NewSymDense(6, []float64{2, 1, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
		0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1})
	full, err := NewGaussian([]float64{1, 0, 0, 0, 0, 1}, sigma)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name string
		x    *mat.Dense
		y    []float64
		lik  Likelihood
		opt  GLMOptions
	}{
		{"logit", x, y, BernoulliLogit{}, GLMOptions{}},
		{"probit", x, y, BernoulliProbit{}, GLMOptions{Intercept: true}},
		{"Poisson", x, counts, Poisson{}, GLMOptions{}},
		{"Poisson of many", x, big, Poisson{}, GLMOptions{Intercept: true}},
		{"Poisson, wide prior", x, counts, Poisson{}, GLMOptions{PriorSD: 1000}},
		{"Poisson of many, wide prior", x, big, Poisson{}, GLMOptions{PriorSD: 1000}},
		{"Student t", x, real, StudentT{}, GLMOptions{}},
		{"Student t, wide prior", x, real, StudentT{DF: 2, Scale: 0.1}, GLMOptions{PriorSD: 1000}},
		{"Gaussian", x, real, GaussianNoise{Var: 0.1}, GLMOptions{}},
		{"separable", x, separable, BernoulliLogit{}, GLMOptions{}},
		{"separable, wide prior", x, separable, BernoulliLogit{}, GLMOptions{PriorSD: 1000}},
		{"collinear", collinear, y, BernoulliLogit{}, GLMOptions{}},
		{"collinear, wide prior", collinear, y, BernoulliLogit{}, GLMOptions{PriorSD: 1000}},
		{"zero rows", zero, y, BernoulliLogit{}, GLMOptions{}},
		{"more weights than rows", wide, wy, BernoulliLogit{}, GLMOptions{}},
		{"one row", mat.DenseCopyOf(x.Slice(0, 1, 0, 6)), y[:1], BernoulliLogit{}, GLMOptions{}},
		{"weights and offsets", x, y, BernoulliLogit{},
			GLMOptions{Weights: weights, Offset: offset}},
		{"prior mean", x, y, BernoulliLogit{}, GLMOptions{Prior: prior}},
		{"full prior", x, counts, Poisson{}, GLMOptions{Prior: full}},
	} {
		for j, cov := range []Covariance{DiagonalCovariance, LowRankCovariance} {
			if testing.Short() && (i+j)%2 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", c.name, cov), func(t *testing.T) {
				c.opt.Covariance, c.opt.Rank = cov, 3
				g := kit.MustGLM(t, c.x, c.y, c.lik, c.opt)
				p, res := kit.StructuredFit(t, g, nil)
				if k, ok := dense.AllFinite(p.SD(nil)); !ok {
					t.Errorf("standard deviation of weight %d", k)
				}
				if res.Passes > 300 {
					t.Errorf("%v passes", res.Passes)
				}
				// which has several optima
				if c.name != "zero rows" && c.name != "Student t, wide prior" {
					c.opt.Covariance = FullCovariance
					if _, full, err := kit.MustGLM(t, c.x, c.y, c.lik,
						c.opt).Fit(context.Background(),
						nil); err != nil {
						t.Logf("full: %v", err)
					} else if full.Status == Converged && res.ELBO > full.ELBO+
						1e-8*math.Abs(full.ELBO) {
						t.Errorf("ELBO %v above that of a full covariance, %v", res.ELBO, full.ELBO)
					} else {
						t.Logf("%v passes, ELBO %.6f, full %.6f (%v)", res.Passes, res.ELBO,
							full.ELBO, full.Status)
					}
				}
				sg := kit.MustGLM(t, SparseOf(c.x), c.y, c.lik,
					func() GLMOptions { o := c.opt; o.Covariance = cov; return o }())
				tol := 1e-7 * (1 + math.Abs(res.ELBO))
				if c.name == "separable, wide prior" && cov == LowRankCovariance {
					tol = 1e-2 // rounding decides between two optima
				}
				if _, sr := kit.StructuredFit(t, sg, nil); math.Abs(sr.ELBO-res.ELBO) > tol {
					t.Errorf("ELBO %v, of sparse rows %v", res.ELBO, sr.ELBO)
				}
			})
		}
	}
}

func TestStructuredWorkers(t *testing.T) {
	x, y := testkit.StructuredData(100, 9, 8)
	for _, cov := range []Covariance{DiagonalCovariance, LowRankCovariance} {
		g := kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: cov, Rank: 3})
		var want []float64
		for _, workers := range []int{1, 2, 7} {
			p, res := kit.StructuredFit(t, g, &Solver{Workers: workers})
			got := append(append(p.Mean(nil), p.SD(nil)...), res.ELBO)
			if want == nil {
				want = got
			}
			if !floats.Same(got, want) {
				t.Errorf("%v: other bits with %d workers", cov, workers)
			}
		}
	}
}

func TestStructuredErrors(t *testing.T) {
	x, y := testkit.StructuredData(30, 4, 9)
	for _, c := range []struct {
		cov  Covariance
		rank int
		s    Solver
		want error
		text string
	}{
		{DiagonalCovariance, 0, Solver{BatchSize: 7}, ErrParam, "Solver.BatchSize"},
		{LowRankCovariance, 2, Solver{BatchSize: 7}, ErrParam, "FullCovariance"},
		{LowRankCovariance, 2, Solver{StepSize: ConstantStep(0.1)}, ErrNoProx, "LowRankCovariance"},
	} {
		_, _, err := kit.MustGLM(t, x, y, BernoulliLogit{},
			GLMOptions{Covariance: c.cov, Rank: c.rank}).Fit(context.Background(), &c.s)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v", c.cov, err)
		}
	}
}

func TestStructuredAllocs(t *testing.T) {
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	x, y := testkit.StructuredData(200, 6, 10)
	for _, beta := range []float64{math.Inf(1), 0.1} {
		g := kit.MustGLM(t, SparseOf(x), y, BernoulliLogit{},
			GLMOptions{Covariance: DiagonalCovariance, PriorSD: 100})
		st, _ := g.NewStepper(context.Background(), nil, nil)
		env := NewEnv(nil, 1)
		step := func() {
			if _, err := st.Step(context.Background(), env, nil, beta); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Evaluate(context.Background(), env); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			step()
		}
		if n := testing.AllocsPerRun(5, step); n > 0 {
			t.Errorf("β = %v: %v allocations a step", beta, n)
		}
	}
}

// topicRows returns n rows with k ones each, most of them among the features of one of 25 topics.
func topicRows(n, d, k int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(1, 15))
	x, y := NewSparse(d), make([]float64, n)
	for i := range n {
		seen := map[int]bool{}
		var ind []int
		eta := rng.NormFloat64()
		for topic := rng.IntN(25); len(ind) < k; {
			j := int(float64(d) * rng.Float64() * rng.Float64())
			if rng.IntN(4) > 0 {
				j = topic*(d/25) + int(float64(d/25)*rng.Float64()*rng.Float64())
			}
			if !seen[j] {
				seen[j] = true
				ind = append(ind, j)
				eta += 0.4 * math.Cos(float64(j))
			}
		}
		val := make([]float64, k)
		for l := range val {
			val[l] = 1
		}
		if err := x.Append(ind, val); err != nil {
			panic(err)
		}
		y[i] = math.Copysign(1, eta)
	}
	return x, y
}

func TestLowRankTopics(t *testing.T) {
	t.Parallel()
	x, y := topicRows(2000, 300, 15)
	_, diag := kit.StructuredFit(t,
		kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: DiagonalCovariance}), nil)
	_, full := kit.StructuredFit(t,
		kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: FullCovariance}), nil)
	_, low := kit.StructuredFit(t,
		kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance}), nil)
	if gap := (full.ELBO - low.ELBO) / (full.ELBO - diag.ELBO); !(gap > 0 && gap < 0.6) {
		t.Errorf("ELBO %v, full %v, diagonal %v", low.ELBO, full.ELBO, diag.ELBO)
	}
	if low.Passes > 100 || diag.Passes > 20 {
		t.Errorf("%v and %v passes", low.Passes, diag.Passes)
	}
	t.Logf("ELBO: diagonal %.3f in %v passes, low rank %.3f in %v, full %.3f", diag.ELBO,
		diag.Passes, low.ELBO, low.Passes, full.ELBO)
}

// TestStructuredRandom fits random models of every likelihood.
func TestStructuredRandom(t *testing.T) {
	t.Parallel()
	for seed := range testkit.Longer[uint64](60, testkit.Shorter[uint64](20, 8)) {
		rng := rand.New(rand.NewPCG(seed, 99))
		x, y := testkit.StructuredData(1+rng.IntN(200), 1+rng.IntN(30), seed)
		liks := []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Poisson{},
			StudentT{DF: 1 + 5*rng.Float64(), Scale: math.Exp(2 * rng.NormFloat64())}, Laplace{}}
		lik := liks[rng.IntN(len(liks))]
		for i := range y {
			switch lik.(type) {
			case Poisson:
				y[i] = float64(rng.IntN(int(math.Pow(10, 1+5*rng.Float64()))))
			case StudentT, Laplace:
				y[i] = 3 * rng.NormFloat64()
			}
		}
		opt := GLMOptions{PriorSD: math.Pow(10, 4*rng.Float64()-1), Intercept: rng.IntN(2) == 0,
			Rank: 1 + rng.IntN(6)}
		for _, opt.Covariance = range []Covariance{DiagonalCovariance, LowRankCovariance} {
			_, res := kit.StructuredFit(t, kit.MustGLM(t, x, y, lik, opt), nil)
			if t.Failed() {
				t.Fatalf("seed %d, %T, %+v: %v passes", seed, lik, opt, res.Passes)
			}
		}
	}
}

func BenchmarkDiagonalMillionWeights(b *testing.B) {
	x, y := topicRows(100000, 1000000, 20)
	for b.Loop() {
		kit.StructuredFit(b,
			kit.MustGLM(b, x, y, BernoulliLogit{}, GLMOptions{Covariance: DiagonalCovariance}), nil)
	}
}

func BenchmarkLowRank3000Weights(b *testing.B) {
	x, y := topicRows(20000, 3000, 40)
	for b.Loop() {
		kit.StructuredFit(b,
			kit.MustGLM(b, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance}), nil)
	}
}

// TestDirectDue checks that columns that have much in common take few iterations, because a
// factorization takes over when the iterations have cost as much. This fit takes 63, and 154
// without the factorization.
func TestDirectDue(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 13))
	const groups, levels = 8, 6
	x, y := NewSparse(groups*levels), make([]float64, 3000)
	for i := range y {
		ind, shared, eta := make([]int, groups), rng.IntN(levels), 0.0
		for g := range ind {
			level := shared
			if rng.Float64() < 0.2 {
				level = rng.IntN(levels)
			}
			ind[g] = g*levels + level
			eta += math.Sin(float64(ind[g]))
		}
		if err := x.Append(ind, slices.Repeat([]float64{1}, groups)); err != nil {
			t.Fatal(err)
		}
		y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-eta)))
	}
	_, res := kit.FitGLM(t, kit.MustGLM(t, x, y, BernoulliLogit{},
		GLMOptions{Covariance: DiagonalCovariance, PriorSD: 10}), nil)
	s := kit.AlgOf[*site.FactoredAlgebra](res.Stepper)
	if n := s.Cg.Iterations; res.Status != Converged || n > 80 {
		t.Errorf("%v after %v passes and %d iterations of conjugate gradients", res.Status,
			res.Passes, n)
	}
}
