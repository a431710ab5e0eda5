package variate

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/normal"
)

// TestQuadratic: a quadratic function of the draws leaves no residuals, and its expectation and
// gradients are those of the closed form.
func TestQuadratic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := normal.NewFull(2)
	m, v := q.Next()
	copy(m, []float64{0.5, -1})
	copy(v, []float64{2, 0.6, 0.6, 1})
	if err := q.CommitMoments(); err != nil {
		t.Fatal(err)
	}
	// f(z) = 3 + z₀ − 2z₁ + z₀z₁ + z₁²/2
	f := func(z []float64) float64 { return 3 + z[0] - 2*z[1] + z[0]*z[1] + z[1]*z[1]/2 }
	const n = 40
	eps, values := dense.NewRows(n, 2), make([]float64, n)
	for i, e := range eps {
		e[0], e[1] = rng.NormFloat64(), rng.NormFloat64()
		z := []float64{e[0], e[1]}
		q.Transform(z)
		values[i] = f(z)
	}
	var fit Quadratic
	if !fit.Fit(values, eps, true) {
		t.Fatal("no fit")
	}
	for i, r := range values {
		if math.Abs(r) > 1e-7 {
			t.Errorf("residual %d is %g", i, r)
		}
	}
	// f at the mean, and the covariance of z₀ and z₁ with half the variance of z₁
	if want := f([]float64{0.5, -1}) + 0.6 + 0.5; math.Abs(fit.Coef[0]-want) > 1e-7 {
		t.Errorf("expectation %v, want %v", fit.Coef[0], want)
	}
	gm, gv := make([]float64, 2), make([]float64, 4)
	fit.AddGrad(gm, gv, q)
	for i, want := range []float64{0, -2 + 0.5 - 1} { // ∇f at the mean
		if math.Abs(gm[i]-want) > 1e-7 {
			t.Errorf("derivative by mean %d is %v, want %v", i, gm[i], want)
		}
	}
	for i, want := range []float64{0, 0.5, 0.5, 0.5} { // half the Hessian
		if math.Abs(gv[i]-want) > 1e-7 {
			t.Errorf("derivative by element %d of V is %v, want %v", i, gv[i], want)
		}
	}
}

// TestFew: too few draws leave everything as it is.
func TestFew(t *testing.T) {
	var fit Quadratic
	values := []float64{1, 2, 3}
	if fit.Fit(values, [][]float64{{1}, {2}, {3}}, true) || values[1] != 2 {
		t.Error("three draws had a fit of three coefficients")
	}
	if Linear(context.Background(), [][]float64{{1}, {2}}, [][]float64{{1}, {2}}) != nil {
		t.Error("two draws had a linear part")
	}
}

// TestLinear: gradients that are linear in ε leave no residuals.
func TestLinear(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	eps, grads := dense.NewRows(16, 2), dense.NewRows(16, 2)
	for i, e := range eps {
		e[0], e[1] = rng.NormFloat64(), rng.NormFloat64()
		grads[i][0], grads[i][1] = 1+2*e[0]-e[1], -3+e[1]
	}
	part := Linear(context.Background(), grads, eps)
	for k, want := range [][]float64{{1, -3}, {2, 0}, {-1, 1}} {
		for j, w := range want {
			if math.Abs(part[k][j]-w) > 1e-7 {
				t.Errorf("part %d, element %d: %v, want %v", k, j, part[k][j], w)
			}
		}
	}
	for i, g := range grads {
		if math.Hypot(g[0], g[1]) > 1e-7 {
			t.Errorf("residual %d: %v", i, g)
		}
	}
}

// TestMoments against the sums by hand.
func TestMoments(t *testing.T) {
	a := NewMoments(make([]float64, 1), nil)
	for _, x := range []float64{1, 2, 4, 9} {
		a.Add([]float64{x})
	}
	a.Finish()
	// squares about 4: 9 + 4 + 0 + 25 = 38, over 3 and over 4
	if math.Abs(a.Mean[0]-4) > 1e-15 || math.Abs(a.M2[0]-38./12) > 1e-14 {
		t.Errorf("mean %v, variance of the mean %v", a.Mean[0], a.M2[0])
	}
}
