package data

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"gonum.org/v1/gonum/mat"
)

// Data are the rows of a table as numbers.
type Data struct {
	// X has a row for each row kept and the columns of Names. It is a *pgsvi.Sparse if at most a
	// quarter of the values of the table that the Encoder was learned from are not 0, else a
	// *mat.Dense.
	X mat.Matrix
	// Y has the outcomes: numbers, −1 and +1 for two labels, or from 0 on for classes; see Labels.
	// It is nil without an outcome.
	Y []float64
	// Labels are those of Y: the negative and the positive one, or the classes. It is nil for numbers.
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

// put writes the features of a value to x, which has one place for each feature of the column and
// is 0 everywhere. The note, if it is not "", says what is to be known of the value: that it was
// imputed, is new or outside of the training data.
func (c *column) put(x []float64, v *cell) (note string, err error) {
	if c.isGapCell(v) {
		return c.putMissing(x)
	}
	switch c.Kind {
	case kindNumber:
		f, err := c.value(v)
		if err != nil {
			return "", err
		}
		x[0] = (f - c.Shift) / c.Scale
		return c.range_(f), nil
	case kindDate:
		s, err := c.date(v)
		if err != nil {
			return "", err
		}
		return c.putDate(x, s), nil
	case kindCategory:
		i, ok := c.level[v.s]
		if !ok {
			i, ok = c.level[c.text(v)]
		}
		if !ok && v.kind == boolCell {
			i, ok = c.boolLevel(v.s)
		}
		if !ok {
			return c.putUnknown(x, v)
		}
		if k := c.feature[i]; k >= 0 {
			x[k] = 1
		}
	}
	return "", nil
}

// range_ notes a number that is outside of the training data.
func (c *column) range_(f float64) string {
	if c.Min <= f && f <= c.Max {
		return ""
	}
	return fmt.Sprintf("%s is %v, outside of %v to %v in training", csvQuote(c.Name), f, c.Min, c.Max)
}

func (c *column) putDate(x []float64, seconds float64) (note string) {
	var t time.Time
	for _, p := range c.Parts {
		if p != Elapsed && t.IsZero() {
			t = time.Unix(int64(math.Floor(seconds)), 0).UTC()
		}
		switch p {
		case Elapsed:
			years := (seconds - c.Origin) / yearSeconds
			x[0] = (years - c.Shift) / c.Scale
			if years < c.Min || years > c.Max {
				note = fmt.Sprintf("%s is outside of the dates in training", csvQuote(c.Name))
			}
			x = x[1:]
		case Month:
			if m := int(t.Month()); m > 1 {
				x[m-2] = 1
			}
			x = x[11:]
		case Weekday:
			if d := (int(t.Weekday()) + 6) % 7; d > 0 {
				x[d-1] = 1
			}
			x = x[6:]
		}
	}
	return note
}

func (c *column) putMissing(x []float64) (note string, err error) {
	switch c.Missing {
	case missingImpute:
		if c.Kind == kindNumber || slices.Contains(c.Parts, Elapsed) {
			x[0] = (c.Mean - c.Shift) / c.Scale
		}
		x[c.n-1] = 1
		return csvQuote(c.Name) + " is missing: the mean stands in", nil
	case missingLevel:
		if c.gone >= 0 && c.n > 0 {
			x[c.gone] = 1
		}
		return "", nil
	case missingDrop:
		return "", fmt.Errorf("the value is missing, and training has left such rows out; want %s: %w", c.wants(), pgsvi.ErrNotFinite)
	}
	return "", fmt.Errorf("the value is missing, which it never was in training; want %s: %w", c.wants(), pgsvi.ErrNotFinite)
}

func (c *column) putUnknown(x []float64, v *cell) (note string, err error) {
	text := csvQuote(c.text(v))
	switch c.Unknown {
	case unknownNew:
		x[c.nw] = 1
		return fmt.Sprintf("%s=%s is new", csvQuote(c.Name), text), nil
	case unknownReference:
		return fmt.Sprintf("%s=%s is new, and taken for %s", csvQuote(c.Name), text, csvQuote(c.Reference)), nil
	case unknownMissing:
		x[c.gone] = 1
		return fmt.Sprintf("%s=%s is new, and taken for missing", csvQuote(c.Name), text), nil
	}
	return "", fmt.Errorf("found the unknown level %s, want %s: %w", text, c.wants(), pgsvi.ErrParam)
}

// boolLevel returns the level that is true or false in another case, or 1 or 0.
func (c *column) boolLevel(text string) (i int, ok bool) {
	for i, l := range c.Levels {
		if strings.EqualFold(l, text) || text == "true" && l == "1" || text == "false" && l == "0" {
			return i, true
		}
	}
	return 0, false
}

// wants says what a value of the column is like.
func (c *column) wants() string {
	switch c.Kind {
	case kindCategory, kindOutcome:
		if c.Levels != nil {
			return "one of " + strings.Join(quoteAll(c.Levels, 8), ", ")
		}
	case kindDate:
		return "a date like " + strings.Join(c.Written, " or ")
	case kindGroup:
		return "a group"
	}
	return c.unitText()
}

// index returns the number of the level of a value, or -1 for one that training has not seen, or
// that is missing and may be.
func (c *column) index(v *cell) (int, error) {
	if c.isGapCell(v) {
		if c.Missing == missingLevel {
			return -1, nil
		}
		_, err := c.putMissing(nil)
		return -1, err
	}
	i, ok := c.level[c.text(v)]
	if !ok && v.kind == boolCell {
		i, ok = c.boolLevel(v.s)
	}
	if !ok {
		return -1, nil
	}
	return i, nil
}

// outcome returns the value of an outcome as in Data.Y.
func (c *column) outcome(v *cell) (float64, error) {
	if c.isGapCell(v) {
		return 0, fmt.Errorf("the outcome is missing: %w", pgsvi.ErrNotFinite)
	}
	if c.Numeric {
		return c.value(v)
	}
	i, err := c.index(v)
	switch {
	case err != nil:
		return 0, err
	case i < 0:
		return 0, fmt.Errorf("found the outcome %s, want %s: %w", csvQuote(v.s), c.wants(), pgsvi.ErrLabel)
	case c.Positive != "":
		return float64(2*i - 1), nil
	}
	return float64(i), nil
}

// scale returns the value of an exposure, an offset, a weight or a number of trials.
func (c *column) scale(v *cell) (float64, error) {
	if c.isGapCell(v) {
		return 0, fmt.Errorf("the value is missing; want %s: %w", c.wants(), pgsvi.ErrNotFinite)
	}
	x, err := c.value(v)
	if err == nil {
		err = c.checkScale(x)
	}
	return x, err
}

// An Encoded is a row as numbers.
type Encoded struct {
	X      []float64 // a value for each feature
	Offset float64   // offsets and logarithms of exposures
	Notes  []string  // what is to be known: values that are imputed, new or outside of the training data
	Row    int       // in its table, from 0
	Line   int       // in its file, from 1; 0 if there is no file
}

// row encodes cells in the order of state.Columns into r, whose X is kept if it is long enough.
func (e *Encoder) row(r *Encoded, cells []cell) error {
	r.X = slices.Grow(r.X[:0], len(e.names))[:len(e.names)]
	clear(r.X)
	r.Offset, r.Notes = 0, nil
	for j, c := range e.state.Columns {
		switch c.Kind {
		case kindNumber, kindDate, kindCategory:
			note, err := c.put(r.X[c.at:c.at+c.n], &cells[j])
			if err != nil {
				return c.wrap(err)
			}
			if note != "" {
				r.Notes = append(r.Notes, note)
			}
		case kindExposure, kindOffset:
			v, err := c.scale(&cells[j])
			if err != nil {
				return c.wrap(err)
			}
			if c.Kind == kindExposure {
				v = math.Log(v)
			}
			r.Offset += v
		}
	}
	return nil
}

func (c *column) wrap(err error) error { return fmt.Errorf("column %s: %w", csvQuote(c.Name), err) }

// needed reports whether a row without the column cannot be predicted.
func (c *column) needed() bool {
	switch c.Kind {
	case kindSkip, kindOutcome, kindWeight, kindTrials, kindGroup:
		return false
	}
	return true
}

// Row encodes a row: a map[string]any or map[string]string by names of columns, a JSON object as
// []byte or json.RawMessage, or a struct, or pointer to one, whose fields have tags such as
// `col:"age"`. A nil value and a nil pointer are missing values, and so is a column that is not
// there. Columns that the model does not use, and the outcome, need not be there. Texts are read as
// those of the table are.
//
// The error names the column and what was found. It wraps ErrParam where a level is unknown or
// there is no column of such a name, ErrNotFinite where there is no number or a value is missing
// that never was in training, and ErrShape where row is none of these types or no JSON object.
func (e *Encoder) Row(row any) (*Encoded, error) {
	cells := make([]cell, len(e.state.Columns))
	r := &Encoded{}
	err := e.fill(cells, row)
	if err == nil {
		err = e.row(r, cells)
	}
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	return r, nil
}

// fill sets the cells of a row, in the order of state.Columns.
func (e *Encoder) fill(cells []cell, row any) error {
	for j := range cells {
		cells[j] = cell{kind: absentCell}
	}
	switch row := row.(type) {
	case map[string]any:
		for name, v := range row {
			j, ok := e.place[name]
			if !ok {
				return e.noField(name)
			}
			if err := setCell(&cells[j], v); err != nil {
				return e.state.Columns[j].wrap(err)
			}
		}
		return nil
	case map[string]string:
		for name, v := range row {
			j, ok := e.place[name]
			if !ok {
				return e.noField(name)
			}
			cells[j] = cell{s: strings.TrimSpace(v)}
		}
		return nil
	case []byte:
		return e.fillJSON(cells, row)
	case json.RawMessage:
		return e.fillJSON(cells, row)
	}
	return e.fillStruct(cells, reflect.ValueOf(row))
}

func (e *Encoder) fillJSON(cells []cell, b []byte) error {
	return scanObject(b, func(name []byte, c cell) error {
		j, ok := e.place[string(name)]
		if !ok {
			return e.noField(string(name))
		}
		if cells[j].kind != absentCell {
			return fmt.Errorf("field %s is there twice: %w", csvQuote(string(name)), pgsvi.ErrShape)
		}
		if c.kind == textCell {
			c.s = strings.TrimSpace(c.s)
		}
		cells[j] = c
		return nil
	})
}

func (e *Encoder) noField(name string) error {
	var names []string
	for _, c := range e.state.Columns {
		if c.needed() {
			names = append(names, c.Name)
		}
	}
	return fmt.Errorf("there is no column %s%s: %w", csvQuote(name), near(name, names), pgsvi.ErrParam)
}

// setCell sets a cell to a value of Go.
func setCell(c *cell, v any) error {
	switch v := v.(type) {
	case nil:
		*c = cell{kind: nullCell}
	case string:
		*c = cell{s: strings.TrimSpace(v)}
	case float64:
		*c = cell{kind: numberCell, f: v}
	case int:
		*c = cell{kind: numberCell, f: float64(v), s: strconv.Itoa(v)}
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return fmt.Errorf("found %s, want a finite number: %w", csvQuote(v.String()), pgsvi.ErrNotFinite)
		}
		*c = cell{kind: numberCell, f: f, s: v.String()}
	case bool:
		*c = cell{kind: boolCell, s: strconv.FormatBool(v), f: float64(b2i(v))}
	case time.Time:
		*c = cell{kind: dateCell, f: wall(v)}
	default:
		return setReflected(c, reflect.ValueOf(v))
	}
	if c.kind == numberCell && (math.IsNaN(c.f) || math.IsInf(c.f, 0)) {
		return fmt.Errorf("found %v, want a finite number: %w", c.f, pgsvi.ErrNotFinite)
	}
	return nil
}

