// Command methods fits one Gaussian process by every method that Khan et al. (2016) have in their
// table: each is a choice of f, h and D, and of a gradient, for the one Solver. (ISTA is the
// proximal gradient method for an h with a kink, which a GP has not.)
//
// It prints after how many passes over the data each is within 1% and 0.1% of the way from start to
// optimum, and within 1e-6 nats, from where on it stays so to its end, and draws how it got there.
// The optimum is that of a fit whose gap is proved; no method knows it. A step size is chosen as it
// would be without: each method runs with several, 4 times apart, and the run counts that ended
// with the least -ELBO, or, of those that ended as low, the shortest. A run ends where ten passes
// in a row have changed the ELBO by less than 1e-10 of it in the median, or at -passes. The last
// row, the nil Solver, has no step size, and ends where its gap is proved.
//
// The data are the first rows of ionosphere. There are few, as gradients and numeric steps work on
// a dense covariance. Run it in the root of the repository, where testdata is:
//
//	go run ./examples/methods
//
// The last line of the output is meant for programs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// A method is a model, that is f and h, with a Solver, that is D and the batches.
type method struct {
	name    string
	f, h, d string // in words
	model   pgsvi.Model
	solver  pgsvi.Solver                       // without a step size
	steps   []float64                          // that are tried; nil leaves them to the library
	decay   func(scale float64) pgsvi.Schedule // nil is a constant step size
	share   float64                            // its most passes, in those of the others; 0 means 1
	noisy   bool                               // mini-batches or draws
	runs    []*run                             // one for each step size
	best    *run                               // that counts
}

// grid returns n step sizes from the largest on, each a quarter of the last.
func grid(largest float64, n int) (steps []float64) {
	for range n {
		steps = append(steps, largest)
		largest /= 4
	}
	return steps
}

const batch = 5 // rows in a mini-batch

// methods returns them all, over gp; sampled is the same with gradients by the score function.
func methods(gp, sampled *pgsvi.GP) ([]*method, error) {
	o, err := gp.Objective()
	if err != nil {
		return nil, err
	}
	in := func(o pgsvi.Objective[*pgsvi.Gaussian], c pgsvi.Coordinates) pgsvi.Objective[*pgsvi.Gaussian] {
		o.Init = o.Init.In(c)
		return o
	}
	inner := o // in mean parameters
	inner.Inner = 5
	euclidean, symmetric := pgsvi.Solver{Divergence: pgsvi.Euclidean()}, pgsvi.Solver{Divergence: pgsvi.SymKL()}
	batches := func(d pgsvi.Divergence) pgsvi.Solver { return pgsvi.Solver{Divergence: d, BatchSize: batch} }
	decay := func(scale float64) pgsvi.Schedule { return pgsvi.RobbinsMonro(scale, 1, 0.6) }
	// steps that are a minimisation of their own, without looks at the data and with many
	const numeric, far = 0.35, 20
	all := []*method{
		{name: "gradient descent", f: "-ELBO", h: "0", d: "Euclidean (m, L)",
			model: in(o.Linearized(), pgsvi.Cholesky), solver: euclidean, steps: grid(16, 8)},
		{name: "proximal gradient", f: "-E log p", h: "KL", d: "Euclidean (m, L)",
			model: in(o, pgsvi.Cholesky), solver: euclidean, steps: grid(16, 8)},
		{name: "mirror descent in A", f: "-ELBO", h: "0", d: "reverse KL (eta)",
			model: in(o.Linearized(), pgsvi.Natural), solver: pgsvi.Solver{Divergence: pgsvi.ReverseKL()}, steps: grid(1, 8)},
		{name: "natural gradient", f: "-ELBO", h: "0", d: "KL (mu)", model: o.Linearized(), steps: grid(1, 6)},
		{name: "natural, symmetric KL", f: "-ELBO", h: "0", d: "symmetric KL (mu)",
			model: o.Linearized(), solver: symmetric, steps: grid(1, 2), share: numeric},
		{name: "trust region", f: "0", h: "-ELBO", d: "KL (m, L)",
			model: in(o, pgsvi.Cholesky).ProximalPoint(), steps: grid(64, 2), share: far},
		{name: "trust region, 5 times", f: "-E log p, 5 times", h: "KL", d: "KL (mu)", model: inner, steps: grid(64, 5)},
		{name: "PG, main text", f: "-E log p", h: "KL", d: "KL (mu)", model: o, steps: grid(16, 6)},
		{name: "PG, appendix", f: "-E log p", h: "KL", d: "KL (m, V)", model: in(o, pgsvi.MeanCov), steps: grid(16, 8)},
		{name: "PG, symmetric KL", f: "-E log p", h: "KL", d: "symmetric KL (mu)",
			model: o, solver: symmetric, steps: grid(4, 2), share: numeric},

		{name: "SGD", f: "-ELBO", h: "0", d: "Euclidean (m, L)",
			model: in(o.Linearized(), pgsvi.Cholesky), solver: batches(pgsvi.Euclidean()), steps: grid(16, 8), decay: decay},
		{name: "AdaGrad", f: "-ELBO", h: "0", d: "running diagonal",
			model: in(o.Linearized(), pgsvi.LogCholesky), solver: batches(pgsvi.AdaGrad(0)), steps: grid(4, 6)},
		{name: "RMSprop", f: "-ELBO", h: "0", d: "running diagonal",
			model: in(o.Linearized(), pgsvi.LogCholesky), solver: batches(pgsvi.RMSprop(0, 0)), steps: grid(1, 7)},
		{name: "Adadelta", f: "-ELBO", h: "0", d: "running diagonal",
			model: in(o.Linearized(), pgsvi.LogCholesky), solver: batches(pgsvi.Adadelta(0, 0)), steps: grid(256, 6)},
		{name: "Adam", f: "-ELBO", h: "0", d: "running diagonal",
			model: in(o.Linearized(), pgsvi.LogCholesky), solver: batches(pgsvi.Adam(0, 0, 0)), steps: grid(1, 7)},
		{name: "SVI", f: "-ELBO", h: "0", d: "KL (mu)", model: o.Linearized(), solver: batches(nil), steps: grid(1, 6), decay: decay},
		{name: "trust region, batches", f: "-E log p, 5 times", h: "KL", d: "KL (mu)",
			model: inner, solver: batches(nil), steps: grid(1, 6), decay: decay},
		{name: "PG-MC", f: "-E log p, draws", h: "KL", d: "KL (mu)", model: sampled, steps: grid(4, 6)},
		{name: "PG-SVI", f: "-E log p, draws", h: "KL", d: "KL (mu)", model: sampled, solver: batches(nil), steps: grid(1, 6)},
		{name: "nil Solver", f: "-E log p", h: "KL", d: "KL, accepted", model: gp},
	}
	noisy := false
	for _, m := range all {
		noisy = noisy || m.name == "SGD"
		m.noisy = noisy && m.steps != nil
	}
	return all, nil
}

