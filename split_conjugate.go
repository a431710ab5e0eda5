package pgsvi

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// ConjugateModel is a model of N data x_n, each with local variables s_n of its own, given global variables z with the
// sufficient statistics T(z) of an exponential family:
//
//	log p(x_n, s_n|z) = t(x_n, s_n)ᵀT(z) + c(x_n, s_n),   q(z) q(s_1) … q(s_N)
//
// (Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", JMLR 2013, section 2). With μ = E_q[T(z)] and the
// best q(s_n) datum n has the share
//
//	L_n(μ) = max_{q(s_n)} E[log p(x_n, s_n|z)] − E[log q(s_n)],   ∇_μ L_n = E[t(x_n, s_n)] at that q(s_n)
//
// of the ELBO: the largest of functions that are linear in μ, and so convex. A constant may be left out.
type ConjugateModel interface {
	// Len returns N.
	Len() int
	// Local finds the best q(s_n) of datum n, adds weight·∇_μ L_n(μ) to dst and returns L_n(μ), in nats and without the
	// weight: N/M in a mini-batch of M data and 1 over all of them. Dst and mu have the length of μ. Local must
	// not change or keep mu, and is called concurrently where Solver.Workers is above 1. What it returns may depend on its
	// arguments alone.
	Local(dst, mu []float64, n int, weight float64) (float64, error)
}

// Conjugate returns f(λ) = −Σ_n L_n(μ), with the exact gradient −Σ_n ∇_μ L_n in the coordinates of q, which must be an ExpFamily with
// the statistics T(z) of m. With H = KLTo the conjugate prior, in the coordinates MeanParams, and KL a proximal step is
//
//	η ← (1−ρ)η + ρ(η_prior + (N/M) Σ_n E[t(x_n, s_n)]),   ρ = β/(1+β)
//
// which is stochastic variational inference, with FractionStep the schedule that was published, and
// with all terms and β = +Inf coordinate ascent. As f is concave in μ, a step over all terms makes the ELBO rise whatever β is. Without a
// step size the Stepper of an Objective takes the latter over all terms, mixed (Anderson, 1965) after the first ten steps where it is slow and the mixture does not
// make the ELBO fall, and steps by the zero FractionStep over mini-batches.
//
// Evaluation.GapBound has the Scope OverBlock: with the q(s_n) held the objective is KL(q‖q*) and a constant, q* the
// minimiser, so that q(z) alone can gain KL(q‖q*) nats, and no q(s_n) alone any. It is proved for an h that is KLTo.
//
// The set-up fails with an error wrapping ErrParam if m is nil, ErrEmpty if it has no terms, or ErrShape if q is no ExpFamily. An error of
// Local is wrapped with the index of the term; an L_n that is not finite is one wrapping ErrNotFinite.
func Conjugate(m ConjugateModel) Smooth { return conjugateTerms{m} }

// conjugateTerms is the Smooth made by Conjugate.
type conjugateTerms struct{ m ConjugateModel }

// blockwise is a Smooth of which linearising in μ holds factors of q that are not in λ.
type blockwise interface {
	Smooth
	// valueGrad is Value, and stores the gradient over all terms in dst.
	valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value, stderr float64, err error)
}

// Setup implements Smooth.
func (f conjugateTerms) Setup(q Dist) (SmoothTerms, error) {
	if isNil(f.m) {
		return SmoothTerms{}, fmt.Errorf("pgsvi: Conjugate needs a ConjugateModel: %w", ErrParam)
	}
	if _, ok := q.(ExpFamily); !ok {
		return SmoothTerms{}, fmt.Errorf("pgsvi: Conjugate needs an ExpFamily, not a %T: %w", q, ErrShape)
	}
	return SmoothTerms{N: f.m.Len(), Deterministic: true}, nil
}

// The terms of a batch are summed in parts, whatever the number of workers: partTerms of them or more in each, in at most
// mostParts, each of which needs memory for a gradient.
const (
	partTerms = 16
	mostParts = 8
)

// sharedModel is a ConjugateModel whose Local is safe for concurrent use, and takes long enough for that to be worth it.
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
func (f conjugateTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	v, err := f.grad(ctx, env, dst, q, batch)
	return v.sum, err
}

func (f conjugateTerms) grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (conjugateValue, error) {
	w := conjugatePool.Get().(*conjugateWork)
	defer conjugatePool.Put(w)
	e, terms := q.(ExpFamily), newBatch(batch, f.m.Len())
	w.mu = e.MeanParams(dense.Resize(w.mu, len(dst)))
	parts := max(1, min(mostParts, terms.n/partTerms))
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
		w.values[p], err = f.part(ctx, g, w.mu, terms, p*terms.n/parts, (p+1)*terms.n/parts)
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
		return v, fmt.Errorf("pgsvi: element %d of the gradient of a %T is %v: %w", i, f.m, dst[i], ErrNotFinite)
	}
	e.FromMeanGrad(dst, dst)
	return conjugateValue{-terms.scale * v.sum, terms.scale * v.size}, nil
}

// part sums the terms lo to hi of a batch.
func (f conjugateTerms) part(ctx context.Context, g, mu []float64, terms batchTerms, lo, hi int) (v conjugateValue, err error) {
	i := lo
	defer parallel.At(&i, func(i int) string { return fmt.Sprintf("term %d", terms.index(i)) })
	for ; i < hi; i++ {
		if (i-lo)%ctxEvery == 0 && ctx.Err() != nil {
			return v, context.Cause(ctx)
		}
		n := terms.index(i)
		l, err := f.m.Local(g, mu, n, terms.scale)
		if err != nil {
			return v, fmt.Errorf("pgsvi: term %d: %w", n, bare{err})
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
func (f conjugateTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	return f.valueGrad(ctx, env, make([]float64, q.NumParams()), q)
}

func (f conjugateTerms) valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value, stderr float64, err error) {
	v, err := f.grad(ctx, env, dst, q, nil)
	return v.sum, unitRounding * math.Sqrt(float64(f.m.Len())) * v.size, err
}

// unitRounding is the relative error of an operation.
const unitRounding = 0x1p-53

// blockGain returns the nats that q alone can gain, whose gradient is g: KL(q‖q*), η* = η_p − ∇_μ f. It overwrites best, and is +Inf where q*
// is none.
func blockGain(q, prior, best ExpFamily, g []float64) float64 {
	eta := q.naturalOf(prior)
	if eta == nil {
		return math.Inf(1)
	}
	floats.Sub(eta, q.MeanGrad(nil, g))
	if err := best.SetNatural(eta); err != nil {
		return math.Inf(1)
	}
	return q.KL(best)
}

func (f conjugateTerms) digest(d *save.Digest) { digestPart(d, f.m) }
