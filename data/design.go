package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/spline"
)

// A design maps a row of a table to the features of a model, following the terms of a formula. A
// Predictor saves the design together with the Encoder of the columns.
//
// Features are computed from the values in the table, like the columns of model.matrix in R, and
// then shifted and scaled. Scaling gives each coefficient the same prior. Shifts never change the
// functions that the model can fit, because a number is centered only if the model has the terms
// that centering adds.
type design struct {
	Formula string `json:"formula"`
	// Raw turns off the scaling of numbers.
	Raw   bool    `json:"raw,omitempty"`
	Terms []*term `json:"terms"`
	// Precision is the mean precision of the training rows, or 0 without precisions.
	Precision float64 `json:"precision,omitempty"`

	names     []string // one name per feature
	blocks    []string // one block per feature: "" for effects, otherwise a curve or a group
	intercept bool     // known only while the model is made
}

// A term holds what a term of a formula has learned.
type term struct {
	Kind    string   `json:"kind"`
	Columns []string `json:"columns"`
	Text    string   `json:"text"` // text of the term in a formula
	// Full marks the columns of a product that have a feature for each level, including the
	// reference.
	Full []bool `json:"full,omitempty"`
	// Shifts has one number per column of a product, which is subtracted from the column.
	Shifts []float64 `json:"shifts,omitempty"`
	// Scales divide the features of a product; nil means 1.
	Scales []float64 `json:"scales,omitempty"`
	// Means are subtracted from the features of a product or a polynomial; nil means 0.
	Means []float64 `json:"means,omitempty"`
	// Degree, Middle and Half define a polynomial in (x - Middle)/Half, or in x if Half is 0.
	// Centers and Norms define the recurrence of its orthogonal polynomials.
	Degree  int       `json:"degree,omitempty"`
	Middle  float64   `json:"middle,omitempty"`
	Half    float64   `json:"half,omitempty"`
	Centers []float64 `json:"centers,omitempty"`
	Norms   []float64 `json:"norms,omitempty"`
	// Weight is the total weight of the rows that a polynomial was learned from.
	Weight float64 `json:"weight,omitempty"`
	// Shift and Scale standardize the straight line of a curve.
	Shift float64 `json:"shift,omitempty"`
	Scale float64 `json:"scale,omitempty"`
	// Curve is the curve of a smooth term. Line is true if the term includes a straight line.
	Curve *spline.Curve `json:"curve,omitempty"`
	Line  bool          `json:"line,omitempty"`
	// Levels holds the levels of a group, and Counts their numbers of rows.
	Levels []string `json:"levels,omitempty"`
	Counts []int    `json:"counts,omitempty"`
	// Joint writes a group of several columns as a:b instead of a/b.
	Joint bool `json:"joint,omitempty"`
	// NoIntercept leaves out the intercept of each level of a group. Independent makes the effects
	// of a level independent.
	NoIntercept bool `json:"no_intercept,omitempty"`
	Independent bool `json:"independent,omitempty"`
	// Slopes holds the terms whose effects differ between levels, and Kept their features that the
	// group has, in ascending order.
	Slopes *design `json:"slopes,omitempty"`
	Kept   []int   `json:"kept,omitempty"`

	cols    []*column
	at, n   int               // first feature, and number of features
	level   map[string]int    // indices of group levels
	whole   map[string]string // group levels by wholeNumber; "" if two levels have the same
	q       int               // number of effects of each level of a group
	learner *termLearner      // nil after learning
}

// The kinds of terms.
const (
	productTerm = "product" // product of the features of one or more columns
	smoothTerm  = "smooth"
	polyTerm    = "poly"
	groupTerm   = "group"
)

// defaultBasis is the number of B-splines of a smooth curve.
const defaultBasis = 22

