package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file takes Newton's steps when steps to the targets of the sites converge slowly. Progress
// detects that. The leap of Problem.Stride (problem_newton.go) uses siteNewton, and its walk uses
// siteRates. A diagonal family uses the differences of siteNewton in diagNewton
// (factored_newton.go).

// Progress measures how fast steps to the targets of the sites converge, by the gains that they
// predict.
type Progress struct {
	seen   int                 // terms in the current pass
	sum    float64             // predicted gain of that pass, in nats
	before [slowPasses]float64 // predicted gains of the passes before, the last pass first
	Passes int
	Slow   bool
	rest   int // passes until it is slow again, after a Newton step that failed
}

// Steps to the targets are slow if slowPasses passes reduce the predicted gain by less than a
// factor of slowFall. On ordinary data one or two passes suffice for that factor. If expectations
// change more with the variance than with the mean, a hundred passes do not suffice. A predicted
// gain below slowLeast nats may be rounding. After a Newton step fails, slowRest passes go by
// before the next one.
const (
	slowPasses = 6
	slowFall   = 3
	slowLeast  = 1e-12
	slowRest   = 3
)

// farPromise is the predicted gain, in nats, from which slow steps also try the targets of single
// sites.
const farPromise = 1e4

// Add records the predicted gain of a step of the given number of terms, of n in all.
func (p *Progress) Add(promise float64, terms, n int) {
	p.sum += promise
	if p.seen += terms; p.seen < n {
		return
	}
	if p.rest > 0 {
		p.rest--
		p.Slow = p.rest == 0
	}
	p.Slow = p.Slow || p.rest == 0 && p.Passes >= slowPasses && p.sum > slowLeast &&
		p.sum*slowFall > p.before[slowPasses-1]
	copy(p.before[1:], p.before[:])
	p.before[0] = p.sum
	p.Passes++
	p.seen, p.sum = 0, 0
}

// due reports whether s needs other steps than the steps to the targets.
func (p *Progress) due(s *term.Marginals) bool { return p.Slow || p.lost(s) }

// lost reports whether expectations of s still overflow after a pass.
func (p *Progress) lost(s *term.Marginals) bool { return p.Passes > 0 && s.Wild }

// state writes or reads p.
func (p *Progress) state(c *save.Coder) {
	c.Int(&p.seen, &p.Passes, &p.rest)
	c.Float(&p.sum)
	for i := range p.before {
		c.Float(&p.before[i])
	}
	c.Bool(&p.Slow)
}

// siteNewton is Newton's step of the ELBO in (m, v) of the variables of sites, where v stands for
// all of V. With the covariance S of the variables, and the targets γ̂ and α̂ of the sites, it
// solves
//
//	[ S⁻¹ + diag(γ̂ − γ)   ½diag(∂γ̂/∂m)              ] [δm]   [ α̂ − a     ]
//	[ ½diag(∂γ̂/∂m)        ½(S∘S)⁻¹ + ½diag(∂γ̂/∂v)  ] [δv] = [ ½(γ − γ̂) ].
//
// The inverses form the metric M, in which a step to the targets is the steepest descent. Such a
// step ignores the other entries. They matter if an exponential competes with a wide prior,
// because E[exp(η)] = exp(m + v/2) then changes by far more than m and v do. Conjugate gradients
// in the metric M solve the system, so their first step is along the step to the targets.
type siteNewton struct {
	tm, tv []float64 // ∂γ̂/∂m and ∂γ̂/∂v
	// Each vector has a part for m and a part for v. The dual of a direction is M times the
	// direction: the changes of the linear coefficients about the means, and −½ times the changes
	// of γ.
	r, z []float64 // residual and its direction
	p, q []float64 // search direction and its dual
	d, e []float64 // the step and its dual
}

// Differences of γ̂ are central. The distance is newtonDifference times a standard deviation or a
// variance, or times 1 if that is less, because exponentials change over a distance of 1. It grows
// by newtonRounding times the number itself, to be above its rounding, but by at most
// newtonFarthest.
const (
	newtonDifference = 1e-6
	newtonRounding   = 1e-9
	newtonFarthest   = 1e-3
)

// newtonFlat is the relative error that the differences may have in the curvature of a term in
// (m, v). An exponential is flat in the direction in which m + v/2 is constant. A wide prior
// leaves that direction to the rest of the ELBO, whose curvature there is at most 10⁻⁵ of the
// term's curvature in other directions.
const newtonFlat = 1e-3

