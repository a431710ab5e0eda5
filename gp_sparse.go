package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// SparseGP is a Gaussian process with more data than GP can hold (inducing-point approximation,
// SVGP). It represents the prior by its values at M inducing inputs Z. With the factor of their
// covariance, K(Z, Z) = LLᵀ, and
//
//	x_n = L⁻¹k(Z, x_n),   w ~ N(0, I),   ε_n ~ N(0, c_n),   c_n = k_nn − ‖x_n‖²,
//
// the latent value z_n has the prior of x_nᵀw + ε_n. The approximation q(w) = N(m, V) of the
// posterior maximises the ELBO
//
//	Σ_n E[log p(y_n|z_n)] − KL(q‖N(0, I))   (nats),   z_n ~ N(x_nᵀm, x_nᵀVx_n + c_n).
//
// It is at most the ELBO of the GP, equal to it if every c_n is 0, and does not fall as inducing
// inputs are added (Titsias 2009; Hensman, Matthews and Ghahramani 2015). It is a lower bound on
// the evidence of the exact model. SparseGP.Residual says how much prior variance is left out.
//
// Set-up and each evaluation of the ELBO take about N·M² operations. No jitter is needed.
// NewSparseGP takes rows in memory, and keeps their features, N·M numbers, if these take at most
// 200 MB. NewSparseGPRows reads rows from any source, as often as a fit needs them. A SparseGP is
// a Model, immutable and safe for concurrent use.
//
// Linear and Constant kernels, their Sum, and a Product of Constants and one Linear need no
// inducing inputs: w are the weights of their features, and every c_n is 0. A Sum of such a kernel
// and others has inducing inputs for the others alone where that is more accurate.
//
// Put noise into the likelihood, not into the kernel (White): noise of the kernel is part of c_n,
// which data do not reduce.
type SparseGP struct {
	lin      site.LinearModel // of the features, if they are kept
	x        *mat.Dense       // the rows, if these are,
	terms    *term.Terms      // with their terms
	rows     *sparse.Rows     // what is gone through where the features are not kept
	lik      Likelihood
	z        *sparse.Inducing
	opt      SparseGPOptions
	residual float64
	maxPrior float64
}

// SparseGPOptions are the options of a SparseGP. The zero value, and a nil pointer, choose the
// inducing inputs among the rows of x.
type SparseGPOptions struct {
	// Rank is the largest number M of inducing inputs, with the features of Linear and Constant
	// kernels. Zero means all of Inducing. If Inducing is nil, too, it means as many rows of x as
	// the data need: until 1e−8 of the prior variance is left and it costs less than about 0.001
	// nats (see Residual), but at most 500, or max(100, 500·√(2/K)) for a Softmax of K classes.
	// Learn chooses again, at the kernel that it has learned; see Learner.
	Rank int
	// Inducing has candidates for inducing inputs as rows. They are copied and need not be among
	// those of x. Nil means the rows of x. A kernel that is represented exactly ignores them.
	Inducing mat.Matrix
	// MaxMemory is the number of bytes that the model may take. A model that keeps its features
	// takes about 12 N·M + 180 M², with M at most Rank. If that is too much, NewSparseGP does not
	// keep them but goes through its rows as NewSparseGPRows does, in about 300 M² + 50,000 M
	// bytes and a sample. Zero means 200 MB for the features, and otherwise the limit described
	// at ErrMemory.
	MaxMemory int64
}

// What a SparseGP has at its most, in matrices: of the features, N×M, all of them and one more in
// chunks while they are chosen, and of M×M those of a full covariance over the weights.
const featureMatrices = 1.5

// NewSparseGP returns the model of responses y at the rows of x, under covariance function k and
// likelihood lik. Each inducing input is the candidate whose latent value the earlier ones
// determine least, as in a Cholesky factor of K with complete pivoting (Fine and Scheinberg
// 2001). There are fewer than opt.Rank if no row has more than 1e−13 of its prior variance left,
// which is rounding. Duplicate rows and a singular K are allowed.
//
// Use NewSparseGP for rows in memory, and NewSparseGPRows for those of a file or another source.
// If the features of all rows would take more than 200 MB, or than opt.MaxMemory, every step goes
// through the rows and computes their features again. Inducing inputs are then chosen from 10,000
// of the rows. Fit, Learn, LOO, MoveInducing and predictions work as before. A Solver with a
// StepSize, a BatchSize or a Divergence other than KL then returns an error that wraps ErrParam
// or ErrNoProx; to use these, set opt.MaxMemory to the size of the features.
//
// The data are copied. A nil lik means GaussianNoise{}, a nil opt the zero SparseGPOptions. The
// errors are those of NewGP. They wrap
//   - ErrParam if opt.Rank is negative;
//   - ErrShape if x and opt.Inducing differ in their numbers of columns;
//   - ErrEmpty if that has no rows;
//   - ErrNotFinite if a value of it or a covariance is not finite;
//   - ErrNotPosDef if k is found not to be positive definite;
//   - ErrMemory if the rows and inducing inputs together are too many for opt.MaxMemory.
//
// N alone is never too large.
func NewSparseGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*SparseGP, error) {
	return NewSparseGPContext(context.Background(), x, y, k, lik, opt)
}

