package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// siteStepper is the Stepper of every model whose approximation consists of sites. Step with a
// given β takes the step of the paper, using the gradient of the batch. With β = +Inf and a batch
// of all terms, Step takes one accepted step on the whole objective. With β = +Inf and a smaller
// batch it takes a block step, which has memory, needs no step size and has no noise. Steps under a
// divergence other than KL go along a curve.
type siteStepper struct {
	terms   *term.Terms // terms of one run
	nested  *nestedRule // rule for expectations of the terms; nil means ExpectLogProb
	alg     site.Algebra
	build   func(c term.Crew) (site.Algebra, error) // makes alg at the start of a run
	est     SiteEstimator
	exact   bool        // est ignores randomness
	update  Coordinates // MeanParams or MeanCov
	curve   *curveProx  // nil for KL
	x       term.Estimates
	checker allTerms
	ceiling float64 // lowest proved upper bound of the ELBO of any q

	halt     parallel.Halt        // active during a step or an evaluation
	identify func(d *save.Digest) // adds the parts of the model other than the terms to d
	print    fingerprint
}

// Algebra returns the state of the sites, for the packages of this module.
func (s *siteStepper) Algebra() site.Algebra { return s.alg }

// SetAlgebra replaces the state of the sites of a new run, for tests that fit one model by two
// algebras.
func (s *siteStepper) SetAlgebra(a site.Algebra) { s.alg = a }

// checkStepCoordinates returns an error unless c are coordinates of the steps of a siteStepper. The
// name is the type of the options.
func checkStepCoordinates(name string, c Coordinates) error {
	if c == MeanParams || c == MeanCov {
		return nil
	}
	return fmt.Errorf("pgsvi: %s.Coordinates is %d (%v); it must be MeanParams or MeanCov: %w", name,
		int(c), c, ErrParam)
}

// newSiteStepper returns a Stepper of t whose algebra is not set. e and update apply to steps with
// a given β. It returns an error if the estimator does not apply to the terms.
func newSiteStepper(t *term.Terms, e SiteEstimator, update Coordinates) (*siteStepper, error) {
	if err := checkStepCoordinates("GPOptions", update); err != nil {
		return nil, err
	}
	est, exact, err := siteEstimator(e, likOf(t))
	if err != nil {
		return nil, err
	}
	own, nested := runOf(t)
	return &siteStepper{terms: own, nested: nested, est: est, exact: exact, update: update,
		ceiling: math.Inf(1)}, nil
}

// Len implements Stepper.
func (s *siteStepper) Len() int { return s.terms.Len() }

// begin prepares a step or an evaluation with the workers of env, which lasts until ctx is done.
func (s *siteStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	s.alg.Use(term.Crew{Workers: env.Workers(), Halt: &s.halt})
	if s.curve != nil {
		s.curve.fac.Halt = &s.halt
	}
	return &s.halt
}

// Plan implements Stepper.
func (s *siteStepper) Plan() Plan {
	if s.curve != nil {
		return Plan{}
	}
	p := s.alg.Plan()
	return Plan{Batch: p.Batch, Sampler: p.Sampler}
}

// start sets alg.
func (s *siteStepper) start(c term.Crew) (err error) {
	if s.alg, err = s.build(c); err == nil && s.nested.failed() {
		err = s.restart(c)
	}
	return err
}

// restart begins the run again without the nestedRule, which has failed. The values of the
// nestedRule so far cannot be compared with the values of ExpectLogProb.
func (s *siteStepper) restart(c term.Crew) error {
	s.nested.off = true
	alg, err := s.build(c)
	if err != nil {
		s.nested.off = false // try it again in the next run
		return err
	}
	s.alg, s.ceiling = alg, math.Inf(1)
	return nil
}

// Step implements Stepper.
func (s *siteStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step, err := s.step(env, batch, beta)
	if s.nested.failed() {
		if err := s.restart(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
			return Step{}, err
		}
		return s.step(env, batch, beta)
	}
	return step, err
}

