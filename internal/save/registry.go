// Package save writes values of interface types as JSON, each with the name of its type.
package save

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// A Value is the name of a type, as %T prints it, and the JSON of a value.
type Value struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// A Registry knows types by their names. It is safe for concurrent use.
type Registry struct {
	mu     sync.RWMutex
	byName map[string]reflect.Type
	lists  map[string]list
}

type list struct {
	parts func(v any) []any
	join  func(parts []Value, load func(Value) (any, error)) (any, error)
}

// New returns a Registry of the types of values.
func New(values ...any) *Registry {
	r := &Registry{byName: map[string]reflect.Type{}, lists: map[string]list{}}
	for _, v := range values {
		r.Add(v)
	}
	return r
}

// Add adds the type of v, which encoding/json can write and read.
func (r *Registry) Add(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[fmt.Sprintf("%T", v)] = reflect.TypeOf(v)
}

// AddList adds the type of v, a list of values of types that are known.
func (r *Registry) AddList(v any, parts func(v any) []any, join func(parts []Value, load func(Value) (any, error)) (any, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists[fmt.Sprintf("%T", v)] = list{parts, join}
}

// Marshal returns v with the name of its type. The second result is false if it is not known.
func (r *Registry) Marshal(v any) (s Value, known bool, err error) {
	s.Type = fmt.Sprintf("%T", v)
	r.mu.RLock()
	_, known = r.byName[s.Type]
	l, isList := r.lists[s.Type]
	r.mu.RUnlock()
	if !isList {
		if known {
			s.Value, err = json.Marshal(v)
		}
		return s, known, err
	}
	parts := l.parts(v)
	out := make([]Value, len(parts))
	for i, p := range parts {
		if out[i], known, err = r.Marshal(p); err != nil || !known {
			return out[i], known, err
		}
	}
	s.Value, err = json.Marshal(out)
	return s, true, err
}

// Unmarshal returns the value of s.
func (r *Registry) Unmarshal(s Value) (any, error) {
	r.mu.RLock()
	t := r.byName[s.Type]
	l, isList := r.lists[s.Type]
	r.mu.RUnlock()
	if isList {
		var parts []Value
		if err := json.Unmarshal(s.Value, &parts); err != nil {
			return nil, fmt.Errorf("parts of %s: %w", s.Type, err)
		}
		return l.join(parts, r.Unmarshal)
	}
	if t == nil {
		return nil, fmt.Errorf("saved type %q is not known; see RegisterType", s.Type)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Value, v.Interface()); err != nil {
		return nil, fmt.Errorf("value of %s: %w", s.Type, err)
	}
	return v.Elem().Interface(), nil
}
