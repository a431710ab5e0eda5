package pgsvi

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// Smooth is f, the difficult part of the negative ELBO, which the iteration linearizes. It is a sum
// of N terms and differentiable in λ. Expect makes a Smooth from a log-likelihood, and SmoothFunc
// makes one from a function. Custom types can also implement it.
type Smooth interface {
	// Setup is called once per run, before the other methods. It returns the number n of terms, and
	// reports whether Grad over all terms is exact, that is, ignores the randomness of env. The
	// error gives the reason why f is not defined for the family of q.
	Setup(q Dist) (n int, exact bool, err error)
	// Grad stores an unbiased estimate of ∇_λ f(λ) in dst, of length q.NumParams. It is the
	// gradient of the terms in batch, scaled by N/len(batch). Grad returns an estimate of f with
	// the same scaling. A nil batch means all terms. The same randomness in env must give the same
	// bits for any number of workers. The error names the term.
	Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (value float64,
		err error)
	// Value returns f over all terms, as exactly as possible, with its standard error or an error
	// bound, or NaN if the error is unknown.
	Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error)
}

// SmoothFunc returns a Smooth of n terms whose Grad is f. Set deterministic if f ignores the
// randomness of env. The error of Value is unknown. If f is nil, Setup returns an error that wraps
// ErrParam.
func SmoothFunc(n int, deterministic bool,
	f func(env *Env, dst []float64, q Dist, batch []int) (value float64, err error)) Smooth {
	return smoothFunc{n, deterministic, f}
}

type smoothFunc struct {
	n     int
	exact bool
	f     func(env *Env, dst []float64, q Dist, batch []int) (value float64, err error)
}

func (f smoothFunc) Setup(Dist) (n int, exact bool, err error) {
	if f.f == nil {
		return 0, false, fmt.Errorf("pgsvi: the function of SmoothFunc is nil: %w", ErrParam)
	}
	return f.n, f.exact, nil
}

// Grad implements Smooth.
func (f smoothFunc) Grad(_ context.Context, env *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	return f.f(env, dst, q, batch)
}

// Value returns the value of f, and NaN for its error.
func (f smoothFunc) Value(_ context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	value, err = f.f(env, make([]float64, q.NumParams()), q, nil)
	return value, math.NaN(), err
}

// Convex is h, the easy part of the negative ELBO, which the iteration keeps exact. Custom types
// can implement it. A Convex with closed forms also has the method Prox; see type Prox. A custom
// type that embeds Zero or L1 does not inherit their closed forms, and needs its own method Prox.
type Convex interface {
	// Check is called in the set-up of a run. The error gives the reason why h is not defined at q.
	// It wraps ErrShape if q has another family or dimension, and ErrParam if a parameter of h is
	// invalid.
	Check(q Dist) error
	// Value returns h(λ).
	Value(q Dist) float64
	// Grad stores ∇_λ h in dst; nil allocates.
	Grad(dst []float64, q Dist) []float64
}

// Objective is the negative ELBO f(λ) + h(λ) over distributions of type Q, such as *Gaussian or
// *Exp, with an initial state. It is the Model for custom models and methods. Init also determines
// the coordinates in which steps are taken; see Gaussian.In and Exp.In.
type Objective[Q Dist] struct {
	F Smooth // nil means 0, as in a trust-region method
	// H is usually KLTo(prior). Use NaturalPrior(nil), the negative entropy, if LogProb of F
	// includes the prior, as the log joint density of Stan and PyMC does. Nil means Zero. If F is
	// from Expect, q then shrinks to a point, and a run warns of it.
	H    Convex
	Init Q // λ_0; cloned at the start of each run
	// Inner is the largest number of linearizations of f in a step of a given size
	// (Solver.StepSize), with the same batch and draws and with D kept at λ_k. Zero and 1 mean one
	// linearization, the proximal-gradient step. More give the trust-region method of Theis and
	// Hoffman (2015), and many give the stochastic proximal point method. After the first
	// linearization,
	//
	//	λ ← λ + t(argmin_λ' λ'ᵀ∇f(λ) + h(λ') + D(λ'‖λ_k)/β − λ),   t = 1, ½, ¼ …,
	//
	// lowers f + h + D(·‖λ_k)/β, the objective of the batch, until it is at its minimum up to
	// rounding (generalized conditional gradient method; Bredies, Lorenz and Maass, 2009). Over all
	// terms and without noise, the ELBO then rises for any β. Iteration.Passes counts every
	// gradient, which is at least Inner + 1 per step. Inner must be from 0 to 10,000, and
	// does not support steps that the Stepper chooses or an adaptive divergence.
	Inner int
}

