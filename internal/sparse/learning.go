package sparse

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// These constants control the search for the hyperparameters of a sparse GP. They were tuned on two
// data sets, of a million rows and of fifty thousand.
const (
	firstStage = 3000 // rows of the first stage; each stage is a search for hyperparameters
	// The second stage has this fraction of all rows, but not more rows than the sample.
	stagePart  = 5
	mostStage  = 25_000
	leastStage = 400 // with fewer rows there is only one stage
	// firstTol and sampleTol are tolerances, in nats, of a stage that is followed by a larger
	// stage. sampleTol is multiplied by the weight of a row of the stage.
	firstTol  = 0.3
	sampleTol = 0.15
	// naturalRate is the ratio of the predicted gains of successive natural steps, until there is
	// a better estimate. leastRate is its lower bound.
	naturalRate = 0.01
	leastRate   = 1e-4
	hopeful     = 3 // a pass computes derivatives if its expected predicted gain is below this times the slack
	learnForm   = 4 // version of the saved state of a search
	// infoSlack is the gap of q in nats, per weight of a row, below which the average information
	// is close enough to its value at the optimum, where F∂₁ = m.
	infoSlack  = 1e-2
	mostPasses = 20 // passes at one θ
	// roughPart is the error allowed in the ELBO, relative to the gain of a step of the search.
	roughPart = 0.1

	// If the number of inducing inputs is a default, choosing up to StreamRank of them may cost
	// leaveNats plus fewNats for each row beyond rankRows. If more are needed, and in the first
	// stage, it may cost manyNats per row. worthRows rows of the sample estimate the cost.
	fewNats    = 1e-4
	manyNats   = 2e-3
	rankRows   = 5000
	screenRank = 100 // inducing inputs by which starts are compared
	// A stage keeps the inducing inputs of the stage before if they cost at most keepRank times
	// the allowance.
	keepRank = 2
	// searchLength shortens the length scales by which the first stage chooses its inducing inputs,
	// so that they also suit lengths that the search finds shorter.
	searchLength = 0.5
)

// spreadLengths are factors on the length scales by which spread chooses inducing inputs. The best
// choice is taken: even spacing is best in few columns, and inputs near the rows in many.
var spreadLengths = [...]float64{0.5, 1, 0.25}

// stagesOf returns the number of rows of each stage of a search over n rows. The sample in memory
// has kept rows.
func stagesOf(n, kept int) (stages []int) {
	for _, part := range [2]int{min(firstStage, kept), min(kept, mostStage, n/stagePart)} {
		if k := len(stages); part >= leastStage && 2*part <= n &&
			(k == 0 || 2*part >= 3*stages[k-1]) {
			stages = append(stages, part)
		}
	}
	return append(stages, n)
}

// Space holds the hyperparameters of a kernel and a likelihood that are learned.
type Space struct {
	Coords []learn.Coord
	Kernel Kernel // kernel at which the search begins
	Lik    Likelihood
	// Amplitudes lists the coordinates that are logarithms of standard deviations of latent values.
	Amplitudes []int
	// At returns the kernel, the kernel with derivatives and the likelihood at θ. It fails if θ is
	// out of range.
	At func(theta []float64) (k, slopes Kernel, lik Likelihood, err error)
}

// Point holds the results at one θ.
type Point struct {
	Theta []float64
	Z     *mat.Dense // inducing inputs
	At    *gauss.Gaussian
	Look  *Look // at At
	rows  int   // number of rows of the pass that found it
	// counts is the number of rows times their weight, the number of rows that they represent.
	counts float64
}

