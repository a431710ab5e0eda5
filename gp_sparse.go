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

// A SparseGP is a Gaussian process for more data than GP can hold (inducing-point approximation,
// SVGP). It represents the prior by its values at M inducing inputs Z. With the factor of their
// covariance, K(Z, Z) = LLᵀ, and
//
//	x_n = L⁻¹k(Z, x_n),   w ~ N(0, I),   ε_n ~ N(0, c_n),   c_n = k_nn − ‖x_n‖²,
//
// the latent value z_n has the same prior as x_nᵀw + ε_n. The approximation q(w) = N(m, V) of the
// posterior maximizes the ELBO
//
//	Σ_n E[log p(y_n|z_n)] − KL(q‖N(0, I))   (nats),   z_n ~ N(x_nᵀm, x_nᵀVx_n + c_n).
//
// This ELBO is at most the ELBO of the GP, is equal to it if every c_n is 0, and does not fall if
// inducing inputs are added (Titsias 2009; Hensman, Matthews and Ghahramani 2015). It is a lower
// bound on the evidence of the exact model. SparseGP.Residual returns the prior variance that is
// left out.
//
// The set-up and each evaluation of the ELBO take about N·M² operations. No jitter is needed.
// NewSparseGP takes rows in memory and keeps their features, N·M numbers, if these take at most 200
// MB. NewSparseGPRows reads rows from any source whenever a fit needs them. A SparseGP is a Model.
// It is immutable and safe for concurrent use.
//
// Linear and Constant kernels, their Sum, and a Product of Constants and one Linear need no
// inducing inputs: w holds the weights of their features, and every c_n is 0. A Sum of such a
// kernel and others uses inducing inputs only for the others if that is more accurate.
//
// Put noise into the likelihood and not into the kernel (White), because noise of the kernel is
// part of c_n, which data do not reduce.
type SparseGP struct {
	lin      site.LinearModel // model of the features, if they are kept
	x        *mat.Dense       // rows, if they are kept
	terms    *term.Terms      // terms of these rows
	rows     *sparse.Rows     // rows that each pass reads, if the features are not kept
	lik      Likelihood
	z        *sparse.Inducing
	opt      SparseGPOptions
	residual float64
	maxPrior float64
}

// SparseGPOptions holds the options of a SparseGP. The zero value and a nil pointer choose the
// inducing inputs from the rows of x.
type SparseGPOptions struct {
	// Rank is the largest number M of inducing inputs, including the features of Linear and
	// Constant kernels. Zero means all of Inducing. If Inducing is also nil, zero means as many
	// rows of x as the data need: until only 1e−8 of the prior variance is left out, at a cost
	// below about 0.001 nats (see Residual), but at most 500, or max(100, 500·√(2/K)) for a Softmax
	// of K classes. Learn chooses the number again for the kernel that it has learned; see Learner.
	Rank int
	// Inducing holds candidates for inducing inputs as rows, which are copied. They need not be
	// rows of x. Nil means the rows of x. A kernel that is represented exactly ignores them.
	Inducing mat.Matrix
	// MaxMemory is the number of bytes that the model may take. A model that keeps its features
	// takes about 12 N·M + 180 M² bytes, with M at most Rank. If that exceeds the limit,
	// NewSparseGP does not keep the features. It then reads its rows in every pass, like
	// NewSparseGPRows, and takes about 300 M² + 50,000 M bytes and a sample. Zero means 200 MB for
	// the features, and the limit described at ErrMemory for everything else.
	MaxMemory int64
}

// featureMatrices is the peak memory of a SparseGP in N×M matrices. It holds all features, and up
// to half of them again in chunks while the inducing inputs are chosen. A full covariance over the
// weights needs M×M matrices in addition.
const featureMatrices = 1.5

