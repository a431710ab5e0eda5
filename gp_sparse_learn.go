package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Learning the hyper-parameters of a SparseGP, from trials on two data sets of a million rows and
// fifty thousand.
const (
	firstStage = 3000 // rows of the first stage, of which each is a search over hyper-parameters
	// the second has so many times fewer than all, and at most those of the sample
	stagePart  = 4
	leastStage = 400  // of fewer rows there is no stage of a part
	stageTol   = 0.2  // nats that the search may leave where there are more rows to come
	rowTol     = 2e-5 // the same at the end, for each row beyond tolRows: predictions show no more
	tolRows    = 5000
	priorRows  = 1000 // rows of more than medianRows that default priors are made by
	// part of what a natural step promises that the next one does, until there is a better guess
	naturalRate = 0.01
	leastRate   = 1e-4
	hopeful     = 4 // times the slack: a pass that is expected to promise less has derivatives
	learnForm   = 2 // of the State of a search, which another form cannot go on from
	// nats below the best q at which the average information is good: it is that of F∂₁ = m
	infoSlack  = 1e-2
	mostPasses = 20 // passes at one θ
)

// sparseGPLearner is the Learner of a SparseGP.
type sparseGPLearner struct {
	g     *SparseGP
	opt   LearnOptions
	space *learnSpace
	rows  *rowSource
}

// Learn fits the hyper-parameters of kernel and likelihood (empirical Bayes, type-II maximum
// likelihood), minimising −ELBO − log prior. It returns the SparseGP with the learned values, its
// posterior, and a Learned with intervals and warnings. See GP.Learn for the parameters,
// defaults, options and errors. With more than 5000 rows a sample determines the default priors.
// For a Softmax see there.
//
// Zero opt.Tol means 1e-4 nats, and 2e-5 nats more for each row beyond 5000: 0.9 nats for 50,000
// rows. On generated labels the log loss of predictions then differs by less than 0.001 bits a row
// from that of a search to 1e-4 nats. Learned.Passes counts the passes over all rows; a pass over a
// part counts as that part.
func (g *SparseGP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*SparseGP, *SparseGPPosterior, *Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	return learnBy(ctx, s, l)
}

// Learner returns the model whose runs learn the hyper-parameters of g. The errors are those of
// Learn.
//
// The inducing inputs are those of SparseGPOptions.Inducing. Without these they are chosen again
// in each stage of the search: on 3000 rows, on the 50,000 of a sample or a quarter of all, and
// on all. Those of 10,000 rows or more are kept. The objective of an iteration is that of the
// rows of its stage.
//
// At each θ a run takes natural-gradient steps, each a pass over the rows of the stage, until the
// next promises little enough. They start from the nearest earlier θ, where q says what the rows
// tell of the latent values at the inducing inputs: that changes little with θ, so that one or two
// passes do. The last of them also computes the derivatives.
func (g *SparseGP) Learner(opt *LearnOptions) (Learner[*SparseGP, *SparseGPPosterior], error) {
	if latentsOf(g.lik) > 1 {
		l, err := newSparseClassLearner(g, opt)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l := &sparseGPLearner{g: g, rows: g.rows}
	if opt != nil {
		l.opt = *opt
	}
	if l.rows == nil {
		l.rows = rowSourceOf(g.x, g.terms)
	}
	n := len(l.rows.y)
	if l.rows.n > medianRows {
		n = min(n, priorRows)
	}
	var err error
	if l.space, err = newLearnSpace(g.z.kernel, g.lik, &rowPairs{x: l.rows.sample(n)}, l.rows.y[:n], &l.opt); err != nil {
		return nil, err
	}
	if l.opt.Tol == 0 {
		l.opt.Tol = learn.DefaultTol + rowTol*float64(max(0, l.rows.n-tolRows))
	}
	return l, nil
}

func (l *sparseGPLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: hyper-parameters are learned under KL, not %s: %w", spell(d), ErrNoProx)
	}
	m := &sparseLearning{rows: l.rows, space: l.space, whole: l.g.z.division, rank: l.g.Rank(),
		rate: naturalRate, afar: math.Inf(1)}
	if l.space.Gaussian {
		m.rate = 0 // one step is exact
	}
	switch {
	case l.g.opt.Inducing != nil || !l.g.z.open:
		m.fixed = l.g.z.inputs()
	case l.g.opt.Rank > 0:
		m.rank = l.g.opt.Rank
	}
	m.stages = sparseStages(l.rows.n, len(l.rows.y))
	_, composite := kernelParts(l.g.z.kernel)
	return newLearnStepper(m, l.space, l.rows.n, &l.opt, composite, env.rng()), nil
}

