package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
)

// learnStepper is the Stepper over hyperparameters. Each step is an evaluation.
type learnStepper struct {
	run   *learn.Run
	space *learnSpace
	n     int // number of terms of f

	halt  parallel.Halt
	print fingerprint
}

// newLearnStepper returns the Stepper of m over space, with n terms.
func newLearnStepper(m learn.Model, space *learnSpace, n int, o *LearnOptions, composite bool,
	rng *rand.Rand) *learnStepper {
	of := learn.Options{Restarts: o.Restarts, Tol: o.Tol, Composite: composite}
	return &learnStepper{run: learn.NewRun(m, &space.Space, n, of, rng), space: space, n: n}
}

// learnsUnder returns an error that wraps ErrNoProx unless d is KL.
func learnsUnder(d Divergence) error {
	if isKL(d) {
		return nil
	}
	return fmt.Errorf("pgsvi: hyperparameters cannot be learned under %s; use KL: %w", spell(d),
		ErrNoProx)
}

// Run returns the search, for the packages of this module.
func (s *learnStepper) Run() *learn.Run { return s.run }

// Len implements Stepper.
func (s *learnStepper) Len() int { return s.n }

// Plan implements Stepper.
func (s *learnStepper) Plan() Plan {
	return Plan{Batch: 1, MaxPasses: float64(s.run.Most()), Sampler: everyRow{}}
}

// begin implements haltable.
func (s *learnStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	s.run.Model.Use(term.Crew{Workers: env.Workers(), Halt: &s.halt})
	return &s.halt
}

// Step implements Stepper.
func (s *learnStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step,
	error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, GradMap: math.SmallestNonzeroFloat64, more: s.n - len(batch)}
	if !math.IsInf(beta, 1) {
		return step, fmt.Errorf(
			"a search over hyperparameters cannot use the step size %v; leave StepSize nil: %w",
			beta,
			ErrParam)
	}
	slope, err := s.run.Step()
	if slope > 0 {
		step.GradMap = slope
	}
	return step, err
}

// worthEvaluating implements sparing. It skips rejected step lengths because they would make a run
// look stalled.
func (s *learnStepper) worthEvaluating() bool { return s.run.News }

// Evaluate implements Stepper. It evaluates the best θ so far.
func (s *learnStepper) Evaluate(context.Context, *Env) (Evaluation, error) {
	e := Evaluation{ELBO: -s.run.Objective(), ELBOErr: goals.NeverZero(s.run.Best.Slack),
		Gap: math.Inf(1), Goal: s.run.Search.Goal}
	if s.run.Done {
		e.Gap = goals.NeverZero(s.run.Ended.Left)
	}
	if math.IsInf(e.ELBO, -1) && s.run.Done {
		return e, fmt.Errorf(
			"no hyperparameters tried have an ELBO; rescale features or responses that are too "+
				"large or too small to be squared: %w", ErrDiverged)
	}
	return e, nil
}

// warnings returns possible faults of the parameters of a run with the given status.
func (s *learnStepper) warnings(status Status) (all []string) {
	if !s.run.Done && (status == PassLimit || status == IterationLimit || status == TimeLimit) {
		all = append(all,
			fmt.Sprintf(
				"the search ended (%v) after %d evaluations, before it reached its tolerance of "+
					"%.1g nats, and without a final fit; raise the limit of the Solver, or continue "+
					"with Solver.Resume of Learned.Search", status, s.run.Count, s.run.Search.Goal))
	}
	for i, at := range s.space.free {
		c := &s.space.coords[at]
		if s.run.AtBound(i) && !s.space.effect(at) {
			all = append(all,
				fmt.Sprintf(
					"%s ended at its bound %.4g; the data do not determine it, or "+
						"LearnOptions.Bounds is too narrow", c.Name, c.value(s.run.Best.Theta[i])))
		}
	}
	switch {
	case s.run.Ended.Stuck:
		all = append(all,
			fmt.Sprintf(
				"the search stalled: the slope predicts a gain of %.2g nats, but no step "+
					"achieves it, because of a local optimum, wrong derivatives or an "+
					"inaccurate ELBO; try other starts (LearnOptions.Restarts) or fix a "+
					"parameter (LearnOptions.Fixed)", s.run.Ended.Left))
	case s.run.Done && s.run.Ended.Doubted:
		all = append(all,
			"the curvature at the end is unknown in some directions, so the standard deviations "+
				"of the parameters may be too small and the objective may be lower elsewhere; try "+
				"more LearnOptions.Restarts")
	}
	if len(s.run.Ends) > 1 {
		near := 0
		for _, f := range s.run.Ends {
			if f < slices.Min(s.run.Ends)+1 {
				near++
			}
		}
		if near < len(s.run.Ends) {
			all = append(all,
				fmt.Sprintf(
					"a local optimum is likely, because only %d of %d starts ended within a nat "+
						"of the best; more LearnOptions.Restarts may find a better optimum",
					near, len(s.run.Ends)))
		}
	}
	return all
}

