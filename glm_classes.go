package pgsvi

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// checkClasses returns an error if the options are none for a Softmax, or those of one without it.
func (g *GLM) checkClasses() error {
	k, o := g.lin.Terms.K, &g.opt
	switch {
	case k <= 1 && o.ClassNames != nil:
		return fmt.Errorf("pgsvi: GLMOptions.ClassNames of %s, which has no classes: %w", typeName(likOf(g.lin.Terms)), ErrParam)
	case k <= 1:
		return nil
	case o.ClassNames != nil && len(o.ClassNames) != k:
		return fmt.Errorf("pgsvi: %d GLMOptions.ClassNames for %d classes: %w", len(o.ClassNames), k, ErrShape)
	case o.Covariance > FullCovariance:
		return fmt.Errorf("pgsvi: Softmax with a %v covariance; each class has a full one: %w", o.Covariance, ErrParam)
	case o.MeanUpdate != MainText:
		return fmt.Errorf("pgsvi: Softmax with the MeanUpdate of the appendix; it has that of the main text: %w", ErrParam)
	case o.Prior != nil && !o.Prior.isDiagonal():
		return fmt.Errorf("pgsvi: Softmax with a GLMOptions.Prior that has correlations; use a diagonal one, which is that of each class: %w", ErrParam)
	}
	o.ClassNames = slices.Clone(o.ClassNames)
	_, _, err := siteEstimator(o.Estimator, likOf(g.lin.Terms))
	return err
}

// checkClassMemory returns an error if K classes of n rows, which take so many bytes, and d weights
// take more memory than they may.
func (g *GLM) checkClassMemory(rows float64, n, d int) error {
	if g.opt.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d: %w", g.opt.MaxMemory, ErrParam)
	}
	k := float64(g.lin.Terms.K)
	need := rows + memory.Bytes(site.ContrastMatrices*k, d, d) + memory.Bytes(site.ContrastVectors*k, 1, n)
	return checkMemory(g.opt.MaxMemory, need, fmt.Sprintf("a GLM of %d rows, %d weights and %d classes", n, d, g.lin.Terms.K),
		"use fewer classes or columns, or raise GLMOptions.MaxMemory")
}

// newContrastStepper returns a Stepper of l, of K latent values a term, at its prior.
func newContrastStepper(ctx context.Context, l *site.LinearModel, env *Env, d Divergence, o linearOptions) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: %s with %s, which has steps under KL alone: %w", spell(d), typeName(likOf(l.Terms)), ErrNoProx)
	}
	s, err := newSiteStepper(l.Terms, o.estimator, o.update)
	if err != nil {
		return nil, err
	}
	s.identify = l.Digest
	own := *l
	own.Terms = s.terms
	s.build = func(c term.Crew) (site.Algebra, error) { return site.NewContrastAlgebra(&own, c) }
	return s.started(ctx, env)
}

// started returns s at its prior.
func (s *siteStepper) started(ctx context.Context, env *Env) (Stepper, error) {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	if err := s.start(term.Crew{Workers: env.Workers(), Halt: &s.halt}); err != nil {
		return nil, err
	}
	return s, nil
}

// estimateMany is estimate for terms of several latent values: exactly.
func estimateMany(t *term.Terms, x *term.Estimates, batch []int) error {
	k := t.K
	var scratch []float64
	for i := 0; i < len(x.M)/k; i++ {
		n, lo, hi := dense.Index(batch, i), i*k, (i+1)*k
		clear(x.E[lo:hi])
		x.E[lo], _, scratch = t.ExpectSeveral(n, x.M[lo:hi], x.V[lo:hi], x.D1[lo:hi], x.D2[lo:hi], scratch)
		if math.IsNaN(x.E[lo]) {
			return fmt.Errorf("%s: %w", t.Explain(n, x.M[lo], x.V[lo]), ErrNotFinite)
		}
	}
	return nil
}

// weightNames returns the names of all weights, new.
func (p *GLMPosterior) weightNames() []string {
	k := latentsOf(p.lik)
	if k == 1 {
		return slices.Clone(p.names)
	}
	var names []string
	for c := range k {
		class := strconv.Itoa(c)
		if p.opt.ClassNames != nil {
			class = p.opt.ClassNames[c]
		}
		for _, name := range p.names {
			names = append(names, "class="+class+" · "+name)
		}
	}
	return names
}

// latentClasses is latent for the scores of a Softmax.
func (p *GLMPosterior) latentClasses(m, v []float64, x mat.Matrix) {
	k, cov := latentsOf(p.lik), p.cov.(*gauss.Contrasts)
	var all *design.Matrix
	s, sparse := x.(*Sparse)
	if sparse {
		all = newDesign(s, p.opt.Intercept)
	}
	parallel.For(len(m)/k, predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		g, index := all, make([]int, hi-lo)
		for i := range index {
			index[i] = lo + i
		}
		if !sparse {
			g, index = designOf(x, lo, hi, p.opt.Intercept), nil
		}
		cov.Means(m[lo*k:hi*k], p.mean, g, index)
		cov.Variances(v[lo*k:hi*k], g, index)
		finiteOrNaN(m[lo*k:hi*k], v[lo*k:hi*k])
	})
}
