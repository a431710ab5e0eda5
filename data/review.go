package data

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/suggest"
)

// A Choice is one way to make a Decision.
type Choice struct {
	Column Column // the call that makes the decision
	When   string // when to choose it, such as "if they are codes"; may be ""
}

// A Decision is a question about one column of a table that only the owner of the data can answer.
type Decision struct {
	Column  string   // name of the column
	Problem string   // the facts that make a decision necessary
	Choices []Choice // the choices, the most likely first; nil if the table has to change
	formula bool     // a term of a formula names the column
}

// String returns the problem and the calls that solve it. If a term of a formula names the column,
// factor(x) in the formula replaces the call Category("x").
func (d Decision) String() string {
	s := fmt.Sprintf("column %s: %s", csvQuote(d.Column), d.Problem)
	for i, c := range d.Choices {
		call := strings.TrimPrefix(c.Column.String(), "data.")
		if d.formula && call == (&spec{Name: d.Column, Kind: kindCategory}).call() {
			call = formula.FactorName(d.Column) + " in the formula"
		}
		s += map[bool]string{true: "; use ", false: ", or "}[i == 0] + call
		if c.When != "" {
			s += " " + c.When
		}
	}
	return s
}

// A DecisionError lists every decision that a table needs, in the order of the columns.
// Table.Encoder and Table.Model return it. It wraps ErrParam. Use errors.As to find it.
type DecisionError struct {
	Table     string
	Decisions []Decision
}

// mostDecisions is the number of decisions in the text of an error.
const mostDecisions = 30

// Error returns the first 30 decisions and the number of further decisions.
func (e *DecisionError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pgsvi: %s: %s a decision", e.Table,
		map[bool]string{true: "a column needs", false: plural(len(e.Decisions), "column") +
			" need"}[len(e.Decisions) == 1])
	for i, d := range e.Decisions {
		if i == mostDecisions {
			fmt.Fprintf(&b, "\n  and %s", plural(len(e.Decisions)-i, "more column"))
			break
		}
		b.WriteString("\n  " + d.String())
	}
	return b.String()
}

// Unwrap returns ErrParam.
func (e *DecisionError) Unwrap() error { return pgsvi.ErrParam }

// Suggestions is the result of Table.Suggest.
type Suggestions struct {
	// Decisions holds the decisions to make, in the order of the columns.
	Decisions []Decision

	declared []Column
}

// Columns returns the columns for Table.Encoder: those already declared, and the first choice of
// each decision.
func (s *Suggestions) Columns() (all []Column) {
	chosen := s.chosen()
	decided := func(c Column) bool {
		return c.declared() != nil && slices.ContainsFunc(chosen, func(o Column) bool {
			return o.declared().sameUse(c.declared())
		})
	}
	for _, c := range s.declared {
		if c != nil && !decided(c) {
			all = append(all, c)
		}
	}
	return append(all, chosen...)
}

// chosen returns the first choice of each decision.
func (s *Suggestions) chosen() (all []Column) {
	for _, d := range s.Decisions {
		if len(d.Choices) > 0 {
			all = append(all, d.Choices[0].Column)
		}
	}
	return all
}

// String returns Go calls to paste into a program. Comments describe the problems and list the
// other choices. To use one of these, uncomment it and remove the call above it.
func (s *Suggestions) String() string {
	var b strings.Builder
	all := s.Columns()
	for _, c := range all[:len(all)-len(s.chosen())] {
		fmt.Fprintf(&b, "\t%s,\n", c)
	}
	for _, d := range s.Decisions {
		fmt.Fprintf(&b, "\t// %s: %s\n", csvQuote(d.Column), d.Problem)
		for i, c := range d.Choices {
			call := "data." + strings.TrimPrefix(c.Column.String(), "data.") + ","
			if i > 0 {
				call = "// or " + call
			}
			if c.When != "" {
				call += " // " + c.When
			}
			b.WriteString("\t" + call + "\n")
		}
	}
	return b.String()
}

// Suggest returns the calls for every column that needs a decision when outcome is the column to
// predict, with the most likely choice first. An empty outcome means that the table has no outcome.
// Read the calls before you use them.
func (t *Table) Suggest(outcome string, columns ...Column) *Suggestions {
	declared := append([]Column{}, columns...)
	if outcome != "" &&
		!slices.ContainsFunc(columns, func(c Column) bool {
			return c.declared() != nil &&
				c.declared().Name == outcome
		}) {
		declared = append(declared, Outcome(outcome))
	}
	specs, _, decisions := t.decide(nil, declared)
	for _, s := range specs { // show the label that is read as the positive label
		for i, c := range declared {
			if o := c.declared(); o != nil && s.Kind == kindOutcome && o.sameUse(s) {
				declared[i] = OutcomeColumn{s}
			}
		}
	}
	return &Suggestions{decisions, declared}
}

