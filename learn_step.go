package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// learnable is a model with its hyper-parameters as arguments: what a search asks.
type learnable interface {
	digester
	// use lets the crew do what follows; once that is halted evaluate returns its error.
	use(c crew)
	// evaluate finds the q at θ, to within so many nats of the best, and returns −ELBO, what it may be too high by and, if slopes is set, what a search
	// needs besides. Of a θ with more than most nats all that counts is that. One without a value, such as one that is out of range, has +Inf, and no error.
	evaluate(theta []float64, slack, most float64, slopes bool) (learnPoint, error)
	// keep makes the q of the last evaluate one that later ones start from; with best also the one to end with.
	keep(best bool)
	// work returns the Cholesky factorisations of all rows so far.
	work() float64
	// state writes or reads all that later evaluations depend on, in a space of n parameters.
	state(c *save.State, n int)
}

// noisy is a learnable whose noise and scale can be brought to where they are best, at all else, by factorisations alone.
type noisy interface {
	learnable
	// profiles reports whether there is noise that is learned and was not set.
	profiles() bool
	// profile moves noise and scale of θ to where −ELBO − log prior is about least, and returns what that is, without slopes.
	profile(theta []float64) (learnPoint, error)
}

// staged is a learnable that begins with a part of its rows.
type staged interface {
	learnable
	// goal returns how many nats a search on the rows of now may leave where that on all may leave tol.
	goal(tol float64) float64
	// advance goes on to more rows, and returns how many times as many; 1 says that there are no more.
	advance() (times float64)
}

// screenSlack is how exactly the starts are told from each other, in nats.
const screenSlack = 0.3

// screenWorse is by how many nats a datum a start with shorter lengths must be worse for still shorter ones not to be tried where each column has its own: among many
// columns all rows are then far from each other. In few columns structure may be finer than all that was tried.
const screenWorse = 0.1

// secondWorse is by how many nats the second best of starts, with the best noise for each, must be worse for it not to have a search. In 400 random problems of one to six columns 74 had a second
// search, and 6 ended up to 0.9 nats above the best known; without it 11 did, up to 2.3.
const secondWorse = 1.0

// mostEvaluations bounds the evaluations from one start.
const mostEvaluations = 200

// mostStages is the number of stages that a staged model may have.
const mostStages = 3

// learnStepper is the Stepper over hyper-parameters: a step is an evaluation.
type learnStepper struct {
	model  learnable
	space  *learnSpace
	n      int // terms of f
	search learnSearch
	screen [][]float64 // starts that are yet to be compared
	first  learnPoint  // the best of those that were
	second learnPoint  // and the second best, where noise is profiled,
	last   float64     // f of the last of them,
	valley bool        // and that one was worse than one before it and one after
	later  [][]float64 // starts of further searches
	best   learnPoint
	ends   []float64 // objectives that searches ended with
	ahead  bool      // the search of now has met best
	ended  learnEnd  // how the search that met best has ended
	count  int
	done   bool
	news   bool // the last step has changed what Evaluate says
	tol    float64
	stages int  // that have ended
	stale  bool // best is of fewer rows

	halt  parallel.Halt
	print fingerprint
}

// learnEnd is how a search ended.
type learnEnd struct {
	left    float64 // nats that it may have left
	stuck   bool    // it had to give up
	doubted bool    // its curvature is not known in all directions
}

// end returns how the search ended. Where it gave up, twice the slack is left, too: at one θ and another.
func (s *learnSearch) end() learnEnd {
	e := learnEnd{s.promise, s.stalled, s.doubted && !s.stalled}
	if s.stalled {
		e.left += 2 * s.cur.slack
	}
	return e
}

// newLearnStepper returns that of m over space, with n terms.
func newLearnStepper(m learnable, space *learnSpace, n int, o *LearnOptions, composite bool, rng *rand.Rand) *learnStepper {
	s := &learnStepper{model: m, space: space, n: n, screen: space.starts()}
	s.first.f, s.second.f, s.best.f, s.last = math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)
	if s.tol = o.Tol; s.tol == 0 {
		s.tol = learnTol
	}
	s.search = learnSearch{prec: space.prec, goal: s.tol, exact: exactPart, longest: longestStep, part0: searchPart}
	if space.gaussian() {
		s.search.part0 = 1
	}
	if m, ok := m.(staged); ok {
		s.search.goal, s.search.exact = m.goal(s.tol), stagedPart
	}
	if composite {
		s.search.longest = compositeStep
	}
	for _, at := range space.free {
		s.search.lo, s.search.hi = append(s.search.lo, space.coords[at].lo), append(s.search.hi, space.coords[at].hi)
	}
	for range o.Restarts {
		s.later = append(s.later, space.draw(s.screen[0], rng))
	}
	if p, ok := m.(noisy); len(s.screen) == 1 && !(ok && p.profiles()) {
		s.search.begin(s.screen[0])
		s.screen = nil
	}
	return s
}

