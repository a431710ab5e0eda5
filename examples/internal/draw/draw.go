// Package draw is what the pictures of the examples share: panels with a grid and a legend, curves
// that can be told apart in grey too, bands, points with intervals, and one way to write them to a
// file.
package draw

import (
	"fmt"
	"image/color"
	"math"
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

// Colours differ in lightness too, for reading in grey.
var (
	Black  = color.Gray{Y: 0x20}
	Grey   = color.Gray{Y: 0x80}
	Light  = color.Gray{Y: 0xd4}
	Blue   = color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}
	Pale   = color.RGBA{R: 0xb8, G: 0xd3, B: 0xee, A: 0xff}
	Orange = color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}
	Sand   = color.RGBA{R: 0xf3, G: 0xdc, B: 0xc2, A: 0xff}
	Green  = color.RGBA{R: 0x3c, G: 0x8c, B: 0x5a, A: 0xff}
	Purple = color.RGBA{R: 0x88, G: 0x44, B: 0x99, A: 0xff}

	grid = color.Gray{Y: 0xe4}
)

// Dashes of lines; nil is a solid line.
var (
	Dashed  = []vg.Length{vg.Points(6), vg.Points(3)}
	Dotted  = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
	DashDot = []vg.Length{vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}
)

// A Style is how a curve looks. A Marker of nil means none, a Width of 0 points 1.3.
type Style struct {
	Color  color.Color
	Dashes []vg.Length
	Marker draw.GlyphDrawer
	Width  float64
}

// Styles are five that can be told apart, by colour, dashes and markers.
var Styles = []Style{
	{Color: Blue, Marker: draw.CircleGlyph{}},
	{Color: Orange, Dashes: Dashed, Marker: draw.SquareGlyph{}},
	{Color: Green, Dashes: Dotted, Marker: draw.TriangleGlyph{}},
	{Color: Purple, Dashes: DashDot, Marker: draw.PlusGlyph{}},
	{Color: Black, Marker: draw.RingGlyph{}},
}

func (s Style) width() vg.Length {
	if s.Width == 0 {
		return vg.Points(1.3)
	}
	return vg.Points(s.Width)
}

// A Panel is one plot of a picture. The first error of what is added to it is that of Save.
type Panel struct {
	*plot.Plot
	logX bool
	logY bool
	err  error
}

// New returns an empty panel, with a legend at the top right.
func New(title, x, y string) *Panel {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(round), plot.TickerFunc(round)
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(32)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(6), -vg.Points(4)
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	p.Add(lines)
	return &Panel{Plot: p}
}

// LegendLeft moves the legend to the left.
func (p *Panel) LegendLeft() {
	p.Legend.Left, p.Legend.XOffs = true, vg.Points(8)
}

// LogY makes the vertical axis logarithmic. Whatever is added from then on must be positive; of
// curves, what is not is left out.
func (p *Panel) LogY() {
	p.logY = true
	p.Y.Tick.Marker = plot.TickerFunc(decades)
}

// LogX makes the horizontal axis of curves and points logarithmic. Whatever is added from then on
// must be right of 0; what is not is left out.
func (p *Panel) LogX() {
	p.logX = true
	p.X.Tick.Marker = plot.TickerFunc(decades)
}

// RangeX sets the horizontal axis.
func (p *Panel) RangeX(lo, hi float64) {
	if p.logX {
		lo, hi = math.Log10(lo), math.Log10(hi)
	}
	p.X.Min, p.X.Max = lo, hi
}

// Range sets the vertical axis.
func (p *Panel) Range(lo, hi float64) { p.Y.Min, p.Y.Max = p.height(lo), p.height(hi) }

// height returns where y is on the vertical axis.
func (p *Panel) height(y float64) float64 {
	if p.logY {
		return math.Log10(y)
	}
	return y
}

// points returns the points of a curve.
func (p *Panel) points(x, y []float64) plotter.XYs {
	var all plotter.XYs
	for i := range x {
		if p.logY && !(y[i] > 0) || math.IsNaN(y[i]) || p.logX && !(x[i] > 0) {
			continue
		}
		at := x[i]
		if p.logX {
			at = math.Log10(at)
		}
		all = append(all, plotter.XY{X: at, Y: p.height(y[i])})
	}
	return all
}

// Fail keeps the first error, and reports whether err is one.
func (p *Panel) Fail(err error) bool {
	if p.err == nil {
		p.err = err
	}
	return err != nil
}

// legend adds an entry unless the name is empty.
func (p *Panel) legend(name string, what ...plot.Thumbnailer) {
	if name != "" {
		p.Legend.Add(name, what...)
	}
}

// Curve adds a line, with markers if the style has one. A curve without points, or without a name,
// is not in the legend.
func (p *Panel) Curve(name string, x, y []float64, s Style) {
	xys := p.points(x, y)
	if len(xys) == 0 {
		return
	}
	line, marks, err := plotter.NewLinePoints(xys)
	if p.Fail(err) {
		return
	}
	line.Color, line.Width, line.Dashes = s.Color, s.width(), s.Dashes
	if s.Marker == nil {
		p.Add(line)
		p.legend(name, line)
		return
	}
	marks.Color, marks.Radius, marks.Shape = s.Color, vg.Points(2.5), s.Marker
	p.Add(line, marks)
	p.legend(name, line, marks)
}

// Points adds points.
func (p *Panel) Points(name string, x, y []float64, s Style) {
	marks, err := plotter.NewScatter(p.points(x, y))
	if p.Fail(err) {
		return
	}
	marks.Color, marks.Radius, marks.Shape = s.Color, vg.Points(1.8), s.Marker
	p.Add(marks)
	p.legend(name, marks)
}

