package main

import (
	"slices"

	"github.com/pgsvi/pgsvi/examples/internal/draw"
	vg "gonum.org/v1/plot/vg/draw"
)

// savePlot draws both panels.
func savePlot(file string, c *counts, r *robust) error {
	left := draw.New("Counts: Poisson, log rate a Gaussian process", "year", "accidents a year")
	left.Range(-0.3, 1.05*slices.Max(c.countHi))
	// Areas are drawn first and lines on top of them.
	left.Band("rate, 95 %", c.grid, c.lo, c.hi, draw.Pale)
	left.Curve("count, 95 %", c.grid, c.countHi, edge)
	left.Curve("", c.grid, c.countLo, edge)
	left.Points("count", c.x, c.y, dots)
	left.Curve("true rate", c.grid, c.truth, truth)
	left.Curve("mean", c.grid, c.mean, mean)

	right := draw.New("Outliers: Student-t against Gaussian noise", "x", "y")
	right.Range(-4, 8)
	right.LegendLeft()
	t, g := r.studentT, r.gaussian
	lo, hi := make([]float64, len(t.mean)), make([]float64, len(t.mean))
	for i, m := range t.mean {
		lo[i], hi[i] = m-1.96*t.sd[i], m+1.96*t.sd[i]
	}
	right.Band("Student t, 95 %", r.grid, lo, hi, draw.Pale)
	right.Points("measurement", r.x, r.y, dots)
	right.Curve("truth", r.grid, r.truth, truth)
	right.Curve("Gaussian, mean", r.grid, g.mean, draw.Style{Color: draw.Orange, Dashes: draw.Dashed, Width: 1.6})
	right.Curve("Student t, mean", r.grid, t.mean, mean)
	return draw.Save(file, 26, 11, left, right)
}

var (
	mean  = draw.Style{Color: draw.Blue, Width: 1.8}
	truth = draw.Style{Color: draw.Black, Dashes: draw.Dotted}
	edge  = draw.Style{Color: draw.Grey, Width: 1}
	dots  = draw.Style{Color: draw.Black, Marker: vg.CircleGlyph{}}
)
