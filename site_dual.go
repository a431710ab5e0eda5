package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// dualAlgebra is that of a linear model with at least as many weights as rows: a
// Gaussian process of the linear predictors with covariance K = XΛ0⁻¹Xᵀ, whose
// sites are those of the rows.
type dualAlgebra struct {
	*denseAlgebra
	lin *linear
}

func newDualAlgebra(l *linear, workers int) (*dualAlgebra, error) {
	s, err := newDenseAlgebra(l.terms, l.gram(), workers)
	if err != nil {
		return nil, err
	}
	return &dualAlgebra{s, l}, nil
}

// gram returns K = XΛ0⁻¹Xᵀ, full.
func (l *linear) gram() []float64 {
	n, d := l.x.rows, len(l.names)
	k := make([]float64, n*n)
	x, z := make([]float64, d), make([]float64, d)
	for i := range n {
		l.x.dense1(x, i)
		l.prior.solve(z, x)
		l.x.mul(k[i*n:(i+1)*n], z, nil)
		k[i*n+i] = math.Max(0, floats.Dot(x, z))
	}
	for i := range n { // symmetric to the last bit
		for j := range i {
			k[j*n+i] = k[i*n+j]
		}
	}
	return k
}

// primalWeights is the largest number of weights for which a posterior of the
// dual is turned into one of the primal.
const primalWeights = 2000

func (s *dualAlgebra) weights() ([]float64, weightCov, error) {
	if err := s.refresh(false); err != nil {
		return nil, nil, err
	}
	n, d := s.n, len(s.lin.names)
	gamma := append([]float64(nil), s.cur.gamma...)
	b := make([]float64, n) // V⁻¹m = Xᵀb
	for i, a := range s.cur.a {
		b[i] = a + gamma[i]*s.cur.m[i]
	}
	cov := &dualCov{x: s.lin.x, gamma: gamma, prior: &s.lin.prior, fac: new(dense.Sites)}
	h, mean := make([]float64, d), make([]float64, d)
	if d <= primalWeights {
		if w, err := cov.state(); err == nil {
			s.lin.x.addMulT(mean, b, nil)
			dense.Potrs(w.l, mean)
			clear(w.mean)
			return mean, &fullCov{s: w}, nil
		}
	}
	if !cov.fac.Factor(s.k, n, gamma) {
		return nil, nil, fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	cov.fac.Solve(b) // K⁻¹ times the linear predictors
	cov.fac.C = nil  // K is not needed any more
	s.lin.x.addMulT(h, b, nil)
	s.lin.prior.solve(mean, h)
	return mean, cov, nil
}
