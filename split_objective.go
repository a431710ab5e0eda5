package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/descent"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Fit runs s on the objective. A nil s means the zero Solver, which needs no tuning. It returns
// q(z|λ) at the state reached. The caller owns q, which is valid even if Fit returns an error after
// the set-up. If the set-up fails, q is the zero Q, which is nil for a pointer. Fit returns the
// errors of Solver.Run.
func (o Objective[Q]) Fit(ctx context.Context, s *Solver) (Q, *Result, error) {
	return fitModel[Q](ctx, s, o)
}

// Posterior returns a copy of q(z|λ) at st, a state of an Objective over the same Q. It is the
// average of the iterates if the run averages them. The error wraps ErrParam if st is not such a
// state.
func (o Objective[Q]) Posterior(st Stepper) (q Q, err error) {
	s, ok := st.(*objectiveStepper)
	if !ok {
		return q, fmt.Errorf("pgsvi: the state is a %T, but an Objective needs its own state: %w",
			st, ErrParam)
	}
	reached := s.Dist().Clone()
	if t, ok := s.F.(*plateTerms); ok {
		reached, err = t.whole(reached.(*Exp))
	}
	if q, ok = reached.(Q); !ok {
		return q, fmt.Errorf("pgsvi: the state is over a %T, so it belongs to another Objective: "+
			"%w", reached, ErrParam)
	}
	return q, err
}

// posteriorOf returns q at st, which must be a state of an Objective over the family of the prior.
func posteriorOf(st Stepper, prior *Exp) (*Exp, error) {
	s, ok := st.(*objectiveStepper)
	if !ok {
		return nil, fmt.Errorf("pgsvi: the state is a %T, but a model needs its own state: %w", st,
			ErrParam)
	}
	if q, ok := s.Dist().(*Exp); ok && q.at.SameFamily(prior.at) {
		return q, nil
	}
	return nil, fmt.Errorf("pgsvi: the state is over a %s, so it belongs to another model: %w",
		distName(s.Dist()), ErrParam)
}

// NewStepper implements Model. A nil d means KL, or Euclidean if Init is not an ExpFamily. The
// error wraps
//   - ErrParam if Init is nil, if Inner does not fit, or if the gradient of a SmoothFunc, or of an
//     H or d of your own, contradicts its values near Init, along one random direction;
//   - ErrEmpty if F has no terms;
//   - ErrNoProx if the pair (H, d) has no proximal step on the family of Init.
//
// NewStepper also returns errors of F, H and d.
func (o Objective[Q]) NewStepper(_ context.Context, env *Env, d Divergence) (Stepper, error) {
	if v := reflect.ValueOf(o.Init); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("pgsvi: Objective.Init is nil: %w", ErrParam)
	}
	p, err := problem{o.F, o.H, o.Init, o.Inner}.batched(env.size(), d)
	if err != nil {
		return nil, err
	}
	return p.newStepper(d)
}

// warnings implements warner. Without an h, nothing rewards the entropy of q, so the steps shrink q
// to a point and the ELBO is only E_q[log p(y|z)].
func (o Objective[Q]) warnings() []string {
	_, expected := o.F.(*expectedTerms)
	_, family := any(o.Init).(ExpFamily)
	if !expected || !family || o.H != nil && !isZero(o.H) {
		return nil
	}
	return []string{"Objective.H is nil or Zero, so q shrinks to a point; set H to KLTo(prior), or to " +
		"NaturalPrior(nil) if LogProb includes the prior"}
}

// problem is an Objective over a Dist of any type. It does the work of Objective.
type problem struct {
	F     Smooth
	H     Convex
	Init  Dist
	Inner int
}

// batched returns the problem that a run with mini-batches of the given size solves, which is over
// fewer blocks if o is a Graph with plates and steps use KL divergences. Otherwise it is o.
func (o problem) batched(size int, d Divergence) (problem, error) {
	if !isKL(d) {
		return o, nil
	}
	t, err := platesOf(o.F, o.H, o.Init, size)
	if t == nil || err != nil {
		return o, err
	}
	return problem{F: t, H: KLTo(t.prior), Init: t.init, Inner: o.Inner}, nil
}