// Learning is the model of a sparse GP as a function of its hyperparameters, on the rows of a
// stage. It implements learn.Staged.
type Learning struct {
	Whole  Division   // division of the first kernel
	Fixed  *mat.Dense // fixed inducing inputs, or nil
	Rank   int        // largest number of inducing values
	Open   bool       // whether fewer inducing values may be used if they lose little
	Stages []int      // number of rows of each stage
	Best   Point

	space *Space
	stage int
	begun bool       // whether the search has begun, after the comparison of starts
	z     *mat.Dense // inducing inputs; nil if they are not chosen yet
	last  Point      // result at the last θ that was kept
	found Point
	rate  float64
	// afar is the predicted gain of the first look at the last state that was carried to another θ,
	// divided by the squared distance. It is +Inf before the first such state.
	afar   float64
	passes float64
	info   *mat.SymDense // the last average information
	pass   Pass
}

// NewLearning returns the model of rows, which chooses up to rank inducing values of the division
// whole. fit fits the sample from which a search starts.
func NewLearning(rows *Rows, space *Space, whole Division, rank int, fit Fit) *Learning {
	l := &Learning{Whole: whole, Rank: rank, Stages: stagesOf(rows.N, len(rows.Y)), space: space,
		rate: naturalRate, afar: math.Inf(1), pass: Pass{Rows: rows, Fit: fit}}
	if gaussian(space.Lik) {
		l.rate = 0 // one step is exact
	}
	return l
}

var _ learn.Staged = (*Learning)(nil)

func (l *Learning) Digest(d *save.Digest) {
	l.pass.Rows.Digest(d, l.space.Lik)
	l.space.Kernel.Identify(d)
	d.Int(l.Rank, learnForm)
	if l.Open {
		d.Int(1)
	}
	d.Int(l.Stages...)
	if l.Fixed != nil {
		d.Floats(l.Fixed.RawMatrix().Data)
	}
}

// Factored returns the inducing values of k, the kernel with other parameters, with the inducing
// inputs z. It returns nil if their covariance has no factor.
func (l *Learning) Factored(h *parallel.Halt, k Kernel, z *mat.Dense) *Inducing {
	return l.Whole.Again(k).Factored(h, z)
}

func (l *Learning) Use(c term.Crew) { l.pass.Workers = c }

func (l *Learning) Work() float64 { return l.passes }

func (l *Learning) Keep(best bool) {
	l.last = l.found
	if best {
		l.Best = l.found
	}
}

// Goal implements learn.Staged.
func (l *Learning) Goal(tol float64) float64 {
	switch l.stage {
	case len(l.Stages) - 1:
		return tol
	case 0:
		return firstTol
	default:
		return sampleTol * l.times()
	}
}

// times returns the weight of each row of the stage. After the first stage, the rows of a sample
// have weights that sum to the number of all rows, so the objective estimates the objective of all
// rows. It is biased, because q fits noise of the sample. See overfit.
func (l *Learning) times() float64 {
	if l.stage == 0 {
		return 1
	}
	return float64(l.pass.Rows.N) / float64(l.Stages[l.stage])
}

// overfit returns κ‖I − V‖² with κ = ½(times − 1). This is nearly how much lower −ELBO is for a
// sample of weighted rows than for all rows.
//
// Let G be the curvature of the rows without their weights, and V = (I + times·G)⁻¹. At the best q of
// many more rows, the slope of −ELBO has the covariance times²·G over samples, and q gains
// ½tr(V·times²G) = ½times·tr(I − V). All rows gain ½tr(I − V). ‖I − V‖² counts the weights that the
// rows determine, as tr(I − V) does, and rounding affects its slopes less. q is the end of the last
// natural step, because an error of V counts to first order.
func (l *Learning) overfit(q *gauss.Gaussian) float64 {
	kappa := 0.5 * (l.times() - 1)
	if kappa == 0 {
		return 0
	}
	q.Halt = l.pass.Workers.Halt
	q.Invert()
	m, sum := len(q.Mean), 0.0
	for i := range m {
		row := q.Inv[i*m : i*m+i]
		d := 1 - q.Inv[i*m+i]
		sum += 2*floats.Dot(row, row) + d*d
	}
	return kappa * sum
}

