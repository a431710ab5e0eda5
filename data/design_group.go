package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// This file makes the features of random effects. Each level of a group has Q features side by
// side, one for each effect: the intercept, which is 1 in the rows of the level, and the slopes,
// which have the values of other features there. Together they are the columns of the matrix Z of
// lme4 (Bates et al. 2015, section 2.3), level by level, followed by the features of one empty
// level for levels that training has not seen.
//
// newDesign calls addGroups, which splits a term such as (1 + x | a/b) into terms of one group
// each. The slopes of such a term are a design of their own, so R's rules for contrasts apply to
// them, and their features are scaled as in other terms. The slope of a number is centered only if
// it is correlated with an intercept. Then the model is the same with another covariance matrix, in
// which numbers far from 0 cause no correlations near −1.

// interceptEffect is the name of the intercept of each level.
const interceptEffect = interceptName

// A groupCoder adds groups to a design.
type groupCoder struct {
	d *design
	e *Encoder
	// category and number are the arguments of newCodings.
	category, number func(column string) bool
}

// addGroups adds the effects of a term. Two effects are correlated if they are written before the
// same single bar. All other intercepts and slopes of one column share a group of independent
// effects, so (1 | g) + (0 + x | g) is (1 + x || g).
func (b *groupCoder) addGroups(t formula.Group) error {
	for i := range t.By {
		g := t
		if g.By = t.By[:i+1]; t.Joint {
			if i+1 < len(t.By) {
				continue
			}
			g.By = t.By
		}
		g.Uncorrelated = false
		parts := []formula.Group{g}
		if t.Uncorrelated {
			parts = apart(g)
		}
		for _, p := range parts {
			if err := b.add(p); err != nil {
				return fmt.Errorf("pgsvi: %v: %s: %w", t, sentinel.Plain(err), pgsvi.ErrParam)
			}
		}
	}
	return nil
}

// apart returns the intercept and each slope of g as terms, as lme4 reads two bars.
func apart(g formula.Group) (parts []formula.Group) {
	slopes := g.Slopes
	if g.Slopes = nil; !g.NoIntercept {
		parts = append(parts, g)
	}
	g.NoIntercept = true
	for _, s := range slopes {
		g.Slopes = []formula.Term{s}
		parts = append(parts, g)
	}
	return parts
}

// add adds correlated effects of one group, unless the design already has them.
func (b *groupCoder) add(g formula.Group) error {
	all := newCodings(&formula.Formula{NoIntercept: g.NoIntercept, Terms: g.Slopes}, b.category,
		b.number)
	if err := all.check(); err != nil {
		return err
	}
	single := b.single(g)
	if i := slices.IndexFunc(b.d.Terms, func(t *term) bool {
		return t.isGroup(g.By) && (t.has(g) || single && t.learner.single)
	}); i >= 0 {
		if t := b.d.Terms[i]; !t.has(g) {
			t.join(g, all)
		}
		return nil
	}
	t := &term{Kind: groupTerm, Columns: g.By, Joint: g.Joint, NoIntercept: true,
		learner: &termLearner{single: single, group: formula.Group{By: g.By, Joint: g.Joint,
			NoIntercept: true}}}
	t.join(g, all)
	b.d.Terms = append(b.d.Terms, t)
	return nil
}

// single reports whether g has only one effect per level.
func (b *groupCoder) single(g formula.Group) bool {
	if len(g.Slopes) == 0 || len(g.Slopes) > 1 || !g.NoIntercept {
		return len(g.Slopes) == 0
	}
	if p, ok := g.Slopes[0].(formula.Poly); ok && p.Degree > 1 {
		return false
	}
	return !slices.ContainsFunc(g.Slopes[0].Columns(), func(name string) bool {
		c := b.e.column(name)
		return c.Kind == kindCategory || len(c.Parts) > 1 || c.Kind == kindDate && !c.hasNumber()
	})
}

// isGroup reports whether the levels of t are the combinations of levels of the columns.
func (t *term) isGroup(columns []string) bool {
	return t.Kind == groupTerm && len(t.Columns) == len(columns) && within(columns, t.Columns)
}

