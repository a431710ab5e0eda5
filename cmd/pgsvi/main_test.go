package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// run runs the command in this process.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	c := &command{ctx: context.Background(), stdout: &out, stderr: &err}
	status = c.run(args)
	return status, out.String(), err.String()
}

// value returns the number after key= in a line.
func value(t *testing.T, line, key string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?:^|\s)` + regexp.QuoteMeta(key) + `=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no %s= in %s", key, line)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// visits writes a table of labels with a category, a number, a group and a missing value.
func visits(t *testing.T, n int) (path string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	var b strings.Builder
	b.WriteString("plan;age;shop;bought\n")
	for i := range n {
		age, shop := 20+40*rng.Float64(), rng.IntN(5)
		plan := []string{"Gold", "basic"}[rng.IntN(2)]
		eta := 0.05*(age-40) + 0.5*float64(shop-2)
		bought := "no"
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			bought = "yes"
		}
		text := strings.Replace(fmt.Sprintf("%.2f", age), ".", ",", 1)
		if i == 7 {
			text = "k.A."
		}
		fmt.Fprintf(&b, "%s;%s;s%d;%s\n", plan, text, shop, bought)
	}
	path = filepath.Join(t.TempDir(), "visits.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTable takes a file with open decisions to predictions, as a user would.
func TestTable(t *testing.T) {
	n := testkit.Shorter(300, 150)
	path := visits(t, n)
	dir := filepath.Dir(path)
	columns, model := filepath.Join(dir, "columns.txt"), filepath.Join(dir, "visits.pgsvi")
	status, out, _ := run(t, "check", path)
	if status != 2 || !strings.Contains(out, `Number("age").MissingAre("k.A.").Impute()`) ||
		!strings.Contains(out, "separator ';'") {
		t.Errorf("check: %d\n%s", status, out)
	}
	formula := "bought ~ plan + age + (1 | shop)"
	if status, _, err := run(t, "fit", "-formula", formula, path); status != 2 ||
		!strings.Contains(err, "k.A.") {
		t.Errorf("a fit with open questions: %d, %s", status, err)
	}
	if status, out, err := run(t, "check", "-formula", formula, "-columns", columns,
		path); status != 2 || !strings.Contains(out, "columns.txt") {
		t.Fatalf("check -columns: %d\n%s%s", status, out, err)
	}
	if status, out, err := run(t, "check", "-formula", formula, "-columns", columns,
		path); status != 0 || !strings.Contains(out, "an intercept for each shop") {
		t.Fatalf("check with columns: %d\n%s%s", status, out, err)
	}
	status, out, stderr := run(t, "fit", "-formula", formula, "-columns", columns, "-o", model,
		path)
	if status != 0 {
		t.Fatalf("fit: %d %s", status, stderr)
	}
	if rows, gap, sd := value(t, out, "rows"), value(t, out, "gap_bound"),
		value(t, out, "sd[shop]"); rows != float64(n) || gap > 1e-3 || !(sd > 0.1 && sd < 3) {
		t.Errorf("fit: %s", out)
	}
	for _, key := range []string{"weights", "neg_elbo", "loo", "khat", "evaluations", "seconds",
		"sd[effects]"} {
		value(t, out, key)
	}
	status, out, stderr = run(t, "predict", "-score", model, path)
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || status != 0 || len(records) != n+1 || records[0][1] != "P(yes)" {
		t.Fatalf("predict: %d %v %s", status, err, stderr)
	}
	if value(t, stderr, "rows") != float64(n) || value(t, stderr, "errors") != 0 ||
		value(t, stderr, "error") > 0.5 || value(t, stderr, "bits") > 1 {
		t.Errorf("score: %s", stderr)
	}
	strange := filepath.Join(dir, "new.csv")
	if err := os.WriteFile(strange,
		[]byte("shop,age,plan\ns1,33.5,basic\ns9,41.5,basic\ns1,what,basic\ns1,41,silver\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	status, out, stderr = run(t, "predict", model, strange)
	records, err = csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || status != 3 || len(records) != 5 || value(t, stderr, "errors") != 2 {
		t.Fatalf("predict: %d %v %s\n%s", status, err, stderr, out)
	}
	for i, want := range []string{"", "is new", "error: ", "error: "} {
		r := records[i+1]
		if note := r[4]; !strings.Contains(note, want) || (want == "error: ") != (r[1] == "") {
			t.Errorf("row %d: %q, want %q", i+1, r, want)
		}
	}
}

func TestGP(t *testing.T) {
	path := visits(t, 120)
	model := filepath.Join(filepath.Dir(path), "gp.pgsvi")
	columns := filepath.Join(filepath.Dir(path), "columns.txt")
	if err := os.WriteFile(columns,
		[]byte("Outcome(\"bought\").Positive(\"yes\"),\nNumber(\"age\").MissingAre(\"k.A.\").Drop(),\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, stderr := run(t, "gp", "-kernel", "matern52", "-formula", "bought ~ age + plan",
		"-columns", columns, "-o", model, path)
	if status != 0 || value(t, out, "rows") != 119 {
		t.Fatalf("gp: %d %s\n%s", status, stderr, out)
	}
	status, out, stderr = run(t, "predict", "-score", model, path)
	if status != 3 || strings.Count(out, "\n") != 121 || value(t, stderr, "errors") != 1 {
		t.Errorf("predict: %d %s", status, stderr)
	}
}

// TestGPFar fits a Gaussian process to a curve of numbers far from 0. It checks that predictions away
// from the rows stay near them, and that loo prefers the curve to a line.
func TestGPFar(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,y\n")
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 60 {
		x := float64(i) / 10
		fmt.Fprintf(&b, "%v,%v\n", x, 340+math.Sin(x)+0.1*rng.NormFloat64())
	}
	dir := t.TempDir()
	path, model := write(t, dir, "far.csv", b.String()), filepath.Join(dir, "far.pgsvi")
	status, out, stderr := run(t, "gp", "-o", model, path)
	if status != 0 || strings.Contains(stderr, "warning") {
		t.Fatalf("gp: %d %s\n%s", status, stderr, out)
	}
	_, line, _ := run(t, "fit", "-formula", "y ~ x", path)
	if curve, line := value(t, out, "loo"), value(t, line, "loo"); !(curve > line+50) {
		t.Errorf("loo %v of the curve, and %v of a line", curve, line)
	}
	status, out, stderr = run(t, "predict", model, write(t, dir, "new.csv", "x\n1.55\n1000\n"))
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) < 3 {
		t.Fatalf("predict: %d %s\n%s", status, stderr, out)
	}
	for i, within := range []float64{0.1, 3} {
		mean, err := strconv.ParseFloat(strings.Split(lines[1+i], ",")[1], 64)
		if err != nil || math.Abs(mean-340-[]float64{1, 0}[i]) > within {
			t.Errorf("row %d: %s", i+1, lines[1+i])
		}
	}
}

// TestTopics fits topic models to texts about two subjects, and predicts new documents with them.
func TestTopics(t *testing.T) {
	dir := t.TempDir()
	corpus := filepath.Join(dir, "texts.txt")
	text := strings.Repeat(
		"cat dog bird cat dog\ndog bird cat bird\nstock bond fund stock\nbond stock fund fund\n",
		20)
	if err := os.WriteFile(corpus, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"ctm", "lda"} {
		file := filepath.Join(dir, model)
		status, out, stderr := run(t, "topics", "-model", model, "-topics", "2", "-o", file, corpus)
		if status != 0 || value(t, out, "documents") != 80 || !strings.Contains(out, "topic  2") {
			t.Errorf("%s: %d %s\n%s", model, status, stderr, out)
		}
		fresh := write(t, dir, "new.txt", "a cat and a dog and a dog\n\nzebra\nstock fund\n")
		status, out, stderr = run(t, "predict", "-score", file, fresh)
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if status != 0 || err != nil || len(rows) != 4 || len(rows[0]) != 8 ||
			value(t, stderr, "documents") != 3 || value(t, stderr, "tokens") != 2 ||
			!(value(t, stderr, "neg_log_prob") < math.Log(8)) {
			t.Fatalf("%s: %d %s\n%s", model, status, stderr, out)
		}
		number := func(row, column int) float64 {
			v, err := strconv.ParseFloat(rows[row][column], 64)
			if err != nil {
				t.Error(err)
			}
			return v
		}
		if (number(1, 1) > 0.5) == (number(3, 1) > 0.5) {
			t.Errorf("%s: pets and markets have the same topic:\n%s", model, out)
		}
		for row, name := range []string{1: "1", 2: "3", 3: "4"} {
			if row == 0 {
				continue
			}
			if rows[row][0] != name || math.Abs(number(row, 1)+number(row, 4)-1) > 1e-5 ||
				!(number(row, 2) < number(row, 1) && number(row, 1) < number(row, 3)) ||
				(rows[row][7] != "") != (name == "3") {
				t.Errorf("%s, document %s: %v", model, name, rows[row])
			}
		}
		status, _, stderr = run(t, "predict", "-score", file, write(t, dir, "one.txt", "cat\n"))
		if status != 1 || !strings.Contains(stderr, "no document has two words") {
			t.Errorf("%s: %d %s", model, status, stderr)
		}
	}
}

// TestUsage checks the status of wrong command lines, and that the flags of each verb fit a screen.
func TestUsage(t *testing.T) {
	path := visits(t, 50)
	for _, args := range [][]string{
		{"fit", "-formula", "bought ~ age", "-o", filepath.Join(path, "none", "m"), path},
		{"topics", "-topics", "1", path},
		{}, {"guess"}, {"fit"}, {"fit", "-nothing", path}, {"fit", path}, {"predict", path},
		{"topics", "-model", "x", path},
		{"fit", "-formula", "bought ~ age", "-likelihood", "x", path}, {"gp", "-kernel", "x", path},
		{"fit", "-formula", "bought ~", path},
	} {
		if status, _, stderr := run(t, args...); status == 0 || stderr == "" {
			t.Errorf("%q: status %d, %s", args, status, stderr)
		}
	}
	if status, out, _ := run(t, "-h"); status != 0 || !strings.Contains(out, "pgsvi fit") {
		t.Errorf("-h: %d %s", status, out)
	}
	for _, v := range verbs {
		status, _, out := run(t, v.name, "-h")
		if status != 0 || strings.Count(out, "\n") > 30 || !strings.Contains(out, v.about) {
			t.Errorf("%s -h: %d\n%s", v.name, status, out)
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(line)); n > 101 {
				t.Errorf("%s -h: %d columns: %s", v.name, n, line)
			}
		}
	}
	_, _, help := run(t, "fit", "-h")
	for name := range cli.Likelihoods {
		if !strings.Contains(help, name) {
			t.Errorf("fit -h is without %s", name)
		}
	}
	_, _, help = run(t, "gp", "-h")
	for name := range cli.Kernels {
		if !strings.Contains(help, name) {
			t.Errorf("gp -h is without %s", name)
		}
	}
	if status, _, stderr := run(t, "check", path+"x"); status != 1 ||
		!strings.HasPrefix(stderr, "pgsvi: ") {
		t.Errorf("no file: %d %s", status, stderr)
	}
	if status, _, stderr := run(t, "predict", path, path); status != 1 ||
		!strings.Contains(stderr, "visits.csv") {
		t.Errorf("no model: %d %s", status, stderr)
	}
}

// TestTruth compares fits with independent optima.
func TestTruth(t *testing.T) {
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	for _, c := range []struct {
		file, likelihood string
		negELBO, sd      float64
	}{
		{"re_logit20.csv", "logit", 354.78337421328735, 0.9383278191589168},
		{"re_poisson200.csv", "poisson", 9171.890755636476, 0.19626485538233288},
	} {
		path := filepath.Join(dir, "..", "truth", c.file)
		status, out, stderr := run(t, "fit", "-formula", "y ~ x1 + x2 + (1 | group)", "-likelihood",
			c.likelihood, "-standardize=false",
			"-prior-sd", "10", "-intercept-sd", "10", "-no-prior", "-goal", "1e-9", path)
		if status != 0 {
			t.Fatalf("%s: %s", c.file, stderr)
		}
		if got := value(t, out, "neg_elbo"); math.Abs(got-c.negELBO) > 1e-6 {
			t.Errorf("%s: neg_elbo %v, want %v", c.file, got, c.negELBO)
		}
		if got := value(t, out, "sd[group]"); math.Abs(got-c.sd) > 1e-5 {
			t.Errorf("%s: sd[group] %v, want %v", c.file, got, c.sd)
		}
	}
}

// TestClassesGP fits a Gaussian process with three labels and learns its kernel.
func TestClassesGP(t *testing.T) {
	var b strings.Builder
	b.WriteString("size,kind\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%g,%s\n", float64(i%3)+math.Sin(float64(i)), []string{"a", "b", "c"}[i%3])
	}
	dir := t.TempDir()
	path, model := filepath.Join(dir, "kinds.csv"), filepath.Join(dir, "kinds.pgsvi")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	status, fixed, stderr := run(t, "gp", "-learn=false", path)
	if status != 0 {
		t.Fatalf("gp: %d %s%s", status, fixed, stderr)
	}
	status, out, stderr := run(t, "gp", "-o", model, path)
	if is, was := value(t, out, "neg_elbo"), value(t, fixed, "neg_elbo"); !(is < was) {
		t.Errorf("−ELBO %v where it learns, %v where it does not", is, was)
	}
	if status != 0 || !strings.Contains(out, " gap_bound=+Inf") {
		t.Fatalf("gp: %d %s%s", status, out, stderr)
	}
	status, out, stderr = run(t, "predict", model, path)
	if lines := strings.Split(out, "\n"); status != 0 || len(lines) < 61 ||
		!strings.HasPrefix(lines[0], "row,class,P(a),P(b),P(c)") {
		t.Errorf("predict: %d %s%s", status, out, stderr)
	}
}

// TestClasses fits numbers as classes if -likelihood requires it, and texts as classes by default.
func TestClasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	var numbers, texts strings.Builder
	for _, b := range []*strings.Builder{&numbers, &texts} {
		b.WriteString("a,b,y\n")
	}
	for range testkit.Longer(120, testkit.Shorter(60, 25)) {
		c := rng.IntN(3)
		x := fmt.Sprintf("%.3f,%.3f,", float64(c)+0.5*rng.NormFloat64(), rng.NormFloat64())
		fmt.Fprintf(&numbers, "%s%d\n", x, c+1)
		fmt.Fprintf(&texts, "%s%s\n", x, []string{"ant", "bee", "fly"}[c])
	}
	dir := t.TempDir()
	var elbo [2]float64
	for i, text := range []string{numbers.String(), texts.String()} {
		path, model := filepath.Join(dir, fmt.Sprintf("%d.csv", i)),
			filepath.Join(dir, fmt.Sprintf("%d.pgsvi", i))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"fit", "-formula", "y ~ .", "-prior-sd", "1", "-learn=false", "-o", model}
		if i == 0 {
			args = append(args, "-likelihood", "softmax")
		}
		status, out, stderr := run(t, append(args, path)...)
		if status != 0 {
			t.Fatalf("fit: %d\n%s", status, stderr)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		elbo[i] = value(t, lines[len(lines)-1], "neg_elbo")
		status, out, stderr = run(t, "predict", "-score", model, path)
		want := []string{"row,class,P(1),P(2),P(3),note\n",
			"row,class,P(ant),P(bee),P(fly),note\n"}[i]
		if status != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("predict: %d, %s\n%s", status, stderr, out)
		}
		if e := value(t, stderr, "error"); !(e < 0.4) ||
			!(value(t, stderr, "bits") < math.Log2(3)) {
			t.Errorf("score: %s", stderr)
		}
	}
	if !(math.Abs(elbo[0]-elbo[1]) < 1e-6) {
		t.Errorf("ELBOs %v of the same classes", elbo)
	}
}

// TestLastLine checks that the last line of fit has the same keys and no NaN, whether or not a
// parameter is learned and a bound on the gap is known, which beta does not have.
func TestLastLine(t *testing.T) {
	path := write(t, t.TempDir(), "shares.csv", "x,y\n1,0.1\n2,0.5\n3,0.9\n4,0.7\n")
	const keys = "rows weights neg_elbo gap_bound loo khat evaluations seconds"
	for _, flags := range [][]string{
		{"-likelihood", "beta"}, {"-likelihood", "beta", "-learn=false"}, {}, {"-learn=false"},
	} {
		args := append([]string{"fit", "-formula", "y ~ x", path}, flags...)
		status, out, stderr := run(t, args...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		last := strings.Fields(lines[len(lines)-1])
		for i, field := range last {
			last[i], _, _ = strings.Cut(field, "=")
		}
		got := strings.Join(last, " ")
		if status != 0 || !strings.HasPrefix(got, keys) || strings.Contains(out, "NaN") {
			t.Errorf("%q: %d %s%s", flags, status, out, stderr)
		}
	}
}
