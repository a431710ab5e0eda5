package main

import (
	"fmt"
	"image/color"
	"os"
	"slices"

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

// Colours that differ in lightness too, and dashes, for reading in grey.
var (
	black  = color.Gray{Y: 0x20}
	grey   = color.Gray{Y: 0x80}
	blue   = color.RGBA{R: 0x00, G: 0x4a, B: 0x8f, A: 0xff}
	pale   = color.RGBA{R: 0xb8, G: 0xd3, B: 0xee, A: 0xff}
	orange = color.RGBA{R: 0xd0, G: 0x60, B: 0x00, A: 0xff}

	solid  []vg.Length
	dashed = []vg.Length{vg.Points(6), vg.Points(3)}
	dotted = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
)

// savePlot draws both panels.
func savePlot(file string, c *counts, r *robust) error {
	left := newPlot("Counts: Poisson, log rate a Gaussian process", "year", "accidents a year")
	left.Y.Min = -0.3
	// Draw the areas first and the lines on top of them.
	var a artist
	a.band(left, "rate, 95 %", c.grid, c.lo, c.hi)
	a.line(left, "count, 95 %", c.grid, c.countHi, grey, 1, solid)
	a.line(left, "", c.grid, c.countLo, grey, 1, solid)
	a.points(left, "count", c.x, c.y)
	a.line(left, "true rate", c.grid, c.truth, black, 1.2, dotted)
	a.line(left, "mean", c.grid, c.mean, blue, 1.8, solid)

	right := newPlot("Outliers: Student-t against Gaussian noise", "x", "y")
	right.Y.Min, right.Y.Max = -4, 8
	right.Legend.Left, right.Legend.XOffs = true, vg.Points(8)
	t, g := r.studentT, r.gaussian
	lo, hi := make([]float64, len(t.mean)), make([]float64, len(t.mean))
	for i, m := range t.mean {
		lo[i], hi[i] = m-1.96*t.sd[i], m+1.96*t.sd[i]
	}
	a.band(right, "Student t, 95 %", r.grid, lo, hi)
	a.points(right, "measurement", r.x, r.y)
	a.line(right, "truth", r.grid, r.truth, black, 1.2, dotted)
	a.line(right, "Gaussian, mean", r.grid, g.mean, orange, 1.6, dashed)
	a.line(right, "Student t, mean", r.grid, t.mean, blue, 1.8, solid)
	if a.err != nil {
		return a.err
	}
	return savePNG(file, 26*vg.Centimeter, 11*vg.Centimeter, left, right)
}

// artist adds to plots and keeps the first error, so that it is checked once.
type artist struct{ err error }

func (a *artist) fail(err error) bool {
	if a.err == nil {
		a.err = err
	}
	return err != nil
}

func (a *artist) line(p *plot.Plot, name string, x, y []float64, c color.Color, width float64, dashes []vg.Length) {
	l, err := plotter.NewLine(xys(x, y))
	if a.fail(err) {
		return
	}
	l.Color, l.Width, l.Dashes = c, vg.Points(width), dashes
	p.Add(l)
	if name != "" {
		p.Legend.Add(name, l)
	}
}

func (a *artist) points(p *plot.Plot, name string, x, y []float64) {
	s, err := plotter.NewScatter(xys(x, y))
	if a.fail(err) {
		return
	}
	s.Color, s.Radius, s.Shape = black, vg.Points(1.8), draw.CircleGlyph{}
	p.Add(s)
	p.Legend.Add(name, s)
}

// band fills the area between two curves.
func (a *artist) band(p *plot.Plot, name string, x, lo, hi []float64) {
	back := xys(x, hi)
	slices.Reverse(back)
	area, err := plotter.NewPolygon(append(xys(x, lo), back...))
	if a.fail(err) {
		return
	}
	area.Color, area.Width = pale, 0
	p.Add(area)
	p.Legend.Add(name, area)
}

func xys(x, y []float64) plotter.XYs {
	pts := make(plotter.XYs, len(x))
	for i := range pts {
		pts[i] = plotter.XY{X: x[i], Y: y[i]}
	}
	return pts
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(28)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(4), -vg.Points(4)
	return p
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
