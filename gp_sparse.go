package pgsvi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
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
// the evidence of the exact model.
//
// Set-up and each evaluation of the ELBO take of the order of N·M² operations. No jitter is
// needed. NewSparseGP takes rows in memory, and keeps their features, N·M numbers, if they take
// at most 200 MB. NewSparseGPRows reads rows from any source, as often as a fit needs them. A
// SparseGP is a Model, immutable and safe for concurrent use.
//
// A kernel with few features is represented exactly, without inducing inputs: a Linear, a
// Constant, a Sum of these, or a Product of Constants and one Linear. w are then the weights of
// its features, and every c_n is 0, whatever the units of the columns. Such a term of another Sum
// is also exact, beside inducing inputs for the rest, if rounding would otherwise hide the rest.
//
// The noise of a kernel that is Noisy is part of the c_n and is not learnt from. Put noise into
// the likelihood instead.
type SparseGP struct {
	lin      site.LinearModel // of the features, if they are kept
	x        *mat.Dense       // the rows, if these are,
	terms    *term.Terms      // with their terms
	rows     *rowSource       // what is gone through where the features are not kept
	lik      Likelihood
	z        *inducing
	opt      SparseGPOptions
	residual float64
	maxPrior float64
}

// SparseGPOptions are the options of a SparseGP. The zero value, and a nil pointer, choose the
// inducing inputs among the rows of x.
type SparseGPOptions struct {
	// Rank is the largest number M of inducing inputs and exact features. If Rank is zero there
	// may be 500 exact features.
	//
	// Zero means all of Inducing. If Inducing is nil it means at most 500 rows of x: as many as
	// leave 1e−8 of the total prior variance and cost no more than about 0.001 nats, as given by
	// Residual row by row, so that rows of another size do not decide for the rest.
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
func NewSparseGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
	return NewSparseGPContext(context.Background(), x, y, k, lik, opt)
}

// NewSparseGPContext is NewSparseGP with a context: set-up takes of the order of N·M² operations.
// If ctx ends first, the error wraps its cause.
func NewSparseGPContext(ctx context.Context, x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
	var h parallel.Halt
	h.Watch(ctx)
	g, err := newSparseGPUntil(&h, x, y, k, lik, opt)
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while inducing inputs were chosen: %w", cause)
	}
	return g, err
}

