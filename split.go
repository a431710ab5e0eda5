package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Smooth is f, the difficult part of the negative ELBO: a sum of N terms,
// differentiable in λ, which the iteration linearises. Any user type may be one.
//
// A Smooth may also have any of
//
//	Value(q Dist, rng *rand.Rand) (value, stderr float64, err error)   f over all terms, as exactly as it is known
//	Deterministic() bool                                               whether Grad ignores rng
//	Accepts(q Dist) error                                              asked at set-up
//	SetWorkers(n int)                                                  see Stepper
type Smooth interface {
	// Len returns N.
	Len() int
	// Grad stores an unbiased estimate of ∇_λ f(λ), the gradient of the terms in
	// batch scaled by N/len(batch), in dst, of length q.NumParams, and returns
	// an estimate of f scaled alike. A nil batch means all terms. Given the same
	// state of rng it returns the same bits. The error names the term.
	Grad(dst []float64, q Dist, batch []int, rng *rand.Rand) (value float64, err error)
}

// Convex is h, the easy part of the negative ELBO, which the iteration keeps
// exact. Any user type may be one; a Convex with closed forms also implements ConvexProxer.
type Convex interface {
	// Value returns h(λ).
	Value(q Dist) float64
	// Grad stores ∇_λ h in dst; nil allocates.
	Grad(dst []float64, q Dist) []float64
}

// Objective is the negative ELBO f(λ) + h(λ) and where to begin. It is a Model.
type Objective struct {
	F    Smooth // nil means 0, as in a trust-region method
	H    Convex // nil means Zero
	Init Dist   // λ_0; cloned at the start of each run
}

// noTerms is f = 0.
type noTerms struct{}

func (noTerms) Len() int            { return 1 }
func (noTerms) Deterministic() bool { return true }
func (noTerms) Grad(dst []float64, _ Dist, _ []int, _ *rand.Rand) (float64, error) {
	clear(dst)
	return 0, nil
}

// Zero is h = 0.
type Zero struct{}

// Value returns 0.
func (Zero) Value(Dist) float64 { return 0 }

// Grad stores zeros.
func (Zero) Grad(dst []float64, q Dist) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	clear(dst)
	return dst
}

// L1 is h(λ) = Weight·Σ_i |λ_i| over the first Count elements of λ; a zero
// Count means all. With Euclidean its proximal step is the soft threshold.
type L1 struct {
	Weight float64
	Count  int
}

func (h L1) count(q Dist) int {
	if h.Count == 0 {
		return q.NumParams()
	}
	return h.Count
}

// Value implements Convex.
func (h L1) Value(q Dist) float64 {
	return h.Weight * floats.Norm(q.Params(nil)[:h.count(q)], 1)
}

// Grad implements Convex with the subgradient that is 0 at 0.
func (h L1) Grad(dst []float64, q Dist) []float64 {
	dst = q.Params(dst)
	n := h.count(q)
	for i, l := range dst {
		switch {
		case i >= n || l == 0:
			dst[i] = 0
		default:
			dst[i] = math.Copysign(h.Weight, l)
		}
	}
	return dst
}

// Accepts returns an error wrapping ErrParam if Weight is negative or not
// finite, and ErrShape if q has fewer than Count parameters.
func (h L1) Accepts(q Dist) error {
	if !(h.Weight >= 0) || math.IsInf(h.Weight, 0) {
		return fmt.Errorf("pgsvi: %w: L1.Weight is %v; it must be finite and not negative", ErrParam, h.Weight)
	}
	if h.Count < 0 || h.Count > q.NumParams() {
		return fmt.Errorf("pgsvi: %w: L1.Count is %d, λ has %d elements", ErrShape, h.Count, q.NumParams())
	}
	return nil
}

// KLTerm is h(λ) = KL(q‖p), made by KLTo.
type KLTerm struct{ prior ExpFamily }

// KLTo returns h(λ) = KL(q‖p) in nats, p the prior. It keeps a copy of prior.
// It panics if prior is nil.
func KLTo(prior ExpFamily) *KLTerm {
	if prior == nil {
		panic("pgsvi: KLTo needs a prior")
	}
	return &KLTerm{prior.Clone().(ExpFamily)}
}

// Prior returns a copy of p.
func (h *KLTerm) Prior() ExpFamily { return h.prior.Clone().(ExpFamily) }

// Value implements Convex.
func (h *KLTerm) Value(q Dist) float64 { return q.(ExpFamily).KL(h.prior) }

// Grad implements Convex.
func (h *KLTerm) Grad(dst []float64, q Dist) []float64 { return klGrad(dst, q.(ExpFamily), h.prior) }

// valueGrad stores ∇_λ h in dst and returns h.
func (h *KLTerm) valueGrad(dst []float64, q Dist) float64 {
	if g, ok := q.(*Gaussian); ok && g.hasFactor() {
		return g.factorKL(dst, h.prior.(normal))
	}
	h.Grad(dst, q)
	return h.Value(q)
}

// Accepts returns an error wrapping ErrShape unless q is of the family of the
// prior or both are Gaussian, and of the same dimension.
func (h *KLTerm) Accepts(q Dist) error {
	e, ok := q.(ExpFamily)
	_, qn := q.(normal)
	_, pn := h.prior.(normal)
	if !ok || q.Dim() != h.prior.Dim() || !e.SameFamily(h.prior) && !(qn && pn) {
		return fmt.Errorf("pgsvi: %w: KLTo a %T of dimension %d does not fit a q that is a %T of dimension %d", ErrShape, h.prior, h.prior.Dim(), q, q.Dim())
	}
	return nil
}

// smoothWithWorkers tells f to use n workers, or a copy of it where it can be
// part of a Model that is shared.
func smoothWithWorkers(f Smooth, n int) Smooth {
	if c, ok := f.(interface{ withWorkers(int) Smooth }); ok {
		return c.withWorkers(n)
	}
	if w, ok := f.(interface{ SetWorkers(int) }); ok {
		w.SetWorkers(n)
	}
	return f
}

// smoothValue returns f over all terms as exactly as it is known, and its standard error.
func smoothValue(f Smooth, q Dist, rng *rand.Rand) (v, stderr float64, err error) {
	if f, ok := f.(interface {
		Value(Dist, *rand.Rand) (float64, float64, error)
	}); ok {
		return f.Value(q, rng)
	}
	v, err = f.Grad(make([]float64, q.NumParams()), q, nil, rng)
	return v, math.NaN(), err
}
