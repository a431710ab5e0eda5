package learn

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Package learn_test has the likelihoods of the root, and sees of certificates:

type ScaleState = scaleState

func (s *scaleState) ELBO() float64               { return s.elbo }
func (s *scaleState) Known() bool                 { return !math.IsInf(s.offset, 0) }
func (s *scaleState) Over(lo, hi float64) float64 { return s.over(lo, hi) }

// Eigenvalues returns the state of the eigenvalues of b, n×n.
func Eigenvalues(h *parallel.Halt, b []float64, n int) *ScaleState {
	s := &scaleState{p: make([]float64, n)}
	s.eigenvalues(h, b)
	return s
}

// NewGramScale returns the prior of K in proportion to s², which is k at s = 1.
func NewGramScale(terms *term.Terms, k []float64) Prior { return &gramScale{terms, k, 0} }

// RandomState returns what a q near the last one says of all scales, its sites off by noise.
func (l *Latent) RandomState(rng *rand.Rand, noise, at, elbo float64) *ScaleState {
	q := &l.prob
	for i, g := range q.Cur.Gamma {
		q.Try.Gamma[i] = g * math.Exp(noise*rng.NormFloat64())
		q.Try.C[i] = q.Cur.C[i] + noise*rng.NormFloat64()
	}
	if q.Eval() && q.Try.Value < -elbo+1e6 {
		q.Cur, q.Try = q.Try, q.Cur
	}
	return l.scaleState(at)
}

// BestAt returns the greatest ELBO at log s², which is 0 in the base of the prior.
func (l *Weights) BestAt(at float64) (float64, error) {
	q, err := l.fitFull(l.prior.scaled(1, at), []float64{at}, 1e-10)
	if err != nil {
		return 0, err
	}
	return -q.f, nil
}

// RandomState returns what a q of random sites says of all scales.
func (l *Weights) RandomState(rng *rand.Rand, noise, at float64) (*ScaleState, error) {
	alg, err := site.NewWeightAlgebra(l.prior.scaled(1, at), l.workers)
	if err != nil {
		return nil, err
	}
	for i := range alg.Gamma {
		alg.Gamma[i], alg.A[i] = math.Exp(noise*rng.NormFloat64()-1), noise*rng.NormFloat64()
	}
	if err := alg.Settle(); err != nil {
		return nil, err
	}
	q, err := fitOf(alg)
	if err != nil { // expectations overflow
		return &scaleState{offset: math.Inf(1)}, nil
	}
	return l.scaleState(q, at)
}
