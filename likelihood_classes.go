package pgsvi

import (
	"fmt"
	"math"
	"strconv"
)

var _ = builtin{"pgsvi.Softmax": Softmax{}}.register()

// Softmax is the likelihood of K unordered classes y = 0, 1, …, K−1 (multinomial logistic
// regression): each class has a latent value of its own, its score η_c, and
//
//	p(y = c|η) = e^{η_c} / Σ_j e^{η_j}.
//
// It is for GLM, GP and SparseGP (take that above 1000 rows). All classes have the same prior, that
// of the weights or of the kernel: there is no reference class. Learn fits prior scales or a
// kernel that all classes share. In a GLM, classes may have prior scales of their own, given by
// GLMOptions.Prior or learned by GLMOptions.Blocks.
//
// Approximation. Only differences of scores matter to the data. q is that of independent
// Gaussian scores, of which the mean over the classes is removed (contrast mean field), and KL is
// that of the rest. With two classes this is the posterior of BernoulliLogit under twice the prior
// variance, without any loss.
//
// Accuracy. Expectations are integrals over one variable (Gumbel's trick); Result.ELBOErr bounds
// the sum of their errors. A GLM of three classes or more ends at a Gap of 2e-6 nats, unless
// Solver.Goal is set. Its GapBound is proved against Gaussians of any covariance
// (OverLargerFamily), so it includes the cost of the approximation. It is +Inf while Gap is above
// 0.001 nats, above 3000 weights, and for a GP. Where classes never occur q has several optima:
// Gap is the distance to the nearest, and GapBound is over all.
//
// Cost, for N rows, D weights a class: a GLM takes about 210 K D² bytes, 12 (K D)² more for the
// proof, and K N D² operations a pass. A GP takes 24 K N² bytes and K N³ operations. A SparseGP of
// M inducing inputs is a GLM of D = M features, and keeps these in 12 N·M bytes.
//
// SparseGP.Learn learns the kernel from a GP of at most 500 of the rows, and says so in
// Learned.Warnings. If the classes can be separated without error, the learned scale is large and
// a fit takes many passes.
//
// Not available, an error that wraps ErrParam: streams and updates, rows out of core, PSIS of a GP,
// Objective, divergences other than KL, estimators other than Exact, diagonal and low-rank
// covariances, MoveInducing and CertifyScale.
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
			"pgsvi: Softmax.Classes is %d; it must be at least 2, or 0 for as many as the "+
				"responses show: %w", s.Classes, ErrParam)
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
		return s, fmt.Errorf(
			"pgsvi: Softmax of one class, as every response is 0; set Softmax.Classes: %w",
			ErrLabel)
	}
	if s.Classes = math.MaxInt32; most < math.MaxInt32 {
		s.Classes = int(most) + 1
	}
	return s, nil
}

// oneLatent returns an error if l has several latent values, for what cannot do with them.
func oneLatent(l Likelihood, what string) error {
	if k := latentsOf(l); k > 1 {
		return fmt.Errorf("pgsvi: %s is not available for %s of %d classes: %w", what, typeName(l),
			k,
			ErrParam)
	}
	return nil
}

// classNumber returns the name of a class without one.
func classNumber(c int) string { return "class=" + strconv.Itoa(c) }
