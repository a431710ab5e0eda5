package pgsvi

// Divergence is D(q‖q0), the distance that keeps a step close to its start. For distinct valid q
// and q0 it must satisfy (Khan et al., 2016, A5 and A6)
//
//	D(q‖q0) > 0,   D(q0‖q0) = 0,   (λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²  for some α > 0,
//
// which CheckDivergence tests. A Divergence is stateless and safe for concurrent use.
//
// A Divergence with closed forms of its proximal step is also a Proxer. A Divergence that changes
// from step to step is Adaptive. A custom type that embeds a Divergence inherits Value and Grad but
// not the closed forms, for which it needs its own method Prox.
type Divergence interface {
	// Check is called in the set-up of a run. The error gives the reason why D cannot be used at q.
	// It wraps
	//   - ErrNoProx if D is not defined on the family of q;
	//   - ErrShape if the dimension is wrong;
	//   - ErrParam if a parameter of D is invalid.
	Check(q Dist) error
	// Value returns D(q‖q0) ≥ 0, in nats for the Kullback–Leibler family.
	Value(q, q0 Dist) float64
	// Grad stores ∇_λ D(q‖q0), the gradient with respect to the λ of q, in dst; nil allocates.
	Grad(dst []float64, q, q0 Dist) []float64
}

// Metric is the state of an Adaptive divergence in a run. A Metric of another package must
// implement encoding.BinaryMarshaler and encoding.BinaryUnmarshaler so that the run can be saved.
type Metric interface {
	// Next is called once per step with g = ∇̂f(λ_k) and the step size β_k, which is 1 if the
	// Stepper chooses it. It stores the diagonal s_k, whose elements must be positive, in s. It may
	// replace g by another direction, such as a running mean.
	Next(s, g []float64, beta float64)
}

// Adaptive is a Divergence that changes from step to step with the gradients of the run. It is
// Euclidean in a running diagonal metric,
//
//	D_k(λ‖λ_k) = ½ (λ − λ_k)ᵀ diag(s_k) (λ − λ_k).
//
// A step with h = 0 is λ − βg/s_k. AdaGrad, RMSprop, Adadelta and Adam are Adaptive, and custom
// types can be. Between two given distributions outside a run, each of them is Euclidean.
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
// A GLM sets this up itself. Any other h is kept exact, L1 in closed form and others numerically.
// Solver.StepSize is the learning rate, published as 0.001 for RMSprop and Adam and as 1 for
// Adadelta. A constant learning rate does not converge under noise. Without a StepSize, steps are
// halved until the objective of the batch does not rise, and the gradient replaces a momentum that
// points uphill. These methods are included for comparison, because a nil Solver needs neither step
// sizes nor metrics.
type Adaptive interface {
	Divergence
	// Start returns the metric of a run over n parameters, before its first step.
	Start(n int) Metric
}