// A run is one of a method: −ELBO after each evaluation.
type run struct {
	step           float64 // its size, or scale; 0 is the library's
	passes, values []float64
	status         string
}

// end returns the last −ELBO.
func (r *run) end() float64 { return r.values[len(r.values)-1] }

// within returns the pass from which on −ELBO is below value to the end of the run; it is false if
// it is not.
func (r *run) within(value float64) (float64, bool) {
	i := len(r.values)
	for i > 0 && r.values[i-1] <= value {
		i--
	}
	if i == len(r.values) {
		return 0, false
	}
	return r.passes[i], true
}

// fit runs m with the step size.
func (m *method) fit(ctx context.Context, step, passes, start float64, rows int, seed uint64) *run {
	s := m.solver
	s.Src = rand.NewPCG(seed, 0)
	s.MaxPasses = passes
	s.EvalEvery = 1 // or once a pass
	if s.BatchSize > 0 {
		s.EvalEvery = (rows + s.BatchSize - 1) / s.BatchSize
	}
	if step > 0 {
		s.StepSize = pgsvi.ConstantStep(step)
		if m.decay != nil {
			s.StepSize = m.decay(step)
		}
		s.Converger = pgsvi.ELBOChange(1e-10, 0)
	}
	r := &run{step: step, passes: []float64{0}, values: []float64{start}}
	res, err := s.Run(ctx, m.model)
	if res != nil {
		for _, it := range res.Trace {
			r.passes, r.values = append(r.passes, it.Passes), append(r.values, -it.ELBO)
		}
		r.status = res.Status.String()
	}
	if err != nil {
		r.status = "failed"
		r.passes, r.values = append(r.passes, passes), append(r.values, math.Inf(1))
	}
	return r
}

// alike is how near, relative to −ELBO, runs must end to each other to have ended as low.
const alike = 1e-9

// choose returns the run that ended lowest, or of those that ended as low the shortest. It knows no
// optimum.
func choose(runs []*run) *run {
	least := slices.MinFunc(runs, func(a, b *run) int { return cmp.Compare(a.end(), b.end()) }).end()
	best := (*run)(nil)
	for _, r := range runs {
		low := r.end() <= least+alike*math.Abs(least)
		if low && (best == nil || r.passes[len(r.passes)-1] < best.passes[len(best.passes)-1]) {
			best = r
		}
	}
	return best
}

// A table is what all methods reached.
type table struct {
	methods        []*method
	start, optimum float64 // −ELBO
	bound          float64 // proved, in nats
}

// aims are the −ELBO that count.
func (t *table) aims() []float64 {
	way := t.start - t.optimum
	return []float64{t.optimum + 0.01*way, t.optimum + 0.001*way, t.optimum + 1e-6}
}

