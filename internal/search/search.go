// Package search minimises a function whose values and derivatives have an error that the caller
// can choose, such as an evidence lower bound. It is the search for hyper-parameters.
package search

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// The search over hyper-parameters, from trials on ten data sets and on 350 simulated ones.
const (
	searchPairs = 8 // steps that the curvature remembers
	// Part is the part of the average information that is the curvature, to begin with: q takes up
	// the rest. Under Gaussian noise it is all of it.
	Part          = 0.3
	leastPart     = 3e-3 // and the least of it
	searchRidge   = 0.01 // of the diagonal, added to it
	leastCurve    = 1e-6 // and absolutely
	LongestStep   = 1.5  // in any θ: a factor of 4.5
	CompositeStep = 1    // the same where kernels have parts, which can change places
	armijo        = 1e-4
	// reachAgain is by how much longer a step may be than one that was cut short or did well, and
	// shorter than one that did not.
	reachAgain = 2
	goodGain   = 0.75 // of what it promised: well,
	littleGain = 0.25 // and not
	// falseGain is the part of what the slopes at both ends of a step say, below which these are
	// not known well enough: q, whose error they show by its root, must be by sharper better, and
	// by sharpest at most.
	falseGain  = 0.25
	sharper    = 0.01
	sharpest   = 1e-6
	firstSlack = 3e-3 // nats below its maximum that q may be at first,
	slackPart  = 0.03 // and then of what the step promises
	closeGain  = 0.1  // predicted gain of a step, in nats, below which Close applies
	ExactPart  = 1e-2 // of the goal, below which it need not be
	StopPart   = 0.1  // of the goal, above which the search does not end
	// the same where passes over all rows are dear; with 0.4 the slopes once ended a search 3 nats
	// short that may leave 0.9
	StagedPart = 0.06
	// noisyTurn is the part of sᵀy, in nats, that both ends of a step may be off by before that
	// hides it.
	noisyTurn = 0.1
	// leastTurn is the part of sᵀBs to which a smaller sᵀy is raised (Powell 1978): B falls by at
	// most ten times a step, where the curvature is negative too, and steps grow.
	leastTurn = 0.1
	// mostTurn bounds by how many times B grows across a step. Where the curvature along a step is
	// near zero, a change of the slope across it would else make B stiffer by orders of magnitude.
	mostTurn = 10
	// of the average information, in the metric that must promise little too at the end
	checkPart  = 0.1
	mostChecks = 2 // steps of that metric at one point
	// bareGoal is how many times the goal the metric without steps may promise: it is too flat at
	// many a right end, too. At the wrong ends that were seen it promised whole nats.
	bareGoal = 10
	// probeRise is in nats over the longest step: a direction of less is flat. Priors leave none.
	probeRise      = 0.1
	mostProbes     = 8               // steps along flat directions, each of less gain than the goal
	probeNear      = 0.1             // of the longest step: the second try is not nearer,
	probeFar       = 0.5             // and not farther
	searchTries    = 8               // lengths of a step
	searchPatience = 3 * searchTries // points that are no better, as where q has several optima
)

// Point is what is known at a θ.
type Point struct {
	Theta []float64
	F     float64       // −ELBO − log prior, or +Inf
	Prior float64       // −log prior of it
	Grad  []float64     // of f
	Info  *mat.SymDense // the average information of −ELBO
	Slack float64       // nats that f may be too high: +Inf if that is not known
}

