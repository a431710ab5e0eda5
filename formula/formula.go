// Package formula reads and writes model formulas such as
//
//	churned ~ plan + s(age) + region*tenure + (1 | customer)
//
// A formula names the outcome of a regression and the terms of its linear predictor. Parse reads a
// Formula from text; a program can also build a Formula. String writes it as text, and Words
// describes it in a sentence. Package data fits formulas to tables; see data.Table.Model.
//
//	formula = outcome "~" term {"+" term}
//	outcome = column                                labels, classes, levels, counts or numbers
//	        | "log(" column ")" | "sqrt(" column ")"  a model of the logarithm or the square root
//	        | column "/" column                     successes / trials
//	        | "survival(" column "," column ")"     a duration, and 1 if it ended with the event or
//	                                                0 if it is right-censored (time to event)
//	term    = "1" | "0" | "-" "1"                   with an intercept (the default) or without
//	        | "." {"-" column}                      every column without a role, except these
//	        | operand                               its effect
//	        | operand {":" operand}                 only the interaction
//	        | operand {"*" operand}                 all effects and all interactions
//	        | operand {"/" operand}                 nested effects: a/b means a + a:b
//	        | "(" operand {"+" operand} ")" ["^" n] the effects, and interactions of up to n columns
//	        | "s(" numbers [", k=" n] [period] ")"  a smooth curve (spline, GAM)
//	        | "poly(" numbers "," degree ")"        a polynomial
//	        | "exposure(" numbers ")"               a rate: its logarithm is added to the predictor
//	        | "offset(" numbers ")"                 added to the predictor
//	        | "weight(" numbers ")"                 how many times each row counts
//	        | "precision(" numbers ")"              divides the variance of Gaussian noise
//	        | "(" effect {"+" effect} ("|" | "||") column ({"/" column} | {":" column}) ")"
//	                                                random effects of each level of a group
//	effect  = "1" | "0" | "-" "1"                   with an intercept of each level or without
//	        | operand | product | poly              a slope of each level, written as above
//	operand = numbers | "factor(" column ")"        factor reads numbers as categories
//	numbers = column
//	        | "I(" arithmetic ")"                   a computed column, such as I(x^2) and I(x*z)
//	        | function "(" arithmetic ")"           log, log2, log10, log1p, exp, sqrt or abs
//	period  = ", periodic" | ", period=" number     joins the ends of the curve
//
// # Computed columns
//
// A computed column is a function of the numbers in each row, as in R. A term may use it like any
// column of numbers. The outcome and groups are columns of the table.
//
//	I(x^2), I(x*z), I(x/100)     arithmetic with + - * / ^ ( ) and numbers; I keeps it apart from
//	                             the terms of a formula, where x*z means x + z + x:z
//	I((x - 5)^2), I(-x^2)        as in R, ^ comes before the sign: -x^2 is -(x^2)
//	log(x), log(x + 1), exp(-x)  functions need no I, and may occur in arithmetic: I(x/sqrt(z))
//	f*log(x), (x + I(x^2) | g)   in interactions and as slopes of groups
//	s(log(x)), offset(log(t))    in smooth curves and polynomials, and in offset, exposure, weight
//	                             and precision
//
// A computed column is an ordinary column with this text as its name: it is standardized, and a
// prediction computes it from the columns of the new row. It is missing where one of its columns is
// missing. A value that is not finite, such as log(0) or x/0, is an error that names the row and
// the term. Arithmetic needs numbers, so categories, dates and TRUE/FALSE are errors.
//
// # Random effects
//
// A term in parentheses has random effects (mixed models, multilevel models). Each level of a group
// has effects of its own, which are draws from a normal distribution with mean 0. Its standard
// deviations and correlations are learned. The right column uses the words of lme4 (Bates et al.
// 2015, Journal of Statistical Software 67(1), table 2).
//
//	(1 | g)               random intercept of each level of g
//	(x | g), (1 + x | g)  correlated random intercept and slope of x
//	(0 + x | g)           random slope of x without an intercept; also (x - 1 | g), (-1 + x | g)
//	(x || g)              uncorrelated random intercept and slope: (1 | g) + (0 + x | g)
//	(1 | a:b)             random intercept of each combination of a and b that has rows
//	(1 | a/b)             nested groups, b within a: (1 | a) + (1 | a:b)
//	(x | a/b)             (x | a) + (x | a:b)
//	(1 | a/b:c)           (1 | a) + (1 | a:b:c)
//	(1 | a) + (1 | b)     crossed random effects
//	(f | g)               for a category f, an intercept and a difference between each level of f
//	                      and the reference level, all correlated
//	(0 + f | g)           an effect of each level of f, all correlated
//	(f || g)              (1 | g) + (0 + f | g): as in lme4, || separates terms and does not
//	                      separate the levels of a category
//	(x*z | g)             (1 + x + z + x:z | g)
//	(log(x) | g), (x + I(x^2) | g), (poly(x, 2) | g), (x:f | g)
//	                      slopes of computed columns, of polynomials, of an interaction
//
// Differences from lme4: (1 | a:b) and (1 | b:a) are the same term, and a term that occurs twice
// counts once. Two different terms may not share an effect: (1 + x | g) + (1 | g) is an error. A
// slope needs a column that varies within the groups, so g cannot be part of a slope of g. The name
// of a numeric group needs no factor(…). Groups have no smooth curves s(x); write (poly(x, 3) | g).
//
// # Comparison with R
//
//	R                        here
//	x, a:b, a*b, a/b         the same
//	(a + b + c)^2            the same; the sum holds columns, not products
//	y ~ 0 + x, y ~ x - 1     the same
//	I(x^2), log(x), poly(x, 2), factor(x), offset(log(t))
//	                         the same
//	x^2, which R reads as x  an error; write I(x^2)
//	I(x > 3), cut(x), x %in% f, log(x, 2)
//	                         errors; add the values to the table as a column
//	scale(x)                 an error; write x, because fits standardize numbers
//	a + b - b, a:a           errors; leave b out, and the second a
//	two offsets              an error; write offset(I(o1 + o2))
//	ns(x), s(x)              s(x)
//	cbind(s, f) ~ x          s / n ~ x, where n is s + f
//	Surv(t, e) ~ x           survival(t, e) ~ x
//	weights = w              + precision(w) for lm and lmer, where the noise has the variance σ²/w;
//	                         + weight(w) for glm and glmer, where a row counts w times
//
// A formula means the same as in R. Main effects and interactions span the functions that
// model.matrix spans: x:f without f gives each level of f its own slope and the same value at x =
// 0, and 0 + x is a line through the origin. A term that repeats an earlier term adds nothing. A
// column may have several roles, such as site in dose*site + (1 | site). Unlike in R, . leaves out
// columns that have a role, and a model of log(y) or sqrt(y) predicts y itself.
//
// The name of a column consists of letters, digits, _ and ., and does not begin with a digit. Any
// other name must be in backquotes: `Letzte Anfrage`.
package formula

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/internal/arith"
)