func newSparseGPUntil(h *parallel.Halt, x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
	if opt == nil {
		opt = &SparseGPOptions{}
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	gp, err := newGP(x, y, k, lik, nil)
	if err == nil {
		err = oneLatent(likOf(gp.terms), "a SparseGP")
	}
	if err != nil {
		return nil, err
	}
	n, m := gp.Len(), cmp.Or(opt.Rank, mostInducing)
	// rows that the inducing inputs are chosen from, and columns of a copy of them
	from, cols := n, 0
	if opt.Inducing != nil {
		from, cols = opt.Inducing.Dims()
		m = cmp.Or(opt.Rank, from)
	}
	m = min(m, from)
	features := memory.Bytes(featureMatrices, max(n, from), m)
	need := memory.Bytes(1, from, cols) + features + memory.Bytes(site.WeightMatrices, m, m)
	full := checkMemory(opt.MaxMemory, need, fmt.Sprintf("a SparseGP of %d rows and up to %d inducing inputs", n, m), "use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory")
	if full != nil || opt.MaxMemory == 0 && features > keptFeatures {
		g := &SparseGP{lik: likOf(gp.terms), opt: *opt, x: gp.x, terms: gp.terms, rows: rowSourceOf(gp.x, gp.terms)}
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
func (g *SparseGP) pass(h *parallel.Halt, k Kernel) error {
	v := g.divide(h, k)
	z := g.opt.Inducing
	if z == nil && v.open {
		n := min(len(g.rows.y), chooseRows)
		x, w := g.rows.sample(n), worth{}
		prior := v.restVar(x)
		cost := inducingCosts(h, prior, g.rows.terms(g.lik, n))
		w.negligible = negligibleOf(g.rows.n, prior, cost)
		if g.opt.Rank == 0 {
			w.cost = cost
			floats.Scale(float64(g.rows.n)/float64(n), w.cost)
		}
		u, _, err := newInducing(h, v.rest, x, max(1, g.rank()-v.wholes()), w)
		if err != nil {
			return err
		}
		z = u.x
	}
	return g.induce(h, v, z)
}

// check returns an error if an option is out of range.
func (o *SparseGPOptions) check() error {
	if o.Rank < 0 {
		return fmt.Errorf("pgsvi: SparseGPOptions.Rank is %d; 0 is the default: %w", o.Rank, ErrParam)
	}
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: SparseGPOptions.MaxMemory is %d: %w", o.MaxMemory, ErrParam)
	}
	_, err := givenOption("SparseGPOptions.Inducing", o.Inducing)
	return err
}

// newKeptGP returns the model of gp, with its features.
func newKeptGP(h *parallel.Halt, gp *GP, opt *SparseGPOptions) (*SparseGP, error) {
	n := gp.Len()
	v := divide(h, gp.kernel, gp.x, gp.terms, n, cmp.Or(opt.Rank, mostInducing))
	if opt.Inducing != nil {
		return newInducedGP(h, gp, v, opt)
	}
	rank, w := opt.Rank, worth{}
	if rank == 0 {
		rank = mostInducing
		prior := v.restVar(gp.x)
		w.cost = inducingCosts(h, prior, gp.terms)
		w.negligible = negligibleOf(n, prior, w.cost)
	} else {
		variance, cost := sampleWorth(h, v.rest, gp.x, gp.terms)
		w.negligible = negligibleOf(n, variance, cost)
	}
	z, f, err := v.choose(h, gp.x, rank, w)
	if err != nil {
		return nil, err
	}
	return newSparseGP(gp, z, f)
}

// newInducedGP is newKeptGP with inducing inputs among the rows of opt.Inducing.
func newInducedGP(h *parallel.Halt, gp *GP, v division, opt *SparseGPOptions) (*SparseGP, error) {
	_, d := gp.x.Dims()
	zs, err := inducingInputs("SparseGPOptions.Inducing", opt.Inducing, d)
	if err != nil {
		return nil, err
	}
	rows, _ := zs.Dims()
	variance, cost := sampleWorth(h, v.rest, gp.x, gp.terms)
	u, err := v.at(h, zs, cmp.Or(opt.Rank, rows), worth{negligible: negligibleOf(gp.Len(), variance, cost)})
	if err != nil {
		return nil, err
	}
	f := featuresAt(h, u, gp.x)
	if err := h.Err(); err != nil {
		return nil, err
	}
	return newSparseGP(gp, u, f)
}

// newSparseGP returns the model of gp with features f, N×M, of its inputs, which it keeps.
func newSparseGP(gp *GP, z *inducing, f []float64) (*SparseGP, error) {
	g := &SparseGP{z: z, x: gp.x, terms: gp.terms, lik: likOf(gp.terms)}
	lin, residual, most, err := z.linear(gp.x, gp.terms, f)
	if err != nil {
		return nil, err
	}
	g.lin, g.residual, g.maxPrior = *lin, residual, most
	return g, nil
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
// Zero opt.Rank means 200. If opt.Inducing is nil the inducing inputs are chosen from 10,000 rows
// of the sample, at 0.3 of the lengths of k, so that they spread over all of it. The errors are
// those of NewSparseGP, of rows, and those of Stream.Add for a row. An error that wraps ErrShape
// during a run means that the rows were not the same as the first time.
func NewSparseGPRows(ctx context.Context, rows iter.Seq2[Row, error], cols int, k Kernel, lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
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
		return nil, fmt.Errorf("pgsvi: NewSparseGPRows with Softmax, whose rows have several latent values: %w", ErrParam)
	}
	if err := errors.Join(checkKernel(k, cols), checkLikelihood(g.lik)); err != nil {
		return nil, err
	}
	var err error
	if g.rows, err = newRowSource(ctx, rows, cols, g.lik); err != nil {
		return nil, err
	}
	if err := g.checkStream(); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	v := g.divide(&h, k)
	z := g.opt.Inducing
	if z == nil && v.open {
		x := g.rows.sample(min(len(g.rows.y), chooseRows))
		if z, err = chooseInducing(&h, v.rest, x, max(1, g.rank()-v.wholes())); err != nil {
			return nil, g.canceled(&h, err)
		}
	}
	if err := g.induce(&h, v, z); err != nil {
		return nil, g.canceled(&h, err)
	}
	return g, nil
}

// divide returns the division of k of a model that goes through its rows.
func (g *SparseGP) divide(h *parallel.Halt, k Kernel) division {
	n := min(len(g.rows.y), chooseRows)
	return divide(h, k, g.rows.sample(n), g.rows.terms(g.lik, n), g.rows.n, cmp.Or(g.opt.Rank, mostInducing))
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
	return min(g.rows.n, cmp.Or(g.opt.Rank, g.defaultRank()))
}

// defaultRank returns the most inducing inputs of a model that goes through its rows, where their
// number is ours to choose.
func (g *SparseGP) defaultRank() int {
	if g.x != nil {
		return mostInducing
	}
	return streamRank
}

// checkStream returns an error if the passes over the rows take more memory than they may.
func (g *SparseGP) checkStream() error {
	m := g.rank()
	need := memory.Bytes(1, len(g.rows.y), g.rows.cols+3) + memory.Bytes(1, min(g.rows.n, keptResiduals), 1) + memory.Bytes(site.WeightMatrices+2*sparseLanes, m, m) + memory.Bytes(laneMatrices*sparseLanes, sparseBlock, m)
	from := min(len(g.rows.y), chooseRows)
	if g.opt.Inducing != nil {
		rows, cols := g.opt.Inducing.Dims()
		from = rows
		need += memory.Bytes(1, rows, cols)
	}
	need += memory.Bytes(featureMatrices, from, m)
	return checkMemory(g.opt.MaxMemory, need, fmt.Sprintf("a SparseGP of up to %d inducing inputs", m), "use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory")
}

// induce makes z, or up to rank of its rows, the inducing inputs of v of a model that goes through
// its rows.
func (g *SparseGP) induce(h *parallel.Halt, v division, z mat.Matrix) error {
	var zs *mat.Dense
	if z != nil || v.open {
		var err error
		if zs, err = inducingInputs("SparseGPOptions.Inducing", z, g.rows.cols); err != nil {
			return err
		}
	}
	n := min(len(g.rows.y), worthRows)
	variance, cost := sampleWorth(h, v.rest, g.rows.sample(n), g.rows.terms(g.lik, n))
	u, err := v.at(h, zs, g.rank(), worth{negligible: negligibleOf(g.rows.n, variance, cost)})
	if err != nil {
		return err
	}
	return g.settle(h, u)
}

// settle makes u the inducing values of a model that goes through its rows.
func (g *SparseGP) settle(h *parallel.Halt, u *inducing) error {
	prior := PriorVar(nil, u.kernel, g.rows.x)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return err
		}
	}
	g.z, g.maxPrior, g.residual = u, floats.Max(prior), 0
	n, first := min(len(prior), chooseRows), u.wholes()
	v := u.restVar(g.rows.sample(n))
	w := new(predictWork)
	for lo := 0; lo < n; lo += sparseBlock {
		t := min(sparseBlock, n-lo)
		u.features(w, g.rows.x, lo, t)
		c := append([]float64(nil), v[lo:lo+t]...)
		for j := first; j < u.rank(); j++ {
			for i, f := range w.k.RawRowView(j) {
				c[i] -= f * f
			}
		}
		for i, ci := range c {
			g.residual += math.Max(0, ci) + u.noise(g.rows.x.RawRowView(lo+i), v[lo+i])
		}
	}
	g.residual *= float64(g.rows.n) / float64(n)
	return h.Err()
}

