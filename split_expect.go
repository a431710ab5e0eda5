package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Expect returns f(λ) = −E_q[Σ_n log p(y_n|z)], with the gradient estimated by
// e; nil means Exact for Sites and ScoreFunction for anything else. Values of f
// are exact for Sites whatever e is, so that the ELBO curves of different
// estimators compare; otherwise they are Monte Carlo with draws that are the
// same at each evaluation. Errors of shape and labels are reported when a run
// is set up.
func Expect(l LogLikelihood, e Estimator) Smooth {
	f := &expectedTerms{ll: l, est: e}
	if e == nil {
		f.est = ScoreFunction{}
		if l != nil && l.Len() > 0 {
			if _, ok := l.Batch(nil).(SiteIntegrand); ok {
				f.est = Exact{}
			}
		}
	}
	return f
}

// expectedTerms is the Smooth made by Expect.
type expectedTerms struct {
	ll  LogLikelihood
	est Estimator
}

// Setup reports every misfit between the data, the estimator and q.
func (f *expectedTerms) Setup(q Dist) (Terms, error) {
	if f.ll == nil {
		return Terms{}, fmt.Errorf("pgsvi: Expect needs a log-likelihood: %w", ErrEmpty)
	}
	if err := f.ll.Validate(); err != nil {
		return Terms{}, err
	}
	l := f.ll.Batch(nil)
	if l.Dim() != q.Dim() {
		return Terms{}, fmt.Errorf("pgsvi: the log-likelihood is over %d dimensions, q over %d: %w", l.Dim(), q.Dim(), ErrShape)
	}
	exact, err := f.est.Setup(q, l)
	return Terms{f.ll.Len(), exact}, err
}

// Grad implements Smooth.
func (f *expectedTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	v, err := f.est.Grad(ctx, env, dst, nil, q, f.ll.Batch(batch))
	if err != nil {
		return math.NaN(), err
	}
	floats.Scale(-1, dst)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: element %d of the gradient estimate is %v; the log-likelihood may overflow under q: %w", i, dst[i], ErrNotFinite)
	}
	return -v, nil
}

// drawing is an Estimator that says how many draws of q it takes.
type drawing interface{ samples() int }

// Value returns f over all terms and its standard error: exactly for Sites
// under a Gaussian q, with a bound on the numerical error, and otherwise by
// antithetic draws.
func (f *expectedTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	l := f.ll.Batch(nil)
	if s, ok := l.(SiteIntegrand); ok {
		if n, ok := q.(normal); ok {
			value, stderr = siteValue(n, s)
			return -value, stderr, nil
		}
	}
	samples := leastDraws
	if s, ok := f.est.(drawing); ok {
		samples = max(samples, s.samples())
	}
	value, stderr, err = monteCarloValue(ctx, env, q, l, samples)
	return -value, stderr, err
}

// leastDraws is the number of draws for a value of f, where it has no closed form: enough for the
// quadratic control variate of some twenty dimensions.
const leastDraws = 512

// Linearized returns the same negative ELBO with h moved into f, which steps
// linearise: f ← f + h, h ← 0. That is the split of gradient, mirror and natural
// gradient descent; see Prox. The gradient of h is exact whatever the batch is.
func (o Objective[Q]) Linearized() Objective[Q] {
	if o.H == nil {
		return o
	}
	if o.F == nil {
		o.F = noTerms()
	}
	o.F, o.H = linearized{o.F, o.H}, nil
	return o
}

// linearized is the Smooth f + h.
type linearized struct {
	f Smooth
	h Convex
}

// Setup reports what either part says of q.
func (l linearized) Setup(q Dist) (Terms, error) {
	t, err := l.f.Setup(q)
	if err != nil {
		return t, err
	}
	return t, l.h.Check(q)
}

// valuer is a Convex whose value and gradient have work in common.
type valuer interface {
	// valueGrad stores ∇_λ h in dst and returns h.
	valueGrad(dst []float64, q Dist) float64
}

// Grad implements Smooth.
func (l linearized) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	v, err := l.f.Grad(ctx, env, dst, q, batch)
	if err != nil {
		return math.NaN(), err
	}
	g := make([]float64, len(dst))
	if h, ok := l.h.(valuer); ok {
		v += h.valueGrad(g, q)
	} else {
		l.h.Grad(g, q)
		v += l.h.Value(q)
	}
	floats.Add(dst, g)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: element %d of the gradient is %v: %w", i, dst[i], ErrNotFinite)
	}
	return v, nil
}

// Value returns f + h over all terms and the standard error of f.
func (l linearized) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	v, stderr, err := l.f.Value(ctx, env, q)
	return v + l.h.Value(q), stderr, err
}
