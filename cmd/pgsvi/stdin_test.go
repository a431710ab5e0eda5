package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runFrom runs the command in this process with a standard input.
func runFrom(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := &command{ctx: context.Background(), stdin: strings.NewReader(stdin), stdout: &out,
		stderr: &errs}
	status = c.run(args)
	return status, out.String(), errs.String()
}

// TestStdin checks that each verb reads a table from standard input if it is named -.
func TestStdin(t *testing.T) {
	text, err := os.ReadFile(visits(t, 60))
	if err != nil {
		t.Fatal(err)
	}
	table := string(text)
	dir := t.TempDir()
	columns := write(t, dir, "columns.txt", "Outcome(\"bought\").Positive(\"yes\")\n"+
		"Number(\"age\").MissingAre(\"k.A.\").Impute()\n")
	model := filepath.Join(dir, "m")
	status, out, stderr := runFrom(table, "check", "-columns", columns, "-")
	if status != 0 || !strings.HasPrefix(out, "standard input: 60 rows") {
		t.Errorf("check: %d %s%s", status, out, stderr)
	}
	for _, args := range [][]string{
		{"fit", "-columns", columns, "-", "-formula", "bought ~ age + plan", "-o", model},
		{"gp", "-", "-columns", columns, "-learn=false"},
		{"predict", model, "-"}, {"predict", "-score", model, "-"}, {"predict", "--", model, "-"},
	} {
		status, out, stderr := runFrom(table, args...)
		if status != 0 || strings.Count(out, "\n") < 9 {
			t.Errorf("%q: %d %s%s", args, status, out, stderr)
		}
	}
	if status, _, stderr := runFrom("x,y\n1\n", "check", "-"); status != 1 ||
		!strings.Contains(stderr, "standard input: line 2 has 1 field, but the first line has 2") {
		t.Errorf("a short line: %d %s", status, stderr)
	}
	if status, _, stderr := runFrom("", "predict", model, "-"); status != 1 ||
		!strings.Contains(stderr, "standard input: ") {
		t.Errorf("nothing: %d %s", status, stderr)
	}
	for _, verb := range []string{"check", "fit", "gp", "predict"} {
		if _, _, help := run(t, verb, "-h"); !strings.Contains(help, "TABLE is -, read standard input") {
			t.Errorf("%s -h: %s", verb, help)
		}
	}
}

// TestFailedRows checks that predict has a separate exit status if some rows failed and others did
// not.
func TestFailedRows(t *testing.T) {
	dir, model := trained(t)
	for text, want := range map[string]int{
		"since,plan,age\n2020-03-01,gold,31\n":                           0,
		"since,plan,age\n2020-03-01,gold,31\n2020-03-01,gold,old\n":      3,
		"since,plan,age\n2020-03-01,gold,31\n2020-03-01,gold\n":          3,
		"since,plan,age\n2020-03-01,gold,31\n2020-03-01,gold,\x9f\x9e\n": 3,
		"since,plan\n2020-03-01,gold\n":                                  1,
	} {
		status, out, stderr := run(t, "predict", model, write(t, dir, "t.csv", text))
		if status != want || (want == 3) != strings.Contains(stderr, " errors=1") {
			t.Errorf("%q: status %d, want %d: %s%s", text, status, want, out, stderr)
		}
	}
	if _, out, _ := run(t, "-h"); !strings.Contains(out, "3 if predict failed") {
		t.Errorf("-h is without the status 3: %s", out)
	}
}
