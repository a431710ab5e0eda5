package formula

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parse reads a formula, as the documentation of the package says. It returns an *Error, with a
// caret at the mistake, if the text is no formula or fails Check(nil).
func Parse(text string) (*Formula, error) {
	for i, r := range text {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' {
			return nil, &Error{Source: strconv.Quote(text), Offset: -1, Message: fmt.Sprintf(
				"byte %d is no text: a formula is one line of UTF-8", i)}
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

// parser reads a formula token by token. After the first error the token is the end.
type parser struct {
	f     *Formula
	end   int    // of the token
	start int    // of the token
	token string // "" at the end
	err   error
	// constant is the 0 or 1 among the terms, if there was one.
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

func letter(r rune) bool { return unicode.IsLetter(r) || r == '_' }

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
			p.fail("a name between backquotes does not end, or is empty")
			return
		}
		end += k + 1
	case letter(r) || unicode.IsDigit(r):
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			if !letter(r) && !unicode.IsDigit(r) && r != '.' {
				break
			}
			end += n
		}
	case strings.HasPrefix(s[at:], "||"):
		end = at + 2
	}
	p.token, p.end = s[at:end], end
}

// found returns the token as it stands in a message.
func (p *parser) found() string {
	if p.token == "" {
		return "the formula ends"
	}
	return "found " + p.token
}

// accept skips the token if it is t.
func (p *parser) accept(t string) bool {
	if p.token != t || p.err != nil {
		return false
	}
	p.next()
	return true
}

// want skips the token, which must be t.
func (p *parser) want(t, hint string) {
	if !p.accept(t) {
		p.fail("%s, want %s%s", p.found(), t, hint)
	}
}

// named says that the token is a column.
func (p *parser) named() bool {
	r, _ := utf8.DecodeRuneInString(p.token)
	return p.token != "" && (r == '`' || letter(r))
}

// column reads a column.
func (p *parser) column(where string) string {
	if !p.named() {
		hint := ""
		if p.token != "" && p.token != ")" {
			hint = "; a name that is no word stands between backquotes: `Letzte Anfrage`"
		}
		p.fail("%s, want a column%s%s", p.found(), where, hint)
		return ""
	}
	c := strings.Trim(p.token, "`")
	if _, ok := p.f.at[c]; !ok {
		p.f.at[c] = p.start
	}
	p.next()
	return c
}

// number reads a whole number.
func (p *parser) number(where string) int {
	n, err := strconv.Atoi(p.token)
	if err != nil {
		p.fail("%s, want a whole number%s", p.found(), where)
		return 0
	}
	p.next()
	return n
}

func (p *parser) formula() {
	if p.token == "~" {
		p.fail("the outcome is missing: write y ~ …")
		return
	}
	p.outcome()
	hint := " between the outcome and the terms, as in y ~ x"
	if p.token != "" && p.token != "=" {
		hint += "; a name that is no word stands between backquotes: `y-1`"
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
			p.fail("a formula has one ~")
		case p.token == "^":
			p.fail("there are no powers: poly(x, 2) is a polynomial, a*b is an interaction")
		case p.token == "|" || p.token == "||":
			p.fail("found %s: a group stands between brackets, as in (1 | group)", p.token)
		case p.token == "/":
			p.fail("found /, which stands in groups only, as in (1 | a/b); a*b has all effects " +
				"of a and b")
		case p.token == "(":
			p.fail("found (: a product has columns and factor(…) alone; put another function of " +
				"a column into a column of the table")
		case p.token == "*" || p.token == ":":
			p.fail("found %s: interactions are of columns, as in a:b or a*b*c", p.token)
		case p.named():
			p.fail("found %s, want + before the next term; a column with a space in its name "+
				"stands between backquotes: `Letzte Anfrage`", p.token)
		default:
			p.fail("%s, want + before the next term", p.found())
		}
	}
}

// survival is the function of a duration and its event.
const survival = "survival"

// outcome reads what is before ~.
func (p *parser) outcome() {
	f := p.f
	if p.calls() {
		p.outcomeOf()
		return
	}
	f.Outcome = p.column(" to predict, as in y ~ x")
	if p.accept("/") {
		f.Trials = p.column(" of the numbers of trials, as in successes / trials ~ x")
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
		p.failAt(at, "a duration is survival(time, event), where event is 1 if it was observed "+
			"and 0 if the time is censored")
	case "cbind":
		p.failAt(at, "successes in trials are successes / trials, as in cured / treated ~ dose")
	default:
		p.fail("the outcome is a column, log(column), sqrt(column) or survival(time, event); put "+
			"its %s into a column of the table", name)
	}
	p.next()
	f.Outcome = p.column(" of the times, as in survival(time, event) ~ x")
	p.want(",", " and the column that is 1 where the event was observed and 0 where the time is "+
		"censored; if all were observed, write "+quote(f.Outcome)+" ~ …")
	f.Event = p.column(" of the events, as in survival(time, event) ~ x")
	p.want(")", " to end survival(…")
}

// one reads the 1 of -1.
func (p *parser) one() {
	if p.token != "1" {
		p.fail("%s, want 1: - leaves out the intercept (- 1), or columns of . (. - x)", p.found())
		return
	}
	p.f.NoIntercept = true
	p.next()
}

