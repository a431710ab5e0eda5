package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Noise returns the expected square of the error of an estimate of ∇_μ E_q[l] by e, in the metric
// of the Fisher information,
//
//	E[(ĝ − g)ᵀF(ĝ − g)],
//
// with the number of draws of q that an estimate takes: their product is the noise of a draw, by
// which estimators compare. It is independent of the coordinates of q, and of what z is measured
// in. A step of length ρ towards the target of a noisy gradient is off by ½ρ² of it, in nats. The
// number of draws is 0 for an estimator that has none, or of which it is not known. The expectation
// is estimated from repeats of the estimate, at least two; 0 means 64. The error is that of Setup
// or Grad, or wraps ErrParam if there is one repeat or q is no ExpFamily.
func Noise(ctx context.Context, env *Env, e Estimator, q ExpFamily, l Integrand, repeats int) (noise float64, draws int, err error) {
	if repeats == 0 {
		repeats = noiseRepeats
	}
	if repeats < 2 || e == nil || q == nil || l == nil {
		return math.NaN(), 0, fmt.Errorf("pgsvi: Noise needs an estimator, q, an integrand and at least two repeats, not %d: %w", repeats, ErrParam)
	}
	if _, err := e.Setup(q, l); err != nil {
		return math.NaN(), 0, err
	}
	if d, ok := e.(drawing); ok {
		_, sites := l.(SiteIntegrand)
		draws = d.drawsOf(q, sites)
	}
	once := Env{}
	if env != nil {
		once = *env
	}
	once.Rng = env.rng() // one generator for all repeats
	at, ok := q.Clone().(ExpFamily)
	if !ok {
		return math.NaN(), 0, fmt.Errorf("pgsvi: Noise needs an ExpFamily: %w", ErrParam)
	}
	n := q.NumParams()
	grads, mean := dense.NewRows(repeats, n), make([]float64, n)
	for _, g := range grads {
		if _, err := e.Grad(ctx, &once, g, nil, at, l); err != nil {
			return math.NaN(), draws, err
		}
		floats.AddScaled(mean, 1/float64(repeats), g)
	}
	// With δ in λ, δ_μ and δ_η = Fδ_μ are its gradients with respect to μ and η.
	mu := make([]float64, n)
	for _, g := range grads {
		floats.Sub(g, mean)
		at.MeanGrad(mu, g)
		noise += floats.Dot(mu, naturalGrad(at, mu)) / float64(repeats-1)
	}
	return noise, draws, nil
}

// noiseRepeats is the number of repeats that gives the noise to a fifth, as a χ² of so many degrees
// of freedom in each direction.
const noiseRepeats = 64

// naturalGrad returns Fg.
func naturalGrad(q ExpFamily, g []float64) []float64 {
	if e, ok := q.(*Exp); ok {
		x := append([]float64(nil), g...)
		e.at.FisherMul(x)
		return x
	}
	return q.(*Gaussian).In(Natural).FromMeanGrad(nil, g)
}
