package main

import (
	"math"

	"github.com/pgsvi/pgsvi/examples/internal/draw"
	"gonum.org/v1/plot/vg"
	shape "gonum.org/v1/plot/vg/draw"
)

// floor is the smallest excess that is drawn, in nats.
const floor = 1e-7

// styles are eleven that can be told apart.
var styles = []draw.Style{
	{Color: draw.Black, Dashes: draw.Dotted, Marker: shape.PlusGlyph{}},
	{Color: draw.Green, Dashes: draw.Dashed, Marker: shape.TriangleGlyph{}},
	{Color: draw.Purple, Dashes: draw.DashDot, Marker: shape.CrossGlyph{}},
	{Color: draw.Grey, Marker: shape.BoxGlyph{}},
	{Color: draw.Grey, Dashes: draw.Dashed, Marker: shape.PyramidGlyph{}},
	{Color: draw.Purple, Marker: shape.RingGlyph{}},
	{Color: draw.Orange, Dashes: draw.Dashed, Marker: shape.SquareGlyph{}},
	{Color: draw.Blue, Dashes: draw.Dashed, Marker: shape.RingGlyph{}},
	{Color: draw.Orange, Marker: shape.BoxGlyph{}},
	{Color: draw.Green, Dashes: draw.Dotted, Marker: shape.CircleGlyph{}},
	{Color: draw.Blue, Marker: shape.CircleGlyph{}},
}

// savePlot draws the excess of −ELBO over the optimum against passes: methods that see all rows
// exactly in one panel, the others in one beside it.
func savePlot(file string, t *table) error {
	panels := []*draw.Panel{
		draw.New("All rows, exact gradients", "passes over the data", "−ELBO above its minimum (nats)"),
		draw.New("Mini-batches of 5 rows, or draws", "passes over the data", "−ELBO above its minimum (nats)"),
	}
	used := []int{0, 0}
	for _, p := range panels {
		p.LogX()
		p.LogY()
		p.Legend.TextStyle.Font.Size = vg.Points(9)
	}
	last := 1.0
	for _, m := range t.methods {
		i := 0
		if m.noisy {
			i = 1
		}
		x, y := thinned(m.best, t.optimum)
		for _, v := range x {
			last = math.Max(last, v)
		}
		panels[i].Curve(m.name, x, y, styles[used[i]])
		used[i]++
	}
	for _, p := range panels {
		p.Range(floor, 100*(t.start-t.optimum))
		p.RangeX(0.5, 10*last) // room for the legend
	}
	return draw.Save(file, 30, 13, panels...)
}

// thinned returns the points of a run that are 8% or more apart in passes, and its end, at least at
// the floor.
func thinned(r *run, optimum float64) (x, y []float64) {
	for i, p := range r.passes {
		if i == 0 || len(x) > 0 && p < 1.08*x[len(x)-1] && i < len(r.passes)-1 || math.IsInf(r.values[i], 0) {
			continue
		}
		e := r.values[i] - optimum
		x, y = append(x, p), append(y, math.Max(e, floor))
		if e < floor {
			break
		}
	}
	return x, y
}
