package main

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readTable reads a CSV file that a figure wrote and checks its header.
func readTable(t *testing.T, file string, header ...string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 2 || !slices.Equal(rows[0], header) {
		t.Fatalf("%d rows with header %v, want %v", len(rows), rows[0], header)
	}
	return rows[1:]
}

func parse(t *testing.T, field string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(field, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// drawn checks that there is a picture.
func drawn(t *testing.T, file string) {
	t.Helper()
	if info, err := os.Stat(file); err != nil || info.Size() < 10000 {
		t.Errorf("%s: %v", file, err)
	}
}

func tiny(t *testing.T, figure int, methods ...string) *options {
	return &options{figure: figure, out: t.TempDir(), quick: true, passes: 1, seeds: 1, methods: methods, testdata: "../../testdata"}
}

func TestFigure1(t *testing.T) {
	o := tiny(t, 1)
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure1.csv"), "method", "step", "seed", "passes_1pct", "passes_0p1pct", "status", "passes_change", "excess_change")
	if len(rows) != 4*5 {
		t.Errorf("%d rows, want 20", len(rows))
	}
	for _, r := range rows {
		if one, tenth := parse(t, r[3]), parse(t, r[4]); one > tenth {
			t.Errorf("%v is within 0.1%% before it is within 1%%", r)
		}
		if r[0] == "PG" && r[1] == "1" && r[5] != converged {
			t.Errorf("%v has not converged in ten passes", r)
		}
	}
	drawn(t, filepath.Join(o.out, "figure1.png"))
}

func TestJudge(t *testing.T) {
	inf := math.Inf(1)
	curve := func(v ...float64) []float64 { // 20 passes, the last repeated
		for len(v) < 20 {
			v = append(v, v[len(v)-1])
		}
		return v
	}
	for _, c := range []struct {
		name   string
		curve  []float64
		failed bool
		want   outcome
	}{
		{"both", curve(1100, 105, 100.5), false, outcome{[2]float64{2, 3}, converged, 1, 1000}},
		{"only 1%", curve(1101, 105), false, outcome{[2]float64{2, inf}, notReached, 1, 1001}},
		{"leaves and comes back", curve(100.5, 200, 105, 100.5), false, outcome{[2]float64{3, 4}, converged, 5, 0.5}},
		{"leaves", curve(100.5, 105), false, outcome{[2]float64{1, inf}, left, 3, 5}},
		{"arrives at the very end", append(curve(200)[:19], 100), false, outcome{[2]float64{inf, inf}, left, 2, 100}},
		{"ends above the start", curve(100, 2000), false, outcome{[2]float64{inf, inf}, diverged, 3, 1900}},
		{"fails", []float64{100}, true, outcome{[2]float64{inf, inf}, diverged, inf, inf}},
	} {
		if got := judge(c.curve, 1100, 100, c.failed); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

var header2 = []string{"dataset", "method", "variant", "seed", "pass", "neg_elbo", "logloss_bits", "seconds"}

func TestFigure2(t *testing.T) {
	o := tiny(t, 2)
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure2.csv"), header2...)
	if len(rows) != 13 {
		t.Errorf("%d rows, want 13", len(rows))
	}
	for _, r := range rows {
		if elbo, bits := parse(t, r[5]), parse(t, r[6]); r[4] != "1" || elbo < 89.2656 || !(bits > 0.3 && bits < 2) {
			t.Errorf("%v is out of range", r)
		}
	}
	drawn(t, filepath.Join(o.out, "figure2.png"))
}

// TestReference: the block step reaches the reference optimum of both data sets,
// with its test log loss, and PG-SVI as published comes close on ionosphere.
func TestReference(t *testing.T) {
	o := tiny(t, 2, "PG-SVI", "block")
	o.quick, o.passes = false, 20
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{"ionosphere": {89.26565163, 0.41769}, "sonar": {156.21421987, 0.93448}}
	checks := 0
	for _, r := range readTable(t, filepath.Join(o.out, "figure2.csv"), header2...) {
		elbo, bits := parse(t, r[5]), parse(t, r[6])
		switch w := want[r[0]]; {
		case r[1] == "block" && r[4] == "20":
			checks++
			if math.Abs(elbo-w[0]) > 1e-6 || math.Abs(bits-w[1]) > 1e-4 {
				t.Errorf("%v: want %v", r, w)
			}
		case r[0] == "ionosphere" && r[1] == "PG-SVI" && r[4] == "10":
			checks++
			if math.Abs(elbo/90.0-1) > 0.03 {
				t.Errorf("%v: want 90.0 within 3%%", r)
			}
		}
	}
	if checks != 3 {
		t.Errorf("%d of 3 rows are there", checks)
	}
}

// TestResume: the runs of a table are not repeated, others are added, and the table
// of another figure is refused.
func TestResume(t *testing.T) {
	o := tiny(t, 2, "block")
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.out, "figure2.csv")
	first := readTable(t, file, header2...)[0]
	first[7] = "12345" // seconds that no run takes
	if err := os.WriteFile(file, []byte(strings.Join(header2, ",")+"\n"+strings.Join(first, ",")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o.resume, o.methods = true, []string{"block", "batch"}
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, file, header2...)
	if len(rows) != 2 || !slices.Equal(rows[0], first) || rows[1][1] != "batch" {
		t.Errorf("resumed table: %v", rows)
	}
	o.resume, o.draw, o.seeds = false, true, 5
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(file); err != nil || !slices.Equal(before, after) {
		t.Errorf("-draw changes the table (%v)", err)
	}
	o.resume, o.draw, o.figure = true, false, 1
	if err := os.Rename(file, filepath.Join(o.out, "figure1.csv")); err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background(), io.Discard); err == nil {
		t.Error("figure 1 resumes the table of figure 2")
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tiny(t, 2).run(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-figure", "2", "-quick", "-seeds", "3", "-methods", "SGD,Adam"}, io.Discard)
	if err != nil || o.passes != 10 || o.seeds != 3 || !among(o.methods, "Adam") || among(o.methods, "PG") {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{}, {"-figure", "3"}, {"-figure", "1", "x"}, {"-figure", "1", "-seeds", "0"}} {
		if _, err := parseFlags(args, io.Discard); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}
