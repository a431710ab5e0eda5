// Package descent is the engine of pgsvi.Objective. It minimizes f(λ) + h(λ) over the parameters λ
// of a distribution q(z|λ) by proximal-gradient steps (Khan et al., 2016),
//
//	λ_{k+1} = argmin_λ  λᵀ∇f(λ_k) + h(λ) + D(λ‖λ_k)/β_k
//
// The caller supplies f, h and the proximal step as functions of an Objective. The Stepper of this
// package chooses β_k, averages noisy iterates, accelerates slow ones, and estimates how far the
// result is from the optimum. Read Stepper first; the other files hold its parts:
//
//	inner.go      several linearizations of f in one step (trust regions, proximal points)
//	mix.go        Anderson acceleration of exact steps
//	noisy.go      steps with Monte Carlo gradients, and averages of iterates
//	start.go      first steps from a q whose expectations overflow
//	leap.go       jumps to states that only the model knows
//	coupling.go   the predicted gain of all blocks of q together
//	metric.go     metrics of adaptive divergences
//	theory.go     sums for the convergence bounds of the paper
package descent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Dist lists the methods of pgsvi.Dist that every step uses.
type Dist interface {
	Dim() int
	NumParams() int
	Params(dst []float64) []float64
	SetParams(p []float64) error
}

// Family lists the methods of pgsvi.ExpFamily that steps in natural parameters use.
type Family[Q any] interface {
	Natural(dst []float64) []float64
	SetNatural(eta []float64) error
	MeanParams(dst []float64) []float64
	MeanGrad(dst, g []float64) []float64
	KL(p Q) float64
}

// charted lists the methods of a Gaussian that steps along a straight line use.
type charted interface {
	Chart(dst []float64) []float64
	SetChart(x []float64) error
}

// Objective is f + h with its proximal steps. A function may be nil only if its comment allows it.
type Objective[Q Dist] struct {
	N        int       // number of terms of f
	Exact    bool      // f is deterministic
	Infinite bool      // β = +Inf is a valid step, to the minimizer of the linearized f plus h
	Family   bool      // q is a Family
	Gaussian bool      // q is charted, by its mean and the log-Cholesky factor of V
	Average  bool      // the targets of steps average natural parameters, not λ
	Factors  bool      // f has local factors, which a step keeps fixed
	Prior    []float64 // natural parameters of p if h = KL(q‖p); nil for any other h
	Plain    bool      // h = KL(q‖p) or h = 0
	Inner    int       // see pgsvi.Objective

	// Rand returns the generator of the step. Grad stores the gradient of f over a batch in dst
	// and returns the value, with the draws of rng; a nil rng means the generator of the step.
	Rand func() *rand.Rand
	Grad func(ctx context.Context, rng *rand.Rand, dst []float64, q Q, batch []int) (float64, error)
	// Value returns f over all terms, with a bound on its error.
	Value func(ctx context.Context, rng *rand.Rand, q Q) (value, bound float64, err error)
	Easy  func(q Q) float64       // h
	Pull  func(q, from Q) float64 // D
	// Prox sets q to the proximal step from from with gradient g and step size beta. If it returns
	// an error, it sets q to from.
	Prox  func(q, from Q, g []float64, beta float64) error
	Set   func(q, from Q) error // sets q to from
	Clone func(q Q) Q           // with the Halt of the Stepper
	// Inside reports whether eta are valid natural parameters. Nil means that steps may reach the
	// edge of the valid set.
	Inside func(eta []float64) bool
	// State writes or reads q, to the bit.
	State func(c *save.Coder, q Q)

	// Costs returns the work per term of Grad and of Value, in evaluations of one log-likelihood.
	// Nil means that the work is unknown.
	Costs func(q Q) (grad, value float64)
	// Adapt passes the gradient to the metric of an adaptive divergence, which may change it. Scale
	// is the diagonal of the metric, and MetricState reads or writes the metric. All are nil
	// without a metric.
	Adapt       func(g []float64, beta float64)
	Scale       []float64
	MetricState func(c *save.Coder)
	// Guide stores a usable direction in dst if the derivatives of f under q overflow, for example
	// under an exponential likelihood and a wide q. It reports whether it did. A nil Guide never
	// does.
	Guide func(dst []float64, q Q) (bool, error)
	// Seek moves q toward the optimum with another algorithm, if there is one for this f and h. It
	// takes no passes otherwise. A nil Seek does nothing.
	Seek func(q Q) (term.Sought, error)
	// Leaps is the number of other states that may be worth a try: see leap.go. Leap changes q to
	// the most promising state that is not in tried, and returns its index, or −1 if no state is
	// worth a try. It is nil if Leaps is 0.
	Leaps int
	Leap  func(q Q, tried []bool) int
}

