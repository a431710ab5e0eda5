package data

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestCoefficients checks that the coefficients of known functions are the coefficients in the
// functions, per unit of the columns.
func TestCoefficients(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	type row struct {
		x, z float64
		f, g string
		d    int
	}
	var rows []row
	for range 200 {
		rows = append(rows, row{50 + 3*rng.NormFloat64(), 2 + rng.NormFloat64(),
			string("aabc"[rng.IntN(4)]), []string{"no", "yes"}[rng.IntN(2)], rng.IntN(2)})
	}
	is := func(a, b string) float64 { return float64(b2i(a == b)) }
	for _, c := range []struct {
		formula string
		y       func(r row) float64
		want    map[string]float64
	}{
		{"y ~ x + f", func(r row) float64 { return 2 + 0.3*r.x - 4*is(r.f, "b") + is(r.f, "c") },
			map[string]float64{"(Intercept)": 2, "x": 0.3, "f=b": -4, "f=c": 1}},
		{"y ~ x*z", func(r row) float64 { return 1 - 2*r.x + 3*r.z + 0.5*r.x*r.z },
			map[string]float64{"(Intercept)": 1, "x": -2, "z": 3, "x:z": 0.5}},
		{"y ~ x*f*g", func(r row) float64 {
			return 5 + r.x - 2*is(r.f, "b") + 3*is(r.g, "yes") + 0.1*r.x*is(r.g, "yes") +
				0.2*r.x*is(r.f, "c")*is(r.g, "yes")
		}, map[string]float64{"(Intercept)": 5, "x": 1, "f=b": -2, "f=c": 0, "g=yes": 3, "x:f=b": 0,
			"x:f=c": 0, "x:g=yes": 0.1, "f=b:g=yes": 0, "f=c:g=yes": 0, "x:f=b:g=yes": 0,
			"x:f=c:g=yes": 0.2}},
		{"y ~ 0 + f + x", func(r row) float64 { return 7*is(r.f, "a") + is(r.f, "b") - 0.1*r.x },
			map[string]float64{"f=a": 7, "f=b": 1, "f=c": 0, "x": -0.1}},
		{"y ~ f + x:f", func(r row) float64 {
			return 4 + is(r.f, "b") + r.x*(1+is(r.f, "c"))
		}, map[string]float64{"(Intercept)": 4, "f=b": 1, "f=c": 0, "x:f=a": 1, "x:f=b": 1,
			"x:f=c": 2}},
		{"y ~ x:f", func(r row) float64 { return -3 + r.x*(1+is(r.f, "c")) },
			map[string]float64{"(Intercept)": -3, "x:f=a": 1, "x:f=b": 1, "x:f=c": 2}},
		{"y ~ 0 + x + x:g", func(r row) float64 { return 2*r.x + 0.5*r.x*is(r.g, "yes") },
			nil}, // no and yes have a slope each beside that of x: only their sums are known
		{"y ~ d + x*d", func(r row) float64 { return 1 + 2*float64(r.d)*r.x },
			map[string]float64{"(Intercept)": 1, "d": 0, "x": 0, "x:d": 2}},
		{"y ~ log(x) + z", func(r row) float64 { return 1 + 2*math.Log(r.x) - r.z },
			map[string]float64{"(Intercept)": 1, "log(x)": 2, "z": -1}},
	} {
		var b strings.Builder
		b.WriteString("x,z,f,g,d,y\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "%.17g,%.17g,%s,%s,%d,%.17g\n", r.x, r.z, r.f, r.g, r.d, c.y(r))
		}
		m := mustModel(t, tableOf(t, b.String()), c.formula, Number("d"), Outcome("y").Quantity())
		_, opt, err := m.Options(nil, &pgsvi.GLMOptions{PriorSD: 1e5, InterceptSD: 1e5})
		if err != nil {
			t.Fatal(err)
		}
		opt.Learn = nil
		glm, err := pgsvi.NewGLM(m.X, m.Y, pgsvi.GaussianNoise{Var: 1e-4}, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := m.Summary(post)
		if c.want == nil {
			continue
		}
		if len(s.Coefficients) != len(c.want) {
			t.Errorf("%s: %d coefficients, want %d\n%v", c.formula, len(s.Coefficients),
				len(c.want), s)
		}
		for _, q := range s.Coefficients {
			if want, ok := c.want[q.Name]; !ok || math.Abs(q.Mean-want) > 1e-4+1e-2*q.SD {
				t.Errorf("%s: %s is %v ± %v, want %v", c.formula, q.Name, q.Mean, q.SD, want)
			}
			if q.Name == "x" && math.Abs(q.PerSD-3*q.Mean) > 0.5*math.Abs(q.Mean) {
				t.Errorf("%s: x per sd is %v", c.formula, q.PerSD)
			}
		}
	}
}

// TestCoefficientsOfPoly compares the coefficients of a polynomial with R, where the columns of
// poly have a sum of squares of 1. A row of weight 3 counts as three rows.
func TestCoefficientsOfPoly(t *testing.T) {
	// lm(y ~ poly(x, 2)) for x = 1, …, 9, each w times, and y = x² + 1/2
	for _, c := range []struct {
		weights string
		want    []float64
	}{
		{"1 1 1 1 1 1 1 1 1", []float64{32.16666666666667, 77.45966692414834, 17.54992877478424}},
		{"3 1 2 1 1 1 1 2 2", []float64{32, 107.9690127542784, 22.89524590098279}},
	} {
		var b strings.Builder
		b.WriteString("x,w,y\n")
		for i, w := range strings.Fields(c.weights) {
			fmt.Fprintf(&b, "%d,%s,%d.5\n", i+1, w, (i+1)*(i+1))
		}
		m := mustModel(t, tableOf(t, b.String()), "y ~ poly(x, 2) + weight(w)",
			Number("x"), Outcome("y").Quantity())
		_, opt, err := m.Options(nil, &pgsvi.GLMOptions{PriorSD: 1e5, InterceptSD: 1e5})
		if err != nil {
			t.Fatal(err)
		}
		opt.Learn = nil
		glm, err := pgsvi.NewGLM(m.X, m.Y, pgsvi.GaussianNoise{Var: 1e-4}, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range m.Summary(post).Coefficients {
			if math.Abs(q.Mean-c.want[i]) > 1e-5*c.want[i] {
				t.Errorf("weights %s: %s is %v, want %v", c.weights, q.Name, q.Mean, c.want[i])
			}
		}
	}
}

// TestResidualOfDefaultNoise checks that the residual sd of the zero GaussianNoise is 1, because a
// Var of 0 means 1.
func TestResidualOfDefaultNoise(t *testing.T) {
	m := mustModel(t, tableOf(t, "x,y\n1,2.5\n2,3.5\n3,1.5\n4,5.5\n5,6.5\n"), "y ~ x", Number("x"),
		Outcome("y").Quantity())
	_, opt, err := m.Options(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	opt.Learn = nil
	glm, err := pgsvi.NewGLM(m.X, m.Y, pgsvi.GaussianNoise{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := m.Summary(post).Residual; r.SD != 1 || r.Lo != 1 || r.Hi != 1 {
		t.Errorf("%+v, want a standard deviation of 1", r)
	}
}

// TestVarianceComponents checks that the intervals of the standard deviations of groups, curves and
// residuals contain the true values.
func TestVarianceComponents(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var b strings.Builder
	b.WriteString("x,shop,y\n")
	effect := make([]float64, 60)
	for i := range effect {
		effect[i] = 0.8 * rng.NormFloat64()
	}
	for i := range 600 {
		x := rng.Float64()
		fmt.Fprintf(&b, "%.4f,s%d,%.5f\n", x, i%60, math.Sin(6*x)+effect[i%60]+
			0.5*rng.NormFloat64())
	}
	m := mustModel(t, tableOf(t, b.String()), "y ~ s(x) + (1 | shop)")
	post, _ := mustFit(t, m, nil)
	s := m.Summary(post)
	if len(s.Groups) != 1 || len(s.Curves) != 1 {
		t.Fatalf("%d groups and %d curves", len(s.Groups), len(s.Curves))
	}
	g, curve, noise := s.Groups[0], s.Curves[0], s.Residual
	if g.Name != "(1 | shop)" || g.Levels != 60 || !(g.Lo < 0.8 && 0.8 < g.Hi) ||
		!(g.Lo < g.SD && g.SD < g.Hi) || !(g.EDF > 50 && g.EDF < 60) {
		t.Errorf("%+v", g)
	}
	if curve.Name != "s(x)" || !(curve.EDF > 2 && curve.EDF < 12) {
		t.Errorf("%+v", curve)
	}
	if !(noise.Lo < 0.5 && 0.5 < noise.Hi && noise.Hi-noise.Lo < 0.1) {
		t.Errorf("%+v", noise)
	}
	text := s.String()
	for _, want := range []string{"standard deviations", "(1 | shop)", "smooth curves", "s(x)",
		"residual", "groups"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "s(x).1") || strings.Contains(text, "shop=s1") {
		t.Errorf("basis functions or levels of groups in\n%s", text)
	}
}

// TestSummaryRatios checks the odds ratios of a logit model.
func TestSummaryRatios(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(300, 4)), "bought ~ plan*age", Category("plan").New())
	post, _ := mustFit(t, m, nil)
	s := m.Summary(post)
	for _, c := range s.Coefficients {
		if strings.Contains(c.Name, "(new)") {
			t.Errorf("%s is listed", c.Name)
		}
		if c.Name == "(Intercept)" {
			continue
		}
		if math.Abs(c.Ratio-math.Exp(c.Mean)) > 1e-12 || !(c.RatioLo < c.Ratio &&
			c.Ratio < c.RatioHi) {
			t.Errorf("%+v", c)
		}
	}
	if text := s.String(); !strings.Contains(text, "odds ratio") {
		t.Error(text)
	}
}

// TestSummaryNoRows checks that a table marks interactions of levels that never meet, and nothing else.
func TestSummaryNoRows(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for formula, want := range map[string][]string{
		"y ~ a*b":       {"a=a:b=w"},
		"y ~ a*b*x":     {"a=a:b=w", "a=a:b=w:x"},
		"y ~ a + b + x": nil,
	} {
		text := "y,x,a,b,w\n"
		for i := range 120 {
			a, b, weight := "cab"[i%3:i%3+1], "uvw"[i/3%3:i/3%3+1], 1
			if a == "a" && b == "w" {
				weight = 0
				if i%2 == 0 {
					b = "u"
				}
			}
			text += fmt.Sprintf("%g,%g,%s,%s,%d\n", rng.NormFloat64(), 5+rng.NormFloat64(), a, b, weight)
		}
		m := mustModel(t, tableOf(t, text), formula+" + weight(w)")
		post, _ := mustFit(t, m, nil)
		s := m.Summary(post)
		var got []string
		for _, c := range s.Coefficients {
			if c.NoRows {
				got = append(got, c.Name)
				if math.Abs(c.Mean) > 1e-9*c.SD {
					t.Errorf("%s: %+v has no rows, but a mean", formula, c)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: no rows for %q, want %q", formula, got, want)
		}
		if n := strings.Count(s.String(), " no rows\n"); n != len(want) ||
			strings.Contains(s.String(), "no rows: ") != (n > 0) {
			t.Errorf("%s: %d lines without rows:\n%v", formula, n, s)
		}
	}
}

// TestSummaryLogarithm compares the coefficients of a category without an intercept next to a
// logarithm with lm(y ~ 0 + f + log(u)) in R. They are the values where the logarithm is 0.
func TestSummaryLogarithm(t *testing.T) {
	t.Parallel()
	m := mustModel(t, tableOf(t, groupTable(t, "table.csv")), "y ~ 0 + f + log(u)")
	glm, err := m.GLM(nil, &pgsvi.GLMOptions{PriorSD: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.02595814, 0.17682929, -0.20393652} {
		if c := m.Summary(post).Coefficients[i]; !(math.Abs(c.Mean-want) <= 1e-6) {
			t.Errorf("%s is %v, want %v", c.Name, c.Mean, want)
		}
	}
}

// TestSummaryFarResponses checks that a constant added to the outcomes moves the intercept alone,
// as in a column of times since 1970. The squares of the outcomes have more digits than a float64.
func TestSummaryFarResponses(t *testing.T) {
	table := func(far float64) *Table {
		rng := rand.New(rand.NewPCG(5, 6))
		var b strings.Builder
		b.WriteString("g,x,y\n")
		for g := range 20 {
			u := rng.NormFloat64()
			for range 8 {
				x := rng.NormFloat64()
				// Multiples of 1/64 stay exact after the addition.
				y := math.Round(64*(1+0.5*x+u+0.7*rng.NormFloat64())) / 64
				fmt.Fprintf(&b, "g%d,%v,%.8f\n", g, x, far+y)
			}
		}
		table, err := Read(strings.NewReader(b.String()), "far.csv")
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	for _, f := range []string{"y ~ x", "y ~ x + (1 | g)", "y ~ x + (x | g)"} {
		fit := func(far float64) *Summary {
			m, err := table(far).Model(f)
			if err != nil {
				t.Fatal(err)
			}
			glm, err := m.GLM(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			post, res, err := glm.Fit(context.Background(), nil)
			if err != nil || res.Status != pgsvi.Converged {
				t.Fatalf("%s, far %v: %v, %v", f, far, res, err)
			}
			return m.Summary(post)
		}
		near := fit(0)
		for _, far := range []float64{-3e4, 1e7, 1.7e9} {
			s := fit(far)
			// The prior of the intercept is narrower if the outcomes are near 0.
			close := func(what string, got, want float64) {
				t.Helper()
				if !(math.Abs(got-want) <= 1e-3*max(math.Abs(want), 0.1)) {
					t.Errorf("%s, far %v: %s is %v, want %v", f, far, what, got, want)
				}
			}
			for i, c := range s.Coefficients {
				want := near.Coefficients[i]
				mean := c.Mean
				if c.Name == "(Intercept)" {
					mean -= far
				}
				close(c.Name, mean, want.Mean)
				close("sd of "+c.Name, c.SD, want.SD)
			}
			for i, c := range s.Groups {
				close(c.Param, c.SD, near.Groups[i].SD)
				close("upper end of "+c.Param, c.Hi, near.Groups[i].Hi)
			}
			close("residual", s.Residual.SD, near.Residual.SD)
		}
	}
}

// TestSummaryLogNormal checks that log(y) has the residual and the share of a Gaussian model of a
// column with the logarithms, and that effects on durations and on other numbers have their own names.
func TestSummaryLogNormal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 1))
	var b strings.Builder
	b.WriteString("y,ly,x,g,died\n")
	var shift float64
	for i := range 120 {
		if i%10 == 0 {
			shift = 0.5 * rng.NormFloat64()
		}
		x := rng.NormFloat64()
		ly := 3 + 0.4*x + shift + 0.7*rng.NormFloat64()
		fmt.Fprintf(&b, "%.17g,%.17g,%.17g,g%d,%d\n", math.Exp(ly), ly, x, i/10, 1)
	}
	table := tableOf(t, b.String())
	opt := &pgsvi.GLMOptions{PriorSD: 1e3, Learn: &pgsvi.LearnOptions{NoPrior: true}}
	fit := func(f string, lik pgsvi.Likelihood) *Summary {
		m := mustModel(t, table, f)
		glm, err := m.GLM(lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return m.Summary(post)
	}
	got, want := fit("log(y) ~ x + (1 | g)", nil), fit("ly ~ x + (1 | g)", nil)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"residual", got.Residual.SD, want.Residual.SD},
		{"its lower end", got.Residual.Lo, want.Residual.Lo},
		{"its upper end", got.Residual.Hi, want.Residual.Hi},
		{"share", got.Groups[0].Share, want.Groups[0].Share},
	} {
		if !(math.Abs(c.got/c.want-1) < 5e-3) { // the search ends within 1e-4 nats
			t.Errorf("%s %v, want %v", c.what, c.got, c.want)
		}
	}
	for _, part := range []string{"residual of the logarithm", " mean ratio ", " share"} {
		if text := got.String(); !strings.Contains(text, part) || strings.Contains(text, "time ratio") {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if text := fit("survival(y, died) ~ x + (1 | g)", nil).String(); strings.Contains(text, "residual") ||
		!strings.Contains(text, " time ratio ") || strings.Contains(text, "mean ratio") {
		t.Errorf("a Weibull model of durations has\n%s", text)
	}
}

// TestSummaryHeld checks the line about effects that a prior learned without a prior of its own holds
// at 0: it is there if a feature has no effect, and not if it has one or if the defaults apply.
func TestSummaryHeld(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("null,some,x\n")
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 200 {
		x := float64(i % 2)
		fmt.Fprintf(&b, "%v,%v,%v\n", float64(i/2%10)/10, 2*x+rng.NormFloat64(), x)
	}
	table := tableOf(t, b.String())
	for _, c := range []struct {
		formula string
		noPrior bool
		priorSD float64
		want    bool
	}{
		{"null ~ x", true, 0, true},
		{"null ~ x", false, 0, false},
		{"null ~ x", true, 1e-3, false}, // a prior that the user chose
		{"some ~ x", true, 0, false},
	} {
		m := mustModel(t, table, c.formula)
		glm, err := m.GLM(nil, &pgsvi.GLMOptions{PriorSD: c.priorSD,
			Learn: &pgsvi.LearnOptions{NoPrior: c.noPrior}})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := m.Summary(post).String(); strings.Contains(text, "holds them near 0") != c.want {
			t.Errorf("%s, NoPrior %v, PriorSD %v:\n%s", c.formula, c.noPrior, c.priorSD, text)
		}
	}
}

// TestSummaryCuts checks that the cut points are for numbers in units of the table: they reproduce the
// predicted probabilities together with the coefficients.
func TestSummaryCuts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 1))
	var b strings.Builder
	b.WriteString("y,x,f\n")
	var x []float64
	for range 150 {
		x = append(x, 50+5*rng.NormFloat64())
		v := (x[len(x)-1]-50)/5 + rng.NormFloat64()
		fmt.Fprintf(&b, "%d,%.17g,a\n", 1+b2i(v > -1)+b2i(v > 1), x[len(x)-1])
	}
	m := mustModel(t, tableOf(t, b.String()), "y ~ x", Outcome("y").Ordered())
	post, _ := mustFit(t, m, nil)
	s := m.Summary(post)
	lik := likelihoodOf(post).(pgsvi.Ordinal)
	if len(s.Cuts) != 2 || s.Cuts[0].Name != "1|2" || s.Cuts[1].Name != "2|3" {
		t.Fatalf("cut points %+v", s.Cuts)
	}
	mean := post.Mean(nil)[0]
	for i, v := range x {
		for j, c := range s.Cuts {
			got, want := c.Value-s.Coefficients[0].Mean*v, lik.Cuts[j]-mean*m.X.At(i, 0)
			if !(math.Abs(got-want) < 1e-9) {
				t.Fatalf("row %d: cut point %s minus η is %v, want %v", i, c.Name, got, want)
			}
		}
	}
	if text := s.String(); !strings.Contains(text, "\ncut points") || !strings.Contains(text, "\n1|2 ") {
		t.Errorf("no cut points in\n%s", text)
	}
	m = mustModel(t, tableOf(t, b.String()), "x ~ y", Outcome("x").Quantity())
	post, _ = mustFit(t, m, nil)
	if s := m.Summary(post); s.Cuts != nil || strings.Contains(s.String(), "cut points") {
		t.Errorf("a Gaussian model has cut points in\n%v", s)
	}
}
