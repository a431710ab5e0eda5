package pgsvi

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/table"
	"gonum.org/v1/gonum/mat"
)

// This file holds the results of a mixed model: the method Groups of a GLMPosterior, the table that
// Summary prints, and their saved form.

// GroupSummary describes one grouping factor of a posterior.
type GroupSummary struct {
	Name   string
	Levels int
	// Known is the number of levels with rows. Other levels are new.
	Known int
	// Effects has one element per effect of a level.
	Effects []GroupEffect
	// Corr has one element per pair of effects: 1 and 0, 2 and 0, 2 and 1, and so on.
	Corr []GroupCorr
	// Share is the share of the factor in the variance of the latent response (intraclass
	// correlation). The variance of the effects is averaged over the rows. The total consists of
	// all groups and of the residual: the variance of the noise for real responses, or of its
	// logarithm for LogNormal, π²/3 for BernoulliLogit and Binomial, π²/6 for Softmax, and 1 for
	// BernoulliProbit (Nakagawa, Johnson and Schielzeth, 2017). Share is NaN for other likelihoods.
	Share float64
	// NotIntegrated reports that the posterior ignores the uncertainty of Σ although it matters: the
	// interval of a standard deviation reaches 1.5 times its value. Intervals of new levels are then
	// too short. The posterior is not integrated over Σ because the model has more than three
	// parameters and the group 50 to 199 levels; see Group.
	NotIntegrated bool
	// Classes holds the names of the classes of a Softmax, such as "class=0". It is nil for other
	// likelihoods.
	Classes []string
	// Mean and SD hold the posterior means and standard deviations of the effects, Levels×Q. For a
	// Softmax of K classes they are Levels×KQ, class by class, minus the mean over the classes.
	Mean, SD *mat.Dense
}

// GroupEffect is the standard deviation of one effect between levels, with a 95% interval. Lo and
// Hi equal SD if it is fixed, and are NaN if the interval is unknown, as after Update.
type GroupEffect struct {
	Name       string
	SD, Lo, Hi float64
	// EDF is the effective degrees of freedom: the number of level effects that the rows determine,
	// as opposed to Σ (MacKay 1992). It is between 0 and the number of levels.
	EDF float64
}

// GroupCorr is the correlation of two effects between levels, with a 95% interval; see GroupEffect.
// If a standard deviation is 0, Value is 0, and the interval is from −1 to 1 unless the correlation is
// fixed or was integrated over. Lo and Hi are NaN if the interval is unknown, as after Update.
type GroupCorr struct {
	A, B          string
	Value, Lo, Hi float64
}

// Groups returns a new description of each group of GLMOptions.Groups. It returns nil if the model
// has no groups. The classes of a Softmax share the standard deviations and correlations. These
// describe the effects of one class before the mean over the classes is subtracted; see Group.
//
// Standard deviations and correlations that were integrated over (see Group) have the intervals of
// their posterior density, which is proportional to exp(ELBO) p(Σ). With three or more parameters,
// the density is approximated around the points of the integral, and the ends of intervals may be
// off by 3%, or by more if they are near 0. Other intervals are Laplace approximations: log SD and the
// inverse hyperbolic tangent of a correlation are nearly Gaussian. If log SD has a standard deviation
// above 1, the data hardly determine SD, and the interval belongs to a Gaussian SD, cut off at 0. The
// interval of an SD that is learned as 0 begins at 0. The curvature comes from the ELBO plus the log
// prior of Σ, and allows for the sites, which follow Σ, to first order.
func (p *GLMPosterior) Groups() []GroupSummary {
	if len(p.groups) == 0 {
		return nil
	}
	variance := make([]float64, len(p.mean))
	p.wide().Diag(variance)
	all := make([]GroupSummary, len(p.groups))
	variances, total := make([]float64, len(all)), latentNoise(p.lik)
	for i := range p.groups {
		r := &p.groups[i]
		q := r.effects()
		s := &all[i]
		s.Name, s.Levels, s.Known = r.Name, r.Levels, r.Levels
		k, d := latentsOf(p.lik), len(p.names)
		s.Mean, s.SD = mat.NewDense(r.Levels, k*q, nil), mat.NewDense(r.Levels, k*q, nil)
		for c := range k {
			if k > 1 {
				s.Classes = append(s.Classes, p.className(c))
			}
			from := c*d + r.First
			for j := range r.Levels * q {
				s.Mean.Set(j/q, c*q+j%q, p.mean[from+j])
				s.SD.Set(j/q, c*q+j%q, math.Sqrt(variance[from+j]))
			}
		}
		k, block := p.blockOf(r)
		cov, edf := block.Covariance(), make([]float64, q)
		r.zero(cov)
		if k >= 0 {
			edf = p.prior.Determined(k, p.cov, latentsOf(p.lik))
		}
		if a, ok := p.cov.(*gauss.Arrow); ok {
			s.Known = a.Filled(block)
		}
		for j, m := range r.moment {
			variances[i] += cov[j] * m
		}
		total += variances[i]
		names := r.effectNames()
		for j := range q {
			own := math.Sqrt(cov[j*q+j])
			lo, hi := r.interval(own, j)
			s.Effects = append(s.Effects, GroupEffect{names[j], own, lo, hi, edf[j]})
			s.NotIntegrated = s.NotIntegrated || r.kept && hi > keptWide*own
			for k := range j {
				c := GroupCorr{A: names[j], B: names[k]}
				if s := own * math.Sqrt(cov[k*q+k]); s > 0 {
					c.Value = cov[j*q+k] / s
				}
				c.Lo, c.Hi = r.corrInterval(c.Value, own == 0 || cov[k*q+k] == 0, j, k)
				s.Corr = append(s.Corr, c)
			}
		}
	}
	for i := range all {
		all[i].Share = variances[i] / total
	}
	return all
}

