package site

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file fits linear models with one variable per row. DualAlgebra is the DenseAlgebra of the
// covariance of the linear predictors, and converts its results to weights.

// DualAlgebra is the Algebra of a linear model with at least as many weights as rows. It is a
// Gaussian process of the linear predictors with covariance K = XΛ0⁻¹Xᵀ. Its sites are the sites
// of the rows.
type DualAlgebra struct {
	*DenseAlgebra
	lin *LinearModel
}

// Linear returns the model of the weights.
func (s *DualAlgebra) Linear() *LinearModel { return s.lin }

// Evaluate implements Algebra. If B = I + Γ^½KΓ^½ leaves the rows too few digits, the gap
// includes the rounding of K. Rounding of the relative size ε in K changes log|B| by at most ε Σ
// γ_n K_nn, because no eigenvalue of B is below 1.
func (s *DualAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.DenseAlgebra.Evaluate(within)
	if err != nil {
		return e, err
	}
	ok := Conditioned(s.Workers.Halt, s.K, s.Cur.Gamma, gauss.LeastPivot)
	if err := s.Workers.Halt.Err(); err != nil {
		return siteEvaluation{}, err
	}
	if !ok {
		rounding := dense.Epsilon * term.Size(s.K, s.Cur.Gamma)
		e.Gap = math.Max(e.Gap, rounding)
		e.ELBOErr += rounding
	}
	return e, nil
}

// DualPivot is the smallest pivot of B, as a fraction of its diagonal element, with which the dual
// is chosen. Below it, the algebra of the weights is more accurate, because the units of the
// weights do not matter.
const DualPivot = 1e-6

// Conditioned reports whether every pivot of B = I + Γ^½KΓ^½ is at least the part least of its
// diagonal element. The eigenvalues of B are at least 1. The result is invalid if h has stopped.
func Conditioned(h *parallel.Halt, k, gamma []float64, least float64) bool {
	if term.Size(k, gamma)*least <= 1 {
		return true
	}
	f := dense.SiteFactor{Halt: h}
	return f.Factor(k, len(gamma), gamma) && f.LeastPart() >= least
}

// NewDualAlgebra returns the prior of l, whose rows have the prior covariance k.
func NewDualAlgebra(l *LinearModel, k []float64, workers term.Crew) (*DualAlgebra, error) {
	s, err := NewDenseAlgebra(l.Terms, k, workers)
	if err != nil {
		return nil, err
	}
	return &DualAlgebra{DenseAlgebra: s, lin: l}, nil
}

// Precisions estimates for each row the largest γ that it may reach under the prior covariance k.
// It is the largest of the γ of the row alone and the curvatures of its likelihood at linear
// predictors near 0, with and without its offset, because other rows may hold the predictor there.
// For a likelihood with real responses the curvature at the response also counts.
func (l *LinearModel) Precisions(h *parallel.Halt, k []float64) []float64 {
	n := l.X.Rows
	gamma := make([]float64, n)
	onLine := l.Terms.Lik.Real()
	for i := range gamma {
		v := k[i*n+i]
		if v == 0 || h.Stopped() {
			continue
		}
		g, _, _ := l.Terms.Solve(i, 0, v, 0, v)
		gamma[i] = math.Abs(g)
		y, o, _, _ := l.Terms.Term(i)
		at := [...]float64{0, -o, 0}
		if onLine {
			at[2] = y - o
		}
		for _, m := range at {
			if d2 := math.Abs(l.Terms.Expectation(i, m, math.Min(v, 1)).D2); !math.IsInf(d2, 0) {
				gamma[i] = max(gamma[i], d2)
			}
		}
	}
	return gamma
}

// PrimalWeights is the largest number of weights for which Weights computes the posterior in the
// weights instead of the dual.
const PrimalWeights = 2000

// Weights implements Weighted.
func (s *DualAlgebra) Weights() ([]float64, gauss.Cov, error) {
	back, err := s.Peek()
	defer back()
	if err != nil {
		return nil, nil, err
	}
	n, d := s.N, len(s.lin.Names)
	if d <= PrimalWeights {
		if mean, cov, err := s.lin.primal(s.Cur.Gamma, s.Cur.A, s.Cur.M,
			s.Workers.Halt); err == nil {
			return mean, cov, nil
		}
	}
	gamma := append([]float64(nil), s.Cur.Gamma...)
	cov := &gauss.Dual{X: s.lin.X, Gamma: gamma, Prior: &s.lin.Prior, Fac: new(dense.SiteFactor)}
	h, mean, b := make([]float64, d), make([]float64, d), potentials(gamma, s.Cur.A, s.Cur.M)
	cov.Fac.Halt = s.Workers.Halt
	ok := cov.Fac.Factor(s.K, n, gamma)
	cov.Fac.Halt = nil
	if err := s.Workers.Halt.Err(); err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("pgsvi: posterior covariance: %w", sentinel.ErrNotPosDef)
	}
	cov.Fac.Solve(b) // K⁻¹ times the linear predictors
	cov.Fac.C = nil  // K is no longer needed
	s.lin.X.AddMulT(h, b, nil)
	s.lin.Prior.Solve(mean, h)
	return mean, cov, nil
}
