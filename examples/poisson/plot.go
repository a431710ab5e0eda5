package main

import (
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/gonum/floats"
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

// Colours that differ in lightness too, dashes and markers, for reading in grey.
var (
	black  = color.Gray{Y: 0x20}
	grid   = color.Gray{Y: 0xe4}
	blue   = color.RGBA{R: 0x00, G: 0x3f, B: 0x7d, A: 0xff}
	pale   = color.RGBA{R: 0xb8, G: 0xd3, B: 0xee, A: 0xff}
	orange = color.RGBA{R: 0xc8, G: 0x5a, B: 0x00, A: 0xff}
	sand   = color.RGBA{R: 0xf3, G: 0xdc, B: 0xc2, A: 0xff}

	dashed = []vg.Length{vg.Points(6), vg.Points(3)}
	dotted = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
)

// savePlot draws the rate of claims against age, and how many policies had how
// many claims, which shows the over-dispersion.
func savePlot(file string, p *portfolio, poisson, negbin *fit, rng *rand.Rand) error {
	rates := newPlot("Claims of cars by age of the driver", "age", "claims a year")
	rates.X.Min, rates.X.Max, rates.Y.Min = 17, 81, 0
	rates.X.Tick.Marker, rates.Y.Tick.Marker = every(10), every(0.25)
	var a artist
	for _, s := range []rateStyle{
		{"west", orange, sand, dashed, draw.TriangleGlyph{}},
		{"north", blue, pale, nil, draw.CircleGlyph{}},
	} {
		a.rate(rates, p, negbin, s)
	}
	rates.Legend.Add("lines: predicted, 95 %")
	rates.Legend.Add("marks: observed, 95 %")

	counts := newPlot("Policies by number of claims", "claims", "policies (log scale)")
	a.counts(counts, p, poisson, negbin, rng)
	if a.err != nil {
		return a.err
	}
	return savePNG(file, 26*vg.Centimeter, 11*vg.Centimeter, rates, counts)
}

// artist adds to plots and keeps the first error, so that it is checked once.
type artist struct{ err error }

func (a *artist) fail(err error) bool {
	if a.err == nil {
		a.err = err
	}
	return err != nil
}

type rateStyle struct {
	region     string
	line, band color.Color
	dashes     []vg.Length
	marker     draw.GlyphDrawer
}

// rate draws the predicted rate of a region with its interval, and the observed ones.
func (a *artist) rate(plt *plot.Plot, p *portfolio, f *fit, s rateStyle) {
	// New rows for prediction are text, too. Encode makes the columns of the
	// training data of it; there is no response.
	var csv strings.Builder
	csv.WriteString(header + "\n")
	ages := floats.Span(make([]float64, 125), 18, 80)
	for _, age := range ages {
		csv.WriteString(csvRow(s.region, "car", age, 1, 0))
	}
	t, err := p.Encode(strings.NewReader(csv.String()))
	if a.fail(err) {
		return
	}
	// Latent is the posterior of the log rate; a quantile of the rate is the
	// exponential of that of its logarithm.
	m, v := f.post.At(t.X).Latent(nil, nil)
	var mid, lo, hi plotter.XYs
	for i, age := range ages {
		sd := math.Sqrt(v[i])
		mid = append(mid, plotter.XY{X: age, Y: math.Exp(m[i])})
		lo = append(lo, plotter.XY{X: age, Y: math.Exp(m[i] - 1.96*sd)})
		hi = append(hi, plotter.XY{X: age, Y: math.Exp(m[i] + 1.96*sd)})
	}
	slices.Reverse(hi)
	band, err := plotter.NewPolygon(append(lo, hi...))
	if a.fail(err) {
		return
	}
	band.Color, band.Width = s.band, 0
	line, err := plotter.NewLine(mid)
	if a.fail(err) {
		return
	}
	line.Color, line.Width, line.Dashes = s.line, vg.Points(1.5), s.dashes
	seen := p.observed(s.region)
	bars, err := plotter.NewYErrorBars(seen)
	if a.fail(err) {
		return
	}
	bars.Color, bars.Width, bars.CapWidth = s.line, vg.Points(0.9), vg.Points(4)
	marks, err := plotter.NewScatter(seen)
	if a.fail(err) {
		return
	}
	marks.Color, marks.Radius, marks.Shape = s.line, vg.Points(2.8), s.marker
	plt.Add(band, line, bars, marks)
	plt.Legend.Add(s.region, band, line, marks)
}

// observedRates is claims a year with their intervals.
type observedRates struct {
	plotter.XYs
	plotter.YErrors
}

// observed returns the rates of the cars of a region, in groups of five years of
// age. The intervals know of the variation between policies.
func (p *portfolio) observed(region string) (seen observedRates) {
	const groups, width, youngest = 12, 5.0, 18.0
	var claims, years, squares [groups + 1]float64
	column := func(name string) int { return slices.Index(p.Names, name) }
	for i, y := range p.Y {
		if column("region="+region) < 0 || p.X.At(i, column("region="+region)) == 0 || p.X.At(i, column("vehicle=van")) != 0 {
			continue
		}
		age := 50 + 10*p.X.At(i, column("age"))
		g := min(int((age-youngest+0.5)/width), groups)
		claims[g] += y
		squares[g] += y * y
		years[g] += math.Exp(p.offset[i])
	}
	for g := range claims {
		if claims[g] < 5 {
			continue // too few for an interval of a normal distribution
		}
		r := claims[g] / years[g]
		half := 1.96 * math.Sqrt(squares[g]) / years[g]
		mid := youngest + width*(float64(g)+0.5) - 0.5
		seen.XYs = append(seen.XYs, plotter.XY{X: math.Min(mid, 79), Y: r})
		seen.YErrors = append(seen.YErrors, struct{ Low, High float64 }{math.Min(r, half), half})
	}
	return seen
}

// counts draws the numbers of policies with 0, 1, … claims, and what is expected.
func (a *artist) counts(plt *plot.Plot, p *portfolio, poisson, negbin *fit, rng *rand.Rand) {
	const most = 8
	seen, fromNegBin, err := p.frequencies(negbin, most, rng)
	if a.fail(err) {
		return
	}
	_, fromPoisson, err := p.frequencies(poisson, most, rng)
	if a.fail(err) {
		return
	}
	const least = 0.5 // policies that are drawn
	log := func(y float64) float64 { return math.Log10(math.Max(least, y)) }
	plt.X.Min, plt.X.Max = -0.6, most+0.6
	plt.Y.Min, plt.Y.Max = log(least), log(float64(len(p.Y)))+0.2
	plt.Y.Tick.Marker = plot.TickerFunc(decades)
	plt.X.Tick.Marker = every(1)

	bars := &plotter.Histogram{Width: 1, FillColor: color.Gray{Y: 0xd4}, LineStyle: draw.LineStyle{Color: color.White, Width: vg.Points(1)}}
	for k, n := range seen {
		// The columns of a histogram begin at 0, the axis below it.
		box, err := plotter.NewPolygon(plotter.XYs{
			{X: float64(k) - 0.42, Y: log(least)}, {X: float64(k) - 0.42, Y: log(n)},
			{X: float64(k) + 0.42, Y: log(n)}, {X: float64(k) + 0.42, Y: log(least)},
		})
		if a.fail(err) {
			return
		}
		box.Color, box.Width = bars.FillColor, 0
		plt.Add(box)
	}
	plt.Legend.Add("observed", bars)
	for _, e := range []struct {
		name   string
		y      []float64
		color  color.Color
		dashes []vg.Length
		marker draw.GlyphDrawer
	}{
		{"Poisson expects", fromPoisson, black, dotted, draw.SquareGlyph{}},
		{"negative binomial expects", fromNegBin, blue, nil, draw.CircleGlyph{}},
	} {
		var xys plotter.XYs
		for k, y := range e.y {
			if y >= least {
				xys = append(xys, plotter.XY{X: float64(k), Y: log(y)})
			}
		}
		line, marks, err := plotter.NewLinePoints(xys)
		if a.fail(err) {
			return
		}
		line.Color, line.Width, line.Dashes = e.color, vg.Points(1.3), e.dashes
		marks.Color, marks.Radius, marks.Shape = e.color, vg.Points(3), e.marker
		plt.Add(line, marks)
		plt.Legend.Add(e.name, line, marks)
	}
}

// newPlot returns an empty plot.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(30)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(6), -vg.Points(4)
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = grid, grid
	p.Add(g)
	return p
}

// decades marks the powers of ten on an axis of logarithms.
func decades(lo, hi float64) (ticks []plot.Tick) {
	for e := math.Ceil(lo); e <= hi; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: fmt.Sprint(math.Pow10(int(e)))})
	}
	return ticks
}

// every marks the multiples of step.
func every(step float64) plot.TickerFunc {
	return func(lo, hi float64) (ticks []plot.Tick) {
		for v := 0.0; v <= hi; v += step {
			ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
		}
		return ticks
	}
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
