package rounds

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// Climb finds the best q(w) = N(m, P⁻¹) of a linear model with the prior N(μ0, Λ0⁻¹), by looks at
// all rows. From q it takes the natural step
//
//	argmax_{m₊,P₊} ∂ELBO/∂μ·μ₊ − KL(q₊‖q),   P₊ = Λ0 + Xᵀdiag(−∂₂)X,   P₊(m₊ − m) = Xᵀ∂₁ − Λ0(m − μ0),
//
// where μ are the mean parameters (Khan and Lin, 2017). If the ELBO falls, the next round tries up to
// three shorter steps at once.
type Climb struct {
	Prior   *gauss.Prior
	Concave bool // all log-likelihoods ℓ are concave
	Bounded bool // |ℓ‴| ≤ |ℓ″|
	Halt    *parallel.Halt

	At    *gauss.Gaussian   // the best state so far; nil before the first look
	Found *Found            // the result of the look at At
	Try   []*gauss.Gaussian // the states of the next round
	// Ceiling is a proved upper bound on the ELBO of every q.
	Ceiling float64
	// Keep makes State save the look that Again uses.
	Keep bool
	// Tilts lists the parameters of the likelihood whose derivatives Tilted returns.
	Tilts []Tilt

	look *Look // the look at At

	length float64 // the longest step in Try, as a fraction of the natural step
	halves int     // how often the shortest step in Try was halved
	fell   bool    // the ELBO fell in the last round
	bare   bool    // the prior was tried
}

// Found is the result of a look at one state.
type Found struct {
	ELBO, Err float64        // the ELBO and a bound on its error
	Next      gauss.Gaussian // the end of the natural step
	Promise   float64        // predicted gain of the step, ½ΔmᵀP₊Δm + ¼tr((VΔP)²)
	Bound     float64        // proved bound on the gap: +Inf if unknown, 0 if proofs are off
}

// mostHalves limits how often a natural step is halved.
const mostHalves = 12

// Start sets the states of the first round to guesses, or to the prior if there are none.
func (c *Climb) Start(guesses ...*gauss.Gaussian) error {
	c.Ceiling, c.length, c.Try = math.Inf(1), 1, guesses
	if len(guesses) > 0 {
		return nil
	}
	p, err := c.prior()
	c.bare, c.Try = true, []*gauss.Gaussian{p}
	return err
}

// prior returns the prior as a state.
func (c *Climb) prior() (*gauss.Gaussian, error) {
	q, err := c.Prior.StateUntil(c.Halt)
	if err != nil {
		return nil, err
	}
	copy(q.Mean, c.Prior.Mean)
	return q, nil
}

// Again starts at the best state of o, which was fitted under another prior. The sums of a look do
// not depend on the prior, so Again needs no round.
func (c *Climb) Again(o *Climb) error {
	if o.look == nil {
		return c.Start(o.At)
	}
	if err := c.Start(o.At); err != nil {
		return err
	}
	return c.Step([]*Look{o.look})
}

// Stuck reports whether no step is left to try, because none gains more than rounding errors.
func (c *Climb) Stuck() bool { return c.At != nil && len(c.Try) == 0 }

// Gap returns the estimated distance of the state from the best ELBO, in nats.
func (c *Climb) Gap() float64 {
	switch {
	case c.Found == nil:
		return math.Inf(1)
	case c.Stuck():
		return c.Found.Err
	}
	return c.Found.Promise
}

// GapBound returns the proved bound on the gap, including rounding errors. It is 0 if proofs are off.
func (c *Climb) GapBound() float64 {
	if c.Found == nil || c.Found.Bound == 0 {
		return 0
	}
	return max(c.Ceiling-c.Found.ELBO, c.Found.slack())
}

// slack bounds the rounding error of the ELBO.
func (f *Found) slack() float64 { return f.Err + term.ElboSlack*math.Abs(f.ELBO) }

// Length returns the fraction of the natural step that comes next.
func (c *Climb) Length() float64 { return c.length }

