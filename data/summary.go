package data

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/table"
	"gonum.org/v1/gonum/mat"
)

// A Summary holds the results of a fitted formula: coefficients, smooth curves and variance
// components. Print it to see the tables.
type Summary struct {
	// Summary holds the weights of the effects on the scale of the model, that is, per standard
	// deviation of a number. It leaves out levels that training has not seen.
	*pgsvi.Summary
	// Coefficients holds the effects per unit of their columns, as R lists them.
	Coefficients []Coefficient
	// Cuts has a row for each cut point between two ordered levels, the lowest first. It is nil unless
	// the likelihood is Ordinal.
	Cuts []Cut
	// Curves has a row for each smooth curve.
	Curves []Component
	// Groups has a row for each grouping factor: the variance components, as standard deviations.
	Groups []Component
	// Residual is the standard deviation of GaussianNoise, or of the logarithm of a response with
	// LogNormal. If the formula has precisions, it is the standard deviation in a row with the
	// precision 1. Its Name is "" for all other likelihoods.
	Residual Component

	ratio string // name of e^Mean, or ""
	// held is the learned prior standard deviation of the effects if it holds them at 0, and is
	// otherwise 0.
	held float64
}

// A Coefficient is the effect of a feature on the linear predictor, per unit of its column or
// product of columns. It equals the coefficient with the same name in R, so an effect in a product
// is relative to the reference levels of categories and to 0 for numbers. The columns of a
// polynomial have a sum of squares of 1 over the rows, and dates count from the first date.
type Coefficient struct {
	Name string
	// Mean and SD describe the posterior. Lo and Hi are the ends of the 95% credible interval.
	Mean, SD, Lo, Hi float64
	// PerSD is Mean times the standard deviation of the number. It is NaN for the intercept and for
	// features that are 0 or 1.
	PerSD float64
	// Ratio is e^Mean, RatioLo is e^Lo and RatioHi is e^Hi. They are odds ratios if the linear
	// predictor is the log odds, rate ratios for counts, and ratios of means or of times to an event
	// for positive numbers. Otherwise they are NaN.
	Ratio, RatioLo, RatioHi float64
	// NoRows is set if no row with a positive weight has a part in the effect, such as the
	// interaction of two levels that never meet. The posterior is then the prior.
	NoRows bool
}

// A Cut is a cut point c between two levels of an Ordinal: P(Y ≤ lower level|η) = σ(c − η). η is the
// sum of the coefficients times their columns, plus the curves and the effects of groups.
type Cut struct {
	Name string // the levels below and above, as in "low|high"
	// Value is the cut point for the coefficients per unit, which have η = 0 at the row whose numbers
	// are 0 and whose categories have their reference levels, as the thresholds of polr and clmm in R.
	// The Cuts of the likelihood are for numbers minus their means. Value has no interval, because the
	// posterior does not hold the covariance of cut points and effects.
	Value float64
}

// A Component is a learned standard deviation: of the effects of a grouping factor, of the shape of
// a smooth curve, or of the residuals.
type Component struct {
	// Name is the term of the formula, followed by the effect if a group has several effects.
	Name string
	// Param is the name of the standard deviation of an effect of a group, such as sd[g] for an
	// intercept and sd[g:x] for a slope.
	Param string
	// SD is the standard deviation, and Lo and Hi are the ends of its 95% interval. Both equal SD
	// if SD was not learned, and are NaN if the interval is not known. As in lme4, the standard
	// deviation of a slope is per unit of its column, and an intercept is the effect where the
	// columns of the slopes are 0.
	SD, Lo, Hi float64
	// Corr holds the correlations of an effect of a group with the effects before it, and CorrLo and
	// CorrHi the ends of their 95% intervals, which are NaN if unknown. They are nil if the effects
	// are independent.
	Corr, CorrLo, CorrHi []float64
	// Levels is the number of groups, or 0 for a curve.
	Levels int
	// Share is the share of all effects of the group in the variance of groups and residuals
	// (intraclass correlation; see pgsvi.GroupSummary). Only the first effect of a group has it. It
	// is 0 if it is not known.
	Share float64
	// EDF is the effective degrees of freedom, the number of weights that the rows determine rather
	// than the prior (MacKay 1992). It is 0 for the residuals. If the effects of a group are
	// correlated, the intercept counts at the means of the columns of the slopes.
	EDF float64

	slope bool // not an intercept
	// edge describes the part of the component that is at its edge: "sd", "corr" or nothing. If far
	// is set, a correlation is near ±1 only because the columns of the slopes are far from 0.
	edge string
	far  bool
	kept bool // see pgsvi.GroupSummary
}

