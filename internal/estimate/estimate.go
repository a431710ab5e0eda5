// Package estimate computes expectations E_q[l(z)] and their gradients ∇_λ for the estimators of
// the root package: from draws of q, by scores (score.go) or along paths (path.go), by quadrature
// over a q of one dimension (quadrature.go), and exactly for terms that see z through one number
// each (sites.go).
package estimate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"
)

// Integrand has the methods of pgsvi.Integrand.
type Integrand interface {
	Dim() int
	LogProb(z []float64) float64
	GradLogProb(dst, z []float64) bool
}

// Explainer is an Integrand of several terms that can name the term that caused an error.
type Explainer interface {
	// ExplainTerm describes the first term whose value at z is not finite, or whose gradient is
	// not if grad is true. It returns "" if there is no such term.
	ExplainTerm(z []float64, grad bool) string
}

// Dist lists the methods of pgsvi.Dist that all estimates use.
type Dist interface {
	Dim() int
	NumParams() int
	Score(dst, z []float64) []float64
	Rand(dst []float64, rng *rand.Rand) []float64
}

// Coordinates turns gradients in η or μ of an exponential family into gradients in λ.
type Coordinates interface {
	FromMeanGrad(dst, g []float64) []float64
	FromNaturalGrad(dst, g []float64) []float64
}

// Integral is E_q[l].
type Integral struct {
	Q       Dist
	Form    normal.Form    // set if q is a Gaussian
	Member  *expfam.Member // set if q belongs to another exponential family
	Coords  Coordinates    // coordinates of Member
	L       Integrand
	Sites   *Terms // the terms of l if each sees z through one number, else nil
	Workers int    // number of goroutines that call l
}

// every is the number of terms between two checks of a context.
const every = 16

// bad returns the error for an l that has the given value at z, or a gradient that is not finite.
func (e *Integral) bad(z []float64, value float64, grad bool) error {
	what := ""
	if x, ok := e.L.(Explainer); ok {
		what = x.ExplainTerm(z, grad)
	}
	if what == "" { // every term is finite, so the sum overflows
		what = fmt.Sprintf("the log-likelihood is %v at z = %s", value, Abridged(z))
	}
	if grad {
		return fmt.Errorf("pgsvi: %s: %w", what, sentinel.ErrNotFinite)
	}
	return fmt.Errorf("pgsvi: %s; %s: %w", what, term.Remedy(value), sentinel.ErrNotFinite)
}

// Abridged formats the first elements of z.
func Abridged(z []float64) string {
	const most = 6
	if len(z) <= most {
		return fmt.Sprintf("%.6g", z)
	}
	first := fmt.Sprintf("%.6g", z[:most])
	return fmt.Sprintf("%s … %d more]", strings.TrimSuffix(first, "]"), len(z)-most)
}

// draws holds draws z from q. For a Gaussian it also holds the standard normal ε of each draw,
// and for an exponential family T(z).
type draws struct {
	z, eps  [][]float64
	t       [][]float64
	scratch []float64
}

func (e *Integral) draw(n int, rng *rand.Rand) draws {
	d := e.Q.Dim()
	s := draws{z: dense.NewRows(n, d), scratch: make([]float64, d)}
	switch {
	case e.Member != nil:
		s.t = dense.NewRows(n, e.Member.NumParams())
		for i, z := range s.z {
			e.Member.F.Rand(z, s.t[i], e.Member.Eta, rng)
		}
	case e.Form == nil:
		for _, z := range s.z {
			e.Q.Rand(z, rng)
		}
	default:
		s.eps = dense.NewRows(n, d)
		for i, eps := range s.eps {
			for j := range eps {
				eps[j] = rng.NormFloat64()
			}
			copy(s.z[i], eps)
			e.Form.Transform(s.z[i])
		}
	}
	return s
}

// values returns l(z) for each z. Workers share the draws, and one worker computes each value, so
// the result does not depend on their number. It returns the cause when ctx is done. If a value
// is not finite, the error wraps ErrNotFinite and names the term and z.
func (e *Integral) values(ctx context.Context, zs [][]float64) ([]float64, error) {
	dst := make([]float64, len(zs))
	if e.Workers > 1 {
		parallel.For(len(zs), 1, e.Workers, func(_, i, _ int) {
			if ctx.Err() == nil {
				dst[i] = e.L.LogProb(zs[i])
			}
		})
	} else {
		for i, z := range zs {
			if ctx.Err() != nil {
				break
			}
			dst[i] = e.L.LogProb(z)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if i, ok := dense.AllFinite(dst); !ok {
		return nil, e.bad(zs[i], dst[i], false)
	}
	return dst, nil
}

// MostDraws limits the number of draws that an estimate chooses by itself.
const MostDraws = 4096

// ValueDraws returns the number of draws of Value in d dimensions: at least n, and enough for a
// quadratic control variate up to a limit.
func ValueDraws(d, n int) int {
	return max(n, min(variate.Draws*variate.Coefficients(d, true), MostDraws))
}

// Value returns an estimate of E_q[l] and its standard error from at least n draws. It subtracts
// a control variate, which is quadratic if q is Gaussian, and linear in T(z) otherwise.
func (e *Integral) Value(ctx context.Context, n int, rng *rand.Rand) (mean, stderr float64,
	err error) {
	n = ValueDraws(e.Q.Dim(), n)
	s := e.draw(n, rng)
	values, err := e.values(ctx, s.z)
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	fit := variate.Quadratic{Regression: variate.Regression{Ctx: ctx}}
	var offset float64
	switch {
	case e.Form != nil && fit.Fit(values, s.eps, true), e.Member != nil && fit.FitStat(values, s.t,
		e.Member.Mu):
		offset = fit.Coef[0]
	}
	if ctx.Err() != nil {
		return math.NaN(), math.NaN(), context.Cause(ctx)
	}
	mean = floats.Sum(values) / float64(n)
	var ss float64
	for _, v := range values {
		ss += (v - mean) * (v - mean)
	}
	return offset + mean, math.Sqrt(ss / float64(n) / float64(n-1)), nil
}

// familyMean accumulates the mean of gradients in η, and the variance if it is wanted.
type familyMean struct {
	e   *Integral
	dst []float64
	g   []float64 // the next gradient
	acc *variate.Moments
	n   float64
}

func (e *Integral) newMean(dst, variance []float64) *familyMean {
	a := &familyMean{e: e, dst: dst, g: make([]float64, len(dst))}
	clear(dst)
	if variance != nil {
		a.acc = variate.NewMoments(dst, variance)
	}
	return a
}

// add adds the gradient g.
func (a *familyMean) add() {
	if a.acc != nil {
		a.acc.Add(a.e.Coords.FromNaturalGrad(a.g, a.g))
		return
	}
	a.n++
	floats.Add(a.dst, a.g)
}

// finish stores the mean in dst as a gradient in λ. It adds the gradient in μ of the fitted
// control variate, if there is one.
func (a *familyMean) finish(fit *variate.Quadratic, fitted bool) {
	if a.acc != nil {
		a.acc.Finish()
	} else {
		floats.Scale(1/a.n, a.dst)
		a.e.Coords.FromNaturalGrad(a.dst, a.dst)
	}
	if fitted {
		floats.Add(a.dst, a.e.Coords.FromMeanGrad(a.g, fit.Coef[1:]))
	}
}