// The conjugate gradients end when two conditions hold. The squared residual is at most newtonTol
// times its first value, and the gain of the last iteration is at most newtonTol times the gain of
// all iterations. A more exact step makes the next step converge faster. They also end when the
// residual is only rounding, and after newtonMost or N iterations, whichever is more. An iteration
// takes 2N² operations and a step to the targets N³ or more, so N iterations cost no more than a
// pass.
const (
	newtonTol     = 1e-6
	newtonNothing = 1e-20
	newtonMost    = 200
)

// aim finds the step at s, the state of the terms in batch (nil means all). The lower triangle of
// cov is the covariance of the variables. It returns false if cov is nil or no finite step
// exists.
func (t *siteNewton) aim(terms *term.Terms, s *term.Marginals, batch []int, cov []float64,
	c term.Crew) bool {
	n := len(s.M)
	if cov == nil || !t.slopes(terms, s, batch, c) {
		return false
	}
	dense.ResizeAll(2*n, &t.r, &t.z, &t.p, &t.q, &t.d, &t.e)
	for i, g := range s.Gamma {
		t.r[i], t.r[n+i] = s.D1[i]-s.A[i], -0.5*(s.Tg[i]-g)
	}
	t.natural(cov, n)
	copy(t.p, t.z)
	copy(t.q, t.r)
	clear(t.d)
	clear(t.e)
	rho := floats.Dot(t.r, t.z)
	enough, nothing := newtonTol*rho, newtonNothing*rho
	gain, total := math.Inf(1), 0.0 // twice the gain of the last iteration, and of all iterations
	for k := 0; k < max(newtonMost, n) &&
		(rho > enough || rho > nothing && gain > newtonTol*total) && !c.Halt.Stopped(); k++ {
		curvature := floats.Dot(t.p, t.q)
		for i, a := range t.p[:n] {
			b := t.p[n+i]
			curvature += (s.Tg[i]-s.Gamma[i])*a*a + (t.tm[i]*a+0.5*t.tv[i]*b)*b
		}
		if !(curvature > 0) || math.IsInf(curvature, 0) {
			// The problem is not convex here. Keep the step so far, or else the step to the
			// targets.
			if k == 0 {
				copy(t.d, t.p)
			}
			break
		}
		step := rho / curvature
		gain = rho * step
		total += gain
		floats.AddScaled(t.d, step, t.p)
		floats.AddScaled(t.e, step, t.q)
		floats.AddScaled(t.r, -step, t.q)
		for i, a := range t.p[:n] {
			b := t.p[n+i]
			t.r[i] -= step * ((s.Tg[i]-s.Gamma[i])*a + 0.5*t.tm[i]*b)
			t.r[n+i] -= step * 0.5 * (t.tm[i]*a + t.tv[i]*b)
		}
		t.natural(cov, n)
		next := floats.Dot(t.r, t.z)
		floats.AddScaledTo(t.p, t.z, next/rho, t.p)
		floats.AddScaledTo(t.q, t.r, next/rho, t.q)
		rho = next
	}
	// The residual also holds changes that cancel each other, if there are more terms than
	// weights. Adding it sends every site to its own target.
	floats.Add(t.e, t.r)
	_, ok := dense.AllFinite(t.e)
	return ok && !c.Halt.Stopped()
}

// slopes computes the differences of γ̂ at s, and reports whether they are finite.
func (t *siteNewton) slopes(terms *term.Terms, s *term.Marginals, batch []int, c term.Crew) bool {
	n := len(s.M)
	t.tm, t.tv = dense.Resize(t.tm, n), dense.Resize(t.tv, n)
	if c.Workers <= 1 {
		t.difference(terms, s, batch, c.Halt, 0, n)
	} else {
		t.differences(terms, s, batch, c)
	}
	if c.Halt.Stopped() {
		return false
	}
	for i, x := range t.tm {
		if bad := x + t.tv[i]; math.IsNaN(bad) || math.IsInf(bad, 0) {
			return false
		}
	}
	return true
}

// differences computes the slopes of all elements on the workers of c.
func (t *siteNewton) differences(terms *term.Terms, s *term.Marginals, batch []int, c term.Crew) {
	parallel.For(len(s.M), 8, c.Workers,
		func(_, lo, hi int) { t.difference(terms, s, batch, c.Halt, lo, hi) })
}

// difference computes the slopes of the elements lo … hi−1 of s.
func (t *siteNewton) difference(terms *term.Terms, s *term.Marginals, batch []int, halt *parallel.Halt,
	lo, hi int) {
	i := lo
	defer parallel.At(&i, func(i int) string { return terms.Name(dense.Index(batch, i)) })
	for ; i < hi && !halt.Stopped(); i++ {
		t.tm[i], t.tv[i] = t.slope(terms, dense.Index(batch, i), s.M[i], s.V[i], s.Tg[i])
	}
}

