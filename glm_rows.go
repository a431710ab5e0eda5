package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// NewGLMRows is NewGLM for any number of rows, of cols columns each, that are not kept in memory
// (out of core): rows of a file or another source. For rows in memory use NewGLM.
//
// rows is ranged over once to check and count them, and once for each step of a fit. It must yield
// the same rows every time: Rows(x, y), a data.RowFile, or a function that reads a file from its
// beginning. A random sample of at most 8192 rows is kept.
//
// The posterior has a full covariance. The state is its mean and precision, and a step is the
// natural-gradient step, with μ the mean parameters of q,
//
//	argmax_{m₊,P₊} ∂ELBO/∂μ·μ₊ − KL(q₊‖q),   P₊ = Λ0 + Xᵀdiag(−∂₂)X,   P₊(m₊ − m) = Xᵀ∂₁ − Λ0(m − μ0),
//
// with ∂₁ and ∂₂ the derivatives of E[log p(y_n|η_n)] in the mean of η_n (Khan and Lin 2017). It
// contains a Newton step for the mean. If the ELBO falls, up to three shorter steps are tried in
// one pass. A run starts from a fit of the sample. A fit takes three or four passes, and ends when
// the next one promises less than 0.01 nats, or Solver.Goal. Steps are over all rows and choose
// their own length. They take about 400 D² bytes for D weights and some megabytes for each core.
//
// The posterior is the same to the last bit for any number of workers, and that of NewGLMRounds
// with blocks of 8192 rows.
//
// A nil lik means GaussianNoise{}, a nil opt the zero GLMOptions. Learn learns the prior standard
// deviations, and needs the parameters of the likelihood in LearnOptions.Fixed. LOO, PSIS,
// PredictiveCheck, CertifyScale and Objective need rows in memory, and return an error that wraps
// ErrParam. The errors are those of NewGLM, of rows, and those of
// Stream.Add for a row. They also wrap
//   - ErrParam if opt has Offset or Weights, which belong to the rows, or a covariance that is not
//     full;
//   - ErrEmpty if there are no rows;
//   - ErrMemory if there are too many columns for GLMOptions.MaxMemory.
//
// An error that wraps ErrShape during a run means that the rows were not the same as the first
// time.
func NewGLMRows(ctx context.Context, rows iter.Seq2[Row, error], cols int, lik Likelihood, opt *GLMOptions) (*GLM, error) {
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: nil rows: %w", ErrEmpty)
	}
	r, err := newGLMRounds(cols, lik, opt)
	if err != nil {
		return nil, err
	}
	r.g.rows = &glmRows{all: rows, cols: cols}
	var h parallel.Halt
	h.Watch(ctx)
	p, err := r.pass(&h, runtime.GOMAXPROCS(0))
	if err == nil && p.Items == 0 {
		err = fmt.Errorf("no rows: %w", ErrEmpty)
	}
	if err == nil {
		err = r.begin(p)
	}
	if cause := h.Err(); cause != nil && err != nil {
		err = fmt.Errorf("canceled while rows were counted: %w", cause)
	}
	if err != nil {
		return nil, prefixed(err)
	}
	return r.g, nil
}

// NewGLMRounds returns the rounds that fit a GLM to rows of cols columns on many machines. See
// NewGLMRows for lik, opt, the steps and the errors. GLMOptions.Learn is an error. The state is
// sent to the machines as D² numbers, and what a shard has is about 13 D² bytes for D weights.
func NewGLMRounds(cols int, lik Likelihood, opt *GLMOptions) (*Rounds[Row, *GLMPosterior], error) {
	r, err := newGLMRounds(cols, lik, opt)
	if err != nil {
		return nil, err
	}
	if r.g.opt.Learn != nil {
		return nil, fmt.Errorf("pgsvi: rounds do not learn a prior; leave GLMOptions.Learn nil, and learn with NewGLMRows from a part of the rows first: %w", ErrParam)
	}
	return &Rounds[Row, *GLMPosterior]{r}, nil
}