// Len returns N, the number of observations.
func (g *SparseGP) Len() int {
	if g.rows != nil {
		return g.rows.n
	}
	return g.lin.X.Rows
}

// Rank returns M, the number of inducing inputs and exact features.
func (g *SparseGP) Rank() int { return g.z.rank() }

// Inducing returns a new matrix with the inducing inputs as rows, in the order of the factor. For
// a kernel that is represented exactly they are inputs at each of which a single feature is not
// zero.
func (g *SparseGP) Inducing() *mat.Dense { return mat.DenseCopyOf(g.z.inputs()) }

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
		return nil, fmt.Errorf("pgsvi: natural steps of a SparseGP that goes through its rows under %s, not KL; %s: %w", spell(d), keepFeatures, ErrNoProx)
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
		t, x = g.rows.terms(g.lik, len(g.rows.y)), g.rows.x
	}
	return farFrom0(t, vanishingSD(g.z.kernel, x.RawRowView(0)), learned)
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
	if s, ok := st.(*sparseStepper); ok && s.pass.rows == g.rows && s.pass.z == g.z {
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
	q, err := cov.State(haltOf(st))
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(g.z, likOf(g.lin.Terms), mean, q, g.maxPrior, g.Len()), nil
}

// SparseGPPosterior is the approximate posterior q(w) = N(m, V) of a SparseGP, for predictions.
// It is immutable and safe for concurrent use. It keeps M inducing inputs and matrices of M²
// numbers, and none of the data.
//
// Its methods take new points as the rows of x, and panic if x has another number of columns than
// the training inputs. They work on blocks of rows in bounded memory, shared between cores; the
// results do not depend on the blocks. A row with a NaN or an infinity, or with a covariance that
// overflows, has latent mean 0 and the largest prior variance of a training point.
type SparseGPPosterior struct {
	z          *inducing
	lik        Likelihood
	mean       []float64
	q          *gauss.State // V⁻¹ and its factor
	maxPrior   float64
	rows       int
	workspaces *sync.Pool
}