// newStepperAt is newStepper for a random initial state with the natural parameters eta. Init then
// only identifies the model.
func (o problem) newStepperAt(d Divergence, eta []float64) (*objectiveStepper, error) {
	st, err := o.newStepper(d)
	if err != nil {
		return nil, err
	}
	s := st.(*objectiveStepper)
	return s, s.Q.(ExpFamily).SetNatural(eta)
}

// mostInner limits Objective.Inner and the number of steps in a visit to a document of a CTM.
const mostInner = 10000

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
	n, exact, err := o.F.Setup(o.Init)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("pgsvi: Objective.F has %d terms; it needs at least one: %w", n,
			ErrEmpty)
	}
	if err := o.H.Check(o.Init); err != nil {
		return nil, err
	}
	if err := d.Check(o.Init); err != nil {
		return nil, err
	}
	if o.Inner < 0 || o.Inner > mostInner {
		return nil, fmt.Errorf("pgsvi: Objective.Inner is %d; it must be from 0 to %d: %w", o.Inner,
			mostInner, ErrParam)
	}
	var metric Metric
	if a, ok := d.(adaptive); ok {
		if o.Inner > 1 {
			return nil, fmt.Errorf("pgsvi: Objective.Inner is %d; it must be at most 1 with %s, "+
				"which uses one gradient per step: %w", o.Inner, spell(d), ErrParam)
		}
		n := o.Init.NumParams()
		unit := make([]float64, n)
		floats.AddConst(1, unit)
		metric, d = a.start(n), diagonalMetric{unit}
	}
	closed, err := checkProx(o.Init, o.H, d)
	if err != nil {
		return nil, err
	}
	if err := checkGradients(o.Init, o.F, o.H, d); err != nil {
		return nil, err
	}
	var look *survey
	if w, ok := o.H.(whole); ok {
		look = &survey{whole: w}
		o.H = look
	}
	s := &objectiveStepper{problem: o, d: d, metric: metric, closed: closed, look: look}
	s.n, s.exact = n, exact
	if e, rest := entropyOf(o.H); rest != nil && isKL(d) {
		if closed, _ := checkProx(o.Init, e, d); closed {
			s.entropic, s.rest = e, rest
		}
	}
	s.factors, _ = o.F.(blockwise)
	s.start()
	return s, nil
}

// objectiveStepper is the descent.Stepper of a problem.
type objectiveStepper struct {
	descent.Stepper[Dist]
	problem
	d        Divergence
	metric   Metric    // state of an adaptive divergence, whose diagonal d holds; or nil
	prox     Prox      // the step being tried
	target   []float64 // η_p if h is entropic, and otherwise nil
	entropic entropic  // the part of h that steps of the Stepper's choice keep exact; nil for h itself
	rest     Convex    // the other part, which these steps linearize like f; nil without one
	closed   bool      // the proximal step has a closed form
	n        int       // number of terms
	exact    bool      // f is deterministic
	infinite bool      // β = +Inf is a valid step to the minimizer of the linearized f plus h
	factors  blockwise // f, if it has its own factors; otherwise nil
	plan     Plan
	taken    int     // terms in the batch of the last step
	batch    []int   // these terms; empty if they are all terms
	given    bool    // the step size was given
	look     *survey // h, if it reads the terms itself
	checker  allTerms
	env      *Env // Env of the current step or evaluation
	drawn    Env  // the same Env with other draws
	slope    []float64
	memo     memo
	tangents *tangents // test of the terms of a Conjugate, or nil
	whole    bool      // Gap estimates the joint gain of q and the factors of f, and nothing is proved
	print    fingerprint
}

// memo holds f and its gradient over all terms at one q, as valueGrad of a blockwise returns them.
// An accepted step evaluates f at the state from which the next step starts.
type memo struct {
	at, params, grad []float64
	value, stderr    float64
	known            bool
}

