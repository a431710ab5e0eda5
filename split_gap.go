package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/descent"
	"github.com/pgsvi/pgsvi/internal/goals"
	"gonum.org/v1/gonum/floats"
)

// This file computes the Gap of an Objective by Newton's method (descent.Surface) when a run is
// about to end: the gain ½gᵀH⁻¹g, with the gradient g and the Hessian H of f + h. It uses only
// gradients of f and h, so the Gap does not depend on D and on the step sizes.
//
// If q is an ExpFamily, H is the Riemannian Hessian in the metric of the Fisher information F, the
// mean of the Hessians in μ and in η. In a test, it was positive and accurate much farther from the
// optimum than the Hessian in μ. With r = ∇_μ(f + h), its product with the displacement Fv is, as a
// gradient in μ,
//
//	∂_v r + ½F⁻¹(∂_v F)r,   where ∂_v is the derivative along η + hv.
//
// Solver calls gap after each evaluation.

// recheck is the factor of passes after which an estimate by Newton's method is repeated although
// the cheap estimate, multiplied by the last ratio of the two, is still above the goal.
const recheck = 2

// gap implements gapEstimator. The estimate by Newton's method takes up to twenty gradients, so it
// is made only if the run ends or if a cheap estimate is within the goal. If it is above the goal,
// the run continues. The cheap estimate is then multiplied by the ratio of both. If f or h has no
// gradient next to the result, the cheap estimate is the gap.
func (s *objectiveStepper) gap(ctx context.Context, env *Env, now *Iteration, before []Iteration,
	last bool) error {
	if !s.exact || now.Random || s.whole || s.factors != nil && s.factors.linear() ||
		!predictable(s.Q) {
		return nil
	}
	if now.cheap == 0 {
		if now.cheap = now.Gap; !(now.cheap > 0) {
			now.cheap, now.Gap = changeLeft(now, before), math.Inf(1)
		}
	}
	left, due := now.cheap, false
	for i := len(before) - 1; i >= 0; i-- {
		if it := &before[i]; it.predicted {
			left *= it.Gap / it.cheap
			due = now.Passes >= recheck*it.Passes && now.cheap <= now.Goal
			now.Gap = left
			break
		}
	}
	if !last && !due && !(left <= now.Goal) {
		return nil
	}
	gain, err := s.predict(ctx, env, now.Goal)
	if err != nil {
		return err
	}
	if math.IsNaN(gain) || math.IsInf(gain, 1) && s.convex() { // rounding bends a convex objective
		now.Gap = left
		return nil
	}
	now.Gap, now.predicted = goals.NeverZero(gain), true
	return nil
}

// changeLeft estimates the gap by the last two changes of the ELBO. If they show no trend, because
// one of them is a loss, it takes the larger one and the slowest rate of convergence.
func changeLeft(now *Iteration, before []Iteration) float64 {
	n := len(before)
	if n < 2 {
		return math.Inf(1)
	}
	last, earlier := now.ELBO-before[n-1].ELBO, before[n-1].ELBO-before[n-2].ELBO
	rounding := unitRounding * math.Abs(now.ELBO)
	switch {
	case max(math.Abs(last), math.Abs(earlier)) <= 4*rounding:
		return goals.NeverZero(rounding)
	case last > 0 && earlier > 0:
		return seriesLeft(last, earlier)
	}
	most := max(math.Abs(last), math.Abs(earlier))
	return seriesLeft(most, most)
}

// predict returns the nats that Newton's method gains from the result so far, which is +Inf near a
// saddle, or NaN if f or h has no gradient next to the result.
func (s *objectiveStepper) predict(ctx context.Context, env *Env, goal float64) (float64, error) {
	s.Halt.Watch(ctx)
	s.Halt.Lend(env.cores())
	defer s.Halt.Forget()
	c := s.newCurve(ctx, env, s.Dist())
	if c == nil {
		return math.NaN(), nil
	}
	surface, g := c.surface()
	if surface == nil {
		return math.NaN(), context.Cause(ctx)
	}
	if s.convex() {
		surface.Random = nil
	}
	if c.family != nil && c.sides == nil {
		surface.Fall = func(v []float64) (float64, *descent.Surface, []float64) {
			near := c.toward(v)
			if near == nil {
				return 0, nil, nil
			}
			at := s.newCurve(ctx, env, near)
			end, g := at.surface()
			return c.start - at.start, end, g
		}
	}
	gain := surface.Predict(g, goal)
	if ctx.Err() != nil {
		return math.NaN(), context.Cause(ctx)
	}
	return gain, nil
}

