package pgsvi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// Rounds fits a model P to items R that lie on many machines (distributed, map-reduce). In a round
// each machine adds its items to a Shard. The shards are merged, in any order and tree, and Step
// finds what to look at next:
//
//	r, err := pgsvi.NewGLMRounds(cols, lik, opt)
//	for err == nil && !(it.GapBound <= 0.01) {
//		s := r.Shard()                    // to every machine, by MarshalBinary
//		err = s.Add(ctx, block, rows)     // there, for each of its blocks
//		err = all.Merge(s)                // on the way back
//		it, err = r.Step(all)
//	}
//	post, err := r.Posterior()
//
// The first round takes a random sample, to start from a fit of it, and counts the items. The
// later ones have the ELBO of a state. For GLMs and sparse GPs it is exact, with a proved GapBound
// if there are proofs for the likelihood; a fit takes three or four rounds. A CTM takes ten.
//
// Items come in blocks of some thousands, each with a number that stays the same in all rounds.
// The result depends on the blocks, and not on how they are dealt out or merged: it is the same
// to the last bit for one shard and for thousands. (Results of another GOARCH may differ in their
// last digits.) A round may be repeated: shards hold sums of their items and nothing else.
//
// The zero Rounds is ready for UnmarshalBinary alone. A Rounds is not safe for concurrent use.
type Rounds[R, P any] struct {
	engine roundsEngine[R, P]
}

// roundsEngine is what a model brings to a Rounds. Its errors do not have the name of the package.
type roundsEngine[R, P any] interface {
	shard() *Shard[R]
	step(p *rounds.Part) (Iteration, error)
	posterior() (P, error)
	state(c *save.State)
}

// Shard is what some blocks of items add up to in a round. It holds a few times as many numbers as
// the posterior, and in the first round a sample of at most 8192 items. A saved Shard has a
// version and a checksum.
//
// A Shard is not safe for concurrent use: to share blocks between goroutines, give each a Shard.
// The zero Shard is ready for UnmarshalBinary alone.
type Shard[R any] struct {
	part  *rounds.Part
	adder shardAdder[R] // nil of one that has travelled with items
}

// shardAdder adds items to a part.
type shardAdder[R any] interface {
	add(ctx context.Context, p *rounds.Part, block uint64, items iter.Seq2[R, error]) error
	// state writes or reads it, and the states that p is at.
	state(c *save.State, p *rounds.Part)
}

// Shard returns an empty shard of the round to come.
func (r *Rounds[R, P]) Shard() *Shard[R] { return r.engine.shard() }

// Step ends a round, given a shard with all blocks, and begins the next one. The first round
// returns an Iteration that is not evaluated. The others return the ELBO, Gap and GapBound of the
// best state so far (of a CTM: the last), which is that of Posterior; K and Passes count these
// rounds. Step keeps nothing of s.
//
// The error wraps
//   - ErrEmpty if s has no items;
//   - ErrParam if s is nil, is of another model or round, or does not have the blocks and items of
//     the first round, which the error names;
//   - ErrNotFinite or ErrNotPosDef if there is no next state.
//
// r is then as it was.
func (r *Rounds[R, P]) Step(s *Shard[R]) (Iteration, error) {
	if s == nil || s.part == nil {
		return Iteration{Evaluation: notEvaluated()},
			fmt.Errorf("pgsvi: Step without a shard: %w", ErrParam)
	}
	it, err := r.engine.step(s.part)
	return it, prefixed(err)
}

// Posterior returns the posterior at the state of the last Iteration. The error wraps ErrEmpty
// before the second round has ended.
func (r *Rounds[R, P]) Posterior() (P, error) {
	p, err := r.engine.posterior()
	return p, prefixed(err)
}

