package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A module is its packages from their sources. Tests, the packages of tests below internal/checks,
// examples and commands are left out.
type module struct {
	folder   string
	set      *token.FileSet
	packages []*pkg
}

// A pkg is a package with what its identifiers mean.
type pkg struct {
	types *types.Package
	files []*ast.File
	uses  map[*ast.Ident]types.Object
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	Standard                bool
	Module                  *struct{ Main bool }
	GoFiles                 []string
}

// load reads and checks the packages of the module in a folder. What they import from elsewhere is
// read from the export data that the go command keeps.
func load(folder string) (*module, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,Standard,Module,GoFiles", "./...")
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	m := &module{folder: folder, set: token.NewFileSet()}
	l := &loader{export: make(map[string]string), checked: make(map[string]*types.Package)}
	l.other = importer.ForCompiler(m.set, "gc", l.open)
	// Packages come after those that they import.
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return m, nil
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil || !p.Module.Main {
			l.export[p.ImportPath] = p.Export
			continue
		}
		if room := m.room(filepath.Join(p.Dir, "x.go")); room == "examples/" || room == "cmd/" {
			continue // as users write them
		}
		if m.isTests(p.Dir) {
			continue
		}
		c, err := m.check(p, l)
		if err != nil {
			return nil, err
		}
		l.checked[p.ImportPath] = c.types
		m.packages = append(m.packages, c)
	}
}

// isTests reports whether a folder is of a package of tests, or of what these need.
func (m *module) isTests(folder string) bool {
	rel, err := filepath.Rel(m.folder, folder)
	first := filepath.Join("internal", "checks")
	return err == nil && (rel == first || strings.HasPrefix(rel, first+string(filepath.Separator)))
}

// check type-checks a package.
func (m *module) check(p listed, imports types.Importer) (*pkg, error) {
	c := &pkg{uses: make(map[*ast.Ident]types.Object)}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(m.set, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, f)
	}
	var err error
	conf := types.Config{Importer: imports}
	c.types, err = conf.Check(p.ImportPath, m.set, c.files, &types.Info{Uses: c.uses})
	return c, err
}

// A loader imports packages: those of the module as they were checked, others from export data.
type loader struct {
	export  map[string]string
	checked map[string]*types.Package
	other   types.Importer
}

// Import implements types.Importer.
func (l *loader) Import(path string) (*types.Package, error) {
	if p, ok := l.checked[path]; ok {
		return p, nil
	}
	return l.other.Import(path)
}

func (l *loader) open(path string) (io.ReadCloser, error) {
	file, ok := l.export[path]
	if !ok || file == "" {
		return nil, fmt.Errorf("no export data of %s", path)
	}
	return os.Open(file)
}

// room returns the room that a file belongs to: itself in the root, otherwise the folder in the
// root; empty for a file that is not of the module.
func (m *module) room(file string) string {
	rel, err := filepath.Rel(m.folder, file)
	if err != nil || strings.HasPrefix(rel, "..") {
		return ""
	}
	first, _, inFolder := strings.Cut(filepath.ToSlash(rel), "/")
	if inFolder {
		return first + "/"
	}
	return first
}

// root returns the package in the root.
func (m *module) root() *pkg {
	i := slices.IndexFunc(m.packages, func(p *pkg) bool {
		return len(p.files) > 0 &&
			strings.HasSuffix(m.room(m.set.Position(p.files[0].Pos()).Filename), ".go")
	})
	return m.packages[i]
}

// unnamed returns where a value is asserted to be of an interface without a name, by an assertion
// or a case of a type switch that spells out its methods: a question that no compiler checks.
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
// functions, constants and variables; and apart from them the methods of its interfaces.
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

// lines returns the number of files of the root and of their lines.
func (m *module) lines() (files, lines int) {
	for _, f := range m.root().files {
		files++
		lines += m.set.File(f.Pos()).LineCount()
	}
	return files, lines
}