// NewSparseGPContext is NewSparseGP with a context: set-up takes of the order of N·M² operations.
// If ctx ends first, the error wraps its cause.
func NewSparseGPContext(ctx context.Context, x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*SparseGP, error) {
	var h parallel.Halt
	h.Watch(ctx)
	g, err := newSparseGPUntil(&h, x, y, k, lik, opt)
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while inducing inputs were chosen: %w", cause)
	}
	return g, err
}

func newSparseGPUntil(h *parallel.Halt, x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*SparseGP, error) {
	if opt == nil {
		opt = &SparseGPOptions{}
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	gp, err := newGP(x, y, k, lik, nil)
	if err != nil {
		return nil, err
	}
	classes := gp.terms.Latents()
	n, m := gp.Len(), cmp.Or(opt.Rank, sparse.Most(classes))
	// rows that the inducing inputs are chosen from, and columns of a copy of them
	from, cols := n, 0
	if opt.Inducing != nil {
		from, cols = opt.Inducing.Dims()
		m = cmp.Or(opt.Rank, from)
	}
	m = min(m, from)
	features := memory.Bytes(featureMatrices, max(n, from), m)
	need := memory.Bytes(1, from, cols) + features + memory.Bytes(site.WeightMatrices, m, m)
	what := fmt.Sprintf("a SparseGP of %d rows and up to %d inducing inputs", n, m)
	if classes > 1 {
		what = fmt.Sprintf("%s, and %d classes", what, classes)
		need += site.ContrastMemory(classes, n, m)
	}
	full := checkMemory(opt.MaxMemory, need, what,
		"use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory")
	if classes > 1 && full != nil {
		return nil, full
	}
	if classes == 1 && (full != nil || opt.MaxMemory == 0 && features > keptFeatures) {
		g := &SparseGP{lik: likOf(gp.terms), opt: *opt, x: gp.x, terms: gp.terms,
			rows: sparse.RowsOf(gp.x, gp.terms)}
		switch err := g.checkStream(); {
		case err == nil:
			if err := g.pass(h, gp.kernel); err != nil {
				return nil, err
			}
			return g, nil
		case full != nil:
			return nil, full
		}
	}
	g, err := newKeptGP(h, gp, opt)
	if err != nil {
		return nil, err
	}
	g.opt = *opt
	return g, nil
}

// keptFeatures is the number of bytes beyond which features are not kept where nobody says how many
// may be.
const keptFeatures = 200e6

// pass makes g, which has its rows, a model that goes through them under k, with inducing inputs as
// newKeptGP chooses them, of a sample.
func (g *SparseGP) pass(h *parallel.Halt, k Kernel) (err error) {
	v := g.divide(h, k)
	z := g.opt.Inducing
	if z == nil && v.Open {
		if z, err = v.Sample(h, g.rows, viewOf(g.lik), g.rank(), g.opt.Rank == 0); err != nil {
			return prefixed(err)
		}
	}
	return g.induce(h, v, z)
}

// check returns an error if an option is out of range.
func (o *SparseGPOptions) check() error {
	if o.Rank < 0 {
		return fmt.Errorf("pgsvi: SparseGPOptions.Rank is %d; 0 is the default: %w", o.Rank,
			ErrParam)
	}
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: SparseGPOptions.MaxMemory is %d: %w", o.MaxMemory, ErrParam)
	}
	_, err := givenOption("SparseGPOptions.Inducing", o.Inducing)
	return err
}

