// Command pgsvi fits Bayesian models to tables and documents from the command line.
//
//	pgsvi check [-formula F] [-columns C] TABLE
//	pgsvi fit -formula F [flags] -o MODEL TABLE
//	pgsvi gp [-formula F] [flags] -o MODEL TABLE
//	pgsvi topics [flags] -o MODEL CORPUS
//	pgsvi predict [-level P] [-score] MODEL TABLE
//	pgsvi predict [-level P] [-score] MODEL CORPUS
//
// If TABLE is -, pgsvi reads standard input. The exit status is 1 after an error, 2 if columns need
// a decision or the command line is wrong, 3 if predict failed for some rows, and 130 after an
// interrupt (Ctrl-C). A second interrupt kills the process.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/formula"
)

// A verb is a subcommand, such as fit or predict.
type verb struct {
	name, args, about string
	// run defines the flags of the verb and returns the function that runs it. The function gets
	// the arguments that are not flags.
	run   func(f *flag.FlagSet) func(c *command, args []string) error
	count int // number of arguments that are not flags
}

var verbs = []verb{
	{"check", "TABLE", "show how each column of a table is read, and which decisions it needs",
		check, 1},
	{"fit", "-formula F -o MODEL TABLE",
		"fit a generalized linear model, with groups and smooth curves", fit, 1},
	{"gp", "-o MODEL TABLE", "fit a Gaussian process", fitGP, 1},
	{"topics", "-topics K -o MODEL CORPUS", "fit a topic model", topics, 1},
	{"predict", "MODEL TABLE",
		"predict the rows of a table, or the topics of documents, and print CSV", predict, 2},
}

// usage prints the help of the command.
func usage(w io.Writer) {
	fmt.Fprintf(w, "pgsvi fits Bayesian models to tables and documents.\n\n")
	for _, v := range verbs {
		fmt.Fprintf(w, "  pgsvi %-8s %s\n", v.name, v.about)
	}
	fmt.Fprint(w, `
Run 'pgsvi VERB -h' to list the flags of a verb. For example:

  pgsvi check churn.csv
  pgsvi fit -formula 'churned ~ .' -o churn.pgsvi churn.csv
  pgsvi predict churn.pgsvi customers.csv

A fit prints a line of results at the end, in nats. neg_elbo is the negative ELBO, which the fit
minimizes. It is at most gap_bound above the minimum (+Inf if no bound is known). loo is the
leave-one-out score, the sum of the log probabilities of the rows, each predicted by a fit to all
other rows. If two models predict the same outcome, the model with the larger loo predicts better.
If khat is above 0.7, the intervals of the weights may be inaccurate. The verb gp has no khat.

The exit status is 1 after an error, 2 if columns need a decision or the command line is wrong,
3 if predict failed for some rows, and 130 after Ctrl-C.
`)
}

// usage prints the help of a verb, with one flag per line.
func (v verb) usage(w io.Writer, f *flag.FlagSet) {
	stdin := ""
	if strings.HasSuffix(v.args, "TABLE") {
		stdin = "   (if TABLE is -, read standard input)"
	}
	fmt.Fprintf(w, "pgsvi %s [flags] %s%s\n%s\n\n", v.name, v.args, stdin, v.about)
	cli.PrintFlags(w, f)
}

// A command holds the input and output of a verb.
type command struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // whether standard error is a terminal
	outTerminal    bool // whether standard output is a terminal

	// run sets these fields.
	csv    *cli.Text // standard output for data, escaped only on a terminal
	screen io.Writer // standard error, unescaped because progress moves the cursor
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Verbs return these errors after printing the reason, so report only sets the exit status.
var (
	errUndecided  = errors.New("columns need a decision")
	errFailedRows = errors.New("some rows failed")
)

// read reads a table from a file, or from standard input if path is "-".
func (c *command) read(format data.Format, path string) (*data.Table, error) {
	if path == "-" {
		return format.ReadContext(c.ctx, c.stdin, "standard input")
	}
	return format.ReadFileContext(c.ctx, path)
}

// interrupted is the exit status after an interrupt.
const interrupted = 130

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt kills the process
	c := &command{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stderr), outTerminal: isTerminal(os.Stdout)}
	os.Exit(c.runOrLeave(os.Args[1:]))
}

// patience is how long an interrupted verb may take to stop by itself. A verb that writes to a pipe
// that nobody reads never stops.
const patience = 100 * time.Millisecond

