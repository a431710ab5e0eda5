package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas/blas64"
)

// check returns an error if the divergence cannot be evaluated at the prior.
func (c *curveProx) check(s *gpStepper) error {
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
func (c *curveProx) at(s *gpStepper, t float64, full bool) error {
	n := s.n
	c.try.resize(n)
	for i, g := range s.cur.gamma {
		b := s.cur.a[i] + g*s.cur.m[i]
		c.try.gamma[i] = g + t*(c.tg[i]-g)
		c.try.a[i] = b + t*(c.tb[i]-b)
	}
	if !c.fac.Factor(s.k, n, c.try.gamma) {
		return fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	c.logDet = c.fac.LogDet
	c.fac.Expand(&c.exp, s.k, n)
	c.fac.Solve(c.try.a)
	blas64.Symv(1, dense.Symmetric(s.k, n), dense.Vector(c.try.a), 0, dense.Vector(c.try.m))
	c.fac.Variances(c.try.v, &c.exp)
	if !full {
		return nil
	}
	copy(c.q.next.m, c.try.m)
	c.fac.Covariance(c.q.next.v, &c.exp)
	dense.FillUpper(c.q.next.v, n)
	return c.q.commitMoments()
}

// step takes a step with step size beta, or with one of its own, at which the
// ELBO does not fall, where beta is +Inf.
func (c *curveProx) step(s *gpStepper, batch []int, beta float64, rng *rand.Rand) error {
	n := s.n
	auto := math.IsInf(beta, 1)
	if auto {
		beta = c.beta
	}
	before := math.Inf(-1)
	c.tg, c.tb = dense.Resize(c.tg, n), dense.Resize(c.tb, n)
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
			err = s.terms.expect(&c.try, nil, s.workers)
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
func (c *curveProx) estimate(s *gpStepper, batch []int, rng *rand.Rand) error {
	if err := s.refresh(false); err != nil {
		return err
	}
	t := &c.pg
	if err := t.marginals(s, batch); err != nil {
		return err
	}
	if err := s.terms.estimate(&t.estimates, batch, s.est, rng); err != nil {
		return err
	}
	clear(c.tg)
	clear(c.tb)
	scale := float64(s.n) / float64(len(t.d1))
	for i := range t.d1 {
		j := dense.Index(batch, i)
		c.tg[j] -= scale * t.d2[i]
		c.tb[j] += scale * (t.d1[i] - t.d2[i]*t.m[i])
	}
	return nil
}

// length returns the minimiser over the curve, to the given accuracy.
func (c *curveProx) length(s *gpStepper, beta, tol float64) (float64, error) {
	var failure error
	t := accel.Minimize1(beta/(1+beta), tol, func(t float64) float64 {
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
