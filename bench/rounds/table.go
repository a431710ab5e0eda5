package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// header names the columns of the file.
var header = []string{"data", "shards", "rounds", "neg_elbo", "gap_bound", "sample_mb",
	"down_mb_a_shard", "up_mb", "shard_ms", "slowest_ms", "round_ms", "cpu_seconds", "sha256"}

// A row is the line of a fit in the file.
type row struct {
	set                                    string
	shards, rounds                         int
	elbo, bound, sample, down, up, seconds float64
	shard, slowest, round                  float64 // ms per round
	sha                                    string
}

// numbers returns the columns after gap_bound, except the checksum.
func (r *row) numbers() []*float64 {
	return []*float64{&r.sample, &r.down, &r.up, &r.shard, &r.slowest, &r.round, &r.seconds}
}

func (r *row) record() []string {
	c := []string{r.set, strconv.Itoa(r.shards), strconv.Itoa(r.rounds),
		strconv.FormatFloat(-r.elbo, 'f', 6, 64), strconv.FormatFloat(r.bound, 'g', 3, 64)}
	for i, p := range r.numbers() {
		digits := []int{3, 4, 3, 1, 1, 1, 2}[i]
		c = append(c, strconv.FormatFloat(*p, 'f', digits, 64))
	}
	return append(c, r.sha)
}

func parse(record []string) (r row, err error) {
	r.set, r.sha = record[0], record[len(record)-1]
	for i, p := range []*int{&r.shards, &r.rounds} {
		v, e := strconv.Atoi(record[1+i])
		*p, err = v, errors.Join(err, e)
	}
	for i, p := range append([]*float64{&r.elbo, &r.bound}, r.numbers()...) {
		v, e := strconv.ParseFloat(record[3+i], 64)
		*p, err = v, errors.Join(err, e)
	}
	r.elbo = -r.elbo
	return r, err
}

// write writes the rows to file.
func write(file string, rows []row) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	records := [][]string{header}
	for i := range rows {
		records = append(records, rows[i].record())
	}
	return errors.Join(w.WriteAll(records), f.Close())
}

// load reads a file of write.
func load(file string) ([]row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := csv.NewReader(f)
	in.FieldsPerRecord = len(header)
	records, err := in.ReadAll()
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, r := range records[min(1, len(records)):] {
		x, err := parse(r)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, i+2, err)
		}
		rows = append(rows, x)
	}
	return rows, nil
}

// roundsTable returns the table of a file of write.
func roundsTable(file string) (string, error) {
	rows, err := load(file)
	return table(rows), err
}

// table returns the rows as Markdown.
func table(rows []row) string {
	var cells [][]string
	for i := range rows {
		c := rows[i].record()
		c[len(c)-1] = "`" + rows[i].sha + "`"
		if i > 0 && rows[i-1].set == rows[i].set {
			c[0] = ""
		}
		cells = append(cells, c)
	}
	return tables.Markdown([]string{"data", "shards", "rounds", "−ELBO", "proved within",
		"sample MB", "MB to a shard", "MB back", "ms per shard", "slowest", "ms per round", "CPU s",
		"posterior"}, cells)
}
