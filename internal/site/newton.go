package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Progress tells how fast steps to the targets of the sites converge, by the nats that they
// promise.
type Progress struct {
	seen   int                 // terms of the pass under way
	sum    float64             // promised in that pass
	before [slowPasses]float64 // promised in the passes before, the last one first
	Passes int
	Slow   bool
	rest   int // passes until it is slow again, after a step of Newton's that failed
}

// Steps to the targets are slow if in so many passes their promise falls by less than slowFall: on
// ordinary data it falls by that in a pass or two, and where expectations change with the variance
// more than with the mean, not in a hundred. Where less than slowLeast nats are promised all that
// is left may be rounding. Where a step of Newton's fails, the next is tried after slowRest passes.
const (
	slowPasses = 6
	slowFall   = 3
	slowLeast  = 1e-12
	slowRest   = 3
)

// farPromise is the number of nats from which on slow steps are tried to be left by the targets of
// the sites alone.
const farPromise = 1e4

// Add takes account of a step of so many of n terms.
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

// due reports whether other steps than those to the targets are due at s.
func (p *Progress) due(s *term.State) bool { return p.Slow || p.lost(s) }

// lost reports whether after a pass there are still terms in s whose expectations overflow.
func (p *Progress) lost(s *term.State) bool { return p.Passes > 0 && s.Wild }

func (p *Progress) state(c *save.State) {
	c.Int(&p.seen, &p.Passes, &p.rest)
	c.Float(&p.sum)
	for i := range p.before {
		c.Float(&p.before[i])
	}
	c.Bool(&p.Slow)
}

// siteNewton is Newton's step of the ELBO in (m, v) of the variables of sites, v standing for all
// of V. With the covariance S of the variables, and γ̂, α̂ what the expectations say of γ and a, it
// solves
//
//	[ S⁻¹ + diag(γ̂ − γ)   ½diag(∂γ̂/∂m)              ] [δm]   [ α̂ − a     ]
//	[ ½diag(∂γ̂/∂m)        ½(S∘S)⁻¹ + ½diag(∂γ̂/∂v)  ] [δv] = [ ½(γ − γ̂) ].
//
// The inverses are the metric M in which a step to the targets of the sites is the steepest; of the
// rest such steps know nothing. It counts where an exponential stands against a wide prior, for
// E[exp(η)] = exp(m + v/2) changes by far more than m and v do. The system is solved by conjugate
// gradients in the metric M, whose first step is thus along that to the targets.
type siteNewton struct {
	tm, tv []float64 // ∂γ̂/∂m and ∂γ̂/∂v
	// Of two parts, for m and for v. Directions have a dual, M times them: the changes of the
	// linear coefficients about the means, and −½ times those of γ.
	r, z []float64 // residual and its direction
	p, q []float64 // search direction and its dual
	d, e []float64 // the step and its dual
}

// Differences of γ̂ are taken over this part of a standard deviation or of a variance to both
// sides, or of 1 where that is less: where variances are large exponentials change over a distance
// of 1. What rounding hides of large numbers is added, as far as that allows.
const (
	newtonDifference = 1e-6
	newtonRounding   = 1e-9
	newtonFarthest   = 1e-3
)

// newtonFlat is the part of the curvature of a term in (m, v) that the differences may be wrong by.
// A term of an exponential is flat where m + v/2 does not change, which a wide prior leaves to the
// rest of the ELBO, a part in 10⁵ and less of the term's curvature elsewhere.
const newtonFlat = 1e-3

// The conjugate gradients end where the square of the residual is this part of what it was, and the
// nats that the last iteration promises are this part of what all do: the more exact a step, the
// faster the next. They end in any case where nothing but rounding is left of the residual, and
// after so many iterations or N, if that is more. An iteration takes 2N² operations and a step to
// the targets N³ or more: N of them cost no more than a pass.
const (
	newtonTol     = 1e-6
	newtonNothing = 1e-20
	newtonMost    = 200
)

