package linear

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
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

// plainELBO computes the ELBO of a diagonal q directly.
func plainELBO(lin *site.LinearModel, mean, v []float64) float64 {
	var s float64
	d := len(lin.Names)
	row := make([]float64, d)
	for i := range lin.Terms.Len() {
		lin.X.Dense1(row, i)
		var m, q float64
		for j, x := range row {
			m += x * mean[j]
			q += x * x * v[j]
		}
		s += lin.Terms.Expectation(i, m, q).Value
	}
	prior, err := lin.Prior.State()
	if err != nil {
		return math.NaN()
	}
	kl := -prior.LogDet - float64(d)
	for i := range d {
		kl += prior.P[i*d+i]*v[i] - math.Log(v[i])
		for j := range d {
			kl += dense.SymmetricAt(prior.P, d, i, j) * mean[i] * mean[j]
		}
	}
	return s - 0.5*kl
}

func TestStructuredOptimum(t *testing.T) {
	x, y := testkit.StructuredData(40, 5, 1)
	prior, err := NewGaussian([]float64{1, 0, -1, 0, 2},
		mat.NewSymDense(5, []float64{2, .5, 0, 0, 0, .5, 1, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 1, 1, 0,
			0, 0, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []GLMOptions{{}, {Prior: prior}, {PriorSD: 30}} {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{DF: 3}} {
			opt.Covariance = DiagonalCovariance
			g := kit.MustGLM(t, x, y, lik, opt)
			_, res := kit.StructuredFit(t, g, &Solver{Converger: GapBelow(1e-15, 0)})
			mean, cov, _ := kit.AlgOf[site.Weighted](res.Stepper).Weights()
			v, lin := make([]float64, 5), kit.LinearOf(t, g)
			cov.Diag(v)
			if e := plainELBO(lin, mean, v); math.Abs(e-res.ELBO) > 1e-11*math.Abs(e) {
				t.Errorf("%T: ELBO %v, computed anew %v", lik, res.ELBO, e)
			}
			for j := range v {
				for _, p := range [][]float64{mean, v} {
					at, h := p[j], 1e-4*math.Sqrt(v[j])
					if &p[0] == &v[0] {
						h = 1e-4 * v[j]
					}
					p[j] = at + h
					up := plainELBO(lin, mean, v)
					p[j] = at - h
					down := plainELBO(lin, mean, v)
					p[j] = at
					// The tolerance is per standard deviation, or relative.
					if slope := (up - down) / 2e-4; math.Abs(slope) > 2e-6 {
						t.Errorf("%T: slope %v in weight %d", lik, slope, j)
					}
				}
			}
			if opt.Prior != nil {
				continue // the Objective has a full q
			}
			o, err := g.Objective()
			if err != nil {
				t.Fatal(err)
			}
			or, err := (&Solver{MaxPasses: 5000}).Run(context.Background(), o)
			if err != nil || math.Abs(or.ELBO-res.ELBO) > 1e-8*(1+math.Abs(res.ELBO)) {
				t.Errorf("%T: ELBO %v, of the Objective %v (%v, %v)", lik, res.ELBO, or.ELBO,
					or.Status, err)
			}
		}
	}
}

// TestMeanFieldPGStep computes the step of the paper with dense matrices.
func TestMeanFieldPGStep(t *testing.T) {
	x, y := testkit.StructuredData(30, 4, 9)
	for _, update := range []Coordinates{MeanParams, MeanCov} {
		g := kit.MustGLM(t, x, y, BernoulliLogit{},
			GLMOptions{Covariance: DiagonalCovariance, Coordinates: update, PriorSD: 2})
		st, err := g.NewStepper(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		lin := kit.LinearOf(t, g)
		m, prec := make([]float64, 4), []float64{.25, .25, .25, .25}
		const beta, prior = 0.3, 0.25
		const r = 1 / (1 + beta)
		for k, batch := range [][]int{{0, 1, 2}, {3, 17}, nil, {5}} {
			rows := batch
			if batch == nil {
				for i := range y {
					rows = append(rows, i)
				}
			}
			alpha, gamma := make([]float64, 4), make([]float64, 4)
			scale := float64(len(y)) / float64(len(rows))
			for _, i := range rows {
				var eta, v float64
				for j := range m {
					eta += x.At(i, j) * m[j]
					v += x.At(i, j) * x.At(i, j) / prec[j]
				}
				e := ExpectLogProb(BernoulliLogit{}, y[i], eta, v)
				for j := range m {
					alpha[j] -= scale * e.D1 * x.At(i, j)
					gamma[j] -= scale * e.D2 * x.At(i, j) * x.At(i, j)
				}
			}
			for j := range m {
				next := r*prec[j] + (1-r)*(prior+gamma[j])
				metric := next
				if update == MeanCov {
					metric = (1-r)*prior + r*prec[j]
				}
				m[j] -= (1 - r) / metric * (prior*m[j] + alpha[j])
				prec[j] = next
			}
			if _, err := st.Step(context.Background(), nil, batch, beta); err != nil {
				t.Fatal(err)
			}
			mean, cov, _ := kit.AlgOf[site.Weighted](st).Weights()
			v := make([]float64, 4)
			cov.Diag(v)
			for j := range m {
				if math.Abs(mean[j]-m[j]) > 1e-12 || math.Abs(v[j]*prec[j]-1) > 1e-12 {
					t.Errorf("step %d, weight %d: N(%v, %v), want N(%v, %v)", k, j, mean[j], v[j],
						m[j], 1/prec[j])
				}
			}
			if e, _ := kit.ElboOf(st, nil); math.Abs(e-plainELBO(lin, mean,
				v)) > 1e-11*math.Abs(e) {
				t.Errorf("ELBO %v, computed anew %v", e, plainELBO(lin, mean, v))
			}
		}
		// A run with a step size approaches the optimum, and a run without one continues from
		// there.
		_, want := kit.StructuredFit(t, g, nil)
		res, err := (&Solver{StepSize: ConstantStep(0.5), MaxPasses: 100}).Resume(
			context.Background(), &Result{Stepper: st})
		if err != nil || math.Abs(res.ELBO-want.ELBO) > 1e-3 {
			t.Errorf("%v: ELBO %v with a step size, %v without (%v)", update, res.ELBO, want.ELBO,
				err)
		}
		if res, err = (&Solver{}).Resume(context.Background(), &Result{Stepper: st}); err != nil ||
			math.Abs(res.ELBO-want.ELBO) > 1e-9 || res.Status != Converged {
			t.Errorf("ELBO %v after both, %v at once (%v, %v)", res.ELBO, want.ELBO, res.Status,
				err)
		}
	}
}

// TestLowRankCov compares every method with a dense inverse.
func TestLowRankCov(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	const d, k = 7, 3
	c := gauss.NewLowRank(d, k)
	p := mat.NewSymDense(d, nil)
	for j := range c.D {
		c.D[j] = 0.5 + rng.Float64()
		for a := range k {
			c.U[j*k+a] = rng.NormFloat64()
		}
	}
	for i := range d {
		for j := range i + 1 {
			v := floats.Dot(c.U[i*k:(i+1)*k], c.U[j*k:(j+1)*k])
			if i == j {
				v += c.D[i]
			}
			p.SetSym(i, j, v)
		}
	}
	if !c.Factor() {
		t.Fatal("not positive definite")
	}
	var chol mat.Cholesky
	chol.Factorize(p)
	var want mat.SymDense
	if err := chol.InverseTo(&want); err != nil {
		t.Fatal(err)
	}
	if got := chol.LogDet(); math.Abs(got-c.LogDet) > 1e-12 {
		t.Errorf("log determinant %v, want %v", c.LogDet, got)
	}
	if !mat.EqualApprox(c.Sym(), &want, 1e-12) {
		t.Error("sym")
	}
	diag := make([]float64, d)
	c.Diag(diag)
	x, _ := testkit.StructuredData(9, d, 12)
	index := []int{4, 0, 8}
	for _, g := range []*design.Matrix{kit.DesignOf(t, x), kit.DesignOf(t, SparseOf(x))} {
		v := make([]float64, len(index))
		c.Variances(v, g, index)
		for a, i := range index {
			row := x.RowView(i)
			if q := mat.Inner(row, &want, row); math.Abs(v[a]-q) > 1e-12 {
				t.Errorf("variance of row %d is %v, want %v", i, v[a], q)
			}
		}
	}
	s, err := c.State(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !mat.EqualApprox(dense.FullSym(s.P, d), p, 1e-12) || math.Abs(s.LogDet-c.LogDet) > 1e-12 {
		t.Error("state")
	}
	const draws = 200000
	sum := mat.NewSymDense(d, nil)
	for range draws {
		w := make([]float64, d)
		if err := c.Draw(w, rng); err != nil {
			t.Fatal(err)
		}
		sum.SymRankOne(sum, 1./draws, mat.NewVecDense(d, w))
	}
	for i := range d {
		if math.Abs(diag[i]-want.At(i, i)) > 1e-12 {
			t.Errorf("variance of weight %d is %v, want %v", i, diag[i], want.At(i, i))
		}
		for j := range i + 1 {
			e := math.Sqrt((want.At(i, i)*want.At(j, j) + want.At(i, j)*want.At(i, j)) / draws)
			if diff := sum.At(i, j) - want.At(i, j); math.Abs(diff) > 5*e {
				t.Errorf("covariance (%d, %d) of draws is off by %.1f standard errors", i, j,
					diff/e)
			}
		}
	}
}

// TestLowRankGradient compares the gradient in (log e, U) with differences.
func TestLowRankGradient(t *testing.T) {
	x, y := testkit.StructuredData(40, 6, 13)
	lin := kit.LinearOf(t, kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{}))
	f := site.NewLowRankFamily([]float64{1, 2, 3, 1, 2, 3}, 2)
	rng := rand.New(rand.NewPCG(1, 14))
	delta, w := make([]float64, f.Size()), make([]float64, len(y))
	for i := range delta {
		delta[i] = rng.NormFloat64()
	}
	for i := range w {
		w[i] = rng.Float64()
	}
	f.Move(1, delta)
	f.Accept()
	a := &site.WeightHessian{X: lin.X, Prior: &lin.Prior}
	a.Set(w)
	value := func(i int, h float64) float64 {
		e := make([]float64, f.Size())
		e[i] = h
		f.Move(1, e)
		v := make([]float64, len(y))
		f.Variances(v, lin.X, &design.Work{})
		return f.Divergence(&lin.Prior) + 0.5*floats.Dot(w, v)
	}
	grad := make([]float64, f.Size())
	f.Gradient(grad, a)
	for i, want := range grad {
		if got := (value(i, 1e-5) - value(i,
			-1e-5)) / 2e-5; math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("coordinate %d: %v, by differences %v", i, want, got)
		}
	}
}

func readA9a(t testing.TB) (*Sparse, []float64) {
	t.Helper()
	in := bufio.NewScanner(testkit.Open(t, filepath.Join(testkit.SharedData(t), "a9a", "a9a.gz")))
	x := NewSparse(123)
	var y []float64
	for in.Scan() {
		fields := strings.Fields(in.Text())
		label, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		var ind []int
		var val []float64
		for _, f := range fields[1:] {
			a, b, _ := strings.Cut(f, ":")
			j, err1 := strconv.Atoi(a)
			v, err2 := strconv.ParseFloat(b, 64)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			ind, val = append(ind, j-1), append(val, v)
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y = append(y, label)
	}
	return x, y
}

func TestStructuredA9a(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	x, y := readA9a(t)
	full, _ := kit.StructuredFit(t, kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{}), nil)
	const optimum = 10724.99614504753
	for _, c := range []struct {
		opt      GLMOptions
		gap, off float64 // nats below the full optimum, with tolerance
		ratio    float64 // mean ratio of the sds to the sds of the full fit, to 0.05
	}{
		{GLMOptions{Covariance: DiagonalCovariance}, 51.70, 0.05, 0.495},
		{GLMOptions{Covariance: LowRankCovariance}, 16.88, 0.5, 0.645}, // a local optimum
	} {
		start := time.Now()
		p, res := kit.StructuredFit(t, kit.MustGLM(t, x, y, BernoulliLogit{}, c.opt), nil)
		var ratio, least float64 = 0, 1
		sd, fullSD := p.SD(nil), full.SD(nil)
		for j := range sd {
			ratio += sd[j] / fullSD[j] / float64(len(sd))
			least = math.Min(least, sd[j]/fullSD[j])
		}
		t.Logf("%v: %.4f nats below, sd ratio %.3f (least %.3f), %v passes, %v", c.opt.Covariance,
			-res.ELBO-optimum, ratio, least, res.Passes, time.Since(start))
		if gap := -res.ELBO - optimum; !(math.Abs(gap-c.gap) <= c.off &&
			math.Abs(ratio-c.ratio) <= 0.05) {
			t.Errorf("%v: %v nats below the full optimum, want %v; sd ratio %v, want %v",
				c.opt.Covariance, gap, c.gap, ratio, c.ratio)
		}
	}
	const n = 6000
	few := NewSparse(123)
	for row := range part(Rows(x, y), 0, n) {
		if err := few.Append(row.Ind, row.Val); err != nil {
			t.Fatal(err)
		}
	}
	_, res := kit.StructuredFit(t,
		kit.MustGLM(t, few, y[:n], BernoulliLogit{},
			GLMOptions{Covariance: DiagonalCovariance, PriorSD: 1000}), nil)
	t.Logf("wide prior: %v passes, %v", res.Passes, res.Elapsed)
}

// TestDirectMetric checks that conjugate gradients with the factor, over the weights or over the
// rows, solve equations of nearly collinear columns in a handful of iterations.
func TestDirectMetric(t *testing.T) {
	for _, c := range []struct {
		rows, cols int
		dual       bool
	}{{50, 30, false}, {20, 40, false}, {20, 400, true}} {
		rng := rand.New(rand.NewPCG(11, uint64(c.cols)))
		x, y := mat.NewDense(c.rows, c.cols, nil), make([]float64, c.rows)
		for i := range c.rows {
			for j := range c.cols {
				x.Set(i, j, 1e4+rng.NormFloat64())
			}
		}
		lin := kit.LinearOf(t, kit.MustGLM(t, x, y, GaussianNoise{},
			GLMOptions{PriorSD: 10, Covariance: DiagonalCovariance}))
		w := make([]float64, c.rows)
		for i := range w {
			w[i] = math.Exp(2 * rng.NormFloat64())
		}
		a := &site.WeightHessian{X: lin.X, Prior: &lin.Prior}
		a.Set(w)
		want, r, got := make([]float64, c.cols), make([]float64, c.cols), make([]float64, c.cols)
		for j := range want {
			want[j] = rng.NormFloat64()
		}
		a.Mul(r, want, 1)
		if !a.Direct() || a.Dual != c.dual {
			t.Fatalf("%d×%d: factor: %v, over the rows: %v", c.rows, c.cols, a.Exact, a.Dual)
		}
		whole, left := 0.5*floats.Dot(want, r), 0.0
		// The factor over the rows has fewer digits, so the remainder is solved repeatedly. Each
		// time reduces it to a fortieth, also if products are fused.
		for range 7 {
			a.Solve(got, r)
			floats.Sub(want, got)
			a.Mul(r, want, 1)
			left = 0.5 * floats.Dot(r, want)
		}
		if !(math.Abs(left) < 1e-9*whole) {
			t.Errorf("%d×%d: %.3g nats left of %.3g", c.rows, c.cols, left, whole)
		}
	}
}

// TestCovMul compares Vx with V for each form of the covariance.
func TestCovMul(t *testing.T) {
	x := mat.NewDense(6, 2100, nil)
	rng := testkit.Rand(3)
	y := make([]float64, 6)
	for i := range y {
		y[i] = 3 * rng.NormFloat64()
		for j := range 2100 {
			x.Set(i, j, 0.1*rng.NormFloat64())
		}
	}
	type fit struct {
		p   *GLMPosterior
		res *Result
	}
	fits := map[string]fit{}
	dual := func(name string, lik Likelihood, y []float64) {
		g, err := NewGLM(x, y, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fits[name] = fit{post, res}
	}
	dual("dual", GaussianNoise{}, y)
	dual("dual, not concave", StudentT{DF: 1, Scale: 0.05}, []float64{9, -9, 8, 1, 0, 5})
	few, labels := testkit.StructuredData(40, 5, 1)
	for _, c := range []Covariance{FullCovariance, DiagonalCovariance, LowRankCovariance} {
		g := kit.MustGLM(t, few, labels, BernoulliLogit{}, GLMOptions{Covariance: c, Rank: 2})
		p, res := kit.StructuredFit(t, g, nil)
		fits[c.String()] = fit{p, res}
	}
	for name, f := range fits {
		d := f.p.Dim()
		z := make([]float64, d)
		for j := range z {
			z[j] = rng.NormFloat64()
		}
		got, want := make([]float64, d), mat.NewVecDense(d, nil)
		_, cov, err := kit.AlgOf[site.Weighted](f.res.Stepper).Weights()
		if err != nil {
			t.Fatal(err)
		}
		cov.Mul(got, z)
		want.MulVec(f.p.Cov(), mat.NewVecDense(d, z))
		if e := testkit.MaxRel(got, want.RawVector().Data); !(e < 1e-10) {
			t.Errorf("%s: Vx is off by %v", name, e)
		}
	}
}