// Summary returns the tables of a posterior of the model. Coefficients is nil for Softmax.
func (m *Model) Summary(post *pgsvi.GLMPosterior) *Summary {
	s := &Summary{Summary: m.weights(post), ratio: ratioOf(likelihoodOf(post))}
	if s.ratio == timeRatio && m.Formula.Event == "" { // not necessarily a time
		s.ratio = "mean ratio"
	}
	if m.classes() {
		s.ratio = ""
	} else {
		s.Coefficients = m.coefficients(post, s.ratio != "")
		s.Cuts = m.cutPoints(post)
	}
	s.components(m, post)
	return s
}

// weights returns the weights of the effects, without curves, groups and levels that training has
// not seen.
func (m *Model) weights(post *pgsvi.GLMPosterior) *pgsvi.Summary {
	s := post.Summary()
	classes := 1
	if m.classes() {
		classes = len(m.Labels)
	}
	columns := m.ownColumns(len(s.Groups) > 0)
	s.Groups = nil // components has them in units of the table
	each := len(s.Rows) / classes
	from := each - len(columns) // the intercept is first
	var rows []pgsvi.Effect
	for i, r := range s.Rows {
		if j := i%each - from; j < 0 || m.listed(columns[j]) {
			rows = append(rows, r)
		}
	}
	s.Rows = rows
	return s
}

// ownColumns returns the features whose weights pgsvi.Summary lists. If groups is set, the posterior
// has GLMOptions.Groups, and Summary leaves out the effects of their levels.
func (m *Model) ownColumns(groups bool) (columns []int) {
	grouped := make([]bool, len(m.Names))
	for _, t := range m.design.Terms {
		for j := t.at; groups && t.Kind == groupTerm && j < t.at+t.n; j++ {
			grouped[j] = true
		}
	}
	for j, skip := range grouped {
		if !skip {
			columns = append(columns, j)
		}
	}
	return columns
}

// listed reports whether a summary lists feature j, which must be an effect of known levels.
func (m *Model) listed(j int) bool {
	return m.design.blocks[j] == "" && !strings.Contains(m.Names[j], "=(new)")
}

// ratioOf returns the name of e to the power of an effect, or "".
func ratioOf(lik pgsvi.Likelihood) string {
	switch lik.(type) {
	case pgsvi.BernoulliLogit, pgsvi.BetaBinomial, pgsvi.Ordinal, pgsvi.Binomial:
		return "odds ratio"
	case pgsvi.Poisson, pgsvi.NegativeBinomial, pgsvi.ZeroInflated, pgsvi.Hurdle:
		return "rate ratio"
	case pgsvi.Gamma, pgsvi.Exponential:
		return "mean ratio"
	case pgsvi.Weibull, pgsvi.LogNormal:
		return timeRatio
	}
	return ""
}

// timeRatio is the name of e to the power of an effect on the logarithm of a duration.
const timeRatio = "time ratio"

// normal975 is the 97.5% quantile of N(0, 1).
const normal975 = 1.959963984540054

// coefficients returns the effects per unit of their columns.
func (m *Model) coefficients(post *pgsvi.GLMPosterior, ratios bool) (all []Coefficient) {
	known := m.varied()
	add := func(name string, g []float64, sd float64) {
		mean, own, err := post.Contrast(g)
		if err != nil {
			mean, own = math.NaN(), math.NaN()
		}
		c := Coefficient{Name: name, Mean: mean, SD: own, Lo: mean - normal975*own,
			Hi: mean + normal975*own, PerSD: mean * sd,
			Ratio: math.NaN(), RatioLo: math.NaN(), RatioHi: math.NaN(),
			NoRows: true}
		for j, x := range g {
			c.NoRows = c.NoRows && (x == 0 || j < len(known) && !known[j])
		}
		if ratios && name != interceptName {
			c.Ratio, c.RatioLo, c.RatioHi = math.Exp(c.Mean), math.Exp(c.Lo), math.Exp(c.Hi)
		}
		all = append(all, c)
	}
	g := make([]float64, post.Dim())
	if len(g) > len(m.Names) {
		m.design.origin(g)
		g[len(g)-1] = 1
		add(interceptName, g, math.NaN())
	}
	for _, t := range m.design.Terms {
		for k := range t.n {
			if t.Kind == smoothTerm || !m.listed(t.at+k) {
				continue
			}
			clear(g)
			add(m.Names[t.at+k], g, m.design.perUnit(g, t, k))
		}
	}
	return all
}

