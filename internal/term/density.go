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
	rows logprob.Rows // nil if the Likelihood has none
}

// Density returns the density of t, which must not change while the density is in use.
func (t *Terms) Density() *Density {
	d := &Density{t: t}
	if l, ok := t.Lik.(Rowwise); ok {
		d.rows = l.LogProbs(t.Y)
	}
	return d
}

// store replaces the latent values η of the terms from lo on, at most logprob.Block of them, by
// log p(y|o+η).
func (d *Density) store(eta []float64, lo int) {
	if d.t.Offset != nil {
		floats.Add(eta, d.t.Offset[lo:lo+len(eta)])
	}
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

// Excess returns Σ_n [w_n log p(y_n|·) at η_n = m_n + δ_n, less the site −½γ_nδ_n² + a_nδ_n] of the
// terms from lo on, as many as there are δ. A nil m means 0, and nil γ no sites. The error wraps
// sentinel.ErrNotFinite and names the first term that is NaN or +Inf.
func (d *Density) Excess(lo int, delta, m, gamma, a []float64) (sum float64, err error) {
	var values [logprob.Block]float64
	for len(delta) > 0 {
		n := min(len(values), len(delta))
		l := values[:n]
		copy(l, delta)
		if m != nil {
			floats.Add(l, m[lo:lo+n])
		}
		d.store(l, lo)
		part := d.weighted(l, lo)
		if math.IsNaN(part) || math.IsInf(part, 1) {
			if err := d.bad(l, delta, m, lo); err != nil {
				return part, err
			}
		}
		sum += part
		for i := 0; gamma != nil && i < n; i++ {
			sum += (0.5*gamma[lo+i]*delta[i] - a[lo+i]) * delta[i]
		}
		delta, lo = delta[n:], lo+n
	}
	return sum, nil
}

// weighted returns the sum of the values l of the terms from lo on, times their weights.
func (d *Density) weighted(l []float64, lo int) float64 {
	if d.t.Weight != nil {
		return floats.Dot(l, d.t.Weight[lo:lo+len(l)])
	}
	return floats.Sum(l)
}

// bad returns the error of the first of the values l that is NaN or +Inf.
func (d *Density) bad(l, delta, m []float64, lo int) error {
	for i, x := range l {
		if !math.IsNaN(x) && !math.IsInf(x, 1) {
			continue
		}
		at := delta[i]
		if m != nil {
			at += m[lo+i]
		}
		return fmt.Errorf("pgsvi: %s has log-likelihood %v at η = %.6g: %w", d.t.Describe(lo+i), x,
			at, sentinel.ErrNotFinite)
	}
	return nil
}
