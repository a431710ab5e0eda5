package site

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file holds BaseAlgebra, the Algebra that all bases share: steps of all terms, steps with a given
// β, evaluations, saving and resuming. DenseAlgebra, WeightAlgebra, SoftmaxAlgebra and
// SoftmaxGP embed it. It delegates steps of all terms to the Problem Batch. The file ends with
// moveProof, the proof for any exact base, and with the sampler of block steps.

// BaseAlgebra is the Algebra of any Base. The approximation q is the prior times a site for every term,
//
//	V⁻¹ = C⁻¹ + diag(γ),   V⁻¹m = b.
//
// A Base suffices for steps of all terms, steps of the paper, evaluations and saved runs, and for
// a proof if it is exact. The optional interfaces of base.go add the rest.
type BaseAlgebra struct {
	Terms *term.Terms
	N     int
	on    Base

	Cur        term.Marginals
	LogDet     float64 // log|C|/|V|
	Fresh      bool    // M, V and the expectations of Cur belong to its sites
	Unresolved bool    // rounding hides some variances
	free       bool    // the last step was one with a given β
	lazy       bool    // a gap is proved only when the estimated gap is small enough
	shares     bool    // Cur has the vectors of the state of Batch while it is that state

	Proof    Proof
	Progress Progress
	Batch    Problem        // problem of all terms, about the prior
	base     term.Marginals // the prior, once Batch needs it
	spare    term.Marginals // zeros; base takes their memory
	Batched  bool           // Batch is at the current sites
	Started  bool           // Batch has a state, and blocks must be better than it
	to       siteTarget
	Workers  term.Crew
	Distance float64 // length of the last step
}

// siteTarget is the target of a step with a given β.
type siteTarget struct {
	gamma, b []float64 // γ₊ and b₊
	a, mean  []float64 // for the appendix, C⁻¹m₊ and m₊
	w        []float64
}

// takeMemory takes the memory of the states of all terms from another BaseAlgebra, which must not be used
// afterward. A new page of memory costs more than clearing a known one.
func (s *BaseAlgebra) takeMemory(old *BaseAlgebra) {
	s.Cur, s.spare = old.Cur, old.base
	for _, state := range []*term.Marginals{&s.Cur, &s.spare} {
		*state = state.Emptied()
		for _, x := range [][]float64{state.Gamma, state.A, state.M, state.V, state.E, state.Tg,
			state.D1} {
			clear(x)
		}
	}
	from, to := &old.Batch, &s.Batch
	to.Cur.Marginals, to.Cur.C = from.Cur.Emptied(), from.Cur.C
	to.Try.Marginals, to.Try.C = from.Try.Emptied(), from.Try.C
	to.delta, to.U, to.D, to.tg, to.tc = from.delta, from.U, from.D, from.tg, from.tc
	in := &from.In
	to.In = innerMean{r: in.r, h: in.h, p: in.p, q: in.q, ap: in.ap, step: in.step, whole: in.whole}
}

// lay is begin without the marginals of the prior, which are computed when they are needed.
func (s *BaseAlgebra) lay(t *term.Terms, on Base, workers term.Crew) {
	s.Terms, s.N, s.on = t, t.Elements(), on
	s.Cur.Resize(s.N)
	s.Use(workers)
}

// begin sets s to the prior of t. Softmax models start without expectations.
func (s *BaseAlgebra) begin(t *term.Terms, on Base, workers term.Crew) error {
	s.lay(t, on, workers)
	s.Cur = on.Prior()
	s.free = true
	if t.K > 1 { // expectations are costly, and the first step needs none
		return nil
	}
	s.Fresh = true
	if err := t.Expect(&s.Cur, nil, workers); err != nil {
		return fmt.Errorf("pgsvi: under the prior, %w", err)
	}
	return nil
}

// Use implements Algebra.
func (s *BaseAlgebra) Use(c term.Crew) {
	s.Workers, s.Batch.Workers = c, c
	if k, ok := s.on.(keeper); ok {
		k.use(c)
	}
}

// Plan implements Algebra.
func (s *BaseAlgebra) Plan() sitePlan {
	if b, ok := s.on.(blocker); ok {
		return b.plan()
	}
	return sitePlan{}
}

