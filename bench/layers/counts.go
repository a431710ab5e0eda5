package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A count is a number of the report.
type count struct {
	what  string
	n     int
	limit int // the largest n that -check accepts; negative for no limit
}

// noLimit is the limit of a count that is only reported.
const noLimit = -1

// counts returns the numbers of the report. A limit may only fall: lower it when its count does.
func (m *module) counts() ([]count, error) {
	hidden, err := m.unshown()
	if err != nil {
		return nil, err
	}
	g := m.graph()
	files, lines := m.lines()
	typeNames, names, methods := m.exported()
	all := []count{
		{"import cycles among units", len(g.cycles()), 0},
		{"assertions to unnamed interfaces", len(m.unnamed()), 0},
		{"methods called from a lower package in a higher one", len(m.upward()), 112},
		{"unexported interfaces of the root", len(m.private()), 53},
		{"exported types of the root that no example shows", len(hidden), 0},
		{"files in the root", files, noLimit},
		{"lines in the root", lines, noLimit},
		{"units", len(g.units), noLimit},
		{"uses between units", len(g.uses), noLimit},
		{"layers", len(g.layers()), noLimit},
		{"exported types of the root", typeNames, noLimit},
		{"exported names of the root", names, noLimit},
		{"methods of exported interfaces of the root", methods, noLimit},
	}
	return all, nil
}

// private returns the unexported interfaces of the root.
func (m *module) private() []string {
	var all []string
	scope := m.root().types.Scope()
	for _, name := range scope.Names() {
		t, ok := scope.Lookup(name).(*types.TypeName)
		if ok && !t.Exported() && !t.IsAlias() && types.IsInterface(t.Type()) &&
			!isConstraint(t.Type()) {
			all = append(all, name)
		}
	}
	return all
}

// isConstraint reports whether t can only be a constraint of type parameters.
func isConstraint(t types.Type) bool {
	i, ok := t.Underlying().(*types.Interface)
	return ok && !i.IsMethodSet()
}

