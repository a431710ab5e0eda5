package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/data"
)

// TestFirstCommand runs the first command of the README exactly as written.
func TestFirstCommand(t *testing.T) {
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(readme), "\n    go run ")
	line, _, _ = strings.Cut(line, "\n")
	line, _, _ = strings.Cut(line, " #")
	quoted := strings.Split(strings.TrimSpace(line), "'") // the formula has spaces
	if len(quoted) != 3 || !strings.HasPrefix(line, "./cmd/pgsvi ") {
		t.Fatalf("the first command of the README is %q, want ./cmd/pgsvi with a formula", line)
	}
	args := append(strings.Fields(quoted[0])[1:], quoted[1])
	args = append(args, strings.Fields(quoted[2])...)
	t.Chdir(root)
	status, stdout, stderr := run(t, args...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, want := range []string{"468 rows", "(Intercept)", "smooth curves", " gap_bound="} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// TestNewcomer checks the messages for users who have only read pgsvi -h.
func TestNewcomer(t *testing.T) {
	dir := t.TempDir()
	table := write(t, dir, "xy.csv", "x,y\n1,2.5\n2,3.5\n3,3.5\n4,5.5\n")
	counts := write(t, dir, "counts.csv", "x,y\n1,0\n2,3\n3,1\n4,2\n")
	model := filepath.Join(dir, "xy.pgsvi")
	if status, _, stderr := run(t, "fit", "-formula", "y ~ x", "-o", model, table); status != 0 {
		t.Fatal(stderr)
	}
	file := func(name, text string) string { return write(t, dir, name, text) }
	labels := file("labels.csv", "x,y,z\n1,yes,0\n2,no,1\n3,yes,0\n4,no,0\n")
	exposed := file("exposed.csv", "x,z,u,days\n1.5,0,1,20\n2.5,1,2,200\n3,0,1.5,300\n4,3,7,365\n")
	trials := file("trials.csv", "x,k,n\n1,2,3\n2,0,4\n3,5,6\n4,5,5\n")
	for _, c := range []struct {
		args   string // split at |
		status int
		want   string
	}{
		{"fit|-fomula|y ~ x|" + table, 2, "pgsvi: unknown flag -fomula; did you mean " +
			"-formula? (run 'pgsvi fit -h' for help)"},
		{"fit|-prior-sd|x|" + table, 2, `invalid value "x" for flag -prior-sd`},
		{"fits|" + table, 2, `unknown verb "fits"; did you mean fit?`},
		{"guess", 2, "use one of check, fit, gp, topics, predict"},
		{"fit|-formula|y|~|x|" + table, 2, "too many files: ~, x, "},
		{"fit|-formula|y|~|x|" + table, 2, "with the formula in quotes"},
		{"fit|-formula|y ~ x", 2, "TABLE is missing; run pgsvi fit"},
		{"predict|" + model, 2, "TABLE is missing; run pgsvi predict MODEL TABLE"},
		{"predict", 2, "MODEL and TABLE are missing"},
		{"predict|" + table + "|" + model, 2, "the model must come before the table; run pgsvi " +
			"predict " + model},
		{"predict|" + model + "|" + file("z.csv", "z\n1\n"), 1,
			`the table has no column "x"; it has "z"`},
		{"predict|" + model + "|" + file("X.csv", "X\n1\n"), 1,
			`the table has no column "x"; did you mean "X"?`},
		{"predict|-score|" + model + "|" + file("x.csv", "x\n1\n"), 1, `no column "y" to compare predictions with`},
		{"predict|-level|90|" + model + "|" + table, 1, "the level of the interval is 90"},
		{"fit|-formula|y ~ x + z|" + table, 2, `the table has no column "z"; it has x, y`},
		{"fit|-formula|y ~ my col|" + table, 2,
			", or backquotes around a name"},
		{"fit|-formula|y ~ .|" + file("one.csv", "y\n1.5\n2\n3\n"), 0,
			"no column is left for the . of the formula; if the table"},
		{"fit|-formula|y ~ .|" + file("const.csv", "x,y\n1,5.5\n2,5.5\n3,5.5\n"), 1,
			"is 5.5 in all rows, so gaussian has nothing to learn"},
		{"fit|-formula|y ~ .|" + file("p.csv", "\x89PNG\r\n\x1a\n\x00\x00\n"), 1,
			"the file is not text but a picture"},
		{"fit|-formula|y ~ .|" + file("empty.csv", ""), 1,
			"empty.csv: the table has no rows"},
		{"fit|-formula|y ~ .|" + file("head.csv", "x,y\n"), 1,
			"head.csv: the table has no rows"},
		{"fit|-formula|y ~ x|-likelihood|Poisson|" + counts, 2,
			`unknown likelihood "Poisson"; use poisson`},
		{"fit|-formula|y ~ x|-likelihood|binomial|" + counts, 2,
			"use logit, with two labels or a formula such as"},
		{"fit|-formula|y ~ x|-likelihood|poison|" + counts, 2,
			`unknown likelihood "poison"; did you mean poisson?`},
		{"fit|-formula|y ~ x|-likelihood|normal-ish|" + counts, 2, "use one of beta, betabinomial"},
		{"gp|-formula|y ~ x|-kernel|rbf|" + table, 2, `unknown kernel "rbf"; use se`},
		{"fit|-formula|y ~ x|-likelihood|softmax|" + table, 0,
			"one of them the number 2.5; if they measure something"},
		{"fit|-formula|y ~ x|-likelihood|softmax|" + table, 0,
			" khat="},
		{"fit|-formula|y ~ x|-prior-sd|-1|" + table, 2, "-prior-sd is -1; set a positive number"},
		{"fit|-formula|y ~ x|-goal|nan|" + table, 2, "-goal is NaN"},
		{"gp|-formula|y ~ x|-tol|-1|" + table, 2, "-tol is -1"},
		{"fit|-formula|y ~ x|-o|" + dir + "|" + table, 2, "is a folder; choose a file name"},
		{"fit|-formula|y ~ x|-o|" + filepath.Join(dir, "none", "m") + "|" + table, 1,
			"cannot be written: no such file"},
		{"check|" + file("q.csv", "a,y\n6\" pipe,1\n\"x\" y,2\n"), 1, "set -format no-quotes"},
		{"fit|-formula|y ~ x|-likelihood|poisson|" + labels, 2,
			`no value is a number: "no" (2), "yes" (2)` +
				"\nPoisson needs numbers; omit -likelihood to fit labels or classes\n"},
		{"fit|-formula|z ~ x|-likelihood|poisson|" + labels, 0, "rows=4 weights=2"},
		{"fit|-formula|z ~ x|-likelihood|logit|" + labels, 0, `outcome, +1 = "1" (25.0%)`},
		{"fit|-formula|w ~ x|" + file("ab.csv", "x,w\n1,A\n2,B\n3,A\n4,B\n"), 2,
			`Outcome("w").Positive("B")`},
		{"fit|-formula|w ~ x|" + file("pair.csv", "x,w\n1,A\n2,B\n3,A\n4,B\n"), 2,
			"\ncolumn \"w\": you can also set -positive \"B\" or -positive \"A\"\n"},
		{"fit|-formula|z ~ exposure(y)|-likelihood|poisson|" + labels, 2,
			`column "y": no value is a number: "no" (2), "yes" (2)` + "\n"},
		{"fit|-formula|y ~ 1|-likelihood|poisson|" + counts, 0, "Poisson, 4 rows, 1 weight, "},
		{"fit|-formula|y ~ x|-likelihood|poisson|-prior-sd|5|" + counts, 0, "evaluations=1 "},
		{"fit|-formula|k/n ~ x|-likelihood|gaussian|" + trials, 1,
			`gaussian does not support successes "k" in trials "n"; use logit`},
		{"fit|-formula|x ~ z + exposure(u)|" + exposed, 1,
			"exposure(u) needs a rate, but gaussian has no rate"},
		{"fit|-formula|k/n ~ exposure(x)|" + trials, 1,
			"exposure(x) needs a rate, but logit has no rate"},
		{"fit|-formula|z ~ exposure(u)|-likelihood|poisson|" + exposed, 0, "rows=4 weights=1 "},
		{"fit|-formula|z ~ offset(u)|-likelihood|poisson|" + exposed, 0, "rows=4 weights=1 "},
		{"fit|-formula|z ~ offset(days)|-likelihood|poisson|" + exposed, 1,
			"offset(days) adds 200 to the log of the mean of Poisson; use exposure(days)"},
		{"fit|-formula|x ~ offset(days)|" + exposed, 0, "rows=4 weights=1 "},
		{"fit|-formula|k ~ x|" + trials, 1, "are whole numbers from 0 to 5; use poisson"},
		{"fit|-formula|k/n ~ x|" + trials, 0, "loo and neg_elbo are sums over trials"},
		{"fit|-formula|k/n ~ x|-likelihood|betabinomial|" + trials, 0, "BetaBinomial{Precision:"},
		{"fit|-formula|y ~ x|-o|" + table + "|" + table, 2, "is an input file; choose another name"},
		{"check|" + file("open.csv", "x,y\n1,2\n\"3,4\n5,6\n"), 1,
			"open.csv: line 4 of a record that begins in line 3, byte "},
		{"check|" + labels, 0, "the last column is the outcome"},
		{"check|-format|skip=x|" + table, 2, "-format has skip=x; set a number of lines"},
		{"check|-format|quotes|" + table, 2, `-format has an unknown word "quotes"; the words are separator=;`},
	} {
		status, out, stderr := run(t, strings.Split(c.args, "|")...)
		if status != c.status || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%s: %d, want %d: %s\n%s\nwant %s", c.args, status, c.status, stderr, out,
				c.want)
		}
		if strings.HasPrefix(c.args, "predict") && out != "" {
			t.Errorf("%s: an error, and a header:\n%s", c.args, out)
		}
		if c.status == 2 && strings.Count(stderr, "\n") > 6 {
			t.Errorf("%s: a long message:\n%s", c.args, stderr)
		}
	}
	if status, out, _ := run(t, "-version"); status != 0 || !strings.HasPrefix(out, "pgsvi ") {
		t.Errorf("-version: %d %s", status, out)
	}
	if left, err := os.ReadDir(dir); err != nil {
		t.Error(err)
	} else {
		for _, f := range left {
			if strings.HasPrefix(f.Name(), ".") {
				t.Errorf("%s is left", f.Name())
			}
		}
	}
}

