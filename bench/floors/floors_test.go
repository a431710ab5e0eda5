package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// most are the counts of the library. They may only fall: when one has, lower it here.
var most = map[string]int{
	"files in the root":                   62,
	"files in the root, tests included":   91,
	"rooms":                               67,
	"arrows":                              620,
	"arrows, those to errors.go left out": 563,
	"floors":                              18,
	"circles":                             0,
	"arrows from model to model":          0,
	"assertions to unnamed interfaces":    0,
	"exported types":                      159,
	"exported names":                      1115,
}

// library is this module, which is read once.
var library = sync.OnceValues(func() (*module, error) { return load("../..") })

// TestHouse: the library gets no more tangled than it is, and has no more names.
func TestHouse(t *testing.T) {
	testkit.NotShort(t)
	m, err := library()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range m.counts() {
		limit, ok := most[c.what]
		if !ok {
			continue
		}
		seen++
		switch {
		case c.n > limit:
			t.Errorf("%s: %d, at most %d; go run ./bench/floors -v shows them", c.what, c.n, limit)
		case c.n < limit:
			t.Logf("%s: %d; lower the limit, which is %d", c.what, c.n, limit)
		}
	}
	if seen != len(most) {
		t.Errorf("%d of %d limits are of something that is counted", seen, len(most))
	}
}

// TestPackages: no package is larger, has more doors, longer functions or more wide lines than the
// table in CONTRIBUTING.md says, which has all of them.
func TestPackages(t *testing.T) {
	testkit.NotShort(t)
	m, err := library()
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.sizes()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _, ok := tables.Lookup(string(text), "packages")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no table of packages")
	}
	limits := make(map[string][]int)
	for line := range strings.Lines(block) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != len(header) || !strings.Contains(cells[0], "`") {
			continue
		}
		var limit []int
		for _, c := range cells[1:] {
			n, err := strconv.Atoi(strings.TrimSpace(c))
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			limit = append(limit, n)
		}
		limits[strings.Trim(strings.TrimSpace(cells[0]), "`")] = limit
	}
	for _, s := range all {
		limit, ok := limits[s.folder]
		switch {
		case ok:
			for i, n := range s.numbers() {
				if n > limit[i] {
					t.Errorf("%s: %s: %d, at most %d", s.folder, header[i+1], n, limit[i])
				}
			}
		case s.folder == "." || s.folder == "data" || strings.HasPrefix(s.folder, "internal/"):
			t.Errorf("%s is not in the table; go run ./bench/floors -write CONTRIBUTING.md",
				s.folder)
		}
	}
}

// TestSizes counts a package by hand.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sized\n\ngo 1.26.0\n",
		"a.go": "package sized\n\nimport \"sized/internal/b\"\n\nfunc A() int " +
			"{\n\treturn b.B + b.T{}.M()\n}\n",
		"internal/b/b.go": "package b\n\n// B is one" + strings.Repeat("x", 100) +
			"\nconst B = 1\n\ntype T struct{ F int }\n\nfunc (T) M() int { return unused() " +
			"}\n\nfunc unused() int {\n\treturn 2\n}\n\nvar Unused int\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	m, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.sizes()
	if err != nil {
		t.Fatal(err)
	}
	want := []size{
		{folder: ".", files: 1, lines: 7, longest: 3},
		{folder: "internal/b", files: 1, lines: 14, doors: 3, longest: 3, wide: 1}, // B, T and M
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
}

// small is a module that is small enough to count by hand. It is text, as what it does wrong is not
// done in this repository.
var small = map[string]string{
	"go.mod": `module small

go 1.26.0
`,
	"errors.go": `package small

import "errors"

var ErrGP = errors.New("small: no process")
`,
	"glm.go": `package small

type GLM struct{}

type Names = []string

func Fit(f Fitter) error {
	if _, ok := f.(interface{ hide() }); !ok {
		return ErrGP
	}
	return nil
}
`,
	"gp.go": `package small

// GP has a field; one of its methods is in gp_fit.go.
type GP[T any] struct {
	X      T
	hidden int
}

func (g *GP[T]) Fit() int { return g.fit() }
`,
	"gp_fit.go": `package small

import "small/internal/deep"

// Fitter is what a model is.
type Fitter interface {
	Fit() int
	Len() int
}

func (g *GP[T]) fit() int {
	switch x := any(g.X).(type) {
	case interface{ Len() int }:
		return x.Len()
	case any:
		return deep.Zero
	}
	return g.hidden
}
`,
	"internal/deep/deep.go": `package deep

const Zero = 0
`,
	"examples/x/main.go": `package main

import "small"

func main() { _ = small.ErrGP }
`,
}

// TestSmallHouse: the counts of a module that is small enough to count by hand.
func TestSmallHouse(t *testing.T) {
	dir := t.TempDir()
	for name, text := range small {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := m.house()
	var arrows []string
	for _, a := range h.sorted() {
		arrows = append(arrows, a.from+" "+a.to)
	}
	want := []string{"glm.go errors.go", "glm.go gp_fit.go", "gp.go gp_fit.go", "gp_fit.go gp.go",
		"gp_fit.go internal/"}
	if !slices.Equal(arrows, want) {
		t.Errorf("arrows %q, want %q", arrows, want)
	}
	if c := h.circles(); len(c) != 1 || !slices.Equal(c[0], []string{"gp.go", "gp_fit.go"}) {
		t.Errorf("circles %q", c)
	}
	got := make(map[string]int)
	for _, c := range m.counts() {
		got[c.what] = c.n
	}
	for what, n := range map[string]int{
		"files in the root": 4, "rooms": 5, "arrows": 5, "arrows, those to errors.go left out": 4,
		"floors": 3, "circles": 1, "arrows from model to model": 1,
		"assertions to unnamed interfaces": 2,
		// Fitter, GLM, GP and Names; GP.X, GP.Fit, Fit and ErrGP.
		"exported types": 4, "exported names": 8,
	} {
		if got[what] != n {
			t.Errorf("%s: %d, want %d", what, got[what], n)
		}
	}
}
