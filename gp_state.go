package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// newGPStepper returns a Stepper at the prior, with covariances k, which has yet
// to take expectations there. Of g only labels, likelihood and update are used.
func newGPStepper(t *terms, k []float64, est SiteEstimator, exact bool, update MeanUpdate) *gpStepper {
	n := t.len()
	s := &gpStepper{terms: t, est: est, exact: exact, update: update, n: n, k: k, cov: append([]float64(nil), k...), rounding: make([]float64, n)}
	s.cur = s.prior()
	s.dense, s.fresh = true, true
	return s
}

// gpStepper holds the approximation q(z) = N(m, V) of a GP in site form,
//
//	V⁻¹ = K⁻¹ + diag(γ),   V⁻¹m = b,
//
// two numbers a datum, and takes three kinds of steps. With a given β it takes
// the step of the paper, from the gradient of the batch (MeanUpdate, Estimator).
// With β = +Inf and a batch of all N it takes one accepted step of the whole
// objective. With β = +Inf and a smaller batch B it solves the problem of B
// with the other sites held fixed,
//
//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} E_q[log p(y_n|z_n)],
//
// to a tolerance, and puts the new sites back: an exact block step with memory,
// which needs no step size and has no noise. A block step never lowers the ELBO.
type gpStepper struct {
	terms  *terms
	update MeanUpdate
	est    SiteEstimator
	exact  bool // est ignores randomness
	n      int
	k      []float64 // K, full

	cur    siteState
	logDet float64 // log|K|/|V|
	cov    []float64
	dense  bool // cov holds V (lower triangle)
	fresh  bool // m, v and the expectations of cur are those of its sites

	unresolved bool // rounding hides some of v

	block    blockStep
	batch    siteProblem
	alg      covAlgebra // of batch
	base     siteState  // the prior, once batch needs it
	batched  bool       // batch is at the current sites
	pg       pgStep
	curve    *curveProx
	workers  int
	checker  allTerms
	gradMap  float64
	rounding []float64 // estimated relative error of the diagonal of cov
}

// prior returns the state without sites.
func (s *gpStepper) prior() (p siteState) {
	p.resize(s.n)
	clear(p.gamma)
	clear(p.a)
	clear(p.m)
	for i := range p.v {
		p.v[i] = s.k[i*s.n+i]
	}
	return p
}

// elbo returns the ELBO of c: with a = K⁻¹m,
//
//	Σe − KL,   KL = ½(aᵀm − Σγv + log|K|/|V|).
func (s *gpStepper) elbo(c *siteState, logDet float64) float64 {
	kl := logDet
	for i, m := range c.m {
		kl += c.a[i]*m - c.gamma[i]*c.v[i]
	}
	return floats.Sum(c.e) - 0.5*kl
}

// decrement returns ½δᵀFδ; see Evaluate.
func (s *gpStepper) decrement() float64 {
	n := s.n
	dg, c := make([]float64, n), make([]float64, n)
	for i := range n {
		dg[i] = s.cur.tg[i] - s.cur.gamma[i]
		c[i] = s.cur.d1[i] - s.cur.a[i]
	}
	var gap, mean, precision float64 // and the latter two bounds on its rounding
	for i := range n {
		var linear, square float64
		for j, v := range s.cov[i*n : i*n+i] {
			linear += c[j] * v
			square += dg[j] * v * v
		}
		v := s.cov[i*n+i]
		gap += c[i]*(linear+0.5*c[i]*v) + 0.5*dg[i]*v*v*0.5*dg[i] + 0.5*dg[i]*square
		v = math.Abs(v)
		mean += math.Abs(c[i]) * math.Sqrt(s.rounding[i]*v)
		precision += math.Abs(dg[i]) * v * math.Sqrt(s.rounding[i])
	}
	return math.Max(gap, 0.5*mean*mean+0.25*precision*precision)
}

