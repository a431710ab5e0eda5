package data

import (
	"cmp"
	"context"

	"github.com/pgsvi/pgsvi"
)

// FitGP uses a dense Gaussian process up to this number of rows, which is lower for classes.
const (
	denseRows      = 3000
	denseClassRows = 1000
)

// A GPFit is a Gaussian process that Model.FitGP has fitted.
type GPFit struct {
	// Posterior is a *pgsvi.GPPosterior or a *pgsvi.SparseGPPosterior.
	Posterior Posterior
	// Result describes the fit, or the search if it ended early.
	Result *pgsvi.Result
	// Learned holds the hyperparameters. It is nil if they were not learned.
	Learned *pgsvi.Learned

	loo func(ctx context.Context) (*pgsvi.LOO, error)
}

// LOO runs leave-one-out cross-validation. See GP.LOO and SparseGP.LOO for its cost and its errors.
func (f *GPFit) LOO(ctx context.Context) (*pgsvi.LOO, error) { return f.loo(ctx) }

// FitGP fits a Gaussian process to the model, and learns its hyperparameters if opt is not nil. It
// uses a pgsvi.GP for up to 3,000 rows, or 1,000 rows if the outcome has three or more classes, and
// a pgsvi.SparseGP for more rows. A nil likelihood means the default of ForGP, and s is the same as
// for GP.Fit.
//
// The error is an error of ForGP, or of Fit or Learn of the Gaussian process.
func (m *Model) FitGP(
	ctx context.Context, k pgsvi.Kernel, lik pgsvi.Likelihood, s *pgsvi.Solver,
	opt *pgsvi.LearnOptions,
) (*GPFit, error) {
	m, err := m.For(lik)
	if err != nil {
		return nil, err
	}
	lik, err = m.ForGP(lik)
	if err != nil {
		return nil, err
	}
	most := denseRows
	if m.classes() {
		most = denseClassRows
	}
	if len(m.Y) > most {
		g, err := pgsvi.NewSparseGP(m.X, m.Y, k, lik, nil)
		if err != nil {
			return nil, m.Locate(err)
		}
		return fitOrLearn(ctx, g, s, opt)
	}
	g, err := pgsvi.NewGP(m.X, m.Y, k, lik, nil)
	if err != nil {
		return nil, m.Locate(err)
	}
	return fitOrLearn(ctx, g, s, opt)
}

// A gaussianProcess is a *pgsvi.GP or a *pgsvi.SparseGP, G, whose posterior is P.
type gaussianProcess[G any, P Posterior] interface {
	Fit(ctx context.Context, s *pgsvi.Solver) (P, *pgsvi.Result, error)
	Learn(ctx context.Context, s *pgsvi.Solver, opt *pgsvi.LearnOptions) (
		G, P, *pgsvi.Learned, error)
	LOO(ctx context.Context, post P) (*pgsvi.LOO, error)
}

// fitOrLearn fits g, or learns its hyperparameters if opt is not nil.
func fitOrLearn[G gaussianProcess[G, P], P Posterior](
	ctx context.Context, g G, s *pgsvi.Solver, opt *pgsvi.LearnOptions) (*GPFit, error) {
	f := &GPFit{}
	var post P
	var err error
	if opt == nil {
		post, f.Result, err = g.Fit(ctx, s)
	} else if g, post, f.Learned, err = g.Learn(ctx, s, opt); err == nil {
		f.Result = cmp.Or(f.Learned.Fit, f.Learned.Search)
	}
	if err != nil {
		return nil, err
	}
	f.Posterior = post
	f.loo = func(ctx context.Context) (*pgsvi.LOO, error) { return g.LOO(ctx, post) }
	return f, nil
}
