package rounds

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Ascent is the driver of a linear model: a Climb, or an ArrowClimb if the model has a grouping
// factor.
type Ascent interface {
	// Tries returns the number of states of the next round.
	Tries() int
	// Open appends an empty look at each of these states to p.
	Open(p *Part)
	// Read moves to the best state of the looks of p. On error the driver may have changed.
	Read(p *Part) error
	// Best returns the ELBO of the best state so far and a bound on its error. It reports false
	// before the first look.
	Best() (elbo, err float64, ok bool)
	// Stuck reports whether no step is left to try.
	Stuck() bool
	// Gap returns the estimated distance from the best ELBO, and GapBound a proved bound or 0.
	Gap() float64
	GapBound() float64
	// Length returns the fraction of the natural step that comes next.
	Length() float64
	// State writes or reads everything that later steps depend on. d is the number of weights.
	State(c *save.Coder, d int)
	// Digest adds the states of the next round to d.
	Digest(d *save.Digest)
}

var _, _ Ascent = (*Climb)(nil), (*ArrowClimb)(nil)

// ArrowClimb finds the best q of a mixed model by looks at all rows. A step
// from q has two parts. The looks give the sites at q, γ = −∂₂ and b = ∂₁ + γη, as sums XᵀΓX and h =
// Xᵀb. At these sums, L moves to the maximum of log Z + log p(L) (site.ArrowSums), without another
// pass. The next q is the prior at the new L times the sites, which is the end of the natural step of
// Climb. A step is accepted if the ELBO plus log p(L) does not fall. Otherwise the next round tries
// up to three shorter steps at once.
type ArrowClimb struct {
	Of      *Grouping
	Prior   *gauss.Prior  // its blocks have the L at which learning starts
	Rules   []site.Factor // how the L of each block is learned
	Concave bool          // all log-likelihoods are concave
	Near    bool          // the first sites come from the responses
	Halt    *parallel.Halt
	Workers int

	// Tilts lists the parameters of the likelihood whose derivatives Tilted returns.
	Tilts []Tilt

	At    *ArrowState // the best state so far; nil before the first look
	Found *ArrowFound // the result of the look at At
	Try   []*ArrowState

	model        *arrowModel
	sums         *site.ArrowSums
	lastL, moved [][]float64 // the last accepted L, and how far its profile would have moved it
	length       float64
	halves       int
	fell, bare   bool
	tilts        *tilted // sums of the look at At
	probing      bool    // the last state of Try is a probe of the first
	probed       float64 // the gap when the last probe was made, or +Inf
}

// ArrowFound is the result of a look at a state.
type ArrowFound struct {
	ELBO, Err float64
	LogPrior  float64     // log p(L), up to a constant
	Next      *ArrowState // the end of the step
	Promise   float64     // predicted gain of q at the present L
	Gain      float64     // predicted gain of L, including the gain of sites that follow L
	Rate      float64     // the estimate of 1 − ρ, by a probe or by site.ArrowSums.Rate
	Probed    bool        // Rate comes from a probe
}

// profile returns the ArrowSums of the model.
func (c *ArrowClimb) profile() *site.ArrowSums {
	if c.sums == nil {
		c.sums = site.NewArrowSums(c.Prior, c.Rules)
	}
	c.sums.Use(term.Crew{Workers: max(1, c.Workers), Halt: c.Halt})
	return c.sums
}

// Evidence returns the evidence of a model with Gaussian noise at the first sites, whose variance of
// the noise is given.
func (c *ArrowClimb) Evidence(first *ArrowState, noise float64, m *GroupMoments) *site.Evidence {
	s := first.Scaled(noise)
	return site.NewArrowSums(c.Prior, c.Rules).Evidence(&s.Sums, s.HB, s.HG, m.Response, m.Weight)
}

// shared returns the part of the model that all states share.
func (c *ArrowClimb) shared() *arrowModel {
	if c.model == nil {
		c.model = newArrowModel(c.Prior)
	}
	return c.model
}

// Release gives up scratch memory.
func (c *ArrowClimb) Release() { c.sums = nil }

