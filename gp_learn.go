package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// gpLearner is the Learner of a GP.
type gpLearner struct {
	gp    *GP
	opt   LearnOptions
	space *learnSpace
	rows  *gram.Pairs
}

// Learn fits the hyperparameters of the kernel and the likelihood (empirical Bayes, type-II maximum
// likelihood) by minimizing −ELBO − log prior. It returns the GP with the learned values, its
// posterior, and a Learned with intervals and warnings. A nil opt learns all parameters under weak
// default priors.
//
// Learning starts at the fields that are set. Fields that are zero start at the means of their
// priors, with a few exceptions. Scale starts such that the kernel reaches from 0 to the responses.
// Length scales are also tried at two smaller values. Noise and scale start at the best of a few
// ratios. A second search starts from the next best length scales if they may lead to another
// optimum.
//
// s runs the search and uses its Record and Checkpoint; a nil s means the zero Solver. StepSize,
// BatchSize, Sampler and Goal are ignored. If the search is canceled, fails or reaches a limit of
// s, Learn returns the posterior of the best θ so far. Solver.Resume of Learned.Search then
// continues the search, and Learner.Learned returns its posterior.
//
// The error wraps ErrParam if an option is out of range or names a parameter that does not exist,
// or if a derivative of the kernel is found to be wrong. Otherwise it is an error of Solver.Run.
//
// The default priors are normal in θ, which is the logarithm of a positive parameter (see Param).
// σ_y is the median deviation of the responses:
//
//   - log Scale: N(2, 1) if latent values are log odds, N(2 + log √(π/8), 1) for BernoulliProbit,
//     N(0, 1.5²) if they are logarithms, N(log σ_y, 1.5²) if they have the unit of the responses.
//   - log Length: N(log c, 1), where √2·c is the median distance between rows.
//   - log Lengths: log l_d − log(σ_d√D) ~ N(0, 0.5²I + 11ᵀ), where σ_d is the standard deviation of
//     column d.
//   - Linear: such that each column may explain σ_y.
//   - Constant: N(log o, 1.5²), where o is the distance from 0 to the responses. Next to a Linear o
//     also includes the distance of its line from the origin to the rows, which is large for
//     columns such as years.
//   - log GaussianNoise.Var and other noise: N(log σ_y/4, 1.5²). StudentT.DF: N(log 4, 1).
//   - Period: N(log p, 0.1²), where p is the value that is set. If no value is set, p is the
//     candidate with the most evidence. The candidates are the multiples of the period of the sine
//     that explains most of the responses after a cubic fit (Lomb 1976; Scargle 1982), because that
//     sine may be a harmonic, and periods with fewer than two cycles. In a Sum or Product the
//     search allows for a smooth function that is added to the season or multiplies it. The column
//     with the most evidence decides if there are several (see On), because a Periodic has one
//     period for all of its columns.
//   - A value that is set in a part of a Sum or Product identifies that part. It starts there, with
//     the prior N(θ, 2²). The Scale of a factor after the first stays at 1 unless it is set.
//
// Learn does not change Poisson.Exposure, which belongs to the data. If the Grad of a kernel stores
// NaN, Learn uses differences of Cov instead and adds a warning to Learned.
func (g *GP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*GP, *GPPosterior, *Learned,
	error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the hyperparameters of g. It returns the errors of
// Learn.
//
// A run minimizes −ELBO(θ) − log p(θ) by a quasi-Newton method. Its metric is the average
// information ½UᵀWU with U_p = (∂K/∂θ_p)α, α = K⁻¹m and W = K⁻¹ − K⁻¹VK⁻¹ (Gilmour, Thompson and
// Cullis 1995). At each θ it fits q, starting from the sites of earlier θ, until the gap is a small
// part of the predicted gain of the next step. The derivatives of q do not matter at the best q, so
//
//	∂ELBO/∂θ_p = ½ Σ_ij (α_iα_j − W_ij) ∂K_ij/∂θ_p.
//
// For a Softmax α and W are sums over the classes, and a zero opt.Tol means 0.1 nats.
func (g *GP) Learner(opt *LearnOptions) (Learner[*GP, *GPPosterior], error) {
	l, err := newGPLearner(g, opt)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func newGPLearner(g *GP, opt *LearnOptions) (*gpLearner, error) {
	l := &gpLearner{gp: g, rows: gram.NewPairs(g.x)}
	if opt != nil {
		l.opt = *opt
	}
	var err error
	l.space, err = newLearnSpace(g.kernel, likOf(g.terms), l.rows, g.terms.Y, &l.opt)
	if err != nil {
		return nil, err
	}
	if l.opt.Tol == 0 && g.terms.Latents() > 1 {
		l.opt.Tol = learn.ClassesTol
	}
	return l, l.space.checkIntegrate(&l.opt)
}

func (l *gpLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if err := learnsUnder(d); err != nil {
		return nil, err
	}
	return newLearnStepper(l.learning(), l.space, l.gp.Len(), &l.opt, compound(l.gp.kernel),
		env.rng()), nil
}

// learning returns the GP as a function of its hyperparameters.
func (l *gpLearner) learning() learn.Sited {
	prior, n := &gpPrior{gp: l.gp, rows: l.rows, space: l.space}, l.gp.Len()
	if k := l.gp.terms.Latents(); k > 1 {
		return learn.NewClassesGP(prior, &l.space.Space, n, k)
	}
	return learn.NewLatent(prior, &l.space.Space, n)
}

// warnings implements warner.
func (l *gpLearner) warnings() []string {
	return l.gp.farFrom0(true)
}

// found returns the search that made res, and the kernel and the likelihood at its best θ.
func (s *learnSpace) found(res *Result) (st *learnStepper, k Kernel, lik Likelihood, err error) {
	if st, err = s.searchOf(res); err == nil {
		k, _, lik, err = s.at(st.run.Best.Theta)
	}
	return st, k, lik, err
}

func (l *gpLearner) Learned(ctx context.Context, s *Solver, res *Result) (*GP, *GPPosterior,
	*Learned, error) {
	st, gp, err := bestOf(l.space, res, l.at)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	last, stop := shortlyAfter(ctx)
	defer stop()
	l.rows.Release() // before the fit takes as much memory
	defer l.rows.Release()
	if m, ok := st.run.Model.(*learn.Latent); ok {
		m.Release()
	}
	fitted, err := st.stepperAtBest(last, gp)
	if err != nil {
		return gp, nil, learned, err
	}
	if dense.NearlyDiagonal(latentCov(fitted.alg), gp.Len()) {
		learned.Warnings = append(learned.Warnings,
			"all covariances of different rows are nearly zero, because the length scale is "+
				"shorter than any "+
				"distance between rows; predictions at new rows equal the prior")
	}
	err = st.fitFrom(ctx, s, fitted, learned)
	defer fitted.begin(last, nil).Forget()
	post, e := gp.Posterior(fitted)
	if err = cmp.Or(err, e); post != nil {
		post.spread = l.spread(st, post, latentCov(fitted.alg))
	}
	if err == nil && l.opt.Integrate {
		err = l.integrate(ctx, st, s, learned, gp, post)
	}
	return gp, post, learned, err
}

// at returns the GP at θ.
func (l *gpLearner) at(theta []float64) (*GP, error) {
	k, _, lik, err := l.space.at(theta)
	if err != nil {
		return nil, err
	}
	return &GP{x: l.gp.x, kernel: k, terms: under(l.gp.terms, lik), opt: l.gp.opt}, nil
}

// latentCov returns the prior covariance of a GP.
func latentCov(alg site.Algebra) []float64 {
	if c, ok := alg.(*site.SoftmaxGP); ok {
		return c.Covariance()
	}
	return alg.(*site.DenseAlgebra).K
}

// CertifyScale proves that no scale of the kernel from lo to hi has an ELBO much above the best one
// that was found, for any Gaussian q and with everything else unchanged. A maximum over the scale
// alone is then known to be global, but a maximum over other hyperparameters is not. It returns the
// best scale and the state there: the ELBO, and a GapBound of Scope OverQAndScale, which holds for
// all scales from lo to hi and includes rounding. K is the number of scales at which q was fitted.
//
// CertifyScale fits q at several scales, usually ten to twenty, until GapBound is at most within, or
// until it has fitted a hundred scales. Each fit costs a few Cholesky factorizations and the
// eigenvalues of an N×N matrix. The ELBO does not include priors of hyperparameters.
//
// Let f_n = −E[log p(y_n|·)] be convex in mean and standard deviation, as for a log-concave p, with
// gradients α_n = ∂f_n/∂m_n and γ_n = 2∂f_n/∂v_n at any Gaussian N(m, V). The prior has precision
// P_b + P/s² at the scale s, where P_b does not depend on s, and N(m, V) is written at s = 1. Let Γ
// be the sum of the γ_n, as a matrix, and a the sum of the α_n, as a vector, with parts a_b and a_u
// that belong to P_b and P. Then every y > 0 gives a bound at every s, where n is the number of
// dimensions and n_u the number that belongs to P:
//
//	ELBO(q, s) ≤ −Σf_n + tr ΓV + mᵀa + ½a_bᵀP_b⁻¹a_b + ½s²a_uᵀP⁻¹a_u + ½tr P_bV
//	             + y²/(2s²)·tr PV − n/2 − log|P_b + Γ + yP/s²| − ½log|V| + ½log|P_b + P/s²|.
//
// If y = s^2θ, all terms except log|P_b + Γ + yP/s²| are convex in log s, so they lie below their
// chord. That term is concave and lies below its tangent. The bound of an interval is therefore
// attained at its ends. θ is the best of ½, ¾ and 1, and each interval uses the best of the states
// at all scales that were tried.
//
// The scale is the first Scale of the kernel that multiplies all covariances. Every kernel has such
// a scale except a Sum; the scale of a Product is the scale of one of its factors. GPOptions.Jitter
// must be 0. A Sum has one scale per term, and no such bound is known for them. To certify a common
// scale use Product{Constant{}, Sum{…}}.
//
// The error wraps
//   - ErrParam if there is no such scale, if the likelihood is not log-concave, such as StudentT,
//     or unless within > 0 and 0 < lo < hi;
//   - ErrNotFinite if rounding makes an ELBO meaningless;
//   - the cause of ctx if ctx is canceled.
func (g *GP) CertifyScale(ctx context.Context, lo, hi, within float64) (scale float64,
	best Iteration, err error) {
	at := commonScale(g.kernel)
	if at < 0 || g.opt.Jitter != 0 {
		return 0, best, fmt.Errorf(
			"pgsvi: %s with jitter %v has no scale that multiplies all covariances; use "+
				"Product{Constant{}, k} without GPOptions.Jitter: %w",
			kernelName(g.kernel), g.opt.Jitter, ErrParam)
	}
	bounds, err := scaleBounds(g.terms, lo, hi, within)
	if err != nil {
		return 0, best, err
	}
	k, err := g.gram()
	if err != nil {
		return 0, best, err
	}
	return certified(learn.CertifyGram(ctx, g.terms, k, g.kernel.Params()[at].Value, bounds))
}

// commonScale returns the index of a parameter of k that scales all covariances, or −1 if there is
// no such parameter. A Product has the parameter of one of its factors, and a Sum has no such
// parameter.
func commonScale(k Kernel) int {
	if on, ok := asOn(k); ok {
		return commonScale(on.Kernel)
	}
	parts, composite := kernelParts(k)
	if !composite {
		return slices.IndexFunc(kernelRoles(k),
			func(r paramRole) bool { return r.kind == scaleParam || r.kind == offsetParam })
	}
	if isType[Sum](k) {
		return -1
	}
	from := 0
	for _, part := range parts {
		if at := commonScale(part); at >= 0 {
			return from + at
		}
		from += numParams(part)
	}
	return -1
}

// gpPrior is the learn.Prior of a GP.
type gpPrior struct {
	gp     *GP
	rows   *gram.Pairs
	space  *learnSpace
	kernel Kernel // has the derivatives of the last covariance
	u      []float64
}

// Digest implements learn.Prior.
func (p *gpPrior) Digest(d *save.Digest) {
	p.gp.terms.Digest(d)
	p.gp.digest(d)
}

// Covariance implements learn.Prior.
func (p *gpPrior) Covariance(h *parallel.Halt, dst, theta []float64) (*term.Terms, bool) {
	n := p.gp.Len()
	k, slopes, lik, err := p.space.at(theta)
	if err != nil {
		return nil, false
	}
	if p.rows.Gram(h, dst, kernelView{k}); h.Stopped() {
		return nil, false
	}
	for i := range n {
		dst[i*n+i] += p.gp.opt.Jitter
	}
	p.kernel = slopes
	_, ok := dense.AllFinite(dst)
	return ruled(under(p.gp.terms, lik)), ok
}

// Slopes implements learn.Prior.
func (p *gpPrior) Slopes(h *parallel.Halt, grad, w, a []float64) {
	all := p.rows.Slopes(h, kernelView{p.kernel}, &gram.Weights{N: p.gp.Len(), W: w, A: a})
	chainParams(all, p.kernel)
	for i, at := range p.space.free {
		if !p.space.coords[at].Likelihood {
			grad[i] = all[at]
		}
	}
}

// Changes implements learn.Prior.
func (p *gpPrior) Changes(h *parallel.Halt, u, a []float64) {
	k, free := p.kernel, p.space.free
	p.u = p.rows.SlopesMul(h, p.u, kernelView{k}, a)
	ones := make([]float64, numParams(k))
	for i := range ones {
		ones[i] = 1
	}
	chainParams(ones, k)
	for i, at := range free {
		if p.space.coords[at].Likelihood {
			continue
		}
		for r := range a {
			u[r*len(free)+i] = p.u[r*len(ones)+at] * ones[at]
		}
	}
}

// These constants govern how a SparseGP learns. They come from trials on a data set of a million
// rows and one of fifty thousand rows.
const (
	// rowTol is the tolerated gap of the search, in nats per row beyond tolRows. A smaller gap does
	// not change predictions noticeably.
	rowTol    = 1e-4
	tolRows   = 5000
	priorRows = 1000 // number of rows for the default priors if there are more than gram.MedianRows
)

// sparseGPLearner is the Learner of a SparseGP.
type sparseGPLearner struct {
	g     *SparseGP
	opt   LearnOptions
	space *learnSpace
	rows  *sparse.Rows
}

// Learn fits the hyperparameters of the kernel and the likelihood (empirical Bayes, type-II maximum
// likelihood) by minimizing −ELBO − log prior. It returns the SparseGP with the learned values, its
// posterior, and a Learned with intervals and warnings. GP.Learn describes the parameters,
// defaults, options and errors. The default priors come from a sample if there are more than 5000
// rows. For a Softmax, Learn learns from a part of the rows, as a warning in Learned reports.
//
// A zero opt.Tol means 1e-4 nats plus 1e-4 nats per row beyond 5000, which is 4.5 nats for 50,000
// rows. The log loss of predictions for simulated labels then differs by less than 0.001 bits per
// row from a search to 1e-4 nats. Learned.Passes counts passes over all rows; a pass over a part of
// the rows counts as that part.
func (g *SparseGP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*SparseGP,
	*SparseGPPosterior, *Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the hyperparameters of g. It returns the errors of
// Learn.
//
// The inducing inputs are SparseGPOptions.Inducing. If Inducing is nil, they are chosen again after
// the first stage of the search. The first stage uses 3000 rows. The second uses a fifth of all
// rows, at most 25,000; each of them counts several times, so that together they stand for all rows,
// and the objective adds an estimate of how much q overfits them. The last stage uses all rows.
//
// If SparseGPOptions.Rank is zero, the number of inducing inputs depends on the kernel learned so
// far and not on the kernel at the start. It is at most 200, and stops growing when the prior
// variance that is left out costs less than 0.001 nats plus 1e-4 nats per row beyond 5000. It grows
// up to 500 while the cost exceeds 0.002 nats per row beyond 5000. The last stage keeps the inducing
// inputs of the second if their cost is at most twice these limits. The objective of an iteration
// covers the rows of its stage.
//
// At each θ a run takes natural-gradient steps, each a pass over the rows of the stage, until the
// predicted gain of the next step is small enough. They start from the nearest earlier θ. The
// information in q about the latent values at the inducing inputs changes little with θ, so one or
// two passes are enough. The last pass also computes the derivatives.
func (g *SparseGP) Learner(opt *LearnOptions) (Learner[*SparseGP, *SparseGPPosterior], error) {
	if latentsOf(g.lik) > 1 {
		l, err := newSparseClassLearner(g, opt)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l := &sparseGPLearner{g: g, rows: g.rows}
	if opt != nil {
		l.opt = *opt
	}
	if l.rows == nil {
		l.rows = sparse.RowsOf(g.x, g.terms)
	}
	n := len(l.rows.Y)
	if l.rows.N > gram.MedianRows {
		n = min(n, priorRows)
	}
	var err error
	if l.space, err = newLearnSpace(kernelIn(g.z.Kernel), g.lik, &gram.Pairs{X: l.rows.Sample(n)},
		l.rows.Y[:n], &l.opt); err != nil {
		return nil, err
	}
	if l.opt.Tol == 0 {
		l.opt.Tol = learn.DefaultTol + rowTol*float64(max(0, l.rows.N-tolRows))
	}
	if err := l.space.checkIntegrate(&l.opt); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *sparseGPLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if err := learnsUnder(d); err != nil {
		return nil, err
	}
	m := sparse.NewLearning(l.rows, l.sees(), l.division(), l.g.Rank(), fitFeatures)
	switch {
	case l.g.opt.Inducing != nil || !l.g.z.Open:
		m.Fixed = l.g.z.Inputs()
	case l.g.opt.Rank > 0:
		m.Rank = l.g.opt.Rank
	default:
		m.Open = true
		if most := sparse.Most(1); l.g.rows == nil || l.g.checkStreamOf(most) == nil {
			m.Rank = most
		}
	}
	return newLearnStepper(m, l.space, l.rows.N, &l.opt, compound(kernelIn(l.g.z.Kernel)),
		env.rng()), nil
}

// division returns the Division that the search uses. Terms of few features, such as a Constant, are
// represented exactly if there are enough inducing inputs for the other terms, because rounding may
// hide the other terms at some scales in the search.
func (l *sparseGPLearner) division() sparse.Division {
	v := divided(kernelIn(l.g.z.Kernel), l.rows.Cols)
	if f := v.Wholes(); !v.Open || f == 0 || 2*f > cmp.Or(l.g.opt.Rank, sparse.Most(1)) {
		return l.g.z.Division
	}
	return v
}

// sees returns the parameter space in the form that the search in internal/sparse uses.
func (l *sparseGPLearner) sees() *sparse.Space {
	s := l.space
	return &sparse.Space{Coords: s.Coords, Kernel: kernelOf(s.kernel), Lik: viewOf(s.lik),
		Amplitudes: s.amplitudes(),
		At: func(theta []float64) (k, slopes sparse.Kernel, lik sparse.Likelihood, err error) {
			at, by, under, err := s.at(theta)
			if err != nil {
				return nil, nil, nil, err
			}
			return kernelOf(at), kernelOf(by), viewOf(under), nil
		}}
}

// warnings implements warner.
func (l *sparseGPLearner) warnings() []string {
	return l.g.farFrom0(true)
}

// Learned implements Learner. If the search has ended, the ELBO of Learned.Fit is the ELBO of the
// posterior on all rows.
func (l *sparseGPLearner) Learned(ctx context.Context, s *Solver, res *Result) (*SparseGP,
	*SparseGPPosterior, *Learned, error) {
	st, k, lik, err := l.space.found(res)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	m := st.run.Model.(*sparse.Learning)
	learned.Passes, learned.Cholesky = learned.Cholesky, 0
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	u := m.Factored(&h, kernelOf(k), m.Best.Z) // the factor of the best state
	g, err := l.g.at(&h, m.Whole.Again(kernelOf(k)), lik, m.Best.Z, func(g *SparseGP) error {
		if u == nil {
			return fmt.Errorf("pgsvi: the covariance of the inducing inputs cannot be factorized: %w",
				ErrNotPosDef)
		}
		return g.settle(&h, u)
	})
	if err != nil {
		return nil, nil, learned, err
	}
	learned.Warnings = append(learned.Warnings, l.tooFew(&h, g)...)
	post, err := l.posterior(ctx, last, s, st, g, u, learned)
	if err == nil && l.opt.Integrate {
		err = l.integrate(ctx, st, s, learned, g, post)
	}
	return g, post, learned, err
}

// posterior returns the posterior of g, the model at the best θ of the search st. If the search has
// ended, it also makes the final fit. Features that are kept are fitted from the last natural step of
// the search, whose factor is u. Otherwise that step is the fit. last is the context of the posterior.
func (l *sparseGPLearner) posterior(ctx, last context.Context, s *Solver, st *learnStepper,
	g *SparseGP, u *sparse.Inducing, learned *Learned) (*SparseGPPosterior, error) {
	best := &st.run.Model.(*sparse.Learning).Best
	ended := st.run.Done && !st.run.Stale && ctx.Err() == nil
	if l.g.rows == nil && ended {
		fitted, err := g.NewStepper(ctx, nil, nil)
		if err != nil {
			return nil, err
		}
		if u != nil {
			if q := u.Carry(g.z, best.Look.Next.Mean, &best.Look.Next); q != nil {
				fitted.(*siteStepper).startAt(q)
			}
		}
		err = st.fitFrom(ctx, s, fitted, learned)
		defer fitted.(haltable).begin(last, nil).Forget()
		post, e := g.Posterior(fitted)
		return post, cmp.Or(err, e)
	}
	if l.g.rows == nil {
		g.rows = l.rows // the state consists of natural-gradient steps
		defer func() { g.rows = nil }()
	}
	fitted, err := newSparseStepper(last, nil, g.z, g.rows, g.lik, best.At)
	if err != nil {
		return nil, prefixed(err)
	}
	if ended { // the pass that found the best θ has also ended
		fitted.ascent.Adopt(best.Look)
		learned.Fit = &Result{Stepper: fitted, Warnings: learned.Warnings}
		learned.Fit.begin(nil)
		if err = new(Solver).force(last, learned.Fit); err == nil {
			learned.Fit.Status = Converged
		}
	}
	post, e := g.Posterior(fitted)
	return post, cmp.Or(err, e)
}

// SparseGP.Learn warns if the variances that the inducing inputs leave out cost more than
// fewInducing nats in total plus fewInducingRow nats per row. In trials with 500 rows they cost at
// most 0.6 nats if the length scale was right, and at least 5 nats if it was not.
const (
	fewInducing    = 2
	fewInducingRow = 0.003
)

// tooFew warns if the learned g has too few inducing inputs.
func (l *sparseGPLearner) tooFew(h *parallel.Halt, g *SparseGP) []string {
	lost := g.z.Loss(h, l.rows, viewOf(g.lik))
	if h.Stopped() || !(lost > fewInducing+fewInducingRow*float64(l.rows.N)) {
		return nil
	}
	remedy := "raise SparseGPOptions.Rank"
	switch {
	case l.g.opt.Inducing != nil:
		remedy = "add to SparseGPOptions.Inducing"
	case l.g.opt.Rank > g.Rank(): // the first length scale needed no more inducing inputs
		remedy = "start from a shorter length scale"
	}
	return []string{fmt.Sprintf("%d inducing inputs are too few and cost about %.2g nats, so "+
		"length scales and noise may be too large: %s", g.Rank(), lost, remedy)}
}

// startAt makes s start from q, without sites, if s is a state over weights.
func (s *siteStepper) startAt(q *gauss.Gaussian) {
	if a, ok := s.alg.(*site.WeightAlgebra); ok {
		a.Run.CopyFrom(q)
		a.Free, a.Fresh, a.Batched, a.Started, a.Proof = true, false, false, false, site.Proof{}
	}
}

// moveSteps is the default number of evaluations of MoveInducing.
const moveSteps = 50

// MoveInducing returns a SparseGP whose inducing inputs are moved from those in g to raise the
// ELBO. The kernel and the likelihood stay the same:
//
//	argmax_Z max_q ELBO(q, Z).
//
// It finds a local maximum near the inducing inputs of g (Titsias 2009) by a quasi-Newton method on
// the gradient in Z (L-BFGS; Liu and Nocedal 1989). It accepts only steps that raise the ELBO, and
// returns g itself if it finds no such step. If there are more than 50,000 rows, the inducing
// inputs are moved on a sample of that size, and fits of all rows before and after the move decide
// whether it is accepted.
//
// steps is the largest number of evaluations, each of a few passes over these rows; 0 means 50. A
// run cannot be saved and resumed, but calling MoveInducing again with its result continues it.
// That loses only the curvature information of the last ten steps. Moving helps if there are too
// few inducing inputs, but twice as many inputs chosen by NewSparseGP cost less and are better.
// SparseGP.Learn on the result keeps the moved inputs. Custom kernels are differentiated by
// differences of Cov.
//
// The error wraps ErrParam if steps is negative. Otherwise it is the cause of ctx or an error of
// Fit.
func (g *SparseGP) MoveInducing(ctx context.Context, steps int) (*SparseGP, error) {
	if err := oneLatent(g.lik, "MoveInducing"); err != nil {
		return nil, err
	}
	if steps < 0 {
		return nil, fmt.Errorf("pgsvi: MoveInducing with %d steps; set 1 or more, or 0 for the "+
			"default: %w",
			steps, ErrParam)
	}
	if steps == 0 {
		steps = moveSteps
	}
	rows := g.rows
	if rows == nil {
		rows = sparse.RowsOf(g.x, g.terms)
	}
	var h parallel.Halt
	h.Watch(ctx)
	if !g.z.Open {
		return g, nil
	}
	m := sparse.NewMove(rows, viewOf(g.lik), fitFeatures,
		term.Crew{Workers: runtime.GOMAXPROCS(0), Halt: &h}, g.z.Division)
	z, err := m.Run(g.z, steps)
	if err != nil || z == nil {
		return g, prefixed(err)
	}
	moved, err := g.at(&h, g.z.Division, g.lik, z, nil)
	if err != nil {
		return nil, err
	}
	if rows.All == nil {
		return moved, nil
	}
	_, before, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, after, err := moved.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !(after.ELBO-after.ELBOErr > before.ELBO+before.ELBOErr) {
		return g, nil
	}
	return moved, nil
}

// at returns g with the inducing inputs z of the division v and with another likelihood. If g reads
// its rows in every pass, settle chooses among z; nil means induce.
func (g *SparseGP) at(h *parallel.Halt, v sparse.Division, lik Likelihood, z *mat.Dense,
	settle func(*SparseGP) error) (*SparseGP, error) {
	of := &SparseGP{lik: lik, opt: g.opt, x: g.x, terms: g.terms, rows: g.rows}
	of.opt.Inducing, of.opt.Rank = z, 0
	var err error
	switch {
	case g.rows == nil:
		of.terms = under(g.terms, lik)
		rank, _ := z.Dims()
		err = of.keepAmong(h, v, z, rank)
	case settle != nil:
		err = settle(of)
	default:
		err = of.induce(h, v, z)
	}
	if err != nil {
		return nil, of.canceled(h, err)
	}
	return of, nil
}

// learnedRows is the number of rows from which a SparseGP with a Softmax learns its kernel.
const learnedRows = 500

// sparseClassLearner is the Learner of a SparseGP with a Softmax. It learns a GP of some of the
// rows.
type sparseClassLearner struct {
	*gpLearner
	g *SparseGP
}

// newSparseClassLearner returns the Learner of g, which uses every n-th row.
func newSparseClassLearner(g *SparseGP, opt *LearnOptions) (*sparseClassLearner, error) {
	if opt != nil && opt.Integrate {
		return nil, fmt.Errorf("pgsvi: LearnOptions.Integrate does not support a SparseGP with a "+
			"Softmax; use a GP with a part of the rows: %w", ErrParam)
	}
	n := g.Len()
	index := make([]int, min(n, learnedRows))
	for i := range index {
		index[i] = i * n / len(index)
	}
	x, y := SelectRows(g.x, g.terms.Y, index)
	some, err := newGP(x, y, kernelIn(g.z.Kernel), g.lik, nil)
	if err != nil {
		return nil, err
	}
	l, err := newGPLearner(some, opt)
	if err != nil {
		return nil, err
	}
	return &sparseClassLearner{l, g}, nil
}

// Learned implements Learner.
func (l *sparseClassLearner) Learned(ctx context.Context, s *Solver, res *Result) (
	*SparseGP, *SparseGPPosterior, *Learned, error) {
	st, k, lik, err := l.space.found(res)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	if n, of := l.gp.Len(), l.g.Len(); n < of {
		learned.Warnings = append(learned.Warnings,
			fmt.Sprintf("the kernel was learned from %d of %d rows; GP.Learn uses all rows", n, of))
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	g, err := newSparseGPUntil(&h, l.g.x, l.g.terms.Y, k, lik, &l.g.opt)
	if err != nil {
		return nil, nil, learned, l.g.canceled(&h, err)
	}
	if !st.run.Done || ctx.Err() != nil {
		post, _, err := g.Fit(last, nil)
		return g, post, learned, err
	}
	run := Solver{Goal: search.StopPart * st.run.Search.Goal}
	if s != nil {
		run.Workers, run.Recover, run.Converger = s.Workers, s.Recover, s.Converger
	}
	post, fit, err := g.Fit(ctx, &run)
	if learned.Fit = fit; fit != nil {
		fit.Warnings = learned.Warnings
	}
	return g, post, learned, err
}

var _ Learner[*SparseGP, *SparseGPPosterior] = (*sparseClassLearner)(nil)

// spread returns the uncertainty of the hyperparameters learned by the search st, for the posterior
// p of its final fit with prior covariance k. It returns nil if the curvature of the search is
// unknown. With a = α(Ka, θ), α = ∂E/∂m and Γ = −∂α/∂m at fixed variances,
//
//	da = (I + ΓK)⁻¹(∂α/∂θ_i − Γ(∂K/∂θ_i)a).
func (l *gpLearner) spread(st *learnStepper, p *GPPosterior, k []float64) *gpSpread {
	factor, theta := st.run.Factor(), st.run.Best.Theta
	if factor == nil || p.classes != nil || p.weights != nil {
		return nil
	}
	_, slopes, lik, err := l.space.at(theta)
	if err != nil {
		return nil
	}
	n, free := p.Len(), l.space.free
	fac := *p.fac
	fac.C = k
	prior := &gpPrior{gp: l.gp, rows: l.rows, space: l.space, kernel: slopes}
	turns := make([]float64, n*len(free))
	prior.Changes(nil, turns, p.a)
	terms := under(l.gp.terms, lik)
	da, dm := make([][]float64, len(free)), make([][]float64, len(free))
	for i := range free {
		da[i], dm[i] = make([]float64, n), make([]float64, n)
		if l.space.Coords[i].Likelihood {
			copy(da[i], l.space.Turn(terms, p.m, p.v, term.Crew{Workers: 1}, theta, i))
		} else {
			for j, g := range p.gamma {
				dm[i][j] = turns[j*len(free)+i]
				da[i][j] = -g * dm[i][j]
			}
		}
		fac.Solve(da[i])
		fac.MulC(da[i])
		floats.Add(dm[i], fac.T)
	}
	s := &gpSpread{a: learn.SpreadOf(da, factor), params: l.space.paramRows(factor)}
	moves := learn.SpreadOf(dm, factor)
	if s.a == nil || moves == nil {
		return nil
	}
	for j := range s.a {
		floats.Scale(spreadStep, s.a[j])
		floats.Add(s.a[j], p.a)
		if !l.step(s, p, theta, factor, j, moves[j]) {
			return nil
		}
	}
	return s
}

// step appends to s the kernels after a step in z_j and after a step back, and the sites after the
// first step, which changes the latent means by move. It returns false if they are not valid there.
func (l *gpLearner) step(s *gpSpread, p *GPPosterior, theta []float64, factor [][]float64, j int,
	move []float64) bool {
	at, behind := slices.Clone(theta), slices.Clone(theta)
	for i := range at {
		at[i] += spreadStep * factor[i][j]
		behind[i] -= spreadStep * factor[i][j]
	}
	kernel, _, lik, err := l.space.at(at)
	if err != nil {
		return false
	}
	back, _, _, err := l.space.at(behind)
	if err != nil {
		return false
	}
	s.kernels, s.back = append(s.kernels, kernel), append(s.back, back)
	if p.Len() > spreadRows {
		return true
	}
	_, _, here, err := l.space.at(theta)
	if err != nil {
		return false
	}
	gamma := slices.Clone(p.gamma)
	before, ok := curvatures(under(l.gp.terms, here), p.m, p.v, nil)
	after, still := curvatures(under(l.gp.terms, lik), p.m, p.v, move)
	if ok && still {
		floats.Add(gamma, after)
		floats.Sub(gamma, before)
	}
	s.gamma = append(s.gamma, gamma)
	s.sites = append(s.sites, siteFactor(kernel, p, gamma))
	return true
}

// curvatures returns Γ at means m + spreadStep·move and variances v. It returns false if Γ is not
// finite.
func curvatures(t *term.Terms, m, v, move []float64) ([]float64, bool) {
	q := &term.Marginals{}
	q.Resize(len(m))
	copy(q.M, m)
	copy(q.V, v)
	if move != nil {
		floats.AddScaled(q.M, spreadStep, move)
	}
	if t.Expect(q, nil, term.Crew{Workers: 1}) != nil {
		return nil, false
	}
	_, ok := dense.AllFinite(q.Tg)
	return q.Tg, ok
}

// integrate replaces post, the posterior of gp at the best hyperparameters of the search st, by a
// mixture.
func (l *gpLearner) integrate(ctx context.Context, st *learnStepper, by *Solver, learned *Learned,
	gp *GP, post *GPPosterior) error {
	n := gp.Len()
	most := learn.MostPoints(len(l.space.free), n)
	if err := checkMemory(gp.opt.MaxMemory, float64(most*gp.terms.Latents())*memory.Bytes(1, n, n),
		fmt.Sprintf("a posterior over %d hyperparameters of %d rows", most, n),
		"use fewer rows, LearnOptions.Fixed or a SparseGP, or raise GPOptions.MaxMemory"); err != nil {
		return err
	}
	before, err := st.MarshalBinary() // the search keeps its state
	if err != nil {
		return prefixed(err)
	}
	m, err := integrate(ctx, st, by, learned,
		func(theta []float64) (x search.Point, p *GPPosterior, err error) {
			if x, err = st.run.Refit(theta); err != nil || math.IsInf(x.F, 1) {
				return x, nil, err
			}
			of, err := l.at(theta)
			if err != nil {
				return x, nil, err
			}
			fitted, err := st.stepperAtBest(ctx, of)
			if err != nil {
				return x, nil, err
			}
			defer fitted.begin(ctx, nil).Forget()
			p, err = of.Posterior(fitted)
			return x, p, err
		})
	if e := st.UnmarshalBinary(before); err == nil {
		err = prefixed(e)
	}
	if m != nil {
		post.mixture = &mixedPosteriors[*GPPosterior]{m.prob, m.parts}
		post.spread = nil
	}
	return err
}

// integrate replaces post, the posterior of g at the best hyperparameters of the search st, by a
// mixture. All parts have the inducing inputs of g. They are fitted from cold, because their
// features differ.
func (l *sparseGPLearner) integrate(ctx context.Context, st *learnStepper, by *Solver,
	learned *Learned, g *SparseGP, post *SparseGPPosterior) error {
	run := integrateSolver(by)
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	m, err := integrate(ctx, st, by, learned,
		func(theta []float64) (search.Point, *SparseGPPosterior, error) {
			x := search.Point{F: math.Inf(1)}
			k, _, lik, err := l.space.at(theta)
			if err != nil {
				return x, nil, nil // out of range
			}
			of, err := g.at(&h, g.z.Again(kernelOf(k)), lik, g.z.Inputs(), nil)
			if err != nil {
				return x, nil, err
			}
			p, res, err := of.Fit(ctx, run)
			if err == nil {
				x.F = -res.ELBO
			}
			return x, p, err
		})
	if m != nil {
		post.mixture = &mixedPosteriors[*SparseGPPosterior]{m.prob, m.parts}
	}
	return err
}
