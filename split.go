package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// SmoothTerms is what a Smooth says of itself at set-up.
type SmoothTerms struct {
	N             int  // the number of terms
	Deterministic bool // Grad over all terms ignores the randomness of env
}

// Smooth is f, the difficult part of the negative ELBO: a sum of N terms,
// differentiable in λ, which the iteration linearises. Expect makes one of a log-likelihood,
// SmoothFunc one of a function, and any user type may be one.
type Smooth interface {
	// Setup is called once a run, before all others. The error says why f is not defined for the family of q.
	Setup(q Dist) (SmoothTerms, error)
	// Grad stores an unbiased estimate of ∇_λ f(λ), the gradient of the terms in
	// batch scaled by N/len(batch), in dst, of length q.NumParams, and returns
	// an estimate of f scaled alike. A nil batch means all terms. Given the same
	// randomness in env it returns the same bits, for any number of workers. The error names the term.
	Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (value float64, err error)
	// Value returns f over all terms, as exactly as it is known, with its standard error or a
	// bound on its error, NaN if that is not known.
	Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error)
}

// SmoothFunc makes a Smooth of a function.
type SmoothFunc struct {
	// N is the number of terms.
	N int
	// Deterministic says that Func ignores the randomness of env.
	Deterministic bool
	// Func is Smooth.Grad.
	Func func(env *Env, dst []float64, q Dist, batch []int) (value float64, err error)
	// Check, where not nil, returns an error if Func is not defined for the family of q.
	Check func(q Dist) error
}

// Setup implements Smooth. The error wraps ErrParam if Func is nil, or is that of Check.
func (f SmoothFunc) Setup(q Dist) (SmoothTerms, error) {
	if f.Func == nil {
		return SmoothTerms{}, fmt.Errorf("pgsvi: SmoothFunc.Func is nil: %w", ErrParam)
	}
	if f.Check != nil {
		if err := f.Check(q); err != nil {
			return SmoothTerms{}, err
		}
	}
	return SmoothTerms{f.N, f.Deterministic}, nil
}

// Grad implements Smooth.
func (f SmoothFunc) Grad(_ context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	return f.Func(env, dst, q, batch)
}

// Value implements Smooth, by the value that Func returns. Its error is not known.
func (f SmoothFunc) Value(_ context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	value, err = f.Func(env, make([]float64, q.NumParams()), q, nil)
	return value, math.NaN(), err
}

// Convex is h, the easy part of the negative ELBO, which the iteration keeps
// exact. Any user type may be one; a Convex that knows closed forms is also a
// Proxer. A type that embeds Zero or L1 is that to the library.
type Convex interface {
	// Check is asked at set-up. The error says why h is not defined at q: it wraps
	// ErrShape if q is of another family or dimension, or ErrParam if a parameter of h
	// itself is not valid.
	Check(q Dist) error
	// Value returns h(λ).
	Value(q Dist) float64
	// Grad stores ∇_λ h in dst; nil allocates.
	Grad(dst []float64, q Dist) []float64
}

// Objective is the negative ELBO f(λ) + h(λ) over the distributions of a type Q, such as
// *Gaussian or *Exp, and where to begin. It is a Model. Init has the coordinates in which
// steps are taken: see Gaussian.In and Exp.In.
type Objective[Q Dist] struct {
	F    Smooth // nil means 0, as in a trust-region method
	H    Convex // nil means Zero
	Init Q      // λ_0; cloned at the start of each run
	// Inner is the most linearisations of f in a step of a given size (Solver.StepSize), by the same batch and draws, with D kept at λ_k: a step of the trust-region method of Theis and
	// Hoffman (2015), the stochastic proximal point method where there are many. 0 and 1 mean one, as in a proximal-gradient step. From there on
	//
	//	λ ← λ + t(argmin_λ' λ'ᵀ∇f(λ) + h(λ') + D(λ'‖λ_k)/β − λ),   t = 1, ½, ¼ …,
	//
	// lowers f + h + D(·‖λ_k)/β, the objective of the batch, until it is at its minimum to rounding: the generalised conditional gradient method (Bredies, Lorenz and Maass, 2009). Over all
	// terms, and without noise, the ELBO then rises for any β. Every gradient counts in Iteration.Passes, Inner + 1 a step or more.
	// It must not be negative, and is not for steps that the Stepper chooses, nor for an Adaptive divergence.
	Inner int
}

