package site

import (
	"errors"
	"math"
)

// This file chooses the rule of an integral over covariances: a grid (sigma_grid.go), a lattice
// (sigma_plane.go) or a design (sigma_design.go).

// integrateSigma returns the posterior over the covariances of the given factors of m, which have the
// given number of parameters.
func integrateSigma(m sigmaModel, factors []int, params int) (*SigmaGrid, error) {
	if params > 1 {
		return integrateDesign(m, factors)
	}
	run := newGridRun(m)
	g := &run
	g.factor = factors[0]
	tau := math.Abs(m.present()[g.factor][0])
	var err error
	if g.scale, err = g.spread(tau); err != nil || !(g.scale > 0) || math.IsInf(g.scale, 0) {
		return nil, errors.Join(err, m.halt().Err())
	}
	g.step = gridStep * g.scale / math.Hypot(tau, g.scale)
	mode := int(math.Round(math.Asinh(tau/g.scale) / g.step))
	if err := g.add(mode, m.start()); err != nil {
		return nil, err
	}
	g.lo, g.hi = mode, mode
	err = g.extend()
	for range gridHalves {
		if err != nil || g.covering() >= gridLeast {
			break
		}
		err = g.halve()
	}
	if err != nil || math.IsInf(g.best, -1) {
		return nil, err
	}
	return g.grid(), m.halt().Err()
}
