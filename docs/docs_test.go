// Package docs checks the documents of the repository.
package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// root is the folder of the repository.
const root = ".."

// imports maps the name of each package that a snippet may use to its path.
var imports = map[string]string{
	"context": "context",
	"data":    "github.com/pgsvi/pgsvi/data",
	"errors":  "errors",
	"fmt":     "fmt",
	"floats":  "gonum.org/v1/gonum/floats",
	"formula": "github.com/pgsvi/pgsvi/formula",
	"log":     "log",
	"mat":     "gonum.org/v1/gonum/mat",
	"math":    "math",
	"os":      "os",
	"pgsvi":   "github.com/pgsvi/pgsvi",
	"plot":    "github.com/pgsvi/pgsvi/plot",
	"slices":  "slices",
	"stat":    "gonum.org/v1/gonum/stat",
	"strings": "strings",
	"time":    "time",
}

// A snippet is a block of Go in a document.
type snippet struct {
	file   string
	line   int
	code   string
	shared string // functions of the document that its snippets may call
}

// fence finds the blocks of Go. A block that begins with "```go shared" declares functions for the
// later blocks of the document.
var fence = regexp.MustCompile("(?ms)^```go( shared)?\n(.*?)^```")

// snippetsOf returns the blocks of Go in a document.
func snippetsOf(t *testing.T, file string) (all []snippet) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shared := ""
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		line, code := 1+bytes.Count(text[:at[4]], []byte("\n")), string(text[at[4]:at[5]])
		all = append(all, snippet{file, line, code, shared})
		if at[2] >= 0 {
			shared += "\n" + code
		}
	}
	return all
}

// program completes a snippet. Statements become the body of main, the shared functions follow, and
// the packages that both name are imported. A snippet with a package clause is complete.
func program(code, shared string) (string, error) {
	if strings.HasPrefix(code, "package ") {
		return code, nil
	}
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	names := make([]string, 0, len(imports))
	for name := range imports {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(code + shared) {
			fmt.Fprintf(&b, "\t%q\n", imports[name])
		}
	}
	b.WriteString(")\n\n")
	declares := regexp.MustCompile(`(?m)^(func|type) `).MatchString(code)
	if declares {
		b.WriteString(code)
		if !strings.Contains(code, "func main()") {
			b.WriteString("\nfunc main() {}\n")
		}
	} else {
		b.WriteString("func main() {\n" + code + "}\n")
	}
	b.WriteString(shared)
	_, err := parser.ParseFile(token.NewFileSet(), "main.go", b.String(), 0)
	return b.String(), err
}

// documents returns the files whose snippets and links are checked.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{filepath.Join(root, "README.md")}
	more, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, more...)
}

