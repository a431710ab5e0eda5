// Growth measures how the time and the peak memory of a fit grow with its size:
//
//	go run ./bench/growth -out DIR
//
// It fits generated data:
//
//	gp      dense Gaussian process classification, N = 250 … 4000 rows
//	glm     logistic regression, 4000 rows, D = 10 … 2000 weights
//	sparse  a sparse Gaussian process with 300 inducing inputs, N = 1000 … 50,000 rows
//	topics  a correlated topic model, 500 documents, K = 5 … 200 topics, three passes
//
// Each fit runs in a separate process, on one core, without options. growth.csv in -out has its CPU
// seconds including set-up, its passes, and its peak resident memory. growth.png draws the seconds
// per pass and the arithmetic of a pass on log–log axes. The program prints a table of all rows.
// -tables makes no fits, -readme FILE writes the table to FILE, and -quick uses only small sizes.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
)

//go:generate go run -C ../.. ./bench/growth -tables -out bench/growth -readme bench/README.md

// options holds the command line.
type options struct {
	out, readme    string
	only           []string // nil means all
	tables, quick  bool
	repeats        int
	one            string // PART,SIZE: make only this fit, in this process
	stdout, stderr io.Writer
}

func main() {
	command.Main("growth", run)
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
	o := &options{stdout: stdout, stderr: stderr}
	fs := flag.NewFlagSet("growth", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.out, "out", ".", "folder of growth.csv and growth.png")
	fs.StringVar(&o.readme, "readme", "", "Markdown `file` whose table to replace")
	fs.BoolVar(&o.tables, "tables", false, "make no fits, draw the growth.csv in -out")
	fs.BoolVar(&o.quick, "quick", false, "the two smallest sizes only")
	fs.IntVar(&o.repeats, "repeats", 3, "processes for each size; the median time counts")
	fs.StringVar(&o.one, "one", "",
		"`PART,SIZE` of a fit that is made by this process, and its row printed")
	only := fs.String("only", "", "parts to run, with commas between: gp, glm, sparse, topics")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("there are no arguments but flags: %q", fs.Args())
	case o.repeats < 1:
		return nil, errors.New("-repeats must be at least 1")
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if partOf(name) == nil {
			return nil, fmt.Errorf("-only: there is no part %q", name)
		}
	}
	return o, nil
}

// run makes the fits, and writes growth.csv after each part.
func (o *options) run(ctx context.Context) error {
	if o.one != "" {
		return o.runOne(ctx)
	}
	file := filepath.Join(o.out, "growth.csv")
	rows, err := readCSV(file)
	if err != nil {
		return err
	}
	if o.tables {
		return o.publish(rows)
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	for _, p := range parts {
		if o.only != nil && !slices.Contains(o.only, p.name) {
			continue
		}
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.part == p.name })
		sizes := p.sizes
		if o.quick {
			sizes = sizes[:2]
		}
		for _, size := range sizes {
			r, err := o.median(ctx, p.name, size)
			if err != nil {
				return fmt.Errorf("%s of size %d: %w", p.name, size, err)
			}
			fmt.Fprintf(o.stderr, "%s %d: %.3g s\n", p.name, size, r.seconds)
			rows = append(rows, r)
		}
		if err := writeCSV(file, rows); err != nil {
			return err
		}
	}
	return o.publish(rows)
}

// runOne makes a fit and prints its row.
func (o *options) runOne(ctx context.Context) error {
	name, text, _ := strings.Cut(o.one, ",")
	size, err := strconv.Atoi(text)
	p := partOf(name)
	if p == nil || err != nil || size < 1 {
		return fmt.Errorf("-one is %q, not a part and a size", o.one)
	}
	runtime.GOMAXPROCS(1)
	r, err := p.measure(ctx, size)
	if err != nil {
		return err
	}
	return csv.NewWriter(o.stdout).WriteAll([][]string{r.fields()})
}

// median fits in separate processes and returns the row with the median time and the largest peak.
func (o *options) median(ctx context.Context, part string, size int) (row, error) {
	program, err := os.Executable()
	if err != nil {
		return row{}, err
	}
	rows := make([]row, o.repeats)
	for i := range rows {
		cmd := exec.CommandContext(ctx, program, "-one", fmt.Sprintf("%s,%d", part, size))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, o.stderr
		if err := cmd.Run(); err != nil {
			return row{}, err
		}
		got, err := parseRows(&out)
		if err != nil || len(got) != 1 {
			return row{}, fmt.Errorf("the process answers with %d rows: %w", len(got), err)
		}
		rows[i] = got[0]
	}
	slices.SortFunc(rows, func(a, b row) int {
		if a.seconds < b.seconds {
			return -1
		}
		return 1
	})
	r := rows[len(rows)/2]
	for _, other := range rows {
		r.peak = max(r.peak, other.peak)
	}
	return r, nil
}

// publish draws the picture, prints the table, and replaces the table in the file of -readme.
func (o *options) publish(rows []row) error {
	if len(rows) == 0 {
		return fmt.Errorf("there are no rows in %s", filepath.Join(o.out, "growth.csv"))
	}
	if err := drawGrowth(filepath.Join(o.out, "growth.png"), rows); err != nil {
		return err
	}
	text := table(rows)
	fmt.Fprint(o.stdout, text)
	if o.readme == "" {
		return nil
	}
	return tables.Replace(o.readme, map[string]string{"growth": text})
}
