package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// isKL reports whether d is KL. A nil d means KL.
func isKL(d Divergence) bool {
	_, ok := d.(forwardKL)
	return d == nil || ok
}

// KL returns the divergence D(q‖q0) = KL(q‖q0), in nats, for an ExpFamily. In mean parameters it is
// the Bregman divergence of the negative entropy, and with h = KLTo its proximal step averages
// natural parameters. The step has a closed form for h = Zero, and for h = KLTo a member of the
// family of q, in the coordinates MeanParams and, for a Gaussian, MeanCov.
func KL() Divergence { return forwardKL{} }

type forwardKL struct{}

func (forwardKL) String() string { return "KL" }

// Value implements Divergence.
func (forwardKL) Value(q, q0 Dist) float64 { return q.(ExpFamily).KL(q0) }

// Grad implements Divergence.
func (forwardKL) Grad(dst []float64, q, q0 Dist) []float64 { return klGrad(dst, q.(ExpFamily), q0) }

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (forwardKL) Check(q Dist) error { return checkExpFamily("KL", q) }

// Prox has the closed forms for H = Zero, and for H = KLTo a member of the family of q, in mean
// parameters and, for Gaussians, in moments. A diagonal Gaussian counts as a member of the full
// family.
func (forwardKL) Prox(q Dist, p *Prox) (bool, error) {
	e, ok := q.(ExpFamily)
	if !ok {
		return false, nil
	}
	h, ok := p.H.(entropic)
	if !ok && !isZero(p.H) {
		return false, nil
	}
	switch e.Coordinates() {
	case MeanParams:
		var etaP []float64
		if ok {
			if etaP = h.target(e); etaP == nil {
				return false, nil
			}
		}
		if x, ok := e.(*Exp); ok {
			return true, x.at.Step(p.From.(*Exp).at, p.Grad, etaP, p.Beta)
		}
		return true, e.SetNatural(expfam.Step(p.From.(ExpFamily).Natural(nil), p.Grad, etaP,
			p.Beta))
	case MeanCov:
		form := e.(*Gaussian).form
		var prior normal.Prior
		if ok {
			if prior = h.gaussian(form); prior == nil {
				return false, nil
			}
		}
		return normal.StepMoments(form, p.Grad, prior, p.From.(*Gaussian).form, p.Beta)
	}
	return false, nil
}

// ReverseKL returns the divergence D(q‖q0) = KL(q0‖q), in nats, for an ExpFamily. In natural
// parameters it is the Bregman divergence of the log-partition function. With h = 0 its proximal
// step moves the mean parameters, in closed form in the coordinates Natural.
func ReverseKL() Divergence { return reverseKL{} }

type reverseKL struct{}

func (reverseKL) String() string { return "ReverseKL" }

// Value implements Divergence.
func (reverseKL) Value(q, q0 Dist) float64 { return q0.(ExpFamily).KL(q) }

// Grad implements Divergence.
func (reverseKL) Grad(dst []float64, q, q0 Dist) []float64 {
	// ∇_η (A(η) − ηᵀμ0) = μ − μ0.
	e := q.(ExpFamily)
	g := e.MeanParams(nil)
	floats.Sub(g, q0.(ExpFamily).MeanParams(nil))
	return e.FromNaturalGrad(dst, g)
}

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (reverseKL) Check(q Dist) error { return checkExpFamily("ReverseKL", q) }

// Prox has the closed forms for H = Zero in natural parameters. The mean parameters move by −βg.
func (reverseKL) Prox(q Dist, p *Prox) (bool, error) {
	e, ok := q.(ExpFamily)
	if !ok || !isZero(p.H) || e.Coordinates() != Natural {
		return false, nil
	}
	mu := p.From.(ExpFamily).MeanParams(nil)
	floats.AddScaled(mu, -p.Beta, p.Grad)
	return true, e.SetMeanParams(mu)
}

// SymKL returns the divergence D(q‖q0) = ½(KL(q‖q0) + KL(q0‖q)), in nats, for an ExpFamily. It is
// half the divergence of Jeffreys (1946), so that KL, ReverseKL and SymKL agree to second order.
// Hoffman et al. (2013) describe the natural gradient as the steepest descent of this divergence.
// KL gives the natural gradient exactly at every step size.
func SymKL() Divergence { return symKL{} }

type symKL struct{}

func (symKL) String() string { return "SymKL" }

// Value implements Divergence.
func (symKL) Value(q, q0 Dist) float64 {
	return 0.5 * (forwardKL{}.Value(q, q0) + reverseKL{}.Value(q, q0))
}

