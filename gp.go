package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// A GP is a Gaussian process model for regression and classification. The latent values z_n =
// z(x_n) have the prior z ~ N(0, K) with K_ij = k(x_i, x_j), and the observations are y_n ~
// p(y|z_n). The posterior is approximated by q(z) = N(m, V), which maximizes the ELBO
//
//	Σ_n E_q[log p(y_n|z_n)] − KL(q‖N(0, K))   (nats).
//
// A pass takes on the order of N³ operations, so use SparseGP if there are more than a few thousand
// rows. A GP is a Model. It is immutable and safe for concurrent use.
type GP struct {
	x      *mat.Dense
	kernel Kernel
	terms  *term.Terms
	opt    GPOptions
}

// GPOptions holds the options of a GP. The zero value and a nil pointer mean no jitter and exact
// expectations.
type GPOptions struct {
	// Jitter is added to the diagonal of K in training, but not in predictions. A singular K needs
	// no jitter unless the Divergence is not KL, because other divergences need V⁻¹.
	Jitter float64
	// Estimator estimates the gradients of steps with a given Solver.StepSize. Nil means Exact.
	// Steps of a nil Solver are always exact. A noisy step is shortened if sites with negative γ
	// would take more than nine tenths of the precision of a variable, because noise alone could
	// otherwise make V lose positive definiteness.
	Estimator SiteEstimator
	// Coordinates are the coordinates in which steps with a given Solver.StepSize linearize f, so
	// they determine the update of m. They must be MeanParams, the zero value, or MeanCov. Let r =
	// 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and Γ = diag(2 ∂f/∂v), estimated from
	// the batch. Both updates have V₊⁻¹ = K⁻¹ + Γ₊ with Γ₊ = rΓ_k + (1−r)Γ, and
	//
	//	MeanParams  m₊ = m − (1−r)V₊(K⁻¹m + a)
	//	MeanCov     m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a)
	//
	// (Khan et al., 2016, main text, with Γ = diag(2 ∂f/∂v), and appendix). MeanParams averages
	// natural parameters.
	Coordinates Coordinates
	// MaxMemory is the number of bytes that the model may take. It needs about 64 N² bytes for K, V
	// and working memory, or 80 N² + 40 K N² bytes for a Softmax of K classes. Zero means the limit
	// described at ErrMemory.
	MaxMemory int64
}

// NewGP returns the model of the responses y in the rows of x, with covariance function k and
// likelihood lik. It copies x and y. A nil lik means GaussianNoise{}, and a nil opt means the zero
// GPOptions. A zero field of a kernel or likelihood means its documented default, such as a Length
// of 1.
//
// The error names the row at fault. It wraps
//   - ErrEmpty if x is nil or has no rows or columns;
//   - ErrShape if x and y have different numbers of rows;
//   - ErrNotFinite if a value is NaN or infinite;
//   - ErrLabel if a response is outside the support of lik;
//   - ErrParam if k is nil, or an option or a parameter of k or lik is out of range;
//   - ErrNoEstimator if the Estimator does not apply to lik;
//   - ErrMemory if the rows need more memory than GPOptions.MaxMemory; use NewSparseGP for such
//     data.
func NewGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *GPOptions) (*GP, error) {
	g, err := newGP(x, y, k, lik, opt)
	if err != nil {
		return nil, err
	}
	if err := g.checkMemory("use NewSparseGP, or raise GPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	return g, nil
}

// checkMemory returns an error if the matrices of g exceed the memory limit. The error suggests
// instead.
func (g *GP) checkMemory(instead string) error {
	n := g.Len()
	if k := g.terms.K; k > 1 {
		need := memory.Bytes(site.SoftmaxGPMatrices(k), n, n) + memory.Bytes(site.ContrastVectors,
			n, k)
		return checkMemory(g.opt.MaxMemory, need,
			fmt.Sprintf("a GP of %d rows and %d classes", n, k), instead)
	}
	return checkMemory(g.opt.MaxMemory, memory.Bytes(site.DenseMatrices, n, n),
		fmt.Sprintf("a GP of %d rows, with %d matrices of %s each,", n, site.DenseMatrices,
			memory.Size(memory.Bytes(1, n, n))), instead)
}

// newGP is NewGP without the check of the memory.
func newGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *GPOptions) (*GP, error) {
	if err := checkMatrix("x", x); err != nil {
		return nil, err
	}
	if len(y) == 0 {
		return nil, fmt.Errorf("pgsvi: a GP needs at least one row: %w", ErrEmpty)
	}
	n, d := x.Dims()
	if n == 0 || d == 0 {
		return nil, fmt.Errorf("pgsvi: x is %d×%d; a GP needs at least one column: %w",
			n, d, ErrEmpty)
	}
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: x has %d rows, but y has %d responses: %w",
			n, len(y), ErrShape)
	}
	if k == nil {
		return nil, fmt.Errorf("pgsvi: the Kernel is nil; a GP needs one: %w", ErrParam)
	}
	if err := checkKernel(k, d); err != nil {
		return nil, err
	}
	g := &GP{kernel: k}
	if opt != nil {
		g.opt = *opt
	}
	if err := checkMemory(g.opt.MaxMemory, memory.Bytes(1, n, d),
		fmt.Sprintf("a copy of x, %d×%d,", n, d),
		"use fewer columns, or raise the limit"); err != nil {
		return nil, err
	}
	g.x = mat.DenseCopyOf(x)
	for i := range n {
		if j, ok := dense.AllFinite(g.x.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of x is %v: %w", i, j, g.x.At(i, j),
				ErrNotFinite)
		}
	}
	var err error
	if g.terms, err = newSiteTerms(lik, slices.Clone(y)); err != nil {
		return nil, err
	}
	if err := g.checkJitter(); err != nil {
		return nil, err
	}
	if g.opt.MaxMemory < 0 {
		return nil, fmt.Errorf("pgsvi: GPOptions.MaxMemory is %d; it must not be negative: %w",
			g.opt.MaxMemory, ErrParam)
	}
	if _, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.Coordinates); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *GP) checkJitter() error {
	if j := g.opt.Jitter; !(j >= 0) || math.IsInf(j, 0) {
		return fmt.Errorf("pgsvi: GPOptions.Jitter is %v; it must be finite and not negative: %w",
			j, ErrParam)
	}
	return nil
}

