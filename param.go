package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
)

// A Param is a hyperparameter of a Kernel or of a Likelihood, on its natural scale.
//
// Its name is the name of the field, such as Scale, or Length[3] for an element of Lengths. In a
// Sum or a Product the name starts with the index and the type of the part, as in
// [0].SquaredExp.Scale. Valid values lie strictly between Min and Max, which may be infinite.
// Learning uses a coordinate θ that takes all real values, so no step and no interval leaves the
// range:
//
//	θ = log(Value − Min)                        if only Min is finite,
//	θ = −log(Max − Value)                       if only Max is finite,
//	θ = log((Value − Min)/(Max − Value))        if both are finite, and
//	θ = Value                                   if both are infinite.
type Param struct {
	Name            string
	Value, Min, Max float64
}

// within reports whether v is a valid value.
func (p *Param) within(v float64) bool { return v > p.Min && v < p.Max }

// ends reports which ends of the range are finite.
func (p *Param) ends() (lower, upper bool) { return !math.IsInf(p.Min, -1), !math.IsInf(p.Max, 1) }

// theta converts the value v to θ. It returns ±Inf at an end of the range, and NaN outside.
func (p *Param) theta(v float64) float64 {
	switch lower, upper := p.ends(); {
	case lower && upper:
		return math.Log(v-p.Min) - math.Log(p.Max-v)
	case lower:
		return math.Log(v - p.Min)
	case upper:
		return -math.Log(p.Max - v)
	}
	return v
}

// normal975 is the quantile of N(0, 1) at 97.5%.
const normal975 = 1.959963984540054

// interval returns the 95% interval of the value if θ ~ N(mean, sd²).
func (p *Param) interval(mean, sd float64) (lo, hi float64) {
	lo, hi = p.value(mean-normal975*sd), p.value(mean+normal975*sd)
	return min(lo, hi), max(lo, hi)
}

// value is the inverse of theta.
func (p *Param) value(theta float64) float64 {
	switch lower, upper := p.ends(); {
	case lower && upper && theta > 0: // use the nearer end, where rounding is smallest
		return p.Max - (p.Max-p.Min)/(1+math.Exp(theta))
	case lower && upper:
		return p.Min + (p.Max-p.Min)/(1+math.Exp(-theta))
	case lower:
		return p.Min + math.Exp(theta)
	case upper:
		return p.Max - math.Exp(-theta)
	}
	return theta
}

// moved returns the value after a step of h in θ from the value of p.
func (p *Param) moved(h float64) float64 {
	if lower, upper := p.ends(); lower && !upper {
		return p.Min + (p.Value-p.Min)*math.Exp(h)
	}
	return p.value(p.theta(p.Value) + h)
}

// slope returns the derivative in θ per unit of the derivative that Kernel.Grad stores, which is in
// log Value if Min ≥ 0, and in Value otherwise.
func (p *Param) slope() float64 {
	s := 1.0
	switch lower, upper := p.ends(); {
	case lower && upper:
		s = (p.Value - p.Min) * ((p.Max - p.Value) / (p.Max - p.Min))
	case lower:
		s = p.Value - p.Min
	case upper:
		s = p.Max - p.Value
	}
	if p.Min >= 0 {
		s /= p.Value
	}
	return s
}

// paramName returns the full name of a parameter of the type named of, such as SquaredExp.Scale or
// Sum[0].SquaredExp.Scale.
func paramName(of, name string) string {
	if strings.HasPrefix(name, "[") {
		return of + name
	}
	return of + "." + name
}

// checkParams reports every parameter that is not strictly between its Min and Max. of is the name
// of the type. The errors wrap ErrParam.
func checkParams(of string, params []Param) error {
	var errs []error
	for _, p := range params {
		if p.within(p.Value) {
			continue
		}
		want := fmt.Sprintf("a number between %v and %v", p.Min, p.Max)
		switch {
		case p.Min == 0 && math.IsInf(p.Max, 1):
			want = "a positive number"
		case math.IsInf(p.Min, -1) && math.IsInf(p.Max, 1):
			want = "a finite number"
		}
		errs = append(errs,
			fmt.Errorf("pgsvi: %s is %v; it must be %s: %w", paramName(of, p.Name), p.Value, want,
				ErrParam))
	}
	return errors.Join(errs...)
}