// decide returns one spec for each column of the table, the specs of further roles of columns, and
// the open decisions. The columns in use are features; a nil use means all columns without a role.
// Columns that are not used are skipped.
func (t *Table) decide(use []string, columns []Column) (
	specs, further []*spec, decisions []Decision) {
	declared, decisions := t.sort(use, columns)
	for j, p := range t.profiles {
		uses := declared[j]
		switch {
		case len(uses) > 0 && !isRole(uses[0].Kind):
		case use == nil && len(uses) == 0, slices.Contains(use, p.name):
			first := &spec{Name: p.name}
			if len(uses) > 0 {
				first.inherit(uses[0])
			}
			uses = slices.Insert(uses, 0, first)
		case len(uses) == 0:
			specs = append(specs, t.notInFormula(j))
			continue
		}
		for i, s := range uses {
			if i > 0 {
				s.inherit(uses[0])
			}
			if d := t.reviewUse(j, s); d != nil {
				decisions = append(decisions, *d)
			}
		}
		specs, further = append(specs, uses[0]), append(further, uses[1:]...)
	}
	return specs, further, decisions
}

// reviewUse completes a spec and returns the decision that it needs, or nil.
func (t *Table) reviewUse(j int, s *spec) *Decision {
	if t.isComputed(j) {
		s.why = whyComputed
		return nil
	}
	before := s.copy()
	why, d := t.review(j, s)
	if s.why = why; s.formula {
		s.why = whyFormula
	}
	if d != nil && before.Kind != "" && before.call() == s.call() && len(d.Choices) > 0 &&
		d.Choices[0].Column.declared() == s {
		d.Choices = d.Choices[1:]
	}
	return d
}

// notInFormula returns the spec of a column that the formula does not use.
func (t *Table) notInFormula(j int) *spec {
	s := &spec{Name: t.profiles[j].name, Kind: kindSkip, why: "not in the formula"}
	// Keep the reason for a column that . would leave out in any case.
	alone := &spec{Name: s.Name}
	if why, _ := t.review(j, alone); alone.Kind == kindSkip && why != "" {
		s.why = why
	}
	return s
}

// isRole reports whether k is a role that a feature may have in addition.
func isRole(k kind) bool {
	switch k {
	case kindGroup, kindExposure, kindOffset, kindWeight, kindPrecision, kindTrials, kindEvent:
		return true
	}
	return false
}

// sort returns copies of the declared specs of each column, with a feature or an outcome first. It
// also returns decisions about specs that contradict each other.
func (t *Table) sort(use []string, columns []Column) (
	declared map[int][]*spec, decisions []Decision) {
	declared = map[int][]*spec{}
	for _, name := range use {
		if _, ok := t.place[name]; !ok {
			decisions = append(decisions, t.noColumn(name, columns))
		}
	}
	// Only one column may have one of these kinds.
	alone := map[kind]string{kindOutcome: "", kindTrials: "", kindEvent: ""}
	for _, c := range columns {
		var s *spec
		if c != nil {
			s = c.declared()
		}
		if s == nil || s.Kind == "" {
			decisions = append(decisions,
				Decision{Problem: "a Column is nil or was not made by a function such as Number"})
			continue
		}
		if s.Kind == kindRaw {
			continue // encoder handles Raw
		}
		j, ok := t.place[s.Name]
		if !ok {
			decisions = append(decisions, t.noColumn(s.Name, columns))
			continue
		}
		if i := slices.IndexFunc(declared[j], s.sameUse); i >= 0 {
			decisions = append(decisions, Decision{Column: s.Name,
				Problem: fmt.Sprintf("it is declared twice, by %s and %s; keep one of them",
					declared[j][i].call(), s.call())})
			continue
		}
		if other := alone[s.Kind]; other != "" {
			what := map[kind]string{kindOutcome: "outcomes", kindTrials: "columns of trials",
				kindEvent: "columns of events"}[s.Kind]
			decisions = append(decisions, Decision{Column: s.Name,
				Problem: fmt.Sprintf("there are two %s, this column and %s; keep one of them", what,
					csvQuote(other))})
		}
		if _, ok := alone[s.Kind]; ok {
			alone[s.Kind] = s.Name
		}
		at := len(declared[j])
		if !isRole(s.Kind) {
			at = 0
		}
		declared[j] = slices.Insert(declared[j], at, s.copy())
	}
	return declared, decisions
}

// sameUse reports whether two specs declare the same role of a column, or no role.
func (s *spec) sameUse(o *spec) bool {
	return s.Name == o.Name && (s.Kind == o.Kind || !isRole(s.Kind) && !isRole(o.Kind))
}

