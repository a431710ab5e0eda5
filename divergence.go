package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Divergence is D(q‖q0), the term that keeps a step close to where it started.
// It must satisfy, for distinct valid q and q0 (Khan et al., 2016, A5 and A6),
//
//	D(q‖q0) > 0,   D(q0‖q0) = 0,   (λ − λ0)ᵀ∇_λ D(q‖q0) ≥ α‖λ − λ0‖²  for some α > 0,
//
// which CheckDivergence tests. A Divergence is stateless and safe to share.
//
// A Divergence that knows closed forms is also a Proxer. One that changes from
// step to step is Adaptive. A type that embeds KL is KL to the library, with its
// closed forms, and one that embeds Euclidean has those of Euclidean: do not
// embed them to define another divergence.
type Divergence interface {
	// Check is asked at set-up. The error says why D cannot be used at q: it wraps
	// ErrNoProx if D is not defined on the family of q, ErrShape if it is of another
	// dimension, or ErrParam if a parameter of D itself is not valid.
	Check(q Dist) error
	// Value returns D(q‖q0) ≥ 0, in nats for the Kullback–Leibler family.
	Value(q, q0 Dist) float64
	// Grad stores ∇_λ D(q‖q0), the gradient with respect to the λ of q, in
	// dst; nil allocates.
	Grad(dst []float64, q, q0 Dist) []float64
}

// Prox is the problem of one proximal step from q0 = From,
//
//	argmin_λ  Gradᵀλ + H(λ) + D(λ‖λ0)/Beta,
//
// which Solve solves. Closed forms are known for
//
//	D                 H      coordinates      step                                        known as
//	Euclidean         Zero   any              λ − βg                                      gradient descent
//	Euclidean         L1     any              soft(λ − βg, βw)                            ISTA
//	Euclidean         KLTo   Cholesky         see below                                   proximal gradient (Domke, 2020)
//	Diagonal(s)       Zero   any              λ − βg/s                                    AdaGrad and others, see Adaptive
//	Diagonal(s)       L1     any              soft(λ − βg/s, βw/s)
//	Bregman(F)        Zero   any              ∇F⁻¹(∇F(λ) − βg), F with InvGrad            mirror descent
//	KL                Zero   MeanParams       η − βg                                      natural gradient
//	KL                Zero   MeanCov          V⁻¹ + 2βG,  m − βVg                         natural gradient
//	KL                KLTo   MeanParams       rη + (1−r)(η_p − g)                         PG-SVI, main text
//	KL                KLTo   MeanCov          see below                                   PG-SVI, appendix
//	ReverseKL         Zero   Natural          μ − βg                                      mirror descent in A
//
// with r = 1/(1+β) and (g, G) the gradients with respect to (m, V). With N(μ, P⁻¹)
// the prior, the appendix is
//
//	V₊⁻¹ = rV⁻¹ + (1−r)(P + 2G),   m₊ = m − (1−r)[(1−r)P + rV⁻¹]⁻¹(P(m−μ) + g),
//
// and the step in Cholesky, for G with respect to L, any P, and a diagonal q with
// standard deviations s and p_i = P_ii,
//
//	m₊ = m − (P + I/β)⁻¹(P(m−μ) + g),   s₊ = (b + √(b² + 4(p + 1/β)))/(2(p + 1/β)),   b = s/β − G,
//
// while for a full one the diagonal of L solves such a quadratic equation column by
// column. Beta = +Inf is allowed in the rows with KLTo: 1/β = 0 and r = 0.
type Prox struct {
	Grad []float64  // g, an estimate of ∇f, in the coordinates of From
	H    Convex     // h; nil means Zero
	D    Divergence // must not be nil
	From Dist       // q0
	Beta float64    // β > 0; +Inf leaves D out

	halt *parallel.Halt // of the numeric step; nil is never
}

