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
	"strings"
)

// A module holds the type-checked packages of the library. It leaves out tests, the packages below
// internal/checks, examples and commands, because users write such code themselves.
type module struct {
	folder   string
	set      *token.FileSet
	packages []*pkg
	users    []listed // packages whose code and examples users read; see unshown
	importer types.Importer
}

// A pkg is a package with the objects that its identifiers refer to.
type pkg struct {
	folder string // in the module, "." for the root
	types  *types.Package
	files  []*ast.File
	uses   map[*ast.Ident]types.Object
}

// listed holds the fields of the output of go list that load reads.
type listed struct {
	ImportPath, Dir, Export string
	Standard                bool
	Module                  *struct{ Main bool }
	GoFiles, XTestGoFiles   []string
}

// load reads and type-checks the packages of the module in a folder. It imports other packages from
// the export data that the go command keeps.
func load(folder string) (*module, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,Standard,Module,GoFiles,XTestGoFiles", "./...")
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	m := &module{folder: folder, set: token.NewFileSet()}
	l := &loader{export: make(map[string]string), checked: make(map[string]*types.Package)}
	l.other = importer.ForCompiler(m.set, "gc", l.open)
	m.importer = l
	// Each package follows the packages that it imports.
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
		unit := m.unit(filepath.Join(p.Dir, "x.go"))
		if unit != "internal/" && unit != "bench/" {
			m.users = append(m.users, p)
		}
		if unit == "examples/" || unit == "cmd/" || m.isTests(p.Dir) {
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

// isTests reports whether a folder holds a package of tests or its helpers.
func (m *module) isTests(folder string) bool {
	rel, err := filepath.Rel(m.folder, folder)
	first := filepath.Join("internal", "checks")
	return err == nil && (rel == first || strings.HasPrefix(rel, first+string(filepath.Separator)))
}

// check type-checks a package.
func (m *module) check(p listed, imports types.Importer) (*pkg, error) {
	folder, err := filepath.Rel(m.folder, p.Dir)
	if err != nil {
		return nil, err
	}
	c := &pkg{folder: filepath.ToSlash(folder), uses: make(map[*ast.Ident]types.Object)}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(m.set, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, f)
	}
	conf := types.Config{Importer: imports}
	c.types, err = conf.Check(p.ImportPath, m.set, c.files, &types.Info{Uses: c.uses})
	return c, err
}

// A loader returns the packages of the module as load checked them, and others from export data.
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

// unit returns the unit that a file belongs to: the file itself in the root, and the top folder
// otherwise. It is empty for a file outside the module.
func (m *module) unit(file string) string {
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