// cutPoints returns the cut points of an Ordinal, and nil for other likelihoods.
func (m *Model) cutPoints(post *pgsvi.GLMPosterior) (all []Cut) {
	lik, ok := likelihoodOf(post).(pgsvi.Ordinal)
	if !ok {
		return nil
	}
	values := lik.Cuts
	if len(values) == 0 {
		values = []float64{0} // the zero value of Ordinal
	}
	g := make([]float64, post.Dim())
	m.design.origin(g)
	shift, _, err := post.Contrast(g)
	if err != nil {
		shift = math.NaN()
	}
	for j, v := range values {
		c := Cut{fmt.Sprintf("%d|%d", j, j+1), v - shift}
		if len(m.Labels) == len(values)+1 {
			c.Name = m.Labels[j] + "|" + m.Labels[j+1]
		}
		all = append(all, c)
	}
	return all
}

// varied reports for each feature whether it is not 0 in a row with a positive weight.
func (m *Model) varied() []bool {
	n, cols := m.X.Dims()
	any := make([]bool, cols)
	sparse, _ := m.X.(*pgsvi.Sparse)
	var row []float64
	for i := range n {
		if m.Weights != nil && !(m.Weights[i] > 0) {
			continue
		}
		if sparse != nil {
			ind, val := sparse.Row(i)
			for k, j := range ind {
				any[j] = any[j] || val[k] != 0
			}
			continue
		}
		row = mat.Row(row, i, m.X)
		for j, v := range row {
			any[j] = any[j] || v != 0
		}
	}
	return any
}

const interceptName = "(Intercept)"

// A corner is a row at which features are evaluated. Numbers are 0 and categories have their
// reference levels, except for the columns in the map. Effects per unit are differences between
// corners.
type corner map[*column]setting

// A setting is the value of a column at a corner.
type setting struct {
	number float64 // 0 or 1
	// level is the index of a level of a category, with missing and new values after the levels, or
	// the index of a 0/1 feature of a number or date. -1 means the reference, or no such feature.
	level int
}

// at returns the nonzero features of a column in ascending order.
func (p corner) at(c *column, full bool, shift float64) (row sparseRow) {
	s, ok := p[c]
	if !ok {
		s.level = -1
	}
	if c.Kind != kindCategory {
		if c.hasNumber() {
			row.put(0, s.number-shift)
		}
		if s.level >= 0 {
			row.put(s.level, 1)
		}
		return row
	}
	reference := c.level[c.Reference]
	switch {
	case full && s.level < 0:
		row.put(reference, 1)
	case full || s.level >= 0 && s.level < reference:
		row.put(s.level, 1)
	case s.level > reference:
		row.put(s.level-1, 1)
	}
	return row
}

// addCorner adds the features of products at a corner, times sign, to g.
func (d *design) addCorner(g []float64, p corner, sign float64) {
	for _, t := range d.Terms {
		if t.Kind != productTerm {
			continue
		}
		product := sparseRow{[]int{0}, []float64{1}}
		for i, c := range t.cols {
			n := len(c.featuresOf(t.Full[i]))
			own, longer := p.at(c, t.Full[i], t.Shifts[i]), sparseRow{}
			for j, at := range product.ind {
				for k, v := range own.val {
					longer.put(at*n+own.ind[k], product.val[j]*v)
				}
			}
			product = longer
		}
		for k, mean := range t.Means {
			g[t.at+k] -= sign * mean / t.scale(k)
		}
		for i, k := range product.ind {
			g[t.at+k] += sign * product.val[i] / t.scale(k)
		}
	}
}

// origin adds to g the features of the row whose numbers are 0 and whose categories have their
// reference levels. Computed columns are numbers of their own, as in R.
func (d *design) origin(g []float64) {
	d.addCorner(g, corner{}, 1)
}

// scale returns the scale of feature k of a product.
func (t *term) scale(k int) float64 {
	if t.Scales == nil {
		return 1
	}
	return t.Scales[k]
}

// polySD returns the standard deviation of the columns of poly in R, whose sum of squares is 1. It
// returns 1 for powers, which are not scaled.
func (t *term) polySD() float64 {
	if t.Half == 0 || t.Weight == 0 {
		return 1
	}
	return 1 / math.Sqrt(t.Weight)
}

