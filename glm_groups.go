package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// This file gives a GLM grouping factors (mixed models): the options and their checks. The engine
// is internal/site/arrow.go, and glm_groups_posterior.go holds the results.

// Group describes one grouping factor of a mixed model over columns of x, such as (1 + dose |
// patient). Level g of the factor has Q effects u_g ~ N(0, Σ), which are the weights of Q adjacent
// columns of x. A row has the values z of its level in these columns, so its linear predictor
// contains zᵀu_g. A row may have no level.
//
// Unless Fixed is set, a fit learns Σ: it maximizes the ELBO plus the log density of a prior of Σ.
// In units of the linear predictor, each standard deviation has a half-normal prior with scale 2.5
// divided by the root mean square of its column, times the scale of the responses if these have
// the unit of the linear predictor. The correlations have an LKJ(2) prior, with density |R|
// (Lewandowski, Kurowicka and Joe, 2009).
//
// A level without rows is a new level. Its effects have mean 0 and the covariance Σ.
//
// Few levels hardly determine Σ. After the fit, the posterior is therefore integrated over the Σ of
// the groups that have fewer than 200 levels with rows and a prior, if these Σ have up to three
// parameters together: a standard deviation of (1 | g), or two standard deviations and a correlation
// of (1 + x | g). If they have more, only the groups with fewer than 50 levels are integrated over,
// which may have up to ten parameters together. Means, standard deviations, predictions and effects
// then include the uncertainty of Σ, at about three times the cost of the fit alone, or more for
// crossed groups and for four and more parameters. If groups with fewer than 50 levels have more than
// ten parameters, or if there are more than 300 columns outside the largest group, Σ keeps its best
// value, and Result.Warnings reports it. NoPrior keeps it too, as lme4 does.
//
// A Softmax of K classes has K sets of effects per level, u_gc ~ N(0, Σ) independently for each class
// c. Only differences between classes count, so u_ga − u_gb ~ N(0, 2Σ), and the differences of two
// classes from a third have the correlation ½. This is the covariance that mclogit estimates without
// restrictions, if no class is special. Two classes are BernoulliLogit with the standard deviations
// √2 s. The half-normal priors have the scale 2.5/√2, so that the difference of two classes has 2.5.
// Only GLM.Fit and GLM.Learn learn Σ. They integrate over it by the same rule, for fewer than 100
// levels, at two to ten times the cost of the fit alone. If Σ keeps its best value, standard deviations of effects and predictions
// include its uncertainty to first order, as described at GLMPosterior. A fixed Σ must have an
// inverse. All effects belong to one dense problem, for up to a few hundred levels.
//
// One or two standard deviations are integrated over a grid, and other sets of up to ten parameters
// over a central composite design (Rue, Martino and Chopin, 2009, section 6.5), which is less
// accurate. LearnOptions.Integrate also integrates over the other hyperparameters. NewGLMRows and
// NewGLMRounds do not integrate, and streams of more than 4096 rows integrate only with GaussianNoise.
type Group struct {
	// Name is the name of the factor in tables and errors. Empty means group1, group2, …
	Name string
	// First is the first column of x of the first level. Level g has the columns First + g·Q to
	// First + g·Q + Q − 1. Columns of different groups must not overlap.
	First int
	// Levels is the number of levels.
	Levels int
	// Effects names the Q effects of a level, at most 8. Nil means one effect, "(Intercept)".
	Effects []string
	// SD holds the standard deviations of the Q effects, at which learning starts unless Fixed is
	// set. Nil, or a 0 that is not fixed, means a start that depends on the data.
	SD []float64
	// Corr holds the correlations of the effects, Q×Q, at which learning starts unless Fixed is
	// set. Nil means 0.
	Corr *mat.SymDense
	// Fixed keeps SD and Corr. SD must then be set.
	Fixed bool
	// NoPrior learns Σ by the ELBO alone (maximum likelihood), and does not integrate over it.
	NoPrior bool
	// Independent keeps the correlations at 0, as (1 + dose || patient) does in R.
	Independent bool
}

// groupInfo is a Group with the numbers that GroupSummary needs.
type groupInfo struct {
	Group
	moment []float64 // mean of zzᵀ over the rows, Q×Q
	// spread holds the uncertainty of Σ. It is nil if Σ was not learned with these rows.
	spread *site.FactorSpread
	kept   bool // the posterior is not integrated over Σ because there are too many parameters
}

