package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/bench/paper"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A style gives each method its color, dashes and marker, so that the picture is also readable in
// gray.
type style struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
}

var styles = map[string]style{
	"PG-SVI":  {color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}, nil, draw.SquareGlyph{}},
	byDefault: {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"SGD": {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff},
		[]vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.PlusGlyph{}},
	"AdaGrad": {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff},
		[]vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},
	"RMSprop": {color.RGBA{R: 0x9a, G: 0x4f, B: 0xa8, A: 0xff},
		[]vg.Length{vg.Points(8), vg.Points(2)}, draw.CrossGlyph{}},
	"Adadelta": {color.RGBA{R: 0x96, G: 0x82, B: 0x00, A: 0xff},
		[]vg.Length{vg.Points(1), vg.Points(1.5)}, draw.BoxGlyph{}},
	"Adam": {color.RGBA{R: 0xc0, G: 0x20, B: 0x50, A: 0xff},
		[]vg.Length{vg.Points(6), vg.Points(2), vg.Points(1), vg.Points(2)}, draw.PyramidGlyph{}},
	"GD": {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff},
		[]vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.BoxGlyph{}},
	"PG": {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"PG-MC": {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff},
		[]vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},

	"PG-SVI-MF": {color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff},
		[]vg.Length{vg.Points(6), vg.Points(3)}, draw.BoxGlyph{}},
	"PG-SVI (paper)": {color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff},
		[]vg.Length{vg.Points(1.5), vg.Points(2.5)}, draw.PlusGlyph{}},
	"delta": {color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff},
		[]vg.Length{vg.Points(4), vg.Points(2)}, draw.TriangleGlyph{}},
	"Laplace": {color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}, nil, draw.CircleGlyph{}},
	"mean field": {color.RGBA{R: 0x9a, G: 0x4f, B: 0xa8, A: 0xff},
		[]vg.Length{vg.Points(8), vg.Points(2)}, draw.CrossGlyph{}},
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
}

// drawFigure1 draws examples against step size, for both bands and for the stop at a small change.
// A vertical line marks the step size from which a method diverges. Runs that do not converge for
// another reason are marked above the curves, in one row per method.
func drawFigure1(file string, problem *problem, sweeps []*sweep) error {
	var keys legend
	n := float64(len(problem.Y))
	const stop = len(within) // index of the panel after the bands
	titles := []string{"to within 1% of the optimum", "to within 0.1% of the optimum",
		"to a change of 0.1% in a pass"}
	panels := make([]*plot.Plot, len(titles))
	for i, title := range titles {
		p := newPanel("Ionosphere: " + title)
		p.X.Label.Text, p.Y.Label.Text = "step size", "examples processed"
		p.X.Tick.Marker = plot.TickerFunc(decades)
		// passes returns the passes of a method at step size j, and whether the method is then
		// outside of 1%.
		passes := func(s *sweep, j int) (passes float64, early bool) {
			if i < stop {
				return s.median(j, i), false
			}
			passes, excess := s.stop(j)
			return passes, excess > within[0]*(problem.start-problem.optimum)
		}
		top := 0.0 // largest value of runs that converge
		for _, s := range sweeps {
			for j := range s.steps {
				if v, early := passes(s, j); s.runs[j] != nil && !early && !math.IsInf(v, 1) {
					top = math.Max(top, math.Log10(n*v))
				}
			}
		}
		top = math.Ceil(top)
		p.Y.Min = math.Floor(math.Log10(n))
		space := 0.09 * (top - p.Y.Min) // between the rows of marks
		p.Y.Max = top + space*float64(len(sweeps)+1)
		ticks := decades(p.Y.Min, top)
		for row, s := range sweeps {
			var curve, lost, outside plotter.XYs
			y, explodes := top+space*float64(len(sweeps)-row), math.Inf(1)
			for j, step := range s.steps {
				if s.runs[j] == nil {
					continue
				}
				x := math.Log10(step)
				switch v, early := passes(s, j); {
				case 2*s.count(j, diverged) > len(s.runs[j]):
					explodes = math.Min(explodes, x)
				case math.IsInf(v, 1):
					lost = append(lost, plotter.XY{X: x, Y: y})
				case early:
					outside = append(outside, plotter.XY{X: x, Y: y})
				default:
					curve = append(curve, plotter.XY{X: x, Y: math.Log10(v * n)})
				}
			}
			st := styles[s.name]
			if !math.IsInf(explodes, 1) {
				wall, err := plotter.NewLine(
					plotter.XYs{{X: explodes, Y: p.Y.Min}, {X: explodes, Y: y}})
				if err != nil {
					return err
				}
				wall.Color, wall.Width, wall.Dashes = st.color, vg.Points(1.3), st.dashes
				p.Add(wall)
				keys.add(s.name+" diverges", wall)
			}
			if err := addCurve(p, &keys, s.name, curve, 1); err != nil {
				return err
			}
			addMarks(p, lost, st.color, draw.RingGlyph{})
			addMarks(p, outside, st.color, draw.PlusGlyph{})
			ticks = append(ticks, plot.Tick{Value: y, Label: s.name})
		}
		p.Y.Tick.Marker = plot.ConstantTicks(ticks)
		panels[i] = p
	}
	keys.mark("too slow or too noisy", draw.RingGlyph{})
	keys.mark("stops outside of 1%", draw.PlusGlyph{})
	return savePNG(file, 9.5, 8, [][]*plot.Plot{panels}, &keys)
}

