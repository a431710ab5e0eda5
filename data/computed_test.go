package data

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestFactor checks that factor(x) is the category of x: alone, in products and next to the number
// x, for tables, maps, JSON and a loaded predictor.
func TestFactor(t *testing.T) {
	table := tableOf(t, orders(200, 31))
	row := map[string]any{"age": 33, "shelf": 2, "plan": "gold", "shop": "s2"}
	answer := func(formula string, columns ...Column) *Answer {
		t.Helper()
		m := mustModel(t, table, formula, columns...)
		_, p := mustFit(t, m, nil)
		p = reloaded(t, p)
		a, err := p.Predict(row)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Predict([]byte(`{"age": 33, "shelf": 2, "plan": "gold", "shop": "s2"}`))
		if err != nil || b.Mean != a.Mean {
			t.Errorf("%s: %v, %v as JSON: %v", formula, a, b, err)
		}
		rows := 0
		for _, err := range p.Table(table, 0.9) {
			if err != nil {
				t.Fatal(err)
			}
			rows++
		}
		if rows != 200 {
			t.Errorf("%s: %d rows", formula, rows)
		}
		return a
	}
	for _, c := range []struct{ factor, category string }{
		{"spent ~ factor(shelf) + age", "spent ~ shelf + age"},
		{"spent ~ factor(shelf)*age", "spent ~ shelf*age"},
		{"spent ~ age:factor(shelf) + (1 | shelf)", "spent ~ age:shelf + (1 | shelf)"},
	} {
		got, want := answer(c.factor), answer(c.category, Category("shelf"))
		if math.Abs(got.Mean-want.Mean) > 1e-6 {
			t.Errorf("%s: %v, and %v by %s", c.factor, got.Mean, want.Mean, c.category)
		}
	}
	m := mustModel(t, table, "spent ~ shelf + factor(shelf) + (1 | shelf) + age")
	want := "shelf factor(shelf)=0 factor(shelf)=1 factor(shelf)=2 shelf=0 shelf=1 shelf=2 shelf=(new) age"
	got := strings.Join(m.Names, " ")
	for _, name := range []string{" factor(shelf)=0", " factor(shelf)=1", " factor(shelf)=2"} {
		if strings.Replace(want, name, "", 1) == got { // the reference
			got = want
		}
	}
	if got != want {
		t.Errorf("features %q", m.Names)
	}
	if a := answer("spent ~ shelf + factor(shelf) + (1 | shelf) + age"); math.IsNaN(a.Mean) {
		t.Error(a)
	}
	_, err := table.Model("spent ~ factor(shelff)")
	if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "no column") {
		t.Error(err)
	}
	_, p := mustFit(t, mustModel(t, table, "spent ~ factor(shelf)"), nil)
	if _, err := p.Predict(map[string]any{"shelf": 7}); !errors.Is(err, pgsvi.ErrParam) ||
		!strings.Contains(err.Error(), `level "7" is unknown`) {
		t.Error(err)
	}
	if _, err := p.Predict(map[string]any{}); !errors.Is(err, pgsvi.ErrNotFinite) {
		t.Error(err)
	}
	gone := tableOf(t, "age\n3\n")
	for _, err := range p.Table(gone, 0.9) {
		if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), `no column "shelf"`) {
			t.Error(err)
		}
	}
	// Values that are missing in the number are missing in the factor.
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 40 {
		fmt.Fprintf(&b, "%s,%d.5\n", []string{"1", "2", "5", "NA"}[i%4], i*i%7)
	}
	holes := tableOf(t, b.String())
	if _, err := holes.Model("y ~ factor(x)"); err == nil ||
		!strings.Contains(err.Error(), `Category("factor(x)").Level()`) {
		t.Error(err)
	}
	for _, c := range []struct {
		column Column
		rows   int
	}{{Category("factor(x)").Level(), 40}, {Category("factor(x)").Drop(), 30},
		{Number("x").Drop(), 30}} {
		if m := mustModel(t, holes, "y ~ factor(x)", c.column); len(m.Y) != c.rows {
			t.Errorf("%v: %d rows, want %d", c.column, len(m.Y), c.rows)
		}
	}
}

// computedTable returns a table with numbers and the values of computed columns of them.
func computedTable(t *testing.T, n int) *Table {
	t.Helper()
	rng := testRand(3)
	var b strings.Builder
	b.WriteString("y,n,x,z,t,f,g,x2,xz,lx,lt,root\n")
	for i := range n {
		x, z, u := 0.5+8*rng.Float64(), rng.NormFloat64(), 1+4*rng.Float64()
		y := 2 + 0.1*x*x - z*math.Log(x) + 0.3*float64(i%5) + math.Log(u) + 0.3*rng.NormFloat64()
		fmt.Fprintf(&b, "%.6f,%d,%v,%v,%v,%s,g%d,%v,%v,%v,%v,%v\n", y, rng.IntN(9), x, z, u,
			[]string{"a", "b", "c"}[rng.IntN(3)], i%5, x*x, x*z, math.Log(x), math.Log(u),
			math.Sqrt(u))
	}
	return tableOf(t, b.String())
}