// setReflected is setCell for other types.
func setReflected(c *cell, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return setCell(c, nil)
	case v.Kind() == reflect.Pointer:
		return setCell(c, v.Elem().Interface())
	case v.CanInt():
		*c = cell{kind: numberCell, f: float64(v.Int()), s: strconv.FormatInt(v.Int(), 10)}
		return nil
	case v.CanUint():
		*c = cell{kind: numberCell, f: float64(v.Uint()), s: strconv.FormatUint(v.Uint(), 10)}
		return nil
	case v.CanFloat():
		return setCell(c, v.Float())
	case v.Kind() == reflect.String:
		return setCell(c, v.String())
	case v.Kind() == reflect.Bool:
		return setCell(c, v.Bool())
	}
	return fmt.Errorf("found a %s, want a number, a text, a bool, a time or nil: %w", v.Type(), pgsvi.ErrShape)
}

// structFields has the tagged fields of types that were encoded.
var structFields sync.Map // of reflect.Type to []structField

type structField struct {
	name string
	at   int
}

func fieldsOf(t reflect.Type) []structField {
	if fields, ok := structFields.Load(t); ok {
		return fields.([]structField)
	}
	var fields []structField
	for i := range t.NumField() {
		if name, ok := t.Field(i).Tag.Lookup("col"); ok && t.Field(i).IsExported() {
			fields = append(fields, structField{name, i})
		}
	}
	structFields.Store(t, fields)
	return fields
}