// TestFormatFlag checks that -format reads tables that are not detected.
func TestFormatFlag(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ format, text, want string }{
		{"no-quotes", "a,y\n6\" pipe,1\n\"x\" y,2\n5\" pipe,3\n6\" pipe,3\n",
			"category of 3 levels"},
		{"separator=space", "a b y\n1 2 3.5\n4 5 6\n2 2 1\n", "y ~ a + b"},
		{"separator=tab header=no", "1\t2\t3.5\n4\t5\t6\n2\t2\t1\n", "y ~ x1 + x2"},
		{"separator=: decimal=,", "a:y\n1,234:3,5\n4,567:6,5\n2,111:1,5\n", "2.64 ± "},
		{"encoding=windows-1252", "a,y\n1,3.5\n2,4\n5,2\n", "Windows-1252"},
		{"header=yes", "2020,2021\n1,3.5\n2,4\n5,2\n", "`2021` ~ `2020`"},
		{"json", `{"a": 1, "y": 3.5}` + "\n" + `{"a": 2, "y": 4}` + "\n" + `{"a": 5, "y": 2}`,
			"y ~ a"},
		{"skip=2 comment=# skip-last=1",
			"Report of 2020\n\na,y\n1,3.5\n#2,x\n2,4\n5,2\nTotal,9.5\n", "y ~ a"},
	} {
		path := write(t, dir, "t.txt", c.text)
		if status, out, stderr := run(t, "check", "-format", c.format, path); status != 0 ||
			!strings.Contains(out, c.want) {
			t.Errorf("-format %q: %d %s%s\nwant %s", c.format, status, out, stderr, c.want)
		}
	}
	for _, bad := range []string{"separator=", "separator=;;", "decimal=x", "header=maybe",
		"encoding=latin", "skip=-1", "skip-last=yes", "comment=##", "what"} {
		if _, err := cli.FormatOf(data.Format{}, bad); err == nil {
			t.Errorf("-format %q is taken", bad)
		}
	}
}