// NewSparseGP returns the model of the responses y in the rows of x, with covariance function k and
// likelihood lik. Each inducing input is the candidate whose latent value is determined least by
// the earlier inducing inputs, as in a Cholesky factor of K with complete pivoting (Fine and
// Scheinberg 2001). There are fewer inducing inputs than opt.Rank if no row has more than 1e−13 of
// its prior variance left, which is rounding. Duplicate rows and a singular K are allowed.
//
// Use NewSparseGP for rows in memory, and NewSparseGPRows for rows of a file or another source. If
// the features of all rows would take more than 200 MB, or more than opt.MaxMemory, every step
// reads the rows and computes their features again. The inducing inputs are then chosen from 10,000
// of the rows. Fit, Learn, LOO, MoveInducing and predictions work as before, but a Solver with a
// StepSize, a BatchSize or a Divergence other than KL returns an error that wraps ErrParam or
// ErrNoProx. To use these options, set opt.MaxMemory to the size of the features.
//
// x and y are copied. A nil lik means GaussianNoise{}, and a nil opt means the zero
// SparseGPOptions. NewSparseGP returns the errors of NewGP. In addition, the error wraps
//   - ErrParam if opt.Rank is negative;
//   - ErrShape if x and opt.Inducing have different numbers of columns;
//   - ErrEmpty if opt.Inducing has no rows;
//   - ErrNotFinite if a value of opt.Inducing or a covariance is not finite;
//   - ErrNotPosDef if k is found not to be positive definite;
//   - ErrMemory if the rows and inducing inputs together need more memory than opt.MaxMemory.
//
// A large N alone never causes an error.
func NewSparseGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*SparseGP, error) {
	return NewSparseGPContext(context.Background(), x, y, k, lik, opt)
}

// NewSparseGPContext is NewSparseGP with a context, because the set-up takes on the order of N·M²
// operations. The error wraps the cause of ctx if ctx ends before the set-up.
func NewSparseGPContext(ctx context.Context, x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*SparseGP, error) {
	var h parallel.Halt
	h.Watch(ctx)
	g, err := newSparseGPUntil(&h, x, y, k, lik, opt)
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the inducing inputs were chosen: %w", cause)
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
	// The inducing inputs are chosen from this number of rows, and a copy of them has cols columns.
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
		need += site.SoftmaxMemory(classes, n, m)
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

// keptFeatures is the default limit in bytes for features that are kept.
const keptFeatures = 200e6

// pass turns g, which has its rows, into a model that reads them in every pass under k. It chooses
// inducing inputs like newKeptGP, but from a sample.
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
		return fmt.Errorf("pgsvi: SparseGPOptions.Rank is %d; it must be positive, or 0 for the "+
			"default: %w", o.Rank, ErrParam)
	}
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: SparseGPOptions.MaxMemory is %d; it must not be negative: %w",
			o.MaxMemory, ErrParam)
	}
	_, err := givenOption("SparseGPOptions.Inducing", o.Inducing)
	return err
}

// newKeptGP returns the model of gp and keeps its features.
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

// keepAmong turns g into a model that keeps its features, with up to rank inducing inputs from the
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

// keep turns g into the model with features f, N×M. It keeps f.
func (g *SparseGP) keep(z *sparse.Inducing, f []float64) error {
	lin, residual, most, err := z.Linear(g.x, g.terms, f)
	if err != nil {
		return prefixed(err)
	}
	g.z, g.lin, g.residual, g.maxPrior = z, *lin, residual, most
	return nil
}

// NewSparseGPRows is NewSparseGP for any number of rows that are not kept in memory, such as rows
// of a file. Each row has cols columns. For rows in memory use NewSparseGP.
//
// rows is read once to check and count the rows, and once for each step and evaluation of a fit. It
// must yield the same rows every time: use Rows(x, y), a data.RowFile, or a function that reads a
// file from its beginning. A random sample of at most 50,000 rows is kept.
//
// The state of a fit is the mean and the precision of the weights. A step is the natural-gradient
// step,
//
//	argmax_{m₊,P₊} ∂ELBO/∂μ·μ₊ − KL(q₊‖q),
//
// where μ are the mean parameters of q. It contains a Newton step for the mean, and is halved if
// the ELBO falls (Khan and Lin 2017). A run starts from a fit of the sample. If there are more
// rows, it then makes a Newton step of the mean, with a quarter of the Gram matrix and no
// variances, and undoes the step if the ELBO falls. A fit takes two to four passes, and ends when
// the predicted gain of the next pass is below 0.01 nats. Steps use all rows and choose their own
// length. The run stores about 40 M² + 6,000 M numbers for M inducing inputs, and one number per
// row for at most eight million rows.
//
// A zero opt.Rank means 200; for Learn it means the number that the learned kernel needs. If
// opt.Inducing is nil, the inducing inputs are chosen from 10,000 rows of the sample, at 0.3 times
// the length scales of k, so that they spread over the whole sample. NewSparseGPRows returns the
// errors of NewSparseGP and of rows, and the errors of Stream.Add for a row. If an error during a
// run wraps ErrShape, rows did not yield the same rows as the first time.
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
		return nil, fmt.Errorf("pgsvi: the Kernel is nil; a SparseGP needs one: %w", ErrParam)
	}
	if cols < 1 {
		return nil, fmt.Errorf("pgsvi: rows with %d columns; a SparseGP needs at least one "+
			"column: %w", cols, ErrEmpty)
	}
	if _, many := g.lik.(Softmax); many {
		return nil, fmt.Errorf(
			"pgsvi: NewSparseGPRows does not support Softmax; use NewSparseGP: %w",
			ErrParam)
	}
	if err := errors.Join(checkKernel(k, cols), checkLikelihood(g.lik)); err != nil {
		return nil, err
	}
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: rows is nil; NewSparseGPRows needs rows: %w", ErrEmpty)
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

