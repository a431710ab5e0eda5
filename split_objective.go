package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Fit runs s on the objective. A nil s means the zero Solver, which needs no tuning. It returns
// q(z|λ) at the state reached, owned by the caller and valid even with an error after the set-up.
// If the set-up failed it is the zero Q, nil for a pointer. The errors are those of Solver.Run.
func (o Objective[Q]) Fit(ctx context.Context, s *Solver) (Q, *Result, error) {
	return fitModel[Q](ctx, s, o)
}

// Posterior returns a copy of q(z|λ) at st, a state of an Objective over the same Q: the average
// of the iterates if there is one. The error wraps ErrParam if st is not such a state.
func (o Objective[Q]) Posterior(st State) (q Q, err error) {
	s, ok := st.(*objectiveStepper)
	if !ok {
		return q, fmt.Errorf("pgsvi: a %T is not a state of an Objective: %w", st, ErrParam)
	}
	reached := s.dist().Clone()
	if q, ok = reached.(Q); !ok {
		return q, fmt.Errorf("pgsvi: a state over a %T, of another Objective: %w", reached, ErrParam)
	}
	return q, nil
}

// posteriorOf returns q at st, a state of an Objective over the family of the prior.
func posteriorOf(st State, prior *Exp) (*Exp, error) {
	s, ok := st.(*objectiveStepper)
	if !ok {
		return nil, fmt.Errorf("pgsvi: a %T is not a state of this model: %w", st, ErrParam)
	}
	if q, ok := s.dist().(*Exp); ok && q.sameFamily(prior) {
		return q, nil
	}
	return nil, fmt.Errorf("pgsvi: a state over a %s, of another model: %w", distName(s.dist()), ErrParam)
}

// NewStepper implements Model. A nil d means KL, or Euclidean if Init is not an ExpFamily. The
// error wraps
//   - ErrParam if Init is nil or Inner does not fit;
//   - ErrEmpty if F has no terms;
//   - ErrNoProx if the pair (H, d) has no proximal step on the family of Init.
//
// Otherwise it is one of the parts of the objective.
func (o Objective[Q]) NewStepper(_ context.Context, _ *Env, d Divergence) (Stepper, error) {
	if v := reflect.ValueOf(o.Init); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("pgsvi: Objective.Init is nil: %w", ErrParam)
	}
	return problem{o.F, o.H, o.Init, o.Inner}.newStepper(d)
}

// problem is an Objective over a Dist of any type, which does the work.
type problem struct {
	F     Smooth
	H     Convex
	Init  Dist
	Inner int
}

// newStepperAt is newStepper for a state that has been drawn, with the natural parameters eta. Init
// is then what the model is known by.
func (o problem) newStepperAt(d Divergence, eta []float64) (*objectiveStepper, error) {
	st, err := o.newStepper(d)
	if err != nil {
		return nil, err
	}
	s := st.(*objectiveStepper)
	return s, s.q.(ExpFamily).SetNatural(eta)
}

func (o problem) newStepper(d Divergence) (Stepper, error) {
	if o.F == nil {
		o.F = noTerms()
	}
	if o.H == nil {
		o.H = noTerm{}
	}
	if d == nil {
		d = forwardKL{}
		if _, ok := o.Init.(ExpFamily); !ok {
			d = euclidean{}
		}
	}
	t, err := o.F.Setup(o.Init)
	if err != nil {
		return nil, err
	}
	if t.N < 1 {
		return nil, fmt.Errorf("pgsvi: Objective.F has %d terms: %w", t.N, ErrEmpty)
	}
	if err := o.H.Check(o.Init); err != nil {
		return nil, err
	}
	if err := d.Check(o.Init); err != nil {
		return nil, err
	}
	if o.Inner < 0 {
		return nil, fmt.Errorf("pgsvi: Objective.Inner is %d; it must not be negative: %w", o.Inner, ErrParam)
	}
	var metric Metric
	if a, ok := d.(Adaptive); ok {
		if o.Inner > 1 {
			return nil, fmt.Errorf("pgsvi: Objective.Inner is %d with %T, which uses one gradient a step: %w", o.Inner, d, ErrParam)
		}
		n := o.Init.NumParams()
		unit := make([]float64, n)
		floats.AddConst(1, unit)
		metric, d = a.Start(n), diagonalMetric{unit}
	}
	closed, err := checkProx(o.Init, o.H, d)
	if err != nil {
		return nil, err
	}
	var look *survey
	if w, ok := o.H.(whole); ok {
		look = &survey{whole: w}
		o.H = look
	}
	s := newObjectiveStepper(o, d, closed)
	s.look = look
	s.n, s.exact, s.metric = t.N, t.Deterministic, metric
	s.factors, _ = o.F.(blockwise)
	return s, nil
}

// objectiveStepper takes the steps of an Objective, for any f, h and D.
//
// With β = +Inf it chooses the step itself. Where f is deterministic and the batch is all terms, a
// step is accepted if the objective does not rise, else halved. Where f is noisy it first comes
// near, by steps that must make the objective fall by draws other than those of the gradient. From
// there on a step is as long as keeps KL(q_{k+1}‖q_k) within one nat, at most ρ_k = (1+k)^−0.6 of
// the way to the target, k counting the steps since the first that was not cut short by the former,
// or since they only wander; and the natural parameters are averaged with weights that grow as k³,
// which removes most of the noise (Polyak and Juditsky, 1992).
//
// Expectations under λ_0 may be beyond use, as those of an exponential likelihood under a wide
// prior are. Then q is first made narrower about where it is, as long as that makes the objective
// fall.
//
// Where f is Conjugate steps over mini-batches are those of the zero FractionStep.
type objectiveStepper struct {
	o        problem
	d        Divergence
	metric   Metric    // of an Adaptive divergence, whose diagonal d then holds; else nil
	prox     Prox      // the step that is tried
	closed   bool      // the proximal step has a closed form
	n        int       // number of terms
	exact    bool      // f is deterministic
	infinite bool      // β = +Inf is a valid step: the minimiser of the linearised f plus h
	factors  blockwise // f, where that has factors of its own; else nil
	plan     Plan
	// after a step of a given size trial is where it began, and g its gradient, for a Certificate
	// to see
	q, trial Dist
	probe    Dist // scratch of evaluations
	g        []float64
	scratch  []float64
	from, to []float64 // λ before the last step and after it

	beta       float64 // the next step to try
	k          int     // steps that count for the average or a decreasing step size
	noisy      bool    // the last step had a noisy gradient
	started    bool    // q has been made as narrow as it has to be
	near       bool    // noisy steps have come as near as steps that must improve can
	spent      float64 // work of the steps, in log-likelihoods of a term
	valued     float64 // work of the evaluations that were worth it
	verified   float64 // work of verify
	replicates int     // the least number of gradients of the next verify
	// the ELBO of the best q by another way; 0 before that is tried, +Inf where it is not known
	most     float64
	certain  float64   // the gap of the average by the last verify; +Inf without one
	avg      Dist      // average of the natural parameters; nil before the first
	target   []float64 // sum of the targets of the pass, weighted by terms
	terms    int
	usual    int     // size of the largest batch so far
	averaged float64 // number of iterates in avg
	blocks   batchMeans
	gap      float64
	gradMap  float64
	took     float64 // the step size of the last step; 0 if it had none
	taken    int     // terms in the batch of the last step
	given    bool    // its step size was given
	visits   int     // terms at which it has seen gradients
	more     int     // those that Passes counts beyond the batch
	look     *survey // h, where that looks at the terms itself
	inner    innerSteps
	mix      objectiveMix // of exact steps
	checker  allTerms

	print fingerprint
	kept  []byte        // the state before a step that may be canceled
	halt  parallel.Halt // while a step is under way

	lastEta, lastMu []float64 // the last step, while k is 0
	agree           float64   // running mean of the cosine between successive steps
}

