package pgsvi

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

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
	term.Buffer
	lane  rounds.Lane
	block uint64
	place int
	first int // number of the first row
	err   error
}

func newRowPass(a *rowAdder, p *rounds.Part, h *parallel.Halt, workers int) *rowPass {
	d := a.width()
	s := &rowPass{rowAdder: a, part: p, halt: h, chunk: rounds.Chunk(max(d, a.dim())),
		bufs: make([]rowChunk, workers)}
	for i := range s.bufs {
		s.bufs[i].Form = a.form
		s.bufs[i].Reset(d)
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
		s.bufs[s.busy].Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.intercept)
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
	if n < len(s.bufs) && s.bufs[n].Rows() > 0 {
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
		s.part.Items += b.Rows()
		b.Reset(b.X.Cols)
	}
	return nil
}

// do adds a chunk.
func (s *rowPass) do(b *rowChunk) {
	x, t := b.Design(), b.Terms(viewOf(s.lik), b.first)
	if s.part.First != nil {
		s.part.First.Add(b.block, uint64(b.place), x, t)
	}
	if len(s.part.Looks) == 0 {
		return
	}
	if s.z != nil {
		lin, _, err := s.z.features(s.halt, x, t)
		if b.err = err; err != nil {
			return
		}
		x, t = lin.X, lin.Terms
	}
	ruled(t)
	for _, l := range s.part.Looks {
		if b.err = l.Add(&b.lane, s.halt, b.block, x, t); b.err != nil {
			return
		}
	}
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