// effects returns Q.
func (g *Group) effects() int { return max(1, len(g.Effects)) }

// end returns the column after the last column of g.
func (g *Group) end() int { return g.First + g.Levels*g.effects() }

// effectNames returns the names of the effects of g.
func (g *Group) effectNames() []string {
	if g.Effects == nil {
		return []string{interceptName}
	}
	return g.Effects
}

// cloneGroups returns a deep copy of the groups, which have names.
func cloneGroups(groups []Group) []Group {
	all := slices.Clone(groups)
	for i := range all {
		g := &all[i]
		if g.Name == "" {
			g.Name = fmt.Sprintf("group%d", i+1)
		}
		g.Effects, g.SD = slices.Clone(g.Effects), slices.Clone(g.SD)
		if g.Corr != nil {
			c := mat.NewSymDense(g.Corr.SymmetricDim(), nil)
			c.CopySym(g.Corr)
			g.Corr = c
		}
	}
	return all
}

// checkGroups returns the groups with names, or an error unless they fit cols columns, the
// covariance and the prior of the other weights.
func checkGroups(groups []Group, cols int, cov Covariance, prior *Gaussian) ([]Group, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	groups = cloneGroups(groups)
	switch {
	case cov != AutoCovariance && cov != FullCovariance:
		return nil, fmt.Errorf("pgsvi: GLMOptions.Groups does not support a %v covariance; use "+
			"AutoCovariance: %w", cov, ErrParam)
	case prior != nil && !prior.isDiagonal():
		return nil, fmt.Errorf("pgsvi: GLMOptions.Prior has correlations, but Groups needs a "+
			"diagonal prior of the other columns: %w", ErrParam)
	}
	owner := make([]int, cols)
	for i := range groups {
		r := &groups[i]
		if err := r.check(cols); err != nil {
			return nil, err
		}
		for j := r.First; j < r.end(); j++ {
			if k := owner[j]; k > 0 {
				return nil, fmt.Errorf("pgsvi: column %d belongs to the groups %s and %s; give each "+
					"group its own columns: %w", j, groups[k-1].Name, r.Name, ErrParam)
			}
			owner[j] = i + 1
		}
	}
	return groups, nil
}

// check returns an error unless r fits cols columns.
func (r *Group) check(cols int) error {
	q := r.effects()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("pgsvi: group %s "+format+": %w", append(append([]any{r.Name}, args...),
			ErrParam)...)
	}
	switch {
	case q > gauss.MostEffects:
		return bad("has %d effects per level; at most %d are supported, so use fewer slopes, or for a "+
			"category f with many levels a group of combinations, as in (1 | g) + (1 | g:f)", q,
			gauss.MostEffects)
	case r.Levels < 1:
		return bad("has %d levels; it needs at least 1", r.Levels)
	case r.First < 0 || r.First > cols || r.Levels > (cols-r.First)/q:
		return bad("has %d levels of %d columns from column %d on, but x has %d columns", r.Levels, q,
			r.First, cols)
	case r.SD != nil && len(r.SD) != q:
		return bad("has %d effects, but SD has %d elements", q, len(r.SD))
	case r.SD == nil && r.Fixed:
		return bad("is Fixed, but SD is nil; set SD")
	case r.Corr != nil && r.Corr.SymmetricDim() != q:
		return bad("has %d effects, but Corr is %d×%[3]d", q, r.Corr.SymmetricDim())
	}
	for i, s := range r.SD {
		if !(s >= 0) || math.IsInf(s, 0) {
			return bad("has SD[%d] = %v; it must be finite and not negative", i, s)
		}
	}
	if r.Corr == nil {
		return nil
	}
	for i := range q {
		for j := range i + 1 {
			c := r.Corr.At(i, j)
			switch {
			case i == j && c != 1:
				return bad("has Corr[%d,%[2]d] = %[3]v; it must be 1", i, c)
			case !(math.Abs(c) <= 1):
				return bad("has Corr[%d,%d] = %v; it must be from −1 to 1", i, j, c)
			case i != j && c != 0 && r.Independent:
				return bad("is Independent, but Corr[%d,%d] is %v; leave Corr nil", i, j, c)
			}
		}
	}
	if !effectFactor(make([]float64, q*q), r.Corr, slices.Repeat([]float64{1}, q)) {
		return bad("has a Corr that is not positive semidefinite")
	}
	return nil
}

