package pgsvi

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"golang.org/x/exp/stats"
)

// DefaultConverger returns the rule of a nil Solver.Converger: stop when the gap is at most
// Iteration.Goal, which is Solver.Goal or its default. In detail:
//
//   - If bounds are proved (GapBound with Scope OverQ), the bound must be at most the goal. The
//     estimate Gap suffices if only rounding keeps the bound above the goal: the bound no longer
//     falls, and is below 1e-6 nats or 1e-9 of the ELBO.
//   - If no bounds are proved, the estimate Gap must be at most the goal.
//   - The status is Stalled if the gap is above one nat but within ELBOErr, and ELBOErr is above
//     half a nat, because rounding then hides the rest.
//   - The run also stops if the ELBO is the same, to rounding, in ten evaluations. It has Converged
//     if Gap is at most the goal or 1e-6 nats, and any proved bound is at most 0.01 nats, at which
//     means are within about 0.14 posterior standard deviations of their optimum. Otherwise it is
//     Stalled.
//   - If no gap is known, the run stops when the rolling median of the relative change of the
//     ELBO is below 1e-7.
func DefaultConverger() Converger {
	return AnyOf(&goalReached{}, &elboChange{tol: 1e-7, unlessGap: true}, &stall{})
}

// stall stops after ten evaluations in a row that do not change the ELBO.
type stall struct {
	last  float64
	times int
}

func (c *stall) Init() { c.last, c.times = math.NaN(), 0 }

func (c *stall) Converged(it Iteration) Status {
	if math.IsNaN(it.ELBO) {
		return NotTerminated
	}
	if it.ELBO == c.last || math.Abs(it.ELBO-c.last) <= 1e-14*math.Abs(it.ELBO) {
		c.times++
	} else {
		c.times = 0
	}
	c.last = it.ELBO
	switch {
	case c.times < 10:
		return NotTerminated
	case it.Scope == OverQ && it.GapBound <= stalledBound &&
		min(it.Gap, it.GapBound) <= max(it.Goal, roundingBound):
		return Converged // only rounding, which no step lowers, keeps the bound above the goal
	case (it.Scope == Unproved || it.Scope == OverQAtGroups) &&
		it.Gap <= max(it.Goal, roundingBound):
		return Converged
	}
	return Stalled
}

// stalledBound is the largest proved bound, in nats, with which a run that no step improves counts
// as Converged.
const stalledBound = 0.01

// GapBelow stops when Iteration.Gap, the estimated distance to the optimum, is at most max(nats,
// relative·|ELBO|). It never stops a Stepper that gives no estimate.
func GapBelow(nats, relative float64) Converger { return gapBelow{nats, relative} }

type gapBelow struct{ nats, relative float64 }

func (gapBelow) Init() {}

func (c gapBelow) Converged(it Iteration) Status {
	if it.Gap <= max(c.nats, c.relative*math.Abs(it.ELBO)) && !math.IsInf(it.ELBO, 0) {
		return Converged
	}
	return NotTerminated
}

// goalReached stops when the gap is at most the goal; see DefaultConverger.
type goalReached struct{ bound float64 } // the last proved bound

func (c *goalReached) Init() { c.bound = math.Inf(1) }

// A bound no longer falls if it drops by less than a factor of stillFalling. It is then due to
// rounding if it is below roundingBound nats, or below roundingBoundRelative times the ELBO.
const (
	stillFalling          = 0.5
	roundingBound         = 1e-6
	roundingBoundRelative = 1e-9
)

func (c *goalReached) Converged(it Iteration) Status {
	status := c.reached(it)
	gap := it.GapBound
	if math.IsInf(gap, 1) || math.IsNaN(gap) {
		gap = it.Gap
	}
	if status == Converged && gap > goals.UnknownNats && 2*it.ELBOErr > goals.UnknownNats &&
		!it.Random {
		return Stalled
	}
	return status
}

// reached is Converged without the check of ELBOErr.
func (c *goalReached) reached(it Iteration) Status {
	before := c.bound
	if it.Scope != Unproved {
		c.bound = it.GapBound
	}
	provable := it.Scope == OverQ && !math.IsInf(it.GapBound, 1)
	switch {
	case math.IsInf(it.ELBO, 0):
	case it.Scope != Unproved && it.Scope != OverBlock && it.Scope != OverQAtGroups &&
		it.GapBound <= it.Goal:
		return Converged
	case !(it.Gap <= it.Goal):
	case !provable:
		return Converged
	case it.GapBound > stillFalling*before && it.GapBound <= max(roundingBound,
		roundingBoundRelative*math.Abs(it.ELBO)):
		return Converged
	}
	return NotTerminated
}

