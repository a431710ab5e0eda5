package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// GP is a Gaussian-process model: latent values z_n = z(x_n) with prior
// z ~ N(0, K), K_ij = k(x_i, x_j), and observations y_n ~ p(y|z_n). It is a
// Model; the posterior approximation q(z) = N(m, V) maximises the ELBO
//
//	Σ_n E_q[log p(y_n|z_n)] − KL(q‖N(0, K))   (nats).
//
// The exported fields are options. Set them before the GP is first used;
// from then on it is immutable and may be shared between goroutines.
type GP struct {
	// Jitter is added to the diagonal of K in training and not in predictions.
	// A singular K is handled as it is and needs none, except under a Divergence
	// other than KL, which is a function of V⁻¹.
	Jitter float64
	// Estimator estimates the gradients of steps with a given Solver.StepSize;
	// it must be a SiteEstimator. Nil means Exact. Steps without a given step
	// size, those of a nil Solver, are always exact. Steps with noise go less far
	// where a site of negative γ would take more than nine tenths of the precision
	// of its variable: noise alone drives V to the edge of what is positive definite.
	Estimator Estimator
	// MeanUpdate is the update of m in steps with a given step size.
	MeanUpdate MeanUpdate

	x      *mat.Dense
	y      []float64
	kernel Kernel
	lik    Likelihood
}

// MeanUpdate selects one of the two published updates of the mean of a GP.
// With r = 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and
// Γ = diag(2 ∂f/∂v), estimated from the batch, both have V₊⁻¹ = K⁻¹ + Γ₊,
// Γ₊ = rΓ_k + (1−r)Γ.
type MeanUpdate int

const (
	// MainText is m₊ = m − (1−r)V₊(K⁻¹m + a): the exact proximal step in the
	// mean parameters (m, V + mmᵀ), which averages natural parameters
	// (Khan et al., 2016, Section 5, with Γ = diag(2 ∂f/∂v)).
	MainText MeanUpdate = iota
	// Appendix is m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a): the exact proximal
	// step in the coordinates (m, V) (Khan et al., 2016, appendix).
	Appendix
)

// NewGP returns the model of labels y at the rows of x, under covariance
// function k and likelihood lik. The data are copied; nil lik means
// GaussianNoise{}. A zero field of a kernel or likelihood counts as its documented
// default, such as a Length of 1. It returns an error, with the index of the datum, wrapping
// ErrEmpty if there is no row, ErrShape if lengths disagree, ErrNotFinite if a
// value is NaN or infinite, ErrLabel if a label is outside the support of lik,
// and ErrParam if a parameter of k or lik is out of range.
func NewGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood) (*GP, error) {
	if x == nil || len(y) == 0 {
		return nil, fmt.Errorf("pgsvi: %w: a GP needs at least one row", ErrEmpty)
	}
	n, d := x.Dims()
	if n == 0 || d == 0 {
		return nil, fmt.Errorf("pgsvi: %w: x is %d×%d", ErrEmpty, n, d)
	}
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: %w: x has %d rows, y has %d labels", ErrShape, n, len(y))
	}
	if k == nil {
		return nil, fmt.Errorf("pgsvi: %w: nil Kernel", ErrParam)
	}
	if err := ValidateKernel(k, d); err != nil {
		return nil, err
	}
	if lik == nil {
		lik = GaussianNoise{}
	}
	g := &GP{x: mat.DenseCopyOf(x), y: append([]float64(nil), y...), kernel: k, lik: lik}
	for i := range n {
		if j, ok := allFinite(g.x.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: %w: row %d, column %d of x is %v", ErrNotFinite, i, j, g.x.At(i, j))
		}
	}
	if err := checkLabels(lik, y); err != nil {
		return nil, err
	}
	return g, nil
}

// Len returns N, the number of observations.
func (g *GP) Len() int { return len(g.y) }

