package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// orders returns a table with columns of every kind: label bought, count clicks, number spent.
func orders(n int, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 5))
	var b strings.Builder
	b.WriteString("bought,clicks,spent,plan,age,hour,shop,shelf,days,tries,wins\n")
	for range n {
		plan := []string{"basic", "gold", "free"}[rng.IntN(3)]
		age, hour := 20+50*rng.Float64(), 24*rng.Float64()
		shop, shelf := rng.IntN(6), rng.IntN(3)
		days := 1 + 9*rng.Float64()
		eta := math.Sin(hour*math.Pi/12) + 0.02*(age-45) + 0.4*float64(shop-3)
		if plan == "gold" {
			eta++
		}
		p := 1 / (1 + math.Exp(-eta))
		bought := "no"
		if rng.Float64() < p {
			bought = "yes"
		}
		clicks := 0
		for t := rng.ExpFloat64(); t < days*math.Exp(eta-2); t += rng.ExpFloat64() {
			clicks++
		}
		tries, wins := 1+rng.IntN(9), 0
		for range tries {
			if rng.Float64() < p {
				wins++
			}
		}
		fmt.Fprintf(&b, "%s,%d,%.4f,%s,%.4f,%.4f,s%d,%d,%.4f,%d,%d\n", bought, clicks,
			3+eta+0.5*rng.NormFloat64(), plan, age, hour, shop, shelf, days, tries, wins)
	}
	return b.String()
}

// orderRows returns the fields of the rows of orders.
func orderRows(n int, seed uint64) (rows [][]string) {
	for _, line := range strings.Split(strings.TrimSpace(orders(n, seed)), "\n")[1:] {
		rows = append(rows, strings.Split(line, ","))
	}
	return rows
}

