package data

import (
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
)

// This file decides how the products of a formula are coded: which categories have a feature for
// every level, and which numbers may be centered. The rules for categories are from R
// (terms.formula and model.matrix; Chambers and Hastie 1992, section 2.4.1), so a formula spans the
// same functions here as in R. newDesign applies the rules once per formula.

// A coding describes how the columns of one product are coded.
type coding struct {
	columns []string
	full    []bool // the category has a feature for every level, including the reference
	center  []bool // the number may be centered: the model has the terms that centering adds
}

// codings holds the products of a formula, including single columns.
type codings struct {
	list        []*coding // sorted by degree, as R sorts terms
	category    func(column string) bool
	noIntercept bool
}

// check returns an error if the meaning of a term depends on the reference level of a category. R
// codes b by contrasts in a:x + a:b because a is a part of a:x, although a:x does not include the
// effect of a if x is a number. The functions that the model can fit would then depend on the
// reference.
func (all *codings) check() error {
	for _, c := range all.list {
		for i, name := range c.columns {
			rest := without(c.columns, i)
			if !all.category(name) || c.full[i] || all.spansBut(rest, []*coding{c}) {
				continue
			}
			return fmt.Errorf("pgsvi: %s without %s depends on the reference level of %s; "+
				"add %s to the formula: %w", termOf(c.columns), termOf(rest), formula.Col(name),
				termOf(rest), pgsvi.ErrParam)
		}
	}
	return nil
}

// termOf returns the product of columns as a term.
func termOf(columns []string) formula.Term {
	if len(columns) == 1 {
		return formula.Col(columns[0])
	}
	return formula.Interact(columns)
}

// newCodings decides how the products are coded. category reports whether a column is a category,
// and number reports whether it has a number to center.
func newCodings(f *formula.Formula, category, number func(column string) bool) *codings {
	all := &codings{category: category, noIntercept: f.NoIntercept}
	for _, t := range f.Terms {
		switch t.(type) {
		case formula.Col, formula.Interact:
			n := len(t.Columns())
			all.list = append(all.list, &coding{t.Columns(), make([]bool, n), make([]bool, n)})
		}
	}
	slices.SortStableFunc(all.list, func(a, b *coding) int {
		return len(a.columns) - len(b.columns)
	})
	all.codeCategories()
	for _, c := range all.list {
		all.centerNumbers(c, number)
	}
	return all
}

// find returns the coding of the product of columns, or nil.
func (all *codings) find(columns []string) *coding {
	i := slices.IndexFunc(all.list, func(c *coding) bool { return slices.Equal(c.columns, columns) })
	if i < 0 {
		return nil
	}
	return all.list[i]
}

// without returns columns without the column at index i.
func without(columns []string, i int) []string {
	return slices.Delete(slices.Clone(columns), i, i+1)
}

// within reports whether b contains every column of a.
func within(a, b []string) bool {
	return !slices.ContainsFunc(a, func(c string) bool { return !slices.Contains(b, c) })
}

// codeCategories codes a category of a product by contrasts with its reference if an earlier term
// contains the rest of the product, and in full otherwise. Without an intercept the first category
// is coded in full.
func (all *codings) codeCategories() {
	for k, c := range all.list {
		for i := range c.columns {
			rest := without(c.columns, i)
			c.full[i] = len(rest) > 0 && !slices.ContainsFunc(all.list[:k], func(e *coding) bool {
				return within(rest, e.columns)
			})
		}
	}
	if !all.noIntercept {
		return
	}
	for _, c := range all.list {
		if i := slices.IndexFunc(c.columns, all.category); i >= 0 {
			c.full[i] = true
			return
		}
	}
}

// spans reports whether the model contains every function that is the product of the numbers among
// the columns and a function of the categories among them. No columns means the constants.
func (all *codings) spans(columns []string) bool { return all.spansBut(columns, nil) }

// spansBut is like spans, but ignores the products in skip, whose own contrasts are being checked.
func (all *codings) spansBut(columns []string, skip []*coding) bool {
	if len(columns) == 0 && !all.noIntercept {
		return true
	}
	return slices.ContainsFunc(all.list, func(c *coding) bool {
		if slices.Contains(skip, c) || !within(columns, c.columns) {
			return false
		}
		for i, name := range c.columns {
			if !all.category(name) {
				if !slices.Contains(columns, name) {
					return false
				}
			} else if !c.full[i] && !all.spansBut(without(c.columns, i), append(skip, c)) {
				return false
			}
		}
		return true
	})
}

// centerNumbers finds the numbers of a product that may be centered. Centering the numbers in a set
// C adds the product without S for every subset S of C, so the model must already contain all of
// these.
func (all *codings) centerNumbers(c *coding, number func(column string) bool) {
	rests := [][]string{c.columns} // the product without each subset of C
	for i, name := range c.columns {
		if !number(name) {
			continue
		}
		var more [][]string
		for _, r := range rests {
			more = append(more, without(r, slices.Index(r, name)))
		}
		if !slices.ContainsFunc(more, func(r []string) bool { return !all.spans(r) }) {
			c.center[i] = true
			rests = append(rests, more...)
		}
	}
}
