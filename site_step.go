package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// MeanUpdate selects one of the two published updates of the mean of a GP or a GLM.
// With r = 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and
// Γ = diag(2 ∂f/∂v), estimated from the batch, both have V₊⁻¹ = K⁻¹ + Γ₊,
// Γ₊ = rΓ_k + (1−r)Γ.
type MeanUpdate int

const (
	// MainText is m₊ = m − (1−r)V₊(K⁻¹m + a): the exact proximal step in the
	// mean parameters (m, V + mmᵀ), which averages natural parameters
	// (Khan et al., 2016, the update of the main text, with Γ = diag(2 ∂f/∂v)).
	MainText MeanUpdate = iota
	// Appendix is m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a): the exact proximal
	// step in the coordinates (m, V) (Khan et al., 2016, appendix).
	Appendix
)

// siteStepper is the Stepper of every model by sites. With a given β it takes the step of the paper, from
// the gradient of the batch. With β = +Inf and a batch of all terms it takes one accepted step of
// the whole objective, and with a smaller batch a block step, which has memory, needs no step
// size and has no noise. With a divergence other than KL steps go along a curve.
type siteStepper struct {
	terms   *siteTerms // a run's
	alg     algebra
	build   func(c crew) (algebra, error) // alg, as it begins
	est     SiteEstimator
	exact   bool // est ignores randomness
	update  MeanUpdate
	curve   *curveProx // nil for KL
	x       siteEstimates
	checker allTerms
	ceiling float64 // no q has a higher ELBO: the least that was proved

	halt  parallel.Halt // while a step or an evaluation is under way
	model digester      // what the terms are not
	print fingerprint
}

// newSiteStepper returns a Stepper of t whose algebra is yet to be set. Estimator and update are
// those of steps with a given β. The error says why the estimator does not apply to the terms.
func newSiteStepper(t *siteTerms, e SiteEstimator, update MeanUpdate) (*siteStepper, error) {
	if update < MainText || update > Appendix {
		return nil, fmt.Errorf("pgsvi: MeanUpdate is %d: %w", update, ErrParam)
	}
	est, exact, err := siteEstimator(e, t.lik)
	if err != nil {
		return nil, err
	}
	return &siteStepper{terms: t.run(), est: est, exact: exact, update: update, ceiling: math.Inf(1)}, nil
}

// Len implements State.
func (s *siteStepper) Len() int { return s.terms.len() }

// begin makes what follows that of the workers of env, until ctx is done.
func (s *siteStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	s.alg.use(crew{env.Workers(), &s.halt})
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
	return s.alg.plan()
}

// start sets alg.
func (s *siteStepper) start(c crew) (err error) {
	if s.alg, err = s.build(c); err == nil && s.terms.nested.failed() {
		err = s.anew(c)
	}
	return err
}

// anew begins the run anew without the nestedRule, which has failed: what it said of the states so far is not to be compared
// with what ExpectLogProb says.
func (s *siteStepper) anew(c crew) error {
	s.terms.nested.off = true
	alg, err := s.build(c)
	if err != nil {
		s.terms.nested.off = false // to be tried again
		return err
	}
	s.alg, s.ceiling = alg, math.Inf(1)
	return nil
}

// Step implements Stepper.
func (s *siteStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step, err := s.step(env, batch, beta)
	if s.terms.nested.failed() {
		if err := s.anew(crew{env.Workers(), &s.halt}); err != nil {
			return Step{}, err
		}
		return s.step(env, batch, beta)
	}
	return step, err
}

// step is Step within begin.
func (s *siteStepper) step(env *Env, batch []int, beta float64) (Step, error) {
	step := Step{Beta: beta, ClosedForm: s.alg.closedForm() && s.curve == nil}
	auto := math.IsInf(beta, 1)
	var err error
	switch {
	case s.curve != nil:
		step.Beta, err = s.alongCurve(batch, beta, env.rng())
	case !auto:
		s.terms.nested.stop()
		step.Beta, err = s.paper(batch, beta, env.rng())
	case s.checker.all(batch, s.Len()) || s.alg.slow():
		var passes int
		passes, err = s.alg.ascend()
		step.more = max(1, passes)*s.Len() - len(batch)
	default:
		err = s.alg.block(batch)
	}
	if err != nil {
		return Step{}, err
	}
	step.GradMap = s.alg.moved()
	if !math.IsInf(step.Beta, 1) {
		step.GradMap /= step.Beta
	}
	step.GradMap = neverZero(step.GradMap)
	return step, nil
}

