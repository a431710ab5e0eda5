package mixed

import (
	"context"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/simulate"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// design returns a Design.
func design(lik Likelihood, levels int, slope bool, sd float64) simulate.Design {
	return simulate.Design{Lik: lik, Levels: levels, Slope: slope, SD: sd}
}

// measure returns the coverage of d over the given number of data sets.
func measure(t *testing.T, d simulate.Design, sets int) *simulate.Result {
	t.Helper()
	r, err := d.Measure(context.Background(), sets, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %v", d, r.Mean)
	return r
}

// TestCalibration checks that intervals are calibrated if all parameters come from their priors.
// This checks the computation: the points of the integral, their probabilities, and quantiles of
// the mixture.
func TestCalibration(t *testing.T) {
	sets, levels := testkit.Longer(300, testkit.Shorter(80, 40)), []int{8}
	if testkit.IsLong() {
		levels = []int{5, 8, 20, 49}
	}
	for _, slope := range []bool{false, true} {
		if slope { // which takes more time
			sets = min(sets, 200)
		}
		for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 1}} {
			for _, n := range levels {
				d := design(lik, n, slope, math.NaN())
				r := measure(t, d, sets)
				c, size := r.Mean, r.Sets
				// The errors of Gaussian approximations, and the standard error of a share.
				off := func(what string, share, want float64) {
					if tol := 0.015 + 2.5*math.Sqrt(want*(1-want)/size); !(math.Abs(share-want) <= tol) {
						t.Errorf("%v: intervals of %s contain %.3f, want %.2f ± %.3f", d, what, share, want, tol)
					}
				}
				off("new levels", c.New, 0.9)
				off("known levels", c.Known, 0.9)
				off("weights", c.Weights, 0.9)
				off("standard deviations", c.SD, 0.95)
				if slope {
					off("correlations", c.Corr, 0.95)
				}
			}
		}
	}
}

// TestCoverage measures the coverage at fixed standard deviations. It exceeds 90% for new levels
// if the prior is much wider than the true value, and the few levels do not rule out larger
// values.
func TestCoverage(t *testing.T) {
	testkit.Long(t)
	for _, slope := range []bool{false, true} {
		sets, all := 200, []int{5, 8, 20, 50, 100}
		if slope { // which takes more time
			sets, all = 60, all[:4]
		}
		for _, sd := range []float64{1, 0.3} {
			for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 1}} {
				for _, levels := range all {
					d := design(lik, levels, slope, sd)
					c := measure(t, d, sets).Mean
					if !(min(c.New, c.Known, c.SD) >= 0.86) {
						t.Errorf("%v: coverage %v", d, c)
					}
				}
			}
		}
	}
}