// noTerms returns f = 0.
func noTerms() Smooth {
	return SmoothFunc(1, true, func(_ *Env, dst []float64, _ Dist, _ []int) (float64, error) {
		clear(dst)
		return 0, nil
	})
}

func isZero(h Convex) bool {
	_, ok := h.(noTerm)
	return ok
}

// Zero returns h = 0.
func Zero() Convex { return noTerm{} }

type noTerm struct{}

func (noTerm) String() string { return "Zero" }

// Check returns nil, because h is defined for any q.
func (noTerm) Check(Dist) error { return nil }

// Value returns 0.
func (noTerm) Value(Dist) float64 { return 0 }

// Grad stores zeros.
func (noTerm) Grad(dst []float64, q Dist) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	clear(dst)
	return dst
}

// L1 returns h(λ) = weight·Σ_i |λ_i| over the first count elements of λ (lasso). A zero count means
// all elements. With Euclidean its proximal step is the soft threshold.
func L1(weight float64, count int) Convex { return l1Term{weight, count} }

type l1Term struct {
	weight float64
	first  int // 0 for all
}

func (l1Term) String() string { return "L1" }

func (h l1Term) count(q Dist) int {
	if h.first == 0 {
		return q.NumParams()
	}
	return h.first
}

// Value implements Convex.
func (h l1Term) Value(q Dist) float64 {
	return h.weight * floats.Norm(q.Params(nil)[:h.count(q)], 1)
}

// Grad implements Convex. It uses the subgradient that is 0 at 0.
func (h l1Term) Grad(dst []float64, q Dist) []float64 {
	dst = q.Params(dst)
	n := h.count(q)
	for i, l := range dst {
		switch {
		case i >= n || l == 0:
			dst[i] = 0
		default:
			dst[i] = math.Copysign(h.weight, l)
		}
	}
	return dst
}

// Check returns an error wrapping ErrParam if weight is negative or not finite, and ErrShape if q
// has fewer than count parameters.
func (h l1Term) Check(q Dist) error {
	if !(h.weight >= 0) || math.IsInf(h.weight, 0) {
		return fmt.Errorf("pgsvi: the weight of L1 is %v; it must be finite and not negative: %w",
			h.weight, ErrParam)
	}
	if h.first < 0 || h.first > q.NumParams() {
		return fmt.Errorf("pgsvi: the count of L1 is %d, but λ has %d elements: %w", h.first,
			q.NumParams(), ErrShape)
	}
	return nil
}

// easySum is the Convex that SumOf returns for at least two parts.
type easySum []Convex

// kinked reports whether h is known to have kinks, where its gradient need not vanish at a minimum.
func kinked(h Convex) bool {
	if s, ok := h.(easySum); ok {
		for _, part := range s {
			if kinked(part) {
				return true
			}
		}
	}
	_, kink := h.(l1Term)
	return kink
}

// costly is a Smooth that reports the cost of its methods.
type costly interface {
	// costs returns the cost of Grad and of Value per term, in evaluations of a log-likelihood.
	costs(q Dist) (grad, value float64)
}