// effectFactor stores the L with LLᵀ = diag(sd) C diag(sd) in l, Q×Q. A nil c means the unit matrix. It
// reports whether C is positive semidefinite to rounding.
func effectFactor(l []float64, c *mat.SymDense, sd []float64) bool {
	const rounding = 1e-8
	q := len(sd)
	clear(l)
	for i := range q {
		left := 1.0
		for j := range i {
			x := 0.0
			if c != nil {
				x = c.At(i, j)
			}
			for k := range j {
				x -= l[i*q+k] * l[j*q+k]
			}
			switch d := l[j*q+j]; {
			case d > 0:
				x /= d
			case math.Abs(x) > rounding:
				return false
			default:
				x = 0
			}
			l[i*q+j] = x
			left -= x * x
		}
		if left < -rounding {
			return false
		}
		if left > rounding {
			l[i*q+i] = math.Sqrt(left)
		}
	}
	for i, s := range sd {
		for j := range i + 1 {
			l[i*q+j] *= s
		}
	}
	return true
}

// groupPriorSD is the scale of the half-normal prior of a standard deviation, in units of the
// linear predictor.
const groupPriorSD = 2.5

// setGroups gives the prior of lin the blocks of the groups, and checks the rows.
func setGroups(groups []Group, lin *site.LinearModel) ([]groupInfo, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	var all []groupInfo
	p := lin.Prior.WithBlocks()
	unit, scale := groupUnit(lin.Terms), groupPriorSD
	if lin.Terms.K > 1 {
		scale = groupPriorClasses
	}
	for i := range groups {
		r := &groups[i]
		q := r.effects()
		for j := r.First; j < r.end(); j++ {
			if p.Mean[j] != 0 {
				return nil, fmt.Errorf("pgsvi: GLMOptions.Prior has the mean %v in column %d of group %s; "+
					"use mean 0 and GLMOptions.Offset: %w", p.Mean[j], j, r.Name, ErrParam)
			}
		}
		rows, err := groupRowsOf(lin, r)
		if err != nil {
			return nil, err
		}
		if err := rows.check(r); err != nil {
			return nil, err
		}
		for _, before := range groups[:i] {
			if s, err := groupRowsOf(lin, &before); err == nil && rows.same(s) {
				return nil, errSameGroups(before.Name, r.Name)
			}
		}
		all = append(all, groupInfo{Group: *r, moment: rows.moment(q)})
		b, f := r.prior(unit, scale, rows.sizes(q))
		p.SetBlock(b)
		lin.Factors = append(lin.Factors, f)
	}
	lin.Prior = p
	lin.Near = nearResponse(likOf(lin.Terms), unit)
	return all, nil
}

// errSameGroups returns the error of two groups whose effects cannot be told apart.
func errSameGroups(a, b string) error {
	return fmt.Errorf("pgsvi: the groups %s and %s have the same levels and the same values in every "+
		"row, so their effects cannot be told apart; remove one: %w", a, b, ErrParam)
}

// prior returns the first prior of the effects of r, and the rule that learns it. The unit is the
// scale of the responses, and scale is the scale of the half-normal prior in this unit. The sizes are
// the root mean squares of the values of each effect.
func (r *Group) prior(unit, scale float64, sizes []float64) (gauss.Block, site.Factor) {
	q := r.effects()
	f := site.Factor{Learn: !r.Fixed, Independent: r.Independent}
	sd := slices.Clone(r.SD)
	if sd == nil {
		sd = make([]float64, q)
	}
	for c, size := range sizes {
		if sd[c] == 0 && !r.Fixed {
			sd[c] = unit / size
		}
		if !r.NoPrior {
			f.Scale = append(f.Scale, scale*unit/size)
		}
	}
	b := gauss.Block{First: r.First, Levels: r.Levels, Q: q, L: make([]float64, q*q)}
	effectFactor(b.L, r.Corr, sd)
	return b, f
}

