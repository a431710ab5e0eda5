package pgsvi

import (
	"fmt"
	"math"
	"strconv"
)

var _ = builtin{"pgsvi.Softmax": Softmax{}}.register()

// Softmax is the likelihood of K unordered classes y = 0, 1, …, K−1 (multinomial logistic
// regression). Each class has its own latent value, the score η_c, and
//
//	p(y = c|η) = e^{η_c} / Σ_j e^{η_j}.
//
// GLM, GP and SparseGP support it. Use a SparseGP instead of a GP for more than 1000 rows. All
// classes have the same prior of the weights or of the function, so there is no reference class.
// Learn fits prior scales or a kernel that all classes share. The classes of a GLM may also have
// different prior scales, which are set by GLMOptions.Prior or learned with GLMOptions.Blocks.
//
// # Approximation
//
// Only differences of scores affect the probabilities. q is the distribution of independent
// Gaussian scores after the mean over the classes is removed (contrast mean field), and KL is the
// divergence of these contrasts. With two classes this is exactly the posterior of BernoulliLogit
// under twice the prior variance.
//
// # Accuracy
//
// Expectations are integrals over one variable (Gumbel's trick), and Result.ELBOErr bounds the sum
// of their errors. The fit of a GLM with three or more classes ends at a Gap of 2e-6 nats unless
// Solver.Goal is set. Its GapBound is proved against Gaussians with any covariance
// (OverLargerFamily), so it includes the cost of the approximation. GapBound is +Inf while Gap is
// above 0.001 nats, above 3000 weights, and for a GP. If some classes never occur, q has several
// optima. Gap is then the distance to the nearest optimum, and GapBound covers all of them.
//
// # Cost
//
// Let there be N rows and D weights per class. A GLM takes about 210 K D² bytes, 12 (K D)² bytes
// more for the proof, and K N D² operations per pass. A GP takes 40 K N² bytes and K N³ operations.
// A SparseGP with M inducing inputs is a GLM with D = M features, which it stores in 12 N·M bytes.
//
// SparseGP.Learn learns the kernel from a GP of at most 500 of the rows, and reports this in
// Learned.Warnings. If the classes can be separated without error, the learned scale is large and a
// fit takes many passes.
//
// # Limits
//
// The following return an error that wraps ErrParam: streams and updates, rows that are not kept in
// memory, PSIS of a GP, Objective, divergences other than KL, estimators other than Exact, diagonal
// and low-rank covariances, MoveInducing and CertifyScale.
type Softmax struct {
	// Classes is K, at least 2. Zero means one more than the largest response.
	Classes int
}

var (
	_ Factual   = Softmax{}
	_ validator = Softmax{}
)

// Validate returns an error that wraps ErrParam if Classes is negative or 1.
func (s Softmax) Validate() error {
	if s.Classes < 0 || s.Classes == 1 {
		return fmt.Errorf(
			"pgsvi: Softmax.Classes is %d; it must be at least 2, or 0 to count the classes of "+
				"the responses: %w", s.Classes, ErrParam)
	}
	return nil
}

// LogProb returns NaN, because one number does not determine a probability of K classes. Use
// Prediction.
func (Softmax) LogProb(y, eta float64) float64 { return math.NaN() }

// Facts implements Factual.
func (s Softmax) Facts() Facts {
	return Facts{Support: Counts, Most: float64(max(0, s.Classes-1)), LogConcave: true}
}

// latentsOf returns the number of latent values per response: K for a Softmax, and 1 for other
// likelihoods.
func latentsOf(l Likelihood) int {
	if s, ok := l.(Softmax); ok {
		return max(1, s.Classes)
	}
	return 1
}

// seen returns s with the number of classes in the responses, unless it is set.
func (s Softmax) seen(y []float64) (Softmax, error) {
	if s.Classes != 0 {
		return s, nil
	}
	most := 0.0
	for _, yi := range y {
		most = math.Max(most, yi) // NaN is reported later
	}
	if most < 1 {
		return s, fmt.Errorf(
			"pgsvi: every response is 0, but Softmax needs at least two classes; set "+
				"Softmax.Classes: %w",
			ErrLabel)
	}
	if s.Classes = math.MaxInt32; most < math.MaxInt32 {
		s.Classes = int(most) + 1
	}
	return s, nil
}

// oneLatent returns an error if l has several latent values, which what does not support.
func oneLatent(l Likelihood, what string) error {
	if k := latentsOf(l); k > 1 {
		return fmt.Errorf("pgsvi: %s does not support %s of %d classes: %w", what, typeName(l),
			k,
			ErrParam)
	}
	return nil
}

// classNumber returns the name of a class that has no name.
func classNumber(c int) string { return "class=" + strconv.Itoa(c) }