// draw returns a start from the priors; parameters without one vary about theirs.
func (s *learnSpace) draw(start []float64, rng *rand.Rand) []float64 {
	theta := make([]float64, len(start))
	shared := map[string]float64{}
	for i, at := range s.free {
		c := &s.coords[at]
		p := c.prior
		if p.SD == 0 {
			p = Prior{Mean: start[i], SD: 1}
		}
		u, ok := shared[c.group]
		if !ok {
			u = rng.NormFloat64()
			shared[c.group] = u
		}
		theta[i] = min(max(p.Mean+p.Shared*u+p.SD*rng.NormFloat64(), c.lo), c.hi)
	}
	return theta
}

// Len implements State.
func (s *learnStepper) Len() int { return s.n }

// Plan implements Stepper.
func (s *learnStepper) Plan() Plan {
	searches := 1 + len(s.later) + len(s.ends)
	if s.space.noisyStart() != nil {
		searches++
	}
	if _, ok := s.model.(staged); ok {
		searches += mostStages - 1
	}
	return Plan{MaxPasses: float64(mostEvaluations * searches)}
}

// begin implements haltable.
func (s *learnStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	s.model.use(crew{env.Workers(), &s.halt})
	return &s.halt
}

// Step implements Stepper.
func (s *learnStepper) Step(ctx context.Context, env *Env, _ []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, GradMap: math.SmallestNonzeroFloat64}
	if !math.IsInf(beta, 1) {
		return step, fmt.Errorf("a search over hyper-parameters takes steps of its own, not of %v: %w", beta, ErrParam)
	}
	if s.news = s.done; s.done {
		return step, nil
	}
	if p, ok := s.model.(noisy); len(s.screen) > 0 && ok && p.profiles() {
		return step, s.profile(p)
	}
	if len(s.screen) > 0 {
		return step, s.compare()
	}
	x, err := s.at(s.search.next, s.search.slack, s.search.most(), true)
	if err != nil {
		return step, err
	}
	if s.search.tell(x); !math.IsInf(x.f, 1) {
		step.GradMap = neverZero(maxAbs(x.grad))
		better := s.stale || x.f < s.best.f || s.best.theta != nil && slices.Equal(x.theta, s.best.theta)
		if better {
			s.best, s.news, s.stale, s.ahead = x, true, false, true
		}
		s.model.keep(better)
	}
	if s.search.done {
		s.end()
		s.news = s.news || s.done
	}
	return step, nil
}

// compare tells the next start from the best so far.
func (s *learnStepper) compare() error {
	noisy := s.space.noisyStart()
	doubtful := slices.Equal(s.screen[0], noisy)
	most := s.first.f
	if doubtful {
		most += screenWorse * float64(s.n)
	}
	x, err := s.at(s.screen[0], screenSlack, most, false)
	if err != nil {
		return err
	}
	s.screen = s.screen[1:]
	better := x.f < s.first.f || s.first.theta == nil
	if doubtful && x.f <= most { // both are worth a search
		other := x.theta
		if better {
			other = s.first.theta
		}
		s.later = slices.Insert(s.later, 0, other)
	}
	if better {
		s.first, s.news = x, true
	} else if s.space.screened() > 1 && x.f > s.first.f+screenWorse*float64(s.n) {
		s.screen = nil
	}
	if !math.IsInf(x.f, 1) {
		s.model.keep(better)
	}
	if len(s.screen) == 0 && noisy != nil && !doubtful && !slices.Equal(s.first.theta, s.space.starts()[0]) {
		s.screen = [][]float64{noisy}
	}
	if len(s.screen) == 0 {
		s.search.begin(s.first.theta)
	}
	return nil
}

