package pgsvi

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
)

// nearest ends although no two floats about its answer are as near as the tolerance.
func TestNearestEndsBelowTheUlp(t *testing.T) {
	terms := &siteTerms{lik: Gamma{}, y: []float64{2.29}, extra: []float64{9e6}}
	calls := 0
	at := terms.nearest(0, 0, 1e-10, func(x Expectation) bool {
		if calls++; calls > 10_000 {
			t.Fatal("nearest takes more than 10,000 expectations")
		}
		return moderate(x)
	})
	if below := terms.expectation(0, math.Nextafter(at, 0), 0); !moderate(terms.expectation(0, at, 0)) || moderate(below) {
		t.Errorf("nearest to 0 is %v, with curvature %v, and one float below %v", at, terms.expectation(0, at, 0).D2, below.D2)
	}
}

// A fit ends, with a finite ELBO or an error, however wide the prior of a sparse GP is.
func TestSparseGPEndsUnderWidePriors(t *testing.T) {
	x := mat.NewDense(2, 1, []float64{0, 100})
	for _, c := range []struct {
		lik Likelihood
		y   []float64
	}{{Poisson{}, []float64{2, 1}}, {Gamma{}, []float64{2.29, 0.736}}, {Gamma{Shape: 30.48}, []float64{2.29, 0.736}}} {
		for _, scale := range []float64{1000, 3000, 3515, 1e4} {
			g, err := NewSparseGP(x, c.y, SquaredExp{Scale: scale}, c.lik, &SparseGPOptions{Rank: 1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_, r, err := g.Fit(ctx, nil)
			cancel()
			if err == nil && (math.IsNaN(r.ELBO) || math.IsInf(r.ELBO, 0)) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, scale %v: ELBO %v, %v", c.lik, scale, r.ELBO, err)
			}
		}
	}
}