// perUnit stores in g the contrast for the effect of feature k of a term per unit of its columns.
// It returns the standard deviation of the number behind the feature, or NaN if the feature is not
// a number.
func (d *design) perUnit(g []float64, t *term, k int) (sd float64) {
	switch {
	case t.Kind == polyTerm && k >= t.n-t.Degree:
		sd = t.polySD()
		g[t.at+k] = 1 / sd
		return sd
	case t.Kind != productTerm:
		g[t.at+k] = 1
		return math.NaN()
	}
	signs, corners := []float64{1}, []corner{{}}
	total := 1. // sum of the signs
	numbers, rest, size := 0, k, t.n
	sd = math.NaN()
	for i, c := range t.cols {
		n := len(c.featuresOf(t.Full[i]))
		size /= n
		own := rest / size
		rest %= size
		upper, lower, single := setting{level: own}, setting{level: -1}, false
		switch {
		case c.Kind == kindCategory && t.Full[i]:
			single = true
		case c.Kind == kindCategory && own >= c.level[c.Reference]:
			upper.level++
		case c.Kind != kindCategory && own == 0 && c.hasNumber():
			upper = setting{1, -1}
			if sd = c.SD; c.binary || c.Scale == c.Max-c.Min {
				sd = math.NaN()
			}
			numbers++
		}
		var more []corner
		var moreSigns []float64
		for j, p := range corners {
			for _, s := range []setting{upper, lower} {
				q := maps.Clone(p)
				q[c] = s
				sign := signs[j]
				if s == lower {
					sign = -sign
				}
				more, moreSigns = append(more, q), append(moreSigns, sign)
				if single {
					break
				}
			}
		}
		if corners, signs = more, moreSigns; !single {
			total = 0
		}
	}
	if numbers > 1 {
		if sd = t.scale(k); d.Raw {
			sd = math.NaN()
		}
	}
	if total != 0 && d.intercept {
		g[t.at+k] = 1 / t.scale(k) // levels compared with the intercept
		return sd
	}
	for j, p := range corners {
		d.addCorner(g, p, signs[j])
	}
	return sd
}

// components sets the variance components, the smooth curves and the residuals.
func (s *Summary) components(m *Model, post *pgsvi.GLMPosterior) {
	learned := map[string]pgsvi.LearnedParam{}
	if l := post.Learned(); l != nil {
		for _, p := range l.Params {
			learned[m.ParamName(p.Name)] = p
		}
	}
	prior, sd := post.PriorSD(nil), post.SD(nil)
	if p, ok := learned["sd[effects]"]; ok && !p.Fixed {
		effects, determined := 0, 0.
		for j, block := range m.design.blocks {
			if block == "" && m.listed(j) {
				effects++
				determined += max(0, 1-math.Pow(sd[j]/prior[j], 2))
			}
		}
		if determined < heldEDF*float64(effects) {
			s.held = p.Value
		}
	}
	blocks, index := m.blocks()
	for b, name := range blocks {
		if name == "" {
			continue
		}
		c := Component{Name: name, SD: math.NaN()}
		for j, of := range index {
			if of == b {
				c.SD = prior[j]
				c.EDF += max(0, 1-math.Pow(sd[j]/prior[j], 2))
			}
		}
		c.Lo, c.Hi = c.SD, c.SD
		if p, ok := learned["sd["+name+"]"]; ok {
			c.SD, c.Lo, c.Hi = p.Value, p.Lo, p.Hi
		}
		if m.design.describe(&c) {
			s.Groups = append(s.Groups, c)
		} else {
			s.Curves = append(s.Curves, c)
		}
	}
	if m.eliminates() {
		groups, i := post.Groups(), 0
		for _, t := range m.design.Terms {
			if t.Kind != groupTerm {
				continue
			}
			var own pgsvi.GroupSummary // without intervals if the posterior has other groups
			if i < len(groups) && groups[i].Name == t.by() && len(groups[i].Effects) == t.q {
				own = groups[i]
			}
			s.Groups = append(s.Groups, t.components(post, &own)...)
			i++
		}
	}
	s.Residual = residual(likelihoodOf(post), learned)
	if s.Residual.Name != "" {
		if !m.eliminates() {
			s.shares()
		}
		if m.Precision != nil { // shares use a row with the mean precision
			unit := math.Sqrt(m.design.Precision)
			s.Residual.Name += fmt.Sprintf(" at %s = 1", formula.Col(m.Formula.Precision))
			s.Residual.SD, s.Residual.Lo, s.Residual.Hi = unit*s.Residual.SD, unit*s.Residual.Lo,
				unit*s.Residual.Hi
		}
	}
}

