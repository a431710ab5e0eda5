package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// testOptions returns options that need no other program.
func testOptions(t *testing.T) (o *options, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &options{testdata: "../../testdata", temp: t.TempDir(), out: t.TempDir(), repeats: 1,
			rows:   10,
			python: "no-such-python", rscript: "no-such-R", stdout: stdout, stderr: stderr}, stdout,
		stderr
}

func ionosphere(t *testing.T, o *options) *split {
	t.Helper()
	p, err := paper.Ionosphere(o.testdata)
	if err != nil {
		t.Fatal(err)
	}
	return &split{name: p.Name, x: p.X, xTest: p.XTest, y: p.Y, yTest: p.YTest, problem: p}
}

// TestParse checks that tables of Python and R scripts are parsed.
func TestParse(t *testing.T) {
	const table = `method,variant,seed,pass,logloss_bits,seconds,predict,note,pareto_k
GPC,"learned, twice",1,nan,0.5,0.25,0.01,"scale 2, length 3",nan
"ADVI","meanfield",3,10000,NA,1.5,0.003,"",1.25
`
	o, _, _ := testOptions(t)
	o.part, o.versions = "gp", map[string]string{"python3": "scikit-learn 1.2"}
	rows, err := o.parse(strings.NewReader(table), "set", "python3")
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	if r := rows[0]; r.work != "set" || r.part != "gp" || r.version != "scikit-learn 1.2" ||
		r.threads != 1 || r.label() != "GPC, learned, twice" || r.seed != 1 ||
		!math.IsNaN(r.pass) ||
		r.bits != 0.5 || r.seconds != 0.25 || r.predict != 0.01 || r.note != "scale 2, length 3" {
		t.Errorf("the first row is %+v", r)
	}
	if r := rows[1]; r.seed != 3 || r.pass != 10000 || !math.IsNaN(r.bits) ||
		!math.IsNaN(r.negELBO) || r.more["pareto_k"] != 1.25 {
		t.Errorf("the second row is %+v", r)
	}
	for _, bad := range []string{"", "method,seed\n", "method,seed\nGPC,one\n", "seconds\nfast\n",
		"seed,seconds\n1\n"} {
		if _, err := o.parse(strings.NewReader(bad), "set", "python3"); err == nil {
			t.Errorf("%q gives no error", bad)
		}
	}
}

