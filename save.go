package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/save"
)

// savedTypes are the kernels and likelihoods that can be saved.
var savedTypes = savedOwn()

func savedOwn() *save.Registry {
	r := save.New(
		SquaredExp{}, Matern12{}, Matern32{}, Matern52{}, RationalQuadratic{}, Periodic{}, Linear{}, Constant{}, White{},
		BernoulliLogit{}, BernoulliProbit{}, Poisson{}, GaussianNoise{}, StudentT{}, Laplace{},
		Binomial{}, NegativeBinomial{}, Gamma{}, Exponential{}, Ordinal{},
	)
	r.AddList(Sum{}, func(v any) []any { return savedParts(v.(Sum)) }, savedJoin("pgsvi.Sum", func(k []Kernel) any { return Sum(k) }))
	r.AddList(Product{}, func(v any) []any { return savedParts(v.(Product)) }, savedJoin("pgsvi.Product", func(k []Kernel) any { return Product(k) }))
	return r
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

// RegisterType makes values of the type of v, a Kernel or Likelihood of the
// caller's that encoding/json can write and read, known to Save, LoadGPPosterior
// and LoadGLMPosterior under the name that %T prints. The types of this package are
// known. It is safe for concurrent use.
func RegisterType(v any) { savedTypes.Add(v) }

func saveValue(v any) (save.Value, error) {
	s, known, err := savedTypes.Marshal(v)
	if err == nil && !known {
		err = fmt.Errorf("pgsvi: %w: %s cannot be saved; see RegisterType", ErrParam, s.Type)
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