func newSparseGPPosterior(z *inducing, lik Likelihood, mean []float64, q *gauss.State, maxPrior float64, rows int) *SparseGPPosterior {
	return &SparseGPPosterior{z: z, lik: lik, mean: mean, q: q, maxPrior: maxPrior, rows: rows,
		workspaces: &sync.Pool{New: func() any { return new(predictWork) }}}
}

// Len returns N, the number of training points.
func (p *SparseGPPosterior) Len() int { return p.rows }

// Cols returns the number of columns that new points must have.
func (p *SparseGPPosterior) Cols() int { return p.z.x.RawMatrix().Cols }

// At returns the prediction for each row of x. With the features x* = L⁻¹k(Z, x), the
// latent value z(x), without noise, has mean and variance
//
//	x*ᵀm,   x*ᵀVx* + k** − ‖x*‖².
func (p *SparseGPPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Part returns the prediction of term i of a kernel that is a Sum, at each row of x, as
// GPPosterior.Part does. With the features x_i* = L⁻¹k_i(Z, x) of its covariances, where L is
// that of all terms, its mean and variance are
//
//	x_i*ᵀm,   x_i*ᵀVx_i* + k_i** − ‖x_i*‖².
//
// It panics if the kernel is not a Sum or has no term i.
func (p *SparseGPPosterior) Part(i int, x mat.Matrix) *Prediction {
	part := *p
	part.z = p.z.term(i)
	part.maxPrior = floats.Max(PriorVar(nil, part.z.kernel, p.z.x))
	q := predictAt(&part, x)
	return &q
}

// Prob stores P(Y = y) for each row of x in dst; nil allocates. It is At(x).Prob(dst, y). A row
// without a prediction is NaN; At(x).Err() says why.
func (p *SparseGPPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *SparseGPPosterior) likelihood() Likelihood { return p.lik }

// latent implements latents.
func (p *SparseGPPosterior) latent(m, v []float64, x mat.Matrix) {
	inBlocks(len(m), func(lo, hi int) {
		w := p.workspaces.Get().(*predictWork)
		defer p.workspaces.Put(w)
		p.latentBlock(w, m[lo:hi], v[lo:hi], x, lo)
	})
}

func (p *SparseGPPosterior) latentBlock(w *predictWork, m, v []float64, x mat.Matrix, lo int) {
	p.z.features(w, x, lo, len(m))
	f := w.k.RawMatrix()
	clear(v)
	if p.z.rest != nil {
		PriorVar(v, p.z.rest, w.x)
	}
	clear(m)
	for j, first := 0, p.z.wholes(); j < f.Rows; j++ {
		for i, e := range f.Data[j*f.Stride : j*f.Stride+f.Cols] {
			m[i] += p.mean[j] * e
			if j >= first {
				v[i] -= e * e
			}
		}
	}
	for i := range v {
		v[i] = math.Max(0, v[i])
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.q.L, f.Rows), f)
	for j := range f.Rows {
		for i, e := range f.Data[j*f.Stride : j*f.Stride+f.Cols] {
			v[i] += e * e
		}
	}
	for i, known := range w.known {
		if sum := m[i] + v[i]; !known || math.IsNaN(sum) || math.IsInf(sum, 0) {
			m[i], v[i] = 0, p.maxPrior
		}
	}
}

