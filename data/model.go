package data

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// A Model is a formula over a table: the numbers that a regression is fitted to. Print it to see
// what each column was taken for, and the model in words. It is made by Table.Model, does not
// change, and may be used concurrently.
type Model struct {
	// Data has the rows, encoded as the formula says. Where the outcome is a number of successes, X
	// and the rest have a row of outcome +1 for the successes, weighted by their number, and one of
	// −1 for the failures; see For.
	*Data
	// Formula is the formula, with . and a*b written out.
	Formula *formula.Formula

	enc    *Encoder
	design *design
	y      *column
	table  *Table // that the rows are of
	counts bool   // the outcomes are whole numbers that are not negative
	paired bool   // the outcomes are those of pgsvi.Successes
}

// Model returns the model that a formula such as
//
//	churned ~ plan + s(age) + region*tenure + (1 | customer)
//
// makes of the table; see package formula. Only columns of the formula are used, and only those of
// them that need a decision have to be among columns; see Table.Encoder. Groups, the outcome,
// exposures, offsets, weights, trials and events need not be, if they have no missing values. A
// column with several roles may be named once for each: Number("w") and Weight("w").
//
// The columns of X are those of model.matrix in R, shifted and scaled. Products are made of the
// values in the table, dates count from 1970, and categories are coded by contrasts or in full as R
// codes them. A number is centered only if the model has the terms that centering adds, so that the
// shift never changes which functions can be fitted. Numbers are divided by the standard deviation
// of the number, or of the product of the numbers of a product, with row weights, and indicators
// stay 0 and 1. The prior standard deviation of a weight is in these units. poly has orthogonal
// polynomials over the rows, and s has its knots at quantiles.
//
// The error is that of formula.Parse, of Formula.Check or of Table.Encoder. It wraps ErrParam as
// well if a term cannot be made of a column, such as a smooth curve of a category, or has no
// effect, and if the formula has a slope of a group, which is not there yet.
func (t *Table) Model(text string, columns ...Column) (*Model, error) {
	f, err := formula.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	return t.ModelOf(f, columns...)
}

// ModelOf is Model for a formula that was built. It does not change f.
func (t *Table) ModelOf(f *formula.Formula, columns ...Column) (*Model, error) {
	t = t.withFactors(f)
	written := f
	f, features, columns, err := t.resolve(f, columns)
	if err != nil {
		return nil, err
	}
	e, err := t.encoder(features, columns)
	if err != nil {
		suitFormula(err, written, features)
		return nil, err
	}
	raw := slices.ContainsFunc(columns,
		func(c Column) bool { return c.said() != nil && c.said().Kind == kindRaw })
	d, err := newDesign(f, e, raw)
	if err != nil {
		return nil, err
	}
	if err := d.learn(e, t); err != nil {
		return nil, err
	}
	d.compile()
	m := &Model{Formula: f, enc: e, design: d, y: e.column(f.Outcome), table: t}
	m.y.Root = f.Transform == "sqrt"
	if m.Data, err = e.data(t, d); err != nil {
		return nil, err
	}
	if m.Trials != nil {
		return m, m.countTrials(t)
	}
	if f.Event != "" {
		return m, nil
	}
	m.counts = m.y.Numeric && !slices.ContainsFunc(m.Y,
		func(y float64) bool { return y < 0 || y != math.Floor(y) })
	return m, nil
}

// role is a column that a formula says something of that is no feature.
type role struct {
	column string
	kind   kind
	make   func(name string) Column
}

// roles returns those of a formula.
func roles(f *formula.Formula) []role {
	outcome := func(n string) Column {
		if f.Event != "" || f.Trials != "" || f.Exposure != "" || f.Transform != "" {
			return Outcome(n).Quantity()
		}
		return Outcome(n)
	}
	all := []role{
		{f.Outcome, kindOutcome, outcome},
		{f.Trials, kindTrials, func(n string) Column { return Trials(n) }},
		{f.Event, kindEvent, func(n string) Column { return Event(n) }},
		{f.Exposure, kindExposure, func(n string) Column { return Exposure(n) }},
		{f.Offset, kindOffset, func(n string) Column { return Offset(n) }},
		{f.Weight, kindWeight, func(n string) Column { return Weight(n) }},
	}
	for _, t := range f.Terms {
		if g, ok := t.(formula.Group); ok {
			for _, by := range g.By {
				all = append(all, role{by, kindGroup, func(n string) Column { return Group(n) }})
			}
		}
	}
	return slices.DeleteFunc(all, func(r role) bool { return r.column == "" })
}