// Search minimises f by a quasi-Newton method. Its metric is a part of the average information
// (Gilmour, Thompson and Cullis 1995) and, for what that lacks, the last steps (BFGS). It says
// where f is wanted next, and is told. f is known to a tolerance that it sets: at most a small
// part of what a step promises.
//
// Where the metric promises less than the goal, the search takes a step of one that is flatter
// where no step has been, and one of the information alone, if these promise more. Then it goes a
// long way downhill along directions that are flat by the information: without a prior there may
// be a plateau or a saddle, which slopes do not show. It ends where none of these gains anything.
type Search struct {
	Prec    *mat.SymDense // of the priors
	Lo, Hi  []float64
	Goal    float64
	Exact   float64 // part of the goal, below which q need not be known
	Longest float64
	// Rough is the part of what a step promises, and of a nat at first, that f may be off by; 0
	// for the default.
	Rough float64
	// Close is the largest error of f, in nats, when a step has a predicted gain below closeGain.
	// A caller that measures the curvature near the end sets it; 0 means the default.
	Close float64
	Brief bool    // no look at a flatter metric at the end; doubts of a search before stay
	reach float64 // the longest step for now
	gain  float64 // that the step promises
	Part  float64 // of the average information
	Part0 float64

	Cur     Point
	begun   bool
	Next    []float64
	Slack   float64 // that is asked for
	line    bool    // next is along dir, at length t
	dir     []float64
	t       float64
	slope   float64
	promise float64 // ½gᵀB⁻¹g at cur
	steps   [][]float64
	turns   [][]float64 // by how much the gradient changed
	tries   int
	low     float64 // the least f so far, to a part of the goal
	waited  int     // points since
	fresh   bool    // steps are forgotten and the step was tried without
	Done    bool
	stalled bool // it gave up: the promise is not below the goal, or f not known well enough
	doubted bool // the flatter metric still promises more than the goal

	checks   int  // steps of the flatter metric since one that gained
	checking bool // next is one

	// measured is the curvature at a θ near cur, with the steps since then; nil if only they and
	// the average information are known.
	measured *mat.SymDense
	proposed bool // Propose has set dir, and measured is the curvature at its end

	sharp   float64 // the part of Exact that is asked for
	probes  int     // steps along flat directions since one that gained
	probing bool    // next is one
}

// Begin starts from θ.
func (s *Search) Begin(theta []float64) {
	s.Cur, s.begun, s.line, s.fresh = Point{F: math.Inf(1)}, false, false, false
	s.Done, s.stalled, s.doubted, s.checks, s.checking = false, false, false, 0, false
	s.probes, s.probing, s.proposed = 0, false, false
	s.sharp = 1
	s.Next, s.Slack, s.Part = slices.Clone(theta), max(firstSlack, s.least(), s.Rough), s.Part0
	s.promise, s.reach = math.Inf(1), s.Longest
	s.steps, s.turns, s.low, s.waited = nil, nil, math.Inf(1), 0
	s.measured = nil
}

// Again begins at θ with what is known of the curvature, of so many times as many rows.
func (s *Search) Again(theta []float64, times float64) {
	steps, turns, part, doubted := s.steps, s.turns, s.Part, s.doubted && s.Brief
	s.Begin(theta)
	s.steps, s.Part, s.doubted = steps, part, doubted
	var prior mat.VecDense
	for i, y := range turns {
		prior.MulVec(s.Prec, mat.NewVecDense(len(y), steps[i]))
		turn := make([]float64, len(y))
		for j, v := range y {
			turn[j] = times*v + (1-times)*prior.AtVec(j)
		}
		s.turns = append(s.turns, turn)
	}
}

// least is how exactly f need be known at most.
func (s *Search) least() float64 { return s.sharp * s.Exact * s.Goal }

// Tell goes on from x, which is what was asked for.
func (s *Search) Tell(x Point) {
	if s.waited++; x.F < s.low-StopPart*s.Goal {
		s.low, s.waited = x.F, 0
	}
	switch {
	case s.checking:
		s.checked(x)
	case s.probing:
		s.probed(x)
	case !s.line:
		if math.IsInf(x.F, 1) {
			s.giveUp()
			return
		}
		s.begun, s.Cur = true, x
		s.aim()
	case s.waited > searchPatience:
		s.giveUp()
	case x.F <= s.Most():
		if !s.proposed { // or the metric is the one at x
			s.learn(&x)
		}
		switch gain := s.Cur.F - x.F; {
		case s.tries > 0:
			s.reach = min(s.Longest, reachAgain*s.t*MaxAbs(s.dir))
		case gain > goodGain*s.gain:
			s.reach = min(reachAgain*s.reach, s.Longest)
		case gain < littleGain*s.gain && math.Abs(gain) > s.Cur.Slack+x.Slack:
			s.reach = min(s.reach, MaxAbs(s.dir)) / reachAgain
			if gain < -falseGain*0.5*(s.along(&x, s.Cur.Grad)+s.along(&x, x.Grad)) {
				s.sharp = max(sharpest, sharper*s.sharp)
			}
		}
		s.Cur, s.fresh, s.checks, s.probes = x, false, 0, 0
		s.aim()
	default:
		s.shorten(x.F)
	}
}