// Add adds the items of a block, in their order. The number of the block must be the same in all
// rounds, and no other block may have it. A block may be empty. Items are checked as by Stream.Add.
//
// The error is that of ctx or of items, or names block and item; see Stream.Add for what it wraps.
// It wraps ErrParam if the shard has the block already, or has travelled with items: such a shard
// can be merged with one from Rounds.Shard. After any error but these two the shard is of no
// further use.
func (s *Shard[R]) Add(ctx context.Context, block uint64, items iter.Seq2[R, error]) error {
	switch {
	case s.adder == nil:
		return fmt.Errorf(
			"pgsvi: a shard that was saved with items takes no more; merge it with one of "+
				"Rounds.Shard: %w", ErrParam)
	case items == nil:
		return fmt.Errorf("pgsvi: block %d: nil items: %w", block, ErrEmpty)
	}
	return prefixed(s.adder.add(ctx, s.part, block, items))
}

// Merge adds what o has, which it leaves as it is. The error wraps ErrParam if o is nil, of
// another model, likelihood, round or state, or has a block of s. It names the difference or the
// block, and s is then as it was.
func (s *Shard[R]) Merge(o *Shard[R]) error {
	if s.part == nil || o == nil || o.part == nil {
		return fmt.Errorf(
			"pgsvi: Merge of a shard that does not come from Rounds.Shard or UnmarshalBinary: %w",
			ErrParam)
	}
	return prefixed(s.part.Merge(o.part))
}

// Len returns the number of items of s.
func (s *Shard[R]) Len() int {
	if s.part == nil {
		return 0
	}
	return s.part.Items
}

// errNoRound is the error of a posterior that there is not yet.
var errNoRound = fmt.Errorf("there is no posterior before the second round has ended: %w", ErrEmpty)

// Of a run that goes through rows again and again:
const (
	streamGoal    = 1e-2 // nats, below which a further pass is not worth it
	mostRowPasses = 50
)

// shardFile and roundsFile are the files of a Shard and a Rounds.
var (
	shardFile  = save.Kind{Name: "Shard", Version: 1}
	roundsFile = save.Kind{Name: "Rounds", Version: 1}
)

// fileBytes returns a file with what state names.
func fileBytes(kind save.Kind, state func(*save.State)) ([]byte, error) {
	body, err := save.Marshal(state)
	if err != nil {
		return nil, prefixed(err)
	}
	var b bytes.Buffer
	err = kind.Write(&b, body)
	return b.Bytes(), err
}

// unfile reads it. The error wraps ErrFile.
func unfile(kind save.Kind, b []byte, state func(*save.State)) error {
	body, err := readBody(bytes.NewReader(b), kind)
	if err != nil {
		return err
	}
	if err := save.Unmarshal(body, state); err != nil {
		return &fileError{kind, err}
	}
	return nil
}

// MarshalBinary returns s. An empty shard has all that is needed to add items elsewhere; one with
// items has these alone. The error wraps ErrParam if the likelihood's type is not registered
// (Register), or if a block was not added to its end.
func (s *Shard[R]) MarshalBinary() ([]byte, error) {
	if s.part == nil {
		return nil, fmt.Errorf("pgsvi: a zero Shard has nothing to save: %w", ErrParam)
	}
	return fileBytes(shardFile, s.state)
}

// UnmarshalBinary makes s the shard that MarshalBinary has returned as b. The error wraps ErrFile
// if b is not a shard of such items, is damaged or of a newer release; s is then as it was.
func (s *Shard[R]) UnmarshalBinary(b []byte) error {
	t := &Shard[R]{part: &rounds.Part{}}
	if err := unfile(shardFile, b, t.state); err != nil {
		return err
	}
	*s = *t
	return nil
}

func (s *Shard[R]) state(c *save.State) {
	s.part.State(c)
	if c.Err() != nil || !s.part.Blocks.Empty() {
		return
	}
	if c.Reading() {
		s.adder = newShardAdder[R](s.part)
		if c.Check(s.adder != nil, "a shard of a %s is not one of %T", s.part.ID.Model,
			s); s.adder == nil {
			return
		}
	}
	if s.adder.state(c, s.part); c.Reading() {
		s.part.Room()
	}
}

// An addedItem is the type of an item that shards take.
type addedItem[R any] interface {
	// newAdder returns what adds items to a model of that name, nil if nothing does. The receiver
	// says the type alone.
	newAdder(model string) shardAdder[R]
}

