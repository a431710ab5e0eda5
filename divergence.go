package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// Divergence is D(q‖q0), the term that keeps a step close to where it started.
// It must satisfy, for distinct valid q and q0 (Khan et al., 2016, A5 and A6),
//
//	D(q‖q0) > 0,   D(q0‖q0) = 0,   (λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²  for some α > 0,
//
// which CheckDivergence tests. A Divergence is stateless and safe to share.
//
// A Divergence that knows closed forms also implements DivergenceProxer, and
// one that is defined for some families only has a method Accepts(q Dist) error,
// asked at set-up. One that changes from step to step is Adaptive.
type Divergence interface {
	// Value returns D(q‖q0) ≥ 0, in nats for the Kullback–Leibler family.
	Value(q, q0 Dist) float64
	// Grad stores ∇_λ D(q‖q0), the gradient with respect to the λ of q, in
	// dst; nil allocates.
	Grad(dst []float64, q, q0 Dist) []float64
}

// Euclidean is D(q‖q0) = ½‖λ − λ0‖², whose proximal steps are gradient
// descent (h = 0) and ISTA (h = L1).
type Euclidean struct{}

// Value implements Divergence.
func (Euclidean) Value(q, q0 Dist) float64 {
	d := floats.Distance(q.Params(nil), q0.Params(nil), 2)
	return 0.5 * d * d
}

// Grad implements Divergence.
func (Euclidean) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = q.Params(dst)
	floats.Sub(dst, q0.Params(nil))
	return dst
}

// KL is D(q‖q0) = KL(q‖q0) in nats, for an ExpFamily. In mean parameters it is
// a Bregman divergence, of the negative entropy, and with h = KLTo its proximal
// step averages natural parameters.
type KL struct{}

// Value implements Divergence.
func (KL) Value(q, q0 Dist) float64 { return q.(ExpFamily).KL(q0) }

// Grad implements Divergence.
func (KL) Grad(dst []float64, q, q0 Dist) []float64 { return klGrad(dst, q.(ExpFamily), q0) }

// Accepts returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (KL) Accepts(q Dist) error { return acceptsExpFamily("KL", q) }

// ReverseKL is D(q‖q0) = KL(q0‖q) in nats, for an ExpFamily. In natural
// parameters it is a Bregman divergence, of the log-partition function, and
// with h = 0 its proximal step moves the mean parameters.
type ReverseKL struct{}

// Value implements Divergence.
func (ReverseKL) Value(q, q0 Dist) float64 { return q0.(ExpFamily).KL(q) }

// Grad implements Divergence.
func (ReverseKL) Grad(dst []float64, q, q0 Dist) []float64 {
	// ∇_η (A(η) − ηᵀμ0) = μ − μ0.
	e := q.(ExpFamily)
	g := e.MeanParams(nil)
	floats.Sub(g, q0.(ExpFamily).MeanParams(nil))
	return e.FromNaturalGrad(dst, g)
}

// Accepts returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (ReverseKL) Accepts(q Dist) error { return acceptsExpFamily("ReverseKL", q) }

// SymKL is D(q‖q0) = ½(KL(q‖q0) + KL(q0‖q)) in nats, for an ExpFamily: half
// the divergence of Jeffreys (1946), so that KL, ReverseKL and SymKL agree to
// second order. Hoffman et al. (2013) read the natural gradient as the steepest
// descent of this divergence; see KL for the form of it that is exact at every step size.
type SymKL struct{}

// Value implements Divergence.
func (SymKL) Value(q, q0 Dist) float64 {
	return 0.5 * (KL{}.Value(q, q0) + ReverseKL{}.Value(q, q0))
}

// Grad implements Divergence.
func (SymKL) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = KL{}.Grad(dst, q, q0)
	floats.Add(dst, ReverseKL{}.Grad(nil, q, q0))
	floats.Scale(0.5, dst)
	return dst
}

// Accepts returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (SymKL) Accepts(q Dist) error { return acceptsExpFamily("SymKL", q) }

