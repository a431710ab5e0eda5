package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// NewStepper implements Model.
//
// A full covariance with more rows than weights is computed over the weights (primal). With fewer
// rows, it is computed over the linear predictors (dual), as for a Gaussian process. With a
// divergence other than KL, the step is the numeric step of Objective. With an adaptive divergence,
// it is the gradient step of Objective.Linearized in the coordinates LogCholesky.
//
// The error wraps
//   - ErrParam if the estimator is invalid;
//   - ErrNoEstimator if the estimator does not apply;
//   - ErrEmpty if there are no rows, for which Fit returns the prior;
//   - ErrNoProx if d does not apply, or if it is not KL for a low-rank covariance or for a diagonal
//     covariance with a full prior.
func (g *GLM) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: the GLM has no rows: %w", ErrEmpty)
	}
	if g.learnsClassGroups() {
		return nil, fmt.Errorf("pgsvi: a Softmax learns the covariances of groups in GLM.Fit and "+
			"GLM.Learn alone; use one of them, or set Group.Fixed: %w", ErrParam)
	}
	if g.rows != nil {
		if !isKL(d) {
			return nil, fmt.Errorf("pgsvi: the divergence is %s, but a GLM of NewGLMRows supports "+
				"only KL; use NewGLM: %w", spell(d), ErrNoProx)
		}
		s, err := g.newRowsStepper(ctx, env)
		if err != nil {
			return nil, prefixed(err)
		}
		return s, nil
	}
	return newLinearStepper(ctx, &g.lin, env, d,
		linearOptions{g.covariance(), g.rank(), g.opt.Estimator, g.opt.Coordinates})
}

