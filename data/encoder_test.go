package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestEncoderColumns compares small tables with the expected features and outcomes.
func TestEncoderColumns(t *testing.T) {
	for name, c := range map[string]struct {
		in      string
		columns []Column
		names   []string
		x, y    []float64
		labels  []string
	}{
		"no header": {"1,2,0\n3,4,7\n5,5,1\n", []Column{Outcome("y")}, []string{"x1", "x2"},
			[]float64{1, 2, 3, 4, 5, 5}, []float64{0, 7, 1}, nil},
		"dropped": {"1,?,0\n3,4,1\n5,6,7\n8,9,3\n", []Column{Outcome("y"), Number("x2").Drop()},
			[]string{"x1", "x2"}, []float64{3, 4, 5, 6, 8, 9}, []float64{1, 7, 3}, nil},
		"named like it": {"x1,b,y\n1,2,3\n2,5,6\n3,8,0\n", []Column{Outcome("y"), Number("x1")},
			[]string{"x1", "b"}, []float64{1, 2, 2, 5, 3, 8}, []float64{3, 6, 0}, nil},
		"nameless": {",b,y\n1,2,3\n4,5,6\n7,8,0\n", []Column{Outcome("y"), Skip("x1")},
			[]string{"b"}, []float64{2, 5, 8}, []float64{3, 6, 0}, nil},
		"category of numbers": {"a,y\n10,1\n9,2\n10,3\n", []Column{Outcome("y"), Category("a")},
			[]string{"a=9"}, []float64{0, 1, 0}, []float64{1, 2, 3}, nil},
		"positive": {"a,y\n1,no\n2,yes\n", []Column{Outcome("y").Positive("no")},
			[]string{"a"}, []float64{1, 2}, []float64{1, -1}, []string{"yes", "no"}},
		"positive number": {"a,y\n1,2\n2,1\n", []Column{Outcome("y").Positive("1")},
			[]string{"a"}, []float64{1, 2}, []float64{-1, 1}, []string{"2", "1"}},
		"two numbers": {"a,y\n1,2\n2,1\n", []Column{Outcome("y").Quantity()}, []string{"a"},
			[]float64{1, 2}, []float64{2, 1}, nil},
		"classes": {"a,y\n1,p\n2,q\n3,r\n4,p\n", []Column{Outcome("y")}, []string{"a"},
			[]float64{1, 2, 3, 4}, []float64{0, 1, 2, 0}, []string{"p", "q", "r"}},
		"numbered classes": {"a,y\n1,10\n2,9\n3,1\n4,9\n", []Column{Outcome("y").Classes()},
			[]string{"a"}, []float64{1, 2, 3, 4},
			[]float64{2, 1, 0, 1}, []string{"1", "9", "10"}},
		"fold": {"a,y\n1,Ja\n2,nein\n3,ja\n",
			[]Column{Outcome("y").Positive("JA").FoldCase()}, []string{"a"}, []float64{1, 2, 3},
			[]float64{1, -1, 1}, []string{"nein", "ja"}},
		"counts": {"a,y\n1,2\n2,7\n3,0\n", []Column{Outcome("y")}, []string{"a"},
			[]float64{1, 2, 3}, []float64{2, 7, 0}, nil},
		"quotes and commas": {"\"a,b\",\"y\"\"\"\n\"p,\nq\",1\nr,2\nr,3\n",
			[]Column{Outcome("y\"")}, []string{"a,b=p,\nq"}, []float64{1, 0, 0}, []float64{1, 2, 3},
			nil},
		"empty tab": {"a\tb\ty\n1\t\t3\n4\t5\t6\n7\t8\t9\n",
			[]Column{Outcome("y"), Number("b").Impute()}, []string{"a", "b", "b missing"},
			[]float64{1, 6.5, 1, 4, 5, 0, 7, 8, 0}, []float64{3, 6, 9}, nil},
		"own level": {"a,y\nNULL,1\np,2\nq,3\nq,5\n",
			[]Column{Outcome("y"), Category("a").Level().New()},
			[]string{"a=p", "a=(missing)", "a=(new)"},
			[]float64{0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, []float64{1, 2, 3, 5}, nil},
		"sodium is no gap": {"a,y\nNa,1\nK,2\nK,3\n", []Column{Outcome("y")}, []string{"a=Na"},
			[]float64{1, 0, 0}, []float64{1, 2, 3}, nil},
		"Namibia is no gap": {"a,y\nNA,1\nK,2\nK,3\n",
			[]Column{Outcome("y"), Category("a").NotMissing("NA")}, []string{"a=NA"},
			[]float64{1, 0, 0}, []float64{1, 2, 3}, nil},
		"reference": {"a,y\np,1\nq,2\nr,3\n",
			[]Column{Outcome("y"), Category("a").Reference("q")}, []string{"a=p", "a=r"},
			[]float64{1, 0, 0, 0, 0, 1}, []float64{1, 2, 3}, nil},
		"limits": {"a,y\n1,1\n<0.4,2\n>9,3\n2,4\n3,4\n4,4\n5,4\n6,4\n",
			[]Column{Outcome("y"), Number("a").BelowLimit("half")}, []string{"a"},
			[]float64{1, 0.2, 9, 2, 3, 4, 5, 6}, []float64{1, 2, 3, 4, 4, 4, 4, 4}, nil},
		"limits as they are": {"a,y\n1,1\n<0.4,2\n2,4\n3,4\n4,4\n5,4\n",
			[]Column{Outcome("y"), Number("a").BelowLimit("at")}, []string{"a"},
			[]float64{1, 0.4, 2, 3, 4, 5}, []float64{1, 2, 4, 4, 4, 4}, nil},
		"units": {"a;b;y\n1,5 €;-€2.000;1 %\n-2.000,25 €;€3;2 %\n3 €;€4;4 %\n",
			[]Column{Outcome("y")}, []string{"a", "b"},
			[]float64{1.5, -2000, -2000.25, 3, 3, 4}, []float64{1, 2, 4}, nil},
		"each its sign": {"a;b;y\n1,5;1.25;1\n2,5;1234.5;2\n1.234,5;2.5;4\n",
			[]Column{Outcome("y")}, []string{"a", "b"},
			[]float64{1.5, 1.25, 2.5, 1234.5, 1234.5, 2.5}, []float64{1, 2, 4}, nil},
		"sign of the column": {"a;y\n1.234;1\n5.678;2\n2;3\n",
			[]Column{Outcome("y"), Number("a").Decimal(',')}, []string{"a"},
			[]float64{1234, 5678, 2}, []float64{1, 2, 3}, nil},
		"sign of the file": {"a;b;y\n1.234;1,5;1\n5.678;2,5;2\n2;2,5;3\n", []Column{Outcome("y")},
			[]string{"a", "b"}, []float64{1234, 1.5, 5678, 2.5, 2, 2.5}, []float64{1, 2, 3}, nil},
		"months": {"a,y\n2024-01-05,1\n2024-03-01,2\n2024-12-31,3\n",
			[]Column{Outcome("y"), Date("a").As(Month)},
			[]string{"a.month=2", "a.month=3", "a.month=4", "a.month=5", "a.month=6", "a.month=7",
				"a.month=8", "a.month=9", "a.month=10", "a.month=11", "a.month=12"},
			[]float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
				0, 0, 0, 0, 0, 0, 1}, []float64{1, 2, 3}, nil},
		"weekdays": {"a,y\n2024-01-01,1\n02.01.2024,2\n2024-01-07,3\n",
			[]Column{Outcome("y"), Date("a").As(Weekday)},
			[]string{"a.weekday=Tue", "a.weekday=Wed", "a.weekday=Thu", "a.weekday=Fri",
				"a.weekday=Sat", "a.weekday=Sun"},
			[]float64{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, []float64{1, 2, 3},
			nil},
		"years": {"a,y\n1.1.2020,1\n31.12.2023,2\n\"\",3\n",
			[]Column{Outcome("y"), Date("a").Impute()}, []string{"a.elapsed", "a missing"},
			[]float64{0, 0, 1460 / 365.25, 0, 730 / 365.25, 1}, []float64{1, 2, 3}, nil},
		"month first": {"a,y\n1/2/2020,1\n1/2/2021,2\n",
			[]Column{Outcome("y").Quantity(), Date("a").Layout("01/02/2006").As(Month)}, nil,
			make([]float64, 22), []float64{1, 2}, nil},
		"constant twin": {"a,b,y\n1,2,1\n2,2,2\n3,2,3\n", []Column{Outcome("y"), Skip("b")},
			[]string{"a"}, []float64{1, 2, 3}, []float64{1, 2, 3}, nil},
	} {
		_, d := encode(t, c.in, c.columns...)
		if c.names == nil {
			c.names = d.Names
		}
		if !slices.Equal(d.Names, c.names) || !slices.Equal(d.Y, c.y) ||
			!slices.Equal(d.Labels, c.labels) {
			t.Errorf("%s: names %q, Y = %v, labels %q", name, d.Names, d.Y, d.Labels)
			continue
		}
		if want := mat.NewDense(len(c.y), len(c.names), c.x); !mat.EqualApprox(d.X, want, 1e-15) {
			t.Errorf("%s: X = %v", name, mat.Formatted(d.X))
		}
	}
}

// TestDecisions checks the decision that each column needs. "" means that it needs no decision.
func TestDecisions(t *testing.T) {
	column := func(rows int, f func(i int) any) string {
		var in strings.Builder
		in.WriteString("a,y\n")
		for i := range rows {
			fmt.Fprintf(&in, "%v,%d\n", f(i), i*7%10)
		}
		return in.String()
	}
	dates := []string{"2024-01-31", "31.1.2024", "1/31/2024", "31/1/24", "31-Jan-2024",
		"2024-01-31T10:11:12Z", "2024-01-31 10:11:12", "Jan 2024", "2024-01"}
	for name, c := range map[string]struct {
		in   string
		say  []Column
		want string
	}{
		"identifiers of letters": {column(100, func(i int) any { return fmt.Sprint("K", i) }), nil,
			`an identifier: 100 different texts in 100 rows; use Skip("a"), or Group("a")`},
		"repeated identifiers": {column(100, func(i int) any { return fmt.Sprint("K", i/2) }),
			nil, `50 different texts in 100 rows; use Group("a") for a random effect of each text, or Skip("a")`},
		"free texts": {column(100, func(i int) any {
			return strings.Repeat("some words ", 9) + fmt.Sprint(i)
		}), nil, `free text: 100 different texts; use Skip("a")`},
		"identifiers": {column(60, func(i int) any { return 1000 + i*i }), nil,
			`60 whole numbers, all different; use Skip("a"), or Number("a") if it measures`},
		"measured": {column(60, func(i int) any { return 1000 + i*i }),
			[]Column{Number("a")}, ""},
		"few whole numbers": {column(50, func(i int) any { return 1000 + i*i }), nil, ""},
		"one twice":         {column(60, func(i int) any { return max(i, 1) }), nil, ""},
		"not whole": {column(60, func(i int) any { return float64(i) + 0.5 }), nil,
			""},
		"ten levels": {column(20, func(i int) any { return fmt.Sprint("l", i/2) }), nil,
			""},
		"eleven levels": {column(22, func(i int) any { return fmt.Sprint("l", i/2) }), nil,
			"an identifier: 11 different texts in 22 rows"},
		"meant": {column(22, func(i int) any { return fmt.Sprint("l", i/2) }),
			[]Column{Category("a")}, ""},
		"constant": {column(20, func(i int) any { return 7 }), nil,
			`all values are "7"; use Skip("a")`},
		"constant texts": {column(20, func(i int) any { return "x" }), nil,
			`all values are "x"; use Skip("a")`},
		"constant, meant": {column(20, func(i int) any { return 7 }), []Column{Number("a")},
			`all values are "7"; use Skip("a")`},
		"nothing": {column(20, func(i int) any { return "NA" }), nil,
			`no values; use Skip("a")`},
		"missing number": {column(20, func(i int) any {
			return []any{"", i + 1}[min(i, 1)]
		}), nil, `1 of 20 values is missing, the first in line 2; use Number("a").Impute(), or Number("a").Drop() to leave`},
		"missing text": {column(20, func(i int) any {
			return []any{"?", "p", "q"}[i%3]
		}), nil, `7 of 20 values are missing ("?" (7)), the first in line 2; use Category("a").Level(), or Category("a").Drop()`},
		"one value or none": {column(20, func(i int) any { return []any{"", "p"}[i%2] }), nil,
			`Category("a").Level()`},
		"text among numbers": {column(20, func(i int) any {
			return []any{"k.A.", i + 1}[min(i, 1)]
		}), nil, `19 numbers, but also "k.A." (1); 1 of 20 values is missing ("k.A." (1)), the first in line 2; use Number("a").MissingAre("k.A.").Impute() if that means missing, or Category("a") if not`},
		"infinity": {column(20, func(i int) any {
			return []any{"inf", i + 1}[min(i, 1)]
		}), nil, `19 numbers, but also "inf" (1)`},
		"numbers among texts": {column(20,
			func(i int) any { return []any{"k.A.", i % 3}[min(i%3, 1)] }), nil, ""},
		"below a limit": {column(20, func(i int) any {
			return []any{"<0.3", i + 1}[min(i, 1)]
		}), nil, `19 numbers, and 1 beyond a detection limit, such as "<0.3"; use Number("a").BelowLimit("half")`},
		"case": {column(40, func(i int) any {
			return []any{"x", "X", "z"}[i%3]
		}), nil, `levels that differ only in case, "X" and "x"; use Category("a").FoldCase(), or Category("a").KeepCase()`},
		"case, meant": {column(40, func(i int) any { return []any{"x", "X", "z"}[i%3] }),
			[]Column{Category("a").KeepCase()}, ""},
		"accents": {column(40, func(i int) any {
			return []any{"\u00e9", "e\u0301", "z"}[i%3]
		}), nil, `Category("a").FoldCase()`},
		"no sign": {column(20, func(i int) any {
			return fmt.Sprintf("%d.234", i+1)
		}), nil, `no value shows whether "1.234" is 1.234 or 1234; use Number("a").Decimal('.') if 1.234, or Number("a").Decimal(',') if 1234`},
		"a sign": {column(20, func(i int) any { return fmt.Sprintf("%d.234", i) }),
			nil, ""},
		"thousands": {column(20, func(i int) any {
			return fmt.Sprintf("\"%d,234\"", i+1)
		}), nil, `"1,234" is 1234 or 1.234; use Number("a").Decimal('.')`},
		"surely thousands": {column(20,
			func(i int) any { return fmt.Sprintf("\"%d,234,567\"", i+1) }), nil, ""},
		"units": {column(20, func(i int) any {
			return fmt.Sprint(i, []string{" €", " $"}[i%2])
		}), nil, `different units, "$" (10), "€" (10); use Number("a").AnyUnit()`},
		"a unit": {column(40, func(i int) any { return fmt.Sprint(i, " kg") }), nil,
			`numbers with a unit, such as "0 kg"; use Number("a").Unit("kg"), or Category("a")`},
		"postal codes": {column(30,
			func(i int) any { return fmt.Sprintf("%05d", 9000+i%4) }), nil, ""},
		"card numbers": {column(30, func(i int) any {
			return 4000123412341234 + int64(i*7%30)
		}), nil, `an identifier: 30 different texts`},
		"ambiguous dates": {column(30, func(i int) any {
			return fmt.Sprintf("%d/%d/2024", i%12+1, i%7+1)
		}), nil, `can be day/month or month/day; use Date("a").Layout("2/1/2006") if the day comes first, or Date("a").Layout("1/2/2006") if the month comes first`},
		"settled dates": {column(30,
			func(i int) any { return fmt.Sprintf("%d/%d/2024", i%12+1, i%28+1) }), nil, ""},
		"a text among dates": {column(30, func(i int) any {
			return []string{"never", fmt.Sprintf("2024-01-%02d", i+1)}[min(1, i)]
		}), nil, `29 dates, but also "never" (1); 1 of 30 values is missing ("never" (1)), the first in line 2; use Date("a").MissingAre("never").Impute()`},
		"no layout": {column(30, func(i int) any {
			return fmt.Sprintf("2024-01-%02d", i+1)
		}), []Column{Date("a").Layout("YYYY-MM-DD")},
			`Layout("YYYY-MM-DD") has no year, month or day; write layouts as in Go`},
		"no dates": {column(30, func(i int) any { return "x" + fmt.Sprint(i%2) }),
			[]Column{Date("a")}, `no value is a date: "x0" (15), "x1" (15)`},
		"no numbers": {column(30, func(i int) any { return "x" + fmt.Sprint(i%2) }),
			[]Column{Number("a")}, `no value is a number: "x0" (15), "x1" (15); use Category("a")`},
		"no such column": {people,
			[]Column{Number("weight"), Outcome("ill").Positive("yes")},
			`column "weight": the table has no such column; it has "age"`},
		"letters swapped": {people, []Column{Number("aeg"), Outcome("ill").Positive("yes")},
			`column "aeg": the table has no such column; did you mean "age"?`},
		"another case": {people, []Column{Number("Age"), Outcome("ill").Positive("yes")},
			`column "Age": the table has no such column; did you mean "age"?`},
		"twice": {people,
			[]Column{Number("age"), Category("age"), Outcome("ill").Positive("yes")},
			`declared twice, by Number("age") and Category("age")`},
		"two outcomes": {people, []Column{Outcome("age"), Outcome("ill").Positive("yes")},
			`two outcomes, this column and "age"`},
		"nil": {people,
			[]Column{nil, NumberColumn{}, Outcome("ill").Positive("yes")},
			`not made by a function such as Number`},
		"no reference": {people,
			[]Column{Category("colour").Reference("pink"), Outcome("ill").Positive("yes")},
			`the reference "pink" is not a level; the levels are "blue" (1), "green" (1), "red" (1)`},
		"UnknownIsMissing": {people,
			[]Column{Category("colour").UnknownIsMissing(), Outcome("ill").Positive("yes")},
			`UnknownIsMissing needs Level`},
		"two labels": {"a,y\n1,A\n2,B\n3,B\n", []Column{Outcome("y")},
			`two labels, "B" (2), "A" (1), and either may be the positive label; use Outcome("y").Positive("B"), or Outcome("y").Positive("A") if "A" is`},
		"two numbers": {"a,y\n1,2\n2,1\n", []Column{Outcome("y")},
			`Outcome("y").Quantity() if they are numbers`},
		"no and yes":     {people, []Column{Outcome("ill")}, ""},
		"0 and 1":        {"a,y\n1,0\n2,1\n", []Column{Outcome("y")}, ""},
		"TRUE and False": {"a,y\n1,TRUE\n2,False\n", []Column{Outcome("y")}, ""},
		"no such label": {people, []Column{Outcome("ill").Positive("maybe")},
			`the outcome is "yes" (2), "no" (1), but it needs two labels, one of them "maybe"`},
		"a third label": {"a,y\n" + strings.Repeat("1,p\n2,q\n", 9) + "3,-1\n4,k.A.\n",
			[]Column{Outcome("y").Positive("p").MissingAre("-1").Drop()},
			`Outcome("y").MissingAre("-1", "k.A.").Positive("p").Drop() if that means missing`},
		"one label": {"a,y\n1,p\n2,p\n", []Column{Outcome("y")},
			`the outcome is always "p" (2)`},
		"missing outcome": {"a,y\n1,3\n2,\n3,4\n4,7\n", []Column{Outcome("y")},
			`1 of 4 values is missing, the first in line 3; use Outcome("y").Drop()`},
		"text among outcomes": {"a,y\n1,3\n2,x\n3,4\n4,7\n5,6\n6,5\n", []Column{Outcome("y")},
			`Outcome("y").MissingAre("x").Drop() if that means missing, or Outcome("y").Classes() if not`},
		"missing exposure": {"a,t,y\n1,3,1\n2,,2\n3,4,3\n", []Column{Outcome("y"),
			Exposure("t")}, `Exposure("t").Drop()`},
	} {
		_, err := read(t, c.in).Encoder(c.say...)
		var d *DecisionError
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.As(err, &d) || !errors.Is(err, pgsvi.ErrParam) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for _, date := range dates {
		for k := range 2 {
			other := strings.ReplaceAll(date, "24", fmt.Sprint(23-k))
			e, _ := encode(t, "b;y\n"+date+";1\n"+other+";2\n"+date+";3\n", Outcome("y"))
			if c := e.state.Columns[0]; c.Kind != kindDate || c.Max < 0.99 {
				t.Errorf("%s: %+v", date, c)
			}
		}
	}
}

// TestDoubts checks the doubts that an Encoder reports without refusing the table.
func TestDoubts(t *testing.T) {
	var in strings.Builder
	in.WriteString("site,kind,stars,told,when,y\n")
	for i := range 400 {
		y := i * 7 % 13 % 2
		gone := ""
		if y == 1 {
			gone = fmt.Sprint(i % 17)
		}
		fmt.Fprintf(&in, "%d,%c,%d,%s,%s,%d\n", 100+i%14, "ab"[b2i(i == 7)], i%4,
			[]string{"out", "in"}[y], gone, y)
	}
	table := read(t, in.String())
	e, err := table.Encoder(Outcome("y").Positive("1"), Number("when").Impute(), Category("kind"))
	if err != nil {
		t.Fatal(err)
	}
	doubts := strings.Join(e.Doubts(), "\n")
	for _, want := range []string{
		`column "site": 14 different whole numbers from 100 to 113; if they are codes, use Category("site")`,
		`column "stars": 4 different whole numbers from 0 to 3; if they are codes, use Category("stars")`,
		`column "kind": 1 level with fewer than 20 rows: "b" (1)`,
		`column "told": gives "y" away: its levels determine it in 400 of 400 rows`,
		`column "when": gives "y" away: it is missing for one of the two labels`,
	} {
		if !strings.Contains(doubts, want) {
			t.Errorf("no doubt %q in\n%s", want, doubts)
		}
	}
	if n := strings.Count(doubts, "\n") + 1; n != 5 || !strings.Contains(e.String(), "\ndoubts\n") {
		t.Errorf("%d doubts:\n%s", n, doubts)
	}
	e, _ = encode(t, claimsFile(500), Outcome("claims"), Skip("policy_id"),
		Number("veh_value").Decimal('.').Impute())
	if d := e.Doubts(); slices.ContainsFunc(d,
		func(s string) bool { return strings.Contains(s, "away") }) {
		t.Errorf("doubts %q", d)
	}
}

// TestEncoderErrors checks that errors name the line and column of rows that contradict the others.
func TestEncoderErrors(t *testing.T) {
	long := func(bad string) string {
		var b strings.Builder
		b.WriteString("a,b,t,y\n")
		for i := range 6000 { // more texts than a profile keeps
			fmt.Fprintf(&b, "%d.5,K%d,%d,%d\n", i, i, 1+i%3, i%9)
		}
		return b.String() + bad
	}
	for _, c := range []struct {
		in   string
		say  []Column
		want error
		says string
	}{
		{long("-7,K1,1,2\n"), []Column{Number("a").MissingAre("-7"), Group("b"), Outcome("y")},
			pgsvi.ErrNotFinite, `line 6002, column "a": the value is missing`},
		{"a,t,y\n1,1,2\n2,0,3\n4,1,4\n", []Column{Exposure("t"), Outcome("y")}, pgsvi.ErrParam,
			`line 3, column "t": the exposure is 0`},
		{"a,t,y\n1,1,2\n2,-1,3\n4,1,4\n", []Column{Weight("t"), Outcome("y")}, pgsvi.ErrParam,
			`line 3, column "t": the weight is -1`},
		{"a,t,y\n1,1,2\n2,1.5,3\n4,1,4\n", []Column{Trials("t"), Outcome("y")}, pgsvi.ErrParam,
			`line 3, column "t": the number of trials is 1.5`},
		{"a,y\n?,1\n2,?\n", []Column{Number("a").Drop(), Outcome("y").Drop()}, nil, ""},
	} {
		_, err := read(t, c.in).Encoder(c.say...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: t.csv: ") {
			t.Errorf("%q: %v, want %s", c.says, err, c.says)
		}
	}
}

// TestKept checks that Kept maps the rows of X to rows of the file.
func TestKept(t *testing.T) {
	in := "age,colour,ill\n31,red,yes\n\n?,red,no\n52,blue,no\n40,,yes\n28,red,yes\n"
	e, d := encode(t, in, Outcome("ill").Positive("yes"), Number("age").Drop(),
		Category("colour").Drop())
	if !slices.Equal(d.Kept, []int{0, 2, 4}) || e.state.Kept != 3 || e.state.Rows != 5 {
		t.Fatalf("kept %v, %v", d.Kept, e)
	}
	other := read(t, "colour,age\n?,1\nred,2\nblue,?\nblue,4\nred,5\n")
	test, err := e.Data(other)
	if err != nil || test.Y != nil || test.Labels != nil ||
		!slices.Equal(test.Kept, []int{1, 3, 4}) {
		t.Fatalf("%+v, %v", test, err)
	}
	for i, want := range []float64{2, 4, 5} {
		if test.X.At(i, 0) != want {
			t.Errorf("row %d has %v, want %v", i, test.X.At(i, 0), want)
		}
	}
	var got []string
	for r, err := range e.Rows(other) {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, fmt.Sprint(r.Line, r.Row, r.X))
	}
	want := []string{
		`pgsvi: t.csv: line 2, column "colour": the value is missing, and training left out such rows; use one of "blue", "red"`,
		"3 1 [2 0]", `pgsvi: t.csv: line 4, column "age": the value is missing, and training left out such rows; use a number`,
		"5 3 [4 1]", "6 4 [5 0]"}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q", got)
	}
	for range e.Rows(other) {
		break
	}
}