// step is Step after begin.
func (s *siteStepper) step(env *Env, batch []int, beta float64) (Step, error) {
	step := Step{Beta: beta, ClosedForm: s.alg.ClosedForm() && s.curve == nil}
	auto := math.IsInf(beta, 1)
	var err error
	switch {
	case s.curve != nil:
		step.Beta, err = s.alongCurve(batch, beta, env.rng())
	case !auto:
		s.nested.step()
		step.Beta, err = s.paper(batch, beta, env.rng())
	case s.checker.all(batch, s.Len()) || s.alg.Slow():
		var passes int
		passes, err = s.alg.Ascend()
		step.more = max(1, passes)*s.Len() - len(batch)
	default:
		err = s.alg.Block(batch)
	}
	if err != nil {
		return Step{}, err
	}
	step.GradMap = s.alg.Moved()
	if !math.IsInf(step.Beta, 1) {
		step.GradMap /= step.Beta
	}
	step.GradMap = goals.NeverZero(step.GradMap)
	return step, nil
}

// estimate stores the estimates for the terms in batch in s.x.
func (s *siteStepper) estimate(batch []int, rng *rand.Rand) error {
	if err := s.alg.Marginals(&s.x, batch); err != nil {
		return err
	}
	err := estimateTerms(s.terms, &s.x, batch, s.est, s.exact, rng)
	if s.nested.failed() && s.nested.given {
		s.accurate()
		return estimateTerms(s.terms, &s.x, batch, s.est, s.exact, rng)
	}
	return err
}

// accurate makes later expectations use ExpectLogProb. It drops the bound because the values of the
// nestedRule do not prove one.
func (s *siteStepper) accurate() { s.nested.off, s.ceiling = true, math.Inf(1) }

// again computes the expectations of the state accurately after steps of a given size. It takes a
// step of size 0.
func (s *siteStepper) again() error {
	s.accurate()
	err := s.alg.Marginals(&s.x, nil)
	if err != nil {
		return err
	}
	clear(s.x.D1)
	clear(s.x.D2)
	_, err = site.Step(s.alg, &s.x, nil, site.PaperMove{R: 1}, false, &s.halt)
	return err
}

// alongCurve takes a step under a divergence other than KL. If β = +Inf, the step uses all terms
// and their most exact estimates, for any batch. It returns the step size taken.
func (s *siteStepper) alongCurve(batch []int, beta float64, rng *rand.Rand) (float64, error) {
	var x *term.Estimates
	if !math.IsInf(beta, 1) {
		if err := s.estimate(batch, rng); err != nil {
			return 0, err
		}
		x = &s.x
	}
	if err := s.curve.aim(x, batch); err != nil {
		return 0, err
	}
	return s.curve.step(beta)
}

// paper takes the step of the paper with step size β, using the gradient of batch; see GPOptions.Coordinates.
// It shortens the step if V would not be positive definite, or if noise would make V nearly
// indefinite. It returns the step size taken.
func (s *siteStepper) paper(batch []int, beta float64, rng *rand.Rand) (float64, error) {
	if err := s.estimate(batch, rng); err != nil {
		return 0, err
	}
	r := 1 / (1 + beta)
	m := site.PaperMove{R: r, Scale: (1 - r) * float64(s.terms.Elements()) / float64(len(s.x.M)),
		Appendix: s.update == MeanCov}
	halved, err := site.Step(s.alg, &s.x, batch, m, !s.exact, &s.halt)
	if err == nil && halved > 0 {
		length := math.Ldexp(1-r, -halved)
		beta = length / (1 - length)
	}
	return beta, err
}