// has reports whether the effects of g are all effects of t, which is then a repetition, because
// Formula.Check excludes groups that share some of their effects.
func (t *term) has(g formula.Group) bool {
	if !g.NoIntercept && t.NoIntercept {
		return false
	}
	return !slices.ContainsFunc(g.Slopes, func(s formula.Term) bool {
		return !slices.ContainsFunc(t.learner.group.Slopes, func(o formula.Term) bool {
			_, product := s.(formula.Interact)
			return o.String() == s.String() ||
				product && len(o.Columns()) == len(s.Columns()) && within(s.Columns(), o.Columns())
		})
	})
}

// join adds the effects of g to t. They are independent of the others if all are single effects.
func (t *term) join(g formula.Group, all *codings) {
	of := &t.learner.group
	of.Slopes = append(of.Slopes, g.Slopes...)
	t.NoIntercept = t.NoIntercept && g.NoIntercept
	of.NoIntercept = t.NoIntercept
	t.Independent = t.learner.single && len(of.Slopes)+b2i(!t.NoIntercept) > 1
	of.Uncorrelated = t.Independent
	t.Text = of.String()
	for _, s := range g.Slopes {
		if t.Slopes == nil {
			t.Slopes = &design{}
		}
		slope := all.term(s)
		l := slope.learner
		l.constant, l.intercept = !g.NoIntercept, false // features are not centered by their means
		for i := range l.center {
			l.center[i] = l.center[i] && !g.NoIntercept && len(l.center) == 1
		}
		t.Slopes.Terms = append(t.Slopes.Terms, slope)
	}
}

// by returns the name of a group.
func (t *term) by() string { return strings.Join(t.Columns, t.sign()) }

// sign returns the sign between the columns of a group and between the parts of its levels.
func (t *term) sign() string {
	if t.Joint {
		return ":"
	}
	return "/"
}

// effects returns the names of the effects of each level.
func (t *term) effects() (names []string) {
	if !t.NoIntercept {
		names = append(names, interceptEffect)
	}
	if t.Slopes == nil {
		return names
	}
	for _, k := range t.Kept {
		if k < len(t.Slopes.names) { // checkFeatures reports other numbers from files
			names = append(names, t.Slopes.names[k])
		}
	}
	return names
}

// groupNames returns the names of the features of a group.
func (t *term) groupNames() (names []string) {
	effects := t.effects()
	for _, l := range append(slices.Clone(t.Levels), "(new)") {
		for _, e := range effects {
			name := t.by() + "=" + l
			if e != interceptEffect {
				name += ":" + e
			}
			names = append(names, name)
		}
	}
	return names
}

// effectBlock returns the name of an effect of a group among the blocks of a model.
func (t *term) effectBlock(effect string) string {
	if effect == interceptEffect {
		return t.by()
	}
	return t.by() + ":" + effect
}

// compileGroup sets the fields of a group that depend on its levels.
func (t *term) compileGroup() {
	t.level, t.whole = make(map[string]int, len(t.Levels)), map[string]string{}
	for i, l := range t.Levels {
		t.level[l] = i
		w := wholeNumber(l)
		if _, twice := t.whole[w]; twice {
			l = ""
		}
		t.whole[w] = l
	}
	if t.Slopes != nil {
		t.Slopes.intercept = !t.NoIntercept
		t.Slopes.compile()
	}
	t.q = len(t.effects())
}

// wholeNumber returns a whole number such as "7.0" or "7,0" without its decimals, and other texts
// unchanged. Programs write the codes of groups as 7.0 if a cell of the column is empty.
func wholeNumber(s string) string {
	at := strings.IndexAny(s, ".,")
	if at < 1 || strings.Trim(s[:at], "0123456789") != "" || strings.Trim(s[at+1:], "0") != "" {
		return s
	}
	return s[:at]
}

// putGroup stores the effects of the level of a row in r. The cells in groups determine the level.
func (t *term) putGroup(r *entries, cells, groups []cell) error {
	l, missing := t.levelOf(groups)
	if missing != nil {
		return missing.absent()
	}
	i, ok := t.level[l]
	if !ok {
		i = len(t.Levels)
		r.note(fmt.Sprintf("%s=%q is new, so its effect is as uncertain as its prior", t.by(), l))
	}
	first := t.at + i*t.q
	if !t.NoIntercept {
		r.put(first, 1)
		first++
	}
	if t.Slopes == nil {
		return nil
	}
	from := len(r.ind)
	for _, s := range t.Slopes.Terms {
		if err := s.put(r, cells); err != nil {
			return err
		}
	}
	to := from
	for k := from; k < len(r.ind); k++ {
		if q, ok := slices.BinarySearch(t.Kept, r.ind[k]); ok {
			r.ind[to], r.val[to] = first+q, r.val[k]
			to++
		}
	}
	r.ind, r.val = r.ind[:to], r.val[:to]
	return nil
}

