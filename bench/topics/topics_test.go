package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// toy draws documents that each have one of two topics.
func toy() corpus {
	rng := rand.New(rand.NewPCG(1, 1))
	c := &pgsvi.Corpus{Terms: 20}
	for n := range 60 {
		var d pgsvi.Document
		for v := range 10 {
			d.Words, d.Counts = append(d.Words, v+10*(n/2%2)),
				append(d.Counts, float64(1+rng.IntN(3)))
		}
		c.Docs = append(c.Docs, d)
	}
	train, test := c.EvenOdd()
	return corpus{"toy", train, test}
}

func TestMeasure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topics.csv")
	rows := []setting{
		{corpus: "toy", method: frequencies, topics: 1, seeds: 1},
		{corpus: "toy", method: "PG-SVI", topics: 2, passes: 5, seeds: 3, byWord: true},
	}
	if err := measure(context.Background(), file, []corpus{toy()}, rows, 100, false,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	fits, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(fits) != 4 || fits[3].seed != 3 || fits[3].topics != 2 || fits[3].passes != 5 ||
		fits[3].draws != 100 {
		t.Fatalf("%+v", fits)
	}
	base := fits[0]
	if math.Abs(base.heldOut-math.Log(20)) > 0.1 || base.inVocab != base.heldOut {
		t.Errorf("frequencies score %v, %v", base.heldOut, base.inVocab)
	}
	for _, f := range fits[1:] {
		// The topic of a document leaves ten of twenty words.
		if !(f.heldOut < base.heldOut-0.4 && f.heldOut > math.Log(10)-0.1 &&
			f.byWord <= f.heldOut && f.seconds >= 0) {
			t.Errorf("%+v", f)
		}
	}
	var b strings.Builder
	if err := printTable(&b, fits); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "\n"); got != 4 ||
		!strings.Contains(b.String(), "| toy, 2 | PG-SVI | 5 | 3 | ") {
		t.Error(b.String())
	}
	// A file without its last line must resume to the same file, except for times.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(file, []byte(strings.Join(lines[:4], "")), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := measure(context.Background(), file, []corpus{toy()}, rows, 100, true,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	again, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		again[i].seconds = fits[i].seconds
	}
	if !slices.Equal(again[1:], fits[1:]) || len(again) != len(fits) {
		t.Errorf("resumed %+v, at once %+v", again, fits)
	}
	if err := measure(context.Background(), file, []corpus{toy()}, rows, 50, true,
		io.Discard); err == nil {
		t.Error("resumed with other draws")
	}
	if err := measure(context.Background(), file, nil, rows, 100, false, io.Discard); err == nil {
		t.Error("no error without the corpus")
	}
}

// The settings of the stored table must match this program.
func TestStored(t *testing.T) {
	fits, err := load("topics.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		for seed := range s.seeds {
			f := fits[0]
			fits = fits[1:]
			if f.corpus != s.corpus || f.method != s.method || f.topics != s.topics ||
				f.passes != s.passes || f.seed != seed+1 {
				t.Fatalf("found %+v, want seed %d of %+v", f, seed+1, s)
			}
		}
	}
	if len(fits) > 0 {
		t.Errorf("%d more lines", len(fits))
	}
	// bench/README.md must contain its table.
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if fits, err = load("topics.csv"); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := printTable(&table, fits); err != nil {
		t.Fatal(err)
	}
	if _, block, _, ok := tables.Lookup(string(readme), "topics"); !ok ||
		strings.TrimSpace(block) != strings.TrimSpace(table.String()) {
		t.Error("the table of bench/README.md is not that of topics.csv; go generate ./bench/topics")
	}
}

func TestRunErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(file, []byte("a,b\n1,2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSVI_DATA", "")
	for _, args := range [][]string{{"-table", file}, {"-table", file + "x"}, {"-out", file},
		{"-data", t.TempDir()}, {"extra"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