// convex reports whether f + h is known to be convex in the mean and the Cholesky factor of the
// covariance of a Gaussian q, so that it has no saddle (Challis and Barber, 2013).
func (s *objectiveStepper) convex() bool {
	f, ok := s.F.(sited)
	if _, gaussian := s.Init.(*Gaussian); !ok || !gaussian || priorOf(s.H, s.Init) == nil {
		return false
	}
	lik, concave := f.siteConcave()
	return lik != nil && concave
}

// straightLength is the length of the gradient, in standard deviations, from which the curvature of
// the coordinates matters to the Hessian.
const straightLength = 1e-4

// curve computes gradients of f + h near a state q. If q is an ExpFamily, gradients are those in
// μ, and a displacement along v is η + hv. Otherwise both are in the chart. If h is L1, both are in
// λ, without the elements that h keeps at 0.
type curve struct {
	ctx   context.Context
	env   *Env
	f     Smooth
	h     Convex
	prior []float64 // η_p if h is entropic at q, and otherwise nil

	q, near Dist
	family  ExpFamily // q, or nil
	chart   Charted   // near, or nil
	at      []float64 // η, λ or the chart of q
	x, easy []float64 // scratch
	slope   []float64 // gradient at q and its image under F, if q is an ExpFamily far from the optimum
	image   []float64
	start   float64 // f + h at q
	value   float64 // f at the last gradient
	// If h is L1, sides holds the derivative of h for each element of λ, and NaN for an element that
	// h keeps at 0. Otherwise it is nil.
	sides []float64
}

// newCurve returns the curve at q, or nil if f or h has no gradient there.
func (s *objectiveStepper) newCurve(ctx context.Context, env *Env, q Dist) *curve {
	c := &curve{ctx: ctx, env: env, f: s.F, h: s.H, q: q, near: q.Clone()}
	if s.look != nil {
		c.f, c.h = s.look.f, s.look.h
	}
	haltDist(c.near, &s.Halt)
	c.family, _ = q.(ExpFamily)
	c.x, c.easy = make([]float64, q.NumParams()), make([]float64, q.NumParams())
	if c.family != nil {
		c.at = c.family.Natural(nil)
		c.prior = targetOf(c.h, q)
	} else {
		c.chart = c.near.(Charted)
		c.at = c.chart.Chart(nil)
	}
	if h, ok := c.h.(l1Term); ok && !c.keep(h) || c.kinked() {
		return nil
	}
	return c
}

// keep sets sides, and reports whether f has a gradient at q.
func (c *curve) keep(h l1Term) bool {
	c.at = c.q.Params(nil)
	if _, ok := c.smooth(c.x, c.q); !ok {
		return false
	}
	c.sides = h.Grad(nil, c.q)
	for i := range h.count(c.q) {
		switch {
		case c.at[i] != 0:
		case math.Abs(c.x[i]) <= h.weight:
			c.sides[i] = math.NaN()
		default: // it moves to the side on which f falls
			c.sides[i] = math.Copysign(h.weight, -c.x[i])
		}
	}
	return true
}

// smooth stores the gradient of f at q in dst, in λ, and returns the value.
func (c *curve) smooth(dst []float64, q Dist) (value float64, ok bool) {
	value, err := c.f.Grad(c.ctx, c.env, dst, q, nil)
	return value, err == nil
}

// surface returns the surface at q and the gradient, or nil if there is no gradient.
func (c *curve) surface() (*descent.Surface, []float64) {
	g := make([]float64, c.q.NumParams())
	if !c.gradient(g, c.q) {
		return nil, nil
	}
	c.start = c.value + c.h.Value(c.q)
	if c.family != nil && c.sides == nil {
		if image := naturalGrad(c.family, g); floats.Dot(g, image) > straightLength*straightLength {
			c.slope, c.image = g, image
		}
	}
	return &descent.Surface{Gradient: c.moved, Metric: c.metric, Random: c.random}, g
}

// toward returns the state in the direction v, or nil if it is invalid. The way there is straight
// in the chart, where every point is valid.
func (c *curve) toward(v []float64) Dist {
	near := c.q.Clone().(ExpFamily)
	norm := math.Sqrt(floats.Dot(v, naturalGrad(c.family, v)))
	h := fallMove / norm
	if !(norm > 0) || near.SetNatural(floats.AddScaledTo(c.x, c.at, h, v)) != nil {
		return nil
	}
	x, to := c.family.Chart(nil), near.Chart(nil)
	floats.Sub(to, x)
	if near.SetChart(floats.AddScaledTo(to, x, 1/h, to)) != nil {
		return nil
	}
	return near
}