// estimate stores in s.x what the estimator says of the terms in batch.
func (s *siteStepper) estimate(batch []int, rng *rand.Rand) error {
	if err := s.alg.marginals(&s.x, batch); err != nil {
		return err
	}
	return s.terms.estimate(&s.x, batch, s.est, s.exact, rng)
}

// alongCurve takes a step under a divergence other than KL. With β = +Inf it is of all terms, as exactly as they are
// known, whatever the batch is. It returns the step size taken.
func (s *siteStepper) alongCurve(batch []int, beta float64, rng *rand.Rand) (float64, error) {
	var x *siteEstimates
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

// paper takes the step of the paper with step size β from the gradient of batch; see MeanUpdate. It
// goes less far where V would not be positive definite, and where noise would have it nearly so. It
// returns the step size that is left.
func (s *siteStepper) paper(batch []int, beta float64, rng *rand.Rand) (float64, error) {
	if err := s.estimate(batch, rng); err != nil {
		return 0, err
	}
	r := 1 / (1 + beta)
	m := paperMove{r: r, scale: (1 - r) * float64(s.Len()) / float64(len(s.x.m)), appendix: s.update == Appendix}
	if err := s.alg.aim(&s.x, batch, m); err != nil {
		return 0, err
	}
	for halved := range mostHalvings {
		if valid, edge := s.alg.try(!s.exact); valid && (!edge || halved >= noisyHalvings) {
			if halved > 0 {
				length := math.Ldexp(1-r, -halved)
				beta = length / (1 - length)
			}
			if err := s.halt.Err(); err != nil {
				return 0, err
			}
			return beta, s.alg.take()
		}
		if err := s.halt.Err(); err != nil {
			return 0, err
		}
		s.alg.halve()
	}
	return 0, fmt.Errorf("posterior covariance at every step size: %w", ErrNotPosDef)
}

// Evaluate implements Stepper. The ELBO is exact: the expectations are certified
// whatever the Estimator is.
func (s *siteStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	e, err := s.alg.evaluate(env.within())
	if s.terms.nested.failed() {
		if err = s.anew(crew{env.Workers(), &s.halt}); err == nil {
			_, err = s.alg.ascend()
		}
		if err == nil {
			e, err = s.alg.evaluate(env.within())
		}
	}
	if err != nil || math.IsInf(e.ELBO, 0) {
		return e, err
	}
	slack := e.ELBOErr + elboSlack*math.Abs(e.ELBO)
	if e.GapBound != 0 {
		e.GapBound += slack
		s.ceiling = min(s.ceiling, e.ELBO+e.GapBound)
	}
	if bound := max(s.ceiling-e.ELBO, 0) + slack; e.GapBound == 0 || bound < e.GapBound {
		e.GapBound = bound
	}
	if e.Scope = s.alg.scope(); !s.terms.concave() {
		e.GapBound, e.Scope = 0, Unproved
	}
	return e, nil
}

// explain implements explainer.
func (s *siteStepper) explain() string {
	if s.alg.marginals(&s.x, nil) != nil {
		return ""
	}
	for n, m := range s.x.m {
		if e := s.terms.expectation(n, m, s.x.v[n]); math.IsNaN(e.Value) || math.IsInf(e.Value, 0) {
			return s.terms.explain(n, m, s.x.v[n])
		}
	}
	return ""
}

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
	sites  *denseAlgebra
	beta   float64 // the next step size to try where the caller gives none
	q, q0  *Gaussian
	tg, tb []float64
	try    siteState
	fac    dense.Sites
	exp    dense.Expansion
	logDet float64
}

// newCurve returns the steps of s under d, or an error if d cannot be evaluated at the prior.
func newCurve(s *denseAlgebra, d Divergence) (*curveProx, error) {
	c := &curveProx{d: d, sites: s, beta: 1, q: &Gaussian{newFullGaussian(s.n)}, q0: &Gaussian{newFullGaussian(s.n)}}
	haltDist(c.q, s.workers.halt)
	haltDist(c.q0, s.workers.halt)
	prior := c.q0.full()
	copy(prior.next.v, s.k)
	err := prior.commitMoments()
	if err := s.workers.halt.Err(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("pgsvi: covariance of the prior, which %T needs to be nonsingular; set GPOptions.Jitter: %w", d, err)
	}
	return c, d.Check(c.q0)
}

