package pgsvi

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
	// searchPart is the part of the average information that is the curvature, to begin with: q takes up
	// the rest. Under Gaussian noise it is all of it.
	searchPart    = 0.3
	leastPart     = 3e-3 // and the least of it
	searchRidge   = 0.01 // of the diagonal, added to it
	leastCurve    = 1e-6 // and absolutely
	longestStep   = 1.5  // in any θ: a factor of 4.5
	compositeStep = 1    // the same where kernels have parts, which can change places
	armijo        = 1e-4
	// reachAgain is by how much longer a step may be than one that was cut short or did well, and shorter
	// than one that did not.
	reachAgain = 2
	goodGain   = 0.75 // of what it promised: well,
	littleGain = 0.25 // and not
	firstSlack = 3e-3 // nats below its maximum that q may be at first,
	slackPart  = 0.03 // and then of what the step promises
	exactPart  = 1e-2 // of the goal, below which it need not be
	stopPart   = 0.1  // of the goal, above which the search does not end
	stagedPart = 0.5  // the same where passes over all rows are dear
	// noisyTurn is the part of sᵀy, in nats, that both ends of a step may be off by before that hides it.
	noisyTurn = 0.1
	// leastTurn is the part of sᵀBs to which a smaller sᵀy is raised (Powell 1978): B falls by at most
	// ten times a step, where the curvature is negative too, and steps grow.
	leastTurn      = 0.1
	checkPart      = 0.1             // of the average information, in the metric that must promise little too at the end
	mostChecks     = 2               // steps of that metric at one point
	searchTries    = 8               // lengths of a step
	searchPatience = 3 * searchTries // points that are no better, as where q has several optima
)

// learnPoint is what is known at a θ.
type learnPoint struct {
	theta []float64
	f     float64       // −ELBO − log prior, or +Inf
	prior float64       // −log prior of it
	grad  []float64     // of f
	info  *mat.SymDense // the average information of −ELBO
	slack float64       // nats that f may be too high: +Inf if that is not known
}

// learnSearch minimises f by a quasi-Newton method that makes its own metric of the average information (Gilmour, Thompson and Cullis
// 1995) and, of what that lacks, of the last steps (BFGS). It says where f is wanted next, and is told. f is
// known to a tolerance that it sets: at most a small part of what a step promises. Where its metric
// promises less than the goal, it takes a step of a metric that is flatter wherever no step has been: it
// ends if that promises little, too, or gains nothing.
type learnSearch struct {
	prec    *mat.SymDense // of the priors
	lo, hi  []float64
	goal    float64
	exact   float64 // part of the goal, below which q need not be known
	longest float64
	reach   float64 // the longest step for now
	gain    float64 // that the step promises
	part    float64 // of the average information
	part0   float64

	cur     learnPoint
	begun   bool
	next    []float64
	slack   float64 // that is asked for
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
	done    bool
	stalled bool // it gave up: the promise is not below the goal, or f not known well enough
	doubted bool // the flatter metric still promises more than the goal

	checks   int  // steps of the flatter metric since one that gained
	checking bool // next is one
}

// begin starts from θ.
func (s *learnSearch) begin(theta []float64) {
	s.cur, s.begun, s.line, s.fresh = learnPoint{f: math.Inf(1)}, false, false, false
	s.done, s.stalled, s.doubted, s.checks, s.checking = false, false, false, 0, false
	s.next, s.slack, s.part = slices.Clone(theta), max(firstSlack, s.least()), s.part0
	s.promise, s.reach = math.Inf(1), s.longest
	s.steps, s.turns, s.low, s.waited = nil, nil, math.Inf(1), 0
}

// again begins at θ with what is known of the curvature, of so many times as many rows.
func (s *learnSearch) again(theta []float64, times float64) {
	steps, turns, part := s.steps, s.turns, s.part
	s.begin(theta)
	s.steps, s.part = steps, part
	var prior mat.VecDense
	for i, y := range turns {
		prior.MulVec(s.prec, mat.NewVecDense(len(y), steps[i]))
		turn := make([]float64, len(y))
		for j, v := range y {
			turn[j] = times*v + (1-times)*prior.AtVec(j)
		}
		s.turns = append(s.turns, turn)
	}
}

