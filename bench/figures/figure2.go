package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/schollz/progressbar/v3"
)

// byDefault is the method of a nil Solver. library is its variant, because it has no settings.
const byDefault, library = "default", "library"

// A method is one curve of figure 2.
type method struct {
	name, variant string
	random        bool
	model         pgsvi.Model
	solver        pgsvi.Solver
	runs          runs
}

// methods2 returns the methods of figure 2 with the settings of p.
func (o *options) methods2(p *paper.Problem) ([]*method, error) {
	n, gp := len(p.Y), p.Noisy
	all := []*method{
		{name: "PG-SVI", variant: paper.Published, random: true, model: gp,
			solver: *paper.PGSVI(n, p.BetaN, p.Batch)},
		{name: byDefault, variant: library, model: p.GP},
	}
	gradient, err := p.GradientMethods(gp, pgsvi.LogCholesky)
	if err != nil {
		return nil, err
	}
	for _, m := range gradient {
		all = append(all, &method{name: m.Name, variant: m.Variant, random: true, model: m.Model,
			solver: m.Solver})
	}
	return choose("methods", o.methods, all, func(m *method) string { return m.name })
}

// problems2 returns the data sets of figure 2. With -quick it returns ionosphere, and without -data
// only the data sets in testdata.
func (o *options) problems2() ([]*paper.Problem, error) {
	type set struct {
		name string
		read func() (*paper.Problem, error)
	}
	sets := []set{{"ionosphere",
		func() (*paper.Problem, error) { return paper.Ionosphere(o.testdata) }}}
	if !o.quick {
		sets = slices.Insert(sets, 0,
			set{"sonar", func() (*paper.Problem, error) { return paper.Sonar(o.testdata) }})
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

// figure2 measures and draws −ELBO and test log loss against passes. It draws an overview and a
// picture for each data set.
func (o *options) figure2(ctx context.Context, stdout io.Writer) error {
	problems, methods, err := o.measure2(ctx, stdout)
	if err != nil {
		return err
	}
	if err := drawOverview(filepath.Join(o.out, "figure2.png"), problems, methods); err != nil {
		return err
	}
	for i, p := range problems {
		if err := drawFigure2(filepath.Join(o.out, "figure2-"+p.name+".png"), p,
			methods[i]); err != nil {
			return err
		}
	}
	return o.publish(stdout, tables2(problems, methods))
}

// Names in the table of figure 2 for the −ELBO of q = prior and of the optimum.
const startName, optimumName = "start", "optimum"

// open2 returns the table of figure 2.
func (o *options) open2() (*results, error) {
	return o.results("figure2.csv", 4, "dataset", "method", "variant", "seed", "pass", "neg_elbo",
		"logloss_bits", "seconds")
}

// measure2 runs the methods of figure 2 on each data set.
func (o *options) measure2(ctx context.Context, stdout io.Writer) ([]*problem, [][]*method, error) {
	if o.draw {
		return o.stored2()
	}
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
	table, err := o.open2()
	if err != nil {
		return nil, nil, err
	}
	for i, p := range problems {
		if err := p.refer(table); err != nil {
			return nil, nil, err
		}
		pred, err := p.Predictor()
		if err != nil {
			return nil, nil, err
		}
		for _, m := range methods[i] {
			for seed := range m.seeds(o) {
				name := []string{p.name, m.name, m.variant, fmt.Sprint(seed + 1)}
				run, err := table.samples(ctx, stdout, name, o.passes,
					func(add func(sample)) (int, error) {
						return m.run(ctx, uint64(seed+1), o.marks(), pred, bar, add)
					})
				if err != nil {
					return nil, nil, err
				}
				m.runs = append(m.runs, run)
			}
		}
	}
	bar.Finish()
	return problems, methods, nil
}

// stored2 returns the contents of the table of figure 2, without reading data.
func (o *options) stored2() ([]*problem, [][]*method, error) {
	table, err := o.open2()
	if err != nil {
		return nil, nil, err
	}
	sets, err := choose("data sets", o.sets, column(table.names, 0),
		func(s string) string { return s })
	if err != nil {
		return nil, nil, err
	}
	// Use the order of the paper and not the order of the measurements.
	order := []string{"sonar", "ionosphere", "usps2v4", "usps3v5"}
	slices.SortStableFunc(sets, func(a, b string) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	var problems []*problem
	var methods [][]*method
	for _, set := range sets {
		p := &problem{name: set}
		if err := p.refer(table); err != nil {
			return nil, nil, err
		}
		var all []*method
		for _, name := range table.stored(set) {
			if name[1] == startName || name[1] == optimumName ||
				o.methods != nil && !slices.Contains(o.methods, name[1]) {
				continue
			}
			run, err := table.samples(context.Background(), io.Discard, name, 0, nil)
			if err != nil {
				return nil, nil, err
			}
			i := slices.IndexFunc(all,
				func(m *method) bool { return m.name == name[1] && m.variant == name[2] })
			if i < 0 {
				i, all = len(all), append(all, &method{name: name[1], variant: name[2]})
			}
			all[i].runs = append(all[i].runs, run)
		}
		problems, methods = append(problems, p), append(methods, all)
	}
	return problems, methods, nil
}

// refer stores the start and the optimum of p in a table, or reads them from it.
func (p *problem) refer(table *results) (err error) {
	name := func(what string) []string { return []string{p.name, what, library, "1"} }
	if p.start, err = table.reference(name(startName), "neg_elbo",
		func() float64 { return p.start }); err != nil {
		return err
	}
	p.optimum, err = table.reference(name(optimumName), "neg_elbo",
		func() float64 { return p.optimum })
	return err
}

// label returns the name of m in tables.
func (m *method) label() string {
	if m.variant == library || m.name == "PG-SVI" {
		return m.name
	}
	return m.name + ", " + m.variant
}

// tables2 returns the tables of figure 2 by name.
func tables2(problems []*problem, methods [][]*method) map[string]string {
	return map[string]string{"figure 2": tableOfELBOs(problems, methods),
		"figure 2, bits": tableOfBits(problems, methods)}
}

// tableOfELBOs returns the final −ELBO, its range over seeds, and the passes to each band.
func tableOfELBOs(problems []*problem, methods [][]*method) string {
	first := []string{"start → optimum"}
	for _, p := range problems {
		first = append(first, fmt.Sprintf("%.5g → %.3f", p.start, p.optimum))
	}
	return sideBySide(problems, methods, first, func(p *problem, m *method) string {
		last := m.runs.last()
		s := m.runs.median(last)
		if math.IsInf(s.loss, 1) {
			return "fails"
		}
		digits := 0
		switch above := s.loss - p.optimum; {
		case above < 10:
			digits = 3
		case above < 1000:
			digits = 1
		}
		lo, hi := m.runs.spread(last, "neg_elbo")
		text := fmt.Sprintf("%.*f", digits, s.loss)
		if l, h := fmt.Sprintf("%.*f", digits, lo), fmt.Sprintf("%.*f", digits, hi); l != h {
			text += fmt.Sprintf(" [%s–%s]", l, h)
		}
		var to []string
		for _, share := range within {
			to = append(to, finite(m.runs.passesTo(p.optimum+share*(p.start-p.optimum))))
		}
		return fmt.Sprintf("%s (%s)", text, strings.Join(to, ", "))
	})
}

// tableOfBits returns the final test log loss and its range over seeds.
func tableOfBits(problems []*problem, methods [][]*method) string {
	return sideBySide(problems, methods, nil, func(_ *problem, m *method) string {
		last := m.runs.last()
		s := m.runs.median(last)
		if math.IsInf(s.bits, 1) {
			return "fails"
		}
		text := fmt.Sprintf("%.3f", s.bits)
		if lo, hi := m.runs.spread(last, "logloss_bits"); hi-lo >= 0.0005 {
			text += fmt.Sprintf(" [%.3f–%.3f]", lo, hi)
		}
		return text
	})
}

// sideBySide returns a table with a row for each method and a column for each data set.
func sideBySide(problems []*problem, methods [][]*method, first []string,
	cell func(*problem, *method) string) string {
	header := []string{""}
	var labels []string
	for i, p := range problems {
		passes, seeds := 0, 0
		for _, m := range methods[i] {
			passes, seeds = max(passes, m.runs.last()), max(seeds, len(m.runs))
			if !slices.Contains(labels, m.label()) {
				labels = append(labels, m.label())
			}
		}
		text := fmt.Sprintf("%s, %d passes, 1 seed", titles[p.name], passes)
		if seeds > 1 {
			text = fmt.Sprintf("%s, %d passes, %d seeds", titles[p.name], passes, seeds)
		}
		header = append(header, text)
	}
	var rows [][]string
	if first != nil {
		rows = append(rows, first)
	}
	for _, label := range labels {
		row := []string{label}
		for i, p := range problems {
			text := ""
			for _, m := range methods[i] {
				if m.label() == label && m.runs != nil {
					text = cell(p, m)
				}
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return tables.Markdown(header, rows)
}

// run runs m and calls add with its sample at each mark. It returns the pass that the run reached.
func (m *method) run(ctx context.Context, seed uint64, marks []int, pred *paper.Predictor,
	bar *progressbar.ProgressBar, add func(sample)) (pass int, err error) {
	solver := m.solver
	solver.Src = rand.NewPCG(seed, 0)
	return follow(ctx, solver, m.model, marks, bar, func(s state) error {
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