// newShardAdder returns what adds items R to the model of p, nil if nothing does.
func newShardAdder[R any](p *rounds.Part) shardAdder[R] {
	var item R
	if of, ok := any(item).(addedItem[R]); ok {
		return of.newAdder(p.ID.Model)
	}
	return nil
}

// MarshalBinary returns r, to go on with it in another process (UnmarshalBinary). The error wraps
// ErrParam if the likelihood's type is not registered (Register).
func (r *Rounds[R, P]) MarshalBinary() ([]byte, error) {
	if r.engine == nil {
		return nil, fmt.Errorf("pgsvi: a zero Rounds has nothing to save: %w", ErrParam)
	}
	return fileBytes(roundsFile, r.engine.state)
}

// UnmarshalBinary makes r what MarshalBinary has returned as b: it goes on to the same bits. The
// error wraps ErrFile if b is not a Rounds of such a model, is damaged or of a newer release; r is
// then as it was.
func (r *Rounds[R, P]) UnmarshalBinary(b []byte) error {
	engine, ok := newRoundsEngine[R, P]()
	if !ok {
		return fmt.Errorf("pgsvi: there is no %T to read: %w", r, ErrParam)
	}
	if err := unfile(roundsFile, b, engine.state); err != nil {
		return err
	}
	r.engine = engine
	return nil
}

// A roundsPosterior is the type of a posterior that rounds fit.
type roundsPosterior[R, P any] interface {
	// newRounds returns an engine to be read. The receiver says the type alone.
	newRounds() roundsEngine[R, P]
}

// newRoundsEngine returns an engine of such items and posteriors, to be read.
func newRoundsEngine[R, P any]() (roundsEngine[R, P], bool) {
	var post P
	if of, ok := any(post).(roundsPosterior[R, P]); ok {
		return of.newRounds(), true
	}
	return nil, false
}

// Of rows of rounds:
const (
	sampleOfRounds = 8192      // in the sample, or fewer
	sampleValues   = 8_000_000 // where they have more values
	sampleFewest   = 1000
	// part of the values of a sample that are not 0, below which rows are sparse
	sparsePart  = 0.25
	startGoal   = 1    // nats of the best fit of the sample,
	startAll    = 1e-6 // or this, where the sample is all rows
	startPasses = 50
	sampleTol   = 1e-2 // what learning on the sample may leave, for each row that one stands for
)

// What rounds of D weights have at their most, in D×D matrices: three states to try with three
// looks, two states with what was found there, and lanes.
const (
	roundMatrices = 40
	roundLane     = 4
)

// linearRounds is the engine of a Rounds of a linear model: of a GLM, or of the features of a
// sparse GP.
type linearRounds struct {
	rowAdder
	lin    *site.LinearModel // that of the sample, once there is one
	scaled bool              // its prior is made of the columns
	sds    [2]float64        // of which it is made otherwise
	rounds.Ledger
	climb rounds.Climb
	print fingerprint
	// of the first round, for the start
	columns *rounds.Columns
	stands  []float64 // for how many rows each of the sample stands
	widest  float64   // largest prior variance of the sample, where rows have features
}

// sampleSize returns the number of rows of a sample of d weights.
func sampleSize(d int) int { return max(sampleFewest, min(sampleOfRounds, sampleValues/(d+1))) }

// digest shows d the model, without its rows.
func (r *linearRounds) digest(d *save.Digest) {
	d.Int(r.cols, design.B2i(r.intercept), design.B2i(r.scaled))
	d.Float(r.sds[0], r.sds[1])
	digestValue(d, r.lik)
	if r.z != nil {
		r.z.digest(d)
	}
	if r.scaled {
		return
	}
	p := &r.lin.Prior
	d.Floats(p.Mean)
	d.Floats(p.Prec)
	if p.Full != nil {
		for i := range r.dim() {
			d.Float(p.Full.P[i*r.dim() : i*r.dim()+i+1]...)
		}
	}
}

// id returns that of the parts of this round.
func (r *linearRounds) id() rounds.ID {
	var states save.Digest
	r.climb.Digest(&states)
	return rounds.ID{Model: r.model(), Digest: r.print.of(r.digest), Round: r.Round,
		States: states.Sum()}
}