// A Formula is a model: an outcome and the terms of its linear predictor. If a field has its zero
// value, the model does not have this part. Methods do not change a Formula.
type Formula struct {
	// Outcome is the column to predict.
	Outcome string
	// Transform is the function of the outcome that is modeled: "log", "sqrt" or "" for the outcome
	// itself.
	Transform string
	// Trials is the column of the numbers of trials if Outcome is a number of successes.
	Trials string
	// Event is the column that is 1 if Outcome, a duration, ended with the event, and 0 if the
	// duration is right-censored, because the event comes later.
	Event string
	// Exposure is a column of positive numbers whose logarithms are added to the linear predictor.
	Exposure string
	// Offset is a column that is added to the linear predictor.
	Offset string
	// Weight is a column of numbers that are how many times each row counts.
	Weight string
	// Precision is a column of positive numbers that divide the variance of Gaussian noise. They are
	// relative to their mean, so their unit does not matter. They are the weights of lm and lmer.
	Precision string
	// NoIntercept leaves the intercept out.
	NoIntercept bool
	// Terms holds the other terms of the linear predictor.
	Terms []Term

	source string         // what Parse read
	at     map[string]int // offset in source of the first use of each column
}

// A Term is a Col, Interact, Cross, Smooth, Poly, Group or Rest.
//
// The name of a column in a term may be the text of a computed column, such as "I(x^2)", or, except
// in Smooth and Poly, a factor such as "factor(x)". The text must be as String prints it.
type Term interface {
	// String returns the term as it is written in a formula.
	String() string
	// Words returns the term as part of a sentence.
	Words() string
	// Columns returns the columns that the term names. Computed columns and factors are columns.
	Columns() []string

	check() error
}

// Col is the effect of one column. Col("factor(x)") is the effect of x as a category, also in
// products.
type Col string