func tableOf(t testing.TB, text string) *Table {
	t.Helper()
	table, err := Read(strings.NewReader(text), "orders.csv")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var yes = Outcome("bought").Positive("yes")

func mustModel(t testing.TB, table *Table, f string, columns ...Column) *Model {
	t.Helper()
	m, err := table.Model(f, columns...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustFit(t testing.TB, m *Model, lik pgsvi.Likelihood) (*pgsvi.GLMPosterior, *Predictor) {
	t.Helper()
	glm, err := m.GLM(lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	return post, p
}

// TestModelNames checks the features of each kind of term, and their blocks.
func TestModelNames(t *testing.T) {
	table := tableOf(t, orders(300, 1))
	for _, c := range []struct{ formula, names, blocks string }{
		{"bought ~ 1", "", ""},
		{"bought ~ plan", "plan=basic plan=free", ""},
		{"bought ~ 0 + plan", "plan=basic plan=free plan=gold", ""},
		{"bought ~ 0 + plan + age", "plan=basic plan=free plan=gold age", ""},
		{"bought ~ plan*age", "plan=basic plan=free age plan=basic:age plan=free:age", ""},
		{"bought ~ age + plan:age", "age plan=basic:age plan=free:age", ""},
		{"bought ~ plan:age", "plan=basic:age plan=free:age plan=gold:age", ""},
		{"bought ~ poly(age, 2)", "poly(age, 2).1 poly(age, 2).2", ""},
		{"bought ~ log(days)", "log(days)", ""},
		{"bought ~ s(hour, k=5)", "s(hour, k=5).line s(hour, k=5).1 s(hour, k=5).2 s(hour, k=5).3",
			"s(hour, k=5)"},
		{"bought ~ hour + s(hour, k=4)", "hour s(hour, k=4).1 s(hour, k=4).2", "s(hour, k=4)"},
		{"bought ~ s(hour, k=4, periodic)", "s(hour, k=4, periodic).1 s(hour, k=4, periodic).2 " +
			"s(hour, k=4, periodic).3", "s(hour, k=4, periodic)"},
		{"bought ~ (1 | shelf)", "shelf=0 shelf=1 shelf=2 shelf=(new)", ""},
	} {
		m := mustModel(t, table, c.formula, yes, Category("plan").Reference("gold"))
		if got := strings.Join(m.Names, " "); got != c.names {
			t.Errorf("%s: columns %s, want %s", c.formula, got, c.names)
		}
		blocks, index := m.blocks()
		if got := strings.TrimSpace(strings.Join(blocks, " ")); got != c.blocks {
			t.Errorf("%s: blocks %q, want %q", c.formula, got, c.blocks)
		}
		if _, cols := m.X.Dims(); cols != len(m.Names) || len(index) != cols {
			t.Errorf("%s: %d columns, %d names, %d blocks", c.formula, cols, len(m.Names),
				len(index))
		}
		if len(m.Y) != 300 || len(m.Kept) != 300 {
			t.Errorf("%s: %d outcomes", c.formula, len(m.Y))
		}
	}
	nested := mustModel(t, table, "bought ~ age + (1 | shop/shelf)", yes)
	if blocks, _ := nested.blocks(); !slices.Equal(blocks, []string{""}) {
		t.Errorf("blocks %q", blocks)
	}
	if n := len(nested.Names); n != 1+7+19 {
		t.Errorf("%d columns of 6 shops with 3 shelves each", n)
	}
	rest := mustModel(t, table, "bought ~ . - clicks - spent - wins - tries + (1 | shop)",
		yes, Category("shelf").Reference("0"), Category("plan").Reference("gold"), Weight("days"))
	if got := strings.Join(rest.Names[:6],
		" "); got != "plan=basic plan=free age hour shelf=1 shelf=2" {
		t.Errorf("the rest is %s", got)
	}
}

// TestModelValues compares features with values computed by hand from the text of the table.
func TestModelValues(t *testing.T) {
	table := tableOf(t, orders(200, 2))
	m := mustModel(t, table, "bought ~ plan*age + poly(age, 2) + log(days) + (1 | shop/shelf)", yes,
		Raw())
	number := func(s string) (v float64) {
		if _, err := fmt.Sscan(s, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	is := func(have, want string) float64 {
		if have == want {
			return 1
		}
		return 0
	}
	for i, f := range orderRows(200, 2) {
		age, days := number(f[4]), number(f[8])
		for j, name := range m.Names {
			var want float64
			switch {
			case name == "age" || name == "poly(age, 2).1":
				want = age
			case strings.HasSuffix(name, ":age"):
				want = age * is("plan="+f[3], strings.TrimSuffix(name, ":age"))
			case name == "poly(age, 2).2":
				want = age * age
			case name == "log(days)":
				want = math.Log(days)
			case strings.HasPrefix(name, "plan="):
				want = is("plan="+f[3], name)
			case strings.HasPrefix(name, "shop="):
				want = is("shop="+f[6], name)
			case strings.HasPrefix(name, "shop/shelf="):
				want = is("shop/shelf="+f[6]+"/"+f[7], name)
			}
			if got := m.X.At(i, j); math.Abs(got-want) > 1e-12*math.Abs(want) {
				t.Fatalf("row %d, %s: %v, want %v", i, name, got, want)
			}
		}
		if want := 2*is(f[0], "yes") - 1; m.Y[i] != want {
			t.Fatalf("row %d: outcome %v, want %v", i, m.Y[i], want)
		}
	}
	scaled := mustModel(t, table, "bought ~ age + log(days)", yes)
	for j := range scaled.Names {
		mean, sd := stat.PopMeanStdDev(mat.Col(nil, j, scaled.X), nil)
		if math.Abs(mean) > 1e-12 || math.Abs(sd-1) > 1e-12 {
			t.Errorf("%s: mean %v, sd %v", scaled.Names[j], mean, sd)
		}
	}
}

// TestFullCoding checks the features of a category with one feature per level: for levels, a
// missing value, a new level, and a bool for a level that is written as 0 or 1.
func TestFullCoding(t *testing.T) {
	var b strings.Builder
	b.WriteString("flag,size,y\n")
	for i := range 120 {
		fmt.Fprintf(&b, "%d,%s,%d.5\n", i%2, []string{"m", "l", "s", "m", ""}[i%5], i%7)
	}
	table := tableOf(t, b.String())
	m := mustModel(t, table, "y ~ 0 + size", Category("size").Level().New().Reference("m"))
	_, p := mustFit(t, m, nil)
	if got := strings.Join(m.Names, " "); got != "size=l size=m size=s size=(missing) size=(new)" {
		t.Fatal(got)
	}
	features := func(p *Predictor, row map[string]any) string {
		cells := make([]cell, len(p.enc.state.Columns))
		var r entries
		if _, err := p.enc.fill(cells, row); err != nil {
			t.Fatal(err)
		}
		if err := p.design.row(&r, cells); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.ind, r.val)
	}
	for size, want := range map[any]string{"l": "[0] [1]", "m": "[1] [1]", "s": "[2] [1]",
		nil: "[3] [1]", "xl": "[4] [1]"} {
		if got := features(p, map[string]any{"size": size}); got != want {
			t.Errorf("%v: %s, want %s", size, got, want)
		}
	}
	for _, reference := range []string{"0", "1"} {
		_, p := mustFit(t,
			mustModel(t, table, "y ~ 0 + flag", Category("flag").Reference(reference)), nil)
		for flag, want := range map[any]string{"0": "[0] [1]", 1: "[1] [1]", false: "[0] [1]",
			true: "[1] [1]"} {
			if got := features(p, map[string]any{"flag": flag}); got != want {
				t.Errorf("against %s, %v: %s, want %s", reference, flag, got, want)
			}
		}
	}
}

// TestPowers checks that the columns of a polynomial have mean 0, variance 1 and no correlation
// over rows with skewed values and different weights.
func TestPowers(t *testing.T) {
	const n = 500
	rng := rand.New(rand.NewPCG(4, 4))
	l := &termLearner{}
	total := 0.
	for range n {
		l.x, l.w = append(l.x, math.Exp(rng.NormFloat64())), append(l.w, float64(rng.IntN(4)))
		total += l.w[len(l.w)-1]
	}
	term := &term{Kind: polyTerm, Degree: 5}
	if err := term.finishPoly(l, false); err != nil {
		t.Fatal(err)
	}
	var sums [5][6]float64
	for i, x := range l.x {
		p := term.powers(make([]float64, 5), x)
		for j, v := range p {
			for k, w := range p {
				sums[j][k] += v * w * l.w[i] / total
			}
			sums[j][5] += v * l.w[i] / total
		}
	}
	for j, row := range sums {
		for k, got := range row {
			want := 0.
			if j == k {
				want = 1
			}
			if math.Abs(got-want) > 1e-6 {
				t.Errorf("columns %d and %d: %v, want %v", j, k, got, want)
			}
		}
	}
}

// TestExposure checks that twice the exposure is twice the mean.
func TestExposure(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(300, 14)), "clicks ~ age + exposure(days)")
	_, p := mustFit(t, m, nil)
	mean := func(days float64) float64 {
		a, err := p.Predict(map[string]any{"age": 40.0, "days": days})
		if err != nil {
			t.Fatal(err)
		}
		return a.Mean
	}
	if one, two := mean(1.5), mean(3); math.Abs(two-2*one) > 1e-9*two {
		t.Errorf("means %v and %v", one, two)
	}
}

// TestNewGroupIsAsWideAsItsPrior checks the sd of the effect of a new group.
func TestNewGroupIsAsWideAsItsPrior(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(400, 6)), "bought ~ age + (1 | shop)", yes)
	glm, err := m.GLM(nil, &pgsvi.GLMOptions{Learn: &pgsvi.LearnOptions{NoPrior: true}})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	j, want := slices.Index(post.Names(), "shop=(new)"), m.Summary(post).Groups[0].SD
	if sd := post.SD(nil)[j]; !(want > 0) || math.Abs(sd-want) > 1e-9*want {
		t.Errorf("sd of a new shop %v, of shops %v", sd, want)
	}
}

// TestModelSparse checks that many groups next to a curve make X sparse, and that few groups or few
// rows leave X dense. A sparse and a dense X must have the same fit.
func TestModelSparse(t *testing.T) {
	t.Parallel()
	table := func(rows, groups int) *Table {
		rng, b := testRand(21), new(strings.Builder)
		b.WriteString("x,g,y\n")
		for i := range rows {
			x, g := rng.Float64(), i%groups
			fmt.Fprintf(b, "%.4f,g%d,%.4f\n", x, g,
				math.Sin(6*x)+math.Cos(float64(g))+0.1*rng.NormFloat64())
		}
		return tableOf(t, b.String())
	}
	for _, c := range []struct {
		rows, groups int
		sparse       bool
	}{{1200, 40, true}, {900, 40, false}, {1200, 20, false}} {
		m := mustModel(t, table(c.rows, c.groups), "y ~ s(x) + (1 | g)")
		if _, sparse := m.X.(*pgsvi.Sparse); sparse != c.sparse {
			t.Errorf("%d rows of %d groups: X is %T", c.rows, c.groups, m.X)
		}
	}
	m := mustModel(t, table(1200, 40), "y ~ s(x) + (1 | g)")
	apart, _ := mustFit(t, m, nil)
	m.X = mat.DenseCopyOf(m.X)
	together, _ := mustFit(t, m, nil)
	sd := together.SD(nil)
	for j, mean := range apart.Mean(nil) {
		if want := together.Mean(nil)[j]; !(math.Abs(mean-want) <= 1e-3*sd[j]) {
			t.Errorf("the mean of weight %s is %v, want %v ± %v", apart.Names()[j], mean, want,
				1e-3*sd[j])
		}
	}
}

// TestModelSmooth checks that a curve is found: its root mean square error, its intervals, and the
// note about a value outside the data.
func TestModelSmooth(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	truth := func(x float64) float64 { return 1.5*math.Sin(6*x) + x }
	var b strings.Builder
	b.WriteString("x,y\n")
	xs := make([]float64, 1000)
	for i := range xs {
		xs[i] = rng.Float64()
		fmt.Fprintf(&b, "%v,%v\n", xs[i], truth(xs[i])+rng.NormFloat64())
	}
	m := mustModel(t, tableOf(t, b.String()), "y ~ s(x)")
	post, p := mustFit(t, m, nil)
	mean, variance := post.At(m.X).Latent(nil, nil)
	var mse, inside float64
	for i, x := range xs {
		e := mean[i] - truth(x)
		mse += e * e / 1000
		if math.Abs(e) < 1.96*math.Sqrt(variance[i]) {
			inside += 1. / 1000
		}
	}
	if math.Sqrt(mse) > 0.12 || inside < 0.8 {
		t.Errorf("root mean square error %v, %v inside of 95%% intervals", math.Sqrt(mse), inside)
	}
	a, err := p.Predict(map[string]any{"x": 3})
	if err != nil || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "outside") {
		t.Errorf("%v, %v", a, err)
	}
}