// Stepper takes the steps of an Objective, for any f, h and D.
//
// With β = +Inf it chooses the step size itself.
//
// If f is deterministic and the batch holds all terms, the step is halved until the objective does
// not rise.
//
// If f is noisy, the run has two phases. In the first phase a step counts only if the objective
// falls when it is evaluated with other draws than the gradient; the phase ends when such steps gain
// little. In the second phase the step size keeps KL(q_{k+1}‖q_k) within one nat and goes at most
// ρ_k = (1+k)^−0.6 of the way to the target, where k counts the steps since the one-nat limit
// stopped acting, or since the steps began to wander. The result is the average of the natural
// parameters with weights that grow as k³, which removes most of the noise (Polyak and Juditsky,
// 1992). Steps with another D than KL, or without a target, have the same two phases, with
// β_k = β(1+k)^−0.6 in place of ρ_k, where β is the last step size of the first phase.
//
// If expectations under λ_0 overflow, for example under an exponential likelihood and a wide prior,
// the Stepper first narrows q around its mean for as long as that lowers the objective.
type Stepper[Q Dist] struct {
	o Objective[Q]
	// Q is the state. After a step of a given size, Trial is the state before it and G the gradient
	// there.
	Q, Trial Q
	G        []float64
	probe    Q // scratch of BlockGain
	probing  bool
	scratch  []float64
	from, to []float64 // λ before the last step and after it

	beta     float64 // the next step to try
	K        int     // steps that count for the average or a decreasing step size
	all      bool    // the batch of the last step is all terms
	Noisy    bool    // the last step had a noisy gradient
	started  bool    // q is narrow enough for finite expectations
	Near     bool    // the first phase of noisy steps has ended
	Spent    float64 // work of the steps, in log-likelihoods of a term
	Valued   float64 // work of the evaluations that were worth it
	Verified float64 // work of verify

	replicates int // the least number of gradients of the next verify
	// Most is the ELBO that Seek reached: 0 before it is tried, and +Inf if it found none.
	Most     float64
	certain  float64   // the gap of the average in the last call of verify; +Inf before it
	avg      Q         // average of the natural parameters
	averages bool      // avg holds an average
	target   []float64 // sum of the targets of the pass, weighted by terms
	terms    int
	usual    int     // size of the largest batch so far
	epoch    int     // the least number of passes in avg before again; see there
	home     Q       // the start of the epoch, if it is settled
	level    float64 // the objective of home
	settled  bool    // home and level are known
	averaged float64 // number of iterates in avg
	blocks   batchMeans
	Gap      float64
	GradMap  float64
	Took     float64 // the step size of the last step; 0 if it had none
	Visits   int     // terms whose gradients the last step computed
	More     int     // terms that Passes counts in addition to the batch
	inner    innerSteps[Q]
	mix      mix[Q] // acceleration of exact steps
	leaps    leaps

	kept []byte        // the state before a step that may be canceled
	Halt parallel.Halt // cancels the step that is running

	lastEta, lastMu []float64 // the last step, while K is 0
	agree           float64   // running mean of the cosine between successive steps
}

// Start prepares s for the first step of o from q.
func (s *Stepper[Q]) Start(o Objective[Q], q Q) {
	s.o, s.Q, s.Trial, s.G = o, o.Clone(q), o.Clone(q), make([]float64, q.NumParams())
	s.Gap, s.GradMap, s.certain, s.replicates = math.NaN(), math.NaN(), math.Inf(1), leastReplicates
	s.beta = 1
	if o.Infinite {
		s.beta = math.Inf(1)
	}
}

// family returns q as a Family. It may only be called if Objective.Family is set.
func family[Q any](q Q) Family[Q] { return any(q).(Family[Q]) }

// prox sets the trial to the proximal step with beta.
func (s *Stepper[Q]) prox(beta float64) error { return s.o.Prox(s.Trial, s.Q, s.G, beta) }

// Dist returns the result so far: the average of the iterates if there is one, and otherwise the
// last iterate.
func (s *Stepper[Q]) Dist() Q {
	if s.averages {
		return s.avg
	}
	return s.Q
}