// ConjugateModel is a model of N observations x_n, each with its own local variables s_n. The
// observations are independent given global variables z, whose sufficient statistics T(z) are the
// statistics of an exponential family:
//
//	log p(x_n, s_n|z) = t(x_n, s_n)ᵀT(z) + c(x_n, s_n),   q(z) q(s_1) … q(s_N)
//
// (Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", JMLR 2013, section 2). With
// μ = E_q[T(z)] and the optimal q(s_n), observation n contributes to the ELBO
//
//	L_n(μ) = max_{q(s_n)} E[log p(x_n, s_n|z)] − E[log q(s_n)]
//	∇_μ L_n = E[t(x_n, s_n)] at that q(s_n)
//
// The contribution is a maximum of functions that are linear in μ, so it is convex. It may omit a
// constant.
type ConjugateModel interface {
	// Len returns N.
	Len() int
	// Local finds the optimal q(s_n) of observation n, adds weight·∇_μ L_n(μ) to dst, and returns
	// L_n(μ) in nats without the weight. The weight is N/M in a mini-batch of M observations, and 1
	// over all of them. Both dst and mu have the length of μ. Local must neither change nor keep
	// mu, and its result may depend only on its arguments. It is called concurrently if
	// Solver.Workers is above 1.
	Local(dst, mu []float64, n int, weight float64) (float64, error)
}

// Conjugate returns f(λ) = −Σ_n L_n(μ) with the exact gradient −Σ_n ∇_μ L_n, in the coordinates of
// q, which must be an ExpFamily with the statistics T(z) of m. Let H be KLTo the conjugate prior,
// in the coordinates MeanParams with the divergence KL. A proximal step is then
//
//	η ← (1−ρ)η + ρ(η_prior + (N/M) Σ_n E[t(x_n, s_n)]),   ρ = β/(1+β).
//
// This is stochastic variational inference, and FractionStep is the published schedule. Over all
// terms with β = +Inf it is coordinate ascent. Because f is concave in μ, a step over all terms
// raises the ELBO for any β. Without a step size, the Stepper takes coordinate ascent steps over
// all terms, and steps of the zero FractionStep over mini-batches. If coordinate ascent is slow
// after ten steps, it mixes steps (Anderson, 1965), unless the mixture lowers the ELBO.
//
// Evaluation.GapBound has the Scope OverBlock. With the q(s_n) fixed, the objective is KL(q‖q*)
// plus a constant, where q* is the minimizer. So q(z) alone can gain KL(q‖q*) nats, and q(s_n)
// alone can gain nothing. This is proved if h is KLTo and log p is linear in T(z). Local does not
// reveal whether log p is linear. Over a ProductOf or a diagonal Gaussian, log p may multiply
// statistics of two parts, such as a precision and weights, and q* of all parts together is then no
// maximum. GapBound is therefore +Inf if q has several parts. For a q of one part, each evaluation
// compares up to 16 of the L_n at q with their tangents at the initial state, the prior and points
// between, and looks for a direction in which their sum is not convex in μ. GapBound is +Inf if one
// of them is below a tangent. An L_n that is convex without being a maximum over q(s_n) passes the
// test; its tangents then take the place of q(s_n). A Mixture is linear over all its parts. An LDA
// has no GapBound.
//
// Evaluation.Gap is +Inf while KL(q‖q*) is above the goal, and then estimates the gain of all
// factors together by Newton's method. The Gap of an LDA estimates that gain in each evaluation in
// a quadratic model, ½rᵀF(I−J)⁻¹r with r = η* − η, J = ∂η*/∂η and the Fisher information F, which
// takes two more gradients.
//
// Setup returns an error that wraps ErrParam if m is nil, ErrEmpty if m has no terms, and ErrShape
// if q is not an ExpFamily. An error of Local is wrapped with the index of the term. An L_n that is
// not finite gives an error that wraps ErrNotFinite.
func Conjugate(m ConjugateModel) Smooth { return conjugateTerms{m} }

// conjugateTerms is the Smooth that Conjugate returns.
type conjugateTerms struct{ m ConjugateModel }

