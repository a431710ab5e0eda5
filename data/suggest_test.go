package data

import (
	"errors"
	"fmt"
	"go/parser"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// generated holds files like real files, with the decisions that they need.
var generated = []struct {
	name, text, outcome string
	calls               []string
	format              string // is part of what the table says
	rows                int
	features            int
}{
	{"churn.csv", churnFile(4000), "gekündigt", []string{
		`data.Outcome("gekündigt").Positive("ja")`,
		`data.Skip("Kundennr")`,
		`data.Date("Letzte Anfrage").Impute()`,
		`data.Category("Tarif").FoldCase()`,
		`data.Number("Alter").MissingAre("k.A.").Impute()`,
		`data.Skip("PLZ")`,
		`data.Category("Newsletter").Level()`,
	}, `UTF-8 with a byte order mark, separator ';', decimal sign ','`, 4000, 13},
	{"claims.csv", claimsFile(6000), "claims", []string{
		`data.Outcome("claims")`,
		`data.Skip("policy_id")`,
		`data.Number("veh_value").Decimal('.').Impute()`,
	}, `UTF-8, separator ',', unknown decimal sign`, 6000, 20},
	{"clinical.tsv", clinicalFile(900), "response", []string{
		`data.Outcome("response").Positive("yes")`,
		`data.Group("subject")`,
		`data.Category("sex").FoldCase()`,
		`data.Number("crp_mg_l").BelowLimit("half")`,
		`data.Number("bmi").Impute()`,
	}, `UTF-8, separator '\t', decimal sign '.'`, 900, 12},
	{"swiss.csv", swissFile(600), "Miete", []string{
		`data.Outcome("Miete")`,
		`data.Number("Grösse").Unit("m2")`,
		`data.Date("verfügbar").Layout("2/1/2006")`,
	}, `Windows-1252, separator ';', decimal sign '.'`, 600, 0},
	{"events.json", eventsFile(900), "paid", []string{
		`data.Outcome("paid").Positive("true")`,
		`data.Skip("id")`,
		`data.Number("receipt").Impute()`,
		`data.Number("score").Impute()`,
	}, `UTF-8, JSON objects`, 900, 8},
	{"sensors.txt", sensorsFile(800), "grade", []string{
		`data.Outcome("grade")`,
		`data.Category("country").Level()`,
		`data.Skip("note")`,
	}, `UTF-16LE with a byte order mark, separator '|', decimal sign '.'`, 800, 0},
}

// TestSuggest checks the format and the decisions of files, and that the decisions suffice.
func TestSuggest(t *testing.T) {
	for _, g := range generated {
		table, err := Read(strings.NewReader(g.text), g.name)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		if s := table.String(); !strings.Contains(s, g.format) || table.Len() != g.rows {
			t.Errorf("%s: %d rows, %s", g.name, table.Len(), s)
		}
		s := table.Suggest(g.outcome)
		var calls []string
		for line := range strings.Lines(s.String()) {
			call, _, _ := strings.Cut(strings.TrimSpace(line), ", // ")
			if !strings.HasPrefix(call, "//") {
				calls = append(calls, strings.TrimSuffix(call, ","))
			}
		}
		if g.format[0] != 0 && len(s.Columns()) != len(g.calls) {
			t.Errorf("%s: %s", g.name, s)
		}
		for i, c := range s.Columns() {
			if i < len(g.calls) && c.String() != g.calls[i] {
				t.Errorf("%s: %s, want %s", g.name, c, g.calls[i])
			}
			if !strings.Contains(s.String(), "\t"+c.String()+",") {
				t.Errorf("%s: %s is not in\n%s", g.name, c, s)
			}
			if _, err := parser.ParseExpr(c.String()); err != nil {
				t.Errorf("%s: %s: %v", g.name, c, err)
			}
		}
		checkDecisions(t, table, g.outcome, s)
		e, err := table.Encoder(s.Columns()...)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		d, err := e.Data(table)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		checkData(t, g.name, e, d)
		if g.features > 0 && len(e.Features()) != g.features {
			t.Errorf("%s: %d features:\n%v", g.name, len(e.Features()), e)
		}
	}
}

// checkDecisions checks that the error without decisions lists all of them in the order of the
// columns.
func checkDecisions(t *testing.T, table *Table, outcome string, s *Suggestions) {
	t.Helper()
	_, err := table.Encoder(Outcome(outcome))
	var d *DecisionError
	if len(s.Decisions) == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.As(err, &d) || !errors.Is(err, pgsvi.ErrParam) ||
		len(d.Decisions) != len(s.Decisions) {
		t.Fatalf("%v, want %d decisions", err, len(s.Decisions))
	}
	last := -1
	for i, x := range d.Decisions {
		at := slices.Index(table.Columns(), x.Column)
		if at <= last || x.String() != s.Decisions[i].String() ||
			!strings.Contains(err.Error(), "\n  "+x.String()) {
			t.Errorf("decision %d: %v", i, x)
		}
		last = at
	}
}

// checkData checks sizes, that all numbers are finite, and that standardized columns are
// standardized.
func checkData(t *testing.T, name string, e *Encoder, d *Data) {
	t.Helper()
	rows, cols := d.X.Dims()
	if rows != len(d.Kept) || cols != len(d.Names) || d.Y != nil && len(d.Y) != rows {
		t.Fatalf("%s: %d×%d, %d kept, %d names, %d outcomes", name, rows, cols, len(d.Kept),
			len(d.Names), len(d.Y))
	}
	for j := range cols {
		x := mat.Col(nil, j, d.X)
		if i, ok := dense.AllFinite(x); !ok {
			t.Errorf("%s: row %d of %s is %v", name, i, d.Names[j], x[i])
		}
	}
	for _, c := range e.state.Columns {
		if (c.Kind == kindNumber || c.Kind == kindDate) && c.Scale != 1 {
			var sum, squares, n float64
			for i, x := range mat.Col(nil, c.at, d.X) {
				if c.Missing != missingImpute || d.X.At(i, c.at+c.n-1) == 0 {
					sum, squares, n = sum+x, squares+x*x, n+1
				}
			}
			if mean, v := sum/n, squares/n; !(mean*mean < 1e-18) || !(v > 1-1e-9 && v < 1+1e-9) {
				t.Errorf("%s: %s has mean %v and variance %v", name, c.Name, mean, v)
			}
		}
	}
}

// TestGeneratedValues compares rows of the files with the values that were written.
func TestGeneratedValues(t *testing.T) {
	table := read(t, swissFile(600))
	e, err := table.Encoder(Outcome("Miete"), Number("Grösse").Unit("m2"),
		Date("verfügbar").Layout("02/01/2006").As(Month, Elapsed), Raw())
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprint(e); !strings.Contains(s, "Windows-1252") {
		t.Error(s)
	}
	d, err := e.Data(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"verfügbar.elapsed", "verfügbar.month=12",
		`Bemerkung=schön;` + "\n" + `hell`, "PLZ=0801", "Grösse"} {
		if !slices.Contains(d.Names, want) {
			t.Errorf("no feature %q in %q", want, d.Names)
		}
	}
	for i, y := range d.Y {
		if !(y >= 900 && y <= 4900) {
			t.Errorf("row %d: rent %v", i, y)
		}
	}
	if table := read(t, eventsFile(900)); true {
		e, err := table.Encoder(Outcome("paid").Positive("true"), Skip("id"),
			Number("receipt").Impute(), Number("score").Impute())
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(e); !strings.Contains(s,
			`column "receipt": gives "paid" away: it is missing for one of the two labels`) {
			t.Error(s)
		}
	}
	table = read(t, sensorsFile(800))
	e, err = table.Encoder(Outcome("grade").Classes(), Category("country").NotMissing("NA"),
		Skip("note"))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = e.Data(table); err != nil ||
		!slices.Equal(d.Labels, []string{"1", "2", "3", "4", "5"}) || slices.Max(d.Y) != 4 {
		t.Errorf("labels %q, %v", d.Labels, err)
	}
	if c := e.state.Columns[e.place["country"]]; c.Gaps != 0 || !slices.Contains(c.Levels, "NA") {
		t.Errorf("%+v", c)
	}
}