// flatSD is the standard deviation of θ above which the objective counts as flat. It is twice the
// standard deviation of the default prior of a parameter that the caller sets.
const flatSD = 2 * freeSD

// flat warns of parameters with a Max along which the objective is flat, given the standard
// deviations of θ. A search without a prior ends like this if the best value is Min or Max.
func (s *learnStepper) flat(sd []float64) (all []string) {
	for i, at := range s.space.free {
		c := &s.space.coords[at]
		if _, upper := c.ends(); upper && sd[i] > flatSD && !s.run.AtBound(i) && !s.space.effect(at) {
			all = append(all,
				fmt.Sprintf("%s ended at %.4g, where the objective is flat, so its best value is "+
					"Min (%v) or Max (%v), or the data do not determine it; set LearnOptions.Prior "+
					"or LearnOptions.Fixed for it",
					c.Name, c.value(s.run.Best.Theta[i]), c.Min, c.Max))
		}
	}
	return all
}

// report returns the Learned of the run res of m, without a fit.
func (s *learnStepper) report(res *Result, m warner) *Learned {
	l := &Learned{Search: res, Objective: s.run.Best.F, LogPrior: -s.run.Best.Prior,
		Evaluations: s.run.Count, Cholesky: s.run.Model.Work(), Starts: slices.Clone(s.run.Ends),
		Warnings: s.warnings(res.Status)}
	sd := s.run.Deviations()
	next, values := 0, s.space.params(s.run.Best.Theta)
	l.Warnings = slices.Concat(l.Warnings, s.flat(sd), s.space.doubtfulPeriods(values), m.warnings())
	for i, c := range s.space.coords {
		p := LearnedParam{Param: values[i], Fixed: c.fixed, Prior: Prior(c.Prior),
			Differences: c.differ && !c.fixed}
		if !c.fixed {
			p.SD, p.AtBound = sd[next], s.run.AtBound(next)
			next++
		}
		switch {
		case p.Fixed:
			p.Lo, p.Hi = p.Value, p.Value
		case p.SD > 0:
			p.Lo, p.Hi = p.interval(p.theta(p.Value), p.SD)
		default:
			p.Lo, p.Hi = p.Min, p.Max
		}
		if !s.space.effect(i) {
			l.Params = append(l.Params, p)
		}
	}
	return l
}

// A Learner is a Model whose runs learn the hyperparameters θ of a GP, SparseGP or GLM. A step of a
// run is an evaluation at one θ, and the ELBO of its iterations is −Learned.Objective. Most callers
// need only Learn. Use a Learner to load a saved run (Solver.LoadResult) or to run the loop
// yourself. Its NewStepper returns an error that wraps ErrNoProx for a Divergence other than KL.
type Learner[M, P any] interface {
	Model
	// Learned returns the result of the run res so far: the model at the best θ, its posterior, and
	// the details. If the search has ended, the posterior comes from a final fit at the best θ,
	// with the Workers, Recover and Converger of s, which may be nil; Learned.Fit is that run.
	// Otherwise the posterior is only as accurate as the search needed. The error wraps ErrParam if
	// res is not a run of this Learner, and ErrDiverged if no θ has an ELBO yet. Otherwise it is an
	// error of Solver.Run.
	Learned(ctx context.Context, s *Solver, res *Result) (M, P, *Learned, error)
}

// learnBy runs the search l with the options of s that apply to a search, and returns the Learned
// of it. The result is not empty once the search has begun.
func learnBy[M, P any](ctx context.Context, s *Solver, l Learner[M, P]) (model M, post P,
	learned *Learned, err error) {
	run := Solver{}
	if s != nil {
		run = *s
	}
	run.StepSize, run.BatchSize, run.Sampler, run.Goal, run.EvalEvery = nil, 0, nil, 0, 0
	res, err := run.Run(ctx, l)
	if res == nil {
		return model, post, nil, err
	}
	model, post, learned, e := l.Learned(ctx, s, res)
	if err == nil {
		err = e
	}
	return model, post, learned, err
}