// Evaluate implements Stepper. The ELBO is exact because the expectations are certified for any
// Estimator.
func (s *siteStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	x, err := s.alg.Evaluate(env.within())
	if s.nested.failed() {
		if s.nested.given {
			err = s.again()
		} else if err = s.restart(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err == nil {
			_, err = s.alg.Ascend()
		}
		if err == nil {
			x, err = s.alg.Evaluate(env.within())
		}
	}
	e := Evaluation{ELBO: x.ELBO, ELBOErr: x.ELBOErr, Gap: x.Gap, GapBound: x.GapBound,
		Goal: x.Goal, most: x.Most}
	if err != nil || math.IsInf(e.ELBO, 0) {
		return e, err
	}
	slack := e.ELBOErr + term.ElboSlack*math.Abs(e.ELBO)
	if e.GapBound != 0 {
		e.GapBound += slack
		if !x.Held {
			s.ceiling = min(s.ceiling, e.ELBO+e.GapBound)
		}
	}
	if bound := max(s.ceiling-e.ELBO, 0) + slack; e.GapBound == 0 || bound < e.GapBound {
		e.GapBound = bound
	}
	switch {
	case x.Held:
		e.Scope = OverQAtGroups
	case s.alg.Wider():
		e.Scope = OverLargerFamily
	default:
		e.Scope = OverQ
	}
	if !s.terms.Concave() {
		e.GapBound, e.Scope = 0, Unproved
	}
	return e, nil
}

// explain implements explainer.
func (s *siteStepper) explain() string {
	if s.terms.K > 1 || s.alg.Marginals(&s.x, nil) != nil {
		return ""
	}
	for n, m := range s.x.M {
		if e := s.terms.Expectation(n, m, s.x.V[n]); math.IsNaN(e.Value) || math.IsInf(e.Value, 0) {
			return s.terms.Explain(n, m, s.x.V[n])
		}
	}
	return ""
}

// endless implements explainer.
func (s *siteStepper) endless() string {
	if s.terms.K > 1 || s.alg.Marginals(&s.x, nil) != nil {
		return ""
	}
	for n, m := range s.x.M {
		if what := s.terms.Endless(n, m, s.x.V[n]); what != "" {
			return what
		}
	}
	return ""
}

// curveProx takes the proximal steps of a GP under a divergence without a closed form. The
// objective linearized at λ_k, f linear plus h, is minimal at the sites γ̂ = −∂²E/∂m², b̂ = γ̂m +
// ∂E/∂m. Natural parameters that are averaged between these sites and λ_k form a curve q_t, and the
// step is the minimizer on the curve,
//
//	argmin_{0≤t≤1}  λ(t)ᵀ∇f(λ_k) + h(λ(t)) + D(λ(t)‖λ_k)/β.
//
// The first two terms decrease monotonically along the curve, and D is flat at t = 0, so only a
// fixed point of the iteration takes a step of length zero.
type curveProx struct {
	d      Divergence
	sites  *site.DenseAlgebra
	beta   float64 // next step size to try if the caller gives none
	q, q0  *Gaussian
	tg, tb []float64
	try    term.Marginals
	fac    dense.SiteFactor
	exp    dense.Expansion
	logDet float64
}

// newCurve returns the steps of s under d, or an error if d cannot be evaluated at the prior.
func newCurve(s *site.DenseAlgebra, d Divergence) (*curveProx, error) {
	c := &curveProx{d: d, sites: s, beta: 1, q: &Gaussian{normal.NewFull(s.N)},
		q0: &Gaussian{normal.NewFull(s.N)}}
	haltDist(c.q, s.Workers.Halt)
	haltDist(c.q0, s.Workers.Halt)
	prior := c.q0.full()
	_, v := prior.Next()
	copy(v, s.K)
	err := prior.CommitMoments()
	if err := s.Workers.Halt.Err(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf(
			"pgsvi: the prior covariance is singular, which %T does not allow; set "+
				"GPOptions.Jitter: %w", d,
			err)
	}
	return c, d.Check(c.q0)
}

// at computes c.try at the fraction t of the way to the target, and also c.q if full is true.
func (c *curveProx) at(t float64, full bool) error {
	s, n := c.sites, c.sites.N
	c.try.Resize(n)
	for i, g := range s.Cur.Gamma {
		b := s.Cur.A[i] + g*s.Cur.M[i]
		c.try.Gamma[i] = g + t*(c.tg[i]-g)
		c.try.A[i] = b + t*(c.tb[i]-b)
	}
	if !c.fac.Factor(s.K, n, c.try.Gamma) {
		return fmt.Errorf("the posterior covariance cannot be factorized: %w", ErrNotPosDef)
	}
	c.logDet = c.fac.LogDet
	c.fac.Expand(&c.exp, s.K, n)
	c.fac.Solve(c.try.A)
	dense.Symv(1, dense.Symmetric(s.K, n), dense.Vector(c.try.A), 0, dense.Vector(c.try.M))
	c.fac.Variances(c.try.V, &c.exp)
	if !full {
		return nil
	}
	q := c.q.full()
	m, v := q.Next()
	copy(m, c.try.M)
	c.fac.Covariance(v, &c.exp)
	dense.FillUpper(v, n)
	return q.CommitMoments()
}

// aim stores the target in c.tg and c.tb. It uses the estimates x of the terms in batch, or the
// most exact estimates of all terms if x is nil.
func (c *curveProx) aim(x *term.Estimates, batch []int) error {
	s := c.sites
	c.tg, c.tb = dense.Resize(c.tg, s.N), dense.Resize(c.tb, s.N)
	if err := s.Refresh(false); err != nil {
		return err
	}
	if x == nil {
		for i, g := range s.Cur.Tg {
			c.tg[i], c.tb[i] = g, s.Cur.D1[i]+g*s.Cur.M[i]
		}
		return nil
	}
	clear(c.tg)
	clear(c.tb)
	scale := float64(s.N) / float64(len(x.M))
	for i := range x.M {
		j := dense.Index(batch, i)
		c.tg[j] -= scale * x.D2[i]
		c.tb[j] += scale * (x.D1[i] - x.D2[i]*x.M[i])
	}
	return nil
}

// step moves to the target with step size beta. If beta is +Inf, it chooses a step size at which
// the ELBO does not fall. It returns the step size taken.
func (c *curveProx) step(beta float64) (float64, error) {
	s := c.sites
	auto := math.IsInf(beta, 1)
	before := math.Inf(-1)
	if auto {
		beta, before = c.beta, s.Elbo(&s.Cur, s.LogDet)
	}
	if err := c.at(0, true); err != nil {
		return 0, err
	}
	c.q, c.q0 = c.q0, c.q
	tol := 1e-5
	if auto {
		tol = 1e-2 // the step is checked, so it need not be exact
	}
	var failure error
	for range 60 {
		t, err := c.length(beta, tol)
		if err == nil {
			err = c.at(t, false)
		}
		if err == nil {
			err = s.Terms.Expect(&c.try, nil, s.Workers)
		}
		if err != nil && !auto {
			return 0, err
		}
		if err != nil {
			failure = err
			beta /= 2
			continue
		}
		failure = nil
		if after := s.Elbo(&c.try, c.logDet); !auto ||
			after >= before-site.ElboRounding*math.Abs(before) {
			s.Swap(&c.try, c.logDet)
			c.beta = math.Min(2*beta, mostBeta)
			return beta, nil
		}
		beta /= 2
	}
	s.Distance = 0
	return beta, failure
}

// mostBeta limits the step sizes that grow automatically, because D has no weight beyond it.
const mostBeta = 1e12

// length returns the minimizer along the curve, to the accuracy tol.
func (c *curveProx) length(beta, tol float64) (float64, error) {
	var failure error
	t := accel.Minimize1(beta/(1+beta), tol, func(t float64) float64 {
		if err := c.at(t, true); err != nil {
			failure = err
			return math.Inf(1)
		}
		// the linear f plus KL(q‖N(0, K)), and D/β
		v := c.logDet
		for i, m := range c.try.M {
			vi := c.try.V[i]
			v += c.try.A[i]*m - c.try.Gamma[i]*vi
			v += c.tg[i]*(vi+m*m) - 2*c.tb[i]*m
		}
		d := c.d.Value(c.q, c.q0)
		if math.IsNaN(d) {
			failure = fmt.Errorf("the divergence is NaN; check the Divergence: %w", ErrNotFinite)
			return math.Inf(1)
		}
		return 0.5*v + d/beta
	})
	if t == 0 && failure != nil {
		return 0, failure
	}
	return t, nil
}

// linearOptions specifies how to fit a linear model.
type linearOptions struct {
	covariance Covariance // never AutoCovariance
	rank       int
	estimator  SiteEstimator
	update     Coordinates
}

// newLinearStepper returns a Stepper of l at its prior. If there are more rows than weights, it
// represents a full covariance over the weights. Otherwise it represents the covariance over the
// linear predictors, unless they are too nearly collinear. Divergences other than KL use the
// Objective.
func newLinearStepper(ctx context.Context, l *site.LinearModel, env *Env, d Divergence,
	o linearOptions) (Stepper, error) {
	if l.Terms.K > 1 {
		return newSoftmaxStepper(ctx, l, env, d, o)
	}
	groups := l.Prior.Blocks() != nil
	if !isKL(d) {
		if groups {
			return nil, fmt.Errorf("pgsvi: %T does not support GLMOptions.Groups; use KL: %w", d,
				ErrNoProx)
		}
		if o.covariance == LowRankCovariance || o.covariance == DiagonalCovariance &&
			l.Prior.Full != nil {
			return nil, fmt.Errorf("pgsvi: %T does not support a %v covariance with this prior; "+
				"use KL: %w", d,
				o.covariance, ErrNoProx)
		}
		f, err := linearObjective(l, o.covariance == DiagonalCovariance, o.estimator)
		if err != nil {
			return nil, err
		}
		if _, ok := d.(adaptive); ok {
			f = f.Linearized()
			f.Init = f.Init.In(LogCholesky)
		}
		return f.NewStepper(ctx, env, d)
	}
	s, err := newSiteStepper(l.Terms, o.estimator, o.update)
	if err != nil {
		return nil, err
	}
	s.identify = l.Digest
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	own := *l
	own.Terms = s.terms
	s.build = func(c term.Crew) (site.Algebra, error) {
		switch {
		case groups:
			return site.NewArrowAlgebra(&own, c)
		case o.covariance == LowRankCovariance && !own.Small(o.rank):
			return site.NewFactoredAlgebra(&own, max(1, o.rank)), nil
		case o.covariance == DiagonalCovariance:
			return site.NewFactoredAlgebra(&own, 0), nil
		case own.X.Rows > len(own.Names):
			return site.NewWeightAlgebra(&own, c)
		}
		return own.NewRowAlgebra(c)
	}
	if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
		return nil, err
	}
	return s, nil
}

