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

// Rounds fits a model P to items R that are spread over many machines (distributed, map-reduce). In
// each round, every machine adds its items to a Shard. The shards are merged, in any order and
// tree, and Step then computes the states for the next round:
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
// The first round draws a random sample, whose fit is the start, and counts the items. Each later
// round computes the ELBO of a state. For GLMs and sparse GPs the ELBO is exact, with a proved
// GapBound if the likelihood has one, and a fit takes three or four rounds. A CTM takes ten.
//
// Items come in blocks of a few thousand. Each block has a number that stays the same in all
// rounds. The result depends on the blocks, but not on how they are assigned to shards or merged,
// so it has the same bits for one shard and for thousands. The last digits may differ for another
// GOARCH. A round can be repeated, because shards hold only sums over their items.
//
// The zero Rounds is ready for UnmarshalBinary only. A Rounds is not safe for concurrent use.
type Rounds[R, P any] struct {
	engine roundsEngine[R, P]
}

// roundsEngine is the model-specific part of a Rounds. Its errors lack the prefix "pgsvi: ".
type roundsEngine[R, P any] interface {
	shard() *Shard[R]
	step(p *rounds.Part) (Iteration, error)
	posterior() (P, error)
	state(c *save.Coder)
}

// Shard holds the sums of a round over some blocks of items. It holds a few times as many numbers
// as the posterior, and in the first round also a sample of at most 8192 items. A saved Shard has a
// version and a checksum.
//
// A Shard is not safe for concurrent use. To process blocks in several goroutines, give each
// goroutine its own Shard. The zero Shard is ready for UnmarshalBinary only.
type Shard[R any] struct {
	part  *rounds.Part
	adder shardAdder[R] // nil if the shard was loaded with items
}

// shardAdder adds items to a part of the sums.
type shardAdder[R any] interface {
	add(ctx context.Context, p *rounds.Part, block uint64, items iter.Seq2[R, error]) error
	// state writes or reads the adder, and the states at which p is computed.
	state(c *save.Coder, p *rounds.Part)
}

// Shard returns an empty shard for the current round.
func (r *Rounds[R, P]) Shard() *Shard[R] { return r.engine.shard() }

// Step ends the current round, given a shard with all blocks, and begins the next round. The first
// round returns an Iteration that is not evaluated. Each later round returns the ELBO, Gap and
// GapBound of the state of Posterior, which is the best state so far, or for a CTM the last. K and
// Passes count the rounds after the first. Step keeps nothing of s.
//
// The error wraps
//   - ErrEmpty if s has no items;
//   - ErrParam if s is nil, belongs to another model or round, or lacks blocks or items of the
//     first round, which the error names;
//   - ErrNotFinite or ErrNotPosDef if there is no next state.
//
// On error r is unchanged.
func (r *Rounds[R, P]) Step(s *Shard[R]) (Iteration, error) {
	if s == nil || s.part == nil {
		return Iteration{Evaluation: notEvaluated()},
			fmt.Errorf("pgsvi: Step has no shard; pass a shard with all blocks: %w", ErrParam)
	}
	it, err := r.engine.step(s.part)
	return it, prefixed(err)
}

// Posterior returns the posterior at the state of the last Iteration. The error wraps ErrEmpty
// before the end of the second round.
func (r *Rounds[R, P]) Posterior() (P, error) {
	p, err := r.engine.posterior()
	return p, prefixed(err)
}

// Add adds the items of a block in their order. The number of a block must be the same in all
// rounds, and different from the numbers of all other blocks. A block may be empty. Add checks
// items like Stream.Add.
//
// It returns errors of ctx and items. The error of an item names the block and the item, and wraps
// the errors of Stream.Add. The error wraps ErrParam if s already has the block, or if s was loaded
// with items; merge such a shard with one from Rounds.Shard. After any other error s is unusable.
func (s *Shard[R]) Add(ctx context.Context, block uint64, items iter.Seq2[R, error]) error {
	switch {
	case s.adder == nil:
		return fmt.Errorf(
			"pgsvi: a loaded shard with items accepts no more items; merge it with a new one from "+
				"Rounds.Shard: %w", ErrParam)
	case items == nil:
		return fmt.Errorf("pgsvi: the items of block %d are nil; pass an empty sequence: %w", block,
			ErrEmpty)
	}
	return prefixed(s.adder.add(ctx, s.part, block, items))
}