// least is how exactly f need be known at most.
func (s *learnSearch) least() float64 { return s.exact * s.goal }

// tell goes on from x, which is what was asked for.
func (s *learnSearch) tell(x learnPoint) {
	if s.waited++; x.f < s.low-stopPart*s.goal {
		s.low, s.waited = x.f, 0
	}
	switch {
	case s.checking:
		s.checked(x)
	case !s.line:
		if math.IsInf(x.f, 1) {
			s.giveUp()
			return
		}
		s.begun, s.cur = true, x
		s.aim()
	case s.waited > searchPatience:
		s.giveUp()
	case x.f <= s.most():
		s.learn(&x)
		switch gain := s.cur.f - x.f; {
		case s.tries > 0:
			s.reach = min(s.longest, reachAgain*s.t*maxAbs(s.dir))
		case gain > goodGain*s.gain:
			s.reach = min(reachAgain*s.reach, s.longest)
		case gain < littleGain*s.gain && math.Abs(gain) > s.cur.slack+x.slack:
			s.reach = min(s.reach, maxAbs(s.dir)) / reachAgain
		}
		s.cur, s.fresh, s.checks = x, false, 0
		s.aim()
	default:
		s.shorten(x.f)
	}
}

// checked goes on from the step x of the flatter metric.
func (s *learnSearch) checked(x learnPoint) {
	s.checking = false
	if !math.IsInf(x.f, 1) {
		s.learn(&x)
	}
	if gain := s.cur.f - x.f; gain > 0 {
		if gain > stopPart*s.goal {
			s.checks, s.reach = 0, s.longest
		}
		s.cur, s.fresh = x, false
	}
	s.aim()
}

// giveUp ends the search before its goal.
func (s *learnSearch) giveUp() { s.done, s.stalled = true, true }

// most is the largest f at next that is not too high to go there.
func (s *learnSearch) most() float64 {
	if !s.line || s.checking {
		return math.Inf(1)
	}
	return s.cur.f + armijo*s.t*s.slope + s.slack
}

// learn keeps the step to x, unless what f may be off by hides how the slope changes along it.
func (s *learnSearch) learn(x *learnPoint) {
	n := len(x.theta)
	step, turn := make([]float64, n), make([]float64, n)
	floats.SubTo(step, x.theta, s.cur.theta)
	floats.SubTo(turn, x.grad, s.cur.grad)
	sy := floats.Dot(step, turn)
	if !(s.cur.slack+x.slack <= noisyTurn*math.Abs(sy)) {
		return
	}
	v := mat.NewVecDense(n, step)
	var bs mat.VecDense
	bs.MulVec(s.curvature(s.part), v)
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
	if info := mat.Inner(v, x.info, v); info > 0 {
		part := (sy - mat.Inner(v, s.prec, v)) / info
		s.part = math.Sqrt(s.part * min(max(part, leastPart), 1)) // one step may not be like the next
	}
}