// valueGrad returns valueGrad of the factors, which it calls only once for the same q.
func (s *objectiveStepper) valueGrad(ctx context.Context, env *Env, dst []float64, q Dist) (value,
	stderr float64, err error) {
	m := &s.memo
	m.params = q.Params(dense.Resize(m.params, q.NumParams()))
	if m.known && slices.Equal(m.params, m.at) {
		copy(dst, m.grad)
		return m.value, m.stderr, nil
	}
	if value, stderr, err = s.factors.valueGrad(ctx, env, dst, q); err == nil {
		m.at, m.params = m.params, m.at
		m.grad = append(m.grad[:0], dst...)
		m.value, m.stderr, m.known = value, stderr, true
	}
	return value, stderr, err
}

// inTheirOrder reports whether batch is nil or holds all n terms in their order.
func inTheirOrder(batch []int, n int) bool {
	for i, term := range batch {
		if term != i {
			return false
		}
	}
	return batch == nil || len(batch) == n
}

var _ descent.Family[Dist] = ExpFamily(nil)

// guided is a Smooth that has a direction of its own for states with a useless gradient; see
// descent.Objective.
type guided interface {
	guide(dst []float64, q Dist, halt *parallel.Halt) (bool, error)
}

// seeker is a Smooth that has another way to the best q under a prior; see descent.Objective.
type seeker interface {
	seek(q Dist, prior ExpFamily, workers int, halt *parallel.Halt) (term.Sought, error)
}

// start sets the state to Init.
func (s *objectiveStepper) start() {
	s.target = targetOf(s.H, s.Init)
	prior := s.target
	if s.rest != nil {
		prior = targetOf(s.entropic, s.Init)
	}
	s.infinite = isKL(s.d) && prior != nil && (s.closed || s.rest != nil)
	o := descent.Objective[Dist]{
		N: s.n, Exact: s.exact, Infinite: s.infinite, Factors: s.factors != nil, Inner: s.Inner,
		Plain: s.target != nil || isZero(s.H),
		Rand:  func() *rand.Rand { return s.env.rng() },
		Grad: func(ctx context.Context, rng *rand.Rand, dst []float64, q Dist,
			batch []int) (float64, error) {
			value, err := s.gradient(ctx, s.with(rng), dst, q, batch)
			if s.rest != nil && !s.given && err == nil {
				value += s.rest.Value(q)
				floats.Add(dst, s.rest.Grad(nil, q))
			}
			return value, err
		},
		Value: func(ctx context.Context, rng *rand.Rand, q Dist) (value, bound float64, err error) {
			return s.F.Value(ctx, s.with(rng), q)
		},
		Easy: func(q Dist) float64 { return s.easy().Value(q) },
		Pull: s.d.Value,
		Prox: func(q, from Dist, g []float64, beta float64) error {
			s.prox = Prox{Grad: g, H: s.easy(), D: s.d, From: from, Beta: beta, halt: &s.Halt,
				doubt: doubtGradients}
			_, err := s.prox.Solve(q)
			return err
		},
		Set: setDist,
		Clone: func(q Dist) Dist {
			q = q.Clone()
			haltDist(q, &s.Halt)
			return q
		},
		State: distState,
	}
	if q, ok := s.Init.(ExpFamily); ok {
		o.Family, o.Average = true, isKL(s.d) && q.Coordinates() == MeanParams
		o.Prior = prior
	}
	switch q := s.Init.(type) {
	case *Gaussian:
		o.Gaussian = true
	case *Exp:
		o.Inside = q.at.Inside
	}
	if f, ok := s.F.(costly); ok {
		o.Costs = f.costs
	}
	if f, ok := s.F.(guided); ok {
		o.Guide = func(dst []float64, q Dist) (bool, error) { return f.guide(dst, q, &s.Halt) }
	}
	f, seeks := s.F.(seeker)
	if h, ok := s.H.(klTo); ok && seeks { // the ELBO of seek counts the constant of h
		o.Seek = func(q Dist) (term.Sought, error) {
			return f.seek(q, h.prior, s.env.Workers(), &s.Halt)
		}
	}
	if f, ok := s.F.(leaper); ok {
		n, leap := f.leaps()
		o.Leaps, o.Leap = n, func(q Dist, tried []bool) int { return leap(q.(ExpFamily), tried) }
	}
	if s.metric != nil {
		o.Scale = s.d.(diagonalMetric).Scale
		o.Adapt = func(g []float64, beta float64) { s.metric.Next(o.Scale, g, beta) }
		o.MetricState = func(c *save.Coder) { partState(c, s.metric) }
	}
	s.Start(o, s.Init)
}