// objectiveMatrices is the number of D×D matrices of a run of an Objective over a full Gaussian:
// three Gaussians, the prior, gradients and targets.
const objectiveMatrices = 4 * gaussianMatrices

// checkObjective returns an error if an Objective over a full Gaussian of d dimensions exceeds the
// memory limit.
func checkObjective(most int64, d int, instead string) error {
	return checkMemory(most, memory.Bytes(objectiveMatrices, d, d),
		fmt.Sprintf("an Objective over a full covariance of %d dimensions", d), instead)
}

// linearObjective returns l as an Objective over w − μ0, with dense rows.
func linearObjective(l *site.LinearModel, diagonal bool, e SiteEstimator) (Objective[*Gaussian],
	error) {
	d := len(l.Names)
	diagonal = diagonal && l.Prior.Full == nil
	instead := "use Fit with a nil Divergence, or raise GLMOptions.MaxMemory"
	if !diagonal {
		if err := checkObjective(l.MaxMemory, d, instead); err != nil {
			return Objective[*Gaussian]{}, err
		}
	}
	if err := checkMemory(l.MaxMemory, memory.Bytes(1, l.X.Rows, d),
		fmt.Sprintf("an Objective with %d dense rows of %d columns", l.X.Rows, d),
		instead); err != nil {
		return Objective[*Gaussian]{}, err
	}
	zero := make([]float64, d)
	var prior *Gaussian
	if diagonal {
		v := make([]float64, d)
		for j, p := range l.Prior.Prec {
			v[j] = 1 / p
		}
		q, err := NewMeanField(zero, v)
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	} else {
		s, err := l.Prior.State()
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		s.Invert()
		q, err := NewGaussian(zero, dense.FullSym(s.Inv, d))
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	}
	x := dense.NewRows(l.X.Rows, d)
	for i := range x {
		ind, val := l.X.Row(i)
		if l.X.Sparse == nil {
			copy(x[i], val)
		}
		for k, j := range ind {
			x[i][j] = val[k]
		}
	}
	est, exact, err := siteEstimator(e, likOf(l.Terms))
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	f := &siteSmooth{terms: l.Terms, x: x, est: est, exact: exact}
	if !diagonal {
		f.best, f.prior = l.Best, prior
	}
	return Objective[*Gaussian]{F: f, H: KLTo(prior), Init: prior}, nil
}