func newObjectiveStepper(o problem, d Divergence, closed bool) *objectiveStepper {
	s := &objectiveStepper{o: o, d: d, closed: closed, q: o.Init.Clone(), trial: o.Init.Clone(),
		g: make([]float64, o.Init.NumParams()), gap: math.NaN(), gradMap: math.NaN(), certain: math.Inf(1), replicates: leastReplicates}
	haltDist(s.q, &s.halt)
	haltDist(s.trial, &s.halt)
	s.infinite = closed && isKL(d) && priorOf(o.H) != nil
	s.beta = 1
	if s.infinite {
		s.beta = math.Inf(1)
	}
	return s
}

// Len implements Stepper.
func (s *objectiveStepper) Len() int { return s.n }

// Plan implements Stepper: all terms, or the Solver's BatchSize of them, where a model on top has
// no other.
func (s *objectiveStepper) Plan() Plan { return s.plan }

// objectiveGoal is the gap, in nats a dimension, at which a run with noisy gradients is
// content: the loss of a mean that is off by 0.06 posterior standard deviations.
const objectiveGoal = 2e-3

// goal returns the gap at which averages of noisy steps are good enough.
func (s *objectiveStepper) goal() float64 { return objectiveGoal * float64(s.q.Dim()) }

const (
	// mostGoal is how much larger the goal may be where the standard error of the ELBO does not
	// resolve it.
	mostGoal = 2
	// evalShare is the work of evaluations to that of steps: a fifth of both together.
	evalShare = 0.25
	// verifyShare is the work of verify to that of steps: at a third of both its noise is about
	// that of the average.
	verifyShare = 0.5
	// nearGain is the fall of the objective, in nats and in nats a dimension, below which steps are
	// near enough to be averaged.
	nearGain, nearGainDim = 1, 0.1
	// mostNarrowings is the most halvings of the standard deviations of λ_0: from the widest prior
	// to the narrowest posterior.
	mostNarrowings = 100
	// closeToBest is the part of the least objective by which that of a wider q may be above it.
	// What is narrower than it has to be tells less of how f curves.
	closeToBest = 0.1
	// lookAhead is the number of narrower q that are tried when one is no better.
	lookAhead = 3
	// leastFirst is the least step size of an exact first step that comes from a gradient which is
	// of use.
	leastFirst = 1e-3
	// shortStep is the size below which a step along natural parameters may be worse than one on a
	// straight line.
	shortStep = 1. / 16
	// leastStraight is the least part of such a line that is tried.
	leastStraight = 1e-12
	// mostLost is the relative error of V, by the rounding of V⁻¹, from which on it may be any V.
	mostLost = 1. / 16
	// mostImprovings is the number of lengths that are tried of a step that must improve.
	mostImprovings = 24
	// verifyFrom is the number of goals at which a gap is worth verifying.
	verifyFrom = 10
	// movedAverage is how much farther than by its own noise an average has to be for its iterates
	// to have moved it.
	movedAverage = 4
	// leastReplicates and mostReplicates bound the gradients by which an average is verified.
	leastReplicates, mostReplicates = 4, 1024
)

// costs returns what f says of its work; where it says nothing both are alike.
func (s *objectiveStepper) costs() (grad, value float64) {
	if c, ok := s.o.F.(costly); ok {
		return c.costs(s.q)
	}
	return 1, 1
}

// size returns the number of terms of batch.
func (s *objectiveStepper) size(batch []int) int {
	if batch == nil {
		return s.n
	}
	return len(batch)
}

// grad is Grad of f, whose work it counts as that of steps.
func (s *objectiveStepper) grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	cost, _ := s.costs()
	s.spent += cost * float64(s.size(batch))
	s.visits += s.size(batch)
	return s.o.F.Grad(ctx, env, dst, q, batch)
}

// worthEvaluating implements sparing: where steps are noisy, evaluations take at most a fifth of
// the work. It is counted work and not time, so that it is the same on any machine.
func (s *objectiveStepper) worthEvaluating() bool {
	// in the last case the run ends
	if _, known := s.o.F.(costly); !known || !s.noisy || s.gap <= s.goal() {
		return true
	}
	_, cost := s.costs()
	cost *= float64(s.n)
	if s.valued+cost > evalShare*s.spent {
		return false
	}
	s.valued += cost
	return true
}

// dist returns the state reached: the average of the iterates where there is one.
func (s *objectiveStepper) dist() Dist {
	if s.avg != nil {
		return s.avg
	}
	return s.q
}

// Evaluate implements Stepper. A value that is not finite is an error wrapping ErrDiverged.
func (s *objectiveStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	q := s.dist()
	f, h := s.o.F, s.o.H
	if s.look != nil {
		f, h = s.look.f, s.look.h
	}
	v, stderr, bound, err := s.value(ctx, env, f, q)
	if errors.Is(err, ErrNotFinite) && s.noisy && !s.near && s.infinite {
		// still on its way
		return Evaluation{ELBO: math.Inf(-1), Random: !s.exact, Gap: math.Inf(1)}, nil
	}
	if err != nil {
		return Evaluation{}, err
	}
	v += h.Value(q)
	if err := s.halt.Err(); err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: -v, ELBOErr: goals.NeverZero(stderr), Random: !s.exact, Gap: goals.NeverZero(s.gap)}
	if g, ok := q.(*Gaussian); ok && s.infinite && !s.noisy && dense.Epsilon*g.inflation() > mostLost {
		e.Gap = math.Inf(1) // what there is to gain may be in digits that V does not have
	}
	if s.most != 0 && !math.IsInf(s.most, 0) && !s.noisy {
		e.Gap = goals.NeverZero(math.Max(0, s.most-e.ELBO) + stderr)
	}
	if !math.IsInf(bound, 1) {
		e.GapBound, e.Scope = bound+stderr, OverBlock
		if !s.noisy {
			e.Gap = goals.NeverZero(bound)
		}
	}
	if math.IsNaN(e.ELBO) || math.IsInf(e.ELBO, 0) {
		return e, fmt.Errorf("the ELBO is %v; take smaller steps, or leave Solver.StepSize nil: %w", e.ELBO, ErrDiverged)
	}
	if s.noisy && !math.IsNaN(s.gap) {
		e.Goal = s.goal()
		if e.Random && stderr > e.Goal {
			e.Goal = math.Min(stderr, mostGoal*e.Goal)
		}
	}
	return e, nil
}

