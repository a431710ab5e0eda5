// Package save writes values of interface types as JSON, each with the name of its type.
package save

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// A Value is the name of a type and the JSON of a value.
type Value struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// A Registry knows types by their names. It is safe for concurrent use.
type Registry struct {
	mu     sync.RWMutex
	byName map[string]reflect.Type
	byType map[reflect.Type]string
	lists  map[string]list
}

type list struct {
	parts func(v any) []any
	join  func(parts []Value, load func(Value) (any, error)) (any, error)
}

// New returns a Registry of the types of values, each with the name that %T prints.
func New(values ...any) *Registry {
	r := &Registry{byName: map[string]reflect.Type{}, byType: map[reflect.Type]string{}, lists: map[string]list{}}
	for _, v := range values {
		r.byName[fmt.Sprintf("%T", v)] = reflect.TypeOf(v)
		r.byType[reflect.TypeOf(v)] = fmt.Sprintf("%T", v)
	}
	return r
}

// Add gives the type of v, which encoding/json can write and read, a name. It is
// an error if that is the name of another type, or if the type has another name.
func (r *Registry) Add(name string, v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := reflect.TypeOf(v)
	if t == nil || name == "" {
		return fmt.Errorf("a %T cannot have the name %q", v, name)
	}
	if old, ok := r.byName[name]; ok && old != t {
		return fmt.Errorf("%q is the name of %v, not of %v", name, old, t)
	}
	if old, ok := r.byType[t]; ok && old != name {
		return fmt.Errorf("%v has the name %q, not %q", t, old, name)
	}
	r.byName[name], r.byType[t] = t, name
	return nil
}

// AddList adds the type of v, a list of values of types that are known.
func (r *Registry) AddList(name string, v any, parts func(v any) []any, join func(parts []Value, load func(Value) (any, error)) (any, error)) error {
	if err := r.Add(name, v); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists[name] = list{parts, join}
	return nil
}

// Name returns the name of the type of v; ok is false if it is not known.
func (r *Registry) Name(v any) (name string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	name, ok = r.byType[reflect.TypeOf(v)]
	return name, ok
}

// Marshal returns v with the name of its type. The second result is false if the
// type of v, or of a part of it, is not known; the Value then has what %T prints.
func (r *Registry) Marshal(v any) (s Value, known bool, err error) {
	if s.Type, known = r.Name(v); !known {
		s.Type = fmt.Sprintf("%T", v)
		return s, false, nil
	}
	r.mu.RLock()
	l, isList := r.lists[s.Type]
	r.mu.RUnlock()
	if !isList {
		s.Value, err = json.Marshal(v)
		return s, true, err
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
		return nil, fmt.Errorf("saved type %q is not known; see Register", s.Type)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Value, v.Interface()); err != nil {
		return nil, fmt.Errorf("value of %s: %w", s.Type, err)
	}
	return v.Elem().Interface(), nil
}
