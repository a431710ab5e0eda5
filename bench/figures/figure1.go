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
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/schollz/progressbar/v3"
)

// A sweep is a method of figure 1 with its step sizes.
type sweep struct {
	name   string
	model  pgsvi.Model
	d      pgsvi.Divergence
	batch  int
	steps  []float64
	passes int
	seeds  int
	runs   [][]outcome // by step size and seed
}

// An outcome is the result of a run. passes has the first pass from which the run stays within 1%
// and within 0.1% of the way from the start to the optimum. It is infinite if there is no such pass
// in the first nine tenths of the run. change is the first pass that changes the −ELBO by less than
// 0.1%, or infinity, and excess is how many nats the run is then above the optimum.
type outcome struct {
	passes         [2]float64
	status         string
	change, excess float64
}

// row returns o as columns of the table.
func (o outcome) row() []string {
	return []string{number(o.passes[0]), number(o.passes[1]), o.status, number(o.change),
		number(o.excess)}
}

// readOutcome is the inverse of row.
func readOutcome(row []string) (outcome, error) {
	o := outcome{status: row[2]}
	for i, v := range map[int]*float64{0: &o.passes[0], 1: &o.passes[1], 3: &o.change,
		4: &o.excess} {
		var err error
		if *v, err = strconv.ParseFloat(row[i], 64); err != nil || math.IsNaN(*v) {
			return o, fmt.Errorf("the table of figure 1 has %q instead of a number", row[i])
		}
	}
	if !slices.Contains([]string{converged, left, notReached, diverged}, o.status) {
		return o, fmt.Errorf("the table of figure 1 has the status %q", o.status)
	}
	return o, nil
}

// within lists the bands that count as convergence, as fractions of the way from start to optimum.
var within = [2]float64{0.01, 0.001}

// The values of outcome.status.
const (
	converged  = "converged"   // reached 0.1% and stayed there
	left       = "left"        // reached 0.1%, but not for all of the last tenth of the run
	notReached = "not reached" // never reached 0.1%
	diverged   = "diverged"    // failed, ended above the start, or was below the optimum
)

// judge returns the outcome of a run with the given −ELBO after each pass.
func judge(curve []float64, start, optimum float64, failed bool) outcome {
	inf := math.Inf(1)
	o := outcome{passes: [2]float64{inf, inf}, status: notReached, change: inf, excess: inf}
	gap := start - optimum
	// A −ELBO below the optimum, except for rounding, is the result of an overflow.
	wrong := func(v float64) bool { return !(v > optimum-1e-6*gap) }
	if failed || len(curve) == 0 || curve[len(curve)-1] > start ||
		slices.ContainsFunc(curve, wrong) {
		o.status = diverged
		return o
	}
	last := start
	for i, v := range curve {
		if math.Abs(v-last) < 0.001*math.Abs(v) {
			o.change, o.excess = float64(i+1), v-optimum
			break
		}
		last = v
	}
	for i, share := range within {
		for pass, v := range curve {
			switch in := v <= optimum+share*gap; {
			case !in && !math.IsInf(o.passes[i], 1):
				o.passes[i] = inf
			case in && math.IsInf(o.passes[i], 1):
				o.passes[i] = float64(pass + 1)
			}
			if share == within[1] && v <= optimum+share*gap {
				o.status = left
			}
		}
		if o.passes[i] > 0.9*float64(len(curve)) {
			o.passes[i] = inf
		}
	}
	if !math.IsInf(o.passes[1], 1) {
		o.status = converged
	}
	return o
}

// grid returns step sizes from 10^lo to 10^hi, with the given number of them per factor of ten.
func grid(lo, hi float64, perDecade int) []float64 {
	var steps []float64
	for i := range int((hi-lo)*float64(perDecade)+0.5) + 1 {
		steps = append(steps, math.Pow(10, lo+float64(i)/float64(perDecade)))
	}
	return steps
}

