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

// SmoothTerms describes a Smooth, as returned at set-up.
type SmoothTerms struct {
	N             int  // the number of terms
	Deterministic bool // Grad over all terms ignores the randomness of env
}

// Smooth is f, the difficult part of the negative ELBO: a sum of N terms, differentiable in λ,
// that the iteration linearises. Expect makes one from a log-likelihood and SmoothFunc from a
// function; types of your own may be one.
type Smooth interface {
	// Setup is called once a run, before the other methods. The error says why f is not defined
	// for the family of q.
	Setup(q Dist) (SmoothTerms, error)
	// Grad stores an unbiased estimate of ∇_λ f(λ) in dst, of length q.NumParams: the gradient of
	// the terms in batch, scaled by N/len(batch). It returns an estimate of f with the same
	// scaling. A nil batch means all terms. The same randomness in env must give the same bits
	// for any number of workers. The error names the term.
	Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (value float64,
		err error)
	// Value returns f over all terms, as exactly as possible, with its standard error or an error
	// bound, NaN if that is unknown.
	Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error)
}

// SmoothFunc returns a Smooth of n terms whose Grad is f. deterministic means that f ignores the
// randomness of env. Value is what f returns, with an unknown error. A nil f is an error at
// set-up that wraps ErrParam.
func SmoothFunc(n int, deterministic bool,
	f func(env *Env, dst []float64, q Dist, batch []int) (value float64, err error)) Smooth {
	return smoothFunc{SmoothTerms{n, deterministic}, f}
}

type smoothFunc struct {
	terms SmoothTerms
	f     func(env *Env, dst []float64, q Dist, batch []int) (value float64, err error)
}

func (f smoothFunc) Setup(Dist) (SmoothTerms, error) {
	if f.f == nil {
		return SmoothTerms{}, fmt.Errorf("pgsvi: the function of SmoothFunc is nil: %w", ErrParam)
	}
	return f.terms, nil
}

// Grad implements Smooth.
func (f smoothFunc) Grad(_ context.Context, env *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	return f.f(env, dst, q, batch)
}

// Value returns what f does. Its error is not known.
func (f smoothFunc) Value(_ context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	value, err = f.f(env, make([]float64, q.NumParams()), q, nil)
	return value, math.NaN(), err
}

// Convex is h, the easy part of the negative ELBO, which the iteration keeps exact. Types of your
// own may be one. A Convex with closed forms is also a Proxer. A type of yours that embeds Zero
// or L1 does not inherit their closed forms: add a method Prox for these.
type Convex interface {
	// Check is called at set-up. The error says why h is not defined at q. It wraps ErrShape if q
	// is of another family or dimension, and ErrParam if a parameter of h is invalid.
	Check(q Dist) error
	// Value returns h(λ).
	Value(q Dist) float64
	// Grad stores ∇_λ h in dst; nil allocates.
	Grad(dst []float64, q Dist) []float64
}

// Objective is the negative ELBO f(λ) + h(λ) over distributions of type Q, such as *Gaussian or
// *Exp, with a start. It is a Model, and the way to models and methods of your own. Init
// determines the coordinates in which steps are taken: see Gaussian.In and Exp.In.
type Objective[Q Dist] struct {
	F    Smooth // nil means 0, as in a trust-region method
	H    Convex // nil means Zero
	Init Q      // λ_0; cloned at the start of each run
	// Inner is the largest number of linearisations of f in a step of a given size
	// (Solver.StepSize), with the same batch and draws and with D kept at λ_k. 0 and 1 mean one,
	// the proximal-gradient step. More give the trust-region method of Theis and Hoffman (2015),
	// and many the stochastic proximal point method. After the first linearisation,
	//
	//	λ ← λ + t(argmin_λ' λ'ᵀ∇f(λ) + h(λ') + D(λ'‖λ_k)/β − λ),   t = 1, ½, ¼ …,
	//
	// lowers f + h + D(·‖λ_k)/β, the objective of the batch, until it is at its minimum to
	// rounding (generalised conditional gradient method; Bredies, Lorenz and Maass, 2009). Over
	// all terms, and without noise, the ELBO then rises for any β. Iteration.Passes counts every
	// gradient, Inner + 1 or more a step. Inner must not be negative. It cannot be used with
	// steps that the Stepper chooses, nor with an Adaptive divergence.
	Inner int
}

// noTerms is f = 0.
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

// priorTerm is h = KL(q‖p).
type priorTerm interface{ priorDist() ExpFamily }

// priorOf returns the prior of an h that is KL to one, or nil.
func priorOf(h Convex) ExpFamily {
	if t, ok := h.(priorTerm); ok {
		return t.priorDist()
	}
	return nil
}

// Zero is h = 0.
func Zero() Convex { return noTerm{} }

type noTerm struct{}

func (noTerm) String() string { return "Zero" }

// Check returns nil: it is defined for any q.
func (noTerm) Check(Dist) error { return nil }

