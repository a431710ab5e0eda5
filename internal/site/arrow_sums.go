package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file learns the covariances of the effects of levels from sums over rows that are not kept.
// Package rounds adds up XᵀΓX and h = Xᵀb in a pass, and then finds the best L as a profile does for
// rows in memory; see arrow_sigma.go. The lists of L are in the order of gauss.NewArrowShape.

// ArrowSums finds the best L of all factors at given sums.
type ArrowSums struct {
	a *arrow
	t arrowState
}

// NewArrowSums returns the ArrowSums of a prior with blocks and the rules of their factors, in the
// order of the prior. The L of the blocks are the start.
func NewArrowSums(prior *gauss.Prior, rules []Factor) *ArrowSums {
	s := gauss.NewArrowShape(prior)
	s.SetFull()
	levels := s.Blocks[0].Levels
	a := &arrow{shape: s, x: design.Matrix{Rows: levels, Cols: s.Common},
		solveWork: make([]float64, levels*s.Blocks[0].Q)}
	for i, b := range prior.Blocks() {
		a.fac = append(a.fac, arrowFactor{Block: b, rule: rules[i], number: i})
	}
	a.order()
	for k := range a.fac {
		if k > 0 {
			a.fac[k].offset = s.Offset(k)
		}
		a.cur.by.L = append(a.cur.by.L, a.fac[k].L)
	}
	a.begin = make([]int32, levels+2)
	for g := range levels { // the sums stand for at least one row of each level
		a.begin[g+1] = int32(g + 1)
		if g%arrowChunk == 0 {
			a.chunks = append(a.chunks, g)
		}
	}
	a.begin[levels+1] = int32(levels)
	a.chunks = append(a.chunks, levels)
	a.sigma.begin(a)
	return &ArrowSums{a: a, t: arrowState{by: gauss.Arrow{ArrowShape: s}}}
}

// Use sets the crew.
func (s *ArrowSums) Use(c term.Crew) { s.a.use(c) }

// Learns reports whether L is learned.
func (s *ArrowSums) Learns() bool { return s.a.sigma.learns() }

// LogPrior returns log p(L), up to a constant.
func (s *ArrowSums) LogPrior(l [][]float64) float64 { return s.a.sigma.logPrior(l, nil) }

// set makes l and the sums the state.
func (s *ArrowSums) set(l [][]float64, sums *gauss.Sums, hb, hg []float64) {
	s.t.by.L = gauss.CloneLists(l)
	s.t.by.Sums = *sums
	s.a.hb, s.a.hg = hb, hg
}

// release gives up the sums of the caller.
func (s *ArrowSums) release() {
	s.t.by.Sums = gauss.Sums{}
	s.a.hb, s.a.hg = nil, nil
}

// LogZ returns log Z + log p(L). It returns −Inf if the precision is not positive definite.
func (s *ArrowSums) LogZ(l [][]float64, sums *gauss.Sums, hb, hg []float64) float64 {
	s.set(l, sums, hb, hg)
	defer s.release()
	return s.a.logZ(&s.t, nil)
}

// Maximize returns the best L and log Z + log p(L) there. The search starts at l, which is the result
// if L is not learned.
func (s *ArrowSums) Maximize(l [][]float64, sums *gauss.Sums, hb, hg []float64) ([][]float64,
	float64) {
	s.set(l, sums, hb, hg)
	defer s.release()
	if !s.Learns() {
		return l, s.a.logZ(&s.t, nil)
	}
	z := s.polish(s.a.maximize(&s.t))
	return s.t.by.L, z
}

// polish takes one more Newton step from the L at which maximize ended because it predicted little
// gain. A pass over the rows costs much more than the step, and without it the last passes would not
// move L. The argument and the result are log Z + log p(L).
func (s *ArrowSums) polish(z float64) float64 {
	a, t := s.a, &s.t
	old := gauss.CloneLists(t.by.L)
	if math.IsInf(a.logZ(t, a.sigma.grad), -1) {
		return z
	}
	step, gain := a.sigmaStep(t)
	if !(gain < sigmaSmall) || step == nil {
		return z
	}
	a.moveL(t.by.L, old, step, 1)
	next := a.logZ(t, nil)
	if !(next >= z-sigmaSmall) {
		t.by.L = old
		return z
	}
	a.sigma.positive(a, t.by.L)
	return max(z, next)
}

// Spread returns the uncertainty of the covariances at L and the sums, in the order of the prior. The
// curvature is multiplied by rate; see ArrowAlgebra.Spread.
func (s *ArrowSums) Spread(l [][]float64, sums *gauss.Sums, hb, hg []float64, rate float64) (
	[]FactorSpread, error) {
	s.set(l, sums, hb, hg)
	defer s.release()
	return s.a.uncertainty(&s.t, nil, func() float64 { return rate })
}