// glmModel is what parts of a GLM are called.
const glmModel = "GLM"

// Of rows of rounds:
const (
	rowsBlock      = 8192      // in a block of NewGLMRows
	sampleOfRounds = 8192      // in the sample, or fewer
	sampleValues   = 8_000_000 // where they have more values
	sampleFewest   = 1000
	sparsePart     = 0.25 // part of the values of a sample that are not 0, below which rows are sparse
	startGoal      = 1    // nats of the best fit of the sample,
	startAll       = 1e-6 // or this, where the sample is all rows
	startPasses    = 50
)

// What rounds of D weights have at their most, in D×D matrices: three states to try with three
// looks, two states with what was found there, and lanes.
const (
	roundMatrices = 40
	roundLane     = 4
)

// glmRounds is the engine of a Rounds of a GLM, and of the GLM of NewGLMRows.
type glmRounds struct {
	g *GLM // its linear model is that of the sample, once there is one
	rowAdder
	round  int
	items  int
	blocks rounds.Blocks
	climb  rounds.Climb
	print  fingerprint
	// of the first round, for the start
	columns *rounds.Columns
	stands  []float64 // for how many rows each of the sample stands

	maxPrior float64 // of a sparse GP, over the sample
}

// newGLMRounds returns the engine before the first round. The errors have the name of the package.
func newGLMRounds(cols int, lik Likelihood, opt *GLMOptions) (*glmRounds, error) {
	g, err := newGLM(lik, nil, opt)
	if err != nil {
		return nil, err
	}
	if err := oneLatent(likOf(g.lin.Terms), "a GLM that goes through its rows"); err != nil {
		return nil, err
	}
	if cols < 0 || cols > math.MaxInt32 {
		return nil, fmt.Errorf("pgsvi: rows of %d columns: %w", cols, ErrShape)
	}
	switch o := &g.opt; {
	case o.Offset != nil || o.Weights != nil:
		return nil, fmt.Errorf("pgsvi: Offset and Weights are those of the rows; leave GLMOptions.Offset and Weights nil: %w", ErrParam)
	case o.Covariance > FullCovariance:
		return nil, fmt.Errorf("pgsvi: rows that are gone through with a %v covariance; it must be full: %w", o.Covariance, ErrParam)
	}
	if err := errors.Join(g.setNames(cols), g.opt.checkBlocks(cols)); err != nil {
		return nil, err
	}
	g.opt.Blocks = slices.Clone(g.opt.Blocks)
	g.opt.Covariance = FullCovariance
	d := g.dim()
	workers := runtime.GOMAXPROCS(0)
	need := memory.Bytes(roundMatrices+roundLane*float64(workers), d, d) + memory.Bytes(2*float64(workers), rounds.Chunk(d), d) + memory.Bytes(3, sampleSize(d), d)
	if err := checkMemory(g.opt.MaxMemory, need, fmt.Sprintf("a GLM of any number of rows and %d weights", d), "use fewer columns, or raise GLMOptions.MaxMemory"); err != nil {
		return nil, err
	}
	g.lin.MaxMemory = g.opt.MaxMemory
	if !g.opt.Autoscale {
		if err := g.setPrior(); err != nil {
			return nil, err
		}
	}
	likelihood := likOf(g.lin.Terms)
	r := &glmRounds{g: g, rowAdder: rowAdder{cols: cols, intercept: g.opt.Intercept, lik: likelihood}}
	return r, nil
}

// sampleSize returns the number of rows of a sample of d weights.
func sampleSize(d int) int { return max(sampleFewest, min(sampleOfRounds, sampleValues/(d+1))) }