// along returns the slope of f along the step from cur to x, by the given gradient.
func (s *Search) along(x *Point, grad []float64) (slope float64) {
	for i, t := range x.Theta {
		slope += (t - s.Cur.Theta[i]) * grad[i]
	}
	return slope
}

// checked goes on from the step x of the flatter metric.
func (s *Search) checked(x Point) {
	s.checking = false
	if !math.IsInf(x.F, 1) {
		s.learn(&x)
	}
	if gain := s.Cur.F - x.F; gain > 0 {
		if gain > StopPart*s.Goal {
			s.checks, s.reach = 0, s.Longest
		}
		s.Cur, s.fresh = x, false
	}
	s.aim()
}

// giveUp ends the search before its goal.
func (s *Search) giveUp() { s.Done, s.stalled = true, true }

// Most is the largest f at next that is not too high to go there.
func (s *Search) Most() float64 {
	if !s.line || s.checking || s.probing {
		return math.Inf(1)
	}
	return s.Cur.F + armijo*s.t*s.slope + s.Slack
}

// learn keeps the step to x, unless what f may be off by hides how the slope changes along it.
func (s *Search) learn(x *Point) {
	n := len(x.Theta)
	step, turn := make([]float64, n), make([]float64, n)
	floats.SubTo(step, x.Theta, s.Cur.Theta)
	floats.SubTo(turn, x.Grad, s.Cur.Grad)
	sy := floats.Dot(step, turn)
	if !(s.Cur.Slack+x.Slack <= noisyTurn*math.Abs(sy)) {
		return
	}
	v := mat.NewVecDense(n, step)
	s.damp(v, mat.NewVecDense(n, turn))
	if !(floats.Dot(step, turn) > 0) {
		return // no step at all
	}
	if len(s.steps) == searchPairs {
		s.steps, s.turns = s.steps[1:], s.turns[1:]
	}
	s.steps, s.turns = append(s.steps, step), append(s.turns, turn)
	if info := mat.Inner(v, x.Info, v); info > 0 {
		part := (sy - mat.Inner(v, s.Prec, v)) / info
		// one step may not be like the next
		s.Part = math.Sqrt(s.Part * min(max(part, leastPart), 1))
	}
}

// damp changes y, the turn of the step s, so that it changes the metric B by bounded factors. Let
// y = αBs + p with sᵀp = 0. An α below leastTurn is raised to that, and p dropped, of which such a
// step says nothing. Else p is shortened until B grows across the step by at most mostTurn times:
// it grows by pᵀB⁻¹p/(α sᵀBs).
func (s *Search) damp(step, turn *mat.VecDense) {
	b := s.Curvature(s.Part)
	var bs, p, bp mat.VecDense
	bs.MulVec(b, step)
	sbs := mat.Dot(step, &bs)
	alpha := mat.Dot(step, turn) / sbs
	if !(alpha >= leastTurn) {
		turn.ScaleVec(leastTurn, &bs)
		return
	}
	var chol mat.Cholesky
	p.AddScaledVec(turn, -alpha, &bs)
	if !chol.Factorize(b) || chol.SolveVecTo(&bp, &p) != nil {
		return
	}
	if growth := mat.Dot(&p, &bp) / (alpha * sbs); growth > mostTurn {
		p.ScaleVec(math.Sqrt(mostTurn/growth), &p)
		turn.AddScaledVec(&p, alpha, &bs)
	}
}

// Near reports whether, by the metric, cur is at most promise nats above the minimum, and whether
// the error of f at cur is at most slack nats.
func (s *Search) Near(promise, slack float64) bool {
	return s.begun && !s.stalled && s.promise <= promise && s.Cur.Slack <= slack
}

// Measure replaces the metric by b, the curvature at cur, and returns the predicted gain. A search
// that has not ended continues with it.
func (s *Search) Measure(b *mat.SymDense, ended bool) (promise float64) {
	s.measured, s.steps, s.turns = b, nil, nil
	if !ended {
		s.Done, s.doubted, s.checking, s.probing = false, false, false, false
		s.aim()
	}
	return s.promise
}

