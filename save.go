package pgsvi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// A saved value of an interface type is its type's name and its JSON. Sum and
// Product are lists of such values.
type savedValue struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

var savedTypes = struct {
	sync.RWMutex
	byName map[string]reflect.Type
}{byName: map[string]reflect.Type{}}

func init() {
	for _, v := range []any{
		SquaredExp{}, Matern12{}, Matern32{}, Matern52{}, RationalQuadratic{}, Periodic{}, Linear{}, Constant{}, White{},
		BernoulliLogit{}, BernoulliProbit{}, Poisson{}, GaussianNoise{}, StudentT{}, Laplace{},
		Binomial{}, NegativeBinomial{}, Gamma{}, Exponential{}, Ordinal{},
	} {
		RegisterType(v)
	}
}

// RegisterType makes values of the type of v, a Kernel or Likelihood of the
// caller's that encoding/json can write and read, known to Save, LoadGPPosterior
// and LoadGLMPosterior under the name that %T prints. The types of this package are
// known. It is safe for concurrent use.
func RegisterType(v any) {
	savedTypes.Lock()
	defer savedTypes.Unlock()
	savedTypes.byName[fmt.Sprintf("%T", v)] = reflect.TypeOf(v)
}

func saveValue(v any) (s savedValue, err error) {
	s.Type = fmt.Sprintf("%T", v)
	var parts []Kernel
	switch k := v.(type) {
	case Sum:
		parts = k
	case Product:
		parts = k
	default:
		savedTypes.RLock()
		_, known := savedTypes.byName[s.Type]
		savedTypes.RUnlock()
		if !known {
			return s, fmt.Errorf("pgsvi: %w: %s cannot be saved; see RegisterType", ErrParam, s.Type)
		}
		s.Value, err = json.Marshal(v)
		return s, err
	}
	list := make([]savedValue, len(parts))
	for i, p := range parts {
		if list[i], err = saveValue(p); err != nil {
			return s, err
		}
	}
	s.Value, err = json.Marshal(list)
	return s, err
}

func loadValue(s savedValue) (any, error) {
	switch s.Type {
	case "pgsvi.Sum", "pgsvi.Product":
		var list []savedValue
		if err := json.Unmarshal(s.Value, &list); err != nil {
			return nil, fmt.Errorf("pgsvi: %w: parts of %s: %w", ErrParam, s.Type, err)
		}
		parts := make([]Kernel, len(list))
		for i, p := range list {
			v, err := loadValue(p)
			if err != nil {
				return nil, err
			}
			k, ok := v.(Kernel)
			if !ok {
				return nil, fmt.Errorf("pgsvi: %w: part %d of %s is a %s and no Kernel", ErrParam, i, s.Type, p.Type)
			}
			parts[i] = k
		}
		if s.Type == "pgsvi.Sum" {
			return Sum(parts), nil
		}
		return Product(parts), nil
	}
	savedTypes.RLock()
	t := savedTypes.byName[s.Type]
	savedTypes.RUnlock()
	if t == nil {
		return nil, fmt.Errorf("pgsvi: %w: saved type %q is not known; see RegisterType", ErrParam, s.Type)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Value, v.Interface()); err != nil {
		return nil, fmt.Errorf("pgsvi: %w: value of %s: %w", ErrParam, s.Type, err)
	}
	return v.Elem().Interface(), nil
}
