package plot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

var nan, inf = math.NaN(), math.Inf(1)

// lines returns a series with n points.
func lines(name string, n int) Series {
	s := Series{Name: name}
	for i := range n {
		x := float64(i) / float64(n) * 10
		s.X, s.Y = append(s.X, x), append(s.Y, math.Sin(x))
		s.Lo, s.Hi = append(s.Lo, math.Sin(x)-0.3), append(s.Hi, math.Sin(x)+0.3)
	}
	return s
}

func row(name string, mean, sd, lo, hi float64) pgsvi.Effect {
	return pgsvi.Effect{Name: name, Mean: mean, SD: sd, Lo: lo, Hi: hi}
}

// grouped returns the effects of a number of levels. The first level has the largest mean.
func grouped(levels, effects int) *pgsvi.GroupSummary {
	g := &pgsvi.GroupSummary{Name: "region", Levels: levels,
		Mean: mat.NewDense(levels, effects, nil), SD: mat.NewDense(levels, effects, nil)}
	for j := range effects {
		e := pgsvi.GroupEffect{Name: []string{"(Intercept)", "age", "x", "y", "z"}[j], SD: 0.5,
			Lo: 0.25, Hi: 0.75}
		if j == 1 {
			e.Lo, e.Hi = nan, nan
		}
		g.Effects = append(g.Effects, e)
		for i := range levels {
			g.Mean.Set(i, j, 1-2*float64(i)/float64(levels))
			g.SD.Set(i, j, 0.3)
		}
	}
	return g
}

// pictures returns a picture of each kind with ordinary data.
func pictures() map[string]*gonum.Plot {
	at, truth := lines("observed", 12), lines("truth", 200)
	at.Look, truth.Look, truth.Lo, truth.Hi = Points, Dashes, nil, nil
	second := lines("second", 200).Shift(1)
	summary := &pgsvi.Summary{Likelihood: "Poisson",
		Rows: []pgsvi.Effect{row("(Intercept)", -1, 0.1, -1.2, -0.8),
			row("age", 0.5, 0.3, -0.1, 1.1)}}
	other := &pgsvi.Summary{Likelihood: "NegativeBinomial",
		Rows: []pgsvi.Effect{row("age", 0.4, 0.4, -0.4, 1.2), row("not there", 9, 1, 7, 11)}}
	var prob, y []float64
	for i := range 500 {
		prob = append(prob, float64(i)/499)
		y = append(y, 1)
		if i*7919%500 > i {
			y[i] = -1
		}
	}
	var fast, slow []pgsvi.Iteration
	for k := range 12 {
		fast = append(fast,
			pgsvi.Iteration{Passes: float64(k),
				Evaluation: pgsvi.Evaluation{ELBO: -5 - math.Pow(10, 1-float64(k)),
					Gap: math.Pow(10, 1-float64(k))}})
		slow = append(slow,
			pgsvi.Iteration{Passes: 2 * float64(k),
				Evaluation: pgsvi.Evaluation{ELBO: -5 - math.Pow(2, -float64(k)), Gap: nan}})
	}
	x := mat.NewDense(4, 2, []float64{0, 0, 1, 0, 0, 1, 1, 1})
	logistic := func(g *mat.Dense) []float64 {
		n, _ := g.Dims()
		p := make([]float64, n)
		for i := range p {
			p[i] = 1 / (1 + math.Exp(-8*(g.At(i, 0)-0.3-0.4*g.At(i, 1))))
		}
		return p
	}
	sigma := mat.NewSymDense(5, nil)
	for i := range 5 {
		sigma.SetSym(i, i, 1)
	}
	sigma.SetSym(0, 3, 0.7)
	sigma.SetSym(1, 2, -0.6)
	names := []string{"wind rain sun", "goal match team", "vote party law", "sea river fish",
		"bond stock bank"}
	return map[string]*gonum.Plot{
		"bands": Bands(Labels{"Two functions", "time (s)", "length (m)"}, second,
			lines("first", 200), truth, at),
		"components": Components(Labels{"Parts", "time (s)", "length (m)"}, lines("trend", 50),
			lines("season", 50)),
		"stack": Stack(Bands(Labels{Title: "above"}, lines("a", 9)),
			Bands(Labels{Title: "below"}, lines("b", 9))),
		"coefficients": Coefficients(Labels{Title: "Claims"}, summary, other),
		"calibration":  Calibration(Labels{Title: "Calibration"}, prob, y),
		"trace": Trace(Labels{Title: "Runs"}, -5, Run{"block steps", fast},
			Run{"small steps", slow}),
		"gap": Trace(Labels{}, nan, Run{"block steps", fast}),
		"probabilities": Probabilities(Labels{"Classes", "width (cm)", "height (cm)"},
			[2]string{"left", "right"}, x, []float64{-1, 1, -1, 1}, logistic),
		"groups": Groups(Labels{}, grouped(3, 2), []string{"Ost", "West", "Süd"}),
		"topics": TopicGraph(Labels{Title: "Topics"}, names,
			[]float64{0.1, 0.4, 0.2, 0.2, 0.1}, TopicLinks(sigma)),
	}
}