// WorthEvaluating reports whether to evaluate the objective now. If steps are noisy, evaluations may
// take a fifth of the work. Work is counted in terms, not in time, so that the answer is the same on
// every machine.
func (s *Stepper[Q]) WorthEvaluating() bool {
	// The last condition ends the run, which needs a final value.
	if s.o.Costs == nil || !s.Noisy || s.Gap <= s.Goal() {
		return true
	}
	_, cost := s.costs()
	cost *= float64(s.o.N)
	if s.Valued+cost > evalShare*s.Spent {
		return false
	}
	s.Valued += cost
	return true
}

// GoalDim is the gap, in nats per dimension, at which a run with noisy gradients ends. It is the
// loss of a mean that is off by 0.06 posterior standard deviations.
const GoalDim = 2e-3

// Goal returns the gap in nats at which a run with noisy gradients ends.
func (s *Stepper[Q]) Goal() float64 { return GoalDim * float64(s.Q.Dim()) }

const (
	// evalShare is the ratio of the work of evaluations to the work of steps. Evaluations then take
	// a fifth of the total.
	evalShare = 0.25
	// verifyShare is the ratio of the work of verify to the work of steps. At this ratio the noise
	// of verify is about as large as the noise of the average.
	verifyShare = 0.5
	// nearGain and nearGainDim are the falls of the objective, in nats and in nats per dimension,
	// below which the first phase of noisy steps ends.
	nearGain, nearGainDim = 1, 0.1
	// mostNarrowings limits the halvings of the standard deviations of λ_0. A hundred of them lead
	// from the widest prior to the narrowest posterior.
	mostNarrowings = 100
	// closeToBest is the relative excess over the least objective that narrow accepts for a wider
	// q, because a q that is too narrow sees less of the curvature of f.
	closeToBest = 0.1
	// lookAhead is the number of narrower q that narrow tries after one that is not better.
	lookAhead = 3
	// leastFirst is the step size of an exact first step below which its gradient is useless.
	leastFirst = 1e-3
	// shortStep is the step size below which a straight line may lead further than a step along
	// natural parameters.
	shortStep = 1. / 16
	// leastStraight is the shortest fraction of a straight line that is tried.
	leastStraight = 1e-12
	// mostImprovings limits the step sizes that approach tries.
	mostImprovings = 24
	// verifyFrom is the gap, as a multiple of the goal, from which verify is worth its work.
	verifyFrom = 10
	// movedAverage is the distance of the average from the optimum, as a multiple of its noise,
	// that shows that the iterates have moved.
	movedAverage = 4
	// leastReplicates and mostReplicates limit the number of gradients in one call of verify.
	leastReplicates, mostReplicates = 4, 1024
)

// Step takes one step. A beta of +Inf means that s chooses the step size. all reports that the batch
// holds all terms.
func (s *Stepper[Q]) Step(ctx context.Context, batch []int, all bool, beta float64) error {
	s.Took, s.Visits, s.More = 0, 0, 0
	s.all, s.Noisy = all, !s.o.Exact || !all
	if !math.IsInf(beta, 1) {
		if err := s.leaveAverage(); err != nil {
			return err
		}
		if s.o.Inner > 1 {
			return s.relinearize(ctx, batch, beta)
		}
		if _, err := s.grad(ctx, nil, s.G, s.Q, batch); err != nil {
			return err
		}
		s.adapt(beta)
		beta, err := s.tryFrom(beta, nil)
		if err != nil {
			return err
		}
		s.Gap = math.NaN()
		s.accept(beta)
		return nil
	}
	if s.o.Inner > 1 {
		return fmt.Errorf("pgsvi: Objective.Inner is %d, which is for steps of a given size; set "+
			"Solver.StepSize: %w", s.o.Inner, sentinel.ErrParam)
	}
	switch {
	case s.Noisy && s.Near:
		return s.average(ctx, batch)
	case s.Noisy && s.o.Family && s.o.Infinite:
		return s.approach(ctx, batch)
	case s.Noisy:
		return s.descendNoisy(ctx, batch)
	}
	if err := s.leaveAverage(); err != nil {
		return err
	}
	return s.descend(ctx, batch)
}

// costs returns the work per term of a gradient and of a value. If it is unknown, both are 1.
func (s *Stepper[Q]) costs() (grad, value float64) {
	if s.o.Costs != nil {
		return s.o.Costs(s.Q)
	}
	return 1, 1
}