// ELBOChange stops when the ELBO changes little (early stopping), that is, when the median over the
// last window evaluations of
//
//	|ELBO_j − ELBO_{j−1}| / max(1, |ELBO_j|)
//
// is below tol. The median ignores the large first steps and single noisy evaluations, unlike a
// mean (Kucukelbir et al., 2017, use the same rule). A zero tol means 1e-4, and a zero window means
// 10. Solver.Run returns an error if one is negative.
func ELBOChange(tol float64, window int) Converger { return &elboChange{tol: tol, window: window} }

type elboChange struct {
	tol    float64
	window int

	unlessGap bool // never stop if the gap is known, because goalReached then decides
	last      float64
	changes   []float64
}

func (c *elboChange) Init() {
	c.last, c.changes = math.NaN(), c.changes[:0]
}

func (c *elboChange) Converged(it Iteration) Status {
	if math.IsNaN(it.ELBO) || c.unlessGap && !it.gapless && !math.IsNaN(it.Gap) {
		return NotTerminated
	}
	tol, window := c.tol, c.window
	if tol == 0 {
		tol = 1e-4
	}
	if window == 0 {
		window = 10
	}
	change := math.Abs(it.ELBO-c.last) / math.Max(1, math.Abs(it.ELBO))
	c.last = it.ELBO
	if math.IsNaN(change) {
		return NotTerminated
	}
	if len(c.changes) == window {
		copy(c.changes, c.changes[1:])
		c.changes = c.changes[:window-1]
	}
	c.changes = append(c.changes, change)
	if len(c.changes) < window {
		return NotTerminated
	}
	if stats.Median(c.changes) < tol {
		return Converged
	}
	return NotTerminated
}

// Validate returns an error wrapping ErrParam if a field is negative.
func (c *elboChange) Validate() error {
	if !(c.tol >= 0) || c.window < 0 {
		return fmt.Errorf("pgsvi: ELBOChange(%v, %d) must not be negative: %w", c.tol, c.window,
			ErrParam)
	}
	return nil
}

// GradientMap stops when the norm of the gradient map, ‖λ_k − λ_{k+1}‖/β_k, is at most tol. The
// convergence rates of the method are stated in this norm (Khan et al., 2016, Propositions 1 to 3).
// Use it only for steps on all terms, because the step of a mini-batch or block may be short far
// from the optimum. It never stops a Stepper that does not report the norm.
func GradientMap(tol float64) Converger { return gradientMap(tol) }

type gradientMap float64

func (gradientMap) Init() {}

func (c gradientMap) Converged(it Iteration) Status {
	if it.GradMap <= float64(c) {
		return Converged
	}
	return NotTerminated
}

// Deadline stops with status TimeLimit after the duration d, counted from the start of the run. It
// is not an error, unlike a deadline of the context.
func Deadline(d time.Duration) Converger { return deadline(d) }

type deadline time.Duration

func (d deadline) Init() {}

func (d deadline) Converged(it Iteration) Status {
	if it.Elapsed >= time.Duration(d) {
		return TimeLimit
	}
	return NotTerminated
}

// Never returns a Converger that never stops, so the run continues to the limits of the Solver.
func Never() Converger { return never{} }

type never struct{}

func (never) Init() {}

func (never) Converged(Iteration) Status { return NotTerminated }

// AnyOf stops as soon as one of the given rules stops.
func AnyOf(rules ...Converger) Converger { return anyOf(slices.Clone(rules)) }

type anyOf []Converger

func (a anyOf) Init() {
	for _, c := range a {
		c.Init()
	}
}

// Validate joins the errors of all rules.
func (a anyOf) Validate() error {
	options := make([]any, len(a))
	for i, c := range a {
		options[i] = c
	}
	return validateOption(options...)
}

func (a anyOf) Converged(it Iteration) Status {
	status := NotTerminated
	for _, c := range a { // every rule sees every iteration
		if s := c.Converged(it); status == NotTerminated {
			status = s
		}
	}
	return status
}

// Tee returns a Solver.Record that passes every iteration to each of the given functions, in order.
func Tee(record ...func(it Iteration)) func(it Iteration) {
	all := slices.Clone(record)
	return func(it Iteration) {
		for _, f := range all {
			f(it)
		}
	}
}

