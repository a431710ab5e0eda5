package term

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Terms of K > 1 latent values, such as the scores of K classes. A state then has N·K elements, of
// which n·K + k is value k of term n; a batch still names terms. What is one number a term, such as
// its expectation, is that of the first of its elements, and 0 of the others.

// Several is a Likelihood of K latent values a term.
type Several interface {
	Likelihood
	// ExpectSeveral returns E log p(y|η) under independent η_k ~ N(m_k, v_k), to about tol for each
	// of these, and a bound on its error; a tol of 0 asks for the most that is useful. It stores
	// ∂E/∂m_k in d1 and ∂²E/∂m_k² = 2 ∂E/∂v_k in d2. It is safe for concurrent use.
	ExpectSeveral(y, tol float64, m, v, d1, d2 []float64) (value, err float64)
	// Curvature stores −∂²E/∂m_j∂m_k in h, K×K, which does not depend on y and is to about 1e−11.
	// The rows of h add up to 0: only differences of latent values count.
	Curvature(m, v, h []float64)
}

// Latents returns K.
func (t *Terms) Latents() int { return max(1, t.K) }

// Elements returns N·K.
func (t *Terms) Elements() int { return len(t.Y) * t.Latents() }

// Element returns which element of all terms is element i of those of the terms in batch.
func (t *Terms) Element(batch []int, i int) int {
	if t.K <= 1 || batch == nil {
		return dense.Index(batch, i)
	}
	return batch[i/t.K]*t.K + i%t.K
}

// termOf returns the term of element i of those of the terms in batch.
func (t *Terms) termOf(batch []int, i int) int {
	if t.K > 1 {
		i /= t.K
	}
	return dense.Index(batch, i)
}

// expectSeveral is expectSites for terms of K > 1 latent values. All derivatives are of use: those
// of the likelihoods that there are do not overflow.
func (t *Terms) expectSeveral(s *State, batch []int, lo, hi int) {
	i := lo
	defer parallel.At(&i, func(i int) string { return t.Name(dense.Index(batch, i)) })
	var shown []float64
	for ; i < hi; i++ {
		n, at := dense.Index(batch, i), i*t.K
		d1, tg := s.D1[at:at+t.K], s.Tg[at:at+t.K]
		var e, bound float64
		e, bound, shown = t.ExpectSeveral(n, s.Tol, s.M[at:at+t.K], s.V[at:at+t.K], d1, tg, shown)
		for k := range d1 {
			tg[k] = -tg[k]
			s.E[at+k], s.bound[at+k], s.far[at+k], s.lost[at+k] = 0, 0, false, false
		}
		s.E[at], s.bound[at] = e, bound
	}
}

// ExpectSeveral is the Several of term n, times its weight: under scores of means m and variances v
// without offset and residual variance. It returns its scratch, which may be nil.
func (t *Terms) ExpectSeveral(n int, tol float64, m, v, d1, d2, scratch []float64) (value,
	err float64, _ []float64) {
	m, v, scratch = t.shown(n, m, v, scratch)
	value, err = t.Lik.(Several).ExpectSeveral(t.Y[n], tol, m, v, d1, d2)
	if t.Weight != nil {
		w := t.Weight[n]
		value, err = w*value, w*err
		floats.Scale(w, d1)
		floats.Scale(w, d2)
	}
	if math.IsNaN(value) {
		err = math.Inf(1)
	}
	return value, err, scratch
}

// shown returns the means and variances that the likelihood of term n is shown, for those of its
// latent values, and the scratch, in which they may be.
func (t *Terms) shown(n int, m, v, scratch []float64) (_, _, _ []float64) {
	if t.Offset == nil && t.Extra == nil {
		return m, v, scratch
	}
	k := t.K
	scratch = append(append(scratch[:0], m...), v...)
	m, v = scratch[:k], scratch[k:]
	if t.Offset != nil {
		floats.Add(m, t.Offset[n*k:(n+1)*k])
	}
	if t.Extra != nil {
		floats.AddConst(t.Extra[n], v)
	}
	return m, v, scratch
}

// Curvature is that of the Several of term n, times its weight, which it returns. See ExpectSeveral
// for the scratch.
func (t *Terms) Curvature(n int, m, v, h, scratch []float64) (weight float64, _ []float64) {
	m, v, scratch = t.shown(n, m, v, scratch)
	t.Lik.(Several).Curvature(m, v, h)
	if weight = 1; t.Weight != nil {
		weight = t.Weight[n]
		floats.Scale(weight, h)
	}
	return weight, scratch
}