// Proxer is a Divergence or a Convex that knows proximal steps in closed form.
// The Divergence is asked first.
type Proxer interface {
	// Prox replaces q, which holds p.From on entry, by the solution of p and
	// reports true, or reports false without changing q if it does not know the
	// closed form for these H and D in the coordinates of q. If the minimiser is
	// not a valid λ it returns true and the error of SetParams. It does not keep p.
	Prox(q Dist, p *Prox) (known bool, err error)
}

// Solve replaces q, of the family and in the coordinates of p.From, by the
// solution. It asks D for a closed form, then H, and otherwise minimises
// numerically; closed says which it was. On an error q holds p.From. The error
// wraps ErrParam if D is nil, ErrNoProx if there is neither a closed form nor a
// chart, and ErrNotPosDef or ErrNotFinite if the minimiser is not a valid λ.
func (p *Prox) Solve(q Dist) (closed bool, err error) {
	p, err = p.begin(q)
	if err != nil {
		return false, err
	}
	if known, err := p.ask(q); known {
		return true, p.orBack(q, err)
	}
	return false, p.minimise(q)
}

// Numeric is Solve without the closed forms: it minimises by L-BFGS in the
// chart of q, which must be Charted, from p.From. It is the fallback for any pair
// (H, D) and the oracle of the closed forms. The error wraps ErrParam if D is nil,
// ErrNoProx if q has no chart, and ErrNotFinite if the objective is not finite at
// p.From or has no minimum that the descent finds; q then holds p.From.
func (p *Prox) Numeric(q Dist) error {
	p, err := p.begin(q)
	if err != nil {
		return err
	}
	return p.minimise(q)
}

// begin sets q to p.From and returns p with an H.
func (p *Prox) begin(q Dist) (*Prox, error) {
	if p.D == nil {
		return nil, fmt.Errorf("pgsvi: Prox.D is nil: %w", ErrParam)
	}
	if p.H == nil {
		with := *p
		with.H = Zero{}
		p = &with
	}
	return p, setDist(q, p.From)
}

// ask asks D and then H for the closed form.
func (p *Prox) ask(q Dist) (known bool, err error) {
	if x, ok := p.D.(Proxer); ok {
		if known, err := x.Prox(q, p); known {
			return true, err
		}
	}
	if x, ok := p.H.(Proxer); ok {
		return x.Prox(q, p)
	}
	return false, nil
}

// checkProx returns whether the pair (h, d) has a closed form at q, or an error
// wrapping ErrNoProx if it has no proximal step at all.
func checkProx(q Dist, h Convex, d Divergence) (closed bool, err error) {
	p := &Prox{Grad: make([]float64, q.NumParams()), H: h, D: d, From: q, Beta: 1}
	if known, _ := p.ask(q.Clone()); known {
		return true, nil
	}
	if _, ok := q.(Charted); !ok {
		return false, fmt.Errorf("pgsvi: h = %T with D = %T on %T has no closed form, and %T has no chart for a numeric step; implement Proxer or Charted: %w", h, d, q, q, ErrNoProx)
	}
	return false, nil
}

// setDist makes q equal to q0.
func setDist(q, q0 Dist) error {
	if e, ok := q.(ExpFamily); ok && e.setState(q0) {
		return nil
	}
	return q.SetParams(q0.Params(nil))
}

// orBack returns err, having put q back to p.From if it is not nil.
func (p *Prox) orBack(q Dist, err error) error {
	if err != nil {
		return errors.Join(err, setDist(q, p.From))
	}
	return nil
}

// minimise is the numeric step; q holds p.From.
func (p *Prox) minimise(q Dist) error {
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
		return p.orBack(c, fmt.Errorf("pgsvi: the objective of the numeric proximal step is %v at its start: %w", value(x0), ErrNotFinite))
	}
	gradient(slope, x)
	if _, kink := p.H.(absTerm); !kink {
		if end := floats.Norm(slope, math.Inf(1)); !(end <= 1e-3*math.Max(1, start)) {
			return p.orBack(c, fmt.Errorf("pgsvi: the numeric proximal step found no minimum; the gradient is still %.3g: %w", end, ErrNotFinite))
		}
	}
	return p.orBack(c, c.SetChart(x))
}
