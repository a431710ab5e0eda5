package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/mat"
)

// GP is a Gaussian process model for regression and classification. Latent values z_n = z(x_n)
// have the prior z ~ N(0, K), K_ij = k(x_i, x_j), and the observations are y_n ~ p(y|z_n). It is
// a Model. The posterior is approximated by q(z) = N(m, V), which maximises the ELBO
//
//	Σ_n E_q[log p(y_n|z_n)] − KL(q‖N(0, K))   (nats).
//
// A pass takes of the order of N³ operations; for more than some thousands of rows use SparseGP.
// A GP is immutable and safe for concurrent use.
type GP struct {
	x      *mat.Dense
	kernel Kernel
	terms  *term.Terms
	opt    GPOptions
}

// GPOptions are the options of a GP. The zero value, and a nil pointer, mean no jitter and exact
// expectations.
type GPOptions struct {
	// Jitter is added to the diagonal of K in training, not in predictions. A singular K needs
	// none, except with a Divergence other than KL, which needs V⁻¹.
	Jitter float64
	// Estimator estimates the gradients of steps with a given Solver.StepSize. Nil means Exact.
	// Steps of a nil Solver are always exact. A noisy step is shortened if sites of negative γ
	// would take more than nine tenths of the precision of a variable, as noise alone could
	// otherwise make V lose positive definiteness.
	Estimator SiteEstimator
	// MeanUpdate is the update of m in steps with a given step size.
	MeanUpdate MeanUpdate
	// MaxMemory is the number of bytes that the model may take, about 64 N²: K, V, and working
	// memory; with a Softmax of K classes 80 N² + 16 K N². Zero means the limit described at ErrMemory.
	MaxMemory int64
}

// NewGP returns the model of responses y at the rows of x, under covariance function k and
// likelihood lik. The data are copied. A nil lik means GaussianNoise{}, a nil opt the zero
// GPOptions. A zero field of a kernel or likelihood means its documented default, such as a
// Length of 1.
//
// The error names the index of the datum. It wraps
//   - ErrEmpty if there is no row or x is nil or a nil pointer;
//   - ErrShape if lengths disagree;
//   - ErrNotFinite if a value is NaN or infinite;
//   - ErrLabel if a response is outside the support of lik;
//   - ErrParam if an option or a parameter of k or lik is out of range;
//   - ErrNoEstimator if the Estimator does not apply to lik;
//   - ErrMemory if the rows are too many for GPOptions.MaxMemory; use NewSparseGP for these.
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

// checkMemory returns an error if the matrices of g would take more memory than they may.
func (g *GP) checkMemory(instead string) error {
	n := g.Len()
	if k := g.terms.K; k > 1 {
		need := memory.Bytes(site.ContrastGPMatrices(k), n, n) + memory.Bytes(site.ContrastVectors, n, k)
		return checkMemory(g.opt.MaxMemory, need, fmt.Sprintf("a GP of %d rows and %d classes", n, k), instead)
	}
	return checkMemory(g.opt.MaxMemory, memory.Bytes(site.DenseMatrices, n, n), fmt.Sprintf("a GP of %d rows, with %d matrices of %s each,", n, site.DenseMatrices, memory.Size(memory.Bytes(1, n, n))), instead)
}

