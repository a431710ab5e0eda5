// Command figures measures anew the two figures of Khan et al. (2016) on
// Gaussian-process classification and draws them:
//
//	go run ./bench/figures -figure 1 -out DIR
//	go run ./bench/figures -figure 2 -out DIR
//
// Figure 1 is the number of examples that gradient descent, PG, PG-MC and PG-SVI
// process until they have converged, against the step size. Figure 2 is the
// −ELBO and the test log loss of PG-SVI, of stochastic gradient methods and of the
// steps of this library without options, against passes over the data. Each writes
// figureN.csv and figureN.png to DIR and prints a table.
//
// Run it in the root of the repository, where testdata is. USPS, in figure 2, is
// read from the folder of -data and left out without it. -quick is a matter of
// seconds; in full a figure takes most of an hour, and USPS adds hours. The rows of
// a run are written when it ends, -resume goes on from there, and -draw draws what there is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	_ "github.com/pgsvi/pgsvi/bench/blas"
	"github.com/schollz/progressbar/v3"
)

// options are what the command line says.
type options struct {
	figure        int
	data, out     string
	quick         bool
	passes, seeds int
	resume, draw  bool
	methods, sets []string // nil means all
	testdata      string
}

func main() {
	// Ctrl-C ends a figure early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opt, err := parseFlags(os.Args[1:], os.Stderr)
	if err == nil {
		err = opt.run(ctx, os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{testdata: "testdata"}
	f := flag.NewFlagSet("figures", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.figure, "figure", 0, "which figure: 1 or 2")
	f.StringVar(&o.data, "data", os.Getenv("PGSVI_DATA"), "`folder` that holds usps (default: that of PGSVI_DATA)")
	f.StringVar(&o.out, "out", ".", "`folder` to write to")
	f.BoolVar(&o.quick, "quick", false, "ionosphere alone, and the defaults 10 and 1 for -passes and -seeds")
	f.IntVar(&o.passes, "passes", 200, "passes over the data; in figure 1 those of PG-SVI, and ten times as many for the batch methods")
	f.IntVar(&o.seeds, "seeds", 5, "runs of each method that is random")
	methods := f.String("methods", "", "names of methods, separated by commas (default: all)")
	sets := f.String("sets", "", "names of data sets, separated by commas (default: all)")
	f.BoolVar(&o.resume, "resume", false, "do not repeat the runs that the table in -out has, from the same -passes")
	f.BoolVar(&o.draw, "draw", false, "run nothing, draw what the table in -out has")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.quick {
		given := make(map[string]bool)
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["passes"] {
			o.passes = 10
		}
		if !given["seeds"] {
			o.seeds = 1
		}
	}
	if *methods != "" {
		o.methods = strings.Split(*methods, ",")
	}
	if *sets != "" {
		o.sets = strings.Split(*sets, ",")
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.figure != 1 && o.figure != 2:
		return nil, fmt.Errorf("-figure is %d, want 1 or 2", o.figure)
	case o.passes < 1 || o.seeds < 1:
		return nil, errors.New("-passes and -seeds must be positive")
	}
	return o, nil
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	if o.figure == 1 {
		return o.figure1(ctx, stdout)
	}
	return o.figure2(ctx, stdout)
}

// among reports whether name was asked for; nil means that everything was.
func among(names []string, name string) bool {
	return names == nil || slices.Contains(names, name)
}

// newBar returns a progress bar of n passes, which is seen on a terminal only.
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

// A state is what a run has reached after a number of passes.
type state struct {
	pass    int
	negELBO float64
	seconds float64 // without those of evaluations
	stepper pgsvi.Stepper
}

// follow runs s from st and shows the states at the end of the passes in marks,
// which ascend, to see, until see returns false. The error of a step or of an
// evaluation, which is how a run diverges, comes with the pass in which it occurred.
func follow(ctx context.Context, s pgsvi.Solver, st pgsvi.Stepper, marks []int, bar *progressbar.ProgressBar, see func(state) bool) (pass int, err error) {
	last := marks[len(marks)-1]
	defer func() { bar.Add(last - pass) }() // what a run that ends early leaves
	s.EvalEvery, s.MaxPasses = -1, float64(last+1)
	rng := rand.New(rand.NewPCG(1, 0)) // not used where the ELBO is exact
	var watching time.Duration
	for it, err := range s.Steps(ctx, st) {
		if err != nil {
			return pass, err
		}
		if int(it.Passes+1e-9) == pass {
			continue
		}
		pass++
		bar.Add(1)
		if pass != marks[0] {
			continue
		}
		marks = marks[1:]
		start := time.Now()
		elbo, err := st.ELBO(rng)
		if err != nil {
			return pass, err
		}
		if !see(state{pass, -elbo, (it.Elapsed - watching).Seconds(), st}) || len(marks) == 0 {
			return pass, nil
		}
		watching += time.Since(start)
	}
	return pass, context.Cause(ctx)
}
