package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/diff"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"gonum.org/v1/gonum/floats"
)

// This file compares a Grad with a Value of the caller along one direction. The set-up of a run
// does so once for f, h and D that this package did not write, and a numeric step does so if it finds
// no minimum. A wrong Grad would otherwise end a run far from the optimum without an error.

// slopeCheck compares the gradient of a function at q with differences of its values.
type slopeCheck struct {
	name  string // the name of the function in errors
	check string // ends the error with the name of a more detailed test, or is empty
	value func(q Dist) float64
	grad  func(dst []float64, q Dist) []float64
}

// along returns an error that wraps ErrParam if the slopes at q along the direction u differ. The
// direction is in the chart of q, or in λ if q is not Charted. It changes q and restores it.
func (s slopeCheck) along(q Dist, u []float64) error {
	norm := floats.Norm(u, 2)
	if !(norm > 0) || math.IsInf(norm, 0) {
		return nil
	}
	lambda := q.Params(nil)
	defer func() { _ = q.SetParams(lambda) }()
	c, charted := q.(Charted)
	x, g := lambda, s.grad(nil, q)
	if charted {
		x, g = c.Chart(nil), c.ChartGrad(nil, g)
	}
	at := func(t float64) float64 {
		to := floats.AddScaledTo(make([]float64, len(x)), x, t/norm, u)
		if charted && c.SetChart(to) != nil || !charted && q.SetParams(to) != nil {
			return math.NaN()
		}
		return s.value(q)
	}
	stated := floats.Dot(g, u) / norm
	found, ok := diff.Agrees(at, stated)
	if ok {
		return nil
	}
	where := "λ"
	if charted {
		where = "the chart of q"
	}
	floats.Scale(1/norm, u)
	return fmt.Errorf("pgsvi: %s: the gradient gives a slope of %.6g along the direction %s in %s, "+
		"but differences of the value give %.6g; correct the gradient%s: %w", s.name, stated,
		estimate.Abridged(u), where, found, s.check, ErrParam)
}

// slopesOf returns the slopeChecks of h and of d from q0, each unless this package wrote it.
func slopesOf(h Convex, d Divergence, q0 Dist) (checks []slopeCheck) {
	switch h.(type) {
	case entropic, noTerm, l1Term, laplacePrior, whole, *survey:
	default:
		checks = append(checks, slopeCheck{"h = " + spell(h),
			", which CheckConvex tests in more detail", h.Value, h.Grad})
	}
	switch d.(type) {
	case forwardKL, reverseKL, symKL, euclidean, diagonalMetric, divergenceFunc:
	default:
		checks = append(checks, slopeCheck{"D = " + spell(d),
			", which CheckDivergence tests in more detail",
			func(q Dist) float64 { return d.Value(q, q0) },
			func(dst []float64, q Dist) []float64 { return d.Grad(dst, q, q0) }})
	}
	return checks
}

// doubtGradients is the doubt of a Prox in a run.
func doubtGradients(p *Prox, q Dist, slope []float64) error {
	for _, c := range slopesOf(p.H, p.D, p.From) {
		if err := c.along(q, slope); err != nil {
			return err
		}
	}
	return nil
}

// checkGradients returns an error if f, h or d is the caller's, and its gradient contradicts its values
// near q, along one random direction.
func checkGradients(q Dist, f Smooth, h Convex, d Divergence) error {
	if l, ok := f.(linearized); ok {
		f, h = l.f, l.h
	}
	var checks []slopeCheck
	if own, ok := f.(smoothFunc); ok && own.exact {
		checks = append(checks, own.slope(q))
	}
	if own, ok := f.(*expectedTerms); ok {
		if err := own.checkGrad(q); err != nil {
			return err
		}
	}
	checks = append(checks, slopesOf(h, d, q)...)
	if len(checks) == 0 {
		return nil
	}
	near := neighbors(q, 1) // at q itself the gradients of D and of h may be zero
	rng := rand.New(rand.NewPCG(0x736c6f7065, 1))
	u := make([]float64, q.NumParams())
	for i := range u {
		u[i] = rng.NormFloat64()
	}
	for _, c := range checks {
		if len(near) == 0 {
			return nil
		}
		if err := c.along(near[0], u); err != nil {
			return err
		}
	}
	return nil
}

// mostTerms is the number of terms of a log-likelihood whose gradient is checked.
const mostTerms = 200

// checkGrad returns an error that wraps ErrParam if the estimator may use the gradient of the
// log-likelihood, and that gradient contradicts its values at a draw from q along a random direction.
func (f *expectedTerms) checkGrad(q Dist) error {
	switch f.est.(type) {
	case scoreFunction, exactEstimator, gaussHermite:
		return nil // they use values only
	}
	batch := make([]int, min(f.ll.Len(), mostTerms))
	for i := range batch {
		batch[i] = i * f.ll.Len() / len(batch)
	}
	l, rng := f.ll.Batch(batch), rand.New(rand.NewPCG(0x67726164, 1))
	z := q.Rand(nil, rng)
	g := make([]float64, len(z))
	if !l.GradLogProb(g, z) {
		return nil
	}
	u := make([]float64, len(z))
	for i := range u {
		u[i] = rng.NormFloat64()
	}
	floats.Scale(1/floats.Norm(u, 2), u)
	to, stated := make([]float64, len(z)), floats.Dot(g, u)
	found, ok := diff.Agrees(func(t float64) float64 {
		return l.LogProb(floats.AddScaledTo(to, z, t, u))
	}, stated)
	if ok {
		return nil
	}
	return fmt.Errorf("pgsvi: the log-likelihood at z = %s has the slope %.6g along %s, but its gradient "+
		"gives %.6g; correct the gradient, such as LogLik.Grad: %w", estimate.Abridged(z), found,
		estimate.Abridged(u), stated, ErrParam)
}

// slope returns the slopeCheck of the first term. An error of the function at another q than the
// initial one counts as an unknown value.
func (f smoothFunc) slope(q Dist) slopeCheck {
	dst := make([]float64, q.NumParams())
	eval := func(q Dist) float64 {
		v, err := f.Grad(context.Background(), &Env{}, dst, q, []int{0})
		if err != nil {
			return math.NaN()
		}
		return v
	}
	return slopeCheck{"f = SmoothFunc", "", eval, func(g []float64, q Dist) []float64 {
		eval(q)
		return append(g[:0], dst...)
	}}
}
