package pgsvi

import (
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
	orNaN(&it.ELBOErr, &it.Gap, &it.GapBound)
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