// A measure is a quantity that a panel of figure 2 shows.
type measure struct {
	column, label string
	below         func(*problem) float64 // value to subtract
	least         float64                // smallest value to draw
}

var (
	nats = measure{"neg_elbo", "nats above the optimum",
		func(p *problem) float64 { return p.optimum }, 1e-4}
	bits = measure{"logloss_bits", "test log loss (bits)", func(*problem) float64 { return 0 }, 0}
)

// bandOver is how far, as a logarithm, a band may reach above the largest median: a factor of two.
const bandOver = 0.3

// panel draws a measure against passes, for methods without variants and for methods of the given
// variant. It draws medians over seeds, and bands from the smallest to the largest value, which it
// cuts if a failing run would leave no room for the medians. The second line of the title names cut
// bands and methods whose runs fail.
func (m measure) panel(title string, p *problem, methods []*method, variant string,
	keys *legend) (*plot.Plot, error) {
	panel := newPanel(title)
	panel.X.Label.Text, panel.Y.Label.Text = "passes over the training data", m.label
	panel.X.Tick.Marker, panel.Y.Tick.Marker = plot.TickerFunc(logTicks), plot.TickerFunc(logTicks)
	if m.least > 0 {
		panel.Y.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
			ticks := decades(lo, hi)
			if least := math.Log10(m.least); len(ticks) > 0 &&
				math.Abs(ticks[0].Value-least) < 1e-9 {
				ticks[0].Label = "≤ " + ticks[0].Label
			}
			return ticks
		})
	}
	defer func() {
		if m.least == 0 {
			panel.Y.Min, panel.Y.Max = widened(panel.Y.Min, panel.Y.Max)
		}
	}()
	height := func(v float64) float64 { return math.Log10(math.Max(v-m.below(p), m.least)) }
	type banded struct {
		name   string
		curve  plotter.XYs
		lo, hi []float64
	}
	var all []banded
	var failed, cut []string
	top := math.Inf(-1)
	for _, of := range methods {
		if of.variant != variant && of.variant != library && of.name != "PG-SVI" || of.runs == nil {
			continue // a gradient method of the other variant
		}
		b := banded{name: of.name}
		last := 0
		for _, pass := range of.runs.passes() {
			s := of.runs.median(pass)
			if math.IsInf(s.loss, 1) {
				break // most runs have failed
			}
			last = pass
			l, h := of.runs.spread(pass, m.column)
			y := height(*s.field(m.column))
			b.curve = append(b.curve, plotter.XY{X: math.Log10(float64(pass)), Y: y})
			b.lo, b.hi = append(b.lo, height(l)), append(b.hi, height(h))
			top = math.Max(top, y)
		}
		if last < of.runs.last() {
			failed = append(failed, fmt.Sprintf("%s fails after pass %d", of.name, last))
		}
		all = append(all, b)
	}
	for _, b := range all {
		if slices.Max(append(b.hi, top)) > top+bandOver {
			cut = append(cut, b.name)
		}
		for i, h := range b.hi {
			b.hi[i] = math.Min(h, top+bandOver)
		}
		if err := addBand(panel, b.name, b.curve, b.lo, b.hi); err != nil {
			return nil, err
		}
		if err := addCurve(panel, keys, b.name, b.curve, 2); err != nil {
			return nil, err
		}
	}
	if cut != nil {
		failed = append(failed, "band cut at the top: "+strings.Join(cut, ", "))
	}
	if failed != nil {
		panel.Title.Text += "\n" + strings.Join(failed, "; ")
	}
	return panel, nil
}