// TestHeldOut checks that -test fits some rows and scores the others like predict -score.
func TestHeldOut(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,y,label\n")
	for i := range 100 {
		fmt.Fprintf(&b, "%d.5,%d.25,%d\n", i*7%41, i*7%41+i*i%5, i*i%3%2)
	}
	path := write(t, t.TempDir(), "t.csv", b.String())
	for _, args := range [][]string{
		{"fit", "-formula", "y ~ x"}, {"gp", "-formula", "y ~ x"},
		{"fit", "-formula", "label ~ x", "-likelihood", "logit"},
	} {
		if args[len(args)-1] == "logit" {
			columns := write(t, t.TempDir(), "c", `Outcome("label").Positive("1")`)
			args = append(args, "-columns", columns)
		}
		status, out, stderr := run(t, append(args, "-test", "0.2", path)...)
		for _, want := range []string{"80 rows", "held out 20 rows; 0 of them", "log loss", " bits=",
			" error=", "rows=80 "} {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%q: %d %s\n%s\nwant %s", args, status, stderr, out, want)
			}
		}
	}
	if status, _, stderr := run(t, "fit", "-formula", "y ~ x", "-test", "1.5", path); status == 0 ||
		!strings.Contains(stderr, "the test share is 1.5 of 100 rows") {
		t.Errorf("%d %s", status, stderr)
	}
}