// Begin implements learn.Staged.
func (l *Learning) Begin() (rough float64, brief bool) {
	if l.begun = true; l.stage == 0 && l.Open {
		l.z = nil
	}
	return roughPart, l.stage > 0
}

// Advance implements learn.Staged.
func (l *Learning) Advance() (same, ok bool) {
	if l.stage == len(l.Stages)-1 {
		return true, false
	}
	if same = l.stage > 0; !same {
		l.info = nil
	}
	l.stage++
	l.afar = math.Inf(1)
	if l.rate > 0 { // the first steps on new rows gain more than the last steps on old rows
		l.rate = naturalRate
	}
	if l.z == nil || l.stage == 1 || l.Open && !l.suffices() ||
		!l.Open && l.z.RawMatrix().Rows < l.Rank-l.Whole.Wholes() {
		l.z = nil
	}
	return same, true
}

// allowance returns the nats that a choice of up to rank inducing inputs may cost on all rows.
func (l *Learning) allowance(rank int) float64 {
	each := fewNats
	if l.stage == 0 || rank > StreamRank {
		each = manyNats
	}
	return leaveNats + each*float64(max(0, l.pass.Rows.N-rankRows))
}

// costs returns rows x of the sample, the prior variances of k at them, and the nats per unit of
// variance. The costs are scaled so that their sum over x estimates the sum over all rows.
func (l *Learning) costs(k Kernel, lik Likelihood) (x *mat.Dense, prior, cost []float64) {
	r := l.pass.Rows
	n := min(len(r.Y), rankRows)
	x = r.Sample(n)
	prior = variances(nil, k, x)
	cost = costs(l.pass.Workers.Halt, prior, r.Terms(lik, n))
	floats.Scale(float64(r.N)/float64(n), cost)
	return x, prior, cost
}

// suffices reports whether the current inducing inputs are good enough at the best θ.
func (l *Learning) suffices() bool {
	k, _, lik, err := l.space.At(l.Best.Theta)
	if err != nil {
		return false
	}
	v := l.Whole.Again(k)
	if v.Rest == nil {
		return true
	}
	x, _, cost := l.costs(v.Rest, lik)
	m, _ := l.z.Dims()
	return l.lost(v.Rest, l.z, x, cost) <= keepRank*l.allowance(m+v.Wholes()+1)
}

// lost returns the nats that the inducing inputs z lose at the rows of x. k is the kernel without its
// whole terms, and cost holds the nats for each unit of variance at each row. The result is +Inf if
// the covariance of z has no Cholesky factor.
func (l *Learning) lost(k Kernel, z, x *mat.Dense, cost []float64) float64 {
	u := Undivided(k).Factored(l.pass.Workers.Halt, z)
	if u == nil {
		return math.Inf(1)
	}
	var w Work
	u.Room(&w, len(cost)).Copy(x)
	u.Features(&w)
	left := make([]float64, len(cost))
	u.Left(&w, left)
	return floats.Dot(left, cost)
}

// choose chooses the inducing inputs of the stage, near θ.
func (l *Learning) choose(k Kernel, lik Likelihood) error {
	if l.z = l.Fixed; l.z != nil {
		return nil
	}
	v := l.Whole.Again(k)
	k = v.Rest
	n, rank := min(l.Stages[l.stage], len(l.pass.Rows.Y)), max(1, l.Rank-v.Wholes())
	switch screening := l.Open && !l.begun; {
	case screening:
		rank = min(rank, screenRank)
	case l.stage == 0 && len(l.Stages) > 1:
		rank = min(rank, StreamRank)
	}
	if l.Open && l.begun {
		return l.suit(k, lik, rank)
	}
	if l.stage == 0 {
		k = k.Shorter(1 / learn.ScreenShorter[0])
	}
	z, err := spread(l.pass.Workers.Halt, k, l.pass.Rows.Sample(min(n, ChooseRows)), min(rank, n))
	l.z = z
	return err
}

