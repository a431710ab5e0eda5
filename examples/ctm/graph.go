package main

import (
	"image/color"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi/examples/internal/draw"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// drawGraph draws the topics on a circle, as large as they are frequent, joined where they are
// correlated: a solid line where they go together, a dashed one where they avoid each other, the
// wider the stronger.
func drawGraph(path string, corr *mat.SymDense, name []string, share []float64) error {
	k := len(name)
	p := draw.New("Topics, as large as they are frequent. Solid: they go together; dashed: they avoid each other", "", "")
	p.Title.TextStyle.Font.Size = vg.Points(10)
	p.HideAxes()
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks{}, plot.ConstantTicks{} // no grid
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -1.75, 1.75, -1.45, 1.45

	at := make(plotter.XYs, k)
	for i, t := range around(corr) {
		angle := 2 * math.Pi * (float64(i) + 0.5) / float64(k)
		at[t] = plotter.XY{X: math.Cos(angle), Y: math.Sin(angle)}
	}
	together, apart := draw.Blue, draw.Orange
	for _, e := range strongest(corr, 2*k) {
		c := corr.At(e[0], e[1])
		if math.Abs(c) < 0.1 {
			continue
		}
		line, err := plotter.NewLine(plotter.XYs{at[e[0]], at[e[1]]})
		if err != nil {
			return err
		}
		line.Width = vg.Points(0.5 + 6*math.Abs(c))
		line.Color = fade(together, math.Abs(c))
		if c < 0 {
			line.Width = vg.Points(0.5 + 3*math.Abs(c))
			line.Color = fade(apart, math.Abs(c))
			line.Dashes = draw.Dashed
		}
		p.Add(line)
	}
	nodes, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	nodes.GlyphStyleFunc = func(i int) vgdraw.GlyphStyle {
		return vgdraw.GlyphStyle{Color: draw.Black, Shape: vgdraw.CircleGlyph{}, Radius: vg.Points(3 + 18*math.Sqrt(share[i]))}
	}
	p.Add(nodes)
	for i, xy := range at {
		far := 1.12 // and farther above and below, where the words would cover the circle
		if math.Abs(xy.X) < 0.3 {
			far = 1.27
		}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: far * xy.X, Y: far * xy.Y}}, Labels: []string{strings.ReplaceAll(name[i], " ", "\n")}})
		if err != nil {
			return err
		}
		style := text.Style{Color: color.Black, Font: font.From(plot.DefaultFont, 11), YAlign: text.YCenter, XAlign: text.XCenter, Handler: plot.DefaultTextHandler}
		switch {
		case xy.X > 0.3:
			style.XAlign = text.XLeft
		case xy.X < -0.3:
			style.XAlign = text.XRight
		}
		label.TextStyle[0] = style
		p.Add(label)
	}
	return draw.Save(path, 18, 14, p)
}

// fade mixes a colour with white, the less of it the weaker the correlation.
func fade(c color.RGBA, strength float64) color.Color {
	a := math.Min(1, 0.25+1.5*strength)
	mix := func(x uint8) uint8 { return uint8(255 - a*(255-float64(x))) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

// around returns the topics in an order in which neighbours go together: from each on to the one,
// of those left, that is most correlated with it.
func around(corr *mat.SymDense) []int {
	k := corr.SymmetricDim()
	order, used := []int{0}, make([]bool, k)
	used[0] = true
	for len(order) < k {
		last, next := order[len(order)-1], -1
		for t := range k {
			if !used[t] && (next < 0 || corr.At(last, t) > corr.At(last, next)) {
				next = t
			}
		}
		order, used[next] = append(order, next), true
	}
	return order
}
