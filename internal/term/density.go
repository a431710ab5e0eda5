package term

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// This file sums the log-likelihood of terms at given latent values, as importance sampling of
// internal/loo does at each draw.

// A Density evaluates terms of one latent value each, block by block. It is safe for concurrent use
// if the Likelihood is.
type Density struct {
	t    *Terms
	rows logprob.Rows // nil: call LogProb
	sum  logprob.Sum  // nil: add values of rows
}

// Density returns the density of t, which must not change while the density is in use.
func (t *Terms) Density() *Density {
	d := &Density{t: t}
	if l, ok := t.Lik.(Rowwise); ok {
		d.rows, d.sum = l.LogProbs(t.Y), l.LogProbSum(t.Y)
	}
	return d
}

// Rowwise reports whether d takes many terms together.
func (d *Density) Rowwise() bool { return d.rows != nil }

// move adds the offsets of the terms from lo on.
func (d *Density) move(eta []float64, lo int) {
	if d.t.Offset != nil {
		floats.Add(eta, d.t.Offset[lo:lo+len(eta)])
	}
}

// Values replaces the linear predictors of the terms from lo on, at most logprob.Block of them, by
// w_n log p(y_n|·).
func (d *Density) Values(eta []float64, lo int) {
	d.move(eta, lo)
	d.values(eta, lo)
	if d.t.Weight != nil {
		floats.Mul(eta, d.t.Weight[lo:lo+len(eta)])
	}
}

// values is Values without offsets and weights.
func (d *Density) values(eta []float64, lo int) {
	if d.rows != nil {
		d.rows(eta, lo)
		return
	}
	n := lo
	defer parallel.At(&n, d.t.Name)
	for i, x := range eta {
		n = lo + i
		eta[i] = d.t.Lik.LogProb(d.t.Y[n], x)
	}
}

// block is Values of a block, and returns their sum. It may store something else that is NaN at the
// same terms.
func (d *Density) block(eta []float64, lo int) float64 {
	d.move(eta, lo)
	if d.sum != nil && d.t.Weight == nil {
		return d.sum(eta, lo)
	}
	d.values(eta, lo)
	if d.t.Weight != nil {
		return floats.Dot(eta, d.t.Weight[lo:lo+len(eta)])
	}
	return floats.Sum(eta)
}

// Sum returns Σ_n w_n log p(y_n|·) at η of the terms from lo on, as many as there are η, which it
// overwrites. If a term is NaN or +Inf the sum is NaN, and bad is the first such term.
func (d *Density) Sum(eta []float64, lo int) (sum float64, bad int) {
	for len(eta) > 0 {
		n := min(logprob.Block, len(eta))
		part := d.block(eta[:n], lo)
		if math.IsNaN(part) || math.IsInf(part, 1) {
			for i, x := range eta[:n] {
				if math.IsNaN(x) || math.IsInf(x, 1) {
					return math.NaN(), lo + i
				}
			}
		}
		sum += part
		eta, lo = eta[n:], lo+n
	}
	return sum, 0
}

// Bad returns the error of term n, which is NaN or +Inf at η. It wraps sentinel.ErrNotFinite.
func (d *Density) Bad(n int, eta float64) error {
	return fmt.Errorf("pgsvi: %s has log-likelihood %v at η = %.6g: %w", d.t.Describe(n),
		d.t.LogProb(n, eta), eta, sentinel.ErrNotFinite)
}
