package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
)

// marks are the passes after which the methods of figure 2 are evaluated.
var marks = []int{1, 2, 3, 5, 10, 20, 50, 100, 200}

// The variants of the methods of figure 2.
const (
	published = "published"
	corrected = "corrected" // the gradient of a mini-batch is scaled by N over its size
	library   = "library"   // steps without options
)

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

// unscaled is f as the published scripts gave it to the methods that PG-SVI was
// compared with: the gradient of a mini-batch is not scaled by N/len(batch), so
// that in the mean they descend KL + (M/N)·f. Its value is that of f.
type unscaled struct{ pgsvi.Smooth }

func (u unscaled) Grad(dst []float64, q pgsvi.Dist, batch []int, rng *rand.Rand) (float64, error) {
	v, err := u.Smooth.Grad(dst, q, batch, rng)
	if batch != nil {
		scale := float64(len(batch)) / float64(u.Len())
		for i := range dst {
			dst[i] *= scale
		}
		v *= scale
	}
	return v, err
}

func (u unscaled) Value(q pgsvi.Dist, rng *rand.Rand) (value, stderr float64, err error) {
	return u.Smooth.(interface {
		Value(pgsvi.Dist, *rand.Rand) (float64, float64, error)
	}).Value(q, rng)
}

// methods2 returns the methods of figure 2 at the settings of p.
func (o *options) methods2(p *problem) ([]*method, error) {
	n := len(p.y)
	all := []*method{
		{name: "PG-SVI", variant: published, random: true, model: p.gp, solver: *pgsvi.PGSVI(n, p.betaN, p.batch)},
		{name: "block", variant: library, random: true, model: p.gp},
		{name: "batch", variant: library, model: p.gp, solver: pgsvi.Solver{BatchSize: n}},
	}
	scaled, err := p.gp.Objective()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	plain := scaled
	plain.F = unscaled{scaled.F}
	const eps = 1e-8 // in the published scripts
	for _, v := range []struct {
		name      string
		objective pgsvi.Objective
	}{{published, plain}, {corrected, scaled}} {
		for _, m := range []struct {
			name string
			d    pgsvi.Divergence
			step pgsvi.Schedule
		}{
			{"SGD", pgsvi.Euclidean{}, pgsvi.RobbinsMonro{Scale: p.sgdN / float64(n), Power: p.sgdPower}},
			{"AdaGrad", pgsvi.AdaGrad{Epsilon: eps}, pgsvi.ConstantStep(p.adaGrad)},
			{"RMSprop", pgsvi.RMSprop{Decay: p.rmsDecay, Epsilon: eps}, pgsvi.ConstantStep(p.rmsProp)},
			{"Adadelta", pgsvi.Adadelta{Decay: 1 - p.adadeltaForget, Epsilon: eps}, pgsvi.ConstantStep(p.adadelta)},
			{"Adam", pgsvi.Adam{}, pgsvi.ConstantStep(p.adam)},
		} {
			all = append(all, &method{name: m.name, variant: v.name, random: true, model: v.objective.Linearized().In(pgsvi.LogCholesky),
				solver: pgsvi.Solver{Divergence: m.d, StepSize: m.step, BatchSize: p.batch}})
		}
	}
	all = slices.DeleteFunc(all, func(m *method) bool { return !o.wants(m.name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("figure 2 has no methods %v", o.methods)
	}
	return all, nil
}

// problems2 returns the data sets of figure 2.
func (o *options) problems2() ([]*problem, error) {
	p, err := readUCI(o.testdata, "ionosphere", ionosphereSettings)
	if err != nil || o.quick {
		return []*problem{p}, err
	}
	sonar, err := readUCI(o.testdata, "sonar", sonarSettings)
	if err != nil {
		return nil, err
	}
	all := []*problem{sonar, p}
	if o.data == "" {
		return all, nil
	}
	for _, digits := range [][2]int{{2, 4}, {3, 5}} {
		p, err := readUSPS(filepath.Join(o.data, "usps"), digits[0], digits[1])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// marks returns the passes after which to evaluate, the last included.
func (o *options) marks() []int {
	i, found := slices.BinarySearch(marks, o.passes)
	if found {
		return marks[:i+1]
	}
	return append(slices.Clone(marks[:i]), o.passes)
}

// stepperBits returns the test log loss of the state of st.
func (d *predictor) stepperBits(st pgsvi.Stepper) (float64, error) {
	gp, ok := st.(*pgsvi.GPStepper)
	if !ok {
		return d.bits(st.(interface{ Dist() pgsvi.Dist }).Dist().(*pgsvi.Gaussian)), nil
	}
	post, err := gp.Posterior()
	if err != nil {
		return math.NaN(), err
	}
	var sum float64
	for _, logp := range post.LogProb(nil, d.p.ytest, d.p.xtest) {
		sum -= logp
	}
	return sum / math.Ln2 / float64(len(d.p.ytest)), nil
}

// figure2 measures and draws how −ELBO and test log loss fall with the passes.
func (o *options) figure2(ctx context.Context, stdout io.Writer) error {
	problems, err := o.problems2()
	if err != nil {
		return err
	}
	total := 0
	methods := make([][]*method, len(problems))
	for i, p := range problems {
		if _, err := p.solve(ctx); err != nil {
			return err
		}
		if methods[i], err = o.methods2(p); err != nil {
			return err
		}
		for _, m := range methods[i] {
			total += m.seeds(o) * o.passes
		}
	}
	bar := newBar(total)
	rows := [][]string{{"dataset", "method", "variant", "seed", "pass", "neg_elbo", "logloss_bits", "seconds"}}
	for i, p := range problems {
		pred, err := p.predictor()
		if err != nil {
			return err
		}
		for _, m := range methods[i] {
			for seed := range m.seeds(o) {
				st, err := m.model.NewStepper(m.solver.Divergence)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, m.name, err)
				}
				var run []sample
				var bitsErr error
				m.solver.Src = rand.NewPCG(uint64(seed+1), 0)
				pass, err := follow(ctx, m.solver, st, o.marks(), bar, func(s state) bool {
					var bits float64
					bits, bitsErr = pred.stepperBits(s.stepper)
					run = append(run, sample{s.pass, s.negELBO, bits, s.seconds})
					return bitsErr == nil
				})
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err = errors.Join(err, bitsErr); err != nil {
					fmt.Fprintf(stdout, "%s, %s %s, seed %d: after pass %d: %v\n", p.name, m.name, m.variant, seed+1, pass, err)
				}
				m.runs = append(m.runs, run)
				for _, s := range run {
					rows = append(rows, []string{p.name, m.name, m.variant, fmt.Sprint(seed + 1), fmt.Sprint(s.pass), number(s.negELBO), number(s.bits), number(s.seconds)})
				}
			}
		}
	}
	bar.Finish()
	if err := writeCSV(filepath.Join(o.out, "figure2.csv"), rows); err != nil {
		return err
	}
	if err := drawFigure2(filepath.Join(o.out, "figure2.png"), o.marks(), problems, methods); err != nil {
		return err
	}

	last := o.marks()[len(o.marks())-1]
	for i, p := range problems {
		fmt.Fprintf(stdout, "\n%s: %d training rows, %d test rows, −ELBO %.8f at the optimum; after %d passes, median over seeds\n\n", p.name, len(p.y), len(p.ytest), p.optimum, last)
		tw := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "method\tvariant\t−ELBO\ttest bits\tseconds\t")
		for _, m := range methods[i] {
			s := m.median(last)
			fmt.Fprintf(tw, "%s\t%s\t%.6f\t%.5f\t%.2f\t\n", m.name, m.variant, s.negELBO, s.bits, s.seconds)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
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
		if i := slices.IndexFunc(run, func(s sample) bool { return s.pass == pass }); i >= 0 {
			s = run[i]
		}
		elbo, bits, seconds = append(elbo, s.negELBO), append(bits, s.bits), append(seconds, s.seconds)
	}
	return sample{pass, median(elbo), median(bits), median(seconds)}
}

// median returns the median of v, the upper one of two.
func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// number formats v for a CSV file.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

func writeCSV(file string, rows [][]string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := csv.NewWriter(f).WriteAll(rows); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