// Integrate returns the posterior over the covariances of the factors with few levels, as
// ArrowAlgebra.Integrate does, for Gaussian noise: the sums then hold at any L. l is the best L. The
// points share the layout of the sums.
func (s *ArrowSums) Integrate(l [][]float64, sums *gauss.Sums, hb, hg []float64) (*SigmaGrid, error) {
	s.set(l, sums, hb, hg)
	defer s.release()
	a := s.a
	defer func() { a.summed = nil }()
	a.lin, a.gaussian, a.moved, a.summed = &LinearModel{}, true, true, &s.t
	a.cur.by.ArrowShape, a.cur.by.L = a.shape, gauss.CloneLists(l)
	alg := &ArrowAlgebra{mover: a}
	alg.Workers = a.crew
	return alg.Integrate()
}

// Length returns the largest change of an element of l, in units of the standard deviation of its
// row.
func (s *ArrowSums) Length(l, move [][]float64) (most float64) {
	a := s.a
	units := a.sigma.units(a, l, sigmaTiny)
	for k, c := range a.sigma.coords {
		most = max(most, math.Abs(move[c.f][c.row*a.fac[c.f].Q+c.col])/units[k])
	}
	return most
}

// Rate estimates 1 − ρ; see sigmaRate. A profile would move l by move, and it would have moved
// lastL by lastMove. A nil lastL means 1. If L moved by less than rateLeast standard deviations, the
// moves are mostly rounding, and Rate returns last.
func (s *ArrowSums) Rate(l, move, lastL, lastMove [][]float64, last float64) float64 {
	if lastL == nil {
		return 1
	}
	a := s.a
	units := a.sigma.units(a, l, sigmaTiny)
	var dx, dr float64
	for k, c := range a.sigma.coords {
		i := c.row*a.fac[c.f].Q + c.col
		dx += square((l[c.f][i] - lastL[c.f][i]) / units[k])
		dr += square((move[c.f][i] - lastMove[c.f][i]) / units[k])
	}
	if !(dx > rateLeast*rateLeast) {
		return last
	}
	return max(leastRate, min(1, math.Sqrt(dr/dx)))
}

// Ray is a line of L from l in the direction of l, on which ProbeRate measures.
const (
	raySlope = 1e-3 // half a step of the differences of log Z
	// RayStep is the distance of a probe.
	RayStep = 0.05
)

// ProbeRate returns 1 − ρ in the direction of l: by how much log Z + log p(L) bends if the sites follow
// L, over how much it bends at fixed sites. The sums at l come first, and then the sums at the sites of
// a state with (1 + RayStep)l. ProbeRate reports false if log Z does not bend.
func (s *ArrowSums) ProbeRate(l [][]float64, at, probe *gauss.Sums, hb, hg, probeB, probeG []float64) (
	rate float64, ok bool) {
	slope := func(t float64, sums *gauss.Sums, hb, hg []float64) float64 {
		return (s.LogZ(scaled(l, 1+t+raySlope), sums, hb, hg) -
			s.LogZ(scaled(l, 1+t-raySlope), sums, hb, hg)) / (2 * raySlope)
	}
	from := slope(0, at, hb, hg)
	rate = (slope(RayStep, probe, probeB, probeG) - from) / (slope(RayStep, at, hb, hg) - from)
	return max(leastRate, rate), !math.IsNaN(rate) && !math.IsInf(rate, 0) && rate < mostRate
}

// mostRate bounds estimates of 1 − ρ. It exceeds 1, because sites may also move away from L.
const mostRate = 2

// scaled returns x times l.
func scaled(l [][]float64, x float64) [][]float64 {
	l = gauss.CloneLists(l)
	for _, v := range l {
		floats.Scale(x, v)
	}
	return l
}

// Evidence returns the evidence of a model with Gaussian noise, given the sums for a variance of 1, and
// Σ w(y − o)² and Σ w over the rows. The prior mean is 0. The evidence keeps the sums.
func (s *ArrowSums) Evidence(sums *gauss.Sums, hb, hg []float64, square, weight float64) *Evidence {
	s.a.gaussian = true
	e := &Evidence{a: s.a, unit: *sums, hb: hb, hg: hg, square: square, weight: weight}
	e.t.by.ArrowShape = s.a.shape
	e.t.by.L = gauss.CloneLists(s.a.cur.by.L)
	s.a.hb, s.a.hg = nil, nil // the evidence scales its own
	return e
}

// rateLeast is the least step of L, in standard deviations, from which Rate estimates: a profile ends
// within about 1e-5 of them.
const rateLeast = 1e-3

func square(x float64) float64 { return x * x }