// inherit copies rules from o, another use of the same column: how values are written and which
// rows are left out. It keeps the rules that s already has.
func (s *spec) inherit(o *spec) {
	if len(s.NA)+len(s.NotNA) == 0 {
		s.NA, s.NotNA = slices.Clone(o.NA), slices.Clone(o.NotNA)
	}
	if s.Decimal == "" {
		s.Decimal = o.Decimal
	}
	if s.Kind == kindGroup || s.Kind == kindCategory {
		s.Fold = s.Fold || o.Fold && !s.KeepCase
	}
	if s.Missing != missingError {
		return
	}
	levels := func(k kind) bool { return k == kindGroup || k == kindCategory }
	if o.Missing == missingDrop || o.Missing == missingLevel && levels(s.Kind) {
		s.Missing = o.Missing
	}
}

// noColumn returns the decision about a declared column that the table lacks. It suggests only
// columns that are not declared.
func (t *Table) noColumn(name string, columns []Column) Decision {
	free := slices.DeleteFunc(t.Columns(), func(other string) bool {
		return slices.ContainsFunc(columns, func(c Column) bool {
			return c != nil && c.declared() != nil && c.declared().Name == other
		})
	})
	return Decision{Column: name,
		Problem: "the table has no such column" + near(name, free, t.Columns())}
}

// near returns advice for an unknown name, to end a message with. It suggests the most similar of
// the free names, which are not in use, or lists all names.
func near(name string, free, names []string) string {
	if best := suggest.Nearest(name, free); best != "" {
		return fmt.Sprintf("; did you mean %s?", csvQuote(best))
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "; it has " + csvQuote(names[0])
	}
	return "; it has " + strings.Join(quoteAll(names, 12), ", ")
}

// nearAny is near for names that are all free.
func nearAny(name string, names []string) string { return near(name, names, names) }

const (
	mostLevels = 1000 // levels up to which a column is certainly a category
	surelyFew  = 10   // levels that are not identifiers, however few the rows
	rowsALevel = 4    // rows per level below which a column is probably an identifier
	fewIDs     = 50   // rows up to which different whole numbers may be quantities
	fewListed  = 5    // texts that a message lists
)

// review completes the spec of a column: its kind, if it has no kind yet, and the most likely
// choices. It returns why the column has this kind, and the decision that it needs, or nil.
func (t *Table) review(j int, s *spec) (why string, d *Decision) {
	r := &reviewer{p: t.profileOf(j, s), s: s, t: t}
	r.count()
	if s.Kind == "" {
		r.guess()
	} else {
		r.why = whyDeclared
	}
	if s.Kind != kindSkip {
		r.checkTexts()
		r.checkNines()
		r.checkLevels()
		r.checkOutcome()
		r.checkMissing()
		if r.s.Decimal != "" && r.s.Decimal != "." && r.s.Decimal != "," {
			r.found("Decimal has the sign " + csvQuote(r.s.Decimal) + "; set '.' or ','")
		}
	}
	if len(r.problems) == 0 {
		return r.why, nil
	}
	choices := append([]Choice{{Column: columnOfSpec(s), When: r.when}}, r.others...)
	if r.hopeless {
		choices = nil
	}
	return r.why, &Decision{Column: r.p.name, Problem: strings.Join(r.problems, "; "),
		Choices: choices}
}

// profileOf returns the profile of a column without the declared unit.
func (t *Table) profileOf(j int, s *spec) *profile {
	if s.Unit == "" {
		return t.profiles[j]
	}
	return t.profiles[j].without(s.Unit)
}

// columnOfSpec wraps a spec in the Column type of its kind.
func columnOfSpec(s *spec) Column {
	switch s.Kind {
	case kindNumber:
		return NumberColumn{s}
	case kindCategory:
		return CategoryColumn{s}
	case kindDate:
		return DateColumn{s}
	case kindGroup:
		return GroupColumn{s}
	case kindOutcome:
		return OutcomeColumn{s}
	case kindSkip:
		return SkipColumn{s}
	}
	return ScaleColumn{s}
}

// A reviewer finds out whether a column needs a decision.
type reviewer struct {
	t        *Table
	p        *profile
	s        *spec
	why      string
	problems []string
	when     string   // when to make the first choice
	others   []Choice // choices after the first
	hopeless bool

	values, missing int            // numbers of rows
	gaps            map[string]int // numbers of rows by text that means missing
	decimal         byte
	settled         bool
	numbers         int // number of rows
}

func (r *reviewer) found(problem string) { r.problems = append(r.problems, problem) }

// or adds a choice.
func (r *reviewer) or(when string, change func(*spec)) {
	s := r.s.copy()
	change(s)
	r.others = append(r.others, Choice{columnOfSpec(s), when})
}

// isGap reports whether a text means a missing value.
func (s *spec) isGap(text string) bool {
	return isMissing(text) && !slices.Contains(s.NotNA, text) || slices.Contains(s.NA, text)
}

