package pgsvi

import (
	"github.com/pgsvi/pgsvi/internal/dense"
)

// noisyPivot is how much a step with noise must leave, of the precision of a
// variable, to a site with a negative γ: a tenth, so that the variance grows
// tenfold. Noise alone drives sites to the edge of what is positive definite, where
// each step could go half of the way that is left, and the mean runs away with V. A
// step that was halved noisyHalvings times is taken all the same.
const (
	noisyPivot    = 0.1
	noisyHalvings = 20
)

// siteState is a Gaussian in site form, with the expectations of its terms.
type siteState struct {
	gamma []float64 // γ
	a     []float64 // b − γm: the linear coefficient of the site about the mean, equal to K⁻¹m
	m, v  []float64 // marginals
	e     []float64 // E[log p(y_n|η_n)]
	tg    []float64 // −∂²E/∂m²: where γ would move
	d1    []float64 // ∂E/∂m: where a would move
	bound []float64 // on the error of each e
	err   float64   // and of Σ e
}

func (s *siteState) resize(n int) {
	for _, p := range []*[]float64{&s.gamma, &s.a, &s.m, &s.v, &s.e, &s.tg, &s.d1} {
		*p = dense.Resize(*p, n)
	}
}

func (s *siteState) copyFrom(o *siteState) {
	s.resize(len(o.m))
	for _, p := range [][2][]float64{{s.gamma, o.gamma}, {s.a, o.a}, {s.m, o.m}, {s.v, o.v}, {s.e, o.e}, {s.tg, o.tg}, {s.d1, o.d1}} {
		copy(p[0], p[1])
	}
	s.err = o.err
}

// MeanUpdate selects one of the two published updates of the mean of a GP.
// With r = 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and
// Γ = diag(2 ∂f/∂v), estimated from the batch, both have V₊⁻¹ = K⁻¹ + Γ₊,
// Γ₊ = rΓ_k + (1−r)Γ.
type MeanUpdate int

const (
	// MainText is m₊ = m − (1−r)V₊(K⁻¹m + a): the exact proximal step in the
	// mean parameters (m, V + mmᵀ), which averages natural parameters
	// (Khan et al., 2016, Section 5, with Γ = diag(2 ∂f/∂v)).
	MainText MeanUpdate = iota
	// Appendix is m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a): the exact proximal
	// step in the coordinates (m, V) (Khan et al., 2016, appendix).
	Appendix
)
