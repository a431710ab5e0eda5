package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Of rows that are gone through again and again:
const (
	coldRows = 3000 // rows that a start from nothing is made of
	coldGoal = 1    // nats of their best,
	// or this, where they are all there is, and natural steps may not get on: terms are seen whole,
	coldAll     = 1e-6
	coldFew     = 4  // in raw units, or there are no more than so many rows a weight
	sampleSteps = 3  // natural steps on the sample from there,
	sampleGoal  = 10 // or until they promise less
)

// keepFeatures says how a SparseGP has other steps than natural ones of all rows.
const keepFeatures = "NewSparseGP with a SparseGPOptions.MaxMemory that holds the features keeps them, for steps of any kind"

// sparseAscent goes up by natural steps, each of which is halved where it leads down.
type sparseAscent struct {
	pass   *sparsePass
	at     *gauss.State
	look   *sparseLook // at at; nil before the first
	try    *gauss.State
	length float64 // of the step to try
	halves int
	begun  bool
	least  float64 // ELBO of try, where there is no look, below which it is no better than at,
	gain   float64 // and what it promised
}

// start makes q, which it keeps, the state.
func (a *sparseAscent) start(q *gauss.State) {
	*a = sparseAscent{pass: a.pass, at: q, try: q, length: 1, least: math.Inf(-1), gain: math.Inf(1)}
}

// begin is the first pass over all rows, from a start by a sample of them: it finds what to try.
// Otherwise it is move.
func (a *sparseAscent) begin() error {
	a.begun = true
	if a.pass.from > 0 || a.pass.rows.all == nil {
		return a.move()
	}
	next, elbo, gain, err := a.pass.newton(a.at)
	switch {
	case err == nil:
		a.try, a.least, a.gain = next, elbo-gain, gain
	case !a.falls(err):
		return err
	}
	return nil
}

// falls reports whether err says that a state has no ELBO, and nothing worse.
func (a *sparseAscent) falls(err error) bool {
	return a.pass.workers.Halt.Err() == nil && (errors.Is(err, ErrNotFinite) || errors.Is(err, ErrNotPosDef))
}

// stuck reports whether there is no further step to try.
func (a *sparseAscent) stuck() bool { return a.halves > sparseHalves }

// move looks at the state to try, in one pass, which becomes the state if its ELBO is no lower.
func (a *sparseAscent) move() error {
	if a.stuck() {
		return nil
	}
	x, err := a.pass.at(a.try)
	if halted := a.pass.workers.Halt.Err(); halted != nil {
		return halted
	}
	fell := err != nil || math.IsNaN(x.elbo) || a.look == nil && x.elbo < a.least ||
		a.look != nil && x.elbo < a.look.elbo-x.err-a.look.err-term.ElboSlack*math.Abs(x.elbo)
	switch {
	case err != nil && (!a.falls(err) || a.look == nil && a.try == a.at):
		return err
	case a.look == nil && a.try != a.at && fell:
		a.try, a.least, a.gain = a.at, math.Inf(-1), math.Inf(1)
		return nil
	case a.look == nil || !fell:
		a.at, a.look, a.length, a.halves = a.try, x, 1, 0
		a.try = &a.look.next
		return nil
	}
	for a.halves++; !a.stuck(); a.halves++ {
		a.length /= 2
		try := &gauss.State{}
		if between(try, a.at, &a.look.next, a.length) {
			a.try = try
			return nil
		}
		if err := a.pass.workers.Halt.Err(); err != nil {
			return err
		}
	}
	return nil
}

// gap returns how many nats the state promises to be below the best.
func (a *sparseAscent) gap() float64 {
	if a.look == nil {
		return a.gain
	}
	return a.look.promise
}

