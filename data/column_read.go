package data

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	goscanner "go/scanner"
	"go/token"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// makers holds the functions that make a Column.
var makers = map[string]any{
	"Outcome": Outcome, "Number": Number, "Category": Category, "Date": Date, "Group": Group,
	"Exposure": Exposure, "Offset": Offset, "Weight": Weight, "Precision": Precision,
	"Trials": Trials, "Event": Event, "Skip": Skip, "Raw": Raw,
}

// mostDeclared is the largest number of bytes that ReadColumns reads.
const mostDeclared = 1 << 24

// parts holds the constants that DateColumn.As accepts.
var parts = map[string]Part{"Elapsed": Elapsed, "Month": Month, "Weekday": Weekday}

// ReadColumns reads columns that are written as Go calls, such as Table.Suggest prints:
//
//	data.Outcome("churned").Positive("yes"), // a comment
//	data.Number("age").Impute(),
//
// This lets a file declare the columns. The package name, and commas at the ends of lines, are
// optional. If the text contains anything else, the error wraps ErrParam and names the line.
func ReadColumns(r io.Reader) ([]Column, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostDeclared))
	if err != nil {
		return nil, fmt.Errorf("pgsvi: reading columns: %w", err)
	}
	const before = "package p; var _ = []any{"
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", before+commas(text)+"\n}\n",
		parser.SkipObjectResolution)
	line := func(at token.Pos) int { return files.Position(at).Line }
	var list goscanner.ErrorList
	switch {
	case errors.As(err, &list):
		return nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: columns, line %d: %s", list[0].Pos.Line,
			plainGo(list[0].Msg))
	case err != nil:
		return nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: columns: %w", err)
	}
	var columns []Column
	for _, x := range columnList(file) {
		v, err := callColumn(x)
		if err == nil {
			c, ok := v.Interface().(Column)
			if columns = append(columns, c); !ok {
				err = errors.New("this call does not make a column")
			}
		}
		if err != nil {
			return nil, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: columns, line %d: %w", line(x.Pos()), err)
		}
	}
	if len(file.Decls) != 1 {
		return nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: columns, line %d: unmatched bracket",
			line(file.Decls[1].Pos()))
	}
	return columns, nil
}

// commas adds a comma after each call that ends a line without a comma.
func commas(text []byte) string {
	var scan goscanner.Scanner
	files := token.NewFileSet()
	scan.Init(files.AddFile("", files.Base(), len(text)), text, nil, 0) // the parser reports errors
	var b strings.Builder
	done, depth, end := 0, 0, 0 // bytes copied, open brackets, end of the last token
	last := token.ILLEGAL
	for {
		pos, tok, literal := scan.Scan()
		at := files.Position(pos).Offset
		switch tok {
		case token.EOF:
			b.Write(text[done:])
			return b.String()
		case token.LPAREN:
			depth++
		case token.RPAREN:
			depth--
			end = at + 1
		case token.SEMICOLON:
			if literal == "\n" && last == token.RPAREN && depth == 0 {
				b.Write(text[done:end])
				b.WriteByte(',')
				done = end
			}
		}
		last = tok
	}
}

// plainGo rewrites a message of the Go parser for readers who do not know Go.
func plainGo(message string) string {
	switch {
	case strings.Contains(message, "rune literal"):
		return `write texts in double quotes, as in Outcome("churned").Positive("yes")`
	case strings.Contains(message, "composite literal"):
		return `this is not a call; write each column as a call, such as Number("age").Impute()`
	}
	return message
}

// columnList returns the elements of the list in file.
func columnList(file *ast.File) []ast.Expr {
	spec := file.Decls[0].(*ast.GenDecl).Specs[0].(*ast.ValueSpec)
	if list, ok := spec.Values[0].(*ast.CompositeLit); ok {
		return list.Elts
	}
	return nil
}

// callColumn makes the column that the call x declares: data.Number("x").Impute() or
// Number("x").Impute().
func callColumn(x ast.Expr) (v reflect.Value, err error) {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return v, errors.New(`this is not a call; write a call such as data.Number("x").Impute()`)
	}
	var f reflect.Value
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		f = reflect.ValueOf(makers[fun.Name])
	case *ast.SelectorExpr:
		if isPackage(fun.X) {
			f = reflect.ValueOf(makers[fun.Sel.Name])
			break
		}
		if v, err = callColumn(fun.X); err != nil {
			return v, err
		}
		if f = v.MethodByName(fun.Sel.Name); !f.IsValid() || f.Type().NumOut() != 1 ||
			f.Type().Out(0) != v.Type() {
			return v, fmt.Errorf("a %s has no method %s%s", v.Type().Name(), fun.Sel.Name,
				nearAny(fun.Sel.Name, methodsOf(v.Type())))
		}
	}
	if !f.IsValid() {
		return v, fmt.Errorf("package data has no such function%s", nearAny(calledName(call.Fun),
			sortedKeys(makers)))
	}
	return callWith(f, call)
}

// methodsOf returns the names of the methods that change a column.
func methodsOf(t reflect.Type) (names []string) {
	for m := range t.Methods() {
		if m.Type.NumOut() == 1 && m.Type.Out(0) == t {
			names = append(names, m.Name)
		}
	}
	return names
}

// calledName returns the name of a function.
func calledName(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// isPackage reports whether x is data, the name of this package.
func isPackage(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == "data"
}

// callWith calls f with the arguments of a call.
func callWith(f reflect.Value, call *ast.CallExpr) (v reflect.Value, err error) {
	t := f.Type()
	least := t.NumIn()
	if t.IsVariadic() {
		least--
	}
	if n := len(call.Args); n < least || n > t.NumIn() && !t.IsVariadic() {
		return v, fmt.Errorf("the call has %d arguments, but the function has %d", n, t.NumIn())
	}
	var args []reflect.Value
	for i, a := range call.Args {
		want := t.In(min(i, t.NumIn()-1))
		if t.IsVariadic() && i >= least {
			want = want.Elem()
		}
		arg, err := argument(a, want)
		if err != nil {
			return v, err
		}
		args = append(args, arg)
	}
	return f.Call(args)[0], nil
}

// argument returns the value of x, which is a string, a character such as ',' or a Part.
func argument(x ast.Expr, want reflect.Type) (v reflect.Value, err error) {
	switch x := x.(type) {
	case *ast.BasicLit:
		switch {
		case x.Kind == token.STRING && want == reflect.TypeFor[string]():
			s, err := strconv.Unquote(x.Value)
			return reflect.ValueOf(s).Convert(want), err
		case x.Kind == token.CHAR && want.Kind() == reflect.Int32:
			r, _, _, err := strconv.UnquoteChar(x.Value[1:len(x.Value)-1], '\'')
			return reflect.ValueOf(r), err
		}
	case *ast.SelectorExpr:
		if p, ok := parts[x.Sel.Name]; ok && isPackage(x.X) && want == reflect.TypeFor[Part]() {
			return reflect.ValueOf(p), nil
		}
	case *ast.Ident:
		if p, ok := parts[x.Name]; ok && want == reflect.TypeFor[Part]() {
			return reflect.ValueOf(p), nil
		}
	}
	switch want.Kind() {
	case reflect.Int32:
		return v, errors.New("the argument must be a character such as ','")
	case reflect.String:
		if want == reflect.TypeFor[Part]() {
			return v, fmt.Errorf("the argument must be one of %s",
				strings.Join(sortedKeys(parts), ", "))
		}
	}
	return v, errors.New("the argument must be a text in double quotes")
}
