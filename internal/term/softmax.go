package term

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// This file holds terms of K > 1 latent values, such as the scores of K classes (softmax). A
// state then has N·K elements, and element n·K + k is value k of term n. A batch still names
// terms. A number that belongs to a whole term, such as its expectation, is stored in the first
// of its elements, and the others are 0.

// Softmax is a Likelihood of K latent values per term.
type Softmax interface {
	Likelihood
	// ExpectSoftmax returns E log p(y|η) under independent η_k ~ N(m_k, v_k) and a bound on its
	// error. It stores ∂E/∂m_k in d1 and ∂²E/∂m_k² = 2 ∂E/∂v_k in d2. All results have an error
	// of about tol; 0 requests the best useful accuracy. It is safe for concurrent use.
	ExpectSoftmax(y, tol float64, m, v, d1, d2 []float64) (value, err float64)
	// Curvature stores −∂²E/∂m_j∂m_k in h, K×K, which does not depend on y and is to about 1e−11.
	// The rows of h add up to 0: only differences of latent values count.
	Curvature(m, v, h []float64)
}

// Latents returns K.
func (t *Terms) Latents() int { return max(1, t.K) }

// Elements returns N·K.
func (t *Terms) Elements() int { return len(t.Y) * t.Latents() }

// Element returns the index, among the elements of all terms, of element i of the batch.
func (t *Terms) Element(batch []int, i int) int {
	if t.K <= 1 || batch == nil {
		return dense.Index(batch, i)
	}
	return batch[i/t.K]*t.K + i%t.K
}

// termOf returns the term that element i of the batch belongs to.
func (t *Terms) termOf(batch []int, i int) int {
	if t.K > 1 {
		i /= t.K
	}
	return dense.Index(batch, i)
}

// expectSoftmax is expectSites for terms of K > 1 latent values. All derivatives are usable,
// because the derivatives of these likelihoods do not overflow.
func (t *Terms) expectSoftmax(s *Marginals, batch []int, lo, hi int, bounds []float64) {
	i := lo
	defer parallel.At(&i, func(i int) string { return t.Name(dense.Index(batch, i)) })
	var shown []float64
	for ; i < hi; i++ {
		n, at := dense.Index(batch, i), i*t.K
		d1, tg := s.D1[at:at+t.K], s.Tg[at:at+t.K]
		var e, bound float64
		e, bound, shown = t.ExpectSoftmax(n, s.Tol, s.M[at:at+t.K], s.V[at:at+t.K], d1, tg, shown)
		for k := range d1 {
			tg[k] = -tg[k]
			s.E[at+k], bounds[(i-lo)*t.K+k], s.far[at+k], s.lost[at+k] = 0, 0, false, false
		}
		s.E[at], bounds[(i-lo)*t.K] = e, bound
	}
}

// ExpectSoftmax is the Several of term n, times its weight: under scores of means m and variances v
// without offset and residual variance. It returns its scratch, which may be nil.
func (t *Terms) ExpectSoftmax(n int, tol float64, m, v, d1, d2, scratch []float64) (value,
	err float64, _ []float64) {
	m, v, scratch = t.shown(n, m, v, scratch)
	value, err = t.Lik.(Softmax).ExpectSoftmax(t.Y[n], tol, m, v, d1, d2)
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

// shown returns the means and variances of term n that the likelihood uses, given its latent
// values. The result may be stored in scratch.
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

// Curvature stores the curvature of term n, as Softmax.Curvature does, and returns the weight of
// the term. See ExpectSoftmax for the scratch.
func (t *Terms) Curvature(n int, m, v, h, scratch []float64) (weight float64, _ []float64) {
	m, v, scratch = t.shown(n, m, v, scratch)
	t.Lik.(Softmax).Curvature(m, v, h)
	if weight = 1; t.Weight != nil {
		weight = t.Weight[n]
		floats.Scale(weight, h)
	}
	return weight, scratch
}