// Update returns the posterior with further rows added, each seen once (online learning). It does
// not change p. Each block B of rows moves q to
//
//	argmin_q₊ KL(q₊‖q) − Σ_{n∈B} w_n E_q₊[log p(y_n|z_n)],
//
// at the inducing inputs and hyper-parameters of p (streaming variational Bayes; Broderick et al.
// 2013). Rows far from all inducing inputs do not change the latent function; add inducing inputs
// with WithInducing first. The errors are those of Stream.AddAll; the posterior is then nil.
func (p *SparseGPPosterior) Update(ctx context.Context, rows iter.Seq2[Row, error]) (*SparseGPPosterior, error) {
	var h parallel.Halt
	h.Watch(ctx)
	m, cols := p.z.rank(), p.Cols()
	u := &SparseGPPosterior{z: p.z, lik: p.lik, maxPrior: p.maxPrior, rows: p.rows, workspaces: p.workspaces}
	q := &gauss.State{}
	q.CopyFrom(p.q)
	copy(q.Mean, p.mean)
	q.Halt = &h
	block := site.WeightBlock{}
	block.Use(term.Crew{Halt: &h})
	size := max(updateRows, 2*m)
	x := mat.NewDense(size, cols, nil)
	terms := term.Terms{Lik: viewOf(p.lik)}
	seen := 0
	learn := func() error {
		n := len(terms.Y)
		if n == 0 {
			return nil
		}
		rows := x.Slice(0, n, 0, cols).(*mat.Dense)
		f := featuresAt(&h, p.z, rows)
		if err := h.Err(); err != nil {
			return fmt.Errorf("canceled after %d rows: %w", terms.First, err)
		}
		lin, _, most, err := p.z.linear(rows, &terms, f)
		if err != nil {
			return err
		}
		u.maxPrior = math.Max(u.maxPrior, most)
		block.Base.Resize(n)
		lin.X.Mul(block.Base.M, q.Mean, nil)
		clear(block.Base.Gamma)
		clear(block.Base.A)
		if err := block.Solve(q, lin.X, nil, lin.Terms); err != nil {
			return err
		}
		u.rows += n
		terms = term.Terms{Lik: viewOf(p.lik), Y: terms.Y[:0], Offset: terms.Offset[:0], Weight: terms.Weight[:0], First: seen}
		return nil
	}
	for row, err := range rows {
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("pgsvi: canceled after %d rows: %w", seen, context.Cause(ctx))
		}
		if err == nil {
			err = prefixed(checkRow(&row, cols, p.lik, seen))
		}
		if err != nil {
			return nil, err
		}
		denseRow(x.RawRowView(len(terms.Y)), &row)
		terms.Y, terms.Offset, terms.Weight = append(terms.Y, row.Y), append(terms.Offset, row.Offset), append(terms.Weight, weightOf(&row))
		if seen++; len(terms.Y) == size {
			if err := learn(); err != nil {
				return nil, prefixed(err)
			}
		}
	}
	if err := learn(); err != nil {
		return nil, prefixed(err)
	}
	if _, ok := dense.AllFinite(q.Mean); !ok {
		return nil, fmt.Errorf("pgsvi: mean of the weights after %d rows: %w", seen, ErrNotFinite)
	}
	q.Halt = nil
	u.q, u.mean = q, slices.Clone(q.Mean)
	return u, nil
}

// Inducing returns a new M×D matrix of the inducing inputs, in the order of the factor.
func (p *SparseGPPosterior) Inducing() *mat.Dense { return mat.DenseCopyOf(p.z.inputs()) }

