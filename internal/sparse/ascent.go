package sparse

import (
	"errors"
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// These constants control fits that read the rows several times.
const (
	coldRows = 3000 // rows of the fit that a run starts from
	coldGoal = 1    // goal of that fit, in nats
	// coldAll is the goal instead if there are no other rows, and natural steps may converge slowly:
	// because some terms are represented whole, in their own units, or because there are at most
	// coldFew rows per weight.
	coldAll     = 1e-6
	coldFew     = 4
	sampleSteps = 3  // natural steps on the whole sample after that fit
	sampleGoal  = 10 // predicted gain, in nats, below which these steps end early
)

// mostHalves is the largest number of halvings of a natural step.
const mostHalves = 12

// Ascent takes natural-gradient steps, and halves a step while it lowers the ELBO.
type Ascent struct {
	Pass   *Pass
	At     *gauss.Gaussian
	Look   *Look // at At; nil before the first
	Try    *gauss.Gaussian
	Length float64 // length of the step to try, as a fraction of the natural step
	// Short reports that a whole natural step lowered the ELBO, either from the current state or
	// from the state before it, for reasons other than rounding. The predicted gain is then no
	// estimate of the gap.
	Short  bool
	halves int
	Begun  bool    // the first pass was made
	least  float64 // ELBO of Try, where there is no look, below which it is no better than At,
	gain   float64 // predicted gain of that step
}

// Start makes q the state and keeps q.
func (a *Ascent) Start(q *gauss.Gaussian) {
	*a = Ascent{Pass: a.Pass, At: q, Try: q, Length: 1, least: math.Inf(-1), gain: math.Inf(1)}
}

// Adopt makes look the result at the state of a, and the end of its natural step the next state to
// try.
func (a *Ascent) Adopt(look *Look) { a.Look, a.Try = look, &look.Next }

// Begin takes the first pass over all rows, if a starts from a fit to a sample. The pass finds the
// first state to try. If all rows are in memory, Begin is Move.
func (a *Ascent) Begin() error {
	a.Begun = true
	if a.Pass.From > 0 || a.Pass.Rows.All == nil {
		return a.Move()
	}
	next, elbo, gain, err := a.Pass.newton(a.At)
	switch {
	case err == nil:
		a.Try, a.least, a.gain = next, elbo-gain, gain
	case !a.falls(err):
		return err
	}
	return nil
}

// falls reports whether err only means that a state has no ELBO.
func (a *Ascent) falls(err error) bool {
	return a.Pass.Workers.Halt.Err() == nil &&
		(errors.Is(err, sentinel.ErrNotFinite) || errors.Is(err, sentinel.ErrNotPosDef))
}

// Stuck reports whether there is no further step to try.
func (a *Ascent) Stuck() bool { return a.halves > mostHalves }

// Move evaluates the state to try in one pass. That state becomes the current state if its ELBO is
// not lower.
func (a *Ascent) Move() error {
	if a.Stuck() {
		return nil
	}
	x, err := a.Pass.At(a.Try)
	if halted := a.Pass.Workers.Halt.Err(); halted != nil {
		return halted
	}
	fell := err != nil || math.IsNaN(x.ELBO) || a.Look == nil && x.ELBO < a.least ||
		a.Look != nil && x.ELBO < a.Look.ELBO-x.Err-a.Look.Err-term.ElboSlack*math.Abs(x.ELBO)
	switch {
	case err != nil && (!a.falls(err) || a.Look == nil && a.Try == a.At):
		return err
	case a.Look == nil && a.Try != a.At && fell:
		a.Try, a.least, a.gain = a.At, math.Inf(-1), math.Inf(1)
		return nil
	case a.Look == nil || !fell:
		a.Short = a.halves > 0
		a.At, a.Look, a.Length, a.halves = a.Try, x, 1, 0
		a.Try = &a.Look.Next
		return nil
	}
	a.Short = true
	for a.halves++; !a.Stuck(); a.halves++ {
		a.Length /= 2
		try := &gauss.Gaussian{}
		if try.Between(a.At, &a.Look.Next, a.Length, a.Look.Next.Halt) {
			a.Try = try
			return nil
		}
		if err := a.Pass.Workers.Halt.Err(); err != nil {
			return err
		}
	}
	// Half of its length times the slope is the predicted gain of the whole step.
	a.Short = math.Ldexp(2*a.Gap(), -mostHalves) > a.Look.Err+term.ElboSlack*math.Abs(a.Look.ELBO)
	return nil
}

// Gap returns the estimated distance of the state from the best ELBO, in nats.
func (a *Ascent) Gap() float64 {
	if a.Look == nil {
		return a.gain
	}
	return a.Look.Promise
}

// Cold returns the final state of a fit to at most coldRows rows of the sample. It is nil if that
// fit has no state.
func (p *Pass) Cold() (*gauss.Gaussian, error) {
	if gaussian(p.Lik) { // one step suffices from any start
		return gauss.Unit(p.Z.Rank()), nil
	}
	r, h, goal := p.Rows, p.Workers.Halt, float64(coldGoal)
	n := min(len(r.Y), coldRows)
	if n == r.N && (p.Z.Wholes() > 0 || n <= coldFew*p.Z.Rank()) {
		goal = coldAll
	}
	f := p.Z.At(h, r.Sample(n))
	if err := h.Err(); err != nil {
		return nil, err
	}
	lin, _, _, err := p.Z.Linear(r.Sample(n), r.Terms(p.Lik, n), f)
	if err != nil {
		return nil, err
	}
	return p.Fit(h, lin, goal, p.Workers.Workers)
}

// Begin returns the state that a run starts from: Cold, and steps on the whole sample.
func (p *Pass) Begin() (*gauss.Gaussian, error) {
	q, err := p.Cold()
	if err != nil || len(p.Rows.Y) == p.Rows.N {
		return q, err
	}
	return climb(p, q, len(p.Rows.Y), sampleSteps, sampleGoal)
}

// climb takes natural steps on the first rows of the sample from q, until the predicted gain is
// below goal.
func climb(p *Pass, q *gauss.Gaussian, from, steps int, goal float64) (*gauss.Gaussian, error) {
	p.From = from
	defer func() { p.From = 0 }()
	a := Ascent{Pass: p}
	a.Start(q)
	for range steps {
		if err := a.Move(); err != nil {
			return nil, err
		}
		if a.Gap() < goal || a.Stuck() {
			break
		}
	}
	if a.Look == nil || a.halves > 0 {
		return a.At, nil
	}
	return a.Try, nil
}

// State writes or reads a, of m weights.
func (a *Ascent) State(c *save.Coder, m int) {
	looked := a.Look != nil
	c.Bool(&looked)
	if c.Reading() {
		a.At, a.Look = &gauss.Gaussian{}, nil
		if looked {
			a.Look = &Look{}
		}
	}
	a.At.State(c, m)
	if looked {
		a.Look.State(c, m)
	}
	c.Bool(&a.Begun)
	c.Float(&a.least, &a.gain)
	led := !looked && a.Try != a.At
	if c.Bool(&led); led {
		if c.Reading() {
			a.Try = &gauss.Gaussian{}
		}
		a.Try.State(c, m)
	}
	c.Float(&a.Length)
	c.Bool(&a.Short)
	c.Int(&a.halves)
	if !c.Reading() {
		return
	}
	switch {
	case led:
	case !looked:
		a.Try = a.At
	case a.halves == 0:
		a.Try = &a.Look.Next
	default:
		a.Try = &gauss.Gaussian{}
		ok := a.Try.Between(a.At, &a.Look.Next, a.Length, a.Look.Next.Halt)
		c.Check(ok, "a step has no precision")
	}
}
