package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/blas"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// A glmProblem is the data of a logistic regression.
type glmProblem struct {
	name string
	x    mat.Matrix
	y    []float64
}

// glmProblems returns dense and sparse generated rows and, if PGSVI_DATA is set, a9a.
func glmProblems(b *testing.B) []glmProblem {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	dense, y := mat.NewDense(50000, 50, nil), make([]float64, 50000)
	sparse, ys := pgsvi.NewSparse(200), make([]float64, 50000)
	for i := range y {
		row := dense.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		y[i] = sign(rng, row[0]-0.5*row[1])
		ind, val := make([]int, 10), make([]float64, 10)
		for k := range ind {
			ind[k], val[k] = 20*k+rng.IntN(20), 1
		}
		if err := sparse.Append(ind, val); err != nil {
			b.Fatal(err)
		}
		ys[i] = sign(rng, float64(ind[0])/10-1)
	}
	ps := []glmProblem{{"dense", dense, y}, {"sparse", sparse, ys}}
	if dir := os.Getenv("PGSVI_DATA"); dir != "" {
		f, err := os.Open(filepath.Join(dir, "a9a", "a9a.gz"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		x, y, err := data.ReadLIBSVM(f, 0)
		if err != nil {
			b.Fatal(err)
		}
		ps = append(ps, glmProblem{"a9a", x, y})
	}
	return ps
}

// sign draws −1 or +1 with log odds eta.
func sign(rng *rand.Rand, eta float64) float64 {
	if rng.Float64() < 1/(1+math.Exp(-eta)) {
		return 1
	}
	return -1
}

// gram returns a function that times one XᵀX.
func gram(x mat.Matrix) func() time.Duration {
	f := blas.Gram(x)
	return func() time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
}

// BenchmarkGLM times one step on all rows, a whole fit, a streaming pass and predictions, in units
// of one XᵀX.
func BenchmarkGLM(b *testing.B) {
	ctx := context.Background()
	for _, p := range glmProblems(b) {
		n, d := p.x.Dims()
		g, err := pgsvi.NewGLM(p.x, p.y, pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		xtx := gram(p.x)
		report := func(b *testing.B, f func()) {
			each, unit := inTurn(b, xtx, f)
			b.ReportMetric(each/unit, "XtX")
			b.ReportMetric(each/float64(n), "ns/row")
		}
		b.Run(p.name+"/step", func(b *testing.B) {
			res, err := (&pgsvi.Solver{MaxPasses: 3}).Run(ctx, g)
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			env := &pgsvi.Env{Rng: rng}
			report(b, func() {
				if _, err := res.Stepper.Step(context.Background(), env, nil,
					math.Inf(1)); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(p.name+"/fit", func(b *testing.B) {
			var passes float64
			report(b, func() {
				_, res, err := g.Fit(ctx, nil)
				if err != nil {
					b.Fatal(err)
				}
				passes = res.Passes
			})
			b.ReportMetric(passes, "passes")
		})
		b.Run(p.name+"/stream", func(b *testing.B) {
			report(b, func() {
				s, err := pgsvi.NewGLMStream(d, pgsvi.BernoulliLogit{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := s.AddAll(ctx, pgsvi.Rows(p.x, p.y)); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Posterior(); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(p.name+"/predict", func(b *testing.B) {
			post, _, err := g.Fit(ctx, nil)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float64, n)
			report(b, func() { post.At(p.x).Prob(dst, 1) })
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
