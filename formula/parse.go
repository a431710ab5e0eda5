package formula

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/arith"
)

// Parse reads a formula; see the documentation of the package. If text is not a formula or fails
// Check(nil), Parse returns errors of type *Error that mark the mistakes with carets.
func Parse(text string) (*Formula, error) {
	for i, r := range text {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' {
			return nil, &Error{Source: strconv.Quote(text), Offset: -1, Message: fmt.Sprintf(
				"byte %d is not text; a formula is one line of UTF-8", i)}
		}
	}
	p := &parser{f: &Formula{source: strings.ReplaceAll(text, "\t", " "), at: map[string]int{}}}
	p.next()
	p.formula()
	if p.err == nil {
		if err := p.f.Check(nil); err != nil {
			return nil, err
		}
		return p.f, nil
	}
	return nil, p.err
}

// A parser reads a formula token by token. After the first error, the token is the end.
type parser struct {
	f     *Formula
	end   int    // end of the token
	start int    // start of the token
	token string // "" at the end of the formula
	err   error
	// constant is the 0 or 1 that occurred as a term, or "".
	constant string
}

func (p *parser) fail(format string, args ...any) {
	p.failAt(p.start, format, args...)
}

func (p *parser) failAt(at int, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{Source: p.f.source, Offset: at, Message: fmt.Sprintf(format, args...)}
	}
	p.token, p.end = "", len(p.f.source)
}

// next reads a token: a name, a number, a name between backquotes, || or another character.
func (p *parser) next() {
	s := p.f.source
	if p.err != nil {
		return
	}
	at := p.end
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		if !unicode.IsSpace(r) {
			break
		}
		at += n
	}
	p.start, p.end, p.token = at, len(s), ""
	if at == len(s) {
		return
	}
	r, n := utf8.DecodeRuneInString(s[at:])
	end := at + n
	switch {
	case r == '`':
		k := strings.IndexByte(s[end:], '`')
		if k <= 0 {
			p.fail("a name in backquotes is empty or not closed")
			return
		}
		end += k + 1
	case arith.IsLetter(r) || unicode.IsDigit(r):
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			if !arith.IsLetter(r) && !unicode.IsDigit(r) && r != '.' {
				break
			}
			end += n
		}
	case strings.HasPrefix(s[at:], "||"):
		end = at + 2
	}
	p.token, p.end = s[at:end], end
}

// found describes the token for a message.
func (p *parser) found() string {
	if p.token == "" {
		return "unexpected end of the formula"
	}
	return "unexpected " + p.token
}

// accept skips the token if it is t.
func (p *parser) accept(t string) bool {
	if p.token != t || p.err != nil {
		return false
	}
	p.next()
	return true
}

// want skips the token, which must be t. Otherwise the hint ends the message.
func (p *parser) want(t, hint string) {
	if !p.accept(t) {
		p.fail("%s; expected %s%s", p.found(), t, hint)
	}
}

// named reports whether the token is the name of a column.
func (p *parser) named() bool {
	r, _ := utf8.DecodeRuneInString(p.token)
	return p.token != "" && (r == '`' || arith.IsLetter(r))
}

// column reads the name of a column. where describes its place in a message.
func (p *parser) column(where string) string {
	if !p.named() {
		hint := ""
		if p.token != "" && p.token != ")" {
			hint = "; put names that are not words in backquotes, as in `Letzte Anfrage`"
		}
		p.fail("%s; expected a column%s%s", p.found(), where, hint)
		return ""
	}
	c := strings.Trim(p.token, "`")
	p.use(c, p.start)
	p.next()
	return c
}

// number reads a whole number. where describes its purpose in a message.
func (p *parser) number(where string) int {
	n, err := strconv.Atoi(p.token)
	if err != nil {
		p.fail("%s; expected a whole number%s", p.found(), where)
		return 0
	}
	p.next()
	return n
}

