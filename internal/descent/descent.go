// Package descent takes the steps of an objective f(λ) + h(λ) over distributions q(z|λ): how long
// they are, which are averaged, and how far from the optimum they end. What f, h, and the proximal
// steps are is said by functions.
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

// Dist is what steps need of any q: see pgsvi.Dist.
type Dist interface {
	Dim() int
	NumParams() int
	Params(dst []float64) []float64
	SetParams(p []float64) error
}

// Family is what they need of a q of an exponential family: see pgsvi.ExpFamily.
type Family[Q any] interface {
	Natural(dst []float64) []float64
	SetNatural(eta []float64) error
	MeanParams(dst []float64) []float64
	MeanGrad(dst, g []float64) []float64
	KL(p Q) float64
}

// charted is what they need of a Gaussian.
type charted interface {
	Chart(dst []float64) []float64
	SetChart(x []float64) error
}

// Objective is f + h with its proximal steps. Functions that may be nil say so.
type Objective[Q Dist] struct {
	N        int       // number of terms of f
	Exact    bool      // f is deterministic
	Infinite bool      // β = +Inf is a valid step: the minimiser of the linearised f plus h
	Family   bool      // q is a Family
	Gaussian bool      // q is charted, by its mean and the log-Cholesky factor of V
	Average  bool      // the targets of steps average natural parameters, not λ
	Factors  bool      // f has factors of its own, which a step holds
	Prior    []float64 // natural parameters of the p of h = KL(q‖p); nil for any other h
	Inner    int       // see pgsvi.Objective

	// Rand returns the generator of the step, and Grad the value and gradient of f over a batch by
	// the draws of rng, which is that generator if it is nil.
	Rand func() *rand.Rand
	Grad func(ctx context.Context, rng *rand.Rand, dst []float64, q Q, batch []int) (float64, error)
	// Value returns f over all terms, with a bound on its error.
	Value func(ctx context.Context, rng *rand.Rand, q Q) (value, bound float64, err error)
	Easy  func(q Q) float64       // h
	Pull  func(q, from Q) float64 // D
	// Prox makes q the proximal step with gradient g and step size beta. On an error q is as from.
	Prox  func(q, from Q, g []float64, beta float64) error
	Set   func(q, from Q) error // makes q as from
	Clone func(q Q) Q           // with the Halt of the Stepper
	// Inside reports whether eta are valid natural parameters; nil where steps may go to the edge.
	Inside func(eta []float64) bool
	// State writes or reads q, to the bit.
	State func(c *save.State, q Q)

	// Costs returns the work of Grad and of a value of f, in log-likelihoods of a term for each
	// term; nil where that is not known.
	Costs func(q Q) (grad, value float64)
	// Adapt shows the gradient to a metric, which may change it, and Scale is the diagonal of that;
	// MetricState is its state. Nil without a metric.
	Adapt       func(g []float64, beta float64)
	Scale       []float64
	MetricState func(c *save.State)
	// Guide stores a gradient of other derivatives in dst, where those under q of all terms are
	// beyond use as those of an exponential far out are. It reports whether there are such, and
	// whether these are finite. Nil means that there is none.
	Guide func(dst []float64, q Q) (bool, error)
	// Seek makes q the best by another way, as far as it is found. It takes no passes where it
	// knows no way; nil means the same.
	Seek func(q Q) (term.Sought, error)
	// Leaps is the number of other states that may be worth a try: see leap.go. Leap changes q to
	// the most promising state that is not in tried, and returns its index, or −1 if no state is
	// worth a try. It is nil if Leaps is 0.
	Leaps int
	Leap  func(q Q, tried []bool) int
}

// Stepper takes the steps of an Objective, for any f, h and D.
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
type Stepper[Q Dist] struct {
	o Objective[Q]
	// Q is the state. After a step of a given size Trial is where it began, and G its gradient.
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
	started  bool    // q has been made as narrow as it has to be
	Near     bool    // noisy steps have come as near as steps that must improve can
	Spent    float64 // work of the steps, in log-likelihoods of a term
	Valued   float64 // work of the evaluations that were worth it
	Verified float64 // work of verify

	replicates int // the least number of gradients of the next verify
	// Most is the ELBO of the best q by another way; 0 before that is tried, +Inf where it is not
	// known.
	Most     float64
	certain  float64   // the gap of the average by the last verify; +Inf without one
	avg      Q         // average of the natural parameters
	averages bool      // there is one
	target   []float64 // sum of the targets of the pass, weighted by terms
	terms    int
	usual    int     // size of the largest batch so far
	averaged float64 // number of iterates in avg
	blocks   batchMeans
	Gap      float64
	GradMap  float64
	Took     float64 // the step size of the last step; 0 if it had none
	Visits   int     // terms at which the last step has seen gradients
	More     int     // those that Passes counts beyond the batch
	inner    innerSteps[Q]
	mix      mix[Q] // of exact steps
	leaps    leaps

	kept []byte        // the state before a step that may be canceled
	Halt parallel.Halt // while a step is under way

	lastEta, lastMu []float64 // the last step, while K is 0
	agree           float64   // running mean of the cosine between successive steps
}

