// What do the methods of the paper have in common, and which of them reach the optimum?
//
// Data: the first 25 rows of ionosphere (V. Sigillito et al., UCI machine learning repository,
// 1989). Each method in table 1 of Khan et al. (2016) fits the same Gaussian process classifier.
// A method is a choice of f, which is linearized, h, which is kept exact, and the divergence D.
// The program prints after how many passes each method stays within 1, 0.01 and 1e-6 nats of the
// optimum (+Inf: never), at its best step size. It draws the runs, except the trust region, whose
// steps take more passes than the plot shows.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/mat"
)

//go:embed ionosphere40.csv
var ionosphere []byte

var (
	rows   = flag.Int("rows", 25, "rows to fit, up to 40")
	passes = flag.Float64("passes", 200, "maximal number of passes of most runs")
	out    = flag.String("out", "pictures/methods.png", "picture to write")
)

type objective = pgsvi.Objective[*pgsvi.Gaussian]
type solver = pgsvi.Solver
type method struct {
	name, f, h, d string // f, h and D in words
	model         pgsvi.Model
	solver        solver
	largest       float64 // largest step size to try; 0 lets the library choose
	tries         int     // number of step sizes to try, each a quarter of the one before
	share         float64 // number of passes, relative to -passes
	decay         bool    // whether step sizes fall as (k+1)^-0.6
}

// methods returns all methods for gp; sampled is the same GP with score-function gradients.
func methods(gp, sampled *pgsvi.GP) []method {
	o, err := gp.Objective()
	check(err)
	in := func(o objective, c pgsvi.Coordinates) objective { o.Init = o.Init.In(c); return o }
	lin, five := o.Linearized(), o
	five.Inner = 5
	euclid, sym := solver{Divergence: pgsvi.Euclidean()}, solver{Divergence: pgsvi.SymKL()}
	batches := func(d pgsvi.Divergence) solver { return solver{Divergence: d, BatchSize: 5} }
	logs := in(lin, pgsvi.LogCholesky)
	return []method{
		{"gradient descent", "-ELBO", "0", "Euclidean (m, L)", in(lin, pgsvi.Cholesky), euclid, 16, 8, 1, false},
		{"proximal gradient", "-E log p", "KL", "Euclidean (m, L)", in(o, pgsvi.Cholesky), euclid, 16, 8, 1, false},
		{"mirror descent in A", "-ELBO", "0", "reverse KL (eta)", in(lin, pgsvi.Natural), solver{Divergence: pgsvi.ReverseKL()}, 1, 8, 1, false},
		{"natural gradient", "-ELBO", "0", "KL (mu)", lin, solver{}, 1, 6, 1, false},
		{"natural, symmetric KL", "-ELBO", "0", "symmetric KL", lin, sym, 1, 2, 0.35, false},
		{"trust region", "0", "-ELBO", "KL (m, L)", in(o, pgsvi.Cholesky).ProximalPoint(), solver{}, 64, 2, 20, false},
		{"trust region, 5 times", "-E log p, 5 times", "KL", "KL (mu)", five, solver{}, 64, 5, 1, false},
		{"PG, main text", "-E log p", "KL", "KL (mu)", o, solver{}, 16, 6, 1, false},
		{"PG, appendix", "-E log p", "KL", "KL (m, V)", in(o, pgsvi.MeanCov), solver{}, 16, 8, 1, false},
		{"PG, symmetric KL", "-E log p", "KL", "symmetric KL", o, sym, 4, 2, 0.35, false},
		{"SGD", "-ELBO", "0", "Euclidean (m, L)", in(lin, pgsvi.Cholesky), batches(pgsvi.Euclidean()), 16, 8, 1, true},
		{"AdaGrad", "-ELBO", "0", "running diagonal", logs, batches(pgsvi.AdaGrad(0)), 4, 6, 1, false},
		{"RMSprop", "-ELBO", "0", "running diagonal", logs, batches(pgsvi.RMSprop(0, 0)), 1, 7, 1, false},
		{"Adadelta", "-ELBO", "0", "running diagonal", logs, batches(pgsvi.Adadelta(0, 0)), 256, 6, 1, false},
		{"Adam", "-ELBO", "0", "running diagonal", logs, batches(pgsvi.Adam(0, 0, 0)), 1, 7, 1, false},
		{"SVI", "-ELBO", "0", "KL (mu)", lin, batches(nil), 1, 6, 1, true},
		{"trust region, batches", "-E log p, 5 times", "KL", "KL (mu)", five, batches(nil), 1, 6, 1, true},
		{"PG-MC", "-E log p, draws", "KL", "KL (mu)", sampled, solver{}, 4, 6, 1, false},
		{"PG-SVI", "-E log p, draws", "KL", "KL (mu)", sampled, batches(nil), 1, 6, 1, false},
		{"nil Solver", "-E log p", "KL", "KL, accepted", gp, solver{}, 0, 1, 1, false},
	}
}