// value is Value of f, with a bound on what q can gain with all else held, +Inf if there is none.
func (s *objectiveStepper) value(ctx context.Context, env *Env, f Smooth, q Dist) (value, stderr, bound float64, err error) {
	prior := priorOf(s.o.H)
	if s.factors == nil || prior == nil {
		value, stderr, err = f.Value(ctx, env, q)
		return value, stderr, math.Inf(1), err
	}
	if s.probe == nil {
		s.probe = s.q.Clone()
		s.scratch = make([]float64, len(s.g))
	}
	if value, stderr, err = s.factors.valueGrad(ctx, env, s.scratch, q); err != nil {
		return value, stderr, math.Inf(1), err
	}
	return value, stderr, blockGain(q.(ExpFamily), prior, s.probe.(ExpFamily), s.scratch), nil
}

// Step implements Stepper.
func (s *objectiveStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	s.halt.Watch(ctx)
	s.halt.Lend(env.cores())
	defer s.halt.Forget()
	put := s.undo(ctx, batch)
	s.took, s.taken, s.given, s.visits, s.more = 0, s.size(batch), !math.IsInf(beta, 1), 0, 0
	if s.look != nil {
		s.look.ctx, s.look.env, s.look.visits, s.look.err = ctx, env, 0, nil
	}
	if s.factors != nil && s.infinite && math.IsInf(beta, 1) && !s.checker.all(batch, s.n) {
		beta = fractionStep{}.StepSize(s.k)
		s.k++
	}
	err := s.step(ctx, env, batch, beta)
	if s.look != nil {
		s.more = max(0, s.look.visits-1) * s.n
		s.look.ctx, s.look.env = nil, nil
		if err != nil && s.look.err != nil {
			err = fmt.Errorf("%w: %w", err, bare{s.look.err})
		}
	}
	if ctx.Err() != nil { // whatever was canceled inside of the step
		return Step{}, put(context.Cause(ctx))
	}
	if err != nil {
		return Step{}, err
	}
	return Step{Beta: s.took, GradMap: goals.NeverZero(s.gradMap), ClosedForm: s.closed, more: s.more}, nil
}

// undo returns what puts the state back to that before a step from batch, if ctx can be done, and
// returns the cause.
func (s *objectiveStepper) undo(ctx context.Context, batch []int) func(cause error) error {
	if ctx.Done() == nil {
		return func(cause error) error { return cause }
	}
	blocks, ends := s.blocks, batch == nil || s.terms+len(batch) >= s.n
	before := func(c *save.State) {
		s.current(c)
		if ends { // else the means of passes are left alone or behind, not changed
			s.blocks.state(c, len(s.g))
		}
	}
	kept, err := save.Append(s.kept[:0], before)
	s.kept = kept
	return func(cause error) error {
		s.blocks = blocks
		if err == nil {
			err = save.Unmarshal(kept, before)
		}
		if err != nil {
			return fmt.Errorf("%w, in a step that cannot be taken back: %w", cause, bare{err})
		}
		return cause
	}
}

func (s *objectiveStepper) step(ctx context.Context, env *Env, batch []int, beta float64) error {
	s.noisy = !s.exact || !s.checker.all(batch, s.Len())
	if !math.IsInf(beta, 1) {
		if err := s.leaveAverage(); err != nil {
			return err
		}
		if s.o.Inner > 1 {
			return s.relinearise(ctx, env, batch, beta)
		}
		if _, err := s.grad(ctx, env, s.g, s.q, batch); err != nil {
			return err
		}
		s.adapt(beta)
		beta, err := s.tryFrom(beta, nil)
		if err != nil {
			return err
		}
		s.gap = math.NaN()
		s.accept(beta)
		return nil
	}
	if s.o.Inner > 1 {
		return fmt.Errorf("pgsvi: Objective.Inner is %d, which is for steps of a given size; set Solver.StepSize: %w", s.o.Inner, ErrParam)
	}
	if _, ok := s.q.(ExpFamily); ok && s.infinite && s.noisy {
		if !s.near {
			return s.approach(ctx, env, batch)
		}
		return s.average(ctx, env, batch)
	}
	if err := s.leaveAverage(); err != nil {
		return err
	}
	return s.descend(ctx, env, batch)
}

// innerSteps are the points between which relinearise moves.
type innerSteps struct {
	at       Dist      // the best so far
	from, to []float64 // at, and the target of the linearisation there
	lambda   []float64 // the former as λ
	pcg      rand.PCG
	env      Env
}

const (
	// leastInnerMove is the least part of the way to its target that a linearisation may lead.
	leastInnerMove = 1. / (1 << 16)
	// innerFall is the part of the fall that a linearisation promises which must come about
	// (Armijo).
	innerFall = 1e-4
	// innerRounding is the promised fall, relative to the objective, that is rounding.
	innerRounding = 1e-15
	// innerNoise is the same below which a step that does not fall has met the errors of
	// expectations, and a shorter one will, too.
	innerNoise = 1e-11
)