// easy returns the part of h that the current step keeps exact.
func (s *objectiveStepper) easy() Convex {
	if s.rest != nil && !s.given {
		return s.entropic
	}
	return s.H
}

// gradient is Grad of f, which reuses valueGrad over all terms.
func (s *objectiveStepper) gradient(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	if s.factors != nil && inTheirOrder(batch, s.n) {
		value, _, err := s.valueGrad(ctx, env, dst, q)
		return value, err
	}
	return s.F.Grad(ctx, env, dst, q, batch)
}

// with returns the Env of the step with the draws of rng, or unchanged if rng is nil.
func (s *objectiveStepper) with(rng *rand.Rand) *Env {
	if rng == nil {
		return s.env
	}
	s.drawn = Env{Rng: rng, workers: s.env.Workers()}
	return &s.drawn
}

// Len implements Stepper.
func (s *objectiveStepper) Len() int { return s.n }

// Plan implements Stepper. A model with a default of its own for the batch replaces the Plan.
func (s *objectiveStepper) Plan() Plan { return s.plan }

// worthEvaluating implements sparing.
func (s *objectiveStepper) worthEvaluating() bool { return s.WorthEvaluating() }

const (
	// mostGoal is the largest factor of the goal if the standard error of the ELBO does not resolve
	// the goal.
	mostGoal = 2
	// mostLost is the relative error of V, due to the rounding of V⁻¹, above which V means nothing.
	mostLost = 1. / 16
)

// Evaluate implements Stepper. An infinite or NaN ELBO gives an error wrapping ErrDiverged.
func (s *objectiveStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	s.Halt.Watch(ctx)
	s.Halt.Lend(env.cores())
	defer s.Halt.Forget()
	q := s.Dist()
	f, h := s.F, s.H
	if s.look != nil {
		f, h = s.look.f, s.look.h
	}
	v, stderr, left, err := s.value(ctx, env, f, q)
	if errors.Is(err, ErrNotFinite) && s.Noisy && !s.Near && s.infinite {
		// still on its way
		return Evaluation{ELBO: math.Inf(-1), Random: !s.exact, Gap: math.Inf(1)}, nil
	}
	if err != nil {
		return Evaluation{}, err
	}
	v += h.Value(q)
	if err := s.Halt.Err(); err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: -v, ELBOErr: goals.NeverZero(stderr), Random: !s.exact,
		Gap: goals.NeverZero(s.Gap)}
	if g, ok := q.(*Gaussian); ok && s.infinite && !s.Noisy &&
		dense.Epsilon*g.inflation() > mostLost {
		e.Gap = math.Inf(1) // V lacks the digits that further steps would improve
	}
	if s.Most != 0 && !math.IsInf(s.Most, 0) && !s.Noisy {
		e.Gap = goals.NeverZero(math.Max(0, s.Most-e.ELBO) + stderr)
	}
	if s.whole && !math.IsInf(left.block, 1) {
		e.whole, e.cheap = true, goals.NeverZero(left.block)
		e.Gap = s.wholeGap(ctx, env, q, left.block, goals.With(env.within(), s.n, e.ELBO, stderr))
		if ctx.Err() != nil {
			return Evaluation{}, context.Cause(ctx)
		}
		return e, nil
	}
	if left.proved {
		e.GapBound, e.Scope = left.block+stderr, OverBlock
	}
	if !math.IsInf(left.block, 1) && !s.Noisy {
		e.Gap, e.cheap = goals.NeverZero(left.all), goals.NeverZero(left.block)
	}
	if math.IsNaN(s.Gap) && s.exact && e.cheap == 0 {
		e.Goal = firstOrderGoal * max(1, math.Abs(e.ELBO))
	}
	if math.IsNaN(e.ELBO) || math.IsInf(e.ELBO, 0) {
		return e, fmt.Errorf("the ELBO is %v; take smaller steps, or leave Solver.StepSize nil: %w",
			e.ELBO, ErrDiverged)
	}
	if s.Noisy && !math.IsNaN(s.Gap) {
		e.Goal = s.Goal()
		if e.Random && stderr > e.Goal {
			e.Goal = math.Min(stderr, mostGoal*e.Goal)
		}
	}
	return e, nil
}

