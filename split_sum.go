package pgsvi

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// SumOf returns h(λ) = Σ_i h_i(λ). Values and gradients add, and Check joins the errors of all parts.
// A nil part is Zero. The sum is convex in coordinates in which every part is (A2).
//
// A step has a closed form if it stays closed: for a sum of KLTo and NaturalPrior, and for any h_1
// with a closed form plus parts that are linear in λ between the start and the end of the step. Each
// step compares the gradients of these parts at both ends. Any other step is numeric. A part that is
// linear in λ everywhere can also be added to f, because linearizing it changes nothing.
//
// KLTo, NaturalPrior and LaplacePrior each contain −H(q), so a sum of two of them counts the entropy
// twice. For example KLTo(p_1) + KLTo(p_2) is 2 KL(q‖p) plus a constant, with p ∝ √(p_1 p_2). Such a
// sum is convex, but f + h is then not a negative ELBO: its optimum is narrower than the posterior of
// the two priors multiplied. To multiply two priors of one family, add their natural parameters in a
// single NaturalPrior. To multiply others, use one part with an entropy, and give −E_q[log p] of the
// other as a Convex of your own.
func SumOf(h ...Convex) Convex {
	var parts []Convex
	for _, part := range h {
		switch x := part.(type) {
		case nil, noTerm:
		case easySum:
			parts = append(parts, x...)
		default:
			parts = append(parts, part)
		}
	}
	switch len(parts) {
	case 0:
		return noTerm{}
	case 1:
		return parts[0]
	}
	return easySum(parts)
}

// String returns the parts, such as "KLTo + L1".
func (s easySum) String() string {
	names := make([]string, len(s))
	for i, h := range s {
		names[i] = spell(h)
	}
	return strings.Join(names, " + ")
}

// Check implements Convex.
func (s easySum) Check(q Dist) error {
	for i, h := range s {
		if err := h.Check(q); err != nil {
			return fmt.Errorf("pgsvi: part %d of SumOf: %w", i, sentinel.Bare(err))
		}
	}
	return nil
}

// Value implements Convex.
func (s easySum) Value(q Dist) (v float64) {
	for _, h := range s {
		v += h.Value(q)
	}
	return v
}

// Grad implements Convex.
func (s easySum) Grad(dst []float64, q Dist) []float64 {
	dst = s[0].Grad(dst, q)
	part := make([]float64, len(dst))
	for _, h := range s[1:] {
		h.Grad(part, q)
		floats.Add(dst, part)
	}
	return dst
}

// Prox solves the step for one part, or for all entropic parts together, with
// the other parts linearized at the start. If the gradient of the others is the same at the end,
// the optimality condition of the step holds, so the solution is exact.
func (s easySum) Prox(q Dist, p *Prox) (bool, error) {
	main, weight, others := s.main(q)
	with := Prox{Grad: append([]float64(nil), p.Grad...), H: main, D: p.D, From: p.From,
		Beta: weight * p.Beta, halt: p.halt}
	var before []float64
	if len(others) > 0 {
		before = others.Grad(nil, p.From)
		floats.Add(with.Grad, before)
	}
	floats.Scale(1/weight, with.Grad)
	known, err := with.ask(q)
	if !known || len(others) == 0 {
		return known, err
	}
	if err != nil {
		return false, setDist(q, p.From)
	}
	for i, g := range others.Grad(nil, q) {
		if !(math.Abs(g-before[i]) <= linearWithin*(math.Abs(g)+math.Abs(before[i]))) {
			return false, setDist(q, p.From)
		}
	}
	return true, nil
}

// linearWithin is the relative change of a gradient that counts as rounding.
const linearWithin = 16 * dense.Epsilon

// main returns the part that a step keeps exact, and the other parts. All entropic parts together
// are the weight times the main part.
func (s easySum) main(q Dist) (main Convex, weight float64, others easySum) {
	var eta []float64
	for _, h := range s {
		target := targetOf(h, q)
		switch {
		case target == nil:
			others = append(others, h)
		case eta == nil:
			eta, weight = append(eta, target...), 1
		default:
			floats.Add(eta, target)
			weight++
		}
	}
	if eta == nil { // the part with kinks, or the first one
		i := max(0, slices.IndexFunc(s, kinked))
		return s[i], 1, slices.Concat(s[:i], s[i+1:])
	}
	floats.Scale(1/weight, eta)
	return naturalPrior{eta}, weight, others
}

func (s easySum) digest(d *save.Digest) {
	for _, h := range s {
		digestPart(d, h)
	}
}
