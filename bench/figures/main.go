// Command figures measures and draws three figures of Khan et al. (2016), two on Gaussian process
// classification and one on topic models:
//
//	go run ./bench/figures -figure 1 -out DIR
//	go run ./bench/figures -figure 2 -out DIR
//	go run ./bench/figures -figure 3 -out DIR
//
// Figure 1 shows how many examples gradient descent, PG, PG-MC and PG-SVI process until they
// converge, against the step size. Figure 2 shows the −ELBO and the test log loss of PG-SVI, of
// stochastic gradient methods, and of the default steps of this library, against passes over the
// data. Figure 3 shows how well correlated topic models predict held-out words, against training
// time, with the E-steps of PG-SVI, the delta method, Laplace's approximation and mean field. Each
// writes figureN.csv and figureN.png to DIR and prints a table.
//
// Run the command in the root of the repository, which has testdata. It reads USPS, NIPS and AP
// from the folder of -data. Without that folder, figure 2 omits USPS, and figure 3 uses a synthetic
// corpus. -quick takes seconds. A full figure takes most of an hour, and USPS adds hours. The rows
// of a run are written when it ends. -resume continues after them, and -draw only draws.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	_ "github.com/pgsvi/pgsvi/bench/blas"
	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/schollz/progressbar/v3"
)

// options holds the command line.
type options struct {
	figure        int
	data, out     string
	readme        string
	quick         bool
	passes, seeds int
	topics        []int
	draws         int
	resume, draw  bool
	methods, sets []string // nil means all
	testdata      string
}

//go:generate go run -C ../.. ./bench/figures -figure 1 -draw -out bench/figures -readme bench/README.md
//go:generate go run -C ../.. ./bench/figures -figure 2 -draw -out bench/figures -readme bench/README.md
//go:generate go run -C ../.. ./bench/figures -figure 3 -draw -out bench/figures -readme bench/README.md

func main() {
	command.Main("figures", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	opt, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	return opt.run(ctx, stdout)
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{testdata: "testdata"}
	f := flag.NewFlagSet("figures", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.figure, "figure", 0, "figure to measure: 1, 2 or 3")
	f.StringVar(&o.data, "data", os.Getenv("PGSVI_DATA"),
		"`folder` with usps, nips and ap (default: PGSVI_DATA)")
	f.StringVar(&o.out, "out", ".", "`folder` to write to")
	f.BoolVar(&o.quick, "quick", false,
		"use ionosphere alone, or in figure 3 AP alone and fewer draws, and other defaults of "+
			"-passes and -seeds")
	f.IntVar(&o.passes, "passes", 0,
		"passes over the data; in figure 1 of PG-SVI, with ten times as many for PG and PG-MC "+
			"and 150 times for GD\n(default 200, with -quick 10; in figure 3 10, with -quick 3)")
	f.IntVar(&o.seeds, "seeds", 0, "runs of each random method (default 5, with -quick 1)")
	f.IntVar(&o.draws, "draws", 0,
		"draws from q of a test document, in figure 3 (default 10,000 as in the protocol, with "+
			"-quick 200)")
	topics := f.String("topics", "10", "numbers of topics, separated by commas, in figure 3")
	methods := f.String("methods", "", "names of methods, separated by commas (default: all)")
	sets := f.String("sets", "", "names of data sets, separated by commas (default: all)")
	f.BoolVar(&o.resume, "resume", false,
		"keep the runs in the table of -out, which must have the same -passes and -draws")
	f.BoolVar(&o.draw, "draw", false, "draw the table of -out without running the methods")
	f.StringVar(&o.readme, "readme", "", "Markdown `file` in which to replace the tables")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.figure < 1 || o.figure > 3 {
		return nil, fmt.Errorf("-figure is %d, want 1, 2 or 3", o.figure)
	}
	passes, seeds := [...]int{1: 200, 2: 200, 3: 10}, 5
	if o.quick {
		passes, seeds = [...]int{1: 10, 2: 10, 3: 3}, 1
	}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["passes"] {
		o.passes = passes[o.figure]
	}
	if !given["seeds"] {
		o.seeds = seeds
	}
	if o.quick && !given["draws"] {
		o.draws = 200
	}
	for _, field := range split(*topics) {
		k, err := strconv.Atoi(field)
		if err != nil || k < 1 || slices.Contains(o.topics, k) {
			return nil, fmt.Errorf(
				"-topics is %q, want different positive numbers separated by commas", *topics)
		}
		o.topics = append(o.topics, k)
	}
	o.methods, o.sets = split(*methods), split(*sets)
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.passes < 1 || o.seeds < 1:
		return nil, errors.New("-passes and -seeds must be positive")
	case o.figure != 3 && (given["draws"] || given["topics"]):
		return nil, errors.New("-draws and -topics are of figure 3")
	case o.draws < 0:
		return nil, errors.New("-draws must not be negative")
	}
	return o, nil
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	switch o.figure {
	case 1:
		return o.figure1(ctx, stdout)
	case 2:
		return o.figure2(ctx, stdout)
	}
	return o.figure3(ctx, stdout)
}