// checkedRows yields the rows in the form that a sparse GP reads. The values are valid until the
// next row. It yields an error for an invalid row.
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

// divide returns the division of k for a model that reads its rows in every pass.
func (g *SparseGP) divide(h *parallel.Halt, k Kernel) sparse.Division {
	return g.rows.Divide(h, kernelOf(k), viewOf(g.lik), cmp.Or(g.opt.Rank, sparse.Most(1)))
}

// canceled returns err, or a cancellation error if h has stopped.
func (g *SparseGP) canceled(h *parallel.Halt, err error) error {
	if cause := h.Err(); cause != nil {
		return fmt.Errorf("pgsvi: canceled while the inducing inputs were chosen: %w", cause)
	}
	return err
}

// rank returns the largest number of inducing inputs of a model that reads its rows in every pass.
func (g *SparseGP) rank() int {
	if g.opt.Inducing != nil {
		n, _ := g.opt.Inducing.Dims()
		return min(n, cmp.Or(g.opt.Rank, n))
	}
	return min(g.rows.N, cmp.Or(g.opt.Rank, g.defaultRank()))
}

// defaultRank returns the default for the largest number of inducing inputs of a model that reads
// its rows in every pass.
func (g *SparseGP) defaultRank() int {
	if g.x != nil {
		return sparse.Most(1)
	}
	return sparse.StreamRank
}

// checkStream returns an error if the passes over the rows exceed the memory limit.
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

// induce makes z, or up to rank of its rows, the inducing inputs of v. The model reads its rows in
// every pass.
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

// settle makes u the inducing values of a model that reads its rows in every pass.
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

// Inducing returns a new matrix with the inducing inputs as rows, in the order of the factor. For a
// kernel that is represented exactly, each row is an input at which only one feature is nonzero.
func (g *SparseGP) Inducing() *mat.Dense { return mat.DenseCopyOf(g.z.Inputs()) }

// Residual returns Σ_n c_n, the prior variance of the latent values that the inducing inputs do not
// explain, in their units squared. An observation whose log-likelihood has the expected curvature
// −γ_n loses about ½γ_n c_n nats. γ_n is at most ¼ for BernoulliLogit and 1/σ² for GaussianNoise.
// If the sum is not small, use a higher rank. Residual estimates the sum from a sample if the rows
// are not kept.
func (g *SparseGP) Residual() float64 { return g.residual }

// NewStepper implements Model. It returns the Stepper of a GLM of the features, which first takes
// steps over blocks of rows and then over all rows, without tuning. Steps with a given step size
// use the exact gradients of their batch. It returns the errors of GLM.NewStepper. NewSparseGPRows
// describes the steps if the rows are not kept.
func (g *SparseGP) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if g.rows == nil {
		return newLinearStepper(ctx, &g.lin, env, d, linearOptions{covariance: FullCovariance})
	}
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: a SparseGP that does not keep its features has no "+
			"step with %s; use KL, or %s: %w", spell(d), keepFeatures, ErrNoProx)
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

// farFrom0 warns if the responses, or a sample of them, are far from 0 and the kernel vanishes at a
// distance. If learned is true, the scale is assumed to be learned.
func (g *SparseGP) farFrom0(learned bool) []string {
	t, x := g.terms, g.x
	if g.rows != nil {
		t, x = g.rows.Terms(viewOf(g.lik), len(g.rows.Y)), g.rows.X
	}
	return farFrom0(t, vanishingSD(kernelIn(g.z.Kernel), x.RawRowView(0)), learned)
}

