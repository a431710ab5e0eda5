package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// GP is a Gaussian-process model: latent values z_n = z(x_n) with prior
// z ~ N(0, K), K_ij = k(x_i, x_j), and observations y_n ~ p(y|z_n). It is a
// Model; the posterior approximation q(z) = N(m, V) maximises the ELBO
//
//	Σ_n E_q[log p(y_n|z_n)] − KL(q‖N(0, K))   (nats).
//
// A GP is immutable and may be shared between goroutines.
type GP struct {
	x      *mat.Dense
	kernel Kernel
	terms  *terms
	opt    GPOptions
}

// GPOptions are the options of a GP. The zero value, and a nil pointer, mean no
// jitter and exact expectations.
type GPOptions struct {
	// Jitter is added to the diagonal of K in training and not in predictions.
	// A singular K is handled as it is and needs none, except under a Divergence
	// other than KL, which is a function of V⁻¹.
	Jitter float64
	// Estimator estimates the gradients of steps with a given Solver.StepSize.
	// Nil means Exact. Steps without a given step
	// size, those of a nil Solver, are always exact. Steps with noise go less far
	// where a site of negative γ would take more than nine tenths of the precision
	// of its variable: noise alone drives V to the edge of what is positive definite.
	Estimator SiteEstimator
	// MeanUpdate is the update of m in steps with a given step size.
	MeanUpdate MeanUpdate
}

// NewGP returns the model of labels y at the rows of x, under covariance
// function k and likelihood lik. The data are copied; nil lik means
// GaussianNoise{}, nil opt the zero GPOptions. A zero field of a kernel or likelihood counts as its documented
// default, such as a Length of 1. It returns an error, with the index of the datum, wrapping
// ErrEmpty if there is no row, ErrShape if lengths disagree, ErrNotFinite if a
// value is NaN or infinite, ErrLabel if a label is outside the support of lik,
// ErrParam if an option or a parameter of k or lik is out of range, and ErrNoEstimator
// if the Estimator does not apply to lik.
func NewGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *GPOptions) (*GP, error) {
	if x == nil || len(y) == 0 {
		return nil, fmt.Errorf("pgsvi: a GP needs at least one row: %w", ErrEmpty)
	}
	n, d := x.Dims()
	if n == 0 || d == 0 {
		return nil, fmt.Errorf("pgsvi: x is %d×%d: %w", n, d, ErrEmpty)
	}
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: x has %d rows, y has %d labels: %w", n, len(y), ErrShape)
	}
	if k == nil {
		return nil, fmt.Errorf("pgsvi: nil Kernel: %w", ErrParam)
	}
	if err := checkKernel(k, d); err != nil {
		return nil, err
	}
	g := &GP{x: mat.DenseCopyOf(x), kernel: k}
	if opt != nil {
		g.opt = *opt
	}
	for i := range n {
		if j, ok := dense.AllFinite(g.x.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of x is %v: %w", i, j, g.x.At(i, j), ErrNotFinite)
		}
	}
	var err error
	if g.terms, err = newTerms(lik, slices.Clone(y)); err != nil {
		return nil, err
	}
	if err := g.checkJitter(); err != nil {
		return nil, err
	}
	if _, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *GP) checkJitter() error {
	if j := g.opt.Jitter; !(j >= 0) || math.IsInf(j, 0) {
		return fmt.Errorf("pgsvi: GPOptions.Jitter is %v; it must be finite and not negative: %w", j, ErrParam)
	}
	return nil
}

// Len returns N, the number of observations.
func (g *GP) Len() int { return g.terms.len() }

// gram returns K with the jitter, full.
func (g *GP) gram() ([]float64, error) {
	if err := g.checkJitter(); err != nil {
		return nil, err
	}
	n := g.Len()
	sym := Gram(nil, g.kernel, g.x)
	k := make([]float64, n*n)
	for i := range n {
		for j := i; j < n; j++ {
			k[i*n+j] = sym.At(i, j)
			k[j*n+i] = k[i*n+j]
		}
		k[i*n+i] += g.opt.Jitter
	}
	if i, ok := dense.AllFinite(k); !ok {
		return nil, fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", i/n, i%n, k[i], ErrNotFinite)
	}
	for i := range n {
		for j := range i + 1 { // what a kernel of the user's can get wrong, as far as pairs show it
			if kij := math.Abs(k[i*n+j]); k[i*n+i] < 0 || kij > math.Sqrt(k[i*n+i])*math.Sqrt(k[j*n+j])*(1+1e-6) {
				return nil, fmt.Errorf("pgsvi: covariance %v of rows %d and %d, with variances %v and %v: %w", k[i*n+j], i, j, k[i*n+i], k[j*n+j], ErrNotPosDef)
			}
		}
	}
	return k, nil
}

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
