package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/schollz/progressbar/v3"
)

// library is the variant of a method that has no other.
const library = "library" // steps without options

// A method is one curve of figure 2.
type method struct {
	name, variant string
	random        bool
	model         pgsvi.Model
	solver        pgsvi.Solver
	runs          runs
}

// methods2 returns the methods of figure 2 at the settings of p.
func (o *options) methods2(p *paper.Problem) ([]*method, error) {
	n, gp := len(p.Y), p.ScoreFunction()
	all := []*method{
		{name: "PG-SVI", variant: paper.Published, random: true, model: gp, solver: *paper.PGSVI(n, p.BetaN, p.Batch)},
		{name: "block", variant: library, random: true, model: p.GP},
		{name: "batch", variant: library, model: p.GP, solver: pgsvi.Solver{BatchSize: n}},
	}
	gradient, err := p.GradientMethods(gp, pgsvi.LogCholesky)
	if err != nil {
		return nil, err
	}
	for _, m := range gradient {
		all = append(all, &method{name: m.Name, variant: m.Variant, random: true, model: m.Model, solver: m.Solver})
	}
	return choose("methods", o.methods, all, func(m *method) string { return m.name })
}

// problems2 returns the data sets of figure 2: with -quick ionosphere, without -data
// those of testdata.
func (o *options) problems2() ([]*paper.Problem, error) {
	type set struct {
		name string
		read func() (*paper.Problem, error)
	}
	sets := []set{{"ionosphere", func() (*paper.Problem, error) { return paper.Ionosphere(o.testdata) }}}
	if !o.quick {
		sets = slices.Insert(sets, 0, set{"sonar", func() (*paper.Problem, error) { return paper.Sonar(o.testdata) }})
	}
	if !o.quick && o.data != "" {
		sets = append(sets,
			set{"usps2v4", func() (*paper.Problem, error) { return paper.USPS(o.data, 2, 4) }},
			set{"usps3v5", func() (*paper.Problem, error) { return paper.USPS(o.data, 3, 5) }})
	}
	sets, err := choose("data sets", o.sets, sets, func(s set) string { return s.name })
	if err != nil {
		return nil, err
	}
	var all []*paper.Problem
	for _, s := range sets {
		p, err := s.read()
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// figure2 measures and draws how −ELBO and test log loss fall with the passes.
func (o *options) figure2(ctx context.Context, stdout io.Writer) error {
	problems, methods, err := o.measure2(ctx, stdout)
	if err != nil {
		return err
	}
	if err := drawFigure2(filepath.Join(o.out, "figure2.png"), o.marks(), problems, methods); err != nil {
		return err
	}
	for i, p := range problems {
		if err := p.print(stdout, methods[i]); err != nil {
			return err
		}
	}
	return nil
}

// measure2 runs the methods of figure 2 on each data set.
func (o *options) measure2(ctx context.Context, stdout io.Writer) ([]*problem, [][]*method, error) {
	sets, err := o.problems2()
	if err != nil {
		return nil, nil, err
	}
	total := 0
	problems, methods := make([]*problem, len(sets)), make([][]*method, len(sets))
	for i, set := range sets {
		if problems[i], err = solve(ctx, set); err != nil {
			return nil, nil, err
		}
		if methods[i], err = o.methods2(set); err != nil {
			return nil, nil, err
		}
		for _, m := range methods[i] {
			total += m.seeds(o) * o.passes
		}
	}
	bar := newBar(total)
	table, err := o.results("figure2.csv", 4, "dataset", "method", "variant", "seed", "pass", "neg_elbo", "logloss_bits", "seconds")
	if err != nil {
		return nil, nil, err
	}
	for i, p := range problems {
		pred, err := p.Predictor()
		if err != nil {
			return nil, nil, err
		}
		for _, m := range methods[i] {
			for seed := range m.seeds(o) {
				name := []string{p.Name, m.name, m.variant, fmt.Sprint(seed + 1)}
				run, err := table.samples(ctx, stdout, name, o.passes, func(add func(sample)) (int, error) {
					return m.run(ctx, uint64(seed+1), o.marks(), pred, bar, add)
				})
				if err != nil {
					return nil, nil, err
				}
				if run != nil {
					m.runs = append(m.runs, run)
				}
			}
		}
	}
	bar.Finish()
	return problems, methods, nil
}

// print writes the table of p.
func (p *problem) print(stdout io.Writer, methods []*method) error {
	fmt.Fprintf(stdout, "\n%s: %d training rows, %d test rows, −ELBO %.4f at the start, %.8f at the optimum; medians over seeds\n\n", p.Name, len(p.Y), len(p.YTest), p.start, p.optimum)
	tw := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "method\tvariant\tseeds\tpasses\t−ELBO\ttest bits\tseconds\tpasses to 1%\tto 0.1%\t")
	for _, m := range methods {
		if m.runs == nil {
			continue
		}
		s := m.runs.median(m.runs.last())
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%.6f\t%.5f\t%.2f", m.name, m.variant, len(m.runs), s.pass, s.loss, s.bits, s.seconds)
		for _, share := range within {
			fmt.Fprintf(tw, "\t%s", number(m.runs.passesTo(p.optimum+share*(p.start-p.optimum))))
		}
		fmt.Fprintln(tw, "\t")
	}
	return tw.Flush()
}

// run runs m, shows what it is at marks to add, and returns the pass that was reached.
func (m *method) run(ctx context.Context, seed uint64, marks []int, pred *paper.Predictor, bar *progressbar.ProgressBar, add func(sample)) (pass int, err error) {
	solver := m.solver
	solver.Src = rand.NewPCG(seed, 0)
	begun, err := solver.Start(ctx, m.model)
	if err != nil {
		return 0, err
	}
	return follow(ctx, solver, begun, marks, bar, func(s state) error {
		negELBO, err := s.negELBO()
		if err != nil {
			return err
		}
		bits, err := pred.Bits(m.model, s.stepper)
		if err == nil {
			add(sample{s.pass, s.seconds, negELBO, bits})
		}
		return err
	})
}

// seeds returns the number of runs of m.
func (m *method) seeds(o *options) int {
	if m.random {
		return o.seeds
	}
	return 1
}
