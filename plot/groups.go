package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Groups draws the effects of the levels of a grouping factor (a caterpillar plot). Each effect has
// a panel with the posterior mean and the 95% interval of every level, and a line at 0. A panel
// sorts its levels by mean, with the largest at the top. Its title has the standard deviation of the
// effect between levels, with a 95% interval if it is known. The effects of each class of a Softmax
// have panels of their own.
//
// names holds the names of the levels; nil means 0, 1, 2, and so on. Long names are shortened, and
// a panel leaves out names for which it has no room. Allow a height of 0.4 cm per level in [Save],
// for up to 60 levels, plus 3 cm. An empty l.Title means the name of the factor and its number of
// levels, and an empty l.X means "mean, 95% interval". Groups panics if g has no Mean or no SD, or
// if the numbers of effects, means, standard deviations and names differ.
func Groups(l Labels, g *pgsvi.GroupSummary, names []string) *gonum.Plot {
	if g.Mean == nil || g.SD == nil {
		panic(fmt.Sprintf("plot: group %s has no means and standard deviations", g.Name))
	}
	levels, q := g.Mean.Dims()
	sds, cols := g.SD.Dims()
	if q != max(1, len(g.Classes))*len(g.Effects) || sds != levels || cols != q || names != nil && len(names) != levels {
		panic(fmt.Sprintf("plot: group %s has %d effects, %d×%d means, %d×%d standard deviations "+
			"and %d names", g.Name, len(g.Effects), levels, q, sds, cols, len(names)))
	}
	if l.Title == "" {
		l.Title = fmt.Sprintf("%s: effects of %d levels", g.Name, levels)
		if levels == 1 {
			l.Title = fmt.Sprintf("%s: effects of 1 level", g.Name)
		}
	}
	if l.X == "" {
		l.X = "mean, 95% interval"
	}
	panels := make(caterpillars, q)
	for j := range panels {
		panels[j] = newCaterpillar(l, g, j, names, panels.columns())
	}
	p := newPicture(Labels{Title: l.Title}).Plot
	p.HideAxes()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.Add(panels)
	return p
}

const (
	mostNames = 60            // largest number of names in a panel
	nameSpace = vg.Length(10) // height of a name, in points
	axisSpace = vg.Length(60) // height of the title and the axis of a panel
	longest   = 30            // characters of the longest name if panels have the whole width
)

// A caterpillar is the panel of one effect.
type caterpillar struct {
	*gonum.Plot
	names []string // from bottom to top
}

// newCaterpillar returns the panel of effect j, one of the given number of panels in a row.
func newCaterpillar(l Labels, g *pgsvi.GroupSummary, j int, names []string, row int) caterpillar {
	e := g.Effects[j%len(g.Effects)]
	name := e.Name
	if g.Classes != nil {
		name = g.Classes[j/len(g.Effects)] + " · " + name
	}
	title := fmt.Sprintf("%s\nsd %.3g", shortened(name, 2*longest/row), e.SD)
	if e.Lo < e.Hi {
		title += fmt.Sprintf(" (%.3g to %.3g)", e.Lo, e.Hi)
	}
	p := newPicture(Labels{Title: title, X: l.X, Y: l.Y})
	p.Title.TextStyle.Font = sans(11)
	p.X.Tick.Marker = gonum.TickerFunc(func(lo, hi float64) []gonum.Tick {
		return rounded(lo, hi, max(4, 8-2*row))
	})
	levels := make([]int, g.Mean.RawMatrix().Rows)
	for i := range levels {
		levels[i] = i
	}
	slices.SortStableFunc(levels, func(a, b int) int {
		x, y := g.Mean.At(a, j), g.Mean.At(b, j)
		switch {
		case x < y || math.IsNaN(x) && !math.IsNaN(y):
			return -1
		case x > y || math.IsNaN(y) && !math.IsNaN(x):
			return 1
		}
		return b - a // in the order of the levels from top to bottom
	})
	c := caterpillar{Plot: p.done()}
	s := intervals{}
	for _, i := range levels {
		m, half := g.Mean.At(i, j), z95*g.SD.At(i, j)
		s.mean, s.lo, s.hi = append(s.mean, m), append(s.lo, m-half), append(s.hi, m+half)
		name := strconv.Itoa(i)
		if names != nil {
			name = shortened(names[i], longest/row)
		}
		c.names = append(c.names, name)
	}
	p.Y.Min, p.Y.Max = -0.6, float64(len(levels))-0.4
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	var x span
	x.add([]float64{0}, s.mean, s.lo, s.hi)
	x.axis(&p.X, 0.05)
	zero := must(plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}}))
	zero.Color, zero.Dashes = gray, dashed
	p.Add(s, zero)
	return c
}