// Objective returns the model as an Objective over w − μ0, for use with any method of the paper. It
// has f = −Σ_n w_n E_q[log p(y_n|η_n)] and h = KL(q‖N(0, Λ0⁻¹)). The *Gaussian q is diagonal if the
// covariances of q and of the prior are diagonal. The rows of X become dense. The error wraps
// ErrEmpty if there are no rows, and ErrNotPosDef if the prior covariance is not positive definite
// to rounding.
func (g *GLM) Objective() (Objective[*Gaussian], error) {
	if err := g.rowsKept("Objective"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	if g.Len() == 0 {
		return Objective[*Gaussian]{}, fmt.Errorf("pgsvi: the GLM has no rows: %w", ErrEmpty)
	}
	if err := oneLatent(likOf(g.lin.Terms), "an Objective"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	if slices.ContainsFunc(g.opt.Groups, func(r Group) bool { return !r.Fixed }) {
		return Objective[*Gaussian]{}, fmt.Errorf("pgsvi: an Objective does not learn the covariances "+
			"of groups; set Group.Fixed: %w", ErrParam)
	}
	return linearObjective(&g.lin, g.covariance() == DiagonalCovariance, g.opt.Estimator)
}

// Fit runs s on the model. A nil s means the zero Solver, which needs no tuning.
//
// Fit returns the posterior at the state reached, which is valid even if Fit returns an error after
// the set-up. It is nil if the set-up fails. It is also nil if the run is canceled and computing
// the posterior would take more than a moment; then call GLM.Posterior with Result.Stepper. Without
// rows, the posterior is the prior and Result.Stepper is nil. Fit returns the errors of Solver.Run
// and, with GLMOptions.Learn, of GLM.Learn.
func (g *GLM) Fit(ctx context.Context, s *Solver) (*GLMPosterior, *Result, error) {
	if s == nil {
		s = &Solver{}
	}
	if g.Len() == 0 {
		if err := s.validate(); err != nil {
			return nil, nil, err
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("pgsvi: canceled before the fit: %w", context.Cause(ctx))
		}
		p, err := g.priorPosterior()
		if err != nil {
			return nil, nil, err
		}
		return p, &Result{Status: Converged, Iteration: Iteration{Step: Step{ClosedForm: true}}},
			nil
	}
	if g.opt.Learn != nil || g.learnsClassGroups() {
		return g.fitLearned(ctx, s)
	}
	return fitModel[*GLMPosterior](ctx, s, g)
}

// fitLearned is Fit with GLMOptions.Learn. Without that it learns only the covariances of groups.
func (g *GLM) fitLearned(ctx context.Context, s *Solver) (*GLMPosterior, *Result, error) {
	l, err := g.learner(g.opt.Learn, g.opt.Learn == nil)
	if err != nil {
		return nil, nil, err
	}
	_, post, learned, err := learnBy(ctx, s, l)
	switch {
	case learned == nil:
		return post, nil, err
	case learned.Fit == nil:
		return post, learned.Search, err
	}
	return post, learned.Fit, err
}

// glmLearner is the Learner of a GLM.
type glmLearner struct {
	glm   *GLM
	opt   LearnOptions
	space *learnSpace
	scale *learn.BlockPrior
}

// Learn fits the prior standard deviations of the weights and the parameters of the likelihood
// (hyperparameters; empirical Bayes, type-II maximum likelihood). It minimizes −ELBO − log prior.
// It returns the GLM with the learned values, its posterior, and a Learned with intervals and
// warnings. A nil opt means that all parameters are learned, under weak default priors.
//
// The parameters are GLM.PriorSD, or GLM.PriorSD[b] for each block of GLMOptions.Blocks, in the
// units of Autoscale, and the parameters of the likelihood, such as GaussianNoise.Var. InterceptSD
// is not learned. A search starts at GLMOptions.PriorSD or, if that is zero, at the mean of its
// prior.
//
// The default prior of log PriorSD is N(log(f/r), t²), where r² is the sum of the variances of the
// columns. The linear predictor then varies like the latent values of GP.Learn: f = e² and t = 1 if
// η are log odds, f = e²√(π/8) and t = 1 for BernoulliProbit, f = 1 and t = 1.5 if η are
// logarithms, and f the median deviation of the responses and t = 1.5 if η have the unit of the
// responses. For several blocks, r_b² is the sum over the block times the number of blocks, and the
// prior is N(log(f/r_b), 0.5²I + t²11ᵀ). If classes have their own blocks, r_b² is the sum over the
// block of one class times the number of blocks per class.
//
// With GLMOptions.Groups, each evaluation also finds the best covariances of the effects of the
// groups. PriorSD and Blocks then apply to the other columns, and the search minimizes −ELBO − log
// prior with the priors of Group included.
//
// Learning uses the q of GLMOptions.Covariance. A diagonal q underestimates variances if features
// are correlated, and so learns too small prior scales. A low-rank q is an error, because it has
// several optima, between which the search would jump. See GP.Learn for s and for runs that end
// early.
//
// The error wraps
//   - ErrEmpty if there are no rows;
//   - ErrParam if an option is out of range, if GLMOptions.Prior is set, if a block has only
//     columns of groups, or if the covariance is low-rank;
//   - ErrMemory if there are too many blocks.
//
// Learn also returns the errors of Solver.Run.
func (g *GLM) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*GLM, *GLMPosterior,
	*Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the prior of g. It returns the errors of Learn.
//
// A run minimizes −ELBO(θ) − log p(θ), like a run of GP.Learner. Block b has the weights w_j ~ N(0,
// s_b²u_j²), with u_j = 1 without Autoscale, and q has means m and variances v. The derivative at
// the best q is
//
//	∂ELBO/∂log s_b = Σ_{j∈b} ((m_j² + v_j)/(s_b²u_j²) − 1).
//
// For K classes only contrasts count, so v_j and 1 are reduced by their share of a common shift.
//
// The average information of blocks b and c is 2 mᵀE_b(Λ0 − Λ0VΛ0)E_c m, with E_b the identity
// restricted to block b.
func (g *GLM) Learner(opt *LearnOptions) (Learner[*GLM, *GLMPosterior], error) {
	return g.learner(opt, false)
}

// learner is Learner. If only is set, the prior standard deviations keep their values.
func (g *GLM) learner(opt *LearnOptions, only bool) (Learner[*GLM, *GLMPosterior], error) {
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: the GLM has no rows to learn from: %w", ErrEmpty)
	}
	if g.opt.Prior != nil && !only {
		return nil, fmt.Errorf(
			"pgsvi: GLMOptions.Prior is set; leave it nil to learn prior standard deviations: %w",
			ErrParam)
	}
	if g.covariance() == LowRankCovariance && !g.lin.Small(g.rank()) {
		return nil, fmt.Errorf(
			"pgsvi: a %v covariance does not support learning; use DiagonalCovariance or "+
				"FullCovariance: %w", LowRankCovariance, ErrParam)
	}
	var variance []float64
	if g.rows != nil {
		variance = g.rows.columns.Variance
	}
	l, err := g.learnerBy(opt, only, variance, g.learnData())
	if err != nil {
		return nil, err
	}
	if l.opt.Integrate {
		if err := cmp.Or(g.rowsKept("LearnOptions.Integrate"),
			l.space.checkIntegrate(&l.opt)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// learnData returns the scale of the responses of g, which determines the default priors.
func (g *GLM) learnData() *learnData {
	d := &learnData{}
	weights := g.lin.Terms.Weight
	if g.rows != nil { // rows that are not kept have the variances of columns without weights
		weights = nil
	}
	d.scales(g.responses(), weights, likOf(g.lin.Terms))
	return d
}

// learnerBy is learner for the given variances of the columns and the scale of the responses. A nil
// variance means the variances of the rows of g.
func (g *GLM) learnerBy(opt *LearnOptions, only bool, variance []float64, d *learnData) (*glmLearner,
	error) {
	l := &glmLearner{glm: g}
	if opt != nil {
		l.opt = *opt
	}
	if only { // all weights have the prior of g.lin
		l.scale = learn.NewBlockPrior(&g.lin, 0, nil, false, nil)
	} else {
		l.scale = learn.NewBlockPrior(&g.lin, g.dim()-design.B2i(g.opt.Intercept), g.opt.Blocks,
			g.opt.Autoscale, variance)
	}
	blocks := len(l.scale.Spread)
	for b, columns := range l.scale.Columns() {
		if columns == 0 {
			return nil, fmt.Errorf("pgsvi: block %d of GLMOptions.Blocks has only columns of groups; "+
				"give the blocks of the other columns the numbers from 0 on: %w", b, ErrParam)
		}
	}
	if err := checkMemory(g.lin.MaxMemory, memory.Bytes(learnMatrices, blocks, blocks),
		fmt.Sprintf("learning %d prior standard deviations", blocks),
		"use fewer GLMOptions.Blocks, or raise GLMOptions.MaxMemory"); err != nil {
		return nil, err
	}
	l.space = &learnSpace{lik: likOf(g.lin.Terms)}
	l.space.coords = scaleCoords(l.scale.Spread, g.opt.PriorSD, d)
	effects, rules := g.groupCoords(blocks)
	l.space.effects = [2]int{blocks, blocks + len(effects)}
	l.space.coords = append(l.space.coords, effects...)
	l.scale.Effects(rules)
	if err := l.space.finish(d, &l.opt); err != nil {
		return nil, err
	}
	l.scale.Over(&l.space.Space)
	return l, nil
}

// learnMatrices is the number of matrices of a search with the size of the parameters.
const learnMatrices = 8

// responses returns the responses of g minus their offsets.
func (g *GLM) responses() []float64 {
	y := slices.Clone(g.lin.Terms.Y)
	if g.lin.Terms.K > 1 {
		return y
	}
	for i, o := range g.lin.Terms.Offset {
		y[i] -= o
	}
	return y
}

// warnings implements warner.
func (l *glmLearner) warnings() []string { return l.glm.warnings() }

func (l *glmLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if err := learnsUnder(d); err != nil {
		return nil, err
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	m, err := l.learning(term.Crew{Workers: env.Workers(), Halt: &halt})
	if err != nil {
		return nil, err
	}
	return newLearnStepper(m, l.space, l.glm.Len(), &l.opt, false, env.rng()), nil
}

// CertifyScale proves that no prior standard deviation from lo to hi has an ELBO much above the best
// one that was found, for any Gaussian q and with everything else fixed, including InterceptSD. It
// returns the best scale and the state there; see GP.CertifyScale for its fields and the formula.
//
// CertifyScale fits q at one scale after another, usually ten to twenty, until GapBound is at most
// within, or up to a hundred scales. Each scale costs a few passes and the eigenvalues of a D×D
// matrix. The scale is GLMOptions.PriorSD, in units of the columns with
// Autoscale. If the GLM has learned one standard deviation per block, all are multiplied by the
// same factor, and the scale is the first of them.
//
// The error wraps
//   - ErrEmpty if there are no rows;
//   - ErrParam if GLMOptions.Prior or Groups is set, if the covariance is not full, if the
//     likelihood is not log-concave, or unless within > 0 and 0 < lo < hi;
//   - ErrMemory if there are too many weights;
//   - ErrNotFinite if an ELBO is lost in rounding.
//
// If ctx ends, the error wraps its cause.
func (g *GLM) CertifyScale(ctx context.Context, lo, hi, within float64) (scale float64,
	best Iteration, err error) {
	if err := g.rowsKept("CertifyScale"); err != nil {
		return 0, best, err
	}
	if g.Len() == 0 {
		return 0, best, fmt.Errorf("pgsvi: the GLM has no rows to certify: %w", ErrEmpty)
	}
	if len(g.opt.Groups) > 0 {
		return 0, best, fmt.Errorf("pgsvi: CertifyScale does not support GLMOptions.Groups: %w", ErrParam)
	}
	if g.opt.Prior != nil || g.covariance() != FullCovariance {
		return 0, best, fmt.Errorf("pgsvi: CertifyScale needs FullCovariance and no GLMOptions.Prior, "+
			"but the covariance is %v, and Prior is set: %t: %w", g.covariance(),
			g.opt.Prior != nil, ErrParam)
	}
	d := g.dim()
	if err := checkMemory(g.lin.MaxMemory, memory.Bytes(site.WeightMatrices, d, d),
		fmt.Sprintf("the certificate of %d weights", d),
		"use fewer columns, or raise GLMOptions.MaxMemory"); err != nil {
		return 0, best, err
	}
	bounds, err := scaleBounds(g.lin.Terms, lo, hi, within)
	if err != nil {
		return 0, best, err
	}
	prior := learn.NewBlockPrior(&g.lin, d-design.B2i(g.opt.Intercept), nil, g.opt.Autoscale, nil)
	return certified(learn.CertifyWeights(ctx, prior, bounds))
}

// learning returns the GLM as a function of its hyperparameters, over the weights or over the
// linear predictors as in GLM.NewStepper.
func (l *glmLearner) learning(c term.Crew) (learn.Model, error) {
	g := l.glm
	switch {
	case g.rows != nil && len(g.opt.Groups) > 0:
		return l.groupLearning(c), nil
	case g.rows != nil:
		return newRowsLearning(g, l.scale, c), nil
	}
	if g.lin.Terms.K > 1 {
		return learn.NewClasses(l.scale), nil
	}
	if len(g.opt.Groups) > 0 {
		return learn.NewGroups(l.scale), nil
	}
	diagonal := g.covariance() == DiagonalCovariance
	weights := learn.NewWeights(l.scale, diagonal)
	if diagonal || g.Len() > g.dim() {
		return weights, nil
	}
	start, _ := l.scale.At(l.space.Starts()[0])
	if start != nil && g.dim() <= site.PrimalWeights {
		k, err := start.GramUntil(c.Halt)
		if err != nil {
			return nil, err
		}
		if !site.Conditioned(c.Halt, k, start.Precisions(c.Halt, k), site.DualPivot) {
			return weights, c.Halt.Err()
		}
	}
	return learn.NewLatent(l.scale, &l.space.Space, g.Len()), c.Halt.Err()
}

func (l *glmLearner) Learned(ctx context.Context, s *Solver, res *Result) (*GLM, *GLMPosterior,
	*Learned, error) {
	st, g, err := bestOf(l.space, res, l.under)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	if len(l.scale.Spread) == 1 {
		g.opt.PriorSD = learned.Params[0].Value
	}
	if g.rows != nil {
		post, err := l.fitRows(ctx, s, st, g, learned)
		if post != nil {
			post.learned = learned
			by := l.groupTurns(st.run.Best.Theta, post)
			switch m := st.run.Model.(type) {
			case *rowsLearning:
				tilted, ok := m.best.climb.Tilted()
				by = l.streamTurns(tilted, ok, post)
			case *groupRowsLearning:
				tilted, ok := m.best.climb.Tilted()
				by = l.streamTurns(tilted, ok, post)
			}
			post.setSpread(l.spread(st, post, by))
		}
		return g, post, learned, err
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	fitted, err := st.stepperAtBest(last, g)
	if err != nil {
		return g, nil, learned, err
	}
	err = st.fitFrom(ctx, s, fitted, learned)
	defer fitted.begin(last, nil).Forget()
	post, e := g.Posterior(fitted)
	if err = cmp.Or(err, e); post != nil {
		post.learned = learned
		known, e := l.setClassSpread(ctx, post, st, g, fitted)
		err = cmp.Or(err, prefixed(e))
		by, e := l.rowTurns(&g.lin, fitted.alg, post, st.run.Best.Theta, term.Crew{Workers: 1})
		if e == nil {
			if by.curved != nil {
				post.response = by.curved.Response(runtime.GOMAXPROCS(0))
			}
			post.setSpread(l.spread(st, post, by, known...))
		}
	}
	if err == nil && l.opt.Integrate {
		err = l.integrate(ctx, st, s, learned, post)
	}
	return g, post, learned, err
}

// Posterior returns the posterior at st, a state of this model, for example of an Iteration. The
// error wraps ErrParam if st is not a state of this model.
func (g *GLM) Posterior(st Stepper) (*GLMPosterior, error) {
	if s, ok := st.(*rowsStepper); ok && s.run.g == g {
		p, err := s.run.posterior()
		return p, prefixed(err)
	}
	if g.rows != nil {
		return nil, fmt.Errorf("pgsvi: the state is a %T, but a GLM needs its own state: %w", st,
			ErrParam)
	}
	mean, cov, err := weightsAt(&g.lin, st)
	if err != nil {
		return nil, err
	}
	p := g.posterior(mean, cov, g.Len())
	if err := p.setGroupSpread(st); err != nil {
		return nil, prefixed(err)
	}
	if err := p.integrateGroups(st); err != nil {
		return nil, prefixed(err)
	}
	return p, nil
}

// fitRows does the final fit of Learned for a GLM that reads its rows in passes. The learned model
// is g.
func (l *glmLearner) fitRows(ctx context.Context, s *Solver, st *learnStepper, g *GLM,
	learned *Learned) (*GLMPosterior, error) {
	fitted := &rowsStepper{run: g.rounds()}
	climb, best := &fitted.run.climb, rowsPoint{}
	m, sampled := st.run.Model.(*rowsLearning)
	if sampled {
		best = m.best
	}
	var err error
	if groups, ok := st.run.Model.(*groupRowsLearning); ok && groups.best.climb != nil {
		a, best := fitted.run.arrow, groups.best.climb
		err = a.StartAt(best)
		a.At, a.Found = best.At, best.Found // the model is the same
	} else if !sampled {
		err = fitted.run.begun(nil, runtime.GOMAXPROCS(0))
	} else if best.theta != nil {
		*climb = fitted.run.newClimb(nil)
		err = climb.Again(&best.climb)
	} else if err = fitted.run.start(nil, runtime.GOMAXPROCS(0)); err == nil {
		climb.At = climb.Try[0] // the search ended on the sample
	}
	if err != nil {
		return nil, prefixed(err)
	}
	err = st.fitFrom(ctx, s, fitted, learned)
	post, e := g.Posterior(fitted)
	return post, cmp.Or(err, e)
}

// glmTurns holds derivatives of the mean of the weights with respect to parameters of the
// likelihood.
type glmTurns struct {
	// turn returns Xᵀ(∂α/∂θ_i) for free coordinate i, a parameter of the likelihood, or nil if it
	// is unknown.
	turn func(i int) []float64
	// solve stores (Λ + XᵀΓX)⁻¹b in dst.
	solve func(dst, b []float64)
	// curved is Λ + XᵀΓX, or nil unless V is diagonal.
	curved *learn.Curved
}

// spread returns the uncertainty of the hyperparameters that the search st has learned, for the
// posterior post of the final fit. It returns nil if the curvature of the search is unknown
// or all coordinates are known. The list names coordinates that are known, because post is integrated over
// them.
func (l *glmLearner) spread(st *learnStepper, post *GLMPosterior, by glmTurns,
	known ...int) *learnSpread {
	factor := st.run.Factor(known...)
	pull, err := l.scale.Pull(st.run.Best.Theta, post.ownMean())
	if factor == nil || err != nil || len(known) == len(factor) {
		return nil
	}
	dm := make([][]float64, len(pull))
	for i := range pull {
		if l.space.Coords[i].Likelihood {
			if t := by.turn(i); t != nil {
				pull[i] = t
			}
		}
		dm[i] = make([]float64, len(post.mean))
		by.solve(dm[i], pull[i])
	}
	s := &learnSpread{weights: learn.SpreadOf(dm, factor), params: l.space.paramRows(factor)}
	if s.weights == nil {
		return nil
	}
	return s
}

// rowTurns returns the derivatives of a GLM that keeps its rows, at the state alg of its final fit.
func (l *glmLearner) rowTurns(lin *site.LinearModel, alg site.Algebra, post *GLMPosterior,
	theta []float64, c term.Crew) (by glmTurns, err error) {
	by.solve = post.cov.Mul
	variance, diagonal := post.cov.(gauss.Diagonal)
	if !diagonal && !slices.ContainsFunc(l.space.Coords,
		func(c learn.Coord) bool { return c.Likelihood }) {
		return by, nil
	}
	var at term.Estimates
	if err := alg.Marginals(&at, nil); err != nil {
		return by, err
	}
	by.turn = func(i int) []float64 {
		pull := make([]float64, len(post.mean))
		lin.X.AddMulT(pull, l.space.Turn(lin.Terms, at.M, at.V, c, theta, i), nil)
		return pull
	}
	if diagonal {
		q := &term.Marginals{}
		q.Resize(len(at.M))
		copy(q.M, at.M)
		copy(q.V, at.V)
		if err := lin.Terms.Expect(q, nil, c); err != nil {
			return by, err
		}
		by.curved = &learn.Curved{X: lin.X, Prec: lin.Prior.Prec, Gamma: q.Tg, Variance: variance}
		by.solve = by.curved.Solve
	}
	return by, nil
}

// streamTurns returns the derivatives of a GLM that reads its rows in passes, from the last pass of
// the search.
func (l *glmLearner) streamTurns(tilted []rounds.Tilted, ok bool, post *GLMPosterior) glmTurns {
	return glmTurns{solve: post.cov.Mul, turn: func(i int) []float64 {
		k := 0
		for _, c := range l.space.Coords[:i] {
			if c.Likelihood {
				k++
			}
		}
		if !ok || k >= len(tilted) {
			return nil
		}
		return tilted[k].Pull
	}}
}

// groupLearning returns the model of a search for the hyperparameters of a GLM with groups. Gaussian
// noise needs no further pass.
func (l *glmLearner) groupLearning(c term.Crew) learn.Model {
	rows := l.glm.rows
	if rows.noise == 0 || rows.first == nil {
		return &groupRowsLearning{glm: l.glm, scale: l.scale, workers: c}
	}
	r := l.glm.rounds()
	return learn.NewGroupsOf(l.scale, r.arrow.Evidence(rows.first, rows.noise, rows.moments))
}

// groupTurns returns the derivatives of the mean of the weights of a GLM with a group and Gaussian
// noise. At the best mean, Xᵀα = Λ0m, and α is proportional to the precision of the noise.
func (l *glmLearner) groupTurns(theta []float64, post *GLMPosterior) glmTurns {
	const h = 1e-4
	noise := func(i int, h float64) float64 {
		t := slices.Clone(theta)
		t[i] += h
		lin, err := l.scale.At(t)
		if err != nil {
			return math.NaN()
		}
		return math.Log(lin.Terms.Noise())
	}
	return glmTurns{solve: post.cov.Mul, turn: func(i int) []float64 {
		slope := (noise(i, h) - noise(i, -h)) / (2 * h)
		if math.IsNaN(slope) {
			return nil
		}
		pull := make([]float64, len(post.mean))
		post.prior.Mul(pull, post.mean, 1)
		floats.Scale(-slope, pull)
		return pull
	}}
}

// integrate replaces post, the posterior at the best hyperparameters of the search st, by a mixture.
// All fits start at the sites of the best hyperparameters.
func (l *glmLearner) integrate(ctx context.Context, st *learnStepper, by *Solver, learned *Learned,
	post *GLMPosterior) error {
	run := integrateSolver(by)
	run.BatchSize = l.glm.Len()
	m, err := integrate(ctx, st, by, learned,
		func(theta []float64) (x search.Point, p *GLMPosterior, err error) {
			x.F = math.Inf(1)
			g, err := l.under(theta)
			if err != nil {
				return x, nil, nil // out of range
			}
			fitted, err := st.stepperAtBest(ctx, g)
			if err != nil {
				return x, nil, err
			}
			res, err := run.Resume(ctx, &Result{Stepper: fitted})
			if err != nil {
				return x, nil, err
			}
			defer fitted.begin(ctx, nil).Forget()
			if p, err = g.Posterior(fitted); err != nil {
				return x, nil, err
			}
			if l.glm.learnsClassGroups() {
				p.groups = likeGroups(post.groups)
				if _, err := l.integrateClasses(st, g, fitted, p); err != nil {
					return x, nil, err
				}
			}
			switch {
			case post.mixture == nil:
				x.F = -res.ELBO
			case p.mixture != nil: // integrated over covariances of groups
				x.F = -p.mixture.logMass
			}
			return x, p, nil
		})
	if m != nil {
		post.setLearnedMixture(m.prob, m.parts)
	}
	return err
}

// under returns the GLM at θ.
func (l *glmLearner) under(theta []float64) (*GLM, error) {
	lin, err := l.scale.At(theta)
	if err != nil {
		return nil, prefixed(err)
	}
	g := &GLM{lin: *lin, opt: l.glm.opt, means: l.glm.means, rows: l.glm.rows,
		variances: l.glm.variances, offset: l.glm.offset, groups: l.glm.groups}
	g.opt.Learn = nil
	g.fixClassGroups()
	return g, nil
}

// setClassSpread gives post the uncertainty of the covariances that the search st has learned, and
// integrates over the covariances of groups with few levels. It returns the coordinates of these. The state
// of fitted is the final fit of g, the model at the best θ.
func (l *glmLearner) setClassSpread(ctx context.Context, post *GLMPosterior, st *learnStepper, g *GLM,
	fitted *siteStepper) (known []int, err error) {
	if !l.glm.learnsClassGroups() {
		return nil, nil
	}
	defer st.begin(ctx, &Env{workers: 1}).Forget()
	spread, err := l.scale.EffectSpread(st.run)
	if err != nil {
		return nil, nil
	}
	post.groups = slices.Clone(post.groups)
	for i := range post.groups {
		post.groups[i].spread = spread[post.groups[i].First]
	}
	keepBest(post.groups, site.MostClassGridLevels)
	in, err := l.integrateClasses(st, g, fitted, post)
	for _, first := range in {
		known = append(known, l.scale.EffectCoords(first)...)
	}
	return known, err
}

// integrateClasses replaces post, the posterior of g, by a mixture over the covariances of groups with few
// levels, as GLMPosterior.integrateGroups does for other likelihoods. The state of fitted is the fit of g,
// and the search st has learned the covariances. The groups of post have their uncertainty. It returns
// the first weights of the groups that are integrated over. A canceled integration leaves post unchanged.
func (l *glmLearner) integrateClasses(st *learnStepper, g *GLM, fitted *siteStepper, post *GLMPosterior) (
	in []int, err error) {
	alg, ok := fitted.alg.(*site.SoftmaxAlgebra)
	blocks := g.lin.Prior.Blocks()
	guess := l.scale.Guess(st.run, blocks)
	spread := map[int]*site.FactorSpread{}
	for i := range post.groups {
		spread[post.groups[i].First] = post.groups[i].spread
	}
	if !ok || guess == nil || !st.run.Done || st.run.Stale {
		return nil, nil
	}
	grid, err := alg.IntegrateClasses(&g.lin, l.scale.ClassFactors(blocks, spread), guess)
	if alg.Workers.Halt.Err() != nil || errors.Is(err, ErrNotFinite) || errors.Is(err, ErrNotPosDef) {
		return nil, nil
	}
	if err != nil || grid == nil {
		return nil, err
	}
	var probs []float64
	for _, x := range grid.Points {
		probs = append(probs, x.Prob)
	}
	var prob []float64
	var parts []*GLMPosterior
	least := leastProb(probs)
	for _, x := range grid.Points {
		if x.Prob < least {
			continue
		}
		part := &GLMPosterior{lik: post.lik, mean: x.Mean, cov: x.Cov}
		prior := g.lin.Prior.WithBlocks()
		for k, b := range blocks {
			b.L = x.L[k]
			prior.SetBlock(b)
		}
		part.prior = &prior
		prob, parts = append(prob, x.Prob), append(parts, part)
	}
	floats.Scale(1/floats.Sum(prob), prob)
	for i := range grid.Spans {
		s := &grid.Spans[i]
		for k := range post.groups {
			if r := &post.groups[k]; r.First == blocks[s.Block].First {
				r.spread.SetInterval(s)
			}
		}
	}
	post.setLearnedMixture(prob, parts)
	post.mixture.logMass = grid.LogMass
	for _, k := range grid.Factors {
		in = append(in, blocks[k].First)
	}
	return in, nil
}