func (p *parser) formula() {
	if p.token == "~" {
		p.fail("the outcome is missing; write y ~ …")
		return
	}
	p.outcome()
	hint := " between the outcome and the terms, as in y ~ x"
	if p.token != "" && p.token != "=" {
		hint += "; put names that are not words in backquotes, as in `y-1`"
	}
	p.want("~", hint)
	if p.token == "-" {
		p.next()
		p.one()
	} else {
		p.term()
	}
	for p.token != "" && p.err == nil {
		switch {
		case p.accept("+"):
			p.term()
		case p.token == "-":
			p.minus()
		case p.token == "~":
			p.fail("the formula has a second ~; remove it")
		case p.token == "^":
			p.fail("formulas do not support powers of terms; use I(x^2) or poly(x, 2) for the " +
				"square of a column, or a*b for an interaction")
		case p.token == "|" || p.token == "||":
			p.fail("unexpected %s; write a group in parentheses, as in (1 | group)", p.token)
		case p.token == "/":
			p.fail("unexpected /; use I(a/b) for a quotient, or a/b, which means a + a:b, for " +
				"the effects of b within each a")
		case p.token == "%":
			p.fail("unexpected %%; write a:b in place of a %%in%% b, or add a comparison to the " +
				"table as a column")
		case p.token == ",":
			p.fail("unexpected ,; write random effects as a term of the formula, as in + (1 | group)")
		case p.token == "(":
			p.fail("unexpected (, because products and sums of terms may contain only columns, "+
				"factor(…), I(…) and %s; add other functions to the table as columns",
				arith.Functions)
		case p.token == "*" || p.token == ":":
			p.fail("unexpected %s; interactions need columns, as in a:b or a*b*c, or in "+
				"x*f + I(x^2)*f for a parabola of x", p.token)
		case p.named():
			p.fail("unexpected %s; expected + before the next term, or backquotes around a name "+
				"with spaces, as in `Letzte Anfrage`", p.token)
		default:
			p.fail("%s; expected + before the next term", p.found())
		}
	}
}

// survival is the name of the function of a duration and its event.
const survival = "survival"

// outcome reads the part before ~.
func (p *parser) outcome() {
	f := p.f
	if p.calls() {
		p.outcomeOf()
		return
	}
	f.Outcome = p.column(" to predict, as in y ~ x")
	if p.accept("/") {
		f.Trials = p.column(" of trials, as in successes / trials ~ x")
	}
}

// outcomeOf reads survival(time, event), log(column) or sqrt(column).
func (p *parser) outcomeOf() {
	f, name, at := p.f, p.token, p.start
	p.next()
	switch name {
	case survival:
	case "log", "sqrt":
		p.next()
		f.Transform, f.Outcome = name, p.column(" in "+name+"(…)")
		p.want(")", " to end "+name+"(…")
		return
	case "Surv", "surv", "Survival":
		p.failAt(at, "write durations as survival(time, event), where event is 1 if it was "+
			"observed and 0 if the time is censored")
	case "cbind":
		p.failAt(at, "write successes / trials, as in cured / n ~ dose, where n counts "+
			"successes and failures; add it to the table if it is missing")
	default:
		p.fail("the outcome must be a column, log(column), sqrt(column) or survival(time, event); "+
			"add its %s to the table as a column", name)
	}
	p.next()
	f.Outcome = p.column(" of the times, as in survival(time, event) ~ x")
	p.want(",", " and the column that is 1 if the event was observed and 0 if the time is "+
		"censored; if all events were observed, write "+quote(f.Outcome)+" ~ …")
	f.Event = p.column(" of the events, as in survival(time, event) ~ x")
	p.want(")", " to end survival(…")
}

// one reads the 1 of - 1.
func (p *parser) one() {
	if p.token != "1" {
		p.fail("%s; expected 1, because - leaves out the intercept (- 1) or columns of . (. - x)",
			p.found())
		return
	}
	p.f.NoIntercept = true
	p.next()
}

// minus reads - 1 or, after ., - column.
func (p *parser) minus() {
	p.next()
	n := len(p.f.Terms)
	if p.named() && n > 0 {
		if r, ok := p.f.Terms[n-1].(Rest); ok {
			at := p.start
			c := p.column("")
			if slices.Contains(r.Except, c) {
				p.failAt(at, "%s is left out twice; remove one of them", quote(c))
			}
			p.f.Terms[n-1] = Rest{append(r.Except, c)}
			return
		}
	}
	p.one()
}

