package loo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/psis"
	"gonum.org/v1/gonum/floats"
)

// A Sampler stores a draw of q in z, and log p(y_t|z) of each term t in logp. It returns
// log p(y, z) − log q(z).
type Sampler func(z, logp []float64, rng *rand.Rand) (r float64, err error)

// Draws leaves out each term by importance sampling (Vehtari, Gelman and Gabry 2017). It weights
// the draws so that they represent the posterior without the term. Each worker has its own
// sampler.
func Draws(ctx context.Context, plan psis.Plan, terms int, samplers func() Sampler) (*Result,
	error) {
	if err := plan.Check("LOO"); err != nil {
		return nil, err
	}
	n, draws, workers := terms, plan.Draws, plan.Workers
	each := memory.Bytes(1, 1, n) + memory.Bytes(2, 1, draws) // memory per worker
	need := memory.Bytes(1, draws, n) + float64(workers)*each
	if err := memory.Check(0, need,
		fmt.Sprintf("log-likelihoods of %d terms at %d draws", n, draws),
		"take fewer draws, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	logp := make([]float64, draws*n) // term by term
	r := make([]float64, draws)      // log p(y, z) − log q(z)
	seed := plan.Rng.Uint64()
	type worker struct {
		draw    Sampler
		z, logp []float64
	}
	work := make([]*worker, workers)
	err := plan.Each(ctx, plan.Chunks(), while, func(i, chunk int) error {
		if work[i] == nil {
			work[i] = &worker{samplers(), make([]float64, plan.Dim), make([]float64, n)}
		}
		w, rng := work[i], psis.Generator(seed, chunk)
		lo, hi := plan.Bounds(chunk)
		for s := lo; s < hi; s++ {
			var err error
			if r[s], err = w.draw(w.z, w.logp, rng); err != nil {
				return err
			}
			for t, l := range w.logp {
				logp[t*draws+s] = l
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l := newResult(n, 0)
	l.Limit, l.KHat = psis.Limit(draws), make([]float64, n)
	w, order := slices.Clone(r), make([]int, draws)
	psis.Smooth(w, order)
	normalize(w)
	type scratch struct {
		w     []float64
		order []int
	}
	spaces := make([]scratch, workers)
	err = plan.Each(ctx, n, while, func(worker, t int) error {
		s := &spaces[worker]
		s.w, s.order = dense.Resize(s.w, draws), dense.Resize(s.order, draws)
		lt := logp[t*draws : (t+1)*draws]
		floats.SubTo(s.w, r, lt)
		l.KHat[t] = psis.Smooth(s.w, s.order)
		normalize(s.w)
		top := floats.Max(lt)
		var p, mean float64
		for i, x := range lt {
			p += s.w[i] * math.Exp(x-top)
			mean += w[i] * x
		}
		var errs, variance float64
		for i, x := range lt {
			e := s.w[i] * (math.Exp(x-top)/p - 1)
			errs += e * e
			variance += w[i] * (x - mean) * (x - mean)
		}
		l.Pointwise[t], l.PointErr[t] = top+math.Log(p), math.Sqrt(errs)
		l.Leverage[t], l.Influence[t] = variance, math.Max(0, mean-l.Pointwise[t])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.add(nil)
	l.Err = floats.Norm(l.PointErr, 2)
	return l, nil
}

// normalize replaces logarithms of weights by weights with the sum 1.
func normalize(w []float64) {
	top := floats.Max(w)
	for i, x := range w {
		w[i] = math.Exp(x - top)
	}
	floats.Scale(1/floats.Sum(w), w)
}