// Start sets the state of the first round from the sums at the first sites. A nil first means the
// prior.
func (c *ArrowClimb) Start(first *ArrowState) error {
	c.At, c.Found, c.lastL, c.moved = nil, nil, nil, nil
	c.length, c.halves, c.fell, c.bare = 1, 0, false, false
	c.probing, c.probed = false, math.Inf(1)
	s := c.blank()
	if first != nil {
		s.Sums, s.HB, s.HG = first.Sums, slices.Clone(first.HB), slices.Clone(first.HG)
		s.shift(c.Prior, c.Of)
		if c.Near || c.Concave { // otherwise the sites mislead
			s.L, _ = c.profile().Maximize(s.L, &s.Sums, s.HB, s.HG)
		}
		if s.factor(c.Halt, c.shared()) {
			c.Try = []*ArrowState{s}
			return c.Halt.Err()
		}
	}
	if err := c.Halt.Err(); err != nil {
		return err
	}
	return c.startBare()
}

// StartAt begins at the sites and the L of the best state of o, which was fitted under another prior or
// likelihood.
func (c *ArrowClimb) StartAt(o *ArrowClimb) error {
	c.lastL, c.moved, c.length, c.probed = nil, nil, 1, math.Inf(1)
	n := o.Found.Next
	s := &ArrowState{L: n.L, Sums: n.Sums, HB: n.HB, HG: n.HG}
	if s.factor(c.Halt, c.shared()) {
		c.Try = []*ArrowState{s}
		return c.Halt.Err()
	}
	return c.startBare()
}

// Tilted returns the sums for all parameters of Tilts at the best state. It reports false if they are
// not known.
func (c *ArrowClimb) Tilted() ([]Tilted, bool) {
	if c == nil {
		return nil, false
	}
	d := c.Of.Weights()
	all, ok := c.tilts.values(d)
	for i := range all { // in the order of the model
		pull := make([]float64, d)
		m := c.Of.Border()
		for k, j := range c.Of.Columns() {
			pull[j] = all[i].Pull[k]
		}
		copy(pull[c.Of.First:], all[i].Pull[m:])
		all[i].Pull = pull
	}
	return all, ok
}

// Moments returns the mean and the covariance of all weights at the best state, and their variances,
// which are 0 for the levels of the eliminated factor.
func (c *ArrowClimb) Moments() (mean, variance []float64, cov *gauss.Arrow) {
	q, d := c.At, c.Of.Weights()
	mean, variance = make([]float64, d), make([]float64, d)
	for k, j := range c.Of.Columns() {
		mean[j] = q.Mean.W[k]
	}
	copy(mean[c.Of.First:], q.Mean.U)
	q.By.BorderDiag(variance)
	return mean, variance, q.By
}

// startBare sets Try to the prior.
func (c *ArrowClimb) startBare() error {
	s := c.blank()
	c.bare, c.probing, c.Try = true, false, []*ArrowState{s}
	if !s.factor(c.Halt, c.shared()) {
		return fmt.Errorf("the precision of the prior: %w", sentinel.ErrNotPosDef)
	}
	return c.Halt.Err()
}

// blank returns the state without sites, at the first L. It has no factors.
func (c *ArrowClimb) blank() *ArrowState {
	d, rows := c.Of.Border(), c.Of.Levels*c.Of.Q
	var l [][]float64
	for _, b := range c.shared().shape.Blocks {
		l = append(l, slices.Clone(b.L))
	}
	return &ArrowState{L: l,
		Sums: gauss.Sums{A: make([]float64, d*d), B: make([]float64, rows*d),
			D: make([]float64, rows*c.Of.Q)}, HB: make([]float64, d), HG: make([]float64, rows)}
}

// shift makes h, which is about 0, the coefficients about the prior mean.
func (q *ArrowState) shift(prior *gauss.Prior, g *Grouping) {
	mean, zero := make([]float64, g.Border()), true
	for k, j := range g.Columns() {
		mean[k] = -prior.Mean[j]
		zero = zero && mean[k] == 0
	}
	if !zero {
		q.Sums.MulGram(q.HB, q.HG, mean, make([]float64, len(q.HG)), g.Q)
	}
}

// Tries implements Ascent.
func (c *ArrowClimb) Tries() int { return len(c.Try) }