// searchOf returns the search that made res, which must have found a θ with an ELBO.
func (s *learnSpace) searchOf(res *Result) (*learnStepper, error) {
	st, ok := res.Stepper.(*learnStepper)
	if !ok || st.space != s {
		return nil, fmt.Errorf(
			"pgsvi: the run, with a %T, does not belong to this search for hyperparameters: %w",
			res.Stepper, ErrParam)
	}
	if st.run.Best.Theta == nil {
		return nil, fmt.Errorf(
			"pgsvi: the search has not found hyperparameters with an ELBO yet; if features or "+
				"responses are too large or too small to be squared, rescale them: %w", ErrDiverged)
	}
	return st, nil
}

// bestOf returns the search over s that made res, and the model at its best θ, which at returns.
func bestOf[M any](s *learnSpace, res *Result, at func(theta []float64) (M, error)) (st *learnStepper,
	m M, err error) {
	if st, err = s.searchOf(res); err == nil {
		m, err = at(st.run.Best.Theta)
	}
	return st, m, err
}

// stepperAtBest returns a Stepper of m, the GP or GLM at some θ, at the best q of the search.
func (s *learnStepper) stepperAtBest(ctx context.Context, m Model) (*siteStepper, error) {
	start, err := m.NewStepper(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	fitted := start.(*siteStepper)
	s.run.Model.(learn.Sited).Begin(fitted.alg)
	return fitted, nil
}

// fitFrom runs the final fit with s from the state fitted if the search has ended, and records the
// fit in learned.
func (s *learnStepper) fitFrom(ctx context.Context, by *Solver, fitted Stepper,
	learned *Learned) (err error) {
	if !s.run.Done || ctx.Err() != nil {
		return nil
	}
	run := Solver{BatchSize: s.n, Goal: search.StopPart * s.run.Search.Goal}
	if by != nil {
		run.Workers, run.Recover, run.Converger = by.Workers, by.Recover, by.Converger
	}
	learned.Fit, err = run.Resume(ctx, &Result{Stepper: fitted, Warnings: learned.Warnings})
	return err
}

// MarshalBinary returns the state.
func (s *learnStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary restores the state. The error wraps ErrFile if b is not the state of a search for
// the same model.
func (s *learnStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *learnStepper) state(c *save.Coder) {
	s.print.state(c, func(d *save.Digest) {
		s.run.Model.Digest(d)
		s.space.digest(d)
		s.run.Digest(d)
	})
	s.run.State(c)
}

// scaleBounds returns the interval of a proof for terms. The error wraps ErrParam if no proof
// exists.
func scaleBounds(terms *term.Terms, lo, hi, within float64) (learn.Interval, error) {
	if err := oneLatent(likOf(terms), "CertifyScale"); err != nil {
		return learn.Interval{}, err
	}
	i := learn.Interval{Lo: lo, Hi: hi, Within: within}
	if !terms.Concave() {
		return i, fmt.Errorf(
			"pgsvi: CertifyScale needs a log-concave likelihood, not %s: %w",
			typeName(likOf(terms)), ErrParam)
	}
	if !i.Valid() {
		return i, fmt.Errorf("pgsvi: cannot certify the scales from %v to %v to within %v nats; "+
			"the ends and the tolerance must be positive, and the ends in increasing order: %w",
			lo, hi, within, ErrParam)
	}
	return i, nil
}

// certified returns the best scale of the proof p and the state there, or err.
func certified(p *learn.Proof, err error) (scale float64, best Iteration, _ error) {
	if err != nil {
		return 0, Iteration{}, prefixed(err)
	}
	unknown := math.NaN()
	best = Iteration{K: p.Steps, Passes: unknown, Step: Step{Beta: unknown, GradMap: unknown},
		Evaluation: Evaluation{ELBO: p.ELBO, Gap: p.Bound, GapBound: p.Bound, Scope: OverQAndScale}}
	best.settle()
	return p.Scale, best, nil
}

// paramRows returns the rows of B for the rows of L. Fixed parameters of the likelihood have rows
// of zeros. The result is nil if all are fixed.
func (s *learnSpace) paramRows(factor [][]float64) (b [][]float64) {
	free, any := 0, false
	for _, c := range s.coords {
		row := make([]float64, len(factor))
		if !c.fixed {
			row = factor[free]
			free++
		}
		if c.Likelihood {
			b, any = append(b, row), any || !c.fixed
		}
	}
	if !any {
		return nil
	}
	return b
}