// newKeptGP returns the model of gp, with its features.
func newKeptGP(h *parallel.Halt, gp *GP, opt *SparseGPOptions) (*SparseGP, error) {
	most := sparse.Most(gp.terms.Latents())
	v := sparse.Divide(h, kernelOf(gp.kernel), gp.x, gp.terms, gp.Len(), cmp.Or(opt.Rank, most))
	g := &SparseGP{lik: likOf(gp.terms), x: gp.x, terms: gp.terms}
	if opt.Inducing != nil {
		_, d := gp.x.Dims()
		zs, err := inducingInputs("SparseGPOptions.Inducing", opt.Inducing, d)
		if err != nil {
			return nil, err
		}
		rows, _ := zs.Dims()
		return g, g.keepAmong(h, v, zs, cmp.Or(opt.Rank, rows))
	}
	z, f, err := v.Choose(h, gp.x, gp.terms, opt.Rank, most)
	if err != nil {
		return nil, prefixed(err)
	}
	return g, g.keep(z, f)
}

// keepAmong makes g a model with features that are kept, at up to rank inducing inputs among the
// rows of z.
func (g *SparseGP) keepAmong(h *parallel.Halt, v sparse.Division, z *mat.Dense, rank int) error {
	u, err := v.Among(h, z, rank, g.x, g.terms, g.terms.Len())
	if err != nil {
		return prefixed(err)
	}
	f := u.At(h, g.x)
	if err := h.Err(); err != nil {
		return err
	}
	return g.keep(u, f)
}

// keep makes g the model with features f, N×M, which it keeps.
func (g *SparseGP) keep(z *sparse.Inducing, f []float64) error {
	lin, residual, most, err := z.Linear(g.x, g.terms, f)
	if err != nil {
		return prefixed(err)
	}
	g.z, g.lin, g.residual, g.maxPrior = z, *lin, residual, most
	return nil
}

// NewSparseGPRows is NewSparseGP for any number of rows, of cols columns each, that are not kept
// in memory: rows of a file or another source. For rows in memory use NewSparseGP.
//
// rows is ranged over once to check and count them, and once for each step and evaluation of a
// fit. It must yield the same rows every time: Rows(x, y), a data.RowFile, or a function that
// reads a file from its beginning. A random sample of at most 50,000 rows is kept.
//
// The state is the mean and precision of the weights. A step is the natural-gradient step,
//
//	argmax_{m₊,P₊} ∂ELBO/∂μ·μ₊ − KL(q₊‖q),
//
// with μ the mean parameters of q. It contains a Newton step for the mean, and is halved if the
// ELBO falls (Khan and Lin 2017). A run starts from a fit of the sample. With more rows it then
// makes a Newton step of the mean, with a quarter of the Gram matrix and no variances, and undoes
// it if the ELBO falls. A fit takes two to four passes, and ends when the next one promises less
// than 0.01 nats. Steps are over all rows and choose their own length. It takes memory for about
// 40 M² + 6,000 M numbers for M inducing inputs, and one number for each of at most eight
// million rows.
//
// Zero opt.Rank means 200, and for Learn what the learned kernel needs. If opt.Inducing is nil the
// inducing inputs are chosen from 10,000 rows of the sample, at 0.3 of the lengths of k, so that
// they spread over all of it. The errors are those of NewSparseGP, of rows, and those of Stream.Add
// for a row. An error that wraps ErrShape during a run means that the rows were not the same as the
// first time.
func NewSparseGPRows(ctx context.Context, rows iter.Seq2[Row, error], cols int, k Kernel,
	lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
	g := &SparseGP{lik: lik}
	if opt != nil {
		g.opt = *opt
	}
	if lik == nil {
		g.lik = GaussianNoise{}
	}
	if err := g.opt.check(); err != nil {
		return nil, err
	}
	if k == nil {
		return nil, fmt.Errorf("pgsvi: nil Kernel: %w", ErrParam)
	}
	if cols < 1 {
		return nil, fmt.Errorf("pgsvi: rows of %d columns: %w", cols, ErrEmpty)
	}
	if _, many := g.lik.(Softmax); many {
		return nil, fmt.Errorf(
			"pgsvi: NewSparseGPRows with Softmax, whose rows have several latent values: %w",
			ErrParam)
	}
	if err := errors.Join(checkKernel(k, cols), checkLikelihood(g.lik)); err != nil {
		return nil, err
	}
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: nil rows: %w", ErrEmpty)
	}
	var err error
	if g.rows, err = sparse.NewRows(ctx, checkedRows(rows, cols, g.lik), cols); err != nil {
		return nil, prefixed(err)
	}
	if err := g.checkStream(); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	v := g.divide(&h, k)
	z := g.opt.Inducing
	if z == nil && v.Open {
		if z, err = v.SampleSpread(&h, g.rows, g.rank()); err != nil {
			return nil, g.canceled(&h, prefixed(err))
		}
	}
	if err := g.induce(&h, v, z); err != nil {
		return nil, g.canceled(&h, err)
	}
	return g, nil
}