// zero sets the rows and columns of the covariance of the effects to 0 whose standard deviations
// stand for 0.
func (r *groupInfo) zero(cov []float64) {
	if r.spread == nil {
		return
	}
	q := r.effects()
	for j, zero := range r.spread.Zero {
		for k := 0; zero && k < q; k++ {
			cov[j*q+k], cov[k*q+j] = 0, 0
		}
	}
}

// keptWide is the ratio of the upper end of its interval to a standard deviation from which its
// uncertainty matters. If log τ has the standard deviation s, 90% intervals of new levels at the best τ
// contain about 45s² percentage points less, which are 2 for a ratio of 1.5.
const keptWide = 1.5

// keepBest marks the groups whose Σ would be integrated over if the model had fewer parameters, or two
// classes. Groups with most levels or more are never integrated over.
func keepBest(groups []groupInfo, most int) {
	var levels, params []int
	for i := range groups {
		if r := &groups[i]; !r.Fixed && !r.NoPrior {
			levels = append(levels, r.Levels)
			params = append(params, site.GridParams(r.effects(), r.Independent))
		}
	}
	least := min(most, site.GridLevels(levels, params))
	for i := range groups {
		r := &groups[i]
		r.kept = !r.Fixed && !r.NoPrior && r.Levels >= least && r.Levels < site.MostGridLevels
	}
}

// blockOf returns the prior of the effects of r and its number, or −1 if the prior has no such block.
func (p *GLMPosterior) blockOf(r *groupInfo) (int, gauss.Block) {
	for k, b := range p.prior.Blocks() {
		if b.First == r.First {
			return k, b
		}
	}
	q := r.effects()
	return -1, gauss.Block{First: r.First, Levels: r.Levels, Q: q, L: make([]float64, q*q)}
}

// interval returns the 95% interval of the standard deviation sd of effect j.
func (r *groupInfo) interval(sd float64, j int) (lo, hi float64) {
	switch {
	case r.Fixed:
		return sd, sd
	case r.spread == nil:
		return math.NaN(), math.NaN()
	case r.spread.Hi != nil && r.spread.Hi[j] > 0:
		return min(r.spread.Lo[j], sd), r.spread.Hi[j] // the density may be highest at 0
	}
	s := r.spread.SD[j]
	if !(s < sd) { // in particular if sd is 0
		return max(0, sd-normal95*s), sd + normal95*s
	}
	return sd * math.Exp(-normal95*s/sd), sd * math.Exp(normal95*s/sd)
}

