package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/search"
	"gonum.org/v1/gonum/floats"
)

// This file implements LearnOptions.Integrate. After a search, learn.Run.Integrate chooses
// hyperparameters θ_k with probabilities p_k. The model is fitted at each of them, and its
// posteriors become the parts of a mixture.

// tinyParts is the probability of the least probable parts of a mixture, which it leaves out.
const tinyParts = 1e-4

// checkIntegrate returns an error if o requests an integration over more hyperparameters than
// possible.
func (s *learnSpace) checkIntegrate(o *LearnOptions) error {
	if n := len(s.integrable()); o.Integrate && n > learn.Most {
		return fmt.Errorf("pgsvi: LearnOptions.Integrate integrates over at most %d "+
			"hyperparameters, but %d are learned; add some to LearnOptions.Fixed: %w", learn.Most, n,
			ErrParam)
	}
	return nil
}

// integrable returns the coordinates over which LearnOptions.Integrate integrates. The covariances of
// groups of a Softmax are integrated over at each point (glm_groups_classes.go), or follow.
func (s *learnSpace) integrable() (over []int) {
	for i, at := range s.free {
		if !s.effect(at) {
			over = append(over, i)
		}
	}
	return over
}

// integrated is the result of an integration: the posteriors at some θ with their probabilities,
// which are nil if the density has no value.
type integrated[P any] struct {
	prob  []float64
	parts []P
}

// integrate integrates over the hyperparameters that the search st has found, and stores the results
// in learned. Function at fits the model at θ and returns −ELBO, with F at +Inf if there is no fit,
// and the posterior. An error that wraps ErrNotFinite or ErrNotPosDef counts as no fit.
func integrate[P any](ctx context.Context, st *learnStepper, by *Solver, learned *Learned,
	at func(theta []float64) (search.Point, P, error)) (*integrated[P], error) {
	if !st.run.Done || st.run.Stale || learned.Fit == nil || ctx.Err() != nil {
		learned.Warnings = append(learned.Warnings, "the posterior is not integrated over the "+
			"hyperparameters, because the search has not ended; continue it with Solver.Resume of "+
			"Learned.Search")
		return nil, nil
	}
	env := &Env{workers: 1}
	if by != nil {
		env.workers = max(1, by.Workers)
	}
	defer st.begin(ctx, env).Forget()
	parts := map[int]P{}
	over := st.space.integrable()
	rule, err := st.run.Integrate(over, func(k int, theta []float64) (x search.Point, err error) {
		if ctx.Err() != nil {
			return x, fmt.Errorf("pgsvi: canceled while integrating over hyperparameters: %w",
				context.Cause(ctx))
		}
		x, part, err := at(theta)
		if errors.Is(err, ErrNotFinite) || errors.Is(err, ErrNotPosDef) {
			return search.Point{F: math.Inf(1)}, nil
		}
		if err == nil && !math.IsInf(x.F, 1) {
			parts[k] = part
		}
		return x, err
	})
	if err != nil {
		return nil, prefixed(err)
	}
	if rule.Prob == nil {
		learned.Warnings = append(learned.Warnings, "the posterior is not integrated over the "+
			"hyperparameters, because it has no density at their best values")
		return nil, nil
	}
	if !rule.Complete {
		learned.Warnings = append(learned.Warnings, "the integral over the hyperparameters covers "+
			"only a part of their posterior, because the data hardly determine them; set "+
			"LearnOptions.Prior or LearnOptions.Fixed")
	}
	m, least := &integrated[P]{}, leastProb(rule.Prob)
	for k, p := range rule.Prob {
		if p >= least && p > 0 {
			m.prob, m.parts = append(m.prob, p), append(m.parts, parts[k])
		}
	}
	floats.Scale(1/floats.Sum(m.prob), m.prob)
	learned.Points = len(m.prob)
	_, sd, lo, hi := learn.Spans(rule, normal95)
	for i, c := range over {
		p := &learned.Params[st.space.free[c]]
		p.SD = sd[i]
		p.Lo, p.Hi = p.value(max(lo[i], st.run.Search.Lo[c])), p.value(min(hi[i], st.run.Search.Hi[c]))
	}
	return m, nil
}

// leastProb returns the largest number such that smaller elements of prob sum to at most tinyParts.
func leastProb(prob []float64) (least float64) {
	sum := 0.0
	for _, p := range slices.Sorted(slices.Values(prob)) {
		if least = p; sum+p > tinyParts {
			break
		}
		sum += p
	}
	return least
}

// integrateSolver returns the Solver of the fits of an integration.
func integrateSolver(by *Solver) *Solver {
	run := &Solver{Goal: learn.IntegrateSlack}
	if by != nil {
		run.Workers, run.Recover = by.Workers, by.Recover
	}
	return run
}
