package pgsvi

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file learns the noise of a stream of a mixed model with Gaussian responses, and the prior
// standard deviation of its other weights. While all rows are kept, the fit of all rows learns them.
// Later, the sums over the rows (gauss.Frozen) belong to a fixed variance v of the noise. The sums for
// another variance s are v/s times as large, so with Σ w(y − o)² and Σ w they determine the log
// evidence at any s, Σ and prior standard deviation (internal/site/arrow_evidence.go). The search is
// the search of GLM.Learn, and its optimum is the optimum of all rows, up to the scales of the
// priors, which come from the first rows.

// streamNoise holds what a groupStream needs to learn noise.
type streamNoise struct {
	opt            LearnOptions
	lik            Likelihood // as given to NewGLMStream
	square, weight float64    // Σ w(y − o)² and Σ w over the frozen rows
	// x1 and x2 hold Σ wx and Σ wx² of each column over the frozen rows. They are 0 in groups.
	x1, x2 []float64
	// y and w hold y − o and the weight of every step-th frozen row, for the scale of the responses. count
	// is the number of rows that were offered.
	y, w        []float64
	step, count int
	unit        float64 // scale of the first rows, in which the priors of Σ are, once rows are frozen
}

// mostResponses is the number of responses that a stream keeps for their scale. If there are more rows,
// it keeps a regular part of them.
const mostResponses = 1 << 16

// newStreamNoise returns the streamNoise of a stream of g, whose options and prior are set.
func newStreamNoise(g *GLM) (*streamNoise, error) {
	o := *g.opt.Learn
	if o.Integrate {
		return nil, fmt.Errorf("pgsvi: streams do not support LearnOptions.Integrate; leave it false: %w",
			ErrParam)
	}
	if g.opt.Prior != nil {
		return nil, fmt.Errorf("pgsvi: GLMOptions.Prior is set; leave it nil to learn prior standard "+
			"deviations: %w", ErrParam)
	}
	n := &streamNoise{opt: o, lik: likOf(g.lin.Terms), step: 1,
		x1: make([]float64, g.dim()), x2: make([]float64, g.dim())}
	_, err := n.learner(g) // checks the options
	return n, err
}

// clone returns a copy that add may change.
func (n *streamNoise) clone() *streamNoise {
	c := *n
	c.x1, c.x2, c.y, c.w = slices.Clone(n.x1), slices.Clone(n.x2), slices.Clone(n.y), slices.Clone(n.w)
	return &c
}

// variances returns the variances of the columns. They are 0 in groups.
func (n *streamNoise) variances() []float64 {
	v := make([]float64, len(n.x1))
	for j := range v {
		if m := n.x1[j] / n.weight; n.weight > 0 {
			v[j] = max(0, n.x2[j]/n.weight-m*m)
		}
	}
	return v
}

// learner returns the Learner of a stream of g. Its GLM has no rows, and its prior has the present Σ.
func (n *streamNoise) learner(g *GLM) (*glmLearner, error) {
	empty := *g
	d := g.dim()
	empty.lin.Terms = &term.Terms{Lik: viewOf(n.lik)}
	empty.lin.X = &design.Matrix{Cols: d, Sparse: &design.Rows{Cols: d, Ptr: []int{0}}}
	empty.opt.Learn = nil
	if empty.lin.Prior.Blocks() == nil { // before the first rows
		empty.lin.Prior = empty.lin.Prior.WithBlocks()
		for i := range g.opt.Groups {
			r := &g.opt.Groups[i]
			empty.lin.Prior.SetBlock(gauss.Block{First: r.First, Levels: r.Levels, Q: r.effects(),
				L: make([]float64, r.effects()*r.effects())})
		}
	}
	scale := &learnData{}
	if len(n.y) > 0 {
		scale.scales(n.y, n.w, n.lik)
	}
	return empty.learnerBy(&n.opt, false, n.variances(), scale)
}

