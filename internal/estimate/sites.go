package estimate

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Terms holds terms log p(y_i|x_iᵀz) with weights.
type Terms struct {
	Rows
	Lik Likelihood
}

// Likelihood is p. It is also a Differentiable if its derivatives in η are known.
type Likelihood interface {
	LogProb(y, eta float64) float64
}

// Differentiable has the method of pgsvi.Differentiable.
type Differentiable interface {
	Likelihood
	Derivs(y, eta float64) (d1, d2 float64)
}

// Rows holds the data of Terms. Site returns the term of the data to which site i belongs, for error
// messages, and x_i, y_i and w_i. The caller must not change x_i.
type Rows interface {
	Len() int
	Site(i int) (term int, x []float64, y, weight float64)
}

// Hermite returns the expectation of a term by the rule r, which integrates under N(0, 1).
func Hermite(r expect.Rule, lik Likelihood, y, m, v float64) term.Expectation {
	var e term.Expectation
	sd := math.Sqrt(v)
	for i, x := range r.X {
		e.Value += r.W[i] * lik.LogProb(y, m+sd*x)
	}
	for i, x := range r.X {
		l := r.W[i] * (lik.LogProb(y, m+sd*x) - e.Value)
		e.D1 += l * x / sd
		e.D2 += l * (x*x - 1) / v
	}
	return e
}

// Expect returns E[log p(y|η)] under N(m, v), with its derivatives.
type Expect func(y, m, v float64) term.Expectation

// Grad adds up the gradients of the sites, each under its own marginal. With the first two
// derivatives α and γ of the expectation in the mean of η = xᵀz, ∇_m = αx and ∇_V = ½γxxᵀ.
func (s *Terms) Grad(ctx context.Context, dst []float64, n normal.Form,
	of Expect) (float64, error) {
	gm, gv := make([]float64, n.Dim()), make([]float64, n.NumGradV())
	var value float64
	var i int
	defer parallel.At(&i, s.name)
	for i = range s.Len() {
		if i%every == 0 && ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		term, x, y, w := s.Site(i)
		m, v := n.Marginal(x)
		e := of(y, m, v)
		if sum := e.Value + e.D1 + e.D2; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return math.NaN(), fmt.Errorf("pgsvi: %s: %w", s.explain(term, y, m, v),
				sentinel.ErrNotFinite)
		}
		value += w * e.Value
		floats.AddScaled(gm, w*e.D1, x)
		n.AddOuter(gv, 0.5*w*e.D2, x, x)
	}
	n.FromMomentGrad(dst, gm, gv)
	return value, nil
}

// name returns the name of a site in messages.
func (s *Terms) name(i int) string {
	term, _, y, _ := s.Site(i)
	return fmt.Sprintf("term %d, with label %v", term, y)
}

// Value returns the sum of the expectations and a bound on its error. If a term has no finite
// expectation, the error wraps ErrNotFinite.
func (s *Terms) Value(ctx context.Context, q normal.Form, of Expect) (value, bound float64,
	err error) {
	var i int
	defer parallel.At(&i, s.name)
	for i = range s.Len() {
		if i%every == 0 && ctx.Err() != nil {
			return math.NaN(), math.NaN(), context.Cause(ctx)
		}
		n, x, y, w := s.Site(i)
		m, v := q.Marginal(x)
		e := of(y, m, v)
		if math.IsNaN(e.Value) || math.IsInf(e.Value, 0) {
			return e.Value, math.NaN(), fmt.Errorf("pgsvi: %s: %w", s.explain(n, y, m, v),
				sentinel.ErrNotFinite)
		}
		value += w * e.Value
		bound += math.Abs(w) * e.Err
	}
	return value, bound, nil
}

// explain describes why a term has no finite expectation under N(m, v).
func (s *Terms) explain(n int, y, m, v float64) string {
	if eta, l, ok := term.HoleIn(s.Lik.LogProb, y, m, v); ok {
		return fmt.Sprintf("term %d, with label %v, has log-likelihood %v at η = %.6g; %s", n, y, l,
			eta, term.Remedy(l))
	}
	return fmt.Sprintf("term %d, with label %v, has an expectation that overflows under N(%.4g, "+
		"%.4g)", n, y, m, v)
}

// addDerivs adds w times the gradient and half the Hessian of the sites at z. It reports false if
// they are not finite or ctx is done.
func (s *Terms) addDerivs(ctx context.Context, n normal.Form, gm, gv []float64, w float64,
	z []float64) bool {
	lik := s.Lik.(Differentiable)
	var i int
	defer parallel.At(&i, s.name)
	for i = range s.Len() {
		if i%every == 0 && ctx.Err() != nil {
			return false
		}
		_, x, y, weight := s.Site(i)
		d1, d2 := lik.Derivs(y, floats.Dot(x, z))
		if sum := d1 + d2; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return false
		}
		floats.AddScaled(gm, w*weight*d1, x)
		n.AddOuter(gv, 0.5*w*weight*d2, x, x)
	}
	return true
}
