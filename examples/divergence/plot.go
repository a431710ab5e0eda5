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

// styles tell the paths apart by colour, dashes and markers, so that the
// picture can be read in grey too.
var styles = []struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
}{
	{color.Gray{Y: 0x20}, nil, draw.CircleGlyph{}},
	{color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(3)}, draw.SquareGlyph{}},
	{color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}, []vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.TriangleGlyph{}},
	{color.RGBA{R: 0x88, G: 0x44, B: 0x99, A: 0xff}, []vg.Length{vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}, draw.PlusGlyph{}},
	{color.RGBA{R: 0x00, G: 0x4a, B: 0xa8, A: 0xff}, nil, draw.RingGlyph{}},
}

// savePlot draws the excess of −ELBO after each step.
func savePlot(file string, paths []path) error {
	p := plot.New()
	p.Title.Text = "One optimum, a path for each divergence"
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "proximal steps of size 1"
	p.Y.Label.Text = "−ELBO above its minimum (nats)"
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	p.X.Min, p.X.Max = 0, steps
	p.Legend.Left = true
	p.Legend.Padding = vg.Points(2)
	p.Legend.ThumbnailWidth = vg.Points(36)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	p.Add(grid)
	for i, path := range paths {
		var xys plotter.XYs
		for k, e := range path.excess {
			if e > 0 { // rounding may bring it below
				xys = append(xys, plotter.XY{X: float64(k + 1), Y: math.Log10(e)})
			}
		}
		line, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			return fmt.Errorf("path of %s: %w", path.name, err)
		}
		style := styles[i%len(styles)]
		line.Color, line.Width, line.Dashes = style.color, vg.Points(1.3), style.dashes
		marks.Color, marks.Radius, marks.Shape = style.color, vg.Points(2.5), style.marker
		p.Add(line, marks)
		p.Legend.Add(path.name, line, marks)
	}
	return savePNG(file, 15*vg.Centimeter, 11*vg.Centimeter, p)
}

// decades marks the powers of ten on an axis of logarithms.
func decades(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Ceil(lo); e <= hi; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: fmt.Sprintf("1e%.0f", e)})
	}
	return ticks
}

// savePNG draws the plot into a file.
func savePNG(file string, width, height vg.Length, p *plot.Plot) error {
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))
	pad := vg.Points(10)
	p.Draw(draw.Crop(draw.New(img), pad, -pad, pad, -pad))
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
