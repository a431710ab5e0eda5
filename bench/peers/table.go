package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// A row is a line of peers.csv, which is a fit of a program to a data set. Unknown numbers are NaN.
type row struct {
	part, work      string // the comparison and the data set
	method, variant string // the program
	name            string // name of the program in tables, instead of method and variant
	version         string
	threads, seed   int
	pass, negELBO   float64
	seconds         float64 // CPU seconds, or wall time in part stream
	// ratio of the seconds to the seconds of the reference program in the same run
	ratio     float64
	predict   float64 // seconds for predicting the test rows
	bits      float64 // test log loss
	note      string
	processor string             // model and longest vectors; empty if not recorded
	more      map[string]float64 // further columns of a script
}

// header names the columns of peers.csv.
var header = slices.Concat([]string{"part", "work", "program", "variant", "label", "version",
	"threads", "seed", "passes",
	"neg_elbo", "cpu_seconds", "ratio", "predict_seconds", "score_bits", "note"}, extra, []string{"processor"})

// extra are the columns of row.more.
var extra = []string{"pareto_k", "distinct", "converged", "mean_worst", "mean_median", "sd_worst",
	"sd_median", "rows_per_second", "peak_mb"}

// label returns the name of the program.
func (r row) label() string {
	switch {
	case r.name != "":
		return r.name
	case r.variant == "":
		return r.method
	}
	return r.method + ", " + r.variant
}

// known returns the value of a script's column, or NaN if there is none.
func (r row) known(name string) float64 {
	if v, ok := r.more[name]; ok {
		return v
	}
	return math.NaN()
}

// fields returns the fields of r as a line of peers.csv.
func (r row) fields() []string {
	f := func(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }
	line := []string{r.part, r.work, r.method, r.variant, r.name, r.version,
		strconv.Itoa(r.threads), strconv.Itoa(r.seed), f(r.pass),
		f(r.negELBO), f(r.seconds), f(r.ratio), f(r.predict), f(r.bits), r.note}
	for _, name := range extra {
		line = append(line, f(r.known(name)))
	}
	return append(line, r.processor)
}

// readFields is the inverse of fields.
func readFields(line []string) (r row, err error) {
	r = row{part: line[0], work: line[1], method: line[2], variant: line[3], name: line[4],
		version: line[5], note: line[14],
		processor: line[len(line)-1]}
	whole := func(field string) int {
		n, e := strconv.Atoi(field)
		err = errors.Join(err, e)
		return n
	}
	number := func(field string) float64 {
		v, e := strconv.ParseFloat(field, 64)
		err = errors.Join(err, e)
		return v
	}
	r.threads, r.seed, r.pass, r.negELBO = whole(line[6]), whole(line[7]), number(line[8]),
		number(line[9])
	r.seconds, r.ratio, r.predict, r.bits = number(line[10]), number(line[11]), number(line[12]),
		number(line[13])
	for i, name := range extra {
		if v := number(line[15+i]); !math.IsNaN(v) {
			if r.more == nil {
				r.more = make(map[string]float64)
			}
			r.more[name] = v
		}
	}
	return r, err
}

