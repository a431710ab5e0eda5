package pgsvi

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/loo"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file runs leave-one-out cross-validation over the levels of a grouping factor.

// LOOGroup runs leave-one-out cross-validation over the levels of a group of GLMOptions.Groups. It
// leaves out all rows of a level together and predicts them as rows of a new level: with effects
// from N(0, Σ), and with the other weights that the rows of the other levels determine. LOO instead
// leaves out one row of a level, whose other rows still determine its effects. Use LOOGroup to ask
// how well the model predicts a new patient, and LOO for a new row of a known patient.
//
// In the result an observation is a level with rows, in increasing order, and Pointwise is the joint
// log predictive density of its rows. ELPD is the sum, and SE its standard error over levels.
// CompareLOO compares models with the same levels. Leverage is the number of parameters that the
// rows of a level determine. KHat and Cavity are nil.
//
// If q is a mixture over covariances of groups (see Group), they follow the other levels, as in LOO.
// Otherwise the covariances and the parameters of the likelihood keep their values, although fewer
// levels would change them. The result for GaussianNoise is then exact. For other likelihoods the
// sites of the other rows keep their values too, and the density is integrated by quadrature over
// the effects of the level. Beyond two effects, and for the other weights, the log density of the
// rows is expanded to second order at each node. Err estimates the error of the quadrature alone.
//
// The error wraps ErrParam if the model has no group of this name, or if LOO returns ErrParam. It
// wraps ErrEmpty if no row has a level, and ErrNotPosDef if q does not belong to these rows.
func (g *GLM) LOOGroup(ctx context.Context, q *GLMPosterior, group string) (*LOO, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	k := slices.IndexFunc(g.groups, func(r groupInfo) bool { return r.Name == group })
	if k < 0 {
		return nil, fmt.Errorf("pgsvi: there is no group %q; the groups are %s: %w", group,
			groupNames(g.groups), ErrParam)
	}
	r := &g.groups[k].Group
	of, err := groupRowsOf(&g.lin, r)
	if err != nil {
		return nil, err
	}
	rows := make([][]int, r.Levels)
	for i, level := range of.level {
		if level >= 0 {
			rows[level] = append(rows[level], i)
		}
	}
	var levels []int
	for i, of := range rows {
		if len(of) > 0 {
			levels = append(levels, i)
		}
	}
	rows = slices.DeleteFunc(rows, func(of []int) bool { return len(of) == 0 })
	if len(rows) == 0 {
		return nil, fmt.Errorf("pgsvi: no row has a level of group %s: %w", group, ErrEmpty)
	}
	return g.mixedLOO(q, func(part *GLMPosterior, _ int) (*loo.Result, *term.Terms, error) {
		l := g.linearAt(part)
		mean := floats.SubTo(make([]float64, g.dim()), part.mean, l.Prior.Mean)
		found, err := loo.LevelRows(ctx, l, mean, part.cov, rows, r.effects(), func(i int) string {
			return fmt.Sprintf("level %d of group %s", levels[i], group)
		})
		return found, nil, err
	})
}

// groupNames returns the names of groups, separated by commas.
func groupNames(groups []groupInfo) string {
	names := ""
	for i := range groups {
		if i > 0 {
			names += ", "
		}
		names += fmt.Sprintf("%q", groups[i].Name)
	}
	if names == "" {
		return "none"
	}
	return names
}
