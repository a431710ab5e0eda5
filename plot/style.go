package plot

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colors are from Okabe and Ito (2008). Color-blind readers can tell them apart.
var (
	ink    = color.NRGBA{0x22, 0x22, 0x22, 0xff}
	blue   = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	red    = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	green  = color.NRGBA{0x00, 0x9e, 0x73, 0xff}
	purple = color.NRGBA{0xcc, 0x79, 0xa7, 0xff}
	amber  = color.NRGBA{0xe6, 0x9f, 0x00, 0xff}
	sky    = color.NRGBA{0x56, 0xb4, 0xe9, 0xff}
	gray   = color.NRGBA{0x80, 0x80, 0x80, 0xff}
	faint  = color.NRGBA{0xe6, 0xe6, 0xe6, 0xff}
)

var (
	dashed = []vg.Length{vg.Points(5), vg.Points(3)}
	dotted = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
)

// A style describes how a series is drawn.
type style struct {
	color  color.NRGBA
	dashes []vg.Length
	glyph  draw.GlyphDrawer
}

// styles differ in color and marker. After the first seven styles they also differ in dashes.
var styles = func() (all []style) {
	colors := []color.NRGBA{blue, red, green, purple, amber, sky, ink}
	glyphs := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{},
		draw.RingGlyph{}, draw.PlusGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{}}
	for i, dashes := range [][]vg.Length{nil, dashed, dotted} {
		for j, c := range colors {
			all = append(all, style{c, dashes, glyphs[(j+2*i)%len(glyphs)]})
		}
	}
	return all
}()

func (s style) line() draw.LineStyle {
	return draw.LineStyle{Color: s.color, Width: vg.Points(1.6), Dashes: s.dashes}
}

func (s style) mark(radius float64) draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.color, Radius: vg.Points(radius), Shape: s.glyph}
}

// pale returns c for a band, so that the grid and other bands show through.
func pale(c color.NRGBA) color.NRGBA {
	c.A = 0x3c
	return c
}

// sans returns the font of all texts.
func sans(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

// words10 is the style of the legend and of other words in a picture.
var words10 = text.Style{
	Color: ink, Font: sans(10), YAlign: text.YCenter, Handler: gonum.DefaultTextHandler,
}

// A picture is a plot with a legend.
type picture struct {
	*gonum.Plot
	keys keys
}

// newPicture returns a picture without data. It has a title, axes and a grid.
func newPicture(l Labels) *picture {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = l.Title, l.X, l.Y
	p.Title.TextStyle.Font, p.Title.Padding = sans(12), vg.Points(6)
	for _, a := range []*gonum.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = sans(11), sans(10)
		a.Label.Padding, a.Padding = vg.Points(4), 0
		a.Tick.Marker = gonum.TickerFunc(round)
	}
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = faint, faint
	p.Add(lines)
	return &picture{Plot: p}
}

// key adds an entry to the legend. If an entry with this name exists, key adds the thumbnail to it.
// It does nothing if name is empty.
func (p *picture) key(name string, thumbnail gonum.Thumbnailer) {
	if i := slices.Index(p.keys.names, name); i >= 0 {
		p.keys.thumbnails[i] = append(p.keys.thumbnails[i], thumbnail)
	} else if name != "" {
		p.keys.names = append(p.keys.names, name)
		p.keys.thumbnails = append(p.keys.thumbnails, []gonum.Thumbnailer{thumbnail})
	}
}

// done returns the plot, with the legend between the title and the axes.
func (p *picture) done() *gonum.Plot {
	if rows := len(p.keys.rows()); rows > 0 {
		if p.Title.Text == "" {
			p.Title.Text = " " // gonum reserves no space without a title
		}
		p.Title.Padding += vg.Length(rows)*keyHeight + vg.Points(2)
		p.Add(&p.keys)
	}
	return p.Plot
}

// points adds the points of a series, and error bars if it has intervals.
func (p *picture) points(s Series, look style) {
	for _, r := range finite(s.X, s.Y) {
		xys := pairs(s.X[r[0]:r[1]], s.Y[r[0]:r[1]])
		if s.Lo != nil {
			for i := range xys {
				lo, hi := s.Lo[r[0]+i], s.Hi[r[0]+i]
				if !drawable(lo) || !drawable(hi) {
					continue
				}
				x := xys[i].X
				bar := must(plotter.NewLine(plotter.XYs{{X: x, Y: lo}, {X: x, Y: hi}}))
				bar.Color, bar.Width = look.color, vg.Points(1.1)
				p.Add(bar)
			}
		}
		dots := must(plotter.NewScatter(xys))
		dots.GlyphStyle = look.mark(1.6)
		if len(s.X) <= 60 {
			dots.GlyphStyle = look.mark(2.6)
		}
		p.Add(dots)
		p.key(s.Name, dots)
	}
}

const (
	keyHeight = vg.Length(15)               // height of a row of the legend, in points
	keyWidth  = vg.Length(13.2) * 72 / 2.54 // largest width of a row
	thumb     = vg.Length(26)               // width of a thumbnail
	keyGap    = vg.Length(5)                // space between a thumbnail and its text
	keyApart  = vg.Length(16)               // space between entries
)