// digest shows d the model, without its rows.
func (r *glmRounds) digest(d *save.Digest) {
	o := &r.g.opt
	d.Int(r.cols, design.B2i(o.Intercept), design.B2i(o.Autoscale))
	d.Float(o.PriorSD, o.InterceptSD)
	digestValue(d, r.lik)
	if r.z != nil {
		r.z.digest(d)
	}
	if !o.Autoscale {
		p := &r.g.lin.Prior
		d.Floats(p.Mean)
		d.Floats(p.Prec)
		if p.Full != nil {
			for i := range r.g.dim() {
				d.Float(p.Full.P[i*r.g.dim() : i*r.g.dim()+i+1]...)
			}
		}
	}
}

// id returns that of the parts of this round.
func (r *glmRounds) id() rounds.ID {
	var states save.Digest
	r.climb.Digest(&states)
	model := glmModel
	if r.z != nil {
		model = sparseModel
	}
	return rounds.ID{Model: model, Digest: r.print.of(r.digest), Round: r.round, States: states.Sum()}
}

// part returns an empty part of this round.
func (r *glmRounds) part() *rounds.Part {
	d := r.dim()
	p := &rounds.Part{ID: r.id(), Size: d}
	if r.round == 0 {
		p.Size = r.width()
		p.First = rounds.NewFirst(p.Size, sampleSize(max(p.Size, d)))
		return p
	}
	for _, q := range r.climb.Try {
		if q.Halt = nil; r.form == asSparse {
			q.Invert()
		}
		p.Looks = append(p.Looks, rounds.NewLook(q, d))
	}
	return p
}

// shard implements roundsEngine.
func (r *glmRounds) shard() *Shard[Row] {
	adder := r.rowAdder
	return &Shard[Row]{part: r.part(), adder: &adder}
}

// begin takes the part of the first round: the model is then that of the sample.
func (r *glmRounds) begin(p *rounds.Part) error {
	g, rows := r.g, p.First.Sample.Rows()
	r.items, r.blocks = p.Items, p.Blocks.Clone()
	d := r.width()
	values := 0
	for i := range rows {
		for _, v := range rows[i].Val {
			values += design.B2i(v != 0)
		}
	}
	r.form = asDense
	if r.z == nil && float64(values) < sparsePart*float64(len(rows))*float64(d) {
		r.form = asSparse
	}
	var buf rowBuffer
	buf.form = r.form
	buf.reset(d)
	for i := range rows {
		buf.addSampled(&rows[i])
	}
	g.lin.X, g.lin.Terms = buf.design(), buf.terms(r.lik, 0)
	if r.z != nil {
		lin, most, err := r.features(nil, g.lin.X, g.lin.Terms)
		if err != nil {
			return err
		}
		g.lin.X, g.lin.Terms, r.maxPrior = lin.X, lin.Terms, most
	}
	r.columns = p.First.Columns(p.Items)
	r.stands = p.First.Sample.Stands(p.Items, r.columns.Count)
	g.means = r.columns.Mean[:r.cols:r.cols]
	if g.opt.Autoscale {
		g.variances = r.columns.Variance
		if err := g.setPrior(); err != nil {
			return err
		}
	}
	if g.rows != nil {
		g.rows.n, g.rows.blocks, g.rows.columns, g.rows.stands = p.Items, p.Blocks, r.columns, r.stands
	}
	return nil
}

// addSampled appends a row of a sample, which has all weights.
func (t *rowBuffer) addSampled(r *rounds.Row) {
	row := Row{Val: r.Val, Y: r.Y, Offset: r.Offset, Weight: r.Weight}
	if r.Ind != nil {
		row.Ind = make([]int, len(r.Ind))
		for k, j := range r.Ind {
			row.Ind[k] = int(j)
		}
	}
	t.add(row, false)
}

// start makes a fit of the sample what to look at first.
func (r *glmRounds) start(h *parallel.Halt, workers int) error {
	r.climb = r.newClimb(h)
	q, err := r.fitSample(h, workers)
	switch {
	case err != nil:
		return err
	case q == nil:
		return r.climb.Start()
	}
	guesses := []*gauss.State{q}
	if s := r.narrow(q); s != nil {
		guesses = append(guesses, s)
	}
	return r.climb.Start(guesses...)
}