// aim finds the step at s, the state of the terms in batch (nil means all), with the covariance cov
// of the variables, of which the lower triangle counts. It reports whether there is one: not
// without a cov.
func (t *siteNewton) aim(terms *term.Terms, s *term.State, batch []int, cov []float64,
	c term.Crew) bool {
	n := len(s.M)
	if cov == nil || !t.slopes(terms, s, batch, c) {
		return false
	}
	for _, x := range []*[]float64{&t.r, &t.z, &t.p, &t.q, &t.d, &t.e} {
		*x = dense.Resize(*x, 2*n)
	}
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
	gain, total := math.Inf(1), 0.0 // twice the nats of the last iteration, and of all
	for k := 0; k < max(newtonMost, n) &&
		(rho > enough || rho > nothing && gain > newtonTol*total) && !c.Halt.Stopped(); k++ {
		curvature := floats.Dot(t.p, t.q)
		for i, a := range t.p[:n] {
			b := t.p[n+i]
			curvature += (s.Tg[i]-s.Gamma[i])*a*a + (t.tm[i]*a+0.5*t.tv[i]*b)*b
		}
		if !(curvature > 0) || math.IsInf(curvature, 0) {
			// Not convex here: the step so far, or else the one to the targets.
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
	// What is left of the residual are also changes that cancel each other, where there are more
	// terms than weights: with it every site goes to where its own target does.
	floats.Add(t.e, t.r)
	_, ok := dense.AllFinite(t.e)
	return ok && !c.Halt.Stopped()
}

// slopes takes the differences of γ̂ at s, and reports whether they are finite.
func (t *siteNewton) slopes(terms *term.Terms, s *term.State, batch []int, c term.Crew) bool {
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

func (t *siteNewton) differences(terms *term.Terms, s *term.State, batch []int, c term.Crew) {
	parallel.For(len(s.M), 8, c.Workers,
		func(_, lo, hi int) { t.difference(terms, s, batch, c.Halt, lo, hi) })
}

// difference is slopes for the elements lo … hi−1 of s.
func (t *siteNewton) difference(terms *term.Terms, s *term.State, batch []int, halt *parallel.Halt,
	lo, hi int) {
	i := lo
	defer parallel.At(&i, func(i int) string { return terms.Name(dense.Index(batch, i)) })
	for ; i < hi && !halt.Stopped(); i++ {
		t.tm[i], t.tv[i] = t.slope(terms, dense.Index(batch, i), s.M[i], s.V[i], s.Tg[i])
	}
}

// slope returns ∂γ̂/∂m and ∂γ̂/∂v of term n at (m, v), where γ̂ is tg.
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

// natural stores M⁻¹r in z: Sr_m and 2(S∘S)r_v.
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

// precision returns the change of γ_i in the length h of the step. To be good far from the optimum
// the way there is straight in v where that rises, by the factor 1 + u: the precisions then fall by
// that, and not along their slope.
func (t *siteNewton) precision(s *term.State, i int, h float64) float64 {
	d, u := -2*h*t.e[len(s.M)+i], h*t.d[len(s.M)+i]/s.V[i]
	if u > 0 {
		d /= 1 + u
	}
	return d
}

// mean returns the move of m_i, if v_i has become v. What that differs from the step, Δv, would
// change γ̂, and the mean makes up for it: it goes to where γ̂ is what it were without, further by
// −Δv (∂γ̂/∂v)/(∂γ̂/∂m), which is ∓½Δv for an exponential.
func (t *siteNewton) mean(s *term.State, i int, h, v float64) float64 {
	d := h * t.d[i]
	if dv := v - s.V[i] - h*t.d[len(s.M)+i]; t.tm[i] != 0 {
		if shift := -dv * t.tv[i] / t.tm[i]; math.Abs(shift) <= math.Abs(dv) {
			d += shift
		}
	}
	return d
}

// linear returns the change of a_i, of the site about its mean, with γ held as it is.
func (t *siteNewton) linear(s *term.State, i int, h float64) float64 {
	return h * (t.e[i] - s.Gamma[i]*t.d[i])
}

// siteRates solves the problem of rated terms by its dual, in which there is no exponential (Khan,
// Aravkin, Friedlander and Seeger, 2013): with C the covariance of the base, which has no sites,
// and all of a that of γ, a_n = slope_n − sign_n γ_n,
//
//	argmin_γ  ½aᵀCa + m0ᵀa − ½ log|C⁻¹ + diag(γ)| + Σ_n γ_n(log γ_n − 1 − origin_n),
//
// whose gradient is −ρ, ρ_n = origin_n + sign_n m_n + v_n/2 − log γ_n for the m and v of the sites,
// and whose Hessian is diag(sign)·C·diag(sign) + ½V∘V + diag(1/γ). Under a prior far wider than its
// rows tell, the best rates of counts of zero are those of means of −10⁶ and variances of 2·10⁶
// that make up for each other. The ELBO falls by orders of magnitude on any straight way between
// two such states, so that only the shortest steps raise it; of the dual Newton's steps go all of
// their way.
type siteRates struct {
	sign, origin, slope []float64

	c, h         []float64 // C and the Hessian
	rho          []float64
	step, da, dm []float64 // the steps of γ, a and m
}

// The steps end where no |ρ| is above ratesNear, and after ratesMost of them: far off each takes a
// factor of e. No γ falls by a factor of more than e^ratesFall in a step, nor below ratesLeast of a
// precision: such a row is asleep, and wakes when its rate is more. A step is small if no γ changes
// by more than the part ratesSmall. A step takes N³ operations for its Hessian, which is for up to
// ratesRows rows.
const (
	ratesNear  = 0.01
	ratesMost  = 60
	ratesFall  = 2
	ratesLeast = 1e-10
	ratesSmall = 0.1
	ratesRows  = 2000
)

// set makes the terms those of t at index, of a base, and reports whether they are rated and there
// is a dual.
func (r *siteRates) set(t *term.Terms, index []int, base *term.State) bool {
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

// asleep returns the γ of a row of variance v that tells nothing, 0 for one of zeros.
func asleep(v float64) float64 {
	if v == 0 {
		return 0
	}
	return ratesLeast / v
}

// far makes ρ that of s, and returns the greatest |ρ|.
func (r *siteRates) far(s *term.State) (far float64) {
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

// aim takes a step of γ at s, whose covariance is cov and whose ρ is at hand, and stores those of a
// and m. It reports whether there is one.
//
// The step of m is C times that of a. Where C is large rounding of a blows up in it: a small step
// instead has log γ meet its rate to first order.
func (r *siteRates) aim(s *term.State, cov []float64, w term.Crew) bool {
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
