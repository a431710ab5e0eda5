package main

import (
	"fmt"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
}

// Colours that differ in lightness too, for reading in grey.
var (
	dark = color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}
	pale = color.RGBA{R: 0xa8, G: 0xc8, B: 0xe8, A: 0xff}
	grey = color.Gray{Y: 0x90}
	grid = color.Gray{Y: 0xe4}
)

// A bin is the rows whose predicted probability is in an interval.
type bin struct {
	lo, hi      float64
	rows, ones  float64 // all of them, and those of label +1
	predictions float64 // the sum
}

// binned sorts predictions into bins: ten, or five if there are few rows.
func binned(prob, y []float64) []bin {
	bins := make([]bin, 10)
	if len(y) < 200 {
		bins = bins[:5]
	}
	k := float64(len(bins))
	for b := range bins {
		bins[b].lo, bins[b].hi = float64(b)/k, float64(b+1)/k
	}
	for i, p := range prob {
		b := &bins[min(int(k*p), len(bins)-1)]
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
	bins := binned(prob, y)

	top := newPlot()
	top.Title.Text = fmt.Sprintf("%s: calibration on %d test rows", title, len(y))
	top.Title.Padding = vg.Points(8)
	top.Y.Label.Text = "observed frequency of +1"
	top.Y.Min, top.Y.Max = 0, 1
	top.Y.Tick.Marker = fifths
	ideal, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}})
	if err != nil {
		return err
	}
	ideal.Color, ideal.Width, ideal.Dashes = grey, vg.Points(1), []vg.Length{vg.Points(5), vg.Points(3)}
	var seen observed
	for _, b := range bins {
		if b.rows > 0 {
			lo, hi := b.interval()
			f := b.ones / b.rows
			seen.XYs = append(seen.XYs, plotter.XY{X: b.predictions / b.rows, Y: f})
			seen.YErrors = append(seen.YErrors, struct{ Low, High float64 }{f - lo, hi - f})
		}
	}
	bars, err := plotter.NewYErrorBars(seen)
	if err != nil {
		return err
	}
	bars.Color, bars.Width, bars.CapWidth = dark, vg.Points(1.2), vg.Points(7)
	points, err := plotter.NewScatter(seen)
	if err != nil {
		return err
	}
	points.Color, points.Radius, points.Shape = dark, vg.Points(3.5), draw.CircleGlyph{}
	top.Add(ideal, bars, points)
	top.Legend.Left, top.Legend.Top = true, true
	top.Legend.XOffs, top.Legend.YOffs = vg.Points(10), -vg.Points(8)
	top.Legend.ThumbnailWidth, top.Legend.Padding = vg.Points(28), vg.Points(3)
	top.Legend.Add(fmt.Sprintf("%d bins, 95 %% intervals", len(bins)), points)
	top.Legend.Add("perfect calibration", ideal)

	bottom := newPlot()
	bottom.X.Label.Text = "predicted probability of +1"
	bottom.Y.Label.Text = "test rows"
	all, ones := histogram(prob, nil), histogram(prob, y)
	all.FillColor, ones.FillColor = pale, dark
	bottom.Add(all, ones)
	bottom.Y.Min, bottom.Y.Max = 0, 1.06*tallest(all)
	bottom.Y.Tick.Marker = plot.TickerFunc(whole)
	bottom.Legend.Top, bottom.Legend.Left = true, true
	bottom.Legend.XOffs, bottom.Legend.YOffs = vg.Points(70), -vg.Points(4)
	bottom.Legend.Padding = vg.Points(3)
	bottom.Legend.Add("label −1", all)
	bottom.Legend.Add("label +1", ones)

	return savePNG(file, top, bottom)
}

// observed is frequencies with their intervals.
type observed struct {
	plotter.XYs
	plotter.YErrors
}

// histogram counts the predictions in twentieths, all of them or, with y, those
// for labels of +1.
func histogram(prob, y []float64) *plotter.Histogram {
	const n = 20
	h := &plotter.Histogram{Width: 1.0 / n, LineStyle: draw.LineStyle{Color: color.White, Width: vg.Points(0.6)}}
	for b := range n {
		h.Bins = append(h.Bins, plotter.HistogramBin{Min: float64(b) / n, Max: float64(b+1) / n})
	}
	for i, p := range prob {
		if y == nil || y[i] > 0 {
			h.Bins[min(int(n*p), n-1)].Weight++
		}
	}
	return h
}

func tallest(h *plotter.Histogram) (most float64) {
	for _, b := range h.Bins {
		most = math.Max(most, b.Weight)
	}
	return most
}

// newPlot returns an empty plot over probabilities.
func newPlot() *plot.Plot {
	p := plot.New()
	p.X.Min, p.X.Max = 0, 1
	p.X.Tick.Marker = fifths
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = grid, grid
	p.Add(g)
	return p
}

var fifths = plot.ConstantTicks{
	{Value: 0, Label: "0"}, {Value: 0.2, Label: "0.2"}, {Value: 0.4, Label: "0.4"},
	{Value: 0.6, Label: "0.6"}, {Value: 0.8, Label: "0.8"}, {Value: 1, Label: "1"},
}

// whole marks about three counts.
func whole(lo, hi float64) (ticks []plot.Tick) {
	step := math.Pow10(int(math.Log10(math.Max(1, hi/3))))
	for i := 0; hi/step > 4; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	step = math.Max(1, step)
	for v := 0.0; v <= hi; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
	}
	return ticks
}

// savePNG draws one plot above the other, with their axes aligned.
func savePNG(file string, top, bottom *plot.Plot) error {
	const width, height, low = 13 * vg.Centimeter, 16 * vg.Centimeter, 5 * vg.Centimeter
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))
	all := draw.Crop(draw.New(img), vg.Points(10), -vg.Points(14), vg.Points(10), -vg.Points(10))
	high := draw.Crop(all, 0, 0, low, 0)
	// Align gives all plots of a grid the same margins.
	plots := [][]*plot.Plot{{top}, {bottom}}
	tiles := plot.Align(plots, draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(6)}, all)
	for i, c := range []draw.Canvas{high, draw.Crop(all, 0, 0, 0, low-all.Size().Y)} {
		c.Min.X, c.Max.X = tiles[i][0].Min.X, tiles[i][0].Max.X
		plots[i][0].Draw(c)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", file, err)
	}
	return f.Close()
}
