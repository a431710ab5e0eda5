package pgsvi

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// Objective returns the model as an Objective over a dense Gaussian q, for use
// with any proximal step whatever: f = −E_q[Σ_n log p(y_n|z_n)], with gradients
// by Estimator and exact values, and h = KL(q‖N(0, K)). A step has a dense N²
// parameters and costs some products of N×N matrices, of which a gradient step of
// Linearized in the coordinates Cholesky or LogCholesky needs a third of one; Fit
// is for all but the smallest N. The error wraps ErrNotPosDef if K is singular without Jitter.
func (g *GP) Objective() (Objective[*Gaussian], error) {
	se, exact, err := siteEstimator(g.opt.Estimator, g.terms.lik)
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	k, err := g.gram()
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	n := g.Len()
	prior, err := NewGaussian(nil, mat.NewSymDense(n, k))
	if err != nil {
		return Objective[*Gaussian]{}, fmt.Errorf("pgsvi: covariance of the prior; set GPOptions.Jitter: %w", err)
	}
	return Objective[*Gaussian]{F: &siteSmooth{terms: g.terms, est: se, exact: exact}, H: KLTo(prior), Init: prior}, nil
}