// haltOf returns the Halt of st, or nil if st is not a siteStepper.
func haltOf(st Stepper) *parallel.Halt {
	if s, ok := st.(*siteStepper); ok {
		return &s.halt
	}
	return nil
}

// fitWeights returns the state over weights at the end of a fit of l by s, and the error of the
// fit. The state is nil if the fit has no such state.
func fitWeights(h *parallel.Halt, l *site.LinearModel, s *Solver) (*gauss.Gaussian, error) {
	st, err := newLinearStepper(h.Context(), l, nil, nil, linearOptions{covariance: FullCovariance})
	if err != nil {
		return nil, err
	}
	res, fault := s.Resume(h.Context(), &Result{Stepper: st})
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if math.IsNaN(res.ELBO) || math.IsInf(res.ELBO, 0) {
		return nil, fault
	}
	mean, cov, err := weightsAt(l, res.Stepper)
	if err != nil {
		return nil, err
	}
	full, err := cov.State(h)
	if err != nil {
		return nil, err
	}
	q := &gauss.Gaussian{}
	q.CopyFrom(full)
	copy(q.Mean, mean)
	return q, fault
}

// weightsAt returns the mean of w − μ0 and the covariance at st, a state of l. Both are new.
func weightsAt(l *site.LinearModel, st Stepper) (mean []float64, cov gauss.Cov, err error) {
	switch t := st.(type) {
	case *siteStepper:
		alg, ok := t.alg.(site.Weighted)
		if !ok || !t.terms.Of(l.Terms) {
			return nil, nil, fmt.Errorf("pgsvi: the state belongs to another model: %w", ErrParam)
		}
		mean, cov, err = alg.Weights()
	case *objectiveStepper:
		mean, cov, err = weightsOf(t.Dist())
	default:
		err = fmt.Errorf("pgsvi: the state, a %T, does not belong to this model: %w", st, ErrParam)
	}
	if all := len(l.Names) * l.Terms.Latents(); err == nil && len(mean) != all {
		err = fmt.Errorf("pgsvi: the state has %d weights, but the model has %d: %w",
			len(mean), all,
			ErrParam)
	}
	return mean, cov, err
}