// fit returns the run with the highest final ELBO, the shorter one of a tie, and its step size.
func (m method) fit(ctx context.Context) (best []pgsvi.Iteration, step float64) {
	highest := math.Inf(-1)
	for k := range m.tries {
		s, size := m.solver, m.largest/math.Pow(4, float64(k))
		s.MaxPasses, s.EvalEvery = *passes*m.share, 1
		if s.BatchSize > 0 {
			s.EvalEvery = (*rows + s.BatchSize - 1) / s.BatchSize // once a pass
		}
		if m.largest > 0 {
			s.StepSize, s.Converger = pgsvi.ConstantStep(size), pgsvi.ELBOChange(1e-10, 0)
		}
		if m.decay {
			s.StepSize = pgsvi.RobbinsMonro(size, 1, 0.6)
		}
		res, err := s.Run(ctx, m.model)
		if err != nil || len(res.Trace) == 0 { // the step size is too long
			continue
		}
		tie := 1e-9 * math.Abs(res.ELBO)
		if res.ELBO > highest+tie || res.ELBO > highest-tie && len(res.Trace) < len(best) {
			best, step, highest = res.Trace, size, res.ELBO
		}
	}
	return best, step
}

func main() {
	flag.Parse()
	ctx := context.Background()
	all, labels, err := data.ReadCSV(bytes.NewReader(ionosphere))
	check(err)
	*rows = max(1, min(*rows, len(labels)))
	x, y := all.Slice(0, *rows, 0, 34).(*mat.Dense), labels[:*rows]
	kernel, opt := pgsvi.SquaredExp{Scale: 12.18, Length: math.E}, pgsvi.GPOptions{Jitter: 1e-2}
	gp, err := pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, &opt)
	check(err)
	opt.Estimator = pgsvi.ScoreFunction(500)
	sampled, err := pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, &opt)
	check(err)
	_, best, err := gp.Fit(ctx, &pgsvi.Solver{Goal: 1e-8})
	check(err)
	fmt.Printf("ELBO of the optimum: %.8f, proved to %.1e nats\n\n", best.ELBO, best.GapBound)
	fmt.Print("method                 f, linearized      h, exact D                 step size   1 nat    0.01    1e-6 (passes)")
	var runs []plot.Run
	for _, m := range methods(gp, sampled) {
		trace, step := m.fit(ctx)
		fmt.Printf("\n%-22s %-18s %-8s %-17s %9.3g", m.name, m.f, m.h, m.d, step)
		for _, nats := range []float64{1, 0.01, 1e-6} {
			after := math.Inf(1) // all later iterations are within nats of the optimum
			for n := len(trace) - 1; n >= 0 && trace[n].ELBO >= best.ELBO-nats; n-- {
				after = trace[n].Passes
			}
			fmt.Printf(" %7.4g", after)
		}
		runs = append(runs, plot.Run{Name: m.name, Trace: trace})
	}
	exact := plot.Trace(plot.Labels{Title: "All rows"}, best.ELBO, slices.Concat(runs[:5], runs[6:10], runs[19:])...)
	noisy := plot.Trace(plot.Labels{Title: "Mini-batches or draws"}, best.ELBO, runs[10:19]...)
	exact.X.Max, noisy.X.Max = *passes, *passes
	fmt.Println("\n\nwrote", *out)
	check(plot.Save(*out, plot.Stack(exact, noisy), 24))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
