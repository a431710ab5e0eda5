// Package learn finds the hyperparameters θ of Gaussian processes and generalized linear models.
// It minimizes −ELBO(θ) − log prior(θ), where the ELBO at θ is the ELBO of the best q.
//
// A Space holds the coordinates of θ. A Model computes q at a θ and the derivatives of its ELBO:
// Latent for GPs (latent.go), Weights for GLMs (weights.go), Classes and ClassesGP for softmax
// models, and sparse.Learning for sparse GPs. A Run (run.go) evaluates the Model at the θ that
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
	// Work returns the work so far, in Cholesky factorizations of all rows or passes over them.
	Work() float64
	// State writes or reads all that later evaluations depend on, in a space of n parameters.
	State(c *save.Coder, n int)
}

// Noisy is a Model that can optimize its noise and scale by factorizations alone, with everything
// else fixed.
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
	_ Held  = (*Weights)(nil)
)

// Held is a Model that can predict its ELBO at another θ without a pass over its rows.
type Held interface {
	Model
	// Hold returns −ELBO as a function of θ, up to a constant, with gradient and average information,
	// if the sites of the last Evaluate stay as they are. F is +Inf if θ is out of range. Hold returns
	// nil if such a function is not known, or takes as long as a pass.
	Hold() func(theta []float64) search.Point
}

// Staged is a Model that begins with a part of its rows.
type Staged interface {
	Model
	// Goal returns how many nats a search on the rows of now may leave where one on all may leave
	// tol.
	Goal(tol float64) float64
	// Begin starts a search on the current rows. rough is the error of −ELBO as a fraction of the
	// gain of a step, where 0 means the default. brief allows the search to end without checking
	// directions that it knows little about, because a search on other rows will check them.
	Begin() (rough float64, brief bool)
	// Advance continues with more rows. same reports that −ELBO stays about the same
	// function of θ, and ok that there were more rows.
	Advance() (same, ok bool)
}
