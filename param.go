package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Param is a parameter of a Kernel or of a Likelihood, on its natural scale.
//
// Its name is that of the field, such as Scale, or Length[3] for one of Lengths.
// In a Sum or a Product the place and the type of the part stand before it, as
// in [0].SquaredExp.Scale. Its valid values are those strictly between Min and
// Max, which may be infinite. A parameter with Min ≥ 0 is learned in its
// logarithm, any other as it is.
type Param struct {
	Name            string
	Value, Min, Max float64
}

// Parametric is a Likelihood with parameters that can be learned.
type Parametric interface {
	Likelihood
	// Params returns the parameters in a fixed order. A field that is zero and
	// counts as a default is given as that default. The slice is the caller's.
	Params() []Param
	// WithParams returns a copy of the Likelihood with the values of its
	// parameters, in the order of Params; values is not kept.
	WithParams(values []float64) Likelihood
}

// paramName is the name of a parameter of something of the type named of:
// SquaredExp.Scale, Sum[0].SquaredExp.Scale.
func paramName(of, name string) string {
	if strings.HasPrefix(name, "[") {
		return of + name
	}
	return of + "." + name
}

// checkParams reports every parameter that is not strictly between its Min and
// Max, for something of the type named of. The errors wrap ErrParam.
func checkParams(of string, params []Param) error {
	var errs []error
	for _, p := range params {
		if p.Value > p.Min && p.Value < p.Max {
			continue
		}
		want := fmt.Sprintf("a number between %v and %v", p.Min, p.Max)
		switch {
		case p.Min == 0 && math.IsInf(p.Max, 1):
			want = "a positive number"
		case math.IsInf(p.Min, -1) && math.IsInf(p.Max, 1):
			want = "a finite number"
		}
		errs = append(errs, fmt.Errorf("pgsvi: %s is %v, want %s: %w", paramName(of, p.Name), p.Value, want, ErrParam))
	}
	return errors.Join(errs...)
}