// WithInducing returns the posterior at other inducing inputs, the rows of z, which are copied.
// It does not change p. To extend p to new regions, append rows to p.Inducing: predictions stay
// the same, and Update then learns near the new inputs.
//
// The information of p on the values f at its inducing inputs Z is kept as if it had been
// observed there. For the values g at z, with the prior p₀, the result is
//
//	argmax_q E_q[log p(f)/p₀(f)] − KL(q(g)‖p₀(g))
//
// (streaming sparse GPs; Bui, Nguyen and Turner 2017, at fixed hyper-parameters). With K(z, z) =
// L_zL_zᵀ and V⁻¹ = P,
//
//	Ψ = L_z⁻¹K(z, Z)L⁻ᵀ,   P_z = I + Ψ(P − I)Ψᵀ,   P_zm_z = ΨPm.
//
// Nothing is lost if Z is among z. It takes of the order of M³ operations.
//
// The error wraps
//   - ErrEmpty if z has no rows;
//   - ErrShape if its number of columns is not that of p;
//   - ErrNotFinite if a value of it is not finite;
//   - ErrNotPosDef if its covariance or P_z cannot be factorised.
func (p *SparseGPPosterior) WithInducing(z mat.Matrix) (*SparseGPPosterior, error) {
	var zs *mat.Dense
	if p.z.open {
		var err error
		if zs, err = inducingInputs("the matrix of inducing inputs", z, p.Cols()); err != nil {
			return nil, err
		}
	}
	u := p.z.again(p.z.kernel).factored(nil, zs)
	if u == nil {
		return nil, fmt.Errorf("pgsvi: covariance of the inducing inputs: %w", ErrNotPosDef)
	}
	q := p.z.carry(u, p.mean, p.q)
	if q == nil {
		return nil, fmt.Errorf("pgsvi: precision at the new inducing inputs: %w", ErrNotPosDef)
	}
	most := p.maxPrior
	if zs != nil {
		most = math.Max(most, floats.Max(PriorVar(nil, u.kernel, zs)))
	}
	return newSparseGPPosterior(u, p.lik, slices.Clone(q.Mean), q, most, p.rows), nil
}

// carry returns q, with the given mean of the weights of from, as a state of the weights of u, or
// nil if there is none: what rows tell of the latent values at the inducing inputs of from. u has
// the kernel of from, as WithInducing says, or its inputs, so that the values have the same sites.
func (from *inducing) carry(u *inducing, mean []float64, of *gauss.State) *gauss.State {
	m, n := from.rank(), u.rank()
	a := mat.NewDense(n, m, nil)
	to := a.RawMatrix()
	if mat.Equal(from.x, u.x) { // A = LᵀL₀⁻ᵀ
		for i := range n {
			for j := range i + 1 {
				to.Data[j*m+i] = u.l[i*m+j]
			}
		}
	} else { // A = L⁻¹K(Z, Z₀)L₀⁻ᵀ
		var parts []inducingPart
		from.parts(func(p inducingPart) { parts = append(parts, p) })
		rows := func(x *mat.Dense, p inducingPart) *mat.Dense {
			return x.Slice(p.lo, p.hi, 0, x.RawMatrix().Cols).(*mat.Dense)
		}
		u.parts(func(p inducingPart) {
			o := parts[p.number]
			dst := a.Slice(p.lo, p.hi, o.lo, o.hi).(*mat.Dense)
			CrossCov(dst, p.kernel, rows(u.x, p), rows(from.x, o))
		})
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.l, n), to)
	}
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(from.l, m), to)
	return of.Carry(to, mean)
}

// updateRows is the number of rows of a block of Update.
const updateRows = 1024

// sparseGPFile is the file of a SparseGPPosterior.
var sparseGPFile = save.Kind{Name: "SparseGPPosterior", Version: 1}