// residual returns the component of the noise. Its Name is "" if the likelihood has no noise with a
// standard deviation.
func residual(lik pgsvi.Likelihood, learned map[string]pgsvi.LearnedParam) Component {
	c := Component{SD: 1} // the zero values of the likelihoods
	switch l := lik.(type) {
	case pgsvi.GaussianNoise:
		if c.Name = "residual"; l.Var > 0 {
			c.SD = math.Sqrt(l.Var)
		}
	case pgsvi.LogNormal:
		if c.Name = "residual of the logarithm"; l.Scale > 0 {
			c.SD = l.Scale
		}
	}
	c.Lo, c.Hi = c.SD, c.SD
	if p, ok := learned["GaussianNoise.Var"]; ok {
		c.Lo, c.Hi = math.Sqrt(p.Lo), math.Sqrt(p.Hi)
	}
	if p, ok := learned["LogNormal.Scale"]; ok {
		c.Lo, c.Hi = p.Lo, p.Hi
	}
	return c
}

// shares sets the shares of groups with intercepts alone in the variance of groups and residuals.
func (s *Summary) shares() {
	total := s.Residual.SD * s.Residual.SD
	for _, c := range s.Groups {
		if total += c.SD * c.SD; c.slope {
			return // the variance of a slope depends on the row
		}
	}
	for i := range s.Groups {
		s.Groups[i].Share = s.Groups[i].SD * s.Groups[i].SD / total
	}
}

// describe sets the name and the number of levels of a component that is named after a block of a
// group, and scales its standard deviation to units of the table. It reports whether there is such
// a group.
func (d *design) describe(c *Component) bool {
	for _, t := range d.Terms {
		if t.Kind != groupTerm {
			continue
		}
		effects := t.effects()
		q := slices.IndexFunc(effects, func(e string) bool { return t.effectBlock(e) == c.Name })
		if q < 0 {
			continue
		}
		c.Name, c.Param, c.Levels = t.component(effects, q), "sd["+c.Name+"]", len(t.Levels)
		c.slope = effects[q] != interceptEffect
		unit := t.units()[q][q]
		c.SD, c.Lo, c.Hi = unit*c.SD, unit*c.Lo, unit*c.Hi
		return true
	}
	return false
}

// component returns the name of the component of effect q of a group.
func (t *term) component(effects []string, q int) string {
	if len(effects) == 1 {
		return t.Text
	}
	return t.Text + " " + effects[q]
}

// components returns the components of a group of GLMOptions.Groups, which own describes. If own has
// no effects, the effects of the empty level in post give the covariance.
func (t *term) components(post *pgsvi.GLMPosterior, own *pgsvi.GroupSummary) (all []Component) {
	g := make([]float64, post.Dim())
	empty := g[t.at+t.n-t.q : t.at+t.n]
	// sd returns the standard deviation of the effects a/scaleA + b/scaleB of the empty level.
	sd := func(a []float64, scaleA float64, b []float64, scaleB float64) float64 {
		for e := range empty {
			empty[e] = a[e]/scaleA + b[e]/scaleB
		}
		if len(own.Effects) == t.q {
			return math.Sqrt(max(0, varianceIn(empty, own)))
		}
		if _, sd, err := post.Contrast(g); err == nil {
			return sd
		}
		return math.NaN()
	}
	units, effects, none := t.units(), t.effects(), make([]float64, t.q)
	for e, row := range units {
		c := Component{Name: t.component(effects, e), Levels: len(t.Levels),
			Param: "sd[" + t.effectBlock(effects[e]) + "]", SD: sd(row, 1, none, 1)}
		c.Lo, c.Hi = intervalIn(row, own, c.SD)
		if e == 0 && own.Share > 0 {
			c.Share = own.Share
		}
		if len(own.Effects) == t.q {
			c.EDF = own.Effects[e].EDF
		}
		for k, before := range units[:e] {
			if t.Independent {
				break
			}
			sum, diff := sd(row, c.SD, before, all[k].SD), sd(row, c.SD, before, -all[k].SD)
			r := max(-1, min((sum*sum-diff*diff)/4, 1))
			lo, hi := corrIntervalIn(row, before, own, r)
			if c.SD == 0 || all[k].SD == 0 { // as in GLMPosterior.Groups
				r, lo, hi = 0, -1, 1
			}
			c.Corr, c.CorrLo, c.CorrHi = append(c.Corr, r), append(c.CorrLo, lo), append(c.CorrHi, hi)
		}
		c.setEdge(own, e)
		all = append(all, c)
	}
	return all
}

