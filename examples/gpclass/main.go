// Command gpclass classifies real data with a Gaussian process.
//
// It fits the same model by three kinds of steps: exact block steps, which are
// what a nil Solver takes and need no tuning; steps of the whole data set; and
// PG-SVI as published (Khan et al., 2016), with a step size, mini-batches and
// Monte Carlo gradients. It prints what each of them reached and draws how
// they got there.
//
// Run it in the root of the repository, where testdata is:
//
//	go run ./examples/gpclass
//	go run ./examples/gpclass -data sonar
//
// or anywhere on data of your own, as CSV files with one row a line and the
// label, -1 or +1 (or 0 or 1), in the last column:
//
//	gpclass -train train.csv -test test.csv -length 2 -scale 5
//
// The last line of the output is meant for programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/pgsvi/pgsvi"
)

// fit fits one model by three kinds of steps.
func (o *options) fit(ctx context.Context, train, test data, set settings, stderr *os.File) ([]*fit, error) {
	kernel := pgsvi.SquaredExp{Scale: set.scale, Length: set.length}
	gp, err := pgsvi.NewGP(train.x, train.y, kernel, o.likelihood, &pgsvi.GPOptions{
		Jitter: set.jitter,
		// It is for steps with a given step size, the third method below. The other two
		// take their expectations exactly.
		Estimator: pgsvi.ScoreFunction{Samples: set.samples, Baseline: pgsvi.NoBaseline},
	})
	if err != nil {
		return nil, err
	}

	methods := []struct {
		name   string
		solver *pgsvi.Solver
	}{
		{"block", &pgsvi.Solver{Goal: o.goal}},
		{"batch", &pgsvi.Solver{Goal: o.goal, BatchSize: gp.Len()}},
		// As published: a constant step size and reshuffled mini-batches.
		{"PG-SVI", &pgsvi.Solver{StepSize: pgsvi.ConstantStep(set.betaN / float64(gp.Len())), BatchSize: 5, MaxPasses: 10}},
	}
	var fits []*fit
	for _, m := range methods {
		m.solver.Src = rand.NewPCG(o.seed, 0)
		f, err := fitGP(ctx, m.name, gp, m.solver, test, stderr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		fits = append(fits, f)
	}
	return fits, nil
}

// fitGP runs s on gp, scoring the predictions on test after every pass.
func fitGP(ctx context.Context, name string, gp *pgsvi.GP, s *pgsvi.Solver, test data, stderr *os.File) (*fit, error) {
	f := &fit{name: name}

	// A Recorder sees every iteration. The ELBO is evaluated once a pass and is
	// NaN in between, and the state belongs to the Stepper: ask it for a
	// posterior to predict with.
	var watching time.Duration // is not part of the fit
	var watchErr error
	watch := func(passes, elbo float64, st pgsvi.State) {
		if math.IsNaN(elbo) || watchErr != nil {
			return
		}
		start := time.Now()
		var post *pgsvi.GPPosterior
		if post, watchErr = gp.Posterior(st); watchErr == nil {
			f.curve = append(f.curve, point{passes, -elbo, test.score(post).bits})
		}
		watching += time.Since(start)
	}
	s.Recorder = pgsvi.RecorderFunc(func(it pgsvi.Iteration) { watch(it.Passes, it.ELBO, it.State) })
	if isTerminal(stderr) {
		progress, done := pgsvi.Progress(stderr, 0)
		defer done()
		s.Recorder = pgsvi.Tee(s.Recorder, progress)
	}

	// The curves begin with the state before the first step, the prior.
	prior, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		return nil, err
	}
	start, err := prior.Evaluate(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	watch(0, start.ELBO, prior)

	watching = 0
	begun := time.Now()
	post, res, err := gp.Fit(ctx, s)
	if err := errors.Join(err, watchErr); err != nil {
		return nil, err
	}
	f.seconds = (time.Since(begun) - watching).Seconds()
	f.res, f.score = res, test.score(post)
	return f, nil
}

// A fit is what one method reached and how it got there.
type fit struct {
	name    string
	res     *pgsvi.Result
	score   score
	seconds float64
	curve   []point // one point a pass, from the prior on
}

// A point of a curve.
type point struct{ passes, negELBO, bits float64 }

func run(ctx context.Context, args []string, stdout, stderr *os.File) error {
	opt, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	train, test, err := opt.load()
	if err != nil {
		return err
	}
	set := opt.settings(train)

	fmt.Fprintf(stdout, "%s: %d training rows, %d test rows, length %.4g, scale %.4g, jitter %.4g\n\n",
		opt.name(), train.len(), test.len(), set.length, set.scale, set.jitter)
	fits, err := opt.fit(ctx, train, test, set, stderr)
	if err != nil {
		return err
	}

	if err := printTable(stdout, fits); err != nil {
		return err
	}
	if opt.out != "" {
		if err := savePlot(opt.out, opt.name(), fits); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "\nwrote %s\n", opt.out)
	}
	f := fits[0]
	_, err = fmt.Fprintf(stdout, "\nneg_elbo=%.6f gap_bound=%.1e test_bits=%.6f error=%.4f passes=%g seconds=%.2f\n",
		-f.res.ELBO, f.res.GapBound, f.score.bits, f.score.errors, f.res.Passes, f.seconds)
	return err
}

func printTable(w io.Writer, fits []*fit) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "method\tpasses\t-ELBO\tproved within\ttest bits\terror\tseconds\tended\t")
	for _, f := range fits {
		fmt.Fprintf(tw, "%s\t%.4g\t%.6f\t%.1e\t%.6f\t%.4f\t%.2f\t%v\t\n",
			f.name, f.res.Passes, -f.res.ELBO, f.res.GapBound, f.score.bits, f.score.errors, f.seconds, f.res.Status)
	}
	return tw.Flush()
}

// isTerminal reports whether f is a terminal rather than a file or a pipe.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

//go:generate go run -C ../.. ./examples/gpclass -out examples/gpclass/gpclass.png

func main() {
	// Ctrl-C ends a fit early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpclass:", err)
		os.Exit(1)
	}
}