// firstOrderGoal is the default goal, relative to the ELBO, of steps without an estimate of the gap:
// steps of a given size, with another divergence than KL, or with another h than KLTo.
const firstOrderGoal = roundingBoundRelative

// predictable reports whether predict has a metric for q.
func predictable(q Dist) bool {
	switch q := q.(type) {
	case *Exp, *Gaussian:
		return true
	case ExpFamily:
		return false // its Fisher information is unknown
	default:
		_, ok := q.(Charted)
		return ok
	}
}

// blockGap holds the remaining gains, in nats, for an f with factors of its own.
type blockGap struct {
	block  float64 // gain of q with the factors of f fixed; +Inf if unknown
	proved bool    // block is a bound
	all    float64 // estimated gain of q and the factors together
}

// value returns Value of f, and the remaining gains if f has factors of its own.
func (s *objectiveStepper) value(ctx context.Context, env *Env, f Smooth,
	q Dist) (value, stderr float64, left blockGap, err error) {
	left = blockGap{block: math.Inf(1), all: math.Inf(1)}
	if s.factors == nil || s.target == nil {
		value, stderr, err = f.Value(ctx, env, q)
		return value, stderr, left, err
	}
	s.slope = dense.Resize(s.slope, q.NumParams())
	if value, stderr, err = s.valueGrad(ctx, env, s.slope, q); err != nil {
		return value, stderr, left, err
	}
	block := s.BlockGain(q, s.slope)
	if s.whole || s.factors.linear() || math.IsInf(block, 1) {
		return value, stderr, blockGap{block, !math.IsInf(block, 1), block}, nil
	}
	return value, stderr, blockGap{block, onePart(q) && s.linearTerms(q), math.Inf(1)}, nil
}

// linearTerms reports whether nothing contradicts that the terms of f are linear in T(z). The first
// call compares them at the initial state and at the prior.
func (s *objectiveStepper) linearTerms(q Dist) bool {
	f, ok := s.F.(conjugateTerms)
	if !ok || !predictable(q) {
		return false
	}
	if s.tangents == nil {
		init := s.Init.(ExpFamily)
		points, prior := []ExpFamily{init}, init.Clone().(ExpFamily)
		if prior.SetNatural(s.target) == nil {
			points = append(points, prior)
		}
		s.tangents = newTangents(f.m, points...)
	}
	return s.tangents.convex(q.(ExpFamily))
}

// localModel returns the functions that Coupling and Gain need at q: the gradient of f at a
// neighbor of q, and products with the Fisher information at q.
func (s *objectiveStepper) localModel(ctx context.Context, env *Env, q Dist) (
	grad func(dst []float64, q Dist) error, fisher func(v []float64) []float64) {
	grad = func(dst []float64, q Dist) error {
		_, _, err := s.factors.valueGrad(ctx, env, dst, q)
		return err
	}
	return grad, func(v []float64) []float64 { return naturalGrad(q.(ExpFamily), v) }
}

