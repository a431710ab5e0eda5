package data

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestAccounting checks numbers written in the styles of accounting and Fortran.
func TestAccounting(t *testing.T) {
	for text, want := range map[string]float64{
		"(5.5)": -5.5, "(1,234.50)": -1234.5, "5.5-": -5.5, "1,234.50-": -1234.5, "5.5−": -5.5,
		"(5.5 €)": -5.5, "(€5.5)": -5.5, "1.5D+03": 1500, "-1.5d-03": -0.0015, "5 %": 5,
		"( 5.5 )": -5.5,
	} {
		v, _, ok := numberOf(text, '.')
		if class, _ := classify(text); !ok || v != want || class&asPoint == 0 {
			t.Errorf("%q is %v, %v, %b, want %v", text, v, ok, class, want)
		}
	}
	for _, text := range []string{"(-5)", "-5-", "()", "-", "(5", "5)", "((5))", "1D3", "1D+03",
		"1.5D3", "1.5D+", "5--", "(a)", "(5)-"} {
		if class, _ := classify(text); class != 0 {
			t.Errorf("%q is a number, %b", text, class)
		}
		if v, _, ok := numberOf(text, '.'); ok {
			t.Errorf("%q is %v", text, v)
		}
	}
}

// TestAccountingColumns checks which columns have such numbers, and which columns need a decision.
func TestAccountingColumns(t *testing.T) {
	pick := func(all ...string) func(int) string {
		return func(i int) string { return all[i%len(all)] }
	}
	for _, c := range []struct {
		name string
		x    func(int) string
		kind kind
		asks bool
	}{
		{"parentheses", pick("(5.5)", "3.25", "7", "(1)"), kindNumber, false},
		{"minus behind", pick("5.5-", "3.25", "7", "1-"), kindNumber, false},
		{"Fortran", pick("1.5D+03", "0.2D+01", "3.5D-01"), kindNumber, false},
		{"all in parentheses", pick("(1)", "(2)", "(3)"), kindNumber, true},
		{"school grades", pick("1", "1-", "2", "2-", "3"), kindNumber, true},
		{"notes", pick("(5)", "a", "b", "c"), kindCategory, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := tableOf(t, columnFile(80, c.x))
			s := &spec{Name: "x"}
			if _, d := table.review(0, s); s.Kind != c.kind || (d != nil) != c.asks {
				t.Fatalf("%s, %v", s.Kind, d)
			}
			for _, choice := range table.Suggest("y").Decisions {
				for _, one := range choice.Choices {
					if _, err := table.Encoder(Outcome("y"), one.Column); err != nil {
						t.Errorf("%s: %v", one.Column, err)
					}
				}
			}
		})
	}
	table := tableOf(t, "x,y\n1.5,2\n2.5,1\n3.5,2\n4,7\n")
	e, err := table.Encoder(Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"(1.5)", "1.5-"} {
		if r, err := e.Row(map[string]string{"x": text}); err == nil {
			t.Errorf("%s is %v, though training had no such number", text, r)
		}
	}
}

// TestUnits checks that numbers with a unit need a decision, even if there are only a few numbers.
func TestUnits(t *testing.T) {
	for _, n := range []int{3, 30} {
		table := tableOf(t, columnFile(90, func(i int) string {
			return fmt.Sprintf("%d kg", 5*(i%n))
		}))
		s := table.Suggest("y")
		if len(s.Decisions) != 1 ||
			s.Decisions[0].Choices[0].Column.String() != `data.Number("x").Unit("kg")` {
			t.Fatalf("%d numbers: suggests %v", n, s)
		}
		for _, c := range s.Decisions[0].Choices {
			if left := table.Suggest("y", c.Column); len(left.Decisions) > 0 {
				t.Errorf("%s leaves %v", c.Column, left)
			}
		}
	}
}

// TestUnsettledSign checks that a text is read as training would have read it, or refused if
// training would have refused it.
func TestUnsettledSign(t *testing.T) {
	whole, point, comma := "x,y\n1,2\n2,1\n3,2\n4,7\n", "x,y\n1.5,2\n2,1\n3,2\n4,7\n",
		"x;y\n1,5;2\n2;1\n3;2\n4;7\n"
	for _, c := range []struct {
		table, text string
		want        float64 // 0 for an error
	}{
		{whole, "1,500", 0}, {whole, "1.500", 0}, {whole, "1500", 1500}, {whole, "1.5", 1.5},
		{point, "1,500", 1500}, {point, "1.500", 1.5}, {comma, "1,500", 1.5},
		{comma, "1.500", 1500}, {whole, "1,234,567", 1234567},
	} {
		e, err := tableOf(t, c.table).Encoder(Outcome("y"), Number("x").Raw())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []any{map[string]any{"x": c.text}, map[string]string{"x": c.text},
			[]byte(fmt.Sprintf(`{"x": %q}`, c.text))} {
			r, err := e.Row(row)
			if c.want == 0 && (!errors.Is(err, pgsvi.ErrNotFinite) ||
				!strings.Contains(err.Error(), "Decimal")) || c.want != 0 &&
				(err != nil || r.X[0] != c.want) {
				t.Errorf("%s of %q: %v, %v, want %v", c.text, c.table, r, err, c.want)
			}
		}
	}
	e, err := tableOf(t, whole).Encoder(Outcome("y"), Number("x").Decimal('.').Raw())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := e.Row(map[string]any{"x": "1,500"}); err != nil || r.X[0] != 1500 {
		t.Error(r, err)
	}
}