// shortened returns name with at most the given number of characters.
func shortened(name string, most int) string {
	r := []rune(name)
	if len(r) <= most {
		return name
	}
	return string(r[:most-1]) + "…"
}

// fit chooses the names that a panel of the given height has room for.
func (c *caterpillar) fit(height vg.Length) {
	n := len(c.names)
	room := max(2, min(mostNames, int(height/nameSpace)))
	every := (n + room - 1) / room
	var ticks gonum.ConstantTicks
	for i := n - 1; i >= 0; i -= every { // the largest mean has a name
		ticks = append(ticks, gonum.Tick{Value: float64(i), Label: c.names[i]})
	}
	c.Y.Tick.Marker = ticks
	if height*vg.Length(every) < 13*vg.Length(n) {
		c.Y.Tick.Label.Font = sans(8)
	}
}

// caterpillars implements gonum's Plotter. It draws panels in rows.
type caterpillars []caterpillar

// columns returns the number of panels in a row.
func (s caterpillars) columns() int {
	if len(s) == 4 {
		return 2
	}
	return min(3, len(s))
}

// Plot implements gonum's Plotter.
func (s caterpillars) Plot(c draw.Canvas, _ *gonum.Plot) {
	cols := s.columns()
	rows := (len(s) + cols - 1) / cols
	grid := make([][]*gonum.Plot, rows)
	for i := range grid {
		grid[i] = make([]*gonum.Plot, cols)
	}
	for j := range s {
		s[j].fit(c.Size().Y/vg.Length(rows) - axisSpace)
		grid[j/cols][j%cols] = s[j].Plot
	}
	tiles := draw.Tiles{Rows: rows, Cols: cols, PadX: vg.Points(14), PadY: vg.Points(14)}
	for i, at := range gonum.Align(grid, tiles, c) {
		for j, p := range grid[i] {
			if p != nil {
				p.Draw(at[j])
			}
		}
	}
}

// intervals implements gonum's Plotter. It draws the intervals of the levels, whose heights are 0,
// 1, 2, and so on, and their means as dots.
type intervals struct{ mean, lo, hi []float64 }

// Plot implements gonum's Plotter.
func (s intervals) Plot(c draw.Canvas, p *gonum.Plot) {
	x, y := p.Transforms(&c)
	apart := float64(c.Size().Y) / float64(len(s.mean)) // points between levels
	line := styles[0].line()
	line.Width = vg.Points(max(0.3, min(1.6, 0.4*apart)))
	dot := styles[0].mark(max(0.6, min(2.6, 0.35*apart)))
	crowded := apart < 3
	if crowded { // the dots must stand out from the lines
		line.Color = sky
	}
	for i := range s.mean {
		if at := y(float64(i)); drawable(s.lo[i]) && drawable(s.hi[i]) {
			c.StrokeLine2(line, x(s.lo[i]), at, x(s.hi[i]), at)
		}
	}
	for i, m := range s.mean {
		if drawable(m) {
			c.DrawGlyph(dot, vg.Point{X: x(m), Y: y(float64(i))})
		}
	}
}
