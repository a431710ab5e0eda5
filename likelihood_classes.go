package pgsvi

import (
	"fmt"
	"math"
)

var _ = builtin{"pgsvi.Softmax": Softmax{}}.register()

// Softmax is the likelihood of K unordered classes y = 0, 1, …, K−1 (multinomial logistic
// regression): each class has a latent value of its own, its score η_c, and
//
//	p(y = c|η) = e^{η_c} / Σ_j e^{η_j}.
//
// It is for GLM and GP. Scores have independent priors, those of the weights or of the
// kernel, the same for every class, so that no class is a reference. Only differences of scores
// count, and KL is charged for these alone (contrast mean field): q has independent scores before
// their common part is left out. Of two classes that is the whole posterior, that of
// BernoulliLogit with twice the prior variance of a score. Of three it is within some thousandths
// of a nat of a full covariance on iris, where independent classes lose 5 nats.
//
// Expectations are integrals over one variable (Gumbel's trick), accurate to some 1e-11 a class,
// more where standard deviations are far above 1; Result.ELBOErr bounds the sum of their errors.
// Far from the optimum they are taken no more accurately than a step can use.
//
// Runs end by Gap: without a Solver.Goal, a GLM of more than two classes at 2e-6 nats. GapBound of
// a GLM is proved for Gaussians of any covariance, OverLargerFamily: it includes what q loses by
// its independent classes, and is about twice that at the end. It is +Inf before Gap is 0.001 nats,
// of more than 3000 weights, and of a GP.
//
// A fit of a GLM takes about 160 K D² bytes, 12 (K D)² more for the proof of up to 3000 weights,
// and K N D² operations a pass; one of a GP takes 16 K N² bytes and K N³ operations. A SparseGP is
// a GLM of M features, with a GapBound of its own, and keeps them: 12 N·M bytes more. It has as
// many inducing inputs as SparseGPOptions.Rank says, and is much faster from 1000 rows on.
//
// GLM.Learn learns prior standard deviations, and GP.Learn a kernel, that all classes share.
// SparseGP.Learn learns the kernel from a GP of at most 500 rows, spread over all, and says so in
// Learned.Warnings. Data that planes separate have no scale of their own and learn a large one,
// under which a fit takes many passes.
//
// What needs one latent value a row returns an error that wraps ErrParam: streams and updates,
// rows that are not kept, PSIS, predictive checks, effects, Objective, divergences other than KL,
// estimators other than Exact, diagonal and low-rank covariances, MoveInducing and CertifyScale.
type Softmax struct {
	// Classes is K, at least 2. Zero means as many as the responses show: one more than the
	// largest. The memory that they take is checked before it is taken.
	Classes int
}

var (
	_ Factual   = Softmax{}
	_ validator = Softmax{}
)

// Validate returns an error that wraps ErrParam if Classes is negative or 1.
func (s Softmax) Validate() error {
	if s.Classes < 0 || s.Classes == 1 {
		return fmt.Errorf("pgsvi: Softmax.Classes is %d; it must be at least 2, or 0 for as many as the responses show: %w", s.Classes, ErrParam)
	}
	return nil
}

// LogProb returns NaN: one number does not say a probability of K classes. See Prediction.
func (Softmax) LogProb(y, eta float64) float64 { return math.NaN() }

// Facts implements Factual.
func (s Softmax) Facts() Facts {
	return Facts{Support: Counts, Most: float64(max(0, s.Classes-1)), LogConcave: true}
}

// latentsOf returns how many latent values a response of l has: K of a Softmax, and 1 of others.
func latentsOf(l Likelihood) int {
	if s, ok := l.(Softmax); ok {
		return max(1, s.Classes)
	}
	return 1
}

// seen returns s with the number of classes that the responses show, where it has none.
func (s Softmax) seen(y []float64) (Softmax, error) {
	if s.Classes != 0 {
		return s, nil
	}
	most := 0.0
	for _, yi := range y {
		most = math.Max(most, yi) // NaN is found later
	}
	if most < 1 {
		return s, fmt.Errorf("pgsvi: Softmax of one class, as every response is 0; set Softmax.Classes: %w", ErrLabel)
	}
	if s.Classes = math.MaxInt32; most < math.MaxInt32 {
		s.Classes = int(most) + 1
	}
	return s, nil
}

// oneLatent returns an error if l has several latent values, for what cannot do with them.
func oneLatent(l Likelihood, what string) error {
	if k := latentsOf(l); k > 1 {
		return fmt.Errorf("pgsvi: %s with %s, whose rows have %d latent values; it is for likelihoods of one: %w", what, typeName(l), k, ErrParam)
	}
	return nil
}