// measure runs every method on the first rows of the data.
func measure(ctx context.Context, o *options) (*table, error) {
	x, y, err := load(o.testdata, o.rows)
	if err != nil {
		return nil, err
	}
	// The settings of the paper.
	kernel := pgsvi.SquaredExp{Scale: math.Exp(2.5), Length: math.Exp(1)}
	opt := pgsvi.GPOptions{Jitter: 1e-2}
	gp, err := pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, &opt)
	if err != nil {
		return nil, err
	}
	opt.Estimator = pgsvi.ScoreFunction{Samples: 500}
	sampled, err := pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, &opt)
	if err != nil {
		return nil, err
	}
	// The optimum, proved: no Gaussian has an ELBO of more than GapBound nats above it.
	_, best, err := gp.Fit(ctx, &pgsvi.Solver{Goal: 1e-8})
	if err != nil {
		return nil, err
	}
	prior, err := gp.NewStepper(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	start, err := prior.Evaluate(ctx, nil)
	if err != nil {
		return nil, err
	}
	t := &table{start: -start.ELBO, optimum: -best.ELBO, bound: best.GapBound}
	if t.methods, err = methods(gp, sampled); err != nil {
		return nil, err
	}
	for _, m := range t.methods {
		passes := o.passes
		if m.share > 0 {
			passes *= m.share
		}
		steps := m.steps
		if steps == nil {
			steps = []float64{0}
		}
		for _, step := range steps {
			m.runs = append(m.runs, m.fit(ctx, step, passes, t.start, o.rows, o.seed))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		m.best = choose(m.runs)
	}
	return t, nil
}

// load returns the first training rows of ionosphere.
func load(testdata string, rows int) (x *mat.Dense, y []float64, err error) {
	dir := filepath.Join(testdata, "ionosphere")
	f, err := os.Open(filepath.Join(dir, "ionosphere.csv"))
	if err != nil {
		return nil, nil, fmt.Errorf("run methods in the root of the repository: %w", err)
	}
	defer f.Close()
	x, y, err = data.ReadCSV(f)
	if err != nil {
		return nil, nil, err
	}
	g, err := os.Open(filepath.Join(dir, "train_index.txt"))
	if err != nil {
		return nil, nil, err
	}
	defer g.Close()
	index, err := data.ReadIndex(g)
	if err != nil {
		return nil, nil, err
	}
	if rows < 2 || rows > len(index) {
		return nil, nil, fmt.Errorf("-rows is %d, want 2 to %d", rows, len(index))
	}
	return data.SelectRows(x, y, index[:rows])
}

func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "method\tf, linearised\th, exact\tD\tstep size\t1%\t0.1%\t1e-6 nats\tended\tafter\tnats left")
	for _, m := range t.methods {
		if m.name == "SGD" || m.steps == nil {
			fmt.Fprintln(tw, "\t\t\t\t\t\t\t\t\t\t")
		}
		step := "chosen by itself"
		if m.best.step > 0 {
			step = fmt.Sprintf("%.3g", m.best.step)
			if m.decay != nil {
				step += " (k+1)^-0.6"
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s", m.name, m.f, m.h, m.d, step)
		for _, aim := range t.aims() {
			if passes, ok := m.best.within(aim); ok {
				fmt.Fprintf(tw, "\t%.4g", passes)
			} else {
				fmt.Fprint(tw, "\tnot reached")
			}
		}
		fmt.Fprintf(tw, "\t%s\t%.4g\t%.1e\n", m.best.status, m.best.passes[len(m.best.passes)-1], math.Max(0, m.best.end()-t.optimum))
	}
	return tw.Flush()
}

type options struct {
	testdata, out string
	rows          int
	passes        float64
	seed          uint64
}

func runProgram(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	f := flag.NewFlagSet("methods", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.testdata, "testdata", "testdata", "`folder` with ionosphere")
	f.StringVar(&o.out, "out", "methods.png", "PNG `file` to draw to; empty for none")
	f.IntVar(&o.rows, "rows", 25, "rows to fit")
	f.Float64Var(&o.passes, "passes", 200, "most passes of a run; of symmetric KL, whose steps take long, a third, and of the trust region, whose steps take many, 20 times that")
	f.Uint64Var(&o.seed, "seed", 1, "seed of batches and draws")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case !(o.passes >= 1):
		return fmt.Errorf("-passes is %v, want at least 1", o.passes)
	}
	t, err := measure(ctx, &o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d rows of ionosphere, -ELBO %.6f at the prior and %.8f at the optimum, proved to %.1e nats.\nPasses until within, at the step size that ended best of up to 8 (their other runs are not counted):\n\n", o.rows, t.start, t.optimum, t.bound)
	if err := t.print(stdout); err != nil {
		return err
	}
	if o.out != "" {
		if err := savePlot(o.out, t); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "\nwrote %s\n", o.out)
	}
	arrived := 0
	for _, m := range t.methods {
		if _, ok := m.best.within(t.optimum + 1e-6); ok {
			arrived++
		}
	}
	_, err = fmt.Fprintf(stdout, "\nneg_elbo=%.8f gap_bound=%.1e methods=%d arrived=%d\n", t.optimum, t.bound, len(t.methods), arrived)
	return err
}

//go:generate go run -C ../.. ./examples/methods -out examples/methods/methods.png

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := runProgram(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "methods:", err)
		os.Exit(1)
	}
}