// relinearise takes the step with beta by linearisations of f at one point after another: see
// Objective.Inner. It moves in the coordinates of the targets: along natural parameters where these
// are averaged, otherwise along λ, in which f + h + D/β falls towards the minimiser of the
// linearised f plus a convex h + D/β.
func (s *objectiveStepper) relinearise(ctx context.Context, env *Env, batch []int, beta float64) error {
	in := &s.inner
	if in.at == nil {
		in.at = s.q.Clone()
		haltDist(in.at, &s.halt)
		in.from, in.to, in.lambda = make([]float64, len(s.g)), make([]float64, len(s.g)), make([]float64, len(s.g))
	} else if err := setDist(in.at, s.q); err != nil {
		return err
	}
	// The same draws for every gradient of the step.
	rng := env.rng()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	in.env.workers = env.Workers()
	if in.env.Rng == nil {
		in.env.Rng = rand.New(&in.pcg)
	}
	in.pcg.Seed(seed[0], seed[1])
	f, err := s.grad(ctx, &in.env, s.g, s.q, batch)
	if err != nil {
		return err
	}
	easy := s.o.H.Value(s.q) // h + D/β
	if v := f + easy; math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("pgsvi: the objective of the batch is %v: %w", v, ErrNotFinite)
	}
	for i := range s.o.Inner {
		if i == 0 {
			beta, err = s.tryFrom(beta, nil)
		} else {
			s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: beta, halt: &s.halt}
			_, err = s.prox.Solve(s.trial)
		}
		if i > 0 && (errors.Is(err, ErrNotPosDef) || errors.Is(err, ErrNotFinite)) {
			break
		}
		if err != nil {
			return err
		}
		s.innerCoordinates(in.from, in.at)
		s.innerCoordinates(in.to, s.trial)
		target := s.easy(s.trial, beta)
		// What the linearised objective promises bounds what there is to gain, where f is convex.
		in.at.Params(in.lambda)
		promise := easy - target + floats.Dot(s.g, in.lambda) - floats.Dot(s.g, s.trial.Params(in.lambda))
		if !(promise > innerRounding*math.Abs(f+easy)) {
			break
		}
		least := leastInnerMove
		if promise < innerNoise*math.Abs(f+easy) {
			least = 1
		}
		fell := false
		for t := 1.0; t >= least && !fell; t /= 2 {
			if err := s.halt.Err(); err != nil {
				return err
			}
			if t < 1 && s.setInner(s.trial, t) != nil {
				continue
			}
			in.pcg.Seed(seed[0], seed[1])
			if s.scratch == nil {
				s.scratch = make([]float64, len(s.g))
			}
			v, err := s.grad(ctx, &in.env, s.scratch, s.trial, batch)
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				continue
			}
			e := target
			if t < 1 {
				e = s.easy(s.trial, beta)
			}
			if v+e <= f+easy-innerFall*t*promise {
				f, easy, fell = v, e, true
			}
		}
		if !fell {
			break
		}
		in.at, s.trial = s.trial, in.at
		s.g, s.scratch = s.scratch, s.g
	}
	s.more = s.visits - s.taken
	s.gap = math.NaN()
	in.at, s.trial = s.trial, in.at
	s.accept(beta)
	return nil
}

// easy returns h + D(·‖λ_k)/β at q.
func (s *objectiveStepper) easy(q Dist, beta float64) float64 {
	return s.o.H.Value(q) + s.d.Value(q, s.q)/beta
}

// innerNatural reports whether targets average natural parameters.
func (s *objectiveStepper) innerNatural() bool {
	e, ok := s.q.(ExpFamily)
	return ok && isKL(s.d) && e.Coordinates() == MeanParams
}

// innerCoordinates stores q in dst.
func (s *objectiveStepper) innerCoordinates(dst []float64, q Dist) {
	if s.innerNatural() {
		q.(ExpFamily).Natural(dst)
		return
	}
	q.Params(dst)
}

// setInner makes q the point that is t of the way to the target.
func (s *objectiveStepper) setInner(q Dist, t float64) error {
	x := s.inner.lambda
	for i, from := range s.inner.from {
		x[i] = from + t*(s.inner.to[i]-from)
	}
	if s.innerNatural() {
		return q.(ExpFamily).SetNatural(x)
	}
	return q.SetParams(x)
}

// leaveAverage goes on from the average, where there is one, without averaging.
func (s *objectiveStepper) leaveAverage() error {
	if s.avg == nil {
		return nil
	}
	if err := setDist(s.q, s.avg); err != nil {
		return err
	}
	s.avg, s.k, s.blocks, s.terms, s.target, s.lastEta = nil, 0, batchMeans{}, 0, nil, nil
	s.near, s.certain, s.replicates = false, math.Inf(1), leastReplicates
	return nil
}

// adapt shows the gradient to the metric of an Adaptive divergence.
func (s *objectiveStepper) adapt(beta float64) {
	if s.metric != nil {
		s.metric.Next(s.d.(diagonalMetric).Scale, s.g, beta)
	}
}

// tryFrom computes the proximal step with beta, halving it until the result
// is valid and passes check, and returns the step size it ended with: 0 if there are valid
// results but none that passes, or if q itself is on the edge, where the trial is q.
func (s *objectiveStepper) tryFrom(beta float64, check func() bool) (float64, error) {
	var err error
	valid, cut := false, false
	for range 100 {
		if err := s.halt.Err(); err != nil {
			return 0, err
		}
		s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: beta, halt: &s.halt}
		_, err = s.prox.Solve(s.trial)
		if cut && err == nil {
			beta = s.keepOff(beta)
		}
		cut = cut || err != nil
		if err == nil && (check == nil || check()) {
			return beta, nil
		}
		valid = valid || err == nil
		if err != nil && !errors.Is(err, ErrNotPosDef) && !errors.Is(err, ErrNotFinite) {
			return 0, err
		}
		if math.IsInf(beta, 1) {
			beta = 1
		} else {
			beta /= 2
		}
	}
	// where steps were valid but did not pass, shorter ones are lost to rounding
	if err != nil && !valid {
		if !s.onEdge() {
			return 0, fmt.Errorf("no step size gives a valid distribution: %w", bare{err})
		}
		return 0, setDist(s.trial, s.q)
	}
	return 0, nil
}

// onEdge reports whether rounding leaves the natural parameters of q itself no distribution: then
// that is why no step does.
func (s *objectiveStepper) onEdge() bool {
	q, ok := s.q.(ExpFamily)
	trial, same := s.trial.(ExpFamily)
	return ok && same && trial.SetNatural(q.Natural(nil)) != nil
}

// edgeFraction is the part of the way to the edge of the set of natural parameters that a step
// which had to be cut may go.
const edgeFraction = 0.9

// keepOff shortens the trial, a step with beta that was cut to be valid, if that went more than
// edgeFraction of the way to the edge of the natural parameters of an Exp, and returns the step
// size it then has. With target η_t it is η + ρ(η_t − η), ρ = β/(1+β).
func (s *objectiveStepper) keepOff(beta float64) float64 {
	q, ok := s.q.(*Exp)
	trial, same := s.trial.(*Exp)
	if !ok || !same || !s.infinite || math.IsInf(beta, 1) {
		return beta
	}
	// The edge is beyond x if x/edgeFraction is valid.
	eta, x := q.Natural(nil), trial.Natural(nil)
	floats.Sub(x, eta)
	beyond := floats.AddScaledTo(make([]float64, len(x)), eta, 1/edgeFraction, x)
	if a := q.f.LogPartition(beyond); !math.IsNaN(a) && !math.IsInf(a, 0) {
		return beta
	}
	floats.AddScaled(eta, edgeFraction, x)
	if trial.SetNatural(eta) != nil {
		return beta
	}
	rho := edgeFraction * beta / (1 + beta)
	return rho / (1 - rho)
}