// unseenPart is the part of the squares of a column that a sample may not have seen, and lack of
// which is no chance.
const unseenPart = 0.1

// narrow returns q with as much more precision as rows of unit curvature have that the sample does
// not stand for: large values of which exponentials are of any size. It is nil if there are none.
func (r *glmRounds) narrow(q *gauss.State) *gauss.State {
	if _, exponential := r.lik.(rated); !exponential || r.z != nil || r.g.lin.X.Rows == r.items {
		return nil
	}
	x, seen := r.g.lin.X, make([]float64, r.g.dim())
	for i, w := range r.stands {
		ind, val := x.Row(i)
		for k, v := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			seen[j] += w * v * v
		}
	}
	s := &gauss.State{}
	s.CopyFrom(q)
	few := false
	for j, all := range r.columns.Square {
		if more := all - seen[j]; more > unseenPart*all {
			s.P[j*len(seen)+j] += more
			few = true
		}
	}
	if !few || !s.Factor() {
		return nil
	}
	return s
}

// newClimb returns the ascent of the model, before its start.
func (r *glmRounds) newClimb(h *parallel.Halt) rounds.Climb {
	return rounds.Climb{Prior: &r.g.lin.Prior, Concave: factsOf(r.lik).LogConcave, Bounded: selfBounded(r.lik), Halt: h}
}

// fitSample returns the posterior of the sample, each of whose rows stands for others; nil means that
// it has none.
func (r *glmRounds) fitSample(h *parallel.Halt, workers int) (*gauss.State, error) {
	fit := &GLM{lin: r.g.lin}
	terms := *r.g.lin.Terms
	n := terms.Len()
	fit.lin.Terms = &terms
	goal := startAll
	if n < r.items {
		goal = startGoal
		weight := make([]float64, n)
		for i := range weight {
			_, _, w, _ := terms.Term(i)
			weight[i] = w * r.stands[i]
		}
		terms.Weight = weight
	}
	fit.addPriorMean()
	st, err := newLinearStepper(h.Context(), &fit.lin, nil, nil, linearOptions{covariance: FullCovariance})
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if err != nil {
		return nil, nil // the prior will do
	}
	s := Solver{Goal: goal, MaxPasses: startPasses, Workers: workers}
	res, err := s.Resume(h.Context(), &Result{Stepper: st})
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if err != nil || math.IsNaN(res.ELBO) || math.IsInf(res.ELBO, 0) {
		return nil, nil
	}
	mean, cov, err := weightsAt(&fit.lin, res.Stepper)
	if err != nil {
		return nil, nil
	}
	full, err := cov.State(h)
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if err != nil {
		return nil, nil
	}
	q := &gauss.State{}
	q.CopyFrom(full)
	floats.AddTo(q.Mean, mean, r.g.lin.Prior.Mean)
	if q.Double { // of which the first half is near enough
		if q.Double = false; !q.Factor() {
			return nil, nil
		}
	}
	return q, nil
}

// step implements roundsEngine.
func (r *glmRounds) step(p *rounds.Part) (Iteration, error) {
	none := Iteration{K: max(0, r.round-1), Evaluation: notEvaluated()}
	if err := r.accept(p); err != nil {
		return none, err
	}
	if r.round == 0 {
		next := *r
		g := *r.g
		next.g = &g
		err := next.begin(p)
		if err == nil {
			err = next.start(nil, runtime.GOMAXPROCS(0))
		}
		if err != nil {
			return none, err
		}
		*r = next
		r.round = 1
		return none, nil
	}
	before := r.climb
	if err := r.climb.Step(p.Looks); err != nil {
		r.climb = before
		return none, err
	}
	r.round++
	it := Iteration{K: r.round - 1, Passes: float64(r.round - 1), Step: r.taken(), Evaluation: r.evaluation()}
	orNaN(&it.ELBOErr, &it.Gap, &it.GapBound)
	return it, nil
}

