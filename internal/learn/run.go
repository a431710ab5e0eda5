package learn

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"gonum.org/v1/gonum/mat"
)

// DefaultTol is the default of Options.Tol.
const DefaultTol = 1e-4

// screenSlack is the accuracy, in nats, with which starts are compared.
const screenSlack = 0.3

// screenWorse is the loss, in nats per observation, at which a start with shorter length scales
// ends the screening if each column has a length scale of its own. With many columns all rows are
// then far from each other. With few columns the structure may be finer than everything tried so
// far.
const screenWorse = 0.1

// secondWorse is the number of nats by which the second best start, with the best noise for each
// start, may be worse and still gets a search. Of 400 random problems with one to six columns, 74
// had a second search, and 6 ended up to 0.9 nats above the best known objective. Without a second
// search, 11 ended up to 2.3 nats above it.
const secondWorse = 1.0

// mostEvaluations bounds the evaluations from one start.
const mostEvaluations = 200

// mostStages is the number of stages that a staged model may have.
const mostStages = 3

// Options holds the options of the searches of a Run.
type Options struct {
	Restarts  int     // further starts, drawn from the priors
	Tol       float64 // nats that the objective may be above its minimum; 0 is DefaultTol
	Composite bool    // the kernel has parts, which can change places
}

// Run searches for the θ with the smallest −ELBO − log prior, from one start or several. Each step
// is one evaluation.
type Run struct {
	Model  Model
	Search search.Search // the current search
	Best   search.Point  // Theta is nil before there is one
	Ended  search.Ending // how the search that found Best has ended
	Ends   []float64     // final objectives of the searches
	Count  int           // values of θ that were tried
	Done   bool          // no search is left
	News   bool          // the last step has changed Objective or Done
	Stale  bool          // Best is from a stage with fewer rows

	space  *Space
	n      int          // terms of f
	screen [][]float64  // starts that have not been compared yet
	first  search.Point // the best start so far
	second search.Point // the second best start, if noise is profiled
	last   float64      // objective of the last profiled start
	valley bool         // a start between two others was worse than both
	later  [][]float64  // starts of further searches
	ahead  bool         // the current search has found Best
	tol    float64
	stages int // number of stages that have ended

	bending bool        // the curvature at Best is being measured
	bends   [][]float64 // gradients a step of bendStep from Best in each coordinate
	bent    bool        // the search has the curvature, measured near its end
	tried   bool        // that measurement was begun
}

// Space returns the space of the hyperparameters.
func (s *Run) Space() *Space { return s.space }

// NewRun returns the run of m over space, with n terms.
func NewRun(m Model, space *Space, n int, o Options, rng *rand.Rand) *Run {
	s := &Run{Model: m, space: space, n: n, screen: space.Starts(), tol: o.Tol}
	s.first.F, s.second.F, s.Best.F, s.last = math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)
	if s.tol == 0 {
		s.tol = DefaultTol
	}
	s.Search = search.Search{
		Prec: space.prec, Goal: s.tol, Exact: search.ExactPart,
		Longest: search.LongestStep, Part0: search.Part,
	}
	if space.Gaussian {
		s.Search.Part0 = 1
	}
	if m, ok := m.(Staged); ok {
		s.Search.Goal, s.Search.Exact = m.Goal(s.tol), search.StagedPart
	} else if n <= bendRows {
		s.Search.Close = min(bendSlack, search.StopPart*s.tol)
	}
	if o.Composite {
		s.Search.Longest = search.CompositeStep
	}
	for _, c := range space.Coords {
		s.Search.Lo, s.Search.Hi = append(s.Search.Lo, c.Lo), append(s.Search.Hi, c.Hi)
	}
	for range o.Restarts {
		s.later = append(s.later, space.draw(s.screen[0], rng))
	}
	if p, ok := m.(Noisy); len(s.screen) == 1 && !(ok && p.Profiles()) {
		s.begin(s.screen[0])
		s.screen = nil
	}
	return s
}

// Most bounds the evaluations of s.
func (s *Run) Most() int {
	searches := 1 + len(s.later) + len(s.Ends)
	if s.space.noisyStart() != nil {
		searches++
	}
	if _, ok := s.Model.(Staged); ok {
		searches += mostStages - 1
	}
	return mostEvaluations * searches
}

// Objective returns the smallest −ELBO − log prior so far.
func (s *Run) Objective() float64 { return min(s.Best.F, s.first.F) }