// runOrLeave calls run and returns its exit status. After an interrupt, if run does not return
// soon, runOrLeave does not wait for it.
func (c *command) runOrLeave(args []string) (status int) {
	done := make(chan int, 1)
	go func() { done <- c.run(args) }()
	select {
	case status = <-done:
		return status
	case <-c.ctx.Done():
	}
	select {
	case status = <-done:
		return status
	case <-time.After(patience):
	}
	written := make(chan error, 1)
	go func() { // because this write may block as well
		line := "pgsvi: interrupted\n"
		if c.terminal {
			line = "\n" + line // start below the line of progress
		}
		_, err := io.WriteString(c.stderr, line)
		written <- err
	}()
	select {
	case <-written:
	case <-time.After(patience / 10):
	}
	return interrupted
}

// run runs the verb that args name and returns the exit status. It escapes control characters in
// everything that it prints.
func (c *command) run(args []string) (status int) {
	v, out, errs := *c, &cli.Text{W: c.stdout}, &cli.Text{W: c.stderr}
	v.stdout, v.stderr, v.screen = out, errs, c.stderr
	v.csv = &cli.Text{W: c.stdout, Raw: !c.outTerminal}
	status = v.do(args)
	if err := cmp.Or(out.Flush(), v.csv.Flush()); err != nil && status != interrupted {
		if own := (*fs.PathError)(nil); errors.As(err, &own) {
			err = own.Err
		}
		fmt.Fprintln(errs, "pgsvi: writing standard output:", err)
		status = 1
	}
	errs.Flush()
	return status
}

// do runs the verb that args name with the writers that run has set.
func (c *command) do(args []string) (status int) {
	if len(args) == 0 {
		usage(c.stderr)
		return 2
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		usage(c.stdout)
		return 0
	case "-version", "--version", "version":
		version := "(devel)"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			version = info.Main.Version
		}
		fmt.Fprintln(c.stdout, "pgsvi", version)
		return 0
	}
	i := slices.IndexFunc(verbs, func(v verb) bool { return v.name == args[0] })
	if i < 0 {
		fmt.Fprintf(c.stderr, "pgsvi: unknown verb %q; %s\n", args[0], cli.Meant(args[0],
			verbNames()))
		return 2
	}
	v := verbs[i]
	f := flag.NewFlagSet("pgsvi "+v.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	do := v.run(f)
	files, err := cli.Parse(f, args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		v.usage(c.stderr, f)
		return 0
	case err != nil:
		err = fmt.Errorf("%w (run 'pgsvi %s -h' for help): %w", err, v.name, cli.ErrUsage)
	default:
		err = cli.Files(f, v.name, v.args, v.count, files)
	}
	if err == nil {
		err = cli.Output(f, files)
	}
	if err == nil {
		err = do(c, files)
	}
	return c.report(v, err)
}

// report prints the error of a verb and returns the exit status.
func (c *command) report(v verb, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errUndecided) {
		return 2
	}
	if errors.Is(err, errFailedRows) {
		return 3
	}
	if cause := context.Cause(c.ctx); cause != nil && errors.Is(err, cause) {
		fmt.Fprintln(c.stderr, "pgsvi: interrupted")
		return interrupted
	}
	if c.csv.Err != nil && errors.Is(err, c.csv.Err) {
		return 1 // run prints it
	}
	fmt.Fprintln(c.stderr, "pgsvi: "+cli.PlainError(err))
	var undecided *data.DecisionError
	var wrong *formula.Error
	if errors.As(err, &undecided) && slices.ContainsFunc(undecided.Decisions,
		func(d data.Decision) bool { return len(d.Choices) > 0 }) {
		fmt.Fprintln(c.stderr, "run pgsvi check -columns FILE with the same formula to write "+
			"proposals to a new file, edit\nthe file, and run pgsvi "+v.name+" with -columns FILE")
	}
	if undecided != nil || errors.As(err, &wrong) || errors.Is(err, cli.ErrUsage) {
		return 2
	}
	return 1
}

// verbNames returns the names of the verbs.
func verbNames() (names []string) {
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return names
}

// progress returns a Solver and a function that ends its progress line. The Solver shows progress
// only if standard error is a terminal.
func (c *command) progress(goal float64) (s *pgsvi.Solver, done func()) {
	s = &pgsvi.Solver{Goal: goal}
	if !c.terminal {
		return s, func() {}
	}
	s.Record, done = pgsvi.Progress(c.screen, 0)
	return s, done
}

// save writes a model to a file. If path is empty, it prints how to save the model instead.
func (c *command) save(path string, write func(w io.Writer) error) error {
	if path == "" {
		fmt.Fprintln(c.stderr, "pgsvi: the model was not saved; set -o FILE to save it")
		return nil
	}
	return data.WriteFile(path, func(w io.Writer) error { return write(cli.Until(c.ctx, w)) })
}
