package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
)

// spanAlgebra is the algebra of a linear model with few rows over their span, until a step with a given β takes it to the weights.
type spanAlgebra struct {
	*weightAlgebra // near or, once wide, one over the weights
	near           *weightAlgebra
	whole          *linearModel
	wide           bool
}

// newSpanAlgebra returns the prior of l, whose sites may come to have the given precisions.
func newSpanAlgebra(l *linearModel, gamma []float64, c crew) (*spanAlgebra, error) {
	rows := func(z dense.Double) {
		for j, p := range l.prior.prec {
			z.Hi[j], z.Lo[j] = dense.Product(z.Hi[j], 1/math.Sqrt(p))
		}
	}
	if w := l.prior.full; w != nil {
		rows = w.whiten
	}
	x := span(l.x, nil, gamma, rows, c.halt)
	if err := c.halt.Err(); err != nil {
		return nil, err
	}
	prior := weightPrior{mean: make([]float64, x.cols), prec: make([]float64, x.cols)}
	names := make([]string, x.cols)
	for j := range names {
		prior.prec[j], names[j] = 1, fmt.Sprintf("dimension %d of the rows", j)
	}
	near, err := newWeightAlgebra(&linearModel{terms: l.terms, x: x, prior: prior, names: names, maxMemory: l.maxMemory}, c)
	return &spanAlgebra{weightAlgebra: near, near: near, whole: l}, err
}

// weights implements weighted.
func (s *spanAlgebra) weights() ([]float64, weightCov, error) {
	if s.wide {
		return s.weightAlgebra.weights()
	}
	return s.whole.primal(s.gamma, s.a, s.eta, s.workers.halt)
}

// aim implements algebra: a step with a given β is one of the weights.
func (s *spanAlgebra) aim(x *siteEstimates, batch []int, m paperMove) error {
	if err := s.widen(); err != nil {
		return err
	}
	return s.weightAlgebra.aim(x, batch, m)
}

// widen goes on with the weights.
func (s *spanAlgebra) widen() error {
	if s.wide {
		return nil
	}
	w, err := newWeightAlgebra(s.whole, s.workers)
	if err != nil {
		return err
	}
	if s.hasSites() {
		at, err := s.whole.at(s.gamma, s.a, s.eta, s.workers.halt)
		if err != nil {
			return err
		}
		w.run.copyFrom(at)
		copy(w.gamma, s.gamma)
		copy(w.a, s.a)
		copy(w.eta, s.eta)
	}
	s.weightAlgebra, s.wide = w, true
	return nil
}

func (s *spanAlgebra) state(c *save.State) {
	wide := s.wide
	c.Bool(&wide)
	switch {
	case c.Err() != nil || wide == s.wide:
	case wide:
		w, err := newWeightAlgebra(s.whole, s.workers)
		if c.Check(err == nil, "its prior: %v", err); err != nil {
			return
		}
		s.weightAlgebra, s.wide = w, true
	default:
		s.weightAlgebra, s.wide = s.near, false
	}
	s.weightAlgebra.state(c)
}