// publish prints tables, and replaces the tables in the file of -readme.
func (o *options) publish(stdout io.Writer, texts map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(stdout, "\n%s\n\n%s", name, texts[name])
	}
	if o.readme == "" {
		return nil
	}
	return tables.Replace(o.readme, texts)
}

// choose returns the elements of all with the given names, or all elements if there are no names.
// It returns an error for an unknown name.
func choose[T any](what string, asked []string, all []T, name func(T) string) ([]T, error) {
	if asked == nil {
		return all, nil
	}
	known := make([]string, len(all))
	for i, t := range all {
		known[i] = name(t)
	}
	for _, a := range asked {
		if !slices.Contains(known, a) {
			return nil, fmt.Errorf("%q is not one of the %s: %s", a, what,
				strings.Join(slices.Compact(known), ", "))
		}
	}
	return slices.DeleteFunc(all, func(t T) bool { return !slices.Contains(asked, name(t)) }), nil
}

// split returns the names in a comma-separated list, or nil if it is empty.
func split(list string) []string {
	if list == "" {
		return nil
	}
	names := strings.Split(list, ",")
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
	}
	return names
}

// newBar returns a progress bar of n passes, which is visible only on a terminal.
func newBar(n int) *progressbar.ProgressBar {
	info, err := os.Stderr.Stat()
	return progressbar.NewOptions(n,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(err == nil && info.Mode()&os.ModeCharDevice != 0),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
}

// marks lists the passes after which figures 2 and 3 evaluate their methods.
var marks = map[int][]int{
	2: {1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200},
	3: {1, 2, 3, 5, 7, 10, 20, 50, 100, 200},
}

// marks returns the passes after which to evaluate, including the last pass.
func (o *options) marks() []int {
	all := marks[o.figure]
	if o.quick && o.figure == 3 {
		all = all[:1] // scores take longer than training
	}
	i, found := slices.BinarySearch(all, o.passes)
	if found {
		return all[:i+1]
	}
	return append(slices.Clone(all[:i]), o.passes)
}

// A state is the state of a run after a number of passes.
type state struct {
	pass    int
	seconds float64 // CPU seconds, without evaluations
	stepper pgsvi.Stepper
}

// negELBO evaluates s.
func (s state) negELBO() (float64, error) {
	elbo, err := paper.ELBO(s.stepper)
	return -elbo, err
}

// follow runs s on m and calls see, which evaluates the state, at the end of each pass in marks.
// marks must ascend. An error of a step or of see, which is how a run diverges, ends the run.
// follow returns it with the pass in which it occurred, or with −1 if the run does not start.
func follow(ctx context.Context, s pgsvi.Solver, m pgsvi.Model, marks []int,
	bar *progressbar.ProgressBar, see func(state) error) (pass int, err error) {
	last := marks[len(marks)-1]
	used := cputime.Seconds()
	run, err := s.Start(ctx, m)
	if err != nil {
		return -1, err
	}
	defer func() { bar.Add(last - pass) }() // passes that a run does not make if it ends early
	for _, err := range paper.Passes(ctx, s, run, last) {
		if err != nil {
			return pass, err
		}
		pass++
		bar.Add(1)
		if !slices.Contains(marks, pass) {
			continue
		}
		seconds := cputime.Seconds() - used
		if err := see(state{pass, seconds, run.Stepper}); err != nil {
			return pass, err
		}
		used = cputime.Seconds() - seconds
	}
	return pass, context.Cause(ctx)
}