// TestSave checks that every picture can be written in every format, has the width of a README, and
// is not empty. PGSVI_PICTURES names a folder in which to keep the pictures.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	if see := os.Getenv("PGSVI_PICTURES"); see != "" {
		dir = see
	}
	for name, p := range pictures() {
		for i, ending := range []string{".png", ".svg", ".PDF"} {
			if testing.Short() && i != (len(name)+1)%3 {
				continue // some of each format
			}
			file := filepath.Join(dir, "new", name+ending)
			if err := Save(file, p, 0); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil || len(text) < 2000 {
				t.Errorf("%s has %d bytes: %v", file, len(text), err)
			}
			if ending == ".svg" {
				if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Inf")) {
					t.Errorf("%s has a NaN or Inf", file)
				}
			}
			if ending != ".png" {
				continue
			}
			img, _, err := image.Decode(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if w := img.Bounds().Dx(); w < 895 || w > 905 {
				t.Errorf("%s is %d pixels wide", file, w)
			}
		}
	}
	p := Bands(Labels{})
	for _, err := range []error{Save(filepath.Join(dir, "x.gif"), p, 0),
		Save(filepath.Join(dir, "x.png"), p, -1), Save(filepath.Join(dir, "x.png"), p, nan)} {
		if !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("error %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(t.TempDir(), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Save(filepath.Join(dir, "new", "bands.png", "x.png"), p, 0); err == nil {
		t.Error("a picture in a folder that is a file")
	}
}

// drawn returns the numbers of lines and areas that p draws, and its texts.
func drawn(p *gonum.Plot) (strokes, fills int, texts []string) {
	var c recorder.Canvas
	p.Draw(draw.NewCanvas(&c, 400, 300))
	for _, a := range c.Actions {
		switch a := a.(type) {
		case *recorder.Stroke:
			strokes++
		case *recorder.Fill:
			fills++
		case *recorder.FillString:
			texts = append(texts, a.String)
		}
	}
	return strokes, fills, texts
}

// TestTexts checks the texts of the pictures: titles, axes with units, and legends.
func TestTexts(t *testing.T) {
	all := pictures()
	for name, want := range map[string]string{
		"bands":      "Two functions;time (s);length (m);first;second;truth;observed",
		"components": "Parts;trend;season;time (s);length (m)",
		"coefficients": "Claims;coefficient (mean, 95% " +
			"interval);(Intercept);age;Poisson;NegativeBinomial",
		"calibration": "predicted probability;observed frequency;perfect calibration;50",
		"trace": "passes over the data;ELBO below its optimum (nats);block steps;small " +
			"steps;1e-10",
		"gap":           "estimated gap (nats)",
		"probabilities": "width (cm);height (cm);left;right;even odds;0.1 and 0.9",
		"groups": "region: effects of 3 levels;(Intercept);sd 0.5 (0.25 to 0.75);age;sd 0.5;Ost;" +
			"West;Süd;mean, 95% interval",
		"topics": "Topics;occur together;wind;bank",
	} {
		_, _, texts := drawn(all[name])
		for text := range strings.SplitSeq(want, ";") {
			if !slices.Contains(texts, text) {
				t.Errorf("%s: no %q in %q", name, text, texts)
			}
		}
	}
	if _, _, texts := drawn(all["coefficients"]); slices.Contains(texts, "not there") {
		t.Error("a row that the first summary has not")
	}
}