// Step reads the looks at the states of Try, in their order, moves to the best state, and sets Try for
// the next round. The error wraps sentinel.ErrNotFinite and names a row if no state so far has an
// ELBO. It wraps sentinel.ErrNotPosDef if the natural step fails, and is the error of the Halt if
// the run is canceled.
func (c *Climb) Step(looks []*Look) error {
	if c.Stuck() {
		return nil
	}
	var best *Look
	var at *gauss.Gaussian
	most, slack, lost := math.Inf(-1), 0.0, ""
	for i, l := range looks {
		elbo, err, ok := c.elbo(c.Try[i], l)
		if halted := c.Halt.Err(); halted != nil {
			return halted
		}
		switch {
		case l.lost != "" && lost == "":
			lost = l.lost
		case ok && elbo > most:
			best, at, most, slack = l, c.Try[i], elbo, err
		}
	}
	if c.At != nil {
		if f := c.Found; best == nil ||
			most < f.ELBO-f.slack()-slack-term.ElboSlack*math.Abs(most) {
			return c.shorten()
		}
	}
	var found *Found
	err := fmt.Errorf("no state of the weights has an ELBO; %s: %w", lost, sentinel.ErrNotFinite)
	if best != nil {
		found, err = c.read(at, best, most, slack)
	}
	if halted := c.Halt.Err(); halted != nil {
		return halted
	}
	switch {
	case err == nil:
	case c.At != nil:
		return c.shorten()
	case c.bare:
		return err
	default:
		return c.Start()
	}
	fell := c.fell
	c.At, c.Found, c.look, c.length, c.halves, c.fell = at, found, best, 1, 0, false
	if b := found.Bound; b > 0 && !math.IsInf(b, 1) {
		c.Ceiling = min(c.Ceiling, found.ELBO+b+found.slack())
	}
	c.Try = []*gauss.Gaussian{&found.Next}
	if half := new(gauss.Gaussian); fell && half.Between(at, &found.Next, 0.5, c.Halt) {
		c.Try, c.halves = append(c.Try, half), 1
	}
	return c.Halt.Err()
}

// shorten sets Try to shorter steps than the last ones.
func (c *Climb) shorten() error {
	c.Try, c.fell = nil, true
	for len(c.Try) < mostLooks && c.halves < mostHalves {
		c.halves++
		s, t := &gauss.Gaussian{}, math.Ldexp(1, -c.halves)
		if s.Between(c.At, &c.Found.Next, t, c.Halt) {
			if c.Try = append(c.Try, s); len(c.Try) == 1 {
				c.length = t
			}
		}
		if err := c.Halt.Err(); err != nil {
			return err
		}
	}
	// The guess may have been bad, so try the prior.
	if len(c.Try) == 0 && !c.bare && c.Found.Promise > goals.UnknownNats {
		p, err := c.prior()
		c.bare, c.Try = true, []*gauss.Gaussian{p}
		return err
	}
	return nil
}

// elbo returns the ELBO of q and a bound on its error. It reports false if the ELBO is not finite.
func (c *Climb) elbo(q *gauss.Gaussian, l *Look) (elbo, err float64, ok bool) {
	if l.lost != "" {
		return 0, 0, false
	}
	q.Halt = c.Halt
	q.Invert()
	d := len(q.Mean)
	head := make([]float64, l.sums.Len())
	l.sums.Value(head)
	shift, pull := make([]float64, d), make([]float64, d)
	floats.SubTo(shift, q.Mean, c.Prior.Mean)
	c.Prior.Mul(pull, shift, 1)
	trace := 0.0
	for i := range d {
		if c.Prior.Full == nil {
			trace += c.Prior.Prec[i] * q.Inv[i*d+i]
			continue
		}
		row, inv := c.Prior.Full.P[i*d:i*d+i+1], q.Inv[i*d:i*d+i+1]
		trace += 2*floats.Dot(row, inv) - row[i]*inv[i]
	}
	quad, logDet := floats.Dot(shift, pull), q.LogDet-c.Prior.LogDet()
	kl := 0.5 * (trace + quad - float64(d) + logDet)
	elbo = head[0] - kl
	err = head[1] + dense.Epsilon*float64(d)*(trace+math.Abs(quad)+math.Abs(q.LogDet)+
		math.Abs(logDet)) + q.Resolution()
	return elbo, err, !math.IsNaN(elbo) && !math.IsInf(elbo, 0)
}