// sweeps returns the methods of figure 1.
func (o *options) sweeps(p *problem) ([]*sweep, error) {
	exact, noisy := p.GP, p.Noisy
	objective, err := exact.Objective()
	if err != nil {
		return nil, err
	}
	objective = objective.Linearized()
	objective.Init = objective.Init.In(pgsvi.LogCholesky)
	fine, long := 4, 150 // GD takes more than 10,000 passes
	if o.quick {
		fine, long = 1, 10
	}
	steps, n := grid(-3, 1, fine), exact.Len()
	all := []*sweep{
		{name: "GD", model: objective, d: pgsvi.Euclidean(), batch: n, steps: grid(-3, 0, fine),
			passes: long * o.passes, seeds: 1},
		{name: "PG", model: exact, batch: n, steps: steps, passes: 10 * o.passes, seeds: 1},
		{name: "PG-MC", model: noisy, batch: n, steps: steps, passes: 10 * o.passes,
			seeds: o.seeds},
		{name: "PG-SVI", model: noisy, batch: p.Batch, steps: steps, passes: o.passes,
			seeds: o.seeds},
	}
	return choose("methods", o.methods, all, func(s *sweep) string { return s.name })
}

// figure1 measures and draws how long each method takes to converge.
func (o *options) figure1(ctx context.Context, stdout io.Writer) error {
	p, sweeps, err := o.measure1(ctx)
	if err != nil {
		return err
	}
	if err := drawFigure1(filepath.Join(o.out, "figure1.png"), p, sweeps); err != nil {
		return err
	}
	return o.publish(stdout, tables1(sweeps))
}

// tables1 returns the tables of figure 1 by name.
func tables1(sweeps []*sweep) map[string]string {
	return map[string]string{"figure 1": tableOfSteps(sweeps),
		"figure 1, all steps": tableOfAllSteps(sweeps)}
}

// tableOfSteps returns the step sizes at which each method converges, and the passes at its best
// step size.
func tableOfSteps(sweeps []*sweep) string {
	var rows [][]string
	for _, s := range sweeps {
		var good, noisy []float64 // converge with all seeds, or with most seeds
		best, explodes := -1, math.Inf(1)
		for i, step := range s.steps {
			if s.runs[i] == nil {
				continue
			}
			switch n := s.count(i, converged); {
			case n == len(s.runs[i]):
				good = append(good, step)
			case 2*n > len(s.runs[i]):
				noisy = append(noisy, step)
			}
			if passes := s.median(i, 1); !math.IsInf(passes, 1) &&
				(best < 0 || passes < s.median(best, 1)) {
				best = i
			}
			if 2*s.count(i, diverged) > len(s.runs[i]) {
				explodes = math.Min(explodes, step)
			}
		}
		row := []string{s.name, "none", "–", "–", "–"}
		if len(good) > 0 {
			row[1] = fmt.Sprintf("%.2g … %.2g", good[0], good[len(good)-1])
		}
		if len(noisy) > 0 {
			row[1] += fmt.Sprintf(", and %.2g with most seeds", noisy[len(noisy)-1])
		}
		if best >= 0 {
			row[2], row[3] = fmt.Sprintf("%v, at %.2g", s.median(best, 1), s.steps[best]),
				fmt.Sprint(s.median(best, 0))
		}
		if !math.IsInf(explodes, 1) {
			row[4] = fmt.Sprintf("%.2g", explodes)
		}
		rows = append(rows, row)
	}
	return tables.Markdown([]string{"method", "step sizes that reach 0.1% and stay",
		"best, passes to 0.1%", "passes to 1% there", "diverges from"}, rows)
}

// tableOfAllSteps returns all measurements as medians over seeds.
func tableOfAllSteps(sweeps []*sweep) string {
	var rows [][]string
	for _, s := range sweeps {
		for i, step := range s.steps {
			if s.runs[i] == nil {
				continue
			}
			var status []string
			for _, name := range []string{converged, left, notReached, diverged} {
				if n := s.count(i, name); n > 0 {
					status = append(status, fmt.Sprintf("%d %s", n, name))
				}
			}
			change, excess := s.stop(i)
			rows = append(rows, []string{s.name, fmt.Sprintf("%.3g", step), finite(s.median(i, 0)),
				finite(s.median(i, 1)),
				strings.Join(status, ", "), finite(change), finite(excess)})
		}
	}
	return tables.Markdown([]string{"method", "step", "to 1%", "to 0.1%", "status",
		"to a change of 0.1%", "nats above then"}, rows)
}

