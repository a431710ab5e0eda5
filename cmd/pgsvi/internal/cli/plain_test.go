package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPlain checks the translation of messages that the command prints.
func TestPlain(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{"the text is not UTF-8; set Format.Encoding (-format encoding=…)",
			"the text is not UTF-8; set -format encoding=…"},
		{"write a line of names above it, or set Format.Header (-format header=yes or header=no)",
			"write a line of names above it, or set -format header=yes or header=no"},
		{"set Format.Skip (-format skip=1) to skip it, or set Format.Header (-format header=yes) if " +
			"it is a name", "set -format skip=1 to skip it, or set -format header=yes if it is a name"},
		{"set Format.SkipLast (-format skip-last=1) to skip it, or set SkipLast to -1 (-format " +
			"skip-last=no) if it is a row", "set -format skip-last=1 to skip it, or set -format " +
			"skip-last=no if it is a row"},
		{"GLMOptions.InterceptSD is +Inf", "-intercept-sd is +Inf"},
		{"x has 600 rows, GLMOptions.Offset has 300 elements",
			"x has 600 rows, the offset has 300 elements"},
		{"prior precision of weight 0 (x) is 0; change PriorSD or, with Autoscale, rescale the column",
			"prior precision of weight 0 (x) is 0; change -prior-sd, or rescale the column"},
		{"a GP with this kernel k returns to 0 away from the rows; use " +
			"pgsvi.Sum{pgsvi.Constant{Scale: 1e+06}, k}, or subtract the mean",
			"a GP with this kernel k returns to 0 away from the rows; subtract the mean"},
		{"the prior is 0 ± 10: set GLMOptions.InterceptSD, to 1e+07 for example, or subtract it",
			"the prior is 0 ± 10: set -intercept-sd, to 1e+07 for example, or subtract it"},
		{"the data do not determine it, or LearnOptions.Bounds is too narrow",
			"the data do not determine it"},
		{"try other starts (LearnOptions.Restarts) or fix a parameter (LearnOptions.Fixed)",
			"try other starts or fix a parameter"},
		{"the covariance is 9 GB; use DiagonalCovariance or LowRankCovariance, or raise " +
			"GLMOptions.MaxMemory", "the covariance is 9 GB; raise the limit (GOMEMLIMIT)"},
		{`column "a; set Solver.Goal"; use Poisson{} for counts, GaussianNoise{} for measurements`,
			`column "a; set Solver.Goal"; use poisson for counts, gaussian for measurements`},
		{"y = 2, but Beta needs a number in (0, 1)", "y = 2, but Beta needs a number in (0, 1)"},
		{"the prior covariance is singular; set GPOptions.Jitter", "the prior covariance is singular"},
		{"one: set GPOptions.Jitter\ntwo: set GLMOptions.PriorSD\n", "one\ntwo: set -prior-sd\n"},
	} {
		if got := Plain(c.message); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.message, got, c.want)
		}
	}
}

// goNames matches names of options of the library.
var goNames = regexp.MustCompile(`\b(\w+Options|Solver|Format)\.[A-Z]`)

// TestPlainAll checks that Plain removes the names of Go options from all messages of the library.
func TestPlainAll(t *testing.T) {
	for _, pattern := range []string{"*.go", "data/*.go", "formula/*.go", "internal/*/*.go"} {
		paths, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				message, ok := literal(n)
				if got := Plain(message); goNames.MatchString(got) {
					t.Errorf("%s: %s\n%s", path, message, got)
				}
				return !ok
			})
		}
	}
}

// literal returns the value of a concatenation of string literals.
func literal(n ast.Node) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			text, err := strconv.Unquote(n.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, aOK := literal(n.X)
		b, bOK := literal(n.Y)
		return a + b, n.Op == token.ADD && aOK && bOK
	}
	return "", false
}
