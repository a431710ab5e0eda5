package pgsvi_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// Adam on −ELBO over the mean and the log-Cholesky factor of a dense Gaussian,
// beside a fit without options.
func ExampleAdam() {
	x := mat.NewDense(8, 1, []float64{-3, -2, -1, -0.5, 0.5, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1}, pgsvi.BernoulliLogit{}, &pgsvi.GPOptions{Jitter: 0.01})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	_, best, err := gp.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	o, err := gp.Objective()
	if err != nil {
		log.Fatal(err)
	}
	s := pgsvi.Solver{
		Divergence: pgsvi.Adam{},
		StepSize:   pgsvi.RobbinsMonro{Scale: 0.05, Delay: 100, Power: 1},
		BatchSize:  2,
		MaxPasses:  500,
		Converger:  pgsvi.Never{},
	}
	o = o.Linearized()
	o.Init = o.Init.In(pgsvi.LogCholesky)
	res, err := s.Run(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f after %.0f passes; at the optimum %.2f\n", res.ELBO, res.Passes, best.ELBO)
	// Output: -6.40 after 500 passes; at the optimum -6.40
}