// savedSparseGP is a SparseGPPosterior as JSON.
type savedSparseGP struct {
	Rows int `json:"rows"`
	Rank int `json:"rank"`
	Cols int `json:"cols"`
	// values by which terms of the kernel are seen whole
	Whole      int                `json:"whole,omitempty"`
	Kernel     save.Value         `json:"kernel"`
	Likelihood save.Value         `json:"likelihood"`
	MaxPrior   float64            `json:"maxPrior"`
	Z          save.List[float64] `json:"z"`         // row by row
	L          save.List[float64] `json:"l"`         // lower triangle, row by row
	Mean       save.List[float64] `json:"mean"`      // of the weights
	Precision  save.List[float64] `json:"precision"` // lower triangle, row by row
	// what is left of it, where it has twice the digits
	PrecisionLow save.List[float64] `json:"precisionLow,omitempty"`
}

// Save writes p; Load restores a posterior with the same predictions, to the last bit. The format
// is a line that names the kind of file, JSON, and a checksum. The errors are those of
// GPPosterior.Save.
func (p *SparseGPPosterior) Save(w io.Writer) error {
	m := p.z.rank()
	s := &savedSparseGP{Rows: p.rows, Rank: m, Cols: p.Cols(), Whole: p.z.wholes(), MaxPrior: p.maxPrior,
		Z: p.z.x.RawMatrix().Data, L: dense.PackLower(p.z.l, m), Mean: p.mean, Precision: dense.PackLower(p.q.P, m), PrecisionLow: p.q.PackLow()}
	var err error
	if s.Kernel, err = saveValue(p.z.kernel); err != nil {
		return err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, sparseGPFile, s)
}

// load reads p of a file; it factorises the covariance anew, in about M³/3 operations.
func (*SparseGPPosterior) load(r io.Reader) (*SparseGPPosterior, error) {
	return loadFrom(r, sparseGPFile, (*savedSparseGP).load)
}

func (s *savedSparseGP) load() (*SparseGPPosterior, error) {
	m := len(s.Mean)
	if s.Rows < 1 || s.Rows > save.Most || m < 1 || s.Rank != m || len(s.Z)%m != 0 || len(s.Z)/m != s.Cols || s.Cols < 1 ||
		len(s.L) != m*(m+1)/2 || len(s.Precision) != m*(m+1)/2 {
		return nil, fmt.Errorf("rank %d and %d columns, of %d rows, with %d inputs, %d and %d elements of factor and precision and %d means: %w", s.Rank, s.Cols, s.Rows, len(s.Z), len(s.L), len(s.Precision), m, ErrShape)
	}
	k, err := loadValue(s.Kernel, func(k Kernel) error { return checkKernel(k, s.Cols) })
	if err != nil {
		return nil, err
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	v := undivided(k)
	if s.Whole != 0 {
		v = divided(k, s.Cols)
	}
	if n := v.wholes(); n != s.Whole || n > m || v.open != (n < m) {
		return nil, fmt.Errorf("%d of %d weights belong to exact terms of the kernel, which have %d: %w", s.Whole, m, n, ErrShape)
	}
	z := &inducing{division: v, x: mat.NewDense(m, s.Cols, s.Z), l: dense.UnpackLower(s.L, m)}
	for j := range m {
		if !(z.l[j*m+j] > 0) {
			return nil, fmt.Errorf("diagonal element %d of the factor is %v: %w", j, z.l[j*m+j], ErrNotPosDef)
		}
	}
	if !(s.MaxPrior >= 0) {
		return nil, fmt.Errorf("largest prior variance %v: %w", s.MaxPrior, ErrParam)
	}
	q, err := gauss.LoadPrecision(s.Precision, s.PrecisionLow, m, "precision")
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(z, lik, s.Mean, q, s.MaxPrior, s.Rows), nil
}

// digest shows d the inducing values.
func (u *inducing) digest(d *save.Digest) {
	digestValue(d, u.kernel)
	for j := range u.rank() {
		d.Floats(u.x.RawRowView(j))
	}
}

// bytes returns u and lik as the file of a posterior of nothing.
func (u *inducing) bytes(lik Likelihood, maxPrior float64) ([]byte, error) {
	m := u.rank()
	var b bytes.Buffer
	err := newSparseGPPosterior(u, lik, make([]float64, m), gauss.Unit(m), maxPrior, 1).Save(&b)
	return b.Bytes(), err
}
