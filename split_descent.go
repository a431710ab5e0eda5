package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// problem is an Objective over a Dist of any type, which does the work.
type problem struct {
	F     Smooth
	H     Convex
	Init  Dist
	Inner int
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

// objectiveGoal is the gap, in nats a dimension, at which a run with noisy gradients is
// content: the loss of a mean that is off by 0.06 posterior standard deviations.
const objectiveGoal = 2e-3

// innerSteps are the points between which relinearise moves.
type innerSteps struct {
	at       Dist      // the best so far
	from, to []float64 // at, and the target of the linearisation there
	lambda   []float64 // the former as λ
	pcg      rand.PCG
	env      Env
}

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
	if a := q.at.F.LogPartition(beyond); !math.IsNaN(a) && !math.IsInf(a, 0) {
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