// count counts the values and the missing values.
func (r *reviewer) count() {
	p, s := r.p, r.s
	r.gaps = maps.Clone(p.gaps)
	if r.gaps == nil {
		r.gaps = map[string]int{}
	}
	for _, text := range s.NotNA {
		delete(r.gaps, text)
	}
	r.decimal, r.settled = p.decimal(r.t.Format.Decimal)
	if s.Decimal != "" {
		r.decimal, r.settled = s.Decimal[0], true
	}
	r.numbers = p.numbersBy(r.decimal)
	for _, text := range s.NA {
		seen := p.texts[text]
		if seen == nil {
			seen = p.odd[text]
		}
		if seen == nil {
			seen = p.nines[text]
		}
		if _, twice := r.gaps[text]; seen != nil && !twice {
			r.gaps[text] = seen.n
			if r.isNumber(seen) {
				r.numbers -= seen.n
			}
		}
	}
	for _, n := range r.gaps {
		r.missing += n
	}
	r.values = p.rows - r.missing
}

func (r *reviewer) isNumber(s *seen) bool {
	if r.decimal == ',' {
		return s.class&asComma != 0 && s.class&limit == 0
	}
	return s.class&asPoint != 0 && s.class&limit == 0
}

// odd returns the values that want rejects, with their numbers of rows.
func (r *reviewer) odd(want func(string, *seen) bool) (texts map[string]int, rows int) {
	texts = map[string]int{}
	for _, from := range []map[string]*seen{r.p.texts, r.p.odd} {
		for text, s := range from {
			if _, gap := r.gaps[text]; !gap && !want(text, s) {
				texts[text] = s.n
			}
		}
	}
	for _, n := range texts {
		rows += n
	}
	return texts, rows
}

// guess finds the kind of a column that is not declared.
func (r *reviewer) guess() {
	p, s := r.p, r.s
	n := r.values
	_, dates := p.dates.alive()
	numbers := r.numbers
	mostly := func(k int) bool { return 10*k >= 8*n }
	switch {
	case n == 0 && p.nameless:
		s.Kind, r.why = kindSkip, "no name and no value"
	case p.nameless && numbers == n && p.counts():
		s.Kind, r.why = kindSkip, "no name, and row numbers"
	case n == 0:
		s.Kind, r.why = kindSkip, "no values"
		r.found(r.why)
	case !p.full && p.levels() == 1 && r.missing == 0:
		s.Kind, r.why = kindSkip, "all values are "+csvQuote(p.first)
		r.found(r.why)
	case !p.full && p.levels() == 1:
		s.Kind, r.why = kindCategory, "one value or missing"
	case dates > 0 && mostly(dates) && dates > numbers:
		s.Kind, r.why = kindDate, "dates"
	case p.zeroLed > 0 && numbers == n && 100*p.zeroLed >= p.wholes:
		s.Kind, r.why = kindCategory, "a code: numbers with leading zeros"
	case p.longs > 0 && p.wholes == n:
		s.Kind, r.why = kindCategory, "a code: numbers with more digits than a float64 has"
	case numbers+p.limits == n && numbers > 0 || mostly(numbers) || r.fewTexts():
		s.Kind, r.why = kindNumber, "numbers"
		r.checkTurned()
		if r.guessTimes() {
			break
		}
		r.guessCodes()
		if numbers == n && p.wholes == n && p.allDifferent() && n > fewIDs && p.dateDigits < n {
			s.Kind = kindSkip
			r.why = fmt.Sprintf("an identifier: %d whole numbers, all different", n)
			r.found(r.why)
			r.or("if it measures something", func(s *spec) { s.Kind = kindNumber })
		}
	default:
		s.Kind, r.why = kindCategory, "texts"
	}
	if s.Kind == kindCategory {
		r.guessIdentifier()
	}
}

// fewTexts reports whether at least half of the values are numbers and the others are one or two
// texts, which may mean missing.
func (r *reviewer) fewTexts() bool {
	if r.p.full || r.p.oddFull || 2*r.numbers < r.values {
		return false
	}
	texts, rows := r.odd(func(_ string, x *seen) bool { return r.isNumber(x) })
	return rows+r.numbers == r.values && len(texts) <= mostMarks &&
		r.p.levels()-len(texts) >= fewBesideMarks
}

const (
	mostMarks      = 2 // texts that may mean missing
	fewBesideMarks = 5 // different numbers that are probably quantities, not levels
)

// guessIdentifier distinguishes levels, identifiers and free text.
func (r *reviewer) guessIdentifier() {
	p, s := r.p, r.s
	levels := p.levels()
	if unit, rows := p.suffix(); r.hasUnit(levels, rows) {
		s.Kind, s.Unit, r.why = kindNumber, unit, "numbers with a unit, such as "+csvQuote(p.first)
		r.found(r.why)
		r.or("if these are levels", func(s *spec) { s.Kind, s.Unit = kindCategory, "" })
		r.p = r.t.profileOf(r.t.place[p.name], s)
		r.count()
		return
	}
	if !p.full && levels <= min(mostLevels, max(surelyFew, r.values/rowsALevel)) {
		return
	}
	some := plural(levels, "different text")
	if p.full {
		some = "more than " + some
	}
	if p.bytes > 40*p.values && strings.Contains(p.first, " ") {
		s.Kind, r.why = kindSkip, "free text: "+some
		r.found(r.why)
		return
	}
	r.why = fmt.Sprintf("an identifier: %s in %s", some, plural(r.values, "row"))
	r.found(r.why)
	if p.repeats() {
		s.Kind = kindGroup
		r.when = "for a random effect of each text"
		r.or("to leave it out", func(s *spec) { s.Kind = kindSkip })
	} else {
		s.Kind = kindSkip
		r.or("for a random effect of each text", func(s *spec) { s.Kind = kindGroup })
	}
	r.or("for a feature of each text", func(s *spec) { s.Kind = kindCategory })
}