// fallMove is the length in standard deviations of the difference by which toward finds its direction.
const fallMove = 1e-4

// gradient stores the gradient of f + h at q in dst, and reports whether it is finite.
func (c *curve) gradient(dst []float64, q Dist) bool {
	f, ok := c.smooth(dst, q)
	if c.value = f; !ok {
		return false
	}
	switch {
	case c.sides != nil:
		for i, side := range c.sides {
			if dst[i] += side; math.IsNaN(side) {
				dst[i] = 0
			}
		}
	case c.prior != nil:
		e := q.(ExpFamily)
		e.MeanGrad(dst, dst)
		floats.Add(dst, e.Natural(c.easy))
		floats.Sub(dst, c.prior)
	default:
		floats.Add(dst, c.h.Grad(c.easy, q))
		if c.family != nil {
			q.(ExpFamily).MeanGrad(dst, dst)
		} else {
			q.(Charted).ChartGrad(dst, dst)
		}
	}
	_, finite := dense.AllFinite(dst)
	return finite
}

// kinked reports whether h has a kink at q, as the norm of a group of parameters has where all of
// them are 0: its gradients on both sides of q do not approach each other.
func (c *curve) kinked() bool {
	if c.sides != nil || c.prior != nil || isZero(c.h) {
		return false
	}
	v := c.random()
	jump := func(h float64) float64 {
		if c.move(v, h) != nil {
			return 0
		}
		c.h.Grad(c.easy, c.near)
		above := append([]float64(nil), c.easy...)
		if c.move(v, -h) != nil {
			return 0
		}
		c.h.Grad(c.easy, c.near)
		return floats.Distance(above, c.easy, 2)
	}
	near := jump(kinkMove / 10)
	return near > 0.5*jump(kinkMove) && near > math.Sqrt(unitRounding)*floats.Norm(c.easy, 2)
}

// kinkMove is the distance in standard deviations, or in the chart, within which kinked looks.
const kinkMove = 1e-4

// move sets near to the state at a distance of h along v.
func (c *curve) move(v []float64, h float64) error {
	switch {
	case c.sides != nil:
		return c.near.SetParams(floats.AddScaledTo(c.x, c.at, h, c.metric(v)))
	case c.family != nil:
		return c.near.(ExpFamily).SetNatural(floats.AddScaledTo(c.x, c.at, h, v))
	default:
		return c.chart.SetChart(floats.AddScaledTo(c.x, c.at, h, v))
	}
}

// moved stores the gradient at a distance of h along v in dst, and reports whether there is one.
func (c *curve) moved(dst, v []float64, h float64) bool {
	if c.move(v, h) != nil || !c.gradient(dst, c.near) {
		return false
	}
	if c.slope != nil {
		turn := naturalGrad(c.near.(ExpFamily), c.slope)
		floats.Sub(turn, c.image)
		floats.AddScaled(dst, 0.5, meanGradOf(c.family, turn))
	}
	return true
}

// meanGradOf returns F⁻¹g, the inverse of naturalGrad.
func meanGradOf(q ExpFamily, g []float64) []float64 {
	if e, ok := q.(*Exp); ok {
		x := append([]float64(nil), g...)
		e.at.FisherSolve(x)
		return x
	}
	return q.(*Gaussian).In(Natural).MeanGrad(nil, g)
}

// metric returns the displacement of v.
func (c *curve) metric(v []float64) []float64 {
	switch {
	case c.sides != nil:
		p := append([]float64(nil), v...)
		for i, side := range c.sides {
			if math.IsNaN(side) {
				p[i] = 0
			}
		}
		return p
	case c.family != nil:
		return naturalGrad(c.family, v)
	}
	return append([]float64(nil), v...)
}

// random returns a direction without symmetries, whose displacement has about the covariance of
// T(z): the score of a draw. The seed is fixed, so a run has the same bits.
func (c *curve) random() []float64 {
	rng := rand.New(rand.NewPCG(seed1, seed2))
	v := make([]float64, c.q.NumParams())
	if c.family != nil && c.sides == nil {
		c.q.Score(v, c.q.Rand(nil, rng))
		c.family.MeanGrad(v, v)
		if _, finite := dense.AllFinite(v); finite {
			return v
		}
	}
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	return c.metric(v)
}