// accept returns an error unless p has all items of a round.
func (r *glmRounds) accept(p *rounds.Part) error {
	like := &rounds.Part{ID: r.id(), Size: r.dim(), Looks: make([]*rounds.Look, len(r.climb.Try))}
	if r.round == 0 {
		like = r.part()
	}
	if err := p.Like(like); err != nil {
		return err
	}
	l := rounds.Ledger{Round: r.round, Items: r.items, Blocks: r.blocks}
	return l.Accept(p)
}

// taken describes the step to come.
func (r *glmRounds) taken() Step {
	return Step{Beta: math.Inf(1), ClosedForm: true, GradMap: goals.NeverZero(r.climb.Length() * math.Sqrt(2*r.climb.Gap()))}
}

// evaluation describes the best state so far.
func (r *glmRounds) evaluation() Evaluation {
	f := r.climb.Found
	if f == nil {
		return notEvaluated()
	}
	e := Evaluation{ELBO: f.ELBO, ELBOErr: goals.NeverZero(f.Err), Gap: goals.NeverZero(r.climb.Gap()), GapBound: r.climb.GapBound(), Goal: streamGoal}
	if e.GapBound != 0 {
		e.Scope = OverQ
	}
	return e
}

var errNoRound = fmt.Errorf("there is no posterior before the second round has ended: %w", ErrEmpty)

// posterior implements roundsEngine.
func (r *glmRounds) posterior() (*GLMPosterior, error) {
	at := r.climb.At
	if at == nil {
		return nil, errNoRound
	}
	g := r.g
	q := &gauss.State{}
	q.CopyFrom(at)
	return &GLMPosterior{names: g.lin.Names, opt: g.opt, lik: r.lik, prior: &g.lin.Prior, mean: slices.Clone(q.Mean), cov: &gauss.Full{S: q}, rows: r.items, means: g.means}, nil
}

// rowAdder adds rows to the parts of a linear model.
type rowAdder struct {
	cols      int
	intercept bool
	lik       Likelihood
	form      rowForm
	z         *inducing // of a sparse GP, whose features are made of rows
}

// width returns the number of values of a row, with that of an intercept, and dim that of weights.
func (a *rowAdder) width() int { return a.cols + design.B2i(a.intercept) }

func (a *rowAdder) dim() int {
	if a.z != nil {
		return a.z.rank()
	}
	return a.width()
}

// add implements shardAdder.
func (a *rowAdder) add(ctx context.Context, p *rounds.Part, block uint64, items iter.Seq2[Row, error]) error {
	if err := p.Begin(block); err != nil {
		return err
	}
	var h parallel.Halt
	h.Watch(ctx)
	s := newRowPass(a, p, &h, 1)
	s.block = block
	err := s.through(items, math.MaxInt)
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		p.Break(block, bare{err})
		if cause := h.Err(); cause != nil {
			return fmt.Errorf("canceled in block %d: %w", block, cause)
		}
		return fmt.Errorf("block %d: %w", block, bare{err})
	}
	return nil
}

// rowPass goes through rows, and adds chunks of them to a part, each by one of several lanes.
type rowPass struct {
	*rowAdder
	part  *rounds.Part
	halt  *parallel.Halt
	chunk int // rows
	bufs  []rowChunk
	busy  int // chunks that are full
	loop  parallel.Loop

	block uint64
	place int // in the block, of the next row
	seen  int // rows
}

// rowChunk is a chunk of a block, with a lane.
type rowChunk struct {
	rowBuffer
	lane  rounds.Lane
	block uint64
	place int
	first int // number of the first row
	err   error
}

func newRowPass(a *rowAdder, p *rounds.Part, h *parallel.Halt, workers int) *rowPass {
	d := a.width()
	s := &rowPass{rowAdder: a, part: p, halt: h, chunk: rounds.Chunk(max(d, a.dim())), bufs: make([]rowChunk, workers)}
	for i := range s.bufs {
		s.bufs[i].form = a.form
		s.bufs[i].reset(d)
	}
	return s
}

