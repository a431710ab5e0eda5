package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"gonum.org/v1/gonum/floats"
)

// DivergenceProxer is a Divergence that knows proximal steps in closed form.
type DivergenceProxer interface {
	Divergence
	// Prox replaces q, which holds λ_k = q0 on entry, by
	//
	//	argmin_λ  gᵀλ + h(λ) + D(λ‖λ_k)/β
	//
	// and reports true, or reports false without changing q if it does not know
	// the closed form for this h and this family. If the minimiser is not a
	// valid λ it returns true and the error of SetParams.
	Prox(q Dist, g []float64, h Convex, q0 Dist, beta float64) (bool, error)
}

// ConvexProxer is a Convex that knows proximal steps in closed form. It is
// asked after the Divergence.
type ConvexProxer interface {
	Convex
	// Prox is as in DivergenceProxer.
	Prox(q Dist, g []float64, d Divergence, q0 Dist, beta float64) (bool, error)
}

// Prox replaces q by the proximal step from q0,
//
//	argmin_λ  gᵀλ + h(λ) + D(λ‖λ_k)/β,
//
// g in the coordinates of q0, which q must share. It asks d for a closed form,
// then h, and otherwise minimises numerically in the chart of q; closed says
// which it was. The closed forms are
//
//	D                 h      coordinates      step                                        known as
//	Euclidean         Zero   any              λ − βg                                      gradient descent
//	Euclidean         L1     any              soft(λ − βg, βw)                            ISTA
//	Diagonal(s)       Zero   any              λ − βg/s                                    AdaGrad and others, see Adaptive
//	Diagonal(s)       L1     any              soft(λ − βg/s, βw/s)
//	Bregman(F)        Zero   any              ∇F⁻¹(∇F(λ) − βg), F with InvGrad            mirror descent
//	KL                Zero   MeanParams       η − βg                                      natural gradient
//	KL                Zero   Moments          V⁻¹ + 2βG,  m − βVg                         natural gradient
//	KL                KLTo   MeanParams       rη + (1−r)(η_p − g)                         PG-SVI, main text
//	KL                KLTo   Moments          see below                                   PG-SVI, appendix
//	ReverseKL         Zero   Natural          μ − βg                                      mirror descent in A
//
// with r = 1/(1+β), (g, G) the gradients with respect to (m, V), and for the appendix
// V₊⁻¹ = rV⁻¹ + (1−r)(P + 2G), m₊ = m − (1−r)[(1−r)P + rV⁻¹]⁻¹(P(m−μ) + g),
// N(μ, P⁻¹) the prior. β = +Inf is allowed in the rows with KLTo: r = 0.
//
// It returns an error wrapping ErrNoProx if there is neither a closed form nor
// a chart, or one wrapping ErrNotPosDef or ErrNotFinite if the minimiser is not
// a valid λ; q then holds q0.
func Prox(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) (closed bool, err error) {
	if err := setDist(q, q0); err != nil {
		return false, err
	}
	if p, ok := d.(DivergenceProxer); ok {
		if done, err := p.Prox(q, g, h, q0, beta); done {
			return true, orBack(q, q0, err)
		}
	}
	if p, ok := h.(ConvexProxer); ok {
		if done, err := p.Prox(q, g, d, q0, beta); done {
			return true, orBack(q, q0, err)
		}
	}
	return false, NumericProx(q, g, h, d, q0, beta)
}

// setDist makes q equal to q0.
func setDist(q, q0 Dist) error {
	if e, ok := q.(ExpFamily); ok && e.setState(q0) {
		return nil
	}
	return q.SetParams(q0.Params(nil))
}

// orBack returns err, having put q back to q0 if it is not nil.
func orBack(q, q0 Dist, err error) error {
	if err != nil {
		return errors.Join(err, setDist(q, q0))
	}
	return nil
}

// checkProx returns whether the pair has a closed form at q, or an error
// wrapping ErrNoProx if it has no proximal step at all.
func checkProx(q Dist, h Convex, d Divergence) (closed bool, err error) {
	if a, ok := d.(interface{ Accepts(Dist) error }); ok {
		if err := a.Accepts(q); err != nil {
			return false, err
		}
	}
	g := make([]float64, q.NumParams())
	p := q.Clone()
	if dp, ok := d.(DivergenceProxer); ok {
		if done, _ := dp.Prox(p, g, h, q, 1); done {
			return true, nil
		}
	}
	if hp, ok := h.(ConvexProxer); ok {
		if done, _ := hp.Prox(p, g, d, q, 1); done {
			return true, nil
		}
	}
	if _, ok := q.(Charted); !ok {
		return false, fmt.Errorf("pgsvi: %w for h = %T with D = %T on %T: no closed form, and %T has no chart for a numeric step; implement DivergenceProxer, ConvexProxer or Charted", ErrNoProx, h, d, q, q)
	}
	return false, nil
}

