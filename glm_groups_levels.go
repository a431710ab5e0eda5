package pgsvi

import (
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
)

// This file adds new levels to a posterior of a mixed model.

// WithLevels returns the posterior with more levels at the end of a group of GLMOptions.Groups, which
// has the given index. It does not change p. Use it to Update a posterior with rows of new levels. The
// new levels have no rows, so their effects have mean 0 and covariance Σ, and predictions for other
// rows do not change. Columns after the group move by the number of new columns.
//
// The names are the names of all columns of the group, as many per level as it has effects; the
// number of names sets the number of levels.
//
// The error wraps ErrParam if there is no such group, or if names does not hold all effects of at
// least the present levels. It wraps ErrMemory or ErrNotPosDef if the new levels make another group
// the largest one, and the covariance has no dense form.
func (p *GLMPosterior) WithLevels(group int, names []string) (*GLMPosterior, error) {
	if group < 0 || group >= len(p.groups) {
		return nil, fmt.Errorf("pgsvi: there is no group %d; the posterior has %d groups: %w", group,
			len(p.groups), ErrParam)
	}
	r := &p.groups[group]
	q := r.effects()
	levels := len(names)/q - r.Levels
	if levels < 0 || len(names)%q != 0 {
		return nil, fmt.Errorf("pgsvi: there are %d names for group %s, which has %d levels of %d "+
			"effects; give a name to each effect of each level: %w", len(names), r.Name, r.Levels, q,
			ErrParam)
	}
	k, _ := p.blockOf(r)
	if k < 0 {
		return nil, fmt.Errorf("pgsvi: group %s has no prior: %w", r.Name, ErrParam)
	}
	prior, g := p.prior.Grown(k, levels)
	x := *p
	x.names = slices.Concat(p.names[:r.First], names, p.names[g.At:])
	x.prior = &prior
	x.mean, x.means = g.Vector(p.mean), g.Vector(p.means)
	x.groups, x.opt.Groups = nil, nil
	for i, of := range p.groups {
		if of.First = g.Weight(of.First); i == group {
			of.First, of.Levels = r.First, r.Levels+levels
		}
		x.groups, x.opt.Groups = append(x.groups, of), append(x.opt.Groups, of.Group)
	}
	x.opt.Names, x.opt.Blocks, x.opt.Learn = nil, nil, nil
	var err error
	if x.cov, err = gauss.Grown(p.cov, g, &prior); err != nil {
		return nil, prefixed(err)
	}
	if p.mixture != nil {
		if err := x.growMixture(p, k, levels, g); err != nil {
			return nil, prefixed(err)
		}
	}
	if p.spread != nil {
		s := &learnSpread{params: p.spread.params}
		for _, a := range p.spread.weights {
			s.weights = append(s.weights, g.Vector(a))
		}
		x.setSpread(s)
	}
	x.data = p.data.grown(g)
	return &x, nil
}

// growMixture sets the mixture of x to the mixture of p with more levels of block k. Without an arrow
// x is q alone.
func (x *GLMPosterior) growMixture(p *GLMPosterior, k, levels int, g gauss.Growth) error {
	if _, ok := x.cov.(*gauss.Arrow); !ok {
		x.mean, x.mixture = g.Vector(p.mixture.mean), nil
		return nil
	}
	old := p.mixture
	m := &weightMixture{Mixture: &gauss.Mixture{Cov: x.cov, Prob: old.Mixture.Prob},
		mean: g.Vector(old.mean), liks: old.liks, logMass: old.logMass}
	for i, c := range old.Mixture.Of {
		var prior gauss.Prior
		if old.priors != nil {
			prior, _ = old.priors[i].Grown(k, levels)
			m.priors = append(m.priors, &prior)
		} else {
			prior, _ = c.(*gauss.Arrow).PriorOf(p.prior).Grown(k, levels)
		}
		grown, err := gauss.Grown(c, g, &prior)
		if err != nil {
			return err
		}
		m.Mixture.Of = append(m.Mixture.Of, grown)
		m.Mixture.Shift = append(m.Mixture.Shift, g.Vector(old.Mixture.Shift[i]))
		m.means = append(m.means, g.Vector(old.means[i]))
	}
	x.mixture = m
	return nil
}

// grown returns the rows with new columns of zeros, or nil if s is nil.
func (s *seenRows) grown(g gauss.Growth) *seenRows {
	if s == nil {
		return nil
	}
	grown := *s
	x := &design.Matrix{Rows: s.x.Rows, Cols: s.x.Cols + g.Added, Unit: s.x.Unit}
	grown.x = x
	if s.x.Sparse == nil {
		for i := range s.x.Rows {
			_, row := s.x.Row(i)
			x.Dense = append(x.Dense, g.Vector(row)...)
		}
		return &grown
	}
	x.Sparse = &design.Rows{Cols: x.Cols, Ptr: []int{0}}
	for i := range s.x.Rows {
		ind, val := s.x.Row(i)
		for _, j := range ind {
			x.Sparse.Ind = append(x.Sparse.Ind, int32(g.Weight(int(j))))
		}
		x.Sparse.Val = append(x.Sparse.Val, val...)
		x.Sparse.Ptr = append(x.Sparse.Ptr, len(x.Sparse.Ind))
	}
	return &grown
}