// fitFixed fits the model without learning.
func fitFixed(t *testing.T, m *Model) (*pgsvi.GLMPosterior, *Predictor) {
	t.Helper()
	lik, opt, err := m.Options(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	opt.Learn = nil
	glm := testkit.Must(pgsvi.NewGLM(m.X, m.Y, lik, opt))
	post, _, err := glm.Fit(t.Context(), &pgsvi.Solver{Goal: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	return post, testkit.Must(m.Predictor(post))
}

// TestArithmetic checks that a computed column means the same as a column of the table with its
// values: in every kind of term, for the coefficients, and for predictions from tables, maps, JSON
// and a loaded predictor.
func TestArithmetic(t *testing.T) {
	table := computedTable(t, 150)
	base := map[string]any{"x": 2.5, "z": -0.5, "t": 3.0, "f": "b", "g": "g1"}
	whole := map[string]any{"x2": 6.25, "xz": -1.25, "lx": math.Log(2.5), "lt": math.Log(3),
		"root": math.Sqrt(3)}
	for name, v := range base {
		whole[name] = v
	}
	for _, c := range []struct{ computed, plain string }{
		{"y ~ x + I(x^2)", "y ~ x + x2"},
		{"y ~ x + I(x*z) - 1", "y ~ x + xz - 1"},
		{"y ~ f*log(x) + I(x^2):f", "y ~ f*lx + x2:f"},
		{"y ~ 0 + f:log(x)", "y ~ 0 + f:lx"},
		{"y ~ x + (x + I(x^2) | g) + offset(log(t))", "y ~ x + (x + x2 | g) + offset(lt)"},
		{"y ~ (log(x) + f || g)", "y ~ (lx + f || g)"},
		{"y ~ s(log(x)) + poly(I(x*z), 2) + weight(sqrt(t))",
			"y ~ s(lx) + poly(xz, 2) + weight(root)"},
		{"n ~ x + exposure(sqrt(t))", "n ~ x + exposure(root)"},
		{"y ~ (log(x) + I(x * z))^2", "y ~ lx*xz"},
	} {
		m, plain := mustModel(t, table, c.computed), mustModel(t, table, c.plain)
		post, p := fitFixed(t, m)
		q, want := fitFixed(t, plain)
		a, err := p.Predict(base)
		if err != nil {
			t.Errorf("%s: %v", c.computed, err)
			continue
		}
		b := testkit.Must(want.Predict(whole))
		near := func(what string, a, b float64) {
			t.Helper()
			if math.Abs(a-b) > 1e-9*(1+math.Abs(b)) {
				t.Errorf("%s: %s is %v, and %v by %s", c.computed, what, a, b, c.plain)
			}
		}
		near("the mean", a.Mean, b.Mean)
		near("the lower end", a.Lo, b.Lo)
		k := testkit.Must(reloaded(t, p).Predict([]byte(
			`{"x": 2.5, "z": -0.5, "t": 3.0, "f": "b", "g": "g1"}`)))
		if k.Mean != a.Mean || k.Lo != a.Lo {
			t.Errorf("%s: %v, as JSON after loading %v", c.computed, a.Mean, k.Mean)
		}
		next, stop := iter.Pull2(want.Table(table, 0.9))
		for a, err := range p.Table(table, 0.9) {
			b, _, _ := next()
			if err != nil {
				t.Fatal(err)
			}
			near("a row", a.Mean, b.Mean)
		}
		stop()
		old := plain.Summary(q).Coefficients
		for i, e := range m.Summary(post).Coefficients {
			near(e.Name, e.Mean, old[i].Mean)
			near("sd of "+e.Name, e.SD, old[i].SD)
		}
	}
}

// TestArithmeticEffects checks that the average effect of a column is the derivative through all
// computed columns that use it, also where one of them ends.
func TestArithmeticEffects(t *testing.T) {
	table := computedTable(t, 150)
	m := mustModel(t, table, "y ~ x + I(x^2) + I(x*z) + log(t):x + (I(x^2) | g)")
	post, _ := mustFit(t, m, nil)
	effects := testkit.Must(m.MarginalEffects(post))
	var names []string
	by := map[string]pgsvi.Effect{}
	for _, r := range effects.Rows {
		names = append(names, r.Name)
		by[r.Name] = r
	}
	if !slices.Equal(names, []string{"x", "z", "t"}) {
		t.Errorf("effects of %q", names)
	}
	coefficient := map[string]float64{}
	for _, c := range m.Summary(post).Coefficients {
		coefficient[c.Name] = c.Mean
	}
	slopes := testkit.Must(m.GroupEffects(post))[0]
	var x, z, u, group float64
	n := 0.
	for _, a := range []string{"x", "z", "t"} {
		values := testkit.Must(table.Model("y ~ 0 + "+a, Raw())).X
		for i := range table.Len() {
			v := values.At(i, 0)
			switch a {
			case "x":
				x += v
				group += 2 * v * slopes.Mean.At(i%5, 1)
				n++
			case "z":
				z += v
			}
		}
	}
	raw := testkit.Must(table.Model("y ~ 0 + x + log(t) + I(x/t)", Raw())).X
	inverse := 0.
	for i := range table.Len() {
		u += raw.At(i, 1)
		inverse += raw.At(i, 2)
	}
	for name, want := range map[string]float64{
		"x": coefficient["x"] + 2*coefficient["I(x^2)"]*x/n + coefficient["I(x * z)"]*z/n +
			coefficient["log(t):x"]*u/n + group/n,
		"z": coefficient["I(x * z)"] * x / n,
		"t": coefficient["log(t):x"] * inverse / n,
	} {
		if got := by[name].Mean; math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("the effect of %s is %v, want %v", name, got, want)
		}
	}
	// sqrt(x) ends at 0, so the effect there is the slope of the chord to its right.
	var b strings.Builder
	b.WriteString("y,x\n")
	for i := range 40 {
		fmt.Fprintf(&b, "%v,%d\n", 3*math.Sqrt(float64(i%9))+0.01*float64(i%7), i%9)
	}
	m = mustModel(t, tableOf(t, b.String()), "y ~ sqrt(x)")
	post, _ = mustFit(t, m, nil)
	e := testkit.Must(m.MarginalEffects(post)).Rows[0]
	h := effectStep * m.enc.column("x").SD
	want, rows := 0., 0.
	for i := range 40 {
		rows++
		if x := float64(i % 9); x == 0 {
			want += math.Sqrt(2*h) / (2 * h)
		} else {
			want += (math.Sqrt(x+h) - math.Sqrt(x-h)) / (2 * h)
		}
	}
	want *= m.Summary(post).Coefficients[1].Mean / rows
	if e.Name != "x" || math.Abs(e.Mean-want) > 1e-6*want {
		t.Errorf("the effect of %s is %v, want %v", e.Name, e.Mean, want)
	}
}

// TestArithmeticMistakes checks that a value that cannot be computed is an error with its row and
// its term, and never a number.
func TestArithmeticMistakes(t *testing.T) {
	table := tableOf(t, "y,x,z,f,when,w,log(w),one\n1.5,2,1,a,2020-01-02,1,0,1\n"+
		"2,3,0,b,2020-02-02,2,1,1\n"+
		"4,1.5,2,a,2020-03-02,3,1.5,1\n3,4,3,b,2020-05-02,4,2,1\n")
	for _, c := range []struct{ formula, want string }{
		{"y ~ I(x/z)", `line 3, column "I(x/z)": I(x/z) is +Inf where x is 3 and z is 0`},
		{"y ~ x + f:log(z)", `line 3, column "log(z)": log(z) is -Inf where z is 0`},
		{"y ~ x + offset(log(z))", `line 3, column "log(z)": log(z) is -Inf where z is 0`},
		{"y ~ sqrt(x - 2)", `line 4, column "sqrt(x - 2)": sqrt(x - 2) is undefined where x is 1.5`},
		{"y ~ exp(1e3*x)", `line 2, column "exp(1000 * x)": exp(1000 * x) is +Inf where x is 2`},
		{"y ~ I(x*f)", `"f"`},
		{"y ~ log(when)", `"when"`},
		{"y ~ log(x) + I(q^2)", `no column "q"`},
		{"y ~ log(w)", `the table has a column named "log(w)", so the term is ambiguous`},
		{"y ~ I(x - x)", "all values in the kept rows are the same"},
		{"y ~ x + I(x*one)", `column "one": all values are "1"`},
	} {
		_, err := table.Model(c.formula)
		if !errors.Is(err, pgsvi.ErrParam) && !errors.Is(err, pgsvi.ErrNotFinite) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.formula, err, c.want)
		}
	}
	wrong := `I(x * f): column "f" is a category instead of a number`
	if _, err := table.Model("y ~ I(x*f)", Category("f")); err == nil ||
		!strings.Contains(err.Error(), wrong) {
		t.Error(err)
	}
	if m := mustModel(t, table, "y ~ I(x*w)"); len(m.enc.Doubts()) > 0 {
		t.Errorf("doubts %q", m.enc.Doubts())
	}
	m := mustModel(t, table, "y ~ . - when - one", Category("f"))
	if !slices.Contains(m.Names, "log(w)") {
		t.Errorf("features %q", m.Names) // the column of the table
	}
	_, p := mustFit(t, mustModel(t, table, "y ~ x + log(x) + I(x/(w + 1))"), nil)
	p = reloaded(t, p)
	for _, c := range []struct {
		row  map[string]any
		want string
		is   error
	}{
		{map[string]any{"x": 0, "w": 1}, "log(x) is -Inf where x is 0", pgsvi.ErrParam},
		{map[string]any{"x": 1, "w": -1}, "I(x/(w + 1)) is +Inf where x is 1 and w is -1",
			pgsvi.ErrParam},
		{map[string]any{"x": 1, "w": "many"}, `column "w": "many" is not a number`,
			pgsvi.ErrNotFinite},
		{map[string]any{"x": 1}, `column "w": the value is missing`, pgsvi.ErrNotFinite},
		{map[string]any{"x": 1, "w": 1, "v": 1}, `no column "v"`, pgsvi.ErrParam},
	} {
		a, err := p.Predict(c.row)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, %v; want %s", c.row, a, err, c.want)
		}
	}
	for a, err := range p.Table(tableOf(t, "x,w\n2,1\n-2,1\n"), 0.9) {
		if (err != nil) != (a.Row == 1) || err != nil &&
			!strings.Contains(err.Error(), `line 3, column "log(x)": log(x) is undefined where x is -2`) {
			t.Errorf("row %d: %v", a.Row, err)
		}
	}
	for _, err := range p.Table(tableOf(t, "x,log(x),I(x/(w + 1))\n3,1,1\n"), 0.9) {
		if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), `no column "w"`) {
			t.Error(err)
		}
	}
}