// add adds the rows of t at index to the sums, or subtracts them if sign is −1. A nil index means all
// rows.
func (n *streamNoise) add(groups []Group, t *term.Buffer, index []int, sign float64) {
	terms, x := t.Terms(viewOf(n.lik), 0), t.Design()
	grouped, gone := groupedOf(groups, x.Cols), map[[2]float64]int{}
	if index == nil {
		for i := range t.Rows() {
			index = append(index, i)
		}
	}
	for _, i := range index {
		y, o, w, _ := terms.Term(i)
		if sign < 0 {
			gone[[2]float64{y - o, w}]++
		} else if w > 0 {
			n.keep(y-o, w)
		}
		w *= sign
		n.square += w * (y - o) * (y - o)
		n.weight += w
		ind, val := x.Row(i)
		for k, v := range val {
			if j := dense.Index(ind, k); !grouped[j] {
				n.x1[j] += w * v
				n.x2[j] += w * v * v
			}
		}
	}
	n.filter(func(i int) bool {
		at := [2]float64{n.y[i], n.w[i]}
		gone[at]--
		return gone[at] < 0
	})
}

// keep offers a response and its weight for the scale of the responses.
func (n *streamNoise) keep(y, w float64) {
	if n.count%n.step == 0 {
		n.y, n.w = append(n.y, y), append(n.w, w)
	}
	if n.count++; len(n.y) > mostResponses {
		n.step *= 2
		n.filter(func(i int) bool { return i%2 == 0 })
	}
}

// filter keeps the responses for which stays, called in order, reports true.
func (n *streamNoise) filter(stays func(i int) bool) {
	k := 0
	for i := range n.y {
		if stays(i) {
			n.y[k], n.w[k] = n.y[i], n.w[i]
			k++
		}
	}
	n.y, n.w = n.y[:k], n.w[:k]
}

// rules returns the rules of Σ in the unit of all responses.
func (n *streamNoise) rules(rules []site.Factor) []site.Factor {
	unit, all := 1.0, slices.Clone(rules)
	if len(n.y) == 0 {
		return rules
	}
	if scale, _ := learn.RobustScale(n.y, n.w); scale > 0 && !math.IsInf(scale, 0) {
		unit = scale
	}
	for i := range all {
		all[i].Scale = slices.Clone(all[i].Scale)
		floats.Scale(unit/n.unit, all[i].Scale)
	}
	return all
}

// noiseSearch is the Model of a search for the hyperparameters of a stream.
type noiseSearch struct {
	*glmLearner
	model learn.Model
	rows  int
}

// NewStepper implements Model.
func (l *noiseSearch) NewStepper(_ context.Context, env *Env, d Divergence) (Stepper, error) {
	return newLearnStepper(l.model, l.space, l.rows, &l.opt, false, env.rng()), learnsUnder(d)
}

// savedNoise is the JSON form of a streamNoise. The names and numbers of options come in the order of
// the names.
type savedNoise struct {
	Var     float64            `json:"variance"` // as given
	PriorSD float64            `json:"priorSD"`  // as given
	Fixed   save.List[string]  `json:"fixed,omitempty"`
	Priors  save.List[string]  `json:"priorNames,omitempty"`
	Prior   save.List[float64] `json:"priors,omitempty"` // Mean, SD and Shared
	Bounds  save.List[string]  `json:"boundNames,omitempty"`
	Bound   save.List[float64] `json:"bounds,omitempty"` // the smallest and the largest value
	NoPrior bool               `json:"noPrior"`
	Starts  int                `json:"restarts"`
	Tol     float64            `json:"tolerance"`
	Square  float64            `json:"squares"`
	Weight  float64            `json:"weight"`
	X1      save.List[float64] `json:"sums,omitempty"` // outside the groups
	X2      save.List[float64] `json:"squaresOfColumns,omitempty"`
	Y       save.List[float64] `json:"responses"`
	W       save.List[float64] `json:"weights"`
	Step    int                `json:"step"`
	Count   int                `json:"count"`
	Unit    float64            `json:"unit"`
}

