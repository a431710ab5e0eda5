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
	runs          [][]sample // by seed
}

// A sample is one point of a run.
type sample struct {
	pass                   int
	negELBO, bits, seconds float64
}

// methods2 returns the methods of figure 2 at the settings of p.
func (o *options) methods2(p *paper.Problem) ([]*method, error) {
	n, gp := len(p.Y), p.ScoreFunction()
	all := []*method{
		{name: "PG-SVI", variant: paper.Published, random: true, model: gp, solver: *pgsvi.PGSVI(n, p.BetaN, p.Batch)},
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
	all = slices.DeleteFunc(all, func(m *method) bool { return !among(o.methods, m.name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("figure 2 has no methods %v", o.methods)
	}
	return all, nil
}

// problems2 returns the data sets of figure 2.
func (o *options) problems2() ([]*paper.Problem, error) {
	var all []*paper.Problem
	for _, set := range []struct {
		name       string
		full, data bool // whether not part of -quick, or of testdata
		read       func() (*paper.Problem, error)
	}{
		{"sonar", true, false, func() (*paper.Problem, error) { return paper.Sonar(o.testdata) }},
		{"ionosphere", false, false, func() (*paper.Problem, error) { return paper.Ionosphere(o.testdata) }},
		{"usps2v4", true, true, func() (*paper.Problem, error) { return paper.USPS(o.data, 2, 4) }},
		{"usps3v5", true, true, func() (*paper.Problem, error) { return paper.USPS(o.data, 3, 5) }},
	} {
		if set.full && o.quick || set.data && o.data == "" || !among(o.sets, set.name) {
			continue
		}
		p, err := set.read()
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("figure 2 has no data sets %v, or they need -data", o.sets)
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
				rows, err := table.run([]string{p.Name, m.name, m.variant, fmt.Sprint(seed + 1)}, func() ([][]string, error) {
					run, err := m.run(ctx, uint64(seed+1), o.marks(), pred, bar)
					if err != nil && ctx.Err() == nil {
						fmt.Fprintf(stdout, "%s, %s %s, seed %d: %v\n", p.Name, m.name, m.variant, seed+1, err)
					}
					var rows [][]string
					for _, s := range run {
						rows = append(rows, []string{fmt.Sprint(s.pass), number(s.negELBO), number(s.bits), number(s.seconds)})
					}
					return rows, context.Cause(ctx)
				})
				if err != nil {
					return nil, nil, err
				}
				if rows == nil {
					continue
				}
				values, err := table.numbers(rows)
				if err != nil {
					return nil, nil, err
				}
				var run []sample
				for _, v := range values {
					run = append(run, sample{int(v[0]), v[1], v[2], v[3]})
				}
				m.runs = append(m.runs, run)
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
		s := m.last()
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%.6f\t%.5f\t%.2f", m.name, m.variant, len(m.runs), s.pass, s.negELBO, s.bits, s.seconds)
		for _, share := range within {
			fmt.Fprintf(tw, "\t%s", number(m.passesTo(p.optimum+share*(p.start-p.optimum))))
		}
		fmt.Fprintln(tw, "\t")
	}
	return tw.Flush()
}

// last returns the medians at the end of the runs.
func (m *method) last() sample {
	pass := 0
	for _, run := range m.runs {
		pass = max(pass, run[len(run)-1].pass)
	}
	return m.median(pass)
}

// passesTo returns the first of the marks from which on the median −ELBO is not
// above a bound, infinite if there is none.
func (m *method) passesTo(bound float64) float64 {
	first := math.Inf(1)
	for _, pass := range marks[2] {
		if pass > m.last().pass {
			break
		}
		switch above := !(m.median(pass).negELBO <= bound); {
		case above:
			first = math.Inf(1)
		case math.IsInf(first, 1):
			first = float64(pass)
		}
	}
	return first
}

// run returns the samples of a run at marks. The last of a run that failed is at
// the pass in which it did, and has no numbers.
func (m *method) run(ctx context.Context, seed uint64, marks []int, pred *paper.Predictor, bar *progressbar.ProgressBar) ([]sample, error) {
	st, err := m.model.NewStepper(m.solver.Divergence)
	if err != nil {
		return nil, err
	}
	var run []sample
	solver := m.solver
	solver.Src = rand.NewPCG(seed, 0)
	pass, err := follow(ctx, solver, st, marks, bar, func(s state) error {
		negELBO, err := s.negELBO()
		if err != nil {
			return err
		}
		bits, err := pred.Bits(s.stepper)
		if err != nil {
			return err
		}
		run = append(run, sample{s.pass, negELBO, bits, s.seconds})
		return nil
	})
	if err != nil {
		nan := math.NaN()
		run = append(run, sample{pass + 1, nan, nan, nan})
		err = fmt.Errorf("in pass %d: %w", pass+1, err)
	}
	return run, err
}

// seeds returns the number of runs of m.
func (m *method) seeds(o *options) int {
	if m.random {
		return o.seeds
	}
	return 1
}

// median returns the medians over seeds after a pass. A run that failed counts
// as infinitely bad.
func (m *method) median(pass int) sample {
	var elbo, bits, seconds []float64
	for _, run := range m.runs {
		s := sample{pass, math.Inf(1), math.Inf(1), math.Inf(1)}
		if i := slices.IndexFunc(run, func(s sample) bool { return s.pass == pass && !math.IsNaN(s.negELBO) }); i >= 0 {
			s = run[i]
		}
		elbo, bits, seconds = append(elbo, s.negELBO), append(bits, s.bits), append(seconds, s.seconds)
	}
	return sample{pass, median(elbo), median(bits), median(seconds)}
}

// median returns the median of v, the upper one of two, and infinity of nothing.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.Inf(1)
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