// Propose makes θ the next point if f falls from cur toward it, and b the metric from there on. The
// predicted gain is in nats. If no step toward θ gains enough, the search continues without b.
func (s *Search) Propose(theta []float64, gain float64, b *mat.SymDense) {
	dir := floats.SubTo(make([]float64, len(theta)), theta, s.Cur.Theta)
	slope := floats.Dot(dir, s.Cur.Grad)
	if !s.line || !(slope < 0) {
		return
	}
	s.dir, s.slope, s.tries, s.t, s.gain = dir, slope, 0, 1, gain
	s.measured, s.proposed, s.steps, s.turns = b, true, nil, nil
	s.try()
}

// Curvature returns the metric at cur. It contains the given part of the average information if the
// curvature was not measured.
func (s *Search) Curvature(part float64) *mat.SymDense {
	n := len(s.Cur.Theta)
	b := s.base(part)
	var bs mat.VecDense
	for i, step := range s.steps {
		x, y := mat.NewVecDense(n, step), mat.NewVecDense(n, s.turns[i])
		bs.MulVec(b, x)
		if sbs := mat.Dot(x, &bs); sbs > 0 {
			b.SymRankOne(b, -1/sbs, &bs)
			b.SymRankOne(b, 1/mat.Dot(x, y), y)
		}
	}
	return b
}

// base returns the metric at cur without steps: the measured one, or that part of the information.
func (s *Search) base(part float64) *mat.SymDense {
	if s.measured == nil {
		return s.information(part)
	}
	b := mat.NewSymDense(len(s.Cur.Theta), nil)
	b.CopySym(s.measured)
	return b
}

// information returns the metric at cur without steps, with that part of the average information.
func (s *Search) information(part float64) *mat.SymDense {
	n := len(s.Cur.Theta)
	b := mat.NewSymDense(n, nil)
	b.ScaleSym(part, s.Cur.Info)
	b.AddSym(b, s.Prec)
	for i := range n {
		b.SetSym(i, i, (1+searchRidge)*b.At(i, i)+leastCurve)
	}
	return b
}

// outward reports whether a step of that sign in θ_i leaves the bounds of the search.
func (s *Search) outward(i int, step float64) bool {
	const edge = 1e-12
	t := s.Cur.Theta[i]
	return t <= s.Lo[i]+edge*(1+math.Abs(t)) && step < 0 ||
		t >= s.Hi[i]-edge*(1+math.Abs(t)) && step > 0
}

// held returns the coordinates that a step down the gradient would take out of the bounds.
func (s *Search) held() []bool {
	held := make([]bool, len(s.Cur.Theta))
	for i, g := range s.Cur.Grad {
		held[i] = s.outward(i, -g)
	}
	return held
}

// hold makes the metric b the identity in the coordinates that are held.
func hold(b *mat.SymDense, held []bool) {
	for i, h := range held {
		if !h {
			continue
		}
		for j := range held {
			b.SetSym(i, j, 0)
		}
		b.SetSym(i, i, 1)
	}
}

// solve returns −B⁻¹g, of the metric b, over the coordinates that it does not take out of the
// bounds; the others stay. It overwrites b.
func (s *Search) solve(b *mat.SymDense) []float64 {
	for held := s.held(); ; { // holds one more each time
		hold(b, held)
		d, all := s.solveHeld(b, held), true
		for i, v := range d {
			if s.outward(i, v) {
				held[i], all = true, false
			}
		}
		if all {
			return d
		}
	}
}

// solveHeld is solve where the coordinates that are held stay.
func (s *Search) solveHeld(b *mat.SymDense, held []bool) []float64 {
	rhs := mat.NewVecDense(len(held), nil)
	for i, h := range held {
		if !h {
			rhs.SetVec(i, -s.Cur.Grad[i])
		}
	}
	var chol mat.Cholesky
	var d mat.VecDense
	if !chol.Factorize(b) || chol.SolveVecTo(&d, rhs) != nil && !(mat.Dot(&d, rhs) > 0) {
		d.CloneFromVec(rhs)
		for i, v := range rhs.RawVector().Data {
			d.SetVec(i, v/max(leastCurve, math.Abs(s.Cur.Info.At(i, i))+s.Prec.At(i, i)))
		}
	}
	return d.RawVector().Data
}

