// Package arith reads, prints and evaluates the computed columns of formulas, such as I(x^2) and
// log(x + 1). A computed column is a function of the numbers in a row. R has the same grammar and
// the same precedence of operators:
//
//	call    = ("I" | function) "(" sum ")"
//	sum     = product {("+" | "-") product}
//	product = signed {("*" | "/") signed}
//	signed  = {"+" | "-"} power
//	power   = operand [("^" | "**") signed]         x^y^z is x^(y^z), and -x^2 is -(x^2)
//	operand = number | column | call | "(" sum ")"
//
// Package formula calls Parse for the calls in a formula, and uses the canonical text of the
// result, String, as the name of the computed column. Package data finds the function of such a
// name by Named, and evaluates it for each row.
package arith

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Identity is the name of the function that returns its argument. In a formula it marks arithmetic.
const Identity = "I"

// functions holds the functions by name.
var functions = map[string]func(float64) float64{
	Identity: func(x float64) float64 { return x },
	"abs":    math.Abs, "exp": math.Exp, "log": math.Log, "log10": math.Log10, "log1p": math.Log1p,
	"log2": math.Log2, "sqrt": math.Sqrt,
}

// Functions lists the names of the functions, except Identity, for messages.
const Functions = "log, log2, log10, log1p, exp, sqrt, abs"

// IsFunction reports whether a call of name is a computed column.
func IsFunction(name string) bool { return functions[name] != nil }

// An Expr is a computed column. It does not change and may be used concurrently.
type Expr struct {
	// Columns holds the names of the columns that the Expr is computed from, in the order of their
	// first use, and At holds the byte offsets of these uses in the text that was parsed.
	Columns []string
	At      []int

	root *node
}

// A node is a number, a column, a function or an operator.
type node struct {
	op          byte   // 'n' number, 'c' column, 'f' function, '-' with a nil right: the sign
	name        string // name of a function
	function    func(float64) float64
	value       float64
	column      int // index in Columns
	left, right *node
}

// Value returns the value for the numbers in the columns, in the order of Columns. The value is not
// finite if the function is not defined there, or if it overflows.
func (e *Expr) Value(x []float64) float64 { return e.root.eval(x) }

func (n *node) eval(x []float64) float64 {
	switch n.op {
	case 'n':
		return n.value
	case 'c':
		return x[n.column]
	case 'f':
		return n.function(n.left.eval(x))
	}
	left := n.left.eval(x)
	if n.right == nil {
		return -left
	}
	right := n.right.eval(x)
	switch n.op {
	case '+':
		return left + right
	case '-':
		return left - right
	case '*':
		return left * right
	case '/':
		return left / right
	}
	return math.Pow(left, right)
}

// Describe returns the value for the numbers x as a message, such as "log(x) is -Inf where x is 0".
func (e *Expr) Describe(x []float64) string {
	var where []string
	for i, c := range e.Columns {
		where = append(where, fmt.Sprintf("%s is %v", Quote(c), x[i]))
	}
	value := "undefined"
	if v := e.Value(x); !math.IsNaN(v) {
		value = fmt.Sprint(v)
	}
	return fmt.Sprintf("%v is %s where %s", e, value, strings.Join(where, " and "))
}

// The precedences of operators.
const (
	sumLevel = iota
	productLevel
	signLevel
	powerLevel
	operandLevel
)

func (n *node) level() int {
	switch n.op {
	case '+':
		return sumLevel
	case '-':
		if n.right == nil {
			return signLevel
		}
		return sumLevel
	case '*', '/':
		return productLevel
	case '^':
		return powerLevel
	}
	return operandLevel
}

// String returns the canonical text, which Parse reads as the same Expr. Like R, it writes spaces
// around + - * and no spaces around / ^.
func (e *Expr) String() string {
	var b strings.Builder
	e.print(&b, e.root, sumLevel)
	return b.String()
}

// print writes n, in parentheses if its precedence is below least.
func (e *Expr) print(b *strings.Builder, n *node, least int) {
	if n.level() < least {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	switch n.op {
	case 'n':
		b.WriteString(strconv.FormatFloat(n.value, 'g', -1, 64))
		return
	case 'c':
		b.WriteString(Quote(e.Columns[n.column]))
		return
	case 'f':
		b.WriteString(n.name + "(")
		e.print(b, n.left, sumLevel)
		b.WriteByte(')')
		return
	}
	level := n.level()
	switch {
	case n.right == nil:
		b.WriteByte('-')
		e.print(b, n.left, signLevel)
	case n.op == '^':
		e.print(b, n.left, operandLevel)
		b.WriteByte('^')
		e.print(b, n.right, signLevel)
	default:
		space := " "
		if n.op == '/' {
			space = ""
		}
		e.print(b, n.left, level)
		b.WriteString(space + string(n.op) + space)
		e.print(b, n.right, level+1)
	}
}

// Named returns the Expr of a computed column with a name. ok is false if the name is not the
// canonical text of a computed column.
func Named(name string) (e *Expr, ok bool) {
	open := strings.IndexByte(name, '(')
	if open < 0 || !IsFunction(name[:open]) {
		return nil, false
	}
	e, n, err := Parse(name)
	if err != nil || n != len(name) || e.String() != name {
		return nil, false
	}
	return e, true
}

// Quote returns the name of a column as it is written in a formula, in backquotes if it is not a
// word.
func Quote(column string) string {
	for i, r := range column {
		if !(IsLetter(r) || i > 0 && (unicode.IsDigit(r) || r == '.')) {
			return "`" + column + "`"
		}
	}
	if column == "" {
		return "``"
	}
	return column
}

// IsLetter reports whether a name may begin with r.
func IsLetter(r rune) bool { return unicode.IsLetter(r) || r == '_' }

// index returns the index of a column, which is used at a byte.
func (e *Expr) index(column string, at int) int {
	i := slices.Index(e.Columns, column)
	if i < 0 {
		i = len(e.Columns)
		e.Columns, e.At = append(e.Columns, column), append(e.At, at)
	}
	return i
}