// newDesign returns the terms of a formula, as expanded by Resolve, before they learn.
func newDesign(f *formula.Formula, e *Encoder, raw bool) (*design, error) {
	d := &design{Formula: f.String(), Raw: raw, intercept: !f.NoIntercept}
	category := func(name string) bool { return e.column(name).Kind == kindCategory }
	number := func(name string) bool { return e.column(name).hasNumber() }
	all := newCodings(f, category, number)
	if err := all.check(); err != nil {
		return nil, err
	}
	groups := &groupCoder{d, e, category, number}
	for _, t := range f.Terms {
		if g, ok := t.(formula.Group); ok {
			if err := groups.addGroups(g); err != nil {
				return nil, err
			}
			continue
		}
		d.Terms = append(d.Terms, all.term(t))
	}
	return d, d.bind(e)
}

// term returns a term of the formula, before it learns.
func (all *codings) term(t formula.Term) *term {
	n := &term{Columns: t.Columns(), Text: t.String(), learner: &termLearner{
		constant: all.spans(nil), intercept: !all.noIntercept}}
	switch t := t.(type) {
	case formula.Col, formula.Interact:
		c := all.find(t.Columns())
		n.Kind, n.Full, n.learner.center = productTerm, c.full, c.center
	case formula.Smooth:
		n.Kind, n.Line = smoothTerm, !t.Periodic && all.find(t.Columns()) == nil
		n.Curve = &spline.Curve{K: t.K, Periodic: t.Periodic, Hi: t.Period}
	case formula.Poly:
		n.Kind, n.Degree = polyTerm, t.Degree
	}
	return n
}

