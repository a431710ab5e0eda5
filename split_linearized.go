package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/pgsvi/pgsvi/internal/dense"
)

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