// checkTexts checks the values that the kind of the column cannot read.
func (r *reviewer) checkTexts() {
	switch r.s.Kind {
	case kindDate:
		r.checkDates()
	case kindNumber, kindExposure, kindOffset, kindWeight, kindPrecision, kindTrials:
		r.checkNumbers()
	case kindOutcome:
		if r.isNumeric() {
			r.checkNumbers()
		}
	}
}

// isNumeric reports whether the values of an outcome are numbers.
func (r *reviewer) isNumeric() bool {
	return r.s.Positive == "" && !r.s.Classes && !r.s.Ordinal &&
		(r.s.Quantity || 10*r.numbers >= 8*r.values)
}

func (r *reviewer) checkNumbers() {
	p, s := r.p, r.s
	feature := s.Kind == kindNumber
	if r.values == 0 {
		r.found("no values")
		r.hopeless = !feature
		s.Kind = kindSkip
		return
	}
	if feature && r.why == whyDeclared && !p.full && p.levels() == 1 {
		r.found("all values are " + csvQuote(p.first))
		s.Kind = kindSkip
		return
	}
	if !r.settled {
		r.undecidedSign()
	}
	limits := p.limits > 0 && feature
	texts, rows := r.odd(func(_ string, x *seen) bool {
		return r.isNumber(x) || limits &&
			x.class&limit != 0
	})
	if limits && s.Limit == "" {
		text := ""
		for x, seen := range p.texts {
			if seen.class&limit != 0 && (text == "" || x < text) {
				text = x
			}
		}
		r.found(fmt.Sprintf("%s, and %d beyond a detection limit, such as %s",
			plural(r.numbers, "number"), p.limits, csvQuote(text)))
		s.Limit = "half"
		r.when = `for half of the limit, or BelowLimit("at") for the limit`
	}
	if s.Limit != "" && s.Limit != "half" && s.Limit != "at" {
		r.found(fmt.Sprintf("BelowLimit(%q) is not valid; set \"half\" or \"at\"", s.Limit))
		s.Limit = "half"
	}
	switch {
	case rows == r.values:
		r.noNumber(texts)
	case rows > 0:
		r.oddTexts(texts, rows, plural(r.numbers, "number"))
	}
	if len(p.units) > 1 && !s.AnyUnit && (feature || s.Kind == kindOutcome) {
		r.found("the values have different units, " + countsText(p.unitCounts(), fewListed))
		s.AnyUnit = true
		r.when = "if they mean the same"
		r.hopeless = r.hopeless || !feature
	}
}

// noNumber reports a declared number column that contains only texts.
func (r *reviewer) noNumber(texts map[string]int) {
	r.found("no value is a number: " + countsText(texts, fewListed))
	if r.s.Kind == kindNumber {
		*r.s = spec{Name: r.s.Name, Kind: kindCategory}
		return
	}
	r.hopeless = true
}

// undecidedSign adds a problem about the decimal sign.
func (r *reviewer) undecidedSign() {
	sign, other := ",", "."
	if r.t.Format.Separator != ';' { // a semicolon makes decimal commas likely
		sign, other = ".", ","
	}
	point, _ := parseNumber(stripUnit(r.p.doubtful), '.')
	comma, _ := parseNumber(stripUnit(r.p.doubtful), ',')
	value := map[string]float64{".": point, ",": comma}
	r.found(fmt.Sprintf("no value shows whether %s is %v or %v", csvQuote(r.p.doubtful),
		value[sign], value[other]))
	r.s.Decimal = sign
	r.when = fmt.Sprintf("if %v", value[sign])
	r.or(fmt.Sprintf("if %v", value[other]), func(s *spec) { s.Decimal = other })
	r.decimal, r.numbers = sign[0], r.p.numbersBy(sign[0])
}

func stripUnit(s string) string { s, _ = splitUnit(s); return s }

