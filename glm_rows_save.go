package pgsvi

import (
	"encoding/json"
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
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

// newRounds implements roundsPosterior.
func (*GLMPosterior) newRounds() roundsEngine[Row, *GLMPosterior] { return &glmRounds{} }