// at computes c.try, and c.q if dense, at the fraction t of the way to the target.
func (c *curveProx) at(t float64, full bool) error {
	s, n := c.sites, c.sites.n
	c.try.resize(n)
	for i, g := range s.cur.gamma {
		b := s.cur.a[i] + g*s.cur.m[i]
		c.try.gamma[i] = g + t*(c.tg[i]-g)
		c.try.a[i] = b + t*(c.tb[i]-b)
	}
	if !c.fac.Factor(s.k, n, c.try.gamma) {
		return fmt.Errorf("posterior covariance: %w", ErrNotPosDef)
	}
	c.logDet = c.fac.LogDet
	c.fac.Expand(&c.exp, s.k, n)
	c.fac.Solve(c.try.a)
	dense.Symv(1, dense.Symmetric(s.k, n), dense.Vector(c.try.a), 0, dense.Vector(c.try.m))
	c.fac.Variances(c.try.v, &c.exp)
	if !full {
		return nil
	}
	q := c.q.full()
	copy(q.next.m, c.try.m)
	c.fac.Covariance(q.next.v, &c.exp)
	dense.FillUpper(q.next.v, n)
	return q.commitMoments()
}

// aim stores the target in c.tg and c.tb: what x says of the terms in batch, or for a nil x that of all terms, as
// exactly as it is known.
func (c *curveProx) aim(x *siteEstimates, batch []int) error {
	s := c.sites
	c.tg, c.tb = dense.Resize(c.tg, s.n), dense.Resize(c.tb, s.n)
	if err := s.refresh(false); err != nil {
		return err
	}
	if x == nil {
		for i, g := range s.cur.tg {
			c.tg[i], c.tb[i] = g, s.cur.d1[i]+g*s.cur.m[i]
		}
		return nil
	}
	clear(c.tg)
	clear(c.tb)
	scale := float64(s.n) / float64(len(x.m))
	for i := range x.m {
		j := dense.Index(batch, i)
		c.tg[j] -= scale * x.d2[i]
		c.tb[j] += scale * (x.d1[i] - x.d2[i]*x.m[i])
	}
	return nil
}

