package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// askedFile has repeated identifiers, a text per row, a constant, a number and an outcome.
func askedFile() string {
	var b strings.Builder
	b.WriteString("patient,key,version,x,y\n")
	for i := range 90 {
		fmt.Fprintf(&b, "P%02d,K%03d,3,%d.5,%d.25\n", i/3, i, i*i%17, i*7%13)
	}
	return b.String()
}

// TestProposalsOfFormulas checks that the first choice of each decision suits the formula.
func TestProposalsOfFormulas(t *testing.T) {
	table := tableOf(t, askedFile())
	for _, c := range []struct{ formula, column, want string }{
		{"y ~ x + patient", "patient", `data.Category("patient")`},
		{"y ~ x + key", "key", `data.Category("key")`},
		{"y ~ x:key", "key", `data.Category("key")`},
		{"y ~ .", "patient", `data.Skip("patient")`},
		{"y ~ .", "key", `data.Skip("key")`},
		{"y ~ x + version", "version", ""},
	} {
		_, err := table.Model(c.formula)
		var undecided *DecisionError
		if !errors.As(err, &undecided) {
			t.Fatalf("%s: %v", c.formula, err)
		}
		i := slices.IndexFunc(undecided.Decisions, func(d Decision) bool {
			return d.Column == c.column
		})
		if i < 0 {
			t.Fatalf("%s: %v", c.formula, err)
		}
		d := undecided.Decisions[i]
		if c.want == "" {
			if len(d.Choices) > 0 || !strings.Contains(d.Problem, "remove it from the formula") {
				t.Errorf("%s: %v", c.formula, d)
			}
			continue
		}
		if got := d.Choices[0].Column.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.formula, got, c.want)
		}
		s := &Suggestions{Decisions: undecided.Decisions}
		if m, err := table.Model(c.formula, s.Columns()...); err != nil {
			t.Errorf("%s with %v: %v, %v", c.formula, s, m, err)
		}
		if c.formula == "y ~ ." && c.column == "patient" &&
			!strings.Contains(d.String(), "with (1 | patient) in the formula") {
			t.Errorf("%s: %v", c.formula, d)
		}
	}
}

// TestConstantInKeptRows checks that a column that is constant in the kept rows can be skipped.
func TestConstantInKeptRows(t *testing.T) {
	table := tableOf(t, "a,b,y\n1,0,2.5\n2,0,3.5\n,1,1.5\n4,0,3\n")
	_, err := table.Model("y ~ .", Number("a").Drop())
	var undecided *DecisionError
	if !errors.As(err, &undecided) || len(undecided.Decisions[0].Choices) != 1 {
		t.Fatalf("%v", err)
	}
	s := &Suggestions{Decisions: undecided.Decisions}
	if _, err := table.Model("y ~ .", append(s.Columns(), Number("a").Drop())...); err != nil {
		t.Error(err)
	}
	if _, err := table.Model("y ~ a + b", Number("a").Drop()); !errors.As(err, &undecided) ||
		len(undecided.Decisions[0].Choices) > 0 {
		t.Errorf("a column of the formula can be skipped: %v", err)
	}
}

// TestLongUnits checks that numbers with a unit as long as a date need a decision.
func TestLongUnits(t *testing.T) {
	table := tableOf(t, "mass,y\n65.74 kg,1.5\n70.4 kg,2.5\n81.25 kg,1\n")
	if s := table.Suggest("y").String(); !strings.Contains(s, `data.Number("mass").Unit("kg")`) {
		t.Errorf("suggests %s", s)
	}
}

// TestFewTexts checks that numbers with one text in up to half of the rows need a decision, and
// that a few numbers among levels do not.
func TestFewTexts(t *testing.T) {
	for text, asks := range map[string]bool{
		"a,y\n74,1\n67,2\nk.A.,1\nk.A.,4\n48,2\n19,1\n18,5\n55,3\n": true,
		"a,y\n1,1\n2,2\nmany,1\nmany,4\n2,2\n1,1\n1,5\n3,3\n":       false,
		"a,y\n1,1\n2,2\nx,1\ny,4\nz,2\n4,1\n5,5\n6,3\n7,1\n":        false,
	} {
		s := tableOf(t, text).Suggest("y").String()
		if strings.Contains(s, "MissingAre") != asks {
			t.Errorf("%s suggests %s", text, s)
		}
	}
}

