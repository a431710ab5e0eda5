package pgsvi

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
)

// keepFeatures says how a SparseGP has other steps than natural ones of all rows.
const keepFeatures = "NewSparseGP with a SparseGPOptions.MaxMemory that holds the features keeps them, for steps of any kind"

// fitFeatures is the sparse.Fit of the Solver. A state is good even with an error.
func fitFeatures(h *parallel.Halt, lin *site.LinearModel, goal float64, workers int) (*gauss.State,
	error) {
	s := Solver{Goal: goal, MaxPasses: mostRowPasses, Workers: workers}
	q, err := fitWeights(h, lin, &s)
	if q != nil {
		err = nil
	}
	return q, err
}

// sparseStepper is the Stepper of a SparseGP that goes through its rows.
type sparseStepper struct {
	pass    sparse.Pass
	ascent  sparse.Ascent
	pending bool    // the state is that to try
	ceiling float64 // no ELBO is above it, which is proved
	halt    parallel.Halt
	print   fingerprint
}

// newSparseStepper returns that of rows at q, or at a fit of the sample if that is nil.
func newSparseStepper(ctx context.Context, env *Env, z *sparse.Inducing, rows *sparse.Rows,
	lik Likelihood, q *gauss.State) (*sparseStepper, error) {
	s := &sparseStepper{ceiling: math.Inf(1)}
	s.pass.Rows, s.pass.Z, s.pass.Lik, s.pass.Fit = rows, z, viewOf(lik), fitFeatures
	s.ascent.Pass = &s.pass
	defer s.begin(ctx, env).Forget()
	if q == nil {
		var err error
		if q, err = s.pass.Begin(); err != nil {
			return nil, err
		}
	}
	s.ascent.Start(q)
	return s, nil
}

// Len implements State.
func (s *sparseStepper) Len() int { return s.pass.Rows.N }

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
	s.pass.Workers = term.Crew{Workers: env.Workers(), Halt: &s.halt}
	return &s.halt
}

// Step implements Stepper: what the last pass told is where it leads.
func (s *sparseStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if !math.IsInf(beta, 1) || batch != nil && len(batch) != s.Len() {
		return step, fmt.Errorf("a SparseGP that does not keep its features takes all rows in every step and chooses the step size, not %d of %d rows with step size %v; %s: %w", len(batch), s.Len(), beta, keepFeatures, ErrParam)
	}
	pass := s.ascent.Move
	if !s.ascent.Begun {
		step.more, pass = s.Len(), s.ascent.Begin
	}
	if s.ascent.Look == nil || s.pending {
		if err := pass(); err != nil {
			return step, err
		}
	}
	s.pending = true
	step.GradMap = goals.NeverZero(s.ascent.Length * math.Sqrt(2*s.ascent.Gap()))
	return step, nil
}

// Evaluate implements Stepper.
func (s *sparseStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	for s.ascent.Look == nil || s.pending { // two moves find a state, or an error
		s.ascent.Begun = true
		if err := s.ascent.Move(); err != nil {
			return notEvaluated(), err
		}
		s.pending = false
	}
	x := s.ascent.Look
	e := Evaluation{ELBO: x.ELBO, ELBOErr: goals.NeverZero(x.Err + x.Blurred),
		Gap: goals.NeverZero(x.Promise), Goal: streamGoal}
	if s.ascent.Stuck() {
		e.Gap = goals.NeverZero(x.Err) // no step leads up that could be told from rounding
	}
	if x.Bound > 0 {
		slack := x.Err + term.ElboSlack*math.Abs(x.ELBO)
		if !math.IsInf(x.Bound, 1) {
			s.ceiling = min(s.ceiling, x.ELBO+x.Bound+slack)
		}
		e.GapBound, e.Scope = max(s.ceiling-x.ELBO, slack), OverQ
	}
	return e, nil
}

// current is where s is.
func (s *sparseStepper) current() *gauss.State { return s.ascent.At }

// constant reports whether Evaluate would change nothing which later steps depend on.
func (s *sparseStepper) constant() bool { return s.ascent.Look != nil && !s.pending }

// MarshalBinary returns the state.
func (s *sparseStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary puts a state back. The error wraps ErrFile if b is not the state of a Stepper of
// the same model.
func (s *sparseStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *sparseStepper) state(c *save.State) {
	s.print.state(c, s.pass.Digest)
	s.ascent.State(c, s.pass.Z.Rank())
	c.Bool(&s.pending)
	c.Float(&s.ceiling)
}