// Value returns 0.
func (noTerm) Value(Dist) float64 { return 0 }

// Grad stores zeros.
func (noTerm) Grad(dst []float64, q Dist) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	clear(dst)
	return dst
}

// L1 is h(λ) = weight·Σ_i |λ_i| over the first count elements of λ (lasso); a zero count means
// all. With Euclidean its proximal step is the soft threshold.
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

// Grad implements Convex with the subgradient that is 0 at 0.
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

// Check returns an error wrapping ErrParam if weight is negative or not finite,
// and ErrShape if q has fewer than count parameters.
func (h l1Term) Check(q Dist) error {
	if !(h.weight >= 0) || math.IsInf(h.weight, 0) {
		return fmt.Errorf("pgsvi: the weight of L1 is %v; it must be finite and not negative: %w",
			h.weight, ErrParam)
	}
	if h.first < 0 || h.first > q.NumParams() {
		return fmt.Errorf("pgsvi: the count of L1 is %d, λ has %d elements: %w", h.first,
			q.NumParams(), ErrShape)
	}
	return nil
}

// costly is a Smooth that knows the work of its methods.
type costly interface {
	// costs returns the work of Grad and of Value, in log-likelihoods of a term for each term.
	costs(q Dist) (grad, value float64)
}

// ConjugateModel is a model of N data x_n, each with its own local variables s_n, given global
// variables z with the sufficient statistics T(z) of an exponential family:
//
//	log p(x_n, s_n|z) = t(x_n, s_n)ᵀT(z) + c(x_n, s_n),   q(z) q(s_1) … q(s_N)
//
// (Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", JMLR 2013, section 2).
// With μ = E_q[T(z)] and the optimal q(s_n), datum n has the share of the ELBO
//
//	L_n(μ) = max_{q(s_n)} E[log p(x_n, s_n|z)] − E[log q(s_n)]
//	∇_μ L_n = E[t(x_n, s_n)] at that q(s_n)
//
// It is a maximum of functions that are linear in μ, and so convex. A constant may be left out.
type ConjugateModel interface {
	// Len returns N.
	Len() int
	// Local finds the optimal q(s_n) of datum n, adds weight·∇_μ L_n(μ) to dst, and returns
	// L_n(μ) in nats without the weight. The weight is N/M in a mini-batch of M data and 1 over
	// all of them. dst and mu have the length of μ. Local must not change or keep mu, and its
	// result may depend on its arguments only. It is called concurrently if Solver.Workers is
	// above 1.
	Local(dst, mu []float64, n int, weight float64) (float64, error)
}

// Conjugate returns f(λ) = −Σ_n L_n(μ), with the exact gradient −Σ_n ∇_μ L_n in the coordinates
// of q, an ExpFamily with the statistics T(z) of m. With H = KLTo the conjugate prior, the
// coordinates MeanParams, and KL, a proximal step is
//
//	η ← (1−ρ)η + ρ(η_prior + (N/M) Σ_n E[t(x_n, s_n)]),   ρ = β/(1+β).
//
// This is stochastic variational inference, with FractionStep as the published schedule. Over all
// terms with β = +Inf it is coordinate ascent. As f is concave in μ, a step over all terms raises
// the ELBO for any β. Without a step size the Stepper takes coordinate ascent steps over all
// terms, and steps by the zero FractionStep over mini-batches. If coordinate ascent is slow after
// ten steps it mixes steps (Anderson, 1965), unless the mixture lowers the ELBO.
//
// Evaluation.GapBound has the Scope OverBlock. With the q(s_n) fixed, the objective is KL(q‖q*)
// plus a constant, with q* the minimiser. q(z) alone can therefore gain KL(q‖q*) nats, and no
// q(s_n) alone can gain any. It is proved if h is KLTo and log p is linear in T(z). Local does not
// show whether it is: over a ProductOf or a diagonal Gaussian log p may multiply statistics of two
// parts, such as a precision and weights, and then q* of all parts together is no maximum. So
// nothing is proved, and GapBound is +Inf, if q has several parts, or if the L_n are found not to
// be convex in μ. A Mixture is linear over all its parts. An LDA has no GapBound.
//
// Evaluation.Gap is KL(q‖q*)/(1 − ρ), where ρ is the largest rate of coordinate ascent at q: the
// largest eigenvalue of ∂η*/∂η, from eight more gradients per evaluation. It is +Inf if ρ is above
// 1, which is the case at a saddle. It is also +Inf above 0.001 nats, because ρ changes along
// longer ways. It does not tell a local maximum from the best. The Gap of an LDA estimates the gain
// of all factors together in a quadratic model, ½rᵀF(I−J)⁻¹r with r = η* − η, J = ∂η*/∂η and the
// Fisher information F. It takes two more gradients per evaluation.
//
// The set-up error wraps ErrParam if m is nil, ErrEmpty if it has no terms, and ErrShape if q is
// not an ExpFamily. An error of Local is wrapped with the index of the term. One wraps
// ErrNotFinite if L_n is not finite.
func Conjugate(m ConjugateModel) Smooth { return conjugateTerms{m} }

