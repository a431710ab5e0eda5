package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// maxRows is the largest number of rows that Coefficients draws.
const maxRows = 40

// Coefficients draws means with 95% intervals by name (a forest plot), and a line at 0. The rows
// have the order of the first summary. Rows with the same name in other summaries, of fits to
// compare, are drawn below the row of the first. If the first summary has more than 40 rows,
// Coefficients draws the 40 rows whose means are the most standard deviations from 0. If there are
// two or more summaries, the legend shows Summary.Likelihood. Allow a height of about 0.6 cm per
// row in [Save]. An empty l.X means "coefficient (mean, 95% interval)". Coefficients panics if
// there are no summaries.
func Coefficients(l Labels, summaries ...*pgsvi.Summary) *gonum.Plot {
	if l.X == "" {
		l.X = "coefficient (mean, 95% interval)"
	}
	p := newPicture(l)
	rows := slices.Clone(summaries[0].Rows)
	if len(rows) > maxRows {
		far := func(r pgsvi.Effect) float64 { return math.Abs(r.Mean) / r.SD }
		sorted := slices.Clone(rows)
		slices.SortStableFunc(sorted, func(a, b pgsvi.Effect) int {
			switch {
			case far(a) > far(b) || math.IsNaN(far(b)):
				return -1
			case far(a) < far(b):
				return 1
			}
			return 0
		})
		names := make(map[string]bool)
		for _, r := range sorted[:maxRows] {
			names[r.Name] = true
		}
		rows = slices.DeleteFunc(rows, func(r pgsvi.Effect) bool { return !names[r.Name] })
	}
	ticks := make(gonum.ConstantTicks, len(rows))
	height := make(map[string]float64)
	for i, r := range rows {
		height[r.Name] = float64(len(rows) - 1 - i)
		ticks[i] = gonum.Tick{Value: height[r.Name], Label: r.Name}
	}
	p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.LineStyle.Width = ticks, 0, 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	var x span
	x.add([]float64{0})
	for k, s := range summaries {
		look := styles[k%len(styles)]
		name := ""
		if len(summaries) > 1 {
			name = s.Likelihood
		}
		for _, r := range s.Rows {
			y, ok := height[r.Name]
			if !ok || !drawable(r.Mean) {
				continue
			}
			y += 0.5 * (float64(len(summaries)-1)/2 - float64(k)) / float64(len(summaries))
			x.add([]float64{r.Mean, r.Lo, r.Hi})
			if drawable(r.Lo) && drawable(r.Hi) {
				bar := must(plotter.NewLine(plotter.XYs{{X: r.Lo, Y: y}, {X: r.Hi, Y: y}}))
				bar.LineStyle = look.line()
				p.Add(bar)
			}
			dot := must(plotter.NewScatter(plotter.XYs{{X: r.Mean, Y: y}}))
			dot.GlyphStyle = look.mark(3)
			p.Add(dot)
			if !slices.Contains(p.keys.names, name) {
				p.key(name, dot)
			}
		}
	}
	x.axis(&p.X, 0.05)
	zero := must(plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}}))
	zero.Color, zero.Dashes = gray, dashed
	p.Add(zero)
	return p.done()
}

// A bin counts the rows whose predicted probability lies in an interval.
type bin struct{ rows, ones, predicted float64 }

// binned sorts predictions into n bins of equal width. It ignores rows without a probability.
func binned(n int, prob, y []float64) []bin {
	bins := make([]bin, n)
	for i, p := range prob {
		if !(p >= 0 && p <= 1) || math.IsNaN(y[i]) {
			continue
		}
		b := &bins[min(int(float64(n)*p), n-1)]
		b.rows++
		b.predicted += p
		if y[i] > 0 {
			b.ones++
		}
	}
	return bins
}

// interval returns the 95% confidence interval of the probability of the bin (Wilson 1927).
func (b bin) interval() (lo, hi float64) {
	f, n := b.ones/b.rows, b.rows
	centre := (f + z95*z95/(2*n)) / (1 + z95*z95/n)
	half := z95 / (1 + z95*z95/n) * math.Sqrt(f*(1-f)/n+z95*z95/(4*n*n))
	return centre - half, centre + half
}

