package site

import (
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Mover moves the base N(m0, C) of the variables η to the Gaussian with changed sites:
//
//	V⁻¹ = C⁻¹ + diag(Δ),   m = m0 + Vu.
//
// Implementations are for variables with a stored covariance, and for linear functions of fewer
// weights. Any type with these three methods will do.
type Mover interface {
	// Cover sets the changes Δ of γ and stores the variances in v. It returns log|C|/|V|, and
	// whether V is positive definite to rounding.
	Cover(v, delta []float64) (logDet float64, ok bool)
	// Move sets, after Cover, the changes u of the linear coefficients about the base mean. It
	// stores the changes of the means in d, replaces u by C⁻¹d = u − Δd, and returns dᵀC⁻¹d.
	Move(d, delta, u []float64) (square float64)
	// Accept makes the result of the last Move the current state.
	Accept()
}

// Base is a Mover from the prior.
type Base interface {
	Mover
	// Prior returns the marginals without sites. Means are 0.
	Prior() term.State
}

// What else a mover or a base may know. Each is asked for by assertion; the second column is what
// is done without. A method with a slip in its signature is not found and nobody says so: a type
// that means to have one has a line var _ for it.
//
//	exact     V⁻¹ = C⁻¹ + Γ to the letter        no proof of the gap
//	holder    moves with V held                  no step of the mean
//	spreader  η = Xw                             no inner steps
//	coverer   covariances of the variables       no steps of Newton's where exponentials overflow
//	factored  solves with a target               Cover and Move
//	blocker   steps of blocks of terms           an error that says to take all
//	prover    a proof of its own                 that of moveProof
//	keeper    keeps more than the sites          nothing is kept
//	aimer     a curvature that sites lack        the targets of the terms
//	reacher   a bound on the step of its aim     shorter steps of means and precisions
//	finer     a target where its aim leads up    shorter steps to the aim
//	moder     a way to the mode of the means     a first step from the means of the base
type (
	// exact is a base whose V⁻¹ is C⁻¹ + Γ. A mean field is not, and the bound on the gap that
	// moves prove does not hold for it.
	exact interface{ exact() }

	holder interface {
		// hold is Move with the covariance of the current state, which the next Accept leaves as it
		// is.
		hold(d, delta, u []float64) (square float64)
	}

	// spreader knows the variables of sites, η = Xw, and the covariance C of the weights in the
	// current state: that of the variables is XCXᵀ.
	spreader interface {
		// weights returns how many there are.
		weights() int
		// gather stores Xᵀr in u, and reports whether it could.
		gather(u, r []float64) bool
		// spread stores Cu in w, and reports whether it could.
		spread(w, u []float64) bool
		// curve stores Xw in eta and Xᵀ(h∘Xw) in u, of weights h of the sites.
		curve(eta, u, w, h []float64)
	}

	coverer interface {
		// before stores the covariance of the base in dst, both triangles, and reports whether it
		// could at no more cost than that.
		before(dst []float64) bool
		// Covariance returns that of the variables in the current state, of which the lower
		// triangle counts, or nil where it would cost far more than a move. It is valid until the
		// next call.
		Covariance() []float64
		// mark keeps the current state, and back returns to it.
		mark()
		back()
	}

	// factored has a factor for the sites, which costs less or keeps more digits than a move from
	// the prior does.
	factored interface {
		// renew finds the variances of s at its sites. The means stand.
		renew(s *term.State) (logDet float64, resolved bool, err error)
		// variances finds those of the terms of a batch where not all are known, and reports
		// whether it could.
		variances(v []float64, batch []int) bool
		// try reports of the precisions γ₊ of a target whether V is positive definite, and whether
		// noise alone makes it nearly singular.
		try(gamma []float64, noisy bool) (valid, edge bool)
		// solve replaces b₊ of the target tried last by a₊ = C⁻¹m₊ and stores m₊.
		solve(b, mean []float64)
		// taken makes that target current, and returns its log|C|/|V|.
		taken() (logDet float64)
		// appendix takes the step of the mean of the paper's appendix: it stores a₊ and m₊ in the
		// target, whose γ is rΓ.
		appendix(x *term.Estimates, batch []int, m PaperMove) error
	}

	// aimer knows a curvature that sites do not have, such as that between the latent values of a
	// term.
	aimer interface {
		// aim stores Newton's step of the means of s, the current state, in step, and in a the
		// linear coefficients about the means after it. It may replace the targets γ̂ in gamma. It
		// reports whether it could.
		aim(a, step, gamma []float64, s *term.State) bool
	}
	// reacher is an aimer whose means can go a part of their way while the precisions go all of it.
	reacher interface {
		// shorten bounds the next step of the means by the part p.t of the last one, makes p.t 1
		// and reports true, unless what was left of the last step was short.
		shorten(p *Problem) bool
	}
	// finer is an aimer with another target of the precisions, for where its own leads up.
	finer interface {
		// fine replaces the targets in gamma, at the same state as the aim before. It reports
		// whether it could.
		fine(gamma []float64, s *term.State) bool
	}

	// moder has a fast way to the mode of the means alone.
	moder interface {
		// mode moves the means of s, which has those of the base, variances of 0 and expectations,
		// near the mode of the posterior. It takes expectations by expect, which reports whether
		// there are any.
		mode(s *term.State, expect func(s *term.State) bool)
	}

	// blocker takes steps of blocks; see Algebra.
	blocker interface {
		plan() sitePlan
		block(batch []int) error
	}

	// prover proves more than what moves tell. Where it is not ready there is no estimate of the
	// gap either. It may move q, and then says so in the Proof.
	prover interface {
		ready() (bool, error)
		prove(within float64) (Proof, error)
		decrement() float64
	}

	// keeper keeps what depends on the sites: a covariance, a factor, weights.
	keeper interface {
		// use is told who works, and when to stop.
		use(c term.Crew)
		// restart is told that the problem of all terms begins, and start that it is at the prior.
		restart()
		start()
		// follow is told that q is the state of that problem, and returns how far it is from where
		// it was; NaN leaves that to the sites.
		follow() (distance float64)
		// stale is told that the sites are others, and settled reports whether nothing is left to
		// be done for them as they are.
		stale()
		settled() bool
		// save writes or reads what is kept; resume is told the γ of the problem of all terms.
		save(c *save.State)
		resume(gamma []float64)
	}
)