// corrInterval returns the 95% interval of the correlation c of effects j and k. With zero set, one of
// them has the standard deviation 0.
func (r *groupInfo) corrInterval(c float64, zero bool, j, k int) (lo, hi float64) {
	switch {
	case r.Fixed || r.Independent:
		return c, c
	case r.spread == nil:
		return math.NaN(), math.NaN()
	}
	q := r.effects()
	if at := q + j*q + k; r.spread.Hi != nil && r.spread.Hi[at] > r.spread.Lo[at] {
		return min(r.spread.Lo[at], c), max(r.spread.Hi[at], c)
	}
	if zero {
		return -1, 1
	}
	s, at := r.spread.Atanh[j*q+k], math.Atanh(max(-1, min(1, c)))
	if math.IsInf(at, 0) || math.IsInf(s, 0) || math.IsNaN(s) {
		return -1, 1
	}
	return math.Tanh(at - normal95*s), math.Tanh(at + normal95*s)
}

// latentNoise returns the variance of the latent response about its linear predictor; see
// GroupSummary.Share.
func latentNoise(lik Likelihood) float64 {
	switch l := lik.(type) {
	case BernoulliLogit, Binomial:
		return math.Pi * math.Pi / 3
	case Softmax:
		return math.Pi * math.Pi / 6
	case BernoulliProbit:
		return 1
	case GaussianNoise:
		return positiveOr(l.Var, 1)
	case LogNormal:
		scale := positiveOr(l.Scale, 1)
		return scale * scale
	case Laplace:
		b := positiveOr(l.Scale, 1)
		return 2 * b * b
	case StudentT:
		df, scale := positiveOr(l.DF, 4), positiveOr(l.Scale, 1)
		if df > 2 {
			return scale * scale * df / (df - 2)
		}
	}
	return math.NaN()
}

// groupAlgebra returns the algebra of the state st of a mixed model. It returns nil for other models
// and states.
func (p *GLMPosterior) groupAlgebra(st Stepper) *site.ArrowAlgebra {
	s, ok := st.(*siteStepper)
	if !ok || len(p.groups) == 0 {
		return nil
	}
	a, _ := s.alg.(*site.ArrowAlgebra)
	return a
}

// setGroupSpread sets the uncertainty of the covariances of the groups at the state st.
func (p *GLMPosterior) setGroupSpread(st Stepper) error {
	a := p.groupAlgebra(st)
	if a == nil {
		return nil
	}
	all, err := a.Spread()
	if err != nil {
		return err
	}
	p.groups = slices.Clone(p.groups)
	for i := range p.groups {
		if p.groups[i].spread = nil; a.Learns() && !p.groups[i].Fixed {
			p.groups[i].spread = &all[i]
		}
	}
	if a.Learns() {
		keepBest(p.groups, site.MostGridLevels)
	}
	return nil
}

// updatedGroups returns the groups of p for a posterior with other rows, which do not change Σ.
func (p *GLMPosterior) updatedGroups() []groupInfo {
	groups := slices.Clone(p.groups)
	for i := range groups {
		groups[i].spread, groups[i].kept = nil, false
	}
	return groups
}

// savedGroups is the saved form of groupInfos, whose columns are in the saved prior: lists with one
// element per group or effect, and the lists of numbers of all groups one after the other.
type savedGroups struct {
	Names       save.List[string]  `json:"names"`
	Effects     save.List[string]  `json:"effects"`
	Fixed       save.List[int]     `json:"fixed"` // 0 or 1, like the next two
	Independent save.List[int]     `json:"independent"`
	Learned     save.List[int]     `json:"learned"` // whether SD and Atanh are known
	Moments     save.List[float64] `json:"moments"`
	SD          save.List[float64] `json:"sd"` // zeros if unknown
	Atanh       save.List[float64] `json:"atanh"`
	// Zero holds 1 for each standard deviation that stands for 0, and is empty if all would be 0.
	Zero save.List[int] `json:"zero,omitempty"`
	// Kept holds 1 for each group whose Σ keeps its best value because there are too many parameters,
	// and is empty if all would be 0.
	Kept save.List[int] `json:"kept,omitempty"`
}

// savedArrow is the JSON form of a gauss.Arrow: XᵀΓX, from which the covariance follows.
type savedArrow struct {
	A   save.List[float64] `json:"border"` // lower triangle
	B   save.List[float64] `json:"levelBorder"`
	D   save.List[float64] `json:"levels"`
	Pat save.List[int32]   `json:"pattern,omitempty"` // lists of the levels, one after the other
	Len save.List[int]     `json:"lengths,omitempty"` // lengths of these lists
}