// sparseStages returns the numbers of rows that a search goes through, of n of which so many are
// kept.
func sparseStages(n, kept int) (stages []int) {
	for _, part := range [2]int{min(firstStage, kept), min(kept, n/stagePart)} {
		if k := len(stages); part >= leastStage && 2*part <= n && (k == 0 || part >= 2*stages[k-1]) {
			stages = append(stages, part)
		}
	}
	return append(stages, n)
}

// warnings implements warner.
func (l *sparseGPLearner) warnings() []string {
	return l.g.farFrom0(true)
}

// Learned implements Learner. If the search has ended, the ELBO of Learned.Fit is that of the
// posterior on all rows.
func (l *sparseGPLearner) Learned(ctx context.Context, s *Solver, res *Result) (*SparseGP, *SparseGPPosterior, *Learned, error) {
	st, err := l.space.searchOf(res)
	if err != nil {
		return nil, nil, nil, err
	}
	k, _, lik, err := l.space.at(st.run.Best.Theta)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	m := st.run.Model.(*sparseLearning)
	learned.Passes, learned.Cholesky = learned.Cholesky, 0
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	g := &SparseGP{lik: lik, opt: l.g.opt, x: l.g.x, terms: l.g.terms, rows: l.g.rows}
	g.opt.Inducing, g.opt.Rank = m.best.z, 0
	if l.g.rows == nil {
		if err := g.keep(&h, l.g.z.again(k), l.g.x, l.g.terms, m.best.z); err != nil {
			return nil, nil, learned, g.canceled(&h, err)
		}
	} else { // the best state has this factor
		u := m.divide(k).factored(&h, m.best.z)
		if u == nil {
			return nil, nil, learned, g.canceled(&h, fmt.Errorf("pgsvi: covariance of the inducing inputs: %w", ErrNotPosDef))
		}
		if err := g.settle(&h, u); err != nil {
			return nil, nil, learned, g.canceled(&h, err)
		}
	}
	ended := st.run.Done && !st.run.Stale && ctx.Err() == nil
	if l.g.rows == nil {
		if ended {
			fitted, err := g.NewStepper(ctx, nil, nil)
			if err != nil {
				return g, nil, learned, err
			}
			if u := m.divide(k).factored(&h, m.best.z); u != nil {
				if q := u.carry(g.z, m.best.look.next.Mean, &m.best.look.next); q != nil {
					fitted.(*siteStepper).startAt(q)
				}
			}
			err = st.fitFrom(ctx, s, fitted, learned)
			defer fitted.(haltable).begin(last, nil).Forget()
			post, e := g.Posterior(fitted)
			if err == nil {
				err = e
			}
			return g, post, learned, err
		}
		g.rows = l.rows // the state is one of natural steps
	}
	fitted, err := newSparseStepper(last, nil, g.z, g.rows, lik, m.best.at)
	if err != nil {
		return g, nil, learned, prefixed(err)
	}
	if ended { // and so has the pass that found the best θ
		fitted.ascent.look, fitted.ascent.try = m.best.look, &m.best.look.next
		learned.Fit = &Result{Stepper: fitted, Warnings: learned.Warnings}
		learned.Fit.begin(nil)
		if err = new(Solver).force(last, learned.Fit); err == nil {
			learned.Fit.Status = Converged
		}
	}
	post, e := g.Posterior(fitted)
	if l.g.rows == nil {
		g.rows = nil
	}
	if err == nil {
		err = e
	}
	return g, post, learned, err
}

