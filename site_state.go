package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
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

// expect takes the expectations of the terms under the marginals, shared
// between workers. The error wraps ErrNotFinite and names the first bad term.
func (s *siteState) expect(lik Likelihood, y []float64, workers int) error {
	s.bound = dense.Resize(s.bound, len(y))
	if workers <= 1 {
		for i := range y {
			s.expectSite(lik, y, i)
		}
	} else {
		s.expectParallel(lik, y, workers)
	}
	s.err = 0
	for i, e := range s.e {
		s.err += s.bound[i]
		if bad := s.tg[i] + s.d1[i] + e; math.IsNaN(bad) || math.IsInf(e, 1) {
			return fmt.Errorf("pgsvi: %w: %s under N(%.4g, %.4g) has expectation %v and no derivatives that are of use", ErrNotFinite, describeTerm(lik, y[i], i), s.m[i], s.v[i], e)
		}
	}
	return nil
}

// describer is a likelihood that knows which term a response is of.
type describer interface{ describe(y float64) string }

// describeTerm names term i, with response y, in an error.
func describeTerm(lik Likelihood, y float64, i int) string {
	if t, ok := lik.(describer); ok {
		return t.describe(y)
	}
	return fmt.Sprintf("term %d, with label %v,", i, y)
}

// expectSite takes the expectation of term i. Where the derivatives are beyond
// use, those of a narrower marginal stand in: a finite step in the right
// direction; NaN says that there are none.
func (s *siteState) expectSite(lik Likelihood, y []float64, i int) {
	m, v := s.m[i], s.v[i]
	x := ExpectLogProb(lik, y[i], m, v)
	s.e[i], s.bound[i] = x.Value, x.Err
	for k := 0; k < 600 && !usable(x, v); k++ {
		v /= 8
		x = ExpectLogProb(lik, y[i], m, v)
	}
	s.tg[i], s.d1[i] = -x.D2, x.D1
	if !usable(x, v) {
		s.tg[i] = math.NaN()
	}
}

func (s *siteState) expectParallel(lik Likelihood, y []float64, workers int) {
	parallel.For(len(y), 8, workers, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			s.expectSite(lik, y, i)
		}
	})
}

// usable reports whether the derivatives under a marginal of variance v can be
// a target: finite, and no more than a factor of 1e8 more precise than it.
func usable(x Expectation, v float64) bool {
	return math.Abs(x.D2)*v < 1e8 && math.Abs(x.D1)*math.Sqrt(v) < 1e8 && moderate(x)
}

// moderate reports whether the derivatives are far from overflow.
func moderate(x Expectation) bool { return math.Abs(x.D1)+math.Abs(x.D2) < 1e150 }

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
