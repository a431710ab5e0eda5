// Package examples checks that every example can be copied: it is short, has few flags, and imports
// only public packages.
package examples

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// longer lists the examples that may have 150 lines. All others have at most 100.
var longer = map[string]bool{"methods": true, "divergence": true, "own": true}

const module = "github.com/pgsvi/pgsvi"

// folders returns the folders of the examples that are not separate modules.
func folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*/main.go")
	if err != nil || len(found) < 10 {
		t.Fatalf("examples %q, error %v", found, err)
	}
	var all []string
	for _, main := range found {
		dir := filepath.Dir(main)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			all = append(all, dir)
		}
	}
	return all
}

// TestTemplates checks the rules of an example: one main.go of 100 lines, a first comment that
// begins with a question, at most three flags, and no imports except the library, its packages data
// and plot, gonum and the standard library.
func TestTemplates(t *testing.T) {
	allowed := regexp.MustCompile(`^([a-z0-9/]+|gonum\.org/v1/(gonum|plot)(/.*)?|` + module + `(/data|/plot)?)$`)
	for _, dir := range folders(t) {
		name := filepath.Join(dir, "main.go")
		if all, err := filepath.Glob(filepath.Join(dir, "*.go")); err != nil || len(all) > 1 {
			t.Errorf("%s has the files %q: want main.go alone", dir, all)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		most := 100
		if longer[dir] {
			most = 150
		}
		if n := bytes.Count(text, []byte("\n")); n > most {
			t.Errorf("%s has %d lines, at most %d", name, n, most)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case file.Doc == nil:
			t.Errorf("%s begins without a comment", name)
		case len(file.Doc.List) < 3 || len(file.Doc.List) > 9:
			t.Errorf("%s begins with a comment of %d lines", name, len(file.Doc.List))
		case !strings.Contains(file.Doc.Text(), "?\n"):
			t.Errorf("the comment of %s does not begin with a question", name)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !allowed.MatchString(path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		if n := flags(file); n > 3 {
			t.Errorf("%s has %d flags, at most 3", name, n)
		}
	}
}

// flags counts the calls that define a flag.
func flags(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "flag" && s.Sel.Name != "Parse" {
					n++
				}
			}
		}
		return true
	})
	return n
}

