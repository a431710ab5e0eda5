package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/examples/internal/draw"
	vg "gonum.org/v1/plot/vg/draw"
)

// A bin is the rows whose predicted probability is in an interval.
type bin struct {
	lo, hi      float64
	rows, ones  float64 // all of them, and those of label +1
	predictions float64 // the sum
}

// binned sorts predictions into n bins of the same width.
func binned(n int, prob, y []float64) []bin {
	bins := make([]bin, n)
	k := float64(n)
	for b := range bins {
		bins[b].lo, bins[b].hi = float64(b)/k, float64(b+1)/k
	}
	for i, p := range prob {
		b := &bins[min(int(k*p), n-1)]
		b.rows++
		b.predictions += p
		if y[i] > 0 {
			b.ones++
		}
	}
	return bins
}

// interval returns where the probability of +1 in the bin lies with 95%
// confidence (Wilson, 1927).
func (b bin) interval() (lo, hi float64) {
	const z = 1.96
	f, n := b.ones/b.rows, b.rows
	centre := (f + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(f*(1-f)/n+z*z/(4*n*n))
	return centre - half, centre + half
}

// savePlot draws the observed frequency of +1 against its predicted probability,
// and below it how often which probability was predicted.
func savePlot(file, title string, prob, y []float64) error {
	n := 10
	if len(y) < 200 {
		n = 5
	}
	top := draw.New(fmt.Sprintf("%s: calibration on %d test rows", title, len(y)), "", "observed frequency of +1")
	top.X.Min, top.X.Max = 0, 1
	top.Range(0, 1)
	top.LegendLeft()
	var at, seen, lo, hi []float64
	for _, b := range binned(n, prob, y) {
		if b.rows > 0 {
			l, h := b.interval()
			at, seen = append(at, b.predictions/b.rows), append(seen, b.ones/b.rows)
			lo, hi = append(lo, l), append(hi, h)
		}
	}
	ideal := []float64{0, 1}
	top.Curve("perfect calibration", ideal, ideal, draw.Style{Color: draw.Grey, Dashes: draw.Dashed, Width: 1})
	top.Intervals(fmt.Sprintf("%d bins, 95 %% intervals", n), at, seen, lo, hi, draw.Style{Color: draw.Blue, Marker: vg.CircleGlyph{}})

	bottom := draw.New("", "predicted probability of +1", "test rows")
	bottom.X.Min, bottom.X.Max = 0, 1
	bottom.LegendLeft()
	bottom.Legend.XOffs *= 9
	var mid, all, ones []float64
	bins := binned(20, prob, y)
	for _, b := range bins {
		mid, all, ones = append(mid, (b.lo+b.hi)/2), append(all, b.rows), append(ones, b.ones)
	}
	width := 0.92 / float64(len(bins))
	bottom.Bars("label −1", mid, all, 0, width, draw.Pale)
	bottom.Bars("label +1", mid, ones, 0, width, draw.Blue)
	bottom.Range(0, 1.06*slices.Max(all))
	bottom.Y.Tick.Marker = draw.Counts
	return draw.SaveAbove(file, 13, 16, 5, top, bottom)
}
