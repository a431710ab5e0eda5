// Package search minimizes a function f(θ) whose values and gradients have an error that the
// caller controls. It is the optimizer of the hyperparameters θ: f is −ELBO − log p(θ), and each
// evaluation is a fit of q that may stop early.
//
// Package learn drives a Search. It evaluates f at Next to within Slack nats, calls Tell with the
// Point, and repeats until Done. End reports how close the search came to the minimum. State saves
// and restores a search that was interrupted.
package search

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// These constants were tuned on ten data sets and 350 simulated data sets.
const (
	searchPairs = 8 // number of steps that BFGS stores
	// Part is the initial fraction of the average information that goes into the metric. The
	// fraction is below 1 because q adapts to θ and takes up the rest. It would be 1 under
	// Gaussian noise.
	Part          = 0.3
	leastPart     = 3e-3 // smallest fraction
	searchRidge   = 0.01 // added to the metric, relative to its diagonal
	LeastCurve    = 1e-6 // lower bound on the curvature
	LongestStep   = 1.5  // longest step in any θ, a factor of 4.5
	CompositeStep = 1    // the same for kernels whose parts can change places
	armijo        = 1e-4
	// reachAgain is the factor by which the longest step grows after a good step or after a step
	// that was shortened, and shrinks after a poor one.
	reachAgain = 2
	goodGain   = 0.75 // a good step gains more than this fraction of its predicted gain
	littleGain = 0.25 // a poor step gains less than this fraction
	// If f is linear along a step, the step gains twice its predicted gain. A short step that gains
	// more than linearGain times as much, and more than closeGain, is far too short. If errors hide
	// its change of the gradient, the metric would stay as stiff, so the search forgets the steps
	// that made it so.
	linearGain = 1.5
	shortStep  = 0.03 // longest short step, relative to the longest step allowed now
	// The slopes at both ends of a step predict its gain. If the step gains less than falseGain
	// of the prediction, the slopes have too large an error. The error of a slope falls with the
	// root of the gap of q, so the search then requires a gap that is smaller by the factor
	// sharper. The product of these factors is at least sharpest.
	falseGain  = 0.25
	sharper    = 0.01
	sharpest   = 1e-6
	firstSlack = 3e-3 // error of f allowed at first, in nats
	slackPart  = 0.03 // error of f allowed later, relative to the predicted gain of the step
	closeGain  = 0.1  // predicted gain of a step, in nats, below which Close applies
	ExactPart  = 1e-2 // smallest error of f that a search requests, relative to the goal
	StopPart   = 0.1  // largest error of f at which the search ends, relative to the goal
	// StagedPart is StopPart if passes over all rows are expensive. With 0.4 a search once ended
	// 3 nats from the minimum, with a goal of 0.9.
	StagedPart = 0.1
	// noisyTurn is the part of sᵀy, in nats, that both ends of a step may be off by before that
	// hides it.
	noisyTurn = 0.1
	// leastTurn is the fraction of sᵀBs to which a smaller sᵀy is raised (Powell 1978). So B
	// falls by at most a factor of ten per step, even if the curvature is negative, and steps
	// grow.
	leastTurn = 0.1
	// mostTurn bounds the factor by which B grows across a step. If the curvature along a step is
	// near zero, a change of the slope across it would make B stiffer by orders of magnitude.
	mostTurn = 10
	// checkPart multiplies the fraction of the average information to make the metric flatter. At
	// the end, the predicted gain of the flatter metric must also be small.
	checkPart  = 0.1
	mostChecks = 2 // steps of the flatter metric from one point
	// bareGoal times the goal bounds the predicted gain of the metric without BFGS steps at the
	// end. The factor is large because this metric is too flat at many minima. At the points that
	// were not minima, it predicted gains of whole nats.
	bareGoal = 10
	// A direction is flat if f rises by less than probeRise nats over the longest step, according
	// to the metric. Priors leave no flat directions.
	probeRise      = 0.1
	mostProbes     = 8               // steps along flat directions without a gain
	probeNear      = 0.1             // least length of the second probe, relative to Longest
	probeFar       = 0.5             // its largest length
	searchTries    = 8               // lengths of a step that are tried
	searchPatience = 3 * searchTries // points without progress, for example if q has several optima
)

// A Point holds θ, f and its derivatives at θ, and the error of f.
type Point struct {
	Theta []float64
	F     float64       // −ELBO − log prior, or +Inf
	Prior float64       // −log prior of θ
	Grad  []float64     // gradient of F
	Info  *mat.SymDense // average information of −ELBO
	Slack float64       // bound on the error of F in nats, or +Inf if it is not known
}

