package main

import (
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// drawGrowth draws a panel for each part, with the seconds per pass and the arithmetic of a pass,
// drawn through the largest size.
func drawGrowth(file string, rows []row) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	const width, height, dpi = 24 * vg.Centimeter, 17 * vg.Centimeter, 120
	var panels []*plot.Plot
	for _, p := range parts {
		of := ofPart(rows, p.name)
		if len(of) < 2 {
			continue // not selected by -only
		}
		panel, err := p.draw(of)
		if err != nil {
			return err
		}
		panels = append(panels, panel)
	}
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	canvas := draw.New(img)
	cols := min(2, len(panels))
	tiles := draw.Tiles{Rows: (len(panels) + 1) / 2, Cols: cols, PadX: 6 * vg.Millimeter,
		PadY: 6 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter,
		PadLeft: 3 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	if len(panels) > 0 {
		var rows [][]*plot.Plot
		for row := range slices.Chunk(append(panels, make([]*plot.Plot, len(panels)%cols)...),
			cols) {
			rows = append(rows, row)
		}
		for i, of := range plot.Align(rows, tiles, canvas) {
			for j, c := range of {
				if rows[i][j] != nil {
					rows[i][j].Draw(c)
				}
			}
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// draw returns the panel of a part.
func (p *part) draw(of []row) (*plot.Plot, error) {
	panel := plot.New()
	panel.Title.Text = p.title
	panel.X.Label.Text, panel.Y.Label.Text = p.axis, "CPU seconds per pass"
	panel.X.Scale, panel.Y.Scale = plot.LogScale{}, plot.LogScale{}
	panel.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	panel.Legend.Top, panel.Legend.Left = true, true
	panel.Legend.TextStyle.Font.Size, panel.Legend.ThumbnailWidth, panel.Legend.Padding = vg.Points(
		9), vg.Points(16), vg.Points(2)
	var measured, work plotter.XYs
	var sizes []plot.Tick
	last := of[len(of)-1]
	unit := last.perPass() / p.work(float64(last.size))
	for _, r := range of {
		x := float64(r.size)
		measured = append(measured, plotter.XY{X: x, Y: r.perPass()})
		work = append(work, plotter.XY{X: x, Y: unit * p.work(x)})
		sizes = append(sizes, plot.Tick{Value: x, Label: strconv.Itoa(r.size)})
	}
	panel.X.Tick.Marker, panel.X.Tick.Label.Font.Size = plot.ConstantTicks(sizes), vg.Points(8)
	line, points, err := plotter.NewLinePoints(measured)
	if err != nil {
		return nil, err
	}
	line.Color, points.Color = color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff},
		color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}
	line.Width, points.Shape = vg.Points(1.5), draw.CircleGlyph{}
	ideal, err := plotter.NewLine(work)
	if err != nil {
		return nil, err
	}
	ideal.Color, ideal.Width, ideal.Dashes = color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff},
		vg.Points(1.2), []vg.Length{vg.Points(6), vg.Points(3)}
	panel.Add(ideal, line, points)
	if least := math.Log10(panel.Y.Min); math.Floor(math.Log10(panel.Y.Max)) < math.Ceil(least)+1 {
		// Only powers of ten have labels, so the axis must contain at least two of them.
		panel.Y.Min = math.Pow(10, math.Floor(least))
	}
	panel.Legend.Add("measured", line, points)
	panel.Legend.Add(p.formula, ideal)
	return panel, nil
}
