package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas/blas64"
)

// curveProx takes the proximal steps of a GP under a divergence that has no
// closed form. The objective linearised at λ_k, f linear plus h, is least at the
// sites γ̂ = −∂²E/∂m², b̂ = γ̂m + ∂E/∂m; natural parameters averaged between these
// and λ_k form a curve q_t, and the step is the minimiser on it,
//
//	argmin_{0≤t≤1}  λ(t)ᵀ∇f(λ_k) + h(λ(t)) + D(λ(t)‖λ_k)/β.
//
// On the curve the first two terms fall monotonically, and D is flat at t = 0,
// so that only a fixed point of the iteration takes a step of length zero.
type curveProx struct {
	d      Divergence
	beta   float64 // the next step size to try where the caller gives none
	q, q0  *Gaussian
	tg, tb []float64
	try    siteState
	fac    siteFactor
	exp    expansion
	pg     pgStep
	logDet float64
}

// check returns an error if the divergence cannot be evaluated at the prior.
func (c *curveProx) check(s *GPStepper) error {
	c.q, c.q0 = newGaussian(s.n), newGaussian(s.n)
	copy(c.q0.next.v, s.k)
	if err := c.q0.commitMoments(); err != nil {
		return fmt.Errorf("pgsvi: covariance of the prior, which %T needs to be nonsingular; set GP.Jitter: %w", c.d, err)
	}
	if v, ok := c.d.(Validator); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	if a, ok := c.d.(interface{ Accepts(Dist) error }); ok {
		return a.Accepts(c.q0)
	}
	return nil
}