// part returns an empty part of this round.
func (r *linearRounds) part() *rounds.Part {
	d := r.dim()
	p := &rounds.Part{ID: r.id(), Size: d}
	if r.Round == 0 {
		p.Size = r.width()
		p.First = rounds.NewFirst(p.Size, sampleSize(max(p.Size, d)))
		return p
	}
	for _, q := range r.climb.Try {
		if q.Halt = nil; r.form == term.AsSparse {
			q.Invert()
		}
		l := rounds.NewLook(q, d)
		l.Tilt(r.climb.Tilts)
		p.Looks = append(p.Looks, l)
	}
	return p
}

// shard implements roundsEngine.
func (r *linearRounds) shard() *Shard[Row] {
	adder := r.rowAdder
	return &Shard[Row]{part: r.part(), adder: &adder}
}

// begin takes the part of the first round: the model is then that of the sample.
func (r *linearRounds) begin(p *rounds.Part) error {
	lin, rows := r.lin, p.First.Sample.Rows()
	d := r.width()
	values := 0
	for i := range rows {
		for _, v := range rows[i].Val {
			values += design.B2i(v != 0)
		}
	}
	r.form = term.AsDense
	if r.z == nil && float64(values) < sparsePart*float64(len(rows))*float64(d) {
		r.form = term.AsSparse
	}
	var buf term.Buffer
	buf.Form = r.form
	buf.Reset(d)
	for i := range rows {
		rows[i].AddTo(&buf)
	}
	lin.X, lin.Terms = buf.Design(), buf.Terms(viewOf(r.lik), 0)
	if r.z != nil {
		of, widest, err := r.z.features(nil, lin.X, lin.Terms)
		if err != nil {
			return err
		}
		lin.X, lin.Terms, r.widest = of.X, of.Terms, widest
	}
	r.Open(p)
	r.columns = p.First.Columns(p.Items)
	r.stands = p.First.Sample.Stands(p.Items, r.columns.Count)
	return nil
}