// size returns the number of terms of batch.
func (s *Stepper[Q]) size(batch []int) int {
	if batch == nil {
		return s.o.N
	}
	return len(batch)
}

// grad calls Objective.Grad and counts its work.
func (s *Stepper[Q]) grad(ctx context.Context, rng *rand.Rand, dst []float64, q Q,
	batch []int) (float64, error) {
	cost, _ := s.costs()
	s.Spent += cost * float64(s.size(batch))
	s.Visits += s.size(batch)
	return s.o.Grad(ctx, rng, dst, q, batch)
}

// adapt passes the gradient to the metric of an adaptive divergence, if there is one.
func (s *Stepper[Q]) adapt(beta float64) {
	if s.o.Adapt != nil {
		s.o.Adapt(s.G, beta)
	}
}

// tryFrom computes the proximal step with beta, and halves beta until the result is valid and passes
// check. It returns the last beta. It returns 0 if no valid result passes, or if q is on the edge of
// the valid set; then the trial is q.
func (s *Stepper[Q]) tryFrom(beta float64, check func() bool) (float64, error) {
	var err error
	valid, cut := false, false
	for range 100 {
		if err := s.Halt.Err(); err != nil {
			return 0, err
		}
		err = s.prox(beta)
		if cut && err == nil {
			beta = s.keepOff(beta)
		}
		cut = cut || err != nil
		if err == nil && (check == nil || check()) {
			return beta, nil
		}
		valid = valid || err == nil
		if err != nil && !invalid(err) {
			return 0, err
		}
		if math.IsInf(beta, 1) {
			beta = 1
		} else {
			beta /= 2
		}
	}
	// If steps were valid but none passed, shorter ones only add rounding errors.
	if err != nil && !valid {
		if !s.onEdge() {
			return 0, fmt.Errorf("no step size gives a valid distribution: %w", sentinel.Bare(err))
		}
		return 0, s.o.Set(s.Trial, s.Q)
	}
	return 0, nil
}

// invalid reports whether err means that a step left the valid set. A shorter step may stay in it.
func invalid(err error) bool {
	return errors.Is(err, sentinel.ErrNotPosDef) || errors.Is(err, sentinel.ErrNotFinite)
}

// onEdge reports whether rounding makes the natural parameters of q itself invalid. No step can
// succeed then.
func (s *Stepper[Q]) onEdge() bool {
	return s.o.Family && family(s.Trial).SetNatural(family(s.Q).Natural(nil)) != nil
}

// edgeFraction is how far a step that was cut may go toward the edge of the valid natural parameters.
const edgeFraction = 0.9

// keepOff shortens the trial if it goes more than edgeFraction of the way to the edge of the valid
// natural parameters. The trial is a step that was cut to beta to be valid. keepOff returns the new
// step size. A step toward the target η_t is η + ρ(η_t − η) with ρ = β/(1+β).
func (s *Stepper[Q]) keepOff(beta float64) float64 {
	if s.o.Inside == nil || !s.o.Infinite || math.IsInf(beta, 1) {
		return beta
	}
	q, trial := family(s.Q), family(s.Trial)
	// The edge is beyond x if x/edgeFraction is valid.
	eta, x := q.Natural(nil), trial.Natural(nil)
	floats.Sub(x, eta)
	if s.o.Inside(floats.AddScaledTo(make([]float64, len(x)), eta, 1/edgeFraction, x)) {
		return beta
	}
	floats.AddScaled(eta, edgeFraction, x)
	if trial.SetNatural(eta) != nil {
		return beta
	}
	rho := edgeFraction * beta / (1 + beta)
	return rho / (1 - rho)
}

// accept replaces the state by the trial.
func (s *Stepper[Q]) accept(beta float64) {
	s.Took = beta
	if math.IsInf(beta, 1) {
		beta = 1
	}
	s.from, s.to = s.Q.Params(s.from), s.Trial.Params(s.to)
	s.GradMap = floats.Distance(s.from, s.to, 2) / beta
	s.Q, s.Trial = s.Trial, s.Q
}

