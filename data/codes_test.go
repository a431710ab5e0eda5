package data

import (
	"fmt"
	"strings"
	"testing"
)

// codesFile returns a table with n rows of the named column, with the values, and of z and y.
func codesFile(n int, name string, values ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s,z,y\n", name)
	for i := range n {
		fmt.Fprintf(&b, "%d,%d.5,%d.25\n", values[i*i%7%len(values)], i%11, (i*i+3*i)%17)
	}
	return b.String()
}

// TestCodesWithGaps checks that each choice about codes also decides about missing values.
func TestCodesWithGaps(t *testing.T) {
	text := codesFile(60, "status", 1, 2, 3) + ",3.5,4.25\n"
	table := tableOf(t, text)
	s := table.Suggest("y")
	if len(s.Decisions) != 1 || len(s.Decisions[0].Choices) < 3 {
		t.Fatalf("suggests %v", s)
	}
	for _, c := range s.Decisions[0].Choices {
		if left := table.Suggest("y", c.Column); len(left.Decisions) > 0 {
			t.Errorf("%s leaves %v", c.Column, left)
		}
	}
}

// TestCodes checks that small whole numbers raise a doubt, and need a decision if the name of their
// column suggests codes.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		rows           int
		name           string
		values         []int
		doubts, needed bool
	}{
		{100, "x", []int{0, 1, 2}, true, false},
		{100, "x", []int{1, 2, 3}, true, false},
		{12, "x", []int{0, 1, 2}, true, false},
		{12, "x", []int{1, 2, 3}, true, false},
		{100, "x", []int{0, 1}, false, false},
		{100, "x", []int{1, 2}, false, false},
		{100, "n_children", []int{0, 1, 2, 3}, false, false},
		{100, "years", []int{1, 2, 3}, false, false},
		{100, "status", []int{0, 1}, false, false},
		{100, "status", []int{0, 1, 2}, false, true},
		{12, "status", []int{1, 2, 3}, false, true},
		{100, "Region", []int{1, 2, 3, 4}, false, true},
		{100, "plan_code", []int{1, 2, 3}, false, true},
		{100, "statusCode", []int{1, 2, 3}, false, true},
		{100, "decode", []int{1, 2, 3}, true, false},
	} {
		table := tableOf(t, codesFile(c.rows, c.name, c.values...))
		s := table.Suggest("y")
		if (len(s.Decisions) > 0) != c.needed {
			t.Errorf("%s %v of %d rows: suggests %v", c.name, c.values, c.rows, s)
			continue
		}
		if !c.needed {
			e, err := table.Encoder(Outcome("y"))
			if err != nil {
				t.Fatal(err)
			}
			if d := strings.Join(e.Doubts(), "\n"); strings.Contains(d, "if they are codes") !=
				c.doubts {
				t.Errorf("%s %v of %d rows: doubts %q", c.name, c.values, c.rows, d)
			}
			if text := table.String(); strings.Contains(text, "few whole numbers") != c.doubts {
				t.Errorf("%s %v: %s", c.name, c.values, text)
			}
			continue
		}
		first := fmt.Sprintf("data.Category(%q)", c.name)
		if got := s.Decisions[0].Choices[0].Column.String(); got != first {
			t.Errorf("suggests %s, want %s", got, first)
		}
		for _, choice := range s.Decisions[0].Choices {
			if _, err := table.Encoder(Outcome("y"), choice.Column); err != nil {
				t.Error(choice.Column, err)
			}
		}
		for _, f := range []string{"y ~ z", "y ~ z + poly(%s, 2)", "y ~ z + log(%s)"} {
			if strings.Contains(f, "log") && c.values[0] == 0 {
				continue
			}
			if strings.Contains(f, "%") {
				f = fmt.Sprintf(f, c.name)
			}
			if _, err := table.Model(f); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}