// read computes the natural step, its predicted gain and the gap bound from a look at q.
func (c *Climb) read(q *gauss.Gaussian, l *Look, elbo, slack float64) (*Found, error) {
	d := len(q.Mean)
	x := &Found{ELBO: elbo, Err: slack}
	all := make([]float64, l.sums.Len())
	l.sums.Value(all)
	slope, gram := all[2:2+d], all[2+d:]
	shift := make([]float64, d)
	floats.SubTo(shift, q.Mean, c.Prior.Mean)
	grad := make([]float64, d)
	c.Prior.Mul(grad, shift, 1)
	floats.SubTo(grad, slope, grad)

	n := &x.Next
	n.Resize(d)
	n.Halt = c.Halt
	step := func() bool {
		for i := range d {
			at := triangle(i)
			copy(n.P[i*d:i*d+i+1], gram[at:at+i+1])
			if c.Prior.Full != nil {
				floats.Add(n.P[i*d:i*d+i+1], c.Prior.Full.P[i*d:i*d+i+1])
			} else {
				n.P[i*d+i] += c.Prior.Prec[i]
			}
		}
		return n.Factor()
	}
	ok := false
	if l.clip != nil {
		clip, whole := make([]float64, triangle(d)), append([]float64(nil), gram...)
		l.clip.Value(clip)
		floats.Sub(gram, clip)
		if ok = step(); !ok {
			copy(gram, whole)
		}
	}
	if ok = ok || step(); !ok {
		return nil, fmt.Errorf(
			"the precision of the natural step; columns may be collinear or of very different "+
				"units: %w", sentinel.ErrNotPosDef)
	}

	// Δm and M − I, with P = RRᵀ and M = R⁻¹P₊R⁻ᵀ.
	move := append([]float64(nil), grad...)
	dense.Potrs(n.L, move)
	floats.AddTo(n.Mean, q.Mean, move)
	if _, ok := dense.AllFinite(n.Mean); !ok {
		return nil, fmt.Errorf("a natural step: %w", sentinel.ErrNotFinite)
	}
	a := append([]float64(nil), n.P...)
	dense.FillUpper(a, d)
	g := dense.General(a, d, d)
	r := dense.LowerTriangle(q.L, d)
	dense.TrsmUntil(c.Halt, blas.Left, blas.NoTrans, 1, r, g)
	dense.TrsmUntil(c.Halt, blas.Right, blas.Trans, 1, r, g)
	for j := range d {
		a[j*d+j]--
	}
	square := floats.Dot(move, grad)
	x.Promise = 0.5*max(0, square) + 0.25*floats.Dot(a, a)
	if c.Concave {
		if x.Bound = math.Inf(1); l.certain && l.clip == nil {
			own := make([]float64, d)
			c.Prior.Solve(own, grad)
			b := gauss.Gap{Own: floats.Dot(grad, own), LogDet: n.LogDet - q.LogDet, A: a, D: d,
				Bounded: c.Bounded, Lambda: math.Sqrt(max(0, square)), Widest: l.widest}
			x.Bound = goals.Bound(b.Bound(c.Halt))
		}
	}
	return x, c.Halt.Err()
}

// State writes or reads everything that later steps depend on. d is the number of weights.
func (c *Climb) State(s *save.Coder, d int) {
	has := c.At != nil
	s.Bool(&has, &c.bare, &c.fell)
	s.Float(&c.Ceiling, &c.length)
	s.Int(&c.halves)
	n := len(c.Try)
	s.Int(&n)
	s.Check(n <= mostLooks && (has || n > 0), "%d states to try", n)
	if s.Err() != nil {
		return
	}
	if s.Reading() {
		c.At, c.Found, c.Try = nil, nil, make([]*gauss.Gaussian, n)
		if has {
			c.At, c.Found = &gauss.Gaussian{}, &Found{}
		}
		for i := range c.Try {
			c.Try[i] = &gauss.Gaussian{}
		}
	}
	if has {
		c.At.State(s, d)
		f := c.Found
		s.Float(&f.ELBO, &f.Err, &f.Promise, &f.Bound)
		f.Next.State(s, d)
	}
	for i := range c.Try {
		c.Try[i].State(s, d)
	}
	if s.Reading() && has && n > 0 && !c.fell {
		c.Try[0] = &c.Found.Next
	}
	looked := c.Keep && c.look != nil
	if s.Bool(&looked); s.Reading() {
		if c.look = nil; looked {
			c.look = NewLook(nil, d)
			c.look.Tilt(c.Tilts)
		}
	}
	if looked && s.Err() == nil {
		c.look.State(s, d)
	}
}

// Digest adds the states of Try to d.
func (c *Climb) Digest(d *save.Digest) {
	d.Int(len(c.Try))
	for _, q := range c.Try {
		n := len(q.Mean)
		d.Float(q.Mean...)
		for i := range n {
			d.Float(q.P[i*n : i*n+i+1]...)
		}
	}
}
