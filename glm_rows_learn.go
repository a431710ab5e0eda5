package pgsvi

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// rowsLearning is a GLM that goes through its rows as a function of the standard deviations of its
// prior. A look at all rows says at q what the ELBO is under any prior, and where it leads: at
// another θ the first look is saved.
type rowsLearning struct {
	glm     *GLM
	scale   *learn.BlockPrior
	workers term.Crew
	last    rowsPoint // of the last θ that was kept
	best    rowsPoint
	found   rowsPoint
	passes  float64
}

var _ learn.Model = (*rowsLearning)(nil)

// rowsPoint is the ascent at a θ.
type rowsPoint struct {
	theta []float64
	climb rounds.Climb
}

func (l *rowsLearning) Digest(d *save.Digest) {
	l.scale.Digest(d)
	d.Int(l.glm.rows.n)
}

func (l *rowsLearning) Use(c term.Crew) { l.workers = c }

func (l *rowsLearning) Work() float64 { return l.passes }

func (l *rowsLearning) Keep(best bool) {
	l.last = l.found
	if best {
		l.best = l.found
	}
}

// at returns the rounds of the GLM at θ. The error says that θ is out of range.
func (l *rowsLearning) at(theta []float64) (*glmRounds, error) {
	lin, err := l.scale.At(theta)
	if err != nil {
		return nil, err
	}
	g := *l.glm
	g.lin.Prior = lin.Prior
	r := g.rounds()
	r.climb = r.newClimb(l.workers.Halt)
	r.climb.Keep = true
	return &r, nil
}

// Evaluate implements learn.Model.
func (l *rowsLearning) Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	r, err := l.at(theta)
	if err != nil {
		return none, nil
	}
	h := l.workers.Halt
	if err = l.begin(r, theta); err == nil {
		err = l.climb(r, slack)
	}
	switch {
	case h.Err() != nil:
		return none, h.Err()
	case err != nil && !errors.Is(err, ErrNotFinite) && !errors.Is(err, ErrNotPosDef):
		return none, err
	case err != nil:
		return none, nil
	}
	c := &r.climb
	l.found = rowsPoint{slices.Clone(theta), *c}
	x := search.Point{F: -c.Found.ELBO, Slack: c.Gap()}
	if slopes && x.F <= most {
		q, d := c.At, r.g.dim()
		variance := make([]float64, d)
		for j := range variance {
			variance[j] = q.Inv[j*d+j]
		}
		l.scale.Gradient(&x, r.g.lin.Prior.Prec, q.Mean, variance, q.L)
		if _, ok := dense.AllFinite(x.Grad); !ok {
			return none, nil
		}
	}
	return x, h.Err()
}

// begin begins the ascent at the q of the nearest θ, or at a fit of the sample.
func (l *rowsLearning) begin(r *glmRounds, theta []float64) error {
	var near *rowsPoint
	for _, p := range [2]*rowsPoint{&l.last, &l.best} {
		if p.theta != nil && (near == nil || floats.Distance(p.theta, theta, 2) < floats.Distance(near.theta, theta, 2)) {
			near = p
		}
	}
	if near != nil {
		return r.climb.Again(&near.climb)
	}
	return r.start(l.workers.Halt, l.workers.Workers)
}

// climb goes up until no more than so many nats are promised.
func (l *rowsLearning) climb(r *glmRounds, slack float64) error {
	for range mostRowPasses {
		if r.climb.Gap() <= slack || r.climb.Stuck() {
			return nil
		}
		p, err := r.pass(l.workers.Halt, max(l.workers.Workers, l.workers.Halt.Workers()))
		if err != nil {
			return err
		}
		l.passes += float64(max(1, len(p.Looks)))
		if err := r.climb.Step(p.Looks); err != nil {
			return err
		}
	}
	return nil
}

// State implements learn.Model.
func (l *rowsLearning) State(c *save.State, n int) {
	c.Float(&l.passes)
	for _, p := range [2]*rowsPoint{&l.last, &l.best} {
		has := p.theta != nil
		if c.Bool(&has); c.Reading() {
			*p = rowsPoint{}
		}
		if !has || c.Err() != nil {
			continue
		}
		c.Floats(n, &p.theta)
		if c.Reading() {
			r, err := l.at(p.theta)
			if c.Check(err == nil, "hyper-parameters out of range"); err != nil {
				return
			}
			p.climb = r.climb
		}
		p.climb.State(c, l.glm.dim())
	}
}