// ClosedForm implements Algebra.
func (s *BaseAlgebra) ClosedForm() bool { return true }

// Wider implements Algebra.
func (s *BaseAlgebra) Wider() bool { return false }

// Moved implements Algebra.
func (s *BaseAlgebra) Moved() float64 { return s.Distance }

// Slow implements Algebra.
func (s *BaseAlgebra) Slow() bool { return s.Fresh && s.Progress.due(&s.Cur) }

// stale marks the results of the base as outdated, because the sites have changed.
func (s *BaseAlgebra) stale() {
	if k, ok := s.on.(keeper); ok {
		k.stale()
	}
}

// Refresh computes the marginals and expectations of the sites.
func (s *BaseAlgebra) Refresh() error {
	if s.Fresh {
		return nil
	}
	if r, ok := s.on.(factored); ok {
		logDet, resolved, err := r.renew(&s.Cur)
		if err != nil {
			return err
		}
		s.LogDet, s.Unresolved = logDet, !resolved
		if err := s.Terms.Expect(&s.Cur, nil, s.Workers); err != nil {
			return err
		}
		s.Fresh = true
		return nil
	}
	if err := s.here(); err != nil {
		return err
	}
	s.Batched = true
	s.follow(&s.Batch.Cur)
	return nil
}

// prepare begins the problem of all terms, about the prior.
func (s *BaseAlgebra) prepare() {
	s.prepareTry()
	s.Batch.Cur.resize(s.N)
}

// prepareTry is prepare for a problem whose first state comes from s.Batch.Try.
func (s *BaseAlgebra) prepareTry() {
	if s.base.M == nil {
		s.base = s.on.Prior()
	}
	if k, ok := s.on.(keeper); ok {
		k.restart()
	}
	s.Batch.prepareTry(s.Terms, nil, s.on, &s.base)
}

// here makes the current sites the state of Batch if they are no worse than its present state.
// Otherwise Batch takes a step from its present state. If it has no state and the sites have no
// value, it starts at the prior.
func (s *BaseAlgebra) here() error {
	p, ok := &s.Batch, false
	_, renews := s.on.(factored)
	if !s.Started {
		if s.prepare(); s.Workers.Halt.Stopped() {
			s.base.M = nil
			return s.Workers.Halt.Err()
		}
	}
	if s.Started || !s.bare() {
		p.makeRoom()
		for i, g := range s.Cur.Gamma {
			p.Try.Gamma[i], p.Try.C[i] = g, s.Cur.A[i]+g*s.Cur.M[i]
		}
		ok = p.Eval() && (renews || !math.IsInf(p.Try.Value, 0))
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
	}
	switch {
	case s.Started && ok && p.Accept():
	case s.Started:
		if !p.Iterate() { // the blocks did not help
			if err := s.Workers.Halt.Err(); err != nil {
				return err
			}
		}
	case ok:
		p.Cur, p.Try = p.Try, p.Cur
		p.Mover.Accept()
	default:
		if s.Terms.K > 1 && s.bare() {
			s.Cur.Tol = coarsePrior
			if err := s.Terms.Expect(&s.Cur, nil, s.Workers); err != nil {
				return fmt.Errorf("pgsvi: under the prior, %w", err)
			}
			p.startFrom(&s.Cur)
		} else if err := p.Start(); err != nil {
			return err
		}
		if k, ok := s.on.(keeper); ok {
			k.start()
		}
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return err // the next call starts again
	}
	s.Started = !renews
	return nil
}

// bare reports whether all sites are zero.
func (s *BaseAlgebra) bare() bool { return s.Cur.Bare() }

// elbo returns the ELBO of the current state, which must be fresh.
func (s *BaseAlgebra) elbo() float64 {
	if s.Started && s.Batched {
		return -s.Batch.Cur.Value
	}
	return s.Elbo(&s.Cur, s.LogDet)
}

