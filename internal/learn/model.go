// Package learn finds the hyperparameters θ of Gaussian processes and generalized linear models.
// It minimizes −ELBO(θ) − log prior(θ), where the ELBO at θ is the ELBO of the best q.
//
// A Space holds the coordinates of θ. A Model computes q at a θ and the derivatives of its ELBO:
// Latent for GPs (latent.go), Weights for GLMs (weights.go), Groups for mixed models (groups.go),
// Classes and ClassesGP for softmax models, and sparse.Learning for sparse GPs. All except the last
// share a fitter (fitter.go). A Run (run.go) evaluates the Model at the θ that
// package search proposes, and decides on starts and stages. period.go and harmonics.go find the
// starts of periods. CertifyGram and CertifyWeights (scale.go) bound how far a scale may be from
// the best one.
package learn

import (
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// A Model is a model as a function of its hyperparameters θ. A Run searches for the best θ.
type Model interface {
	// Digest adds the model and its data to d.
	Digest(d *save.Digest)
	// Use makes later calls use the crew. If the crew is halted, Evaluate returns its error.
	Use(c term.Crew)
	// Evaluate finds q at θ to within slack nats of the best q. The Point holds −ELBO in F, the
	// number of nats by which F may be too high in Slack and, if slopes is true, the gradient and the
	// average information. Evaluate may omit these if F exceeds most. If θ has no value, for example
	// because it is out of range, F is +Inf and there is no error.
	Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error)
	// Keep remembers the q of the last Evaluate, from which later evaluations start. If best is
	// true, it also becomes the final q.
	Keep(best bool)
	// Work returns the work so far, in Cholesky factorizations of all rows or in passes over them.
	Work() float64
	// State writes or reads everything that later evaluations depend on. θ has n elements.
	State(c *save.Coder, n int)
}

// A Noisy is a Model that can optimize its noise and its scale by factorizations alone, with all
// other hyperparameters fixed.
type Noisy interface {
	Model
	// Profiles reports whether there is noise that is learned and that the caller did not set.
	Profiles() bool
	// Profile moves the noise and the scale of θ close to the minimum of −ELBO − log prior. It
	// returns the new θ and the value there, without slopes.
	Profile(theta []float64) (search.Point, error)
}

// A Sited is a Model whose q has sites.
type Sited interface {
	Model
	// Begin makes alg start from the best q so far.
	Begin(alg site.Algebra)
}

var (
	_ Noisy = (*Latent)(nil)
	_ Sited = (*Latent)(nil)
	_ Sited = (*Weights)(nil)
	_ Held  = (*Weights)(nil)
)

// A Held is a Model that can predict its ELBO at another θ without a pass over its rows.
type Held interface {
	Model
	// Hold returns −ELBO as a function of θ, up to a constant and with gradient and average
	// information, for fixed sites: the sites of the last Evaluate. F is +Inf if θ is out of range.
	// Hold returns nil if it has no such function, or if the function takes as long as a pass.
	Hold() func(theta []float64) search.Point
}

// A Staged is a Model whose search begins with a part of its rows.
type Staged interface {
	Model
	// Goal returns the tolerance, in nats, of a search on the current rows, given the tolerance of the
	// search on all rows.
	Goal(tol float64) float64
	// Begin starts a search on the current rows. rough is the error of −ELBO as a fraction of the
	// gain of a step, where 0 means the default. brief allows the search to end without checking
	// directions that it knows little about, because a search on other rows will check them.
	Begin() (rough float64, brief bool)
	// Advance continues with more rows. ok is false if there are no more. same reports whether −ELBO
	// stays about the same function of θ.
	Advance() (same, ok bool)
}
