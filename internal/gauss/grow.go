package gauss

import (
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// This file adds levels without rows to a grouping factor of a finished posterior. The effects of such
// a level have their prior, and are independent of all other weights, so nothing else changes. An
// update with rows of new levels starts from such a posterior.

// A Growth inserts Added weights before weight At.
type Growth struct{ At, Added int }

// Weight returns the new index of weight j.
func (g Growth) Weight(j int) int {
	if j >= g.At {
		j += g.Added
	}
	return j
}

// Vector returns a copy of x with zeros for the new weights.
func (g Growth) Vector(x []float64) []float64 {
	if x == nil {
		return nil
	}
	return slices.Insert(slices.Clone(x), g.At, make([]float64, g.Added)...)
}

// Grown returns a copy of p with more levels at the end of block k.
func (p *Prior) Grown(k, levels int) (Prior, Growth) {
	b := p.blocks[k].Block
	g := Growth{b.End(), levels * b.Q}
	grown := Prior{Mean: g.Vector(p.Mean), Prec: g.Vector(p.Prec)}
	for i, b := range p.Blocks() {
		if b.First = g.Weight(b.First); i == k {
			b.First, b.Levels = p.blocks[k].First, b.Levels+levels
		}
		grown.SetBlock(b)
	}
	return grown, g
}

// Grown returns the covariance c with the new weights of g, whose prior is prior. An Arrow becomes
// dense if another factor is now the largest, or if c is dense already. The error wraps
// sentinel.ErrMemory or sentinel.ErrNotPosDef if there is no dense form.
func Grown(c Cov, g Growth, prior *Prior) (Cov, error) {
	if a, ok := c.(*Arrow); ok {
		if grown := a.grown(g, prior); grown != nil {
			return grown, nil
		}
	}
	old, err := c.State(nil)
	if err != nil {
		return nil, err
	}
	s, err := prior.StateUntil(nil)
	if err != nil {
		return nil, err
	}
	n, d := len(old.Mean), len(s.Mean)
	for i := range n {
		for j := range i + 1 {
			s.P[g.Weight(i)*d+g.Weight(j)] = old.P[i*n+j]
		}
	}
	clear(s.Mean)
	if !s.Factor() {
		return nil, fmt.Errorf("pgsvi: precision with new levels: %w", sentinel.ErrNotPosDef)
	}
	return &Full{S: s}, nil
}

// grown returns c with the new weights of g, or nil if the factors change their order.
func (c *Arrow) grown(g Growth, prior *Prior) *Arrow {
	shape := NewArrowShape(prior)
	for k, b := range c.Blocks {
		if shape.Blocks[k].First != g.Weight(b.First) {
			return nil
		}
	}
	to := make([]int, len(c.Border)) // the new places in the border
	for i, j := range c.Border {
		to[i] = slices.Index(shape.Border, g.Weight(j))
	}
	f, from := &shape.Blocks[0], &c.Blocks[0]
	shape.Pat = make([][]int32, f.Levels)
	for l, pat := range c.Pat {
		for _, j := range pat {
			shape.Pat[l] = append(shape.Pat[l], int32(to[j]))
		}
	}
	shape.SetPtr()
	m, n := len(c.Border), len(shape.Border)
	grown := &Arrow{ArrowShape: shape, L: CloneLists(c.L)}
	grown.Sums = Sums{A: make([]float64, n*n), B: make([]float64, shape.Ptr[f.Levels]),
		D: make([]float64, f.Levels*f.Q*f.Q)}
	for i := range m {
		for j := range i + 1 {
			grown.Sums.A[to[i]*n+to[j]] = c.Sums.A[i*m+j]
		}
	}
	copy(grown.Sums.B, c.Sums.B[:c.Ptr[from.Levels]]) // new levels come last
	copy(grown.Sums.D, c.Sums.D)
	if !grown.Factor(nil) {
		return nil
	}
	return grown
}