// drawOverview draws one row of panels: −ELBO and test log loss on ionosphere and on another data
// set, if it was measured, with all gradients scaled correctly.
func drawOverview(file string, problems []*problem, methods [][]*method) error {
	var keys legend
	var row []*plot.Plot
	for _, name := range []string{"ionosphere", "usps3v5"} {
		i := slices.IndexFunc(problems, func(p *problem) bool { return p.name == name })
		if i < 0 {
			continue
		}
		for _, m := range []measure{nats, bits} {
			panel, err := m.panel(titles[name], problems[i], methods[i], paper.Corrected, &keys)
			if err != nil {
				return err
			}
			row = append(row, panel)
		}
	}
	if row == nil {
		return nil // neither data set was measured
	}
	sameLines(row)
	return savePNG(file, 8.2, 7, [][]*plot.Plot{row}, &keys)
}

// titles maps data sets to their names in pictures.
var titles = map[string]string{"sonar": "Sonar", "ionosphere": "Ionosphere",
	"usps2v4": "USPS 2 vs 4", "usps3v5": "USPS 3 vs 5", "nips": "NIPS", "ap": "AP",
	"synthetic": "Synthetic"}

// variants maps variants of the gradient methods to their names in pictures.
var variants = map[string]string{paper.Published: "as published", paper.Corrected: "corrected"}

// drawFigure2 draws −ELBO above the optimum and test log loss against passes, with the gradient
// methods as published and as corrected.
func drawFigure2(file string, p *problem, methods []*method) error {
	var keys legend
	var rows [][]*plot.Plot
	for _, m := range []measure{nats, bits} {
		var pair []*plot.Plot
		for _, variant := range []string{paper.Published, paper.Corrected} {
			title := fmt.Sprintf("%s, gradient methods %s", titles[p.name], variants[variant])
			panel, err := m.panel(title, p, methods, variant, &keys)
			if err != nil {
				return err
			}
			pair = append(pair, panel)
		}
		sameRange(pair)
		sameLines(pair)
		rows = append(rows, pair)
	}
	return savePNG(file, 10.5, 7.5, rows, &keys)
}

