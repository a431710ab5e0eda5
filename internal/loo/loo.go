// Package loo computes leave-one-out predictions from a Gaussian approximation of a posterior.
// LOO of the root package calls it.
//
// The prediction of an observation from all others has a closed form if the approximation is a
// prior times Gaussian sites: remove the site of the observation. Otherwise draws of the
// approximation are weighted (Draws).
//
//	cavities.go     remove sites from a Gaussian, and let the other sites respond
//	rows.go         cavities of linear models
//	sites.go        cavities of GPs
//	levels.go       all rows of a level of a grouping factor
//	mixture.go      posteriors that are integrated over hyperparameters
//	classes.go      cavities of softmax models
//	draws.go        importance sampling; weights.go has samplers for linear models
//	series.go       log p(y|w) of many rows as a polynomial of few weights
//	sample.go       log p(y|w) of many rows from a sample of the rows
package loo

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Result holds the predictions of each observation from all others, in nats. See LOO of the root
// package.
type Result struct {
	ELPD, SE, Err       float64
	Pointwise, PointErr []float64
	KHat                []float64
	Limit               float64
	Leverage            []float64
	Parameters          float64
	Influence           []float64
	Unresolved          []int
	M, V                []float64 // mean and variance in the cavities; nil if draws were used
}

// Likelihood holds the functions of a likelihood that cavities need in addition to the terms.
type Likelihood struct {
	// LogProb returns log ∫ p(y|η) N(η|m, v) dη in nats.
	LogProb func(y, m, v float64) float64
	// Quadratic is true if ∂² log p(y|η)/∂η² is the same for all responses and all η. Predictions
	// without an observation are then exact.
	Quadratic bool
	// Cost is the time of an expectation of log p(y|η) with its derivatives, in products of numbers,
	// which take about a nanosecond each. It is declared, because results that depend on a measured
	// time would have other bits in every run. Zero means that expectations need not be counted.
	Cost int
	// Share is the number of results that share the time for responses of sites, such as the parts of
	// a mixture. Zero means 1.
	Share int
}

// newResult returns a Result of n observations with the given total number of latent values.
func newResult(n, latents int) *Result {
	l := new(Result)
	for _, p := range []*[]float64{&l.Pointwise, &l.PointErr, &l.Leverage, &l.Influence} {
		*p = make([]float64, n)
	}
	if latents > 0 {
		l.M, l.V = make([]float64, latents), make([]float64, latents)
	}
	return l
}

// expectations returns the terms t at the means m and the variances v.
func expectations(ctx context.Context, t *term.Terms, m, v []float64) (*term.Marginals, error) {
	s := &term.Marginals{M: m, V: v}
	for _, p := range []*[]float64{&s.E, &s.Tg, &s.D1} {
		*p = make([]float64, len(m))
	}
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	return s, t.Expect(s, nil, term.Crew{Workers: runtime.GOMAXPROCS(0), Halt: &h})
}

// leaveOut returns the results of leaving out one of the terms t after the other. The function leave
// stores the results of term i, which has the given number of latent values. It returns false if it
// cannot leave out the term. respond then moves the sites of other terms.
func leaveOut(ctx context.Context, t *term.Terms, latents int,
	leave func(l *Result, i int) (resolved bool, err error), respond func(l *Result) error) (
	*Result, error) {
	n := t.Len()
	l := newResult(n, n*latents)
	err := parallel.Each(ctx, n, runtime.GOMAXPROCS(0), func(_, i int) error {
		defer parallel.At(&i, t.Name)
		resolved, err := leave(l, i)
		if !resolved {
			l.PointErr[i] = math.Inf(1)
			return err
		}
		if sum := l.Pointwise[i] + l.Influence[i]; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return fmt.Errorf("%s has log-probability %v, and an influence of %v, where it is left "+
				"out, at latent means of %v and variances of %v: %w", t.Describe(i), l.Pointwise[i],
				l.Influence[i], l.M[i*latents:(i+1)*latents], l.V[i*latents:(i+1)*latents],
				sentinel.ErrNotFinite)
		}
		return nil
	})
	if err == nil {
		err = l.resolve(t)
	}
	if err == nil {
		err = respond(l)
	}
	return l.finish(ctx, t.Weight, err)
}

// resolve lists the observations with PointErr +Inf as unresolved. It returns an error if that
// leaves no observation.
func (l *Result) resolve(t *term.Terms) error {
	for i, e := range l.PointErr {
		if math.IsInf(e, 1) {
			l.Unresolved = append(l.Unresolved, i)
		}
	}
	if len(l.Unresolved) == len(l.PointErr) {
		return fmt.Errorf("%s as all others, leaves no more than rounding of the precision of its "+
			"linear predictor when it is left out: give the weights a prior, or fewer columns: %w",
			t.Describe(0), sentinel.ErrNotPosDef)
	}
	return nil
}

// split returns up to most resolved observations in known, the most influential first, and the
// other resolved observations in rest, by index.
func (l *Result) split(most int) (known, rest []int) {
	var influence []float64
	for i := range l.PointErr {
		if !l.unresolved(i) {
			known, influence = append(known, i), append(influence, l.Influence[i])
		}
	}
	if n := len(known); most < n && !floats.HasNaN(influence) {
		cut := dense.Select(influence, n-most)
		ties := 0 // known observations at the smallest influence
		for _, x := range influence[n-most:] {
			if x == cut {
				ties++
			}
		}
		all := known
		known = make([]int, 0, most)
		for _, i := range all {
			switch x := l.Influence[i]; {
			case x > cut:
				known = append(known, i)
			case x == cut && ties > 0:
				ties--
				known = append(known, i)
			default:
				rest = append(rest, i)
			}
		}
	}
	slices.SortFunc(known, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.Influence[b], l.Influence[a]), cmp.Compare(a, b))
	})
	most = min(most, len(known))
	return known[:most], append(known[most:], rest...)
}

// extend estimates the errors of the observations in rest, in proportion to their influence. The
// ratio comes from the observations in known, whose total error is err.
func (l *Result) extend(known, rest []int, err float64, t *term.Terms) {
	var sum, influence float64
	for _, i := range known {
		sum += l.PointErr[i]
		influence += l.Influence[i]
	}
	if l.Err = err; math.IsInf(sum, 1) {
		l.Err = sum
	}
	if !(influence > 0) {
		return
	}
	for _, i := range rest {
		_, _, w, _ := t.Term(i)
		l.PointErr[i] = sum / influence * l.Influence[i]
		l.Err += w * l.PointErr[i]
	}
}

// finish returns l with its sums if err, the error of its computation, is nil and ctx has not ended.
func (l *Result) finish(ctx context.Context, weight []float64, err error) (*Result, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("canceled while %s: %w", while, context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	l.add(weight)
	return l, nil
}

// add computes the sums over the observations.
func (l *Result) add(weight []float64) {
	var n, mean, squares float64
	for i, x := range l.Pointwise {
		if l.unresolved(i) {
			continue
		}
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		n += w
		l.ELPD += w * x
		d := x - mean // West (1979)
		mean += d * w / n
		squares += w * d * (x - mean)
	}
	if l.SE = math.Inf(1); n > 1 {
		l.SE = math.Sqrt(math.Max(0, n*squares/(n-1)))
	}
	l.Parameters = floats.Sum(l.Leverage)
}

// unresolved reports whether observation i is unresolved.
func (l *Result) unresolved(i int) bool {
	_, found := slices.BinarySearch(l.Unresolved, i)
	return found
}
