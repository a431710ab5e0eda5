package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestSolverOfWorkersAlone: a Solver whose options are zero, and one that has workers alone, run as none does, in every model.
func TestSolverOfWorkersAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 8))
	draw := func(n, d int) (*mat.Dense, []float64) {
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		for i := range y {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = 1 - 2*float64(i%2)
		}
		return x, y
	}
	// Enough for linear algebra and expectations to be shared, but in short tests of the GP.
	x, y := draw(shorter(560, 40), 2)
	wide, labels := draw(560, 110)
	c := &Corpus{Terms: 12}
	for range 40 {
		d := Document{}
		for v := rng.IntN(3); v < c.Terms; v += 1 + rng.IntN(3) {
			d.Words, d.Counts = append(d.Words, v), append(d.Counts, float64(1+rng.IntN(4)))
		}
		c.Docs = append(c.Docs, d)
	}
	fits := map[string]func(s *Solver) (*Result, error){
		"GP": func(s *Solver) (*Result, error) {
			m, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"SparseGP": func(s *Solver) (*Result, error) {
			m, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 5})
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"GLM": func(s *Solver) (*Result, error) {
			m, err := NewGLM(wide, labels, BernoulliLogit{}, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"CTM": func(s *Solver) (*Result, error) {
			m, err := NewCTM(c, 3, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"Mixture": func(s *Solver) (*Result, error) {
			m, err := NewMixture(wide.Slice(0, 200, 0, 3), 4, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"LDA": func(s *Solver) (*Result, error) {
			m, err := NewLDA(c, 3, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
	}
	for name, fit := range fits {
		var want *Result
		for _, s := range []*Solver{nil, {}, {Workers: 1}, {Workers: 3}} {
			res, err := fit(s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want == nil {
				want = res
			}
			if res.Passes != want.Passes || res.K != want.K || res.Status != want.Status || math.Float64bits(res.ELBO) != math.Float64bits(want.ELBO) {
				t.Errorf("%s with %+v: %v passes, ELBO %v, %v; with nil %v, %v, %v", name, s, res.Passes, res.ELBO, res.Status, want.Passes, want.ELBO, want.Status)
			}
		}
	}
}

// TestFunctionsOneAtATime: a function that need not be safe for concurrent use is called by one goroutine at a time unless Workers
// says otherwise, and by several where it does.
func TestFunctionsOneAtATime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	prior := NewIsotropic(2, 1)
	for _, workers := range []int{0, 1, 3} {
		var inside, most atomic.Int64
		ll := LogLik{N: 30, Dim: 2, LogProb: func(n int, z []float64) float64 {
			if now := inside.Add(1); now > most.Load() {
				most.Store(now)
			}
			runtime.Gosched()
			inside.Add(-1)
			return -0.5 * (z[0] - float64(n%3)) * (z[0] - z[1])
		}}
		m := Objective[*Gaussian]{F: Expect(ll, nil), H: KLTo(prior), Init: prior}
		if _, _, err := m.Fit(context.Background(), &Solver{Workers: workers, MaxIter: 3}); err != nil {
			t.Fatal(err)
		}
		if n := most.Load(); workers < 2 && n > 1 || workers > 1 && n < 2 {
			t.Errorf("%d workers: %d calls at once", workers, n)
		}
	}
}