// TestLegendAbove checks that the legend is between the title and the area of the data, in rows
// that do not overlap.
func TestLegendAbove(t *testing.T) {
	var series []Series
	for i := range 9 {
		series = append(series, lines(fmt.Sprintf("a series, number %d", i), 20))
	}
	p := Bands(Labels{Title: "title"}, series...)
	var c recorder.Canvas
	area := draw.NewCanvas(&c, vg.Length(Width)*vg.Centimeter, 10*vg.Centimeter)
	p.Draw(area)
	top := p.DataCanvas(area).Max.Y
	title := vg.Length(0)
	heights := map[vg.Length]bool{}
	for _, a := range c.Actions {
		if s, ok := a.(*recorder.FillString); ok {
			switch {
			case s.String == "title":
				title = s.Point.Y
			case strings.HasPrefix(s.String, "a series"):
				heights[s.Point.Y] = true
				if s.Point.Y <= top {
					t.Errorf("%q is at %v, in the data up to %v", s.String, s.Point.Y, top)
				}
			}
		}
	}
	if len(heights) != 3 {
		t.Errorf("legend in %d rows", len(heights))
	}
	for y := range heights {
		if y+8 > title {
			t.Errorf("the legend at %v touches the title at %v", y, title)
		}
	}
}

// TestBands checks axes and gaps: three ranges of finite numbers are two lines and a point, and the
// axes cover the numbers that can be drawn.
func TestBands(t *testing.T) {
	s := Series{X: []float64{0, 1, 2, 3, 4, 5, 6, 7}, Y: []float64{1, 2, nan, 3, 4, inf, 5, 1e200}}
	if got := finite(s.X, s.Y); !slices.Equal(got, [][2]int{{0, 2}, {3, 5}, {6, 7}}) {
		t.Errorf("stretches %v", got)
	}
	p := Bands(Labels{}, s)
	if p.X.Min != 0 || p.X.Max != 7 || math.Abs(p.Y.Min-0.84) > 1e-12 ||
		math.Abs(p.Y.Max-5.16) > 1e-12 {
		t.Errorf("axes %v to %v and %v to %v", p.X.Min, p.X.Max, p.Y.Min, p.Y.Max)
	}
	without, _, _ := drawn(Bands(Labels{}, Series{X: []float64{0, 7}, Y: []float64{nan, nan}}))
	_, fills, _ := drawn(Bands(Labels{}, lines("a", 30), lines("b", 30)))
	_, none, _ := drawn(Bands(Labels{}))
	if without == 0 || fills-none < 2 {
		t.Errorf("%d strokes without data, %d areas for two bands", without, fills-none)
	}
}