// resolve writes the formula out for the columns of the table. It returns which of them are
// features, and the columns as the formula uses them, with the roles that only the formula names.
func (t *Table) resolve(f *formula.Formula, columns []Column) (
	_ *formula.Formula, features []string, uses []Column, err error) {
	if err := f.Check(t.Columns()); err != nil {
		return nil, nil, nil, fmt.Errorf("pgsvi: %w", err)
	}
	named := f.Columns()
	kinds := map[string][]kind{}
	for _, c := range columns {
		if s := c.said(); s != nil {
			kinds[s.Name] = append(kinds[s.Name], s.Kind)
		}
	}
	rest := slices.DeleteFunc(t.Columns(), func(name string) bool { // what . is
		said := kinds[name]
		switch {
		case slices.Contains(named, name), slices.Contains(said, kindNumber),
			slices.Contains(said, kindCategory), slices.Contains(said, kindDate):
			return false
		case len(said) == 0:
			return t.useless(name)
		}
		return true
	})
	if f, err = f.Resolve(rest); err != nil {
		return nil, nil, nil, fmt.Errorf("pgsvi: %w", err)
	}
	r, features := &resolver{t: t, f: f, roles: roles(f)}, []string{} // not nil: no column is one
	for _, term := range f.Terms {
		feature := term.Columns()
		if g, ok := term.(formula.Group); ok {
			feature = g.Slopes
		}
		for _, name := range feature {
			if !slices.Contains(features, name) {
				features = append(features, name)
			}
		}
	}
	r.features = features
	for _, c := range columns {
		if err := r.sort(c); err != nil {
			return nil, nil, nil, t.named(err)
		}
	}
	for _, role := range r.roles {
		r.add(role)
	}
	for _, name := range features {
		if of, ok := formula.FactorOf(name); ok && !r.has(name, false) {
			r.addFactor(name, of, columns)
		}
		if slices.Contains(named, name) && !r.has(name, false) &&
			(t.likeNumbers(name) || t.curved(f, name)) {
			c := Number(name)
			c.formula = true
			r.uses = append(r.uses, c)
		}
	}
	if err := quantities(f, r.uses); err != nil {
		return nil, nil, nil, t.named(err)
	}
	return f, features, r.uses, nil
}

// resolver sorts the columns that a caller has named by the uses that a formula has for them.
type resolver struct {
	t        *Table
	f        *formula.Formula
	roles    []role
	features []string
	uses     []Column
	hints    []*spec // specs of another use of a column
}

// has reports whether the uses have a column in a role, or in no role.
func (r *resolver) has(name string, role bool) bool {
	return slices.ContainsFunc(r.uses, func(c Column) bool {
		s := c.said()
		return s != nil && s.Name == name && isRole(s.Kind) == role
	})
}

// sort puts a column among the uses, or among the hints if the formula uses it in another way. A
// column that the formula does not use is left out.
func (r *resolver) sort(c Column) error {
	s := c.said()
	if s == nil || s.Kind == kindRaw || !slices.Contains(r.t.Columns(), s.Name) {
		r.uses = append(r.uses, c) // the Encoder reports what is wrong
		return nil
	}
	feature := slices.Contains(r.features, s.Name)
	var wanted []kind
	for _, o := range r.roles {
		if o.column == s.Name {
			wanted = append(wanted, o.kind)
		}
	}
	switch {
	case !feature && len(wanted) == 0:
		return nil
	case s.Kind == kindSkip:
		return fmt.Errorf("pgsvi: %s is among the columns, and the formula uses %s; remove one "+
			"of the two: %w", s.call(), csvQuote(s.Name), pgsvi.ErrParam)
	case slices.Contains(wanted, s.Kind), feature && !isRole(s.Kind), s.Kind == kindOutcome:
		r.uses = append(r.uses, c)
	case isRole(s.Kind) && s.Kind != kindGroup:
		return fmt.Errorf("pgsvi: %s is among the columns, and the formula has no %s(%s): %w",
			s.call(), s.Kind, formula.Col(s.Name), pgsvi.ErrParam)
	case feature && s.Kind == kindGroup && len(wanted) == 0: // levels with an effect each
		category := s.copy()
		category.Kind = kindCategory
		r.uses = append(r.uses, CategoryColumn{category})
	default:
		r.hints = append(r.hints, s)
	}
	return nil
}