// accept makes the trial the state.
func (s *objectiveStepper) accept(beta float64) {
	s.took = beta
	if math.IsInf(beta, 1) {
		beta = 1
	}
	s.from, s.to = s.q.Params(s.from), s.trial.Params(s.to)
	s.gradMap = floats.Distance(s.from, s.to, 2) / beta
	s.q, s.trial = s.trial, s.q
}

// descend takes an accepted step: the objective of the batch, with the same
// draws before and after, does not rise. A step of length zero is a step.
func (s *objectiveStepper) descend(ctx context.Context, env *Env, batch []int) error {
	same := sameDraws(env)
	f, err := s.grad(ctx, same(), s.g, s.q, batch)
	if errors.Is(err, ErrNotFinite) && !s.started {
		s.gap = math.Inf(1)
		moved, e := s.narrow(ctx, same, batch)
		if moved || e != nil && !errors.Is(e, ErrNotFinite) {
			return e // a step of its own
		}
	}
	if errors.Is(err, ErrNotFinite) {
		if led, e := s.lead(ctx, same, batch, math.Inf(1)); led || e != nil {
			return e
		}
		if found, e := s.seek(ctx, same, batch, math.Inf(1)); found || e != nil {
			return e
		}
	}
	if err != nil {
		return err
	}
	start := f + s.o.H.Value(s.q)
	if math.IsNaN(start) || math.IsInf(start, 0) {
		return fmt.Errorf("pgsvi: the objective of the batch is %v: %w", start, ErrNotFinite)
	}
	if !s.started || s.beta < 1 {
		if led, err := s.lead(ctx, same, batch, start); led || err != nil {
			return err
		}
	}
	var gain float64 // of the last trial
	falls := func() bool {
		v, err := s.objective(ctx, same(), s.trial, batch)
		gain = start - v
		return err == nil && v <= start+1e-13*math.Abs(start)
	}
	if s.metric != nil {
		g := append([]float64(nil), s.g...)
		s.adapt(1)
		var slope float64
		for i, scale := range s.d.(diagonalMetric).Scale {
			slope += g[i] * s.g[i] / scale
		}
		if !(slope > 0) {
			copy(s.g, g) // momentum leads uphill, the gradient does not
		}
	}
	if s.infinite && s.exact && s.mix.slow {
		q := s.q.(ExpFamily)
		if s.mix.propose(s.trial.(ExpFamily), q, q.naturalOf(priorOf(s.o.H)), s.g) && falls() {
			s.accept(math.Inf(1))
			// of the state before, as in other steps
			s.gap = math.Max(gain, s.distance(q, s.mix.eta, s.mix.to))
			return nil
		}
	}
	beta, err := s.tryFrom(s.beta, falls)
	// the last step may have been so short that this one begins in rounding
	if err != nil && s.beta < 1 {
		beta, err = s.tryFrom(1, falls)
	}
	if s.exact && s.infinite && (err != nil || beta < shortStep) {
		if beta == 0 || err != nil {
			gain = 0
		}
		most := s.most
		if found, err := s.seek(ctx, same, batch, start); found || err != nil {
			return err
		}
		if s.most != most && err == nil && beta > 0 { // the trial is another now
			if _, err := s.tryFrom(beta, nil); err != nil {
				return err
			}
		}
		if fell, from := s.straight(gain, falls, &gain), s.q; fell {
			s.started, s.beta = true, math.Inf(1)
			s.accept(math.Inf(1))
			s.gap = math.Max(gain, s.toTarget(from.(ExpFamily)))
			return nil
		}
		if err := s.halt.Err(); err != nil {
			return err
		}
	}
	if !s.started && s.infinite && !(beta > leastFirst) {
		// The gradient is of no use here.
		s.gap = math.Inf(1)
		if moved, err := s.narrow(ctx, same, batch); moved || err != nil {
			return err // a step of its own
		}
	}
	s.started = true
	if err != nil || beta == 0 {
		s.gradMap, s.beta = 0, 1
		return err
	}
	before, from := s.gap, s.q
	s.gap = s.stepKL(beta)
	s.accept(beta)
	if math.IsInf(s.gap, 1) {
		s.gap = s.toTarget(from.(ExpFamily))
	}
	if s.exact && s.infinite && beta < shortStep {
		// Rounding may be what a longer step has met: it says no more of the gap.
		if _, bound, err := s.o.F.Value(ctx, same(), s.q); err == nil {
			s.gap = math.Max(s.gap, bound)
		}
	}
	if s.infinite {
		// far off, what the metric of q says of the gap may be much too little
		s.gap = math.Max(s.gap, gain)
	}
	s.mix.alone++
	s.mix.slow = s.mix.slow || s.gap > worthMixing*before && (s.factors == nil || s.mix.alone >= settledSteps)
	s.beta = 2 * beta
	if s.infinite && s.beta > 100 {
		s.beta = math.Inf(1)
	}
	if s.noisy {
		s.k++
		s.beta = math.Min(s.beta, s.beta*math.Pow(1+1/float64(s.k), -0.6)/2)
	}
	return nil
}

// toTarget returns the distance from q, whose gradient is in g, to its target, in nats.
func (s *objectiveStepper) toTarget(q ExpFamily) float64 {
	to := q.naturalOf(priorOf(s.o.H))
	floats.Sub(to, q.MeanGrad(nil, s.g))
	return s.distance(q, q.Natural(nil), to)
}

// straight looks for a trial whose objective falls by more than gain, where steps along natural
// parameters have to be short: under a V that differs from that of the target by orders of
// magnitude means do not move, or move anywhere. The means of its trials are those on the straight
// line to that of the target, and the V is that of the target, that of q, or between both, in the
// chart. Where falls is true of a trial *fell is its gain. It reports whether it has found one;
// otherwise the trial is what it was.
func (s *objectiveStepper) straight(gain float64, falls func() bool, fell *float64) bool {
	from, ok := s.q.(*Gaussian)
	if !ok {
		return false
	}
	best := s.trial.Clone()
	s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: math.Inf(1), halt: &s.halt}
	if _, err := s.prox.Solve(s.trial); err != nil {
		return s.resetTrial(best)
	}
	target := s.trial.Clone().(*Gaussian)
	a, b := from.Chart(nil), target.Chart(nil)
	x, d := make([]float64, len(a)), from.Dim()
	for t := 1.0; t >= leastStraight; t /= 4 {
		for _, wide := range [...]float64{1, 0, t} {
			if t == 1 && wide == 1 {
				continue // that is the step along natural parameters
			}
			for i := range x {
				u := t
				if i >= d {
					u = wide
				}
				x[i] = (1-u)*a[i] + u*b[i]
			}
			if s.halt.Stopped() {
				return false
			}
			if s.trial.(*Gaussian).SetChart(x) == nil && falls() && *fell > gain {
				return true
			}
		}
	}
	return s.resetTrial(best)
}