// TestCSV checks that peers.csv is read as it was written, and that another table is an error.
func TestCSV(t *testing.T) {
	o, _, _ := testOptions(t)
	o.part = "gp"
	r := o.newRow("ionosphere", "GPC", "learned, twice")
	r.seconds, r.ratio, r.note, r.more = 0.25, 2, "scale 2, length 3",
		map[string]float64{"pareto_k": 1.5}
	if err := writeCSV(o.out, []row{r, o.newRow("sonar", "GPC", "")}); err != nil {
		t.Fatal(err)
	}
	rows, err := readCSV(o.out)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if got, want := fmt.Sprintf("%+v", rows[0]), fmt.Sprintf("%+v", r); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if rows, err := readCSV(t.TempDir()); rows != nil || err != nil {
		t.Errorf("%v, %v without a file", rows, err)
	}
	for name, content := range map[string]string{"other columns": "a,b\n1,2\n",
		"no number": strings.Join(header, ",") + "\n" + strings.Repeat("x,", len(header)-1) +
			"x\n"} {
		if err := os.WriteFile(filepath.Join(o.out, "peers.csv"), []byte(content),
			0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readCSV(o.out); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestStored checks that the tables of README.md match peers.csv.
func TestStored(t *testing.T) {
	rows, err := readCSV(".")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range tablesOf(rows) {
		_, block, _, ok := tables.Lookup(string(readme), name)
		if !ok {
			t.Errorf("README.md has no table %s", name)
		} else if strings.TrimSpace(block) != strings.TrimSpace(want) {
			t.Errorf("%s is not that of peers.csv: go generate ./bench/...", name)
		}
	}
}

// TestTables checks that -tables prints tables from a file without a fit, and that the rows of
// another run replace old rows.
func TestTables(t *testing.T) {
	o, stdout, _ := testOptions(t)
	var rows []row
	for _, p := range parts {
		o.part = p.name
		for i, method := range []string{"A", "B"} {
			r := o.newRow("set", method, "")
			r.seconds, r.bits, r.negELBO = float64(2-i), 0.5, 10
			rows = append(rows, r)
		}
		relate(rows[len(rows)-2:], "A")
	}
	if err := writeCSV(o.out, rows); err != nil {
		t.Fatal(err)
	}
	o.tables, o.readme = true, filepath.Join(o.out, "README.md")
	if err := os.WriteFile(o.readme, []byte("<!-- begin peers glm -->\n<!-- end peers glm -->\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"peers gp\n\n|  | set, seconds (ratio) | bits |\n|---|---|---|\n| A | 2.0000 (1.00) | " +
			"0.5000 |\n| B | 1.0000 (0.50) | 0.5000 |\n",
		"| B | 1.0000 | 0.50 |  | 0.5000 |  |\n",
		"| set | B | 1.0000 | 0.5 | 0 | 0.5000 | 0.5000–0.5000 |",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
	readme, err := os.ReadFile(o.readme)
	if err != nil || !strings.Contains(string(readme), "| A | 2.0000 (1.00) | 0.5000 |") {
		t.Errorf("the file has %s, %v", readme, err)
	}
	again := rows[1]
	again.seconds = 7
	if all := merge(rows, []row{again}); len(all) != len(rows)-1 || all[len(all)-1].seconds != 7 {
		t.Errorf("%d rows after a data set of two is measured again by one, want %d", len(all),
			len(rows)-1)
	}
}

// TestCores checks that fits are timed on one core and on two, and the ratio in the table.
func TestCores(t *testing.T) {
	o, _, _ := testOptions(t)
	o.part, o.repeats = "cores", 2
	var workers []int
	rows, err := o.clocks("set", "GP", "GP, nil Solver", func(by *pgsvi.Solver) error {
		workers = append(workers, by.Workers)
		return nil
	})
	if err != nil || !slices.Equal(workers, []int{1, 2, 1, 2}) || len(rows) != 2 ||
		rows[0].threads != 1 || rows[1].threads != 2 {
		t.Fatalf("workers %v, rows %+v, %v", workers, rows, err)
	}
	rows[0].seconds, rows[1].seconds = 3, 2
	if table, want := coresTable(rows),
		"| set | pgsvi, GP, nil Solver | 3.0000 | 2.0000 | 1.50 |"; !strings.Contains(table, want) {
		t.Errorf("there is no %q in\n%s", want, table)
	}
	if _, err := o.clocks("set", "GP", "GP, nil Solver",
		func(*pgsvi.Solver) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("a fit that fails: %v", err)
	}
}

// TestStream checks that part stream runs the example.
func TestStream(t *testing.T) {
	testkit.NotShort(t)
	o, _, _ := testOptions(t)
	o.streamed = 1000
	rows, err := o.stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || !(rows[0].seconds >= 0) || !(rows[0].known("peak_mb") > 1) ||
		rows[0].work != "1000 rows × 30 from a file" {
		t.Errorf("rows %+v", rows)
	}
}

// TestGP checks the rows of this library on ionosphere, with the hyperparameters of the paper given
// directly and through a file of a script.
func TestGP(t *testing.T) {
	o, _, _ := testOptions(t)
	s := ionosphere(t, o)
	learned := filepath.Join(o.temp, "learned")
	theta := []float64{2 * s.problem.LogScale, s.problem.LogLength}
	if err := writeRows(learned, mat.NewDense(1, 1, theta[:1]), theta[1:]); err != nil {
		t.Fatal(err)
	}
	rows, err := o.gpRows(context.Background(), s, learned)
	if err != nil {
		t.Fatal(err)
	}
	rough, end, theirs := rows[0], rows[1], rows[2]
	if math.Abs(end.bits-0.4177) > 1e-4 || math.Abs(end.negELBO-89.26565163) > 1e-6 {
		t.Errorf("%v bits at −ELBO %v", end.bits, end.negELBO)
	}
	if math.Abs(theirs.bits-end.bits) > 1e-6 {
		t.Errorf("%v bits at the hyperparameters of the file, want %v", theirs.bits, end.bits)
	}
	if excess := rough.negELBO - end.negELBO; !(excess > 0 && excess <= 1e-3*280) ||
		rough.pass >= end.pass {
		t.Errorf("%v nats from the optimum after %v passes of %v", excess, rough.pass, end.pass)
	}
}

// TestCompare checks that a q with the moments of the posterior is at the optimum, and that other
// means and variances give the right distance.
func TestCompare(t *testing.T) {
	o, _, _ := testOptions(t)
	s := ionosphere(t, o)
	g, err := pgsvi.NewGLM(s.x, s.y, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	objective, err := g.Objective()
	if err != nil {
		t.Fatal(err)
	}
	d := post.Dim()
	mean, sd, cov := mat.NewDense(1, d, post.Mean(nil)), post.SD(nil), mat.DenseCopyOf(post.Cov())
	moments := filepath.Join(o.temp, "moments")
	ours := o.newRow(s.name, "GLM", "full")
	ours.negELBO = -res.ELBO
	all := []row{ours}
	for seed := range 2 {
		if seed == 1 {
			mean.Set(0, 5, mean.At(0, 5)+2*sd[5])
			cov.Scale(4, cov)
		}
		// writeRows writes the moments as one row of numbers, whose last number is the response.
		numbers := slices.Concat(mean.RawRowView(0), cov.RawMatrix().Data)
		last := len(numbers) - 1
		if err := writeRows(fmt.Sprintf("%s-fullrank-%d", moments, seed),
			mat.NewDense(1, last, numbers[:last]), numbers[last:]); err != nil {
			t.Fatal(err)
		}
		r := o.newRow(s.name, "ADVI", "fullrank")
		r.seed, r.bits, r.more = seed, 1, map[string]float64{"converged": float64(seed)}
		if err := compare(&r, post, objective, moments); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for i, want := range [][4]float64{{0, 0, 0, 0}, {2, 0, 1, 1}} {
		for j, name := range []string{"mean_worst", "mean_median", "sd_worst", "sd_median"} {
			if got := all[i+1].more[name]; math.Abs(got-want[j]) > 1e-9 {
				t.Errorf("%s is %v, want %v", name, got, want[j])
			}
		}
	}
	if excess := all[1].negELBO - ours.negELBO; math.Abs(excess) > 1e-6 {
		t.Errorf("the posterior itself is %v nats from the optimum", excess)
	}
	if excess := all[2].negELBO - ours.negELBO; excess < 1 {
		t.Errorf("a worse q is %v nats from the optimum", excess)
	}
	fails := o.newRow(s.name, "ADVI", "fullrank")
	if err := compare(&fails, post, objective, moments); err != nil {
		t.Fatal(err)
	}
	table := adviTable(append(all, fails))
	if want := "| 2.00 (0.00) | 1.00 (1.00) |"; !strings.Contains(table, want) ||
		!strings.Contains(table, "1, failed 1, of 3") {
		t.Errorf("the table has no %q:\n%s", want, table)
	}
}

// TestGrid checks the table of several data sets side by side, with the ratios of the rows.
func TestGrid(t *testing.T) {
	nan := math.NaN()
	a := row{work: "s", name: "A", seconds: 2, ratio: 1, bits: 0.5}
	b := row{work: "s", name: "B", seconds: 1, ratio: 0.5, bits: nan}
	c := row{work: "u", name: "B", seconds: 3, ratio: nan, bits: 0.25}
	const want = `|  | s, seconds (ratio) | bits | u, seconds (ratio) | bits |
|---|---|---|---|---|
| A | 2.0000 (1.00) | 0.5000 |  |  |
| B | 1.0000 (0.50) |  | 3.0000 | 0.2500 |
`
	if got := grid([]row{a, b, c}); got != want {
		t.Errorf("got %s", got)
	}
}

// TestMissing checks that missing data and programs are skipped with a message.
func TestMissing(t *testing.T) {
	o, _, stderr := testOptions(t)
	o.only = nil
	for _, p := range parts {
		if p.name != "stream" {
			o.only = append(o.only, p.name)
		}
	}
	if err := o.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range o.only {
		if !strings.Contains(stderr.String(), name+" is left out: no-such-") {
			t.Errorf("no message about %s in\n%s", name, stderr)
		}
	}
}

// TestParseFlags checks that invalid flags are errors.
func TestParseFlags(t *testing.T) {
	var w bytes.Buffer
	for _, args := range []string{"-only gp,knitting", "glm", "-only gp glm", "glm -only gp",
		"-repeats 0", "-rows 999", "-streamed 999"} {
		if _, err := parseFlags(strings.Fields(args), &w, &w); err == nil {
			t.Errorf("%s gives no error", args)
		}
	}
	o, err := parseFlags(strings.Fields("-only advi,gp -rows 1000 -repeats 1"), &w, &w)
	if err != nil || o.rows != 1000 || !slices.Equal(o.only, []string{"advi", "gp"}) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestLeftOut checks that missing data sets are skipped with one message each, that all others are
// used, and that an unreadable data set is an error.
func TestLeftOut(t *testing.T) {
	ctx := context.Background()
	for name, data := range map[string]string{"no folder": "", "an empty folder": t.TempDir(),
		"no such folder": filepath.Join(t.TempDir(), "none")} {
		t.Run(name, func(t *testing.T) {
			o, _, stderr := testOptions(t)
			o.data = data
			for range 2 {
				splits, err := o.splits()
				if err != nil {
					t.Fatal(err)
				}
				if len(splits) != 2 || splits[0].name != "sonar" || splits[1].name != "ionosphere" {
					t.Errorf("%d data sets, want sonar and ionosphere", len(splits))
				}
				if rows, err := o.a9a(ctx); rows != nil || err != nil {
					t.Errorf("a9a gives %d rows, %v", len(rows), err)
				}
			}
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			if len(lines) != 2 || !strings.HasPrefix(lines[0], "USPS is left out: ") ||
				!strings.HasPrefix(lines[1], "a9a is left out: ") {
				t.Errorf("the messages are %q", lines)
			}
		})
	}

	o, stdout, stderr := testOptions(t)
	o.testdata = t.TempDir()
	for _, part := range []func(context.Context) ([]row, error){o.gp, o.glm, o.advi} {
		if rows, err := part(ctx); len(rows) != 0 || err != nil {
			t.Errorf("%d rows without data, %v", len(rows), err)
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("without data it prints %s", stdout)
	}
	if n := strings.Count(stderr.String(), "is left out"); n != 4 {
		t.Errorf("%d messages, want those of sonar, ionosphere, USPS and a9a:\n%s", n, stderr)
	}

	o, _, _ = testOptions(t)
	o.data = t.TempDir()
	if err := os.CopyFS(o.data, fstest.MapFS{
		"usps/standin_resampled_index.txt": {Data: []byte("one\n")},
		"a9a/a9a.gz":                       {Data: []byte("not compressed")},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.splits(); err == nil {
		t.Error("a damaged file of USPS gives no error")
	}
	if _, err := o.a9a(ctx); err == nil {
		t.Error("a damaged file of a9a gives no error")
	}
}

// TestVariants checks that different fits of a part have different variants, and that their labels
// name the library.
func TestVariants(t *testing.T) {
	ctx := context.Background()
	o, _, _ := testOptions(t)
	s := ionosphere(t, o)
	learned := filepath.Join(o.temp, "learned")
	if err := writeRows(learned, mat.NewDense(1, 1, []float64{0}), []float64{0}); err != nil {
		t.Fatal(err)
	}
	gp, err := o.gpRows(ctx, s, learned)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := o.glmRows(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	own, _, err := o.ownRows(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(gp, glm, own)
	var got []string
	for _, r := range all {
		got = append(got, r.method+" | "+r.variant)
		if !strings.HasPrefix(r.label(), "pgsvi, ") {
			t.Errorf("the label of %s is %q", r.variant, r.label())
		}
	}
	want := []string{
		"GP | gap 0.001 nats per observation", "GP | ", "GP | learned by GPC",
		"GLM | full, gap 0.01 nats", "GLM | full", "GLM | full, one pass", "GLM | full",
		"GLM | diagonal",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the fits are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMedian checks that the median of two is the larger, and that it is NaN if an element is NaN.
func TestMedian(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{2, 1}, 2}, {[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 3}} {
		if got := median(test.v); got != test.want {
			t.Errorf("the median of %v is %v, want %v", test.v, got, test.want)
		}
	}
	if got := median([]float64{1, math.NaN(), 2}); !math.IsNaN(got) {
		t.Errorf("the median with NaN is %v", got)
	}
}

// TestCPU checks that the measured seconds of a loop are positive and small.
func TestCPU(t *testing.T) {
	o, _, _ := testOptions(t)
	var sum float64
	s, err := o.seconds(func() error {
		for i := range 10_000_000 {
			sum += math.Sqrt(float64(i))
		}
		return nil
	})
	if err != nil || !(s > 0 && s < 60) {
		t.Errorf("%v seconds, %v", s, err)
	}
}

// TestLDA checks the documents that a script reads. A posterior from the parameters in the file of
// the script must have the same score as the original posterior.
func TestLDA(t *testing.T) {
	ctx := context.Background()
	o, _, _ := testOptions(t)
	c := &pgsvi.Corpus{Terms: 7}
	for n := range 20 {
		c.Docs = append(c.Docs,
			pgsvi.Document{Words: []int{n % 3, 3 + n%4}, Counts: []float64{float64(2 + n%2), 4}})
	}
	path := filepath.Join(o.temp, "documents")
	if err := writeDocuments(path, c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "2 0:2 3:4\n2 1:3 4:4\n") {
		t.Errorf("documents %.40q, %v", text, err)
	}
	m, err := pgsvi.NewLDA(c, ldaTopics, &pgsvi.LDAOptions{DocPrior: 0.1, TopicPrior: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := m.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	lambda := post.Lambda().RawMatrix().Data
	last := len(lambda) - 1
	topics := filepath.Join(o.temp, "topics")
	if err := writeRows(topics, mat.NewDense(1, last, lambda[:last]), lambda[last:]); err != nil {
		t.Fatal(err)
	}
	again, err := posteriorOf(ctx, c, topics, 0.1, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	a, b := o.newRow("ap", "A", ""), o.newRow("ap", "B", "")
	if err := errors.Join(a.score(post, c), b.score(again, c)); err != nil {
		t.Fatal(err)
	}
	if !(a.bits > 0) || math.Abs(a.bits-b.bits) > 1e-12 {
		t.Errorf("scores %v and %v", a.bits, b.bits)
	}
	b.method, b.seconds, b.ratio, b.seed = "A", 3, 3, 2
	a.seconds, a.ratio = 1, 1
	if want := fmt.Sprintf("| A | 2.00 | 2.00 | %.3f (%.3f–%.3f) |", a.bits*math.Ln2,
		a.bits*math.Ln2, a.bits*math.Ln2); !strings.Contains(ldaTable([]row{a, b}), want) {
		t.Errorf("no %q in\n%s", want, ldaTable([]row{a, b}))
	}
	if rows, err := o.lda(ctx); rows != nil || err != nil {
		t.Errorf("%d rows without AP, %v", len(rows), err)
	}
}

// TestLearn checks that the halves of a data set share no rows and are standardized with the
// training rows. It also checks the medians, means and counts of a summary.
func TestLearn(t *testing.T) {
	o, _, _ := testOptions(t)
	n := 40
	s := &learnSet{name: "set", x: mat.NewDense(n, 2, nil), y: make([]float64, n), scale: true}
	for i := range n {
		s.x.SetRow(i, []float64{float64(i * i), 3})
		s.y[i] = math.Sin(float64(i)/5) + 0.1*math.Cos(float64(31*i))
	}
	halves, err := o.halves(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(halves) != learnSplits {
		t.Fatalf("%d halves", len(halves))
	}
	seen := map[float64]bool{}
	for _, h := range halves[:1] {
		var sum, square float64
		for i := range h.y {
			v := h.x.At(i, 0)
			seen[v] = true
			sum, square = sum+v, square+v*v
		}
		for i := range h.yTest {
			if v := h.xTest.At(i, 0); seen[v] {
				t.Errorf("row %v is in both halves", v)
			}
		}
		if math.Abs(sum) > 1e-9 || math.Abs(square-float64(len(h.y)-1)) > 1e-9 ||
			h.x.At(0, 1) != 0 {
			t.Errorf("sum %v, of squares %v, a constant column %v", sum, square, h.x.At(0, 1))
		}
	}
	r, err := o.learnRow(context.Background(), s, halves[0], "one length")
	if err != nil {
		t.Fatal(err)
	}
	if !(r.bits < 1.9) || !(r.pass > 2) || r.variant != "one length" {
		t.Errorf("%+v", r)
	}
	ours := []row{{seconds: 1, bits: 0.5, pass: 4}, {seconds: 3, bits: 0.7, pass: 6},
		{seconds: 2, bits: 0.3, pass: 5}}
	theirs := []row{{bits: 0.6}, {bits: 0.6}, {bits: 0.6}}
	if got := summary(ours, theirs); got.seconds != 2 || math.Abs(got.bits-0.5) > 1e-12 ||
		got.note != "3 splits, fewer bits on 2; 5.0 evaluations" {
		t.Errorf("%+v", got)
	}
}

// TestSparse checks the row of this library on a small field.
func TestSparse(t *testing.T) {
	testkit.NotShort(t)
	o, _, _ := testOptions(t)
	const rows, test = 1000, 500
	x, y := field{2, 2, 0.1}.sample(rows+test, label)
	r, err := o.sparseRow(context.Background(), halved("field", x, y, rows), 200)
	if err != nil {
		t.Fatal(err)
	}
	if !(r.bits < 0.95) || !(r.seconds > 0) || r.variant != "200 inducing inputs" {
		t.Errorf("%v bits after %v s, %s", r.bits, r.seconds, r.variant)
	}
	seen := map[string]bool{}
	for _, s := range sparseSets(1000) {
		s.rows /= 100
		half := s.split()
		if seen[half.name] || len(half.y) != s.rows || len(half.yTest) != sparseTest ||
			half.cols() != s.cols {
			t.Errorf("%s has %d rows, %d to test on", half.name, len(half.y), len(half.yTest))
		}
		seen[half.name] = true
	}
}

// TestField checks that the values of a field have its variance, and that their correlation decays
// with the distance like the kernel.
func TestField(t *testing.T) {
	const n, scale, length = 4000, 2.0, 0.05
	x, f := field{3, scale, length}.sample(n, func(_ *rand.Rand, f float64) float64 { return f })
	var square, near, pairs float64
	for i := range n {
		square += f[i] * f[i] / n
		for k := range i {
			if r := floats.Distance(x.RawRowView(i), x.RawRowView(k), 2); r < length {
				near, pairs = near+f[i]*f[k]/math.Exp(-r*r/(2*length*length)), pairs+1
			}
		}
	}
	if near /= pairs; math.Abs(square-scale*scale) > 1 || math.Abs(near-square) > 1 {
		t.Errorf("variance %v, by %v neighbours %v, want %v", square, pairs, near, scale*scale)
	}
}

// TestCorrelated checks that each column of parts small and counts has correlation 0.8 with the
// next column, and that responses have the right means.
func TestCorrelated(t *testing.T) {
	const n, d = 20000, 5
	x, y := correlated(n, d)
	for j := range d {
		a := mat.Col(nil, j, x)
		if sd := stat.StdDev(a, nil); math.Abs(sd-1) > 0.03 {
			t.Errorf("column %d has deviation %v", j, sd)
		}
		if j > 0 {
			if r := stat.Correlation(a, mat.Col(nil, j-1, x), nil); math.Abs(r-0.8) > 0.02 {
				t.Errorf("columns %d and %d have correlation %v", j-1, j, r)
			}
		}
	}
	if mean := stat.Mean(y, nil); math.Abs(mean) > 0.05 {
		t.Errorf("the mean of the labels is %v", mean)
	}
	x, y, exposure := exposed(n, d)
	g, err := pgsvi.NewGLM(x, y, pgsvi.Poisson{}, &pgsvi.GLMOptions{Offset: logs(exposure)})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, eta := neighbours(rand.New(rand.NewPCG(2, 1)), n, d)
	var fitted mat.VecDense
	fitted.MulVec(x, mat.NewVecDense(d, post.Mean(nil)))
	for i, e := range eta {
		if got := fitted.AtVec(i); math.Abs(got-e/2) > 0.2 {
			t.Fatalf("row %d has the fitted predictor %v, want %v", i, got, e/2)
		}
	}
}

// TestInTurn checks the medians of the seconds over several rounds, and that an error ends them.
func TestInTurn(t *testing.T) {
	seconds := []float64{3, 1, 2}
	round := 0
	rows, err := inTurn(func() ([]row, error) {
		s := seconds[round]
		round++
		return []row{{method: "A", seconds: s, predict: 4 - s}, {method: "B", seconds: 2 * s}}, nil
	})
	if err != nil || round != rounds || len(rows) != 2 || rows[0].seconds != 2 ||
		rows[0].predict != 2 || rows[1].seconds != 4 {
		t.Errorf("%+v after %d rounds, %v", rows, round, err)
	}
	if rows, err := inTurn(func() ([]row, error) { return nil, context.Canceled }); rows != nil ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestFastest checks the row with the fewest seconds of a program, regardless of other programs.
func TestFastest(t *testing.T) {
	rows := []row{{method: "A", variant: "a", seconds: 2}, {method: "A", variant: "b", seconds: 1},
		{method: "B", seconds: 0.5}}
	if got := fastest(rows, "A"); got != "A, b" {
		t.Errorf("the fastest is %q", got)
	}
}

// TestList checks that the lines of several data sets begin with the name of the data set.
func TestList(t *testing.T) {
	nan := math.NaN()
	a := row{work: "s", name: "A", seconds: 2, ratio: 1, predict: 0.25, bits: 0.5, note: "n"}
	b := row{work: "u", name: "B", seconds: 1, ratio: nan, predict: nan, bits: nan}
	const want = `|  | seconds | ratio | to predict | test bits |  |
|---|---|---|---|---|---|
| s: A | 2.0000 | 1.00 | 0.2500 | 0.5000 | n |
| u: B | 1.0000 |  |  |  |  |
`
	if got := list([]row{a, b}); got != want {
		t.Errorf("got %s", got)
	}
}