// Progress returns a Solver.Record that shows the progress of a run in one line of a terminal, and
// a function that clears the line. The least time between two updates is every; zero means 0.1 s.
func Progress(w io.Writer, every time.Duration) (record func(it Iteration), done func()) {
	if every == 0 {
		every = 100 * time.Millisecond
	}
	p := &progress{w: w, every: every}
	return p.record, p.done
}

type progress struct {
	w     io.Writer
	every time.Duration

	width int
	next  time.Duration
	elbo  float64
	gap   float64
}

func (p *progress) record(it Iteration) {
	if it.K == 1 {
		p.next, p.elbo, p.gap = 0, math.NaN(), math.NaN()
	}
	if !math.IsNaN(it.ELBO) {
		p.elbo, p.gap = it.ELBO, it.Gap
	}
	if it.Elapsed < p.next {
		return
	}
	p.next = it.Elapsed + p.every
	line := fmt.Sprintf("iteration %d, pass %.2f", it.K, it.Passes)
	if !math.IsNaN(p.elbo) {
		line += fmt.Sprintf(", ELBO %.6g", p.elbo)
	}
	if p.gap < math.Inf(1) {
		line += ", gap " + rough(p.gap)
	}
	p.print(line + fmt.Sprintf(", %v", it.Elapsed.Round(time.Millisecond)))
}

func (p *progress) done() {
	if p.width > 0 {
		p.print("")
		fmt.Fprint(p.w, "\r")
		p.width = 0
	}
}

func (p *progress) print(line string) {
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = max(p.width, len(line))
}

// autoStep is the schedule of a nil Solver.StepSize: the Stepper chooses every step length.
type autoStep struct{}

// StepSize returns +Inf.
func (autoStep) StepSize(int) float64 { return math.Inf(1) }

// ConstantStep returns the schedule β_k = β. Solver.Run returns an error unless beta is positive.
func ConstantStep(beta float64) Schedule { return constantStep(beta) }

type constantStep float64

// StepSize returns c.
func (c constantStep) StepSize(int) float64 { return float64(c) }

// Validate returns an error wrapping ErrParam unless c is positive.
func (c constantStep) Validate() error {
	if !(c > 0) {
		return fmt.Errorf("pgsvi: ConstantStep %v must be positive: %w", float64(c), ErrParam)
	}
	return nil
}

// RobbinsMonro returns the schedule β_k = scale·(1 + k/delay)^−power (Robbins and Monro, 1951). For
// ½ < power ≤ 1 its sum diverges and the sum of its squares converges, as convergence under noise
// requires. Zeros mean scale 1, delay 1 and power 0.6.
func RobbinsMonro(scale, delay, power float64) Schedule {
	return robbinsMonro{Scale: scale, Delay: delay, Power: power}
}

type robbinsMonro struct{ Scale, Delay, Power float64 }

// StepSize returns β_k.
func (r robbinsMonro) StepSize(k int) float64 {
	return orOne(r.Scale) * math.Pow(1+float64(k)/orOne(r.Delay), -r.power())
}

func (r robbinsMonro) power() float64 {
	if r.Power == 0 {
		return 0.6
	}
	return r.Power
}

// Validate returns an error wrapping ErrParam unless Scale and Delay are positive or zero and Power
// is in [0, 1].
func (r robbinsMonro) Validate() error {
	if !(r.Scale >= 0) || !(r.Delay >= 0) || !(r.Power >= 0 && r.Power <= 1) ||
		math.IsInf(r.Scale, 0) || math.IsInf(r.Delay, 0) {
		return fmt.Errorf(
			"pgsvi: RobbinsMonro%+v needs Scale and Delay >= 0 and Power in [0, 1]: %w", r,
			ErrParam)
	}
	return nil
}

// FractionStep returns the schedule of stochastic variational inference (Hoffman et al., 2013,
// equation 26), β_k = ρ_k/(1−ρ_k) with
//
//	ρ_k = (delay + k)^−power,
//
// and k counted from 0. The delay is their τ and the power their κ. With h = KLTo and D = KL, a
// step goes the fraction ρ_k of the way to its target in natural parameters. The schedule converges
// for ½ < power ≤ 1. If ρ_k = 1, for example at delay 1 and k = 0, β_k is +Inf and the Stepper
// chooses the step. Zeros mean delay 10 and power 0.7.
func FractionStep(delay, power float64) Schedule { return fractionStep{Delay: delay, Power: power} }

