package main

import "github.com/pgsvi/pgsvi/examples/internal/draw"

// savePlot draws the excess of −ELBO after each step.
func savePlot(file string, paths []path) error {
	p := draw.New("One optimum, a path for each divergence", "proximal steps of size 1", "−ELBO above its minimum (nats)")
	p.LogY()
	p.LegendLeft()
	p.Legend.Top, p.Legend.YOffs = false, -p.Legend.YOffs
	p.X.Min, p.X.Max = 0, steps
	for i, path := range paths {
		at := make([]float64, len(path.excess))
		for k := range at {
			at[k] = float64(k + 1)
		}
		p.Curve(path.name, at, path.excess, draw.Styles[i]) // rounding may bring the excess below 0
	}
	return draw.Save(file, 15, 11, p)
}
