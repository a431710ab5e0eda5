package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// cells is the number of cells of a probability map along each axis.
const cells = 120

// Probabilities draws the probabilities of a classifier with two inputs as a map. The map is blue
// if the class +1 is more probable, red if −1 is more probable, and white at even odds, with
// contours at 0.1, 0.5 and 0.9. x has one row with two columns for each observation, and y holds
// the labels, −1 or 0 and +1. Both are drawn as points and determine the axes. classes names the
// labels −1 and +1. prob returns P(y = +1) for each row of its argument, a grid of 120×120 rows,
// such as a posterior's Prob(nil, 1, grid). Probabilities panics if x does not have two columns, or
// prob returns another number of rows.
func Probabilities(l Labels, classes [2]string, x mat.Matrix, y []float64,
	prob func(grid *mat.Dense) []float64) *gonum.Plot {
	n, cols := x.Dims()
	if n != len(y) || cols != 2 {
		panic(fmt.Sprintf("plot: the inputs are %d×%d instead of %d×2", n, cols, len(y)))
	}
	p := newPicture(l)
	var across, up span
	a, b := mat.Col(nil, 0, x), mat.Col(nil, 1, x)
	across.add(a)
	up.add(b)
	across.axis(&p.X, 0.06)
	up.axis(&p.Y, 0.06)

	g := field{x: cellsOf(&p.X), y: cellsOf(&p.Y)}
	grid := mat.NewDense(cells*cells, 2, nil)
	for i := range cells * cells {
		grid.SetRow(i, []float64{g.x[i%cells], g.y[i/cells]})
	}
	if g.z = prob(grid); len(g.z) != cells*cells {
		panic(fmt.Sprintf("plot: prob returned %d probabilities for %d rows", len(g.z),
			cells*cells))
	}
	heat := plotter.NewHeatMap(g, shades(101))
	heat.Min, heat.Max, heat.NaN, heat.Rasterized = 0, 1, faint, true
	p.Add(heat)
	for _, c := range []struct {
		name   string
		levels []float64
		style  draw.LineStyle
	}{
		{"even odds", []float64{0.5}, style{color: ink}.line()},
		{"0.1 and 0.9", []float64{0.1, 0.9}, style{color: ink, dashes: dashed}.line()},
	} {
		lines := plotter.NewContour(g, c.levels, nil)
		lines.LineStyles, lines.Min, lines.Max = []draw.LineStyle{c.style}, 0, 1
		p.Add(lines)
		p.key(c.name, &plotter.Line{LineStyle: c.style})
	}
	for i, class := range classes {
		s := Series{Name: class, Look: Points}
		for j := range y {
			if (y[j] > 0) == (i == 1) && drawable(a[j]) && drawable(b[j]) {
				s.X, s.Y = append(s.X, a[j]), append(s.Y, b[j])
			}
		}
		look := style{color: color.NRGBA{0x8f, 0x2d, 0x00, 0xff}, glyph: draw.TriangleGlyph{}}
		if i == 1 {
			look = style{color: color.NRGBA{0x00, 0x3a, 0x66, 0xff}, glyph: draw.CircleGlyph{}}
		}
		p.points(s, look)
	}
	return p.done()
}

// cellsOf returns the centers of the cells of an axis.
func cellsOf(a *gonum.Axis) []float64 {
	at := make([]float64, cells)
	for i := range at {
		at[i] = a.Min + (a.Max-a.Min)*(float64(i)+0.5)/cells
	}
	return at
}

// A field is a function on a grid.
type field struct{ x, y, z []float64 }

func (f field) Dims() (c, r int)   { return len(f.x), len(f.y) }
func (f field) X(c int) float64    { return f.x[c] }
func (f field) Y(r int) float64    { return f.y[r] }
func (f field) Z(c, r int) float64 { return f.z[r*len(f.x)+c] }

// shades is a palette from red through white to blue.
type shades int

// Colors implements gonum's palette.
func (n shades) Colors() []color.Color {
	all := make([]color.Color, n)
	for i := range all {
		t := 2*float64(i)/float64(n-1) - 1
		end := red
		if t > 0 {
			end = blue
		}
		t = 0.75 * math.Abs(t)
		mix := func(v uint8) uint8 { return uint8(255 - t*(255-float64(v))) }
		all[i] = color.NRGBA{mix(end.R), mix(end.G), mix(end.B), 0xff}
	}
	return all
}

