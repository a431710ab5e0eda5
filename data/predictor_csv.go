package data

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// WriteCSV predicts each row of a table, as Table does, and writes a line for each to w: the number
// of the row, from 1, its answer, and its notes or its error. The columns are
//
//	row, mean or P(label), lo, hi, note
//	row, class, P(class) for each class, note
//
// It returns the number of rows and of those with an error, whose other fields are empty. The error
// is one of w, or one that ends the sequence of Table.
func (p *Predictor) WriteCSV(w io.Writer, t *Table, level float64) (rows, failed int, err error) {
	head := []string{"row", "mean", "lo", "hi", "note"}
	if _, label := p.Outcome(); label != "" {
		head[1] = "P(" + label + ")"
	}
	classes := p.Classes()
	if classes != nil {
		head = []string{"row", "class"}
		for _, name := range classes {
			head = append(head, "P("+name+")")
		}
		head = append(head, "note")
	}
	out := csv.NewWriter(w)
	if err := out.Write(head); err != nil {
		return 0, 0, err
	}
	for a, fault := range p.Table(t, level) {
		if a == nil {
			out.Flush()
			return rows, failed, fault
		}
		rows++
		record := append([]string{strconv.Itoa(rows)}, a.fields(classes != nil)...)
		if fault != nil {
			failed++
			record = make([]string, len(head))
			record[0], record[len(head)-1] = strconv.Itoa(rows), "error: "+plainError(fault)
		}
		if err := out.Write(record); err != nil {
			return rows, failed, err
		}
	}
	out.Flush()
	return rows, failed, out.Error()
}

// fields returns what an answer says: the numbers, and then the notes.
func (a *Answer) fields(classes bool) (all []string) {
	numbers := []float64{a.Mean, a.Lo, a.Hi}
	if classes {
		all, numbers = append(all, a.Label), a.Probs
	}
	for _, v := range numbers {
		all = append(all, strconv.FormatFloat(v, 'g', 6, 64))
	}
	return append(all, strings.Join(a.Notes, "; "))
}

// plainError returns the text of an error without what is for programs: the names of sentinels.
func plainError(err error) string {
	text := strings.TrimPrefix(err.Error(), "pgsvi: ")
	for _, s := range []error{pgsvi.ErrShape, pgsvi.ErrEmpty, pgsvi.ErrLabel, pgsvi.ErrNotFinite,
		pgsvi.ErrParam, pgsvi.ErrFile, pgsvi.ErrMemory} {
		text = strings.ReplaceAll(text, ": "+s.Error(), "")
	}
	return text
}