// slope returns ∂γ̂/∂m and ∂γ̂/∂v of term n at (m, v). The argument tg is γ̂ there.
func (t *siteNewton) slope(terms *term.Terms, n int, m, v, tg float64) (tm, tv float64) {
	hm := newtonDifference*math.Sqrt(min(v, 1)) + min(newtonRounding*math.Abs(m), newtonFarthest)
	hv := newtonDifference*min(v, 1) + min(newtonRounding*v, newtonFarthest)
	above, below := m+hm, m-hm
	tm = (terms.Expectation(n, below, v).D2 - terms.Expectation(n, above, v).D2) / (above - below)
	above, below = v+hv, v-hv
	tv = (terms.Expectation(n, m, below).D2 - terms.Expectation(n, m, above).D2) / (above - below)
	if flat := 2 * tg * tv; flat > 0 && math.Abs(tm*tm-flat) < newtonFlat*flat {
		tm = math.Copysign(math.Sqrt(flat), tm)
	}
	return tm, tv
}

// natural stores M⁻¹r in z. Its two parts are Sr_m and 2(S∘S)r_v.
func (t *siteNewton) natural(cov []float64, n int) {
	dense.Symv(1, dense.Symmetric(cov, n), dense.Vector(t.r[:n]), 0, dense.Vector(t.z[:n]))
	r, z := t.r[n:], t.z[n:]
	for i, ri := range r {
		row := cov[i*n : i*n+i+1]
		var sum float64
		for j, c := range row[:i] {
			c *= c
			sum += c * r[j]
			z[j] += 2 * c * ri
		}
		z[i] = 2 * (sum + row[i]*row[i]*ri)
	}
}

// precision returns the change of γ_i for the part h of the step. If the variance rises by the
// factor 1 + u, the path is straight in v, because that is more accurate far from the optimum.
// The precision then falls by the same factor instead of following its slope.
func (t *siteNewton) precision(s *term.Marginals, i int, h float64) float64 {
	d, u := -2*h*t.e[len(s.M)+i], h*t.d[len(s.M)+i]/s.V[i]
	if u > 0 {
		d /= 1 + u
	}
	return d
}

// mean returns the move of m_i if v_i has become v. The difference Δv between v and the step
// changes γ̂, and the mean compensates for it. It moves further by −Δv (∂γ̂/∂v)/(∂γ̂/∂m), which
// leaves γ̂ at the value that it would have without the difference. For an exponential that is
// ∓½Δv.
func (t *siteNewton) mean(s *term.Marginals, i int, h, v float64) float64 {
	d := h * t.d[i]
	if dv := v - s.V[i] - h*t.d[len(s.M)+i]; t.tm[i] != 0 {
		if shift := -dv * t.tv[i] / t.tm[i]; math.Abs(shift) <= math.Abs(dv) {
			d += shift
		}
	}
	return d
}

// linear returns the change of a_i, the coefficient of the site about its mean, with γ fixed.
func (t *siteNewton) linear(s *term.Marginals, i int, h float64) float64 {
	return h * (t.e[i] - s.Gamma[i]*t.d[i])
}

// siteRates solves the problem of rated terms by its dual, which has no exponential (Khan,
// Aravkin, Friedlander and Seeger, 2013). A term is rated if its likelihood is a linear function
// of η plus one exponential (Likelihood.Rated). With C the covariance of the base, which has no
// sites, and a as a function of γ, a_n = slope_n − sign_n γ_n, the dual is
//
//	argmin_γ  ½aᵀCa + m0ᵀa − ½ log|C⁻¹ + diag(γ)| + Σ_n γ_n(log γ_n − 1 − origin_n).
//
// Its gradient is −ρ, with ρ_n = origin_n + sign_n m_n + v_n/2 − log γ_n for the m and v of the
// sites. Its Hessian is diag(sign)·C·diag(sign) + ½V∘V + diag(1/γ).
//
// The dual is needed if the prior is far wider than the rows can correct. Counts of zero then
// have their best rates at means of −10⁶ and variances of 2·10⁶ that compensate for each other.
// On any straight line between two such states the ELBO falls by orders of magnitude, so only the
// shortest steps raise it. Newton's steps of the dual go the whole way.
type siteRates struct {
	sign, origin, slope []float64

	c, h         []float64 // C and the Hessian
	rho          []float64
	step, da, dm []float64 // the steps of γ, a and m
}