// saveGroups returns the saved form of the groups of p. It returns nil if p has no groups.
func (p *GLMPosterior) saveGroups() *savedGroups {
	if len(p.groups) == 0 {
		return nil
	}
	s := &savedGroups{}
	for i := range p.groups {
		r := &p.groups[i]
		q := r.effects()
		s.Names, s.Effects = append(s.Names, r.Name), append(s.Effects, r.effectNames()...)
		s.Fixed = append(s.Fixed, design.B2i(r.Fixed))
		s.Independent = append(s.Independent, design.B2i(r.Independent))
		s.Learned = append(s.Learned, design.B2i(r.spread != nil))
		s.Kept = append(s.Kept, design.B2i(r.kept))
		s.Moments = append(s.Moments, r.moment...)
		spread := r.spread
		if spread == nil {
			spread = &site.FactorSpread{SD: make([]float64, q), Atanh: make([]float64, q*q)}
		}
		s.SD, s.Atanh = append(s.SD, spread.SD...), append(s.Atanh, spread.Atanh...)
		for j := range q {
			s.Zero = append(s.Zero, design.B2i(spread.Zero != nil && spread.Zero[j]))
		}
	}
	if !slices.Contains(s.Zero, 1) {
		s.Zero = nil
	}
	if !slices.Contains(s.Kept, 1) {
		s.Kept = nil
	}
	return s
}

// loadGroups sets the groups of p, whose prior must be loaded.
func (p *GLMPosterior) loadGroups(s *savedGroups) error {
	blocks := p.prior.Blocks()
	if s == nil {
		s = &savedGroups{}
	}
	effects, squares := 0, 0
	for _, b := range blocks {
		effects, squares = effects+b.Q, squares+b.Q*b.Q
	}
	for _, n := range []struct{ got, want int }{{len(s.Names), len(blocks)},
		{len(s.Effects), effects}, {len(s.Fixed), len(blocks)}, {len(s.Independent), len(blocks)},
		{len(s.Learned), len(blocks)}, {len(s.Moments), squares}, {len(s.SD), effects},
		{len(s.Atanh), squares}, {len(s.Zero), effects * design.B2i(s.Zero != nil)},
		{len(s.Kept), len(blocks) * design.B2i(s.Kept != nil)}} {
		if n.got != n.want {
			return fmt.Errorf("a list of the groups has %d elements instead of %d: %w", n.got, n.want,
				ErrShape)
		}
	}
	effects, squares = 0, 0
	for i, b := range blocks {
		e, m := effects+b.Q, squares+b.Q*b.Q
		r := groupInfo{Group: Group{Name: s.Names[i], First: b.First, Levels: b.Levels,
			Effects: s.Effects[effects:e], Fixed: s.Fixed[i] != 0,
			Independent: s.Independent[i] != 0}, moment: s.Moments[squares:m]}
		if s.Learned[i] != 0 {
			r.spread = &site.FactorSpread{SD: s.SD[effects:e], Atanh: s.Atanh[squares:m]}
			if s.Zero != nil {
				for _, zero := range s.Zero[effects:e] {
					r.spread.Zero = append(r.spread.Zero, zero != 0)
				}
			}
		}
		r.kept = s.Kept != nil && s.Kept[i] != 0
		effects, squares = e, m
		p.groups = append(p.groups, r)
		p.opt.Groups = append(p.opt.Groups, r.Group)
	}
	return nil
}

// saveArrow returns the saved form of c.
func saveArrow(c *gauss.Arrow) *savedArrow {
	s := &savedArrow{B: c.Sums.B, D: c.Sums.D}
	m := len(c.Border)
	for i := range m {
		s.A = append(s.A, c.Sums.A[i*m:i*m+i+1]...)
	}
	if c.Crossed() {
		for _, pat := range c.Pat {
			s.Pat, s.Len = append(s.Pat, pat...), append(s.Len, len(pat))
		}
	}
	return s
}

// load returns the covariance under the given prior.
func (s *savedArrow) load(prior *gauss.Prior) (gauss.Cov, error) {
	c, err := s.arrow(prior)
	if err != nil {
		return nil, err
	}
	if !c.Factor(nil) {
		return nil, fmt.Errorf("the covariance of the groups: %w", ErrNotPosDef)
	}
	return c, nil
}