// Fit runs s on the model; a nil s means a Solver without options, which needs
// no tuning. The posterior is that of the state reached and is valid even if
// there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (g *GP) Fit(ctx context.Context, s *Solver) (*GPPosterior, *Result, error) {
	if s == nil {
		s = &Solver{}
	}
	res, err := s.Run(ctx, g)
	if res == nil {
		return nil, nil, err
	}
	post, e := res.Stepper.(*GPStepper).Posterior()
	if err == nil {
		err = e
	}
	return post, res, err
}

// Objective returns the model as an Objective over a dense Gaussian q, for use
// with any proximal step whatever: f = −E_q[Σ_n log p(y_n|z_n)], with gradients
// by Estimator and exact values, and h = KL(q‖N(0, K)). A step has a dense N²
// parameters and costs some products of N×N matrices, of which a gradient step of
// Linearized in the coordinates Cholesky or LogCholesky needs a third of one; Fit
// is for all but the smallest N. The error wraps ErrNoEstimator if the Estimator
// does not apply, and ErrNotPosDef if K is singular without Jitter.
func (g *GP) Objective() (Objective, error) {
	se, err := siteEstimator(g.Estimator, g.lik)
	if err != nil {
		return Objective{}, err
	}
	k, err := g.gram()
	if err != nil {
		return Objective{}, err
	}
	n := g.Len()
	prior, err := NewGaussian(nil, mat.NewSymDense(n, k))
	if err != nil {
		return Objective{}, fmt.Errorf("pgsvi: covariance of the prior; set Jitter: %w", err)
	}
	return Objective{F: &marginalTerms{g.y, g.lik, se}, H: KLTo(prior), Init: prior}, nil
}

// PGSVI returns the Solver of PG-SVI as published, for n data: the constant step
// size β = betaN/n and reshuffled mini-batches of the given size, for 10 passes.
// The published settings (Khan et al., 2016, Section 6) are, for sonar,
// ionosphere and USPS, betaN 0.2, 2 and 2.5, batches of 5, 5 and 20, and
// GP.Estimator = ScoreFunction{Baseline: NoBaseline} with 2000, 500 and 2000
// samples. It exists to be compared with: a nil Solver converges without any
// of these numbers. It panics if n or batch is not positive.
func PGSVI(n int, betaN float64, batch int) *Solver {
	if n < 1 || batch < 1 {
		panic("pgsvi: PGSVI needs positive n and batch")
	}
	return &Solver{StepSize: ConstantStep(betaN / float64(n)), BatchSize: batch, MaxPasses: 10}
}

// gram returns K with the jitter, full.
func (g *GP) gram() ([]float64, error) {
	if !(g.Jitter >= 0) || math.IsInf(g.Jitter, 0) {
		return nil, fmt.Errorf("pgsvi: %w: GP.Jitter is %v; it must be finite and not negative", ErrParam, g.Jitter)
	}
	n := g.Len()
	sym := Gram(nil, g.kernel, g.x)
	k := make([]float64, n*n)
	for i := range n {
		for j := i; j < n; j++ {
			k[i*n+j] = sym.At(i, j)
			k[j*n+i] = k[i*n+j]
		}
		k[i*n+i] += g.Jitter
	}
	if i, ok := allFinite(k); !ok {
		return nil, fmt.Errorf("pgsvi: %w: covariance of rows %d and %d is %v", ErrNotFinite, i/n, i%n, k[i])
	}
	for i := range n {
		for j := range i + 1 { // what a kernel of the user's can get wrong, as far as pairs show it
			if kij := math.Abs(k[i*n+j]); k[i*n+i] < 0 || kij > math.Sqrt(k[i*n+i])*math.Sqrt(k[j*n+j])*(1+1e-6) {
				return nil, fmt.Errorf("pgsvi: covariance %v of rows %d and %d, with variances %v and %v: %w", k[i*n+j], i, j, k[i*n+i], k[j*n+j], ErrNotPosDef)
			}
		}
	}
	return k, nil
}

