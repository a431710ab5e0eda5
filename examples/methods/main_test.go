package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: on a few rows, what must arrive does, what cannot says so, and nothing is below the
// proved optimum.
func TestRun(t *testing.T) {
	o := &options{testdata: "../../testdata", rows: 12, passes: 90, seed: 1}
	if testing.Short() {
		o.rows, o.passes = 6, 60
	}
	table, err := measure(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !(table.bound <= 1e-8) || !(table.bound > 0) {
		t.Errorf("the optimum is proved to %v nats", table.bound)
	}
	for _, m := range table.methods {
		if !(m.best.end() >= table.optimum-table.bound) {
			t.Errorf("%s ended %v nats below the optimum", m.name, table.optimum-m.best.end())
		}
		if m.best.values[0] != table.start || m.best.end() > table.start {
			t.Errorf("%s went from %v to %v", m.name, m.best.values[0], m.best.end())
		}
		_, arrived := m.best.within(table.optimum + 1e-6)
		switch m.name {
		case "proximal gradient", "natural gradient", "PG, main text", "trust region, 5 times", "trust region", "nil Solver":
			if !arrived {
				t.Errorf("%s is still %v nats from the optimum (%s)", m.name, m.best.end()-table.optimum, m.best.status)
			}
		case "PG, symmetric KL", "natural, symmetric KL", "PG, appendix":
			if e := m.best.end() - table.optimum; !(e < 1e-2) {
				t.Errorf("%s is still %v nats from the optimum (%s)", m.name, e, m.best.status)
			}
		case "SGD", "AdaGrad", "Adam", "PG-MC", "PG-SVI": // noise, or a diagonal
			if arrived {
				t.Errorf("%s arrived, which its noise does not allow", m.name)
			}
		}
	}
	var out strings.Builder
	if err := table.print(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != len(table.methods)+3 || !strings.Contains(out.String(), "not reached") {
		t.Errorf("the table has %d lines for %d methods:\n%s", n, len(table.methods), out.String())
	}
	picture := filepath.Join(t.TempDir(), "methods.png")
	if err := savePlot(picture, table); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 10000 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestWithin(t *testing.T) {
	r := &run{passes: []float64{0, 1, 2, 3, 4}, values: []float64{9, 2, 4, 3, 1}}
	for _, c := range []struct {
		value, want float64
		ok          bool
	}{{10, 0, true}, {3.5, 3, true}, {2, 4, true}, {0.5, 0, false}} {
		if got, ok := r.within(c.value); got != c.want || ok != c.ok {
			t.Errorf("within %v: %v %t, want %v %t", c.value, got, ok, c.want, c.ok)
		}
	}
}

// TestChoose: the lowest end counts, and then the least passes.
func TestChoose(t *testing.T) {
	end := func(passes, value float64) *run {
		return &run{passes: []float64{0, passes}, values: []float64{9, value}}
	}
	runs := []*run{end(3, 2), end(50, 1), end(20, 1+1e-12), end(5, math.Inf(1))}
	if got := choose(runs); got != runs[2] {
		t.Errorf("%+v", got)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-rows", "1"}, {"-passes", "0"}, {"x"}, {"-testdata", "nowhere"}} {
		var out bytes.Buffer
		if len(args) == 2 && args[0] == "-rows" {
			args = append(args, "-testdata", "../../testdata")
		}
		if err := runProgram(context.Background(), append(args, "-out", ""), &out, &out); err == nil {
			t.Errorf("%v is no error", fmt.Sprint(args))
		}
	}
}