// curvature returns the metric at cur, with that part of the average information.
func (s *learnSearch) curvature(part float64) *mat.SymDense {
	n := len(s.cur.theta)
	b := mat.NewSymDense(n, nil)
	b.ScaleSym(part, s.cur.info)
	b.AddSym(b, s.prec)
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
func (s *learnSearch) inside(i int) bool {
	const edge = 1e-12
	t, g := s.cur.theta[i], s.cur.grad[i]
	return !(t <= s.lo[i]+edge*(1+math.Abs(t)) && g > 0 || t >= s.hi[i]-edge*(1+math.Abs(t)) && g < 0)
}

// solve returns −B⁻¹g, of the metric with that part of the average information, over the coordinates that
// are inside; the others stay.
func (s *learnSearch) solve(part float64) []float64 {
	n := len(s.cur.theta)
	b, rhs := s.curvature(part), mat.NewVecDense(n, nil)
	for i := range n {
		if s.inside(i) {
			rhs.SetVec(i, -s.cur.grad[i])
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
			d.SetVec(i, rhs.AtVec(i)/max(leastCurve, math.Abs(s.cur.info.At(i, i))+s.prec.At(i, i)))
		}
	}
	return d.RawVector().Data
}

// aim decides where to go from cur.
func (s *learnSearch) aim() {
	s.head(s.part)
	if s.promise = max(-0.5*s.slope, 0); s.promise < s.goal {
		s.finish(max(s.least(), stopPart*s.goal))
		return
	}
	s.gain = s.promise
	if m := maxAbs(s.dir); m > s.reach {
		short := s.reach / m
		s.gain = -s.slope * short * (1 - 0.5*short)
		floats.Scale(short, s.dir)
		s.slope *= short
	}
	s.slack = min(s.slack, max(s.least(), min(firstSlack, slackPart*s.gain)))
	s.try()
}

// head turns to the minimum of the metric with that part of the average information.
func (s *learnSearch) head(part float64) {
	s.dir, s.tries, s.t = s.solve(part), 0, 1
	s.slope = floats.Dot(s.dir, s.cur.grad)
}

// finish ends the search at cur, once f is known there to within enough nats and the flatter metric agrees.
func (s *learnSearch) finish(enough float64) {
	if s.cur.slack > enough {
		if again := !s.line && s.slack <= enough; again {
			s.done, s.stalled = true, s.promise+s.cur.slack > s.goal
			return
		}
		s.slack, s.line, s.next = enough, false, slices.Clone(s.cur.theta)
		return
	}
	s.head(checkPart * s.part)
	s.doubted = -0.5*s.slope > s.goal
	if s.done = !s.doubted || s.checks == mostChecks; s.done {
		return
	}
	s.checks++
	s.checking, s.slack = true, enough
	if m := maxAbs(s.dir); m > s.longest {
		floats.Scale(s.longest/m, s.dir)
	}
	s.try()
}

func maxAbs(v []float64) (m float64) {
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}

// try asks for f at length t.
func (s *learnSearch) try() {
	s.line, s.next = true, slices.Clone(s.cur.theta)
	for i, d := range s.dir {
		s.next[i] = min(max(s.next[i]+s.t*d, s.lo[i]), s.hi[i])
	}
}

// shorten goes back after f at length t.
func (s *learnSearch) shorten(f float64) {
	shorter := 0.25
	if !math.IsInf(f, 1) { // the minimum of the parabola
		shorter = min(max(-0.5*s.slope*s.t/(f-s.cur.f-s.slope*s.t), 0.1), 0.5)
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
	s.steps, s.turns, s.part, s.fresh = nil, nil, s.part0, true
	s.aim()
}

// state writes or reads s, of n coordinates.
func (s *learnSearch) state(c *save.State) {
	n := len(s.lo)
	s.cur.state(c, n)
	c.Bool(&s.begun, &s.line, &s.fresh, &s.done, &s.stalled, &s.doubted, &s.checking)
	c.Floats(n, &s.next, &s.dir)
	c.Float(&s.goal, &s.slack, &s.t, &s.slope, &s.promise, &s.part, &s.reach, &s.gain, &s.low)
	c.Int(&s.tries, &s.waited, &s.checks)
	for _, list := range []*[][]float64{&s.steps, &s.turns} {
		stateLists(c, n, searchPairs, list)
	}
	c.Check(len(s.steps) == len(s.turns), "a search has %d steps and %d turns", len(s.steps), len(s.turns))
}

// stateLists writes or reads at most so many slices of n numbers.
func stateLists(c *save.State, n, most int, list *[][]float64) {
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

func (x *learnPoint) state(c *save.State, n int) {
	c.Floats(n, &x.theta, &x.grad)
	c.Float(&x.f, &x.prior, &x.slack)
	has := x.info != nil
	if c.Bool(&has); !has {
		x.info = nil
		return
	}
	if c.Reading() {
		x.info = mat.NewSymDense(n, nil)
	}
	raw := x.info.RawSymmetric().Data
	c.Floats(n*n, &raw)
}