// NewStepper implements Model; the Stepper is a *GPStepper.
//
// With d nil or KL every step is in closed form. With any other divergence the
// proximal step is taken along the curve on which natural parameters are
// averaged between λ_k and the minimiser of the linearised objective: its
// length minimises λᵀ∇f + h + D/β on the curve, numerically. For KL the exact
// step lies on the curve; for others it is the best point there, and the fixed
// points are the same. It returns an error wrapping ErrParam or ErrNotFinite
// if an option or a covariance is invalid, ErrNoEstimator if the Estimator
// does not apply, ErrNotPosDef if d is not KL and K is singular, and ErrNoProx if d
// is Adaptive, which is for Objective.
func (g *GP) NewStepper(d Divergence) (Stepper, error) {
	if _, ok := d.(Adaptive); ok {
		return nil, fmt.Errorf("pgsvi: %w: the sites of a GP have no step with %T, which is in the coordinates of a dense covariance; run it on GP.Objective", ErrNoProx, d)
	}
	se, err := siteEstimator(g.Estimator, g.lik)
	if err != nil {
		return nil, err
	}
	if g.MeanUpdate < MainText || g.MeanUpdate > Appendix {
		return nil, fmt.Errorf("pgsvi: %w: GP.MeanUpdate is %d", ErrParam, g.MeanUpdate)
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	s := newGPStepper(g, k, se)
	if _, kl := d.(KL); d != nil && !kl {
		s.curve = &curveProx{d: d, beta: 1}
		if err := s.curve.check(s); err != nil {
			return nil, err
		}
	}
	if err := s.cur.expect(g.lik, g.y, 1); err != nil {
		return nil, err
	}
	return s, nil
}

// newGPStepper returns a Stepper at the prior, with covariances k, which has yet
// to take expectations there. Of g only labels, likelihood and update are used.
func newGPStepper(g *GP, k []float64, est SiteEstimator) *GPStepper {
	n := len(g.y)
	s := &GPStepper{gp: g, est: est, n: n, k: k, cov: append([]float64(nil), k...), rounding: make([]float64, n)}
	s.cur = s.prior()
	s.dense, s.fresh = true, true
	s.last = [2]float64{math.NaN(), math.NaN()}
	return s
}

// GPStepper holds the approximation q(z) = N(m, V) of a GP in site form,
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
type GPStepper struct {
	gp  *GP
	est SiteEstimator
	n   int
	k   []float64 // K, full

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
	rounding []float64  // estimated relative error of the diagonal of cov
	last     [2]float64 // the ELBO at the last two calls of Gap
}

// prior returns the state without sites.
func (s *GPStepper) prior() (p siteState) {
	p.resize(s.n)
	clear(p.gamma)
	clear(p.a)
	clear(p.m)
	for i := range p.v {
		p.v[i] = s.k[i*s.n+i]
	}
	return p
}

// Len implements Stepper.
func (s *GPStepper) Len() int { return s.n }

// BatchSize returns the size of the blocks that a Solver without options sweeps.
func (s *GPStepper) BatchSize() int {
	if s.curve != nil {
		return s.n
	}
	const size = 32
	blocks := (s.n + size - 1) / size
	return (s.n + blocks - 1) / blocks
}

// SetWorkers lets n goroutines share the expectations of a step; each term is
// computed by one of them, so that the result does not depend on n.
func (s *GPStepper) SetWorkers(n int) {
	s.workers, s.block.prob.workers, s.batch.workers = n, n, n
}

// ClosedForm reports whether the steps are in closed form.
func (s *GPStepper) ClosedForm() bool { return s.curve == nil }

// GradMap returns the norm of the change of the sites in the last step, divided by β.
func (s *GPStepper) GradMap() float64 { return s.gradMap }

// ELBOErr returns a bound on the error of the expectations in the ELBO.
func (s *GPStepper) ELBOErr() float64 { return s.cur.err }

// Step implements Stepper.
func (s *GPStepper) Step(batch []int, beta float64, rng *rand.Rand) error {
	switch {
	case s.curve != nil:
		return s.curve.step(s, batch, beta, rng)
	case !math.IsInf(beta, 1):
		return s.pg.step(s, batch, beta, rng)
	case s.checker.all(batch, s.n):
		return s.batchStep()
	}
	return s.block.step(s, batch)
}

// ELBO implements Stepper. It is exact: the expectations are certified
// whatever the Estimator is, and the argument, which may be nil, is not used.
func (s *GPStepper) ELBO(*rand.Rand) (float64, error) {
	if err := s.refresh(false); err != nil {
		return math.NaN(), err
	}
	return s.elbo(&s.cur, s.logDet), nil
}

// elbo returns the ELBO of c: with a = K⁻¹m,
//
//	Σe − KL,   KL = ½(aᵀm − Σγv + log|K|/|V|).
func (s *GPStepper) elbo(c *siteState, logDet float64) float64 {
	kl := logDet
	for i, m := range c.m {
		kl += c.a[i]*m - c.gamma[i]*c.v[i]
	}
	return floats.Sum(c.e) - 0.5*kl
}

// Sampler returns what a Solver without options sweeps with: block steps
// converge faster over blocks that stay the same.
func (s *GPStepper) Sampler() Sampler { return ShuffleOnce{} }

// Gap returns an estimate of how far the ELBO is below its maximum: the larger
// of what the problem linearised at the current state promises and what the
// last two changes of the ELBO between calls, taken as a geometric series, add
// up to in the end. The first is ½δᵀFδ, with δ the distance of the sites from
// their targets and F the Fisher information of q: with c = δ_b − δ_γ m,
//
//	½cᵀVc + ¼ Σ_ij δ_γi V_ij² δ_γj.
func (s *GPStepper) Gap() float64 {
	if s.refresh(true) != nil {
		return math.NaN()
	}
	gap := s.decrement()
	elbo := s.elbo(&s.cur, s.logDet)
	if s.unresolved || math.IsInf(elbo, 0) {
		return math.Inf(1)
	}
	now, before := elbo-s.last[1], s.last[1]-s.last[0]
	if rate := now / before; rate > 0 && rate < 1 {
		gap = math.Max(gap, now*rate/(1-rate))
	}
	s.last[0], s.last[1] = s.last[1], elbo
	return gap
}

// decrement returns ½δᵀFδ; see Gap.
func (s *GPStepper) decrement() float64 {
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
func (s *GPStepper) refresh(dense bool) error {
	if s.fresh && (s.dense || !dense) {
		return nil
	}
	p := &s.pg
	if p.current = p.fac.factor(s.k, s.n, s.cur.gamma); !p.current {
		return fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	p.fac.expand(&p.exp, s.k, s.n)
	if !s.fresh {
		s.logDet = p.fac.logDet
		s.unresolved = !p.fac.variances(s.cur.v, &p.exp)
		for i, v := range s.cur.v {
			s.cur.v[i] = s.boundVariance(i, v)
		}
		if err := s.cur.expect(s.gp.lik, s.gp.y, s.workers); err != nil {
			return err
		}
		s.fresh = true
	}
	if dense {
		p.fac.covariance(s.cov, &p.exp)
		s.dense = true
		for i := range s.rounding {
			s.rounding[i] = s.roundingAnew(i)
		}
	}
	return nil
}

// boundVariance returns the variance v of term i, or a bound on it where
// rounding has left nothing of it.
func (s *GPStepper) boundVariance(i int, v float64) float64 {
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
func (s *GPStepper) batchStep() error {
	if err := s.refresh(false); err != nil {
		return err
	}
	p := &s.batch
	if !s.batched {
		if s.base.m == nil {
			s.base = s.prior()
		}
		s.alg.n, s.alg.cov = s.n, s.k
		if err := p.init(s.gp.lik, s.gp.y, &s.alg, &s.base); err != nil {
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
