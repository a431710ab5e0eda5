// Tasks measures whole tasks, from a CSV file to a printed summary or prediction. It runs the
// command pgsvi and programs in R and Python in turn:
//
//	go run ./bench/tasks -out DIR
//
// Each program is a separate process that reads a file of generated rows, does the task and prints
// the result. The time includes the start of the process. The programs take turns, with one thread
// each. The tasks are
//
//	logit 2000       logistic regression of 2,000 rows with 4 columns, with a summary
//	logit 100000     the same for 100,000 rows
//	curve 100000     logistic regression with a smooth curve and random intercepts
//	groups 10000     logistic regression with random intercepts
//	predict 1000000  probabilities of 1,000,000 rows from a saved model, as CSV
//
// The command needs Rscript with mgcv and lme4 (Debian: r-cran-mgcv, r-cran-lme4) and python3 with
// pandas, statsmodels and scikit-learn (python3-pandas, python3-statsmodels, python3-sklearn). It
// skips missing programs with a message. Run it in the root of the repository, because it builds
// pgsvi.
//
// The run replaces its tasks in tasks.csv of -out, and prints a Markdown table of all tasks.
// -tables measures nothing, and -readme FILE writes the table to FILE.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// options holds the flags and values that follow from them.
type options struct {
	out, readme     string
	python, rscript string
	rounds, scale   int
	tables          bool
	only            []string // names of tasks; nil means all
	temp            string   // folder for rows, models and scripts
	commit          string   // commit from which pgsvi is built
	stdout, stderr  io.Writer
}

//go:generate go run -C ../.. ./bench/tasks -tables -out bench/tasks -readme bench/README.md

func main() {
	command.Main("tasks", run)
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
	fs := flag.NewFlagSet("tasks", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.out, "out", ".", "folder of tasks.csv")
	fs.StringVar(&o.readme, "readme", "", "Markdown `file` in which to replace the table")
	fs.StringVar(&o.python, "python", "python3", "Python with pandas and others")
	fs.StringVar(&o.rscript, "rscript", "Rscript", "R with mgcv and lme4")
	fs.IntVar(&o.rounds, "rounds", 5, "number of times that each program does each task")
	fs.IntVar(&o.scale, "scale", 1, "divide the numbers of rows by this for a trial")
	fs.BoolVar(&o.tables, "tables", false, "print the table of tasks.csv in -out without measuring")
	only := fs.String("only", "", "names of tasks to measure, separated by commas")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag; name tasks by -only", fs.Args())
	case o.rounds < 1 || o.scale < 1:
		return nil, errors.New("-rounds and -scale must be at least 1")
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(tasks, func(t task) bool { return t.name == name }) {
			return nil, fmt.Errorf("-only: there is no task %q", name)
		}
	}
	return o, nil
}

// run measures the tasks, and writes tasks.csv after each.
func (o *options) run(ctx context.Context) (err error) {
	all, err := readCSV(o.out)
	if err != nil || o.tables {
		return errors.Join(err, o.publish(all))
	}
	if o.temp, err = os.MkdirTemp("", "tasks"); err != nil {
		return err
	}
	defer os.RemoveAll(o.temp)
	if err := errors.Join(o.prepare(ctx), os.MkdirAll(o.out, 0o777)); err != nil {
		return err
	}
	for _, t := range tasks {
		if o.only != nil && !slices.Contains(o.only, t.name) {
			continue
		}
		rows, err := o.task(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		all = slices.DeleteFunc(all, func(r row) bool { return r.task == t.name })
		all = append(all, rows...)
		if err := writeCSV(o.out, all); err != nil {
			return err
		}
	}
	return o.publish(all)
}

// publish prints the table, and replaces the table in the file of -readme.
func (o *options) publish(rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	text := table(rows)
	fmt.Fprint(o.stdout, text)
	if o.readme == "" {
		return nil
	}
	return tables.Replace(o.readme, map[string]string{"tasks": text})
}