// TopicLinks returns the correlations between topics without the correlations that arise because
// shares add up to one: if the share of one topic rises, the shares of all others fall, even if the
// topics are independent. sigma is the covariance of the topic logits, CTMPosterior.Sigma. Shares
// determine only
//
//	t_ij = Var[z_i − z_j] = d_i + d_j − 2 ρ_ij √(d_i d_j).
//
// The variances d are chosen so that the covariances of each topic with the others add up to 0
// (SparCC: Friedman and Alm 2012), so independent topics have ρ = 0. The result is a new K×K matrix
// with ones on the diagonal. Correlations of a topic whose d is not positive are 0. If K < 3, all
// correlations are 0.
func TopicLinks(sigma mat.Symmetric) *mat.SymDense {
	k := sigma.SymmetricDim()
	links := mat.NewSymDense(k, nil)
	apart := func(i, j int) float64 { return sigma.At(i, i) + sigma.At(j, j) - 2*sigma.At(i, j) }
	rows, all := make([]float64, k), 0.0
	for i := range k {
		for j := range k {
			rows[i] += apart(i, j)
		}
		all += rows[i]
	}
	d := make([]float64, k) // from Σ_j t_ij = (K−2) d_i + Σ d
	for i := range d {
		links.SetSym(i, i, 1)
		if k > 2 {
			d[i] = (rows[i] - all/float64(2*k-2)) / float64(k-2)
		}
	}
	for i := range k {
		for j := range i {
			r := (d[i] + d[j] - apart(i, j)) / (2 * math.Sqrt(d[i]*d[j]))
			if d[i] > 0 && d[j] > 0 && drawable(r) {
				links.SetSym(i, j, max(-1, min(1, r)))
			}
		}
	}
	return links
}

// leastLink is the smallest absolute correlation that TopicGraph draws.
const leastLink = 0.2

// TopicGraph draws topics on a circle, sized by their frequency, and joins topics with an absolute
// correlation of at least 0.2. A solid blue line joins topics that occur together, and a dashed red
// line joins topics that avoid each other. Stronger correlations have wider lines. There are at
// most twice as many lines as topics. names holds a few words for each topic, one per line, share
// holds the frequencies, and links holds the correlations. Use [TopicLinks] for links, not the
// correlations of the shares, which are negative even for independent topics. TopicGraph panics if
// the lengths differ. Only the title of l is used. Allow a height of about 13 cm in [Save].
func TopicGraph(l Labels, names []string, share []float64, links mat.Symmetric) *gonum.Plot {
	k := len(names)
	if len(share) != k || links.SymmetricDim() != k {
		panic(fmt.Sprintf("plot: there are %d topics but %d shares and links of %d topics", k,
			len(share), links.SymmetricDim()))
	}
	p := newPicture(Labels{Title: l.Title})
	p.HideAxes()
	p.X.Tick.Marker, p.Y.Tick.Marker = gonum.ConstantTicks{}, gonum.ConstantTicks{} // no grid
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -2.2, 2.2, -1.6, 1.6
	at := make(plotter.XYs, k)
	for i, t := range around(links) {
		angle := 2 * math.Pi * (float64(i) + 0.5) / float64(k)
		at[t] = plotter.XY{X: math.Cos(angle), Y: math.Sin(angle)}
	}
	pairs := strongest(links)
	for _, e := range slices.Backward(pairs[:min(2*k, len(pairs))]) { // strong links on top
		r := links.At(e[0], e[1])
		line := must(plotter.NewLine(plotter.XYs{at[e[0]], at[e[1]]}))
		line.LineStyle = draw.LineStyle{Color: blue, Width: vg.Points(8 * r)}
		if r < 0 {
			line.LineStyle = draw.LineStyle{Color: red, Width: vg.Points(-5 * r), Dashes: dashed}
		}
		p.Add(line)
	}
	p.key("occur together", &plotter.Line{LineStyle: style{color: blue}.line()})
	p.key("avoid each other (beyond the effect of shares adding up to one)",
		&plotter.Line{LineStyle: style{color: red, dashes: dashed}.line()})
	for i, xy := range at {
		radius := vg.Points(4 + 20*math.Sqrt(max(0, min(1, share[i]))))
		node := must(plotter.NewScatter(plotter.XYs{xy}))
		node.GlyphStyle = draw.GlyphStyle{Color: ink, Shape: draw.CircleGlyph{}, Radius: radius}
		words := []string{strings.ReplaceAll(names[i], " ", "\n")}
		label := must(plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{xy}, Labels: words}))
		style := words10
		switch apart := radius + vg.Points(4); { // to the side of the node, above it or below it
		case xy.X > 0.4:
			label.Offset.X = apart
		case xy.X < -0.4:
			label.Offset.X, style.XAlign = -apart, text.XRight
		case xy.Y > 0:
			label.Offset.Y, style.XAlign, style.YAlign = apart, text.XCenter, text.YBottom
		default:
			label.Offset.Y, style.XAlign, style.YAlign = -apart, text.XCenter, text.YTop
		}
		label.TextStyle[0] = style
		p.Add(node, label)
	}
	return p.done()
}

// strongest returns the pairs to join, the strongest pair first.
func strongest(links mat.Symmetric) (pairs [][2]int) {
	for i := range links.SymmetricDim() {
		for j := range i {
			if math.Abs(links.At(i, j)) >= leastLink {
				pairs = append(pairs, [2]int{i, j})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b [2]int) int {
		if math.Abs(links.At(a[0], a[1])) > math.Abs(links.At(b[0], b[1])) {
			return -1
		}
		return 1
	})
	return pairs
}

// around returns the topics in an order in which neighbors are correlated: each topic is followed
// by the unused topic with the largest correlation.
func around(links mat.Symmetric) []int {
	k := links.SymmetricDim()
	var order []int
	used := make([]bool, k)
	for last := 0; len(order) < k; {
		next := -1
		for t := range k {
			if !used[t] && (next < 0 || links.At(last, t) > links.At(last, next)) {
				next = t
			}
		}
		order, used[next], last = append(order, next), true, next
	}
	return order
}