// Ascend implements Algebra.
func (s *BaseAlgebra) Ascend() (passes int, err error) {
	s.free, s.Proof = false, Proof{}
	if s.depart() {
		return 1, nil
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return 0, err
	}
	if err := s.Refresh(); err != nil {
		return 0, err
	}
	p := &s.Batch
	if !s.Batched {
		if err := s.here(); err != nil {
			return 0, err
		}
		s.Batched = true
	}
	if err := s.coarsen(); err != nil {
		return 0, err
	}
	before := s.Elbo(&s.Cur, s.LogDet)
	passes, ok := p.Stride(&s.Progress)
	if !ok {
		if err := s.Workers.Halt.Err(); err != nil {
			return 0, err
		}
		if p.tol > 0 { // the tolerance may hide a gain
			if err := p.expectAgain(0); err != nil {
				return 0, err
			}
			more, _ := p.Stride(&s.Progress)
			passes += more
			if err := s.Workers.Halt.Err(); err != nil {
				return 0, err
			}
		}
	}
	s.Progress.Add(p.Decrement(), s.N, s.N)
	if !s.Started && s.Elbo(&p.Cur.Marginals, p.Cur.LogDet) < before-ElboRounding*math.Abs(before) {
		// The result is less accurate than the state from blocks, so that state stays.
		s.Batched, s.Distance = false, 0
		return passes, nil
	}
	s.follow(&p.Cur)
	return passes, nil
}

// depart leaves the prior of a softmax model without computing its expectations. It moves to a
// state that is better than a bound on the ELBO of the prior. It reports whether it did.
func (s *BaseAlgebra) depart() bool {
	p := &s.Batch
	if s.Terms.K <= 1 || s.Fresh || s.Started || !s.bare() || !s.Terms.Concave() {
		return false
	}
	if s.prepare(); s.Workers.Halt.Stopped() {
		s.base.M = nil
		return false
	}
	p.Cur.CopyFrom(&s.base)
	copy(p.Cur.C, p.Base.A)
	p.Cur.LogDet, p.Cur.Value = 0, math.Inf(1)
	p.tol = coarseTols[0]
	if !p.departMany() {
		return false
	}
	if k, ok := s.on.(keeper); ok {
		k.start()
	}
	s.Started, s.Batched = true, true
	s.Progress.Add(p.Decrement(), s.N, s.N)
	s.follow(&p.Cur)
	return true
}

// follow makes p, which has expectations, the current state.
func (s *BaseAlgebra) follow(p *problemState) {
	s.Distance = math.NaN()
	if k, ok := s.on.(keeper); ok {
		s.Distance = k.follow()
	}
	if math.IsNaN(s.Distance) {
		s.Distance = Distance(&p.Marginals, &s.Cur)
	}
	if s.shares { // the next state that Batch accepts has other vectors
		s.Cur = p.Marginals
	} else {
		s.Cur.CopyFrom(&p.Marginals)
	}
	s.LogDet, s.Fresh, s.Unresolved = p.LogDet, true, false
	s.stale()
}

// MeanStep moves the mean of the problem of all terms to m⁺ = m − Vc, V held, or to the result of
// the best mean of the inner steps, if its value does not rise. It reports whether it did.
func (s *BaseAlgebra) MeanStep() bool {
	p := &s.Batch
	x := &p.Cur.Marginals
	if p.Outer > 0 && !x.Wild {
		p.Inner(innerLeast, innerPart)
		x = p.In.At
	}
	if s.Workers.Halt.Stopped() || !p.again(x) {
		return false
	}
	s.follow(&p.Cur)
	return true
}

// StartAt sets the sites to the given γ, and to a about the means m.
func (s *BaseAlgebra) StartAt(gamma, a, m []float64) {
	copy(s.Cur.Gamma, gamma)
	copy(s.Cur.A, a)
	copy(s.Cur.M, m)
	s.Fresh, s.Batched, s.Started, s.free, s.Proof = false, false, false, false, Proof{}
}

// Promise returns the predicted gain of the current state, in nats. The state must be evaluated.
// It returns +Inf if the base has no estimate. The error comes from a halted crew.
func (s *BaseAlgebra) Promise() (float64, error) {
	p, ok := s.on.(prover)
	if !ok {
		return math.Inf(1), nil
	}
	if err := s.refine(); err != nil {
		return 0, err
	}
	return p.decrement(), nil
}

