package main

import (
	"bufio"
	"context"
	"embed"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// A task is work that several programs do with the same file.
type task struct {
	name     string
	rows     int
	head     string // column names
	write    func(w *bufio.Writer, rnd *rand.Rand)
	programs []program
}

// A program does a task. Its arguments follow the interpreter and its script. FILE stands for the
// rows. A program that predicts gets a MODEL, which its save makes from the rows of logit 100000.
type program struct {
	label    string
	language string   // pgsvi, R or Python
	packages []string // packages whose versions are recorded
	args     []string
	save     []string
}

var (
	glm = program{label: "R: read.csv, glm, summary", language: "R", packages: []string{"R"},
		args: []string{"glm", "FILE"}}
	statsmodels = program{label: "Python: pandas, statsmodels", language: "Python",
		packages: []string{"pandas", "statsmodels"}, args: []string{"statsmodels", "FILE"}}
	sklearn = program{label: "Python: pandas, scikit-learn (weights alone)", language: "Python",
		packages: []string{"pandas", "sklearn"}, args: []string{"sklearn", "FILE"}}
)

// fit is the pgsvi program that fits a formula.
func fit(formula string) program {
	return program{label: "pgsvi fit, with its checks", language: "pgsvi",
		args: []string{"fit", "-formula", formula, "-o", "MODEL", "FILE"}}
}

const trainingRows = 100000

var tasks = []task{
	{"logit 2000", 2000, "a,b,c,d,y", writeLogit,
		[]program{fit("y ~ ."), glm, statsmodels, sklearn}},
	{"logit 100000", trainingRows, "a,b,c,d,y", writeLogit,
		[]program{fit("y ~ ."), glm, statsmodels, sklearn}},
	{"curve 100000", 100000, "a,b,g,y", writeCurve, []program{fit("y ~ a + s(b) + (1 | g)"),
		{label: "R: read.csv, mgcv's bam (discrete), summary", language: "R",
			packages: []string{"R", "mgcv"}, args: []string{"bam", "FILE"}}}},
	{"groups 10000", 10000, "a,b,g,y", writeGroups, []program{fit("y ~ a + b + (1 | g)"),
		{label: "R: read.csv, lme4's glmer, summary", language: "R",
			packages: []string{"R", "lme4"}, args: []string{"glmer", "FILE"}}}},
	{"predict 1000000", 1000000, "a,b,c,d", writeFeatures, []program{
		{label: "pgsvi predict", language: "pgsvi", args: []string{"predict", "MODEL", "FILE"},
			save: []string{"fit", "-formula", "y ~ .", "-o", "MODEL", "FILE"}},
		{label: "R: read.csv, predict of a glm, write.csv", language: "R", packages: []string{"R"},
			args: []string{"predict", "FILE", "MODEL"}, save: []string{"save", "FILE", "MODEL"}},
		{label: "Python: pandas, scikit-learn (no intervals)", language: "Python",
			packages: []string{"pandas", "sklearn"}, args: []string{"predict", "FILE", "MODEL"},
			save: []string{"save", "FILE", "MODEL"}}}},
}

// drawn holds the features of a row, and its logit without a group effect.
func drawn(rnd *rand.Rand) (features string, logit float64) {
	a, b, c := rnd.NormFloat64(), 10*rnd.Float64(), rnd.ExpFloat64()
	k := rnd.IntN(3)
	d := []string{"basic", "plus", "pro"}[k]
	logit = -0.5 + 0.8*a - 0.1*b + 0.3*c + []float64{0, 0, 0.5}[k]
	return fmt.Sprintf("%.4f,%.4f,%.4f,%s", a, b, c, d), logit
}

// label returns the outcome of a row.
func label(rnd *rand.Rand, logit float64) string {
	if rnd.Float64() < 1/(1+math.Exp(-logit)) {
		return "yes"
	}
	return "no"
}

func writeLogit(w *bufio.Writer, rnd *rand.Rand) {
	features, logit := drawn(rnd)
	fmt.Fprintf(w, "%s,%s\n", features, label(rnd, logit))
}

func writeFeatures(w *bufio.Writer, rnd *rand.Rand) {
	features, _ := drawn(rnd)
	fmt.Fprintln(w, features)
}

func writeCurve(w *bufio.Writer, rnd *rand.Rand) { writeGrouped(w, rnd, math.Sin) }

func writeGroups(w *bufio.Writer, rnd *rand.Rand) {
	writeGrouped(w, rnd, func(b float64) float64 { return 0.1 * b })
}

// writeGrouped writes a row that belongs to one of 50 groups, whose effects have standard deviation
// 0.5.
func writeGrouped(w *bufio.Writer, rnd *rand.Rand, curve func(b float64) float64) {
	a, b, g := rnd.NormFloat64(), 10*rnd.Float64(), rnd.IntN(50)
	effect := 0.5 * rand.New(rand.NewPCG(uint64(g), 0)).NormFloat64()
	fmt.Fprintf(w, "%.4f,%.4f,g%02d,%s\n", a, b, g, label(rnd, -0.5+0.8*a+curve(b)+effect))
}

// generate writes the rows of a task to a file.
func (t *task) generate(path string, rows int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	fmt.Fprintln(w, t.head)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range rows {
		t.write(w, rnd)
	}
	return w.Flush()
}

//go:embed task.R task.py
var scripts embed.FS

// prepare builds pgsvi and writes the scripts and the training rows.
func (o *options) prepare(ctx context.Context) error {
	o.commit = tables.Commit() // before the run, during which the commit may change
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(o.temp, "pgsvi"),
		"./cmd/pgsvi")
	build.Stderr = o.stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building pgsvi in the root of the repository: %w", err)
	}
	if err := os.CopyFS(o.temp, scripts); err != nil {
		return err
	}
	return tasks[1].generate(o.path("training.csv"), max(1000, trainingRows/o.scale))
}

func (o *options) path(name string) string { return filepath.Join(o.temp, name) }

// command returns the command line of a program for the given arguments.
func (o *options) command(p program, args []string, file string) []string {
	var line []string
	switch p.language {
	case "R":
		line = []string{o.rscript, o.path("task.R")}
	case "Python":
		line = []string{o.python, o.path("task.py")}
	default:
		line = []string{o.path("pgsvi")}
	}
	for _, a := range args {
		switch a {
		case "FILE":
			a = file
		case "MODEL":
			a = o.path("model-" + p.language)
		}
		line = append(line, a)
	}
	return line
}

// version returns the versions of a program, or an error if it is not installed.
func (o *options) version(ctx context.Context, p program) (string, error) {
	if p.language == "pgsvi" {
		return o.commit, nil
	}
	var all []string
	for _, name := range p.packages {
		line := o.command(p, []string{"version", name}, "")
		out, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
		if err != nil {
			return "", fmt.Errorf("%s has no %s: %w", line[0], name, err)
		}
		all = append(all, strings.TrimSpace(string(out)))
	}
	return strings.Join(all, ", "), nil
}
