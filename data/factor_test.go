package data

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
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
