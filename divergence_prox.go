package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// Divergence is D(q‖q0), the distance that keeps a step close to its start. For distinct valid q
// and q0 it must satisfy (Khan et al., 2016, A5 and A6)
//
//	D(q‖q0) > 0,   D(q0‖q0) = 0,   (λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²  for some α > 0,
//
// which CheckDivergence tests. A Divergence is stateless and safe for concurrent use.
//
// A Divergence with closed forms of its proximal step also has the method Prox; see type Prox.
// Adaptive makes a Divergence that changes from step to step. A custom type that embeds a Divergence
// inherits Value and Grad but not the closed forms, for which it needs its own method Prox.
type Divergence interface {
	// Check is called in the set-up of a run. The error gives the reason why D cannot be used at q.
	// It wraps
	//   - ErrNoProx if D is not defined on the family of q;
	//   - ErrShape if the dimension is wrong;
	//   - ErrParam if a parameter of D is invalid.
	Check(q Dist) error
	// Value returns D(q‖q0) ≥ 0, in nats for the Kullback–Leibler family.
	Value(q, q0 Dist) float64
	// Grad stores ∇_λ D(q‖q0), the gradient with respect to the λ of q, in dst; nil allocates.
	Grad(dst []float64, q, q0 Dist) []float64
}

// Prox is the problem of one proximal step from q0 = From, which Solve solves:
//
//	argmin_λ  Gradᵀλ + H(λ) + D(λ‖λ0)/Beta,
//
// Closed forms exist for these combinations:
//
//	D            H     coordinates  step                                 known as
//	Euclidean    Zero  any          λ − βg                               gradient descent
//	Euclidean    L1    any          soft(λ − βg, βw)                     ISTA
//	Euclidean    KLTo  Cholesky     see below                            Domke (2020)
//	Diagonal(s)  Zero  any          λ − βg/s                             AdaGrad and others
//	Diagonal(s)  L1    any          soft(λ − βg/s, βw/s)
//	Bregman(F)   Zero  any          ∇F⁻¹(∇F(λ) − βg), F with InvGrad     mirror descent
//	KL           Zero  MeanParams   η − βg                               natural gradient
//	KL           Zero  MeanCov      V⁻¹ + 2βG,  m − βVg                  natural gradient
//	KL           KLTo  MeanParams   rη + (1−r)(η_p − g)                  PG-SVI, main text
//	KL           KLTo  MeanCov      see below                            PG-SVI, appendix
//	ReverseKL    Zero  Natural      μ − βg                               mirror descent in A
//
// NaturalPrior has the steps of KLTo, with its η_p, and with P and Pμ from it. SumOf also has closed
// steps. Here r = 1/(1+β), and (g, G) are the gradients with respect to (m, V). With the prior N(μ, P⁻¹)
// the appendix is
//
//	V₊⁻¹ = rV⁻¹ + (1−r)(P + 2G),   m₊ = m − (1−r)[(1−r)P + rV⁻¹]⁻¹(P(m−μ) + g).
//
// The step in Cholesky holds for any P. With G the gradient with respect to L, it is, for a
// diagonal q with standard deviations s and with p_i = P_ii,
//
//	m₊ = m − (P + I/β)⁻¹(P(m−μ) + g)
//	s₊ = (b + √(b² + 4(p + 1/β)))/(2(p + 1/β)),   b = s/β − G.
//
// For a full q, the elements of L solve such equations column by column. Beta = +Inf is allowed in
// the rows with KLTo, with 1/β = 0 and r = 0.
//
// A Divergence or a Convex of your own has closed forms if it also has the method
//
//	Prox(q Dist, p *Prox) (known bool, err error)
//
// It replaces q, which holds p.From on entry, by the solution of p and returns true. If it has no
// closed form for H and D in the coordinates of q, it returns false and leaves q unchanged. If the
// minimizer is not a valid λ, it returns true and the error of SetParams. It does not keep p. The
// method of the Divergence is tried first.
type Prox struct {
	Grad []float64  // g, an estimate of ∇f, in the coordinates of From
	H    Convex     // h; nil means Zero
	D    Divergence // must not be nil
	From Dist       // q0
	Beta float64    // β > 0; +Inf leaves D out

	halt *parallel.Halt // stops the numeric step; nil never stops it
	// doubt returns an error if a gradient of the caller explains why a numeric step has no minimum
	// along slope. A nil doubt explains nothing.
	doubt func(p *Prox, q Dist, slope []float64) error
}

// proxer is a Divergence or a Convex with closed forms; see Prox.
type proxer interface {
	Prox(q Dist, p *Prox) (known bool, err error)
}

// Solve replaces q by the solution. The q must belong to the family of p.From and have its
// coordinates. Solve tries a closed form of D, then of H, and otherwise minimizes numerically;
// closed reports whether it used a closed form. On error q holds p.From. The error wraps ErrParam
// if D is nil, ErrNoProx if neither a closed form nor a chart exists, and ErrNotPosDef or
// ErrNotFinite if the minimizer is not a valid λ.
func (p *Prox) Solve(q Dist) (closed bool, err error) {
	p, err = p.begin(q)
	if err != nil {
		return false, err
	}
	if known, err := p.ask(q); known {
		return true, p.orBack(q, err)
	}
	return false, p.minimize(q)
}