func (p *parser) term() {
	f := p.f
	add := func(t Term) {
		if p.err == nil {
			f.Terms = append(f.Terms, t)
		}
	}
	switch {
	case p.accept("."):
		add(Rest{})
	case p.token == "0" || p.token == "1":
		if p.constant != "" && p.constant != p.token {
			p.fail("0 leaves out the intercept, but 1 keeps it; remove one of them")
		}
		p.constant = p.token
		f.NoIntercept = p.token == "0"
		p.next()
	case p.token == "(" && !p.barred():
		for _, t := range p.power() {
			add(t)
		}
	case p.token == "(":
		for _, g := range p.group() {
			add(g)
		}
	case p.calls() && !p.isOperand():
		p.function(add)
	default:
		t := p.product(", 1, 0, . or a group such as (1 | g)")
		if add(t); p.token == "/" {
			p.nest(t, add)
		}
	}
}

// nest reads the rest of a/b, which means a + a:b, where t is a.
func (p *parser) nest(t Term, add func(Term)) {
	first, ok := t.(Col)
	if !ok {
		p.fail("unexpected / after %v; write the effects one by one, as in a + a:b", t)
	}
	columns := Interact{string(first)}
	for p.accept("/") {
		columns = append(slices.Clip(columns), p.operand(" after /"))
		add(columns)
	}
}

// barred reports whether the parentheses that the token opens contain a bar, or begin with a
// constant, as groups do.
func (p *parser) barred() bool {
	if inner := strings.TrimSpace(p.f.source[p.end:]); inner != "" &&
		strings.ContainsAny(inner[:1], "01-") {
		return true
	}
	deep, quoted := 0, false
	for _, r := range p.f.source[p.start:] {
		switch {
		case r == '`':
			quoted = !quoted
		case quoted:
		case r == '(':
			deep++
		case r == ')':
			deep--
		}
		if r == '|' && !quoted || deep == 0 {
			return r == '|'
		}
	}
	return true // group reports the missing parenthesis
}

// power reads a sum in parentheses and the power n after it, which adds the interactions of up to n
// columns of the sum.
func (p *parser) power() (terms []Term) {
	p.next()
	var columns []string
	for more := true; more; more = p.accept("+") {
		if c := p.operand(" in a sum"); !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
	}
	p.want(")", " to end a sum of columns, as in (a + b)^2; write products outside of "+
		"parentheses, and groups as in (1 | group)")
	most, at := 1, p.start
	if p.accept("^") {
		most = p.number(" for the power of a sum")
	}
	if p.err == nil && (most < 1 || len(columns) > maxCross && most > 1) {
		p.failAt(at, "a sum to the power of %d must have at most %d columns and a power of at "+
			"least 1", most, maxCross)
	}
	for _, c := range columns {
		terms = append(terms, Col(c))
	}
	if most == 1 || p.err != nil {
		return terms
	}
	for _, t := range expand(Cross(columns))[len(columns):] {
		if len(t.Columns()) <= most {
			terms = append(terms, t)
		}
	}
	return terms
}

// product reads a column, a:b or a*b. where describes its place in a message.
func (p *parser) product(where string) Term {
	at := p.start
	column := p.operand(where)
	columns := []string{column}
	sign := p.token
	for (sign == "*" || sign == ":") && p.accept(sign) {
		if (p.token == "poly" || p.token == "s") && p.calls() {
			p.fail("%s(…) cannot be part of an interaction; write the powers of x in place of a polynomial "+
				"or curve, as in f*x + f*I(x^2)", p.token)
		}
		columns = append(columns, p.operand(" after "+sign))
		if other := p.token; other != sign && (other == "*" || other == ":") {
			p.fail("unexpected %s after %s; write the effects one by one, as in a + b + c + "+
				"a:b",
				other, sign)
		}
	}
	switch {
	case len(columns) == 1:
		return Col(column)
	case sign == ":":
		return Interact(columns)
	case len(columns) > maxCross:
		p.failAt(at, "%d columns with all interactions have %d effects; use at most %d columns",
			len(columns),
			1<<len(columns)-1, maxCross)
	}
	return Cross(columns)
}

// isOperand reports whether the token is the name of a function whose call is a column, as in
// factor(x) and log(x).
func (p *parser) isOperand() bool { return p.token == factorName || arith.IsFunction(p.token) }

