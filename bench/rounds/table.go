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
var header = []string{"data", "shards", "rounds", "neg_elbo", "gap_bound", "sample_mb", "down_mb_a_shard", "up_mb", "cpu_seconds", "sha256"}

// A row is a fit: a line of the file.
type row struct {
	set                                    string
	shards, rounds                         int
	elbo, bound, sample, down, up, seconds float64
	sha                                    string
}

func (r *row) record() []string {
	number := func(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }
	return []string{r.set, strconv.Itoa(r.shards), strconv.Itoa(r.rounds), number(-r.elbo, 6), strconv.FormatFloat(r.bound, 'g', 3, 64),
		number(r.sample, 3), number(r.down, 4), number(r.up, 3), number(r.seconds, 2), r.sha}
}

func parse(record []string) (r row, err error) {
	r.set, r.sha = record[0], record[9]
	for i, p := range map[int]*int{1: &r.shards, 2: &r.rounds} {
		v, e := strconv.Atoi(record[i])
		*p, err = v, errors.Join(err, e)
	}
	for i, p := range map[int]*float64{3: &r.elbo, 4: &r.bound, 5: &r.sample, 6: &r.down, 7: &r.up, 8: &r.seconds} {
		v, e := strconv.ParseFloat(record[i], 64)
		*p, err = v, errors.Join(err, e)
	}
	r.elbo = -r.elbo
	return r, err
}

// write makes file one of the rows.
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
		cells = append(cells, []string{c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], "`" + c[9] + "`"})
		if i > 0 && rows[i-1].set == rows[i].set {
			cells[i][0] = ""
		}
	}
	return tables.Markdown([]string{"data", "shards", "rounds", "−ELBO", "proved within", "sample MB", "MB to a shard", "MB back", "CPU s", "posterior"}, cells)
}
