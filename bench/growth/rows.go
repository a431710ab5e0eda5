package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// A row is the line of a fit in growth.csv.
type row struct {
	part       string
	size       int
	seconds    float64 // CPU seconds for set-up and fit
	passes     float64
	data, peak float64 // size of the data and peak resident memory, in megabytes
}

var header = []string{"part", "size", "cpu_seconds", "passes", "data_mb", "peak_mb"}

// perPass returns the seconds per pass.
func (r row) perPass() float64 { return r.seconds / r.passes }

func (r row) fields() []string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	return []string{r.part, strconv.Itoa(r.size), number(r.seconds), number(r.passes),
		number(r.data), number(r.peak)}
}

// parseRows parses rows without a header.
func parseRows(in io.Reader) ([]row, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = len(header)
	lines, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(lines))
	for i, line := range lines {
		size, err := strconv.Atoi(line[1])
		if err != nil || partOf(line[0]) == nil {
			return nil, fmt.Errorf("row %d, %q, is of no part or size", i, line)
		}
		rows[i] = row{part: line[0], size: size}
		for j, to := range []*float64{&rows[i].seconds, &rows[i].passes, &rows[i].data,
			&rows[i].peak} {
			if *to, err = strconv.ParseFloat(line[2+j], 64); err != nil || math.IsInf(*to, 0) ||
				*to < 0 {
				return nil, fmt.Errorf("row %d: %s is %q", i, header[2+j], line[2+j])
			}
		}
	}
	return rows, nil
}

// readCSV reads growth.csv. It returns no rows if the file does not exist.
func readCSV(file string) ([]row, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	if got, err := r.Read(); err != nil || !slices.Equal(got, header) {
		return nil, fmt.Errorf("%s is no table of this program", file)
	}
	if _, err := f.Seek(r.InputOffset(), io.SeekStart); err != nil {
		return nil, err
	}
	rows, err := parseRows(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return rows, nil
}

func writeCSV(file string, rows []row) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	lines := [][]string{header}
	for _, r := range rows {
		lines = append(lines, r.fields())
	}
	if err := csv.NewWriter(f).WriteAll(lines); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// ofPart returns the rows of the given part.
func ofPart(rows []row, name string) (of []row) {
	for _, r := range rows {
		if r.part == name {
			of = append(of, r)
		}
	}
	return of
}

// slope returns the slope between two sizes on log–log axes.
func slope(size0, size1 int, v0, v1 float64) float64 {
	return math.Log(v1/v0) / math.Log(float64(size1)/float64(size0))
}

// table returns all rows, each with the slope from the previous row.
func table(rows []row) string {
	var cells [][]string
	for _, p := range parts {
		of := ofPart(rows, p.name)
		for i, r := range of {
			title, measured, arithmetic := "", "", ""
			if i == 0 {
				title = p.title
			} else {
				before := of[i-1]
				measured = fmt.Sprintf("%.2f",
					slope(before.size, r.size, before.perPass(), r.perPass()))
				arithmetic = fmt.Sprintf("%.2f",
					slope(before.size, r.size, p.work(float64(before.size)),
						p.work(float64(r.size))))
			}
			cells = append(cells,
				[]string{title, strconv.Itoa(r.size), fmt.Sprintf("%.3g", r.seconds),
					fmt.Sprintf("%.3g", r.passes),
					fmt.Sprintf("%.3g", r.perPass()), measured, arithmetic,
					fmt.Sprintf("%.3g", r.data),
					fmt.Sprintf("%.0f", r.peak)})
		}
	}
	return tables.Markdown([]string{"", "size", "CPU s", "passes", "s per pass", "slope",
		"of the arithmetic", "data MB", "peak MB"}, cells)
}
