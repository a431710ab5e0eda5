package data

import (
	"slices"

	"github.com/pgsvi/pgsvi/formula"
)

// This file makes columns for the factors of a formula: factor(x) is a copy of column x that is
// read as a category. ModelOf calls withFactors first. From then on a factor is a column of the
// table like any other, with decisions of its own, so that one column can be a number in one term
// and a category in another.

// withFactors returns the table with a column for each factor of the formula that it lacks.
func (t *Table) withFactors(f *formula.Formula) *Table {
	q := *t
	for _, name := range f.Columns() {
		of, ok := formula.FactorOf(name)
		from, there := t.place[of]
		if _, twice := q.place[name]; !ok || !there || twice {
			continue
		}
		if len(q.factors) == 0 {
			q.profiles, q.place = slices.Clone(t.profiles), make(map[string]int, len(t.place)+1)
			for column, j := range t.place {
				q.place[column] = j
			}
		}
		p := *t.profiles[from]
		p.name = name
		q.place[name] = len(q.profiles)
		q.profiles, q.factors = append(q.profiles, &p), append(q.factors, from)
	}
	if len(q.factors) == 0 {
		return t
	}
	return &q
}

// withFactors returns the record with the cells of the factors appended.
func (r *record) withFactors(factors []int) *record {
	if len(factors) == 0 {
		return r
	}
	out := *r
	for _, j := range factors {
		out.cells = append(out.cells, r.cells[j])
	}
	return &out
}

// fillFactors copies the cells of columns to their factors.
func (e *Encoder) fillFactors(cells []cell) {
	for _, c := range e.state.Columns {
		if c.Of != "" {
			cells[c.place] = cells[e.place[c.Of]]
		}
	}
}