// Start makes s the state before the first step of o, from q.
func (s *Stepper[Q]) Start(o Objective[Q], q Q) {
	s.o, s.Q, s.Trial, s.G = o, o.Clone(q), o.Clone(q), make([]float64, q.NumParams())
	s.Gap, s.GradMap, s.certain, s.replicates = math.NaN(), math.NaN(), math.Inf(1), leastReplicates
	s.beta = 1
	if o.Infinite {
		s.beta = math.Inf(1)
	}
}

// family returns q as a Family, which it is if o.Family.
func family[Q any](q Q) Family[Q] { return any(q).(Family[Q]) }

// prox makes the trial the proximal step with beta.
func (s *Stepper[Q]) prox(beta float64) error { return s.o.Prox(s.Trial, s.Q, s.G, beta) }

// Dist returns the state reached: the average of the iterates where there is one.
func (s *Stepper[Q]) Dist() Q {
	if s.averages {
		return s.avg
	}
	return s.Q
}

// WorthEvaluating reports whether a value is worth its work: where steps are noisy, evaluations
// take at most a fifth of the work. It is counted work and not time, so that it is the same on any
// machine.
func (s *Stepper[Q]) WorthEvaluating() bool {
	// in the last case the run ends
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

// GoalDim is the gap, in nats a dimension, at which a run with noisy gradients is
// content: the loss of a mean that is off by 0.06 posterior standard deviations.
const GoalDim = 2e-3

// Goal returns the gap at which averages of noisy steps are good enough.
func (s *Stepper[Q]) Goal() float64 { return GoalDim * float64(s.Q.Dim()) }

const (
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

// Step takes the step with beta, which +Inf leaves to s. all says that the batch is all terms.
func (s *Stepper[Q]) Step(ctx context.Context, batch []int, all bool, beta float64) error {
	s.Took, s.Visits, s.More = 0, 0, 0
	s.all, s.Noisy = all, !s.o.Exact || !all
	if !math.IsInf(beta, 1) {
		if err := s.leaveAverage(); err != nil {
			return err
		}
		if s.o.Inner > 1 {
			return s.relinearise(ctx, batch, beta)
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
	if s.o.Family && s.o.Infinite && s.Noisy {
		if !s.Near {
			return s.approach(ctx, batch)
		}
		return s.average(ctx, batch)
	}
	if err := s.leaveAverage(); err != nil {
		return err
	}
	return s.descend(ctx, batch)
}

// costs returns what f says of its work; where it says nothing both are alike.
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

// grad is Grad of f, whose work it counts as that of steps.
func (s *Stepper[Q]) grad(ctx context.Context, rng *rand.Rand, dst []float64, q Q,
	batch []int) (float64, error) {
	cost, _ := s.costs()
	s.Spent += cost * float64(s.size(batch))
	s.Visits += s.size(batch)
	return s.o.Grad(ctx, rng, dst, q, batch)
}

// adapt shows the gradient to the metric of an Adaptive divergence.
func (s *Stepper[Q]) adapt(beta float64) {
	if s.o.Adapt != nil {
		s.o.Adapt(s.G, beta)
	}
}

// tryFrom computes the proximal step with beta, halving it until the result
// is valid and passes check, and returns the step size it ended with: 0 if there are valid
// results but none that passes, or if q itself is on the edge, where the trial is q.
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
	// where steps were valid but did not pass, shorter ones are lost to rounding
	if err != nil && !valid {
		if !s.onEdge() {
			return 0, fmt.Errorf("no step size gives a valid distribution: %w", sentinel.Bare(err))
		}
		return 0, s.o.Set(s.Trial, s.Q)
	}
	return 0, nil
}

// invalid reports whether err says that a step led to no valid q: a shorter one may.
func invalid(err error) bool {
	return errors.Is(err, sentinel.ErrNotPosDef) || errors.Is(err, sentinel.ErrNotFinite)
}

// onEdge reports whether rounding leaves the natural parameters of q itself no distribution: then
// that is why no step does.
func (s *Stepper[Q]) onEdge() bool {
	return s.o.Family && family(s.Trial).SetNatural(family(s.Q).Natural(nil)) != nil
}

// edgeFraction is the part of the way to the edge of the set of natural parameters that a step
// which had to be cut may go.
const edgeFraction = 0.9

// keepOff shortens the trial, a step with beta that was cut to be valid, if that went more than
// edgeFraction of the way to the edge of the natural parameters, and returns the step
// size it then has. With target η_t it is η + ρ(η_t − η), ρ = β/(1+β).
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

// accept makes the trial the state.
func (s *Stepper[Q]) accept(beta float64) {
	s.Took = beta
	if math.IsInf(beta, 1) {
		beta = 1
	}
	s.from, s.to = s.Q.Params(s.from), s.Trial.Params(s.to)
	s.GradMap = floats.Distance(s.from, s.to, 2) / beta
	s.Q, s.Trial = s.Trial, s.Q
}

// descend takes an accepted step: the objective of the batch, with the same
// draws before and after, does not rise. A step of length zero is a step.
func (s *Stepper[Q]) descend(ctx context.Context, batch []int) error {
	same := s.sameDraws()
	start, done, err := s.begin(ctx, same, batch)
	if done || err != nil {
		return err
	}
	if leapt, err := s.leap(ctx, same, start); leapt || err != nil {
		return err
	}
	var gain float64 // of the last trial
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
			// of the state before, as in other steps
			s.Gap = math.Max(gain, s.distance(q, s.mix.eta, s.mix.to))
			return nil
		}
	}
	beta, err := s.tryFrom(s.beta, falls)
	// the last step may have been so short that this one begins in rounding
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
		// The gradient is of no use here.
		s.Gap = math.Inf(1)
		if moved, err := s.narrow(ctx, same, batch); moved || err != nil {
			return err // a step of its own
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

// begin stores the gradient of the batch, and returns its objective. It reports whether a step of
// another kind was taken instead, where expectations are beyond use or q knows better.
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
		done, err = s.lead(ctx, same, batch, start)
	}
	return start, done, err
}

// adaptDownhill shows the gradient to the metric, whose change of it is taken back if that leads
// uphill, as momentum may.
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

// otherWay is for an exact step that had to be cut to beta, or failed with err: q is sought by
// another way, and then along a straight line, if they are better than what a step of beta gained.
// It reports whether one was; the trial is otherwise that of beta.
func (s *Stepper[Q]) otherWay(seek func() (bool, error), beta float64, err error,
	falls func() bool, gain *float64) (bool, error) {
	most := s.Most
	if found, err := seek(); found || err != nil {
		return found, err
	}
	if s.Most != most && err == nil && beta > 0 { // the trial is another now
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

// take accepts the trial, a step with beta after which the objective has fallen by gain, and
// chooses the size of the next.
func (s *Stepper[Q]) take(ctx context.Context, same func() *rand.Rand, beta, gain float64) {
	before, from := s.Gap, s.Q
	s.Gap = s.stepKL(beta)
	s.accept(beta)
	if math.IsInf(s.Gap, 1) {
		s.Gap = s.toTarget(from)
	}
	if s.o.Exact && s.o.Infinite && beta < shortStep {
		// Rounding may be what a longer step has met: it says no more of the gap.
		if _, bound, err := s.o.Value(ctx, same(), s.Q); err == nil {
			s.Gap = math.Max(s.Gap, bound)
		}
	}
	if s.o.Infinite {
		// far off, what the metric of q says of the gap may be much too little
		s.Gap = math.Max(s.Gap, gain)
	}
	s.mix.alone++
	s.mix.slow = s.mix.slow || s.Gap > worthMixing*before &&
		(!s.o.Factors || s.mix.alone >= settledSteps)
	s.beta = 2 * beta
	if s.o.Infinite && s.beta > 100 {
		s.beta = math.Inf(1)
	}
	if s.Noisy {
		s.K++
		s.beta = math.Min(s.beta, s.beta*math.Pow(1+1/float64(s.K), -0.6)/2)
	}
}

// toTarget returns the distance from q, whose gradient is in g, to its target, in nats.
func (s *Stepper[Q]) toTarget(q Q) float64 {
	to := slices.Clone(s.o.Prior)
	floats.Sub(to, family(q).MeanGrad(nil, s.G))
	return s.distance(q, family(q).Natural(nil), to)
}

// sameDraws returns what makes a generator that has the same draws whenever it is called.
func (s *Stepper[Q]) sameDraws() func() *rand.Rand {
	rng := s.o.Rand()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	return func() *rand.Rand { return rand.New(rand.NewPCG(seed[0], seed[1])) }
}

// objective returns f + h at q by the given draws; the gradient of f is in s.scratch.
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

// Undo returns what puts the state back to that before a step from batch, if ctx can be done, and
// returns the cause.
func (s *Stepper[Q]) Undo(ctx context.Context, batch []int) func(cause error) error {
	if ctx.Done() == nil {
		return func(cause error) error { return cause }
	}
	blocks, ends := s.blocks, batch == nil || s.terms+len(batch) >= s.o.N
	before := func(c *save.State) {
		s.current(c)
		if ends { // else the means of passes are left alone or behind, not changed
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
func (s *Stepper[Q]) State(c *save.State) {
	s.current(c)
	s.blocks.state(c, len(s.G))
}

// current is State without the means of passes.
func (s *Stepper[Q]) current(c *save.State) {
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
	c.Float(&s.beta, &s.averaged, &s.Gap, &s.GradMap, &s.agree, &s.Spent, &s.Valued, &s.Verified,
		&s.certain, &s.Most)
	c.Int(&s.K, &s.terms, &s.usual, &s.replicates)
	c.Bool(&s.Noisy, &s.started, &s.Near)
	c.Floats(n, &s.target, &s.lastEta, &s.lastMu)
	s.mix.state(c, n)
	s.leaps.state(c, s.o.Leaps)
	if s.o.MetricState != nil {
		s.o.MetricState(c)
	}
}
