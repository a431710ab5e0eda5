package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/save"
)

// savedTypes are the kernels and likelihoods that can be saved.
var savedTypes = savedOwn()

func savedOwn() *save.Registry {
	r := save.New(
		BernoulliLogit{}, BernoulliProbit{}, Poisson{}, GaussianNoise{}, StudentT{}, Laplace{},
		Binomial{}, NegativeBinomial{}, Gamma{}, Exponential{}, Ordinal{},
	)
	return r
}

// registerParts is Register of a composite kernel.
func registerParts[K Sum | Product](name string) {
	err := savedTypes.AddList(name, K(nil), func(v any) []any { return savedParts(v.(K)) }, savedJoin(name, func(k []Kernel) any { return K(k) }))
	if err != nil {
		panic("pgsvi: " + err.Error())
	}
}

func savedParts(ks []Kernel) (parts []any) {
	for _, k := range ks {
		parts = append(parts, k)
	}
	return parts
}

func savedJoin(name string, join func([]Kernel) any) func([]save.Value, func(save.Value) (any, error)) (any, error) {
	return func(parts []save.Value, load func(save.Value) (any, error)) (any, error) {
		ks := make([]Kernel, len(parts))
		for i, p := range parts {
			v, err := load(p)
			if err != nil {
				return nil, err
			}
			k, ok := v.(Kernel)
			if !ok {
				return nil, fmt.Errorf("part %d of %s is a %s and no Kernel", i, name, p.Type)
			}
			ks[i] = k
		}
		return join(ks), nil
	}
}

// Register gives the type of v, a Kernel or Likelihood of the caller's that
// encoding/json can write and read, the name under which Save writes values of it
// and the Load functions know them. What is behind the last dot of the name is
// also the name of a Kernel in messages and in the names of its parameters, such
// as Matern72 of "example.com/kernels.Matern72". A name is for ever: files keep
// it. The types of this package are registered. Register panics if the name is
// that of another type, or if the type has another name. It is safe for
// concurrent use.
func Register(name string, v any) {
	if err := savedTypes.Add(name, v); err != nil {
		panic("pgsvi: " + err.Error())
	}
}

func saveValue(v any) (save.Value, error) {
	s, known, err := savedTypes.Marshal(v)
	if err == nil && !known {
		err = fmt.Errorf("pgsvi: %w: %s cannot be saved; see Register", ErrParam, s.Type)
	}
	return s, err
}

func loadValue(s save.Value) (any, error) {
	v, err := savedTypes.Unmarshal(s)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w: %w", ErrParam, err)
	}
	return v, nil
}
