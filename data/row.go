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

// An Encoded is a row as numbers.
type Encoded struct {
	X      []float64 // a value for each feature
	Offset float64   // offsets and logarithms of exposures
	Notes  []string  // of values that are imputed, new or beyond those of training
	Row    int       // in its table, from 0
	Line   int       // in its file, from 1; 0 if there is no file
}

// row encodes cells in the order of state.Columns into r, whose X is kept if it is long enough.
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

// needed reports whether a row without the column cannot be predicted.
func (c *column) needed() bool {
	switch c.Kind {
	case kindSkip, kindOutcome, kindWeight, kindTrials, kindEvent, kindGroup:
		return false
	}
	return true
}

// Row encodes a row: a map[string]any or map[string]string by names of columns, a JSON object as
// []byte or json.RawMessage, or a struct, or pointer to one, whose fields have tags such as
// `col:"age"`. A nil value and a nil pointer are missing values, and so is a column that is not
// there. Columns that the model does not use, and the outcome, need not be there. Texts are read as
// those of the table are. A field of a JSON object that is no column is noted, and an error in the
// other types.
//
// The error names the column and what was found. It wraps ErrParam where a level is unknown or
// there is no column of such a name, ErrNotFinite where there is no number or a value is missing
// that never was in training, and ErrShape where row is none of these types or no JSON object.
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

// withNotes adds the notes on unknown fields to the error of a row: a value may be missing because
// its field is misspelt.
func withNotes(err error, notes []string) error {
	if len(notes) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(notes, "; "))
}

// fill sets the cells of a row, in the order of state.Columns. The notes name the fields of a JSON
// object that are no columns: other programs send more than is needed.
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
	e.fillFactors(cells)
	return notes, err
}

// fillFields is fill for a map or a struct.
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
			return sentinel.Wrap(pgsvi.ErrShape, "field %s is there twice", csvQuote(name))
		}
		if c.kind == textCell {
			c.s = strings.TrimSpace(c.s)
		}
		cells[j] = c
		return nil
	})
	return notes, err
}

// noFieldOf is noField of the first name that is none, so that it is always the same one.
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
		if name := cmp.Or(c.Of, c.Name); c.needed() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return sentinel.Wrap(pgsvi.ErrParam,
		"there is no column %s%s", csvQuote(name), nearAny(name, names))
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
		*c = intCell(int64(v))
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"found %s, want a finite number", csvQuote(v.String()))
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
		return sentinel.Wrap(pgsvi.ErrNotFinite, "found %v, want a finite number", c.f)
	}
	return nil
}

// intCell is the cell of a whole number. One that a float64 may not hold keeps its text.
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

// setReflected is setCell for fields of a struct and other types. It copies no value that can be
// read as it is.
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
		"found a %s, want a number, a text, a bool, a time or nil", v.Type())
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
		return sentinel.Wrap(pgsvi.ErrShape,
			"the row is a %v, want a map, a JSON object as []byte, or a struct",
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
