package main

import (
	"go/ast"
	"go/types"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// widest is the number of columns, tabs counted as four, that a line may have.
const widest = 100

// A size holds the numbers of one package. Tests do not count.
type size struct {
	folder       string // in the module, "." for the root
	files, lines int
	names        int // exported names that other packages of the module use, without fields
	longest      int // lines of the longest function
	wide         int // lines of more than widest columns
}

// sizes returns the sizes of all packages, in the order of their folders.
func (m *module) sizes() ([]size, error) {
	names := make(map[*types.Package]map[types.Object]bool)
	for _, p := range m.packages {
		for _, o := range p.uses {
			switch x := o.(type) {
			case *types.Func:
				o = x.Origin()
			case *types.Var:
				if x.IsField() {
					continue
				}
			}
			if o.Pkg() == nil || o.Pkg() == p.types || !o.Exported() {
				continue
			}
			if names[o.Pkg()] == nil {
				names[o.Pkg()] = make(map[types.Object]bool)
			}
			names[o.Pkg()][o] = true
		}
	}
	var all []size
	for _, p := range m.packages {
		if len(p.files) == 0 {
			continue
		}
		s := size{folder: p.folder, names: len(names[p.types])}
		for _, f := range p.files {
			name := m.set.Position(f.Pos()).Filename
			s.files++
			s.lines += m.set.File(f.Pos()).LineCount()
			wide, err := wideLines(name)
			if err != nil {
				return nil, err
			}
			s.wide += wide
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					s.longest = max(s.longest,
						m.set.Position(d.End()).Line-m.set.Position(d.Pos()).Line+1)
				}
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b size) int { return strings.Compare(a.folder, b.folder) })
	return all, nil
}

// wideLines returns the number of lines of a file that have more than widest columns.
func wideLines(name string) (wide int, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > widest {
			wide++
		}
	}
	return wide, nil
}

// header is the heading of the table of packages.
var header = []string{"package", "files", "lines", "exported names used", "longest function",
	"lines above 100 columns"}

// table returns the sizes of the root, of data and of the internal packages in Markdown.
func (m *module) table() (string, error) {
	all, err := m.sizes()
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, s := range all {
		if s.folder == "." || s.folder == "data" || strings.HasPrefix(s.folder, "internal/") {
			row := []string{"`" + s.folder + "`"}
			for _, n := range s.numbers() {
				row = append(row, strconv.Itoa(n))
			}
			rows = append(rows, row)
		}
	}
	return tables.Markdown(header, rows), nil
}

// numbers returns the columns of the table.
func (s *size) numbers() []int { return []int{s.files, s.lines, s.names, s.longest, s.wide} }
