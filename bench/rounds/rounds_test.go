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
// lost shard is an error, and that rows are written and read.
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
		if r.rounds > 4 || !(r.bound <= within) || r.sha != append(rows, r)[0].sha ||
			!(r.up > 0 && r.down > 0) || !(r.slowest >= r.shard && r.round >= r.slowest) {
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
		if r.sha != rows[i].sha || r.shards != rows[i].shards ||
			math.Abs(r.elbo-rows[i].elbo) > 1e-6 {
			t.Errorf("read %+v, want %+v", r, rows[i])
		}
	}
}

// TestTable checks that the table of the README matches the stored file, and that each set has one
// posterior.
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
	if _, block, _, ok := tables.Lookup(string(readme), "rounds"); !ok ||
		strings.TrimSpace(block) != strings.TrimSpace(table(rows)) {
		t.Error("the table of bench/README.md is not that of rounds.csv; go generate ./bench/rounds")
	}
	for block, of := range map[string]struct {
		file  string
		table func(string) (string, error)
	}{"rounds rows": {"rows.csv", rowsTable}, "rounds topics": {"topics.csv",
		topicsTable}, "rounds memory": {"memory.csv", memoryTable}} {
		text, err := of.table(of.file)
		if err != nil {
			t.Fatal(err)
		}
		if _, have, _, ok := tables.Lookup(string(readme), block); !ok ||
			strings.TrimSpace(have) != strings.TrimSpace(text) {
			t.Errorf("the table of bench/README.md is not that of %s; go generate ./bench/rounds",
				of.file)
		}
	}
}

// TestFitTopics checks that topics do not depend on the number of shards, and that the stored file
// has one posterior.
func TestFitTopics(t *testing.T) {
	t.Parallel()
	var blocks [][]pgsvi.Document
	for i := range 40 {
		d := pgsvi.Document{Words: []int{i % 3, 3 + i%4}, Counts: []float64{float64(1 + i%5), 2}}
		blocks = append(blocks, []pgsvi.Document{d})
	}
	var want row
	for _, shards := range []int{1, 5, 64} {
		x, p, err := fitTopics(context.Background(), blocks, 7, shards)
		if err != nil {
			t.Fatal(err)
		}
		if want.sha == "" {
			want = x
		}
		if x.sha != want.sha || x.elbo != want.elbo || x.rounds != topicsRounds ||
			len(p.Mu(nil)) != topicsOfAP {
			t.Errorf("%d shards: %+v, want %+v", shards, x, want)
		}
	}
	records, err := readRecords("topics.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r[len(r)-1] != records[0][len(r)-1] || r[4] != records[0][4] {
			t.Errorf("%s shards: another posterior", r[1])
		}
	}
}
