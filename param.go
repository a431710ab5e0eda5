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

// Validator is an option that can be out of range: a Schedule, a Sampler, a Converger or
// whatever else a Solver or a model is given. Validate reports every
// violation at once, wrapping ErrParam.
type Validator interface{ Validate() error }

// validateOption asks every option that is a Validator.
func validateOption(options ...any) error {
	var errs []error
	for _, o := range options {
		if v, ok := o.(Validator); ok {
			errs = append(errs, v.Validate())
		}
	}
	return errors.Join(errs...)
}