// operand reads a column, factor(column) or a computed column. where describes its place in a
// message.
func (p *parser) operand(where string) string {
	if p.token != factorName || !p.calls() {
		return p.numbers(where)
	}
	at := p.start
	p.next()
	p.next()
	column := factorName + "(" + p.column(" in factor(…)") + ")"
	p.use(column, at)
	p.want(")", " to end factor(…")
	return column
}

// use records the first use of a column.
func (p *parser) use(column string, at int) {
	if _, ok := p.f.at[column]; !ok {
		p.f.at[column] = at
	}
}

// numbers reads a column or a computed column. where describes its place in a message.
func (p *parser) numbers(where string) string {
	if !p.calls() || !arith.IsFunction(p.token) {
		return p.column(where)
	}
	e, n, err := arith.Parse(p.f.source[p.start:])
	if wrong, ok := err.(*arith.Error); ok {
		p.failAt(p.start+wrong.Offset, "%s", wrong.Message)
		return ""
	}
	p.use(e.String(), p.start)
	for i, c := range e.Columns {
		p.use(c, p.start+e.At[i])
	}
	p.end = p.start + n
	p.next()
	return e.String()
}

// calls reports whether the token is the name of a function.
func (p *parser) calls() bool {
	rest := strings.TrimLeftFunc(p.f.source[p.end:], unicode.IsSpace)
	return p.named() && p.token[0] != '`' && strings.HasPrefix(rest, "(")
}

// instead returns advice about a function that formulas do not have.
func instead(name string) string {
	switch name {
	case "ln":
		return "use log(x) for the natural logarithm"
	case "scale":
		return "write the column alone, because fits standardize numbers"
	case "C", "as.factor", "relevel":
		return "columns of texts are categories; use factor(x) for columns of numbers"
	case "as.numeric":
		return "columns of numbers are numbers; write the column alone"
	case "bs", "ns", "te", "ti", "t2":
		return "use s(x) for a smooth curve"
	case "Error":
		return "write (1 | group) for a stratum of aov"
	case "us", "diag", "ar1", "cs", "ou", "toep":
		return "write (1 + x | group) for correlated effects, or (1 + x || group) for independent " +
			"effects; there are no other structures"
	}
	return "use " + functions + ", or add other functions to the table as columns"
}

// functions lists the functions of formulas.
const functions = "s, poly, factor, exposure, offset, weight, precision, I, " + arith.Functions

// function reads a function and its arguments.
func (p *parser) function(add func(Term)) {
	f, name, at := p.f, p.token, p.start
	p.next()
	p.next()
	argument := func() string { return p.numbers(" in " + name + "(…)") }
	part := func(of *string) {
		if *of != "" {
			p.failAt(at, "%s occurs twice; remove one of them", name)
		}
		*of = argument()
	}
	switch name {
	case "s":
		add(p.smooth(argument()))
	case "poly":
		add(p.poly())
	case "exposure":
		part(&f.Exposure)
	case "offset":
		part(&f.Offset)
	case "weight":
		part(&f.Weight)
	case "precision":
		part(&f.Precision)
	default:
		p.failAt(at, "unknown function %s; %s", name, instead(name))
	}
	p.want(")", " to end "+name+"(…")
}

// poly reads the arguments of poly(x, 2).
func (p *parser) poly() Poly {
	c := p.numbers(" in poly(…)")
	p.want(",", " and the degree, as in poly(x, 2)")
	return Poly{c, p.number(" for the degree")}
}

// smooth reads the arguments after the column in s(x, k=20, periodic) or s(x, period=24).
func (p *parser) smooth(column string) Smooth {
	s := Smooth{Column: column}
	for p.accept(",") {
		switch {
		case p.accept("k"):
			p.want("=", " as in s(x, k=20)")
			if s.K = p.number(" of basis functions"); s.K == 0 {
				p.fail("k must be from %d to %d", minBasis, maxBasis)
			}
		case p.accept("periodic"):
			s.Periodic = true
		case p.accept("period"):
			p.want("=", " as in s(x, period=24)")
			v, err := strconv.ParseFloat(p.token, 64)
			if err != nil || !(v > 0) || math.IsInf(v, 0) {
				p.fail("%s; expected a number above 0 for the period", p.found())
				break
			}
			s.Periodic, s.Period = true, v
			p.next()
		case p.token == "bs":
			p.fail("unexpected bs; write (1 | g) for random effects of g, because curves have no other " +
				"basis")
		case p.token == "by":
			p.fail("unexpected by; write powers for a curve that differs between levels, as in f*x + " +
				"f*I(x^2)")
		default:
			p.fail("%s; expected k=…, periodic or period=…, as in s(x, k=20, period=24)", p.found())
		}
	}
	return s
}