// Numeric is Solve without the closed forms. It minimizes by L-BFGS from p.From in the chart of q,
// which must be Charted. It works for any pair (H, D), and can test closed forms. On error q holds
// p.From. The error wraps
//   - ErrParam if D is nil;
//   - ErrNoProx if q has no chart;
//   - ErrNotFinite if the objective is not finite at p.From, or if no minimum is found.
func (p *Prox) Numeric(q Dist) error {
	p, err := p.begin(q)
	if err != nil {
		return err
	}
	return p.minimize(q)
}

// begin sets q to p.From and returns p with an H that is not nil.
func (p *Prox) begin(q Dist) (*Prox, error) {
	if p.D == nil {
		return nil, fmt.Errorf("pgsvi: Prox.D is nil: %w", ErrParam)
	}
	if p.H == nil {
		with := *p
		with.H = noTerm{}
		p = &with
	}
	return p, setDist(q, p.From)
}

// ask tries the closed form of D and then of H.
func (p *Prox) ask(q Dist) (known bool, err error) {
	if x, ok := p.D.(proxer); ok {
		if known, err := x.Prox(q, p); known {
			return true, err
		}
	}
	if x, ok := p.H.(proxer); ok {
		return x.Prox(q, p)
	}
	return false, nil
}

// checkProx reports whether the pair (h, d) has a closed form at q. The error wraps ErrNoProx if
// the pair has no proximal step at all.
func checkProx(q Dist, h Convex, d Divergence) (closed bool, err error) {
	p := &Prox{Grad: make([]float64, q.NumParams()), H: h, D: d, From: q, Beta: 1}
	if known, _ := p.ask(q.Clone()); known {
		return true, nil
	}
	if _, ok := q.(Charted); !ok {
		return false, fmt.Errorf(
			"pgsvi: h = %s with D = %s on %T has no closed form, and %T has no chart for a "+
				"numeric step; implement the method Prox or Charted: %w", spell(h), spell(d), q, q,
			ErrNoProx)
	}
	return false, nil
}

// setDist sets q to q0.
func setDist(q, q0 Dist) error {
	if e, ok := q.(ExpFamily); ok && e.setState(q0) {
		return nil
	}
	return q.SetParams(q0.Params(nil))
}

// orBack returns err. If err is not nil, it first sets q to p.From.
func (p *Prox) orBack(q Dist, err error) error {
	if err != nil {
		return errors.Join(err, setDist(q, p.From))
	}
	return nil
}

// minimize is the numeric step. On entry q holds p.From.
func (p *Prox) minimize(q Dist) error {
	c, ok := q.(Charted)
	if !ok {
		return fmt.Errorf("pgsvi: %T has no chart: %w", q, ErrNoProx)
	}
	lambda0 := p.From.Params(nil)
	lambda, grad := make([]float64, len(lambda0)), make([]float64, len(lambda0))
	value := func(x []float64) float64 {
		if p.halt.Stopped() || c.SetChart(x) != nil {
			return math.Inf(1)
		}
		c.Params(lambda)
		var v float64
		for i, gi := range p.Grad {
			v += gi * (lambda[i] - lambda0[i])
		}
		v += p.H.Value(c) + p.D.Value(c, p.From)/p.Beta
		if math.IsNaN(v) {
			return math.Inf(1)
		}
		return v
	}
	gradient := func(dst, x []float64) {
		if p.halt.Stopped() || c.SetChart(x) != nil {
			floats.AddConst(math.NaN(), dst)
			return
		}
		p.H.Grad(dst, c)
		floats.Add(dst, p.Grad)
		floats.AddScaled(dst, 1/p.Beta, p.D.Grad(grad, c, p.From))
		c.ChartGrad(dst, dst)
	}
	x0 := c.Chart(nil)
	slope := make([]float64, len(x0))
	gradient(slope, x0)
	start := floats.Norm(slope, math.Inf(1))
	x, ok := accel.LBFGS(value, gradient, x0)
	if err := p.halt.Err(); err != nil {
		return p.orBack(c, err)
	}
	if !ok {
		return p.orBack(c,
			fmt.Errorf("pgsvi: the numeric proximal step starts at the objective %v: %w",
				value(x0), ErrNotFinite))
	}
	gradient(slope, x)
	if !kinked(p.H) {
		if end := floats.Norm(slope, math.Inf(1)); !(end <= 1e-3*math.Max(1, start)) {
			return p.orBack(c, p.noMinimum(c, slope, end))
		}
	}
	return p.orBack(c, c.SetChart(x))
}

// noMinimum returns the error of a numeric step that ends at q with the given slope in the chart,
// whose largest element is end. If a gradient of the caller contradicts its values along this slope,
// no shorter step will help.
func (p *Prox) noMinimum(q Dist, slope []float64, end float64) error {
	if p.doubt != nil {
		floats.Scale(-1, slope)
		if err := p.doubt(p, q, slope); err != nil {
			return fmt.Errorf("pgsvi: the numeric proximal step found no minimum: %w",
				sentinel.Bare(err))
		}
	}
	return fmt.Errorf("pgsvi: the numeric proximal step found no minimum, because the gradient is "+
		"still %.3g: %w", end, ErrNotFinite)
}
