package topic

import (
	"cmp"

	"github.com/pgsvi/pgsvi/internal/memory"
)

// Expectation is how E_q[f] of a document is taken.
type Expectation int

const (
	Antithetic Expectation = iota // mean over antithetic pairs of draws
	Quasi                         // quasi-Monte Carlo: a Kronecker sequence in antithetic pairs
	Quadrature                    // product of Gauss–Hermite rules
	Delta                         // the normaliser to second order about m, the words at m
	Laplace                       // f to second order about its mode with the prior
	MeanField                     // the bound of Blei and Lafferty (2007), with V diagonal
)

// MonteCarlo reports whether the expectation is over points drawn from q.
func (e Expectation) MonteCarlo() bool { return e <= Quadrature }

// Options holds everything that defines a correlated topic model except its documents. Zero means
// the default if the comment states one.
type Options struct {
	K, Terms    int // topics, and words of the vocabulary
	Expectation Expectation
	Diagonal    bool    // the V_n are diagonal
	Forget      bool    // no q(z_n) is kept
	Paper       bool    // one step a visit, in (m, V), as of Khan et al. (2016)
	Scaled      bool    // with the factor N/M of their mini-batch gradient
	Samples     int     // points of an expectation: 4, 16 of Quasi, 20 a direction of Quadrature
	Inner       int     // most proximal steps at a visit: 3, or until q settles if not random
	FirstInner  int     // the same at the first visit: 10
	Smooth      float64 // count added to every word of every topic: 0.03
	Pseudo      float64 // imagined documents with z ~ N(0, I) that shrink μ and Σ: 20
}

// The defaults, and the constants of the steps. They were tuned on AP and NIPS.
const (
	defaultDraws  = 4
	defaultQuasi  = 16
	defaultNodes  = 20
	defaultInner  = 3
	defaultFirst  = 10
	defaultSmooth = 0.03
	defaultPseudo = 20
	defaultBeta   = 1.0
	paperBeta     = 0.001

	mostSteps  = 100 // most steps of a visit
	restless   = 0.2 // a move of q, for each topic, that calls for another step
	shorten    = 0.7 // factor of the length of the next step after one that went too far
	lengthen   = 1.1 // the same after any other step
	shortest   = 0.1 // shortest step, as a fraction of the step of the visit
	farthest   = 2   // logits that a Newton step of m may move: e² of a topic
	leastPart  = 0.1 // part of the curvature of words below which a step does without
	leastRatio = 0.5 // ratio of two moves that predicts the remaining gain; step length β = 1 has this ratio
	mostRatio  = 0.999
	delay      = 10  // with decayPower: M-step t has the weight ρ_t = (10 + t)^−0.7
	decayPower = 0.7 // between ½ and 1, for which the M-steps converge (Hoffman et al., 2013)
)

// Points returns the number of points of an expectation, of Quadrature in each direction.
func (o *Options) Points() int {
	n := o.Samples
	switch {
	case o.Expectation == Quadrature:
		return cmp.Or(n, defaultNodes)
	case o.Expectation == Quasi:
		n = cmp.Or(n, defaultQuasi)
	default:
		n = cmp.Or(n, defaultDraws)
	}
	return n + n%2
}

// paired reports whether points are drawn, in antithetic pairs.
func (o *Options) paired() bool { return o.Expectation == Antithetic || o.Expectation == Quasi }

// inner returns the most proximal steps at a visit.
func (o *Options) inner(first bool) int {
	n, zero := o.Inner, defaultInner
	if first {
		n, zero = o.FirstInner, defaultFirst
	}
	switch {
	case n > 0:
		return n
	case o.Paper:
		return 1
	case !o.Expectation.MonteCarlo():
		return mostSteps
	}
	return zero
}

// diagonal reports whether the V_n are.
func (o *Options) diagonal() bool { return o.Diagonal || o.Expectation == MeanField }

func (o *Options) smooth() float64 { return cmp.Or(o.Smooth, defaultSmooth) }

func (o *Options) pseudo() float64 { return cmp.Or(o.Pseudo, defaultPseudo) }

// Peak memory of a model, in vectors and matrices: K × Terms numbers for the topics, their
// statistics and their start; K² numbers for each document that a worker holds; and m_n and
// V_n⁻¹, of the model and of its posterior.
const (
	topicMatrices = 8
	workMatrices  = 24
	states        = 2
)

// Bytes returns the memory of a model that keeps the given number of documents, without its
// start.
func (o *Options) Bytes(docs, workers int) float64 {
	need := memory.Bytes(topicMatrices, o.Terms, o.K) +
		float64(workers)*(memory.Bytes(workMatrices, o.K, o.K)+memory.Bytes(2, o.Points(), o.K))
	// As a float: stateLen may overflow where the model is refused.
	state := float64(o.K) * 2
	if !o.diagonal() {
		state = float64(o.K) * (float64(o.K) + 3) / 2
	}
	return need + 8*states*state*float64(docs)
}
