package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// A row is a line of tasks.csv, which is a task done by a program.
type row struct {
	task, program, version string
	cpu, wall              float64 // seconds
	ratio                  float64 // CPU seconds relative to pgsvi
	rounds                 int
	processor              string
}

var header = []string{"task", "program", "version", "cpu_seconds", "wall_seconds", "ratio",
	"rounds", "processor"}

func (r row) fields() []string {
	f := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	return []string{r.task, r.program, r.version, f(r.cpu), f(r.wall), f(r.ratio),
		strconv.Itoa(r.rounds), r.processor}
}

// readFields is the inverse of fields.
func readFields(line []string) (r row, err error) {
	r = row{task: line[0], program: line[1], version: line[2], processor: line[7]}
	for i, v := range []*float64{&r.cpu, &r.wall, &r.ratio} {
		var e error
		*v, e = strconv.ParseFloat(line[3+i], 64)
		err = errors.Join(err, e)
	}
	n, e := strconv.Atoi(line[6])
	r.rounds = n
	return r, errors.Join(err, e)
}

// readCSV reads tasks.csv in a folder. It returns no rows if the file does not exist.
func readCSV(folder string) (rows []row, err error) {
	path := filepath.Join(folder, "tasks.csv")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err == nil && (len(lines) == 0 || !slices.Equal(lines[0], header)) {
		err = errors.New("it has other columns; remove it")
	}
	for i := 1; i < len(lines) && err == nil; i++ {
		var r row
		r, err = readFields(lines[i])
		rows = append(rows, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// writeCSV writes tasks.csv to a folder, in the order of the tasks.
func writeCSV(folder string, rows []row) error {
	place := func(r row) int {
		return slices.IndexFunc(tasks, func(t task) bool { return t.name == r.task })
	}
	slices.SortStableFunc(rows, func(a, b row) int { return place(a) - place(b) })
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write(header)
	for _, r := range rows {
		w.Write(r.fields())
	}
	w.Flush()
	return os.WriteFile(filepath.Join(folder, "tasks.csv"), []byte(b.String()), 0o666)
}

// table returns the table for the README.
func table(rows []row) string {
	var lines [][]string
	var versions, processors, rounds []string
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for i, r := range rows {
		name := ""
		if i == 0 || rows[i-1].task != r.task {
			name = r.task
		}
		lines = append(lines, []string{name, r.program, fmt.Sprintf("%.3g", r.cpu),
			fmt.Sprintf("%.2f", r.ratio), fmt.Sprintf("%.3g", r.wall)})
		version := r.version
		if strings.HasPrefix(r.program, "pgsvi") {
			version = "pgsvi " + version
		}
		for v := range strings.SplitSeq(version, ", ") {
			add(&versions, v)
		}
		add(&processors, r.processor)
		add(&rounds, strconv.Itoa(r.rounds))
	}
	head := []string{"task and rows", "program", "CPU seconds", "relative to pgsvi",
		"wall seconds"}
	return tables.Markdown(head, lines) + fmt.Sprintf(
		"\nMedians of %s rounds. Measured with: %s. Processor: %s.\n", strings.Join(rounds, " or "),
		strings.Join(versions, "; "), strings.Join(processors, "; "))
}
