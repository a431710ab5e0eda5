package descent

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// This file adds up what the convergence theorems of Khan et al. (2016, propositions 2 and 3) need:
// step sizes, gradient maps and the noise of gradients. pgsvi.Certificate calls it.

// Sums holds sums over the steps of a run. ε is the noise ĝ − ∇f of a gradient, G = −δ/β the gradient
// map, and M the number of terms of a batch.
type Sums struct {
	Beta, Beta2, Longest    float64 // β, β²; the largest β
	Map1, Map2              float64 // β‖G‖², β²‖G‖²
	Noisy, Terms            int     // noisy steps, and terms in their batches
	BetaOfNoise, BetaByTerm float64 // β and β/M of noisy steps
	Noise                   float64 // βM‖ε‖²
	Of                      int     // N
	Batches, Values         ZScore  // εᵀu of batches, and of full gradients against values
	Rest                    ZScore  // (ĝ − ∇f_R)ᵀu, over the terms R that a pass had left
	Repeats                 bool    // a pass had a term twice
}

// Add counts a step of size beta that moved λ by a distance whose square is move2. It returns ‖G‖².
func (p *Sums) Add(beta, move2 float64) float64 {
	map2 := move2 / (beta * beta)
	p.Beta, p.Beta2, p.Longest = p.Beta+beta, p.Beta2+beta*beta, math.Max(p.Longest, beta)
	p.Map1, p.Map2 = p.Map1+beta*map2, p.Map2+move2
	return map2
}

// AddNoise counts the noise of the gradient g of a step of size beta, over a batch of terms out of
// `of` terms. first and second are gradients over all terms. They are independent of each other and
// of g, so the product of their differences from g has the mean E‖ε‖² without the bias of their own
// noise; if f is deterministic, both are the same. rest is the gradient over the terms that the pass
// had not drawn before, scaled to all terms, or nil if it is unknown. If batches are drawn without
// replacement, rest is the mean of g given the earlier steps.
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

// Strength returns the α' of the theorem, which is alpha if no step was noisy.
func (p *Sums) Strength(alpha float64) float64 {
	if p.Noisy > 0 {
		return alpha / 2 // α − 1/(2c) with c = 1/α
	}
	return alpha
}

// Unbiased returns the larger of the scores of batches and of values. If no pass had a term twice, it
// assumes that batches were drawn without replacement.
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

// Bounds returns the mean of ‖G‖² with the weights of the theorem, its bound for the constants α, L
// and C0, and the part of the bound that is due to noise. The bound is +Inf if steps were too long.
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

// ZScore tests whether the numbers added to it have mean 0, each given the earlier ones.
type ZScore struct{ sum, squares float64 }

// Add adds the number x.
func (z *ZScore) Add(x float64) { z.sum, z.squares = z.sum+x, z.squares+x*x }

// score returns the sum in standard errors. It is NaN if nothing was added.
func (z *ZScore) score() float64 { return z.sum / math.Sqrt(z.squares) }

// Iterates holds the λ_k of a run that may still become its random iterate λ_R.
type Iterates[Q any] []iterate[Q]

// iterate is a candidate for λ_R. E_k is a draw of the exponential distribution.
type iterate[Q any] struct {
	q         Q
	beta, key float64 // β_k, E_k/β_k
}

// Keep adds clone(), the state before a step of size beta, to the candidates for λ_R. exp is its E_k.
//
// E_k/w_k is least for k with probability w_k/Σw, where w_k = β_k(α' − ½Lβ_k). A candidate with a
// smaller β and a smaller E/β than another one wins for every α' and L, so Keep drops the other one.
// About log t of t steps remain, and one if all steps are equal.
func (c *Iterates[Q]) Keep(clone func() Q, beta, exp float64) {
	key := exp / beta
	if slices.ContainsFunc(*c, func(o iterate[Q]) bool { return o.beta <= beta && o.key <= key }) {
		return
	}
	*c = slices.DeleteFunc(*c, func(o iterate[Q]) bool { return beta <= o.beta && key <= o.key })
	*c = append(*c, iterate[Q]{clone(), beta, key})
}

// Draw returns λ_R for the constants α' and L. It reports false if there are no candidates.
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
	// slopeStep is the first fraction of a step over which Slope takes a one-sided difference of
	// fourth order. One-sided differences stay on the segment, where every λ is valid. If f curves
	// much along the step, Slope takes shorter differences, down to leastSlopeStep, where only
	// rounding is left.
	slopeStep, leastSlopeStep = 2.5e-3, 1e-9
	// slopeAgrees is the distance between two differences, relative to their distance from the
	// gradient, that proves the gradient wrong.
	slopeAgrees = 1e-3
)

// Slope returns the derivative of f at 0 and reports whether the gradient agrees with differences of
// f on [0, 1]. exact is the derivative by the gradient, and f0 is f(0); f reports false for an
// argument outside its domain. slack and rounding bound the errors of exact and of f.
//
// The gradient is wrong if ever shorter differences agree with each other but not with exact. Slope
// then returns the difference. If the differences do not agree with each other, or if f is random,
// they prove nothing about the gradient, and Slope reports that it agrees.
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
