package gp

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// farRows returns rows of two columns and responses with the given mean. The standard deviation of
// their noise is 0.3.
func farRows(n int, mean float64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range y {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		y[i] = mean + math.Sin(2*a) + b*b/2 + 0.3*rng.NormFloat64()
	}
	return x, y
}

// farKernel is a kernel for responses far from 0, with all parameters to learn.
func farKernel() pgsvi.Kernel {
	return pgsvi.Sum{pgsvi.Constant{}, pgsvi.SquaredExp{Lengths: make([]float64, 2)}}
}

// farSpread returns the ratio of the ends of the interval of Constant.Scale.
func farSpread(l *pgsvi.Learned) float64 { return l.Params[0].Hi / l.Params[0].Lo }

// TestLearnFarFrom0 checks the intervals of a GP whose responses have a mean of 100 and noise of 0.3.
// With this many rows the uncertainty of the learned hyperparameters adds little to the variance at
// the center of the rows.
func TestLearnFarFrom0(t *testing.T) {
	t.Parallel()
	x, y := farRows(600, 100)
	gp, err := pgsvi.NewGP(x, y, farKernel(), pgsvi.GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gp, post, _, err := gp.Learn(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fixed, _, err := gp.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := mat.NewDense(2, 2, []float64{0, 0, 1, -1})
	_, got := post.At(at).Latent(nil, nil)
	_, want := fixed.At(at).Latent(nil, nil)
	for i, v := range want {
		if !(got[i] >= v) || got[i] > 1.2*v {
			t.Errorf("row %d: the variance is %v after Learn, and %v with the same hyperparameters",
				i, got[i], v)
		}
	}
}

// TestSparseLearnFarFrom0 checks that a sparse GP learns the scale of a Constant for responses far
// from 0 with the interval of a GP.
func TestSparseLearnFarFrom0(t *testing.T) {
	t.Parallel()
	x, y := farRows(600, 100)
	gp, err := pgsvi.NewGP(x, y, farKernel(), pgsvi.GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, want, err := gp.Learn(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := pgsvi.NewSparseGP(x, y, farKernel(), pgsvi.GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, got, err := sparse.Learn(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Log(farSpread(got)) / math.Log(farSpread(want)); !(d > 0.8 && d < 1.25) {
		t.Errorf("the interval of %s is %.3g to %.3g, but %.3g to %.3g for a GP", got.Params[0].Name,
			got.Params[0].Lo, got.Params[0].Hi, want.Params[0].Lo, want.Params[0].Hi)
	}
	if got.Evaluations > 2*want.Evaluations {
		t.Errorf("%d evaluations, but %d for a GP", got.Evaluations, want.Evaluations)
	}
}