// Interact is the interaction of two or more columns, without their other effects: a:b.
type Interact []string

// Cross includes the effects of two or more columns and all their interactions: a*b.
type Cross []string

// Smooth is a smooth curve of a column of numbers, s(x). The curve is a penalized cubic spline
// whose smoothness is learned. The knots are quantiles of the distinct values, so that outliers and
// long tails do not pull them away from the data. A periodic curve has equidistant knots.
type Smooth struct {
	Column string
	// K is the number of basis functions, at least 4; 0 means 22.
	K int
	// Periodic joins the ends of the curve. Period is its period in units of the column. 0 means
	// the range of the data, plus 1 if they are whole numbers: 12 for months from 1 to 12.
	Periodic bool
	Period   float64
}

// Poly is a polynomial of a column of numbers: poly(x, 2).
type Poly struct {
	Column string
	// Degree is from 1 to 9.
	Degree int
}

// Group has random effects of each level of a group: (1 + x | g).
type Group struct {
	// By is the group. Several groups are nested, the outermost first: (1 | a/b) is an effect of
	// each a and of each b within a.
	By []string
	// Joint makes the combinations of the levels of By the levels of one group: (1 | a:b).
	Joint bool
	// Slopes holds the terms whose effects differ between levels, which are of type Col, Interact,
	// Cross or Poly.
	Slopes []Term
	// NoIntercept leaves out the intercept of each level.
	NoIntercept bool
	// Uncorrelated makes the intercept and the slopes of a level independent: (1 + x || g). The
	// columns of one slope, such as the levels of a category, stay correlated.
	Uncorrelated bool
}

// Rest is every column without a role in the formula: . or . - x. The outcome, its trials and its
// event, exposures, offsets, weights, precisions and groups have a role.
type Rest struct {
	// Except holds the columns to leave out.
	Except []string
}

// quote returns a column of a term as it is written in a formula. The outcome, groups and the
// columns that . leaves out are always columns of the table, so arith.Quote writes them.
func quote(s string) string {
	if of, ok := FactorOf(s); ok {
		return FactorName(of)
	}
	if _, ok := arith.Named(s); ok {
		return s
	}
	return arith.Quote(s)
}

// join joins the columns of terms with a separator.
func join(columns []string, sep string) string {
	return strings.Join(each(columns, quote), sep)
}

// joinNames joins columns of the table with a separator.
func joinNames(columns []string, sep string) string {
	return strings.Join(each(columns, arith.Quote), sep)
}

// each returns the texts of columns.
func each(columns []string, text func(string) string) []string {
	q := make([]string, len(columns))
	for i, c := range columns {
		q[i] = text(c)
	}
	return q
}

func (c Col) String() string      { return quote(string(c)) }
func (i Interact) String() string { return join(i, ":") }
func (c Cross) String() string    { return join(c, "*") }

func (p Poly) String() string {
	return "poly(" + quote(p.Column) + ", " + strconv.Itoa(p.Degree) + ")"
}

func (s Smooth) String() string {
	t := "s(" + quote(s.Column)
	if s.K != 0 {
		t += ", k=" + strconv.Itoa(s.K)
	}
	switch {
	case s.Periodic && s.Period != 0:
		t += ", period=" + strconv.FormatFloat(s.Period, 'f', -1, 64)
	case s.Periodic:
		t += ", periodic"
	}
	return t + ")"
}

func (g Group) String() string {
	t := "(1"
	if g.NoIntercept {
		t = "(0"
	}
	for _, s := range g.Slopes {
		t += " + " + s.String()
	}
	bar := " | "
	if g.Uncorrelated {
		bar = " || "
	}
	return t + bar + joinNames(g.By, g.sign()) + ")"
}

// sign returns the sign between the columns of the group.
func (g Group) sign() string {
	if g.Joint {
		return ":"
	}
	return "/"
}

func (r Rest) String() string {
	if len(r.Except) == 0 {
		return "."
	}
	return ". - " + joinNames(r.Except, " - ")
}

// Words implements Term.
func (c Col) Words() string { return c.String() }

// Words implements Term.
func (i Interact) Words() string { return "the interaction of " + and(i) }

// Words implements Term.
func (c Cross) Words() string { return and(c) + " with their interactions" }

// Words implements Term.
func (s Smooth) Words() string {
	w := "a smooth curve of " + quote(s.Column)
	if s.Periodic {
		w = "a smooth periodic curve of " + quote(s.Column)
	}
	if s.Periodic && s.Period != 0 {
		w += fmt.Sprintf(" with period %v", s.Period)
	}
	return w
}