// suit chooses up to rank inducing inputs that suit k, the rest of the kernel. It stops when
// further inputs are not worth their cost.
func (l *Learning) suit(k Kernel, lik Likelihood, rank int) error {
	if l.stage == 0 {
		k = k.Shorter(searchLength)
	}
	x, prior, cost := l.costs(k, lik)
	for _, most := range [2]int{min(rank, StreamRank), rank} {
		nats := l.allowance(most)
		u, f, err := pick(l.pass.Workers.Halt, k, x, most,
			worth{cost: cost, part: 1, nats: nats, negligible: negligible})
		if err != nil {
			return err
		}
		l.z = u.X
		m, lost := u.Rank(), 0.0
		for i, c := range cost {
			row := f[i*m : (i+1)*m]
			lost += c * max(0, prior[i]-floats.Dot(row, row))
		}
		if lost <= nats {
			return nil
		}
		if most == rank || lost <= l.allowance(rank) {
			break
		}
	}
	// There are too few inducing inputs, so they are spread over all rows instead.
	m, _ := l.z.Dims()
	lengths, least := spreadLengths[:], math.Inf(1)
	if l.stage == 0 { // the next stage chooses again
		lengths = lengths[:1]
	}
	for i, shorter := range lengths {
		z, err := spread(l.pass.Workers.Halt, k.Shorter(shorter), x, m)
		if err != nil {
			return err
		}
		if lost := l.lost(k, z, x, cost); lost < least || i == 0 {
			l.z, least = z, lost
		}
	}
	return nil
}

// Evaluate implements learn.Model.
func (l *Learning) Evaluate(theta []float64, slack, _ float64, wanted bool) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	k, derivs, lik, err := l.space.At(theta)
	if err != nil {
		return none, nil // out of range
	}
	h := l.pass.Workers.Halt
	if l.z == nil {
		if err := l.choose(k, lik); h.Stopped() {
			l.z = nil
			return none, h.Err()
		} else if err != nil {
			if l.z = nil; errors.Is(err, sentinel.ErrNotFinite) {
				err = nil // out of range
			}
			return none, err
		}
	}
	p := &l.pass
	p.Lik, p.From = lik, l.Stages[l.stage]
	if p.From == l.pass.Rows.N {
		p.From = 0
	}
	p.Times = l.times()
	if p.Z = l.Factored(h, k, l.z); h.Stopped() {
		return none, h.Err()
	} else if p.Z == nil {
		return none, nil
	}
	at, err := l.expect(theta, slack, derivs, wanted)
	switch {
	case h.Stopped():
		return none, h.Err()
	case errors.Is(err, sentinel.ErrShape): // the rows are not the rows of the first pass
		return none, err
	case err != nil:
		return none, nil
	}
	return *at, nil
}

// nearest returns the last or best point, whichever is nearer to θ. A point is skipped unless it has
// the current inducing inputs or the same θ. The result is nil if both are skipped.
func (l *Learning) nearest(theta []float64) (near *Point) {
	var least float64
	for _, p := range [2]*Point{&l.last, &l.Best} {
		if p.Theta == nil || !mat.Equal(p.Z, l.z) && !slices.Equal(p.Theta, theta) {
			continue
		}
		if d := floats.Distance(p.Theta, theta, 2); near == nil || d < least {
			near, least = p, d
		}
	}
	return near
}

// carried returns the state of p as a state at u, scaled to the number of rows of the current pass.
// u has the inducing inputs of p or its θ. The result is nil if p has no state. Near the θ of p it is
// close to the best state, because the information of the rows about latent values changes little
// with θ, unlike their information about weights.
func (l *Learning) carried(p *Point, u *Inducing) *gauss.Gaussian {
	k, _, _, err := l.space.At(p.Theta)
	if err != nil {
		return nil
	}
	from := l.Factored(l.pass.Workers.Halt, k, p.Z)
	if from == nil {
		return nil
	}
	q := from.Carry(u, p.Look.Next.Mean, &p.Look.Next)
	times := l.pass.times() * float64(l.pass.len()) / p.counts
	if q == nil || times != 1 && !q.Times(times) {
		return nil
	}
	return q
}