// varianceIn returns the variance Σ_jk a_j a_k r_jk s_j s_k of the combination Σ_j a_j u_j of the
// effects of a group.
func varianceIn(a []float64, group *pgsvi.GroupSummary) (v float64) {
	at := 0
	for j, e := range group.Effects {
		v += a[j] * a[j] * e.SD * e.SD
		for k := range j {
			if s := 2 * a[j] * a[k] * e.SD * group.Effects[k].SD; s != 0 {
				v += s * group.Corr[at].Value
			}
			at++
		}
	}
	return v
}

// intervalIn returns the 95% interval of the standard deviation sd of the combination Σ_j a_j u_j
// of the effects of a group. Both ends are NaN if the intervals of the group are not known.
func intervalIn(a []float64, group *pgsvi.GroupSummary, sd float64) (lo, hi float64) {
	if len(group.Effects) != len(a) {
		return math.NaN(), math.NaN()
	}
	some := func(v float64) bool { return v != 0 }
	if j := slices.IndexFunc(a, some); j >= 0 && !slices.ContainsFunc(a[j+1:], some) {
		return math.Abs(a[j]) * group.Effects[j].Lo, math.Abs(a[j]) * group.Effects[j].Hi
	}
	if sd == 0 {
		square := 0.0
		for j, e := range group.Effects {
			square += a[j] * a[j] * e.Hi * e.Hi
		}
		return 0, math.Sqrt(square)
	}
	spread := spreadIn(a, group)
	if spread > 1 { // as in GLMPosterior.Groups
		return max(0, sd-normal975*sd*spread), sd + normal975*sd*spread
	}
	return sd * math.Exp(-normal975*spread), sd * math.Exp(normal975*spread)
}

// uniformSD is the standard deviation of the uniform distribution from −1 to 1.
const uniformSD = 0.577350269

// spreadIn returns the standard deviation of log s, where s is the standard deviation of the
// combination Σ_j a_j u_j of the effects of a group. With the standard deviations s_j and the
// correlations r_jk, s² = Σ_jk a_j a_k r_jk s_j s_k. The delta method takes log s_j and atanh r_jk
// as independent. The result is NaN if an interval is not known.
func spreadIn(a []float64, group *pgsvi.GroupSummary) float64 {
	halfWidth := func(lo, hi float64) float64 { return (hi - lo) / (2 * normal975) }
	squares := 0. // variance of s²
	slope := make([]float64, len(a))
	at := 0
	for j, e := range group.Effects {
		slope[j] += 2 * a[j] * a[j] * e.SD * e.SD
		for k := range j {
			r := group.Corr[at]
			at++
			product := 2 * a[j] * a[k] * e.SD * group.Effects[k].SD
			if product == 0 {
				continue
			}
			slope[j] += product * r.Value
			slope[k] += product * r.Value
			if r.Lo < r.Hi {
				d := (1 - r.Value*r.Value) * halfWidth(math.Atanh(r.Lo), math.Atanh(r.Hi))
				if !(d < uniformSD) { // the data do not determine r
					d = uniformSD
				}
				squares += product * product * d * d
			}
		}
	}
	for j, e := range group.Effects {
		if slope[j] == 0 {
			continue
		}
		spread := logSpread(e)
		squares += slope[j] * slope[j] * spread * spread
	}
	if spread := math.Sqrt(squares) / (2 * varianceIn(a, group)); !math.IsInf(spread, 0) {
		return spread
	}
	return math.NaN()
}

// corrIntervalIn returns the 95% interval of the correlation r of the combinations Σ_j a_j u_j and
// Σ_j b_j u_j of the effects of a group. Both ends are NaN if the intervals of the group are unknown.
// The delta method takes log s_j and atanh r_jk as independent, and atanh r as Gaussian.
func corrIntervalIn(a, b []float64, group *pgsvi.GroupSummary, r float64) (lo, hi float64) {
	if len(group.Effects) != len(a) || math.IsNaN(r) {
		return math.NaN(), math.NaN()
	}
	g := *group
	g.Effects, g.Corr = slices.Clone(group.Effects), slices.Clone(group.Corr)
	at := func() float64 {
		sum := make([]float64, len(a))
		for j := range sum {
			sum[j] = a[j] + b[j]
		}
		va, vb := varianceIn(a, &g), varianceIn(b, &g)
		return math.Atanh((varianceIn(sum, &g) - va - vb) / (2 * math.Sqrt(va*vb)))
	}
	const step = 1e-3 // step of a parameter, in units of its standard deviation
	squares := 0.0
	add := func(x *float64, lower, upper float64) {
		old := *x
		*x = upper
		up := at()
		*x = lower
		d := (up - at()) / (2 * step)
		squares += d * d
		*x = old
	}
	for j := range g.Effects {
		e := &g.Effects[j]
		if s := step * logSpread(*e); s != 0 {
			add(&e.SD, e.SD*math.Exp(-s), e.SD*math.Exp(s))
		}
	}
	for k := range g.Corr {
		if c := &g.Corr[k]; c.Lo < c.Hi {
			z := math.Atanh(c.Value)
			s := step * (math.Atanh(c.Hi) - math.Atanh(c.Lo)) / (2 * normal975)
			add(&c.Value, math.Tanh(z-s), math.Tanh(z+s))
		}
	}
	z, wide := math.Atanh(r), normal975*math.Sqrt(squares)
	if lo, hi = math.Tanh(z-wide), math.Tanh(z+wide); math.IsNaN(lo) || math.IsNaN(hi) {
		return -1, 1 // the data do not determine r
	}
	return lo, hi
}

