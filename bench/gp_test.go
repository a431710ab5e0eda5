package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// factorise times one Cholesky factorization of k.
func factorise(k *mat.SymDense) time.Duration {
	var c mat.Cholesky
	start := time.Now()
	if !c.Factorize(k) {
		panic("not positive definite")
	}
	return time.Since(start)
}

// BenchmarkGPFit times a fit without options, from the data to a given accuracy: to within 0.001
// nats per observation, to within 1e-6 nats, and to the end. The unit is one Cholesky factorization
// of the same N, measured in turn with the fits. Times include the computation of K.
func BenchmarkGPFit(b *testing.B) {
	for _, p := range problems(b) {
		b.Run(p.Name, func(b *testing.B) {
			ctx := context.Background()
			_, best, err := p.GP.Fit(ctx, nil)
			if err != nil {
				b.Fatal(err)
			}
			k := p.Cov()
			n := float64(len(p.Y))
			var rough, fine []time.Duration
			var passes, roughPasses, finePasses float64
			end, u := inTurn(b, func() time.Duration { return factorise(k) }, func() {
				start := time.Now()
				var r, f time.Duration
				s := pgsvi.Solver{Record: func(it pgsvi.Iteration) {
					excess := best.ELBO - it.ELBO // NaN if not evaluated
					if r == 0 && excess < 1e-3*n {
						r, roughPasses = time.Since(start), it.Passes
					}
					if f == 0 && excess < 1e-6 {
						f, finePasses = time.Since(start), it.Passes
					}
				}}
				_, res, err := p.GP.Fit(ctx, &s)
				if err != nil {
					b.Fatal(err)
				}
				rough, fine = append(rough, r), append(fine, f)
				passes = res.Passes
			})
			b.ReportMetric(median(rough)/u, "chol/1e-3-per-datum")
			b.ReportMetric(median(fine)/u, "chol/1e-6-nats")
			b.ReportMetric(end/u, "chol/end")
			b.ReportMetric(roughPasses, "passes/1e-3-per-datum")
			b.ReportMetric(finePasses, "passes/1e-6-nats")
			b.ReportMetric(passes, "passes/end")
			b.ReportMetric(u/1e6, "ms/chol")
		})
	}
}

// BenchmarkGPStep times the three types of steps after a first pass: a pass of block steps, an
// accepted batch step, and a mini-batch step of PG-SVI as published. It counts the allocations of
// each after warm-up.
func BenchmarkGPStep(b *testing.B) {
	for _, p := range problems(b) {
		n := len(p.Y)
		blocks := func(size int) [][]int {
			order := rand.New(rand.NewPCG(1, 1)).Perm(n)
			return slices.Collect(slices.Chunk(order, size))
		}
		for _, c := range []struct {
			name   string
			first  [][]int // batches of a first pass
			steps  [][]int // batches to time, divided by count
			beta   float64
			count  int
			allocs int // steps before the benchmark counts allocations
		}{
			{"block-pass", blocks(32), slices.Repeat(blocks(32), 3), math.Inf(1), 3, 100},
			{"batch", [][]int{nil}, make([][]int, 8), math.Inf(1), 8, 20},
			{"PG-SVI", blocks(5), blocks(5)[:10], 2 / float64(n), 10, 10},
		} {
			b.Run(p.Name+"/"+c.name, func(b *testing.B) {
				k := p.Cov()
				rng := rand.New(rand.NewPCG(1, 1))
				env := &pgsvi.Env{Rng: rng}
				var unit, step []time.Duration
				var st pgsvi.Stepper
				do := func(batches [][]int) {
					for _, batch := range batches {
						if _, err := st.Step(context.Background(), env, batch, c.beta); err != nil {
							b.Fatal(err)
						}
					}
				}
				for b.Loop() {
					var err error
					if st, err = p.GP.NewStepper(context.Background(), nil, nil); err != nil {
						b.Fatal(err)
					}
					do(c.first)
					start := time.Now()
					do(c.steps)
					d := time.Since(start)
					step = append(step, d/time.Duration(c.count))
					unit = append(unit, lasting(d, func() time.Duration { return factorise(k) }))
				}
				for i := range c.allocs {
					do(c.steps[i%len(c.steps):][:1])
				}
				i := 0
				allocs := testing.AllocsPerRun(3, func() { do(c.steps[i:][:1]); i++ })
				b.ReportMetric(median(step)/median(unit), "chol/step")
				b.ReportMetric(allocs, "allocs/step")
				b.ReportMetric(0, "ns/op") // hides the time of a whole run
			})
		}
	}
}

