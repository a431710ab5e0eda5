package data

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// An Encoded is a row of a table as numbers.
type Encoded struct {
	X      []float64 // one value per feature
	Offset float64   // sum of the offsets and the logarithms of the exposures
	Notes  []string  // values that are imputed, new or outside the training range
	Row    int       // number of the row in its table, from 0
	Line   int       // line in the file, from 1; 0 without a file
}

// row encodes cells, which are in the order of state.Columns, into r. It reuses r.X if it is long
// enough.
func (e *Encoder) row(r *Encoded, cells []cell) error {
	r.X = slices.Grow(r.X[:0], len(e.names))[:len(e.names)]
	clear(r.X)
	r.Offset, r.Notes = 0, nil
	for _, c := range e.uses {
		switch c.Kind {
		case kindNumber, kindDate, kindCategory:
			note, err := c.put(r.X[c.at:c.at+c.n], &cells[c.place], c.Shift, c.Scale)
			if err != nil {
				return c.wrap(err)
			}
			if note != "" {
				r.Notes = append(r.Notes, note)
			}
		case kindExposure, kindOffset:
			v, err := c.scale(&cells[c.place])
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

// needed reports whether a row without the column cannot be encoded.
func (c *column) needed() bool {
	switch c.Kind {
	case kindSkip, kindOutcome, kindWeight, kindPrecision, kindTrials, kindEvent, kindGroup:
		return false
	}
	return true
}

// Row encodes one row. The row is a map[string]any or map[string]string from column names to
// values, a JSON object as []byte or json.RawMessage, or a struct, or a pointer to a struct, whose
// fields have tags such as `col:"age"`. A nil value, a nil pointer and an absent column are missing
// values. The outcome, and columns that the model does not use, may be absent. Texts are read like
// texts in the table. A field of a JSON object that is not a column adds a note; in the other types
// it is an error.
//
// The error names the column and the value. It wraps ErrParam if a level is unknown or a name is
// not a column, ErrNotFinite if a value is not a number, or is missing although no value was
// missing in training, and ErrShape if row has none of these types or is not a JSON object.
func (e *Encoder) Row(row any) (*Encoded, error) {
	cells := make([]cell, len(e.state.Columns))
	r := &Encoded{}
	notes, err := e.fill(cells, row)
	if err == nil {
		err = e.row(r, cells)
	}
	r.Notes = append(notes, r.Notes...)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", withNotes(err, notes))
	}
	return r, nil
}

// withNotes adds the notes about unknown fields to the error of a row, because a value may be
// missing if its field is misspelled.
func withNotes(err error, notes []string) error {
	if len(notes) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(notes, "; "))
}

// fill sets the cells of a row in the order of state.Columns. It returns a note for each field of a
// JSON object that is not a column, because other programs may send more fields than the model
// needs.
func (e *Encoder) fill(cells []cell, row any) (notes []string, err error) {
	for j := range cells {
		cells[j] = cell{kind: absentCell}
	}
	switch row := row.(type) {
	case []byte:
		notes, err = e.fillJSON(cells, row)
	case json.RawMessage:
		notes, err = e.fillJSON(cells, row)
	default:
		err = e.fillFields(cells, row)
	}
	e.fillComputed(cells)
	return notes, err
}

// fillFields is like fill for a map or a struct.
func (e *Encoder) fillFields(cells []cell, row any) error {
	switch row := row.(type) {
	case map[string]any:
		for name, v := range row {
			j, ok := e.place[name]
			if !ok {
				return noFieldOf(e, row)
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
				return noFieldOf(e, row)
			}
			cells[j] = cell{s: strings.TrimSpace(v)}
		}
		return nil
	}
	return e.fillStruct(cells, reflect.ValueOf(row))
}

func (e *Encoder) fillJSON(cells []cell, b []byte) (notes []string, err error) {
	err = scanObject(b, func(name string, c cell) error {
		j, ok := e.place[name]
		if !ok {
			notes = append(notes, sentinel.Plain(e.noField(name)))
			return nil
		}
		if cells[j].kind != absentCell {
			return sentinel.Wrap(pgsvi.ErrShape, "field %s occurs twice", csvQuote(name))
		}
		if c.kind == textCell {
			c.s = strings.TrimSpace(c.s)
		}
		cells[j] = c
		return nil
	})
	return notes, err
}

// noFieldOf returns noField for the first unknown name in alphabetical order, so the error is
// always the same.
func noFieldOf[V any](e *Encoder, row map[string]V) error {
	for _, name := range slices.Sorted(maps.Keys(row)) {
		if _, ok := e.place[name]; !ok {
			return e.noField(name)
		}
	}
	return nil
}

func (e *Encoder) noField(name string) error {
	var names []string
	for _, c := range e.uses {
		name := cmp.Or(c.Of, c.Name)
		if c.needed() && !c.Computed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return sentinel.Wrap(pgsvi.ErrParam,
		"the model has no column %s%s", csvQuote(name), nearAny(name, names))
}

// setCell sets a cell to a Go value.
func setCell(c *cell, v any) error {
	switch v := v.(type) {
	case nil:
		*c = cell{kind: nullCell}
	case string:
		*c = cell{s: strings.TrimSpace(v)}
	case float64:
		*c = cell{kind: numberCell, f: v}
	case int:
		*c = intCell(int64(v))
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"%s is not a finite number", csvQuote(v.String()))
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
		return sentinel.Wrap(pgsvi.ErrNotFinite, "%v is not a finite number", c.f)
	}
	return nil
}

// intCell returns the cell of a whole number. It keeps the text of a number that a float64 cannot
// hold.
func intCell(v int64) cell {
	c := cell{kind: numberCell, f: float64(v)}
	if v >= 1<<53 || v <= -1<<53 {
		c.s = strconv.FormatInt(v, 10)
	}
	return c
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	numberType = reflect.TypeFor[json.Number]()
)

// setReflected is like setCell for struct fields and other types. It avoids copying values that can
// be read in place.
func setReflected(c *cell, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil(), v.Kind() == reflect.Interface && v.IsNil():
		return setCell(c, nil)
	case v.Kind() == reflect.Pointer, v.Kind() == reflect.Interface:
		return setReflected(c, v.Elem())
	case v.Type() == timeType && v.CanAddr():
		*c = cell{kind: dateCell, f: wall(*v.Addr().Interface().(*time.Time))}
		return nil
	case v.Type() == timeType, v.Type() == numberType:
		return setCell(c, v.Interface())
	case v.CanInt():
		*c = intCell(v.Int())
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
	return sentinel.Wrap(pgsvi.ErrShape,
		"the value is a %s; use a number, a text, a bool, a time or nil", v.Type())
}

// structFields caches the tagged fields of struct types.
var structFields sync.Map // from reflect.Type to []structField

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
		return sentinel.Wrap(pgsvi.ErrShape,
			"the row is of kind %v; use a map, a JSON object as []byte, or a struct",
			v.Kind())
	}
	fields := fieldsOf(v.Type())
	if len(fields) == 0 {
		return sentinel.Wrap(pgsvi.ErrShape,
			"the fields of %v have no tags such as `col:\"age\"`", v.Type())
	}
	for _, f := range fields {
		j, ok := e.place[f.name]
		if !ok {
			return e.noField(f.name)
		}
		if err := setReflected(&cells[j], v.Field(f.at)); err != nil {
			return e.state.Columns[j].wrap(err)
		}
	}
	return nil
}