// blockwise is a Smooth with factors of q that are not in λ. Linearization in μ keeps these factors
// fixed.
type blockwise interface {
	Smooth
	// valueGrad is Value, and also stores the gradient over all terms in dst.
	valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value, stderr float64,
		err error)
	// linear reports whether f is known to be linear in μ if its own factors are fixed.
	linear() bool
}

// linearModel is a ConjugateModel of this package whose log p is linear in the T(z) of all parts.
type linearModel interface {
	ConjugateModel
	linear()
}

// linear implements blockwise.
func (f conjugateTerms) linear() bool {
	_, ok := f.m.(linearModel)
	return ok
}

// onePart reports whether q is free of parts that are independent by its form.
func onePart(q Dist) bool {
	switch q := q.(type) {
	case *Gaussian:
		return q.Dim() == 1 || !q.isDiagonal()
	case *Exp:
		return oneFamily(q.at.F)
	}
	return false
}

func oneFamily(f Family) bool {
	if n, ok := f.(normal.Family); ok {
		return n.D == 1 || !n.Diagonal
	}
	parts, one := 0, true
	product := expfam.EachPart(f, func(_ int, g expfam.Family, _, _, _ int) {
		parts, one = parts+1, one && oneFamily(g)
	})
	return !product || parts == 1 && one
}

// Setup implements Smooth.
func (f conjugateTerms) Setup(q Dist) (n int, exact bool, err error) {
	if isNil(f.m) {
		return 0, true, fmt.Errorf("pgsvi: the ConjugateModel of Conjugate is nil: %w",
			ErrParam)
	}
	if _, ok := q.(ExpFamily); !ok {
		return 0, true, fmt.Errorf("pgsvi: Conjugate needs an ExpFamily, but q is a %T: %w",
			q, ErrShape)
	}
	return f.m.Len(), true, nil
}

// The terms of a batch are summed in at most mostParts parts of at least partTerms terms, for any
// number of workers. Each part needs memory for a gradient.
const (
	partTerms = 16
	mostParts = 8
)

// sharedModel is a ConjugateModel whose Local is safe for concurrent use, and slow enough to
// benefit from it.
type sharedModel interface {
	ConjugateModel
	shared()
}

// conjugateWork holds the buffers of a gradient: μ, and the sums of all parts except the first.
type conjugateWork struct {
	mu     []float64
	sums   [mostParts][]float64
	values [mostParts]conjugateValue
}

// conjugateValue holds Σ L_n and Σ |L_n|.
type conjugateValue struct{ sum, size float64 }

var conjugatePool = sync.Pool{New: func() any { return new(conjugateWork) }}

// Grad implements Smooth.
func (f conjugateTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	v, err := f.grad(ctx, env, dst, q, batch)
	return v.sum, err
}

func (f conjugateTerms) grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (conjugateValue, error) {
	w := conjugatePool.Get().(*conjugateWork)
	defer conjugatePool.Put(w)
	e, terms := q.(ExpFamily), estimate.NewBatch(batch, f.m.Len())
	w.mu = e.MeanParams(dense.Resize(w.mu, len(dst)))
	parts := max(1, min(mostParts, terms.N/partTerms))
	workers := env.Workers()
	if _, ok := f.m.(sharedModel); ok {
		workers = env.cores()
	}
	err := parallel.Each(ctx, parts, workers, func(_, p int) (err error) {
		g := dst
		if p > 0 {
			w.sums[p] = dense.Resize(w.sums[p], len(dst))
			g = w.sums[p]
		}
		clear(g)
		w.values[p], err = f.part(ctx, g, w.mu, terms, p*terms.N/parts, (p+1)*terms.N/parts)
		return err
	})
	if err != nil {
		return conjugateValue{math.NaN(), math.NaN()}, err
	}
	v := w.values[0]
	for p := 1; p < parts; p++ {
		floats.Add(dst, w.sums[p])
		v.sum += w.values[p].sum
		v.size += w.values[p].size
	}
	floats.Scale(-1, dst)
	if i, ok := dense.AllFinite(dst); !ok {
		return v, fmt.Errorf("pgsvi: element %d of the gradient of a %T is %v: %w", i, f.m, dst[i],
			ErrNotFinite)
	}
	e.FromMeanGrad(dst, dst)
	return conjugateValue{-terms.Scale * v.sum, terms.Scale * v.size}, nil
}