// Step evaluates the model at the next θ. It returns the largest slope there, or 0 if it did not
// compute slopes.
func (s *Run) Step() (slope float64, err error) {
	if s.News = s.Done; s.Done {
		return 0, nil
	}
	if p, ok := s.Model.(Noisy); len(s.screen) > 0 && ok && p.Profiles() {
		return 0, s.profile(p)
	}
	if len(s.screen) > 0 {
		return 0, s.compare()
	}
	if s.bending {
		return 0, s.bend()
	}
	x, err := s.at(s.Search.Next, s.Search.Slack, s.Search.Most(), true)
	if err != nil {
		return 0, err
	}
	first := s.Best.Theta == nil
	if s.Search.Tell(x); !math.IsInf(x.F, 1) {
		slope = goals.NeverZero(search.MaxAbs(x.Grad))
		better := s.Stale || x.F < s.Best.F || s.Best.Theta != nil && slices.Equal(x.Theta,
			s.Best.Theta)
		if better {
			s.Best, s.News, s.Stale, s.ahead = x, true, false, true
		}
		s.Model.Keep(better)
		if first && !s.Search.Done {
			s.foresee()
		}
	}
	s.goOn()
	return slope, nil
}

// goOn decides what follows a step of the search: a measurement of the curvature, the next search,
// or the end of the run.
func (s *Run) goOn() {
	early := !s.tried && s.tol >= bendTol && s.only()
	switch {
	case early && s.Search.Near(bendGain, s.Search.Close) && s.bendable():
		s.bending, s.tried = true, true
	case s.Search.Done:
		s.end()
		s.News = s.News || s.Done
	}
}

// only reports whether s has one search, which is at Best.
func (s *Run) only() bool {
	return len(s.later) == 0 && len(s.Ends) == 0 && s.Best.Theta != nil &&
		slices.Equal(s.Best.Theta, s.Search.Cur.Theta)
}

// compare chooses the next start, given the best start so far.
func (s *Run) compare() error {
	noisy := s.space.noisyStart()
	doubtful := slices.Equal(s.screen[0], noisy)
	most := s.first.F
	if doubtful {
		most += screenWorse * float64(s.n)
	}
	x, err := s.at(s.screen[0], screenSlack, most, false)
	if err != nil {
		return err
	}
	s.screen = s.screen[1:]
	better := x.F < s.first.F || s.first.Theta == nil
	if doubtful && x.F <= most { // both are worth a search
		other := x.Theta
		if better {
			other = s.first.Theta
		}
		s.later = slices.Insert(s.later, 0, other)
	}
	if better {
		s.first, s.News = x, true
		if !math.IsInf(x.F, 1) { // the run may end here
			s.Best = x
		}
	} else if s.space.screened() > 1 && x.F > s.first.F+screenWorse*float64(s.n) {
		s.screen = nil
	}
	if !math.IsInf(x.F, 1) {
		s.Model.Keep(better)
	}
	if len(s.screen) == 0 && noisy != nil && !doubtful && !slices.Equal(s.first.Theta,
		s.space.Starts()[0]) {
		s.screen = [][]float64{noisy}
	}
	if len(s.screen) == 0 {
		s.begin(s.first.Theta)
	}
	return nil
}

// profile chooses the next start, given the best start so far, with the noise and the scale that
// are best for its length scales. The second best start also gets a search if it is within a nat,
// or if it is not far worse and a start between both is worse than both.
func (s *Run) profile(p Noisy) error {
	x, err := p.Profile(s.screen[0])
	if err != nil {
		return err
	}
	s.Count++
	s.screen = s.screen[1:]
	s.valley = s.valley || x.F < s.last && s.last > s.first.F
	far := s.space.screened() > 1 && x.F > s.first.F+screenWorse*float64(s.n)
	switch s.last = x.F; {
	case x.F < s.first.F || s.first.Theta == nil:
		s.first, s.second, s.News = x, s.first, true
	case x.F < s.second.F:
		s.second = x
	}
	if far {
		s.screen = nil
	}
	if len(s.screen) > 0 {
		return nil
	}
	worse := secondWorse
	if s.valley {
		worse = screenWorse * float64(s.n)
	}
	if s.second.F < s.first.F+worse {
		s.later = slices.Insert(s.later, 0, s.second.Theta)
	}
	s.begin(s.first.Theta)
	return nil
}

// begin begins a search at θ.
func (s *Run) begin(theta []float64) {
	s.manner()
	s.Search.Begin(theta)
}

// manner sets the options of a search that a staged model requests.
func (s *Run) manner() {
	if m, ok := s.Model.(Staged); ok {
		s.Search.Rough, s.Search.Brief = m.Begin()
	}
}

