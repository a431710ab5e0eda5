// How do I write a model of my own as (f, h, D), and how do the methods of the paper compare on it?
//
// Data: 351 radar returns with 34 features (ionosphere; V. Sigillito et al., UCI machine learning
// repository, 1989). The model is logistic regression with a Laplace prior (Bayesian lasso; Park and
// Casella, 2008) and a Gaussian q. f comes from the library, and h is the type lasso below.
// The program checks h, fits the model by four methods, and draws −ELBO after each pass. Gradient
// descent and the natural gradient linearize h with f. The others keep h exact. Step sizes are the
// best of four, and a run ends when its ELBO hardly changes.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
)

//go:embed ionosphere.csv
var ionosphere []byte

var (
	out    = flag.String("out", "pictures/own.svg", "picture to write, next to a table of the runs")
	passes = flag.Float64("passes", 40, "maximal number of passes of a run")
	scale  = flag.Float64("scale", 0.2, "scale b of the Laplace prior")
)

// lasso is h = KL(q‖p) for the prior p(z) = Π_j exp(−|z_j|/b)/(2b), with E|z| = 2sφ(m/s) + m erf(m/s√2)
// for z ~ N(m, s²). The library has it as LaplacePrior.
type lasso struct{ b float64 }

func (h lasso) Check(q pgsvi.Dist) error {
	if g, ok := q.(*pgsvi.Gaussian); !ok || g.NumParams() != g.Dim()*(g.Dim()+3)/2 || !(h.b > 0) {
		return fmt.Errorf("lasso needs a full Gaussian and b > 0: %w", pgsvi.ErrShape)
	}
	return nil
}

func (h lasso) Value(q pgsvi.Dist) float64 {
	g := q.(*pgsvi.Gaussian)
	sum := floats.Dot(g.Natural(nil), g.MeanParams(nil)) - g.LogPartition() // −H(q)
	variance := g.Var(nil)
	for j, m := range g.Mean(nil) {
		s := math.Sqrt(variance[j])
		phi := math.Exp(-m*m/(2*s*s)) / math.Sqrt(2*math.Pi)
		sum += (2*s*phi+m*math.Erf(m/(s*math.Sqrt2)))/h.b + math.Log(2*h.b) // −E_q[log p(z_j)]
	}
	return sum
}

// Grad starts with the gradient with respect to the mean parameters μ = (m, V + mmᵀ), where the gradient
// of −H(q) is η. FromMeanGrad converts the sum to the coordinates of q.
func (h lasso) Grad(dst []float64, q pgsvi.Dist) []float64 {
	g := q.(*pgsvi.Gaussian)
	dst = g.Natural(dst)
	variance := g.Var(nil)
	for j, m := range g.Mean(nil) {
		s := math.Sqrt(variance[j])
		byVar := math.Exp(-m*m/(2*s*s)) / (s * math.Sqrt(2*math.Pi) * h.b)
		dst[j] += math.Erf(m/(s*math.Sqrt2))/h.b - 2*m*byVar
		dst[g.Dim()+j*(j+3)/2] += byVar // the element (j, j) of the matrix part
	}
	return g.FromMeanGrad(dst, dst)
}

type objective = pgsvi.Objective[*pgsvi.Gaussian]

// best returns the run with the highest final ELBO among four step sizes, and its step size.
func best(ctx context.Context, o objective, s pgsvi.Solver, largest float64) (top *pgsvi.Result,
	step float64) {
	for k := range 4 {
		try, size := s, largest/math.Pow(4, float64(k))
		try.StepSize, try.MaxPasses = pgsvi.ConstantStep(size), *passes
		try.Converger = pgsvi.ELBOChange(1e-6, 0)
		if try.BatchSize > 0 {
			try.StepSize, try.EvalEvery = pgsvi.RobbinsMonro(size, 1, 0.6), 3 // evaluate once per pass
		}
		_, res, err := o.Fit(ctx, &try)
		if err == nil && (top == nil || res.ELBO > top.ELBO) { // long steps can leave the domain
			top, step = res, size
		}
	}
	return top, step
}

func main() {
	flag.Parse()
	ctx := context.Background()
	features, y, err := data.ReadCSV(bytes.NewReader(ionosphere))
	check(err)
	rows, d := features.Dims()
	sites := pgsvi.Sites{Y: y, Lik: pgsvi.BernoulliLogit{}, X: make([][]float64, rows)}
	for n := range rows {
		sites.X[n] = append([]float64{1}, features.RawRowView(n)...)
	}
	q := pgsvi.NewIsotropic(d+1, *scale**scale)
	o := objective{F: pgsvi.Expect(sites, nil), H: lasso{*scale}, Init: q}
	check(pgsvi.CheckConvex(o.H, q, pgsvi.NewIsotropic(d+1, *scale**scale/9)))

	inL := o.Linearized()
	inL.Init = q.In(pgsvi.Cholesky)
	euclid := pgsvi.Solver{Divergence: pgsvi.Euclidean()}
	var runs []plot.Run
	table := "method,step size,passes,-ELBO\n"
	for _, m := range []struct {
		name    string
		o       objective
		s       pgsvi.Solver
		largest float64
	}{
		{"gradient descent", inL, euclid, 1. / 16},
		{"natural gradient", o.Linearized(), pgsvi.Solver{}, 4},
		{"proximal gradient, KL", o, pgsvi.Solver{}, 16},
		{"PG-SVI, batches of 117", o, pgsvi.Solver{BatchSize: 117}, 4},
	} {
		res, step := best(ctx, m.o, m.s, m.largest)
		fmt.Printf("%-24s β = %-8.3g %v\n", m.name, step, res)
		runs = append(runs, plot.Run{Name: m.name, Trace: res.Trace})
		for _, it := range res.Trace {
			table += fmt.Sprintf("%q,%.4g,%.6g,%.9f\n", m.name, step, it.Passes, -it.ELBO)
		}
	}
	_, res, err := objective{F: o.F, H: pgsvi.LaplacePrior(nil, *scale), Init: q}.Fit(ctx, nil)
	check(err)
	fmt.Println("LaplacePrior, nil Solver:", res)
	l := plot.Labels{Title: "Bayesian lasso on ionosphere", Y: "−ELBO above its minimum (nats)"}
	check(plot.Save(*out, plot.Trace(l, res.ELBO, runs...), 0))
	csv := strings.TrimSuffix(*out, ".svg") + ".csv"
	check(os.WriteFile(csv, []byte(table), 0o666))
	fmt.Println("wrote", *out, "and", filepath.Base(csv))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