// TestOddNumbers checks that axes are finite and that nothing panics, whatever the numbers are.
func TestOddNumbers(t *testing.T) {
	bad := []float64{nan, inf, -inf, math.MaxFloat64, 0, 5e-324}
	s := Series{Name: "odd", X: bad, Y: bad, Lo: bad, Hi: bad}
	points := s
	points.Look = Points
	rows := []pgsvi.Effect{row("a", nan, nan, nan, nan), row("b", 1, 0, -inf, inf),
		row("b", 1e300, 1, 0, 0)}
	for range 50 {
		rows = append(rows, pgsvi.Effect{Name: fmt.Sprint(len(rows)), Mean: float64(len(rows)),
			SD: 1})
	}
	trace := []pgsvi.Iteration{{Passes: nan}, {Evaluation: pgsvi.Evaluation{ELBO: nan, Gap: inf}},
		{Evaluation: pgsvi.Evaluation{ELBO: 1e300}}, {Evaluation: pgsvi.Evaluation{ELBO: 3}}}
	bads := func(g *mat.Dense) []float64 {
		n, _ := g.Dims()
		return slices.Repeat([]float64{nan}, n)
	}
	half := func(g *mat.Dense) []float64 {
		n, _ := g.Dims()
		return slices.Repeat([]float64{0.5}, n)
	}
	x := mat.NewDense(2, 2, []float64{nan, inf, 3, 3})
	odd := &pgsvi.GroupSummary{Effects: []pgsvi.GroupEffect{{SD: nan, Lo: nan, Hi: inf}},
		Mean: mat.NewDense(len(bad), 1, bad), SD: mat.NewDense(len(bad), 1, bad)}
	for name, p := range map[string]*gonum.Plot{
		"bands":   Bands(Labels{}, s, points),
		"nothing": Bands(Labels{}),
		"one":     Bands(Labels{}, Series{X: []float64{5}, Y: []float64{1e9}}),
		"tiny": Bands(Labels{},
			Series{X: []float64{1e9, 1e9 + 1e-6}, Y: []float64{1e-300, 2e-300}}),
		"large": Bands(Labels{},
			Series{X: []float64{-1e150, 1e150}, Y: []float64{-1e150, 1e150}}),
		"components":    Components(Labels{}, s),
		"coefficients":  Coefficients(Labels{}, &pgsvi.Summary{Rows: rows}, &pgsvi.Summary{}),
		"no rows":       Coefficients(Labels{}, &pgsvi.Summary{}),
		"calibration":   Calibration(Labels{}, bad, bad),
		"no data":       Calibration(Labels{}, nil, nil),
		"trace":         Trace(Labels{}, nan, Run{"a", trace}, Run{}),
		"traces":        Trace(Labels{}, 3, Run{"a", trace}),
		"probabilities": Probabilities(Labels{}, [2]string{}, x, []float64{1, nan}, bads),
		"flat":          Probabilities(Labels{}, [2]string{}, x, []float64{1, 1}, half),
		"groups":        Groups(Labels{}, odd, nil),
		"topics": TopicGraph(Labels{}, []string{"a", "b"}, []float64{nan, inf},
			mat.NewSymDense(2, []float64{1, nan, nan, 1})),
		"one topic": TopicGraph(Labels{}, []string{""}, []float64{1},
			mat.NewSymDense(1, []float64{1})),
	} {
		for _, a := range []gonum.Axis{p.X, p.Y} {
			if !(a.Min > -1.2e150) || !(a.Max < 1.2e150) || !(a.Min < a.Max) {
				t.Errorf("%s: axis from %v to %v", name, a.Min, a.Max)
			}
			if ticks := a.Tick.Marker.Ticks(a.Min, a.Max); len(ticks) > 50 {
				t.Errorf("%s: %d ticks", name, len(ticks))
			}
		}
		drawn(p)
	}
}

// TestGroups checks that a panel of effects starts with the largest mean, that its names do not
// overlap, and how many names it draws.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		levels, effects int
		height          vg.Length // in cm
		names           int       // in each panel
	}{
		{1, 1, 10, 1}, {18, 1, 10, 18}, {18, 3, 10, 18}, {18, 5, 20, 18}, {60, 2, 27, 60},
		{60, 1, 10, 20}, {61, 1, 40, 31}, {1000, 4, 60, 59},
	} {
		names := make([]string, c.levels)
		for i := range names {
			names[i] = fmt.Sprint("level ", i)
		}
		p := Groups(Labels{}, grouped(c.levels, c.effects), names)
		var r recorder.Canvas
		p.Draw(draw.NewCanvas(&r, vg.Length(Width)*vg.Centimeter, c.height*vg.Centimeter))
		panels, drawn, last := 0, 0, vg.Length(0)
		for _, a := range r.Actions {
			s, ok := a.(*recorder.FillString)
			if !ok || !strings.HasPrefix(s.String, "level") {
				continue
			}
			if drawn++; s.String == "level 0" {
				panels++ // its name is the first of a panel
			} else if last-s.Point.Y < s.Size {
				t.Errorf("%+v: %q is %v below another name of size %v", c, s.String,
					last-s.Point.Y, s.Size)
			}
			last = s.Point.Y
		}
		if panels != c.effects || drawn != c.effects*c.names {
			t.Errorf("%+v: %d panels start with the first level, and there are %d names", c, panels,
				drawn)
		}
	}
}

