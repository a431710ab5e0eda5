package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/formula"
)

// TestCodings compares the coding of products with the "factors" of R's terms.formula, where 1
// means a contrast and 2 means every level, and checks which numbers may be centered. a, b and c
// are categories, and x and z are numbers. The terms are sorted by degree.
func TestCodings(t *testing.T) {
	for text, want := range map[string]string{
		"y ~ a + x":           "a1 x•",
		"y ~ 0 + a + b":       "a2 b1",
		"y ~ 0 + x + a":       "x• a2",
		"y ~ 0 + x":           "x",
		"y ~ x:a":             "x:a2",
		"y ~ a + x:a":         "a1 x•:a2",
		"y ~ x + x:a":         "x• x:a1",
		"y ~ x*a":             "x• a1 x•:a1",
		"y ~ 0 + x*a":         "x• a2 x•:a1",
		"y ~ 0 + x + x:a":     "x x:a2",
		"y ~ a:b":             "a2:b2",
		"y ~ a:b + a:c":       "a2:b2 a2:c1",
		"y ~ a:b + a":         "a1 a2:b1",
		"y ~ a*b*c":           "a1 b1 c1 a1:b1 a1:c1 b1:c1 a1:b1:c1",
		"y ~ x*z":             "x• z• x•:z•",
		"y ~ x + x:z":         "x• x:z•",
		"y ~ x:z":             "x:z",
		"y ~ 0 + x*z":         "x z x•:z",
		"y ~ a + b + a:x:b":   "a1 b1 a2:x:b2",
		"y ~ a*b + a:x:b":     "a1 b1 a1:b1 a2:x•:b2",
		"y ~ a:b + a:x:b":     "a2:b2 a2:x•:b2",
		"y ~ x + a:x + a:b:x": "x• a1:x a2:b1:x",
	} {
		f, err := formula.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if f, err = f.Resolve([]string{"y", "a", "b", "c", "x", "z"}); err != nil {
			t.Fatal(err)
		}
		category := func(name string) bool { return name < "x" }
		all := newCodings(f, category, func(name string) bool { return !category(name) })
		var got []string
		for _, c := range all.list {
			var factors []string
			for i, name := range c.columns {
				switch {
				case category(name):
					name += fmt.Sprint(1 + b2i(c.full[i]))
				case c.center[i]:
					name += "•"
				}
				factors = append(factors, name)
			}
			got = append(got, strings.Join(factors, ":"))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", text, s, want)
		}
		if err := all.check(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"y ~ a:x + a:b", "y ~ x:a:z + x:a:b"} {
		f, err := formula.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		category := func(name string) bool { return slices.Contains([]string{"a", "b"}, name) }
		err = newCodings(f, category, func(string) bool { return false }).check()
		if err == nil || !strings.Contains(err.Error(), "depends on the reference level of b") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