// drawFigure3 draws held-out nats per word against seconds, one panel per setting, with medians
// over seeds and bands from the smallest to the largest value. The axes fit the methods that end
// near the best method. The title names other methods if they are outside of the panel.
func drawFigure3(file string, settings []*setting) error {
	const near = 0.15 // nats per word
	var keys legend
	var panels []*plot.Plot
	for _, s := range settings {
		p := newPanel(fmt.Sprintf("%s, %d topics", titles[s.name], s.topics))
		p.X.Label.Text, p.Y.Label.Text = "seconds of training", "held-out nats per word"
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(logTicks), plot.TickerFunc(roundTicks)
		last, best := s.last()
		var above []string
		top := math.Inf(-1)
		for _, e := range s.eSteps {
			var curve plotter.XYs
			var lo, hi []float64
			for _, pass := range e.runs.passes() {
				if m := e.runs.median(pass); !math.IsInf(m.loss, 1) {
					l, h := e.runs.spread(pass, "heldout_nats")
					curve = append(curve,
						plotter.XY{X: math.Log10(max(m.seconds, 1e-3)), Y: m.loss})
					lo, hi = append(lo, l), append(hi, h)
				}
			}
			if end := e.runs.median(last).loss; end > best+near {
				if !math.IsInf(end, 1) {
					above = append(above, fmt.Sprintf("%s %.2f", e.name, end))
				}
				continue
			}
			top = math.Max(top, slices.Max(hi))
			if err := addBand(p, e.name, curve, lo, hi); err != nil {
				return err
			}
			if err := addCurve(p, &keys, e.name, curve, 1); err != nil {
				return err
			}
		}
		if s.unigram > top {
			above = append(above, fmt.Sprintf("%s %.2f", frequencies, s.unigram))
		} else {
			level := plotter.NewFunction(func(float64) float64 { return s.unigram })
			level.Color, level.Width = color.Gray{Y: 0x60}, vg.Points(0.6)
			p.Add(level)
			keys.add(frequencies, level)
		}
		if above != nil {
			p.Title.Text += "\nabove the picture: " + strings.Join(above, ", ")
		}
		p.Y.Min, p.Y.Max = widened(p.Y.Min, p.Y.Max)
		p.X.Min, p.X.Max = widened(p.X.Min, p.X.Max)
		panels = append(panels, p)
	}
	return savePNG(file, 12, 9, slices.Collect(slices.Chunk(panels, 2)), &keys)
}

// sameRange sets the same vertical axis on panels side by side.
func sameRange(panels []*plot.Plot) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		lo, hi = math.Min(lo, p.Y.Min), math.Max(hi, p.Y.Max)
	}
	for _, p := range panels {
		p.Y.Min, p.Y.Max = lo, hi
	}
}

// sameLines sets titles with the same number of lines on panels side by side.
func sameLines(panels []*plot.Plot) {
	most := 0
	for _, p := range panels {
		most = max(most, strings.Count(p.Title.Text, "\n"))
	}
	for _, p := range panels {
		p.Title.Text += strings.Repeat("\n ", most-strings.Count(p.Title.Text, "\n"))
	}
}

// widened returns a range that keeps markers at its ends inside the panel.
func widened(lo, hi float64) (float64, float64) {
	margin := 0.04 * (hi - lo)
	return lo - margin, hi + margin
}

// newPanel returns an empty plot.
func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(11), vg.Points(11)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(3), vg.Points(4)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	p.Add(grid)
	return p
}

// A legend explains the curves and markers of a picture below its panels, with each name once.
type legend struct{ keys []key }

type key struct {
	name   string
	thumbs []plot.Thumbnailer
}

func (l *legend) add(name string, thumbs ...plot.Thumbnailer) {
	if !slices.ContainsFunc(l.keys, func(k key) bool { return k.name == name }) {
		l.keys = append(l.keys, key{name, thumbs})
	}
}

// mark adds a marker.
func (l *legend) mark(name string, shape draw.GlyphDrawer) {
	l.add(name, &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: color.Black,
		Radius: vg.Points(2.8), Shape: shape}})
}

// size returns the height of the keys and their number per row for the given width.
func (l *legend) size(width vg.Length) (height vg.Length, perRow int) {
	longest := 0
	for _, k := range l.keys {
		longest = max(longest, utf8.RuneCountInString(k.name))
	}
	perRow = max(1, min(len(l.keys), int(width/vg.Points(52+5.2*float64(longest)))))
	rows := (len(l.keys) + perRow - 1) / perRow
	return vg.Points(10 + 16*float64(rows)), perRow
}

// draw draws the keys in rows with the given number of columns.
func (l *legend) draw(c draw.Canvas, cols int) {
	tiles := draw.Tiles{Rows: 1, Cols: cols}
	for j := range cols {
		p := plot.New()
		p.HideAxes()
		p.Legend.Top, p.Legend.Left = true, true
		p.Legend.TextStyle.Font.Size = vg.Points(10)
		p.Legend.ThumbnailWidth = vg.Points(32)
		p.Legend.Padding = vg.Points(3)
		for i := j; i < len(l.keys); i += cols {
			p.Legend.Add(l.keys[i].name, l.keys[i].thumbs...)
		}
		p.Draw(tiles.At(c, j, 0))
	}
}

