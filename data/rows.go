package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// Data holds the rows of a table as numbers.
type Data struct {
	// X has one row for each kept row and one column for each of Names. It is a *pgsvi.Sparse if at
	// most a quarter of the values are not 0 in the table that the Encoder was learned from, or if
	// a Model has many columns that are mostly 0, such as groups. Otherwise it is a *mat.Dense.
	X mat.Matrix
	// Y holds the outcomes: numbers, −1 and +1 for two labels, or class numbers from 0; see Labels.
	// If a column of Event is present, Y holds durations, negated if censored. It is nil if the
	// table has no outcome.
	Y []float64
	// Labels holds the names of the values of Y: the negative and the positive label, or the
	// classes. It is nil for numbers.
	Labels []string
	// Offset holds the sum of the offsets and the logarithms of the exposures, or nil without any.
	Offset []float64
	// Weights holds the weights of the rows, or nil without weights.
	Weights []float64
	// Precision holds the precisions of the rows, or nil without precisions. The variance of Gaussian
	// noise in a row is in inverse proportion to its precision.
	Precision []float64
	// Trials holds the numbers of trials, or nil without trials.
	Trials []float64
	// Names holds the column names of X: "age", "color=red", "age missing".
	Names []string
	// Groups holds the groups of the rows for each column of Group.
	Groups []Groups
	// Kept holds the number of each row in the file, from 0, not counting the line of names and
	// blank lines. Rows with a missing value in a column with Drop are not kept.
	Kept []int
}

// Groups assigns rows to groups.
type Groups struct {
	Column string
	Levels []string
	Index  []int // group of each row in Levels; -1 for a group that training has not seen
}

// missingNames returns the error about columns that a table lacks.
func (e *Encoder) missingNames(gone, there []string) error {
	what := "column "
	if len(gone) > 1 {
		what = "columns "
	}
	free := slices.DeleteFunc(slices.Clone(there), func(c string) bool {
		_, used := e.place[c]
		return used
	})
	return sentinel.Wrap(pgsvi.ErrShape,
		"pgsvi: the table has no %s%s%s", what, strings.Join(quoteAll(gone, fewNamed), ", "),
		near(gone[0], free, there))
}

// each calls f for every row of a table with its cells in the order of state.Columns. It finds
// columns by name and returns an error if a needed column is missing.
func (e *Encoder) each(t *Table, need func(*column) bool, f func(rec *record) error) error {
	return e.records(t, need, func(rec *record) error {
		if rec.fault != nil {
			return t.named(rec.fault)
		}
		return f(rec)
	})
}

// records is like each, but passes records with a fault to f.
func (e *Encoder) records(t *Table, need func(*column) bool, f func(rec *record) error) error {
	m := &arranger{e: e, need: need}
	if err := m.match(t.Columns()); err != nil {
		return t.named(err)
	}
	return t.scan(func(rec *record) error { return f(m.arrange(rec)) })
}

// An arranger puts the cells of records in the order of state.Columns.
type arranger struct {
	e     *Encoder
	need  func(*column) bool
	from  []int // place of each column in a record, or -1
	width int   // number of columns matched
	out   record
}

// match finds the columns by name.
func (m *arranger) match(names []string) error {
	columns := m.e.state.Columns
	m.from, m.width = make([]int, len(columns)), len(names)
	m.out.cells = make([]cell, len(columns))
	for j := range m.from {
		m.from[j] = -1
	}
	for k, name := range names {
		if j, ok := m.e.place[name]; ok {
			m.from[j] = k
		}
	}
	for j, c := range columns {
		if c.Of != "" {
			m.from[j] = m.from[m.e.place[c.Of]]
		}
	}
	var gone []string
	for _, c := range m.e.uses {
		name := cmp.Or(c.Of, c.Name)
		if m.from[c.place] < 0 && !c.Computed && m.need(c) && !slices.Contains(gone, name) {
			gone = append(gone, name)
		}
	}
	if gone != nil {
		return m.e.missingNames(gone, names)
	}
	return nil
}

func (m *arranger) arrange(rec *record) *record {
	m.out.row, m.out.line, m.out.fault = rec.row, rec.line, rec.fault
	for j, k := range m.from {
		if k < 0 || k >= len(rec.cells) {
			m.out.cells[j] = cell{kind: absentCell}
		} else {
			m.out.cells[j] = rec.cells[k]
		}
	}
	m.e.fillComputed(m.out.cells)
	return &m.out
}

