package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// linearOptions say how a linear model is fitted.
type linearOptions struct {
	covariance Covariance // not AutoCovariance
	rank       int
	estimator  SiteEstimator
	update     MeanUpdate
}

// weighted is an algebra of a linear model.
type weighted interface {
	algebra
	// weights returns the mean of w − μ0 and the covariance, both new.
	weights() ([]float64, weightCov, error)
}

// newStepper returns a Stepper of l at its prior. A full covariance with more rows than weights is kept over the
// weights, and otherwise over the linear predictors. Divergences other than KL step by the Objective.
func (l *linear) newStepper(ctx context.Context, env *Env, d Divergence, o linearOptions) (Stepper, error) {
	if !isKL(d) {
		if o.covariance == LowRankCovariance || o.covariance == DiagonalCovariance && l.prior.full != nil {
			return nil, fmt.Errorf("pgsvi: %T with a %v covariance and this prior: %w", d, o.covariance, ErrNoProx)
		}
		f, err := l.objective(o.covariance == DiagonalCovariance, o.estimator)
		if err != nil {
			return nil, err
		}
		if _, ok := d.(Adaptive); ok {
			f = f.Linearized()
			f.Init = f.Init.In(LogCholesky)
		}
		return f.NewStepper(ctx, env, d)
	}
	s, err := newSiteStepper(l.terms, o.estimator, o.update)
	if err != nil {
		return nil, err
	}
	switch {
	case o.covariance == LowRankCovariance:
		s.alg = newFactoredAlgebra(l, max(1, o.rank))
	case o.covariance == DiagonalCovariance:
		s.alg = newFactoredAlgebra(l, 0)
	case l.x.rows <= len(l.names):
		s.alg, err = newDualAlgebra(l, env.Workers())
	default:
		s.alg, err = newWeightAlgebra(l)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// objective returns l as an Objective over w − μ0, with dense rows.
func (l *linear) objective(diagonal bool, e SiteEstimator) (Objective[*Gaussian], error) {
	d := len(l.names)
	zero := make([]float64, d)
	var prior *Gaussian
	if diagonal && l.prior.full == nil {
		v := make([]float64, d)
		for j, p := range l.prior.prec {
			v[j] = 1 / p
		}
		q, err := NewMeanField(zero, v)
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	} else {
		s, err := l.prior.state()
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		s.invert()
		q, err := NewGaussian(zero, dense.FullSym(s.inv, d))
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	}
	x := dense.NewRows(l.x.rows, d)
	for i := range x {
		ind, val := l.x.row(i)
		if l.x.sparse == nil {
			copy(x[i], val)
		}
		for k, j := range ind {
			x[i][j] = val[k]
		}
	}
	est, exact, err := siteEstimator(e, l.terms.lik)
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	return Objective[*Gaussian]{F: &siteSmooth{l.terms, x, est, exact}, H: KLTo(prior), Init: prior}, nil
}

// weightsAt returns the mean of w − μ0 and the covariance at st, a state of l; both are new.
func (l *linear) weightsAt(st State) (mean []float64, cov weightCov, err error) {
	switch t := st.(type) {
	case *siteStepper:
		alg, ok := t.alg.(weighted)
		if !ok || t.terms != l.terms {
			return nil, nil, fmt.Errorf("pgsvi: a state of another model: %w", ErrParam)
		}
		mean, cov, err = alg.weights()
	case *objectiveStepper:
		mean, cov, err = weightsOf(t.dist())
	default:
		err = fmt.Errorf("pgsvi: a %T is no state of this model: %w", st, ErrParam)
	}
	if err == nil && len(mean) != len(l.names) {
		err = fmt.Errorf("pgsvi: the state has %d weights, the model %d: %w", len(mean), len(l.names), ErrParam)
	}
	return mean, cov, err
}

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