// MarshalBinary returns the state. Do not store the bytes for long; see Result.Save.
func (s *siteStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// snapshot is like MarshalBinary, but returns the cause of ctx soon after ctx is done.
func (s *siteStepper) snapshot(ctx context.Context) ([]byte, error) {
	return save.MarshalUntil(ctx, s.state)
}

// UnmarshalBinary restores the state. The error wraps ErrFile if b is not the state of a Stepper of
// the same model; s is then unusable.
func (s *siteStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

// constant reports whether Evaluate would leave everything unchanged that later steps depend on.
func (s *siteStepper) constant() bool { return s.alg.Constant() }

func (s *siteStepper) state(c *save.Coder) {
	s.print.state(c, func(d *save.Digest) {
		d.Text(fmt.Sprintf("%d %s %T %+v %d %t", sitesState, algebraName(s.alg), s.est, s.est,
			s.update, s.curve != nil))
		s.terms.Digest(d)
		s.identify(d)
		if s.curve != nil {
			d.Text(fmt.Sprintf("%T", s.curve.d))
		}
	})
	s.alg.State(c)
	c.Float(&s.ceiling)
	s.nested.state(c)
	if s.curve != nil {
		c.Float(&s.curve.beta)
		c.Check(s.curve.beta > 0, "a step size is %v", s.curve.beta)
	}
}

// sitesState is the version of the saved state of the site algebras. A run of another version is
// rejected, like a run of another model.
const sitesState = 2

// algebraName returns the name of a in saved runs, which does not depend on its type name.
func algebraName(a site.Algebra) string {
	switch a.(type) {
	case *site.DenseAlgebra:
		return "dense"
	case *site.DualAlgebra:
		return "dual"
	case *site.WeightAlgebra:
		return "weights"
	case *site.SpanAlgebra:
		return "span"
	case *site.SoftmaxAlgebra:
		return "contrasts"
	case *site.SoftmaxGP:
		return "contrasts of functions"
	case *site.ArrowAlgebra:
		return "arrow"
	}
	return "factored"
}

// weightsOf returns the mean and the covariance of q.
func weightsOf(q Dist) ([]float64, gauss.Cov, error) {
	g, ok := q.(*Gaussian)
	if !ok {
		return nil, nil, fmt.Errorf("pgsvi: q is a %T; the weights need a Gaussian: %w",
			q, ErrParam)
	}
	if g.isDiagonal() {
		return g.Mean(nil), gauss.Diagonal(g.Var(nil)), nil
	}
	d := g.Dim()
	s := &gauss.Gaussian{}
	s.Resize(d)
	clear(s.Mean)
	p := g.precisionMatrix()
	for i := range d {
		for j := range i + 1 {
			s.P[i*d+j] = p.At(i, j)
		}
	}
	if !s.Factor() {
		return nil, nil, fmt.Errorf("pgsvi: the posterior precision cannot be factorized: %w",
			ErrNotPosDef)
	}
	return g.Mean(nil), &gauss.Full{S: s}, nil
}

// newSoftmaxStepper returns a Stepper of l, which has K latent values per term, at its prior.
func newSoftmaxStepper(ctx context.Context, l *site.LinearModel, env *Env, d Divergence,
	o linearOptions) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: %s has no step with %s; use KL: %w", spell(d),
			typeName(likOf(l.Terms)), ErrNoProx)
	}
	s, err := newSiteStepper(l.Terms, o.estimator, o.update)
	if err != nil {
		return nil, err
	}
	s.identify = l.Digest
	own := *l
	own.Terms = s.terms
	s.build = func(c term.Crew) (site.Algebra, error) { return site.NewSoftmaxAlgebra(&own, c) }
	return s.started(ctx, env)
}

// started returns s at its prior.
func (s *siteStepper) started(ctx context.Context, env *Env) (Stepper, error) {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
		return nil, err
	}
	return s, nil
}

// siteEstimator returns e, or Exact if e is nil, and whether it ignores randomness. It returns an
// error if e does not apply to lik.
func siteEstimator(e SiteEstimator, lik Likelihood) (se SiteEstimator, exact bool, err error) {
	if e == nil {
		e = Exact()
	}
	if err := validateOption(e); err != nil {
		return nil, false, err
	}
	if _, ok := e.(exactEstimator); !ok && latentsOf(lik) > 1 {
		return nil, false, fmt.Errorf("pgsvi: the estimator %T does not support %s; use Exact: %w",
			e, typeName(lik), ErrNoEstimator)
	}
	exact, err = e.SetupSites(lik)
	return e, exact, err
}
