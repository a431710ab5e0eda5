package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// A classifier of 5000 points, whose covariance would have 25 million numbers:
// inducing inputs are chosen among the points until they leave nothing to speak
// of, and a nil Solver needs no tuning.
func ExampleSparseGP() {
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := mat.NewDense(5000, 1, nil), make([]float64, 5000)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))) {
			y[i] = 1
		}
	}
	gp, err := pgsvi.NewSparseGP(x, y, pgsvi.SquaredExp{Scale: 3, Length: 1.5}, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := gp.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, %d inducing inputs, %.0e of the variance left\n", res.Status, gp.Rank(), gp.Residual()/(9*5000))
	xnew := mat.NewDense(3, 1, []float64{math.Pi / 2, 3 * math.Pi / 2, 1000})
	for i, p := range post.At(xnew).Prob(nil, 1) {
		fmt.Printf("P(+1) at %.2f: %.2f\n", xnew.At(i, 0), p)
	}
	// Output:
	// converged, 17 inducing inputs, 5e-09 of the variance left
	// P(+1) at 1.57: 0.96
	// P(+1) at 4.71: 0.04
	// P(+1) at 1000.00: 0.50
}