// logSpread returns the standard deviation of the logarithm of the standard deviation of an effect.
func logSpread(e pgsvi.GroupEffect) float64 {
	if e.Lo == 0 { // GLMPosterior.Groups cut off e.SD ± 1.96 e.SD·spread
		return (e.Hi/e.SD - 1) / normal975
	}
	return (math.Log(e.Hi) - math.Log(e.Lo)) / (2 * normal975)
}

// String returns a line about the model and the tables of coefficients, curves and variance
// components, with 95% intervals.
func (s *Summary) String() string {
	if s.Coefficients == nil {
		return s.Summary.String() + s.componentsText()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %s, %v covariance\n", s.Likelihood, plural(s.Data, "row"),
		plural(s.Weights, "weight"), s.Covariance)
	head := []string{"", "per unit", "sd", "2.5%", "97.5%", "per sd"}
	if s.ratio != "" {
		head = append(head, s.ratio, "2.5%", "97.5%")
	}
	lines, sure, noRows := [][]string{head}, []string{""}, false
	for _, c := range s.Coefficients {
		line := []string{c.Name}
		for _, v := range []float64{c.Mean, c.SD, c.Lo, c.Hi} {
			line = append(line, table.Precise(v, c.SD))
		}
		line = append(line, precise(c.PerSD, math.Abs(c.PerSD/c.Mean)*c.SD))
		if s.ratio != "" {
			for _, v := range []float64{c.Ratio, c.RatioLo, c.RatioHi} {
				line = append(line, short(v))
			}
		}
		star := ""
		if c.Lo > 0 || c.Hi < 0 {
			star = " *"
		}
		if c.NoRows {
			star, noRows = " no rows", true
		}
		lines, sure = append(lines, line), append(sure, star)
	}
	table.Align(lines)
	for i, line := range lines {
		b.WriteString(strings.TrimRight(strings.Join(line, "  ")+sure[i], " ") + "\n")
	}
	b.WriteString("* zero is outside the interval from 2.5% to 97.5%\n")
	if s.held > 0 {
		fmt.Fprintf(&b, "the prior sd of the effects was learned as %.2g, which holds them near 0; to "+
			"estimate them, set it\nto a large number, or learn with the default priors\n", s.held)
	}
	if s.Cuts != nil {
		lines := [][]string{{"cut points", ""}}
		for _, c := range s.Cuts {
			lines = append(lines, []string{c.Name, short(c.Value)})
		}
		table.Align(lines)
		b.WriteByte('\n')
		for _, line := range lines {
			b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
		}
	}

	if noRows {
		b.WriteString("no rows: no row has this combination of values, so the line shows the prior\n")
	}
	return b.String() + s.componentsText()
}

// heldEDF is the effective degrees of freedom per effect below which the prior determines the effects.
const heldEDF = 0.01

// precise is table.Precise, but returns "" for NaN.
func precise(v, sd float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return table.Precise(v, sd)
}

// addColumn appends a column to lines, whose first line is the head. It leaves out a column without
// text, and reports whether there is any.
func addColumn(lines [][]string, head string, text func(i int) string) bool {
	column, any := []string{head}, false
	for i := range lines[1:] {
		column = append(column, text(i))
		any = any || column[i+1] != ""
	}
	for i := range lines {
		if any {
			lines[i] = append(lines[i], column[i])
		}
	}
	return any
}