// Words implements Term.
func (p Poly) Words() string {
	return "a polynomial of degree " + strconv.Itoa(p.Degree) + " in " + quote(p.Column)
}

// Words implements Term.
func (g Group) Words() string { return g.words(func(string) bool { return false }) }

// words returns Words, where category reports whether a column is a category.
func (g Group) words(category func(column string) bool) string {
	w := list(g.effects(category))
	if g.Joint && len(g.By) > 1 {
		return w + " for each combination of " + list(each(g.By, arith.Quote))
	}
	in := slices.Clone(g.By)
	slices.Reverse(in)
	w += " for each " + joinNames(in, " within each ")
	for i := range len(g.By) - 1 {
		outer := slices.Clone(g.By[:i+1])
		slices.Reverse(outer)
		w += " and each " + joinNames(outer, " within each ")
	}
	return w
}

// effects describes the effects of a level: its intercept, the slopes of numbers, and the effects
// of categories.
func (g Group) effects(category func(column string) bool) (all []string) {
	var slopes, levels []string
	for _, s := range g.Slopes {
		c, plain := s.(Col)
		of, factor := FactorOf(string(c))
		switch {
		case plain && factor:
			levels = append(levels, arith.Quote(of))
		case plain && category(string(c)):
			levels = append(levels, c.String())
		default:
			slopes = append(slopes, s.String())
		}
	}
	if !g.NoIntercept {
		all = append(all, "an intercept")
	}
	an, a := "an effect of each ", "a slope of "
	if g.Uncorrelated && !g.NoIntercept {
		an, a = "an independent effect of each ", "an independent slope of "
	}
	if len(slopes) > 0 {
		all = append(all, a+list(slopes))
	}
	for _, of := range levels {
		all = append(all, an+of)
	}
	return all
}

// Words implements Term.
func (r Rest) Words() string {
	if len(r.Except) == 0 {
		return "every other column"
	}
	return "every other column except " + list(each(r.Except, arith.Quote))
}

// and returns the columns as a list in a sentence.
func and(columns []string) string {
	return list(each(columns, quote))
}

// list returns texts as a list in a sentence.
func list(texts []string) string {
	if n := len(texts); n > 1 {
		return strings.Join(texts[:n-1], ", ") + " and " + texts[n-1]
	}
	return strings.Join(texts, "")
}

// FactorOf returns the column of a factor, which is x for factor(x). ok is false if name is not a
// factor.
func FactorOf(name string) (column string, ok bool) {
	column, ok = strings.CutPrefix(name, factorName+"(")
	if ok {
		column, ok = strings.CutSuffix(column, ")")
	}
	return column, ok && column != ""
}

// FactorName returns the column of the levels of column: factor(x) for x.
func FactorName(column string) string { return factorName + "(" + arith.Quote(column) + ")" }

// factorName is the name of the function that reads a column as a category.
const factorName = "factor"

// sources returns the columns of the table that a column of a formula is made from: x for x and for
// factor(x), and x and z for I(x*z).
func sources(column string) []string {
	if of, ok := FactorOf(column); ok {
		return []string{of}
	}
	if e, ok := arith.Named(column); ok {
		return e.Columns
	}
	return []string{column}
}

// Columns implements Term.
func (c Col) Columns() []string { return []string{string(c)} }

// Columns implements Term.
func (i Interact) Columns() []string { return i }

// Columns implements Term.
func (c Cross) Columns() []string { return c }

// Columns implements Term.
func (s Smooth) Columns() []string { return []string{s.Column} }

// Columns implements Term.
func (p Poly) Columns() []string { return []string{p.Column} }

// Columns implements Term.
func (g Group) Columns() []string { return append(g.features(), g.By...) }

// features returns the columns of the slopes.
func (g Group) features() (columns []string) {
	for _, s := range g.Slopes {
		columns = append(columns, s.Columns()...)
	}
	return columns
}

// Columns implements Term.
func (r Rest) Columns() []string { return r.Except }

// parts returns the columns that are not terms, with the functions that name them.
func (f *Formula) parts() []struct{ function, column string } {
	return []struct{ function, column string }{
		{"exposure", f.Exposure}, {"offset", f.Offset}, {"weight", f.Weight},
		{"precision", f.Precision},
	}
}

