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
	firstSlack = 3e-3 // nats below its maximum that q may be at first,
	slackPart  = 0.03 // and then of what the step promises
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
	// of the average information, in the metric that must promise little too at the end
	checkPart      = 0.1
	mostChecks     = 2               // steps of that metric at one point
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

// Search minimises f by a quasi-Newton method that makes its own metric of the average information
// (Gilmour, Thompson and Cullis
//  1995. and, of what that lacks, of the last steps (BFGS). It says where f is wanted next, and is
//     told. f is
//
// known to a tolerance that it sets: at most a small part of what a step promises. Where its metric
// promises less than the goal, it takes a step of a metric that is flatter wherever no step has
// been: it ends if that promises little, too, or gains nothing.
type Search struct {
	Prec    *mat.SymDense // of the priors
	Lo, Hi  []float64
	Goal    float64
	Exact   float64 // part of the goal, below which q need not be known
	Longest float64
	reach   float64 // the longest step for now
	gain    float64 // that the step promises
	Part    float64 // of the average information
	Part0   float64

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
}

// Begin starts from θ.
func (s *Search) Begin(theta []float64) {
	s.Cur, s.begun, s.line, s.fresh = Point{F: math.Inf(1)}, false, false, false
	s.Done, s.stalled, s.doubted, s.checks, s.checking = false, false, false, 0, false
	s.Next, s.Slack, s.Part = slices.Clone(theta), max(firstSlack, s.least()), s.Part0
	s.promise, s.reach = math.Inf(1), s.Longest
	s.steps, s.turns, s.low, s.waited = nil, nil, math.Inf(1), 0
}

// Again begins at θ with what is known of the curvature, of so many times as many rows.
func (s *Search) Again(theta []float64, times float64) {
	steps, turns, part := s.steps, s.turns, s.Part
	s.Begin(theta)
	s.steps, s.Part = steps, part
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
func (s *Search) least() float64 { return s.Exact * s.Goal }

// Tell goes on from x, which is what was asked for.
func (s *Search) Tell(x Point) {
	if s.waited++; x.F < s.low-StopPart*s.Goal {
		s.low, s.waited = x.F, 0
	}
	switch {
	case s.checking:
		s.checked(x)
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
		s.learn(&x)
		switch gain := s.Cur.F - x.F; {
		case s.tries > 0:
			s.reach = min(s.Longest, reachAgain*s.t*MaxAbs(s.dir))
		case gain > goodGain*s.gain:
			s.reach = min(reachAgain*s.reach, s.Longest)
		case gain < littleGain*s.gain && math.Abs(gain) > s.Cur.Slack+x.Slack:
			s.reach = min(s.reach, MaxAbs(s.dir)) / reachAgain
		}
		s.Cur, s.fresh, s.checks = x, false, 0
		s.aim()
	default:
		s.shorten(x.F)
	}
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
	if !s.line || s.checking {
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
	var bs mat.VecDense
	bs.MulVec(s.Curvature(s.Part), v)
	if sbs := mat.Dot(v, &bs); sy < leastTurn*sbs {
		own := (1 - leastTurn) * sbs / (sbs - sy)
		floats.Scale(own, turn)
		floats.AddScaled(turn, 1-own, bs.RawVector().Data)
	}
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

// Curvature returns the metric at cur, with that part of the average information.
func (s *Search) Curvature(part float64) *mat.SymDense {
	n := len(s.Cur.Theta)
	b := mat.NewSymDense(n, nil)
	b.ScaleSym(part, s.Cur.Info)
	b.AddSym(b, s.Prec)
	for i := range n {
		b.SetSym(i, i, (1+searchRidge)*b.At(i, i)+leastCurve)
	}
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

// inside reports whether θ_i may move down the gradient.
func (s *Search) inside(i int) bool {
	const edge = 1e-12
	t, g := s.Cur.Theta[i], s.Cur.Grad[i]
	return !(t <= s.Lo[i]+edge*(1+math.Abs(t)) && g > 0 || t >= s.Hi[i]-edge*(1+math.Abs(t)) &&
		g < 0)
}

// solve returns −B⁻¹g, of the metric with that part of the average information, over the
// coordinates that are inside; the others stay.
func (s *Search) solve(part float64) []float64 {
	n := len(s.Cur.Theta)
	b, rhs := s.Curvature(part), mat.NewVecDense(n, nil)
	for i := range n {
		if s.inside(i) {
			rhs.SetVec(i, -s.Cur.Grad[i])
			continue
		}
		for j := range n {
			b.SetSym(i, j, 0)
		}
		b.SetSym(i, i, 1)
	}
	var chol mat.Cholesky
	var d mat.VecDense
	if !chol.Factorize(b) || chol.SolveVecTo(&d, rhs) != nil && !(mat.Dot(&d, rhs) > 0) {
		d.CloneFromVec(rhs)
		for i := range n {
			d.SetVec(i, rhs.AtVec(i)/max(leastCurve, math.Abs(s.Cur.Info.At(i, i))+s.Prec.At(i, i)))
		}
	}
	return d.RawVector().Data
}

// aim decides where to go from cur.
func (s *Search) aim() {
	s.head(s.Part)
	if s.promise = max(-0.5*s.slope, 0); s.promise < s.Goal {
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
	s.Slack = min(s.Slack, max(s.least(), min(firstSlack, slackPart*s.gain)))
	s.try()
}

// head turns to the minimum of the metric with that part of the average information.
func (s *Search) head(part float64) {
	s.dir, s.tries, s.t = s.solve(part), 0, 1
	s.slope = floats.Dot(s.dir, s.Cur.Grad)
}

// finish ends the search at cur, once f is known there to within enough nats and the flatter metric
// agrees.
func (s *Search) finish(enough float64) {
	if s.Cur.Slack > enough {
		if again := !s.line && s.Slack <= enough; again {
			s.Done, s.stalled = true, s.promise+s.Cur.Slack > s.Goal
			return
		}
		s.Slack, s.line, s.Next = enough, false, slices.Clone(s.Cur.Theta)
		return
	}
	s.head(checkPart * s.Part)
	s.doubted = -0.5*s.slope > s.Goal
	if s.Done = !s.doubted || s.checks == mostChecks; s.Done {
		return
	}
	s.checks++
	s.checking, s.Slack = true, enough
	if m := MaxAbs(s.dir); m > s.Longest {
		floats.Scale(s.Longest/m, s.dir)
	}
	s.try()
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
	s.steps, s.turns, s.Part, s.fresh = nil, nil, s.Part0, true
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
	c.Bool(&s.begun, &s.line, &s.fresh, &s.Done, &s.stalled, &s.doubted, &s.checking)
	c.Floats(n, &s.Next, &s.dir)
	c.Float(&s.Goal, &s.Slack, &s.t, &s.slope, &s.promise, &s.Part, &s.reach, &s.gain, &s.low)
	c.Int(&s.tries, &s.waited, &s.checks)
	for _, list := range []*[][]float64{&s.steps, &s.turns} {
		StateLists(c, n, searchPairs, list)
	}
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
	has := x.Info != nil
	if c.Bool(&has); !has {
		x.Info = nil
		return
	}
	if c.Reading() {
		x.Info = mat.NewSymDense(n, nil)
	}
	raw := x.Info.RawSymmetric().Data
	c.Floats(n*n, &raw)
}
