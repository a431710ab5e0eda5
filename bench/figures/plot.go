package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/bench/paper"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A style tells a method apart by colour, dashes and marker, so that the picture
// can be read in grey too.
type style struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
}

var styles = map[string]style{
	"PG-SVI":   {color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}, nil, draw.SquareGlyph{}},
	"block":    {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"batch":    {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(3)}, draw.RingGlyph{}},
	"SGD":      {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff}, []vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.PlusGlyph{}},
	"AdaGrad":  {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}, []vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},
	"RMSprop":  {color.RGBA{R: 0x9a, G: 0x4f, B: 0xa8, A: 0xff}, []vg.Length{vg.Points(8), vg.Points(2)}, draw.CrossGlyph{}},
	"Adadelta": {color.RGBA{R: 0x96, G: 0x82, B: 0x00, A: 0xff}, []vg.Length{vg.Points(1), vg.Points(1.5)}, draw.BoxGlyph{}},
	"Adam":     {color.RGBA{R: 0xc0, G: 0x20, B: 0x50, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(2), vg.Points(1), vg.Points(2)}, draw.PyramidGlyph{}},
	"GD":       {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff}, []vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.BoxGlyph{}},
	"PG":       {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"PG-MC":    {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}, []vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},

	"PG-SVI-MF":      {color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(3)}, draw.BoxGlyph{}},
	"PG-SVI (paper)": {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff}, []vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.PlusGlyph{}},
	"delta":          {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}, []vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},
	"Laplace":        {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"mean field":     {color.RGBA{R: 0x9a, G: 0x4f, B: 0xa8, A: 0xff}, []vg.Length{vg.Points(8), vg.Points(2)}, draw.CrossGlyph{}},
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
}

// drawFigure1 draws examples against step size, for both bands and for the stop at a
// small change. What has not converged is marked above, in a row for each method.
func drawFigure1(file string, problem *problem, sweeps []*sweep) error {
	legend := newLegend()
	n := float64(len(problem.Y))
	const stop = len(within) // the panel after the bands
	titles := []string{"to within 1% of the optimum", "to within 0.1% of the optimum", "to a change of 0.1% in a pass"}
	panels := make([]*plot.Plot, len(titles))
	for i, title := range titles {
		p := newPanel("Ionosphere: " + title)
		p.X.Label.Text, p.Y.Label.Text = "step size", "examples processed"
		p.X.Tick.Marker = plot.TickerFunc(decades)
		top := 0.0 // of what converges
		for _, s := range sweeps {
			top = math.Max(top, math.Log10(n*float64(s.passes)))
		}
		p.Y.Min = math.Floor(math.Log10(n))
		ticks := decades(p.Y.Min, top)
		for row, s := range sweeps {
			var curve, lost, exploded, early plotter.XYs
			y := top + 0.25*float64(len(sweeps)-row)
			for j, step := range s.steps {
				if s.runs[j] == nil {
					continue
				}
				x := math.Log10(step)
				var passes float64
				if i == stop {
					var excess float64
					if passes, excess = s.stop(j); !math.IsInf(passes, 1) && excess > within[0]*(problem.start-problem.optimum) {
						early = append(early, plotter.XY{X: x, Y: y})
						continue
					}
				} else {
					passes = s.median(j, i)
				}
				switch {
				case !math.IsInf(passes, 1):
					curve = append(curve, plotter.XY{X: x, Y: math.Log10(passes * n)})
				case s.reason(j) == diverged:
					exploded = append(exploded, plotter.XY{X: x, Y: y})
				default:
					lost = append(lost, plotter.XY{X: x, Y: y})
				}
			}
			st := styles[s.name]
			if err := addCurve(p, legend, s.name, curve, i == 0); err != nil {
				return err
			}
			addMarks(p, lost, st.color, draw.RingGlyph{})
			addMarks(p, exploded, st.color, draw.CrossGlyph{})
			addMarks(p, early, st.color, draw.PlusGlyph{})
			ticks = append(ticks, plot.Tick{Value: y, Label: s.name})
		}
		p.Y.Tick.Marker = plot.ConstantTicks(ticks)
		p.Y.Max = top + 0.25*float64(len(sweeps)+1)
		panels[i] = p
	}
	addKey(legend, "too slow or", draw.RingGlyph{})
	legend.Legend.Add("too noisy")
	addKey(legend, "diverged", draw.CrossGlyph{})
	addKey(legend, "stops outside", draw.PlusGlyph{})
	legend.Legend.Add("of 1%")
	return savePNG(file, [][]*plot.Plot{panels}, legend)
}

