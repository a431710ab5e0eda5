package data

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// partRows returns the row numbers of a table, and checks that the line numbers are lines of the
// file.
func partRows(t *testing.T, table *Table) (rows []int) {
	t.Helper()
	if err := table.scan(func(r *record) error {
		if rows = append(rows, r.row); r.line != r.row+2 {
			t.Errorf("row %d is line %d", r.row, r.line)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestSplit checks that each row is in exactly one part, that the parts have the requested sizes,
// and that only the seed determines them.
func TestSplit(t *testing.T) {
	table := tableOf(t, orders(200, 3))
	train, test, err := table.Split(0.2, 7)
	if err != nil {
		t.Fatal(err)
	}
	a, b := partRows(t, train), partRows(t, test)
	if len(b) != 40 || test.Len() != 40 || len(a) != 160 || train.Len() != 160 {
		t.Fatalf("%d and %d rows, %d and %d", len(a), len(b), train.Len(), test.Len())
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(a), b...)))
	for i, row := range all {
		if i != row {
			t.Fatalf("rows %v", all)
		}
	}
	_, again, err := tableOf(t, orders(200, 3)).Split(0.2, 7)
	if err != nil || !slices.Equal(partRows(t, again), b) {
		t.Errorf("the same seed: %v", err)
	}
	_, other, err := table.Split(0.2, 8)
	if err != nil || slices.Equal(partRows(t, other), b) {
		t.Errorf("another seed: %v", err)
	}
	left, right, err := train.Split(0.5, 7)
	if err != nil {
		t.Fatal(err)
	}
	if both := slices.Sorted(slices.Values(append(partRows(t, left), partRows(t, right)...))); len(
		partRows(t, left)) != 80 || !slices.Equal(both, a) {
		t.Errorf("parts of a part have the rows %v, want %v", both, a)
	}
	sum := 0.0
	for seed := range uint64(300) {
		_, test, err := table.Split(0.1, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range partRows(t, test) {
			sum += float64(row)
		}
	}
	if mean := sum / 300 / 20; math.Abs(mean-99.5) > 4*58/math.Sqrt(6000) {
		t.Errorf("the rows held out have the mean %v, want 99.5", mean)
	}
	for _, share := range []float64{0, 1, -0.1, math.NaN(), 0.001} {
		if _, _, err := table.Split(share, 1); !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("a share of %v: %v", share, err)
		}
	}
}

// TestSplitModel fits a model to one part of a table and scores the other part.
func TestSplitModel(t *testing.T) {
	table := tableOf(t, orders(300, 3))
	train, test, err := table.Split(0.25, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := mustModel(t, train, "bought ~ plan + age + (1 | shop)", yes)
	if len(m.Kept) > 225 || m.enc.state.Rows != 225 {
		t.Errorf("%d rows of %d", len(m.Kept), m.enc.state.Rows)
	}
	_, p := mustFit(t, m, nil)
	rows, failed, scores, err := p.ScoreCSV(io.Discard, test, 0.9)
	if err != nil || rows != 75 || failed > 0 {
		t.Fatal(rows, failed, err)
	}
	other, err := p.Score(test)
	if err != nil || fmt.Sprint(other) != fmt.Sprint(scores) {
		t.Errorf("%v, %v, want %v", other, err, scores)
	}
	at := partRows(t, test)
	for a, err := range p.Table(test, 0.9) {
		if err != nil || a.Row != at[0] || a.Line != at[0]+2 {
			t.Fatal(a, err, at[0])
		}
		at = at[1:]
	}
}

// TestSplitObjects checks that the parts of a table of objects have all its columns, and that row
// numbers do not become a feature.
func TestSplitObjects(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "{\"a\": %d", i%7)
		if i == 31 {
			b.WriteString(", \"b\": 3")
		}
		b.WriteString("}\n")
	}
	train, test, err := tableOf(t, b.String()).Split(0.5, 3)
	if err != nil || len(train.Columns()) != 2 || len(test.Columns()) != 2 {
		t.Fatal(train, test, err)
	}
	b.Reset()
	b.WriteString(",a,y\n")
	for i := range 200 {
		fmt.Fprintf(&b, "%d,%d,%d.5\n", i, i%7, i*i%11)
	}
	train, _, err = tableOf(t, b.String()).Split(0.5, 3)
	if err != nil {
		t.Fatal(err)
	}
	if m := mustModel(t, train, "y ~ ."); m.Formula.String() != "y ~ a" {
		t.Errorf("formula %v", m.Formula)
	}
}
