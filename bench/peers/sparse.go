package main

import (
	"context"
	"fmt"

	"github.com/pgsvi/pgsvi"
)

// sparseTest is the number of test rows in part sparse.
const sparseTest = 20000

// A sparseSet is a data set of part sparse, with labels of a field.
type sparseSet struct {
	rows int
	field
	rank int // 0 means the default
}

// sparseSets returns the data sets. The first has the given number of rows.
func sparseSets(rows int) []sparseSet {
	plane, eight := field{2, 3, 0.2}, field{8, 3, 1}
	return []sparseSet{{rows, field{2, 2, 0.1}, 200}, {50000, plane, 0}, {50000, eight, 0},
		{300000, plane, 0}, {300000, eight, 0}}
}

// split returns the training and test rows of s.
func (s sparseSet) split() *split {
	x, y := s.sample(s.rows+sparseTest, label)
	return halved(fmt.Sprintf("%d × %d", s.rows, s.cols), x, y, s.rows)
}

// sparse compares sparse Gaussian processes that learn their hyperparameters from many rows with
// gradient boosting.
func (o *options) sparse(ctx context.Context) ([]row, error) {
	var all []row
	for _, set := range sparseSets(o.rows) {
		s := set.split()
		if err := o.write(s); err != nil {
			return nil, err
		}
		rows, err := o.script(ctx, s.name, "sparse.py", s.train, s.test, s.cols(), o.repeats)
		if err != nil {
			return nil, err
		}
		ours, err := o.sparseRow(ctx, s, set.rank)
		if err != nil {
			return nil, err
		}
		rows = append(rows, ours)
		relate(rows, rows[0].label())
		all = append(all, rows...)
	}
	return all, nil
}

// sparseRow returns a fit that learns the scale and the length scale, with the given number of
// inducing inputs.
func (o *options) sparseRow(ctx context.Context, s *split, rank int) (row, error) {
	variant, name := "", "SparseGP.Learn"
	if rank > 0 {
		variant = fmt.Sprintf("%d inducing inputs", rank)
		name += " with " + variant
	}
	var learned *pgsvi.Learned
	r, err := o.fit(s, "SparseGP", variant, name,
		func() (predictor, *pgsvi.Result, error) {
			g, err := pgsvi.NewSparseGP(s.x, s.y, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{},
				&pgsvi.SparseGPOptions{Rank: rank})
			if err != nil {
				return nil, nil, err
			}
			var post *pgsvi.SparseGPPosterior
			_, post, learned, err = g.Learn(ctx, nil, nil)
			return post, nil, err
		})
	if err != nil {
		return r, err
	}
	r.pass, r.negELBO = learned.Passes, learned.Objective+learned.LogPrior
	r.note = fmt.Sprintf("%.3g passes, %d evaluations", r.pass, learned.Evaluations)
	return r, nil
}
