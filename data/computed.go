package data

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/arith"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// This file makes the computed columns of a formula. factor(x) is a copy of column x that is read
// as a category, and I(x^2) and log(x) are functions of numbers; package arith evaluates them.
// ModelOf calls withComputed first. From then on a computed column is a column of the table like any other,
// with decisions of its own, so one column can be a number in one term and a category in another,
// and every term that takes numbers takes I(x^2). Its cells are empty in a record of the table.
// Encoder.fillComputed fills them from the other cells of the row.

// withComputed returns the table with a column for each computed column of the formula. It returns
// an error if the table has a column of this name and also the columns to compute it from.
func (t *Table) withComputed(f *formula.Formula) (*Table, error) {
	q := *t
	for _, name := range computable(f) {
		from, computed := sources(name)
		ready := computed
		for _, c := range from {
			_, there := t.place[c]
			ready = ready && there
		}
		_, twice := q.place[name]
		if own, there := t.place[name]; ready && there && !t.isMade(own) {
			return nil, t.named(fmt.Errorf("pgsvi: the table has a column named %s, so the term "+
				"is ambiguous; rename the column: %w", csvQuote(name), pgsvi.ErrParam))
		}
		if !ready || twice {
			continue
		}
		if q.computed == 0 {
			q.profiles, q.place = slices.Clone(t.profiles), make(map[string]int, len(t.place)+1)
			for column, j := range t.place {
				q.place[column] = j
			}
		}
		p := newProfile(name, fewestTexts)
		if of, ok := formula.FactorOf(name); ok {
			*p = *t.profiles[t.place[of]]
			p.name = name
		}
		q.place[name] = len(q.profiles)
		q.profiles = append(q.profiles, p)
		q.computed++
	}
	if q.computed == 0 {
		return t, nil
	}
	return &q, nil
}

// computable returns the columns of a formula that may be computed. These are the columns of
// exposure, offset, weight, precision and terms, except groups and the columns that . leaves out.
func computable(f *formula.Formula) (names []string) {
	for _, t := range f.Terms {
		switch t := t.(type) {
		case formula.Rest:
		case formula.Group:
			names = append(names, slopeColumns(t)...)
		default:
			names = append(names, t.Columns()...)
		}
	}
	return append(names, f.Exposure, f.Offset, f.Weight, f.Precision)
}

// sources returns the columns that a computed column is made from. computed is false for any other
// column.
func sources(name string) (columns []string, computed bool) {
	if of, ok := formula.FactorOf(name); ok {
		return []string{of}, true
	}
	if e, ok := arith.Named(name); ok {
		return e.Columns, true
	}
	return nil, false
}

// isMade reports whether column j is not in the file, because it is a factor or is computed from
// numbers.
func (t *Table) isMade(j int) bool { return j >= len(t.profiles)-t.computed }

// isComputed reports whether column j is computed from numbers.
func (t *Table) isComputed(j int) bool {
	_, number := arith.Named(t.profiles[j].name)
	return number && t.isMade(j)
}

// widen returns the record with n empty cells appended, in the memory of wide.
func (r *record) widen(n int, wide *record) *record {
	if n == 0 {
		return r
	}
	cells := append(wide.cells[:0], r.cells...)
	for range n {
		cells = append(cells, cell{kind: absentCell})
	}
	*wide = *r
	wide.cells = cells
	return wide
}

// link finds the columns that computed columns are made from. It returns an error if one of them is
// missing. The error wraps wrong if one of them is not a number although arithmetic needs numbers.
func (e *Encoder) link(wrong error) error {
	e.place, e.computed = make(map[string]int, len(e.state.Columns)), nil
	for j, c := range e.state.Columns {
		if _, twice := e.place[c.Name]; twice || c.Name == "" {
			return sentinel.Wrap(pgsvi.ErrFile,
				"pgsvi: the encoder has two columns named %s", csvQuote(c.Name))
		}
		e.place[c.Name], c.place = j, j
	}
	for _, c := range e.state.Columns {
		if c.Of == "" && !c.Computed || c.Kind == kindSkip {
			continue
		}
		if err := e.linkTo(c, wrong); err != nil {
			return err
		}
		e.computed = append(e.computed, c)
	}
	return nil
}

// linkTo finds the columns that c is made from; see link.
func (e *Encoder) linkTo(c *column, wrong error) error {
	from := []string{c.Of}
	if c.from, c.expr = nil, nil; c.Computed {
		var ok bool
		if c.expr, ok = arith.Named(c.Name); !ok {
			return fmt.Errorf("pgsvi: the encoder has the computed column %s, which is not "+
				"arithmetic: %w", csvQuote(c.Name), pgsvi.ErrFile)
		}
		from = c.expr.Columns
	}
	for _, name := range from {
		source := e.column(name)
		switch {
		case source == nil || source.Computed || source.Of != "":
			return fmt.Errorf("pgsvi: the encoder has the computed column %s, but not the column "+
				"%s: %w", csvQuote(c.Name), csvQuote(name), pgsvi.ErrFile)
		case c.Computed && source.Kind != kindNumber:
			return fmt.Errorf("pgsvi: %s: column %s is a %s instead of a number: %w",
				c.Name, csvQuote(name), source.Kind, wrong)
		}
		c.from = append(c.from, source)
	}
	return nil
}

// fillComputed sets the cells of computed columns, which are in the order of state.Columns.
func (e *Encoder) fillComputed(cells []cell) {
	for _, c := range e.computed {
		if c.expr == nil {
			cells[c.place] = cells[c.from[0].place]
		}
	}
	e.compute(cells)
}

// compute sets the cells of the columns that are computed from numbers. The cell of a factor keeps
// its level.
func (e *Encoder) compute(cells []cell) {
	for _, c := range e.computed {
		if c.expr != nil {
			cells[c.place] = c.compute(cells)
		}
	}
}

// compute returns the cell of a computed column. The value is missing if the value of one of the
// columns is missing. A value that is not finite becomes a cell with an error, because the row may
// still be left out.
func (c *column) compute(cells []cell) cell {
	var few [8]float64
	x := few[:0]
	for _, from := range c.from {
		v := &cells[from.place]
		if from.isGapCell(v) && (c.Missing != missingError || from.Missing != missingError) {
			return cell{kind: absentCell}
		}
		f, ok, err := from.number(v)
		if !ok && err == nil {
			_, err = from.putMissing(nil, 0, 1)
		}
		if err != nil {
			return cell{kind: unreadCell, s: sentinel.Plain(from.wrap(err))}
		}
		x = append(x, f)
	}
	y := c.expr.Value(x)
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return cell{kind: undefinedCell, s: c.expr.Describe(x) +
			"; leave out the row, or change the term"}
	}
	return cell{kind: numberCell, f: y}
}
