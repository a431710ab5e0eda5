package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Potential is a strictly convex function F of λ.
type Potential interface {
	// Value returns F(λ).
	Value(lambda []float64) float64
	// Grad stores ∇F(λ) in dst; nil allocates.
	Grad(dst, lambda []float64) []float64
	// InvGrad stores the λ that solves ∇F(λ) = y in dst, with which mirror descent
	// is in closed form; nil allocates. It returns nil where it has no closed form.
	InvGrad(dst, y []float64) []float64
}

// Bregman is D(q‖q0) = F(λ) − F(λ0) − ∇F(λ0)ᵀ(λ − λ0), whose proximal step
// with h = 0 is mirror descent (Nemirovski and Yudin, 1983; Beck and Teboulle, 2003).
type Bregman struct{ Potential Potential }

// Value implements Divergence.
func (b Bregman) Value(q, q0 Dist) float64 {
	l, l0 := q.Params(nil), q0.Params(nil)
	g := b.Potential.Grad(nil, l0)
	v := b.Potential.Value(l) - b.Potential.Value(l0)
	for i, gi := range g {
		v -= gi * (l[i] - l0[i])
	}
	return v
}

// Grad implements Divergence.
func (b Bregman) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = b.Potential.Grad(dst, q.Params(nil))
	floats.Sub(dst, b.Potential.Grad(nil, q0.Params(nil)))
	return dst
}

// Check returns an error wrapping ErrParam if Potential is nil.
func (b Bregman) Check(Dist) error {
	if b.Potential == nil {
		return fmt.Errorf("pgsvi: Bregman.Potential is nil: %w", ErrParam)
	}
	return nil
}

// Prox implements Proxer for H = Zero where the Potential has an InvGrad.
func (b Bregman) Prox(q Dist, p *Prox) (bool, error) {
	if !isZero(p.H) {
		return false, nil
	}
	y := b.Potential.Grad(nil, p.From.Params(nil))
	floats.AddScaled(y, -p.Beta, p.Grad)
	l := b.Potential.InvGrad(nil, y)
	if l == nil {
		return false, nil
	}
	return true, q.SetParams(l)
}

// NegEntropy is the potential F(λ) = Σ_i λ_i log λ_i − λ_i on λ > 0, with
// which mirror descent is the exponentiated gradient.
type NegEntropy struct{}

// Value implements Potential; it is +Inf where some λ_i < 0.
func (NegEntropy) Value(lambda []float64) float64 {
	var s float64
	for _, x := range lambda {
		switch {
		case x > 0:
			s += x*math.Log(x) - x
		case x < 0:
			return math.Inf(1)
		}
	}
	return s
}

// Grad implements Potential.
func (NegEntropy) Grad(dst, lambda []float64) []float64 {
	dst = dense.Dest(dst, len(lambda))
	for i, x := range lambda {
		dst[i] = math.Log(x)
	}
	return dst
}

// InvGrad implements Potential: e^y.
func (NegEntropy) InvGrad(dst, y []float64) []float64 {
	dst = dense.Dest(dst, len(y))
	for i, x := range y {
		dst[i] = math.Exp(x)
	}
	return dst
}