// keys is a legend above the axes, in one or more rows.
type keys struct {
	names      []string
	thumbnails [][]gonum.Thumbnailer
}

func (k *keys) width(i int) vg.Length {
	return thumb + keyGap + words10.Width(k.names[i]) + keyApart
}

// rows returns the entries of each row.
func (k *keys) rows() (rows [][]int) {
	used := vg.Length(0)
	for i := range k.names {
		if w := k.width(i); i == 0 || used+w-keyApart > keyWidth {
			rows, used = append(rows, []int{i}), w
		} else {
			rows[len(rows)-1], used = append(rows[len(rows)-1], i), used+w
		}
	}
	return rows
}

// Plot implements gonum's Plotter. It draws above c, the area of the data.
func (k *keys) Plot(c draw.Canvas, _ *gonum.Plot) {
	y := c.Max.Y + keyHeight/2 + vg.Points(4)
	rows := k.rows()
	slices.Reverse(rows)
	for _, row := range rows {
		x := c.Min.X
		for _, i := range row {
			icon := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: y - keyHeight/3},
				Max: vg.Point{X: x + thumb, Y: y + keyHeight/3}}}
			for _, t := range k.thumbnails[i] {
				t.Thumbnail(&icon)
			}
			c.FillText(words10, vg.Point{X: x + thumb + keyGap, Y: y}, k.names[i])
			x += k.width(i)
		}
		y += keyHeight
	}
}

// must returns v. It panics on an error, because gonum only returns errors for numbers that are not
// finite, which callers leave out.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func drawable(v float64) bool { return math.Abs(v) <= 1e150 } // false for NaN

// finite returns the ranges [from, to) in which all columns have numbers that can be drawn.
func finite(columns ...[]float64) (runs [][2]int) {
	open := false
	for i := range columns[0] {
		ok := true
		for _, c := range columns {
			ok = ok && drawable(c[i])
		}
		switch {
		case ok && open:
			runs[len(runs)-1][1] = i + 1
		case ok:
			runs = append(runs, [2]int{i, i + 1})
		}
		open = ok
	}
	return runs
}

func pairs(x, y []float64) plotter.XYs {
	xys := make(plotter.XYs, len(x))
	for i := range x {
		xys[i] = plotter.XY{X: x[i], Y: y[i]}
	}
	return xys
}

// A span is the smallest interval that contains some numbers. The zero span contains no numbers.
type span struct {
	lo, hi float64
	some   bool
}

func (s *span) add(columns ...[]float64) {
	for _, c := range columns {
		for _, v := range c {
			switch {
			case !drawable(v):
			case !s.some:
				*s = span{v, v, true}
			default:
				s.lo, s.hi = min(s.lo, v), max(s.hi, v)
			}
		}
	}
}

// axis sets the range of an axis to s, widened by a part of its length on both sides. The range is
// never empty.
func (s *span) axis(a *gonum.Axis, part float64) {
	if !s.some {
		s.lo, s.hi = 0, 1
	}
	if s.hi-s.lo <= 1e-9*math.Abs(s.hi) || s.hi == s.lo {
		half := math.Max(0.5, 0.1*math.Abs(s.hi))
		s.lo, s.hi = s.lo-half, s.hi+half
	}
	wider := part * (s.hi - s.lo)
	a.Min, a.Max = s.lo-wider, s.hi+wider
}

// round returns about six ticks at multiples of 1, 2 or 5 times a power of ten.
func round(lo, hi float64) []gonum.Tick { return rounded(lo, hi, 7) }

// rounded returns at most n + 1 ticks at multiples of 1, 2 or 5 times a power of ten.
func rounded(lo, hi float64, n int) (ticks []gonum.Tick) {
	most := float64(n)
	power := math.Pow10(int(math.Floor(math.Log10((hi - lo) / most))))
	step := power
	for i := 0; (hi-lo)/step > most && i < 3; i++ {
		step = power * []float64{2, 5, 10}[i]
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+1e-9*step; i++ {
		v := i*step + 0 // avoid −0
		label := strconv.FormatFloat(v, 'f', decimals, 64)
		if len(label) > 10 {
			label = strconv.FormatFloat(v, 'g', 5, 64)
		}
		ticks = append(ticks, gonum.Tick{Value: v, Label: label})
	}
	return ticks
}

// decades returns ticks at the powers of ten of a logarithmic axis.
func decades(lo, hi float64) (ticks []gonum.Tick) {
	from, to := int(math.Ceil(lo-1e-9)), int(math.Floor(hi+1e-9))
	every := 1 + (to-from)/9
	for e := from; e <= to; e++ {
		t := gonum.Tick{Value: float64(e)}
		if e%every == 0 {
			t.Label = "1e" + strconv.Itoa(e)
			if e >= -2 && e <= 3 {
				t.Label = strconv.FormatFloat(math.Pow10(e), 'f', -1, 64)
			}
		}
		ticks = append(ticks, t)
	}
	return ticks
}