// TestModelTrials compares successes in trials with the same trials as single rows.
func TestModelTrials(t *testing.T) {
	columns := []Column{Category("plan").Reference("basic"), Raw()}
	grouped := mustModel(t, tableOf(t, orders(100, 9)), "wins / tries ~ plan + age", columns...)
	var b strings.Builder
	b.WriteString("win,plan,age\n")
	for _, f := range orderRows(100, 9) {
		var tries, wins int
		fmt.Sscan(f[9], &tries)
		fmt.Sscan(f[10], &wins)
		for k := range tries {
			fmt.Fprintf(&b, "%v,%s,%s\n", k < wins, f[3], f[4])
		}
	}
	single := mustModel(t, tableOf(t, b.String()), "win ~ plan + age",
		append(columns, Outcome("win").Positive("true"))...)
	elbo := func(m *Model) float64 {
		lik, opt, err := m.Options(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		opt.Learn = nil
		glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.ELBO
	}
	if a, b := elbo(grouped), elbo(single); math.Abs(a-b) > 1e-7 {
		t.Errorf("ELBO %v of trials together, %v of each", a, b)
	}
	bad := tableOf(t, "k,n,x\n1,2,0.5\n3,2,1.5\n0,1,2\n")
	if _, err := bad.Model("k / n ~ x"); !errors.Is(err, pgsvi.ErrLabel) ||
		!strings.Contains(err.Error(), "3 successes in 2") {
		t.Error(err)
	}
}

// TestModelRandomIntercepts compares ELBO and standard deviation with independent optima.
func TestModelRandomIntercepts(t *testing.T) {
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	text, err := os.ReadFile(filepath.Join(dir, "..", "truth", "random_intercepts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var truth map[string]struct{ Tau, ELBO float64 }
	if err := json.Unmarshal(text, &truth); err != nil {
		t.Fatal(err)
	}
	for name, lik := range map[string]pgsvi.Likelihood{"re_logit20": pgsvi.BernoulliLogit{},
		"re_poisson200": pgsvi.Poisson{}} {
		table, err := ReadFile(filepath.Join(dir, "..", "truth", name+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		m := mustModel(t, table, "y ~ x1 + x2 + (1 | group)", Raw())
		lik, opt, err := m.Options(lik, &pgsvi.GLMOptions{
			PriorSD: 10, InterceptSD: 10, Learn: &pgsvi.LearnOptions{NoPrior: true, Tol: 1e-9},
		})
		if err != nil {
			t.Fatal(err)
		}
		glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := glm.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		want := truth[name]
		if math.Abs(res.ELBO-want.ELBO) > 1e-6 {
			t.Errorf("%s: ELBO %v, want %v", name, res.ELBO, want.ELBO)
		}
		if tau := m.Summary(post).Groups[0].SD; math.Abs(tau-want.Tau) > 1e-5 {
			t.Errorf("%s: sd[group] %v, want %v", name, tau, want.Tau)
		}
	}
}

// TestModelMistakes checks that a model that cannot be fitted is an error with a reason.
func TestModelMistakes(t *testing.T) {
	table := tableOf(t, orders(100, 10))
	for _, c := range []struct {
		formula, want string
		columns       []Column
	}{
		{"bought ~ plann", "did you mean plan?", nil},
		{"bought ~ plan +", "unexpected end of the formula", nil},
		{"bought ~ s(plan)", "is a category instead of a number", []Column{yes}},
		{"bought ~ log(shelf)", "line 3, column \"log(shelf)\": log(shelf) is -Inf where shelf " +
			"is 0", []Column{yes}},
		{"bought ~ s(shelf)", "3 different values", []Column{yes}},
		{"bought ~ age", "no value is a number", []Column{Number("bought")}},
		{"bought ~ age", "the formula uses \"age\"", []Column{yes, Skip("age")}},
		{"bought ~ age", "the formula has no weight(age)", []Column{yes, Weight("age")}},
		{"bought ~ age", "no such column", []Column{yes, Skip("nothing")}},
	} {
		_, err := table.Model(c.formula, c.columns...)
		if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%s: %v, want %s", c.formula, err, c.want)
		}
	}
	for formula, want := range map[string]string{
		"clicks ~ age": "use Poisson{} or NegativeBinomial{}",
	} {
		if _, err := mustModel(t, table, formula).GLM(nil, nil); !errors.Is(err, pgsvi.ErrParam) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", formula, err)
		}
	}
	for _, f := range []string{"spent ~ s(age)", "spent ~ age*hour", "spent ~ age + (1 | shop)",
		"spent ~ age + weight(days)"} {
		if _, err := mustModel(t, table, f).ForGP(nil); !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("%s: %v", f, err)
		}
	}
	m := mustModel(t, table, "spent ~ age + hour")
	if _, err := m.Predictor(nil); !errors.Is(err, pgsvi.ErrParam) {
		t.Error(err)
	}
	post, _ := mustFit(t, m, nil)
	if _, err := mustModel(t, table, "spent ~ age").Predictor(post); !errors.Is(err,
		pgsvi.ErrShape) {
		t.Error(err)
	}
}

// TestReadColumns checks that columns are read as they are printed, and that errors name the line.
func TestReadColumns(t *testing.T) {
	want := []Column{
		Outcome("bought").Positive("yes").Drop(),
		Number("price, in €").MissingAre("k.A.", "-").Decimal(',').BelowLimit("half").Impute(),
		Category("plan").FoldCase().Reference("basic").Level().New(),
		Date("seen").Layout("02.01.2006", "2006-01-02").As(Elapsed, Month),
		Group("shop").Level(), Exposure("days"), Offset("o"), Weight("w"), Precision("p"), Trials("n"),
		Skip("id"),
		Raw(),
	}
	var b strings.Builder
	for _, c := range want {
		fmt.Fprintf(&b, "\t%v, // why\n", c)
	}
	got, err := ReadColumns(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	short, err := ReadColumns(strings.NewReader("Number(\"a\").Impute(),\n\nDate(`b`).As(Month),"))
	if err != nil || len(short) != 2 {
		t.Errorf("%v, %v", short, err)
	}
	bare, err := ReadColumns(
		strings.NewReader("Number(\"a\") // no comma\nDate(\"b\").\n\tAs(Month)\nSkip(\"c\")"))
	if err != nil || fmt.Sprint(
		bare) != `[data.Number("a") data.Date("b").As(data.Month) data.Skip("c")]` {
		t.Errorf("%v, %v", bare, err)
	}
	for text, message := range map[string]string{
		"Number(\"a\")\nSkip \"b\"":       "line 2: this is not a call",
		"Outcome('bc')":                   "line 1: write texts in double quotes",
		"Outcome('b')":                    "line 1: the argument must be a text in double quotes",
		"Date(\"b\").As(\"Month\")":       "must be one of Elapsed, Month, Weekday",
		"Number(\"a\").Imput()":           "did you mean \"Impute\"?",
		"Numbr(\"a\")":                    "did you mean \"Number\"?",
		"Skip(\"a\"),\nNumbr(\"b\"),":     "line 2",
		"Number(a),":                      "must be a text",
		"Number(),":                       "0 arguments",
		"Number(\"a\").Reference(\"b\"),": "no method Reference",
		"Number(\"a\").String(),":         "no method String",
		"os.Exit(1),":                     "this is not a call",
		"7,":                              "this is not a call",
		"}; func f() {":                   "line",
		"}; var x = []any{":               "unmatched bracket",
	} {
		if _, err := ReadColumns(strings.NewReader(text)); !errors.Is(err, pgsvi.ErrParam) ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %s", text, err, message)
		}
	}
}

func FuzzReadColumns(f *testing.F) {
	f.Add("data.Number(\"a\").Impute(),\nSkip(\"b\"), // c")
	f.Add("Date(`b`).As(data.Month, Elapsed).Layout()")
	f.Add("}; var x = []any{Raw()")
	f.Fuzz(func(t *testing.T, text string) {
		columns, err := ReadColumns(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, pgsvi.ErrParam) {
				t.Fatal(err)
			}
			return
		}
		var b strings.Builder
		for _, c := range columns {
			fmt.Fprintf(&b, "%v,\n", c)
		}
		again, err := ReadColumns(strings.NewReader(b.String()))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(columns) {
			t.Fatalf("%v is read as %v, %v", columns, again, err)
		}
	})
}

// TestColumnWithoutName checks that an unnamed column of row numbers is left out and that the table
// gives the reason. A column that has the default name of an unnamed column needs a decision.
func TestColumnWithoutName(t *testing.T) {
	const why = "no name, and row numbers"
	for name, want := range map[string]string{"": why, "x1": ""} {
		var b strings.Builder
		b.WriteString(name + ",a,y\n")
		for i := range 80 {
			fmt.Fprintf(&b, "%d,%g,%g\n", i, math.Sin(float64(i)), math.Cos(float64(3*i)))
		}
		m, err := tableOf(t, b.String()).Model("y ~ .")
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), `"x1"`) {
				t.Errorf("a column named x1: %v", err)
			}
			continue
		}
		if err != nil || !slices.Equal(m.Names, []string{"a"}) ||
			!strings.Contains(m.String(), want) {
			t.Errorf("a column without a name: %v, %v", err, m)
		}
	}
	m := mustModel(t, tableOf(t, "y\n1.5\n2.5\n0.5\n"), "y ~ 1")
	if _, err := m.ForGP(nil); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Errorf("a Gaussian process of no column: %v", err)
	}
}

