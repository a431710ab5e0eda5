package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// SparseGP is a Gaussian-process model with more data than GP can hold: the
// prior is seen through its values at M inducing inputs Z. With the factor of
// their covariance, K(Z, Z) = LLᵀ, and features
//
//	x_n = L⁻¹k(Z, x_n),   w ~ N(0, I),   ε_n ~ N(0, c_n),   c_n = k_nn − ‖x_n‖²,
//
// the latent value z_n has the prior of x_nᵀw + ε_n. The approximation q(w) = N(m, V)
// of the posterior maximises the ELBO
//
//	Σ_n E[log p(y_n|z_n)] − KL(q‖N(0, I))   (nats),   z_n ~ N(x_nᵀm, x_nᵀVx_n + c_n),
//
// which is at most that of the GP, equal to it where every c_n is 0, and does not
// fall as inducing inputs are added (Titsias 2009; Hensman, Matthews and
// Ghahramani 2015). Unlike an approximation of the prior it is a bound on the
// evidence of the exact model.
//
// It takes memory for N·M numbers, and of the order of N·M² operations to set up
// and in each evaluation of the ELBO. It needs no jitter. It is a Model,
// immutable, and may be shared between goroutines.
//
// The noise of a kernel that is Noisy counts among the c_n, about which nothing
// is learnt: noise is better a part of the likelihood.
type SparseGP struct {
	lin      linearModel // of the features
	z        *inducing
	residual float64
	maxPrior float64
}

// SparseGPOptions are the options of a SparseGP. The zero value, and a nil pointer,
// choose the inducing inputs among the rows of x.
type SparseGPOptions struct {
	// Rank is the largest number M of inducing inputs. Zero means all of Inducing or,
	// where that is nil, as many rows of x as leave 1e−8 of the prior variance of all
	// and cost no more than about 0.001 nats, and at most 500. The cost is that of
	// Residual, row by row, so that rows of another size do not decide for the rest.
	Rank int
	// Inducing has as rows the inputs to choose from, which are copied and need not be
	// among those of x. Nil means the rows of x.
	Inducing mat.Matrix
	// MaxMemory is how many bytes the model may take, which are some 12 N·M + 180 M², M being at
	// most Rank. Zero means the limit that ErrMemory tells of.
	MaxMemory int64
}

// What a SparseGP has at its most, in matrices: of the features, N×M, all of them and one more in chunks while they are
// chosen, and of M×M those of a full covariance over the weights.
const featureMatrices = 1.5

// NewSparseGP returns the model of labels y at the rows of x, under covariance
// function k and likelihood lik. Of the rows that its inducing inputs are chosen from
// each is the one whose latent value those before it determine least,
// as in a Cholesky factor of K with complete pivoting that is cut off (Fine and
// Scheinberg 2001). There are fewer than opt.Rank where these leave no row more than
// 1e−13 of its prior variance, which is rounding, so that nothing is left to
// approximate; duplicate rows and a singular K do no harm.
//
// The data are copied; nil lik means GaussianNoise{}, nil opt the zero SparseGPOptions.
// The errors are those of NewGP, and wrap ErrParam if opt.Rank is negative, ErrShape if x and
// opt.Inducing differ in their numbers of columns, ErrEmpty if that has no rows, ErrNotFinite if a
// value of it or a covariance is not finite, ErrNotPosDef if k is seen not to be positive definite, and
// ErrMemory if the rows and inducing inputs are too many for opt.MaxMemory; N alone is not.
func NewSparseGP(x mat.Matrix, y []float64, k Kernel, lik Likelihood, opt *SparseGPOptions) (*SparseGP, error) {
	return NewSparseGPContext(context.Background(), x, y, k, lik, opt)
}