// addCurve adds a line with markers in the style of a method, and its key. It adds neither if xys
// has fewer than least points.
func addCurve(p *plot.Plot, keys *legend, name string, xys plotter.XYs, least int) error {
	if len(xys) < least {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(xys)
	if err != nil {
		return fmt.Errorf("curve of %s: %w", name, err)
	}
	style := styles[name]
	line.Color, line.Width, line.Dashes = style.color, vg.Points(1.3), style.dashes
	marks.Color, marks.Radius, marks.Shape = style.color, vg.Points(2.5), style.marker
	p.Add(line, marks)
	keys.add(name, line, marks)
	return nil
}

// addBand fills the area from lo to hi in a pale shade of the method's color.
func addBand(p *plot.Plot, name string, curve plotter.XYs, lo, hi []float64) error {
	if len(curve) < 2 || slices.Equal(lo, hi) {
		return nil
	}
	var around plotter.XYs
	for i, xy := range curve {
		around = append(around, plotter.XY{X: xy.X, Y: lo[i]})
	}
	for i := len(curve) - 1; i >= 0; i-- {
		around = append(around, plotter.XY{X: curve[i].X, Y: hi[i]})
	}
	band, err := plotter.NewPolygon(around)
	if err != nil {
		return fmt.Errorf("band of %s: %w", name, err)
	}
	c := color.NRGBAModel.Convert(styles[name].color).(color.NRGBA)
	c.A = 0x38
	band.Color, band.Width = c, 0
	p.Add(band)
	return nil
}

// addMarks adds markers without a line.
func addMarks(p *plot.Plot, xys plotter.XYs, c color.Color, shape draw.GlyphDrawer) {
	if len(xys) > 0 {
		p.Add(&plotter.Scatter{XYs: xys,
			GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(2.8), Shape: shape}})
	}
}

// savePNG draws rows of panels with a legend below them into a file. Sizes are in centimeters.
func savePNG(file string, panelWidth, panelHeight float64, rows [][]*plot.Plot,
	keys *legend) error {
	cols := len(rows[0])
	width := vg.Length(float64(cols)*panelWidth) * vg.Centimeter
	strip, perRow := keys.size(width - vg.Points(24))
	img := vgimg.NewWith(
		vgimg.UseWH(width, vg.Length(float64(len(rows))*panelHeight)*vg.Centimeter+strip),
		vgimg.UseDPI(130))
	tiles := draw.Tiles{
		Rows: len(rows), Cols: cols, PadX: vg.Points(14), PadY: vg.Points(14),
		PadTop: vg.Points(8), PadBottom: vg.Points(6), PadLeft: vg.Points(8),
		PadRight: vg.Points(10),
	}
	canvas := draw.New(img)
	plots := draw.Crop(canvas, 0, 0, strip, 0)
	for i, row := range rows {
		for j, p := range row {
			p.Draw(tiles.At(plots, j, i))
		}
	}
	below := draw.Crop(canvas, vg.Points(24), 0, 0, 0)
	below.Max.Y = below.Min.Y + strip
	keys.draw(below, perRow)
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

// decades marks the powers of ten on a logarithmic axis, and labels every second power if there are
// many.
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

// logTicks marks a logarithmic axis with 1, 2 and 5 times the powers of ten, or with round numbers
// if its ends are close.
func logTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	mark := func(v float64) {
		if x := math.Log10(v); x >= lo-1e-9 && x <= hi+1e-9 {
			ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.3g", v)})
		}
	}
	if from, to := math.Pow(10, lo), math.Pow(10, hi); to < 4*from {
		for _, t := range roundTicks(from, to) {
			mark(t.Value)
		}
		return ticks
	}
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			mark(m * math.Pow(10, e))
		}
	}
	return ticks
}

// roundTicks marks about five multiples of 1, 2 or 5 times a power of ten.
func roundTicks(lo, hi float64) []plot.Tick {
	step := math.Pow10(int(math.Floor(math.Log10((hi - lo) / 6))))
	for i := 0; (hi-lo)/step > 6; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	var ticks []plot.Tick
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: fmt.Sprintf("%.4g", i*step)})
	}
	return ticks
}
