// Package plot draws fits and posteriors: bands, coefficients, calibration, traces, the components
// of a Gaussian process, the effects of the levels of a group, the probabilities of a classifier, and
// the correlations of topics.
//
// Each function returns a gonum.Plot, which can be changed before [Save] writes it as PNG, SVG or
// PDF:
//
//	p := plot.Bands(plot.Labels{Title: "Mauna Loa", X: "year", Y: "CO2 (ppm)"},
//		plot.Latent("trend", years, post.At(x)))
//	err := plot.Save("co2.png", p, 0)
//
// Numbers that are NaN, infinite or above 1e150 are not drawn, so axes are always finite. Functions
// panic if slices that belong together have different lengths. Color-blind readers can tell the
// colors apart. The legend is above the axes, where it hides no data.
package plot

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Labels holds the texts of a picture. The label of an axis should name its unit: "time (years)".
// Empty texts are omitted, or replaced by a default if the function documents it.
type Labels struct{ Title, X, Y string }

// A Look selects how a Series is drawn.
type Look int

const (
	Curve  Look = iota // a solid line
	Dashes             // a dashed line for comparison, such as the true function
	Points             // points, with error bars if Lo and Hi are set
)

// A Series is a function of one input, or observations of such a function.
type Series struct {
	// Name is the entry in the legend; empty means no entry. Series with the same name have the
	// same color and share an entry.
	Name string
	// X holds the inputs, which must increase for a curve, and Y holds the values at the inputs.
	X, Y []float64
	// Lo and Hi are the ends of an interval around each Y. Nil means no intervals.
	Lo, Hi []float64
	Look   Look
}

// z95 is the 97.5% quantile of the standard normal distribution.
const z95 = 1.959963984540054

// Latent returns the means of the latent values of a prediction, without noise, and central 95%
// credible intervals. x holds the input of each row, and the result shares its memory; see
// [Series].
func Latent(name string, x []float64, at *pgsvi.Prediction) Series {
	mean, variance := at.Latent(nil, nil)
	s := Series{Name: name, X: x, Y: mean}
	for i, m := range mean {
		half := z95 * math.Sqrt(variance[i])
		s.Lo, s.Hi = append(s.Lo, m-half), append(s.Hi, m+half)
	}
	return s
}

// Response returns the means of the responses of a prediction, and central 95% intervals for new
// responses. x is the same as for [Latent]. The error is an error of Prediction.Moments or
// Prediction.Quantile.
func Response(name string, x []float64, at *pgsvi.Prediction) (Series, error) {
	s := Series{Name: name, X: x}
	var err error
	if s.Y, _, err = at.Moments(nil, nil); err != nil {
		return s, err
	}
	if s.Lo, err = at.Quantile(nil, 0.025); err != nil {
		return s, err
	}
	s.Hi, err = at.Quantile(nil, 0.975)
	return s, err
}

// Shift returns s with c, such as the mean of the data, added to every value.
func (s Series) Shift(c float64) Series { return s.Map(func(y float64) float64 { return y + c }) }

// Map returns s with f applied to every value and every end of an interval. An increasing f maps
// quantiles to quantiles; for example, math.Exp turns a log rate into a rate.
func (s Series) Map(f func(y float64) float64) Series {
	for _, v := range []*[]float64{&s.Y, &s.Lo, &s.Hi} {
		*v = slices.Clone(*v)
		for i := range *v {
			(*v)[i] = f((*v)[i])
		}
	}
	return s
}

// check panics if the slices of a series have different lengths.
func (s Series) check() {
	n := len(s.X)
	if len(s.Y) != n || (s.Lo != nil || s.Hi != nil) && (len(s.Lo) != n || len(s.Hi) != n) {
		panic(fmt.Sprintf("plot: series %q has %d X, %d Y, %d Lo and %d Hi; the lengths must agree",
			s.Name, n, len(s.Y), len(s.Lo), len(s.Hi)))
	}
}

// Bands draws series of one input: points, curves, and the intervals of curves as bands. Lines are
// drawn over bands, and points over lines. A curve has gaps where its numbers cannot be drawn.
func Bands(l Labels, series ...Series) *gonum.Plot {
	p := newPicture(l)
	var x, y span
	for _, s := range series {
		s.check()
		x.add(s.X)
		y.add(s.Y, s.Lo, s.Hi)
	}
	x.axis(&p.X, 0)
	y.axis(&p.Y, 0.04)
	looks := looksOf(series)
	for i, s := range series {
		if s.Lo == nil || s.Look == Points {
			continue
		}
		for _, r := range finite(s.X, s.Lo, s.Hi) {
			above := pairs(s.X[r[0]:r[1]], s.Hi[r[0]:r[1]])
			below := pairs(s.X[r[0]:r[1]], s.Lo[r[0]:r[1]])
			slices.Reverse(above)
			band := must(plotter.NewPolygon(append(below, above...)))
			band.Color, band.LineStyle.Width = pale(looks[i].color), 0
			p.Add(band)
			p.key(s.Name, band)
		}
	}
	for i, s := range series {
		if s.Look == Points {
			continue
		}
		for _, r := range finite(s.X, s.Y) {
			line := must(plotter.NewLine(pairs(s.X[r[0]:r[1]], s.Y[r[0]:r[1]])))
			line.LineStyle = looks[i].line()
			p.Add(line)
			p.key(s.Name, line)
		}
	}
	for i, s := range series {
		if s.Look == Points {
			p.points(s, looks[i])
		}
	}
	return p.done()
}