// keep makes g the model of terms at the rows of x with features that are kept, at inducing inputs
// among the rows of z.
func (g *SparseGP) keep(h *parallel.Halt, v division, x *mat.Dense, terms *term.Terms, z *mat.Dense) error {
	terms = under(terms, g.lik)
	rank, _ := z.Dims()
	variance, cost := sampleWorth(h, v.rest, x, terms)
	u, err := v.at(h, z, rank, worth{negligible: negligibleOf(terms.Len(), variance, cost)})
	if err != nil {
		return err
	}
	lin, residual, most, err := u.linear(x, terms, featuresAt(h, u, x))
	if err != nil {
		return err
	}
	g.z, g.x, g.terms, g.lin, g.residual, g.maxPrior = u, x, terms, *lin, residual, most
	return h.Err()
}

// startAt makes s start from q, without sites, where it is one over weights.
func (s *siteStepper) startAt(q *gauss.State) {
	if a, ok := s.alg.(*site.WeightAlgebra); ok {
		a.Run.CopyFrom(q)
		a.Free, a.Fresh, a.Batched, a.Started, a.Proof = true, false, false, false, site.Proof{}
	}
}

// sparsePoint is what was found at a θ.
type sparsePoint struct {
	theta []float64
	z     *mat.Dense
	at    *gauss.State
	look  *sparseLook // at at
	rows  int         // that it was found by
}

// sparseLearning is the learn.Staged of a SparseGP: the model as a function of its
// hyper-parameters, on the rows of a stage.
type sparseLearning struct {
	rows  *rowSource
	space *learnSpace
	// of the kernel to begin with; the zero division sees all of it at inducing inputs
	whole  division
	fixed  *mat.Dense // inducing inputs, where they stay
	rank   int
	stages []int // rows

	workers term.Crew
	stage   int
	z       *mat.Dense  // nil: to be chosen
	last    sparsePoint // of the last θ that was kept
	best    sparsePoint
	found   sparsePoint
	rate    float64
	// what the first look at a state that was carried to another θ promised last, over the square
	// of the distance; +Inf before there was one
	afar   float64
	passes float64
	info   *mat.SymDense // the average information met last, on so many rows
	of     int
	pass   sparsePass
}

var _ learn.Staged = (*sparseLearning)(nil)

func (l *sparseLearning) Digest(d *save.Digest) {
	l.rows.digest(d, l.space.lik)
	digestValue(d, l.space.kernel)
	d.Int(l.rank, learnForm)
	d.Int(l.stages...)
	if l.fixed != nil {
		d.Floats(l.fixed.RawMatrix().Data)
	}
}

// divide returns the division of k, the kernel with other parameters.
func (l *sparseLearning) divide(k Kernel) *division {
	v := l.whole.again(k)
	return &v
}

func (l *sparseLearning) Use(c term.Crew) { l.workers, l.pass.workers = c, c }

func (l *sparseLearning) Work() float64 { return l.passes }

func (l *sparseLearning) Keep(best bool) {
	l.last = l.found
	if best {
		l.best = l.found
	}
}

// Goal implements learn.Staged.
func (l *sparseLearning) Goal(tol float64) float64 {
	if l.stage < len(l.stages)-1 {
		return stageTol
	}
	return tol
}

// Advance implements learn.Staged.
func (l *sparseLearning) Advance() (times float64) {
	if l.stage == len(l.stages)-1 {
		return 1
	}
	times = float64(l.stages[l.stage+1]) / float64(l.stages[l.stage])
	l.stage++
	// which is of the order of M over the number of rows
	l.rate = max(l.rate/times, min(l.rate, leastRate))
	if l.z.RawMatrix().Rows < l.rank-l.whole.wholes() || l.stages[l.stage-1] < chooseRows {
		l.z = nil
	}
	return times
}

// choose chooses the inducing inputs of the stage, near θ.
func (l *sparseLearning) choose(k Kernel) error {
	if l.z = l.fixed; l.z != nil {
		return nil
	}
	v := l.divide(k)
	k = v.rest
	n, rank := min(l.stages[l.stage], len(l.rows.y)), max(1, l.rank-v.wholes())
	if l.stage == 0 {
		k = shortened(k, 1/learn.ScreenShorter[0])
		if len(l.stages) > 1 {
			rank = min(rank, streamRank)
		}
	}
	z, err := chooseInducing(l.workers.Halt, k, l.rows.sample(min(n, chooseRows)), min(rank, n))
	l.z = z
	return err
}