// addFactor adds the category of factor(x), with what is known of missing values of x.
func (r *resolver) addFactor(name, of string, columns []Column) {
	c := Category(name)
	c.formula = true
	for _, x := range columns {
		if s := x.said(); s != nil && s.Name == of {
			c.inherit(s)
		}
	}
	r.uses = append(r.uses, c)
}

// add adds a role that only the formula names, with the hints from another use of the column.
func (r *resolver) add(o role) {
	if slices.ContainsFunc(r.uses, func(c Column) bool {
		return c.said() != nil && c.said().Name == o.column && c.said().Kind == o.kind
	}) {
		return
	}
	c := o.make(o.column)
	s := c.said()
	s.formula = true
	for _, h := range r.hints {
		if h.Name != o.column {
			continue
		}
		s.inherit(h)
		if o.kind == kindOutcome {
			s.Quantity = s.Quantity || h.Kind == kindNumber
			s.Unit, s.AnyUnit = h.Unit, h.AnyUnit
		}
	}
	r.uses = append(r.uses, c)
}

// suitFormula changes the choices of a DecisionError to those that have an effect in the formula as
// it was written. A column that a term names cannot be left out. A column that . stands for can be,
// and the formula has to name it before it has an effect for each of its groups.
func suitFormula(err error, f *formula.Formula, features []string) {
	var undecided *DecisionError
	if !errors.As(err, &undecided) {
		return
	}
	var named []string
	for _, term := range f.Terms {
		if _, rest := term.(formula.Rest); !rest {
			named = append(named, term.Columns()...)
		}
	}
	for i := range undecided.Decisions {
		d := &undecided.Decisions[i]
		role := len(d.Choices) > 0 && isRole(d.kindOf(0)) && d.kindOf(0) != kindGroup
		switch {
		case len(d.Choices) == 0 || role || !slices.Contains(features, d.Column):
		case slices.Contains(named, d.Column):
			d.keepFeatures()
		default:
			d.leaveOut()
		}
	}
}

// kindOf returns the kind of a choice.
func (d *Decision) kindOf(i int) kind { return d.Choices[i].Column.said().Kind }

// choice returns the place of the first choice of a kind, or -1.
func (d *Decision) choice(k kind) int {
	return slices.IndexFunc(d.Choices, func(c Choice) bool { return c.Column.said().Kind == k })
}

// keepFeatures removes the choices that are no feature.
func (d *Decision) keepFeatures() {
	both := d.choice(kindCategory) >= 0 // a category has the effects that the groups would have
	d.Choices = slices.DeleteFunc(d.Choices, func(c Choice) bool {
		k := c.Column.said().Kind
		return k == kindSkip || k == kindGroup && both
	})
	if len(d.Choices) == 0 {
		d.Choices = nil
		d.Problem += "; remove it from the formula"
	}
}

// leaveOut makes leaving the column out the first choice if that was to have groups, which need a
// term of their own.
func (d *Decision) leaveOut() {
	group, skip := d.choice(kindGroup), d.choice(kindSkip)
	if group < 0 {
		return
	}
	d.Choices[group].When = fmt.Sprintf("and write (1 | %s) in the formula, for an effect of each",
		formula.Col(d.Column))
	if group == 0 && skip > 0 {
		c := d.Choices[skip]
		d.Choices = slices.Insert(slices.Delete(d.Choices, skip, skip+1), 0, c)
	}
}

// useless reports whether a column that nothing is said of is left out without a question.
func (t *Table) useless(name string) bool {
	s := &spec{Name: name}
	_, d := t.review(t.place[name], s)
	return s.Kind == kindSkip && d == nil
}

// likeNumbers reports whether a column looks like an identifier of whole numbers. A formula that
// names it takes it for a number, such as a week, and . leaves it out.
func (t *Table) likeNumbers(name string) bool {
	s := &spec{Name: name}
	_, d := t.review(t.place[name], s)
	return s.Kind == kindSkip && d != nil && slices.ContainsFunc(d.Choices, func(c Choice) bool {
		_, number := c.Column.(NumberColumn)
		return number
	})
}

// column returns a column by its name, or nil.
func (e *Encoder) column(name string) *column {
	if j, ok := e.place[name]; ok {
		return e.state.Columns[j]
	}
	return nil
}