// The steps of Approach end if slowSteps steps gain less than slowPart times the predicted gain of the
// next step.
const (
	slowSteps = 6
	slowPart  = 0.2
)

// Approach takes up to the given number of steps, until the next one predicts a gain of at most slack
// nats, and returns the predicted gain.
func (s *BaseAlgebra) Approach(slack float64, steps int) (promise float64, err error) {
	var past [slowSteps]float64
	for i := range steps {
		if err = s.Refresh(); err != nil {
			return promise, err
		}
		if promise, err = s.Promise(); err != nil {
			return promise, err
		}
		before, now := &past[i%slowSteps], s.Batch.Cur.Value
		if promise <= slack || i >= slowSteps && *before-now < slowPart*promise {
			break
		}
		*before = now
		if _, err = s.Ascend(); err != nil {
			return promise, err
		}
		if s.Distance == 0 {
			break
		}
	}
	return promise, nil
}

// Block implements Algebra.
func (s *BaseAlgebra) Block(batch []int) error {
	b, ok := s.on.(blocker)
	if !ok {
		return fmt.Errorf(
			"a batch of %d of %d terms without a step size: this model takes steps of all; "+
				"leave Solver.BatchSize at 0, or give Solver.StepSize: %w", len(batch), s.N,
			sentinel.ErrParam)
	}
	s.free, s.Batched, s.Proof = false, false, Proof{}
	before := s.Progress
	err := b.block(batch)
	if err != nil {
		s.Progress = before
	}
	return err
}

// Evaluate implements Algebra. The gap is the predicted gain of the problem linearized at the
// current state.
func (s *BaseAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	if err := s.Refresh(); err != nil {
		return siteEvaluation{}, err
	}
	e := siteEvaluation{ELBO: s.elbo(), ELBOErr: goals.NeverZero(s.Cur.Err), Gap: math.Inf(1)}
	p, proves := s.on.(prover)
	if !proves {
		p = (*moveProof)(s)
	}
	ready, err := p.ready()
	if err != nil {
		return siteEvaluation{}, err
	}
	if !ready {
		e.Gap = 0
	} else if !s.Unresolved && !s.Cur.Wild && !math.IsInf(e.ELBO, 0) {
		if s.Batched && s.Batch.Cur.Tol > 0 {
			if err := s.refine(); err != nil {
				return siteEvaluation{}, err
			}
		}
		if !s.Proof.made {
			proof, err := p.prove(within)
			if err != nil {
				return siteEvaluation{}, err
			}
			s.Proof = proof
		}
		e.GapBound = s.Proof.bound
		e.ELBO, e.ELBOErr = s.elbo(), goals.NeverZero(s.Cur.Err+s.Proof.rounding)
		e.Gap = goals.NeverZero(p.decrement())
		if err := s.Workers.Halt.Err(); err != nil { // the crew may have halted in a call
			return siteEvaluation{}, err
		}
	}
	return e, nil
}

// moveProof proves the gap of any exact Base by its moves. With C the covariance of the prior,
// the mean can gain ½cᵀCc. The gain of the precisions follows from the changes of the sites to
// their targets (term.SiteChange), or from the log-determinant at the targets.
type moveProof BaseAlgebra

// ready implements prover.
func (s *moveProof) ready() (bool, error) { return true, nil }

// room returns the vectors of a proof. They are vectors of the inner steps if Batch takes these,
// because no inner step is taken during a proof.
func (s *moveProof) room() *siteTarget {
	t, in := &s.to, &s.Batch.In
	if s.Batch.Outer > 0 {
		in.room(s.N)
		t.gamma, t.b, t.a, t.w = in.r, in.h, in.p, in.q
	}
	dense.ResizeAll(s.N, &t.gamma, &t.b, &t.a, &t.w)
	return t
}

// held stores Vu in d, for the V of the current state. It returns false if it cannot.
func (s *moveProof) held(d, u []float64) bool {
	t := &s.to
	if h, ok := s.on.(holder); ok && s.Batched {
		copy(t.w, u)
		h.hold(d, s.Cur.Gamma, t.w)
		return true
	}
	if _, ok := s.on.Cover(t.w, s.Cur.Gamma); !ok {
		return false
	}
	copy(t.w, u)
	s.on.Move(d, s.Cur.Gamma, t.w)
	return true
}