// wholeGap estimates how many nats q and the factors of f can gain together from q, where q alone
// can gain block. It is +Inf if the ELBO curves upward along some direction and the estimate is
// below mostCoupled, because q is then near a saddle and the gain lies beyond the local model. An
// estimate of at most goal would end the run, so it is checked with the random directions of
// Coupling.
func (s *objectiveStepper) wholeGap(ctx context.Context, env *Env, q Dist, block,
	goal float64) float64 {
	grad, fisher := s.localModel(ctx, env, q)
	gain, upward := s.Gain(q, s.slope, grad, fisher)
	gain = math.Max(gain, block)
	if gain <= goal {
		_, most := s.Coupling(q, s.slope, grad, fisher)
		upward = most > 1+couplingError
	}
	if upward && gain < mostCoupled {
		return math.Inf(1)
	}
	return goals.NeverZero(gain)
}

const (
	// mostCoupled is the gain, in nats, above which an upward direction leaves a finite gap, because
	// the quadratic model then predicts little of the way to the optimum.
	mostCoupled = 1
	// couplingError is the error of the eigenvalues that descent.Coupling computes by differences.
	couplingError = 1e-3
)

// Step implements Stepper.
func (s *objectiveStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step,
	error) {
	s.Halt.Watch(ctx)
	s.Halt.Lend(env.cores())
	defer s.Halt.Forget()
	put := s.Undo(ctx, batch)
	s.env = env
	s.taken, s.given = estimate.NewBatch(batch, s.n).N, !math.IsInf(beta, 1)
	if s.look != nil {
		s.look.ctx, s.look.env, s.look.visits, s.look.err = ctx, env, 0, nil
	}
	all := s.checker.all(batch, s.n)
	if s.batch = s.batch[:0]; !all {
		s.batch = append(s.batch, batch...)
	}
	if s.factors != nil && s.infinite && math.IsInf(beta, 1) && !all {
		beta = fractionStep{}.StepSize(s.K)
		s.K++
	}
	err := s.Stepper.Step(ctx, batch, all, beta)
	if s.look != nil {
		s.More = max(0, s.look.visits-1) * s.n
		s.look.ctx, s.look.env = nil, nil
		if err != nil && s.look.err != nil {
			err = fmt.Errorf("%w: %w", err, sentinel.Bare(s.look.err))
		}
	}
	if ctx.Err() != nil { // some part of the step was canceled
		return Step{}, put(context.Cause(ctx))
	}
	if err != nil {
		return Step{}, err
	}
	return Step{Beta: s.Took, GradMap: goals.NeverZero(s.GradMap),
		ClosedForm: s.closed || s.rest != nil && !s.given,
		more:       s.More}, nil
}

// MarshalBinary returns the state. The bytes are not for long-term storage; see Result.Save. The
// error wraps ErrParam if the Metric of an adaptive divergence does not implement
// encoding.BinaryMarshaler and encoding.BinaryUnmarshaler.
func (s *objectiveStepper) MarshalBinary() ([]byte, error) {
	b, err := save.Marshal(s.state)
	return b, prefixed(err)
}

// UnmarshalBinary restores a state. The error wraps ErrFile if b does not belong to a Stepper of
// the same Objective. It compares functions of the caller only by their types. After an error s is
// unusable.
func (s *objectiveStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

// constant reports that Evaluate changes nothing.
func (s *objectiveStepper) constant() bool { return true }

func (s *objectiveStepper) state(c *save.Coder) {
	n := len(s.G)
	s.print.state(c, func(d *save.Digest) {
		d.Int(s.n, n)
		d.Text(fmt.Sprintf("%T %T %T %T %t %t", s.Q, s.H, s.d, s.metric, s.exact, s.closed))
		digestPart(d, s.F)
		digestPart(d, s.H)
		d.Float(s.H.Value(s.Init))
		d.Float(s.Init.Params(nil)...)
		if s.Inner > 1 {
			d.Int(s.Inner)
		}
	})
	s.State(c)
}