// Evaluate implements learn.Model.
func (l *sparseLearning) Evaluate(theta []float64, slack, _ float64, slopes bool) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	k, derivs, lik, err := l.space.at(theta)
	if err != nil {
		return none, nil // out of range
	}
	h := l.workers.Halt
	if l.z == nil {
		if err := l.choose(k); h.Stopped() {
			l.z = nil
			return none, h.Err()
		} else if err != nil {
			if l.z = nil; errors.Is(err, ErrNotFinite) {
				err = nil // out of range
			}
			return none, err
		}
	}
	p := &l.pass
	p.rows, p.lik, p.from = l.rows, lik, l.stages[l.stage]
	if p.from == l.rows.n {
		p.from = 0
	}
	if p.z = l.divide(k).factored(h, l.z); h.Stopped() {
		return none, h.Err()
	} else if p.z == nil {
		return none, nil
	}
	at, err := l.expect(theta, lik, slack, derivs, slopes)
	switch {
	case h.Stopped():
		return none, h.Err()
	case errors.Is(err, ErrShape): // not the rows of the first time
		return none, err
	case err != nil:
		return none, nil
	}
	return *at, nil
}

// nearest returns, of the points with the inducing inputs of now or the same θ, the one nearest to
// θ, or nil.
func (l *sparseLearning) nearest(theta []float64) (near *sparsePoint) {
	var least float64
	for _, p := range [2]*sparsePoint{&l.last, &l.best} {
		if p.theta == nil || !mat.Equal(p.z, l.z) && !slices.Equal(p.theta, theta) {
			continue
		}
		if d := floats.Distance(p.theta, theta, 2); near == nil || d < least {
			near, least = p, d
		}
	}
	return near
}

// carried returns the state of p as one at u, with the same inducing inputs or the same θ, of so
// many times the rows, or nil if it has none. Near the θ of p it is close to the best: what rows
// tell of latent values changes little with θ, unlike what they tell of weights.
func (l *sparseLearning) carried(p *sparsePoint, u *inducing, times float64) *gauss.State {
	k, _, _, err := l.space.at(p.theta)
	if err != nil {
		return nil
	}
	from := l.divide(k).factored(l.workers.Halt, p.z)
	if from == nil {
		return nil
	}
	q := from.carry(u, p.look.next.Mean, &p.look.next)
	if q == nil || times != 1 && !q.Times(times) {
		return nil
	}
	return q
}

// begin returns the q that natural steps at θ begin with, and the point that it was carried from,
// nil if there is none.
func (l *sparseLearning) begin(theta []float64, lik Likelihood) (
	q *gauss.State, near *sparsePoint, err error) {
	p, n := &l.pass, len(l.rows.y)
	sampled := p.from == 0 && n < l.rows.n
	if near = l.nearest(theta); near != nil {
		sampled = sampled && near.rows < n
		rows := p.len()
		if sampled {
			rows = n
		}
		q = l.carried(near, p.z, float64(rows)/float64(near.rows))
	}
	steps := 1
	if q == nil {
		if near, steps = nil, sampleSteps; l.workers.Halt.Stopped() {
			return nil, nil, l.workers.Halt.Err()
		}
		if q, err = coldWeights(l.workers.Halt, p.z, l.rows, lik, l.workers.Workers); err != nil {
			return nil, nil, err
		}
	}
	if sampled {
		near = nil
		q, err = climb(p, q, n, steps, sampleGoal)
	}
	return q, near, err
}