// Merge adds the contents of o to s, and leaves o unchanged. The error wraps ErrParam if o is nil,
// if it belongs to another model, likelihood, round or state, or if it has a block of s. The error
// names the difference or the block, and s is then unchanged.
func (s *Shard[R]) Merge(o *Shard[R]) error {
	if s.part == nil || o == nil || o.part == nil {
		return fmt.Errorf(
			"pgsvi: Merge has a zero Shard; make shards with Rounds.Shard or UnmarshalBinary: %w",
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

// errNoRound is the error of Posterior before the end of the second round.
var errNoRound = fmt.Errorf("there is no posterior before the end of the second round: %w",
	ErrEmpty)

// Limits of a fit that reads the rows repeatedly.
const (
	streamGoal    = 1e-2 // a gap, in nats, that is not worth another pass
	mostRowPasses = 50
)

// shardFile and roundsFile are the file types of a Shard and a Rounds.
var (
	shardFile  = save.Kind{Name: "Shard", Version: 1}
	roundsFile = save.Kind{Name: "Rounds", Version: 1}
)

// fileBytes returns a file with the contents that state writes.
func fileBytes(kind save.Kind, state func(*save.Coder)) ([]byte, error) {
	body, err := save.Marshal(state)
	if err != nil {
		return nil, prefixed(err)
	}
	var b bytes.Buffer
	err = kind.Write(&b, body)
	return b.Bytes(), err
}

// unfile reads a file into state. The error wraps ErrFile.
func unfile(kind save.Kind, b []byte, state func(*save.Coder)) error {
	body, err := readBody(bytes.NewReader(b), kind)
	if err != nil {
		return err
	}
	if err := save.Unmarshal(body, state); err != nil {
		return &fileError{kind, err}
	}
	return nil
}

// MarshalBinary returns s. A saved empty shard holds everything needed to add items in another
// process. A saved shard with items holds only their sums. The error wraps ErrParam if the type of
// the likelihood is not registered (Register), or if the Add of a block failed.
func (s *Shard[R]) MarshalBinary() ([]byte, error) {
	if s.part == nil {
		return nil, fmt.Errorf("pgsvi: a zero Shard cannot be saved; make it with Rounds.Shard: %w",
			ErrParam)
	}
	return fileBytes(shardFile, s.state)
}

// UnmarshalBinary sets s to the shard that MarshalBinary returned as b. If b does not hold a shard
// of items R, is damaged, or was written by a newer release, the error wraps ErrFile and s is
// unchanged.
func (s *Shard[R]) UnmarshalBinary(b []byte) error {
	t := &Shard[R]{part: &rounds.Part{}}
	if err := unfile(shardFile, b, t.state); err != nil {
		return err
	}
	*s = *t
	return nil
}

func (s *Shard[R]) state(c *save.Coder) {
	s.part.State(c)
	if c.Err() != nil || !s.part.Blocks.Empty() {
		return
	}
	if c.Reading() {
		s.adder = newShardAdder[R](s.part)
		if c.Check(s.adder != nil, "a shard of a %s does not fit %T", s.part.ID.Model,
			s); s.adder == nil {
			return
		}
	}
	if s.adder.state(c, s.part); c.Reading() {
		s.part.Room()
	}
}

// addedItem is the type of an item that shards accept.
type addedItem[R any] interface {
	// newAdder returns an adder of such items to the named model, or nil if the model accepts no
	// such items. Only the type of the receiver matters.
	newAdder(model string) shardAdder[R]
}

// newShardAdder returns an adder of items R to the model of p, or nil if the model accepts no such
// items.
func newShardAdder[R any](p *rounds.Part) shardAdder[R] {
	var item R
	if of, ok := any(item).(addedItem[R]); ok {
		return of.newAdder(p.ID.Model)
	}
	return nil
}

// MarshalBinary returns r, so that another process can continue it after UnmarshalBinary. The error
// wraps ErrParam if the type of the likelihood is not registered (Register).
func (r *Rounds[R, P]) MarshalBinary() ([]byte, error) {
	if r.engine == nil {
		return nil, fmt.Errorf("pgsvi: a zero Rounds cannot be saved; make it with NewGLMRounds, "+
			"NewSparseGPRounds or NewCTMRounds: %w", ErrParam)
	}
	return fileBytes(roundsFile, r.engine.state)
}

// UnmarshalBinary sets r to the Rounds that MarshalBinary returned as b, which then continues bit
// for bit. If b does not hold a Rounds of this type, is damaged, or was written by a newer release,
// the error wraps ErrFile and r is unchanged.
func (r *Rounds[R, P]) UnmarshalBinary(b []byte) error {
	engine, ok := newRoundsEngine[R, P]()
	if !ok {
		return fmt.Errorf("pgsvi: no model has a %T, so it cannot be loaded: %w", r, ErrParam)
	}
	if err := unfile(roundsFile, b, engine.state); err != nil {
		return err
	}
	r.engine = engine
	return nil
}

// roundsPosterior is the type of a posterior that rounds can fit.
type roundsPosterior[R, P any] interface {
	// newRounds returns an engine to be loaded. Only the type of the receiver matters.
	newRounds() roundsEngine[R, P]
}

// newRoundsEngine returns an engine to be loaded for items R and posteriors P.
func newRoundsEngine[R, P any]() (roundsEngine[R, P], bool) {
	var post P
	if of, ok := any(post).(roundsPosterior[R, P]); ok {
		return of.newRounds(), true
	}
	return nil, false
}

// Constants of rounds over rows.
const (
	sampleOfRounds = 8192      // largest number of rows in the sample
	sampleValues   = 8_000_000 // largest number of values in the sample
	sampleFewest   = 1000
	// sparsePart is the share of non-zero values in a sample below which rows are stored as sparse.
	sparsePart  = 0.25
	startGoal   = 1    // gap of the fit to the sample, in nats
	startAll    = 1e-6 // the same, if the sample is all rows
	startPasses = 50
	sampleTol   = 1e-2 // tolerance of learning, per row that a sample row represents
)

// The largest memory of rounds with D weights, in D×D matrices: three states to try with their
// sums, two states with their results, and the lanes.
const (
	roundMatrices = 40
	roundLane     = 4
)

// linearRounds is the engine of a Rounds of a linear model, which is a GLM or a sparse GP in its
// features.
type linearRounds struct {
	rowAdder
	lin    *site.LinearModel // linear model of the sample, after the first round
	scaled bool              // the prior sd is scaled by the columns
	sds    [2]float64        // prior sds before the scaling
	rounds.Ledger
	climb rounds.Climb
	arrow *rounds.ArrowClimb // the driver of a mixed model, in place of climb
	print fingerprint
	// State of the first round, needed for the start.
	columns *rounds.Columns
	stands  []float64 // number of rows that each row of the sample represents
	widest  float64   // largest prior variance of the sample, if rows have features
}

// sampleSize returns the number of rows in a sample for d weights.
func sampleSize(d int) int { return max(sampleFewest, min(sampleOfRounds, sampleValues/(d+1))) }

// digest adds the model, without its rows, to d.
func (r *linearRounds) digest(d *save.Digest) {
	d.Int(r.cols, design.B2i(r.intercept), design.B2i(r.scaled))
	d.Float(r.sds[0], r.sds[1])
	digestValue(d, r.lik)
	if r.z != nil {
		r.z.digest(d)
	}
	if r.group != nil {
		r.group.Digest(d)
	}
	if r.scaled {
		return
	}
	p := &r.lin.Prior
	d.Floats(p.Mean)
	if r.group != nil { // the prior of the effects is not known before the first round
		for _, j := range r.group.Columns()[:r.group.Common] {
			d.Float(p.Prec[j])
		}
		return
	}
	d.Floats(p.Prec)
	if p.Full != nil {
		for i := range r.dim() {
			d.Float(p.Full.P[i*r.dim() : i*r.dim()+i+1]...)
		}
	}
}

// id returns the ID of the parts of this round.
func (r *linearRounds) id() rounds.ID {
	var states save.Digest
	r.ascent().Digest(&states)
	return rounds.ID{Model: r.model(), Digest: r.print.of(r.digest), Round: r.Round,
		States: states.Sum()}
}

// part returns an empty part of this round.
func (r *linearRounds) part() *rounds.Part {
	d := r.dim()
	p := &rounds.Part{ID: r.id(), Size: d}
	if r.Round == 0 {
		p.Size = r.width()
		if r.group != nil {
			p.Size, d = r.group.Border(), r.group.Border()
		}
		p.First = rounds.NewFirst(p.Size, sampleSize(max(p.Size, d)))
		if r.group != nil {
			p.Divide(r.group)
		}
		return p
	}
	for _, q := range r.climb.Try {
		if q.Halt = nil; r.form == term.AsSparse {
			q.Invert()
		}
	}
	r.ascent().Open(p)
	return p
}

// ascent returns the driver.
func (r *linearRounds) ascent() rounds.Ascent {
	if r.arrow != nil {
		return r.arrow
	}
	return &r.climb
}

// shard implements roundsEngine.
func (r *linearRounds) shard() *Shard[Row] {
	adder := r.rowAdder
	return &Shard[Row]{part: r.part(), adder: &adder}
}

// begin uses the part of the first round to set up the model of the sample.
func (r *linearRounds) begin(p *rounds.Part) error {
	lin, rows := r.lin, p.First.Sample.Rows()
	d := r.width()
	if r.group != nil {
		rows = r.group.Wide(rows)
	}
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

// start fits the sample and makes the fit the first state to try.
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
	guesses := []*gauss.Gaussian{q}
	if s := r.narrow(q); s != nil {
		guesses = append(guesses, s)
	}
	return r.climb.Start(guesses...)
}

// narrow returns q with the precision of large values that the sample does not represent, whose
// exponentials may have any size. It returns nil if there are no such values.
func (r *linearRounds) narrow(q *gauss.Gaussian) *gauss.Gaussian {
	if fastOf(r.lik).rate == nil || r.z != nil || r.lin.X.Rows == r.Items {
		return nil
	}
	return r.columns.Narrow(q, r.lin.X, r.stands)
}

// newClimb returns the ascent of the model before its start.
func (r *linearRounds) newClimb(h *parallel.Halt) rounds.Climb {
	f := factsOf(r.lik)
	return rounds.Climb{Prior: &r.lin.Prior, Concave: f.LogConcave, Bounded: f.selfBounded, Halt: h}
}

// stand returns the model of the sample with each row weighted by the number of rows it represents.
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

// fitSample returns the posterior of the sample, or nil if the fit fails.
func (r *linearRounds) fitSample(h *parallel.Halt, workers int) (*gauss.Gaussian, error) {
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
		return nil, nil // start from the prior
	}
	floats.Add(q.Mean, r.lin.Prior.Mean)
	if q.Double { // the first half of its digits is accurate enough
		if q.Double = false; !q.Factor() {
			return nil, nil
		}
	}
	return q, nil
}

// step implements roundsEngine. In the first round it calls begin to set up the model of the
// sample, and then start to set the first states.
func (r *linearRounds) step(p *rounds.Part, begin func(*rounds.Part) error,
	start func(*parallel.Halt, int) error) (Iteration, error) {
	none := Iteration{K: max(0, r.Round-1), Evaluation: notEvaluated()}
	if err := r.accept(p); err != nil {
		return none, err
	}
	if r.Round == 0 {
		before, lin := *r, *r.lin
		err := begin(p)
		if err == nil {
			err = start(nil, runtime.GOMAXPROCS(0))
		}
		if err != nil {
			*r, *r.lin = before, lin
			return none, err
		}
		return none, nil
	}
	restore := r.keep()
	if err := r.ascent().Read(p); err != nil {
		restore()
		return none, err
	}
	r.Round++
	it := Iteration{K: r.Round - 1, Passes: float64(r.Round - 1), Step: r.taken(),
		Evaluation: r.evaluation()}
	it.settle()
	return it, nil
}

// keep returns a function that restores the present state of the driver.
func (r *linearRounds) keep() (restore func()) {
	if r.arrow != nil {
		before := *r.arrow
		return func() { *r.arrow = before }
	}
	before := r.climb
	return func() { r.climb = before }
}

// accept returns an error unless p has all items of a round.
func (r *linearRounds) accept(p *rounds.Part) error {
	like := &rounds.Part{ID: r.id(), Size: r.dim(), Groups: r.group}
	switch n := r.ascent().Tries(); {
	case r.Round == 0:
		like = r.part()
	case r.group != nil:
		like.Arrows = make([]*rounds.ArrowLook, n)
	default:
		like.Looks = make([]*rounds.Look, n)
	}
	if err := p.Like(like); err != nil {
		return err
	}
	return r.Ledger.Accept(p)
}

// taken describes the next step.
func (r *linearRounds) taken() Step {
	a := r.ascent()
	return Step{Beta: math.Inf(1), ClosedForm: true,
		GradMap: goals.NeverZero(a.Length() * math.Sqrt(2*a.Gap()))}
}

// evaluation describes the best state so far.
func (r *linearRounds) evaluation() Evaluation {
	a := r.ascent()
	elbo, err, ok := a.Best()
	if !ok {
		return notEvaluated()
	}
	e := Evaluation{ELBO: elbo, ELBOErr: goals.NeverZero(err), Gap: goals.NeverZero(a.Gap()),
		GapBound: a.GapBound(), Goal: streamGoal}
	if e.GapBound != 0 {
		e.Scope = OverQ
	}
	return e
}

// found returns the best state so far, or an error before the end of the second round.
func (r *linearRounds) found() (*gauss.Gaussian, error) {
	if r.climb.At == nil {
		return nil, errNoRound
	}
	q := &gauss.Gaussian{}
	q.CopyFrom(r.climb.At)
	return q, nil
}

// progress writes or reads the result of the rounds so far.
func (r *linearRounds) progress(c *save.Coder) {
	form := int(r.form)
	c.Int(&form)
	c.Check(term.Form(form) <= term.AsSparse, "rows of form %d", form)
	r.form = term.Form(form)
	if r.Ledger.State(c); r.Round == 0 || c.Err() != nil {
		return
	}
	if c.Check(len(r.lin.Prior.Mean) > 0, "a state without a prior"); c.Err() != nil {
		return
	}
	if c.Reading() && r.group == nil {
		r.climb = r.newClimb(nil)
	}
	r.ascent().State(c, r.dim())
}

// rowFeatures computes the features of rows for a linear model.
type rowFeatures interface {
	// model returns the name of the model in parts.
	model() string
	columns() int // number of columns
	rank() int    // number of features
	// features returns the linear model of rows in their features, and the largest prior variance.
	features(h *parallel.Halt, x *design.Matrix, t *term.Terms) (lin *site.LinearModel,
		widest float64, err error)
	digest(d *save.Digest)
	// bytes returns the data from which load restores the features and the likelihood.
	bytes(lik Likelihood, widest float64) ([]byte, error)
	load(b []byte) (z rowFeatures, lik Likelihood, widest float64, err error)
}

// glmModel is the name, in parts, of a linear model in the values of its rows.
const glmModel = "GLM"

// rowAdder adds rows to the parts of a linear model.
type rowAdder struct {
	cols      int
	intercept bool
	lik       Likelihood
	form      term.Form
	z         rowFeatures      // nil if the features are the values of the row
	group     *rounds.Grouping // nil unless the model has grouping factors
}

func (a *rowAdder) model() string {
	if a.z != nil {
		return a.z.model()
	}
	return glmModel
}

// width returns the number of values of a row, including the intercept, and dim the number of
// weights.
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
	if a.group != nil {
		s.Near = nearResponse(a.lik, 1)
	}
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

// through adds rows to s, and begins another block after each rows. The error names a row.
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
func (a *rowAdder) state(c *save.Coder, p *rounds.Part) {
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
	if c.Reading() {
		a.group = p.Groups
	}
	c.Check(p.Sums == nil && p.Docs == nil && (p.First == nil) != (len(p.Looks)+len(p.Arrows) == 0) &&
		(a.group == nil || a.form == term.AsSparse), "a shard of rows with other sums")
	if a.group != nil {
		a.groupState(c, p, d)
		return
	}
	c.Check(a.form <= term.AsSparse && d == p.Size && (a.z == nil || a.z.columns() == a.width()),
		"rows of form %d with %d columns, for %d weights", form, a.cols, p.Size)
	for _, l := range p.Looks {
		if c.Reading() {
			l.At = &gauss.Gaussian{}
		}
		if c.Err() == nil {
			l.At.State(c, d)
		}
		if c.Reading() && a.form == term.AsSparse {
			l.At.Invert()
		}
	}
}

// spec writes or reads the likelihood and the features. The receiver must have the features of the
// same model.
func (a *rowAdder) spec(c *save.Coder) {
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

// groupState is the part of rowAdder.state for a mixed model with d weights or, in the first round,
// with d values per row.
func (a *rowAdder) groupState(c *save.Coder, p *rounds.Part, d int) {
	g := a.group
	c.Check(d == g.Weights() && (p.Size == d || p.First != nil), "%d columns with %d common "+
		"ones", d, g.Common)
	for _, l := range p.Arrows {
		if c.Err() == nil {
			l.StateAt(c)
		}
	}
}