// at evaluates θ. See Model.
func (s *Run) at(theta []float64, slack, most float64, slopes bool) (search.Point, error) {
	x, err := s.Model.Evaluate(theta, slack, most-s.space.Penalty(theta, nil), slopes)
	if err != nil {
		return x, err
	}
	x.Theta = slices.Clone(theta)
	x.Prior = s.space.Penalty(theta, x.Grad)
	if x.F += x.Prior; math.IsNaN(x.F) {
		x.F = math.Inf(1)
	}
	// a repeated θ is only computed more exactly, so it does not count
	if !slices.Equal(theta, s.first.Theta) && !slices.Equal(theta, s.Search.Cur.Theta) {
		s.Count++
	}
	return x, nil
}

// end ends a search and begins the next search.
func (s *Run) end() {
	if central := s.space.central(); s.Best.Theta == nil && !slices.Equal(s.Search.Next, central) {
		s.begin(central) // a start without an ELBO, such as a scale far above the responses
		return
	}
	if s.stages == 0 { // later ones have one search each
		s.Ends = append(s.Ends, s.Search.Cur.F)
	}
	if s.ahead {
		s.Ended, s.ahead = s.Search.End(), false
	}
	if len(s.later) == 0 {
		if !s.advance() {
			s.bending = !s.bent && s.bendable()
			s.Done = !s.bending
		}
		return
	}
	s.begin(s.later[0])
	s.later = s.later[1:]
}

// advance continues from the best θ with more rows. It reports false if there are none.
func (s *Run) advance() bool {
	m, ok := s.Model.(Staged)
	if !ok || s.Best.Theta == nil {
		return false
	}
	same, more := m.Advance()
	if !more {
		return false
	}
	s.Search.Goal = m.Goal(s.tol)
	s.manner()
	s.Search.Again(s.Best.Theta, same)
	s.first.F, s.Stale, s.News = math.Inf(1), true, false
	s.stages++
	return true
}

// AtBound reports whether coordinate i ended at a bound.
func (s *Run) AtBound(i int) bool {
	t := s.Best.Theta[i]
	return math.Min(t-s.Search.Lo[i], s.Search.Hi[i]-t) < 1e-6*(1+math.Abs(t))
}

// Deviations returns the standard deviations of θ, as if the curvature of the search were the
// curvature of −log posterior.
func (s *Run) Deviations() []float64 {
	sd := make([]float64, len(s.space.Coords))
	if cov := s.covariance(); cov != nil {
		for i := range sd {
			sd[i] = math.Sqrt(cov.At(i, i))
		}
	}
	return sd
}

// covariance returns the covariance of θ by the curvature at Best, or nil if the curvature is not
// known. It is the covariance given the coordinates of the list.
func (s *Run) covariance(known ...int) *mat.SymDense {
	if s.Best.Info == nil {
		return nil
	}
	of := s.Search
	of.Cur = s.Best
	b := of.Curvature(of.Part)
	for i := range s.space.Coords {
		if s.settled(i) || slices.Contains(known, i) {
			for j := range s.space.Coords {
				b.SetSym(i, j, 0)
			}
			b.SetSym(i, i, 1)
		}
	}
	return inverse(b)
}

// settled reports whether coordinate i ended at a bound that is an ordinary value, or has no effect
// on the objective.
func (s *Run) settled(i int) bool {
	c := &s.space.Coords[i]
	g, t := s.Best.Grad[i], s.Best.Theta[i]
	return c.Edge && (g == 0 || g > 0 && t <= s.Search.Lo[i] || g < 0 && t >= s.Search.Hi[i])
}

// valueSlack is the accuracy of Value, in nats.
const valueSlack = 0.01

// Value returns the objective at θ, or NaN if it cannot be computed.
func (s *Run) Value(theta []float64) float64 {
	x, err := s.Model.Evaluate(theta, valueSlack, math.Inf(1), false)
	if err != nil {
		return math.NaN()
	}
	return x.F + s.space.Penalty(theta, nil)
}

// The curvature at Best is measured by one gradient per coordinate, because the search infers it
// from long steps and coarse q. This costs too much for more than bendRows rows, and for more than
// bendMost coordinates if the search made fewer evaluations. It says nothing about flat
// directions. A run with one search measures the curvature as soon as the search comes near its
// end, which saves some of the last steps.
const (
	bendRows  = 2000
	bendMost  = 12   // coordinates
	bendStep  = 0.1  // standard deviations by the average information, at most this in θ
	bendTol   = 1e-6 // least Options.Tol at which the curvature is measured before the end
	bendGain  = 0.01 // predicted gain, in nats, below which a search is near its end
	bendFar   = 0.03 // predicted gain by the measured curvature above which it was not near
	bendLeast = 0.01 // least average information of a direction that is not flat: sd 10 in θ
	bendSlack = 1e-5 // largest error of f, in nats, while the curvature is measured
)

