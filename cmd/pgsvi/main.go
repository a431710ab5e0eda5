// Command pgsvi fits Bayesian models to tables and documents, without a line of Go.
//
//	pgsvi check [-formula F] [-columns C] TABLE
//	pgsvi fit -formula F [flags] -o MODEL TABLE
//	pgsvi gp [-formula F] [flags] -o MODEL TABLE
//	pgsvi topics [flags] -o MODEL CORPUS
//	pgsvi predict [-level P] [-score] MODEL TABLE
//
// A TABLE named - is standard input. The exit status is 1 on an error, 2 if columns need a decision
// or the command line is wrong, 3 if predict failed for some rows, and 130 after an interrupt
// (Ctrl-C). A second interrupt kills the process.
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

// A verb is one of the things that the command does.
type verb struct {
	name, args, about string
	// run defines its flags, and returns what to do with the arguments.
	run   func(f *flag.FlagSet) func(c *command, args []string) error
	count int // of arguments
}

var verbs = []verb{
	{"check", "TABLE", "show how each column of a table is read, and what you have to decide",
		check, 1},
	{"fit", "-formula F -o MODEL TABLE",
		"fit a generalised linear model: labels, counts, numbers; groups, curves", fit, 1},
	{"gp", "-o MODEL TABLE", "fit a Gaussian process", fitGP, 1},
	{"topics", "-topics K -o MODEL CORPUS", "fit a topic model", topics, 1},
	{"predict", "MODEL TABLE", "predict the rows of a table by a model that was fitted, as CSV",
		predict, 2},
}

// usage prints what there is.
func usage(w io.Writer) {
	fmt.Fprintf(w, "pgsvi fits Bayesian models to tables and documents.\n\n")
	for _, v := range verbs {
		fmt.Fprintf(w, "  pgsvi %-8s %s\n", v.name, v.about)
	}
	fmt.Fprint(w, `
pgsvi VERB -h has the flags of each. For example:

  pgsvi check churn.csv
  pgsvi fit -formula 'churned ~ .' -o churn.pgsvi churn.csv
  pgsvi predict churn.pgsvi customers.csv

A fit ends with a line of numbers, in nats. neg_elbo is what the fit minimises; it is proved to be
within gap_bound of the minimum (+Inf: no proof is known). loo is the leave-one-out score: the log
probability of each row by a fit to all others, added up. Of two models of the same outcome, the one
with the larger loo predicts better. khat above 0.7: the intervals of the weights may be off.

The exit status is 1 on an error, 2 if columns need a decision or the command line is wrong, 3 if
predict failed for some rows, and 130 after Ctrl-C.
`)
}

// usage prints the flags of a verb, each in a line.
func (v verb) usage(w io.Writer, f *flag.FlagSet) {
	stdin := ""
	if strings.HasSuffix(v.args, "TABLE") {
		stdin = "   (a TABLE of - is standard input)"
	}
	fmt.Fprintf(w, "pgsvi %s [flags] %s%s\n%s\n\n", v.name, v.args, stdin, v.about)
	cli.PrintFlags(w, f)
}

// A command is where the input and output of a verb are.
type command struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // standard error is one
	outTerminal    bool // standard output is one

	// run sets these.
	csv    *cli.Text // standard output for data, which are escaped on a terminal only
	screen io.Writer // standard error for the progress, which moves the cursor
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// These errors were printed already.
var (
	errUndecided  = errors.New("columns need a decision")
	errFailedRows = errors.New("some rows failed")
)

// read reads a table from a file or from standard input.
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

// patience is how long an interrupted verb may take to stop by itself. Some verbs cannot, because
// they write to a pipe that nobody reads.
const patience = 100 * time.Millisecond

// runOrLeave does what run does, but returns soon after an interrupt although run does not.
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
	said := make(chan error, 1)
	go func() { // which may block as well
		line := "pgsvi: interrupted\n"
		if c.terminal {
			line = "\n" + line // below the progress
		}
		_, err := io.WriteString(c.stderr, line)
		said <- err
	}()
	select {
	case <-said:
	case <-time.After(patience / 10):
	}
	return interrupted
}

// run runs the verb of the arguments and returns the exit status. All text that it prints is
// visible.
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

// do is run for streams of visible text.
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
		fmt.Fprintf(c.stderr, "pgsvi: there is no verb %q; %s\n", args[0], cli.Meant(args[0],
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
		err = fmt.Errorf("%w (pgsvi %s -h has the flags): %w", err, v.name, cli.ErrUsage)
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

// report prints an error of a verb, and returns the exit status.
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
		fmt.Fprintln(c.stderr, "pgsvi check -columns FILE, with the same formula, writes "+
			"proposals to a new file; read and\nchange them, and give -columns FILE to "+v.name)
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

// progress returns a Solver that shows its progress on a terminal, and what clears that.
func (c *command) progress(goal float64) (s *pgsvi.Solver, done func()) {
	s = &pgsvi.Solver{Goal: goal}
	if !c.terminal {
		return s, func() {}
	}
	s.Recorder, done = pgsvi.Progress(c.screen, 0)
	return s, done
}

// save writes a model to a file, or prints that it does not.
func (c *command) save(path string, write func(w io.Writer) error) error {
	if path == "" {
		fmt.Fprintln(c.stderr, "pgsvi: the model was not saved: -o FILE does")
		return nil
	}
	return data.WriteFile(path, func(w io.Writer) error { return write(cli.Until(c.ctx, w)) })
}
