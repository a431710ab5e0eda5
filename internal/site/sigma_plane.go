package site

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// This file integrates over two standard deviations, such as the standard deviations of two
// crossed factors. Because the sign of a standard deviation does not matter, its density is an
// even function of each coordinate θ_i = asinh(s_i/c_i). A lattice that is aligned with the axes
// therefore needs only points with θ_i ≥ 0, as in sigma_grid.go, and a standard deviation of 0 is
// no special case. A central composite design (sigma_design.go) has points on both sides of such a
// mode, so half of them coincide, and the means that it gave were off by 0.13 standard deviations.

// Constants of the lattice.
const (
	planeStep = 1.2 // step, in standard deviations of θ_i given the other coordinate
	planeDrop = 6   // fall of the log density, in nats, at which no points are added
	planeMost = 80  // points, at most
)

// planeCell holds the numbers of the steps from 0 along both axes.
type planeCell [2]int

// planeRun is a lattice over two standard deviations.
type planeRun struct {
	*designRun
	step  [2]float64
	cells map[planeCell]*gridFit
	first *gridFit // the other fits start at its sites
}

// plane integrates over two standard deviations from the mode theta.
func (d *designRun) plane(theta []float64) (*SigmaGrid, error) {
	r := &planeRun{designRun: d, cells: map[planeCell]*gridFit{}, first: d.by.start()}
	var mode planeCell
	for i, x := range theta {
		r.step[i] = planeStep * d.fallOf(theta, i)
		mode[i] = int(math.Round(math.Abs(x) / r.step[i]))
	}
	if err := r.put(mode); err != nil {
		return nil, err
	}
	r.first = r.cells[mode]
	if err := r.grow(); err != nil || math.IsInf(r.best, -1) {
		return nil, err
	}
	return r.grid(), d.by.halt().Err()
}

// fallOf returns the standard deviation of coordinate i if the other coordinate is fixed. A Gaussian
// falls by ½ over it. The distance is the smaller of both directions.
func (d *designRun) fallOf(theta []float64, i int) float64 {
	z, least := d.surrogate(theta), 4.0
	for _, sign := range []float64{-1, 1} {
		lo, hi := 0.0, least
		for range 20 {
			mid := (lo + hi) / 2
			x := slices.Clone(theta)
			if x[i] += sign * mid; z-d.surrogate(x) < 0.5 {
				lo = mid
			} else {
				hi = mid
			}
		}
		least = min(least, hi)
	}
	return least
}

// put fits the weights at a cell, unless it is known.
func (r *planeRun) put(k planeCell) error {
	if r.cells[k] != nil {
		return nil
	}
	l, jac := r.at([]float64{float64(k[0]) * r.step[0], float64(k[1]) * r.step[1]})
	f, err := r.by.fit(l, jac, r.first)
	if err != nil {
		return err
	}
	if len(r.cells) > 0 {
		f.forget()
	}
	r.cells[k], r.best = f, max(r.best, f.log)
	return nil
}

// order returns the known cells in a fixed order.
func (r *planeRun) order() []planeCell {
	var all []planeCell
	for k := range r.cells {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b planeCell) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	return all
}

// grow adds the neighbors of the most probable cells until the density has fallen everywhere.
func (r *planeRun) grow() error {
	grown := map[planeCell]bool{}
	for len(r.cells) < planeMost {
		var next *planeCell
		for _, k := range r.order() {
			log := r.cells[k].log
			if !grown[k] && log > r.best-planeDrop && (next == nil || log > r.cells[*next].log) {
				next = &k
			}
		}
		if next == nil {
			return nil
		}
		grown[*next] = true
		for _, move := range []planeCell{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
			k := planeCell{next[0] + move[0], next[1] + move[1]}
			if k[0] < 0 || k[1] < 0 {
				continue
			}
			if err := r.put(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// grid returns the result. A cell on an axis has half the weight of its mirror images together, or a
// quarter at 0.
func (r *planeRun) grid() *SigmaGrid {
	g, total := &SigmaGrid{Block: -1}, 0.0
	var along [2]map[int]float64 // marginal densities
	for i := range along {
		along[i] = map[int]float64{}
	}
	for _, k := range r.order() {
		f := r.cells[k]
		density := math.Exp(f.log - r.best)
		f.Prob = density
		for i := range k {
			half := 1.0
			if k[1-i] == 0 {
				half = 0.5
			}
			along[i][k[i]] += half * density
			if k[i] == 0 {
				f.Prob /= 2
			}
		}
		if total += f.Prob; f.Prob > 0 {
			g.Points = append(g.Points, f.SigmaPoint)
		}
	}
	for i := range g.Points {
		g.Points[i].Prob /= total
	}
	g.LogMass = r.best + math.Log(total*r.step[0]*r.step[1]*r.params[0].scale*r.params[1].scale)
	for i, p := range r.params {
		one := &SigmaGrid{scale: p.scale, step: r.step[i], first: math.MaxInt}
		most := 0
		for k := range along[i] {
			one.first, most = min(one.first, k), max(most, k)
		}
		for k := one.first; k <= most; k++ {
			one.log = append(one.log, math.Log(along[i][k]))
		}
		floats.AddConst(-floats.Max(one.log), one.log)
		_, number := r.by.block(p.factor)
		g.Spans = append(g.Spans, SigmaSpan{number, p.effect, -1, one.Quantiles})
	}
	return g
}