// looksOf returns the style of each series. A series that shares its name with a curve has the
// style of the curve. Each other name has the next free style, except that the first points and the
// first dashes are dark.
func looksOf(series []Series) []style {
	known := make(map[string]style)
	dark := map[Look]bool{Curve: true}
	looks := make([]style, len(series))
	for _, curves := range []bool{true, false} { // curves choose first
		for i, s := range series {
			if (s.Look == Curve) != curves {
				continue
			}
			st, ok := known[s.Name]
			if !ok {
				st = styles[len(known)%len(styles)]
				if !dark[s.Look] {
					st, dark[s.Look] = style{color: ink, glyph: draw.CircleGlyph{}}, true
				}
				known[s.Name] = st
			}
			if s.Look == Dashes {
				st.dashes = dashed
			}
			looks[i] = st
		}
	}
	return looks
}

// Components draws the parts of a Gaussian process, such as trend and season, each with its band in
// a panel of its own. The name of a part is the title of its panel, and l.Y labels every panel. See
// GPPosterior.Part and [Latent]. Allow a height of about 5 cm per part in [Save].
func Components(l Labels, parts ...Series) *gonum.Plot {
	panels := make([]*gonum.Plot, len(parts))
	for i, part := range parts {
		labels := Labels{Title: part.Name, Y: l.Y}
		if i == len(parts)-1 {
			labels.X = l.X
		}
		part.Name = ""
		panels[i] = Bands(labels, part)
	}
	return stack(l.Title, panels)
}

// Stack combines pictures into one picture, one above the other with aligned axes. It panics if
// there are no pictures.
func Stack(pictures ...*gonum.Plot) *gonum.Plot { return stack("", pictures) }

func stack(title string, panels []*gonum.Plot) *gonum.Plot {
	if len(panels) == 0 {
		panic("plot: no pictures to stack")
	}
	p := newPicture(Labels{Title: title}).Plot
	p.HideAxes()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.Add(panelsOf(panels))
	return p
}

// panelsOf implements gonum's Plotter for whole pictures.
type panelsOf []*gonum.Plot

// Plot implements gonum's Plotter.
func (s panelsOf) Plot(c draw.Canvas, _ *gonum.Plot) {
	rows := make([][]*gonum.Plot, len(s))
	for i, p := range s {
		rows[i] = []*gonum.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(s), Cols: 1, PadY: vg.Points(14)}
	for i, at := range gonum.Align(rows, tiles, c) {
		s[i].Draw(at[0])
	}
}

// Width is the width of every picture in centimeters. A PNG is 900 pixels wide, which fits a
// README.
const Width = 16

// Save writes a picture to a file whose name ends in .png, .svg or .pdf. It creates the folder if
// necessary and replaces an existing file. height is in centimeters; 0 means 10. The error wraps
// pgsvi.ErrParam if the name has another ending, or if the height is negative or above 200.
// Otherwise it is an error of the file system.
func Save(file string, p *gonum.Plot, height float64) error {
	if height == 0 {
		height = 10
	}
	ending := strings.ToLower(filepath.Ext(file))
	switch {
	case ending != ".png" && ending != ".svg" && ending != ".pdf":
		return fmt.Errorf("pgsvi: plot.Save: %w: the name %q must end in .png, .svg or .pdf",
			pgsvi.ErrParam, file)
	case !(height > 0 && height <= 200):
		return fmt.Errorf("pgsvi: plot.Save: %w: the height is %v cm; it must be from 0 to 200",
			pgsvi.ErrParam, height)
	}
	const margin = 8
	w, h := vg.Length(Width)*vg.Centimeter, vg.Length(height)*vg.Centimeter
	var canvas vg.CanvasWriterTo
	if ending == ".png" {
		img := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(143))
		canvas = vgimg.PngCanvas{Canvas: img}
	} else {
		var err error
		if canvas, err = draw.NewFormattedCanvas(w, h, ending[1:]); err != nil {
			return fmt.Errorf("pgsvi: plot.Save: %w", err)
		}
	}
	all := draw.NewCanvas(canvas, w, h)
	if p.BackgroundColor != nil {
		all.SetColor(p.BackgroundColor)
		all.Fill(all.Rectangle.Path())
	}
	p.Draw(draw.Crop(all, margin, -1.5*margin, margin, -margin))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", file, err)
	}
	return f.Close()
}