func (e *Encoder) fillStruct(cells []cell, v reflect.Value) error {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return fmt.Errorf("the row is a %v, want a map, a JSON object as []byte, or a struct: %w", v.Kind(), pgsvi.ErrShape)
	}
	fields := fieldsOf(v.Type())
	if len(fields) == 0 {
		return fmt.Errorf("the fields of %v have no tags such as `col:\"age\"`: %w", v.Type(), pgsvi.ErrShape)
	}
	for _, f := range fields {
		j, ok := e.place[f.name]
		if !ok {
			return e.noField(f.name)
		}
		if err := setCell(&cells[j], v.Field(f.at).Interface()); err != nil {
			return e.state.Columns[j].wrap(err)
		}
	}
	return nil
}

// each calls f for every row of a table, with its cells in the order of state.Columns. Columns are
// found by their names. It is an error if one of those in need is not there.
func (e *Encoder) each(t *Table, need func(*column) bool, f func(rec *record) error) error {
	from := make([]int, len(e.state.Columns))
	var gone []string
	for j, c := range e.state.Columns {
		k, ok := t.place[c.Name]
		if !ok {
			k = -1
			if need(c) {
				gone = append(gone, c.Name)
			}
		}
		from[j] = k
	}
	if gone != nil {
		return t.named(fmt.Errorf("pgsvi: there is no column %s%s: %w", strings.Join(quoteAll(gone, 8), ", "), near(gone[0], t.Columns()), pgsvi.ErrShape))
	}
	out := record{cells: make([]cell, len(from))}
	return t.scan(func(rec *record) error {
		out.row, out.line = rec.row, rec.line
		for j, k := range from {
			if k < 0 {
				out.cells[j] = cell{kind: absentCell}
			} else {
				out.cells[j] = rec.cells[k]
			}
		}
		return f(&out)
	})
}

