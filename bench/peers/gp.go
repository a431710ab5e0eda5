package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
)

// gp compares Gaussian-process classification with scikit-learn's.
func (o *options) gp(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	for _, s := range splits {
		learned := filepath.Join(o.temp, s.name+".learned")
		kernel := s.problem.Kernel().(pgsvi.SquaredExp)
		rows, err := o.script(ctx, s.name, "gp.py", s.train, s.test, s.cols(), o.repeats,
			kernel.Scale, kernel.Length, learned)
		if err != nil {
			return nil, err
		}
		ours, err := o.gpRows(ctx, s, learned)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, ours...)
		relate(rows, "GPC, fixed") // the same hyper-parameters
		all = append(all, rows...)
	}
	return all, nil
}

// gpRows returns fits of this library at the hyper-parameters of the paper, and one
// at those in the file learned.
func (o *options) gpRows(ctx context.Context, s *split, learned string) ([]row, error) {
	paper := func(converger pgsvi.Converger) fit {
		return func() (predictor, *pgsvi.Result, error) {
			return o.gpFit(ctx, s, s.problem.Kernel(), converger)
		}
	}
	end, err := o.fit(s, "GP", "", "nil Solver", paper(nil))
	if err != nil {
		return nil, err
	}
	rough, err := o.fit(s, "GP", "gap 0.001 nats a datum", "until its gap is 0.001 nats a datum",
		paper(pgsvi.GapBelow(1e-3*float64(len(s.y)), 0)))
	if err != nil {
		return nil, err
	}
	rough.note += fmt.Sprintf(", %.1g nats from the optimum", rough.negELBO-end.negELBO)
	theta, err := readFloats(learned, 2)
	if err != nil {
		return nil, err
	}
	theirs, err := o.fit(s, "GP", "learned by GPC", "nil Solver, hyper-parameters learned by GPC",
		func() (predictor, *pgsvi.Result, error) {
			return o.gpFit(ctx, s,
				pgsvi.SquaredExp{Scale: math.Exp(theta[0] / 2), Length: math.Exp(theta[1])}, nil)
		})
	return []row{rough, end, theirs}, err
}

// gpFit fits a Gaussian process from its data, with its covariances.
func (o *options) gpFit(ctx context.Context, s *split, k pgsvi.Kernel, converger pgsvi.Converger) (
	predictor, *pgsvi.Result, error) {
	g, err := pgsvi.NewGP(s.x, s.y, k, pgsvi.BernoulliLogit{},
		&pgsvi.GPOptions{Jitter: s.problem.Jitter})
	if err != nil {
		return nil, nil, err
	}
	return g.Fit(ctx, &pgsvi.Solver{Converger: converger})
}