// minus reads - 1 or, behind ., - column.
func (p *parser) minus() {
	p.next()
	n := len(p.f.Terms)
	if p.named() && n > 0 {
		if r, ok := p.f.Terms[n-1].(Rest); ok {
			at := p.start
			c := p.column("")
			if slices.Contains(r.Except, c) {
				p.failAt(at, "%s is left out twice", quote(c))
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
			p.fail("0 leaves out the intercept and 1 has one; say one of them")
		}
		p.constant = p.token
		f.NoIntercept = p.token == "0"
		p.next()
	case p.token == "(":
		add(p.group())
	case p.calls() && p.token != factorName:
		p.function(add)
	default:
		at := p.start
		column := p.operand(", 1, 0, . or a group such as (1 | g)")
		columns := []string{column}
		sign := p.token
		for (sign == "*" || sign == ":") && p.accept(sign) {
			columns = append(columns, p.operand(" after "+sign))
			if other := p.token; other != sign && (other == "*" || other == ":") {
				p.fail("found %s after %s: write the effects one by one, as in a + b + c + a:b",
					other, sign)
			}
		}
		switch {
		case len(columns) == 1:
			add(Col(column))
		case sign == ":":
			add(Interact(columns))
		case len(columns) > maxCross:
			p.failAt(at, "%d columns with all interactions are %d effects; at most %d columns",
				len(columns),
				1<<len(columns)-1, maxCross)
		default:
			add(Cross(columns))
		}
	}
}

// operand reads a column or factor(column).
func (p *parser) operand(where string) string {
	if p.token != factorName || !p.calls() {
		return p.column(where)
	}
	at := p.start
	p.next()
	p.next()
	column := factorName + "(" + p.column(" in factor(…)") + ")"
	if _, ok := p.f.at[column]; !ok {
		p.f.at[column] = at
	}
	p.want(")", " to end factor(…")
	return column
}

// calls says that the token is a function.
func (p *parser) calls() bool {
	rest := strings.TrimLeftFunc(p.f.source[p.end:], unicode.IsSpace)
	return p.named() && p.token[0] != '`' && strings.HasPrefix(rest, "(")
}

// instead says what to write instead of a function of another program.
func instead(name string) string {
	switch name {
	case "I":
		return "poly(x, 2) is a polynomial, and other powers are columns to put into the table"
	case "C", "as.factor":
		return "columns of texts are categories, and factor(x) makes one of numbers"
	case "bs", "ns", "te", "ti":
		return "s(x) is a smooth curve"
	}
	return "there are " + functions + "; others are columns to put into the table"
}

// functions are those that a formula knows.
const functions = "s, poly, log, factor, exposure, offset and weight"

// function reads a function with its arguments.
func (p *parser) function(add func(Term)) {
	f, name, at := p.f, p.token, p.start
	p.next()
	p.next()
	argument := func() string { return p.column(" in " + name + "(…)") }
	part := func(of *string) {
		if *of != "" {
			p.failAt(at, "%s stands twice", name)
		}
		*of = argument()
	}
	switch name {
	case "s":
		add(p.smooth(argument()))
	case "poly":
		c := argument()
		p.want(",", " and the degree, as in poly(x, 2)")
		add(Poly{c, p.number(", the degree")})
	case "log":
		add(Log{argument()})
	case "exposure":
		part(&f.Exposure)
	case "offset":
		part(&f.Offset)
	case "weight":
		part(&f.Weight)
	default:
		p.failAt(at, "there is no function %s; %s", name, instead(name))
	}
	p.want(")", " to end "+name+"(…")
}

// smooth reads what follows the column of s(x, k=20, periodic) or s(x, period=24).
func (p *parser) smooth(column string) Smooth {
	s := Smooth{Column: column}
	for p.accept(",") {
		switch {
		case p.accept("k"):
			p.want("=", " as in s(x, k=20)")
			if s.K = p.number(", the number of basis functions"); s.K == 0 {
				p.fail("k must be from %d to %d", minBasis, maxBasis)
			}
		case p.accept("periodic"):
			s.Periodic = true
		case p.accept("period"):
			p.want("=", " as in s(x, period=24)")
			v, err := strconv.ParseFloat(p.token, 64)
			if err != nil || !(v > 0) || math.IsInf(v, 0) {
				p.fail("%s, want a number above 0, the period", p.found())
				break
			}
			s.Periodic, s.Period = true, v
			p.next()
		default:
			p.fail("%s, want k=…, periodic or period=…, as in s(x, k=20, period=24)", p.found())
		}
	}
	return s
}

// group reads (1 + x | g).
func (p *parser) group() Group {
	p.next()
	var g Group
	const hint = " of a group, as in (1 + x | group)"
	switch {
	case p.accept("0"):
		g.NoIntercept = true
	case p.accept("1"):
	default:
		g.Slopes = append(g.Slopes, p.column(hint))
	}
	for p.accept("+") {
		g.Slopes = append(g.Slopes, p.column(hint))
	}
	switch {
	case p.accept("||"):
		g.Uncorrelated = true
	case !p.accept("|"):
		p.fail("%s, want + or |%s", p.found(), hint)
	}
	for more := true; more; more = p.accept("/") {
		g.By = append(g.By, p.column(", the group"))
	}
	p.want(")", " after the group")
	return g
}
