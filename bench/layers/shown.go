// This file finds the exported types of the root that a reader meets in no example. An example, a
// command or a package next to the root shows the types of its expressions. It shows a type by its
// name, by one of its constants, or by a call that returns it. To show a new type, write an Example,
// or use the type in an existing Example. The packages below internal and bench do not count, because
// users do not read them.

package main

import (
	"go/ast"
	"go/parser"
	"go/types"
	"path/filepath"
	"strings"
)

// unshown returns the exported types of the root that no example shows, in alphabetical order.
func (m *module) unshown() (names []string, err error) {
	s := shown{}
	for _, p := range m.users {
		if err := s.read(m, p); err != nil {
			return nil, err
		}
	}
	scope := m.root().types.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && t.Exported() && !s[t] {
			names = append(names, name)
		}
	}
	return names, nil
}

// shown holds the types that have been seen.
type shown map[*types.TypeName]bool

// read adds the types in a package: all of it unless it is the root, and its files of examples.
func (s shown) read(m *module, p listed) error {
	var own, examples []string
	if p.Dir != m.folder {
		own = p.GoFiles
	}
	for _, name := range p.XTestGoFiles {
		if strings.Contains(name, "example") {
			examples = append(examples, name)
		}
	}
	for _, names := range [][]string{own, examples} {
		var files []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(m.set, filepath.Join(p.Dir, name), nil,
				parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
		// Imports of tests may be missing, which matters to no type of the root.
		conf := types.Config{Importer: m.importer, Error: func(error) {}}
		_, _ = conf.Check(p.ImportPath, m.set, files, &info)
		for _, e := range info.Types {
			s.add(e.Type)
		}
	}
	return nil
}

// add adds t, and the types of its elements and arguments.
func (s shown) add(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		s[t.Obj()] = true
		s.add(t.Rhs())
	case *types.Named:
		s[t.Origin().Obj()] = true
		for arg := range t.TypeArgs().Types() {
			s.add(arg)
		}
	case *types.Tuple:
		for v := range t.Variables() {
			s.add(v.Type())
		}
	case *types.Map:
		s.add(t.Key())
		s.add(t.Elem())
	case container:
		s.add(t.Elem())
	}
}

// container is a pointer, a slice, an array or a channel.
type container interface {
	types.Type
	Elem() types.Type
}