// descend takes a step after which the objective of the batch, with the same draws before and after,
// is not higher. It may take a step of length zero.
func (s *Stepper[Q]) descend(ctx context.Context, batch []int) error {
	same := s.sameDraws()
	start, done, err := s.begin(ctx, same, batch)
	if done || err != nil {
		return err
	}
	var gain float64 // gain of the last trial
	falls := func() bool {
		v, err := s.objective(ctx, same(), s.Trial, batch)
		gain = start - v
		return err == nil && v <= start+1e-13*math.Abs(start)
	}
	if s.o.Adapt != nil {
		s.adaptDownhill()
	}
	if s.o.Infinite && s.o.Exact && s.mix.slow {
		q := s.Q
		if s.mix.propose(family(s.Trial), q, s.o.Prior, s.G) && falls() {
			s.accept(math.Inf(1))
			// Other steps also report the gap of the state before them.
			s.Gap = math.Max(gain, s.distance(q, s.mix.eta, s.mix.to))
			return nil
		}
	}
	beta, err := s.tryFrom(s.beta, falls)
	// The last step may have been so short that halving it again only rounds.
	if err != nil && s.beta < 1 {
		beta, err = s.tryFrom(1, falls)
	}
	if s.o.Exact && s.o.Infinite && (err != nil || beta < shortStep) {
		if beta == 0 || err != nil {
			gain = 0
		}
		other := func() (bool, error) { return s.seek(ctx, same, batch, start) }
		if done, err := s.otherWay(other, beta, err, falls, &gain); done || err != nil {
			return err
		}
	}
	if !s.started && s.o.Infinite && !(beta > leastFirst) {
		// The gradient is useless here.
		s.Gap = math.Inf(1)
		if moved, err := s.narrow(ctx, same, batch); moved || err != nil {
			return err // narrowing is a step
		}
	}
	s.started = true
	if err != nil || beta == 0 {
		s.GradMap, s.beta = 0, 1
		return err
	}
	s.take(ctx, same, beta, gain)
	return nil
}

// begin stores the gradient of the batch and returns the objective of the batch. It reports done if
// it took another kind of step instead, because expectations overflow, Guide has a better direction, or
// a leap changed the state.
func (s *Stepper[Q]) begin(ctx context.Context, same func() *rand.Rand, batch []int) (
	start float64, done bool, err error) {
	f, err := s.grad(ctx, same(), s.G, s.Q, batch)
	if errors.Is(err, sentinel.ErrNotFinite) && !s.started {
		s.Gap = math.Inf(1)
		moved, e := s.narrow(ctx, same, batch)
		if moved || e != nil && !errors.Is(e, sentinel.ErrNotFinite) {
			return 0, true, e
		}
	}
	if errors.Is(err, sentinel.ErrNotFinite) {
		if led, e := s.lead(ctx, same, batch, math.Inf(1)); led || e != nil {
			return 0, true, e
		}
		if found, e := s.seek(ctx, same, batch, math.Inf(1)); found || e != nil {
			return 0, true, e
		}
	}
	if err != nil {
		return 0, false, err
	}
	start = f + s.o.Easy(s.Q)
	if math.IsNaN(start) || math.IsInf(start, 0) {
		return 0, false, fmt.Errorf("pgsvi: the objective of the batch is %v: %w", start,
			sentinel.ErrNotFinite)
	}
	if !s.started || s.beta < 1 {
		if done, err = s.lead(ctx, same, batch, start); done || err != nil {
			return start, done, err
		}
	}
	done, err = s.leap(ctx, same, start)
	return start, done, err
}

// adaptDownhill passes the gradient to the metric. It restores the gradient if the metric turned it
// uphill, as momentum may do.
func (s *Stepper[Q]) adaptDownhill() {
	g := slices.Clone(s.G)
	s.adapt(1)
	var slope float64
	for i, scale := range s.o.Scale {
		slope += g[i] * s.G[i] / scale
	}
	if !(slope > 0) {
		copy(s.G, g)
	}
}

// otherWay looks for a better step if an exact step was cut to beta or failed with err. It calls
// seek, and then tries a straight line. It reports whether one of them gained more than the cut
// step; otherwise the trial is the cut step.
func (s *Stepper[Q]) otherWay(seek func() (bool, error), beta float64, err error,
	falls func() bool, gain *float64) (bool, error) {
	most := s.Most
	if found, err := seek(); found || err != nil {
		return found, err
	}
	if s.Most != most && err == nil && beta > 0 { // seek changed the trial
		if _, err := s.tryFrom(beta, nil); err != nil {
			return false, err
		}
	}
	if fell, from := s.straight(*gain, falls, gain), s.Q; fell {
		s.started, s.beta = true, math.Inf(1)
		s.accept(math.Inf(1))
		s.Gap = math.Max(*gain, s.toTarget(from))
		return true, nil
	}
	return false, s.Halt.Err()
}

