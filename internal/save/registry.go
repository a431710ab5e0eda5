package save

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// A Value is a value of an interface type: the name of its type and its JSON, or the parts of a
// composite.
type Value struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value,omitempty"`
	Parts List[Value]     `json:"parts,omitempty"`
}

// mostDepth limits the nesting of composites, so that messages, such as the path to a part, stay
// short.
const mostDepth = 100

// A Registry maps names to types. It is safe for concurrent use. The zero value is empty.
type Registry struct {
	mu         sync.RWMutex
	byName     map[string]reflect.Type
	byType     map[reflect.Type]string
	composites map[string]composite
}

type composite struct {
	parts func(v any) []any
	join  func(parts []any) (any, error)
}

// Add registers the type of v under a name. encoding/json must be able to write and read the
// type. It returns an error if the name belongs to another type, or if the type has another name.
func (r *Registry) Add(name string, v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(name, v)
}

func (r *Registry) add(name string, v any) error {
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
	if r.byName == nil {
		r.byName, r.byType, r.composites = map[string]reflect.Type{}, map[reflect.Type]string{},
			map[string]composite{}
	}
	r.byName[name], r.byType[t] = t, name
	return nil
}

// AddComposite registers the type of v, whose values consist of other registered values. parts
// returns them, and join puts them together.
func (r *Registry) AddComposite(name string, v any, parts func(v any) []any,
	join func(parts []any) (any, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.add(name, v); err != nil {
		return err
	}
	r.composites[name] = composite{parts, join}
	return nil
}

// Name returns the name of the type of v. ok is false if the type is not registered.
func (r *Registry) Name(v any) (name string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	name, ok = r.byType[reflect.TypeOf(v)]
	return name, ok
}

// Names returns all names in alphabetical order.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.byName))
}

// lookup returns the entry of a name.
func (r *Registry) lookup(name string) (t reflect.Type, c composite, isComposite bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, isComposite = r.composites[name]
	return r.byName[name], c, isComposite
}

// Marshal returns v with the name of its type. It returns an error if the type of v, or of a part
// of v, is not registered.
func (r *Registry) Marshal(v any) (Value, error) { return r.marshal(v, 0) }

func (r *Registry) marshal(v any, depth int) (s Value, err error) {
	if depth > mostDepth {
		return s, fmt.Errorf("values nested deeper than %d", mostDepth)
	}
	name, known := r.Name(v)
	if !known {
		return s, fmt.Errorf("%T is not registered; see Register", v)
	}
	s.Type = name
	_, c, isComposite := r.lookup(name)
	if !isComposite {
		if s.Value, err = json.Marshal(v); err != nil {
			err = fmt.Errorf("value of %s: %w", name, err)
		}
		return s, err
	}
	for _, p := range c.parts(v) {
		part, err := r.marshal(p, depth+1)
		if err != nil {
			return s, err
		}
		s.Parts = append(s.Parts, part)
	}
	return s, nil
}

// Unmarshal returns the value that s describes.
func (r *Registry) Unmarshal(s Value) (any, error) { return r.unmarshal(s, 0) }

func (r *Registry) unmarshal(s Value, depth int) (any, error) {
	if depth > mostDepth {
		return nil, fmt.Errorf("values nested deeper than %d", mostDepth)
	}
	t, c, isComposite := r.lookup(s.Type)
	if t == nil {
		return nil, fmt.Errorf("type %q is not registered; call Register for it before loading "+
			"(registered types: %s)", s.Type, strings.Join(r.Names(), ", "))
	}
	if isComposite {
		parts := make([]any, len(s.Parts))
		for i, p := range s.Parts {
			v, err := r.unmarshal(p, depth+1)
			if err != nil {
				return nil, err
			}
			parts[i] = v
		}
		return c.join(parts)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Value, v.Interface()); err != nil {
		return nil, fmt.Errorf("value of %s: %w", s.Type, err)
	}
	if v = v.Elem(); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("value of %s: a nil pointer", s.Type)
	}
	return v.Interface(), nil
}
