package arith

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error describes a mistake in a computed column.
type Error struct {
	// Offset is the byte offset of the mistake in the text.
	Offset int
	// Message describes the mistake and the remedy.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Parse reads the call at the beginning of text, such as I(x^2) or log(x), and returns the number
// of its bytes. The error is an *Error.
func Parse(text string) (e *Expr, n int, err error) {
	p := &parser{text: text, expr: &Expr{}}
	p.next()
	p.expr.root = p.operand()
	if p.err == nil && p.expr.root.op != 'f' {
		p.fail(0, "expected a function")
	}
	if p.err == nil && len(p.expr.Columns) == 0 {
		p.fail(0, "%v has no column; write the name of a column in it", p.expr)
	}
	if p.err != nil {
		return nil, 0, p.err
	}
	return p.expr, p.last, nil
}

// mostDeep is the largest depth of parentheses, functions and signs.
const mostDeep = 100

// A parser reads a text token by token. After the first error, the token is the end.
type parser struct {
	text  string
	token string // "" at the end
	start int    // start of the token
	end   int    // end of the token
	last  int    // end of the token before
	deep  int
	expr  *Expr
	err   error
}

func (p *parser) fail(at int, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{at, fmt.Sprintf(format, args...)}
	}
	p.token, p.start, p.end = "", len(p.text), len(p.text)
}

// next reads a token: a name, a number, a name between backquotes, or another character.
func (p *parser) next() {
	if p.err != nil {
		return
	}
	p.last = p.end
	rest := strings.TrimLeftFunc(p.text[p.end:], unicode.IsSpace)
	p.start = len(p.text) - len(rest)
	r, n := utf8.DecodeRuneInString(rest)
	switch {
	case rest == "":
		n = 0
	case r == '`':
		k := strings.IndexByte(rest[1:], '`')
		if k <= 0 {
			p.fail(p.start, "a name in backquotes is empty or not closed")
			return
		}
		n = k + 2
	case IsLetter(r):
		n = run(rest, func(r rune) bool { return IsLetter(r) || unicode.IsDigit(r) || r == '.' })
	case isDigit(r) || r == '.':
		n = number(rest)
	}
	p.token, p.end = rest[:n], p.start+n
	if strings.HasPrefix(rest, "**") { // as in R
		p.token, p.end = "^", p.start+2
	}
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// run returns the number of bytes at the beginning of s that belong to runes with a property.
func run(s string, has func(rune) bool) int {
	return len(s) - len(strings.TrimLeftFunc(s, has))
}

// number returns the number of bytes of the number at the beginning of s, such as 2, .5 or 1e-3.
func number(s string) int {
	n := run(s, func(r rune) bool { return isDigit(r) || r == '.' })
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		exponent := strings.TrimLeft(s[n+1:], "+-")
		if k := run(exponent, isDigit); k > 0 && len(s)-len(exponent)-n <= 2 {
			n = len(s) - len(exponent) + k
		}
	}
	return n
}

// accept skips the token if it is t.
func (p *parser) accept(t string) bool {
	if p.token != t || p.err != nil {
		return false
	}
	p.next()
	return true
}

// found describes the token for a message.
func (p *parser) found() string {
	if p.token == "" {
		return "unexpected end of the formula"
	}
	return "unexpected " + p.token
}

// binary reads operands that are separated by one of the signs.
func (p *parser) binary(signs string, operand func() *node) *node {
	n := operand()
	for p.token != "" && strings.Contains(signs, p.token) && p.err == nil {
		op := p.token[0]
		p.next()
		n = &node{op: op, left: n, right: operand()}
	}
	return n
}

func (p *parser) sum() *node {
	return p.binary("+-", func() *node { return p.binary("*/", p.signed) })
}

func (p *parser) signed() *node {
	if p.deep++; p.deep > mostDeep {
		p.fail(p.start, "parentheses and functions are nested more than %d deep; add the values "+
			"to the table as a column", mostDeep)
	}
	defer func() { p.deep-- }()
	switch {
	case p.accept("-"):
		return &node{op: '-', left: p.signed()}
	case p.accept("+"):
		return p.signed()
	}
	n := p.operand()
	if p.accept("^") {
		n = &node{op: '^', left: n, right: p.signed()}
	}
	return n
}

// operand reads a number, a column, a call or a sum in parentheses.
func (p *parser) operand() *node {
	at, token := p.start, p.token
	r, _ := utf8.DecodeRuneInString(token)
	switch {
	case p.accept("("):
		n := p.sum()
		p.close("(", at)
		return n
	case token == "":
	case isDigit(r) || r == '.':
		v, err := strconv.ParseFloat(token, 64)
		if err != nil || math.IsInf(v, 0) {
			p.fail(at, "%s is not a number", token)
		}
		p.next()
		return &node{op: 'n', value: v}
	case r == '`':
		p.next()
		return &node{op: 'c', column: p.expr.index(strings.Trim(token, "`"), at)}
	case IsLetter(r):
		p.next()
		if p.token != "(" {
			return &node{op: 'c', column: p.expr.index(token, at)}
		}
		if !IsFunction(token) {
			p.fail(at, "unknown function %s in arithmetic; use %s", token, Functions)
		}
		p.next()
		n := &node{op: 'f', name: token, function: functions[token], left: p.sum()}
		p.close(token+"(", at)
		return n
	}
	p.fail(at, "%s; expected a column, a number, a function or ( in arithmetic", p.found())
	return &node{op: 'n'}
}

// close reads the parenthesis that ends the part that began with open at a byte.
func (p *parser) close(open string, at int) {
	switch {
	case p.accept(")"):
	case p.token == ",":
		p.fail(p.start, "unexpected ,; functions in arithmetic have one argument, so write "+
			"log(x)/log(b) for another base")
	case strings.ContainsAny(p.token, "<>=!&|%") && p.token != "":
		p.fail(p.start, "unexpected %s; arithmetic has only + - * / ^ and functions, so add the "+
			"values to the table as a column", p.token)
	default:
		p.fail(p.start, "%s; expected + - * / ^ or ) to end %s…", p.found(), open)
	}
}