func acceptsExpFamily(name string, q Dist) error {
	if _, ok := q.(ExpFamily); !ok {
		return fmt.Errorf("pgsvi: %w: %s needs an ExpFamily, not %T", ErrNoProx, name, q)
	}
	return nil
}

// klGrad stores ∇_λ KL(q‖p) in dst.
func klGrad(dst []float64, q ExpFamily, p Dist) []float64 {
	if n, ok := q.(normal); ok {
		return normalKLGrad(dst, n, p.(normal))
	}
	// ∇_μ KL(q‖p) = η − η_p.
	g := q.Natural(nil)
	floats.Sub(g, p.(ExpFamily).Natural(nil))
	return q.FromMeanGrad(dst, g)
}

// normalKLGrad is klGrad for Gaussians, either of which may be diagonal: with
// P and μ those of p, ∇_m = P(m − μ) and ∇_V = ½(P − V⁻¹).
func normalKLGrad(dst []float64, q, p normal) []float64 {
	if g, ok := q.(*Gaussian); ok && g.hasFactor() {
		dst = dense.Dest(dst, g.NumParams())
		g.factorKL(dst, p)
		return dst
	}
	d := q.Dim()
	diff, gm, gv := make([]float64, d), make([]float64, d), make([]float64, q.numGradV())
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
	}
	p.mulPrecision(gm, diff)
	halfPrecision(gv, p, d)
	q.addPrecision(gv, -0.5)
	return q.fromMomentGrad(dst, gm, gv)
}

// halfPrecision stores ½P in gv, all of it or the diagonal, as len(gv) says.
func halfPrecision(gv []float64, p normal, d int) {
	for i := range d {
		if len(gv) == d {
			gv[i] = 0.5 * p.precisionAt(i, i)
			continue
		}
		for j := range d {
			gv[i*d+j] = 0.5 * p.precisionAt(i, j)
		}
	}
}

// Potential is a strictly convex function F of λ. If it also has a method
//
//	InvGrad(dst, y []float64) []float64
//
// that solves ∇F(λ) = y, mirror descent with it is in closed form.
type Potential interface {
	Value(lambda []float64) float64
	Grad(dst, lambda []float64) []float64
}

// Bregman is D(q‖q0) = F(λ) − F(λ0) − ∇F(λ0)ᵀ(λ − λ0), whose proximal step
// with h = 0 is mirror descent (Nemirovski and Yudin, 1983; Beck and Teboulle, 2003).
type Bregman struct{ Potential Potential }

// Value implements Divergence.
func (b Bregman) Value(q, q0 Dist) float64 {
	l, l0 := q.Params(nil), q0.Params(nil)
	g := b.Potential.Grad(nil, l0)
	v := b.Potential.Value(l) - b.Potential.Value(l0)
	for i, gi := range g {
		v -= gi * (l[i] - l0[i])
	}
	return v
}

// Grad implements Divergence.
func (b Bregman) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = b.Potential.Grad(dst, q.Params(nil))
	floats.Sub(dst, b.Potential.Grad(nil, q0.Params(nil)))
	return dst
}

// Validate returns an error wrapping ErrParam if Potential is nil.
func (b Bregman) Validate() error {
	if b.Potential == nil {
		return fmt.Errorf("pgsvi: %w: Bregman.Potential is nil", ErrParam)
	}
	return nil
}

// NegEntropy is the potential F(λ) = Σ_i λ_i log λ_i − λ_i on λ > 0, with
// which mirror descent is the exponentiated gradient.
type NegEntropy struct{}

// Value implements Potential; it is +Inf where some λ_i < 0.
func (NegEntropy) Value(lambda []float64) float64 {
	var s float64
	for _, x := range lambda {
		switch {
		case x > 0:
			s += x*math.Log(x) - x
		case x < 0:
			return math.Inf(1)
		}
	}
	return s
}

// Grad implements Potential.
func (NegEntropy) Grad(dst, lambda []float64) []float64 {
	dst = dense.Dest(dst, len(lambda))
	for i, x := range lambda {
		dst[i] = math.Log(x)
	}
	return dst
}

// InvGrad returns e^y.
func (NegEntropy) InvGrad(dst, y []float64) []float64 {
	dst = dense.Dest(dst, len(y))
	for i, x := range y {
		dst[i] = math.Exp(x)
	}
	return dst
}