// decrement returns ½cᵀVc + ¼‖Δ‖²_F. The sites give a bound on the second part.
func (s *moveProof) decrement() (nats float64) {
	c, t := &s.Cur, s.room()
	floats.SubTo(t.b, c.A, c.D1)
	if !s.held(t.a, t.b) {
		return math.Inf(1)
	}
	change := c.Change()
	return 0.5*floats.Dot(t.b, t.a) + 0.25*change.Square()
}

// meanStep takes the step of the mean. It does so once, even if a halted proof starts again.
func (s *moveProof) meanStep() {
	if _, ok := s.on.(holder); !ok || s.free || !s.Batched || s.Proof.stepped {
		return
	}
	if d := s.Distance; (*BaseAlgebra)(s).MeanStep() {
		s.Distance, s.Proof.stepped = d, true
	}
}

// prove implements prover.
func (s *moveProof) prove(within float64) (Proof, error) {
	p := Proof{made: true, bound: math.Inf(1)}
	if s.meanStep(); s.Workers.Halt.Stopped() {
		return p, s.Workers.Halt.Err()
	}
	c := &s.Cur
	if _, exact := s.on.(exact); !exact || !s.Terms.Concave() || !c.Certain {
		return p, nil
	}
	if s.lazy && !(s.decrement() <= goals.Of(within, s.N, (*BaseAlgebra)(s).elbo())) {
		return p, s.Workers.Halt.Err()
	}
	n, t := s.N, s.room()
	floats.SubTo(t.b, c.A, c.D1)
	clear(t.gamma)
	if _, ok := s.on.Cover(t.w, t.gamma); !ok {
		return p, s.Workers.Halt.Err()
	}
	mean := 0.5 * s.on.Move(t.a, t.gamma, t.b)
	goal := goals.Of(within, n, (*BaseAlgebra)(s).elbo())
	if rows := s.byRows(mean, goal); !math.IsInf(rows, 1) {
		// The gain of the mean by the move of V is at most the gain of V itself, so V counts twice.
		change := c.Change()
		mean = min(mean, rows+change.Gap())
	}
	p.bound = s.bound(mean, goal, func() float64 {
		logDet, ok := s.on.Cover(t.w, c.Tg)
		if !ok {
			return math.Inf(1)
		}
		change := c.Change()
		rounding := dense.Epsilon * (math.Abs(logDet) + math.Abs(s.LogDet) + change.Nuclear)
		return max(0, change.Trace+s.LogDet-logDet) + rounding
	})
	return p, s.Workers.Halt.Err()
}

// byRows returns a bound by rows on what the mean can gain with V held, if the bound of the given nats
// misses the goal and its rounding may be why. Otherwise it returns +Inf. The variances of the prior are
// in s.to.w.
func (s *moveProof) byRows(mean, goal float64) float64 {
	base, ok := s.on.(solver)
	if !ok || mean <= goal || !s.Batched {
		return math.Inf(1)
	}
	c, t := &s.Cur, &s.to
	left := base.unsolved(t.b, c.A, c.Gamma, c.M)
	if math.IsInf(left, 1) || math.IsNaN(left) {
		return math.Inf(1)
	}
	return left + s.Terms.RowGap(c, (*BaseAlgebra)(s).elbo(), t.w, t.b, goal, s.Workers.Halt)
}

// bound returns the gap bound if the mean can gain the given number of nats. The precisions
// contribute the bound by their sites, or the result of exact if only that can reach the goal.
func (s *moveProof) bound(mean, goal float64, exact func() float64) float64 {
	change := s.Cur.Change()
	precision := change.Gap()
	if mean+precision > goal && mean <= goal && precision <= loosePrecisions*goal {
		precision = min(precision, exact())
	}
	return goals.Bound(mean + precision)
}