// Grad implements Divergence.
func (symKL) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = forwardKL{}.Grad(dst, q, q0)
	floats.Add(dst, reverseKL{}.Grad(nil, q, q0))
	floats.Scale(0.5, dst)
	return dst
}

// Check returns an error wrapping ErrNoProx unless q is an ExpFamily.
func (symKL) Check(q Dist) error { return checkExpFamily("SymKL", q) }

func checkExpFamily(name string, q Dist) error {
	if _, ok := q.(ExpFamily); !ok {
		return fmt.Errorf("pgsvi: %s needs an ExpFamily, but q is a %T: %w", name, q, ErrNoProx)
	}
	return nil
}

// KLTo returns h(λ) = KL(q‖p), in nats, for the prior p. It keeps a copy of prior, and panics if
// prior is nil. Its Check wraps ErrShape unless q has the dimension and the family of the prior, or
// both are Gaussian with the same dimension.
func KLTo(prior ExpFamily) Convex {
	if prior == nil {
		panic("pgsvi: the prior of KLTo is nil")
	}
	return klTo{prior.Clone().(ExpFamily)}
}

type klTo struct{ prior ExpFamily }

func (klTo) String() string { return "KLTo" }

// target implements entropic.
func (h klTo) target(q ExpFamily) []float64 {
	x, ok := q.(*Exp)
	if o, same := h.prior.(*Exp); ok && same && x.at.SameFamily(o.at) {
		return o.at.Eta // without a copy
	}
	return q.naturalOf(h.prior)
}

// gaussian implements entropic.
func (h klTo) gaussian(normal.Form) normal.Prior {
	if form := formOf(h.prior); form != nil {
		return form
	}
	return nil
}

func (h klTo) Check(q Dist) error {
	e, ok := q.(ExpFamily)
	_, qn := q.(*Gaussian)
	_, pn := h.prior.(*Gaussian)
	if !ok || q.Dim() != h.prior.Dim() || !(qn && pn) && e.naturalOf(h.prior) == nil {
		return fmt.Errorf("pgsvi: KLTo has a prior %s, but q is a %s; give both the same family "+
			"and dimension: %w", distName(h.prior), distName(q), ErrShape)
	}
	return nil
}

func (h klTo) Value(q Dist) float64 { return q.(ExpFamily).KL(h.prior) }

func (h klTo) Grad(dst []float64, q Dist) []float64 { return klGrad(dst, q.(ExpFamily), h.prior) }

func (h klTo) valueGrad(dst []float64, q Dist) float64 {
	if g := factorOf(q); g != nil {
		return g.FactorKL(dst, h.prior.(*Gaussian).form)
	}
	h.Grad(dst, q)
	return h.Value(q)
}

func (p klTo) digest(d *save.Digest) {
	d.Text(fmt.Sprintf("%T", p.prior))
	d.Float(p.prior.Params(nil)...)
}

// DivergenceFunc returns the Divergence of a function that computes D(q‖q0). Both arguments have
// the type of Objective.Init. For a GP they are *Gaussian of dimension N. The function must not
// change them, and returns NaN if D cannot be evaluated. The gradient is computed by central
// differences with 4·NumParams evaluations, to about ten digits if D is smooth. A GP needs no
// gradient.
func DivergenceFunc(f func(q, q0 Dist) float64) Divergence { return divergenceFunc(f) }

type divergenceFunc func(q, q0 Dist) float64

func (divergenceFunc) String() string { return "DivergenceFunc" }

// Check returns an error wrapping ErrParam if f is nil.
func (f divergenceFunc) Check(Dist) error {
	if f == nil {
		return fmt.Errorf("pgsvi: DivergenceFunc is nil: %w", ErrParam)
	}
	return nil
}

// Value implements Divergence.
func (f divergenceFunc) Value(q, q0 Dist) float64 { return f(q, q0) }

// Grad implements Divergence.
func (f divergenceFunc) Grad(dst []float64, q, q0 Dist) []float64 {
	return gradientByDifferences(dst, q, func(q Dist) float64 { return f(q, q0) })
}