// TestDataOfAnotherTable checks columns in another order, missing columns and unknown levels.
func TestDataOfAnotherTable(t *testing.T) {
	e, _ := encode(t, people, Outcome("ill").Positive("no"), Category("colour").Reference("blue"))
	want := mat.NewDense(2, 4, []float64{20, 0, 0, 1, 0.5, 1, 0, 3})
	for name, c := range map[string]struct {
		in string
		y  []float64
	}{
		"same order": {"age,colour,smokes,ill\n20,blue,1,yes\n0.5,green,3,no\n", []float64{-1, 1}},
		"other order": {"ill,extra,smokes,colour,age\nyes,?,1,blue,20\nno,,3,green,0.5\n",
			[]float64{-1, 1}},
		"other sign": {"ill;extra;smokes;colour;age\nyes;?;1;blue;20\nno;;3;green;0,5\n",
			[]float64{-1, 1}},
		"one label":   {"age,colour,smokes,ill\n20,blue,1,no\n0.5,green,3,no\n", []float64{1, 1}},
		"no response": {"age,colour,smokes\n20,blue,1\n0.5,green,3\n", nil},
		"JSON":        {"{\"age\":20,\"colour\":\"blue\",\"smokes\":true}\n{\"smokes\":3,\"age\":0.5,\"colour\":\"green\"}\n", nil},
	} {
		d, err := e.Data(read(t, c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !mat.Equal(d.X, want) || !slices.Equal(d.Y, c.y) || (d.Y == nil) != (c.y == nil) {
			t.Errorf("%s: X = %v, Y = %v", name, mat.Formatted(d.X), d.Y)
		}
		i := 0
		for r, err := range e.Stream(strings.NewReader(strings.ReplaceAll(c.in, "0,5", "0.5")),
			name) {
			if err != nil || !slices.Equal(r.X, mat.Row(nil, i, want)) || r.Row != i {
				t.Errorf("%s: row %d of a stream is %v, %v", name, i, r, err)
			}
			i++
		}
		if i != 2 {
			t.Errorf("%s: %d rows of a stream", name, i)
		}
	}
	for _, c := range []struct {
		in   string
		want error
		says string
	}{
		{"age,colour,smokes,ill\n1,white,1,no\n", pgsvi.ErrParam,
			`line 2, column "colour": the level "white" is unknown; use one of "blue", "green", "red"`},
		{"age,colour,smokes,ill\n1,red,1,no\n1,red,1,perhaps\n", pgsvi.ErrLabel,
			`line 3, column "ill": the outcome "perhaps" is unknown; use one of "yes", "no"`},
		{"age,smokes,ill\n1,1,no\n", pgsvi.ErrShape, `no column "colour"`},
		{"Age,Colour,smokes,ill\n1,red,1,no\n", pgsvi.ErrShape,
			`no columns "age", "colour"; did you mean "Age"?`},
		{"age,colour,smokes,ill\nold,red,1,no\n", pgsvi.ErrNotFinite,
			`line 2, column "age": "old"`},
		{"age,colour,smokes,ill\n5 €,red,1,no\n", pgsvi.ErrParam,
			`line 2, column "age": "5 €" is not a number without a unit`},
		{"age,colour,smokes,ill\n1,?,1,no\n", pgsvi.ErrNotFinite,
			`line 2, column "colour": the value is missing, but no value was missing in training`},
	} {
		if d, err := e.Data(read(t, c.in)); d != nil || !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want %q", c.in, err, c.says)
		}
	}
}

// TestScaleColumns checks exposures, offsets, weights, trials and groups.
func TestScaleColumns(t *testing.T) {
	in := "a,days,o,w,n,g,y\n1,2,0.5,1,3,p,0\n2,4,0,0,2,q,2\n5,1,-1,2,7,p,5\n"
	e, d := encode(t, in, Outcome("y"), Exposure("days"), Offset("o"), Weight("w"), Trials("n"),
		Group("g"))
	if want := []float64{math.Log(2) + 0.5, math.Log(4), -1}; !slices.Equal(d.Offset, want) {
		t.Errorf("offset %v", d.Offset)
	}
	if !slices.Equal(d.Weights, []float64{1, 0, 2}) ||
		!slices.Equal(d.Trials, []float64{3, 2, 7}) || !slices.Equal(d.Names, []string{"a"}) {
		t.Errorf("%+v", d)
	}
	if g := d.Groups; len(g) != 1 || g[0].Column != "g" ||
		!slices.Equal(g[0].Levels, []string{"p", "q"}) ||
		!slices.Equal(g[0].Index, []int{0, 1, 0}) {
		t.Errorf("groups %+v", g)
	}
	r, err := e.Row(map[string]any{"a": 1, "days": 2, "o": 1})
	if err != nil || r.Offset != math.Log(2)+1 {
		t.Errorf("%+v, %v", r, err)
	}
	if d, err := e.Data(read(t, "a,days,o,g\n1,2,3,new\n")); err != nil ||
		d.Groups[0].Index[0] != -1 || d.Weights != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := e.Data(read(t, "a,days,o,g,n,y\n1,2,3,p,4,5\n")); !errors.Is(err,
		pgsvi.ErrLabel) || !strings.Contains(err.Error(), "5 successes in 4 trials") {
		t.Errorf("%v", err)
	}
}

// TestSparseData checks that mostly zeros make a sparse matrix, also for other tables.
func TestSparseData(t *testing.T) {
	var in strings.Builder
	in.WriteString("state,x,y\n")
	const levels = 40
	for i := range 4 * levels {
		fmt.Fprintf(&in, "s%02d,%d,%d\n", i%levels, i/2, i)
	}
	e, d := encode(t, in.String(), Outcome("y"), Category("state").Reference("s00"))
	x, sparse := d.X.(*pgsvi.Sparse)
	if !sparse {
		t.Fatalf("X is a %T", d.X)
	}
	for i := range 4 * levels {
		for j := range levels {
			want := float64(b2i(j == i%levels-1))
			if j == levels-1 {
				want = float64(i / 2)
			}
			if x.At(i, j) != want {
				t.Fatalf("(%d, %d) is %v, want %v", i, j, x.At(i, j), want)
			}
		}
	}
	test, err := e.Data(read(t, "state,x\ns01,3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, sparse := test.X.(*pgsvi.Sparse); !sparse || test.X.At(0, 0) != 1 ||
		test.X.At(0, levels-1) != 3 {
		t.Errorf("X of another table is a %T", test.X)
	}
}

// TestEncoderJSON checks that an Encoder is restored exactly.
func TestEncoderJSON(t *testing.T) {
	for _, g := range generated {
		table, err := Read(strings.NewReader(g.text), g.name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := table.Encoder(table.Suggest(g.outcome).Columns()...)
		if err != nil {
			t.Fatal(err)
		}
		file, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if g.name == "churn.csv" && len(file) > 6000 {
			t.Errorf("%s: %d bytes", g.name, len(file))
		}
		var back Encoder
		if err := json.Unmarshal(file, &back); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&back)
		if err != nil || !bytes.Equal(file, again) || back.String() != e.String() {
			t.Errorf("%s: read back to something else: %v", g.name, err)
		}
		d, err := e.Data(table)
		if err != nil {
			t.Fatal(err)
		}
		if d2, err := back.Data(table); err != nil || !mat.Equal(d.X, d2.X) ||
			!slices.Equal(d.Y, d2.Y) {
			t.Errorf("%s: encodes to something else: %v", g.name, err)
		}
	}
	for _, bad := range []string{`{`, `{}`, `{"version": 2}`, `[]`,
		`{"version":1,"columns":[null]}`, `{"version":1,"columns":[{"name":"a","kind":"x"}]}`,
		`{"version":1,"columns":[{"name":"a","kind":"number","sign":"."}]}`,
		`{"version":1,"columns":[{"name":"a","kind":"category","sign":"."}]}`,
		`{"version":1,"columns":[{"name":"a","kind":"skip"},{"name":"a","kind":"skip"}]}`,
		`{"version":1,"columns":[{"name":"a","kind":"category","sign":".","levels":["p","p"],"counts":[1,2],"reference":"p"}]}`} {
		var e Encoder
		if err := e.UnmarshalJSON([]byte(bad)); !errors.Is(err, pgsvi.ErrFile) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSubset checks that columns that are not used need no decision and are not features.
func TestSubset(t *testing.T) {
	table := read(t, churnFile(500))
	e, err := table.encoder([]string{"Anrufe", "Tarif", "gekündigt"},
		[]Column{Outcome("gekündigt").Positive("ja"), Category("Tarif").FoldCase()})
	if err != nil {
		t.Fatal(err)
	}
	if f := e.Features(); !slices.Contains(f, "Anrufe") || slices.Contains(f, "Monatspreis") {
		t.Errorf("features %q", f)
	}
	if _, err := e.Row(map[string]any{"Anrufe": 1, "Tarif": "PREMIUM",
		"Kundennr": "K-1"}); err != nil {
		t.Error(err)
	}
	if _, err := table.encoder([]string{"Anruf"}, nil); err == nil ||
		!strings.Contains(err.Error(), `did you mean "Anrufe"?`) {
		t.Errorf("%v", err)
	}
}