// Open implements Ascent.
func (c *ArrowClimb) Open(p *Part) {
	p.Groups = c.Of
	for _, q := range c.Try {
		l := NewArrowLook(q, c.Of)
		l.tilt(c.Tilts)
		p.Arrows = append(p.Arrows, l)
	}
}

// Best implements Ascent.
func (c *ArrowClimb) Best() (elbo, err float64, ok bool) {
	if c.Found == nil {
		return 0, 0, false
	}
	return c.Found.ELBO, c.Found.Err, true
}

// Stuck implements Ascent.
func (c *ArrowClimb) Stuck() bool { return c.At != nil && len(c.Try) == 0 }

// Gap implements Ascent.
func (c *ArrowClimb) Gap() float64 {
	switch {
	case c.Found == nil:
		return math.Inf(1)
	case c.Stuck():
		return c.Found.Err
	}
	return c.Found.Promise + c.Found.Gain
}

// GapBound implements Ascent. No bound is proved.
func (c *ArrowClimb) GapBound() float64 { return 0 }

// Length implements Ascent.
func (c *ArrowClimb) Length() float64 { return c.length }

// value returns the value that no step may lower.
func (f *ArrowFound) value() float64 { return f.ELBO + f.LogPrior }

// slack bounds the rounding error of the ELBO.
func (f *ArrowFound) slack() float64 { return f.Err + term.ElboSlack*math.Abs(f.ELBO) }

// Read implements Ascent; see Climb.Step for the errors.
func (c *ArrowClimb) Read(p *Part) error {
	if c.Stuck() {
		return nil
	}
	var best *ArrowFound
	at, lost := -1, ""
	var probe *ArrowLook
	var probeAt *ArrowState
	looks := p.Arrows
	if n := len(looks) - 1; c.probing {
		looks, probe, probeAt = looks[:n], looks[n], c.Try[n]
	}
	for i, l := range looks {
		if l.lost != "" {
			if lost == "" {
				lost = l.lost
			}
			continue
		}
		f := c.evaluate(c.Try[i], l)
		if err := c.Halt.Err(); err != nil {
			return err
		}
		if finite([]float64{f.ELBO}) && (best == nil || f.value() > best.value()) {
			best, at = f, i
		}
	}
	if f := c.Found; f != nil && (best == nil ||
		best.value() < f.value()-f.slack()-best.slack()) {
		return c.shorten()
	}
	err := fmt.Errorf("no state of the weights has an ELBO; %s: %w", lost, sentinel.ErrNotFinite)
	var q *ArrowState
	if best != nil {
		q = c.Try[at]
		if err = c.read(q, looks[at], best); err == nil && at == 0 && probe != nil {
			c.rate(q, best, probeAt, probe)
		}
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
		return c.startBare()
	}
	fell, before := c.fell, c.Found
	c.tilts = looks[at].tilts
	c.lastL, c.moved = q.L, best.moved(q)
	c.At, c.Found, c.length, c.halves, c.fell = q, best, 1, 0, false
	c.Try = []*ArrowState{best.Next}
	c.probing = false
	if fell {
		c.add(c.between(1, 1), c.between(0.5, 0.5))
	} else if before != nil {
		c.add(c.damped(before), c.farther())
	}
	if s := c.probe(); s != nil {
		c.add(s)
		c.probing, c.probed = true, c.Gap()
	}
	return c.Halt.Err()
}

// A look at a probe costs about as much as a look at another state. It comes in the rounds before the
// end, when the predicted gain is at most probeNats, and again when the gain has fallen by probeAgain.
const (
	probeNats  = 10
	probeAgain = 0.01
	probeLeast = 1e-6 // gain below which a probe would measure rounding errors
)

// probe returns a state with the sites of the next state and a larger L, or nil. Its look shows how the
// sites follow L, which the intervals of L and the gap depend on. The moves of L from step to step show
// this less well, because the sites of a step also follow the sites before.
func (c *ArrowClimb) probe() *ArrowState {
	gap, next := c.Gap(), c.Found.Next
	if len(c.Try) >= mostLooks || !c.profile().Learns() || gap > probeNats || gap < probeLeast ||
		gap > probeAgain*c.probed {
		return nil
	}
	s := &ArrowState{L: mixedLists(next.L, next.L, 0), Sums: next.Sums, HB: next.HB, HG: next.HG}
	for _, l := range s.L {
		floats.Scale(1+site.RayStep, l)
	}
	if !s.factor(c.Halt, c.shared()) {
		return nil
	}
	return s
}