// DivergenceFunc makes a Divergence of a function that returns D(q‖q0). Both
// arguments have the type of Objective.Init; for a GP they are *Gaussian of
// dimension N. The function must not change them; a NaN says that D cannot be
// evaluated. The gradient is taken by central differences, 4·NumParams
// evaluations, to about ten digits where D is smooth; a GP needs none.
type DivergenceFunc func(q, q0 Dist) float64

// Value implements Divergence.
func (f DivergenceFunc) Value(q, q0 Dist) float64 { return f(q, q0) }

// Grad implements Divergence.
func (f DivergenceFunc) Grad(dst []float64, q, q0 Dist) []float64 {
	return differences(dst, q, func(q Dist) float64 { return f(q, q0) })
}

const (
	differenceStep  = 2e-4 // step of differences of fourth order, relative to the size of the element
	differenceScale = 5e-3 // least size of an element
)

// differences stores the gradient of f with respect to λ in dst, by central
// differences of fourth order. Where a step would leave the set of valid λ it is shortened.
func differences(dst []float64, q Dist, f func(Dist) float64) []float64 {
	lambda := q.Params(nil)
	dst = dense.Dest(dst, len(lambda))
	p := q.Clone()
	x := append([]float64(nil), lambda...)
	at := func(i int, h float64) (float64, bool) {
		x[i] = lambda[i] + h
		err := p.SetParams(x)
		x[i] = lambda[i]
		if err != nil {
			return 0, false
		}
		return f(p), true
	}
	for i, l := range lambda {
		h := differenceStep * math.Max(math.Abs(l), differenceScale)
		for range 40 {
			var v [4]float64
			valid := true
			for j, k := range [4]float64{-2, -1, 1, 2} {
				var ok bool
				v[j], ok = at(i, k*h)
				valid = valid && ok
			}
			if valid {
				dst[i] = (8*(v[2]-v[1]) - (v[3] - v[0])) / (12 * h)
				break
			}
			h /= 4
			dst[i] = math.NaN()
		}
	}
	return dst
}

// CheckDivergence tests d on every ordered pair of the given distributions, all
// of one family: that it vanishes for equal arguments and is positive for
// distinct ones (A5), that Grad agrees with differences of Value, and that
//
//	(λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²
//
// for some α > 0 (A6). It returns the largest α that holds on these pairs,
// which bounds the step sizes for which the method converges: β < α/L for an f
// whose gradient has the Lipschitz constant L (Khan et al., 2016, Theorem 1).
// The error joins every violation, wrapping ErrParam; it wraps ErrEmpty if
// there are fewer than two distributions.
func CheckDivergence(d Divergence, qs ...Dist) (alpha float64, err error) {
	if len(qs) < 2 {
		return math.NaN(), fmt.Errorf("pgsvi: %w: CheckDivergence needs at least two distributions", ErrEmpty)
	}
	if v, ok := d.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return math.NaN(), err
		}
	}
	if a, ok := d.(interface{ Accepts(Dist) error }); ok {
		for _, q := range qs {
			if err := a.Accepts(q); err != nil {
				return math.NaN(), err
			}
		}
	}
	var errs []error
	bad := func(i, j int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: %w: %T of distributions %d and %d: "+format, append([]any{ErrParam, d, i, j}, args...)...))
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
			num := differences(nil, q, func(p Dist) float64 { return d.Value(p, q0) })
			if e := floats.Distance(g, num, math.Inf(1)); !(e <= 1e-5*(1+floats.Norm(num, math.Inf(1)))) {
				bad(i, j, "Grad is off by %.3g from differences of Value", e)
			}
			alpha = math.Min(alpha, floats.Dot(diff, g)/(dist*dist))
		}
	}
	if !(alpha > 0) {
		errs = append(errs, fmt.Errorf("pgsvi: %w: %T: (λ − λ0)ᵀ∇D ≥ α‖λ − λ0‖² holds only for α ≤ %v", ErrParam, d, alpha))
	}
	return alpha, errors.Join(errs...)
}
