package rounds

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file adds up derivatives of the ELBO in the parameters of the likelihood, by central
// differences, so that learning finds these parameters in the same rounds as the weights.

// Tilt is a likelihood with one parameter raised and lowered by Step.
type Tilt struct {
	Up, Down term.Likelihood
	Step     float64
}

// tilted holds sums over the rows for the parameters θ_i of the likelihood, at the state of a Look.
// With the derivative a of E in the mean of η, and γ = max(0, −∂₂), they are
//
//	Σ ∂E/∂θ_i,   −Σ ∂²E/∂θ_i²,   Xᵀ∂a/∂θ_i,   Σ_rows ∂a/∂θ_i ∂a/∂θ_j/γ for all j ≤ i.
type tilted struct {
	of   []Tilt
	sums *Sums
	lost bool // a row has no expectation under a tilted likelihood
}

// tiltSums returns the number of sums for p parameters and d weights.
func tiltSums(p, d int) int { return p*(2+d) + triangle(p) }

// newTilted returns empty sums for d weights, or nil if there are no parameters.
func newTilted(of []Tilt, d int) *tilted {
	if len(of) == 0 {
		return nil
	}
	return &tilted{of: of, sums: NewSums(tiltSums(len(of), d))}
}

// Tilt makes l also add up the derivatives in the parameters of the likelihood.
func (l *Look) Tilt(of []Tilt) { l.tilts = newTilted(of, l.d) }

// tilt returns the sums over the rows x with the terms t, at the marginals in lane.site. It returns
// nil if one of them is not finite.
func (lane *Lane) tilt(of []Tilt, h *parallel.Halt, x *design.Matrix, t *term.Terms) []float64 {
	return tilt(of, h, &lane.site, &lane.tilted, x.Cols, t,
		func(dst, u []float64) { x.AddMulT(dst, u, nil) })
}

// tilt returns the sums over rows with the terms t and d weights, at the marginals s. The function add
// adds Xᵀu to dst. The result is nil if one of the sums is not finite.
func tilt(of []Tilt, h *parallel.Halt, s *term.Marginals, ends *[2]term.Marginals, d int,
	t *term.Terms, add func(dst, u []float64)) []float64 {
	n, p := len(s.M), len(of)
	sums, change := make([]float64, tiltSums(p, d)), make([]float64, p*n)
	shared := sums[p*(2+d):]
	for i, tilt := range of {
		for at, lik := range [2]term.Likelihood{tilt.Up, tilt.Down} {
			q := &ends[at]
			q.Resize(n)
			copy(q.M, s.M)
			copy(q.V, s.V)
			terms := *t
			terms.Lik = lik
			if t.Sure(func() error {
				return terms.Expect(q, nil, term.Crew{Workers: 1,
					Halt: h})
			}) != nil {
				return nil
			}
		}
		up, down := &ends[0], &ends[1]
		own, da := sums[i*(2+d):(i+1)*(2+d)], change[i*n:(i+1)*n]
		for r, e := range s.E {
			own[0] += (up.E[r] - down.E[r]) / (2 * tilt.Step)
			own[1] -= (up.E[r] - 2*e + down.E[r]) / (tilt.Step * tilt.Step)
			if g := s.Tg[r]; g*s.V[r] > dense.Epsilon {
				da[r] = (up.D1[r] - down.D1[r]) / (2 * tilt.Step)
			}
		}
		add(own[2:], da)
		for j := range i + 1 {
			var sum float64
			for r, y := range change[j*n : (j+1)*n] {
				if z := da[r] * y; z != 0 {
					sum += z / s.Tg[r]
				}
			}
			shared[triangle(i)+j] = sum
		}
	}
	if _, ok := dense.AllFinite(sums); !ok {
		return nil
	}
	return sums
}

// add adds the sums of some rows. Nil means that they are not finite.
func (l *tilted) add(sums []float64) {
	if sums == nil {
		l.lost = true
		return
	}
	l.sums.Add(sums)
}

// state writes or reads l, without its likelihoods.
func (l *tilted) state(c *save.Coder, d int) {
	if c.Reading() {
		l.sums = &Sums{}
	}
	l.sums.State(c, tiltSums(len(l.of), d))
	c.Bool(&l.lost)
}

// Tilted holds the sums over all rows for the parameter θ_i of Climb.Tilts, at the best state.
type Tilted struct {
	Slope, Curve float64   // Σ ∂E/∂θ_i and −Σ ∂²E/∂θ_i²
	Pull         []float64 // Xᵀ∂a/∂θ_i
	Shared       []float64 // Σ_rows ∂a/∂θ_i ∂a/∂θ_j/γ for all j ≤ i
}

// Tilted returns the sums for all parameters of Tilts. It reports false if they are not known.
func (c *Climb) Tilted() ([]Tilted, bool) {
	if c.look == nil {
		return nil, false
	}
	return c.look.tilts.values(c.look.d)
}

// values returns the sums for all parameters and d weights. It reports false if they are not known.
func (l *tilted) values(d int) ([]Tilted, bool) {
	if l == nil || l.lost {
		return nil, false
	}
	all := make([]float64, l.sums.Len())
	l.sums.Value(all)
	p := len(l.of)
	out := make([]Tilted, p)
	for i := range out {
		own, at := all[i*(2+d):(i+1)*(2+d)], p*(2+d)+triangle(i)
		out[i] = Tilted{own[0], own[1], own[2:], all[at : at+i+1]}
	}
	return out, true
}