// NewSparseGPContext is NewSparseGP, which takes of the order of N·M² operations, until ctx is done. The error then wraps its cause.
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
	if opt.Rank < 0 {
		return nil, fmt.Errorf("pgsvi: SparseGPOptions.Rank is %d; 0 is the default: %w", opt.Rank, ErrParam)
	}
	if opt.MaxMemory < 0 {
		return nil, fmt.Errorf("pgsvi: SparseGPOptions.MaxMemory is %d: %w", opt.MaxMemory, ErrParam)
	}
	gp, err := newGP(x, y, k, lik, nil)
	if err != nil {
		return nil, err
	}
	n, m := gp.Len(), cmp.Or(opt.Rank, mostInducing)
	from, cols := n, 0 // rows that the inducing inputs are chosen from, and columns of a copy of them
	if opt.Inducing != nil {
		from, cols = opt.Inducing.Dims()
		m = cmp.Or(opt.Rank, from)
	}
	m = min(m, from)
	need := bytesOf(1, from, cols) + bytesOf(featureMatrices, max(n, from), m) + bytesOf(weightMatrices, m, m)
	if err := checkMemory(opt.MaxMemory, need, fmt.Sprintf("a SparseGP of %d rows and up to %d inducing inputs", n, m), "use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	if opt.Inducing != nil {
		return newInducedGP(h, gp, opt.Inducing, opt.Rank)
	}
	rank, cost := opt.Rank, []float64(nil)
	if rank == 0 {
		rank, cost = mostInducing, inducingCosts(h, gp)
	}
	z, f, err := newInducing(h, k, gp.x, rank, cost)
	if err != nil {
		return nil, err
	}
	return newSparseGP(gp, z, f)
}

// newInducedGP is NewSparseGP with inducing inputs among the rows of z.
func newInducedGP(h *parallel.Halt, gp *GP, z mat.Matrix, rank int) (*SparseGP, error) {
	rows, cols := z.Dims()
	if rows == 0 {
		return nil, fmt.Errorf("pgsvi: SparseGPOptions.Inducing has no rows: %w", ErrEmpty)
	}
	if _, d := gp.x.Dims(); cols != d {
		return nil, fmt.Errorf("pgsvi: x has %d columns, SparseGPOptions.Inducing has %d: %w", d, cols, ErrShape)
	}
	zs := mat.DenseCopyOf(z)
	for i := range rows {
		if j, ok := dense.AllFinite(zs.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of SparseGPOptions.Inducing is %v: %w", i, j, zs.At(i, j), ErrNotFinite)
		}
	}
	u, _, err := newInducing(h, gp.kernel, zs, cmp.Or(rank, rows), nil)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: inducing inputs: %w", err)
	}
	f := make([]float64, gp.Len()*u.rank())
	inBlocksUntil(h, gp.Len(), func(lo, hi int) {
		w := new(predictWork)
		u.features(w, gp.x, lo, hi-lo)
		for i := lo; i < hi; i++ {
			mat.Col(f[i*u.rank():(i+1)*u.rank()], i-lo, w.k)
		}
	})
	if err := h.Err(); err != nil {
		return nil, err
	}
	return newSparseGP(gp, u, f)
}

// newSparseGP returns the model of gp with features f, N×M, of its inputs, which it keeps.
func newSparseGP(gp *GP, z *inducing, f []float64) (*SparseGP, error) {
	n, m := gp.Len(), z.rank()
	if i, ok := dense.AllFinite(f); !ok {
		return nil, fmt.Errorf("pgsvi: covariance of row %d and inducing input %d: %w", i/m, i%m, ErrNotFinite)
	}
	g := &SparseGP{z: z}
	c := PriorVar(nil, gp.kernel, gp.x)
	for i, v := range c {
		if err := checkPriorVar(i, v); err != nil {
			return nil, err
		}
		g.maxPrior = math.Max(g.maxPrior, v)
		row := f[i*m : (i+1)*m]
		if c[i] -= floats.Dot(row, row); c[i] < -notPosDef*v {
			return nil, fmt.Errorf("pgsvi: variance of row %d is %v given the inducing inputs: %w", i, c[i], ErrNotPosDef)
		}
		c[i] = math.Max(0, c[i])
		if _, noisy := gp.kernel.(Noisy); noisy {
			c[i] += kernelSelf(gp.kernel, gp.x.RawRowView(i)) - v
		}
		g.residual += c[i]
	}
	g.lin = linearModel{
		x:     &design{rows: n, cols: m, dense: f},
		terms: &siteTerms{lik: gp.terms.lik, y: gp.terms.y, extra: c},
		prior: unitPrior(m),
		names: make([]string, m),
	}
	for j := range m {
		g.lin.names[j] = fmt.Sprintf("feature %d", j)
	}
	return g, nil
}

// Len returns N, the number of observations.
func (g *SparseGP) Len() int { return g.lin.x.rows }

// Rank returns M, the number of inducing inputs.
func (g *SparseGP) Rank() int { return g.z.rank() }

// Inducing returns the inducing inputs, M×D and new, in the order of the factor.
func (g *SparseGP) Inducing() *mat.Dense { return mat.DenseCopyOf(g.z.x) }

