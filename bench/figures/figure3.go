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
	runs [][]score // by seed
}

// A score is one point of a run.
type score struct {
	pass          int
	seconds, nats float64
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
	all = slices.DeleteFunc(all, func(e *eStep) bool { return !among(o.methods, e.name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("figure 3 has no methods %v", o.methods)
	}
	return all, nil
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
				rows, err := table.run([]string{s.name, e.name, fmt.Sprint(s.topics), fmt.Sprint(seed + 1)}, func() ([][]string, error) {
					run, err := e.run(ctx, s, uint64(seed+1), o.marks(), o.draws, bar)
					if err != nil && ctx.Err() == nil {
						fmt.Fprintf(stdout, "%s, %s, %d topics, seed %d: %v\n", s.name, e.name, s.topics, seed+1, err)
					}
					var rows [][]string
					for _, r := range run {
						rows = append(rows, []string{fmt.Sprint(r.pass), number(r.seconds), number(r.nats)})
					}
					return rows, context.Cause(ctx)
				})
				if err != nil {
					return err
				}
				if rows == nil {
					continue
				}
				values, err := table.numbers(rows)
				if err != nil {
					return err
				}
				var run []score
				for _, v := range values {
					run = append(run, score{int(v[0]), v[1], v[2]})
				}
				e.runs = append(e.runs, run)
			}
		}
	}
	bar.Finish()
	if err := drawFigure3(filepath.Join(o.out, "figure3.png"), len(corpora), o.marks(), settings); err != nil {
		return err
	}
	for _, s := range settings {
		if err := s.print(stdout, o.passes); err != nil {
			return err
		}
	}
	return nil
}

// run returns the scores of a run at marks. Those of a run that failed end before.
func (e *eStep) run(ctx context.Context, s *setting, seed uint64, marks []int, draws int, bar *progressbar.ProgressBar) ([]score, error) {
	model, err := pgsvi.NewCTM(s.train, s.topics, &e.opt)
	if err != nil {
		return nil, err
	}
	st, err := model.NewStepper(nil)
	if err != nil {
		return nil, err
	}
	var run []score
	solver := pgsvi.Solver{Workers: 1, Src: rand.NewPCG(seed, 0)}
	pass, err := follow(ctx, solver, st, marks, bar, func(at state) error {
		nats, err := heldOut(model, at.stepper, s.test, draws)
		if err == nil {
			run = append(run, score{at.pass, at.seconds, nats})
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("in pass %d: %w", pass+1, err)
	}
	return run, err
}

// print writes the table of s.
func (s *setting) print(w io.Writer, last int) error {
	best := math.Inf(1)
	for _, e := range s.eSteps {
		_, nats := e.after(last)
		best = min(best, median(nats))
	}
	fmt.Fprintf(w, "\n%s, %d topics: %d documents to train and %d to test on, %.3f nats a word by frequencies alone; after %d passes, median and range over seeds,\nand the seconds after which a run was first seen within %g of the best median\n\n",
		s.name, s.topics, len(s.train.Docs), len(s.test.Docs), s.unigram, last, tolerance)
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "method\tnats a word\trange\tseconds\tto within %g\t\n", tolerance)
	for _, e := range s.eSteps {
		seconds, nats := e.after(last)
		if nats == nil {
			continue
		}
		to := "never"
		if t := e.secondsTo(best + tolerance); !math.IsInf(t, 1) {
			to = fmt.Sprintf("%.2f", t)
		}
		fmt.Fprintf(tw, "%s\t%.3f\t%.3f–%.3f\t%.2f\t%s\t\n", e.name, median(nats), slices.Min(nats), slices.Max(nats), median(seconds), to)
	}
	return tw.Flush()
}

// after returns seconds and scores after a pass, by seed. A run that failed counts
// as infinitely bad.
func (e *eStep) after(pass int) (seconds, nats []float64) {
	for _, run := range e.runs {
		at := score{pass, math.Inf(1), math.Inf(1)}
		if i := slices.IndexFunc(run, func(s score) bool { return s.pass == pass }); i >= 0 {
			at = run[i]
		}
		seconds, nats = append(seconds, at.seconds), append(nats, at.nats)
	}
	return seconds, nats
}

// secondsTo returns the seconds after which a run was first seen at so many nats or
// below, the median over seeds; infinite if most never were.
func (e *eStep) secondsTo(nats float64) float64 {
	var first []float64
	for _, run := range e.runs {
		at := math.Inf(1)
		if i := slices.IndexFunc(run, func(s score) bool { return s.nats <= nats }); i >= 0 {
			at = run[i].seconds
		}
		first = append(first, at)
	}
	return median(first)
}
