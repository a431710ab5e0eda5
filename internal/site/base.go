package site

import (
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file declares how the engine sees a covariance: Mover and Base with three required
// methods, and optional interfaces for faster or more accurate steps. BaseAlgebra and Problem
// (sites.go, algebra.go) are the callers. The implementations are denseBase and CovMover for
// stored covariances, the bases of weights.go, and the contrast mean fields softmaxBase and
// softmaxGPBase.

// Mover computes a Gaussian from a base N(m0, C) of the variables η and changes of its sites:
//
//	V⁻¹ = C⁻¹ + diag(Δ),   m = m0 + Vu.
//
// Some movers store the covariance of the variables. Others treat the variables as linear
// functions of fewer weights. A Problem calls Cover, then Move, and Accept if the new state is
// better.
type Mover interface {
	// Cover sets the changes Δ of γ and stores the variances in v. It returns log|C|/|V|, and
	// false if V is not positive definite up to rounding.
	Cover(v, delta []float64) (logDet float64, ok bool)
	// Move follows Cover. It takes the changes u of the linear coefficients about the base mean
	// and stores the changes of the means in d. It replaces u by C⁻¹d = u − Δd and returns
	// dᵀC⁻¹d.
	Move(d, delta, u []float64) (square float64)
	// Accept makes the result of the last Move the current state.
	Accept()
}

// Base is a Mover whose base is the prior.
type Base interface {
	Mover
	// Prior returns the marginals without sites. All means are 0.
	Prior() term.Marginals
}

// A Mover or a Base may have optional methods, which type assertions find. The second column of
// the table describes the interface, and the third column what happens without it. The compiler
// does not notice a wrong signature, so every type that implements one of the interfaces also has
// a line var _ for it.
//
//	exact     V⁻¹ = C⁻¹ + Γ exactly              no proof of the gap
//	holder    moves with V held                  no step of the mean
//	spreader  η = Xw                             no inner steps
//	coverer   covariances of the variables       no Newton steps if exponentials overflow
//	factored  solves with a target               Cover and Move
//	blocker   steps of blocks of terms           an error that requests steps of all terms
//	prover    a proof of its own                 the proof of moveProof
//	solver    how exactly the mean is solved     no bound by rows in that proof
//	keeper    keeps more than the sites          nothing is kept
//	aimer     a curvature that sites lack        the targets of the terms
//	reacher   a bound on the step of its aim     shorter steps of means and precisions
//	finer     another target of the precisions   shorter steps to the aim
//	moder     a way to the mode of the means     a first step from the means of the base
type (
	// exact marks a base with V⁻¹ = C⁻¹ + Γ. A mean field is not exact, so the gap bound of
	// moveProof does not hold for it.
	exact interface{ exact() }

	holder interface {
		// hold is Move with the covariance of the current state. The next Accept keeps that
		// covariance.
		hold(d, delta, u []float64) (square float64)
	}

	// spreader is a mover of linear functions η = Xw. It has the covariance C of the weights in
	// the current state, so the variables have the covariance XCXᵀ.
	spreader interface {
		// weights returns the number of weights.
		weights() int
		// gather stores Xᵀr in u. It returns false if it cannot.
		gather(u, r []float64) bool
		// spread stores Cu in w. It returns false if it cannot.
		spread(w, u []float64) bool
		// curve stores Xw in eta and Xᵀ(h∘Xw) in u. The h are weights of the sites.
		curve(eta, u, w, h []float64)
	}

	coverer interface {
		// before stores both triangles of the covariance of the base in dst. It returns false if
		// that costs far more than a move.
		before(dst []float64) bool
		// Covariance returns the covariance of the variables in the current state, in the lower
		// triangle. It returns nil if that costs far more than a move. The result is valid until
		// the next call.
		Covariance() []float64
		// mark remembers the current state, and back returns to it.
		mark()
		back()
	}

	// factored has a factor for the sites that costs less than a move from the prior, or keeps
	// more digits.
	factored interface {
		// renew computes the variances of s from its sites. The means stay.
		renew(s *term.Marginals) (logDet float64, resolved bool, err error)
		// variances computes the variances of a batch of terms when some variances of the state
		// are missing. It returns false if it cannot.
		variances(v []float64, batch []int) bool
		// try reports whether the precisions γ₊ of a target leave V positive definite, and
		// whether noise alone makes V nearly singular.
		try(gamma []float64, noisy bool) (valid, edge bool)
		// solve replaces b₊ of the target tried last by a₊ = C⁻¹m₊ and stores m₊.
		solve(b, mean []float64)
		// taken makes that target the current one, and returns its log|C|/|V|.
		taken() (logDet float64)
		// appendix takes the step of the mean of the paper's appendix. It stores a₊ and m₊ in the
		// target, whose γ is rΓ.
		appendix(x *term.Estimates, batch []int, m PaperMove) error
	}

	// aimer adds a curvature that sites do not have, such as the curvature between the latent
	// values of a term. The point that its step moves to is the aim.
	aimer interface {
		// aim stores Newton's step of the means in step, from the current state s, and the linear
		// coefficients about the means after the step in a. It may replace the targets γ̂ in
		// gamma. It returns false if there is no step.
		aim(a, step, gamma []float64, s *term.Marginals) bool
	}
	// reacher is an aimer whose means can go part of the way to the aim while the precisions go
	// all of it.
	reacher interface {
		// shorten bounds the next step of the means by the part p.t of the last step, sets p.t to
		// 1 and returns true. It returns false if the part taken of the last step was short.
		shorten(p *Problem) bool
	}
	// finer is an aimer with a second target of the precisions, for states where the first one
	// raises the objective.
	finer interface {
		// fine replaces the targets in gamma, at the state of the last call of aim. It returns
		// false if it cannot.
		fine(gamma []float64, s *term.Marginals) bool
	}

	// moder has a fast way to the mode of the means alone.
	moder interface {
		// mode moves the means of s close to the mode of the posterior. On entry s has the means
		// of the base, variances of 0 and expectations. It computes expectations by expect, which
		// returns false if they overflow.
		mode(s *term.Marginals, expect func(s *term.Marginals) bool)
	}

	// blocker takes steps of blocks of terms; see Algebra.
	blocker interface {
		plan() sitePlan
		block(batch []int) error
	}

	// prover has a proof of its own. If it is not ready, there is no estimate of the gap either.
	// It may move q, and the Proof then records the move.
	prover interface {
		ready() (bool, error)
		prove(within float64) (Proof, error)
		decrement() float64
	}

	// solver bounds the rounding of its means.
	solver interface {
		// unsolved returns a bound on the ELBO that the current mean lacks because it solves Λ0m = Xᵀa
		// only up to rounding, for the a and γ of the current sites. It stores the differences of
		// the given means of the variables from Xm in drift. It returns +Inf if it has no bound.
		unsolved(drift, a, gamma, mean []float64) float64
	}

	// keeper stores results that depend on the sites, such as a covariance, a factor or weights.
	keeper interface {
		// use sets the workers and the signal that stops them.
		use(c term.Crew)
		// restart begins the problem of all terms, and start marks its state as the prior.
		restart()
		start()
		// follow marks q as the state of that problem. It returns how far q moved, or NaN to
		// measure the distance by the sites.
		follow() (distance float64)
		// stale marks the stored results as outdated because the sites changed. settled returns
		// true if nothing is left to compute for the present sites.
		stale()
		settled() bool
		// save writes or reads the stored results. resume receives the γ of the problem of all
		// terms.
		save(c *save.Coder)
		resume(gamma []float64)
	}
)