// Calibration draws the observed frequency of the label +1 against its predicted probability, with
// 95% intervals (Wilson 1927), which should contain the diagonal. prob holds P(y = +1) of each row,
// and y holds the labels, −1 or 0 and +1. Use rows that the fit has not seen. There are 10 bins of
// equal width, or 5 bins for fewer than 200 rows. The number next to a bin is its number of rows.
// Empty labels of axes are replaced by defaults.
func Calibration(l Labels, prob, y []float64) *gonum.Plot {
	if len(prob) != len(y) {
		panic(fmt.Sprintf("plot: %d probabilities and %d labels", len(prob), len(y)))
	}
	if l.X == "" {
		l.X = "predicted probability"
	}
	if l.Y == "" {
		l.Y = "observed frequency"
	}
	n := 10
	if len(y) < 200 {
		n = 5
	}
	p := newPicture(l)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	diagonal := must(plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}))
	diagonal.Color, diagonal.Dashes, diagonal.Width = gray, dashed, vg.Points(1.2)
	p.Add(diagonal)
	p.key("perfect calibration", diagonal)
	s := Series{Name: fmt.Sprintf("%d bins with 95%% intervals and their rows", n)}
	var labels []string
	for _, b := range binned(n, prob, y) {
		if b.rows == 0 {
			continue
		}
		lo, hi := b.interval()
		s.X, s.Y = append(s.X, b.predicted/b.rows), append(s.Y, b.ones/b.rows)
		s.Lo, s.Hi = append(s.Lo, lo), append(s.Hi, hi)
		labels = append(labels, strconv.Itoa(int(b.rows)))
	}
	p.points(s, styles[0])
	if len(labels) > 0 {
		texts := must(plotter.NewLabels(plotter.XYLabels{XYs: pairs(s.X, s.Y), Labels: labels}))
		for i := range texts.TextStyle {
			texts.TextStyle[i].Font, texts.TextStyle[i].Color = sans(9), ink
			texts.TextStyle[i].XAlign, texts.TextStyle[i].YAlign = text.XLeft, text.YCenter
			texts.Offset = vg.Point{X: vg.Points(6)}
			if s.X[i] > 0.9 { // left of the point, where there is room
				texts.TextStyle[i].XAlign = text.XRight
				texts.XYs[i].X -= 0.03
			}
		}
		p.Add(texts)
	}
	return p.done()
}

// A Run is a fit that [Trace] draws.
type Run struct {
	Name  string
	Trace []pgsvi.Iteration // the Trace of its Result
}

// Trace draws the distance of runs from the optimum after each pass over the data, in nats on a
// logarithmic scale, where linear convergence is a straight line. best is the ELBO at the optimum,
// such as the ELBO of a converged fit. If best is NaN, Trace draws the Gap that each evaluation
// estimates. Distances below the rounding error (1e-10 nats, or 1e-13 |best|) are drawn at the
// rounding error. Empty labels of axes are replaced by defaults. To change the range of the Y axis,
// set the base-10 logarithms of its ends.
func Trace(l Labels, best float64, runs ...Run) *gonum.Plot {
	if l.X == "" {
		l.X = "passes over the data"
	}
	if l.Y == "" {
		l.Y = "ELBO below its optimum (nats)"
		if math.IsNaN(best) {
			l.Y = "estimated gap (nats)"
		}
	}
	floor := 1e-10
	if drawable(best) {
		floor = math.Max(floor, 1e-13*math.Abs(best))
	}
	p := newPicture(l)
	var x, y span
	marked := true // whether every run has few points
	for _, run := range runs {
		marked = marked && len(run.Trace) <= 40
	}
	for k, run := range runs {
		s := Series{Name: run.Name}
		for _, it := range run.Trace {
			d := best - it.ELBO
			if math.IsNaN(best) {
				d = it.Gap
			}
			if drawable(d) && drawable(it.Passes) {
				s.X, s.Y = append(s.X, it.Passes), append(s.Y, math.Log10(math.Max(d, floor)))
			}
		}
		if len(s.X) == 0 {
			continue
		}
		x.add(s.X)
		y.add(s.Y)
		look := styles[k%len(styles)]
		line := must(plotter.NewLine(pairs(s.X, s.Y)))
		line.LineStyle = look.line()
		p.Add(line)
		p.key(run.Name, line)
		if marked {
			dots := must(plotter.NewScatter(pairs(s.X, s.Y)))
			dots.GlyphStyle = look.mark(2.4)
			p.Add(dots)
			p.key(run.Name, dots)
		}
	}
	x.add([]float64{0})
	x.axis(&p.X, 0)
	y.axis(&p.Y, 0)
	// Gonum's LogScale would leave space for a label that is not in the middle of the axis.
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = math.Floor(p.Y.Min), math.Ceil(p.Y.Max),
		gonum.TickerFunc(decades)
	return p.done()
}
