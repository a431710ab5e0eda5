package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// This file adds the levels of new rows to a predictor before Update learns from the rows.

// withLevels returns a copy of p that has the new levels of the groups in t, in the order of their
// first rows. Each gets features of its own, before the features of the empty level.
func (p *Predictor) withLevels(t *Table, glm *pgsvi.GLMPosterior) (*Predictor, *pgsvi.GLMPosterior,
	error) {
	added := make([][]string, len(p.design.Terms))
	seen := map[string]bool{}
	err := p.enc.each(t, (*column).neededByModel, func(rec *record) error {
		if p.enc.drops(rec.cells, true) {
			return nil
		}
		for i, term := range p.design.Terms {
			if term.Kind != groupTerm {
				continue
			}
			l, missing := term.levelOf(rec.cells)
			if missing != nil {
				continue // encoding the row reports it
			}
			key := fmt.Sprintf("%d %s", i, l)
			if _, known := term.level[l]; !known && !seen[key] {
				seen[key] = true
				added[i] = append(added[i], strings.Clone(l))
			}
		}
		return nil
	})
	if err != nil || len(seen) == 0 {
		return p, glm, err
	}
	d := *p.design
	d.Terms = slices.Clone(d.Terms)
	group := 0
	for i, of := range d.Terms {
		if of.Kind != groupTerm {
			continue
		}
		grown := *of
		grown.Levels = slices.Concat(of.Levels, added[i])
		grown.Counts = slices.Concat(of.Counts, make([]int, len(added[i])))
		grown.compileGroup()
		d.Terms[i] = &grown
		if glm, err = glm.WithLevels(group, grown.groupNames()); err != nil {
			return nil, nil, err
		}
		group++
	}
	d.compile()
	q := *p
	q.design, q.post = &d, glm
	return &q, glm, nil
}