type fractionStep struct{ Delay, Power float64 }

// Defaults of FractionStep, in the range that Hoffman, Blei and Bach (2010) found best on three
// corpora.
const (
	fractionDelay = 10
	fractionPower = 0.7
)

// StepSize returns β_k.
func (s fractionStep) StepSize(k int) float64 {
	rho := math.Pow(orDefault(s.Delay, fractionDelay)+float64(k),
		-orDefault(s.Power, fractionPower))
	return rho / (1 - rho)
}

// Validate returns an error wrapping ErrParam unless Delay is at least 1 and finite, or zero, and
// Power in [0, 1].
func (s fractionStep) Validate() error {
	var errs []error
	if s.Delay != 0 && !(s.Delay >= 1 && s.Delay <= math.MaxFloat64) {
		errs = append(errs,
			fmt.Errorf("pgsvi: the delay of FractionStep is %v; it must be at least 1, or 0: %w",
				s.Delay, ErrParam))
	}
	if !(s.Power >= 0 && s.Power <= 1) {
		errs = append(errs,
			fmt.Errorf("pgsvi: the power of FractionStep is %v; it must be in [0, 1]: %w", s.Power,
				ErrParam))
	}
	return errors.Join(errs...)
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

// Reshuffle visits every term once per pass, in a new random order each time. A batch of all terms
// keeps its order. The last batch of a pass is shorter if size does not divide n.
func Reshuffle() Sampler { return reshuffle{} }

type reshuffle struct{}

// Batches implements Sampler.
func (reshuffle) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	if size >= n {
		return inOrder{}.Batches(n, size, rng)
	}
	return batches.Passes(n, size, func(order []int) {
		rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	})
}

// InOrder visits the terms in the order of their indices, pass after pass.
func InOrder() Sampler { return inOrder{} }

type inOrder struct{}

// Batches implements Sampler.
func (inOrder) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	return batches.Passes(n, size, func([]int) {})
}

// thenAll samples like Reshuffle for the given number of passes, and then takes all terms in every
// batch. It is Reshuffle if the Solver sets another batch size.
type thenAll struct{ size, passes int }

// Batches implements Sampler.
func (a thenAll) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	few := reshuffle{}.Batches(n, size, rng)
	if size != a.size || size >= n {
		return few
	}
	return func(yield func([]int) bool) {
		left := a.passes * n
		for batch := range few {
			if !yield(batch) {
				return
			}
			if left -= len(batch); left <= 0 {
				break
			}
		}
		inOrder{}.Batches(n, n, rng)(yield)
	}
}

// WithReplacement draws every term of every batch independently and uniformly.
func WithReplacement() Sampler { return withReplacement{} }

type withReplacement struct{}

// Batches implements Sampler.
func (withReplacement) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		batch := make([]int, size)
		for { // the caller ends the loop
			for i := range batch {
				batch[i] = rng.IntN(n)
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// allTerms distinguishes a batch of all terms from a batch with repetitions. It reuses its buffer.
type allTerms struct{ seen []bool }

// all reports whether batch is nil or holds each of the n terms once, in any order.
func (t *allTerms) all(batch []int, n int) bool {
	if batch == nil {
		return true
	}
	if len(batch) != n {
		return false
	}
	t.seen = dense.Resize(t.seen, n)
	clear(t.seen)
	for _, i := range batch {
		if t.seen[i] {
			return false
		}
		t.seen[i] = true
	}
	return true
}

// checkBatch returns an error if batch is empty or has an index outside 0 … n−1.
func checkBatch(batch []int, n int) error {
	if len(batch) == 0 {
		return fmt.Errorf("pgsvi: the Sampler returned an empty batch: %w", ErrEmpty)
	}
	for _, i := range batch {
		if i < 0 || i >= n {
			return fmt.Errorf("pgsvi: the Sampler returned term %d; terms are 0 to %d: %w", i, n-1,
				ErrShape)
		}
	}
	return nil
}

// ShuffleOnce visits every term once per pass, in a random order drawn at the start of the run. All
// passes have the same batches, which suits block coordinate ascent.
func ShuffleOnce() Sampler { return shuffleOnce{} }

type shuffleOnce struct{}

// Batches implements Sampler.
func (shuffleOnce) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	return batches.ShuffledOnce(n, size, rng)
}
