package data

import (
	"cmp"
	"context"

	"github.com/pgsvi/pgsvi"
)

// A Gaussian process is one over all rows up to so many, or so many with classes.
const (
	denseRows      = 3000
	denseClassRows = 1000
)

// FitGP fits a Gaussian process to the model, and learns its hyper-parameters where opt is not nil.
// It is a pgsvi.GP up to 3,000 rows, or 1,000 if the outcome has three classes or more, and a
// pgsvi.SparseGP beyond. A nil likelihood is that of ForGP; s is as for GP.Fit. Learned is nil if
// opt is.
//
// The error is one of ForGP, or one of Fit or Learn of the Gaussian process.
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

// fitOrLearn fits a model or, where opt is not nil, learns its hyper-parameters.
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