// upward returns the interface methods that a package calls although a package above it implements
// them, as "caller: Interface.Method". Such a call runs against the direction of the imports, so a
// reader cannot follow it by the imports alone.
func (m *module) upward() []string {
	methods, above := m.methodsOf(), m.importers()
	inModule := make(map[*types.Package]bool)
	for _, p := range m.packages {
		inModule[p.types] = true
	}
	all := make(map[string]bool)
	for _, p := range m.packages {
		for _, o := range p.uses {
			f, ok := o.(*types.Func)
			if !ok || f.Pkg() == nil {
				continue
			}
			named := interfaceOf(f)
			if named == nil || !inModule[f.Pkg()] {
				continue
			}
			for owner, sets := range methods {
				if above[p.types][owner] && implemented(named, sets) {
					all[fmt.Sprintf("%s: %s.%s", p.folder, named.Obj().Name(), f.Name())] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// interfaceOf returns the named interface that declares the method f, and nil for other functions.
func interfaceOf(f *types.Func) *types.Named {
	recv := f.Signature().Recv()
	if recv == nil {
		return nil
	}
	named, ok := types.Unalias(recv.Type()).(*types.Named)
	if !ok || !types.IsInterface(named) {
		return nil
	}
	return named.Origin()
}

// methodsOf returns the names of the methods of each type of each package of the library.
func (m *module) methodsOf() map[*types.Package][]map[string]bool {
	all := make(map[*types.Package][]map[string]bool)
	for _, p := range m.packages {
		if strings.HasPrefix(p.folder, "bench") {
			continue // measurements are users of the library
		}
		for _, name := range p.types.Scope().Names() {
			t, ok := p.types.Scope().Lookup(name).(*types.TypeName)
			if !ok || t.IsAlias() || types.IsInterface(t.Type()) {
				continue
			}
			set := make(map[string]bool)
			pointer := types.NewMethodSet(types.NewPointer(t.Type()))
			for i := range pointer.Len() {
				set[pointer.At(i).Obj().Name()] = true
			}
			if len(set) > 0 {
				all[p.types] = append(all[p.types], set)
			}
		}
	}
	return all
}

// implemented reports whether a type of another package has all methods of an interface. It compares
// names, because the methods of generic types differ in their type parameters.
func implemented(named *types.Named, sets []map[string]bool) bool {
	i := named.Underlying().(*types.Interface)
	return slices.ContainsFunc(sets, func(set map[string]bool) bool {
		for method := range i.Methods() {
			if !method.Exported() || !set[method.Name()] {
				return false
			}
		}
		return true
	})
}

// importers returns the packages that import each package, directly or not.
func (m *module) importers() map[*types.Package]map[*types.Package]bool {
	above := make(map[*types.Package]map[*types.Package]bool)
	for _, p := range m.packages {
		for _, q := range reach(p.types, make(map[*types.Package]bool)) {
			if above[q] == nil {
				above[q] = make(map[*types.Package]bool)
			}
			above[q][p.types] = true
		}
	}
	return above
}

// reach returns the packages that p imports, directly or not, without the packages in seen.
func reach(p *types.Package, seen map[*types.Package]bool) []*types.Package {
	var all []*types.Package
	for _, q := range p.Imports() {
		if !seen[q] {
			seen[q] = true
			all = append(append(all, q), reach(q, seen)...)
		}
	}
	return all
}

// root returns the package in the root of the module.
func (m *module) root() *pkg {
	i := slices.IndexFunc(m.packages, func(p *pkg) bool {
		return len(p.files) > 0 &&
			strings.HasSuffix(m.unit(m.set.Position(p.files[0].Pos()).Filename), ".go")
	})
	return m.packages[i]
}

// unnamed returns the places that assert a value to an interface without a name, in an assertion or
// a case of a type switch. The compiler cannot tell whether any type still has these methods.
func (m *module) unnamed() []string {
	var all []string
	for _, p := range m.packages {
		for _, f := range p.files {
			ask := func(e ast.Expr) {
				if t, ok := e.(*ast.InterfaceType); ok && len(t.Methods.List) > 0 {
					at := m.set.Position(t.Pos())
					rel, _ := filepath.Rel(m.folder, at.Filename)
					all = append(all, fmt.Sprintf("%s:%d", filepath.ToSlash(rel), at.Line))
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeAssertExpr:
					ask(n.Type)
				case *ast.TypeSwitchStmt:
					for _, s := range n.Body.List {
						for _, e := range s.(*ast.CaseClause).List {
							ask(e)
						}
					}
				}
				return true
			})
		}
	}
	slices.Sort(all)
	return all
}

// exported counts the exported names of the root: types with their exported fields and methods,
// functions, constants and variables. It counts the methods of interfaces separately.
func (m *module) exported() (typeNames, names, interfaceMethods int) {
	scope := m.root().types.Scope()
	for _, name := range scope.Names() {
		o := scope.Lookup(name)
		if !o.Exported() {
			continue
		}
		names++
		tn, ok := o.(*types.TypeName)
		if !ok {
			continue
		}
		typeNames++
		named, ok := tn.Type().(*types.Named)
		if !ok || tn.IsAlias() {
			continue
		}
		for method := range named.Methods() {
			if method.Exported() {
				names++
			}
		}
		switch u := named.Underlying().(type) {
		case *types.Struct:
			for field := range u.Fields() {
				if field.Exported() {
					names++
				}
			}
		case *types.Interface:
			for method := range u.ExplicitMethods() {
				if method.Exported() {
					interfaceMethods++
				}
			}
		}
	}
	return typeNames, names, interfaceMethods
}

// lines returns the numbers of files and of lines of the root.
func (m *module) lines() (files, lines int) {
	for _, f := range m.root().files {
		files++
		lines += m.set.File(f.Pos()).LineCount()
	}
	return files, lines
}