// CheckDivergence tests d on every ordered pair of the given distributions, which must belong to
// one family. It checks that d vanishes for equal arguments and is positive for distinct ones (A5),
// and that Grad agrees with differences of Value. If d has a closed form for h = 0, it
// checks that the closed form leads to a stationary point of the step. It also checks that
//
//	(λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²
//
// for some α > 0 (A6). It returns the largest α that holds on these pairs, which may be larger than
// on others. If f has a gradient with Lipschitz constant L, and the step is exact with noise-free
// ∇f, then
//
//	(f + h)(λ_k) − (f + h)(λ_{k+1}) ≥ (αβ − Lβ²/2)‖(λ_k − λ_{k+1})/β‖².
//
// The objective then does not rise for step sizes β ≤ 2α/L (Khan et al., 2016, Proposition 2), and
// the bound is best at β = α/L (Proposition 1). Certificate checks a run against it.
//
// Whether A6 holds depends on Coordinates. If it does not hold, the error names the coordinates of
// the first distribution and the coordinates in which it holds.
//
// The error joins all violations and wraps ErrParam. It wraps ErrEmpty if there are fewer than two
// distributions. An error of d.Check is returned unchanged.
func CheckDivergence(d Divergence, qs ...Dist) (alpha float64, err error) {
	if len(qs) < 2 {
		return math.NaN(), fmt.Errorf("pgsvi: CheckDivergence has %d distributions; it needs two: "+
			"%w", len(qs), ErrEmpty)
	}
	for _, q := range qs {
		if err := d.Check(q); err != nil {
			return math.NaN(), err
		}
	}
	var errs []error
	bad := func(i, j int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: %s of distributions %d and %d: "+format+": %w",
			append(append([]any{spell(d), i, j}, args...), ErrParam)...))
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
					bad(i, j, "D is %v for equal arguments; it must be 0", v)
				}
				if n := floats.Norm(g, math.Inf(1)); !(n < 1e-6) {
					bad(i, j, "the gradient is %v for equal arguments; it must be 0", n)
				}
				continue
			}
			if !(v > 0) {
				bad(i, j, "D is %v for distinct arguments; it must be positive", v)
			}
			num := gradientByDifferences(nil, q, func(p Dist) float64 { return d.Value(p, q0) })
			if e := floats.Distance(g, num,
				math.Inf(1)); !(e <= 1e-5*(1+floats.Norm(num, math.Inf(1)))) {
				bad(i, j, "Grad differs by %.3g from differences of Value", e)
			}
			alpha = math.Min(alpha, strength(diff, g))
			if _, ok := d.(proxer); ok {
				// The step with the gradient −∇D(q‖q0) leads from q0 to q.
				floats.Scale(-1, g)
				p := q0.Clone()
				step, err := (&Prox{Grad: g, D: d, From: q0, Beta: 1}).begin(p)
				if err == nil {
					var known bool
					if known, err = step.ask(p); !known {
						continue
					}
				}
				want := q.Params(nil)
				if e := floats.Distance(p.Params(nil), want, math.Inf(1)); err != nil ||
					!(e <= 1e-6*(1+floats.Norm(want, math.Inf(1)))) {
					bad(i, j,
						"the closed form of the step contradicts Grad (error %v); a type that "+
							"embeds another divergence needs its own Prox", err)
				}
			}
		}
	}
	if !(alpha > 0) {
		errs = append(errs,
			fmt.Errorf("pgsvi: %s: (λ − λ0)ᵀ∇D ≥ α‖λ − λ0‖² holds only for α ≤ %v%s: %w",
				spell(d), alpha, otherCoordinates(d, qs), ErrParam))
	}
	return alpha, errors.Join(errs...)
}

// otherCoordinates returns the coordinates for which A6 was tried, and the others in which it holds
// on all pairs. It returns "" if the distributions have only one λ.
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
		return fmt.Sprintf(" in %v, and in no other coordinates for any α > 0", tried)
	}
	return fmt.Sprintf(" in %v; on these distributions it holds for an α > 0 in %s, so use In",
		tried, strings.Join(good, ", "))
}