// through adds rows to the block, and begins another after so many. The error names a row.
func (s *rowPass) through(rows iter.Seq2[Row, error], each int) error {
	for row, err := range rows {
		if err == nil && s.seen%ctxEvery == 0 {
			err = s.halt.Err()
		}
		if err == nil {
			err = checkRow(&row, s.cols, s.lik, s.seen)
		}
		if err == nil && s.place == each {
			err = s.next()
		}
		if err == nil && s.place%s.chunk == 0 {
			err = s.begin()
		}
		if err != nil {
			return err
		}
		s.bufs[s.busy].add(row, s.intercept)
		s.place++
		s.seen++
		if s.place%s.chunk == 0 {
			s.busy++
		}
	}
	return nil
}

// next begins the next block.
func (s *rowPass) next() error {
	if s.place%s.chunk != 0 {
		s.busy++
	}
	s.block, s.place = s.block+1, 0
	return s.part.Begin(s.block)
}

// begin begins a chunk.
func (s *rowPass) begin() error {
	if s.busy == len(s.bufs) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	b := &s.bufs[s.busy]
	b.block, b.place, b.first = s.block, s.place, s.seen
	return nil
}

// flush adds the chunks there are.
func (s *rowPass) flush() error {
	n := s.busy
	if n < len(s.bufs) && s.bufs[n].rows() > 0 {
		n++
	}
	s.loop.Halt = s.halt
	s.loop.Run(n, 1, n, parallel.Func(func(_, i, _ int) { s.do(&s.bufs[i]) }))
	s.busy = 0
	if err := s.halt.Err(); err != nil {
		return err
	}
	for i := range s.bufs[:n] {
		b := &s.bufs[i]
		if b.err != nil {
			return b.err
		}
		s.part.Items += b.rows()
		b.reset(b.x.Cols)
	}
	return nil
}

// do adds a chunk.
func (s *rowPass) do(b *rowChunk) {
	x, t := b.design(), b.terms(s.lik, b.first)
	if s.part.First != nil {
		s.part.First.Add(b.block, uint64(b.place), x, t)
	}
	if s.z != nil && len(s.part.Looks) > 0 {
		lin, _, err := s.features(s.halt, x, t)
		if b.err = err; err != nil {
			return
		}
		x, t = lin.X, lin.Terms
	}
	for _, l := range s.part.Looks {
		if b.err = l.Add(&b.lane, s.halt, b.block, x, t); b.err != nil {
			return
		}
	}
}

// pass returns the part of this round that has all rows of the GLM, in blocks of rowsBlock.
func (r *glmRounds) pass(h *parallel.Halt, workers int) (*rounds.Part, error) {
	p, rows := r.part(), r.g.rows
	var alone parallel.Halt // of which no lane has others
	alone.Watch(h.Context())
	s := newRowPass(&r.rowAdder, p, &alone, max(1, workers))
	err := p.Begin(0)
	if err == nil {
		err = s.through(rows.all, rowsBlock)
	}
	if err == nil {
		err = s.flush()
	}
	switch {
	case h.Err() != nil:
		return nil, h.Err()
	case err == nil && r.round > 0 && p.Items != r.items:
		err = fmt.Errorf("%d rows, and %d the first time; the iterator must yield the same rows every time it is ranged over: %w", p.Items, r.items, ErrShape)
	}
	return p, err
}

// rowsStepper is the Stepper of a GLM that goes through its rows.
type rowsStepper struct {
	run   glmRounds
	halt  parallel.Halt
	print fingerprint
}

// newRowsStepper returns that of g, which has rows.
func (g *GLM) newRowsStepper(ctx context.Context, env *Env) (*rowsStepper, error) {
	s := &rowsStepper{run: g.rounds()}
	defer s.begin(ctx, env).Forget()
	return s, s.run.start(&s.halt, env.cores())
}

