package gauss

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"gonum.org/v1/gonum/floats"
)

// This file measures how much accuracy a Gaussian loses when rows are removed from it. Streams of
// GLMs call it before they trust the result of a removal.

// seed1 and seed2 make the draws the same for the same Gaussian.
const seed1, seed2 = 0x5eed, 0xe1b0

// roundingTrials is the number of errors that MeanRounding tries.
const roundingTrials = 4

// MeanRounding estimates the error of the mean of s in standard deviations, caused by the
// rounding δ of the mean of w: √(δᵀΛVΛδ), where Λ is the precision of w and V the covariance of
// s. The state s is w without some rows. It tries a few errors δ_j = ±ε·w_j.
func (s *Gaussian) MeanRounding(w *Gaussian) (most float64) {
	d := len(w.Mean)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	none, delta := &design.Matrix{Cols: d}, &Gaussian{Mean: make([]float64, d)}
	var r dense.Double
	r.Resize(d)
	for range roundingTrials {
		for j, m := range w.Mean {
			delta.Mean[j] = dense.Epsilon * m * float64(1-2*int(rng.Uint64()&1))
		}
		w.Residual(r, delta, none, nil, &design.Work{})
		s.Whiten(r)
		most = max(most, floats.Norm(r.Hi, 2))
	}
	return most
}

// amplificationTurns is the number of iterations of the power method. Fewer iterations find a
// value that is a tenth too low in most cases.
const amplificationTurns = 8

// Amplification returns the largest ratio of a variance under s to the same variance under w: the
// largest eigenvalue of VΛ, where V is the covariance of s and Λ the precision of w. Errors of
// sites, in standard deviations, grow by this ratio when rows are removed.
func (s *Gaussian) Amplification(w *Gaussian) (most float64) {
	d := len(w.Mean)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	none, x := &design.Matrix{Cols: d}, &Gaussian{Mean: make([]float64, d)}
	x.Widen()
	clear(x.MeanLow)
	for j := range x.Mean {
		x.Mean[j] = rng.NormFloat64() / math.Sqrt(w.P[j*d+j])
	}
	var r, scratch dense.Double
	r.Resize(d)
	size := w.Square(x, &scratch)
	for range amplificationTurns {
		w.Residual(r, x, none, nil, &design.Work{})
		s.Apply(r)
		for j := range r.Hi {
			x.Mean[j], x.MeanLow[j] = r.Hi[j]/math.Sqrt(size), r.Lo[j]/math.Sqrt(size)
		}
		size = w.Square(x, &scratch)
		most = max(most, math.Sqrt(size))
	}
	return most
}
