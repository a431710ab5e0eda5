package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestForeignFiles checks that the errors about files that are not text tables name the kind of
// file.
func TestForeignFiles(t *testing.T) {
	for begin, name := range map[string]string{
		"PK\x03\x04\x14\x00": "Excel", "PAR1\x15\x04": "Parquet",
		"pgsvi GLM 1 4\n":         "saved by pgsvi",
		"<!DOCTYPE html>\n<html>": "HTML", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ".xls",
	} {
		_, err := Read(strings.NewReader(begin+"a,b\n1,2\n"), "t.csv")
		if !errors.Is(err, pgsvi.ErrFile) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %s", begin, err, name)
		}
	}
	if _, err := Read(strings.NewReader("PARTY,b\nx,2\n"), "t.csv"); err != nil {
		t.Error(err)
	}
}

// TestJSONList checks that a list of objects is read like one object per line, and that errors name
// the line.
func TestJSONList(t *testing.T) {
	lines := `{"a": 1.5, "b": "x, {y]"}` + "\n" + `{"b": "z \"q\"", "a": 2}` + "\n"
	list := "[\n  {\n    \"a\": 1.5,\n    \"b\": \"x, {y]\"},\n {\"b\": \"z \\\"q\\\"\", \"a\": " +
		"2}]\n"
	want := tableOf(t, lines)
	got := tableOf(t, list)
	if got.Len() != 2 || strings.Replace(got.String(), got.Name, want.Name, 1) != want.String() {
		t.Errorf("%v\nwant %v", got, want)
	}
	var at []int
	if err := got.scan(func(r *record) error { at = append(at, r.line); return nil }); err != nil ||
		fmt.Sprint(at) != "[2 5]" {
		t.Errorf("lines %v, %v", at, err)
	}
	for text, says := range map[string]string{
		"[{\"a\": 1}\n, 7]":              `line 2: unexpected '7'`,
		"[{\"a\": 1},\n{\"a\": [2]}]":    "line 2: field \"a\": the value is an object or a list",
		"[{\"a\": 1},\n":                 "line 2: the list of objects does not end",
		"[{\"a\": 1},\n{\"a\": ":         "line 2: byte",
		"[{\"a\": 1}]\n{\"a\": 2}":       "after the list",
		"[{\"a\": 1, \"b\": {\"c\":1}}]": "line 1: field \"b\"",
	} {
		if _, err := Read(strings.NewReader(text), "t.json"); !errors.Is(err, pgsvi.ErrShape) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}

// TestCarriageReturns reads lines that end like the lines of old Macs.
func TestCarriageReturns(t *testing.T) {
	a, b := tableOf(t, "a,b\r1,x\r2,y\r"), tableOf(t, "a,b\n1,x\n2,y\n")
	if a.String() != b.String() || a.Len() != 2 {
		t.Errorf("%v, want %v", a, b)
	}
}

// TestTitleLine checks that a title above the names is not read as the name of a column.
func TestTitleLine(t *testing.T) {
	_, err := Read(strings.NewReader("Report of 2020,,\n,,\na,b,y\n1,2,3\n"), "t.csv")
	if !errors.Is(err, pgsvi.ErrShape) ||
		!strings.Contains(err.Error(), `line 1 has "Report of 2020", which looks like a title`) {
		t.Error(err)
	}
	f := Format{Header: FirstLineNames}
	if _, err := f.Read(strings.NewReader("a,\n1,2\n"), "t.csv"); err != nil {
		t.Error(err)
	}
}

// TestRowNumbers checks that an unnamed column of row numbers, which pandas and R write, is not a
// feature.
func TestRowNumbers(t *testing.T) {
	for first, want := range map[int]kind{0: kindSkip, 1: kindSkip, 5: kindNumber} {
		var b strings.Builder
		b.WriteString(",a,y\n")
		for i := range 30 {
			fmt.Fprintf(&b, "%d,%d,%d.5\n", first+i, i%7, i%3)
		}
		table := tableOf(t, b.String())
		s := &spec{Name: "x1"}
		if why, d := table.review(0, s); s.Kind != want || d != nil {
			t.Errorf("numbers from %d on are a %s, %s, %v", first, s.Kind, why, d)
		}
		if m := mustModel(t, table, "y ~ ."); strings.Contains(m.Formula.String(),
			"x1") != (want == kindNumber) {
			t.Errorf("numbers from %d on: %v", first, m.Formula)
		}
	}
}

// TestUnknownPart checks that an unknown part of a date is an error.
func TestUnknownPart(t *testing.T) {
	table := tableOf(t, "d,y\n2020-01-02,1\n2020-03-01,2.5\n2021-01-01,3\n")
	_, err := table.Encoder(Date("d").As("Month"))
	if !errors.Is(err, pgsvi.ErrParam) ||
		!strings.Contains(err.Error(), `As("Month") is not a part of a date; set data.Elapsed`) {
		t.Error(err)
	}
}

// TestPartlyNumbers checks that a column of texts and many numbers raises a doubt.
func TestPartlyNumbers(t *testing.T) {
	var b strings.Builder
	b.WriteString("a,y\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%s,%d.5\n", []string{"inf", "3", "4.5", "-Inf"}[i%4], i%7)
	}
	e, err := tableOf(t, b.String()).Encoder(Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	if d := strings.Join(e.Doubts(), "\n"); !strings.Contains(d,
		`column "a": 30 of 60 values are numbers`) {
		t.Errorf("doubts %q", d)
	}
}

// TestLikelihoodOfLabels checks that a likelihood of labels needs two labels, and other likelihoods
// need numbers.
func TestLikelihoodOfLabels(t *testing.T) {
	labels := mustModel(t, tableOf(t, orders(40, 1)), "bought ~ plan", yes)
	_, err := labels.GLM(pgsvi.Poisson{}, nil)
	if !errors.Is(err, pgsvi.ErrLabel) ||
		!strings.Contains(err.Error(), `Poisson does not support the outcome "bought", which has two labels`) {
		t.Error(err)
	}
	numbers := mustModel(t, tableOf(t, orders(40, 1)), "age ~ plan")
	_, err = numbers.GLM(pgsvi.BernoulliProbit{}, nil)
	if !errors.Is(err, pgsvi.ErrLabel) ||
		!strings.Contains(err.Error(), `BernoulliProbit needs two labels, but the outcome "age" has numbers`) {
		t.Error(err)
	}
	for _, lik := range []pgsvi.Likelihood{nil, pgsvi.StudentT{}} {
		if _, err := numbers.GLM(lik, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestMeanWithDeviation checks that mean and deviation are printed with the same decimals.
func TestMeanWithDeviation(t *testing.T) {
	for _, c := range []struct {
		mean, sd float64
		want     string
	}{
		{4812.3, 2239.6, "4812 ± 2240"}, {44, 12.34, "44.0 ± 12.3"},
		{-0.04406, 0.8951, "-0.044 ± 0.895"},
		{5, 0, "5 ± 0"}, {3e9, 2e9, "3e+09 ± 2e+09"}, {1e-7, 1e-8, "1e-07 ± 1e-08"},
	} {
		got := (&column{Mean: c.mean, SD: c.sd}).spread()
		if got != c.want {
			t.Errorf("%v, %v: %s, want %s", c.mean, c.sd, got, c.want)
		}
	}
}

// TestPredictAllocates checks that predicting a row allocates little: the answer, the prediction
// and its latent value. A posterior that is integrated over the standard deviations of groups has
// some predictions more.
func TestPredictAllocates(t *testing.T) {
	for formula, most := range map[string]float64{
		"bought ~ plan + age + s(hour)":              12, // the race detector has pools forget
		"bought ~ plan + age + s(hour) + (1 | shop)": 70,
	} {
		m := mustModel(t, tableOf(t, orders(100, 4)), formula, yes)
		_, p := mustFit(t, m, nil)
		row := map[string]any{"plan": "gold", "age": 44.0, "hour": 12.0, "shop": "s1"}
		n := testing.AllocsPerRun(100, func() {
			if _, err := p.Predict(row); err != nil {
				t.Fatal(err)
			}
		})
		if n > most {
			t.Errorf("%s: %v allocations a row, want at most %v", formula, n, most)
		}
	}
}

// TestErrorTexts checks that errors of values wrap their sentinels without printing them.
func TestErrorTexts(t *testing.T) {
	table := tableOf(t, "age,day,plan,y\n31.5,2020-01-02,a,1.5\n32.5,2020-02-03,b,2.5\n"+
		"33.5,2020-03-04,a,4.25\n41.5,2020-03-05,b,4.75\n")
	e, err := table.Encoder(Outcome("y"), Date("day"), Category("plan"))
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]any{"age": 31.5, "day": "2020-01-02", "plan": "a"}
	for _, c := range []struct {
		column string
		value  any
		want   error
	}{
		{"age", "forty", pgsvi.ErrNotFinite}, {"age", nil, pgsvi.ErrNotFinite},
		{"age", math.Inf(1), pgsvi.ErrNotFinite}, {"age", []int{1}, pgsvi.ErrShape},
		{"day", "soon", pgsvi.ErrParam}, {"plan", "c", pgsvi.ErrParam},
	} {
		row := maps.Clone(good)
		row[c.column] = c.value
		_, err := e.Row(row)
		if !errors.Is(err, c.want) || strings.Contains(err.Error(), c.want.Error()) {
			t.Errorf("%s=%v: %v", c.column, c.value, err)
		}
	}
	for _, text := range []string{"x,y\n1\n", "x,2\n3,4\n", "", "x,x\n1,2\n", "x,y\n\"1,2\n"} {
		_, err := Read(strings.NewReader(text), "t")
		for _, s := range []error{pgsvi.ErrShape, pgsvi.ErrParam, pgsvi.ErrEmpty} {
			if errors.Is(err, s) && strings.Contains(err.Error(), s.Error()) || err == nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