// TestDigitDates checks that a date made of digits has all its digits, because 2023111 may be in
// January or in November.
func TestDigitDates(t *testing.T) {
	table := tableOf(t, "d,y\n20230101,1.5\n20231111,2.5\n20230211,1\n")
	e, err := table.Encoder(Date("d").Layout("20060102"), Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	if text := e.String(); !strings.Contains(text, "written as 20060102") {
		t.Error(text)
	}
	if r, err := e.Row(map[string]string{"d": "2023111"}); err == nil {
		t.Errorf("2023111 is read as %v", r)
	}
}

// TestNoFeature checks that the error about a model without columns and intercept gives the reason.
func TestNoFeature(t *testing.T) {
	table := tableOf(t, "m,y\nlow,1.5\nhigh,2.5\nlow,1\nhigh,2\n")
	for formula, want := range map[string]string{
		"m ~ 1": "cut points in place of an intercept", "y ~ 0": "no intercept"} {
		m, err := table.Model(formula, Outcome("m").Ordered("low", "high"))
		if formula == "y ~ 0" {
			m, err = table.Model(formula)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Options(nil, nil); !errors.Is(err, pgsvi.ErrEmpty) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", formula, err)
		}
	}
}

// TestRowNames checks that a line of names is not a title if only the second of two columns has a
// name.
func TestRowNames(t *testing.T) {
	table := tableOf(t, "\"\",\"y\"\n\"1\",2.5\n\"2\",3.5\n\"3\",1.5\n")
	if got := table.Columns(); !slices.Equal(got, []string{"x1", "y"}) || table.Format.Header !=
		FirstLineNames {
		t.Errorf("columns %q, format %v", got, table.Format)
	}
}

// TestDoubtOfCodes checks that codes are not called identifiers if the formula has a curve of them.
func TestDoubtOfCodes(t *testing.T) {
	var b strings.Builder
	b.WriteString("region,y\n")
	for i := range 30 {
		fmt.Fprintf(&b, "%d,%d.5\n", i%3, i*i%7)
	}
	m, err := tableOf(t, b.String()).Model("y ~ poly(region, 2)")
	if err != nil {
		t.Fatal(err)
	}
	if text := m.String(); strings.Contains(text, "all different") ||
		!strings.Contains(text, "if they are codes") {
		t.Error(text)
	}
}

// TestAtLine checks that an error of package pgsvi has only the line as its place.
func TestAtLine(t *testing.T) {
	for text, want := range map[string]string{
		"pgsvi: row 0: it has no moments: %w": "pgsvi: line 7: it has no moments",
		"column \"a\": it is missing: %w":     "pgsvi: line 7, column \"a\": it is missing"} {
		err := atLine(7, fmt.Errorf(text, pgsvi.ErrNotFinite))
		if !errors.Is(err, pgsvi.ErrNotFinite) || !strings.HasPrefix(err.Error(), want) ||
			strings.Contains(err.Error(), "row 0") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSearchEnds checks that FitGP returns the result of the search if the search ends early.
func TestSearchEnds(t *testing.T) {
	m, err := tableOf(t, askedFile()).Model("y ~ x", Number("x"))
	if err != nil {
		t.Fatal(err)
	}
	for steps := 1; steps < 100; steps++ {
		g, err := m.FitGP(context.Background(), pgsvi.SquaredExp{}, nil,
			&pgsvi.Solver{MaxIter: steps}, &pgsvi.LearnOptions{})
		if err != nil {
			continue // there is no posterior yet
		}
		if g.Learned.Fit != nil || g.Result == nil {
			t.Errorf("after %d steps the result is %v, and the search %v", steps, g.Result,
				g.Learned)
		}
		return
	}
	t.Error("no number of steps has a posterior")
}