// aim decides where to go from cur.
func (s *Search) aim() {
	if s.promise = max(s.head(s.Curvature(s.Part)), 0); s.promise < s.Goal {
		s.finish(max(s.least(), StopPart*s.Goal))
		return
	}
	s.gain = s.promise
	if m := MaxAbs(s.dir); m > s.reach {
		short := s.reach / m
		s.gain = -s.slope * short * (1 - 0.5*short)
		floats.Scale(short, s.dir)
		s.slope *= short
	}
	slack := min(firstSlack, slackPart*s.gain)
	if s.Close > 0 && s.gain < closeGain {
		slack = min(slack, s.Close)
	}
	if s.Rough > 0 {
		slack = s.sharp * s.Rough * s.gain
	}
	s.Slack = min(s.Slack, max(s.least(), slack))
	s.try()
}

// head turns to the minimum of the metric b, which it overwrites, and returns what that promises.
func (s *Search) head(b *mat.SymDense) (promise float64) {
	s.dir, s.tries, s.t, s.proposed = s.solve(b), 0, 1, false
	s.slope = floats.Dot(s.dir, s.Cur.Grad)
	return -0.5 * s.slope
}

// finish ends the search at cur, once f is known there to within enough nats, and a flatter metric
// and that without steps agree: these may be of where the curvature was another.
func (s *Search) finish(enough float64) {
	if s.Cur.Slack > enough {
		if again := !s.line && s.Slack <= enough; again {
			s.Done, s.stalled = true, s.promise+s.Cur.Slack > s.Goal
			return
		}
		s.Slack, s.line, s.Next = enough, false, slices.Clone(s.Cur.Theta)
		return
	}
	if s.Brief {
		s.Done = true
		return
	}
	if s.measured != nil {
		s.probe(enough)
		return
	}
	s.doubted = s.head(s.Curvature(checkPart*s.Part)) > s.Goal
	if !s.doubted || s.checks >= mostChecks {
		if s.checks > mostChecks || s.head(s.information(s.Part)) <= bareGoal*s.Goal {
			s.probe(enough)
			return
		}
		s.checks = mostChecks
	}
	s.checks++
	s.checking, s.Slack = true, enough
	if m := MaxAbs(s.dir); m > s.Longest {
		floats.Scale(s.Longest/m, s.dir)
	}
	s.try()
}

// probe takes a step along the flat directions at cur, or ends the search if there are none, or no
// more are worth it.
func (s *Search) probe(enough float64) {
	if s.Done = s.probes >= mostProbes || !s.flat(); s.Done {
		return
	}
	s.probing, s.Slack = true, enough
	s.probes++
	s.try()
}

// flat turns downhill in the space of the eigenvectors of the flatter metric, without steps, along
// which it rises by less than probeRise over the longest step. It reports whether there is a slope.
func (s *Search) flat() bool {
	b, held := s.base(checkPart*s.Part), s.held()
	hold(b, held)
	var e mat.EigenSym
	if !e.Factorize(b, true) {
		return false
	}
	n := len(s.Cur.Theta)
	var v mat.Dense
	e.VectorsTo(&v)
	g, d := mat.NewVecDense(n, s.Cur.Grad), mat.NewVecDense(n, nil)
	for k, curve := range e.Values(nil) {
		x := v.ColView(k)
		if far := s.Longest / mat.Norm(x, math.Inf(1)); 0.5*curve*far*far < probeRise {
			d.AddScaledVec(d, -mat.Dot(x, g), x)
		}
	}
	for i, h := range held {
		if h || s.outward(i, d.AtVec(i)) {
			d.SetVec(i, 0)
		}
	}
	m := mat.Norm(d, math.Inf(1))
	if !(m > 0) {
		return false
	}
	d.ScaleVec(s.Longest/m, d)
	s.dir, s.tries, s.t = d.RawVector().Data, 0, 1
	s.slope = floats.Dot(s.dir, s.Cur.Grad)
	return true
}

// probed goes on from the step x along the flat directions: from where it falls, and once more
// along them where it falls faster than before. A step that gains nothing is taken once more to
// where the cubic through what is known of its ends is least.
func (s *Search) probed(x Point) {
	gain := s.Cur.F - x.F
	if !(gain > 0) && s.t == 1 {
		s.t = s.cubic(&x)
		s.try()
		return
	}
	s.probing = false
	switch {
	case gain > s.Goal:
		s.checks, s.probes, s.reach = 0, 0, s.Longest
	case !(gain > 0) || s.along(&x, x.Grad) > s.along(&x, s.Cur.Grad):
		s.probes = mostProbes
	}
	if gain > 0 {
		s.learn(&x)
		s.Cur, s.fresh = x, false
	}
	s.aim()
}