// TestManyWeights checks that fit explains why a model with many weights has no khat.
func TestManyWeights(t *testing.T) {
	var b strings.Builder
	for j := range cli.MostPSIS {
		fmt.Fprintf(&b, "x%d,", j)
	}
	b.WriteString("y\n")
	for i := range 12 {
		for j := range cli.MostPSIS {
			fmt.Fprintf(&b, "%d,", (i+1)*(j+7)%1013)
		}
		fmt.Fprintf(&b, "%d.5\n", i*i%7)
	}
	path := write(t, t.TempDir(), "wide.csv", b.String())
	status, out, stderr := run(t, "fit", "-formula", "y ~ .", "-learn=false", path)
	if status != 0 || strings.Contains(out, "khat=") || !strings.Contains(stderr,
		"pgsvi: khat is not available for more than 1000 weights,") || !strings.Contains(stderr,
		"this model has 1001;") {
		t.Errorf("%d: %s\n%.2000s", status, stderr, out)
	}
	b.Reset()
	for j := range 80 {
		fmt.Fprintf(&b, "x%d,", j)
	}
	b.WriteString("y\n")
	for i := range 12 {
		for j := range 80 {
			fmt.Fprintf(&b, "%d,", (i+1)*(j+7)%101)
		}
		fmt.Fprintf(&b, "%c\n", 'a'+i%3)
	}
	path = write(t, t.TempDir(), "classes.csv", b.String())
	status, out, stderr = run(t, "fit", "-formula", "y ~ .", "-learn=false", path)
	if status != 0 || strings.Contains(out, "khat=") || !strings.Contains(stderr,
		"pgsvi: khat is not available for more than 200 weights of classes,") {
		t.Errorf("%d: %s\n%.2000s", status, stderr, out)
	}
}