// A groupLearner finds out which features of slopes vary within levels.
type groupLearner struct {
	first  [][]float64 // features in the first row of each level
	varied []bool      // by feature of the slopes
	used   []bool      // whether the feature is not always 0
	now    []float64
}

// seeGroup learns from a row of weight w.
func (t *term) seeGroup(cells []cell, w float64) error {
	level, err := t.seeLevel(cells)
	if err != nil || t.Slopes == nil {
		return err
	}
	for _, s := range t.Slopes.Terms {
		if err := s.see(cells, w); err != nil {
			return err
		}
	}
	l := &t.learner.slopes
	if w == 0 || !slices.Contains(l.varied, false) && !slices.Contains(l.used, false) {
		return nil
	}
	if err := t.slopesOf(l.now, cells); err != nil {
		return err
	}
	for len(l.first) <= level {
		l.first = append(l.first, nil)
	}
	if l.first[level] == nil {
		l.first[level] = slices.Clone(l.now)
	}
	for k, v := range l.now {
		l.varied[k] = l.varied[k] || v != l.first[level][k]
		l.used[k] = l.used[k] || v != 0
	}
	return nil
}

// slopesOf stores the features of the slopes before they are standardized.
func (t *term) slopesOf(x []float64, cells []cell) error {
	clear(x)
	for _, s := range t.Slopes.Terms {
		own := x[s.at : s.at+s.n]
		if s.Kind == productTerm {
			row := &s.learner.row
			row.reset()
			if err := s.multiply(row, cells); err != nil {
				return err
			}
			for i, k := range row.product.ind {
				own[k] = row.product.val[i]
			}
			continue
		}
		c := s.cols[0]
		v, ok, err := c.number(&cells[c.place])
		if err != nil {
			return c.wrap(err)
		}
		if !ok {
			v = c.Mean
		}
		for k := range own {
			own[k] = v
		}
	}
	return nil
}

// beginGroup prepares the slopes of a group for the pass.
func (t *term) beginGroup() {
	if t.Slopes == nil {
		return
	}
	t.Slopes.compile()
	for _, s := range t.Slopes.Terms {
		s.begin()
	}
	n, l := len(t.Slopes.names), &t.learner.slopes
	l.varied, l.used, l.now = make([]bool, n), make([]bool, n), make([]float64, n)
}

// finishGroup sorts the levels and keeps the slopes that the rows can show. It returns an error if
// no level can show a slope.
func (t *term) finishGroup(l *termLearner, raw bool) error {
	t.sortLevels(l.parts)
	if err := t.measured(); err != nil {
		return err
	}
	if t.Slopes == nil {
		return nil
	}
	if slices.Max(t.Counts) == 1 {
		return fmt.Errorf("pgsvi: %s: column %s has %s in as many rows, so no level can show a "+
			"slope; use a group with several rows per level: %w", t.Text, csvQuote(t.by()),
			plural(len(t.Levels), "level"), pgsvi.ErrParam)
	}
	t.Slopes.Raw = raw
	for _, s := range t.Slopes.Terms {
		varied := false
		for k, imputed := range s.imputed() {
			if j := s.at + k; l.slopes.used[j] && !imputed {
				t.Kept = append(t.Kept, j)
				varied = varied || l.slopes.varied[j]
			}
		}
		if !varied {
			return fmt.Errorf("pgsvi: %s: %s does not vary within any level of %s, so it has no "+
				"slope there; remove it from the term: %w", t.Text, s.Text, t.by(), pgsvi.ErrParam)
		}
		if err := s.finish(raw); err != nil {
			return err
		}
	}
	return nil
}

// measured returns an error if the levels are different numbers in all rows and are not all whole, so
// that the column is a measurement and not a group.
func (t *term) measured() error {
	if len(t.cols) > 1 || len(t.Levels) < 2 || slices.Max(t.Counts) > 1 {
		return nil
	}
	whole := true
	for _, l := range t.Levels {
		v, err := strconv.ParseFloat(l, 64)
		if err != nil {
			return nil
		}
		whole = whole && v == math.Trunc(v)
	}
	if whole {
		return nil // numbers of rows
	}
	return fmt.Errorf("pgsvi: %s: column %s has a different number in each of %s, but a group needs "+
		"levels with several rows; use the column outside the group, or round it: %w", t.Text,
		csvQuote(t.by()), plural(len(t.Levels), "row"), pgsvi.ErrParam)
}