// drawFigure2 draws −ELBO above the optimum and test log loss against passes: a
// row for each data set, a pair of panels for each variant of the gradient methods.
func drawFigure2(file string, marks []int, problems []*problem, methods [][]*method) error {
	legend := newLegend()
	var rows [][]*plot.Plot
	for i, p := range problems {
		var row []*plot.Plot
		for _, what := range []string{"−ELBO", "log loss"} {
			var pair []*plot.Plot
			for _, variant := range []string{paper.Published, paper.Corrected} {
				panel := newPanel(fmt.Sprintf("%s, %s; gradient methods %s", p.Name, what, variant))
				panel.X.Label.Text = "passes over the training data"
				panel.X.Tick.Marker = passTicks(marks)
				panel.X.Min, panel.X.Max = 0, math.Log10(float64(marks[len(marks)-1]))
				panel.Y.Label.Text = "test log loss (bits)"
				if what == "−ELBO" {
					panel.Y.Label.Text = "nats above the optimum"
					panel.Y.Tick.Marker = plot.TickerFunc(decades)
				} else {
					panel.Y.Min = 0
				}
				for _, m := range methods[i] {
					if m.variant != variant && m.variant != library && m.name != "PG-SVI" || m.runs == nil {
						continue // the other variant of a gradient method
					}
					var curve plotter.XYs
					for _, pass := range marks {
						s := m.runs.median(pass)
						if math.IsInf(s.loss, 1) {
							break // it has failed
						}
						y := s.bits
						if what == "−ELBO" {
							const least = 1e-4 // nats that are drawn
							y = math.Log10(math.Max(s.loss-p.optimum, least))
						} else {
							y = math.Min(y, 2) // bits that are drawn
						}
						curve = append(curve, plotter.XY{X: math.Log10(float64(pass)), Y: y})
					}
					if err := addCurve(panel, legend, m.name, curve, i == 0 && len(row)+len(pair) == 0); err != nil {
						return err
					}
				}
				pair = append(pair, panel)
			}
			sameRange(pair)
			row = append(row, pair...)
		}
		rows = append(rows, row)
	}
	return savePNG(file, rows, legend)
}

// drawFigure3 draws held-out nats a word against seconds: a panel for each setting,
// so many in a row.
func drawFigure3(file string, cols int, marks []int, settings []*setting) error {
	legend := newLegend()
	var panels []*plot.Plot
	for i, s := range settings {
		p := newPanel(fmt.Sprintf("%s, %d topics", s.name, s.topics))
		p.X.Label.Text, p.Y.Label.Text = "seconds of training", "held-out nats a word"
		p.X.Tick.Marker = plot.TickerFunc(secondTicks)
		for _, e := range s.eSteps {
			var curve plotter.XYs
			for _, pass := range marks {
				if s := e.runs.median(pass); !math.IsInf(s.loss, 1) {
					curve = append(curve, plotter.XY{X: math.Log10(max(s.seconds, 1e-3)), Y: s.loss})
				}
			}
			if err := addCurve(p, legend, e.name, curve, i == 0); err != nil {
				return err
			}
		}
		unigram := plotter.NewFunction(func(float64) float64 { return s.unigram })
		unigram.Color, unigram.Width = color.Gray{Y: 0x60}, vg.Points(0.6)
		p.Add(unigram)
		p.Y.Min, p.Y.Max = widened(p.Y.Min, math.Max(p.Y.Max, s.unigram))
		p.X.Min, p.X.Max = widened(p.X.Min, p.X.Max)
		if i == 0 {
			legend.Legend.Add("frequencies", unigram)
		}
		panels = append(panels, p)
	}
	return savePNG(file, slices.Collect(slices.Chunk(panels, cols)), legend)
}

