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
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/schollz/progressbar/v3"
)

// A setting is a panel of figure 3, which is a corpus and a number of topics.
type setting struct {
	*corpus
	topics int
	eSteps []*eStep
}

// An eStep is a curve of figure 3. All curves have the same M-step.
type eStep struct {
	name string
	opt  pgsvi.CTMOptions
	runs runs
}

// tolerance is the distance from the best score, in nats per word, at which a run counts as
// finished.
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

// figure3 measures and draws the held-out score of topic models against time.
func (o *options) figure3(ctx context.Context, stdout io.Writer) error {
	settings, err := o.measure3(ctx, stdout)
	if err != nil {
		return err
	}
	if err := drawFigure3(filepath.Join(o.out, "figure3.png"), settings); err != nil {
		return err
	}
	return o.publish(stdout, tables3(settings))
}

// Name in the table of figure 3 for the score of word frequencies.
const frequencies = "frequencies"

// open3 returns the table of figure 3.
func (o *options) open3() (*results, error) {
	return o.results("figure3.csv", 4, "corpus", "method", "topics", "seed", "pass", "seconds",
		"heldout_nats")
}

// measure3 runs the methods of figure 3 on each corpus.
func (o *options) measure3(ctx context.Context, stdout io.Writer) ([]*setting, error) {
	if o.draw {
		return o.stored3()
	}
	corpora, err := o.corpora(stdout)
	if err != nil {
		return nil, err
	}
	var settings []*setting
	total := 0
	for _, topics := range o.topics {
		for _, c := range corpora {
			s := &setting{corpus: c, topics: topics}
			if s.eSteps, err = o.eSteps(); err != nil {
				return nil, err
			}
			settings = append(settings, s)
			total += len(s.eSteps) * o.seeds * o.passes
		}
	}
	bar := newBar(total)
	table, err := o.open3()
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		if err := s.refer(table); err != nil {
			return nil, err
		}
		for _, e := range s.eSteps {
			for seed := range o.seeds {
				name := []string{s.name, e.name, fmt.Sprint(s.topics), fmt.Sprint(seed + 1)}
				run, err := table.samples(ctx, stdout, name, o.passes,
					func(add func(sample)) (int, error) {
						return e.run(ctx, s, uint64(seed+1), o.marks(), o.draws, bar, add)
					})
				if err != nil {
					return nil, err
				}
				e.runs = append(e.runs, run)
			}
		}
	}
	bar.Finish()
	return settings, nil
}

// stored3 returns the contents of the table of figure 3, without reading data.
func (o *options) stored3() ([]*setting, error) {
	table, err := o.open3()
	if err != nil {
		return nil, err
	}
	sets, err := choose("data sets", o.sets, column(table.names, 0),
		func(s string) string { return s })
	if err != nil {
		return nil, err
	}
	order := []string{"nips", "ap"}
	slices.SortStableFunc(sets, func(a, b string) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	var settings []*setting
	for _, set := range sets {
		for _, topics := range column(table.stored(set), 2) {
			k, err := strconv.Atoi(topics)
			if err != nil {
				return nil, fmt.Errorf("%s: %q topics", table.file, topics)
			}
			s := &setting{corpus: &corpus{name: set}, topics: k}
			if err := s.refer(table); err != nil {
				return nil, err
			}
			for _, name := range table.stored(set) {
				if name[2] != topics || name[1] == frequencies ||
					o.methods != nil && !slices.Contains(o.methods, name[1]) {
					continue
				}
				run, err := table.samples(context.Background(), io.Discard, name, 0, nil)
				if err != nil {
					return nil, err
				}
				i := slices.IndexFunc(s.eSteps, func(e *eStep) bool { return e.name == name[1] })
				if i < 0 {
					i, s.eSteps = len(s.eSteps), append(s.eSteps, &eStep{name: name[1]})
				}
				s.eSteps[i].runs = append(s.eSteps[i].runs, run)
			}
			settings = append(settings, s)
		}
	}
	return settings, nil
}

// refer stores the score of word frequencies in a table, or reads it from there.
func (s *setting) refer(table *results) (err error) {
	name := []string{s.name, frequencies, fmt.Sprint(s.topics), "1"}
	s.unigram, err = table.reference(name, "heldout_nats", func() float64 { return s.unigram })
	return err
}

// run runs e on s and calls add with its score at each mark. It returns the pass that the run
// reached.
func (e *eStep) run(ctx context.Context, s *setting, seed uint64, marks []int, draws int,
	bar *progressbar.ProgressBar, add func(sample)) (pass int, err error) {
	model, err := pgsvi.NewCTM(s.train, s.topics, &e.opt)
	if err != nil {
		return 0, err
	}
	solver := pgsvi.Solver{Workers: 1, Src: rand.NewPCG(seed, 0)}
	return follow(ctx, solver, model, marks, bar, func(at state) error {
		nats, err := heldOut(model, at.stepper, s.test, draws)
		if err == nil {
			add(sample{pass: at.pass, seconds: at.seconds, loss: nats})
		}
		return err
	})
}

// last returns the last pass of s and the best median score at that pass.
func (s *setting) last() (pass int, best float64) {
	for _, e := range s.eSteps {
		pass = max(pass, e.runs.last())
	}
	best = math.Inf(1)
	for _, e := range s.eSteps {
		best = min(best, e.runs.median(pass).loss)
	}
	return pass, best
}

// tables3 returns the table of figure 3 by name.
func tables3(settings []*setting) map[string]string {
	return map[string]string{"figure 3": tableOfScores(settings)}
}

// tableOfScores returns the median and range of the final score over seeds, the seconds to the end,
// and the seconds until a run first came within the tolerance of the best median.
func tableOfScores(settings []*setting) string {
	header, scores := []string{""}, []string{"frequencies alone"}
	var names []string
	for _, s := range settings {
		header = append(header, fmt.Sprintf("%s, K = %d: nats per word", titles[s.name], s.topics),
			"seconds", fmt.Sprintf("to within %g", tolerance))
		scores = append(scores, fmt.Sprintf("%.3f", s.unigram), "", "")
		for _, e := range s.eSteps {
			if !slices.Contains(names, e.name) {
				names = append(names, e.name)
			}
		}
	}
	var rows [][]string
	for _, name := range names {
		row := []string{name}
		for _, s := range settings {
			last, best := s.last()
			i := slices.IndexFunc(s.eSteps, func(e *eStep) bool { return e.name == name })
			if i < 0 {
				row = append(row, "", "", "")
				continue
			}
			e := s.eSteps[i]
			m := e.runs.median(last)
			lo, hi := e.runs.spread(last, "heldout_nats")
			to := "never"
			if t := e.secondsTo(best + tolerance); !math.IsInf(t, 1) {
				to = fmt.Sprintf("%.2f", t)
			}
			row = append(row, fmt.Sprintf("%.3f (%.3f–%.3f) of %d", m.loss, lo, hi, len(e.runs)),
				fmt.Sprintf("%.1f", m.seconds), to)
		}
		rows = append(rows, row)
	}
	return tables.Markdown(header, append(rows, scores))
}

// secondsTo returns the seconds until a run first reached the given nats, as the median over seeds.
// It is infinite if most runs never reached them.
func (e *eStep) secondsTo(nats float64) float64 {
	var first []float64
	for _, run := range e.runs {
		at := math.Inf(1)
		if i := slices.IndexFunc(run, func(s sample) bool { return s.loss <= nats }); i >= 0 &&
			!math.IsInf(nats, 1) {
			at = run[i].seconds
		}
		first = append(first, at)
	}
	return median(first)
}