// resetTrial makes q the trial, and is false.
func (s *objectiveStepper) resetTrial(q Dist) bool {
	s.trial = q
	haltDist(q, &s.halt)
	return false
}

// guided is a Smooth that knows where to go where its gradient does not.
type guided interface {
	// guide stores in dst a gradient of other derivatives, where those under q of all terms are
	// beyond use as those of an exponential far out are. It reports whether there are such, and
	// whether these are finite.
	guide(dst []float64, q Dist, halt *parallel.Halt) (bool, error)
}

// lead takes a step by the gradient of a guide that makes the objective, which is start, fall. It
// reports whether there is one.
func (s *objectiveStepper) lead(ctx context.Context, same func() *Env, batch []int, start float64) (bool, error) {
	g, ok := s.o.F.(guided)
	if !ok || !s.exact || !s.infinite {
		return false, nil
	}
	to := make([]float64, len(s.g))
	if astray, err := g.guide(to, s.q, &s.halt); !astray || err != nil {
		return false, s.halt.Err()
	}
	to, s.g = s.g, to
	gain := 0.0
	falls := func() bool {
		v, err := s.objective(ctx, same(), s.trial, batch)
		gain = start - v
		return err == nil && v < start
	}
	beta := math.Inf(1)
	s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: beta, halt: &s.halt}
	_, err := s.prox.Solve(s.trial)
	led := err == nil && falls() || s.straight(0, falls, &gain)
	if !led {
		beta, err = s.tryFrom(1, falls)
		led = err == nil && beta > 0
	}
	s.g = to
	if !led {
		return false, s.halt.Err()
	}
	s.started, s.gap, s.beta = true, math.Inf(1), math.Inf(1)
	s.accept(beta)
	return true, nil
}

// seeker is a Smooth that knows another way to the best q.
type seeker interface {
	// seek makes q the best under that prior, as far as it is found. It takes no passes where it
	// knows no way.
	seek(q Dist, prior ExpFamily, workers int, halt *parallel.Halt) (term.Sought, error)
}

// seek goes to where a seeker leads, once, if the objective, which is start, is less there. It
// reports whether it is.
func (s *objectiveStepper) seek(ctx context.Context, same func() *Env, batch []int, start float64) (bool, error) {
	g, ok := s.o.F.(seeker)
	if !ok || s.most != 0 || !s.exact || !s.infinite {
		return false, nil
	}
	found, err := g.seek(s.trial, priorOf(s.o.H), same().Workers(), &s.halt)
	if halted := s.halt.Err(); halted != nil {
		return false, halted
	}
	s.most = math.Inf(1)
	s.more += found.Passes * s.n
	if found.Passes == 0 || err != nil {
		return false, nil
	}
	s.most = found.Most
	if v, err := s.objective(ctx, same(), s.trial, batch); err != nil || !(v < start) {
		return false, s.halt.Err()
	}
	s.started, s.gap, s.beta = true, math.Inf(1), math.Inf(1)
	s.accept(math.Inf(1))
	return true, nil
}

// sameDraws returns what makes an Env that has the same draws whenever it is called.
func sameDraws(env *Env) func() *Env {
	rng := env.rng()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	return func() *Env { return NewEnv(rand.NewPCG(seed[0], seed[1]), env.Workers()) }
}

// objective returns f + h at q by the given draws; the gradient of f is in s.scratch.
func (s *objectiveStepper) objective(ctx context.Context, env *Env, q Dist, batch []int) (float64, error) {
	if s.scratch == nil {
		s.scratch = make([]float64, len(s.g))
	}
	f, err := s.grad(ctx, env, s.scratch, q, batch)
	if err != nil {
		return math.NaN(), err
	}
	v := f + s.o.H.Value(q)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return v, fmt.Errorf("pgsvi: the objective of the batch is %v: %w", v, ErrNotFinite)
	}
	return v, nil
}

// narrow replaces q by the widest of the q^c normalised, c = 1, 4, 16 …, whose objective by the
// given draws is close to the least: q^c has c times the natural parameters of q, and for a
// Gaussian it is N(m, V/c). If the objective of none is finite the error is that of the narrowest.
// It reports whether q has changed.
func (s *objectiveStepper) narrow(ctx context.Context, same func() *Env, batch []int) (moved bool, err error) {
	q, ok := s.q.(ExpFamily)
	if !ok {
		s.started = true
		return false, nil
	}
	var values []float64
	eta, at := q.Natural(nil), q
	best, worse := math.Inf(1), 0
	for len(values) < mostNarrowings && worse < lookAhead {
		v, e := s.objective(ctx, same(), at, batch)
		if ctx.Err() != nil {
			return false, e
		}
		switch {
		case e != nil:
			err, v = e, math.Inf(1)
		case v < best:
			best, worse = v, 0
		default:
			worse++
		}
		values = append(values, v)
		floats.Scale(4, eta)
		at = s.trial.(ExpFamily)
		if at.SetNatural(eta) != nil {
			break
		}
	}
	if math.IsInf(best, 1) {
		return false, err
	}
	s.started = true
	eta = q.Natural(nil)
	for i, v := range values {
		if v <= best+closeToBest*math.Abs(best) {
			return i > 0, q.SetNatural(eta)
		}
		floats.Scale(4, eta)
	}
	return false, nil
}

// approach takes a noisy step that must make the objective of the batch fall, by draws that are not
// those of the gradient: the longest of those that are 1, 1/2, 1/3, 1/5 … of the way to the target,
// and over some of the terms no longer than keeps KL(q_{k+1}‖q_k) within one nat. Where none makes
// it fall by much, q is near.
func (s *objectiveStepper) approach(ctx context.Context, env *Env, batch []int) error {
	draws, check := sameDraws(env), sameDraws(env)
	s.gap = math.Inf(1)
	if !s.started {
		if moved, err := s.narrow(ctx, check, batch); moved || err != nil {
			return err // a step of its own
		}
	}
	if _, err := s.grad(ctx, draws(), s.g, s.q, batch); err != nil {
		return err
	}
	start, err := s.objective(ctx, check(), s.q, batch)
	if err != nil {
		return err
	}
	all := s.checker.all(batch, s.n)
	beta, gain, cut := math.Inf(1), 0.0, false
	for range mostImprovings {
		if err := s.halt.Err(); err != nil {
			return err
		}
		s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: beta, halt: &s.halt}
		_, err := s.prox.Solve(s.trial)
		if cut && err == nil {
			beta = s.keepOff(beta)
		}
		cut = cut || err != nil
		if err != nil && !errors.Is(err, ErrNotPosDef) && !errors.Is(err, ErrNotFinite) {
			return err
		}
		if err == nil && (all || s.trial.(ExpFamily).KL(s.q) <= 1) {
			v, err := s.objective(ctx, check(), s.trial, batch)
			if ctx.Err() != nil {
				return err
			}
			if err == nil && v < start {
				gain = start - v
				break
			}
		}
		if math.IsInf(beta, 1) {
			beta = 1
		} else {
			beta /= 2
		}
	}
	wanders := gain > 0 && !all && s.wanders()
	if gain > 0 {
		s.accept(beta)
	} else {
		s.gradMap = 0
	}
	s.near = wanders || gain < nearGain+nearGainDim*float64(s.q.Dim())
	return nil
}