// checkedRows goes through rows as a sparse GP does: with values of use until the next row. Rows
// that are out of order are errors.
func checkedRows(rows iter.Seq2[Row, error], cols int, lik Likelihood) iter.Seq2[sparse.Row,
	error] {
	return func(yield func(sparse.Row, error) bool) {
		r, n := sparse.Row{Val: make([]float64, cols)}, 0
		for row, err := range rows {
			if err == nil {
				err = prefixed(checkRow(&row, cols, lik, n))
			}
			if err == nil {
				denseRow(r.Val, &row)
				r.Y, r.Offset, r.Weight = row.Y, row.Offset, weightOf(&row)
			}
			n++
			if !yield(r, err) {
				return
			}
		}
	}
}

// divide returns the division of k of a model that goes through its rows.
func (g *SparseGP) divide(h *parallel.Halt, k Kernel) sparse.Division {
	return g.rows.Divide(h, kernelOf(k), viewOf(g.lik), cmp.Or(g.opt.Rank, sparse.Most(1)))
}

// canceled returns err, or what it is where h has stopped.
func (g *SparseGP) canceled(h *parallel.Halt, err error) error {
	if cause := h.Err(); cause != nil {
		return fmt.Errorf("pgsvi: canceled while inducing inputs were chosen: %w", cause)
	}
	return err
}

// rank returns the largest number of inducing inputs of a model that goes through its rows.
func (g *SparseGP) rank() int {
	if g.opt.Inducing != nil {
		n, _ := g.opt.Inducing.Dims()
		return min(n, cmp.Or(g.opt.Rank, n))
	}
	return min(g.rows.N, cmp.Or(g.opt.Rank, g.defaultRank()))
}

// defaultRank returns the most inducing inputs of a model that goes through its rows, where their
// number is ours to choose.
func (g *SparseGP) defaultRank() int {
	if g.x != nil {
		return sparse.Most(1)
	}
	return sparse.StreamRank
}

// checkStream returns an error if the passes over the rows take more memory than they may.
func (g *SparseGP) checkStream() error { return g.checkStreamOf(g.rank()) }

// checkStreamOf is checkStream with up to m inducing inputs.
func (g *SparseGP) checkStreamOf(m int) error {
	need := sparse.Memory(g.rows.N, len(g.rows.Y), g.rows.Cols, m)
	from := min(len(g.rows.Y), sparse.ChooseRows)
	if g.opt.Inducing != nil {
		rows, cols := g.opt.Inducing.Dims()
		from = rows
		need += memory.Bytes(1, rows, cols)
	}
	need += memory.Bytes(featureMatrices, from, m)
	return checkMemory(g.opt.MaxMemory, need,
		fmt.Sprintf("a SparseGP of up to %d inducing inputs", m),
		"use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory")
}

// induce makes z, or up to rank of its rows, the inducing inputs of v of a model that goes through
// its rows.
func (g *SparseGP) induce(h *parallel.Halt, v sparse.Division, z mat.Matrix) error {
	var zs *mat.Dense
	if z != nil || v.Open {
		var err error
		if zs, err = inducingInputs("SparseGPOptions.Inducing", z, g.rows.Cols); err != nil {
			return err
		}
	}
	u, err := v.AmongSample(h, zs, g.rank(), g.rows, viewOf(g.lik))
	if err != nil {
		return prefixed(err)
	}
	return g.settle(h, u)
}

// settle makes u the inducing values of a model that goes through its rows.
func (g *SparseGP) settle(h *parallel.Halt, u *sparse.Inducing) (err error) {
	g.z = u
	if g.residual, g.maxPrior, err = u.Residual(g.rows); err != nil {
		return prefixed(err)
	}
	return h.Err()
}

// Len returns N, the number of observations.
func (g *SparseGP) Len() int {
	if g.rows != nil {
		return g.rows.N
	}
	return g.lin.X.Rows
}

// Rank returns M, the number of inducing inputs and exact features.
func (g *SparseGP) Rank() int { return g.z.Rank() }

