package pgsvi

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Confusion counts decisions by the class that was right (confusion matrix). Print it for a table
// with the recall and the precision of each class. It is made by NewConfusion.
type Confusion struct {
	// Names are those of the classes, in the order of Counts.
	Names []string
	// Counts has the number of rows of class y that were decided to be of class d in Counts[y][d].
	Counts [][]int
}

// NewConfusion compares decisions, such as those of Prediction.Decide, with the responses y: the
// labels −1 and +1, of which −1 comes first, or classes 0, 1, …. Rows whose decision is NaN are left
// out. The names are those of all classes; nil takes as many as there are, with their numbers as
// names.
//
// The error wraps ErrShape if there are not as many decisions as responses, ErrLabel if one is no
// label and no class, names the row, and ErrEmpty if there are no rows.
func NewConfusion(y, decided []float64, names []string) (*Confusion, error) {
	if len(y) != len(decided) {
		return nil, fmt.Errorf("pgsvi: %d decisions for %d responses: %w", len(decided), len(y), ErrShape)
	}
	const most = 1 << 16
	signs, n := false, 1
	for i, v := range y {
		for _, x := range [2]float64{v, decided[i]} {
			signs = signs || x == -1
			if x >= 0 && x <= most {
				n = max(n, int(x)+1)
			}
		}
	}
	switch {
	case signs || names == nil && n == 2:
		n = 2
	case names != nil:
		n = len(names)
	}
	if names == nil {
		for c := range n {
			names = append(names, strconv.Itoa(c))
		}
		if signs {
			names = []string{"-1", "+1"}
		}
	}
	if len(names) != n {
		return nil, fmt.Errorf("pgsvi: %d names for %d labels: %w", len(names), n, ErrShape)
	}
	place := func(i int, x float64) (int, error) {
		c := x
		if signs {
			c = (x + 1) / 2
		}
		if !(c >= 0 && c < float64(n)) || c != math.Floor(c) {
			return 0, fmt.Errorf("pgsvi: row %d: %v is none of %d classes: %w", i, x, n, ErrLabel)
		}
		return int(c), nil
	}
	m := &Confusion{Names: append([]string(nil), names...), Counts: make([][]int, n)}
	for c := range m.Counts {
		m.Counts[c] = make([]int, n)
	}
	rows := 0
	for i, d := range decided {
		if math.IsNaN(d) {
			continue
		}
		a, err := place(i, y[i])
		if err != nil {
			return nil, err
		}
		b, err := place(i, d)
		if err != nil {
			return nil, err
		}
		m.Counts[a][b]++
		rows++
	}
	if rows == 0 {
		return nil, fmt.Errorf("pgsvi: a confusion table of no rows: %w", ErrEmpty)
	}
	return m, nil
}

// Error returns the share of rows that were decided wrongly.
func (m *Confusion) Error() float64 {
	wrong, all := 0, 0
	for y, row := range m.Counts {
		for d, n := range row {
			if all += n; y != d {
				wrong += n
			}
		}
	}
	return float64(wrong) / float64(all)
}

// Recall returns the share of the rows of class c that were decided to be of it (sensitivity): NaN
// if there are none.
func (m *Confusion) Recall(c int) float64 {
	all := 0
	for _, n := range m.Counts[c] {
		all += n
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// Precision returns the share of the rows decided to be of class c that are (positive predictive
// value): NaN if there are none.
func (m *Confusion) Precision(c int) float64 {
	all := 0
	for _, row := range m.Counts {
		all += row[c]
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// String returns the table: a row for each class with its counts by decision and its recall, and a
// last row with the precisions and the share of rows that are right.
func (m *Confusion) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	share := func(x float64) string {
		if math.IsNaN(x) {
			return "-"
		}
		return strconv.FormatFloat(x, 'f', 3, 64)
	}
	fmt.Fprintf(w, "is \\ decided\t%s\trecall\t\n", strings.Join(m.Names, "\t"))
	last := []string{"precision"}
	for y, name := range m.Names {
		cells := []string{name}
		for _, n := range m.Counts[y] {
			cells = append(cells, strconv.Itoa(n))
		}
		fmt.Fprintf(w, "%s\t%s\t\n", strings.Join(cells, "\t"), share(m.Recall(y)))
		last = append(last, share(m.Precision(y)))
	}
	fmt.Fprintf(w, "%s\t%s\t\n", strings.Join(last, "\t"), share(1-m.Error()))
	w.Flush()
	return b.String()
}