// rounds returns the rounds of a GLM that has rows, after the first.
func (g *GLM) rounds() glmRounds {
	r := glmRounds{g: g, round: 1, items: g.rows.n, blocks: g.rows.blocks, columns: g.rows.columns, stands: g.rows.stands}
	r.rowAdder = rowAdder{cols: g.rows.cols, intercept: g.opt.Intercept, lik: likOf(g.lin.Terms), form: asDense}
	if g.lin.X.Sparse != nil {
		r.form = asSparse
	}
	return r
}

// Len implements State.
func (s *rowsStepper) Len() int { return s.run.items }

// Plan implements Stepper.
func (s *rowsStepper) Plan() Plan {
	return Plan{Batch: 1, MaxPasses: mostSparseRun, Sampler: everyRow{}}
}

// everyRow is a Sampler of all rows, for a Stepper that does not need to be told their numbers: the
// first stands for all.
type everyRow struct{}

// Batches implements Sampler.
func (everyRow) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	if size >= n {
		size = 1
	}
	batch := make([]int, max(0, size))
	for i := range batch {
		batch[i] = i
	}
	return func(yield func([]int) bool) {
		for n > 0 && size > 0 && yield(batch) {
		}
	}
}

// begin implements haltable.
func (s *rowsStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.run.climb.Halt = &s.halt
	return &s.halt
}

// Step implements Stepper: a look at all rows.
func (s *rowsStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if few := len(batch); !math.IsInf(beta, 1) || few > 1 && few < s.Len() {
		return step, fmt.Errorf("a GLM of NewGLMRows takes all rows in every step and chooses the step size, not %d of %d rows with step size %v; NewGLM has steps of any kind: %w", few, s.Len(), beta, ErrParam)
	}
	looks := max(1, len(s.run.climb.Try))
	if err := s.look(env); err != nil {
		return step, err
	}
	step = s.run.taken()
	step.more = looks*s.Len() - len(batch)
	return step, nil
}

// look looks at what there is to try.
func (s *rowsStepper) look(env *Env) error {
	if s.run.climb.Stuck() {
		return nil
	}
	p, err := s.run.pass(&s.halt, env.cores())
	if err != nil {
		return err
	}
	return s.run.climb.Step(p.Looks)
}

// Evaluate implements Stepper.
func (s *rowsStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	for s.run.climb.At == nil { // two looks find a state, or an error
		if err := s.look(env); err != nil {
			return notEvaluated(), err
		}
	}
	return s.run.evaluation(), nil
}

// constant reports whether Evaluate would change nothing which later steps depend on.
func (s *rowsStepper) constant() bool { return s.run.climb.At != nil }

// MarshalBinary returns the state.
func (s *rowsStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary puts a state back. The error wraps ErrFile if b is not the state of a Stepper of
// the same model.
func (s *rowsStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *rowsStepper) state(c *save.State) {
	s.print.state(c, func(d *save.Digest) {
		s.run.digest(d)
		d.Int(s.run.items)
		s.run.g.lin.Terms.Digest(d)
		s.run.g.lin.Digest(d)
	})
	s.run.climb.State(c, s.run.g.dim())
}

// sparseModel is what parts of a sparse GP are called.
const sparseModel = "SparseGP"

// features returns the linear model of rows in their features, and the largest prior variance.
func (a *rowAdder) features(h *parallel.Halt, x *design.Matrix, t *term.Terms) (lin *site.LinearModel, most float64, err error) {
	rows := mat.NewDense(x.Rows, a.cols, x.Dense)
	f := featuresAt(h, a.z, rows)
	if err := h.Err(); err != nil {
		return nil, 0, err
	}
	lin, _, most, err = a.z.linear(rows, t, f)
	if err != nil {
		return nil, 0, fmt.Errorf("of the rows from %d on, %w", t.First, bare{err})
	}
	return lin, most, nil
}