// Len returns N, the number of observations.
func (g *GP) Len() int { return g.terms.Len() }

// gram returns K including the jitter, with both triangles.
func (g *GP) gram() ([]float64, error) { return g.gramUntil(nil) }

// gramUntil is like gram, but returns the error of h once h has stopped.
func (g *GP) gramUntil(h *parallel.Halt) ([]float64, error) {
	if err := g.checkJitter(); err != nil {
		return nil, err
	}
	n := g.Len()
	k, sd := make([]float64, n*n), make([]float64, n)
	if (&gram.Pairs{X: g.x}).Gram(h, k, kernelView{g.kernel}); h.Stopped() {
		return nil, h.Err()
	}
	for i := range sd {
		k[i*n+i] += g.opt.Jitter
		sd[i] = math.Sqrt(k[i*n+i])
	}
	if i, ok := dense.AllFinite(k); !ok {
		return nil, fmt.Errorf("pgsvi: the covariance of rows %d and %d is %v; check the kernel: "+
			"%w", i/n, i%n, k[i],
			ErrNotFinite)
	}
	err := parallel.Each(h.Context(), n, h.Workers(), func(_, i int) error {
		for j := range i + 1 { // faults of a custom kernel that show in pairs of rows
			if kij := math.Abs(k[i*n+j]); k[i*n+i] < 0 || kij > sd[i]*sd[j]*(1+1e-6) {
				return fmt.Errorf("pgsvi: the covariance %v of rows %d and %d is invalid for "+
					"variances %v and %v: %w", k[i*n+j], i, j, k[i*n+i], k[j*n+j], ErrNotPosDef)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Objective returns the model as an Objective over a dense Gaussian q, for use with any Divergence
// and Solver. Its F is f = −E_q[Σ_n log p(y_n|z_n)], with gradients from GPOptions.Estimator and
// exact values, and its H is h = KL(q‖N(0, K)). A step has N² parameters and costs several products
// of N×N matrices; a gradient step of Linearized in the coordinates Cholesky or LogCholesky costs a
// third of that. Use Fit unless N is small. The error wraps ErrNotPosDef if K is singular and has
// no Jitter, and ErrMemory if N is too large for GPOptions.MaxMemory.
func (g *GP) Objective() (Objective[*Gaussian], error) {
	if err := oneLatent(likOf(g.terms), "an Objective"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	se, exact, err := siteEstimator(g.opt.Estimator, likOf(g.terms))
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	if err := checkObjective(g.opt.MaxMemory, g.Len(),
		"use Fit, or raise GPOptions.MaxMemory"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	k, err := g.gram()
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	n := g.Len()
	prior, err := NewGaussian(nil, mat.NewSymDense(n, k))
	if err != nil {
		return Objective[*Gaussian]{},
			fmt.Errorf("pgsvi: the prior covariance is singular; set GPOptions.Jitter: %w", err)
	}
	return Objective[*Gaussian]{F: &siteSmooth{terms: g.terms, est: se, exact: exact},
		H: KLTo(prior), Init: prior}, nil
}

// Fit runs s on the model. A nil s means the zero Solver, which needs no tuning.
//
// The posterior belongs to the last state of the run and is valid even if the run ends with an
// error. It is nil if the run could not start, or if the run was canceled and computing the
// posterior would take more than a moment. GP.Posterior of Result.Stepper then computes it. Fit
// returns the errors of Solver.Run.
func (g *GP) Fit(ctx context.Context, s *Solver) (*GPPosterior, *Result, error) {
	return fitModel[*GPPosterior](ctx, s, g)
}

// warnings implements warner.
func (g *GP) warnings() []string {
	return g.farFrom0(false)
}

// farFrom0 warns if the responses are far from 0 and the kernel vanishes at a distance. If learned
// is true, the scale is assumed to be learned.
func (g *GP) farFrom0(learned bool) []string {
	return farFrom0(g.terms, vanishingSD(g.kernel, g.x.RawRowView(0)), learned)
}

// NewStepper implements Model.
//
// If d is nil or KL, every step has a closed form. With any other divergence the step moves along a
// curve that averages natural parameters between λ_k and the minimizer of the linearized objective.
// The length of the step along the curve minimizes λᵀ∇f + h + D/β numerically. The exact step of KL
// lies on this curve. For other divergences the step is the best point on the curve, which has the
// same fixed points.
//
// The error wraps
//   - ErrNotFinite if a covariance is not finite;
//   - ErrNotPosDef if the Kernel is found not to be positive definite, or if K is singular and d is
//     not KL;
//   - ErrNoProx if d is adaptive, which needs an Objective.
func (g *GP) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if _, ok := d.(adaptive); ok {
		return nil, fmt.Errorf(
			"pgsvi: a GP has no step with %s, which needs the coordinates of a "+
				"dense covariance; use GP.Objective: %w", spell(d), ErrNoProx)
	}
	s, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.Coordinates)
	if err != nil {
		return nil, err
	}
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	k, err := g.gramUntil(&s.halt)
	if err != nil {
		return nil, err
	}
	s.identify = g.digest
	if g.terms.K > 1 {
		if !isKL(d) {
			return nil, fmt.Errorf("pgsvi: %s has no step with %s; use KL: %w",
				spell(d), typeName(likOf(g.terms)), ErrNoProx)
		}
		s.build = func(c term.Crew) (site.Algebra,
			error) {
			return site.NewSoftmaxGP(s.terms, k, c)
		}
		if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
			return nil, err
		}
		return s, nil
	}
	if !isKL(d) {
		alg, err := site.NewDenseAlgebra(g.terms, k,
			term.Crew{Workers: env.Workers(), Halt: &s.halt})
		if err != nil {
			return nil, err
		}
		s.terms, s.alg = g.terms, alg
		if s.curve, err = newCurve(alg, d); err != nil {
			return nil, err
		}
		return s, nil
	}
	own := *g
	own.terms = s.terms
	s.build = func(c term.Crew) (site.Algebra, error) {
		alg, err := site.NewDenseAlgebra(own.terms, k, c)
		if err == nil {
			alg.Features, err = own.weightSteps(k, c)
		}
		return alg, err
	}
	if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
		return nil, err
	}
	return s, nil
}

// linear returns g as a linear model in the features of its kernel. It returns nil if the kernel
// has no features or too many.
func (g *GP) linear() *site.LinearModel {
	if g.opt.Jitter != 0 {
		return nil
	}
	x := featuresOf(g.kernel, g.x, -1)
	if x == nil || x.Cols > site.PrimalWeights {
		return nil
	}
	l := &site.LinearModel{X: x, Terms: g.terms, Prior: gauss.UnitPrior(x.Cols),
		Names: make([]string, x.Cols)}
	for j := range l.Names {
		l.Names[j] = fmt.Sprintf("feature %d", j)
	}
	return l
}

// weightSteps returns the algebra of the weights of the features of g, whose covariance is k. It
// returns nil if g has no features, or if float64 represents k well enough. It does not if a
// feature is far from zero, because that makes all elements of k nearly equal.
func (g *GP) weightSteps(k []float64, workers term.Crew) (*site.WeightAlgebra, error) {
	l := g.linear()
	if l == nil || site.Conditioned(workers.Halt, k, l.Precisions(workers.Halt, k),
		site.DualPivot) {
		return nil, workers.Halt.Err()
	}
	return site.NewWeightAlgebra(l, workers)
}

// Posterior returns the posterior at st, which must be a state of this model, such as the state of
// an Iteration. The error wraps ErrParam if st belongs to another model. It may also wrap
// ErrNotPosDef or ErrNotFinite, but not after a successful step.
func (g *GP) Posterior(st Stepper) (*GPPosterior, error) {
	if g.terms.K > 1 {
		return g.classPosterior(st)
	}
	s, ok := denseOf(st, g.terms)
	if !ok {
		return nil, fmt.Errorf("pgsvi: the state, a %T, does not belong to this GP: %w",
			st, ErrParam)
	}
	back, err := s.Peek()
	defer back()
	if err != nil {
		// If only the expectations overflow, m and V are still valid.
		_, mean := dense.AllFinite(s.Cur.M)
		_, variance := dense.AllFinite(s.Cur.V)
		if !errors.Is(err, ErrNotFinite) || !mean || !variance {
			return nil, err
		}
	}
	return newGPPosterior(g, s.K, &s.Cur, s.LendFactor(), s.Workers.Halt)
}

// newGPPosterior returns the posterior of q under the prior covariance k. It copies what it needs
// of q, and keeps fac, the factor of the sites of q. It computes the factor if fac is nil.
func newGPPosterior(g *GP, k []float64, q *term.Marginals, fac *dense.SiteFactor,
	h *parallel.Halt) (*GPPosterior, error) {
	if g.terms.K > 1 {
		return newClassPosterior(g, k, q, h)
	}
	p := &GPPosterior{x: g.x, kernel: g.kernel, lik: likOf(g.terms), jitter: g.opt.Jitter,
		fac: &dense.SiteFactor{Halt: h},
		m:   slices.Clone(q.M), v: slices.Clone(q.V), gamma: slices.Clone(q.Gamma),
		a: slices.Clone(q.A)}
	ok := fac != nil
	if ok {
		p.fac = fac
	} else {
		ok = p.fac.Factor(k, len(p.a), p.gamma)
	}
	if l := g.linear(); l != nil && !site.Conditioned(h, k, p.gamma, site.DualPivot) {
		w, err := (&gauss.Dual{X: l.X, Gamma: p.gamma, Prior: &l.Prior}).State(h)
		if err != nil {
			return nil, err
		}
		b := make([]float64, len(p.a))
		for i, a := range p.a {
			b[i] = a + p.gamma[i]*p.m[i]
		}
		w.Solve(l.X, b, nil, &design.Work{Halt: h})
		p.weights, ok = &gauss.Full{S: w}, true
	}
	if err := h.Err(); err != nil {
		return nil, err
	}
	if p.fac.Halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: the posterior covariance cannot be factorized: %w",
			ErrNotPosDef)
	}
	p.strong, p.fac.C = p.fac.Strong(), nil // K is no longer needed
	p.self = make([]float64, len(p.a))
	for i := range p.self {
		p.self[i] = k[i*len(p.a)+i]
	}
	for _, v := range PriorVar(nil, g.kernel, g.x) {
		p.maxPrior = math.Max(p.maxPrior, v)
	}
	p.workspaces = &sync.Pool{New: func() any { return new(predictWork) }}
	return p, nil
}

// denseOf returns the algebra of st if st is a state of t with a dense algebra.
func denseOf(st Stepper, t *term.Terms) (*site.DenseAlgebra, bool) {
	s, ok := st.(*siteStepper)
	if !ok || !s.terms.Of(t) {
		return nil, false
	}
	d, ok := s.alg.(*site.DenseAlgebra)
	return d, ok
}

func (g *GP) digest(d *save.Digest) {
	n, cols := g.x.Dims()
	d.Int(n, cols)
	d.Float(g.opt.Jitter)
	for i := range n {
		d.Float(g.x.RawRowView(i)...)
	}
	digestValue(d, g.kernel)
}

// classPosterior is Posterior for a Softmax.
func (g *GP) classPosterior(st Stepper) (*GPPosterior, error) {
	s, ok := st.(*siteStepper)
	if !ok || !s.terms.Of(g.terms) {
		return nil, fmt.Errorf("pgsvi: the state, a %T, does not belong to this GP: %w",
			st, ErrParam)
	}
	alg := s.alg.(*site.SoftmaxGP)
	if err := alg.Refresh(); err != nil {
		return nil, prefixed(err)
	}
	return newClassPosterior(g, alg.Covariance(), &alg.Cur, alg.Workers.Halt)
}

// newClassPosterior is newGPPosterior for a Softmax. The result holds a posterior for each class.
func newClassPosterior(g *GP, k []float64, q *term.Marginals, h *parallel.Halt) (*GPPosterior, error) {
	n, classes := g.Len(), g.terms.K
	p := &GPPosterior{x: g.x, kernel: g.kernel, lik: likOf(g.terms), jitter: g.opt.Jitter}
	p.gamma, p.a = append(p.gamma, q.Gamma...), append(p.a, q.A...)
	p.m, p.v = append(p.m, q.M...), append(p.v, q.V...)
	for c := range classes {
		of := &term.Marginals{}
		of.Resize(n)
		for i := range n {
			of.Gamma[i], of.A[i] = q.Gamma[i*classes+c], q.A[i*classes+c]
			of.M[i], of.V[i] = q.M[i*classes+c], q.V[i*classes+c]
		}
		one, terms := *g, *g.terms
		terms.K, one.terms = 1, &terms
		each, err := newGPPosterior(&one, k, of, nil, h)
		if err != nil {
			return nil, err
		}
		p.classes = append(p.classes, each)
	}
	p.maxPrior = p.classes[0].maxPrior
	return p, nil
}

// load reads a posterior from a file. It factorizes the covariance again, in about N³/3 operations.
func (*GPPosterior) load(r io.Reader) (*GPPosterior, error) {
	return loadFrom(r, gpFile, (*savedGP).load)
}

func (s *savedGP) load() (*GPPosterior, error) {
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	n, latents := s.Rows, latentsOf(lik)
	all := len(s.Gamma) // N·K
	if n < 1 || s.Cols < 1 || len(s.X)%n != 0 || len(s.X)/n != s.Cols ||
		all%n != 0 || all/n != latents || len(s.A) != all || len(s.M) != all || len(s.V) != all {
		return nil, fmt.Errorf(
			"%d rows and %d columns with %d inputs and %d, %d, %d, %d site parameters and "+
				"marginals: %w", n, s.Cols, len(s.X), len(s.Gamma), len(s.A), len(s.M), len(s.V),
			ErrShape)
	}
	kernel, err := loadValue(s.Kernel, func(k Kernel) error { return checkKernel(k, s.Cols) })
	if err != nil {
		return nil, err
	}
	for i, v := range s.V {
		if !(v >= 0) {
			return nil, fmt.Errorf("variance %d is %v: %w", i, v, ErrParam)
		}
	}
	g := &GP{opt: GPOptions{Jitter: s.Jitter}, x: mat.NewDense(n, s.Cols, s.X), kernel: kernel,
		terms: &term.Terms{Lik: viewOf(lik), Y: make([]float64, n), K: latents}}
	if err := g.checkMemory("raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	p, err := newGPPosterior(g, k, &term.Marginals{Gamma: s.Gamma, A: s.A, M: s.M, V: s.V}, nil, nil)
	if err == nil {
		p.spread, err = s.Spread.loadGP(p)
	}
	if err == nil {
		p.mixture, err = s.loadMixture(p)
	}
	return p, err
}

// loadMixture returns the mixture of p, whose file is s.
func (s *savedGP) loadMixture(p *GPPosterior) (*mixedPosteriors[*GPPosterior], error) {
	if s.Parts == nil && s.Prob == nil {
		return nil, nil
	}
	if len(s.Prob) != len(s.Parts) {
		return nil, fmt.Errorf("%d probabilities for %d parts: %w", len(s.Prob), len(s.Parts),
			ErrShape)
	}
	if err := checkProbs(s.Prob); err != nil {
		return nil, err
	}
	m := &mixedPosteriors[*GPPosterior]{prob: s.Prob}
	for k, part := range s.Parts {
		if part == nil || part.Parts != nil || len(part.X) > 0 || part.Rows != s.Rows ||
			part.Cols != s.Cols {
			return nil, fmt.Errorf("part %d does not fit the posterior: %w", k, ErrShape)
		}
		part.X = s.X
		of, err := part.load()
		if err == nil && (typeName(of.lik) != typeName(p.lik) ||
			latentsOf(of.lik) != latentsOf(p.lik)) {
			err = fmt.Errorf("its likelihood is %s and not %s: %w", typeName(of.lik),
				typeName(p.lik), ErrShape)
		}
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", k, err)
		}
		of.x = p.x
		m.parts = append(m.parts, of)
	}
	return m, nil
}
