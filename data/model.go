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
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// A Model combines a formula with the rows of a table, encoded as numbers for a regression. Print
// it to see how each column was read, and the model in words. Make it with Table.Model. A Model
// does not change and may be used concurrently.
type Model struct {
	// Data holds the rows, encoded according to the formula. If the outcome is a number of
	// successes, each row of the table becomes two rows: a row with outcome +1, weighted by the
	// number of successes, and a row with outcome −1, weighted by the number of failures; see For.
	*Data
	// Formula is the formula with . and a*b expanded.
	Formula *formula.Formula

	enc    *Encoder
	design *design
	y      *column
	table  *Table // the table with the rows
	counts bool   // the outcomes are nonnegative whole numbers
	paired bool   // the outcomes were made by pgsvi.Successes
}

// Model returns the model of the table for a formula such as
//
//	churned ~ plan + s(age) + region*tenure + (1 | customer)
//
// See package formula. Only columns of the formula are used, and only those that need a decision
// have to be declared in columns; see Table.Encoder. The formula itself declares groups, the
// outcome, exposures, offsets, weights, trials and events, unless they have missing values. A
// column with several roles may be declared once for each role: Number("w") and Weight("w").
//
// The columns of X are the columns of model.matrix in R, shifted and scaled. Products use the
// values in the table, dates count from 1970, and categories are coded by contrasts or in full, as
// in R. A number is centered only if the model has the terms that centering adds, so the shift
// never changes which functions the model can fit. Numbers are divided by their standard deviation,
// using the row weights. A product of numbers is divided by the standard deviation of the product.
// Indicators stay 0 and 1. The prior standard deviation of a weight is in these units. poly has
// orthogonal polynomials over the rows, and s has its knots at quantiles.
//
// A group with Q effects, such as an intercept and a slope, has Q columns per level, side by side,
// and an empty level for values that training has not seen. Its names are shop=a and shop=a:age.
// The slope of a number is centered only if it is correlated with an intercept. The slope of an
// imputed number applies to the mean, and a slope has no columns that are 0 in all rows.
//
// The error is an error of formula.Parse, Formula.Check or Table.Encoder. It also wraps ErrParam if
// a term does not suit its column, such as a smooth curve of a category or log(x) of 0, or if a
// term has no effect, such as a slope of a column that does not vary within any level of its group.
func (t *Table) Model(text string, columns ...Column) (*Model, error) {
	f, err := formula.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	return t.ModelOf(f, columns...)
}

