package docs

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// goDocumentation returns the doc comments of the Go standard library, a document for each
// source file that has enough of them.
func goDocumentation() (*pgsvi.Corpus, error) {
	root := filepath.Join(build.Default.GOROOT, "src")
	b := data.CorpusBuilder{MinDocs: 5, MaxDocs: 0.3}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "cmd", "internal", "testdata", "vendor":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil // not a file of this version of Go
		}
		if text := docText(file); len(text) > 500 {
			name, _ := filepath.Rel(root, path)
			b.Add(name, text)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the source of the standard library, in %s: %w; use -corpus", root, err)
	}
	c, _ := b.Corpus()
	return c, nil
}

// docText returns the doc comments of a file: of its package and of its declarations.
func docText(file *ast.File) string {
	var text strings.Builder
	add := func(c *ast.CommentGroup) {
		// What follows is about who uses what they should not, in the same words each time.
		s, _, _ := strings.Cut(c.Text(), "should be an internal detail")
		text.WriteString(s)
	}
	add(file.Doc)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Doc)
		case *ast.GenDecl:
			add(d.Doc)
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Doc)
				case *ast.ValueSpec:
					add(s.Doc)
				}
			}
		}
	}
	return text.String()
}
