package pgsvi

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/descent"
	"gonum.org/v1/gonum/floats"
)

// This file tests whether the terms L_n(μ) of a Conjugate are convex, as the terms of a model whose
// log p is linear in T(z) are. Only then is the gain of q alone at most KL(q‖q*), the GapBound. A
// convex function lies above its tangents, so the test compares the values of some terms at pairs
// of points:
//
//	L_n(b) ≥ L_n(a) + ∇L_n(a)ᵀ(b − a)
//
// It also looks for the direction in which the sum of these terms curves downward most, and compares
// the gradients on both sides.
//
// objectiveStepper.value calls it in each evaluation of a q of one part.

const (
	// tangentTerms is the largest number of terms that the test compares. They are spread evenly.
	tangentTerms = 16
	// tangentNumbers limits the number of gradient elements per point.
	tangentNumbers = 1 << 16
	// tangentDraws is the number of points next to each distribution.
	tangentDraws = 2
	// tangentError is the error of Local, relative to the terms of the comparison, that is allowed.
	tangentError = 1e-8
)

// tangents holds the terms at fixed points: the initial state, the prior, and points next to them.
type tangents struct {
	m     ConjugateModel
	n     int // number of terms compared
	fixed []tangentPoint
	bent  bool // two fixed points contradict convexity
}

// tangentPoint holds values and gradients of the terms at μ.
type tangentPoint struct {
	mu, values []float64
	grads      [][]float64
}

// newTangents compares the terms of m at the points of each q.
func newTangents(m ConjugateModel, qs ...ExpFamily) *tangents {
	t := &tangents{m: m, n: min(m.Len(), tangentTerms, 1+tangentNumbers/qs[0].NumParams())}
	for _, q := range qs {
		points := t.around(q)
		t.bent = t.bent || t.contradict(points) || t.falls(q)
		t.fixed = append(t.fixed, points...)
	}
	return t
}

// convex reports whether no two of the fixed points and the points of q contradict convexity.
func (t *tangents) convex(q ExpFamily) bool {
	return !t.bent && !t.contradict(t.around(q)) && !t.falls(q)
}

// sum returns the sum of the gradients of the terms at mu, or nil.
func (t *tangents) sum(mu []float64) []float64 {
	g := make([]float64, len(mu))
	for i := range t.n {
		if _, err := t.m.Local(g, mu, i*t.m.Len()/t.n, 1); err != nil {
			return nil
		}
	}
	if _, finite := dense.AllFinite(g); !finite {
		return nil
	}
	return g
}

// falls reports whether the slope of the sum of the terms falls along some direction at q.
func (t *tangents) falls(q ExpFamily) bool {
	mu := q.MeanParams(nil)
	g := t.sum(mu)
	if g == nil {
		return false
	}
	metric := func(v []float64) []float64 { return naturalGrad(q, v) }
	change := func(v []float64, h float64) []float64 {
		near := t.sum(floats.AddScaledTo(make([]float64, len(mu)), mu, h, metric(v)))
		if near != nil {
			floats.Sub(near, g)
		}
		return near
	}
	product := func(v []float64) []float64 {
		d := change(v, fallsMove)
		if d != nil {
			floats.Scale(1/fallsMove, d)
		}
		return d
	}
	rng := rand.New(rand.NewPCG(seed1, seed2))
	start := make([]float64, len(mu))
	for range 2 {
		score := q.Score(nil, q.Rand(nil, rng))
		floats.AddScaled(start, rng.NormFloat64(), q.MeanGrad(score, score))
	}
	v := descent.LeastCurve(start, metric, product)
	if v == nil {
		return false
	}
	p := metric(v)
	for _, h := range []float64{fallsMove, -fallsMove} {
		if d := change(v, h); d != nil {
			size := 0.0
			for i, x := range p {
				size += math.Abs(x * g[i])
			}
			if floats.Dot(p, d)*h < -tangentError*(size*math.Abs(h)+floats.Norm(d, 2)*floats.Norm(p, 2)*math.Abs(h)) {
				return true
			}
		}
	}
	return false
}

// fallsMove is the length of a difference in standard deviations of q.
const fallsMove = 1e-3

// around returns the mean parameters of q, and of mixtures of q with single draws.
func (t *tangents) around(q ExpFamily) (points []tangentPoint) {
	mu := q.MeanParams(nil)
	points = t.add(points, mu)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	for range tangentDraws {
		score := q.Score(nil, q.Rand(nil, rng)) // F(T(z) − μ) in the end
		move := naturalGrad(q, q.MeanGrad(score, score))
		points = t.add(points, floats.AddScaledTo(make([]float64, len(mu)), mu, 0.5, move))
	}
	return points
}

// add appends the terms at mu, unless one of them is not finite there.
func (t *tangents) add(points []tangentPoint, mu []float64) []tangentPoint {
	p := tangentPoint{mu: mu}
	for i := range t.n {
		g := make([]float64, len(mu))
		v, err := t.m.Local(g, mu, i*t.m.Len()/t.n, 1)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return points
		}
		p.values, p.grads = append(p.values, v), append(p.grads, g)
	}
	return append(points, p)
}

// contradict reports whether a term is below a tangent between two of the points, or between one of
// them and a fixed point.
func (t *tangents) contradict(points []tangentPoint) bool {
	for i, a := range points {
		for _, b := range points[:i] {
			if a.below(b) || b.below(a) {
				return true
			}
		}
		for _, b := range t.fixed {
			if a.below(b) || b.below(a) {
				return true
			}
		}
	}
	return false
}

// below reports whether a term at p is below its tangent at a.
func (p tangentPoint) below(a tangentPoint) bool {
	for n, g := range a.grads {
		rise, size := 0.0, math.Abs(p.values[n])+math.Abs(a.values[n])
		for i, d := range g {
			x := d * (p.mu[i] - a.mu[i])
			rise, size = rise+x, size+math.Abs(x)
		}
		if p.values[n]-a.values[n]-rise < -tangentError*size {
			return true
		}
	}
	return false
}