// drops reports whether a row is left out, as a value is missing.
func (e *Encoder) drops(cells []cell) bool {
	for j, c := range e.state.Columns {
		if c.Missing == missingDrop && c.Kind != kindSkip && c.isGapCell(&cells[j]) {
			return true
		}
	}
	return false
}

// Rows encodes the rows of a table to predict from: an Encoded or an error for each of them, in
// their order. A row with an error does not end the sequence; a failure of reading does. Columns are
// found by their names, in any order, and the outcome need not be there. An Encoded belongs to the
// caller.
func (e *Encoder) Rows(t *Table) iter.Seq2[*Encoded, error] {
	return func(yield func(*Encoded, error) bool) {
		err := e.each(t, (*column).needed, func(rec *record) error {
			r := &Encoded{Row: rec.row, Line: rec.line}
			err := e.row(r, rec.cells)
			if err != nil {
				r, err = nil, t.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
			}
			if !yield(r, err) {
				return io.EOF
			}
			return nil
		})
		if err != nil && err != io.EOF {
			yield(nil, err)
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
	b := &dataBuilder{e: e, d: &Data{Names: e.Features()}, budget: memory.NewBudget("the encoded table", textTooLarge)}
	if e.state.Sparse {
		b.sparse = pgsvi.NewSparse(len(e.names))
	}
	return e.gather(t, b)
}

// gather has b gather the rows of a table.
func (e *Encoder) gather(t *Table, b *dataBuilder) (*Data, error) {
	for j, c := range e.state.Columns {
		_, there := t.place[c.Name]
		switch {
		case c.Kind == kindGroup:
			b.d.Groups = append(b.d.Groups, Groups{Column: c.Name, Levels: slices.Clone(c.Levels)})
			b.groups = append(b.groups, j)
		case c.Kind == kindOutcome && there:
			b.y = c
			b.d.Labels = slices.Clone(c.Levels)
		}
	}
	need := func(c *column) bool { return c.needed() || c.Kind == kindGroup }
	err := e.each(t, need, func(rec *record) error {
		if e.dropsFrom(rec.cells, b.y) {
			return nil
		}
		if err := b.add(rec); err != nil {
			return t.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
		}
		return nil
	})
	if err == nil && len(b.d.Kept) == 0 {
		err = t.named(fmt.Errorf("pgsvi: no row is left after those with missing values: %w", pgsvi.ErrEmpty))
	}
	if err != nil {
		return nil, err
	}
	b.d.X = b.matrix()
	return b.d, nil
}

// dropsFrom is drops for a table that may be without an outcome.
func (e *Encoder) dropsFrom(cells []cell, y *column) bool {
	for j, c := range e.state.Columns {
		if c.Missing == missingDrop && (c.needed() || c == y || c.Kind == kindGroup) && c.isGapCell(&cells[j]) {
			return true
		}
	}
	return false
}

// dataBuilder gathers the rows of Data.
type dataBuilder struct {
	e       *Encoder
	d       *Data
	y       *column
	groups  []int // places of the columns
	row     Encoded
	dense   []float64
	sparse  *pgsvi.Sparse
	design  *design // nil for the features of the columns
	entries entries
	budget  *memory.Budget
}

func (b *dataBuilder) add(rec *record) error {
	e, d := b.e, b.d
	if err := b.encode(rec.cells); err != nil {
		return err
	}
	offset := false
	for j, c := range e.state.Columns {
		var err error
		var v float64
		switch {
		case c == b.y:
			if v, err = c.outcome(&rec.cells[j]); err == nil {
				d.Y = append(d.Y, v)
			}
		case c.Kind == kindExposure || c.Kind == kindOffset:
			offset = true
		case (c.Kind == kindWeight || c.Kind == kindTrials) && rec.cells[j].kind != absentCell:
			if v, err = c.scale(&rec.cells[j]); err != nil {
				break
			}
			if c.Kind == kindWeight {
				d.Weights = append(d.Weights, v)
			} else {
				d.Trials = append(d.Trials, v)
			}
		}
		if err != nil {
			return c.wrap(err)
		}
	}
	if offset {
		d.Offset = append(d.Offset, b.row.Offset)
	}
	for k, j := range b.groups {
		i, err := e.state.Columns[j].index(&rec.cells[j])
		if err != nil {
			return e.state.Columns[j].wrap(err)
		}
		d.Groups[k].Index = append(d.Groups[k].Index, i)
	}
	d.Kept = append(d.Kept, rec.row)
	return b.addX()
}

// encode encodes a row, by the design if there is one.
func (b *dataBuilder) encode(cells []cell) (err error) {
	if b.design == nil {
		return b.e.row(&b.row, cells)
	}
	if b.row.Offset, err = b.e.offset(cells); err == nil {
		err = b.design.row(&b.entries, b.e.cellsOf(cells))
	}
	return err
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