// noTerms is f = 0.
func noTerms() Smooth {
	return SmoothFunc{N: 1, Deterministic: true, Func: func(_ *Env, dst []float64, _ Dist, _ []int) (float64, error) {
		clear(dst)
		return 0, nil
	}}
}

// What h is as a value, behind a pointer or embedded, so that no question about
// it depends on which.
type (
	zeroTerm  interface{ isZero() }              // h = 0
	absTerm   interface{ abs() L1 }              // h = L1, which has a kink
	priorTerm interface{ priorDist() ExpFamily } // h = KL(q‖p)
)

func isZero(h Convex) bool {
	_, ok := h.(zeroTerm)
	return ok
}

// priorOf returns the prior of an h that is KL to one, or nil.
func priorOf(h Convex) ExpFamily {
	if t, ok := h.(priorTerm); ok {
		return t.priorDist()
	}
	return nil
}

// Zero is h = 0.
type Zero struct{}

func (Zero) isZero() {}

// Check returns nil: it is defined for any q.
func (Zero) Check(Dist) error { return nil }

// Value returns 0.
func (Zero) Value(Dist) float64 { return 0 }

// Grad stores zeros.
func (Zero) Grad(dst []float64, q Dist) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	clear(dst)
	return dst
}

// L1 is h(λ) = Weight·Σ_i |λ_i| over the first Count elements of λ; a zero
// Count means all. With Euclidean its proximal step is the soft threshold.
type L1 struct {
	Weight float64
	Count  int
}

func (h L1) abs() L1 { return h }

func (h L1) count(q Dist) int {
	if h.Count == 0 {
		return q.NumParams()
	}
	return h.Count
}

// Value implements Convex.
func (h L1) Value(q Dist) float64 {
	return h.Weight * floats.Norm(q.Params(nil)[:h.count(q)], 1)
}

// Grad implements Convex with the subgradient that is 0 at 0.
func (h L1) Grad(dst []float64, q Dist) []float64 {
	dst = q.Params(dst)
	n := h.count(q)
	for i, l := range dst {
		switch {
		case i >= n || l == 0:
			dst[i] = 0
		default:
			dst[i] = math.Copysign(h.Weight, l)
		}
	}
	return dst
}

// Check returns an error wrapping ErrParam if Weight is negative or not finite,
// and ErrShape if q has fewer than Count parameters.
func (h L1) Check(q Dist) error {
	if !(h.Weight >= 0) || math.IsInf(h.Weight, 0) {
		return fmt.Errorf("pgsvi: L1.Weight is %v; it must be finite and not negative: %w", h.Weight, ErrParam)
	}
	if h.Count < 0 || h.Count > q.NumParams() {
		return fmt.Errorf("pgsvi: L1.Count is %d, λ has %d elements: %w", h.Count, q.NumParams(), ErrShape)
	}
	return nil
}

// batchTerms is a mini-batch of n terms; a nil batch means all.
type batchTerms struct {
	batch []int
	n     int
	scale float64         // N/len(batch)
	ctx   context.Context // nil is never done
}

// watch implements watching.
func (t *batchTerms) watch(ctx context.Context) { t.ctx = ctx }

// stopped reports, now and then, whether the context of the batch is done, before term i of it.
func (t *batchTerms) stopped(i int) bool {
	return i%ctxEvery == 0 && t.ctx != nil && t.ctx.Err() != nil
}

// watching is an Integrand whose values are NaN, and its gradients of no use, once ctx is done.
type watching interface{ watch(ctx context.Context) }

func newBatch(batch []int, n int) batchTerms {
	if batch == nil {
		return batchTerms{n: n, scale: 1}
	}
	return batchTerms{batch: batch, n: len(batch), scale: float64(n) / float64(len(batch))}
}

func (t batchTerms) index(i int) int {
	if t.batch == nil {
		return i
	}
	return t.batch[i]
}

// costly is a Smooth that knows the work of its methods.
type costly interface {
	// costs returns the work of Grad and of Value, in log-likelihoods of a term for each term.
	costs(q Dist) (grad, value float64)
}