// Residual returns Σ_n c_n, what the inducing inputs leave of the prior variance
// of the latent values, in their units squared. A datum whose log-likelihood has
// the expected curvature −γ_n loses about ½γ_n c_n nats, γ_n being at most ¼ for
// BernoulliLogit and 1/σ² for GaussianNoise: where the sum of these is not
// small, a higher rank will do better.
func (g *SparseGP) Residual() float64 { return g.residual }

// NewStepper implements Model, by that of the GLM of the features: blocks of rows
// and then all of them, with nothing to tune. Steps with a given step size use the
// exact gradients of their batch. The errors are those of GLM.NewStepper.
func (g *SparseGP) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	return g.lin.newStepper(ctx, env, d, linearOptions{covariance: FullCovariance})
}

// Fit runs s on the model; a nil s means a Solver without options, which needs
// no tuning. The posterior is that of the state reached and is valid even if
// there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (g *SparseGP) Fit(ctx context.Context, s *Solver) (*SparseGPPosterior, *Result, error) {
	return fitModel[*SparseGPPosterior](ctx, s, g)
}

// Posterior returns the posterior at st, a state of this model,
// for example that of an Iteration. The error wraps ErrParam if st is none, and
// ErrNotPosDef or ErrNotFinite, which cannot occur after a successful step.
func (g *SparseGP) Posterior(st State) (*SparseGPPosterior, error) {
	mean, cov, err := g.lin.weightsAt(st)
	if err != nil {
		return nil, err
	}
	q, err := cov.state(haltOf(st))
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(g.z, g.lin.terms.lik, mean, q, g.maxPrior, g.Len()), nil
}

// inducing is a set of M inputs and the factor of their covariance, K(Z, Z) = LLᵀ.
type inducing struct {
	kernel Kernel
	x      *mat.Dense
	l      []float64
}

func (u *inducing) rank() int { return u.x.RawMatrix().Rows }

const (
	negligible    = 1e-13 // part of the variance of a row that is rounding
	notPosDef     = 1e-6  // part of a variance that is more than rounding
	mostInducing  = 500   // inducing inputs, where their number is ours to choose
	leaveInducing = 1e-8  // part of the total variance that these may leave
	leaveNats     = 1e-3  // what they may cost, too little to see in an ELBO
	siteSteps     = 50    // most steps to the curvature of a site
	siteSettled   = 1e-2  // relative change of a curvature that is near enough
	siteStride    = 2     // standard deviations that a step may move, for exponentials
	siteWidest    = 10    // prior variance above which a datum alone would escape to where log p is flat
)

// inducingCosts returns γ_n/2, the nats that a datum loses for each unit of variance of its latent
// value that the inducing inputs leave: γ_n = −E[∂² log p(y_n|η)] under the q of datum n alone,
//
//	argmax_{m,v} E[log p(y_n|η)] − KL(N(m, v)‖N(0, min(k_nn, 10))).
func inducingCosts(h *parallel.Halt, gp *GP) []float64 {
	prior, t := PriorVar(nil, gp.kernel, gp.x), gp.terms
	cost := make([]float64, len(prior))
	inBlocksUntil(h, len(cost), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			if n > lo && t.y[n] == t.y[n-1] && prior[n] == prior[n-1] {
				cost[n] = cost[n-1]
				continue
			}
			cost[n] = siteCurvature(t.lik, t.y[n], prior[n]) / 2
		}
	})
	return cost
}

// siteCurvature returns γ ≥ 0 of a single datum under the prior N(0, prior), roughly.
func siteCurvature(lik Likelihood, y, prior float64) (gamma float64) {
	if !(prior > 0) || math.IsInf(prior, 1) {
		return 0
	}
	prior = math.Min(prior, siteWidest)
	m, v := 0.0, math.Min(1, prior)
	for range siteSteps {
		e := ExpectLogProb(lik, y, m, v)
		if math.IsNaN(e.D1) || math.IsNaN(e.D2) {
			return gamma
		}
		before := gamma
		gamma = math.Max(0, math.Min(math.MaxFloat64, -e.D2))
		v = 1 / (1/prior + gamma)
		step := v * (e.D1 - m/prior)
		if reach := siteStride * (1 + math.Sqrt(v)); math.Abs(step) > reach {
			step = math.Copysign(reach, step)
		} else if math.Abs(gamma-before) <= siteSettled*gamma {
			break
		}
		m += step
	}
	return gamma
}