// A Search minimizes f by a quasi-Newton method. Its metric is a fraction of the average
// information (Gilmour, Thompson and Cullis 1995), which the last steps correct by BFGS updates.
// The search also sets the tolerance of each evaluation of f, which is at most a small fraction
// of the predicted gain.
//
// If the predicted gain is below the goal, the search does not stop yet. First it takes a step of
// a metric that is flatter where no step has been, and a step of the metric without BFGS updates,
// if these predict a gain above the goal. Then it takes long steps downhill along the directions
// that are flat in the metric. Without a prior, such directions may lead across a plateau or away
// from a saddle, which slopes do not show. The search ends when none of these steps gains
// anything.
type Search struct {
	Prec    *mat.SymDense // precision of the priors
	Lo, Hi  []float64
	Goal    float64
	Exact   float64 // fraction of Goal below which the gap of q need not fall
	Longest float64
	// Rough is the allowed error of f as a fraction of the predicted gain. It is also the allowed
	// error in nats at the first point. 0 means the default.
	Rough float64
	// Close is the largest error of f, in nats, when a step has a predicted gain below closeGain.
	// A caller that measures the curvature near the end sets it; 0 means the default.
	Close float64
	Brief bool    // no flatter metric at the end; Again keeps the doubts of the search before
	reach float64 // current bound on the length of a step
	gain  float64 // predicted gain of the step
	Part  float64 // current fraction of the average information
	Part0 float64

	Cur       Point
	begun     bool
	Next      []float64
	Slack     float64 // largest error allowed at Next
	line      bool    // Next lies along dir, at length t
	dir       []float64
	t         float64
	slope     float64
	predicted float64 // predicted gain ½gᵀB⁻¹g at Cur
	steps     [][]float64
	turns     [][]float64 // changes of the gradient along steps
	tries     int
	low       float64 // lowest F, up to a fraction of the goal
	waited    int     // points since low fell
	fresh     bool    // the BFGS steps were dropped at Cur
	Done      bool
	stalled   bool // the search gave up above its goal, or F has too large an error
	doubted   bool // the flatter metric still predicts a gain above the goal

	checks   int  // steps of the flatter metric since the last gain
	checking bool // Next is such a step

	// measured is the curvature at a θ near Cur, to which the later steps are added. It is nil if
	// the curvature was not measured.
	measured *mat.SymDense
	proposed bool // Propose has set dir, and measured is the curvature at its end

	sharp   float64 // factor on Exact
	probes  int     // steps along flat directions since the last gain
	probing bool    // Next is such a step
}

// Begin starts a search at θ and forgets all earlier steps.
func (s *Search) Begin(theta []float64) {
	s.Cur, s.begun, s.line, s.fresh = Point{F: math.Inf(1)}, false, false, false
	s.Done, s.stalled, s.doubted, s.checks, s.checking = false, false, false, 0, false
	s.probes, s.probing, s.proposed = 0, false, false
	s.sharp = 1
	s.Next, s.Slack, s.Part = slices.Clone(theta), max(firstSlack, s.least(), s.Rough), s.Part0
	s.predicted, s.reach = math.Inf(1), s.Longest
	s.steps, s.turns, s.low, s.waited = nil, nil, math.Inf(1), 0
	s.measured = nil
}

// Again begins at θ. With same set the objective is about the same function as before, and the
// search goes on with the steps that it knows the curvature by. Otherwise only Part carries over:
// the curvature in scale and length scale grows far more slowly than the number of rows.
func (s *Search) Again(theta []float64, same bool) {
	steps, turns, part, doubted := s.steps, s.turns, s.Part, s.doubted && s.Brief
	s.Begin(theta)
	if s.Part, s.doubted = part, doubted; same {
		s.steps, s.turns = steps, turns
	}
}

// least returns the smallest error of f that the search requires, in nats.
func (s *Search) least() float64 { return s.sharp * s.Exact * s.Goal }

