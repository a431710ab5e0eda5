package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/dense"
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
		var etaP []float64
		if prior != nil {
			if etaP = e.naturalOf(prior); etaP == nil {
				return false, nil
			}
		}
		return true, e.SetNatural(klProxNatural(p.From.(ExpFamily).Natural(nil), p.Grad, etaP, p.Beta))
	case Moments:
		return klProxMoments(e.(*Gaussian).normal, p.Grad, prior, p.From.(*Gaussian).normal, p.Beta)
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

// klGrad stores ∇_λ KL(q‖p) in dst.
func klGrad(dst []float64, q ExpFamily, p Dist) []float64 {
	if n, ok := q.(*Gaussian); ok {
		return gaussianKLGrad(dst, n.normal, p.(*Gaussian).normal)
	}
	// ∇_μ KL(q‖p) = η − η_p.
	g := q.Natural(nil)
	floats.Sub(g, p.(ExpFamily).Natural(nil))
	return q.FromMeanGrad(dst, g)
}

// gaussianKLGrad is klGrad for Gaussians, either of which may be diagonal: with
// P and μ those of p, ∇_m = P(m − μ) and ∇_V = ½(P − V⁻¹).
func gaussianKLGrad(dst []float64, q, p normal) []float64 {
	if g, ok := q.(*fullGaussian); ok && g.hasFactor() {
		dst = dense.Dest(dst, g.NumParams())
		g.factorKL(dst, p)
		return dst
	}
	d := q.Dim()
	diff, gm, gv := make([]float64, d), make([]float64, d), make([]float64, q.numGradV())
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
	}
	p.mulPrecision(gm, diff)
	halfPrecision(gv, p, d)
	q.addPrecision(gv, -0.5)
	return q.fromMomentGrad(dst, gm, gv)
}

// halfPrecision stores ½P in gv, all of it or the diagonal, as len(gv) says.
func halfPrecision(gv []float64, p normal, d int) {
	for i := range d {
		if len(gv) == d {
			gv[i] = 0.5 * p.precisionAt(i, i)
			continue
		}
		for j := range d {
			gv[i*d+j] = 0.5 * p.precisionAt(i, j)
		}
	}
}

// klProxNatural returns the natural parameters of the step from eta under KL
// in mean parameters: η − βg, or with a prior of natural parameters etaP
// rη + (1−r)(η_p − g). It overwrites eta.
func klProxNatural(eta, g, etaP []float64, beta float64) []float64 {
	if etaP == nil {
		floats.AddScaled(eta, -beta, g)
		return eta
	}
	r := 1 / (1 + beta)
	for i := range eta {
		eta[i] = r*eta[i] + (1-r)*(etaP[i]-g[i])
	}
	return eta
}

// klProxMoments is the step under KL in the coordinates (m, V).
func klProxMoments(q normal, g []float64, prior ExpFamily, n0 normal, beta float64) (bool, error) {
	d := q.Dim()
	gm, gv := make([]float64, d), make([]float64, q.numGradV())
	q.toMomentGrad(gm, gv, g)
	m, p := make([]float64, d), make([]float64, q.numGradV())
	for i := range m {
		m[i] = n0.meanAt(i)
	}
	if prior == nil {
		// V₊⁻¹ = V⁻¹ + 2βG, m₊ = m − βVg.
		n0.addPrecision(p, 1)
		floats.AddScaled(p, 2*beta, gv)
		for i := range m {
			for j := range d {
				m[i] -= beta * n0.covAt(i, j) * gm[j]
			}
		}
		return true, q.setPrecision(m, p)
	}
	gp, ok := prior.(*Gaussian)
	if _, diagonal := q.(*diagonalGaussian); !ok || diagonal && !gp.Diagonal() {
		return false, nil // of a full prior a diagonal q has no closed form
	}
	pr := gp.normal
	r := 1 / (1 + beta)
	// The step of the mean solves [(1−r)P + rV⁻¹] δ = P(m − μ) + g.
	diff, rhs := make([]float64, d), make([]float64, d)
	for i := range d {
		diff[i] = m[i] - pr.meanAt(i)
	}
	pr.mulPrecision(rhs, diff)
	floats.Add(rhs, gm)
	halfPrecision(p, pr, d)
	floats.Scale(2*(1-r), p)
	n0.addPrecision(p, r)
	if err := q.setPrecision(make([]float64, d), p); err != nil {
		return true, err
	}
	for i := range m {
		for j := range d {
			m[i] -= (1 - r) * q.covAt(i, j) * rhs[j]
		}
	}
	floats.AddScaled(p, 2*(1-r), gv)
	return true, q.setPrecision(m, p)
}