// take accepts the trial, a step with beta that lowered the objective by gain, and chooses the next
// step size.
func (s *Stepper[Q]) take(ctx context.Context, same func() *rand.Rand, beta, gain float64) {
	before, from := s.Gap, s.Q
	s.Gap = s.stepKL(beta)
	s.accept(beta)
	if math.IsInf(s.Gap, 1) {
		s.Gap = s.toTarget(from)
	}
	if s.o.Exact && s.o.Infinite && beta < shortStep {
		// A longer step may have failed because of rounding, so the gap includes the rounding error.
		if _, bound, err := s.o.Value(ctx, same(), s.Q); err == nil {
			s.Gap = math.Max(s.Gap, bound)
		}
	}
	if s.o.Infinite {
		// Far from the optimum the metric of q may underestimate the gap by much.
		s.Gap = math.Max(s.Gap, gain)
	}
	s.mix.alone++
	s.mix.slow = s.mix.slow || s.Gap > worthMixing*before &&
		(!s.o.Factors || s.mix.alone >= settledSteps)
	s.beta = 2 * beta
	if s.o.Infinite && s.beta > 100 {
		s.beta = math.Inf(1)
	}
}

// toTarget returns the distance in nats from q to the target of its step. G is the gradient at q.
func (s *Stepper[Q]) toTarget(q Q) float64 {
	to := slices.Clone(s.o.Prior)
	floats.Sub(to, family(q).MeanGrad(nil, s.G))
	return s.distance(q, family(q).Natural(nil), to)
}

// sameDraws returns a function that makes generators with equal draws.
func (s *Stepper[Q]) sameDraws() func() *rand.Rand {
	rng := s.o.Rand()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	return func() *rand.Rand { return rand.New(rand.NewPCG(seed[0], seed[1])) }
}

// objective returns f + h at q with the draws of rng. It stores the gradient of f in s.scratch.
func (s *Stepper[Q]) objective(ctx context.Context, rng *rand.Rand, q Q,
	batch []int) (float64, error) {
	if s.scratch == nil {
		s.scratch = make([]float64, len(s.G))
	}
	f, err := s.grad(ctx, rng, s.scratch, q, batch)
	if err != nil {
		return math.NaN(), err
	}
	v := f + s.o.Easy(q)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return v, fmt.Errorf("pgsvi: the objective of the batch is %v: %w", v,
			sentinel.ErrNotFinite)
	}
	return v, nil
}

// Undo returns a function that restores the state before a step over batch and returns its
// argument. If ctx cannot be canceled, the function only returns its argument.
func (s *Stepper[Q]) Undo(ctx context.Context, batch []int) func(cause error) error {
	if ctx.Done() == nil {
		return func(cause error) error { return cause }
	}
	blocks, ends := s.blocks, batch == nil || s.terms+len(batch) >= s.o.N
	before := func(c *save.Coder) {
		s.current(c)
		if ends { // other steps do not change the means of passes
			s.blocks.state(c, len(s.G))
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
			return fmt.Errorf("%w, in a step that cannot be taken back: %w", cause,
				sentinel.Bare(err))
		}
		return cause
	}
}

// State writes or reads the state, to the bit.
func (s *Stepper[Q]) State(c *save.Coder) {
	s.current(c)
	s.blocks.state(c, len(s.G))
}

// current is State without the means of passes.
func (s *Stepper[Q]) current(c *save.Coder) {
	n := len(s.G)
	s.o.State(c, s.Q)
	averages := s.averages
	if c.Bool(&averages); averages {
		if !s.averages {
			s.avg = s.o.Clone(s.Q)
		}
		s.o.State(c, s.avg)
	}
	s.averages = averages
	settled := s.settled
	if c.Bool(&settled); settled {
		if !s.settled {
			s.home = s.o.Clone(s.Q)
		}
		s.o.State(c, s.home)
		c.Float(&s.level)
	}
	s.settled = settled
	c.Float(&s.beta, &s.averaged, &s.Gap, &s.GradMap, &s.agree, &s.Spent, &s.Valued, &s.Verified,
		&s.certain, &s.Most)
	c.Int(&s.K, &s.terms, &s.usual, &s.replicates, &s.epoch)
	c.Bool(&s.Noisy, &s.started, &s.Near)
	c.Floats(n, &s.target, &s.lastEta, &s.lastMu)
	s.mix.state(c, n)
	s.leaps.state(c, s.o.Leaps)
	if s.o.MetricState != nil {
		s.o.MetricState(c)
	}
}