// Fit runs s on the model. A nil s means the zero Solver, which needs no tuning. The posterior
// belongs to the last state of the run and is valid even if the run ends with an error. It is nil
// if the run could not start. Fit returns the errors of Solver.Run.
func (g *SparseGP) Fit(ctx context.Context, s *Solver) (*SparseGPPosterior, *Result, error) {
	return fitModel[*SparseGPPosterior](ctx, s, g)
}

// Posterior returns the posterior at st, which must be a state of this model, such as the state of
// an Iteration. The error wraps ErrParam if st belongs to another model. It may also wrap
// ErrNotPosDef or ErrNotFinite, but not after a successful step.
func (g *SparseGP) Posterior(st Stepper) (*SparseGPPosterior, error) {
	if s, ok := st.(*sparseStepper); ok && s.pass.Rows == g.rows && s.pass.Z == g.z {
		q := &gauss.Gaussian{}
		q.CopyFrom(s.current())
		return newSparseGPPosterior(g.z, g.lik, slices.Clone(q.Mean), q, g.maxPrior, g.Len()), nil
	}
	if g.rows != nil {
		return nil, fmt.Errorf("pgsvi: the state, a %T, does not belong to this SparseGP: %w",
			st, ErrParam)
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

// keepFeatures is the remedy in errors about steps that a SparseGP can only take if it keeps its
// features.
const keepFeatures = "use NewSparseGP with a SparseGPOptions.MaxMemory above the size of " +
	"the features"

// fitFeatures is the sparse.Fit of the Solver. It returns no error if the fit reached a state.
func fitFeatures(h *parallel.Halt, lin *site.LinearModel, goal float64, workers int) (*gauss.Gaussian,
	error) {
	s := Solver{Goal: goal, MaxPasses: mostRowPasses, Workers: workers}
	q, err := fitWeights(h, lin, &s)
	if q != nil {
		err = nil
	}
	return q, err
}

// sparseStepper is the Stepper of a SparseGP that reads its rows in every pass.
type sparseStepper struct {
	pass    sparse.Pass
	ascent  sparse.Ascent
	pending bool    // the current state has not been evaluated
	ceiling float64 // proved upper bound of the ELBO
	halt    parallel.Halt
	print   fingerprint
}

// newSparseStepper returns the Stepper of rows that starts at q. If q is nil, it starts at a fit of
// the sample.
func newSparseStepper(ctx context.Context, env *Env, z *sparse.Inducing, rows *sparse.Rows,
	lik Likelihood, q *gauss.Gaussian) (*sparseStepper, error) {
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

// Len implements Stepper.
func (s *sparseStepper) Len() int { return s.pass.Rows.N }

// Plan implements Stepper.
func (s *sparseStepper) Plan() Plan { return Plan{MaxPasses: mostRowPasses, Sampler: wholePass{}} }

// wholePass is a Sampler whose only batch is all rows.
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

// Step implements Stepper. It takes the step that the last pass has determined.
func (s *sparseStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step,
	error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if !math.IsInf(beta, 1) || batch != nil && len(batch) != s.Len() {
		return step, fmt.Errorf(
			"a step with %d of %d rows and step size %v needs the features in memory; %s: %w",
			len(batch), s.Len(), beta, keepFeatures, ErrParam)
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
		e.Gap = goals.NeverZero(x.Err) // rounding hides the gain of any step
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

// current returns the current approximation.
func (s *sparseStepper) current() *gauss.Gaussian { return s.ascent.At }

// constant reports whether Evaluate would leave everything unchanged that later steps depend on.
func (s *sparseStepper) constant() bool { return s.ascent.Look != nil && !s.pending }

// MarshalBinary returns the state.
func (s *sparseStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary restores the state. The error wraps ErrFile if b is not the state of a Stepper of
// the same model.
func (s *sparseStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *sparseStepper) state(c *save.Coder) {
	s.print.state(c, s.pass.Digest)
	s.ascent.State(c, s.pass.Z.Rank())
	c.Bool(&s.pending)
	c.Float(&s.ceiling)
}
