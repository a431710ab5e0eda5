package data

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi"
)

// MarginalEffects returns the average marginal effect of each column of the formula on the outcome,
// over the rows of the table, like margins in R. For a number, it is the change of the expected
// outcome per unit, through all terms that use the column, including computed columns such as
// I(x^2), but not factor(x); for a date, it is the change per year.
// For a category, it is the change from the reference level to each other level. For a number with
// only two values, it is the difference between the two, per unit. Groups, offsets, exposures,
// months and weekdays stay fixed. Rows with a missing value in the column are left out. Effects are
// in units of the outcome, or of the probability of the positive label for two labels.
//
// Derivatives are differences over ±0.001 standard deviations, or over an interval of the same
// length on one side if a computed column is not finite on the other side, as sqrt(x) at x = 0. For
// classes the effects agree with
// pgsvi.GLMPosterior.MarginalEffects on each probability, where the unit of a number is one
// standard deviation. The table is read once for each number and level. The errors are errors of
// pgsvi.GLMPosterior.MeanDifference and of reading the table.
func (m *Model) MarginalEffects(post *pgsvi.GLMPosterior) (*pgsvi.Effects, error) {
	if m.classes() {
		return post.MarginalEffects(m.X,
			&pgsvi.EffectOptions{Columns: m.design.columns(), Offset: m.Offset})
	}
	of := csvQuote(m.y.Name)
	switch {
	case m.Trials != nil || m.paired:
		of = "the share of successes"
	case len(m.Labels) == 2:
		of = "P(" + m.Labels[1] + ")"
	case m.y.ordered():
		of = "the number of the level"
	}
	e := &pgsvi.Effects{Title: fmt.Sprintf("average effect on %s, per unit of each column", of)}
	var seen []*column
	for _, t := range m.design.Terms {
		for _, c := range t.featureColumns() {
			if slices.Contains(seen, c) {
				continue
			}
			seen = append(seen, c)
			for _, change := range m.changes(c) {
				row, err := m.effectOf(post, c, change)
				if err != nil {
					return nil, err
				}
				e.Rows = append(e.Rows, row)
			}
		}
	}
	return e, nil
}

// featureColumns returns the columns whose values determine features. The columns after the bar of
// a group are not among them.
func (t *term) featureColumns() (all []*column) {
	switch {
	case t.Kind != groupTerm:
		for _, c := range t.cols {
			if c.Computed {
				all = append(all, c.from...)
			} else {
				all = append(all, c)
			}
		}
	case t.Slopes != nil:
		for _, s := range t.Slopes.Terms {
			all = append(all, s.featureColumns()...)
		}
	}
	return all
}

// A change of a column, from the cell below to the cell above, has an effect.
type change struct {
	name string
	at   func(x, side float64) cell // x is the value of a number or date
	per  float64                    // distance between the cells at sides 1 and −1
}

// effectStep is the step of the differences in standard deviations.
const effectStep = 1e-3

// changes returns the changes of a column whose effects are reported.
func (m *Model) changes(c *column) (all []change) {
	between := func(above, below cell) func(x, side float64) cell {
		return func(_, side float64) cell {
			if side > 0 {
				return above
			}
			return below
		}
	}
	switch {
	case c.Kind == kindCategory:
		for _, l := range c.Levels {
			if l != c.Reference {
				all = append(all, change{c.Name + "=" + l,
					between(cell{s: l}, cell{s: c.Reference}), 1})
			}
		}
	case c.Kind == kindNumber && c.binary:
		all = append(all, change{c.Name, between(cell{kind: numberCell, f: c.Max},
			cell{kind: numberCell, f: c.Min}), c.Max - c.Min})
	case c.Kind == kindNumber:
		h := effectStep * c.SD
		if c.Min > 0 {
			h = math.Min(h, effectStep*c.Min) // keep the logarithm finite
		}
		all = append(all, change{c.Name, func(x, side float64) cell {
			return cell{kind: numberCell, f: x + side*h}
		}, 2 * h})
	case c.Kind == kindDate && slices.Contains(c.Parts, Elapsed):
		h := effectStep * c.SD
		all = append(all, change{c.Name + " per year", func(years, side float64) cell {
			return cell{kind: dateCell, f: c.Origin + (years+side*h)*yearSeconds}
		}, 2 * h})
	}
	return all
}

// sides holds the ends of the intervals over which effectOf takes differences. The second and the
// third are for rows where a computed column is not finite at one end of the first.
var sides = [][2]float64{{1, -1}, {2, 0}, {0, -2}}

// effectOf returns the average effect of a change of a column.
func (m *Model) effectOf(post *pgsvi.GLMPosterior, c *column, by change) (e pgsvi.Effect,
	err error) {
	above, below := pgsvi.NewSparse(len(m.Names)), pgsvi.NewSparse(len(m.Names))
	var offset []float64
	var high, low entries
	var changed []cell
	put := func(row *entries, cells []cell, v cell) error {
		changed = append(changed[:0], cells...)
		changed[c.place] = v
		m.enc.compute(changed)
		return m.design.rowOf(row, changed, cells)
	}
	err = m.enc.each(m.table, (*column).neededByModel, func(rec *record) error {
		v := &rec.cells[c.place]
		if m.enc.drops(rec.cells, true) || c.isGapCell(v) {
			return nil
		}
		x, err := 0., error(nil)
		if c.Kind != kindCategory {
			x, _, err = c.number(v)
		}
		for i, side := range sides {
			if err != nil && (i == 0 || !errors.Is(err, pgsvi.ErrParam)) {
				break
			}
			if err = put(&high, rec.cells, by.at(x, side[0])); err == nil {
				err = put(&low, rec.cells, by.at(x, side[1]))
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			return m.table.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
		}
		if err := above.Append(high.indices(), high.val); err != nil {
			return err
		}
		if err := below.Append(low.indices(), low.val); err != nil {
			return err
		}
		o, err := m.enc.offset(rec.cells)
		offset = append(offset, o)
		return err
	})
	if err != nil {
		return e, err
	}
	e, err = post.MeanDifference(above, below, &pgsvi.EffectOptions{Offset: offset})
	e.Name = by.name
	for _, x := range []*float64{&e.Mean, &e.SD, &e.Lo, &e.Hi} {
		*x /= by.per
	}
	return e, err
}