// TestPredictFormat checks that predict ignores the same lines as fit, detects the separator of the
// new table, and lets -format override both.
func TestPredictFormat(t *testing.T) {
	dir := t.TempDir()
	train := write(t, dir, "train.csv", "Report\nx;y\n# a;b\n1;2.5\n2;3.5\n3;3.5\n4;5.5\n")
	model := filepath.Join(dir, "m")
	if status, _, stderr := run(t, "fit", "-formula", "y ~ x", "-format", "skip=1 comment=#", "-o",
		model, train); status != 0 {
		t.Fatal(stderr)
	}
	same := write(t, dir, "same.csv", "New\nx,z\n#,\n1,0\n2,0\n")
	bare := write(t, dir, "bare.csv", "x,z\n#,\n1,0\n2,0\n")
	for _, args := range [][]string{{model, same}, {"-format", "skip=0", model, bare}} {
		status, _, stderr := run(t, append([]string{"predict"}, args...)...)
		if status != 0 || !strings.Contains(stderr, "rows=2 errors=0") {
			t.Errorf("%q: %d %s", args, status, stderr)
		}
	}
}

// TestGPTable checks that the table of hyperparameters names the columns of the length scales and
// states their unit, and that its columns are aligned.
func TestGPTable(t *testing.T) {
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("height,kind,y\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "%d,%c,%.2f\n", i*7%40, 'a'+i%2, float64(i*i%11)+0.5*float64(i%2))
	}
	table := write(t, dir, "t.csv", rows.String())
	for _, c := range []struct{ flag, unit string }{
		{"-standardize=true", "in standard deviations of the columns"},
		{"-standardize=false", "in units of the columns"},
	} {
		status, stdout, stderr := run(t, "gp", "-ard", c.flag, "-formula", "y ~ height + kind", table)
		if status != 0 {
			t.Fatal(stderr)
		}
		column := -1
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, "  value") {
				column = strings.Index(line, "value")
			}
			if name, _, _ := strings.Cut(line, " "); column > 0 && strings.Contains(name, ".") &&
				!strings.Contains(name, "=4") && len(line) > column &&
				(line[column-1] != ' ' || line[column] == ' ') {
				t.Errorf("%s: the value does not begin below its heading: %s", c.flag, line)
			}
		}
		for _, want := range []string{"SquaredExp.Length[height] ", "SquaredExp.Length[kind=b] ",
			"GaussianNoise.Var ", " SquaredExp.Length[height]=", c.unit} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: no %q in\n%s", c.flag, want, stdout)
			}
		}
	}
}

// TestWrongKindOfFile checks the remedies for files of another kind than a verb reads.
func TestWrongKindOfFile(t *testing.T) {
	dir := t.TempDir()
	texts := write(t, dir, "texts.txt", strings.Repeat("cats chase dogs\nstocks rise, bonds fall\n", 6))
	model, empty := filepath.Join(dir, "topics.pgsvi"), filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	columns := write(t, dir, "columns.txt", "garbage\n")
	table := write(t, dir, "t.csv", "x,y\n1,3\n2,3\n4,3\n")
	if status, _, stderr := run(t, "topics", "-topics", "2", "-o", model, texts); status != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct {
		args   string // split at |
		status int
		want   string
	}{
		{"predict|-format|comment=#|" + model + "|" + texts, 2, "which predicts documents"},
		{"predict|" + model + "|-", 2, "write them to a file that ends in .txt"},
		{"predict|" + model + "|" + table, 1, "t.csv: read as lda-c"},
		{"topics|-", 2, "write them to a file that ends in .txt"},
		{"topics|" + empty, 1, "give it a folder with one text per file"},
		{"check|-columns|" + columns + "|" + table, 1, "columns.txt: columns, line 1: "},
		{"check|" + table, 0, "all outcomes are 3, so there is nothing to predict"},
	} {
		status, stdout, stderr := run(t, strings.Split(c.args, "|")...)
		if status != c.status || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: status %d, want %d and %q:\n%s%s", c.args, status, c.status, c.want, stdout,
				stderr)
		}
	}
}
