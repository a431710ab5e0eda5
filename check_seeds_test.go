package pgsvi

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// checkSeed fits a random problem of TestSeeds, and returns what is said of the posterior.
func checkSeed(seed uint64) (name string, p *trustProblem, l *LOO, loo error, k *PSIS, psis error) {
	ctx, rng := context.Background(), rand.New(rand.NewPCG(seed, 13))
	s := subjects[rng.IntN(len(subjects))]
	p = randomProblem(rng)
	if s.generate != nil {
		s.generate(rng, p)
	}
	p.sparse = p.kernel == nil && chance(rng, 0.2)
	switch s.name {
	case "gp":
		g, err := NewGP(p.x, p.y, p.kernel, p.lik, nil)
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		q, _, err := g.Fit(ctx, nil)
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		l, loo = g.LOO(ctx, q)
		k, psis = g.PSIS(ctx, nil, q, 100)
	case "sparse":
		g, err := p.sparseGP()
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		q, _, err := g.Fit(ctx, nil)
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		l, loo = g.LOO(ctx, q)
	default:
		cov := map[string]Covariance{"diagonal": DiagonalCovariance, "low-rank": LowRankCovariance}[s.name]
		if cov == 0 {
			cov = FullCovariance
		}
		g, err := p.glm(cov)
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		if s.name == "objective" {
			o, err := g.Objective()
			if err != nil {
				return s.name, p, nil, nil, nil, nil
			}
			q, _, err := o.Fit(ctx, nil)
			if err != nil {
				return s.name, p, nil, nil, nil, nil
			}
			l, loo = o.LOO(ctx, nil, q, 0)
			k, psis = o.PSIS(ctx, nil, q, 100)
			break
		}
		q, _, err := g.Fit(ctx, nil)
		if err != nil {
			return s.name, p, nil, nil, nil, nil
		}
		l, loo = g.LOO(ctx, q)
		k, psis = g.PSIS(ctx, nil, q, 100)
	}
	return s.name, p, l, loo, k, psis
}

// TestCheckSeeds: whatever was fitted, in any units, nothing that is said of it is NaN, and what cannot be said is an error.
func TestCheckSeeds(t *testing.T) {
	t.Parallel()
	seeds, failed := shorter(40, 10), 0
	const few = 848 // two rows, one of them of next to no weight
	for seed := range uint64(seeds + 1) {
		if seed == uint64(seeds) {
			seed = few
		}
		name, p, l, loo, k, psis := checkSeed(seed)
		for what, err := range map[string]error{"LOO": loo, "PSIS": psis} {
			if err == nil {
				continue
			}
			failed++
			t.Logf("seed %d, %s, %v: %s: %v", seed, name, p, what, err)
			if !prefixedOnce(err) || !slices.ContainsFunc(trustSentinels, func(s error) bool { return errors.Is(err, s) }) {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
		if l != nil {
			for i, x := range l.Pointwise {
				if s := x + l.PointErr[i] + l.Leverage[i] + l.Influence[i]; math.IsNaN(s) || math.IsInf(x, 0) {
					t.Errorf("seed %d, %s, %v: datum %d has %v ± %v, leverage %v, influence %v", seed, name, p, i, x, l.PointErr[i], l.Leverage[i], l.Influence[i])
					break
				}
			}
			if s := l.ELPD + l.Err + l.SE + l.Parameters; math.IsNaN(s) {
				t.Errorf("seed %d, %s: %v", seed, name, l)
			}
		}
		if k != nil {
			s := k.KHat + k.ESS + k.LogZ + k.LogZErr
			for j, m := range k.Mean {
				s += m + k.SD[j] + k.MeanErr[j] + k.SDErr[j]
			}
			if math.IsNaN(s) {
				t.Errorf("seed %d, %s, %v: %v, means %v ± %v, sds %v ± %v", seed, name, p, k, k.Mean, k.MeanErr, k.SD, k.SDErr)
			}
		}
	}
	if failed > seeds/10 {
		t.Errorf("%d of %d cannot be checked", failed, seeds)
	}
}
