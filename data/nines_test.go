package data

import (
	"fmt"
	"strings"
	"testing"
)

// ninesFile returns a table with n rows of y and x, which is code in the rows of places.
func ninesFile(n int, x func(i int) string, code string, places ...int) string {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range n {
		v := x(i)
		for _, at := range places {
			if at == i {
				v = code
			}
		}
		fmt.Fprintf(&b, "%s,%d.5\n", v, (i*i+3*i)%17)
	}
	return b.String()
}

// TestNines checks that numbers made of nines need a decision if, and only if, they are far from
// all other numbers.
func TestNines(t *testing.T) {
	rating := func(i int) string { return fmt.Sprint(2 + i%5) }
	length := func(i int) string { return fmt.Sprintf("%d.%d", i%30, i%7) }
	wide := func(i int) string { return fmt.Sprintf("%d.5", 3*i) }
	signed := func(i int) string { return fmt.Sprintf("%d.25", i%40-20) }
	count := func(i int) string { return fmt.Sprint(i * i % 13) }
	for _, c := range []struct {
		name   string
		n      int
		x      func(int) string
		code   string
		places []int
		asks   bool
	}{
		{"99 of 2 to 6", 100, rating, "99", []int{3, 9}, true},
		{"-999 once", 100, length, "-999", []int{50}, true},
		{"-999.00", 100, length, "-999.00", []int{50, 60}, true},
		{"999.9", 100, length, "999.9", []int{50, 60}, true},
		{"9999", 100, length, "9999", []int{50, 60}, true},
		{"-9", 100, length, "-9", []int{50, 60, 70}, true},
		{"signed", 100, signed, "-999", []int{50, 60}, true},
		{"behind the texts kept", 6000, wide, "-999", []int{5800, 5900}, true},
		{"-99 of large numbers", 300, wide, "-99", []int{50, 60}, true},
		{"-999 once of signed numbers", 100, signed, "-999", []int{50}, true},
		{"9999 once", 100, rating, "9999", []int{50}, true},
		{"99 once", 100, length, "99", []int{50}, false},
		{"-999 once of few", 10, signed, "-999", []int{5}, false},
		{"9 of 0 to 12", 100, count, "9", []int{50, 60}, false},
		{"99 of 0 to 897", 300, wide, "99", []int{50, 60}, false},
		{"999 of 0 to 897", 300, wide, "999", []int{50, 60}, false},
		{"-9 of signed numbers", 100, signed, "-9", []int{50, 60}, false},
		{"100", 100, rating, "100", []int{3, 9}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := tableOf(t, ninesFile(c.n, c.x, c.code, c.places...))
			s := table.Suggest("y", Number("x"))
			if text := fmt.Sprint(s); strings.Contains(text, "far from") != c.asks {
				t.Fatalf("suggests %s", text)
			}
			if !c.asks {
				return
			}
			want := fmt.Sprintf("data.Number(\"x\").MissingAre(%q).Impute()", c.code)
			if got := s.Columns(); got[len(got)-1].String() != want {
				t.Errorf("suggests %s, want %s", got[len(got)-1], want)
			}
			for _, declared := range []Column{Number("x").NotMissing(c.code),
				Number("x").MissingAre(c.code).Drop(), Category("x"), Skip("x")} {
				text := fmt.Sprint(table.Suggest("y", declared))
				if strings.Contains(text, "far from") {
					t.Errorf("%s: suggests %s", declared, text)
				}
			}
			e, err := table.Encoder(s.Columns()...)
			if err != nil {
				t.Fatal(err)
			}
			if x := e.column("x"); x.Gaps != len(c.places) {
				t.Errorf("%d missing values, want %d", x.Gaps, len(c.places))
			}
			for _, row := range []any{map[string]string{"x": c.code}, map[string]any{"x": c.code}} {
				if r, err := e.Row(row); err != nil || len(r.Notes) != 1 ||
					!strings.Contains(r.Notes[0], "missing") {
					t.Errorf("%v: %v, %v", row, r, err)
				}
			}
		})
	}
}

// TestNinesElsewhere checks that nines in outcomes, weights and offsets need a decision, and that
// every choice suffices.
func TestNinesElsewhere(t *testing.T) {
	table := tableOf(t, ninesFile(60, func(i int) string { return fmt.Sprintf("%d.5", 1+i%7) },
		"-999", 4, 8))
	for _, declared := range []Column{Outcome("x"), Weight("x"), Offset("x"), Exposure("x")} {
		s := table.Suggest("", declared)
		if len(s.Decisions) != 1 || len(s.Decisions[0].Choices) < 2 {
			t.Fatalf("%s: suggests %v", declared, s)
		}
		for k, c := range s.Decisions[0].Choices {
			declared := strings.TrimPrefix(c.Column.String(), "data.")
			read, err := ReadColumns(strings.NewReader(declared))
			if err != nil || read[0].String() != c.Column.String() {
				t.Errorf("%s is read as %v, %v", c.Column, read, err)
			}
			if left := table.Suggest("", c.Column); len(left.Decisions) > 0 {
				t.Errorf("choice %d, %s, leaves %v", k, c.Column, left)
			}
		}
	}
}

// TestNinesOfLabels checks that one decision covers the code for a missing label and the positive
// label.
func TestNinesOfLabels(t *testing.T) {
	table := tableOf(t, ninesFile(60, func(i int) string { return fmt.Sprint(i % 2) }, "9",
		1, 3, 5, 7))
	s := table.Suggest("x")
	if len(s.Decisions) != 1 || !strings.Contains(s.Decisions[0].Choices[0].Column.String(),
		`MissingAre("9").Positive("1").Drop()`) {
		t.Errorf("suggests %v", s)
	}
}
