package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// mostCores is the number of goroutines, and of threads of the peers, that part cores compares with
// one.
const mostCores = 2

// cores compares the wall time of fits on two cores with their wall time on one core, including
// set-up. It also measures scikit-learn with one and two threads on the same rows, and further work
// of this library.
func (o *options) cores(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	add := func(s *split, method, kind string, fit func(*pgsvi.Solver) error, args ...any) error {
		rows, err := o.script(ctx, s.name, "cores.py",
			append([]any{kind, s.train, s.cols(), o.repeats}, args...)...)
		if err != nil {
			return err
		}
		ours, err := o.clocks(s.name, method, method+", nil Solver", fit)
		all = append(append(all, rows...), ours...)
		return err
	}
	addGP := func(s *split, k pgsvi.SquaredExp, jitter float64) error {
		return add(s, "GP", "gp", func(by *pgsvi.Solver) error {
			g, err := pgsvi.NewGP(s.x, s.y, k, pgsvi.BernoulliLogit{},
				&pgsvi.GPOptions{Jitter: jitter})
			if err == nil {
				_, _, err = g.Fit(ctx, by)
			}
			return err
		}, k.Scale, k.Length)
	}
	for _, s := range splits {
		if s.name != "usps3v5" {
			continue
		}
		if err := addGP(s, s.problem.Kernel().(pgsvi.SquaredExp), s.problem.Jitter); err != nil {
			return nil, err
		}
	}
	for _, size := range [][2]int{{2000, 10}, {5000, 1000}, {200000, 30}} {
		n, d := size[0], size[1]
		x, y := generate(n, d)
		s := &split{name: fmt.Sprintf("%d dense rows × %d", n, d), x: x, y: y,
			train: filepath.Join(o.temp, "cores.train")}
		if err := writeRows(s.train, x, y); err != nil {
			return nil, err
		}
		if d == 10 {
			err = addGP(s, pgsvi.SquaredExp{Scale: 1.5, Length: 3}, 1e-6)
		} else {
			err = add(s, "GLM", "glm", func(by *pgsvi.Solver) error {
				g, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
				if err == nil {
					_, _, err = g.Fit(ctx, by)
				}
				return err
			})
		}
		if err != nil {
			return nil, err
		}
	}
	ours, err := o.coreWorks(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, ours...)
	for i, r := range all {
		for _, one := range all {
			if one.threads == 1 && one.work == r.work && one.method == r.method {
				all[i].ratio = r.seconds / one.seconds
			}
		}
	}
	return all, nil
}

// Sizes of the further work in part cores.
const (
	coreInducing    = 200
	corePredictions = 10000
	coreTopics      = 20
	corePasses      = 5 // passes of topic models
)

// coreWorks times work that has no counterpart in the peers.
func (o *options) coreWorks(ctx context.Context) (all []row, err error) {
	type work struct {
		set, method, name string
		do                func(*pgsvi.Solver) error
	}
	var works []work
	add := func(set, method, name string, do func(*pgsvi.Solver) error) {
		works = append(works, work{set, method, name, do})
	}
	x, y := generate(2000+corePredictions, 10)
	k := pgsvi.SquaredExp{Scale: 1.5, Length: 3}
	g, err := pgsvi.NewGP(x.Slice(0, 2000, 0, 10), y[:2000], k, pgsvi.BernoulliLogit{},
		&pgsvi.GPOptions{Jitter: 1e-6})
	if err != nil {
		return nil, err
	}
	post, _, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	set := fmt.Sprintf("%d rows × 10", corePredictions)
	rows := x.Slice(2000, len(y), 0, 10)
	add(set, "predictions, GP of 2000", "predictions of a GP of 2000 rows",
		func(*pgsvi.Solver) error { post.Prob(nil, 1, rows); return nil })
	add(set, "SparseGP", fmt.Sprintf("SparseGP, %d inducing inputs", coreInducing),
		func(by *pgsvi.Solver) error {
			g, err := pgsvi.NewSparseGP(rows, y[2000:], k, pgsvi.BernoulliLogit{},
				&pgsvi.SparseGPOptions{Rank: coreInducing})
			if err == nil {
				_, _, err = g.Fit(ctx, by)
			}
			return err
		})
	many, labels := generate(200000, 30)
	set = "200000 dense rows × 30"
	add(set, "GLM, diagonal", "GLM, DiagonalCovariance", func(by *pgsvi.Solver) error {
		g, err := pgsvi.NewGLM(many, labels, pgsvi.BernoulliLogit{},
			&pgsvi.GLMOptions{Covariance: pgsvi.DiagonalCovariance})
		if err == nil {
			_, _, err = g.Fit(ctx, by)
		}
		return err
	})
	m, err := pgsvi.NewGLM(many, labels, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		return nil, err
	}
	weights, _, err := m.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	add(set, "predictions, GLM", "predictions of a GLM",
		func(*pgsvi.Solver) error { weights.Prob(nil, 1, many); return nil })
	c, _, err := o.readAP()
	if err != nil && !o.leftOut("ap", err) {
		return nil, err
	}
	if err == nil {
		add("ap", "LDA", fmt.Sprintf("LDA, %d topics, %d passes", coreTopics, corePasses),
			func(by *pgsvi.Solver) error {
				m, err := pgsvi.NewLDA(c, coreTopics, nil)
				if err == nil {
					by.MaxPasses = corePasses
					_, _, err = m.Fit(ctx, by)
				}
				return err
			})
		add("ap", "CTM", fmt.Sprintf("CTM, %d topics, %d passes", coreTopics, corePasses),
			func(by *pgsvi.Solver) error {
				m, err := pgsvi.NewCTM(c, coreTopics, nil)
				if err == nil {
					by.MaxPasses = corePasses
					_, _, err = m.Fit(ctx, by)
				}
				return err
			})
	}
	for _, w := range works {
		rows, err := o.clocks(w.set, w.method, w.name, w.do)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// clocks returns the smallest wall times of a work on one core and on two, in turn.
func (o *options) clocks(set, method, name string, work func(*pgsvi.Solver) error) ([]row, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var rows []row
	for range o.repeats {
		for k := range mostCores {
			runtime.GOMAXPROCS(k + 1)
			runtime.GC()
			start := time.Now()
			if err := work(&pgsvi.Solver{Workers: k + 1}); err != nil {
				return nil, err
			}
			seconds := time.Since(start).Seconds()
			if k == len(rows) {
				r := o.newRow(set, method, "")
				r.name, r.threads, r.seconds = "pgsvi, "+name, k+1, seconds
				rows = append(rows, r)
			}
			rows[k].seconds = min(rows[k].seconds, seconds)
		}
	}
	return rows, nil
}

// coresTable returns the table of part cores.
func coresTable(rows []row) string {
	var lines [][]string
	for _, one := range rows {
		for _, two := range rows {
			if one.threads == 1 && two.threads == mostCores && one.work == two.work &&
				one.method == two.method {
				lines = append(lines,
					[]string{one.work, one.label(), number("%.4f", one.seconds),
						number("%.4f", two.seconds), number("%.2f", one.seconds/two.seconds)})
			}
		}
	}
	return tables.Markdown([]string{"", "", "one core, wall seconds", "two",
		"times as fast"}, lines)
}