// begin returns the first q of the natural steps at θ, and the point from which it was carried.
// That point is nil if q was not carried.
func (l *Learning) begin(theta []float64) (
	q *gauss.Gaussian, near *Point, err error) {
	p, n := &l.pass, len(l.pass.Rows.Y)
	sampled := p.From == 0 && n < l.pass.Rows.N
	if near = l.nearest(theta); near != nil {
		sampled = sampled && near.rows < n
		q = l.carried(near, p.Z)
	}
	steps := 1
	if q == nil {
		if near, steps = nil, sampleSteps; l.pass.Workers.Halt.Stopped() {
			return nil, nil, l.pass.Workers.Halt.Err()
		}
		if q, err = p.Cold(); err != nil {
			return nil, nil, err
		}
	}
	if sampled {
		near, p.Times = nil, float64(l.pass.Rows.N)/float64(n)
		q, err = climb(p, q, n, steps, sampleGoal)
		p.Times = 1
	}
	return q, near, err
}

// expect finds q at θ to within the given number of nats, with derivatives if wanted.
func (l *Learning) expect(theta []float64, slack float64, derivs Kernel, wanted bool) (
	*search.Point, error) {
	p := &l.pass
	p.each = nil
	q, near, err := l.begin(theta)
	if err != nil {
		return nil, err
	}
	var s *slopes
	if wanted {
		// If info is false, the average information of fewer rows is used. It is too large if q fits
		// noise of these rows. Under Gaussian noise a step is exact, so any slack will do.
		info := p.From > 0 || l.info == nil || len(l.Stages) == 1 ||
			l.pass.Rows.All == nil && (slack <= infoSlack || gaussian(p.Lik))
		if info {
			slack = min(slack, infoSlack*p.times())
		}
		if s, err = newSlopes(p, l.space, derivs, theta, info); err != nil {
			return nil, err
		}
		s.excess = 0.5 * (p.times() - 1)
	}
	a := Ascent{Pass: p}
	if a.Start(q); p.From == 0 && l.pass.Rows.All != nil && near == nil {
		if err := a.Begin(); err != nil {
			return nil, err
		}
		l.passes += l.part()
	}
	known, err := l.ascend(&a, s, theta, near, slack)
	if err != nil {
		return nil, err
	}
	if s != nil && !known {
		s.at(a.At)
		p.each = s.add
		if a.Look, err = p.At(a.At); err != nil {
			return nil, err
		}
		l.passes += l.part()
	}
	p.each = nil
	if math.IsInf(a.Look.ELBO, 0) || math.IsNaN(a.Look.ELBO) {
		return nil, sentinel.ErrNotFinite
	}
	l.found = Point{slices.Clone(theta), l.z, a.At, a.Look, p.len(),
		p.times() * float64(p.len())}
	x, err := l.pointOf(a.Look, s)
	if err == nil {
		x.F += l.overfit(&a.Look.Next)
	}
	return x, err
}

// part returns the work of a pass of this stage as a fraction of a pass over all rows.
func (l *Learning) part() float64 {
	return float64(l.Stages[l.stage]) / float64(l.pass.Rows.N)
}

