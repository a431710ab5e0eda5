package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// TestCommand measures two lines, reads them again, and replaces a table.
func TestCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "README.md")
	if err := os.WriteFile(page, []byte("<!-- begin coverage -->\n<!-- end coverage -->\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"-out", dir, "-readme", page, "-sets", "3", "-only", " 5 levels,sd 1,counts"}
	if err := run(context.Background(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	rows, err := readRows(filepath.Join(dir, "coverage.csv"))
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, r := range rows {
		again, err := r.measure(context.Background(), 3, 1)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range again.mean {
			if math.Abs(v-r.mean[k]) > 1e-4 || math.Abs(again.se[k]-r.se[k]) > 1e-4 {
				t.Errorf("%s: %s is %v ± %v, stored %v ± %v", r.name(), shareNames[k], v, again.se[k],
					r.mean[k], r.se[k])
			}
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), table(rows)) {
		t.Errorf("the page is\n%s", text)
	}
}

// TestTable checks that the tables of the documents have the stored rows, and that there are all.
func TestTable(t *testing.T) {
	rows, err := readRows("coverage.csv")
	if err != nil {
		t.Fatal(err)
	}
	all := cases()
	if len(rows) != len(all) {
		t.Fatalf("the file has %d rows, want %d", len(rows), len(all))
	}
	for i, r := range rows {
		if r.name() != all[i].name() || r.sets < all[i].defaultSets() {
			t.Errorf("row %d is %s of %d data sets, want %s", i, r.name(), r.sets, all[i].name())
		}
	}
	for page, want := range map[string]string{"../README.md": table(rows),
		"../../docs/mixed.md": summary(rows)} {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := "coverage"
		if page != "../README.md" {
			name = "coverage summary"
		}
		_, got, _, ok := tables.Lookup(string(b), name)
		if !ok || strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("the table of %s is\n%s\nbut the file has\n%s", page, got, want)
		}
	}
}

// TestBad checks that mistakes are errors.
func TestBad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range []string{"x", "-sets 1", "-sets -3", "-workers 0", "-nonsense", "-tables"} {
		args := append([]string{"-out", dir}, strings.Fields(args)...)
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	good := row{responses: "counts", form: slopes, sd: "1", levels: 5, sets: 9}
	for _, change := range [][2]string{{"counts", "words"}, {",5,", ",five,"}, {",0,0,0,", ",0,2,0,"},
		{"levels", "rows"}} {
		file := filepath.Join(dir, "coverage.csv")
		if err := writeRows(file, []row{good}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), change[0], change[1], 1)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if rows, err := readRows(file); err == nil {
			t.Errorf("%v: read %+v", change, rows)
		}
	}
}