// The steps end when no |ρ| exceeds ratesNear, and after at most ratesMost steps, because a step
// far from the optimum changes γ by a factor of e. In a step γ falls by at most a factor of
// e^ratesFall, and never below ratesLeast times a precision. A row at that limit is asleep, and
// wakes when its rate is larger. A step is small if no γ changes by more than a fraction
// ratesSmall. The Hessian of a step takes N³ operations, so it is used for up to ratesRows rows.
const (
	ratesNear  = 0.01
	ratesMost  = 60
	ratesFall  = 2
	ratesLeast = 1e-10
	ratesSmall = 0.1
	ratesRows  = 2000
)

// set selects the terms of t at index, about a base. It returns false if they are not rated or
// the dual does not apply.
func (r *siteRates) set(t *term.Terms, index []int, base *term.Marginals) bool {
	n := len(base.M)
	rate := t.Lik.Rated()
	if rate == nil || n > ratesRows || !base.Bare() {
		return false
	}
	dense.ResizeAll(n, &r.sign, &r.origin, &r.slope, &r.rho, &r.step, &r.da, &r.dm)
	for i := range n {
		y, o, w, c := t.Term(dense.Index(index, i))
		sign, origin, slope := rate(y)
		r.sign[i], r.origin[i], r.slope[i] = sign, origin+sign*o+0.5*c+math.Log(w), w*slope
	}
	r.c, r.h = dense.Resize(r.c, n*n), dense.Resize(r.h, n*n)
	return true
}

// asleep returns the γ of a row of variance v without information. It is 0 if v is 0.
func asleep(v float64) float64 {
	if v == 0 {
		return 0
	}
	return ratesLeast / v
}

// far computes ρ at s, and returns the greatest |ρ|.
func (r *siteRates) far(s *term.Marginals) (far float64) {
	for i, g := range s.Gamma {
		rho := r.origin[i] + r.sign[i]*s.M[i] + 0.5*s.V[i] - math.Log(g)
		if s.V[i] == 0 || rho < 0 && g <= 10*asleep(s.V[i]) {
			rho = 0
		}
		r.rho[i] = rho
		far = math.Max(far, math.Abs(rho))
	}
	return far
}

// aim takes a step of γ at s, whose covariance is cov, and stores the steps of a and m. The
// caller has computed ρ by far. It returns false if there is no step.
//
// The step of m is C times the step of a. A large C magnifies the rounding of a, so a small step
// computes m from log γ and its rate to first order instead.
func (r *siteRates) aim(s *term.Marginals, cov []float64, w term.Crew) bool {
	n := len(s.M)
	if cov == nil {
		return false
	}
	for i, si := range r.sign {
		row := r.h[i*n : i*n+i+1]
		for j, v := range cov[i*n : i*n+i+1] {
			row[j] = si*r.c[i*n+j]*r.sign[j] + 0.5*v*v
		}
		row[i] += 1/s.Gamma[i] + 4*float64(n)*dense.Epsilon*row[i]
		r.da[i] = r.slope[i] - si*s.Gamma[i] - s.A[i]
	}
	c := dense.Symmetric(r.c, n)
	dense.Symv(1, c, dense.Vector(r.da), 0, dense.Vector(r.step))
	for i, si := range r.sign {
		r.step[i] = r.rho[i] + si*r.step[i]
	}
	if !dense.CholeskyUntil(w.Halt, r.h, n) {
		return false
	}
	dense.Potrs(r.h, r.step)
	small := true
	for i, g := range s.Gamma {
		small = small && math.Abs(r.step[i]) <= ratesSmall*g
	}
	if small {
		for i, g := range s.Gamma {
			var dv float64
			for j, d := range r.step {
				v := dense.SymmetricAt(cov, n, i, j)
				dv -= v * v * d
			}
			r.dm[i] = r.sign[i] * (r.step[i]/g - r.rho[i] - 0.5*dv)
		}
	}
	for i, g := range s.Gamma {
		part := r.step[i] / g
		if part < 0 {
			part = math.Expm1(math.Max(part, -ratesFall))
		}
		s.Gamma[i] = math.Max(g+g*part, asleep(s.V[i]))
		r.da[i] = r.slope[i] - r.sign[i]*s.Gamma[i] - s.A[i]
	}
	if !small {
		dense.Symv(1, c, dense.Vector(r.da), 0, dense.Vector(r.dm))
	}
	_, ok := dense.AllFinite(r.dm)
	return ok
}