// TestGroupsClasses checks that each effect on each class has a panel with a title.
func TestGroupsClasses(t *testing.T) {
	g := grouped(6, 2)
	g.Classes = []string{"class=a", "class=b"}
	g.Mean, g.SD = mat.NewDense(6, 4, nil), mat.NewDense(6, 4, nil)
	p := Groups(Labels{}, g, nil)
	var r recorder.Canvas
	p.Draw(draw.NewCanvas(&r, vg.Length(Width)*vg.Centimeter, 20*vg.Centimeter))
	var titles []string
	for _, a := range r.Actions {
		if s, ok := a.(*recorder.FillString); ok && strings.Contains(s.String, "·") {
			titles = append(titles, s.String)
		}
	}
	want := []string{"class=a · (Intercept)", "class=a · age", "class=b · (Intercept)", "class=b · age"}
	if slices.Sort(titles); !slices.Equal(titles, want) {
		t.Errorf("titles %q, want %q", titles, want)
	}
}

// TestTicks checks that ticks are round, have enough decimals and are not too many.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{
		{0, 0.95, "0.0 0.2 0.4 0.6 0.8"},
		{-1, 1, "-1.0 -0.5 0.0 0.5 1.0"},
		{1959, 1998, "1960 1970 1980 1990"},
		{1000.001, 1000.0022,
			"1000.0010 1000.0012 1000.0014 1000.0016 1000.0018 1000.0020 1000.0022"},
		{0, 3e6, "0 500000 1000000 1500000 2000000 2500000 3000000"},
	} {
		var labels []string
		for _, tick := range round(c.lo, c.hi) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("from %v to %v: %s, want %s", c.lo, c.hi, got, c.want)
		}
	}
	if got := decades(-9, 2); len(got) != 12 || got[1].Label != "1e-8" || got[11].Label != "100" {
		t.Errorf("decades %v", got)
	}
}

// TestCalibration checks the bins and their intervals.
func TestCalibration(t *testing.T) {
	bins := binned(5, []float64{0, 0.1, 0.5, 1, nan, 0.5}, []float64{-1, 1, 1, 1, 1, nan})
	if bins[0].rows != 2 || bins[0].ones != 1 || bins[2].rows != 1 || bins[4].rows != 1 ||
		bins[4].predicted != 1 {
		t.Errorf("bins %+v", bins)
	}
	// 8 of 10: Wilson's interval, from the roots of (f − p)² = z²p(1−p)/n.
	if lo, hi := (bin{rows: 10, ones: 8}).interval(); math.Abs(lo-0.49016) > 1e-5 ||
		math.Abs(hi-0.94331) > 1e-5 {
		t.Errorf("interval [%v, %v]", lo, hi)
	}
}

// TestTrace checks that converged runs end at the floor, on a logarithmic axis of whole decades.
func TestTrace(t *testing.T) {
	p := pictures()["trace"]
	if p.Y.Min != -10 || p.Y.Max != 1 || p.X.Min != 0 || p.X.Max != 22 {
		t.Errorf("axes %v to %v and %v to %v", p.X.Min, p.X.Max, p.Y.Min, p.Y.Max)
	}
}