// leastTelling is the least fraction of the way to the target from which its distance can be told.
const leastTelling = 1e-6

// stepKL estimates ½δᵀFδ, δ the distance in natural parameters from the state to the target of
// which the trial is a fraction ρ = β/(1+β). It is +Inf where that had to be so small a fraction
// that rounding is all there is.
func (s *objectiveStepper) stepKL(beta float64) float64 {
	e, ok := s.trial.(ExpFamily)
	if !ok || !s.infinite {
		return math.NaN()
	}
	rho := 1.0
	if !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	if rho < leastTelling {
		return math.Inf(1)
	}
	return e.KL(s.q) / (rho * rho)
}

// wanders reports whether successive steps no longer agree in their direction,
// in the metric of the Fisher information: they are noise (Pflug, 1990).
func (s *objectiveStepper) wanders() bool {
	from, to := s.q.(ExpFamily), s.trial.(ExpFamily)
	eta, mu := to.Natural(nil), to.MeanParams(nil)
	floats.Sub(eta, from.Natural(nil))
	floats.Sub(mu, from.MeanParams(nil))
	if s.lastEta == nil {
		s.agree = 1
	} else {
		norm := math.Sqrt(math.Abs(floats.Dot(eta, mu) * floats.Dot(s.lastEta, s.lastMu)))
		if cos := 0.5 * (floats.Dot(eta, s.lastMu) + floats.Dot(s.lastEta, mu)) / norm; norm > 0 {
			s.agree += 0.2 * (cos - s.agree)
		}
	}
	s.lastEta, s.lastMu = eta, mu
	return s.agree < 0
}

// average takes a noisy step and adds it to the average.
func (s *objectiveStepper) average(ctx context.Context, env *Env, batch []int) error {
	if _, err := s.grad(ctx, env, s.g, s.q, batch); err != nil {
		return err
	}
	terms := s.size(batch)
	// A batch shorter than the others, as the last of a pass, goes less far.
	s.usual = max(s.usual, terms)
	most := math.Pow(1+float64(s.k), -0.6) * float64(terms) / float64(s.usual)
	longest := math.Inf(1)
	if most < 1 {
		longest = most / (1 - most)
	}
	beta, err := s.tryFrom(longest, func() bool { return s.trial.(ExpFamily).KL(s.q) <= 1 })
	if err != nil {
		return err
	}
	rho := 1.0
	if !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	s.addTarget(rho, terms)
	if beta == longest || s.k > 0 || s.wanders() {
		s.k++
	}
	s.accept(beta)
	if s.k == 0 {
		clear(s.target)
		s.terms = 0
		return nil
	}
	if s.avg == nil {
		s.avg, s.averaged = s.q.Clone(), 0
		haltDist(s.avg, &s.halt)
	}
	s.averaged++
	w := (averagePower + 1) / (s.averaged + averagePower)
	a := s.avg.(ExpFamily)
	eta, now := a.Natural(nil), s.q.(ExpFamily).Natural(nil)
	floats.Scale(1-w, eta)
	floats.AddScaled(eta, w, now)
	if err := a.SetNatural(eta); err != nil {
		return err
	}
	if s.terms >= s.Len() {
		return s.endPass(ctx, env)
	}
	return nil
}

// addTarget adds the target of a step that went the fraction rho of the way to
// it, in natural parameters and weighted by the number of terms, to the mean of the pass.
func (s *objectiveStepper) addTarget(rho float64, terms int) {
	from, to := s.q.(ExpFamily).Natural(nil), s.trial.(ExpFamily).Natural(nil)
	if s.target == nil {
		s.target = make([]float64, len(from))
	}
	for i, f := range from {
		s.target[i] += float64(terms) * (f + (to[i]-f)/rho)
	}
	s.terms += terms
}

// endPass updates the estimate of how far the average is from the optimum, by
// the method of batch means: the mean target of a block of passes differs from
// the optimum by the noise of the block, δ, and their average with weights W by
// ΣWδ, with an expected loss of ΣW²·½δᵀFδ nats. Blocks grow with the run, so
// that noise which cancels in the long run, as that of batches drawn without
// replacement does, counts for what it is. Once the estimate is at its goal,
// the target at the average itself, over all terms, must agree.
func (s *objectiveStepper) endPass(ctx context.Context, env *Env) error {
	floats.Scale(1/float64(s.terms), s.target)
	s.blocks.add(s.target)
	clear(s.target)
	s.terms = 0
	n := len(s.blocks.means)
	if n < 4 {
		return nil
	}
	a := s.avg.(ExpFamily)
	eta := a.Natural(nil)
	s.gap = 0
	for i, mean := range s.blocks.means {
		lo, hi := float64(i)/float64(n), float64(i+1)/float64(n)
		w := math.Pow(hi, averagePower+1) - math.Pow(lo, averagePower+1)
		s.gap += w * w * s.distance(a, eta, mean)
	}
	blocks := s.gap
	if s.gap = math.Max(blocks, s.certain); math.IsInf(s.gap, 1) {
		s.gap = math.Max(blocks, verifyFrom*s.goal()) // not at a goal before it is verified
	}
	if blocks > verifyFrom*s.goal() || s.certain <= s.goal() {
		return nil
	}
	return s.verify(ctx, env, blocks)
}

