package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// TestFit checks that the posterior of a small set does not depend on the number of shards, that a
// lost shard is found, and that rows are written and read.
func TestFit(t *testing.T) {
	t.Parallel()
	s := &set{"counts", 3, pgsvi.Poisson{}, 1, cut(generate(6000, 3))}
	s.blocks = s.blocks[:60]
	var rows []row
	for _, shards := range []int{1, 5, 64} {
		r, err := s.fit(context.Background(), shards)
		if err != nil {
			t.Fatal(err)
		}
		if r.rounds > 4 || !(r.bound <= within) || r.sha != append(rows, r)[0].sha || !(r.up > 0 && r.down > 0) {
			t.Errorf("%+v", r)
		}
		rows = append(rows, r)
	}
	file := filepath.Join(t.TempDir(), "rounds.csv")
	if err := write(file, rows); err != nil {
		t.Fatal(err)
	}
	again, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range again {
		if r.sha != rows[i].sha || r.shards != rows[i].shards || math.Abs(r.elbo-rows[i].elbo) > 1e-6 {
			t.Errorf("read %+v, want %+v", r, rows[i])
		}
	}
}

// TestTable checks that the table of the README is that of the stored file, and that each set has
// one posterior.
func TestTable(t *testing.T) {
	t.Parallel()
	rows, err := load("rounds.csv")
	if err != nil {
		t.Fatal(err)
	}
	sha := map[string]string{}
	for _, r := range rows {
		if have, ok := sha[r.set]; ok && have != r.sha {
			t.Errorf("%s on %d shards: another posterior", r.set, r.shards)
		}
		sha[r.set] = r.sha
	}
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, block, _, ok := tables.Lookup(string(readme), "rounds"); !ok || strings.TrimSpace(block) != strings.TrimSpace(table(rows)) {
		t.Error("the table of bench/README.md is not that of rounds.csv; go generate ./bench/rounds")
	}
	text, err := rowsTable("rows.csv")
	if err != nil {
		t.Fatal(err)
	}
	if _, block, _, ok := tables.Lookup(string(readme), "rounds rows"); !ok || strings.TrimSpace(block) != strings.TrimSpace(text) {
		t.Error("the table of bench/README.md is not that of rows.csv; go generate ./bench/rounds")
	}
}
