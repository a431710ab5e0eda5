package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/mat"
)

// This file gives NewGLMRows and NewGLMRounds one grouping factor (a mixed model of rows that are not
// kept). Each round adds up the blocks of XᵀΓX and Xᵀb of every level, and the covariance Σ of the
// effects moves to its best between rounds. The engine is internal/rounds/arrow_climb.go, and
// glm_groups.go describes the factor and its priors.

// newGroupRounds returns the engine of a GLM with GLMOptions.Groups before the first round.
func newGroupRounds(g *GLM, cols int) (*glmRounds, error) {
	o := &g.opt
	groups, err := checkGroups(o.Groups, cols, 1, o.Covariance, o.Prior)
	if err != nil {
		return nil, err
	}
	if n := len(groups); n > 1 {
		return nil, fmt.Errorf("pgsvi: GLMOptions.Groups has %d groups (%s, %s, …), but a GLM that "+
			"reads its rows in passes supports one; keep the largest, so that the columns of the others "+
			"have the standard deviation PriorSD, or use NewGLM: %w", n, groups[0].Name,
			groups[1].Name, ErrParam)
	}
	if o.Learn != nil && g.lin.Terms.Noise() == 0 {
		return nil, errGroupRowsLearn
	}
	o.Groups, o.Covariance = groups, FullCovariance
	if err := groupRowsMemory(g.grouping(), o.MaxMemory); err != nil {
		return nil, err
	}
	g.lin.MaxMemory = o.MaxMemory
	if !o.Autoscale {
		if err := g.setPrior(); err != nil {
			return nil, err
		}
	}
	return &glmRounds{linearRounds: g.linearRounds(cols), g: g}, nil
}

// errGroupRowsLearn is the error of learning with a group of rows that are not kept.
var errGroupRowsLearn = fmt.Errorf("pgsvi: a GLM with GLMOptions.Groups that reads its rows in passes "+
	"supports Learn, which finds PriorSD and the likelihood, for GaussianNoise only; leave "+
	"GLMOptions.Learn nil, and learn them with NewGLM from a part of the levels: %w", ErrParam)

// The largest memory of a GLM with a group that reads its rows in passes: the numbers of one state
// with its factors are counted groupStates times, for states to try and for scratch, and a pass has
// up to three sums of 25 bytes for each number.
const (
	groupStates  = 7
	groupNumbers = 25. / 8
)

// groupRowsMemory returns an error if the model exceeds the memory limit.
func groupRowsMemory(g *rounds.Grouping, limit int64) error {
	d, rows := g.Common, g.Levels*g.Q
	if d > site.MostBorder {
		return fmt.Errorf("pgsvi: there are %d columns outside the group %s; at most %d are supported: "+
			"%w", d, g.Name, site.MostBorder, ErrMemory)
	}
	need := memory.Bytes(groupStates, rows, 2*d+3*g.Q+3) + memory.Bytes(4*groupNumbers, 1, g.Sums()) +
		memory.Bytes(arrowMatrices, d, d) + memory.Bytes(site.WeightVectors, 1, d+rows)
	return checkMemory(limit, need,
		fmt.Sprintf("a GLM of any number of rows with a group of %d weights and %d other columns", rows,
			d), "use fewer columns, or raise GLMOptions.MaxMemory")
}

// grouping returns the layout of the group of g, or nil.
func (g *GLM) grouping() *rounds.Grouping {
	if len(g.opt.Groups) == 0 {
		return nil
	}
	r := &g.opt.Groups[0]
	return &rounds.Grouping{Name: r.Name, First: r.First, Levels: r.Levels, Q: r.effects(),
		Common: g.dim() - r.Levels*r.effects()}
}

// beginGroup uses the part of the first round to set up the prior of the effects and the first
// sites.
func (r *glmRounds) beginGroup(f *rounds.GroupFirst, m *rounds.GroupMoments) error {
	g := r.g
	group := &g.opt.Groups[0]
	q := group.effects()
	for j := group.First; j < group.end(); j++ {
		if v := g.lin.Prior.Mean[j]; v != 0 {
			return fmt.Errorf("pgsvi: GLMOptions.Prior has the mean %v in column %d of group %s; use "+
				"mean 0 and offsets of the rows: %w", v, j, group.Name, ErrParam)
		}
	}
	for c, name := range group.effectNames() {
		if c > 0 && !group.Fixed && m.Intercept && m.Rows > 0 && !m.Varies[c] {
			return group.constantEffect(name, float64(m.Levels) == m.Rows)
		}
	}
	sizes := make([]float64, q)
	for c := range sizes {
		sizes[c] = m.Square[c*q+c]
	}
	rootMeans(sizes, m.Rows)
	unit := groupUnit(g.lin.Terms)
	b, rule := group.prior(unit, sizes)
	g.lin.Prior = g.lin.Prior.WithBlocks()
	g.lin.Prior.SetBlock(b)
	g.lin.Factors = []site.Factor{rule}
	moment := slices.Clone(m.Square)
	for i := range moment {
		moment[i] /= float64(r.Items)
	}
	g.groups = []groupInfo{{Group: *group, moment: moment}}
	r.first = f.State()
	if near := nearResponse(r.lik, unit); near != nil && r.first != nil {
		if s := factsOf(r.lik).Support; s == RealLine { // the sites have the precision of unit 1
			r.first = r.first.Scaled(1 / (unit * unit))
		}
	}
	if g.rows != nil {
		g.rows.moments, g.rows.noise = m, g.lin.Terms.Noise()
	}
	r.arrow = r.newArrow()
	return nil
}

