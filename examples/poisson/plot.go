package main

import (
	"image/color"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/examples/internal/draw"
	"gonum.org/v1/gonum/floats"
	vg "gonum.org/v1/plot/vg/draw"
)

// savePlot draws the rate of claims against age, and how many policies had how
// many claims, which shows the over-dispersion.
func savePlot(file string, p *portfolio, poisson, negbin *fit, rng *rand.Rand) error {
	rates := draw.New("Claims of cars by age of the driver", "age", "claims a year")
	rates.X.Min, rates.X.Max, rates.Y.Min = 17, 81, 0
	p.drawRate(rates, negbin, "west", draw.Sand, draw.Style{Color: draw.Orange, Dashes: draw.Dashed, Marker: vg.TriangleGlyph{}})
	p.drawRate(rates, negbin, "north", draw.Pale, draw.Style{Color: draw.Blue, Marker: vg.CircleGlyph{}})
	rates.Legend.Add("lines: predicted, 95 %")
	rates.Legend.Add("marks: observed, 95 %")

	counts := draw.New("Policies by number of claims", "claims", "policies (log scale)")
	p.drawCounts(counts, poisson, negbin, rng)
	return draw.Save(file, 26, 11, rates, counts)
}

// drawRate draws the predicted rate of a region with its interval, and the observed ones.
func (p *portfolio) drawRate(panel *draw.Panel, f *fit, region string, band color.Color, s draw.Style) {
	ages := floats.Span(make([]float64, 125), 18, 80)
	m, v, err := p.logRate(f, region, ages)
	if panel.Fail(err) {
		return
	}
	// A quantile of the rate is the exponential of that of its logarithm.
	mid, lo, hi := make([]float64, len(m)), make([]float64, len(m)), make([]float64, len(m))
	for i := range m {
		sd := math.Sqrt(v[i])
		mid[i], lo[i], hi[i] = math.Exp(m[i]), math.Exp(m[i]-1.96*sd), math.Exp(m[i]+1.96*sd)
	}
	panel.Band("", ages, lo, hi, band)
	panel.Curve("", ages, mid, draw.Style{Color: s.Color, Dashes: s.Dashes, Width: 1.5})
	at, seen, low, high := p.observed(region)
	panel.Intervals(region, at, seen, low, high, s)
}

// logRate returns the posterior means and variances of the log rate of cars of a region.
func (p *portfolio) logRate(f *fit, region string, ages []float64) (m, v []float64, err error) {
	// New rows for prediction are text, too. The encoder makes the columns of the
	// training data of it.
	var csv strings.Builder
	csv.WriteString(header + "\n")
	for _, age := range ages {
		csv.WriteString(csvRow(region, "car", age, 1, 0))
	}
	t, err := data.Read(strings.NewReader(csv.String()), region)
	if err != nil {
		return nil, nil, err
	}
	d, err := p.encoder.Data(t)
	if err != nil {
		return nil, nil, err
	}
	m, v = f.post.At(d.X).Latent(nil, nil)
	return m, v, nil
}

// observed returns the rates of the cars of a region, in groups of five years of
// age. The intervals know of the variation between policies.
func (p *portfolio) observed(region string) (at, seen, lo, hi []float64) {
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
		years[g] += math.Exp(p.Offset[i])
	}
	for g := range claims {
		if claims[g] < 5 {
			continue // too few for an interval of a normal distribution
		}
		r := claims[g] / years[g]
		half := 1.96 * math.Sqrt(squares[g]) / years[g]
		mid := youngest + width*(float64(g)+0.5) - 0.5
		at, seen = append(at, math.Min(mid, 79)), append(seen, r)
		lo, hi = append(lo, math.Max(0, r-half)), append(hi, r+half)
	}
	return at, seen, lo, hi
}

// drawCounts draws the numbers of policies with 0, 1, … claims, and what is expected.
func (p *portfolio) drawCounts(panel *draw.Panel, poisson, negbin *fit, rng *rand.Rand) {
	const most = 8
	const least = 0.5 // policies that are drawn
	seen, fromNegBin, err := p.frequencies(negbin, most, rng)
	if panel.Fail(err) {
		return
	}
	_, fromPoisson, err := p.frequencies(poisson, most, rng)
	if panel.Fail(err) {
		return
	}
	panel.LogY()
	panel.X.Min, panel.X.Max = -0.6, most+0.6
	panel.X.Tick.Marker = draw.Every(1)
	claims := floats.Span(make([]float64, most+1), 0, most)
	panel.Bars("observed", claims, seen, least, 0.84, draw.Light)
	for k := range claims {
		if fromPoisson[k] < least {
			fromPoisson[k] = math.NaN() // not drawn
		}
		if fromNegBin[k] < least {
			fromNegBin[k] = math.NaN()
		}
	}
	panel.Curve("Poisson expects", claims, fromPoisson, draw.Style{Color: draw.Black, Dashes: draw.Dotted, Marker: vg.SquareGlyph{}})
	panel.Curve("negative binomial expects", claims, fromNegBin, draw.Style{Color: draw.Blue, Marker: vg.CircleGlyph{}})
	panel.Range(least, 1.6*float64(len(p.Y)))
}