// validator is an option that can be invalid: a Schedule, a Sampler, a Converger or another option
// of a Solver or model. Validate reports all invalid fields at once, wrapping ErrParam.
type validator interface{ Validate() error }

// validateOption calls Validate of every option that is a validator.
func validateOption(options ...any) error {
	var errs []error
	for _, o := range options {
		if v, ok := o.(validator); ok {
			errs = append(errs, v.Validate())
		}
	}
	return errors.Join(errs...)
}

// orDefault returns x, or def if x is zero.
func orDefault(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}

// digester is a model, or a part of one, that can add its contents to a digest.
type digester interface{ digest(d *save.Digest) }

// digestPart adds a part of an Objective to d. It adds only the type if the part is not a digester.
func digestPart(d *save.Digest, v any) {
	d.Text(fmt.Sprintf("%T", v))
	if x, ok := v.(digester); ok {
		x.digest(d)
	}
}

// Intervals of weights, means and probabilities include the uncertainty of learned hyperparameters
// θ. The Laplace approximation of Learned is θ = θ̂ + Lz, z ~ N(0, I). The weights are then m + Az
// + V^½ε, and the parameters of the likelihood are θ̂ + Bz in the coordinates of Param. This is
// first order in z (Kass and Steffey 1989).

// learnSpread is the uncertainty of learned hyperparameters.
type learnSpread struct {
	weights [][]float64 // columns of A
	params  [][]float64 // rows of B, one per parameter of the likelihood; nil if all are 0
}

// savedSpread is the uncertainty of learned hyperparameters in a file. Each list holds the values
// for the first z, then for the second z, and so on.
type savedSpread struct {
	Z       int                `json:"z"`                    // number of z
	Weights save.List[float64] `json:"weights"`              // columns of A, or a of a GP
	Params  save.List[float64] `json:"parameters,omitempty"` // rows of B
	Kernels save.List[float64] `json:"kernels,omitempty"`    // parameters of each kernel
	Back    save.List[float64] `json:"back,omitempty"`       // parameters of each kernel of a step back
	Gamma   save.List[float64] `json:"gamma,omitempty"`      // sites of each kernel
}

// check returns an error that wraps ErrShape or ErrNotFinite if s does not fit n weights or rows
// and the given numbers of parameters of the likelihood and the kernel.
func (s *savedSpread) check(n, likelihood, kernel int) error {
	for _, of := range []struct {
		name     string
		list     []float64
		each     int
		optional bool
	}{
		{"weights", s.Weights, n, false}, {"parameters", s.Params, likelihood, true},
		{"kernels", s.Kernels, kernel, kernel == 0}, {"kernels back", s.Back, kernel, kernel == 0},
		{"gamma", s.Gamma, n, true},
	} {
		if got := len(of.list); s.Z < 1 || s.Z > save.Most || got%s.Z != 0 ||
			got/s.Z != of.each && !(of.optional && got == 0) {
			return fmt.Errorf("%d learned %s for %d z; there must be %d for each: %w",
				got, of.name, s.Z, of.each,
				ErrShape)
		}
		if j, ok := dense.AllFinite(of.list); !ok {
			return fmt.Errorf("element %d of the learned %s is %v: %w", j, of.name, of.list[j],
				ErrNotFinite)
		}
	}
	return nil
}

// chunks splits l into n parts.
func chunks(l []float64, n int) [][]float64 {
	if len(l) == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(l, len(l)/n))
}

// save returns s in the form that is saved.
func (s *learnSpread) save() *savedSpread {
	if s == nil {
		return nil
	}
	return &savedSpread{Z: len(s.weights), Weights: slices.Concat(s.weights...),
		Params: slices.Concat(s.params...)}
}

// load returns the spread of d weights, for a likelihood with the given number of parameters.
func (s *savedSpread) load(d, params int) (*learnSpread, error) {
	if s == nil {
		return nil, nil
	}
	if err := s.check(d, params, 0); err != nil {
		return nil, err
	}
	return &learnSpread{chunks(s.Weights, s.Z), chunks(s.Params, params)}, nil
}