// Elbo returns the ELBO of c: with a = C⁻¹m,
//
//	Σe − KL,   KL = ½(aᵀm − Σγv + log|C|/|V|).
func (s *BaseAlgebra) Elbo(c *term.Marginals, logDet float64) float64 {
	kl := logDet
	for i, m := range c.M {
		kl += c.A[i]*m - c.Gamma[i]*c.V[i]
	}
	return floats.Sum(c.E) - 0.5*kl
}

// Distance returns the Euclidean distance between two states in the sites (γ, b).
func Distance(p, q *term.Marginals) float64 {
	var s float64
	for i := range p.M {
		g := p.Gamma[i] - q.Gamma[i]
		b := p.A[i] + p.Gamma[i]*p.M[i] - q.A[i] - q.Gamma[i]*q.M[i]
		s += g*g + b*b
	}
	return math.Sqrt(s)
}

// Marginals implements Algebra. The means of all terms are always current.
func (s *BaseAlgebra) Marginals(x *term.Estimates, batch []int) error {
	s.Batched = s.Batched && s.Started
	m := len(batch) * s.Terms.Latents()
	if batch == nil {
		m = s.N
	}
	x.Resize(m)
	part := false
	if !s.Fresh {
		if p, ok := s.on.(factored); ok {
			part = p.variances(x.V, batch)
		}
		if !part {
			if err := s.Refresh(); err != nil {
				return err
			}
		}
	}
	for a := range m {
		i := s.Terms.Element(batch, a)
		if x.M[a] = s.Cur.M[i]; !part {
			x.V[a] = s.Cur.V[i]
		}
	}
	return nil
}

// aim implements Algebra. Γ₊ = rΓ + (1−r)Γ̂ and, in the main text, b₊ = rb + (1−r)(γ̂m − α̂).
func (s *BaseAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	t, n := &s.to, s.N
	dense.ResizeAll(n, &t.gamma, &t.b, &t.w, &t.mean)
	for i, g := range s.Cur.Gamma {
		t.gamma[i], t.b[i] = m.R*g, m.R*(s.Cur.A[i]+g*s.Cur.M[i])
	}
	if m.Appendix {
		a, ok := s.on.(factored)
		if !ok {
			return fmt.Errorf("the update of the mean of the appendix with this model: %w",
				sentinel.ErrNoProx)
		}
		t.a = dense.Resize(t.a, n)
		if err := a.appendix(x, batch, m); err != nil {
			return err
		}
	}
	for i := range x.M {
		j := s.Terms.Element(batch, i)
		t.gamma[j] -= m.Scale * x.D2[i]
		if !m.Appendix {
			t.b[j] += m.Scale * (x.D1[i] - x.D2[i]*x.M[i])
		}
	}
	if m.Appendix {
		for i, a := range t.a {
			t.b[i] = a + t.gamma[i]*t.mean[i]
		}
	}
	return nil
}

// try implements Algebra. Without a factored base, the move itself tests the target, and noise
// may let no variance exceed ten times its prior variance.
func (s *BaseAlgebra) try(noisy bool) (valid, edge bool) {
	t := &s.to
	if k, ok := s.on.(factored); ok {
		return k.try(t.gamma, noisy)
	}
	s.prepare()
	p := &s.Batch
	copy(p.Try.Gamma, t.gamma)
	copy(p.Try.C, t.b)
	if !p.cover() {
		return false, false
	}
	for i, v := range p.Try.V {
		edge = edge || noisy && v*noisyPivot > s.base.V[i] && v > s.Cur.V[i]
	}
	return true, edge
}

// halve implements Algebra.
func (s *BaseAlgebra) halve() {
	t := &s.to
	for i, g := range s.Cur.Gamma {
		t.gamma[i] = 0.5 * (t.gamma[i] + g)
		t.b[i] = 0.5 * (t.b[i] + s.Cur.A[i] + g*s.Cur.M[i])
	}
}

