package pgsvi

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// gpLearner is the Learner of a GP.
type gpLearner struct {
	gp    *GP
	opt   LearnOptions
	space *learnSpace
	rows  *gram.Pairs
}

// Learn fits the hyper-parameters of kernel and likelihood (empirical Bayes, type-II maximum
// likelihood). It minimises −ELBO − log prior. It returns the GP with the learned values, its
// posterior, and a Learned with intervals and warnings. A nil opt means that all parameters are
// learned, under weak default priors.
//
// Learning starts at the fields that are set. Fields that are zero start at the means of their
// priors, but for these: Scale starts so that the kernel reaches from 0 to the responses; lengths
// are also tried at two smaller values; noise and scale start at the best of a few ratios. A
// second search runs from the next best lengths if they may lead to another optimum.
//
// s runs the search, with its Recorder and Checkpoint; a nil s means the zero Solver. StepSize,
// BatchSize, Sampler and Goal are not used. If the search is canceled, fails or meets a limit of
// s, the posterior is that of the best θ so far. Solver.Resume of Learned.Search then continues,
// and Learner.Learned returns the posterior.
//
// The error wraps ErrParam if an option is out of range, if it names a parameter that does not
// exist, or if a derivative of the kernel is found to be wrong. Otherwise it is one of
// Solver.Run.
//
// The default priors are normal in θ, which is the logarithm for positive parameters (see Param).
// σ_y is the median deviation of the responses:
//
//   - log Scale: N(2, 1) if latent values are log odds, N(0, 1.5²) if they are logarithms, N(log
//     σ_y, 1.5²) if they have the unit of the responses.
//   - log Length: N(log c, 1) with √2·c the median distance between rows.
//   - log Lengths: log l_d − log(σ_d√D) ~ N(0, 0.5²I + 11ᵀ), σ_d the standard deviation of column
//     d.
//   - Linear: such that each column may explain σ_y.
//   - Constant: N(log o, 1.5²), o the distance from 0 to the responses; beside a Linear also the
//     distance of its line from the origin to the rows, which is large for columns such as years.
//   - log GaussianNoise.Var and other noise: N(log σ_y/4, 1.5²). StudentT.DF: N(log 4, 1).
//   - Period: N(log p, 0.1²). p is the value that is set. If none is set and the rows have one
//     column, it is the period of the sine that explains most of the responses after a cubic fit
//     (Lomb 1976; Scargle 1982).
//   - A value that is set in a part of a Sum or Product identifies that part: it starts there,
//     with prior N(θ, 2²). A Scale that is not set, of a factor after the first, stays at 1.
//
// Poisson.Exposure belongs to the data and is not learned. If the Grad of a kernel stores NaN,
// differences of Cov replace it, and Learned says so.
func (g *GP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*GP, *GPPosterior, *Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the hyper-parameters of g. The errors are those of
// Learn.
//
// A run minimises −ELBO(θ) − log p(θ) by a quasi-Newton method. Its metric is the average
// information ½UᵀWU with U_p = (∂K/∂θ_p)α, α = K⁻¹m and W = K⁻¹ − K⁻¹VK⁻¹ (Gilmour, Thompson and
// Cullis 1995). At each θ it fits q from the sites of earlier θ, to within a small part of the
// predicted gain of the next step. At the best q the derivatives of q do not matter:
//
//	∂ELBO/∂θ_p = ½ Σ_ij (α_iα_j − W_ij) ∂K_ij/∂θ_p.
//
// Under Softmax α and W are sums over classes, and a zero opt.Tol means 0.1 nats.
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
	return l, nil
}

func (l *gpLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: hyper-parameters are learned under KL, not %s: %w", spell(d), ErrNoProx)
	}
	_, composite := kernelParts(l.gp.kernel)
	return newLearnStepper(l.learning(), l.space, l.gp.Len(), &l.opt, composite, env.rng()), nil
}

