package pgsvi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
)

// This file integrates the posterior of a mixed model over the covariances of groups with few levels
// (internal/site/sigma_grid.go and sigma_design.go). The posterior of the weights is then a mixture
// of Gaussians. Predictions, effects and intervals use its mean and covariance.

// integrateGroups replaces the posterior at the state st by a mixture over covariances of groups, if
// there are groups to integrate. A canceled integration leaves p unchanged.
func (p *GLMPosterior) integrateGroups(st Stepper) error {
	a := p.groupAlgebra(st)
	if a == nil {
		return nil
	}
	grid, err := a.Integrate()
	if a.Workers.Halt.Err() != nil || errors.Is(err, ErrNotFinite) || errors.Is(err, ErrNotPosDef) {
		return nil
	}
	if err != nil || grid == nil {
		return err
	}
	p.setGrid(grid)
	return nil
}

// setGrid makes p the mixture of the points of a grid.
func (p *GLMPosterior) setGrid(grid *site.SigmaGrid) {
	prob := make([]float64, len(grid.Points))
	means, of := make([][]float64, len(prob)), make([]gauss.Cov, len(prob))
	for k, x := range grid.Points {
		prob[k], means[k], of[k] = x.Prob, x.Mean, x.Cov
		for j, m := range p.prior.Mean {
			means[k][j] += m
		}
	}
	for i := range grid.Spans {
		s := &grid.Spans[i]
		p.groups[s.Block].spread.SetInterval(s)
	}
	p.setMixture(prob, means, of)
	p.mixture.logMass = grid.LogMass
}

// savedGrid is the JSON form of a weightMixture over covariances of groups. The lists of all
// components follow one another.
type savedGrid struct {
	Prob  save.List[float64] `json:"probabilities"`
	Shift save.List[float64] `json:"shifts"` // means of the components less the mean of all
	L     save.List[float64] `json:"blocks"` // L of each block
	A     save.List[float64] `json:"border"` // see savedArrow
	B     save.List[float64] `json:"levelBorder"`
	D     save.List[float64] `json:"levels"`
	Mean  save.List[float64] `json:"mean"` // the mean of q
	// Lo and Hi are the intervals of the standard deviations and correlations of each group, or zeros.
	Lo save.List[float64] `json:"lo"`
	Hi save.List[float64] `json:"hi"`
}

// saveGrid returns the saved form of the mixture of p, or nil.
func (p *GLMPosterior) saveGrid() *savedGrid {
	m := p.mixture
	if m == nil || m.priors != nil {
		return nil
	}
	s := &savedGrid{Prob: m.Mixture.Prob, Mean: m.mean}
	for k, c := range m.Mixture.Of {
		s.Shift = append(s.Shift, m.Mixture.Shift[k]...)
		arrow := c.(*gauss.Arrow)
		for _, b := range arrow.PriorOf(p.prior).Blocks() {
			s.L = append(s.L, b.L...)
		}
		saved := saveArrow(arrow)
		s.A, s.B, s.D = append(s.A, saved.A...), append(s.B, saved.B...), append(s.D, saved.D...)
	}
	s.Lo, s.Hi = p.saveIntervals()
	return s
}

// check returns an error if s does not fit p.
func (s *savedGrid) check(p *GLMPosterior) error {
	n, d, each, params := len(s.Prob), len(p.mean), 0, 0
	for _, b := range p.prior.Blocks() {
		each += len(b.L)
		params += b.Q + b.Q*b.Q
	}
	if n == 0 || each == 0 || len(s.Shift) != n*d || len(s.Mean) != d || len(s.L) != n*each ||
		len(s.A)%n != 0 || len(s.B)%n != 0 || len(s.D)%n != 0 || len(s.Lo) != params ||
		len(s.Hi) != params {
		return fmt.Errorf("%d components of %d weights do not fit %d means and %d numbers of blocks: "+
			"%w", n, d, len(s.Shift), len(s.L), ErrShape)
	}
	if err := checkProbs(s.Prob); err != nil {
		return err
	}
	for _, x := range [][]float64{s.L, s.Shift, s.Mean, s.A, s.B, s.D, s.Lo, s.Hi} {
		if j, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("number %d of the components is %v: %w", j, x[j], ErrNotFinite)
		}
	}
	return nil
}

// load sets the mixture of p, whose prior, mean, covariance and groups must be loaded.
func (s *savedGrid) load(p *GLMPosterior) error {
	if s == nil {
		return nil
	}
	q, ok := p.cov.(*gauss.Arrow)
	if !ok {
		return fmt.Errorf("components without groups: %w", ErrShape)
	}
	if err := s.check(p); err != nil {
		return err
	}
	shape := saveArrow(q)
	n, l := len(s.Prob), []float64(s.L)
	a, b, d := chunks(s.A, n), chunks(s.B, n), chunks(s.D, n)
	of := make([]gauss.Cov, n)
	for k := range of {
		prior := p.prior.WithBlocks()
		for _, x := range p.prior.Blocks() {
			x.L, l = slices.Clone(l[:len(x.L)]), l[len(x.L):]
			prior.SetBlock(x)
		}
		c := savedArrow{Pat: shape.Pat, Len: shape.Len}
		for _, x := range []struct {
			to   *save.List[float64]
			from [][]float64
		}{{&c.A, a}, {&c.B, b}, {&c.D, d}} {
			if x.from != nil {
				*x.to = x.from[k]
			}
		}
		var err error
		if of[k], err = c.load(&prior); err != nil {
			return fmt.Errorf("component %d: %w", k, err)
		}
	}
	p.loadIntervals(s.Lo, s.Hi)
	p.mixture = &weightMixture{Mixture: &gauss.Mixture{Cov: p.cov, Prob: s.Prob, Of: of,
		Shift: chunks(s.Shift, n)}, mean: s.Mean}
	p.mixture.setMeans(p.mean)
	return nil
}

// saveIntervals returns the intervals of the standard deviations and correlations of all groups, one
// group after the other. Unknown ones are zeros.
func (p *GLMPosterior) saveIntervals() (all, most []float64) {
	for i := range p.groups {
		q := p.groups[i].effects()
		lo := make([]float64, q+q*q)
		hi := lo
		if r := &p.groups[i]; r.spread != nil && r.spread.Lo != nil {
			lo, hi = r.spread.Lo, r.spread.Hi
		}
		all, most = append(all, lo...), append(most, hi...)
	}
	return all, most
}

// loadIntervals sets the intervals that saveIntervals returned.
func (p *GLMPosterior) loadIntervals(lo, hi []float64) {
	at := 0
	for i := range p.groups {
		r := &p.groups[i]
		end := at + r.effects() + r.effects()*r.effects()
		if r.spread != nil {
			r.spread.Lo, r.spread.Hi = lo[at:end:end], hi[at:end:end]
		}
		at = end
	}
}