// part sums the terms lo to hi of a batch.
func (f conjugateTerms) part(ctx context.Context, g, mu []float64, terms estimate.Batch, lo,
	hi int) (v conjugateValue, err error) {
	i := lo
	defer parallel.At(&i, func(i int) string { return fmt.Sprintf("term %d", terms.Index(i)) })
	for ; i < hi; i++ {
		if (i-lo)%ctxEvery == 0 && ctx.Err() != nil {
			return v, context.Cause(ctx)
		}
		n := terms.Index(i)
		l, err := f.m.Local(g, mu, n, terms.Scale)
		if err != nil {
			return v, fmt.Errorf("pgsvi: term %d: %w", n, sentinel.Bare(err))
		}
		if math.IsNaN(l) || math.IsInf(l, 0) {
			return v, fmt.Errorf("pgsvi: term %d: Local returns %v: %w", n, l, ErrNotFinite)
		}
		v.sum += l
		v.size += math.Abs(l)
	}
	return v, nil
}

// Value implements Smooth. Its stderr bounds the rounding of the sum.
func (f conjugateTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	return f.valueGrad(ctx, env, make([]float64, q.NumParams()), q)
}

func (f conjugateTerms) valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value,
	stderr float64, err error) {
	v, err := f.grad(ctx, env, dst, q, nil)
	return v.sum, unitRounding * math.Sqrt(float64(f.m.Len())) * v.size, err
}

// unitRounding is the relative error of one floating-point operation.
const unitRounding = 0x1p-53

// leaper is a Smooth or a ConjugateModel with other states that are worth trying. It returns the
// fields Leaps and Leap of a descent.Objective.
type leaper interface {
	leaps() (int, func(q ExpFamily, tried []bool) int)
}

// leaps implements leaper.
func (f conjugateTerms) leaps() (int, func(q ExpFamily, tried []bool) int) {
	if m, ok := f.m.(leaper); ok {
		return m.leaps()
	}
	return 0, nil
}

func (f conjugateTerms) digest(d *save.Digest) { digestPart(d, f.m) }

// whole is f + h as a Convex.
type whole struct {
	f Smooth
	h Convex
}

// Check implements Convex.
func (w whole) Check(q Dist) error {
	_, exact, err := w.f.Setup(q)
	if err != nil {
		return err
	}
	if !exact {
		return fmt.Errorf(
			"pgsvi: ProximalPoint needs an f without noise; use the estimator Exact, or set "+
				"Objective.Inner: %w", ErrParam)
	}
	if err := w.h.Check(q); err != nil {
		return err
	}
	s, ok := w.f.(sited)
	if !ok {
		return nil
	}
	lik, concave := s.siteConcave()
	if lik == nil {
		return nil
	}
	if !concave {
		return fmt.Errorf("pgsvi: ProximalPoint needs a convex f, but %T is not log-concave: %w",
			lik, ErrParam)
	}
	if e, ok := q.(ExpFamily); ok && e.Coordinates() != Cholesky {
		return fmt.Errorf(
			"pgsvi: f is not convex in the coordinates %v; ProximalPoint needs Cholesky, so use "+
				"Init: q.In(Cholesky): %w", e.Coordinates(), ErrParam)
	}
	return nil
}

// Value implements Convex. It returns NaN if f returns an error.
func (w whole) Value(q Dist) float64 { return (&survey{whole: w}).Value(q) }

