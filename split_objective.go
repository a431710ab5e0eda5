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
	"github.com/pgsvi/pgsvi/internal/save"
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
	if q, ok := s.dist().(*Exp); ok && q.at.SameFamily(prior.at) {
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