// coldWeights returns the state that a fit of the first rows of the sample ends with, on at most
// coldRows of them.
func coldWeights(h *parallel.Halt, z *inducing, rows *rowSource, lik Likelihood, workers int) (*gauss.State, error) {
	if _, ok := lik.(GaussianNoise); ok { // one step from wherever it starts
		return gauss.Unit(z.rank()), nil
	}
	n, goal := min(len(rows.y), coldRows), float64(coldGoal)
	if n == rows.n && (z.wholes() > 0 || n <= coldFew*z.rank()) {
		goal = coldAll
	}
	terms := rows.terms(lik, n)
	f := featuresAt(h, z, rows.sample(n))
	if err := h.Err(); err != nil {
		return nil, err
	}
	lin, _, _, err := z.linear(rows.sample(n), terms, f)
	if err != nil {
		return nil, err
	}
	st, err := newLinearStepper(h.Context(), lin, nil, nil, linearOptions{covariance: FullCovariance})
	if err != nil {
		return nil, err
	}
	s := Solver{Goal: goal, MaxPasses: mostRowPasses, Workers: workers}
	res, err := s.Resume(h.Context(), &Result{Stepper: st})
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if math.IsNaN(res.ELBO) || math.IsInf(res.ELBO, 0) {
		return nil, err
	}
	mean, cov, err := weightsAt(lin, res.Stepper)
	if err != nil {
		return nil, err
	}
	q, err := cov.State(h)
	if err != nil {
		return nil, err
	}
	s0 := &gauss.State{}
	s0.CopyFrom(q)
	copy(s0.Mean, mean)
	return s0, nil
}

// climb takes natural steps on the first rows of the sample from q until they promise less than
// goal.
func climb(p *sparsePass, q *gauss.State, from, steps int, goal float64) (*gauss.State, error) {
	p.from = from
	defer func() { p.from = 0 }()
	a := sparseAscent{pass: p}
	a.start(q)
	for range steps {
		if err := a.move(); err != nil {
			return nil, err
		}
		if a.gap() < goal || a.stuck() {
			break
		}
	}
	if a.look == nil || a.halves > 0 {
		return a.at, nil
	}
	return a.try, nil
}

// sparseStepper is the Stepper of a SparseGP that goes through its rows.
type sparseStepper struct {
	pass    sparsePass
	ascent  sparseAscent
	pending bool    // the state is that to try
	ceiling float64 // no ELBO is above it, which is proved
	halt    parallel.Halt
	print   fingerprint
}

// newSparseStepper returns that of rows at q, or at a fit of the sample if that is nil.
func newSparseStepper(ctx context.Context, env *Env, z *inducing, rows *rowSource, lik Likelihood, q *gauss.State) (*sparseStepper, error) {
	s := &sparseStepper{ceiling: math.Inf(1)}
	s.pass = sparsePass{rows: rows, z: z, lik: lik}
	s.ascent.pass = &s.pass
	defer s.begin(ctx, env).Forget()
	var err error
	if q == nil {
		if q, err = coldWeights(&s.halt, z, rows, lik, env.Workers()); err != nil {
			return nil, err
		}
		if n := len(rows.y); n < rows.n {
			if q, err = climb(&s.pass, q, n, sampleSteps, sampleGoal); err != nil {
				return nil, err
			}
		}
	}
	s.ascent.start(q)
	return s, nil
}

// Len implements State.
func (s *sparseStepper) Len() int { return s.pass.rows.n }

// Plan implements Stepper.
func (s *sparseStepper) Plan() Plan { return Plan{MaxPasses: mostRowPasses, Sampler: wholePass{}} }

// wholePass is a Sampler of nothing but all rows.
type wholePass struct{}

// Batches implements Sampler.
func (wholePass) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	all := make([]int, min(n, size))
	for i := range all {
		all[i] = i
	}
	return func(yield func([]int) bool) {
		for yield(all) {
		}
	}
}

// begin implements haltable.
func (s *sparseStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.pass.workers = term.Crew{Workers: env.Workers(), Halt: &s.halt}
	return &s.halt
}