// expect finds q at θ to within so many nats, with derivatives if slopes is set.
func (l *sparseLearning) expect(theta []float64, lik Likelihood, slack float64, derivs Kernel, slopes bool) (*search.Point, error) {
	p := &l.pass
	p.each = nil
	part := float64(l.stages[l.stage]) / float64(l.rows.n)
	q, near, err := l.begin(theta, lik)
	if err != nil {
		return nil, err
	}
	var s *sparseSlopes
	if slopes {
		// otherwise that of fewer rows will do
		info := p.from > 0 || l.info == nil || len(l.stages) == 1 ||
			l.rows.all == nil && slack <= infoSlack
		if info {
			slack = min(slack, infoSlack)
		}
		if s, err = newSparseSlopes(p, l.space, derivs, theta, info); err != nil {
			return nil, err
		}
	}
	a := sparseAscent{pass: p}
	if a.start(q); p.from == 0 && l.rows.all != nil && near == nil {
		if err := a.begin(); err != nil {
			return nil, err
		}
		l.passes += part
	}
	// what the next look is expected to promise, and whether at has derivatives
	expected, known := a.gap(), false
	if !math.IsInf(expected, 1) {
		expected *= l.rate
	}
	distance := math.NaN()
	if near != nil && near.rows == p.len() {
		distance = floats.Distance(near.theta, theta, 2)
		expected = l.afar * distance * distance
	}
	for i := range mostPasses {
		with := s != nil && (expected <= hopeful*slack || i == mostPasses-1)
		if p.each = nil; with {
			s.at(a.try)
			p.each = s.add
		}
		before := a.look
		switch err := a.move(); {
		case err != nil && i == 0 && near != nil && a.falls(err):
			q, err = coldWeights(l.workers.Halt, p.z, l.rows, lik, l.workers.Workers)
			if err != nil {
				return nil, err
			}
			a.start(q)
			expected, distance = math.Inf(1), math.NaN()
			continue
		case err != nil:
			return nil, err
		}
		l.passes += part
		if a.look == before { // it fell
			if a.stuck() {
				break
			}
			continue
		}
		known = with
		if before == nil && distance > 0 {
			l.afar = a.look.promise / (distance * distance)
		}
		if before != nil && before.promise > 0 && l.rate > 0 {
			l.rate = min(max(a.look.promise/before.promise, leastRate), 1)
		}
		if expected = l.rate * a.look.promise; a.look.promise <= slack {
			if s == nil || known {
				break
			}
			expected = 0
		}
	}
	if s != nil && !known {
		s.at(a.at)
		p.each = s.add
		look, err := p.at(a.at)
		if err != nil {
			return nil, err
		}
		a.look = look
		l.passes += part
	}
	p.each = nil
	if math.IsInf(a.look.elbo, 0) || math.IsNaN(a.look.elbo) {
		return nil, ErrNotFinite
	}
	l.found = sparsePoint{slices.Clone(theta), l.z, a.at, a.look, l.stages[l.stage]}
	x := &search.Point{F: -a.look.elbo, Slack: a.look.promise}
	if s == nil {
		return x, nil
	}
	x.Grad, x.Info = s.point(a.look)
	for _, g := range x.Grad {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return nil, ErrNotFinite
		}
	}
	switch n := l.stages[l.stage]; {
	case x.Info != nil:
		l.info, l.of = x.Info, n
	default: // that of fewer rows, in proportion
		x.Info = mat.NewSymDense(len(x.Grad), nil)
		x.Info.ScaleSym(float64(n)/float64(l.of), l.info)
	}
	return x, nil
}

func (l *sparseLearning) State(c *save.State, n int) {
	c.Int(&l.stage, &l.of)
	c.Check(l.stage >= 0 && l.stage < len(l.stages), "a search is in stage %d", l.stage)
	c.Float(&l.rate, &l.afar, &l.passes)
	stateMatrix(c, &l.z, l.rows.cols)
	l.last.state(c, n, l.rows.cols)
	l.best.state(c, n, l.rows.cols)
	has := l.info != nil
	if c.Bool(&has); !has || c.Err() != nil {
		return
	}
	if c.Reading() {
		l.info = mat.NewSymDense(n, nil)
	}
	raw := l.info.RawSymmetric().Data
	c.Floats(n*n, &raw)
}

func (p *sparsePoint) state(c *save.State, n, cols int) {
	has := p.theta != nil
	c.Bool(&has)
	if c.Reading() {
		*p = sparsePoint{}
	}
	if !has || c.Err() != nil {
		return
	}
	c.Floats(n, &p.theta)
	c.Int(&p.rows)
	stateMatrix(c, &p.z, cols)
	if c.Err() != nil {
		return
	}
	c.Check(p.z != nil, "a search has no inducing inputs")
	if c.Reading() {
		p.at, p.look = &gauss.State{}, &sparseLook{}
	}
	if c.Err() == nil {
		m, _ := p.z.Dims()
		p.at.State(c, m)
		p.look.state(c, m)
	}
}