// Tell takes the evaluation of f at Next and chooses the next point.
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
		gain := s.Cur.F - x.F
		if !s.proposed && !s.learn(&x) && // or the metric is the one at x
			gain > max(linearGain*s.gain, closeGain) && s.t*MaxAbs(s.dir) < shortStep*s.reach {
			s.steps, s.turns = nil, nil
		}
		switch {
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

// along returns the slope of f along the step from Cur to x, from the given gradient.
func (s *Search) along(x *Point, grad []float64) (slope float64) {
	for i, t := range x.Theta {
		slope += (t - s.Cur.Theta[i]) * grad[i]
	}
	return slope
}

// checked takes the evaluation x of a step of the flatter metric.
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

// giveUp ends the search above its goal.
func (s *Search) giveUp() { s.Done, s.stalled = true, true }

// Most returns the largest value at Next that the search accepts.
func (s *Search) Most() float64 {
	if !s.line || s.checking || s.probing {
		return math.Inf(1)
	}
	return s.Cur.F + armijo*s.t*s.slope + s.Slack
}

// learn stores the step to x and its change of the gradient, and reports true. It drops the step and
// reports false if the errors of f hide that change.
func (s *Search) learn(x *Point) bool {
	n := len(x.Theta)
	step, turn := make([]float64, n), make([]float64, n)
	floats.SubTo(step, x.Theta, s.Cur.Theta)
	floats.SubTo(turn, x.Grad, s.Cur.Grad)
	sy := floats.Dot(step, turn)
	if !(s.Cur.Slack+x.Slack <= noisyTurn*math.Abs(sy)) {
		return false
	}
	v := mat.NewVecDense(n, step)
	s.damp(v, mat.NewVecDense(n, turn))
	if !(floats.Dot(step, turn) > 0) {
		return true // the step is empty
	}
	if len(s.steps) == searchPairs {
		s.steps, s.turns = s.steps[1:], s.turns[1:]
	}
	s.steps, s.turns = append(s.steps, step), append(s.turns, turn)
	if info := mat.Inner(v, x.Info, v); info > 0 {
		part := (sy - mat.Inner(v, s.Prec, v)) / info
		// The root of the product smooths the fraction, because steps differ.
		s.Part = math.Sqrt(s.Part * min(max(part, leastPart), 1))
	}
	return true
}

// damp changes y, the change of the gradient along the step s, such that it changes the metric B
// by bounded factors. Let y = αBs + p with sᵀp = 0. If α is below leastTurn, damp raises it to
// leastTurn and drops p, because such a step has no reliable p. Otherwise damp shortens p until
// the update multiplies B across the step by at most mostTurn. This factor is pᵀB⁻¹p/(α sᵀBs).
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

// Near reports whether the metric puts Cur at most predicted nats above the minimum, and the error
// of f at Cur is at most slack nats.
func (s *Search) Near(predicted, slack float64) bool {
	return s.begun && !s.stalled && s.predicted <= predicted && s.Cur.Slack <= slack
}

// Measure replaces the metric by b, the measured curvature at Cur, and returns the predicted
// gain. Unless the search has ended, it continues with this metric.
func (s *Search) Measure(b *mat.SymDense, ended bool) (predicted float64) {
	s.measured, s.steps, s.turns = b, nil, nil
	if !ended {
		s.Done, s.doubted, s.checking, s.probing = false, false, false, false
		s.aim()
	}
	return s.predicted
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

// base returns the metric at Cur without BFGS updates. It is the measured curvature, or the given
// fraction of the average information.
func (s *Search) base(part float64) *mat.SymDense {
	if s.measured == nil {
		return s.information(part)
	}
	b := mat.NewSymDense(len(s.Cur.Theta), nil)
	b.CopySym(s.measured)
	return b
}

// information returns the metric at Cur from the given fraction of the average information,
// without measured curvature and BFGS updates.
func (s *Search) information(part float64) *mat.SymDense {
	n := len(s.Cur.Theta)
	b := mat.NewSymDense(n, nil)
	b.ScaleSym(part, s.Cur.Info)
	b.AddSym(b, s.Prec)
	for i := range n {
		b.SetSym(i, i, (1+searchRidge)*b.At(i, i)+LeastCurve)
	}
	return b
}

// outward reports whether a step of the given sign in θ_i leaves the bounds of the search.
func (s *Search) outward(i int, step float64) bool {
	const edge = 1e-12
	t := s.Cur.Theta[i]
	return t <= s.Lo[i]+edge*(1+math.Abs(t)) && step < 0 ||
		t >= s.Hi[i]-edge*(1+math.Abs(t)) && step > 0
}

// held reports for each coordinate whether a step down the gradient leaves the bounds.
func (s *Search) held() []bool {
	held := make([]bool, len(s.Cur.Theta))
	for i, g := range s.Cur.Grad {
		held[i] = s.outward(i, -g)
	}
	return held
}

// hold makes the metric b the identity in the held coordinates.
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

// solve returns −B⁻¹g for the metric b. Coordinates that would leave the bounds are held and do
// not move. It overwrites b.
func (s *Search) solve(b *mat.SymDense) []float64 {
	for held := s.held(); ; { // each round holds at least one more coordinate
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

// solveHeld returns −B⁻¹g with zeros in the held coordinates. If b is not positive definite, it
// returns a gradient step scaled by the diagonal instead.
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
			d.SetVec(i, v/max(LeastCurve, math.Abs(s.Cur.Info.At(i, i))+s.Prec.At(i, i)))
		}
	}
	return d.RawVector().Data
}

// aim chooses the next step from Cur and the error that it allows, or lets finish end the search
// if the predicted gain is below the goal.
func (s *Search) aim() {
	if s.predicted = max(s.head(s.Curvature(s.Part)), 0); s.predicted < s.Goal {
		s.finish(max(s.least(), StopPart*s.Goal))
		return
	}
	s.gain = s.predicted
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

// head sets the direction of the next step to the minimum of the metric b, and returns the gain that
// b predicts. It overwrites b.
func (s *Search) head(b *mat.SymDense) (gain float64) {
	s.dir, s.tries, s.t, s.proposed = s.solve(b), 0, 1, false
	s.slope = floats.Dot(s.dir, s.Cur.Grad)
	return -0.5 * s.slope
}

// finish ends the search at Cur. Before that, it requires that f is known to within enough nats
// at Cur, and that the flatter metric and the metric without BFGS updates also predict little
// gain. The updates may come from a region with another curvature.
func (s *Search) finish(enough float64) {
	if s.Cur.Slack > enough {
		if again := !s.line && s.Slack <= enough; again {
			s.Done, s.stalled = true, s.predicted+s.Cur.Slack > s.Goal
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

// probe takes a step along the flat directions at Cur. It ends the search if there are no such
// directions or mostProbes steps gained too little.
func (s *Search) probe(enough float64) {
	if s.Done = s.probes >= mostProbes || !s.flat(); s.Done {
		return
	}
	s.probing, s.Slack = true, enough
	s.probes++
	s.try()
}

// flat points dir downhill within the flat directions, and reports whether f has a slope there.
// These are the eigenvectors of the flatter metric without BFGS updates along which f rises by
// less than probeRise over the longest step.
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

// probed takes the evaluation x of a step along the flat directions. It moves to x if f falls
// there, and allows more such steps if f falls faster at x than before. A step that gains nothing
// is tried once more at the minimum of a cubic between its ends.
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

// cubic returns the minimum between Cur and x of the cubic that matches the values and slopes at
// both, as a fraction of the step. The fraction is between probeNear and probeFar.
func (s *Search) cubic(x *Point) float64 {
	if math.IsInf(x.F, 1) {
		return probeNear
	}
	rise, slope := x.F-s.Cur.F, s.along(x, s.Cur.Grad)
	b := s.along(x, x.Grad) + slope - 2*rise // f − Cur.F = slope·t + at² + bt³ at the fraction t
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

// try sets Next to the point at length t along dir, within the bounds.
func (s *Search) try() {
	s.line, s.Next = true, slices.Clone(s.Cur.Theta)
	for i, d := range s.dir {
		s.Next[i] = min(max(s.Next[i]+s.t*d, s.Lo[i]), s.Hi[i])
	}
}

// shorten tries a smaller t, given the value f at the present t. After searchTries lengths, the
// search forgets the BFGS steps and starts again from Cur, or gives up if it already did so.
func (s *Search) shorten(f float64) {
	shorter := 0.25
	if !math.IsInf(f, 1) { // go to the minimum of the parabola
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

// An Ending reports how a search ended.
type Ending struct {
	Left    float64 // estimated distance to the minimum, in nats
	Stuck   bool    // the search gave up
	Doubted bool    // the curvature is not known in all directions
}

// End reports how the search ended. If it gave up, Left includes twice the error of f, because
// the error counts at both ends of a step.
func (s *Search) End() Ending {
	e := Ending{s.predicted, s.stalled, s.doubted && !s.stalled}
	if s.stalled {
		e.Left += 2 * s.Cur.Slack
	}
	return e
}

// State saves or restores s, which has n coordinates.
func (s *Search) State(c *save.Coder) {
	n := len(s.Lo)
	s.Cur.State(c, n)
	c.Bool(&s.begun, &s.line, &s.fresh, &s.Done, &s.stalled, &s.doubted, &s.checking,
		&s.probing, &s.Brief, &s.proposed)
	c.Floats(n, &s.Next, &s.dir)
	c.Float(&s.Goal, &s.Slack, &s.t, &s.slope, &s.predicted, &s.Part, &s.reach, &s.gain, &s.low,
		&s.sharp, &s.Rough)
	c.Int(&s.tries, &s.waited, &s.checks, &s.probes)
	for _, list := range []*[][]float64{&s.steps, &s.turns} {
		StateLists(c, n, searchPairs, list)
	}
	StateSym(c, n, &s.measured)
	c.Check(len(s.steps) == len(s.turns), "a search has %d steps and %d turns", len(s.steps),
		len(s.turns))
}

// StateLists saves or restores a list of at most the given number of slices of n numbers.
func StateLists(c *save.Coder, n, most int, list *[][]float64) {
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

func (x *Point) State(c *save.Coder, n int) {
	c.Floats(n, &x.Theta, &x.Grad)
	c.Float(&x.F, &x.Prior, &x.Slack)
	StateSym(c, n, &x.Info)
}

// StateSym saves or restores a symmetric matrix of n rows, or nil.
func StateSym(c *save.Coder, n int, a **mat.SymDense) {
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