// strongIn reports whether A6 holds for some α > 0 on all pairs of qs with λ in the coordinates c.
func strongIn(d Divergence, qs []Dist, c Coordinates) bool {
	in := allIn(qs, c)
	for _, q := range in {
		if d.Check(q) != nil {
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
	return in != nil
}

// allIn returns copies of qs in the coordinates c, or nil if one of them does not have these
// coordinates.
func allIn(qs []Dist, c Coordinates) []Dist {
	in := make([]Dist, len(qs))
	for i, q := range qs {
		switch q := q.(type) {
		case *Gaussian:
			in[i] = q.In(c)
		case *Exp:
			if c != MeanParams && c != Natural {
				return nil
			}
			in[i] = q.In(c)
		default:
			return nil
		}
	}
	return in
}

// strength returns the largest α of A6 for a pair of distributions with δ = λ − λ0 ≠ 0 and the
// gradient ∇_λ D(q‖q0).
func strength(delta, grad []float64) float64 {
	return floats.Dot(delta, grad) / floats.Dot(delta, delta)
}

// Potential is a strictly convex function F of λ.
type Potential interface {
	// Value returns F(λ).
	Value(lambda []float64) float64
	// Grad stores ∇F(λ) in dst; nil allocates.
	Grad(dst, lambda []float64) []float64
	// InvGrad stores the λ that solves ∇F(λ) = y in dst; nil allocates. It gives mirror descent a
	// closed form. It returns nil if it has no closed form itself.
	InvGrad(dst, y []float64) []float64
}

// Bregman returns the divergence D(q‖q0) = F(λ) − F(λ0) − ∇F(λ0)ᵀ(λ − λ0). With h = 0 its proximal
// step is mirror descent (Nemirovski and Yudin, 1983; Beck and Teboulle, 2003).
func Bregman(potential Potential) Divergence { return bregman{potential} }

type bregman struct{ f Potential }

func (bregman) String() string { return "Bregman" }

// Value implements Divergence.
func (b bregman) Value(q, q0 Dist) float64 {
	l, l0 := q.Params(nil), q0.Params(nil)
	g := b.f.Grad(nil, l0)
	v := b.f.Value(l) - b.f.Value(l0)
	for i, gi := range g {
		v -= gi * (l[i] - l0[i])
	}
	return v
}

// Grad implements Divergence.
func (b bregman) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = b.f.Grad(dst, q.Params(nil))
	floats.Sub(dst, b.f.Grad(nil, q0.Params(nil)))
	return dst
}

// Check returns an error wrapping ErrParam if the Potential is nil, has no finite gradient at q, or
// is not convex near q, judging by differences of gradients along a few directions. CheckDivergence
// tests more.
func (b bregman) Check(q Dist) error {
	if b.f == nil {
		return fmt.Errorf("pgsvi: the Potential of Bregman is nil: %w", ErrParam)
	}
	from, x := q.Params(nil), q.Params(nil)
	g0 := b.f.Grad(nil, from)
	if i, ok := dense.AllFinite(g0); !ok {
		return fmt.Errorf(
			"pgsvi: Bregman: the gradient of %T at λ_0 is %v in element %d, whose λ is %v: %w", b.f,
			g0[i], i, from[i], ErrParam)
	}
	next, delta, axes := q.Clone(), make([]float64, len(from)), min(len(from), mostAxes)
	// Move along one coordinate at a time, and finally along all of them with alternating signs.
	for k := range axes + 1 {
		clear(delta)
		for i := range delta {
			if i == k || k == axes {
				delta[i] = 1e-4 * (1 + math.Abs(from[i])) * float64(1-2*(i%2))
			}
		}
		floats.AddTo(x, from, delta)
		if next.SetParams(x) != nil {
			continue // outside the domain
		}
		var rise, size float64
		for i, g := range b.f.Grad(nil, x) {
			rise += (g - g0[i]) * delta[i]
			size += (math.Abs(g) + math.Abs(g0[i])) * math.Abs(delta[i])
		}
		if rise < -1e-10*size {
			along := fmt.Sprintf("element %d", k)
			if k == axes {
				along = "all elements"
			}
			return fmt.Errorf("pgsvi: Bregman: %T is not convex at λ_0, because its gradient "+
				"falls along %s by %.3g over a step of %.3g: %w", b.f, along,
				-rise/floats.Norm(delta, 2), floats.Norm(delta, 2), ErrParam)
		}
	}
	return nil
}

// mostAxes is the largest number of coordinates along which Bregman.Check moves.
const mostAxes = 64

// Prox has the closed forms for H = Zero if the Potential has an InvGrad.
func (b bregman) Prox(q Dist, p *Prox) (bool, error) {
	if !isZero(p.H) {
		return false, nil
	}
	y := b.f.Grad(nil, p.From.Params(nil))
	floats.AddScaled(y, -p.Beta, p.Grad)
	l := b.f.InvGrad(nil, y)
	if l == nil {
		return false, nil
	}
	return true, q.SetParams(l)
}

// NegEntropy returns the potential F(λ) = Σ_i λ_i log λ_i − λ_i on λ > 0. Mirror descent with it is
// the exponentiated gradient.
func NegEntropy() Potential { return negEntropy{} }

type negEntropy struct{}

func (negEntropy) String() string { return "NegEntropy" }

// Value implements Potential. It is +Inf if some λ_i < 0.
func (negEntropy) Value(lambda []float64) float64 {
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
func (negEntropy) Grad(dst, lambda []float64) []float64 {
	dst = dense.Dest(dst, len(lambda))
	for i, x := range lambda {
		dst[i] = math.Log(x)
	}
	return dst
}

// InvGrad implements Potential. It returns e^y.
func (negEntropy) InvGrad(dst, y []float64) []float64 {
	dst = dense.Dest(dst, len(y))
	for i, x := range y {
		dst[i] = math.Exp(x)
	}
	return dst
}

// Euclidean returns the divergence D(q‖q0) = ½‖λ − λ0‖². Its proximal steps are gradient descent (h
// = 0), ISTA (h = L1) and, with h = KLTo in the coordinates Cholesky, the proximal gradient method
// of Domke (2020).
func Euclidean() Divergence { return euclidean{} }

type euclidean struct{}

func (euclidean) String() string { return "Euclidean" }

// Check returns nil, because the divergence is defined for any q.
func (euclidean) Check(Dist) error { return nil }

// Value implements Divergence.
func (euclidean) Value(q, q0 Dist) float64 {
	d := floats.Distance(q.Params(nil), q0.Params(nil), 2)
	return 0.5 * d * d
}

// Grad implements Divergence.
func (euclidean) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = q.Params(dst)
	floats.Sub(dst, q0.Params(nil))
	return dst
}

// Prox has the closed forms for H = Zero and H = L1, and for H = KLTo if q is a Gaussian in the
// coordinates Cholesky.
func (euclidean) Prox(q Dist, p *Prox) (bool, error) {
	if h, ok := p.H.(entropic); ok {
		return choleskyProx(q, p, h)
	}
	return diagonalProx(q, p, nil)
}

// choleskyProx is the step of Euclidean with an entropic h, for a Gaussian in the coordinates
// Cholesky.
func choleskyProx(q Dist, p *Prox, h entropic) (bool, error) {
	n, ok := q.(*Gaussian)
	if !ok || n.Coordinates() != Cholesky {
		return false, nil
	}
	prior := h.gaussian(n.form)
	if prior == nil {
		return false, nil
	}
	return true, normal.StepCholesky(n.form, p.From.Params(nil), p.Grad, prior, p.Beta)
}

// diagonalProx is the step of Diagonal. A nil scale means Euclidean.
func diagonalProx(q Dist, p *Prox, scale []float64) (bool, error) {
	var weight float64
	n := 0
	if h, ok := p.H.(l1Term); ok {
		weight, n = h.weight, h.count(q)
	} else if !isZero(p.H) {
		return false, nil
	}
	l := p.From.Params(nil)
	for i, gi := range p.Grad {
		step := p.Beta
		if scale != nil {
			step /= scale[i]
		}
		l[i] -= step * gi
		if i >= n {
			continue
		}
		if a, t := math.Abs(l[i]), step*weight; a > t {
			l[i] = math.Copysign(a-t, l[i])
		} else if a <= t {
			l[i] = 0
		}
	}
	return true, q.SetParams(l)
}

// diagonalMetric is D(q‖q0) = ½ Σ_i Scale_i (λ_i − λ0_i)², which is Euclidean in another metric.
// Its proximal steps are gradient descent and ISTA with a step size for each element of λ.
type diagonalMetric struct{ Scale []float64 }

// Value implements Divergence.
func (d diagonalMetric) Value(q, q0 Dist) float64 {
	l, l0 := q.Params(nil), q0.Params(nil)
	var v float64
	for i, s := range d.Scale {
		v += 0.5 * s * (l[i] - l0[i]) * (l[i] - l0[i])
	}
	return v
}

// Grad implements Divergence.
func (d diagonalMetric) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = euclidean{}.Grad(dst, q, q0)
	floats.Mul(dst, d.Scale)
	return dst
}

// Prox has the closed forms for H = Zero and H = L1.
func (d diagonalMetric) Prox(q Dist, p *Prox) (bool, error) { return diagonalProx(q, p, d.Scale) }

// Check returns an error wrapping ErrParam unless all Scale are positive and finite, and ErrShape
// unless Scale has one element for each element of λ.
func (d diagonalMetric) Check(q Dist) error {
	for i, s := range d.Scale {
		if !(s > 0) || math.IsInf(s, 0) {
			return fmt.Errorf("pgsvi: diagonal.Scale[%d] is %v; it must be positive and finite: %w",
				i, s, ErrParam)
		}
	}
	if len(d.Scale) != q.NumParams() {
		return fmt.Errorf("pgsvi: diagonal.Scale has %d elements, but λ has %d: %w", len(d.Scale),
			q.NumParams(), ErrShape)
	}
	return nil
}
