package pgsvi

import (
	"context"
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits the few rows that a stream keeps, at the prior and the likelihood of a posterior, and
// checks the result. Both kinds of streams of rows call it (glm_stream.go, glm_stream_groups.go).

// model returns the model of p without data.
func (p *GLMPosterior) model() *GLM {
	return &GLM{
		lin: site.LinearModel{
			Terms: &term.Terms{Lik: viewOf(p.lik)}, Prior: *p.prior, Names: p.names,
			MaxMemory: p.opt.MaxMemory,
		},
		opt: p.opt, means: p.means, groups: p.updatedGroups(),
	}
}

// take makes the rows of t the rows of g.
func (g *GLM) take(t *term.Buffer) {
	g.lin.X, g.lin.Terms = t.Design(), t.Terms(g.lin.Terms.Lik, 0)
	t.SetUnit()
	g.offset = g.lin.Terms.Offset
}

// refit returns the posterior of a fit to the rows that take gave g.
func (g *GLM) refit(ctx context.Context) (*GLMPosterior, error) {
	n := g.Len()
	g.lin.AddPriorMean()
	p, res, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if res.Status != Converged && !(res.Gap <= mostFitGap) {
		return nil, fmt.Errorf("pgsvi: the fit of all %d rows ends (%v) %.2g nats from its "+
			"optimum; use a prior closer to the scale of the data: %w", n, res.Status, res.Gap,
			ErrDiverged)
	}
	if i, ok := p.resolves(g); !ok {
		return nil, fmt.Errorf("pgsvi: row %d of all %d is so informative relative to the prior "+
			"that its variance is only rounding; use a prior closer to the scale of the data: %w",
			i, n, ErrDiverged)
	}
	return p, nil
}

// mostFitGap is the largest distance, in nats, of a fit of all rows from its optimum.
const mostFitGap = 1e-4

// mostMeanRounding is the largest movement, in standard deviations, of the mean after Remove that
// trials of rounding may cause. The mean is then off by less than 1e-6 standard deviations.
const mostMeanRounding = 2e-7

// mostTold is the largest computed information of a row under a log-concave likelihood, γ_n times
// the variance of η_n. The exact information is 1 for a flat prior.
const mostTold = 1.001

// resolves reports whether the variances of p, a posterior of g, at its rows are more than
// rounding. Otherwise it returns a row whose variance is not.
func (p *GLMPosterior) resolves(g *GLM) (row int, ok bool) {
	n := g.Len()
	if n == 0 {
		return 0, true
	}
	var at term.Marginals
	at.Resize(n)
	mean := make([]float64, p.Dim())
	floats.SubTo(mean, p.ownMean(), p.prior.Mean)
	g.lin.X.Mul(at.M, mean, nil)
	p.cov.Variances(at.V, g.lin.X, nil)
	var prior []float64
	for i, v := range at.V {
		if v > 0 {
			continue
		}
		if prior == nil {
			prior = make([]float64, n)
			p.prior.Variances(prior, g.lin.X)
		}
		if !(v == 0 && prior[i] == 0) { // effects with standard deviations of 0 have no variance
			return i, false
		}
	}
	terms := *g.lin.Terms
	terms.Lik = viewOf(p.lik) // it may be learned
	if !p.ofSites() || !terms.Concave() || terms.Expect(&at, nil, term.Crew{}) != nil {
		return 0, true
	}
	for i, gamma := range at.Tg {
		if !(gamma*at.V[i] <= mostTold) {
			return i, false
		}
	}
	return 0, true
}

// ofSites reports whether the precision of p consists of the precision of the prior and of sites.
func (p *GLMPosterior) ofSites() bool {
	switch p.cov.(type) {
	case *gauss.Full, *gauss.Dual, *gauss.Arrow:
		return true
	}
	return false
}