// rate sets the rate of f, the result of a look at q, by a look at its probe.
func (c *ArrowClimb) rate(q *ArrowState, f *ArrowFound, probe *ArrowState, l *ArrowLook) {
	if l.lost != "" {
		return
	}
	at, _, err := c.sites(probe, l)
	if err != nil {
		return
	}
	n, old := f.Next, f.Rate
	rate, ok := c.profile().ProbeRate(q.L, &n.Sums, &at.Sums, n.HB, n.HG, at.HB, at.HG)
	if !ok {
		return
	}
	f.Gain *= old / rate
	f.Rate, f.Probed = rate, true
}

// add appends the states that are not nil to Try.
func (c *ArrowClimb) add(states ...*ArrowState) {
	for _, s := range states {
		if s != nil && len(c.Try) < mostLooks {
			c.Try = append(c.Try, s)
		}
	}
}

// slowRate is the estimate of 1 − ρ below which the next round also tries longer and shorter steps.
const slowRate = 0.5

// damped returns a state before the end of the step, where the best state is if steps of nearly equal
// size go back and forth. It returns nil if the predicted gain falls fast.
func (c *ArrowClimb) damped(before *ArrowFound) *ArrowState {
	rho := math.Sqrt(c.Found.raw() / before.raw())
	if !(rho > 1-slowRate) {
		return nil
	}
	t := 1 / (1 + min(1, rho))
	return c.between(t, t)
}

// raw returns the gain that the step predicts at the present sites.
func (f *ArrowFound) raw() float64 { return f.Promise + f.Gain*f.Rate }

// farther returns the state after a longer step of L, which would end at the best L if each step
// were ρ times the step before (Aitken, 1926). It returns nil if L converges fast.
func (c *ArrowClimb) farther() *ArrowState {
	f := c.Found
	if !(f.Rate < slowRate) {
		return nil
	}
	a, b := c.At, f.Next
	s := &ArrowState{L: mixedLists(a.L, b.L, 1/f.Rate), Sums: b.Sums, HB: b.HB, HG: b.HG}
	for k, x := range c.Of.factors() {
		for i := range x.Q { // 0 is a saddle
			d := i * (x.Q + 1)
			s.L[k][d] = max(s.L[k][d], leastL*b.L[k][d])
		}
	}
	if !s.factor(c.Halt, c.shared()) {
		return nil
	}
	return s
}

// leastL is the smallest fraction of a diagonal element of L that may remain after a longer step.
const leastL = 0.25

// moved returns the change of L in the step from q.
func (f *ArrowFound) moved(q *ArrowState) [][]float64 {
	move := gauss.CloneLists(f.Next.L)
	for k, l := range q.L {
		floats.Sub(move[k], l)
	}
	return move
}

// shorter returns try k of a step that lowered the ELBO: the fractions t and of of between. Half of
// the tries keep L, because the new L may be far off if the sites mislead.
func (c *ArrowClimb) shorter(k int) (t, of float64) {
	switch {
	case !c.profile().Learns():
		return math.Ldexp(1, -k-1), 0
	case k >= 6:
		return math.Ldexp(1, 3-k), 0
	}
	t = math.Ldexp(1, -k/2)
	return t, t * float64(1-k%2)
}

// shorten sets Try to shorter steps than the last ones.
func (c *ArrowClimb) shorten() error {
	c.Try, c.fell, c.probing = nil, true, false
	for len(c.Try) < mostLooks && c.halves < mostHalves {
		t, of := c.shorter(c.halves)
		c.halves++
		if s := c.between(t, of); s != nil {
			if c.Try = append(c.Try, s); len(c.Try) == 1 {
				c.length = t
			}
		}
		if err := c.Halt.Err(); err != nil {
			return err
		}
	}
	if len(c.Try) == 0 && !c.bare && c.Found.Promise > goals.UnknownNats {
		return c.startBare()
	}
	return nil
}