// save returns the saved form of n, in a stream of g. It is nil if n is nil.
func (n *streamNoise) save(g *GLM) *savedNoise {
	if n == nil {
		return nil
	}
	s := &savedNoise{Var: n.lik.(GaussianNoise).Var, PriorSD: g.opt.PriorSD, Fixed: n.opt.Fixed,
		NoPrior: n.opt.NoPrior, Starts: n.opt.Restarts, Tol: n.opt.Tol, Square: n.square,
		Weight: n.weight, Y: n.y, W: n.w, Step: n.step, Count: n.count, Unit: n.unit}
	for _, name := range sortedKeys(n.opt.Prior) {
		p := n.opt.Prior[name]
		s.Priors, s.Prior = append(s.Priors, name), append(s.Prior, p.Mean, p.SD, p.Shared)
	}
	for _, name := range sortedKeys(n.opt.Bounds) {
		b := n.opt.Bounds[name]
		s.Bounds, s.Bound = append(s.Bounds, name), append(s.Bound, b[0], b[1])
	}
	for j, in := range groupedOf(g.opt.Groups, g.dim()) {
		if !in {
			s.X1, s.X2 = append(s.X1, n.x1[j]), append(s.X2, n.x2[j])
		}
	}
	return s
}

// load returns the streamNoise of a stream of g, whose names and groups must be loaded, and sets the
// options of g.
func (s *savedNoise) load(g *GLM) (*streamNoise, error) {
	o := LearnOptions{Fixed: s.Fixed, NoPrior: s.NoPrior, Restarts: s.Starts, Tol: s.Tol,
		Prior: map[string]Prior{}, Bounds: map[string][2]float64{}}
	grouped := groupedOf(g.opt.Groups, g.dim())
	common := 0
	for _, in := range grouped {
		common += design.B2i(!in)
	}
	if len(s.Prior) != 3*len(s.Priors) || len(s.Bound) != 2*len(s.Bounds) || len(s.X1) != common ||
		len(s.X2) != common || len(s.Y) != len(s.W) || len(s.Y) > mostResponses || s.Step < 1 ||
		s.Count < 0 || max(s.Step, s.Count) > save.Most {
		return nil, fmt.Errorf("%d and %d sums of %d columns, %d responses with %d weights: %w", len(s.X1),
			len(s.X2), common, len(s.Y), len(s.W), ErrShape)
	}
	for i, name := range s.Priors {
		o.Prior[name] = Prior{s.Prior[3*i], s.Prior[3*i+1], s.Prior[3*i+2]}
	}
	for i, name := range s.Bounds {
		o.Bounds[name] = [2]float64{s.Bound[2*i], s.Bound[2*i+1]}
	}
	if !(s.PriorSD >= 0) || math.IsInf(s.PriorSD, 0) || !(s.Unit >= 0) || math.IsInf(s.Unit, 0) {
		return nil, fmt.Errorf("the prior standard deviation is %v, and the unit %v: %w", s.PriorSD, s.Unit,
			ErrParam)
	}
	for _, v := range [][]float64{s.X1, s.X2, s.Y, s.W, {s.Square, s.Weight}} {
		if i, ok := dense.AllFinite(v); !ok {
			return nil, fmt.Errorf("number %d of the sums for the noise is %v: %w", i, v[i], ErrNotFinite)
		}
	}
	for i, w := range s.W {
		if !(w > 0) {
			return nil, fmt.Errorf("weight %d of the responses is %v: %w", i, w, ErrParam)
		}
	}
	lik := GaussianNoise{Var: s.Var}
	if err := checkLikelihood(lik); err != nil {
		return nil, err
	}
	n := &streamNoise{opt: o, lik: lik, square: s.Square, weight: s.Weight, x1: make([]float64, g.dim()),
		x2: make([]float64, g.dim()), y: s.Y, w: s.W, step: s.Step, count: s.Count, unit: s.Unit}
	k := 0
	for j, in := range grouped {
		if !in {
			n.x1[j], n.x2[j] = s.X1[k], s.X2[k]
			k++
		}
	}
	g.opt.PriorSD, g.opt.Learn = s.PriorSD, &n.opt
	_, err := n.learner(g)
	return n, err
}
