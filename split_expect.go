package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

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
	f := &expectedTerms{ll: l, est: e, workers: 1}
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
	ll      LogLikelihood
	est     Estimator
	workers int
}

func (f *expectedTerms) Len() int {
	if f.ll == nil {
		return 0
	}
	return f.ll.Len()
}

// Accepts reports every misfit between the data, the estimator and q.
func (f *expectedTerms) Accepts(q Dist) error {
	if err := f.ll.Validate(); err != nil {
		return err
	}
	l := f.ll.Batch(nil)
	if l.Dim() != q.Dim() {
		return fmt.Errorf("pgsvi: %w: the log-likelihood is over %d dimensions, q over %d", ErrShape, l.Dim(), q.Dim())
	}
	if a, ok := f.est.(interface{ Accepts(Dist, Integrand) error }); ok {
		return a.Accepts(q, l)
	}
	return nil
}

func (f *expectedTerms) Deterministic() bool {
	return deterministic(f.est)
}

func (f *expectedTerms) SetWorkers(n int) { f.workers = n }

func (f *expectedTerms) withWorkers(n int) Smooth {
	c := *f
	c.workers = n
	return &c
}

func (f *expectedTerms) batch(batch []int) Integrand {
	l := f.ll.Batch(batch)
	if f.workers > 1 {
		if _, sites := l.(SiteIntegrand); !sites {
			return parallelIntegrand{l, f.workers}
		}
	}
	return l
}

// Grad implements Smooth.
func (f *expectedTerms) Grad(dst []float64, q Dist, batch []int, rng *rand.Rand) (float64, error) {
	v, err := f.est.Grad(dst, q, f.batch(batch), rng)
	if err != nil {
		return math.NaN(), err
	}
	floats.Scale(-1, dst)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: %w: element %d of the gradient estimate is %v; the log-likelihood may overflow under q", ErrNotFinite, i, dst[i])
	}
	return -v, nil
}

// Value returns f over all terms and its standard error: exactly for Sites
// under a Gaussian q, with a bound on the numerical error, and otherwise by
// antithetic draws.
func (f *expectedTerms) Value(q Dist, rng *rand.Rand) (value, stderr float64, err error) {
	l := f.batch(nil)
	if s, ok := l.(SiteIntegrand); ok {
		if n, ok := q.(normal); ok {
			value, stderr = siteValue(n, s)
			return -value, stderr, nil
		}
	}
	samples := 512
	if s, ok := f.est.(interface{ samples() int }); ok {
		samples = max(samples, s.samples())
	}
	value, stderr = monteCarloValue(q, l, samples, rng)
	return -value, stderr, nil
}

// Linearized returns the same negative ELBO with h moved into f, which steps
// linearise: f ← f + h, h ← 0. That is the split of gradient, mirror and natural
// gradient descent; see Prox. The gradient of h is exact whatever the batch is.
func (o Objective) Linearized() Objective {
	if o.H == nil {
		return o
	}
	if o.F == nil {
		o.F = noTerms{}
	}
	o.F, o.H = linearized{o.F, o.H}, nil
	return o
}

// In returns the same objective with λ in the coordinates c. It panics unless
// Init is a Gaussian or MeanField, or if c is invalid.
func (o Objective) In(c Coordinates) Objective {
	switch q := o.Init.(type) {
	case *Gaussian:
		o.Init = q.In(c)
	case *MeanField:
		o.Init = q.In(c)
	default:
		panic(fmt.Sprintf("pgsvi: a %T has no Coordinates", q))
	}
	return o
}

// linearized is the Smooth f + h.
type linearized struct {
	f Smooth
	h Convex
}

func (l linearized) Len() int { return l.f.Len() }

func (l linearized) Deterministic() bool {
	return deterministic(l.f)
}

// Accepts reports what either part says of q.
func (l linearized) Accepts(q Dist) error {
	for _, part := range []any{l.f, l.h} {
		if a, ok := part.(interface{ Accepts(Dist) error }); ok {
			if err := a.Accepts(q); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l linearized) withWorkers(n int) Smooth {
	l.f = smoothWithWorkers(l.f, n)
	return l
}

// Grad implements Smooth.
func (l linearized) Grad(dst []float64, q Dist, batch []int, rng *rand.Rand) (float64, error) {
	v, err := l.f.Grad(dst, q, batch, rng)
	if err != nil {
		return math.NaN(), err
	}
	g := make([]float64, len(dst))
	if h, ok := l.h.(interface {
		valueGrad(dst []float64, q Dist) float64
	}); ok {
		v += h.valueGrad(g, q)
	} else {
		l.h.Grad(g, q)
		v += l.h.Value(q)
	}
	floats.Add(dst, g)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: %w: element %d of the gradient is %v", ErrNotFinite, i, dst[i])
	}
	return v, nil
}

// Value returns f + h over all terms and the standard error of f.
func (l linearized) Value(q Dist, rng *rand.Rand) (value, stderr float64, err error) {
	v, stderr, err := smoothValue(l.f, q, rng)
	return v + l.h.Value(q), stderr, err
}