// nearResponse returns where the fit of a mixed model starts for a response: the linear predictor
// at which the response is typical, and about the precision there. A start at the prior would learn
// Σ from expectations that overflow. It returns nil if the prior is a good start. The argument is the
// scale of the responses.
func nearResponse(lik Likelihood, unit float64) func(y float64) (eta, gamma float64) {
	f := factsOf(lik)
	exposure := 1.0
	if p, ok := lik.(Poisson); ok {
		exposure = positiveOr(p.Exposure, 1)
	}
	switch {
	case f.Support == RealLine:
		if _, ok := lik.(GaussianNoise); ok {
			return nil // the sites are known
		}
		return func(y float64) (eta, gamma float64) { return y, 1 / (unit * unit) }
	case f.Support == Counts && f.Most == 0:
		return func(y float64) (eta, gamma float64) {
			return math.Log((y + 0.5) / exposure), max(y, leastCount)
		}
	case f.Support == Positive || f.Support == NonNegative:
		return func(y float64) (eta, gamma float64) {
			if y == 0 {
				return 0, leastCount
			}
			return math.Log(math.Abs(y)), 1 // durations that are not over are negative
		}
	}
	return nil
}

// leastCount is the precision of the first site of a count of 0.
const leastCount = 0.3

// groupUnit returns the scale of the responses if they have the unit of the linear predictor, and
// 1 otherwise.
func groupUnit(t *term.Terms) float64 {
	if factsOf(likOf(t)).Support != RealLine || t.Len() == 0 {
		return 1
	}
	y := slices.Clone(t.Y)
	for i, o := range t.Offset {
		y[i] -= o
	}
	scale, _ := learn.RobustScale(y, t.Weight)
	if !(scale > 0) || math.IsInf(scale, 0) {
		return 1
	}
	return scale
}

// groupRows holds the rows of a group: the level of each row, or −1, and its Q values.
type groupRows struct {
	level []int
	z     []float64
}

// groupRowsOf returns the rows of r, or an error if a row has two levels.
func groupRowsOf(lin *site.LinearModel, r *Group) (*groupRows, error) {
	n, q := lin.X.Rows, r.effects()
	s := &groupRows{level: make([]int, n), z: make([]float64, n*q)}
	var b design.RowBuffer
	for i := range n {
		s.level[i] = -1
		ind, val := lin.X.RowIn(&b, i)
		at, end := 0, len(val)
		if ind != nil {
			at, _ = slices.BinarySearch(ind, int32(r.First))
		} else {
			at, end = r.First, r.end()
		}
		for k := at; k < end; k++ {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			if j >= r.end() {
				break
			}
			if val[k] == 0 {
				continue
			}
			level := (j - r.First) / q
			if before := s.level[i]; before >= 0 && before != level {
				row := i
				if t := lin.Terms; t.Row != nil {
					row = t.Row[i]
				}
				return nil, fmt.Errorf("pgsvi: row %d has the levels %d and %d of group %s; give each "+
					"row one level: %w", row, before, level, r.Name, ErrParam)
			}
			s.level[i] = level
			s.z[i*q+(j-r.First)%q] = val[k]
		}
	}
	return s, nil
}

// groupedOf reports for each of d weights whether it is an effect of one of the groups.
func groupedOf(groups []Group, d int) []bool {
	in := make([]bool, d)
	for i := range groups {
		for j := groups[i].First; j < groups[i].end(); j++ {
			in[j] = true
		}
	}
	return in
}

// moment returns the mean of zzᵀ over all rows, Q×Q.
func (s *groupRows) moment(q int) []float64 {
	m := make([]float64, q*q)
	for i := range s.level {
		z := s.z[i*q : (i+1)*q]
		for j, x := range z {
			for k, y := range z {
				m[j*q+k] += x * y / float64(len(s.level))
			}
		}
	}
	return m
}

// sizes returns the root mean square of each of the q values over the rows with a level, or 1 if
// that is 0.
func (s *groupRows) sizes(q int) []float64 {
	sizes, rows := make([]float64, q), 0.0
	for i, g := range s.level {
		if g >= 0 {
			rows++
			for c, z := range s.z[i*q : (i+1)*q] {
				sizes[c] += z * z
			}
		}
	}
	rootMeans(sizes, rows)
	return sizes
}

