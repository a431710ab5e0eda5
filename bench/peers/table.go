package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A row is a line of peers.csv: a fit of a program to a data set. What is not known
// is NaN.
type row struct {
	dataset, method, variant     string
	seed                         int
	pass, negELBO, bits, seconds float64

	// Of the printed tables only.
	name    string  // instead of method and variant
	predict float64 // seconds of the predictions of the test rows
	note    string
	more    map[string]float64 // the other columns of a script
}

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

// merge appends the rows of a part to those of the parts before. A fit that is among
// those already, such as that of a full posterior in the part advi, is left out.
func merge(before, rows []row) []row {
	all := slices.Clone(before)
	for _, r := range rows {
		if !slices.ContainsFunc(before, r.sameFit) {
			all = append(all, r)
		}
	}
	return all
}

// sameFit reports whether r and s are of the same fit.
func (r row) sameFit(s row) bool {
	return r.dataset == s.dataset && r.method == s.method && r.variant == s.variant && r.seed == s.seed
}

// writeCSV writes peers.csv to the folder out.
func writeCSV(out string, rows []row) error {
	f, err := os.Create(filepath.Join(out, "peers.csv"))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	w.Write([]string{"dataset", "method", "variant", "seed", "pass", "neg_elbo", "logloss_bits", "seconds"})
	for _, r := range rows {
		line := []string{r.dataset, r.method, r.variant, strconv.Itoa(r.seed)}
		for _, v := range []float64{r.pass, r.negELBO, r.bits, r.seconds} {
			line = append(line, strconv.FormatFloat(v, 'g', 10, 64))
		}
		w.Write(line)
	}
	w.Flush()
	if err := w.Error(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// list prints the rows of one data set, with their times relative to the first.
func list(w io.Writer, title string, rows []row) {
	fmt.Fprintf(w, "\n%s\n\n| | seconds | ratio | to predict | test bits | |\n|---|---|---|---|---|---|\n", title)
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", r.label(), number("%.4f", r.seconds),
			number("%.2f", r.seconds/rows[0].seconds), number("%.4f", r.predict), number("%.4f", r.bits), r.note)
	}
}

// grid prints the rows of several data sets side by side: for each the seconds, in
// brackets those relative to the programs whose labels are in bases, and the test
// log loss in bits. Without rows it prints nothing.
func grid(w io.Writer, title string, rows []row, bases ...string) {
	if len(rows) == 0 {
		return
	}
	sets := distinct(rows, func(r row) string { return r.dataset })
	fmt.Fprintf(w, "\n%s\n\n| |", title)
	for _, set := range sets {
		fmt.Fprintf(w, " %s, seconds (ratios) | bits |", set)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|---|", len(sets)))
	for _, label := range distinct(rows, row.label) {
		fmt.Fprintf(w, "| %s |", label)
		for _, set := range sets {
			r, ok := find(rows, set, label)
			if !ok {
				fmt.Fprint(w, " | |")
				continue
			}
			fmt.Fprintf(w, " %s%s | %s |", number("%.4f", r.seconds), ratios(rows, r, bases), number("%.4f", r.bits))
		}
		fmt.Fprintln(w)
	}
}

// ratios returns the time of r relative to the programs bases on the same data, in brackets.
func ratios(rows []row, r row, bases []string) string {
	var all []string
	for _, base := range bases {
		if b, ok := find(rows, r.dataset, base); ok {
			all = append(all, number("%.2f", r.seconds/b.seconds))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// find returns the row of a program on a data set.
func find(rows []row, set, label string) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.dataset == set && r.label() == label })
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// distinct returns the values of f in the order in which they first occur.
func distinct(rows []row, f func(row) string) []string {
	var all []string
	for _, r := range rows {
		if v := f(r); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// number formats v, and leaves out what is not known.
func number(format string, v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// median returns the median of v, the upper one of two. It is NaN if one of them is.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if math.IsNaN(v[0]) { // NaN is sorted first
		return v[0]
	}
	return v[len(v)/2]
}