// newInducing chooses rows of x, the one with the largest variance given those
// before it first, until there are rank or what they leave of every variance is
// rounding. With a cost in nats of the variance of each row, it is also enough
// that they leave little of the variance of all, and that this costs little. It
// returns the features of all rows, too: the first columns of the pivoted
// Cholesky factor of K(x, x), N×M. The error is that of h where that has stopped.
func newInducing(h *parallel.Halt, k Kernel, x *mat.Dense, rank int, cost []float64) (u *inducing, f []float64, err error) {
	n, d := x.Dims()
	rank = min(rank, n)
	prior := PriorVar(nil, k, x)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return nil, nil, err
		}
	}
	pivots := dense.Pivots{
		Halt: h, Rank: rank, Negligible: negligible, NotPosDef: notPosDef,
		Column: func(rows []int) func([]float64, int) {
			y := mat.NewDense(len(rows), d, nil)
			for a, i := range rows {
				y.SetRow(a, x.RawRowView(i))
			}
			return func(dst []float64, p int) {
				crossCovUntil(h, mat.NewDense(1, len(dst), dst), k, mat.NewDense(1, d, x.RawRowView(p)), y)
			}
		},
	}
	if cost != nil {
		total := floats.Sum(prior)
		pivots.Enough = func(left []float64) bool {
			return floats.Sum(left) <= leaveInducing*total && floats.Dot(left, cost) <= leaveNats
		}
	}
	chosen, f, err := pivots.Factor(prior)
	var at *dense.PivotError
	switch {
	case err == nil:
	case !errors.As(err, &at):
		return nil, nil, err
	case math.IsNaN(at.Cov) || math.IsInf(at.Cov, 0):
		return nil, nil, fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", at.Pivot, at.Row, at.Cov, ErrNotFinite)
	default:
		return nil, nil, fmt.Errorf("pgsvi: covariance %v of rows %d and %d, with variances %v and %v, leaves the variance %v after %d inducing inputs; check the Kernel, or use fewer: %w", at.Cov, at.Pivot, at.Row, prior[at.Pivot], prior[at.Row], at.Left, at.Rank, ErrNotPosDef)
	}
	m := max(1, len(chosen))
	u = &inducing{kernel: k, x: mat.NewDense(m, d, nil), l: make([]float64, m*m)}
	if len(chosen) == 0 { // no row has any variance: one feature, which is zero
		u.x.SetRow(0, x.RawRowView(0))
		u.l[0] = 1
	}
	for j, p := range chosen {
		u.x.SetRow(j, x.RawRowView(p))
		copy(u.l[j*m:j*m+j+1], f[p*m:p*m+j+1])
	}
	return u, f, nil
}

func checkPriorVar(i int, v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("pgsvi: covariance of rows %d and %d is %v: %w", i, i, v, ErrNotFinite)
	case v < 0:
		return fmt.Errorf("pgsvi: variance of row %d is %v: %w", i, v, ErrNotPosDef)
	}
	return nil
}

// inBlocks calls f(lo, hi) for blocks of rows that make up all n, on all cores.
func inBlocks(n int, f func(lo, hi int)) { inBlocksUntil(nil, n, f) }

// inBlocksUntil is inBlocks, which ends early where h has stopped.
func inBlocksUntil(h *parallel.Halt, n int, f func(lo, hi int)) {
	loop := parallel.Loop{Halt: h}
	loop.Run(n, predictBlock, runtime.GOMAXPROCS(0), parallel.Func(func(_, lo, hi int) { f(lo, hi) }))
}

// features stores rows lo … lo+t−1 of x in w.x and their features L⁻¹k(Z, x) in
// the columns of w.k, M×t. A row that is not finite is marked as not known.
func (u *inducing) features(w *predictWork, x mat.Matrix, lo, t int) {
	m, d := u.x.Dims()
	if w.x == nil || w.x.RawMatrix().Rows != t {
		w.x, w.k = mat.NewDense(t, d, nil), mat.NewDense(m, t, nil)
	}
	w.known = dense.Resize(w.known, t)
	for i := range t {
		row := w.x.RawRowView(i)
		mat.Row(row, lo+i, x)
		if _, w.known[i] = dense.AllFinite(row); !w.known[i] {
			clear(row)
		}
	}
	CrossCov(w.k, u.kernel, u.x, w.x)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.l, m), w.k.RawMatrix())
}