// arrow returns the covariance under the given prior, which is not yet factorized.
func (s *savedArrow) arrow(prior *gauss.Prior) (*gauss.Arrow, error) {
	blocks := prior.Blocks()
	if len(blocks) == 0 {
		return nil, fmt.Errorf("the covariance of groups without groups: %w", ErrShape)
	}
	shape := gauss.NewArrowShape(prior)
	f := &shape.Blocks[0]
	bad := fmt.Errorf("%d levels of the largest group do not fit the covariance: %w", f.Levels,
		ErrShape)
	shape.Pat = make([][]int32, f.Levels)
	if shape.Crossed() {
		if len(s.Len) != f.Levels {
			return nil, bad
		}
		pat := []int32(s.Pat)
		for g, n := range s.Len {
			if n < 0 || n > len(pat) {
				return nil, bad
			}
			shape.Pat[g], pat = pat[:n], pat[n:]
			for k, j := range shape.Pat[g] {
				if int(j) < shape.Common || int(j) >= len(shape.Border) ||
					k > 0 && j <= shape.Pat[g][k-1] {
					return nil, bad
				}
			}
		}
		if len(pat) > 0 {
			return nil, bad
		}
	}
	shape.SetPtr()
	m := len(shape.Border)
	if len(s.A) != m*(m+1)/2 || len(s.B) != shape.Ptr[f.Levels] || len(s.D) != f.Levels*f.Q*f.Q {
		return nil, bad
	}
	c := &gauss.Arrow{ArrowShape: shape}
	c.Sums = gauss.Sums{A: make([]float64, m*m), B: s.B, D: s.D}
	for i := range m {
		copy(c.Sums.A[i*m:], s.A[i*(i+1)/2:(i+1)*(i+2)/2])
	}
	for _, b := range shape.Blocks {
		c.L = append(c.L, b.L)
	}
	return c, nil
}

// groupTable returns the lines of the table of groups.
func groupTable(groups []GroupSummary) string {
	lines := [][]string{{"groups", "effect", "sd", "2.5%", "97.5%", "edf", "share", "corr", ""}}
	edge := false
	var kept []string
	for _, g := range groups {
		if g.NotIntegrated {
			kept = append(kept, g.Name)
		}
		at := 0
		for j, e := range g.Effects {
			line := []string{"", e.Name}
			if j == 0 {
				line[0] = fmt.Sprintf("%s (%d)", g.Name, g.Known)
			}
			for _, v := range []float64{e.SD, e.Lo, e.Hi} {
				line = append(line, number3(v))
			}
			line = append(line, fmt.Sprintf("%.1f", e.EDF))
			share := ""
			if j == 0 && !math.IsNaN(g.Share) {
				share = fmt.Sprintf("%.1f%%", 100*g.Share)
			}
			edge = edge || e.SD < edgeSD*e.Hi && e.Lo <= edgeSD*e.SD
			var corr []string
			for range j {
				c := g.Corr[at]
				at++
				edge = edge || math.Abs(c.Value) > edgeCorr
				corr = append(corr, corrText(c))
			}
			lines = append(lines, append(line, share, strings.Join(corr, ", "), ""))
		}
	}
	table.Align(lines)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
	}
	if edge {
		b.WriteString("a standard deviation near 0 or a correlation near ±1 is at its edge: the " +
			"data do not need it\n")
	}
	if kept != nil {
		b.WriteString("intervals of new levels ignore the uncertainty of the standard deviations of " +
			strings.Join(kept, ", ") + "\n")
	}
	return b.String()
}

// Parameters beyond these limits are at their edge.
const (
	edgeSD   = 1e-2 // a value relative to the next larger of sd and the ends of its interval
	edgeCorr = 0.99
)

// corrText returns a correlation with its interval.
func corrText(c GroupCorr) string {
	if math.IsNaN(c.Value) {
		return "-"
	}
	if math.IsNaN(c.Lo) || c.Lo == c.Hi {
		return fmt.Sprintf("%.2f", c.Value)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", c.Value, c.Lo, c.Hi)
}

// number3 formats v with three significant digits. NaN is empty.
func number3(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	if math.Abs(v) < 5e-7 {
		return "0"
	}
	return fmt.Sprintf("%#.3g", v)
}
