package data

import (
	"fmt"
	"strings"
	"testing"
)

// TestFactorAdvice checks that advice to make a column a category is written as in a formula if the
// model has a formula, and as a call otherwise.
func TestFactorAdvice(t *testing.T) {
	var b strings.Builder
	b.WriteString("y,the x,odd\n")
	for i := range 80 {
		fmt.Fprintf(&b, "%d.5,%d,x%d\n", i*7%11, 1+i*5%3, i%2)
	}
	table, err := Read(strings.NewReader(b.String()), "codes.csv")
	if err != nil {
		t.Fatal(err)
	}
	m, err := table.Model("y ~ `the x`")
	if err != nil {
		t.Fatal(err)
	}
	const doubt = "if they are codes, "
	want := doubt + "write factor(`the x`) in the formula"
	if d := strings.Join(m.enc.Doubts(), "\n"); !strings.Contains(d, want) {
		t.Errorf("doubts of a formula %q, want %q", d, want)
	}
	e, err := table.Encoder(Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	want = doubt + `use Category("the x")`
	if d := strings.Join(e.Doubts(), "\n"); !strings.Contains(d, want) {
		t.Errorf("doubts of an encoder %q, want %q", d, want)
	}
	_, err = table.Model("y ~ odd", Number("odd"))
	if want := "use factor(odd) in the formula"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	_, err = table.Encoder(Outcome("y"), Number("odd"))
	if want := `use Category("odd")`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	m, err = table.Model("y ~ (0 + odd | `the x`)")
	if err != nil {
		t.Fatal(err)
	}
	want = "y by an effect of each odd for each `the x`"
	if text := m.String(); !strings.Contains(text, want) {
		t.Errorf("%s\nwant %q", text, want)
	}
}
