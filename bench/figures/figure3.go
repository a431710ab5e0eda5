package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"github.com/schollz/progressbar/v3"
)

// A setting is one panel of figure 3: a corpus and a number of topics.
type setting struct {
	*corpus
	topics int
	eSteps []*eStep
}

// An eStep is one curve of figure 3. The M-step is the same for all.
type eStep struct {
	name string
	opt  pgsvi.CTMOptions
	runs runs
}

// tolerance is how many nats a word from the best count as having got there.
const tolerance = 0.05

// eSteps returns the methods of figure 3.
func (o *options) eSteps() ([]*eStep, error) {
	all := []*eStep{
		{name: "PG-SVI"},
		{name: "PG-SVI-MF", opt: pgsvi.CTMOptions{Diagonal: true}},
		{name: "PG-SVI (paper)", opt: pgsvi.CTMOptions{Paper: true}},
		{name: "delta", opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMDelta}},
		{name: "Laplace", opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMLaplace}},
		{name: "mean field", opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMMeanField}},
	}
	return choose("methods", o.methods, all, func(e *eStep) string { return e.name })
}

// figure3 measures and draws how the held-out score of topic models falls with time.
func (o *options) figure3(ctx context.Context, stdout io.Writer) error {
	corpora, err := o.corpora(stdout)
	if err != nil {
		return err
	}
	var settings []*setting
	total := 0
	for _, topics := range o.topics {
		for _, c := range corpora {
			s := &setting{corpus: c, topics: topics}
			if s.eSteps, err = o.eSteps(); err != nil {
				return err
			}
			settings = append(settings, s)
			total += len(s.eSteps) * o.seeds * o.passes
		}
	}
	bar := newBar(total)
	table, err := o.results("figure3.csv", 4, "corpus", "method", "topics", "seed", "pass", "seconds", "heldout_nats")
	if err != nil {
		return err
	}
	for _, s := range settings {
		for _, e := range s.eSteps {
			for seed := range o.seeds {
				name := []string{s.name, e.name, fmt.Sprint(s.topics), fmt.Sprint(seed + 1)}
				run, err := table.samples(ctx, stdout, name, o.passes, func(add func(sample)) (int, error) {
					return e.run(ctx, s, uint64(seed+1), o.marks(), o.draws, bar, add)
				})
				if err != nil {
					return err
				}
				if run != nil {
					e.runs = append(e.runs, run)
				}
			}
		}
	}
	bar.Finish()
	if err := drawFigure3(filepath.Join(o.out, "figure3.png"), len(corpora), o.marks(), settings); err != nil {
		return err
	}
	for _, s := range settings {
		if err := s.print(stdout); err != nil {
			return err
		}
	}
	return nil
}

// run runs e on s, shows its scores at marks to add, and returns the pass that was reached.
func (e *eStep) run(ctx context.Context, s *setting, seed uint64, marks []int, draws int, bar *progressbar.ProgressBar, add func(sample)) (pass int, err error) {
	model, err := pgsvi.NewCTM(s.train, s.topics, &e.opt)
	if err != nil {
		return 0, err
	}
	solver := pgsvi.Solver{Workers: 1, Src: rand.NewPCG(seed, 0)}
	begun, err := solver.Start(ctx, model)
	if err != nil {
		return 0, err
	}
	return follow(ctx, solver, begun, marks, bar, func(at state) error {
		nats, err := heldOut(model, at.stepper, s.test, draws)
		if err == nil {
			add(sample{pass: at.pass, seconds: at.seconds, loss: nats})
		}
		return err
	})
}

// print writes the table of s.
func (s *setting) print(w io.Writer) error {
	last, best := 0, math.Inf(1)
	for _, e := range s.eSteps {
		last = max(last, e.runs.last())
	}
	for _, e := range s.eSteps {
		best = min(best, e.runs.median(last).loss)
	}
	fmt.Fprintf(w, "\n%s, %d topics: %d documents to train and %d to test on, %.3f nats a word by frequencies alone; after %d passes, median and range over seeds,\nand the seconds after which a run was first seen within %g of the best median\n\n",
		s.name, s.topics, len(s.train.Docs), len(s.test.Docs), s.unigram, last, tolerance)
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "method\tseeds\tnats a word\trange\tseconds\tto within %g\t\n", tolerance)
	for _, e := range s.eSteps {
		if e.runs == nil {
			continue
		}
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, r := range e.runs.after(last) {
			lo, hi = min(lo, r.loss), max(hi, r.loss)
		}
		to := "never"
		if t := e.secondsTo(best + tolerance); !math.IsInf(t, 1) {
			to = fmt.Sprintf("%.2f", t)
		}
		m := e.runs.median(last)
		fmt.Fprintf(tw, "%s\t%d\t%.3f\t%.3f–%.3f\t%.2f\t%s\t\n", e.name, len(e.runs), m.loss, lo, hi, m.seconds, to)
	}
	return tw.Flush()
}

// secondsTo returns the seconds after which a run was first seen at so many nats or
// below, the median over seeds; infinite if most never were.
func (e *eStep) secondsTo(nats float64) float64 {
	var first []float64
	for _, run := range e.runs {
		at := math.Inf(1)
		if i := slices.IndexFunc(run, func(s sample) bool { return s.loss <= nats }); i >= 0 && !math.IsInf(nats, 1) {
			at = run[i].seconds
		}
		first = append(first, at)
	}
	return median(first)
}
