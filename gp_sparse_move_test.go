package pgsvi

import (
	"context"
	"errors"
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// moveCases are kernels with derivatives in their inputs, and without.
func moveCases() map[string]Kernel {
	return map[string]Kernel{
		"SquaredExp": SquaredExp{Scale: 1.2, Length: 0.8},
		"ARD":        Matern52{Scale: 1.1, Lengths: []float64{0.7, 1.4}},
		"sum":        Sum{RationalQuadratic{Length: 0.9}, Linear{}, White{Scale: 0.1}},
		"product":    Product{Matern32{Length: 2}, Periodic{Period: 3, Length: 1.5}},
	}
}

// The gradient in the inducing inputs is that of the ELBO at the best q, by differences.
func TestMoveGradient(t *testing.T) {
	t.Parallel()
	for name, k := range moveCases() {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{DF: 4, Scale: 0.5}} {
			gp := toyGP(t, shorter(40, 15), k, lik, 4)
			g := streamed(t, gp, gp.x.Slice(0, 5, 0, 2))
			m := &inducingMove{kernel: k, unit: []float64{1, 1}, pass: sparsePass{rows: g.rows, lik: g.lik, workers: crew{1, nil}}}
			m.slopes = &sparseSlopes{kernel: k, p: &m.pass, steps: []float64{1e-5, 1e-5}}
			elbo := func(z *mat.Dense) float64 {
				p := &sparsePass{rows: g.rows, lik: g.lik, workers: crew{1, nil}}
				p.z = newFactored(nil, k, z)
				a := sparseAscent{pass: p}
				a.start(priorWeights(5))
				for range 200 {
					if err := a.move(); err != nil {
						t.Fatal(err)
					}
					if a.gap() < 1e-10 || a.stuck() {
						break
					}
				}
				return a.look.elbo
			}
			z := mat.DenseCopyOf(g.z.x)
			x, err := m.at(z, priorWeights(5))
			if err != nil || x == nil {
				t.Fatalf("%s, %T: %v", name, lik, err)
			}
			for i := range x.grad {
				const h = 1e-4
				up, down := mat.DenseCopyOf(z), mat.DenseCopyOf(z)
				up.Set(i/2, i%2, z.At(i/2, i%2)+h)
				down.Set(i/2, i%2, z.At(i/2, i%2)-h)
				want := (elbo(up) - elbo(down)) / (2 * h)
				if math.Abs(x.grad[i]-want) > 2e-2*(0.1+floats.Norm(x.grad, math.Inf(1))) {
					t.Errorf("%s, %T: derivative in element %d is %v, by differences %v", name, lik, i, x.grad[i], want)
				}
			}
		}
	}
}

// Moved inducing inputs have a larger ELBO, never a smaller one, wherever they start: equal, outside of the data, more than there are rows.
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
	for trial := range shorter(12, 3) {
		lik := []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.1}}[trial%3]
		gp := toyGP(t, shorter(150, 40), SquaredExp{Length: 0.7}, lik, uint64(trial+1))
		z := mat.DenseCopyOf(gp.x.Slice(0, 6, 0, 2))
		switch trial / 3 {
		case 1:
			z.SetRow(1, z.RawRowView(0))
		case 2:
			z.SetRow(2, []float64{40, -40})
		case 3:
			gp = toyGP(t, 4, SquaredExp{}, lik, 3)
		}
		kept, err := NewSparseGP(gp.x, gp.terms.y, gp.kernel, lik, &SparseGPOptions{Inducing: z})
		kept = mustSparse(t, kept, err)
		for _, g := range []*SparseGP{kept, streamed(t, gp, z)} {
			moved, err := g.MoveInducing(ctx, shorter(20, 6))
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
	if !testing.Short() { // more rows than a sample keeps
		x, y := longRows(sampleRows + 100)
		g, err := NewSparseGPRows(ctx, Rows(x, y), 1, SquaredExp{Length: 0.4}, BernoulliLogit{}, &SparseGPOptions{Rank: 6})
		g = mustSparse(t, g, err)
		moved, err := g.MoveInducing(ctx, 4)
		if err != nil {
			t.Fatal(err)
		}
		if before, after := elbo(g), elbo(moved); !(after > before+10) || moved.Len() != g.Len() || moved.Rank() != 6 {
			t.Errorf("%d rows: ELBO %v, moved %v", g.Len(), before, after)
		}
	}
	g := streamed(t, toyGP(t, 30, SquaredExp{}, BernoulliLogit{}, 3), mat.NewDense(2, 2, []float64{0, 1, 1, 0}))
	if _, err := g.MoveInducing(ctx, -1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.MoveInducing(stop, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