// NumericProx is Prox without the closed forms: it minimises by L-BFGS in the
// chart of q, which must be Charted, from q0. It is the fallback for any pair
// (h, D) and the oracle for the closed forms. It returns an error wrapping
// ErrNoProx if q has no chart, and ErrNotFinite if the objective is not finite
// at q0 or has no minimum that the descent finds; q then holds q0.
func NumericProx(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) error {
	c, ok := q.(Charted)
	if !ok {
		return fmt.Errorf("pgsvi: %w: %T has no chart", ErrNoProx, q)
	}
	lambda0 := q0.Params(nil)
	lambda, grad := make([]float64, len(lambda0)), make([]float64, len(lambda0))
	value := func(x []float64) float64 {
		if c.SetChart(x) != nil {
			return math.Inf(1)
		}
		c.Params(lambda)
		var v float64
		for i, gi := range g {
			v += gi * (lambda[i] - lambda0[i])
		}
		v += h.Value(c) + d.Value(c, q0)/beta
		if math.IsNaN(v) {
			return math.Inf(1)
		}
		return v
	}
	gradient := func(dst, x []float64) {
		if c.SetChart(x) != nil {
			floats.AddConst(math.NaN(), dst)
			return
		}
		h.Grad(dst, c)
		floats.Add(dst, g)
		floats.AddScaled(dst, 1/beta, d.Grad(grad, c, q0))
		c.ChartGrad(dst, dst)
	}
	if err := setDist(c, q0); err != nil {
		return err
	}
	x0 := c.Chart(nil)
	slope := make([]float64, len(x0))
	gradient(slope, x0)
	start := floats.Norm(slope, math.Inf(1))
	x, ok := accel.LBFGS(value, gradient, x0)
	if !ok {
		return orBack(c, q0, fmt.Errorf("pgsvi: %w: the objective of the numeric proximal step is %v at its start", ErrNotFinite, value(x0)))
	}
	gradient(slope, x)
	if _, kink := h.(L1); !kink {
		if end := floats.Norm(slope, math.Inf(1)); !(end <= 1e-3*math.Max(1, start)) {
			return orBack(c, q0, fmt.Errorf("pgsvi: %w: the numeric proximal step found no minimum; the gradient is still %.3g", ErrNotFinite, end))
		}
	}
	return orBack(c, q0, c.SetChart(x))
}

// Prox implements DivergenceProxer for h = Zero and h = L1.
func (Euclidean) Prox(q Dist, g []float64, h Convex, q0 Dist, beta float64) (bool, error) {
	return diagonalProx(q, g, h, q0, beta, nil)
}

// Prox implements DivergenceProxer for h = Zero where the Potential has InvGrad.
func (b Bregman) Prox(q Dist, g []float64, h Convex, q0 Dist, beta float64) (bool, error) {
	inv, ok := b.Potential.(interface {
		InvGrad(dst, y []float64) []float64
	})
	if _, zero := h.(Zero); !ok || !zero {
		return false, nil
	}
	y := b.Potential.Grad(nil, q0.Params(nil))
	floats.AddScaled(y, -beta, g)
	return true, q.SetParams(inv.InvGrad(nil, y))
}

// Prox implements DivergenceProxer for h = Zero in natural parameters, where
// the mean parameters move by −βg.
func (ReverseKL) Prox(q Dist, g []float64, h Convex, q0 Dist, beta float64) (bool, error) {
	e, ok := q.(ExpFamily)
	if _, zero := h.(Zero); !ok || !zero || e.Coordinates() != Natural {
		return false, nil
	}
	mu := q0.(ExpFamily).MeanParams(nil)
	floats.AddScaled(mu, -beta, g)
	return true, e.SetMeanParams(mu)
}

// Prox implements DivergenceProxer for h = Zero and for h = KLTo a member of
// the family of q, of which a MeanField is one for a Gaussian, in mean parameters
// and, for Gaussians, in moments.
func (KL) Prox(q Dist, g []float64, h Convex, q0 Dist, beta float64) (bool, error) {
	e, ok := q.(ExpFamily)
	if !ok {
		return false, nil
	}
	var prior ExpFamily
	switch h := h.(type) {
	case Zero:
	case *KLTerm:
		prior = h.prior
	default:
		return false, nil
	}
	switch n, isNormal := q.(normal); {
	case e.Coordinates() == MeanParams:
		var etaP []float64
		if prior != nil {
			if etaP = e.naturalOf(prior); etaP == nil {
				return false, nil
			}
		}
		return true, e.SetNatural(klProxNatural(q0.(ExpFamily).Natural(nil), g, etaP, beta))
	case isNormal && n.Coordinates() == Moments:
		return klProxMoments(n, g, prior, q0.(normal), beta)
	}
	return false, nil
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
	pr, ok := prior.(normal)
	if !ok || pr.numGradV() > q.numGradV() { // of a full prior a diagonal q has no closed form
		return false, nil
	}
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