// between returns the state at the fraction t of the step in natural parameters, and the fraction of
// in L, or of a step of L of one standard deviation if that is shorter. It returns nil if the
// precision is not positive definite.
func (c *ArrowClimb) between(t, of float64) *ArrowState {
	a, b := c.At, c.Found.Next
	of /= max(1, c.profile().Length(a.L, c.moved))
	s := &ArrowState{L: mixedLists(a.L, b.L, of), Sums: a.Sums.Clone(), HB: mixed(a.HB, b.HB, t),
		HG: mixed(a.HG, b.HG, t)}
	s.Sums.Scale(1 - t)
	s.Sums.AddScaled(t, &b.Sums)
	if !s.factor(c.Halt, c.shared()) {
		return nil
	}
	return s
}

// mixed returns (1 − t)x + ty.
func mixed(x, y []float64, t float64) []float64 {
	z := slices.Clone(x)
	floats.Scale(1-t, z)
	floats.AddScaled(z, t, y)
	return z
}

// mixedLists returns (1 − t)x + ty.
func mixedLists(x, y [][]float64, t float64) [][]float64 {
	z := make([][]float64, len(x))
	for k := range x {
		z[k] = mixed(x[k], y[k], t)
	}
	return z
}

// evaluate returns the ELBO of q.
func (c *ArrowClimb) evaluate(q *ArrowState, l *ArrowLook) *ArrowFound {
	head := make([]float64, 2)
	l.sums.valueAt(0, head)
	kl, size := q.divergence()
	return &ArrowFound{ELBO: head[0] - kl, LogPrior: c.profile().LogPrior(q.L),
		Err: head[1] + dense.Epsilon*float64(len(q.HB))*size + dense.Epsilon*size}
}

// sites returns a state with the sites that a look at q gives and the L of q, without factors, and
// log Z + log p(L).
func (c *ArrowClimb) sites(q *ArrowState, l *ArrowLook) (next *ArrowState, from float64, err error) {
	next = &ArrowState{L: q.L}
	next.HB, next.HG, _, _ = c.Of.blocks(l.sums, &next.Sums)
	slopes := gauss.CloneLists([][]float64{next.HB, next.HG})
	from = math.Inf(-1)
	if l.clip != nil {
		var clip gauss.Sums
		c.Of.blocks(l.clip, &clip)
		next.Sums.AddScaled(-1, &clip)
		if from = c.gather(next, q); math.IsInf(from, -1) { // the precision is not positive definite
			next.Sums.AddScaled(1, &clip)
			copy(next.HB, slopes[0])
			copy(next.HG, slopes[1])
		}
	}
	if math.IsInf(from, -1) {
		from = c.gather(next, q)
	}
	if err := c.Halt.Err(); err != nil {
		return nil, 0, err
	}
	if math.IsInf(from, -1) {
		return nil, 0, fmt.Errorf("the precision of the natural step; columns may be collinear or of very "+
			"different units: %w", sentinel.ErrNotPosDef)
	}
	return next, from, nil
}

// read completes f, the result of a look at q, by the next state.
func (c *ArrowClimb) read(q *ArrowState, l *ArrowLook, f *ArrowFound) error {
	next, from, err := c.sites(q, l)
	if err != nil {
		return err
	}
	s := c.profile()
	var to float64
	next.L, to = s.Maximize(q.L, &next.Sums, next.HB, next.HG)
	f.Promise = max(0, from-c.surrogate(q, next, f))
	f.Next = next
	f.Rate = 1
	if c.Found != nil {
		f.Rate = c.Found.Rate
	}
	if f.Probed = c.Found != nil && c.Found.Probed; !f.Probed {
		f.Rate = s.Rate(q.L, f.moved(q), c.lastL, c.moved, f.Rate)
	}
	f.Gain = max(0, to-from) / f.Rate
	if !next.factor(c.Halt, c.shared()) {
		return fmt.Errorf("a natural step: %w", sentinel.ErrNotFinite)
	}
	return nil
}

// gather adds XᵀΓXm to the slopes h of next, for the mean m of q. It returns log Z + log p(L) at the L
// of q.
func (c *ArrowClimb) gather(next, q *ArrowState) float64 {
	next.Sums.MulGram(next.HB, next.HG, q.Mean.W, q.Mean.U, c.Of.Q)
	return c.profile().LogZ(q.L, &next.Sums, next.HB, next.HG)
}