// sameRange gives panels side by side the same vertical axis.
func sameRange(panels []*plot.Plot) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		lo, hi = math.Min(lo, p.Y.Min), math.Max(hi, p.Y.Max)
	}
	for _, p := range panels {
		p.Y.Min, p.Y.Max = lo, hi
	}
}

// widened returns a range that leaves markers at its ends inside the panel.
func widened(lo, hi float64) (float64, float64) {
	margin := 0.04 * (hi - lo)
	return lo - margin, hi + margin
}

// newPanel returns an empty plot.
func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	p.Add(grid)
	return p
}

// newLegend returns a plot that is only a legend.
func newLegend() *plot.Plot {
	p := plot.New()
	p.HideAxes()
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = vg.Points(10)
	p.Legend.ThumbnailWidth = vg.Points(32)
	p.Legend.Padding = vg.Points(3)
	p.Legend.YOffs = -vg.Points(24)
	return p
}

// addCurve adds a line with markers in the style of a method, and names it in the legend.
func addCurve(p, legend *plot.Plot, name string, xys plotter.XYs, named bool) error {
	if len(xys) == 0 && !named {
		return nil
	}
	entry := xys
	if len(entry) == 0 {
		entry = plotter.XYs{{}}
	}
	line, marks, err := plotter.NewLinePoints(entry)
	if err != nil {
		return fmt.Errorf("curve of %s: %w", name, err)
	}
	style := styles[name]
	line.Color, line.Width, line.Dashes = style.color, vg.Points(1.3), style.dashes
	marks.Color, marks.Radius, marks.Shape = style.color, vg.Points(2.8), style.marker
	if len(xys) > 0 {
		p.Add(line, marks)
	}
	if named {
		legend.Legend.Add(name, line, marks)
	}
	return nil
}

// addMarks adds markers without a line.
func addMarks(p *plot.Plot, xys plotter.XYs, c color.Color, shape draw.GlyphDrawer) {
	if len(xys) > 0 {
		p.Add(&plotter.Scatter{XYs: xys, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(2.8), Shape: shape}})
	}
}

// addKey explains a marker in the legend.
func addKey(legend *plot.Plot, text string, shape draw.GlyphDrawer) {
	legend.Legend.Add(text, &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: color.Black, Radius: vg.Points(2.8), Shape: shape}})
}

// savePNG draws rows of panels with a legend to the right of them into a file.
func savePNG(file string, rows [][]*plot.Plot, legend *plot.Plot) error {
	const strip = 4.4 * vg.Centimeter
	cols := len(rows[0])
	width, height := vg.Length(cols)*11*vg.Centimeter+strip, vg.Length(len(rows))*9*vg.Centimeter
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(100))
	tiles := draw.Tiles{
		Rows: len(rows), Cols: cols, PadX: vg.Points(20), PadY: vg.Points(20),
		PadTop: vg.Points(10), PadBottom: vg.Points(10), PadLeft: vg.Points(10), PadRight: vg.Points(10),
	}
	canvas := draw.New(img)
	plots := draw.Crop(canvas, 0, -strip, 0, 0)
	for i, row := range rows {
		for j, p := range row {
			p.Draw(tiles.At(plots, j, i))
		}
	}
	legend.Draw(draw.Crop(canvas, width-strip, 0, 0, 0))
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
	for e := int(math.Ceil(lo - 1e-9)); e <= int(math.Floor(hi+1e-9)); e++ {
		t := plot.Tick{Value: float64(e)}
		if e%every == 0 {
			t.Label = fmt.Sprintf("1e%d", e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// passTicks marks passes on an axis of logarithms, and labels those that begin
// with 1, 2 or 5.
func passTicks(marks []int) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, m := range marks {
		t := plot.Tick{Value: math.Log10(float64(m))}
		if label := fmt.Sprint(m); strings.Contains("125", label[:1]) && m != 15 && m != 150 {
			t.Label = label
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// secondTicks marks 1, 2 and 5 times the powers of ten on an axis of logarithms.
func secondTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			seconds := m * math.Pow(10, e)
			if x := math.Log10(seconds); x >= lo && x <= hi {
				ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.3g", seconds)})
			}
		}
	}
	return ticks
}
