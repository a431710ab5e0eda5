package data

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/spline"
	"gonum.org/v1/gonum/stat"
)

// A design says what the terms of a formula make of a row: the features of a model. It is saved as
// it is, beside the Encoder of the columns.
type design struct {
	Formula string `json:"formula"`
	// Raw says that numbers are not standardised.
	Raw   bool    `json:"raw,omitempty"`
	Terms []*term `json:"terms"`

	names  []string // of the features
	blocks []string // of the features: "" of effects, otherwise that of a curve or group
}

// A term is what a term of a formula has learned.
type term struct {
	Kind    string   `json:"kind"`
	Columns []string `json:"columns"`
	Text    string   `json:"text"` // the term as it stands in a formula
	// Full says which columns of a product have a feature for each level, the reference among them.
	Full []bool `json:"full,omitempty"`
	// Degree, Middle and Half are of a polynomial in (x - Middle)/Half.
	Degree int     `json:"degree,omitempty"`
	Middle float64 `json:"middle,omitempty"`
	Half   float64 `json:"half,omitempty"`
	// Shift and Scale standardise the logarithm, or the straight line beside a curve.
	Shift float64 `json:"shift,omitempty"`
	Scale float64 `json:"scale,omitempty"`
	// Curve is that of a smooth term, and Line says that a straight line is a part of it.
	Curve *spline.Curve `json:"curve,omitempty"`
	Line  bool          `json:"line,omitempty"`
	// Levels are those of a group, and Counts their rows.
	Levels []string `json:"levels,omitempty"`
	Counts []int    `json:"counts,omitempty"`

	cols  []*column
	at, n int            // the first feature, and how many
	level map[string]int // of a group
	x     []float64      // of values that the term learns from
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
const defaultBasis = 20

// newDesign returns the terms of a formula, which Resolve has written out, that have learned
// nothing yet.
func newDesign(f *formula.Formula, e *Encoder, raw bool) (*design, error) {
	d := &design{Formula: f.String(), Raw: raw}
	has := map[string]bool{}
	for _, t := range f.Terms {
		has[t.String()] = true
	}
	// a category without an intercept has a feature for each level, the first one
	coded := f.NoIntercept
	for _, t := range f.Terms {
		n := &term{Columns: t.Columns(), Text: t.String()}
		d.Terms = append(d.Terms, n)
		switch t := t.(type) {
		case formula.Col:
			n.Kind, n.Full = productTerm, []bool{coded && e.column(string(t)).Kind == kindCategory}
			coded = coded && !n.Full[0]
		case formula.Interact:
			n.Kind = productTerm
			for i := range t {
				rest := slices.Delete(slices.Clone(t), i, i+1)
				n.Full = append(n.Full, !hasEffect(has, rest))
			}
		case formula.Smooth:
			n.Kind, n.Line = smoothTerm, !t.Periodic && !has[formula.Col(t.Column).String()]
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
				by := t.By[:i+1]
				text := formula.Group{By: by}.String()
				d.Terms = append(d.Terms, &term{Kind: groupTerm, Columns: by, Text: text})
			}
		}
	}
	return d, d.bind(e)
}

// hasEffect says that the formula has the interaction of the columns, in whatever order.
func hasEffect(has map[string]bool, columns []string) bool {
	if len(columns) == 1 {
		return has[formula.Col(columns[0]).String()]
	}
	want := slices.Sorted(slices.Values(columns))
	for text := range has {
		f, err := formula.Parse("y ~ " + text)
		if err != nil || len(f.Terms) != 1 {
			continue
		}
		if i, ok := f.Terms[0].(formula.Interact); ok &&
			slices.Equal(slices.Sorted(slices.Values(i)), want) {
			return true
		}
	}
	return false
}

