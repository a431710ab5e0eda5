package loo

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// TestWeightSamplers checks log p(y, w) − log q(w) of draws, for two forms of V.
func TestWeightSamplers(t *testing.T) {
	const s2 = 0.5
	x, y := []float64{1, 2, -1, 0.5, 3, 1}, []float64{1, -2, 0.5}
	prior := gauss.Prior{Mean: []float64{0.3, -0.2}, Prec: []float64{2, 3}}
	l := &site.LinearModel{
		Terms: &term.Terms{Lik: noise(s2), Y: y},
		X:     &design.Matrix{Rows: 3, Cols: 2, Dense: x},
		Prior: prior,
		Names: []string{"a", "b"},
	}
	// The terms of a linear model are functions of X(w − μ0).
	l.Terms.Offset = make([]float64, 3)
	l.X.Mul(l.Terms.Offset, prior.Mean, nil)
	full := &gauss.Gaussian{}
	full.Resize(2)
	copy(full.P, []float64{5, 0, 1, 4})
	if !full.Factor() {
		t.Fatal("no precision")
	}
	mean := []float64{0.1, 0.4}
	for name, c := range map[string]struct {
		cov  gauss.Cov
		prec [3]float64 // P00, P01, P11
	}{
		"full":     {&gauss.Full{S: full}, [3]float64{5, 1, 4}},
		"diagonal": {gauss.Diagonal{0.25, 0.5}, [3]float64{4, 0, 2}},
	} {
		const draws = 8
		z, r := make([]float64, 2*draws), make([]float64, draws)
		draw := WeightSamplers(t.Context(), l, mean, c.cov)()
		if err := draw(z, r, rand.New(rand.NewPCG(7, 8))); err != nil {
			t.Fatal(err)
		}
		det := c.prec[0]*c.prec[2] - c.prec[1]*c.prec[1]
		constant := 0.5 * math.Log(prior.Prec[0]*prior.Prec[1]/det)
		for s := range draws {
			w := z[2*s : 2*s+2]
			var logp float64
			for n := range y {
				logp += noise(s2).LogProb(y[n], x[2*n]*w[0]+x[2*n+1]*w[1])
			}
			for j, p := range prior.Prec {
				logp -= p * (w[j] - prior.Mean[j]) * (w[j] - prior.Mean[j]) / 2
			}
			a, b := w[0]-mean[0], w[1]-mean[1]
			logp += (c.prec[0]*a*a + 2*c.prec[1]*a*b + c.prec[2]*b*b) / 2
			if off := logp + constant - r[s]; !(math.Abs(off) < 1e-12*(1+math.Abs(logp))) {
				t.Errorf("%s: draw %d is off by %v", name, s, off)
			}
		}
	}
}

// TestResponderRoot checks the answer of sites by a root of the covariances against the covariances.
func TestResponderRoot(t *testing.T) {
	const size, rank = 50, 7
	rng := rand.New(rand.NewPCG(9, 10))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	r := &responder{index: make([]int, size), root: draw(size * rank), rank: rank}
	for k := range size {
		for j := range size {
			r.cov = append(r.cov, floats.Dot(r.root[k*rank:(k+1)*rank], r.root[j*rank:(j+1)*rank]))
		}
	}
	w := &responseWork{da: draw(size), dg: draw(size), cdg: draw(size)}
	for i := range w.moved {
		w.moved[i] = make([]float64, size)
	}
	r.byCov(w)
	want := [3][]float64{slices.Clone(w.moved[0]), slices.Clone(w.moved[1]), slices.Clone(w.moved[2])}
	for range 2 { // with a buffer that was used
		r.byRoot(w)
		for i, got := range w.moved {
			if !floats.EqualApprox(got, want[i], 1e-11) {
				t.Errorf("sum %d is %v, want %v", i, got, want[i])
			}
		}
	}
}