// count returns the number of runs with the given status at step size i.
func (s *sweep) count(i int, status string) (n int) {
	for _, r := range s.runs[i] {
		if r.status == status {
			n++
		}
	}
	return n
}

// measure1 runs the methods of figure 1 at all of their step sizes.
func (o *options) measure1(ctx context.Context) (*problem, []*sweep, error) {
	if _, err := choose("data sets", o.sets, []string{"ionosphere"},
		func(s string) string { return s }); err != nil {
		return nil, nil, err
	}
	ionosphere, err := paper.Ionosphere(o.testdata)
	if err != nil {
		return nil, nil, err
	}
	p, err := solve(ctx, ionosphere)
	if err != nil {
		return nil, nil, err
	}
	sweeps, err := o.sweeps(p)
	if err != nil {
		return nil, nil, err
	}
	total := 0
	for _, s := range sweeps {
		total += len(s.steps) * s.seeds * s.passes
	}
	bar := newBar(total)
	table, err := o.results("figure1.csv", 3, "method", "step", "seed", "passes_1pct",
		"passes_0p1pct", "status", "passes_change", "excess_change")
	if err != nil {
		return nil, nil, err
	}
	for _, s := range sweeps {
		for _, step := range s.steps {
			var runs []outcome
			for seed := range s.seeds {
				rows, err := table.run([]string{s.name, number(step), fmt.Sprint(seed + 1)},
					func() ([][]string, error) {
						r, err := s.run(ctx, step, uint64(seed+1), p, bar)
						return [][]string{r.row()}, err
					})
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", s.name, err)
				}
				if rows == nil {
					continue
				}
				r, err := readOutcome(rows[0][3:])
				if err != nil {
					return nil, nil, err
				}
				runs = append(runs, r)
			}
			s.runs = append(s.runs, runs)
		}
	}
	bar.Finish()
	return p, sweeps, nil
}

// run runs s at a step size.
func (s *sweep) run(ctx context.Context, step float64, seed uint64, p *problem,
	bar *progressbar.ProgressBar) (outcome, error) {
	solver := pgsvi.Solver{Divergence: s.d, StepSize: pgsvi.ConstantStep(step), BatchSize: s.batch,
		Src: rand.NewPCG(seed, 0)}
	marks := make([]int, s.passes)
	for i := range marks {
		marks[i] = i + 1
	}
	var curve []float64
	pass, err := follow(ctx, solver, s.model, marks, bar, func(s state) error {
		v, err := s.negELBO()
		if err == nil {
			curve = append(curve, v)
		}
		return err
	})
	if pass < 0 {
		return outcome{}, err
	}
	return judge(curve, p.start, p.optimum, err != nil), context.Cause(ctx)
}

// median returns the median, over seeds, of the passes to a band at step size i.
func (s *sweep) median(i, band int) float64 {
	var v []float64
	for _, r := range s.runs[i] {
		v = append(v, r.passes[band])
	}
	return median(v)
}

// stop returns the passes to a small change, and the nats above the optimum then, for the median
// run at step size i.
func (s *sweep) stop(i int) (passes, excess float64) {
	r := slices.SortedFunc(slices.Values(s.runs[i]),
		func(a, b outcome) int { return cmp.Compare(a.change, b.change) })
	return r[len(r)/2].change, r[len(r)/2].excess
}

// A problem is a data set with the −ELBO at the start, q = prior, and at the optimum.
type problem struct {
	*paper.Problem // nil if the problem comes from a table
	name           string
	start, optimum float64
}

// solve finds the optimum of p.
func solve(ctx context.Context, p *paper.Problem) (*problem, error) {
	st, err := p.GP.NewStepper(context.Background(), nil, nil)
	if err != nil {
		return nil, err
	}
	elbo, err := paper.ELBO(st)
	if err != nil {
		return nil, err
	}
	_, res, err := p.GP.Fit(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return &problem{p, p.Name, -elbo, -res.ELBO}, nil
}