// bendable reports whether the curvature at Best can be measured.
func (s *Run) bendable() bool {
	_, staged := s.Model.(Staged)
	if staged || s.n > bendRows || len(s.space.Coords) > max(bendMost, s.Count) ||
		s.covariance() == nil {
		return false
	}
	var b mat.SymDense
	b.AddSym(s.Best.Info, s.space.prec)
	return flattest(&b) >= bendLeast
}

// bendAt returns the step from x in coordinate i, upward unless that leaves the bounds. Its sign
// does not depend on slopes, because the order of the rows changes their rounding.
func (s *Run) bendAt(x *search.Point, i int) float64 {
	h := bendStep / math.Sqrt(max(1, x.Info.At(i, i)+s.space.prec.At(i, i)))
	if x.Theta[i]+h > s.Search.Hi[i] {
		return -h
	}
	return h
}

// bend evaluates the gradient a step from Best in the next coordinate. If the objective has no
// value there, the curvature stays the one that the search has found.
func (s *Run) bend() error {
	i := len(s.bends)
	theta := slices.Clone(s.Best.Theta)
	theta[i] += s.bendAt(&s.Best, i)
	x, err := s.at(theta, s.Search.Close, math.Inf(1), true)
	if err != nil {
		return err
	}
	if s.bends = append(s.bends, x.Grad); x.Grad == nil {
		s.unbend()
	} else if len(s.bends) == len(theta) {
		s.measure()
	}
	return nil
}

// measure passes the curvature at Best to the search, if it is positive definite.
func (s *Run) measure() {
	b := s.curvature(&s.Best, s.bends)
	ended := len(s.Ends) > 0
	if inverse(b) == nil {
		s.unbend()
		return
	}
	promise := s.Search.Measure(b, ended)
	s.bent = ended || promise <= bendFar
	s.unbend()
}

// unbend ends the measurement.
func (s *Run) unbend() {
	s.bends, s.bending = nil, false
	if len(s.Ends) > 0 {
		s.Done, s.News = true, true
		return
	}
	s.goOn()
}

// curvature returns the curvature at x from differences between its gradient and the gradients one
// step of bendAt away.
func (s *Run) curvature(x *search.Point, bends [][]float64) *mat.SymDense {
	b := mat.NewSymDense(len(bends), nil)
	for i, g := range bends {
		h := s.bendAt(x, i)
		for j := range g {
			half := (g[j] - x.Grad[j]) / (2 * h)
			b.SetSym(i, j, b.At(i, j)+half)
			if i == j {
				b.SetSym(i, i, b.At(i, i)+half)
			}
		}
	}
	return b
}

// flattest returns the smallest eigenvalue of b, or 0 if it cannot be computed.
func flattest(b *mat.SymDense) float64 {
	var e mat.EigenSym
	if !e.Factorize(b, false) {
		return 0
	}
	return e.Values(nil)[0]
}

// inverse returns the inverse of b, or nil if b is not positive definite.
func inverse(b *mat.SymDense) *mat.SymDense {
	var chol mat.Cholesky
	var inv mat.SymDense
	if !chol.Factorize(b) || chol.InverseTo(&inv) != nil {
		return nil
	}
	return &inv
}

// Digest adds the settings of the searches of s to d, except for the model and the space.
func (s *Run) Digest(d *save.Digest) { d.Float(s.tol, s.Search.Longest, s.Search.Part0) }

// State writes or reads everything that later steps depend on.
func (s *Run) State(c *save.Coder) {
	n := len(s.space.Coords)
	s.Search.State(c)
	search.StateLists(c, n, math.MaxInt32, &s.screen)
	search.StateLists(c, n, math.MaxInt32, &s.later)
	s.first.State(c, n)
	s.Best.State(c, n)
	k := len(s.Ends)
	c.Int(&k)
	c.Floats(k, &s.Ends)
	c.Int(&s.Count, &s.stages)
	c.Bool(&s.Done, &s.Stale, &s.ahead, &s.Ended.Stuck, &s.Ended.Doubted)
	c.Float(&s.Ended.Left)
	s.second.State(c, n)
	c.Float(&s.last)
	c.Bool(&s.valley, &s.bending, &s.bent, &s.tried)
	search.StateLists(c, n, n, &s.bends)
	s.Model.State(c, n)
}