// TestTopicLinks checks three properties. Independent topics of any variances have no links,
// although their shares have negative correlations. A shift of all logits changes nothing. And a
// link is found.
func TestTopicLinks(t *testing.T) {
	const k = 20
	sigma := mat.NewSymDense(k, nil)
	for i := range k {
		sigma.SetSym(i, i, 5+0.5*float64(i))
	}
	check := func(what string, want float64) {
		t.Helper()
		links := TopicLinks(sigma)
		for i := range k {
			for j := range i {
				w := 0.0
				if i == 4 && j == 1 {
					w = want
				}
				if r := links.At(i, j); math.Abs(r-w) > 1e-12 && want == 0 || math.Abs(r-w) > 0.1 {

					t.Errorf("%s: link of %d and %d is %v, want %v", what, i, j, r, w)
				}
			}
		}
	}
	check("independent", 0)
	for i := range k {
		for j := range i + 1 {
			sigma.SetSym(i, j, sigma.At(i, j)+float64(i+j))
		}
	}
	check("shifted", 0)
	sigma.SetSym(4, 1, sigma.At(4, 1)+0.8*math.Sqrt(7*5.5))
	check("linked", 0.8)
	if links := TopicLinks(mat.NewSymDense(2, []float64{1, 0, 0, 2})); links.At(0, 1) != 0 {
		t.Error("a link of two topics, whose shares are one number")
	}
}

// TestPosterior checks the series of a prediction: 95% intervals of the latent value, and wider
// intervals of the response.
func TestPosterior(t *testing.T) {
	x := []float64{0, 1, 2}
	at := pgsvi.NewPrediction(pgsvi.GaussianNoise{Var: 3}, []float64{1, 2, 3}, []float64{1, 1, 1})
	l := Latent("f", x, at)
	r, err := Response("y", x, at)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(l.Hi[1]-2-1.96) > 1e-4 || math.Abs(r.Lo[1]-2+2*1.96) > 1e-4 || r.Y[2] != 3 {
		t.Errorf("latent %+v, response %+v", l, r)
	}
	up := l.Shift(10).Map(math.Log)
	if up.Y[0] != math.Log(11) || l.Y[0] != 1 {
		t.Errorf("shifted %v from %v", up.Y, l.Y)
	}
	if _, err := Response("y", x[:1],
		pgsvi.NewPrediction(nil, []float64{nan}, []float64{1})); !errors.Is(err,
		pgsvi.ErrNotFinite) {
		t.Errorf("error %v", err)
	}
}

// TestPanics checks the mistakes for which the documentation announces a panic.
func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"series": func() { Bands(Labels{}, Series{X: []float64{1}}) },
		"interval": func() {
			Bands(Labels{},
				Series{X: []float64{1}, Y: []float64{1}, Lo: []float64{1}})
		},
		"calibration": func() { Calibration(Labels{}, []float64{1}, nil) },
		"stack":       func() { Stack() },
		"inputs": func() {
			Probabilities(Labels{}, [2]string{}, mat.NewDense(1, 3, nil),
				[]float64{1}, nil)
		},
		"probabilities": func() {
			Probabilities(Labels{}, [2]string{}, mat.NewDense(1, 2, nil), []float64{1},
				func(*mat.Dense) []float64 { return nil })
		},
		"no group":    func() { Groups(Labels{}, &pgsvi.GroupSummary{}, nil) },
		"group names": func() { Groups(Labels{}, grouped(3, 1), []string{"a"}) },
		"group effects": func() {
			g := grouped(3, 2)
			g.Effects = g.Effects[:1]
			Groups(Labels{}, g, nil)
		},
		"topics": func() { TopicGraph(Labels{}, []string{"a"}, nil, mat.NewSymDense(1, nil)) },
	} {
		func() {
			defer func() {
				if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), "plot: ") {
					t.Errorf("%s: panic %v", name, v)
				}
			}()
			f()
		}()
	}
}

// TestFit draws the results of real fits.
func TestFit(t *testing.T) {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := gp.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, _, texts := drawn(
		Bands(Labels{}, Latent("log odds", x.RawMatrix().Data, post.At(x)))); s < 10 ||
		!slices.Contains(texts, "log odds") {
		t.Errorf("%d strokes, texts %q", s, texts)
	}
	p := Trace(Labels{}, res.ELBO, Run{"GP", res.Trace})
	if !(p.Y.Max > p.Y.Min && p.X.Max == res.Passes) {
		t.Errorf("axes to %v and from %v to %v", p.X.Max, p.Y.Min, p.Y.Max)
	}
}