// group reads a group such as (1 + x | g).
func (p *parser) group() []Group {
	p.next()
	var g Group
	p.effects(&g)
	switch {
	case p.accept("||"):
		g.Uncorrelated = true
	case !p.accept("|"):
		p.fail("%s; expected + or |%s", p.found(), inGroup)
	}
	parts := [][]string{{p.grouping()}} // nested, the outermost first
	for {
		last := len(parts) - 1
		if p.accept(":") {
			parts[last] = append(parts[last], p.grouping())
		} else if p.accept("/") {
			parts = append(parts, []string{p.grouping()})
		} else {
			break
		}
	}
	switch p.token {
	case "+":
		p.fail("unexpected + in a group; write each group in a term of its own, as in (1 | a) + " +
			"(1 | b)")
	case "*":
		p.fail("unexpected * in a group; write (1 | a) + (1 | b) + (1 | a:b) for the effects of " +
			"a, b and their combinations")
	}
	hint := " after the group"
	if p.named() {
		hint += ", or backquotes around a name with spaces, as in (1 | `sales region`)"
	}
	p.want(")", hint)
	return nested(g, parts)
}

// nested returns the terms of the effects g for nested groups. Each group is a combination of columns.
// A mixture such as a/b:c has a term for each group: a and a:b:c.
func nested(g Group, parts [][]string) (all []Group) {
	mixed := false
	for i, part := range parts {
		g.By = append(g.By, part...)
		mixed = mixed || len(part) > 1 && len(parts) > 1
		if i == 0 {
			g.Joint = len(part) > 1
		}
	}
	if !mixed {
		return []Group{g}
	}
	n := 0
	for _, part := range parts {
		n += len(part)
		of := g
		of.By, of.Joint = slices.Clone(g.By[:n]), n > 1
		all = append(all, of)
	}
	return all
}

// inGroup ends a message about the effects of a group.
const inGroup = " of a group, as in (1 + x | group)"

// effects reads the part of a group before the bars.
func (p *parser) effects(g *Group) {
	constant := ""
	for more := true; more; more = p.accept("+") || p.token == "-" {
		minus := p.accept("-")
		switch {
		case minus && p.token != "1":
			p.fail("%s; expected 1, because - leaves out the intercept of a group", p.found())
		case p.token == "0" || p.token == "1":
			own := p.token
			if minus {
				own = "0"
			}
			if constant != "" && constant != own {
				p.fail("0 leaves out the intercept of a group, but 1 keeps it; remove one of them")
			}
			constant, g.NoIntercept = own, own == "0"
			p.next()
		default:
			g.Slopes = append(g.Slopes, p.slope())
		}
	}
}

// slope reads a term whose effect differs between the levels of a group.
func (p *parser) slope() (t Term) {
	name, at := p.token, p.start
	if !p.calls() || p.isOperand() {
		return p.product(inGroup)
	}
	p.next()
	p.next()
	switch name {
	case "poly":
		t = p.poly()
	case "s":
		p.failAt(at, "smooth curves cannot differ between the levels of a group; use a "+
			"polynomial, as in (poly(x, 3) | group)")
	default:
		p.failAt(at, "unknown function %s in a group; use poly, factor, I, %s, or add other "+
			"functions to the table as columns", name, arith.Functions)
	}
	p.want(")", " to end "+name+"(…")
	return t
}

// grouping reads a column of a group.
func (p *parser) grouping() string {
	if p.calls() {
		switch p.token {
		case factorName, "as.factor", "gr":
			p.fail("groups are always categories; write (1 | group) in place of (1 | %s(group))", p.token)
		case "interaction":
			p.fail("write (1 | a:b) for the combinations of levels of a and b")
		default:
			p.fail("a group must be a column; add %s(…) to the table as a column", p.token)
		}
	}
	return p.column(" for the group")
}
