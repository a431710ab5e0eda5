package pgsvi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
)

// savedGLMRounds is what a glmRounds has of its model, as JSON.
type savedGLMRounds struct {
	Likelihood  save.Value         `json:"likelihood"`
	Names       save.List[string]  `json:"names"` // of the columns
	Intercept   bool               `json:"intercept"`
	Autoscale   bool               `json:"autoscale"`
	PriorSD     float64            `json:"priorSD"`
	InterceptSD float64            `json:"interceptSD"`
	MaxMemory   int64              `json:"maxMemory"`
	Prior       *gauss.SavedPrior  `json:"prior,omitempty"` // nil where it is not known yet
	Means       save.List[float64] `json:"columnMeans,omitempty"`
}

// state implements roundsEngine.
func (r *glmRounds) state(c *save.State) {
	var spec []byte
	if !c.Reading() {
		var err error
		if spec, err = r.spec(); err != nil {
			c.Fail(err)
			return
		}
	}
	c.Bytes(&spec)
	if c.Reading() {
		loaded, err := loadGLMRounds(spec)
		if err != nil {
			c.Fail(err)
			return
		}
		*r = *loaded
	}
	r.progress(c)
}

// progress writes or reads what rounds have made of the model.
func (r *glmRounds) progress(c *save.State) {
	form := int(r.form)
	c.Int(&r.round, &r.items, &form)
	c.Check(rowForm(form) <= asSparse, "rows of form %d", form)
	r.form = rowForm(form)
	if r.blocks.State(c); r.round == 0 || c.Err() != nil {
		return
	}
	if c.Check(len(r.g.lin.Prior.Mean) > 0, "a state without a prior"); c.Reading() {
		r.climb = r.newClimb(nil)
	}
	r.climb.State(c, r.dim())
}

// spec returns the model as JSON.
func (r *glmRounds) spec() ([]byte, error) {
	o, names := &r.g.opt, r.g.lin.Names[:r.cols]
	if err := checkText("the name of weight", names); err != nil {
		return nil, err
	}
	s := savedGLMRounds{Names: names, Intercept: o.Intercept, Autoscale: o.Autoscale, PriorSD: o.PriorSD, InterceptSD: o.InterceptSD, MaxMemory: o.MaxMemory, Means: r.g.means}
	if p := &r.g.lin.Prior; len(p.Mean) > 0 {
		saved := p.Save()
		s.Prior = &saved
	}
	var err error
	if s.Likelihood, err = saveValue(r.lik); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// loadGLMRounds returns the model of a spec, before the first round.
func loadGLMRounds(spec []byte) (*glmRounds, error) {
	s := &savedGLMRounds{}
	if err := json.Unmarshal(spec, s); err != nil {
		return nil, err
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	r, err := newGLMRounds(len(s.Names), lik, &GLMOptions{Names: s.Names, Intercept: s.Intercept, Autoscale: s.Autoscale,
		PriorSD: s.PriorSD, InterceptSD: s.InterceptSD, MaxMemory: s.MaxMemory})
	if err != nil {
		return nil, err
	}
	if len(s.Means) > 0 && len(s.Means) != len(s.Names) {
		return nil, fmt.Errorf("means of %d columns, of which there are %d: %w", len(s.Means), len(s.Names), ErrShape)
	}
	if r.g.means = s.Means; s.Prior == nil {
		return r, nil
	}
	p, err := s.Prior.Load()
	if err == nil && len(p.Mean) != r.g.dim() {
		err = fmt.Errorf("a prior of %d weights, of which there are %d: %w", len(p.Mean), r.g.dim(), ErrShape)
	}
	if err == nil {
		r.g.lin.Prior = *p
	}
	return r, err
}

// state implements shardAdder.
func (a *rowAdder) state(c *save.State, p *rounds.Part) {
	a.model(c)
	form := int(a.form)
	c.Int(&a.cols, &form)
	c.Bool(&a.intercept)
	if a.form = rowForm(form); c.Err() != nil {
		return
	}
	d := a.dim()
	if p.First != nil {
		d = a.width()
	}
	c.Check(p.Sums == nil && p.Docs == nil && (p.First == nil) != (len(p.Looks) == 0),
		"a shard of rows with other sums")
	c.Check(a.form <= asSparse && d == p.Size && (a.z == nil || a.z.x.RawMatrix().Cols == a.width()), "rows of form %d with %d columns, for %d weights", form, a.cols, p.Size)
	for _, l := range p.Looks {
		if c.Reading() {
			l.At = &gauss.State{}
		}
		if c.Err() == nil {
			l.At.State(c, d)
		}
		if c.Reading() && a.form == asSparse {
			l.At.Invert()
		}
	}
}

// model writes or reads the likelihood, and the inducing values of a sparse GP.
func (a *rowAdder) model(c *save.State) {
	sparse := a.z != nil
	c.Bool(&sparse)
	var b []byte
	var err error
	switch {
	case c.Err() != nil:
		return
	case !c.Reading() && sparse:
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
	c.Bytes(&b)
	switch {
	case !c.Reading():
	case sparse:
		var p *SparseGPPosterior
		if p, err = Load[*SparseGPPosterior](bytes.NewReader(b)); err == nil {
			a.z, a.lik = p.z, p.lik
		}
	default:
		var saved save.Value
		if err = json.Unmarshal(b, &saved); err == nil {
			a.lik, err = loadValue(saved, checkLikelihood)
		}
	}
	if err != nil {
		c.Fail(err)
	}
}

// newAdder implements addedItem.
func (Row) newAdder(model string) shardAdder[Row] {
	if model == glmModel || model == sparseModel {
		return &rowAdder{}
	}
	return nil
}

// newRounds implements roundsPosterior.
func (*GLMPosterior) newRounds() roundsEngine[Row, *GLMPosterior] { return &glmRounds{} }
