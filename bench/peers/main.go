// Peers compares the time and the test scores of pgsvi and of other programs, on the same rows, in
// one run, on one core each:
//
//	go run ./bench/peers -data DIR -out DIR
//
// The programs are GaussianProcessClassifier, GaussianProcessRegressor, LogisticRegression,
// PoissonRegressor, HistGradientBoostingClassifier and LatentDirichletAllocation of scikit-learn
// (Debian: python3-sklearn), ADVI in rstanarm (r-cran-rstanarm), and lme4. Run the command in the root of
// the repository, which has testdata. The folder of the shared data sets, by default PGSVI_DATA,
// adds USPS, a9a and AP. The command skips parts without their data or program, with a message.
// -only selects parts:
//
//	gp        Gaussian process classification: sonar, ionosphere, USPS
//	learn     Gaussian processes that learn their hyperparameters, on random halves of four data
//	          sets
//	classify  Gaussian process classification of 2000 generated rows
//	regress   Gaussian process regression of 2000 generated rows, also with learning
//	glm       logistic regression on the data sets of gp
//	a9a       logistic regression, sparse rows
//	counts    Poisson regression with exposure, generated rows
//	small     logistic regression, generated rows, 20 to 256 columns
//	dense     logistic regression, many generated rows, 50 columns
//	digits    logistic regression, all images of two digits
//	wide      logistic regression, generated rows, as many columns as rows
//	sparse    Gaussian processes that learn from 50,000 generated rows or more, and gradient
//	          boosting
//	groups    mixed models of generated rows with lme4 (r-cran-lme4)
//	advi      the data of glm and a9a with ADVI, and its distance from the optimum
//	lda       topics of documents, and held-out words
//	stream    logistic regression on more rows than memory holds, from a file (pgsvi alone)
//	cores     two cores against one, in wall time
//
// The run replaces the rows of its data sets in peers.csv of -out, and prints Markdown tables of
// all rows. -tables makes no fits, and -readme FILE writes the tables to FILE. scikit-learn uses
// its own BLAS, which is OpenBLAS in Debian. pgsvi uses its own kernels.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// options holds the command line and values that follow from it.
type options struct {
	data, out, testdata string
	python, rscript     string
	repeats, rows       int
	streamed            int  // rows of part stream
	tables              bool // whether to make no fits
	readme              string
	part                string // the running part
	versions            map[string]string
	only                []string // nil means all
	absent              []string // missing data sets that were reported
	temp                string   // folder for scripts and rows
	stdout, stderr      io.Writer
}

// A part is a comparison that can run alone.
type part struct {
	name string
	need func(*options, context.Context) error // returns an error if the program is missing
	run  func(*options, context.Context) ([]row, error)
	// table returns the table for the rows of the part.
	table func([]row) string
}

var parts = []part{
	{"gp", (*options).sklearn, (*options).gp, grid},
	{"learn", (*options).sklearn, (*options).learn, grid},
	{"classify", (*options).sklearn, (*options).classify, list},
	{"regress", (*options).sklearn, (*options).regress, list},
	{"glm", (*options).sklearn, (*options).glm, grid},
	{"a9a", (*options).sklearn, (*options).a9a, list},
	{"counts", (*options).sklearn, (*options).counts, list},
	{"small", (*options).sklearn, (*options).small, list},
	{"dense", (*options).sklearn, (*options).dense, list},
	{"digits", (*options).sklearn, (*options).digits, list},
	{"wide", (*options).sklearn, (*options).wide, list},
	{"sparse", (*options).sklearn, (*options).sparse, list},
	{"groups", (*options).lme4, (*options).groups, groupsTable},
	{"advi", (*options).rstanarm, (*options).advi, adviTable},
	{"lda", (*options).sklearn, (*options).lda, ldaTable},
	{"stream", (*options).itself, (*options).stream, streamTable},
	{"cores", (*options).sklearn, (*options).cores, coresTable},
}

//go:generate go run -C ../.. ./bench/peers -tables -out bench/peers -readme bench/README.md

func main() {
	runtime.GOMAXPROCS(1)
	command.Main("peers", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stdout, stderr)
	if err != nil {
		return err
	}
	return o.run(ctx)
}

// parseFlags reads the command line.
func parseFlags(args []string, stdout, stderr io.Writer) (*options, error) {
	o := &options{testdata: "testdata", stdout: stdout, stderr: stderr}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.data, "data", os.Getenv("PGSVI_DATA"), "folder of the shared data sets")
	fs.StringVar(&o.out, "out", ".", "folder of peers.csv")
	fs.StringVar(&o.python, "python", "python3", "Python with scikit-learn")
	fs.StringVar(&o.rscript, "rscript", "Rscript", "R with rstanarm and lme4")
	fs.IntVar(&o.repeats, "repeats", 5,
		"fits by each program, whose median time counts; for ADVI, seeds")
	fs.IntVar(&o.rows, "rows", 1000000, "rows of parts dense and sparse, at least 1000; the most rows of groups")
	fs.IntVar(&o.streamed, "streamed", 20000000,
		"rows of part stream, at least 1000; 250 bytes each in a temporary file")
	fs.BoolVar(&o.tables, "tables", false,
		"make no fits, and print the tables of peers.csv in -out")
	fs.StringVar(&o.readme, "readme", "", "Markdown `file` whose tables to replace")
	only := fs.String("only", "",
		"parts to run, separated by commas: gp, learn, classify, regress, glm, a9a, counts, "+
			"small, dense, digits, wide, sparse, groups, advi, lda, stream, cores")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected arguments %q; use -only to select parts",
			fs.Args())
	case o.repeats < 1:
		return nil, errors.New("-repeats must be at least 1")
	case o.rows < 1000 || o.streamed < 1000:
		return nil, errors.New("-rows and -streamed must be at least 1000")
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("-only: there is no part %q", name)
		}
	}
	return o, nil
}

// run runs the parts, and writes peers.csv after each.
func (o *options) run(ctx context.Context) (err error) {
	all, err := readCSV(o.out)
	if err != nil {
		return err
	}
	if o.tables {
		return o.publish(all)
	}
	if o.temp, err = os.MkdirTemp("", "peers"); err != nil {
		return err
	}
	defer os.RemoveAll(o.temp)
	if err := o.unpack(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	for _, p := range parts {
		if o.only != nil && !slices.Contains(o.only, p.name) {
			continue
		}
		if err := p.need(o, ctx); err != nil {
			fmt.Fprintf(o.stderr, "%s is left out: %v\n", p.name, err)
			continue
		}
		o.part = p.name
		rows, err := p.run(o, ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if len(rows) == 0 {
			continue // its data are missing
		}
		all = merge(all, rows)
		if err := writeCSV(o.out, all); err != nil {
			return err
		}
	}
	return o.publish(all)
}

// publish prints the tables, and replaces the tables in the file of -readme.
func (o *options) publish(rows []row) error {
	texts := tablesOf(rows)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(o.stdout, "\n%s\n\n%s", name, texts[name])
	}
	if o.readme == "" || len(texts) == 0 {
		return nil
	}
	return tables.Replace(o.readme, texts)
}
