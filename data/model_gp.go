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

// FitGP fits a Gaussian process to the model, and learns its hyperparameters if opt is not nil. It
// uses a pgsvi.GP for up to 3,000 rows, or 1,000 rows if the outcome has three or more classes, and
// a pgsvi.SparseGP for more rows. A nil likelihood means the default of ForGP, and s is the same as
// for GP.Fit. The returned Learned is nil if opt is nil.
//
// The error is an error of ForGP, or of Fit or Learn of the Gaussian process.
func (m *Model) FitGP(
	ctx context.Context, k pgsvi.Kernel, lik pgsvi.Likelihood, s *pgsvi.Solver,
	opt *pgsvi.LearnOptions,
) (Posterior, *pgsvi.Result, *pgsvi.Learned, error) {
	m, err := m.For(lik)
	if err != nil {
		return nil, nil, nil, err
	}
	lik, err = m.ForGP(lik)
	if err != nil {
		return nil, nil, nil, err
	}
	most := denseRows
	if m.classes() {
		most = denseClassRows
	}
	if len(m.Y) > most {
		g, err := pgsvi.NewSparseGP(m.X, m.Y, k, lik, nil)
		if err != nil {
			return nil, nil, nil, m.Locate(err)
		}
		return fitOrLearn(ctx, s, opt, g.Fit, g.Learn)
	}
	g, err := pgsvi.NewGP(m.X, m.Y, k, lik, nil)
	if err != nil {
		return nil, nil, nil, m.Locate(err)
	}
	return fitOrLearn(ctx, s, opt, g.Fit, g.Learn)
}

// fitOrLearn fits a model, or learns its hyperparameters if opt is not nil.
func fitOrLearn[G any, P Posterior](
	ctx context.Context, s *pgsvi.Solver, opt *pgsvi.LearnOptions,
	fit func(context.Context, *pgsvi.Solver) (P, *pgsvi.Result, error),
	learn func(context.Context, *pgsvi.Solver, *pgsvi.LearnOptions) (G, P, *pgsvi.Learned, error),
) (Posterior, *pgsvi.Result, *pgsvi.Learned, error) {
	if opt == nil {
		post, res, err := fit(ctx, s)
		return post, res, nil, err
	}
	_, post, learned, err := learn(ctx, s, opt)
	if err != nil {
		return post, nil, learned, err
	}
	return post, cmp.Or(learned.Fit, learned.Search), learned, nil
}