// String returns the formula as text that Parse reads.
func (f *Formula) String() string {
	var terms []string
	if f.NoIntercept {
		terms = append(terms, "0")
	}
	for _, t := range f.Terms {
		terms = append(terms, t.String())
	}
	if len(terms) == 0 {
		terms = append(terms, "1")
	}
	for _, p := range f.parts() {
		if p.column != "" {
			terms = append(terms, p.function+"("+quote(p.column)+")")
		}
	}
	y := arith.Quote(f.Outcome)
	if f.Event != "" {
		y = survival + "(" + y + ", " + arith.Quote(f.Event) + ")"
	}
	if f.Trials != "" {
		y += " / " + arith.Quote(f.Trials)
	}
	if f.Transform != "" {
		y = f.Transform + "(" + y + ")"
	}
	return y + " ~ " + strings.Join(terms, " + ")
}

// Words returns the formula as a sentence. A column that varies within a group has a slope, unless
// it is a factor.
func (f *Formula) Words() string {
	return f.WordsOf(func(string) bool { return false })
}

// WordsOf is like Words, but it describes the columns for which category returns true as
// categories: (0 + machine | worker) is an effect of each machine for each worker, and not a slope
// of machine.
func (f *Formula) WordsOf(category func(column string) bool) string {
	var words []string
	var plain []string
	for _, t := range f.Terms {
		switch t := t.(type) {
		case Col:
			plain = append(plain, string(t))
		case Group:
			words = append(words, t.words(category))
		default:
			words = append(words, t.Words())
		}
	}
	if len(plain) > 0 {
		words = slices.Insert(words, 0, and(plain))
	}
	switch {
	case len(words) == 0 && f.NoIntercept:
		words = append(words, "nothing")
	case len(words) == 0:
		words = append(words, "an intercept alone")
	case f.NoIntercept:
		words = append(words, "no intercept")
	}
	w := arith.Quote(f.Outcome)
	switch f.Transform {
	case "log":
		w = "the logarithm of " + w
	case "sqrt":
		w = "the square root of " + w
	}
	if f.Trials != "" {
		w += " of " + arith.Quote(f.Trials) + " trials"
	}
	if f.Event != "" {
		w += " until " + arith.Quote(f.Event)
	}
	w += " by " + strings.Join(words, "; ")
	if f.Exposure != "" {
		w += "; in proportion to " + quote(f.Exposure)
	}
	if f.Offset != "" {
		w += "; " + quote(f.Offset) + " is added to the linear predictor"
	}
	if f.Weight != "" {
		w += "; each row counts " + quote(f.Weight) + " times"
	}
	if f.Precision != "" {
		w += "; the variance of the noise is in inverse proportion to " + quote(f.Precision)
	}
	return w
}

// parameters returns the columns of the functions of parts without repetitions.
func (f *Formula) parameters() (all []string) {
	for _, p := range f.parts() {
		if p.column != "" && !slices.Contains(all, p.column) {
			all = append(all, p.column)
		}
	}
	return all
}

// roles returns the columns that . leaves out.
func (f *Formula) roles() []string {
	all := []string{f.Outcome, f.Trials, f.Event}
	for _, c := range f.parameters() {
		all = append(append(all, c), sources(c)...)
	}
	for _, t := range f.Terms {
		if g, ok := t.(Group); ok {
			all = append(all, g.By...)
		}
	}
	return all
}

// Columns returns all columns that the formula names, without repetitions, the outcome first. The
// columns that a computed column is made from are at the end.
func (f *Formula) Columns() []string {
	all := f.names()
	for _, c := range f.features() {
		if e, ok := arith.Named(c); ok {
			all = append(all, e.Columns...)
		}
	}
	return once(all)
}

// names is like Columns, without the columns that only a computed column is made from.
func (f *Formula) names() []string {
	all := []string{f.Outcome, f.Trials, f.Event, f.Exposure, f.Offset, f.Weight,
		f.Precision}
	for _, t := range f.Terms {
		all = append(all, t.Columns()...)
	}
	return once(all)
}

// features returns the columns of terms and of the functions of parts, which may be computed.
func (f *Formula) features() []string {
	all := f.parameters()
	for _, t := range f.Terms {
		switch t := t.(type) {
		case Rest:
		case Group:
			all = append(all, t.features()...)
		default:
			all = append(all, t.Columns()...)
		}
	}
	return all
}

// once returns the columns that are not empty, without repetitions.
func once(columns []string) (all []string) {
	for _, c := range columns {
		if c != "" && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}