// bind looks the columns up.
func (d *design) bind(e *Encoder) error {
	for _, t := range d.Terms {
		t.cols = nil
		for _, name := range t.Columns {
			c := e.column(name)
			if c == nil {
				return fmt.Errorf("pgsvi: a model whose encoder has no column %s: %w",
					csvQuote(name), pgsvi.ErrFile)
			}
			t.cols = append(t.cols, c)
		}
		c := t.cols[0]
		switch {
		case t.Kind == groupTerm || t.Kind == productTerm:
		case c.Kind == kindDate && t.Kind == smoothTerm:
		case c.Kind != kindNumber:
			return fmt.Errorf("pgsvi: %s: column %s is a %s, want a number: %w", t.Text,
				csvQuote(c.Name), c.Kind, pgsvi.ErrParam)
		}
	}
	return nil
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

// putOf is put, for a category in full with all levels. It returns its part of x.
func (c *column) putOf(x []float64, v *cell, full bool) (own []float64, note string, err error) {
	n := c.n
	if full && c.Kind == kindCategory {
		n++
	}
	own = x[:n]
	clear(own)
	if n == c.n {
		note, err = c.put(own, v)
		return own, note, err
	}
	if i, ok := c.level[c.text(v)]; ok && !c.isGapCell(v) {
		own[i] = 1
		return own, "", nil
	}
	// What is no level as it is written: missing, new, true for 1. The features of the levels
	// before the reference are one place too far behind.
	note, err = c.put(own[1:], v)
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
	scratch [][]float64 // of each column of a product
	own     [][]float64 // the parts of scratch in use
	more    []float64
}

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
func (d *design) row(r *entries, cells []cell) error {
	r.reset()
	for _, t := range d.Terms {
		if err := t.put(r, cells); err != nil {
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
		r.note(c.Name + " is missing: the mean stands in")
		x = c.Mean
	}
	if c.Missing == missingImpute {
		j++
	}
	switch t.Kind {
	case smoothTerm:
		if !t.Curve.Inside(x) {
			r.note(fmt.Sprintf("%s=%v is outside %v to %v, where there were data", c.Name, x,
				t.Curve.Lo, t.Curve.Hi))
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
		r.more = slices.Grow(r.more[:0], t.Degree)[:t.Degree]
		for k, v := range t.powers(r.more, x) {
			r.put(j+k, v)
		}
	case logTerm:
		if !(x > 0) {
			return c.wrap(
				fmt.Errorf("found %v, want a number above 0, of which there is a logarithm: %w", x,
					pgsvi.ErrParam))
		}
		r.put(j, (math.Log(x)-t.Shift)/t.Scale)
	}
	return nil
}

// absent is the error of a missing value that nothing stands in for.
func (c *column) absent() error {
	_, err := c.putMissing(nil)
	return c.wrap(err)
}

// powers stores Legendre polynomials of x in p, or powers where numbers are not standardised.
func (t *term) powers(p []float64, x float64) []float64 {
	if t.Half == 0 {
		v := 1.
		for k := range p {
			v *= x
			p[k] = v
		}
		return p
	}
	u := (x - t.Middle) / t.Half
	before, now := 1., u
	for k := range p {
		n := float64(k + 1)
		p[k] = math.Sqrt(2*n+1) * now // of variance 1 where x is uniform
		before, now = now, ((2*n+1)*u*now-n*before)/(n+1)
	}
	return p
}

// putProduct stores the products of the features of the columns.
func (t *term) putProduct(r *entries, cells []cell) error {
	own := r.own[:0]
	for i, c := range t.cols {
		if len(r.scratch) <= i {
			r.scratch = append(r.scratch, nil)
		}
		r.scratch[i] = slices.Grow(r.scratch[i][:0], c.n+1)[:c.n+1]
		x, note, err := c.putOf(r.scratch[i], &cells[c.place], t.Full[i])
		if err != nil {
			return c.wrap(err)
		}
		r.note(note)
		own = append(own, x)
	}
	r.own = own
	if len(own) == 1 {
		for k, v := range own[0] {
			r.put(t.at+k, v)
		}
		return nil
	}
	product := own[0]
	for _, x := range own[1:] {
		longer := make([]float64, 0, len(product)*len(x))
		for _, p := range product {
			for _, v := range x {
				longer = append(longer, p*v)
			}
		}
		product = longer
	}
	for k, v := range product {
		r.put(t.at+k, v)
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

// see learns from a row.
func (t *term) see(cells []cell) error {
	switch t.Kind {
	case groupTerm:
		l, missing := t.levelOf(cells)
		if missing != nil {
			return missing.absent()
		}
		if t.level == nil {
			t.level = map[string]int{}
		}
		i, ok := t.level[l]
		if !ok {
			i = len(t.Levels)
			t.level[l] = i
			t.Levels, t.Counts = append(t.Levels, strings.Clone(l)), append(t.Counts, 0)
		}
		t.Counts[i]++
	case smoothTerm, logTerm:
		c := t.cols[0]
		x, ok, err := c.number(&cells[c.place])
		switch {
		case err != nil:
			return c.wrap(err)
		case !ok:
			return nil
		case t.Kind == logTerm && !(x > 0):
			return c.wrap(
				fmt.Errorf("found %v, want a number above 0, of which there is a logarithm: %w", x,
					pgsvi.ErrParam))
		case t.Kind == logTerm:
			x = math.Log(x)
		}
		t.x = append(t.x, x)
	}
	return nil
}

// learns says that a term has to see all rows before it has features.
func (t *term) learns() bool { return t.Kind != productTerm && t.Kind != polyTerm }

// finish learns from the rows that were seen.
func (t *term) finish(raw bool) error {
	c := t.cols[0]
	switch t.Kind {
	case polyTerm:
		if !raw {
			t.Middle, t.Half = c.Min/2+c.Max/2, c.Max/2-c.Min/2
		}
	case smoothTerm:
		k := t.Curve.K
		if k == 0 {
			k = defaultBasis
		}
		period := t.Curve.Hi
		if t.Curve.Periodic && period == 0 {
			period = spline.Period(t.x)
		}
		curve, err := spline.New(t.x, nil, k, period)
		if err != nil {
			return fmt.Errorf("pgsvi: %s: %w", t.Text, err)
		}
		t.Curve = curve
	case groupTerm:
		t.sortLevels()
	}
	if t.Kind == smoothTerm || t.Kind == logTerm {
		t.Shift, t.Scale = 0, 1
		if !raw {
			t.Shift, t.Scale = stat.PopMeanStdDev(t.x, nil)
			t.Scale = cmp.Or(t.Scale, 1)
		}
		t.x = nil
	}
	return nil
}

// sortLevels puts the levels of a group in order.
func (t *term) sortLevels() {
	counts := make(map[string]int, len(t.Levels))
	for i, l := range t.Levels {
		counts[l] = t.Counts[i]
	}
	t.Levels = sortLevels(t.Levels)
	for i, l := range t.Levels {
		t.Counts[i] = counts[l]
	}
}

// check returns an error if a term that was read makes no sense.
func (t *term) check() error {
	ok := t != nil && len(t.Columns) > 0
	if ok {
		switch t.Kind {
		case productTerm:
			ok = len(t.Full) == len(t.Columns)
		case smoothTerm:
			ok = t.Curve != nil && t.Curve.Check() == nil && t.Scale > 0
		case polyTerm:
			ok = t.Degree >= 1 && t.Degree <= 9 && t.Half >= 0
		case logTerm:
			ok = t.Scale > 0
		case groupTerm:
			ok = len(t.Levels) > 0 && len(t.Levels) == len(t.Counts)
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("a term of a model that makes no sense: %w", pgsvi.ErrFile)
	}
	return nil
}
