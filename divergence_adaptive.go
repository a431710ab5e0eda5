package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/descent"
)

// Metric is the state of an adaptive divergence in a run; see Adaptive. A Metric of another package
// must implement encoding.BinaryMarshaler and encoding.BinaryUnmarshaler if the run is to be saved.
type Metric interface {
	// Next is called once per step with g = ∇̂f(λ_k) and the step size β_k, which is 1 if the
	// Stepper chooses it. It stores the diagonal s_k, whose elements must be positive, in s. It may
	// replace g by another direction, such as a running mean.
	Next(s, g []float64, beta float64)
}

// Adaptive returns a Divergence that changes from step to step with the gradients of the run. It is
// Euclidean in a running diagonal metric,
//
//	D_k(λ‖λ_k) = ½ (λ − λ_k)ᵀ diag(s_k) (λ − λ_k).
//
// A step with h = 0 is λ − βg/s_k. The function start returns the Metric of a run over n
// parameters, before its first step. AdaGrad, RMSprop, Adadelta and Adam are adaptive divergences
// with published metrics. Between two given distributions outside a run, each of them is Euclidean.
//
// They are made for f = −ELBO and h = 0 (Objective.Linearized) in unconstrained coordinates
// (Gaussian.In, LogCholesky):
//
//	o, err := gp.Objective()
//	s := pgsvi.Solver{
//		Divergence: pgsvi.Adam(0, 0, 0),
//		StepSize:   pgsvi.ConstantStep(0.1),
//		BatchSize:  5,
//	}
//	o = o.Linearized()
//	o.Init = o.Init.In(pgsvi.LogCholesky)
//	q, res, err := o.Fit(ctx, &s)
//
// A GLM does all of this itself. An h other than 0 is kept exact: L1 in closed form, and any other
// h numerically. Solver.StepSize is the learning rate, published as 0.001 for RMSprop and Adam and
// as 1 for Adadelta. A constant learning rate does not converge under noise. Without a StepSize,
// steps are halved until the objective of the batch does not rise, and the gradient replaces a
// momentum that points uphill. These methods are included for comparison, because a nil Solver
// needs neither step sizes nor metrics.
//
// The set-up of a run returns an error that wraps ErrParam if start is nil.
func Adaptive(start func(n int) Metric) Divergence {
	return adaptive{kind: "Adaptive", start: start}
}

// adaptive is Euclidean in the running metric that start makes.
type adaptive struct {
	kind    string
	start   func(n int) Metric
	epsilon float64
	decays  []float64
}

func (a adaptive) String() string { return a.kind }

// Value implements Divergence.
func (adaptive) Value(q, q0 Dist) float64 { return euclidean{}.Value(q, q0) }

// Grad implements Divergence.
func (adaptive) Grad(dst []float64, q, q0 Dist) []float64 { return euclidean{}.Grad(dst, q, q0) }

// Check returns an error wrapping ErrParam unless start is set, the decays are in [0, 1), and ε is
// finite and not negative.
func (a adaptive) Check(Dist) error {
	if a.start == nil {
		return fmt.Errorf("pgsvi: the function of Adaptive is nil: %w", ErrParam)
	}
	ok := a.epsilon >= 0 && !math.IsInf(a.epsilon, 0)
	for _, rho := range a.decays {
		ok = ok && rho >= 0 && rho < 1
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s has decays %v and epsilon %v; it needs decays in [0, 1) and "+
			"a finite epsilon of at least 0: %w", a.kind, a.decays, a.epsilon, ErrParam)
	}
	return nil
}

// AdaGrad returns the adaptive divergence
//
//	s_k = √(ε + Σ_{j≤k} g_j²)
//
// for each element (Duchi, Hazan and Singer, 2011, but with ε inside the root, as in RMSprop and
// Adadelta). A zero epsilon, ε, means 1e-8.
func AdaGrad(epsilon float64) Divergence {
	epsilon = orDefault(epsilon, 1e-8)
	return adaptive{kind: "AdaGrad", epsilon: epsilon,
		start: func(n int) Metric { return descent.AdaGrad(n, epsilon) }}
}

// RMSprop returns the adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)
//
// for each element, with e_{−1} = 0 (Tieleman and Hinton, 2012, lecture 6.5, who have no ε). A zero
// decay, ρ, means 0.9, and a zero epsilon, ε, means 1e-8.
func RMSprop(decay, epsilon float64) Divergence {
	decay, epsilon = orDefault(decay, 0.9), orDefault(epsilon, 1e-8)
	return adaptive{kind: "RMSprop", epsilon: epsilon, decays: []float64{decay},
		start: func(n int) Metric { return descent.RMSprop(n, decay, epsilon) }}
}

// Adadelta returns the adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)/√(ε + d_{k−1})
//	d_k = ρd_{k−1} + (1−ρ)(β_k g_k/s_k)²
//
// for each element, with e_{−1} = d_{−1} = 0 (Zeiler, 2012, where β = 1). The d accumulates steps
// with their β_k. Each step is a multiple of the root of the last d, so a β above 1 compounds. A
// zero decay, ρ, means 0.95, and a zero epsilon, ε, means 1e-6.
func Adadelta(decay, epsilon float64) Divergence {
	decay, epsilon = orDefault(decay, 0.95), orDefault(epsilon, 1e-6)
	return adaptive{kind: "Adadelta", epsilon: epsilon, decays: []float64{decay},
		start: func(n int) Metric { return descent.Adadelta(n, decay, epsilon) }}
}

// Adam returns the adaptive divergence with momentum
//
//	ḡ_k = ρ_μ ḡ_{k−1} + (1−ρ_μ)g_k,   e_k = ρ_s e_{k−1} + (1−ρ_s)g_k²,
//	s_k = ε + √(e_k/(1−ρ_s^{k+1})),   g ← ḡ_k/(1−ρ_μ^{k+1})
//
// for each element, with ḡ_{−1} = e_{−1} = 0 (Kingma and Ba, 2015, whose β₁ is ρ_μ, whose β₂ is
// ρ_s, and whose α is the β of the step). A zero mean, ρ_μ, means 0.9. A zero square, ρ_s, means
// 0.999, and a zero epsilon, ε, means 1e-8.
func Adam(mean, square, epsilon float64) Divergence {
	mean, square, epsilon = orDefault(mean, 0.9), orDefault(square, 0.999), orDefault(epsilon, 1e-8)
	return adaptive{kind: "Adam", epsilon: epsilon, decays: []float64{mean, square},
		start: func(n int) Metric { return descent.Adam(n, mean, square, epsilon) }}
}