// Inducing returns a new matrix with the inducing inputs as rows, in the order of the factor. For
// a kernel that is represented exactly they are inputs at each of which a single feature is not
// zero.
func (g *SparseGP) Inducing() *mat.Dense { return mat.DenseCopyOf(g.z.Inputs()) }

// Residual returns Σ_n c_n, the prior variance of the latent values that the inducing inputs do
// not explain, in their units squared. A datum whose log-likelihood has the expected curvature
// −γ_n loses about ½γ_n c_n nats. γ_n is at most ¼ for BernoulliLogit and 1/σ² for GaussianNoise.
// If the sum is not small, use a higher rank. For rows that are not kept it is estimated from a
// sample.
func (g *SparseGP) Residual() float64 { return g.residual }

// NewStepper implements Model by the Stepper of the GLM of the features: steps over blocks of
// rows, then over all rows, without tuning. Steps with a given step size use the exact gradients
// of their batch. The errors are those of GLM.NewStepper. See NewSparseGPRows for steps of rows
// that are not kept.
func (g *SparseGP) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if g.rows == nil {
		return newLinearStepper(ctx, &g.lin, env, d, linearOptions{covariance: FullCovariance})
	}
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: natural steps of a SparseGP that goes through its rows "+
			"under %s, not KL; %s: %w", spell(d), keepFeatures, ErrNoProx)
	}
	s, err := newSparseStepper(ctx, env, g.z, g.rows, g.lik, nil)
	if err != nil {
		return nil, prefixed(err)
	}
	return s, nil
}

// warnings implements warner.
func (g *SparseGP) warnings() []string {
	return g.farFrom0(false)
}

// farFrom0 warns of responses, or a sample of them, far from 0 under a kernel that vanishes, whose
// scale may be learned.
func (g *SparseGP) farFrom0(learned bool) []string {
	t, x := g.terms, g.x
	if g.rows != nil {
		t, x = g.rows.Terms(viewOf(g.lik), len(g.rows.Y)), g.rows.X
	}
	return farFrom0(t, vanishingSD(kernelIn(g.z.Kernel), x.RawRowView(0)), learned)
}

// Fit runs s on the model; a nil s means the zero Solver, which needs no tuning. The posterior is
// that of the state reached, and is valid even with an error after the set-up. It is nil if the
// set-up failed. The errors are those of Solver.Run.
func (g *SparseGP) Fit(ctx context.Context, s *Solver) (*SparseGPPosterior, *Result, error) {
	return fitModel[*SparseGPPosterior](ctx, s, g)
}

// Posterior returns the posterior at st, a state of this model, for example that of an Iteration.
// The error wraps ErrParam if st is not one. It may also wrap ErrNotPosDef or ErrNotFinite, but
// not after a successful step.
func (g *SparseGP) Posterior(st State) (*SparseGPPosterior, error) {
	if s, ok := st.(*sparseStepper); ok && s.pass.Rows == g.rows && s.pass.Z == g.z {
		q := &gauss.State{}
		q.CopyFrom(s.current())
		return newSparseGPPosterior(g.z, g.lik, slices.Clone(q.Mean), q, g.maxPrior, g.Len()), nil
	}
	if g.rows != nil {
		return nil, fmt.Errorf("pgsvi: a %T is not a state of this model: %w", st, ErrParam)
	}
	mean, cov, err := weightsAt(&g.lin, st)
	if err != nil {
		return nil, err
	}
	if classes, ok := cov.(*gauss.Contrasts); ok {
		return newSparseClassPosterior(g.z, likOf(g.lin.Terms), mean, classes, g.maxPrior, g.Len()),
			nil
	}
	q, err := cov.State(haltOf(st))
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(g.z, likOf(g.lin.Terms), mean, q, g.maxPrior, g.Len()), nil
}

// keepFeatures says how a SparseGP has other steps than natural ones of all rows.
const keepFeatures = "NewSparseGP with a SparseGPOptions.MaxMemory that holds the features " +
	"keeps them, for steps of any kind"

// fitFeatures is the sparse.Fit of the Solver. A state is good even with an error.
func fitFeatures(h *parallel.Halt, lin *site.LinearModel, goal float64, workers int) (*gauss.State,
	error) {
	s := Solver{Goal: goal, MaxPasses: mostRowPasses, Workers: workers}
	q, err := fitWeights(h, lin, &s)
	if q != nil {
		err = nil
	}
	return q, err
}