// BenchmarkGPPredict times the latent mean and variance of 1000 new points, and their covariances
// with the training points, which it includes. The unit is the triangular solve that the variances
// need, which runs on one core. BenchmarkGPEvaluate times an evaluation after a block step,
// including its gap bound, in units of a Cholesky factorization of K. In passes 3 to 5 of a run a
// gap bound may take another factorization, which the benchmark does not show.
func BenchmarkGPEvaluate(b *testing.B) {
	for _, p := range problems(b) {
		b.Run(p.Name, func(b *testing.B) {
			ctx, env := context.Background(), pgsvi.NewEnv(nil, 1)
			st, err := p.GP.NewStepper(ctx, env, nil)
			if err != nil {
				b.Fatal(err)
			}
			const size = 32
			n := st.Len()
			block, at := make([]int, 0, size), 0
			step := func() {
				block = block[:0]
				for range min(size, n) {
					block = append(block, at%n)
					at++
				}
				if _, err := st.Step(ctx, env, block, math.Inf(1)); err != nil {
					b.Fatal(err)
				}
			}
			for range 8 * n / size {
				step()
			}
			var evaluations, factors []time.Duration
			var c mat.Cholesky
			cov := p.Cov()
			for b.Loop() {
				step()
				start := time.Now()
				if _, err := st.Evaluate(ctx, env); err != nil {
					b.Fatal(err)
				}
				evaluations = append(evaluations, time.Since(start))
				factors = append(factors,
					lasting(evaluations[len(evaluations)-1], func() time.Duration {
						start := time.Now()
						c.Factorize(cov)
						return time.Since(start)
					}))
			}
			b.ReportMetric(median(evaluations)/median(factors), "cholesky/evaluation")
		})
	}
}

func BenchmarkGPPredict(b *testing.B) {
	for _, p := range problems(b) {
		b.Run(p.Name, func(b *testing.B) {
			post, _, err := p.GP.Fit(context.Background(), nil)
			if err != nil {
				b.Fatal(err)
			}
			n, d := p.X.Dims()
			test, _ := p.XTest.Dims()
			const rows = 1000
			x := mat.NewDense(rows, d, nil)
			for i := range rows {
				x.SetRow(i, p.XTest.RawRowView(i%test))
			}
			var c mat.Cholesky
			c.Factorize(p.Cov())
			var l mat.TriDense
			c.LTo(&l)
			rhs := mat.NewDense(n, rows, nil)
			for i := range n {
				for j := range rows {
					rhs.Set(i, j, float64(i%7)-float64(j%5))
				}
			}
			work := mat.NewDense(n, rows, nil)
			mean, variance := make([]float64, rows), make([]float64, rows)
			var solve, predict, kernel []time.Duration
			cross := mat.NewDense(n, rows, nil)
			for b.Loop() {
				work.Copy(rhs)
				start := time.Now()
				blas64.Trsm(blas.Left, blas.NoTrans, 1, l.RawTriangular(), work.RawMatrix())
				solve = append(solve, time.Since(start))
				start = time.Now()
				post.At(x).Latent(mean, variance)
				predict = append(predict, time.Since(start))
				start = time.Now()
				pgsvi.CrossCov(cross, p.Kernel(), p.X, x)
				kernel = append(kernel, time.Since(start))
			}
			b.ReportMetric(median(predict)/median(solve), "trsm/predict")
			b.ReportMetric(median(kernel)/median(solve), "trsm/kernel")
			b.ReportMetric(rows/median(predict)*1e9, "rows/s")
		})
	}
}