// SparseGPPosterior is the approximation q(w) = N(m, V) of a SparseGP that a
// run reached, ready for predictions. It is immutable and safe for concurrent
// use. It keeps M inducing inputs and matrices of M² numbers, and nothing of the
// size of the data.
//
// Its methods take new points as the rows of x, and panic if x has not as many
// columns as the training inputs. Rows are shared between cores in blocks of bounded
// memory, on which the results do not depend. Of a row with a NaN or an infinity, or
// where a covariance overflows, nothing is known: its latent value has mean 0 and the
// largest variance that the prior has at a training point.
type SparseGPPosterior struct {
	z          *inducing
	lik        Likelihood
	mean       []float64
	q          *weightState // V⁻¹ and its factor
	maxPrior   float64
	rows       int
	workspaces *sync.Pool
}

func newSparseGPPosterior(z *inducing, lik Likelihood, mean []float64, q *weightState, maxPrior float64, rows int) *SparseGPPosterior {
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

// Prob stores P(Y = y) for each row of x in dst; nil allocates. It is At(x).Prob(dst, y), whose
// Err says which row could not be predicted and is NaN here.
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
	PriorVar(v, p.z.kernel, w.x)
	clear(m)
	for j := range f.Rows {
		for i, e := range f.Data[j*f.Stride : j*f.Stride+f.Cols] {
			m[i] += p.mean[j] * e
			v[i] -= e * e
		}
	}
	for i := range v {
		v[i] = math.Max(0, v[i])
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.q.l, f.Rows), f)
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

// sparseGPFile is the file of a SparseGPPosterior.
var sparseGPFile = save.Kind{Name: "SparseGPPosterior", Version: 1}

// savedSparseGP is a SparseGPPosterior as JSON.
type savedSparseGP struct {
	Rows         int                `json:"rows"`
	Rank         int                `json:"rank"`
	Cols         int                `json:"cols"`
	Kernel       save.Value         `json:"kernel"`
	Likelihood   save.Value         `json:"likelihood"`
	MaxPrior     float64            `json:"maxPrior"`
	Z            save.List[float64] `json:"z"`                      // row by row
	L            save.List[float64] `json:"l"`                      // lower triangle, row by row
	Mean         save.List[float64] `json:"mean"`                   // of the weights
	Precision    save.List[float64] `json:"precision"`              // lower triangle, row by row
	PrecisionLow save.List[float64] `json:"precisionLow,omitempty"` // what is left of it, where it has twice the digits
}

// Save writes p, from which LoadSparseGPPosterior makes a posterior with the same
// predictions, to the last bit: a line that names the kind of file, JSON, and a checksum.
// The errors are those of GPPosterior.Save.
func (p *SparseGPPosterior) Save(w io.Writer) error {
	m := p.z.rank()
	s := &savedSparseGP{Rows: p.rows, Rank: m, Cols: p.Cols(), MaxPrior: p.maxPrior,
		Z: p.z.x.RawMatrix().Data, L: dense.PackLower(p.z.l, m), Mean: p.mean, Precision: dense.PackLower(p.q.p, m), PrecisionLow: p.q.packLow()}
	var err error
	if s.Kernel, err = saveValue(p.z.kernel); err != nil {
		return err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, sparseGPFile, s)
}

// LoadSparseGPPosterior reads what SparseGPPosterior.Save has written, which must be all
// of r, and factorises its covariance anew, in about M³/3 operations. The errors are those of
// LoadGPPosterior.
func LoadSparseGPPosterior(r io.Reader) (*SparseGPPosterior, error) {
	return loadFrom(r, sparseGPFile, (*savedSparseGP).load)
}

func (s *savedSparseGP) load() (*SparseGPPosterior, error) {
	m := len(s.Mean)
	if s.Rows < 1 || s.Rows > mostSaved || m < 1 || s.Rank != m || len(s.Z)%m != 0 || len(s.Z)/m != s.Cols || s.Cols < 1 ||
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
	z := &inducing{kernel: k, x: mat.NewDense(m, s.Cols, s.Z), l: dense.UnpackLower(s.L, m)}
	for j := range m {
		if !(z.l[j*m+j] > 0) {
			return nil, fmt.Errorf("diagonal element %d of the factor is %v: %w", j, z.l[j*m+j], ErrNotPosDef)
		}
	}
	if !(s.MaxPrior >= 0) {
		return nil, fmt.Errorf("largest prior variance %v: %w", s.MaxPrior, ErrParam)
	}
	q, err := loadPrecision(s.Precision, s.PrecisionLow, m, "precision")
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(z, lik, s.Mean, q, s.MaxPrior, s.Rows), nil
}