// newGP is NewGP of any number of rows.
func newGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *GPOptions) (*GP, error) {
	if err := checkMatrix("x", x); err != nil {
		return nil, err
	}
	if len(y) == 0 {
		return nil, fmt.Errorf("pgsvi: a GP needs at least one row: %w", ErrEmpty)
	}
	n, d := x.Dims()
	if n == 0 || d == 0 {
		return nil, fmt.Errorf("pgsvi: x is %d×%d: %w", n, d, ErrEmpty)
	}
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: x has %d rows, y has %d labels: %w", n, len(y), ErrShape)
	}
	if k == nil {
		return nil, fmt.Errorf("pgsvi: nil Kernel: %w", ErrParam)
	}
	if err := checkKernel(k, d); err != nil {
		return nil, err
	}
	g := &GP{kernel: k}
	if opt != nil {
		g.opt = *opt
	}
	if err := checkMemory(g.opt.MaxMemory, memory.Bytes(1, n, d), fmt.Sprintf("a copy of x, %d×%d,", n, d), "use fewer columns, or raise the limit"); err != nil {
		return nil, err
	}
	g.x = mat.DenseCopyOf(x)
	for i := range n {
		if j, ok := dense.AllFinite(g.x.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of x is %v: %w", i, j, g.x.At(i, j), ErrNotFinite)
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
		return nil, fmt.Errorf("pgsvi: GPOptions.MaxMemory is %d: %w", g.opt.MaxMemory, ErrParam)
	}
	if _, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *GP) checkJitter() error {
	if j := g.opt.Jitter; !(j >= 0) || math.IsInf(j, 0) {
		return fmt.Errorf("pgsvi: GPOptions.Jitter is %v; it must be finite and not negative: %w", j, ErrParam)
	}
	return nil
}

// Len returns N, the number of observations.
func (g *GP) Len() int { return g.terms.Len() }

// gram returns K with the jitter, full.
func (g *GP) gram() ([]float64, error) { return g.gramUntil(nil) }

// gramUntil is gram, whose error is that of h where that has stopped.
func (g *GP) gramUntil(h *parallel.Halt) ([]float64, error) {
	if err := g.checkJitter(); err != nil {
		return nil, err
	}
	n := g.Len()
	k, sd := make([]float64, n*n), make([]float64, n)
	if (&rowPairs{x: g.x}).gram(h, k, g.kernel); h.Stopped() {
		return nil, h.Err()
	}
	for i := range sd {
		k[i*n+i] += g.opt.Jitter
		sd[i] = math.Sqrt(k[i*n+i])
	}
	if i, ok := dense.AllFinite(k); !ok {
		return nil, fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", i/n, i%n, k[i], ErrNotFinite)
	}
	for i := range n {
		if err := h.Err(); err != nil {
			return nil, err
		}
		for j := range i + 1 { // what a kernel of the user's can get wrong, as far as pairs show it
			if kij := math.Abs(k[i*n+j]); k[i*n+i] < 0 || kij > sd[i]*sd[j]*(1+1e-6) {
				return nil, fmt.Errorf("pgsvi: covariance %v of rows %d and %d, with variances %v and %v: %w", k[i*n+j], i, j, k[i*n+i], k[j*n+j], ErrNotPosDef)
			}
		}
	}
	return k, nil
}