// at computes c.try, and c.q if dense, at the fraction t of the way to the target.
func (c *curveProx) at(s *GPStepper, t float64, dense bool) error {
	n := s.n
	c.try.resize(n)
	for i, g := range s.cur.gamma {
		b := s.cur.a[i] + g*s.cur.m[i]
		c.try.gamma[i] = g + t*(c.tg[i]-g)
		c.try.a[i] = b + t*(c.tb[i]-b)
	}
	if !c.fac.factor(s.k, n, c.try.gamma) {
		return fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	c.logDet = c.fac.logDet
	c.fac.expand(&c.exp, s.k, n)
	c.fac.solve(c.try.a)
	blas64.Symv(1, symmetric(s.k, n), vector(c.try.a), 0, vector(c.try.m))
	c.fac.variances(c.try.v, &c.exp)
	if !dense {
		return nil
	}
	copy(c.q.next.m, c.try.m)
	c.fac.covariance(c.q.next.v, &c.exp)
	fillUpper(c.q.next.v, n)
	return c.q.commitMoments()
}

// step takes a step with step size beta, or with one of its own, at which the
// ELBO does not fall, where beta is +Inf.
func (c *curveProx) step(s *GPStepper, batch []int, beta float64, rng *rand.Rand) error {
	n := s.n
	auto := math.IsInf(beta, 1)
	if auto {
		beta = c.beta
	}
	before := math.Inf(-1)
	c.tg, c.tb = resize(c.tg, n), resize(c.tb, n)
	if auto {
		if err := s.refresh(false); err != nil {
			return err
		}
		for i, g := range s.cur.tg {
			c.tg[i], c.tb[i] = g, s.cur.d1[i]+g*s.cur.m[i]
		}
		before = s.elbo(&s.cur, s.logDet)
	} else if err := c.estimate(s, batch, rng); err != nil {
		return err
	}
	if err := c.at(s, 0, true); err != nil {
		return err
	}
	c.q, c.q0 = c.q0, c.q
	tol := 1e-5
	if auto {
		tol = 1e-2 // the step is checked: it need not be exact
	}
	var failure error
	for range 60 {
		t, err := c.length(s, beta, tol)
		if err == nil {
			err = c.at(s, t, false)
		}
		if err == nil {
			err = c.try.expect(s.gp.lik, s.gp.y, s.workers)
		}
		if err != nil && !auto {
			return err
		}
		if err != nil {
			failure = err
			beta /= 2
			continue
		}
		failure = nil
		if after := s.elbo(&c.try, c.logDet); !auto || after >= before-elboRounding*math.Abs(before) {
			s.gradMap = siteDistance(&c.try, &s.cur) / beta
			s.cur, c.try = c.try, s.cur
			s.logDet = c.logDet
			s.fresh, s.dense, s.batched, s.unresolved = true, false, false, false
			c.beta = math.Min(2*beta, mostBeta)
			return nil
		}
		beta /= 2
	}
	if failure != nil {
		return failure
	}
	s.gradMap = 0
	return nil
}

// mostBeta bounds the step sizes that grow on their own: D has no weight left.
const mostBeta = 1e12

// estimate stores the target that the batch suggests in c.tg and c.tb.
func (c *curveProx) estimate(s *GPStepper, batch []int, rng *rand.Rand) error {
	if err := s.refresh(false); err != nil {
		return err
	}
	t := &c.pg
	if err := t.marginals(s, batch); err != nil {
		return err
	}
	if err := s.est.EstimateSites(t.e, t.d1, t.d2, s.gp.lik, t.y, t.m, t.v, rng); err != nil {
		return err
	}
	clear(c.tg)
	clear(c.tb)
	scale := float64(s.n) / float64(len(t.y))
	for i := range t.y {
		j := termAt(batch, i)
		c.tg[j] -= scale * t.d2[i]
		c.tb[j] += scale * (t.d1[i] - t.d2[i]*t.m[i])
	}
	return nil
}

// length returns the minimiser over the curve, to the given accuracy.
func (c *curveProx) length(s *GPStepper, beta, tol float64) (float64, error) {
	var failure error
	t := minimizeUnit(beta/(1+beta), tol, func(t float64) float64 {
		if err := c.at(s, t, true); err != nil {
			failure = err
			return math.Inf(1)
		}
		// f linear plus KL(q‖N(0, K)), and D/β.
		v := c.logDet
		for i, m := range c.try.m {
			vi := c.try.v[i]
			v += c.try.a[i]*m - c.try.gamma[i]*vi
			v += c.tg[i]*(vi+m*m) - 2*c.tb[i]*m
		}
		d := c.d.Value(c.q, c.q0)
		if math.IsNaN(d) {
			failure = fmt.Errorf("pgsvi: %w: divergence is NaN", ErrNotFinite)
			return math.Inf(1)
		}
		return 0.5*v + d/beta
	})
	if t == 0 && failure != nil {
		return 0, failure
	}
	return t, nil
}

// minimizeUnit minimises a function over [0, 1] from the guess t by golden
// sections and parabolas (Brent, 1973, chapter 5), to about tol·t; below 1e-5
// rounding hides what is lower.
func minimizeUnit(t, tol float64, f func(float64) float64) float64 {
	const golden = 0.3819660112501051
	lo, hi := 0.0, 1.0
	x, w, v := t, t, t
	fx := f(x)
	fw, fv := fx, fx
	var step, last float64
	for range 100 {
		mid := 0.5 * (lo + hi)
		eps := tol*x + 1e-12
		if math.Abs(x-mid) <= 2*eps-0.5*(hi-lo) {
			break
		}
		parabola := false
		if math.Abs(last) > eps {
			r, q := (x-w)*(fx-fv), (x-v)*(fx-fw)
			p := (x-v)*q - (x-w)*r
			q = 2 * (q - r)
			if q > 0 {
				p = -p
			}
			q = math.Abs(q)
			if math.Abs(p) < math.Abs(0.5*q*last) && p > q*(lo-x) && p < q*(hi-x) {
				last, step = step, p/q
				if u := x + step; u-lo < 2*eps || hi-u < 2*eps {
					step = math.Copysign(eps, mid-x)
				}
				parabola = true
			}
		}
		if !parabola {
			last = lo - x
			if x < mid {
				last = hi - x
			}
			step = golden * last
		}
		u := x + step
		if math.Abs(step) < eps {
			u = x + math.Copysign(eps, step)
		}
		fu := f(u)
		if fu <= fx {
			if u < x {
				hi = x
			} else {
				lo = x
			}
			v, fv, w, fw, x, fx = w, fw, x, fx, u, fu
			continue
		}
		if u < x {
			lo = u
		} else {
			hi = u
		}
		if fu <= fw || w == x {
			v, fv, w, fw = w, fw, u, fu
		} else if fu <= fv || v == x || v == w {
			v, fv = u, fu
		}
	}
	if lo == 0 && !(fx <= f(0)) {
		return 0
	}
	return x
}