// step goes towards the target with step size beta, or with one of its own, at which the
// ELBO does not fall, where beta is +Inf. It returns the step size taken.
func (c *curveProx) step(beta float64) (float64, error) {
	s := c.sites
	auto := math.IsInf(beta, 1)
	before := math.Inf(-1)
	if auto {
		beta, before = c.beta, s.elbo(&s.cur, s.logDet)
	}
	if err := c.at(0, true); err != nil {
		return 0, err
	}
	c.q, c.q0 = c.q0, c.q
	tol := 1e-5
	if auto {
		tol = 1e-2 // the step is checked: it need not be exact
	}
	var failure error
	for range 60 {
		t, err := c.length(beta, tol)
		if err == nil {
			err = c.at(t, false)
		}
		if err == nil {
			err = s.terms.expect(&c.try, nil, s.workers)
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
		if after := s.elbo(&c.try, c.logDet); !auto || after >= before-elboRounding*math.Abs(before) {
			s.distance = siteDistance(&c.try, &s.cur)
			s.cur, c.try = c.try, s.cur
			s.logDet = c.logDet
			s.fresh, s.dense, s.batched, s.unresolved, s.pg.current, s.proof = true, false, false, false, false, proof{}
			c.beta = math.Min(2*beta, mostBeta)
			return beta, nil
		}
		beta /= 2
	}
	s.distance = 0
	return beta, failure
}

// mostBeta bounds the step sizes that grow on their own: D has no weight left.
const mostBeta = 1e12

// length returns the minimiser over the curve, to the given accuracy.
func (c *curveProx) length(beta, tol float64) (float64, error) {
	var failure error
	t := accel.Minimize1(beta/(1+beta), tol, func(t float64) float64 {
		if err := c.at(t, true); err != nil {
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
			failure = fmt.Errorf("the divergence is NaN: %w", ErrNotFinite)
			return math.Inf(1)
		}
		return 0.5*v + d/beta
	})
	if t == 0 && failure != nil {
		return 0, failure
	}
	return t, nil
}

// linearOptions say how a linear model is fitted.
type linearOptions struct {
	covariance Covariance // not AutoCovariance
	rank       int
	estimator  SiteEstimator
	update     MeanUpdate
}

// weighted is an algebra of a linear model.
type weighted interface {
	algebra
	// weights returns the mean of w − μ0 and the covariance, both new.
	weights() ([]float64, weightCov, error)
}

// newStepper returns a Stepper of l at its prior. A full covariance with more rows than weights is kept over the
// weights, and otherwise over the linear predictors, unless these are too nearly collinear. Divergences other than KL step by the Objective.
func (l *linearModel) newStepper(ctx context.Context, env *Env, d Divergence, o linearOptions) (Stepper, error) {
	if !isKL(d) {
		if o.covariance == LowRankCovariance || o.covariance == DiagonalCovariance && l.prior.full != nil {
			return nil, fmt.Errorf("pgsvi: %T with a %v covariance and this prior: %w", d, o.covariance, ErrNoProx)
		}
		f, err := l.objective(o.covariance == DiagonalCovariance, o.estimator)
		if err != nil {
			return nil, err
		}
		if _, ok := d.(Adaptive); ok {
			f = f.Linearized()
			f.Init = f.Init.In(LogCholesky)
		}
		return f.NewStepper(ctx, env, d)
	}
	s, err := newSiteStepper(l.terms, o.estimator, o.update)
	if err != nil {
		return nil, err
	}
	s.model = l
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	own := *l
	own.terms = s.terms
	s.build = func(c crew) (algebra, error) {
		switch {
		case o.covariance == LowRankCovariance && !own.small(o.rank):
			return newFactoredAlgebra(&own, max(1, o.rank)), nil
		case o.covariance == DiagonalCovariance:
			return newFactoredAlgebra(&own, 0), nil
		case own.x.rows > len(own.names):
			return newWeightAlgebra(&own, c)
		}
		return own.newRowAlgebra(c)
	}
	if err := s.start(crew{env.Workers(), &s.halt}); err != nil {
		return nil, err
	}
	return s, nil
}

// smallWeights is the number of weights up to which a full covariance costs no more than one of low rank, to speak of.
const smallWeights = 300

// small reports whether every V that may be the best is of that rank: with a diagonal prior V⁻¹ has no more factors than there are rows.
func (l *linearModel) small(rank int) bool {
	d := len(l.names)
	return rank >= d || l.prior.full == nil && rank >= l.x.rows && d <= smallWeights
}

// newRowAlgebra returns the algebra of a model with at least as many weights as rows: the dual one where float64 has
// digits enough for it, and otherwise, unless there are too many, that of the weights or, of far more weights than rows, of the span of
// these, which take twice the digits where they have to. A feature far from zero makes all of K one number, from which the others cannot be told.
func (l *linearModel) newRowAlgebra(workers crew) (algebra, error) {
	k, err := l.gramUntil(workers.halt)
	if err != nil {
		return nil, err
	}
	if len(l.names) <= primalWeights {
		gamma := l.precisions(workers.halt, k)
		switch {
		case conditioned(workers.halt, k, gamma, dualPivot):
		case spanPays(l.x.rows, len(l.names)):
			return newSpanAlgebra(l, gamma, workers)
		default:
			return newWeightAlgebra(l, workers)
		}
	}
	return newDualAlgebra(l, k, workers)
}

// objectiveMatrices is the number of D×D matrices of a run of an Objective over a full Gaussian: three of these, the prior,
// gradients and targets.
const objectiveMatrices = 4 * gaussianMatrices

// checkObjective returns an error if an Objective over a full Gaussian of d dimensions takes more memory than it may.
func checkObjective(most int64, d int, instead string) error {
	return checkMemory(most, bytesOf(objectiveMatrices, d, d), fmt.Sprintf("an Objective over a full covariance of %d dimensions", d), instead)
}

// objective returns l as an Objective over w − μ0, with dense rows.
func (l *linearModel) objective(diagonal bool, e SiteEstimator) (Objective[*Gaussian], error) {
	d := len(l.names)
	diagonal = diagonal && l.prior.full == nil
	instead := "use Fit with a nil Divergence, or raise GLMOptions.MaxMemory"
	if !diagonal {
		if err := checkObjective(l.maxMemory, d, instead); err != nil {
			return Objective[*Gaussian]{}, err
		}
	}
	if err := checkMemory(l.maxMemory, bytesOf(1, l.x.rows, d), fmt.Sprintf("an Objective with %d dense rows of %d columns", l.x.rows, d), instead); err != nil {
		return Objective[*Gaussian]{}, err
	}
	zero := make([]float64, d)
	var prior *Gaussian
	if diagonal {
		v := make([]float64, d)
		for j, p := range l.prior.prec {
			v[j] = 1 / p
		}
		q, err := NewMeanField(zero, v)
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	} else {
		s, err := l.prior.state()
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		s.invert()
		q, err := NewGaussian(zero, dense.FullSym(s.inv, d))
		if err != nil {
			return Objective[*Gaussian]{}, err
		}
		prior = q
	}
	x := dense.NewRows(l.x.rows, d)
	for i := range x {
		ind, val := l.x.row(i)
		if l.x.sparse == nil {
			copy(x[i], val)
		}
		for k, j := range ind {
			x[i][j] = val[k]
		}
	}
	est, exact, err := siteEstimator(e, l.terms.lik)
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	f := &siteSmooth{terms: l.terms, x: x, est: est, exact: exact}
	if !diagonal {
		f.best, f.prior = l.best, prior
	}
	return Objective[*Gaussian]{F: f, H: KLTo(prior), Init: prior}, nil
}

// bestPasses bounds the passes of best: a fit of the sites takes tens, and in the worst units hundreds.
const bestPasses = 500

// best finds the best full Gaussian of w − μ0, or the best that bestPasses lead to. The matrix is its covariance.
func (l *linearModel) best(c crew) (s sought, v *mat.SymDense, err error) {
	var alg algebra
	if l.x.rows > len(l.names) {
		alg, err = newWeightAlgebra(l, c)
	} else {
		alg, err = l.newRowAlgebra(c)
	}
	for err == nil && s.passes < bestPasses {
		var more int
		if more, err = alg.ascend(); err != nil {
			break
		}
		s.passes += max(1, more)
		var e Evaluation
		if e, err = alg.evaluate(0); err == nil {
			s.most = e.ELBO + e.Gap
			if e.Gap <= goalOf(0, l.x.rows, e.ELBO) {
				break
			}
		}
	}
	if err != nil {
		return s, nil, err
	}
	mean, cov, err := alg.(weighted).weights()
	if err != nil {
		return s, nil, err
	}
	s.mean = mean
	return s, cov.sym(), nil
}

// haltOf returns what ends what is asked of st, nil where nothing does.
func haltOf(st State) *parallel.Halt {
	if s, ok := st.(*siteStepper); ok {
		return &s.halt
	}
	return nil
}

// weightsAt returns the mean of w − μ0 and the covariance at st, a state of l; both are new.
func (l *linearModel) weightsAt(st State) (mean []float64, cov weightCov, err error) {
	switch t := st.(type) {
	case *siteStepper:
		alg, ok := t.alg.(weighted)
		if !ok || !t.terms.of(l.terms) {
			return nil, nil, fmt.Errorf("pgsvi: a state of another model: %w", ErrParam)
		}
		mean, cov, err = alg.weights()
	case *objectiveStepper:
		mean, cov, err = weightsOf(t.dist())
	default:
		err = fmt.Errorf("pgsvi: a %T is no state of this model: %w", st, ErrParam)
	}
	if err == nil && len(mean) != len(l.names) {
		err = fmt.Errorf("pgsvi: the state has %d weights, the model %d: %w", len(mean), len(l.names), ErrParam)
	}
	return mean, cov, err
}

// MarshalBinary implements Snapshotter. The bytes are not for long storage: see Result.Save.
func (s *siteStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary implements Snapshotter. The error wraps ErrFile if b is not the state of a
// Stepper of the same model; s is then of no use.
func (s *siteStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

// constant reports whether Evaluate would change nothing which later steps depend on.
func (s *siteStepper) constant() bool { return s.alg.constant() }

func (s *siteStepper) state(c *save.State) {
	s.print.state(c, func(d *save.Digest) {
		d.Text(fmt.Sprintf("%T %T %+v %d %t", s.alg, s.est, s.est, s.update, s.curve != nil))
		s.terms.digest(d)
		s.model.digest(d)
		if s.curve != nil {
			d.Text(fmt.Sprintf("%T", s.curve.d))
		}
	})
	s.alg.state(c)
	c.Float(&s.ceiling)
	s.terms.nested.state(c)
	if s.curve != nil {
		c.Float(&s.curve.beta)
		c.Check(s.curve.beta > 0, "a step size is %v", s.curve.beta)
	}
}

// digest shows d the terms and the estimator.
func (f *siteSmooth) digest(d *save.Digest) {
	d.Text(fmt.Sprintf("%T %+v", f.est, f.est))
	f.terms.digest(d)
	d.Int(len(f.x))
	for _, x := range f.x {
		d.Float(x...)
	}
}
