package data

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// WriteCSV predicts each row of a table, like Table, and writes one line per row to w. A line has
// the number of the row, from 1, the answer, and its notes or the error. The columns are
//
//	row, mean or P(label), lo, hi, note
//	row, class, P(class) for each class, note
//
// It returns the number of rows, and the number of rows with an error, whose other fields are
// empty. It keeps at most 512 rows in memory, and writes nothing if no row has an answer. The error
// is an error of w, or an error that ends the sequence of Table.
func (p *Predictor) WriteCSV(w io.Writer, t *Table, level float64) (rows, failed int, err error) {
	return p.writeCSV(w, t, level, func(*Answer) error { return nil })
}

// ScoreCSV combines WriteCSV and Score in one pass over the table. A row whose outcome cannot be
// used counts as a row with an error. ScoreCSV keeps a few numbers per row in memory. If the table
// lacks the column of the outcome, or the trials or events that belong to it, ScoreCSV writes
// nothing and the error wraps ErrShape.
func (p *Predictor) ScoreCSV(w io.Writer, t *Table, level float64) (
	rows, failed int, scores *pgsvi.Scores, err error) {
	var gone []string
	for _, c := range p.enc.uses {
		_, there := t.place[c.Name]
		if !there && (c == p.y || c.Kind == kindTrials || c.Kind == kindEvent) {
			gone = append(gone, c.Name)
		}
	}
	if gone != nil {
		return 0, 0, nil, t.named(sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: the table has no column %s to compare predictions with",
			strings.Join(quoteAll(gone, fewNamed), ", ")))
	}
	s := scoring{counts: p.trials, root: p.y.Root}
	add := func(a *Answer) error {
		if a.unread != nil {
			return t.named(fmt.Errorf("pgsvi: line %d, %w", a.Line, a.unread))
		}
		s.add(a)
		return nil
	}
	if rows, failed, err = p.writeCSV(w, t, level, add); err == nil {
		scores, err = s.scores()
	}
	return rows, failed, scores, err
}

// writeCSV is WriteCSV that also passes each answer to show, which may return an error for its row.
func (p *Predictor) writeCSV(w io.Writer, t *Table, level float64, show func(*Answer) error) (
	rows, failed int, err error) {
	head := p.csvHead()
	out := csv.NewWriter(w)
	for a, fault := range p.Table(t, level) {
		if a == nil {
			out.Flush()
			return rows, failed, fault
		}
		if rows++; rows == 1 { // not earlier, because the table may lack columns
			if err := out.Write(head); err != nil {
				return rows, failed, err
			}
		}
		if fault == nil {
			fault = show(a)
		}
		record := make([]string, len(head))
		if record[0] = strconv.Itoa(rows); fault != nil {
			failed++
			record[len(head)-1] = "error: " + sentinel.Plain(fault)
		} else {
			a.fields(record[1:])
		}
		if err := out.Write(record); err != nil {
			return rows, failed, err
		}
	}
	out.Flush()
	return rows, failed, out.Error()
}

// csvHead returns the column names of WriteCSV.
func (p *Predictor) csvHead() []string {
	if classes := p.Classes(); classes != nil {
		head := []string{"row", "class"}
		for _, name := range classes {
			head = append(head, "P("+name+")")
		}
		return append(head, "note")
	}
	mean := "mean"
	if _, label := p.Outcome(); label != "" {
		mean = "P(" + label + ")"
	}
	return []string{"row", mean, "lo", "hi", "note"}
}

// fields stores the fields of an answer: its class, if the outcome has classes, its numbers, and
// its notes.
func (a *Answer) fields(dst []string) {
	numbers, at := []float64{a.Mean, a.Lo, a.Hi}, 0
	if a.Probs != nil {
		dst[0], numbers, at = a.Label, a.Probs, 1
	}
	for k, v := range numbers {
		dst[at+k] = strconv.FormatFloat(v, 'g', 6, 64)
	}
	dst[at+len(numbers)] = strings.Join(a.Notes, "; ")
}