// verify takes gradients at the average itself, over all terms, and estimates ½δᵀFδ from them, δ
// the distance from the average to its target: with R of them, of distances d_r of their own and d̄
// of their mean, (R²d̄ − Σd_r)/(R(R−1)) has no bias, and noise has left d̄ less that of d̄. Their
// number is what a share of the work of the steps allows. Where noise alone does not explain the
// distance, the iterates have moved their average: they start anew from there.
func (s *objectiveStepper) verify(ctx context.Context, env *Env, blocks float64) error {
	cost, _ := s.costs()
	cost *= float64(s.n)
	replicates := 1
	if !s.exact {
		replicates = min(mostReplicates, int((verifyShare*s.spent-s.verified)/cost))
		if replicates < s.replicates {
			return nil
		}
		s.replicates = min(mostReplicates, 2*replicates) // those did not decide it
	}
	a := s.avg.(ExpFamily)
	eta, prior := a.Natural(nil), a.naturalOf(priorOf(s.o.H)) // η_p − ∇_μ f is the target
	mean, target := make([]float64, len(eta)), make([]float64, len(eta))
	var sum float64
	for range replicates {
		s.verified += cost
		if _, err := s.o.F.Grad(ctx, env, s.g, s.avg, nil); err != nil {
			s.certain, s.gap = math.Inf(1), math.Inf(1)
			return context.Cause(ctx)
		}
		floats.SubTo(target, prior, a.MeanGrad(nil, s.g))
		sum += s.distance(a, eta, target)
		floats.AddScaled(mean, 1/float64(replicates), target)
	}
	r := float64(replicates)
	gap := s.distance(a, eta, mean)
	// of the estimate: the quadratic form has at least as many degrees of freedom as there are
	// dimensions
	var noise float64
	if replicates > 1 {
		unbiased := math.Max(0, (r*r*gap-sum)/(r*(r-1)))
		noise = math.Abs(gap-unbiased) * math.Sqrt(2/float64(s.q.Dim()))
		gap = unbiased
	}
	s.certain = gap + 2*noise
	s.gap = math.Max(blocks, s.certain)
	if gap-2*noise <= math.Max(s.goal(), movedAverage*blocks) {
		return nil
	}
	if err := setDist(s.q, s.avg); err != nil {
		return err
	}
	s.avg, s.blocks, s.certain, s.gap, s.replicates = nil, batchMeans{}, math.Inf(1), math.Inf(1), leastReplicates
	s.near = gap < nearGain+nearGainDim*float64(s.q.Dim())
	return nil
}

// distance returns ½δᵀFδ, δ = to − eta, with the Fisher information at a, whose
// natural parameters are eta: by a difference of mean parameters, over a
// distance that is valid, and no less than its rounding.
func (s *objectiveStepper) distance(a ExpFamily, eta, to []float64) float64 {
	probe, mu := s.trial.(ExpFamily), a.MeanParams(nil)
	delta, x := make([]float64, len(eta)), make([]float64, len(eta))
	floats.SubTo(delta, to, eta)
	for h := 1.0 / 64; h > 1e-9; h /= 8 {
		if probe.SetNatural(floats.AddScaledTo(x, eta, h, delta)) != nil {
			continue
		}
		f := probe.MeanParams(nil)
		var d, rounding float64
		for i, x := range delta {
			d += x * (f[i] - mu[i])
			rounding += dense.Epsilon * math.Abs(x*mu[i])
		}
		return 0.5 * math.Max(math.Abs(d), rounding) / h
	}
	return math.Inf(1)
}

// batchMeans holds the means of 8 to 15 consecutive blocks of passes, of equal
// length, which doubles as the run goes on.
type batchMeans struct {
	means  [][]float64
	span   int // passes in a block
	sum    []float64
	passes int // passes in sum
}

func (b *batchMeans) add(mean []float64) {
	if b.span == 0 {
		b.span, b.sum = 1, make([]float64, len(mean))
	}
	floats.Add(b.sum, mean)
	b.passes++
	if b.passes < b.span {
		return
	}
	block := make([]float64, len(mean))
	floats.AddScaled(block, 1/float64(b.span), b.sum)
	clear(b.sum)
	b.passes = 0
	b.means = append(b.means, block)
	if len(b.means) < mostMeans {
		return
	}
	for i := range mostMeans / 2 {
		m := b.means[2*i]
		floats.Add(m, b.means[2*i+1])
		floats.Scale(0.5, m)
		b.means[i] = m
	}
	b.means, b.span = b.means[:mostMeans/2], 2*b.span
}

// mostMeans is the number of blocks at which two become one.
const mostMeans = 16

// averagePower is the power of k with which the weights of the average grow.
const averagePower = 3

// MarshalBinary returns the state. The bytes are not for long storage: see Result.Save. The error
// wraps ErrParam if the Metric of an Adaptive divergence is no encoding.BinaryMarshaler and
// encoding.BinaryUnmarshaler.
func (s *objectiveStepper) MarshalBinary() ([]byte, error) {
	b, err := save.Marshal(s.state)
	return b, prefixed(err)
}

// UnmarshalBinary puts a state back. The error wraps ErrFile if b is not the state of a Stepper
// of the same Objective, as far as can be seen: of functions of the caller's only the
// types are known; s is then of no use.
func (s *objectiveStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

// constant reports that Evaluate changes nothing.
func (s *objectiveStepper) constant() bool { return true }

func (s *objectiveStepper) state(c *save.State) {
	n := len(s.g)
	s.print.state(c, func(d *save.Digest) {
		d.Int(s.n, n)
		d.Text(fmt.Sprintf("%T %T %T %T %t %t", s.q, s.o.H, s.d, s.metric, s.exact, s.closed))
		digestPart(d, s.o.F)
		d.Float(s.o.H.Value(s.o.Init))
		d.Float(s.o.Init.Params(nil)...)
		if s.o.Inner > 1 {
			d.Int(s.o.Inner)
		}
	})
	s.current(c)
	s.blocks.state(c, n)
}

// current is state without the means of passes.
func (s *objectiveStepper) current(c *save.State) {
	n := len(s.g)
	distState(c, s.q)
	averages := s.avg != nil
	if c.Bool(&averages); averages {
		if s.avg == nil {
			s.avg = s.q.Clone()
			haltDist(s.avg, &s.halt)
		}
		distState(c, s.avg)
	} else {
		s.avg = nil
	}
	c.Float(&s.beta, &s.averaged, &s.gap, &s.gradMap, &s.agree, &s.spent, &s.valued, &s.verified, &s.certain, &s.most)
	c.Int(&s.k, &s.terms, &s.usual, &s.replicates)
	c.Bool(&s.noisy, &s.started, &s.near)
	c.Floats(n, &s.target, &s.lastEta, &s.lastMu)
	s.mix.state(c, n)
	if s.metric != nil {
		partState(c, s.metric)
	}
}

func (b *batchMeans) state(c *save.State, n int) {
	size := len(b.means)
	c.Int(&size, &b.span, &b.passes)
	c.Check(size < mostMeans, "%d means of blocks, of fewer than %d", size, mostMeans)
	c.Floats(n, &b.sum)
	c.Check(b.span == 0 || b.sum != nil, "blocks of passes without a sum")
	if c.Reading() {
		b.means = make([][]float64, size)
	}
	for i := range b.means {
		c.Floats(n, &b.means[i])
	}
}
