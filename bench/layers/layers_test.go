package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSizes compares the sizes of two packages with numbers counted by hand.
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
		{folder: "internal/b", files: 1, lines: 14, names: 3, longest: 3, wide: 1}, // B, T and M
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
}

// small holds the files of a module that is small enough to count by hand. They are text because
// this repository must not contain such mistakes.
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

type checker interface{ Check() }

type number interface{ ~int }

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

// Fitter is implemented by every model.
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

type Source interface{ Fit() int }

type Inner interface{ Hidden() }

type own struct{}

func (own) Hidden() {}

func Sum(s Source, i Inner) int {
	i.Hidden()
	return s.Fit()
}
`,
	"examples/x/main.go": `package main

import "small"

func main() { _ = small.ErrGP }
`,
	"example_test.go": `package small_test

import "small"

func ExampleFit() {
	models := map[string][]*small.GP[small.GLM]{}
	_ = models["a"][0].Fit()
}
`,
	"small_test.go": `package small_test

import "small"

var _ small.Fitter
`,
}

// TestCounts compares the report of a small module with numbers counted by hand.
func TestCounts(t *testing.T) {
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
	g := m.graph()
	var uses []string
	for _, u := range g.sorted() {
		uses = append(uses, u.from+" "+u.to)
	}
	want := []string{"glm.go errors.go", "glm.go gp_fit.go", "gp.go gp_fit.go", "gp_fit.go gp.go",
		"gp_fit.go internal/"}
	if !slices.Equal(uses, want) {
		t.Errorf("uses %q, want %q", uses, want)
	}
	if c := g.cycles(); len(c) != 1 || !slices.Equal(c[0], []string{"gp.go", "gp_fit.go"}) {
		t.Errorf("cycles %q", c)
	}
	// GP implements Source above internal/deep, but Inner only has an implementation next to it.
	if up := m.upward(); !slices.Equal(up, []string{"internal/deep: Source.Fit"}) {
		t.Errorf("upward %q", up)
	}
	if p := m.private(); !slices.Equal(p, []string{"checker"}) {
		t.Errorf("unexported interfaces %q", p)
	}
	// The test of a Fitter is no example, and no example has Names.
	if names, err := m.unshown(); err != nil || !slices.Equal(names, []string{"Fitter", "Names"}) {
		t.Errorf("types in no example: %q, %v", names, err)
	}
	all, err := m.counts()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, c := range all {
		got[c.what] = c.n
	}
	for what, n := range map[string]int{
		"import cycles among units": 1, "assertions to unnamed interfaces": 2,
		"files in the root": 4, "units": 5, "uses between units": 5, "layers": 3,
		// Fitter, GLM, GP and Names; GP.X, GP.Fit, Fit and ErrGP.
		"exported types of the root": 4, "exported names of the root": 8,
		"exported types of the root that no example shows": 2,
	} {
		if got[what] != n {
			t.Errorf("%s: %d, want %d", what, got[what], n)
		}
	}
	if err := m.withinLimits(); err == nil {
		t.Error("a cycle and two unnamed interfaces are within the limits")
	}
}

// TestPicture checks that each package is in a row above its imports, that boxes of a row do not
// overlap, and that a line which other lines replace is left out.
func TestPicture(t *testing.T) {
	imports := map[string][]string{"a": {"b", "c"}, "b": {"c", "d"}, "c": {"d"}, "d": nil, "e": {"d"}}
	for name, more := range map[string]string{"b": "d", "a": "c"} {
		if !leads(imports, name, more) {
			t.Errorf("nothing leads from %s to %s", name, more)
		}
	}
	reduced := reduce(imports)
	want := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {}, "e": {"d"}}
	for name, to := range want {
		if !slices.Equal(reduced[name], to) {
			t.Errorf("%s imports %q, want %q", name, reduced[name], to)
		}
	}
	rows := layout(reduced)
	place(rows)
	boxes := 0
	for _, row := range rows {
		for i, n := range row {
			if n.name != "" {
				boxes++
			}
			for _, d := range n.down {
				if d.row != n.row+1 {
					t.Errorf("a line leads from row %d to row %d", n.row, d.row)
				}
			}
			if i > 0 && n.x-row[i-1].x < distance(row[i-1], n)-1e-9 {
				t.Errorf("row %d: %q overlaps %q", n.row, row[i-1].name, n.name)
			}
		}
	}
	if boxes != len(imports) || len(rows) != 4 {
		t.Errorf("%d boxes in %d rows", boxes, len(rows))
	}
}