// textIf returns the formatted value, or no text unless known is set.
func textIf(known bool, format string, value any) string {
	if !known {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// short formats v with four digits. It returns "" for NaN.
func short(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf("%.4g", v)
}

// componentsText returns the tables of curves and variance components.
func (s *Summary) componentsText() string {
	var b strings.Builder
	write := func(title string, all []Component) {
		if len(all) == 0 {
			return
		}
		lines := [][]string{{title, "sd", "2.5%", "97.5%"}}
		for _, c := range all {
			line := []string{c.Name, short(c.SD), short(c.Lo), short(c.Hi)}
			for k, v := range []float64{c.SD, c.Lo} {
				if v <= zeroSD*c.Hi {
					line[1+k] = "0"
				}
			}
			lines = append(lines, line)
		}
		addColumn(lines, "edf", func(i int) string { return textIf(all[i].EDF > 0, "%.1f", all[i].EDF) })
		addColumn(lines, "groups", func(i int) string {
			return textIf(all[i].Levels > 0, "%d", all[i].Levels)
		})
		addColumn(lines, "share", func(i int) string {
			return textIf(all[i].Share > 0, "%.0f%%", 100*all[i].Share)
		})
		for k, head := 0, "corr"; ; k, head = k+1, "" {
			if !addColumn(lines, head, func(i int) string {
				if k >= len(all[i].Corr) {
					return ""
				}
				return corrText(all[i].Corr[k], all[i].CorrLo[k], all[i].CorrHi[k])
			}) {
				break
			}
		}
		table.Align(lines)
		b.WriteByte('\n')
		for _, line := range lines {
			b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
		}
	}
	write("smooth curves", s.Curves)
	groups := s.Groups
	if s.Residual.Name != "" {
		groups = append(slices.Clone(groups), s.Residual)
	}
	write("standard deviations", groups)
	b.WriteString(s.groupNotes())
	return b.String()
}

// corrText formats a correlation with its interval, if it is known.
func corrText(r, lo, hi float64) string {
	if math.IsNaN(r) {
		return "-"
	}
	if math.IsNaN(lo) || lo == hi {
		return fmt.Sprintf("%.2f", r)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", r, lo, hi)
}

// Parameters beyond these limits are at their edge. Then lme4 calls the fit singular.
const (
	edgeSD   = 0.01 // a value relative to the next larger of sd and the ends of its interval
	edgeCorr = 0.99
	zeroSD   = 1e-4 // a standard deviation, relative to the upper end, that prints as 0
)

// setEdge sets edge and far of effect e of the fitted group own. The fit has slopes of centered
// columns, which decide whether the data need an effect. In units of the table, the intercept is where
// the columns are 0. If that is far from the rows, such as the year 0, it nearly equals the slope.
func (c *Component) setEdge(own *pgsvi.GroupSummary, e int) {
	c.kept = own.NotIntegrated
	near := func(r float64) bool { return math.Abs(r) > edgeCorr }
	singular := slices.ContainsFunc(c.Corr, near)
	sd, lo, hi, corr := c.SD, c.Lo, c.Hi, singular
	if e < len(own.Effects) {
		sd, lo, hi = own.Effects[e].SD, own.Effects[e].Lo, own.Effects[e].Hi
		if first := e * (e - 1) / 2; first+e <= len(own.Corr) {
			corr = slices.ContainsFunc(own.Corr[first:first+e],
				func(r pgsvi.GroupCorr) bool { return near(r.Value) })
		}
	}
	switch {
	case sd <= edgeSD*hi && lo <= edgeSD*sd, // not only wide because there are few levels
		sd <= zeroSD*hi:
		c.edge = "sd"
	case corr:
		c.edge = "corr"
	}
	c.far = singular && c.edge == ""
}

// groupNotes returns the lines below the table of groups.
func (s *Summary) groupNotes() string {
	var edges, far, alone, kept []string
	for _, c := range s.Groups {
		if c.kept {
			kept = append(kept, c.Name)
		}
		switch {
		case c.Levels == 1:
			alone = append(alone, c.Name)
		case c.edge != "":
			edges = append(edges, c.edge+" of "+c.Name)
		case c.far:
			far = append(far, c.Name)
		}
	}
	var b strings.Builder
	for _, note := range []struct {
		text  string
		names []string
	}{
		{"near 0 or ±1 and so at its edge, because the data do not need it", edges},
		{"one group does not determine a standard deviation", alone},
		{"corr is near ±1 because the intercept is far from the rows; center the column", far},
		{"intervals of new groups ignore the uncertainty of the sd", kept},
	} {
		if len(note.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", note.text, strings.Join(note.names, ", "))
		}
	}
	return b.String()
}
