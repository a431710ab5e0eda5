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

// Data are the rows of a table as numbers.
type Data struct {
	// X has a row for each row kept and the columns of Names. It is a *pgsvi.Sparse if at most a
	// quarter of the values of the table that the Encoder was learned from are not 0, or if a Model
	// has many columns that are mostly 0, such as groups. Otherwise it is a *mat.Dense.
	X mat.Matrix
	// Y has the outcomes: numbers, −1 and +1 for two labels, or from 0 on for classes; see Labels.
	// With a column of Event it has durations, and −y for a censored one. It is nil without an
	// outcome.
	Y []float64
	// Labels are those of Y: the negative and the positive one, or the classes. It is nil for
	// numbers.
	Labels []string
	// Offset is the sum of the offsets and the logarithms of the exposures; nil if there are none.
	Offset []float64
	// Weights are those of the rows; nil if there are none.
	Weights []float64
	// Trials are the numbers of trials; nil if there are none.
	Trials []float64
	// Names are those of the columns of X: "age", "colour=red", "age missing".
	Names []string
	// Groups has the groups of the rows, for each column of Group.
	Groups []Groups
	// Kept has, for each row, its number in the file from 0; the line of names and blank lines are
	// not counted. Rows with a missing value of a column with Drop are not kept.
	Kept []int
}

// Groups say which rows belong together.
type Groups struct {
	Column string
	Levels []string
	Index  []int // of the group of each row in Levels; -1 for a group that training has not seen
}

// missingNames is the error of columns that a table lacks.
func (e *Encoder) missingNames(gone, there []string) error {
	what := "is no column "
	if len(gone) > 1 {
		what = "are no columns "
	}
	free := slices.DeleteFunc(slices.Clone(there), func(c string) bool {
		_, used := e.place[c]
		return used
	})
	return sentinel.Wrap(pgsvi.ErrShape,
		"pgsvi: there %s%s%s", what, strings.Join(quoteAll(gone, fewNamed), ", "),
		near(gone[0], free, there))
}

// each calls f for every row of a table, with its cells in the order of state.Columns. Columns are
// found by their names. It is an error if one of those in need is not there.
func (e *Encoder) each(t *Table, need func(*column) bool, f func(rec *record) error) error {
	return e.records(t, need, func(rec *record) error {
		if rec.fault != nil {
			return t.named(rec.fault)
		}
		return f(rec)
	})
}

// records is each, where a record may have a fault.
func (e *Encoder) records(t *Table, need func(*column) bool, f func(rec *record) error) error {
	m := &arranger{e: e, need: need}
	if err := m.match(t.Columns()); err != nil {
		return t.named(err)
	}
	return t.scan(func(rec *record) error { return f(m.arrange(rec)) })
}

// arranger puts the cells of records in the order of state.Columns.
type arranger struct {
	e     *Encoder
	need  func(*column) bool
	from  []int // place in a record of a column, or -1
	width int   // columns matched
	out   record
}

// match finds the columns by their names.
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
		if m.from[c.place] < 0 && m.need(c) && !slices.Contains(gone, name) {
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
	return &m.out
}

// drops reports whether training leaves a row out, as a value is missing, be it the outcome if the
// table has that.
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

// yields encodes records one after the other for a sequence.
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

// Rows encodes the rows of a table to predict from: an Encoded or an error for each of them, in
// their order. A row with an error does not end the sequence; a failure of reading does. Columns
// are found by their names, in any order, and the outcome need not be there. An Encoded belongs to
// the caller. The errors of rows are those of Row, with the line; the sequence ends with an error
// that wraps ErrShape if a column is not there.
func (e *Encoder) Rows(t *Table) iter.Seq2[*Encoded, error] {
	return func(yield func(*Encoded, error) bool) {
		if err := e.each(t, (*column).needed, e.yields(t.Name, yield)); err != nil &&
			err != errStop {
			yield(nil, err)
		}
	}
}

// Stream is Rows for a reader that is read once, from a pipe, say, in memory that does not grow.
// Decimal signs are those of the table that the Encoder was learned from. The sequence may be used
// once.
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
		m.need = func(*column) bool { return false } // each row says what it has
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

// Data encodes a table: the one that the Encoder was learned from, or another one, whose columns
// are found by their names, in any order. Without the column of the outcome, Data.Y is nil. Rows
// with a missing value of a column with Drop are left out; see Data.Kept. All slices are new.
//
// The errors name the line and the column. They wrap ErrShape if a column is not there, ErrParam
// where a level is unknown, ErrNotFinite where there is no number or a value is missing that never
// was in training, ErrLabel where an outcome is unknown, ErrEmpty if no row is left, and ErrMemory
// if the rows take more memory than there is.
func (e *Encoder) Data(t *Table) (*Data, error) {
	b := &dataBuilder{e: e, d: &Data{Names: e.Features()}}
	b.budget = memory.NewBudget("the encoded table", textTooLarge)
	if e.state.Sparse {
		b.sparse = pgsvi.NewSparse(len(e.names))
	}
	return e.gather(t, b)
}

// gather has b gather the rows of a table.
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
			"pgsvi: no row is left after those with missing values"))
	}
	if err != nil {
		return nil, err
	}
	b.d.X = b.matrix()
	return b.d, nil
}

// dataBuilder gathers the rows of Data.
type dataBuilder struct {
	e       *Encoder
	d       *Data
	y       *column
	event   *column
	offset  bool
	others  []func(rec *record) error // for the columns that are no features
	row     Encoded
	dense   []float64
	sparse  *pgsvi.Sparse
	design  *design // nil for the features of the columns
	entries entries
	budget  *memory.Budget
}

// begin finds out what the table has besides features.
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

// gather appends a number of every row to a slice.
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

// sign makes a duration of the last outcome.
func (b *dataBuilder) sign(cells []cell) (err error) {
	if b.event == nil || b.y == nil {
		return nil
	}
	y := &b.d.Y[len(b.d.Y)-1]
	*y, err = b.event.duration(b.y, *y, &cells[b.event.place])
	return err
}

// encode encodes a row, by the design if there is one.
func (b *dataBuilder) encode(cells []cell) (err error) {
	if b.design == nil {
		return b.e.row(&b.row, cells)
	}
	if b.row.Offset, err = b.e.offset(cells); err == nil {
		err = b.design.row(&b.entries, cells)
	}
	return err
}

// checkSuccesses returns an error if y successes in n trials are impossible.
func checkSuccesses(y, n float64) error {
	if y >= 0 && y <= n && y == math.Trunc(y) {
		return nil
	}
	return sentinel.Wrap(pgsvi.ErrLabel,
		"found %v successes in %v trials, want a whole number from 0 to that",
		y, n)
}

const keptRow = 48 // bytes of a row besides its values

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
