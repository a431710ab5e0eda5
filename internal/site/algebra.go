package site

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file declares Algebra, the interface between the Solver and an approximation q. All algebras
// of sites share Problem (problem.go). The table of steps in doc.go names the methods of Problem.

// Steps with noise come from a mini-batch or from an estimator that draws.
const (
	// noisyPivot is the fraction of the precision of a variable that must remain after such a step
	// if its site has a negative γ. It is a tenth, so a variance grows at most tenfold. Otherwise
	// noise alone could make V lose its positive definiteness, and the mean would diverge with V.
	noisyPivot = 0.1
	// noisyHalvings is how often a step is halved for that reason before it is taken anyway.
	noisyHalvings = 20
	// mostHalvings is the largest number of halvings until V is positive definite. They shorten a
	// step to 1e-30 of its length.
	mostHalvings = 100
)

// Algebra is q in natural parameters with its updates: a site for every term, or the sum of the
// sites over the weights. It hides how a covariance is stored. The Solver of the root package
// drives it.
type Algebra interface {
	// Plan returns the defaults for Solver options.
	Plan() sitePlan
	// ClosedForm reports whether its steps are in closed form.
	ClosedForm() bool
	// Use sets the crew for the following calls. When the crew is halted, each method returns the
	// error of the crew and leaves q unchanged. A repeated call does the same work again.
	Use(c term.Crew)

	// Marginals resizes x for the terms in batch and stores their means and variances under q.
	Marginals(x *term.Estimates, batch []int) error
	// aim computes the target of the step m, the q that a whole step would reach, from the
	// estimates x of the terms in batch.
	aim(x *term.Estimates, batch []int, m PaperMove) error
	// try reports whether the target is a valid q. It also reports whether noise may have driven
	// the target too near the edge of the valid ones (noisyPivot), if q itself is not near it.
	try(noisy bool) (valid, edge bool)
	// halve moves the target half of the way back to q.
	halve()
	// take makes the valid target the current q.
	take() error

	// Ascend takes one accepted step of all terms, so the ELBO does not fall. It returns how many
	// passes over the terms the step took.
	Ascend() (passes int, err error)
	// Block takes the step
	//
	//	argmin KL(q_B‖cavity_B) − Σ_{n∈B} w_n E_q[log p(y_n|η_n)],
	//
	// with the sites of the terms not in batch held fixed.
	Block(batch []int) error
	// Slow reports whether blocks gain so little that steps of all terms should follow.
	Slow() bool
	// Moved returns the length of the last step.
	Moved() float64
	// Evaluate returns the ELBO and the gap of q, with a GapBound without numerical error. It
	// tries a costly proof only if the gap may be at most within nats. A proof may take a step of
	// the mean, which is kept unless the last step had a given β or mixed earlier states.
	Evaluate(within float64) (siteEvaluation, error)
	// Wider reports whether a GapBound holds for any covariance, and not only for covariances of
	// the family.
	Wider() bool

	// State writes or reads everything that later steps depend on.
	State(c *save.Coder)
	// Constant reports whether Evaluate would leave that state unchanged.
	Constant() bool
}

// PaperMove is a step with a given β, where r = 1/(1+β) and the estimates are scaled by N/M.
type PaperMove struct {
	R, Scale float64
	Appendix bool // use the update of the mean from the appendix
}

// Step takes the step m from the estimates x of the terms in batch, or of all terms if batch is
// nil. It halves the step until V is positive definite and, for noisy estimates, not too near the
// edge of that. It returns how often. The error wraps sentinel.ErrNotPosDef if V is not positive
// definite for any of these lengths.
func Step(a Algebra, x *term.Estimates, batch []int, m PaperMove, noisy bool,
	h *parallel.Halt) (halved int, err error) {
	if err := a.aim(x, batch, m); err != nil {
		return 0, err
	}
	for ; halved < mostHalvings; halved++ {
		valid, edge := a.try(noisy)
		if err := h.Err(); err != nil {
			return 0, err
		}
		if valid && (!edge || halved >= noisyHalvings) {
			return halved, a.take()
		}
		a.halve()
	}
	return 0, fmt.Errorf("posterior covariance at every step size: %w", sentinel.ErrNotPosDef)
}

// siteEvaluation holds the quality of a q; see Evaluation of the Stepper.
type siteEvaluation struct {
	ELBO, ELBOErr, Gap, GapBound, Goal float64
	// Most is the largest default goal, unless it is 0. Learned parameters of the prior that are not
	// known well enough set it.
	Most float64
	// Held means that GapBound is for the present parameters of the prior, which steps move.
	Held bool
}

// sitePlan holds the batch size and the Sampler of an algebra. A nil Sampler means every term in
// every batch.
type sitePlan struct {
	Batch   int
	Sampler siteSampler
}

// siteSampler draws mini-batches.
type siteSampler interface {
	Batches(n, size int, rng *rand.Rand) iter.Seq[[]int]
}

// Proof is the state of a proof of the gap.
type Proof struct {
	made     bool    // the proof is finished
	stepped  bool    // the step of the mean has been taken
	bound    float64 // the gap bound; 0 if there is no proof
	rounding float64 // rounding of the ELBO
}

// state writes or reads p.
func (p *Proof) state(c *save.Coder) {
	c.Bool(&p.made, &p.stepped)
	c.Float(&p.bound, &p.rounding)
}

// A site stands for one likelihood term. It multiplies the density of η_n by exp(b_n η_n − ½ γ_n
// η_n²). γ_n may be negative if the likelihood is not log-concave.