// stateMatrix writes or reads a matrix of so many columns, which may be nil.
func stateMatrix(c *save.State, x **mat.Dense, cols int) {
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

// Moving inducing inputs, in units of the deviation of each column, from trials in two dimensions
// and eight.
const (
	moveSteps = 50 // evaluations, where their number is ours to choose
	movePairs = 10 // steps that the curvature remembers
	// the longest move of a coordinate by the first step, of whose length nothing is known,
	moveFirst  = 0.05
	moveMost   = 0.5  // and by any other: neighbours do not pass each other
	moveTries  = 6    // lengths of a step
	movePart   = 1e-4 // of what the slope says, that a step must gain
	moveRow    = 3    // steps in a row
	moveGain   = 1e-2 // that together gain fewer nats than these are the last
	moveSlack  = 1e-4 // nats that q may be below its best
	moveDiffer = 1e-5 // steps of differences, of kernels without derivatives in their inputs
)

// MoveInducing returns the SparseGP with the inducing inputs of g moved to raise the ELBO, at its
// kernel and likelihood,
//
//	argmax_Z max_q ELBO(q, Z).
//
// It finds a local maximum near those of g (Titsias 2009) by a quasi-Newton method on the
// gradient in Z (L-BFGS; Liu and Nocedal 1989). It accepts only steps that raise the ELBO, and
// returns g itself if there are none. With more rows than the 50,000 of a sample, the sample
// moves them, and fits of all rows before and after decide.
//
// steps is the largest number of evaluations, each of some passes over these rows; 0 means 50.
// There is no run to save and resume: call MoveInducing again with its result. That loses only
// the memory of the curvature, ten steps. It helps if there are too few inducing inputs, but
// twice as many, chosen by NewSparseGP, cost less and are better. SparseGP.Learn of the result
// keeps them. For a kernel of your own, the derivatives by inputs are differences of Cov.
//
// The error wraps ErrParam if steps is negative. Otherwise it is that of ctx or of Fit.
func (g *SparseGP) MoveInducing(ctx context.Context, steps int) (*SparseGP, error) {
	if err := oneLatent(g.lik, "MoveInducing"); err != nil {
		return nil, err
	}
	if steps < 0 {
		return nil, fmt.Errorf("pgsvi: %d steps to move inducing inputs; 0 is the default: %w", steps, ErrParam)
	}
	if steps == 0 {
		steps = moveSteps
	}
	rows := g.rows
	if rows == nil {
		rows = rowSourceOf(g.x, g.terms)
	}
	var h parallel.Halt
	h.Watch(ctx)
	if !g.z.open {
		return g, nil
	}
	m := &inducingMove{kernel: g.z.kernel, whole: g.z.division, pass: sparsePass{rows: rows, lik: g.lik, workers: term.Crew{Workers: runtime.GOMAXPROCS(0), Halt: &h}}}
	if rows.all != nil {
		m.pass.from = len(rows.y)
	}
	z, err := m.run(g.z, steps)
	if err != nil || z == nil {
		return g, prefixed(err)
	}
	moved := &SparseGP{lik: g.lik, opt: g.opt, x: g.x, terms: g.terms, rows: g.rows}
	moved.opt.Inducing, moved.opt.Rank = z, 0
	if g.rows == nil {
		err = moved.keep(&h, g.z.division, g.x, g.terms, z)
	} else {
		err = moved.induce(&h, g.z.division, z)
	}
	if err != nil {
		return nil, g.canceled(&h, err)
	}
	if rows.all == nil {
		return moved, nil
	}
	_, before, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, after, err := moved.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !(after.ELBO-after.ELBOErr > before.ELBO+before.ELBOErr) {
		return g, nil
	}
	return moved, nil
}

// inducingMove is the ELBO at the best q as a function of the inducing inputs.
type inducingMove struct {
	kernel Kernel
	whole  division // that is again that of kernel
	pass   sparsePass
	unit   []float64 // of each column
	slopes *sparseSlopes
}

// inducingPoint is what is known of inducing inputs.
type inducingPoint struct {
	z    *mat.Dense
	elbo float64
	grad []float64 // in the units of the columns
	q    *gauss.State
}

// run returns the inducing inputs that so many evaluations lead to from those of u, or nil where
// there are no better ones.
func (m *inducingMove) run(u *inducing, steps int) (*mat.Dense, error) {
	_, d := u.x.Dims()
	x := m.pass.rows.x
	m.unit = make([]float64, d)
	differ := make([]float64, d)
	for j := range d {
		if m.unit[j] = stat.PopStdDev(mat.Col(nil, j, x), nil); !(m.unit[j] > 0) {
			m.unit[j] = 1
		}
		differ[j] = moveDiffer * m.unit[j]
	}
	m.slopes = &sparseSlopes{kernel: m.kernel, p: &m.pass, steps: differ}
	halt := m.pass.workers.Halt
	q, err := coldWeights(halt, u, m.pass.rows, m.pass.lik, m.pass.workers.Workers)
	if err != nil {
		return nil, err
	}
	at, err := m.at(mat.DenseCopyOf(u.inputs()), q)
	if err != nil || at == nil {
		return nil, err
	}
	first := at
	var moves, turns [][]float64
	var gains []float64
	for count := 1; count < steps; {
		dir, most := accel.Ascent(at.grad, moves, turns), moveMost
		if len(moves) == 0 {
			most = moveFirst
		}
		size := floats.Norm(dir, math.Inf(1))
		if !(size > 0) {
			break
		}
		if size > most || len(moves) == 0 {
			floats.Scale(most/size, dir)
		}
		next, length, tried, err := m.along(at, dir, min(moveTries, steps-count))
		count += tried
		if err != nil {
			return nil, err
		}
		if next == nil {
			if len(moves) == 0 {
				break
			}
			moves, turns = nil, nil // once more, straight up
			continue
		}
		turn := slices.Clone(at.grad)
		floats.Scale(length, dir)
		floats.Sub(turn, next.grad)
		if floats.Dot(dir, turn) > 0 {
			if len(moves) == movePairs {
				moves, turns = moves[1:], turns[1:]
			}
			moves, turns = append(moves, dir), append(turns, turn)
		}
		gains = append(gains, next.elbo-at.elbo)
		at = next
		if k := len(gains) - moveRow; k >= 0 && floats.Sum(gains[k:]) < moveGain {
			break
		}
	}
	if at == first {
		return nil, nil
	}
	return at.z, nil
}

// along returns the first of so many points from p along dir, each at a quarter of the length of
// the one before, whose ELBO is larger by what the slope says, or nil, with its length and how many
// there were.
func (m *inducingMove) along(p *inducingPoint, dir []float64, tries int) (next *inducingPoint, length float64, tried int, err error) {
	slope, d := floats.Dot(dir, p.grad), len(m.unit)
	for length = 1; tried < tries; length /= 4 {
		z := mat.DenseCopyOf(p.z)
		for i, v := range dir {
			z.Set(i/d, i%d, z.At(i/d, i%d)+length*v*m.unit[i%d])
		}
		tried++
		next, err = m.at(z, p.q)
		if err != nil || next != nil && next.elbo > p.elbo+moveSlack+movePart*length*slope {
			return next, length, tried, err
		}
	}
	return nil, 0, tried, nil
}

// at returns what there is to know of z, with natural steps from q; nil where there is no ELBO.
func (m *inducingMove) at(z *mat.Dense, q *gauss.State) (*inducingPoint, error) {
	p := &m.pass
	halt := p.workers.Halt
	v := m.whole.again(m.kernel)
	p.z = v.factored(halt, z)
	if err := halt.Err(); err != nil || p.z == nil {
		return nil, err
	}
	start := &gauss.State{}
	start.CopyFrom(q)
	a := sparseAscent{pass: p}
	a.start(start)
	for range mostPasses {
		if err := a.move(); err != nil {
			return nil, halt.Err()
		}
		if a.gap() <= moveSlack || a.stuck() {
			break
		}
	}
	s := m.slopes
	s.at(a.at)
	p.each = s.add
	look, err := p.at(a.at)
	p.each = nil
	if err != nil {
		return nil, halt.Err()
	}
	x := &inducingPoint{z: z, elbo: look.elbo, grad: slices.Clone(s.moved(look)[p.z.wholes()*len(m.unit):]), q: a.at}
	for i := range x.grad {
		x.grad[i] *= m.unit[i%len(m.unit)]
	}
	if _, ok := dense.AllFinite(x.grad); !ok || math.IsNaN(x.elbo) || math.IsInf(x.elbo, 0) {
		return nil, nil
	}
	return x, nil
}