// use returns the column in a role, or nil.
func (e *Encoder) use(name string, role kind) *column {
	for _, c := range e.uses {
		if c.Name == name && c.Kind == role {
			return c
		}
	}
	return nil
}

// neededByModel reports whether a row without the column cannot be predicted by a model.
func (c *column) neededByModel() bool { return c.needed() || c.Kind == kindGroup }

// learn has the terms see the rows of the table.
func (d *design) learn(e *Encoder, t *Table) error {
	for _, term := range d.Terms {
		term.begin()
	}
	weight := slices.IndexFunc(e.uses, func(c *column) bool { return c.Kind == kindWeight })
	if slices.ContainsFunc(d.Terms, (*term).learns) {
		err := e.each(t, (*column).neededByModel, func(rec *record) error {
			if e.drops(rec.cells, true) {
				return nil
			}
			w, err := 1., error(nil)
			if weight >= 0 {
				c := e.uses[weight]
				if w, err = c.scale(&rec.cells[c.place]); err != nil {
					return t.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, c.wrap(err)))
				}
			}
			for _, term := range d.Terms {
				if err := term.see(rec.cells, w); err != nil {
					return t.named(fmt.Errorf("pgsvi: line %d, %w", rec.line, err))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, term := range d.Terms {
		if err := term.finish(d.Raw); err != nil {
			return t.named(err)
		}
	}
	return nil
}

// sparseAt is the share of values that are not 0 below which a matrix is kept as sparse.
const sparseAt = 0.25

// A matrix of at least fewRows rows is also sparse if at least leastFew columns are mostly 0, and
// their share of other values is at most fewAt.
const (
	fewRows  = 1000
	leastFew = 32
	fewAt    = 0.125
)

// data is Data with the features of a design.
func (e *Encoder) data(t *Table, d *design) (*Data, error) {
	b := &dataBuilder{
		e: e, d: &Data{Names: d.names}, design: d, sparse: pgsvi.NewSparse(len(d.names)),
		budget: memory.NewBudget("the encoded table", textTooLarge),
	}
	data, err := e.gather(t, b)
	if err != nil {
		return nil, err
	}
	if len(d.names) > 0 && !keepSparse(b.sparse) {
		data.X = mat.DenseCopyOf(b.sparse)
	}
	return data, nil
}

// keepSparse reports whether products with x take less time if x is sparse. They do if most values
// are 0, or if x has many columns that are mostly 0, such as groups, next to full columns, such as
// curves, because package design multiplies the two kinds of columns separately.
func keepSparse(x *pgsvi.Sparse) bool {
	rows, cols := x.Dims()
	if float64(x.NNZ()) <= sparseAt*float64(rows*cols) {
		return true
	}
	if rows < fewRows || rows <= cols || cols < leastFew {
		return false
	}
	count := make([]int, cols)
	for i := range rows {
		ind, _ := x.Row(i)
		for _, j := range ind {
			count[j]++
		}
	}
	few, filled := 0, 0
	for _, n := range count {
		if 2*n < rows {
			few++
			filled += n
		}
	}
	return few >= leastFew && float64(filled) <= fewAt*float64(rows*few)
}

// GLM returns the generalised linear model of the formula. It is
//
//	m, err := m.For(lik)
//	lik, opt, err := m.Options(lik, opt)
//	glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
func (m *Model) GLM(lik pgsvi.Likelihood, opt *pgsvi.GLMOptions) (*pgsvi.GLM, error) {
	m, err := m.For(lik)
	if err != nil {
		return nil, err
	}
	lik, opt, err = m.Options(lik, opt)
	if err != nil {
		return nil, err
	}
	glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
	return glm, m.Locate(err)
}

// Locate returns err, an error of pgsvi.NewGLM or another model of X and Y, with the line and the
// column of the outcome that the likelihood refuses, which it knows by its row. Any other error is
// returned as it is. GLM and FitGP do so by themselves.
func (m *Model) Locate(err error) error {
	var row int
	if !errors.Is(err, pgsvi.ErrLabel) || m.table == nil || m.Trials != nil && !m.paired {
		return err
	}
	if n, _ := fmt.Sscanf(err.Error(), "pgsvi: row %d:", &row); n != 1 || row >= len(m.Kept) {
		return err
	}
	line := 0
	if e := m.table.scan(func(rec *record) error {
		if rec.row < m.Kept[row] {
			return nil
		}
		line = rec.line
		return errStop
	}); line == 0 {
		return errors.Join(err, e)
	}
	text := strings.TrimPrefix(sentinel.Plain(err), fmt.Sprintf("row %d: ", row))
	return m.table.named(fmt.Errorf("pgsvi: line %d, column %s: %s: %w", line,
		csvQuote(m.y.Name), text, pgsvi.ErrLabel))
}

// Options returns the likelihood and the options of the GLM of the formula, those given completed:
// intercept, offsets, weights, names, and the blocks of columns that share a prior standard
// deviation: the effects, each smooth curve and each group (random effects).
//
// A nil likelihood is BernoulliLogit for two labels and for successes in trials, Softmax for three
// labels or more (multi-class), Ordinal for ordered levels, Weibull for durations that may be
// censored (survival), Poisson for counts with an exposure, LogNormal for log(y), and GaussianNoise
// for other numbers and for sqrt(y). Ordinal has no intercept, because its cut points are learned.
// Whole numbers from 0 on without exposure are an error, which wraps ErrParam, as they may be
// either; if they number classes, say Outcome.Classes. Classes have the names of their labels, and
// share their prior standard deviations.
//
// A fit learns the prior standard deviation of each block, and the parameters of the likelihood. If
// GLMOptions.PriorSD is set it is that of the effects, and is kept. Set Learn of what Options
// returns to nil to have all of them kept. The intercept has the prior standard deviation 10, or 10
// root mean squares of the outcome if that is real numbers. The covariance, if it is not given, is
// full up to 4,500 weights or rows, and diagonal beyond.
func (m *Model) Options(lik pgsvi.Likelihood, opt *pgsvi.GLMOptions) (pgsvi.Likelihood,
	*pgsvi.GLMOptions, error) {
	lik, err := m.likelihood(lik)
	if err == nil {
		err = m.suitsOffset(lik)
	}
	if err != nil {
		return nil, nil, err
	}
	var o pgsvi.GLMOptions
	if opt != nil {
		o = *opt
	}
	_, ordinal := lik.(pgsvi.Ordinal)
	o.Intercept = !m.Formula.NoIntercept && !ordinal // cut points take its place
	if len(m.Names) == 0 && !o.Intercept {
		why := "no intercept"
		if ordinal {
			why = "cut points in place of an intercept"
		}
		return nil, nil, fmt.Errorf("pgsvi: the formula %s has no column, and the model has %s; "+
			"name a column: %w", m.Formula, why, pgsvi.ErrEmpty)
	}
	o.Offset, o.Weights, o.Names = m.Offset, m.Weights, m.Names
	known, ok := lik.(pgsvi.Factual)
	if ok && known.Facts().Support == pgsvi.RealLine || m.Formula.Transform != "" {
		if size := 10 * m.size(); !math.IsInf(size, 1) { // else NewGLM names the row
			o.InterceptSD = cmp.Or(o.InterceptSD, size)
		}
	}
	if m.classes() {
		o.ClassNames = m.Labels
	}
	if o.Prior != nil {
		return lik, &o, nil
	}
	blocks, index := m.blocks()
	o.Blocks = nil
	if len(blocks) > 1 || len(blocks) == 1 && blocks[0] != "" { // columns of a curve have one unit
		o.Blocks = index
	}
	var learn pgsvi.LearnOptions
	if o.Learn != nil {
		learn = *o.Learn
	}
	o.Learn = &learn
	if o.Covariance == pgsvi.AutoCovariance {
		o.Covariance = m.covariance()
	}
	if o.PriorSD != 0 && len(blocks) > 0 && blocks[0] == "" {
		learn.Fixed = append(slices.Clone(learn.Fixed), sdName(0, len(blocks)))
		blocks = blocks[1:]
	}
	if len(blocks) == 0 && !learnable(lik) {
		o.Learn = nil
	}
	return lik, &o, nil
}

// size returns the root mean square of the outcomes less their offsets: numbers of any unit have an
// intercept of that size.
func (m *Model) size() float64 {
	norm, n := 0., 0.
	for i, y := range m.Y {
		if m.Formula.Transform == "log" {
			y = math.Log(y)
		}
		w := 1.
		if m.Weights != nil {
			w = m.Weights[i]
		}
		if m.Offset != nil {
			y -= m.Offset[i]
		}
		norm = math.Hypot(norm, math.Sqrt(w)*y)
		n += w
	}
	return norm / math.Sqrt(n)
}

// learnable says that a likelihood has a parameter to be learned. The exposure of Poisson is data.
func learnable(lik pgsvi.Likelihood) bool {
	_, parametric := lik.(pgsvi.Parametric)
	_, poisson := lik.(pgsvi.Poisson)
	return parametric && !poisson
}

// mostFull is how many weights, or rows, a full covariance that is learned with may have: with
// 4,500 it takes 4 GB and minutes.
const mostFull = 4500

// covariance returns the family of covariances that hyper-parameters are learned with: that of low
// rank, which the library takes for some thousands of weights, cannot be.
func (m *Model) covariance() pgsvi.Covariance {
	if m.classes() || min(len(m.Names)+1, len(m.Y)) <= mostFull { // classes have full ones alone
		return pgsvi.FullCovariance
	}
	return pgsvi.DiagonalCovariance
}

// sdName is the name that pgsvi gives the prior standard deviation of a block.
func sdName(block, blocks int) string {
	if blocks == 1 {
		return "GLM.PriorSD"
	}
	return "GLM.PriorSD[" + strconv.Itoa(block) + "]"
}

// blocks returns the blocks of features, that of the effects first if there are any, and which each
// feature is in.
func (m *Model) blocks() (names []string, index []int) {
	if slices.Contains(m.design.blocks, "") {
		names = append(names, "")
	}
	for _, b := range m.design.blocks {
		i := slices.Index(names, b)
		if i < 0 {
			i = len(names)
			names = append(names, b)
		}
		index = append(index, i)
	}
	return names, index
}

// ParamName returns the name of a parameter that was learned, Param.Name, in words of the formula:
// "sd[region]" is the standard deviation of a block of Options, "sd[effects]" that of the effects.
func (m *Model) ParamName(name string) string {
	blocks, _ := m.blocks()
	for i, b := range blocks {
		if name == sdName(i, len(blocks)) {
			if b == "" {
				b = "effects"
			}
			return "sd[" + b + "]"
		}
	}
	return name
}

// ForGP returns the likelihood of a Gaussian process of X and Y, where nil is as in Options. The
// error wraps ErrParam if the formula has what a Gaussian process does without: groups, curves,
// products, offsets, weights; and ErrEmpty if it has no column.
func (m *Model) ForGP(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	for _, t := range m.design.Terms {
		if t.Kind != productTerm || len(t.Columns) > 1 {
			return nil, fmt.Errorf(
				"pgsvi: %s in the formula of a Gaussian process, which finds curves and "+
					"interactions by itself: name the columns alone, as in y ~ a + b: %w",
				t.Text, pgsvi.ErrParam)
		}
	}
	if len(m.Names) == 0 {
		return nil, fmt.Errorf("pgsvi: a Gaussian process of no column; name one at least, "+
			"as in y ~ a: %w", pgsvi.ErrEmpty)
	}
	if m.Offset != nil || m.Weights != nil {
		return nil, fmt.Errorf("pgsvi: offsets, exposures, weights and trials are of generalised "+
			"linear models, not of Gaussian processes, though BetaBinomial has trials: %w",
			pgsvi.ErrParam)
	}
	return m.likelihood(lik)
}

// String says what each column was taken for, and the model in words.
func (m *Model) String() string {
	var b strings.Builder
	b.WriteString(m.enc.String())
	fmt.Fprintf(&b, "\n%s\n%s\n", m.Formula, m.Formula.Words())
	for _, t := range m.design.Terms {
		if c := t.Curve; c != nil && c.Periodic && !strings.Contains(t.Text, ", period=") {
			fmt.Fprintf(&b, "the period of %s is %.6g; s(%s, period=…) sets it\n", t.Text,
				c.Hi-c.Lo,
				formula.Col(t.Columns[0]))
		}
	}
	rows, features := len(m.Kept), len(m.Names)
	fmt.Fprintf(&b, "%s, %s", plural(rows, "row"), plural(features, "column"))
	switch {
	case m.classes():
		fmt.Fprintf(&b, "; a score for each of %d classes", len(m.Labels))
	case m.y.ordered():
		b.WriteString("; weights are of the log odds of a higher level")
	case m.paired:
		b.WriteString("; weights are of the log odds of a success")
	case m.Trials != nil:
		b.WriteString(" (successes and failures apart); weights are of the log odds of a success")
	case len(m.Labels) == 2:
		fmt.Fprintf(&b, "; weights are of the log odds of %s", csvQuote(m.Labels[1]))
	}
	b.WriteByte('\n')
	return b.String()
}