// readCSV reads peers.csv in a folder. It returns no rows if the file does not exist.
func readCSV(folder string) ([]row, error) {
	path := filepath.Join(folder, "peers.csv")
	lines, err := tables.ReadCSV(path, header)
	if err != nil {
		return nil, err
	}
	var all []row
	for i, line := range lines {
		r, err := readFields(line)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, i+2, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// writeCSV writes peers.csv to a folder.
func writeCSV(folder string, rows []row) error {
	f, err := os.Create(filepath.Join(folder, "peers.csv"))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	w.Write(header)
	for _, r := range rows {
		w.Write(r.fields())
	}
	w.Flush()
	if err := w.Error(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// merge replaces the rows of measured data sets in a part, and appends rows of new data sets.
func merge(before, rows []row) []row {
	all := slices.DeleteFunc(slices.Clone(before), func(old row) bool {
		return slices.ContainsFunc(rows,
			func(r row) bool { return r.part == old.part && r.work == old.work })
	})
	return append(all, rows...)
}

// relate sets the ratios of the rows of one data set to the row with the label base.
func relate(rows []row, base string) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.label() == base })
	for j := range rows {
		if i >= 0 {
			rows[j].ratio = rows[j].seconds / rows[i].seconds
		}
	}
}

// fastest returns the label of the row of a program with the fewest seconds.
func fastest(rows []row, method string) string {
	var best row
	for _, r := range rows {
		if r.method == method && (best.method == "" || r.seconds < best.seconds) {
			best = r
		}
	}
	return best.label()
}

// tablesOf returns the tables of the rows by the names of their parts.
func tablesOf(rows []row) map[string]string {
	all := make(map[string]string)
	for _, p := range parts {
		if of := slices.DeleteFunc(slices.Clone(rows),
			func(r row) bool { return r.part != p.name }); len(of) > 0 {
			all["peers "+p.name] = p.table(of) + measured(of)
		}
	}
	return all
}

// measured returns a line with the programs, commits of pgsvi, and processors of the rows in a
// table.
func measured(rows []row) string {
	var programs []string
	var commits []string
	for _, v := range distinct(rows, func(r row) string { return r.version }) {
		switch {
		case v == "":
		case strings.Contains(v, " "):
			programs = append(programs, v)
		default:
			commits = append(commits, v)
		}
	}
	if len(commits) > 0 {
		programs = slices.Insert(programs, 0, "pgsvi "+strings.Join(commits, ", "))
	}
	var processors []string
	for _, p := range distinct(rows, func(r row) string { return r.processor }) {
		processors = append(processors, cmp.Or(p, "not recorded"))
	}
	return fmt.Sprintf("\nMeasured with: %s. Processor: %s.\n", strings.Join(programs, "; "),
		strings.Join(processors, "; "))
}

// list returns the table of one data set, or of several data sets one below the other.
func list(rows []row) string {
	var lines [][]string
	sets := distinct(rows, func(r row) string { return r.work })
	for _, r := range rows {
		name := r.label()
		if len(sets) > 1 {
			name = r.work + ": " + name
		}
		lines = append(lines,
			[]string{name, number("%.4f", r.seconds), number("%.2f", r.ratio),
				number("%.4f", r.predict), number("%.4f", r.bits), r.note})
	}
	return tables.Markdown([]string{"", "seconds", "ratio", "to predict", "test bits", ""}, lines)
}

// grid returns the table of several data sets side by side. Each has the seconds with the ratio in
// parentheses, and the test log loss in bits.
func grid(rows []row) string {
	first := []string{""}
	sets := distinct(rows, func(r row) string { return r.work })
	for _, set := range sets {
		first = append(first, set+", seconds (ratio)", "bits")
	}
	var lines [][]string
	for _, label := range distinct(rows, row.label) {
		line := []string{label}
		for _, set := range sets {
			i := slices.IndexFunc(rows,
				func(r row) bool { return r.work == set && r.label() == label })
			if i < 0 {
				line = append(line, "", "")
				continue
			}
			r := rows[i]
			line = append(line,
				strings.TrimSpace(number("%.4f", r.seconds)+number(" (%.2f)", r.ratio)),
				number("%.4f", r.bits))
		}
		lines = append(lines, line)
	}
	return tables.Markdown(first, lines)
}

// distinct returns the distinct values of f in the order of their first occurrence.
func distinct(rows []row, f func(row) string) []string {
	var all []string
	for _, r := range rows {
		if v := f(r); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// number formats v. It returns an empty string for an unknown number.
func number(format string, v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// median returns the median of v, or the larger of the two middle elements. It is NaN if an element
// is NaN.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if math.IsNaN(v[0]) { // NaN is sorted first
		return v[0]
	}
	return v[len(v)/2]
}
