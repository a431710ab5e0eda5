package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
)

// TestMain is a program to measure if TASKS_SPIN is set.
func TestMain(m *testing.M) {
	switch os.Getenv("TASKS_SPIN") {
	case "":
		os.Exit(m.Run())
	case "fail":
		os.Stderr.WriteString("no such column\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// TestStored checks that the table of README.md matches tasks.csv.
func TestStored(t *testing.T) {
	rows, err := readCSV(".")
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _, _ := tables.Lookup(string(readme), "tasks")
	if strings.TrimSpace(block) != strings.TrimSpace(table(rows)) {
		t.Error("the table of README.md is not that of tasks.csv: go generate ./bench/tasks")
	}
	for _, task := range tasks {
		for _, p := range task.programs {
			if !slices.ContainsFunc(rows, func(r row) bool {
				return r.task == task.name && r.program == p.label
			}) {
				t.Errorf("tasks.csv has no row of %s by %q", task.name, p.label)
			}
		}
	}
}

// TestCSV checks that rows are read back in the order of the tasks, and that another table is an
// error.
func TestCSV(t *testing.T) {
	folder := t.TempDir()
	rows := []row{{"logit 100000", "pgsvi", "1f, dirty", 0.25, 0.5, 1, 3, "x, AVX2"},
		{"logit 2000", "R", "R 4", 2, 3, 8, 3, ""}}
	if err := writeCSV(folder, slices.Clone(rows)); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(rows)
	if got, err := readCSV(folder); err != nil || !slices.Equal(got, rows) {
		t.Errorf("%+v, %v; want %+v", got, err, rows)
	}
	for _, bad := range []string{"", "a,b\n", strings.Join(header, ",") + "\na,b,c,d,1,1,1,x\n"} {
		if err := os.WriteFile(folder+"/tasks.csv", []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readCSV(folder); err == nil {
			t.Errorf("%q gives no error", bad)
		}
	}
}

// TestGenerate checks that generated files are always the same, and that formulas can be fitted to
// their columns.
func TestGenerate(t *testing.T) {
	for _, task := range tasks {
		var texts [2][]byte
		for k := range texts {
			path := t.TempDir() + "/rows.csv"
			if err := task.generate(path, 500); err != nil {
				t.Fatal(err)
			}
			texts[k], _ = os.ReadFile(path)
		}
		if !bytes.Equal(texts[0], texts[1]) {
			t.Errorf("%s: two files differ", task.name)
		}
		table, err := data.Read(bytes.NewReader(texts[0]), task.name)
		if err != nil || table.Len() != 500 {
			t.Fatalf("%s: %v, %v", task.name, table, err)
		}
		args := task.programs[0].args
		if i := slices.Index(args, "-formula"); i >= 0 {
			if m, err := table.Model(args[i+1]); err != nil || !slices.Equal(m.Labels,
				[]string{"no", "yes"}) {
				t.Errorf("%s: %v", task.name, err)
			}
		}
	}
}

// TestInTurn checks the times of programs, and the error if a program fails.
func TestInTurn(t *testing.T) {
	o := &options{rounds: 3}
	rows := make([]row, 2)
	line := []string{os.Args[0]}
	t.Setenv("TASKS_SPIN", "done")
	if err := o.inTurn(context.Background(), rows, [][]string{line, line}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !(r.cpu > 0) || !(r.wall > 0) || !(r.ratio > 0) {
			t.Errorf("%+v; want times above 0", r)
		}
	}
	if rows[0].ratio != 1 {
		t.Errorf("the ratio of the first program is %v, want 1", rows[0].ratio)
	}
	t.Setenv("TASKS_SPIN", "fail")
	err := o.inTurn(context.Background(), rows, [][]string{line})
	if err == nil || !strings.Contains(err.Error(), "no such column") {
		t.Errorf("%v; want the error and what the program printed", err)
	}
}

// TestCommit checks that the version of pgsvi is the commit of its build.
func TestCommit(t *testing.T) {
	o := &options{commit: "built"}
	if v, err := o.version(context.Background(), fit("y ~ x")); err != nil || v != "built" {
		t.Errorf("version %q, %v", v, err)
	}
}

// TestMissing checks that version returns an error if a language is not installed.
func TestMissing(t *testing.T) {
	o := &options{rscript: "no-such-R", python: "no-such-python"}
	for _, p := range []program{glm, sklearn} {
		if v, err := o.version(context.Background(), p); err == nil {
			t.Errorf("%s: version %q", p.label, v)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range []string{"-rounds 0", "-scale 0", "-only nothing", "logit"} {
		if _, err := parseFlags(strings.Fields(bad), io.Discard, io.Discard); err == nil {
			t.Errorf("%s gives no error", bad)
		}
	}
	o, err := parseFlags([]string{"-only", "logit 2000,curve 100000"}, io.Discard, io.Discard)
	if err != nil || !slices.Equal(o.only, []string{"logit 2000", "curve 100000"}) {
		t.Errorf("%q, %v", o.only, err)
	}
}
