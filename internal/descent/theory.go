package descent

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Sums are sums over the steps of a run, of which the bounds of its convergence consist: see
// pgsvi.Certificate. ε is the noise ĝ − ∇f of a gradient and G = −δ/β the gradient map.
type Sums struct {
	Beta, Beta2, Longest    float64 // β, β²; the largest β
	Map1, Map2              float64 // β‖G‖², β²‖G‖²
	Noisy, Terms            int     // noisy steps, and terms in their batches
	BetaOfNoise, BetaByTerm float64 // β and β/M of noisy steps
	Noise                   float64 // βM‖ε‖²
	Of                      int     // N
	Batches, Values         ZScore  // εᵀu, and of gradients over all terms against values
	Rest                    ZScore  // (ĝ − ∇f_R)ᵀu, over the terms R that a pass had left
	Repeats                 bool    // a pass had a term twice
}

// Add takes a step of size beta into account that moved λ by the square move2, and returns ‖G‖².
func (p *Sums) Add(beta, move2 float64) float64 {
	map2 := move2 / (beta * beta)
	p.Beta, p.Beta2, p.Longest = p.Beta+beta, p.Beta2+beta*beta, math.Max(p.Longest, beta)
	p.Map1, p.Map2 = p.Map1+beta*map2, p.Map2+move2
	return map2
}

// AddNoise takes the gradient g over terms of the of there are into account, in a step of size
// beta. first and second are gradients over all of them, independent of each other and of g, or
// one where f is deterministic: they give E‖ε‖² without the bias of their own noise. rest is the
// gradient over the terms that the pass had not drawn before, scaled to all, or nil if that is not
// known: it is the mean of g, given the steps before, if batches are drawn without replacement.
func (p *Sums) AddNoise(beta float64, terms, of int, g, first, second, rest []float64) {
	var noise, bias, left float64
	for i, x := range g {
		noise += (x - first[i]) * (x - second[i])
		bias += (x - second[i]) * first[i]
		if rest != nil {
			left += (x - rest[i]) * first[i]
		}
	}
	if norm := floats.Norm(first, 2); norm > 0 {
		p.Batches.Add(bias / norm)
		p.Rest.Add(left / norm)
	}
	m := float64(terms)
	p.Of, p.Noisy, p.Terms = of, p.Noisy+1, p.Terms+terms
	p.Noise += beta * m * noise
	p.BetaOfNoise, p.BetaByTerm = p.BetaOfNoise+beta, p.BetaByTerm+beta/m
}

// Strength returns the α' of the theorem, or alpha where no step was noisy.
func (p *Sums) Strength(alpha float64) float64 {
	if p.Noisy > 0 {
		return alpha / 2 // α − 1/(2c) with c = 1/α
	}
	return alpha
}

// Unbiased returns the greater of the scores of batches and of values. Batches without a repeated
// term are taken to be drawn without replacement.
func (p *Sums) Unbiased() float64 {
	z := p.Batches.score()
	if !p.Repeats && p.Rest.squares > 0 {
		z = p.Rest.score()
	}
	if v := p.Values.score(); math.Abs(v) > math.Abs(z) {
		return v
	}
	return z
}

// Bounds returns the mean of ‖G‖² with the weights of the theorem, the bound on it, and what of
// that is due to noise, for the constants α, L and C0. The bound is +Inf where steps were too
// long.
func (p *Sums) Bounds(alpha, l, c0 float64) (mean, bound, floor float64) {
	strength := p.Strength(alpha)
	sum := strength*p.Beta - l*p.Beta2/2
	if !(sum > 0) {
		return p.Map1 / p.Beta, math.Inf(1), 0
	}
	if p.Noisy > 0 {
		floor = p.Noise / p.BetaOfNoise * p.BetaByTerm / (2 * alpha) / sum
	}
	return (strength*p.Map1 - l*p.Map2/2) / sum, c0/sum + floor, floor
}

// ZScore tests whether what is added has mean 0, given what was before.
type ZScore struct{ sum, squares float64 }

// Add takes x into account.
func (z *ZScore) Add(x float64) { z.sum, z.squares = z.sum+x, z.squares+x*x }

// score returns the sum in standard errors, NaN without any.
func (z *ZScore) score() float64 { return z.sum / math.Sqrt(z.squares) }

// Iterates are those λ_k of a run that may be its random iterate λ_R.
type Iterates[Q any] []iterate[Q]

// iterate is one of them. E_k is a draw of the exponential distribution.
type iterate[Q any] struct {
	q         Q
	beta, key float64 // β_k, E_k/β_k
}

// Keep makes clone(), where a step of size beta began, a candidate for λ_R. exp is its E_k.
//
// The least E_k/w_k is that of k with probability w_k/Σw, w_k = β_k(α' − ½Lβ_k). One candidate is
// below another for every α' and L if both its β and its E/β are less: the other is dropped. Of t
// steps some log t are kept; of equal steps, one.
func (c *Iterates[Q]) Keep(clone func() Q, beta, exp float64) {
	key := exp / beta
	if slices.ContainsFunc(*c, func(o iterate[Q]) bool { return o.beta <= beta && o.key <= key }) {
		return
	}
	*c = slices.DeleteFunc(*c, func(o iterate[Q]) bool { return beta <= o.beta && key <= o.key })
	*c = append(*c, iterate[Q]{clone(), beta, key})
}

// Draw returns λ_R for the constants α' and L; false means that there is none.
func (c Iterates[Q]) Draw(alpha, l float64) (drawn Q, ok bool) {
	least := math.Inf(1)
	for _, o := range c {
		if key := o.key / (alpha - l*o.beta/2); key < least {
			least, drawn, ok = key, o.q, true
		}
	}
	return drawn, ok
}

const (
	// slopeStep is the first part of a step over which f is differentiated along it, by one-sided
	// differences of fourth order: they stay on the segment, where every λ is valid. A step that is
	// long against the curvature of f needs shorter ones, until leastSlopeStep leaves nothing but
	// rounding.
	slopeStep, leastSlopeStep = 2.5e-3, 1e-9
	// slopeAgrees is how near two such differences are to each other, to what they are from the
	// gradient, when it is the gradient that is wrong.
	slopeAgrees = 1e-3
)

// Slope returns the derivative of f at 0, and whether exact, which is that by the gradient, agrees
// with differences of its values on [0, 1], as it must where nothing is random. f0 is f(0), and f
// reports false where it is not defined. It does not agree where differences over shorter and
// shorter parts come to agree with each other alone: then they count, so that a wrong gradient
// does not agree with itself. Where they do not come to agree nothing is said against the
// gradient. slack and rounding are errors of exact and of f.
func Slope(f func(t float64) (float64, bool), f0, exact, slack, rounding float64,
	random bool) (slope float64, agrees bool) {
	before := math.Inf(1)
	for t := slopeStep; t > leastSlopeStep; t /= 8 {
		sum := -25 * f0
		for i, w := range [...]float64{48, -36, 16, -3} {
			v, ok := f(float64(i+1) * t)
			if !ok {
				return exact, true
			}
			sum += w * v
		}
		slope = sum / (12 * t)
		off := math.Abs(slope - exact)
		switch {
		case random:
			return slope, true
		case off <= slack+rounding/t:
			return exact, true
		case math.Abs(slope-before) <= slopeAgrees*off:
			return slope, false
		}
		before = slope
	}
	return exact, true
}
