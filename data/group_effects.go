package data

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// GroupEffects holds the effects of the levels of a grouping factor in units of the table, like
// ranef and VarCorr of lme4, but without new levels. Mean and SD include the uncertainty of the
// coefficients, which ranef leaves out. Share is NaN if the fit does not use GLMOptions.Groups.
// Print it to see a league table.
type GroupEffects struct {
	pgsvi.GroupSummary
	// LevelNames holds the names of the levels, in the order of the rows of Mean and SD.
	LevelNames []string
	// Rank holds the posterior means of the ranks of the levels, in the form of Mean. Rank 1 is the
	// largest effect. RankLo and RankHi are the ends of the 95% intervals of the ranks
	// (Goldstein and Spiegelhalter 1996). They are estimates from up to 4,000 draws of all effects,
	// and at least 400 if there are many levels.
	Rank, RankLo, RankHi *mat.Dense
}

// GroupEffects returns the effects of each group of the formula, in the order of its terms. It
// returns nil if the formula has no groups. The effects of classes are relative to the mean over the
// classes, class by class; see pgsvi.GroupSummary. The error wraps ErrShape if post has other weights
// than the model.
func (m *Model) GroupEffects(post *pgsvi.GLMPosterior) ([]GroupEffects, error) {
	if n := post.Cols(); n != len(m.Names) {
		return nil, fmt.Errorf("pgsvi: the posterior has %d columns, but the model has %d: %w", n,
			len(m.Names), pgsvi.ErrShape)
	}
	var s Summary
	s.components(m, post)
	byParam := map[string]Component{}
	for _, c := range s.Groups {
		byParam[c.Param] = c
	}
	fitted := map[int]pgsvi.GroupSummary{} // by first feature
	for i, g := range post.Groups() {
		if d := m.design.groups(); i < len(d) && len(d[i].effects) == len(g.Effects) {
			fitted[d[i].first] = g
		}
	}
	var all []GroupEffects
	for _, t := range m.design.Terms {
		if t.Kind != groupTerm {
			continue
		}
		e := GroupEffects{LevelNames: t.Levels}
		e.Name, e.Levels, e.Known, e.Share = t.by(), len(t.Levels), len(t.Levels), math.NaN()
		if m.classes() {
			for _, label := range m.Labels {
				e.Classes = append(e.Classes, "class="+label)
			}
		}
		units := t.units()
		if own, known := fitted[t.at]; known {
			e.Share = own.Share
		}
		for _, name := range t.effects() {
			c := byParam["sd["+t.effectBlock(name)+"]"]
			e.Effects = append(e.Effects, pgsvi.GroupEffect{Name: name, SD: c.SD, Lo: c.Lo, Hi: c.Hi,
				EDF: c.EDF})
			for k, r := range c.Corr {
				e.Corr = append(e.Corr, pgsvi.GroupCorr{A: name, B: t.effects()[k], Value: r,
					Lo: c.CorrLo[k], Hi: c.CorrHi[k]})
			}
		}
		if err := t.effectsOf(&e, units, post); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if all == nil {
		return nil, nil
	}
	return all, m.setRanks(all, post)
}

// ColumnNames names the columns of Mean, SD and Rank. There is a column for each of the Effects, or,
// if there are Classes, for each effect on each class.
func (e *GroupEffects) ColumnNames() (names []string) {
	for _, effect := range e.Effects {
		names = append(names, effect.Name)
	}
	if len(e.Classes) == 0 {
		return names
	}
	effects := names
	names = nil
	for _, class := range e.Classes {
		for _, effect := range effects {
			names = append(names, class+" · "+effect)
		}
	}
	return names
}

// single reports whether only one element of row differs from 0.
func single(row []float64) bool {
	n := 0
	for _, u := range row {
		n += b2i(u != 0)
	}
	return n == 1
}

// effectsOf stores the means and the standard deviations of the effects of a group in e, class by
// class. The effects are the product of units and the weights of a level.
func (t *term) effectsOf(e *GroupEffects, units [][]float64, post *pgsvi.GLMPosterior) error {
	classes := max(1, len(e.Classes))
	e.Mean, e.SD = mat.NewDense(e.Levels, classes*t.q, nil), mat.NewDense(e.Levels, classes*t.q, nil)
	mean, sd := post.Mean(nil), post.SD(nil)
	contrast := make([]float64, post.Dim())
	each := len(mean) / classes
	for i := range e.Levels * classes {
		level, class := i/classes, i%classes
		first := class*each + t.at + level*t.q
		for j, row := range units {
			to := class*t.q + j
			if single(row) {
				e.Mean.Set(level, to, row[j]*mean[first+j])
				e.SD.Set(level, to, math.Abs(row[j])*sd[first+j])
				continue
			}
			copy(contrast[first:], row)
			m, s, err := post.Contrast(contrast)
			if err != nil {
				return err
			}
			e.Mean.Set(level, to, m)
			e.SD.Set(level, to, s)
			clear(contrast[first : first+t.q])
		}
	}
	return nil
}
