package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// chain is a Markov chain at sorted times: a GP with covariance sd²exp(−|t − t′|/length), whose
// K⁻¹ is tridiagonal. Its methods take O(N) operations and memory. They show how little a new
// covariance structure needs, because BaseAlgebra adds steps, the proof, steps of the paper, saving and
// resuming.
type chain struct {
	diag, off []float64 // the diagonals of K⁻¹
	v0        float64
	base      float64   // log|K⁻¹|
	p, l      []float64 // pivots and multipliers
}

var _ interface {
	Base
	exact
} = (*chain)(nil)

func newChain(t []float64, sd, length float64) *chain {
	n := len(t)
	c := &chain{diag: make([]float64, n), off: make([]float64, n), v0: sd * sd,
		p: make([]float64, n), l: make([]float64, n)}
	c.diag[0] = 1 / c.v0
	for i := 1; i < n; i++ {
		f := math.Exp(-(t[i] - t[i-1]) / length)
		q := c.v0 * (1 - f*f)
		c.diag[i] += 1 / q
		c.diag[i-1] += f * f / q
		c.off[i] = -f / q
	}
	c.factor(make([]float64, n))
	for _, p := range c.p {
		c.base += math.Log(p)
	}
	return c
}

// factor stores the pivots and multipliers of K⁻¹ + diag(Δ), and reports whether that matrix is
// positive definite.
func (c *chain) factor(delta []float64) bool {
	for i, d := range c.diag {
		c.p[i] = d + delta[i]
		if i > 0 {
			c.l[i] = c.off[i] / c.p[i-1]
			c.p[i] -= c.l[i] * c.off[i]
		}
		if !(c.p[i] > 0) {
			return false
		}
	}
	return true
}

func (c *chain) Cover(v, delta []float64) (logDet float64, ok bool) {
	if !c.factor(delta) {
		return 0, false
	}
	logDet = -c.base
	for i := len(v) - 1; i >= 0; i-- {
		logDet += math.Log(c.p[i])
		if v[i] = 1 / c.p[i]; i < len(v)-1 {
			v[i] += c.l[i+1] * c.l[i+1] * v[i+1]
		}
	}
	return logDet, true
}

func (c *chain) Move(d, delta, u []float64) (square float64) {
	copy(d, u)
	for i := 1; i < len(d); i++ {
		d[i] -= c.l[i] * d[i-1]
	}
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] /= c.p[i]; i < len(d)-1 {
			d[i] -= c.l[i+1] * d[i+1]
		}
	}
	for i, x := range d {
		u[i] -= delta[i] * x
	}
	return floats.Dot(u, d)
}

func (c *chain) Accept() {}

func (c *chain) exact() {}

func (c *chain) Prior() (s term.Marginals) {
	s.Resize(len(c.diag))
	for i := range s.V {
		s.V[i] = c.v0
	}
	return s
}
