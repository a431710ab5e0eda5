package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// results is the CSV file of a figure. The rows of a run are written when it ends;
// -resume keeps those of an earlier file, and -draw has no others.
type results struct {
	file   string
	header []string
	key    int  // the number of columns that name a run
	draw   bool // whether to run nothing
	runs   map[string][][]string
}

// results opens file in the folder of o; the first key columns name a run.
func (o *options) results(file string, key int, header ...string) (*results, error) {
	r := &results{file: filepath.Join(o.out, file), header: header, key: key, draw: o.draw, runs: make(map[string][][]string)}
	if !o.resume && !o.draw {
		return r, os.WriteFile(r.file, r.encode([][]string{header}), 0o666)
	}
	old, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) && !o.draw {
		return r, os.WriteFile(r.file, r.encode([][]string{header}), 0o666)
	}
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(old)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("%s is not a table of this figure; leave -resume and -draw out, or remove it", r.file)
	}
	for _, row := range rows[1:] {
		name := strings.Join(row[:key], ",")
		r.runs[name] = append(r.runs[name], row)
	}
	return r, nil
}

// run returns the rows of the run that is named, which measure makes unless the
// file had them; none with -draw.
func (r *results) run(name []string, measure func() ([][]string, error)) ([][]string, error) {
	if rows, ok := r.runs[strings.Join(name, ",")]; ok || r.draw {
		return rows, nil
	}
	rows, err := measure()
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		rows[i] = slices.Concat(name, row)
	}
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(r.encode(rows)); err != nil {
		f.Close()
		return nil, err
	}
	return rows, f.Close()
}

func (r *results) encode(rows [][]string) []byte {
	var b bytes.Buffer
	csv.NewWriter(&b).WriteAll(rows) // does not fail
	return b.Bytes()
}

// numbers returns the columns of rows after those that name a run.
func (r *results) numbers(rows [][]string) ([][]float64, error) {
	all := make([][]float64, len(rows))
	for i, row := range rows {
		for _, field := range row[r.key:] {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no number", r.file, field)
			}
			all[i] = append(all[i], v)
		}
	}
	return all, nil
}

// number formats v for a CSV file.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }
