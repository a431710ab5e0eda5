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

// A design maps a row of a table to the features of a model by the terms of a formula. A Predictor
// saves it with the Encoder of the columns.
//
// Features are made of the values as they are in the table, like the columns of model.matrix in R,
// and then shifted and scaled. Scaling gives each coefficient the same prior. Shifts never change
// the functions that can be fitted: a number is centered only if the model has what centering adds.
type design struct {
	Formula string `json:"formula"`
	// Raw leaves numbers as they are.
	Raw   bool    `json:"raw,omitempty"`
	Terms []*term `json:"terms"`

	names     []string // one name per feature
	blocks    []string // one block per feature: "" for effects, otherwise a curve or a group
	intercept bool     // known while the model is made
}

// A term is what a term of a formula has learned.
type term struct {
	Kind    string   `json:"kind"`
	Columns []string `json:"columns"`
	Text    string   `json:"text"` // the term as it stands in a formula
	// Full says which columns of a product have a feature for each level, the reference among them.
	Full []bool `json:"full,omitempty"`
	// Shifts are subtracted from the numbers of a product, one for each column.
	Shifts []float64 `json:"shifts,omitempty"`
	// Scales divide the features of a product; nil if all are 1.
	Scales []float64 `json:"scales,omitempty"`
	// Means are subtracted from the features of a product or of a polynomial; nil if all are 0.
	Means []float64 `json:"means,omitempty"`
	// Degree, Middle and Half are of a polynomial in (x - Middle)/Half, and of powers of x if Half
	// is 0. Centers and Norms define the recurrence of its orthogonal polynomials.
	Degree  int       `json:"degree,omitempty"`
	Middle  float64   `json:"middle,omitempty"`
	Half    float64   `json:"half,omitempty"`
	Centers []float64 `json:"centers,omitempty"`
	Norms   []float64 `json:"norms,omitempty"`
	// Weight is the total weight of the rows that a polynomial has learned from.
	Weight float64 `json:"weight,omitempty"`
	// Shift and Scale standardize the logarithm, or the straight line of a curve.
	Shift float64 `json:"shift,omitempty"`
	Scale float64 `json:"scale,omitempty"`
	// Curve is that of a smooth term, and Line says that a straight line is a part of it.
	Curve *spline.Curve `json:"curve,omitempty"`
	Line  bool          `json:"line,omitempty"`
	// Levels are those of a group, and Counts their rows.
	Levels []string `json:"levels,omitempty"`
	Counts []int    `json:"counts,omitempty"`

	cols    []*column
	at, n   int            // the first feature, and how many
	level   map[string]int // group levels and their places
	learner *termLearner   // while it learns
}

// The kinds of terms.
const (
	productTerm = "product" // of the features of one or more columns
	smoothTerm  = "smooth"
	polyTerm    = "poly"
	logTerm     = "log"
	groupTerm   = "group"
)

// defaultBasis is the number of B-splines of a smooth curve.
const defaultBasis = 22

// newDesign returns the terms of a formula, which Resolve has written out, that have learned
// nothing yet.
func newDesign(f *formula.Formula, e *Encoder, raw bool) (*design, error) {
	d := &design{Formula: f.String(), Raw: raw, intercept: !f.NoIntercept}
	category := func(name string) bool { return e.column(name).Kind == kindCategory }
	number := func(name string) bool { return e.column(name).hasNumber() }
	all := newCodings(f, category, number)
	if err := all.check(); err != nil {
		return nil, err
	}
	constant := all.spans(nil)
	for _, t := range f.Terms {
		n := &term{Columns: t.Columns(), Text: t.String(), learner: &termLearner{
			constant: constant, intercept: !f.NoIntercept}}
		d.Terms = append(d.Terms, n)
		switch t := t.(type) {
		case formula.Col, formula.Interact:
			c := all.find(t.Columns())
			n.Kind, n.Full, n.learner.center = productTerm, c.full, c.center
		case formula.Smooth:
			line := slices.ContainsFunc(f.Terms, func(o formula.Term) bool {
				return o == formula.Term(formula.Col(t.Column))
			})
			n.Kind, n.Line = smoothTerm, !t.Periodic && !line
			n.Curve = &spline.Curve{K: t.K, Periodic: t.Periodic, Hi: t.Period}
		case formula.Poly:
			n.Kind, n.Degree = polyTerm, t.Degree
		case formula.Log:
			n.Kind = logTerm
		case formula.Group:
			if len(t.Slopes) > 0 {
				return nil,
					fmt.Errorf(
						"pgsvi: %v: slopes of groups are not there yet; (1 | %s) has an "+
							"intercept for each: %w",
						t, strings.Join(t.By, "/"), pgsvi.ErrParam)
			}
			d.Terms = d.Terms[:len(d.Terms)-1]
			for i := range t.By {
				d.addGroup(t.By[:i+1])
			}
		}
	}
	return d, d.bind(e)
}

// addGroup adds an effect of each group, unless there is one already.
func (d *design) addGroup(by []string) {
	g := &term{Kind: groupTerm, Columns: by, Text: formula.Group{By: by}.String(),
		learner: &termLearner{}}
	if !slices.ContainsFunc(d.Terms, func(t *term) bool { return t.Text == g.Text }) {
		d.Terms = append(d.Terms, g)
	}
}

// bind looks the columns up.
func (d *design) bind(e *Encoder) error {
	for _, t := range d.Terms {
		t.cols = nil
		for _, name := range t.Columns {
			c := e.column(name)
			if t.Kind == groupTerm {
				c = e.use(name, kindGroup)
			}
			if c == nil {
				return fmt.Errorf("pgsvi: a model whose encoder has no column %s: %w",
					csvQuote(name), pgsvi.ErrFile)
			}
			t.cols = append(t.cols, c)
		}
		if err := t.suits(); err != nil {
			return err
		}
	}
	return nil
}

// suits returns an error if a column cannot be what the term takes it for.
func (t *term) suits() error {
	for _, c := range t.cols {
		switch {
		case t.Kind == groupTerm:
		case t.Kind == productTerm && c.isFeature():
		case c.Kind == kindDate && (t.Kind == smoothTerm || t.Kind == polyTerm):
		case t.Kind != productTerm && c.Kind == kindNumber:
		default:
			return fmt.Errorf("pgsvi: %s: column %s is a %s, want a number: %w", t.Text,
				csvQuote(c.Name), c.Kind, pgsvi.ErrParam)
		}
	}
	return nil
}

// isFeature reports whether the column has features of its own.
func (c *column) isFeature() bool {
	return c.Kind == kindNumber || c.Kind == kindCategory || c.Kind == kindDate
}

// compile numbers the features of the terms, which have learned.
func (d *design) compile() {
	d.names, d.blocks = nil, nil
	for _, t := range d.Terms {
		t.at = len(d.names)
		block := ""
		if t.Kind == groupTerm {
			block = strings.Join(t.Columns, "/")
			t.level = make(map[string]int, len(t.Levels))
			for i, l := range t.Levels {
				t.level[l] = i
			}
		}
		names := t.names()
		t.n = len(names)
		d.names = append(d.names, names...)
		for i := range names {
			b := block
			if t.Kind == smoothTerm && i >= t.n-t.Curve.Cols() {
				b = t.Text
			}
			d.blocks = append(d.blocks, b)
		}
	}
}

// names returns those of the features of a term.
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
	case logTerm:
		names = append(names, t.Text)
	case groupTerm:
		by := strings.Join(t.Columns, "/")
		for _, l := range t.Levels {
			names = append(names, by+"="+l)
		}
		names = append(names, by+"=(new)")
	}
	return names
}

// featuresOf is features, for a category in full those of all levels.
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

// putOf is put of the value less shift, for a category in full with all levels. It returns its part
// of x.
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
	// What is no level as it is written: missing, new, true for 1. The features of the levels
	// before the reference are one place too far behind.
	note, err = c.put(own[1:], v, 0, 1)
	ref := c.level[c.Reference]
	copy(own[:ref], own[1:ref+1])
	own[ref] = 0
	if err == nil && slices.Max(own) == 0 {
		own[ref] = 1
	}
	return own, note, err
}

// entries are the features of a row that are not 0.
type entries struct {
	ind     []int
	val     []float64
	notes   []string
	scratch []float64 // features of one column
	product sparseRow // features of one term
	longer  sparseRow
	more    []float64
}

// sparseRow has the features of a product that are not 0, in ascending order.
type sparseRow struct {
	ind []int
	val []float64
}

func (p *sparseRow) reset() { p.ind, p.val = p.ind[:0], p.val[:0] }

func (p *sparseRow) put(j int, v float64) { p.ind, p.val = append(p.ind, j), append(p.val, v) }

func (r *entries) reset() { r.ind, r.val, r.notes = r.ind[:0], r.val[:0], r.notes[:0] }

// indices returns the places of the features; nil would be those of a dense row.
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

// row stores the features of a row in r. Its cells are in the order of the encoder's columns.
func (d *design) row(r *entries, cells []cell) error { return d.rowOf(r, cells, cells) }

// rowOf is row with other cells for the groups.
func (d *design) rowOf(r *entries, cells, groups []cell) error {
	r.reset()
	for _, t := range d.Terms {
		from := cells
		if t.Kind == groupTerm {
			from = groups
		}
		if err := t.put(r, from); err != nil {
			return err
		}
	}
	return nil
}

func (t *term) put(r *entries, cells []cell) error {
	switch t.Kind {
	case productTerm:
		return t.putProduct(r, cells)
	case groupTerm:
		l, missing := t.levelOf(cells)
		if missing != nil {
			return missing.absent()
		}
		i, ok := t.level[l]
		if !ok {
			i = len(t.Levels)
			r.note(fmt.Sprintf("%s=%q is new: its effect is as uncertain as its prior",
				strings.Join(t.Columns, "/"), l))
		}
		r.put(t.at+i, 1)
		return nil
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
		r.note(csvQuote(c.Name) + " is missing: the mean stands in")
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
	case logTerm:
		if !(x > 0) {
			return c.wrap(noLogarithm(x))
		}
		r.note(c.outside(x))
		r.put(j, (math.Log(x)-t.Shift)/t.Scale)
	}
	return nil
}

// noLogarithm is the error of a value that has no logarithm.
func noLogarithm(x float64) error {
	return fmt.Errorf("found %v, want a number above 0 for its logarithm: %w", x, pgsvi.ErrParam)
}

// outside notes the value of a term of a number, or of a date in years since the first one, that is
// outside the data of training.
func (c *column) outside(x float64) string {
	if c.Kind == kindDate && (x < c.Min || x > c.Max) {
		return csvQuote(c.Name) + " is outside the dates of training"
	} else if c.Kind == kindDate {
		return ""
	}
	return c.range_(x)
}

// absent is the error of a missing value that nothing stands in for.
func (c *column) absent() error {
	_, err := c.putMissing(nil, 0, 1)
	return c.wrap(err)
}

// powers stores the orthogonal polynomials of x in p, or powers if Half is 0.
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

// multiply leaves the products of the features of the columns in r.product: the values as they are
// in the table, less the shifts.
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

// levelOf returns the level of a group that a row is in, or a column without a value.
func (t *term) levelOf(cells []cell) (level string, missing *column) {
	for i, c := range t.cols {
		v := &cells[c.place]
		l := "(missing)"
		if !c.isGapCell(v) {
			l = c.text(v)
		} else if c.Missing != missingLevel {
			return "", c
		}
		if i > 0 {
			level += "/"
		}
		level += l
	}
	return level, nil
}
