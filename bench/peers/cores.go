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

// mostCores is the number of goroutines, and of threads of the peers, that the part cores compares with one.
const mostCores = 2

// cores compares the clock of fits on two cores with that on one, set-up included, beside what a second thread does for scikit-learn on the same rows.
func (o *options) cores(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	add := func(s *split, method, kind string, fit func(*pgsvi.Solver) error, args ...any) error {
		rows, err := o.script(ctx, s.name, "cores.py", append([]any{kind, s.train, s.cols(), o.repeats}, args...)...)
		if err != nil {
			return err
		}
		ours, err := o.clocks(s.name, method, fit)
		all = append(append(all, rows...), ours...)
		return err
	}
	addGP := func(s *split, k pgsvi.SquaredExp, jitter float64) error {
		return add(s, "GP", "gp", func(by *pgsvi.Solver) error {
			g, err := pgsvi.NewGP(s.x, s.y, k, pgsvi.BernoulliLogit{}, &pgsvi.GPOptions{Jitter: jitter})
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
		s := &split{name: fmt.Sprintf("%d dense rows × %d", n, d), x: x, y: y, train: filepath.Join(o.temp, "cores.train")}
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
	for i, r := range all {
		for _, one := range all {
			if one.threads == 1 && one.work == r.work && one.method == r.method {
				all[i].ratio = r.seconds / one.seconds
			}
		}
	}
	return all, nil
}

// clocks returns the least seconds of the clock of fits on one core and on two, in turn.
func (o *options) clocks(set, method string, fit func(*pgsvi.Solver) error) ([]row, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var rows []row
	for range o.repeats {
		for k := range mostCores {
			runtime.GOMAXPROCS(k + 1)
			runtime.GC()
			start := time.Now()
			if err := fit(&pgsvi.Solver{Workers: k + 1}); err != nil {
				return nil, err
			}
			seconds := time.Since(start).Seconds()
			if k == len(rows) {
				r := o.newRow(set, method, "")
				r.name, r.threads, r.seconds = "pgsvi, "+method+", nil Solver", k+1, seconds
				rows = append(rows, r)
			}
			rows[k].seconds = min(rows[k].seconds, seconds)
		}
	}
	return rows, nil
}

// coresTable returns the table of the part cores.
func coresTable(rows []row) string {
	var lines [][]string
	for _, one := range rows {
		for _, two := range rows {
			if one.threads == 1 && two.threads == mostCores && one.work == two.work && one.method == two.method {
				lines = append(lines, []string{one.work, one.label(), number("%.4f", one.seconds), number("%.4f", two.seconds), number("%.2f", one.seconds/two.seconds)})
			}
		}
	}
	return tables.Markdown([]string{"", "", "one core, seconds of the clock", "two", "times as fast"}, lines)
}
