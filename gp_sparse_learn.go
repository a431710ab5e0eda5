package pgsvi

import (
	"context"
	"fmt"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Learning the hyper-parameters of a SparseGP, from trials on two data sets of a million rows and
// fifty thousand.
const (
	// nats that the search may leave, for each row beyond tolRows: predictions show no more
	rowTol    = 2e-5
	tolRows   = 5000
	priorRows = 1000 // rows of more than gram.MedianRows that default priors are made by
)

// sparseGPLearner is the Learner of a SparseGP.
type sparseGPLearner struct {
	g     *SparseGP
	opt   LearnOptions
	space *learnSpace
	rows  *sparse.Rows
}

// Learn fits the hyper-parameters of kernel and likelihood (empirical Bayes, type-II maximum
// likelihood), minimising −ELBO − log prior. It returns the SparseGP with the learned values, its
// posterior, and a Learned with intervals and warnings. See GP.Learn for the parameters,
// defaults, options and errors. With more than 5000 rows a sample determines the default priors.
// For a Softmax see there.
//
// Zero opt.Tol means 1e-4 nats, and 2e-5 nats more for each row beyond 5000: 0.9 nats for 50,000
// rows. On generated labels the log loss of predictions then differs by less than 0.001 bits a row
// from that of a search to 1e-4 nats. Learned.Passes counts the passes over all rows; a pass over a
// part counts as that part.
func (g *SparseGP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*SparseGP, *SparseGPPosterior, *Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the hyper-parameters of g. The errors are those of
// Learn.
//
// The inducing inputs are those of SparseGPOptions.Inducing. Without these they are chosen again
// in each stage of the search: on 3000 rows, on the 50,000 of a sample or a quarter of all, and
// on all. Those of 10,000 rows or more are kept. The objective of an iteration is that of the
// rows of its stage.
//
// At each θ a run takes natural-gradient steps, each a pass over the rows of the stage, until the
// next promises little enough. They start from the nearest earlier θ, where q says what the rows
// tell of the latent values at the inducing inputs: that changes little with θ, so that one or two
// passes do. The last of them also computes the derivatives.
func (g *SparseGP) Learner(opt *LearnOptions) (Learner[*SparseGP, *SparseGPPosterior], error) {
	if latentsOf(g.lik) > 1 {
		l, err := newSparseClassLearner(g, opt)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l := &sparseGPLearner{g: g, rows: g.rows}
	if opt != nil {
		l.opt = *opt
	}
	if l.rows == nil {
		l.rows = sparse.RowsOf(g.x, g.terms)
	}
	n := len(l.rows.Y)
	if l.rows.N > gram.MedianRows {
		n = min(n, priorRows)
	}
	var err error
	if l.space, err = newLearnSpace(kernelIn(g.z.Kernel), g.lik, &gram.Pairs{X: l.rows.Sample(n)},
		l.rows.Y[:n], &l.opt); err != nil {
		return nil, err
	}
	if l.opt.Tol == 0 {
		l.opt.Tol = learn.DefaultTol + rowTol*float64(max(0, l.rows.N-tolRows))
	}
	return l, nil
}

func (l *sparseGPLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: hyper-parameters are learned under KL, not %s: %w", spell(d), ErrNoProx)
	}
	m := sparse.NewLearning(l.rows, l.sees(), l.g.z.Division, l.g.Rank(), fitFeatures)
	switch {
	case l.g.opt.Inducing != nil || !l.g.z.Open:
		m.Fixed = l.g.z.Inputs()
	case l.g.opt.Rank > 0:
		m.Rank = l.g.opt.Rank
	}
	_, composite := kernelParts(kernelIn(l.g.z.Kernel))
	return newLearnStepper(m, l.space, l.rows.N, &l.opt, composite, env.rng()), nil
}

// sees returns what the search sees of the space.
func (l *sparseGPLearner) sees() *sparse.Space {
	s := l.space
	return &sparse.Space{Coords: s.Coords, Kernel: kernelOf(s.kernel), Lik: viewOf(s.lik),
		At: func(theta []float64) (k, slopes sparse.Kernel, lik sparse.Likelihood, err error) {
			at, by, under, err := s.at(theta)
			if err != nil {
				return nil, nil, nil, err
			}
			return kernelOf(at), kernelOf(by), viewOf(under), nil
		}}
}

// warnings implements warner.
func (l *sparseGPLearner) warnings() []string {
	return l.g.farFrom0(true)
}

// Learned implements Learner. If the search has ended, the ELBO of Learned.Fit is that of the
// posterior on all rows.
func (l *sparseGPLearner) Learned(ctx context.Context, s *Solver, res *Result) (*SparseGP, *SparseGPPosterior, *Learned, error) {
	st, err := l.space.searchOf(res)
	if err != nil {
		return nil, nil, nil, err
	}
	k, _, lik, err := l.space.at(st.run.Best.Theta)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	m := st.run.Model.(*sparse.Learning)
	learned.Passes, learned.Cholesky = learned.Cholesky, 0
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	g := &SparseGP{lik: lik, opt: l.g.opt, x: l.g.x, terms: l.g.terms, rows: l.g.rows}
	g.opt.Inducing, g.opt.Rank = m.Best.Z, 0
	if l.g.rows == nil {
		g.terms = under(g.terms, lik)
		rank, _ := m.Best.Z.Dims()
		if err := g.keepAmong(&h, l.g.z.Again(kernelOf(k)), m.Best.Z, rank); err != nil {
			return nil, nil, learned, g.canceled(&h, err)
		}
	} else { // the best state has this factor
		u := m.Factored(&h, kernelOf(k), m.Best.Z)
		if u == nil {
			return nil, nil, learned, g.canceled(&h, fmt.Errorf("pgsvi: covariance of the inducing inputs: %w", ErrNotPosDef))
		}
		if err := g.settle(&h, u); err != nil {
			return nil, nil, learned, g.canceled(&h, err)
		}
	}
	ended := st.run.Done && !st.run.Stale && ctx.Err() == nil
	if l.g.rows == nil {
		if ended {
			fitted, err := g.NewStepper(ctx, nil, nil)
			if err != nil {
				return g, nil, learned, err
			}
			if u := m.Factored(&h, kernelOf(k), m.Best.Z); u != nil {
				if q := u.Carry(g.z, m.Best.Look.Next.Mean, &m.Best.Look.Next); q != nil {
					fitted.(*siteStepper).startAt(q)
				}
			}
			err = st.fitFrom(ctx, s, fitted, learned)
			defer fitted.(haltable).begin(last, nil).Forget()
			post, e := g.Posterior(fitted)
			if err == nil {
				err = e
			}
			return g, post, learned, err
		}
		g.rows = l.rows // the state is one of natural steps
	}
	fitted, err := newSparseStepper(last, nil, g.z, g.rows, lik, m.Best.At)
	if err != nil {
		return g, nil, learned, prefixed(err)
	}
	if ended { // and so has the pass that found the best θ
		fitted.ascent.Look, fitted.ascent.Try = m.Best.Look, &m.Best.Look.Next
		learned.Fit = &Result{Stepper: fitted, Warnings: learned.Warnings}
		learned.Fit.begin(nil)
		if err = new(Solver).force(last, learned.Fit); err == nil {
			learned.Fit.Status = Converged
		}
	}
	post, e := g.Posterior(fitted)
	if l.g.rows == nil {
		g.rows = nil
	}
	if err == nil {
		err = e
	}
	return g, post, learned, err
}

// startAt makes s start from q, without sites, where it is one over weights.
func (s *siteStepper) startAt(q *gauss.State) {
	if a, ok := s.alg.(*site.WeightAlgebra); ok {
		a.Run.CopyFrom(q)
		a.Free, a.Fresh, a.Batched, a.Started, a.Proof = true, false, false, false, site.Proof{}
	}
}

// moveSteps is how many evaluations MoveInducing makes, where their number is ours to choose.
const moveSteps = 50

// MoveInducing returns the SparseGP with the inducing inputs of g moved to raise the ELBO, at its
// kernel and likelihood,
//
//	argmax_Z max_q ELBO(q, Z).
//
// It finds a local maximum near those of g (Titsias 2009) by a quasi-Newton method on the
// gradient in Z (L-BFGS; Liu and Nocedal 1989). It accepts only steps that raise the ELBO, and
// returns g itself if there are none. With more rows than the 50,000 of a sample, the sample
// moves them, and fits of all rows before and after decide.
//
// steps is the largest number of evaluations, each of some passes over these rows; 0 means 50.
// There is no run to save and resume: call MoveInducing again with its result. That loses only
// the memory of the curvature, ten steps. It helps if there are too few inducing inputs, but
// twice as many, chosen by NewSparseGP, cost less and are better. SparseGP.Learn of the result
// keeps them. For a kernel of your own, the derivatives by inputs are differences of Cov.
//
// The error wraps ErrParam if steps is negative. Otherwise it is that of ctx or of Fit.
func (g *SparseGP) MoveInducing(ctx context.Context, steps int) (*SparseGP, error) {
	if err := oneLatent(g.lik, "MoveInducing"); err != nil {
		return nil, err
	}
	if steps < 0 {
		return nil, fmt.Errorf("pgsvi: %d steps to move inducing inputs; 0 is the default: %w", steps, ErrParam)
	}
	if steps == 0 {
		steps = moveSteps
	}
	rows := g.rows
	if rows == nil {
		rows = sparse.RowsOf(g.x, g.terms)
	}
	var h parallel.Halt
	h.Watch(ctx)
	if !g.z.Open {
		return g, nil
	}
	m := sparse.NewMove(rows, viewOf(g.lik), fitFeatures,
		term.Crew{Workers: runtime.GOMAXPROCS(0), Halt: &h}, g.z.Division)
	z, err := m.Run(g.z, steps)
	if err != nil || z == nil {
		return g, prefixed(err)
	}
	moved := &SparseGP{lik: g.lik, opt: g.opt, x: g.x, terms: g.terms, rows: g.rows}
	moved.opt.Inducing, moved.opt.Rank = z, 0
	if g.rows == nil {
		moved.terms = under(g.terms, g.lik)
		rank, _ := z.Dims()
		err = moved.keepAmong(&h, g.z.Division, z, rank)
	} else {
		err = moved.induce(&h, g.z.Division, z)
	}
	if err != nil {
		return nil, g.canceled(&h, err)
	}
	if rows.All == nil {
		return moved, nil
	}
	_, before, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, after, err := moved.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !(after.ELBO-after.ELBOErr > before.ELBO+before.ELBOErr) {
		return g, nil
	}
	return moved, nil
}

// learnedRows is how many rows the kernel of a SparseGP of classes is learned from.
const learnedRows = 500

// sparseClassLearner is the Learner of a SparseGP of classes: that of the GP of some of its rows.
type sparseClassLearner struct {
	*gpLearner
	g *SparseGP
}

// newSparseClassLearner returns the Learner of g, which learns from every n-th of its rows.
func newSparseClassLearner(g *SparseGP, opt *LearnOptions) (*sparseClassLearner, error) {
	n := g.Len()
	index := make([]int, min(n, learnedRows))
	for i := range index {
		index[i] = i * n / len(index)
	}
	x, y := SelectRows(g.x, g.terms.Y, index)
	some, err := newGP(x, y, kernelIn(g.z.Kernel), g.lik, nil)
	if err != nil {
		return nil, err
	}
	l, err := newGPLearner(some, opt)
	if err != nil {
		return nil, err
	}
	return &sparseClassLearner{l, g}, nil
}

// Learned implements Learner.
func (l *sparseClassLearner) Learned(ctx context.Context, s *Solver, res *Result) (
	*SparseGP, *SparseGPPosterior, *Learned, error) {
	st, err := l.space.searchOf(res)
	if err != nil {
		return nil, nil, nil, err
	}
	k, _, lik, err := l.space.at(st.run.Best.Theta)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	if n, of := l.gp.Len(), l.g.Len(); n < of {
		learned.Warnings = append(learned.Warnings,
			fmt.Sprintf("the kernel was learned from %d of %d rows; GP.Learn takes all", n, of))
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	g, err := newSparseGPUntil(&h, l.g.x, l.g.terms.Y, k, lik, &l.g.opt)
	if err != nil {
		return nil, nil, learned, l.g.canceled(&h, err)
	}
	if !st.run.Done || ctx.Err() != nil {
		post, _, err := g.Fit(last, nil)
		return g, post, learned, err
	}
	run := Solver{Goal: search.StopPart * st.run.Search.Goal}
	if s != nil {
		run.Workers, run.Recover, run.Converger = s.Workers, s.Recover, s.Converger
	}
	post, fit, err := g.Fit(ctx, &run)
	if learned.Fit = fit; fit != nil {
		fit.Warnings = learned.Warnings
	}
	return g, post, learned, err
}

var _ Learner[*SparseGP, *SparseGPPosterior] = (*sparseClassLearner)(nil)
