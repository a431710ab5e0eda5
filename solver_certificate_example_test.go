package pgsvi_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pgsvi/pgsvi"
)

// How long may the steps of gradient descent be? Those of 0.05 leave no doubt, those of 2 are beyond what the theory allows, and raise −ELBO.
func ExampleCertificate() {
	sites := pgsvi.Sites{X: [][]float64{{1, 0.5}, {0.3, -1.2}, {-2, 0.4}, {0.8, 1.1}, {-0.6, -0.2}}, Y: []float64{1, 1, -1, 1, 1}, Lik: pgsvi.BernoulliLogit{}}
	prior := pgsvi.NewIsotropic(2, 4)
	o := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(sites, nil), H: pgsvi.KLTo(prior), Init: prior.In(pgsvi.Cholesky)}
	for _, beta := range []float64{0.05, 2} {
		var c pgsvi.Certificate
		s := pgsvi.Solver{Divergence: pgsvi.Euclidean{}, StepSize: pgsvi.ConstantStep(beta), MaxIter: 20, Recorder: &c}
		if _, _, err := o.Linearized().Fit(context.Background(), &s); err != nil {
			log.Fatal(err)
		}
		if err := c.Err(); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("beta %v: at most %.1f, %d of %d steps too long, %d violations\n", beta, c.MaxStep, c.TooLong, c.Steps, c.Violations)
	}
	// Output:
	// beta 0.05: at most 1.5, 0 of 20 steps too long, 0 violations
	// beta 2: at most 1.2, 10 of 20 steps too long, 10 violations
}