// refresh makes the marginals and expectations, and if dense also V, those of
// the sites.
func (s *gpStepper) refresh(dense bool) error {
	if s.fresh && (s.dense || !dense) {
		return nil
	}
	p := &s.pg
	if p.current = p.fac.Factor(s.k, s.n, s.cur.gamma); !p.current {
		return fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	p.fac.Expand(&p.exp, s.k, s.n)
	if !s.fresh {
		s.logDet = p.fac.LogDet
		s.unresolved = !p.fac.Variances(s.cur.v, &p.exp)
		for i, v := range s.cur.v {
			s.cur.v[i] = s.boundVariance(i, v)
		}
		if err := s.terms.expect(&s.cur, nil, s.workers); err != nil {
			return err
		}
		s.fresh = true
	}
	if dense {
		p.fac.Covariance(s.cov, &p.exp)
		s.dense = true
		for i := range s.rounding {
			s.rounding[i] = s.roundingAnew(i)
		}
	}
	return nil
}

// boundVariance returns the variance v of term i, or a bound on it where
// rounding has left nothing of it.
func (s *gpStepper) boundVariance(i int, v float64) float64 {
	if v > 0 {
		return v
	}
	return math.Min(epsilon*s.k[i*s.n+i], 1/math.Abs(s.cur.gamma[i]))
}

// siteDistance returns the Euclidean distance between two states in the sites (γ, b).
func siteDistance(p, q *siteState) float64 {
	var s float64
	for i := range p.m {
		g := p.gamma[i] - q.gamma[i]
		b := p.a[i] + p.gamma[i]*p.m[i] - q.a[i] - q.gamma[i]*q.m[i]
		s += g*g + b*b
	}
	return math.Sqrt(s)
}

// batchStep takes one accepted step of the whole objective.
func (s *gpStepper) batchStep() error {
	if err := s.refresh(false); err != nil {
		return err
	}
	p := &s.batch
	if !s.batched {
		if s.base.m == nil {
			s.base = s.prior()
		}
		s.alg.n, s.alg.cov = s.n, s.k
		if err := p.init(s.terms, nil, &s.alg, &s.base); err != nil {
			return err
		}
		started := false
		for i, g := range s.cur.gamma {
			p.try.gamma[i], p.try.c[i] = g, s.cur.a[i]+g*s.cur.m[i]
			started = started || g != 0 || s.cur.a[i] != 0
		}
		if started && p.eval() {
			p.cur, p.try = p.try, p.cur
		}
		s.batched = true
	}
	before := s.elbo(&s.cur, s.logDet)
	p.iterate()
	if s.elbo(&p.cur.siteState, p.cur.logDet) < before-elboRounding*math.Abs(before) {
		// Less accurate here than the state from blocks, which stands.
		s.batched, s.gradMap = false, 0
		return nil
	}
	s.gradMap = siteDistance(&p.cur.siteState, &s.cur)
	s.cur.copyFrom(&p.cur.siteState)
	s.logDet = p.cur.logDet
	s.fresh, s.dense, s.unresolved = true, false, false
	return nil
}

// pgStep is the workspace of the step with a given β.
type pgStep struct {
	fac, next dense.Sites
	current   bool // fac is that of the sites of the state
	exp       dense.Expansion
	rows      []float64
	estimates
	gamma, b, a, w []float64
	mean           []float64
}

// blockStep is the workspace of the block step.
type blockStep struct {
	promise float64   // decrease that the block promised at the start
	in      []bool    // membership of the block
	b       []int     // its members, increasing
	cov     []float64 // V_BB, full
	base    siteState // of the block
	rows    []float64 // V[B, :], one row a site
	prob    siteProblem
	alg     covAlgebra
	fac     dense.Sites
	exp     dense.Expansion
	inner   dense.Expansion // of the block itself
	v       []float64       // V_BB after a step
	next    siteState
	delta   []float64
	u       []float64
}

const (
	epsilon      = 1.1e-16 // of float64
	elboRounding = 1e-13   // relative change of the ELBO that may be rounding
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
	fac    dense.Sites
	exp    dense.Expansion
	pg     pgStep
	logDet float64
}

// roundingAnew estimates the relative error of a variance computed from the sites.
func (s *gpStepper) roundingAnew(i int) float64 {
	k := s.k[i*s.n+i]
	if s.cur.gamma[i]*k > dense.StrongSite {
		return epsilon
	}
	return epsilon * k / s.cur.v[i]
}