// newArrow returns the driver of a model with a group, before its start.
func (r *glmRounds) newArrow() *rounds.ArrowClimb {
	lin := &r.g.lin
	return &rounds.ArrowClimb{Of: r.group, Prior: &lin.Prior, Rule: lin.Factors[0],
		Concave: factsOf(r.lik).LogConcave, Near: nearResponse(r.lik, 1) != nil}
}

// groupPosterior implements roundsEngine for a model with a group.
func (r *glmRounds) groupPosterior() (*GLMPosterior, error) {
	if r.arrow == nil || r.arrow.At == nil {
		return nil, errNoRound
	}
	g, q := r.g, r.arrow.At
	mean := make([]float64, g.dim())
	for k := range q.Mean.W {
		mean[r.group.Column(k)] = q.Mean.W[k]
	}
	copy(mean[r.group.First:], q.Mean.U)
	p := g.posterior(mean, q.By, r.Items)
	if group := &g.opt.Groups[0]; !group.Fixed {
		spread, err := r.arrow.Spread()
		if err != nil {
			return nil, err
		}
		p.groups = slices.Clone(p.groups)
		p.groups[0].spread = &spread
	}
	r.arrow.Release()
	return p, nil
}

// groupState is the part of rowAdder.state for a mixed model with d weights or, in the first round,
// with d values per row.
func (a *rowAdder) groupState(c *save.Coder, p *rounds.Part, d int) {
	g := a.group
	c.Check(d == g.Common+g.Levels*g.Q && (p.Size == d || p.First != nil), "%d columns with %d common "+
		"ones", d, g.Common)
	for _, l := range p.Arrows {
		if c.Err() == nil {
			l.StateAt(c)
		}
	}
}

// savedRowGroup is the JSON form of the group of a glmRounds.
type savedRowGroup struct {
	Name        string             `json:"name"`
	First       int                `json:"first"`
	Levels      int                `json:"levels"`
	Effects     save.List[string]  `json:"effects"`
	SD          save.List[float64] `json:"sd,omitempty"`
	Corr        save.List[float64] `json:"corr,omitempty"`
	Fixed       bool               `json:"fixed"`
	NoPrior     bool               `json:"noPrior"`
	Independent bool               `json:"independent"`
	// Scale and Moment are known after the first round.
	Scale  save.List[float64] `json:"scale,omitempty"`
	Moment save.List[float64] `json:"moment,omitempty"`
}

// saveGroup returns the saved form of the group, or nil.
func (r *glmRounds) saveGroup() *savedRowGroup {
	if r.group == nil {
		return nil
	}
	g := &r.g.opt.Groups[0]
	s := &savedRowGroup{Name: g.Name, First: g.First, Levels: g.Levels, Effects: g.effectNames(),
		SD: g.SD, Fixed: g.Fixed, NoPrior: g.NoPrior, Independent: g.Independent}
	if g.Corr != nil {
		q := g.effects()
		for i := range q * q {
			s.Corr = append(s.Corr, g.Corr.At(i/q, i%q))
		}
	}
	if len(r.g.groups) > 0 {
		s.Scale, s.Moment = r.g.lin.Factors[0].Scale, r.g.groups[0].moment
	}
	return s
}

// group returns the group that was saved, without its moments.
func (s *savedRowGroup) group() (Group, error) {
	g := Group{Name: s.Name, First: s.First, Levels: s.Levels, Effects: s.Effects, SD: s.SD,
		Fixed: s.Fixed, NoPrior: s.NoPrior, Independent: s.Independent}
	if s.Corr == nil {
		return g, nil
	}
	q := g.effects()
	if len(s.Corr) != q*q {
		return g, fmt.Errorf("%d correlations of %d effects: %w", len(s.Corr), q, ErrShape)
	}
	g.Corr = mat.NewSymDense(q, s.Corr)
	return g, nil
}

// load sets the rule and the moments of the group of r, whose prior must be loaded.
func (s *savedRowGroup) load(r *glmRounds) error {
	group := &r.g.opt.Groups[0]
	q := group.effects()
	blocks := r.g.lin.Prior.Blocks()
	if len(s.Moment) != q*q || len(blocks) != 1 || blocks[0].First != group.First ||
		blocks[0].Levels != group.Levels || blocks[0].Q != q ||
		len(s.Scale) != q*(1-design.B2i(group.NoPrior)) {
		return fmt.Errorf("the group has %d moments and %d scales of %d effects: %w", len(s.Moment),
			len(s.Scale), q, ErrShape)
	}
	for _, x := range s.Scale {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("the scale of an effect is %v: %w", x, ErrParam)
		}
	}
	r.g.lin.Factors = []site.Factor{{Learn: !group.Fixed, Independent: group.Independent,
		Scale: s.Scale}}
	r.g.groups = []groupInfo{{Group: *group, moment: s.Moment}}
	r.arrow = r.newArrow()
	return nil
}