// profile tells the next start, with the noise and the scale that are best for its lengths, from the best so far. The second best has a search, too, if it is as good within a nat or, where one
// between the two is worse than both, if it is not far worse.
func (s *learnStepper) profile(p noisy) error {
	x, err := p.profile(s.screen[0])
	if err != nil {
		return err
	}
	s.count++
	s.screen = s.screen[1:]
	s.valley = s.valley || x.f < s.last && s.last > s.first.f
	far := s.space.screened() > 1 && x.f > s.first.f+screenWorse*float64(s.n)
	switch s.last = x.f; {
	case x.f < s.first.f || s.first.theta == nil:
		s.first, s.second, s.news = x, s.first, true
	case x.f < s.second.f:
		s.second = x
	}
	if far {
		s.screen = nil
	}
	if len(s.screen) > 0 {
		return nil
	}
	worse := secondWorse
	if s.valley {
		worse = screenWorse * float64(s.n)
	}
	if s.second.f < s.first.f+worse {
		s.later = slices.Insert(s.later, 0, s.second.theta)
	}
	s.search.begin(s.first.theta)
	return nil
}

// worthEvaluating implements sparing: lengths of a step that are tried in vain would look like a run that stalls.
func (s *learnStepper) worthEvaluating() bool { return s.news }

// at evaluates θ. See learnable.
func (s *learnStepper) at(theta []float64, slack, most float64, slopes bool) (learnPoint, error) {
	x, err := s.model.evaluate(theta, slack, most-s.space.penalty(theta, nil), slopes)
	if err != nil {
		return x, err
	}
	x.theta = slices.Clone(theta)
	x.prior = s.space.penalty(theta, x.grad)
	if x.f += x.prior; math.IsNaN(x.f) {
		x.f = math.Inf(1)
	}
	if !slices.Equal(theta, s.first.theta) && !slices.Equal(theta, s.search.cur.theta) { // or the same more exactly
		s.count++
	}
	return x, nil
}

// end ends a search, and begins the next.
func (s *learnStepper) end() {
	if s.stages == 0 { // later ones have one search each
		s.ends = append(s.ends, s.search.cur.f)
	}
	if s.ahead {
		s.ended, s.ahead = s.search.end(), false
	}
	if len(s.later) == 0 {
		s.done = !s.advance()
		return
	}
	s.search.begin(s.later[0])
	s.later = s.later[1:]
}

// advance goes on from the best θ with more rows, if there are any.
func (s *learnStepper) advance() bool {
	m, ok := s.model.(staged)
	if !ok || s.best.theta == nil {
		return false
	}
	times := m.advance()
	if times == 1 {
		return false
	}
	s.search.goal = m.goal(s.tol)
	s.search.again(s.best.theta, times)
	s.first.f, s.stale, s.news = math.Inf(1), true, false
	s.stages++
	return true
}

// Evaluate implements Stepper: of the best θ so far.
func (s *learnStepper) Evaluate(context.Context, *Env) (Evaluation, error) {
	e := Evaluation{ELBO: -min(s.best.f, s.first.f), ELBOErr: neverZero(s.best.slack), Gap: math.Inf(1), Goal: s.search.goal}
	if s.done {
		e.Gap = neverZero(s.ended.left)
	}
	if math.IsInf(e.ELBO, -1) && s.done {
		return e, fmt.Errorf("no value of the hyper-parameters that was tried has an ELBO; where features or responses are too large or too small to be squared, rescale them: %w", ErrDiverged)
	}
	return e, nil
}

// warnings says what may be wrong with the parameters that were found by a run with that status.
func (s *learnStepper) warnings(status Status) (all []string) {
	if !s.done && (status == PassLimit || status == IterationLimit || status == TimeLimit) {
		all = append(all, fmt.Sprintf("the search ended %v after %d evaluations, before its steps promised less than %.1g nats, and there was no last fit: give the Solver a larger limit, or go on by Solver.Resume of Learned.Search", status, s.count, s.search.goal))
	}
	for i, at := range s.space.free {
		c := &s.space.coords[at]
		if s.atBound(i) {
			all = append(all, fmt.Sprintf("%s ended at its bound %.4g: what it does is not in the data, or LearnOptions.Bounds are too narrow", c.Name, c.value(s.best.theta[i])))
		}
	}
	switch {
	case s.ended.stuck:
		all = append(all, fmt.Sprintf("the search stalled where its slope still promises %.2g nats and no step brings them: a local optimum, derivatives that are wrong, or an ELBO that is not known better; try other starts (LearnOptions.Restarts) or fix a parameter (LearnOptions.Fixed)", s.ended.left))
	case s.done && s.ended.doubted:
		all = append(all, "the curvature at the end is not known in all directions: the standard deviations of the parameters may be too small, and the objective may be lower far from there; more LearnOptions.Restarts would tell")
	}
	if len(s.ends) > 1 {
		near := 0
		for _, f := range s.ends {
			if f < slices.Min(s.ends)+1 {
				near++
			}
		}
		if near < len(s.ends) {
			all = append(all, fmt.Sprintf("a local optimum is likely: %d of %d starts ended within a nat of the best; more LearnOptions.Restarts may find a better one", near, len(s.ends)))
		}
	}
	return all
}

