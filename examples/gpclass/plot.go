package main

import (
	"math"

	"github.com/pgsvi/pgsvi/examples/internal/draw"
)

// floor is the smallest excess that is drawn, in nats.
const floor = 1e-9

// savePlot draws the excess of −ELBO over the least that any method reached,
// and the test log loss, against the passes over the data.
func savePlot(file, title string, fits []*fit) error {
	best := math.Inf(1)
	for _, f := range fits {
		for _, p := range f.curve {
			best = math.Min(best, p.negELBO)
		}
	}
	const passes = "passes over the training data"
	bound := draw.New(title+": distance from the optimum", passes, "−ELBO above the least reached (nats)")
	bound.LogY()
	loss := draw.New(title+": predictions on the test rows", passes, "log loss (bits per row)")
	bound.X.Min, loss.X.Min = 0, 0
	for i, f := range fits {
		var at, excess, scored, bits []float64
		for _, p := range f.curve {
			if e := p.negELBO - best; e >= floor {
				at, excess = append(at, p.passes), append(excess, e)
			}
			if p.passes > 0 && !math.IsNaN(p.bits) { // the prior costs one bit a row
				scored, bits = append(scored, p.passes), append(bits, p.bits)
			}
		}
		bound.Curve(f.name, at, excess, draw.Styles[i])
		loss.Curve(f.name, scored, bits, draw.Styles[i])
	}
	if math.IsInf(loss.X.Max, 0) { // no test rows, nothing was added
		return draw.Save(file, 12, 10, bound)
	}
	bound.X.Max = loss.X.Max
	return draw.Save(file, 24, 10, bound, loss)
}