// sparseStepper is the Stepper of a SparseGP that goes through its rows.
type sparseStepper struct {
	pass    sparse.Pass
	ascent  sparse.Ascent
	pending bool    // the state is that to try
	ceiling float64 // no ELBO is above it, which is proved
	halt    parallel.Halt
	print   fingerprint
}

// newSparseStepper returns that of rows at q, or at a fit of the sample if that is nil.
func newSparseStepper(ctx context.Context, env *Env, z *sparse.Inducing, rows *sparse.Rows,
	lik Likelihood, q *gauss.State) (*sparseStepper, error) {
	s := &sparseStepper{ceiling: math.Inf(1)}
	s.pass.Rows, s.pass.Z, s.pass.Lik, s.pass.Fit = rows, z, viewOf(lik), fitFeatures
	s.ascent.Pass = &s.pass
	defer s.begin(ctx, env).Forget()
	if q == nil {
		var err error
		if q, err = s.pass.Begin(); err != nil {
			return nil, err
		}
	}
	s.ascent.Start(q)
	return s, nil
}

// Len implements State.
func (s *sparseStepper) Len() int { return s.pass.Rows.N }

// Plan implements Stepper.
func (s *sparseStepper) Plan() Plan { return Plan{MaxPasses: mostRowPasses, Sampler: wholePass{}} }

// wholePass is a Sampler of nothing but all rows.
type wholePass struct{}

// Batches implements Sampler.
func (wholePass) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	all := make([]int, min(n, size))
	for i := range all {
		all[i] = i
	}
	return func(yield func([]int) bool) {
		for yield(all) {
		}
	}
}

// begin implements haltable.
func (s *sparseStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.pass.Workers = term.Crew{Workers: env.Workers(), Halt: &s.halt}
	return &s.halt
}

// Step implements Stepper: what the last pass told is where it leads.
func (s *sparseStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step,
	error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if !math.IsInf(beta, 1) || batch != nil && len(batch) != s.Len() {
		return step, fmt.Errorf(
			"a SparseGP that does not keep its features takes all rows in every step and "+
				"chooses the step size, not %d of %d rows with step size %v; %s: %w", len(batch),
			s.Len(), beta, keepFeatures, ErrParam)
	}
	pass := s.ascent.Move
	if !s.ascent.Begun {
		step.more, pass = s.Len(), s.ascent.Begin
	}
	if s.ascent.Look == nil || s.pending {
		if err := pass(); err != nil {
			return step, err
		}
	}
	s.pending = true
	step.GradMap = goals.NeverZero(s.ascent.Length * math.Sqrt(2*s.ascent.Gap()))
	return step, nil
}

// Evaluate implements Stepper.
func (s *sparseStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	for s.ascent.Look == nil || s.pending { // two moves find a state, or an error
		s.ascent.Begun = true
		if err := s.ascent.Move(); err != nil {
			return notEvaluated(), err
		}
		s.pending = false
	}
	x := s.ascent.Look
	e := Evaluation{ELBO: x.ELBO, ELBOErr: goals.NeverZero(x.Err + x.Blurred),
		Gap: goals.NeverZero(x.Promise), Goal: streamGoal}
	slack := x.Err + term.ElboSlack*math.Abs(x.ELBO)
	if s.ascent.Stuck() && !s.ascent.Short {
		e.Gap = goals.NeverZero(x.Err) // no step leads up that could be told from rounding
	}
	if x.Bound > 0 {
		if !math.IsInf(x.Bound, 1) {
			s.ceiling = min(s.ceiling, x.ELBO+x.Bound+slack)
		}
		if e.GapBound, e.Scope = max(s.ceiling-x.ELBO, slack), OverQ; s.ascent.Short {
			e.Gap = max(e.Gap, e.GapBound)
		}
	}
	return e, nil
}

// current is where s is.
func (s *sparseStepper) current() *gauss.State { return s.ascent.At }

// constant reports whether Evaluate would change nothing which later steps depend on.
func (s *sparseStepper) constant() bool { return s.ascent.Look != nil && !s.pending }

// MarshalBinary returns the state.
func (s *sparseStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary puts a state back. The error wraps ErrFile if b is not the state of a Stepper of
// the same model.
func (s *sparseStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *sparseStepper) state(c *save.State) {
	s.print.state(c, s.pass.Digest)
	s.ascent.State(c, s.pass.Z.Rank())
	c.Bool(&s.pending)
	c.Float(&s.ceiling)
}