// learning returns the GP as a function of its hyper-parameters.
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

func (l *gpLearner) Learned(ctx context.Context, s *Solver, res *Result) (*GP, *GPPosterior, *Learned, error) {
	st, err := l.space.searchOf(res)
	if err != nil {
		return nil, nil, nil, err
	}
	k, _, lik, err := l.space.at(st.run.Best.Theta)
	if err != nil {
		return nil, nil, nil, err
	}
	gp := &GP{x: l.gp.x, kernel: k, terms: under(l.gp.terms, lik), opt: l.gp.opt}
	learned := st.report(res, l)
	last, stop := shortlyAfter(ctx)
	defer stop()
	start, err := gp.NewStepper(last, nil, nil)
	if err != nil {
		return gp, nil, learned, err
	}
	fitted := start.(*siteStepper)
	st.run.Model.(learn.Sited).Begin(fitted.alg)
	if dense.NearlyDiagonal(latentCov(fitted.alg), gp.Len()) {
		learned.Warnings = append(learned.Warnings, "the covariances of different rows are all but zero: the length is shorter than any distance between rows, and nothing is predicted")
	}
	err = st.fitFrom(ctx, s, fitted, learned)
	defer fitted.begin(last, nil).Forget()
	post, e := gp.Posterior(fitted)
	if err == nil {
		err = e
	}
	return gp, post, learned, err
}

// latentCov returns the covariance of the prior of a GP.
func latentCov(alg site.Algebra) []float64 {
	if c, ok := alg.(*site.ContrastGP); ok {
		return c.Covariance()
	}
	return alg.(*site.DenseAlgebra).K
}

// CertifyScale proves that no scale of the kernel from lo to hi has an ELBO more than Bound nats
// above the best one found, for any Gaussian q and all else unchanged. A maximum over the scale
// alone is then known to be global; one over other hyper-parameters is not.
//
// It fits q at one scale after another, usually ten to twenty, until Bound is at most within, or
// at a hundred scales. Each takes the work of a few Cholesky factorisations and the eigenvalues
// of an N×N matrix. See ScaleCertificate for the formula. The ELBO includes no priors of
// hyper-parameters.
//
// The scale is the first Scale of the kernel that multiplies all covariances: that of any kernel
// that is not a Sum, or of a factor of a Product, without GPOptions.Jitter. A Sum has a scale for
// each term, for which no such bound is known. To certify a common scale use Product{Constant{},
// Sum{…}}.
//
// The error wraps
//   - ErrParam if there is no such scale, if the likelihood is not log-concave, such as StudentT,
//     or unless within > 0 and 0 < lo < hi;
//   - ErrNotFinite if an ELBO is lost in rounding.
//
// Otherwise it is that of ctx.
func (g *GP) CertifyScale(ctx context.Context, lo, hi, within float64) (*ScaleCertificate, error) {
	at := commonScale(g.kernel)
	if at < 0 || g.opt.Jitter != 0 {
		return nil, fmt.Errorf("pgsvi: %s, with a jitter of %v, has no scale that multiplies all covariances; use Product{Constant{}, k} for one of any k, without GPOptions.Jitter: %w", kernelName(g.kernel), g.opt.Jitter, ErrParam)
	}
	bounds, err := scaleBounds(g.terms, lo, hi, within)
	if err != nil {
		return nil, err
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	p, err := learn.CertifyGram(ctx, g.terms, k, g.kernel.Params()[at].Value, bounds)
	return scaleCertificate(bounds, p, err)
}

// commonScale returns which parameter of k is a scale of all covariances, −1 if none is: of a
// Product that of a factor, of a Sum none.
func commonScale(k Kernel) int {
	parts, composite := kernelParts(k)
	if !composite {
		return slices.IndexFunc(kernelRoles(k), func(r paramRole) bool { return r.kind == scaleParam || r.kind == offsetParam })
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
	kernel Kernel // with derivatives, of the last covariance
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