// ModelOf is like Model for a formula that is already parsed or built. It does not change f.
func (t *Table) ModelOf(f *formula.Formula, columns ...Column) (*Model, error) {
	t, err := t.withComputed(f)
	if err != nil {
		return nil, err
	}
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
		func(c Column) bool { return c.declared() != nil && c.declared().Kind == kindRaw })
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
	if len(m.Precision) > 0 {
		d.Precision = stat.Mean(m.Precision, nil)
		if math.IsInf(d.Precision, 1) {
			return nil, t.named(sentinel.Wrap(pgsvi.ErrNotFinite, "pgsvi: the mean of the column of "+
				"precision(%s) overflows; divide the column by a number",
				formula.Col(f.Precision)))
		}
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

// A role is the use of a column that is not a feature in a formula.
type role struct {
	column string
	kind   kind
	make   func(name string) Column
}

// roles returns the roles in a formula.
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
		{f.Precision, kindPrecision, func(n string) Column { return Precision(n) }},
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

// resolve expands the formula for the columns of the table. It returns the columns that are
// features, and the declared columns as the formula uses them, including roles that only the
// formula declares.
func (t *Table) resolve(f *formula.Formula, columns []Column) (
	_ *formula.Formula, features []string, uses []Column, err error) {
	if err := f.Check(t.Columns()); err != nil {
		return nil, nil, nil, fmt.Errorf("pgsvi: %w", err)
	}
	named := f.Columns()
	kinds := map[string][]kind{}
	for _, c := range columns {
		if s := c.declared(); s != nil {
			kinds[s.Name] = append(kinds[s.Name], s.Kind)
		}
	}
	rest := slices.DeleteFunc(t.Columns(), func(name string) bool { // the columns that . stands for
		declared := kinds[name]
		switch {
		case slices.Contains(named, name), slices.Contains(declared, kindNumber),
			slices.Contains(declared, kindCategory), slices.Contains(declared, kindDate):
			return false
		case len(declared) == 0:
			return t.useless(name)
		}
		return true
	})
	if f, err = f.Resolve(rest); err != nil {
		return nil, nil, nil, fmt.Errorf("pgsvi: %w", err)
	}
	r, features := &resolver{t: t, f: f, roles: roles(f)}, []string{} // nil would mean all
	for _, term := range f.Terms {
		feature := term.Columns()
		if g, ok := term.(formula.Group); ok {
			feature = slopeColumns(g)
		}
		for _, name := range feature {
			if !slices.Contains(features, name) {
				features = append(features, name)
			}
		}
	}
	var numbers []string // columns of arithmetic
	for _, name := range computable(f) {
		if j, ok := t.place[name]; ok && t.isComputed(j) {
			from, _ := sources(name)
			numbers = append(numbers, from...)
		}
	}
	for _, name := range numbers {
		if !slices.Contains(features, name) {
			features = append(features, name)
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
		r.addComputed(name, columns)
		if slices.Contains(named, name) && !r.has(name, false) &&
			(t.likeNumbers(name) || t.curved(f, numbers, name)) {
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

// slopeColumns returns the columns of the slopes of a group.
func slopeColumns(g formula.Group) (columns []string) {
	for _, s := range g.Slopes {
		columns = append(columns, s.Columns()...)
	}
	return columns
}

// A resolver sorts the declared columns by the uses that a formula has for them.
type resolver struct {
	t        *Table
	f        *formula.Formula
	roles    []role
	features []string
	uses     []Column
	hints    []*spec // specs of other uses of a column
}

// has reports whether the uses contain a column with a role, or without a role.
func (r *resolver) has(name string, role bool) bool {
	return slices.ContainsFunc(r.uses, func(c Column) bool {
		s := c.declared()
		return s != nil && s.Name == name && isRole(s.Kind) == role
	})
}

// sort adds a column to the uses, or to the hints if the formula uses it in another way. It ignores
// a column that the formula does not use.
func (r *resolver) sort(c Column) error {
	s := c.declared()
	if s == nil || s.Kind == kindRaw || !slices.Contains(r.t.Columns(), s.Name) {
		r.uses = append(r.uses, c) // the Encoder reports the error
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
		return fmt.Errorf("pgsvi: %s is among the columns, but the formula uses %s; remove one "+
			"of them: %w", s.call(), csvQuote(s.Name), pgsvi.ErrParam)
	case slices.Contains(wanted, s.Kind), feature && !isRole(s.Kind), s.Kind == kindOutcome:
		r.uses = append(r.uses, c)
	case isRole(s.Kind) && s.Kind != kindGroup:
		return fmt.Errorf("pgsvi: %s is among the columns, but the formula has no %s(%s); add the "+
			"term or remove the column: %w", s.call(), s.Kind, formula.Col(s.Name), pgsvi.ErrParam)
	case feature && s.Kind == kindGroup && len(wanted) == 0: // each level has an effect
		category := s.copy()
		category.Kind = kindCategory
		r.uses = append(r.uses, CategoryColumn{category})
	default:
		r.hints = append(r.hints, s)
	}
	return nil
}

// addComputed adds the category of factor(x) or the number of I(x^2), with the rules for missing
// values of x. It adds nothing for other columns.
func (r *resolver) addComputed(name string, columns []Column) {
	from, computed := sources(name)
	if !computed || !r.t.isMade(r.t.place[name]) || r.has(name, false) {
		return
	}
	c := Category(name).declared()
	if r.t.isComputed(r.t.place[name]) {
		c = Number(name).declared()
	}
	c.formula = true
	for _, x := range columns {
		s := x.declared()
		switch {
		case s == nil || !slices.Contains(from, s.Name):
		case c.Kind == kindCategory:
			c.inherit(s)
		case s.Missing == missingDrop || s.Missing == missingImpute && c.Missing == missingError:
			c.Missing = s.Missing
		}
	}
	r.uses = append(r.uses, columnOfSpec(c))
}

// add adds a role that only the formula declares, with the hints from other uses of the column.
func (r *resolver) add(o role) {
	if slices.ContainsFunc(r.uses, func(c Column) bool {
		return c.declared() != nil && c.declared().Name == o.column && c.declared().Kind == o.kind
	}) {
		return
	}
	c := o.make(o.column)
	s := c.declared()
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

// suitFormula reduces the choices of a DecisionError to choices that have an effect in the formula
// as it was written. A column that a term names cannot be skipped. A column that . stands for can
// be skipped, but to make it a group the formula has to name it.
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
	for _, name := range computable(f) {
		from, _ := sources(name)
		named = append(named, from...)
	}
	for i := range undecided.Decisions {
		d := &undecided.Decisions[i]
		role := len(d.Choices) > 0 && isRole(d.kindOf(0)) && d.kindOf(0) != kindGroup
		switch {
		case len(d.Choices) == 0 || role || !slices.Contains(features, d.Column):
		case slices.Contains(named, d.Column):
			d.formula = true
			d.keepFeatures()
		default:
			d.leaveOut()
		}
	}
}

// kindOf returns the kind of a choice.
func (d *Decision) kindOf(i int) kind { return d.Choices[i].Column.declared().Kind }

// choice returns the index of the first choice of a kind, or -1.
func (d *Decision) choice(k kind) int {
	return slices.IndexFunc(d.Choices, func(c Choice) bool { return c.Column.declared().Kind == k })
}

// keepFeatures removes the choices that do not make a feature.
func (d *Decision) keepFeatures() {
	both := d.choice(kindCategory) >= 0 // a category has the same effects as the groups
	d.Choices = slices.DeleteFunc(d.Choices, func(c Choice) bool {
		k := c.Column.declared().Kind
		return k == kindSkip || k == kindGroup && both
	})
	if len(d.Choices) == 0 {
		d.Choices = nil
		d.Problem += "; remove it from the formula"
	}
}

// leaveOut moves the choice to skip the column to the front if the first choice makes groups,
// because groups need a term of their own.
func (d *Decision) leaveOut() {
	group, skip := d.choice(kindGroup), d.choice(kindSkip)
	if group < 0 {
		return
	}
	d.Choices[group].When = fmt.Sprintf("with (1 | %s) in the formula, for a random effect of "+
		"each text", formula.Col(d.Column))
	if group == 0 && skip > 0 {
		c := d.Choices[skip]
		d.Choices = slices.Insert(slices.Delete(d.Choices, skip, skip+1), 0, c)
	}
}

// useless reports whether an undeclared column is skipped without a decision.
func (t *Table) useless(name string) bool {
	s := &spec{Name: name}
	_, d := t.review(t.place[name], s)
	return s.Kind == kindSkip && d == nil
}

// likeNumbers reports whether a column looks like an identifier made of whole numbers. If a formula
// names the column, it is a number, such as a week; . skips it.
func (t *Table) likeNumbers(name string) bool {
	s := &spec{Name: name}
	_, d := t.review(t.place[name], s)
	return s.Kind == kindSkip && d != nil && slices.ContainsFunc(d.Choices, func(c Choice) bool {
		_, number := c.Column.(NumberColumn)
		return number
	})
}

// column returns the column with a name, or nil.
func (e *Encoder) column(name string) *column {
	if j, ok := e.place[name]; ok {
		return e.state.Columns[j]
	}
	return nil
}

// use returns the column with a name in a role, or nil.
func (e *Encoder) use(name string, role kind) *column {
	for _, c := range e.uses {
		if c.Name == name && c.Kind == role {
			return c
		}
	}
	return nil
}

// neededByModel reports whether a model needs the column to predict a row.
func (c *column) neededByModel() bool { return c.needed() || c.Kind == kindGroup }

// learn passes the rows of the table to the terms.
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

// sparseAt is the share of nonzero values up to which a matrix is kept as sparse.
const sparseAt = 0.25

// A matrix with at least fewRows rows is also sparse if it has at least leastFew columns that are
// mostly 0 and at most the share fewAt of the values of these columns is not 0.
const (
	fewRows  = 1000
	leastFew = 32
	fewAt    = 0.125
)

// data is like Data, with the features of a design.
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

// GLM returns the generalized linear model of the formula. It is short for
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

// Locate returns err with the line and the column of the outcome if err is an ErrLabel error about
// a row, from pgsvi.NewGLM or another model of X and Y. It returns any other error unchanged. GLM
// and FitGP call it.
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

// Options returns the likelihood and the options for the GLM of the formula. It copies opt and adds
// the intercept, offsets, weights, names and blocks. A block is a set of columns that share a prior
// standard deviation: the effects, each smooth curve and each group (random effects).
//
// A nil likelihood means BernoulliLogit for two labels and for successes in trials, Softmax for
// three or more labels (multi-class), Ordinal for ordered levels, Weibull for durations that may be
// censored (survival), Poisson for counts with an exposure, LogNormal for log(y), and GaussianNoise
// for other numbers and for sqrt(y). Ordinal has no intercept, because it learns cut points. If the
// outcomes are nonnegative whole numbers without an exposure, several likelihoods are possible, so
// the error wraps ErrParam. Declare Outcome.Classes if they number classes. Classes are named by
// their labels and share their prior standard deviations.
//
// A fit learns the prior standard deviation of each block and the parameters of the likelihood. If
// GLMOptions.PriorSD is set, it is the prior standard deviation of the effects and is not learned.
// Set Learn in the returned options to nil to learn nothing. The prior standard deviation of the
// intercept is 10, or 10 root mean squares of the outcomes if these are real numbers. A covariance
// that is not set is full for up to 4,500 weights or rows, and diagonal otherwise.
//
// The error wraps ErrParam if GaussianNoise or LogNormal learns its noise and a group has an effect
// for each row, as (1 | g) with one row per level or (0 + f | g) with one row per level of g and f.
func (m *Model) Options(lik pgsvi.Likelihood, opt *pgsvi.GLMOptions) (pgsvi.Likelihood,
	*pgsvi.GLMOptions, error) {
	lik, err := m.likelihood(lik)
	if err == nil {
		err = m.suitsOffset(lik)
	}
	if err == nil {
		err = m.suitsPrecision(lik)
	}
	if err != nil {
		return nil, nil, err
	}
	var o pgsvi.GLMOptions
	if opt != nil {
		o = *opt
	}
	_, ordinal := lik.(pgsvi.Ordinal)
	o.Intercept = !m.Formula.NoIntercept && !ordinal // cut points replace the intercept
	if len(m.Names) == 0 && !o.Intercept {
		why := "no intercept"
		if ordinal {
			why = "cut points in place of an intercept"
		}
		return nil, nil, fmt.Errorf("pgsvi: the formula %s has no column, and the model has %s; "+
			"add a column: %w", m.Formula, why, pgsvi.ErrEmpty)
	}
	o.Offset, o.Weights, o.Names = m.Offset, m.counted(), m.Names
	known, ok := lik.(pgsvi.Factual)
	if ok && known.Facts().Support == pgsvi.RealLine || m.Formula.Transform != "" {
		if size := 10 * m.size(); !math.IsInf(size, 1) { // otherwise NewGLM reports the row
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
	if len(blocks) > 1 || len(blocks) == 1 && blocks[0] != "" { // a single curve needs no blocks
		o.Blocks = index
	}
	var learn pgsvi.LearnOptions
	if o.Learn != nil {
		learn = *o.Learn
	}
	o.Learn = &learn
	if err := m.alone(lik, learn.Fixed); err != nil {
		return nil, nil, err
	}
	if m.eliminates() {
		if o.Groups == nil {
			o.Groups = m.design.options(learn.NoPrior)
		}
	} else if o.Covariance == pgsvi.AutoCovariance {
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

// alone returns an error if the effects of a group and Gaussian noise of unknown variance have the
// same distribution. Weights and unequal precisions make a difference.
func (m *Model) alone(lik pgsvi.Likelihood, fixed []string) error {
	noise := ""
	switch lik.(type) {
	case pgsvi.GaussianNoise:
		noise = "GaussianNoise.Var"
	case pgsvi.LogNormal: // its logarithm has Gaussian noise
		noise = "LogNormal.Scale"
	}
	if noise == "" || m.Weights != nil || unequal(m.Precision) || len(m.Y) < 2 ||
		slices.Contains(fixed, noise) {
		return nil
	}
	for _, t := range m.design.Terms {
		switch {
		case t.Kind != groupTerm:
		case !t.NoIntercept && slices.Max(t.Counts) == 1:
			return fmt.Errorf("pgsvi: %s: column %s has %s in as many rows, so its effects cannot be "+
				"told from the residuals; remove the term: %w", t.Text, csvQuote(t.by()),
				plural(len(t.Levels), "level"), pgsvi.ErrParam)
		case m.saturates(t):
			return fmt.Errorf("pgsvi: %s: no level of column %s has two rows with the same effects, so "+
				"these cannot be told from the residuals; use fewer effects, such as (1 | %s): %w",
				t.Text, csvQuote(t.by()), t.by(), pgsvi.ErrParam)
		}
	}
	return nil
}

// saturates reports whether the correlated effects of a group can replace Gaussian noise. Let z_n be
// the effects of row n before they are multiplied by their weights. If the rows have at most Q
// different z_n, which are linearly independent, and no level has two rows with the same z_n, there
// is a covariance D with z_nᵀDz_m = 1 for n = m and 0 for other rows of a level. Then Σ + vD with the
// noise s − v has the same likelihood for all v.
func (m *Model) saturates(t *term) bool {
	if t.Independent && t.q > 1 {
		return false
	}
	type occurrence struct{ level, kind int }
	var kinds []float64 // the different z_n
	seen := map[occurrence]bool{}
	z := make([]float64, t.q)
	rows, _ := m.X.Dims()
	sparse, _ := m.X.(*pgsvi.Sparse)
	for i := range rows {
		clear(z)
		level := -1
		put := func(j int, v float64) {
			if j -= t.at; j >= 0 && j < t.n && v != 0 {
				level, z[j%t.q] = j/t.q, v
			}
		}
		if sparse != nil {
			ind, val := sparse.Row(i)
			for k, j := range ind {
				put(int(j), val[k])
			}
		} else {
			for j := t.at; j < t.at+t.n; j++ {
				put(j, m.X.At(i, j))
			}
		}
		if level < 0 {
			return false // a row without effects has only the noise
		}
		kind := 0
		for kind*t.q < len(kinds) && !slices.Equal(kinds[kind*t.q:][:t.q], z) {
			kind++
		}
		if kind == t.q {
			return false
		}
		if kind*t.q == len(kinds) {
			kinds = append(kinds, z...)
		}
		if seen[occurrence{level, kind}] {
			return false
		}
		seen[occurrence{level, kind}] = true
	}
	var svd mat.SVD
	return svd.Factorize(mat.NewDense(len(kinds)/t.q, t.q, kinds), mat.SVDNone) &&
		svd.Rank(saturatedRank) == len(kinds)/t.q
}

// saturatedRank is the smallest singular value, relative to the largest, of independent effects.
const saturatedRank = 1e-9

// unequal reports whether two values differ.
func unequal(x []float64) bool {
	return slices.ContainsFunc(x, func(v float64) bool { return v != x[0] })
}

// counted returns how many times each row counts, or nil if all rows count once. Precisions count
// relative to their mean over the training rows, so that their sum is the number of rows. Then the
// log-likelihood of Gaussian noise with the variance s of a row with the mean precision,
//
//	Σ_n w_n log N(y_n|η_n, s) = Σ_n log N(y_n|η_n, s/w_n) − ½ Σ_n log w_n  if Σ_n (w_n − 1) = 0,
//
// is right for every s, up to a constant.
func (m *Model) counted() []float64 {
	if m.Precision == nil {
		return m.Weights
	}
	w := make([]float64, len(m.Precision))
	for i, p := range m.Precision {
		w[i] = p / m.design.Precision
	}
	return w
}

// size returns the root mean square of the outcomes minus their offsets. The intercept of numbers
// in any unit has about this size.
func (m *Model) size() float64 {
	norm, n, weights := 0., 0., m.counted()
	for i, y := range m.Y {
		if m.Formula.Transform == "log" {
			y = math.Log(y)
		}
		w := 1.
		if weights != nil {
			w = weights[i]
		}
		if m.Offset != nil {
			y -= m.Offset[i]
		}
		norm = math.Hypot(norm, math.Sqrt(w)*y)
		n += w
	}
	return norm / math.Sqrt(n)
}

// learnable reports whether a likelihood has a parameter to learn. The exposure of Poisson is data.
func learnable(lik pgsvi.Likelihood) bool {
	_, parametric := lik.(pgsvi.Parametric)
	_, poisson := lik.(pgsvi.Poisson)
	return parametric && !poisson
}

// mostFull is the largest number of weights, or rows, of a model that is learned with a full
// covariance. At 4,500 this takes 4 GB and minutes.
const mostFull = 4500

// covariance returns the covariance family for learning hyperparameters. LowRankCovariance, the
// default of package pgsvi for a few thousand weights, does not support learning.
func (m *Model) covariance() pgsvi.Covariance {
	if m.classes() || min(len(m.Names)+1, len(m.Y)) <= mostFull { // classes need a full covariance
		return pgsvi.FullCovariance
	}
	return pgsvi.DiagonalCovariance
}

// eliminates reports whether fits use GLMOptions.Groups. Independent effects do not if too many
// weights remain besides the largest group.
func (m *Model) eliminates() bool {
	largest := 0
	for _, t := range m.design.Terms {
		if t.Kind == groupTerm {
			largest = max(largest, t.n)
		}
	}
	return largest > 0 &&
		(m.design.correlated() != "" || len(m.Names)+1-largest <= site.MostBorder)
}

// sdName returns the name of the prior standard deviation of a block in package pgsvi.
func sdName(block, blocks int) string {
	if blocks == 1 {
		return "GLM.PriorSD"
	}
	return "GLM.PriorSD[" + strconv.Itoa(block) + "]"
}

// blocks returns the names of the blocks of features, with the block of the effects first, and the
// block of each feature. If fits use GLMOptions.Groups, groups are no blocks, and their features have
// the block 0.
func (m *Model) blocks() (names []string, index []int) {
	all := m.design.blocks
	grouped := make([]bool, len(all))
	if m.eliminates() {
		for _, t := range m.design.Terms {
			for j := t.at; t.Kind == groupTerm && j < t.at+t.n; j++ {
				grouped[j] = true
			}
		}
	}
	for j, b := range all {
		if b == "" && !grouped[j] {
			names = []string{""}
		}
	}
	for j, b := range all {
		i := 0
		if !grouped[j] {
			if i = slices.Index(names, b); i < 0 {
				i = len(names)
				names = append(names, b)
			}
		}
		index = append(index, i)
	}
	return names, index
}

// ParamName translates the name of a learned parameter, Param.Name, into words of the formula:
// "sd[region]" is the standard deviation of a block of Options, and "sd[effects]" is the standard
// deviation of the effects. "Matern52.Length[age]" is the length scale of a feature.
func (m *Model) ParamName(name string) string {
	if of, index, ok := strings.Cut(name, ".Length["); ok {
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err == nil && i >= 0 && i < len(m.Names) {
			return of + ".Length[" + m.Names[i] + "]"
		}
	}
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

// ForGP returns the likelihood for a Gaussian process of X and Y. A nil likelihood means the
// default of Options. The error wraps ErrParam if the formula has groups, curves, products, offsets
// or weights, which Gaussian processes do not support, and ErrEmpty if it has no column.
func (m *Model) ForGP(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	for _, t := range m.design.Terms {
		if t.Kind != productTerm || len(t.Columns) > 1 {
			return nil, fmt.Errorf(
				"pgsvi: Gaussian processes do not support the term %s, because they find curves "+
					"and interactions by themselves; use only columns, as in y ~ a + b: %w",
				t.Text, pgsvi.ErrParam)
		}
	}
	if len(m.Names) == 0 {
		return nil, fmt.Errorf("pgsvi: the Gaussian process has no column; name at least one, "+
			"as in y ~ a: %w", pgsvi.ErrEmpty)
	}
	if m.Offset != nil || m.Weights != nil || m.Precision != nil {
		return nil, fmt.Errorf("pgsvi: Gaussian processes do not support offsets, exposures, "+
			"weights, precisions or trials; use a generalized linear model, or BetaBinomial for trials: %w",
			pgsvi.ErrParam)
	}
	return m.likelihood(lik)
}

// isCategory reports whether a column of the formula is read as a category.
func (m *Model) isCategory(name string) bool {
	return slices.ContainsFunc(m.enc.uses,
		func(c *column) bool { return c.Name == name && c.Kind == kindCategory })
}

// String describes how each column was read, and the model in words.
func (m *Model) String() string {
	var b strings.Builder
	b.WriteString(m.enc.String())
	fmt.Fprintf(&b, "\n%s\n%s\n", m.Formula, m.Formula.WordsOf(m.isCategory))
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
		b.WriteString("; weights are on the log odds of a higher level")
	case m.paired:
		b.WriteString("; weights are on the log odds of a success")
	case m.Trials != nil:
		b.WriteString(" (successes and failures apart); weights are on the log odds of a success")
	case len(m.Labels) == 2:
		fmt.Fprintf(&b, "; weights are on the log odds of %s", csvQuote(m.Labels[1]))
	}
	b.WriteByte('\n')
	return b.String()
}