// ascend moves a to within slack of the best q at θ. near is a point near θ, or nil. ascend
// reports whether s, unless it is nil, has the derivatives at the last state: passes add them up
// when they are expected to be the last.
func (l *Learning) ascend(a *Ascent, s *slopes, theta []float64, near *Point, slack float64) (
	known bool, err error) {
	p := a.Pass
	// expected predicted gain of the next look
	expected := a.Gap()
	if !math.IsInf(expected, 1) {
		expected *= l.rate
	}
	distance := math.NaN()
	if near != nil && near.rows == p.len() && mat.Equal(near.Z, l.z) {
		distance = floats.Distance(near.Theta, theta, 2)
		expected = l.afar * distance * distance
	}
	for i := range mostPasses {
		with := s != nil && (expected <= hopeful*slack || i == mostPasses-1)
		if p.each = nil; with {
			s.at(a.Try)
			p.each = s.add
		}
		before := a.Look
		switch err := a.Move(); {
		case err != nil && i == 0 && near != nil && a.falls(err):
			q, err := p.Cold()
			if err != nil {
				return false, err
			}
			a.Start(q)
			expected, distance = math.Inf(1), math.NaN()
			continue
		case err != nil:
			return false, err
		}
		l.passes += l.part()
		if a.Look == before { // it fell
			if a.Stuck() {
				break
			}
			continue
		}
		known = with
		if before == nil && distance > 0 {
			l.afar = a.Look.Promise / (distance * distance)
		}
		if before != nil && before.Promise > 0 && l.rate > 0 {
			l.rate = min(max(a.Look.Promise/before.Promise, leastRate), 1)
		}
		if expected = l.rate * a.Look.Promise; a.Look.Promise <= slack {
			if s == nil || known {
				break
			}
			expected = 0
		}
	}
	return known, nil
}

// pointOf returns the point of the search for a look, with the derivatives of s unless that is
// nil.
func (l *Learning) pointOf(look *Look, s *slopes) (*search.Point, error) {
	x := &search.Point{F: -look.ELBO, Slack: look.Promise}
	if s == nil {
		return x, nil
	}
	x.Grad, x.Info = s.point(look)
	for _, g := range x.Grad {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return nil, sentinel.ErrNotFinite
		}
	}
	if x.Info == nil { // information from fewer rows, in proportion
		x.Info = mat.NewSymDense(len(x.Grad), nil)
		x.Info.CopySym(l.info)
	}
	l.info = x.Info
	return x, nil
}

func (l *Learning) State(c *save.Coder, n int) {
	c.Int(&l.stage)
	c.Check(l.stage >= 0 && l.stage < len(l.Stages), "a search is in stage %d", l.stage)
	c.Bool(&l.begun)
	c.Float(&l.rate, &l.afar, &l.passes)
	stateMatrix(c, &l.z, l.pass.Rows.Cols)
	l.last.state(c, n, l.pass.Rows.Cols)
	l.Best.state(c, n, l.pass.Rows.Cols)
	search.StateSym(c, n, &l.info)
}

func (p *Point) state(c *save.Coder, n, cols int) {
	has := p.Theta != nil
	c.Bool(&has)
	if c.Reading() {
		*p = Point{}
	}
	if !has || c.Err() != nil {
		return
	}
	c.Floats(n, &p.Theta)
	c.Int(&p.rows)
	c.Float(&p.counts)
	stateMatrix(c, &p.Z, cols)
	if c.Err() != nil {
		return
	}
	c.Check(p.Z != nil, "a search has no inducing inputs")
	if c.Reading() {
		p.At, p.Look = &gauss.Gaussian{}, &Look{}
	}
	if c.Err() == nil {
		m, _ := p.Z.Dims()
		p.At.State(c, m)
		p.Look.State(c, m)
	}
}

// stateMatrix writes or reads a matrix of the given number of columns, which may be nil.
func stateMatrix(c *save.Coder, x **mat.Dense, cols int) {
	rows := 0
	if *x != nil {
		rows, _ = (*x).Dims()
	}
	c.Int(&rows)
	c.Check(rows >= 0 && rows <= math.MaxInt32, "a matrix has %d rows", rows)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		*x = nil
	}
	if rows == 0 {
		return
	}
	var data []float64
	if !c.Reading() {
		data = (*x).RawMatrix().Data
	}
	if c.Floats(rows*cols, &data); c.Reading() {
		*x = mat.NewDense(rows, cols, data)
	}
}
