package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
)

// gp compares Gaussian process classification with scikit-learn.
func (o *options) gp(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	for _, s := range splits {
		learned := filepath.Join(o.temp, s.name+".learned")
		kernel := s.problem.Kernel().(pgsvi.SquaredExp)
		rows, err := o.script(ctx, s.name, "gp.py", "classify", s.train, s.test, s.cols(), o.repeats,
			kernel.Scale, kernel.Length, learned)
		if err != nil {
			return nil, err
		}
		ours, err := o.gpRows(ctx, s, learned)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, ours...)
		relate(rows, "GPC, fixed") // has the same hyperparameters
		all = append(all, rows...)
	}
	return all, nil
}

// gpRows returns fits of this library with the hyperparameters of the paper, and one fit with the
// hyperparameters in the file learned.
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
	rough, err := o.fit(s, "GP", "gap 0.001 nats per observation", "until its gap is 0.001 nats per observation",
		paper(pgsvi.GapBelow(1e-3*float64(len(s.y)), 0)))
	if err != nil {
		return nil, err
	}
	rough.note += fmt.Sprintf(", %.1g nats from the optimum", rough.negELBO-end.negELBO)
	theta, err := readFloats(learned, 2)
	if err != nil {
		return nil, err
	}
	theirs, err := o.fit(s, "GP", "learned by GPC", "nil Solver, hyperparameters learned by GPC",
		func() (predictor, *pgsvi.Result, error) {
			return o.gpFit(ctx, s,
				pgsvi.SquaredExp{Scale: math.Exp(theta[0] / 2), Length: math.Exp(theta[1])}, nil)
		})
	return []row{rough, end, theirs}, err
}

// gpFit fits a Gaussian process to data, including its covariances.
func (o *options) gpFit(ctx context.Context, s *split, k pgsvi.Kernel, converger pgsvi.Converger) (
	predictor, *pgsvi.Result, error) {
	return gpBy(ctx, s, k, pgsvi.BernoulliLogit{}, &pgsvi.GPOptions{Jitter: s.problem.Jitter})(
		&pgsvi.Solver{Converger: converger})
}

// gpBy returns a function that fits a Gaussian process to s.
func gpBy(ctx context.Context, s *split, k pgsvi.Kernel, lik pgsvi.Likelihood,
	opt *pgsvi.GPOptions) fitBy {
	return func(by *pgsvi.Solver) (predictor, *pgsvi.Result, error) {
		g, err := pgsvi.NewGP(s.x, s.y, k, lik, opt)
		if err != nil {
			return nil, nil, err
		}
		return g.Fit(ctx, by)
	}
}

// The numbers of rows in parts classify and regress, which use a field.
const fieldTrain, fieldTest = 2000, 1000

// classify compares classification of generated rows with the hyperparameters of their field.
func (o *options) classify(ctx context.Context) ([]row, error) {
	q := field{4, 2, 0.5}
	x, y := q.sample(fieldTrain+fieldTest, label)
	s := halved(fmt.Sprintf("%d × %d", fieldTrain, q.cols), x, y, fieldTrain)
	if err := o.write(s); err != nil {
		return nil, err
	}
	rows, err := inTurn(func() ([]row, error) {
		rows, err := o.script(ctx, s.name, "gp.py", "classify", s.train, s.test, q.cols, o.repeats,
			q.scale, q.length)
		if err != nil {
			return nil, err
		}
		rough, end, err := o.posteriorRows(s, "GP",
			gpBy(ctx, s, pgsvi.SquaredExp{Scale: q.scale, Length: q.length},
				pgsvi.BernoulliLogit{}, nil))
		return append(rows, rough, end), err
	})
	relate(rows, "GPC, fixed")
	return rows, err
}

// regress compares regression of generated rows, with the hyperparameters of their field and with
// learned hyperparameters.
func (o *options) regress(ctx context.Context) ([]row, error) {
	const noise = 0.3 // standard deviation
	q := field{4, 1, 0.5}
	x, y := q.sample(fieldTrain+fieldTest,
		func(rng *rand.Rand, f float64) float64 { return f + noise*rng.NormFloat64() })
	s := halved(fmt.Sprintf("%d × %d", fieldTrain, q.cols), x, y, fieldTrain)
	if err := o.write(s); err != nil {
		return nil, err
	}
	rows, err := inTurn(func() ([]row, error) {
		rows, err := o.script(ctx, s.name, "gp.py", "regress", s.train, s.test, q.cols, o.repeats,
			q.scale, q.length, noise*noise)
		if err != nil {
			return nil, err
		}
		fixed := gpBy(ctx, s, pgsvi.SquaredExp{Scale: q.scale, Length: q.length},
			pgsvi.GaussianNoise{Var: noise * noise}, nil)
		end, err := o.fit(s, "GP", "fixed", "GP, fixed",
			func() (predictor, *pgsvi.Result, error) { return fixed(nil) })
		if err != nil {
			return nil, err
		}
		learned, err := o.learnRow(ctx, &learnSet{name: s.name}, s, "one length")
		learned.name = "pgsvi, GP.Learn"
		return append(rows, end, learned), err
	})
	if err != nil {
		return nil, err
	}
	fixed, learned := []row{rows[0], rows[2]}, []row{rows[1], rows[3]}
	for _, pair := range [][]row{fixed, learned} {
		relate(pair, pair[0].label())
	}
	return append(fixed, learned...), nil
}