// atBound reports whether free parameter i ended at a bound.
func (s *learnStepper) atBound(i int) bool {
	t := s.best.theta[i]
	return math.Min(t-s.search.lo[i], s.search.hi[i]-t) < 1e-6*(1+math.Abs(t))
}

// report returns what the run res has learned; it has no fit.
func (s *learnStepper) report(res *Result) *Learned {
	l := &Learned{Search: res, Objective: s.best.f, LogPrior: -s.best.prior, Evaluations: s.count, Cholesky: s.model.work(), Starts: slices.Clone(s.ends), Warnings: s.warnings(res.Status)}
	sd := s.deviations()
	next, values := 0, s.space.params(s.best.theta)
	for i, c := range s.space.coords {
		p := LearnedParam{Param: values[i], Fixed: c.fixed, Prior: c.prior, Differences: c.differ && !c.fixed}
		if !c.fixed {
			p.SD, p.AtBound = sd[next], s.atBound(next)
			next++
		}
		l.Params = append(l.Params, p)
	}
	return l
}

// learner is a search for the hyper-parameters of an M, whose posterior is a P.
type learner[M, P any] interface {
	Model
	Learned(ctx context.Context, s *Solver, res *Result) (M, P, *Learned, error)
}

// learnBy runs the search l by s, but for what only fits have use for, and returns what it has learned. There is something if it began.
func learnBy[M, P any](ctx context.Context, s *Solver, l learner[M, P]) (model M, post P, learned *Learned, err error) {
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

// searchOf returns the search over s that res is a run of, which has met a θ with an ELBO.
func (s *learnSpace) searchOf(res *Result) (*learnStepper, error) {
	st, ok := res.Stepper.(*learnStepper)
	if !ok || st.space != s {
		return nil, fmt.Errorf("pgsvi: a run with a %T is none of this search for hyper-parameters: %w", res.Stepper, ErrParam)
	}
	if st.best.theta == nil {
		return nil, fmt.Errorf("pgsvi: the search has not met hyper-parameters with an ELBO yet; where features or responses are too large or too small to be squared, rescale them: %w", ErrDiverged)
	}
	return st, nil
}

// fitFrom fits from where fitted stands, which is where the search has led, if that has ended: learned then tells of the fit, a run of s.
func (s *learnStepper) fitFrom(ctx context.Context, by *Solver, fitted Stepper, learned *Learned) (err error) {
	if !s.done || ctx.Err() != nil {
		return nil
	}
	run := Solver{BatchSize: s.n, Goal: stopPart * s.search.goal}
	if by != nil {
		run.Workers, run.Recover, run.Converger = by.Workers, by.Recover, by.Converger
	}
	learned.Fit, err = run.Resume(ctx, &Result{Stepper: fitted})
	return err
}

// deviations returns the standard deviations of θ where the curvature of the search is that of −log posterior.
func (s *learnStepper) deviations() []float64 {
	n := len(s.space.free)
	sd := make([]float64, n)
	search := s.search
	search.cur = s.best
	if s.best.info == nil {
		return sd
	}
	var chol mat.Cholesky
	var inv mat.SymDense
	if !chol.Factorize(search.curvature(search.part)) || chol.InverseTo(&inv) != nil {
		return sd
	}
	for i := range sd {
		sd[i] = math.Sqrt(inv.At(i, i))
	}
	return sd
}

// MarshalBinary implements Snapshotter.
func (s *learnStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary implements Snapshotter. The error wraps ErrFile if b is not the state of a search for the same model.
func (s *learnStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *learnStepper) state(c *save.State) {
	s.print.state(c, func(d *save.Digest) {
		s.model.digest(d)
		s.space.digest(d)
		d.Float(s.tol, s.search.longest, s.search.part0)
	})
	n := len(s.space.free)
	s.search.state(c)
	stateLists(c, n, math.MaxInt32, &s.screen)
	stateLists(c, n, math.MaxInt32, &s.later)
	s.first.state(c, n)
	s.best.state(c, n)
	k := len(s.ends)
	c.Int(&k)
	c.Floats(k, &s.ends)
	c.Int(&s.count, &s.stages)
	c.Bool(&s.done, &s.stale, &s.ahead, &s.ended.stuck, &s.ended.doubted)
	c.Float(&s.ended.left)
	s.second.state(c, n)
	c.Float(&s.last)
	c.Bool(&s.valley)
	s.model.state(c, n)
}