// TestSnippets checks that every block of Go in the README and in this folder is formatted, and
// compiles as pasted into the main function of a module that requires the library.
func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every snippet")
	}
	var all []snippet
	for _, file := range documents(t) {
		all = append(all, snippetsOf(t, file)...)
	}
	if len(all) < 2 {
		t.Fatalf("%d snippets", len(all))
	}
	module := t.TempDir()
	moduleFiles(t, module)
	for i, s := range all {
		if out, err := format.Source([]byte(s.code)); err != nil || string(out) != s.code {
			t.Errorf("%s:%d is not formatted: %v; gofmt has\n%s", s.file, s.line, err, out)
		}
		code, err := program(s.code, s.shared)
		if err != nil {
			t.Errorf("%s:%d: %v", s.file, s.line, err)
			continue
		}
		dir := filepath.Join(module, fmt.Sprintf("snippet%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("// %s:%d\n", s.file, s.line)
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(at+code), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	vet := exec.Command("go", "vet", "-mod=mod", "./...")
	vet.Dir = module
	vet.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// moduleFiles writes the go.mod and go.sum of a module that uses this repository in place of a
// released version, with the same versions of all other modules.
func moduleFiles(t *testing.T, dir string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	name := "module github.com/pgsvi/pgsvi\n"
	if !strings.HasPrefix(string(mod), name) {
		t.Fatalf("go.mod does not begin with %q", name)
	}
	text := "module example.com/snippets\n" + strings.TrimPrefix(string(mod), name) +
		"\nrequire github.com/pgsvi/pgsvi v0.0.0\n\nreplace github.com/pgsvi/pgsvi => " + here +
		"\n"
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProgram checks how snippets are completed.
func TestProgram(t *testing.T) {
	const shared = "\nfunc f() { os.Exit(1) }\n"
	for _, c := range []struct{ code, shared, want string }{
		{"package main\n", "", "package main\n"},
		{"fmt.Println(1)\n", "",
			"import (\n\t\"fmt\"\n)\n\nfunc main() {\nfmt.Println(1)\n}"},
		{"func f() { fmt.Print() }\n", "", "func f() { fmt.Print() }\n\nfunc main() {}"},
		{"f()\n", shared, "import (\n\t\"os\"\n)\n\nfunc main() {\nf()\n}\n" + shared},
	} {
		got, err := program(c.code, c.shared)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%q becomes %q, %v", c.code, got, err)
		}
	}
	if _, err := program("x := := 1\n", ""); err == nil {
		t.Error("a snippet that does not parse is no error")
	}
}

// TestLimits checks that the README and the guide stay short: lines, and columns of text.
func TestLimits(t *testing.T) {
	for file, most := range map[string]struct{ lines, columns int }{
		filepath.Join(root, "README.md"):   {100, 110},
		"guide.md":                         {240, 110},
		"mixed.md":                         {160, 110},
		filepath.Join(root, "SECURITY.md"): {12, 110},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(lines) > most.lines {
			t.Errorf("%s has %d lines, at most %d", file, len(lines), most.lines)
		}
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); n > most.columns {
				t.Errorf("%s:%d has %d columns, at most %d", file, i+1, n, most.columns)
			}
		}
	}
}

var (
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	sourceFile = regexp.MustCompile(`^[a-z_/]+\.go$`)
	sourceName = regexp.MustCompile(`^(?:[a-z]+\.)?([A-Z]\w*|[a-z]\w*[A-Z]\w*)(?:\.([A-Z]\w*))?$`)
)

// TestNames checks that the files, types, functions and examples that two pages name exist.
func TestNames(t *testing.T) {
	declared := declarations(t)
	for page, least := range map[string]struct{ names, files int }{
		"architecture.md": {20, 20}, "paper.md": {40, 0},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		names, files := 0, 0
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			switch name := m[1]; {
			case strings.HasPrefix(name, "internal/"), sourceFile.MatchString(name):
				files++
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s names %s: %v", page, name, err)
				}
			case sourceName.MatchString(name):
				names++
				parts := sourceName.FindStringSubmatch(name)
				if !declared[parts[1]] || parts[2] != "" && !declared[parts[1]+"."+parts[2]] {
					t.Errorf("%s names %s, which is not declared", page, name)
				}
			}
		}
		if names < least.names || files < least.files {
			t.Errorf("found %d names and %d files in %s", names, files, page)
		}
	}
}

// TestExamples checks that docs/paper.md names every example of the file that shows its algorithms,
// and that go doc and pkg.go.dev list every example of the root package under a name.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("paper.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	algorithms := 0
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		if filepath.Base(name) != "example_paper_test.go" {
			continue
		}
		for _, e := range doc.Examples(f) {
			algorithms++
			if !strings.Contains(string(text), "`Example"+e.Name+"`") {
				t.Errorf("paper.md does not name Example%s", e.Name)
			}
		}
	}
	if algorithms < 12 {
		t.Errorf("found %d examples of algorithms", algorithms)
	}
	p, err := doc.NewFromFiles(fset, files, "github.com/pgsvi/pgsvi")
	if err != nil {
		t.Fatal(err)
	}
	listed := listedExamples(p)
	for _, e := range doc.Examples(files...) {
		if !listed[e.Name] {
			t.Errorf("Example%s belongs to no type, function or method", e.Name)
		}
	}
}