// conjugateTerms is the Smooth made by Conjugate.
type conjugateTerms struct{ m ConjugateModel }

// blockwise is a Smooth of which linearising in μ holds factors of q that are not in λ.
type blockwise interface {
	Smooth
	// valueGrad is Value, and stores the gradient over all terms in dst.
	valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value, stderr float64,
		err error)
	// linear reports whether f is known to be linear in μ with its own factors held.
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

// onePart reports whether no two parts of q are independent of each other by its form.
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
func (f conjugateTerms) Setup(q Dist) (SmoothTerms, error) {
	if isNil(f.m) {
		return SmoothTerms{}, fmt.Errorf("pgsvi: Conjugate needs a ConjugateModel: %w", ErrParam)
	}
	if _, ok := q.(ExpFamily); !ok {
		return SmoothTerms{}, fmt.Errorf("pgsvi: Conjugate needs an ExpFamily, not a %T: %w", q,
			ErrShape)
	}
	return SmoothTerms{N: f.m.Len(), Deterministic: true}, nil
}

// The terms of a batch are summed in parts, whatever the number of workers: partTerms of them or
// more in each, in at most mostParts, each of which needs memory for a gradient.
const (
	partTerms = 16
	mostParts = 8
)

// sharedModel is a ConjugateModel whose Local is safe for concurrent use, and takes long enough for
// that to be worth it.
type sharedModel interface {
	ConjugateModel
	shared()
}

// conjugateWork is what a gradient needs: μ, and the sums of the parts but the first.
type conjugateWork struct {
	mu     []float64
	sums   [mostParts][]float64
	values [mostParts]conjugateValue
}

// conjugateValue is Σ L_n and Σ |L_n|.
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
			return v, fmt.Errorf("pgsvi: term %d has the bound %v: %w", n, l, ErrNotFinite)
		}
		v.sum += l
		v.size += math.Abs(l)
	}
	return v, nil
}

// Value implements Smooth, with a bound on the rounding of the sum.
func (f conjugateTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	return f.valueGrad(ctx, env, make([]float64, q.NumParams()), q)
}

func (f conjugateTerms) valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value,
	stderr float64, err error) {
	v, err := f.grad(ctx, env, dst, q, nil)
	return v.sum, unitRounding * math.Sqrt(float64(f.m.Len())) * v.size, err
}

// unitRounding is the relative error of an operation.
const unitRounding = 0x1p-53

// leaper is a Smooth, or the ConjugateModel of one, that has other states worth a try. It returns
// Leaps and Leap of a descent.Objective.
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

// whole is the Convex f + h.
type whole struct {
	f Smooth
	h Convex
}

// Check implements Convex.
func (w whole) Check(q Dist) error {
	t, err := w.f.Setup(q)
	if err != nil {
		return err
	}
	if !t.Deterministic {
		return fmt.Errorf(
			"pgsvi: ProximalPoint needs an f without noise, as with the estimator Exact; use "+
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
		return fmt.Errorf("pgsvi: ProximalPoint needs a convex f, and %T is not log-concave: %w",
			lik, ErrParam)
	}
	if e, ok := q.(ExpFamily); ok && e.Coordinates() != Cholesky {
		return fmt.Errorf(
			"pgsvi: ProximalPoint needs a convex f, which it is in the coordinates Cholesky and "+
				"not in %v; use Init: q.In(Cholesky): %w", e.Coordinates(), ErrParam)
	}
	return nil
}

// Value implements Convex. It is NaN where f has an error.
func (w whole) Value(q Dist) float64 { return (&survey{whole: w}).Value(q) }

// Grad implements Convex.
func (w whole) Grad(dst []float64, q Dist) []float64 { return (&survey{whole: w}).Grad(dst, q) }

// survey is whole for one Stepper, which counts how often it looks at f.
type survey struct {
	whole
	ctx    context.Context // nil is never done
	env    *Env
	visits int
	err    error // the last of f

	at, grad, easy []float64 // where it looked last, ∇f there and ∇h
	f0             float64
}

// look brings f0 and grad to q.
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

// sited is a Smooth of terms that see z through one number each.
type sited interface {
	// siteConcave returns the likelihood of the terms, nil if they see more than that, and whether
	// it is log-concave.
	siteConcave() (lik any, concave bool)
}

// linearized is the Smooth f + h.
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

// Setup reports what either part says of q.
func (l linearized) Setup(q Dist) (SmoothTerms, error) {
	t, err := l.f.Setup(q)
	if err != nil {
		return t, err
	}
	return t, l.h.Check(q)
}

// valuer is a Convex whose value and gradient have work in common.
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

// Linearized returns the same negative ELBO with h moved into f, which steps linearise: f ← f +
// h, h ← 0. Gradient, mirror and natural gradient descent use this split; see Prox. The gradient
// of h is exact for any batch.
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