// cubic returns where between cur and its step x the cubic with their values and slopes is least,
// as a part of the step within bounds.
func (s *Search) cubic(x *Point) float64 {
	if math.IsInf(x.F, 1) {
		return probeNear
	}
	rise, slope := x.F-s.Cur.F, s.along(x, s.Cur.Grad)
	b := s.along(x, x.Grad) + slope - 2*rise // of slope·t + at² + bt³
	a := rise - slope - b
	t := (math.Sqrt(a*a-3*b*slope) - a) / (3 * b)
	if !(t > probeNear) {
		return probeNear
	}
	return min(t, probeFar)
}

func MaxAbs(v []float64) (m float64) {
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}

// try asks for f at length t.
func (s *Search) try() {
	s.line, s.Next = true, slices.Clone(s.Cur.Theta)
	for i, d := range s.dir {
		s.Next[i] = min(max(s.Next[i]+s.t*d, s.Lo[i]), s.Hi[i])
	}
}

// shorten goes back after f at length t.
func (s *Search) shorten(f float64) {
	shorter := 0.25
	if !math.IsInf(f, 1) { // the minimum of the parabola
		shorter = min(max(-0.5*s.slope*s.t/(f-s.Cur.F-s.slope*s.t), 0.1), 0.5)
	}
	s.t *= shorter
	if s.tries++; s.tries < searchTries {
		s.try()
		return
	}
	if s.fresh {
		s.giveUp()
		return
	}
	s.steps, s.turns, s.measured, s.Part, s.fresh = nil, nil, nil, s.Part0, true
	s.aim()
}

// Ending is how a search ended.
type Ending struct {
	Left    float64 // nats that it may have left
	Stuck   bool    // it had to give up
	Doubted bool    // its curvature is not known in all directions
}

// End returns how the search ended. Where it gave up, twice the slack is left, too: at one θ and
// another.
func (s *Search) End() Ending {
	e := Ending{s.promise, s.stalled, s.doubted && !s.stalled}
	if s.stalled {
		e.Left += 2 * s.Cur.Slack
	}
	return e
}

// State writes or reads s, of n coordinates.
func (s *Search) State(c *save.State) {
	n := len(s.Lo)
	s.Cur.State(c, n)
	c.Bool(&s.begun, &s.line, &s.fresh, &s.Done, &s.stalled, &s.doubted, &s.checking,
		&s.probing, &s.Brief, &s.proposed)
	c.Floats(n, &s.Next, &s.dir)
	c.Float(&s.Goal, &s.Slack, &s.t, &s.slope, &s.promise, &s.Part, &s.reach, &s.gain, &s.low,
		&s.sharp, &s.Rough)
	c.Int(&s.tries, &s.waited, &s.checks, &s.probes)
	for _, list := range []*[][]float64{&s.steps, &s.turns} {
		StateLists(c, n, searchPairs, list)
	}
	stateSym(c, n, &s.measured)
	c.Check(len(s.steps) == len(s.turns), "a search has %d steps and %d turns", len(s.steps),
		len(s.turns))
}

// StateLists writes or reads at most so many slices of n numbers.
func StateLists(c *save.State, n, most int, list *[][]float64) {
	k := len(*list)
	c.Int(&k)
	c.Check(k >= 0 && k <= most, "a search has %d lists", k)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		*list = make([][]float64, k)
	}
	for i := range *list {
		c.Floats(n, &(*list)[i])
	}
}

func (x *Point) State(c *save.State, n int) {
	c.Floats(n, &x.Theta, &x.Grad)
	c.Float(&x.F, &x.Prior, &x.Slack)
	stateSym(c, n, &x.Info)
}

// stateSym writes or reads a symmetric matrix of n rows, or nil.
func stateSym(c *save.State, n int, a **mat.SymDense) {
	has := *a != nil
	if c.Bool(&has); !has {
		*a = nil
		return
	}
	if c.Reading() {
		*a = mat.NewSymDense(n, nil)
	}
	raw := (*a).RawSymmetric().Data
	c.Floats(n*n, &raw)
}