// imputed reports for each feature of a term whether it is the indicator of an imputed number. The
// slopes of groups have no such features: the slope of an imputed number applies to its mean.
func (t *term) imputed() []bool {
	if t.Kind != productTerm {
		all := make([]bool, t.n)
		all[0] = t.cols[0].Missing == missingImpute
		return all
	}
	all := []bool{false}
	for i, c := range t.cols {
		n := len(c.featuresOf(t.Full[i]))
		var longer []bool
		for _, before := range all {
			for k := range n {
				longer = append(longer, before || c.Missing == missingImpute && k == n-1)
			}
		}
		all = longer
	}
	return all
}

// A groupDesign describes where the features of a group are. Effect e of level l has the feature
// first + l·len(effects) + e.
type groupDesign struct {
	name, text  string   // such as a/b, and the term in a formula
	first       int      // first feature
	levels      []string // levels in training; a level for new values follows
	effects     []string // "(Intercept)" and the names of the slopes
	independent bool     // whether the effects of a level are uncorrelated
	// units has one row per effect in units of the table, as lme4 reports it, and one column per
	// effect in units of the features: the effects of a level are the product of the matrix and
	// its weights.
	units [][]float64
}

// groups returns the groups of a design, in the order of their features.
func (d *design) groups() (all []groupDesign) {
	for _, t := range d.Terms {
		if t.Kind != groupTerm {
			continue
		}
		all = append(all, groupDesign{name: t.by(), text: t.Text, first: t.at, levels: t.Levels,
			effects: t.effects(), independent: t.Independent, units: t.units()})
	}
	return all
}

// correlated returns the first term whose effects of a level are correlated, or "".
func (d *design) correlated() string {
	for _, t := range d.Terms {
		if t.Kind == groupTerm && !t.Independent && t.q > 1 {
			return t.Text
		}
	}
	return ""
}

// options returns the groups for package pgsvi.
func (d *design) options(noPrior bool) (all []pgsvi.Group) {
	for _, g := range d.groups() {
		all = append(all, pgsvi.Group{Name: g.name, First: g.first, Levels: len(g.levels) + 1,
			Effects: g.effects, Independent: g.independent, NoPrior: noPrior})
	}
	return all
}

// units returns groupDesign.units. A feature (x − shift)/scale with weight w is the slope w/scale
// and adds −w·shift/scale to the intercept.
func (t *term) units() [][]float64 {
	effects := t.effects()
	rows := make([][]float64, len(effects))
	for e := range effects {
		rows[e] = make([]float64, len(effects))
	}
	e := 0
	if !t.NoIntercept {
		rows[e][e] = 1
		e++
	}
	if t.Slopes == nil {
		return rows
	}
	for _, s := range t.Slopes.Terms {
		for k := range s.n {
			if _, kept := slices.BinarySearch(t.Kept, s.at+k); !kept {
				continue
			}
			shift, scale := s.unit(k)
			rows[e][e] = 1 / scale
			if !t.NoIntercept && shift != 0 {
				rows[0][e] = -shift / scale
			}
			e++
		}
	}
	return rows
}

// unit returns the shift and the scale of feature k of the slope of a group.
func (t *term) unit(k int) (shift, scale float64) {
	switch t.Kind {
	case polyTerm:
		return 0, t.polySD()
	}
	if k == 0 && len(t.cols) == 1 {
		shift = t.Shifts[0]
	}
	return shift, t.scale(k)
}

// checkGroup reports whether a group from a file is consistent.
func (t *term) checkGroup() bool {
	if len(t.Levels) == 0 || len(t.Levels) != len(t.Counts) ||
		t.Slopes == nil && (t.NoIntercept || len(t.Kept) > 0) {
		return false
	}
	for i, k := range t.Kept {
		if k < 0 || i > 0 && k <= t.Kept[i-1] {
			return false
		}
	}
	return t.Slopes == nil || !slices.ContainsFunc(t.Slopes.Terms, func(s *term) bool {
		return s == nil || s.Kind == groupTerm || s.Kind == smoothTerm || s.check() != nil
	})
}
