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
	"github.com/pgsvi/pgsvi/internal/sentinel"
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
