package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestSolverOfWorkersAlone: a Solver whose options are zero, and one that has workers alone, run as none does, in every model.
func TestSolverOfWorkersAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 8))
	x, y := mat.NewDense(40, 2, nil), make([]float64, 40)
	for i := range y {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = 1 - 2*float64(i%2)
	}
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
			m, err := NewGLM(x, y, BernoulliLogit{}, nil)
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