// intervals are points with what is below and above them.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

// Intervals adds points y with lines from lo to hi.
func (p *Panel) Intervals(name string, x, y, lo, hi []float64, s Style) {
	all := intervals{XYs: p.points(x, y)}
	for i := range y {
		all.YErrors = append(all.YErrors, struct{ Low, High float64 }{y[i] - lo[i], hi[i] - y[i]})
	}
	bars, err := plotter.NewYErrorBars(all)
	if p.Fail(err) {
		return
	}
	bars.Color, bars.Width, bars.CapWidth = s.Color, vg.Points(1), vg.Points(5)
	marks, err := plotter.NewScatter(all)
	if p.Fail(err) {
		return
	}
	marks.Color, marks.Radius, marks.Shape = s.Color, vg.Points(3), s.Marker
	p.Add(bars, marks)
	p.legend(name, marks)
}

// Band fills the area between two curves.
func (p *Panel) Band(name string, x, lo, hi []float64, c color.Color) {
	back := p.points(x, hi)
	slices.Reverse(back)
	area, err := plotter.NewPolygon(append(p.points(x, lo), back...))
	if p.Fail(err) {
		return
	}
	area.Color, area.Width = c, 0
	p.Add(area)
	p.legend(name, area)
}

// Bars adds a bar from bottom to each y, of some width about x; those that are lower are left out.
func (p *Panel) Bars(name string, x, y []float64, bottom, width float64, c color.Color) {
	low := p.height(bottom)
	var one *plotter.Polygon
	for i := range x {
		if y[i] <= bottom {
			continue
		}
		l, r, top := x[i]-width/2, x[i]+width/2, p.height(y[i])
		bar, err := plotter.NewPolygon(plotter.XYs{{X: l, Y: low}, {X: l, Y: top}, {X: r, Y: top}, {X: r, Y: low}})
		if p.Fail(err) {
			return
		}
		bar.Color, bar.Width = c, 0
		p.Add(bar)
		one = bar
	}
	if one != nil {
		p.legend(name, one)
	}
}

// Save draws panels side by side into a PNG file, width and height in centimetres.
func Save(file string, width, height float64, panels ...*Panel) error {
	if err := failed(panels); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	img, canvas := page(width, height)
	tiles := draw.Tiles{
		Rows: 1, Cols: len(panels), PadX: vg.Points(24),
		PadTop: vg.Points(10), PadBottom: vg.Points(10), PadLeft: vg.Points(10), PadRight: vg.Points(14),
	}
	for i, p := range panels {
		p.Draw(tiles.At(canvas, i, 0))
	}
	return write(file, img)
}

// SaveAbove draws one panel above another that is low centimetres high, with their axes aligned.
func SaveAbove(file string, width, height, low float64, top, bottom *Panel) error {
	if err := failed([]*Panel{top, bottom}); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	img, canvas := page(width, height)
	all := draw.Crop(canvas, vg.Points(10), -vg.Points(14), vg.Points(10), -vg.Points(10))
	below := vg.Length(low) * vg.Centimeter
	// Align gives all plots of a grid the same margins.
	plots := [][]*plot.Plot{{top.Plot}, {bottom.Plot}}
	tiles := plot.Align(plots, draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(6)}, all)
	for i, c := range []draw.Canvas{draw.Crop(all, 0, 0, below, 0), draw.Crop(all, 0, 0, 0, below-all.Size().Y)} {
		c.Min.X, c.Max.X = tiles[i][0].Min.X, tiles[i][0].Max.X
		plots[i][0].Draw(c)
	}
	return write(file, img)
}

func failed(panels []*Panel) error {
	for _, p := range panels {
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

func page(width, height float64) (*vgimg.Canvas, draw.Canvas) {
	img := vgimg.NewWith(vgimg.UseWH(vg.Length(width)*vg.Centimeter, vg.Length(height)*vg.Centimeter), vgimg.UseDPI(150))
	return img, draw.New(img)
}

func write(file string, img *vgimg.Canvas) error {
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

// Every marks the multiples of step.
func Every(step float64) plot.Ticker {
	return plot.TickerFunc(func(lo, hi float64) (ticks []plot.Tick) {
		for i := math.Ceil(lo/step - 1e-9); i*step <= hi+1e-9*step; i++ {
			v := i*step + 0 // and not −0
			ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
		}
		return ticks
	})
}

// Counts marks some whole numbers from 0.
var Counts = plot.TickerFunc(func(_, hi float64) []plot.Tick {
	step := math.Pow10(int(math.Log10(math.Max(1, hi/3))))
	for i := 0; hi/step > 4; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	return Every(math.Max(1, step)).Ticks(0, hi)
})

// round marks about six multiples of 1, 2 or 5 times a power of ten.
func round(lo, hi float64) []plot.Tick {
	step := math.Pow10(int(math.Floor(math.Log10((hi - lo) / 7))))
	for i := 0; (hi-lo)/step > 7; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	return Every(step).Ticks(lo, hi)
}

// decades marks the powers of ten on an axis of logarithms, and labels every second one where there
// are many.
func decades(lo, hi float64) (ticks []plot.Tick) {
	every := 1
	if hi-lo > 7 {
		every = 2
	}
	for e := int(math.Ceil(lo - 1e-9)); e <= int(math.Floor(hi+1e-9)); e++ {
		t := plot.Tick{Value: float64(e)}
		if e%every == 0 {
			t.Label = fmt.Sprintf("1e%d", e)
			if e >= 0 && e <= 4 && lo > -1 { // counts
				t.Label = fmt.Sprint(math.Pow10(e))
			}
		}
		ticks = append(ticks, t)
	}
	return ticks
}