// Step implements Stepper: what the last pass told is where it leads.
func (s *sparseStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if !math.IsInf(beta, 1) || batch != nil && len(batch) != s.Len() {
		return step, fmt.Errorf("a SparseGP that does not keep its features takes all rows in every step and chooses the step size, not %d of %d rows with step size %v; %s: %w", len(batch), s.Len(), beta, keepFeatures, ErrParam)
	}
	pass := s.ascent.move
	if !s.ascent.begun {
		step.more, pass = s.Len(), s.ascent.begin
	}
	if s.ascent.look == nil || s.pending {
		if err := pass(); err != nil {
			return step, err
		}
	}
	s.pending = true
	step.GradMap = goals.NeverZero(s.ascent.length * math.Sqrt(2*s.ascent.gap()))
	return step, nil
}

// Evaluate implements Stepper.
func (s *sparseStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	for s.ascent.look == nil || s.pending { // two moves find a state, or an error
		s.ascent.begun = true
		if err := s.ascent.move(); err != nil {
			return notEvaluated(), err
		}
		s.pending = false
	}
	x := s.ascent.look
	e := Evaluation{ELBO: x.elbo, ELBOErr: goals.NeverZero(x.err + x.blurred), Gap: goals.NeverZero(x.promise), Goal: streamGoal}
	if s.ascent.stuck() {
		e.Gap = goals.NeverZero(x.err) // no step leads up that could be told from rounding
	}
	if x.bound > 0 {
		slack := x.err + term.ElboSlack*math.Abs(x.elbo)
		if !math.IsInf(x.bound, 1) {
			s.ceiling = min(s.ceiling, x.elbo+x.bound+slack)
		}
		e.GapBound, e.Scope = max(s.ceiling-x.elbo, slack), OverQ
	}
	return e, nil
}

// current is where s is.
func (s *sparseStepper) current() *gauss.State { return s.ascent.at }

// constant reports whether Evaluate would change nothing which later steps depend on.
func (s *sparseStepper) constant() bool { return s.ascent.look != nil && !s.pending }

// MarshalBinary returns the state.
func (s *sparseStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary puts a state back. The error wraps ErrFile if b is not the state of a Stepper of
// the same model.
func (s *sparseStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *sparseStepper) state(c *save.State) {
	s.print.state(c, s.pass.digest)
	s.ascent.state(c, s.pass.z.rank())
	c.Bool(&s.pending)
	c.Float(&s.ceiling)
}

func (a *sparseAscent) state(c *save.State, m int) {
	looked := a.look != nil
	c.Bool(&looked)
	if c.Reading() {
		a.at, a.look = &gauss.State{}, nil
		if looked {
			a.look = &sparseLook{}
		}
	}
	a.at.State(c, m)
	if looked {
		a.look.state(c, m)
	}
	c.Bool(&a.begun)
	c.Float(&a.least, &a.gain)
	led := !looked && a.try != a.at
	if c.Bool(&led); led {
		if c.Reading() {
			a.try = &gauss.State{}
		}
		a.try.State(c, m)
	}
	c.Float(&a.length)
	c.Int(&a.halves)
	if !c.Reading() {
		return
	}
	switch {
	case led:
	case !looked:
		a.try = a.at
	case a.halves == 0:
		a.try = &a.look.next
	default:
		a.try = &gauss.State{}
		c.Check(between(a.try, a.at, &a.look.next, a.length), "a step has no precision")
	}
}

func (x *sparseLook) state(c *save.State, m int) {
	c.Float(&x.elbo, &x.err, &x.blurred, &x.promise, &x.bound)
	x.next.State(c, m)
}

// digest shows d the model, of its rows those of the sample.
func (p *sparsePass) digest(d *save.Digest) {
	p.rows.digest(d, p.lik)
	digestValue(d, p.z.kernel)
	for j := range p.z.rank() {
		d.Floats(p.z.x.RawRowView(j))
	}
}