// drops reports whether training leaves out a row because of a missing value. outcome reports
// whether the table has the outcome.
func (e *Encoder) drops(cells []cell, outcome bool) bool {
	for _, c := range e.uses {
		if c.Missing == missingDrop && (c.Kind != kindOutcome || outcome) &&
			c.isGapCell(&cells[c.place]) {
			return true
		}
	}
	return false
}

// errStop ends a scan.
var errStop = errors.New("stop")

// yields returns a function that encodes records and passes them to a sequence.
func (e *Encoder) yields(name string, yield func(*Encoded, error) bool) func(rec *record) error {
	return func(rec *record) error {
		r := &Encoded{Row: rec.row, Line: rec.line}
		err := e.row(r, rec.cells)
		if err != nil {
			r, err = nil, named(name, fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
		}
		if !yield(r, err) {
			return errStop
		}
		return nil
	}
}

// Rows encodes the rows of a table to predict from, in order. Each element is an Encoded or the
// error of a row. An error of a row does not end the sequence, but an error of reading does.
// Columns are found by name, in any order, and the outcome may be missing. The caller owns each
// Encoded. The errors of rows are the errors of Row, with the line. If a column is missing, the
// sequence ends with an error that wraps ErrShape.
func (e *Encoder) Rows(t *Table) iter.Seq2[*Encoded, error] {
	return func(yield func(*Encoded, error) bool) {
		if err := e.each(t, (*column).needed, e.yields(t.Name, yield)); err != nil &&
			err != errStop {
			yield(nil, err)
		}
	}
}

// Stream is like Rows for a reader that can be read only once, such as a pipe. It uses constant
// memory. It uses the decimal signs of the table that the Encoder was learned from. The sequence
// can be used only once.
func (e *Encoder) Stream(r io.Reader, name string) iter.Seq2[*Encoded, error] {
	return func(yield func(*Encoded, error) bool) {
		if err := e.stream(r, e.yields(name, yield)); err != nil && err != errStop {
			yield(nil, named(name, err))
		}
	}
}

func (e *Encoder) stream(r io.Reader, f func(rec *record) error) error {
	format := e.newFormat()
	if e.state.Format.Encoding == Windows1252 {
		format.Encoding = Windows1252
	}
	s, err := newScanner(r, format)
	if err != nil {
		return settled(err)
	}
	m := &arranger{e: e, need: (*column).needed, width: -1}
	if s.format.JSON {
		m.need = func(*column) bool { return false } // each row has its own keys
	}
	for {
		rec, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err == nil && m.width != len(s.names) {
			err = m.match(s.names)
		}
		if err != nil {
			return settled(err)
		}
		if err := f(m.arrange(rec)); err != nil {
			return err
		}
	}
}

// Data encodes the table that the Encoder was learned from, or any other table. It finds columns by
// name, in any order. If the table has no outcome, Data.Y is nil. Rows with a missing value in a
// column with Drop are left out; see Data.Kept. All slices are new.
//
// The errors name the line and the column. They wrap ErrShape if a column is missing, ErrParam if a
// level is unknown, ErrNotFinite if a value is not a number or is missing although no value was
// missing in training, ErrLabel if an outcome is unknown, ErrEmpty if no row is left, and ErrMemory
// if the rows need more memory than is available.
func (e *Encoder) Data(t *Table) (*Data, error) {
	b := &dataBuilder{e: e, d: &Data{Names: e.Features()}}
	b.budget = memory.NewBudget("the encoded table", textTooLarge)
	if e.state.Sparse {
		b.sparse = pgsvi.NewSparse(len(e.names))
	}
	return e.gather(t, b)
}

// gather adds the rows of a table to b.
func (e *Encoder) gather(t *Table, b *dataBuilder) (*Data, error) {
	b.begin(t)
	if b.y != nil && b.event == nil && e.event != nil {
		return nil, t.named(e.missingNames([]string{e.event.Name}, t.Columns()))
	}
	err := e.each(t, (*column).neededByModel, func(rec *record) error {
		if e.drops(rec.cells, b.y != nil) {
			return nil
		}
		if err := b.add(rec); err != nil {
			return t.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
		}
		return nil
	})
	if err == nil && len(b.d.Kept) == 0 {
		err = t.named(sentinel.Wrap(pgsvi.ErrEmpty,
			"pgsvi: every row has a missing value in a column with Drop, so no row is left"))
	}
	if err != nil {
		return nil, err
	}
	b.d.X = b.matrix()
	return b.d, nil
}

// A dataBuilder collects the rows of Data.
type dataBuilder struct {
	e       *Encoder
	d       *Data
	y       *column
	event   *column
	offset  bool
	others  []func(rec *record) error // for columns that are not features
	row     Encoded
	dense   []float64
	sparse  *pgsvi.Sparse
	design  *design // nil if the columns themselves are the features
	entries entries
	budget  *memory.Budget
}

// begin finds the columns of the table that are not features.
func (b *dataBuilder) begin(t *Table) {
	for _, c := range b.e.uses {
		if _, there := t.place[c.Name]; !there {
			continue
		}
		j := c.place
		switch c.Kind {
		case kindOutcome:
			b.y, b.d.Labels = c, slices.Clone(c.Levels)
			b.gather(j, c, &b.d.Y, c.outcome)
		case kindWeight:
			b.gather(j, c, &b.d.Weights, c.scale)
		case kindPrecision:
			b.gather(j, c, &b.d.Precision, c.scale)
		case kindTrials:
			b.gather(j, c, &b.d.Trials, c.scale)
		case kindEvent:
			b.event = c
		case kindExposure, kindOffset:
			b.offset = true
		case kindGroup:
			at := len(b.d.Groups)
			b.d.Groups = append(b.d.Groups, Groups{Column: c.Name, Levels: slices.Clone(c.Levels)})
			b.others = append(b.others, func(rec *record) error {
				i, err := c.index(&rec.cells[j])
				if err != nil {
					return c.wrap(err)
				}
				b.d.Groups[at].Index = append(b.d.Groups[at].Index, i)
				return nil
			})
		}
	}
}

// gather adds a reader that appends a number per row to a slice.
func (b *dataBuilder) gather(j int, c *column, to *[]float64, value func(*cell) (float64, error)) {
	b.others = append(b.others, func(rec *record) error {
		v, err := value(&rec.cells[j])
		if err != nil {
			return c.wrap(err)
		}
		*to = append(*to, v)
		return nil
	})
}

func (b *dataBuilder) add(rec *record) error {
	d := b.d
	if err := b.encode(rec.cells); err != nil {
		return err
	}
	for _, f := range b.others {
		if err := f(rec); err != nil {
			return err
		}
	}
	if b.offset {
		d.Offset = append(d.Offset, b.row.Offset)
	}
	if err := b.sign(rec.cells); err != nil {
		return err
	}
	if n := len(d.Trials); n > 0 && len(d.Y) == n {
		if err := checkSuccesses(d.Y[n-1], d.Trials[n-1]); err != nil {
			return b.y.wrap(err)
		}
	}
	d.Kept = append(d.Kept, rec.row)
	return b.addX()
}

// sign turns the last outcome into a duration, which is negative if censored.
func (b *dataBuilder) sign(cells []cell) (err error) {
	if b.event == nil || b.y == nil {
		return nil
	}
	y := &b.d.Y[len(b.d.Y)-1]
	*y, err = b.event.duration(b.y, *y, &cells[b.event.place])
	return err
}

// encode encodes a row with the design, if there is a design.
func (b *dataBuilder) encode(cells []cell) (err error) {
	if b.design == nil {
		return b.e.row(&b.row, cells)
	}
	if b.row.Offset, err = b.e.offset(cells); err == nil {
		err = b.design.row(&b.entries, cells)
	}
	return err
}

// checkSuccesses returns an error that wraps ErrLabel if y successes in n trials are impossible.
func checkSuccesses(y, n float64) error {
	if y >= 0 && y <= n && y == math.Trunc(y) {
		return nil
	}
	return sentinel.Wrap(pgsvi.ErrLabel,
		"%v successes in %v trials; successes must be a whole number from 0 to the trials", y, n)
}

const keptRow = 48 // bytes per row in addition to its values

func (b *dataBuilder) addX() error {
	if b.sparse == nil {
		b.dense = append(b.dense, b.row.X...)
		return b.budget.Keep(keptRow + 8*len(b.row.X))
	}
	if b.design == nil {
		b.entries.reset()
		for j, v := range b.row.X {
			b.entries.put(j, v)
		}
	}
	if err := b.sparse.Append(b.entries.indices(), b.entries.val); err != nil {
		return err
	}
	return b.budget.Keep(keptRow + 12*len(b.entries.val))
}

func (b *dataBuilder) matrix() mat.Matrix {
	switch {
	case b.sparse != nil:
		return b.sparse
	case len(b.e.names) == 0:
		return pgsvi.NewSparse(0)
	}
	return mat.NewDense(len(b.d.Kept), len(b.e.names), b.dense)
}