// listedExamples returns the names of the examples that the documentation of p lists.
func listedExamples(p *doc.Package) map[string]bool {
	all := p.Examples
	for _, f := range p.Funcs {
		all = append(all, f.Examples...)
	}
	for _, t := range p.Types {
		all = append(all, t.Examples...)
		for _, f := range slices.Concat(t.Funcs, t.Methods) {
			all = append(all, f.Examples...)
		}
	}
	listed := make(map[string]bool)
	for _, e := range all {
		listed[e.Name] = true
	}
	return listed
}

// declarations returns the names that Go files of the root and of internal declare. Methods and
// fields have the name of their type in front.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				declare(all, d)
			}
		}
	}
	return all
}

// declare adds the names of a declaration to all.
func declare(all map[string]bool, d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		name := f.Name.Name
		if f.Recv != nil {
			of := f.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if g, ok := of.(*ast.IndexExpr); ok {
				of = g.X
			}
			name = fmt.Sprintf("%v.%s", of, name)
		}
		all[name] = true
		return
	}
	for _, s := range d.(*ast.GenDecl).Specs {
		if v, ok := s.(*ast.ValueSpec); ok {
			for _, name := range v.Names {
				all[name.Name] = true
			}
		}
		t, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		all[t.Name.Name] = true
		var fields *ast.FieldList
		switch of := t.Type.(type) {
		case *ast.InterfaceType:
			fields = of.Methods
		case *ast.StructType:
			fields = of.Fields
		default:
			continue
		}
		for _, m := range fields.List {
			for _, name := range m.Names {
				all[t.Name.Name+"."+name.Name] = true
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestLinks checks that relative links and pictures of the documents lead to files.
func TestLinks(t *testing.T) {
	files := documents(t)
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "bench/README.md",
		"examples/README.md"} {
		files = append(files, filepath.Join(root, name))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := string(m[1])
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), to)); err != nil {
				t.Errorf("%s links to %s: %v", file, to, err)
			}
		}
	}
}

// mostLonger limits the length of a Go program in coming-from.md, relative to the Python program.
const mostLonger = 1.5

// linesOf counts the lines of a program, except blank lines, comments and the handling of errors.
func linesOf(code string) (n int) {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case line == "" || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "#"):
		case line == "if err != nil {" && i+2 < len(lines) && strings.Contains(lines[i+1],
			"log.Fatal"):
			i += 2
		case strings.HasPrefix(line, "if err := ") && i+2 < len(lines) &&
			strings.Contains(lines[i+1], "log.Fatal"):
			i += 2
			n++
		default:
			n++
		}
	}
	return n
}

// TestComingFrom checks that each program of coming-from.md is about as long as its counterpart.
func TestComingFrom(t *testing.T) {
	text, err := os.ReadFile("coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	tasks := strings.Split(string(text), "\n## ")[1:]
	if len(tasks) != 6 {
		t.Errorf("%d tasks", len(tasks))
	}
	block := regexp.MustCompile("(?ms)^```(python|go)\n(.*?)^```")
	for _, task := range tasks {
		title, _, _ := strings.Cut(task, "\n")
		lines := map[string]int{}
		for _, m := range block.FindAllStringSubmatch(task, -1) {
			lines[m[1]] += linesOf(m[2])
		}
		t.Logf("%s: %d lines of Python, %d of Go", title, lines["python"], lines["go"])
		if lines["python"] == 0 || lines["go"] == 0 ||
			float64(lines["go"]) > mostLonger*float64(lines["python"]) {
			t.Errorf("%s: %d lines of Python, %d of Go", title, lines["python"], lines["go"])
		}
	}
}
