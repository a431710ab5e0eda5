package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// klDivergence is what KL is as a value, behind a pointer or embedded, so that
// no question about it depends on which.
type klDivergence interface{ isKL() }

// isKL reports whether d is KL, which nil stands for.
func isKL(d Divergence) bool {
	_, ok := d.(klDivergence)
	return d == nil || ok
}

// KL is D(q‖q0) = KL(q‖q0) in nats, for an ExpFamily. In mean parameters it is
// a Bregman divergence, of the negative entropy, and with h = KLTo its proximal
// step averages natural parameters.
type KL struct{}

func (KL) isKL() {}

// Value implements Divergence.
func (KL) Value(q, q0 Dist) float64 { return q.(ExpFamily).KL(q0) }

// Grad implements Divergence.
func (KL) Grad(dst []float64, q, q0 Dist) []float64 { return klGrad(dst, q.(ExpFamily), q0) }

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (KL) Check(q Dist) error { return checkExpFamily("KL", q) }

// Prox implements Proxer for H = Zero and for H = KLTo a member of the family of
// q, of which a diagonal Gaussian is one for a full one, in mean parameters and,
// for Gaussians, in moments.
func (KL) Prox(q Dist, p *Prox) (bool, error) {
	e, ok := q.(ExpFamily)
	if !ok {
		return false, nil
	}
	prior := priorOf(p.H)
	if prior == nil && !isZero(p.H) {
		return false, nil
	}
	switch e.Coordinates() {
	case MeanParams:
		if x, ok := e.(*Exp); ok {
			return x.klProx(p.From.(*Exp), p.Grad, prior, p.Beta)
		}
		var etaP []float64
		if prior != nil {
			if etaP = e.naturalOf(prior); etaP == nil {
				return false, nil
			}
		}
		return true, e.SetNatural(klProxNatural(p.From.(ExpFamily).Natural(nil), p.Grad, etaP, p.Beta))
	case MeanCov:
		return klProxMoments(e.(*Gaussian).normalForm, p.Grad, prior, p.From.(*Gaussian).normalForm, p.Beta)
	}
	return false, nil
}

// ReverseKL is D(q‖q0) = KL(q0‖q) in nats, for an ExpFamily. In natural
// parameters it is a Bregman divergence, of the log-partition function, and
// with h = 0 its proximal step moves the mean parameters.
type ReverseKL struct{}

// Value implements Divergence.
func (ReverseKL) Value(q, q0 Dist) float64 { return q0.(ExpFamily).KL(q) }

// Grad implements Divergence.
func (ReverseKL) Grad(dst []float64, q, q0 Dist) []float64 {
	// ∇_η (A(η) − ηᵀμ0) = μ − μ0.
	e := q.(ExpFamily)
	g := e.MeanParams(nil)
	floats.Sub(g, q0.(ExpFamily).MeanParams(nil))
	return e.FromNaturalGrad(dst, g)
}

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (ReverseKL) Check(q Dist) error { return checkExpFamily("ReverseKL", q) }

// Prox implements Proxer for H = Zero in natural parameters, where the mean
// parameters move by −βg.
func (ReverseKL) Prox(q Dist, p *Prox) (bool, error) {
	e, ok := q.(ExpFamily)
	if !ok || !isZero(p.H) || e.Coordinates() != Natural {
		return false, nil
	}
	mu := p.From.(ExpFamily).MeanParams(nil)
	floats.AddScaled(mu, -p.Beta, p.Grad)
	return true, e.SetMeanParams(mu)
}

// SymKL is D(q‖q0) = ½(KL(q‖q0) + KL(q0‖q)) in nats, for an ExpFamily: half
// the divergence of Jeffreys (1946), so that KL, ReverseKL and SymKL agree to
// second order. Hoffman et al. (2013) read the natural gradient as the steepest
// descent of this divergence; see KL for the form of it that is exact at every step size.
type SymKL struct{}

// Value implements Divergence.
func (SymKL) Value(q, q0 Dist) float64 {
	return 0.5 * (KL{}.Value(q, q0) + ReverseKL{}.Value(q, q0))
}

// Grad implements Divergence.
func (SymKL) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = KL{}.Grad(dst, q, q0)
	floats.Add(dst, ReverseKL{}.Grad(nil, q, q0))
	floats.Scale(0.5, dst)
	return dst
}

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (SymKL) Check(q Dist) error { return checkExpFamily("SymKL", q) }

func checkExpFamily(name string, q Dist) error {
	if _, ok := q.(ExpFamily); !ok {
		return fmt.Errorf("pgsvi: %s needs an ExpFamily, not a %T: %w", name, q, ErrNoProx)
	}
	return nil
}

// KLTo returns h(λ) = KL(q‖p) in nats, p the prior. It keeps a copy of prior.
// It panics if prior is nil. Its Check wraps ErrShape unless q is of the family of
// the prior, or both are Gaussian, and of the same dimension.
func KLTo(prior ExpFamily) Convex {
	if prior == nil {
		panic("pgsvi: KLTo needs a prior")
	}
	return klTo{prior.Clone().(ExpFamily)}
}

type klTo struct{ prior ExpFamily }

func (h klTo) priorDist() ExpFamily { return h.prior }

func (h klTo) Check(q Dist) error {
	e, ok := q.(ExpFamily)
	_, qn := q.(*Gaussian)
	_, pn := h.prior.(*Gaussian)
	if !ok || q.Dim() != h.prior.Dim() || !(qn && pn) && e.naturalOf(h.prior) == nil {
		return fmt.Errorf("pgsvi: KLTo a %s does not fit a q that is a %s; give both the same family and dimension: %w", distName(h.prior), distName(q), ErrShape)
	}
	return nil
}

func (h klTo) Value(q Dist) float64 { return q.(ExpFamily).KL(h.prior) }

func (h klTo) Grad(dst []float64, q Dist) []float64 { return klGrad(dst, q.(ExpFamily), h.prior) }

func (h klTo) valueGrad(dst []float64, q Dist) float64 {
	if g := factorOf(q); g != nil {
		return g.factorKL(dst, h.prior.(*Gaussian).normalForm)
	}
	h.Grad(dst, q)
	return h.Value(q)
}

func (p klTo) digest(d *save.Digest) {
	d.Text(fmt.Sprintf("%T", p.prior))
	d.Float(p.prior.Params(nil)...)
}