// TestOutcomeRefused checks that the error about an outcome names its line and column.
func TestOutcomeRefused(t *testing.T) {
	m := mustModel(t, tableOf(t, "x,y\n1,2\n2,\n3,0\n\n4,-3\n5,1\n"), "y ~ x",
		Outcome("y").Quantity().Drop())
	_, err := m.GLM(pgsvi.Poisson{}, nil)
	const says = `line 6, column "y": y = -3, but Poisson needs`
	if !errors.Is(err, pgsvi.ErrLabel) || !strings.Contains(err.Error(), says) {
		t.Error(err)
	}
	_, err = m.FitGP(context.Background(), pgsvi.SquaredExp{}, pgsvi.Poisson{}, nil, nil)
	if !errors.Is(err, pgsvi.ErrLabel) || !strings.Contains(err.Error(), `line 6, column "y"`) {
		t.Error(err)
	}
}

// TestModelUnits checks that predictions have the unit of the outcome, even if it is large or far
// from 0.
func TestModelUnits(t *testing.T) {
	const n = 100
	rng := rand.New(rand.NewPCG(3, 3))
	var x, y []float64
	for range n {
		x = append(x, rng.NormFloat64())
		y = append(y, 3+2*x[len(x)-1]+0.5*rng.NormFloat64())
	}
	predict := func(lik pgsvi.Likelihood, unit float64) *Answer {
		var b strings.Builder
		b.WriteString("x,y\n")
		for i := range n {
			fmt.Fprintf(&b, "%v,%v\n", x[i], unit*y[i])
		}
		m := mustModel(t, tableOf(t, b.String()), "y ~ x")
		glm, err := m.GLM(lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := glm.Fit(context.Background(), nil)
		if err != nil || len(res.Warnings) > 0 {
			t.Fatal(err, res.Warnings)
		}
		p, err := m.Predictor(post)
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Predict(map[string]any{"x": 1})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, lik := range []pgsvi.Likelihood{pgsvi.GaussianNoise{}, pgsvi.Laplace{}} {
		one := predict(lik, 1)
		if math.Abs(one.Mean-5) > 0.2 {
			t.Errorf("%T: %v, want about 5", lik, one)
		}
		for _, unit := range []float64{1e-6, 1e3, 1e9} {
			a := predict(lik, unit)
			for _, v := range [][2]float64{{a.Mean, one.Mean}, {a.Lo, one.Lo}, {a.Hi, one.Hi}} {
				if math.Abs(v[0]/unit-v[1]) > 2e-3 {
					t.Errorf("%T in units of %g: %v, want %v", lik, unit, v[0]/unit, v[1])
				}
			}
		}
	}
}

// TestModelWholeNumbers checks that a formula may name whole numbers that all differ, such as
// weeks, as features and as the outcome, and that . needs a decision about them.
func TestModelWholeNumbers(t *testing.T) {
	var b strings.Builder
	b.WriteString("week,price,x\n")
	for i := range 80 {
		fmt.Fprintf(&b, "%d,%d,%v\n", i+1, 1000+3*i, 0.25*float64(i%7))
	}
	table := tableOf(t, b.String())
	for _, f := range []string{"x ~ week", "x ~ s(week)", "x ~ poly(week, 2) + log(price)",
		"x ~ week*price"} {
		m := mustModel(t, table, f)
		if text := m.String(); !strings.Contains(text,
			`column "week": 80 whole numbers, all different`) {
			t.Errorf("%s:\n%s", f, text)
		}
	}
	if m := mustModel(t, table, "price ~ x + (1 | week)"); m.Y[1] != 1003 || len(m.Groups) != 1 {
		t.Errorf("%v", m)
	}
	if m := mustModel(t, table, "price ~ week", Number("week")); strings.Contains(m.String(),
		"all different") {
		t.Errorf("%v", m)
	}
	if m, err := table.Model("x ~ ."); err == nil ||
		!strings.Contains(err.Error(), `Number("week")`) {
		t.Errorf("%v, %v", m, err)
	}
}

// TestUnusableOutcomes checks that an outcome that cannot be used is a note of a prediction, and an
// error of its row when predictions are scored.
func TestUnusableOutcomes(t *testing.T) {
	table := tableOf(t, orders(200, 15))
	for _, c := range []struct {
		formula string
		lik     pgsvi.Likelihood
		header  string
		rows    []string // one with a good outcome, and others
	}{
		{"bought ~ age", nil, "bought", []string{"no", "maybe", "No"}},
		{"clicks ~ age", pgsvi.Poisson{}, "clicks", []string{"2", "-1", "0.5", "x"}},
		{"wins / tries ~ age", nil, "wins,tries", []string{"2,3", "4,3", "1.5,3", "1,0"}},
		{"wins / tries ~ age", pgsvi.BetaBinomial{}, "wins,tries", []string{"2,3", "4,3"}},
	} {
		m := mustModel(t, table, c.formula, yes)
		_, p := mustFit(t, m, c.lik)
		text := "age," + c.header + "\n"
		for _, row := range c.rows {
			text += "44," + row + "\n"
		}
		var plain, scored strings.Builder
		rows, failed, err := p.WriteCSV(&plain, tableOf(t, text), 0.9)
		if err != nil || rows != len(c.rows) || failed != 0 ||
			strings.Count(plain.String(), "the outcome is ignored") != rows-1 {
			t.Errorf("%s: %d, %d, %v\n%s", c.formula, rows, failed, err, &plain)
		}
		_, failed, s, err := p.ScoreCSV(&scored, tableOf(t, text), 0.9)
		if err != nil || failed != rows-1 || s.Rows != 1 ||
			!strings.Contains(scored.String(), "error: orders.csv: line 3, ") {
			t.Errorf("%s: %d, %v, %v\n%s", c.formula, failed, s, err, &scored)
		}
		if s, err := p.Score(tableOf(t, text)); err != nil || s.Rows != 1 {
			t.Errorf("%s: %v, %v", c.formula, s, err)
		}
	}
}

// TestModelPeriod checks that the period of a periodic curve is the period in the formula or the
// range of whole numbers, and that it is printed.
func TestModelPeriod(t *testing.T) {
	var b strings.Builder
	b.WriteString("month,hour,y\n")
	rng := rand.New(rand.NewPCG(4, 2))
	for range 150 {
		month, hour := 1+rng.IntN(12), 23*rng.Float64()
		fmt.Fprintf(&b, "%d,%.3f,%.3f\n", month, hour,
			math.Sin(float64(month)*math.Pi/6)+math.Sin(hour*math.Pi/12)+0.1*rng.NormFloat64())
	}
	for f, period := range map[string]float64{
		"y ~ s(month, periodic) + s(hour)":    12,
		"y ~ s(month, periodic)":              12,
		"y ~ month + s(hour, period=24)":      24,
		"y ~ s(hour, k=8, period=24) + month": 24,
	} {
		m := mustModel(t, tableOf(t, b.String()), f)
		if text := m.String(); strings.Contains(f, "periodic") != strings.Contains(text,
			"the period of s(month, periodic) is 12;") {
			t.Errorf("%s:\n%s", f, text)
		}
		glm, err := m.GLM(nil, nil)
		if err != nil {
			t.Fatal(f, err)
		}
		post, res, err := glm.Fit(context.Background(), nil)
		if err != nil || len(res.Warnings) > 0 {
			t.Fatal(f, err, res.Warnings)
		}
		p, err := m.Predictor(post)
		if err != nil {
			t.Fatal(err)
		}
		at := func(month, hour float64) float64 {
			a, err := p.Predict(map[string]any{"month": month, "hour": hour})
			if err != nil {
				t.Fatal(err)
			}
			return a.Mean
		}
		a, b := at(3, 5), at(3+12, 5)
		if period == 24 {
			b = at(3, 5+24)
		}
		if math.Abs(a-b) > 1e-9 {
			t.Errorf("%s: %v, and %v a period later", f, a, b)
		}
	}
}
