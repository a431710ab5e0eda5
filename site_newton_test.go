package pgsvi

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestRated: what a rated likelihood says of its sites is what its expectations are.
func TestRated(t *testing.T) {
	for _, l := range []rated{Poisson{}, Poisson{Exposure: 3}, Gamma{}, Gamma{Shape: 40}, Exponential{}} {
		for _, y := range []float64{1, 7} {
			for _, at := range [][2]float64{{0, 0}, {-3, 2}, {1.5, 0.3}} {
				sign, origin, slope := l.rate(y)
				gamma := math.Exp(origin + sign*at[0] + 0.5*at[1])
				e := ExpectLogProb(l, y, at[0], at[1])
				if math.Abs(e.D2+gamma) > 1e-12*gamma || math.Abs(e.D1-slope+sign*gamma) > 1e-12*(math.Abs(slope)+gamma) {
					t.Errorf("%#v of %g under N(%g, %g): %v, not slope %g and curvature %g", l, y, at[0], at[1], e, slope-sign*gamma, -gamma)
				}
			}
		}
	}
}

// TestRatesOfZeros: counts of which most are zero, under priors of up to 10⁸ standard deviations of their linear predictors, are fitted in tens of passes, as a
// GP of their linear predictors and over the weights. It took a thousand, and ended nats short.
func TestRatesOfZeros(t *testing.T) {
	t.Parallel()
	for _, sd := range []float64{1e2, 1e4, 1e6, 1e8} {
		for _, d := range []int{3, 30} {
			rng := rand.New(rand.NewPCG(uint64(d), 77))
			const n = 20
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i := range n {
				for j := range d {
					x.Set(i, j, rng.NormFloat64())
				}
				if i%5 == 0 {
					y[i] = 1 + float64(rng.IntN(3))
				}
			}
			x.SetRow(3, make([]float64, d))
			_, res, err := mustGLM(t, x, y, Poisson{}, GLMOptions{PriorSD: sd}).Fit(t.Context(), nil)
			if err != nil || res.Status != Converged || res.Passes > 120 || !(res.GapBound < 1e-6) {
				t.Errorf("prior sd %g, %d weights: %v after %g passes at %.8g, proved to be within %.3g: %v", sd, d, res.Status, res.Passes, res.ELBO, res.GapBound, err)
			}
		}
	}
}