// rootMeans replaces sums of squares over the given number of rows by root mean squares. A root that
// is 0 or not finite becomes 1.
func rootMeans(sizes []float64, rows float64) {
	for c, sum := range sizes {
		if sizes[c] = math.Sqrt(sum / rows); !(sizes[c] > 0) || math.IsInf(sizes[c], 0) {
			sizes[c] = 1
		}
	}
}

// check returns an error if the rows do not determine a slope: if an effect of r next to an
// intercept has one value per level.
func (s *groupRows) check(r *Group) error {
	q := r.effects()
	if q == 1 || r.Fixed {
		return nil
	}
	first := make([][]float64, r.Levels)
	varies, rows := make([]bool, q), 0
	for i, g := range s.level {
		if g < 0 {
			continue
		}
		rows++
		z := s.z[i*q : (i+1)*q]
		if z[0] != s.z[0] && z[0] != 1 {
			return nil // no intercept
		}
		if first[g] == nil {
			first[g] = z
		}
		for c, x := range z {
			varies[c] = varies[c] || x != first[g][c]
		}
	}
	levels := 0
	for _, z := range first {
		levels += design.B2i(z != nil)
	}
	for c, name := range r.Effects {
		if c > 0 && rows > 0 && !varies[c] {
			return r.constantEffect(name, levels == rows)
		}
	}
	return nil
}

// constantEffect returns the error of an effect that does not vary within any level. The argument
// single reports whether each level has one row.
func (r *Group) constantEffect(name string, single bool) error {
	if single {
		return fmt.Errorf("pgsvi: group %s has as many levels as rows, so the effect %s cannot "+
			"be told from the intercept of a level; remove the effect or the group: %w", r.Name,
			name, ErrParam)
	}
	return fmt.Errorf("pgsvi: the effect %s of group %s does not vary within any level, so "+
		"it cannot be told from the intercept of a level; remove the effect: %w", name, r.Name,
		ErrParam)
}

// same reports whether s and o have the same partition of the rows and the same values.
func (s *groupRows) same(o *groupRows) bool {
	if !slices.Equal(s.z, o.z) {
		return false
	}
	to, from := map[int]int{}, map[int]int{}
	for i, g := range s.level {
		h := o.level[i]
		if x, ok := to[g]; ok && x != h {
			return false
		}
		if x, ok := from[h]; ok && x != g {
			return false
		}
		to[g], from[h] = h, g
	}
	return len(s.level) > 0
}

// arrowMatrices is the number of M×M matrices of a fit with a border of M columns: factors and sums
// of two states, the Schur complement of the first factor, the covariance and its scaled form, and
// the matrices of the posterior.
const arrowMatrices = 10

// groupMemory returns an error if a model of n rows and d weights with groups exceeds the memory
// limit. The rows take the given number of bytes.
func groupMemory(groups []Group, limit int64, rows float64, n, d int) error {
	border, largest, effects := d, 0, 0
	for i := range groups {
		r := &groups[i]
		largest = max(largest, r.Levels*r.effects())
		effects += r.effects()
		d -= r.Levels * r.effects()
	}
	border -= largest
	if border > site.MostBorder {
		return fmt.Errorf("pgsvi: there are %d columns outside the largest group; at most %d are "+
			"supported: use fewer levels or effects in the smaller groups: %w", border,
			site.MostBorder, ErrMemory)
	}
	need := rows + memory.Bytes(site.WeightVectors, 1, border+largest) +
		memory.Bytes(arrowMatrices, border, border) + memory.Bytes(1, n, d+effects+20) +
		memory.Bytes(8, largest, d+2)
	return checkMemory(limit, need,
		fmt.Sprintf("a GLM of %d rows with groups of %d weights and %d other columns", n, largest,
			border), "use fewer columns, or raise GLMOptions.MaxMemory")
}

// groupPriorClasses is the scale of the half-normal prior of a standard deviation of a Softmax. It
// gives the difference of two classes the scale groupPriorSD.
const groupPriorClasses = groupPriorSD / math.Sqrt2

// leastPartial is the smallest standard deviation, relative to its own, that the effects before it
// may leave an effect.
const leastPartial = 1e-3

// interceptName is the name of an intercept.
const interceptName = "(Intercept)"