// take implements Algebra.
func (s *BaseAlgebra) take() error {
	t, n := &s.to, s.N
	k, ok := s.on.(factored)
	t.mean = dense.Resize(t.mean, n)
	p := &s.Batch
	copy(t.w, t.b)
	if ok {
		k.solve(t.w, t.mean)
	} else {
		ok := p.place()
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("mean: %w", sentinel.ErrNotFinite)
		}
		copy(t.w, p.Try.A)
		copy(t.mean, p.Try.M)
	}
	if i, ok := dense.AllFinite(t.mean); !ok {
		return fmt.Errorf("mean of term %d would be %v: %w", i, t.mean[i], sentinel.ErrNotFinite)
	}
	s.Distance = Distance(&term.Marginals{Gamma: t.gamma, A: t.w, M: t.mean}, &s.Cur)
	copy(s.Cur.Gamma, t.gamma)
	copy(s.Cur.A, t.w)
	copy(s.Cur.M, t.mean)
	s.stale()
	if ok {
		s.LogDet = k.taken()
	}
	s.Fresh, s.free, s.Batched, s.Started, s.Proof = false, true, false, false, Proof{}
	return nil
}

// State implements Algebra.
func (s *BaseAlgebra) State(c *save.Coder) {
	s.Cur.Keep(c, s.N)
	c.Float(&s.LogDet)
	c.Bool(&s.Fresh, &s.Unresolved, &s.free, &s.Batched, &s.Started)
	s.Proof.state(c)
	s.Progress.state(c)
	v, ok := s.on.(keeper)
	if ok {
		v.save(c)
	} else if c.Reading() {
		s.stale()
	}
	if !s.Batched && !s.Started {
		return
	}
	p := &s.Batch
	if c.Reading() {
		s.prepare()
	}
	p.state(c, true)
	if !c.Reading() || c.Err() != nil {
		return
	}
	if ok {
		v.resume(p.Cur.Gamma)
		return
	}
	p.Try.CopyFrom(&p.Cur.Marginals)
	copy(p.Try.C, p.Cur.C)
	if c.Check(p.cover() && p.place(), "its sites are not those of a Gaussian"); c.Err() == nil {
		p.Mover.Accept()
	}
}

// Constant implements Algebra.
func (s *BaseAlgebra) Constant() bool {
	k, ok := s.on.(keeper)
	return s.Fresh && (!ok || k.settled()) && (s.free || s.Proof.made)
}

// promising samples blocks of the terms whose sites have the largest predicted gain at the
// present state. With the distance δ of a site from its target that is δ_a²v + ½δ_γ²v². Every
// PromiseSweep-th pass visits each term once, so a term with a misleading prediction is not
// forgotten. The predictions depend on the state, and the pass on its progress, so a resumed run
// continues exactly.
type promising struct{ s *BaseAlgebra }

const (
	PromiseSweep = 6
	// nats; far from the optimum predictions mean little, so larger ones count as equal
	PromiseCap = 10
)

// Batches implements Sampler.
func (g promising) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		sweep := rng.Perm(n)
		order, promise := make([]int, 0, min(size, n)), make([]float64, n)
		for { // the caller stops the sequence
			s := g.s
			lo, c := s.Progress.seen, &s.Cur
			hi := min(lo+size, n)
			if !s.Fresh || s.Progress.Passes%PromiseSweep == PromiseSweep-1 {
				if !yield(sweep[lo:hi]) {
					return
				}
				continue
			}
			for i, v := range c.V {
				da, dg := c.D1[i]-c.A[i], c.Tg[i]-c.Gamma[i]
				if promise[i] = da*da*v + 0.5*dg*dg*v*v; !(promise[i] < PromiseCap) {
					promise[i] = PromiseCap
				}
			}
			if order = FirstOf(order[:0], sweep, promise, hi-lo); !yield(order) {
				return
			}
		}
	}
}

// FirstOf appends the m terms with the largest predicted gains to dst, which is empty, the
// largest first. Ties keep the order of terms.
func FirstOf(dst, terms []int, promise []float64, m int) []int {
	for _, i := range terms {
		if len(dst) == m {
			if promise[i] <= promise[dst[m-1]] {
				continue
			}
			dst = dst[:m-1]
		}
		k, _ := slices.BinarySearchFunc(dst, promise[i], func(j int, p float64) int {
			if promise[j] >= p {
				return -1
			}
			return 1
		})
		dst = slices.Insert(dst, k, i)
	}
	return dst
}
