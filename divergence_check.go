package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/floats"
)

// DivergenceFunc makes a Divergence of a function that returns D(q‖q0). Both
// arguments have the type of Objective.Init; for a GP they are *Gaussian of
// dimension N. The function must not change them; a NaN says that D cannot be
// evaluated. The gradient is taken by central differences, 4·NumParams
// evaluations, to about ten digits where D is smooth; a GP needs none.
type DivergenceFunc func(q, q0 Dist) float64

// Check returns an error wrapping ErrParam if f is nil.
func (f DivergenceFunc) Check(Dist) error {
	if f == nil {
		return fmt.Errorf("pgsvi: DivergenceFunc is nil: %w", ErrParam)
	}
	return nil
}

// Value implements Divergence.
func (f DivergenceFunc) Value(q, q0 Dist) float64 { return f(q, q0) }

// Grad implements Divergence.
func (f DivergenceFunc) Grad(dst []float64, q, q0 Dist) []float64 {
	return gradientByDifferences(dst, q, func(q Dist) float64 { return f(q, q0) })
}

// CheckDivergence tests d on every ordered pair of the given distributions, all
// of one family: that it vanishes for equal arguments and is positive for
// distinct ones (A5), that Grad agrees with differences of Value, that a closed form
// for h = 0, if d is a Proxer, leads to where the gradient of the step vanishes, and that
//
//	(λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²
//
// for some α > 0 (A6). It returns the largest α that holds on these pairs; on
// others it may be smaller. Where f has a gradient with the Lipschitz constant L
// and the step is exact, with ∇f known without noise,
//
//	(f + h)(λ_k) − (f + h)(λ_{k+1}) ≥ (αβ − Lβ²/2)‖(λ_k − λ_{k+1})/β‖²,
//
// so that the objective does not rise for step sizes β ≤ 2α/L (Khan et al., 2016,
// Proposition 2), and the bound is best at β = α/L (Proposition 1). Certificate holds a run
// against it.
//
// Whether A6 holds depends on Coordinates: where it does not, the error names those
// of the first distribution, and those in which it does.
//
// The error joins every violation, wrapping ErrParam; it wraps ErrEmpty if
// there are fewer than two distributions, or is that of d.Check.
func CheckDivergence(d Divergence, qs ...Dist) (alpha float64, err error) {
	if len(qs) < 2 {
		return math.NaN(), fmt.Errorf("pgsvi: CheckDivergence needs at least two distributions: %w", ErrEmpty)
	}
	for _, q := range qs {
		if err := d.Check(q); err != nil {
			return math.NaN(), err
		}
	}
	var errs []error
	bad := func(i, j int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: %T of distributions %d and %d: "+format+": %w", append(append([]any{d, i, j}, args...), ErrParam)...))
	}
	alpha = math.Inf(1)
	for i, q := range qs {
		for j, q0 := range qs {
			v, g := d.Value(q, q0), d.Grad(nil, q, q0)
			diff := q.Params(nil)
			floats.Sub(diff, q0.Params(nil))
			dist := floats.Norm(diff, 2)
			if dist == 0 {
				if math.Abs(v) > 1e-9 {
					bad(i, j, "D = %v for equal arguments, not 0", v)
				}
				if n := floats.Norm(g, math.Inf(1)); !(n < 1e-6) {
					bad(i, j, "gradient %v for equal arguments, not 0", n)
				}
				continue
			}
			if !(v > 0) {
				bad(i, j, "D = %v for distinct arguments, not positive", v)
			}
			num := gradientByDifferences(nil, q, func(p Dist) float64 { return d.Value(p, q0) })
			if e := floats.Distance(g, num, math.Inf(1)); !(e <= 1e-5*(1+floats.Norm(num, math.Inf(1)))) {
				bad(i, j, "Grad is off by %.3g from differences of Value", e)
			}
			alpha = math.Min(alpha, strength(diff, g))
			if x, ok := d.(Proxer); ok {
				// The step with the gradient −∇D(q‖q0) leads from q0 to q.
				floats.Scale(-1, g)
				p := q0.Clone()
				known, err := x.Prox(p, &Prox{Grad: g, H: Zero{}, D: d, From: q0, Beta: 1})
				want := q.Params(nil)
				if !known {
					continue
				}
				if e := floats.Distance(p.Params(nil), want, math.Inf(1)); err != nil || !(e <= 1e-6*(1+floats.Norm(want, math.Inf(1)))) {
					bad(i, j, "the closed form of its step is not that of its Grad (error %v); a type that embeds another divergence has the closed forms of that", err)
				}
			}
		}
	}
	if !(alpha > 0) {
		errs = append(errs, fmt.Errorf("pgsvi: %T: (λ − λ0)ᵀ∇D ≥ α‖λ − λ0‖² holds only for α ≤ %v%s: %w",
			d, alpha, otherCoordinates(d, qs), ErrParam))
	}
	return alpha, errors.Join(errs...)
}

// otherCoordinates says for which coordinates A6 was tried, and in which others it holds on all
// pairs. It says nothing of distributions that have λ in one way only.
func otherCoordinates(d Divergence, qs []Dist) string {
	first, ok := qs[0].(ExpFamily)
	if !ok {
		return ""
	}
	tried := first.Coordinates()
	var good []string
	for c := range Coordinates(len(coordinateNames)) {
		if c != tried && strongIn(d, qs, c) {
			good = append(good, c.String())
		}
	}
	if len(good) == 0 {
		return fmt.Sprintf(" in %v, and for no α > 0 in any others", tried)
	}
	return fmt.Sprintf(" in %v; on these distributions it holds for an α > 0 in %s: use In",
		tried, strings.Join(good, ", "))
}

// strongIn reports whether A6 holds for some α > 0 on all pairs of qs with λ in the coordinates c.
func strongIn(d Divergence, qs []Dist, c Coordinates) bool {
	in := make([]Dist, len(qs))
	for i, q := range qs {
		switch q := q.(type) {
		case *Gaussian:
			in[i] = q.In(c)
		case *Exp:
			if c != MeanParams && c != Natural {
				return false
			}
			in[i] = q.In(c)
		default:
			return false
		}
		if d.Check(in[i]) != nil {
			return false
		}
	}
	for _, q := range in {
		for _, q0 := range in {
			delta := q.Params(nil)
			floats.Sub(delta, q0.Params(nil))
			if floats.Norm(delta, 2) > 0 && !(strength(delta, d.Grad(nil, q, q0)) > 0) {
				return false
			}
		}
	}
	return true
}

// strength returns the largest α of A6 for a pair of distributions, of δ = λ − λ0 ≠ 0 and ∇_λ D(q‖q0).
func strength(delta, grad []float64) float64 {
	return floats.Dot(delta, grad) / floats.Dot(delta, delta)
}