// runs has arguments for a small run of each example, and patterns that its output must match.
var runs = map[string]struct {
	args string
	want []string // regular expressions
}{
	"churn": {"-rows 500 -save churn.pgsvi", []string{`number  +not used`, `age missing`, `leaves with probability 0\.8\d \(`,
		`"plan"="platinum" is new`, `"age" is missing`, `no prediction: .*"forty"`, `wrote churn\.pgsvi`}},
	"co2":        {"", []string{`SquaredExp\.Length +4[45]\.`, `forecast of 120 rows: 1\.38\d nats per row`, `co2-parts\.png`}},
	"ctm":        {"-topics 5", []string{`documents, \d+ words`, `[67]\.\d+ nats per held-out word`}},
	"custom":     {"", []string{`converged`, `k̂ = 0\.\d`, `log tau +0\.693 +0\.7[12]\d\d ± 0\.07\d+ +0\.7[12]\d\d ± 0\.07`}},
	"divergence": {"-steps 5", []string{`β = 0\.5 `, `Rényi 1/2 without a step size: converged`, `passes, α = 0`}},
	"families":   {"", []string{`Gamma +η = \[57\.\d+ -25\.\d+\], converged`, `Beta +η = \[2[23]\.\d+ 7\.\d+\], converged`, `Dirichlet .*converged`}},
	"family":     {"", []string{`CheckFamily finds no mistake`, `63\.55 degrees, by quadrature 63\.5`}},
	"gp1d":       {"", []string{`Poisson: converged`, `StudentT: converged.*\n.*truth 0\.0`, `GaussianNoise: converged.*\n.*truth 0\.3`}},
	"gpclass":    {"", []string{`block .*converged`, `batch .*converged`, `PG-SVI .*pass limit`}},
	"groups": {"", []string{`\(Intercept\) +26\.5`, `residual +25\.5`, `309 +-43\.0`,
		`subject 309 on day 9: 229 \(18`, `subject new on day 9: 344 \(23.*is new`, `pictures/groups\.png`}},
	"iris":       {"", []string{`SquaredExp\.Length\[1\]`, `0\.1[23]\d nats per flower`}},
	"lda":        {"-topics 5", []string{`documents, \d+ words`, `held-out document .*: \d+% topic`, `[67]\.\d+ nats per held-out word`}},
	"logistic":   {"", []string{`x2 +not used`, `proved to be within`, `k̂ = 0\.`, `[45]\d of 351 rows are predicted wrongly`}},
	"methods":    {"-rows 8 -passes 60", []string{`proved to \d`, `nil Solver .* \d+\n`, `PG, main text .* \d+\n`, `PG-SVI .*Inf\n`}},
	"multiclass": {"", []string{`converged.* ELBO -39\d`, `accuracy +0\.9[67]\d`, `precision +1\.000`, `image 1268, a 7: class \d`}},
	"own": {"-passes 12 -out pictures/own.svg", []string{`gradient descent .*ELBO -1[67]\d`, `natural gradient .*ELBO -158\.945`,
		`proximal gradient, KL .*ELBO -158\.9451`, `nil Solver: converged.* ELBO -158\.9451`, `own\.svg and own\.csv`}},
	"poisson": {"-policies 2000", []string{`NegativeBinomial\.Shape +0\.\d`, `(?s)elpd.*better`}},
	"sparse":  {"-rows 5000 -inducing 60", []string{`SquaredExp\.Scale +[12]\.`, `nats per label on 20000 other rows`}},
	"stream":  {"-rows 20000 -file rows.bin", []string{` 16000 +[0-3]\.`, `rows=20000 cols=30 seconds=`}},
}

// TestCopies checks that copies of the examples build in another module that requires only the
// modules of the library, and that their output matches runs.
func TestCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and runs every example")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	_, requires, _ := strings.Cut(string(theirs), "require")
	mod := fmt.Sprintf("module copied\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n\nrequire%s",
		module, strconv.Quote(root), requires)
	copied := t.TempDir()
	for name, text := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(copied, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range folders(t) {
		if err := os.CopyFS(filepath.Join(copied, dir), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(copied, "bin") + string(filepath.Separator)
	cmd := exec.Command("go", "build", "-mod=mod", "-ldflags=-s -w", "-o", bin, "./...")
	cmd.Dir, cmd.Env = copied, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range folders(t) {
		t.Run(dir, func(t *testing.T) {
			run, ok := runs[dir]
			if !ok {
				t.Fatalf("runs has no settings of %s", dir)
			}
			to := filepath.Join(copied, dir)
			cmd := exec.Command(bin+dir, strings.Fields(run.args)...)
			cmd.Dir = to
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range run.want {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, m := range regexp.MustCompile(`pictures/\S+`).FindAllString(string(out), -1) {
				if info, err := os.Stat(filepath.Join(to, filepath.FromSlash(m))); err != nil || info.Size() < 10_000 {
					t.Errorf("%s: %v, %v", m, info, err)
				}
			}
		})
	}
}

// TestData checks that the data files of the examples are equal to the files in testdata.
func TestData(t *testing.T) {
	for _, name := range []string{"gpclass/ionosphere.csv", "logistic/ionosphere.csv", "co2/co2.csv",
		"iris/iris.csv", "methods/ionosphere40.csv", "own/ionosphere.csv"} {
		set, _, _ := strings.Cut(filepath.Base(name), ".")
		set = strings.TrimSuffix(set, "40") // the first 40 rows
		a, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join("..", "testdata", set, set+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(b, a) {
			t.Errorf("%s differs from testdata", name)
		}
	}
}