// TestArithmeticMissing checks that a computed column is missing where one of its columns is.
func TestArithmeticMissing(t *testing.T) {
	var b strings.Builder
	b.WriteString("y,x,z\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d.5,%s,%d\n", i*i%7, []string{"1", "2.5", "5", "NA"}[i%4], 1+i%5)
	}
	table := tableOf(t, b.String())
	if _, err := table.Model("y ~ log(x)"); err == nil ||
		!strings.Contains(err.Error(), `column "x"`) || strings.Contains(err.Error(), `"log(x)"`) {
		t.Error(err)
	}
	m := mustModel(t, table, "y ~ z + I(x*z)", Number("x").Drop())
	if len(m.Y) != 45 {
		t.Errorf("%d rows, want 45", len(m.Y))
	}
	m = mustModel(t, table, "y ~ z + I(x*z)", Number("x").Impute())
	if !slices.Equal(m.Names, []string{"z", "I(x * z)", "I(x * z) missing"}) {
		t.Errorf("features %q", m.Names)
	}
	for i := range 60 {
		if i%4 == 3 && (m.X.At(i, 1) != 0 || m.X.At(i, 2) != 1) {
			t.Errorf("row %d is %v and %v, want the mean and 1", i, m.X.At(i, 1), m.X.At(i, 2))
		}
	}
	_, p := mustFit(t, m, nil)
	a := testkit.Must(p.Predict(map[string]any{"x": nil, "z": 1}))
	if len(a.Notes) != 1 || a.Notes[0] != `"I(x * z)" is missing and replaced by the mean` {
		t.Errorf("notes %q", a.Notes)
	}
	// A value that is not finite does not matter in a row that is left out.
	hole := strings.Replace(b.String(), "0.5,1,1\n", "NA,0,1\n", 1)
	if m := mustModel(t, tableOf(t, hole), "y ~ log(x)", Number("x").Drop(),
		Outcome("y").Drop()); len(m.Y) != 44 {
		t.Errorf("%d rows, want 44", len(m.Y))
	}
}

// TestArithmeticDamaged checks that an encoder with an inconsistent computed column cannot be read.
func TestArithmeticDamaged(t *testing.T) {
	m := mustModel(t, computedTable(t, 40), "y ~ x + log(x) + factor(g)")
	file := string(testkit.Must(m.enc.MarshalJSON()))
	if err := new(Encoder).UnmarshalJSON([]byte(file)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"name":"log(x)"`, `"name":"log(q)"`},
		{`"name":"log(x)"`, `"name":"log( x)"`},
		{`"name":"log(x)"`, `"name":"x + 1"`},
		{`"name":"log(x)"`, `"name":"log(f)"`},
		{`"of":"g"`, `"of":"q"`},
		{`"of":"g"`, `"of":"log(x)"`},
		{`"of":"g"`, `"of":"factor(g)"`},
	} {
		damaged := strings.Replace(file, c[0], c[1], 1)
		if err := new(Encoder).UnmarshalJSON([]byte(damaged)); damaged == file ||
			!errors.Is(err, pgsvi.ErrFile) {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}