// oddTexts adds a problem about texts among numbers or dates.
func (r *reviewer) oddTexts(texts map[string]int, rows int, rest string) {
	s := r.s
	r.found(rest + ", but also " + countsText(texts, fewListed))
	feature := s.Kind == kindNumber || s.Kind == kindDate
	if (r.p.oddFull || len(texts) > mostOdd) && feature {
		s.Kind = kindSkip
		r.or("for a feature of each text", func(s *spec) {
			*s = spec{Name: s.Name,
				Kind: kindCategory}
		})
		return
	}
	s.NA = append(s.NA, slices.Sorted(maps.Keys(texts))...)
	r.missing += rows
	for text, n := range texts {
		r.gaps[text] = n
	}
	r.when = "if that means missing"
	if feature {
		r.or("if not", func(s *spec) { *s = spec{Name: s.Name, Kind: kindCategory} })
	} else if s.Kind == kindOutcome {
		r.or("if not", func(s *spec) { *s = spec{Name: s.Name, Kind: kindOutcome, Classes: true} })
	}
}

// countsText lists texts and their counts, the most frequent text first.
func countsText(counts map[string]int, most int) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var list []string
	for i, k := range keys {
		if i == most {
			list = append(list, fmt.Sprintf("%d more", len(keys)-most))
			break
		}
		list = append(list, fmt.Sprintf("%s (%d)", csvQuote(k), counts[k]))
	}
	return strings.Join(list, ", ")
}

// checkDates finds the layouts of dates.
func (r *reviewer) checkDates() {
	s := r.s
	shapes, dates := r.p.dates.alive()
	if r.values == 0 || dates == 0 && len(s.Layouts) == 0 {
		r.found("no value is a date: " + countsText(firstCounts(r.p), 3))
		s.Kind = kindSkip
		return
	}
	for _, p := range s.Parts {
		if p != Elapsed && p != Month && p != Weekday {
			r.found(fmt.Sprintf("As(%q) is not a part of a date; set data.Elapsed, data.Month or "+
				"data.Weekday", string(p)))
			r.hopeless = true
		}
	}
	for _, l := range s.Layouts {
		if time.Date(2023, 5, 31, 17, 8, 9, 0, time.UTC).Format(l) == l {
			r.found(fmt.Sprintf("Layout(%q) has no year, month or day; write layouts as in Go, "+
				"where \"2006-01-02\" reads 2023-05-31", l))
			r.hopeless = true
		}
	}
	s.found = relaxed(s.Layouts)
	declared := func(text string) bool { _, ok := parseDate(text, s.found); return ok }
	isDate := func(text string, x *seen) bool {
		return x.shape != nil && len(x.shape.layouts) > 0 ||
			declared(text)
	}
	if texts, rows := r.odd(isDate); rows > 0 {
		r.oddTexts(texts, rows, plural(dates, "date"))
		if s.Kind == kindSkip {
			return
		}
	}
	var asked []string
	for _, shape := range shapes {
		if declared(shape.example) {
			continue // or the layout of another shape reads this shape
		}
		layouts := readable(shape.layouts)
		if len(layouts) > 1 {
			r.found(fmt.Sprintf("every value, such as %s, can be day/month or month/day",
				csvQuote(shape.example)))
			asked = append(asked, layouts[1])
			s.Layouts = append(s.Layouts, layouts[0])
		}
		s.found = append(s.found, layouts[0])
	}
	if asked != nil {
		r.when = "if the day comes first"
		r.or("if the month comes first", func(s *spec) { s.Layouts = asked })
	}
}

// relaxed returns layouts that also read days and months of one digit.
func relaxed(layouts []string) (all []string) {
	for _, l := range layouts {
		if strings.Trim(l, "0123456789") != "" { // 2023111 would be ambiguous
			l = strings.NewReplacer("02", "2", "_2", "2", "01", "1").Replace(l)
		}
		all = append(all, l)
	}
	return all
}

func firstCounts(p *profile) map[string]int {
	counts := map[string]int{}
	for _, text := range p.examples(20) {
		counts[text] = p.texts[text].n
	}
	return counts
}