// bind finds the columns of the terms.
func (d *design) bind(e *Encoder) error {
	for _, t := range d.Terms {
		t.cols = nil
		for _, name := range t.Columns {
			c := e.column(name)
			if t.Kind == groupTerm {
				c = e.use(name, kindGroup)
			}
			if c == nil {
				return fmt.Errorf("pgsvi: the encoder of the model has no column %s: %w",
					csvQuote(name), pgsvi.ErrFile)
			}
			t.cols = append(t.cols, c)
		}
		if err := t.suits(); err != nil {
			return err
		}
		if t.Slopes != nil {
			if err := t.Slopes.bind(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// suits returns an error if a column has the wrong kind for the term.
func (t *term) suits() error {
	for _, c := range t.cols {
		switch {
		case t.Kind == groupTerm:
		case t.Kind == productTerm && c.isFeature():
		case c.Kind == kindDate && (t.Kind == smoothTerm || t.Kind == polyTerm):
		case t.Kind != productTerm && c.Kind == kindNumber:
		default:
			return fmt.Errorf("pgsvi: %s: column %s is a %s instead of a number: %w", t.Text,
				csvQuote(c.Name), c.Kind, pgsvi.ErrParam)
		}
	}
	return nil
}

// isFeature reports whether the column has features of its own.
func (c *column) isFeature() bool {
	return c.Kind == kindNumber || c.Kind == kindCategory || c.Kind == kindDate
}

// compile numbers the features of the terms, after the terms have learned.
func (d *design) compile() {
	d.names, d.blocks = nil, nil
	for _, t := range d.Terms {
		t.at = len(d.names)
		var effects []string
		if t.Kind == groupTerm {
			t.compileGroup()
			effects = t.effects()
		}
		names := t.names()
		t.n = len(names)
		d.names = append(d.names, names...)
		for i := range names {
			block := ""
			switch {
			case t.Kind == groupTerm:
				block = t.effectBlock(effects[i%t.q])
			case t.Kind == smoothTerm && i >= t.n-t.Curve.Cols():
				block = t.Text
			}
			d.blocks = append(d.blocks, block)
		}
	}
}

// names returns the names of the features of a term.
func (t *term) names() (names []string) {
	c := t.cols[0]
	impute := t.Kind != productTerm && t.Kind != groupTerm && c.Missing == missingImpute
	if impute {
		names = append(names, c.Name+" missing")
	}
	switch t.Kind {
	case productTerm:
		names = []string{""}
		for i, c := range t.cols {
			var longer []string
			for _, n := range names {
				for _, own := range c.featuresOf(t.Full[i]) {
					longer = append(longer, strings.TrimPrefix(n+":"+own, ":"))
				}
			}
			names = longer
		}
	case smoothTerm:
		if t.Line {
			names = append(names, t.Text+".line")
		}
		for k := range t.Curve.Cols() {
			names = append(names, t.Text+"."+strconv.Itoa(k+1))
		}
	case polyTerm:
		for k := range t.Degree {
			names = append(names, t.Text+"."+strconv.Itoa(k+1))
		}
	case groupTerm:
		names = t.groupNames()
	}
	return names
}

// featuresOf is like features, but includes the reference level of a category if full is true.
func (c *column) featuresOf(full bool) []string {
	names := c.features()
	if !full || c.Kind != kindCategory {
		return names
	}
	var all []string
	for _, l := range c.Levels {
		all = append(all, c.Name+"="+l)
	}
	return append(all, names[len(c.Levels)-1:]...)
}

// putOf is like put for the value minus shift, but includes the reference level of a category if
// full is true. It returns the part of x that it wrote.
func (c *column) putOf(x []float64, v *cell, full bool, shift float64) (
	own []float64, note string, err error) {
	n := c.n
	if full && c.Kind == kindCategory {
		n++
	}
	own = x[:n]
	clear(own)
	if n == c.n {
		note, err = c.put(own, v, shift, 1)
		return own, note, err
	}
	if i, ok := c.level[c.text(v)]; ok && !c.isGapCell(v) {
		own[i] = 1
		return own, "", nil
	}
	// The value is not a level as it is written: it is missing, new, or true for 1. put leaves out
	// the reference, so move the features of the levels before it to the front by one place.
	note, err = c.put(own[1:], v, 0, 1)
	ref := c.level[c.Reference]
	copy(own[:ref], own[1:ref+1])
	own[ref] = 0
	if err == nil && slices.Max(own) == 0 {
		own[ref] = 1
	}
	return own, note, err
}

// entries holds the nonzero features of a row.
type entries struct {
	ind     []int
	val     []float64
	notes   []string
	scratch []float64 // features of one column
	product sparseRow // features of one term
	longer  sparseRow
	more    []float64
}

// A sparseRow holds the nonzero features of a product in ascending order.
type sparseRow struct {
	ind []int
	val []float64
}

func (p *sparseRow) reset() { p.ind, p.val = p.ind[:0], p.val[:0] }

func (p *sparseRow) put(j int, v float64) { p.ind, p.val = append(p.ind, j), append(p.val, v) }

func (r *entries) reset() { r.ind, r.val, r.notes = r.ind[:0], r.val[:0], r.notes[:0] }

// indices returns the indices of the features. It never returns nil, which would mean a dense row.
func (r *entries) indices() []int {
	if r.ind == nil {
		return []int{}
	}
	return r.ind
}

func (r *entries) put(j int, v float64) {
	if v != 0 {
		r.ind, r.val = append(r.ind, j), append(r.val, v)
	}
}

func (r *entries) note(n string) {
	if n != "" && !slices.Contains(r.notes, n) {
		r.notes = append(r.notes, n)
	}
}

// row stores the features of a row in r. The cells are in the order of the columns of the encoder.
func (d *design) row(r *entries, cells []cell) error { return d.rowOf(r, cells, cells) }

// rowOf is like row, with separate cells for the levels of the groups.
func (d *design) rowOf(r *entries, cells, groups []cell) error {
	r.reset()
	for _, t := range d.Terms {
		var err error
		if t.Kind == groupTerm {
			err = t.putGroup(r, cells, groups)
		} else {
			err = t.put(r, cells)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put adds the features of a term other than a group.
func (t *term) put(r *entries, cells []cell) error {
	if t.Kind == productTerm {
		return t.putProduct(r, cells)
	}
	c := t.cols[0]
	x, ok, err := c.number(&cells[c.place])
	j := t.at
	switch {
	case err != nil:
		return c.wrap(err)
	case !ok && c.Missing != missingImpute:
		return c.absent()
	case !ok:
		r.put(j, 1)
		r.note(csvQuote(c.Name) + " is missing and replaced by the mean")
		x = c.Mean
	}
	if c.Missing == missingImpute {
		j++
	}
	switch t.Kind {
	case smoothTerm:
		if !t.Curve.Periodic {
			r.note(c.outside(x))
		}
		if t.Line {
			r.put(j, (x-t.Shift)/t.Scale)
			j++
		}
		r.more = slices.Grow(r.more[:0], t.Curve.Cols())[:t.Curve.Cols()]
		t.Curve.Put(r.more, x)
		for k, v := range r.more {
			r.put(j+k, v)
		}
	case polyTerm:
		r.note(c.outside(x))
		r.more = slices.Grow(r.more[:0], t.Degree)[:t.Degree]
		for k, v := range t.powers(r.more, x) {
			r.put(j+k, v)
		}
	}
	return nil
}

// outside returns a note if the value of a number, or of a date in years since the first date, is
// outside the range of the training data.
func (c *column) outside(x float64) string {
	if c.Kind == kindDate && (x < c.Min || x > c.Max) {
		return csvQuote(c.Name) + " is outside the training dates"
	} else if c.Kind == kindDate {
		return ""
	}
	return c.range_(x)
}

// absent returns the error of a missing value that is not imputed.
func (c *column) absent() error {
	_, err := c.putMissing(nil, 0, 1)
	return c.wrap(err)
}

// powers stores the orthogonal polynomials of x in p, or the powers of x if Half is 0.
func (t *term) powers(p []float64, x float64) []float64 {
	if t.Half == 0 {
		v := 1.
		for k := range p {
			v *= x
			if p[k] = v; t.Means != nil {
				p[k] -= t.Means[k]
			}
		}
		return p
	}
	u := (x - t.Middle) / t.Half
	before, now := 0., 1.
	for k := range p {
		next := (u - t.Centers[k]) * now
		if k > 0 {
			next -= t.Norms[k] / t.Norms[k-1] * before
		}
		before, now = now, next
		p[k] = now / math.Sqrt(t.Norms[k+1])
	}
	return p
}

// putProduct stores the products of the features of the columns.
func (t *term) putProduct(r *entries, cells []cell) error {
	if err := t.multiply(r, cells); err != nil {
		return err
	}
	p := &r.product
	if t.Means == nil {
		for i, k := range p.ind {
			r.put(t.at+k, p.val[i]/t.scale(k))
		}
		return nil
	}
	i := 0
	for k, m := range t.Means {
		v := -m
		if i < len(p.ind) && p.ind[i] == k {
			v += p.val[i]
			i++
		}
		r.put(t.at+k, v/t.scale(k))
	}
	return nil
}

// multiply stores the products of the features of the columns, computed from the values in the
// table minus the shifts, in r.product.
func (t *term) multiply(r *entries, cells []cell) error {
	r.product.reset()
	r.product.put(0, 1)
	for i, c := range t.cols {
		r.scratch = slices.Grow(r.scratch[:0], c.n+1)[:c.n+1]
		own, note, err := c.putOf(r.scratch, &cells[c.place], t.Full[i], t.Shifts[i])
		if err != nil {
			return c.wrap(err)
		}
		r.note(note)
		r.longer.reset()
		for j, at := range r.product.ind {
			for k, v := range own {
				if v != 0 {
					r.longer.put(at*len(own)+k, r.product.val[j]*v)
				}
			}
		}
		r.product, r.longer = r.longer, r.product
	}
	return nil
}

// levelOf returns the level of the group of a row, or a column whose value is missing. A part that
// contains the sign between parts is quoted, so that different parts are different levels. A level
// that training has not seen may be a known whole number that is written differently.
func (t *term) levelOf(cells []cell) (level string, missing *column) {
	for i, c := range t.cols {
		l, ok := c.groupLevel(&cells[c.place])
		if !ok {
			return "", c
		}
		if len(t.cols) > 1 && strings.Contains(l, t.sign()) {
			l = csvQuote(l)
		}
		if i > 0 {
			level += t.sign()
		}
		level += l
	}
	if _, known := t.level[level]; !known && len(t.cols) == 1 && t.whole[wholeNumber(level)] != "" {
		level = t.whole[wholeNumber(level)]
	}
	return level, nil
}

// groupLevel returns the level in a cell of a group. ok is false if the value is missing and such
// rows have no level.
func (c *column) groupLevel(v *cell) (level string, ok bool) {
	if !c.isGapCell(v) {
		return c.text(v), true
	}
	return "(missing)", c.Missing == missingLevel
}