// Grad implements Convex.
func (w whole) Grad(dst []float64, q Dist) []float64 { return (&survey{whole: w}).Grad(dst, q) }

// survey is the whole of one Stepper. It counts the evaluations of f.
type survey struct {
	whole
	ctx    context.Context // nil is never done
	env    *Env
	visits int
	err    error // the last error of f

	at, grad, easy []float64 // the last point, and ∇f and ∇h there
	f0             float64
}

// look evaluates f0 and grad at q.
func (s *survey) look(q Dist) {
	n := q.NumParams()
	if s.at == nil {
		s.at, s.grad, s.easy = make([]float64, n), make([]float64, n), make([]float64, n)
		s.at[0] = math.NaN()
	}
	if slices.Equal(q.Params(s.easy), s.at) {
		return
	}
	copy(s.at, s.easy)
	ctx := s.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	s.visits++
	var err error
	if s.f0, err = s.f.Grad(ctx, s.env, s.grad, q, nil); err != nil {
		s.f0, s.err = math.NaN(), err
		s.grad[0] = math.NaN()
	}
}

func (s *survey) Value(q Dist) float64 {
	s.look(q)
	return s.f0 + s.h.Value(q)
}

func (s *survey) Grad(dst []float64, q Dist) []float64 {
	s.look(q)
	dst = dense.Dest(dst, len(s.grad))
	copy(dst, s.grad)
	floats.Add(dst, s.h.Grad(s.easy, q))
	return dst
}

func (w whole) digest(d *save.Digest) {
	digestPart(d, w.f)
	digestPart(d, w.h)
}

// sited is a Smooth whose terms depend on z through one number each.
type sited interface {
	// siteConcave returns the likelihood of the terms and whether it is log-concave. It returns nil
	// if the terms depend on more than one number.
	siteConcave() (lik any, concave bool)
}

// linearized is f + h as a Smooth.
type linearized struct {
	f Smooth
	h Convex
}

// costs implements costly.
func (l linearized) costs(q Dist) (grad, value float64) {
	if c, ok := l.f.(costly); ok {
		return c.costs(q)
	}
	return 1, 1
}

// Setup returns the terms of f, or the error of f or h.
func (l linearized) Setup(q Dist) (n int, exact bool, err error) {
	if n, exact, err = l.f.Setup(q); err == nil {
		err = l.h.Check(q)
	}
	return n, exact, err
}

// valuer is a Convex whose value and gradient share work.
type valuer interface {
	// valueGrad stores ∇_λ h in dst and returns h.
	valueGrad(dst []float64, q Dist) float64
}

// Grad implements Smooth.
func (l linearized) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	v, err := l.f.Grad(ctx, env, dst, q, batch)
	if err != nil {
		return math.NaN(), err
	}
	g := make([]float64, len(dst))
	if h, ok := l.h.(valuer); ok {
		v += h.valueGrad(g, q)
	} else {
		l.h.Grad(g, q)
		v += l.h.Value(q)
	}
	floats.Add(dst, g)
	if i, ok := dense.AllFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: element %d of the gradient is %v: %w", i, dst[i],
			ErrNotFinite)
	}
	return v, nil
}

// Value returns f + h over all terms and the standard error of f.
func (l linearized) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	v, stderr, err := l.f.Value(ctx, env, q)
	return v + l.h.Value(q), stderr, err
}

func (l linearized) digest(d *save.Digest) {
	digestPart(d, l.f)
	digestPart(d, l.h)
}

// Linearized returns the same negative ELBO with h moved into f, so that steps linearize both: f ←
// f + h, h ← 0. Gradient, mirror and natural gradient descent use this split; see Prox. The
// gradient of h is exact for any batch.
func (o Objective[Q]) Linearized() Objective[Q] {
	if o.H == nil {
		return o
	}
	if o.F == nil {
		o.F = noTerms()
	}
	o.F, o.H = linearized{o.F, o.H}, nil
	return o
}