// Objective returns the model as an Objective over a dense Gaussian q, for use with any method of
// the paper: f = −E_q[Σ_n log p(y_n|z_n)], with gradients by Estimator and exact values, and h =
// KL(q‖N(0, K)). A step has N² parameters and costs several products of N×N matrices. A gradient
// step of Linearized in the coordinates Cholesky or LogCholesky costs a third of one. For all but
// the smallest N use Fit. The error wraps ErrNotPosDef if K is singular without Jitter, and
// ErrMemory if N is too large for GPOptions.MaxMemory.
func (g *GP) Objective() (Objective[*Gaussian], error) {
	if err := oneLatent(likOf(g.terms), "an Objective"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	se, exact, err := siteEstimator(g.opt.Estimator, likOf(g.terms))
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	if err := checkObjective(g.opt.MaxMemory, g.Len(), "use Fit, or raise GPOptions.MaxMemory"); err != nil {
		return Objective[*Gaussian]{}, err
	}
	k, err := g.gram()
	if err != nil {
		return Objective[*Gaussian]{}, err
	}
	n := g.Len()
	prior, err := NewGaussian(nil, mat.NewSymDense(n, k))
	if err != nil {
		return Objective[*Gaussian]{}, fmt.Errorf("pgsvi: covariance of the prior; set GPOptions.Jitter: %w", err)
	}
	return Objective[*Gaussian]{F: &siteSmooth{terms: g.terms, est: se, exact: exact}, H: KLTo(prior), Init: prior}, nil
}

// Fit runs s on the model. A nil s means the zero Solver, which needs no tuning.
//
// The posterior is that of the state reached, and is valid even with an error after the set-up.
// It is nil if the set-up failed, or if the run was canceled and computing it would take more
// than a moment; GP.Posterior of Result.Stepper then computes it. The errors are those of
// Solver.Run.
func (g *GP) Fit(ctx context.Context, s *Solver) (*GPPosterior, *Result, error) {
	return fitModel[*GPPosterior](ctx, s, g)
}

// warnings implements warner.
func (g *GP) warnings() []string {
	return g.farFrom0(false)
}

// farFrom0 warns of responses far from 0 under a kernel that vanishes, whose scale may be learned.
func (g *GP) farFrom0(learned bool) []string {
	return farFrom0(g.terms, vanishingSD(g.kernel, g.x.RawRowView(0)), learned)
}

// NewStepper implements Model.
//
// With d nil or KL every step has a closed form. With any other divergence the step moves along a
// curve: the one on which natural parameters are averaged between λ_k and the minimiser of the
// linearised objective. The length along it minimises λᵀ∇f + h + D/β numerically. For KL the
// exact step lies on the curve. For others it is the best point there, with the same fixed
// points.
//
// The error wraps
//   - ErrNotFinite if a covariance is not finite;
//   - ErrNotPosDef if the Kernel is found not to be positive definite or if K is singular and d
//     is not KL;
//   - ErrNoProx if d is Adaptive, which is for Objective.
func (g *GP) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if _, ok := d.(Adaptive); ok {
		return nil, fmt.Errorf("pgsvi: the sites of a GP have no step with %s, which is in the coordinates of a dense covariance; run it on GP.Objective: %w", spell(d), ErrNoProx)
	}
	s, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate)
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
			return nil, fmt.Errorf("pgsvi: %s with %s, which has steps under KL alone: %w", spell(d), typeName(likOf(g.terms)), ErrNoProx)
		}
		s.build = func(c term.Crew) (site.Algebra, error) { return site.NewContrastGP(s.terms, k, c) }
		if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
			return nil, err
		}
		return s, nil
	}
	if !isKL(d) {
		alg, err := site.NewDenseAlgebra(g.terms, k, term.Crew{Workers: env.Workers(), Halt: &s.halt})
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

// featuresOf returns the features of the rows of x under k, or nil if k has none. If term is not
// negative, the features of all other terms are zero.
func featuresOf(k Kernel, x mat.Matrix, term int) *design.Matrix {
	parts := []Kernel{k}
	if sum, ok := k.(Sum); ok {
		parts = sum
	}
	n, _ := x.Dims()
	g := &design.Matrix{Rows: n}
	for _, row := range denseRows(x, 0, n) {
		for i, part := range parts {
			from := len(g.Dense)
			var ok bool
			if g.Dense, ok = appendFeatures(g.Dense, part, row); !ok {
				return nil
			}
			if term >= 0 && i != term {
				clear(g.Dense[from:])
			}
		}
	}
	if _, ok := dense.AllFinite(g.Dense); !ok || n == 0 {
		return nil
	}
	g.Cols = len(g.Dense) / n
	return g
}

// appendFeatures appends the features of a row under k to dst, and reports whether k has any: those
// of a Sum are those of its terms, and those of a Product the products of those of its factors.
func appendFeatures(dst []float64, k Kernel, row []float64) (to []float64, ok bool) {
	parts, composite := kernelParts(k)
	own, _ := asNative(k)
	f, has := own.(featured)
	switch {
	case has:
		return f.features(dst, row), true
	case composite && isType[Sum](k):
		for _, term := range parts {
			if dst, ok = appendFeatures(dst, term, row); !ok {
				return dst, false
			}
		}
		return dst, true
	case composite:
		all := []float64{1}
		for _, factor := range parts {
			own, ok := appendFeatures(nil, factor, row)
			if !ok || len(own)*len(all) > site.PrimalWeights {
				return dst, false
			}
			next := make([]float64, 0, len(own)*len(all))
			for _, a := range all {
				for _, b := range own {
					next = append(next, a*b)
				}
			}
			all = next
		}
		return append(dst, all...), true
	}
	return dst, false
}

// linear returns g as a linear model in the features of its kernel, nil if there are none or too
// many.
func (g *GP) linear() *site.LinearModel {
	if g.opt.Jitter != 0 {
		return nil
	}
	x := featuresOf(g.kernel, g.x, -1)
	if x == nil || x.Cols > site.PrimalWeights {
		return nil
	}
	l := &site.LinearModel{X: x, Terms: g.terms, Prior: unitPrior(x.Cols), Names: make([]string, x.Cols)}
	for j := range l.Names {
		l.Names[j] = fmt.Sprintf("feature %d", j)
	}
	return l
}

// unitPrior returns N(0, I) of d weights.
func unitPrior(d int) gauss.Prior {
	p := gauss.Prior{Mean: make([]float64, d), Prec: make([]float64, d)}
	for j := range p.Prec {
		p.Prec[j] = 1
	}
	return p
}

// weightSteps returns the algebra of the weights of g's features under the covariance k. It
// returns nil if there are no features, or if float64 represents k well: a feature far from zero
// makes all elements of k nearly equal.
func (g *GP) weightSteps(k []float64, workers term.Crew) (*site.WeightAlgebra, error) {
	l := g.linear()
	if l == nil || site.Conditioned(workers.Halt, k, l.Precisions(workers.Halt, k), site.DualPivot) {
		return nil, workers.Halt.Err()
	}
	return site.NewWeightAlgebra(l, workers)
}

// GPPosterior is the approximate posterior q(z) = N(m, V) of a GP, for predictions. It is
// immutable and safe for concurrent use. It keeps the training inputs and a triangular matrix of
// about N²/2 numbers. GP.PSIS checks how good the approximation is. GP.LOO is leave-one-out
// cross-validation.
//
// Its methods take new points as the rows of x, and panic if x has another number of columns than
// the training inputs. They work on blocks of rows in bounded memory, shared between cores; the
// results do not depend on the blocks. A row with a NaN or an infinity, or with a covariance that
// overflows, has latent mean 0 and the largest prior variance of a training point.
type GPPosterior struct {
	x                *mat.Dense
	kernel           Kernel
	lik              Likelihood
	a                []float64 // K⁻¹m
	m, v             []float64 // marginals at the training points
	gamma            []float64
	jitter, maxPrior float64
	self             []float64 // diagonal of K
	strong           bool      // some sites are far more precise than the prior
	whole            Kernel    // of which kernel is a term; nil if it is all of it
	term             int       // that it is
	// of the features of the kernel, with their mean, where float64 does not hold K; else nil
	weights    *gauss.Full
	fac        *dense.Sites
	workspaces *sync.Pool
	// of a Softmax, those of the classes; what this one has is then of all of them, row by row
	classes []*GPPosterior
}

// Posterior returns the posterior at st, a state of this model, for example that of an Iteration.
// The error wraps ErrParam if st is not one. It may also wrap ErrNotPosDef or ErrNotFinite, but
// not after a successful step.
func (g *GP) Posterior(st State) (*GPPosterior, error) {
	if g.terms.K > 1 {
		return g.classPosterior(st)
	}
	s, ok := denseOf(st, g.terms)
	if !ok {
		return nil, fmt.Errorf("pgsvi: a %T is not a state of this GP: %w", st, ErrParam)
	}
	back, err := s.Peek()
	defer back()
	if err != nil {
		// Where only the expectations overflow, m and V are what they are.
		_, mean := dense.AllFinite(s.Cur.M)
		_, variance := dense.AllFinite(s.Cur.V)
		if !errors.Is(err, ErrNotFinite) || !mean || !variance {
			return nil, err
		}
	}
	return newGPPosterior(g, s.K, &s.Cur, s.CopyFactor(), s.Workers.Halt)
}

// newGPPosterior returns the posterior of state q under the prior covariance k; fac is the factor of
// its sites, which it keeps, nil where that is not at hand. It copies what it keeps of q.
func newGPPosterior(g *GP, k []float64, q *term.State, fac *dense.Sites, h *parallel.Halt) (*GPPosterior, error) {
	if g.terms.K > 1 {
		return newClassPosterior(g, k, q, h)
	}
	p := &GPPosterior{x: g.x, kernel: g.kernel, lik: likOf(g.terms), jitter: g.opt.Jitter, fac: &dense.Sites{Halt: h},
		m: slices.Clone(q.M), v: slices.Clone(q.V), gamma: slices.Clone(q.Gamma), a: slices.Clone(q.A)}
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
		return nil, fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	p.strong, p.fac.C = p.fac.Strong(), nil // K is not needed any more
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

// Len returns N, the number of training points.
func (p *GPPosterior) Len() int {
	n, _ := p.x.Dims()
	return n
}

// Cols returns the number of columns that new points must have.
func (p *GPPosterior) Cols() int {
	_, d := p.x.Dims()
	return d
}

// Train stores mean and variance of the latent values at the training points, under the prior
// with jitter; nil slices allocate. For a Softmax of K classes they have K for each point, row by
// row.
func (p *GPPosterior) Train(mean, variance []float64) (m, v []float64) {
	m, v = dense.Dest(mean, len(p.m)), dense.Dest(variance, len(p.m))
	copy(m, p.m)
	copy(v, p.v)
	return m, v
}

// Sites stores the site parameters γ and b in gamma and b; nil allocates. The
// posterior at the training points is V⁻¹ = K⁻¹ + diag(γ), V⁻¹m = b. For a Softmax of K classes
// they have K for each point, row by row, and each class has its V.
func (p *GPPosterior) Sites(gamma, b []float64) (g, h []float64) {
	g, h = dense.Dest(gamma, len(p.m)), dense.Dest(b, len(p.m))
	copy(g, p.gamma)
	for i, a := range p.a {
		h[i] = a + g[i]*p.m[i]
	}
	return g, h
}

// At returns the prediction for each row of x. The latent value z(x), without noise
// and jitter, has mean and variance
//
//	k*ᵀK⁻¹m,   k** − k*ᵀ(K⁻¹ − K⁻¹VK⁻¹)k*.
func (p *GPPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Part returns the prediction of term i of a kernel that is a Sum, at each row of x: that term's
// contribution to the latent value, such as the trend or the season. With k_i the covariances of
// term i and K those of all terms, its mean and variance are
//
//	k_i*ᵀK⁻¹m,   k_i** − k_i*ᵀ(K⁻¹ − K⁻¹VK⁻¹)k_i*
//
// (Duvenaud 2014, section 2.4). A linear trend is a Sum with a Linear and a Constant. Its
// coefficients are the part of the Linear at the rows of an identity matrix, and its intercept
// the part of the Constant anywhere. Part panics if the kernel is not a Sum or has no term i.
func (p *GPPosterior) Part(i int, x mat.Matrix) *Prediction {
	if p.classes != nil {
		return p.classPart(i, x)
	}
	q := predictAt(p.part(i), x)
	return &q
}

// part returns the posterior of term i of the kernel.
func (p *GPPosterior) part(i int) *GPPosterior {
	part := *p
	part.kernel, part.whole, part.term, part.strong = sumTerm(p.kernel, i), p.kernel, i, false
	part.maxPrior = slices.Max(PriorVar(nil, part.kernel, p.x))
	return &part
}

// sumTerm returns term i of k. It panics if k is no Sum, or has no such term.
func sumTerm(k Kernel, i int) Kernel {
	terms, _ := kernelParts(k)
	if !isType[Sum](k) || i < 0 || i >= len(terms) {
		panic(fmt.Sprintf("pgsvi: the kernel, %s, has no term %d", kernelName(k), i))
	}
	return terms[i]
}

// features returns the features of the rows of x, or nil if there are none. If p is of one term,
// the features of all other terms are zero.
func (p *GPPosterior) features(x mat.Matrix) *design.Matrix {
	if p.whole == nil {
		return featuresOf(p.kernel, x, -1)
	}
	return featuresOf(p.whole, x, p.term)
}

// Prob stores P(Y = y) for each row of x in dst; nil allocates. It is At(x).Prob(dst, y). A row
// without a prediction is NaN; At(x).Err() says why.
func (p *GPPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *GPPosterior) likelihood() Likelihood { return p.lik }

// latent implements latents.
func (p *GPPosterior) latent(m, v []float64, x mat.Matrix) {
	if p.classes != nil {
		p.latentClasses(m, v, x)
		return
	}
	rows := len(m)
	workers := runtime.GOMAXPROCS(0)
	works := make([]*predictWork, workers)
	parallel.For(rows, predictBlock, workers, func(i, lo, hi int) {
		if works[i] == nil {
			works[i] = p.workspaces.Get().(*predictWork)
		}
		p.latentBlock(works[i], m[lo:hi], v[lo:hi], x, lo)
	})
	for _, w := range works {
		if w != nil {
			p.workspaces.Put(w)
		}
	}
}

func (p *GPPosterior) latentBlock(w *predictWork, m, v []float64, x mat.Matrix, lo int) {
	t, n := len(m), p.Len()
	p.cross(w, x, lo, t)
	if p.weights != nil {
		f := p.features(w.x)
		for i := range m {
			m[i], v[i] = 0, p.maxPrior
		}
		if f != nil {
			p.weights.S.Predict(m, f, nil)
			p.weights.Variances(v, f, nil)
		}
		p.unknown(w, m, v)
		return
	}
	dense.Gemv(blas.Trans, 1, dense.General(w.k.RawMatrix().Data, n, t), dense.Vector(p.a), 0, dense.Vector(m))
	PriorVar(v, p.kernel, w.x)
	if p.strong {
		w.near.prior = append(w.near.prior[:0], v...)
	}
	p.fac.Expand(&w.exp, w.k.RawMatrix().Data, t)
	w.exp.SubVar(v)
	if p.strong {
		p.latentNear(w, m, v)
	}
	p.unknown(w, m, v)
}

// unknown gives rows with a NaN or an infinity the moments of the prior.
func (p *GPPosterior) unknown(w *predictWork, m, v []float64) {
	for i, known := range w.known {
		if sum := m[i] + v[i]; !known || math.IsNaN(sum) || math.IsInf(sum, 0) {
			m[i], v[i] = 0, p.maxPrior
		}
		v[i] = math.Max(0, v[i])
	}
}

// nearWork is the workspace of latentNear.
type nearWork struct {
	prior         []float64 // k**
	point, site   []int     // points that are near, and to which training points
	rest          []float64 // k_dd
	x, diff, unit *mat.Dense
	diffs, units  dense.Expansion
	cross         []float64
}

// nearPart is the part of its prior variance that the difference from a training point may have
// if that point serves as reference.
const nearPart = 1e-2

// latentNear computes points near training points i of strong sites from there, as k** − k*ᵀ(…)k*
// may be smaller than the rounding of k**. With k_d = k* − Ke_i and W = K⁻¹ − K⁻¹VK⁻¹, the same
// is
//
//	m_i + k_dᵀK⁻¹m,   V_ii + 2(Wk_d)_i/γ_i + k_dd − k_dᵀWk_d,   k_dd = k** − 2k*_i + K_ii.
//
// At the training point itself only m_i and V_ii are left.
func (p *GPPosterior) latentNear(w *predictWork, m, v []float64) {
	t, n, k := &w.near, p.Len(), w.k.RawMatrix()
	t.point, t.site, t.rest = t.point[:0], t.site[:0], t.rest[:0]
	for a, prior := range t.prior {
		best, at := 0.0, -1
		for i, self := range p.self {
			if p.gamma[i]*self > dense.StrongSite {
				if c := k.Data[i*k.Stride+a]; c > 0 && c*c > best*self {
					best, at = c*c/self, i
				}
			}
		}
		if at < 0 {
			continue
		}
		if rest := prior - 2*k.Data[at*k.Stride+a] + p.self[at]; rest < nearPart*prior {
			t.point, t.site, t.rest = append(t.point, a), append(t.site, at), append(t.rest, math.Max(0, rest))
		}
	}
	r := len(t.point)
	if r == 0 {
		return
	}
	if t.x == nil || t.x.RawMatrix().Rows != r {
		t.x, t.diff, t.unit = mat.NewDense(r, p.Cols(), nil), mat.NewDense(n, r, nil), mat.NewDense(n, r, nil)
	}
	t.unit.Zero()
	for b, i := range t.site {
		t.x.SetRow(b, p.x.RawRowView(i))
		t.unit.Set(i, b, 1)
	}
	CrossCov(t.diff, p.kernel, p.x, t.x)
	for b, a := range t.point {
		t.diff.Set(t.site[b], b, p.self[t.site[b]])
		m[a] = p.m[t.site[b]]
		for i, ai := range p.a {
			d := k.Data[i*k.Stride+a] - t.diff.At(i, b)
			t.diff.Set(i, b, d)
			m[a] += d * ai
		}
	}
	p.fac.Expand(&t.diffs, t.diff.RawMatrix().Data, r)
	p.fac.Expand(&t.units, t.unit.RawMatrix().Data, r)
	t.cross = dense.Resize(t.cross, r)
	t.diffs.Cross(t.cross, &t.units)
	t.diffs.SubVar(t.rest)
	for b, a := range t.point {
		i := t.site[b]
		v[a] = p.v[i] + 2*t.cross[b]/p.gamma[i] + math.Max(0, t.rest[b])
	}
}

// cross stores rows lo … lo+t−1 of x in w.x and K(X, x) for them, N×t, in w.k.
func (p *GPPosterior) cross(w *predictWork, x mat.Matrix, lo, t int) {
	d := p.Cols()
	if w.x == nil || w.x.RawMatrix().Rows != t {
		w.x, w.k = mat.NewDense(t, d, nil), mat.NewDense(p.Len(), t, nil)
	}
	w.known = dense.Resize(w.known, t)
	to := w.x.RawMatrix()
	copyRows(to.Data, to.Stride, x, lo, lo+t)
	for i := range t {
		row := w.x.RawRowView(i)
		if _, w.known[i] = dense.AllFinite(row); !w.known[i] {
			clear(row)
		}
	}
	CrossCov(w.k, p.kernel, p.x, w.x)
}

// Joint returns mean and covariance of the joint distribution of the latent values at the rows of
// x. It takes memory for rows × (rows + N) numbers. The error wraps
//   - ErrEmpty if x has no rows;
//   - ErrNotFinite if a value of x is not finite;
//   - ErrMemory if there are too many rows.
func (p *GPPosterior) Joint(x mat.Matrix) (mean []float64, cov *mat.SymDense, err error) {
	if err := cmp.Or(checkMatrix("x", x), oneLatent(p.lik, "a joint distribution")); err != nil {
		return nil, nil, err
	}
	t := checkColumns(x, p.Cols())
	if t == 0 {
		return nil, nil, fmt.Errorf("pgsvi: x has no rows: %w", ErrEmpty)
	}
	if err := checkMemory(0, memory.Bytes(2, t, t)+memory.Bytes(3, t, p.Len()), fmt.Sprintf("the joint posterior at %d rows", t), "take fewer rows, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, nil, err
	}
	w := new(predictWork)
	p.cross(w, x, 0, t)
	for i, known := range w.known {
		if !known {
			return nil, nil, fmt.Errorf("pgsvi: row %d of x has a value that is not finite: %w", i, ErrNotFinite)
		}
	}
	mean = make([]float64, t)
	if f := p.features(w.x); p.weights != nil && f != nil {
		p.weights.S.Predict(mean, f, nil)
		z := make([]float64, f.Cols*t) // L⁻¹φ in its columns
		for i := range t {
			for j, v := range f.Dense[i*f.Cols : (i+1)*f.Cols] {
				z[j*t+i] = v
			}
		}
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.weights.S.L, f.Cols), dense.General(z, f.Cols, t))
		c := make([]float64, t*t)
		dense.Syrk(blas.Trans, 1, dense.General(z, f.Cols, t), 0, dense.Symmetric(c, t))
		return mean, dense.FullSym(c, t), nil
	}
	dense.Gemv(blas.Trans, 1, dense.General(w.k.RawMatrix().Data, p.Len(), t), dense.Vector(p.a), 0, dense.Vector(mean))
	prior := mat.NewDense(t, t, nil)
	CrossCov(prior, p.kernel, w.x, w.x)
	c := prior.RawMatrix().Data
	p.fac.Expand(&w.exp, w.k.RawMatrix().Data, t)
	w.exp.SubCov(c)
	dense.FillUpper(c, t)
	return mean, mat.NewSymDense(t, c), nil
}

// Rand stores joint draws of the latent values at the rows of x in the rows of dst, of size draws
// × rows of x. dst must not be nil; its number of rows is the number of draws. If the covariance
// is singular to rounding, the draws use the part that can be factorised. The errors are those of
// Joint.
func (p *GPPosterior) Rand(dst *mat.Dense, x mat.Matrix, rng *rand.Rand) error {
	mean, cov, err := p.Joint(x)
	if err != nil {
		return err
	}
	draws, cols := dst.Dims()
	if cols != len(mean) {
		panic(fmt.Sprintf("pgsvi: dst has %d columns, x has %d rows", cols, len(mean)))
	}
	var chol mat.PivotedCholesky
	chol.Factorize(cov, -1)
	var u mat.TriDense
	chol.UTo(&u)
	piv := chol.ColumnPivots(nil)
	eps := make([]float64, cols)
	for i := range draws {
		row := dst.RawRowView(i)
		for j := range eps {
			eps[j] = 0
			if j < chol.Rank() {
				eps[j] = rng.NormFloat64()
			}
		}
		for j := range row { // PᵀCP = UᵀU
			s := 0.0
			for k := range min(j+1, chol.Rank()) {
				s += u.At(k, j) * eps[k]
			}
			row[piv[j]] = mean[piv[j]] + s
		}
	}
	return nil
}

// gpFile is the file of a GPPosterior.
var gpFile = save.Kind{Name: "GPPosterior", Version: 1}

// savedGP is a GPPosterior as JSON: the inputs, what they were modelled with,
// and q in site form.
type savedGP struct {
	Rows       int                `json:"rows"`
	Cols       int                `json:"cols"`
	Kernel     save.Value         `json:"kernel"`
	Likelihood save.Value         `json:"likelihood"`
	Jitter     float64            `json:"jitter"`
	X          save.List[float64] `json:"x"` // row by row
	Gamma      save.List[float64] `json:"gamma"`
	A          save.List[float64] `json:"a"` // K⁻¹m
	M          save.List[float64] `json:"m"`
	V          save.List[float64] `json:"v"`
}

// Save writes p; Load restores a posterior with the same predictions, to the last bit. The format
// is a line that names the kind of file, JSON, and a checksum. The error is that of w. It wraps
// ErrParam if the type of the kernel or likelihood is not registered (Register), or if
// encoding/json cannot write and read it.
func (p *GPPosterior) Save(w io.Writer) error {
	rows, cols := p.x.Dims()
	s := &savedGP{Rows: rows, Cols: cols, Jitter: p.jitter,
		X: p.x.RawMatrix().Data, Gamma: p.gamma, A: p.a, M: p.m, V: p.v}
	var err error
	if s.Kernel, err = saveValue(p.kernel); err != nil {
		return err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, gpFile, s)
}

// load reads p of a file; it factorises the covariance anew, in about N³/3 operations.
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
		return nil, fmt.Errorf("%d rows and %d columns with %d inputs and %d, %d, %d, %d site parameters and marginals: %w", n, s.Cols, len(s.X), len(s.Gamma), len(s.A), len(s.M), len(s.V), ErrShape)
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
	g := &GP{opt: GPOptions{Jitter: s.Jitter}, x: mat.NewDense(n, s.Cols, s.X), kernel: kernel, terms: &term.Terms{Lik: viewOf(lik), Y: make([]float64, n), K: latents}}
	if err := g.checkMemory("raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	return newGPPosterior(g, k, &term.State{Gamma: s.Gamma, A: s.A, M: s.M, V: s.V}, nil, nil)
}

// denseOf returns the algebra of st, if that is a state of t with a dense one.
func denseOf(st State, t *term.Terms) (*site.DenseAlgebra, bool) {
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

// predictWork is the memory of one block.
type predictWork struct {
	x, k  *mat.Dense
	exp   dense.Expansion
	known []bool
	near  nearWork
}