// surrogate returns the value of q, f.value(), if the terms were the sites of next:
//
//	hᵀm − ½mᵀXᵀΓXm − ½tr(XᵀΓX V) − KL + log p(L).
func (c *ArrowClimb) surrogate(q, next *ArrowState, f *ArrowFound) float64 {
	gb, gg := make([]float64, len(q.HB)), make([]float64, len(q.HG))
	next.Sums.MulGram(gb, gg, q.Mean.W, q.Mean.U, c.Of.Q)
	linear := floats.Dot(next.HB, q.Mean.W) + floats.Dot(next.HG, q.Mean.U)
	square := floats.Dot(gb, q.Mean.W) + floats.Dot(gg, q.Mean.U)
	kl, _ := q.divergence()
	return linear - 0.5*(square+q.By.Trace(&next.Sums)) - kl + f.LogPrior
}

// Spread returns the uncertainty of the covariances of the effects at the best state, in the order of
// the prior.
func (c *ArrowClimb) Spread() ([]site.FactorSpread, error) {
	n := c.Found.Next
	return c.profile().Spread(c.At.L, &n.Sums, n.HB, n.HG, c.Found.Rate)
}

// State implements Ascent.
func (c *ArrowClimb) State(s *save.Coder, _ int) {
	has, rated := c.At != nil, c.lastL != nil
	n := len(c.Try)
	s.Bool(&has, &rated, &c.bare, &c.fell, &c.probing)
	s.Float(&c.length, &c.probed)
	s.Int(&c.halves, &n)
	s.Check(n <= mostLooks && (has || n > 0) && (n > 1 || !c.probing), "%d states to try", n)
	if s.Err() != nil {
		return
	}
	if s.Reading() {
		c.At, c.Found, c.Try = nil, nil, make([]*ArrowState, n)
		if has {
			c.At, c.Found = &ArrowState{}, &ArrowFound{Next: &ArrowState{}}
		}
		for i := range c.Try {
			c.Try[i] = &ArrowState{}
		}
	}
	if rated {
		factors := c.Of.factors()
		if s.Reading() {
			c.lastL, c.moved = make([][]float64, len(factors)), make([][]float64, len(factors))
		}
		for k, f := range factors {
			s.Floats(f.Q*f.Q, &c.lastL[k], &c.moved[k])
		}
	}
	if has {
		f := c.Found
		s.Float(&f.ELBO, &f.Err, &f.LogPrior, &f.Promise, &f.Gain, &f.Rate)
		s.Bool(&f.Probed)
		c.code(s, c.At)
		c.code(s, f.Next)
	}
	tilted := c.tilts != nil
	if s.Bool(&tilted); s.Reading() {
		c.tilts = newTilted(c.Tilts, c.Of.Weights())
	}
	if s.Check(!tilted || c.tilts != nil, "unexpected derivatives"); tilted && s.Err() == nil {
		c.tilts.state(s, c.Of.Weights())
	}
	for i, q := range c.Try {
		if has && i == 0 && !c.fell {
			c.Try[0] = c.Found.Next
			continue
		}
		c.code(s, q)
	}
}

// code writes or reads a state and its factors.
func (c *ArrowClimb) code(s *save.Coder, q *ArrowState) {
	q.state(s, c.Of)
	if s.Reading() {
		s.Check(q.factor(nil, c.shared()), "a state has no positive definite precision")
	}
}

// Digest implements Ascent.
func (c *ArrowClimb) Digest(d *save.Digest) {
	d.Int(len(c.Try))
	for _, q := range c.Try {
		q.digest(d)
	}
}

// Tries implements Ascent.
func (c *Climb) Tries() int { return len(c.Try) }

// Open implements Ascent.
func (c *Climb) Open(p *Part) {
	for _, q := range c.Try {
		q.Halt = nil
		l := NewLook(q, p.Size)
		l.Tilt(c.Tilts)
		p.Looks = append(p.Looks, l)
	}
}

// Read implements Ascent.
func (c *Climb) Read(p *Part) error { return c.Step(p.Looks) }

// Best implements Ascent.
func (c *Climb) Best() (elbo, err float64, ok bool) {
	if c.Found == nil {
		return 0, 0, false
	}
	return c.Found.ELBO, c.Found.Err, true
}
