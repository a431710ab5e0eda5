// Package learn learns the hyper-parameters θ of Gaussian processes and generalised linear
// models. It minimises −ELBO(θ) − log prior(θ), where the ELBO is that of the best q at θ.
//
// A Space holds the coordinates of θ. A Model computes q at a θ, with the derivatives of its
// ELBO. A Stepper evaluates the Model where the search asks for it. CertifyGram and
// CertifyWeights bound how far a scale may be from the best one.
package learn

import (
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Model is a model as a function of its hyper-parameters: what a search asks.
type Model interface {
	// Digest shows d the model and its data.
	Digest(d *save.Digest)
	// Use lets the crew do what follows. Once that is halted Evaluate returns its error.
	Use(c term.Crew)
	// Evaluate finds q at θ, to within slack nats of the best. It returns −ELBO and by how many
	// nats that may be too high, and, if slopes is set, gradient and average information. Where
	// −ELBO is above most it may leave these out. A θ without a value, such as one out of range,
	// has +Inf, and no error.
	Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error)
	// Keep makes the q of the last Evaluate one that later ones start from; with best also the one
	// to end with.
	Keep(best bool)
	// Work returns the work so far, in Cholesky factorisations of all rows or passes over them.
	Work() float64
	// State writes or reads all that later evaluations depend on, in a space of n parameters.
	State(c *save.State, n int)
}

// Noisy is a Model whose noise and scale can be brought to where they are best, at all else, by
// factorisations alone.
type Noisy interface {
	Model
	// Profiles reports whether there is noise that is learned and was not set.
	Profiles() bool
	// Profile moves noise and scale of θ to where −ELBO − log prior is about least, and returns
	// that value, without slopes.
	Profile(theta []float64) (search.Point, error)
}

// Sited is a Model whose q has sites.
type Sited interface {
	Model
	// Begin makes the q of alg the best one so far.
	Begin(alg site.Algebra)
}

var (
	_ Noisy = (*Latent)(nil)
	_ Sited = (*Latent)(nil)
	_ Sited = (*Weights)(nil)
)

// Staged is a Model that begins with a part of its rows.
type Staged interface {
	Model
	// Goal returns how many nats a search on the rows of now may leave where one on all may leave
	// tol.
	Goal(tol float64) float64
	// Begin tells that a search begins on the rows of now. It returns what part of the gain of a
	// step −ELBO may be off by, 0 for the default, and whether the search may end without a look
	// in directions of which little is known, as one on other rows has it.
	Begin() (rough float64, brief bool)
	// Advance continues with more rows. It reports whether −ELBO stays about the same function of θ,
	// and whether there are more rows.
	Advance() (same, ok bool)
}