// start makes a fit of the sample what to look at first.
func (r *linearRounds) start(h *parallel.Halt, workers int) error {
	climb := r.newClimb(h)
	climb.Keep, climb.Tilts = r.climb.Keep, r.climb.Tilts
	r.climb = climb
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

// narrow returns q with the precision of large values that the sample does not stand for, of which
// exponentials are of any size. It is nil if there are none.
func (r *linearRounds) narrow(q *gauss.State) *gauss.State {
	if _, exponential := r.lik.(rated); !exponential || r.z != nil || r.lin.X.Rows == r.Items {
		return nil
	}
	return r.columns.Narrow(q, r.lin.X, r.stands)
}

// newClimb returns the ascent of the model, before its start.
func (r *linearRounds) newClimb(h *parallel.Halt) rounds.Climb {
	f := factsOf(r.lik)
	return rounds.Climb{Prior: &r.lin.Prior, Concave: f.LogConcave, Bounded: f.selfBounded, Halt: h}
}

// stand returns the model of the sample, each of whose rows stands for others.
func (r *linearRounds) stand() *site.LinearModel {
	lin, terms := *r.lin, *r.lin.Terms
	lin.Terms = &terms
	if n := terms.Len(); n < r.Items {
		weight := make([]float64, n)
		for i := range weight {
			_, _, w, _ := terms.Term(i)
			weight[i] = w * r.stands[i]
		}
		terms.Weight = weight
	}
	return &lin
}

// fitSample returns the posterior of the sample, or nil if it has none.
func (r *linearRounds) fitSample(h *parallel.Halt, workers int) (*gauss.State, error) {
	fit, goal := r.stand(), startAll
	if fit.Terms.Len() < r.Items {
		goal = startGoal
	}
	fit.AddPriorMean()
	q, err := fitWeights(h, fit, &Solver{Goal: goal, MaxPasses: startPasses, Workers: workers})
	if halted := h.Err(); halted != nil {
		return nil, halted
	}
	if err != nil || q == nil {
		return nil, nil // the prior will do
	}
	floats.Add(q.Mean, r.lin.Prior.Mean)
	if q.Double { // of which the first half is near enough
		if q.Double = false; !q.Factor() {
			return nil, nil
		}
	}
	return q, nil
}

// step is that of a roundsEngine, whose model begin makes that of a sample.
func (r *linearRounds) step(p *rounds.Part, begin func(*rounds.Part) error) (Iteration, error) {
	none := Iteration{K: max(0, r.Round-1), Evaluation: notEvaluated()}
	if err := r.accept(p); err != nil {
		return none, err
	}
	if r.Round == 0 {
		before, lin := *r, *r.lin
		err := begin(p)
		if err == nil {
			err = r.start(nil, runtime.GOMAXPROCS(0))
		}
		if err != nil {
			*r, *r.lin = before, lin
			return none, err
		}
		return none, nil
	}
	before := r.climb
	if err := r.climb.Step(p.Looks); err != nil {
		r.climb = before
		return none, err
	}
	r.Round++
	it := Iteration{K: r.Round - 1, Passes: float64(r.Round - 1), Step: r.taken(),
		Evaluation: r.evaluation()}
	it.settle()
	return it, nil
}

// accept returns an error unless p has all items of a round.
func (r *linearRounds) accept(p *rounds.Part) error {
	like := &rounds.Part{ID: r.id(), Size: r.dim(), Looks: make([]*rounds.Look, len(r.climb.Try))}
	if r.Round == 0 {
		like = r.part()
	}
	if err := p.Like(like); err != nil {
		return err
	}
	return r.Ledger.Accept(p)
}

// taken describes the step to come.
func (r *linearRounds) taken() Step {
	return Step{Beta: math.Inf(1), ClosedForm: true,
		GradMap: goals.NeverZero(r.climb.Length() * math.Sqrt(2*r.climb.Gap()))}
}

// evaluation describes the best state so far.
func (r *linearRounds) evaluation() Evaluation {
	f := r.climb.Found
	if f == nil {
		return notEvaluated()
	}
	e := Evaluation{ELBO: f.ELBO, ELBOErr: goals.NeverZero(f.Err),
		Gap: goals.NeverZero(r.climb.Gap()), GapBound: r.climb.GapBound(), Goal: streamGoal}
	if e.GapBound != 0 {
		e.Scope = OverQ
	}
	return e
}

// found returns the best state so far, of which there is none before the second round has ended.
func (r *linearRounds) found() (*gauss.State, error) {
	if r.climb.At == nil {
		return nil, errNoRound
	}
	q := &gauss.State{}
	q.CopyFrom(r.climb.At)
	return q, nil
}

// progress writes or reads what rounds have made of the model.
func (r *linearRounds) progress(c *save.State) {
	form := int(r.form)
	c.Int(&form)
	c.Check(term.Form(form) <= term.AsSparse, "rows of form %d", form)
	r.form = term.Form(form)
	if r.Ledger.State(c); r.Round == 0 || c.Err() != nil {
		return
	}
	if c.Check(len(r.lin.Prior.Mean) > 0, "a state without a prior"); c.Reading() {
		r.climb = r.newClimb(nil)
	}
	r.climb.State(c, r.dim())
}

// rowFeatures is what a linear model makes of rows, of their own values where there is none.
type rowFeatures interface {
	// model is what parts of the model are called.
	model() string
	columns() int // of a row
	rank() int    // of its features
	// features returns the linear model of rows in their features, and the largest prior variance.
	features(h *parallel.Halt, x *design.Matrix, t *term.Terms) (lin *site.LinearModel,
		widest float64, err error)
	digest(d *save.Digest)
	// bytes returns what load makes the features and the likelihood of.
	bytes(lik Likelihood, widest float64) ([]byte, error)
	load(b []byte) (z rowFeatures, lik Likelihood, widest float64, err error)
}

// glmModel is what parts of a linear model in the values of its rows are called.
const glmModel = "GLM"

// rowAdder adds rows to the parts of a linear model.
type rowAdder struct {
	cols      int
	intercept bool
	lik       Likelihood
	form      term.Form
	z         rowFeatures // nil for the rows themselves
}

func (a *rowAdder) model() string {
	if a.z != nil {
		return a.z.model()
	}
	return glmModel
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
func (a *rowAdder) add(ctx context.Context, p *rounds.Part, block uint64,
	items iter.Seq2[Row, error]) error {
	if err := p.Begin(block); err != nil {
		return err
	}
	var h parallel.Halt
	h.Watch(ctx)
	s := a.newPass(p, &h, 1)
	s.Block = block
	if err := a.through(s, items, math.MaxInt); err != nil {
		p.Break(block, sentinel.Bare(err))
		if cause := h.Err(); cause != nil {
			return fmt.Errorf("canceled in block %d: %w", block, cause)
		}
		return fmt.Errorf("block %d: %w", block, sentinel.Bare(err))
	}
	return nil
}

// newPass returns a pass over rows that adds to p.
func (a *rowAdder) newPass(p *rounds.Part, h *parallel.Halt, workers int) *rounds.RowPass {
	lik := viewOf(a.lik)
	s := rounds.NewRowPass(p, h, a.width(), a.dim(), a.form, workers)
	s.Lik, s.Rule = lik, lik.Rule
	if a.z != nil {
		s.Features = func(x *design.Matrix, t *term.Terms) (*design.Matrix, *term.Terms, error) {
			lin, _, err := a.z.features(h, x, t)
			if err != nil {
				return nil, nil, err
			}
			return lin.X, lin.Terms, nil
		}
	}
	return s
}

// through adds rows to s, and begins another block after so many. The error names a row.
func (a *rowAdder) through(s *rounds.RowPass, rows iter.Seq2[Row, error], each int) error {
	for row, err := range rows {
		if err == nil && s.Seen%ctxEvery == 0 {
			err = s.Halt.Err()
		}
		if err == nil {
			err = checkRow(&row, a.cols, a.lik, s.Seen)
		}
		if err == nil && s.Place == each {
			err = s.Next()
		}
		if err == nil {
			err = s.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, a.intercept)
		}
		if err != nil {
			return err
		}
	}
	return s.Flush()
}

// state implements shardAdder.
func (a *rowAdder) state(c *save.State, p *rounds.Part) {
	a.spec(c)
	form := int(a.form)
	c.Int(&a.cols, &form)
	c.Bool(&a.intercept)
	if a.form = term.Form(form); c.Err() != nil {
		return
	}
	d := a.dim()
	if p.First != nil {
		d = a.width()
	}
	c.Check(p.Sums == nil && p.Docs == nil && (p.First == nil) != (len(p.Looks) == 0),
		"a shard of rows with other sums")
	c.Check(a.form <= term.AsSparse && d == p.Size && (a.z == nil || a.z.columns() == a.width()),
		"rows of form %d with %d columns, for %d weights", form, a.cols, p.Size)
	for _, l := range p.Looks {
		if c.Reading() {
			l.At = &gauss.State{}
		}
		if c.Err() == nil {
			l.At.State(c, d)
		}
		if c.Reading() && a.form == term.AsSparse {
			l.At.Invert()
		}
	}
}

// spec writes or reads the likelihood, and the features, of which a reader has those of the model.
func (a *rowAdder) spec(c *save.State) {
	made := a.z != nil
	c.Bool(&made)
	if c.Check(made == (a.z != nil), "a %s with the rows of another model",
		a.model()); c.Err() != nil {
		return
	}
	var b []byte
	var err error
	switch {
	case !c.Reading() && made:
		b, err = a.z.bytes(a.lik, 0)
	case !c.Reading():
		var saved save.Value
		if saved, err = saveValue(a.lik); err == nil {
			b, err = json.Marshal(saved)
		}
	}
	if err != nil {
		c.Fail(err)
		return
	}
	if c.Bytes(&b); !c.Reading() {
		return
	}
	if made {
		a.z, a.lik, _, err = a.z.load(b)
	} else {
		var saved save.Value
		if err = json.Unmarshal(b, &saved); err == nil {
			a.lik, err = loadValue(saved, checkLikelihood)
		}
	}
	if err != nil {
		c.Fail(err)
	}
}
