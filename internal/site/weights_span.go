package site

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file fits linear models with fewer rows than weights in the span of the rows. LinearModel.at
// turns its results into weights.

// SpanAlgebra is the Algebra of a linear model with few rows over their span. The first step with
// a given β switches to the weights.
type SpanAlgebra struct {
	*WeightAlgebra // near or, once Wide, an algebra over the weights
	near           *WeightAlgebra
	whole          *LinearModel
	Wide           bool
}

// Linear returns the model of the weights.
func (s *SpanAlgebra) Linear() *LinearModel { return s.whole }

// newSpanAlgebra returns the prior of l. Its sites may reach the given precisions.
func newSpanAlgebra(l *LinearModel, gamma []float64, c term.Crew) (*SpanAlgebra, error) {
	own, _, err := l.inSpan(gamma, c.Halt)
	if err != nil {
		return nil, err
	}
	near, err := NewWeightAlgebra(own, c)
	return &SpanAlgebra{WeightAlgebra: near, near: near, whole: l}, err
}

// inSpan returns l in the span of its rows, as span does for sites of about the given precisions.
// The weights are u = QRᵀ(w − μ0) ~ N(0, I). It also returns the rows of Q.
func (l *LinearModel) inSpan(gamma []float64, h *parallel.Halt) (*LinearModel, []dense.Double,
	error) {
	rows := func(z dense.Double) {
		for j, p := range l.Prior.Prec {
			z.Hi[j], z.Lo[j] = dense.Product(z.Hi[j], 1/math.Sqrt(p))
		}
	}
	if w := l.Prior.Full; w != nil {
		rows = w.Whiten
	}
	x, q := span(l.X, nil, gamma, rows, h)
	if err := h.Err(); err != nil {
		return nil, nil, err
	}
	prior := gauss.Prior{Mean: make([]float64, x.Cols), Prec: make([]float64, x.Cols)}
	names := make([]string, x.Cols)
	for j := range names {
		prior.Prec[j], names[j] = 1, fmt.Sprintf("dimension %d of the rows", j)
	}
	return &LinearModel{Terms: l.Terms, X: x, Prior: prior, Names: names, MaxMemory: l.MaxMemory},
		q, nil
}

// Weights implements Weighted.
func (s *SpanAlgebra) Weights() ([]float64, gauss.Cov, error) {
	if s.Wide {
		return s.WeightAlgebra.Weights()
	}
	return s.whole.primal(s.Gamma, s.A, s.Eta, s.Workers.Halt)
}

// aim implements Algebra. A step with a given β uses the weights.
func (s *SpanAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	if err := s.widen(); err != nil {
		return err
	}
	return s.WeightAlgebra.aim(x, batch, m)
}

// widen switches to the weights.
func (s *SpanAlgebra) widen() error {
	if s.Wide {
		return nil
	}
	w, err := NewWeightAlgebra(s.whole, s.Workers)
	if err != nil {
		return err
	}
	if !s.Cur.Bare() {
		at, err := s.whole.at(s.Gamma, s.A, s.Eta, s.Workers.Halt)
		if err != nil {
			return err
		}
		w.Run.CopyFrom(at)
		copy(w.Gamma, s.Gamma)
		copy(w.A, s.A)
		copy(w.Eta, s.Eta)
	}
	s.WeightAlgebra, s.Wide = w, true
	return nil
}

// State implements Algebra.
func (s *SpanAlgebra) State(c *save.Coder) {
	wide := s.Wide
	c.Bool(&wide)
	switch {
	case c.Err() != nil || wide == s.Wide:
	case wide:
		w, err := NewWeightAlgebra(s.whole, s.Workers)
		if c.Check(err == nil, "its prior: %v", err); err != nil {
			return
		}
		s.WeightAlgebra, s.Wide = w, true
	default:
		s.WeightAlgebra, s.Wide = s.near, false
	}
	s.WeightAlgebra.State(c)
}

// potentials returns b of the sites γ and a about the linear predictors m − o. V⁻¹ times the mean
// is Xᵀb.
func potentials(gamma, a, m []float64) []float64 {
	b := make([]float64, len(a))
	for i, g := range gamma {
		b[i] = a[i] + g*m[i]
	}
	return b
}

// at returns the Gaussian of the weights at the given sites.
func (l *LinearModel) at(gamma, a, m []float64, h *parallel.Halt) (*gauss.Gaussian, error) {
	cov := &gauss.Dual{X: l.X, Gamma: gamma, Prior: &l.Prior}
	w, err := cov.State(h)
	if err == nil {
		w.Solve(l.X, potentials(gamma, a, m), nil, &design.Work{Halt: h})
	}
	return w, err
}

// primal returns the mean and the covariance of the weights at the given sites.
func (l *LinearModel) primal(gamma, a, m []float64, h *parallel.Halt) ([]float64, gauss.Cov,
	error) {
	w, err := l.at(gamma, a, m, h)
	if err != nil {
		return nil, nil, err
	}
	mean := append([]float64(nil), w.Mean...)
	clear(w.Mean)
	return mean, &gauss.Full{S: w}, nil
}
