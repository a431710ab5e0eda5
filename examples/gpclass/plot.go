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

// styles tell the methods apart by colour, dashes and markers, so that the
// picture can be read in grey too.
var styles = []struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
}{
	{color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	{color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(3)}, draw.SquareGlyph{}},
	{color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}, []vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.TriangleGlyph{}},
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
}

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

	bound := newPlot(title + ": distance from the optimum")
	bound.Y.Label.Text = "−ELBO above the least reached (nats)"
	bound.Y.Tick.Marker = plot.TickerFunc(decades)
	loss := newPlot(title + ": predictions on the test rows")
	loss.Y.Label.Text = "log loss (bits per row)"

	for i, f := range fits {
		var excess, bits plotter.XYs
		for _, p := range f.curve {
			if e := p.negELBO - best; e >= floor {
				excess = append(excess, plotter.XY{X: p.passes, Y: math.Log10(e)})
			}
			if p.passes > 0 && !math.IsNaN(p.bits) { // the prior costs one bit a row
				bits = append(bits, plotter.XY{X: p.passes, Y: p.bits})
			}
		}
		if err := addCurve(bound, i, f.name, excess); err != nil {
			return err
		}
		if err := addCurve(loss, i, f.name, bits); err != nil {
			return err
		}
	}
	if math.IsInf(loss.X.Max, 0) { // no test rows, nothing was added
		return savePNG(file, 12*vg.Centimeter, 10*vg.Centimeter, bound)
	}
	bound.X.Max = loss.X.Max
	return savePNG(file, 24*vg.Centimeter, 10*vg.Centimeter, bound, loss)
}

// newPlot returns an empty plot against passes.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "passes over the training data"
	p.X.Min = 0
	p.X.Tick.Marker = plot.TickerFunc(roundNumbers)
	p.Y.Tick.Marker = plot.TickerFunc(roundNumbers)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(36)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(8), -vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	p.Add(grid)
	return p
}

// addCurve adds a line with markers in style i.
func addCurve(p *plot.Plot, i int, name string, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(xys)
	if err != nil {
		return fmt.Errorf("curve of %s: %w", name, err)
	}
	style := styles[i%len(styles)]
	line.Color, line.Width, line.Dashes = style.color, vg.Points(1.3), style.dashes
	marks.Color, marks.Radius, marks.Shape = style.color, vg.Points(2.5), style.marker
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}

// savePNG draws the plots side by side into a file.
func savePNG(file string, width, height vg.Length, plots ...*plot.Plot) error {
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))
	tiles := draw.Tiles{
		Rows: 1, Cols: len(plots), PadX: vg.Points(24),
		PadTop: vg.Points(10), PadBottom: vg.Points(10), PadLeft: vg.Points(10), PadRight: vg.Points(14),
	}
	canvas := draw.New(img)
	for i, p := range plots {
		p.Draw(tiles.At(canvas, i, 0))
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

// decades marks the powers of ten on an axis of logarithms, and labels every
// second one where there are many.
func decades(lo, hi float64) []plot.Tick {
	every := 1
	if hi-lo > 7 {
		every = 2
	}
	var ticks []plot.Tick
	for e := int(math.Ceil(lo)); e <= int(math.Floor(hi)); e++ {
		t := plot.Tick{Value: float64(e)}
		if e%every == 0 {
			t.Label = fmt.Sprintf("1e%d", e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// roundNumbers marks about six multiples of 1, 2 or 5 times a power of ten.
func roundNumbers(lo, hi float64) []plot.Tick {
	step := math.Pow10(int(math.Floor(math.Log10((hi - lo) / 7))))
	for i := 0; (hi-lo)/step > 7; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	var ticks []plot.Tick
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: fmt.Sprintf("%.4g", i*step)})
	}
	return ticks
}