// readable returns one layout for each order of day and month, day first.
func readable(layouts []string) []string {
	out := slices.Clone(layouts)
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Compare(b2i(order(a) != "day, month"), b2i(order(b) != "day, month"))
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(out, func(l string) bool {
		o := order(l)
		twice := seen[o]
		seen[o] = true
		return twice
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// order returns the order of day and month in a layout.
func order(layout string) string {
	day, month := strings.IndexAny(strings.ReplaceAll(layout, "2006", ""),
		"2"), strings.IndexAny(layout, "1J")
	if day >= 0 && day < month && !strings.HasPrefix(layout, "2006") {
		return "day, month"
	}
	return "month, day"
}

// checkLevels finds levels that differ only in case.
func (r *reviewer) checkLevels() {
	s := r.s
	labels := s.Kind == kindOutcome && !r.isNumeric()
	if s.Kind != kindCategory && !labels || s.Fold || s.KeepCase {
		return
	}
	if v := r.p.variants(func(text string) bool { _, gap := r.gaps[text]; return gap }); v != nil {
		r.found(fmt.Sprintf("levels that differ only in case, %s",
			strings.Join(quoteAll(v, fewListed), " and ")))
		s.Fold = true
		if s.Kind == kindCategory {
			r.or("to keep them apart", func(s *spec) { s.Fold, s.KeepCase = false, true })
		}
	}
}

// checkOutcome checks the labels of an outcome.
func (r *reviewer) checkOutcome() {
	s := r.s
	if s.Kind != kindOutcome {
		return
	}
	labels := map[string]int{}
	for text, x := range r.p.texts {
		if _, gap := r.gaps[text]; !gap {
			if s.Fold {
				text = fold(text)
			}
			labels[text] += x.n
		}
	}
	switch {
	case r.values == 0:
		r.found("the outcome has no values")
		r.hopeless = true
	case r.p.full && !r.isNumeric():
		r.found(fmt.Sprintf("the outcome has more than %d different texts", len(labels)))
		r.hopeless = true
	case s.Ordinal:
		r.checkOrdered(labels)
	case len(labels) == 1 && r.isNumeric(): // the model decides whether it can learn from this
	case len(labels) == 1:
		r.checkOneLabel(labels)
	case s.Classes && r.measured(len(labels)):
		r.found(fmt.Sprintf("the outcome has %d different numbers in %d rows, so it looks like a "+
			"measurement; remove -likelihood softmax or Classes() to read it as a number",
			len(labels), r.values))
		r.hopeless = true
	case s.Positive != "":
		r.checkPositive(labels)
	case len(labels) == 2 && !s.Quantity && !s.Classes && !r.p.full:
		both := sortLevels(slices.Collect(maps.Keys(labels)))
		if _, positive, ok := opposites(both[0], both[1]); ok {
			s.Positive, s.auto = positive, true
			return
		}
		r.found(fmt.Sprintf("the outcome has two labels, %s, and either may be the positive label",
			countsText(labels, 2)))
		other := both[0]
		s.Positive = both[1]
		r.or("if "+csvQuote(other)+" is positive", func(s *spec) { s.Positive = other })
		if r.numbers == r.values {
			r.or("if they are numbers", func(s *spec) { s.Positive, s.Quantity = "", true })
		}
	case !r.isNumeric() && len(labels) > min(mostLevels, max(surelyFew, r.values/rowsALevel)) &&
		!s.Classes:
		r.found(fmt.Sprintf("the outcome has %d different texts in %d rows", len(labels), r.values))
		s.Classes = true
		r.when = "if these are classes"
	}
}

// measured reports whether an outcome declared as Classes looks like a measurement.
func (r *reviewer) measured(labels int) bool {
	return r.numbers == r.values && r.p.wholes < r.values &&
		labels > max(surelyFew, r.values/rowsALevel)
}

// checkOneLabel checks an outcome that is the same text in all rows. If the text belongs to a pair
// such as no and yes, the model can learn from it that the other label is rare.
func (r *reviewer) checkOneLabel(labels map[string]int) {
	s := r.s
	for label := range labels {
		if s.Fold {
			label = fold(label)
		}
		if negative, positive, ok := opposite(label); ok && (s.Positive == "" ||
			s.Positive == positive || s.Positive == negative) && !s.Classes {
			s.auto = s.Positive == ""
			s.Positive = cmp.Or(s.Positive, positive)
			return
		}
	}
	r.found("the outcome is always " + countsText(labels, 1) +
		", so there is nothing to learn; add rows with another outcome")
	r.hopeless = true
}

// checkOrdered checks an outcome with ordered levels.
func (r *reviewer) checkOrdered(labels map[string]int) {
	s := r.s
	listed := map[string]bool{}
	for _, l := range s.Ordered {
		if s.Fold {
			l = fold(l)
		}
		if listed[l] {
			r.found(fmt.Sprintf("Ordered lists the level %s twice; remove one of them",
				csvQuote(l)))
			r.hopeless = true
		}
		listed[l] = true
		if labels[l] == 0 {
			r.found(fmt.Sprintf("no row has the level %s of Ordered; remove it", csvQuote(l)))
			r.hopeless = true
		}
	}
	others := map[string]int{}
	for l, n := range labels {
		if !listed[l] {
			others[l] = n
		}
	}
	switch {
	case len(labels) < 2:
		r.found("the outcome is always " + countsText(labels, 1) + ", but Ordered needs two levels")
		r.hopeless = true
	case len(labels) > mostOrdered:
		r.found(fmt.Sprintf("the outcome has %d different values, but Ordered has at most %d "+
			"levels",
			len(labels), mostOrdered))
		r.hopeless = true
	case len(s.Ordered) > 0 && len(others) > 0:
		r.found("Ordered does not list " + countsText(others, fewListed))
		s.NA = append(s.NA, sortedKeys(others)...)
		r.when = "if these mean missing; otherwise list them in their order"
		for text, n := range others {
			r.gaps[text] = n
			r.missing += n
		}
	case len(s.Ordered) == 0 && r.p.wholes < r.values:
		r.found("the order of " + countsText(labels, fewListed) +
			" is unknown, because Ordered() lists no levels")
		s.Ordered = sortLevels(slices.Collect(maps.Keys(labels)))
		r.when = "after sorting the levels, the lowest first"
	}
}

// mostOrdered is the largest number of ordered levels. The limit exists because Ordinal learns a
// cut point for each level.
const mostOrdered = 50

// checkPositive checks labels for which Positive is set.
func (r *reviewer) checkPositive(labels map[string]int) {
	want := r.s.Positive
	if r.s.Fold {
		want = fold(want)
	}
	if len(labels) == 2 && labels[want] > 0 {
		return
	}
	r.found(fmt.Sprintf("the outcome is %s, but it needs two labels, one of them %s",
		countsText(labels, fewListed), csvQuote(r.s.Positive)))
	if labels[want] == 0 || len(labels) > fewListed {
		r.hopeless = true
		return
	}
	delete(labels, want)
	most := ""
	for text, n := range labels {
		if k := labels[most]; n > k || n == k && text < most {
			most = text
		}
	}
	delete(labels, most)
	for text, n := range labels {
		r.gaps[text] = n
		r.missing += n
	}
	r.s.NA = append(r.s.NA, sortedKeys(labels)...)
	r.when = "if that means missing"
}

// opposed holds pairs of a negative and a positive label, in lower case.
var opposed = [][2]string{{"0", "1"}, {"-1", "1"}, {"-1", "+1"}, {"no", "yes"}, {"n", "y"},
	{"false", "true"}, {"f", "t"}, {"off", "on"}, {"negative", "positive"}, {"neg", "pos"},
	{"failure", "success"}, {"absent", "present"}, {"nein", "ja"}, {"non", "oui"}, {"no", "sí"},
	{"no", "si"}, {"nee", "ja"}, {"nej", "ja"}, {"não", "sim"}}

// opposites returns the negative and the positive label if a and b are one of the opposed pairs.
func opposites(a, b string) (negative, positive string, ok bool) {
	for _, pair := range opposed {
		switch {
		case fold(a) == pair[0] && fold(b) == pair[1]:
			return a, b, true
		case fold(b) == pair[0] && fold(a) == pair[1]:
			return b, a, true
		}
	}
	return "", "", false
}

// opposite returns the pair that contains label, in the same case as label. ok is false if no pair
// contains it.
func opposite(label string) (negative, positive string, ok bool) {
	for _, pair := range opposed {
		for i, l := range pair {
			if fold(label) != l {
				continue
			}
			other := pair[1-i]
			if label == strings.ToUpper(label) {
				other = strings.ToUpper(other)
			} else if label[:1] == strings.ToUpper(label[:1]) {
				other = strings.ToUpper(other[:1]) + other[1:]
			}
			if i == 0 {
				return label, other, true
			}
			return other, label, true
		}
	}
	return "", "", false
}

// gapLine returns the line of the first missing value, or 0 if it is not known.
func (r *reviewer) gapLine() int {
	line := r.p.gapLine
	if r.p.missing() > 0 && (line == 0 || len(r.s.NotNA) > 0) {
		return 0
	}
	for text := range r.gaps {
		s := r.p.texts[text]
		if s == nil {
			s = r.p.odd[text]
		}
		if s == nil {
			s = r.p.nines[text]
		}
		if s != nil && (line == 0 || s.line < line) {
			line = s.line
		}
	}
	return line
}

// checkMissing adds a problem about missing values.
func (r *reviewer) checkMissing() {
	s := r.s
	if s.Kind == kindSkip || r.missing == 0 || s.Missing != missingError {
		return
	}
	gaps := maps.Clone(r.gaps)
	are := map[bool]string{true: "is", false: "are"}[r.missing == 1]
	text := fmt.Sprintf("%d of %d values %s missing", r.missing, r.p.rows, are)
	if _, empty := gaps[""]; len(gaps) > 1 || !empty {
		text += " (" + countsText(gaps, fewListed) + ")"
	}
	if line := r.gapLine(); line > 0 {
		text += fmt.Sprintf(", the first in line %d", line)
	}
	r.found(text)
	s.Missing = missingDrop
	switch s.Kind {
	case kindNumber, kindDate:
		s.Missing = missingImpute
	case kindCategory, kindGroup:
		s.Missing = missingLevel
	}
	for i := range r.others {
		switch o := r.others[i].Column.declared(); {
		case r.p.missing() == 0 && len(o.NA) < len(s.NA): // o keeps all of these texts as levels
		case o.Kind == s.Kind:
			o.Missing = s.Missing
		case o.Kind == kindCategory:
			o.Missing = missingLevel
		case o.Kind == kindNumber:
			o.Missing = missingImpute
		}
	}
	if s.Missing != missingDrop {
		r.or("to leave these rows out", func(s *spec) { s.Missing = missingDrop })
	}
}
